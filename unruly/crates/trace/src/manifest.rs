//! `manifest.json`: what a run was, who took part, and whether every copy is accounted for.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use unruly_time::{ColumnNs, DurationNs};

use crate::error::TraceError;
use crate::merge::Merged;
use crate::part::{Part, TrialRecord};
use crate::remains::TrialKey;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunStatus {
    /// It is going on, or its runner died.
    #[serde(rename = "running")]
    Running,
    /// It went to its planned end.
    #[serde(rename = "complete")]
    Complete,
    /// A person ended the run early, or it could not go on. The recorded data is valid.
    #[serde(rename = "stopped")]
    Stopped,
    /// A measuring process died early or could not write. The recorded data is valid, and `broken`
    /// describes the missing part.
    #[serde(rename = "incomplete")]
    Incomplete,
    /// Its runner died; recovery wrote this manifest.
    #[serde(rename = "cut off")]
    CutOff,
    /// Another tool's output.
    #[serde(rename = "imported")]
    Imported,
}

/// What measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// Version of the tool.
    pub version: String,
    /// The commit it was built from, `unknown` outside a repository.
    pub commit: String,
}

/// Facts of a host. What is not known is null.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// The host's name in the run.
    pub name: String,
    /// The processor's name.
    pub cpu_model: Option<String>,
    /// Cores that the process may use.
    pub cores: Option<u32>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// The kernel's clock source.
    pub clock_source: Option<String>,
    /// A guest of a hypervisor.
    pub virtualised: Option<bool>,
    /// Memory.
    pub memory_bytes: Option<i64>,
    /// Share of time stolen by the hypervisor at the start.
    pub steal_share: Option<f64>,
    /// How long this host stops a process in one of ten windows of 10 ms.
    pub noise_floor_ns: Option<DurationNs>,
    /// How far its wall clock was from that of the runner's host; absent where both are one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockBounds>,
}

/// An interval that holds the difference of a host's wall clock and the runner's, for a whole run:
/// above 0 if the host's is ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockBounds {
    /// The lowest bound.
    pub low_ns: DurationNs,
    /// The highest bound.
    pub high_ns: DurationNs,
    /// The widest interval at one instant: how well the difference was known.
    pub widest_ns: DurationNs,
    /// How often one of the clocks was set during the run.
    pub steps: u32,
}

impl ClockBounds {
    /// Returns the bounds of both times.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            low_ns: self.low_ns.min(other.low_ns),
            high_ns: self.high_ns.max(other.high_ns),
            widest_ns: self.widest_ns.max(other.widest_ns),
            steps: self.steps + other.steps,
        }
    }
}

impl Host {
    /// A host of which nothing but the name is known.
    #[must_use]
    pub fn unknown(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            cpu_model: None,
            cores: None,
            kernel: None,
            clock_source: None,
            virtualised: None,
            memory_bytes: None,
            steal_share: None,
            noise_floor_ns: None,
            clock: None,
        }
    }
}

/// A cell of the plan's matrix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// Its name, which is in the rows.
    pub name: String,
    /// Plan path to value.
    pub factors: BTreeMap<String, String>,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Exit {
    /// By itself.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

impl std::fmt::Display for Exit {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(out, "ended with code {code}"),
            Self::Signal(signal) => {
                let name = Signal::try_from(*signal).map_or("unknown", Signal::as_str);
                write!(out, "was killed by signal {signal} ({name})")
            }
        }
    }
}

/// What became of every scheduled copy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copies {
    /// Asked for by the schedule.
    pub scheduled: u64,
    /// Answered in time.
    pub ok: u64,
    /// Not answered in time.
    pub timeout: u64,
    /// Refused by the peer.
    pub refused: u64,
    /// Over our bound of requests in flight.
    pub shed: u64,
    /// Failed otherwise.
    pub error: u64,
    /// Open at the end.
    pub unfinished: u64,
    /// Answered wrongly.
    pub wrong: u64,
    /// From a replica that was behind.
    pub behind: u64,
    /// From another epoch.
    pub stale: u64,
    /// Lost.
    pub lost: u64,
    /// Rows in the trace.
    pub recorded: u64,
    /// Rows that the recorder had no room for.
    pub dropped: u64,
}

impl Copies {
    /// The sum of all ends.
    #[must_use]
    pub fn ended(&self) -> u64 {
        [
            self.ok,
            self.timeout,
            self.refused,
            self.shed,
            self.error,
            self.unfinished,
            self.wrong,
            self.behind,
            self.stale,
            self.lost,
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }

    /// Checks that every copy ended once and is recorded or dropped once.
    ///
    /// # Errors
    ///
    /// Names the sum that does not hold.
    pub fn check(&self, place: &str) -> Result<(), TraceError> {
        let broken = |what: String| TraceError::Conservation {
            place: place.to_owned(),
            what,
        };
        if self.scheduled != self.ended() {
            return Err(broken(format!(
                "{} copies were scheduled but {} ended",
                self.scheduled,
                self.ended()
            )));
        }
        if self.recorded.saturating_add(self.dropped) != self.scheduled {
            return Err(broken(format!(
                "{} recorded + {} dropped is not {} scheduled",
                self.recorded, self.dropped, self.scheduled
            )));
        }
        Ok(())
    }

    fn add(&mut self, other: &Self) {
        for (sum, part) in [
            (&mut self.scheduled, other.scheduled),
            (&mut self.ok, other.ok),
            (&mut self.timeout, other.timeout),
            (&mut self.refused, other.refused),
            (&mut self.shed, other.shed),
            (&mut self.error, other.error),
            (&mut self.unfinished, other.unfinished),
            (&mut self.wrong, other.wrong),
            (&mut self.behind, other.behind),
            (&mut self.stale, other.stale),
            (&mut self.lost, other.lost),
            (&mut self.recorded, other.recorded),
            (&mut self.dropped, other.dropped),
        ] {
            *sum = sum.saturating_add(part);
        }
    }
}

/// What became of every request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests {
    /// Asked for by the schedule.
    pub scheduled: u64,
    /// Got their answer.
    pub answered: u64,
    /// Did not.
    pub unanswered: u64,
    /// Were never sent, because the generator could not keep up until the run ended. They are not
    /// among the scheduled ones and have no rows.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unsent: u64,
    /// Measured requests that the generator took from the schedule more than 10 ms late and whose
    /// rows do not show it, because they were shed, refused, or waited for a connection.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub late: u64,
    /// Delay of the latest of them.
    #[serde(default, skip_serializing_if = "is_none")]
    pub late_max_ns: DurationNs,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_none(time: &DurationNs) -> bool {
    *time == DurationNs::ZERO
}

/// The conservation counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Over copies.
    pub copies: Copies,
    /// Over requests.
    pub requests: Requests,
}

impl Counts {
    /// Adds another process's counts.
    pub fn add(&mut self, other: &Self) {
        let add = |sum: &mut u64, part: u64| *sum = sum.saturating_add(part);
        self.copies.add(&other.copies);
        add(&mut self.requests.scheduled, other.requests.scheduled);
        add(&mut self.requests.answered, other.requests.answered);
        add(&mut self.requests.unanswered, other.requests.unanswered);
        add(&mut self.requests.unsent, other.requests.unsent);
        add(&mut self.requests.late, other.requests.late);
        self.requests.late_max_ns = self.requests.late_max_ns.max(other.requests.late_max_ns);
    }

    /// Checks both sums.
    ///
    /// # Errors
    ///
    /// Names the sum that does not hold.
    pub fn check(&self, place: &str) -> Result<(), TraceError> {
        self.copies.check(place)?;
        let Requests {
            scheduled,
            answered,
            unanswered,
            ..
        } = self.requests;
        if answered.saturating_add(unanswered) != scheduled {
            return Err(TraceError::Conservation {
                place: place.to_owned(),
                what: format!(
                    "{answered} answered + {unanswered} unanswered requests is not {scheduled}"
                ),
            });
        }
        Ok(())
    }
}

/// One process of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its name, which is in the rows.
    pub name: String,
    /// What it did: mesh, drive, echo, probe, stress, runner.
    pub kind: String,
    /// Its number as client and server in the rows.
    pub id: Option<u16>,
    /// The cell it took part in.
    pub cell: String,
    /// The repeat it took part in.
    pub repeat: u16,
    /// Its host.
    pub host: String,
    /// Its process id.
    pub pid: Option<u32>,
    /// What it runs on: native, jvm.
    pub runtime: String,
    /// The word that the file of its service has for pictures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// How it ended; null when nobody saw it end.
    pub exit: Option<Exit>,
    /// Its counts; null when it makes no requests, or died before it could say.
    pub counts: Option<Counts>,
}

/// The manifest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of this file's layout.
    pub schema: u32,
    /// The run's id.
    pub run: String,
    /// The plan's name.
    pub name: String,
    /// The environment.
    pub tag: String,
    /// What measured.
    pub tool: Tool,
    /// The command line that started it, without passwords.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// What it measured, in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// SHA-256 of the resolved plan.
    pub plan_sha256: String,
    /// The seed.
    pub seed: u64,
    /// How the run ended.
    pub status: RunStatus,
    /// Wall clock of the first start.
    pub started_ns: ColumnNs,
    /// Wall clock of the last stop.
    pub ended_ns: Option<ColumnNs>,
    /// Measured time that the plan asked for, over all cells and repeats.
    pub planned_ns: DurationNs,
    /// What is known to be absent, a sentence each.
    pub missing: Vec<String>,
    /// What broke the run, a sentence each: processes that measure and died before their time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<String>,
    /// Facts of the hosts.
    pub hosts: Vec<Host>,
    /// The cells.
    pub cells: Vec<Cell>,
    /// Cells of the matrix that cannot be measured, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// The parts of the run, one for each time that it was started or resumed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
    /// The trials that were begun, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trials: Vec<TrialRecord>,
    /// The processes.
    pub processes: Vec<Process>,
    /// The conservation counts over all processes.
    pub counts: Counts,
    /// Its rows were merged into histograms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged: Option<Merged>,
}

impl Manifest {
    /// File name in the run directory.
    pub const FILE: &'static str = "manifest.json";

    /// Reads the manifest of a run.
    ///
    /// # Errors
    ///
    /// When the directory is missing, is not a run, or is of a newer schema.
    pub fn read(directory: &Path) -> Result<Self, TraceError> {
        let path = directory.join(Self::FILE);
        let refused = |what: String, hint| TraceError::Manifest {
            path: path.clone(),
            what,
            hint,
        };
        if !directory.is_dir() {
            return Err(TraceError::Manifest {
                path: directory.to_owned(),
                what: "there is no such directory".to_owned(),
                hint: "name the directory that unruly run printed",
            });
        }
        if fs::metadata(&path).is_ok_and(|it| !it.is_file()) {
            return Err(refused(
                "is no file".to_owned(),
                "this directory is not a run",
            ));
        }
        let text = fs::read_to_string(&path).map_err(|error| {
            refused(
                format!("cannot be read ({error})"),
                "this directory is not a run",
            )
        })?;
        let json: serde_json::Value = serde_json::from_str(&text)
            .map_err(|error| refused(format!("is not JSON ({error})"), "restore it"))?;
        let schema = json
            .get("schema")
            .and_then(serde_json::Value::as_u64)
            .unwrap_or(0);
        if schema > 1 {
            return Err(refused(
                format!("its schema is {schema}, known is 1"),
                "upgrade unruly",
            ));
        }
        serde_json::from_value(json)
            .map_err(|error| refused(format!("is not a manifest ({error})"), "restore it"))
    }

    /// Writes the manifest: whole or not at all.
    ///
    /// # Errors
    ///
    /// When the disk is full.
    pub fn write(&self, directory: &Path) -> Result<(), TraceError> {
        let path = directory.join(Self::FILE);
        let temporary = directory.join("manifest.json.tmp");
        let io = |source| TraceError::io(&path, "writing the manifest", source);
        let mut text = serde_json::to_vec_pretty(self).map_err(|error| io(error.into()))?;
        text.push(b'\n');
        // A new file: a link of that name in somebody's run may lead anywhere.
        let _ = fs::remove_file(&temporary);
        let written = File::create_new(&temporary)
            .and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()));
        if let Err(error) = written {
            let _ = fs::remove_file(&temporary);
            write_to_reserve(directory, &temporary, &text).map_err(|_| io(error))?;
        }
        fs::rename(&temporary, &path).map_err(io)
    }

    /// Keeps room for a last manifest, so that a run whose disk is full can say so.
    ///
    /// # Errors
    ///
    /// When there is no room for it.
    pub fn reserve(directory: &Path) -> Result<(), TraceError> {
        let path = directory.join(RESERVE);
        // Written, and not only made longer: a file with holes keeps nothing.
        File::create_new(&path)
            .and_then(|mut file| file.write_all(&vec![b' '; RESERVE_BYTES]))
            .map_err(|source| TraceError::io(&path, "keeping room for the manifest", source))
    }

    /// Gives that room up: the last manifest is written.
    pub fn release(directory: &Path) {
        let _ = fs::remove_file(directory.join(RESERVE));
    }

    /// Returns the record of a trial by the numbers of its cell and repeat.
    #[must_use]
    pub fn trial_mut(&mut self, (cell, repeat): TrialKey) -> Option<&mut TrialRecord> {
        let cell = &self.cells.get(cell)?.name;
        let mut trials = self.trials.iter_mut();
        trials.find(|it| it.cell == *cell && it.repeat == repeat)
    }

    /// Recomputes the totals from the processes and checks every sum.
    ///
    /// # Errors
    ///
    /// Names the process and the sum that does not hold.
    pub fn settle(&mut self) -> Result<(), TraceError> {
        let mut total = Counts::default();
        for process in &self.processes {
            if let Some(counts) = &process.counts {
                counts.check(&format!(
                    "{} ({}, {})",
                    process.name, process.cell, process.repeat
                ))?;
                total.add(counts);
            }
        }
        self.counts = total;
        self.counts.check(&self.run)
    }
}

const RESERVE: &str = "manifest.reserve";
const RESERVE_BYTES: usize = 64 << 10;

/// Writes a manifest into the room that was kept for it: that needs no new block, and no new file.
fn write_to_reserve(directory: &Path, temporary: &Path, text: &[u8]) -> std::io::Result<()> {
    fs::rename(directory.join(RESERVE), temporary)?;
    let mut file = File::options()
        .write(true)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(temporary)?;
    file.write_all(text)?;
    file.set_len(text.len() as u64)?;
    file.sync_all()
}
