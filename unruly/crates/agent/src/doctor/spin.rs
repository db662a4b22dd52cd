//! Measures the noise floor: how long this host stops a process that only wants to run.
//!
//! A thread reads the clock over and over. Two consecutive readings are a few dozen nanoseconds
//! apart unless something else ran in between: an interrupt, another process or the hypervisor.
//! Each such gap delays any program on this host, so no measurement here can attribute a shorter
//! delay to its target.
//!
//! The *floor* is the 90th percentile, over windows of 10 ms, of the longest gap in the window.
//! This host stops a process for that long in one of ten windows. A request that exceeds its peers
//! by less than the floor may just have been in such a window. A gap counts in every window that it
//! touches. The longest gap alone would not do, because it grows with the time spent measuring.

use std::time::Duration;

use serde::Serialize;
use unruly_trace::DurationNs;

use crate::probe::monotonic_ns;

/// Length of a window.
const WINDOW_NS: DurationNs = DurationNs(10_000_000);

/// The floor is never below this: two hops over the loopback between cores, of 25 us each. A host
/// that is more silent than its own network is cannot be measured through that network.
const FLOOR_NS_MIN: DurationNs = DurationNs(50_000);

/// A gap above this is counted. Reading the clock takes far less.
const GAP_NS_MIN: DurationNs = DurationNs(10_000);

/// Shortest gap that counts as lost time. Shorter gaps look like a hop over the
/// loopback. On a virtual host, timer interrupts of about 20 us each would alone add up to nearly 1
/// %.
const LOST_NS_MIN: DurationNs = FLOOR_NS_MIN;

/// How long to spin between two reports of progress, whose own time is not counted.
const PROGRESS_NS: DurationNs = DurationNs(100_000_000);

/// How many gaps were longer than a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Gaps {
    /// Longer than 10 us.
    pub over_10us: u64,
    /// Longer than 100 us.
    pub over_100us: u64,
    /// Longer than 1 ms.
    pub over_1ms: u64,
    /// Longer than 10 ms.
    pub over_10ms: u64,
}

/// What was heard while spinning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NoiseFloor {
    /// How long the thread spun.
    pub spun_ns: DurationNs,
    /// Gaps by their length.
    pub gaps: Gaps,
    /// The longest gap.
    pub longest_ns: DurationNs,
    /// All gaps over 50 us together.
    pub lost_ns: DurationNs,
    /// 90th percentile over windows of 10 ms of the window's longest gap, and never below 50 us.
    pub floor_ns: DurationNs,
    /// What one reading of `CLOCK_MONOTONIC` costs.
    pub clock_cost_ns: DurationNs,
    /// The smallest step that the clock was seen to make; 0 if it made none. A clock that is finer
    /// than a reading costs shows that cost.
    pub clock_resolution_ns: DurationNs,
}

impl NoiseFloor {
    /// Share of the time spun that something else had.
    #[must_use]
    pub fn lost_share(&self) -> f64 {
        if self.spun_ns == DurationNs::ZERO {
            0.0
        } else {
            self.lost_ns.0 as f64 / self.spun_ns.0 as f64
        }
    }
}

/// Busy-polls the clock for `duration` on the calling thread. Calls `progress` about ten times a
/// second with the completed share, from 0 to 1. The time of these calls is not counted.
pub fn spin(duration: Duration, progress: &mut dyn FnMut(f64)) -> NoiseFloor {
    let duration_ns = DurationNs::from(duration);
    let clock_cost_ns = clock_cost_ns();
    let mut listener = Listener::default();
    while listener.spun_ns < duration_ns {
        progress(listener.spun_ns.0 as f64 / duration_ns.0 as f64);
        let stop_ns = duration_ns.min(listener.spun_ns.saturating_add(PROGRESS_NS));
        let mut before_ns = monotonic_ns();
        while listener.spun_ns < stop_ns {
            let now_ns = monotonic_ns();
            listener.hear(now_ns - before_ns);
            before_ns = now_ns;
        }
    }
    progress(1.0);
    listener.finish(clock_cost_ns)
}

/// Median over batches, so that a gap in one of them does not count.
fn clock_cost_ns() -> DurationNs {
    const READINGS: i64 = 1_000;
    let mut costs: [DurationNs; 31] = std::array::from_fn(|_| {
        let began_ns = monotonic_ns();
        for _ in 1..READINGS {
            std::hint::black_box(monotonic_ns());
        }
        (monotonic_ns() - began_ns) / READINGS
    });
    costs.sort_unstable();
    costs[costs.len() / 2]
}

/// Adds up gaps. Knows no clock.
#[derive(Debug)]
struct Listener {
    spun_ns: DurationNs,
    gaps: Gaps,
    lost_ns: DurationNs,
    step_ns: Option<DurationNs>,
    windows: Histogram,
    window_end_ns: DurationNs,
    window_longest_ns: DurationNs,
}

impl Default for Listener {
    fn default() -> Self {
        Self {
            spun_ns: DurationNs::ZERO,
            gaps: Gaps::default(),
            lost_ns: DurationNs::ZERO,
            step_ns: None,
            windows: Histogram::default(),
            window_end_ns: WINDOW_NS,
            window_longest_ns: DurationNs::ZERO,
        }
    }
}

impl Listener {
    /// Takes the time between two readings that followed each other.
    #[inline]
    fn hear(&mut self, gap_ns: DurationNs) {
        self.spun_ns += gap_ns;
        if gap_ns > GAP_NS_MIN {
            self.count(gap_ns);
        }
        if gap_ns > DurationNs::ZERO && self.step_ns.is_none_or(|step_ns| gap_ns < step_ns) {
            self.step_ns = Some(gap_ns);
        }
        self.window_longest_ns = self.window_longest_ns.max(gap_ns);
        while self.spun_ns >= self.window_end_ns {
            self.windows.count(self.window_longest_ns);
            // A gap that reaches into the next window is one of that too.
            let reaches_on = self.spun_ns > self.window_end_ns;
            self.window_longest_ns = if reaches_on { gap_ns } else { DurationNs::ZERO };
            self.window_end_ns += WINDOW_NS;
        }
    }

    #[cold]
    fn count(&mut self, gap_ns: DurationNs) {
        let gaps = &mut self.gaps;
        for (counter, over_ns) in [
            (&mut gaps.over_10us, DurationNs(10_000)),
            (&mut gaps.over_100us, DurationNs(100_000)),
            (&mut gaps.over_1ms, DurationNs(1_000_000)),
            (&mut gaps.over_10ms, DurationNs(10_000_000)),
        ] {
            *counter += u64::from(gap_ns > over_ns);
        }
        if gap_ns > LOST_NS_MIN {
            self.lost_ns += gap_ns;
        }
    }

    fn finish(mut self, clock_cost_ns: DurationNs) -> NoiseFloor {
        if self.windows.total == 0 {
            // Shorter than a window: what there is of it.
            self.windows.count(self.window_longest_ns);
        }
        NoiseFloor {
            spun_ns: self.spun_ns,
            gaps: self.gaps,
            longest_ns: self.windows.longest_ns.max(self.window_longest_ns),
            lost_ns: self.lost_ns,
            floor_ns: self.windows.percentile_ns(90).max(FLOOR_NS_MIN),
            clock_cost_ns,
            clock_resolution_ns: self.step_ns.unwrap_or_default(),
        }
    }
}

/// Counts of times by their logarithm, in steps of at most 1/32: its memory is fixed however long
/// the spin is.
#[derive(Debug)]
struct Histogram {
    buckets: Vec<u64>,
    total: u64,
    longest_ns: DurationNs,
}

/// Buckets for each doubling, as a power of two.
const PRECISION_BITS: u32 = 5;

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: vec![0; 64 << PRECISION_BITS],
            total: 0,
            longest_ns: DurationNs::ZERO,
        }
    }
}

impl Histogram {
    fn count(&mut self, time_ns: DurationNs) {
        self.buckets[bucket(time_ns.0.unsigned_abs())] += 1;
        self.total += 1;
        self.longest_ns = self.longest_ns.max(time_ns);
    }

    /// By nearest rank; the upper edge of that bucket, and never above the longest time.
    fn percentile_ns(&self, percent: u64) -> DurationNs {
        let rank = (self.total * percent).div_ceil(100);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank && *count > 0 {
                let edge = i64::try_from(upper_edge(index)).unwrap_or(i64::MAX);
                return DurationNs(edge).min(self.longest_ns);
            }
        }
        DurationNs::ZERO
    }
}

/// Small times have a bucket each; above, the leading bits choose.
fn bucket(time: u64) -> usize {
    let shift = (u64::BITS - time.leading_zeros()).saturating_sub(PRECISION_BITS + 1);
    // The shifted value has at most six bits.
    ((shift << PRECISION_BITS) as usize) + usize::try_from(time >> shift).unwrap_or(0)
}

/// The largest time that falls into a bucket.
fn upper_edge(index: usize) -> u64 {
    let step = 1usize << PRECISION_BITS;
    let shift = (index / step).saturating_sub(1);
    let leading = (index - shift * step) as u64;
    (leading << shift) + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Silence: readings each 50 ns apart.
    fn silence(listener: &mut Listener, duration_ns: DurationNs) {
        for _ in 0..duration_ns.0 / 50 {
            listener.hear(DurationNs(50));
        }
    }

    #[test]
    fn a_silent_host_has_the_least_floor() {
        let mut listener = Listener::default();
        silence(&mut listener, WINDOW_NS * 100);
        let noise = listener.finish(DurationNs(20));
        assert_eq!(
            (noise.floor_ns, noise.longest_ns, noise.lost_ns),
            (FLOOR_NS_MIN, DurationNs(50), DurationNs::ZERO)
        );
        assert_eq!(
            (noise.spun_ns, noise.clock_resolution_ns),
            (DurationNs::seconds(1), DurationNs(50))
        );
        assert!(noise.lost_share().abs() < f64::EPSILON);
    }

    #[test]
    fn the_floor_is_what_one_window_in_ten_has() {
        let mut listener = Listener::default();
        for window in 0..200 {
            // One window in ten has 5 ms, one 500 us; the rank 180 of 200 is the latter.
            let gap_ns = DurationNs(match window % 10 {
                7 => 5_000_000,
                5 => 500_000,
                _ => 0,
            });
            listener.hear(gap_ns);
            silence(&mut listener, WINDOW_NS - gap_ns);
        }
        let noise = listener.finish(DurationNs(20));
        assert!(
            (500_000..=516_000).contains(&noise.floor_ns.0),
            "{:?}",
            noise.floor_ns
        );
        assert_eq!(noise.longest_ns, DurationNs::millis(5));
        assert_eq!(noise.lost_ns, DurationNs::millis(110));
        assert_eq!(
            noise.gaps,
            Gaps {
                over_10us: 40,
                over_100us: 40,
                over_1ms: 20,
                over_10ms: 0
            }
        );
    }

    #[test]
    fn the_ticks_of_a_timer_are_counted_and_are_not_time_lost() {
        let mut listener = Listener::default();
        for _ in 0..250 {
            listener.hear(DurationNs(20_000));
            silence(&mut listener, DurationNs(3_980_000));
        }
        listener.hear(DurationNs(50_001));
        let noise = listener.finish(DurationNs(20));
        assert_eq!(
            (noise.gaps.over_10us, noise.lost_ns),
            (251, DurationNs(50_001))
        );
        assert_eq!(
            noise.longest_ns,
            DurationNs(50_001),
            "also in a window that is not full"
        );
    }

    #[test]
    fn a_gap_counts_for_every_window_that_it_touches() {
        let mut listener = Listener::default();
        silence(&mut listener, WINDOW_NS / 2);
        listener.hear(WINDOW_NS * 3);
        silence(&mut listener, WINDOW_NS / 2);
        assert_eq!(listener.windows.total, 4);
        assert_eq!(listener.windows.percentile_ns(1), WINDOW_NS * 3);
        assert_eq!(listener.gaps.over_10ms, 1);
    }

    #[test]
    fn a_spin_without_time_has_the_least_floor() {
        let noise = Listener::default().finish(DurationNs(20));
        assert_eq!(
            (noise.floor_ns, noise.clock_resolution_ns),
            (FLOOR_NS_MIN, DurationNs::ZERO)
        );
        assert!(noise.lost_share().abs() < f64::EPSILON);
    }

    #[test]
    fn every_time_lies_in_a_bucket_that_is_close_above_it() {
        for time in (0..70).chain([100, 1_000, 123_456, 10_000_000, 1 << 40, u64::MAX]) {
            let edge = upper_edge(bucket(time));
            assert!(edge >= time && edge - time <= time / 32, "{time} {edge}");
            assert!(bucket(time) < 64 << PRECISION_BITS, "{time}");
        }
    }

    #[test]
    fn a_real_spin_covers_the_time_asked_for() {
        let mut told = Vec::new();
        let noise = spin(Duration::from_millis(30), &mut |share| told.push(share));
        assert!(noise.spun_ns >= DurationNs::millis(30));
        assert!(noise.clock_resolution_ns > DurationNs::ZERO);
        assert_eq!(told.last(), Some(&1.0));
    }
}
