//! What a plan says, as types. Deserialising one does not check it; [`Plan::parse`] does.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::arrivals::Arrivals;
use crate::compete::Compete;
use crate::fault::Fault;
use crate::goodput::Goodput;
use crate::host::ReachedHost;
use crate::jvm::{Jvm, Runtime};
use crate::ramp::Ramp;
use crate::slo::Slo;
use crate::store::Store;
use crate::stream::{Scheduling, Stream};
use crate::tap::Tap;
use crate::units::{Bytes, DurationNs};
use crate::until::Until;

/// A run, decided before it starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Name of the plan; fit for a directory.
    pub name: String,
    /// From which all that is random in the run follows.
    pub seed: u64,
    /// A word of the author's, carried along.
    pub tag: String,
    /// How long, how often and where.
    pub run: Run,
    /// What is sent.
    pub load: Load,
    /// What competes with it for the processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compete: Option<Compete>,
    /// The JVMs that the run starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jvm: Option<Jvm>,
    /// The probe of the host, unless it is off.
    pub probe: Option<Probe>,
    /// The tap, if the run has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tap: Option<Tap>,
    /// Other hosts on which the processes of the load run; none for all on this host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reached: Vec<ReachedHost>,
    /// The faults during the measurement.
    pub faults: Vec<Fault>,
    /// CPUs which processes are pinned to, by process.
    pub pins: BTreeMap<String, Vec<u16>>,
    /// Cores whose time each process is given at most, by process.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub quotas: BTreeMap<String, f64>,
    /// How often that time is given anew.
    #[serde(default = "quota_period", skip_serializing_if = "is_quota_period")]
    pub quota_period: DurationNs,
    /// The parameters of the service that the run starts, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub service: BTreeMap<String, Setting>,
    /// What is varied; empty for a plan of one cell.
    pub matrix: Vec<Factor>,
}

/// The value of a parameter of a service, as the plan writes it. Only the file of the service knows
/// which values it may have, so that [`crate::ServiceFile::with`] reads it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Setting {
    /// The number or word, without quotes.
    pub value: String,
    /// Where the plan has it.
    pub place: Place,
}

impl Setting {
    /// Returns the value as TOML has it: a number bare, and anything else in quotes.
    pub(crate) fn literal(&self) -> String {
        let same = |number: Option<String>| number.is_some_and(|it| it == self.value);
        let whole = self.value.parse::<i64>().ok().map(|it| it.to_string());
        let real = self.value.parse::<f64>().ok().map(|it| it.to_string());
        if same(whole) || same(real) && self.value.contains('.') {
            self.value.clone()
        } else {
            crate::keys::key::quoted(&self.value)
        }
    }
}

impl From<String> for Setting {
    fn from(value: String) -> Self {
        Self {
            value,
            place: Place::default(),
        }
    }
}

impl From<Setting> for String {
    fn from(setting: Setting) -> Self {
        setting.value
    }
}

/// The file and line of a value, for messages. All places are equal: a plan is the same wherever
/// its lines are.
#[derive(Clone, Debug, Default)]
pub struct Place(pub String);

impl PartialEq for Place {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// How long, how often and where.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Measured time of a cell; the warmup comes before it and is additional.
    pub duration: DurationNs,
    /// Time under load before measurement.
    pub warmup: DurationNs,
    /// How often each cell is run.
    pub repeat: u16,
    /// What stands for a host.
    pub hosts: Hosts,
    /// The address of this host at which the hosts of the plan reach what the run starts here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<Ipv4Addr>,
    /// A cell ends when so much is known, if that is before its duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Until>,
    /// Targets that the run is held to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slo: Vec<Slo>,
    /// What makes a request a good one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput: Option<Goodput>,
}

/// What stands for a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hosts {
    /// Processes on the loopback interface.
    Processes,
    /// Network namespaces of their own.
    Namespaces,
}

impl Hosts {
    /// All of them.
    pub(crate) const ALL: [Self; 2] = [Self::Processes, Self::Namespaces];

    /// The name in plans.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Processes => "processes",
            Self::Namespaces => "namespaces",
        }
    }
}

/// What is sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// Agents which call each other in groups.
    Mesh(Mesh),
    /// Clients which call one server.
    Drive(Drive),
    /// A writer, and who reads what it writes.
    Stream(Stream),
}

/// Agents which call each other in groups: every period each agent sends one request, of the next
/// workload in turn, as a copy to every member of its group, itself included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mesh {
    /// Number of agents, `agent-0` and on.
    pub agents: u16,
    /// Sizes of groups; see [`crate::groups`].
    pub groups: Vec<u16>,
    /// Time from one round to the next.
    pub period: DurationNs,
    /// Length of an epoch, after which the groups are shuffled anew.
    pub regroup: DurationNs,
    /// What the requests ask, in turn: one workload a period.
    pub workloads: Vec<Workload>,
    /// How copies travel.
    pub transport: Transport,
    /// What the agents run on.
    pub runtime: Runtime,
    /// How long a reply is awaited.
    pub timeout: DurationNs,
    /// Most copies an agent awaits at once.
    pub in_flight: u32,
    /// Length of a body, for the workloads which have one.
    pub body: Bytes,
    /// Size of the ring file each agent writes bodies to.
    pub disk_file: Bytes,
    /// First TCP or UDP port: agent i listens on `port + i`; ephemeral ports when absent.
    pub port: Option<u16>,
}

/// What the receiver of a copy is put through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Nothing: a header there and back.
    Null,
    /// A hash of the body.
    Crypto,
    /// A durable write of the body.
    Disk,
    /// The body on the wire.
    Network,
    /// All three.
    Mixed,
}

impl Workload {
    /// Every workload, in the order of the letters `"A"` to `"E"`.
    pub const ALL: [Self; 5] = [
        Self::Null,
        Self::Crypto,
        Self::Disk,
        Self::Network,
        Self::Mixed,
    ];

    /// The name in plans and rows.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Crypto => "crypto",
            Self::Disk => "disk",
            Self::Network => "network",
            Self::Mixed => "mixed",
        }
    }

    /// The flags on the wire: 1 is crypto, 2 disk, 4 network.
    #[must_use]
    pub const fn flags(self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Crypto => 1,
            Self::Disk => 2,
            Self::Network => 4,
            Self::Mixed => 7,
        }
    }
}

/// How bytes travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// A connection between each two.
    Tcp,
    /// Datagrams.
    Udp,
}

impl Transport {
    /// All of them.
    pub(crate) const ALL: [Self; 2] = [Self::Tcp, Self::Udp];

    /// The name in plans and rows.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// Clients which call one server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drive {
    /// How requests travel.
    pub transport: Transport,
    /// The server, `host:port`; when absent the run starts an echo server of its own, `echo-0`.
    pub address: Option<String>,
    /// Number of clients.
    pub clients: u32,
    /// Processes that they are dealt among, `drive-0` and on.
    #[serde(default = "one")]
    pub processes: u16,
    /// When requests are due; a rate is that of all clients together.
    pub arrivals: Arrivals,
    /// The stages of a load that changes; levels are rates, or clients of a closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ramp: Option<Ramp>,
    /// The file of a replay: a time in seconds on each line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<String>,
    /// Length of a body, beyond the header of 28 bytes.
    pub payload: Bytes,
    /// How long a reply is awaited.
    pub timeout: DurationNs,
    /// Most requests awaited at once.
    pub in_flight: u32,
    /// How the kernel's scheduler treats its processes.
    #[serde(default)]
    pub scheduling: Scheduling,
    /// Number of measured requests after which a cell ends, if its duration is not over before.
    #[serde(default)]
    pub requests: Option<u64>,
    /// The middleware system that is called: our own echo server, or that of `store`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The store that is driven instead of an echo server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<Box<Store>>,
}

/// The probe which watches the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// Time from one reading to the next.
    pub period: DurationNs,
}

/// One thing which is varied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Factor {
    /// The key of the plan it overrides, such as `mesh.transport`.
    pub path: String,
    /// The values it takes, as a plan would write them.
    pub values: Vec<String>,
    /// Where the plan has it.
    #[serde(skip)]
    pub place: Place,
}

impl Load {
    /// Whether the run starts a store for it, whose processes are named in a file of their own. A
    /// plan that calls a middleware system may call another one in its next cell.
    #[must_use]
    pub fn has_service(&self) -> bool {
        let Self::Drive(drive) = self else {
            return false;
        };
        if drive.system.is_some() {
            return true;
        }
        let store = drive.store.as_ref();
        store.is_some_and(|store| store.url.service().is_some())
    }

    /// Whether the run starts its own echo server for it.
    #[must_use]
    pub const fn has_echo(&self) -> bool {
        matches!(
            self,
            Self::Drive(Drive {
                address: None,
                store: None,
                ..
            })
        )
    }

    /// The names of the processes this load consists of.
    #[must_use]
    pub fn processes(&self) -> Vec<String> {
        match self {
            Self::Mesh(mesh) => (0..mesh.agents)
                .map(|agent| format!("agent-{agent}"))
                .collect(),
            Self::Drive(Drive {
                address: None,
                store: None,
                processes,
                ..
            }) => [clients(*processes), vec!["echo-0".into()]].concat(),
            Self::Drive(drive) => clients(drive.processes),
            Self::Stream(stream) => {
                let readers = (0..stream.readers).map(|number| format!("reader-{number}"));
                std::iter::once("writer-0".into()).chain(readers).collect()
            }
        }
    }
}

/// The names of the processes of a drive.
fn clients(processes: u16) -> Vec<String> {
    let name = |number| format!("drive-{number}");
    (0..processes).map(name).collect()
}

const fn quota_period() -> DurationNs {
    crate::limits::DEFAULT_QUOTA_PERIOD
}

fn is_quota_period(period: &DurationNs) -> bool {
    *period == quota_period()
}

const fn one() -> u16 {
    1
}
