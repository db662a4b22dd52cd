//! The controller on its thread, with whatever keeps its state.

mod store;

use std::net::SocketAddr;
use std::path::PathBuf;

use flurry_core::controller::{self, ControllerParams, Destination, Output};
use flurry_core::id::{ConfigNumber, MonoNs};
use flurry_core::message::{Control, Message};
use tracing::info;

use crate::etcd::{Etcd, Role};
use crate::fault::Faults;
use crate::link::{Letter, Link, LinkCounts, Peer};
use crate::metrics::count;
use crate::metrics::{Metrics, Page};
use crate::node::{Node, NodeOptions, Part};
use crate::security::Security;
use crate::{Error, LEASE};
use store::Store;

/// How a controller is started.
#[derive(Debug, Clone)]
pub struct ControllerOptions {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Servers that must have come before anybody is served.
    pub servers: u8,
    /// Copies of each key.
    pub replicas: u8,
    /// Threads of each server; the same as the servers are told.
    pub shards: u8,
    /// Where its state is kept.
    pub state: StateAt,
    /// Where it tells how it is.
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
    /// In a directory of this machine, which no other controller may use.
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
            state: directory.into(),
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
    /// Starts a controller, from what is in its directory if there is something. One with etcd stands
    /// by until it is elected, and may begin without etcd.
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
            lease: LEASE,
        };
        // Found out at once, also by one that stands by.
        controller::Controller::new(crate::clock::now(), params).map_err(refused)?;
        let address = link.address().to_string();
        let wake = link.wake().clone();
        let store = Store::open(&options.state, address, wake, &options.security)?;
        let node = NodeOptions {
            board: options.metrics.as_ref().map(Metrics::board),
            ..NodeOptions::default()
        };
        Node::start("controller", link, node, |now| {
            let mut decider = Decider {
                params,
                machine: None,
                store,
                security: options.security.clone(),
                logged: ConfigNumber(0),
                changing: false,
                asked: Vec::new(),
            };
            decider.follow_role(now)?;
            Ok(decider)
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

    /// Waits until it ends by itself.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]: its state could not be written. Nobody was told what was not on disk.
    /// [`Error::Refused`]: what etcd has is no state.
    pub fn wait(mut self) -> Result<(), Error> {
        self.0.wait()
    }
}

fn refused(error: impl std::fmt::Display) -> Error {
    Error::Refused {
        reason: error.to_string(),
    }
}

#[derive(Debug)]
struct Decider {
    params: ControllerParams,
    /// Nobody, while it stands by.
    machine: Option<controller::Controller>,
    store: Store,
    security: Security,
    /// The configuration that the log knows.
    logged: ConfigNumber,
    changing: bool,
    /// Who asked how the cluster is, while it stands by.
    asked: Vec<Peer>,
}

impl Decider {
    /// Begins to decide when it is elected, and ceases when its term is over.
    fn follow_role(&mut self, now: MonoNs) -> Result<(), Error> {
        match self.store.role()? {
            Role::Leader => {}
            Role::Standby => self.machine = None,
            Role::Elected(stored) => {
                let params = self.params;
                let machine = match stored {
                    None => controller::Controller::new(now, params).map_err(refused)?,
                    Some(bytes) => {
                        controller::Controller::restore(now, params, &bytes).map_err(refused)?
                    }
                };
                self.machine = Some(machine);
            }
        }
        Ok(())
    }

    /// The machine, if it leads now.
    fn leading(&mut self) -> Option<&mut controller::Controller> {
        self.machine.as_mut().filter(|_| self.store.is_leader())
    }

    fn log(&mut self) {
        let Some(config) = self.machine.as_ref().and_then(|it| it.config()) else {
            return;
        };
        let changing = config.next.is_some();
        if (config.number, changing) != (self.logged, self.changing) {
            (self.logged, self.changing) = (config.number, changing);
            let gone = config.members.iter().filter(|it| it.gone).count();
            let up = config.members.len() - gone;
            info!(
                configuration = config.number.0,
                up, gone, changing, "the configuration has changed"
            );
        }
    }
}

impl Part for Decider {
    fn message(&mut self, now: MonoNs, letter: Letter) {
        let Letter { from, message, .. } = letter;
        match self.leading() {
            Some(machine) => machine.handle_message(now, from.token(), message),
            None if message == Message::Control(Control::StatusQuery) => self.asked.push(from),
            None => {}
        }
    }

    fn tell(&self, page: &mut Page) {
        let leads = self.machine.is_some();
        page.gauge(
            (
                "flurry_controller_is_leader",
                "Whether it is the controller that decides.",
            ),
            &[],
            f64::from(u8::from(leads)),
        );
        let Some(machine) = &self.machine else { return };
        let config = machine.config();
        let (members, gone) = config.map_or((0, 0), |config| {
            let gone = config.members.iter().filter(|it| it.gone).count();
            (config.members.len() - gone, gone)
        });
        let number = config.map_or(0, |config| config.number.0);
        let changes = config.is_some_and(|config| config.next.is_some());
        page.gauge(
            ("flurry_configuration", "The number of the configuration."),
            &[],
            number.into(),
        );
        page.gauge(
            (
                "flurry_configuration_changing",
                "Whether servers are copying from each other.",
            ),
            &[],
            f64::from(u8::from(changes)),
        );
        let servers = ("flurry_servers", "Servers of the configuration.");
        page.gauge(servers, &[("state", "up")], count(members));
        page.gauge(servers, &[("state", "gone")], count(gone));
        let sessions = ("flurry_sessions", "Sessions that have had an owner.");
        page.gauge(sessions, &[], count(machine.sessions()));
    }

    fn clock_jumped(&mut self, now: MonoNs) {
        if let Some(machine) = self.leading() {
            machine.clock_jumped(now);
        }
    }

    fn timeout(&mut self, now: MonoNs) {
        if let Some(machine) = self.leading() {
            machine.handle_timeout(now);
        }
    }

    fn due(&self) -> MonoNs {
        let machine = self.machine.as_ref();
        machine.map_or(MonoNs(u64::MAX), controller::Controller::poll_timeout)
    }

    /// Whatever woke it may have been the election.
    fn serve(&mut self, now: MonoNs, _clients: bool, _link: &mut Link) -> Result<usize, Error> {
        self.follow_role(now)?;
        Ok(0)
    }

    fn carry_out(&mut self, _now: MonoNs, link: &mut Link) -> Result<(), Error> {
        for asked in self.asked.drain(..) {
            // It stands by, and has nothing to say.
            link.send(asked, &Message::Control(Control::Status(String::new())));
        }
        while let Some(output) = self.leading().and_then(|it| it.poll_output()) {
            match output {
                // What follows may only be heard once this is stored.
                Output::Persist(bytes) => {
                    if !self.store.write(&bytes)? {
                        self.machine = None;
                    }
                }
                Output::Send(to, message) => {
                    let peer = match to {
                        Destination::Sender(sender) => Peer::of_token(sender),
                        Destination::Server(_, text) => {
                            let address = text.and_then(|text| self.security.listed(&text));
                            address.map(|it| link.to(it))
                        }
                    };
                    if let Some(peer) = peer {
                        link.send(peer, &message);
                    }
                }
            }
        }
        self.log();
        Ok(())
    }
}
