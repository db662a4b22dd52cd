//! The order of operations on one key.
//!
//! Each operation names the write before it. The name is known as soon as that write has a number,
//! so writes need not wait for each other. Two kinds of operations must wait. No operation
//! overtakes an unanswered read-modify-write, because a replica keeps only the answer of its last
//! write. No write overtakes an unanswered read, because a replica with a later version cannot
//! answer the read.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::{Destination, Life, Operation, Outcome, Pending, Portal};
use crate::bugs::{Bug, planted};
use crate::config::Level;
use crate::id::{ConfigNumber, Epoch, KeptKey, Key, MonoNs, Sequence, Version};
use crate::machine::Access;
use crate::message::{Ask, Copy, Message, Request};
use crate::rare::Rare;

/// The most refused versions of a key that it remembers. More are hardly ever under way at once.
const REFUSED_MAX: usize = 64;

/// The portal's knowledge of a key's version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Known {
    /// The version is unknown, so the key must be taken over first.
    Unknown,
    /// A takeover is under way.
    Taking,
    /// The version of the last write.
    At(Version),
}

/// The time at which the next operation of a key may be sent.
enum Turn {
    /// At once; it depends on this version.
    Now(Version),
    /// After operations that are under way.
    Later,
    /// After a takeover of the key.
    AfterTakeover,
}

/// The place of a chain among the keys, as long as no chain has moved. To find the chain by its key for
/// each message would cost several misses of the processor's cache.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    index: usize,
    moves: u64,
}

impl Place {
    /// For a takeover, which needs no place.
    const NONE: Self = Self {
        index: 0,
        moves: u64::MAX,
    };
}

/// Hashes nothing: a place decides nothing, and it differs between states that are alike.
impl Hash for Place {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// A key's operations.
#[derive(Debug, Clone, Hash)]
pub(super) struct Chain {
    pub(super) known: Known,
    /// The version of the write that left the key without a state.
    pub(super) deleted_at: Option<Version>,
    /// The latest refused versions, on which operations under way may depend.
    pub(super) refused: Rare<Version>,
    /// True if the last of them was refused because of too few servers, and not for lack of room.
    pub(super) too_few: bool,
    pub(super) reads: u32,
    pub(super) updates: u32,
    /// The number of writes that are not on every replica yet.
    pub(super) unstable: u32,
    /// True if the next answer must report that earlier owners' last writes may be lost.
    pub(super) tail_unknown: bool,
    /// The number up to which all answers must report it. The caller submitted these operations
    /// before it was known, and one that is sent again is answered after the first report.
    pub(super) tail_unknown_through: Sequence,
    /// True if a takeover of this key was sent, and the portal never received its result.
    pub(super) unheard: bool,
    pub(super) waiting: Rare<Pending>,
}

const _: () = assert!(size_of::<Chain>() <= 96, "each byte counts a million times");

impl Chain {
    pub(super) fn new(known: Known) -> Self {
        Self {
            known,
            deleted_at: None,
            refused: Rare::NEW,
            too_few: false,
            reads: 0,
            updates: 0,
            unstable: 0,
            tail_unknown: false,
            tail_unknown_through: Sequence(0),
            unheard: false,
            waiting: Rare::NEW,
        }
    }

    /// Remembers a version that was refused or evicted, and forgets the oldest one beyond the
    /// bound.
    pub(super) fn refuse(&mut self, version: Version) {
        if self.refused.len() == REFUSED_MAX {
            self.refused.pop_front();
        }
        self.refused.push_back(version);
        assert!(
            self.refused.len() <= REFUSED_MAX,
            "they take no more memory"
        );
    }

    /// Notes that a read is over.
    pub(super) fn end_read(&mut self) {
        assert!(
            self.reads > 0,
            "a read ends once: else a write would overtake another"
        );
        self.reads -= 1;
    }

    /// Notes that an update has its answer, or will never have one.
    pub(super) fn end_update(&mut self) {
        assert!(
            self.updates > 0,
            "an update ends once: else another would overtake it"
        );
        assert!(
            self.updates <= self.unstable,
            "an update that is under way is a write"
        );
        self.updates -= 1;
    }

    /// Notes that a write is on every replica, or was refused.
    pub(super) fn end_write(&mut self) {
        assert!(
            self.unstable > 0,
            "a write ends once: else a takeover would replace one that is under way"
        );
        self.unstable -= 1;
    }

    /// Returns when an operation that is the next one may be sent.
    fn turn(&self, access: Access) -> Turn {
        let may = self.updates == 0 && (access == Access::Read || self.reads == 0);
        match self.known {
            Known::At(version) if may => Turn::Now(version),
            Known::Unknown if access == Access::Blind && may => Turn::Now(Version::NONE),
            Known::Unknown if access == Access::Blind => Turn::Later,
            // The write-back of a takeover would replace writes that some replica lacks.
            Known::Unknown if self.unstable > 0 => Turn::Later,
            // A server may execute a refused write late, and a read under way may return that
            // write. The takeover may have received this server's state before.
            Known::Unknown if self.reads > 0 => Turn::Later,
            Known::Unknown => Turn::AfterTakeover,
            Known::At(_) | Known::Taking => Turn::Later,
        }
    }

    /// Returns whether the answer could rest on an older value than was once acknowledged, and the
    /// caller refuses such an answer.
    fn is_in_doubt(&self, pending: &Pending) -> bool {
        pending.submission.refuses_doubt
            && pending.submission.access != Access::Blind
            && (self.tail_unknown || pending.sequence <= self.tail_unknown_through)
    }

    fn is_idle(&self) -> bool {
        self.reads == 0 && self.updates == 0 && self.waiting.is_empty()
    }

    /// Returns whether the version is unknown, and only some replicas may have a refused write or
    /// the write-back of a takeover.
    fn is_touched(&self) -> bool {
        self.known == Known::Unknown && (self.unheard || !self.refused.is_empty())
    }
}

impl Portal {
    /// Returns the index of a key's chain, and creates the chain if the key is new.
    pub(super) fn chain_of(&mut self, key: &Key) -> usize {
        if self.keys.len() >= self.params.keys_max && !self.keys.contains_key(key) {
            self.forget_one();
        }
        // In a session that never had an owner every key is new.
        let fresh = self.epoch_of(key) == Epoch(1) && !self.forgot;
        let known = if fresh {
            Known::At(Version::NONE)
        } else {
            Known::Unknown
        };
        let unheard = self.forgot_touched;
        self.keys.get_index_of(key).unwrap_or_else(|| {
            let chain = Chain {
                unheard,
                ..Chain::new(known)
            };
            self.keys.insert_full(KeptKey::from(key), chain).0
        })
    }

    fn place(&self, index: usize) -> Place {
        let moves = self.moves;
        Place { index, moves }
    }

    /// Returns the index of the chain of an operation's key.
    pub(super) fn index_of(&self, operation: &Operation) -> Option<usize> {
        let Place { index, moves } = operation.place;
        let key = &operation.request.key;
        if moves != self.moves {
            return self.keys.get_index_of(key);
        }
        debug_assert!(
            self.keys.get_index_of(key) == Some(index),
            "{key:?} is not at {index}, though no key has moved"
        );
        Some(index)
    }

    fn forget_one(&mut self) {
        let stable = self.stable();
        let is_idle = |(key, chain): (&KeptKey, &Chain)| {
            let settled = match chain.known {
                Known::At(version) => {
                    version.epoch != self.epoch_in(key.session()) || version.sequence <= stable
                }
                // A takeover was refused. The next operation takes the key over in any case.
                Known::Unknown => chain.unstable == 0,
                Known::Taking => false,
            };
            settled && chain.is_idle()
        };
        // It tries a few keys at the front only, so that a full map of busy keys costs no walk for
        // each operation.
        let mut front = self.keys.iter().take(64);
        // A key in doubt is kept until a caller is notified, as long as another key can go.
        let told = front.position(|it| is_idle(it) && !it.1.tail_unknown && !it.1.is_touched());
        let mut front = self.keys.iter().take(64);
        if let Some(index) = told.or_else(|| front.position(is_idle)) {
            let forgotten = self.keys.swap_remove_index(index);
            self.moves += 1;
            assert!(
                forgotten.as_ref().is_none_or(|(_, it)| it.unstable == 0),
                "a write that some replica lacks needs its key: the next one names it"
            );
            self.forgot = true;
            if let Some((_, chain)) = forgotten {
                self.forgot_untold |= chain.tail_unknown;
                self.forgot_touched |= chain.is_touched();
            }
        }
    }

    /// Sends an operation, or queues it behind others on its key. The key's chain is at `index`.
    pub(super) fn send_or_queue(&mut self, now: MonoNs, key: &Key, index: usize, pending: Pending) {
        self.forget_deletion(key, index);
        let chain = &mut self.keys[index];
        if chain.waiting.is_empty()
            && let Turn::Now(dep) = chain.turn(pending.submission.access)
            && !chain.is_in_doubt(&pending)
        {
            self.keep_queue(index);
            self.send(now, key, index, pending, dep);
            return;
        }
        if !chain.waiting.is_made() {
            std::mem::swap(&mut chain.waiting, &mut self.spare);
        }
        self.waiting.insert(pending.sequence, key.clone());
        chain.waiting.push_back(pending);
        self.pump_at(now, key, index);
    }

    /// Takes the memory of a key's empty queue, for the next key that needs one.
    fn keep_queue(&mut self, index: usize) {
        let chain = &mut self.keys[index];
        if chain.waiting.is_made() && chain.waiting.is_empty() {
            self.spare = std::mem::take(&mut chain.waiting);
        }
    }

    /// Sends the queued operations of a key that need not wait.
    pub(super) fn pump(&mut self, now: MonoNs, key: &Key) {
        if let Some(index) = self.keys.get_index_of(key) {
            self.pump_at(now, key, index);
        }
    }

    /// Like [`Self::pump`], for a key whose chain is at `index`.
    pub(super) fn pump_at(&mut self, now: MonoNs, key: &Key, index: usize) {
        loop {
            self.forget_deletion(key, index);
            let chain = &mut self.keys[index];
            let Some(front) = chain.waiting.front() else {
                self.keep_queue(index);
                return;
            };
            let dep = match chain.turn(front.submission.access) {
                Turn::Now(dep) => dep,
                Turn::Later => return,
                Turn::AfterTakeover => {
                    let sequence = Sequence(front.sequence.0 - 1);
                    // A forgotten key was the same on every replica, unless an earlier takeover
                    // wrote back to some of them or a refused write was executed.
                    let untouched = (chain.refused.is_empty() && !chain.unheard)
                        || planted(Bug::FirstReplyBelieved);
                    self.take_over(now, key, sequence, untouched);
                    return;
                }
            };
            let Some(pending) = chain.waiting.pop_front() else {
                return;
            };
            self.waiting.remove(&pending.sequence);
            if chain.is_in_doubt(&pending) {
                self.end_waiting(&pending, Outcome::TailUnknown);
                continue;
            }
            self.send(now, key, index, pending, dep);
        }
    }

    /// Forgets the version of a deletion that every replica has, as the servers do.
    fn forget_deletion(&mut self, key: &Key, index: usize) {
        let chain = &self.keys[index];
        if let (Known::At(version), Some(deleted)) = (chain.known, chain.deleted_at)
            && version == deleted
            && version.epoch == self.epoch_of(key)
            && version.sequence <= self.stable()
        {
            // `deleted_at` stays, because a read under way may still depend on the deletion.
            self.keys[index].known = Known::At(Version::NONE);
        }
    }

    fn send(&mut self, now: MonoNs, key: &Key, index: usize, pending: Pending, dep: Version) {
        let id = self.id(key, pending.sequence);
        assert!(
            !pending.sequence.is_takeover(),
            "odd numbers are for takeovers: one would have the version of the other"
        );
        let access = pending.submission.access;
        let stable = self.stable();
        let chain = &mut self.keys[index];
        // Every answer reports the doubt until one has reached the caller.
        let tail_unknown = chain.tail_unknown || pending.sequence <= chain.tail_unknown_through;
        assert!(
            chain.updates == 0,
            "a replica keeps the answer of its last write only: nothing overtakes an update"
        );
        assert!(
            access == Access::Read || chain.reads == 0,
            "a replica that has gone on cannot answer a read: no write overtakes one"
        );
        assert!(
            chain.known != Known::Taking,
            "what a takeover finds would replace a write that it did not see"
        );
        match access {
            Access::Read => chain.reads += 1,
            Access::Update => chain.updates += 1,
            Access::Blind => {}
        }
        // A read stays in `unstable` until it is answered. It may still need the takeover with the
        // number below it, which must not be called stable before.
        if access != Access::Read {
            chain.known = Known::At(id.version());
            chain.unstable += 1;
        }
        let request = Request {
            id,
            dep,
            key: key.clone(),
            ask: Ask::Apply {
                operation: pending.submission.operation,
                access,
            },
            level: pending.submission.level,
            at: pending.submission.at,
            stable,
            clean_since: None,
            opened_in: ConfigNumber(0),
            quorum_earlier: 1,
            timeout: pending.submission.timeout,
        };
        let operation = Operation {
            request: Arc::new(request),
            access,
            takeover: false,
            answered: false,
            told: false,
            seen: false,
            driven: now,
            deadline: pending.deadline,
            tail_unknown,
            refuses_doubt: pending.submission.refuses_doubt,
            place: self.place(index),
        };
        self.drive(now, pending.sequence, operation);
    }

    pub(super) fn take_over(
        &mut self,
        now: MonoNs,
        key: &Key,
        sequence: Sequence,
        untouched: bool,
    ) {
        let id = self.id(key, sequence);
        assert!(
            sequence.is_takeover() && !self.operations.contains(sequence),
            "a takeover has a number of its own: two may find two states"
        );
        // Inserted first, because a takeover that is sent anew may be the only number that is not
        // stable.
        self.unstable.insert(sequence, 0);
        let stable = self.stable();
        let part = self.part(key.session());
        let clean_since = part.and_then(|it| it.clean_since);
        let opened_in = part.map_or(ConfigNumber(0), |it| it.opened_in);
        let quorum_earlier = part.map_or(1, |it| it.quorum_earlier);
        if let Some(chain) = self.keys.get_mut(key) {
            assert!(
                chain.known != Known::Taking,
                "one takeover of a key at a time"
            );
            assert!(
                (chain.reads, chain.updates, chain.unstable) == (0, 0, 0),
                "the result of a takeover would replace operations under way"
            );
            chain.known = Known::Taking;
        }
        let request = Request {
            id,
            dep: Version::NONE,
            key: key.clone(),
            ask: Ask::Touch,
            level: Level::First,
            at: self.at,
            stable,
            // For a forgotten key, a version of this epoch is its last one.
            clean_since: clean_since.or(Some(id.epoch)).filter(|_| untouched),
            opened_in,
            // This owner's own refused write, or takeover, may be on a single server.
            quorum_earlier: if untouched { quorum_earlier } else { 1 },
            // A takeover has no timeout: the operation that waits for it has its own.
            timeout: crate::id::DurationNs(u64::MAX / 4),
        };
        let operation = Operation {
            request: Arc::new(request),
            access: Access::Update,
            takeover: true,
            answered: false,
            told: true,
            seen: false,
            driven: now,
            deadline: MonoNs(u64::MAX),
            tail_unknown: false,
            refuses_doubt: false,
            place: Place::NONE,
        };
        self.drive(now, sequence, operation);
    }

    /// Sends an operation to the router, which does not have it yet.
    pub(super) fn drive(&mut self, now: MonoNs, sequence: Sequence, mut operation: Operation) {
        operation.driven = now;
        self.hand_over(sequence, operation, 0);
    }

    /// Repeats an operation to a router that may have it already.
    pub(super) fn send_again(&mut self, sequence: Sequence, operation: Operation) {
        self.hand_over(sequence, operation, 1);
    }

    fn hand_over(&mut self, sequence: Sequence, operation: Operation, attempt: u8) {
        let request = &operation.request;
        assert!(
            request.stable < sequence && request.id.sequence == sequence,
            "{sequence:?} is under way, but counts as being on every replica: {:?}",
            request.stable
        );
        assert!(
            self.unstable.contains(sequence),
            "{sequence:?} would count as stable while it is under way"
        );
        assert_eq!(
            operation.takeover,
            request.ask == Ask::Touch,
            "{sequence:?}: takeovers, and no other operations, ask servers for their states"
        );
        let copy = Copy {
            request: Arc::clone(&operation.request),
            config: ConfigNumber(0),
            attempt,
        };
        self.operations.insert(sequence, operation);
        if !matches!(self.life, Life::Fenced(_)) {
            self.outbox
                .push_back((Destination::Router, Message::Request(copy)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_evicted_again_and_again_takes_no_more_memory() {
        let mut chain = Chain::new(Known::Unknown);
        for sequence in 0..1_000 {
            chain.refuse(Version {
                epoch: Epoch(1),
                sequence: Sequence(sequence),
            });
        }
        assert_eq!(chain.refused.len(), REFUSED_MAX);
        assert_eq!(chain.refused.back().map(|it| it.sequence.0), Some(999));
    }
}
