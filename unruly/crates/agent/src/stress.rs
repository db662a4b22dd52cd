//! Busy neighbours: threads that compute on the cores they are given, for a time.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use unruly_trace::{MonoNs, monotonic};

use crate::control::{Report, report};
use crate::ground::Ground;
use crate::mesh::nanoseconds;

/// How long a thread computes between two looks at the clock.
const BURST: u32 = 10_000;

pub(crate) fn run(ground: Ground<'_>) -> Result<()> {
    let Ground { job, inbox, .. } = ground;
    let Some(stress) = &job.stress else {
        return Ok(());
    };
    if inbox.peers()?.is_none() {
        return Ok(());
    }
    let Some(start_ns) = inbox.start()? else {
        return Ok(());
    };
    let measure_ns = start_ns + nanoseconds(job.plan.run.warmup);
    for (begin, end) in &stress.times {
        let from_ns = measure_ns + nanoseconds(*begin);
        let until_ns = end.map_or(MonoNs(i64::MAX), |end| measure_ns + nanoseconds(end));
        if inbox.stopped_until(from_ns) {
            return Ok(());
        }
        compute(stress.threads, until_ns, &inbox.stop_flag());
    }
    report(&Report::Drained);
    inbox.wait_for_stop();
    Ok(())
}

/// Computes on this number of threads until `until_ns`.
fn compute(threads: u16, until_ns: MonoNs, stop: &AtomicBool) {
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut value = 1_u64;
                while monotonic() < until_ns && !stop.load(Ordering::Relaxed) {
                    for _ in 0..BURST {
                        value = std::hint::black_box(value.wrapping_mul(6_364_136_223_846_793_005));
                    }
                }
            });
        }
    });
}
