//! Standbys, the observer's question, and a shard that has given up its server's incarnation.

use std::sync::Arc;

use crate::common::{CONTROLLER, Cluster, portal, server_at, thread};
use flurry_core::config::{Config, Member};
use flurry_core::id::{ConfigNumber, DurationNs, Epoch, Incarnation, MonoNs, ServerId};
use flurry_core::key_value::KeyValue;
use flurry_core::message::{Control, FoundSession, Message};
use flurry_core::server::{Destination, Server};

const STANDBY: u64 = 3000;

/// Sends a standby's opening with this silence limit and returns the controller's answer.
fn stand_by(cluster: &mut Cluster, timeout: DurationNs) -> Option<Control> {
    let open = Control::Open {
        names: vec!["calls".to_owned()],
        nonce: 7,
        timeout,
        copies: flurry_core::message::Copies::Count(1),
    };
    let answer = cluster.ask_controller(STANDBY, open);
    cluster.settle();
    answer
}

fn lives(epoch: u32) -> Option<Control> {
    Some(Control::OwnerLives {
        nonce: 7,
        epoch: Epoch(epoch),
    })
}

#[test]
fn a_standby_waits_as_long_as_the_owner_says_that_it_lives() {
    let mut cluster = Cluster::open();
    // The owner reports every half second.
    let timeout = DurationNs::millis(600);
    for _ in 0..50 {
        cluster.pass(DurationNs::millis(100));
        assert_eq!(stand_by(&mut cluster, timeout), lives(1));
    }
    // From now on the owner sends no report.
    let start = cluster.now;
    while cluster.controller.owner_of("calls").unwrap().1 == Epoch(1) {
        cluster.now = cluster.now.after(DurationNs::millis(10));
        cluster.controller.handle_timeout(cluster.now);
        let _ = stand_by(&mut cluster, timeout);
    }
    let waited = cluster.now.since(start);
    let within = DurationNs::millis(100)..=DurationNs::millis(610);
    assert!(within.contains(&waited), "{waited:?}");
}

#[test]
fn a_standby_is_let_in_at_once_when_the_owner_has_closed() {
    let mut cluster = Cluster::open();
    let timeout = DurationNs::millis(3_600_000);
    assert_eq!(stand_by(&mut cluster, timeout), lives(1));
    cluster.portal.close(cluster.now);
    cluster.settle();
    let opened = stand_by(&mut cluster, timeout);
    assert!(
        matches!(&opened, Some(Control::Opened(it)) if it.sessions[0].epoch == Epoch(2)),
        "{opened:?}"
    );
}

#[test]
fn a_controller_that_stood_still_does_not_count_the_owner_s_silence() {
    let mut cluster = Cluster::open();
    let timeout = DurationNs::millis(600);
    assert_eq!(stand_by(&mut cluster, timeout), lives(1));
    // The controller received no report meanwhile, and the standby's opening is the first message.
    cluster.now = cluster.now.after(DurationNs::millis(5_000));
    assert_eq!(stand_by(&mut cluster, timeout), lives(1));
}

#[test]
fn who_asks_for_a_session_changes_nothing() {
    let mut cluster = Cluster::open();
    for (name, session, epoch) in [("calls", 1, 1), ("never", 0, 0)] {
        let question = Control::FindSession(name.to_owned(), 5);
        let found = cluster.ask_controller(STANDBY, question);
        let Some(Control::FoundSession(FoundSession {
            number: 5,
            session: id,
            epoch: owner,
            ..
        })) = found
        else {
            panic!("{found:?}");
        };
        assert_eq!((id.0, owner.0), (session, epoch));
    }
    assert_eq!(cluster.controller.sessions(), 1);
    assert!(cluster.portal.is_open());
}

const PROCESS: u128 = 9 << 64;

/// Sends a thread a configuration in which this incarnation of its server, of two threads, is a
/// member.
fn tell_life(thread: &mut Server<KeyValue>, incarnation: Incarnation) {
    let config = Config {
        number: ConfigNumber(8),
        replicas: 1,
        shards: 2,
        lease: DurationNs::millis(1_000),
        members: vec![Member {
            server: ServerId(1),
            incarnation,
            addresses: Vec::new(),
            gone: false,
            disk: None,
        }],
        next: None,
        last_loss: ConfigNumber(0),
        last_majority_loss: ConfigNumber(0),
        last_wipe: ConfigNumber(0),
    };
    let message = Message::Control(Control::Config(Arc::new(config)));
    thread.handle_message(MonoNs(2), CONTROLLER, message);
}

#[test]
fn a_thread_that_gave_up_the_life_that_its_server_takes_part_by_says_so() {
    let mut second = thread(1, 1, Incarnation(PROCESS + 5));
    tell_life(&mut second, Incarnation(PROCESS + 4));
    let mut said = Vec::new();
    while let Some((to, message)) = second.poll_send() {
        said.push((to, message));
    }
    assert!(
        said.iter().any(|it| matches!(it,
            (Destination::Controller, Message::Control(Control::Join(member, 0)))
                if member.incarnation == Incarnation(PROCESS + 5))),
        "{said:?}"
    );
    // It is a member again once the controller has admitted the later incarnation.
    assert!(!second.is_member());
}

#[test]
fn the_first_thread_lives_the_life_that_another_thread_of_its_server_was_admitted_with() {
    let later = Incarnation(PROCESS + 5);
    let mut first = thread(1, 0, Incarnation(PROCESS + 4));
    tell_life(&mut first, later);
    assert_eq!(first.life().incarnation, later);
    assert!(first.is_member());
}

/// Lets time pass until the portal owns its session, and returns how many milliseconds that took.
fn opening_ms(cluster: &mut Cluster) -> u64 {
    (0..10_000)
        .find(|_| {
            cluster.pass(DurationNs::millis(1));
            cluster.portal.is_open()
        })
        .expect("the session opens")
}

#[test]
fn a_new_owner_waits_for_the_last_lease_of_a_lost_server_and_no_longer() {
    let mut cluster = Cluster::open();
    cluster.pass(DurationNs::millis(1_000));
    cluster.deaf = vec![2];
    cluster.portal = portal(cluster.now, 2);
    let waited_ms = opening_ms(&mut cluster);
    // Its lease of a second may have been granted just now, by a clock that is an eighth slower.
    assert!((875..1_400).contains(&waited_ms), "{waited_ms}");
}

#[test]
fn a_server_that_comes_back_does_not_make_a_new_owner_wait_longer() {
    let mut cluster = Cluster::open();
    cluster.pass(DurationNs::millis(1_000));
    cluster.deaf = vec![2];
    cluster.portal = portal(cluster.now, 2);
    cluster.pass(DurationNs::millis(1_050));
    cluster.deaf.clear();
    cluster.servers[2] = server_at(cluster.now, 2, 77);
    let waited_ms = 1_050 + opening_ms(&mut cluster);
    assert!((875..1_400).contains(&waited_ms), "{waited_ms}");
}

#[test]
fn a_new_owner_waits_for_a_lease_that_the_others_granted_a_server_without_the_controller() {
    let mut cluster = Cluster::open();
    cluster.pass(DurationNs::millis(1_000));
    cluster.portal = portal(cluster.now, 2);
    // Server 2 and the controller receive nothing from each other any more. All other messages
    // arrive.
    let cut = |(from, to, _): &crate::common::Letter| {
        (*from == 2 && *to == CONTROLLER) || (*from == CONTROLLER && *to == 2)
    };
    let waited_ms = (0..10_000)
        .find(|_| {
            cluster.tick();
            cluster.collect();
            while let Some(letter) = cluster.letters.pop_front() {
                if !cut(&letter) {
                    cluster.deliver(letter);
                }
                cluster.collect();
            }
            cluster.portal.is_open()
        })
        .expect("the session opens");
    // It was counted out after a lease, and had one of the others until then.
    assert!((1_750..2_500).contains(&waited_ms), "{waited_ms}");
}
