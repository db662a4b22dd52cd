//! What decides what a portal will do, for who explores its states.

use std::hash::{Hash, Hasher};

use super::Portal;

/// Left out: its parameters, which never change. Its queues are empty whenever its driver has carried
/// out what it wants.
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
