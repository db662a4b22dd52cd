//! The controller on its thread, with its file.

use std::net::SocketAddr;
use std::path::PathBuf;

use flurry_core::controller::{self, ControllerParams, Destination, Output};
use flurry_core::id::{ConfigNumber, MonoNs};
use tracing::info;

use crate::fault::Faults;
use crate::link::{Letter, Link, LinkCounts, Peer};
use crate::metrics::count;
use crate::metrics::{Metrics, Page};
use crate::node::{Node, NodeOptions, Part};
use crate::security::Security;
use crate::store::Store;
use crate::{Error, LEASE};

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
    /// Where its state is kept. Without one the state ends with the process, and so must its servers:
    /// only for a cluster that lives in one process.
    pub directory: Option<PathBuf>,
    /// Where it tells how it is.
    pub metrics: Option<Metrics>,
    /// Who may be talked to, and what messages are sealed with.
    pub security: Security,
    /// Faults on purpose.
    pub faults: Faults,
}

impl ControllerOptions {
    /// Three servers of one thread that all hold everything.
    #[must_use]
    pub fn new(listen: SocketAddr, directory: Option<PathBuf>) -> Self {
        Self {
            listen,
            servers: 3,
            replicas: 3,
            shards: 1,
            directory,
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
    /// Starts a controller, from what is in its directory if there is something.
    ///
    /// # Errors
    ///
    /// [`Error::Address`] for an address that others could reach, [`Error::Refused`] for numbers that
    /// do not fit together or a damaged file, [`Error::Io`] for a directory or a port that is taken.
    pub fn start(options: &ControllerOptions) -> Result<Self, Error> {
        let link =
            Link::listen(options.listen, false, &options.security)?.with_faults(&options.faults, 0);
        let store = options.directory.as_deref().map(Store::open).transpose()?;
        let stored = store.as_ref().map(Store::read).transpose()?.flatten();
        let params = ControllerParams {
            replicas: options.replicas,
            shards: options.shards,
            servers_min: options.servers,
            lease: LEASE,
        };
        let node = NodeOptions {
            board: options.metrics.as_ref().map(Metrics::board),
            ..NodeOptions::default()
        };
        Node::start("controller", link, node, |now| {
            let machine = match stored {
                None => controller::Controller::new(now, params).map_err(refused)?,
                Some(bytes) => {
                    controller::Controller::restore(now, params, &bytes).map_err(refused)?
                }
            };
            Ok(Decider {
                machine,
                store,
                security: options.security.clone(),
                logged: ConfigNumber(0),
                changing: false,
            })
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

    /// Whether it still runs: it ends by itself when its state cannot be written.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.0.is_running()
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]: its state could not be written. Nobody was told what was not on disk.
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
    machine: controller::Controller,
    store: Option<Store>,
    security: Security,
    /// The configuration that the log knows.
    logged: ConfigNumber,
    changing: bool,
}

impl Decider {
    fn log(&mut self) {
        let Some(config) = self.machine.config() else {
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
        self.machine
            .handle_message(now, letter.from.token(), letter.message);
    }

    fn tell(&self, page: &mut Page) {
        let config = self.machine.config();
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
        page.gauge(sessions, &[], count(self.machine.sessions()));
    }

    fn timeout(&mut self, now: MonoNs) {
        self.machine.handle_timeout(now);
    }

    fn due(&self) -> MonoNs {
        self.machine.poll_timeout()
    }

    fn carry_out(&mut self, _now: MonoNs, link: &mut Link) -> Result<(), Error> {
        while let Some(output) = self.machine.poll_output() {
            match output {
                // What follows may only be heard once this is on disk.
                Output::Persist(bytes) => {
                    if let Some(store) = &self.store {
                        store.write(&bytes)?;
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
