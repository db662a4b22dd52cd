//! An expired value stays expired, whatever the clock of the next owner shows.

#![expect(clippy::unwrap_used, reason = "a test ends where a helper fails")]

use crate::common::{Cluster, params, portal, server_at};
use bytes::Bytes;
use flurry_core::config::Level;
use flurry_core::controller::Controller;
use flurry_core::id::{DurationNs, WallNs};
use flurry_core::key_value::{Answer, Condition, Operation};
use flurry_core::portal::{Outcome, Submission};

const SECOND: i64 = 1_000_000_000;

/// Returns the answer of an operation of an owner whose clock shows this time.
fn at(cluster: &mut Cluster, seconds: i64, operation: &Operation) -> Answer {
    let submission = Submission {
        key: Bytes::from_static(b"secret"),
        operation: operation.encode(),
        access: operation.access(),
        level: Level::First,
        at: WallNs(seconds * SECOND),
        timeout: DurationNs::millis(500),
        sequence: None,
        refuses_doubt: false,
    };
    let number = cluster.portal.submit(cluster.now, submission).unwrap();
    cluster.pass(DurationNs::millis(50));
    match cluster.outcome(number) {
        Some(Outcome::Done { answer, .. }) => Answer::decode(answer).unwrap(),
        other => panic!("it was answered {other:?}"),
    }
}

/// Returns a cluster with a value that ends at 1,100 s, and that its owner read as expired at 1,200
/// s.
fn with_an_expired_value() -> Cluster {
    let mut cluster = Cluster::open();
    let set = Operation::Set {
        value: Bytes::from_static(b"v"),
        expires_at: Some(WallNs(1_100 * SECOND)),
        condition: Condition::Always,
    };
    assert_eq!(at(&mut cluster, 1_000, &set), Answer::Stored);
    assert_eq!(at(&mut cluster, 1_200, &Operation::Get), Answer::NotFound);
    cluster
}

#[test]
fn a_value_that_had_expired_does_not_come_back_for_an_owner_whose_clock_is_behind() {
    let mut cluster = with_an_expired_value();
    cluster.portal = portal(cluster.now, 2);
    cluster.pass(DurationNs::millis(300));
    cluster.events.clear();
    assert_eq!(at(&mut cluster, 1_050, &Operation::Get), Answer::NotFound);
    assert!(cluster.portal.at() >= WallNs(1_200 * SECOND));
}

#[test]
fn nor_after_an_owner_that_closed_and_a_controller_that_was_started_again() {
    let mut cluster = with_an_expired_value();
    cluster.portal.close(cluster.now);
    cluster.pass(DurationNs::millis(300));
    let stored = cluster.disk.clone();
    cluster.controller = Controller::restore(cluster.now, params(), &stored).unwrap();
    cluster.portal = portal(cluster.now, 2);
    cluster.pass(DurationNs::millis(300));
    cluster.events.clear();
    assert_eq!(at(&mut cluster, 1_050, &Operation::Get), Answer::NotFound);
}

#[test]
fn nor_after_every_server_was_started_again_one_after_the_other() {
    let mut cluster = with_an_expired_value();
    for id in 0..3 {
        cluster.servers[usize::from(id)] = server_at(cluster.now, id, 70 + u128::from(id));
        cluster.pass(DurationNs::millis(3_000));
    }
    assert!(cluster.servers.iter().all(|it| it.states().count() == 1));
    cluster.portal = portal(cluster.now, 2);
    cluster.pass(DurationNs::millis(300));
    cluster.events.clear();
    assert_eq!(at(&mut cluster, 1_050, &Operation::Get), Answer::NotFound);
}
