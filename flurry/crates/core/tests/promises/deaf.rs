//! A machine that sends but receives nothing counts as lost.

#![expect(clippy::unwrap_used, reason = "a test ends where a helper fails")]

use crate::common::{CONTROLLER, Cluster, PORTAL};
use bytes::Bytes;
use flurry_core::config::Level;
use flurry_core::id::{DurationNs, MonoNs};
use flurry_core::key_value::{Answer, Operation};
use flurry_core::message::{Control, Copies, Ping};

const STANDBY: u64 = 3_000;

/// Two and a half leases. A server counts as silent after half a lease without an answer, and is
/// counted out a lease later.
const NOTICED: DurationNs = DurationNs::millis(2_500);

fn set() -> Operation {
    Operation::set(Bytes::from_static(b"v"))
}

fn members(cluster: &Cluster) -> usize {
    cluster.controller.config().unwrap().lives().len()
}

/// Asks for the session as a standby with this silence limit, and returns whether it has to wait.
fn waits(cluster: &mut Cluster, timeout_ms: u64) -> bool {
    let open = Control::Open {
        names: vec!["calls".to_owned()],
        nonce: 77,
        timeout: DurationNs::millis(timeout_ms),
        copies: Copies::Count(1),
    };
    let answer = cluster.ask_controller(STANDBY, open);
    matches!(answer, Some(Control::OwnerLives { .. }))
}

#[test]
fn a_server_that_hears_nothing_is_counted_out_though_it_is_heard() {
    let mut cluster = Cluster::open();
    cluster.earless.push(2);
    cluster.pass(NOTICED);
    assert_eq!(members(&cluster), 2);
    // Operations go on, and the write is on every server that is left.
    let number = cluster.ask("k", &set(), Level::All);
    cluster.pass(DurationNs::millis(50));
    assert!(cluster.is_stable(number));
    cluster.earless.clear();
    cluster.pass(NOTICED);
    assert_eq!(members(&cluster), 3);
    assert_eq!(cluster.servers[2].records(), 1);
}

#[test]
fn a_session_is_opened_though_a_server_hears_nothing_of_it() {
    let mut cluster = Cluster::open();
    cluster.earless.push(2);
    cluster.portal = crate::common::portal(cluster.now, 2);
    cluster.pass(NOTICED);
    assert!(cluster.portal.is_open());
}

#[test]
fn an_owner_that_hears_nothing_does_not_keep_a_standby_waiting() {
    let mut cluster = Cluster::open();
    cluster.pass(DurationNs::millis(3_000));
    assert!(waits(&mut cluster, 600));
    cluster.earless.push(PORTAL);
    cluster.pass(DurationNs::millis(1_400));
    assert!(waits(&mut cluster, 1_500));
    // It reports every half second, and two answers may be lost.
    cluster.pass(DurationNs::millis(1_400));
    assert!(!waits(&mut cluster, 1_500));
}

#[test]
fn servers_that_heard_nobody_for_long_get_leases_again_at_once() {
    let mut cluster = Cluster::open();
    cluster.answer("k", &set(), Level::All);
    // No server answers another one, and the controller receives nothing either.
    cluster.earless = vec![0, 1, 2, CONTROLLER];
    cluster.pass(DurationNs::millis(950));
    cluster.earless.clear();
    // Each server sends its next ping within a quarter of a lease, and the one after it at once.
    cluster.pass(DurationNs::millis(300));
    assert_eq!(members(&cluster), 3);
    let answer = cluster.answer("k", &Operation::Get, Level::All);
    assert_eq!(answer, Answer::Value(Bytes::from_static(b"v")));
}

#[test]
fn a_controller_grants_nothing_to_a_server_that_hears_nobody_and_says_that_it_heard_it() {
    let mut cluster = Cluster::open();
    let (now, number) = (cluster.now, cluster.controller.config().unwrap().number);
    for (unheard, granted) in [(500, now), (501, MonoNs(0))] {
        let ping = Ping {
            life: cluster.servers[2].life(),
            number,
            sent: now,
            quiet: DurationNs(0),
            unheard: DurationNs::millis(unheard),
        };
        let answer = cluster.ask_controller(STANDBY, Control::Ping(ping));
        assert_eq!(
            answer,
            Some(Control::Pong(None, number, granted)),
            "{unheard}"
        );
    }
}

#[test]
fn a_server_whose_answers_are_lost_for_less_than_half_a_lease_is_no_worse_off() {
    let mut cluster = Cluster::open();
    for _ in 0..5 {
        cluster.earless.push(2);
        cluster.pass(DurationNs::millis(400));
        cluster.earless.clear();
        cluster.pass(DurationNs::millis(400));
        cluster.answer("k", &set(), Level::All);
    }
    assert_eq!(members(&cluster), 3);
}
