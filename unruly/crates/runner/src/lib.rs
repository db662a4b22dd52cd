//! The runner: starts the processes of a run, all at one instant, and leaves nothing behind.
//!
//! A run is a sequence of *trials*, one for each cell and repeat, in the order of the seed. Each trial
//! has its own processes. What they say arrives as lines; what they measure they write themselves.

mod child;
mod death;
mod faults;
mod jobs;
mod judge;
mod jvm;
mod live;
mod loading;
mod namespaces;
mod part;
mod process;
mod processes;
mod progress;
mod quota;
mod reach;
mod relay;
mod resume;
mod room;
pub mod services;
mod standing;
mod sweep;
mod target;
mod telling;
mod trial;
mod watch;

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use unruly_agent::JvmPlace;
use unruly_load::{Driver, DriverError, IntroductionError, Settings, driver, foreign, introduce};
use unruly_plan::{
    Cell as PlanCell, Drive, Load, Plan, Portion, Protocol, Secret, Store, Transport, mix,
    times_ns, utc,
};
use unruly_program::{noise, tool};
use unruly_trace::{
    Cell, ClockPair, Counts, DurationNs, Manifest, Part, RunLock, RunStatus, SCHEMA_VERSION,
};

use crate::services::library;
pub use live::LiveOptions;
pub use reach::{collect, idle as idle_host, send_runs, serve as serve_host};
use resume::{Ground, Resumed};
pub use standing::{StandingOptions, stand, turn};
use sweep::Sweep;
pub use target::{ECHO, target};
pub use watch::{Captured, WatchOptions, read_capture, watch};

/// The times of a replay, kept beside the plan.
const TIMES_FILE: &str = "times.txt";

/// How long a store may take to answer before a run.
const MEET_TIMEOUT: Duration = Duration::from_secs(20);

/// The same before a run of a standing agent, which begins in any case.
const MEET_TIMEOUT_STANDING: Duration = Duration::from_secs(1);

/// What the command line says of a run.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// The run directory.
    pub output: Option<PathBuf>,
    /// The directory of an interrupted run of the plan, to go on with.
    pub resume: Option<PathBuf>,
    /// The run stops after the trial in which this much time has passed.
    pub limit: Option<Duration>,
    /// No progress.
    pub quiet: bool,
    /// Where the run can be seen while it goes on.
    pub live: LiveOptions,
    /// What lets us into a store; the environment's, when absent.
    pub password: Option<Secret>,
    /// Write to a store that holds other data, and resume a run that another host or version began.
    pub yes: bool,
    /// It is a run of a standing agent: it begins although its server does not answer.
    pub is_standing: bool,
    /// Words of the command line that repeats the run, without passwords; the manifest keeps them.
    pub command: Vec<String>,
}

/// What all trials of a run share.
pub(crate) struct Run {
    pub(crate) directory: PathBuf,
    pub(crate) id: String,
    pub(crate) cells: Vec<PlanCell>,
    pub(crate) cookie: u32,
    pub(crate) password: Option<Secret>,
    /// Where libraries are that the system does not have.
    pub(crate) library: Option<String>,
    /// The JVM, for jobs that need one.
    pub(crate) jvm: Option<JvmPlace>,
    pub(crate) stop: Arc<AtomicBool>,
    /// Its requests are counted in bins while it goes on.
    pub(crate) live: bool,
}

/// Measures a plan, or what an earlier run of it has left to measure. Returns the run directory.
///
/// # Errors
///
/// When the run cannot start or be resumed, or its counts do not add up.
pub fn run(plan: &Plan, options: &RunOptions) -> Result<PathBuf> {
    let all = plan.cells()?;
    let times = read_times(plan)?;
    let mut plan = plan.clone();
    if times.is_some() {
        set_times(&mut plan, TIMES_FILE);
    }
    let plan = &plan;
    let resumed = match &options.resume {
        Some(directory) => Some(Resumed::open(directory, &plan.to_toml(), times.as_deref())?),
        None => None,
    };
    if let Some(directory) = options
        .resume
        .as_ref()
        .filter(|_| is_complete(resumed.as_ref()))
    {
        eprintln!(
            "{}: complete already; nothing is left to measure",
            directory.display()
        );
        return Ok(directory.clone());
    }
    let (mut cells, left_out) = match &resumed {
        Some(resumed) => resumed.cells(all),
        None => possible(all, options.quiet)?,
    };
    options.live.check(&cells)?;
    // Before anything is made or asked: its addresses may be taken.
    let mut live = options.live.start(options.quiet)?;
    let password = options.password.clone();
    let password = password.or_else(|| std::env::var(unruly_load::PASSWORD).ok().map(Secret::new));
    meet(&mut cells, password.as_ref(), options)?;
    let origin = ClockPair::now();
    let stop = stop_on_signals()?;
    let noise = noise();
    if let Some(warning) = noise.warning().filter(|_| !options.quiet) {
        eprintln!("{warning}");
    }
    let part = part::new(origin, noise.floor_ns, &cells)?;
    let mut ground = match resumed {
        Some(resumed) => resumed.begin(part, options.yes)?,
        None => begin(plan, &cells, part, times.as_deref(), options)?,
    };
    if times.is_some() {
        let kept = ground.directory.canonicalize()?.join(TIMES_FILE);
        let kept = kept.display().to_string();
        cells
            .iter_mut()
            .for_each(|cell| set_times(&mut cell.plan, &kept));
    }
    ground.manifest.left_out = left_out;
    ground.manifest.write(&ground.directory)?;
    Manifest::reserve(&ground.directory)?;

    #[expect(clippy::cast_possible_truncation, reason = "the low half of a hash")]
    let cookie = mix(plan.seed, origin.wall_ns.0.cast_unsigned()) as u32;
    let run = Run {
        directory: ground.directory.clone(),
        id: ground.manifest.run.clone(),
        library: libraries(&cells),
        jvm: jvm::find(),
        cells,
        cookie,
        password,
        stop,
        live: options.live.any(),
    };
    if let Some(live) = &mut live {
        live.name(plan, &run);
    }
    Sweep::new(plan, &run, options, live).carry_out(ground)?;
    Ok(run.directory)
}

fn is_complete(resumed: Option<&Resumed>) -> bool {
    resumed.is_some_and(Resumed::is_complete)
}

/// Leaves out the cells that cannot be measured. Returns the others, and a sentence about each, or
/// about each middleware system that this host lacks.
fn possible(cells: Vec<PlanCell>, quiet: bool) -> Result<(Vec<PlanCell>, Vec<String>)> {
    let say = |text: &str| {
        if !quiet {
            eprintln!("{text}");
        }
    };
    let (mut kept, mut left_out) = (Vec::new(), Vec::new());
    let missing = services::missing_systems(&cells, &say)?;
    left_out.extend(missing.values().cloned());
    for cell in cells {
        let lacks = services::system_of(&cell).is_some_and(|it| missing.contains_key(it));
        match services::impossible(&cell)? {
            _ if lacks => {}
            Some(told) => left_out.push(format!("cell {:?}: {told}", cell.name)),
            None => kept.push(cell),
        }
    }
    if let Some(told) = left_out.first().filter(|_| kept.is_empty()) {
        anyhow::bail!("[matrix] has no cell that can be measured: {told}; hint: add other values");
    }
    for told in &left_out {
        say(&format!("left out: {told}"));
    }
    Ok((kept, left_out))
}

/// Makes the directory of a run that begins.
fn begin(
    plan: &Plan,
    cells: &[PlanCell],
    part: Part,
    times: Option<&str>,
    options: &RunOptions,
) -> Result<Ground> {
    let id = format!("{}-{}", plan.name, utc(part.clock.wall_ns.0));
    let made = options.output.clone();
    let directory = made.unwrap_or_else(|| Path::new("runs").join(&id));
    make_directory(&directory)?;
    let lock = RunLock::take(&directory)?;
    if let Some(times) = times {
        // Kept with the run, so that it can be repeated from its directory.
        fs::write(directory.join(TIMES_FILE), times)?;
    }
    let text = plan.to_toml();
    fs::write(directory.join("plan.toml"), &text).with_context(|| {
        format!(
            "{}: cannot write; wanted a writable directory; hint: -o",
            directory.display()
        )
    })?;
    let mut manifest = new_manifest(plan, cells, &id, &text, part);
    manifest.command = Some(options.command.clone());
    Ok(Ground {
        directory,
        lock,
        manifest,
        done: BTreeSet::new(),
    })
}

/// Becomes true when somebody wants the run to end: by Ctrl-C, or by closing the terminal.
fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// Checks that there is room for all cells and that their stores and hosts are there, before anything
/// is begun.
fn meet(cells: &mut [PlanCell], password: Option<&Secret>, options: &RunOptions) -> Result<()> {
    if let Some(directory) = &options.output {
        refuse_run(directory)?;
    }
    meet_stores(cells, password, options)?;
    reach::install(cells, options.quiet)
}

fn meet_stores(cells: &[PlanCell], password: Option<&Secret>, options: &RunOptions) -> Result<()> {
    check_listen(cells)?;
    // A service is on this host as soon as it is asked for, and others are on a network.
    for cell in cells {
        room::for_files(&cell.plan)?;
        services::configure(cell)?;
    }
    services::check_processes(cells)?;
    services::check_parameters(cells)?;
    for protocol in protocols(cells) {
        unruly_stream::check_library(protocol, unruly_stream::LOADS_LIBRARIES)?;
    }
    let mut met: Vec<&Store> = Vec::new();
    for cell in cells {
        let Load::Drive(drive) = &cell.plan.load else {
            continue;
        };
        room::for_keys(drive)?;
        let Some(store) = &drive.store else { continue };
        let alike = |it: &&Store| {
            let of_requests = it.http == store.http && it.sql == store.sql;
            of_requests && it.url == store.url && it.message == store.message && it.tls == store.tls
        };
        if store.url.service().is_none() && !met.iter().any(alike) {
            met.push(store);
            let timeout = if options.is_standing {
                MEET_TIMEOUT_STANDING
            } else {
                MEET_TIMEOUT
            };
            match meet_store(drive, password, timeout) {
                Ok(()) if options.yes => {}
                Ok(()) => refuse_foreign_data(store, drive, password)?,
                // Whatever is wrong with it is to be measured.
                Err(error) if options.is_standing => {
                    eprintln!(
                        "the server does not answer as it should: {error:#}; its requests are measured"
                    );
                }
                // The hosts that ask it may reach it all the same.
                Err(error) if !cell.plan.reached.is_empty() && is_unreachable(&error) => {
                    if !options.quiet {
                        eprintln!(
                            "this host does not reach it, and its data were not looked at: {error:#}"
                        );
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Refuses an address to listen at that no other host would ask, or that is not of this host.
fn check_listen(cells: &[PlanCell]) -> Result<()> {
    let mut plans = cells.iter().map(|it| &it.plan);
    let Some(address) = plans.clone().find_map(|it| it.run.listen) else {
        return Ok(());
    };
    anyhow::ensure!(
        plans.clone().any(|it| !it.reached.is_empty()),
        "run.listen: it is {address}, and no other host sends to this one; wanted [[host]] too; \
         hint: --from ssh:node-1, or leave listen out"
    );
    anyhow::ensure!(
        plans.any(|it| it.load.has_service() || it.load.has_echo()),
        "run.listen: it is {address}, and the run starts nothing that listens there; wanted a service; \
         hint: leave it out"
    );
    let bound = TcpListener::bind((address, 0));
    bound.map(drop).with_context(|| {
        format!("run.listen: {address} is no address of this host; wanted one that `ip addr` shows")
    })
}

/// Returns whether nothing answered at the address of a store.
fn is_unreachable(error: &anyhow::Error) -> bool {
    let introduced = error.downcast_ref::<IntroductionError>();
    let made = error.downcast_ref::<DriverError>();
    introduced.is_some_and(IntroductionError::is_unreachable)
        || made.is_some_and(|it| it.is_unreachable)
}

/// Returns the protocols of all streams of a run.
fn protocols(cells: &[PlanCell]) -> BTreeSet<Protocol> {
    let protocols = cells.iter().filter_map(|cell| match &cell.plan.load {
        Load::Stream(stream) => Some(stream.protocol),
        _ => None,
    });
    protocols.collect()
}

/// Has the libraries of all protocols of a run at hand. Returns where those are that the system has not.
fn libraries(cells: &[PlanCell]) -> Option<String> {
    let wanted = protocols(cells);
    let wanted = wanted.into_iter().filter_map(unruly_stream::library_of);
    let say = |text: &str| eprintln!("{text}");
    // Each is fetched, and all into one folder.
    let places = wanted.map(|(name, package)| library(name, package, &say));
    let place = places.fold(None, |found: Option<PathBuf>, place| place.or(found));
    place.map(|it| it.display().to_string())
}

/// The text of the times that a replay is to keep to; they are looked at before anything is begun.
fn read_times(plan: &Plan) -> Result<Option<String>> {
    let Load::Drive(Drive {
        times: Some(path), ..
    }) = &plan.load
    else {
        return Ok(None);
    };
    let text = fs::read_to_string(path).with_context(|| {
        format!("{path}: cannot be read; wanted the times of a replay; hint: one time in seconds on each line")
    })?;
    times_ns(path, &text)?;
    Ok(Some(text))
}

fn set_times(plan: &mut Plan, path: &str) {
    if let Load::Drive(drive) = &mut plan.load {
        drive.times = Some(path.to_owned());
    }
}

/// Whether the store of a drive is there, and its driver can do what the plan says.
fn meet_store(drive: &Drive, password: Option<&Secret>, timeout: Duration) -> Result<()> {
    let Some(store) = &drive.store else {
        return Ok(());
    };
    let driver = driver_of(store, drive, drive.transport, password)?;
    Ok(introduce(driver.as_ref(), timeout)?)
}

fn driver_of(
    store: &Store,
    drive: &Drive,
    transport: Transport,
    password: Option<&Secret>,
) -> Result<Box<dyn Driver>> {
    let own = std::env::current_exe()?;
    Ok(driver(&Settings {
        store,
        transport,
        timeout_ns: DurationNs::from_unsigned(drive.timeout.0),
        password,
        seed: 0,
        portion: Portion::new(0, 1),
        trace_key: 0,
        own: own.to_str(),
    })?)
}

/// Refuses to write to a store that holds foreign data. A store that cannot report its content is
/// accepted.
fn refuse_foreign_data(store: &Store, drive: &Drive, password: Option<&Secret>) -> Result<()> {
    if !store.preload && !store.operations.writes() {
        return Ok(());
    }
    let driver = driver_of(store, drive, Transport::Tcp, password)?;
    let Ok(Some(found)) = foreign(driver.as_ref(), MEET_TIMEOUT) else {
        return Ok(());
    };
    let url = &store.url;
    let hint = match url.scheme.as_str() {
        "redis" | "rediss" => {
            "name an empty database (redis://host:port/1), or write beside it with --yes"
        }
        _ => "name an empty store, or write beside it with --yes",
    };
    anyhow::bail!("{url}: it holds other data, such as {found:?}; hint: {hint}")
}

/// Refuses a directory that holds a run.
fn refuse_run(directory: &Path) -> Result<()> {
    if directory.join(Manifest::FILE).exists() {
        let path = directory.display();
        anyhow::bail!("{path}: holds a run already; wanted a new directory; hint: leave -o out");
    }
    Ok(())
}

fn make_directory(directory: &Path) -> Result<()> {
    let path = directory.display();
    refuse_run(directory)?;
    fs::create_dir_all(directory.join("logs"))
        .with_context(|| format!("{path}: cannot be made; wanted a writable place; hint: -o"))
}

fn new_manifest(plan: &Plan, cells: &[PlanCell], id: &str, text: &str, part: Part) -> Manifest {
    let trials = i64::try_from(cells.len() * usize::from(plan.run.repeat)).unwrap_or(i64::MAX);
    let duration_ns = i64::try_from(plan.run.duration.0).unwrap_or(i64::MAX);
    Manifest {
        schema: SCHEMA_VERSION,
        run: id.to_owned(),
        name: plan.name.clone(),
        tag: plan.tag.clone(),
        tool: tool(),
        command: None,
        target: Some(target(plan, cells.len())),
        plan_sha256: part::digest(text),
        seed: plan.seed,
        status: RunStatus::Running,
        started_ns: part.started_ns,
        ended_ns: None,
        planned_ns: DurationNs(duration_ns.saturating_mul(trials)),
        missing: Vec::new(),
        broken: Vec::new(),
        hosts: vec![part.host.clone()],
        cells: cells
            .iter()
            .map(|cell| Cell {
                name: cell.name.clone(),
                factors: cell.factors.clone(),
            })
            .collect(),
        left_out: Vec::new(),
        parts: vec![part],
        trials: Vec::new(),
        processes: Vec::new(),
        counts: Counts::default(),
        merged: None,
    }
}
