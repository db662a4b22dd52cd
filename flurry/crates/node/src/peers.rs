//! Where the other parts are: the controller, and the servers of a configuration.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::sync::Arc;

use flurry_core::config::Config;
use flurry_core::id::{ConfigNumber, Endpoint};
use flurry_core::message::{Destination, Message};

use crate::address::Allowed;
use crate::link::{Link, Peer};
use crate::security::Security;

/// Addresses of a configuration, parsed once for each.
#[derive(Debug)]
pub(crate) struct Peers {
    controllers: Allowed,
    security: Security,
    number: ConfigNumber,
    addresses: BTreeMap<Endpoint, Option<SocketAddrV4>>,
}

impl Peers {
    pub(crate) fn new(controllers: Allowed, security: &Security) -> Self {
        Self {
            controllers,
            security: security.clone(),
            number: ConfigNumber::default(),
            addresses: BTreeMap::new(),
        }
    }

    /// Sends a message to whom it is for; nobody who is known is nobody.
    pub(crate) fn send(
        &mut self,
        to: Destination,
        message: &Message,
        config: Option<&Arc<Config>>,
        link: &mut Link,
    ) {
        let peer = match to {
            Destination::Sender(sender) => Peer::of_token(sender),
            Destination::Controller => return self.tell_controllers(message, link),
            Destination::Server(endpoint) => {
                let address = config.and_then(|it| self.server(endpoint, it));
                address.map(|it| link.to(it))
            }
        };
        if let Some(peer) = peer {
            link.send(peer, message);
        }
    }

    /// Sends a message to every controller: the one that leads is among them.
    pub(crate) fn tell_controllers(&self, message: &Message, link: &mut Link) {
        for controller in self.controllers.iter() {
            link.send(link.to(controller), message);
        }
    }

    /// Whether an address is that of a controller.
    pub(crate) fn is_controller(&self, address: SocketAddrV4) -> bool {
        self.controllers.has(address)
    }

    fn server(&mut self, endpoint: Endpoint, config: &Config) -> Option<SocketAddrV4> {
        if config.number != self.number {
            self.number = config.number;
            self.addresses.clear();
        }
        *self.addresses.entry(endpoint).or_insert_with(|| {
            let text = config.address_of(endpoint);
            text.and_then(|text| self.security.listed(text))
        })
    }
}
