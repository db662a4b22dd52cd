//! What flowed, and what it cost: a row of `intervals` for each tenth of a second.

use anyhow::Result;
use nix::time::{ClockId, clock_gettime};
use serde::Serialize;
use unruly_trace::{Clock, MonoNs, Table, TableSpool, monotonic};

use crate::ground::Ground;
use crate::job::Job;

/// From one row to the next.
pub(crate) const PERIOD_NS: i64 = 100_000_000;

/// Writes rows of `intervals`.
pub(crate) struct Rows<'a> {
    job: &'a Job,
    clock: &'a Clock,
    spool: TableSpool,
    side: &'static str,
    started_ns: i64,
    cpu_ns: i64,
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
    pub(crate) cpu_ns: i64,
    pub(crate) rss_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Row<'a> {
    cell: &'a str,
    repeat: u16,
    host: &'a str,
    process: &'a str,
    side: &'a str,
    started_ns: i64,
    ended_ns: i64,
    #[serde(flatten)]
    flow: Flow,
    #[serde(flatten)]
    cost: Cost,
}

impl<'a> Rows<'a> {
    /// Rows from then on.
    pub(crate) fn new(ground: Ground<'a>, side: &'static str, started_ns: i64) -> Self {
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
        }
    }

    /// When the next row is due.
    pub(crate) fn due_ns(&self) -> i64 {
        self.started_ns + PERIOD_NS
    }

    /// Writes the row that ends now. Returns the memory that this process holds.
    ///
    /// A process that was not let run for a while has a row that is longer than the others: what it did
    /// in which part of it nobody knows.
    pub(crate) fn write(&mut self, flow: Flow) -> Result<Option<u64>> {
        let (now_ns, cpu_ns, rss_bytes) = (monotonic().0, own_cpu_ns(), own_rss_bytes());
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
        (started_ns, ended_ns): (i64, i64),
        flow: Flow,
        cost: Cost,
    ) -> Result<()> {
        let row = Row {
            cell: self.job.cell_name(),
            repeat: self.job.repeat,
            host: &self.job.host,
            process: &self.job.name,
            side,
            started_ns: self.clock.column(MonoNs(started_ns)),
            ended_ns: self.clock.column(MonoNs(ended_ns)),
            flow,
            cost,
        };
        Ok(self.spool.append(&row)?)
    }

    pub(crate) fn seal(&mut self) -> Result<()> {
        Ok(self.spool.seal()?)
    }
}

/// Processor time of this process.
pub(crate) fn own_cpu_ns() -> i64 {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
    time.map_or(0, |it| it.tv_sec() * 1_000_000_000 + it.tv_nsec())
}

fn own_rss_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    // SAFETY: it reads a constant of the system.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Some(pages * u64::try_from(page_bytes).ok()?)
}
