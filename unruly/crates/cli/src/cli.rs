//! The verbs.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{FromArgMatches as _, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use unruly_agent::doctor;
use unruly_plan::{DurationNs, Plan, Secret, ServiceFile, Url};
use unruly_program::{EXIT_ERROR, NOTICES, ending, parse, printable, python};
use unruly_runner::{RunOptions, idle_host, send_runs, serve_host, services, target};

use crate::check::{CheckArguments, check};
use crate::concealed::conceal;
use crate::drive::{DriveArguments, in_flags};
use crate::manifests::{Manifest, hosts};
use crate::run::{RunArguments, run};
use crate::self_check::self_check;
use crate::standing::{
    CollectArguments, StandingArguments, TurnArguments, collect, one_turn, standing,
};
use crate::targets::targets;
use crate::watch::{CaptureArguments, WatchArguments, capture, watch};
use crate::{help, service_parameters, shipped};

/// A check found something: a host unfit to measure, a limit broken, a difference.
pub(crate) const EXIT_FINDING: u8 = 1;

#[derive(Debug, Parser)]
#[command(
    name = "unruly",
    version,
    subcommand_value_name = "VERB",
    about = "A load generator and analyser for tail latency.",
    after_help = ending("0 fine, 1 a finding, 2 an error (unruly help VERB says which)", &[
        ("unruly drive redis://127.0.0.1:6379 -c 16 -r 2000 -d 60s", "Measure a Redis server"),
        ("unruly run demo", "Run a shipped plan and print its verdict"),
    ])
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

/// The verbs that need no Python; `python_verbs` has the others.
#[derive(Debug, Subcommand)]
enum Verb {
    /// Run a plan (a file or a shipped plan) and print its verdict
    #[command(after_help = ending("0 fine, 1 more than 1 % of the requests failed, a target (--slo) was missed or the run is spoiled, 2 an error", &[
        ("unruly run demo", "Run a shipped plan"),
        ("unruly run mine.toml -d 5min --set drive.rate=2k/s", "Run a plan file with other values"),
        ("unruly run mine.toml --resume runs/mine", "Go on with a run that was interrupted"),
    ]))]
    Run(Box<RunArguments>),
    /// Measure a store, HTTP server or program without a plan file
    #[command(after_help = ending("0 fine, 1 more than 1 % of the requests failed, a target (--slo) was missed or the run is spoiled, 2 an error", &[
        ("unruly drive redis://127.0.0.1:6379 -c 16 -r 2000 -d 60s", "Send 2,000 requests a second"),
        ("unruly drive service:redis -c 4", "Start a Redis server, measure it and stop it"),
    ]))]
    Drive(Box<DriveArguments>),
    /// Let one user go through a scenario and print each exchange
    #[command(after_help = ending("0 every reply was as it must be, 1 one was not, 2 an error", &[
        ("unruly check shop.toml http://127.0.0.1:8080", "Ask a server as one user does"),
        ("unruly check session.har --print > shop.toml", "Make a scenario of what a browser recorded"),
    ]))]
    Check(Box<CheckArguments>),
    /// Measure services from the packets of their clients
    #[command(after_help = ending("0 fine, 1 more than 1 % of the requests failed, 2 an error", &[
        ("sudo unruly watch tcp://127.0.0.1:443", "Watch a server until Ctrl-C"),
        ("sudo unruly watch web=tcp://*:443 db=tcp://*:5432", "Watch two services"),
    ]))]
    Watch(WatchArguments),
    /// Measure for months: one run after another, until it is stopped
    #[command(after_help = ending("0 it was stopped, 2 an error", &[
        ("unruly standing plan.toml -o /var/lib/unruly", "A run each hour, rows for 30 days"),
        ("unruly standing plan.toml --room 2GB --tag cluster-a", "In two gigabytes at most"),
    ]))]
    Standing(Box<StandingArguments>),
    /// Fetch the new runs of standing agents from their hosts
    #[command(after_help = ending("0 done, 2 a host failed", &[
        ("unruly collect ssh:node-1,ssh:node-2 -o fleet --since 7d", "The runs of a week"),
    ]))]
    Collect(CollectArguments),
    /// Check that this host is quiet enough to measure on
    #[command(after_help = ending("0 the host is fit, 1 it is not, 2 an error", &[
        ("unruly doctor", "Check for 10 seconds"),
        ("unruly doctor -d 60 --json", "Check for a minute and print JSON"),
    ]))]
    Doctor {
        /// Time to observe the host, 1s to 1h
        #[arg(short, long, value_name = "TIME", default_value = "10s")]
        duration: DurationNs,
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Check that this installation is complete
    #[command(name = "self", after_help = ending("0 everything works, 1 a part is missing, 2 an error", &[
        ("unruly self check", "Try the program, the kernel, a short run and the analysis"),
    ]))]
    Installation {
        /// What to do
        action: InstallationAction,
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Repair a run that was cut off (other verbs do so by themselves)
    #[command(after_help = ending("0 done, 2 an error", &[
        ("unruly recover runs/demo", "Repair the run in runs/demo"),
    ]))]
    Recover {
        /// Run directory
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        directory: PathBuf,
    },
    /// List the shipped plans, or print one
    #[command(after_help = ending("0 done, 2 an error", &[
        ("unruly plans", "List the shipped plans"),
        ("unruly plans demo > mine.toml", "Start a plan of your own from a shipped one"),
    ]))]
    Plans {
        /// Shipped plan to print
        name: Option<String>,
    },
    /// List what `unruly drive` can measure, or explain one target
    #[command(after_help = ending("0 done, 2 an error", &[
        ("unruly targets", "List the targets"),
        ("unruly targets openai", "Print the URL of a target and its options"),
    ]))]
    Targets {
        /// Target to explain
        name: Option<String>,
    },
    /// List, explain or print the services of runs, or install one
    #[command(after_help = ending("0 done, 2 an error", &[
        ("unruly services redis", "Print the file of a shipped service"),
        ("unruly services show redis ./mine.toml", "Print the parameters of two services"),
        ("unruly services show etcd --json", "Print them as JSON"),
        ("unruly services install redis etcd", "Fetch the packages of two services now"),
    ]))]
    Services {
        /// Shipped service to print, or the word show or install
        name: Option<String>,
        /// Services to show or install, after the word
        #[arg(value_name = "SERVICE")]
        more: Vec<String>,
        /// Print JSON instead of text, after the word show
        #[arg(long)]
        json: bool,
    },
    /// Print what starts load generators or a standing agent
    #[command(after_help = ending("0 done, 2 an error", &[
        ("unruly hosts kubernetes -n 7 | kubectl apply -f -", "Start seven Pods"),
        ("unruly hosts slurm -n 4 > measure.sh", "Write a batch script for four nodes"),
        ("unruly hosts systemd > unruly.service", "Write a unit with a standing agent"),
    ]))]
    Hosts {
        /// Pods of Kubernetes, a Pod on each of its nodes, a batch script, or a unit of systemd
        kind: Manifest,
        /// Number of Pods or nodes (default: 1)
        #[arg(short = 'n', long)]
        count: Option<u16>,
        /// Image of the Pods (default: localhost/unruly and this version)
        #[arg(long)]
        image: Option<String>,
    },
    /// Print the completion script of a shell
    #[command(after_help = ending("0 done, 2 an error", &[
        ("source <(unruly completions bash)", "Complete in this shell"),
    ]))]
    Completions {
        /// Shell that reads the script
        shell: Shell,
    },
    /// Write the man pages
    #[command(after_help = ending("0 done, 2 an error", &[
        ("unruly man ~/.local/share/man/man1", "Install the man pages for yourself"),
    ]))]
    Man {
        /// Directory to write to; it is made when it does not exist
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        directory: PathBuf,
    },
    /// Print the licences of the libraries in this program
    #[command(after_help = ending("0 done, 2 an error", &[
        ("unruly notices", "Print whose code this program contains"),
    ]))]
    Notices,
    /// Serve a store's client library on standard input and output (started by `drive`)
    #[command(hide = true)]
    Driver {
        /// The store
        url: Url,
    },
    /// Read a capture of packets into a run that is being made (started by `import`)
    #[command(hide = true)]
    Capture(CaptureArguments),
    /// Run a program whose disk can be made to stall (started by `run`)
    #[command(hide = true)]
    Held {
        /// The program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Run one process of a run that another host has started (started by its `run`)
    #[command(hide = true)]
    Host {
        /// Only wait for a signal, as the first process of a container
        #[arg(long)]
        idle: bool,
        /// Send the runs of a standing agent
        #[arg(long, conflicts_with = "idle")]
        send: bool,
    },
    /// Measure one run of a standing agent (started by `standing`)
    #[command(hide = true)]
    Turn(TurnArguments),
    /// Run one process of a run (started by `run`)
    #[command(hide = true)]
    Agent {
        /// The job file
        #[arg(long)]
        job: PathBuf,
        /// The run directory
        #[arg(long)]
        out: PathBuf,
    },
}

/// What `unruly self` can do.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum InstallationAction {
    Check,
}

/// Parses, calls, prints; never panics on input.
#[must_use]
pub fn main() -> ExitCode {
    if let Err(error) = conceal() {
        say_error(&format!("{error:#}"));
        return ExitCode::from(EXIT_ERROR);
    }
    let matches = match parse(help::command::<Arguments>()) {
        Ok(matches) => matches,
        Err(code) => return ExitCode::from(code),
    };
    let done = match matches.subcommand_name() {
        Some(verb) if !Verb::has_subcommand(verb) => {
            let words: Vec<OsString> = std::env::args_os().skip(2).collect();
            analyse(verb, &words)
        }
        _ => match Arguments::from_arg_matches(&matches) {
            Ok(arguments) => call(arguments.verb),
            Err(error) => error.exit(),
        },
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            say_error(&format!("{error:#}"));
            ExitCode::from(EXIT_ERROR)
        }
    }
}

fn call(verb: Verb) -> Result<u8> {
    match verb {
        Verb::Run(arguments) => run(*arguments),
        Verb::Drive(arguments) => {
            let (plan, options) = arguments.plan()?;
            if !options.quiet {
                let _ = writeln!(std::io::stderr().lock(), "{}", target(&plan, 1));
            }
            measure(&plan, &options).map_err(in_flags)
        }
        Verb::Check(arguments) => check(*arguments).map_err(in_flags),
        Verb::Watch(arguments) => watch(arguments),
        Verb::Capture(arguments) => capture(&arguments),
        Verb::Doctor { duration, json } => examine(duration, json),
        Verb::Installation {
            action: InstallationAction::Check,
            json,
        } => self_check(json),
        Verb::Recover { directory } => recover(&directory),
        Verb::Plans { name } => plans(name.as_deref()),
        Verb::Targets { name } => targets(name.as_deref()),
        Verb::Services { name, more, json } => services(name.as_deref(), &more, json),
        Verb::Hosts { kind, count, image } => hosts(kind, count, image.as_deref()),
        Verb::Completions { shell } => {
            std::io::stdout().write_all(&help::completions::<Arguments>(shell))?;
            Ok(0)
        }
        Verb::Man { directory } => help::man_pages::<Arguments>(&directory).map(|()| 0),
        Verb::Notices => say(NOTICES.trim_end()).map(|()| 0),
        Verb::Driver { url } => serve_driver(&url),
        Verb::Held { words } => services::held::run(&words).map(|never| match never {}),
        Verb::Host { idle: true, .. } => idle_host().map(|()| 0),
        Verb::Host { send: true, .. } => send_runs().map(|()| 0),
        Verb::Host { .. } => serve_host(),
        Verb::Standing(arguments) => standing(*arguments),
        Verb::Turn(arguments) => one_turn(arguments),
        Verb::Collect(arguments) => collect(&arguments),
        Verb::Agent { job, out } => unruly_agent::run(&job, &out).map(|()| 0),
    }
}

fn serve_driver(url: &Url) -> Result<u8> {
    let password = std::env::var(unruly_load::PASSWORD).ok().map(Secret::new);
    let (input, output) = (std::io::stdin().lock(), std::io::stdout());
    unruly_drivers::serve(url, password.as_ref(), input, output).map(|()| 0)
}

/// Runs a plan, and ends with its verdict.
pub(crate) fn measure(plan: &Plan, options: &RunOptions) -> Result<u8> {
    let directory = unruly_runner::run(plan, options)?;
    if options.quiet {
        say(&directory.display().to_string())?;
        // Nobody looks at what it measured, but what the runner knows itself is not kept quiet.
        let manifest = unruly_trace::Manifest::read(&directory)?;
        manifest.broken.iter().for_each(|told| say_error(told));
        return Ok(if manifest.broken.is_empty() {
            0
        } else {
            EXIT_FINDING
        });
    }
    conclude(&directory)
}

/// Shows the verdict of a fresh run and writes its report. Returns the exit code. On a host without
/// the Python side the run is whole, but nobody knows whether it is fine, and that is an error.
pub(crate) fn conclude(directory: &Path) -> Result<u8> {
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

fn examine(duration: DurationNs, json: bool) -> Result<u8> {
    let spin = Duration::from_nanos(duration.0);
    anyhow::ensure!(
        (Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&spin),
        "--duration: {duration} is not between 1s and 1h; hint: --duration 10s"
    );
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
    say(shipped::plan(name)?)?;
    Ok(0)
}

fn services(name: Option<&str>, more: &[String], json: bool) -> Result<u8> {
    anyhow::ensure!(
        !json || name == Some("show"),
        "--json: only show prints JSON; hint: unruly services show redis --json"
    );
    match name {
        None => {
            for (name, _) in services::shipped() {
                say(&format!("{name:<24} {}", services::service(name)?.about))?;
            }
            say("\nmiddleware systems, each an echo (unruly drive system:NAME):")?;
            for name in services::OWN_SYSTEMS {
                say(&format!("{name:<24} Our own echo server, over {name}"))?;
            }
            for (name, _) in services::systems() {
                say(&format!("{name:<24} {}", services::service(name)?.about))?;
            }
        }
        Some("show") => {
            anyhow::ensure!(
                !more.is_empty(),
                "services show: no service is named; hint: unruly services show redis"
            );
            let files = more
                .iter()
                .map(|name| Ok((name.as_str(), services::service(name)?)));
            let files: Vec<(&str, ServiceFile)> = files.collect::<Result<_>>()?;
            if json {
                say(&service_parameters::json(&files)?)?;
            } else {
                for (name, file) in &files {
                    say(&service_parameters::table(name, file))?;
                }
            }
        }
        Some("install") => {
            for name in more {
                let service = services::service(name)?.with(&BTreeMap::new())?;
                services::install(name, &service, &say_error)?;
                say(&format!("{name}: all is there"))?;
            }
        }
        Some(name) => say(services::shipped_text(name)?)?,
    }
    Ok(0)
}

/// Prints a line on standard output. A reader that has gone (`| head`) is no error.
pub(crate) fn say(text: &str) -> Result<()> {
    match writeln!(std::io::stdout().lock(), "{}", printable(text)) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

pub(crate) fn say_error(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "unruly: {}", printable(text));
}
