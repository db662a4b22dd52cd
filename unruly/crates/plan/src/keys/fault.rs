//! The keys of `[[fault]]`.

use super::key::{Key, Row, Table, bare, key, list, quoted, table, text};
use super::kinds::{Choice, Other, Real, Share};
use crate::fault::{Fault, FaultKind};
use crate::limits::*;
use crate::section::Limits;
use crate::units::DurationNs;

const SECOND: DurationNs = DurationNs(1_000_000_000);
const DELAY: DurationNs = DurationNs(5_000_000);

table! {
    /// The keys of `[[fault]]`.
    FAULT: Fault = "fault";

    KIND: Choice<&'static str> = key(
        "kind",
        Choice::of(|| FaultKind::NAMES.map(|name| (name, name)).to_vec()),
        "see below",
    ), |it| text(it.kind.name());

    PROCESS: Other = key(
        "process",
        Other("string or array"),
        "`agent-3`, `echo-0`, `redis-1`; `etcd-leader` or `etcd-follower` for a process that has \
         this role when the fault begins; of several the first that the cell has, for plans whose \
         cells differ in their store",
    ).also("a process of the plan, or of its store"), |it| match it.processes.as_slice() {
        [one] => text(one),
        several => bare(list(several.iter().map(|it| quoted(it)))),
    };

    AT: Limits<DurationNs> = key(
        "at",
        Limits::within(DurationNs(0), MAX_DURATION, DurationNs(0)),
        "when it begins, from the start of measurement",
    ).also("before the end of measurement"), |it| text(it.at);

    DURATION: Limits<DurationNs> = key(
        "duration",
        Limits::above_zero(MAX_DURATION, SECOND),
        "how long it lasts; the run starts a killed process again after it, or, without it, never",
    ).default_is("required, but for a kill")
        .also("ends with measurement"), |it| it.duration.and_then(text);

    EVERY: Limits<DurationNs> = key(
        "every",
        Limits::within(MIN_FAULT_PERIOD, MAX_DURATION, DurationNs(10 * SECOND.0)),
        "from one time to the next, as often as it ends within measurement",
    ).default_is("once")
        .also("longer than the duration, at most 100,000 times"), |it| it.every.and_then(text);

    CPU: Limits<u64> = key(
        "cpu",
        Limits::within(0, MAX_CPU as u64, 1),
        "the CPU of the neighbours",
    ).default_is("any").only(&["busy"]), |it| match it.kind {
        FaultKind::Busy { cpu, .. } => cpu.and_then(bare),
        _ => None,
    };

    THREADS: Limits<u64> = key(
        "threads",
        Limits::within(1, MAX_BUSY_THREADS as u64, 1).or(1),
        "number of neighbours",
    ).only(&["busy"]), |it| match it.kind {
        FaultKind::Busy { threads, .. } => bare(threads),
        _ => None,
    };

    CORES: Real = key(
        "cores",
        Real::between(MIN_QUOTA_CORES, MAX_QUOTA_CORES, 0.5),
        "CPU time that is left, in cores",
    ).only(&["quota"]), |it| match it.kind {
        FaultKind::Quota { cores } => bare(cores),
        _ => None,
    };

    DELAY_TIME: Limits<DurationNs> = key(
        "delay",
        Limits::within(DurationNs(0), MAX_NETWORK_DELAY, DELAY).or(DurationNs(0)),
        "delay in each direction",
    ).only(&["network"]), |it| match it.kind {
        FaultKind::Network(network) => text(network.delay),
        _ => None,
    };

    JITTER: Limits<DurationNs> = key(
        "jitter",
        Limits::within(DurationNs(0), MAX_NETWORK_DELAY, DELAY).or(DurationNs(0)),
        "largest further delay, drawn for each message from the seed",
    ).only(&["network"]), |it| match it.kind {
        FaultKind::Network(network) => text(network.jitter),
        _ => None,
    };

    LOSS: Share = key(
        "loss",
        Share { default: 0.0 },
        "the share of messages that is lost",
    ).only(&["network"]), |it| match it.kind {
        FaultKind::Network(network) => bare(network.loss),
        _ => None,
    };
}
