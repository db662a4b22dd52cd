//! Hosts of a run: this host, a network namespace for each agent, or hosts that are reached.
//!
//! The namespaces have no name: each lives in a file descriptor of the runner, and in its agents.
//! When the runner dies, however it dies, the descriptor closes, the agents see their input close,
//! and the kernel takes namespaces, veth pairs and bridge away. The bridge is in a namespace too,
//! so that nothing of a run is ever seen on the host.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, unshare};
use unruly_plan::{Hosts as HostKind, LOCAL_HOST, Load, Plan, ReachedHost, Stream};

/// The bridge's network; private to the run's namespaces.
const PREFIX: &str = "10.77";

const LOOPBACK: &str = "127.0.0.1";

/// Where the processes of a trial run.
#[derive(Debug)]
pub(super) enum Hosts {
    /// All on this host, over loopback.
    Local,
    /// A namespace each.
    Namespaces(Vec<Namespace>),
    /// This host, with the address at which others reach it, and after it those of the plan.
    Reached(Option<Ipv4Addr>, Vec<ReachedHost>),
}

/// A namespace that lives as long as this value, or a process in it.
#[derive(Debug)]
pub(super) struct Namespace {
    file: File,
}

impl Hosts {
    /// Makes the hosts of a plan.
    pub(super) fn of(plan: &Plan, agents: usize) -> Result<Self> {
        if !plan.reached.is_empty() {
            return Ok(Self::Reached(plan.run.listen, plan.reached.clone()));
        }
        let hosts = Self::new(plan.run.hosts, agents)?;
        if let (Load::Stream(stream), Self::Namespaces(namespaces)) = (&plan.load, &hosts) {
            let (ends, bridge) = namespaces.split_at(agents);
            for (number, namespace) in ends.iter().enumerate() {
                namespace.shape(stream)?;
                // A packet that is longer than the next device takes is dropped without a word.
                bridge[0].ip(&format!("link set port{number} mtu {}", stream.mtu))?;
            }
            bridge[0].ip(&format!("link set br0 mtu {}", stream.mtu))?;
        }
        Ok(hosts)
    }

    /// Creates the hosts for this number of agents.
    fn new(kind: HostKind, agents: usize) -> Result<Self> {
        if kind == HostKind::Processes {
            return Ok(Self::Local);
        }
        if !nix::unistd::geteuid().is_root() {
            bail!(
                "run.hosts: \"namespaces\" needs root, this is user {}; wanted root, or processes on loopback; \
                 hint: sudo, or hosts = \"processes\"",
                nix::unistd::geteuid()
            );
        }
        let bridge = Namespace::new()?;
        bridge.ip("link set lo up")?;
        bridge.ip("link add br0 type bridge")?;
        bridge.ip("link set br0 up")?;
        let mut namespaces = Vec::with_capacity(agents);
        for number in 0..agents {
            let namespace = Namespace::new()?;
            let inside = namespace.path();
            bridge.ip(&format!(
                "link add port{number} type veth peer name eth0 netns {inside}"
            ))?;
            bridge.ip(&format!("link set port{number} master br0 up"))?;
            namespace.ip("link set lo up")?;
            namespace.ip(&format!("addr add {}/16 dev eth0", address(number)))?;
            namespace.ip("link set eth0 up")?;
            namespaces.push(namespace);
        }
        // The bridge lives on in the ports of the agents' pairs; its descriptor is kept last.
        namespaces.push(bridge);
        Ok(Self::Namespaces(namespaces))
    }

    /// The host name of agent `number`.
    pub(super) fn name(&self, number: usize) -> String {
        match self {
            Self::Local => LOCAL_HOST.to_owned(),
            Self::Namespaces(_) => format!("host-{number}"),
            Self::Reached(..) => {
                let host = self.reached(number);
                host.map_or_else(|| LOCAL_HOST.to_owned(), |it| it.name.clone())
            }
        }
    }

    /// The number of the host of agent `number`, or of the end of a stream with that number.
    pub(super) fn of_agent(&self, number: usize) -> usize {
        match self {
            Self::Local => 0,
            Self::Namespaces(_) => number,
            Self::Reached(_, hosts) => 1 + number % hosts.len(),
        }
    }

    /// The number of the host of load generator `number`.
    pub(super) fn of_generator(&self, number: usize) -> usize {
        match self {
            Self::Local | Self::Namespaces(_) => 0,
            Self::Reached(_, hosts) => 1 + number % hosts.len(),
        }
    }

    /// How a host is reached; `None` for this one.
    pub(super) fn reached(&self, number: usize) -> Option<&ReachedHost> {
        match self {
            Self::Reached(_, hosts) => hosts.get(number.checked_sub(1)?),
            Self::Local | Self::Namespaces(_) => None,
        }
    }

    /// The address that processes of a host listen on.
    pub(super) fn listen(&self, number: usize) -> String {
        match self {
            Self::Local => LOOPBACK.to_owned(),
            Self::Namespaces(_) => address(number),
            Self::Reached(own, _) => {
                let own = own.map(|it| it.to_string());
                let address = match self.reached(number) {
                    Some(host) => host.address.clone(),
                    None => own,
                };
                match address {
                    None => LOOPBACK.to_owned(),
                    // An address of IPv6 stands before a port in brackets.
                    Some(address) if address.contains(':') => format!("[{address}]"),
                    Some(address) => address,
                }
            }
        }
    }

    /// Returns on how many hosts a load with this number of ends is.
    pub(super) fn of_ends(&self, ends: usize) -> usize {
        match self {
            Self::Local => 1,
            Self::Namespaces(_) => ends,
            Self::Reached(_, hosts) => ends.min(hosts.len()),
        }
    }

    /// What goes before the command of a process on the host of agent `number`.
    pub(super) fn prefix(&self, number: usize) -> Vec<String> {
        match self {
            Self::Local | Self::Reached(..) => Vec::new(),
            Self::Namespaces(namespaces) => namespaces.get(number).map_or_else(Vec::new, |it| {
                vec![
                    "nsenter".to_owned(),
                    format!("--net={}", it.path()),
                    "--".to_owned(),
                ]
            }),
        }
    }

    /// How many hosts there are.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Local => 1,
            Self::Namespaces(namespaces) => namespaces.len().saturating_sub(1),
            Self::Reached(_, hosts) => 1 + hosts.len(),
        }
    }
}

/// `10.77.x.y` of agent `number`.
fn address(number: usize) -> String {
    format!("{PREFIX}.{}.{}", number / 250, number % 250 + 1)
}

impl Namespace {
    /// A new network namespace: made by a thread of its own, which ends, and held by its file.
    fn new() -> Result<Self> {
        let made = std::thread::spawn(|| -> Result<File> {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Ok(File::open("/proc/thread-self/ns/net")?)
        });
        let file = made
            .join()
            .map_err(|_| anyhow::anyhow!("the thread panicked"))?;
        let file = file.context(
            "run.hosts: a network namespace cannot be made; wanted root with CAP_SYS_ADMIN; hint: hosts = \"processes\"",
        )?;
        Ok(Self { file })
    }

    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// Makes its link as slow as the plan says, and its packets as short.
    fn shape(&self, stream: &Stream) -> Result<()> {
        self.ip(&format!("link set eth0 mtu {}", stream.mtu))?;
        let Some(link) = stream.link else {
            return Ok(());
        };
        // A bucket of a millisecond, and of a few packets at least; a queue of a twentieth of a second, as
        // in a switch's port.
        let burst_bytes = (link.0 / 8 / 1_000).max(10 * u64::from(stream.mtu));
        self.tool(
            "tc",
            &format!(
                "qdisc add dev eth0 root tbf rate {}bit burst {burst_bytes} latency 50ms",
                link.0
            ),
        )
    }

    /// Runs `ip` inside.
    fn ip(&self, words: &str) -> Result<()> {
        self.tool("ip", words)
    }

    /// Runs a program of `iproute2` inside.
    fn tool(&self, program: &str, words: &str) -> Result<()> {
        let output = Command::new("nsenter")
            .arg(format!("--net={}", self.path()))
            .args(["--", program])
            .args(words.split(' '))
            .output()
            .context("nsenter: cannot be started; wanted util-linux; hint: apt-get install util-linux iproute2")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!(
                "{program} {words}: {}; wanted a namespace with its own address; hint: apt-get install iproute2, or hosts = \"processes\"",
                said.trim()
            );
        }
        Ok(())
    }
}
