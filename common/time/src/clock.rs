//! Two clocks and how they are tied.
//!
//! Every `_ns` column is `wall at start + (monotonic now - monotonic at start)`, so a stepped wall
//! clock cannot bend a run. The kernel stamps packets with the wall clock (`CLOCK_REALTIME`), so the
//! pair is read again each second: a kernel stamp is converted with the latest pair. Where the pair
//! moved by more than a slew can explain, the clock was stepped; that is an event, and stamps taken
//! between the two pairs are null because nobody knows which side of the step they are on.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::instant::{BootNs, ColumnNs, DurationNs, MonoNs, WallNs};

/// By how much the wall clock was stepped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepNs(pub i64);

/// A wall clock that moves by more than this against the monotonic clock within a second was
/// stepped: a slew is at most 500 ppm, which is 0.5 ms, and reading the pair costs microseconds.
const STEP_MIN: DurationNs = DurationNs::millis(1);

/// Marks "between two pairs a step happened" in the shared offset.
const UNKNOWN: i64 = i64::MIN;

/// The monotonic clock now.
#[must_use]
pub fn monotonic() -> MonoNs {
    MonoNs(read(ClockId::CLOCK_MONOTONIC))
}

/// Returns the boot clock now.
#[must_use]
pub fn boot() -> BootNs {
    BootNs(read(ClockId::CLOCK_BOOTTIME))
}

/// Returns the wall clock now.
#[must_use]
pub fn wall() -> WallNs {
    WallNs(read(ClockId::CLOCK_REALTIME))
}

fn read(clock: ClockId) -> i64 {
    // No clock can fail on Linux: the ids are valid and the pointer is ours.
    clock_gettime(clock).map_or(0, |time| time.tv_sec() * 1_000_000_000 + time.tv_nsec())
}

/// One reading of both clocks at (nearly) the same instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockPair {
    /// The monotonic clock.
    pub mono_ns: MonoNs,
    /// The wall clock at that instant.
    pub wall_ns: WallNs,
}

impl ClockPair {
    /// Reads both clocks; of three tries the one that was interrupted least is kept.
    #[must_use]
    pub fn now() -> Self {
        let mut best = (
            DurationNs(i64::MAX),
            Self {
                mono_ns: MonoNs(0),
                wall_ns: WallNs(0),
            },
        );
        for _ in 0..3 {
            let before = monotonic();
            let wall_ns = wall();
            let width = monotonic() - before;
            if width < best.0 {
                best = (
                    width,
                    Self {
                        mono_ns: before + width / 2,
                        wall_ns,
                    },
                );
            }
        }
        best.1
    }

    /// Returns by how much the wall clock is ahead of the monotonic clock, in nanoseconds. It is
    /// the one number that leads from one clock to another.
    #[must_use]
    pub fn offset_ns(self) -> i64 {
        self.wall_ns.0 - self.mono_ns.0
    }

    /// Returns this instant in the columns of a run that begins with it.
    #[must_use]
    pub fn column_ns(self) -> ColumnNs {
        ColumnNs(self.wall_ns.0)
    }
}

/// Turns clock readings into column time. Cheap to copy into each thread.
#[derive(Debug, Clone)]
pub struct Clock {
    origin: ClockPair,
    latest_offset_ns: Arc<AtomicI64>,
}

impl Clock {
    /// A clock whose columns start from `origin`.
    #[must_use]
    pub fn new(origin: ClockPair) -> Self {
        Self {
            origin,
            latest_offset_ns: Arc::new(AtomicI64::new(origin.offset_ns())),
        }
    }

    /// The pair that the columns start from.
    #[must_use]
    pub fn origin(&self) -> ClockPair {
        self.origin
    }

    /// Column time of a monotonic instant.
    #[must_use]
    pub fn column(&self, mono: MonoNs) -> ColumnNs {
        self.origin.column_ns() + (mono - self.origin.mono_ns)
    }

    /// Column time now.
    #[must_use]
    pub fn column_now(&self) -> ColumnNs {
        self.column(monotonic())
    }

    /// Column time of a kernel stamp (`CLOCK_REALTIME`); `None` when it is missing (0) or when a
    /// step makes it ambiguous.
    #[must_use]
    pub fn column_of_kernel_stamp(&self, stamp: WallNs) -> Option<ColumnNs> {
        let offset_ns = self.latest_offset_ns.load(Ordering::Relaxed);
        if stamp.0 == 0 || offset_ns == UNKNOWN {
            return None;
        }
        Some(self.column(MonoNs(stamp.0 - offset_ns)))
    }
}

/// Re-reads the pair and reports steps; owned by one thread, which calls it about each second.
#[derive(Debug)]
pub struct ClockWatch {
    clock: Clock,
    last: ClockPair,
}

impl ClockWatch {
    /// Watches for `clock`.
    #[must_use]
    pub fn new(clock: &Clock) -> Self {
        Self {
            clock: clock.clone(),
            last: clock.origin,
        }
    }

    /// Takes a new pair. Returns the step if the wall clock was stepped since the last one.
    pub fn observe(&mut self, pair: ClockPair) -> Option<StepNs> {
        let moved = pair.offset_ns() - self.last.offset_ns();
        self.last = pair;
        let stepped = moved.abs() > STEP_MIN.0;
        // For one period after a step stamps may come from either side of it.
        let offset_ns = if stepped { UNKNOWN } else { pair.offset_ns() };
        self.clock
            .latest_offset_ns
            .store(offset_ns, Ordering::Relaxed);
        stepped.then_some(StepNs(moved))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGIN: ClockPair = ClockPair {
        mono_ns: MonoNs(1_000),
        wall_ns: WallNs(5_000_000_000),
    };

    #[test]
    fn columns_follow_the_monotonic_clock_from_the_wall_clock_of_the_start() {
        let clock = Clock::new(ORIGIN);
        assert_eq!(clock.column(MonoNs(1_500)), ColumnNs(5_000_000_500));
    }

    #[test]
    fn a_kernel_stamp_lands_on_the_column_axis() {
        let clock = Clock::new(ORIGIN);
        assert_eq!(
            clock.column_of_kernel_stamp(WallNs(5_000_000_250)),
            Some(ColumnNs(5_000_000_250))
        );
        assert_eq!(clock.column_of_kernel_stamp(WallNs(0)), None);
    }

    #[test]
    fn a_step_is_reported_once_and_stamps_are_null_until_the_next_pair() {
        let clock = Clock::new(ORIGIN);
        let mut watch = ClockWatch::new(&clock);
        let second = DurationNs::seconds(1);
        let stepped = ClockPair {
            mono_ns: ORIGIN.mono_ns + second,
            wall_ns: ORIGIN.wall_ns + second + DurationNs::seconds(3),
        };
        assert_eq!(watch.observe(stepped), Some(StepNs(3_000_000_000)));
        assert_eq!(clock.column_of_kernel_stamp(stepped.wall_ns), None);
        let after = ClockPair {
            mono_ns: stepped.mono_ns + second,
            wall_ns: stepped.wall_ns + second,
        };
        assert_eq!(watch.observe(after), None);
        // The stamp is three seconds ahead by the wall clock, the column is not.
        let expected = clock.column(after.mono_ns);
        assert_eq!(clock.column_of_kernel_stamp(after.wall_ns), Some(expected));
    }

    #[test]
    fn a_slew_is_not_a_step() {
        let mut watch = ClockWatch::new(&Clock::new(ORIGIN));
        let slewed = ClockPair {
            mono_ns: ORIGIN.mono_ns + DurationNs(1_000_000_000),
            wall_ns: ORIGIN.wall_ns + DurationNs(1_000_500_000),
        };
        assert_eq!(watch.observe(slewed), None);
    }
}
