//! Where the other parts are: the controller, and the servers of a configuration.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::sync::Arc;

use flurry_core::config::Config;
use flurry_core::id::{ConfigNumber, Endpoint};
use flurry_core::message::Destination;

use crate::link::{Link, Peer};
use crate::security::Security;

/// Addresses of a configuration, parsed once for each.
#[derive(Debug)]
pub(crate) struct Peers {
    controller: SocketAddrV4,
    security: Security,
    number: ConfigNumber,
    addresses: BTreeMap<Endpoint, Option<SocketAddrV4>>,
}

impl Peers {
    pub(crate) fn new(controller: SocketAddrV4, security: &Security) -> Self {
        Self {
            controller,
            security: security.clone(),
            number: ConfigNumber::default(),
            addresses: BTreeMap::new(),
        }
    }

    /// Whom a message goes to; `None` is nobody who is known.
    pub(crate) fn find(
        &mut self,
        to: Destination,
        config: Option<&Arc<Config>>,
        link: &Link,
    ) -> Option<Peer> {
        match to {
            Destination::Sender(sender) => Peer::of_token(sender),
            Destination::Controller => Some(link.to(self.controller)),
            Destination::Server(endpoint) => self.server(endpoint, config?).map(|it| link.to(it)),
        }
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
