//! The invariants of a controller between two inputs, which the simulation checks.

use super::{Controller, Leader, Replica};
use crate::bugs::{Bug, planted};
use crate::config::MEMBERS_MAX;

impl Controller {
    /// Checks everything; it takes time for each session and each member.
    ///
    /// # Panics
    ///
    /// When its sessions, its members and the servers that it waits for do not agree.
    pub fn verify(&self) {
        assert_eq!(
            self.names.len(),
            self.sessions.len(),
            "each session has one name"
        );
        for (name, id) in &self.names {
            let session = self.sessions.get(id);
            assert!(
                session.is_some_and(|it| it.name == *name),
                "{name}: a session is found by its name"
            );
        }
        for session in self.sessions.values() {
            session.check();
            assert!(
                session.writes.lost <= self.lost && session.earlier.lost <= self.lost,
                "{}: it lost copies with the servers that were lost",
                session.name
            );
            assert!(
                self.config.is_some(),
                "{}: nobody opens a session before there is a cluster",
                session.name
            );
        }
        assert!(
            self.joining.len() <= MEMBERS_MAX && self.asked.len() <= MEMBERS_MAX,
            "no more ask to join than a cluster takes"
        );
        let config = self.config.as_deref();
        for (server, (member, _)) in &self.joining {
            assert!(
                member.server == *server && !member.gone,
                "{server:?}: a server that asks to join is running"
            );
            assert!(
                config.is_none_or(|it| !it.has(*server, member.incarnation)),
                "{server:?}: a member asks for nothing"
            );
            assert!(
                !self.drained.contains(server) || planted(Bug::DrainedComesBack),
                "{server:?}: a server that is drained waits for its operator"
            );
        }
        let Some(config) = config else {
            assert!(
                self.retiring.is_empty() && self.agreed.is_none() && self.lost == 0,
                "before there is a cluster nothing is waited for, and nothing lost"
            );
            return;
        };
        config.verify();
        let present: Vec<_> = config.everybody().map(|it| it.server).collect();
        assert!(
            self.left
                .iter()
                .all(|it| !present.contains(it) || config.has_gone(*it)),
            "a server that has left is no member"
        );
        assert!(
            self.majority_min <= config.lease_majority(),
            "the fewest of all configurations that a member may go by"
        );
        for retiring in self.retiring.values() {
            assert!(
                retiring.last_grant.is_none_or(|it| retiring.granted <= it),
                "the last grant is no earlier than that of the controller"
            );
        }
    }
}

impl Leader {
    /// Checks everything, as [`Controller::verify`] does.
    ///
    /// # Panics
    ///
    /// When it does not hold.
    pub fn verify(&self) {
        self.controller.verify();
        assert!(
            self.sent <= self.stores && self.stores <= self.controller.number(),
            "a sent state was stored, and a stored state was decided"
        );
    }
}

impl Replica {
    /// Checks everything, as [`Controller::verify`] and [`crate::consensus::Consensus::verify`] do.
    ///
    /// # Panics
    ///
    /// When it does not hold.
    pub fn verify(&self) {
        self.consensus.verify();
        if let Some(leader) = &self.leader {
            leader.verify();
        }
    }
}
