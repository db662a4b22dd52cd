//! `unruly standing` and `unruly collect`: measurements for months, and their runs from all hosts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Args, ValueHint};
use unruly_plan::{Bytes, DurationNs};
use unruly_program::{EXIT_ERROR, password_of};
use unruly_runner::{StandingOptions, collect as collect_from, stand, turn};
use unruly_trace::{ClockPair, ColumnNs};

use crate::cli::{say, say_error};
use crate::hosts::hosts_of;
use crate::run::{Changes, read};

/// Where the unit of systemd has its runs.
const USUAL_PLACE: &str = "/var/lib/unruly";

/// The flags of a standing agent.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct StandingArguments {
    /// Plan file, or the name of a shipped plan; with [drive], without [matrix]
    plan: PathBuf,
    /// Directory of its runs, in its folder runs
    #[arg(short, long, value_name = "DIR", default_value = "standing", value_hint = ValueHint::DirPath)]
    output: PathBuf,
    /// Length of a run; each ends at a multiple of it, UTC
    #[arg(long, value_name = "TIME", default_value = "1h")]
    every: DurationNs,
    /// Time to keep rows; those of older runs become histograms
    #[arg(long, value_name = "TIME", default_value = "30d")]
    keep: DurationNs,
    /// Most bytes of all runs but the one that goes on; the earliest ones become histograms first
    #[arg(long, value_name = "SIZE", default_value = "10GB")]
    room: Bytes,
    /// Name of the measured environment, instead of the plan's
    #[arg(long)]
    tag: Option<String>,
    /// Value of a key of the plan, such as drive.rate=100/s; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Serve metrics for Prometheus, such as 127.0.0.1:9400
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
    /// File that holds the password or token of the server (default: UNRULY_PASSWORD has it)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    password_file: Option<PathBuf>,
    /// Write to a store that holds other data
    #[arg(short, long)]
    yes: bool,
}

/// The flags of one run of a standing agent.
#[derive(Debug, Args)]
pub(crate) struct TurnArguments {
    /// The plan of the run
    plan: PathBuf,
    /// The run directory
    #[arg(long)]
    out: PathBuf,
    /// Where metrics are served
    #[arg(long)]
    metrics: Option<String>,
    /// Write to a store that holds other data
    #[arg(long)]
    yes: bool,
}

/// The flags of the collection of runs.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct CollectArguments {
    /// Hosts with a standing agent: ssh:HOST, kubectl:POD or "command:WORDS"; several stand between
    /// commas
    #[arg(required = true, value_name = "HOSTS")]
    hosts: Vec<String>,
    /// Directory of the agents on their hosts
    #[arg(long, value_name = "DIR", default_value = USUAL_PLACE)]
    dir: PathBuf,
    /// Directory to write to: a folder for each host, with a folder for each run
    #[arg(short, long, value_name = "DIR", default_value = "collected", value_hint = ValueHint::DirPath)]
    output: PathBuf,
    /// Only runs that began in this time (default: all)
    #[arg(long, value_name = "TIME")]
    since: Option<DurationNs>,
    /// Program on the hosts (default: unruly)
    #[arg(long, value_name = "PATH")]
    program: Option<String>,
}

/// Measures again and again until a signal comes.
pub(crate) fn standing(arguments: StandingArguments) -> Result<u8> {
    let changes = Changes::of_tag(arguments.tag);
    let plan = read(&arguments.plan, &arguments.set, &changes)?;
    let password = arguments.password_file.as_deref();
    let options = StandingOptions {
        directory: arguments.output,
        every: Duration::from_nanos(arguments.every.0),
        keep: Duration::from_nanos(arguments.keep.0),
        room_bytes: arguments.room.0,
        metrics: arguments.metrics,
        password: password.map(password_of).transpose()?,
        yes: arguments.yes,
    };
    // A reader that has gone is no reason to stop measuring.
    let say = |told: &str| drop(say(told));
    stand(&plan, &options, &say).map(|()| 0)
}

/// Measures one run of a standing agent.
pub(crate) fn one_turn(arguments: TurnArguments) -> Result<u8> {
    let TurnArguments {
        plan,
        out,
        metrics,
        yes,
    } = arguments;
    turn(&plan, out, metrics, yes).map(|()| 0)
}

/// Fetches runs from all hosts. One that fails does not keep the others.
pub(crate) fn collect(arguments: &CollectArguments) -> Result<u8> {
    let hosts = hosts_of(
        "HOSTS",
        &arguments.hosts,
        arguments.program.as_deref(),
        false,
    )?;
    ensure!(
        arguments.dir.is_absolute(),
        "--dir: {} is not a whole path; wanted one that begins with /; hint: --dir {USUAL_PLACE}",
        arguments.dir.display()
    );
    if let Some(host) = hosts.iter().find(|it| it.address.is_some()) {
        anyhow::bail!(
            "HOSTS: {} has an address, and none is needed; hint: ssh:HOST",
            host.name
        );
    }
    let since_ns = since(arguments.since);
    let mut failed = 0;
    for host in &hosts {
        let mut take = |run: &Path| drop(say(&run.display().to_string()));
        match collect_from(host, &arguments.dir, &arguments.output, since_ns, &mut take) {
            Ok((runs, bytes)) => announce(&host.name, runs, bytes),
            Err(error) => {
                failed += 1;
                say_error(&format!("host {}: {error:#}", host.name));
            }
        }
    }
    if failed > 0 {
        say_error(&format!(
            "{failed} of {} hosts failed; hint: collect again, and only missing runs come",
            hosts.len()
        ));
        return Ok(EXIT_ERROR);
    }
    Ok(0)
}

/// Progress goes to standard error: standard output has a line for each run, for other programs.
fn announce(host: &str, runs: usize, bytes: u64) {
    let runs_word = if runs == 1 { "run" } else { "runs" };
    eprintln!("{host}: {runs} new {runs_word}, {}", Bytes(bytes));
}

fn since(time: Option<DurationNs>) -> ColumnNs {
    let now = ClockPair::now().wall_ns.0;
    time.map_or(ColumnNs(i64::MIN), |time| {
        ColumnNs(now.saturating_sub(i64::try_from(time.0).unwrap_or(i64::MAX)))
    })
}
