//! Describes how a real component is started: its processes, the sign that it is ready, and its
//! addresses.
//!
//! A service is a TOML file, so a new service needs no code. Words in braces stand for values that
//! are known only at the start. [`Service::fill`] lists them.

use std::collections::BTreeMap;

use crate::error::PlanError;
use crate::limits::MAX_SERVICE_PROCESSES;
use crate::section::{Limits, Section, Source};
use crate::units::DurationNs;

const MANUAL: &str = "see unruly/docs/services.md";

const SERVICE: &[&str] = &[
    "about", "url", "password", "version", "programs", "packages", "jars", "cargo", "files",
    "process", "step",
];
const PROCESS: &[&str] = &[
    "name",
    "host",
    "ports",
    "ports_of",
    "command",
    "ready",
    "says",
    "environment",
    "files",
];
const STEP: &[&str] = &["command", "expect", "save", "before", "timeout"];

/// A component that a run starts for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// What it is, in a line.
    pub about: String,
    /// Where it is when it runs, with words in braces.
    pub url: String,
    /// What lets its clients in; it is nobody's secret, since it lives as long as a run.
    pub password: Option<String>,
    /// What says its version.
    pub version: Vec<String>,
    /// Programs that must be there.
    pub programs: Vec<String>,
    /// Debian's packages that have them.
    pub packages: Vec<String>,
    /// Maven's artifacts that it is made of, as `group:artifact:version`; `{jars}` is where they are.
    pub jars: Vec<String>,
    /// The arguments of `cargo install`, if cargo builds the service's programs.
    pub cargo: Vec<String>,
    /// The processes of the service.
    pub processes: Vec<ServiceProcess>,
    /// The commands to run when all processes listen, in this order.
    pub steps: Vec<ServiceStep>,
}

/// A process of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceProcess {
    /// Its name in rows, events and faults.
    pub name: String,
    /// The address it listens on.
    pub host: String,
    /// What its ports are for; it is ready when it listens on the first.
    pub ports: Vec<String>,
    /// Another process, on another address, which has the same ports.
    pub ports_of: Option<String>,
    /// How it is started.
    pub command: Vec<String>,
    /// How long it may take to be ready.
    pub ready: DurationNs,
    /// It is ready when it has said this, instead of when it listens.
    pub says: Option<String>,
    /// Variables of its environment.
    pub environment: BTreeMap<String, String>,
    /// Files in its folder, by name: those of all processes, and its own.
    pub files: BTreeMap<String, String>,
}

/// A command that runs to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceStep {
    /// The command.
    pub command: Vec<String>,
    /// It is run again until it says this; without it, it must end well.
    pub expect: Option<String>,
    /// What it says has this name from then on.
    pub save: Option<String>,
    /// What is saved ends where this begins.
    pub before: Option<String>,
    /// How long it may take, with all repetitions.
    pub timeout: DurationNs,
}

/// Where a process of a service is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePlace {
    /// The address it listens on.
    pub host: String,
    /// The address where others reach it, which is another one when something stands before it.
    pub front: String,
    /// Its ports, by what they are for.
    pub ports: BTreeMap<String, u16>,
    /// The process's folder, which is removed with the process.
    pub folder: String,
    /// The process's log, which stays with the run.
    pub log: String,
}

/// All that words in braces may stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServicePlaces {
    /// Processes by name.
    pub processes: BTreeMap<String, ServicePlace>,
    /// Everything else: what steps saved, and paths of the program.
    pub words: BTreeMap<String, String>,
}

impl Service {
    /// Reads the file of a service and checks it.
    ///
    /// # Errors
    ///
    /// What is wrong first, with its line; also a word in braces that stands for nothing.
    pub fn parse(path_for_messages: &str, text: &str) -> Result<Self, PlanError> {
        let source = Source {
            path: path_for_messages,
            text,
        };
        let document = source.document(MANUAL)?;
        let top = source.top(&document, "the service");
        top.check_keys(SERVICE)?;
        let sections = top.tables("process", "[[process]]", MAX_SERVICE_PROCESSES, MANUAL)?;
        if sections.is_empty() {
            return Err(top.missing("[[process]]", "must be there", "[[process]]".to_owned()));
        }
        let files = texts(&top, "files")?;
        let processes = sections.iter().map(|section| process(section, &files));
        let steps = top.tables("step", "[[step]]", MAX_SERVICE_PROCESSES, MANUAL)?;
        let service = Self {
            about: required(&top, "about")?,
            url: required(&top, "url")?,
            password: top.text("password", MANUAL)?.map(str::to_owned),
            version: words(&top, "version")?,
            programs: words(&top, "programs")?,
            packages: words(&top, "packages")?,
            jars: words(&top, "jars")?,
            cargo: words(&top, "cargo")?,
            processes: processes.collect::<Result<_, _>>()?,
            steps: steps.iter().map(step).collect::<Result<_, _>>()?,
        };
        service.check(&top)?;
        Ok(service)
    }

    /// Checks that names are unique, and that every word in braces stands for something.
    fn check(&self, top: &Section<'_>) -> Result<(), PlanError> {
        let names: Vec<&str> = self.processes.iter().map(|it| it.name.as_str()).collect();
        if let Some(twice) = names
            .iter()
            .enumerate()
            .find(|(at, name)| names[..*at].contains(name))
        {
            let wrong = format!("there are two processes {:?}", twice.1);
            return Err(top.complain("", wrong, "must be one of each name", "redis-1, redis-2"));
        }
        let stranger = |it: &&ServiceProcess| {
            it.ports_of
                .as_ref()
                .is_some_and(|of| !names.contains(&of.as_str()))
        };
        if let Some(process) = self.processes.iter().find(stranger) {
            let wrong = format!("the ports of {} are those of nobody", process.name);
            return Err(top.complain("", wrong, "must be a process of this file", MANUAL));
        }
        let places = self.places(|_| 1, "folder", "log");
        let filled = |own: Option<&str>, text: &str| {
            places.fill(own, text).map(|_| ()).map_err(|word| {
                let wrong = format!("{{{word}}} stands for nothing");
                top.complain("", wrong, "must be a word of the manual", MANUAL)
            })
        };
        let mut places_and_saved = places.clone();
        filled(None, &self.url).or_else(|error| {
            // What a step saves is known by then.
            for step in &self.steps {
                let saved = step.save.iter().map(|name| (name.clone(), String::new()));
                places_and_saved.words.extend(saved);
            }
            places_and_saved
                .fill(None, &self.url)
                .map(|_| ())
                .map_err(|_| error)
        })?;
        for word in &self.version {
            filled(None, word)?;
        }
        for process in &self.processes {
            let texts = process.command.iter();
            let texts = texts
                .chain(process.environment.values())
                .chain(process.files.values());
            for text in texts {
                filled(Some(&process.name), text)?;
            }
        }
        let mut known = places;
        for step in &self.steps {
            for text in &step.command {
                known.fill(None, text).map_err(|word| {
                    let wrong = format!("{{{word}}} stands for nothing in a step");
                    top.complain("", wrong, "must be a word of the manual", MANUAL)
                })?;
            }
            known
                .words
                .extend(step.save.iter().map(|name| (name.clone(), String::new())));
        }
        Ok(())
    }

    /// Whether clients of this process go by the address that something may stand on.
    #[must_use]
    pub fn has_front(&self, name: &str) -> bool {
        let own = self.processes.iter().filter(|it| it.name == name);
        let mut texts = own.flat_map(|it| it.command.iter().chain(it.files.values()));
        self.url.contains(&format!("{{{name}.front}}")) || texts.any(|it| it.contains("{front}"))
    }

    /// The places of its processes, each with the next of these ports, in a folder under this one and
    /// with a log that begins so.
    #[must_use]
    pub fn places(
        &self,
        mut port: impl FnMut(&str) -> u16,
        folder: &str,
        log: &str,
    ) -> ServicePlaces {
        let mut processes: BTreeMap<String, ServicePlace> = BTreeMap::new();
        for process in &self.processes {
            let same = process.ports_of.as_ref().and_then(|of| processes.get(of));
            let ports = match same {
                Some(place) => place.ports.clone(),
                None => {
                    let ports = process.ports.iter();
                    ports
                        .map(|name| (name.clone(), port(&process.host)))
                        .collect()
                }
            };
            let place = ServicePlace {
                host: process.host.clone(),
                front: process.host.clone(),
                ports,
                folder: format!("{folder}/{}", process.name),
                log: format!("{log}{}", process.name),
            };
            processes.insert(process.name.clone(), place);
        }
        let words = ["bin", "jars"].map(|word| (word.to_owned(), String::new()));
        ServicePlaces {
            processes,
            words: words.into(),
        }
    }
}

impl ServicePlaces {
    /// Returns a text with its words in braces replaced: `{host}`, `{front}`, `{folder}`, `{log}`
    /// and `{PORT}` of its own process, `{NAME.host}` and so on of any other process, and saved
    /// values. A brace that no word follows stays as it is.
    ///
    /// # Errors
    ///
    /// Returns the first word that stands for nothing.
    pub fn fill(&self, own: Option<&str>, text: &str) -> Result<String, String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some(start) = rest.find('{') {
            let (before, after) = rest.split_at(start);
            out += before;
            let end = after.find('}');
            let word = end.map(|end| &after[1..end]).filter(|word| is_word(word));
            match (word, end) {
                (Some(word), Some(end)) => {
                    out += &self.word(own, word).ok_or_else(|| word.to_owned())?;
                    rest = &after[end + 1..];
                }
                _ => {
                    out.push('{');
                    rest = &after[1..];
                }
            }
        }
        Ok(out + rest)
    }

    fn word(&self, own: Option<&str>, word: &str) -> Option<String> {
        if let Some(saved) = self.words.get(word) {
            return Some(saved.clone());
        }
        let (name, what) = word.split_once('.').or_else(|| Some((own?, word)))?;
        let place = self.processes.get(name)?;
        match what {
            "host" => Some(place.host.clone()),
            "front" => Some(place.front.clone()),
            "folder" => Some(place.folder.clone()),
            "log" => Some(place.log.clone()),
            port => place.ports.get(port).map(u16::to_string),
        }
    }
}

fn is_word(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    // A key of a store stands in braces too, for its driver.
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic());
    begins && text != "key" && text.chars().all(fits)
}

fn process(
    section: &Section<'_>,
    shared: &BTreeMap<String, String>,
) -> Result<ServiceProcess, PlanError> {
    section.check_keys(PROCESS)?;
    let seconds = |count: u64| DurationNs(count * 1_000_000_000);
    let ready = Limits {
        default: Some(seconds(30)),
        least: None,
        most: seconds(3_600),
        example: seconds(30),
    };
    let mut ports = words(section, "ports")?;
    if ports.is_empty() {
        ports.push("port".to_owned());
    }
    let host = section
        .text("host", "host = \"127.0.0.1\"")?
        .unwrap_or("127.0.0.1");
    if host.parse::<std::net::IpAddr>().is_err() {
        return Err(section.refuse("host", "must be an IP address", "host = \"127.0.0.1\""));
    }
    let command = words(section, "command")?;
    if command.is_empty() {
        let hint = "command = [\"redis-server\"]".to_owned();
        return Err(section.missing("command", "must be a list of words", hint));
    }
    Ok(ServiceProcess {
        name: required(section, "name")?,
        host: host.to_owned(),
        ports,
        command,
        ports_of: section.text("ports_of", MANUAL)?.map(str::to_owned),
        ready: section.number("ready", &ready)?,
        says: section.text("says", MANUAL)?.map(str::to_owned),
        environment: texts(section, "environment")?,
        files: {
            let own = texts(section, "files")?;
            shared.clone().into_iter().chain(own).collect()
        },
    })
}

fn step(section: &Section<'_>) -> Result<ServiceStep, PlanError> {
    section.check_keys(STEP)?;
    let seconds = |count: u64| DurationNs(count * 1_000_000_000);
    let timeout = Limits {
        default: Some(seconds(30)),
        least: None,
        most: seconds(3_600),
        example: seconds(30),
    };
    let text = |key: &str| Ok(section.text(key, MANUAL)?.map(str::to_owned));
    Ok(ServiceStep {
        command: words(section, "command")?,
        expect: text("expect")?,
        save: text("save")?,
        before: text("before")?,
        timeout: section.number("timeout", &timeout)?,
    })
}

fn required(section: &Section<'_>, key: &str) -> Result<String, PlanError> {
    let hint = format!("{key} = \"..\"");
    let text = section.text(key, &hint)?.filter(|text| !text.is_empty());
    text.map(str::to_owned)
        .ok_or_else(|| section.missing(key, "must be a string", hint))
}

/// A list of texts; empty when absent.
fn words(section: &Section<'_>, key: &str) -> Result<Vec<String>, PlanError> {
    let hint = format!("{key} = [\"..\"]");
    let values = section.list(key, &hint)?.unwrap_or_default();
    let words = values.into_iter().map(|value| {
        value.as_str().map(str::to_owned).ok_or_else(|| {
            let wrong = format!("{key} holds {}", value.to_string().trim());
            section.complain(key, wrong, "must hold strings", hint.as_str())
        })
    });
    words.collect()
}

/// A table of texts; empty when absent.
fn texts(section: &Section<'_>, key: &str) -> Result<BTreeMap<String, String>, PlanError> {
    let Some(child) = section.child(key, "its table")? else {
        return Ok(BTreeMap::new());
    };
    let texts = child.table.iter().map(|(name, item)| {
        let text = item
            .as_str()
            .ok_or_else(|| child.wrong_type(name, item, "must be a string", "name = \"text\""))?;
        Ok((name.to_owned(), text.to_owned()))
    });
    texts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = r#"
about = "two servers"
url = "redis://{one.host}:{one.port},{two.host}:{two.client}?id={id}"
programs = ["server"]
[[process]]
name = "one"
command = ["server", "--port", "{port}", "--dir", "{folder}"]
[[process]]
name = "two"
host = "127.0.0.2"
ports = ["client", "peer"]
command = ["server", "{client}", "{peer}", "{one.port}"]
files = { "a.json" = "{ \"peer\": {peer} }" }
[[step]]
command = ["id", "{two.peer}"]
save = "id"
"#;

    #[test]
    fn words_in_braces_stand_for_places_and_for_what_was_saved() {
        let service = Service::parse("two.toml", TWO).expect("a service");
        let mut next = 100;
        let mut places = service.places(
            |_| {
                next += 1;
                next
            },
            "/run",
            "/logs/c0r0-",
        );
        assert_eq!(places.fill(None, &service.url), Err("id".to_owned()));
        places.words.insert("id".to_owned(), "7".to_owned());
        assert_eq!(
            places.fill(None, &service.url).as_deref(),
            Ok("redis://127.0.0.1:101,127.0.0.2:102?id=7")
        );
        let two = &service.processes[1];
        let command: Result<Vec<_>, _> = two
            .command
            .iter()
            .map(|it| places.fill(Some("two"), it))
            .collect();
        assert_eq!(
            command,
            Ok(["server", "102", "103", "101"].map(str::to_owned).to_vec())
        );
        assert_eq!(
            places.fill(Some("two"), &two.files["a.json"]).as_deref(),
            Ok("{ \"peer\": 103 }")
        );
        let others = "{} {0} {key} {a b} {";
        assert_eq!(places.fill(None, others).as_deref(), Ok(others));
        assert_eq!(
            places.fill(Some("one"), "{folder}").as_deref(),
            Ok("/run/one")
        );
    }

    #[test]
    fn a_word_that_stands_for_nothing_is_told_before_anything_is_started() {
        for (from, to, said) in [
            (
                "{one.port}\"]",
                "{three.port}\"]",
                "two.toml:1: {three.port} stands for nothing; must be a word of the manual; hint: see unruly/docs/services.md",
            ),
            (
                "\"{two.peer}\"",
                "\"{later}\"",
                "two.toml:1: {later} stands for nothing in a step; must be a word of the manual; hint: see unruly/docs/services.md",
            ),
            (
                "name = \"two\"",
                "name = \"one\"",
                "two.toml:1: there are two processes \"one\"; must be one of each name; hint: redis-1, redis-2",
            ),
            (
                "host = \"127.0.0.2\"",
                "host = \"everywhere\"",
                "two.toml:10: host is \"everywhere\"; must be an IP address; hint: host = \"127.0.0.1\"",
            ),
            (
                "save = \"id\"",
                "sav = \"id\"",
                "two.toml:16: unknown key \"sav\" in [[step]]; known: command, expect, save, before, timeout; hint: did you mean save",
            ),
        ] {
            assert!(TWO.contains(from));
            let error = Service::parse("two.toml", &TWO.replace(from, to)).expect_err(said);
            assert_eq!(error.to_string(), said);
        }
    }
}
