//! The reading end. It counts the received messages, and keeps the latency of the stamped ones.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use unruly_plan::Stream;
use unruly_stream::{Account, Header, Reader, Received, listen};
use unruly_trace::{Clock, DurationNs, MonoNs, monotonic};

use super::rows::Flow;
use super::samples::Samples;
use super::{END_TIMEOUT, LOOK, Rows, log_event, options, schedule};
use crate::client::ClientReport;
use crate::control::{Inbox, Report, report};
use crate::events::Events;
use crate::ground::Ground;

/// Before the start it listens no more: a wait of the kernel's may last some milliseconds longer.
const QUIET: DurationNs = DurationNs::millis(100);

pub(crate) fn run(ground: Ground<'_>, stream: &Stream, events: &mut Events) -> Result<()> {
    let Ground {
        job, inbox, clock, ..
    } = ground;
    schedule(stream, events, clock);
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
    let Some(peers) = inbox.peers()? else {
        return Ok(());
    };
    if let Err(error) = &made {
        let name = stream.protocol.name();
        let text = format!("{name}: cannot listen on {wanted}: {error}");
        log_event(events, "stream failed", &text, clock);
    }
    let mut done = None;
    if let Ok((mut reader, _)) = made {
        // A user-mode protocol answers only while it is called, so the writer must be accepted
        // before the start. An error that happens now is reported by the first read.
        let mut idle = |timeout: Duration| {
            let look = timeout.min(LOOK);
            match reader.read(look, &mut |_| {}) {
                Ok(Received::Some | Received::Nothing) => {}
                // It says so at once, and nothing waits.
                Ok(Received::Ended) | Err(_) => std::thread::sleep(look),
            }
        };
        let Some(start_ns) = inbox.start_while(|| idle(LOOK))? else {
            return Ok(());
        };
        // The loop stops a little before the start, because messages count from the start on.
        let stopped = inbox.stopped_while(start_ns - QUIET, idle);
        let stopped = stopped || inbox.stopped_until(start_ns);
        let rows = Rows::new(ground, "reader", start_ns).with_helper(reader.helper());
        let mut reading = Reading {
            reader,
            inbox,
            rows,
            books: Books {
                cookie: job.cookie,
                account: Account::default(),
                samples: Samples::start(ground, stream, start_ns, &peers)?,
                bytes: 0,
                said: None,
            },
        };
        if !stopped {
            reading.run(events, clock)?;
        }
        done = Some(reading.close()?);
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
        let latest_ns = self.books.samples.times().end_ns + DurationNs::from(END_TIMEOUT);
        loop {
            let now_ns = monotonic();
            if now_ns >= self.rows.due_ns() {
                let flow = self.books.take();
                self.rows.write(flow)?;
                self.books.samples.note(flow.bytes, now_ns);
            }
            if self.inbox.is_stopped() {
                return Ok(());
            }
            if now_ns > latest_ns {
                log_event(events, "stream not finished", "the end never came", clock);
                return Ok(());
            }
            let books = &mut self.books;
            let received = self.reader.read(LOOK, &mut |message| books.came(message));
            if let Err(error) = received {
                log_event(events, "stream broken", &error.to_string(), clock);
                return Ok(());
            }
            match (received, books.said) {
                // A message that is late may come after the end, where they are not in order.
                (Ok(Received::Ended | Received::Nothing), Some(messages)) => {
                    books.account.end(messages);
                    return Ok(());
                }
                (Ok(Received::Ended), None) => {
                    log_event(events, "peer lost", "the writer went without an end", clock);
                    return Ok(());
                }
                _ => {}
            }
        }
    }

    /// Closes the books. What its helper used is known as long as that lives; the connection goes before the
    /// files are written, so that a writer that waits for it need not.
    fn close(self) -> Result<ClientReport> {
        let Self {
            reader,
            mut rows,
            mut books,
            ..
        } = self;
        rows.write(books.take())?;
        drop(reader);
        rows.seal()?;
        books.samples.finish()
    }
}

/// What came.
struct Books<'a> {
    cookie: u32,
    account: Account,
    samples: Samples<'a>,
    bytes: u64,
    /// How many messages there were, when the writer has said so.
    said: Option<u64>,
}

impl Books<'_> {
    fn came(&mut self, message: &[u8]) {
        let Some(header) = Header::read(self.cookie, message) else {
            return;
        };
        if header.end {
            self.said = Some(header.sequence);
            return;
        }
        self.bytes += message.len() as u64;
        self.account.came(header.sequence);
        if let Some(stamp_ns) = header.stamp_ns {
            let bytes = u32::try_from(message.len()).unwrap_or(u32::MAX);
            self.samples
                .add(header.sequence, MonoNs(stamp_ns), monotonic(), bytes);
        }
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
