//! Operations that are tried once more under another number.
//!
//! *Forgotten.* A takeover's write-back must not be made twice under one number: what a second look finds
//! may be another state, and a server may have the first. A router that knows nothing of a takeover that
//! it is asked for again therefore says so, and the key is taken over under a new number.
//!
//! *Evicted.* A server that has evicted a value keeps its version for a while, and can answer nothing that
//! depends on it. When no replica has the value any more, the key is taken over: what is found is a
//! deletion then, or the value at a replica that was not asked, and the operation is tried once more on
//! that. So the caller sees a key that is not there, as in any cache. A late copy of the first try may
//! still be executed on the value; should the takeover find that it was, the outcome is unknown.
//!
//! Versions of a key grow with the order of its operations, so all that wait behind get new numbers too.
//! Their callers know them by the first.

use std::collections::VecDeque;

use super::chain::Known;
use super::{Outcome, Portal};
use crate::id::{Key, Sequence, Version};
use crate::machine::Access;

/// Former numbers of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Tried {
    /// The one by which its caller knows it.
    pub(super) first: Sequence,
    /// The one under which it, an update, was last sent.
    sent: Option<Sequence>,
}

impl Portal {
    /// No replica has the value that an operation depends on.
    pub(super) fn evicted(&mut self, sequence: Sequence) {
        let version = self.id(sequence).version();
        let Some(operation) = self.operations.get(&sequence) else {
            return;
        };
        let (access, dep) = (operation.access, operation.request.dep);
        let key = operation.request.key.clone();
        let may = access != Access::Blind && !operation.takeover && !operation.told;
        let chain = self.keys.get_mut(&key);
        let Some(chain) = chain.filter(|_| may && !self.is_numbered) else {
            self.refused(sequence, Outcome::Evicted);
            return;
        };
        if chain.known == Known::At(dep) || chain.known == Known::At(version) {
            chain.known = Known::Unknown;
        }
        // A replica that has an older value must not be believed alone.
        chain.refused.push_back(dep);
        if access == Access::Read {
            chain.reads -= 1;
        } else {
            chain.refused.push_back(version);
            chain.updates -= 1;
            chain.unstable -= 1;
        }
        self.requeue(sequence, &key);
        let sent = (access != Access::Read).then_some(sequence);
        self.renumber(&key, sent);
    }

    /// The router knows nothing of a takeover that it was asked for before.
    pub(super) fn forgotten(&mut self, sequence: Sequence) {
        let Some(operation) = self.operations.get(&sequence) else {
            return;
        };
        let key = operation.request.key.clone();
        if let Some(chain) = self.keys.get_mut(&key) {
            chain.known = Known::Unknown;
            chain.unheard = true;
        }
        if self.is_numbered {
            self.refused(sequence, Outcome::Unknown);
            return;
        }
        self.drop_operation(sequence);
        self.renumber(&key, None);
    }

    /// Gives new numbers to all that wait on a key, the first of which may have been sent before.
    fn renumber(&mut self, key: &Key, mut sent: Option<Sequence>) {
        let Some(chain) = self.keys.get_mut(key) else {
            return;
        };
        let mut waiting = std::mem::take(&mut chain.waiting);
        for pending in &mut waiting {
            let before = pending.sequence;
            self.waiting.remove(&before);
            self.deadlines.remove(&(pending.deadline, before));
            pending.sequence = self.number_again(before, sent.take());
            self.waiting.insert(pending.sequence, key.clone());
            self.deadlines.insert((pending.deadline, pending.sequence));
        }
        self.put_back(key, waiting);
    }

    fn put_back(&mut self, key: &Key, waiting: VecDeque<super::Pending>) {
        if let Some(chain) = self.keys.get_mut(key) {
            chain.waiting = waiting;
        }
    }

    /// A new number for an operation. The one by which its caller knows it stays among the unstable ones
    /// until the new one is stable.
    fn number_again(&mut self, sequence: Sequence, sent: Option<Sequence>) -> Sequence {
        let before = self.again.remove(&sequence);
        if before.is_some() {
            self.unstable.remove(&sequence);
        }
        self.last = Sequence(self.last.0 + 2);
        let tried = Tried {
            first: before.map_or(sequence, |it| it.first),
            sent: sent.or_else(|| before.and_then(|it| it.sent)),
        };
        self.again.insert(self.last, tried);
        self.unstable.insert(self.last);
        self.tried_again += 1;
        self.last
    }

    /// Ends an update that is to be tried once more and was executed after all, as a takeover has found,
    /// or may have been, where it found what an earlier takeover had written back.
    pub(super) fn was_executed(&mut self, takeover: Sequence, found: Version, own: bool) {
        let sequence = Sequence(takeover.0 + 1);
        let sent = self.again.get(&sequence).and_then(|it| it.sent);
        let executed = sent.is_some_and(|sent| own || found == self.id(sent).version());
        if !executed {
            return;
        }
        let Some(key) = self.waiting.remove(&sequence) else {
            return;
        };
        let chain = self.keys.get_mut(&key);
        let pending = chain.and_then(|chain| {
            let is_it = |it: &super::Pending| it.sequence == sequence;
            let place = chain.waiting.iter().position(is_it)?;
            chain.waiting.remove(place)
        });
        if let Some(pending) = pending {
            self.end_waiting(&pending, Outcome::Unknown);
        }
    }
}
