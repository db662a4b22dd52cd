//! What decides what a router will do, for who explores its states.

use std::hash::{Hash, Hasher};

use super::{Router, repair};

/// Left out: its parameters, which never change; its counts and its log; and what it has measured,
/// which moves the repetition of a copy by less than [`super::rate::RETRY_MAX`], chooses at the level
/// `auto` only, and decides when it asks for the configuration without need. That it can afford more
/// than one repair is not told apart. Its queues are empty whenever its driver has carried out what it
/// wants.
impl Hash for Router {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.config.hash(hasher);
        self.config_wanted.hash(hasher);
        (&self.operations, &self.parked).hash(hasher);
        self.repairs.hash(hasher);
        self.repair_tokens.min(repair::COST).hash(hasher);
        self.repair_refilled.hash(hasher);
        self.timers.hash(hasher);
    }
}
