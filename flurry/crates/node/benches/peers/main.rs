//! Operations on Flurry and on its peers from one program, so that the client's side is alike:
//! the same threads, clock, keys, values and loops; only what carries an operation differs.
//!
//! Commanded line by line on standard input, so that connections stay open and rounds of several
//! stores interleave in short blocks:
//!
//! - `open NAME KIND ADDRESS [HOW]` connects and sets every key once. KIND is `flurry` (ADDRESS is the
//!   controller's, HOW a level and `sleep` or `log DIRECTORY`), `memcached`, `redis` (HOW: the replicas that a write waits for) or `etcd`.
//! - `round NAME OPERATION THREADS MILLISECONDS RATE`; OPERATION is `get`, `set` or `both` in turn, RATE
//!   is a second's operations of all threads, 0 for a closed loop.
//! - `finish NAME` lets go of a store that records, and says what it has counted.
//!
//! Each is answered by a line of JSON; after that of a round follow its latencies, eight bytes each.

#![expect(clippy::print_stdout, reason = "its output is its result")]

mod etcd;
mod flurry_client;
mod memcached;
mod redis;
mod round;
mod store;

use std::collections::BTreeMap;
use std::io::{BufRead as _, Write as _};
use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail};
use flurry_recording::Recording;
use round::Plan;
use store::{Items, Operation, Store};

/// How a store is reached; every thread gets a connection of its own where the store has them.
type Connect = Box<dyn Fn() -> Result<Box<dyn Store>>>;

struct Target {
    connect: Connect,
    connections: Vec<Box<dyn Store>>,
    /// Where every copy is noted, if it is.
    recording: Option<Recording>,
}

impl Target {
    fn open(kind: &str, address: &str, how: &[&str], items: &Items) -> Result<Self> {
        let address: SocketAddr = address.parse().context(address.to_owned())?;
        let mut recording = None;
        let connect: Connect = match (kind, how) {
            ("flurry", [level, how @ ..]) => {
                let (connect, log) = flurry_client::open(address, level, how)?;
                recording = log;
                connect
            }
            ("memcached", []) => Box::new(move || memcached::Connection::open(address)),
            ("redis", [replicas]) => {
                let replicas: u8 = replicas.parse().context((*replicas).to_owned())?;
                Box::new(move || redis::Connection::open(address, replicas))
            }
            ("etcd", []) => Box::new(move || etcd::Connection::open(address)),
            _ => bail!("{kind} {how:?}: no such store; wanted one that `open` knows"),
        };
        let mut first = connect()?;
        for item in items.all() {
            first.set(item)?;
        }
        Ok(Self {
            connect,
            connections: vec![first],
            recording,
        })
    }

    fn connections(&mut self, threads: usize) -> Result<&mut [Box<dyn Store>]> {
        while self.connections.len() < threads {
            self.connections.push((self.connect)()?);
        }
        Ok(&mut self.connections[..threads])
    }
}

fn main() -> Result<()> {
    let items = Items::new();
    let mut targets: BTreeMap<String, Target> = BTreeMap::new();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["open", name, kind, address, ref how @ ..] => {
                let target =
                    Target::open(kind, address, how, &items).with_context(|| line.clone())?;
                targets.insert(name.to_owned(), target);
                println!("{{}}");
            }
            ["round", name, operation, threads, milliseconds, rate] => {
                let target = targets.get_mut(name).context(name.to_owned())?;
                let plan = Plan {
                    operation: Operation::named(operation)?,
                    milliseconds: milliseconds.parse()?,
                    rate: rate.parse()?,
                };
                let connections = target.connections(threads.parse()?)?;
                report(&round::run(connections, &items, plan))?;
            }
            ["finish", name] => {
                let target = targets.remove(name).context(name.to_owned())?;
                let Target {
                    connect,
                    connections,
                    recording,
                } = target;
                drop((connect, connections));
                let counts = recording.context("it records nothing")?.finish()?;
                println!("{}", serde_json::to_string(&counts)?);
            }
            _ => bail!("{line}: no command; wanted `open`, `round` or `finish`"),
        }
    }
    Ok(())
}

/// Prints what a round was, and its latencies.
fn report(done: &round::Done) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let head = serde_json::json!({
        "samples": done.latencies_ns.len(), "elapsed_ns": done.elapsed_ns,
        "failed": done.failed, "failure": done.failure,
    });
    writeln!(out, "{head}")?;
    let bytes: Vec<u8> = done
        .latencies_ns
        .iter()
        .flat_map(|ns| ns.to_le_bytes())
        .collect();
    out.write_all(&bytes)?;
    out.flush()?;
    Ok(())
}
