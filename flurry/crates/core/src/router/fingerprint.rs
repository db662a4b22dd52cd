//! The hash of a router's state, for the exploration of its states.

use std::hash::{Hash, Hasher};

use super::{Router, repair};

/// Hashes the fields that decide the router's behaviour. The parameters are left out, because they
/// never change, and so are the counts and the log. The measurements are left out as well: they
/// move the repetition of a copy by less than [`super::rate::RETRY_MAX`], choose at the level
/// `auto` only, and decide when it asks for the configuration without need. Tokens beyond the cost
/// of one repair make no difference. The queues are empty once the driver has carried out the
/// outputs.
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
