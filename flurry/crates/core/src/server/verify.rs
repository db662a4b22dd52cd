//! The invariants of a server between two inputs, which the simulation checks.

use super::{SESSIONS_MAX, Server};
use crate::bugs::{Bug, planted};
use crate::machine::StateMachine;

impl<M: StateMachine> Server<M> {
    /// Checks everything; it takes time for each record.
    ///
    /// # Panics
    ///
    /// When its records, its copying and its disk do not agree.
    pub fn verify(&self) {
        self.table.verify();
        if let Some(kept) = &self.kept {
            kept.table.verify();
            assert!(
                self.config.is_none() || kept.since < self.number(),
                "records are kept from an earlier configuration"
            );
        }
        assert_eq!(
            self.config.is_some(),
            self.is_member(),
            "a server goes by a configuration as long as it takes part in one"
        );
        assert!(
            self.join.is_none() || self.is_member(),
            "only a member copies"
        );
        if let Some(join) = &self.join {
            join.verify(self.number());
        }
        assert!(
            self.config.is_some() || self.table.len() == 0,
            "a server that takes no part has no record that counts"
        );
        assert!(
            self.kept_is_settled() || self.config.is_none() || !self.is_ready(),
            "before it answers it has taken up what it may have alone"
        );
        assert!(self.sessions.len() <= SESSIONS_MAX, "sessions have a bound");
        for (id, session) in &self.sessions {
            assert!(
                session.used_in <= self.number()
                    || self.config.is_none()
                    || planted(Bug::AnyConfiguration),
                "{id:?}: nobody takes an operation of a configuration to come"
            );
        }
        if let Some(persist) = &self.persist {
            persist.verify();
            assert!(
                persist.restores.is_none_or(|it| it == self.number()),
                "a disk is asked for what this configuration lacks"
            );
        }
    }
}
