//! A router of its own: many owners share what it knows of the servers, and need not be fast.

use std::net::SocketAddr;

use flurry_core::id::{DurationNs, MonoNs};
use flurry_core::message::{Control, Message};
use flurry_core::router::{self, RouterParams};

use crate::Error;
use crate::address::Controllers;
use crate::fault::Faults;
use crate::link::{Letter, Link, LinkCounts};
use crate::metrics::{Metrics, Page, routed};
use crate::node::{Node, NodeOptions, Part};
use crate::peers::Peers;
use crate::security::Security;

/// Time after which an owner counts as gone if it has not repeated an unanswered operation.
const ABANDONED: DurationNs = DurationNs::millis(5_000);

/// How a router is started.
#[derive(Debug, Clone)]
pub struct RouterOptions {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where the controllers listen.
    pub controllers: Controllers,
    /// Address at which the router publishes its metrics.
    pub metrics: Option<Metrics>,
    /// Who may be talked to, and what messages are sealed with.
    pub security: Security,
    /// Faults on purpose.
    pub faults: Faults,
}

impl RouterOptions {
    /// A port of the kernel's choice.
    #[must_use]
    pub fn new(controllers: impl Into<Controllers>) -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            controllers: controllers.into(),
            metrics: None,
            security: Security::default(),
            faults: Faults::default(),
        }
    }
}

/// A running router. Dropping it stops it. Its end loses nothing, since owners repeat their open
/// operations through any router.
#[derive(Debug)]
pub struct Router(Node);

impl Router {
    /// Starts a router.
    ///
    /// # Errors
    ///
    /// [`Error::Address`] for an address that others could reach, [`Error::Io`] for a port that is
    /// taken.
    pub fn start(options: &RouterOptions) -> Result<Self, Error> {
        let controllers = options.controllers.allowed(&options.security)?;
        let link =
            Link::listen(options.listen, false, &options.security)?.with_faults(&options.faults, 0);
        let node = NodeOptions {
            board: options.metrics.as_ref().map(Metrics::board),
            ..NodeOptions::default()
        };
        Node::start("router", link, node, |_| {
            Ok(Shared {
                machine: router::Router::new(RouterParams {
                    abandoned_after: Some(ABANDONED),
                    ..RouterParams::default()
                }),
                peers: Peers::new(controllers, &options.security),
            })
        })
        .map(Self)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address().into()
    }

    /// What its sockets have counted.
    #[must_use]
    pub fn counts(&self) -> LinkCounts {
        self.0.counts()
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    ///
    /// [`Error::Stopped`]: its thread has ended, which it should not.
    pub fn wait(mut self) -> Result<(), Error> {
        self.0.wait()
    }
}

#[derive(Debug)]
struct Shared {
    machine: router::Router,
    peers: Peers,
}

impl Part for Shared {
    fn message(&mut self, now: MonoNs, letter: Letter) {
        match letter.message {
            Message::Request(copy) => {
                self.machine.handle_request(now, letter.from.token(), copy);
            }
            Message::Reply(_) | Message::Control(Control::Config(_)) => {
                self.machine.handle_message(now, letter.message, 0);
            }
            // The rest is for others.
            _ => {}
        }
    }

    fn report(&self, page: &mut Page) {
        routed(&self.machine, page);
    }

    fn clock_jumped(&mut self, now: MonoNs) {
        self.machine.clock_jumped(now);
    }

    fn timeout(&mut self, now: MonoNs) {
        self.machine.handle_timeout(now);
    }

    fn due(&self) -> MonoNs {
        self.machine.poll_timeout().unwrap_or(MonoNs(u64::MAX))
    }

    fn carry_out(&mut self, _now: MonoNs, link: &mut Link) -> Result<(), Error> {
        while let Some((to, message)) = self.machine.poll_send() {
            self.peers.send(to, &message, self.machine.config(), link);
        }
        Ok(())
    }
}
