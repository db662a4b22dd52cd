//! Spans: how long the parts of a request took that the load generator knows, a row each.
//!
//! A thread of its own writes the rows: the load generator never waits for the disk.

use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use serde::Serialize;
use unruly_load::Part;
use unruly_trace::{ColumnNs, SegmentMeta, Table, TableSpool};

use crate::job::Job;

/// What all rows of a process have in common.
#[derive(Debug, Clone)]
struct Origin {
    cell: String,
    repeat: u16,
    host: String,
    process: String,
    client: u16,
}

#[derive(Serialize)]
struct Row<'a> {
    cell: &'a str,
    repeat: u16,
    host: &'a str,
    process: &'a str,
    client: u16,
    server: u16,
    request: u64,
    attempt: u8,
    layer: &'a str,
    started_ns: ColumnNs,
    ended_ns: ColumnNs,
}

/// Writes rows of `spans`.
#[derive(Debug)]
pub(crate) struct Spans {
    origin: Origin,
    spool: Option<TableSpool>,
    writer: Option<Writer>,
}

#[derive(Debug)]
struct Writer {
    parts: Sender<Vec<Part>>,
    thread: JoinHandle<()>,
}

impl Spans {
    pub(crate) fn new(job: &Job, directory: &Path) -> Self {
        let meta: SegmentMeta = job.meta();
        Self {
            origin: Origin {
                cell: job.cell_name().to_owned(),
                repeat: job.repeat,
                host: job.host.clone(),
                process: job.name.clone(),
                client: job.id.unwrap_or(0),
            },
            spool: Some(TableSpool::new(Table::Spans, directory, &job.stem(), meta)),
            writer: None,
        }
    }

    /// Writes the rows of these parts.
    pub(crate) fn add(&mut self, parts: Vec<Part>) {
        if parts.is_empty() {
            return;
        }
        if let Some(spool) = self.spool.take() {
            self.writer = Some(start(self.origin.clone(), spool));
        }
        if let Some(writer) = &self.writer {
            // A writer that ended has met a full disk, which the recorder reports.
            let _ = writer.parts.send(parts);
        }
    }

    /// Waits until all rows are written.
    pub(crate) fn finish(self) {
        if let Some(Writer { parts, thread }) = self.writer {
            drop(parts);
            let _ = thread.join();
        }
    }
}

fn start(origin: Origin, mut spool: TableSpool) -> Writer {
    let (parts, taken) = channel::<Vec<Part>>();
    let thread = std::thread::spawn(move || {
        for part in taken.iter().flatten() {
            if spool.append(&row(&origin, &part)).is_err() {
                return;
            }
        }
        // What cannot be sealed stays a spool, and recovery takes it up.
        let _ = spool.seal();
    });
    Writer { parts, thread }
}

fn row<'a>(origin: &'a Origin, part: &Part) -> Row<'a> {
    Row {
        cell: &origin.cell,
        repeat: origin.repeat,
        host: &origin.host,
        process: &origin.process,
        client: origin.client,
        server: part.server,
        request: part.request,
        attempt: part.attempt,
        layer: part.layer.name(),
        started_ns: part.started_ns,
        ended_ns: part.ended_ns,
    }
}
