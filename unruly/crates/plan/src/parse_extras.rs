//! Parses the CPU placement of processes and the factors that vary between cells: `[pin]`,
//! `[quota]`, `[matrix]`.

use std::collections::BTreeMap;

use toml_edit::Value;

use crate::compete::{Compete, CompeteKind};
use crate::error::PlanError;
use crate::fault::{Fault, FaultKind};
use crate::keys::{self, did_you_mean};
use crate::limits::*;
use crate::model::{Factor, Hosts, Load, Place, Run, Setting};
use crate::section::Section;
use crate::service::text_of;
use crate::units::DurationNs;

/// The processes that faults and pins may name: competing loads are kept on cores all together, and
/// something is done to each by itself.
pub(crate) struct Processes {
    /// Names of the load's own processes.
    pub(crate) names: Vec<String>,
    /// The competing loads, one for each host.
    loads: Vec<String>,
    /// The processes of each competing load.
    per_load: u16,
    /// There are those of a service as well, which only its file names.
    open: bool,
    /// The run has a tap, which may be kept on cores.
    tap: bool,
}

impl Processes {
    pub(crate) fn of(
        load: &Load,
        compete: Option<&Compete>,
        run: &Run,
        tap: bool,
        reached: usize,
    ) -> Self {
        let hosts = run.hosts;
        let hosts = match load {
            Load::Stream(stream) if reached > 0 => {
                let reached = u16::try_from(reached).unwrap_or(u16::MAX);
                reached.min(stream.readers + 1)
            }
            Load::Stream(stream) => stream.readers + 1,
            Load::Mesh(mesh) if hosts == Hosts::Namespaces => mesh.agents,
            Load::Mesh(_) | Load::Drive(_) => 1,
        };
        let loads = (0..hosts).map(|host| format!("compete-{host}"));
        Self {
            names: load.processes(),
            loads: loads.filter(|_| compete.is_some()).collect(),
            per_load: compete.map_or(0, |it| match it.kind {
                CompeteKind::Gc => 1,
                CompeteKind::Cpu | CompeteKind::None => it.processes,
            }),
            open: load.has_service(),
            tap,
        }
    }

    /// What may be kept on cores of its own, or have a quota of them.
    pub(crate) fn pinned(&self) -> Vec<String> {
        let tap = self.tap.then(|| "tap-0".to_owned());
        let all = self.names.iter().chain(&self.loads).cloned().chain(tap);
        all.collect()
    }

    /// The processes that a table has as its keys.
    fn named_in<'a>(&self, section: &Section<'a>) -> Result<Vec<&'a str>, PlanError> {
        let known = self.pinned();
        let keys = section.table.iter().map(|(process, _)| process);
        let period = keys::quota::PERIOD.name;
        let keys = keys.filter(|key| section.name != QUOTA_SECTION || *key != period);
        keys.map(|process| {
            if self.may_have(&known, process) {
                Ok(process)
            } else {
                let error = unknown_process(section, process, process, &known);
                let period = [period]
                    .into_iter()
                    .filter(|_| section.name == QUOTA_SECTION);
                Err(PlanError {
                    hint: did_you_mean(process, period, &error.hint),
                    ..error
                })
            }
        })
        .collect()
    }

    /// What something may be done to.
    pub(crate) fn victims(&self) -> Vec<String> {
        let of = |load: &String| {
            let load = load.clone();
            (0..self.per_load).map(move |part| format!("{load}-{part}"))
        };
        let workers = self.loads.iter().flat_map(of);
        self.names.iter().cloned().chain(workers).collect()
    }

    /// Whether a process that is none of `known` may be one of a service.
    pub(crate) fn may_have(&self, known: &[String], process: &str) -> bool {
        self.open || known.iter().any(|known| known == process)
    }
}

pub(crate) fn unknown_process(
    section: &Section<'_>,
    key: &str,
    process: &str,
    processes: &[String],
) -> PlanError {
    // A mesh has its agents in one run of numbers.
    let known = match processes {
        [first, .., last] => format!("{first} to {last}"),
        _ => processes.join(", "),
    };
    let known = if processes.len() == 2 {
        processes.join(", ")
    } else {
        known
    };
    let hint = did_you_mean(
        process,
        processes.iter().map(String::as_str),
        &format!("use {}", processes[0]),
    );
    let wrong = format!("unknown process {process:?} in {}", section.name);
    section.complain(key, wrong, format!("known: {known}"), hint)
}

pub(crate) fn pins(
    top: &Section<'_>,
    processes: &Processes,
) -> Result<BTreeMap<String, Vec<u16>>, PlanError> {
    let Some(section) = top.child("pin", "[pin]")? else {
        return Ok(BTreeMap::new());
    };
    let mut pins = BTreeMap::new();
    for process in processes.named_in(&section)? {
        let hint = format!("{process:?} = [1]");
        let cpus = section
            .whole_list(process, 0, MAX_CPU, &hint)?
            .unwrap_or_default();
        if let Some(twice) = repeated(&cpus) {
            let wrong = format!("{process} holds {twice} twice");
            return Err(section.complain(process, wrong, "must hold each CPU once", "remove one"));
        }
        pins.insert(process.to_owned(), cpus);
    }
    Ok(pins)
}

/// The table of quotas, as messages call it.
const QUOTA_SECTION: &str = "[quota]";

/// How often the time of a quota is given anew.
pub(crate) fn quota_period(top: &Section<'_>) -> Result<DurationNs, PlanError> {
    match top.child(keys::QUOTA, QUOTA_SECTION)? {
        Some(section) => keys::quota::PERIOD.read(&section),
        None => Ok(DEFAULT_QUOTA_PERIOD),
    }
}

/// The cores whose time a process is given at most, from before its load to the end.
pub(crate) fn quotas(
    top: &Section<'_>,
    processes: &Processes,
    faults: &[Fault],
) -> Result<BTreeMap<String, f64>, PlanError> {
    let Some(section) = top.child(keys::QUOTA, QUOTA_SECTION)? else {
        return Ok(BTreeMap::new());
    };
    let period = keys::quota::PERIOD.read(&section)?;
    let mut quotas = BTreeMap::new();
    for process in processes.named_in(&section)? {
        let limits = (MIN_QUOTA_CORES, MAX_QUOTA_CORES);
        let cores = section.real(process, None, limits, 0.5)?;
        let least = MIN_QUOTA_TIME.0 as f64 / period.0 as f64;
        if cores < least {
            let wanted = format!(
                "must be at least {least} for a period of {period}: the kernel takes no less than {MIN_QUOTA_TIME} in each"
            );
            return Err(section.refuse(process, wanted, format!("{process:?} = {least}")));
        }
        // One that is started again, or is let go of its fault's quota, would have none any more.
        let ends = |it: &&Fault| {
            matches!(it.kind, FaultKind::Quota { .. } | FaultKind::Kill)
                && it.processes.iter().any(|it| it == process)
        };
        if let Some(fault) = faults.iter().find(ends) {
            let wrong = format!("{process} has a quota, and a fault {}", fault.kind.name());
            let wanted = "must have one of them: the fault would end the quota";
            return Err(section.complain(process, wrong, wanted, "remove one"));
        }
        quotas.insert(process.to_owned(), cores);
    }
    Ok(quotas)
}

/// The parameters that the plan chooses for the service of its drive. Only the file of the service
/// knows which there are, and this crate reads no file.
pub(crate) fn service(
    top: &Section<'_>,
    matrix: Option<&Section<'_>>,
    load: &Load,
) -> Result<BTreeMap<String, Setting>, PlanError> {
    let Some(section) = top.child(keys::SERVICE, "[service]")? else {
        return Ok(BTreeMap::new());
    };
    if !starts_service(load, matrix) {
        let wrong = "[service] chooses parameters, and the run starts no service";
        let wanted = "must have a drive.store, or be left out";
        return Err(section.complain("", wrong, wanted, keys::drive::SERVICE.example()));
    }
    let settings = section.table.iter().map(|(name, item)| {
        let value = text_of(item).ok_or_else(|| {
            let hint = format!("{name} = 2");
            section.wrong_type(name, item, "must be a number or a string", &hint)
        })?;
        let place = Place(section.place_of(name));
        Ok((name.to_owned(), Setting { value, place }))
    });
    settings.collect()
}

/// Whether some cell of the plan starts a service.
fn starts_service(load: &Load, matrix: Option<&Section<'_>>) -> bool {
    let store = format!("{}.{}", keys::drive::DRIVE.name, keys::drive::SERVICE.name);
    load.has_service() || matrix.is_some_and(|section| section.has(&store))
}

pub(crate) fn matrix(
    section: &Section<'_>,
    load: &str,
    plan_load: &Load,
    processes: &Processes,
) -> Result<Vec<Factor>, PlanError> {
    let known = keys::variable_paths(load);
    let named = processes.pinned();
    let mut factors = Vec::new();
    for (path, item) in section.table.iter() {
        if item.is_table_like() {
            let wrong = format!("{path} is a table in [matrix]");
            let hint = format!("\"{path}.key\" = [..]");
            return Err(section.complain(path, wrong, "must be a path in quotes", hint));
        }
        let quota = keys::quota_of(path).is_some_and(|it| processes.may_have(&named, it));
        let parameter = keys::parameter_of(path);
        if parameter.is_some() && !starts_service(plan_load, Some(section)) {
            let wrong = format!("{path} is varied, and the run starts no service");
            let wanted = "must be left out without a drive.store";
            return Err(section.complain(path, wrong, wanted, keys::drive::SERVICE.example()));
        }
        if !quota && parameter.is_none() && !known.iter().any(|name| name == path) {
            let wrong = format!("unknown path {path:?} in [matrix]");
            let hint = did_you_mean(path, known.iter().map(String::as_str), "remove it");
            return Err(section.complain(
                path,
                wrong,
                format!("known: {}, and quota of a process", known.join(", ")),
                hint,
            ));
        }
        let values = section
            .list(path, "give its values in brackets")?
            .unwrap_or_default();
        let values: Vec<String> = values.into_iter().map(factor_text).collect();
        if let Some(twice) = repeated(&values) {
            let wrong = format!("{path} holds {twice:?} twice");
            return Err(section.complain(path, wrong, "must hold each value once", "remove one"));
        }
        factors.push(Factor {
            path: path.to_owned(),
            values,
            place: Place(section.place_of(path)),
        });
    }
    Ok(factors)
}

/// Times that are varied are those that are run: a scale would not reach them.
pub(crate) fn check_scale(section: &Section<'_>, scale: f64) -> Result<(), PlanError> {
    let scaled = scale.to_bits() != 1.0_f64.to_bits();
    match keys::timetable().iter().find(|path| section.has(path)) {
        Some(path) if scaled => {
            let wrong = format!("{path} is varied, and run.scale is {scale}");
            let wanted = "must be 1: the values of a matrix are taken as they are";
            Err(section.complain(
                path,
                wrong,
                wanted,
                "scale the values themselves".to_owned(),
            ))
        }
        _ => Ok(()),
    }
}

/// A value as a factor keeps it: text as it is, anything else as TOML without decoration.
fn factor_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.value().clone(),
        Value::Array(list) => {
            let items: Vec<String> = list
                .iter()
                .map(|v| v.to_string().trim().to_owned())
                .collect();
            format!("[{}]", items.join(","))
        }
        other => other.to_string().trim().to_owned(),
    }
}

fn repeated<T: PartialEq>(values: &[T]) -> Option<&T> {
    values
        .iter()
        .enumerate()
        .find(|(at, value)| values[..*at].contains(value))
        .map(|(_, v)| v)
}
