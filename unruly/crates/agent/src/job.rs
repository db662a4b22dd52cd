//! The job of one process, as `unruly/schema/job.md` writes it down.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use unruly_plan::{CompeteKind, DurationNs, Load, Plan};
use unruly_trace::{SCHEMA_VERSION, SegmentMeta, SpoolHeader};

/// Version of the job file and of the lines between runner and process.
pub const PROTOCOL_VERSION: u32 = 1;

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// An active agent of the group study.
    Mesh,
    /// A load generator against one target.
    Drive,
    /// A server that answers the group RPC.
    Echo,
    /// A passive agent.
    Probe,
    /// Busy neighbours.
    Stress,
    /// The sending end of a stream.
    Writer,
    /// The receiving end of a stream.
    Reader,
    /// A part of a competing load.
    Compete,
    /// The receiver of spans.
    Spans,
    /// The tap on services.
    Tap,
}

impl JobKind {
    /// Makes requests: a run lasts until all of these have drained.
    #[must_use]
    pub fn asks(self) -> bool {
        matches!(self, Self::Mesh | Self::Drive | Self::Writer | Self::Reader)
    }

    /// The word in the job file and the manifest.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mesh => "mesh",
            Self::Drive => "drive",
            Self::Echo => "echo",
            Self::Probe => "probe",
            Self::Stress => "stress",
            Self::Writer => "writer",
            Self::Reader => "reader",
            Self::Compete => "compete",
            Self::Spans => "spans",
            Self::Tap => "tap",
        }
    }
}

/// What busy neighbours do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stress {
    /// How many.
    pub threads: u16,
    /// From when until when, each time, from the first measured instant.
    pub times: Vec<(DurationNs, Option<DurationNs>)>,
}

/// The path of the JVM, and the archives that it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JvmPlace {
    /// The path of the `java` program.
    pub java: String,
    /// Our archive and its dependencies.
    pub classpath: String,
}

/// The job of one process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// [`PROTOCOL_VERSION`].
    pub schema: u32,
    /// The run's id.
    pub run: String,
    /// What to do.
    pub kind: JobKind,
    /// The process's name, unique within a cell and repeat.
    pub name: String,
    /// Its number in the rows, where it has one.
    pub id: Option<u16>,
    /// Its host's name.
    pub host: String,
    /// Names of all cells of the run.
    pub cells: Vec<String>,
    /// The cell's index.
    pub cell: u16,
    /// The repeat.
    pub repeat: u16,
    /// The number that identifies this run's messages.
    pub cookie: u32,
    /// The IP address to listen on.
    pub listen: String,
    /// The port to listen on; 0 lets the kernel choose.
    pub port: u16,
    /// Cores to stay on; empty is all.
    pub cpus: Vec<u16>,
    /// Count measured requests in bins each second, for a stop rule or a live view.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bins: bool,
    /// For `stress`.
    pub stress: Option<Stress>,
    /// Where libraries are that the system does not have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library: Option<String>,
    /// The JVM, for jobs that need one, if this host has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jvm: Option<JvmPlace>,
    /// The services that a `tap` watches, as `NAME=tcp://HOST:PORT`; empty for the run's own servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taps: Vec<String>,
    /// The cell's plan.
    pub plan: Plan,
}

impl Job {
    /// Reads a job file.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or is of another version.
    pub fn read(path: &Path) -> Result<Self> {
        let place = path.display();
        let text = fs::read_to_string(path).with_context(|| {
            format!("{place}: cannot be read; wanted a job file; hint: unruly run writes them")
        })?;
        let json: serde_json::Value = serde_json::from_str(&text).with_context(|| {
            format!("{place}: is not JSON; wanted a job file; hint: see unruly/schema/job.md")
        })?;
        let schema = json
            .get("schema")
            .and_then(serde_json::Value::as_u64)
            .unwrap_or(0);
        ensure!(
            schema == u64::from(PROTOCOL_VERSION),
            "{place}: schema is {schema}; wanted {PROTOCOL_VERSION}; hint: use the same unruly on every host"
        );
        serde_json::from_value(json)
            .with_context(|| format!("{place}: is not a job; wanted the keys of unruly/schema/job.md; hint: use the same unruly on every host"))
    }

    /// Returns true if a JVM does this job's work.
    #[must_use]
    pub fn needs_jvm(&self) -> bool {
        match (self.kind, &self.plan.load) {
            (JobKind::Writer | JobKind::Reader, Load::Stream(stream)) => {
                stream.protocol.is_of_jvm()
            }
            (JobKind::Mesh, Load::Mesh(mesh)) => mesh.runtime.is_jvm_of(self.id.unwrap_or(0)),
            (JobKind::Compete, _) => {
                let compete = self.plan.compete;
                compete.is_some_and(|it| it.kind == CompeteKind::Gc)
            }
            _ => false,
        }
    }

    /// First part of the names of this process's files.
    #[must_use]
    pub fn stem(&self) -> String {
        format!("{}-c{}r{}", self.name, self.cell, self.repeat)
    }

    /// The name of the job's cell.
    #[must_use]
    pub fn cell_name(&self) -> &str {
        self.cells
            .get(usize::from(self.cell))
            .map_or("all", String::as_str)
    }

    /// What the footers of this process's segments say.
    #[must_use]
    pub fn meta(&self) -> SegmentMeta {
        SegmentMeta {
            run: self.run.clone(),
            host: self.host.clone(),
            process: self.name.clone(),
            tag: self.plan.tag.clone(),
        }
    }

    /// What this process's rows have in common.
    #[must_use]
    pub fn spool_header(&self, ops: Vec<String>) -> SpoolHeader {
        SpoolHeader {
            schema: SCHEMA_VERSION,
            run: self.run.clone(),
            host: self.host.clone(),
            process: self.name.clone(),
            tag: self.plan.tag.clone(),
            cells: self.cells.clone(),
            ops,
            phases: ["warmup", "measure", "load", "wind_down"]
                .map(str::to_owned)
                .to_vec(),
            tally: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_golden_job_is_read_and_written_without_loss() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema/golden/job.json");
        let job = Job::read(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_value(&job).unwrap(), read);
    }

    #[test]
    fn a_job_of_another_version_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job.json");
        fs::write(&path, r#"{"schema": 99}"#).unwrap();
        let said = Job::read(&path).unwrap_err().to_string();
        assert!(said.contains("schema is 99; wanted 1"), "{said}");
    }
}
