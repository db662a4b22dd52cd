//! Simulates the servers' disks: records reach a disk some moments after memory, and survive a
//! crash.

use std::collections::{BTreeMap, VecDeque};

use flurry_core::config::{Disk, SavedLife};
use flurry_core::id::{ConfigNumber, Incarnation, Key, MonoNs, WallNs};
use flurry_core::key_value::KeyValue;
use flurry_core::message::State;
use flurry_core::server::{Change, Server, What};

use crate::scenario::MS;
use crate::world::{NodeId, World};

/// Bytes of records that are copied at once.
const SCAN_BYTES: usize = 200;

type Rows = BTreeMap<Key, State>;

/// Records of one incarnation.
#[derive(Debug, Clone, Default)]
struct Copied {
    life: Option<Incarnation>,
    /// Virtual time up to which the records are complete.
    through: u64,
    rows: Rows,
}

impl Copied {
    fn saved(&self) -> Option<SavedLife> {
        let through = WallNs(i64::try_from(self.through).unwrap_or(i64::MAX));
        self.life.map(|life| SavedLife { life, through })
    }
}

/// Returns the incarnation that both shards have on disk, with the earlier of their two times.
fn earlier(own: Option<SavedLife>, other: Option<SavedLife>) -> Option<SavedLife> {
    own.map(|own| match other.filter(|it| it.life == own.life) {
        Some(other) => SavedLife {
            through: own.through.min(other.through),
            ..own
        },
        None => own,
    })
}

/// Part of the memory that is still to be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scan {
    From(u64),
    Done,
}

/// The disk of one shard.
#[derive(Debug, Default)]
pub(crate) struct ShardDisk {
    /// All records of an incarnation.
    whole: Copied,
    /// All records of a later incarnation, which may not count yet.
    candidate: Option<Copied>,
    /// Records of the present incarnation, while they are copied; lost with its process.
    next: Option<(Copied, Option<Scan>)>,
    /// Changes under way to the disk, with the time at which each is written.
    queue: VecDeque<(u64, Incarnation, Change)>,
    restored: Option<ConfigNumber>,
    /// Time of its next turn.
    due: Option<u64>,
    /// True once the operator has declared the records of an earlier incarnation lost.
    given_up: bool,
}

fn install(rows: &mut Rows, key: Key, state: State) {
    let known = rows.get(&key).map(|it| it.version);
    if known.is_none_or(|known| known <= state.version) {
        rows.insert(key, state);
    }
}

impl ShardDisk {
    /// Returns the content that a server finds on its disk at its start.
    pub(crate) fn found(&self) -> Disk {
        Disk {
            current: self.whole.saved(),
            next: self.candidate.as_ref().and_then(Copied::saved),
            lost: self.given_up,
        }
    }

    /// Records that the operator declares the records of an earlier incarnation lost.
    pub(crate) fn give_up(&mut self) {
        self.given_up = true;
    }

    /// Returns true if this time is before the next turn, and moves the next turn to it.
    pub(crate) fn is_earlier(&mut self, at: u64) -> bool {
        let earlier = self.due.is_none_or(|due| at < due);
        if earlier {
            self.due = Some(at);
        }
        earlier
    }

    /// Returns true if the next turn is now. A turn that an earlier one has replaced is not.
    pub(crate) fn is_due(&mut self, now: u64) -> bool {
        self.due.take_if(|due| *due <= now).is_some()
    }

    /// Simulates the end of the process: writes under way are lost.
    pub(crate) fn crash(&mut self) {
        self.due = None;
        self.queue.clear();
        self.next = None;
        self.restored = None;
    }

    /// Replaces a broken disk by an empty one.
    pub(crate) fn lose(&mut self) {
        *self = Self::default();
    }

    /// Returns the records of an incarnation, wherever they are.
    fn of(&mut self, life: Incarnation) -> impl Iterator<Item = &mut Copied> {
        let next = self.next.as_mut().map(|(copied, _)| copied);
        let earlier = [&mut self.whole].into_iter().chain(&mut self.candidate);
        let all = earlier.chain(next);
        all.filter(move |it| it.life == Some(life))
    }

    /// Completes the writes that have been under way long enough, for the present incarnation.
    /// Returns how far they reach.
    fn write(&mut self, now: u64, present: Incarnation) -> Option<(Incarnation, u64)> {
        let mut through = None;
        while self.queue.front().is_some_and(|(at, _, _)| *at <= now)
            && let Some((_, life, change)) = self.queue.pop_front()
        {
            through = Some((life, change.position));
            // A deletion that memories have forgotten is kept for longer than a run lasts.
            for copied in self.of(life) {
                let key = change.key.clone();
                match &change.what {
                    What::Is(state) | What::Buried(state) => {
                        install(&mut copied.rows, key, state.clone());
                    }
                    What::Moved => {
                        copied.rows.remove(&key);
                    }
                }
            }
        }
        self.of(present).for_each(|copied| copied.through = now);
        through
    }

    /// Copies some more records of the memory, if the server takes part.
    fn copy(&mut self, server: &Server<KeyValue>) {
        let life = server.life().incarnation;
        if self.has_all(life) || !server.is_member() {
            return;
        }
        if self
            .next
            .as_ref()
            .is_none_or(|(it, _)| it.life != Some(life))
        {
            let copied = Copied {
                life: Some(life),
                ..Copied::default()
            };
            self.next = Some((copied, Some(Scan::From(u64::MAX))));
        }
        let has_copied = server.has_copied();
        let Some((copied, Some(scan))) = &mut self.next else {
            return;
        };
        // The scan begins once the server has everything, so that it misses nothing.
        let Scan::From(below) = *scan else { return };
        if below == u64::MAX && !has_copied {
            return;
        }
        let (records, next) = server.scan(below, SCAN_BYTES);
        for (key, state) in records {
            install(&mut copied.rows, key, state);
        }
        *scan = next.map_or(Scan::Done, Scan::From);
    }

    fn has_all(&self, life: Incarnation) -> bool {
        self.found().holds(life)
    }

    fn is_copied(&self, life: Incarnation) -> bool {
        let done = |(copied, scan): &(Copied, Option<Scan>)| {
            copied.life == Some(life) && *scan == Some(Scan::Done)
        };
        self.has_all(life) || self.next.as_ref().is_some_and(done)
    }
}

impl World {
    /// Queues the changes that a server wants written, and restores the records that it asks for.
    pub(crate) fn after_disk(&mut self, place: NodeId, server: &mut Server<KeyValue>) {
        if !self.scenario.disk {
            return;
        }
        let now = self.now;
        let life = server.life().incarnation;
        while let Some(change) = server.poll_change() {
            let slow = if self.dice.chance(20_000) { 300 } else { 8 };
            let takes = self.dice.between(MS / 10, slow * MS);
            let disk = self.disks.entry(place).or_default();
            let at = disk
                .queue
                .back()
                .map_or(0, |(at, _, _)| *at)
                .max(now + takes);
            disk.queue.push_back((at, life, change));
            self.disk_at(place, at);
        }
        let disk = self.disks.entry(place).or_default();
        if server.restores() != disk.restored {
            disk.restored = server.restores();
            if let Some(number) = disk.restored {
                let later = disk.candidate.iter().flat_map(|it| it.rows.clone());
                let rows: Vec<(Key, State)> =
                    disk.whole.rows.clone().into_iter().chain(later).collect();
                let local = self.local(place);
                for (key, state) in rows {
                    if let Err(error) = server.restore(&key, &state) {
                        self.violate(format!("a disk cannot be read: {error}"));
                    }
                }
                server.restored(local, number);
            }
        }
    }

    /// Gives a disk its turn: completes writes, and copies more of the memory.
    pub(crate) fn disk_turn(&mut self, place: NodeId, server: &mut Server<KeyValue>) {
        let (now, local) = (self.now, self.local(place));
        let endpoint = server.life().endpoint;
        let life = server.life().incarnation;
        let disk = self.disks.entry(place).or_default();
        if let Some((life, position)) = disk.write(now, life) {
            server.set_durable(local, life, position);
        }
        disk.copy(server);
        let copied = disk.is_copied(life);
        self.count(server);
        // The shards of a server complete their copies together.
        let others = self.places_of(endpoint.server.0);
        let all = copied
            && others.iter().all(|other| {
                *other == place || self.disks.get(other).is_some_and(|it| it.is_copied(life))
            });
        if all {
            for other in &others {
                let disk = self.disks.entry(*other).or_default();
                if let Some((copied, _)) = disk.next.take_if(|(it, _)| it.life == Some(life)) {
                    disk.candidate = Some(copied);
                }
            }
        }
        self.tell_disk(local, place, server);
        let later = now + self.dice.between(MS, 20 * MS);
        self.disk_at(place, later);
    }

    /// Makes the records of the incarnation that takes part for good the ones that count. This must
    /// happen before records of another incarnation take the place of the candidate.
    fn count(&mut self, server: &Server<KeyValue>) {
        let Some(life) = server.counted_life() else {
            return;
        };
        for place in self.places_of(server.life().endpoint.server.0) {
            let disk = self.disks.entry(place).or_default();
            if let Some(copied) = disk.candidate.take_if(|it| it.life == Some(life)) {
                disk.whole = copied;
            }
        }
    }

    fn tell_disk(&mut self, local: MonoNs, place: NodeId, server: &mut Server<KeyValue>) {
        let places = self.places_of(server.life().endpoint.server.0);
        let mut found = self.disks.entry(place).or_default().found();
        for other in places.iter().filter_map(|it| self.disks.get(it)) {
            let other = other.found();
            found.current = earlier(found.current, other.current);
            found.next = earlier(found.next, other.next);
        }
        server.set_disk(local, found);
    }
}
