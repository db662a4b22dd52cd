//! What is done to a message: when it goes on, if it does.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use unruly_plan::{Network, mix};

/// Time after which a sender retransmits a lost segment: TCP's minimum.
const SENT_AGAIN: Duration = Duration::from_millis(200);

/// Bytes of a stream that fit a packet.
const SEGMENT_BYTES: usize = 1_448;

/// More losses of one part than this do not happen: the connection would have ended.
const LOSSES_MAX: u32 = 6;

/// The state of a relay, that all its threads share.
#[derive(Debug)]
pub(super) struct Way {
    seed: u64,
    network: Mutex<Option<Network>>,
    /// Whether there is anything to do, so that the rest of the time no thread waits for another.
    active: AtomicBool,
    closed: AtomicBool,
    messages: AtomicU64,
    lost: AtomicU64,
}

/// What has passed a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WayCounts {
    /// Number of messages during an active fault: datagrams, or single reads of a stream.
    pub(crate) messages: u64,
    /// Number of lost datagrams, or of retransmitted segments of a stream, among `messages`.
    pub(crate) lost: u64,
}

impl Way {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            network: Mutex::new(None),
            active: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            messages: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    pub(super) fn set(&self, network: Option<Network>) {
        let mut held = self.network.lock().unwrap_or_else(PoisonError::into_inner);
        *held = network;
        self.active.store(network.is_some(), Ordering::Release);
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn counts(&self) -> WayCounts {
        WayCounts {
            messages: self.messages.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
        }
    }

    /// When a part of a stream goes on. A lost one comes as late as TCP would send it again, and twice
    /// as late each further time.
    pub(super) fn of_stream(&self, now: Instant, bytes: usize) -> Option<Instant> {
        let (network, number) = self.next()?;
        let mut due = now + self.delay(&network, number);
        let segments = bytes.div_ceil(SEGMENT_BYTES).max(1) as u64;
        let mut again = SENT_AGAIN;
        for segment in 0..segments {
            let stream = mix(mix(self.seed, number), segment);
            let losses = (0..LOSSES_MAX).take_while(|&turn| {
                network.loss > 0.0 && uniform(mix(stream, u64::from(turn))) < network.loss
            });
            for _ in losses {
                self.lost.fetch_add(1, Ordering::Relaxed);
                due += again;
                again *= 2;
            }
        }
        Some(due)
    }

    /// When a datagram goes on: `None` where there is nothing to do, and no instant where it is lost.
    pub(super) fn of_datagram(&self, now: Instant) -> Option<Option<Instant>> {
        let (network, number) = self.next()?;
        if uniform(mix(mix(self.seed, number), 0)) < network.loss {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return Some(None);
        }
        Some(Some(now + self.delay(&network, number)))
    }

    /// What is to be done, and the message's number.
    fn next(&self) -> Option<(Network, u64)> {
        if !self.active.load(Ordering::Acquire) {
            return None;
        }
        let network = *self.network.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.messages.fetch_add(1, Ordering::Relaxed);
        network.map(|it| (it, number))
    }

    fn delay(&self, network: &Network, number: u64) -> Duration {
        let share = uniform(mix(!self.seed, number));
        Duration::from_nanos(network.delay.0)
            + Duration::from_nanos(network.jitter.0).mul_f64(share)
    }
}

/// Returns a number from 0 to 1 from mixed bits.
fn uniform(mixed: u64) -> f64 {
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}
