//! The verbs of `flurry`.

use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};
use flurry::{
    Answer, Client, Condition, Controller, ControllerOptions, Level, Operation, Options, Server,
    ServerOptions,
};
use serde::Deserialize;
use unruly_plan::{Bytes, DurationNs};

/// Nothing is there, or a condition did not hold.
const EXIT_NOT: u8 = 1;
const EXIT_ERROR: u8 = 2;

/// How long `serve` waits for its own servers to join.
const JOIN_MAX: Duration = Duration::from_secs(10);

#[derive(Debug, Parser)]
#[command(
    name = "flurry",
    version,
    about = "A replicated store that answers with the first correct response.",
    after_help = "Exit codes: 0 done, 1 not found or a condition that did not hold, 2 an error.\n\
                  For now everything listens on 127.0.0.1 alone."
)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// A whole cluster in one process, to try it out
    Serve {
        /// How many servers
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=64))]
        embedded: u8,
        /// Where the controller listens
        #[arg(long, default_value = DEFAULT_CONTROLLER)]
        controller: String,
        /// Where the controller keeps its state (default: in memory)
        #[arg(long)]
        dir: Option<PathBuf>,
    },
    /// A controller: who takes part, and who owns what
    Controller {
        /// Where it listens
        #[arg(long, default_value = DEFAULT_CONTROLLER)]
        listen: String,
        /// Servers that must have come before anybody is served
        #[arg(long, default_value_t = 3)]
        servers: u8,
        /// Copies of each key
        #[arg(long, default_value_t = 3)]
        replicas: u8,
        /// Where it keeps its state; only one controller may use it
        #[arg(long)]
        dir: PathBuf,
    },
    /// A data server
    Server {
        /// Its place in the cluster; no two may run with the same
        #[arg(long)]
        id: u16,
        /// Where the controller listens
        #[arg(long, default_value = DEFAULT_CONTROLLER)]
        controller: String,
        /// Where it listens; port 0 is any
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: String,
        /// Memory for records
        #[arg(long, default_value = "256MB")]
        memory: Bytes,
    },
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
        /// Where the controller listens
        #[arg(long, default_value = DEFAULT_CONTROLLER)]
        controller: String,
        /// How long to wait
        #[arg(long, default_value = "2s")]
        timeout: DurationNs,
    },
}

const DEFAULT_CONTROLLER: &str = "127.0.0.1:7700";

#[derive(Debug, Args)]
struct Common {
    /// Where the controller listens
    #[arg(long, default_value = DEFAULT_CONTROLLER)]
    controller: String,
    /// The session: a space of keys with one owner at a time
    #[arg(long, default_value = "default")]
    session: String,
    /// Which replies to wait for: first, quorum, all, hedge:1ms or auto
    #[arg(long, default_value = "first")]
    level: LevelName,
    /// How long to wait: for the opening, for the answer, for the closing
    #[arg(long, default_value = "2s")]
    timeout: DurationNs,
}

#[derive(Debug, Clone, Copy)]
struct LevelName(Level);

impl FromStr for LevelName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let level = match text {
            "first" => Level::First,
            "quorum" => Level::Quorum,
            "all" => Level::All,
            "auto" => Level::Auto,
            _ => {
                let delay = text
                    .strip_prefix("hedge:")
                    .and_then(|it| it.parse::<DurationNs>().ok());
                let wrong = || {
                    format!(
                        "level is {text}; wanted first, quorum, all, hedge:TIME or auto; hint: hedge:1ms"
                    )
                };
                Level::Hedge(flurry::DurationNs(delay.ok_or_else(wrong)?.0))
            }
        };
        Ok(Self(level))
    }
}

/// Parses, calls, prints; never panics on input.
#[must_use]
pub fn main() -> ExitCode {
    match call(Arguments::parse().verb) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            say_error(&format!("flurry: {error:#}"));
            ExitCode::from(EXIT_ERROR)
        }
    }
}

fn call(verb: Verb) -> Result<u8> {
    match verb {
        Verb::Serve {
            embedded,
            controller,
            dir,
        } => serve(embedded, &controller, dir),
        Verb::Controller {
            listen,
            servers,
            replicas,
            dir,
        } => {
            let options = ControllerOptions {
                servers,
                replicas,
                ..ControllerOptions::new(local(&listen)?, Some(dir))
            };
            let controller = Controller::start(&options)?;
            say(format!("controller {}\nready", controller.address()))?;
            controller.wait()?;
            Ok(0)
        }
        Verb::Server {
            id,
            controller,
            listen,
            memory,
        } => {
            let options = ServerOptions {
                listen: local(&listen)?,
                memory_bytes_max: usize::try_from(memory.0).unwrap_or(usize::MAX),
                ..ServerOptions::new(id, local(&controller)?)
            };
            let server = Server::start(&options)?;
            say(format!("server {id} {}\nready", server.addresses()[0]))?;
            server.wait()?;
            Ok(0)
        }
        Verb::Get { key, common } => operate(&common, key, &Operation::Get),
        Verb::Set {
            key,
            value,
            ttl,
            common,
        } => set(&common, key, value, ttl),
        Verb::Del { key, common } => operate(&common, key, &Operation::Delete { counted: true }),
        Verb::Incr { key, by, common } => operate(&common, key, &Operation::Increment(by)),
        Verb::Append { key, value, common } => {
            operate(&common, key, &Operation::Append(value.into_vec().into()))
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
            operate(&common, key, &operation)
        }
        Verb::Status {
            controller,
            timeout,
        } => status(&controller, Duration::from_nanos(timeout.0)),
    }
}

fn local(text: &str) -> Result<SocketAddr> {
    Ok(flurry::resolve(text, Duration::from_secs(2))?)
}

fn set(common: &Common, key: OsString, value: OsString, ttl: Option<DurationNs>) -> Result<u8> {
    let operation = Operation::Set {
        value: value.into_vec().into(),
        expires_at: ttl.map(|ttl| flurry::wall_after(Duration::from_nanos(ttl.0))),
        condition: Condition::Always,
    };
    operate(common, key, &operation)
}

/// Opens the session, does one operation, prints what came of it, and lets go of the session.
fn operate(common: &Common, key: OsString, operation: &Operation) -> Result<u8> {
    let timeout = Duration::from_nanos(common.timeout.0);
    let options = Options {
        level: common.level.0,
        timeout,
        open_timeout: timeout,
        ..Options::new(
            flurry::resolve(&common.controller, timeout)?,
            &common.session,
        )
    };
    let client = Client::open(&options)?;
    let code = match client.call().run(key.into_vec(), operation) {
        Ok(done) => {
            if done.is_tail_unknown {
                say_error(
                    "flurry: key: an earlier owner's last writes to it may have been lost with their servers",
                );
            }
            print(done.answer)?
        }
        Err(error) => {
            // The next one should not have to wait for this one's end.
            let _ = client.close();
            return Err(error.into());
        }
    };
    let why = match client.close() {
        Ok(closed) if closed.is_stable => return Ok(code),
        Ok(closed) if closed.unstable > 0 => "a server has not answered yet",
        Ok(_) => "the controller is away",
        Err(flurry::Error::Fenced { .. }) => "somebody else has opened it",
        Err(error) => return Err(error.into()),
    };
    say_error(&format!(
        "flurry: session: not closed, since {why}; the answer stands; hint: `flurry status`"
    ));
    Ok(code)
}

fn print(answer: Answer) -> Result<u8> {
    match answer {
        Answer::Value(value) => say(&value)?,
        Answer::Stored => say("ok")?,
        Answer::Number(number) => say(number.to_string())?,
        Answer::NotFound => {
            say_error("(not found)");
            return Ok(EXIT_NOT);
        }
        Answer::NotStored => {
            say_error("(not stored: the value is another)");
            return Ok(EXIT_NOT);
        }
        other => return Err(flurry::Error::unexpected(&other).into()),
    }
    Ok(0)
}

fn serve(servers: u8, controller: &str, directory: Option<PathBuf>) -> Result<u8> {
    let place = directory.as_ref().map_or_else(
        || "state in memory".to_owned(),
        |directory| format!("state in {}", directory.display()),
    );
    let decider = Controller::start(&ControllerOptions {
        servers,
        replicas: servers.min(3),
        ..ControllerOptions::new(local(controller)?, directory)
    })?;
    let address = decider.address();
    say(format!("controller {address}, {place}"))?;
    let started: Vec<Server> = (1..=u16::from(servers))
        .map(|id| Server::start(&ServerOptions::new(id, address)))
        .collect::<Result<_, _>>()?;
    for (id, server) in (1..).zip(&started) {
        say(format!("server {id} {}", server.addresses()[0]))?;
    }
    let start = Instant::now();
    while !seen(address)?.is_whole() {
        ensure!(
            start.elapsed() < JOIN_MAX,
            "serve: the servers have not joined within {JOIN_MAX:?}; wanted all of them up; hint: is the state in --dir of another cluster?"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    let flag = if address.to_string() == DEFAULT_CONTROLLER {
        String::new()
    } else {
        format!(" --controller {address}")
    };
    say(format!(
        "try: flurry set greeting hello{flag}\n     flurry get greeting{flag}\n     flurry status{flag}\nstop: Ctrl-C\nready"
    ))?;
    decider.wait()?;
    Ok(0)
}

/// The controller's view.
#[derive(Debug, Deserialize)]
struct View {
    members: Vec<Member>,
    config: u32,
    changing: bool,
    replicas: u8,
    waiting_servers: usize,
    wanted_servers: usize,
    sessions: usize,
}

#[derive(Debug, Deserialize)]
struct Member {
    server: u16,
    state: String,
    address: String,
    heard_ms_ago: Option<u64>,
}

impl View {
    fn is_whole(&self) -> bool {
        let up = self.members.iter().filter(|it| it.state == "up").count();
        self.config > 0 && !self.changing && up >= self.wanted_servers
    }
}

fn seen(controller: SocketAddr) -> Result<View> {
    view(controller, Duration::from_secs(2))
}

fn view(controller: SocketAddr, timeout: Duration) -> Result<View> {
    let text = flurry::status(controller, timeout)?;
    serde_json::from_str(&text).with_context(|| {
        format!("controller {controller}: its status cannot be read; wanted a JSON object; hint: is it of another version?")
    })
}

fn status(controller: &str, timeout: Duration) -> Result<u8> {
    let mut view = view(flurry::resolve(controller, timeout)?, timeout)?;
    let mut lines = vec![format!(
        "{:<8}{:<9}{:<23}heard",
        "server", "state", "address"
    )];
    // A member of the old and of the new set comes twice while they change.
    view.members.sort_by_key(|it| it.server);
    view.members
        .dedup_by(|a, b| (a.server, &a.address, &a.state) == (b.server, &b.address, &b.state));
    for member in &view.members {
        let heard = member
            .heard_ms_ago
            .map_or_else(|| "never".to_owned(), |ago| format!("{ago} ms ago"));
        lines.push(format!(
            "{:<8}{:<9}{:<23}{heard}",
            member.server, member.state, member.address
        ));
    }
    if view.config == 0 {
        lines.push(format!(
            "waiting for servers: {} of {} have come",
            view.waiting_servers, view.wanted_servers
        ));
    } else {
        let changing = if view.changing { ", changing" } else { "" };
        lines.push(format!(
            "configuration {}{changing}, {} copies of each key, {} sessions",
            view.config, view.replicas, view.sessions
        ));
    }
    say(lines.join("\n"))?;
    Ok(0)
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
