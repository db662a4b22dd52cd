//! Carries out the outputs of owners and routers after each of their inputs.

use flurry_core::id::MonoNs;
use flurry_core::message::{Ask, Message};
use flurry_core::portal::{self, Event, Portal};
use flurry_core::router::{self, Router};

use super::{Effect, NodeId, World};

impl World {
    pub(super) fn after_portal(
        &mut self,
        place: NodeId,
        portal: &mut Portal,
        mut router: Option<&mut Router>,
        effects: &mut Vec<Effect>,
    ) -> Option<MonoNs> {
        let local = self.nodes[place].local(self.now);
        loop {
            let mut idle = true;
            while let Some((to, message)) = portal.poll_send() {
                idle = false;
                match (to, &mut router, message) {
                    (portal::Destination::Router, Some(router), Message::Request(copy)) => {
                        router.handle_request(local, place as u64, copy);
                    }
                    (portal::Destination::Router, _, message) => {
                        let to = self.nodes[place].router;
                        self.transmit(place, to, message);
                    }
                    (portal::Destination::Controller, _, message) => {
                        self.transmit_to_controllers(place, &message);
                    }
                }
            }
            if let Some(router) = &mut router {
                for message in self.drain_router(place, router, Some(place)) {
                    idle = false;
                    portal.handle_message(local, message);
                }
            }
            while let Some(event) = portal.poll_event() {
                if let (Event::Opened(config, _), Some(router)) = (&event, &mut router) {
                    router.adopt(local, config);
                    idle = false;
                }
                effects.push(Effect::Told(place, event));
            }
            if idle {
                break;
            }
        }
        let own = router.and_then(|router| router.poll_timeout());
        [portal.poll_timeout(), own].into_iter().flatten().min()
    }

    /// Sends the messages of a router. Returns those for the portal that the router is inside of.
    pub(crate) fn drain_router(
        &mut self,
        place: NodeId,
        router: &mut Router,
        inside: Option<NodeId>,
    ) -> Vec<Message> {
        let mut own = Vec::new();
        while let Some(row) = router.poll_arrival() {
            let known = self.open_copies.entry(place).or_default().remove(&(
                row.id,
                row.server.0,
                row.attempt,
            ));
            if !known && row.attempt < 31 {
                // I16: one row for each copy.
                self.violate(format!(
                    "a second row, or one of a copy never sent: {row:?}"
                ));
            }
        }
        while let Some((to, message)) = router.poll_send() {
            match to {
                router::Destination::Sender(_) if inside.is_some() => own.push(message),
                router::Destination::Sender(portal) => {
                    self.transmit(place, usize::try_from(portal).unwrap_or(0), message);
                }
                router::Destination::Controller => self.transmit_to_controllers(place, &message),
                router::Destination::Server(endpoint) => {
                    if let Message::Request(copy) = &message
                        && inside.is_some()
                        && copy.attempt < 31
                        && matches!(copy.request.ask, Ask::Apply { .. })
                    {
                        let copies = self.open_copies.entry(place).or_default();
                        copies.insert((copy.request.id, endpoint.server.0, copy.attempt));
                    }
                    if let Some(to) = self.find(router.config(), endpoint) {
                        self.transmit(place, to, message);
                    }
                }
            }
        }
        if router.counts().divergent > 0 {
            self.violate("I1: two replicas answered one operation differently".to_owned());
        }
        own
    }
}
