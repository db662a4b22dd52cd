//! The writing end.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use unruly_plan::Stream;
use unruly_stream::{Header, Sent, Writer, connect};
use unruly_trace::{MonoNs, monotonic};

use super::rows::Flow;
use super::{
    CONNECT_TIMEOUT, END_TIMEOUT, LOOK, Rows, Times, address_of, log_event, options, reader,
    schedule,
};
use crate::client::say_done;
use crate::control::{Inbox, PeerLine, Report, report};
use crate::events::Events;
use crate::ground::Ground;
use crate::job::Job;

/// A writer that holds more has run away: what it was given is not sent, and was not refused.
const MEMORY_MAX_BYTES: u64 = 2 << 30;
/// Messages between two readings of the clock, while the protocol takes each at once. Each takes
/// about a microsecond.
const MESSAGES_A_LOOK: u32 = 8;

pub(crate) fn run(ground: Ground<'_>, stream: &Stream, events: &mut Events) -> Result<()> {
    let Ground {
        job, inbox, clock, ..
    } = ground;
    schedule(stream, events, clock);
    crate::role::say_ready(None, clock);
    let Some(peers) = inbox.peers()? else {
        return Ok(());
    };
    let mut writer = reach(job, stream, &peers);
    report(&Report::Loaded {
        scheduled: 0,
        failed: u64::from(writer.is_err()),
    });
    if let Err(text) = &writer {
        log_event(events, "stream failed", text, clock);
    }
    // A user-mode protocol must be called to stay alive. An error that happens now is reported by
    // the first write.
    let mut idle = |timeout: Duration| {
        let look = timeout.min(LOOK);
        let lives = writer
            .as_mut()
            .is_ok_and(|writer| writer.idle(look).is_ok());
        // What is broken says so at once, and nothing waits.
        if !lives {
            std::thread::sleep(look);
        }
    };
    let Some(start_ns) = inbox.start_while(|| idle(LOOK))? else {
        return Ok(());
    };
    let stopped = inbox.stopped_while(start_ns, idle);
    if let Ok(writer) = writer {
        let times = Times::new(job, stream, start_ns);
        let rows = Rows::new(ground, "writer", start_ns).with_helper(writer.helper());
        let mut writing = Writing {
            writer,
            inbox,
            cookie: job.cookie,
            message: vec![0; options(job, stream).message_bytes],
            sample: u64::from(stream.sample),
            sequence: 0,
            told: 0,
            rows,
        };
        if !stopped && let Err(broken) = writing.run(times) {
            log_event(events, broken.kind, &broken.text, clock);
        }
        writing.account()?;
        writing.rows.seal()?;
    }
    report(&Report::Drained);
    inbox.wait_for_stop();
    say_done(None);
    Ok(())
}

/// Connects to the readers.
fn reach(job: &Job, stream: &Stream, peers: &[PeerLine]) -> Result<Box<dyn Writer>, String> {
    let name = stream.protocol.name();
    let all = (0..stream.readers).map(|number| address_of(peers, &reader(number)));
    let readers: Result<Vec<SocketAddr>, String> = all.collect();
    let readers = readers.map_err(|text| format!("{name}: {text}"))?;
    connect(&options(job, stream), &readers, CONNECT_TIMEOUT).map_err(|error| {
        let places: Vec<String> = readers.iter().map(ToString::to_string).collect();
        let places = places.join(", ");
        format!("{name}: the reader at {places} cannot be reached: {error}")
    })
}

/// How a stream ended before its time.
struct Broken {
    kind: &'static str,
    text: String,
}

struct Writing<'a> {
    writer: Box<dyn Writer>,
    inbox: &'a Inbox,
    cookie: u32,
    message: Vec<u8>,
    sample: u64,
    /// The next message's number.
    sequence: u64,
    /// Messages that are in a row.
    told: u64,
    rows: Rows<'a>,
}

impl Writing<'_> {
    fn run(&mut self, times: Times) -> Result<(), Broken> {
        let broken = |text: String| Broken {
            kind: "stream broken",
            text,
        };
        loop {
            let now_ns = monotonic();
            if now_ns >= times.end_ns || self.inbox.is_stopped() {
                break;
            }
            if now_ns >= self.rows.due_ns() {
                let held = self.account().map_err(|it| broken(format!("{it:#}")))?;
                if let Some(bytes) = held.filter(|bytes| *bytes > MEMORY_MAX_BYTES) {
                    return Err(Broken {
                        kind: "memory ran away",
                        text: format!("the writer holds {bytes} bytes; it has no back-pressure"),
                    });
                }
            }
            self.write_some(now_ns)
                .map_err(|it| broken(it.to_string()))?;
        }
        self.header(None, true);
        let finished = self.writer.finish(&self.message, END_TIMEOUT);
        finished.map_err(|error| Broken {
            kind: "stream not finished",
            text: error.to_string(),
        })
    }

    /// Writes until the clock is to be looked at again.
    fn write_some(&mut self, now_ns: MonoNs) -> std::io::Result<()> {
        for _ in 0..MESSAGES_A_LOOK {
            let sampled = self.sequence.is_multiple_of(self.sample);
            // A stamp is taken when its message is handed over, not when the clock was looked at.
            let stamp_ns = sampled.then(|| monotonic().max(now_ns));
            self.header(stamp_ns, false);
            match self.writer.write(&self.message, LOOK)? {
                Sent::Taken => self.sequence += 1,
                Sent::Full => return Ok(()),
            }
        }
        Ok(())
    }

    fn header(&mut self, stamp_ns: Option<MonoNs>, end: bool) {
        let header = Header {
            sequence: self.sequence,
            stamp_ns: stamp_ns.map(|at| at.0),
            end,
        };
        header.write(self.cookie, &mut self.message);
    }

    /// Writes a row about the messages sent since the last row.
    fn account(&mut self) -> Result<Option<u64>> {
        let messages = self.sequence - self.told;
        self.told = self.sequence;
        self.rows.write(Flow {
            bytes: messages * self.message.len() as u64,
            messages,
            in_flight: self.writer.held_bytes(),
            ..Flow::default()
        })
    }
}
