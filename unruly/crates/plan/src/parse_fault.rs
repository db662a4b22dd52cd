//! What is done to the processes: `[[fault]]`.

use crate::error::PlanError;
use crate::fault::{Fault, FaultKind, Network};
use crate::keys;
use crate::limits::*;
use crate::model::{Hosts, Run};
use crate::parse_extras::{Processes, unknown_process};
use crate::section::{Limits, Section};
use crate::units::DurationNs;

/// Keys that only some kinds have, with those kinds.
const ONLY: [(&str, &[&str]); 6] = [
    ("cpu", &["busy"]),
    ("threads", &["busy"]),
    ("cores", &["quota"]),
    ("delay", &["network"]),
    ("jitter", &["network"]),
    ("loss", &["network"]),
];

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
    let words = FaultKind::NAMES.map(|name| (name, name));
    let name = section.choice("kind", &words, None)?;
    let victims = victims(section, processes)?;
    for (key, kinds) in ONLY {
        if section.has(key) && !kinds.contains(&name) {
            let wanted = format!("must be left out: a {name} has none");
            return Err(section.refuse(key, wanted, format!("remove {key}")));
        }
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
        "busy" => busy(section)?,
        "quota" => FaultKind::Quota {
            cores: section.real("cores", None, (MIN_QUOTA_CORES, MAX_QUOTA_CORES), 0.5)?,
        },
        "network" => FaultKind::Network(network(section)?),
        _ => FaultKind::Disk,
    })
}

/// The processes that it is for.
fn victims(section: &Section<'_>, processes: &Processes) -> Result<Vec<String>, PlanError> {
    let hint = format!("process = {:?}", processes.names[0]);
    let named: Vec<&str> = if section.is_list("process") {
        let values = section.list("process", &hint)?.unwrap_or_default();
        let texts = values.into_iter().map(|value| {
            let text = value.as_str();
            text.ok_or_else(|| section.refuse("process", "must hold names", hint.clone()))
        });
        texts.collect::<Result<_, _>>()?
    } else {
        let text = section.text("process", &hint)?;
        let missing = || section.missing("process", "must be a process of the plan", hint.clone());
        vec![text.ok_or_else(missing)?]
    };
    let known = processes.victims();
    match named.iter().find(|name| !processes.may_have(&known, name)) {
        Some(name) => Err(unknown_process(section, "process", name, &known)),
        None => Ok(named.into_iter().map(str::to_owned).collect()),
    }
}

fn busy(section: &Section<'_>) -> Result<FaultKind, PlanError> {
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
    Ok(FaultKind::Busy {
        cpu: section.optional("cpu", &cpu)?,
        threads: section.whole("threads", &threads)?,
    })
}

fn network(section: &Section<'_>) -> Result<Network, PlanError> {
    let time = |key: &str| {
        let limits = Limits {
            default: Some(DurationNs(0)),
            least: Some(DurationNs(0)),
            most: MAX_NETWORK_DELAY,
            example: DurationNs(5_000_000),
        };
        section.number(key, &limits)
    };
    let network = Network {
        delay: time("delay")?,
        jitter: time("jitter")?,
        loss: section.share("loss")?,
    };
    if network.delay.0 == 0 && network.jitter.0 == 0 && network.loss == 0.0 {
        return Err(section.missing(
            "delay",
            "or jitter or loss must be above 0: nothing would be done",
            "delay = \"5ms\"".to_owned(),
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
    if kind == FaultKind::Kill && !section.has("duration") {
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

/// The time from one begin to the next, where it comes again.
fn every(
    section: &Section<'_>,
    duration: Option<DurationNs>,
) -> Result<Option<DurationNs>, PlanError> {
    if !section.has("every") {
        return Ok(None);
    }
    let Some(duration) = duration else {
        let wanted = "must be left out: who is killed for good is killed once";
        return Err(section.refuse("every", wanted, "duration = \"1s\" starts it again"));
    };
    let every = Limits {
        default: None,
        least: Some(MIN_FAULT_PERIOD),
        most: MAX_DURATION,
        example: DurationNs(duration.0.saturating_mul(10)),
    };
    let every = section.number("every", &every)?;
    if every <= duration {
        let wanted = format!("must be longer than the fault, {duration}");
        let hint = format!("every = \"{}\"", DurationNs(duration.0.saturating_mul(10)));
        return Err(section.refuse("every", wanted, hint));
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
    Err(section.refuse("every", wanted, format!("every = \"{fitting}\"")))
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
        return Err(section.refuse("kind", wanted, "leave hosts = \"namespaces\" out"));
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
            Err(section.refuse("duration", wanted, hint))
        }
        FaultKind::Disk => {
            let wanted = format!("must be another: only the processes of a store wait, not {name}");
            Err(section.refuse("kind", wanted, hint))
        }
        FaultKind::Network(_) if name != "echo-0" => {
            let wanted = format!("must be another: no way leads to {name} alone");
            Err(section.refuse("kind", wanted, "process = \"echo-0\", or one of a store"))
        }
        _ => Ok(()),
    }
}
