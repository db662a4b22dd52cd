//! Operations that are tried once more under another number.
//!
//! *Forgotten.* A takeover must not write back twice under one number. The second attempt may read
//! another state while a server still holds the first, and one version would then have two states.
//! A router that has no record of a repeated takeover therefore reports this, and the portal uses a
//! new number.
//!
//! *Evicted.* A server that has evicted a value keeps the version for a while, but cannot execute
//! an operation that depends on the value. When no replica has the value, the portal takes the key
//! over. The takeover reads a deletion, or the value from a replica that had not answered, and the
//! portal then repeats the operation. The caller sees a key that does not exist, as in any cache. A
//! late copy of the first attempt may still be executed. If the takeover reads its result, the
//! outcome is unknown.
//!
//! Versions of a key grow in the order of its operations, so the operations that wait behind get
//! new numbers too. Callers keep using the first number.

use super::chain::Known;
use super::{Outcome, Portal};
use crate::id::{Key, Sequence, Version};
use crate::machine::Access;

/// Former numbers of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Tried {
    /// The number that the caller uses.
    pub(super) first: Sequence,
    /// The number under which an update was last sent; `None` if it was never sent.
    sent: Option<Sequence>,
}

impl Portal {
    /// Repeats an operation after a takeover, because no replica has the value that it depends on.
    pub(super) fn evicted(&mut self, sequence: Sequence) {
        let Some(operation) = self.operations.get(sequence) else {
            return;
        };
        let version = operation.request.id.version();
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
        // One replica alone is no proof: it may have an older value.
        chain.refuse(dep);
        if access == Access::Read {
            chain.end_read();
        } else {
            chain.refuse(version);
            chain.end_update();
            chain.end_write();
        }
        self.requeue(sequence, &key);
        let sent = (access != Access::Read).then_some(sequence);
        self.renumber(&key, sent);
    }

    /// Begins a takeover under a new number, because the router has no record of the first.
    pub(super) fn forgotten(&mut self, sequence: Sequence) {
        let Some(operation) = self.operations.get(sequence) else {
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

    /// Gives new numbers to the operations that wait on a key. `sent` is the number under which the
    /// first of them was sent before.
    fn renumber(&mut self, key: &Key, mut sent: Option<Sequence>) {
        let Some(chain) = self.keys.get_mut(key) else {
            return;
        };
        if chain.waiting.is_empty() {
            return;
        }
        let mut waiting = std::mem::take(&mut chain.waiting);
        for pending in waiting.iter_mut() {
            let before = pending.sequence;
            self.waiting.remove(&before);
            self.deadlines.remove(&(pending.deadline, before));
            pending.sequence = self.number_again(before, sent.take());
            self.waiting.insert(pending.sequence, key.clone());
            self.deadlines.insert((pending.deadline, pending.sequence));
        }
        if let Some(chain) = self.keys.get_mut(key) {
            chain.waiting = waiting;
        }
    }

    /// Returns a new number for an operation. For the servers nothing goes by the former one any
    /// more, so that it holds back no proof of a loss; for the caller its number is stable when the
    /// new one is.
    fn number_again(&mut self, sequence: Sequence, sent: Option<Sequence>) -> Sequence {
        assert!(
            !self.is_numbered && !self.operations.contains(sequence),
            "only a waiting operation gets another number, and only one that the portal numbers"
        );
        let before = self.again.remove(&sequence);
        let bytes = self.unstable.remove(sequence);
        self.last = Sequence(self.last.0 + 2);
        assert!(sequence < self.last, "a key's versions grow");
        let tried = Tried {
            first: before.map_or(sequence, |it| it.first),
            sent: sent.or_else(|| before.and_then(|it| it.sent)),
        };
        assert!(
            tried
                .sent
                .is_none_or(|sent| tried.first <= sent && sent < self.last),
            "an operation was sent before under an earlier number"
        );
        self.again.insert(self.last, tried);
        self.unstable.insert(self.last, bytes);
        self.tried_again += 1;
        self.last
    }

    /// Ends a waiting update as unknown if a takeover found that its first attempt was executed. If
    /// the takeover found the write-back of an earlier takeover (`own`), the first attempt may have
    /// been.
    pub(super) fn was_executed(&mut self, takeover: Sequence, found: Version, own: bool) {
        let sequence = Sequence(takeover.0 + 1);
        let sent = self.again.get(&sequence).and_then(|it| it.sent);
        let Some(key) = self.waiting.get(&sequence).cloned() else {
            return;
        };
        let executed = sent.is_some_and(|sent| own || found == self.id(&key, sent).version());
        if !executed {
            return;
        }
        self.waiting.remove(&sequence);
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
