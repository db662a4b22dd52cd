//! What decides what a server will do, for who explores its states.

use std::hash::{Hash, Hasher};

use super::Server;
use super::kept::Kept;
use crate::machine::StateMachine;

impl<M: StateMachine<State: Hash>> Hash for Kept<M> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (&self.table, self.since, self.settled).hash(hasher);
    }
}

/// Left out: its machine and its parameters, which never change, but for the life; its counts; and how
/// busy it is. Its queue is empty whenever its driver has carried out what it wants.
impl<M: StateMachine<State: Hash>> Hash for Server<M> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.params.life.hash(hasher);
        self.table.hash(hasher);
        self.sessions.hash(hasher);
        self.config.hash(hasher);
        self.lease.hash(hasher);
        (&self.join, &self.kept, self.gave_up).hash(hasher);
    }
}
