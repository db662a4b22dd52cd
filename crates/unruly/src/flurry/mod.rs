//! The verbs of `flurry`.

mod bench;
mod config;
mod controller;
mod gateway;
mod guard;
mod keyed;
mod level;
mod log;
mod operate;
mod serve;
mod status;
mod watch;

use std::ffi::OsString;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use flurry::{Controllers, Operation, Options, Transport};
use unruly_plan::{Bytes, DurationNs};

use config::Config;
use keyed::Keyed;
use level::LevelName;
use log::Log;
use operate::{operate, set};
use serve::Alone;
use watch::Watch;

/// Nothing is there, or a condition did not hold.
const EXIT_NOT: u8 = 1;
const EXIT_ERROR: u8 = 2;

const DEFAULT_CONTROLLER: &str = "127.0.0.1:7700";

#[derive(Debug, Parser)]
#[command(
    name = "flurry",
    version,
    about = "A replicated store that answers with the first correct response.",
    after_help = "Exit codes: 0 done, 1 not found or a condition that did not hold, 2 an error.\n\
                  Without --key-file everything stays on 127.0.0.0/8: nothing is encrypted."
)]
struct Arguments {
    #[command(flatten)]
    keyed: Keyed,
    /// How parts that serve tell what happens, on standard error
    #[arg(long, global = true, value_enum, default_value_t)]
    log: Log,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// A whole cluster in one process, to try it out
    Serve(serve::Whole),
    /// A controller: who takes part, and who owns what
    Controller(controller::ControllerArguments),
    /// A data server
    Server {
        /// Its place in the cluster; no two may run with the same
        #[arg(long)]
        id: u16,
        /// Where the controllers listen, with commas between
        #[arg(long, default_value = DEFAULT_CONTROLLER)]
        controller: String,
        /// Where its first thread listens, the others behind it; port 0 is any
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: String,
        /// The address under which others reach it, where something stands before it that passes its ports on
        #[arg(long, value_name = "IP")]
        announce: Option<IpAddr>,
        /// Memory for records
        #[arg(long, default_value = "256MB")]
        memory: Bytes,
        /// Threads; the same as the controller is told
        #[arg(long, default_value_t = 1)]
        shards: u8,
        /// When the memory is full: evict what was used longest ago, instead of refusing
        #[arg(long)]
        evict: bool,
        /// Look for the next message for so long before sleeping; only where a core is spare
        #[arg(long, default_value = "0s")]
        spin: DurationNs,
        /// Keep its records in this directory too, some moments later; only one server may use it
        #[arg(long, value_name = "DIR")]
        disk: Option<PathBuf>,
        /// What this server had on disk is gone for good: the others shall not wait for it
        #[arg(long, requires = "disk")]
        disk_lost: bool,
        /// A cluster's file, instead of the other options but --id
        #[arg(long, conflicts_with_all = ["controller", "listen", "announce", "memory", "shards", "evict", "spin"])]
        config: Option<PathBuf>,
        #[command(flatten)]
        watch: Watch,
    },
    /// A router of its own, for clients with --router
    Route {
        /// Where it listens
        #[arg(long, default_value = "127.0.0.1:7690")]
        listen: String,
        /// Where the controllers listen, with commas between
        #[arg(long, default_value = DEFAULT_CONTROLLER)]
        controller: String,
        /// A cluster's file, instead of the other options
        #[arg(long, conflicts_with_all = ["listen", "controller"])]
        config: Option<PathBuf>,
        #[command(flatten)]
        watch: Watch,
    },
    /// The owner of keys for programs that speak the protocol of Redis
    Gateway(gateway::GatewayArguments),
    /// Print what a file of users may keep of a password, which is read from standard input
    Password,
    /// Print a new key for a cluster; whoever has it can do everything
    Key,
    /// Print a value
    Get {
        /// The key
        key: OsString,
        #[command(flatten)]
        common: Common,
    },
    /// Replace a value
    Set {
        /// The key
        key: OsString,
        /// The value
        value: OsString,
        /// After this long it ends
        #[arg(long)]
        ttl: Option<DurationNs>,
        #[command(flatten)]
        common: Common,
    },
    /// Remove a value; print how many there were
    Del {
        /// The key
        key: OsString,
        #[command(flatten)]
        common: Common,
    },
    /// Add to a number; print the sum
    Incr {
        /// The key
        key: OsString,
        /// What to add
        #[arg(default_value_t = 1, allow_negative_numbers = true)]
        by: i64,
        #[command(flatten)]
        common: Common,
    },
    /// Add bytes at the end; print the new length
    Append {
        /// The key
        key: OsString,
        /// What to add
        value: OsString,
        #[command(flatten)]
        common: Common,
    },
    /// Replace a value if it is what is expected
    Cas {
        /// The key
        key: OsString,
        /// What must be there
        old: OsString,
        /// What shall be there
        new: OsString,
        #[command(flatten)]
        common: Common,
    },
    /// The servers, as the controller sees them
    Status {
        /// Where the controllers listen, with commas between
        #[arg(long, default_value = DEFAULT_CONTROLLER)]
        controller: String,
        /// A cluster's file, which says where
        #[arg(long, conflicts_with = "controller")]
        config: Option<PathBuf>,
        /// How long to wait
        #[arg(long, default_value = "2s")]
        timeout: DurationNs,
    },
    /// Load the cluster and record every copy of every operation, for `unruly report`
    Bench(bench::Bench),
}

/// How a client reaches its cluster.
#[derive(Debug, Args)]
struct Reach {
    /// Where the controllers listen, with commas between (default: 127.0.0.1:7700, or what --config says)
    #[arg(long)]
    controller: Option<String>,
    /// A cluster's file
    #[arg(long)]
    config: Option<PathBuf>,
    /// Where a router of its own listens (default: the router is inside, or what --config says)
    #[arg(long)]
    router: Option<String>,
    /// How messages travel: udp or tcp (default: udp, or what --config says)
    #[arg(long, value_parser = transport)]
    transport: Option<Transport>,
    /// How long to wait: for the opening, for the answer, for the closing (default: 2s, or what
    /// --config says)
    #[arg(long)]
    timeout: Option<DurationNs>,
    /// Look for an answer for so long before sleeping (default: 50us, or what --config says)
    #[arg(long)]
    spin: Option<DurationNs>,
}

#[derive(Debug, Args)]
struct Common {
    #[command(flatten)]
    reach: Reach,
    /// The session: a space of keys with one owner at a time
    #[arg(long, default_value = "default")]
    session: String,
    /// Which replies to wait for: first, quorum, all, hedge:1ms, auto or disk (default: first, or what
    /// --config says)
    #[arg(long)]
    level: Option<LevelName>,
}

impl Reach {
    /// What the flags say, before what the file says.
    fn options(&self, session: &str, keyed: &Keyed) -> Result<Options> {
        let mut options = match &self.config {
            Some(path) => Config::read(path, keyed)?.client(session)?,
            None => Options {
                open_timeout: Duration::from_secs(2),
                security: keyed.read()?,
                ..Options::new(controllers(DEFAULT_CONTROLLER)?, session)
            },
        };
        if let Some(timeout) = self.timeout {
            options.timeout = Duration::from_nanos(timeout.0);
            options.open_timeout = options.timeout;
        }
        if let Some(text) = &self.controller {
            options.controllers = Controllers::resolve(text, options.open_timeout)?;
        }
        if let Some(text) = &self.router {
            options.router = Some(flurry::resolve(text, options.open_timeout)?);
        }
        options.transport = self.transport.unwrap_or(options.transport);
        if let Some(spin) = self.spin {
            options.spin = Duration::from_nanos(spin.0);
        }
        Ok(options)
    }
}

impl Common {
    fn options(&self, keyed: &Keyed) -> Result<Options> {
        let mut options = self.reach.options(&self.session, keyed)?;
        options.level = self.level.map_or(options.level, |it| it.0);
        Ok(options)
    }
}

fn transport(text: &str) -> Result<Transport, String> {
    match text {
        "udp" => Ok(Transport::Udp),
        "tcp" => Ok(Transport::Tcp),
        _ => Err(format!(
            "transport is {text}; wanted udp or tcp; hint: --transport tcp"
        )),
    }
}

/// Parses, calls, prints; never panics on input.
#[must_use]
pub fn main() -> ExitCode {
    let Arguments { keyed, log, verb } = Arguments::parse();
    log.begin();
    match call(verb, &keyed) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            say_error(&format!("flurry: {error:#}"));
            ExitCode::from(EXIT_ERROR)
        }
    }
}

fn call(verb: Verb, keyed: &Keyed) -> Result<u8> {
    match verb {
        Verb::Serve(whole) => whole.run(keyed),
        Verb::Controller(arguments) => arguments.run(keyed),
        Verb::Server { ref watch, .. } | Verb::Route { ref watch, .. } => {
            let watched = watch.start()?;
            alone(verb, keyed)?.run(&watched)
        }
        Verb::Gateway(arguments) => arguments.run(keyed),
        Verb::Password => guard::password(),
        Verb::Key => {
            say(flurry::ClusterKey::random()?.to_text())?;
            Ok(0)
        }
        Verb::Get { key, common } => operate(&common, keyed, key, &Operation::Get),
        Verb::Set {
            key,
            value,
            ttl,
            common,
        } => set(&common, keyed, key, value, ttl),
        Verb::Del { key, common } => {
            operate(&common, keyed, key, &Operation::Delete { counted: true })
        }
        Verb::Incr { key, by, common } => operate(&common, keyed, key, &Operation::Increment(by)),
        Verb::Append { key, value, common } => operate(
            &common,
            keyed,
            key,
            &Operation::Append(value.into_vec().into()),
        ),
        Verb::Cas {
            key,
            old,
            new,
            common,
        } => {
            let operation = Operation::CompareAndSet {
                expected: Some(old.into_vec().into()),
                value: new.into_vec().into(),
            };
            operate(&common, keyed, key, &operation)
        }
        Verb::Status {
            controller,
            config,
            timeout,
        } => {
            let timeout = Duration::from_nanos(timeout.0);
            let (controllers, security) = match config {
                Some(path) => {
                    let config = Config::read(&path, keyed)?;
                    (config.controllers()?, config.security().clone())
                }
                None => (Controllers::resolve(&controller, timeout)?, keyed.read()?),
            };
            status::status(&controllers, timeout, &security)
        }
        Verb::Bench(bench) => bench.run(keyed),
    }
}

/// A part of its own, from its file or its flags.
fn alone(verb: Verb, keyed: &Keyed) -> Result<Alone> {
    Ok(match verb {
        Verb::Server {
            id,
            config: Some(path),
            disk,
            disk_lost,
            ..
        } => {
            let options = Config::read(&path, keyed)?.server(&path, id)?;
            Alone::Server(flurry::ServerOptions {
                disk: disk.or_else(|| options.disk.clone()),
                disk_lost,
                ..options
            })
        }
        Verb::Server {
            id,
            controller,
            listen,
            announce,
            memory,
            shards,
            evict,
            spin,
            disk,
            disk_lost,
            ..
        } => Alone::Server(flurry::ServerOptions {
            disk,
            disk_lost,
            listen: local(&listen)?,
            announce,
            memory_bytes_max: usize::try_from(memory.0).unwrap_or(usize::MAX),
            shards,
            evict,
            spin: Duration::from_nanos(spin.0),
            security: keyed.read()?,
            ..flurry::ServerOptions::new(id, controllers(&controller)?)
        }),
        Verb::Route {
            config: Some(path), ..
        } => Alone::router(Config::read(&path, keyed)?.router()?, &path)?,
        Verb::Route {
            listen, controller, ..
        } => Alone::Router(flurry::RouterOptions {
            listen: local(&listen)?,
            security: keyed.read()?,
            ..flurry::RouterOptions::new(controllers(&controller)?)
        }),
        other => unreachable!("{other:?} is no part of its own"),
    })
}

fn controllers(text: &str) -> Result<Controllers> {
    Ok(Controllers::resolve(text, Duration::from_secs(2))?)
}

fn local(text: &str) -> Result<SocketAddr> {
    Ok(flurry::resolve(text, Duration::from_secs(2))?)
}

/// A line for whoever reads our output; a reader that is gone (`| head`) is no error.
fn say(text: impl AsRef<[u8]>) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let written = out
        .write_all(text.as_ref())
        .and_then(|()| out.write_all(b"\n"))
        .and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

fn say_error(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
