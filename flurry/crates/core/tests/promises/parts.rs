//! An owner of several sessions, of which another owner may take some.

use crate::common::{Cluster, portal};
use bytes::Bytes;
use flurry_core::config::Level;
use flurry_core::id::{DurationNs, Epoch, WallNs};
use flurry_core::key_value::{Answer, Operation};
use flurry_core::message::{Control, Copies, List, Message};
use flurry_core::portal::{
    Event, Outcome, Portal, PortalParams, Sessions, Submission, SubmitError,
};
use flurry_core::router::{Router, RouterParams};

const STRANGER: u64 = 3_000;

fn set(value: &str) -> Operation {
    Operation::set(Bytes::copy_from_slice(value.as_bytes()))
}

/// Returns the sessions `part-0` and so on. Keys that begin with `a` belong to the first.
fn sessions(first: usize, count: usize) -> Sessions {
    Sessions {
        names: (first..first + count)
            .map(|it| format!("part-{it}"))
            .collect(),
        of: |key| usize::from(key[0] - b'a'),
        first,
    }
}

fn owner(cluster: &Cluster, nonce: u64, sessions: Sessions, timeout: DurationNs) -> Portal {
    let params = PortalParams {
        sessions,
        nonce,
        operations_max: 100,
        bytes_max: 1 << 20,
        keys_max: 100,
        drive_again: None,
        heartbeat: Some(DurationNs::millis(100)),
        timeout,
        tells_first: false,
        copies: Copies::Count(1),
    };
    Portal::new(cluster.now, params)
}

/// Returns a cluster whose owner has four sessions.
fn four() -> Cluster {
    let mut cluster = Cluster::open();
    let first = owner(&cluster, 7, sessions(0, 4), DurationNs(0));
    let _ = swap(&mut cluster, (first, Router::new(RouterParams::default())));
    cluster.pass(DurationNs::millis(50));
    assert!(cluster.portal.is_open());
    cluster.events.clear();
    cluster
}

/// Replaces the present owner by another one, and returns it.
fn swap(cluster: &mut Cluster, other: (Portal, Router)) -> (Portal, Router) {
    cluster.settle();
    (
        std::mem::replace(&mut cluster.portal, other.0),
        std::mem::replace(&mut cluster.router, other.1),
    )
}

/// Lets another owner take the sessions from `first` on, and returns the earlier owner.
fn taken(cluster: &mut Cluster, first: usize, count: usize) -> (Portal, Router) {
    let other = owner(cluster, 8, sessions(first, count), DurationNs(0));
    let earlier = swap(cluster, (other, Router::new(RouterParams::default())));
    cluster.pass(DurationNs::millis(50));
    assert!(cluster.portal.is_open());
    cluster.events.clear();
    earlier
}

fn get(cluster: &mut Cluster, key: &str) -> Answer {
    cluster.answer(key, &Operation::Get, Level::First)
}

fn value(text: &'static str) -> Answer {
    Answer::Value(Bytes::from_static(text.as_bytes()))
}

#[test]
fn keys_of_different_sessions_have_one_owner_and_do_not_mix() {
    let mut cluster = four();
    for key in ["a1", "b1", "c1", "d1"] {
        cluster.answer(key, &set(key), Level::All);
    }
    let sessions = cluster.servers[0].states().map(|it| it.0.session());
    let mut sessions: Vec<u32> = sessions.map(|it| it.0).collect();
    sessions.sort_unstable();
    sessions.dedup();
    assert_eq!(sessions.len(), 4);
    assert_eq!(get(&mut cluster, "c1"), value("c1"));
    assert_eq!(get(&mut cluster, "c2"), Answer::NotFound);
}

#[test]
fn another_owner_takes_some_sessions_with_their_values_and_the_first_keeps_the_rest() {
    let mut cluster = four();
    for key in ["a1", "b1", "c1", "d1"] {
        cluster.answer(key, &set(key), Level::First);
    }
    let earlier = taken(&mut cluster, 2, 2);
    assert_eq!(get(&mut cluster, "c1"), value("c1"));
    cluster.answer("d1", &set("later"), Level::All);
    assert_eq!(get(&mut cluster, "d1"), value("later"));

    let _ = swap(&mut cluster, earlier);
    cluster.events.clear();
    // Its operations on a session that it has lost are not done. Those on other sessions are.
    let lost = cluster.ask("d1", &set("of old"), Level::First);
    cluster.answer("a1", &set("kept"), Level::First);
    let fenced = cluster.outcome(lost);
    assert_eq!(fenced, Some(Outcome::Fenced(Epoch(2))));
    let told = cluster
        .events
        .iter()
        .find(|it| matches!(it, Event::PartFenced(..)));
    assert_eq!(told, Some(&Event::PartFenced(3, Epoch(2))));
    let submission = Submission {
        key: Bytes::from_static(b"d2"),
        operation: Operation::Get.encode(),
        access: Operation::Get.access(),
        level: Level::First,
        at: WallNs(0),
        timeout: DurationNs::millis(10),
        sequence: None,
        refuses_doubt: false,
    };
    let refused = cluster.portal.submit(cluster.now, submission);
    assert_eq!(refused, Err(SubmitError::Fenced(Epoch(2))));
    assert_eq!(get(&mut cluster, "a1"), value("kept"));
    assert!(cluster.portal.is_open());
}

#[test]
fn an_owner_hears_within_a_heartbeat_that_another_one_has_sessions_of_it() {
    let mut cluster = four();
    let earlier = taken(&mut cluster, 2, 2);
    let _ = swap(&mut cluster, earlier);
    cluster.events.clear();
    cluster.pass(DurationNs::millis(110));
    let wanted = [2, 3].map(|it| Event::PartFenced(it, Epoch(2)));
    assert_eq!(cluster.events, wanted);
    assert_eq!(cluster.portal.owned().len(), 2);
}

#[test]
fn an_owner_that_has_lost_some_sessions_closes_the_others() {
    let mut cluster = four();
    cluster.answer("a1", &set("a"), Level::First);
    let earlier = taken(&mut cluster, 1, 3);
    let _ = swap(&mut cluster, earlier);
    cluster.events.clear();
    cluster.portal.close(cluster.now);
    cluster.pass(DurationNs::millis(200));
    assert!(
        cluster.events.contains(&Event::Closed),
        "{:?}",
        cluster.events
    );
    let parts = cluster.events.iter();
    let parts = parts.filter(|it| matches!(it, Event::PartFenced(..)));
    assert_eq!(parts.count(), 3, "it hears of each when it closes");
}

#[test]
fn an_owner_that_has_lost_all_its_sessions_is_fenced() {
    let mut cluster = four();
    let earlier = taken(&mut cluster, 0, 4);
    let _ = swap(&mut cluster, earlier);
    cluster.events.clear();
    for key in ["a", "b", "c", "d"] {
        cluster.ask(key, &set("v"), Level::First);
    }
    cluster.settle();
    let last = cluster.events.iter();
    let last = last.filter(|it| matches!(it, Event::Fenced(_)));
    assert_eq!(last.count(), 1);
    assert!(!cluster.portal.is_open());
}

#[test]
fn sessions_come_in_the_order_in_which_they_are_asked_for() {
    let mut cluster = Cluster::open();
    // The upper half is opened first, so that its sessions have the lower numbers.
    let upper = owner(&cluster, 7, sessions(2, 2), DurationNs(0));
    let _ = swap(&mut cluster, (upper, Router::new(RouterParams::default())));
    cluster.pass(DurationNs::millis(50));
    cluster.answer("c1", &set("c"), Level::All);
    let _ = taken(&mut cluster, 0, 4);
    assert_eq!(get(&mut cluster, "c1"), value("c"));
    cluster.answer("a1", &set("a"), Level::All);
    assert_eq!(get(&mut cluster, "a1"), value("a"));
    let owned = cluster.portal.owned();
    assert!(owned[0].session > owned[2].session);
}

#[test]
fn a_standby_waits_while_the_owner_of_one_of_its_sessions_lives() {
    let mut cluster = four();
    let open = |names: &[&str]| Control::Open {
        names: names.iter().map(|&it| it.to_owned()).collect(),
        nonce: 9,
        timeout: DurationNs::millis(500),
        copies: Copies::Count(1),
    };
    let answer = cluster.ask_controller(STRANGER, open(&["new", "part-3"]));
    assert!(
        matches!(answer, Some(Control::OwnerLives { .. })),
        "{answer:?}"
    );
    assert_eq!(cluster.controller.owner_of("new"), None, "all or none");
    cluster.answer("d1", &set("v"), Level::First);
}

#[test]
fn no_sessions_or_too_many_are_refused() {
    let mut cluster = Cluster::open();
    for count in [0, 65] {
        let open = Control::Open {
            names: (0..count).map(|it| format!("it-{it}")).collect(),
            nonce: 9,
            timeout: DurationNs(0),
            copies: Copies::Count(1),
        };
        let answer = cluster.ask_controller(STRANGER, open);
        assert!(
            matches!(answer, Some(Control::OpenRefused { .. })),
            "{count}"
        );
        assert_eq!(cluster.controller.owner_of("it-0"), None);
    }
}

#[test]
fn deletions_are_forgotten_in_a_session_that_is_not_used_any_more() {
    let mut cluster = four();
    cluster.answer("a1", &set("v"), Level::All);
    cluster.answer("a1", &Operation::Delete { counted: false }, Level::All);
    cluster.answer("b1", &set("v"), Level::All);
    cluster.answer("b1", &set("w"), Level::All);
    assert_eq!(cluster.servers[0].tombstones(), 1);
    let question = List {
        sessions: cluster.portal.owned(),
        stable: cluster.portal.stable_sequence(),
        config: cluster.controller.config().unwrap().number,
        at: WallNs(0),
        ended: true,
        below: u64::MAX,
        kind: None,
        records: 1,
    };
    let now = cluster.now;
    let ask = Message::Control(Control::List(question));
    cluster.servers[0].handle_message(now, 0, ask);
    assert_eq!(cluster.servers[0].tombstones(), 0);
}

#[test]
fn a_portal_that_was_let_in_to_fewer_sessions_than_it_asked_for_is_not_open() {
    let mut cluster = Cluster::open();
    cluster.portal = portal(cluster.now, 5);
    let opened = flurry_core::message::Opened {
        nonce: 5,
        sessions: Vec::new(),
        config: cluster.controller.config().unwrap().clone(),
    };
    let now = cluster.now;
    let message = Message::Control(Control::Opened(opened));
    cluster.portal.handle_message(now, message);
    assert!(!cluster.portal.is_open());
}
