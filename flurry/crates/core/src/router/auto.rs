//! Choosing a level: first of all, a short hedge, or one replica alone.
//!
//! Copies to all replicas cost all replicas: while the servers have time to spare the first reply
//! wins by far, and when they have not the copies themselves make the queue. So the servers say how
//! busy they are in every reply, and the router moves between the two with a gap in between, so that
//! it does not flap: what hedging saves must not look like room for copies.

use std::collections::BTreeMap;

use super::rate::Rate;
use crate::config::Level;
use crate::id::{DurationNs, MonoNs, ServerId};

/// Busier than this with all copies: hedge. In 255ths.
const HEDGE_ABOVE: u8 = 178;

/// Idler than this while hedging: three times as much still leaves room.
const FIRST_BELOW: u8 = 51;

// A cluster whose load three times over would still be low does not go back at once.
const _: () = assert!(3 * (FIRST_BELOW as u32) < HEDGE_ABOVE as u32);

/// How long a choice stands at least.
const STANDS: DurationNs = DurationNs::millis(100);

/// Answers in the estimate of the delay.
const SAMPLES: usize = 256;

/// The router's choice, and what it is made from.
#[derive(Debug, Clone)]
pub(super) struct Auto {
    hedging: bool,
    since: MonoNs,
    /// The latest answers' times, as a ring.
    took_ns: Vec<u64>,
    next: usize,
    delay: DurationNs,
}

impl Default for Auto {
    fn default() -> Self {
        Self {
            hedging: false,
            since: MonoNs(0),
            took_ns: Vec::with_capacity(SAMPLES),
            next: 0,
            delay: super::rate::RETRY_MIN,
        }
    }
}

impl Auto {
    /// Notes how long an answer took.
    pub(super) fn observe(&mut self, took: DurationNs) {
        if self.took_ns.len() < SAMPLES {
            self.took_ns.push(took.0);
            return;
        }
        assert!(
            self.took_ns.len() == SAMPLES && self.next < SAMPLES,
            "the ring is full, and the oldest time is replaced"
        );
        self.took_ns[self.next] = took.0;
        self.next = (self.next + 1) % SAMPLES;
        if self.next == 0 {
            let mut sorted = self.took_ns.clone();
            sorted.sort_unstable();
            // The 95th percentile: one in twenty is hedged, so copies add five per cent of load.
            self.delay = DurationNs(sorted[SAMPLES * 95 / 100]);
        }
    }

    /// The level of the next operation.
    pub(super) fn choose(&mut self, now: MonoNs, rates: &BTreeMap<ServerId, Rate>) -> Level {
        let said = rates.values().filter_map(|rate| rate.busy(now));
        // While nobody says anything the choice stands.
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
