//! The router's measurements of each server: its round trips, its load, and its silence.

use crate::id::{DurationNs, MonoNs};

/// The shortest time before a copy is repeated. Below it, a scheduler's delay would look like a
/// loss.
pub(super) const RETRY_MIN: DurationNs = DurationNs::millis(2);

/// The longest time before a copy is repeated to a server that answers faster than that.
pub(super) const RETRY_MAX: DurationNs = DurationNs::millis(50);

/// The longest time before a copy is repeated to a server that answers slowly. If its queue is
/// longer than that time, a repetition finds the first copy still waiting, and makes it longer.
const RETRY_SLOW_MAX: DurationNs = DurationNs::millis(1_000);

const _: () = assert!(RETRY_MIN.0 > 0 && RETRY_MIN.0 < RETRY_MAX.0);
const _: () = assert!(RETRY_MAX.0 < RETRY_SLOW_MAX.0);

/// The time for which a server's report of its load is valid.
const BUSY_HOLDS: DurationNs = DurationNs::millis(500);

/// The most repetitions to a silent server in each period, for any number of unanswered copies.
const SILENT_ALLOWANCE: u32 = 64;

/// The length of a packet, up to which a message's length does not matter.
const PACKET_BYTES: usize = 1_400;

/// The time for each byte beyond that on the slowest useful path, 10 MB/s, in ns.
const BYTE_NS: u64 = 100;

/// Returns the additional time before a long message is repeated. Repeating it while it is still
/// under way would bury the server.
pub(super) fn moving(bytes: usize) -> DurationNs {
    let beyond = u64::try_from(bytes.saturating_sub(PACKET_BYTES)).unwrap_or(u64::MAX);
    DurationNs(beyond.saturating_mul(BYTE_NS))
}

/// The measurements of a server.
#[derive(Debug, Clone)]
pub(super) struct Rate {
    /// Smoothed round trip and its deviation, as in RFC 6298.
    smoothed: DurationNs,
    deviation: DurationNs,
    tokens: u32,
    refilled: MonoNs,
    busy: u8,
    heard: MonoNs,
}

impl Rate {
    pub(super) fn new(now: MonoNs) -> Self {
        Self {
            smoothed: DurationNs(0),
            deviation: DurationNs(0),
            tokens: SILENT_ALLOWANCE,
            refilled: now,
            busy: 0,
            heard: now,
        }
    }

    pub(super) fn observe(&mut self, took: DurationNs) {
        // A server that stood still for a minute is not slow for long after that.
        let took = took.min(RETRY_SLOW_MAX);
        if self.smoothed.0 == 0 {
            self.smoothed.0 = took.0.max(1);
            self.deviation.0 = took.0 / 2;
        } else {
            let off = self.smoothed.0.abs_diff(took.0);
            self.deviation.0 = (3 * self.deviation.0 + off) / 4;
            self.smoothed.0 = (7 * self.smoothed.0 + took.0) / 8;
        }
    }

    pub(super) fn round_trip(&self) -> DurationNs {
        self.smoothed
    }

    /// Returns the time before a copy that was repeated `backoff` times is repeated again.
    pub(super) fn again_after(&self, backoff: u8) -> DurationNs {
        let base =
            (2 * self.smoothed.0 + 4 * self.deviation.0).clamp(RETRY_MIN.0, RETRY_SLOW_MAX.0);
        let after = (base << backoff.min(10)).min(RETRY_MAX.0).max(base);
        assert!(
            (RETRY_MIN.0..=RETRY_SLOW_MAX.0).contains(&after),
            "{after} ns after {base} ns, shifted by {backoff}"
        );
        DurationNs(after)
    }

    /// Notes a reply. One that a copy waited for allows further repetitions (`earns`), so that a
    /// server that answers gets all its copies. A server without room gets no more than a silent
    /// one, and so does one that only answers repetitions: else each would pay for two more.
    pub(super) fn heard(&mut self, now: MonoNs, busy: u8, earns: bool) {
        if earns {
            self.tokens = (self.tokens + 2).min(4 * SILENT_ALLOWANCE);
        }
        assert!(
            self.tokens <= 4 * SILENT_ALLOWANCE,
            "a server that was fast for long is not sent thousands of copies when it stops"
        );
        self.busy = busy;
        self.heard = now;
    }

    /// Returns the time of the last reply, or of the first copy if there was none.
    pub(super) fn heard_at(&self) -> MonoNs {
        self.heard
    }

    /// Returns the server's load in 255ths, if a recent reply reported it. A server without copies
    /// reports nothing.
    pub(super) fn busy(&self, now: MonoNs) -> Option<u8> {
        (now.since(self.heard) <= BUSY_HOLDS).then_some(self.busy)
    }

    /// Grants the repetitions of another period once the last one is over.
    pub(super) fn refill(&mut self, now: MonoNs) {
        if now.since(self.refilled) >= RETRY_MAX {
            self.refilled = now;
            self.tokens = self.tokens.max(SILENT_ALLOWANCE);
        }
        assert!(self.refilled_at() > now, "the next period is in the future");
    }

    /// Returns whether a copy may be repeated now, and counts the repetition.
    pub(super) fn may_repeat(&mut self, now: MonoNs) -> bool {
        self.refill(now);
        let may = self.tokens > 0;
        self.tokens = self.tokens.saturating_sub(1);
        may
    }

    /// Returns the number of repetitions that are allowed now.
    pub(super) fn repeats_left(&self) -> u32 {
        self.tokens
    }

    /// Returns the time at which a silent server is allowed repetitions again.
    pub(super) fn refilled_at(&self) -> MonoNs {
        self.refilled.after(RETRY_MAX)
    }
}
