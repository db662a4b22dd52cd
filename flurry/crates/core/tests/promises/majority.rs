//! Takeovers from owners whose answers rest on a majority: a silent server keeps nobody waiting.

use bytes::Bytes;
use flurry_core::config::Level;
use flurry_core::id::{ConfigNumber, DurationNs, Sequence, ServerId, WallNs};
use flurry_core::key_value::{Answer, Operation};
use flurry_core::message::{Control, Copies, List, Message};
use flurry_core::router::{Router, RouterParams};

use crate::common::{Cluster, portal, portal_of, server, server_at};

/// A lease is a second long; all of this happens while nobody is counted out.
const SOON_MS: u64 = 100;

fn set(value: &'static str) -> Operation {
    Operation::set(Bytes::from_static(value.as_bytes()))
}

/// Returns a cluster whose owner promises this many copies of each write.
fn owned_by(copies: Copies) -> Cluster {
    let mut cluster = Cluster::of((0..3).map(|id| server(id, u128::from(id) + 1)).collect());
    cluster.portal = portal_of(cluster.now, 1, copies);
    cluster.pass(DurationNs::millis(300));
    assert!(cluster.portal.is_open(), "the session opens");
    cluster
}

/// Replaces the owner, which ended without closing, by one that asks a majority. Returns whether its
/// session opens soon.
fn is_replaced_soon(cluster: &mut Cluster, nonce: u64) -> bool {
    cluster.portal = portal_of(cluster.now, nonce, Copies::Majority);
    cluster.router = Router::new(RouterParams::default());
    cluster.events.clear();
    cluster.pass(DurationNs::millis(SOON_MS));
    cluster.portal.is_open()
}

fn counts_in(cluster: &Cluster, server: u16) -> bool {
    let config = cluster.controller.config();
    config.is_some_and(|it| it.incarnation_of(ServerId(server)).is_some())
}

#[test]
fn an_owner_that_asks_a_majority_is_replaced_while_a_server_is_silent() {
    let mut cluster = owned_by(Copies::Majority);
    cluster.answer("k", &set("before"), Level::Quorum);
    cluster.deaf = vec![2];
    assert!(is_replaced_soon(&mut cluster, 2));
    let read = cluster.answer("k", &Operation::Get, Level::Quorum);
    assert_eq!(read, Answer::Value(Bytes::from_static(b"before")));
    cluster.answer("k", &set("after"), Level::Quorum);
    let missing = cluster.answer("new", &Operation::Get, Level::Quorum);
    assert_eq!(missing, Answer::NotFound);
    assert!(counts_in(&cluster, 2), "nobody was counted out meanwhile");
}

#[test]
fn an_owner_that_asks_one_server_is_not_replaced_while_that_one_may_answer() {
    let mut cluster = owned_by(Copies::Count(1));
    cluster.deaf = vec![2];
    assert!(!is_replaced_soon(&mut cluster, 2));
}

#[test]
fn an_owner_that_once_followed_one_of_a_single_server_waits_for_all() {
    let mut cluster = owned_by(Copies::Count(1));
    assert!(is_replaced_soon(&mut cluster, 2));
    // The first owner did not close either, and may have left a write on any one server.
    cluster.deaf = vec![2];
    assert!(!is_replaced_soon(&mut cluster, 3));
}

#[test]
fn two_silent_servers_of_three_are_waited_for() {
    let mut cluster = owned_by(Copies::Majority);
    cluster.deaf = vec![1, 2];
    assert!(!is_replaced_soon(&mut cluster, 2));
    cluster.deaf = vec![2];
    cluster.pass(DurationNs::millis(SOON_MS));
    assert!(cluster.portal.is_open());
}

#[test]
fn a_key_that_was_not_found_is_not_found_later_on_the_server_that_was_silent() {
    let mut cluster = owned_by(Copies::Majority);
    // One server gets the write, and its owner no answer.
    cluster.deaf = vec![0, 1];
    let unanswered = cluster.ask("k", &set("late"), Level::Quorum);
    cluster.settle();
    assert_eq!(cluster.outcome(unanswered), None);
    cluster.deaf = vec![2];
    assert!(is_replaced_soon(&mut cluster, 2));
    assert_eq!(
        cluster.answer("k", &Operation::Get, Level::Quorum),
        Answer::NotFound
    );
    // The silent one is back, and the next owner must ask it, because another one is silent.
    cluster.deaf.clear();
    cluster.pass(DurationNs::millis(SOON_MS));
    cluster.deaf = vec![0];
    assert!(is_replaced_soon(&mut cluster, 3));
    assert_eq!(
        cluster.answer("k", &Operation::Get, Level::Quorum),
        Answer::NotFound
    );
}

#[test]
fn an_owner_of_single_answers_finds_what_the_majority_of_the_one_before_has() {
    let mut cluster = owned_by(Copies::Majority);
    // The servers 1 and 2 have the write; 0 does not.
    cluster.deaf = vec![0];
    cluster.answer("k", &set("kept"), Level::Quorum);
    cluster.deaf = vec![2];
    cluster.portal = portal(cluster.now, 2);
    cluster.router = Router::new(RouterParams::default());
    cluster.pass(DurationNs::millis(SOON_MS));
    assert!(cluster.portal.is_open());
    let read = cluster.answer("k", &Operation::Get, Level::First);
    assert_eq!(read, Answer::Value(Bytes::from_static(b"kept")));
}

#[test]
fn a_silent_server_is_not_left_alone_before_it_refuses_the_owner_before() {
    let mut cluster = owned_by(Copies::Majority);
    cluster.answer("k", &set("kept"), Level::All);
    cluster.deaf = vec![0];
    assert!(is_replaced_soon(&mut cluster, 2));
    // Both servers that refuse it forget everything. The silent one could answer alone from then on.
    for id in [1, 2] {
        cluster.servers[usize::from(id)] = server_at(cluster.now, id, 70 + u128::from(id));
    }
    cluster.pass(DurationNs::millis(2 * SOON_MS));
    let counted = |cluster: &Cluster| {
        let config = cluster.controller.config();
        let incarnation = |id| config.and_then(|it| it.incarnation_of(ServerId(id)));
        [1, 2].map(|id| incarnation(id).map(|it| it.0))
    };
    // With one of them lost, the answers of both servers that are left are needed. The other one
    // stays a member, though it has forgotten everything.
    assert_eq!(counted(&cluster), [Some(71), Some(3)]);
    cluster.deaf.clear();
    cluster.pass(DurationNs::millis(3_000));
    assert_eq!(counted(&cluster), [Some(71), Some(72)]);
    assert!(counts_in(&cluster, 0));
    let read = cluster.answer("k", &Operation::Get, Level::Quorum);
    assert_eq!(read, Answer::Value(Bytes::from_static(b"kept")));
}

#[test]
fn a_deletion_that_all_others_have_forgotten_is_not_undone_by_the_server_that_was_silent() {
    let mut cluster = owned_by(Copies::Majority);
    cluster.answer("k", &set("old"), Level::All);
    cluster.deaf = vec![2];
    assert!(is_replaced_soon(&mut cluster, 2));
    // Deleted while the silent server is a member, and forgotten once it is none.
    let number = cluster.ask("k", &Operation::Delete { counted: false }, Level::Quorum);
    cluster.pass(DurationNs::millis(4_000));
    assert!(cluster.is_stable(number) && !counts_in(&cluster, 2));
    for server in 0..2 {
        let question = List {
            sessions: cluster.portal.owned(),
            stable: Sequence(2 * number),
            config: cluster
                .controller
                .config()
                .map_or(ConfigNumber(0), |it| it.number),
            at: WallNs(0),
            ended: false,
            below: u64::MAX,
            kind: None,
            records: 1,
        };
        let asked = Message::Control(Control::List(question));
        cluster.servers[server].handle_message(cluster.now, 7, asked);
        assert_eq!(cluster.servers[server].records(), 0);
    }
    cluster.deaf.clear();
    cluster.pass(DurationNs::millis(4_000));
    assert!(counts_in(&cluster, 2));
    cluster.deaf = vec![0];
    assert!(is_replaced_soon(&mut cluster, 3));
    assert_eq!(
        cluster.answer("k", &Operation::Get, Level::Quorum),
        Answer::NotFound
    );
}
