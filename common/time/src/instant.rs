//! Instants, one type for each clock, and the time between two instants of one clock.
//!
//! An instant of one clock cannot be subtracted from, or compared with, an instant of another: the
//! difference would be decades. A length of time cannot stand for an instant. Each type is a number
//! of nanoseconds and nothing else, so a file, a message and a column hold the number itself.

use std::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};
use std::time::Duration;

use serde::{Deserialize, Serialize};

macro_rules! instants {
    ($($(#[$about:meta])* $name:ident),* $(,)?) => {$(
        $(#[$about])*
        #[derive(
            Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        #[repr(transparent)]
        pub struct $name(pub i64);

        impl $name {
            /// Returns the later instant, or the last possible one.
            #[must_use]
            pub const fn saturating_add(self, time: DurationNs) -> Self {
                Self(self.0.saturating_add(time.0))
            }

            /// Returns the earlier instant, or the first possible one.
            #[must_use]
            pub const fn saturating_sub(self, time: DurationNs) -> Self {
                Self(self.0.saturating_sub(time.0))
            }

            /// Returns the time since an earlier instant, or the longest possible one.
            #[must_use]
            pub const fn saturating_since(self, earlier: Self) -> DurationNs {
                DurationNs(self.0.saturating_sub(earlier.0))
            }
        }

        impl Sub for $name {
            type Output = DurationNs;

            #[inline]
            fn sub(self, earlier: Self) -> DurationNs {
                DurationNs(self.0 - earlier.0)
            }
        }

        impl Add<DurationNs> for $name {
            type Output = Self;

            #[inline]
            fn add(self, time: DurationNs) -> Self {
                Self(self.0 + time.0)
            }
        }

        impl Sub<DurationNs> for $name {
            type Output = Self;

            #[inline]
            fn sub(self, time: DurationNs) -> Self {
                Self(self.0 - time.0)
            }
        }

        impl AddAssign<DurationNs> for $name {
            #[inline]
            fn add_assign(&mut self, time: DurationNs) {
                self.0 += time.0;
            }
        }
    )*};
}

instants! {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    MonoNs,
    /// Nanoseconds of `CLOCK_BOOTTIME`: time since the machine booted, the same in all its processes.
    BootNs,
    /// Nanoseconds of `CLOCK_REALTIME`.
    WallNs,
    /// Nanoseconds of column time: the wall clock when the run began, and the monotonic clock since
    /// then. It differs from `CLOCK_REALTIME` once that clock is slewed or stepped.
    ColumnNs,
}

/// Nanoseconds between two instants of one clock; negative if the second instant came first.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
#[repr(transparent)]
pub struct DurationNs(pub i64);

impl DurationNs {
    /// No time.
    pub const ZERO: Self = Self(0);
    /// 73 years, which stand for any longer time: an instant plus these does not overflow.
    pub const LONGEST: Self = Self(i64::MAX / 4);

    /// Returns this number of seconds.
    #[must_use]
    pub const fn seconds(count: i64) -> Self {
        Self(count * 1_000_000_000)
    }

    /// Returns this number of milliseconds.
    #[must_use]
    pub const fn millis(count: i64) -> Self {
        Self(count * 1_000_000)
    }

    /// Returns this number of nanoseconds, at most [`Self::LONGEST`].
    #[must_use]
    pub fn from_unsigned(ns: u64) -> Self {
        i64::try_from(ns).map_or(Self::LONGEST, |ns| Self(ns).min(Self::LONGEST))
    }

    /// Returns the time in seconds.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Returns the time for the standard library; no time if it is negative.
    #[must_use]
    pub fn to_std(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }

    /// Returns the time without its sign.
    #[must_use]
    pub const fn abs(self) -> Self {
        Self(self.0.abs())
    }

    /// Returns the sum, or the longest possible time.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl From<Duration> for DurationNs {
    /// Returns the same time, at most [`DurationNs::LONGEST`].
    fn from(time: Duration) -> Self {
        u64::try_from(time.as_nanos()).map_or(Self::LONGEST, Self::from_unsigned)
    }
}

impl Add for DurationNs {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sub for DurationNs {
    type Output = Self;

    #[inline]
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl AddAssign for DurationNs {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl SubAssign for DurationNs {
    #[inline]
    fn sub_assign(&mut self, other: Self) {
        self.0 -= other.0;
    }
}

impl Mul<i64> for DurationNs {
    type Output = Self;

    #[inline]
    fn mul(self, times: i64) -> Self {
        Self(self.0 * times)
    }
}

impl Div<i64> for DurationNs {
    type Output = Self;

    #[inline]
    fn div(self, parts: i64) -> Self {
        Self(self.0 / parts)
    }
}

impl Div for DurationNs {
    type Output = i64;

    #[inline]
    fn div(self, other: Self) -> i64 {
        self.0 / other.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_between_two_instants_has_a_sign() {
        let (early, late) = (MonoNs(40), MonoNs(100));
        assert_eq!(late - early, DurationNs(60));
        assert_eq!(early - late, DurationNs(-60));
        assert_eq!(early + (late - early), late);
        assert_eq!((early - late).to_std(), Duration::ZERO);
    }

    #[test]
    fn the_longest_time_can_be_added_to_an_instant() {
        let longest = DurationNs::from(Duration::MAX);
        assert_eq!(longest, DurationNs::from_unsigned(u64::MAX));
        assert!(WallNs(1_800_000_000_000_000_000) + longest > WallNs(longest.0));
    }

    #[test]
    fn sums_that_saturate_stay_at_the_last_instant() {
        let last = MonoNs(i64::MAX);
        assert_eq!(MonoNs(5).saturating_add(DurationNs(i64::MAX)), last);
        assert_eq!(last.saturating_since(MonoNs(-1)), DurationNs(i64::MAX));
        assert_eq!(MonoNs(-2).saturating_sub(DurationNs(i64::MAX)).0, i64::MIN);
    }
}
