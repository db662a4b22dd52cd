//! Commands about the connection and the gateway.

use bytes::Bytes;
use flurry_core::config::Level;
use flurry_core::decimal::decimal;
use flurry_core::id::{DurationNs, MonoNs};
use flurry_core::key_value::CALLER_BYTES_MAX;
use flurry_core::resp::{Reply, Version, error};

use super::connection::Connection;
use super::dispatcher::{Dispatcher, GlobalCommand, wrong_number};
use super::glob;
use super::losses::Losses;
use super::table;
use crate::VALUE_BYTES_MAX;

/// The version of Redis whose words these are.
pub(super) const REDIS_VERSION: &str = "7.0.15";

impl Dispatcher {
    pub(super) fn on_connection(
        &mut self,
        now: MonoNs,
        connection: &mut Connection,
        name: &'static str,
        words: &[Bytes],
    ) -> Option<GlobalCommand> {
        if let Some(reply) = simple(name, words) {
            connection.respond(reply);
            return None;
        }
        let reply = match name {
            "script" => self.scripts.answer(&words[1..]),
            "slowlog" => self.slow.answer(&words[1..]),
            "quit" => {
                connection.respond(Reply::Status("OK"));
                connection.ends = true;
                return None;
            }
            "reset" => self.reset(connection),
            "wait" => {
                self.wait(now, connection, words);
                return None;
            }
            "scan" | "keys" | "dbsize" | "flushall" | "flushdb" => {
                if let Some(refusal) = self.begin_walk(now, connection, name, words) {
                    connection.respond(refusal);
                }
                return None;
            }
            "hello" => {
                self.hello(connection, words);
                return None;
            }
            "auth" => {
                self.auth(connection, words);
                return None;
            }
            "client" => match client(now, connection, words) {
                Ok(reply) => reply,
                Err(command) => return Some(command),
            },
            "cluster" => self.cluster.answer(&words[1..]),
            "command" => command(words),
            "config" => config(words),
            "info" => {
                let sections = words[1..].iter().map(text);
                return Some(GlobalCommand::Info(
                    sections.map(|it| it.to_lowercase()).collect(),
                ));
            }
            "flurry" => flurry(connection, &self.losses, words),
            _ => error(format!("ERR '{name}' is not served")),
        };
        connection.respond(reply);
        None
    }
}

/// Returns the reply to a command that depends on nothing but its words and the clock; `None` for
/// any other.
pub(super) fn simple(name: &'static str, words: &[Bytes]) -> Option<Reply> {
    Some(match name {
        "ping" => match words {
            [_] => Reply::Status("PONG"),
            [_, text] => Reply::Bulk(text.clone()),
            _ => wrong_number(name),
        },
        "echo" => Reply::Bulk(words[1].clone()),
        "select" => select(&words[1]),
        "time" => time(),
        "readonly" | "readwrite" | "unwatch" => Reply::Status("OK"),
        _ => return None,
    })
}

fn text(word: &Bytes) -> String {
    String::from_utf8_lossy(word).into_owned()
}

/// There is one database.
fn select(index: &Bytes) -> Reply {
    match decimal(index) {
        Some(0) => Reply::Status("OK"),
        Some(_) => error("ERR DB index is out of range"),
        None => error("ERR value is not an integer or out of range"),
    }
}

fn time() -> Reply {
    let now_us = crate::clock::wall().0 / 1_000;
    let parts = [now_us / 1_000_000, now_us % 1_000_000];
    Reply::Array(parts.map(|part| Reply::text(part.to_string())).to_vec())
}

/// What is wrong with the name of a client, if anything is.
pub(super) fn refused_name(name: &Bytes) -> Option<Reply> {
    let fits = name.iter().all(|byte| (b'!'..=b'~').contains(byte));
    let refusal = "ERR Client names cannot contain spaces, newlines or special characters.";
    (!fits).then(|| error(refusal))
}

fn name_client(connection: &mut Connection, name: &Bytes) -> Reply {
    refused_name(name).unwrap_or_else(|| {
        connection.said.name = text(name);
        Reply::Status("OK")
    })
}

pub(super) fn unknown_subcommand(command: &str, word: &Bytes) -> Reply {
    let (name, command) = (text(word), command.to_uppercase());
    error(format!(
        "ERR unknown subcommand '{name}'. Try {command} HELP."
    ))
}

fn client(
    now: MonoNs,
    connection: &mut Connection,
    words: &[Bytes],
) -> Result<Reply, GlobalCommand> {
    let id = i64::try_from(connection.number).unwrap_or(i64::MAX);
    let name = words[1].to_ascii_lowercase();
    Ok(match (name.as_slice(), &words[2..]) {
        (b"id", []) => Reply::Integer(id),
        (b"getname", []) if connection.said.name.is_empty() => Reply::Null,
        (b"getname", []) => Reply::text(connection.said.name.clone()),
        (b"setname", [name]) => name_client(connection, name),
        (b"setinfo", [option, value]) => set_info(connection, option, value),
        (b"info", []) => Reply::text(described(connection, now)),
        (b"list", []) => return Err(GlobalCommand::List),
        (b"kill", [address]) => {
            return Err(GlobalCommand::Kill {
                number: None,
                address: Some(text(address)),
                skip_me: false,
                counted: false,
            });
        }
        (b"kill", filters @ [_, _, ..]) => return kill(filters),
        // Nobody is evicted here, and nothing is touched.
        (b"no-evict" | b"no-touch", [_]) => Reply::Status("OK"),
        (b"reply", [mode]) if mode.eq_ignore_ascii_case(b"on") => Reply::Status("OK"),
        (
            b"id" | b"getname" | b"setname" | b"setinfo" | b"info" | b"list" | b"kill"
            | b"no-evict" | b"no-touch",
            _,
        ) => wrong_number(&format!("client|{}", String::from_utf8_lossy(&name))),
        _ => unknown_subcommand("client", &words[1]),
    })
}

fn set_info(connection: &mut Connection, option: &Bytes, value: &Bytes) -> Reply {
    if !value.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        let option = text(option).to_lowercase();
        return error(format!(
            "ERR {option} cannot contain spaces, newlines or special characters."
        ));
    }
    match option.to_ascii_lowercase().as_slice() {
        b"lib-name" => connection.said.library_name = text(value),
        b"lib-ver" => connection.said.library_version = text(value),
        _ => return error(format!("ERR Unrecognized option '{}'", text(option))),
    }
    Reply::Status("OK")
}

fn kill(filters: &[Bytes]) -> Result<Reply, GlobalCommand> {
    let (mut wanted, mut address, mut skip_me) = (None, None, true);
    for pair in filters.chunks(2) {
        let [filter, value] = pair else {
            return Ok(error("ERR syntax error"));
        };
        match filter.to_ascii_lowercase().as_slice() {
            b"id" => match decimal(value).and_then(|it| u64::try_from(it).ok()) {
                Some(number) if number > 0 => wanted = Some(number),
                _ => return Ok(error("ERR client-id should be greater than 0")),
            },
            b"addr" => address = Some(text(value)),
            b"skipme" => skip_me = !value.eq_ignore_ascii_case(b"no"),
            _ => return Ok(error("ERR syntax error")),
        }
    }
    Err(GlobalCommand::Kill {
        number: wanted,
        address,
        skip_me,
        counted: true,
    })
}

/// A line about a client, as `CLIENT LIST` has it.
pub(super) fn described(connection: &Connection, now: MonoNs) -> String {
    let said = &connection.said;
    let seconds = |since: MonoNs| now.since(since).0 / 1_000_000_000;
    let version = match said.version {
        Version::Two => 2,
        Version::Three => 3,
    };
    format!(
        "id={} addr={} name={} age={} idle={} flags=N db=0 qbuf={} obl={} multi=-1 pending={} \
         cmd={} user={} resp={version} lib-name={} lib-ver={} level={}\n",
        connection.number,
        connection.address,
        said.name,
        seconds(connection.since),
        seconds(connection.heard),
        connection.input.len(),
        connection.output.len(),
        connection.under_way(),
        connection.last_command,
        said.user.as_ref().map_or("default", |user| &user.name),
        said.library_name,
        said.library_version,
        level_text(said.level),
    )
}

fn command(words: &[Bytes]) -> Reply {
    let all = || table::all().iter();
    let Some(name) = words.get(1) else {
        return Reply::Array(all().map(table::Spec::told).collect());
    };
    let found = |word: &Bytes| table::find(word);
    match (name.to_ascii_lowercase().as_slice(), &words[2..]) {
        (b"count", []) => Reply::Integer(i64::try_from(all().len()).unwrap_or(i64::MAX)),
        (b"list", []) => Reply::Array(all().map(|it| Reply::text(it.name)).collect()),
        (b"info", []) => Reply::Array(all().map(table::Spec::told).collect()),
        (b"info", names) => {
            let told = |word| found(word).map_or(Reply::Null, table::Spec::told);
            Reply::Array(names.iter().map(told).collect())
        }
        (b"docs", names) => {
            let documented = |spec: &table::Spec| {
                let docs = vec![(Reply::text("summary"), Reply::text(spec.summary))];
                (Reply::text(spec.name), Reply::Map(docs))
            };
            Reply::Map(if names.is_empty() {
                all().map(documented).collect()
            } else {
                names.iter().filter_map(found).map(documented).collect()
            })
        }
        (b"getkeys", [first, _, ..]) => match found(first) {
            None => error("ERR Invalid command specified"),
            Some(spec) if !spec.fits(words.len() - 2) => {
                error("ERR Invalid number of arguments specified for command")
            }
            Some(spec) => {
                let keys: Vec<_> = spec.keys(words.len() - 2).collect();
                if keys.is_empty() {
                    return error("ERR The command has no key arguments");
                }
                let key = |at: usize| Reply::Bulk(words[2 + at].clone());
                Reply::Array(keys.into_iter().map(key).collect())
            }
        },
        (b"count" | b"list" | b"getkeys", _) => {
            wrong_number(&format!("command|{}", text(name).to_lowercase()))
        }
        _ => unknown_subcommand("command", name),
    }
}

/// What programs look up before they begin.
fn settings() -> Vec<(&'static str, String)> {
    let text = str::to_owned;
    vec![
        ("appendonly", text("no")),
        ("databases", text("1")),
        ("maxmemory", text("0")),
        ("maxmemory-policy", text("noeviction")),
        ("proto-max-bulk-len", VALUE_BYTES_MAX.to_string()),
        ("save", String::new()),
        ("timeout", text("0")),
    ]
}

fn config(words: &[Bytes]) -> Reply {
    match (words[1].to_ascii_lowercase().as_slice(), &words[2..]) {
        (b"get", patterns @ [_, ..]) => {
            let wanted = |name: &str| {
                let fits = |it: &Bytes| glob::matches(&it.to_ascii_lowercase(), name.as_bytes());
                patterns.iter().any(fits)
            };
            let found = settings().into_iter().filter(|(name, _)| wanted(name));
            let told = found.map(|(name, value)| (Reply::text(name), Reply::text(value)));
            Reply::Map(told.collect())
        }
        (b"get", []) => wrong_number("config|get"),
        _ => unknown_subcommand("config", &words[1]),
    }
}

/// `FLURRY LEVEL [level]`: which replies the operations of this connection wait for. `FLURRY ID
/// number`: the number of the next command. `FLURRY LOSSES`: keys whose last writes are lost, or may
/// be.
fn flurry(connection: &mut Connection, losses: &Losses, words: &[Bytes]) -> Reply {
    match (words[1].to_ascii_lowercase().as_slice(), &words[2..]) {
        (b"level", []) => Reply::text(level_text(connection.said.level)),
        (b"level", level) => match level_of(level) {
            Some(level) if connection.said.needs_copies && !level.promises_copies() => error(
                "ERR level: this gateway promises several copies of each write; wanted QUORUM, ALL or DISK; hint: start a gateway with --level first for other levels",
            ),
            Some(level) => {
                connection.said.level = level;
                Reply::Status("OK")
            }
            None => error(
                "ERR level: it is none; wanted FIRST, QUORUM, ALL, DISK, AUTO, or HEDGE with microseconds; hint: FLURRY LEVEL QUORUM",
            ),
        },
        (b"id", [number]) => number_next(connection, number),
        (b"losses", []) => losses.listed(),
        _ => unknown_subcommand("flurry", &words[1]),
    }
}

fn number_next(connection: &mut Connection, number: &Bytes) -> Reply {
    let said = &connection.said;
    if said.name.is_empty() || said.caller().len() > CALLER_BYTES_MAX {
        let name = said.name.len();
        return error(format!(
            "ERR id: the connection's name has {name} bytes; wanted a short one, the same after a reconnect; hint: CLIENT SETNAME worker-7"
        ));
    }
    let number = decimal(number).and_then(|it| u64::try_from(it).ok());
    match number {
        Some(number) => {
            connection.said.next_number = Some(number);
            Reply::Status("OK")
        }
        None => error(
            "ERR id: it is no number; wanted one that rises with each command; hint: FLURRY ID 1",
        ),
    }
}

fn level_of(words: &[Bytes]) -> Option<Level> {
    let name = words[0].to_ascii_lowercase();
    Some(match (name.as_slice(), &words[1..]) {
        (b"first", []) => Level::First,
        (b"quorum", []) => Level::Quorum,
        (b"all", []) => Level::All,
        (b"auto", []) => Level::Auto,
        (b"disk", []) => Level::Disk,
        (b"hedge", [delay_us]) => {
            let delay_us = decimal(delay_us).and_then(|it| u64::try_from(it).ok())?;
            Level::Hedge(DurationNs(delay_us.saturating_mul(1_000)))
        }
        _ => return None,
    })
}

pub(super) fn level_text(level: Level) -> String {
    match level {
        Level::First => "first".to_owned(),
        Level::Quorum => "quorum".to_owned(),
        Level::All => "all".to_owned(),
        Level::Auto => "auto".to_owned(),
        Level::Disk => "disk".to_owned(),
        Level::Hedge(delay) => format!("hedge {}", delay.0 / 1_000),
    }
}
