//! Processes of a run on other hosts.
//!
//! A host is reached by a command that passes standard input and output on, such as `ssh node-1`.
//! Behind it `unruly host` starts one process of the run, with the lines that a process on this host
//! reads and writes. It answers questions about its clock itself, and when the process has ended it
//! sends the files that the process wrote. When the connection ends, nothing stays on the host.

mod actions;
mod archive;
mod clocks;
mod files;
mod host;
mod idle;
mod install;

use std::process::Command;

use serde::{Deserialize, Serialize};
use unruly_agent::Job;
use unruly_plan::{ReachedHost, Secret};
use unruly_program::tool;
use unruly_trace::{ClockPair, Host, Tool};

pub(crate) use actions::Action;
pub use archive::{collect, send_runs};
pub(crate) use clocks::{Clocks, Span};
pub(crate) use files::receive;
pub use host::serve;
pub use idle::idle;
pub(crate) use install::install;

/// The version of what both sides say.
const VERSION: u32 = 1;

/// The first line that `unruly host` reads.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    version: u32,
    tool: Tool,
    job: Job,
    /// What lets the process into a store. It is on no command line.
    password: Option<String>,
    /// It is the first process of the run on that host, which measures the noise of the host.
    is_first: bool,
}

/// A line that `unruly host` writes between those of its process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HostReport {
    /// The first line: the facts of the host.
    Host(Box<Host>),
    /// Its clocks, when it read the question with this number.
    Clock {
        /// The question's number.
        number: u64,
        /// Its clocks.
        clock: ClockPair,
    },
    /// A file of the process; its bytes follow the line.
    File {
        /// Its path in the run directory.
        path: String,
        /// How many bytes follow.
        bytes: u64,
        /// Their SHA-256, in hexadecimal digits.
        sha256: String,
    },
    /// An action of a fault did not happen; a finding says why.
    Refused,
    /// A run of a standing agent; its files follow.
    Run {
        /// Its name.
        name: String,
    },
    /// All files are sent.
    Sent {
        /// How many there were.
        files: u64,
    },
}

impl Order {
    pub(crate) fn new(job: Job, password: Option<&Secret>, is_first: bool) -> Self {
        Self {
            version: VERSION,
            tool: tool(),
            job,
            password: password.map(|it| it.reveal().to_owned()),
            is_first,
        }
    }
}

/// Returns the command that starts a process of the run on a host.
pub(crate) fn command(host: &ReachedHost) -> Command {
    let mut words = host.reach.iter();
    let mut command = Command::new(words.next().map_or("", String::as_str));
    command.args(words).args([&host.program, "host"]);
    command
}

/// Returns the command as a person writes it.
pub(crate) fn shown(host: &ReachedHost) -> String {
    format!("{} {} host", host.reach.join(" "), host.program)
}
