//! The keys of `[mesh]`.

use super::key::{Key, Row, Table, bare, key, list, quoted, table, text};
use super::kinds::{Choice, List};
use crate::jvm::Runtime;
use crate::limits::*;
use crate::model::{Mesh, Transport, Workload};
use crate::section::Limits;
use crate::units::{Bytes, DurationNs};

const SECOND: DurationNs = DurationNs(1_000_000_000);
const DAY: DurationNs = DurationNs(86_400 * SECOND.0);

table! {
    /// The keys of `[mesh]`.
    MESH: Mesh = "mesh";

    AGENTS: Limits<u64> = key(
        "agents",
        Limits::within(1, MAX_AGENTS as u64, 7),
        "number of agents: `agent-0` and so on",
    ), |it| bare(it.agents);

    GROUPS: List = key(
        "groups",
        List { of: "integers", example: "[7]" },
        "sizes of groups",
    ).also("each 1 to `agents`; 1 to `agents` of them"), |it| bare(list(&it.groups));

    PERIOD: Limits<DurationNs> = key(
        "period",
        Limits::within(MIN_MESH_PERIOD, MAX_MESH_PERIOD, SECOND).or(SECOND),
        "from one request of an agent to its next",
    ), |it| text(it.period);

    REGROUP: Limits<DurationNs> = key(
        "regroup",
        Limits::above_zero(MAX_DURATION, DAY).or(DAY),
        "length of an epoch, after which groups are drawn anew",
    ).also("at least `period`"), |it| text(it.regroup);

    WORKLOADS: List = key(
        "workloads",
        List { of: "strings", example: "[\"null\", \"crypto\"]" },
        "what requests ask for, in turn",
    ).default_is("all five, in this order")
        .also("`null` `crypto` `disk` `network` `mixed`, or `A` to `E`; each once"), |it| {
        let names = it.workloads.iter().copied().map(Workload::name);
        bare(list(names.map(quoted)))
    };

    TRANSPORT: Choice<Transport> = key(
        "transport",
        Choice::of(|| Transport::ALL.map(|it| (it.name(), it)).to_vec()).or(Transport::Tcp),
        "how copies travel",
    ), |it| text(it.transport.name());

    RUNTIME: Choice<Runtime> = key(
        "runtime",
        Choice::of(|| Runtime::ALL.map(|it| (it.name(), it)).to_vec()).or(Runtime::Native),
        "what the agents run on: this program, a JVM each (`[jvm]` says how the run starts it), \
         or the two in turn, odd numbers on a JVM",
    ), |it| text(it.runtime.name());

    TIMEOUT: Limits<DurationNs> = key(
        "timeout",
        Limits::above_zero(MAX_TIMEOUT, SECOND).or(SECOND),
        "how long an agent waits for a reply",
    ), |it| text(it.timeout);

    IN_FLIGHT: Limits<u64> = key(
        "in_flight",
        Limits::within(1, MAX_MESH_IN_FLIGHT as u64, 4_096).or(4_096),
        "most copies that an agent awaits at once",
    ), |it| bare(it.in_flight);

    BODY: Limits<Bytes> = key(
        "body",
        Limits::within(Bytes(0), MAX_TCP_BODY, Bytes(50_000)).or(Bytes(50_000)),
        "length of a body, for workloads that have one",
    ).also("at most 65KB for udp"), |it| text(it.body);

    DISK_FILE: Limits<Bytes> = key(
        "disk_file",
        Limits::above_zero(MAX_DISK_FILE, Bytes(64 << 20)).or(Bytes(64 << 20)),
        "the ring file that each agent writes to: it bounds the use of the disk",
    ).also("at least `body` and 44 bytes"), |it| text(it.disk_file);

    PORT: Limits<u64> = key(
        "port",
        Limits::within(1, u16::MAX as u64, 7_000),
        "agent i listens on `port + i`",
    ).default_is("any free port").also("a port for each agent"), |it| it.port.and_then(bare);
}
