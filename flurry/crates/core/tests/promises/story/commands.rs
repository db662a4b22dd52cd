//! The commands of a transcript; `tests/transcripts/README.md` lists them.

use bytes::Bytes;
use flurry_core::config::Level;
use flurry_core::id::{DurationNs, WallNs};
use flurry_core::key_value::{Condition, Operation};
use flurry_core::message::Copies;
use flurry_core::portal::{Portal, PortalParams, Submission};
use flurry_core::router::{Router, RouterParams};

use super::{Link, Owner, Packet, Part, Story, print};
use crate::common;

/// The words of a command: those without `=` in their order, and the others by name.
struct Words<'a> {
    plain: Vec<&'a str>,
    named: Vec<(&'a str, &'a str)>,
}

impl<'a> Words<'a> {
    fn of(command: &'a str) -> Self {
        let words = || command.split_whitespace();
        Self {
            plain: words().filter(|it| !it.contains('=')).collect(),
            named: words().filter_map(|it| it.split_once('=')).collect(),
        }
    }

    /// Takes the next word without `=`.
    fn next(&mut self, what: &str) -> Result<&'a str, String> {
        if self.plain.is_empty() {
            return Err(format!("it lacks {what}"));
        }
        Ok(self.plain.remove(0))
    }

    /// Takes a word that is there or not.
    fn flag(&mut self, name: &str) -> bool {
        let before = self.plain.len();
        self.plain.retain(|it| *it != name);
        self.plain.len() < before
    }

    fn named(&mut self, name: &str) -> Option<&'a str> {
        let place = self.named.iter().position(|it| it.0 == name)?;
        Some(self.named.remove(place).1)
    }

    /// Checks that no word is left, since a word that nobody reads is a mistake in the story.
    fn end(self) -> Result<(), String> {
        let named = self.named.first().map(|it| it.0);
        match self.plain.first().copied().or(named) {
            Some(word) => Err(format!("`{word}` means nothing here")),
            None => Ok(()),
        }
    }
}

impl Story {
    /// Carries out a command. Returns the lines of its output.
    pub(crate) fn run(&mut self, command: &str) -> Result<Vec<String>, String> {
        let mut words = Words::of(command);
        self.quiet = words.plain.first() == Some(&"quiet");
        if self.quiet {
            words.next("a command")?;
        }
        self.carry_out(words)?;
        self.collect();
        self.flush();
        if self.lines.is_empty() {
            self.lines.push("ok".to_owned());
        }
        Ok(std::mem::take(&mut self.lines))
    }

    fn carry_out(&mut self, mut words: Words<'_>) -> Result<(), String> {
        match words.next("a command")? {
            "begin" => self.begin(&mut words)?,
            "start" => {
                while !words.plain.is_empty() {
                    let Part::Server(id) = part(words.next("a server")?)? else {
                        return Err("only a server starts; owners are opened".to_owned());
                    };
                    self.start(id);
                }
            }
            "crash" => self.crash(part(words.next("a part")?)?)?,
            "stall" => self.seat(&mut words)?.stalled = true,
            "resume" => self.seat(&mut words)?.stalled = false,
            "open" => self.open(&mut words)?,
            "close" => {
                let now = self.now;
                self.owner(&mut words)?.portal.close(now);
            }
            "clock" => {
                let owner = self.owner(&mut words)?;
                owner.clock = wall(words.next("a time")?)?;
            }
            "tick" => self.tick(span(words.next("a time")?)?),
            "deliver" if words.plain.is_empty() => self.deliver_all(),
            "deliver" => {
                for packet in self.pick(&mut words)? {
                    self.deliver(packet);
                }
            }
            "drop" => drop(self.pick(&mut words)?),
            "duplicate" => {
                let packets = self.pick(&mut words)?;
                let twice = packets.iter().chain(&packets).cloned();
                self.network.extend(twice);
            }
            "record" => self.recorded = self.on(&links(words.next("a link")?)?)?,
            "replay" => self.network.extend(self.recorded.iter().cloned()),
            "hold" => self.held.extend(links(words.next("a part or a link")?)?),
            "cut" => self.cut.extend(links(words.next("a part or a link")?)?),
            "release" => self.held = without(&self.held, &mut words)?,
            "heal" => self.cut = without(&self.cut, &mut words)?,
            "show" => self.show_what(words.next("a key, `config` or `doubts`")?),
            verb => self.submit(verb, &mut words)?,
        }
        words.end()
    }

    /// Starts three servers and opens the session for the first owner.
    fn begin(&mut self, words: &mut Words<'_>) -> Result<(), String> {
        self.quiet = true;
        for id in 1..=3 {
            self.start(id);
        }
        self.tick(DurationNs::millis(300));
        words.plain.insert(0, "portal1");
        self.open(words)?;
        self.deliver_all();
        Ok(())
    }

    fn crash(&mut self, part: Part) -> Result<(), String> {
        let known = match part {
            Part::Server(id) => {
                let seat = self.seats.get_mut(&id);
                seat.map(|it| (it.runs, it.stalled) = (false, false))
                    .is_some()
            }
            Part::Portal(id) => self.owners.remove(&id).is_some(),
            _ => false,
        };
        // Its messages that are under way still arrive.
        let reaches = |to: Part| match (part, to) {
            (Part::Portal(id), Part::Router(to)) => id != to,
            _ => part != to,
        };
        self.network.retain(|it| reaches(it.to));
        known.then_some(()).ok_or_else(|| format!("no {part} runs"))
    }

    fn seat(&mut self, words: &mut Words<'_>) -> Result<&mut super::Seat, String> {
        let part = part(words.next("a server")?)?;
        let seat = match part {
            Part::Server(id) => self.seats.get_mut(&id).filter(|it| it.runs),
            _ => None,
        };
        seat.ok_or_else(|| format!("no server {part} runs"))
    }

    fn owner(&mut self, words: &mut Words<'_>) -> Result<&mut Owner, String> {
        let part = part(words.next("a portal")?)?;
        let owner = match part {
            Part::Portal(id) => self.owners.get_mut(&id),
            _ => None,
        };
        owner.ok_or_else(|| format!("no owner {part} runs"))
    }

    fn open(&mut self, words: &mut Words<'_>) -> Result<(), String> {
        let Part::Portal(id) = part(words.next("a portal")?)? else {
            return Err("only a portal opens a session".to_owned());
        };
        let clock = words.named("clock").map_or(Ok(WallNs(0)), wall)?;
        let params = PortalParams {
            tells_first: words.flag("tells_first"),
            ..common::owner_params(u64::from(id), Copies::Count(1))
        };
        let owner = Owner {
            portal: Portal::new(self.now, params),
            router: Router::new(RouterParams::default()),
            clock,
        };
        match self.owners.insert(id, owner) {
            Some(_) => Err("this owner runs already".to_owned()),
            None => Ok(()),
        }
    }

    /// Returns the messages that are under way on these links.
    fn on(&self, links: &[Link]) -> Result<Vec<Packet>, String> {
        let is_one = |packet: &&Packet| links.iter().any(|it| it.has(packet));
        let found: Vec<Packet> = self.network.iter().filter(is_one).cloned().collect();
        if found.is_empty() {
            return Err("no message is under way there".to_owned());
        }
        Ok(found)
    }

    /// Takes the messages on a link out of the network.
    fn pick(&mut self, words: &mut Words<'_>) -> Result<Vec<Packet>, String> {
        let links = links(words.next("a link")?)?;
        let picked = self.on(&links)?;
        let is_left = |packet: &Packet| !links.iter().any(|it| it.has(packet));
        self.network.retain(is_left);
        Ok(picked)
    }

    fn show_what(&mut self, what: &str) {
        match what {
            "config" => {
                let config = self.controller.config().map(|it| print::config(it));
                self.say(&config.unwrap_or_else(|| "no Config".to_owned()));
            }
            "doubts" => {
                let epochs = self.controller.sessions_in_doubt();
                let epochs: Vec<u32> = epochs.map(|it| it.1.0).collect();
                self.say(&format!("sessions_in_doubt: epochs {epochs:?}"));
            }
            key => {
                let mut lines = Vec::new();
                for (id, seat) in &self.seats {
                    let mut states = seat.server.states();
                    let state = states.find(|it| it.0.bytes() == key.as_bytes());
                    let text =
                        state.map_or_else(|| "no record".to_owned(), |it| print::state(&it.1));
                    let text = if seat.runs {
                        text
                    } else {
                        "crashed".to_owned()
                    };
                    lines.push(format!("{}: {text}", Part::Server(*id)));
                }
                lines.iter().for_each(|it| self.say(it));
            }
        }
    }

    fn submit(&mut self, verb: &str, words: &mut Words<'_>) -> Result<(), String> {
        let key = match verb {
            "set" | "get" | "delete" | "increment" => words.next("a key")?,
            _ => return Err(format!("there is no command `{verb}`")),
        };
        let operation = match verb {
            "set" => Operation::Set {
                value: Bytes::copy_from_slice(words.next("a value")?.as_bytes()),
                expires_at: words.named("expires_at").map(wall).transpose()?,
                condition: Condition::Always,
            },
            "get" => Operation::Get,
            "delete" => Operation::Delete { counted: false },
            _ => {
                let by = words.next("a number")?.parse::<i64>();
                Operation::Increment(by.map_err(|it| it.to_string())?)
            }
        };
        let level = match words.named("level") {
            None | Some("first") => Level::First,
            Some("quorum") => Level::Quorum,
            Some("all") => Level::All,
            Some(other) => return Err(format!("`{other}` is no level")),
        };
        let refuses_doubt = words.flag("refuses_doubt");
        let by = words.named("by").map(part).transpose()?;
        let latest = self.owners.last_entry().map(|it| Part::Portal(*it.key()));
        let owner = match by.or(latest) {
            Some(Part::Portal(id)) => self.owners.get_mut(&id),
            _ => None,
        };
        let owner = owner.ok_or("no such owner runs")?;
        let submission = Submission {
            key: Bytes::copy_from_slice(key.as_bytes()),
            operation: operation.encode(),
            access: operation.access(),
            level,
            at: owner.clock,
            timeout: DurationNs::millis(500),
            sequence: None,
            refuses_doubt,
        };
        let portal = by.or(latest).map(|it| it.to_string()).unwrap_or_default();
        if let Err(error) = owner.portal.submit(self.now, submission) {
            self.say(&format!("{portal}: refused, {error:?}"));
        }
        Ok(())
    }
}

/// Returns the part of a name such as `server2`.
fn part(name: &str) -> Result<Part, String> {
    let digits = name.trim_start_matches(|it: char| it.is_ascii_lowercase());
    let number = digits.parse().ok();
    match (&name[..name.len() - digits.len()], number) {
        ("controller", None) => Ok(Part::Controller),
        ("server", Some(id)) => Ok(Part::Server(id)),
        ("portal", Some(id)) => Ok(Part::Portal(id)),
        ("router", Some(id)) => Ok(Part::Router(id)),
        _ => Err(format!("`{name}` is no part; such as server2 or portal1")),
    }
}

/// Returns the link `server1->router1`, or both directions of a part.
fn links(name: &str) -> Result<Vec<Link>, String> {
    let Some((from, to)) = name.split_once("->") else {
        let part = Some(part(name)?);
        let (from, to) = (None, None);
        return Ok(vec![Link { from: part, to }, Link { from, to: part }]);
    };
    let (from, to) = (Some(part(from)?), Some(part(to)?));
    Ok(vec![Link { from, to }])
}

fn without(known: &[Link], words: &mut Words<'_>) -> Result<Vec<Link>, String> {
    let ended = links(words.next("a part or a link")?)?;
    let left = known.iter().filter(|it| !ended.contains(it));
    let left: Vec<Link> = left.copied().collect();
    if left.len() == known.len() {
        return Err("nothing is held or cut there".to_owned());
    }
    Ok(left)
}

/// Returns a duration such as `50ms` or `2s`.
fn span(text: &str) -> Result<DurationNs, String> {
    let wrong = || format!("`{text}` is no time; such as 50ms or 2s");
    let (digits, factor) = match text.strip_suffix("ms") {
        Some(digits) => (digits, 1),
        None => (text.strip_suffix('s').ok_or_else(wrong)?, 1_000),
    };
    let count: u64 = digits.parse().map_err(|_| wrong())?;
    Ok(DurationNs::millis(count * factor))
}

fn wall(text: &str) -> Result<WallNs, String> {
    let ns = i64::try_from(span(text)?.0);
    ns.map(WallNs).map_err(|it| it.to_string())
}
