//! One call a second: read everything, report what happened since the call before.

use std::path::{Path, PathBuf};

use unruly_trace::{ColumnNs, DurationNs};

use super::cgroup::Mounts;
use super::clock::thread_cpu_ns;
use super::file::{Buffer, Keep, KeptFile};
use super::host::HostProbe;
use super::process::{Outcome, ProcessProbe};
use super::row::ResourceRow;

/// A process under test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    /// Its name in the run.
    pub name: String,
    /// Its number on this host.
    pub pid: u32,
}

/// Samples the host that it runs on, and processes on that host.
///
/// It owns no thread and no clock. The caller of [`Sampler::sample`] passes the current time.
#[derive(Debug)]
pub struct Sampler {
    buffer: Buffer,
    mounts: Mounts,
    host: HostProbe,
    /// Those that have not ended.
    processes: Vec<ProcessProbe>,
    sampled_ns: Option<ColumnNs>,
    cost_ns: DurationNs,
    root: PathBuf,
    keep: Keep,
}

impl Sampler {
    /// A sampler of this host and of `watched` processes on it.
    #[must_use]
    pub fn new(watched: Vec<Watched>) -> Self {
        Self::build(Path::new("/"), watched, Keep::Open)
    }

    /// A sampler of a tree that holds `proc` and `sys`, for tests. Its files are opened anew for
    /// each sample, as they may come and go.
    #[must_use]
    pub fn with_root(root: &Path, watched: Vec<Watched>) -> Self {
        Self::build(root, watched, Keep::Reopen)
    }

    fn build(root: &Path, watched: Vec<Watched>, keep: Keep) -> Self {
        let mut buffer = Buffer::new();
        let mut mountinfo = KeptFile::new(root.join("proc/self/mountinfo"), Keep::Reopen);
        let mounts = Mounts::parse(mountinfo.read(&mut buffer).unwrap_or_default(), root);
        let host = HostProbe::new(root, &mounts, keep, &mut buffer);
        let processes = watched
            .into_iter()
            .map(|watched| ProcessProbe::new(root, watched.name, watched.pid, keep))
            .collect();
        Self {
            buffer,
            mounts,
            host,
            processes,
            sampled_ns: None,
            cost_ns: DurationNs::ZERO,
            root: root.to_owned(),
            keep,
        }
    }

    /// Watches these processes from now on. Those that it watched already go on without a gap.
    pub fn watch(&mut self, watched: Vec<Watched>) {
        let known = |it: &Watched, all: &[ProcessProbe]| all.iter().any(|probe| probe.is_of(it));
        self.processes
            .retain(|probe| watched.iter().any(|it| probe.is_of(it)));
        for fresh in watched {
            if !known(&fresh, &self.processes) {
                let probe = ProcessProbe::new(&self.root, fresh.name, fresh.pid, self.keep);
                self.processes.push(probe);
            }
        }
    }

    /// Samples everything at `now_ns`, when `due_ns` was the time to do so; both in column time.
    ///
    /// Gives the host's row first and then one for each watched process that is still there, over
    /// the interval since the call before. The first call only sets the baseline and gives no row,
    /// and neither does a call whose time is not after the one before.
    pub fn sample(&mut self, now_ns: ColumnNs, due_ns: ColumnNs) -> Vec<ResourceRow> {
        let began_ns = thread_cpu_ns();
        if self
            .sampled_ns
            .is_some_and(|sampled_ns| now_ns <= sampled_ns)
        {
            return Vec::new();
        }
        let template = self
            .sampled_ns
            .replace(now_ns)
            .map(|started_ns| ResourceRow {
                started_ns,
                ended_ns: now_ns,
                sampler_lag_ns: now_ns.saturating_since(due_ns),
                sampler_cost_ns: self.cost_ns,
                ..ResourceRow::default()
            });
        let rows = self.read_all(template.as_ref());
        self.cost_ns = thread_cpu_ns() - began_ns;
        rows
    }

    fn read_all(&mut self, template: Option<&ResourceRow>) -> Vec<ResourceRow> {
        let mut rows = Vec::with_capacity(1 + self.processes.len());
        self.host.read(&mut self.buffer);
        if let Some(template) = template {
            let mut row = template.clone();
            self.host.fill(&mut row);
            rows.push(row);
        }
        self.processes.retain_mut(|process| {
            let outcome = process.read(&self.mounts, &mut self.buffer);
            if let (Outcome::Row, Some(template)) = (outcome, template) {
                let mut row = template.clone();
                process.fill(&mut row);
                rows.push(row);
            }
            outcome != Outcome::Gone
        });
        rows
    }
}

#[cfg(test)]
#[path = "sampler_tests.rs"]
mod tests;
