//! The invariants of a portal between two inputs, which the simulation checks.

use std::collections::BTreeMap;

use super::chain::{Chain, Known};
use super::{Life, Operation, Portal};
use crate::bugs::{Bug, planted};
use crate::id::KeptKey;
use crate::machine::Access;

/// Operations of a key that are under way.
#[derive(Debug, Default)]
struct UnderWay {
    reads: u32,
    updates: u32,
    writes: u32,
    takeovers: u32,
}

impl UnderWay {
    fn count(&mut self, operation: &Operation) {
        let (access, answered) = (operation.access, operation.answered);
        if operation.takeover {
            self.takeovers += u32::from(!answered);
            return;
        }
        self.reads += u32::from(access == Access::Read);
        self.updates += u32::from(access == Access::Update && !answered);
        self.writes += u32::from(access != Access::Read);
    }
}

impl Portal {
    /// Checks everything; it takes time for each operation and each key.
    ///
    /// # Panics
    ///
    /// When its numbers, its keys and its operations do not agree.
    pub fn verify(&self) {
        self.verify_life();
        self.verify_numbers();
        self.unstable.verify();
        let mut under_way: BTreeMap<KeptKey, UnderWay> = BTreeMap::new();
        for operation in self.operations.values() {
            self.verify_operation(operation);
            let key = KeptKey::from(&operation.request.key);
            under_way.entry(key).or_default().count(operation);
        }
        for (key, chain) in &self.keys {
            let found = under_way.remove(key).unwrap_or_default();
            self.verify_chain(key, chain, &found);
        }
        for (key, lost) in under_way {
            assert!(
                lost.reads + lost.writes + lost.takeovers == 0,
                "{key:?}: it was forgotten while {lost:?} were under way"
            );
        }
    }

    fn verify_life(&self) {
        let parts = self.parts.len();
        match self.life {
            Life::Opening(_) => assert_eq!(parts, 0, "no session is open yet"),
            Life::Open | Life::Closing => assert!(!self.has_none(), "an open owner has a session"),
            Life::Closed => assert!(self.has_none(), "a closed owner has no session"),
            Life::Fenced(_) => assert!(
                self.has_lost_all(),
                "an owner that still has a session is not fenced"
            ),
        }
        assert!(
            self.settled <= self.last_loss,
            "no write has outlived a loss that is still to come"
        );
        if let Some((loss, through)) = self.settling {
            assert_eq!(loss, self.last_loss, "only the latest loss is waited for");
            assert!(through <= self.last, "later writes are not affected");
        }
    }

    fn verify_numbers(&self) {
        assert!(!self.last.is_takeover(), "callers' numbers are even");
        assert!(
            self.unstable.last().is_none_or(|it| it <= self.last),
            "no number is higher than the last that was given out"
        );
        assert!(
            self.unstable.first().is_none_or(|it| self.stable() < it),
            "what may still change a replica is not stable"
        );
        let held = self.operations.len() + self.waiting.len();
        assert_eq!(
            self.unstable.len(),
            held,
            "only operations under way or waiting may change a replica"
        );
        let waiting = self.waiting.keys().copied();
        for sequence in self.operations.numbers().into_iter().chain(waiting) {
            assert!(self.unstable.contains(sequence), "{sequence:?} is held");
        }
        let untold = self.operations.values().filter(|it| !it.told).count();
        assert_eq!(
            self.deadlines.len(),
            untold + self.waiting.len(),
            "each caller without an answer has one deadline"
        );
        for (sequence, tried) in &self.again {
            assert!(
                self.unstable.contains(*sequence) && tried.first < *sequence,
                "{sequence:?}: a former number is kept as long as the present one may change"
            );
        }
        assert!(
            self.again.is_empty() || !self.is_numbered,
            "a caller that numbers its operations finds none under another number"
        );
    }

    fn verify_operation(&self, operation: &Operation) {
        let id = operation.request.id;
        assert_eq!(
            id.sequence.is_takeover(),
            operation.takeover,
            "{id:?}: odd numbers are those of takeovers"
        );
        assert!(
            self.operations.contains(id.sequence),
            "{id:?} is found by its number"
        );
        assert!(
            operation.access != Access::Read || !(operation.answered || operation.told),
            "{id:?}: a read is over when its caller has heard"
        );
        assert!(
            operation.told || !operation.takeover,
            "{id:?}: no caller waits for a takeover itself"
        );
        assert_eq!(
            id.epoch,
            self.epoch_of(&operation.request.key),
            "{id:?} is of this owner"
        );
        assert!(
            self.owned().iter().any(|it| it.session == id.session),
            "{id:?}: operations of a session end with it"
        );
    }

    fn verify_chain(&self, key: &KeptKey, chain: &Chain, found: &UnderWay) {
        assert_eq!(chain.reads, found.reads, "{key:?}: reads under way");
        assert_eq!(chain.updates, found.updates, "{key:?}: updates under way");
        assert_eq!(chain.unstable, found.writes, "{key:?}: writes under way");
        assert_eq!(
            u32::from(chain.known == Known::Taking),
            found.takeovers,
            "{key:?}: one takeover at a time, and none that nobody waits for"
        );
        assert!(
            chain.updates <= 1 || planted(Bug::RetryRenumbers),
            "{key:?}: no update overtakes another"
        );
        assert!(
            chain.tail_unknown_through <= self.last,
            "{key:?}: a doubt affects operations that were submitted before it was known"
        );
        let mut last = None;
        for pending in chain.waiting.iter() {
            assert!(
                last < Some(pending.sequence),
                "{key:?}: operations wait in the order in which they came"
            );
            last = Some(pending.sequence);
            assert_eq!(
                self.waiting.get(&pending.sequence).map(KeptKey::from),
                Some(key.clone()),
                "{key:?}: an operation that waits is found by its number"
            );
        }
    }
}
