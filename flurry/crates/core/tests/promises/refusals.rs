//! A server's refusals and their verdicts. A refused copy changes nothing.

use std::sync::Arc;

use crate::common::Cluster;
use crate::common::copies::{copy, fence, fence_at, verdict};
use bytes::{Bytes, BytesMut};
use flurry_core::config::Level;
use flurry_core::id::{ConfigNumber, DurationNs, Epoch};
use flurry_core::key_value::{Answer, Operation};
use flurry_core::message::{Ask, Copy, Message, Outcome, Request, Verdict};
use flurry_core::wire;

fn set(bytes: usize) -> Operation {
    Operation::set(Bytes::from(vec![b'v'; bytes]))
}

/// Returns the copy with a changed request.
fn with(mut copy: Copy, change: impl FnOnce(&mut Request)) -> Copy {
    change(Arc::make_mut(&mut copy.request));
    copy
}

fn done(answer: &Answer) -> Verdict {
    Verdict::Done(answer.encode())
}

#[test]
fn a_session_that_nobody_opened_is_not_registered_and_leaves_nothing() {
    let mut cluster = Cluster::open();
    let before = cluster.servers[0].memory_bytes();
    let stranger = copy(&cluster, (99, 1), "k", &set(1));
    assert_eq!(verdict(&mut cluster, 0, stranger), Verdict::Unregistered);
    assert_eq!(cluster.servers[0].records(), 0);
    assert_eq!(cluster.servers[0].memory_bytes(), before);
}

#[test]
fn an_epoch_that_is_over_is_fenced_and_one_that_was_never_given_out_is_not_registered() {
    let mut cluster = Cluster::open();
    fence_at(&mut cluster, 5, 3);
    for (epoch, wanted) in [
        (2, Verdict::Fenced(Epoch(3))),
        (4, Verdict::Unregistered),
        (3, done(&Answer::Stored)),
    ] {
        let write = copy(&cluster, (5, 1), "k", &set(1));
        let write = with(write, |it| it.id.epoch = Epoch(epoch));
        assert_eq!(verdict(&mut cluster, 0, write), wanted, "epoch {epoch}");
    }
}

#[test]
fn a_copy_of_another_configuration_older_or_newer_is_not_executed() {
    let mut cluster = Cluster::open();
    fence(&mut cluster, 5);
    let now = cluster.controller.config().unwrap().number;
    for number in [0, now.0 - 1, now.0 + 1, u32::MAX] {
        let mut write = copy(&cluster, (5, 1), "k", &set(1));
        write.config = ConfigNumber(number);
        assert_eq!(
            verdict(&mut cluster, 0, write),
            Verdict::WrongConfig(now),
            "configuration {number}"
        );
    }
    assert_eq!(cluster.servers[0].records(), 0);
}

#[test]
fn an_operation_that_cannot_be_read_or_says_it_changes_nothing_is_malformed() {
    let mut cluster = Cluster::open();
    fence(&mut cluster, 5);
    let write = copy(&cluster, (5, 1), "k", &set(1));
    let access = Operation::Get.access();
    let disguised = with(write.clone(), |it| {
        it.ask = Ask::Apply {
            operation: set(1).encode(),
            access,
        };
    });
    let garbage = with(write, |it| {
        it.ask = Ask::Apply {
            operation: Bytes::from_static(&[0xff; 40]),
            access,
        };
    });
    for copy in [disguised, garbage] {
        assert_eq!(verdict(&mut cluster, 0, copy), Verdict::Malformed);
    }
    assert_eq!(cluster.servers[0].records(), 0);
}

#[test]
fn a_datagram_that_is_played_again_much_later_changes_nothing() {
    let mut cluster = Cluster::open();
    fence(&mut cluster, 5);
    let first = copy(&cluster, (5, 1), "n", &Operation::Increment(5));
    let mut datagram = BytesMut::new();
    wire::encode(&Message::Request(first.clone()), &mut datagram);
    assert_eq!(
        verdict(&mut cluster, 0, first.clone()),
        done(&Answer::Number(5))
    );
    let second = copy(&cluster, (5, 2), "n", &Operation::Increment(1));
    let second = with(second, |it| it.dep = first.request.id.version());
    let read = copy(&cluster, (5, 3), "n", &Operation::Get);
    let read = with(read, |it| it.dep = second.request.id.version());
    assert_eq!(verdict(&mut cluster, 0, second), done(&Answer::Number(6)));
    for _ in 0..3 {
        let Ok(Message::Request(again)) = wire::decode(&datagram.clone().freeze()) else {
            panic!("it was whole")
        };
        assert_eq!(verdict(&mut cluster, 0, again), Verdict::Stale);
    }
    let six = Answer::Value(Bytes::from_static(b"6"));
    assert_eq!(verdict(&mut cluster, 0, read), done(&six));
    // The server also refuses it after its owner is gone.
    fence_at(&mut cluster, 5, 2);
    assert_eq!(verdict(&mut cluster, 0, first), Verdict::Fenced(Epoch(2)));
}

#[test]
fn a_full_memory_refuses_what_grows_it_and_serves_everything_else() {
    let mut cluster = Cluster::open();
    fence(&mut cluster, 5);
    let mut sequence = 0;
    let mut busy = 0;
    while busy < 3 {
        sequence += 1;
        let write = copy(
            &cluster,
            (5, sequence),
            &format!("k{sequence}"),
            &set(9_000),
        );
        match verdict(&mut cluster, 0, write) {
            Verdict::Busy => busy += 1,
            other => assert_eq!((other, busy), (done(&Answer::Stored), 0)),
        }
        assert!(sequence < 1_000, "the limit is a megabyte");
    }
    assert!(cluster.servers[0].memory_bytes() <= 1 << 20);
    let kept = sequence - 3;
    assert_eq!(cluster.servers[0].records() as u64, kept);
    let first = copy(&cluster, (5, 1), "k1", &set(1)).request.id.version();
    let read = copy(&cluster, (5, 2_000), "k1", &Operation::Get);
    let read = with(read, |it| it.dep = first);
    let stored = Answer::Value(Bytes::from(vec![b'v'; 9_000]));
    assert_eq!(verdict(&mut cluster, 0, read), done(&stored));
    // The server never refuses a deletion, which frees memory, and then has room for another
    // client.
    let delete = copy(
        &cluster,
        (5, 2_001),
        "k1",
        &Operation::Delete { counted: false },
    );
    let delete = with(delete, |it| it.dep = first);
    assert!(matches!(verdict(&mut cluster, 0, delete), Verdict::Done(_)));
    let other = copy(&cluster, (4, 1), "k", &set(8_000));
    assert_eq!(verdict(&mut cluster, 0, other), done(&Answer::Stored));
}

#[test]
fn a_write_that_was_done_is_driven_on_also_when_one_server_is_left() {
    let mut cluster = Cluster::open();
    for deaf in [vec![1], vec![1, 2]] {
        cluster.deaf = deaf;
        cluster.pass(DurationNs::millis(6_000));
    }
    let config = Arc::clone(cluster.controller.config().unwrap());
    assert_eq!(config.lives().len(), 1);
    cluster.router.adopt(cluster.now, &config);
    let write = copy(&cluster, (5, 1), "k", &set(1));
    let write = with(write, |it| it.level = Level::Quorum);
    let mut refused = |attempt: u8| {
        let copy = Copy {
            attempt,
            ..write.clone()
        };
        cluster.router.handle_request(cluster.now, 0, copy);
        let mut sent = std::iter::from_fn(|| cluster.router.poll_send());
        sent.any(|(_, it)| matches!(it, Message::Answer(it) if it.outcome == Outcome::TooFewCopies))
    };
    assert!(refused(0), "a new write");
    assert!(!refused(1), "one that its owner has an answer of");
}
