//! A new owner is in doubt of its predecessor's writes only if some may be lost.

#![expect(clippy::unwrap_used, reason = "a test ends where a helper fails")]

use crate::common::{Cluster, portal, server};
use bytes::Bytes;
use flurry_core::config::Level;
use flurry_core::id::{ConfigNumber, DurationNs, WallNs};
use flurry_core::key_value::{Answer, Operation};
use flurry_core::message::{Control, Copies, Owned};
use flurry_core::portal::{Event, Outcome, Portal, PortalParams, Submission};

fn set(value: &'static str) -> Operation {
    Operation::set(Bytes::from_static(value.as_bytes()))
}

/// Has server 2 counted out, and lets another incarnation of it copy everything.
fn lose_a_server(cluster: &mut Cluster) {
    cluster.servers[2] = server(2, 77);
    cluster.pass(DurationNs::millis(4_000));
    let config = cluster.controller.config().unwrap();
    assert!(config.next.is_none() && config.last_loss.0 > 0);
}

/// Ends the owner without a close, and starts another one.
fn take_over(cluster: &mut Cluster, nonce: u64) {
    cluster.portal = portal(cluster.now, nonce);
    cluster.pass(DurationNs::millis(3_000));
    assert!(cluster.portal.is_open());
    cluster.events.clear();
}

fn doubts(cluster: &mut Cluster, key: &str) -> bool {
    let number = cluster.ask(key, &Operation::Get, Level::First);
    cluster.pass(DurationNs::millis(50));
    match cluster.outcome(number) {
        Some(Outcome::Done { tail_unknown, .. }) => tail_unknown,
        other => panic!("{key} was answered {other:?}"),
    }
}

/// Returns a new owner in doubt of the key "n", which is 5, because a server was lost after the
/// earlier owner's end.
fn in_doubt() -> Cluster {
    let mut cluster = Cluster::open();
    cluster.answer("n", &Operation::Increment(5), Level::All);
    cluster.portal = portal(cluster.now, 2);
    cluster.letters.clear();
    cluster.servers[2] = server(2, 77);
    cluster.pass(DurationNs::millis(6_000));
    cluster.events.clear();
    cluster
}

/// Increments "n" for a caller that refuses doubt, and returns the operation's number.
fn refuse_doubt(cluster: &mut Cluster) -> u64 {
    let increment = Operation::Increment(1);
    let submission = Submission {
        key: Bytes::from_static(b"n"),
        operation: increment.encode(),
        access: increment.access(),
        level: Level::All,
        at: WallNs(1),
        timeout: DurationNs::millis(500),
        sequence: None,
        refuses_doubt: true,
    };
    let number = cluster.portal.submit(cluster.now, submission).unwrap();
    cluster.pass(DurationNs::millis(50));
    number
}

#[test]
fn an_owner_that_outlives_the_loss_of_a_server_leaves_no_doubt() {
    let mut cluster = Cluster::open();
    cluster.answer("k", &set("v"), Level::First);
    lose_a_server(&mut cluster);
    take_over(&mut cluster, 2);
    assert!(!doubts(&mut cluster, "k"));
    assert!(!doubts(&mut cluster, "never written"));
}

#[test]
fn a_server_that_is_lost_after_its_owner_leaves_doubt() {
    let mut cluster = Cluster::open();
    cluster.answer("k", &set("v"), Level::All);
    // The owner is gone, and no part knows its writes that only server 2 had.
    cluster.portal = portal(cluster.now, 2);
    cluster.letters.clear();
    cluster.servers[2] = server(2, 77);
    cluster.pass(DurationNs::millis(6_000));
    assert!(cluster.portal.is_open());
    cluster.events.clear();
    assert!(doubts(&mut cluster, "k"));
}

#[test]
fn an_owner_that_ends_before_its_write_is_everywhere_leaves_doubt() {
    let mut cluster = Cluster::open();
    cluster.answer("k", &set("v"), Level::All);
    cluster.pass(DurationNs::millis(50));
    // Only server 2 has the last write when it ends, and the owner ends with it.
    cluster.deaf = vec![0, 1];
    cluster.answer("k", &set("w"), Level::First);
    cluster.portal = portal(cluster.now, 2);
    cluster.letters.clear();
    cluster.deaf.clear();
    cluster.servers[2] = server(2, 77);
    cluster.pass(DurationNs::millis(6_000));
    cluster.events.clear();
    assert!(doubts(&mut cluster, "k"));
}

#[test]
fn a_caller_that_refuses_doubt_has_nothing_done_and_a_second_one_that_does_not_goes_on() {
    let mut cluster = in_doubt();
    let refused = refuse_doubt(&mut cluster);
    assert_eq!(cluster.outcome(refused), Some(Outcome::TailUnknown));
    // It was not added.
    let answer = cluster.answer("n", &Operation::Increment(1), Level::All);
    assert_eq!(answer, Answer::Number(6));
}

#[test]
fn a_key_in_doubt_is_not_forgotten_before_a_caller_has_heard_of_it() {
    let mut cluster = in_doubt();
    refuse_doubt(&mut cluster);
    // More keys than the owner remembers.
    for number in 0..300 {
        cluster.answer(&format!("other-{number}"), &set("v"), Level::All);
    }
    assert!(doubts(&mut cluster, "n"));
}

#[test]
fn a_session_is_in_doubt_until_what_it_had_written_by_a_loss_is_everywhere() {
    let mut cluster = Cluster::open();
    // Server 1 misses the write and receives nothing for less than a lease.
    cluster.deaf = vec![1];
    cluster.answer("k", &set("v"), Level::First);
    cluster.servers[2] = server(2, 77);
    cluster.pass(DurationNs::millis(700));
    let last_loss = |cluster: &Cluster| cluster.controller.config().unwrap().last_loss;
    assert!(last_loss(&cluster).0 > 0, "a server was lost");
    assert_eq!(cluster.controller.sessions_in_doubt().count(), 1);
    cluster.deaf.clear();
    cluster.pass(DurationNs::millis(1_000));
    assert_eq!(cluster.controller.sessions_in_doubt().count(), 0);
}

#[test]
fn an_owner_that_has_outlived_one_loss_has_not_outlived_a_later_one() {
    let mut cluster = Cluster::open();
    // Server 1 misses the write, so the owner cannot report that its writes are on every replica.
    cluster.deaf = vec![1];
    cluster.answer("k", &set("v"), Level::First);
    cluster.servers[2] = server(2, 77);
    cluster.pass(DurationNs::millis(700));
    let (session, epoch) = cluster.controller.sessions_in_doubt().next().unwrap();
    let last_loss = cluster.controller.config().unwrap().last_loss;
    let owned = Owned { session, epoch };
    let settled = |loss: u32| Control::Settled(vec![owned], ConfigNumber(loss), DurationNs(0));
    cluster.ask_controller(3_000, settled(last_loss.0 - 1));
    assert_eq!(cluster.controller.sessions_in_doubt().count(), 1);
    cluster.ask_controller(3_000, settled(last_loss.0));
    assert_eq!(cluster.controller.sessions_in_doubt().count(), 0);
}

/// Crashes the owner, and starts another one that notifies callers of doubts first, as gateways do.
fn next_gateway(cluster: &mut Cluster, nonce: u64) {
    let params = PortalParams {
        tells_first: true,
        ..crate::common::owner_params(nonce, Copies::Count(1))
    };
    cluster.portal = Portal::new(cluster.now, params);
    cluster.letters.clear();
    cluster.pass(DurationNs::millis(3_000));
    assert!(cluster.portal.is_open());
    cluster.events.clear();
}

/// Returns a gateway in doubt of the keys "n", "read" and "unused", which an earlier one has
/// written.
fn gateway_in_doubt() -> Cluster {
    let mut cluster = Cluster::open();
    for key in ["n", "read", "unused"] {
        cluster.answer(key, &Operation::Increment(5), Level::All);
    }
    cluster.servers[2] = server(2, 77);
    next_gateway(&mut cluster, 2);
    cluster.pass(DurationNs::millis(3_000));
    cluster.events.clear();
    cluster
}

#[test]
fn a_doubt_ends_for_a_key_that_a_caller_writes_who_knows_of_it() {
    let mut cluster = gateway_in_doubt();
    let refused = refuse_doubt(&mut cluster);
    assert_eq!(cluster.outcome(refused), Some(Outcome::TailUnknown));
    assert!(doubts(&mut cluster, "n"), "the answer carries it once more");
    let answer = cluster.answer("n", &Operation::Increment(1), Level::All);
    assert_eq!(answer, Answer::Number(6));
    for nonce in 3..6 {
        next_gateway(&mut cluster, nonce);
        assert!(!doubts(&mut cluster, "n"), "crash {nonce}");
    }
    assert!(doubts(&mut cluster, "unused"));
}

#[test]
fn a_doubt_of_which_no_caller_has_heard_outlives_owners_that_write_the_key_back() {
    let mut cluster = gateway_in_doubt();
    for nonce in 3..6 {
        // The takeover writes the key back, and the owner ends before its caller hears of the
        // doubt.
        refuse_doubt(&mut cluster);
        next_gateway(&mut cluster, nonce);
    }
    let refused = refuse_doubt(&mut cluster);
    assert_eq!(cluster.outcome(refused), Some(Outcome::TailUnknown));
}

#[test]
fn a_blind_write_ends_a_doubt_since_it_rests_on_nothing() {
    let mut cluster = gateway_in_doubt();
    cluster.answer("n", &set("7"), Level::All);
    next_gateway(&mut cluster, 3);
    assert!(!doubts(&mut cluster, "n"));
}

#[test]
fn a_key_that_is_written_after_a_loss_is_in_no_doubt_though_later_owners_only_read_it() {
    let mut cluster = gateway_in_doubt();
    cluster.answer("new", &set("v"), Level::All);
    for nonce in 3..6 {
        next_gateway(&mut cluster, nonce);
        assert!(!doubts(&mut cluster, "new"), "crash {nonce}");
    }
}

#[test]
fn an_owner_that_closes_with_a_doubt_that_no_caller_heard_of_leaves_it_to_the_next() {
    let mut cluster = gateway_in_doubt();
    cluster.answer("new", &set("v"), Level::All);
    // Nobody answers in time, so the caller hears that the outcome is unknown, and not of the
    // doubt.
    cluster.deaf = vec![0, 1, 2];
    let unheard = refuse_doubt(&mut cluster);
    cluster.pass(DurationNs::millis(600));
    assert_eq!(cluster.outcome(unheard), Some(Outcome::Unknown));
    cluster.deaf.clear();
    cluster.pass(DurationNs::millis(1_000));
    cluster.portal.close(cluster.now);
    cluster.pass(DurationNs::millis(1_000));
    next_gateway(&mut cluster, 3);
    assert!(doubts(&mut cluster, "n"));
    assert!(!doubts(&mut cluster, "new"));
}

#[test]
fn a_doubt_that_an_owner_reported_to_nobody_outlives_its_closing() {
    let mut cluster = in_doubt();
    // The second owner hears nothing of the key, and the third one takes it over for a caller that
    // refuses doubt. So the value has a version of the third owner, and nobody was notified.
    for nonce in [3, 4] {
        cluster.portal.close(cluster.now);
        cluster.pass(DurationNs::millis(50));
        assert!(cluster.events.contains(&Event::Closed));
        take_over(&mut cluster, nonce);
        if nonce == 3 {
            let refused = refuse_doubt(&mut cluster);
            assert_eq!(cluster.outcome(refused), Some(Outcome::TailUnknown));
        }
    }
    assert!(doubts(&mut cluster, "n"));
}
