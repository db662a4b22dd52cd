//! The reading end: it counts what came, and keeps the latency of the messages that were stamped.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use unruly_plan::Stream;
use unruly_stream::{Account, Header, Reader, Received, listen};
use unruly_trace::{
    Clock, Counts, NULL_NS, Record, Recorder, RecorderOptions, Requests, SPOOL_ROWS_MAX, Status,
    monotonic,
};

use super::rows::Flow;
use super::{END_PATIENCE, LOOK, Rows, Times, options, schedule, tell};
use crate::client::ClientReport;
use crate::control::{Inbox, Report, report};
use crate::events::Events;
use crate::job::Job;

/// As many of a second's latencies as a line of progress needs.
const LATENCIES_MAX: usize = 1_000;

/// Phases as the spool's header names them.
const WARMUP: u8 = 0;
const MEASURE: u8 = 1;
const WIND_DOWN: u8 = 3;

pub(crate) fn run(
    job: &Job,
    stream: &Stream,
    directory: &Path,
    inbox: &Inbox,
    clock: &Clock,
    events: &mut Events,
) -> Result<()> {
    let wanted: SocketAddr = format!("{}:{}", job.listen, job.port)
        .parse()
        .with_context(|| {
            format!(
                "{}: listen is {:?}; wanted an IP address; hint: 127.0.0.1",
                job.name, job.listen
            )
        })?;
    let made = listen(&options(job, stream), wanted);
    crate::role::say_ready(made.as_ref().ok().map(|made| made.1), clock);
    if inbox.peers()?.is_none() {
        return Ok(());
    }
    if let Err(error) = &made {
        let name = stream.protocol.name();
        let text = format!("{name}: cannot listen on {wanted}: {error}");
        tell(events, "stream failed", &text, clock);
    }
    let mut done = None;
    if let Ok((mut reader, _)) = made {
        // A protocol of user mode answers only who calls it: the writer must be let in before the start.
        // What goes wrong now is told when it is read.
        let Some(start_ns) = inbox.start_while(|| {
            let _ = reader.read(LOOK, &mut |_| {});
        })?
        else {
            return Ok(());
        };
        schedule(stream, events, clock);
        let recorder = Recorder::start(RecorderOptions {
            directory: directory.to_owned(),
            stem: job.stem(),
            header: job.spool_header(vec!["message".to_owned()]),
            clock: clock.clone(),
            spool_rows_max: SPOOL_ROWS_MAX,
        })?;
        let mut reading = Reading {
            reader,
            inbox,
            rows: Rows::new(job, directory, clock, "reader", start_ns),
            books: Books {
                job,
                times: Times::new(job, stream, start_ns),
                account: Account::default(),
                recorder,
                samples: 0,
                bytes: 0,
                said: None,
                second: Second::default(),
            },
        };
        let wait_ns = u64::try_from(start_ns - monotonic().0).unwrap_or(0);
        if !inbox.stopped_within(Duration::from_nanos(wait_ns)) {
            reading.run(events, clock)?;
        }
        done = Some(reading.close(job)?);
    } else if inbox.start()?.is_some() {
        report(&Report::Drained);
    }
    inbox.wait_for_stop();
    crate::client::say_done(done);
    Ok(())
}

struct Reading<'a> {
    reader: Box<dyn Reader>,
    inbox: &'a Inbox,
    rows: Rows<'a>,
    books: Books<'a>,
}

impl Reading<'_> {
    fn run(&mut self, events: &mut Events, clock: &Clock) -> Result<()> {
        let patience_ns = i64::try_from(END_PATIENCE.as_nanos()).unwrap_or(i64::MAX);
        let latest_ns = self.books.times.end_ns + patience_ns;
        loop {
            let now_ns = monotonic().0;
            if now_ns >= self.rows.due_ns() {
                self.rows.write(self.books.take())?;
                self.books.tell_second(now_ns);
            }
            if self.inbox.is_stopped() {
                return Ok(());
            }
            if now_ns > latest_ns {
                tell(events, "stream not finished", "the end never came", clock);
                return Ok(());
            }
            let books = &mut self.books;
            let received = self.reader.read(LOOK, &mut |message| books.came(message));
            if let Err(error) = received {
                tell(events, "stream broken", &error.to_string(), clock);
                return Ok(());
            }
            match (received, books.said) {
                // A message that is late may come after the end, where they are not in order.
                (Ok(Received::Ended | Received::Nothing), Some(messages)) => {
                    books.account.end(messages);
                    return Ok(());
                }
                (Ok(Received::Ended), None) => {
                    tell(events, "peer lost", "the writer went without an end", clock);
                    return Ok(());
                }
                _ => {}
            }
        }
    }

    /// Closes the books; the connection goes first, so that a writer that waits for it need not.
    fn close(self, job: &Job) -> Result<ClientReport> {
        let Self {
            reader,
            mut rows,
            mut books,
            ..
        } = self;
        drop(reader);
        rows.write(books.take())?;
        rows.seal()?;
        report(&Report::Drained);
        let samples = books.samples;
        let (tally, recorded) = books.recorder.finish(&job.name)?;
        let counts = Counts {
            copies: tally.copies,
            requests: Requests {
                scheduled: samples,
                answered: samples,
                unanswered: 0,
            },
        };
        counts.check(&job.name)?;
        Ok(ClientReport::new(counts, recorded.failure))
    }
}

/// What came.
struct Books<'a> {
    job: &'a Job,
    times: Times,
    account: Account,
    recorder: Recorder,
    samples: u64,
    bytes: u64,
    /// How many messages there were, when the writer has said so.
    said: Option<u64>,
    second: Second,
}

/// What came since it was told last.
#[derive(Default)]
struct Second {
    told_ns: i64,
    bytes: u64,
    latencies_ns: Vec<i64>,
}

impl Books<'_> {
    fn came(&mut self, message: &[u8]) {
        let Some(header) = Header::read(self.job.cookie, message) else {
            return;
        };
        if header.end {
            self.said = Some(header.sequence);
            return;
        }
        self.bytes += message.len() as u64;
        self.second.bytes += message.len() as u64;
        self.account.came(header.sequence);
        if let Some(stamp_ns) = header.stamp_ns {
            self.sample(header.sequence, stamp_ns, message.len());
        }
    }

    /// A row of `requests`: from when the message was written until it was read.
    fn sample(&mut self, sequence: u64, stamp_ns: i64, bytes: usize) {
        let Times {
            measure_ns,
            measured_ns,
            ..
        } = self.times;
        let phase = match stamp_ns {
            early if early < measure_ns => WARMUP,
            late if late >= measured_ns => WIND_DOWN,
            _ => MEASURE,
        };
        let received_ns = monotonic().0;
        if self.second.latencies_ns.len() < LATENCIES_MAX {
            self.second.latencies_ns.push(received_ns - stamp_ns);
        }
        self.samples += 1;
        self.recorder.scheduled();
        self.recorder.record(&Record {
            intended_ns: stamp_ns,
            sent_ns: stamp_ns,
            received_ns,
            kernel_received_ns: NULL_NS,
            server_kernel_received_ns: NULL_NS,
            server_received_ns: NULL_NS,
            server_sent_ns: NULL_NS,
            request: sequence,
            key: None,
            connection: 0,
            sent_bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            received_bytes: 0,
            cell: self.job.cell,
            repeat: self.job.repeat,
            client: 0,
            server: 0,
            op: 0,
            phase,
            attempt: 0,
            level: None,
            status: Status::Ok,
            answered: true,
            provisional: false,
            supersedes: false,
        });
    }

    /// Says once a second what came in it.
    fn tell_second(&mut self, now_ns: i64) {
        if now_ns - self.second.told_ns < 1_000_000_000 {
            return;
        }
        let told = Second {
            told_ns: now_ns,
            ..Second::default()
        };
        let second = std::mem::replace(&mut self.second, told);
        report(&Report::Progress {
            scheduled: self.samples,
            dropped: self.recorder.tally().copies.dropped,
            failed: 0,
            responses_ns: second.latencies_ns,
            lag_ns: 0,
            bins: Vec::new(),
        });
        report(&Report::Flowed {
            bytes: second.bytes,
        });
    }

    fn take(&mut self) -> Flow {
        let counted = self.account.take();
        Flow {
            bytes: std::mem::take(&mut self.bytes),
            messages: counted.messages,
            lost: Some(counted.lost),
            duplicated: Some(counted.duplicated),
            reordered: Some(counted.reordered),
            in_flight: None,
        }
    }
}
