//! Every bound a plan is held to, with its reason.

use crate::units::{BitRate, Bytes, DurationNs, RateHz};

/// One day in nanoseconds.
const DAY_NS: u64 = 86_400 * 1_000_000_000;

/// Longest text of a plan: a plan is written by hand, and this is a thousand screens.
pub const MAX_PLAN_BYTES: usize = 1 << 20;
/// Longest name of a plan, which names directories.
pub const MAX_NAME_CHARS: usize = 64;
/// Longest tag of a plan.
pub const MAX_TAG_CHARS: usize = 256;
/// Largest seed: TOML's integers are signed.
pub const MAX_SEED: u64 = i64::MAX.unsigned_abs();
/// Longest measured time of a cell: past a year it is a unit mistaken.
pub const MAX_DURATION: DurationNs = DurationNs(400 * DAY_NS);
/// Longest warmup.
pub const MAX_WARMUP: DurationNs = DurationNs(DAY_NS);
/// Most repeats of the matrix.
pub const MAX_REPEAT: u16 = 1_000;
/// Most cells of a matrix: at a second each, close to three hours.
pub const MAX_CELLS: usize = 10_000;
/// Most steps of a template of a service: a thousand for each process that there may be, ten times.
pub const MAX_TEMPLATE_STEPS: u64 = 1_000_000;
/// Most agents of a mesh: each is a process of this machine.
pub const MAX_AGENTS: u16 = 1_000;
/// Shortest period of a mesh: below it the pacing itself would be measured.
pub const MIN_MESH_PERIOD: DurationNs = DurationNs(1_000_000);
/// Longest period of a mesh.
pub const MAX_MESH_PERIOD: DurationNs = DurationNs(DAY_NS);
/// Longest timeout of a request.
pub const MAX_TIMEOUT: DurationNs = DurationNs(3_600 * 1_000_000_000);
/// Most copies an agent may await at once.
pub const MAX_MESH_IN_FLIGHT: u32 = 1_000_000;
/// Most requests a drive may await at once.
pub const MAX_DRIVE_IN_FLIGHT: u32 = 10_000_000;
/// Most measured requests of a cell that a plan may ask for.
pub const MAX_REQUESTS: u64 = 1_000_000_000_000;
/// Largest body over UDP: one datagram holds it with its header.
pub const MAX_UDP_BODY: Bytes = Bytes(65_000);
/// Largest body over TCP.
pub const MAX_TCP_BODY: Bytes = Bytes(16_000_000);
/// What the disk workload writes with each body: the 44 bytes of a reply's header.
pub const DISK_RECORD_EXTRA: Bytes = Bytes(44);
/// Largest ring file of an agent.
pub const MAX_DISK_FILE: Bytes = Bytes(64 << 30);
/// Most clients of a drive.
pub const MAX_CLIENTS: u32 = 100_000;
/// Most processes of a drive.
pub const MAX_DRIVE_PROCESSES: u16 = 64;
/// Highest rate of a drive: an arrival each 100 ns, finer than any sender keeps.
pub const MAX_RATE: RateHz = RateHz(10e6);
/// Longest mean think time of a closed loop.
pub const MAX_THINK: DurationNs = DurationNs(DAY_NS);
/// Shortest period of the probe: below it the probe loads what it watches.
pub const MIN_PROBE_PERIOD: DurationNs = DurationNs(10_000_000);
/// Longest period of the probe.
pub const MAX_PROBE_PERIOD: DurationNs = DurationNs(600 * 1_000_000_000);
/// Least message of a stream: its header.
pub const MIN_STREAM_MESSAGE: Bytes = Bytes(32);
/// Longest body of a request by HTTP: it stands in the plan.
pub const MAX_HTTP_BODY: Bytes = Bytes(500_000);
/// Longest message of a stream.
pub const MAX_STREAM_MESSAGE: Bytes = Bytes(16_000_000);
/// Most readers of a stream: each is a host, and each message goes to all.
pub const MAX_READERS: u16 = 8;
/// Rarest sample of a stream's latency.
pub const MAX_SAMPLE: u32 = 1_000_000_000;
/// Slowest and fastest link: slower, a message takes minutes; faster than the kernel shapes.
pub const MIN_LINK: BitRate = BitRate(64_000);
/// See [`MIN_LINK`].
pub const MAX_LINK: BitRate = BitRate(100_000_000_000);
/// Smallest packet of a link: the minimum that IPv6 requires.
pub const MIN_MTU: u16 = 1_280;
/// Largest packet of a link.
pub const MAX_MTU: u16 = 65_535;
/// Least and greatest scale of a run's times.
pub const MIN_SCALE: f64 = 0.000_1;
/// See [`MIN_SCALE`].
pub const MAX_SCALE: f64 = 1_000.0;
/// Longest lead of a competing load.
pub const MAX_LEAD: DurationNs = DurationNs(DAY_NS);
/// Most processes of a competing load, on each host.
pub const MAX_COMPETE_PROCESSES: u16 = 256;
/// Largest heap of a competing load.
pub const MAX_HEAP: Bytes = Bytes(1 << 40);
/// Most faults of a plan.
pub const MAX_FAULTS: usize = 1_000;
/// Most hosts that a run reaches.
pub const MAX_REACHED_HOSTS: usize = 64;
/// Most times of one fault.
pub const MAX_FAULT_TIMES: usize = 100_000;
/// Shortest time from one fault to the next.
pub const MIN_FAULT_PERIOD: DurationNs = DurationNs(10_000_000);
/// Least quota: a millisecond of each tenth of a second, the least that the kernel takes.
pub const MIN_QUOTA_CORES: f64 = 0.01;
/// How often a quota is given anew, where a plan does not say.
pub const DEFAULT_QUOTA_PERIOD: DurationNs = DurationNs(100_000_000);
/// Shortest and longest period of a quota: the kernel takes no others.
pub const MIN_QUOTA_PERIOD: DurationNs = DurationNs(1_000_000);
/// See [`MIN_QUOTA_PERIOD`].
pub const MAX_QUOTA_PERIOD: DurationNs = DurationNs(1_000_000_000);
/// Least CPU time of a period that the kernel takes.
pub const MIN_QUOTA_TIME: DurationNs = DurationNs(1_000_000);
/// Largest quota.
pub const MAX_QUOTA_CORES: f64 = 1_024.0;
/// Longest delay of a way: beyond it every connection is lost.
pub const MAX_NETWORK_DELAY: DurationNs = DurationNs(60 * 1_000_000_000);
/// Most threads of a busy neighbour.
pub const MAX_BUSY_THREADS: u16 = 1_024;
/// Highest CPU number.
pub const MAX_CPU: u16 = 8_191;
/// Most keys of a store. The state of each key takes 16 bytes.
pub const MAX_KEYS: u64 = 100_000_000;
/// Most requests that a closed client of a store has open at once.
pub const MAX_PIPELINE: u32 = 10_000;
/// Most tries after the first.
pub const MAX_RETRIES: u8 = 100;
/// Most processes, and most steps, of a service.
pub const MAX_SERVICE_PROCESSES: usize = 100;
/// Most times of a replay: 8 bytes each.
pub const MAX_TIMES: usize = 100_000_000;
/// Largest index of dispersion: bursts longer than any run.
pub const MAX_DISPERSION: f64 = 1e9;
