//! What is done to the processes and varied between cells: `[[fault]]`, `[pin]`, `[matrix]`.

use std::collections::BTreeMap;

use toml_edit::Value;

use crate::error::PlanError;
use crate::keys::{self, did_you_mean};
use crate::limits::*;
use crate::model::{Factor, Fault, FaultKind, Load, Run};
use crate::section::{Limits, Section};
use crate::units::DurationNs;

/// The processes that faults and pins may name.
pub(crate) struct Processes {
    names: Vec<String>,
    /// There are those of a service as well, which only its file names.
    open: bool,
}

impl Processes {
    pub(crate) fn of(load: &Load) -> Self {
        Self {
            names: load.processes(),
            open: load.has_service(),
        }
    }

    fn may_have(&self, process: &str) -> bool {
        self.open || self.names.iter().any(|known| known == process)
    }
}

pub(crate) fn faults(
    top: &Section<'_>,
    processes: &Processes,
    run: &Run,
) -> Result<Vec<Fault>, PlanError> {
    let sections = top.tables("fault", "[[fault]]", MAX_FAULTS, "make several plans")?;
    sections
        .iter()
        .map(|section| fault(section, processes, run))
        .collect()
}

fn fault(section: &Section<'_>, processes: &Processes, run: &Run) -> Result<Fault, PlanError> {
    section.check_keys(keys::FAULT)?;
    let words = [
        ("stop", FaultKind::Stop),
        ("kill", FaultKind::Kill),
        ("busy", FaultKind::Busy),
    ];
    let kind = section.choice("kind", &words, None)?;
    let hint = format!("process = {:?}", processes.names[0]);
    let Some(process) = section.text("process", &hint)? else {
        return Err(section.missing("process", "must be a process of the plan", hint));
    };
    if !processes.may_have(process) {
        return Err(unknown_process(
            section,
            "process",
            process,
            &processes.names,
        ));
    }
    for (key, fits) in [
        ("duration", kind != FaultKind::Kill),
        ("cpu", kind == FaultKind::Busy),
        ("threads", kind == FaultKind::Busy),
    ] {
        if section.has(key) && !fits {
            let wanted = format!("must be left out: a {} has none", kind.name());
            return Err(section.refuse(key, wanted, format!("remove {key}")));
        }
    }
    let cpu = Limits {
        default: None,
        least: Some(0),
        most: MAX_CPU.into(),
        example: 1,
    };
    let threads = Limits {
        default: Some(1),
        least: Some(1),
        most: MAX_BUSY_THREADS.into(),
        example: 1,
    };
    let (at, duration) = times(section, kind, run)?;
    Ok(Fault {
        kind,
        process: process.to_owned(),
        at,
        duration,
        cpu: section.optional("cpu", &cpu)?,
        threads: section.whole("threads", &threads)?,
    })
}

/// When a fault begins, and how long it lasts; both within the measured time.
fn times(
    section: &Section<'_>,
    kind: FaultKind,
    run: &Run,
) -> Result<(DurationNs, Option<DurationNs>), PlanError> {
    let zero = DurationNs(0);
    let at = Limits {
        default: None,
        least: Some(zero),
        most: MAX_DURATION,
        example: zero,
    };
    let at = section.number("at", &at)?;
    if at >= run.duration {
        let wanted = format!("must be before the end of measurement at {}", run.duration);
        return Err(section.refuse("at", wanted, "at = \"0s\""));
    }
    if kind == FaultKind::Kill {
        return Ok((at, None));
    }
    let left = DurationNs(run.duration.0 - at.0);
    let example = left.min(DurationNs(1_000_000_000));
    let duration = Limits {
        default: None,
        least: None,
        most: MAX_DURATION,
        example,
    };
    let duration = section.number("duration", &duration)?;
    if duration > left {
        let wanted = format!("must end with measurement, {left} after it began");
        return Err(section.refuse("duration", wanted, format!("duration = \"{left}\"")));
    }
    Ok((at, Some(duration)))
}

fn unknown_process(
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
    for (process, _) in section.table.iter() {
        if !processes.may_have(process) {
            return Err(unknown_process(
                &section,
                process,
                process,
                &processes.names,
            ));
        }
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

pub(crate) fn matrix(section: &Section<'_>, load: &str) -> Result<Vec<Factor>, PlanError> {
    let known = keys::variable_paths(load);
    let mut factors = Vec::new();
    for (path, item) in section.table.iter() {
        if item.is_table_like() {
            let wrong = format!("{path} is a table in [matrix]");
            let hint = format!("\"{path}.key\" = [..]");
            return Err(section.complain(path, wrong, "must be a path in quotes", hint));
        }
        if !known.iter().any(|name| name == path) {
            let wrong = format!("unknown path {path:?} in [matrix]");
            let hint = did_you_mean(path, known.iter().map(String::as_str), "remove it");
            return Err(section.complain(
                path,
                wrong,
                format!("known: {}", known.join(", ")),
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
        });
    }
    Ok(factors)
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
