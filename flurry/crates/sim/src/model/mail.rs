//! Messages that may arrive at a place, and those among them that would have an effect.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::letter::LetterId;
use super::steps::hash_of;

/// Everything that was ever sent to a place.
#[derive(Debug, Clone, Default)]
pub(super) struct Mail {
    /// Sorted by name.
    letters: Vec<LetterId>,
    hash: u64,
}

impl Mail {
    /// Returns a hash that is equal for equal sets of messages.
    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn letters(&self) -> &[LetterId] {
        &self.letters
    }

    /// Removes and returns the messages of configurations before this one.
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

    /// Adds a message. Returns true if it is new.
    pub(super) fn add(mail: &mut Arc<Self>, letter: LetterId) -> bool {
        let Err(at) = mail.letters.binary_search(&letter) else {
            return false;
        };
        let mail = Arc::make_mut(mail);
        mail.letters.insert(at, letter);
        // A sum of hashes does not depend on the order of sending.
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

/// Effects that all pending messages would have on a part in one of its states.
#[derive(Debug, Default)]
pub(super) struct Outlook {
    /// Messages that would change the part, or at once another part.
    pub(super) live: Vec<LetterId>,
    /// Messages that the part would send in reply, without any change of its own.
    pub(super) sent: Vec<LetterId>,
    /// Epochs of operations to which it answers "done" without any change; one bit each.
    pub(super) executed: u32,
    /// True if it refuses some message because it has no lease.
    pub(super) leaseless: bool,
}
