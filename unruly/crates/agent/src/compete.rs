//! A competing load: processes that are busy and idle in turn, and hold a share of the processors.
//!
//! An endless loop would not do: the scheduler favours those that often sleep, as servers do.

use anyhow::{Result, ensure};
use unruly_plan::{Compete, mix};
use unruly_trace::{DurationNs, MonoNs, monotonic};

use crate::client::say_done;
use crate::control::Inbox;
use crate::events::Events;
use crate::ground::Ground;
use crate::job::Job;
use crate::stream::{Flow, Rows, own_cores, own_cpu_ns};

/// Lengths of a turn, busy and idle together: those of requests and of a scheduler's slices.
const TURN_NS: std::ops::Range<u64> = 5_000_000..50_000_000;
/// What it may be behind and still catch up. More would be an endless loop after each stall.
const BEHIND_MAX_NS: DurationNs = DurationNs::millis(200);
/// How long it computes between two looks at its processor time.
const BURST: u32 = 20_000;

pub(crate) fn run(ground: Ground<'_>, compete: &Compete, events: &mut Events) -> Result<()> {
    let Ground {
        job, inbox, clock, ..
    } = ground;
    let cores = own_cores();
    let share = compete.occupancy * cores as f64 / f64::from(compete.processes);
    ensure!(
        share <= 1.0,
        "compete.processes: {} cannot use {} of {cores} cores; wanted at least {}; hint: processes = {}",
        compete.processes,
        compete.occupancy * cores as f64,
        (compete.occupancy * cores as f64).ceil(),
        2 * cores
    );
    crate::role::say_ready(None, clock);
    if inbox.peers()?.is_none() {
        return Ok(());
    }
    let Some(start_ns) = inbox.start()? else {
        return Ok(());
    };
    if !inbox.stopped_until(start_ns) {
        let begun_ns = clock.column_now();
        let mut rows = Rows::new(ground, "compete", monotonic());
        hold(share, job, inbox, &mut rows)?;
        rows.write(Flow::default())?;
        rows.seal()?;
        let detail = format!("{:.3} of {cores} cores", share);
        events.add(
            "competing",
            Some(&detail),
            (begun_ns, Some(clock.column_now())),
        );
    }
    say_done(None);
    Ok(())
}

/// Uses its share of a core until the runner stops it.
fn hold(share: f64, job: &Job, inbox: &Inbox, rows: &mut Rows<'_>) -> Result<()> {
    let mut owed = Owed::new(share, monotonic(), own_cpu_ns());
    // Each process takes its turns at its own times.
    let own = format!("{}/{}", job.name, job.repeat);
    let seed = mix(job.plan.seed, crc32fast::hash(own.as_bytes()).into());
    for turn in 0.. {
        let drawn = mix(seed, turn);
        let turn_ns = TURN_NS.start + drawn % (TURN_NS.end - TURN_NS.start);
        let end_ns = monotonic() + DurationNs::from_unsigned(turn_ns);
        // Its share of the turn that begins, and what it was not given of those before.
        let until_cpu_ns = owed.until_cpu_ns(end_ns);
        while own_cpu_ns() < until_cpu_ns && monotonic() < end_ns {
            compute();
        }
        if monotonic() >= rows.due_ns() {
            rows.write(Flow::default())?;
        }
        if inbox.stopped_until(end_ns) {
            return Ok(());
        }
        owed.forgive(monotonic(), own_cpu_ns());
    }
    Ok(())
}

/// How much of the processor a share comes to, from a beginning.
struct Owed {
    share: f64,
    since_ns: MonoNs,
    since_cpu_ns: DurationNs,
}

impl Owed {
    fn new(share: f64, since_ns: MonoNs, since_cpu_ns: DurationNs) -> Self {
        Self {
            share,
            since_ns,
            since_cpu_ns,
        }
    }

    /// The processor time that is to be used by then.
    fn until_cpu_ns(&self, then_ns: MonoNs) -> DurationNs {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a share of the time of a run"
        )]
        let share_ns = ((then_ns - self.since_ns).0 as f64 * self.share) as i64;
        self.since_cpu_ns + DurationNs(share_ns)
    }

    /// What was not given in time is not asked for for ever.
    fn forgive(&mut self, now_ns: MonoNs, cpu_ns: DurationNs) {
        let behind_ns = self.until_cpu_ns(now_ns) - cpu_ns;
        if behind_ns > BEHIND_MAX_NS {
            self.since_cpu_ns -= behind_ns - BEHIND_MAX_NS;
        }
    }
}

fn compute() {
    let mut value = 1_u64;
    for _ in 0..BURST {
        value = std::hint::black_box(value.wrapping_mul(6_364_136_223_846_793_005));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_owed_is_the_share_of_the_time_that_went_by() {
        let owed = Owed::new(0.25, MonoNs(1_000), DurationNs(70));
        assert_eq!(owed.until_cpu_ns(MonoNs(5_000)), DurationNs(1_070));
    }

    #[test]
    fn what_was_not_given_is_caught_up_with_but_not_for_ever() {
        let mut owed = Owed::new(0.5, MonoNs(0), DurationNs(0));
        owed.forgive(MonoNs(1_000_000_000), DurationNs::millis(400));
        assert_eq!(
            owed.until_cpu_ns(MonoNs(1_000_000_000)),
            DurationNs::millis(500)
        );
        owed.forgive(MonoNs(10_000_000_000), DurationNs::seconds(1));
        assert_eq!(
            owed.until_cpu_ns(MonoNs(10_000_000_000)),
            DurationNs::millis(1_200)
        );
    }
}
