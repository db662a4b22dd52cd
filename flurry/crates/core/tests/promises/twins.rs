//! Two servers of one number on two machines: the second waits as long as the first is up. On one
//! machine the second proves that the first has ended.

#![expect(clippy::unwrap_used, reason = "a test ends where a helper fails")]

use crate::common::params;
use flurry_core::config::Member;
use flurry_core::controller::Controller;
use flurry_core::id::{ConfigNumber, DurationNs, Endpoint, Incarnation, MonoNs, ServerId, ShardId};
use flurry_core::message::{Control, Departure, Life, Message, Ping};

const STRANGER: u64 = 3000;

fn member(server: u16, life: u128, address: &str) -> Member {
    Member {
        server: ServerId(server),
        incarnation: Incarnation(life),
        addresses: vec![address.to_owned()],
        gone: false,
        disk: None,
    }
}

/// Asks to join with this number. Returns the answers, and the number that is asked for.
fn ask(
    controller: &mut Controller,
    now: MonoNs,
    member: &Member,
    mut proof: u64,
) -> (Vec<Control>, u64) {
    let control = Control::Join(member.clone(), proof);
    controller.handle_message(now, STRANGER, Message::Control(control));
    let outputs: Vec<_> = std::iter::from_fn(|| controller.poll_output()).collect();
    let mut answers = Vec::new();
    for output in outputs {
        if let flurry_core::controller::Output::Send(_, Message::Control(control)) = output {
            if let Control::Prove(_, number) = control {
                proof = number;
            }
            answers.push(control);
        }
    }
    (answers, proof)
}

/// Asks to join as a server does, with the number that the controller asks for.
fn join(controller: &mut Controller, now: MonoNs, member: &Member) -> Vec<Control> {
    let mut proof = 0;
    for _ in 0..2 {
        let (answers, number) = ask(controller, now, member, proof);
        proof = number;
        if proof == 0 {
            return answers;
        }
    }
    Vec::new()
}

/// Returns a cluster of three servers on three machines, all of them up.
fn three() -> (Controller, MonoNs) {
    let mut now = MonoNs(1_000_000_000);
    let mut controller = Controller::new(now, params()).unwrap();
    for server in 0..3_u16 {
        let address = format!("10.0.0.{server}:7701");
        join(
            &mut controller,
            now,
            &member(server, u128::from(server) + 1, &address),
        );
    }
    now = now.after(DurationNs::millis(10));
    for server in 0..3 {
        ping(&mut controller, now, server);
    }
    (controller, now)
}

/// Asks for a lease for a server, and reports that it has copied its records.
fn ping(controller: &mut Controller, now: MonoNs, server: u16) {
    let ping = Ping {
        life: Life {
            endpoint: Endpoint {
                server: ServerId(server),
                shard: ShardId(0),
            },
            incarnation: Incarnation(u128::from(server) + 1),
        },
        number: controller.config().map_or(ConfigNumber(0), |it| it.number),
        sent: now,
        quiet: DurationNs(0),
        unheard: DurationNs(0),
    };
    let synced = Control::Synced(ping.life, ping.number);
    for control in [Control::Ping(ping), synced] {
        controller.handle_message(now, u64::from(server), Message::Control(control));
    }
    while controller.poll_output().is_some() {}
}

fn has(controller: &Controller, server: u16, life: u128) -> bool {
    let config = controller.config().unwrap();
    config.has(ServerId(server), Incarnation(life))
}

#[test]
fn a_second_server_of_a_number_is_told_where_the_first_is() {
    let (mut controller, now) = three();
    let answers = join(&mut controller, now, &member(2, 77, "10.0.0.9:7701"));
    let [Control::JoinRefused(ServerId(2), reason)] = answers.as_slice() else {
        panic!("it is refused: {answers:?}");
    };
    assert!(
        reason.starts_with("another server has this number, at 10.0.0.2:7701,"),
        "{reason}"
    );
    assert!(has(&controller, 2, 3) && !has(&controller, 2, 77));
}

/// Returns why the controller refuses a server that asks to join.
fn refused(controller: &mut Controller, now: MonoNs, member: &Member) -> String {
    match join(controller, now, member).as_slice() {
        [Control::JoinRefused(server, reason)] if *server == member.server => reason.clone(),
        answers => panic!("it is not refused: {answers:?}"),
    }
}

#[test]
fn a_server_with_another_number_of_shards_is_told_how_many_there_are() {
    let (mut controller, now) = three();
    let mut wide = member(7, 77, "10.0.0.7:7701");
    wide.addresses.push("10.0.0.7:7702".to_owned());
    assert_eq!(
        refused(&mut controller, now, &wide),
        "it has 2 shards, and each server of this cluster has 1; hint: --shards 1"
    );
}

#[test]
fn a_server_that_was_drained_is_told_so_until_it_is_taken_back() {
    let (mut controller, now) = three();
    for departure in [Departure::Drained, Departure::TakenBack] {
        let control = Control::Depart(ServerId(2), departure);
        controller.handle_message(now, STRANGER, Message::Control(control));
        while controller.poll_output().is_some() {}
        let later = member(2, 77, "10.0.0.2:7701");
        if departure == Departure::Drained {
            let reason = refused(&mut controller, now, &later);
            assert_eq!(
                reason,
                "an operator drained it; hint: flurry drain 2 --cancel lets it in again"
            );
        } else {
            let (answers, proof) = ask(&mut controller, now, &later, 0);
            assert!(proof > 0, "it is asked whether it is alive: {answers:?}");
        }
    }
}

#[test]
fn a_server_that_is_started_again_on_its_machine_is_let_in_at_once() {
    let (mut controller, now) = three();
    join(&mut controller, now, &member(2, 77, "10.0.0.2:40000"));
    assert!(!has(&controller, 2, 3) && has(&controller, 2, 77));
}

#[test]
fn a_server_that_moved_is_let_in_once_its_old_place_is_silent() {
    let (mut controller, mut now) = three();
    for _ in 0..4 {
        now = now.after(DurationNs::millis(400));
        ping(&mut controller, now, 0);
        ping(&mut controller, now, 1);
    }
    join(&mut controller, now, &member(2, 77, "10.0.0.9:7701"));
    for _ in 0..10 {
        now = now.after(DurationNs::millis(400));
        ping(&mut controller, now, 0);
        ping(&mut controller, now, 1);
        join(&mut controller, now, &member(2, 77, "10.0.0.9:7701"));
    }
    assert!(!has(&controller, 2, 3) && has(&controller, 2, 77));
}

#[test]
fn a_silent_server_is_waited_for_when_the_others_turn_out_to_have_ended() {
    let (mut controller, mut now) = three();
    join(&mut controller, now, &member(1, 77, "10.0.0.1:40000"));
    let again = member(2, 88, "10.0.0.2:40000");
    let mut proof = 0;
    // Server 0 is silent. Server 2 has ended too, and its next incarnation asks to join.
    for step in 0..4 {
        now = now.after(DurationNs::millis(240));
        if step < 3 {
            ping(&mut controller, now, 2);
        } else {
            proof = ask(&mut controller, now, &again, 0).1;
        }
    }
    assert!(has(&controller, 0, 1) && has(&controller, 2, 3));
    // Server 0 has just been silent for a lease when the next incarnation of server 2 proves that
    // it lives.
    now = now.after(DurationNs::millis(100));
    ask(&mut controller, now, &again, proof);
    assert!(!has(&controller, 2, 3), "its successor is there");
    assert!(has(&controller, 0, 1), "it alone has everything");
}

#[test]
fn a_server_that_calls_itself_lost_or_has_the_controllers_number_is_not_let_in() {
    let (mut controller, now) = three();
    let address = "10.0.0.9:7701";
    let mut lost = member(9, 5, address);
    lost.gone = true;
    // A grant of this number would count as the controller's.
    let highest = member(u16::MAX, 5, address);
    for bad in [lost, highest] {
        join(&mut controller, now, &bad);
        let config = controller.config().unwrap();
        assert!(config.everybody().all(|it| it.server != bad.server));
    }
    join(&mut controller, now, &member(9, 5, address));
    assert!(has(&controller, 9, 5));
}
