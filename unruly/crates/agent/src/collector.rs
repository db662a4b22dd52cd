//! What collectors of virtual machines did, and the competing load that gives them work.

use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use unruly_trace::{Clock, ColumnNs, DurationNs, MonoNs, Table, TableSpool};

use crate::client::say_done;
use crate::events::Events;
use crate::foreign::{Command, Foreign, Interval, Record, load_words, say_dropped};
use crate::ground::Ground;
use crate::job::Job;
use crate::role::{say_ready, say_ready_by};
use crate::stream::{Cost, Flow, Rows, log_event};

/// To build a heap.
const HELLO_TIMEOUT: Duration = Duration::from_secs(45);
/// The event that says so.
const FAILED: &str = "load failed";
const LOOK: Duration = Duration::from_millis(50);

/// Rows of `resources` with what a collector did, and of `intervals` with what its load cost.
pub(crate) struct Collections<'a> {
    job: &'a Job,
    clock: &'a Clock,
    spool: TableSpool,
    before: Option<Sums>,
}

/// What it had done by then since the virtual machine began.
#[derive(Debug, Clone, Copy)]
struct Sums {
    at_ns: MonoNs,
    collections: i64,
    collection_ns: DurationNs,
    load_cpu_ns: Option<DurationNs>,
}

/// What a competing load cost between two looks.
pub(crate) struct Spent {
    times: (MonoNs, MonoNs),
    cost: Cost,
}

impl Spent {
    pub(crate) fn write(self, rows: &mut Rows<'_>) -> Result<()> {
        rows.append("compete", self.times, Flow::default(), self.cost)
    }
}

#[derive(Serialize)]
struct Row<'a> {
    cell: &'a str,
    repeat: u16,
    host: &'a str,
    process: &'a str,
    watched: &'a str,
    started_ns: ColumnNs,
    ended_ns: ColumnNs,
    sampler_lag_ns: DurationNs,
    sampler_cost_ns: DurationNs,
    gc_count: i64,
    gc_ns: DurationNs,
}

impl<'a> Collections<'a> {
    pub(crate) fn new(ground: Ground<'a>) -> Self {
        let Ground {
            job,
            directory,
            clock,
            ..
        } = ground;
        Self {
            job,
            clock,
            spool: TableSpool::new(Table::Resources, directory, &job.stem(), job.meta()),
            before: None,
        }
    }

    /// Counts a JVM's report about its garbage collector, and ignores other records. Returns the
    /// cost of a load within the JVM since the last report.
    pub(crate) fn hear(&mut self, record: &Record) -> Result<Option<Spent>> {
        let Record::Collector {
            at_ns,
            collections,
            collection_ns,
            load_cpu_ns,
        } = *record
        else {
            return Ok(None);
        };
        let now = Sums {
            at_ns,
            collections,
            collection_ns,
            load_cpu_ns,
        };
        let Some(before) = self.before.replace(now) else {
            return Ok(None);
        };
        let row = Row {
            cell: self.job.cell_name(),
            repeat: self.job.repeat,
            host: &self.job.host,
            process: &self.job.name,
            watched: &self.job.name,
            started_ns: self.clock.column(before.at_ns),
            ended_ns: self.clock.column(at_ns),
            sampler_lag_ns: DurationNs::ZERO,
            sampler_cost_ns: DurationNs::ZERO,
            gc_count: collections - before.collections,
            gc_ns: collection_ns - before.collection_ns,
        };
        self.spool.append(&row)?;
        let spent = load_cpu_ns.zip(before.load_cpu_ns);
        Ok(spent.map(|(cpu_ns, earlier_ns)| Spent {
            times: (before.at_ns, at_ns),
            cost: Cost {
                cpu_ns: cpu_ns - earlier_ns,
                rss_bytes: None,
            },
        }))
    }

    pub(crate) fn seal(&mut self) -> Result<()> {
        Ok(self.spool.seal()?)
    }
}

/// Runs the collector's workload in its own JVM, next to a load that does not run on a JVM. A
/// failure is a result: the load is measured without the workload, and the cell is marked as
/// doubtful.
pub(crate) fn run(ground: Ground<'_>, events: &mut Events) -> Result<()> {
    let Ground { inbox, clock, .. } = ground;
    let begun = begin(ground);
    match &begun {
        Ok(foreign) => say_ready_by(foreign.pid(), None, clock),
        Err(text) => {
            log_event(events, FAILED, text, clock);
            say_ready(None, clock);
        }
    }
    if inbox.peers()?.is_none() {
        return Ok(());
    }
    let Some(start_ns) = inbox.start()? else {
        return Ok(());
    };
    if let Ok(foreign) = begun
        && let Some(text) = listen(ground, foreign, start_ns)?
    {
        log_event(events, FAILED, &text, clock);
    }
    inbox.wait_for_stop();
    say_done(None);
    Ok(())
}

fn begin(ground: Ground<'_>) -> Result<Foreign, String> {
    let words = [vec!["collector".to_owned()], load_words(ground.job)].concat();
    let mut foreign = Foreign::start(ground, &words).map_err(|error| format!("{error:#}"))?;
    let hello = |record: &Record| matches!(record, Record::Hello { .. }).then_some(());
    foreign.wait_for(ground.inbox, HELLO_TIMEOUT, hello)?;
    Ok(foreign)
}

/// Listens until it is stopped. Returns why it ended before, if it did.
fn listen(ground: Ground<'_>, mut foreign: Foreign, start_ns: MonoNs) -> Result<Option<String>> {
    let mut rows = Rows::new(ground, "compete", start_ns);
    let mut collections = Collections::new(ground);
    let mut told = false;
    let failed = loop {
        if ground.inbox.is_stopped() && !told {
            told = true;
            foreign.say(Command::Stop);
        }
        match foreign.hear(LOOK) {
            Ok(Some(Record::Interval(interval))) => append(&mut rows, interval)?,
            // Its own processor time is in its intervals.
            Ok(Some(record @ Record::Collector { .. })) => {
                collections.hear(&record)?;
            }
            Ok(Some(Record::Dropped(records))) => say_dropped(records),
            Ok(Some(Record::Failure(text))) => break Some(text),
            Ok(Some(Record::Done)) => break None,
            Ok(_) => {}
            Err(_) if told => break None,
            Err(error) => break Some(format!("java is gone: {error}; hint: see its log")),
        }
    };
    rows.seal()?;
    collections.seal()?;
    Ok(failed)
}

fn append(rows: &mut Rows<'_>, it: Interval) -> Result<()> {
    let cost = Cost {
        cpu_ns: it.cpu_ns,
        rss_bytes: it.rss_bytes,
    };
    rows.append(
        "compete",
        (it.started_ns, it.ended_ns),
        Flow::default(),
        cost,
    )
}
