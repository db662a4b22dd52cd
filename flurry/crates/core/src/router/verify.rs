//! The invariants of a router between two inputs, which the simulation checks.

use std::collections::BTreeMap;

use super::operation::{InFlight, Phase};
use super::{MonoNs, Router, Timer, repair};
use crate::bugs::{Bug, planted};
use crate::id::OperationId;
use crate::message::Ask;

/// The most takeovers of one key by one owner. An owner begins another one when an operation of a
/// caller needs it, or when its router had no record of the one before: a few in all.
const TAKEOVERS_MAX: usize = 32;

impl Router {
    /// Checks everything; it takes time for each operation.
    ///
    /// # Panics
    ///
    /// When its operations, its timers and its totals do not agree.
    pub fn verify(&self) {
        let bytes: usize = self.operations.values().map(|it| it.bytes_held).sum();
        assert_eq!(self.bytes, bytes, "the total is the sum of the operations");
        for (id, operation) in self.operations.in_order() {
            self.verify_operation(id, operation);
        }
        for (at, timer) in &self.timers {
            if let Timer::Operation(id) = timer {
                let operation = self.operations.get(*id);
                assert!(
                    operation.is_some_and(|it| it.timer == *at),
                    "{id:?}: a timer is that of an operation, and each has one"
                );
            }
        }
        if let Some(at) = self.config_wanted {
            let timer = (at, Timer::Config);
            assert!(
                self.timers.contains(&timer),
                "a wanted state is requested again"
            );
        }
        for (server, parked) in &self.parked {
            parked.verify(*server, &self.timers);
        }
        for (key, repair) in &self.repairs {
            repair.verify(*key, &self.timers);
        }
        let mut takeovers = BTreeMap::new();
        for operation in self.operations.values() {
            let request = &operation.request;
            if request.ask == Ask::Touch {
                *takeovers
                    .entry((&request.key, request.id.epoch))
                    .or_insert(0) += 1;
            }
        }
        assert!(
            takeovers.values().all(|count| *count <= TAKEOVERS_MAX),
            "I29: a server that is silent or full does not fill a router with takeovers"
        );
        assert!(
            self.repair_tokens <= repair::TOKENS_MAX,
            "a long time without repairs is no reason for many at once"
        );
        assert!(
            self.operations.is_empty() || self.config.is_some() || self.config_wanted.is_some(),
            "operations that have no place wait for a configuration that was asked for"
        );
    }

    fn verify_operation(&self, id: OperationId, operation: &InFlight) {
        assert_eq!(
            operation.config,
            self.number(),
            "{id:?}: all operations are placed by the same configuration"
        );
        assert_eq!(operation.request.id, id, "{id:?} is found by its name");
        let takes = operation.request.ask == Ask::Touch;
        assert_eq!(
            takes,
            operation.phase != Phase::Apply,
            "{id:?}: only a takeover asks and writes back"
        );
        assert!(
            operation.timer == MonoNs(u64::MAX)
                || self
                    .timers
                    .contains(&(operation.timer, Timer::Operation(id))),
            "{id:?}: its timer is set"
        );
        assert!(
            !operation.answered || operation.phase != Phase::Asking,
            "{id:?}: a takeover that asks has no answer"
        );
        assert!(
            !operation.answered
                || operation.is_write()
                || operation.lingers_until.is_some()
                || planted(Bug::ErrorWins),
            "{id:?}: a read that was answered is over"
        );
        assert!(
            operation.lingers_until.is_none() || self.params.log,
            "{id:?}: only the log waits for late copies"
        );
        for target in &operation.targets {
            assert!(
                target.state.is_none() || operation.phase == Phase::Asking,
                "{id:?}: what a takeover heard is used once"
            );
            assert!(
                target.replica.old || target.replica.new,
                "{id:?}: a copy is for a replica"
            );
        }
    }
}
