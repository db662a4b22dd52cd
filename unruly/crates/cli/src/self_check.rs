//! The verb `self check`: it tries each part of this installation, and measures for half a second.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};
use unruly_agent::doctor;
use unruly_plan::Plan;
use unruly_program::python::{self, HOW_TO_INSTALL};
use unruly_program::tool;
use unruly_runner::services;
use unruly_trace::Manifest;

use crate::cli::{EXIT_FINDING, say};
use crate::shipped;

/// True for a program that holds all its libraries.
const IS_STATIC: bool = cfg!(target_feature = "crt-static");
/// The module that tries the analysis. It prints an [`Analysis`].
const MODULE: &str = "unruly.installation";
/// A plan that needs nothing but this program, and how it is shortened.
const TRIAL: [&str; 8] = [
    "run",
    "echo",
    "--quiet",
    "--duration=500ms",
    "--warmup=0s",
    "--set=drive.transport=tcp",
    "--tag=self-check",
    "--output",
];

/// A part of the installation.
#[derive(Debug, Serialize)]
struct Part {
    name: &'static str,
    works: bool,
    /// The result, or the fault.
    found: String,
    /// What to do when it does not work.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl Part {
    /// A part that works, or the error with the hint at its end.
    fn of(name: &'static str, found: Result<String>) -> Self {
        let works = found.is_ok();
        let text = found.unwrap_or_else(|error| format!("{error:#}"));
        let (found, hint) = match text.split_once("; hint: ") {
            Some((found, hint)) if !works => (found.to_owned(), Some(hint.to_owned())),
            _ => (text, None),
        };
        Self {
            name,
            works,
            found,
            hint,
        }
    }
}

/// The whole answer.
#[derive(Debug, Serialize)]
struct Answer {
    works: bool,
    parts: Vec<Part>,
}

/// What the analysis prints about itself.
#[derive(Debug, Deserialize)]
struct Analysis {
    /// Version of Python.
    python: String,
    /// Version of the installed package; none in a checkout.
    version: Option<String>,
    /// Why a library of the analysis cannot be imported.
    fault: Option<String>,
}

/// Tries all parts and prints them. Returns the exit code: 1 if a part is missing.
///
/// # Errors
///
/// When the output cannot be written.
pub(crate) fn self_check(json: bool) -> Result<u8> {
    let parts = vec![
        Part::of("program", program()),
        Part::of("shipped", shipped_files()),
        Part::of("kernel", kernel()),
        Part::of("privileges", Ok(privileges())),
        Part::of("measuring", measuring()),
        Part::of("analysis", analysis()),
    ];
    let answer = Answer {
        works: parts.iter().all(|part| part.works),
        parts,
    };
    if json {
        say(&serde_json::to_string_pretty(&answer)?)?;
    } else {
        say(render(&answer).trim_end())?;
    }
    Ok(if answer.works { 0 } else { EXIT_FINDING })
}

fn render(answer: &Answer) -> String {
    let lacking = answer.parts.iter().filter(|part| !part.works);
    let lacking: Vec<&str> = lacking.map(|part| part.name).collect();
    let mut text = if lacking.is_empty() {
        "This installation works.\n\n".to_owned()
    } else {
        format!("This installation lacks: {}.\n\n", lacking.join(", "))
    };
    for part in &answer.parts {
        let state = if part.works { "" } else { "does not work: " };
        let _ = writeln!(text, "  {:<10} {state}{}", part.name, part.found);
        if let Some(hint) = &part.hint {
            let _ = writeln!(text, "{:>13}{hint}", "-> ");
        }
    }
    text
}

fn program() -> Result<String> {
    let place = std::env::current_exe().context("the program's own path cannot be read")?;
    let kind = if IS_STATIC { "static" } else { "dynamic" };
    let (about, place) = (tool(), place.display());
    Ok(format!(
        "unruly {}, commit {}, {kind}, {place}",
        about.version, about.commit
    ))
}

/// Reads every plan and service in the program.
fn shipped_files() -> Result<String> {
    for (name, text) in shipped::PLANS {
        Plan::parse(name, text)?;
    }
    let files = services::shipped().chain(services::systems());
    let mut count = 0;
    for (name, _) in files {
        services::service(name)?;
        count += 1;
    }
    let plans = shipped::PLANS.len();
    Ok(format!("{plans} plans, {count} services and systems"))
}

/// Share of the trial's requests that must be answered: a busy host may lose some.
const ANSWERED_PERCENT: u64 = 90;

fn kernel() -> Result<String> {
    let release = doctor::host_facts().kernel;
    let release = release.unwrap_or_else(|| "of unknown release".to_owned());
    ensure!(
        doctor::kernel_stamps_work(),
        "Linux {release} does not stamp received messages, so a reply that waited in our own kernel \
         looks like one that came late; hint: use Linux 4.14 or later without a sandbox between"
    );
    Ok(format!("Linux {release}, stamps received messages"))
}

fn privileges() -> String {
    let is_root = nix::unistd::geteuid().is_root();
    let text = if is_root {
        "root"
    } else {
        "not root; `unruly watch`, network faults and CPU quotas need root"
    };
    text.to_owned()
}

/// Measures an echo server for half a second, in a folder that is removed.
fn measuring() -> Result<String> {
    let folder = tempfile::tempdir().map_err(|error| {
        anyhow!("no temporary folder ({error}); hint: set TMPDIR to a writable folder")
    })?;
    let directory = folder.path().join("run");
    let done = Command::new(std::env::current_exe()?)
        .args(TRIAL)
        .arg(&directory)
        .stdin(Stdio::null())
        .output()
        .context("the program cannot start itself")?;
    let words = String::from_utf8_lossy(&done.stderr);
    ensure!(
        done.status.success(),
        "{}",
        words.lines().last().unwrap_or("the trial run was killed")
    );
    counted(&directory)
}

fn counted(directory: &Path) -> Result<String> {
    let requests = Manifest::read(directory)?.counts.requests;
    ensure!(
        requests.scheduled > 0 && requests.answered * 100 >= requests.scheduled * ANSWERED_PERCENT,
        "only {} of {} requests to an echo server were answered; hint: is this host overloaded?",
        requests.answered,
        requests.scheduled
    );
    Ok(format!(
        "{} of {} requests to an echo server were answered",
        requests.answered, requests.scheduled
    ))
}

fn analysis() -> Result<String> {
    let arguments: [&str; 0] = [];
    let mut command = python::module(MODULE, &arguments)?;
    let place = command.get_program().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).output()?;
    let words = String::from_utf8_lossy(&done.stderr);
    let found: Analysis = serde_json::from_slice(&done.stdout).map_err(|_| {
        let last = words.lines().last().unwrap_or("it printed nothing");
        anyhow!("{place}: the package unruly cannot be tried ({last}); hint: {HOW_TO_INSTALL}")
    })?;
    judged(&found, &place)
}

/// Returns what an analysis is, or why it does not fit this program.
fn judged(found: &Analysis, place: &str) -> Result<String> {
    let ours = tool().version;
    if let Some(fault) = &found.fault {
        bail!("{place}: {fault}; hint: {HOW_TO_INSTALL}");
    }
    let version = match &found.version {
        Some(version) => {
            ensure!(
                *version == ours,
                "{place}: the package unruly is {version}, and this program is {ours}; \
                 hint: install both from one release"
            );
            version.clone()
        }
        None => "of a checkout".to_owned(),
    };
    Ok(format!(
        "unruly {version}, Python {}, {place}",
        found.python
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn analysis_with(version: Option<&str>, fault: Option<&str>) -> Analysis {
        Analysis {
            python: "3.11.2".to_owned(),
            version: version.map(str::to_owned),
            fault: fault.map(str::to_owned),
        }
    }

    #[test]
    fn every_shipped_plan_and_service_can_be_read() {
        assert!(shipped_files().unwrap().starts_with("33 plans, "));
    }

    #[test]
    fn an_analysis_of_another_version_or_without_a_library_does_not_work() {
        let ours = tool().version;
        for (version, fault, expected) in [
            (Some(ours.as_str()), None, Ok("unruly 0.")),
            (None, None, Ok("unruly of a checkout, Python 3.11.2, /p")),
            (Some("9.9.9"), None, Err("/p: the package unruly is 9.9.9")),
            (None, Some("no duckdb"), Err("/p: no duckdb; hint: ")),
        ] {
            let found = judged(&analysis_with(version, fault), "/p");
            let found = found.map_err(|error| error.to_string());
            match (&found, expected) {
                (Ok(text), Ok(begins)) | (Err(text), Err(begins)) => {
                    assert!(text.starts_with(begins), "{text}");
                }
                _ => panic!("{found:?} instead of {expected:?}"),
            }
        }
    }

    #[test]
    fn the_text_names_each_part_that_does_not_work_with_its_hint() {
        let parts = vec![
            Part::of("program", Ok("unruly".to_owned())),
            Part::of("analysis", Err(anyhow!("no Python; hint: get one"))),
        ];
        let answer = Answer {
            works: false,
            parts,
        };
        assert_eq!(
            render(&answer),
            "This installation lacks: analysis.\n\n\
             \x20 program    unruly\n\
             \x20 analysis   does not work: no Python\n\
             \x20         -> get one\n"
        );
    }
}
