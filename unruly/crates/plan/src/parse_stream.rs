//! `[stream]`, and what competes with a load: `[compete]`.

use crate::compete::{Compete, CompeteKind};
use crate::error::PlanError;
use crate::jvm::Jvm;
use crate::keys::{compete, jvm, stream as keys};
use crate::model::{Hosts, Run};
use crate::section::Section;
use crate::stream::{Protocol, Stream};
use crate::units::{BitRate, Bytes, DurationNs};

pub(crate) fn stream(
    section: &Section<'_>,
    run: &Run,
    scale: f64,
    has_hosts: bool,
) -> Result<Stream, PlanError> {
    keys::STREAM.check(section)?;
    let protocol = keys::PROTOCOL.read(section)?;
    if let Some(why) = protocol.needs_hosts()
        && run.hosts == Hosts::Processes
        && !has_hosts
    {
        let wanted = format!("must be another on loopback: {why}");
        let hint = "in [run], hosts = \"namespaces\"";
        return Err(section.refuse(keys::PROTOCOL.name, wanted, hint));
    }
    Ok(Stream {
        protocol,
        readers: readers(section, protocol)?,
        message: message(section, protocol)?,
        sample: keys::SAMPLE.whole(section)?,
        link: link(section, run, has_hosts)?,
        mtu: keys::MTU.whole(section)?,
        wind_down: scaled(keys::WIND_DOWN.read(section)?, scale),
        scheduling: keys::SCHEDULING.read(section)?,
    })
}

/// How many read: more than one only where a protocol has groups.
fn readers(section: &Section<'_>, protocol: Protocol) -> Result<u16, PlanError> {
    let readers = keys::READERS.whole(section)?;
    if readers > 1 && !protocol.is_of_group() {
        let wanted = format!("must be 1 for {}, which has no groups", protocol.name());
        return Err(section.refuse(
            keys::READERS.name,
            wanted,
            keys::PROTOCOL.hint_text("jgroups-tcp"),
        ));
    }
    Ok(readers)
}

fn message(section: &Section<'_>, protocol: Protocol) -> Result<Bytes, PlanError> {
    let message = keys::MESSAGE.read(section)?;
    let longest = protocol.longest_message();
    if message > longest {
        let wanted = format!("must be at most {longest} for {}", protocol.name());
        return Err(section.refuse(keys::MESSAGE.name, wanted, keys::PROTOCOL.hint_text("tcp")));
    }
    Ok(message)
}

/// What joins the hosts; neither a pair of loopbacks nor hosts that are reached have a link to shape.
fn link(section: &Section<'_>, run: &Run, has_hosts: bool) -> Result<Option<BitRate>, PlanError> {
    let link = keys::LINK;
    let hint = link.hint_text(link.kind.example);
    if section
        .text(link.name, &hint)?
        .is_none_or(|it| it == "none")
    {
        return Ok(None);
    }
    let rate = link.read(section)?;
    if has_hosts {
        let wanted = "must be \"none\" between [[host]]: their link is what it is";
        return Err(section.refuse(link.name, wanted, "remove link"));
    }
    if run.hosts == Hosts::Processes {
        let wanted = "must be \"none\" on loopback, which has no rate";
        return Err(section.refuse(link.name, wanted, "in [run], hosts = \"namespaces\""));
    }
    Ok(Some(rate))
}

/// Returns the settings of the JVMs that the run starts, if the plan has any.
pub(crate) fn jvm(top: &Section<'_>) -> Result<Option<Jvm>, PlanError> {
    let Some(section) = top.child("jvm", "[jvm]")? else {
        return Ok(None);
    };
    jvm::JVM.check(&section)?;
    Ok(Some(Jvm {
        collector: jvm::COLLECTOR.read(&section)?,
        heap: jvm::HEAP.read(&section)?,
    }))
}

pub(crate) fn compete(
    top: &Section<'_>,
    jvm: Option<Jvm>,
    scale: f64,
) -> Result<Option<Compete>, PlanError> {
    let Some(section) = top.child("compete", "[compete]")? else {
        return Ok(None);
    };
    compete::COMPETE.check(&section)?;
    let kind = compete::KIND.read(&section)?;
    let live = compete::LIVE.read(&section)?;
    let heap = jvm.unwrap_or_default().heap;
    if kind == CompeteKind::Gc && live >= heap {
        let wanted = format!("must be less than the heap, {heap}");
        let hint = format!(
            "in [jvm], heap = \"{}\"",
            Bytes(live.0.saturating_mul(4) / 3)
        );
        return Err(section.refuse(compete::LIVE.name, wanted, hint));
    }
    Ok(Some(Compete {
        kind,
        occupancy: occupancy(&section)?,
        lead: scaled(compete::LEAD.read(&section)?, scale),
        processes: compete::PROCESSES.whole(&section)?,
        live,
    }))
}

/// A share above 0: a competing load of nothing is called `none`.
fn occupancy(section: &Section<'_>) -> Result<f64, PlanError> {
    let share = compete::OCCUPANCY.read(section)?;
    if share == 0.0 {
        let wanted = "must be above 0, and at most 1";
        return Err(section.refuse(
            compete::OCCUPANCY.name,
            wanted,
            "kind = \"none\" competes with nothing",
        ));
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
