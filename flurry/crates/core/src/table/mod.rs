//! The records of a shard: for each key its version, its state, and the answer of its last write.
//!
//! A deleted key keeps its version (a tombstone) until every replica has the deletion. An evicted
//! key keeps its version until every replica has had the value. Without the version, a delayed
//! write would bring an old value back.

mod record;

use std::collections::BTreeMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use indexmap::IndexSet;
use indexmap::set::MutableValues as _;

use crate::bugs::{Bug, planted};
use crate::id::{Epoch, Key, Sequence, SessionId, Version};
use record::ByKey;
pub(crate) use record::Record;
pub use record::record_bytes;

/// Bytes that a deleted or evicted key takes in addition to its record, for its place in the order
/// of versions: the nodes of a tree that grows at its end are half full.
const PLACE_BYTES: usize = 56;

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

/// The records of a shard.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    records: IndexSet<ByKey, BuildHasherDefault<KeyHasher>>,
    /// Indices of the deleted and evicted keys of each session, the oldest version first.
    tombstones: BTreeMap<(SessionId, Version), u32>,
    /// Indices of the records that have a value, in no order; an eviction samples them.
    values: Vec<u32>,
    bytes: usize,
    clock: u32,
    /// Index into `values` at which the next eviction begins its sample.
    hand: usize,
    evictions: u64,
}

/// Hashes the records in their order, which scans follow.
impl Hash for Table {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        for ByKey(record) in &self.records {
            record.hash(hasher);
        }
        self.records.len().hash(hasher);
    }
}

impl Table {
    pub(crate) fn new() -> Self {
        Self {
            records: IndexSet::default(),
            tombstones: BTreeMap::new(),
            values: Vec::new(),
            bytes: 0,
            clock: 0,
            hand: 0,
            evictions: 0,
        }
    }

    fn record_mut(&mut self, key: &Key) -> Option<&mut Record> {
        let found = self.records.get_full_mut2(key);
        found.map(|(_, ByKey(record))| record)
    }

    fn at_mut(&mut self, index: usize) -> Option<&mut Record> {
        let found = self.records.get_index_mut2(index);
        found.map(|ByKey(record)| record)
    }

    pub(crate) fn find(&mut self, key: &Key) -> Option<&Record> {
        self.clock = self.clock.wrapping_add(1);
        let clock = self.clock;
        let record = self.record_mut(key)?;
        record.used = clock;
        Some(record)
    }

    /// Returns a key's record, which counts as no use of it.
    pub(crate) fn peek(&self, key: &Key) -> Option<&Record> {
        self.records.get(key).map(|ByKey(record)| record)
    }

    /// Returns all records, in no particular order.
    pub(crate) fn into_records(self) -> impl Iterator<Item = Record> {
        self.records.into_iter().map(|ByKey(record)| record)
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
    pub(crate) fn at(&self, index: usize) -> Option<&Record> {
        self.records.get_index(index).map(|ByKey(record)| record)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().map(|ByKey(record)| record)
    }

    fn size(record: &Record) -> usize {
        let order = if record.is_tombstone() {
            PLACE_BYTES
        } else {
            0
        };
        record_bytes(record.contents_bytes()) + order
    }

    /// Returns the bytes by which storing a state and an answer of this length would grow the
    /// table.
    pub(crate) fn growth(&self, key: &Key, contents: usize) -> usize {
        let after = record_bytes(key.bytes().len() + contents);
        let held = self.peek(key).map_or(0, Self::size);
        after.saturating_sub(held)
    }

    /// Makes this the record of its key.
    ///
    /// # Panics
    ///
    /// When its version would go back.
    pub(crate) fn put(&mut self, mut record: Record) {
        record.used = self.clock;
        record.set_place(None);
        self.bytes += Self::size(&record);
        let version = record.version;
        let mut slot = ByKey(record);
        let index = if let Some((index, held)) = self.records.get_full_mut2(&slot) {
            let old = held.0.version;
            // I2: a replica never goes back within one incarnation.
            assert!(
                old <= version || planted(Bug::PushGoesBack),
                "{:?} would go back from {old} to {version}",
                slot.0.key()
            );
            slot.0.set_place(held.0.place());
            let before = std::mem::replace(held, slot);
            self.bytes -= Self::size(&before.0);
            self.drop_from_order(&before.0, index);
            index
        } else {
            self.records.insert_full(slot).0
        };
        self.note_value(index);
        self.add_to_order(index);
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
        let least = records * record_bytes(0) + deleted * PLACE_BYTES;
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
    pub(crate) fn verify(&self) {
        self.check_counts();
        let (mut bytes, mut values) = (0, 0);
        for (index, record) in self.iter().enumerate() {
            bytes += Self::size(record);
            values += usize::from(!record.is_tombstone());
            assert_eq!(
                record.place().is_none(),
                record.is_tombstone(),
                "{record:?}: an eviction finds the records with a value and no other"
            );
            if let Some(place) = record.place() {
                let found = usize::try_from(place).ok();
                let found = found.and_then(|it| self.values.get(it).copied());
                let index = u32::try_from(index).ok();
                assert_eq!(found, index, "{record:?}: its place leads back to it");
            }
            assert!(
                record.answer().is_empty() || !record.is_evicted(),
                "{record:?}: an evicted record has no answer"
            );
        }
        assert_eq!(self.bytes, bytes, "the total is the sum of the records");
        assert_eq!(self.values.len(), values, "each value is listed once");
        for ((session, version), index) in &self.tombstones {
            let record = usize::try_from(*index).ok().and_then(|it| self.at(it));
            assert!(
                record.is_some_and(|it| it.is_tombstone() && it.version == *version),
                "{record:?}: the order of deletions has nothing but deletions, by their versions"
            );
            let found = record.map(Record::session);
            assert_eq!(found, Some(*session), "{record:?}: each in its session");
        }
    }

    /// Updates `values` after the record at this index has gained or lost its value.
    fn note_value(&mut self, index: usize) {
        // A table has far fewer than 2^32 records.
        let next = u32::try_from(self.values.len()).ok();
        let Some(record) = self.at_mut(index) else {
            return;
        };
        match (record.is_tombstone(), record.place()) {
            (false, None) => {
                record.set_place(next);
                assert!(record.place().is_some(), "{index} records are too many");
                self.values.push(u32::try_from(index).unwrap_or(u32::MAX));
            }
            (true, Some(place)) => {
                record.set_place(None);
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
        let moved = self.values.get(at).copied();
        let index = moved.and_then(|it| usize::try_from(it).ok());
        if let Some(record) = index.and_then(|it| self.at_mut(it)) {
            assert_eq!(record.place(), last, "the last value fills the gap");
            record.set_place(Some(place));
        }
    }

    /// Removes the record at an index, which changes or goes, from the order of deletions if it was a
    /// deletion.
    fn drop_from_order(&mut self, record: &Record, index: usize) {
        let place = (record.session(), record.version);
        if record.is_tombstone() && self.tombstones.get(&place) == Some(&place_of(index)) {
            self.tombstones.remove(&place);
        }
    }

    /// Enters the record at an index into the order of deletions, if it is a deletion.
    fn add_to_order(&mut self, index: usize) {
        if let Some(record) = self.at(index).filter(|it| it.is_tombstone()) {
            let place = (record.session(), record.version);
            self.tombstones.insert(place, place_of(index));
        }
    }

    /// Returns the oldest deleted or evicted key of a session's epoch, if its version is not newer
    /// than this.
    pub(crate) fn deleted_until(
        &self,
        session: SessionId,
        epoch: Epoch,
        until: Sequence,
    ) -> Option<Key> {
        let place = |sequence| (session, Version { epoch, sequence });
        let mut found = self.tombstones.range(place(Sequence(0))..=place(until));
        let index = found.next().and_then(|(_, it)| usize::try_from(*it).ok());
        let key = index.and_then(|it| self.at(it)).map(Record::key);
        debug_assert!(
            key.as_ref()
                .and_then(|key| self.peek(key))
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
        if let Some(record) = self.record_mut(key)
            && record.is_tombstone()
        {
            record.mark_evicted();
        }
    }

    /// Removes a key, and returns the record that there was of it.
    pub(crate) fn take(&mut self, key: &Key) -> Option<Record> {
        let (index, ByKey(record)) = self.records.swap_remove_full(key)?;
        self.bytes -= Self::size(&record);
        self.drop_from_order(&record, index);
        // The last record has moved to the freed index, unless the removed one was the last.
        self.add_to_order(index);
        let moved = self.at(index).and_then(Record::place);
        let listed = moved.and_then(|place| usize::try_from(place).ok());
        if let Some(value) = listed.and_then(|it| self.values.get_mut(it)) {
            *value = u32::try_from(index).unwrap_or(u32::MAX);
        }
        if let Some(place) = record.place() {
            self.leave_values(place);
        }
        self.check_counts();
        Some(record)
    }

    /// Keeps only the keys that `wanted` says.
    pub(crate) fn retain(&mut self, mut wanted: impl FnMut(&Key) -> bool) {
        let mut freed = 0;
        self.records.retain2(|ByKey(record)| {
            let keep = wanted(&record.key());
            if !keep {
                freed += Self::size(record);
            }
            keep
        });
        assert!(
            freed <= self.bytes,
            "removed bytes were counted when they were added"
        );
        self.bytes -= freed;
        // Those that stay have moved.
        self.values.clear();
        self.tombstones.clear();
        for index in 0..self.records.len() {
            if let Some(record) = self.at_mut(index) {
                record.set_place(None);
            }
            self.note_value(index);
            self.add_to_order(index);
        }
        self.check_counts();
    }

    /// Evicts the least recently used of a few values, whose version stays. Returns whether it
    /// could.
    pub(crate) fn evict_one(&mut self, spare: &Key) -> bool {
        let mut victim: Option<(usize, u32)> = None;
        let is_spare =
            |it: &Record| it.session() == spare.session() && it.key_bytes() == spare.bytes();
        // One more than SAMPLE, because the spared key may be among them.
        for _ in 0..self.values.len().min(SAMPLE + 1) {
            self.hand = (self.hand + 1) % self.values.len();
            let index = usize::try_from(self.values[self.hand]).unwrap_or(usize::MAX);
            let Some(record) = self.at(index) else {
                continue;
            };
            let age = self.clock.wrapping_sub(record.used);
            if !is_spare(record) && victim.is_none_or(|(_, oldest)| age > oldest) {
                victim = Some((index, age));
            }
        }
        let Some((index, _)) = victim else {
            return false;
        };
        let Some(record) = self.at_mut(index) else {
            return false;
        };
        assert!(
            !record.is_tombstone() && !is_spare(record),
            "{record:?}: an eviction frees a value, and not that of the key that needs the room"
        );
        let before = Self::size(record);
        record.evict();
        let (after, key, version) = (Self::size(record), record.key(), record.version);
        // The total may grow: a small value takes fewer bytes than its entry in the order of
        // versions.
        self.bytes = self.bytes + after - before;
        self.evictions += 1;
        self.note_value(index);
        self.add_to_order(index);
        assert!(
            self.peek(&key)
                .is_some_and(|it| it.place().is_none() && it.version == version),
            "{key:?}: the version outlives the value, or a late write would bring an old one back"
        );
        self.check_counts();
        if planted(Bug::EvictionForgets) {
            self.take(&key);
        }
        true
    }
}

/// Returns an index as the order of deletions has it. A table has far fewer than 2^32 records.
fn place_of(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
