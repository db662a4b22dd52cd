//! The writes of a leader, and their acceptance by the other members.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};

use super::{Ballot, Consensus, HEARTBEATS, MemberId, Message, Output, SURE_FIFTHS, Stamp};
use crate::bugs::{Bug, planted};
use crate::id::{DurationNs, MonoNs};

/// The most parts of a state. A state usually has a few kilobytes.
const PARTS_MAX: u32 = 4_096;

/// Heartbeats after which the leader sends an unacknowledged state again.
const RESEND_HEARTBEATS: u64 = 3;

const _: () = assert!(
    RESEND_HEARTBEATS < HEARTBEATS,
    "a state that was lost on its way is sent again before a leader gives up"
);

/// A leader's knowledge of another member.
#[derive(Debug, Clone, Copy, Default, Hash)]
struct Follower {
    /// The time at which the leader sent the latest message that this member has answered.
    sent: MonoNs,
    /// The stamp of the state on the member's disk.
    stamp: Stamp,
    /// The time at which the leader last sent it the state that it lacks.
    state_sent: MonoNs,
}

/// The state that only a leader has.
#[derive(Debug, Clone, Hash)]
pub(super) struct Leadership {
    pub(super) ballot: Ballot,
    /// True if the state with which it was elected is stored under its ballot.
    pub(super) begun: bool,
    /// True if a write is under way.
    pending: bool,
    followers: BTreeMap<MemberId, Follower>,
    pub(super) heartbeat_at: MonoNs,
    /// The time until which it leads on even if it is not sure that it leads.
    pub(super) grace: MonoNs,
    /// The time before which its messages are too old: answers to them do not show that it still
    /// leads.
    pub(super) doubts_before: MonoNs,
}

/// A state of which some parts have arrived.
#[derive(Debug, Clone, Default, Hash)]
pub(super) struct Parts {
    stamp: Stamp,
    parts: Vec<Option<Bytes>>,
}

impl Parts {
    /// Adds a part; returns the state when it is whole.
    fn add(&mut self, stamp: Stamp, (part, parts, bytes): (u32, u32, Bytes)) -> Option<Bytes> {
        if parts > PARTS_MAX {
            return None;
        }
        let count = usize::try_from(parts).ok()?;
        if self.stamp != stamp || self.parts.len() != count {
            self.stamp = stamp;
            self.parts = vec![None; count];
        }
        assert!(
            self.parts.len() <= PARTS_MAX as usize,
            "what a leader sends takes no more memory than a state has"
        );
        *self.parts.get_mut(usize::try_from(part).ok()?)? = Some(bytes);
        if self.parts.iter().any(Option::is_none) {
            return None;
        }
        let mut whole = BytesMut::new();
        for part in std::mem::take(&mut self.parts).into_iter().flatten() {
            whole.extend_from_slice(&part);
        }
        Some(whole.freeze())
    }
}

impl Consensus {
    pub(super) fn heartbeat(&self) -> DurationNs {
        DurationNs(self.params.silence.0 / HEARTBEATS)
    }

    /// Writes the elected member's state under its own ballot, so that no earlier state can come
    /// back.
    pub(super) fn begin_to_lead(&mut self, now: MonoNs, ballot: Ballot) {
        assert!(
            ballot == self.record.promised && ballot == self.durable.promised,
            "it leads by its own promise, which is on its disk: after a crash it would lead twice"
        );
        assert!(
            self.leadership.is_none() && self.candidacy.is_none(),
            "a leader stands no more, and begins once"
        );
        let others = self.others().into_iter();
        self.leadership = Some(Leadership {
            ballot,
            begun: false,
            pending: false,
            heartbeat_at: if others.len() == 0 {
                MonoNs(u64::MAX)
            } else {
                now
            },
            followers: others.map(|it| (it, Follower::default())).collect(),
            grace: now.after(self.params.silence),
            doubts_before: MonoNs(0),
        });
        self.obeyed = None;
        self.write(now, self.record.state.clone());
    }

    pub(super) fn write(&mut self, now: MonoNs, state: Bytes) {
        let Some(leadership) = &mut self.leadership else {
            debug_assert!(false, "only a leader writes");
            return;
        };
        debug_assert!(!leadership.pending, "one write at a time");
        assert!(
            leadership.ballot == self.record.promised,
            "a leader that has promised another writes nothing"
        );
        leadership.pending = true;
        let before = self.record.stamp;
        self.record.stamp = Stamp {
            ballot: leadership.ballot,
            version: before.version + 1,
        };
        assert!(
            before < self.record.stamp,
            "the others take a later state only, and this one is"
        );
        self.record.state = state;
        for member in self.others() {
            self.send_state(now, member);
        }
        self.persist();
        self.count_copies(now);
    }

    fn send_state(&mut self, now: MonoNs, to: MemberId) {
        let Some(leadership) = &mut self.leadership else {
            return;
        };
        if let Some(follower) = leadership.followers.get_mut(&to) {
            follower.state_sent = now;
        }
        let (ballot, stamp) = (leadership.ballot, self.record.stamp);
        let state = self.record.state.clone();
        let size = self.params.part_bytes_max.max(1);
        let count = state.len().div_ceil(size).max(1);
        let parts = u32::try_from(count).unwrap_or(u32::MAX);
        for part in 0..parts {
            let begin = usize::try_from(part)
                .unwrap_or(usize::MAX)
                .saturating_mul(size);
            let end = begin.saturating_add(size).min(state.len());
            let append = Message::Append {
                ballot,
                sent: now,
                stamp,
                part,
                parts,
                bytes: state.slice(begin..end),
            };
            self.send(to, append);
        }
    }

    /// Sends heartbeats, sends the state again to members that lack it, and steps down if too few
    /// members answer.
    pub(super) fn lead_on(&mut self, now: MonoNs) {
        let heartbeat = self.heartbeat();
        let resend = DurationNs(heartbeat.0 * RESEND_HEARTBEATS);
        let stamp = self.record.stamp;
        let Some(leadership) = &mut self.leadership else {
            return;
        };
        if now < leadership.heartbeat_at {
            return;
        }
        if now.since(leadership.heartbeat_at) > heartbeat {
            // It stood still, and the answers that have come meanwhile are to old questions.
            leadership.grace = leadership.grace.max(now);
        }
        leadership.heartbeat_at = now.after(heartbeat);
        let (ballot, grace) = (leadership.ballot, leadership.grace);
        let followers = leadership.followers.clone();
        let silence = self.params.silence;
        let sure_until = self.leadership.as_ref().map(|it| self.sure_until(it));
        let rest = DurationNs(silence.0 / 5 * (5 - SURE_FIFTHS));
        if sure_until.is_some_and(|until| now > until.max(grace).after(rest)) {
            // It hears no majority. They may hear it, and would not elect another one.
            return self.resign(now);
        }
        for (member, follower) in followers {
            if follower.stamp < stamp && now.since(follower.state_sent) >= resend {
                self.send_state(now, member);
                continue;
            }
            let append = Message::Append {
                ballot,
                sent: now,
                stamp,
                part: 0,
                parts: 0,
                bytes: Bytes::new(),
            };
            self.send(member, append);
        }
    }

    /// Returns the time until which it is sure that no other member leads.
    pub(super) fn sure_until(&self, leadership: &Leadership) -> MonoNs {
        let needed = self.majority() - 1;
        let Some(last) = needed.checked_sub(1) else {
            return MonoNs(u64::MAX);
        };
        let mut answered: Vec<MonoNs> = leadership
            .followers
            .values()
            .map(|it| it.sent)
            .filter(|sent| *sent > leadership.doubts_before)
            .collect();
        answered.sort_unstable_by(|one, other| other.cmp(one));
        let sure = DurationNs(self.params.silence.0 / 5 * SURE_FIFTHS);
        let sent = answered.get(last);
        sent.map_or(MonoNs(0), |sent| sent.after(sure))
    }

    pub(super) fn append(
        &mut self,
        now: MonoNs,
        sent: MonoNs,
        stamp: Stamp,
        part: (u32, u32, Bytes),
    ) {
        let ballot = stamp.ballot;
        if ballot < self.record.promised {
            return self.send(ballot.member(), Message::Promised(self.record.promised));
        }
        // Before its disk was lost, this member may have promised a higher ballot.
        if self.inquiry.is_some() {
            return;
        }
        self.step_down(now);
        self.promise(ballot);
        self.heard = Some(now);
        self.campaigns = 0;
        self.campaign_later(now);
        if part.1 > 0
            && stamp > self.record.stamp
            && let Some(state) = self.parts.add(stamp, part)
        {
            assert!(
                stamp.ballot == self.record.promised,
                "a state is taken from the leader that it obeys"
            );
            self.record.stamp = stamp;
            self.record.state = state;
        }
        let earlier = self.obeyed.filter(|it| it.0 == ballot);
        let sent = earlier.map_or(sent, |it| it.1.max(sent));
        self.obeyed = Some((ballot, sent));
        self.answer_leader();
    }

    /// Reports the stamp of the state on disk to the leader, once the promise to obey it is on
    /// disk.
    pub(super) fn answer_leader(&mut self) {
        let Some((ballot, sent)) = self.obeyed else {
            return;
        };
        if ballot < self.record.promised {
            self.obeyed = None;
            return;
        }
        if self.durable.promised < ballot {
            return;
        }
        assert!(
            self.leadership.is_none() && self.durable.stamp.ballot <= ballot,
            "a leader obeys nobody, and no state is later than its leader"
        );
        let answer = Message::Appended {
            ballot,
            sent,
            stamp: self.durable.stamp,
        };
        self.send(ballot.member(), answer);
    }

    pub(super) fn appended(
        &mut self,
        now: MonoNs,
        from: MemberId,
        ballot: Ballot,
        sent: MonoNs,
        stamp: Stamp,
    ) {
        let Some(leadership) = &mut self.leadership else {
            return;
        };
        if leadership.ballot != ballot {
            return;
        }
        let Some(follower) = leadership.followers.get_mut(&from) else {
            return;
        };
        follower.sent = follower.sent.max(sent);
        follower.stamp = follower.stamp.max(stamp);
        self.count_copies(now);
    }

    /// Ends the write that is under way if a majority has it on disk.
    pub(super) fn count_copies(&mut self, now: MonoNs) {
        let (stamp, majority) = (self.record.stamp, self.majority());
        let Some(leadership) = &mut self.leadership else {
            return;
        };
        let own = usize::from(self.durable.stamp == stamp);
        let others = leadership.followers.values().filter(|it| it.stamp == stamp);
        let enough = own + others.count() >= majority;
        if !leadership.pending || !(enough || planted(Bug::OneCopyIsEnough) && own == 1) {
            return;
        }
        assert!(
            stamp.ballot == leadership.ballot,
            "what counts as stored is this leader's, not an earlier one's"
        );
        leadership.pending = false;
        if leadership.begun {
            self.outbox.push_back(Output::Stored);
        } else {
            leadership.begun = true;
            self.campaigns = 0;
            leadership.grace = now.after(self.params.silence);
            let state = self.record.state.clone();
            self.outbox.push_back(Output::Elected(state));
        }
    }
}
