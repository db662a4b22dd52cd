//! `[stream]`, and what competes with a load: `[compete]`.

use crate::compete::{Compete, CompeteKind};
use crate::error::PlanError;
use crate::jvm::{Collector, Jvm};
use crate::keys;
use crate::limits::*;
use crate::model::{Hosts, Run};
use crate::section::{Limits, Section};
use crate::stream::{Protocol, Scheduling, Stream};
use crate::units::{BitRate, Bytes, DurationNs};

const SECOND: DurationNs = DurationNs(1_000_000_000);

pub(crate) fn stream(section: &Section<'_>, run: &Run, scale: f64) -> Result<Stream, PlanError> {
    section.check_keys(keys::STREAM)?;
    let protocols = Protocol::ALL.map(|it| (it.name(), it));
    let protocol = section.choice("protocol", &protocols, None)?;
    if let Some(why) = protocol.needs_hosts()
        && run.hosts == Hosts::Processes
    {
        let wanted = format!("must be another on loopback: {why}");
        let hint = "in [run], hosts = \"namespaces\"";
        return Err(section.refuse("protocol", wanted, hint));
    }
    let sample = Limits {
        default: Some(100),
        least: Some(1),
        most: MAX_SAMPLE.into(),
        example: 100,
    };
    let mtu = Limits {
        default: Some(1_500),
        least: Some(MIN_MTU.into()),
        most: MAX_MTU.into(),
        example: 1_500,
    };
    let wind_down = Limits {
        default: Some(DurationNs(0)),
        least: Some(DurationNs(0)),
        most: MAX_WARMUP,
        example: SECOND,
    };
    Ok(Stream {
        protocol,
        readers: readers(section, protocol)?,
        message: message(section, protocol)?,
        sample: section.whole("sample", &sample)?,
        link: link(section, run)?,
        mtu: section.whole("mtu", &mtu)?,
        wind_down: scaled(section.number("wind_down", &wind_down)?, scale),
        scheduling: section.choice("scheduling", &Scheduling::WORDS, Some(Scheduling::Normal))?,
    })
}

/// How many read: more than one only where a protocol has groups.
fn readers(section: &Section<'_>, protocol: Protocol) -> Result<u16, PlanError> {
    let limits = Limits {
        default: Some(1),
        least: Some(1),
        most: MAX_READERS.into(),
        example: 2,
    };
    let readers = section.whole("readers", &limits)?;
    if readers > 1 && !protocol.is_of_group() {
        let wanted = format!("must be 1 for {}, which has no groups", protocol.name());
        return Err(section.refuse("readers", wanted, "protocol = \"jgroups-tcp\""));
    }
    Ok(readers)
}

fn message(section: &Section<'_>, protocol: Protocol) -> Result<Bytes, PlanError> {
    let limits = Limits {
        default: Some(Bytes(2_000)),
        least: Some(MIN_STREAM_MESSAGE),
        most: MAX_STREAM_MESSAGE,
        example: Bytes(2_000),
    };
    let message = section.number("message", &limits)?;
    let longest = protocol.longest_message();
    if message > longest {
        let wanted = format!("must be at most {longest} for {}", protocol.name());
        return Err(section.refuse("message", wanted, "protocol = \"tcp\""));
    }
    Ok(message)
}

/// What joins the hosts; a pair of loopbacks has no link to shape.
fn link(section: &Section<'_>, run: &Run) -> Result<Option<BitRate>, PlanError> {
    const HINT: &str = "link = \"1Gbit/s\"";
    if section.text("link", HINT)?.is_none_or(|it| it == "none") {
        return Ok(None);
    }
    let limits = Limits {
        default: None,
        least: Some(MIN_LINK),
        most: MAX_LINK,
        example: BitRate(1_000_000_000),
    };
    let link = section.number("link", &limits)?;
    if run.hosts == Hosts::Processes {
        let wanted = "must be \"none\" on loopback, which has no rate";
        return Err(section.refuse("link", wanted, "in [run], hosts = \"namespaces\""));
    }
    Ok(Some(link))
}

/// Returns the settings of the JVMs that the run starts, if the plan has any.
pub(crate) fn jvm(top: &Section<'_>) -> Result<Option<Jvm>, PlanError> {
    let Some(section) = top.child("jvm", "[jvm]")? else {
        return Ok(None);
    };
    section.check_keys(keys::JVM)?;
    let collectors = Collector::ALL.map(|it| (it.name(), it));
    let default = Jvm::default();
    Ok(Some(Jvm {
        collector: section.choice("collector", &collectors, Some(default.collector))?,
        heap: section.number("heap", &size(default.heap))?,
    }))
}

fn size(default: Bytes) -> Limits<Bytes> {
    Limits {
        default: Some(default),
        least: None,
        most: MAX_HEAP,
        example: default,
    }
}

pub(crate) fn compete(
    top: &Section<'_>,
    jvm: Option<Jvm>,
    scale: f64,
) -> Result<Option<Compete>, PlanError> {
    let Some(section) = top.child("compete", "[compete]")? else {
        return Ok(None);
    };
    section.check_keys(keys::COMPETE)?;
    let kinds = CompeteKind::ALL.map(|it| (it.name(), it));
    let lead = Limits {
        default: Some(DurationNs(0)),
        least: Some(DurationNs(0)),
        most: MAX_LEAD,
        example: SECOND,
    };
    let processes = Limits {
        default: Some(4),
        least: Some(1),
        most: MAX_COMPETE_PROCESSES.into(),
        example: 4,
    };
    let kind = section.choice("kind", &kinds, None)?;
    let live = section.number("live", &size(Bytes(384 << 20)))?;
    let heap = jvm.unwrap_or_default().heap;
    if kind == CompeteKind::Gc && live >= heap {
        let wanted = format!("must be less than the heap, {heap}");
        let hint = format!(
            "in [jvm], heap = \"{}\"",
            Bytes(live.0.saturating_mul(4) / 3)
        );
        return Err(section.refuse("live", wanted, hint));
    }
    Ok(Some(Compete {
        kind,
        occupancy: occupancy(&section)?,
        lead: scaled(section.number("lead", &lead)?, scale),
        processes: section.whole("processes", &processes)?,
        live,
    }))
}

/// A share above 0: a competing load of nothing is called `none`.
fn occupancy(section: &Section<'_>) -> Result<f64, PlanError> {
    if !section.has("occupancy") {
        return Ok(0.6);
    }
    let share = section.share("occupancy")?;
    if share == 0.0 {
        let wanted = "must be above 0, and at most 1";
        return Err(section.refuse("occupancy", wanted, "kind = \"none\" competes with nothing"));
    }
    Ok(share)
}

/// A time of the plan, drawn out or drawn together with all the others.
pub(crate) fn scaled(time: DurationNs, scale: f64) -> DurationNs {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "both factors are positive, and casts end at the largest value"
    )]
    let product = (time.0 as f64 * scale).round() as u64;
    // Times that are not scaled are the same to the last nanosecond.
    if scale.to_bits() == 1.0_f64.to_bits() {
        time
    } else {
        DurationNs(product)
    }
}
