//! The records of a shard: for each key its version, its state, and the answer of its last write.
//!
//! A deleted key keeps its version (a tombstone) until every replica has the deletion. An evicted
//! key keeps its version until every replica has had the value. Without the version, a delayed
//! write would bring an old value back.

use std::collections::BTreeMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use bytes::Bytes;
use indexmap::IndexMap;
use indexmap::map::Entry;

use crate::bugs::{Bug, planted};
use crate::id::{Epoch, Key, Sequence, SessionId, Version};
use crate::machine::{StateMachine, digest};
use crate::message::State;

/// Bytes that a record takes in addition to its key, state and answer.
const RECORD_BYTES: usize = 96;

/// Bytes that a deleted or evicted key takes in addition to its record, for its place in the order
/// of versions.
const TOMBSTONE_BYTES: usize = 64;

/// The number of records among which an eviction takes the least recently used one.
const SAMPLE: usize = 8;

const _: () = assert!(SAMPLE > 0, "an eviction looks at some record");

/// A hasher that returns a key's own hash.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxhash_rust::xxh3::xxh3_64(bytes);
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// A replica's record of a key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Record<S> {
    pub(crate) version: Version,
    /// See [`State::written_in`].
    pub(crate) written_in: Epoch,
    pub(crate) state: Option<S>,
    pub(crate) answer: Bytes,
    pub(crate) evicted: bool,
    /// The time of its last use, counted in operations; wraps after four thousand million.
    used: u32,
    /// Index into [`Table::values`]; `None` for a record without a value.
    place: Option<u32>,
}

impl<S> Record<S> {
    /// Returns whether the key has no value, only a version: it was deleted or evicted.
    pub(crate) fn is_tombstone(&self) -> bool {
        self.state.is_none()
    }
}

/// The records of a shard.
#[derive(Debug, Clone)]
pub(crate) struct Table<M: StateMachine> {
    records: IndexMap<Key, Record<M::State>, BuildHasherDefault<KeyHasher>>,
    /// The deleted and evicted keys of each session, the oldest version first.
    tombstones: BTreeMap<(SessionId, Version), Key>,
    /// Indices of the records that have a value, in no order; an eviction samples them.
    values: Vec<u32>,
    bytes: usize,
    clock: u32,
    /// Index into `values` at which the next eviction begins its sample.
    hand: usize,
    evictions: u64,
}

/// Hashes the records in their order, which scans follow. The fields that only choose a value to
/// evict are left out.
impl<M: StateMachine<State: Hash>> Hash for Table<M> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        for (key, record) in &self.records {
            Hash::hash(key, hasher);
            record.version.hash(hasher);
            record.state.hash(hasher);
            record.answer.hash(hasher);
            record.evicted.hash(hasher);
        }
        self.records.len().hash(hasher);
    }
}

impl<M: StateMachine> Table<M> {
    pub(crate) fn new() -> Self {
        Self {
            records: IndexMap::default(),
            tombstones: BTreeMap::new(),
            values: Vec::new(),
            bytes: 0,
            clock: 0,
            hand: 0,
            evictions: 0,
        }
    }

    pub(crate) fn find(&mut self, key: &Key) -> Option<&Record<M::State>> {
        self.clock = self.clock.wrapping_add(1);
        let clock = self.clock;
        let record = self.records.get_mut(key)?;
        record.used = clock;
        Some(record)
    }

    /// Returns a key's record, which counts as no use of it.
    pub(crate) fn peek(&self, key: &Key) -> Option<&Record<M::State>> {
        self.records.get(key)
    }

    /// Returns all records, in no particular order.
    pub(crate) fn into_records(self) -> impl Iterator<Item = (Key, Record<M::State>)> {
        self.records.into_iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Returns the record at a place. Places change only when a record is removed.
    pub(crate) fn at(&self, index: usize) -> Option<(&Key, &Record<M::State>)> {
        self.records.get_index(index)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Key, &Record<M::State>)> {
        self.records.iter()
    }

    fn size(machine: &M, key: &Key, record: &Record<M::State>) -> usize {
        let state = record
            .state
            .as_ref()
            .map_or(0, |state| machine.size_bytes(state));
        let order = if record.is_tombstone() {
            TOMBSTONE_BYTES
        } else {
            0
        };
        RECORD_BYTES + key.bytes().len() + record.answer.len() + state + order
    }

    /// Returns the bytes by which storing this would grow the table.
    pub(crate) fn growth(
        &self,
        machine: &M,
        key: &Key,
        state: Option<&M::State>,
        answer: &Bytes,
    ) -> usize {
        let after = state.map_or(0, |state| machine.size_bytes(state)) + answer.len();
        match self.records.get(key) {
            None => RECORD_BYTES + key.bytes().len() + after,
            Some(record) => {
                let held = record
                    .state
                    .as_ref()
                    .map_or(0, |state| machine.size_bytes(state));
                after.saturating_sub(held + record.answer.len())
            }
        }
    }

    /// Makes this the key's state.
    ///
    /// # Panics
    ///
    /// When its version would go back.
    pub(crate) fn store(
        &mut self,
        machine: &M,
        key: Key,
        (version, written_in): (Version, Epoch),
        state: Option<M::State>,
        answer: Bytes,
    ) {
        let record = Record {
            version,
            written_in,
            state,
            answer,
            evicted: false,
            used: self.clock,
            place: None,
        };
        self.put(machine, key, record);
    }

    /// Makes this the key's record.
    ///
    /// # Panics
    ///
    /// When its version would go back.
    pub(crate) fn put(&mut self, machine: &M, key: Key, record: Record<M::State>) {
        assert!(
            record.state.is_none() || !record.evicted,
            "a record that was evicted has no value"
        );
        assert!(
            record.version != Version::NONE,
            "a record is of some write: without one there is none"
        );
        let version = record.version;
        let record = Record {
            used: self.clock,
            place: None,
            ..record
        };
        self.bytes += Self::size(machine, &key, &record);
        let deleted = record.is_tombstone().then(|| key.clone());
        let index = match self.records.entry(key) {
            Entry::Occupied(mut held) => {
                let old = held.get().version;
                // I2: a replica never goes back within one incarnation.
                assert!(
                    old <= version || planted(Bug::PushGoesBack),
                    "{:?} would go back from {old} to {version}",
                    held.key()
                );
                self.bytes -= Self::size(machine, held.key(), held.get());
                Self::drop_from_order(&mut self.tombstones, held.key(), held.get());
                let place = held.get().place;
                *held.get_mut() = Record { place, ..record };
                held.index()
            }
            Entry::Vacant(free) => {
                let index = free.index();
                free.insert(record);
                index
            }
        };
        self.note_value(index);
        if let Some(key) = deleted {
            self.tombstones.insert((key.session(), version), key);
        }
        self.check_counts();
    }

    /// Checks what can be compared without looking at the records.
    fn check_counts(&self) {
        let (records, values, deleted) =
            (self.records.len(), self.values.len(), self.tombstones.len());
        assert!(
            values + deleted <= records,
            "a record has a value, or a place among the deletions, or neither: {values} and \
             {deleted} of {records}"
        );
        let least = records * RECORD_BYTES + deleted * TOMBSTONE_BYTES;
        assert!(
            self.bytes >= least,
            "each record counts its fixed part: {} bytes of at least {least}",
            self.bytes
        );
        assert!(records > 0 || self.bytes == 0, "no record takes no memory");
    }

    /// Checks everything, record by record; for the simulation.
    ///
    /// # Panics
    ///
    /// When a total, an index or an order does not agree with the records.
    pub(crate) fn verify(&self, machine: &M) {
        self.check_counts();
        let (mut bytes, mut values) = (0, 0);
        for (index, (key, record)) in self.records.iter().enumerate() {
            bytes += Self::size(machine, key, record);
            values += usize::from(record.state.is_some());
            assert_eq!(
                record.place.is_some(),
                record.state.is_some(),
                "{key:?}: an eviction finds the records with a value and no other"
            );
            if let Some(place) = record.place {
                let found = usize::try_from(place).ok();
                let found = found.and_then(|it| self.values.get(it).copied());
                let index = u32::try_from(index).ok();
                assert_eq!(found, index, "{key:?}: its place leads back to it");
            }
            assert!(
                record.answer.is_empty() || !record.evicted,
                "{key:?}: an evicted record has no answer"
            );
        }
        assert_eq!(self.bytes, bytes, "the total is the sum of the records");
        assert_eq!(self.values.len(), values, "each value is listed once");
        for ((session, version), key) in &self.tombstones {
            let record = self.records.get(key);
            assert!(
                record.is_some_and(|it| it.is_tombstone() && it.version == *version),
                "{key:?}: the order of deletions has nothing but deletions, by their versions"
            );
            assert_eq!(key.session(), *session, "{key:?}: each in its session");
        }
    }

    /// Updates `values` after the record at this index has gained or lost its value.
    fn note_value(&mut self, index: usize) {
        let Some((_, record)) = self.records.get_index_mut(index) else {
            return;
        };
        match (record.state.is_some(), record.place) {
            (true, None) => {
                // A table has far fewer than 2^32 records.
                record.place = u32::try_from(self.values.len()).ok();
                assert!(record.place.is_some(), "{index} records are too many");
                self.values.push(u32::try_from(index).unwrap_or(u32::MAX));
            }
            (false, Some(place)) => {
                record.place = None;
                self.leave_values(place);
            }
            _ => {}
        }
    }

    /// Removes an entry of `values`; the last entry moves to its place.
    fn leave_values(&mut self, place: u32) {
        let at = usize::try_from(place).unwrap_or(usize::MAX);
        let last = u32::try_from(self.values.len() - 1).ok();
        self.values.swap_remove(at);
        if let Some(moved) = self.values.get(at)
            && let Some(record) = self.value_mut(*moved)
        {
            assert_eq!(record.place, last, "the last value fills the gap");
            record.place = Some(place);
        }
    }

    fn value_mut(&mut self, index: u32) -> Option<&mut Record<M::State>> {
        let index = usize::try_from(index).ok()?;
        self.records.get_index_mut(index).map(|(_, record)| record)
    }

    /// Removes a record that changes or goes from the order of deletions, if it was a deletion.
    fn drop_from_order(
        tombstones: &mut BTreeMap<(SessionId, Version), Key>,
        key: &Key,
        record: &Record<M::State>,
    ) {
        let place = (key.session(), record.version);
        if record.is_tombstone() && tombstones.get(&place) == Some(key) {
            tombstones.remove(&place);
        }
    }

    /// Returns the oldest deleted or evicted key of a session's epoch, if its version is not newer
    /// than this.
    pub(crate) fn deleted_until(
        &self,
        session: SessionId,
        epoch: Epoch,
        until: Sequence,
    ) -> Option<&Key> {
        let place = |sequence| (session, Version { epoch, sequence });
        let mut found = self.tombstones.range(place(Sequence(0))..=place(until));
        let key = found.next().map(|(_, key)| key);
        debug_assert!(
            key.and_then(|key| self.records.get(key))
                .is_none_or(|it| it.is_tombstone() && it.version.epoch == epoch),
            "{key:?}: a key with a value would be forgotten"
        );
        key
    }

    /// Returns the first session from this one on that has deleted or evicted keys.
    pub(crate) fn deleted_in(&self, from: SessionId) -> Option<SessionId> {
        let mut found = self.tombstones.range((from, Version::NONE)..);
        found.next().map(|((session, _), _)| *session)
    }

    /// Returns the number of deleted or evicted keys, whose versions are kept until every replica
    /// has them.
    pub(crate) fn tombstones(&self) -> usize {
        self.tombstones.len()
    }

    /// Marks a key that was stored without a value as evicted by another replica.
    pub(crate) fn mark_evicted(&mut self, key: &Key) {
        if let Some(record) = self.records.get_mut(key) {
            record.evicted = record.state.is_none();
        }
    }

    /// Removes a key, and returns the record that there was of it.
    pub(crate) fn take(&mut self, machine: &M, key: &Key) -> Option<Record<M::State>> {
        let (index, key, mut record) = self.records.swap_remove_full(key)?;
        self.bytes -= Self::size(machine, &key, &record);
        Self::drop_from_order(&mut self.tombstones, &key, &record);
        // The last record has moved to the freed index, unless the removed one was the last.
        let moved = self.records.get_index(index);
        if let Some(place) = moved.and_then(|(_, it)| it.place)
            && let Some(value) = self
                .values
                .get_mut(usize::try_from(place).unwrap_or(usize::MAX))
        {
            *value = u32::try_from(index).unwrap_or(u32::MAX);
        }
        if let Some(place) = record.place.take() {
            self.leave_values(place);
        }
        self.check_counts();
        Some(record)
    }

    /// Keeps only the keys that `wanted` says.
    pub(crate) fn retain(&mut self, machine: &M, mut wanted: impl FnMut(&Key) -> bool) {
        let mut freed = 0;
        self.records.retain(|key, record| {
            let keep = wanted(key);
            if !keep {
                freed += Self::size(machine, key, record);
                Self::drop_from_order(&mut self.tombstones, key, record);
            }
            keep
        });
        assert!(
            freed <= self.bytes,
            "removed bytes were counted when they were added"
        );
        self.bytes -= freed;
        self.values.clear();
        for index in 0..self.records.len() {
            if let Some((_, record)) = self.records.get_index_mut(index) {
                record.place = None;
            }
            self.note_value(index);
        }
        self.check_counts();
    }

    /// Evicts the least recently used of a few values, whose version stays. Returns whether it
    /// could.
    pub(crate) fn evict_one(&mut self, machine: &M, spare: &Key) -> bool {
        let mut victim: Option<(usize, u32)> = None;
        // One more than SAMPLE, because the spared key may be among them.
        for _ in 0..self.values.len().min(SAMPLE + 1) {
            self.hand = (self.hand + 1) % self.values.len();
            let index = usize::try_from(self.values[self.hand]).unwrap_or(usize::MAX);
            let Some((key, record)) = self.records.get_index(index) else {
                continue;
            };
            let age = self.clock.wrapping_sub(record.used);
            if key != spare && victim.is_none_or(|(_, oldest)| age > oldest) {
                victim = Some((index, age));
            }
        }
        let Some((index, _)) = victim else {
            return false;
        };
        let Some((key, record)) = self.records.get_index_mut(index) else {
            return false;
        };
        assert!(
            record.state.is_some() && key != spare,
            "{key:?}: an eviction frees a value, and not that of the key that needs the room"
        );
        let before = Self::size(machine, key, record);
        record.state = None;
        record.answer = Bytes::new();
        record.evicted = true;
        // The total may grow: a small value takes fewer bytes than its entry in the order of
        // versions.
        self.bytes = self.bytes + Self::size(machine, key, record) - before;
        self.evictions += 1;
        let (key, version) = (key.clone(), record.version);
        self.tombstones
            .insert((key.session(), version), key.clone());
        self.note_value(index);
        assert!(
            self.records
                .get(&key)
                .is_some_and(|it| it.place.is_none() && it.version == version),
            "{key:?}: the version outlives the value, or a late write would bring an old one back"
        );
        self.check_counts();
        if planted(Bug::EvictionForgets) {
            self.take(machine, &key);
        }
        true
    }
}

/// Returns a record as it is sent to another replica.
pub(crate) fn state_of<M: StateMachine>(machine: &M, record: &Record<M::State>) -> State {
    assert!(
        record.state.is_none() || !record.evicted,
        "a receiver of the state would miss a value that exists"
    );
    let snapshot = record.state.as_ref().map(|state| machine.snapshot(state));
    debug_assert_eq!(
        snapshot.as_deref().and_then(|it| machine.restore(it).ok()),
        record.state,
        "a snapshot gives back what it was taken of"
    );
    State {
        version: record.version,
        written_in: record.written_in,
        digest: digest(snapshot.as_deref()),
        snapshot,
        answer: record.answer.clone(),
        evicted: record.evicted,
    }
}
