//! The order in which the processes of a service start and its steps run.

use super::{ServiceProcess, ServiceStep};
use crate::keys::did_you_mean;

/// What happens next when a service starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// These processes start together, and the runner waits until all are ready.
    Processes(Vec<usize>),
    /// A step runs to its end.
    Step(usize),
}

/// Why there is no order.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unordered {
    /// The process, or the step, whose `after` is wrong: its number among both.
    pub(super) at: usize,
    pub(super) wrong: String,
    pub(super) wanted: String,
    pub(super) hint: String,
}

/// Returns the stages of a start. A process waits for what its `after` names. A step does so as
/// well; without an `after` it waits for every process and for the step before it.
///
/// # Errors
///
/// Returns a name that is neither a process nor a step, or the names of a cycle.
pub(super) fn stages(
    processes: &[ServiceProcess],
    steps: &[ServiceStep],
) -> Result<Vec<Stage>, Unordered> {
    let waits = waits(processes, steps)?;
    let all = waits.len();
    let mut done = vec![false; all];
    let mut stages = Vec::new();
    loop {
        let is_next = |it: &usize| !done[*it] && waits[*it].iter().all(|before| done[*before]);
        let next: Vec<usize> = (0..processes.len()).filter(is_next).collect();
        let step = (processes.len()..all).find(is_next);
        if let Some(step) = step.filter(|_| next.is_empty()) {
            done[step] = true;
            stages.push(Stage::Step(step - processes.len()));
        } else if next.is_empty() {
            break;
        } else {
            next.iter().for_each(|it| done[*it] = true);
            stages.push(Stage::Processes(next));
        }
    }
    match done.iter().position(|it| !it) {
        None => Ok(stages),
        Some(left) => Err(cycle(&waits, &done, left, processes, steps)),
    }
}

/// What each process and then each step waits for.
fn waits(
    processes: &[ServiceProcess],
    steps: &[ServiceStep],
) -> Result<Vec<Vec<usize>>, Unordered> {
    let find = |at: usize, name: &str| {
        let of_name = |it: &ServiceProcess| it.name == name || it.group.as_deref() == Some(name);
        let found = (0..processes.len()).filter(|it| of_name(&processes[*it]));
        let step = steps.iter().position(|it| it.name.as_deref() == Some(name));
        let found: Vec<usize> = found.chain(step.map(|it| processes.len() + it)).collect();
        if found.is_empty() {
            let known = processes.iter().map(|it| it.name.as_str());
            let known: Vec<&str> = known
                .chain(steps.iter().filter_map(|it| it.name.as_deref()))
                .collect();
            return Err(Unordered {
                at,
                wrong: format!("after names {name:?}, and nothing is called so"),
                wanted: format!("known: {}", known.join(", ")),
                hint: did_you_mean(name, known, "give the step a name"),
            });
        }
        Ok(found)
    };
    let named = |at: usize, after: &[String]| {
        let found = after.iter().map(|name| find(at, name));
        Ok(found.collect::<Result<Vec<_>, _>>()?.concat())
    };
    let mut waits = Vec::new();
    for process in processes {
        waits.push(named(waits.len(), &process.after)?);
    }
    for (number, step) in steps.iter().enumerate() {
        let at = waits.len();
        let before = number.checked_sub(1).map(|it| processes.len() + it);
        waits.push(match &step.after {
            Some(after) => named(at, after)?,
            None => (0..processes.len()).chain(before).collect(),
        });
    }
    Ok(waits)
}

/// The names of a cycle that something unfinished leads to.
fn cycle(
    waits: &[Vec<usize>],
    done: &[bool],
    left: usize,
    processes: &[ServiceProcess],
    steps: &[ServiceStep],
) -> Unordered {
    let mut path = vec![left];
    let first = loop {
        let last = path[path.len() - 1];
        let mut unfinished = waits[last].iter().filter(|it| !done[**it]);
        // What is left waits for something that is left as well.
        let next = unfinished.next().copied().unwrap_or(last);
        if let Some(first) = path.iter().position(|it| *it == next) {
            break first;
        }
        path.push(next);
    };
    let path = &path[first..];
    let name = |at: &usize| match at.checked_sub(processes.len()) {
        None => processes[*at].name.clone(),
        Some(step) => match &steps[step].name {
            Some(name) => name.clone(),
            None => format!("step {}", step + 1),
        },
    };
    let names: Vec<String> = path.iter().chain(&path[..1]).map(name).collect();
    let says = |at: &&usize| match at.checked_sub(processes.len()) {
        None => !processes[**at].after.is_empty(),
        Some(step) => steps[step].after.is_some(),
    };
    let implied = path.iter().any(|at| !says(&at));
    Unordered {
        at: path.iter().find(says).copied().unwrap_or(left),
        wrong: format!("after makes a cycle: {}", names.join(" waits for ")),
        wanted: "must leave something that can start first".to_owned(),
        hint: if implied {
            "a step without after waits for every process: give it one".to_owned()
        } else {
            "remove one of the names".to_owned()
        },
    }
}
