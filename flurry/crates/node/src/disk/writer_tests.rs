//! What the thread of a disk writes, order by order.

use std::sync::mpsc::channel;

use bytes::Bytes;
use flurry_core::id::{Epoch, Sequence, SessionId, Version};

use super::*;

const EARLIER: Incarnation = Incarnation(1);
const LATER: Incarnation = Incarnation(2);

fn writer(folder: &std::path::Path) -> Writer {
    let inbox = Inbox {
        told: Arc::default(),
        wake: crate::link::Wake::new().unwrap(),
    };
    let files = Files::open(folder).unwrap();
    Writer::new(files, [None, None], vec![inbox], Arc::default())
}

fn key(name: &'static str) -> Key {
    Key::new(SessionId(3), Bytes::from_static(name.as_bytes())).unwrap()
}

fn state(sequence: u64) -> State {
    let snapshot = Some(Bytes::from_static(b"value"));
    State {
        version: Version {
            epoch: Epoch(1),
            sequence: Sequence(sequence),
        },
        written_in: Epoch(1),
        digest: flurry_core::machine::digest(snapshot.as_deref()),
        snapshot,
        answer: Bytes::from_static(b"done"),
        evicted: false,
    }
}

fn copy(life: Incarnation) -> Order {
    Order::Copy {
        shard: 0,
        life,
        position: 0,
    }
}

fn changes(life: Incarnation, changed: &'static str, hurry: bool) -> Order {
    let change = Change {
        position: 1,
        key: key(changed),
        what: What::Is(state(1)),
    };
    Order::Changes {
        shard: 0,
        life,
        changes: vec![change],
        at: WallNs(1),
        hurry,
    }
}

/// All records of a life, which are these.
fn all(life: Incarnation, number: u64, names: &[&'static str]) -> Order {
    let records = names.iter().map(|name| (key(name), state(2)));
    Order::Records {
        shard: 0,
        life,
        copy: number,
        records: records.collect(),
        last: true,
    }
}

fn keys(file: &Generation) -> Vec<Key> {
    let (records, rest) = file.read(&[], READ_BYTES).unwrap();
    assert!(rest.is_none());
    records.into_iter().map(|(key, _)| key).collect()
}

fn files_of_records(folder: &std::path::Path) -> usize {
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|it| it.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("records.")).count()
}

#[test]
fn nothing_that_an_earlier_life_changed_is_in_the_file_of_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path());
    for order in [
        copy(EARLIER),
        changes(EARLIER, "of the earlier", false),
        copy(LATER),
        all(LATER, 2, &["of the later"]),
    ] {
        writer.take(order);
    }
    writer.commit().unwrap();
    let candidate = writer.candidate.as_ref().unwrap();
    assert_eq!(candidate.life, LATER);
    assert_eq!(keys(candidate), [key("of the later")]);
}

#[test]
fn a_copy_that_makes_up_for_a_failure_counts_and_what_it_replaces_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path());
    writer.take(copy(EARLIER));
    writer.take(all(EARLIER, 1, &["a"]));
    writer.commit().unwrap();
    writer.take(Order::Promote { life: EARLIER });
    assert!(writer.current.is_some() && writer.candidate.is_none());

    let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
    writer.fail(&Error::io("disk", "to write to it", &full));
    writer.take(changes(EARLIER, "missed", true));
    writer.commit().unwrap();
    assert!(writer.current.is_none(), "it misses a change");

    writer.failed = None;
    writer.copy_anew();
    writer.take(all(EARLIER, 2, &["a", "missed"]));
    writer.commit().unwrap();
    writer.take(Order::Promote { life: EARLIER });
    let current = writer.current.as_ref().unwrap();
    assert_eq!(keys(current), [key("a"), key("missed")]);
    let named = std::fs::read_to_string(folder.path().join("current")).unwrap();
    assert!(current.path().ends_with(&named), "{named}");
    assert_eq!(files_of_records(folder.path()), 1);
}

#[test]
fn a_deletion_that_memories_have_forgotten_is_told_while_there_is_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path());
    writer.take(copy(EARLIER));
    let Order::Changes { mut changes, .. } = changes(EARLIER, "deleted", false) else {
        unreachable!("it makes changes");
    };
    changes[0].what = What::Buried(state(1));
    writer.changed(0, EARLIER, changes, WallNs(1));
    writer.read(0, ConfigNumber(1), &Place::default());
    let told = writer.inboxes[0].take();
    let Some(Told::Read { records, next, .. }) = told.last() else {
        panic!("it was to be read: {told:?}");
    };
    assert_eq!(records, &[(key("deleted"), state(1))]);
    assert!(next.is_none());
}

#[test]
fn changes_are_gathered_until_somebody_waits() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path());
    writer.take(copy(EARLIER));
    writer.take(all(EARLIER, 1, &["a"]));
    writer.commit().unwrap();
    assert!(writer.next.is_none(), "the copy is whole");
    writer.take(changes(EARLIER, "b", false));
    assert!(!writer.is_urgent());

    let (sender, orders) = channel();
    sender.send(changes(EARLIER, "c", true)).unwrap();
    writer.gather(&orders);
    assert!(writer.is_urgent());
    writer.commit().unwrap();
    let candidate = writer.candidate.as_ref().unwrap();
    assert_eq!(keys(candidate), [key("a"), key("b"), key("c")]);
    assert!(!writer.hurry, "nobody waits any more");
}
