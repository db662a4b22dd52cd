//! A standing agent: one run after another, for months, with nobody who watches.
//!
//! Each run is a process and a directory of its own, so that a fault of one costs no other, and every
//! verb reads it. Runs end at multiples of one length of the wall clock: those of all hosts cover the
//! same hours. Between two runs, old ones become smaller.

mod keep;
mod turns;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use unruly_plan::{Arrivals, Load, Plan, Secret};
use unruly_trace::{ClockPair, Manifest, RunLock, RunStatus, TraceError, grouped, recover};

use crate::live::LiveOptions;
use crate::process::Process;
use crate::{RunOptions, run, stop_on_signals};
use turns::Turn;

pub(crate) use keep::{RUNS, size_bytes};

/// The verb of one run of a standing agent, on the command line.
const VERB: &str = "turn";

/// The plan of the run that goes on, in the agent's directory.
const PLAN: &str = "turn.toml";

/// Time that a run has to end after the agent has asked it to do so.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(90);

/// How often a run is looked at.
const LOOK_PERIOD: Duration = Duration::from_millis(50);

/// The pause after a run that failed; it doubles with each further one.
const PAUSE_LEAST: Duration = Duration::from_secs(1);
const PAUSE_MOST: Duration = Duration::from_secs(300);

/// The shortest length of runs.
const EVERY_LEAST: Duration = Duration::from_secs(2);

/// What the command line says of a standing agent.
#[derive(Debug)]
pub struct StandingOptions {
    /// Where its runs are.
    pub directory: PathBuf,
    /// The length of a run and the pause after it.
    pub every: Duration,
    /// How long rows are kept.
    pub keep: Duration,
    /// The most bytes that its runs take, except for the one that goes on.
    pub room_bytes: u64,
    /// `HOST:PORT` of an exposition for Prometheus.
    pub metrics: Option<String>,
    /// What lets it into a store.
    pub password: Option<Secret>,
    /// Write to a store that holds other data.
    pub yes: bool,
}

/// Measures a plan again and again until a signal comes, and passes a line about each run to `say`.
///
/// # Errors
///
/// When the plan is not for a standing agent, another agent has the directory, or the first run cannot
/// begin. Later errors are printed, and it tries again.
pub fn stand(plan: &Plan, options: &StandingOptions, say: &dyn Fn(&str)) -> Result<()> {
    check(plan, options)?;
    let place = &options.directory;
    fs::create_dir_all(place.join(RUNS)).with_context(|| {
        format!(
            "{}: cannot be made; wanted a writable place; hint: -o",
            place.display()
        )
    })?;
    let _lock = RunLock::take(place).map_err(|error| match error {
        TraceError::Running { .. } => anyhow::anyhow!(
            "{}: another standing agent has this directory; hint: name one of its own with -o",
            place.display()
        ),
        error => error.into(),
    })?;
    let stop = stop_on_signals()?;
    let is_stopped = || stop.load(Ordering::Acquire);
    let (mut pause, mut runs) = (PAUSE_LEAST, 0_u64);
    repair(place);
    while !is_stopped() {
        for told in keep::tidy(place, ClockPair::now().wall_ns, options, &stop) {
            eprintln!("{told}");
        }
        if is_stopped() {
            break;
        }
        match measure(plan, options, &stop) {
            Ok(told) => {
                say(&told);
                (pause, runs) = (PAUSE_LEAST, runs + 1);
            }
            Err(error) if runs == 0 && !is_stopped() => return Err(error),
            Err(error) => {
                eprintln!("{error:#}; next try in {} s", pause.as_secs());
                let until = Instant::now() + pause;
                while Instant::now() < until && !is_stopped() {
                    std::thread::sleep(LOOK_PERIOD);
                }
                pause = (pause * 2).min(PAUSE_MOST);
            }
        }
    }
    Ok(())
}

/// Refuses plans that end by themselves, or whose runs would differ.
fn check(plan: &Plan, options: &StandingOptions) -> Result<()> {
    let Load::Drive(drive) = &plan.load else {
        bail!(
            "the plan has no [drive]; a standing agent measures one server; hint: unruly plans echo"
        );
    };
    let cells = plan.cells()?.len();
    ensure!(
        cells == 1 && plan.run.repeat == 1,
        "the plan has {cells} cells and {} repeats; a standing agent measures one cell again and again; hint: leave [matrix] and run.repeat out",
        plan.run.repeat
    );
    let is_replay = matches!(drive.arrivals, Arrivals::Replay);
    ensure!(
        drive.requests.is_none() && plan.run.until.is_none() && !is_replay,
        "the plan ends by itself; a standing agent's runs end with their hour; hint: leave drive.requests, run.until and a replay out"
    );
    ensure!(
        plan.reached.is_empty(),
        "the plan has [[host]]; a standing agent measures from its own host; hint: start one on each host"
    );
    ensure!(
        options.every >= EVERY_LEAST && Duration::from_nanos(plan.run.warmup.0) < options.every / 2,
        "--every: {:?} is too short; wanted at least {EVERY_LEAST:?} and twice the warm-up; hint: --every 1h",
        options.every
    );
    Ok(())
}

/// Makes runs whole that were cut off, as by a loss of power.
fn repair(place: &Path) {
    for directory in keep::runs(place) {
        let is_running = |it: &Manifest| it.status == RunStatus::Running;
        if Manifest::read(&directory).is_ok_and(|it| is_running(&it))
            && let Err(error) = recover(&directory)
        {
            eprintln!("{error}");
        }
    }
}

/// Carries one run out. Returns a line about it.
fn measure(plan: &Plan, options: &StandingOptions, stop: &Arc<AtomicBool>) -> Result<String> {
    let turn = Turn::at(
        ClockPair::now().wall_ns,
        options.every,
        Duration::from_nanos(plan.run.warmup.0),
    );
    let place = &options.directory;
    let output = place.join(RUNS).join(turn.name());
    ensure!(
        !output.exists(),
        "{}: there is such a run already; hint: was the clock set back?",
        output.display()
    );
    let plan_file = place.join(PLAN);
    fs::write(&plan_file, turn.plan(plan).to_toml()).with_context(|| {
        format!(
            "{}: cannot be written; hint: is the disk full?",
            plan_file.display()
        )
    })?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(VERB).arg(&plan_file).arg("--out").arg(&output);
    if let Some(address) = &options.metrics {
        command.args(["--metrics", address]);
    }
    if options.yes {
        command.arg("--yes");
    }
    if let Some(password) = &options.password {
        command.env(unruly_load::PASSWORD, password.reveal());
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut process = Process::start(&mut command).context("a run cannot be started")?;
    wait(&mut process, turn.longest(), stop);
    let Ok(manifest) = Manifest::read(&output) else {
        // A folder without a manifest is no run, and would stay for ever.
        let _ = fs::remove_dir_all(&output);
        bail!("the run did not begin: its own message is above");
    };
    if manifest.status == RunStatus::Running {
        recover(&output)?;
    }
    let manifest = Manifest::read(&output)?;
    if let Some(reason) = manifest.broken.first()
        && manifest.counts.copies.scheduled == 0
    {
        let reason = reason.clone();
        fs::remove_dir_all(&output)?;
        bail!("the run sent nothing: {reason}");
    }
    told(&output)
}

/// Waits until a run has ended, and ends it when it takes much longer than it should.
fn wait(process: &mut Process, longest: Duration, stop: &AtomicBool) {
    let mut until = Instant::now() + longest + LEAVE_TIMEOUT;
    let mut told = false;
    while !process.reap() {
        if stop.load(Ordering::Acquire) && !told {
            process.signal(Signal::SIGINT);
            (told, until) = (true, Instant::now() + LEAVE_TIMEOUT);
        }
        if Instant::now() > until {
            process.end();
        }
        std::thread::sleep(LOOK_PERIOD);
    }
}

/// Returns a line about a run that is over.
fn told(directory: &Path) -> Result<String> {
    let manifest = Manifest::read(directory)?;
    let copies = &manifest.counts.copies;
    let broken = manifest.broken.first();
    Ok(format!(
        "{}  {} requests, {} failed{}",
        directory.display(),
        grouped(manifest.counts.requests.scheduled),
        grouped(copies.scheduled - copies.ok),
        broken.map_or_else(String::new, |it| format!("; {it}"))
    ))
}

/// Measures one run of a standing agent. It ends when the agent dies, and begins even if its server is
/// down: the requests of an outage are what the agent is for.
///
/// # Errors
///
/// When the plan cannot be read, or the run cannot begin.
pub fn turn(plan_file: &Path, output: PathBuf, metrics: Option<String>, yes: bool) -> Result<()> {
    set_pdeathsig(Signal::SIGTERM)?;
    let name = plan_file.display().to_string();
    let text = fs::read_to_string(plan_file).with_context(|| format!("{name}: cannot be read"))?;
    let plan = Plan::parse(&name, &text)?;
    let plan_of_run = output.join("plan.toml").display().to_string();
    let options = RunOptions {
        output: Some(output),
        quiet: true,
        live: LiveOptions {
            metrics,
            ..LiveOptions::default()
        },
        yes,
        is_standing: true,
        command: ["unruly", "run", &plan_of_run].map(str::to_owned).to_vec(),
        ..RunOptions::default()
    };
    run(&plan, &options).map(drop)
}
