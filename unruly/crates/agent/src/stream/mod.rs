//! Streams: one process writes as fast as its protocol allows, another reads, and both account for it.

mod daemon;
mod jvm;
mod reader;
mod rows;
mod samples;
mod writer;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use unruly_plan::{Scheduling, Stream};
use unruly_stream::Options;
use unruly_trace::MonoNs;

use crate::control::{PeerLine, Report, report};
use crate::events::Events;
use crate::job::{Job, JobKind};

pub(crate) use jvm::run as of_jvm;
pub(crate) use reader::run as read;
pub(crate) use rows::{Cost, Flow, Rows, own_cpu_ns};
pub(crate) use writer::run as write;

/// Between two looks at the clock, the inbox and the books.
const LOOK: Duration = Duration::from_millis(20);
/// Time limit for messages in flight, after the scheduled time of the last message.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for reaching a listening reader.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The name of a reader.
fn reader(number: u16) -> String {
    format!("{}-{number}", JobKind::Reader.name())
}

/// Returns a reader's address from the list of peers.
fn address_of(peers: &[PeerLine], reader: &str) -> Result<SocketAddr, String> {
    let found = peers.iter().find(|peer| peer.name == reader);
    let address = found.and_then(|it| it.address.as_ref());
    let address = address.ok_or_else(|| format!("there is no {reader}"))?;
    let read = address.parse();
    read.map_err(|_| format!("the address of {reader} is {address:?}"))
}

/// When a stream flows, in monotonic time.
#[derive(Debug, Clone, Copy)]
struct Times {
    measure_ns: MonoNs,
    measured_ns: MonoNs,
    end_ns: MonoNs,
}

impl Times {
    fn new(job: &Job, stream: &Stream, start_ns: MonoNs) -> Self {
        let run = &job.plan.run;
        let measure_ns = start_ns + crate::mesh::nanoseconds(run.warmup);
        let measured_ns = measure_ns + crate::mesh::nanoseconds(run.duration);
        Self {
            measure_ns,
            measured_ns,
            end_ns: measured_ns + crate::mesh::nanoseconds(stream.wind_down),
        }
    }
}

fn options(job: &Job, stream: &Stream) -> Options {
    Options {
        protocol: stream.protocol,
        message_bytes: usize::try_from(stream.message.0).unwrap_or(usize::MAX),
        cookie: job.cookie,
        library: job.library.as_ref().map(PathBuf::from),
    }
}

/// Reports a failure of a stream. It is a result: the run goes on with the next cell.
pub(crate) fn log_event(events: &mut Events, kind: &str, text: &str, clock: &unruly_trace::Clock) {
    events.now(kind, Some(text), clock);
    report(&Report::Note {
        text: format!("{kind}: {text}"),
    });
}

/// Puts this process into the plan's class of the scheduler, where the host allows it. Threads and processes
/// made later are in it too, and no earlier ones: it comes before a protocol's threads and virtual machines.
fn schedule(stream: &Stream, events: &mut Events, clock: &unruly_trace::Clock) {
    if stream.scheduling == Scheduling::Normal {
        return;
    }
    match crate::scheduling::realtime() {
        Ok(()) => events.now("realtime", None, clock),
        Err(error) => log_event(events, "realtime refused", &error.to_string(), clock),
    }
}

/// The cores that this process may run on.
pub(crate) fn own_cores() -> usize {
    let set = sched_getaffinity(Pid::from_raw(0));
    let cores = set.map(|set| {
        (0..CpuSet::count())
            .filter(|cpu| set.is_set(*cpu).unwrap_or(false))
            .count()
    });
    cores.unwrap_or(1).max(1)
}
