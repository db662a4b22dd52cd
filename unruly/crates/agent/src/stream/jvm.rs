//! Either end of a stream whose protocol runs in a JVM. The JVM sends and reads, and this agent
//! writes its reports to the trace.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::Result;
use unruly_plan::{Protocol, Stream};
use unruly_trace::{DurationNs, MonoNs, monotonic};

use super::daemon::Daemon;
use super::rows::{Cost, Flow};
use super::samples::Samples;
use super::{END_TIMEOUT, LOOK, Rows, Times, log_event, schedule};
use crate::client::{ClientReport, say_done};
use crate::collector::Collections;
use crate::control::{Inbox, PeerLine, Report, report};
use crate::events::Events;
use crate::foreign::{Command, Foreign, Interval, Record, load_words, say_dropped};
use crate::ground::Ground;
use crate::job::JobKind;
use crate::role::{say_ready, say_ready_by};

/// To build a heap, and to find a group.
const HELLO_TIMEOUT: Duration = Duration::from_secs(45);
/// To meet, beside collectors that stop the world for seconds: longer than a group's own, which knows why.
const MEET_TIMEOUT: Duration = Duration::from_secs(90);

pub(crate) fn run(ground: Ground<'_>, stream: &Stream, events: &mut Events) -> Result<()> {
    let Ground {
        job, inbox, clock, ..
    } = ground;
    schedule(stream, events, clock);
    let daemon = (stream.protocol == Protocol::AeronDaemon).then(|| Daemon::start(ground));
    let begun = match daemon.transpose() {
        Ok(daemon) => begin(ground, stream, daemon.as_ref()).map(|begun| (begun, daemon)),
        Err(text) => Err(text),
    };
    match &begun {
        Ok(((foreign, address), _)) => say_ready_by(foreign.pid(), *address, clock),
        Err(_) => say_ready(None, clock),
    }
    let Some(peers) = inbox.peers()? else {
        return Ok(());
    };
    let met = begun.and_then(|((mut foreign, _), daemon)| {
        // The first reader is there: the writer, and in a group all other readers, come to it.
        if job.name != super::reader(0) {
            meet(&mut foreign, &peers, inbox)?;
        }
        Ok((foreign, daemon))
    });
    if let Err(text) = &met {
        log_event(
            events,
            "stream failed",
            &named(stream.protocol, text),
            clock,
        );
    }
    if job.kind == JobKind::Writer {
        report(&Report::Loaded {
            scheduled: 0,
            failed: u64::from(met.is_err()),
        });
    }
    let Some(start_ns) = inbox.start()? else {
        return Ok(());
    };
    let mut done = None;
    if let Ok((mut foreign, daemon)) = met {
        foreign.say(Command::Start {
            start_ns,
            end_ns: Times::new(job, stream, start_ns).end_ns,
        });
        done = Some(hear(
            ground,
            stream,
            events,
            (start_ns, &peers),
            (foreign, daemon),
        )?);
    } else {
        report(&Report::Drained);
    }
    inbox.wait_for_stop();
    say_done(done.filter(|_| job.kind == JobKind::Reader));
    Ok(())
}

/// Listens to a virtual machine that has begun, to its end. Returns what became of its samples.
fn hear(
    ground: Ground<'_>,
    stream: &Stream,
    events: &mut Events,
    (start_ns, peers): (MonoNs, &[PeerLine]),
    (foreign, daemon): (Foreign, Option<Daemon>),
) -> Result<ClientReport> {
    let side = if ground.job.kind == JobKind::Writer {
        "writer"
    } else {
        "reader"
    };
    let mut listening = Listening {
        foreign,
        daemon,
        inbox: ground.inbox,
        side,
        rows: Rows::new(ground, side, start_ns),
        samples: Samples::start(ground, stream, start_ns, peers)?,
        collections: Collections::new(ground),
    };
    if let Some((kind, text)) = listening.run()? {
        log_event(events, kind, &text, ground.clock);
    }
    listening.rows.seal()?;
    listening.collections.seal()?;
    drop(listening.foreign);
    drop(listening.daemon);
    listening.samples.finish()
}

/// What went wrong, with the protocol's name before it once.
fn named(protocol: Protocol, text: &str) -> String {
    let name = format!("{}: ", protocol.name());
    let own = text.strip_prefix(&name).unwrap_or(text);
    format!("{name}{own}")
}

/// Starts the virtual machine, and waits until it can be reached. Returns where.
fn begin(
    ground: Ground<'_>,
    stream: &Stream,
    daemon: Option<&Daemon>,
) -> Result<(Foreign, Option<SocketAddr>), String> {
    let job = ground.job;
    let role = if job.kind == JobKind::Writer {
        "writer"
    } else {
        "reader"
    };
    let mut words = vec![
        "stream".to_owned(),
        format!("role={role}"),
        format!(
            "protocol={}",
            daemon.map_or(stream.protocol, |_| Protocol::Aeron).name()
        ),
        format!("listen={}:{}", job.listen, job.port),
        format!("message={}", stream.message.0),
        format!("sample={}", stream.sample),
        format!("cookie={}", job.cookie),
    ];
    if stream.protocol.is_of_group() {
        let joins = job.name != super::reader(0);
        words.extend([
            format!("readers={}", stream.readers),
            format!("joins={}", if joins { "yes" } else { "no" }),
        ]);
    }
    let driver = daemon.map(|it| format!("driver={}", it.directory.display()));
    words.extend(driver);
    let load = load_words(job);
    if !load.is_empty() {
        words.push("compete=gc".to_owned());
        words.extend(load);
    }
    let mut foreign = Foreign::start(ground, &words).map_err(|error| format!("{error:#}"))?;
    let port = foreign.wait_for(ground.inbox, HELLO_TIMEOUT, |record| match record {
        Record::Hello { port } => Some(*port),
        _ => None,
    })?;
    let ip: Ipv4Addr = job
        .listen
        .parse()
        .map_err(|_| format!("listen is {:?}; wanted IPv4", job.listen))?;
    Ok((foreign, port.map(|port| SocketAddr::new(ip.into(), port))))
}

/// Has an end come to the first reader.
fn meet(foreign: &mut Foreign, peers: &[PeerLine], inbox: &Inbox) -> Result<(), String> {
    let to = match super::address_of(peers, &super::reader(0))? {
        SocketAddr::V4(to) => to,
        other => return Err(format!("the first reader is at {other}; wanted IPv4")),
    };
    foreign.say(Command::Peer {
        address: to.ip().to_bits(),
        port: to.port(),
    });
    let met = |record: &Record| (*record == Record::Peers).then_some(());
    foreign.wait_for(inbox, MEET_TIMEOUT, met)
}

/// The virtual machine at work.
struct Listening<'a> {
    foreign: Foreign,
    daemon: Option<Daemon>,
    inbox: &'a Inbox,
    side: &'static str,
    rows: Rows<'a>,
    samples: Samples<'a>,
    collections: Collections<'a>,
}

impl Listening<'_> {
    /// Listens to its end. Returns how it went wrong, if it did.
    fn run(&mut self) -> Result<Option<(&'static str, String)>> {
        let mut until = None;
        loop {
            // The JVM ends by itself or soon after the stop command. From then on, the wait has a
            // time limit.
            let over = monotonic() > self.samples.times().end_ns;
            if until.is_none() && (over || self.inbox.is_stopped()) {
                until = Some(Instant::now() + END_TIMEOUT + Duration::from_secs(5));
                if self.inbox.is_stopped() {
                    self.foreign.say(Command::Stop);
                }
            }
            if until.is_some_and(|it| Instant::now() > it) {
                return Ok(Some(("stream not finished", "it never ended".to_owned())));
            }
            match self.foreign.hear(LOOK) {
                Ok(Some(Record::Interval(interval))) => {
                    let beside = self
                        .daemon
                        .as_mut()
                        .map_or(Ok((DurationNs::ZERO, None)), Daemon::take);
                    match beside {
                        Ok(beside) => self.interval(interval, beside)?,
                        Err(text) => {
                            return Ok(Some(("stream broken", format!("its driver: {text}"))));
                        }
                    }
                }
                Ok(Some(Record::Sample {
                    sequence,
                    sent_ns,
                    received_ns,
                    bytes,
                })) => self.samples.add(sequence, sent_ns, received_ns, bytes),
                Ok(Some(Record::Failure(text))) => {
                    // What fails after its time lacks only its end.
                    let over = monotonic() > self.samples.times().end_ns;
                    let kind = ["stream broken", "stream not finished"][usize::from(over)];
                    return Ok(Some((kind, text)));
                }
                Ok(Some(Record::Done)) => return Ok(None),
                Ok(Some(Record::Dropped(records))) => say_dropped(records),
                Ok(Some(record)) => {
                    if let Some(spent) = self.collections.hear(&record)? {
                        spent.write(&mut self.rows)?;
                    }
                }
                Ok(None) => {}
                Err(error) => return Ok(Some(("stream broken", format!("java is gone: {error}")))),
            }
        }
    }

    /// What flowed, and what it cost: that of a driver in a process of its own is a part of it.
    fn interval(
        &mut self,
        it: Interval,
        (cpu_ns, rss_bytes): (DurationNs, Option<u64>),
    ) -> Result<()> {
        let flow = Flow {
            bytes: it.bytes,
            // It counts every arrival, the trace each message once.
            messages: it.messages.saturating_sub(it.duplicated.unwrap_or(0)),
            lost: it.lost,
            duplicated: it.duplicated,
            reordered: it.reordered,
            in_flight: it.in_flight,
        };
        let cost = Cost {
            cpu_ns: it.cpu_ns + cpu_ns,
            rss_bytes: it.rss_bytes.map(|own| own + rss_bytes.unwrap_or(0)),
        };
        if self.side == "reader" {
            self.samples.note(it.bytes, it.ended_ns);
        }
        self.rows
            .append(self.side, (it.started_ns, it.ended_ns), flow, cost)
    }
}
