//! `unruly host`: one process of a run, on the host that the runner reaches.

use std::fs;
use std::io::{BufRead, BufReader, Read as _, StdoutLock, Write};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use unruly_agent::Report;
use unruly_program::{host_of, noise, tool};
use unruly_trace::{ClockPair, DurationNs, Exit, MonoNs, monotonic};

use super::{Action, HostReport, Order, VERSION, files};
use crate::jvm;
use crate::process::Process;
use crate::quota::Quota;

/// The most bytes of an order: the plan in it may name many keys.
const ORDER_BYTES_MAX: u64 = 64 << 20;

/// Folders of this program, each with the number of its process.
const FOLDERS: &str = "unruly-host-";

/// Time that a process has to end by itself when the runner is gone.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(7);

/// A runner that asks each second, and says nothing for so long, is gone.
const SILENT: DurationNs = DurationNs::seconds(30);

/// The exit code when the runner was gone before it had the files.
const GONE: u8 = 3;

/// How often the process is looked at.
const LOOK_PERIOD: Duration = Duration::from_millis(20);

/// Starts the process that the first line of standard input describes, passes its lines on, and
/// sends its files when it has ended. Returns its exit code.
///
/// # Errors
///
/// When there is no order, it is one of another version, or the process cannot be started. The error
/// is also said in a line.
pub fn serve() -> Result<u8> {
    let served = order().and_then(carry_out);
    if let Err(error) = &served {
        let text = format!("{error:#}");
        let _ = say(&Report::Finding { text, fatal: true });
    }
    served
}

fn order() -> Result<Order> {
    let mut line = String::new();
    let mut input = std::io::stdin().lock().take(ORDER_BYTES_MAX);
    input.read_line(&mut line)?;
    let json: serde_json::Value = serde_json::from_str(&line)
        .context("standard input: its first line is no order; wanted a run that starts this program; hint: unruly drive --from")?;
    let version = json.get("version").and_then(serde_json::Value::as_u64);
    let theirs = json.get("tool").cloned().unwrap_or_default();
    let own = serde_json::to_value(tool())?;
    ensure!(
        version == Some(u64::from(VERSION)) && theirs == own,
        "unruly: this host has {own}, and the runner {theirs}; wanted the same program on both; hint: copy it there"
    );
    serde_json::from_value(json)
        .context("standard input: its first line is no order of this version")
}

fn carry_out(order: Order) -> Result<u8> {
    let Order {
        mut job,
        password,
        is_first,
        ..
    } = order;
    let gone = gone_flag()?;
    remove_leftovers(&std::env::temp_dir());
    // Two that look at once would disturb one another.
    let floor_ns = is_first.then(|| noise().floor_ns);
    say(&HostReport::Host(Box::new(host_of(&job.host, floor_ns))))?;
    // What the runner has is on its own host.
    job.library = None;
    job.jvm = jvm::find();
    let own = format!("{FOLDERS}{}-", std::process::id());
    let folder = tempfile::Builder::new().prefix(&own).tempdir()?;
    fs::create_dir(folder.path().join("logs"))?;
    let job_file = folder.path().join("job.json");
    fs::write(&job_file, serde_json::to_vec(&job)?)?;
    let password = password.map(|it| (unruly_load::PASSWORD, it));
    let mut process = Process::start(
        Command::new(std::env::current_exe()?)
            .args(["agent".as_ref(), "--job".as_ref(), job_file.as_os_str()])
            .args(["--out".as_ref(), folder.path().as_os_str()])
            .envs(password)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped()),
    )?;
    let (input, output) = process.pipes();
    let output = output.context("the output is piped")?;
    let process = Arc::new(Mutex::new(process));
    let input = Arc::new(Mutex::new(input));
    let heard_ns = Arc::new(AtomicI64::new(0));
    let (thread_gone, thread_input) = (Arc::clone(&gone), Arc::clone(&input));
    let (thread_heard, sent_ns) = (Arc::clone(&heard_ns), Arc::clone(&heard_ns));
    let quota = Arc::new(Mutex::new(None));
    let (thread_process, thread_quota) = (Arc::clone(&process), Arc::clone(&quota));
    std::thread::spawn(move || {
        listen(&thread_input, &thread_process, &thread_quota, &thread_heard);
        thread_gone.store(true, Ordering::Release);
    });
    let (thread_gone, place) = (Arc::clone(&gone), folder.path().to_owned());
    std::thread::spawn(move || watch(&thread_gone, &heard_ns, &place));
    let lines = std::thread::spawn(move || pass_on(BufReader::new(output)));
    let left = wait(&process, &gone, &input);
    let _ = lines.join();
    // The thread that made its control group still waits for lines.
    drop(quota.lock().map(|mut it| it.take()));
    if !left {
        // Its rows are lost, whatever the process said of itself.
        return Ok(GONE);
    }
    let files = files::send(folder.path(), &job_file, || Taken {
        out: std::io::stdout().lock(),
        heard_ns: &sent_ns,
    })?;
    say(&HostReport::Sent { files })?;
    let exit = process.lock().map_or(None, |it| it.exit());
    Ok(match exit {
        Some(Exit::Code(code)) => u8::try_from(code).unwrap_or(1),
        // As a shell has it.
        Some(Exit::Signal(signal)) => u8::try_from(128 + signal).unwrap_or(1),
        _ => 1,
    })
}

/// The output while a file is sent. A runner that takes bytes is not silent, although no question
/// about the clock can be answered meanwhile.
struct Taken<'a> {
    out: StdoutLock<'static>,
    heard_ns: &'a AtomicI64,
}

impl Write for Taken<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.heard_ns.store(monotonic().0, Ordering::Relaxed);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

/// Has this program end when the runner is silent, and ends it where it would wait for the runner for
/// ever.
fn watch(gone: &AtomicBool, heard_ns: &AtomicI64, folder: &Path) {
    let is_silent = || {
        let heard_ns = heard_ns.load(Ordering::Relaxed);
        heard_ns > 0 && monotonic() - MonoNs(heard_ns) > SILENT
    };
    while !gone.load(Ordering::Acquire) && !is_silent() {
        std::thread::sleep(LOOK_PERIOD);
    }
    gone.store(true, Ordering::Release);
    // It may be in the middle of a file that nobody reads.
    std::thread::sleep(LEAVE_TIMEOUT + LEAVE_TIMEOUT);
    let _ = fs::remove_dir_all(folder);
    std::process::exit(i32::from(GONE));
}

/// Becomes true when the runner is gone, or somebody wants this program to end.
fn gone_flag() -> Result<Arc<AtomicBool>> {
    let gone = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&gone))?;
    }
    Ok(gone)
}

/// Waits until the process has ended, and ends it when the runner is gone. Returns whether the runner
/// still listens.
fn wait(process: &Mutex<Process>, gone: &AtomicBool, input: &Mutex<Option<ChildStdin>>) -> bool {
    let mut until: Option<Instant> = None;
    while process.lock().is_ok_and(|mut it| !it.reap()) {
        if gone.load(Ordering::Acquire) && until.is_none() {
            // A process whose input is closed ends by itself.
            if let Ok(mut input) = input.lock() {
                *input = None;
            }
            until = Some(Instant::now() + LEAVE_TIMEOUT);
        }
        if until.is_some_and(|until| Instant::now() > until)
            && let Ok(mut process) = process.lock()
        {
            process.end();
        }
        std::thread::sleep(LOOK_PERIOD);
    }
    until.is_none() && !gone.load(Ordering::Acquire)
}

/// Passes the runner's lines on, answers its questions about the clock, and carries out the actions of
/// faults. A limit that cannot be set before the start ends the run.
fn listen(
    input: &Mutex<Option<ChildStdin>>,
    process: &Mutex<Process>,
    quota: &Mutex<Option<Quota>>,
    heard_ns: &AtomicI64,
) {
    let mut has_started = false;
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        // The runner asks each second from its first question on.
        if line.starts_with("clock ") || heard_ns.load(Ordering::Relaxed) > 0 {
            heard_ns.store(monotonic().0, Ordering::Relaxed);
        }
        if let Some(number) = line.strip_prefix("clock ") {
            let clock = ClockPair::now();
            let number = number.trim().parse().unwrap_or(0);
            let _ = say(&HostReport::Clock { number, clock });
            continue;
        }
        if let Some(action) = Action::read(&line) {
            if let Err(error) = action.and_then(|it| carry_out_on(process, it, quota)) {
                let text = format!("{error:#}");
                let fatal = !has_started;
                let _ = say(&HostReport::Refused);
                let _ = say(&Report::Finding { text, fatal });
            }
            continue;
        }
        has_started |= line.starts_with("start ");
        if let Ok(mut input) = input.lock()
            && let Some(input) = input.as_mut()
        {
            let _ = writeln!(input, "{line}").and_then(|()| input.flush());
        }
    }
}

fn carry_out_on(
    process: &Mutex<Process>,
    action: Action,
    quota: &Mutex<Option<Quota>>,
) -> Result<()> {
    match (process.lock(), quota.lock()) {
        (Ok(process), Ok(mut quota)) => action.carry_out(&process, &mut quota),
        _ => Ok(()),
    }
}

/// Passes the lines of the process on.
fn pass_on(output: impl BufRead) {
    for line in output.lines().map_while(Result::ok) {
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}

pub(super) fn say(report: &impl serde::Serialize) -> Result<()> {
    let line = serde_json::to_string(report)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()?;
    Ok(())
}

/// Removes the folders of processes that were killed.
fn remove_leftovers(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|it| it.strip_prefix(FOLDERS));
        let pid = number.and_then(|it| it.split('-').next());
        let lives = |pid: &str| Path::new("/proc").join(pid).exists();
        if pid.is_some_and(|pid| pid.parse::<u32>().is_ok() && !lives(pid)) {
            // That of another user stays.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_the_dead_go_and_those_of_the_living_stay() {
        let place = tempfile::tempdir().unwrap();
        let living = format!("{FOLDERS}{}-a", std::process::id());
        let names = [
            living.as_str(),
            "unruly-host-4294967295-b",
            "unruly-host-x-c",
            "other",
        ];
        for name in names {
            fs::create_dir(place.path().join(name)).unwrap();
        }
        remove_leftovers(place.path());
        let mut left: Vec<String> = fs::read_dir(place.path())
            .unwrap()
            .map(|it| it.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let mut wanted = [living.as_str(), "other", "unruly-host-x-c"];
        wanted.sort_unstable();
        assert_eq!(left, wanted);
    }
}
