//! Answers `INFO` with lines of a name and a value, in sections.

use std::fmt::Write as _;

use flurry_core::id::MonoNs;
use flurry_core::resp::Reply;

use super::about::{REDIS_VERSION, level_text};
use super::dispatcher::Dispatcher;
use super::sockets::Sockets;

/// What a section has to say.
type Section = fn(&Facts<'_>) -> Lines;

const SECTIONS: [(&str, Section); 5] = [
    ("Server", server),
    ("Clients", clients),
    ("Stats", stats),
    ("Replication", replication),
    ("Cluster", cluster),
];

type Lines = Vec<(&'static str, String)>;

struct Facts<'a> {
    dispatcher: &'a Dispatcher,
    sockets: &'a Sockets,
    now: MonoNs,
}

/// The sections asked for; none is all.
pub(super) fn lines(
    dispatcher: &Dispatcher,
    sockets: &Sockets,
    now: MonoNs,
    wanted: &[String],
) -> Reply {
    let told = Facts {
        dispatcher,
        sockets,
        now,
    };
    let all = ["all", "default", "everything"];
    let is_wanted = |name: &str| {
        let fits = |it: &String| all.contains(&it.as_str()) || it.eq_ignore_ascii_case(name);
        wanted.is_empty() || wanted.iter().any(fits)
    };
    let mut text = String::new();
    for (name, lines) in SECTIONS.iter().filter(|(name, _)| is_wanted(name)) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        // Writing to memory cannot fail.
        let _ = write!(text, "# {name}\r\n");
        for (field, value) in lines(&told) {
            let _ = write!(text, "{field}:{value}\r\n");
        }
    }
    Reply::text(text)
}

fn server(told: &Facts<'_>) -> Lines {
    let uptime_s = told.now.since(told.dispatcher.started).0 / 1_000_000_000;
    let mode = if told.dispatcher.cluster.is_alone() {
        "standalone"
    } else {
        "cluster"
    };
    vec![
        ("redis_version", REDIS_VERSION.to_owned()),
        ("redis_mode", mode.to_owned()),
        ("flurry_version", env!("CARGO_PKG_VERSION").to_owned()),
        ("process_id", std::process::id().to_string()),
        (
            "tcp_port",
            told.dispatcher.cluster.own.address.port().to_string(),
        ),
        ("uptime_in_seconds", uptime_s.to_string()),
    ]
}

fn clients(told: &Facts<'_>) -> Lines {
    let waiting = told.sockets.iter().filter(|it| it.under_way() > 0).count();
    vec![
        ("connected_clients", told.sockets.len().to_string()),
        ("maxclients", told.sockets.connections_max().to_string()),
        ("blocked_clients", waiting.to_string()),
    ]
}

fn stats(told: &Facts<'_>) -> Lines {
    let counts = &told.dispatcher.counts;
    vec![
        ("total_connections_received", counts.connections.to_string()),
        ("total_commands_processed", counts.commands.to_string()),
        ("wrong_passwords", counts.wrong_passwords.to_string()),
        ("unknown_outcomes", counts.unknown.to_string()),
        ("keys_in_doubt", told.dispatcher.losses.doubts.to_string()),
        ("losses", told.dispatcher.losses.losses.to_string()),
        ("ended_values_removed", counts.swept.to_string()),
        (
            "unstable_operations",
            told.dispatcher.owner.held().to_string(),
        ),
    ]
}

fn replication(told: &Facts<'_>) -> Lines {
    let copies = told.dispatcher.owner.copies();
    vec![
        ("role", "master".to_owned()),
        ("connected_slaves", copies.saturating_sub(1).to_string()),
        ("copies", copies.to_string()),
        ("level", level_text(told.dispatcher.level)),
        ("epoch", told.dispatcher.owner.epoch().0.to_string()),
    ]
}

fn cluster(_: &Facts<'_>) -> Lines {
    // Its commands are answered, whether there are others or not.
    vec![("cluster_enabled", "1".to_owned())]
}
