//! What a client writes down is what happened, one row a copy.

#[path = "../../node/tests/common/mod.rs"]
mod common;

use common::{Cluster, value};
use flurry::{Client, Error, Level, Options};
use flurry_recording::{About, Recording};
use unruly_trace::{Manifest, RunStatus};

#[test]
fn every_copy_is_a_row_and_the_counts_add_up() {
    let cluster = Cluster::start();
    let directory = tempfile::tempdir().unwrap();
    let run = directory.path().join("run");
    let recording = Recording::start(&run, About::named("test")).unwrap();
    let clients: Vec<Client> = ["a", "b"]
        .map(|session| {
            Client::open(&Options {
                recording: Some(recording.arrivals()),
                ..cluster.options(session)
            })
            .unwrap()
        })
        .into();
    let operations = 300;
    for client in &clients {
        for number in 0..operations {
            let level = [Level::First, Level::Quorum, Level::All][number % 3];
            let call = || client.call().at_level(level);
            if number % 2 == 0 {
                call().set("k", number.to_string()).unwrap();
            } else {
                call().get("k").unwrap();
            }
        }
    }
    for client in clients {
        client.close().unwrap();
    }
    let counts = recording.finish().unwrap();
    let asked = 2 * operations as u64;
    assert_eq!(counts.requests.scheduled, asked);
    assert_eq!(counts.requests.answered, asked);
    assert_eq!(counts.requests.unanswered, 0);
    // A retry is a copy of its own.
    assert!(counts.copies.scheduled >= 3 * asked);
    assert_eq!(counts.copies.recorded, counts.copies.scheduled);
    let manifest = Manifest::read(&run).unwrap();
    assert_eq!(manifest.status, RunStatus::Complete);
    assert_eq!(manifest.counts, counts);
    assert_eq!(manifest.processes.len(), 2);
}

#[test]
fn a_copy_to_a_server_that_is_gone_is_lost_and_the_operation_answered() {
    let mut cluster = Cluster::start();
    let directory = tempfile::tempdir().unwrap();
    let recording = Recording::start(&directory.path().join("run"), About::named("test")).unwrap();
    let client = Client::open(&Options {
        recording: Some(recording.arrivals()),
        ..cluster.options("s")
    })
    .unwrap();
    client.set("k", "1").unwrap();
    cluster.servers[2] = None;
    client.set("k", "2").unwrap();
    assert_eq!(client.get("k").unwrap(), value("2"));
    drop(client);
    let counts = recording.finish().unwrap();
    assert_eq!(counts.requests.answered, 3);
    assert!(counts.copies.lost >= 1, "{counts:?}");
}

#[test]
fn a_recording_is_finished_only_when_nobody_writes_to_it_and_never_begun_twice() {
    let cluster = Cluster::start();
    let directory = tempfile::tempdir().unwrap();
    let run = directory.path().join("run");
    let recording = Recording::start(&run, About::named("test")).unwrap();
    let again = Recording::start(&run, About::named("test")).unwrap_err();
    assert!(again.to_string().contains("holds a run already"), "{again}");
    let client = Client::open(&Options {
        recording: Some(recording.arrivals()),
        ..cluster.options("s")
    })
    .unwrap();
    let early = recording.finish().unwrap_err();
    assert!(matches!(early, Error::Refused { .. }), "{early}");
    drop(client);
}
