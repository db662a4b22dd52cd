//! Processes in another language. This agent starts them, sends them commands, and writes their
//! trace.

mod asking;
mod member;
mod record;

use std::fs::DirBuilder;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Program, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use unruly_plan::{CompeteKind, Hosts, Load};

use crate::control::{Inbox, Report, report};
use crate::ground::Ground;
use crate::job::{Job, JobKind, JvmPlace};
pub(crate) use member::{ahead, run as run_member};
pub(crate) use record::{Command, Interval, RECORD_BYTES, Record};

/// Time limit for a JVM to connect to the socket after its start.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Time between two checks whether the process still lives, in milliseconds.
const LOOK_MS: u8 = 100;
/// Time limit for a process to exit after its last message. Then this agent kills it.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The driver of Aeron reaches into the selectors of the JDK.
const OPENS: [&str; 2] = [
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
];
/// Heap size of a driver's JVM, in bytes. A driver's buffers are outside the heap.
const BESIDE_HEAP_BYTES: u64 = 128 << 20;

/// Number of busy threads per core, for a collector's workload in its own JVM. The scheduler
/// divides the CPU by thread. If the workload had only one thread per core and the load as many
/// busy threads as cores, the workload would get half of the cores during a GC pause, and the load
/// would never get the rest of its share.
const COLLECTOR_THREADS_PER_CORE: usize = 2;

/// Most bytes kept of the reason why a process ends, plus those of one record.
const WORDS_BYTES_MAX: usize = 720;

/// A foreign process and its socket.
pub(crate) struct Foreign {
    process: Child,
    socket: UnixStream,
    /// The folder is removed when this value is dropped.
    _folder: Folder,
    record: [u8; RECORD_BYTES],
    filled: usize,
    /// The reason why the process ends, as far as it has been reported.
    words: String,
}

impl Foreign {
    /// Starts a JVM with these arguments, and waits until it has connected.
    pub(crate) fn start(ground: Ground<'_>, words: &[String]) -> Result<Self> {
        let log = log_of(ground.job, ground.directory);
        Self::start_with(ground, words, &flags(ground.job, &log))
    }

    /// Starts a JVM that takes no part in the load. Its garbage collector is not monitored, and its
    /// heap is small.
    pub(crate) fn start_beside(ground: Ground<'_>, words: &[String]) -> Result<Self> {
        let flags = [
            format!("-Xmx{BESIDE_HEAP_BYTES}"),
            "-XX:+UseSerialGC".to_owned(),
        ];
        let all: Vec<String> = flags.into_iter().chain(OPENS.map(str::to_owned)).collect();
        Self::start_with(ground, words, &all)
    }

    fn start_with(ground: Ground<'_>, words: &[String], flags: &[String]) -> Result<Self> {
        let job = ground.job;
        let Some(place) = &job.jvm else {
            bail!(
                "{}: there is no JVM here, or no unruly-jvm.jar; wanted both; hint: apt-get install openjdk-17-jre-headless, and make jvm",
                job.name
            );
        };
        let folder = Folder::make()?;
        let path = folder.0.join("socket");
        let listener = UnixListener::bind(&path)?;
        listener.set_nonblocking(true)?;
        let mut process = start_process(place, flags, &path, words)?;
        let socket = accept(&listener, &mut process, ground);
        // One that is asked at another socket has it here; else the folder goes now, however we end.
        let _ = std::fs::remove_file(&path);
        if !words.iter().any(|word| word.starts_with("asking=")) {
            let _ = std::fs::remove_dir(&folder.0);
        }
        let socket = socket.inspect_err(|_| {
            let _ = process.kill();
            let _ = process.wait();
        })?;
        Ok(Self {
            process,
            socket,
            _folder: folder,
            record: [0; RECORD_BYTES],
            filled: 0,
            words: String::new(),
        })
    }

    /// Its number.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// What it says next, if it says something in time; nothing at its end.
    ///
    /// # Errors
    ///
    /// When the socket is over, or it speaks another language.
    pub(crate) fn hear(&mut self, timeout: Duration) -> io::Result<Option<Record>> {
        let until = Instant::now() + timeout;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            self.socket
                .set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            match self.socket.read(&mut self.record[self.filled..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => self.filled += bytes,
                Err(error) if is_late(&error) => {}
                Err(error) => return Err(error),
            }
            if self.filled == RECORD_BYTES {
                self.filled = 0;
                match Record::read(&self.record) {
                    None => return Err(io::Error::other("a record that is none")),
                    Some(Record::Words(part)) => {
                        if self.words.len() < WORDS_BYTES_MAX {
                            self.words.push_str(&part);
                        }
                    }
                    Some(Record::Failure(end)) => {
                        let text = std::mem::take(&mut self.words) + &end;
                        return Ok(Some(Record::Failure(text)));
                    }
                    record => return Ok(record),
                }
            }
            if Instant::now() >= until {
                return Ok(None);
            }
        }
    }

    /// Waits for something that it is to say; the error is what it said instead.
    pub(crate) fn wait_for<T>(
        &mut self,
        inbox: &Inbox,
        timeout: Duration,
        mut wanted: impl FnMut(&Record) -> Option<T>,
    ) -> Result<T, String> {
        let until = Instant::now() + timeout;
        while Instant::now() < until {
            if inbox.is_stopped() {
                return Err("the run was stopped".to_owned());
            }
            match self.hear(Duration::from_millis(LOOK_MS.into())) {
                Ok(Some(Record::Failure(text))) => return Err(text),
                Ok(Some(record)) => {
                    if let Some(found) = wanted(&record) {
                        return Ok(found);
                    }
                }
                Ok(None) => {}
                Err(error) => return Err(format!("java is gone: {error}; hint: see its log")),
            }
        }
        Err(format!("java is not ready after {} s", timeout.as_secs()))
    }

    /// Tells it something. One that is gone does not hear it; its end is met when it is listened to.
    pub(crate) fn say(&mut self, command: Command) {
        let _ = self.socket.write_all(&command.bytes());
    }
}

/// Its ring is bounded, and what found no room in it is counted.
pub(crate) fn say_dropped(records: u64) {
    report(&Report::Finding {
        text: format!("{records} records of the virtual machine found no room"),
        fatal: false,
    });
}

/// The folder of the sockets, for as long as this value lives.
struct Folder(PathBuf);

impl Folder {
    fn make() -> Result<Self> {
        let folder = folder();
        DirBuilder::new().mode(0o700).create(&folder).with_context(|| {
            let folder = folder.display();
            format!("{folder}: cannot be made; wanted a private folder for a socket; hint: look at TMPDIR")
        })?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Where the sockets between this process and its virtual machine are; it goes with either of them.
fn folder() -> PathBuf {
    std::env::temp_dir().join(format!("unruly-{}", std::process::id()))
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // The end of the socket ends it; one that does not see that is ended.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        let until = Instant::now() + END_TIMEOUT;
        while matches!(self.process.try_wait(), Ok(None)) {
            if Instant::now() > until {
                let _ = self.process.kill();
                let _ = self.process.wait();
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // Also of one that died by itself.
        remove_memory(self.process.id());
    }
}

/// What Aeron keeps in memory outlives a machine that had no time to remove it.
fn remove_memory(pid: u32) {
    let prefix = format!("unruly-aeron-{pid}-");
    for entry in std::fs::read_dir("/dev/shm")
        .into_iter()
        .flatten()
        .flatten()
    {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn is_late(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

fn accept(listener: &UnixListener, process: &mut Child, ground: Ground<'_>) -> Result<UnixStream> {
    let job = ground.job;
    let until = Instant::now() + START_TIMEOUT;
    loop {
        match listener.accept() {
            Ok((socket, _)) => {
                socket.set_nonblocking(false)?;
                return Ok(socket);
            }
            Err(error) if is_late(&error) => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(status) = process.try_wait()? {
            bail!(
                "{}: java ended before it began ({status}); wanted a JDK 17; hint: its words are in the log",
                job.name
            );
        }
        if ground.inbox.is_stopped() {
            bail!("{}: told to stop before java had come", job.name);
        }
        if Instant::now() > until {
            bail!(
                "{}: java has not come after {} s; wanted a JDK 17; hint: its words are in the log",
                job.name,
                START_TIMEOUT.as_secs()
            );
        }
        // Woken when it comes; in between it is looked whether it still can.
        let mut polled = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        poll(&mut polled, PollTimeout::from(LOOK_MS))?;
    }
}

fn start_process(
    place: &JvmPlace,
    flags: &[String],
    socket: &Path,
    words: &[String],
) -> Result<Child> {
    let mut program = Program::new(&place.java);
    program
        .args(flags)
        .args(["-cp", &place.classpath, "org.unruly.jvm.Main"])
        .args(words)
        .arg(format!("socket={}", socket.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    // It ends with us, however we end: the socket's end is its own, and leaves it the time to clean up.
    program.spawn().with_context(|| {
        format!(
            "{}: cannot be started; wanted a JVM; hint: apt-get install openjdk-17-jre-headless",
            place.java
        )
    })
}

/// Returns the file in which a JVM logs its GC pauses.
fn log_of(job: &Job, directory: &Path) -> PathBuf {
    directory.join("logs").join(format!("{}.gc", job.stem()))
}

/// How the virtual machine is started.
fn flags(job: &Job, log: &Path) -> Vec<String> {
    let jvm = job.plan.jvm.unwrap_or_default();
    let mut flags = vec![
        format!("-Xmx{}", jvm.heap.0),
        jvm.collector.flag().to_owned(),
        format!(
            "-Xlog:gc*,safepoint:file={}:timenanos,level,tags",
            log.display()
        ),
    ];
    flags.extend(OPENS.map(str::to_owned));
    let live = job.plan.compete.filter(|it| it.kind == CompeteKind::Gc);
    if let Some(compete) = live
        && jvm.collector.has_fixed_generations()
    {
        // Its own division would leave the old no room for what lives.
        let young = (jvm.heap.0 - compete.live.0) * 3 / 4;
        flags.push(format!("-Xmn{young}"));
    }
    if job.kind == JobKind::Compete {
        let threads = COLLECTOR_THREADS_PER_CORE * crate::stream::own_cores();
        flags.push(format!("-XX:ParallelGCThreads={threads}"));
    }
    flags
}

/// The words that make the collector's workload a part of a virtual machine: its part of the share of those that
/// are on the same cores.
pub(crate) fn load_words(job: &Job) -> Vec<String> {
    let compete = job.plan.compete.filter(|it| it.kind == CompeteKind::Gc);
    let words = compete.map(|it| {
        vec![
            format!("live={}", it.live.0),
            format!("occupancy={}", it.occupancy / machines_beside(job) as f64),
            format!("cores={}", crate::stream::own_cores()),
        ]
    });
    words.unwrap_or_default()
}

/// Virtual machines with a collector's workload on this one's host and cores, itself included.
fn machines_beside(job: &Job) -> usize {
    let plan = &job.plan;
    if plan.run.hosts == Hosts::Namespaces || job.kind == JobKind::Compete {
        return 1;
    }
    let names: Vec<String> = match &plan.load {
        Load::Mesh(mesh) => (0..mesh.agents)
            .filter(|agent| mesh.runtime.is_jvm_of(*agent))
            .map(|agent| format!("agent-{agent}"))
            .collect(),
        load => load.processes(),
    };
    let own = plan.pins.get(&job.name);
    let beside = names.iter().filter(|name| plan.pins.get(*name) == own);
    beside.count().max(1)
}
