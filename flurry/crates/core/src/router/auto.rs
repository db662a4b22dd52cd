//! The choice between the first reply of all replicas and a hedge.
//!
//! Copies to all replicas load all replicas. While the servers have spare capacity, waiting for the
//! first reply is much faster. Without it, the copies themselves make the queue. So each reply of a
//! server reports its load, and the router chooses by that. The two thresholds differ, so that the
//! router does not switch back and forth: the load that hedging saves must not look like spare
//! capacity.

use std::collections::BTreeMap;

use super::rate::Rate;
use crate::config::Level;
use crate::id::{DurationNs, MonoNs, ServerId};

/// The load above which the router begins to hedge, in 255ths.
const HEDGE_ABOVE: u8 = 178;

/// The load below which the router stops hedging, in 255ths. Three times this load still leaves
/// room.
const FIRST_BELOW: u8 = 51;

// The load without hedging, up to three times as high, must not make the router hedge again at
// once.
const _: () = assert!(3 * (FIRST_BELOW as u32) < HEDGE_ABOVE as u32);

/// The shortest time between two changes of the choice.
const STANDS: DurationNs = DurationNs::millis(100);

/// The number of answers in the estimate of the delay.
const SAMPLES: usize = 256;

/// The router's choice, and the measurements behind it.
#[derive(Debug, Clone)]
pub(super) struct Auto {
    hedging: bool,
    since: MonoNs,
    /// The times of the latest answers, as a ring.
    took: Vec<DurationNs>,
    next: usize,
    delay: DurationNs,
}

impl Default for Auto {
    fn default() -> Self {
        Self {
            hedging: false,
            since: MonoNs(0),
            took: Vec::with_capacity(SAMPLES),
            next: 0,
            delay: super::rate::RETRY_MIN,
        }
    }
}

impl Auto {
    /// Notes the time that an answer took.
    pub(super) fn observe(&mut self, took: DurationNs) {
        if self.took.len() < SAMPLES {
            self.took.push(took);
            return;
        }
        assert!(
            self.took.len() == SAMPLES && self.next < SAMPLES,
            "the ring is full, and the oldest time is replaced"
        );
        self.took[self.next] = took;
        self.next = (self.next + 1) % SAMPLES;
        if self.next == 0 {
            let mut sorted = self.took.clone();
            sorted.sort_unstable();
            // At the 95th percentile one operation in twenty is hedged, so copies add five per cent
            // of load.
            self.delay = sorted[SAMPLES * 95 / 100];
        }
    }

    /// Returns the level of the next operation.
    pub(super) fn choose(&mut self, now: MonoNs, rates: &BTreeMap<ServerId, Rate>) -> Level {
        let said = rates.values().filter_map(|rate| rate.busy(now));
        // The choice stands while no server reports its load.
        if let Some(busy) = said.max()
            && now.since(self.since) >= STANDS
        {
            let hedging = if self.hedging {
                busy >= FIRST_BELOW
            } else {
                busy > HEDGE_ABOVE
            };
            if hedging != self.hedging {
                self.hedging = hedging;
                self.since = now;
            }
        }
        if self.hedging {
            Level::Hedge(self.delay)
        } else {
            Level::First
        }
    }
}
