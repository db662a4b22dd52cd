//! The file of a service, before a plan has chosen its parameters.

use std::collections::BTreeMap;

use super::order::stages;
use super::parameter::{Parameter, ParameterValue, parameters};
use super::template::Template;
use super::{
    GoProgram, Leads, MANUAL, Service, ServiceProcess, ServiceStep, leader, names, required, texts,
    words,
};
use crate::error::PlanError;
use crate::keys::did_you_mean;
use crate::limits::MAX_SERVICE_PROCESSES;
use crate::model::Setting;
use crate::section::{Limits, Section, Source};
use crate::units::DurationNs;

const SERVICE: &[&str] = &[
    "about",
    "url",
    "password",
    "version",
    "check",
    "programs",
    "packages",
    "jars",
    "cargo",
    "go",
    "parameters",
    "files",
    "process",
    "step",
];
const GO: &[&str] = &["module", "main"];
const PROCESS: &[&str] = &[
    "name",
    "count",
    "tier",
    "after",
    "host",
    "ports",
    "ports_of",
    "command",
    "ready",
    "says",
    "leads",
    "environment",
    "files",
];
const STEP: &[&str] = &[
    "name", "after", "command", "expect", "save", "before", "timeout",
];

/// Why a process alone has no leader.
pub(super) const GROUP_ONLY: &str = "must be left out: a process alone leads nobody";

/// The file of a service: its parameters, and templates that they fill.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceFile {
    /// What messages call it: the name of a shipped service, or a path.
    path: String,
    /// What it is, in a line.
    pub about: String,
    /// The values that a plan may choose, in the order of the file.
    pub parameters: Vec<Parameter>,
    url: Template,
    password: Option<String>,
    version: Vec<Template>,
    check: Vec<Template>,
    programs: Vec<String>,
    packages: Vec<String>,
    jars: Vec<String>,
    cargo: Vec<String>,
    go: Option<GoProgram>,
    pub(super) processes: Vec<ProcessForm>,
    pub(super) steps: Vec<ServiceStep>,
    /// The place of each step's `after`.
    step_places: Vec<String>,
}

/// A `[[process]]` of the file, from which one or several processes come.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ProcessForm {
    name: String,
    pub(super) count: Option<Template>,
    tier: Option<String>,
    pub(super) after: Vec<Template>,
    pub(super) host: Template,
    is_private: bool,
    pub(super) ports: Vec<String>,
    ports_of: Option<String>,
    command: Vec<Template>,
    ready: DurationNs,
    says: Option<Template>,
    leads: Option<Leads>,
    environment: BTreeMap<String, Template>,
    files: BTreeMap<String, Template>,
    /// The file and line of the table, and of its `after`.
    place: String,
    after_place: String,
}

/// Reads `[go]`.
fn go(top: &Section<'_>) -> Result<Option<GoProgram>, PlanError> {
    let Some(table) = top.child("go", "the Go program")? else {
        return Ok(None);
    };
    table.check_keys(GO)?;
    let module = required(&table, "module")?;
    if !module.contains('@') {
        let wrong = format!("module is {module:?}");
        let wanted = "must name its version";
        return Err(table.complain(
            "module",
            wrong,
            wanted,
            "module = \"example.org/it@v1.2.3\"",
        ));
    }
    if words(top, "programs")?.len() != 1 {
        let wrong = "programs does not hold one name".to_owned();
        let wanted = "must be the name of the program that Go builds";
        return Err(top.complain("programs", wrong, wanted, "programs = [\"etcd-3.7\"]"));
    }
    Ok(Some(GoProgram {
        module,
        main: required(&table, "main")?,
    }))
}

fn excess(name: &str, value: &ParameterValue, bound: &str, most: &ParameterValue) -> String {
    format!("{name} is {value} and {bound} is {most}")
}

/// Two parameters of a service that cannot have their values together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impossible {
    /// The names of both.
    pub parameters: [String; 2],
    /// The reason.
    pub told: String,
}

impl ServiceFile {
    /// Reads the file of a service and checks it, with the default of every parameter.
    ///
    /// # Errors
    ///
    /// Returns the first problem with its line: an unknown or missing key, a template with a fault
    /// or with a name that stands for nothing, a parameter that nothing uses, a cycle of `after`,
    /// and anything that [`Self::with`] returns.
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
        let files = templates_by_name(&top, "files")?;
        let processes = sections.iter().map(|section| process(section, &files));
        let steps = top.tables("step", "[[step]]", MAX_SERVICE_PROCESSES, MANUAL)?;
        required(&top, "url")?;
        let file = Self {
            path: path_for_messages.to_owned(),
            about: required(&top, "about")?,
            parameters: parameters(&top)?,
            url: template(&top, "url")?
                .ok_or_else(|| top.missing("url", "must be a string", MANUAL.to_owned()))?,
            password: top.text("password", MANUAL)?.map(str::to_owned),
            version: templates(&top, "version")?,
            check: templates(&top, "check")?,
            programs: words(&top, "programs")?,
            packages: words(&top, "packages")?,
            jars: words(&top, "jars")?,
            cargo: words(&top, "cargo")?,
            go: go(&top)?,
            processes: processes.collect::<Result<_, _>>()?,
            step_places: steps.iter().map(|it| it.place_of("after")).collect(),
            steps: steps.iter().map(step).collect::<Result<_, _>>()?,
        };
        names::check_all(&file)?;
        file.with(&BTreeMap::new())?;
        Ok(file)
    }

    /// The templates that belong to no process.
    pub(super) fn templates(&self) -> impl Iterator<Item = &Template> {
        let steps = self.steps.iter().flat_map(ServiceStep::templates);
        let words = self.version.iter().chain(&self.check);
        std::iter::once(&self.url).chain(words).chain(steps)
    }

    /// Returns the service with these values of its parameters, as the plan writes them.
    ///
    /// # Errors
    ///
    /// Returns the place in the plan of a parameter that the service lacks, or of a value that it
    /// may not have; and the place in this file of a fault that these values cause: a count that is
    /// not from 1 to 100, a host that is no address, two processes of one name, a cycle.
    pub fn with(&self, settings: &BTreeMap<String, Setting>) -> Result<Service, PlanError> {
        let values = self.values(settings)?;
        let context = values.iter();
        let context: BTreeMap<_, _> = context
            .map(|(name, value)| (name.clone(), value.of_template()))
            .collect();
        let mut processes = Vec::new();
        for form in &self.processes {
            form.expand(&context, &mut processes)?;
        }
        self.check_names(&processes)?;
        let stages = stages(&processes, &self.steps).map_err(|found| PlanError {
            place: match found.at.checked_sub(processes.len()) {
                Some(step) => self.step_places[step].clone(),
                None => processes[found.at].after_place.clone(),
            },
            key: "after".to_owned(),
            wrong: found.wrong,
            wanted: found.wanted,
            hint: found.hint,
        })?;
        let service = Service {
            about: self.about.clone(),
            url: self.url.clone(),
            password: self.password.clone(),
            version: self.version.clone(),
            check: self.check.clone(),
            programs: self.programs.clone(),
            packages: self.packages.clone(),
            jars: self.jars.clone(),
            cargo: self.cargo.clone(),
            go: self.go.clone(),
            parameters: values,
            processes,
            steps: self.steps.clone(),
            stages,
        };
        service.check()?;
        Ok(service)
    }

    /// The value of each parameter: that of the plan, or else its default.
    fn values(
        &self,
        settings: &BTreeMap<String, Setting>,
    ) -> Result<BTreeMap<String, ParameterValue>, PlanError> {
        let mut values: BTreeMap<String, ParameterValue> = self
            .parameters
            .iter()
            .map(|it| (it.name.clone(), it.default.clone()))
            .collect();
        for (name, setting) in settings {
            let complain = |wrong, wanted, hint| PlanError {
                place: setting.place.0.clone(),
                key: format!("service.{name}"),
                wrong,
                wanted,
                hint,
            };
            let Some(parameter) = self.parameters.iter().find(|it| it.name == *name) else {
                let wrong = format!("service {} has no parameter {name:?}", self.path);
                let known: Vec<&str> = self.parameters.iter().map(|it| it.name.as_str()).collect();
                let wanted = match known.as_slice() {
                    [] => "must be left out: it has no parameters".to_owned(),
                    known => format!("known: {}", known.join(", ")),
                };
                let all = format!("unruly services show {}", self.path);
                return Err(complain(wrong, wanted, did_you_mean(name, known, &all)));
            };
            let read = parameter.read(&setting.value).map_err(|wanted| {
                let wrong = format!("{name} is {}", setting.literal());
                complain(wrong, wanted, parameter.example())
            })?;
            values.insert(name.clone(), read);
        }
        for (parameter, bound) in self.bounded() {
            let most = values[bound].clone();
            if values[&parameter.name] <= most {
                continue;
            }
            let Some(setting) = settings.get(&parameter.name) else {
                // Nobody has chosen more than there can be.
                values.insert(parameter.name.clone(), most);
                continue;
            };
            return Err(PlanError {
                place: setting.place.0.clone(),
                key: format!("service.{}", parameter.name),
                wrong: excess(&parameter.name, &values[&parameter.name], bound, &most),
                wanted: format!("must be at most {bound}"),
                hint: format!("{} = {most}", parameter.name),
            });
        }
        Ok(values)
    }

    /// The parameters that may not exceed another one, each with the name of that.
    fn bounded(&self) -> impl Iterator<Item = (&Parameter, &String)> {
        let parameters = self.parameters.iter();
        parameters.filter_map(|it| Some((it, it.at_most.as_ref()?)))
    }

    /// Returns a sentence about two parameters that a plan varies and that cannot have these values
    /// together, and their names.
    #[must_use]
    pub fn impossible(&self, settings: &BTreeMap<String, Setting>) -> Option<Impossible> {
        self.bounded().find_map(|(parameter, bound)| {
            let (own, other) = (settings.get(&parameter.name)?, settings.get(bound)?);
            let limit = self.parameters.iter().find(|it| it.name == *bound)?;
            let own = parameter.read(&own.value).ok()?;
            let most = limit.read(&other.value).ok()?;
            (own > most).then(|| Impossible {
                parameters: [parameter.name.clone(), bound.clone()],
                told: excess(&parameter.name, &own, bound, &most),
            })
        })
    }

    /// Checks that every name of a process or step stands for one of them, and that ports are
    /// those of another process.
    fn check_names(&self, processes: &[ServiceProcess]) -> Result<(), PlanError> {
        let complain = |place: &str, wrong: String, wanted: &str, hint: &str| PlanError {
            place: place.to_owned(),
            key: String::new(),
            wrong,
            wanted: wanted.to_owned(),
            hint: hint.to_owned(),
        };
        if processes.len() > MAX_SERVICE_PROCESSES {
            let wrong = format!("there are {} processes", processes.len());
            let wanted = format!("must be at most {MAX_SERVICE_PROCESSES}");
            return Err(complain(
                &processes[0].place,
                wrong,
                &wanted,
                "lower a count",
            ));
        }
        let mut known: Vec<&str> = Vec::new();
        for process in processes {
            if known.contains(&process.name.as_str()) {
                let wrong = format!("there are two processes {:?}", process.name);
                let hint = "redis-1, redis-2";
                return Err(complain(
                    &process.place,
                    wrong,
                    "must be one of each name",
                    hint,
                ));
            }
            known.push(&process.name);
        }
        known.extend(processes.iter().filter_map(|it| it.group.as_deref()));
        let steps = self.steps.iter().zip(&self.step_places);
        for (name, place) in steps.filter_map(|(it, place)| Some((it.name.as_deref()?, place))) {
            if known.contains(&name) {
                let wrong = format!("{name:?} is a step, and another step or a process");
                let wanted = "must be one of each name: after names them";
                return Err(complain(place, wrong, wanted, "give the step another name"));
            }
            known.push(name);
        }
        let stranger = |it: &&ServiceProcess| {
            let of = it.ports_of.as_ref();
            of.is_some_and(|of| processes.iter().all(|other| other.name != *of))
        };
        if let Some(process) = processes.iter().find(stranger) {
            let wrong = format!("the ports of {} are those of nobody", process.name);
            let wanted = "must be a process of this file";
            return Err(complain(&process.place, wrong, wanted, MANUAL));
        }
        Ok(())
    }
}

impl ProcessForm {
    /// The templates that know what a process knows of itself.
    pub(super) fn templates(&self) -> impl Iterator<Item = &Template> {
        let texts = self.environment.values().chain(self.files.values());
        self.command.iter().chain(&self.says).chain(texts)
    }

    /// Adds the processes that it stands for with these values.
    fn expand(
        &self,
        values: &BTreeMap<String, minijinja::Value>,
        processes: &mut Vec<ServiceProcess>,
    ) -> Result<(), PlanError> {
        let count = match &self.count {
            Some(template) => number(template, values.clone())?,
            None => 1,
        };
        for number in 1..=count {
            let group = self.count.as_ref().map(|_| self.name.clone());
            let name = match &group {
                Some(group) => format!("{group}-{number}"),
                None => self.name.clone(),
            };
            let mut own = values.clone();
            own.insert("number".to_owned(), number.into());
            own.insert("name".to_owned(), name.as_str().into());
            let host = self.host.render(own.clone())?;
            if host.parse::<std::net::IpAddr>().is_err() {
                let (wrong, hint) = (format!("host is {host:?}"), "host = \"127.0.0.1\"");
                return Err(self.host.complain(0, wrong, "must be an IP address", hint));
            }
            let after = self.after.iter().map(|it| it.render(own.clone()));
            let after: Vec<String> = after.collect::<Result<_, _>>()?;
            processes.push(ServiceProcess {
                name,
                group,
                number,
                tier: self.tier.clone(),
                // A name of nobody: the first of several waits for none before it.
                after: after.into_iter().filter(|it| !it.is_empty()).collect(),
                host,
                is_private: self.is_private,
                ports: self.ports.clone(),
                ports_of: self.ports_of.clone(),
                command: self.command.clone(),
                ready: self.ready,
                says: self.says.clone(),
                leads: self.leads.clone(),
                environment: self.environment.clone(),
                files: self.files.clone(),
                place: self.place.clone(),
                after_place: self.after_place.clone(),
            });
        }
        Ok(())
    }
}

/// How many processes there are.
fn number(
    template: &Template,
    values: BTreeMap<String, minijinja::Value>,
) -> Result<usize, PlanError> {
    let text = template.render(values)?;
    let count = text.trim().parse::<usize>().ok();
    count
        .filter(|count| (1..=MAX_SERVICE_PROCESSES).contains(count))
        .ok_or_else(|| {
            let from = match template.source() {
                source if source == text => String::new(),
                source => format!(", from {source:?}"),
            };
            let wanted = format!("must be from 1 to {MAX_SERVICE_PROCESSES}");
            template.complain(0, format!("count is {text}{from}"), wanted, "count = 3")
        })
}

fn process(
    section: &Section<'_>,
    shared: &BTreeMap<String, Template>,
) -> Result<ProcessForm, PlanError> {
    section.check_keys(PROCESS)?;
    let mut ports = words(section, "ports")?;
    for port in &ports {
        names::check(section, "ports", port)?;
    }
    if ports.is_empty() {
        ports.push("port".to_owned());
    }
    let command = templates(section, "command")?;
    if command.is_empty() {
        let hint = "command = [\"redis-server\"]".to_owned();
        return Err(section.missing("command", "must be a list of words", hint));
    }
    let local = Template::at(section.source, None, "127.0.0.1");
    let host = template(section, "host")?;
    let leads = leader::leads(section, &ports, section.has("count"))?;
    Ok(ProcessForm {
        name: required(section, "name")?,
        count: count(section)?,
        tier: section
            .text("tier", "tier = \"database\"")?
            .map(str::to_owned),
        after: templates(section, "after")?,
        is_private: host.as_ref().is_some_and(|it| !it.source().contains("{{")),
        host: host.unwrap_or(local),
        ports,
        ports_of: section.text("ports_of", MANUAL)?.map(str::to_owned),
        command,
        ready: section.number("ready", &half_a_minute())?,
        says: template(section, "says")?,
        leads,
        environment: templates_by_name(section, "environment")?,
        files: {
            let own = templates_by_name(section, "files")?;
            shared.clone().into_iter().chain(own).collect()
        },
        place: section.source.place(section.offset_bytes),
        after_place: section.place_of("after"),
    })
}

/// A number, or a template that gives one.
fn count(section: &Section<'_>) -> Result<Option<Template>, PlanError> {
    let Some(item) = section.table.get("count") else {
        return Ok(None);
    };
    let text = item.as_integer().map(|it| it.to_string());
    let text = text.or_else(|| item.as_str().map(str::to_owned));
    let text = text.ok_or_else(|| {
        let wanted = "must be a number, or a text with a parameter";
        section.wrong_type("count", item, wanted, "count = \"{{ nodes }}\"")
    })?;
    Ok(Some(Template::at(section.source, item.span(), &text)))
}

fn step(section: &Section<'_>) -> Result<ServiceStep, PlanError> {
    section.check_keys(STEP)?;
    let text = |key: &str| Ok(section.text(key, MANUAL)?.map(str::to_owned));
    let save: Option<String> = text("save")?;
    if let Some(name) = &save {
        names::check(section, "save", name)?;
    }
    Ok(ServiceStep {
        name: text("name")?,
        after: section
            .has("after")
            .then(|| words(section, "after"))
            .transpose()?,
        command: templates(section, "command")?,
        expect: template(section, "expect")?,
        save,
        before: template(section, "before")?,
        timeout: section.number("timeout", &half_a_minute())?,
    })
}

fn half_a_minute() -> Limits<DurationNs> {
    let seconds = |count: u64| DurationNs(count * 1_000_000_000);
    Limits {
        default: Some(seconds(30)),
        least: None,
        most: seconds(3_600),
        example: seconds(30),
    }
}

fn template(section: &Section<'_>, key: &str) -> Result<Option<Template>, PlanError> {
    let Some(text) = section.text(key, MANUAL)? else {
        return Ok(None);
    };
    let span = section.table.get(key).and_then(toml_edit::Item::span);
    Ok(Some(Template::at(section.source, span, text)))
}

/// A list of templates; empty when absent.
fn templates(section: &Section<'_>, key: &str) -> Result<Vec<Template>, PlanError> {
    let texts = words(section, key)?;
    let values = section.list(key, MANUAL)?.unwrap_or_default();
    let both = texts.iter().zip(values);
    Ok(both
        .map(|(text, value)| Template::at(section.source, value.span(), text))
        .collect())
}

/// A table of templates; empty when absent.
fn templates_by_name(
    section: &Section<'_>,
    key: &str,
) -> Result<BTreeMap<String, Template>, PlanError> {
    let texts = texts(section, key)?;
    let templates = texts.into_iter().map(|(name, text, span)| {
        let template = Template::at(section.source, span, &text);
        (name, template)
    });
    Ok(templates.collect())
}
