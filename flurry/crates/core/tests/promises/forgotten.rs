//! A deletion that every replica has is forgotten, and a read that depends on it still ends.

use crate::common::{Cluster, Letter, PORTAL};
use bytes::Bytes;
use flurry_core::config::Level;
use flurry_core::id::{DurationNs, WallNs};
use flurry_core::key_value::{Answer, Operation};
use flurry_core::message::Message;
use flurry_core::portal::{Outcome, Submission};

/// Returns whether this is a copy of an operation on `k` for server 1.
fn is_held((from, to, message): &Letter) -> bool {
    let of_key = match message {
        Message::Request(copy) => copy.request.key.bytes().as_ref() == b"k",
        _ => false,
    };
    (*from, *to) == (PORTAL, 1) && of_key
}

/// Lets time pass, delivering everything but the copies of operations on `k` for server 1. Returns
/// the last of these.
fn pass_holding(cluster: &mut Cluster, time: DurationNs) -> Option<Letter> {
    let mut last = None;
    for _ in 0..time.0 / 1_000_000 {
        cluster.tick();
        cluster.collect();
        while let Some(letter) = cluster.letters.pop_front() {
            if is_held(&letter) {
                last = Some(letter);
            } else {
                cluster.deliver(letter);
            }
            cluster.collect();
        }
    }
    last
}

/// One server has answered the read of a deleted key. When the read arrives at the other one, both
/// have forgotten the deletion: the third server was counted out, and the two have everything.
#[test]
fn a_read_ends_though_the_deletion_it_depends_on_was_forgotten_meanwhile() {
    let mut cluster = Cluster::open();
    cluster.answer("k", &Operation::set(Bytes::from_static(b"v")), Level::All);
    cluster.deaf.push(2);
    cluster.answer("k", &Operation::Delete { counted: false }, Level::Quorum);
    let read = Submission {
        key: Bytes::from_static(b"k"),
        operation: Operation::Get.encode(),
        access: Operation::Get.access(),
        level: Level::Quorum,
        at: WallNs(1),
        timeout: DurationNs::millis(10_000),
        sequence: None,
        refuses_doubt: false,
    };
    let number = cluster.portal.submit(cluster.now, read).unwrap();
    let late = pass_holding(&mut cluster, DurationNs::millis(1_500)).unwrap();
    assert!(
        cluster.controller.config().unwrap().next.is_none(),
        "server 2 is counted out"
    );
    assert!(cluster.outcome(number).is_none());
    // The next operation reports that every replica has the deletion.
    let other = cluster.ask(
        "other",
        &Operation::set(Bytes::from_static(b"v")),
        Level::Quorum,
    );
    pass_holding(&mut cluster, DurationNs::millis(20));
    assert!(cluster.outcome(other).is_some());
    let records: Vec<u64> = cluster
        .servers
        .iter()
        .map(|it| it.records() as u64)
        .collect();
    assert_eq!(records[..2], [1, 1], "the deletion is forgotten");
    cluster.deliver(late);
    cluster.pass(DurationNs::millis(200));
    match cluster.outcome(number) {
        Some(Outcome::Done { answer, .. }) => {
            assert_eq!(Answer::decode(answer).unwrap(), Answer::NotFound);
        }
        other => panic!("the read came to {other:?}"),
    }
}
