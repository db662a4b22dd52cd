//! The two clocks that the probe and the doctor read.

use nix::time::{ClockId, clock_gettime};
use unruly_trace::{DurationNs, MonoNs};

/// `CLOCK_MONOTONIC`.
pub(crate) fn monotonic_ns() -> MonoNs {
    MonoNs(clock_ns(ClockId::CLOCK_MONOTONIC))
}

/// Processor time that the calling thread has used.
pub(crate) fn thread_cpu_ns() -> DurationNs {
    DurationNs(clock_ns(ClockId::CLOCK_THREAD_CPUTIME_ID))
}

#[inline]
fn clock_ns(clock: ClockId) -> i64 {
    // Neither clock can fail where Linux runs; a zero would show at once as a nonsensical row.
    clock_gettime(clock).map_or(0, |at| at.tv_sec() * 1_000_000_000 + at.tv_nsec())
}
