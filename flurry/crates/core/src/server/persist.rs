//! The records that a server writes to its disk and reads from it.
//!
//! The disk is a copy of the memory, some moments old, and not on the path of answers. The driver
//! takes each change from the server in order, and reports how far they are on disk. The server
//! answers an operation at level `disk` from then on.
//!
//! A server reads from its disk only keys whose replicas are all gone: the newest state on any of
//! their disks is then the state of the key. A server that came back while others lived reads
//! nothing, because the others may have deleted its records and forgotten the deletions.
//!
//! A disk is complete when it holds every record of an incarnation. Only then does the server count
//! as having copied its records. So a member has all its records on disk, except those of the last
//! moments.

use std::collections::VecDeque;
use std::hash::BuildHasherDefault;

use indexmap::IndexMap;

use super::{Destination, Server};
use crate::bugs::{Bug, planted};
use crate::config::Disk;
use crate::id::{ConfigNumber, Incarnation, Key, MonoNs, Version};
use crate::machine::{Malformed, StateMachine};
use crate::message::{Copy, Message, Reply, State, Verdict};
use crate::table::KeyHasher;

/// The most replies that wait for the disk. A dropped reply waits again when its request is
/// repeated.
const HELD_MAX: usize = 65_536;

/// The most changes that are remembered in order, in addition to twice the keys that wait.
const ORDER_SLACK: usize = 1_024;

/// A change of a record, to be written to disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its number among the changes of an incarnation, from 1.
    pub position: u64,
    /// The key.
    pub key: Key,
    /// The change of its record.
    pub what: What,
}

/// The kind of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// The record has this state.
    Is(State),
    /// Every replica has this deletion, and the memory has forgotten it. The disk keeps it for more
    /// than twice [`crate::config::DISK_LAG_MAX`], because another disk may still have the deleted
    /// record.
    Buried(State),
    /// The server no longer holds the key. Other servers hold it, and may forget it.
    Moved,
}

/// The reason why the server did not accept a record of its disk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The records need more memory than the server may use.
    #[error("disk: the records need more than the {0} bytes of --memory; hint: raise --memory")]
    Memory(usize),
    /// The machine cannot read it.
    #[error(
        "disk: a record cannot be read ({0}); wanted what this machine wrote; hint: is the server of another service?"
    )]
    Record(#[from] Malformed),
}

/// A reply that waits until a change is on disk.
#[derive(Debug, Clone)]
struct Held {
    position: u64,
    to: Destination,
    key: Key,
    reply: Reply,
}

/// A server's knowledge of its disk.
#[derive(Debug, Clone)]
pub(super) struct Persist {
    /// The content of the disk, as the driver last reported it.
    pub(super) disk: Disk,
    /// True if the disk has every record of this incarnation, up to `durable`.
    complete: bool,
    position: u64,
    durable: u64,
    changes: VecDeque<Change>,
    /// The number of each key's last change, unless that is on disk.
    pending: IndexMap<Key, u64, BuildHasherDefault<KeyHasher>>,
    /// The same numbers in order.
    order: VecDeque<(u64, Key)>,
    held: VecDeque<Held>,
    /// The number of replies that were ever held.
    held_total: u64,
    /// A configuration, and the number of the last change when everything was copied in it.
    copied: (ConfigNumber, u64),
    /// The configuration in which the server reads its disk for keys that are left on disks only;
    /// `None` once it has read all of them.
    pub(super) restores: Option<ConfigNumber>,
}

impl Persist {
    pub(super) fn new(disk: Disk) -> Self {
        Self {
            disk,
            complete: false,
            position: 0,
            durable: 0,
            changes: VecDeque::new(),
            pending: IndexMap::default(),
            order: VecDeque::new(),
            held: VecDeque::new(),
            held_total: 0,
            copied: (ConfigNumber(0), 0),
            restores: None,
        }
    }

    /// Returns whether all records that the server has copied in a configuration are on its disk.
    pub(super) fn is_done(&mut self, number: ConfigNumber) -> bool {
        if self.copied.0 != number {
            self.copied = (number, self.position);
        }
        assert!(
            self.copied.1 <= self.position && self.durable <= self.position,
            "no more is on disk, or was copied, than there is"
        );
        let on_disk = self.complete && self.durable >= self.copied.1;
        self.restores.is_none() && on_disk
    }

    /// Removes and returns the next reply whose change is on disk.
    fn next_held(&mut self) -> Option<Held> {
        let (complete, durable) = (self.complete, self.durable);
        self.held
            .pop_front_if(|held| complete && held.position <= durable)
    }

    /// Forgets all changes, because a new incarnation has nothing on disk and has sent no reply.
    pub(super) fn forget(&mut self) {
        *self = Self::new(self.disk);
    }

    pub(super) fn note(&mut self, key: Key, what: What) {
        self.position += 1;
        assert!(
            self.changes
                .back()
                .is_none_or(|it| it.position + 1 == self.position),
            "a disk writes the changes of a life in order, and none is left out"
        );
        if matches!(what, What::Is(_)) {
            self.pending.insert(key.clone(), self.position);
            self.order.push_back((self.position, key.clone()));
            if self.order.len() > 2 * self.pending.len() + ORDER_SLACK {
                // Only the last change of a key is needed, so a slow disk does not fill the memory.
                let pending = &self.pending;
                self.order
                    .retain(|(position, key)| pending.get(key) == Some(position));
                assert_eq!(
                    self.order.len(),
                    self.pending.len(),
                    "each key that waits has its last change in the order, and no other"
                );
            }
        }
        self.changes.push_back(Change {
            position: self.position,
            key,
            what,
        });
    }
}

impl Persist {
    /// Checks what holds between two inputs; for the simulation.
    ///
    /// # Panics
    ///
    /// When changes, or replies that wait for them, are out of order.
    pub(super) fn verify(&self) {
        assert!(
            self.durable <= self.position,
            "a durable position was written before"
        );
        let changes = self.changes.iter().map(|it| it.position);
        assert!(
            changes.is_sorted_by(|one, other| one < other),
            "changes are written in order"
        );
        let held = self.held.iter().map(|it| it.position);
        assert!(
            held.is_sorted(),
            "replies leave in the order of their changes"
        );
        assert!(
            self.held
                .back()
                .is_none_or(|it| it.position <= self.position),
            "no reply waits for a change that may never come"
        );
        for (key, position) in &self.pending {
            assert!(
                (self.durable + 1..=self.position).contains(position),
                "{key:?}: change {position} is on its way to the disk"
            );
            let place = self.order.binary_search_by_key(position, |it| it.0);
            assert!(place.is_ok(), "{key:?}: it is noted when that is there");
        }
        assert!(
            self.order.iter().map(|it| it.0).is_sorted(),
            "the order is that of the changes"
        );
    }
}

impl<M: StateMachine> Server<M> {
    /// Makes the server keep its records on a disk as well. `disk` is the content found at the
    /// start.
    #[must_use]
    pub fn with_disk(mut self, disk: Disk) -> Self {
        self.persist = Some(Persist::new(disk));
        self
    }

    /// Returns the next change to write. The driver calls it after each input until it returns
    /// `None`.
    pub fn poll_change(&mut self) -> Option<Change> {
        self.persist.as_mut()?.changes.pop_front()
    }

    /// Notes the incarnation whose records are all on disk now, and up to which time.
    pub fn set_disk(&mut self, now: MonoNs, disk: Disk) {
        let life = self.params.life.incarnation;
        let Some(persist) = &mut self.persist else {
            return;
        };
        persist.disk = disk;
        if disk.holds(life) && !persist.complete {
            persist.complete = true;
            self.release(now);
            if self.is_member() {
                self.ping(now);
            }
        }
    }

    /// Notes that every change of this incarnation up to this position is on disk.
    pub fn set_durable(&mut self, now: MonoNs, life: Incarnation, position: u64) {
        if life != self.params.life.incarnation {
            return;
        }
        let Some(persist) = &mut self.persist else {
            return;
        };
        assert!(
            position <= persist.position,
            "change {position} was never made: the last is {}",
            persist.position
        );
        persist.durable = persist.durable.max(position);
        while let Some((position, _)) = persist.order.front()
            && *position <= persist.durable
            && let Some((position, key)) = persist.order.pop_front()
        {
            if persist.pending.get(&key) == Some(&position) {
                persist.pending.swap_remove(&key);
            }
        }
        self.release(now);
    }

    /// Returns the number of replies of this incarnation that had to wait for the disk. While it
    /// does not grow, the driver need not hurry.
    #[must_use]
    pub fn replies_held(&self) -> u64 {
        self.persist.as_ref().map_or(0, |it| it.held_total)
    }

    /// Sends the replies whose changes are on disk now.
    fn release(&mut self, now: MonoNs) {
        while let Some(mut held) = self.persist.as_mut().and_then(Persist::next_held) {
            // A reply from an earlier configuration, or without a lease any more, would not count.
            // The router sends its request again.
            if held.reply.config != self.number() || self.lease_left(now).0 == 0 {
                continue;
            }
            let id = held.reply.id;
            let session = self.sessions.get(&id.session);
            if let Some(later) = session.map(|it| it.epoch).filter(|it| *it > id.epoch) {
                held.reply.verdict = Verdict::Fenced(later);
            }
            let have = self.version(&held.key);
            // A lower version means that every replica had the write and a later deletion, and
            // forgot both.
            if have >= held.reply.have {
                held.reply.have = have;
                self.outbox.push_back((held.to, Message::Reply(held.reply)));
            }
        }
    }

    /// Holds a reply back if it has to wait for the disk, and returns whether it does.
    pub(super) fn hold(&mut self, to: Destination, copy: &Copy, reply: &Reply) -> bool {
        if copy.request.level != crate::config::Level::Disk || planted(Bug::DiskLevelInMemory) {
            return false;
        }
        // A later write of the same owner stands for this one, so it must be on disk too.
        let says_it_has = matches!(
            reply.verdict,
            Verdict::Done(_) | Verdict::Held | Verdict::Stale
        );
        let Some(persist) = &mut self.persist else {
            // Without a disk, the server never counts for this level.
            return says_it_has;
        };
        let pending = persist.pending.get(&copy.request.key).copied();
        if !says_it_has || (persist.complete && pending.is_none()) {
            return false;
        }
        persist.held_total += 1;
        if persist.held.len() < HELD_MAX {
            // Replies are held in the order of their changes. A key's later change comes behind all
            // of them.
            let position = pending.unwrap_or(0);
            let behind = persist
                .held
                .partition_point(|held| held.position <= position);
            let held = Held {
                position,
                to,
                key: copy.request.key.clone(),
                reply: reply.clone(),
            };
            persist.held.insert(behind, held);
        }
        assert!(
            persist.held.len() <= HELD_MAX,
            "a slow disk makes nobody hold more replies than that"
        );
        true
    }

    /// Notes the new state of a key.
    pub(super) fn changed(&mut self, key: &Key, state: State) {
        if let Some(persist) = &mut self.persist {
            persist.note(key.clone(), What::Is(state));
        }
    }

    /// Notes that the memory forgets a deletion.
    pub(super) fn buried(&mut self, key: &Key, version: Version) {
        if let Some(persist) = &mut self.persist {
            let state = State {
                version,
                written_in: version.written_in(),
                ..State::ABSENT
            };
            persist.note(key.clone(), What::Buried(state));
        }
    }

    /// Returns the incarnation of this server that is an old member, which need not be the present
    /// one. If all servers ended now, the disk would be asked for the records of that incarnation.
    #[must_use]
    pub fn counted_life(&self) -> Option<Incarnation> {
        let members = &self.config.as_ref()?.members;
        let mine = members.iter().find(|member| member.server == self.me());
        mine.map(|member| member.incarnation)
    }

    /// Returns whether it is a member and has copied all its records, so that a scan misses
    /// nothing.
    #[must_use]
    pub fn has_copied(&self) -> bool {
        let copied = self.join.as_ref().is_none_or(super::Join::is_done);
        self.is_member() && self.restores().is_none() && copied
    }

    /// Returns records from a place of the table downwards, until they have at least `bytes_max`
    /// bytes, and the place at which to go on; `None` if they were the last. A scan from `u64::MAX`
    /// on returns every record that was there at its start and stayed. [`Self::poll_change`]
    /// returns the changes since then.
    #[must_use]
    pub fn scan(&self, below: u64, bytes_max: usize) -> (Vec<(Key, State)>, Option<u64>) {
        let len = self.table.len();
        let end = usize::try_from(below).map_or(len, |below| below.min(len));
        let (mut records, mut bytes) = (Vec::new(), 0);
        for index in (0..end).rev() {
            if bytes >= bytes_max {
                return (records, Some(index as u64 + 1));
            }
            if let Some(record) = self.table.at(index) {
                bytes += record.key_bytes().len() + record.snapshot().map_or(0, <[u8]>::len);
                records.push((record.key(), record.told()));
            }
        }
        (records, None)
    }

    /// Returns the configuration in which it needs every record of its disk, one by one. In a later
    /// configuration it needs them all again.
    #[must_use]
    pub fn restores(&self) -> Option<ConfigNumber> {
        self.persist.as_ref()?.restores
    }

    /// Takes a record of its disk, from before this incarnation, if it needs it.
    ///
    /// # Errors
    ///
    /// [`RestoreError`] if the server cannot have every record, so that it must not go on.
    pub fn restore(&mut self, key: &Key, state: &State) -> Result<(), RestoreError> {
        let Some(config) = self.config.clone() else {
            return Ok(());
        };
        let hash = key.hash();
        let mine = self.params.life.incarnation;
        let left = config.is_left_on_disks(self.me(), hash);
        // A server that lived has every record in memory, except the deletions that it has
        // forgotten. Records that other servers are to hold are taken as well, because these
        // servers copy them from here.
        let is_full = config.holds_fully(self.me(), mine, hash);
        let wanted =
            left && (!is_full || (state.snapshot.is_none() && self.version(key) == Version::NONE));
        if wanted && !self.install(key, state)? {
            return Err(RestoreError::Memory(self.params.memory_bytes_max));
        }
        Ok(())
    }

    /// Notes that it was given every record of its disk, in this configuration.
    pub fn restored(&mut self, now: MonoNs, number: ConfigNumber) {
        if let Some(persist) = &mut self.persist
            && persist.restores == Some(number)
        {
            persist.restores = None;
            self.ping(now);
        }
    }

    /// Returns whether the server reads its disk in this configuration, for keys that are left on
    /// disks only.
    pub(super) fn disk_speaks(&self, config: &crate::config::Config) -> bool {
        let Some(disk) = self.persist.as_ref().map(|it| it.disk) else {
            return false;
        };
        let mine = self.params.life.incarnation;
        let is_me = |member: &crate::config::Member| {
            member.server == self.me() && member.incarnation == mine
        };
        let takes_part = config.next.iter().flatten().any(is_me);
        // The disk has the records of an earlier incarnation that is gone. For a server that lives,
        // only the disk has the deletions that the memory has forgotten.
        let counted = config.members.iter().find(|it| it.server == self.me());
        let asked = counted.filter(|it| it.gone || it.incarnation == mine);
        let Some(through) = asked.and_then(|it| disk.through(it.incarnation)) else {
            return false;
        };
        // The server waits until the other disks are back, and does not read a disk that is too old
        // itself. With two disks out of three, the older one may have records that were deleted
        // since.
        let may = config.needs_disks()
            && (config.disks_missing().is_empty() || planted(Bug::DisksNotWaitedFor))
            && config.is_in_time(through);
        takes_part && may
    }
}
