//! The two clocks of a node.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flurry_core::id::{MonoNs, WallNs};

/// The monotonic clock, the same in all processes of a machine: rows of the trace have it too.
pub(crate) fn now() -> MonoNs {
    MonoNs(u64::try_from(unruly_trace::monotonic().0).unwrap_or(0))
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
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    WallNs(since.map_or(0, |since| {
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    }))
}

/// The owner's time after `span` from now, for [`crate::Operation::Set`].
#[must_use]
pub fn wall_after(span: Duration) -> WallNs {
    let span = i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
    WallNs(wall().0.saturating_add(span))
}
