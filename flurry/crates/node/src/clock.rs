//! The two clocks of a node.
//!
//! Leases go by the boot clock, which goes on while the machine sleeps; the monotonic clock stands still
//! then, and a server that woke up would answer as if its lease still ran. A virtual machine that is
//! suspended by its host may not see any clock go on but the wall clock, once that is set right. So a
//! part also notices when the two drift apart, and lets go of what depends on time.

use std::time::{Duration, Instant};

use flurry_core::id::{MonoNs, WallNs};
use unruly_time::DurationNs;

/// Time since the machine booted, the same in all processes of a machine.
pub(crate) fn now() -> MonoNs {
    MonoNs(u64::try_from(unruly_time::boot().0).unwrap_or(0))
}

/// How far the wall clock may move against the boot clock from one look to the next. Setting a clock
/// right by steps stays below it; a suspended machine does not.
const JUMP: DurationNs = DurationNs::millis(250);

/// Notices jumps between the two clocks.
#[derive(Debug, Default)]
pub(crate) struct JumpWatch {
    /// By how many nanoseconds the wall clock is ahead of the boot clock.
    apart: Option<i64>,
}

impl JumpWatch {
    /// By how much the wall clock has jumped since the last look, if it has.
    pub(crate) fn look(&mut self) -> Option<DurationNs> {
        self.confirmed(|| (now(), wall()))
    }

    /// A stall between the readings of the two clocks looks like a jump, so a jump is read twice.
    fn confirmed(&mut self, mut read: impl FnMut() -> (MonoNs, WallNs)) -> Option<DurationNs> {
        let before = self.apart;
        let (at, wall) = read();
        self.seen(at, wall)?;
        self.apart = before;
        let (at, wall) = read();
        self.seen(at, wall)
    }

    fn seen(&mut self, now: MonoNs, wall: WallNs) -> Option<DurationNs> {
        let apart = wall
            .0
            .saturating_sub(i64::try_from(now.0).unwrap_or(i64::MAX));
        let before = self.apart.replace(apart)?;
        let jump = DurationNs(apart.saturating_sub(before));
        (jump.abs() > JUMP).then_some(jump)
    }
}

/// The instant in the clock's terms; `None` is now.
pub(crate) fn since(instant: Option<Instant>) -> MonoNs {
    let ago = instant.map_or(Duration::ZERO, |it| it.elapsed());
    MonoNs(
        now()
            .0
            .saturating_sub(u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX)),
    )
}

/// The owner's time, which expiry goes by.
pub(crate) fn wall() -> WallNs {
    WallNs(unruly_time::wall().0)
}

/// The owner's time after `span` from now, for [`crate::Operation::Set`].
#[must_use]
pub fn wall_after(span: Duration) -> WallNs {
    let span = i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
    WallNs(wall().0.saturating_add(span))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_clock_that_jumps_is_noticed_once_and_one_that_is_slewed_is_not() {
        let at = |ms: u64| MonoNs(ms * 1_000_000);
        let wall = |ms: i64| WallNs(1_700_000_000_000_000_000 + ms * 1_000_000);
        let mut watch = JumpWatch::default();
        assert_eq!(watch.seen(at(0), wall(0)), None, "nothing is known before");
        assert_eq!(watch.seen(at(1_000), wall(1_001)), None, "slewed");
        let slept = watch.seen(at(1_010), wall(6_011));
        assert_eq!(slept, Some(DurationNs::seconds(5)), "the machine slept");
        assert_eq!(watch.seen(at(1_020), wall(6_021)), None);
        assert!(watch.seen(at(1_030), wall(31)).is_some(), "set back");
    }

    #[test]
    fn a_stall_between_the_readings_of_the_clocks_is_no_jump() {
        let pair = |boot_ms: u64, wall_ms: i64| {
            let wall_ns = 1_700_000_000_000_000_000 + wall_ms * 1_000_000;
            (MonoNs(boot_ms * 1_000_000), WallNs(wall_ns))
        };
        let mut watch = JumpWatch::default();
        let mut stalled = [pair(0, 0), pair(1_000, 1_400), pair(1_401, 1_401)].into_iter();
        assert_eq!(watch.confirmed(|| stalled.next().unwrap()), None);
        assert_eq!(watch.confirmed(|| stalled.next().unwrap()), None, "a stall");
        assert_eq!(stalled.next(), None, "the second was read twice");
        let mut jumped = [pair(2_000, 7_000), pair(2_001, 7_001)].into_iter();
        let jump = watch.confirmed(|| jumped.next().unwrap());
        assert_eq!(jump, Some(DurationNs::seconds(5)));
    }
}
