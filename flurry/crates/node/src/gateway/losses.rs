//! Keeps the keys whose writes are lost or may be lost, for clients and for the operator.
//!
//! A key is in *doubt* when it was taken over from an owner that ended, and a server that may have had
//! that owner's last writes alone was lost too. A client hears of it once: its first command whose
//! answer would rest on such a key is refused and changes nothing. Later commands use the value that
//! the servers have.
//! Keys that are in doubt, and those whose loss is certain, are kept in a list for the operator.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use flurry_core::machine::Access;
use flurry_core::resp::Reply;
use tracing::warn;

/// Keys that are remembered, of each kind.
const KEYS_MAX: usize = 65_536;

/// Lines of the log for each opening; the list has the rest.
const LOGGED_MAX: u64 = 100;

/// What is wrong with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Its last writes may be lost.
    Doubt,
    /// An acknowledged write is on no server any more.
    Loss,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Doubt => "doubt",
            Self::Loss => "loss",
        }
    }
}

/// Losses since the gateway opened its slots.
#[derive(Debug, Default)]
pub(super) struct Losses {
    doubtful: BTreeSet<Bytes>,
    /// The keys of the list whose writes are lost. Each command on such a key meets the loss again.
    lost: BTreeSet<Bytes>,
    list: VecDeque<(Kind, Bytes)>,
    pub(super) doubts: u64,
    pub(super) losses: u64,
}

impl Losses {
    /// Returns whether an operation must be refused because its client does not know of a doubt
    /// yet. A blind write depends on no earlier value, and ends the doubt.
    pub(super) fn refuses(&mut self, key: &Bytes, access: Access, told: bool) -> bool {
        if access == Access::Blind {
            // What is lost after this write is another loss.
            self.lost.remove(key);
        }
        if self.doubtful.is_empty() {
            return false;
        }
        if access == Access::Blind {
            self.doubtful.remove(key);
            return false;
        }
        !told && self.doubtful.contains(key)
    }

    /// Returns whether a key is in doubt.
    pub(super) fn is_doubtful(&self, key: &Bytes) -> bool {
        self.doubtful.contains(key)
    }

    /// Notes a key that is in doubt.
    pub(super) fn doubt(&mut self, key: &Bytes) {
        if self.doubtful.contains(key) {
            return;
        }
        if self.doubtful.len() < KEYS_MAX {
            self.doubtful.insert(key.clone());
        }
        self.doubts += 1;
        self.note(Kind::Doubt, key);
    }

    /// Notes a key of which a write is lost.
    pub(super) fn loss(&mut self, key: &Bytes) {
        if self.lost.contains(key) {
            return;
        }
        if self.lost.len() < KEYS_MAX {
            self.lost.insert(key.clone());
        }
        self.losses += 1;
        self.note(Kind::Loss, key);
    }

    fn note(&mut self, kind: Kind, key: &Bytes) {
        if self.doubts + self.losses <= LOGGED_MAX {
            let key = key.escape_ascii();
            match kind {
                Kind::Doubt => warn!(%key, "the last writes to a key may be lost"),
                Kind::Loss => warn!(%key, "an acknowledged write to a key is lost"),
            }
        }
        if self.list.len() == KEYS_MAX {
            self.list.pop_front();
        }
        self.list.push_back((kind, key.clone()));
    }

    /// The list, oldest first: of each loss its kind and its key.
    pub(super) fn listed(&self) -> Reply {
        let pair = |(kind, key): &(Kind, Bytes)| {
            Reply::Array(vec![Reply::text(kind.name()), Reply::Bulk(key.clone())])
        };
        Reply::Array(self.list.iter().map(pair).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn each_client_hears_once_of_a_key_in_doubt_and_a_new_value_ends_it() {
        let mut losses = Losses::default();
        assert!(!losses.refuses(&key("k"), Access::Read, false));
        losses.doubt(&key("k"));
        losses.doubt(&key("k"));
        assert_eq!(losses.doubts, 1);
        assert!(losses.refuses(&key("k"), Access::Read, false), "one client");
        assert!(losses.refuses(&key("k"), Access::Update, false), "another");
        assert!(!losses.refuses(&key("k"), Access::Update, true));
        assert!(!losses.refuses(&key("other"), Access::Read, false));
        assert!(!losses.refuses(&key("k"), Access::Blind, false));
        assert!(!losses.refuses(&key("k"), Access::Read, false));
    }

    #[test]
    fn a_lost_key_counts_once_until_it_is_written_anew() {
        let mut losses = Losses::default();
        for _ in 0..3 {
            losses.loss(&key("k"));
        }
        assert_eq!(losses.losses, 1);
        assert!(!losses.refuses(&key("k"), Access::Read, false));
        losses.loss(&key("k"));
        assert_eq!(losses.losses, 1);
        assert!(!losses.refuses(&key("k"), Access::Blind, false));
        losses.loss(&key("k"));
        assert_eq!(losses.losses, 2);
    }

    #[test]
    fn the_list_has_the_latest_keys_of_both_kinds() {
        let mut losses = Losses::default();
        for number in 0..=KEYS_MAX {
            losses.loss(&Bytes::from(number.to_string()));
        }
        losses.doubt(&key("k"));
        let Reply::Array(all) = losses.listed() else {
            panic!("the list is an array");
        };
        assert_eq!(all.len(), KEYS_MAX);
        let last = Reply::Array(vec![Reply::text("doubt"), Reply::Bulk(key("k"))]);
        assert_eq!(all.last(), Some(&last));
    }
}
