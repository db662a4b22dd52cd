//! A load generator: clients of one system, which is an echo server or a store.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use unruly_load::wire::{Codec, FLAG_BODY};
use unruly_load::{
    ClosedSource, EngineOptions, GroupRpc, Limited, OpenSource, PASSWORD, Peer, Phases, Place,
    Sessions, Settings, Source, Target, Users, Work, driver,
};
use unruly_plan::{
    Arrivals, Drive, OperationKind, Portion, Schedule, Scheduling, Secret, Store, StoreLevel,
    Transport, Walks, times_ns,
};
use unruly_trace::{DurationNs, Level};

use crate::client::{Client, say_done};
use crate::control::PeerLine;
use crate::events::Events;
use crate::ground::Ground;
use crate::job::Job;
use crate::mesh::nanoseconds;
use crate::tidy::Tidy;

/// An open loop sleeps for pauses longer than this and spins for shorter ones: waking up takes
/// tens of microseconds, which at thousands of requests a second is most of the pause.
const SPIN: DurationNs = DurationNs(200_000);

/// What is asked, and over which connections.
struct Asked {
    peers: Vec<(Peer, Box<dyn Target>)>,
    /// How many connections are made before the start.
    ready: usize,
    ops: Vec<String>,
    flags: u8,
    work: Option<Work>,
    /// Keys to be written before the start, and by whom.
    load: Option<(u64, Sessions)>,
    sessions: Sessions,
    /// What the driver sends that the plan does not hold.
    about: Option<String>,
}

pub(crate) fn run(ground: Ground<'_>, drive: &Drive, events: &mut Events) -> Result<()> {
    let Ground {
        job, inbox, clock, ..
    } = ground;
    if drive.scheduling == Scheduling::Realtime {
        crate::scheduling::realtime().context("drive.scheduling")?;
        events.now("realtime", None, clock);
    }
    crate::role::say_ready(None, clock);
    let Some(lines) = inbox.peers()? else {
        say_done(None);
        return Ok(());
    };
    let seed = unruly_plan::mix(job.plan.seed, u64::from(job.repeat));
    let portion = Portion::new(job.id.unwrap_or(0), drive.processes);
    let asked = match &drive.store {
        Some(store) => of_store(job, drive, store, seed, portion)?,
        None => of_echo(job, drive, &lines, portion)?,
    };
    if let Some(about) = &asked.about {
        events.now("data file", Some(about), clock);
    }
    let http = drive.store.as_deref().and_then(|it| it.http.as_ref());
    if drive.spans().is_some() || http.is_some_and(|it| it.trace) {
        let told = format!("{} {:016x}", job.id.unwrap_or(0), trace_key(job));
        events.now("trace key", Some(&told), clock);
    }
    let client = Client {
        ground,
        options: options(job, drive, portion),
        ops: asked.ops,
        peers: asked.peers,
        ready: asked.ready,
        work: asked.work,
        load: asked.load,
        tidy: Tidy::of(drive)?,
        spans: true,
    };
    let (sessions, flags) = (asked.sessions, asked.flags);
    let schedule = schedule(drive, seed, job.plan.run.warmup)?;
    let report = client.run(events, |start_ns| {
        let phases = Phases::new(start_ns, job.plan.run.warmup, job.plan.run.duration);
        let source = source(drive, seed, schedule, sessions, flags, phases, portion);
        match drive.requests {
            Some(requests) => Box::new(Limited::new(source, portion.count(requests))),
            None => source,
        }
    })?;
    inbox.wait_for_stop();
    say_done(report);
    Ok(())
}

/// The order of a process's requests.
fn source(
    drive: &Drive,
    seed: u64,
    schedule: Schedule,
    sessions: Sessions,
    flags: u8,
    phases: Phases,
    portion: Portion,
) -> Box<dyn Source> {
    let arrivals = &drive.arrivals;
    let usual_think = match arrivals {
        Arrivals::Closed { think, .. } => *think,
        _ => unruly_plan::DurationNs(0),
    };
    let scenario = drive.store.as_deref().and_then(Store::scenario);
    let walks = scenario.map(|it| Walks::new(it, seed, sessions.sessions, portion, usual_think));
    let since_start = |at_ns: unruly_trace::MonoNs| {
        unruly_plan::DurationNs((at_ns - phases.start_ns).0.unsigned_abs())
    };
    let (warmup, ends) = (since_start(phases.measure_ns), since_start(phases.end_ns));
    let pace = || drive.closed_loop(seed, warmup, ends, portion);
    match (arrivals, walks) {
        (Arrivals::Closed { .. }, Some(walks)) => {
            Box::new(Users::closed(walks, pace(), sessions, phases))
        }
        (_, Some(walks)) => Box::new(Users::open(
            walks,
            dealt(schedule, portion),
            nanoseconds(drive.timeout),
            sessions,
            phases,
        )),
        (Arrivals::Closed { .. }, None) => Box::new(ClosedSource::new(
            arrivals,
            pace(),
            seed,
            sessions,
            flags,
            phases,
            portion,
        )),
        (_, None) => Box::new(OpenSource::new(
            dealt(schedule, portion),
            sessions,
            flags,
            phases,
        )),
    }
}

/// When an open loop asks.
pub(crate) fn schedule(
    drive: &Drive,
    seed: u64,
    warmup: unruly_plan::DurationNs,
) -> Result<Schedule> {
    let Some(times) = &drive.times else {
        return Ok(drive.schedule(seed, warmup));
    };
    let text = std::fs::read_to_string(times).with_context(|| {
        format!("{times}: cannot be read; wanted the times of a replay; hint: one time in seconds on each line")
    })?;
    Ok(Schedule::of_times(times_ns(times, &text)?))
}

/// The arrivals of one process: all processes know the whole schedule, and take theirs in turn.
pub(crate) fn dealt(schedule: Schedule, portion: Portion) -> impl Iterator<Item = u64> {
    let fits = |it: u64| usize::try_from(it).unwrap_or(usize::MAX);
    schedule
        .skip(fits(portion.number()))
        .step_by(fits(portion.of()))
}

fn options(job: &Job, drive: &Drive, portion: Portion) -> EngineOptions {
    let store = drive.store.as_ref();
    let timeout_ns = nanoseconds(drive.timeout);
    let is_closed = matches!(drive.arrivals, Arrivals::Closed { .. });
    EngineOptions {
        client: job.id.unwrap_or(0),
        cell: job.cell,
        repeat: job.repeat,
        level: store.and_then(|it| it.level).map(level),
        timeout_ns,
        // The late reply of a store comes all the same, since its replies are in order.
        linger_ns: if store.is_some() {
            timeout_ns
        } else {
            DurationNs::ZERO
        },
        in_flight: count(portion, drive.in_flight).max(1),
        retries: store.map_or(0, |it| it.retries),
        bins: job.bins,
        spin_ns: if is_closed { DurationNs::ZERO } else { SPIN },
        caller_schedules: is_closed && store.is_some_and(|it| it.calls.is_some()),
    }
}

fn level(level: StoreLevel) -> Level {
    match level {
        StoreLevel::First => Level::First,
        StoreLevel::Quorum => Level::Quorum,
        StoreLevel::All => Level::All,
    }
}

/// How many of these a process has.
fn count(portion: Portion, all: u32) -> usize {
    usize::try_from(portion.count(all.into())).unwrap_or(usize::MAX)
}

/// Every connection is a client of its own towards the same server.
fn of_echo(job: &Job, drive: &Drive, lines: &[PeerLine], portion: Portion) -> Result<Asked> {
    let of_run = lines.iter().find_map(|line| line.address.clone());
    let address = resolve(&drive.address.clone().or(of_run).unwrap_or_default())?;
    let body_bytes = u32::try_from(drive.payload.0).unwrap_or(u32::MAX);
    let codec = Codec {
        cookie: job.cookie,
        body_bytes,
    };
    let links = count(portion, drive.clients);
    let peer = |_| {
        let place = match drive.transport {
            Transport::Tcp => Place::Stream(address),
            Transport::Udp => Place::Datagram(address),
        };
        let target: Box<dyn Target> = Box::new(GroupRpc::new(codec, job.id.unwrap_or(0), 0));
        (Peer { id: 0, place }, target)
    };
    Ok(Asked {
        peers: (0..links).map(peer).collect(),
        ready: links,
        ops: vec!["echo".to_owned()],
        flags: if body_bytes == 0 { 0 } else { FLAG_BODY },
        work: None,
        load: None,
        sessions: Sessions {
            sessions: links,
            links,
        },
        about: None,
    })
}

/// Each client has a connection, or they share those that there may be, to the places of the store in turn.
fn of_store(job: &Job, drive: &Drive, store: &Store, seed: u64, portion: Portion) -> Result<Asked> {
    let password = std::env::var(PASSWORD).ok().map(Secret::new);
    let own = std::env::current_exe()?;
    let driver = driver(&Settings {
        store,
        transport: drive.transport,
        timeout_ns: nanoseconds(drive.timeout),
        password: password.as_ref(),
        seed,
        portion,
        trace_key: trace_key(job),
        own: own.to_str(),
    })?;
    let clients = count(portion, drive.clients);
    let route = driver.route();
    let each = route.as_ref().map_or(1, |it| it.places());
    let links = match &store.http {
        Some(http) => count(portion, http.connections),
        None if driver.is_shared() => 1,
        None => clients,
    };
    let places: Vec<(&Place, u16)> = driver.places().iter().zip(0..).collect();
    let peers = (0..links * each).map(|own| {
        // Where places have different keys, each client has a connection to every place.
        let turn = match each {
            1 => usize::try_from(portion.place(own as u64)).unwrap_or(0),
            _ => own,
        };
        let (place, id) = places[turn % places.len().max(1)];
        let place = place.clone();
        let target = driver.target(usize::from(id));
        (Peer { id, place }, target)
    });
    let open = match drive.arrivals {
        Arrivals::Closed { .. } => store.pipeline as usize,
        _ => 1,
    };
    let sessions = Sessions {
        sessions: clients * open,
        links,
    };
    let work = Work::new(store, seed, job.cookie, sessions.sessions, portion);
    let mut work = work.routed(route);
    let load = store.preload.then(|| (work.load(), sessions));
    Ok(Asked {
        peers: peers.collect(),
        ready: clients.min(links) * each,
        ops: operations(store),
        flags: 0,
        work: Some(work),
        load,
        sessions,
        about: driver.about(),
    })
}

/// The first half of the ids of all traces that a process begins. No other process of any run has it.
fn trace_key(job: &Job) -> u64 {
    trace_key_of(job, job.id.unwrap_or(0))
}

/// The first half of the ids of the traces that a client of a job's trial begins.
pub(crate) fn trace_key_of(job: &Job, client: u16) -> u64 {
    let trial = u64::from(job.cell) << 16 | u64::from(job.repeat);
    let process = u64::from(job.cookie) << 16 | u64::from(client);
    unruly_plan::mix(process, trial)
}

/// The names of the operations in the rows, by their numbers. A method of HTTP is one of its own.
fn operations(store: &Store) -> Vec<String> {
    if let Some(names) = store.named_operations() {
        return names;
    }
    let names = OperationKind::ALL.map(|kind| match (kind, store.request_name()) {
        (OperationKind::Read, Some(name)) => name,
        _ => kind.name().to_owned(),
    });
    names.to_vec()
}

fn resolve(address: &str) -> Result<SocketAddr> {
    use std::net::ToSocketAddrs;
    address
        .to_socket_addrs()
        .ok()
        .and_then(|mut addresses| addresses.next())
        .with_context(|| format!("drive.address: \"{address}\" leads nowhere; wanted host:port; hint: is the name right?"))
}
