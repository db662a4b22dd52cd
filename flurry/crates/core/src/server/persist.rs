//! What goes to a server's disk, and what comes from there.
//!
//! The disk is a copy of the memory, some moments old, off the path of answers. Whoever drives a server
//! takes each change from it, in order, and says how far they are on disk; an operation at level `disk`
//! is answered from then on. A disk speaks for its server only when nobody else can: of keys whose
//! replicas are all gone, the newest state on any of their disks is what there is. So a server that came
//! back while others lived takes nothing from its disk, since they may have deleted it and forgotten that.
//!
//! A disk is complete when it holds every record of a life. A server counts as having copied what it
//! should only then: whoever takes part has all that it holds on disk, but for the last moments.

use std::collections::VecDeque;
use std::hash::BuildHasherDefault;

use indexmap::IndexMap;

use super::{Destination, Server};
use crate::bugs::{Bug, planted};
use crate::config::Disk;
use crate::id::{ConfigNumber, Incarnation, Key, MonoNs, Version};
use crate::machine::{Malformed, StateMachine};
use crate::message::{Copy, Message, Reply, State, Verdict};
use crate::table::{KeyHasher, state_of};

/// Replies that wait for the disk at most: what is asked again waits again.
const HELD_MAX: usize = 65_536;

/// Changes that are remembered in order beyond twice the keys that wait.
const ORDER_SLACK: usize = 1_024;

/// A record as it shall be on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its place among the changes of a life, from 1.
    pub position: u64,
    /// Which.
    pub key: Key,
    /// What there is of it.
    pub what: What,
}

/// What became of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// It is this.
    Is(State),
    /// Every replica has this deletion, and the memory has forgotten it. The disk must not, for longer
    /// than [`crate::config::DISK_LAG_MAX`] twice: another disk may still have what was deleted.
    Buried(State),
    /// The server holds the key no more: others do, and may forget it.
    Moved,
}

/// Why a record of a disk was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// Together they need more memory than there may be.
    #[error(
        "memory: what is on disk needs more than {0} bytes; wanted room for all of it; hint: give the server more --memory"
    )]
    Memory(usize),
    /// The machine cannot read it.
    #[error(
        "disk: a record cannot be read ({0}); wanted what this machine wrote; hint: is the server of another service?"
    )]
    Record(#[from] Malformed),
}

/// A reply that waits until the disk is as far.
#[derive(Debug, Clone)]
struct Held {
    position: u64,
    to: Destination,
    key: Key,
    reply: Reply,
}

/// The part of a server that knows of its disk.
#[derive(Debug, Clone)]
pub(super) struct Persist {
    /// What the disk held at the start, or holds since.
    pub(super) disk: Disk,
    /// Everything of this life is there, up to `durable`.
    complete: bool,
    position: u64,
    durable: u64,
    changes: VecDeque<Change>,
    /// The last change of a key, where it is not on disk yet.
    pending: IndexMap<Key, u64, BuildHasherDefault<KeyHasher>>,
    /// The same, in order.
    order: VecDeque<(u64, Key)>,
    held: VecDeque<Held>,
    /// How many have been held ever.
    held_total: u64,
    /// The last change when everything was copied in a configuration.
    copied: (ConfigNumber, u64),
    /// The configuration in which the disk is asked for what is left of keys there alone, until all of
    /// that has come.
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

    /// Whether a server that has copied what it should in a configuration has it on disk too.
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

    /// A reply that has waited long enough.
    fn next_held(&mut self) -> Option<Held> {
        let (complete, durable) = (self.complete, self.durable);
        self.held
            .pop_front_if(|held| complete && held.position <= durable)
    }

    /// A new life has nothing on disk, and has told nobody anything.
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
                // Of a key only the last one is looked for, however long a disk takes.
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
    /// Keeps its records on a disk too, of which this was found at the start.
    #[must_use]
    pub fn with_disk(mut self, disk: Disk) -> Self {
        self.persist = Some(Persist::new(disk));
        self
    }

    /// The next change to write. To be called until it is empty after each input.
    pub fn poll_change(&mut self) -> Option<Change> {
        self.persist.as_mut()?.changes.pop_front()
    }

    /// The life whose records the disk holds now, all of them, and up to when.
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

    /// Every change up to this position of this life is on disk.
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

    /// How many replies of this life have had to wait for the disk: whoever drives it may take its time
    /// while that stays as it is.
    #[must_use]
    pub fn replies_held(&self) -> u64 {
        self.persist.as_ref().map_or(0, |it| it.held_total)
    }

    /// Sends the replies that waited for what is on disk now.
    fn release(&mut self, now: MonoNs) {
        while let Some(mut held) = self.persist.as_mut().and_then(Persist::next_held) {
            // Told under an earlier configuration, or without a lease any more, it counts for nothing:
            // whoever waits asks again.
            if held.reply.config != self.number() || self.lease_left(now).0 == 0 {
                continue;
            }
            let id = held.reply.id;
            let session = self.sessions.get(&id.session);
            if let Some(later) = session.map(|it| it.epoch).filter(|it| *it > id.epoch) {
                held.reply.verdict = Verdict::Fenced(later);
            }
            let have = self.version(&held.key);
            // Less than it had: every replica has told of it, and of the deletion that came after.
            if have >= held.reply.have {
                held.reply.have = have;
                self.outbox.push_back((held.to, Message::Reply(held.reply)));
            }
        }
    }

    /// Whether a reply has to wait for the disk, which it then does.
    pub(super) fn hold(&mut self, to: Destination, copy: &Copy, reply: &Reply) -> bool {
        if copy.request.level != crate::config::Level::Disk || planted(Bug::DiskLevelInMemory) {
            return false;
        }
        // A later write of the same owner is there, which stands for this one: it must be on disk too.
        let says_it_has = matches!(
            reply.verdict,
            Verdict::Done(_) | Verdict::Held | Verdict::Stale
        );
        let Some(persist) = &mut self.persist else {
            // It has no disk: what it has never counts.
            return says_it_has;
        };
        let pending = persist.pending.get(&copy.request.key).copied();
        if !says_it_has || (persist.complete && pending.is_none()) {
            return false;
        }
        persist.held_total += 1;
        if persist.held.len() < HELD_MAX {
            // Held in order: a key's later change is behind everything that is held already.
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

    /// Notes that there is something new of a key.
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

    /// The life of this server that takes part for good, which need not be the present one: if all end
    /// now, its disk will be asked for the records of that one.
    #[must_use]
    pub fn counted_life(&self) -> Option<Incarnation> {
        let members = &self.config.as_ref()?.members;
        let mine = members.iter().find(|member| member.server == self.me());
        mine.map(|member| member.incarnation)
    }

    /// Whether it takes part, and has everything that it should: a scan from now on misses nothing.
    #[must_use]
    pub fn has_copied(&self) -> bool {
        let copied = self.join.as_ref().is_none_or(super::Join::is_done);
        self.is_member() && self.restores().is_none() && copied
    }

    /// Records from a place of the table downwards, of so many bytes at least, and where to go on;
    /// `None` when they were the last. From `u64::MAX` on they are all that there was at the start and
    /// stayed; what came meanwhile is told by [`Self::poll_change`].
    #[must_use]
    pub fn scan(&self, below: u64, bytes_max: usize) -> (Vec<(Key, State)>, Option<u64>) {
        let len = self.table.len();
        let end = usize::try_from(below).map_or(len, |below| below.min(len));
        let (mut records, mut bytes) = (Vec::new(), 0);
        for index in (0..end).rev() {
            if bytes >= bytes_max {
                return (records, Some(index as u64 + 1));
            }
            if let Some((key, record)) = self.table.at(index) {
                let state = state_of(&self.machine, record);
                bytes += key.bytes().len() + state.snapshot.as_ref().map_or(0, bytes::Bytes::len);
                records.push((key.clone(), state));
            }
        }
        (records, None)
    }

    /// The configuration in which it wants every record of its disk, one by one; another one wants them
    /// all again.
    #[must_use]
    pub fn restores(&self) -> Option<ConfigNumber> {
        self.persist.as_ref()?.restores
    }

    /// A record of its disk, from before this life.
    ///
    /// # Errors
    ///
    /// [`RestoreError`]: it cannot have everything, so it must not go on.
    pub fn restore(&mut self, key: &Key, state: State) -> Result<(), RestoreError> {
        let Some(config) = self.config.clone() else {
            return Ok(());
        };
        let hash = key.hash();
        let mine = self.params.life.incarnation;
        let left = config.is_left_on_disks(self.me(), hash);
        // Of one that lives the memory has everything but the deletions that it has forgotten. What shall
        // be elsewhere in future is taken too, since those who shall have it copy it from here.
        let is_full = config.holds_fully(self.me(), mine, hash);
        let wanted =
            left && (!is_full || (state.snapshot.is_none() && self.version(key) == Version::NONE));
        if wanted && !self.install(key, state)? {
            return Err(RestoreError::Memory(self.params.memory_bytes_max));
        }
        Ok(())
    }

    /// Every record of its disk has come, in this configuration.
    pub fn restored(&mut self, now: MonoNs, number: ConfigNumber) {
        if let Some(persist) = &mut self.persist
            && persist.restores == Some(number)
        {
            persist.restores = None;
            self.ping(now);
        }
    }

    /// Whether its disk is asked for what is left of some keys in this configuration.
    pub(super) fn disk_speaks(&self, config: &crate::config::Config) -> bool {
        let Some(disk) = self.persist.as_ref().map(|it| it.disk) else {
            return false;
        };
        let mine = self.params.life.incarnation;
        let is_me = |member: &crate::config::Member| {
            member.server == self.me() && member.incarnation == mine
        };
        let takes_part = config.next.iter().flatten().any(is_me);
        // Of an earlier life, that came back. One that lives knows of deletions by its disk alone, which
        // its memory has forgotten.
        let counted = config.members.iter().find(|it| it.server == self.me());
        let asked = counted.filter(|it| it.gone || it.incarnation == mine);
        let Some(through) = asked.and_then(|it| disk.through(it.incarnation)) else {
            return false;
        };
        // Not before it is known who else has come back: of two of three, one that is late may have what
        // was deleted since. Nor if it is late itself.
        let may = config.needs_disks()
            && (config.disks_missing().is_empty() || planted(Bug::DisksNotWaitedFor))
            && config.is_in_time(through);
        takes_part && may
    }
}
