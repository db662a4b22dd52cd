//! The arrival log: every copy of every operation of Flurry's clients, as a run that
//! `unruly report` reads.
//!
//! ```no_run
//! # fn main() -> Result<(), flurry::Error> {
//! use flurry_recording::{About, Recording};
//!
//! let recording = Recording::start("runs/cart".as_ref(), About::named("cart"))?;
//! let controller = std::net::SocketAddr::from(([127, 0, 0, 1], 7700));
//! let client = flurry::Client::open(&flurry::Options {
//!     recording: Some(recording.arrivals()),
//!     ..flurry::Options::new(controller, "cart-17")
//! })?;
//! client.set("apples", "3")?;
//! client.close()?;
//! recording.finish()?;
//! # Ok(())
//! # }
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use flurry::{ArrivalLog, Arrivals, Error, Level};
use flurry_core::id::{MonoNs, Sequence};
use flurry_core::log::{Arrival, CopyEnd};
use flurry_core::portal::number_of;
use unruly_time::WallNs;
use unruly_trace::{
    Cell, Clock, ClockPair, ColumnNs, Counts, DurationNs, Host, Manifest, NULL_NS, Process, Record,
    Recorder, RecorderOptions, Requests, RunLock, RunStatus, SCHEMA_VERSION, SPOOL_ROWS_MAX,
    SpoolHeader, Tool, TraceError,
};

const CELL: &str = "all";
const OPERATIONS: [&str; 2] = ["read", "write"];
const PHASES: [&str; 2] = ["warmup", "measure"];

/// What a run says of itself.
#[derive(Debug, Clone, PartialEq)]
pub struct About {
    /// The run's name.
    pub name: String,
    /// Where it was measured, for comparisons.
    pub tag: String,
    /// What this machine is.
    pub host: Host,
    /// The program's version and commit.
    pub tool: Tool,
    /// What its work was drawn from.
    pub seed: u64,
    /// Length of the warm-up: rows up to this time after the start belong to it.
    pub warmup: Duration,
    /// How long it is meant to measure after that; zero is until it ends.
    pub duration: Duration,
}

impl About {
    /// Returns the options of a run of this name, without a warm-up and without a description of
    /// the host.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            tag: name.to_owned(),
            host: Host::unknown("local"),
            tool: Tool {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                commit: "unknown".to_owned(),
            },
            seed: 0,
            warmup: Duration::ZERO,
            duration: Duration::ZERO,
        }
    }
}

/// A run directory that clients write their arrival logs into. Cloned handles are the same recording.
#[derive(Debug, Clone)]
pub struct Recording(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    directory: PathBuf,
    clock: Clock,
    about: About,
    /// Rows of operations that were wanted before this are of the warm-up.
    measured_from_ns: ColumnNs,
    clients: AtomicU16,
    manifest: Mutex<Manifest>,
    /// What went wrong while logs were closed.
    failures: Mutex<Vec<String>>,
    _lock: RunLock,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn broken(directory: &Path, error: &impl std::fmt::Display) -> Error {
    Error::Io {
        place: directory.display().to_string(),
        problem: error.to_string(),
        wanted: "to record into it",
    }
}

impl Recording {
    /// Makes a run directory.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the directory holds a run already or cannot be written to.
    pub fn start(directory: &Path, about: About) -> Result<Self, Error> {
        if directory.join(Manifest::FILE).exists() {
            return Err(broken(directory, &"it holds a run already"));
        }
        std::fs::create_dir_all(directory).map_err(|error| broken(directory, &error))?;
        let failed = |error: TraceError| broken(directory, &error);
        let lock = RunLock::take(directory).map_err(failed)?;
        let origin = ClockPair::now();
        let manifest = new_manifest(&about, origin);
        manifest.write(directory).map_err(failed)?;
        Ok(Self(Arc::new(Inner {
            directory: directory.to_owned(),
            clock: Clock::new(origin),
            about,
            measured_from_ns: manifest.started_ns,
            clients: AtomicU16::new(0),
            manifest: Mutex::new(manifest),
            failures: Mutex::default(),
            _lock: lock,
        })))
    }

    /// Closes the run, once all clients that wrote to it are gone, and returns the counts of its
    /// content.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when a client still writes to it or the counts do not add up, [`Error::Io`]
    /// when something could not be written.
    pub fn finish(self) -> Result<Counts, Error> {
        let directory = self.0.directory.clone();
        let inner = Arc::into_inner(self.0).ok_or_else(|| Error::Refused {
            reason: format!(
                "{}: a client still records into it; wanted all of them gone; hint: close them first",
                directory.display()
            ),
        })?;
        let mut manifest = inner
            .manifest
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        manifest.ended_ns = Some(inner.clock.column_now());
        manifest.status = RunStatus::Complete;
        let failures = inner
            .failures
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        manifest.missing.extend(failures.iter().cloned());
        let settled = manifest.settle();
        manifest
            .write(&directory)
            .map_err(|error| broken(&directory, &error))?;
        settled.map_err(|error| broken(&directory, &error))?;
        match failures.first() {
            None => Ok(manifest.counts),
            Some(failure) => Err(broken(&directory, failure)),
        }
    }

    /// Returns what [`flurry::Options::recording`] takes.
    #[must_use]
    pub fn arrivals(&self) -> Arc<dyn Arrivals> {
        Arc::new(self.clone())
    }
}

impl Arrivals for Recording {
    fn log(&self) -> Result<Box<dyn ArrivalLog>, Error> {
        let inner = &self.0;
        let client = inner.clients.fetch_add(1, Ordering::Relaxed);
        let name = format!("client-{client}");
        let words = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect();
        let recorder = Recorder::start(RecorderOptions {
            directory: inner.directory.clone(),
            stem: format!("{name}-c0r0"),
            header: SpoolHeader {
                schema: SCHEMA_VERSION,
                run: locked(&inner.manifest).run.clone(),
                host: inner.about.host.name.clone(),
                process: name.clone(),
                tag: inner.about.tag.clone(),
                cells: words(&[CELL]),
                ops: words(&OPERATIONS),
                phases: words(&PHASES),
                tally: None,
            },
            clock: inner.clock.clone(),
            spool_rows_max: SPOOL_ROWS_MAX,
        })
        .map_err(|error| broken(&inner.directory, &error))?;
        Ok(Box::new(Log {
            recording: self.clone(),
            client,
            name,
            recorder: Some(recorder),
            requests: Requests::default(),
            without_row: BTreeSet::new(),
        }))
    }
}

fn new_manifest(about: &About, origin: ClockPair) -> Manifest {
    Manifest {
        schema: SCHEMA_VERSION,
        run: format!(
            "{}-{:x}-{}",
            about.name,
            origin.wall_ns.0,
            std::process::id()
        ),
        name: about.name.clone(),
        tag: about.tag.clone(),
        tool: about.tool.clone(),
        command: None,
        target: None,
        plan_sha256: String::new(),
        seed: about.seed,
        status: RunStatus::Running,
        started_ns: origin.column_ns().saturating_add(about.warmup.into()),
        ended_ns: None,
        planned_ns: about.duration.into(),
        missing: Vec::new(),
        broken: Vec::new(),
        hosts: vec![about.host.clone()],
        cells: vec![Cell {
            name: CELL.to_owned(),
            factors: BTreeMap::new(),
        }],
        left_out: Vec::new(),
        parts: Vec::new(),
        trials: Vec::new(),
        processes: Vec::new(),
        counts: Counts::default(),
        merged: None,
    }
}

/// The log of one client. Dropping it writes the remaining rows and closes the log.
#[derive(Debug)]
struct Log {
    recording: Recording,
    client: u16,
    name: String,
    recorder: Option<Recorder>,
    requests: Requests,
    /// Operations of which no copy has ended yet. Bounded by what a client holds.
    without_row: BTreeSet<Sequence>,
}

impl ArrivalLog for Log {
    fn stamp(&self, stamp: WallNs) -> ColumnNs {
        let clock = &self.recording.0.clock;
        clock.column_of_kernel_stamp(stamp).unwrap_or_default()
    }

    fn asked(&mut self, sequence: Sequence) {
        self.without_row.insert(sequence);
    }

    fn ended(&mut self, arrival: &Arrival) {
        let sequence = arrival.id.sequence;
        if self.without_row.remove(&sequence) {
            self.requests.scheduled += 1;
        }
        self.requests.answered += u64::from(arrival.answered);
        let record = self.record(arrival);
        if let Some(recorder) = &mut self.recorder {
            recorder.scheduled(record.intended_ns);
            recorder.record(&record);
        }
    }
}

impl Log {
    fn record(&self, arrival: &Arrival) -> Record {
        let inner = &self.recording.0;
        let sequence = arrival.id.sequence;
        let column = |at: MonoNs| inner.clock.column(monotonic_of(at));
        let known = |stamp: i64| if stamp == 0 { NULL_NS } else { ColumnNs(stamp) };
        let intended_ns = column(arrival.intended);
        let [
            server_kernel_received_ns,
            server_received_ns,
            server_sent_ns,
        ] = arrival.stamps;
        let measured = intended_ns >= inner.measured_from_ns;
        Record {
            intended_ns,
            sent_ns: column(arrival.sent),
            received_ns: arrival.received.map_or(NULL_NS, column),
            kernel_received_ns: known(arrival.kernel_received),
            server_kernel_received_ns: known(server_kernel_received_ns),
            server_received_ns: known(server_received_ns),
            server_sent_ns: known(server_sent_ns),
            request: number_of(sequence),
            key: Some(arrival.key_hash),
            client: self.client,
            server: arrival.server.0,
            op: u8::from(arrival.write),
            phase: u8::from(measured),
            attempt: arrival.attempt,
            level: match arrival.level {
                Level::First => Some(unruly_trace::Level::First),
                Level::Quorum => Some(unruly_trace::Level::Quorum),
                Level::All => Some(unruly_trace::Level::All),
                Level::Hedge(_) | Level::Auto | Level::Disk => None,
            },
            status: status(arrival.end),
            answered: arrival.answered,
            ..Record::empty()
        }
    }

    fn close(&mut self) -> Result<(), TraceError> {
        let Some(recorder) = self.recorder.take() else {
            return Ok(());
        };
        let (tally, report) = recorder.finish(&self.name)?;
        let requests = &mut self.requests;
        requests.unanswered = requests.scheduled - requests.answered.min(requests.scheduled);
        let inner = &self.recording.0;
        let process = Process {
            name: self.name.clone(),
            kind: "client".to_owned(),
            id: Some(self.client),
            cell: CELL.to_owned(),
            repeat: 0,
            host: inner.about.host.name.clone(),
            pid: Some(std::process::id()),
            runtime: "native".to_owned(),
            tier: None,
            exit: Some(unruly_trace::Exit::Code(0)),
            counts: Some(Counts {
                copies: tally.copies,
                requests: requests.clone(),
            }),
        };
        locked(&inner.manifest).processes.push(process);
        locked(&inner.failures).extend(report.failure);
        Ok(())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            locked(&self.recording.0.failures).push(error.to_string());
        }
    }
}

fn status(end: CopyEnd) -> unruly_trace::Status {
    use unruly_trace::Status;
    match end {
        CopyEnd::Ok => Status::Ok,
        CopyEnd::Behind => Status::Behind,
        CopyEnd::Stale => Status::Stale,
        CopyEnd::Refused => Status::Refused,
        CopyEnd::Lost => Status::Lost,
        CopyEnd::Wrong => Status::Wrong,
    }
}

/// Returns the instant on the monotonic clock, which the rows of a trace use; Flurry's instants are
/// those of the boot clock. If a machine sleeps while it records, the later rows are late by the
/// length of the sleep.
fn monotonic_of(at: MonoNs) -> unruly_time::MonoNs {
    static SLEPT: OnceLock<DurationNs> = OnceLock::new();
    let slept = *SLEPT.get_or_init(slept);
    let at_ns = i64::try_from(at.0).unwrap_or(i64::MAX);
    unruly_time::MonoNs(at_ns).saturating_sub(slept)
}

/// Returns how long the machine has slept since it booted. A delay between the two readings makes
/// the difference larger, so the least of several is right.
fn slept() -> DurationNs {
    let apart = |_| {
        let monotonic = unruly_time::monotonic().0;
        unruly_time::boot().0 - monotonic
    };
    DurationNs((0..16).map(apart).min().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_keep_their_order_on_the_clock_of_the_trace() {
        let now = || MonoNs(u64::try_from(unruly_time::boot().0).unwrap());
        let (first, second) = (now(), now());
        let apart = monotonic_of(second) - monotonic_of(first);
        assert_eq!(u64::try_from(apart.0), Ok(second.0 - first.0));
        assert!(monotonic_of(first).0 >= 0);
    }
}
