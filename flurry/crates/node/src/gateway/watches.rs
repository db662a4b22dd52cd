//! The keys that clients watch, and which of them have changed.
//!
//! A key counts as changed from the moment when the gateway begins a write of it, so that a
//! transaction never misses a change whose answer is still to come. A write that turns out to
//! change nothing counts too.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use flurry_core::id::WallNs;

/// Maximum number of keys that one client watches.
const WATCHED_MAX: usize = 1_024;

/// The keys that one client watches.
#[derive(Debug, Default)]
pub(super) struct Watched {
    keys: BTreeSet<Bytes>,
    changed: bool,
    /// Time at which the first of the values ends.
    ends_at: Option<WallNs>,
}

impl Watched {
    /// Returns whether a key has changed at this time of the owner.
    pub(super) fn has_changed(&self, at: WallNs) -> bool {
        self.changed || self.ends_at.is_some_and(|end| end <= at)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Bytes> {
        self.keys.iter()
    }
}

/// The keys that clients watch.
#[derive(Debug, Default)]
pub(super) struct Watches {
    by_key: BTreeMap<Bytes, BTreeSet<u64>>,
    by_client: BTreeMap<u64, Watched>,
}

impl Watches {
    /// Notes that a client watches keys. Returns false if they are too many.
    pub(super) fn add(&mut self, client: u64, keys: &[Bytes]) -> bool {
        let watched = self.by_client.entry(client).or_default();
        if watched.keys.len() + keys.len() > WATCHED_MAX {
            return false;
        }
        for key in keys {
            let key = Bytes::copy_from_slice(key);
            watched.keys.insert(key.clone());
            self.by_key.entry(key).or_default().insert(client);
        }
        true
    }

    /// Notes that a value of a watched key ends at this time.
    pub(super) fn ends(&mut self, client: u64, end: WallNs) {
        if let Some(watched) = self.by_client.get_mut(&client) {
            watched.ends_at = Some(watched.ends_at.map_or(end, |before| before.min(end)));
        }
    }

    /// Notes that a write of this key begins.
    pub(super) fn wrote(&mut self, key: &Bytes) {
        if self.by_key.is_empty() {
            return;
        }
        for client in self.by_key.get(key).into_iter().flatten() {
            if let Some(watched) = self.by_client.get_mut(client) {
                watched.changed = true;
            }
        }
    }

    /// Forgets a client's keys, and returns them.
    pub(super) fn forget(&mut self, client: u64) -> Option<Watched> {
        let watched = self.by_client.remove(&client)?;
        for key in &watched.keys {
            if let Some(clients) = self.by_key.get_mut(key) {
                clients.remove(&client);
                if clients.is_empty() {
                    self.by_key.remove(key);
                }
            }
        }
        Some(watched)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(all: &[&'static str]) -> Vec<Bytes> {
        all.iter()
            .map(|it| Bytes::from_static(it.as_bytes()))
            .collect()
    }

    #[test]
    fn a_write_is_noted_for_those_who_watch_its_key_and_for_nobody_else() {
        let mut watches = Watches::default();
        assert!(watches.add(1, &keys(&["a", "b"])) && watches.add(2, &keys(&["b"])));
        watches.wrote(&keys(&["a"])[0]);
        let changed = |watched: Option<Watched>| watched.unwrap().has_changed(WallNs(0));
        assert!(changed(watches.forget(1)));
        assert!(!changed(watches.forget(2)));
        assert!(watches.by_key.is_empty() && watches.by_client.is_empty());
    }

    #[test]
    fn a_value_that_ends_has_changed() {
        let mut watches = Watches::default();
        assert!(watches.add(1, &keys(&["a"])));
        watches.ends(1, WallNs(9));
        watches.ends(1, WallNs(20));
        let watched = watches.forget(1).unwrap();
        assert!(!watched.has_changed(WallNs(8)) && watched.has_changed(WallNs(9)));
    }

    #[test]
    fn nobody_watches_more_keys_than_are_kept() {
        let mut watches = Watches::default();
        let many = vec![keys(&["a"])[0].clone(); WATCHED_MAX + 1];
        assert!(!watches.add(1, &many));
        assert!(watches.by_key.is_empty());
    }
}
