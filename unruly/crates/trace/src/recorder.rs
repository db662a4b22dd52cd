//! The recorder: a hot side that copies a record into a ring, and a drain thread that writes.
//!
//! The hot side takes no lock, allocates nothing and makes no system call. A full ring drops the
//! record and counts it: recording must never slow the measurement, and a drop is shown in red.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use rtrb::{Consumer, Producer, RingBuffer};
use unruly_time::{Clock, ClockPair, ClockWatch, ColumnNs, StepNs};

use crate::error::TraceError;
use crate::locks::WriterLock;
use crate::manifest::Copies;
use crate::record::{Record, Status};
use crate::scheduling::set_scheduler;
use crate::spool::{SpoolHeader, seal_spool};
use crate::tally_page::TallyPage;

/// Records the ring holds: at one million a second it is full after 65 ms, three drain rounds.
const RING_RECORDS: usize = 1 << 16;

/// With fewer free places the ring is crowded.
const RING_CROWDED: usize = RING_RECORDS / 4;

/// How often the drain thread looks: bounds what a kill loses, at 50 wake-ups a second.
const DRAIN_PERIOD: Duration = Duration::from_millis(20);

/// A spool also becomes a segment after this long.
const SPOOL_AGE_MAX: Duration = Duration::from_secs(600);

/// How often the clock pair is taken again.
const PAIR_PERIOD: Duration = Duration::from_secs(1);

/// What a recorder needs to start.
#[derive(Debug, Clone)]
pub struct RecorderOptions {
    /// The run directory.
    pub directory: PathBuf,
    /// First part of the file names, unique in the run: process, cell, repeat.
    pub stem: String,
    /// What the rows have in common.
    pub header: SpoolHeader,
    /// The process's clock, whose kernel offset the drain thread keeps fresh.
    pub clock: Clock,
    /// Records in a spool before it becomes a segment, [`crate::SPOOL_ROWS_MAX`] unless a test asks.
    pub spool_rows_max: u64,
}

/// Counts of the hot side.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Copies by what became of them, as far as they ended.
    pub copies: Copies,
}

/// What the drain thread says at the end.
#[derive(Debug, Default)]
pub struct RecorderReport {
    /// Rows that are in segments now.
    pub rows: u64,
    /// What stopped recording, if anything did (a full disk).
    pub failure: Option<String>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    failed: AtomicBool,
    written: AtomicU64,
    failure: Mutex<Option<String>>,
    steps: Mutex<Vec<(ColumnNs, StepNs)>>,
}

impl Shared {
    fn fail(&self, error: &TraceError) {
        if let Ok(mut failure) = self.failure.lock() {
            failure.get_or_insert_with(|| error.to_string());
        }
        self.failed.store(true, Ordering::Release);
    }
}

/// The hot side. One thread owns it.
#[derive(Debug)]
pub struct Recorder {
    ring: Producer<Record>,
    tally: Tally,
    /// The count of scheduled copies, which recovery reads after the process was killed.
    page: Option<TallyPage>,
    shared: Arc<Shared>,
    drain: Option<JoinHandle<RecorderReport>>,
}

impl Recorder {
    /// Makes the spool and starts the drain thread.
    ///
    /// # Errors
    ///
    /// When the spool cannot be made.
    pub fn start(mut options: RecorderOptions) -> Result<Self, TraceError> {
        let page = TallyPage::make();
        options.header.tally = page.as_ref().map(TallyPage::name);
        let (mut ring, mut consumer) = RingBuffer::new(RING_RECORDS);
        touch(&mut ring, &mut consumer);
        let shared = Arc::new(Shared::default());
        let drain = Drain::open(options, consumer, Arc::clone(&shared))?;
        let handle = std::thread::Builder::new()
            .name("drain".to_owned())
            .spawn(move || drain.run())
            .map_err(|source| TraceError::io(Path::new("drain"), "starting the thread", source))?;
        Ok(Self {
            ring,
            tally: Tally::default(),
            page,
            shared,
            drain: Some(handle),
        })
    }

    /// A recorder that counts every copy as dropped, to measure what recording costs. Not for a run:
    /// it has nothing to finish.
    #[must_use]
    pub fn counting() -> Self {
        let shared = Shared::default();
        shared.failed.store(true, Ordering::Relaxed);
        Self {
            ring: RingBuffer::new(1).0,
            tally: Tally::default(),
            page: None,
            shared: Arc::new(shared),
            drain: None,
        }
    }

    /// Counts a copy that the schedule asked for at this time of the run. Its record must follow,
    /// exactly once.
    pub fn scheduled(&mut self, intended_ns: ColumnNs) {
        self.tally.copies.scheduled += 1;
        if let Some(page) = &self.page {
            page.note(self.tally.copies.scheduled, intended_ns);
        }
    }

    /// Records what became of a copy.
    pub fn record(&mut self, record: &Record) {
        debug_assert!(!record.provisional, "a provisional record is not an end");
        let copies = &mut self.tally.copies;
        *copies.of_mut(record.status) += 1;
        if self.shared.failed.load(Ordering::Relaxed) || self.ring.push(*record).is_err() {
            copies.dropped += 1;
        } else {
            copies.recorded += 1;
        }
    }

    /// Notes a copy that is open for long, so that a crash does not forget it. Returns whether the
    /// ring had room; only then must the final record say that it supersedes this one.
    pub fn note_open(&mut self, record: &Record) -> bool {
        self.ring
            .push(Record {
                provisional: true,
                ..*record
            })
            .is_ok()
    }

    /// Returns true if the ring is so full that no new request should be sent until the drain
    /// thread has made room. The remaining room is for the ends of open requests.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        let drained = !self.shared.failed.load(Ordering::Relaxed) && !self.ring.is_abandoned();
        drained && self.ring.slots() < RING_CROWDED
    }

    /// The counts so far.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// What stopped the recording, if anything did.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        if !self.shared.failed.load(Ordering::Relaxed) {
            return None;
        }
        self.shared
            .failure
            .lock()
            .ok()
            .and_then(|failure| failure.clone())
    }

    /// Clock steps seen since the last call: column time and size.
    #[must_use]
    pub fn take_steps(&self) -> Vec<(ColumnNs, StepNs)> {
        self.shared
            .steps
            .lock()
            .map(|mut steps| std::mem::take(&mut *steps))
            .unwrap_or_default()
    }

    /// Drains the remaining records, seals the spool, and returns the final counts. A record that
    /// the disk refused moves from recorded to dropped.
    ///
    /// # Errors
    ///
    /// Fails if the drain thread panicked, or if the counts do not add up.
    pub fn finish(mut self, place: &str) -> Result<(Tally, RecorderReport), TraceError> {
        self.shared.stop.store(true, Ordering::Release);
        let report = self
            .drain
            .take()
            .and_then(|handle| handle.join().ok())
            .ok_or_else(|| TraceError::Conservation {
                place: place.to_owned(),
                what: "the drain thread panicked".to_owned(),
            })?;
        let copies = &mut self.tally.copies;
        let lost = copies
            .recorded
            .saturating_sub(self.shared.written.load(Ordering::Acquire));
        copies.recorded -= lost;
        copies.dropped += lost;
        copies.check(place)?;
        Ok((self.tally, report))
    }
}

/// Writes and reads the whole ring once. Otherwise the first round would take a page fault for each
/// page on the hot side, in the middle of the measurement.
fn touch(ring: &mut Producer<Record>, consumer: &mut Consumer<Record>) {
    while ring.push(Record::empty()).is_ok() {}
    while consumer.pop().is_ok() {}
}

/// The drain side.
struct Drain {
    options: RecorderOptions,
    ring: Consumer<Record>,
    shared: Arc<Shared>,
    spool: Flock<File>,
    spool_path: PathBuf,
    sequence: u32,
    /// Length of the spool: whole batches only.
    spool_bytes: u64,
    spool_rows: u64,
    spool_started: Instant,
    /// Open copies that were noted in this spool and must be carried into the next one.
    noted: BTreeMap<(u16, u16, u64, u16, u8), Record>,
    buffer: Vec<u8>,
    sealer: Sealer,
    /// Keeps recovery away until the last segment is written.
    _lock: WriterLock,
}

impl Drain {
    fn open(
        options: RecorderOptions,
        ring: Consumer<Record>,
        shared: Arc<Shared>,
    ) -> Result<Self, TraceError> {
        let lock = WriterLock::share(&options.directory)?;
        let (spool_path, spool, spool_bytes) = create_spool(&options, 0)?;
        Ok(Self {
            options,
            ring,
            shared,
            spool,
            spool_path,
            sequence: 0,
            spool_bytes,
            spool_rows: 0,
            spool_started: Instant::now(),
            noted: BTreeMap::new(),
            buffer: Vec::new(),
            sealer: Sealer::start()?,
            _lock: lock,
        })
    }

    fn run(mut self) -> RecorderReport {
        let mut watch = ClockWatch::new(&self.options.clock);
        let mut paired = Instant::now();
        loop {
            // The flag is read before draining, so records pushed before the stop are drained after
            // it.
            let stop = self.shared.stop.load(Ordering::Acquire);
            if let Err(error) = self.drain_ring() {
                self.shared.fail(&error);
            }
            if stop {
                break;
            }
            if paired.elapsed() >= PAIR_PERIOD {
                paired = Instant::now();
                if let Some(step) = watch.observe(ClockPair::now())
                    && let Ok(mut steps) = self.shared.steps.lock()
                {
                    steps.push((self.options.clock.column_now(), step));
                }
            }
            std::thread::sleep(DRAIN_PERIOD);
        }
        self.seal_last()
    }

    fn drain_ring(&mut self) -> Result<(), TraceError> {
        loop {
            self.buffer.clear();
            let available = self.ring.slots().min(4096);
            if available == 0 {
                break;
            }
            let mut finals = 0;
            for _ in 0..available {
                let Ok(record) = self.ring.pop() else { break };
                record.encode(&mut self.buffer);
                if record.provisional {
                    self.noted.insert(record.identity(), record);
                } else {
                    finals += 1;
                    if record.supersedes {
                        self.noted.remove(&record.identity());
                    }
                }
            }
            if self.shared.failed.load(Ordering::Relaxed) {
                continue; // counted as dropped at the end; the ring must not stay full
            }
            self.append()?;
            self.spool_rows += finals;
            self.shared.written.fetch_add(finals, Ordering::Release);
        }
        let old = self.spool_started.elapsed() >= SPOOL_AGE_MAX && self.spool_rows > 0;
        if self.spool_rows >= self.options.spool_rows_max || old {
            self.rotate()?;
        }
        Ok(())
    }

    /// Writes the buffer to the spool, all of it or nothing.
    fn append(&mut self) -> Result<(), TraceError> {
        self.spool.write_all(&self.buffer).map_err(|source| {
            // A part of a batch may be there: back to the last whole one, so that counts hold.
            let _ = self.spool.set_len(self.spool_bytes);
            TraceError::io(&self.spool_path, "recording", source)
        })?;
        self.spool_bytes += self.buffer.len() as u64;
        Ok(())
    }

    /// Starts the next spool, carries the open copies over, and seals the old one in the background.
    fn rotate(&mut self) -> Result<(), TraceError> {
        self.sequence += 1;
        let (path, spool, spool_bytes) = create_spool(&self.options, self.sequence)?;
        let full = std::mem::replace(&mut self.spool_path, path);
        let lock = std::mem::replace(&mut self.spool, spool);
        self.spool_bytes = spool_bytes;
        self.spool_rows = 0;
        self.spool_started = Instant::now();
        self.buffer.clear();
        for record in self.noted.values() {
            record.encode(&mut self.buffer);
        }
        self.append()?;
        // The sealer may be far behind on a busy core: it works off a queue, and the spools wait on
        // the disk. The drain never waits for it, or the ring would overflow.
        let _ = self.sealer.full.send((full, lock));
        Ok(())
    }

    fn seal_last(self) -> RecorderReport {
        let Self {
            sealer,
            spool,
            spool_path,
            shared,
            ..
        } = self;
        let sealed = sealer.finish((spool_path, spool));
        if let Err(error) = &sealed {
            shared.fail(error);
        }
        RecorderReport {
            rows: sealed.unwrap_or_default(),
            failure: shared
                .failure
                .lock()
                .ok()
                .and_then(|failure| failure.clone()),
        }
    }
}

/// Turns full spools into segments, one after the other, on a thread of low priority. At the end the
/// thread that waits for it helps: on a busy host the other would hardly get a core any more, and
/// nothing is measured that it could disturb.
struct Sealer {
    full: Sender<Full>,
    queue: Queue,
    thread: JoinHandle<Result<u64, TraceError>>,
    /// The kernel's number of the thread; 0 before it runs.
    number: Arc<AtomicU32>,
}

/// A full spool and its lock.
type Full = (PathBuf, Flock<File>);
type Queue = Arc<Mutex<Receiver<Full>>>;

impl Sealer {
    fn start() -> Result<Self, TraceError> {
        let (full, spools) = channel();
        let queue = Arc::new(Mutex::new(spools));
        let number = Arc::new(AtomicU32::new(0));
        let (own_queue, own_number) = (Arc::clone(&queue), Arc::clone(&number));
        let thread = std::thread::Builder::new()
            .name("seal".to_owned())
            .spawn(move || {
                let number = nix::unistd::gettid().as_raw().unsigned_abs();
                own_number.store(number, Ordering::Release);
                set_priority(number, LOW);
                seal_queued(&own_queue)
            })
            .map_err(|source| TraceError::io(Path::new("seal"), "starting the thread", source))?;
        Ok(Self {
            full,
            queue,
            thread,
            number,
        })
    }

    /// Seals the remaining records and the last spool. Returns the number of rows in all segments.
    fn finish(self, last: Full) -> Result<u64, TraceError> {
        let _ = self.full.send(last);
        drop(self.full);
        // Helps the thread finish the spool that it is sealing. The kernel lets only some users
        // raise a priority.
        set_priority(self.number.load(Ordering::Acquire), USUAL);
        let helped = seal_queued(&self.queue);
        let sealed = self.thread.join().unwrap_or_else(|_| {
            Err(TraceError::Conservation {
                place: "seal".to_owned(),
                what: "the thread that seals spools panicked".to_owned(),
            })
        });
        Ok(sealed? + helped?)
    }
}

/// Seals spools until there are no more to come. Returns their rows.
fn seal_queued(queue: &Mutex<Receiver<Full>>) -> Result<u64, TraceError> {
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
    let mut rows = 0;
    while let Ok((path, lock)) = next() {
        rows += seal_spool(&path, &mut |_| None)?.counts.copies.recorded;
        drop(lock);
    }
    Ok(rows)
}

/// Priority of a thread that encodes segments, because encoding must not compete with the measured
/// load.
const LOW: i32 = 19;
const USUAL: i32 = 0;

/// Sets how nice a thread is; one that may not be changed stays as it is. A thread that encodes is
/// in the normal class even if the process is in the real-time class, where niceness counts for
/// nothing.
fn set_priority(thread: u32, nice: i32) {
    if thread == 0 {
        return;
    }
    if let (LOW, Ok(id)) = (nice, nix::libc::pid_t::try_from(thread)) {
        let _ = set_scheduler(id, nix::libc::SCHED_OTHER, 0);
    }
    // SAFETY: setpriority touches nothing but the scheduling of this process's thread.
    let _ = unsafe { nix::libc::setpriority(nix::libc::PRIO_PROCESS, thread, nice) };
}

/// Makes a spool and writes its header. Returns its path, its file and its length.
fn create_spool(
    options: &RecorderOptions,
    sequence: u32,
) -> Result<(PathBuf, Flock<File>, u64), TraceError> {
    let directory = options.directory.join("requests");
    std::fs::create_dir_all(&directory)
        .map_err(|source| TraceError::io(&directory, "making the directory", source))?;
    let path = directory.join(format!("{}-{sequence:05}.spool", options.stem));
    let file = File::create_new(&path)
        .map_err(|source| TraceError::io(&path, "creating the spool", source))?;
    // Says who writes; the lock dies with the process.
    let mut file = Flock::lock(file, FlockArg::LockExclusiveNonblock)
        .map_err(|(_, errno)| TraceError::io(&path, "locking the spool", errno.into()))?;
    options
        .header
        .write(&mut *file)
        .map_err(|source| TraceError::io(&path, "recording", source))?;
    let bytes = file
        .metadata()
        .map_err(|source| TraceError::io(&path, "recording", source))?
        .len();
    Ok((path, file, bytes))
}

impl Copies {
    /// The count that a copy of this status belongs to.
    pub fn of_mut(&mut self, status: Status) -> &mut u64 {
        match status {
            Status::Ok => &mut self.ok,
            Status::Timeout => &mut self.timeout,
            Status::Refused => &mut self.refused,
            Status::Shed => &mut self.shed,
            Status::Unfinished => &mut self.unfinished,
            Status::Wrong | Status::WrongStale | Status::WrongLost => &mut self.wrong,
            Status::Behind => &mut self.behind,
            Status::Stale => &mut self.stale,
            Status::Lost => &mut self.lost,
            Status::Error(_) => &mut self.error,
        }
    }
}
