//! An active agent whose sockets are a virtual machine's: it serves and asks over the network, and this process
//! keeps the schedule and the books, as for any agent.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use unruly_load::{Ahead, MeshSource, Peer, Place, Source, Target};
use unruly_plan::Mesh;
use unruly_trace::{DurationNs, monotonic};

use super::asking::Asking;
use super::{Command, Foreign, Record, folder, load_words, say_dropped};
use crate::client::say_done;
use crate::collector::Collections;
use crate::control::{Report, report};
use crate::events::Events;
use crate::ground::Ground;
use crate::mesh::{Reached, ask, longest_wait_ns};
use crate::role::say_ready_by;
use crate::stream::Rows;

/// To build a heap.
const HELLO_TIMEOUT: Duration = Duration::from_secs(45);
const LOOK: Duration = Duration::from_millis(50);
/// Time limit for ending after the stop command.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// How far ahead of its scheduled time a request is handed over. A socket and a
/// scheduler take less.
const LEAD: DurationNs = DurationNs::millis(10);

pub(crate) fn run(ground: Ground<'_>, mesh: &Mesh, events: &mut Events) -> Result<()> {
    let Ground {
        job, inbox, clock, ..
    } = ground;
    let mut foreign = Foreign::start(ground, &words(ground, mesh))?;
    let hello = |record: &Record| match record {
        Record::Hello { port } => *port,
        _ => None,
    };
    let port = match foreign.wait_for(inbox, HELLO_TIMEOUT, hello) {
        Ok(port) => port,
        Err(text) => bail!("{}: {text}", job.name),
    };
    let ip: Ipv4Addr = job.listen.parse().with_context(|| {
        format!(
            "{}: listen is \"{}\"; wanted an IPv4 address; hint: 127.0.0.1",
            job.name, job.listen
        )
    })?;
    let collections = Collections::new(ground);
    let rows = Rows::new(ground, "compete", monotonic());
    let stop = inbox.stop_flag();
    let (counts, refused) = std::thread::scope(|scope| {
        let pid = foreign.pid();
        let listening = scope.spawn(|| listen(foreign, collections, rows, &stop));
        say_ready_by(pid, Some(SocketAddr::from((ip, port))), clock);
        let client = job.id.unwrap_or(0);
        let counts = ask(ground, mesh, events, |peer, _| reach(client, mesh, peer));
        if counts.is_ok() {
            inbox.wait_for_stop();
        } else {
            stop.store(true, Ordering::Release);
        }
        let refused = heard(listening);
        counts.and_then(|counts| Ok((counts, refused?)))
    })?;
    if refused > 0 {
        events.now("connections refused", Some(&refused.to_string()), clock);
    }
    say_done(counts);
    Ok(())
}

fn words(ground: Ground<'_>, mesh: &Mesh) -> Vec<String> {
    let Ground {
        job,
        directory,
        clock,
        ..
    } = ground;
    let origin = clock.origin();
    let disk = directory.join(format!("{}.disk", job.stem()));
    let mut words = vec![
        "agent".to_owned(),
        format!("asking={}", folder().join("asking").display()),
        format!("listen={}:{}", job.listen, job.port),
        format!("cookie={}", job.cookie),
        format!("body={}", mesh.body.0),
        format!("wall-offset={}", origin.offset_ns()),
        format!("timeout={}", longest_wait_ns(mesh).0),
        format!("disk={}", disk.display()),
        format!("disk-bytes={}", mesh.disk_file.0),
    ];
    let load = load_words(job);
    if !load.is_empty() {
        words.push("compete=gc".to_owned());
        words.extend(load);
    }
    words
}

/// The way to a peer: by the virtual machine.
fn reach(client: u16, mesh: &Mesh, Peer { id, place }: Peer) -> Result<Reached> {
    let address = match place {
        Place::Stream(SocketAddr::V4(address)) | Place::Datagram(SocketAddr::V4(address)) => {
            address
        }
        other => bail!(
            "peers: agent-{id} is at {other}; wanted IPv4; hint: a JVM agent connects to IPv4 addresses only"
        ),
    };
    let target: Box<dyn Target> = Box::new(Asking {
        client,
        server: id,
        address,
        transport: mesh.transport,
    });
    let place = Place::Local(folder().join("asking"));
    Ok((Peer { id, place }, target))
}

/// The schedule, told before its time.
pub(crate) fn ahead(source: MeshSource) -> Box<dyn Source> {
    Box::new(Ahead::new(source, LEAD))
}

/// Listens to the virtual machine until it ends. Returns whom its server refused.
fn listen(
    mut foreign: Foreign,
    mut collections: Collections<'_>,
    mut rows: Rows<'_>,
    stop: &Arc<AtomicBool>,
) -> Result<u64> {
    let mut until = None;
    let mut refused = 0;
    loop {
        if stop.load(Ordering::Acquire) && until.is_none() {
            until = Some(Instant::now() + END_TIMEOUT);
            foreign.say(Command::Stop);
        }
        match foreign.hear(LOOK) {
            Ok(Some(Record::Failure(text))) => report_finding(format!("java failed: {text}")),
            Ok(Some(Record::Refused(count))) => refused += count,
            Ok(Some(Record::Dropped(records))) => say_dropped(records),
            Ok(Some(Record::Done)) => break,
            Ok(Some(record)) => {
                if let Some(spent) = collections.hear(&record)? {
                    spent.write(&mut rows)?;
                }
            }
            Ok(None) if until.is_none_or(|until| Instant::now() < until) => {}
            Ok(None) => {
                report_finding(format!(
                    "java has not ended in {} s; hint: see its log",
                    END_TIMEOUT.as_secs()
                ));
                break;
            }
            Err(error) => {
                // Its clients and its peers now find nobody listening.
                report_finding(format!("java is gone: {error}; hint: see its log"));
                break;
            }
        }
    }
    rows.seal()?;
    collections.seal()?;
    Ok(refused)
}

/// Reports a failure of one agent. The other agents go on.
fn report_finding(text: String) {
    report(&Report::Finding { text, fatal: false });
}

fn heard(listening: ScopedJoinHandle<'_, Result<u64>>) -> Result<u64> {
    listening
        .join()
        .unwrap_or_else(|_| bail!("the thread that listens to java panicked"))
}
