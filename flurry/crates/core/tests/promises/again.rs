//! Operations that are tried once more: their takeover was forgotten, or their value was evicted.

#![expect(clippy::unwrap_used, reason = "a test ends where a helper fails")]

use std::sync::Arc;

use crate::common::portal;
use bytes::Bytes;
use flurry_core::config::{Config, Level};
use flurry_core::id::{
    ConfigNumber, DurationNs, Epoch, Key, MonoNs, OperationId, Sequence, SessionId, Version, WallNs,
};
use flurry_core::key_value::Operation;
use flurry_core::message::{
    Answer, Ask, Control, Copies, Copy, Message, Opened, OpenedSession, Outcome, Request,
};
use flurry_core::portal::{self, Destination, Event, Portal, PortalParams, Sessions, Submission};
use flurry_core::router::{self, Router, RouterParams};

const NOW: MonoNs = MonoNs(10);

fn version(epoch: u32, sequence: u64) -> Version {
    Version {
        epoch: Epoch(epoch),
        sequence: Sequence(sequence),
    }
}

/// Returns an owner with this epoch that has sent no request yet.
fn owner(epoch: u32) -> Portal {
    owner_after(epoch, None)
}

/// Returns such an owner whose predecessors have closed since an epoch.
fn owner_after(epoch: u32, clean_since: Option<Epoch>) -> Portal {
    opened(portal(NOW, 1), epoch, clean_since)
}

/// Returns such an owner with bounds of its own.
fn owner_with(epoch: u32, keys_max: usize, drive_again: Option<DurationNs>) -> Portal {
    let params = PortalParams {
        sessions: Sessions::one("calls"),
        nonce: 1,
        operations_max: 100,
        bytes_max: 1 << 20,
        keys_max,
        drive_again,
        heartbeat: None,
        timeout: DurationNs(0),
        tells_first: false,
        copies: Copies::Count(1),
    };
    opened(Portal::new(NOW, params), epoch, Some(Epoch(epoch)))
}

/// Opens the portal's session under this epoch.
fn opened(portal: Portal, epoch: u32, clean_since: Option<Epoch>) -> Portal {
    opened_after(portal, epoch, clean_since, Epoch(0))
}

/// Opens the portal's session under this epoch. Writes up to another epoch may be lost.
fn opened_after(
    mut portal: Portal,
    epoch: u32,
    clean_since: Option<Epoch>,
    unknown_through: Epoch,
) -> Portal {
    let config = Config {
        number: ConfigNumber(1),
        replicas: 3,
        shards: 1,
        lease: DurationNs::millis(1_000),
        members: Vec::new(),
        next: None,
        last_loss: ConfigNumber(0),
        last_majority_loss: ConfigNumber(0),
        last_wipe: ConfigNumber(0),
    };
    let opened = Opened {
        nonce: 1,
        sessions: vec![OpenedSession {
            session: SessionId(1),
            epoch: Epoch(epoch),
            clean_since,
            unknown_through,
            at: WallNs(0),
            copies_earlier: 1,
            quorum_earlier: 1,
        }],
        config: Arc::new(config),
    };
    portal.handle_message(NOW, Message::Control(Control::Opened(opened)));
    while portal.poll_event().is_some() {}
    while portal.poll_send().is_some() {}
    portal
}

fn submit(portal: &mut Portal, operation: &Operation) -> u64 {
    let submission = Submission {
        key: Bytes::from_static(b"k"),
        operation: operation.encode(),
        access: operation.access(),
        level: Level::First,
        at: WallNs(0),
        timeout: DurationNs::millis(1_000),
        sequence: None,
        refuses_doubt: false,
    };
    portal.submit(NOW, submission).unwrap()
}

/// Returns the requests that the owner sends to its router: each number, and whether it is a
/// takeover.
fn asked(portal: &mut Portal) -> Vec<(u64, bool)> {
    let mut asked = Vec::new();
    while let Some((to, message)) = portal.poll_send() {
        if let (Destination::Router, Message::Request(copy)) = (to, message) {
            let takes = copy.request.ask == Ask::Touch;
            asked.push((copy.request.id.sequence.0, takes));
        }
    }
    asked
}

fn id(epoch: u32, sequence: u64) -> OperationId {
    OperationId {
        session: SessionId(1),
        epoch: Epoch(epoch),
        sequence: Sequence(sequence),
    }
}

fn answer(portal: &mut Portal, id: OperationId, outcome: Outcome, stable: bool) {
    let answer = Answer {
        id,
        outcome,
        absent: false,
        stable,
    };
    portal.handle_message(NOW, Message::Answer(answer));
}

fn taken(version: Version, found: Version) -> Outcome {
    Outcome::Taken {
        version,
        found,
        written_in: found.epoch,
        last_loss: ConfigNumber(0),
        last_majority_loss: ConfigNumber(0),
        last_wipe: ConfigNumber(0),
    }
}

/// Returns the outcomes that the caller received, by the caller's numbers.
fn told(portal: &mut Portal) -> Vec<(u64, portal::Outcome)> {
    let events = std::iter::from_fn(|| portal.poll_event());
    events
        .filter_map(|event| match event {
            Event::Answered(number, outcome) => Some((number, outcome)),
            _ => None,
        })
        .collect()
}

#[test]
fn a_router_that_knows_nothing_of_a_takeover_does_not_begin_it_once_more() {
    let request = Request {
        id: id(2, 1),
        dep: Version::NONE,
        key: Key::new(SessionId(1), Bytes::from_static(b"k")).unwrap(),
        ask: Ask::Touch,
        level: Level::First,
        at: WallNs(0),
        stable: Sequence(0),
        clean_since: None,
        opened_in: ConfigNumber(1),
        quorum_earlier: 1,
        timeout: DurationNs::millis(1_000),
    };
    for (attempt, forgotten) in [(0, false), (1, true)] {
        let mut router = Router::new(RouterParams::default());
        let copy = Copy {
            request: Arc::new(request.clone()),
            config: ConfigNumber(0),
            attempt,
        };
        router.handle_request(NOW, 5, copy);
        let said = std::iter::from_fn(|| router.poll_send()).any(|it| {
            matches!(it, (router::Destination::Sender(5), Message::Answer(answer))
                if answer.outcome == Outcome::Forgotten)
        });
        assert_eq!(said, forgotten);
    }
}

#[test]
fn the_takeover_after_a_forgotten_one_asks_all_replicas_and_writes_back() {
    let mut portal = owner_after(3, Some(Epoch(2)));
    submit(&mut portal, &Operation::Get);
    let mut trusts = Vec::new();
    for number in [1, 3] {
        while let Some((to, message)) = portal.poll_send() {
            if let (Destination::Router, Message::Request(copy)) = (to, message) {
                trusts.push(copy.request.clean_since);
            }
        }
        answer(&mut portal, id(3, number), Outcome::Forgotten, false);
    }
    // The first may have written back to one replica only.
    assert_eq!(trusts, [Some(Epoch(2)), None]);
}

#[test]
fn a_takeover_that_was_forgotten_gets_a_new_number_with_all_that_wait_for_it() {
    let mut portal = owner(2);
    let number = submit(&mut portal, &Operation::Get);
    let next = submit(&mut portal, &Operation::Increment(1));
    assert_eq!(asked(&mut portal), [(1, true)]);
    answer(&mut portal, id(2, 1), Outcome::Forgotten, false);
    let [(takeover, true)] = asked(&mut portal)[..] else {
        panic!("the key is taken over anew");
    };
    // Its number is higher than those of all operations before, because versions grow.
    assert_eq!(takeover, 5);
    // It reads the state that the first takeover had written back.
    let found = taken(version(2, takeover), version(2, 1));
    answer(&mut portal, id(2, takeover), found, false);
    let done = || Outcome::Done(Bytes::new());
    assert_eq!(asked(&mut portal), [(takeover + 1, false)]);
    answer(&mut portal, id(2, takeover + 1), done(), false);
    assert_eq!(asked(&mut portal), [(takeover + 3, false)]);
    answer(&mut portal, id(2, takeover + 3), done(), true);
    let told: Vec<u64> = told(&mut portal).into_iter().map(|it| it.0).collect();
    assert_eq!(told, [number, next]);
    answer(
        &mut portal,
        id(2, takeover),
        taken(version(2, takeover), version(2, 1)),
        true,
    );
    assert_eq!(portal.held(), 0, "nothing stays unstable");
}

/// Returns an owner whose increment found the value evicted everywhere, the increment's number, and
/// the number of the takeover that follows.
fn evicted() -> (Portal, u64, u64) {
    let mut portal = owner(1);
    submit(&mut portal, &Operation::set(Bytes::from_static(b"4")));
    answer(&mut portal, id(1, 2), Outcome::Done(Bytes::new()), true);
    let number = submit(&mut portal, &Operation::Increment(1));
    assert_eq!(asked(&mut portal), [(2, false), (4, false)]);
    answer(&mut portal, id(1, 4), Outcome::Evicted, false);
    let [(takeover, true)] = asked(&mut portal)[..] else {
        panic!("the key is taken over");
    };
    assert!(takeover > 4, "under a number of its own");
    let _ = told(&mut portal);
    (portal, number, takeover)
}

#[test]
fn an_update_of_an_evicted_value_is_done_on_what_a_takeover_finds() {
    let (mut portal, number, takeover) = evicted();
    let found = taken(version(1, takeover), version(1, 2));
    answer(&mut portal, id(1, takeover), found, true);
    assert_eq!(asked(&mut portal), [(takeover + 1, false)]);
    let one = Bytes::from_static(b"1");
    answer(
        &mut portal,
        id(1, takeover + 1),
        Outcome::Done(one.clone()),
        true,
    );
    let done = portal::Outcome::Done {
        answer: one,
        tail_unknown: false,
    };
    assert_eq!(told(&mut portal), [(number, done)]);
    assert_eq!(portal.held(), 0, "nothing stays unstable");
}

#[test]
fn an_update_that_was_executed_before_its_value_was_evicted_is_not_done_twice() {
    let (mut portal, number, takeover) = evicted();
    // The takeover reads the result of the increment: a late copy was executed.
    let found = taken(version(1, takeover), version(1, 4));
    answer(&mut portal, id(1, takeover), found, true);
    assert!(asked(&mut portal).is_empty());
    assert_eq!(told(&mut portal), [(number, portal::Outcome::Unknown)]);
    assert_eq!(portal.held(), 0, "nothing stays unstable");
}

#[test]
fn a_takeover_after_a_refused_write_waits_for_the_reads_under_way() {
    let mut portal = owner(1);
    submit(&mut portal, &Operation::set(Bytes::from_static(b"v")));
    submit(&mut portal, &Operation::Get);
    assert_eq!(asked(&mut portal), [(2, false), (4, false)]);
    answer(&mut portal, id(1, 2), Outcome::Busy, false);
    submit(&mut portal, &Operation::Increment(1));
    // A server may execute a late copy of the refused write, and answer the read with it.
    assert_eq!(asked(&mut portal), []);
    answer(&mut portal, id(1, 4), Outcome::Unknown, false);
    assert_eq!(asked(&mut portal), [(5, true)]);
}

#[test]
fn a_takeover_that_is_sent_anew_does_not_call_its_own_number_stable() {
    let again = DurationNs::millis(100);
    let mut portal = owner_with(2, 100, Some(again));
    submit(&mut portal, &Operation::Get);
    assert_eq!(asked(&mut portal), [(1, true)]);
    // It writes back what it found, and one replica does not have that yet.
    let found = taken(version(2, 1), version(1, 2));
    answer(&mut portal, id(2, 1), found, false);
    answer(&mut portal, id(2, 2), Outcome::Done(Bytes::new()), false);
    assert_eq!(asked(&mut portal), [(2, false)]);
    portal.handle_timeout(NOW.after(again));
    assert_eq!(asked(&mut portal), [(1, true)]);
    answer(&mut portal, id(2, 1), Outcome::Forgotten, false);
    let Some((_, Message::Request(copy))) = portal.poll_send() else {
        panic!("the key is taken over anew");
    };
    let (number, stable) = (copy.request.id.sequence, copy.request.stable);
    assert_eq!((copy.request.ask.clone(), number.0), (Ask::Touch, 3));
    // A replica would bury the deletion that the takeover writes back, before the others have it.
    assert!(stable < number, "{stable:?} is stable");
    assert!(portal.stable_sequence() < number);
}

#[test]
fn an_answer_that_does_not_fit_its_operation_changes_nothing() {
    let mut portal = owner(2);
    let number = submit(&mut portal, &Operation::Increment(1));
    assert_eq!(asked(&mut portal), [(1, true)]);
    answer(&mut portal, id(2, 1), Outcome::Done(Bytes::new()), false);
    assert_eq!(asked(&mut portal), [], "a takeover is not done");
    let found = || taken(version(2, 1), version(1, 2));
    answer(&mut portal, id(2, 1), found(), true);
    assert_eq!(asked(&mut portal), [(2, false)]);
    for wrong in [found(), Outcome::Forgotten] {
        answer(&mut portal, id(2, 2), wrong, false);
        assert_eq!(asked(&mut portal), []);
        assert_eq!(told(&mut portal), [], "an update takes nothing over");
    }
    answer(&mut portal, id(2, 2), Outcome::Done(Bytes::new()), true);
    assert_eq!(
        told(&mut portal).len(),
        1,
        "operation {number} was answered"
    );
    assert_eq!(portal.held(), 0);
}

/// Reads a key whose takeover is answered like this, and returns what the takeover asked.
fn read_refused(portal: &mut Portal, key: &str, outcome: &Outcome) -> Arc<Request> {
    let submission = Submission {
        key: Bytes::copy_from_slice(key.as_bytes()),
        operation: Operation::Get.encode(),
        access: Operation::Get.access(),
        level: Level::First,
        at: WallNs(0),
        timeout: DurationNs::millis(1_000),
        sequence: None,
        refuses_doubt: false,
    };
    portal.submit(NOW, submission).unwrap();
    let Some((_, Message::Request(copy))) = portal.poll_send() else {
        panic!("{key} is taken over");
    };
    answer(portal, copy.request.id, outcome.clone(), false);
    copy.request
}

#[test]
fn keys_whose_takeover_is_refused_are_forgotten_like_others() {
    let mut portal = owner_with(2, 3, None);
    for number in 0..50 {
        read_refused(&mut portal, &format!("key {number}"), &Outcome::Busy);
    }
    assert_eq!(told(&mut portal).len(), 50);
    assert_eq!(portal.keys(), 3);
}

#[test]
fn a_forgotten_key_whose_takeover_was_cut_off_is_asked_of_all_replicas() {
    let mut portal = owner_with(2, 1, None);
    let first = read_refused(&mut portal, "a", &Outcome::Forgotten);
    assert_eq!(first.clean_since, Some(Epoch(2)), "the first reply counts");
    // The router begins a second one, and has no room for it.
    let Some((_, Message::Request(copy))) = portal.poll_send() else {
        panic!("the key is taken over again");
    };
    answer(&mut portal, copy.request.id, Outcome::Busy, false);
    read_refused(&mut portal, "b", &Outcome::Busy);
    assert_eq!(portal.keys(), 1, "the owner has forgotten the first key");
    let again = read_refused(&mut portal, "a", &Outcome::Busy);
    // The takeover that was cut off may have written back to one replica only.
    assert_eq!(again.clean_since, None);
}

#[test]
fn reads_that_are_sent_anew_keep_their_order_behind_the_takeover_that_they_need() {
    let mut portal = owner(1);
    submit(&mut portal, &Operation::Get);
    submit(&mut portal, &Operation::Get);
    assert_eq!(asked(&mut portal), [(2, false), (4, false)]);
    for number in [2, 4] {
        let nobody = Outcome::NobodyHas {
            need: Version::NONE,
            stable: Sequence(0),
            have: version(1, 8),
        };
        answer(&mut portal, id(1, number), nobody, false);
    }
    // The number of the second read's takeover would be above that of the first, which may still
    // need one of its own.
    assert_eq!(asked(&mut portal), [(1, true)]);
}

#[test]
fn an_owner_replaces_a_takeover_only_if_its_router_has_no_record_of_it() {
    let period = DurationNs::millis(40);
    let mut portal = owner_with(2, 8, Some(period));
    submit(&mut portal, &Operation::Get);
    assert_eq!(asked(&mut portal), [(1, true)]);
    let one_server_lacks_it = taken(id(2, 1).version(), id(1, 6).version());
    answer(&mut portal, id(2, 1), one_server_lacks_it, false);
    assert_eq!(asked(&mut portal), [(2, false)]);
    let value =
        Outcome::Done(flurry_core::key_value::Answer::Value(Bytes::from_static(b"v")).encode());
    answer(&mut portal, id(2, 2), value, false);
    // One server is silent, and the router keeps the write-back for it.
    for times in 1..=20 {
        portal.handle_timeout(MonoNs(NOW.0 + times * period.0));
        assert_eq!(asked(&mut portal), [(1, true)], "the same, sent again");
    }
    answer(&mut portal, id(2, 1), Outcome::Forgotten, false);
    let next = asked(&mut portal);
    assert!(
        matches!(next.as_slice(), [(number, true)] if *number > 2),
        "a router that has ended since needs another: {next:?}"
    );
}

#[test]
fn a_deletion_that_every_replica_had_leaves_no_doubt_of_earlier_owners() {
    let params = PortalParams {
        sessions: Sessions::one("calls"),
        nonce: 1,
        operations_max: 100,
        bytes_max: 1 << 20,
        keys_max: 100,
        drive_again: None,
        heartbeat: None,
        timeout: DurationNs(0),
        tells_first: true,
        copies: Copies::Count(1),
    };
    // Writes of epoch 1 may be lost. The key was deleted in epoch 2.
    let mut portal = opened_after(Portal::new(NOW, params), 3, None, Epoch(1));
    submit(&mut portal, &Operation::Get);
    assert_eq!(asked(&mut portal), [(1, true)]);
    for stable in [false, true] {
        let written_back = Answer {
            id: id(3, 1),
            outcome: taken(version(3, 1), version(2, 6)),
            absent: true,
            stable,
        };
        portal.handle_message(NOW, Message::Answer(written_back));
    }
    let nothing = || Outcome::Done(flurry_core::key_value::Answer::NotFound.encode());
    answer(&mut portal, id(3, 2), nothing(), false);
    submit(&mut portal, &Operation::Increment(1));
    answer(&mut portal, id(3, 4), Outcome::TooFewCopies, false);
    let _ = (asked(&mut portal), told(&mut portal));
    // The refused write makes the owner take the key over once more.
    submit(&mut portal, &Operation::Get);
    assert_eq!(asked(&mut portal), [(5, true)]);
    let found = taken(Version::NONE, Version::NONE);
    answer(&mut portal, id(3, 5), found, false);
    answer(&mut portal, id(3, 6), nothing(), false);
    let heard = told(&mut portal);
    assert!(
        matches!(
            heard.as_slice(),
            [(
                _,
                portal::Outcome::Done {
                    tail_unknown: false,
                    ..
                }
            )]
        ),
        "{heard:?}"
    );
}
