//! Receives the spans that services export, by OTLP over HTTP, while the run lasts.
//!
//! A request names its trace in its `traceparent`; the second half of a trace's id is a bijection of
//! the request's number. So each span finds its request again, and no other process need be asked.

mod keeper;
mod message;
mod server;

use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use unruly_plan::Drive;
use unruly_trace::{ColumnNs, MonoNs, Table, TableSpool, monotonic};

use crate::control::{Report, report};
use crate::events::Events;
use crate::ground::Ground;
use crate::job::Job;
use keeper::{Counts, Keeper, SETTLE_NS, Trace};

const TICK: Duration = Duration::from_millis(500);
/// Rows of a segment: what sealing one takes in memory.
const SEGMENT_ROWS: u64 = 10_000;
/// The event at the end, whose detail has the numbers of spans by their fate.
const COUNTED: &str = "spans received";
const KINDS: [&str; 6] = ["", "internal", "server", "client", "producer", "consumer"];

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
    /// The bits of the id.
    span_id: i64,
    parent_id: Option<i64>,
    service: &'a str,
    kind: Option<&'a str>,
    failed: bool,
}

pub(crate) fn run(ground: Ground<'_>, drive: &Drive, events: &mut Events) -> Result<()> {
    let Ground {
        job, inbox, clock, ..
    } = ground;
    let address = drive.spans().context(
        "drive.spans: missing; wanted an address; hint: this is a defect, please report it",
    )?;
    let listener = TcpListener::bind(address).with_context(|| {
        format!(
            "drive.spans: cannot listen on {address}; hint: choose another port, and \
             give it to the services in OTEL_EXPORTER_OTLP_ENDPOINT"
        )
    })?;
    let own = listener.local_addr()?;
    let clients = 0..drive.processes;
    let clients = clients.map(|client| (crate::drive::trace_key_of(job, client), client));
    let keeper = Arc::new(Mutex::new(Keeper::new(clients.collect::<HashMap<_, _>>())));
    let refused = Arc::new(AtomicU64::new(0));
    server::serve(listener, Arc::clone(&keeper), Arc::clone(&refused))?;
    crate::role::say_ready(Some(own), clock);
    if inbox.peers()?.is_none() || inbox.start()?.is_none() {
        crate::client::say_done(None);
        return Ok(());
    }
    report(&Report::Drained);
    let mut writer = Writer::new(ground);
    let mut until_ns: Option<MonoNs> = None;
    loop {
        // Exporters let the last spans wait for some seconds.
        if until_ns.is_none() && inbox.stopped_within(TICK) {
            report(&Report::Note {
                text: "waits 6 s for the last spans".to_owned(),
            });
            until_ns = Some(monotonic() + SETTLE_NS);
        } else if until_ns.is_some() {
            std::thread::sleep(TICK);
        }
        let over = until_ns.is_some_and(|it| monotonic() >= it);
        writer.write(&keeper, over)?;
        if over {
            break;
        }
    }
    let keeper = keeper.lock().unwrap_or_else(PoisonError::into_inner);
    let refused = refused.load(Ordering::Relaxed);
    let told = told(keeper.counts, refused, keeper.level());
    events.now(COUNTED, Some(&told), clock);
    drop(keeper);
    writer.spool.seal()?;
    crate::client::say_done(None);
    Ok(())
}

fn told(counts: Counts, refused: u64, level: u32) -> String {
    let Counts {
        received,
        kept,
        foreign,
        damaged,
        early,
        late,
    } = counts;
    format!(
        "received {received}, kept {kept}, foreign {foreign}, damaged {damaged}, early {early}, \
         late {late}, refused {refused}, level {level}"
    )
}

/// Writes rows of `spans`.
struct Writer<'a> {
    job: &'a Job,
    spool: TableSpool,
    rows: u64,
}

impl<'a> Writer<'a> {
    fn new(ground: Ground<'a>) -> Self {
        let Ground { job, directory, .. } = ground;
        Self {
            job,
            spool: TableSpool::new(Table::Spans, directory, &job.stem(), job.meta()),
            rows: 0,
        }
    }

    /// Writes the traces that are to be kept.
    fn write(&mut self, keeper: &Mutex<Keeper>, all: bool) -> Result<()> {
        let lock = || keeper.lock().unwrap_or_else(PoisonError::into_inner);
        let settled = lock().settled(monotonic(), all);
        for trace in &settled {
            // the lock is held for the names of one trace at a time: spans go on coming
            self.write_trace(&lock(), trace)?;
        }
        Ok(())
    }

    fn write_trace(&mut self, keeper: &Keeper, ((client, request), spans): &Trace) -> Result<()> {
        for span in spans {
            let kind = KINDS.get(usize::from(span.kind)).copied();
            self.spool.append(&Row {
                cell: self.job.cell_name(),
                repeat: self.job.repeat,
                host: &self.job.host,
                process: &self.job.name,
                client: *client,
                server: 0,
                request: *request,
                attempt: 0,
                layer: keeper.name(span.name),
                started_ns: span.started_ns,
                ended_ns: span.ended_ns,
                span_id: span.id.cast_signed(),
                parent_id: (span.parent != 0).then_some(span.parent.cast_signed()),
                service: keeper.service(span.service),
                kind: kind.filter(|it| !it.is_empty()),
                failed: span.failed,
            })?;
            self.rows += 1;
            if self.rows.is_multiple_of(SEGMENT_ROWS) {
                self.spool.seal()?;
            }
        }
        Ok(())
    }
}
