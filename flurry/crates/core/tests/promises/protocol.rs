//! The promises of the protocol, one in each test, on the real state machines without a network.

use std::sync::Arc;

use crate::common::{CONTROLLER, Cluster, params, portal, server, thread};
use bytes::Bytes;
use flurry_core::config::{Config, Level, Member};
use flurry_core::controller::Controller;
use flurry_core::id::{ConfigNumber, DurationNs, Epoch, Incarnation, MonoNs, ServerId};
use flurry_core::key_value::{Answer, Operation};
use flurry_core::message::{Ask, Control, Message};
use flurry_core::portal::{Event, Outcome, Submission, SubmitError};
use flurry_core::router::Destination;

fn set(value: &'static str) -> Operation {
    Operation::set(Bytes::from_static(value.as_bytes()))
}

fn value(text: &'static str) -> Answer {
    Answer::Value(Bytes::from_static(text.as_bytes()))
}

#[test]
fn a_write_is_read_back_at_every_level() {
    let mut cluster = Cluster::open();
    for level in [
        Level::First,
        Level::Quorum,
        Level::All,
        Level::Hedge(DurationNs::millis(1)),
        Level::Auto,
    ] {
        assert_eq!(cluster.answer("k", &set("v"), level), Answer::Stored);
        assert_eq!(cluster.answer("k", &Operation::Get, level), value("v"));
    }
    assert_eq!(
        cluster.answer("other", &Operation::Get, Level::First),
        Answer::NotFound
    );
}

#[test]
fn first_is_answered_by_one_replica_and_all_waits_for_the_last() {
    let mut cluster = Cluster::open();
    cluster.deaf = vec![1, 2];
    assert_eq!(cluster.answer("k", &set("v"), Level::First), Answer::Stored);
    let waits = cluster.ask("k", &set("w"), Level::All);
    cluster.settle();
    assert_eq!(cluster.outcome(waits), None);
    cluster.deaf.clear();
    cluster.pass(DurationNs::millis(100));
    assert!(matches!(cluster.outcome(waits), Some(Outcome::Done { .. })));
}

#[test]
fn a_quorum_needs_two_of_three() {
    let mut cluster = Cluster::open();
    cluster.deaf = vec![1, 2];
    let number = cluster.ask("k", &set("v"), Level::Quorum);
    cluster.settle();
    assert_eq!(cluster.outcome(number), None);
    cluster.deaf = vec![2];
    cluster.pass(DurationNs::millis(60));
    assert!(matches!(
        cluster.outcome(number),
        Some(Outcome::Done { .. })
    ));
}

#[test]
fn a_write_is_stable_when_every_replica_has_it_and_not_before() {
    let mut cluster = Cluster::open();
    cluster.deaf = vec![2];
    let number = cluster.ask("k", &set("v"), Level::First);
    cluster.pass(DurationNs::millis(30));
    assert!(matches!(
        cluster.outcome(number),
        Some(Outcome::Done { .. })
    ));
    assert!(!cluster.is_stable(number));
    cluster.deaf.clear();
    cluster.pass(DurationNs::millis(100));
    assert!(cluster.is_stable(number));
}

#[test]
fn a_replica_that_missed_a_write_never_answers_the_read_after_it() {
    let mut cluster = Cluster::open();
    cluster.answer("k", &set("old"), Level::All);
    cluster.deaf = vec![0];
    cluster.answer("k", &set("new"), Level::First);
    // From now on only the replica that missed the write can answer.
    cluster.deaf = vec![1, 2];
    let read = cluster.ask("k", &Operation::Get, Level::First);
    cluster.collect();
    // Its copy of the write is lost again, so it receives the read first.
    cluster.letters.retain(|(_, to, message)| {
        *to != 0
            || matches!(message, Message::Request(copy) if copy.request.id.sequence.0 == read * 2)
    });
    while let Some(letter) = cluster.letters.pop_front() {
        cluster.deliver(letter);
    }
    assert_eq!(cluster.outcome(read), None, "behind is no answer");
    cluster.deaf.clear();
    cluster.pass(DurationNs::millis(100));
    assert_eq!(
        cluster.outcome(read),
        Some(Outcome::Done {
            answer: value("new").encode(),
            tail_unknown: false
        })
    );
}

#[test]
fn repairs_are_a_tenth_of_the_traffic_however_many_keys_a_replica_missed() {
    let mut cluster = Cluster::open();
    cluster.deaf = vec![0];
    let keys: Vec<String> = (0..30).map(|number| format!("k{number}")).collect();
    for key in &keys {
        cluster.answer(key, &set("new"), Level::First);
    }
    // Server 0 receives messages again, and the reads arrive before any repeated copy of the
    // writes.
    cluster.deaf.clear();
    for key in &keys {
        cluster.ask(key, &Operation::Get, Level::All);
    }
    cluster.settle();
    let counts = cluster.router.counts();
    assert!(counts.operations <= 70, "{counts:?}");
    assert!((1..=7).contains(&counts.repairs), "{counts:?}");
    assert!(counts.repairs_put_off > 0, "{counts:?}");
}

#[test]
fn an_increment_that_is_delivered_three_times_counts_once() {
    let mut cluster = Cluster::open();
    let number = cluster.ask("n", &Operation::Increment(5), Level::All);
    cluster.collect();
    let copies: Vec<_> = cluster.letters.iter().cloned().collect();
    for _ in 0..2 {
        for letter in &copies {
            cluster.deliver(letter.clone());
        }
    }
    cluster.settle();
    assert!(matches!(
        cluster.outcome(number),
        Some(Outcome::Done { .. })
    ));
    assert_eq!(
        cluster.answer("n", &Operation::Increment(1), Level::All),
        Answer::Number(6)
    );
}

#[test]
fn a_deleted_key_does_not_come_back_with_a_late_copy_of_an_older_write() {
    let mut cluster = Cluster::open();
    cluster.ask("k", &set("v"), Level::All);
    cluster.collect();
    let late: Vec<_> = cluster.letters.iter().cloned().collect();
    cluster.settle();
    cluster.answer("k", &Operation::Delete { counted: false }, Level::All);
    // The deletion is stable, so the next operation makes the servers forget its tombstones.
    assert_eq!(
        cluster.answer("k", &Operation::Get, Level::All),
        Answer::NotFound
    );
    for letter in late {
        cluster.deliver(letter);
    }
    cluster.settle();
    assert_eq!(
        cluster.answer("k", &Operation::Get, Level::All),
        Answer::NotFound
    );
    assert!(
        cluster
            .servers
            .iter()
            .all(|server| { server.states().all(|(_, state)| state.snapshot.is_none()) })
    );
}

#[test]
fn a_second_owner_takes_over_every_value_and_the_first_is_refused() {
    let mut cluster = Cluster::open();
    cluster.answer("k", &set("v"), Level::First);
    let mut second = portal(cluster.now, 2);
    std::mem::swap(&mut second, &mut cluster.portal);
    let mut first = second;
    cluster.pass(DurationNs::millis(100));
    assert_eq!(cluster.portal.epoch(), Epoch(2));
    assert_eq!(
        cluster.answer("k", &Operation::Get, Level::First),
        value("v")
    );
    // The first owner does not know yet.
    std::mem::swap(&mut first, &mut cluster.portal);
    let number = cluster.ask("k", &set("w"), Level::First);
    cluster.settle();
    assert_eq!(cluster.outcome(number), Some(Outcome::Fenced(Epoch(2))));
    let again = cluster.portal.submit(cluster.now, submission(b"k", None));
    assert_eq!(again, Err(SubmitError::Fenced(Epoch(2))));
}

#[test]
fn an_owner_that_closes_after_another_has_opened_hears_that_it_is_fenced() {
    let mut cluster = Cluster::open();
    let number = cluster.ask("k", &set("v"), Level::First);
    cluster.pass(DurationNs::millis(50));
    assert!(
        cluster.is_stable(number),
        "no server has anything to report to it"
    );
    let mut other = portal(cluster.now, 2);
    std::mem::swap(&mut other, &mut cluster.portal);
    cluster.pass(DurationNs::millis(100));
    assert!(cluster.portal.is_open());
    std::mem::swap(&mut other, &mut cluster.portal);
    cluster.events.clear();
    cluster.portal.close(cluster.now);
    cluster.settle();
    assert_eq!(cluster.events, [Event::Fenced(Epoch(2))]);
    let again = cluster.portal.submit(cluster.now, submission(b"k", None));
    assert_eq!(again, Err(SubmitError::Fenced(Epoch(2))));
    // The other owner keeps the session.
    std::mem::swap(&mut other, &mut cluster.portal);
    assert_eq!(cluster.answer("k", &set("w"), Level::All), Answer::Stored);
    cluster.portal.close(cluster.now);
    cluster.pass(DurationNs::millis(50));
    assert!(cluster.events.contains(&Event::Closed));
}

#[test]
fn a_router_whose_server_has_moved_learns_it_without_anybody_telling_it() {
    let mut cluster = Cluster::open();
    cluster.deaf = vec![2];
    let number = cluster.ask("k", &set("v"), Level::First);
    cluster.settle();
    assert!(matches!(
        cluster.outcome(number),
        Some(Outcome::Done { .. })
    ));
    // Its next incarnation has another address. The two others have the write, so the router sends
    // them nothing that they could refuse.
    cluster.servers[2] = server(2, 77);
    cluster.deaf.clear();
    cluster.moved = vec![2];
    cluster.pass(DurationNs::millis(4_000));
    assert!(cluster.is_stable(number));
    let known = cluster.router.config().unwrap();
    assert_eq!(known, cluster.controller.config().unwrap());
}

#[test]
fn while_a_server_is_silent_the_configuration_is_asked_for_four_times_a_second() {
    let mut cluster = Cluster::open();
    cluster.deaf = vec![2];
    for key in ["a", "b", "c"] {
        cluster.ask(key, &set("v"), Level::First);
    }
    cluster.settle();
    let mut router = cluster.router.clone();
    let (mut now, mut asked) = (cluster.now, 0);
    for _ in 0..10_000 {
        now = now.after(DurationNs::millis(1));
        router.handle_timeout(now);
        while let Some((to, message)) = router.poll_send() {
            let query = message == Message::Control(Control::ConfigQuery);
            asked += u32::from(query && to == Destination::Controller);
        }
    }
    assert!((30..=40).contains(&asked), "asked {asked} times in 10 s");
}

fn submission(key: &'static [u8], sequence: Option<u64>) -> Submission {
    let operation = Operation::Get;
    Submission {
        key: Bytes::from_static(key),
        operation: operation.encode(),
        access: operation.access(),
        level: Level::First,
        at: flurry_core::id::WallNs(0),
        timeout: DurationNs::millis(10),
        sequence,
        refuses_doubt: false,
    }
}

#[test]
fn a_number_of_the_caller_that_goes_back_is_refused() {
    let mut cluster = Cluster::open();
    assert_eq!(
        cluster
            .portal
            .submit(cluster.now, submission(b"k", Some(7))),
        Ok(7)
    );
    assert_eq!(
        cluster
            .portal
            .submit(cluster.now, submission(b"k", Some(7))),
        Err(SubmitError::SequenceGoesBack { given: 7, last: 7 })
    );
}

#[test]
fn keys_of_no_byte_and_of_more_than_512_are_refused() {
    let mut cluster = Cluster::open();
    static LONG: [u8; 513] = [b'k'; 513];
    for key in [&b""[..], &LONG] {
        let refused = cluster.portal.submit(cluster.now, submission(key, None));
        assert!(matches!(refused, Err(SubmitError::Key(length)) if length.0 == key.len()));
    }
}

#[test]
fn a_write_that_nobody_answers_is_called_unknown_and_done_later_all_the_same() {
    let mut cluster = Cluster::open();
    cluster.deaf = vec![0, 1, 2];
    let number = cluster.ask("k", &set("v"), Level::First);
    cluster.pass(DurationNs::millis(600));
    assert_eq!(cluster.outcome(number), Some(Outcome::Unknown));
    cluster.deaf.clear();
    cluster.pass(DurationNs::millis(100));
    assert!(cluster.is_stable(number));
    assert_eq!(
        cluster.answer("k", &Operation::Get, Level::First),
        value("v")
    );
}

#[test]
fn a_server_that_was_silent_for_longer_than_a_lease_is_counted_out_and_copies_what_it_missed() {
    let mut cluster = Cluster::open();
    cluster.answer("k", &set("v"), Level::All);
    cluster.deaf = vec![2];
    cluster.pass(DurationNs::millis(4_000));
    let config = cluster.controller.config().unwrap();
    assert_eq!(config.members.len(), 2, "{config:?}");
    assert_eq!(
        cluster.answer("k", &set("w"), Level::All),
        Answer::Stored,
        "all is all that take part"
    );
    cluster.deaf.clear();
    cluster.pass(DurationNs::millis(4_000));
    let back = cluster.servers[2].states().next().unwrap().1;
    assert!(
        back.snapshot
            .is_some_and(|snapshot| { snapshot.windows(1).any(|window| window == b"w") })
    );
}

#[test]
fn a_level_that_promises_copies_is_refused_where_fewer_servers_are_left() {
    let mut cluster = Cluster::open();
    cluster.answer("k", &set("v"), Level::All);
    for gone in [vec![2], vec![1, 2]] {
        cluster.deaf = gone;
        cluster.pass(DurationNs::millis(4_000));
    }
    let config = cluster.controller.config().unwrap();
    assert_eq!(config.members.len(), 1, "{config:?}");
    // A server's refusal reports this to the router.
    cluster.answer("k", &Operation::Get, Level::First);
    for level in [Level::Quorum, Level::All, Level::Disk] {
        let refused = cluster.ask("k", &set("w"), level);
        cluster.settle();
        assert_eq!(cluster.outcome(refused), Some(Outcome::TooFewCopies));
    }
    let read = cluster.answer("k", &Operation::Get, Level::Quorum);
    assert_eq!(read, value("v"), "a read promises nothing");
    assert_eq!(cluster.answer("k", &set("x"), Level::First), Answer::Stored);
    cluster.deaf.clear();
    cluster.pass(DurationNs::millis(8_000));
    assert_eq!(
        cluster.answer("k", &set("y"), Level::Quorum),
        Answer::Stored
    );
}

#[test]
fn a_silent_server_that_alone_has_everything_is_waited_for() {
    let mut cluster = Cluster::open();
    cluster.answer("k", &set("v"), Level::All);
    // Two servers begin anew, and the third is silent while they should copy from it.
    for (index, life) in [(0, 77), (1, 78)] {
        cluster.servers[index] = server(u16::try_from(index).unwrap(), life);
    }
    cluster.deaf = vec![2];
    cluster.pass(DurationNs::millis(6_000));
    let config = cluster.controller.config().unwrap();
    let third = config.members.iter().find(|it| it.server.0 == 2).unwrap();
    assert!(!third.gone, "{config:?}");
    cluster.deaf.clear();
    cluster.pass(DurationNs::millis(4_000));
    assert_eq!(
        cluster.answer("k", &Operation::Get, Level::First),
        value("v")
    );
    assert!(cluster.servers.iter().all(|it| it.records() == 1));
}

#[test]
fn a_controller_that_stood_still_counts_nobody_out_before_it_has_listened() {
    let mut cluster = Cluster::open();
    let before = cluster.controller.config().unwrap().number;
    // No server runs meanwhile, so that the controller has received nothing when it goes on.
    cluster.now = cluster.now.after(DurationNs::millis(3_000));
    let now = cluster.now;
    cluster.controller.handle_timeout(now);
    assert_eq!(cluster.controller.config().unwrap().number, before);
    cluster.deaf = vec![1];
    cluster.pass(DurationNs::millis(4_000));
    let config = cluster.controller.config().unwrap();
    assert_eq!(
        config.members.len(),
        2,
        "a server that stays silent is counted out"
    );
}

#[test]
fn deletions_that_all_have_are_forgotten_though_nobody_asks_for_their_keys_again() {
    let mut cluster = Cluster::open();
    for number in 0..500 {
        let key = format!("cart-{number}");
        cluster.answer(&key, &set("v"), Level::All);
        cluster.answer(&key, &Operation::Delete { counted: true }, Level::All);
    }
    cluster.answer("last", &set("v"), Level::All);
    for server in &cluster.servers {
        assert!(server.records() <= 3, "{}", server.records());
        assert!(server.tombstones() <= 2, "{}", server.tombstones());
    }
}

#[test]
fn a_server_that_restarts_empty_gives_no_answer_before_it_has_copied() {
    let mut cluster = Cluster::open();
    cluster.answer("k", &set("v"), Level::All);
    cluster.servers[0] = server(0, 77);
    assert!(!cluster.servers[0].is_member());
    assert_eq!(
        cluster.answer("k", &Operation::Get, Level::First),
        value("v")
    );
    cluster.pass(DurationNs::millis(4_000));
    assert!(cluster.servers[0].is_member());
    assert_eq!(cluster.servers[0].records(), 1);
}

#[test]
fn a_late_word_of_a_life_that_has_ended_counts_nobody_out() {
    let mut cluster = Cluster::open();
    let ended = Member {
        server: ServerId(0),
        incarnation: Incarnation(99),
        addresses: Vec::new(),
        gone: false,
        disk: None,
    };
    let number = cluster.controller.config().unwrap().number;
    // These are numbers that the controller may have asked for once, and numbers that it never
    // asked for.
    for proof in [0, 1, cluster.now.0, u64::MAX] {
        let join = Message::Control(Control::Join(ended.clone(), proof));
        cluster.letters.push_back((0, CONTROLLER, join));
        cluster.pass(DurationNs::millis(100));
        let config = cluster.controller.config().unwrap();
        assert_eq!(config.number, number, "proof {proof}");
        assert!(cluster.servers[0].is_member());
    }
}

#[test]
fn a_controller_that_restarts_never_gives_an_epoch_out_twice() {
    let mut cluster = Cluster::open();
    let now = cluster.now;
    cluster.controller = Controller::restore(now, params(), &cluster.disk).unwrap();
    cluster.portal = portal(now, 9);
    cluster.pass(DurationNs::millis(3_000));
    assert_eq!(cluster.portal.epoch(), Epoch(2));
    let mut damaged = cluster.disk.clone();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    let refused = Controller::restore(MonoNs(1), params(), &damaged);
    assert!(refused.unwrap_err().to_string().contains("checksum"));
}

#[test]
fn a_controller_that_restarts_knows_of_a_life_that_has_ended_and_can_count_another_out() {
    let mut cluster = Cluster::open();
    cluster.servers[1] = server(1, 77);
    let takes_part = |cluster: &Cluster| {
        let config = cluster.controller.config().unwrap();
        config.has(ServerId(1), Incarnation(77))
    };
    while !takes_part(&cluster) {
        cluster.pass(DurationNs::millis(1));
    }
    // The controller still waits for the leases of the earlier incarnation.
    cluster.controller = Controller::restore(cluster.now, params(), &cluster.disk).unwrap();
    cluster.deaf = vec![2];
    cluster.pass(DurationNs::millis(4_000));
    let config = cluster.controller.config().unwrap();
    assert_eq!(config.incarnation_of(ServerId(2)), None);
}

#[test]
fn an_owner_that_closed_leaves_everything_on_every_replica() {
    let mut cluster = Cluster::open();
    cluster.answer("k", &set("v"), Level::First);
    cluster.portal.close(cluster.now);
    cluster.pass(DurationNs::millis(200));
    assert!(cluster.events.contains(&Event::Closed));
    // The next owner needs the reply of one replica only.
    cluster.portal = portal(cluster.now, 3);
    cluster.pass(DurationNs::millis(200));
    cluster.deaf = vec![0, 1];
    assert_eq!(
        cluster.answer("k", &Operation::Get, Level::First),
        value("v")
    );
}

#[test]
fn a_deletion_that_one_replica_has_buried_is_taken_over_for_all() {
    let mut cluster = Cluster::open();
    cluster.answer("k", &set("v"), Level::All);
    cluster.answer("k", &Operation::Delete { counted: false }, Level::All);
    // Every replica has the deletion, so a server forgets it at the next request.
    cluster.deaf = vec![0, 2];
    cluster.answer("k", &Operation::Get, Level::First);
    let records = |cluster: &Cluster| [0, 1].map(|index: usize| cluster.servers[index].records());
    assert_eq!(records(&cluster), [1, 0]);
    cluster.deaf.clear();
    cluster.portal.close(cluster.now);
    cluster.pass(DurationNs::millis(200));
    cluster.portal = portal(cluster.now, 2);
    cluster.pass(DurationNs::millis(200));
    cluster.events.clear();
    // The next owner learns of the deletion from the server that remembers it. Then only the other
    // is left.
    cluster.deaf = vec![1, 2];
    cluster.answer("k", &Operation::Get, Level::First);
    cluster.deaf.clear();
    cluster.pass(DurationNs::millis(100));
    cluster.deaf = vec![0, 2];
    assert_eq!(
        cluster.answer("k", &Operation::Get, Level::First),
        Answer::NotFound
    );
}

#[test]
fn after_all_replicas_forgot_one_of_them_speaks_for_no_other() {
    let mut cluster = Cluster::open();
    cluster.answer("k", &set("v"), Level::All);
    cluster.portal.close(cluster.now);
    cluster.pass(DurationNs::millis(200));
    // The controller reported to this owner that one replica is enough. The owner does not know
    // that this is no longer true.
    cluster.portal = portal(cluster.now, 2);
    cluster.pass(DurationNs::millis(200));
    for id in 0..3 {
        cluster.servers[usize::from(id)] = server(id, 100 + u128::from(id));
    }
    cluster.pass(DurationNs::millis(6_000));
    cluster.events.clear();
    cluster.deaf = vec![0, 1];
    let read = cluster.ask("k", &Operation::Get, Level::First);
    cluster.pass(DurationNs::millis(20));
    assert_eq!(cluster.outcome(read), None);
    cluster.deaf.clear();
    cluster.pass(DurationNs::millis(100));
    assert_eq!(
        cluster.outcome(read),
        Some(Outcome::Done {
            answer: Answer::NotFound.encode(),
            tail_unknown: true
        })
    );
}

#[test]
fn when_every_replica_forgot_the_loss_is_reported_and_a_new_write_heals_it() {
    let mut cluster = Cluster::open();
    cluster.answer("k", &set("v"), Level::All);
    cluster.pass(DurationNs::millis(50));
    for id in 0..3 {
        cluster.servers[usize::from(id)] = server(id, 100 + u128::from(id));
    }
    cluster.pass(DurationNs::millis(6_000));
    let read = cluster.ask("k", &Operation::Get, Level::First);
    cluster.pass(DurationNs::millis(400));
    assert!(
        matches!(cluster.outcome(read), Some(Outcome::DataLoss { .. })),
        "{:?}",
        cluster.outcome(read)
    );
    assert_eq!(cluster.answer("k", &set("w"), Level::All), Answer::Stored);
    assert_eq!(
        cluster.answer("k", &Operation::Get, Level::First),
        value("w")
    );
}

#[test]
fn a_key_whose_taken_over_value_was_lost_before_its_first_update_can_be_written_again() {
    let mut cluster = Cluster::open();
    cluster.answer("n", &Operation::Increment(1), Level::All);
    cluster.portal = portal(cluster.now, 2);
    cluster.pass(DurationNs::millis(100));
    cluster.events.clear();
    let lost = cluster.ask("n", &Operation::Increment(1), Level::First);
    // The takeover completes, but the update reaches no server.
    for _ in 0..50 {
        cluster.tick();
        cluster.collect();
        while let Some(letter) = cluster.letters.pop_front() {
            let update = matches!(&letter.2, Message::Request(copy) if matches!(copy.request.ask, Ask::Apply { .. }));
            if !update {
                cluster.deliver(letter);
            }
            cluster.collect();
        }
    }
    for id in 0..3 {
        cluster.servers[usize::from(id)] = server(id, 100 + u128::from(id));
    }
    cluster.pass(DurationNs::millis(6_000));
    assert_eq!(cluster.outcome(lost), Some(Outcome::Unknown));
    assert_eq!(cluster.portal.held(), 0, "it is given up");
    // The key is taken over anew, and the owner learns that its last writes may be lost.
    let read = cluster.ask("n", &Operation::Get, Level::First);
    cluster.pass(DurationNs::millis(50));
    assert_eq!(
        cluster.outcome(read),
        Some(Outcome::Done {
            answer: Answer::NotFound.encode(),
            tail_unknown: true
        })
    );
    assert_eq!(cluster.answer("n", &set("7"), Level::All), Answer::Stored);
    assert_eq!(
        cluster.answer("n", &Operation::Increment(1), Level::All),
        Answer::Number(8)
    );
}

#[test]
fn a_second_thread_of_a_server_takes_up_no_life_of_an_earlier_process() {
    let process = |number: u128, life: u128| Incarnation(number << 64 | life);
    let config = |number: u32, incarnation: Incarnation| {
        let member = Member {
            server: ServerId(0),
            incarnation,
            addresses: Vec::new(),
            gone: false,
            disk: None,
        };
        Message::Control(Control::Config(Arc::new(Config {
            number: ConfigNumber(number),
            replicas: 1,
            shards: 2,
            lease: DurationNs::millis(1_000),
            members: vec![member],
            next: None,
            last_loss: ConfigNumber(0),
            last_majority_loss: ConfigNumber(0),
            last_wipe: ConfigNumber(0),
        })))
    };
    let mut second = thread(0, 1, process(8, 1));
    // Its memory is empty, so it has no record of an earlier process or of an earlier incarnation.
    for (number, earlier) in [(1, process(7, 1)), (2, process(7, 9)), (3, process(8, 0))] {
        second.handle_message(MonoNs(1), 0, config(number, earlier));
        assert!(!second.is_member(), "{earlier:?}");
    }
    second.handle_message(MonoNs(1), 0, config(4, process(8, 2)));
    assert!(second.is_member());
}

#[test]
fn auto_sends_one_copy_first_when_the_servers_are_busy_and_all_when_they_are_not() {
    let mut cluster = Cluster::open();
    let copies = |cluster: &mut Cluster| {
        cluster.ask("k", &Operation::Get, Level::Auto);
        cluster.collect();
        let requests = cluster
            .letters
            .iter()
            .filter(|(_, _, message)| matches!(message, Message::Request(_)))
            .count();
        cluster.settle();
        requests
    };
    assert_eq!(copies(&mut cluster), 3);
    for (busy, expected) in [(250, 1), (100, 1), (10, 3), (100, 3)] {
        for server in &mut cluster.servers {
            server.set_busy(busy);
        }
        // The earlier reports of the load expire. Then a reply reports the new load to the router.
        cluster.pass(DurationNs::millis(600));
        copies(&mut cluster);
        assert_eq!(
            copies(&mut cluster),
            expected,
            "servers busy for {busy}/255"
        );
    }
}
