//! The controller on its thread, with whatever keeps its state.

mod disk;
mod member;
mod on_etcd;
mod told;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use flurry_core::controller::{self, ControllerParams, Destination};
use flurry_core::id::DurationNs;
use flurry_core::message::Message;

use crate::etcd::{Election, Etcd};
use crate::fault::Faults;
use crate::link::{Link, LinkCounts, Peer};
use crate::metrics::Metrics;
use crate::node::{Node, NodeOptions, Stopper};
use crate::security::Security;
use crate::{Error, LEASE};
use disk::Disk;
use member::Member;
use on_etcd::OnEtcd;

/// How long the names of etcd's nodes may take to be found.
const ETCD_NAMES: Duration = Duration::from_secs(5);

/// How a controller is started.
#[derive(Debug, Clone)]
pub struct ControllerOptions {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Servers that must have come before anybody is served.
    pub servers: u8,
    /// Copies of each key.
    pub replicas: u8,
    /// Number of threads of each server. The servers must be configured with the same number.
    pub shards: u8,
    /// Silence after which a server is counted out. It is fixed when the first servers have joined; a
    /// controller of such a cluster goes by the cluster's own.
    pub lease: DurationNs,
    /// Where its state is kept.
    pub state: StateAt,
    /// Addresses of all controllers that agree with each other, its own among them; empty for one that
    /// is alone, or that agrees by etcd.
    pub group: Vec<SocketAddr>,
    /// Address at which the controller publishes its metrics.
    pub metrics: Option<Metrics>,
    /// Who may be talked to, and what messages are sealed with.
    pub security: Security,
    /// Faults on purpose.
    pub faults: Faults,
}

/// Where a controller keeps what must outlive it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateAt {
    /// In memory: it ends with the process, and so must its servers. Only for a cluster that lives in
    /// one process.
    Memory,
    /// In a directory of this machine, which no other controller may use. A group of controllers has
    /// one each.
    Directory(PathBuf),
    /// In etcd. Several controllers may be started there, each on a machine of its own: one leads, the
    /// others stand by.
    Etcd(Etcd),
}

impl From<Option<PathBuf>> for StateAt {
    fn from(directory: Option<PathBuf>) -> Self {
        directory.map_or(Self::Memory, Self::Directory)
    }
}

impl ControllerOptions {
    /// Three servers of one thread that all hold everything; without a directory its state is in memory.
    #[must_use]
    pub fn new(listen: SocketAddr, directory: Option<PathBuf>) -> Self {
        Self {
            listen,
            servers: 3,
            replicas: 3,
            shards: 1,
            lease: LEASE,
            state: directory.into(),
            group: Vec::new(),
            metrics: None,
            security: Security::default(),
            faults: Faults::default(),
        }
    }
}

/// A running controller; dropping it stops it.
#[derive(Debug)]
pub struct Controller(Node);

impl Controller {
    /// Starts a controller from the state in its directory, if there is one. A controller that
    /// belongs to a group or uses etcd stands by until it is elected. It may start before the other
    /// controllers or etcd are there.
    ///
    /// # Errors
    ///
    /// [`Error::Address`] for an address that others could reach, [`Error::Refused`] for numbers that
    /// do not fit together or a damaged file, [`Error::Io`] for a directory or a port that is taken, or a
    /// certificate that cannot be read.
    pub fn start(options: &ControllerOptions) -> Result<Self, Error> {
        let link =
            Link::listen(options.listen, false, &options.security)?.with_faults(&options.faults, 0);
        let params = ControllerParams {
            replicas: options.replicas,
            shards: options.shards,
            servers_min: options.servers,
            lease: options.lease,
        };
        // Found out at once, also by one that stands by.
        controller::Controller::new(crate::clock::now(), params).map_err(refused)?;
        let node = NodeOptions {
            board: options.metrics.as_ref().map(Metrics::board),
            ..NodeOptions::default()
        };
        let (own, wake) = (link.address(), link.wake().clone());
        if let StateAt::Etcd(etcd) = &options.state {
            if !options.group.is_empty() {
                return Err(refused(
                    "controllers: they agree by etcd; expected no group of their own; hint: leave --controllers out",
                ));
            }
            etcd.allow(&options.security, ETCD_NAMES)?;
            let election = Election::start(etcd, own.to_string(), wake)?;
            let security = options.security.clone();
            return Node::start("controller", link, node, |now| {
                OnEtcd::new(now, params, election, security)
            })
            .map(Self);
        }
        let disk = match &options.state {
            StateAt::Directory(path) => Some(Disk::open(path, wake)?),
            StateAt::Memory | StateAt::Etcd(_) => None,
        };
        Node::start("controller", link, node, |now| {
            Member::open(now, options, own, params, disk)
        })
        .map(Self)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address().into()
    }

    /// What its socket has counted.
    #[must_use]
    pub fn counts(&self) -> LinkCounts {
        self.0.counts()
    }

    /// Whether it still runs: it ends by itself when its state cannot be written to its directory, or
    /// cannot be read.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.0.is_running()
    }

    /// What ends it from another thread.
    #[must_use]
    pub fn handle(&self) -> ControllerHandle {
        ControllerHandle(self.0.stopper())
    }

    /// Waits until it ends by itself, or was closed.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]: its state could not be written. It has sent nothing to anybody that depends
    /// on the unwritten state.
    /// [`Error::Refused`]: the value in etcd is not a controller's state.
    pub fn wait(mut self) -> Result<(), Error> {
        self.0.wait()
    }
}

/// Ends a controller while another thread waits for it.
#[derive(Debug, Clone)]
pub struct ControllerHandle(Stopper);

impl ControllerHandle {
    /// Ends the controller. If it leads a group, another member leads at once.
    pub fn close(&self) {
        self.0.stop();
    }
}

/// Sends a controller's message. One for a server whose address is unknown or not allowed is dropped.
fn send(to: Destination, message: &Message, security: &Security, link: &mut Link) {
    let peer = match to {
        Destination::Sender(sender) => Peer::of_token(sender),
        Destination::Server(_, text) => {
            let address = text.and_then(|text| security.listed(&text));
            address.map(|it| link.to(it))
        }
    };
    if let Some(peer) = peer {
        link.send(peer, message);
    }
}

fn refused(error: impl std::fmt::Display) -> Error {
    Error::Refused {
        reason: error.to_string(),
    }
}
