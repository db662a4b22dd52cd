//! Where processes are kept, and what is varied between cells: `[pin]`, `[matrix]`.

use std::collections::BTreeMap;

use toml_edit::Value;

use crate::compete::Compete;
use crate::error::PlanError;
use crate::keys::{self, did_you_mean};
use crate::limits::*;
use crate::model::{Factor, Load};
use crate::section::Section;

/// The processes that faults and pins may name.
pub(crate) struct Processes {
    pub(crate) names: Vec<String>,
    /// There are those of a service as well, which only its file names.
    open: bool,
}

impl Processes {
    pub(crate) fn of(load: &Load, compete: Option<&Compete>) -> Self {
        let hosts = if matches!(load, Load::Stream(_)) {
            2
        } else {
            1
        };
        let competing = (0..hosts).map(|host| format!("compete-{host}"));
        let mut names = load.processes();
        names.extend(competing.filter(|_| compete.is_some()));
        Self {
            names,
            open: load.has_service(),
        }
    }

    pub(crate) fn may_have(&self, process: &str) -> bool {
        self.open || self.names.iter().any(|known| known == process)
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
