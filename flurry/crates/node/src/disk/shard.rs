//! A shard's side of its server's disk.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use flurry_core::config::Disk;
use flurry_core::id::{ConfigNumber, DurationNs, Incarnation, MonoNs};
use flurry_core::machine::StateMachine;
use flurry_core::server::{Change, Server, What};
use tracing::info;

use super::{Inbox, Numbers, Order, Place, Told, bytes_of, stranger};
use crate::Error;
use crate::clock;
use crate::metrics::{Page, count};

/// Bytes of records that are copied in one turn at most, so that nobody waits for it.
const COPY_BYTES: usize = 64 << 10;

/// Changes that wait for the disk at most. A disk that is so far behind is as good as failed: what it
/// holds is copied anew when it has time again.
const WAITING_BYTES_MAX: usize = 512 << 20;

/// Interval at which a shard without changes reports to the disk that there are none.
const TELL_EVERY: DurationNs = DurationNs::millis(5_000);

/// What a shard knows of the disk.
#[derive(Debug)]
pub(crate) struct ShardDisk {
    shard: u8,
    orders: Sender<Order>,
    inbox: Inbox,
    numbers: Arc<Numbers>,
    found: Disk,
    /// The incarnation whose records the shard has asked the disk to copy.
    copies: Option<Incarnation>,
    /// A copy, and from which place of the table it goes on.
    copying: Option<(Incarnation, u64, u64)>,
    /// It wants more.
    wants: bool,
    /// The incarnation that the shard has asked the disk to count.
    promoted: Option<Incarnation>,
    /// The configuration for which the disk is being read.
    reading: Option<ConfigNumber>,
    /// The server's present life, and the last change of it.
    life: Option<Incarnation>,
    position: u64,
    /// Replies of that life that have waited ever.
    held: u64,
    /// Too much waits: changes are not sent until the copy that makes up for them.
    overflowed: bool,
    told_at: MonoNs,
}

impl ShardDisk {
    pub(super) fn new(
        shard: u8,
        orders: Sender<Order>,
        inbox: Inbox,
        numbers: Arc<Numbers>,
        found: Disk,
    ) -> Self {
        Self {
            shard,
            orders,
            inbox,
            numbers,
            found,
            copies: None,
            copying: None,
            wants: false,
            promoted: None,
            reading: None,
            life: None,
            position: 0,
            held: 0,
            overflowed: false,
            told_at: MonoNs(0),
        }
    }

    /// When it has something to do though nothing comes.
    pub(crate) fn due(&self) -> MonoNs {
        self.told_at.after(TELL_EVERY)
    }

    fn send(&self, order: Order) -> Result<(), Error> {
        let stopped = |_| Error::Stopped {
            part: "disk".to_owned(),
        };
        self.orders.send(order).map_err(stopped)
    }

    /// Handles the notifications of the disk and the requests of the server.
    pub(crate) fn turn<M: StateMachine>(
        &mut self,
        now: MonoNs,
        server: &mut Server<M>,
    ) -> Result<(), Error> {
        for told in self.inbox.take() {
            self.told(now, server, told)?;
        }
        // Before a copy begins, so that it covers them.
        self.send_changes(now, server)?;
        self.follow_commit(server)?;
        self.follow_life(server)?;
        self.follow_restore(server)?;
        self.copy(server)
    }

    fn told<M: StateMachine>(
        &mut self,
        now: MonoNs,
        server: &mut Server<M>,
        told: Told,
    ) -> Result<(), Error> {
        match told {
            Told::Durable(life, position) => server.set_durable(now, life, position),
            Told::Holds(disk) => {
                self.found = disk;
                server.set_disk(now, disk);
            }
            Told::Wants { life, copy } => {
                let place = match self.copying {
                    Some((known, number, place)) if (known, number) == (life, copy) => place,
                    _ => u64::MAX,
                };
                self.copying = Some((life, copy, place));
                self.wants = true;
            }
            Told::Read {
                number,
                records,
                next,
            } if self.reading == Some(number) => {
                for (key, state) in records {
                    let restored = server.restore(&key, &state);
                    restored.map_err(|error| Error::Refused {
                        reason: error.to_string(),
                    })?;
                }
                match next {
                    Some(from) => self.read(number, from)?,
                    None => {
                        info!("all that was on its disk was read");
                        server.restored(now, number);
                    }
                }
            }
            Told::Read { .. } => {}
            Told::Broken(error) => return Err(error),
        }
        Ok(())
    }

    fn read(&self, number: ConfigNumber, from: Place) -> Result<(), Error> {
        self.send(Order::Read {
            shard: self.shard,
            number,
            from,
        })
    }

    /// A server that takes part with another life is copied anew.
    fn follow_life<M: StateMachine>(&mut self, server: &Server<M>) -> Result<(), Error> {
        let life = server.life().incarnation;
        if !server.has_copied() || self.copies == Some(life) {
            return Ok(());
        }
        let first = server
            .config()
            .is_some_and(|config| config.number == ConfigNumber(1));
        let others = self.found.current.is_some_and(|it| it.life != life);
        if first && others && !self.found.lost {
            self.send(Order::Refuse)?;
            return Err(stranger());
        }
        self.copies = Some(life);
        self.promoted = None;
        self.copying = None;
        self.overflowed = false;
        self.send(Order::Copy {
            shard: self.shard,
            life,
            position: self.position,
        })
    }

    /// A life that takes part for good is the one that its disk must have; before the records of another
    /// come, which would take their place.
    fn follow_commit<M: StateMachine>(&mut self, server: &Server<M>) -> Result<(), Error> {
        let counted = server.counted_life();
        let next = self.found.next.map(|it| it.life);
        let Some(life) = counted.filter(|it| next == Some(*it)) else {
            // The disk has it already or has lost it, and will be asked again.
            self.promoted = None;
            return Ok(());
        };
        if self.promoted.replace(life) == Some(life) {
            return Ok(());
        }
        self.send(Order::Promote { life })
    }

    /// What is left on disks alone is read, and read again when more is.
    fn follow_restore<M: StateMachine>(&mut self, server: &Server<M>) -> Result<(), Error> {
        if server.restores() == self.reading {
            return Ok(());
        }
        self.reading = server.restores();
        match self.reading {
            Some(number) => self.read(number, Place::default()),
            None => Ok(()),
        }
    }

    fn send_changes<M: StateMachine>(
        &mut self,
        now: MonoNs,
        server: &mut Server<M>,
    ) -> Result<(), Error> {
        let life = server.life().incarnation;
        if self.life.replace(life) != Some(life) {
            // Its changes are counted from the beginning.
            self.position = 0;
        }
        let held = server.replies_held();
        let hurry = std::mem::replace(&mut self.held, held) != held;
        let mut changes: Vec<Change> = Vec::new();
        let mut bytes = 0;
        while let Some(change) = server.poll_change() {
            let state = match &change.what {
                What::Is(state) | What::Buried(state) => Some(state),
                What::Moved => None,
            };
            bytes += bytes_of(&change.key, state);
            self.position = change.position;
            changes.push(change);
        }
        let nothing = changes.is_empty() && !hurry;
        if self.copies == Some(life) && nothing && now < self.due() {
            return Ok(());
        }
        self.told_at = now;
        if self.copies != Some(life) {
            return Ok(());
        }
        self.overflowed |= self.numbers.waiting() > WAITING_BYTES_MAX;
        if self.overflowed {
            if self.numbers.waiting() == 0 {
                // The copy begins now, so that nothing that was left out is missed.
                self.copies = None;
            }
            return Ok(());
        }
        self.numbers
            .waiting_bytes
            .fetch_add(bytes, Ordering::Relaxed);
        self.send(Order::Changes {
            shard: self.shard,
            life,
            changes,
            at: clock::wall(),
            hurry,
        })
    }

    /// Gives the disk some more of all records.
    fn copy<M: StateMachine>(&mut self, server: &Server<M>) -> Result<(), Error> {
        let Some((life, copy, place)) = self.copying.filter(|_| self.wants) else {
            return Ok(());
        };
        self.wants = false;
        if life != server.life().incarnation {
            return Ok(());
        }
        let (records, next) = server.scan(place, COPY_BYTES);
        let bytes: usize = records
            .iter()
            .map(|(key, state)| bytes_of(key, Some(state)))
            .sum();
        self.numbers
            .waiting_bytes
            .fetch_add(bytes, Ordering::Relaxed);
        self.copying = Some((life, copy, next.unwrap_or(0)));
        self.send(Order::Records {
            shard: self.shard,
            life,
            copy,
            records,
            last: next.is_none(),
        })
    }

    /// Tells how it is.
    pub(crate) fn report(&self, page: &mut Page) {
        let numbers = &self.numbers;
        let waiting = (
            "flurry_disk_waiting_bytes",
            "Changes and copies that wait to be written to the server's disk.",
        );
        page.gauge(waiting, &[], count(numbers.waiting()));
        let commits = ("flurry_disk_commits_total", "Commits of the server's disk.");
        page.counter(commits, &[], numbers.commits.load(Ordering::Relaxed));
        let written = (
            "flurry_disk_records_total",
            "Records written to the server's disk.",
        );
        page.counter(
            written,
            &[],
            numbers.records_written.load(Ordering::Relaxed),
        );
        let failures = (
            "flurry_disk_failures_total",
            "Times that the server's disk failed.",
        );
        page.counter(failures, &[], numbers.failures.load(Ordering::Relaxed));
    }
}
