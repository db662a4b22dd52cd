//! The thread that writes the records of all shards to disk.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use flurry_core::config::{DISK_LAG_MAX, Disk};
use flurry_core::id::{ConfigNumber, Incarnation, Key, WallNs};
use flurry_core::message::State;
use flurry_core::server::{Change, What};
use tracing::{info, warn};

use super::files::Files;
use super::generation::{Generation, Row};
use super::{Inbox, Numbers, Order, Place, Told, bytes_of};
use crate::Error;

/// Approximate limit of the bytes in one commit.
const COMMIT_BYTES_MAX: usize = 8 << 20;

/// How long the thread gathers changes that no reply waits for: a commit costs about the same with many
/// as with one, and writes only the last change of a key.
const GATHER: Duration = Duration::from_millis(20);

/// Bytes of records that are read at once.
const READ_BYTES: usize = 256 << 10;

/// Time after a failure of the disk before the thread tries again.
const AGAIN: Duration = Duration::from_secs(10);

/// How often the thread checks whether a deletion may be forgotten.
const FORGET_EVERY: Duration = Duration::from_secs(1);

/// Most deletions that are forgotten in one commit.
const FORGOTTEN_MAX: usize = 4_096;

/// State of a shard.
#[derive(Debug, Clone, Copy, Default)]
struct Shard {
    /// The incarnation whose changes it sends.
    life: Option<Incarnation>,
    /// Position of the last change that arrived.
    seen: u64,
    /// Wall-clock time up to which all of its changes have arrived.
    through_ns: WallNs,
    /// The copy of which all its records have arrived.
    copied: Option<u64>,
}

/// A file that is being made.
#[derive(Debug)]
struct Next {
    generation: Generation,
    /// Number of this copy.
    copy: u64,
}

pub(super) struct Writer {
    files: Files,
    /// The file that counts.
    current: Option<Generation>,
    /// The complete file of a later incarnation, while it is not known whether it counts.
    candidate: Option<Generation>,
    /// A file that is being made.
    next: Option<Next>,
    inboxes: Vec<Inbox>,
    numbers: Arc<Numbers>,
    shards: Vec<Shard>,
    /// Rows of the next commit: the last one of each key.
    rows: HashMap<Key, Row>,
    bytes: usize,
    /// True if a reply waits for the next commit.
    hurry: bool,
    /// Deletions that memories have forgotten, with the time since then.
    buried: VecDeque<(Instant, Key, State)>,
    /// Files that lack changes. One of them may still be named as the file that counts.
    given_up: Vec<PathBuf>,
    copies: u64,
    failed: Option<Instant>,
    stopped: bool,
}

impl Writer {
    pub(super) fn new(
        files: Files,
        [current, candidate]: [Option<Generation>; 2],
        inboxes: Vec<Inbox>,
        numbers: Arc<Numbers>,
    ) -> Self {
        Self {
            files,
            current,
            candidate,
            next: None,
            shards: vec![Shard::default(); inboxes.len()],
            inboxes,
            numbers,
            rows: HashMap::new(),
            bytes: 0,
            hurry: false,
            buried: VecDeque::new(),
            given_up: Vec::new(),
            copies: 0,
            failed: None,
            stopped: false,
        }
    }

    pub(super) fn run(mut self, orders: &Receiver<Order>) {
        while !self.stopped {
            match orders.recv_timeout(FORGET_EVERY) {
                Ok(order) => self.take(order),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.stopped = true,
            }
            self.gather(orders);
            self.forget();
            if let Err(error) = self.commit() {
                self.fail(&error);
            }
            if self.failed.is_some_and(|since| since.elapsed() > AGAIN) {
                self.failed = None;
                self.copy_anew();
            }
        }
    }

    /// Collects the records that arrived during the last commit for the next one. It also waits a
    /// moment for further records, unless a reply waits for the commit.
    fn gather(&mut self, orders: &Receiver<Order>) {
        let began = Instant::now();
        while self.bytes < COMMIT_BYTES_MAX && !self.stopped {
            let order = if self.is_urgent() {
                orders.try_recv().ok()
            } else {
                let left = GATHER.saturating_sub(began.elapsed());
                orders.recv_timeout(left).ok()
            };
            match order {
                Some(order) => self.take(order),
                None => return,
            }
        }
    }

    /// Returns whether the pending records must be written at once. A copy is urgent, since a
    /// server cannot take part before it is written.
    fn is_urgent(&self) -> bool {
        self.hurry || self.next.is_some() || self.rows.is_empty()
    }

    fn take(&mut self, order: Order) {
        match order {
            Order::Changes {
                shard,
                life,
                changes,
                at,
                hurry,
            } => {
                self.hurry |= hurry;
                self.changed(usize::from(shard), life, changes, at);
            }
            Order::Records {
                shard,
                life,
                copy,
                records,
                last,
            } => {
                for (key, state) in &records {
                    self.release(bytes_of(key, Some(state)));
                }
                if self.next.as_ref().is_some_and(|it| it.copy == copy) {
                    for (key, state) in records {
                        self.put(key, Row::Is(state));
                    }
                    if last {
                        self.shards[usize::from(shard)].copied = Some(copy);
                    } else {
                        self.inboxes[usize::from(shard)].notify(Told::Wants { life, copy });
                    }
                }
            }
            Order::Copy {
                shard,
                life,
                position,
            } => {
                self.shards[usize::from(shard)] = Shard {
                    life: Some(life),
                    seen: position,
                    ..Shard::default()
                };
                // An earlier file of this incarnation may lack changes that were not sent. The new
                // copy has them.
                self.give_up(life);
                self.copy_anew();
            }
            Order::Promote { life } => {
                if let Err(error) = self.promote(life) {
                    self.fail(&error);
                }
            }
            Order::Read {
                shard,
                number,
                from,
            } => self.read(usize::from(shard), number, &from),
            Order::Refuse => {
                if let Err(error) = self.files.refuse() {
                    self.fail(&error);
                }
            }
            Order::Stop => self.stopped = true,
        }
    }

    fn release(&self, bytes: usize) {
        self.numbers
            .waiting_bytes
            .fetch_sub(bytes, Ordering::Relaxed);
    }

    fn changed(&mut self, shard: usize, life: Incarnation, changes: Vec<Change>, at: WallNs) {
        let wanted = self.shards[shard].life == Some(life);
        for change in changes {
            let Change {
                position,
                key,
                what,
            } = change;
            let state = match &what {
                What::Is(state) | What::Buried(state) => Some(state),
                What::Moved => None,
            };
            self.release(bytes_of(&key, state));
            if !wanted {
                continue;
            }
            self.shards[shard].seen = position;
            match what {
                What::Is(state) => self.put(key, Row::Is(state)),
                What::Moved => self.put(key, Row::Moved),
                What::Buried(state) => {
                    self.buried
                        .push_back((Instant::now(), key.clone(), state.clone()));
                    self.put(key, Row::Is(state));
                }
            }
        }
        if wanted {
            self.shards[shard].through_ns = at;
        }
    }

    fn put(&mut self, key: Key, row: Row) {
        let newer = |known: &Row| match (known, &row) {
            (Row::Is(known), Row::Is(state)) => known.version > state.version,
            (Row::Is(_), Row::Forgotten(_)) => true,
            _ => false,
        };
        if self.rows.get(&key).is_some_and(newer) {
            return;
        }
        let state = match &row {
            Row::Is(state) | Row::Forgotten(state) => Some(state),
            Row::Moved => None,
        };
        self.bytes += bytes_of(&key, state);
        self.rows.insert(key, row);
    }

    /// Forgets deletions that every disk must have by now.
    fn forget(&mut self) {
        let after = 2 * Duration::from_nanos(DISK_LAG_MAX.0);
        for _ in 0..FORGOTTEN_MAX {
            let due = self
                .buried
                .pop_front_if(|(since, _, _)| since.elapsed() > after);
            let Some((_, key, state)) = due else { return };
            self.put(key, Row::Forgotten(state));
        }
    }

    /// Writes the pending records, and notifies the shards how far they are written.
    fn commit(&mut self) -> Result<(), Error> {
        self.hurry = false;
        if self.failed.is_some() {
            self.rows.clear();
            self.bytes = 0;
            return Ok(());
        }
        let through: Vec<WallNs> = self.shards.iter().map(|it| it.through_ns).collect();
        let life = self.life();
        // The file with all records of this incarnation.
        let whole = [&mut self.candidate, &mut self.current];
        let whole = whole.into_iter().flatten().find(|it| life == Some(it.life));
        let is_new = whole.as_ref().is_some_and(|it| it.through_ns != through);
        if self.rows.is_empty() && !is_new && self.next.is_none() {
            return Ok(());
        }
        let has_whole = whole.is_some();
        if let Some(whole) = whole {
            whole.commit(self.rows.iter(), &through)?;
        }
        if let Some(next) = &mut self.next {
            next.generation.commit(self.rows.iter(), &through)?;
        }
        self.numbers.commits.fetch_add(1, Ordering::Relaxed);
        let written = self.rows.len() as u64;
        self.numbers
            .records_written
            .fetch_add(written, Ordering::Relaxed);
        self.rows.clear();
        self.bytes = 0;
        let completed = self.complete()?;
        if has_whole || completed {
            self.notify();
        }
        Ok(())
    }

    /// Makes the file that is being made a candidate, once it has all records. Returns whether it did.
    fn complete(&mut self) -> Result<bool, Error> {
        let complete = self.next.as_ref().is_some_and(|next| {
            let all = |shard: &Shard| {
                shard.copied == Some(next.copy) && shard.life == Some(next.generation.life)
            };
            self.shards.iter().all(all)
        });
        let Some(next) = self.next.take_if(|_| complete) else {
            return Ok(false);
        };
        self.files.make_candidate(next.generation.path())?;
        if let Some(earlier) = self.candidate.replace(next.generation) {
            remove(earlier);
        }
        info!(directory = %self.files.path().display(), "all records are on disk");
        Ok(true)
    }

    /// Makes the file of an incarnation that takes part for good the one that counts.
    fn promote(&mut self, life: Incarnation) -> Result<(), Error> {
        let Some(candidate) = self.candidate.take_if(|it| it.life == life) else {
            return Ok(());
        };
        self.files.make_current(candidate.path())?;
        if let Some(earlier) = self.current.replace(candidate) {
            remove(earlier);
        }
        for path in self.given_up.drain(..) {
            let _ = std::fs::remove_file(path);
        }
        self.notify();
        Ok(())
    }

    fn notify(&self) {
        let [current, next] =
            [&self.current, &self.candidate].map(|it| it.as_ref().map(Generation::saved));
        let holds = Disk {
            current,
            next,
            lost: false,
        };
        let Some(life) = self.life().filter(|life| holds.holds(*life)) else {
            return;
        };
        for (inbox, shard) in self.inboxes.iter().zip(&self.shards) {
            inbox.notify(Told::Durable(life, shard.seen));
            inbox.notify(Told::Holds(holds));
        }
    }

    /// Begins a file for the incarnation that all shards have.
    fn copy_anew(&mut self) {
        let Some(life) = self.life() else { return };
        self.copies += 1;
        let copy = self.copies;
        // Rows of an earlier incarnation must not be in this file; all rows of this one are copied.
        self.rows.clear();
        self.bytes = 0;
        let number = life.0 ^ u128::from(copy) << 64;
        let path = self.files.another(number);
        if let Some(unfinished) = self.next.take() {
            remove(unfinished.generation);
        }
        let shards = u8::try_from(self.shards.len()).unwrap_or(u8::MAX);
        match Generation::create(path, life, shards) {
            Ok(generation) => self.next = Some(Next { generation, copy }),
            Err(error) => return self.fail(&error),
        }
        // No record has the deletions that memories have forgotten.
        for (_, key, state) in self.buried.clone() {
            self.put(key, Row::Is(state));
        }
        for inbox in &self.inboxes {
            inbox.notify(Told::Wants { life, copy });
        }
    }

    /// Handles a failure: no change is reported durable until all records are in a new file.
    fn fail(&mut self, error: &Error) {
        warn!(
            "the disk failed, and is left alone for {AGAIN:?}; operations at level disk wait for others: {error}"
        );
        self.numbers.failures.fetch_add(1, Ordering::Relaxed);
        if let Some(unfinished) = self.next.take() {
            remove(unfinished.generation);
        }
        // The file of this incarnation lacks changes from now on; that of an earlier one is complete.
        if let Some(life) = self.life() {
            self.give_up(life);
        }
        self.rows.clear();
        self.bytes = 0;
        self.failed = Some(Instant::now());
    }

    /// Stops counting the files of an incarnation; they stay until another file has taken their place.
    fn give_up(&mut self, life: Incarnation) {
        for file in [&mut self.current, &mut self.candidate] {
            let given_up = file.take_if(|it| it.life == life);
            self.given_up
                .extend(given_up.map(|it| it.path().to_owned()));
        }
    }

    /// Returns the incarnation that all shards have, if they agree.
    fn life(&self) -> Option<Incarnation> {
        let life = self.shards.first().and_then(|it| it.life);
        life.filter(|_| self.shards.iter().all(|it| it.life == life))
    }

    fn read(&self, shard: usize, number: ConfigNumber, from: &Place) {
        let files: Vec<&Generation> = [&self.current, &self.candidate]
            .into_iter()
            .flatten()
            .collect();
        let read = match files.get(from.file) {
            Some(file) => file.read(&from.after, READ_BYTES),
            // The disk failed, and has no new copy yet. The memory has all records of the present
            // incarnation but the deletions that it has forgotten.
            None => {
                let buried = self.buried.iter();
                Ok((
                    buried
                        .map(|(_, key, state)| (key.clone(), state.clone()))
                        .collect(),
                    None,
                ))
            }
        };
        self.inboxes[shard].notify(match read {
            Ok((records, after)) => {
                let file = from.file + usize::from(after.is_none());
                let next = Place {
                    file,
                    after: after.unwrap_or_default(),
                };
                Told::Read {
                    number,
                    records,
                    next: (file < files.len()).then_some(next),
                }
            }
            Err(error) => Told::Broken(error),
        });
    }
}

/// Removes a file that no longer counts. If it cannot be removed, the next start tries again.
fn remove(file: Generation) {
    let path = file.path().to_owned();
    drop(file);
    let _ = std::fs::remove_file(path);
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
