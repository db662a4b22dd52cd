//! A run seen while it goes on: a page, an exposition for Prometheus, an export over OTLP.
//!
//! All three are one process of the Python side, since the method of the intervals is written once. It
//! receives the counts of every process each second. If it dies, the run goes on.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use unruly_agent::ProgressLine;
use unruly_plan::{Cell as PlanCell, Load, Plan, Runtime};
use unruly_trace::DurationNs;

use super::Run;

/// Time for the view to read the last lines.
const END_TIMEOUT: Duration = Duration::from_secs(3);
/// Time for its libraries and its listeners.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Lines that wait for a view which does not read.
const LINES_MOST: usize = 1_024;

/// Where a run can be seen while it goes on.
#[derive(Debug, Clone, Default)]
pub struct LiveOptions {
    /// `HOST:PORT` of the page.
    pub page: Option<String>,
    /// `HOST:PORT` of the exposition for Prometheus.
    pub metrics: Option<String>,
    /// URL of a receiver of OTLP.
    pub otlp: Option<String>,
}

impl LiveOptions {
    /// Returns the options that are given, as the Python side calls them.
    fn given(&self) -> Vec<String> {
        let all = [
            ("--page", &self.page),
            ("--metrics", &self.metrics),
            ("--otlp", &self.otlp),
        ];
        let given = all.iter().filter_map(|(name, value)| {
            let value = value.as_ref()?;
            Some([(*name).to_owned(), value.clone()])
        });
        given.flatten().collect()
    }

    pub(super) fn any(&self) -> bool {
        !self.given().is_empty()
    }

    /// Refuses what counts no requests while it runs.
    pub(super) fn check(&self, cells: &[PlanCell]) -> Result<()> {
        let blind = |cell: &PlanCell| match &cell.plan.load {
            Load::Mesh(mesh) => mesh.runtime != Runtime::Native,
            Load::Stream(_) => true,
            Load::Drive(_) => false,
        };
        if self.any()
            && let Some(cell) = cells.iter().find(|cell| blind(cell))
        {
            anyhow::bail!(
                "--live, --metrics and --otlp: cell {:?} is a stream or has agents on a JVM, which count no latencies before the end; hint: leave them out, and see `unruly report`",
                cell.name
            );
        }
        Ok(())
    }

    /// Starts the view; it listens when this returns. Returns nothing when none is asked for.
    pub(super) fn start(&self, quiet: bool) -> Result<Option<Live>> {
        if !self.any() {
            return Ok(None);
        }
        let mut process = unruly_program::python::module("unruly.live", &self.given())?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context(
                "--live: the view cannot be started; wanted Python 3.11; hint: leave it out",
            )?;
        let mut input = process.stdin.take().context("its input is piped")?;
        let output = process.stdout.take().context("its output is piped")?;
        let said = first_line(output);
        let said = said.trim();
        let Some(told) = said.strip_prefix("ready") else {
            let _ = process.kill();
            let _ = process.wait();
            let why = if said.is_empty() {
                "--live: the view did not start; hint: see above, or leave it out"
            } else {
                said
            };
            anyhow::bail!("{why}");
        };
        if !quiet {
            for line in told.split('\t').filter(|it| !it.trim().is_empty()) {
                eprintln!("{}", unruly_program::printable(line.trim()));
            }
        }
        let (lines, written) = sync_channel::<String>(LINES_MOST);
        let (done, drained) = sync_channel(1);
        std::thread::spawn(move || {
            let mut write = |line| writeln!(input, "{line}").and_then(|()| input.flush());
            let all = written.into_iter().try_for_each(|line: String| write(line));
            if all.is_ok() && done.send(()).is_ok() {
                // It ends with this program: until then the last figures can be fetched.
                std::mem::forget(input);
            }
        });
        Ok(Some(Live {
            process,
            lines: Some(lines),
            drained,
        }))
    }
}

/// Returns the first line of a view; an empty one when it says nothing for long.
fn first_line(output: ChildStdout) -> String {
    let (sender, line) = sync_channel(1);
    std::thread::spawn(move || {
        let mut said = String::new();
        let _ = BufReader::new(output).read_line(&mut said);
        let _ = sender.send(said);
    });
    line.recv_timeout(START_TIMEOUT).unwrap_or_default()
}

/// A trial that begins.
#[derive(Debug, Serialize)]
pub(super) struct Begun<'a> {
    pub(super) number: usize,
    pub(super) of: usize,
    pub(super) cell: &'a str,
    pub(super) warmup_ns: DurationNs,
    pub(super) duration_ns: DurationNs,
    /// Requests a second that the plan asks for; none where replies set the pace.
    pub(super) rate: Option<f64>,
    pub(super) processes: usize,
}

/// The view of a run in a process of its own.
#[derive(Debug)]
pub(super) struct Live {
    process: Child,
    /// None when the view has gone, or has read nothing for long.
    lines: Option<SyncSender<String>>,
    /// Says that every line is written, after the last one.
    drained: Receiver<()>,
}

impl Live {
    /// Says which run this is.
    pub(super) fn name(&mut self, plan: &Plan, run: &Run) {
        self.say(&serde_json::json!({"run": {
            "name": plan.name, "directory": run.directory, "id": run.id,
        }}));
    }

    /// Says that a trial begins.
    pub(super) fn begin(&mut self, begun: &Begun<'_>) {
        self.say(&serde_json::json!({"trial": begun}));
    }

    /// Says what a process counted in its last second, and how many copies it sent. `place` is the
    /// second of the measured time.
    pub(super) fn hear(&mut self, process: usize, place: u64, sent: u64, line: &ProgressLine) {
        self.say(&serde_json::json!({"second": {
            "process": process, "place": place, "sent": sent, "failed": line.failed, "open": line.open,
            "lag_ns": line.lag_ns, "dropped": line.dropped, "bins": line.bins,
        }}));
    }

    /// Says that the run is over. The view is there until this program ends, which closes its input:
    /// while the verdict is computed, the last figures can be fetched.
    /// `stopped` is true if a person ended the run before its time.
    pub(super) fn end(mut self, stopped: bool) {
        self.say(&serde_json::json!({"end": {"stopped": stopped}}));
        let Some(lines) = self.lines.take() else {
            return;
        };
        drop(lines);
        // One that does not read the end is killed by being dropped.
        if self.drained.recv_timeout(END_TIMEOUT).is_ok() {
            std::mem::forget(self);
        }
    }

    fn say(&mut self, line: &serde_json::Value) {
        // A view that hangs must not hold the run.
        if let Some(lines) = &self.lines
            && let Err(error) = lines.try_send(line.to_string())
        {
            self.lines = None;
            let why = match error {
                TrySendError::Full(_) => "it reads too slowly",
                TrySendError::Disconnected(_) => "it has ended",
            };
            eprintln!("live: the view shows nothing new from now on: {why}; the run goes on");
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.lines = None;
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
