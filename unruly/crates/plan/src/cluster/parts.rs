//! Who takes part, and where.

use std::net::SocketAddr;

use super::{
    CLIENT, CLUSTER, CONTROLLER, ClusterEtcd, ClusterLevel, ClusterServer, ClusterTransport,
    ROUTER, SERVER,
};
use crate::error::PlanError;
use crate::limits::MAX_TIMEOUT;
use crate::section::{Limits, Section};
use crate::units::{Bytes, DurationNs};

/// Servers of a cluster: as many as its members may be.
const MAX_SERVERS: usize = 64;
/// Those that decide in turn.
const MAX_CONTROLLERS: usize = 8;
/// Copies of a key.
const MAX_REPLICAS: u64 = 8;
/// Threads of a server.
const MAX_SHARDS: u64 = 16;
/// What takes longer is better slept for.
const MAX_SPIN: DurationNs = DurationNs(10_000_000);
/// Clients busy-poll for this long by default.
const CLIENT_SPIN: DurationNs = DurationNs(50_000);
/// Memory of a server.
const MAX_MEMORY: Bytes = Bytes(1 << 44);

const ETCD: &str = "etcd = \"etcd://10.0.0.1,10.0.0.2,10.0.0.3/shop\"";

/// What parts may be reached by, and how nobody else may.
pub(super) struct Reach {
    pub(super) key: Option<String>,
    pub(super) insecure: bool,
}

impl Reach {
    pub(super) fn read(top: &Section<'_>) -> Result<Self, PlanError> {
        let (mut key, mut insecure) = (None, false);
        if let Some(section) = top.child("cluster", "[cluster]")? {
            key = not_empty(&section, "key", "key = \"cluster.key\"")?;
            insecure = section.switch("insecure", false)?;
        }
        Ok(Self { key, insecure })
    }

    pub(super) fn address(
        &self,
        section: &Section<'_>,
        key: &str,
        example: &str,
    ) -> Result<SocketAddr, PlanError> {
        let hint = format!("{key} = {example:?}");
        let Some(text) = section.text(key, &hint)? else {
            return Err(section.missing(key, "must be an address with a port", hint));
        };
        self.checked(section, key, text, hint)
    }

    /// One address, or a list of several.
    fn addresses(
        &self,
        section: &Section<'_>,
        key: &str,
        example: &str,
    ) -> Result<Vec<SocketAddr>, PlanError> {
        if !section.is_list(key) {
            return Ok(vec![self.address(section, key, example)?]);
        }
        let hint = format!("{key} = [{example:?}]");
        let mut found = Vec::new();
        for value in section.list(key, &hint)?.unwrap_or_default() {
            let text = value.as_str().unwrap_or_default();
            let address = self.checked(section, key, text, hint.clone())?;
            if found.contains(&address) {
                return Err(section.refuse(key, "must name each address once", hint));
            }
            found.push(address);
        }
        if found.len() > MAX_CONTROLLERS {
            return Err(section.refuse(key, "must have at most eight addresses", hint));
        }
        Ok(found)
    }

    fn checked(
        &self,
        section: &Section<'_>,
        key: &str,
        text: &str,
        hint: String,
    ) -> Result<SocketAddr, PlanError> {
        let Ok(address) = text.parse::<SocketAddr>() else {
            return Err(section.refuse(key, "must be an address with a port", hint));
        };
        let SocketAddr::V4(four) = address else {
            return Err(section.refuse(key, "must be an IPv4 address", hint));
        };
        if four.ip().is_unspecified() {
            let wanted = "must be an address that the others reach it by";
            return Err(section.refuse(key, wanted, hint));
        }
        if !four.ip().is_loopback() && self.key.is_none() && !self.insecure {
            let wanted = "must be of 127.0.0.0/8: without a key nothing is encrypted and nobody has to say who they are";
            let hint = "[cluster] with key = \"cluster.key\" (flurry key prints one)";
            return Err(section.refuse(key, wanted, hint));
        }
        if four.port() == 0 {
            let wanted = "must name a port: the others have to find it";
            return Err(section.refuse(key, wanted, hint));
        }
        Ok(address)
    }
}

/// How long a part looks for what it waits for before it sleeps.
fn spin(section: &Section<'_>, default: DurationNs) -> Result<DurationNs, PlanError> {
    let limits = Limits {
        default: Some(default),
        least: Some(DurationNs(0)),
        most: MAX_SPIN,
        example: DurationNs(50_000),
    };
    section.number("spin", &limits)
}

pub(super) fn server_sections<'a>(top: &Section<'a>) -> Result<Vec<Section<'a>>, PlanError> {
    top.tables("server", "[[server]]", MAX_SERVERS, "make several clusters")
}

pub(super) fn servers(top: &Section<'_>, reach: &Reach) -> Result<Vec<ClusterServer>, PlanError> {
    let sections = server_sections(top)?;
    if sections.is_empty() {
        let hint = "[[server]] with id = 1 and listen = \"127.0.0.1:7701\"";
        return Err(top.missing("[[server]]", "must hold at least one", hint.to_owned()));
    }
    let mut servers: Vec<ClusterServer> = Vec::new();
    for section in &sections {
        section.check_keys(SERVER)?;
        let id = Limits {
            default: None,
            least: Some(0),
            most: 65_534,
            example: 1,
        };
        let server = ClusterServer {
            id: section.whole("id", &id)?,
            listen: reach.address(section, "listen", "127.0.0.1:7701")?,
            disk: not_empty(section, "disk", "disk = \"records-1\"")?,
        };
        if servers.iter().any(|it| it.id == server.id) {
            return Err(section.refuse("id", "must be another server's", "give each its own"));
        }
        servers.push(server);
    }
    Ok(servers)
}

/// What is evicted from memory would be on disk still.
pub(super) fn no_disk_of_a_cache(
    top: &Section<'_>,
    servers: &[ClusterServer],
    evict: bool,
) -> Result<(), PlanError> {
    for (server, section) in servers.iter().zip(server_sections(top)?) {
        if evict && server.disk.is_some() {
            let wanted =
                "must be left out where values are evicted, since all of them must be in memory";
            return Err(section.refuse("disk", wanted, "evict = false"));
        }
    }
    Ok(())
}

/// What decides, and where it keeps what must outlive it.
pub(super) struct Deciders {
    pub(super) controllers: Vec<SocketAddr>,
    pub(super) directory: Option<String>,
    pub(super) etcd: Option<ClusterEtcd>,
}

impl Deciders {
    pub(super) fn read(top: &Section<'_>, reach: &Reach) -> Result<Self, PlanError> {
        let default = SocketAddr::from(([127, 0, 0, 1], 7700));
        let Some(section) = top.child("controller", "[controller]")? else {
            return Ok(Self {
                controllers: vec![default],
                directory: None,
                etcd: None,
            });
        };
        section.check_keys(CONTROLLER)?;
        let controllers = if section.has("listen") {
            reach.addresses(&section, "listen", "127.0.0.1:7700")?
        } else {
            vec![default]
        };
        let file = |key: &str| not_empty(&section, key, &format!("{key} = \"{key}\""));
        let directory = file("directory")?;
        let etcd = match not_empty(&section, "etcd", ETCD)? {
            Some(place) => Some(ClusterEtcd {
                place,
                authorities: file("etcd_ca")?,
                certificate: file("etcd_cert")?,
                key: file("etcd_key")?,
            }),
            None => None,
        };
        if etcd.is_some() && directory.is_some() {
            let wanted = "must be left out where the state is in etcd";
            return Err(section.refuse("directory", wanted, "keep one of directory and etcd"));
        }
        Ok(Self {
            controllers,
            directory,
            etcd,
        })
    }
}

pub(super) fn not_empty(
    section: &Section<'_>,
    key: &str,
    hint: &str,
) -> Result<Option<String>, PlanError> {
    let text = section.text(key, hint)?;
    if text.is_some_and(str::is_empty) {
        return Err(section.refuse(key, "must not be empty", hint));
    }
    Ok(text.map(str::to_owned))
}

pub(super) fn router(top: &Section<'_>, reach: &Reach) -> Result<Option<SocketAddr>, PlanError> {
    let Some(section) = top.child("router", "[router]")? else {
        return Ok(None);
    };
    section.check_keys(ROUTER)?;
    reach
        .address(&section, "listen", "127.0.0.1:7690")
        .map(Some)
}

/// Lease of the servers unless the file says otherwise.
const LEASE: DurationNs = DurationNs(1_000_000_000);

/// Bounds of a lease, as in Flurry itself.
const LEASE_MIN: DurationNs = DurationNs(100_000_000);
const LEASE_MAX: DurationNs = DurationNs(60_000_000_000);

/// How a cluster keeps what it is given.
pub(super) struct Shape {
    pub(super) replicas: u8,
    pub(super) shards: u8,
    pub(super) lease: DurationNs,
    pub(super) memory: Bytes,
    pub(super) evict: bool,
    pub(super) stamps: bool,
    pub(super) spin: DurationNs,
}

impl Shape {
    pub(super) fn read(top: &Section<'_>, servers: &[ClusterServer]) -> Result<Self, PlanError> {
        let usual = u64::try_from(servers.len()).unwrap_or(u64::MAX).min(3);
        let Some(section) = top.child("cluster", "[cluster]")? else {
            return Ok(Self {
                replicas: u8::try_from(usual).unwrap_or(3),
                shards: 1,
                lease: LEASE,
                memory: Bytes(256_000_000),
                evict: false,
                stamps: true,
                spin: DurationNs(0),
            });
        };
        section.check_keys(CLUSTER)?;
        let whole = |default, most, example| Limits {
            default: Some(default),
            least: Some(1),
            most,
            example,
        };
        let replicas: u8 = section.whole("replicas", &whole(usual, MAX_REPLICAS, 3))?;
        if usize::from(replicas) > servers.len() {
            let wanted = format!("must be at most the {} servers", servers.len());
            return Err(section.refuse("replicas", wanted, "add a [[server]] for each"));
        }
        let lease = Limits {
            default: Some(LEASE),
            least: Some(LEASE_MIN),
            most: LEASE_MAX,
            example: LEASE,
        };
        let memory = Limits {
            default: Some(Bytes(256_000_000)),
            least: Some(Bytes(1_000_000)),
            most: MAX_MEMORY,
            example: Bytes(256_000_000),
        };
        Ok(Self {
            replicas,
            shards: section.whole("shards", &whole(1, MAX_SHARDS, 2))?,
            lease: section.number("lease", &lease)?,
            memory: section.number("memory", &memory)?,
            evict: section.switch("evict", false)?,
            stamps: section.switch("stamps", true)?,
            spin: spin(&section, DurationNs(0))?,
        })
    }
}

/// What clients do unless they say otherwise.
pub(super) struct Client {
    pub(super) level: ClusterLevel,
    pub(super) timeout: DurationNs,
    pub(super) transport: ClusterTransport,
    pub(super) spin: DurationNs,
}

/// Which replies to wait for: `level`, and `hedge` where it has a delay.
pub(crate) fn level(section: &Section<'_>) -> Result<ClusterLevel, PlanError> {
    let hedge = Limits {
        default: Some(DurationNs(1_000_000)),
        least: None,
        most: MAX_TIMEOUT,
        example: DurationNs(1_000_000),
    };
    let hedge = section.number("hedge", &hedge)?;
    let levels = [
        ("first", ClusterLevel::First),
        ("quorum", ClusterLevel::Quorum),
        ("all", ClusterLevel::All),
        ("hedge", ClusterLevel::Hedge(hedge)),
        ("auto", ClusterLevel::Auto),
        ("disk", ClusterLevel::Disk),
    ];
    let level = section.choice("level", &levels, Some(ClusterLevel::First))?;
    if section.has("hedge") && !matches!(level, ClusterLevel::Hedge(_)) {
        let wanted = "must be left out unless level is \"hedge\"";
        return Err(section.refuse("hedge", wanted, "level = \"hedge\""));
    }
    Ok(level)
}

impl Client {
    pub(super) fn read(top: &Section<'_>) -> Result<Self, PlanError> {
        let usual = DurationNs(2_000_000_000);
        let Some(section) = top.child("client", "[client]")? else {
            return Ok(Self {
                level: ClusterLevel::First,
                timeout: usual,
                transport: ClusterTransport::Udp,
                spin: CLIENT_SPIN,
            });
        };
        section.check_keys(CLIENT)?;
        let level = level(&section)?;
        let timeout = Limits {
            default: Some(usual),
            least: None,
            most: MAX_TIMEOUT,
            example: usual,
        };
        let transports = [
            ("udp", ClusterTransport::Udp),
            ("tcp", ClusterTransport::Tcp),
        ];
        Ok(Self {
            level,
            timeout: section.number("timeout", &timeout)?,
            transport: section.choice("transport", &transports, Some(ClusterTransport::Udp))?,
            spin: spin(&section, CLIENT_SPIN)?,
        })
    }
}
