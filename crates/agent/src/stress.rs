//! Busy neighbours: threads that compute on the cores they are given, for a time.

use std::time::Duration;

use anyhow::Result;
use unruly_trace::{Clock, MonoNs, monotonic};

use crate::control::{Inbox, Report, report};
use crate::events::Events;
use crate::job::Job;

/// How long a thread computes between two looks at the clock.
const BURST: u32 = 10_000;

pub(crate) fn run(job: &Job, inbox: &Inbox, clock: &Clock, events: &mut Events) -> Result<()> {
    let Some(stress) = &job.stress else {
        return Ok(());
    };
    if inbox.peers()?.is_none() {
        return Ok(());
    }
    let Some(start_ns) = inbox.start()? else {
        return Ok(());
    };
    let length = |duration: unruly_plan::DurationNs| i64::try_from(duration.0).unwrap_or(i64::MAX);
    let from_ns = start_ns + length(job.plan.run.warmup) + length(stress.at);
    let until_ns = from_ns + length(stress.duration);
    let wait_ns = u64::try_from(from_ns - monotonic().0).unwrap_or(0);
    if inbox.stopped_within(Duration::from_nanos(wait_ns)) {
        return Ok(());
    }
    let stop = inbox.stop_flag();
    std::thread::scope(|scope| {
        for _ in 0..stress.threads {
            scope.spawn(|| {
                let mut value = 1_u64;
                while monotonic().0 < until_ns && !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    for _ in 0..BURST {
                        value = std::hint::black_box(value.wrapping_mul(6_364_136_223_846_793_005));
                    }
                }
            });
        }
    });
    let span = (clock.column(MonoNs(from_ns)), Some(clock.column_now()));
    events.add(
        "stress",
        Some(&format!("{} busy threads", stress.threads)),
        span,
    );
    report(&Report::Drained);
    inbox.wait_for_stop();
    Ok(())
}
