//! What a trial writes down of itself: its events, and who took part.

use std::path::Path;

use unruly_plan::{Drive, Load, Plan};
use unruly_trace::{
    ColumnNs, DurationNs, MonoNs, Process, SegmentMeta, Table, TableSpool, grouped,
};

use super::Run;
use super::child::Child;
use super::progress::Progress;
use super::trial::{Trial, nanoseconds};
use crate::reach::Clocks;
use crate::services::{Services, pauses};

/// The rate was not reached if more than one request in `LATE_SHARE` was late,
const LATE_SHARE: u64 = 100;
/// and if the latest one was late by more than the run's duration divided by `BEHIND`.
const BEHIND: i64 = 10;

impl Trial<'_> {
    /// Writes the final precision of the estimates to the trace, if the run has a stop rule.
    pub(super) fn tell_until(&mut self) {
        let Some(judge) = self.judge.take() else {
            return;
        };
        let last = judge.last.as_ref();
        let said = last.map_or("the run was too short for a result", |look| &look.said);
        let reached = last.is_some_and(|look| look.enough);
        let kind = if reached {
            "until reached"
        } else {
            "until not reached"
        };
        let now = (self.clock.column_now(), None);
        self.event(kind, "runner", Some(said), now);
    }

    /// Writes down how many requests a second were sent where that is less than the schedule had, and
    /// says so. `loaded` is how many each process had sent before it.
    pub(super) fn tell_reached(&mut self, loaded: &[u64], progress: &Progress) {
        let counts = self.processes.children.iter().zip(loaded);
        let counts = counts.filter_map(|(child, loaded)| Some((child.counts.as_ref()?, loaded)));
        let (mut sent, mut unsent, mut late) = (0, 0, 0);
        let mut late_max = DurationNs::ZERO;
        for (counts, loaded) in counts {
            let requests = &counts.requests;
            sent += requests.scheduled.saturating_sub(*loaded);
            unsent += requests.unsent;
            late += requests.late;
            late_max = requests.late_max_ns.max(late_max);
        }
        let Load::Drive(Drive { timeout, .. }) = &self.plan.load else {
            return;
        };
        let run = &self.plan.run;
        let planned = nanoseconds(run.warmup).saturating_add(nanoseconds(run.duration));
        let behind = late > sent / LATE_SHARE && late_max > planned / BEHIND;
        if unsent == 0 && !behind {
            return;
        }
        let over = if unsent == 0 {
            late_max
        } else {
            nanoseconds(*timeout)
        };
        let who = if self.plan.reached.is_empty() {
            "this host"
        } else {
            "the hosts"
        };
        let told = format!(
            "{who} reached {} of {} requests per second",
            grouped(per_second(sent, planned.saturating_add(over))),
            grouped(per_second(sent + unsent, planned))
        );
        let how = if unsent == 0 {
            let late_s = late_max.as_secs_f64();
            format!("it was up to {late_s:.1} s late with its schedule")
        } else {
            format!("{} were never sent", grouped(unsent))
        };
        progress.note(&format!("{told}; {how}"));
        let now = (self.clock.column_now(), None);
        self.event("rate not reached", "runner", Some(&told), now);
    }

    /// Writes down that the clock of a host, or ours, was set during the trial.
    pub(super) fn tell_steps(&mut self) {
        let children = self.processes.children.iter();
        let steps = children.filter_map(|child| {
            let steps = child.clocks(Clocks::steps).filter(|it| *it > 0)?;
            Some((child.job.name.clone(), steps))
        });
        let steps: Vec<(String, u32)> = steps.collect();
        for (process, steps) in steps {
            let told = format!("the clock of its host was set {steps} times");
            let now = (self.clock.column_now(), None);
            self.event("clock step", &process, Some(&told), now);
        }
    }

    /// Writes the pauses in the logs of all JVMs to the trace, from the start of the run.
    pub(super) fn tell_pauses(&mut self, started_ns: MonoNs) {
        let logs = self.run.directory.join("logs");
        // The logs of another host have the times of its own clock.
        let own = self
            .processes
            .children
            .iter()
            .filter(|it| it.reached.is_none());
        let own = own.flat_map(|child| {
            let log = logs.join(format!("{}.gc", child.job.stem()));
            let told = pauses(&log.display().to_string()).into_iter();
            told.map(|pause| (child.job.name.clone(), pause))
        });
        let services = self.processes.services.as_ref().map(Services::pauses);
        let all: Vec<_> = own.chain(services.unwrap_or_default()).collect();
        for (process, pause) in all {
            if MonoNs(pause.ended_ns) >= started_ns {
                let span = [pause.started_ns, pause.ended_ns];
                let [started_ns, ended_ns] = span.map(|at| self.clock.column(MonoNs(at)));
                let span = (started_ns, Some(ended_ns));
                self.event(pause.kind, &process, Some(&pause.detail), span);
            }
        }
    }

    /// Writes down what happened to a process, from when until when.
    pub(super) fn event(
        &mut self,
        kind: &str,
        process: &str,
        detail: Option<&str>,
        (started_ns, ended_ns): (ColumnNs, Option<ColumnNs>),
    ) {
        let host = self.processes.host_of(process);
        // Rows and samples of a process have the time of its host.
        let ahead = self.processes.ahead_of(process);
        let (started_ns, ended_ns) = (started_ns + ahead, ended_ns.map(|it| it + ahead));
        let row = serde_json::json!({
            "cell": self.run.cells[self.cell].name, "repeat": self.repeat, "host": host,
            "process": process, "kind": kind, "detail": detail,
            "started_ns": started_ns, "ended_ns": ended_ns,
        });
        if let Err(error) = self.events.append(&row) {
            self.missing
                .push(format!("an event ({kind}) is missing: {error}"));
        }
    }

    /// All that take part, as they are now.
    pub(super) fn process_rows(&self) -> Vec<Process> {
        let own = self
            .processes
            .children
            .iter()
            .map(|child| self.process(child));
        own.chain(self.service_processes()).collect()
    }

    fn service_processes(&self) -> impl Iterator<Item = Process> {
        let children = self.processes.services.iter().flat_map(|it| {
            let version = &it.version;
            it.children.iter().map(move |child| (child, version))
        });
        children.map(|(child, version)| Process {
            name: child.name.clone(),
            kind: "service".to_owned(),
            id: None,
            cell: self.run.cells[self.cell].name.clone(),
            repeat: self.repeat,
            host: self.processes.hosts.name(0),
            pid: Some(child.process.pid()),
            runtime: version.clone(),
            tier: child.tier.clone(),
            exit: child.process.exit(),
            counts: None,
        })
    }

    fn process(&self, child: &Child) -> Process {
        Process {
            name: child.job.name.clone(),
            kind: child.job.kind.name().to_owned(),
            id: child.job.id,
            cell: self.run.cells[self.cell].name.clone(),
            repeat: self.repeat,
            host: child.job.host.clone(),
            pid: Some(child.own_pid()),
            runtime: if child.job.needs_jvm() {
                "jvm"
            } else {
                "native"
            }
            .to_owned(),
            tier: None,
            exit: child.process.exit(),
            counts: child.counts.clone(),
        }
    }
}

fn per_second(count: u64, time: DurationNs) -> u64 {
    let rate = u128::from(count) * 1_000_000_000 / time.to_std().as_nanos().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// Where the events of a trial are written.
pub(super) fn events_of(run: &Run, plan: &Plan, cell: usize, repeat: u16) -> TableSpool {
    let meta = SegmentMeta {
        run: run.id.clone(),
        host: "local".to_owned(),
        process: "runner".to_owned(),
        tag: plan.tag.clone(),
    };
    let directory: &Path = &run.directory;
    TableSpool::new(
        Table::Events,
        directory,
        &format!("runner-c{cell}r{repeat}"),
        meta,
    )
}
