//! A file that describes a Flurry cluster: its parts, their addresses, and its planned faults.

mod gateways;
mod parts;
mod places;
mod trouble;

use std::net::SocketAddr;
use std::ops::RangeInclusive;

use crate::error::PlanError;
use crate::limits::MAX_SEED;
use crate::section::{Limits, Source};
use crate::units::{Bytes, DurationNs};
pub(crate) use parts::level;
use parts::{Client, Deciders, Reach, Shape, no_disk_of_a_cache, router, servers};
use places::distinct;
use trouble::Parts;

const MANUAL: &str = "see flurry/docs/configuration.md";

const TOP: &[&str] = &[
    "cluster",
    "controller",
    "server",
    "router",
    "gateway",
    "client",
    "seed",
    "fault",
    "pause",
];
const CLUSTER: &[&str] = &[
    "replicas", "shards", "lease", "memory", "evict", "stamps", "spin", "key", "insecure",
];
const CONTROLLER: &[&str] = &[
    "listen",
    "directory",
    "etcd",
    "etcd_ca",
    "etcd_cert",
    "etcd_key",
];
const SERVER: &[&str] = &["id", "listen", "disk"];
const ROUTER: &[&str] = &["listen"];
const GATEWAY: &[&str] = &[
    "listen",
    "slots",
    "users",
    "tls_cert",
    "tls_key",
    "tls_client_ca",
];
const CLIENT: &[&str] = &["level", "hedge", "timeout", "transport", "spin"];
const FAULT: &[&str] = &[
    "part",
    "peer",
    "direction",
    "after",
    "duration",
    "isolate",
    "loss",
    "duplicate",
    "corrupt",
    "reorder",
    "delay",
    "delay_to",
    "delay_shape",
];
const PAUSE: &[&str] = &["part", "every", "duration"];

/// A part of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Who decides.
    Controller,
    /// A data server, by its number.
    Server(u16),
    /// A router of its own.
    Router,
    /// Every client.
    Client,
}

/// Which replies a client waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterLevel {
    /// The first correct one.
    First,
    /// A majority.
    Quorum,
    /// All.
    All,
    /// One replica is asked first, the others after this long.
    Hedge(DurationNs),
    /// What the load suggests.
    Auto,
    /// A majority, each from its disk.
    Disk,
}

/// How messages travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterTransport {
    /// Datagrams.
    Udp,
    /// Connections.
    Tcp,
}

/// A data server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterServer {
    /// Its number, which outlives its process.
    pub id: u16,
    /// Where its first shard listens, the others behind it.
    pub listen: SocketAddr,
    /// The directory where it keeps its records too.
    pub disk: Option<String>,
}

/// Where clients of Redis come in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterGateway {
    /// Where it listens for them.
    pub listen: SocketAddr,
    /// The slots that it serves; the gateways of a cluster serve each of them once.
    pub slots: RangeInclusive<u16>,
    /// The file of who may come in; without it everybody may.
    pub users: Option<String>,
    /// The file of its certificate with the chain.
    pub tls_cert: Option<String>,
    /// The file of that certificate's key.
    pub tls_key: Option<String>,
    /// The file of the authorities of which a client must show a certificate.
    pub tls_client_ca: Option<String>,
}

/// Where controllers keep what must outlive them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterEtcd {
    /// `etcd://HOST:PORT,HOST:PORT/NAME`, or `etcds://` by TLS; not looked at.
    pub place: String,
    /// The file of who may have signed its certificate.
    pub authorities: Option<String>,
    /// The file of the certificate that is shown to it.
    pub certificate: Option<String>,
    /// The file of that certificate's key.
    pub key: Option<String>,
}

/// How long messages are held back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ClusterDelay {
    /// Always so long.
    Fixed(DurationNs),
    /// Anything between.
    Uniform(DurationNs, DurationNs),
    /// At least so long, with a tail of this shape.
    Pareto(DurationNs, f64),
}

/// Which way messages go, as the part sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterDirection {
    /// Those it sends.
    Send,
    /// Those it receives.
    Receive,
}

/// What happens to the messages of a part. Shares are from 0 to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterFault {
    /// Whose messages.
    pub part: Part,
    /// Those to and from this part; `None` is everybody.
    pub peer: Option<Part>,
    /// Which way; `None` is both.
    pub direction: Option<ClusterDirection>,
    /// Time from the part's start to the fault.
    pub after: DurationNs,
    /// Duration of the fault. `None` means without end.
    pub duration: Option<DurationNs>,
    /// The share of messages that is lost.
    pub loss: f64,
    /// The share that comes twice.
    pub duplicate: f64,
    /// The share that is damaged.
    pub corrupt: f64,
    /// The share that is overtaken.
    pub reorder: f64,
    /// How long all take.
    pub delay: Option<ClusterDelay>,
}

/// A part that does nothing for a while, again and again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterPause {
    /// Which.
    pub part: Part,
    /// From one beginning to the next.
    pub every: DurationNs,
    /// How long.
    pub duration: DurationNs,
}

/// A cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    /// Where the controllers listen; one of them decides.
    pub controllers: Vec<SocketAddr>,
    /// Where the only one keeps its state.
    pub directory: Option<String>,
    /// Where several keep their state.
    pub etcd: Option<ClusterEtcd>,
    /// The servers.
    pub servers: Vec<ClusterServer>,
    /// Copies of each key.
    pub replicas: u8,
    /// Threads of each server.
    pub shards: u8,
    /// Silence after which a server is counted out; fixed with the first start of a cluster.
    pub lease: DurationNs,
    /// Memory of each server for records.
    pub memory: Bytes,
    /// When it is full: evict, instead of refusing.
    pub evict: bool,
    /// True if replies carry the times when the request arrived and when the reply left.
    pub stamps: bool,
    /// How long servers busy-poll for the next message before they sleep.
    pub spin: DurationNs,
    /// The address of a separate router, if there is one.
    pub router: Option<SocketAddr>,
    /// Where clients of Redis come in.
    pub gateways: Vec<ClusterGateway>,
    /// What clients wait for, unless they say otherwise.
    pub level: ClusterLevel,
    /// How long clients wait, unless they say otherwise.
    pub timeout: DurationNs,
    /// How clients talk.
    pub transport: ClusterTransport,
    /// How long clients look for an answer before they sleep.
    pub client_spin: DurationNs,
    /// What chance is drawn from.
    pub seed: u64,
    /// The file of the key that messages are sealed with.
    pub key: Option<String>,
    /// Others may reach the parts without a key too.
    pub insecure: bool,
    /// What happens to messages.
    pub faults: Vec<ClusterFault>,
    /// What happens to parts.
    pub pauses: Vec<ClusterPause>,
}

impl Cluster {
    /// Reads a cluster and checks it.
    ///
    /// `path_for_messages` is what errors call the text; nothing is opened.
    ///
    /// # Errors
    ///
    /// What is wrong first, with its line: text that is not TOML, a key that is unknown or missing,
    /// a value of the wrong type or out of bounds, fewer servers than replicas, two parts with one
    /// address, or a fault of a part that is not there.
    pub fn parse(path_for_messages: &str, text: &str) -> Result<Self, PlanError> {
        let source = Source {
            path: path_for_messages,
            text,
        };
        let document = source.document(MANUAL)?;
        let top = source.top(&document, "the cluster");
        top.check_keys(TOP)?;
        let reach = Reach::read(&top)?;
        let servers = servers(&top, &reach)?;
        let shape = Shape::read(&top, &servers)?;
        no_disk_of_a_cache(&top, &servers, shape.evict)?;
        let deciders = Deciders::read(&top, &reach)?;
        let router = router(&top, &reach)?;
        let gateways = gateways::gateways(&top, &reach)?;
        let shards = (&servers[..], shape.shards);
        distinct(&top, &deciders.controllers, router, &gateways, shards)?;
        let client = Client::read(&top)?;
        let parts = Parts {
            servers: &servers,
            router: router.is_some(),
        };
        let seed = Limits {
            default: Some(1),
            least: Some(0),
            most: MAX_SEED,
            example: 1,
        };
        Ok(Self {
            seed: top.number("seed", &seed)?,
            faults: parts.faults(&top)?,
            pauses: parts.pauses(&top)?,
            key: reach.key,
            insecure: reach.insecure,
            controllers: deciders.controllers,
            directory: deciders.directory,
            etcd: deciders.etcd,
            replicas: shape.replicas,
            shards: shape.shards,
            lease: shape.lease,
            memory: shape.memory,
            evict: shape.evict,
            stamps: shape.stamps,
            spin: shape.spin,
            router,
            gateways,
            level: client.level,
            timeout: client.timeout,
            transport: client.transport,
            client_spin: client.spin,
            servers,
        })
    }
}

/// Every key that a cluster may have, as `key` or `table.key`, in the order of the manual.
#[must_use]
pub fn known_cluster_keys() -> Vec<String> {
    let tables = [
        ("cluster", CLUSTER),
        ("controller", CONTROLLER),
        ("server", SERVER),
        ("router", ROUTER),
        ("gateway", GATEWAY),
        ("client", CLIENT),
        ("fault", FAULT),
        ("pause", PAUSE),
    ];
    let inner = tables
        .iter()
        .flat_map(|(table, keys)| keys.iter().map(move |key| format!("{table}.{key}")));
    std::iter::once("seed".to_owned()).chain(inner).collect()
}
