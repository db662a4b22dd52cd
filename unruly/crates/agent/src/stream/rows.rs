//! What flowed, and what it cost: a row of `intervals` for each tenth of a second.

use anyhow::Result;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use serde::Serialize;
use unruly_trace::{Clock, ColumnNs, DurationNs, MonoNs, Table, TableSpool, monotonic};

use crate::ground::Ground;
use crate::job::Job;

/// From one row to the next.
pub(crate) const PERIOD: DurationNs = DurationNs::millis(100);

/// Writes rows of `intervals`.
pub(crate) struct Rows<'a> {
    job: &'a Job,
    clock: &'a Clock,
    spool: TableSpool,
    side: &'static str,
    started_ns: MonoNs,
    cpu_ns: DurationNs,
    helper: Option<Helper>,
}

/// A process beside this one: what it costs is a part of what this one does.
#[derive(Debug, Clone, Copy)]
struct Helper {
    pid: Pid,
    /// What it had used when it was seen last.
    cpu_ns: DurationNs,
}

/// What flowed in an interval.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Flow {
    pub(crate) bytes: u64,
    pub(crate) messages: u64,
    pub(crate) lost: Option<u64>,
    pub(crate) duplicated: Option<u64>,
    pub(crate) reordered: Option<u64>,
    pub(crate) in_flight: Option<u64>,
}

/// What it cost.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Cost {
    pub(crate) cpu_ns: DurationNs,
    pub(crate) rss_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Row<'a> {
    cell: &'a str,
    repeat: u16,
    host: &'a str,
    process: &'a str,
    side: &'a str,
    started_ns: ColumnNs,
    ended_ns: ColumnNs,
    #[serde(flatten)]
    flow: Flow,
    #[serde(flatten)]
    cost: Cost,
}

impl<'a> Rows<'a> {
    /// Rows from then on.
    pub(crate) fn new(ground: Ground<'a>, side: &'static str, started_ns: MonoNs) -> Self {
        let Ground {
            job,
            directory,
            clock,
            ..
        } = ground;
        Self {
            job,
            clock,
            spool: TableSpool::new(Table::Intervals, directory, &job.stem(), job.meta()),
            side,
            started_ns,
            cpu_ns: own_cpu_ns(),
            helper: None,
        }
    }

    /// The same with a process beside this one, if there is one.
    pub(crate) fn with_helper(mut self, pid: Option<u32>) -> Self {
        self.helper = pid.map(|pid| Helper {
            pid: Pid::from_raw(pid.cast_signed()),
            cpu_ns: DurationNs::ZERO,
        });
        self.cpu_ns = self.used_ns();
        self
    }

    /// When the next row is due.
    pub(crate) fn due_ns(&self) -> MonoNs {
        self.started_ns + PERIOD
    }

    /// Writes the row that ends now. Returns the memory that this process holds.
    ///
    /// A process that was not let run for a while has a row that is longer than the others: what it did
    /// in which part of it nobody knows.
    pub(crate) fn write(&mut self, flow: Flow) -> Result<Option<u64>> {
        let (now_ns, cpu_ns, rss_bytes) = (monotonic(), self.used_ns(), self.rss_bytes());
        if now_ns <= self.started_ns {
            // It was stopped before it began.
            return Ok(rss_bytes);
        }
        let cost = Cost {
            cpu_ns: cpu_ns - self.cpu_ns,
            rss_bytes,
        };
        self.append(self.side, (self.started_ns, now_ns), flow, cost)?;
        (self.started_ns, self.cpu_ns) = (now_ns, cpu_ns);
        Ok(rss_bytes)
    }

    /// Writes a row of another process's telling, from when until when.
    pub(crate) fn append(
        &mut self,
        side: &str,
        (started_ns, ended_ns): (MonoNs, MonoNs),
        flow: Flow,
        cost: Cost,
    ) -> Result<()> {
        let row = Row {
            cell: self.job.cell_name(),
            repeat: self.job.repeat,
            host: &self.job.host,
            process: &self.job.name,
            side,
            started_ns: self.clock.column(started_ns),
            ended_ns: self.clock.column(ended_ns),
            flow,
            cost,
        };
        Ok(self.spool.append(&row)?)
    }

    /// Processor time of this process, and of the one beside it. One that is gone has used what it had used.
    fn used_ns(&mut self) -> DurationNs {
        let beside = self.helper.as_mut().map_or(DurationNs::ZERO, |helper| {
            helper.cpu_ns = cpu_ns_of(helper.pid).unwrap_or(helper.cpu_ns);
            helper.cpu_ns
        });
        own_cpu_ns() + beside
    }

    fn rss_bytes(&self) -> Option<u64> {
        let own = rss_bytes_of("self")?;
        let beside = self.helper.map(|it| rss_bytes_of(&it.pid.to_string()));
        Some(own + beside.flatten().unwrap_or(0))
    }

    pub(crate) fn seal(&mut self) -> Result<()> {
        Ok(self.spool.seal()?)
    }
}

/// Processor time of this process.
pub(crate) fn own_cpu_ns() -> DurationNs {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
    time.map_or(DurationNs::ZERO, time_of)
}

/// Processor time of another process, while it is there.
fn cpu_ns_of(pid: Pid) -> Option<DurationNs> {
    clock_gettime(clock_getcpuclockid(pid).ok()?)
        .ok()
        .map(time_of)
}

fn time_of(spec: TimeSpec) -> DurationNs {
    DurationNs::seconds(spec.tv_sec()) + DurationNs(spec.tv_nsec())
}

fn rss_bytes_of(process: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/statm")).ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    // SAFETY: it reads a constant of the system.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Some(pages * u64::try_from(page_bytes).ok()?)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn another_process_has_its_own_time_and_memory_until_it_is_gone() {
        let mut command = Command::new("cat");
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let pid = Pid::from_raw(child.id().cast_signed());
        assert!(cpu_ns_of(pid).is_some_and(|it| it >= DurationNs::ZERO));
        assert!(rss_bytes_of(&pid.to_string()).is_some());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(cpu_ns_of(pid), None);
        assert_eq!(rss_bytes_of(&pid.to_string()), None);
    }
}
