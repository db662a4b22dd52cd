//! The runs of standing agents are fetched from their hosts: `unruly host --send` sends them, and
//! `unruly collect` takes them.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use unruly_plan::ReachedHost;
use unruly_trace::{
    ColumnNs, DurationNs, Exit, Manifest, MonoNs, RunLock, RunStatus, TraceError, is_unfinished,
    monotonic,
};

use super::{HostReport, VERSION, command, files};
use crate::process::Process;
use crate::standing::{RUNS, size_bytes};

/// The most bytes of a question: the names of ten years of hours.
const QUESTION_BYTES_MAX: u64 = 4 << 20;

/// A host that sends nothing for this time is given up.
const SILENT: DurationNs = DurationNs::seconds(60);

/// How often it is looked whether a host still sends.
const LOOK_PERIOD: Duration = Duration::from_millis(200);

/// Time that a host has to end after its last word.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);

/// The most characters that are shown of a line that is no message.
const SHOWN_CHARS: usize = 80;

/// The question for the runs of a standing agent.
#[derive(Debug, Serialize, Deserialize)]
struct Wanted {
    version: u32,
    /// The agent's directory.
    directory: PathBuf,
    /// Runs that began earlier are not wanted.
    since_ns: ColumnNs,
    /// Names of the runs that are there already.
    have: BTreeSet<String>,
}

/// Sends the runs that the first line of standard input wants. Runs that go on are left out.
///
/// # Errors
///
/// When there is no question, it is one of another version, or the directory is not a standing agent's.
pub fn send_runs() -> Result<()> {
    let mut line = String::new();
    let mut input = std::io::stdin().lock().take(QUESTION_BYTES_MAX);
    input.read_line(&mut line)?;
    let wanted: Wanted = serde_json::from_str(&line).context(
        "standard input: its first line is no question; wanted one of unruly collect; hint: call that",
    )?;
    ensure!(
        wanted.version == VERSION,
        "the question has version {}; wanted {VERSION}; hint: use one version of unruly on both hosts",
        wanted.version
    );
    let folder = wanted.directory.join(RUNS);
    let entries = fs::read_dir(&folder).with_context(|| {
        let place = wanted.directory.display();
        format!("{place}: is not the directory of a standing agent; hint: name it with --dir")
    })?;
    let mut runs: Vec<PathBuf> = entries.flatten().map(|it| it.path()).collect();
    runs.sort();
    for run in runs {
        let name = run.file_name().and_then(|it| it.to_str());
        let Some(name) = name.filter(|it| !wanted.have.contains(*it)) else {
            continue;
        };
        // It must not become smaller while it is read. Another user's cannot be locked, and is read all the
        // same: a file that goes meanwhile is an error.
        let lock = RunLock::take(&run);
        if matches!(lock, Err(TraceError::Running { .. })) {
            continue;
        }
        let manifest = Manifest::read(&run);
        let fits =
            |it: Manifest| it.status != RunStatus::Running && it.started_ns >= wanted.since_ns;
        if manifest.is_ok_and(fits) && !is_unfinished(&run) {
            send_run(&run, name)?;
        }
    }
    Ok(())
}

fn send_run(run: &Path, name: &str) -> Result<()> {
    let name = name.to_owned();
    super::host::say(&HostReport::Run { name })?;
    let files = files::send(run, Path::new(""), || std::io::stdout().lock())?;
    super::host::say(&HostReport::Sent { files })
}

/// Fetches the runs of a host's standing agent that are not in `output` yet, and passes the directory of each to
/// `take` as soon as it is whole. What a broken connection has left out comes the next time. Returns how
/// many runs and bytes came.
///
/// # Errors
///
/// When the host cannot be reached or sends nothing for a minute, another collection writes to the same
/// place, or a run cannot be written.
pub fn collect(
    host: &ReachedHost,
    directory: &Path,
    output: &Path,
    since_ns: ColumnNs,
    take: &mut dyn FnMut(&Path),
) -> Result<(usize, u64)> {
    let place = output.join(&host.name);
    fs::create_dir_all(&place)
        .with_context(|| format!("{}: cannot be made; hint: -o", place.display()))?;
    let _lock = RunLock::take(&place).map_err(|error| match error {
        TraceError::Running { .. } => {
            anyhow::anyhow!("{}: another collection goes on", place.display())
        }
        error => error.into(),
    })?;
    let question = Wanted {
        version: VERSION,
        directory: directory.to_owned(),
        since_ns,
        have: names(&place)?,
    };
    let question = serde_json::to_string(&question)?;
    let mut log = tempfile::tempfile()?;
    let mut process = Process::start(
        command(host)
            .arg("--send")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log.try_clone()?),
    )
    .with_context(|| {
        format!(
            "{:?} cannot be started; hint: is it installed here?",
            host.reach[0]
        )
    })?;
    let (input, output) = process.pipes();
    let (mut input, output) = (
        input.context("the input is piped")?,
        output.context("the output is piped")?,
    );
    // A host that does not read must not hold us up. One that has ended says why by itself.
    std::thread::spawn(move || drop(writeln!(input, "{question}")));
    let taken = listen(&mut process, output, place, take);
    if taken.is_err() {
        process.end();
    }
    let ended = wait(&mut process);
    if ended == Exit::Code(0) && taken.is_ok() {
        return taken;
    }
    let mut complaint = String::new();
    std::io::Seek::rewind(&mut log)?;
    log.take(QUESTION_BYTES_MAX)
        .read_to_string(&mut complaint)?;
    let lines: Vec<&str> = complaint
        .lines()
        .filter(|it| !it.trim().is_empty())
        .collect();
    let last = lines[lines.len().saturating_sub(2)..].join("; ");
    let own = taken.err().map(|it| format!("{it:#}"));
    let reasons: Vec<String> = own
        .into_iter()
        .chain((!last.is_empty()).then_some(last))
        .collect();
    let reason = if reasons.is_empty() {
        "the connection ended before all had come".to_owned()
    } else {
        reasons.join("; ")
    };
    let reach = host.reach.join(" ");
    bail!(
        "{reason}; hint: try it yourself: {reach} {} --version",
        host.program
    )
}

/// Names of the runs in a folder, and removes what a broken connection has left there.
fn names(place: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(place)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(PART) {
            fs::remove_dir_all(entry.path())?;
        } else if entry.path().is_dir() {
            names.insert(name);
        }
    }
    Ok(names)
}

/// How the folder of a run begins that has not come whole.
const PART: &str = ".part-";

/// Takes the runs on a thread of its own, and ends a host that is silent.
fn listen(
    process: &mut Process,
    output: ChildStdout,
    place: PathBuf,
    take: &mut dyn FnMut(&Path),
) -> Result<(usize, u64)> {
    let heard_ns = Arc::new(AtomicI64::new(monotonic().0));
    let (sender, arrived) = channel();
    let thread_heard = Arc::clone(&heard_ns);
    std::thread::spawn(move || {
        let input = BufReader::new(Heard {
            output,
            heard_ns: thread_heard,
        });
        let done = take_runs(input, &place, &mut |run| drop(sender.send(Ok(Some(run)))));
        let _ = sender.send(done.map(|()| None));
    });
    let (mut runs, mut bytes) = (0, 0);
    loop {
        match arrived.recv_timeout(LOOK_PERIOD) {
            Ok(Ok(Some(run))) => {
                (runs, bytes) = (runs + 1, bytes + size_bytes(&run));
                take(&run);
            }
            Ok(Ok(None)) => return Ok((runs, bytes)),
            Ok(Err(error)) => return Err(error),
            Err(RecvTimeoutError::Disconnected) => bail!("the thread that takes the runs died"),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if monotonic() - MonoNs(heard_ns.load(Ordering::Relaxed)) > SILENT {
            process.end();
            bail!("the host sent nothing for {} s", SILENT.to_std().as_secs());
        }
    }
}

/// Output of a host, which notes when something came.
struct Heard {
    output: ChildStdout,
    heard_ns: Arc<AtomicI64>,
}

impl Read for Heard {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.output.read(buffer);
        self.heard_ns.store(monotonic().0, Ordering::Relaxed);
        read
    }
}

/// Takes runs until the input ends.
fn take_runs(mut input: impl BufRead, place: &Path, whole: &mut dyn FnMut(PathBuf)) -> Result<()> {
    let mut coming: Option<(String, PathBuf, u64)> = None;
    let mut line = String::new();
    while input
        .by_ref()
        .take(QUESTION_BYTES_MAX)
        .read_line(&mut line)?
        > 0
    {
        let report = serde_json::from_str(&line).with_context(|| {
            let shown: String = line.trim_end().chars().take(SHOWN_CHARS).collect();
            format!("the host printed {shown:?}, which is no message of unruly; hint: does its shell print a greeting?")
        })?;
        match (report, coming.as_mut()) {
            (HostReport::Run { name }, _) => {
                let fits = |c: char| c.is_ascii_alphanumeric() || c == '-';
                ensure!(
                    !name.is_empty() && name.chars().all(fits) && !place.join(&name).exists(),
                    "{name:?} is not the name of a new run"
                );
                let folder = place.join(format!("{PART}{name}"));
                fs::create_dir(&folder)?;
                coming = Some((name, folder, 0));
            }
            (
                HostReport::File {
                    path,
                    bytes,
                    sha256,
                },
                Some((_, folder, files)),
            ) => {
                files::receive(folder, &path, (bytes, &sha256), &mut input)?;
                *files += 1;
            }
            (HostReport::Sent { files }, Some((name, folder, taken))) => {
                ensure!(files == *taken, "{name}: {taken} of {files} files came");
                let run = place.join(&*name);
                fs::rename(folder, &run)?;
                whole(run);
                coming = None;
            }
            _ => bail!("the host sends what belongs to no run"),
        }
        line.clear();
    }
    Ok(())
}

/// Waits for the end of a process whose output has ended.
fn wait(process: &mut Process) -> Exit {
    let until = Instant::now() + LEAVE_TIMEOUT;
    while !process.reap() {
        if Instant::now() > until {
            process.end();
        }
        std::thread::sleep(LOOK_PERIOD / 10);
    }
    process.exit().unwrap_or(Exit::Code(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(lines: &[&str]) -> (tempfile::TempDir, Result<Vec<PathBuf>>) {
        let place = tempfile::tempdir().unwrap();
        let input = lines.join("\n");
        let mut runs = Vec::new();
        let done = take_runs(input.as_bytes(), place.path(), &mut |run| runs.push(run));
        (place, done.map(|()| runs))
    }

    const RUN: &str = r#"{"run":{"name":"20261130T160000Z"}}"#;
    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_run_arrives_whole_under_its_name() {
        let file = format!(r#"{{"file":{{"path":"logs/a","bytes":0,"sha256":"{EMPTY}"}}}}"#);
        let (place, taken) = taken(&[RUN, &file, r#"{"sent":{"files":1}}"#]);
        let run = place.path().join("20261130T160000Z");
        assert_eq!(taken.unwrap(), std::slice::from_ref(&run));
        assert!(run.join("logs/a").is_file());
    }

    #[test]
    fn a_run_that_was_cut_off_is_not_there_and_comes_again() {
        let (place, told) = taken(&[RUN]);
        assert!(told.unwrap().is_empty());
        assert_eq!(names(place.path()).unwrap(), BTreeSet::new());
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
        let (_place, told) = taken(&[RUN, r#"{"sent":{"files":1}}"#]);
        assert!(told.unwrap_err().to_string().contains("0 of 1 files came"));
    }

    #[test]
    fn a_host_cannot_write_outside_of_its_folder() {
        for name in ["..", "a/b", "", "../../etc"] {
            let line = format!(r#"{{"run":{{"name":"{name}"}}}}"#);
            let said = taken(&[&line]).1.unwrap_err().to_string();
            assert!(said.contains("is not the name of a new run"), "{said}");
        }
        let file = format!(r#"{{"file":{{"path":"../a","bytes":0,"sha256":"{EMPTY}"}}}}"#);
        let said = format!("{:#}", taken(&[RUN, &file]).1.unwrap_err());
        assert!(said.contains("outside the run directory"), "{said}");
        let said = taken(&[&file]).1.unwrap_err().to_string();
        assert!(said.contains("belongs to no run"), "{said}");
        let said = taken(&["Welcome to node-1!"]).1.unwrap_err().to_string();
        assert!(said.contains("does its shell print a greeting?"), "{said}");
    }
}
