//! The passive agent: samples the host and the processes of the run, and its own lateness.

use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use unruly_trace::{DurationNs, MonoNs, Table, TableSpool, monotonic};

use crate::control::{PeerLine, Report, report};
use crate::events::Events;
use crate::ground::Ground;
use crate::job::Job;
use crate::mesh::nanoseconds;
use crate::probe::{ResourceRow, Sampler, Watched};
use crate::watch::Watch;

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

pub(crate) fn run(ground: Ground<'_>, events: &mut Events) -> Result<()> {
    let Ground {
        job,
        directory,
        inbox,
        clock,
    } = ground;
    let Some(probe) = &job.plan.probe else {
        return Ok(());
    };
    let Some(peers) = inbox.peers()? else {
        return Ok(());
    };
    let Some(start_ns) = inbox.start()? else {
        return Ok(());
    };
    let all = watched(job, peers);
    let watch = Watch::start(of_others(job, &all));
    let mut sampler = Sampler::new(all);
    let mut spool = TableSpool::new(Table::Resources, directory, &job.stem(), job.meta());
    let period_ns = nanoseconds(probe.period).max(DurationNs(1));
    // In the middle between two whole periods: not in step with anything that ticks on them.
    let mut due_ns = start_ns + period_ns / 2 - period_ns;
    sampler.sample(clock.column_now(), clock.column_now());
    report(&Report::Drained);
    loop {
        due_ns += period_ns;
        while let Some(peers) = inbox.peers_within(until(due_ns)) {
            // Somebody was started again, and has another number now.
            let all = watched(job, peers);
            watch.watch(of_others(job, &all));
            sampler.watch(all);
        }
        if inbox.is_stopped() {
            break;
        }
        let now_ns = monotonic();
        let rows = sampler.sample(clock.column(now_ns), clock.column(due_ns));
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
        watch.report(events, clock);
        if (now_ns - due_ns) * LATE_SHARE > period_ns {
            let late = (clock.column(due_ns), Some(clock.column(now_ns)));
            events.add("sampler late", None, late);
            // What was missed is gone; the next sample is on the schedule again.
            due_ns += period_ns * ((now_ns - due_ns) / period_ns);
        }
    }
    watch.end(events, clock);
    spool.seal()?;
    Ok(())
}

/// All that is watched on this host. The probe watches itself too: what measuring costs is part of what
/// was measured.
fn watched(job: &Job, peers: Vec<PeerLine>) -> Vec<Watched> {
    let of_this_host = peers.into_iter().filter(|peer| peer.host == job.host);
    let peers = of_this_host.map(|peer| Watched {
        name: peer.name,
        pid: peer.pid,
    });
    let own = Watched {
        name: job.name.clone(),
        pid: std::process::id(),
    };
    peers.chain([own]).collect()
}

/// All but the probe, which cannot look at itself when it is stopped.
fn of_others(job: &Job, all: &[Watched]) -> Vec<Watched> {
    let others = all.iter().filter(|it| it.name != job.name);
    others.cloned().collect()
}

/// How long it is until a monotonic instant.
fn until(due_ns: MonoNs) -> Duration {
    (due_ns - monotonic()).to_std()
}
