//! What a process was seen to be: stopped, or waiting for its disk.
//!
//! The kernel keeps no count of either, so that one has to look. What is shorter than two looks is not seen.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use unruly_trace::{Clock, MonoNs, monotonic};

use crate::events::Events;
use crate::probe::{Watched, words};

/// Period of the looks at every process and its known threads. Each time the threads of one process
/// are listed anew.
const PERIOD: Duration = Duration::from_millis(50);

/// As much of a `stat` as holds the name, which has at most 64 bytes, and the state behind it.
const STAT_BYTES: usize = 128;

/// Most threads of a process that are looked at; each holds a file open.
const MAX_THREADS: usize = 256;

/// Calls that return when something is safe on disk.
pub const DISK_CALLS: [libc::c_long; 6] = [
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_syncfs,
    libc::SYS_msync,
    libc::SYS_sync,
];

/// Something that was seen, in monotonic time.
struct Seen {
    process: String,
    kind: &'static str,
    started_ns: MonoNs,
    ended_ns: MonoNs,
}

/// Looks on a thread of its own.
pub(crate) struct Watch {
    watched: Arc<Mutex<Vec<Watched>>>,
    stop: Arc<AtomicBool>,
    seen: Receiver<Seen>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(crate) fn start(watched: Vec<Watched>) -> Self {
        let watched = Arc::new(Mutex::new(watched));
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, seen) = channel();
        let (whom, until) = (Arc::clone(&watched), Arc::clone(&stop));
        let thread = std::thread::spawn(move || look_until(&whom, &until, &sender));
        Self {
            watched,
            stop,
            seen,
            thread: Some(thread),
        }
    }

    /// Looks at these from now on.
    pub(crate) fn watch(&self, watched: Vec<Watched>) {
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = watched;
    }

    /// Writes the observed events to the trace.
    pub(crate) fn report(&self, events: &mut Events, clock: &Clock) {
        for seen in self.seen.try_iter() {
            let span = [seen.started_ns, seen.ended_ns].map(|at| clock.column(at));
            events.add_of(&seen.process, seen.kind, None, (span[0], Some(span[1])));
        }
    }

    /// Stops watching, and writes the events that had not ended yet.
    pub(crate) fn end(mut self, events: &mut Events, clock: &Clock) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.report(events, clock);
    }
}

fn look_until(watched: &Mutex<Vec<Watched>>, stop: &AtomicBool, sender: &Sender<Seen>) {
    let mut known: BTreeMap<u32, Process> = BTreeMap::new();
    let mut turn = 0;
    loop {
        let over = stop.load(Ordering::Acquire);
        let all = watched
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        known.retain(|pid, process| {
            let stays = !over && all.iter().any(|it| it.pid == *pid);
            if !stays {
                process.forget(sender);
            }
            stays
        });
        if over {
            return;
        }
        turn += 1;
        for (place, it) in all.iter().enumerate() {
            let process = known.entry(it.pid).or_insert_with(|| Process::new(it));
            process.look(sender);
            if turn % all.len() == place {
                process.list_threads();
            }
            process.look_at_threads(sender);
        }
        std::thread::sleep(PERIOD);
    }
}

/// What is known of one process.
struct Process {
    name: String,
    folder: String,
    /// The first thread's `stat`, held open: that of the process would add up all of its threads, and
    /// opening it costs as much as reading it.
    stat: Option<File>,
    stopped: Span,
    waits: Span,
    /// The threads, as they were listed last.
    threads: BTreeMap<u32, Thread>,
}

/// A thread of a process.
struct Thread {
    /// Its `syscall`, or its `stat` where calls are not shown, held open as that of the process is.
    file: File,
    shows_call: bool,
    /// How often it had run when it was seen in such a call last, and since when it is there.
    waits: Option<(u64, MonoNs)>,
}

impl Process {
    fn new(watched: &Watched) -> Self {
        let folder = format!("/proc/{}", watched.pid);
        Self {
            name: watched.name.clone(),
            stat: File::open(format!("{folder}/task/{}/stat", watched.pid)).ok(),
            folder,
            stopped: Span::of("process stopped"),
            waits: Span::of("disk wait"),
            threads: BTreeMap::new(),
        }
    }

    fn look(&mut self, sender: &Sender<Seen>) {
        let now_ns = monotonic();
        let mut text = [0; STAT_BYTES];
        let stat = self.stat.as_ref();
        let read = stat.and_then(|it| it.read_at(&mut text, 0).ok());
        let stopped = matches!(state(&text[..read.unwrap_or(0)]), Some(b'T' | b't'));
        self.stopped
            .is(stopped.then_some(now_ns), now_ns, &self.name, sender);
    }

    /// Lists the threads, and forgets those that have ended.
    fn list_threads(&mut self) {
        let mut before = std::mem::take(&mut self.threads);
        let entries = fs::read_dir(format!("{}/task", self.folder));
        for entry in entries.into_iter().flatten().flatten().take(MAX_THREADS) {
            let Some(thread) = entry.file_name().to_str().and_then(|it| it.parse().ok()) else {
                continue;
            };
            let known = before.remove(&thread);
            if let Some(known) = known.or_else(|| Thread::open(&entry.path())) {
                self.threads.insert(thread, known);
            }
        }
    }

    /// A thread that is in such a call, and has not run since the look before, waits for its disk.
    fn look_at_threads(&mut self, sender: &Sender<Seen>) {
        let now_ns = monotonic();
        let mut since_ns: Option<MonoNs> = None;
        for (number, thread) in &mut self.threads {
            let before = thread.waits.take();
            if !thread.waits() {
                continue;
            }
            let runs = fs::read(format!("{}/task/{number}/schedstat", self.folder));
            let runs = runs.unwrap_or_default();
            let Some(runs) = words(&runs).nth(2).and_then(crate::probe::decimal) else {
                continue;
            };
            let first_ns = match before {
                Some((then, first_ns)) if then == runs => {
                    since_ns = Some(since_ns.map_or(first_ns, |it| it.min(first_ns)));
                    first_ns
                }
                _ => now_ns,
            };
            thread.waits = Some((runs, first_ns));
        }
        self.waits.is(since_ns, now_ns, &self.name, sender);
    }

    fn forget(&mut self, sender: &Sender<Seen>) {
        let now_ns = monotonic();
        self.stopped.is(None, now_ns, &self.name, sender);
        self.waits.is(None, now_ns, &self.name, sender);
    }
}

/// Something that lasts.
struct Span {
    kind: &'static str,
    started_ns: Option<MonoNs>,
}

impl Span {
    fn of(kind: &'static str) -> Self {
        Self {
            kind,
            started_ns: None,
        }
    }

    /// Notes whether the state holds since `since_ns`. Reports the state when it has ended.
    fn is(
        &mut self,
        since_ns: Option<MonoNs>,
        now_ns: MonoNs,
        process: &str,
        sender: &Sender<Seen>,
    ) {
        match (self.started_ns, since_ns) {
            (None, Some(since_ns)) => self.started_ns = Some(since_ns),
            (Some(started_ns), None) => {
                self.started_ns = None;
                // Nobody hears it when the run is over; then it is of no use.
                let _ = sender.send(Seen {
                    process: process.to_owned(),
                    kind: self.kind,
                    started_ns,
                    ended_ns: now_ns,
                });
            }
            _ => {}
        }
    }
}

/// The state in a `stat` file: the letter behind the name, which stands in brackets and may hold any.
fn state(stat: &[u8]) -> Option<u8> {
    let behind = stat.iter().rposition(|byte| *byte == b')')?;
    stat.get(behind + 2).copied()
}

impl Thread {
    /// Opens the file that shows what a thread does; returns `None` for one that has ended.
    fn open(folder: &Path) -> Option<Self> {
        let calls = File::open(folder.join("syscall")).ok();
        let calls = calls.filter(|it| it.read_at(&mut [0; STAT_BYTES], 0).is_ok());
        let shows_call = calls.is_some();
        let file = calls.or_else(|| File::open(folder.join("stat")).ok())?;
        Some(Self {
            file,
            shows_call,
            waits: None,
        })
    }

    /// Returns true if the thread is in a call that waits for a disk; where calls are not shown, if
    /// the kernel counts it as waiting for one.
    fn waits(&self) -> bool {
        let mut text = [0; STAT_BYTES];
        let Ok(length) = self.file.read_at(&mut text, 0) else {
            return false;
        };
        let text = &text[..length];
        if !self.shows_call {
            return state(text) == Some(b'D');
        }
        words(text)
            .next()
            .and_then(crate::probe::decimal)
            .and_then(|call| libc::c_long::try_from(call).ok())
            .is_some_and(|call| DISK_CALLS.contains(&call))
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_hide_the_state() {
        assert_eq!(state(b"12 (a) b) T 1 2"), Some(b'T'));
        assert_eq!(state(b"12 (a"), None);
    }

    #[test]
    fn a_process_that_is_stopped_is_seen_from_its_stop_to_its_going_on() {
        let mut child = Command::new("sleep")
            .arg("60")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let (sender, seen) = channel();
        let mut process = Process::new(&Watched {
            name: "sleeper".to_owned(),
            pid: child.id(),
        });
        let pid = Pid::from_raw(child.id().try_into().unwrap());
        process.look(&sender);
        kill(pid, Signal::SIGSTOP).unwrap();
        while process.stopped.started_ns.is_none() {
            process.look(&sender);
        }
        kill(pid, Signal::SIGCONT).unwrap();
        while process.stopped.started_ns.is_some() {
            process.look(&sender);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let seen: Vec<Seen> = seen.try_iter().collect();
        assert_eq!(seen.len(), 1);
        assert_eq!(
            (seen[0].process.as_str(), seen[0].kind),
            ("sleeper", "process stopped")
        );
        assert!(seen[0].started_ns < seen[0].ended_ns);
    }

    #[test]
    fn a_process_that_does_neither_is_not_told_of() {
        let (sender, seen) = channel();
        let mut process = Process::new(&Watched {
            name: "self".to_owned(),
            pid: std::process::id(),
        });
        for _ in 0..3 {
            process.look(&sender);
            process.list_threads();
            process.look_at_threads(&sender);
        }
        process.forget(&sender);
        assert!(seen.try_iter().next().is_none());
    }
}
