//! A map by numbers, for the operations under way.
//!
//! Each message about an operation looks it up a dozen times. A tree makes several comparisons for
//! each lookup, and a hash map needs one step. A walk that decides something sorts the numbers first,
//! because the simulation replays it; such walks are for rare events. The map keeps its memory when it
//! shrinks: at most 17 MB, after 262,144 operations at once.

#![expect(
    clippy::disallowed_types,
    reason = "its hasher has no seed, and each walk that decides something is sorted"
)]

use std::collections::HashMap;
use std::hash::{Hash, Hasher};

use rustc_hash::FxBuildHasher;

/// Values by their numbers.
#[derive(Debug, Clone)]
pub(crate) struct Numbered<K, V>(HashMap<K, V, FxBuildHasher>);

impl<K, V> Default for Numbered<K, V> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<K: Copy + Ord + Hash, V> Numbered<K, V> {
    pub(crate) fn get(&self, number: K) -> Option<&V> {
        self.0.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: K) -> Option<&mut V> {
        self.0.get_mut(&number)
    }

    pub(crate) fn contains(&self, number: K) -> bool {
        self.0.contains_key(&number)
    }

    /// Adds a value, and returns the one that it replaces.
    pub(crate) fn insert(&mut self, number: K, value: V) -> Option<V> {
        self.0.insert(number, value)
    }

    pub(crate) fn remove(&mut self, number: K) -> Option<V> {
        self.0.remove(&number)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the values in no order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.0.values()
    }

    /// Returns all numbers, the lowest first. It sorts them.
    pub(crate) fn numbers(&self) -> Vec<K> {
        let mut numbers: Vec<K> = self.0.keys().copied().collect();
        numbers.sort_unstable();
        numbers
    }

    /// Returns the numbers and values in the order of the numbers. It sorts them.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (K, &V)> {
        let numbers = self.numbers().into_iter();
        numbers.filter_map(|number| Some((number, self.get(number)?)))
    }
}

/// Hashes the values in the order of their numbers, whatever order they came in.
impl<K: Copy + Ord + Hash, V: Hash> Hash for Numbered<K, V> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.len().hash(hasher);
        for entry in self.in_order() {
            entry.hash(hasher);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::hash::DefaultHasher;

    use super::*;

    fn hash(map: &Numbered<u64, &str>) -> u64 {
        let mut hasher = DefaultHasher::new();
        map.hash(&mut hasher);
        hasher.finish()
    }

    #[test]
    fn walks_and_hashes_go_by_the_numbers_whatever_came_and_went_before() {
        let mut early = Numbered::default();
        early.insert(3, "c");
        early.insert(1, "a");
        let mut late = Numbered::default();
        for number in [9, 1, 3] {
            late.insert(number, "x");
        }
        assert_eq!(late.insert(1, "a"), Some("x"));
        assert_eq!(late.insert(3, "c"), Some("x"));
        assert_ne!(hash(&early), hash(&late));
        assert_eq!(late.remove(9), Some("x"));
        assert_eq!(late.remove(9), None);
        assert_eq!(late.numbers(), [1, 3]);
        assert!(late.in_order().eq([(1, &"a"), (3, &"c")]));
        assert_eq!(hash(&early), hash(&late));
        assert!(late.contains(1) && !late.is_empty());
    }
}
