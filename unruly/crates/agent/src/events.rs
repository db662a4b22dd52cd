//! Events of a process: anything with a start and a duration.

use std::path::Path;

use serde::Serialize;
use unruly_trace::{Clock, ColumnNs, Table, TableSpool};

use crate::job::Job;

/// Writes rows of `events`.
#[derive(Debug)]
pub(crate) struct Events {
    spool: TableSpool,
    cell: String,
    repeat: u16,
    host: String,
    process: String,
}

#[derive(Serialize)]
struct EventRow<'a> {
    cell: &'a str,
    repeat: u16,
    host: &'a str,
    process: &'a str,
    kind: &'a str,
    detail: Option<&'a str>,
    started_ns: ColumnNs,
    ended_ns: Option<ColumnNs>,
}

impl Events {
    pub(crate) fn new(job: &Job, directory: &Path) -> Self {
        Self {
            spool: TableSpool::new(Table::Events, directory, &job.stem(), job.meta()),
            cell: job.cell_name().to_owned(),
            repeat: job.repeat,
            host: job.host.clone(),
            process: job.name.clone(),
        }
    }

    /// Records an event. A full disk also stops the requests, which say so; nothing more to do here.
    pub(crate) fn add(
        &mut self,
        kind: &str,
        detail: Option<&str>,
        at: (ColumnNs, Option<ColumnNs>),
    ) {
        let own = self.process.clone();
        self.add_of(&own, kind, detail, at);
    }

    /// Records an event of another process.
    pub(crate) fn add_of(
        &mut self,
        process: &str,
        kind: &str,
        detail: Option<&str>,
        at: (ColumnNs, Option<ColumnNs>),
    ) {
        let row = EventRow {
            cell: &self.cell,
            repeat: self.repeat,
            host: &self.host,
            process,
            kind,
            detail,
            started_ns: at.0,
            ended_ns: at.1,
        };
        let _ = self.spool.append(&row);
    }

    /// Records an instant: now.
    pub(crate) fn now(&mut self, kind: &str, detail: Option<&str>, clock: &Clock) {
        self.add(kind, detail, (clock.column_now(), None));
    }

    pub(crate) fn seal(&mut self) {
        // What cannot be sealed stays a spool, and recovery takes it up.
        let _ = self.spool.seal();
    }
}
