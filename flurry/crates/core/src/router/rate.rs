//! What the router learns of each server: how fast it answers, and whether it does.

use crate::id::{DurationNs, MonoNs};

/// A copy is never repeated sooner: below it, a scheduler's delay would look like a loss.
pub(super) const RETRY_MIN: DurationNs = DurationNs::millis(2);

/// Nor later.
pub(super) const RETRY_MAX: DurationNs = DurationNs::millis(50);

const _: () = assert!(RETRY_MIN.0 > 0 && RETRY_MIN.0 < RETRY_MAX.0);

/// How long what a server said of its load holds.
const BUSY_HOLDS: DurationNs = DurationNs::millis(500);

/// Repetitions that a silent server gets in each period, whatever it owes.
const SILENT_ALLOWANCE: u32 = 64;

/// What a message may be so that its length does not matter: a packet.
const PACKET_BYTES: usize = 1_400;

/// How long a byte beyond that may take on the slowest path worth its name, 10 MB a second.
const BYTE_NS: u64 = 100;

/// How much longer than others a long message is waited for: repeating it while it is still under way
/// would bury the server.
pub(super) fn moving(bytes: usize) -> DurationNs {
    let beyond = u64::try_from(bytes.saturating_sub(PACKET_BYTES)).unwrap_or(u64::MAX);
    DurationNs(beyond.saturating_mul(BYTE_NS))
}

/// A server's round trips.
#[derive(Debug, Clone)]
pub(super) struct Rate {
    /// Smoothed round trip and its deviation, as in RFC 6298.
    smoothed_ns: u64,
    deviation_ns: u64,
    tokens: u32,
    refilled: MonoNs,
    busy: u8,
    heard: MonoNs,
}

impl Rate {
    pub(super) fn new(now: MonoNs) -> Self {
        Self {
            smoothed_ns: 0,
            deviation_ns: 0,
            tokens: SILENT_ALLOWANCE,
            refilled: now,
            busy: 0,
            heard: now,
        }
    }

    pub(super) fn observe(&mut self, took: DurationNs) {
        if self.smoothed_ns == 0 {
            self.smoothed_ns = took.0.max(1);
            self.deviation_ns = took.0 / 2;
        } else {
            let off = self.smoothed_ns.abs_diff(took.0);
            self.deviation_ns = (3 * self.deviation_ns + off) / 4;
            self.smoothed_ns = (7 * self.smoothed_ns + took.0) / 8;
        }
    }

    pub(super) fn round_trip(&self) -> DurationNs {
        DurationNs(self.smoothed_ns)
    }

    /// When a copy that was repeated `backoff` times is repeated again.
    pub(super) fn again_after(&self, backoff: u8) -> DurationNs {
        let base = (2 * self.smoothed_ns + 4 * self.deviation_ns).max(RETRY_MIN.0);
        let after = (base << backoff.min(10)).min(RETRY_MAX.0);
        assert!(
            (RETRY_MIN.0..=RETRY_MAX.0).contains(&after),
            "{after} ns after {base} ns, shifted by {backoff}"
        );
        DurationNs(after)
    }

    /// Every reply allows another repetition: a server that answers gets all that it owes. A server that
    /// has no room (`takes` is false) gets no more than a silent one.
    pub(super) fn heard(&mut self, now: MonoNs, busy: u8, takes: bool) {
        if takes {
            self.tokens = (self.tokens + 2).min(4 * SILENT_ALLOWANCE);
        }
        assert!(
            self.tokens <= 4 * SILENT_ALLOWANCE,
            "a server that was fast for long is not sent thousands of copies when it stops"
        );
        self.busy = busy;
        self.heard = now;
    }

    /// When it last said something; at the start, when it was first thought of.
    pub(super) fn heard_at(&self) -> MonoNs {
        self.heard
    }

    /// How busy the server is, in 255ths, if it has said so lately: one that gets no copies says nothing.
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

    /// Whether a copy may be repeated now.
    pub(super) fn may_repeat(&mut self, now: MonoNs) -> bool {
        self.refill(now);
        let may = self.tokens > 0;
        self.tokens = self.tokens.saturating_sub(1);
        may
    }

    /// Repetitions that may go now.
    pub(super) fn repeats_left(&self) -> u32 {
        self.tokens
    }

    /// When a server that says nothing is granted repetitions again.
    pub(super) fn refilled_at(&self) -> MonoNs {
        self.refilled.after(RETRY_MAX)
    }
}
