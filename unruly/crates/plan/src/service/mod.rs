//! Describes how a real component is started: its processes, the sign that it is ready, and its
//! addresses.
//!
//! A service is a TOML file, so a new service needs no code. [`ServiceFile`] is the file, with
//! parameters that a plan may choose; [`Service`] is what it describes with their values. Commands
//! and files are templates, since addresses are known only at the start: see [`ServicePlaces`].

mod braces;
mod file;
mod leader;
mod names;
mod order;
mod parameter;
mod places;
mod template;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::ops::Range;

pub use file::{Impossible, ServiceFile};
pub use leader::{Leads, Role};
pub use order::Stage;
pub(crate) use parameter::text_of;
pub use parameter::{Parameter, ParameterValue};
pub use places::{ServicePlace, ServicePlaces};
pub use template::Template;

use crate::error::PlanError;
use crate::section::Section;
use crate::units::DurationNs;

const MANUAL: &str = "see unruly/docs/services.md";

/// A component that a run starts for itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// What it is, in a line.
    pub about: String,
    /// Where it is when it runs.
    pub url: Template,
    /// What lets its clients in; it is nobody's secret, since it lives as long as a run.
    pub password: Option<String>,
    /// What says its version.
    pub version: Vec<Template>,
    /// What looks for contradictions in its data when a trial has ended.
    pub check: Vec<Template>,
    /// Programs that must be there.
    pub programs: Vec<String>,
    /// Debian's packages that have them.
    pub packages: Vec<String>,
    /// Maven's artifacts that it is made of, as `group:artifact:version`.
    pub jars: Vec<String>,
    /// The arguments of `cargo install`, if cargo builds the service's programs.
    pub cargo: Vec<String>,
    /// The Go program that is its only program, if Go builds it.
    pub go: Option<GoProgram>,
    /// The value of each parameter.
    pub parameters: BTreeMap<String, ParameterValue>,
    /// The processes of the service.
    pub processes: Vec<ServiceProcess>,
    /// The commands that run to their end.
    pub steps: Vec<ServiceStep>,
    /// The order of both at the start.
    pub stages: Vec<Stage>,
}

/// A program of a Go module that has none that Go installs by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoProgram {
    /// The module with its version, such as `example.org/it@v1.2.3`.
    pub module: String,
    /// The text of its `main.go`.
    pub main: String,
}

/// A process of a service.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceProcess {
    /// Its name in rows, events and faults.
    pub name: String,
    /// The name that it shares with the others of its count; `None` for a process by itself.
    pub group: Option<String>,
    /// Its number among those, from 1.
    pub number: usize,
    /// A word for pictures, such as `database`.
    pub tier: Option<String>,
    /// The processes and steps that it waits for.
    pub after: Vec<String>,
    /// The address it listens on.
    pub host: String,
    /// Its file names this very address, so other hosts do not reach it.
    pub is_private: bool,
    /// What its ports are for; it is ready when it listens on the first.
    pub ports: Vec<String>,
    /// Another process, on another address, which has the same ports; itself for ports of its own.
    pub ports_of: Option<String>,
    /// How it is started.
    pub command: Vec<Template>,
    /// How long it may take to be ready.
    pub ready: DurationNs,
    /// It is ready when it has said this, instead of when it listens.
    pub says: Option<Template>,
    /// How it reports that it leads its group, where one process does.
    pub leads: Option<Leads>,
    /// Variables of its environment.
    pub environment: BTreeMap<String, Template>,
    /// Files in its folder, by name: those of all processes, and its own.
    pub files: BTreeMap<String, Template>,
    /// The file and line of its table, and of its `after`.
    place: String,
    after_place: String,
}

/// A command that runs to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceStep {
    /// Its name for the `after` of others.
    pub name: Option<String>,
    /// The processes and steps that it waits for; without it, every process and the step before.
    pub after: Option<Vec<String>>,
    /// The command.
    pub command: Vec<Template>,
    /// It is run again until it says this; without it, it must end well.
    pub expect: Option<Template>,
    /// What it says has this name from then on.
    pub save: Option<String>,
    /// What is saved ends where this begins.
    pub before: Option<Template>,
    /// How long it may take, with all repetitions.
    pub timeout: DurationNs,
}

impl ServiceProcess {
    fn templates(&self) -> impl Iterator<Item = &Template> {
        let texts = self.environment.values().chain(self.files.values());
        self.command.iter().chain(&self.says).chain(texts)
    }
}

impl ServiceStep {
    fn templates(&self) -> impl Iterator<Item = &Template> {
        let texts = self.command.iter().chain(&self.expect);
        texts.chain(&self.before)
    }
}

impl Service {
    /// Renders every template once, in the order of the start, with addresses that nobody has.
    fn check(&self) -> Result<(), PlanError> {
        let mut places = self.places(|_| 1, "folder", "log");
        for word in self.version.iter().chain(&self.check) {
            places.render(None, word)?;
        }
        for stage in &self.stages {
            match stage {
                Stage::Processes(started) => {
                    for process in started.iter().map(|it| &self.processes[*it]) {
                        for template in process.templates() {
                            places.render(Some(&process.name), template)?;
                        }
                    }
                }
                Stage::Step(number) => {
                    let step = &self.steps[*number];
                    for template in step.templates() {
                        places.render(None, template)?;
                    }
                    places.save(step, String::new());
                }
            }
        }
        places.render(None, &self.url).map(|_| ())
    }

    /// Returns true if clients reach this process by the address where a relay may stand before it:
    /// if its own files and command, or the URL, have its `front`.
    #[must_use]
    pub fn has_front(&self, name: &str) -> bool {
        // No address looks like this.
        const MARK: &str = "\u{1}front";
        let mut places = self.places(|_| 1, "folder", "log");
        for step in &self.steps {
            places.save(step, String::new());
        }
        if let Some(place) = places.place_mut(name) {
            MARK.clone_into(&mut place.front);
        }
        let own = self.processes.iter().filter(|it| it.name == name);
        let own = own.flat_map(|it| it.templates().map(|template| (Some(name), template)));
        let mut texts = own.chain(std::iter::once((None, &self.url)));
        texts.any(|(own, template)| {
            let text = places.render(own, template);
            text.is_ok_and(|text| text.contains(MARK))
        })
    }

    /// Has its processes listen on this address, at which other hosts reach them; not those whose
    /// file names their address.
    ///
    /// # Errors
    ///
    /// When two of them have the same ports, and so need an address each; when its file names the
    /// address of all; and when its password is in its file.
    pub fn listen_on(&mut self, address: Ipv4Addr) -> Result<(), PlanError> {
        let first = self.processes.first();
        if let Some(process) = first.filter(|_| self.password.is_some()) {
            return Err(PlanError {
                place: process.place.clone(),
                key: String::new(),
                wrong: "its password is in its file, which everybody may read".to_owned(),
                wanted: "must be on the loopback network".to_owned(),
                hint: "start it yourself, and name it by its url".to_owned(),
            });
        }
        if let Some(process) = first.filter(|_| self.processes.iter().all(|it| it.is_private)) {
            return Err(PlanError {
                place: process.place.clone(),
                key: String::new(),
                wrong: format!("{} is on {} alone", process.name, process.host),
                wanted: "must be a service that other hosts may reach".to_owned(),
                hint: "start it yourself, and name it by its url".to_owned(),
            });
        }
        for process in self.processes.iter_mut().filter(|it| !it.is_private) {
            if process
                .ports_of
                .as_ref()
                .is_some_and(|it| *it != process.name)
            {
                return Err(PlanError {
                    place: process.place.clone(),
                    key: String::new(),
                    wrong: format!("{} has the ports of another process", process.name),
                    wanted: format!("must have ports of its own, for both are at {address}"),
                    hint: "start it with one process, or remove [[host]]".to_owned(),
                });
            }
            process.host = address.to_string();
        }
        Ok(())
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
        let mut processes: Vec<ServicePlace> = Vec::new();
        for process in &self.processes {
            let same = processes
                .iter()
                .find(|it| Some(&it.name) == process.ports_of.as_ref());
            let ports = match same {
                Some(place) => place.ports.clone(),
                None => {
                    let ports = process.ports.iter();
                    ports
                        .map(|name| (name.clone(), port(&process.host)))
                        .collect()
                }
            };
            processes.push(ServicePlace {
                name: process.name.clone(),
                group: process.group.clone(),
                number: process.number,
                host: process.host.clone(),
                front: process.host.clone(),
                ports,
                folder: format!("{folder}/{}", process.name),
                log: format!("{log}{}", process.name),
            });
        }
        let words = ["bin", "jars", "jvm", "unpacked", "spans"]
            .map(|word| (word.to_owned(), String::new()));
        ServicePlaces {
            processes,
            parameters: self.parameters.clone(),
            words: words.into(),
        }
    }
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

/// A text with its name and its place in the file.
type NamedText = (String, String, Option<Range<usize>>);

/// A table of texts; empty when absent.
fn texts(section: &Section<'_>, key: &str) -> Result<Vec<NamedText>, PlanError> {
    let Some(child) = section.child(key, "its table")? else {
        return Ok(Vec::new());
    };
    let texts = child.table.iter().map(|(name, item)| {
        let text = item
            .as_str()
            .ok_or_else(|| child.wrong_type(name, item, "must be a string", "name = \"text\""))?;
        Ok((name.to_owned(), text.to_owned(), item.span()))
    });
    texts.collect()
}
