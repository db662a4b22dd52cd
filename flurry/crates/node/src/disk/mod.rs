//! A server's disk: a copy of the records in memory, written on a thread of its own.
//!
//! Shards send their changes, and go on. The thread writes all changes that have arrived in one commit,
//! and reports how far it is. The next commit gathers changes while one is under way, and a while longer
//! unless a reply waits. A new incarnation of the server is copied into a file of its own. When the copy
//! is complete it becomes the candidate, and it replaces the old file when the incarnation takes part for
//! good. So there is always a file with all records of the incarnation that the others would count as
//! lost.

mod files;
mod generation;
mod shard;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use flurry_core::config::Disk;
use flurry_core::id::{ConfigNumber, Incarnation, Key, WallNs};
use flurry_core::message::State;
use flurry_core::server::Change;

use crate::Error;
use crate::link::Wake;
use files::Files;
use generation::Generation;
use writer::Writer;

pub(crate) use shard::ShardDisk;

/// What a shard wants of the disk.
#[derive(Debug)]
enum Order {
    /// These changed, in this order; and all that changed before this moment has been sent.
    Changes {
        shard: u8,
        life: Incarnation,
        changes: Vec<Change>,
        at: WallNs,
        /// True if a reply waits until these changes, or earlier ones, are on disk.
        hurry: bool,
    },
    /// Some of all the records that there are, and whether these are the last.
    Records {
        shard: u8,
        life: Incarnation,
        copy: u64,
        records: Vec<(Key, State)>,
        last: bool,
    },
    /// The shard has a life of which all is to be copied, with all that changed up to here.
    Copy {
        shard: u8,
        life: Incarnation,
        position: u64,
    },
    /// The life takes part for good.
    Promote {
        life: Incarnation,
    },
    /// Records of earlier lives, from this place on.
    Read {
        shard: u8,
        number: ConfigNumber,
        from: Place,
    },
    /// The cluster is none that these records are of.
    Refuse,
    Stop,
}

/// Returns the error for a server whose disk has records of another cluster, or of one whose controller
/// has lost its state. A new copy must not replace these records.
fn stranger() -> Error {
    Error::Refused {
        reason: "disk: it holds the records of another cluster, or of one whose controller has lost its state; wanted an empty directory; hint: give the controller its state back and remove the file refused from the directory, or give the server another --disk".to_owned(),
    }
}

/// A place in the files of earlier lives: behind a row of one of them.
#[derive(Debug, Clone, Default)]
struct Place {
    file: usize,
    after: Vec<u8>,
}

/// A notification from the disk thread to a shard.
#[derive(Debug)]
enum Told {
    /// All changes of this life up to this position are there.
    Durable(Incarnation, u64),
    /// What it holds.
    Holds(Disk),
    /// More records are wanted of this copy; a new copy begins at the beginning.
    Wants { life: Incarnation, copy: u64 },
    /// Records, and where to go on.
    Read {
        number: ConfigNumber,
        records: Vec<(Key, State)>,
        next: Option<Place>,
    },
    /// The disk cannot be read. A shard that needs its records cannot go on.
    Broken(Error),
}

/// What a shard has not heard yet.
#[derive(Debug, Clone)]
struct Inbox {
    told: Arc<Mutex<Vec<Told>>>,
    wake: Wake,
}

impl Inbox {
    fn notify(&self, told: Told) {
        let mut waiting = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push(told);
        drop(waiting);
        self.wake.call();
    }

    fn take(&self) -> Vec<Told> {
        let mut waiting = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *waiting)
    }
}

/// The disk's counters for the metrics.
#[derive(Debug, Default)]
struct Numbers {
    /// Bytes that wait to be written.
    waiting_bytes: AtomicUsize,
    commits: AtomicU64,
    failures: AtomicU64,
    records_written: AtomicU64,
}

/// A server's disk, before its shards run.
#[derive(Debug)]
pub(crate) struct ServerDisk {
    files: Files,
    generations: [Option<Generation>; 2],
    shards: u8,
    found: Disk,
}

/// The disk thread. Dropping it writes all pending records and ends the thread.
#[derive(Debug)]
pub(crate) struct DiskThread {
    orders: Sender<Order>,
    thread: Option<JoinHandle<()>>,
}

impl ServerDisk {
    /// Opens a directory, and looks at all that is there.
    pub(crate) fn open(path: &Path, shards: u8, lost: bool) -> Result<Self, Error> {
        let files = Files::open(path)?;
        if files.has_refused(lost)? {
            return Err(stranger());
        }
        let [current, candidate] = files.found()?;
        let open = |path: Option<PathBuf>| path.map(|it| Generation::open(it, shards)).transpose();
        let mut generations = [open(current)?, open(candidate)?];
        let [life, next] = [0, 1].map(|it| generations[it].as_ref().map(|it| it.life));
        if life == next
            && let Some(whole) = generations[1].take()
        {
            // Copied anew after a failure: the first one misses something.
            files.make_current(whole.path())?;
            generations[0] = Some(whole);
        }
        let [current, next] = [0, 1].map(|it| generations[it].as_ref().map(Generation::saved));
        let found = Disk {
            current,
            next,
            lost,
        };
        Ok(Self {
            files,
            generations,
            shards,
            found,
        })
    }

    /// What it holds at the start.
    pub(crate) fn found(&self) -> Disk {
        self.found
    }

    /// Starts the thread, with what each shard is woken by; a shard's side of it for each.
    pub(crate) fn start(self, wakes: Vec<Wake>) -> Result<(DiskThread, Vec<ShardDisk>), Error> {
        let (orders, taken): (Sender<Order>, Receiver<Order>) = channel();
        let inboxes: Vec<Inbox> = wakes
            .into_iter()
            .map(|wake| Inbox {
                told: Arc::default(),
                wake,
            })
            .collect();
        let numbers = Arc::<Numbers>::default();
        let sides = (0..self.shards).zip(&inboxes).map(|(shard, inbox)| {
            let (orders, numbers) = (orders.clone(), Arc::clone(&numbers));
            ShardDisk::new(shard, orders, inbox.clone(), numbers, self.found)
        });
        let sides = sides.collect();
        let place: PathBuf = self.files.path().to_owned();
        let writer = Writer::new(self.files, self.generations, inboxes, numbers);
        let thread = std::thread::Builder::new()
            .name("flurry-disk".to_owned())
            .spawn(move || writer.run(&taken))
            .map_err(|error| Error::io(place.display(), "a thread", &error))?;
        let thread = DiskThread {
            orders,
            thread: Some(thread),
        };
        Ok((thread, sides))
    }
}

impl Drop for DiskThread {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.orders.send(Order::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Numbers {
    fn waiting(&self) -> usize {
        self.waiting_bytes.load(Ordering::Relaxed)
    }
}

/// About what a change takes until it is written.
fn bytes_of(key: &Key, state: Option<&State>) -> usize {
    let value = state.map_or(0, |state| {
        state.answer.len() + state.snapshot.as_ref().map_or(0, bytes::Bytes::len)
    });
    key.bytes().len() + value + 128
}
