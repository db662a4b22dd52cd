//! What may come to a place, and what of it would change anything.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::letter::LetterId;
use super::steps::hash_of;

/// Everything that was ever sent to a place.
#[derive(Debug, Clone, Default)]
pub(super) struct Mail {
    /// In the order of their names.
    letters: Vec<LetterId>,
    hash: u64,
}

impl Mail {
    /// Its hash: equal for equal letters.
    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn letters(&self) -> &[LetterId] {
        &self.letters
    }

    /// Takes out what belongs to configurations before this one.
    pub(super) fn forget(mail: &mut Arc<Self>, config: u8) -> Vec<LetterId> {
        let old = |letter: &LetterId| letter.is_before(config);
        let gone: Vec<LetterId> = mail.letters.iter().copied().filter(old).collect();
        if !gone.is_empty() {
            let mail = Arc::make_mut(mail);
            mail.letters.retain(|letter| !old(letter));
            for letter in &gone {
                mail.hash = mail.hash.wrapping_sub(hash_of(letter));
            }
        }
        gone
    }

    /// The same with another letter. Says whether it is new.
    pub(super) fn add(mail: &mut Arc<Self>, letter: LetterId) -> bool {
        let Err(at) = mail.letters.binary_search(&letter) else {
            return false;
        };
        let mail = Arc::make_mut(mail);
        mail.letters.insert(at, letter);
        // A sum of hashes: the order in which they were sent does not matter.
        mail.hash = mail.hash.wrapping_add(hash_of(&letter));
        true
    }
}

impl PartialEq for Mail {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
    }
}

impl Eq for Mail {}

impl Hash for Mail {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.hash.hash(hasher);
    }
}

/// What comes of all that may come to a part in one of its states.
#[derive(Debug, Default)]
pub(super) struct Outlook {
    /// What would change it, or somebody else at once.
    pub(super) live: Vec<LetterId>,
    /// What is sent on without any change.
    pub(super) sent: Vec<LetterId>,
    /// Of operations of these epochs it says "done" without any change; a bit each.
    pub(super) executed: u32,
    /// It refuses some for want of a lease.
    pub(super) leaseless: bool,
}
