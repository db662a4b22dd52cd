//! The verbs.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use unruly_agent::doctor;
use unruly_plan::{Load, Plan, Url};

use crate::drive::DriveArguments;
use crate::runner::{self, RunOptions};
use crate::target::target;
use crate::{python, services, shipped};

/// A check found something: a host unfit to measure, a limit broken, a difference.
const EXIT_FINDING: u8 = 1;
const EXIT_ERROR: u8 = 2;

#[derive(Debug, Parser)]
#[command(
    name = "unruly",
    version,
    about = "How predictable is your distributed system? Measures latency, explains the slow \
             requests, says what can be promised with confidence.",
    after_help = "Exit codes: 0 fine, 1 a finding, 2 an error."
)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Measure: run a plan (a file, or the name of a shipped one), end with its verdict
    Run {
        /// The plan
        plan: PathBuf,
        /// The run directory (default: runs/<name>-<UTC>)
        #[arg(short, long)]
        output: Option<PathBuf>,
        /// Measured time, instead of the plan's
        #[arg(short, long)]
        duration: Option<String>,
        /// Time before it that is not measured, instead of the plan's
        #[arg(short, long)]
        warmup: Option<String>,
        /// Seed, instead of the plan's
        #[arg(long)]
        seed: Option<u64>,
        /// Name of this environment, instead of the plan's
        #[arg(long)]
        tag: Option<String>,
        /// Another value for a key of the plan, also one that its matrix varies: drive.rate=100/s, store=redis
        #[arg(long = "set", value_name = "KEY=VALUE")]
        set: Vec<String>,
        /// No progress, no verdict: only the run's path
        #[arg(short, long)]
        quiet: bool,
    },
    /// Measure what is already running, without a plan file: a store, an HTTP server, a program
    Drive(Box<DriveArguments>),
    /// What can be promised, how unruly it is, why: one screen
    Verdict {
        /// A run directory, and options of the verb
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        arguments: Vec<OsString>,
    },
    /// The same with pictures: one HTML file that needs no network
    Report {
        /// Run directories, and options of the verb
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        arguments: Vec<OsString>,
    },
    /// Hold a run to a file of limits; exit code 1 when one is broken with confidence. For CI
    Gate {
        /// A run directory, a TOML file of limits, and options of the verb
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        arguments: Vec<OsString>,
    },
    /// Is B's tail different from A's, with confidence; exit code 1 when it is
    Compare {
        /// Runs or directories of runs (`name=DIR`), and options of the verb
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        arguments: Vec<OsString>,
    },
    /// Another tool's output becomes a run; the format is recognised
    Import {
        /// Files, `-o DIR`, and options of the verb
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        arguments: Vec<OsString>,
    },
    /// A run as .hlog, .hgrm or CSV, for other viewers
    Export {
        /// A run directory, `-o FILE`, and options of the verb
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        arguments: Vec<OsString>,
    },
    /// Timeouts, replicas, profit, hedges: what to choose, as functions of the timeout or the delay
    Advise {
        /// The run, and options of the verb
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        arguments: Vec<OsString>,
    },
    /// Findings of the five papers, judged by runs
    Papers {
        /// Runs to judge them by (none: the verdicts that are kept), and options of the verb
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Is this host fit to measure? Exit code 1 when not
    Doctor {
        /// How long to listen for noise, in seconds
        #[arg(short, long, default_value_t = 10.0)]
        duration: f64,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a run whole that was cut off; every other verb does this by itself
    Recover {
        /// The run directory
        directory: PathBuf,
    },
    /// List the plans that come with the program, or show one
    Plans {
        /// The plan to show
        name: Option<String>,
    },
    /// List the services that a run can start for itself, show one, or fetch what one needs
    Services {
        /// The service to show, or `install`
        name: Option<String>,
        /// After `install`: the services to fetch what they need for
        more: Vec<String>,
    },
    /// Asks a store by its client library, on standard input and output; started by `drive`
    #[command(hide = true)]
    Driver {
        /// The store
        url: Url,
    },
    /// A process whose disk can be made to stall; started by `run`
    #[command(hide = true)]
    Held {
        /// The program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// One process of a run; started by `run`
    Agent {
        /// The job file
        #[arg(long)]
        job: PathBuf,
        /// The run directory
        #[arg(long)]
        out: PathBuf,
    },
}

/// Parses, calls, prints; never panics on input.
#[must_use]
pub fn main() -> ExitCode {
    match call(Arguments::parse().verb) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            say_error(&format!("{error:#}"));
            ExitCode::from(EXIT_ERROR)
        }
    }
}

fn call(verb: Verb) -> Result<u8> {
    match verb {
        Verb::Run {
            plan,
            output,
            duration,
            warmup,
            seed,
            tag,
            set,
            quiet,
        } => {
            let changes = Changes {
                duration,
                warmup,
                seed,
                tag,
            };
            let options = RunOptions {
                output,
                quiet,
                password: None,
            };
            measure(&read(&plan, &set, &changes)?, &options)
        }
        Verb::Drive(arguments) => {
            let (plan, options) = arguments.plan()?;
            if !options.quiet {
                let _ = writeln!(std::io::stderr().lock(), "{}", target(&plan));
            }
            measure(&plan, &options)
        }
        Verb::Verdict { arguments } => analyse("verdict", &arguments),
        Verb::Report { arguments } => analyse("report", &arguments),
        Verb::Gate { arguments } => analyse("gate", &arguments),
        Verb::Compare { arguments } => analyse("compare", &arguments),
        Verb::Import { arguments } => analyse("import", &arguments),
        Verb::Export { arguments } => analyse("export", &arguments),
        Verb::Advise { arguments } => analyse("advise", &arguments),
        Verb::Papers { arguments } => analyse("papers", &arguments),
        Verb::Doctor { duration, json } => examine(duration, json),
        Verb::Recover { directory } => recover(&directory),
        Verb::Plans { name } => plans(name.as_deref()),
        Verb::Services { name, more } => services(name.as_deref(), &more),
        Verb::Driver { url } => {
            let password = std::env::var(unruly_load::PASSWORD).ok();
            let (input, output) = (std::io::stdin().lock(), std::io::stdout());
            unruly_drivers::serve(&url, password.as_deref(), input, output).map(|()| 0)
        }
        Verb::Held { words } => services::held::run(&words).map(|never| match never {}),
        Verb::Agent { job, out } => unruly_agent::run(&job, &out).map(|()| 0),
    }
}

/// What the command line says instead of the plan.
struct Changes {
    duration: Option<String>,
    warmup: Option<String>,
    seed: Option<u64>,
    tag: Option<String>,
}

impl Changes {
    fn apply(&self, mut plan: Plan) -> Result<Plan> {
        let parse = |flag: &str, text: &str| {
            text.parse().with_context(|| {
                format!("{flag}: not a duration; wanted a number with its unit; hint: {flag} 60s")
            })
        };
        if let Some(text) = &self.duration {
            plan.run.duration = parse("--duration", text)?;
        }
        if let Some(text) = &self.warmup {
            plan.run.warmup = parse("--warmup", text)?;
        }
        plan.seed = self.seed.unwrap_or(plan.seed);
        if let Some(tag) = &self.tag {
            plan.tag.clone_from(tag);
        }
        // The whole must still be a plan.
        Ok(Plan::parse(
            "the plan with its command-line changes",
            &plan.to_toml(),
        )?)
    }
}

/// A plan, from its file or of those that come with the program.
fn read(path: &Path, set: &[String], changes: &Changes) -> Result<Plan> {
    let place = path.display().to_string();
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => shipped::plan(&place).map(str::to_owned).with_context(|| {
            format!("{place}: cannot be read ({error}); wanted a plan file or the name of a shipped plan; hint: unruly plans")
        })?,
    };
    let mut values = Vec::new();
    for word in set {
        values.push(word.split_once('=').with_context(|| {
            format!("--set: {word:?} has no value; wanted KEY=VALUE; hint: --set drive.rate=100/s")
        })?);
    }
    let plan = match values.as_slice() {
        [] => Plan::parse(&place, &text)?,
        values => Plan::parse_with(&place, &text, values)?,
    };
    let mut plan = changes.apply(plan)?;
    if let (Load::Drive(drive), Some(folder)) = (&mut plan.load, path.parent())
        && let Some(beside) = drive.times.as_ref().map(|times| folder.join(times))
        && beside.is_file()
    {
        drive.times = Some(beside.display().to_string());
    }
    Ok(plan)
}

/// Runs a plan, and ends with its verdict.
fn measure(plan: &Plan, options: &RunOptions) -> Result<u8> {
    let directory = runner::run(plan, options)?;
    if options.quiet {
        say(&directory.display().to_string())?;
        return Ok(0);
    }
    conclude(&directory)
}

/// Shows the verdict of a fresh run and writes its report. Returns the exit code. On a host without
/// the Python side the run is whole, but nobody knows whether it is fine, and that is an error.
fn conclude(directory: &Path) -> Result<u8> {
    let path = directory.display();
    // One analysis for both.
    let shown = python::run_verb("report", &[OsStr::new("--verdict"), directory.as_os_str()]);
    let shown = shown.and_then(|code| match code {
        0 => Ok(0),
        1 => Ok(EXIT_FINDING),
        _ => anyhow::bail!("{path}: no verdict; hint: see above"),
    });
    shown.or_else(|error| {
        say_error(&format!("{error:#}"));
        say(&format!("measured: {path}\nnext: unruly verdict {path}"))?;
        Ok(EXIT_ERROR)
    })
}

fn analyse(verb: &str, arguments: &[OsString]) -> Result<u8> {
    // Every run named here is made whole before it is read.
    for argument in arguments {
        let directory = Path::new(argument);
        if directory.join(unruly_trace::Manifest::FILE).is_file() {
            unruly_trace::recover(directory)?;
        }
    }
    python::become_verb(verb, arguments).map(|()| 0)
}

fn recover(directory: &Path) -> Result<u8> {
    let recovery = unruly_trace::recover(directory)?;
    let path = directory.display();
    if recovery == unruly_trace::Recovery::default() {
        say(&format!("{path}: nothing to recover"))?;
    } else {
        say(&format!(
            "{path}: recovered {} rows from {} files",
            recovery.rows, recovery.spools
        ))?;
    }
    for problem in &recovery.problems {
        say_error(problem);
    }
    Ok(0)
}

fn examine(duration_s: f64, json: bool) -> Result<u8> {
    let spin = Duration::try_from_secs_f64(duration_s)
        .ok()
        .filter(|spin| *spin >= Duration::from_secs(1) && *spin <= Duration::from_secs(3600));
    let spin = spin.with_context(|| {
        format!("--duration: {duration_s} s; wanted 1 to 3600 seconds; hint: --duration 10")
    })?;
    let bar = indicatif::ProgressBar::new(1000).with_style(
        indicatif::ProgressStyle::with_template("listening to this host {wide_bar} {eta}")?,
    );
    let options = doctor::Options { spin };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of 1000"
    )]
    let examination = doctor::examine(&options, &mut |share| {
        bar.set_position((share * 1000.0) as u64);
    });
    bar.finish_and_clear();
    if json {
        say(&serde_json::to_string_pretty(&examination)?)?;
    } else {
        say(&doctor::render(&examination))?;
    }
    Ok(if examination.is_fit() {
        0
    } else {
        EXIT_FINDING
    })
}

fn plans(name: Option<&str>) -> Result<u8> {
    let Some(name) = name else {
        for (name, text) in shipped::PLANS {
            say(&format!("{name:<24} {}", shipped::purpose(text)))?;
        }
        return Ok(0);
    };
    let text = shipped::plan(name).with_context(|| {
        format!("{name}: no such plan; wanted one that unruly plans lists; hint: unruly plans")
    })?;
    say(text)?;
    Ok(0)
}

fn services(name: Option<&str>, more: &[String]) -> Result<u8> {
    match name {
        None => {
            for (name, _) in services::shipped() {
                say(&format!("{name:<24} {}", services::service(name)?.about))?;
            }
        }
        Some("install") => {
            for name in more {
                services::install(name, &services::service(name)?, &say_error)?;
                say(&format!("{name}: all is there"))?;
            }
        }
        Some(name) => {
            let shipped = services::shipped().find(|(known, _)| *known == name);
            let (_, text) = shipped.with_context(|| {
                format!("{name}: no such service; wanted one that unruly services lists; hint: unruly services")
            })?;
            say(text)?;
        }
    }
    Ok(0)
}

/// A line for whoever reads our output; a reader that is gone (`| head`) is no error.
fn say(text: &str) -> Result<()> {
    match writeln!(std::io::stdout().lock(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

fn say_error(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "unruly: {text}");
}
