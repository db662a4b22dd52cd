//! What collectors of virtual machines did, and the competing load that gives them work.

use std::time::Duration;

use anyhow::{Result, bail};
use serde::Serialize;
use unruly_trace::{Clock, MonoNs, Table, TableSpool};

use crate::client::say_done;
use crate::foreign::Command;
use crate::foreign::{Foreign, Interval, Record, load_words};
use crate::ground::Ground;
use crate::job::Job;
use crate::stream::{Cost, Flow, Rows};

/// To build a heap.
const HELLO_PATIENCE: Duration = Duration::from_secs(45);
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
    at_ns: i64,
    collections: i64,
    collection_ns: i64,
    load_cpu_ns: Option<i64>,
}

#[derive(Serialize)]
struct Row<'a> {
    cell: &'a str,
    repeat: u16,
    host: &'a str,
    process: &'a str,
    watched: &'a str,
    started_ns: i64,
    ended_ns: i64,
    sampler_lag_ns: i64,
    sampler_cost_ns: i64,
    gc_count: i64,
    gc_ns: i64,
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

    /// Takes what a virtual machine tells of its collector; other records are nothing to it.
    pub(crate) fn hear(&mut self, record: &Record, rows: &mut Rows<'_>) -> Result<()> {
        let Record::Collector {
            at_ns,
            collections,
            collection_ns,
            load_cpu_ns,
        } = *record
        else {
            return Ok(());
        };
        let now = Sums {
            at_ns,
            collections,
            collection_ns,
            load_cpu_ns,
        };
        let Some(before) = self.before.replace(now) else {
            return Ok(());
        };
        let row = Row {
            cell: self.job.cell_name(),
            repeat: self.job.repeat,
            host: &self.job.host,
            process: &self.job.name,
            watched: &self.job.name,
            started_ns: self.clock.column(MonoNs(before.at_ns)),
            ended_ns: self.clock.column(MonoNs(at_ns)),
            sampler_lag_ns: 0,
            sampler_cost_ns: 0,
            gc_count: collections - before.collections,
            gc_ns: collection_ns - before.collection_ns,
        };
        self.spool.append(&row)?;
        if let (Some(cpu_ns), Some(earlier_ns)) = (load_cpu_ns, before.load_cpu_ns) {
            let cost = Cost {
                cpu_ns: cpu_ns - earlier_ns,
                rss_bytes: None,
            };
            rows.append("compete", (before.at_ns, at_ns), Flow::default(), cost)?;
        }
        Ok(())
    }

    pub(crate) fn seal(&mut self) -> Result<()> {
        Ok(self.spool.seal()?)
    }
}

/// The collector's workload as a process of its own, beside a load that is none of Java's.
pub(crate) fn run(ground: Ground<'_>) -> Result<()> {
    let Ground {
        job, inbox, clock, ..
    } = ground;
    let words = [vec!["collector".to_owned()], load_words(job)].concat();
    let mut foreign = Foreign::start(ground, &words)?;
    let hello = |record: &Record| matches!(record, Record::Hello { .. }).then_some(());
    if let Err(text) = foreign.wait_for(inbox, HELLO_PATIENCE, hello) {
        bail!("{}: {text}", job.name);
    }
    crate::role::say_ready(None, clock);
    if inbox.peers()?.is_none() {
        return Ok(());
    }
    let Some(start_ns) = inbox.start()? else {
        return Ok(());
    };
    let mut rows = Rows::new(ground, "compete", start_ns);
    let mut collections = Collections::new(ground);
    let mut told = false;
    loop {
        if inbox.is_stopped() && !told {
            told = true;
            foreign.say(Command::Stop);
        }
        match foreign.hear(LOOK) {
            Ok(Some(Record::Interval(interval))) => append(&mut rows, interval)?,
            // Its own processor time is in its intervals.
            Ok(Some(record @ Record::Collector { .. })) => {
                collections.hear(&without_load(record), &mut rows)?;
            }
            Ok(Some(Record::Failure(text))) => bail!("{}: {text}", job.name),
            Ok(Some(Record::Done)) => break,
            Ok(_) => {}
            Err(_) if told => break,
            Err(error) => bail!(
                "{}: java is gone: {error}; wanted it to the end; hint: see its log",
                job.name
            ),
        }
    }
    rows.seal()?;
    collections.seal()?;
    drop(foreign);
    inbox.wait_for_stop();
    say_done(None);
    Ok(())
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

fn without_load(record: Record) -> Record {
    match record {
        Record::Collector {
            at_ns,
            collections,
            collection_ns,
            ..
        } => Record::Collector {
            at_ns,
            collections,
            collection_ns,
            load_cpu_ns: None,
        },
        other => other,
    }
}
