//! A server that was counted out while its process lives comes back with its kept records.

#![expect(clippy::unwrap_used, reason = "a test ends where a helper fails")]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::copies::{copy, verdict};
use crate::common::{Cluster, PORTAL, portal, server, server_at};
use bytes::Bytes;
use flurry_core::config::Level;
use flurry_core::id::{ConfigNumber, DurationNs, MonoNs};
use flurry_core::key_value::{Answer, KeyValue, Operation};
use flurry_core::message::{Ask, Message, State, Verdict};
use flurry_core::router::{Router, RouterParams};
use flurry_core::server::{Server, ServerParams};

/// A time in which a cluster surely counts out a silent server and agrees on it.
const AWAY: DurationNs = DurationNs::millis(4_000);

fn set(value: &str) -> Operation {
    Operation::set(Bytes::copy_from_slice(value.as_bytes()))
}

/// Sets keys of which every server has the value.
fn fill(cluster: &mut Cluster, keys: usize, value: &str) {
    for number in 0..keys {
        cluster.answer(&format!("k{number}"), &set(value), Level::All);
    }
}

/// Cuts these servers off until they are counted out.
fn send_away(cluster: &mut Cluster, servers: &[u16]) {
    for id in servers {
        cluster.deaf.push(*id);
        cluster.pass(AWAY);
        let life = cluster.servers[usize::from(*id)].life();
        let config = cluster.controller.config().unwrap();
        assert!(!config.has(life.endpoint.server, life.incarnation));
    }
}

/// Lets all servers receive messages again until all are members.
fn come_back(cluster: &mut Cluster) {
    cluster.deaf.clear();
    cluster.pass(AWAY);
    assert!(cluster.servers.iter().all(Server::is_member));
    assert!(cluster.controller.config().unwrap().next.is_none());
}

/// Lets a millisecond pass and delivers the messages under way, but not the replies to them.
fn step(cluster: &mut Cluster) {
    cluster.tick();
    cluster.collect();
    for _ in 0..cluster.letters.len() {
        let letter = cluster.letters.pop_front().unwrap();
        cluster.deliver(letter);
    }
}

/// Lets server 2 receive messages again until it joins, before any record was sent to it.
fn let_in(cluster: &mut Cluster) {
    cluster.deaf.clear();
    let away = cluster.servers[2].life();
    while cluster.servers[2].life() == away || !cluster.servers[2].is_member() {
        step(cluster);
    }
    assert_eq!(cluster.servers[2].records(), 0);
}

fn states(server: &Server<KeyValue>) -> BTreeMap<Bytes, State> {
    let states = server.states();
    states
        .map(|(key, state)| (key.bytes().clone(), state))
        .collect()
}

#[test]
fn a_server_that_comes_back_gets_only_the_records_that_it_missed() {
    let mut cluster = Cluster::open();
    fill(&mut cluster, 50, &"v".repeat(2_000));
    send_away(&mut cluster, &[2]);
    for number in 0..3 {
        cluster.answer(&format!("k{number}"), &set("new"), Level::All);
    }
    cluster.answer("born", &set("new"), Level::All);
    cluster.longest_bytes = 0;
    come_back(&mut cluster);
    assert_eq!(states(&cluster.servers[2]), states(&cluster.servers[0]));
    let counts = cluster.servers[2].counts();
    // Two sources list each key, and the first one is enough.
    assert_eq!((counts.kept, counts.pushed), (47, 4));
    let longest_bytes = cluster.longest_bytes;
    assert!(
        longest_bytes < 10_000,
        "one message has {longest_bytes} bytes"
    );
}

#[test]
fn a_key_that_was_deleted_meanwhile_does_not_come_back_with_the_server() {
    let mut cluster = Cluster::open();
    fill(&mut cluster, 5, "v");
    send_away(&mut cluster, &[2]);
    cluster.answer("k0", &Operation::Delete { counted: false }, Level::All);
    // The next operation reports to the servers that all have the deletion, and they forget it.
    cluster.answer("k1", &set("w"), Level::All);
    cluster.answer("k1", &set("x"), Level::All);
    assert_eq!(cluster.servers[0].records(), 4);
    come_back(&mut cluster);
    assert_eq!(states(&cluster.servers[2]), states(&cluster.servers[0]));
    for level in [Level::First, Level::All] {
        assert_eq!(
            cluster.answer("k0", &Operation::Get, level),
            Answer::NotFound
        );
    }
}

#[test]
fn an_acknowledged_write_outlives_that_all_who_have_it_were_counted_out() {
    let mut cluster = Cluster::open();
    let number = cluster.ask("k", &set("v"), Level::Quorum);
    cluster.collect();
    while let Some(letter) = cluster.letters.pop_front() {
        if (letter.0, letter.1) != (PORTAL, 2) {
            cluster.deliver(letter);
        }
        cluster.collect();
    }
    assert!(cluster.outcome(number).is_some());
    assert_eq!(cluster.servers[2].records(), 0);
    // The owner ends, and no other one follows until the servers are back.
    cluster.portal = portal(cluster.now, 2);
    cluster.router = Router::new(RouterParams::default());
    cluster.deaf.push(u16::try_from(PORTAL).unwrap());
    send_away(&mut cluster, &[0, 1]);
    assert_eq!(cluster.controller.config().unwrap().lives().len(), 1);
    come_back(&mut cluster);
    assert!(cluster.portal.is_open());
    let answer = cluster.answer("k", &Operation::Get, Level::First);
    assert_eq!(answer, Answer::Value(Bytes::from_static(b"v")));
}

#[test]
fn a_server_away_twice_before_it_had_copied_all_gets_what_it_lacks() {
    let mut cluster = Cluster::open();
    fill(&mut cluster, 30, "v");
    send_away(&mut cluster, &[2]);
    cluster.answer("k0", &Operation::Delete { counted: false }, Level::All);
    cluster.answer("k1", &set("w"), Level::All);
    for server in &mut cluster.servers {
        server.set_part_bytes_max(60);
    }
    let_in(&mut cluster);
    while cluster.servers[2].records() == 0 {
        step(&mut cluster);
    }
    assert!(cluster.servers[2].records() < 25);
    cluster.letters.clear();
    send_away(&mut cluster, &[2]);
    cluster.answer("k2", &set("w"), Level::All);
    come_back(&mut cluster);
    assert_eq!(states(&cluster.servers[2]), states(&cluster.servers[0]));
}

#[test]
fn what_was_kept_gives_way_where_memory_is_short() {
    let mut cluster = Cluster::open();
    let life = cluster.servers[2].life();
    let params = ServerParams {
        life,
        addresses: Vec::new(),
        lease: DurationNs::millis(1_000),
        memory_bytes_max: 16_000,
        evict: false,
    };
    let servers = vec![
        server(0, 1),
        server(1, 2),
        Server::new(MonoNs(1), params, KeyValue::default()),
    ];
    cluster = Cluster::of(servers);
    cluster.pass(DurationNs::millis(300));
    fill(&mut cluster, 40, &"v".repeat(200));
    assert!(cluster.servers[2].memory_bytes() > 11_000);
    send_away(&mut cluster, &[2]);
    fill(&mut cluster, 40, &"w".repeat(200));
    come_back(&mut cluster);
    assert_eq!(states(&cluster.servers[2]), states(&cluster.servers[0]));
}

#[test]
fn no_takeover_goes_on_while_a_server_may_have_kept_a_record_that_counts() {
    let mut cluster = Cluster::open();
    fill(&mut cluster, 1, "v");
    send_away(&mut cluster, &[2]);
    let_in(&mut cluster);
    let mut touch = copy(&cluster, (1, 9), "k0", &Operation::Get);
    Arc::make_mut(&mut touch.request).ask = Ask::Touch;
    touch.config = cluster.servers[2].config().unwrap().number;
    let now = cluster.now;
    let granted = cluster.controller.config().unwrap().number;
    let pong = flurry_core::message::Control::Pong(None, granted, now);
    cluster.servers[2].handle_message(now, 0, Message::Control(pong));
    // `Joining` would mean that it has no record.
    assert_eq!(verdict(&mut cluster, 2, touch), Verdict::Unregistered);
}

/// After the loss of all copies, a late copy of a write may still arrive. A server that refused it as
/// stable would never have the key that the others have then.
#[test]
fn a_late_write_after_the_loss_of_all_copies_is_taken_by_all_or_none() {
    let mut cluster = Cluster::open();
    // The second write of a key reports that every server has the first one.
    cluster.answer("k0", &set("v"), Level::All);
    cluster.answer("k1", &set("v"), Level::All);
    cluster.answer("k1", &set("w"), Level::All);
    let late = |cluster: &Cluster| copy(cluster, (1, 2), "k0", &set("v"));
    send_away(&mut cluster, &[2]);
    for id in [0, 1] {
        cluster.servers[id] = server_at(cluster.now, u16::try_from(id).unwrap(), 70 + id as u128);
    }
    cluster.pass(AWAY);
    come_back(&mut cluster);
    assert!(cluster.controller.config().unwrap().last_wipe > ConfigNumber(0));
    let verdicts = [0, 1, 2].map(|index| {
        let late = late(&cluster);
        verdict(&mut cluster, index, late)
    });
    assert_eq!(verdicts[0], verdicts[1]);
    assert_eq!(verdicts[0], verdicts[2]);
}
