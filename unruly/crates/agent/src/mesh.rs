//! An active agent: asks its group each period, and answers its peers on another thread.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use unruly_load::wire::Codec;
use unruly_load::{
    EngineOptions, GroupRpc, MeshSource, Peer, Phases, Place, Target, bind_tcp, bind_udp,
};
use unruly_plan::{Load, Mesh, Transport};
use unruly_trace::{Clock, DurationNs};

use crate::client::{Client, say_done};
use crate::control::{PeerLine, Report, report};
use crate::disk::DiskRing;
use crate::events::Events;
use crate::foreign;
use crate::ground::Ground;
use crate::serve::{Server, ServerOptions};

/// A late reply is waited for as many timeouts as this after the first.
const LINGER_TIMEOUTS: i64 = 4;

/// A server on its own thread.
pub(crate) struct Serving {
    pub(crate) address: SocketAddr,
    thread: JoinHandle<std::io::Result<u64>>,
}

impl Serving {
    /// Binds both sockets to one port and starts to serve.
    pub(crate) fn start(ground: Ground<'_>, codec: Codec, disk: Option<DiskRing>) -> Result<Self> {
        let Ground {
            job, inbox, clock, ..
        } = ground;
        let wanted: SocketAddr = format!("{}:{}", job.listen, job.port)
            .parse()
            .with_context(|| {
                format!(
                    "{}: listen is \"{}\"; wanted an IP address; hint: 127.0.0.1",
                    job.name, job.listen
                )
            })?;
        let taken = |address: SocketAddr| {
            format!(
                "{}: cannot listen on {address}; wanted a free port; hint: choose another mesh.port, or leave it out",
                job.name
            )
        };
        let refused = |error: &std::io::Error| match error.kind() {
            ErrorKind::AddrNotAvailable | ErrorKind::InvalidInput => format!(
                "{}: {} is no address of this host; wanted one that `ip addr` shows here; hint: address in its [[host]]",
                job.name,
                wanted.ip()
            ),
            _ => taken(wanted),
        };
        let listener = bind_tcp(wanted).map_err(|error| {
            let told = refused(&error);
            anyhow::Error::new(error).context(told)
        })?;
        let address = listener.local_addr()?;
        let datagrams = bind_udp(address).with_context(|| taken(address))?;
        let options = ServerOptions {
            codec,
            clock: clock.clone(),
            peers: connections(&job.plan.load),
            disk,
        };
        let server = Server::new(options, listener, datagrams).with_context(|| {
            format!(
                "{}: cannot serve; wanted sockets; hint: look at ulimit -n",
                job.name
            )
        })?;
        inbox.wake_on_stop(server.waker());
        let stop = inbox.stop_flag();
        let thread = std::thread::Builder::new()
            .name("serve".to_owned())
            .spawn(move || server.run(&stop))?;
        Ok(Self { address, thread })
    }

    /// Waits for the end of serving, which the inbox's stop brings.
    pub(crate) fn join(self, events: &mut Events, clock: &Clock) {
        match self.thread.join() {
            Ok(Ok(0)) => {}
            Ok(Ok(refused)) => {
                events.now("connections refused", Some(&refused.to_string()), clock);
            }
            Ok(Err(error)) => report(&Report::Finding {
                text: format!("serving failed: {error}"),
                fatal: true,
            }),
            Err(_) => report(&Report::Finding {
                text: "the serving thread panicked".to_owned(),
                fatal: true,
            }),
        }
    }
}

/// How many connections the agents of a plan make to one server of ours.
fn connections(load: &Load) -> usize {
    let count = match load {
        Load::Mesh(mesh) => u32::from(mesh.agents),
        Load::Drive(drive) => drive.clients,
        Load::Stream(stream) => u32::from(stream.readers),
    };
    count as usize
}

pub(crate) fn run(ground: Ground<'_>, mesh: &Mesh, events: &mut Events) -> Result<()> {
    let Ground {
        job,
        directory,
        inbox,
        clock,
    } = ground;
    let own = job.id.unwrap_or(0);
    if mesh.runtime.is_jvm_of(own) {
        return foreign::run_member(ground, mesh, events);
    }
    let body_bytes = u32::try_from(mesh.body.0).unwrap_or(u32::MAX);
    let codec = Codec {
        cookie: job.cookie,
        body_bytes,
    };
    let path = directory.join(format!("{}.disk", job.stem()));
    let disk = DiskRing::new(&path, mesh.disk_file.0).with_context(|| {
        format!(
            "{}: cannot be made; wanted a file of {} bytes; hint: look at the free disk space, or lower mesh.disk_file",
            path.display(),
            mesh.disk_file.0
        )
    })?;
    let serving = Serving::start(ground, codec, Some(disk))?;
    crate::role::say_ready(Some(serving.address), clock);
    let counts = ask(ground, mesh, events, |peer, one_clock| {
        let target = GroupRpc::new(codec, own, peer.id);
        let target = if one_clock {
            target
        } else {
            target.with_foreign_clock()
        };
        let target: Box<dyn Target> = Box::new(target);
        Ok((peer, target))
    })?;
    inbox.wait_for_stop();
    serving.join(events, clock);
    say_done(counts);
    Ok(())
}

/// A peer as its client reaches it, and what the bytes of that way mean.
pub(crate) type Reached = (Peer, Box<dyn Target>);

/// Returns for how long after its scheduled time the engine knows a copy.
pub(crate) fn longest_wait_ns(mesh: &Mesh) -> DurationNs {
    nanoseconds(mesh.timeout) * (1 + LINGER_TIMEOUTS)
}

/// Asks the group each period, until the schedule is over. `reach` is called for each peer, and learns
/// whether it has our clock.
pub(crate) fn ask(
    ground: Ground<'_>,
    mesh: &Mesh,
    events: &mut Events,
    mut reach: impl FnMut(Peer, bool) -> Result<Reached>,
) -> Result<Option<crate::client::ClientReport>> {
    let Ground { job, inbox, .. } = ground;
    let ops = mesh.workloads.iter();
    let Some(lines) = inbox.peers()? else {
        return Ok(None);
    };
    let own = job.id.unwrap_or(0);
    let peers = mesh_peers(&lines, mesh.transport)?;
    // Namespaces are hosts with one clock.
    let has_our_clock = |peer: &Peer| {
        let line = lines.iter().find(|it| it.id == Some(peer.id));
        job.plan.reached.is_empty() || line.is_some_and(|it| it.host == job.host)
    };
    let peers = peers.into_iter().map(|peer| {
        let one_clock = has_our_clock(&peer);
        reach(peer, one_clock)
    });
    let peers: Vec<Reached> = peers.collect::<Result<_>>()?;
    let timeout_ns = nanoseconds(mesh.timeout);
    let options = EngineOptions {
        client: own,
        cell: job.cell,
        repeat: job.repeat,
        level: None,
        timeout_ns,
        linger_ns: longest_wait_ns(mesh) - timeout_ns,
        in_flight: mesh.in_flight as usize,
        retries: 0,
        bins: job.bins,
        spin_ns: DurationNs::ZERO,
        caller_schedules: false,
    };
    let client = Client {
        ground,
        options,
        ops: ops.map(|workload| workload.name().to_owned()).collect(),
        ready: peers.len(),
        peers,
        work: None,
        load: None,
        tidy: None,
        spans: false,
    };
    client.run(events, |start_ns| {
        let phases = Phases::new(start_ns, job.plan.run.warmup, job.plan.run.duration);
        let source = MeshSource::new(mesh.clone(), job.plan.seed, own, phases);
        if mesh.runtime.is_jvm_of(own) {
            return foreign::ahead(source);
        }
        Box::new(source)
    })
}

/// The agents in the order of their numbers: connection i leads to agent i.
fn mesh_peers(lines: &[PeerLine], transport: Transport) -> Result<Vec<Peer>> {
    let mut peers: Vec<Peer> = Vec::new();
    for line in lines {
        let (Some(id), Some(address)) = (line.id, &line.address) else {
            continue;
        };
        let address = address.parse().with_context(|| {
            format!("peers: the address of {} is \"{address}\"; wanted ip:port; hint: this is a defect, please report it", line.name)
        })?;
        let place = match transport {
            Transport::Tcp => Place::Stream(address),
            Transport::Udp => Place::Datagram(address),
        };
        peers.push(Peer { id, place });
    }
    peers.sort_by_key(|peer| peer.id);
    Ok(peers)
}

/// Returns a plan's length of time with a sign, as instants need it.
pub(crate) fn nanoseconds(duration: unruly_plan::DurationNs) -> DurationNs {
    DurationNs::from_unsigned(duration.0)
}

/// A server that only answers: the target of `drive`.
pub(crate) fn run_echo(ground: Ground<'_>, body_bytes: u32, events: &mut Events) -> Result<()> {
    let Ground {
        job, inbox, clock, ..
    } = ground;
    let codec = Codec {
        cookie: job.cookie,
        body_bytes,
    };
    let serving = Serving::start(ground, codec, None)?;
    crate::role::say_ready(Some(serving.address), clock);
    inbox.wait_for_stop();
    serving.join(events, clock);
    say_done(None);
    Ok(())
}
