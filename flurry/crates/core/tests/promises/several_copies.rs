//! An owner that promises several copies of each write leaves doubt only if as many servers are
//! lost.

#![expect(clippy::unwrap_used, reason = "a test ends where a helper fails")]

use crate::common::{Cluster, portal_of, server};
use bytes::Bytes;
use flurry_core::config::Level;
use flurry_core::id::{DurationNs, WallNs};
use flurry_core::key_value::{Answer, Operation};
use flurry_core::message::Copies;
use flurry_core::portal::{Outcome, Submission, SubmitError};

fn set(value: &'static str) -> Operation {
    Operation::set(Bytes::from_static(value.as_bytes()))
}

/// Returns an open session whose owner promises a majority's copies.
fn open() -> Cluster {
    let servers = (0..3).map(|id| server(id, u128::from(id) + 1));
    let mut cluster = Cluster::of(servers.collect());
    cluster.portal = portal_of(cluster.now, 1, Copies::Majority);
    cluster.pass(DurationNs::millis(300));
    assert!(cluster.portal.is_open());
    cluster.events.clear();
    cluster
}

/// Ends the owner while its last write is on servers 0 and 2 only.
fn write_two_copies_and_end(cluster: &mut Cluster) {
    cluster.answer("k", &set("u"), Level::All);
    cluster.deaf = vec![1];
    cluster.answer("k", &set("v"), Level::Quorum);
    cluster.portal = portal_of(cluster.now, 2, Copies::Majority);
    cluster.router = flurry_core::router::Router::new(flurry_core::router::RouterParams::default());
    cluster.letters.clear();
    cluster.deaf.clear();
}

/// Replaces a server by another incarnation, and lets it copy its records.
fn replace(cluster: &mut Cluster, id: u16, life: u128) {
    cluster.servers[usize::from(id)] = server(id, life);
    cluster.pass(DurationNs::millis(3_000));
    assert!(cluster.controller.config().unwrap().next.is_none());
}

/// Returns the value of a key, and whether the next owner is in doubt of it.
fn read(cluster: &mut Cluster, key: &str) -> (Answer, bool) {
    cluster.pass(DurationNs::millis(3_000));
    cluster.events.clear();
    let number = cluster.ask(key, &Operation::Get, Level::Quorum);
    cluster.pass(DurationNs::millis(50));
    match cluster.outcome(number) {
        Some(Outcome::Done {
            answer,
            tail_unknown,
        }) => (Answer::decode(answer).unwrap(), tail_unknown),
        other => panic!("{key} was answered {other:?}"),
    }
}

fn value(text: &'static str) -> Answer {
    Answer::Value(Bytes::from_static(text.as_bytes()))
}

#[test]
fn one_lost_server_of_two_with_a_write_leaves_no_doubt() {
    let mut cluster = open();
    write_two_copies_and_end(&mut cluster);
    replace(&mut cluster, 2, 77);
    assert_eq!(read(&mut cluster, "k"), (value("v"), false));
    assert_eq!(
        read(&mut cluster, "never written"),
        (Answer::NotFound, false)
    );
}

#[test]
fn two_lost_servers_leave_doubt() {
    let mut cluster = open();
    write_two_copies_and_end(&mut cluster);
    cluster.servers[0] = server(0, 78);
    replace(&mut cluster, 2, 77);
    assert_eq!(read(&mut cluster, "k"), (value("u"), true));
}

#[test]
fn a_second_server_that_is_lost_after_the_first_was_replaced_leaves_no_doubt() {
    let mut cluster = open();
    write_two_copies_and_end(&mut cluster);
    // The key is not used in between, so nobody writes it back.
    replace(&mut cluster, 2, 77);
    cluster.portal = portal_of(cluster.now, 3, Copies::Majority);
    replace(&mut cluster, 0, 78);
    assert_eq!(read(&mut cluster, "k"), (value("v"), false));
}

#[test]
fn the_count_outlives_the_controller() {
    let mut cluster = open();
    write_two_copies_and_end(&mut cluster);
    // Server 2 is lost and has no successor.
    cluster.deaf = vec![2];
    cluster.pass(DurationNs::millis(3_000));
    let disk = cluster.disk.clone();
    cluster.controller =
        flurry_core::controller::Controller::restore(cluster.now, crate::common::params(), &disk)
            .unwrap();
    cluster.deaf.clear();
    cluster.servers[0] = server(0, 78);
    replace(&mut cluster, 2, 77);
    assert!(read(&mut cluster, "k").1);
}

#[test]
fn a_level_that_promises_fewer_copies_is_refused() {
    let mut cluster = open();
    for level in [Level::First, Level::Auto, Level::Hedge(DurationNs(1))] {
        let submission = Submission {
            key: Bytes::from_static(b"k"),
            operation: Operation::Get.encode(),
            access: Operation::Get.access(),
            level,
            at: WallNs(1),
            timeout: DurationNs::millis(500),
            sequence: None,
            refuses_doubt: false,
        };
        let refused = cluster.portal.submit(cluster.now, submission);
        assert_eq!(refused, Err(SubmitError::Level));
    }
}
