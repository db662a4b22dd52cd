//! The commands of an operator for servers that are gone for good or are to go.

#![expect(clippy::unwrap_used, reason = "a test ends where a helper fails")]

use crate::common::{Cluster, params, server};
use bytes::Bytes;
use flurry_core::config::Level;
use flurry_core::controller::{Controller, ControllerParams};
use flurry_core::id::{DurationNs, ServerId};
use flurry_core::key_value::{Answer, Operation};
use flurry_core::message::{Control, Departure};

const OPERATOR: u64 = 3000;

/// Returns the controller's answer to an operator; an empty one means yes.
fn depart(cluster: &mut Cluster, server: u16, departure: Departure) -> String {
    let question = Control::Depart(ServerId(server), departure);
    match cluster.ask_controller(OPERATOR, question) {
        Some(Control::DepartHeard(which, what, refusal)) => {
            assert_eq!((which.0, what), (server, departure));
            refusal
        }
        other => panic!("the controller answered {other:?}"),
    }
}

/// Returns the present members, and whether they change.
fn members(cluster: &Cluster) -> (Vec<u16>, bool) {
    let config = cluster.controller.config().unwrap();
    let left = config.members.iter().filter(|it| !it.gone);
    (left.map(|it| it.server.0).collect(), config.next.is_some())
}

fn seconds(count: u64) -> DurationNs {
    DurationNs::millis(1_000 * count)
}

/// Returns three servers with one value, of which two are dead, and two new ones that ask to join.
fn with_two_dead() -> Cluster {
    let mut cluster = Cluster::open();
    cluster.answer("k", &Operation::set(Bytes::from_static(b"v")), Level::All);
    cluster.deaf = vec![1, 2];
    cluster.servers.push(server(3, 33));
    cluster.servers.push(server(4, 44));
    cluster.pass(seconds(10));
    cluster
}

#[test]
fn two_of_three_servers_that_are_gone_for_good_are_replaced_by_servers_of_other_numbers() {
    let mut cluster = with_two_dead();
    assert_eq!(
        members(&cluster).0.len(),
        2,
        "one dead server is waited for"
    );
    for dead in [1, 2] {
        // One of them is counted out already, so nobody waits for its lease.
        assert_eq!(depart(&mut cluster, dead, Departure::Removed), "");
    }
    cluster.pass(seconds(5));
    assert_eq!(members(&cluster), (vec![0, 3, 4], false));
    let answer = cluster.answer("k", &Operation::Get, Level::All);
    assert_eq!(answer, Answer::Value(Bytes::from_static(b"v")));
}

#[test]
fn a_server_that_is_heard_of_is_not_removed() {
    let mut cluster = Cluster::open();
    let refusal = depart(&mut cluster, 1, Departure::Removed);
    assert!(refusal.contains("server 1 is up"), "{refusal}");
    cluster.pass(seconds(3));
    assert_eq!(members(&cluster), (vec![0, 1, 2], false));
}

#[test]
fn a_number_that_is_no_server_is_refused() {
    let mut cluster = Cluster::open();
    for departure in [Departure::Removed, Departure::Drained] {
        let refusal = depart(&mut cluster, 9, departure);
        assert!(
            refusal.contains("server 9 is not in the cluster"),
            "{refusal}"
        );
    }
}

#[test]
fn the_last_server_with_everything_can_be_removed_and_its_loss_is_reported() {
    let mut cluster = Cluster::open();
    cluster.answer("k", &Operation::set(Bytes::from_static(b"v")), Level::All);
    // All restart empty but server 2, which dies before they have copied from it.
    cluster.deaf = vec![2];
    cluster.servers[0] = server(0, 70);
    cluster.servers[1] = server(1, 71);
    cluster.pass(seconds(5));
    assert!(members(&cluster).1, "its copies are waited for");
    assert_eq!(depart(&mut cluster, 2, Departure::Removed), "");
    cluster.pass(seconds(5));
    assert_eq!(members(&cluster), (vec![0, 1], false));
    let number = cluster.ask("k", &Operation::Get, Level::First);
    cluster.pass(seconds(1));
    let outcome = cluster.outcome(number);
    assert!(
        format!("{outcome:?}").contains("DataLoss"),
        "the owner hears of the loss: {outcome:?}"
    );
}

#[test]
fn a_drained_server_passes_on_what_it_has_and_stays_out_until_it_is_taken_back() {
    let mut cluster = Cluster::open();
    cluster.servers.push(server(3, 33));
    cluster.pass(seconds(3));
    assert_eq!(members(&cluster), (vec![0, 1, 2, 3], false));
    assert_eq!(depart(&mut cluster, 3, Departure::Drained), "");
    cluster.pass(seconds(5));
    assert_eq!(members(&cluster), (vec![0, 1, 2], false));
    // The controller still knows it after a restart.
    let stored = cluster.disk.clone();
    cluster.controller = Controller::restore(cluster.now, params(), &stored).unwrap();
    cluster.pass(seconds(5));
    assert_eq!(members(&cluster), (vec![0, 1, 2], false));
    assert_eq!(depart(&mut cluster, 3, Departure::TakenBack), "");
    cluster.pass(seconds(5));
    assert_eq!(members(&cluster), (vec![0, 1, 2, 3], false));
}

#[test]
fn a_controller_that_starts_again_with_other_numbers_keeps_those_of_its_servers() {
    let mut cluster = Cluster::open();
    let other = ControllerParams {
        replicas: 5,
        shards: 2,
        servers_min: 5,
        ..params()
    };
    let stored = cluster.disk.clone();
    cluster.controller = Controller::restore(cluster.now, other, &stored).unwrap();
    // A server with the shards of the others is let in.
    cluster.servers.push(server(3, 33));
    cluster.pass(seconds(5));
    assert_eq!(members(&cluster), (vec![0, 1, 2, 3], false));
    let Some(Control::Status(text)) = cluster.ask_controller(OPERATOR, Control::StatusQuery) else {
        panic!("there is a status");
    };
    assert!(text.contains("\"replicas\":3,"), "{text}");
}

#[test]
fn a_server_that_is_out_already_counts_as_removed_and_one_that_never_was_in_does_not() {
    let mut cluster = Cluster::open();
    cluster.deaf.push(2);
    cluster.pass(seconds(5));
    assert_eq!(members(&cluster), (vec![0, 1], false));
    assert_eq!(depart(&mut cluster, 2, Departure::Removed), "");
    let refusal = depart(&mut cluster, 9, Departure::Removed);
    assert!(
        refusal.contains("server 9 is not in the cluster"),
        "{refusal}"
    );
    // This is no ban: the next incarnation is admitted.
    cluster.deaf.clear();
    cluster.servers[2] = server(2, 77);
    cluster.pass(seconds(5));
    assert_eq!(members(&cluster), (vec![0, 1, 2], false));
}

#[test]
fn no_more_servers_are_drained_than_a_quorum_can_do_without() {
    let mut cluster = Cluster::open();
    assert_eq!(depart(&mut cluster, 0, Departure::Drained), "");
    let refusal = depart(&mut cluster, 1, Departure::Drained);
    assert!(refusal.contains("fewer than 2 copies"), "{refusal}");
    cluster.pass(seconds(5));
    assert_eq!(members(&cluster), (vec![1, 2], false));
}
