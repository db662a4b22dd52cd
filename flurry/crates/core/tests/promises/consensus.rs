//! A member of a group of controllers: ballots that no candidate can have had, and its resignation.

use bytes::Bytes;
use flurry_core::consensus::{
    Ballot, Consensus, ConsensusParams, MemberId, Message, Output, Record, Stamp,
};
use flurry_core::id::{DurationNs, MonoNs};

const SILENCE: DurationNs = DurationNs::millis(200);

fn ballot(round: u64, member: u64) -> Ballot {
    Ballot(round << 32 | member)
}

/// Returns member 1 of three, which has a state of its first leader.
fn member() -> Consensus {
    let params = ConsensusParams {
        me: MemberId(1),
        members: vec![MemberId(1), MemberId(2), MemberId(3)],
        silence: SILENCE,
        seed: 7,
        part_bytes_max: 1_000,
    };
    let stamp = Stamp {
        ballot: ballot(1, 3),
        version: 1,
    };
    let record = Record {
        promised: stamp.ballot,
        stamp,
        state: Bytes::from_static(b"state"),
    };
    Consensus::new(MonoNs(1), params, Some(record))
}

/// Returns the vote of a member that has a state.
fn vote(ballot: Ballot, trial: bool) -> Message {
    let empty = false;
    Message::Vote {
        ballot,
        trial,
        empty,
    }
}

/// Lets a member stand as a candidate for whom the others vote. Returns the ballots that it asks
/// for, and the stamp of the state that it writes as a leader.
fn stand(member: &mut Consensus) -> (Vec<Ballot>, Option<Stamp>) {
    let mut now = MonoNs(1);
    let (mut asked, mut written) = (Vec::new(), None);
    for _ in 0..20 {
        now = now.after(SILENCE);
        member.handle_timeout(now);
        while let Some(output) = member.poll_output() {
            match output {
                Output::Persist(_) => member.persisted(now),
                Output::Send(to, Message::Ask { ballot, trial, .. }) => {
                    asked.push(ballot);
                    member.handle_message(now, to, vote(ballot, trial));
                }
                Output::Send(_, Message::Append { stamp, .. }) => {
                    written.get_or_insert(stamp);
                }
                _ => {}
            }
        }
    }
    (asked, written)
}

#[test]
fn a_ballot_of_the_highest_round_is_refused_and_the_member_can_still_lead() {
    let forged = ballot(u64::from(u32::MAX), 2);
    let stamp = Stamp {
        ballot: forged,
        version: 2,
    };
    for message in [
        Message::Promised(forged),
        Message::Ask {
            ballot: forged,
            stamp,
            trial: false,
        },
        Message::Append {
            ballot: forged,
            sent: MonoNs(1),
            stamp,
            part: 0,
            parts: 0,
            bytes: Bytes::new(),
        },
    ] {
        let mut member = member();
        let later = MonoNs(1).after(DurationNs(2 * SILENCE.0));
        member.handle_message(later, MemberId(2), message.clone());
        let (asked, written) = stand(&mut member);
        assert_eq!(asked.first(), Some(&ballot(2, 1)), "after {message:?}");
        assert!(written.is_some_and(|it| it.ballot >= ballot(2, 1)));
    }
}

#[test]
fn a_state_of_the_highest_version_is_refused_and_the_member_can_still_write() {
    let mut member = member();
    let ballot = ballot(2, 2);
    let append = Message::Append {
        ballot,
        sent: MonoNs(1),
        stamp: Stamp {
            ballot,
            version: u64::MAX,
        },
        part: 0,
        parts: 1,
        bytes: Bytes::from_static(b"forged"),
    };
    member.handle_message(MonoNs(1), MemberId(2), append);
    let (_, written) = stand(&mut member);
    assert_eq!(written.map(|it| it.version), Some(2));
}

/// Lets a member act at this time, with votes for it and, if `heard`, answers to what it sends as a
/// leader. Returns the members that it notifies of its resignation.
fn act(member: &mut Consensus, now: MonoNs, heard: bool) -> Vec<MemberId> {
    let mut told = Vec::new();
    member.handle_timeout(now);
    while let Some(output) = member.poll_output() {
        match output {
            Output::Persist(_) => member.persisted(now),
            Output::Send(to, Message::Ask { ballot, trial, .. }) => {
                member.handle_message(now, to, vote(ballot, trial));
            }
            Output::Send(
                to,
                Message::Append {
                    ballot,
                    sent,
                    stamp,
                    ..
                },
            ) if heard => {
                let answer = Message::Appended {
                    ballot,
                    sent,
                    stamp,
                };
                member.handle_message(now, to, answer);
            }
            Output::Send(to, Message::Resign(_)) => told.push(to),
            _ => {}
        }
    }
    told
}

/// Returns a member that leads, and the time.
fn leader() -> (Consensus, MonoNs) {
    let (mut member, mut now) = (member(), MonoNs(1));
    for _ in 0..1_000 {
        now = now.after(DurationNs::millis(1));
        assert_eq!(act(&mut member, now, true), []);
    }
    assert!(member.is_leader(now));
    (member, now)
}

#[test]
fn a_leader_that_hears_nobody_tells_the_others_as_soon_as_they_could_vote_without_it() {
    let (mut member, last) = leader();
    let mut now = last;
    let told = loop {
        now = now.after(DurationNs::millis(1));
        let told = act(&mut member, now, false);
        if !told.is_empty() {
            break told;
        }
        assert!(now.since(last) < DurationNs(2 * SILENCE.0), "it leads on");
    };
    assert_eq!(told, [MemberId(2), MemberId(3)]);
    let heartbeat = SILENCE.0 / 10;
    let expected = SILENCE.0 - heartbeat..=SILENCE.0 + 2 * heartbeat;
    assert!(
        expected.contains(&now.since(last).0),
        "{:?}",
        now.since(last)
    );
}

#[test]
fn a_leader_that_stood_still_asks_the_others_before_it_resigns() {
    let (mut member, last) = leader();
    let mut now = last.after(DurationNs(3 * SILENCE.0));
    for _ in 0..100 {
        assert_eq!(act(&mut member, now, true), []);
        now = now.after(DurationNs::millis(1));
    }
    assert!(member.is_leader(now));
}
