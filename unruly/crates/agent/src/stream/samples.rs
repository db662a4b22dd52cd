//! The latencies of stamped messages: a row of `requests` each.

use anyhow::Result;
use unruly_plan::Stream;
use unruly_trace::{
    Clock, Counts, DurationNs, MonoNs, Record, Recorder, RecorderOptions, Requests, SPOOL_ROWS_MAX,
    Status,
};

use super::Times;
use crate::client::ClientReport;
use crate::control::{PeerLine, ProgressLine, Report, report};
use crate::ground::Ground;
use crate::job::Job;

/// As many of a second's latencies as a line of progress needs.
const LATENCIES_MAX: usize = 1_000;

/// Phases as the spool's header names them.
const WARMUP: u8 = 0;
const MEASURE: u8 = 1;
const WIND_DOWN: u8 = 3;

/// The books of a reader's samples.
pub(super) struct Samples<'a> {
    job: &'a Job,
    clock: &'a Clock,
    times: Times,
    readers: u64,
    /// All ends have the same clock, so a message has a latency.
    has_one_clock: bool,
    recorder: Recorder,
    recorded: u64,
    second: Second,
}

/// Returns true if all ends are on one machine: some latencies would pass for those of all readers.
/// Only hosts that the plan reaches are machines of their own.
fn has_one_clock(job: &Job, peers: &[PeerLine]) -> bool {
    let ends = job.plan.load.processes();
    let is_elsewhere = |it: &PeerLine| ends.contains(&it.name) && it.host != job.host;
    job.plan.reached.is_empty() || !peers.iter().any(is_elsewhere)
}

/// The bytes and latencies since the last report.
#[derive(Default)]
struct Second {
    told_ns: MonoNs,
    bytes: u64,
    latencies_ns: Vec<DurationNs>,
}

impl<'a> Samples<'a> {
    pub(super) fn start(
        ground: Ground<'a>,
        stream: &Stream,
        start_ns: MonoNs,
        peers: &[PeerLine],
    ) -> Result<Self> {
        let Ground {
            job,
            directory,
            clock,
            ..
        } = ground;
        let recorder = Recorder::start(RecorderOptions {
            directory: directory.to_owned(),
            stem: job.stem(),
            header: job.spool_header(vec!["message".to_owned()]),
            clock: clock.clone(),
            spool_rows_max: SPOOL_ROWS_MAX,
        })?;
        Ok(Self {
            job,
            clock,
            times: Times::new(job, stream, start_ns),
            readers: stream.readers.into(),
            has_one_clock: has_one_clock(job, peers),
            recorder,
            recorded: 0,
            second: Second::default(),
        })
    }

    /// When the stream flows.
    pub(super) fn times(&self) -> Times {
        self.times
    }

    /// A row: from when a message was written until it was read. There is none if ends have several
    /// clocks.
    pub(super) fn add(&mut self, sequence: u64, sent_ns: MonoNs, received_ns: MonoNs, bytes: u32) {
        if !self.has_one_clock {
            return;
        }
        let phase = match sent_ns {
            early if early < self.times.measure_ns => WARMUP,
            late if late >= self.times.measured_ns => WIND_DOWN,
            _ => MEASURE,
        };
        if self.second.latencies_ns.len() < LATENCIES_MAX {
            self.second.latencies_ns.push(received_ns - sent_ns);
        }
        self.recorded += 1;
        let [sent, received] = [sent_ns, received_ns].map(|at| self.clock.column(at));
        self.recorder.scheduled(sent);
        // In a group each message comes to all readers, and each time is a request: the number says which.
        let server = self.job.id.unwrap_or(0);
        let reader = u64::from(server.saturating_sub(1));
        self.recorder.record(&Record {
            intended_ns: sent,
            sent_ns: sent,
            received_ns: received,
            request: sequence * self.readers + reader,
            sent_bytes: bytes,
            cell: self.job.cell,
            repeat: self.job.repeat,
            server,
            phase,
            status: Status::Ok,
            answered: true,
            ..Record::empty()
        });
    }

    /// Adds the bytes of an interval that ended at `now_ns`, and reports them once a second.
    pub(super) fn note(&mut self, bytes: u64, now_ns: MonoNs) {
        self.second.bytes += bytes;
        if now_ns - self.second.told_ns < DurationNs::seconds(1) {
            return;
        }
        let next = Second {
            told_ns: now_ns,
            ..Second::default()
        };
        let second = std::mem::replace(&mut self.second, next);
        report(&Report::Progress(ProgressLine {
            scheduled: self.recorded,
            dropped: self.recorder.tally().copies.dropped,
            responses_ns: second.latencies_ns,
            ..ProgressLine::default()
        }));
        report(&Report::Flowed {
            bytes: second.bytes,
        });
    }

    /// Closes the books.
    pub(super) fn finish(self) -> Result<ClientReport> {
        report(&Report::Drained);
        let (tally, recorded) = self.recorder.finish(&self.job.name)?;
        let counts = Counts {
            copies: tally.copies,
            requests: Requests {
                scheduled: self.recorded,
                answered: self.recorded,
                ..Requests::default()
            },
        };
        counts.check(&self.job.name)?;
        Ok(ClientReport::new(counts, recorded.failure))
    }
}
