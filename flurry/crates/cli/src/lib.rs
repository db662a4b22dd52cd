//! The verbs of `flurry`.

mod bench;
mod config;
mod controller;
mod gateway;
mod guard;
mod keyed;
mod level;
mod log;
mod losses;
mod members;
mod operate;
mod serve;
mod signals;
mod status;
mod watch;

use std::ffi::OsString;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Command, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use flurry::{Controllers, Operation, Options, Transport};
use unruly_plan::{Bytes, DurationNs};
use unruly_program::{EXIT_ERROR, NOTICES, ending, parse};

use config::Config;
use keyed::Keyed;
use level::LevelName;
use log::Log;
use members::Operator;
use operate::{observe, operate, set};
use serve::Alone;
use watch::Watch;

/// Nothing is there, or a condition did not hold.
const EXIT_NOT: u8 = 1;

const DEFAULT_CONTROLLER: &str = "127.0.0.1:7700";

/// What the exit codes mean.
const EXIT: &str = "0 done, 1 not found or a condition did not hold, 2 an error";

/// An example of each verb, with its purpose.
const EXAMPLES: [(&str, &str, &str); 19] = [
    (
        "serve",
        "flurry serve",
        "Start three servers and a controller in one process",
    ),
    (
        "controller",
        "flurry controller --dir state",
        "Keep the state of the cluster in state/",
    ),
    (
        "server",
        "flurry server --id 1 --memory 1GB",
        "Run the first server of a cluster",
    ),
    (
        "route",
        "flurry route --listen 127.0.0.1:7690",
        "Route for clients on this machine",
    ),
    (
        "gateway",
        "flurry gateway --listen 127.0.0.1:6379",
        "Let Redis clients use the cluster",
    ),
    (
        "password",
        "flurry password < secret.txt",
        "Hash the password in secret.txt",
    ),
    ("key", "flurry key cluster.key", "Write a new cluster key"),
    ("get", "flurry get greeting", "Print the value of greeting"),
    (
        "set",
        "flurry set greeting hello --ttl 60s",
        "Store a value for a minute",
    ),
    ("del", "flurry del greeting", "Remove the value of greeting"),
    ("incr", "flurry incr visits 5", "Add 5 to visits"),
    (
        "append",
        "flurry append log line",
        "Append to the value of log",
    ),
    (
        "cas",
        "flurry cas leader a b",
        "Replace a by b, if leader is still a",
    ),
    (
        "status",
        "flurry status --controller 10.0.0.1:7700",
        "Ask the controller on another host",
    ),
    (
        "losses",
        "flurry losses --follow",
        "Print each key whose last write is lost or may be",
    ),
    (
        "remove",
        "flurry remove 2",
        "Say that server 2 is gone for good",
    ),
    (
        "drain",
        "flurry drain 3",
        "Copy what server 3 holds to others, then end it",
    ),
    (
        "bench",
        "flurry bench --rate 2k/s -d 60s",
        "Measure the cluster at 2,000 operations a second",
    ),
    (
        "notices",
        "flurry notices",
        "Print whose code this program contains",
    ),
];

#[derive(Debug, Parser)]
#[command(
    name = "flurry",
    version,
    about = "A replicated store that answers with the first correct response.",
    subcommand_value_name = "VERB",
    after_help = format!("Exit codes: {EXIT}")
        + "\n\nWithout --key-file nothing is encrypted, and every part stays on 127.0.0.0/8."
)]
struct Arguments {
    #[command(flatten)]
    keyed: Keyed,
    /// Form of the log on standard error
    #[arg(long, global = true, value_enum, default_value_t)]
    log: Log,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run a whole cluster in one process, to try it out
    Serve(serve::Whole),
    /// Run a controller: it assigns servers and owners of sessions
    Controller(controller::ControllerArguments),
    /// Run a data server
    Server {
        /// Number of the server in the cluster; each server needs its own
        #[arg(long)]
        id: u16,
        /// Addresses of the controllers, separated by commas
        #[arg(long, default_value = DEFAULT_CONTROLLER)]
        controller: String,
        /// Address of the first thread; the others use the next ports; port 0 picks one
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: String,
        /// Address under which others reach the server, behind a port forwarder
        #[arg(long, value_name = "IP")]
        announce: Option<IpAddr>,
        /// Memory for records
        #[arg(long, default_value = "256MB")]
        memory: Bytes,
        /// Threads; the controller needs the same number
        #[arg(long, default_value_t = 1)]
        shards: u8,
        /// Evict the least recently used records when memory is full, instead of refusing writes
        #[arg(long)]
        evict: bool,
        /// Time to busy-poll for a message before sleeping; needs a spare core
        #[arg(long, default_value = "0s")]
        spin: DurationNs,
        /// Directory for a copy of the records, written with a delay; one server may use it
        #[arg(long, value_name = "DIR")]
        disk: Option<PathBuf>,
        /// Declare this server's disk lost for good, so that the others do not wait for it
        #[arg(long)]
        disk_lost: bool,
        /// Cluster file, instead of the other options except --id
        #[arg(long, conflicts_with_all = ["controller", "listen", "announce", "memory", "shards", "evict", "spin"])]
        config: Option<PathBuf>,
        #[command(flatten)]
        watch: Watch,
    },
    /// Run a router for clients that use --router
    Route {
        /// Address to listen on
        #[arg(long, default_value = "127.0.0.1:7690")]
        listen: String,
        /// Addresses of the controllers, separated by commas
        #[arg(long, default_value = DEFAULT_CONTROLLER)]
        controller: String,
        /// Cluster file, instead of the other options
        #[arg(long, conflicts_with_all = ["listen", "controller"])]
        config: Option<PathBuf>,
        #[command(flatten)]
        watch: Watch,
    },
    /// Run a gateway for programs that speak the Redis protocol
    Gateway(gateway::GatewayArguments),
    /// Hash a password (read from standard input) for a users file
    Password,
    /// Write a new cluster key; it gives full access
    Key {
        /// New file, which only its owner can read; without it the key is printed
        file: Option<PathBuf>,
    },
    /// Print a value, without becoming the owner of its session
    Get {
        /// Key
        key: OsString,
        /// Session: a key space with one owner at a time; `slots` for a key of a gateway
        #[arg(long, default_value = "default")]
        session: String,
        #[command(flatten)]
        controllers: Operated,
    },
    /// Replace a value
    Set {
        /// Key
        key: OsString,
        /// Value
        value: OsString,
        /// Time after which the value expires
        #[arg(long)]
        ttl: Option<DurationNs>,
        #[command(flatten)]
        common: Common,
    },
    /// Remove a value and print how many were removed
    Del {
        /// Key
        key: OsString,
        #[command(flatten)]
        common: Common,
    },
    /// Add to a number and print the sum
    Incr {
        /// Key
        key: OsString,
        /// Number to add
        #[arg(default_value_t = 1, allow_negative_numbers = true)]
        by: i64,
        #[command(flatten)]
        common: Common,
    },
    /// Append to a value and print the new length
    Append {
        /// Key
        key: OsString,
        /// Bytes to append
        value: OsString,
        #[command(flatten)]
        common: Common,
    },
    /// Replace a value if it equals the expected value
    Cas {
        /// Key
        key: OsString,
        /// Expected value
        old: OsString,
        /// New value
        new: OsString,
        #[command(flatten)]
        common: Common,
    },
    /// Print the servers as the controller sees them
    Status {
        #[command(flatten)]
        controllers: Operated,
        /// Print the controller's JSON object instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Declare a server gone for good, so that nobody waits for it
    Remove {
        /// Number of the server; its process must have ended
        server: u16,
        #[command(flatten)]
        controllers: Operated,
    },
    /// Copy what a server holds to the others, so that it can be switched off
    Drain {
        /// Number of the server
        server: u16,
        /// Take the drain back: the server takes part again
        #[arg(long)]
        cancel: bool,
        /// Time to wait until the others have copied everything
        #[arg(long, default_value = "10min")]
        wait: DurationNs,
        #[command(flatten)]
        controllers: Operated,
    },
    /// List the keys of a gateway whose last writes are lost, or may be; exits with 1 if there are any
    Losses(losses::Losses),
    /// Load the cluster and record every operation for `unruly report`
    Bench(bench::Bench),
    /// Print the licences of the libraries in this program
    Notices,
}

/// How a client reaches its cluster.
#[derive(Debug, Args)]
struct Reach {
    /// Addresses of the controllers, separated by commas (default: 127.0.0.1:7700, or from --config)
    #[arg(long)]
    controller: Option<String>,
    /// Cluster file
    #[arg(long)]
    config: Option<PathBuf>,
    /// Address of a separate router (default: route inside the client, or from --config)
    #[arg(long)]
    router: Option<String>,
    /// Transport of messages: udp or tcp (default: udp, or from --config)
    #[arg(long, value_parser = transport)]
    transport: Option<Transport>,
    /// Timeout of opening, of each answer and of closing (default: 2s, or from --config)
    #[arg(long)]
    timeout: Option<DurationNs>,
    /// Time to busy-poll for an answer before sleeping (default: 50us, or from --config)
    #[arg(long)]
    spin: Option<DurationNs>,
}

/// Whom an operator talks to.
#[derive(Debug, Args)]
struct Operated {
    /// Addresses of the controllers, separated by commas
    #[arg(long, default_value = DEFAULT_CONTROLLER)]
    controller: String,
    /// Cluster file with the addresses
    #[arg(long, conflicts_with = "controller")]
    config: Option<PathBuf>,
    /// Time to wait for the answer
    #[arg(long, default_value = "2s")]
    timeout: DurationNs,
}

impl Operated {
    fn read(&self, keyed: &Keyed) -> Result<Operator> {
        let timeout = Duration::from_nanos(self.timeout.0);
        let (controllers, security) = match &self.config {
            Some(path) => {
                let config = Config::read(path, keyed)?;
                (config.controllers()?, config.security().clone())
            }
            None => (
                Controllers::resolve(&self.controller, timeout)?,
                keyed.read()?,
            ),
        };
        Ok(Operator {
            controllers,
            security,
            timeout,
        })
    }
}

#[derive(Debug, Args)]
struct Common {
    #[command(flatten)]
    reach: Reach,
    /// Session: a key space with one owner at a time
    #[arg(long, default_value = "default")]
    session: String,
    /// Replies to wait for: first, quorum, all, hedge:1ms, auto or disk (default: first, or from
    /// --config)
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
        _ => Err(format!("{text:?} is not udp or tcp; hint: --transport tcp")),
    }
}

/// Returns the command line of `flurry`: each verb's help ends with an example.
fn command() -> Command {
    let whole = Arguments::command();
    EXAMPLES.iter().fold(whole, |whole, (verb, line, purpose)| {
        whole.mut_subcommand(verb, |it| it.after_help(ending(EXIT, &[(*line, *purpose)])))
    })
}

/// Parses, calls, prints; never panics on input.
#[must_use]
pub fn main() -> ExitCode {
    let matches = match parse(command()) {
        Ok(matches) => matches,
        Err(code) => return ExitCode::from(code),
    };
    let Arguments { keyed, log, verb } = match Arguments::from_arg_matches(&matches) {
        Ok(arguments) => arguments,
        Err(error) => error.exit(),
    };
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
        Verb::Key { file } => {
            keyed::write_new(file.as_deref())?;
            Ok(0)
        }
        Verb::Get {
            key,
            session,
            controllers,
        } => observe(&controllers.read(keyed)?, &session, key),
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
        Verb::Append { key, value, common } => {
            let operation = Operation::Append(value.into_vec().into());
            operate(&common, keyed, key, &operation)
        }
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
        Verb::Status { controllers, json } => status::status(&controllers.read(keyed)?, json),
        Verb::Losses(losses) => losses.run(),
        Verb::Remove {
            server,
            controllers,
        } => members::remove(&controllers.read(keyed)?, server),
        Verb::Drain {
            server,
            cancel: true,
            controllers,
            ..
        } => members::take_back(&controllers.read(keyed)?, server),
        Verb::Drain {
            server,
            controllers,
            wait,
            ..
        } => members::drain(
            &controllers.read(keyed)?,
            server,
            Duration::from_nanos(wait.0),
        ),
        Verb::Bench(bench) => bench.run(keyed),
        Verb::Notices => say(NOTICES.trim_end()).map(|()| 0),
    }
}

/// Refuses the loss of a disk that the server does not have.
fn check_disk(disk: Option<&Path>, is_lost: bool) -> Result<()> {
    anyhow::ensure!(
        !is_lost || disk.is_some(),
        "--disk-lost: the server has no disk; wanted its directory; hint: --disk DIR, or disk in the cluster file"
    );
    Ok(())
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
            let disk = disk.or_else(|| options.disk.clone());
            check_disk(disk.as_deref(), disk_lost)?;
            Alone::Server(flurry::ServerOptions {
                disk,
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
        } => {
            check_disk(disk.as_deref(), disk_lost)?;
            Alone::Server(flurry::ServerOptions {
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
            })
        }
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

/// Prints a line on standard output. A reader that has gone (`| head`) is no error.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_shows_each_argument_with_its_text_and_an_example_and_fits_into_80_columns() {
        let mut whole = command();
        whole.build();
        let verbs = whole.get_subcommands().filter(|it| it.get_name() != "help");
        for verb in verbs {
            let page = verb.clone().term_width(80).render_long_help().to_string();
            for argument in verb.get_arguments() {
                assert!(argument.get_help().is_some(), "{verb} {argument}");
                assert!(page.contains(&argument.to_string()), "{verb} {argument}");
            }
            assert!(
                page.contains(&format!("Examples:\n  flurry {verb}")),
                "{page}"
            );
            for line in page.lines() {
                assert!(line.chars().count() <= 80, "{verb}: {line}");
            }
        }
    }
}
