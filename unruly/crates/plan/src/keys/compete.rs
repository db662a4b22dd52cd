//! The keys of `[compete]`.

use super::key::{Key, Row, Table, bare, key, table, text};
use super::kinds::{Choice, Share};
use crate::compete::{Compete, CompeteKind};
use crate::limits::*;
use crate::section::Limits;
use crate::units::{Bytes, DurationNs};

table! {
    /// The keys of `[compete]`.
    COMPETE: Compete = "compete";

    KIND: Choice<CompeteKind> = key(
        "kind",
        Choice::of(|| CompeteKind::ALL.map(|it| (it.name(), it)).to_vec()),
        "`cpu` is processes that are busy and idle in turn; `gc` a heap whose elements come and \
         go, for a collector",
    ), |it| text(it.kind.name());

    OCCUPANCY: Share = key(
        "occupancy",
        Share { default: 0.6 },
        "the share of the processors that it holds",
    ).also("above 0"), |it| bare(it.occupancy);

    LEAD: Limits<DurationNs> = key(
        "lead",
        Limits::within(DurationNs(0), MAX_LEAD, DurationNs(1_000_000_000)).or(DurationNs(0)),
        "how long it works before the load begins",
    ).scaled(), |it| text(it.lead);

    PROCESSES: Limits<u64> = key(
        "processes",
        Limits::within(1, MAX_COMPETE_PROCESSES as u64, 4).or(4),
        "processes on each host; only for cpu",
    ).also("enough for its share"), |it| bare(it.processes);

    LIVE: Limits<Bytes> = key(
        "live",
        Limits::above_zero(MAX_HEAP, Bytes(384 << 20)).or(Bytes(384 << 20)),
        "the reachable part of the heap; only for gc",
    ).also("less than `jvm.heap`"), |it| text(it.live);
}
