//! The passive agent: samples the host and the processes of the run, and its own lateness.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use unruly_trace::{Clock, MonoNs, Table, TableSpool, monotonic};

use crate::control::{Inbox, Report, report};
use crate::events::Events;
use crate::job::Job;
use crate::probe::{ResourceRow, Sampler, Watched};

/// A sampler that woke later than this share of its period has seen a stall: an event.
const LATE_SHARE: i64 = 10;

#[derive(Serialize)]
struct Row<'a> {
    cell: &'a str,
    repeat: u16,
    host: &'a str,
    process: &'a str,
    #[serde(flatten)]
    resources: &'a ResourceRow,
}

pub(crate) fn run(
    job: &Job,
    directory: &Path,
    inbox: &Inbox,
    clock: &Clock,
    events: &mut Events,
) -> Result<()> {
    let Some(probe) = &job.plan.probe else {
        return Ok(());
    };
    let Some(peers) = inbox.peers()? else {
        return Ok(());
    };
    let Some(start_ns) = inbox.start()? else {
        return Ok(());
    };
    let of_this_host = peers.into_iter().filter(|peer| peer.host == job.host);
    // It watches itself too: what measuring costs is part of what was measured.
    let own = Watched {
        name: job.name.clone(),
        pid: std::process::id(),
    };
    let peers = of_this_host.map(|peer| Watched {
        name: peer.name,
        pid: peer.pid,
    });
    let mut sampler = Sampler::new(peers.chain([own]).collect());
    let mut spool = TableSpool::new(Table::Resources, directory, &job.stem(), job.meta());
    let period_ns = i64::try_from(probe.period.0).unwrap_or(i64::MAX).max(1);
    // In the middle between two whole periods: not in step with anything that ticks on them.
    let mut due_ns = start_ns + period_ns / 2 - period_ns;
    sampler.sample(clock.column_now(), clock.column_now());
    report(&Report::Drained);
    loop {
        due_ns += period_ns;
        let wait_ns = u64::try_from(due_ns - monotonic().0).unwrap_or(0);
        if inbox.stopped_within(Duration::from_nanos(wait_ns)) {
            break;
        }
        let now_ns = monotonic().0;
        let rows = sampler.sample(clock.column(MonoNs(now_ns)), clock.column(MonoNs(due_ns)));
        for resources in &rows {
            let row = Row {
                cell: job.cell_name(),
                repeat: job.repeat,
                host: &job.host,
                process: &job.name,
                resources,
            };
            spool.append(&row)?;
        }
        if (now_ns - due_ns) * LATE_SHARE > period_ns {
            let late = (
                clock.column(MonoNs(due_ns)),
                Some(clock.column(MonoNs(now_ns))),
            );
            events.add("sampler late", None, late);
            // What was missed is gone; the next sample is on the schedule again.
            due_ns += (now_ns - due_ns) / period_ns * period_ns;
        }
    }
    spool.seal()?;
    Ok(())
}
