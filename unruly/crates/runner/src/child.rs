//! One process of a run, seen from the runner.

use std::fs::{File, read_to_string};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use unruly_agent::{Job, Ready, Report};
use unruly_plan::{ReachedHost, Secret};
use unruly_trace::{ClockPair, Counts, DurationNs, Host, MonoNs, monotonic};

use crate::process::Process;
use crate::reach::{self, Action, Clocks, HostReport, Order, Span};

/// What a child does that the runner must know: its number, and a line or its end.
pub(super) type Heard = (usize, Option<Report>);

/// Where a process writes, and what lets it into a store.
#[derive(Debug, Clone)]
pub(super) struct ChildGround {
    pub(super) directory: PathBuf,
    pub(super) password: Option<Secret>,
}

/// Where a process is started.
#[derive(Debug, Clone, Copy)]
pub(super) enum Way<'a> {
    /// On this host, behind these words.
    Here(&'a [String]),
    /// On another one, on which it may be the first.
    There(&'a ReachedHost, bool),
}

/// What is known of the host that a process was reached on.
#[derive(Debug)]
pub(super) struct Reached {
    /// The command that reached it, for messages.
    pub(super) shown: String,
    /// It is the first process on its host.
    is_first: bool,
    /// All of its files have come.
    has_sent: AtomicBool,
    /// A file is coming.
    is_receiving: AtomicBool,
    /// An action of a fault did not happen there.
    has_refused: AtomicBool,
    /// Its output is waited for.
    is_reading: AtomicBool,
    /// When something last came from it, by our monotonic clock.
    heard_ns: AtomicI64,
    pub(super) clocks: Mutex<Clocks>,
    pub(super) facts: Mutex<Option<Host>>,
}

/// A started process.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) job: Job,
    pub(super) ready: Option<Ready>,
    pub(super) drained: bool,
    pub(super) counts: Option<Counts>,
    pub(super) log: PathBuf,
    pub(super) process: Process,
    /// The other host that it is on; its process here is the connection to it.
    pub(super) reached: Option<Arc<Reached>>,
    /// Nothing more comes from it.
    pub(super) is_silent: bool,
    input: Option<ChildStdin>,
}

impl Child {
    /// The process that does its work: its own, or its virtual machine.
    pub(super) fn worker_pid(&self) -> u32 {
        self.ready
            .as_ref()
            .map_or_else(|| self.process.pid(), |it| it.pid)
    }

    /// The number of its process on its host; that of the connection before it is ready there.
    pub(super) fn own_pid(&self) -> u32 {
        match &self.reached {
            Some(_) => self.worker_pid(),
            None => self.process.pid(),
        }
    }

    /// Signals it, and the virtual machine that does its work: one whose agent is killed ends by itself, and
    /// tidies up.
    pub(super) fn signal(&self, signal: Signal) {
        let worker = self.worker_pid();
        let is_here = self.reached.is_none();
        let apart = is_here && worker != self.process.pid() && signal != Signal::SIGKILL;
        // While its agent lives, this is its number.
        if apart && self.process.exit().is_none() {
            let _ = kill(Pid::from_raw(worker.cast_signed()), signal);
        }
        self.process.signal(signal);
    }

    /// Signals it where it is: one on another host gets a line through its connection.
    pub(super) fn do_signal(&mut self, signal: Signal) {
        match self.reached {
            Some(_) => self.instruct(Action::Signal(signal)),
            None => self.signal(signal),
        }
    }

    /// Returns whether its host has refused an action of a fault.
    pub(super) fn has_refused(&self) -> bool {
        let reached = self.reached.as_ref();
        reached.is_some_and(|it| it.has_refused.load(Ordering::Relaxed))
    }

    /// Returns how far the wall clock of its host is ahead of ours, in the middle of its bounds.
    pub(super) fn ahead(&self) -> DurationNs {
        let span = self.clocks(|it| it.wall_at(monotonic())).flatten();
        span.map_or(DurationNs::ZERO, Span::middle)
    }

    /// Has its host change it.
    pub(super) fn instruct(&mut self, action: Action) {
        self.say(&action.to_line());
    }

    /// Writes the job file and starts `unruly agent` on this host, or on another one.
    pub(super) fn start(
        number: usize,
        job: Job,
        ground: &ChildGround,
        way: Way<'_>,
        heard: Sender<Heard>,
    ) -> Result<Self> {
        let directory = ground.directory.as_path();
        let logs = directory.join("logs");
        let job_file = logs.join(format!("{}.job.json", job.stem()));
        let log = logs.join(format!("{}.log", job.stem()));
        let failed = || {
            format!(
                "{}: cannot be started; wanted a process; hint: look at ulimit -u and the disk",
                job.name
            )
        };
        std::fs::write(&job_file, serde_json::to_vec_pretty(&job)?).with_context(failed)?;
        let mut command = match way {
            Way::Here(prefix) => here(prefix, &job_file, ground)?,
            Way::There(host, _) => reach::command(host),
        };
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&log).with_context(failed)?);
        let mut process = match way {
            Way::Here(_) => Process::start(&mut command).with_context(failed)?,
            Way::There(host, _) => Process::start(&mut command).with_context(|| {
                let wanted = "wanted a command that starts programs on the host";
                format!(
                    "host {}: {:?} cannot be started; {wanted}; hint: is it installed here?",
                    host.name, host.reach[0]
                )
            })?,
        };
        let (input, output) = process.pipes();
        let output = output.context("the output is piped")?;
        let reached = match way {
            Way::Here(_) => None,
            Way::There(host, is_first) => Some(Arc::new(Reached {
                is_first,
                shown: reach::shown(host),
                heard_ns: AtomicI64::new(monotonic().0),
                has_sent: AtomicBool::new(false),
                is_receiving: AtomicBool::new(false),
                is_reading: AtomicBool::new(false),
                has_refused: AtomicBool::new(false),
                clocks: Mutex::default(),
                facts: Mutex::default(),
            })),
        };
        let order = reached
            .as_ref()
            .map(|it| Order::new(job.clone(), ground.password.as_ref(), it.is_first))
            .map(|order| serde_json::to_string(&order))
            .transpose()?;
        let (host, folder) = (reached.clone(), directory.to_owned());
        std::thread::spawn(move || listen(output, number, host.as_deref(), &folder, &heard));
        let mut child = Self {
            job,
            ready: None,
            drained: false,
            counts: None,
            log,
            process,
            reached,
            is_silent: false,
            input,
        };
        if let Some(order) = order {
            child.say(&order);
        }
        Ok(child)
    }

    /// Returns the end of what the process and its connection complained of.
    pub(super) fn complaint(&self) -> String {
        let text = read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().filter(|it| !it.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(2)..].join(" ")
    }

    /// Returns something of the clocks of its host; `None` on this one.
    pub(super) fn clocks<T>(&self, of: impl FnOnce(&Clocks) -> T) -> Option<T> {
        let clocks = self.reached.as_ref()?.clocks.lock().ok()?;
        Some(of(&clocks))
    }

    /// Returns for how long its host owes an answer and nothing has come from it; `None` on this
    /// host, and when nothing more is waited for.
    pub(super) fn silence(&self) -> Option<DurationNs> {
        let is_over = self.is_silent || self.process.exit().is_some();
        let reached = self.reached.as_ref().filter(|_| !is_over)?;
        if !reached.is_reading.load(Ordering::Relaxed) {
            return None;
        }
        let asked = self.clocks(Clocks::open_since)??;
        let heard = MonoNs(reached.heard_ns.load(Ordering::Relaxed));
        Some(monotonic() - heard.max(asked))
    }

    /// Returns when the last bytes of a file came that is on its way.
    pub(super) fn received_at(&self) -> Option<MonoNs> {
        let reached = self.reached.as_ref()?;
        let is_receiving = reached.is_receiving.load(Ordering::Relaxed);
        is_receiving.then(|| MonoNs(reached.heard_ns.load(Ordering::Relaxed)))
    }

    /// Returns whether it was on another host, and not all of its files came.
    pub(super) fn has_lost_files(&self) -> bool {
        let reached = self.reached.as_ref();
        reached.is_some_and(|it| !it.has_sent.load(Ordering::Relaxed))
    }

    /// Asks the host for its clocks, unless it still has to answer.
    pub(super) fn ask_clock(&mut self) {
        let Some(reached) = &self.reached else { return };
        let asked = reached.clocks.lock().ok();
        let number = asked.and_then(|mut it| it.ask(ClockPair::now()));
        if let Some(number) = number {
            self.say(&format!("clock {number}"));
        }
    }

    /// Says a line. A child that is gone does not hear it; its end is reported on its own.
    pub(super) fn say(&mut self, line: &str) {
        if let Some(input) = &mut self.input {
            let _ = writeln!(input, "{line}").and_then(|()| input.flush());
        }
    }

    /// Says nothing any more, which it takes for a stop.
    pub(super) fn hang_up(&mut self) {
        self.input = None;
    }

    /// It has ended, or will say nothing more that is waited for.
    pub(super) fn is_over(&self) -> bool {
        self.drained || self.is_silent || self.process.exit().is_some()
    }
}

/// Returns the command of a process on this host.
fn here(prefix: &[String], job_file: &Path, ground: &ChildGround) -> Result<Command> {
    let program = std::env::current_exe()?;
    let mut words: Vec<&std::ffi::OsStr> = prefix.iter().map(AsRef::as_ref).collect();
    words.extend([
        program.as_os_str(),
        "agent".as_ref(),
        "--job".as_ref(),
        job_file.as_os_str(),
    ]);
    words.extend(["--out".as_ref(), ground.directory.as_os_str()]);
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    if let Some(password) = &ground.password {
        command.env(unruly_load::PASSWORD, password.reveal());
    }
    Ok(command)
}

/// Reads what a process says until its output ends, and takes the files that a host sends.
fn listen(
    output: ChildStdout,
    number: usize,
    reached: Option<&Reached>,
    directory: &Path,
    heard: &Sender<Heard>,
) {
    let mut output = BufReader::new(Noted { output, reached });
    let mut line = String::new();
    while output.read_line(&mut line).is_ok_and(|read| read > 0) {
        let report = match reached {
            Some(reached) => hear_host(reached, &line, directory, &mut output),
            None => None,
        };
        let report = report.or_else(|| serde_json::from_str(&line).ok());
        if let Some(report) = report
            && heard.send((number, Some(report))).is_err()
        {
            return;
        }
        line.clear();
    }
    let _ = heard.send((number, None));
}

/// The output of a process, which notes when something came.
struct Noted<'a> {
    output: ChildStdout,
    reached: Option<&'a Reached>,
}

impl Read for Noted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let Some(reached) = self.reached else {
            return self.output.read(buffer);
        };
        // The time between two reads is ours: a file is written to the disk.
        reached.heard_ns.store(monotonic().0, Ordering::Relaxed);
        reached.is_reading.store(true, Ordering::Relaxed);
        let read = self.output.read(buffer);
        reached.is_reading.store(false, Ordering::Relaxed);
        reached.heard_ns.store(monotonic().0, Ordering::Relaxed);
        read
    }
}

/// Takes a line of `unruly host` itself. Returns the complaint if a file did not arrive.
fn hear_host(
    reached: &Reached,
    line: &str,
    directory: &Path,
    output: &mut impl BufRead,
) -> Option<Report> {
    // Read first: the work after it is no part of the way back.
    let now = ClockPair::now();
    match serde_json::from_str(line).ok()? {
        HostReport::Host(facts) => {
            if let Ok(mut known) = reached.facts.lock() {
                *known = Some(*facts);
            }
            None
        }
        HostReport::Clock { number, clock } => {
            if let Ok(mut clocks) = reached.clocks.lock() {
                clocks.hear(number, clock, now);
            }
            None
        }
        HostReport::File {
            path,
            bytes,
            sha256,
        } => {
            reached.is_receiving.store(true, Ordering::Relaxed);
            let taken = reach::receive(directory, &path, (bytes, &sha256), output);
            reached.is_receiving.store(false, Ordering::Relaxed);
            let fatal = false;
            let text = format!("{:#}", taken.err()?);
            Some(Report::Finding { text, fatal })
        }
        HostReport::Refused => {
            reached.has_refused.store(true, Ordering::Relaxed);
            None
        }
        // Only a standing agent's host sends runs.
        HostReport::Run { .. } => None,
        HostReport::Sent { .. } => {
            reached.has_sent.store(true, Ordering::Relaxed);
            None
        }
    }
}
