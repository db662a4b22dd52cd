//! The two clocks of a node.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flurry_core::id::{MonoNs, WallNs};

/// A monotonic clock that starts with its node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(self) -> MonoNs {
        MonoNs(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
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
