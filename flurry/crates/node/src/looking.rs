//! Looking for a message again and again, before sleeping until one comes.
//!
//! A wake-up takes a few microseconds where cores are awake, and tens where an idle one was halted,
//! which can be more than everything else that an operation needs. Looking costs a core meanwhile, so
//! it is only done as long as messages come in time.

use std::sync::atomic::{AtomicU32, Ordering};

use flurry_core::id::DurationNs;

/// Whether looking pays, as the last times have shown.
#[derive(Debug)]
pub(crate) struct Looking {
    /// For how long at once.
    pub(crate) most: DurationNs,
    /// Times that nothing came, one after the other.
    missed: AtomicU32,
    times: AtomicU32,
}

impl Looking {
    /// Maximum number of doublings. Busy-polling is still tried now and then, since messages may
    /// arrive faster again.
    const DOUBLINGS_MAX: u32 = 6;

    pub(crate) fn new(most: std::time::Duration) -> Self {
        Self {
            most: DurationNs(u64::try_from(most.as_nanos()).unwrap_or(u64::MAX)),
            missed: AtomicU32::new(0),
            times: AtomicU32::new(0),
        }
    }

    /// Whether to look this time.
    pub(crate) fn begins(&self) -> bool {
        if self.most.0 == 0 {
            return false;
        }
        let missed = self.missed.load(Ordering::Relaxed);
        let times = self.times.fetch_add(1, Ordering::Relaxed);
        times.is_multiple_of(1 << missed.min(Self::DOUBLINGS_MAX))
    }

    /// What came of it.
    pub(crate) fn ended(&self, in_time: bool) {
        let missed = if in_time {
            0
        } else {
            self.missed.load(Ordering::Relaxed).saturating_add(1)
        };
        self.missed.store(missed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn looks(looking: &Looking, times: u32) -> usize {
        (0..times).filter(|_| looking.begins()).count()
    }

    #[test]
    fn what_never_pays_is_soon_tried_once_in_64_times_and_always_again_when_it_pays() {
        let looking = Looking::new(Duration::from_micros(50));
        assert_eq!(looks(&looking, 10), 10);
        for _ in 0..10 {
            looking.ended(false);
        }
        assert_eq!(looks(&looking, 640), 10);
        looking.ended(true);
        assert_eq!(looks(&looking, 10), 10);
        assert_eq!(looks(&Looking::new(Duration::ZERO), 10), 0);
    }
}
