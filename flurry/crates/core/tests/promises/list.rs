//! The list of keys that servers give to an owner.

use std::collections::BTreeMap;

use crate::common::Cluster;
use bytes::Bytes;
use flurry_core::config::Level;
use flurry_core::id::{ConfigNumber, DurationNs, Sequence, WallNs};
use flurry_core::key_value::{Condition, Operation};
use flurry_core::message::{Control, List, Listed, Message};

/// A time before any value of these tests ends.
const EARLY: WallNs = WallNs(1_000_000_000);
const ENDS: WallNs = WallNs(2_000_000_000);

fn question(cluster: &Cluster) -> List {
    List {
        sessions: cluster.portal.owned(),
        stable: Sequence(0),
        config: cluster.controller.config().expect("one is formed").number,
        at: EARLY,
        ended: false,
        below: u64::MAX,
        kind: None,
        records: List::RECORDS_MAX,
    }
}

fn asked(cluster: &mut Cluster, server: usize, question: List) -> Option<Listed> {
    let now = cluster.now;
    let server = &mut cluster.servers[server];
    server.handle_message(now, 7, Message::Control(Control::List(question)));
    let (_, message) = server.poll_send()?;
    assert_eq!(server.poll_send(), None, "one answer to one question");
    match message {
        Message::Control(Control::Listed(listed)) => Some(listed),
        other => panic!("a question for keys was answered by {other:?}"),
    }
}

/// Reads the lists of all servers to their ends, and returns how often each key is in them.
fn all(cluster: &mut Cluster, question: &List) -> BTreeMap<Bytes, u32> {
    let mut counts = BTreeMap::new();
    for server in 0..cluster.servers.len() {
        let mut next = Some(question.below);
        while let Some(below) = next {
            let question = List {
                below,
                ..question.clone()
            };
            let listed = asked(cluster, server, question.clone()).expect("it is answered");
            assert_eq!(listed.question, question);
            assert!(listed.next.is_none_or(|next| next < below), "it goes on");
            for key in listed.keys {
                *counts.entry(key).or_default() += 1;
            }
            next = listed.next;
        }
    }
    counts
}

fn set(cluster: &mut Cluster, key: &str, expires_at: Option<WallNs>) {
    let operation = Operation::Set {
        value: Bytes::from_static(b"v"),
        expires_at,
        condition: Condition::Always,
    };
    cluster.answer(key, &operation, Level::All);
}

fn once(names: impl IntoIterator<Item = String>) -> BTreeMap<Bytes, u32> {
    names.into_iter().map(|name| (name.into(), 1)).collect()
}

#[test]
fn all_servers_together_tell_each_key_once_however_few_records_are_looked_at() {
    let mut cluster = Cluster::open();
    for number in 0..100 {
        set(&mut cluster, &format!("k{number}"), None);
    }
    for number in 0..100 {
        if number % 10 == 0 {
            let key = format!("k{number}");
            cluster.answer(&key, &Operation::Delete { counted: true }, Level::All);
        }
    }
    let left = once(
        (0..100)
            .filter(|it| it % 10 != 0)
            .map(|it| format!("k{it}")),
    );
    for records in [0, 1, 7, u32::MAX] {
        let question = List {
            records,
            ..question(&cluster)
        };
        assert_eq!(all(&mut cluster, &question), left, "{records} at a time");
    }
}

#[test]
fn a_value_that_has_ended_by_the_owners_time_is_told_only_to_whoever_asks_for_those() {
    let mut cluster = Cluster::open();
    set(&mut cluster, "stays", None);
    set(&mut cluster, "ends", Some(ENDS));
    let names = |names: &[&str]| once(names.iter().map(|&it| it.to_owned()));
    for (at, ended, wanted) in [
        (EARLY, false, names(&["ends", "stays"])),
        (EARLY, true, names(&[])),
        (ENDS, false, names(&["stays"])),
        (ENDS, true, names(&["ends"])),
    ] {
        let question = List {
            at,
            ended,
            ..question(&cluster)
        };
        assert_eq!(all(&mut cluster, &question), wanted, "{at:?} {ended}");
    }
}

#[test]
fn keys_of_another_session_are_not_told() {
    let mut cluster = Cluster::open();
    set(&mut cluster, "mine", None);
    let mut question = question(&cluster);
    question.sessions[0].session.0 += 1;
    assert_eq!(all(&mut cluster, &question), BTreeMap::new());
}

#[test]
fn an_answer_fits_a_packet_however_long_the_keys_are() {
    let mut cluster = Cluster::open();
    let names: Vec<String> = (0..300).map(|it| format!("{it:0>512}")).collect();
    for name in &names {
        set(&mut cluster, name, None);
    }
    let question = question(&cluster);
    for server in 0..cluster.servers.len() {
        let listed = asked(&mut cluster, server, question.clone()).unwrap();
        let message = Message::Control(Control::Listed(listed));
        assert!(crate::common::bytes_of(&message) < 60_000);
    }
    assert_eq!(all(&mut cluster, &question), once(names));
}

#[test]
fn whoever_asks_in_another_configuration_is_not_answered() {
    let mut cluster = Cluster::open();
    set(&mut cluster, "k", None);
    let mut question = question(&cluster);
    for number in [0, question.config.0 - 1, question.config.0 + 1] {
        question.config = ConfigNumber(number);
        assert_eq!(asked(&mut cluster, 0, question.clone()), None, "{number}");
    }
}

#[test]
fn a_server_whose_lease_is_over_tells_no_keys() {
    let mut cluster = Cluster::open();
    set(&mut cluster, "k", None);
    let question = question(&cluster);
    assert!(asked(&mut cluster, 0, question.clone()).is_some());
    cluster.now = cluster.now.after(DurationNs::millis(10_000));
    assert_eq!(asked(&mut cluster, 0, question.clone()), None);
}
