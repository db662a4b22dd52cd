//! One silent or full server neither slows nor fills the owner.

#![expect(clippy::unwrap_used, reason = "a test ends where a helper fails")]

use std::sync::Arc;

use crate::common::{CONTROLLER, Cluster, PORTAL, server};
use bytes::Bytes;
use flurry_core::config::Level;
use flurry_core::id::{
    DurationNs, Endpoint, Epoch, Incarnation, Key, MonoNs, OperationId, Sequence, ServerId,
    ShardId, Version, WallNs,
};
use flurry_core::key_value::{Answer, KeyValue, Operation};
use flurry_core::message::{Ask, Control, Copies, Copy, Life, Message, Request, State, Verdict};
use flurry_core::portal::{Portal, PortalParams, Sessions, Submission, SubmitError};
use flurry_core::server::{Server, ServerParams};

const WRITES: u64 = 2_000;

/// The most repetitions to a server in half a second, in addition to one copy of each write: 64 in
/// each 50 ms, of which the first few come early.
const REPEATED_MAX: usize = 64 * 12;

fn set(value: &'static str) -> Operation {
    Operation::set(Bytes::from_static(value.as_bytes()))
}

/// Returns a cluster whose owner has these bounds.
fn cluster(servers: Vec<Server<KeyValue>>, bytes_max: usize, keys_max: usize) -> Cluster {
    let mut cluster = Cluster::of(servers);
    let params = PortalParams {
        sessions: Sessions::one("calls"),
        nonce: 2,
        operations_max: 10_000,
        bytes_max,
        keys_max,
        drive_again: None,
        heartbeat: Some(DurationNs::millis(500)),
        timeout: DurationNs(0),
        tells_first: false,
        copies: Copies::Count(1),
    };
    cluster.pass(DurationNs::millis(300));
    cluster.portal = Portal::new(cluster.now, params);
    cluster.pass(DurationNs::millis(2_500));
    assert!(cluster.portal.is_open());
    assert_eq!(
        cluster.portal.epoch(),
        Epoch(2),
        "after one that did not close"
    );
    cluster
}

fn small_server(id: u16, memory_bytes_max: usize, evict: bool) -> Server<KeyValue> {
    let params = ServerParams {
        life: Life {
            endpoint: Endpoint {
                server: ServerId(id),
                shard: ShardId(0),
            },
            incarnation: Incarnation(u128::from(id) + 1),
        },
        addresses: Vec::new(),
        lease: DurationNs::millis(1_000),
        memory_bytes_max,
        evict,
    };
    Server::new(MonoNs(1), params, KeyValue::default())
}

/// Writes many keys, one in each hundredth of a millisecond. Returns the number of copies to server
/// 2 until half a second after the last write, and how often the router's timer went off after it.
fn burden(cluster: &mut Cluster) -> (usize, usize) {
    let (mut copies, mut wakes) = (0, 0);
    let mut deliver = |cluster: &mut Cluster| {
        cluster.collect();
        while let Some(letter) = cluster.letters.pop_front() {
            copies += usize::from(letter.0 == PORTAL && letter.1 == 2);
            cluster.deliver(letter);
            cluster.collect();
        }
    };
    for number in 0..WRITES {
        cluster.now = cluster.now.after(DurationNs(10_000));
        cluster.ask(&format!("key {number}"), &set("value"), Level::First);
        cluster.router.handle_timeout(cluster.now);
        deliver(cluster);
    }
    let end = cluster.now.after(DurationNs::millis(500));
    while let Some(next) = cluster.router.poll_timeout().filter(|at| *at < end) {
        cluster.now = cluster.now.max(next);
        cluster.router.handle_timeout(cluster.now);
        wakes += 1;
        deliver(cluster);
    }
    (copies, wakes)
}

#[test]
fn a_silent_server_costs_few_messages_and_timers_whatever_it_owes() {
    let mut cluster = cluster((0..3).map(|id| server(id, 1)).collect(), 1 << 24, 10_000);
    cluster.deaf = vec![2];
    let (copies, wakes) = burden(&mut cluster);
    let writes = usize::try_from(WRITES).unwrap();
    assert!(copies >= writes, "{copies}");
    assert!(copies <= writes + REPEATED_MAX, "{copies} copies");
    // A timer for each write would go off ten times as often.
    assert!(wakes <= 2 * writes, "{wakes} wakes");
    // The server receives every write that it lacks once it answers again.
    cluster.deaf.clear();
    cluster.pass(DurationNs::millis(2_000));
    assert_eq!(cluster.portal.held(), 0);
}

#[test]
fn a_server_without_room_is_asked_no_more_often_than_a_silent_one() {
    let servers = vec![server(0, 1), server(1, 1), small_server(2, 2_000, false)];
    let mut cluster = cluster(servers, 1 << 24, 10_000);
    let (copies, _) = burden(&mut cluster);
    let writes = usize::try_from(WRITES).unwrap();
    assert!(copies <= writes + REPEATED_MAX, "{copies} copies");
    assert!(
        cluster.portal.held() > writes / 2,
        "it has no room for most"
    );
}

#[test]
fn writes_that_a_server_lacks_take_no_more_memory_than_allowed_and_reads_go_on() {
    let mut cluster = cluster((0..3).map(|id| server(id, 1)).collect(), 10_000, 100);
    cluster.answer("k", &set("value"), Level::All);
    cluster.deaf = vec![2];
    let long = Operation::set(Bytes::from(vec![b'x'; 900]));
    let refused = (0..100).find_map(|number| {
        let submission = submission(&format!("key {}", number % 3), &long, cluster.now);
        let refused = cluster.portal.submit(cluster.now, submission).err();
        cluster.settle();
        refused
    });
    assert!(
        matches!(refused, Some(SubmitError::Full(9_000..=10_000))),
        "{refused:?}"
    );
    assert!(cluster.portal.held_bytes() <= 10_000);
    let read = cluster.answer("k", &Operation::Get, Level::First);
    assert_eq!(read, Answer::Value(Bytes::from_static(b"value")));
    cluster.deaf.clear();
    cluster.pass(DurationNs::millis(500));
    assert_eq!(cluster.portal.held_bytes(), 0);
    cluster.answer("k", &set("other"), Level::First);
}

fn submission(key: &str, operation: &Operation, now: MonoNs) -> Submission {
    Submission {
        key: Bytes::copy_from_slice(key.as_bytes()),
        operation: operation.encode(),
        access: operation.access(),
        level: Level::First,
        at: WallNs(i64::try_from(now.0).unwrap()),
        timeout: DurationNs::millis(500),
        sequence: None,
        refuses_doubt: false,
    }
}

#[test]
fn a_key_that_the_owner_forgot_is_read_though_a_server_is_silent() {
    let mut cluster = cluster((0..3).map(|id| server(id, 1)).collect(), 1 << 20, 2);
    for key in ["a", "b", "c", "d"] {
        cluster.answer(key, &set("value"), Level::All);
    }
    cluster.deaf = vec![2];
    for key in ["a", "b", "c", "d"] {
        // The helper fails unless there is an answer before any time has passed.
        let read = cluster.answer(key, &Operation::Get, Level::First);
        assert_eq!(read, Answer::Value(Bytes::from_static(b"value")));
    }
}

#[test]
fn a_server_that_evicts_does_not_claim_that_a_key_never_was() {
    for evict in [false, true] {
        let servers = (0..3).map(|id| small_server(id, 1 << 20, evict)).collect();
        let mut cluster = cluster(servers, 1 << 20, 100);
        let session = cluster.portal.session();
        let request = Request {
            id: OperationId {
                session,
                epoch: Epoch(2),
                sequence: Sequence(1),
            },
            dep: Version::NONE,
            key: Key::new(session, Bytes::from_static(b"k")).unwrap(),
            ask: Ask::Touch,
            level: Level::First,
            at: WallNs(0),
            stable: Sequence(0),
            clean_since: None,
            opened_in: cluster.router.config().unwrap().number,
            quorum_earlier: 1,
            timeout: DurationNs::millis(500),
        };
        let copy = Copy {
            request: Arc::new(request),
            config: cluster.router.config().unwrap().number,
            attempt: 0,
        };
        cluster.servers[0].handle_message(cluster.now, PORTAL, Message::Request(copy));
        let nothing = State {
            evicted: evict,
            ..State::ABSENT
        };
        let said = cluster.servers[0].poll_send().map(|it| it.1);
        assert!(
            matches!(&said, Some(Message::Reply(reply)) if reply.verdict == Verdict::State(nothing)),
            "{said:?}"
        );
    }
}

#[test]
fn the_controller_is_not_asked_more_often_for_a_server_that_owes_much() {
    let mut cluster = cluster((0..3).map(|id| server(id, 1)).collect(), 1 << 24, 10_000);
    cluster.deaf = vec![2];
    for number in 0..WRITES {
        cluster.ask(&format!("key {number}"), &set("value"), Level::First);
    }
    let mut asked = 0;
    for _ in 0..500 {
        cluster.tick();
        cluster.collect();
        let query = |it: &crate::common::Letter| {
            it.0 == PORTAL && it.1 == CONTROLLER && it.2 == Message::Control(Control::ConfigQuery)
        };
        asked += cluster.letters.iter().filter(|it| query(it)).count();
        cluster.settle();
    }
    assert!((1..=4).contains(&asked), "{asked}");
}
