//! The hash of a server's state, for the exploration of its states.

use std::hash::{Hash, Hasher};

use super::Server;
use super::kept::Kept;
use crate::machine::StateMachine;

impl Hash for Kept {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (&self.table, self.since, self.settled).hash(hasher);
    }
}

/// Hashes the fields that decide the server's behaviour. The machine and the parameters except the
/// incarnation are left out, because they never change. The counts, the load, the other server's
/// address and the state of the disk are left out as well. The queue is empty once the driver has
/// carried out the outputs.
impl<M: StateMachine> Hash for Server<M> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.params.life.hash(hasher);
        self.table.hash(hasher);
        self.sessions.hash(hasher);
        self.config.hash(hasher);
        self.lease.hash(hasher);
        (&self.join, &self.kept, self.gave_up).hash(hasher);
    }
}
