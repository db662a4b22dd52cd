//! Keeps the walks of all clients, and the gateway's own walk that removes expired values.

use bytes::Bytes;
use flurry_core::decimal::decimal;
use flurry_core::id::{DurationNs, MonoNs};
use flurry_core::key_value::{Operation, ValueKind};
use flurry_core::message::{Control, Listed};
use flurry_core::resp::{Reply, error};

use super::connection::{Connection, Place};
use super::dispatcher::{Asked, Dispatcher, Purpose};
use super::keys::Plan;
use super::shape::Shape;
use super::walk::{Goal, Of, Position, Walk, places_of};
use crate::Error;
use crate::link::Link;

/// Maximum number of walks of clients at a time.
const WALKS_MAX: usize = 64;

/// Bytes of a pattern at most: each key is compared with all of it.
const PATTERN_BYTES_MAX: usize = 1_024;

/// Pause between two walks of the gateway's own.
const REST: DurationNs = DurationNs::millis(1_000);

/// Records that a server looks at for one step of it, and the pause between two: others have their turn.
const SWEEP_RECORDS: u32 = 64;
const SWEEP_PAUSE: DurationNs = DurationNs::millis(1);

/// Maximum number of expired values removed at once.
const SWEPT_MAX: usize = 256;

#[derive(Debug)]
struct Walking {
    connection: u64,
    place: Place,
    walk: Walk,
    /// True to remove the keys that are found.
    removes: bool,
}

/// What a walk that is over leads to.
#[derive(Debug)]
pub(super) enum Over {
    /// The reply to its command.
    Reply(Reply),
    /// The command goes on, and removes these keys.
    Removal(Plan),
}

#[derive(Debug, Default)]
pub(super) struct Walks {
    clients: Vec<Walking>,
    /// The gateway's own walk, which looks for expired values.
    own: Option<Walk>,
    /// Time at which the gateway's own walk begins again.
    rests_until: MonoNs,
}

impl Walks {
    pub(super) fn due(&self) -> Option<MonoNs> {
        let clients = self.clients.iter().map(|it| it.walk.due());
        let own = self.own.as_ref().map_or(self.rests_until, Walk::due);
        clients.chain([own]).min()
    }
}

impl Walking {
    fn over(mut self) -> Over {
        if self.removes && self.walk.is_over() && !self.walk.is_too_long() {
            let remove = |key| (key, Operation::Delete { counted: false });
            return Over::Removal(Plan {
                steps: self.walk.take_keys().into_iter().map(remove).collect(),
                shape: Shape::Done,
            });
        }
        if self.removes && self.walk.is_too_long() {
            return Over::Reply(error(
                "ERR keys: they are too many to be removed at once, and none was; hint: SCAN and DEL",
            ));
        }
        Over::Reply(self.walk.reply())
    }
}

/// Returns whether these are options of `FLUSHDB`. The gateway removes the keys one by one, and
/// serves other clients in between, whatever the option is.
fn is_flush(options: &[Bytes]) -> bool {
    let is_option =
        |it: &Bytes| it.eq_ignore_ascii_case(b"async") || it.eq_ignore_ascii_case(b"sync");
    options.len() <= 1 && options.iter().all(is_option)
}

impl Dispatcher {
    /// Begins the walk for `SCAN`, `KEYS`, `DBSIZE` or `FLUSHDB`. Returns an error reply if the command is
    /// wrong.
    pub(super) fn begin_walk(
        &mut self,
        now: MonoNs,
        connection: &mut Connection,
        name: &str,
        words: &[Bytes],
    ) -> Option<Reply> {
        if self.walks.clients.len() >= WALKS_MAX {
            return Some(super::failure(&Error::Busy));
        }
        if words.iter().any(|word| word.len() > PATTERN_BYTES_MAX) {
            let refusal = format!("ERR a pattern has at most {PATTERN_BYTES_MAX} bytes");
            return Some(error(refusal));
        }
        let until = now.after(DurationNs(
            u64::try_from(self.timeout.as_nanos()).unwrap_or(u64::MAX),
        ));
        let after = self.owner.last();
        let walk = match name {
            "dbsize" => Walk::new(Goal::Count, after, until),
            "keys" => Walk::new(Goal::All, after, until).of(words[1].clone()),
            "flushall" | "flushdb" if is_flush(&words[1..]) => Walk::new(Goal::All, after, until),
            "flushall" | "flushdb" => return Some(error("ERR syntax error")),
            _ => match scan(&words[1..], after, until) {
                Ok(walk) => walk,
                Err(refusal) => return Some(refusal),
            },
        };
        let place = connection.expect_alone();
        self.walks.clients.push(Walking {
            connection: connection.number,
            place,
            walk,
            removes: name.starts_with("flush"),
        });
        None
    }

    /// Handles a server's answer that lists keys.
    pub(super) fn listed(&mut self, listed: &Listed) {
        let Some(places) = self.owner.config().map(|config| places_of(config)) else {
            return;
        };
        let clients = self.walks.clients.iter_mut().map(|it| &mut it.walk);
        for walk in clients.chain(self.walks.own.as_mut()) {
            walk.handle(listed, places);
        }
    }

    /// Continues all walks. Returns those that are over.
    pub(super) fn walk(&mut self, now: MonoNs, link: &mut Link) -> Vec<(u64, Place, Over)> {
        let Some(config) = self.owner.config().cloned() else {
            return Vec::new();
        };
        self.sweep(now);
        if self.walks.clients.is_empty() && self.walks.own.is_none() {
            return Vec::new();
        }
        let of = Of {
            sessions: self.owner.owned(),
            at: self.owner.wall(now),
            stable: self.owner.stable(),
            stable_sequence: self.owner.stable_on_the_wire(),
        };
        let clients = self.walks.clients.iter_mut().map(|it| &mut it.walk);
        for walk in clients.chain(self.walks.own.as_mut()) {
            if let Some((endpoint, question)) = walk.poll(now, &of, &config) {
                self.owner.ask(endpoint, Control::List(question), link);
            }
        }
        let over = |it: &mut Walking| it.walk.is_over() || now >= it.walk.until;
        let ended = self.walks.clients.extract_if(.., over);
        ended
            .map(|it| (it.connection, it.place, it.over()))
            .collect()
    }

    /// Removes expired values, since clients may never ask for them again.
    fn sweep(&mut self, now: MonoNs) {
        let Some(walk) = &mut self.walks.own else {
            if now >= self.walks.rests_until {
                let until = MonoNs(u64::MAX);
                let mut walk = Walk::new(Goal::Ended, 0, until);
                (walk.records, walk.pause) = (SWEEP_RECORDS, SWEEP_PAUSE);
                self.walks.own = Some(walk);
            }
            return;
        };
        let (keys, is_over) = (walk.take_keys(), walk.is_over());
        if is_over {
            self.walks.own = None;
            self.walks.rests_until = now.after(REST);
        }
        // The next walk finds the keys that are left over.
        for key in keys.into_iter().take(SWEPT_MAX) {
            // The operation changes nothing of a live value, and finds no value if it has expired.
            let nothing = Operation::SetRange {
                offset: 0,
                value: Bytes::new(),
            };
            let asked = Asked {
                level: self.level,
                timeout: self.timeout,
                refuses_doubt: true,
                at: None,
                purpose: Purpose::Housekeeping,
            };
            self.submit(now, key, &nothing, asked);
            self.counts.swept += 1;
        }
    }
}

/// Returns the number of the kind of values that a client calls by this name. There is none for
/// the kinds that the gateway does not have.
fn kind(name: &[u8]) -> u32 {
    match name.to_ascii_lowercase().as_slice() {
        b"string" => ValueKind::Text.number(),
        b"hash" => ValueKind::Hash.number(),
        _ => u32::MAX,
    }
}

/// `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`.
fn scan(words: &[Bytes], after: u64, until: MonoNs) -> Result<Walk, Reply> {
    let text = std::str::from_utf8(&words[0]).ok();
    let cursor = text.and_then(|text| text.parse::<u64>().ok());
    let cursor = cursor.ok_or_else(|| error("ERR invalid cursor"))?;
    let mut walk = Walk::new(Goal::Some, if cursor == 0 { after } else { 0 }, until);
    walk.position = Position::of_cursor(cursor);
    walk.records = 32;
    for pair in words[1..].chunks(2) {
        let [option, value] = pair else {
            return Err(error("ERR syntax error"));
        };
        match option.to_ascii_uppercase().as_slice() {
            b"MATCH" => walk = walk.of(value.clone()),
            b"COUNT" => {
                let count = decimal(value)
                    .ok_or_else(|| error("ERR value is not an integer or out of range"))?;
                if count < 1 {
                    return Err(error("ERR syntax error"));
                }
                walk.records = u32::try_from(count).unwrap_or(u32::MAX).max(10);
            }
            b"TYPE" => walk.kind = Some(kind(value)),
            _ => return Err(error("ERR syntax error")),
        }
    }
    Ok(walk)
}
