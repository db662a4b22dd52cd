//! The controller on its thread, with its file.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use flurry_core::controller::{self, ControllerParams, Destination, Output};
use flurry_core::id::MonoNs;

use crate::fault::Faults;
use crate::link::{Letter, Link, LinkCounts, Peer};
use crate::node::{Node, Part};
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
        Node::start("controller", link, Duration::ZERO, |now| {
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
}

impl Part for Decider {
    fn message(&mut self, now: MonoNs, letter: Letter) {
        self.machine
            .handle_message(now, letter.from.token(), letter.message);
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
        Ok(())
    }
}
