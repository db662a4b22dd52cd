//! Operations that may still change a replica, and the memory that they take.

use std::collections::BTreeMap;

use crate::id::Sequence;

/// Numbers of operations, each with the bytes of its key and its value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Unstable {
    bytes_of: BTreeMap<Sequence, usize>,
    bytes: usize,
}

impl Unstable {
    /// Adds a number. One that is there keeps its bytes.
    pub(super) fn insert(&mut self, sequence: Sequence, bytes: usize) {
        assert!(sequence > Sequence(0), "operations are counted from 1");
        self.bytes_of.entry(sequence).or_insert_with(|| {
            self.bytes += bytes;
            bytes
        });
    }

    /// Removes a number. Returns its bytes; 0 if it was not there.
    pub(super) fn remove(&mut self, sequence: Sequence) -> usize {
        let bytes = self.bytes_of.remove(&sequence).unwrap_or(0);
        assert!(
            bytes <= self.bytes,
            "removed bytes were counted when they were added"
        );
        self.bytes -= bytes;
        assert!(
            self.bytes == 0 || !self.bytes_of.is_empty(),
            "{} bytes of no operation would count for ever",
            self.bytes
        );
        bytes
    }

    /// Returns the lowest number.
    pub(super) fn first(&self) -> Option<Sequence> {
        self.bytes_of.keys().next().copied()
    }

    /// Returns the highest number.
    pub(super) fn last(&self) -> Option<Sequence> {
        self.bytes_of.keys().next_back().copied()
    }

    pub(super) fn contains(&self, sequence: Sequence) -> bool {
        self.bytes_of.contains_key(&sequence)
    }

    /// Checks the total; for the simulation.
    ///
    /// # Panics
    ///
    /// When it is not the sum.
    pub(super) fn verify(&self) {
        let bytes: usize = self.bytes_of.values().sum();
        assert_eq!(self.bytes, bytes, "the total is the sum of the operations");
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes_of.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.bytes_of.len()
    }

    /// Returns the bytes of all of them.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_an_operation_count_once_and_go_with_it() {
        let mut unstable = Unstable::default();
        unstable.insert(Sequence(4), 100);
        unstable.insert(Sequence(2), 10);
        unstable.insert(Sequence(4), 7);
        assert_eq!((unstable.bytes(), unstable.len()), (110, 2));
        assert_eq!(unstable.first(), Some(Sequence(2)));
        assert_eq!(unstable.remove(Sequence(4)), 100);
        assert_eq!(unstable.remove(Sequence(4)), 0);
        assert_eq!(unstable.bytes(), 10);
    }
}
