//! A record of a key in little memory.
//!
//! The key, the state and the answer of its last write stand one after the other in one allocation.
//! A server has millions of records, so each further allocation and each pointer counts.

use std::hash::{Hash, Hasher};
use std::ops::Range;

use bytes::Bytes;
use indexmap::Equivalent;

use crate::id::{Epoch, Key, SessionId, Version};
use crate::machine::{StateMachine, digest};
use crate::message::State;

/// The length in place of a state's that stands for no state.
const NO_STATE: u32 = u32::MAX;

/// The place of a record that is not in the list of values.
const NO_PLACE: u32 = u32::MAX;

/// The memory of a record without its allocation, in bytes: itself, its hash, and its share of the
/// index and of the list of values. The index takes 10 to 21 bytes of a record and the list 4 to 8,
/// both the less the fuller they are.
const FIXED_BYTES: usize = size_of::<Record>() + size_of::<usize>() + 22;

const _: () = assert!(
    size_of::<Record>() == 56,
    "each byte counts a million times"
);

/// Returns the memory of a record whose key, state and answer have this many bytes together.
#[must_use]
pub const fn record_bytes(contents: usize) -> usize {
    FIXED_BYTES + allocation_bytes(contents)
}

/// Returns the memory that an allocation takes: a multiple of 16 bytes, 32 at least, 8 of which are
/// the allocator's.
const fn allocation_bytes(bytes: usize) -> usize {
    let whole = (bytes + 8).next_multiple_of(16);
    if whole < 32 { 32 } else { whole }
}

/// What a replica keeps of a key: its version, its state, and the answer of its last write.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) version: Version,
    /// The bytes of the key, the snapshot of the state, and the answer.
    contents: Box<[u8]>,
    session: SessionId,
    /// See [`State::written_in`].
    pub(crate) written_in: Epoch,
    state_bytes: u32,
    /// The time of its last use, counted in operations; wraps after four thousand million.
    pub(super) used: u32,
    place: u32,
    key_bytes: u16,
    evicted: bool,
}

impl Record {
    /// Returns a record of a key, with the snapshot of its state.
    ///
    /// # Panics
    ///
    /// When it is of no write, or too long for any message.
    pub(crate) fn new(
        key: &Key,
        (version, written_in): (Version, Epoch),
        snapshot: Option<&[u8]>,
        answer: &[u8],
    ) -> Self {
        assert!(
            version != Version::NONE,
            "a record is of some write: without one there is none"
        );
        let state_bytes =
            snapshot.map_or(NO_STATE, |it| u32::try_from(it.len()).unwrap_or(NO_STATE));
        assert!(
            snapshot.is_none() || state_bytes < NO_STATE,
            "{key:?}: a state has at most as many bytes as a message"
        );
        let key_bytes = u16::try_from(key.bytes().len()).unwrap_or(u16::MAX);
        assert!(
            usize::from(key_bytes) == key.bytes().len(),
            "{key:?}: a key is short"
        );
        Self {
            version,
            contents: [key.bytes(), snapshot.unwrap_or_default(), answer]
                .concat()
                .into(),
            session: key.session(),
            written_in,
            state_bytes,
            used: 0,
            place: NO_PLACE,
            key_bytes,
            evicted: false,
        }
    }

    fn state_range(&self) -> Range<usize> {
        let begin = usize::from(self.key_bytes);
        let state_bytes = if self.is_tombstone() {
            0
        } else {
            self.state_bytes as usize
        };
        begin..begin + state_bytes
    }

    /// Returns the key. It is copied.
    pub(crate) fn key(&self) -> Key {
        Key::of_record(self.session, Bytes::copy_from_slice(self.key_bytes()))
    }

    /// Returns the hash of the key.
    pub(crate) fn key_hash(&self) -> u64 {
        Key::hash_of(self.session, self.key_bytes())
    }

    pub(crate) fn key_bytes(&self) -> &[u8] {
        &self.contents[..usize::from(self.key_bytes)]
    }

    pub(crate) fn session(&self) -> SessionId {
        self.session
    }

    /// Returns the snapshot of the state; `None` without a state.
    pub(crate) fn snapshot(&self) -> Option<&[u8]> {
        (!self.is_tombstone()).then(|| &self.contents[self.state_range()])
    }

    /// Returns the state; `None` if there is none.
    ///
    /// # Panics
    ///
    /// When the machine cannot read its own snapshot.
    pub(crate) fn state<M: StateMachine>(&self, machine: &M) -> Option<M::State> {
        let state = machine.restore(self.snapshot()?).ok();
        assert!(
            state.is_some(),
            "a record has the snapshot of a state that the machine had"
        );
        state
    }

    /// Returns the answer of the last write.
    pub(crate) fn answer(&self) -> &[u8] {
        &self.contents[self.state_range().end..]
    }

    /// Returns whether the key has no value, only a version: it was deleted or evicted.
    pub(crate) fn is_tombstone(&self) -> bool {
        self.state_bytes == NO_STATE
    }

    pub(crate) fn is_evicted(&self) -> bool {
        self.evicted
    }

    /// Marks a record without a state as evicted.
    ///
    /// # Panics
    ///
    /// When it has a state.
    pub(super) fn mark_evicted(&mut self) {
        assert!(
            self.is_tombstone(),
            "a record that was evicted has no value"
        );
        self.evicted = true;
    }

    /// Drops the state and the answer. The version stays.
    pub(super) fn evict(&mut self) {
        self.contents = self.key_bytes().into();
        self.state_bytes = NO_STATE;
        self.mark_evicted();
    }

    /// Returns its index into the list of values.
    pub(super) fn place(&self) -> Option<u32> {
        (self.place != NO_PLACE).then_some(self.place)
    }

    pub(super) fn set_place(&mut self, place: Option<u32>) {
        self.place = place.unwrap_or(NO_PLACE);
    }

    /// Returns the bytes of the key, the state and the answer.
    pub(super) fn contents_bytes(&self) -> usize {
        self.contents.len()
    }

    /// Returns the digest of the state; 0 if it was evicted, since it is unknown then.
    pub(crate) fn digest(&self) -> u64 {
        if self.evicted {
            0
        } else {
            digest(self.snapshot())
        }
    }

    /// Returns the record as it is sent to another replica.
    pub(crate) fn told(&self) -> State {
        assert!(
            self.is_tombstone() || !self.evicted,
            "a receiver of the state would miss a value that exists"
        );
        State {
            version: self.version,
            written_in: self.written_in,
            digest: digest(self.snapshot()),
            snapshot: self.snapshot().map(Bytes::copy_from_slice),
            answer: Bytes::copy_from_slice(self.answer()),
            evicted: self.evicted,
        }
    }
}

impl std::fmt::Debug for Record {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:?} at {}", self.key(), self.version)
    }
}

/// Hashes what decides on answers. The fields that only choose a value to evict are left out.
impl Hash for Record {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.session, self.key_bytes(), self.version).hash(hasher);
        (self.snapshot(), self.answer(), self.evicted).hash(hasher);
    }
}

/// A record in a set, where its key alone identifies it.
#[derive(Debug, Clone)]
pub(super) struct ByKey(pub(super) Record);

impl PartialEq for ByKey {
    fn eq(&self, other: &Self) -> bool {
        (self.0.session, self.0.key_bytes()) == (other.0.session, other.0.key_bytes())
    }
}

impl Eq for ByKey {}

impl Hash for ByKey {
    /// Hashes like the [`Key`].
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.key_hash());
    }
}

impl Equivalent<ByKey> for Key {
    fn equivalent(&self, record: &ByKey) -> bool {
        (self.session(), &self.bytes()[..]) == (record.0.session, record.0.key_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Sequence;

    fn record(snapshot: Option<&[u8]>, answer: &[u8]) -> Record {
        let key = Key::new(SessionId(7), Bytes::from_static(b"key")).unwrap();
        let version = Version {
            epoch: Epoch(2),
            sequence: Sequence(4),
        };
        Record::new(&key, (version, Epoch(1)), snapshot, answer)
    }

    #[test]
    fn a_record_gives_back_each_of_its_parts() {
        for snapshot in [None, Some(&b""[..]), Some(&b"state"[..])] {
            for answer in [&b""[..], b"answer"] {
                let record = record(snapshot, answer);
                assert_eq!(record.key_bytes(), b"key");
                assert_eq!(record.snapshot(), snapshot);
                assert_eq!(record.answer(), answer);
                assert_eq!(record.is_tombstone(), snapshot.is_none());
                assert_eq!(record.key().session(), SessionId(7));
            }
        }
    }

    #[test]
    fn an_evicted_record_has_its_key_and_version_left() {
        let mut record = record(Some(b"state"), b"answer");
        let version = record.version;
        record.evict();
        assert_eq!((record.key_bytes(), record.version), (&b"key"[..], version));
        assert_eq!((record.snapshot(), record.answer()), (None, &b""[..]));
        assert_eq!((record.digest(), record.contents_bytes()), (0, 3));
    }

    #[test]
    fn a_key_finds_its_record_by_the_same_hash() {
        let set = indexmap::IndexSet::<ByKey>::from([ByKey(record(None, b""))]);
        for (session, bytes, found) in [(7, "key", true), (8, "key", false), (7, "kex", false)] {
            let key = Key::new(SessionId(session), Bytes::from(bytes)).unwrap();
            assert_eq!(set.contains(&key), found, "{key:?}");
        }
    }
}
