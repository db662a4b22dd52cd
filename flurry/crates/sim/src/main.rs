//! `flurry-sim`: runs seeds, replays one, finds planted bugs.

use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use flurry_core::bugs::{Bug, plant};
use flurry_core::id::{DurationNs, MonoNs};
use flurry_sim::model::{BUGS, Explored, Found, PLANS, Plan, explore};
use flurry_sim::run::{Summary, Violation, run, run_traced};

#[derive(Parser)]
#[command(about = "Whole Flurry clusters on virtual time, with everything going wrong from a seed")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a range of seeds, and every tenth of them twice.
    Seeds {
        /// First seed.
        #[arg(long, default_value_t = 1)]
        from: u64,
        /// Number of seeds.
        #[arg(short = 'n', long, default_value_t = 2_000)]
        count: u64,
        /// Operations of each seed.
        #[arg(long, default_value_t = 5_000)]
        operations: u64,
        /// Threads.
        #[arg(short, long, default_value_t = 2)]
        threads: u64,
        /// Name every seed that fails, instead of ending at the first.
        #[arg(long)]
        all: bool,
        /// Start no further seed after this time, in seconds.
        #[arg(long)]
        within: Option<u64>,
    },
    /// Run one seed and print its summary.
    Replay {
        /// Seed.
        seed: u64,
        /// Operations.
        #[arg(long, default_value_t = 5_000)]
        operations: u64,
        /// Bug to plant.
        #[arg(long)]
        bug: Option<String>,
        /// Write every message to standard error, with its virtual microsecond.
        #[arg(long)]
        trace: bool,
    },
    /// Explore small worlds to their end, and find planted bugs in them.
    Model {
        /// Explore only this world.
        #[arg(long)]
        plan: Option<String>,
        /// Bug to plant; prints the path that shows it.
        #[arg(long)]
        bug: Option<String>,
        /// Threads.
        #[arg(short, long, default_value_t = 2)]
        threads: usize,
    },
    /// Find each planted bug, and print the seed that found it.
    Bugs {
        /// Seeds to try for each.
        #[arg(long, default_value_t = 500)]
        seeds: u64,
        /// Operations of each seed.
        #[arg(long, default_value_t = 2_000)]
        operations: u64,
        /// Look for this bug only.
        #[arg(long)]
        bug: Option<String>,
        /// File with the seeds that found each bug before, as this command prints them: runs only
        /// those.
        #[arg(long)]
        recorded: Option<std::path::PathBuf>,
    },
}

fn main() -> ExitCode {
    match execute(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("flurry-sim: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[allow(clippy::print_stdout, reason = "this is what the command is for")]
fn execute(command: Command) -> Result<()> {
    match command {
        Command::Seeds {
            from,
            count,
            operations,
            threads,
            all,
            within,
        } => {
            let last = within.map(|it| Instant::now() + Duration::from_secs(it));
            seeds(
                from..from.saturating_add(count),
                operations,
                threads,
                all,
                last,
            )
        }
        Command::Replay {
            seed,
            operations,
            bug,
            trace,
        } => {
            plant(bug.as_deref().map(named).transpose()?);
            let summary = quietly(|| run_traced(seed, operations, trace))
                .map_err(|it| described(&it, operations))?;
            println!("{summary:#?}");
            Ok(())
        }
        Command::Model { plan, bug, threads } => model(plan.as_deref(), bug.as_deref(), threads),
        Command::Bugs {
            seeds,
            operations,
            bug,
            recorded,
        } => match recorded {
            Some(path) => replay_recorded(&path, operations),
            None => find_bugs(seeds, operations, bug.as_deref()),
        },
    }
}

fn named(name: &str) -> Result<Bug> {
    match Bug::ALL.iter().find(|bug| bug.name() == name) {
        Some(bug) => Ok(*bug),
        None => bail!(
            "bug: there is no {name}; wanted one of {}",
            Bug::ALL
                .iter()
                .map(|bug| bug.name())
                .collect::<Vec<_>>()
                .join(", ")
        ),
    }
}

fn described(violation: &Violation, operations: u64) -> anyhow::Error {
    anyhow::anyhow!(
        "seed {} after {:.3} s: {}\nreplay it with: make sim SEED={} OPERATIONS={operations}",
        violation.seed,
        Duration::from_nanos(violation.at.0).as_secs_f64(),
        violation.what,
        violation.seed,
    )
}

/// Turns a failed assertion of the core into a finding like any other.
fn quietly(
    act: impl FnOnce() -> Result<Summary, Box<Violation>> + std::panic::UnwindSafe,
) -> Result<Summary, Box<Violation>> {
    std::panic::catch_unwind(act).unwrap_or_else(|panic| {
        let what = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
            .unwrap_or_default();
        Err(Box::new(Violation {
            seed: 0,
            at: MonoNs(0),
            what: format!("an assertion failed: {what}"),
        }))
    })
}

/// Sums over seeds.
#[derive(Debug, Default)]
struct Totals {
    answered: u64,
    checked: u64,
    delivered: u64,
    virtual_time: DurationNs,
}

impl Totals {
    fn add(&mut self, other: &Self) {
        self.answered += other.answered;
        self.checked += other.checked;
        self.delivered += other.delivered;
        self.virtual_time.0 += other.virtual_time.0;
    }

    fn virtual_hours(&self) -> u64 {
        self.virtual_time.0 / 3_600_000_000_000
    }
}

impl From<Summary> for Totals {
    fn from(it: Summary) -> Self {
        Self {
            answered: it.answered,
            checked: it.checked,
            delivered: it.delivered,
            virtual_time: it.virtual_time,
        }
    }
}

#[allow(clippy::print_stdout, reason = "this is what the command is for")]
fn seeds(
    range: Range<u64>,
    operations: u64,
    threads: u64,
    all: bool,
    last_start: Option<Instant>,
) -> Result<()> {
    let from = range.start;
    let next = AtomicU64::new(from);
    let is_over =
        |seed| !range.contains(&seed) || last_start.is_some_and(|last| Instant::now() >= last);
    let stop = AtomicBool::new(false);
    let (count, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let started = Instant::now();
    let totals: Vec<Result<Totals>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1))
            .map(|_| {
                scope.spawn(|| {
                    let mut totals = Totals::default();
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if is_over(seed) || stop.load(Ordering::Relaxed) {
                            return Ok(totals);
                        }
                        count.fetch_add(1, Ordering::Relaxed);
                        let outcome = one(seed, operations);
                        match outcome {
                            Ok(summary) => totals.add(&summary.into()),
                            Err(error) if all => {
                                println!("{error:#}");
                                failed.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(error) => {
                                stop.store(true, Ordering::Relaxed);
                                return Err(error);
                            }
                        }
                    }
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|_| bail!("a thread panicked")))
            .collect()
    });
    let mut sums = Totals::default();
    for total in totals {
        sums.add(&total?);
    }
    let (count, failed) = (count.into_inner(), failed.into_inner());
    if failed > 0 {
        bail!("{failed} of {count} seeds failed");
    }
    println!(
        "{count} seeds from {from}: {} operations answered, {} answers checked, {} messages in {} hours of virtual time, every tenth seed twice with the same trace; {:.0} s",
        sums.answered,
        sums.checked,
        sums.delivered,
        sums.virtual_hours(),
        started.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Runs a seed, and every tenth twice: its trace must be the same to the last message.
fn one(seed: u64, operations: u64) -> Result<Summary> {
    let again = |mut violation: Box<Violation>| {
        violation.seed = seed;
        described(&violation, operations)
    };
    let summary = quietly(|| run(seed, operations)).map_err(again)?;
    if seed.is_multiple_of(10) {
        let repeated = quietly(|| run(seed, operations)).map_err(again)?;
        if repeated.hash != summary.hash {
            bail!(
                "seed {seed}: the same seed gave the traces {:016x} and {:016x}\nreplay it with: make sim SEED={seed}",
                summary.hash,
                repeated.hash
            );
        }
    }
    Ok(summary)
}

#[allow(clippy::print_stdout, reason = "this is what the command is for")]
fn find_bugs(seeds: u64, operations: u64, only: Option<&str>) -> Result<()> {
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for bug in Bug::ALL {
        if only.is_some_and(|name| name != bug.name()) {
            continue;
        }
        plant(Some(*bug));
        let found = (1..=seeds).find_map(|seed| {
            quietly(|| run(seed, operations))
                .err()
                .map(|violation| (seed, violation.what))
        });
        plant(None);
        match found {
            Some((seed, what)) => {
                if let Err(violation) = quietly(|| run(seed, operations)) {
                    bail!("seed {seed} fails without a bug: {}", violation.what);
                }
                let line = what.lines().next().unwrap_or_default();
                let short: String = line.chars().take(100).collect();
                println!("{}\t{seed}\t{short}", bug.name());
            }
            None => missed.push(bug.name()),
        }
    }
    if !missed.is_empty() {
        bail!("not found within {seeds} seeds: {}", missed.join(", "));
    }
    Ok(())
}

/// Checks that every recorded seed still finds its bug, and is clean without it.
#[allow(clippy::print_stdout, reason = "this is what the command is for")]
fn replay_recorded(path: &std::path::Path, operations: u64) -> Result<()> {
    let text = std::fs::read_to_string(path)?;
    std::panic::set_hook(Box::new(|_| {}));
    let mut count = 0;
    for bug in Bug::ALL {
        let Some(line) = text
            .lines()
            .find(|line| line.split('\t').next() == Some(bug.name()))
        else {
            bail!(
                "{}: {} has no recorded seed; hint: flurry-sim bugs --bug {0}",
                bug.name(),
                path.display()
            );
        };
        let seed: u64 = line.split('\t').nth(1).unwrap_or_default().parse()?;
        plant(Some(*bug));
        if quietly(|| run(seed, operations)).is_ok() {
            bail!(
                "{}: seed {seed} does not find it any more; hint: flurry-sim bugs --bug {0}",
                bug.name()
            );
        }
        plant(None);
        if let Err(violation) = quietly(|| run(seed, operations)) {
            bail!("seed {seed} fails without a bug: {}", violation.what);
        }
        count += 1;
    }
    println!("{count} planted bugs, each found by its seed, which is clean without it");
    Ok(())
}

#[allow(clippy::print_stdout, reason = "this is what the command is for")]
fn model(plan: Option<&str>, bug: Option<&str>, threads: usize) -> Result<()> {
    if let Some(bug) = bug.map(named).transpose()? {
        let known = BUGS.iter().find(|(known, _)| *known == bug);
        let world = plan.or_else(|| known.map(|(_, world)| *world));
        let plan = world.map_or(Ok(PLANS[0]), plan_named)?;
        let found = shown(bug, plan)?;
        println!("{}: {}", bug.name(), one_line(&found));
        println!("{}", found.path.join("\n"));
        return Ok(());
    }
    for known in PLANS {
        if plan.is_none_or(|name| name == known.name) {
            explored(*known, threads)?;
        }
    }
    if let Some(name) = plan {
        return plan_named(name).map(|_| ());
    }
    for (bug, world) in BUGS {
        let found = shown(*bug, plan_named(world)?)?;
        println!("{}: {}", bug.name(), one_line(&found));
    }
    Ok(())
}

fn plan_named(name: &str) -> Result<Plan> {
    match PLANS.iter().find(|plan| plan.name == name) {
        Some(plan) => Ok(*plan),
        None => bail!(
            "plan: there is no {name}; wanted one of {}",
            PLANS
                .iter()
                .map(|plan| plan.name)
                .collect::<Vec<_>>()
                .join(", ")
        ),
    }
}

#[allow(clippy::print_stdout, reason = "this is what the command is for")]
fn explored(plan: Plan, threads: usize) -> Result<()> {
    let started = Instant::now();
    let seen = match explore(plan, None, threads) {
        Ok(seen) => seen,
        Err(found) if found.path.is_empty() => bail!(
            "{}: never met in {} states: {}; wanted it met, else the world says nothing of it",
            plan.name,
            found.explored.states,
            found.property
        ),
        Err(found) => bail!(
            "{}: does not hold: {} ({} states seen)\n{}\nfind it again with: flurry-sim model --plan {0}",
            plan.name,
            found.property,
            found.explored.states,
            found.path.join("\n")
        ),
    };
    let Explored {
        states,
        transitions,
        steps,
        depth,
        ref met,
    } = seen;
    println!(
        "{}: complete, {states} states, {transitions} transitions, {depth} deep, {steps} steps of the parts; {:.1} s",
        plan.name,
        started.elapsed().as_secs_f64()
    );
    for (sight, count) in met.iter().filter(|(_, count)| *count > 0) {
        println!("    {count:8} x {}", sight.name());
    }
    Ok(())
}

/// Returns the path that shows a planted bug in a world. With one thread the path is the shortest,
/// and always the same.
fn shown(bug: Bug, plan: Plan) -> Result<Box<Found>> {
    let hook = std::panic::take_hook();
    // The planted bug may make an assertion of the core fail: print no panic message for it.
    std::panic::set_hook(Box::new(|_| {}));
    let found = explore(plan, Some(bug), 1);
    std::panic::set_hook(hook);
    match found {
        Err(found) if !found.path.is_empty() => Ok(found),
        _ => bail!(
            "{}: nothing in {} shows it; wanted a path on which something does not hold",
            bug.name(),
            plan.name
        ),
    }
}

fn one_line(found: &Found) -> String {
    format!(
        "after {} states and {} events: {}",
        found.explored.states,
        found.path.len(),
        found.property
    )
}
