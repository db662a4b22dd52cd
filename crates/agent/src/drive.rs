//! The asking side, shared by the active agent and the load generator.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use unruly_load::wire::{Codec, FLAG_BODY};
use unruly_load::{
    ClosedSource, Control, Engine, EngineOptions, GroupRpc, Limited, Live, OpenSource, Outcome,
    Peer, Phases, Source, Target,
};
use unruly_plan::{Arrivals, Drive};
use unruly_trace::{Clock, Counts, Recorder, RecorderOptions, SPOOL_ROWS_MAX};

use crate::control::{Inbox, Report, report};
use crate::events::Events;
use crate::job::Job;
use crate::mesh::nanoseconds;

/// An open loop sleeps for pauses longer than this and spins for shorter ones: waking up takes
/// tens of microseconds, which at thousands of requests a second is most of the pause.
const SPIN_NS: i64 = 200_000;

/// Everything one asking process needs.
pub(crate) struct Client<'a> {
    pub(crate) job: &'a Job,
    pub(crate) directory: &'a Path,
    pub(crate) inbox: &'a Inbox,
    pub(crate) clock: &'a Clock,
    pub(crate) options: EngineOptions,
    pub(crate) ops: Vec<String>,
    pub(crate) peers: Vec<Peer>,
}

/// What an asking process says at the end.
#[derive(Debug)]
pub(crate) struct ClientReport {
    counts: Counts,
    failure: Option<String>,
}

impl Client<'_> {
    /// Connects, waits for the start, runs the schedule, and closes the books.
    pub(crate) fn run(
        mut self,
        target: &mut dyn Target,
        events: &mut Events,
        source: impl FnOnce(i64) -> Box<dyn Source>,
    ) -> Result<Option<ClientReport>> {
        let mut recorder = Recorder::start(RecorderOptions {
            directory: self.directory.to_owned(),
            stem: self.job.stem(),
            header: self.job.spool_header(std::mem::take(&mut self.ops)),
            clock: self.clock.clone(),
            spool_rows_max: SPOOL_ROWS_MAX,
        })?;
        let mut engine = Engine::new(
            self.options.clone(),
            self.clock.clone(),
            target,
            &mut recorder,
            std::mem::take(&mut self.peers),
        )
        .with_context(|| {
            format!(
                "{}: cannot send; wanted sockets; hint: raise ulimit -n",
                self.job.name
            )
        })?;
        engine.connect();
        self.inbox.wake_on_stop(engine.waker());
        let Some(start_ns) = self.inbox.start()? else {
            drop(engine);
            recorder.finish(&self.job.name)?;
            return Ok(None);
        };
        let mut source = source(start_ns);
        let mut said_full = false;
        let outcome = engine.run(source.as_mut(), &mut |live, recorder| {
            say_progress(live, recorder);
            for (at_ns, step) in recorder.take_steps() {
                events.add(
                    "clock stepped",
                    Some(&format!("{} ns", step.0)),
                    (at_ns, None),
                );
            }
            if let Some(failure) = recorder.failure().filter(|_| !said_full) {
                said_full = true;
                report(&Report::Finding {
                    text: failure,
                    fatal: true,
                });
                return Control::Stop;
            }
            if self.inbox.is_stopped() {
                Control::Stop
            } else {
                Control::Continue
            }
        })?;
        self.close(recorder, &outcome, events).map(Some)
    }

    /// Closes the books: every copy that the schedule asked for is accounted for.
    fn close(
        &self,
        recorder: Recorder,
        outcome: &Outcome,
        events: &mut Events,
    ) -> Result<ClientReport> {
        report(&Report::Drained);
        if outcome.strays > 0 {
            events.now(
                "stray replies",
                Some(&outcome.strays.to_string()),
                self.clock,
            );
        }
        let (tally, recorded) = recorder.finish(&self.job.name)?;
        if tally.copies.dropped > 0 {
            events.now(
                "rows dropped",
                Some(&tally.copies.dropped.to_string()),
                self.clock,
            );
        }
        let counts = Counts {
            copies: tally.copies,
            requests: outcome.requests.clone(),
        };
        counts.check(&self.job.name)?;
        Ok(ClientReport {
            counts,
            failure: recorded.failure,
        })
    }
}

fn say_progress(live: &mut Live, recorder: &Recorder) {
    let live = std::mem::take(live);
    let copies = &recorder.tally().copies;
    report(&Report::Progress {
        scheduled: copies.scheduled,
        dropped: copies.dropped,
        failed: live.failed,
        responses_ns: live.responses_ns,
        lag_ns: live.lag_ns,
    });
}

/// Says that all is written.
pub(crate) fn say_done(client: Option<ClientReport>) {
    let (counts, failure) =
        client.map_or((None, None), |client| (Some(client.counts), client.failure));
    report(&Report::Done { counts, failure });
}

/// A load generator: `clients` connections to one server.
pub(crate) fn run(
    job: &Job,
    drive: &Drive,
    directory: &Path,
    inbox: &Inbox,
    clock: &Clock,
    events: &mut Events,
) -> Result<()> {
    crate::role::say_ready(None, clock);
    let Some(lines) = inbox.peers()? else {
        say_done(None);
        return Ok(());
    };
    let of_run = lines.iter().find_map(|line| line.address.clone());
    let address = drive.address.clone().or(of_run).unwrap_or_default();
    let address: SocketAddr = resolve(&address)?;
    let links = drive.clients as usize;
    // Every connection is a client of its own towards the same server.
    let peers = vec![Peer { id: 0, address }; links];
    let options = EngineOptions {
        client: job.id.unwrap_or(0),
        cell: job.cell,
        repeat: job.repeat,
        transport: drive.transport,
        timeout_ns: nanoseconds(drive.timeout),
        linger_ns: 0,
        in_flight: drive.in_flight as usize,
        spin_ns: if matches!(drive.arrivals, Arrivals::Closed { .. }) {
            0
        } else {
            SPIN_NS
        },
    };
    let body_bytes = u32::try_from(drive.payload.0).unwrap_or(u32::MAX);
    let flags = if body_bytes == 0 { 0 } else { FLAG_BODY };
    let mut target = GroupRpc::new(Codec {
        cookie: job.cookie,
        body_bytes,
    });
    let ops = vec!["echo".to_owned()];
    let client = Client {
        job,
        directory,
        inbox,
        clock,
        options,
        ops,
        peers,
    };
    let seed = unruly_plan::mix(job.plan.seed, u64::from(job.repeat));
    let report = client.run(&mut target, events, |start_ns| {
        let phases = Phases::new(start_ns, job.plan.run.warmup, job.plan.run.duration);
        let source: Box<dyn Source> = match drive.arrivals {
            Arrivals::Closed { .. } => Box::new(ClosedSource::new(
                &drive.arrivals,
                seed,
                links,
                flags,
                phases,
            )),
            _ => Box::new(OpenSource::new(&drive.arrivals, seed, links, flags, phases)),
        };
        match drive.requests {
            Some(requests) => Box::new(Limited::new(source, requests)),
            None => source,
        }
    })?;
    inbox.wait_for_stop();
    say_done(report);
    Ok(())
}

fn resolve(address: &str) -> Result<SocketAddr> {
    use std::net::ToSocketAddrs;
    address
        .to_socket_addrs()
        .ok()
        .and_then(|mut addresses| addresses.next())
        .with_context(|| format!("drive.address: \"{address}\" leads nowhere; wanted host:port; hint: is the name right?"))
}
