//! What decides what a server will do, for who explores its states.

use std::hash::{Hash, Hasher};

use super::Server;
use crate::machine::StateMachine;

/// Left out: its machine and its parameters, which never change, but for the life; its counts; and how
/// busy it is. Its queue is empty whenever its driver has carried out what it wants.
impl<M: StateMachine<State: Hash>> Hash for Server<M> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.params.life.hash(hasher);
        self.table.hash(hasher);
        self.sessions.hash(hasher);
        self.config.hash(hasher);
        self.lease.hash(hasher);
        (&self.join, self.gave_up).hash(hasher);
    }
}
