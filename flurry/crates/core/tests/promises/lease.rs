//! The duration of a lease is fixed when the cluster begins.

#![expect(clippy::unwrap_used, reason = "a test ends where a helper fails")]

use crate::common::{Cluster, params};
use flurry_core::config::Level;
use flurry_core::controller::{Controller, ControllerParams, ParamsError};
use flurry_core::id::{DurationNs, MonoNs};
use flurry_core::key_value::Operation;
use flurry_core::message::{Message, Verdict};

const LONG: DurationNs = DurationNs::millis(3_000);

/// Returns a cluster with this lease, whose servers were started with a lease of a second.
fn with_lease(lease: DurationNs) -> Cluster {
    let servers = (0..3).map(|id| crate::common::server(id, u128::from(id) + 1));
    let mut cluster = Cluster::of(servers.collect());
    let params = ControllerParams { lease, ..params() };
    cluster.controller = Controller::new(cluster.now, params).unwrap();
    cluster.pass(DurationNs::millis(1_000));
    cluster
}

fn members(cluster: &Cluster) -> usize {
    cluster.controller.config().unwrap().members.len()
}

#[test]
fn a_server_is_counted_out_after_the_lease_of_its_cluster() {
    let mut cluster = with_lease(LONG);
    cluster.deaf = vec![2];
    cluster.pass(DurationNs::millis(2_500));
    assert_eq!(members(&cluster), 3);
    cluster.pass(DurationNs::millis(1_500));
    assert_eq!(members(&cluster), 2);
}

#[test]
fn a_controller_goes_by_the_lease_that_its_cluster_began_with() {
    let mut cluster = with_lease(LONG);
    cluster.controller = Controller::restore(cluster.now, params(), &cluster.disk).unwrap();
    cluster.pass(DurationNs::millis(500));
    cluster.deaf = vec![2];
    cluster.pass(DurationNs::millis(2_500));
    assert_eq!(members(&cluster), 3, "a controller with a lease of 1 s");
    assert_eq!(cluster.controller.config().unwrap().lease, LONG);
}

#[test]
fn a_lease_that_no_network_can_keep_is_refused() {
    for (ms, good) in [(99, false), (100, true), (60_000, true), (60_001, false)] {
        let lease = DurationNs::millis(ms);
        let made = Controller::new(MonoNs(1), ControllerParams { lease, ..params() });
        assert_eq!(
            made.err(),
            (!good).then_some(ParamsError::Lease(lease)),
            "{ms} ms"
        );
    }
}

#[test]
fn a_server_on_its_own_stops_answering_after_the_lease_of_its_cluster() {
    let mut cluster = with_lease(DurationNs::millis(300));
    for (alone_ms, answers) in [(200, true), (150, false)] {
        for _ in 0..alone_ms {
            cluster.tick();
            cluster.collect();
            cluster.letters.clear();
        }
        cluster.ask("k", &Operation::Get, Level::First);
        cluster.collect();
        let asked = cluster.letters.iter().find(|it| it.1 == 2).cloned();
        cluster.deliver(asked.unwrap());
        let said = cluster.servers[2].poll_send().map(|it| it.1);
        let refuses = matches!(&said, Some(Message::Reply(it)) if it.verdict == Verdict::NoLease);
        assert_eq!(!refuses, answers, "{said:?}");
    }
}
