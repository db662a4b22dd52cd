//! The hash of a portal's state, for the exploration of its states.

use std::hash::{Hash, Hasher};

use super::Portal;

/// Hashes the fields that decide the portal's behaviour. The parameters are left out, because they
/// never change. The fields for losses of servers and for reports to the controller are left out as
/// well. The queues are empty once the driver has carried out the outputs.
impl Hash for Portal {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.life.hash(hasher);
        self.parts.hash(hasher);
        (self.last, self.at).hash(hasher);
        (self.forgot, self.forgot_untold, self.forgot_touched).hash(hasher);
        self.keys.len().hash(hasher);
        for chain in &self.keys {
            chain.hash(hasher);
        }
        self.operations.hash(hasher);
        self.waiting.hash(hasher);
        self.unstable.hash(hasher);
        (&self.again, self.is_numbered).hash(hasher);
        self.deadlines.hash(hasher);
        (self.controller_again, self.drive_again).hash(hasher);
    }
}
