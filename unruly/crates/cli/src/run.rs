//! `unruly run`, and how a plan is read and changed on the command line.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueHint};
use unruly_plan::{Drive, DurationNs, Load, Plan, PlanError};
use unruly_program::password_of;
use unruly_runner::RunOptions;

use crate::cli::measure;
use crate::concealed::command;
use crate::hosts::{HostArguments, complaint};
use crate::live::LiveArguments;
use crate::shipped;
use crate::slos::slos;

/// The flags.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// Plan file, or the name of a shipped plan
    plan: PathBuf,
    /// Run directory to make (default: runs/NAME-UTC)
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    output: Option<PathBuf>,
    /// Run directory of an interrupted run of this plan, to measure the trials that are left
    #[arg(long, value_name = "DIR", conflicts_with = "output", value_hint = ValueHint::DirPath)]
    resume: Option<PathBuf>,
    /// Stop after the trial in which this time has passed; --resume measures the others
    #[arg(long = "for", value_name = "TIME")]
    limit: Option<DurationNs>,
    /// Measured time, instead of the plan's
    #[arg(short, long, value_name = "TIME")]
    duration: Option<String>,
    /// Warm-up before the measured time, instead of the plan's
    #[arg(short, long, value_name = "TIME")]
    warmup: Option<String>,
    /// Random seed, instead of the plan's
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Name of the measured environment, instead of the plan's
    #[arg(long)]
    tag: Option<String>,
    /// Value of a key of the plan, such as drive.rate=100/s; replaces the values of a matrix
    /// too; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Target that decides the exit code, instead of the plan's: "p99 < 20ms"; may be repeated
    #[arg(long, value_name = "TARGET")]
    slo: Vec<String>,
    /// Write to a store that holds other data; resume on another host or with another version
    #[arg(short, long)]
    yes: bool,
    /// File that holds the password or token of the store (default: UNRULY_PASSWORD has it)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    password_file: Option<PathBuf>,
    /// Print only the run directory: no progress, no verdict
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    from: HostArguments,
    #[command(flatten)]
    live: Box<LiveArguments>,
}

/// Runs a plan, and ends with its verdict.
pub(crate) fn run(arguments: RunArguments) -> Result<u8> {
    let changes = Changes {
        duration: arguments.duration,
        warmup: arguments.warmup,
        seed: arguments.seed,
        tag: arguments.tag,
        slo: arguments.slo,
    };
    let password = arguments.password_file.as_deref();
    let options = RunOptions {
        output: arguments.output,
        resume: arguments.resume,
        limit: arguments.limit.map(|it| Duration::from_nanos(it.0)),
        quiet: arguments.quiet,
        live: arguments.live.options(),
        password: password.map(password_of).transpose()?,
        yes: arguments.yes,
        is_standing: false,
        command: command(std::env::args_os()),
    };
    let plan = read_on(&arguments.plan, &arguments.set, &changes, &arguments.from)?;
    measure(&plan, &options)
}

/// What the command line says instead of the plan.
#[derive(Default)]
pub(crate) struct Changes {
    duration: Option<String>,
    warmup: Option<String>,
    seed: Option<u64>,
    tag: Option<String>,
    slo: Vec<String>,
}

impl Changes {
    /// A tag, if one is given, and nothing else.
    pub(crate) fn of_tag(tag: Option<String>) -> Self {
        Self {
            tag,
            ..Self::default()
        }
    }

    fn apply(&self, mut plan: Plan) -> Result<Plan> {
        let parse = |flag: &str, text: &str| {
            text.parse().map_err(|_| {
                anyhow::anyhow!("{flag}: {text:?} is not a duration; hint: {flag} 60s")
            })
        };
        if let Some(text) = &self.duration {
            plan.run.duration = parse("--duration", text)?;
        }
        if let Some(text) = &self.warmup {
            plan.run.warmup = parse("--warmup", text)?;
        }
        if !self.slo.is_empty() {
            plan.run.slo = slos(&self.slo)?;
        }
        plan.seed = self.seed.unwrap_or(plan.seed);
        if let Some(tag) = &self.tag {
            plan.tag.clone_from(tag);
        }
        // The whole must still be a plan. It knows the lines of its values, and its copy does not.
        Plan::parse("run", &plan.to_toml()).map_err(|error| self.explain(&error))?;
        Ok(plan)
    }

    /// Returns a complaint about a changed plan in the words of the command line.
    fn explain(&self, error: &PlanError) -> anyhow::Error {
        let seed = self.seed.map(|seed| seed.to_string());
        let typed = match error.key.as_str() {
            "run.duration" => self.duration.as_deref(),
            "run.warmup" => self.warmup.as_deref(),
            "seed" => seed.as_deref(),
            "tag" => self.tag.as_deref(),
            _ => return anyhow::anyhow!("{error}"),
        };
        let write = |path: &str, value: &str| {
            format!("--{} {value}", path.rsplit('.').next().unwrap_or(path))
        };
        anyhow::anyhow!(error.on_command_line(typed, write))
    }
}

/// A plan, from its file or of those that come with the program.
pub(crate) fn read(path: &Path, set: &[String], changes: &Changes) -> Result<Plan> {
    read_on(path, set, changes, &HostArguments::default())
}

/// The same with the hosts of the command line.
fn read_on(path: &Path, set: &[String], changes: &Changes, flags: &HostArguments) -> Result<Plan> {
    let place = path.display().to_string();
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        // A folder with the name of a shipped plan is no plan.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::IsADirectory) => {
            shipped::plan(&place)?.to_owned()
        }
        Err(error) => anyhow::bail!("{place}: cannot be read ({error}); hint: give a plan file"),
    };
    let mut values = Vec::new();
    for word in set {
        values.push(word.split_once('=').with_context(|| {
            format!("--set: {word:?} has no value; hint: --set drive.rate=100/s")
        })?);
    }
    let (hosts, listen) = (flags.hosts()?, flags.listen());
    values.extend(listen.iter().map(|it| ("run.listen", it.as_str())));
    let plan = if values.is_empty() && hosts.is_empty() {
        Plan::parse(&place, &text)?
    } else {
        let plan = Plan::parse_on(&place, &text, &values, &hosts);
        plan.map_err(|error| set_error(&error, &values, flags))?
    };
    let mut plan = changes.apply(plan)?;
    if let (Load::Drive(drive), Some(folder)) = (&mut plan.load, path.parent()) {
        for file in files(drive) {
            move_beside(file, folder);
        }
    }
    Ok(plan)
}

/// The files that a drive names.
fn files(drive: &mut Drive) -> Vec<&mut Option<String>> {
    let mut files = vec![&mut drive.times];
    let Some(store) = &mut drive.store else {
        return files;
    };
    let tls = &mut store.tls;
    files.extend([&mut tls.ca_cert, &mut tls.client_cert, &mut tls.client_key]);
    if let Some(http) = &mut store.http {
        files.extend([&mut http.data, &mut http.proto]);
    }
    files.extend(store.sql.as_mut().map(|sql| &mut sql.data));
    files
}

/// Takes a file from the folder of its plan, where there is one of that name.
fn move_beside(file: &mut Option<String>, folder: &Path) {
    let beside = file.as_ref().map(|file| folder.join(file));
    if let Some(beside) = beside.filter(|it| it.is_file()) {
        *file = Some(beside.display().to_string());
    }
}

/// Returns a complaint about a plan in the words of the command line, when it is about a value or the
/// hosts given there.
fn set_error(error: &PlanError, values: &[(&str, &str)], flags: &HostArguments) -> anyhow::Error {
    let is = |key: &str| key == error.key || error.key.ends_with(&format!(".{key}"));
    let is_listen = error.key == "run.listen" && flags.listen().is_some();
    match values.iter().find(|(key, _)| is(key)) {
        Some((_, value)) if !is_listen => {
            let write = |path: &str, value: &str| format!("--set {path}={value}");
            anyhow::anyhow!(error.on_command_line(Some(value), write))
        }
        _ if is_listen || (flags.are_given() && error.key.starts_with("host")) => complaint(error),
        _ => anyhow::anyhow!("{error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the command's sentence about a run with these command-line arguments.
    fn said(plan: &str, duration: Option<&str>, set: &[&str]) -> String {
        let changes = Changes {
            duration: duration.map(str::to_owned),
            warmup: None,
            seed: None,
            tag: None,
            slo: Vec::new(),
        };
        let set: Vec<String> = set.iter().map(|&word| word.to_owned()).collect();
        read(Path::new(plan), &set, &changes)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn a_folder_is_no_plan() {
        // The tests run in the folder of this crate.
        let error = said("src", None, &[]);
        assert!(
            error.starts_with("src: there is no such plan; hint: "),
            "{error}"
        );
    }

    #[test]
    fn an_error_of_run_names_what_was_typed() {
        for (found, expected) in [
            (
                said("echo", Some("soon"), &[]),
                "--duration: \"soon\" is not a duration; hint: --duration 60s",
            ),
            (
                said("echo", Some("0"), &[]),
                "--duration: \"0\" must be above 0; hint: --duration 60s",
            ),
            (
                said("echo", None, &["drive.timeout=soon"]),
                "--set drive.timeout: \"soon\" is not a duration (ns, us, ms, s, min, h, d); hint: --set drive.timeout=10s",
            ),
            (
                said("echo", None, &["clients=many"]),
                "--set drive.clients: \"many\" is not an integer; hint: --set drive.clients=1",
            ),
            (
                said("echo", None, &["clients"]),
                "--set: \"clients\" has no value; hint: --set drive.rate=100/s",
            ),
            (
                said("dmo", None, &[]),
                "dmo: there is no such plan; hint: did you mean demo",
            ),
            (
                said("nothing-of-the-kind", None, &[]),
                "nothing-of-the-kind: there is no such plan; hint: unruly plans lists the shipped plans",
            ),
        ] {
            assert_eq!(found, expected);
        }
    }
}
