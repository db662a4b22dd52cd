//! What is done to the processes: `[[fault]]`.

use crate::error::PlanError;
use crate::fault::{Fault, FaultKind, Network};
use crate::keys::fault as keys;
use crate::limits::*;
use crate::model::{Hosts, Run};
use crate::parse_extras::{Processes, unknown_process};
use crate::section::{Limits, Section};
use crate::units::DurationNs;

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
    keys::FAULT.check(section)?;
    let name = keys::KIND.read(section)?;
    let victims = victims(section, processes)?;
    if let Some((key, _)) = keys::FAULT.misplaced(section, name) {
        let wanted = format!("must be left out: a {name} has none");
        return Err(section.refuse(key, wanted, format!("remove {key}")));
    }
    let kind = kind(section, name)?;
    let (at, duration) = times(section, kind, run)?;
    let fault = Fault {
        kind,
        processes: victims,
        at,
        duration,
        every: every(section, duration)?,
    };
    check_count(section, &fault, run)?;
    check(section, &fault, processes, run.hosts)?;
    Ok(fault)
}

fn kind(section: &Section<'_>, name: &str) -> Result<FaultKind, PlanError> {
    Ok(match name {
        "stop" => FaultKind::Stop,
        "kill" => FaultKind::Kill,
        "busy" => FaultKind::Busy {
            cpu: keys::CPU.optional(section)?,
            threads: keys::THREADS.whole(section)?,
        },
        "quota" => FaultKind::Quota {
            cores: keys::CORES.read(section)?,
        },
        "network" => FaultKind::Network(network(section)?),
        _ => FaultKind::Disk,
    })
}

/// The processes that it is for.
fn victims(section: &Section<'_>, processes: &Processes) -> Result<Vec<String>, PlanError> {
    let key = keys::PROCESS.name;
    let hint = keys::PROCESS.hint(format!("{:?}", processes.names[0]));
    let named: Vec<&str> = if section.is_list(key) {
        let values = section.list(key, &hint)?.unwrap_or_default();
        let texts = values.into_iter().map(|value| {
            let text = value.as_str();
            text.ok_or_else(|| section.refuse(key, "must hold names", hint.clone()))
        });
        texts.collect::<Result<_, _>>()?
    } else {
        let text = section.text(key, &hint)?;
        let missing = || section.missing(key, "must be a process of the plan", hint.clone());
        vec![text.ok_or_else(missing)?]
    };
    let known = processes.victims();
    match named.iter().find(|name| !processes.may_have(&known, name)) {
        Some(name) => Err(unknown_process(section, key, name, &known)),
        None => Ok(named.into_iter().map(str::to_owned).collect()),
    }
}

fn network(section: &Section<'_>) -> Result<Network, PlanError> {
    let delay = keys::DELAY_TIME;
    let network = Network {
        delay: delay.read(section)?,
        jitter: keys::JITTER.read(section)?,
        loss: keys::LOSS.read(section)?,
    };
    if network.delay.0 == 0 && network.jitter.0 == 0 && network.loss == 0.0 {
        return Err(section.missing(
            delay.name,
            "or jitter or loss must be above 0: nothing would be done",
            delay.hint_text(delay.kind.example),
        ));
    }
    Ok(network)
}

/// When a fault begins, and how long it lasts; both within the measured time.
fn times(
    section: &Section<'_>,
    kind: FaultKind,
    run: &Run,
) -> Result<(DurationNs, Option<DurationNs>), PlanError> {
    let at = keys::AT.read(section)?;
    if at >= run.duration {
        let wanted = format!("must be before the end of measurement at {}", run.duration);
        return Err(section.refuse(
            keys::AT.name,
            wanted,
            keys::AT.hint_text(keys::AT.kind.example),
        ));
    }
    if kind == FaultKind::Kill && !section.has(keys::DURATION.name) {
        return Ok((at, None));
    }
    let left = DurationNs(run.duration.0 - at.0);
    let key = keys::DURATION.with(|limits| Limits {
        example: left.min(limits.example),
        ..limits
    });
    let duration = key.read(section)?;
    if duration > left {
        let wanted = format!("must end with measurement, {left} after it began");
        return Err(section.refuse(key.name, wanted, key.hint_text(left)));
    }
    Ok((at, Some(duration)))
}

/// The time from one begin to the next, where it comes again.
fn every(
    section: &Section<'_>,
    duration: Option<DurationNs>,
) -> Result<Option<DurationNs>, PlanError> {
    if !section.has(keys::EVERY.name) {
        return Ok(None);
    }
    let Some(duration) = duration else {
        let wanted = "must be left out: who is killed for good is killed once";
        return Err(section.refuse(
            keys::EVERY.name,
            wanted,
            "duration = \"1s\" starts it again",
        ));
    };
    let key = keys::EVERY.with(|limits| Limits {
        example: DurationNs(duration.0.saturating_mul(10)),
        ..limits
    });
    let every = key.read(section)?;
    if every <= duration {
        let wanted = format!("must be longer than the fault, {duration}");
        return Err(section.refuse(key.name, wanted, key.hint_text(key.kind.example)));
    }
    Ok(Some(every))
}

/// That it does not come more often than can be kept in mind.
fn check_count(section: &Section<'_>, fault: &Fault, run: &Run) -> Result<(), PlanError> {
    if fault.times(run.duration).nth(MAX_FAULT_TIMES).is_none() {
        return Ok(());
    }
    let (times, ms) = (MAX_FAULT_TIMES as u64, 1_000_000);
    let fitting = DurationNs((run.duration.0 / times).div_ceil(ms) * ms);
    let wanted = format!("must be longer: it would come more than {MAX_FAULT_TIMES} times");
    Err(section.refuse(keys::EVERY.name, wanted, keys::EVERY.hint_text(fitting)))
}

/// Checks that the fault can be applied to these processes.
fn check(
    section: &Section<'_>,
    fault: &Fault,
    processes: &Processes,
    hosts: Hosts,
) -> Result<(), PlanError> {
    if matches!(fault.kind, FaultKind::Network(_)) && hosts == Hosts::Namespaces {
        let wanted = "must be another: no way of ours leads into a namespace";
        return Err(section.refuse(keys::KIND.name, wanted, "leave hosts = \"namespaces\" out"));
    }
    let known = processes.victims();
    let own = |name: &&String| known.contains(name);
    let Some(name) = fault.processes.iter().find(own) else {
        return Ok(());
    };
    let hint = "store = \"redis\" starts a store for the run";
    match fault.kind {
        FaultKind::Kill if fault.duration.is_some() => {
            let wanted = format!("must be left out: {name} cannot be started again");
            Err(section.refuse(keys::DURATION.name, wanted, hint))
        }
        FaultKind::Disk => {
            let wanted = format!("must be another: only the processes of a store wait, not {name}");
            Err(section.refuse(keys::KIND.name, wanted, hint))
        }
        FaultKind::Network(_) if name != "echo-0" => {
            let wanted = format!("must be another: no way leads to {name} alone");
            Err(section.refuse(
                keys::KIND.name,
                wanted,
                "process = \"echo-0\", or one of a store",
            ))
        }
        _ => Ok(()),
    }
}
