//! When the runs of a standing agent begin and end, and what they are called.

use std::time::Duration;

use unruly_plan::{DurationNs, Plan, mix, utc};
use unruly_trace::WallNs;

/// Time for the start and the end of a run, at most.
const ASIDE_MOST: Duration = Duration::from_secs(3);

/// One run of a standing agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    /// Now.
    started_ns: WallNs,
    /// The multiple of the length that it ends at.
    ends_ns: WallNs,
    measured: Duration,
}

impl Turn {
    /// Returns the run that begins now. It is shorter than the others if it begins in the middle of
    /// one, and longer if little of that is left.
    pub(super) fn at(now: WallNs, every: Duration, warmup: Duration) -> Self {
        let every_ns = i64::try_from(every.as_nanos()).unwrap_or(i64::MAX);
        let aside = warmup + (every / 8).min(ASIDE_MOST);
        let mut ends = WallNs((now.0.div_euclid(every_ns) + 1).saturating_mul(every_ns));
        let left = |ends: WallNs| Duration::from_nanos((ends.0 - now.0).unsigned_abs());
        if left(ends) < aside + every / 4 {
            ends.0 = ends.0.saturating_add(every_ns);
        }
        Self {
            started_ns: now,
            ends_ns: ends,
            measured: left(ends).saturating_sub(aside),
        }
    }

    /// Its name: when it began, UTC.
    pub(super) fn name(self) -> String {
        utc(self.started_ns.0)
    }

    /// Its plan. Each run has a seed of its own: one schedule again and again would meet the same
    /// moments of each hour.
    pub(super) fn plan(self, plan: &Plan) -> Plan {
        let mut plan = plan.clone();
        // In whole milliseconds, as people write it.
        let measured_ms = u64::try_from(self.measured.as_millis()).unwrap_or(u64::MAX);
        plan.run.duration = DurationNs(measured_ms.saturating_mul(1_000_000));
        // A plan file holds it as a positive number of 64 bits.
        plan.seed = mix(plan.seed, self.ends_ns.0.cast_unsigned()) >> 1;
        plan
    }

    /// How long it takes, if nothing holds it up.
    pub(super) fn longest(self) -> Duration {
        Duration::from_nanos((self.ends_ns.0 - self.started_ns.0).unsigned_abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);
    const S: i64 = 1_000_000_000;

    fn at(second: i64) -> Turn {
        Turn::at(WallNs(second * S), HOUR, Duration::from_secs(10))
    }

    #[test]
    fn runs_end_with_the_hour_whenever_they_begin() {
        for second in [0, 1, 600, 1_800, 2_600, 3_599, 7_200 + 5] {
            let turn = at(second);
            assert_eq!(turn.ends_ns.0 % (3_600 * S), 0, "{second}");
            let ends = second * S + i64::try_from(turn.measured.as_nanos()).unwrap();
            assert_eq!(
                ends + 13 * S,
                turn.ends_ns.0,
                "the rest is warm-up and time aside"
            );
            assert!(turn.measured >= HOUR / 4, "{second}: {turn:?}");
            assert!(turn.measured < HOUR + HOUR / 4 + Duration::from_secs(13));
        }
    }

    #[test]
    fn what_is_left_of_an_hour_joins_the_next_when_it_is_short() {
        assert_eq!(at(3_599).ends_ns, WallNs(7_200 * S));
        assert_eq!(at(2_600).ends_ns, WallNs(3_600 * S));
        assert_eq!(at(3_600).ends_ns, WallNs(7_200 * S));
    }

    #[test]
    fn each_run_has_a_name_and_a_seed_of_its_own() {
        let (one, other) = (at(0), at(3_600));
        assert_eq!(one.name(), "19700101T000000Z");
        assert_eq!(other.name(), "19700101T010000Z");
        let text = "name = \"a\"\n[run]\nduration = \"1s\"\n[drive]\nrate = \"10/s\"\n";
        let plan = Plan::parse("a", text).unwrap();
        let (one, other) = (one.plan(&plan), other.plan(&plan));
        assert_ne!(one.seed, other.seed);
        assert_eq!(Plan::parse("a", &one.to_toml()).unwrap(), one);
    }
}
