//! One process of a service: how it is started, seen, and ended.

use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;

use super::held::{self, Holder};
use super::packages::Programs;
use crate::process::Process;

/// Lines of a log that a person is shown when a process is not ready.
const LOG_LINES: usize = 12;

/// One process.
#[derive(Debug)]
pub(crate) struct ServiceChild {
    pub(crate) name: String,
    /// A word for pictures.
    pub(crate) tier: Option<String>,
    pub(crate) log: PathBuf,
    /// Its disk, where the plan has it stall.
    pub(crate) disk: Option<Holder>,
    pub(crate) process: Process,
}

/// How a process is to be started.
pub(super) struct Start<'a> {
    pub(super) name: &'a str,
    pub(super) tier: Option<&'a str>,
    pub(super) command: Command,
    pub(super) folder: &'a Path,
    pub(super) log: PathBuf,
    pub(super) cores: Option<&'a Vec<u16>>,
    /// Its disk shall be able to stall.
    pub(super) held: bool,
}

impl ServiceChild {
    pub(super) fn start(start: Start<'_>) -> Result<Self> {
        // One that is started again goes on with its log.
        let output = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&start.log)?;
        let command = on_its_cores(start.command, start.cores);
        let (ours, theirs) = UnixStream::pair()?;
        let own = std::env::current_exe()?.display().to_string();
        let (command, input) = if start.held {
            let command = behind(&[&own, held::VERB, "--"], &command);
            (command, Stdio::from(OwnedFd::from(theirs)))
        } else {
            (command, Stdio::null())
        };
        let process = Process::start(
            ends_with_us(command)
                .current_dir(start.folder)
                .stdin(input)
                .stdout(output.try_clone()?)
                .stderr(output),
        )?;
        let disk = start.held.then(|| Holder::of(&ours)).transpose()?;
        Ok(Self {
            name: start.name.to_owned(),
            tier: start.tier.map(str::to_owned),
            log: start.log,
            disk,
            process,
        })
    }

    /// Whether these words are in its log.
    pub(super) fn has_said(&self, words: &str) -> bool {
        let log = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log).contains(words)
    }

    /// The end of its log.
    pub(super) fn last_words(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        let last = &lines[lines.len().saturating_sub(LOG_LINES)..];
        last.iter()
            .map(|line| format!("  {line}"))
            .collect::<Vec<_>>()
            .join("\n")
    }
}

/// Behind `taskset`, where the plan pins it.
fn on_its_cores(command: Command, cores: Option<&Vec<u16>>) -> Command {
    let Some(cores) = cores else { return command };
    let list: Vec<String> = cores.iter().map(u16::to_string).collect();
    behind(&["taskset", "-c", &list.join(",")], &command)
}

/// Behind `setpriv`, which has the kernel end it when we are gone, however that was.
fn ends_with_us(command: Command) -> Command {
    let found = Programs::of_this_host().find("setpriv");
    if found.is_none() {
        return command;
    }
    behind(&["setpriv", "--pdeathsig", "KILL", "--"], &command)
}

/// The same command behind other words.
fn behind(words: &[&str], command: &Command) -> Command {
    let mut longer = Command::new(words[0]);
    longer
        .args(&words[1..])
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => longer.env(name, value),
            None => longer.env_remove(name),
        };
    }
    longer
}
