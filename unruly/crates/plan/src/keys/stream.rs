//! The keys of `[stream]`.

use super::key::{Key, Row, Table, bare, key, table, text};
use super::kinds::Choice;
use crate::limits::*;
use crate::section::Limits;
use crate::stream::{Protocol, Scheduling, Stream};
use crate::units::{BitRate, Bytes, DurationNs};

table! {
    /// The keys of `[stream]`.
    STREAM: Stream = "stream";

    PROTOCOL: Choice<Protocol> = key(
        "protocol",
        Choice::of(|| Protocol::ALL.map(|it| (it.name(), it)).to_vec()),
        "how messages travel; see [streams](streams.md)",
    ), |it| text(it.protocol.name());

    READERS: Limits<u64> = key(
        "readers",
        Limits::within(1, MAX_READERS as u64, 2).or(1),
        "how many readers there are; each reads every message, on a host of its own",
    ).also("more than 1 only for corosync-cpg and jgroups"), |it| bare(it.readers);

    MESSAGE: Limits<Bytes> = key(
        "message",
        Limits::within(MIN_STREAM_MESSAGE, MAX_STREAM_MESSAGE, Bytes(2_000)).or(Bytes(2_000)),
        "length of a message",
    ).also(
        "at most 65KB for udp, 100KB for kcp, 200KB for sctp and kernel-sctp, 1MB for enet, \
         corosync-cpg, jgroups and aeron",
    ), |it| text(it.message);

    SAMPLE: Limits<u64> = key(
        "sample",
        Limits::within(1, MAX_SAMPLE as u64, 100).or(100),
        "one message in this many carries a stamp, and its latency is recorded",
    ), |it| bare(it.sample);

    LINK: Limits<BitRate> = key(
        "link",
        Limits::within(MIN_LINK, MAX_LINK, BitRate(1_000_000_000)),
        "the rate of the link, by a token bucket at each end with a queue of 50 ms; `\"none\"` \
         shows the protocol's own ceiling",
    ).default_is("`\"none\"`").also("only between namespaces"), |it| match it.link {
        Some(link) => text(link),
        None => text("none"),
    };

    MTU: Limits<u64> = key(
        "mtu",
        Limits::within(MIN_MTU as u64, MAX_MTU as u64, 1_500).or(1_500),
        "largest packet of the link between namespaces",
    ), |it| bare(it.mtu);

    WIND_DOWN: Limits<DurationNs> = key(
        "wind_down",
        Limits::within(DurationNs(0), MAX_WARMUP, DurationNs(1_000_000_000)).or(DurationNs(0)),
        "traffic after the measured time",
    ).scaled(), |it| text(it.wind_down);

    SCHEDULING: Choice<Scheduling> = key(
        "scheduling",
        Choice::of(|| Scheduling::WORDS.to_vec()).or(Scheduling::Normal),
        "the scheduler's class of both ends, where the host allows it; where not, the run \
         reports it and continues",
    ), |it| text(it.scheduling.name());
}
