//! A queue that is hardly ever used.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};

/// A queue that takes the memory of a pointer until it is written to.
#[expect(
    clippy::box_collection,
    reason = "a queue of its own takes four times the memory, and a million keys have one each"
)]
#[derive(Debug, Clone)]
pub(crate) struct Rare<T>(Option<Box<VecDeque<T>>>);

impl<T: 'static> Rare<T> {
    const EMPTY: &'static VecDeque<T> = &VecDeque::new();

    pub(crate) const NEW: Self = Self(None);

    /// Returns whether it has memory of its own.
    pub(crate) fn is_made(&self) -> bool {
        self.0.is_some()
    }
}

impl<T> Default for Rare<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: 'static> Deref for Rare<T> {
    type Target = VecDeque<T>;

    fn deref(&self) -> &VecDeque<T> {
        self.0.as_deref().unwrap_or(Self::EMPTY)
    }
}

impl<T: 'static> DerefMut for Rare<T> {
    fn deref_mut(&mut self) -> &mut VecDeque<T> {
        self.0.get_or_insert_default()
    }
}

/// Hashes its elements, whether it was written to or not.
impl<T: Hash + 'static> Hash for Rare<T> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (**self).hash(hasher);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::KeyHasher;

    fn hash(queue: &Rare<u8>) -> u64 {
        let mut hasher = KeyHasher::default();
        queue.hash(&mut hasher);
        hasher.finish()
    }

    #[test]
    fn an_emptied_queue_is_like_one_that_was_never_written_to() {
        let mut queue = Rare::NEW;
        assert!(queue.is_empty() && !queue.is_made());
        let before = hash(&queue);
        queue.push_back(7);
        assert!(queue.is_made() && hash(&queue) != before);
        assert_eq!(queue.pop_front(), Some(7));
        assert_eq!(hash(&queue), before);
    }
}
