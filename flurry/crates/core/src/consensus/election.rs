//! The election of a leader: trials, votes, and the end of a leadership.

use std::collections::BTreeMap;

use super::{Ballot, Consensus, MemberId, Message, Output, Stamp};
use crate::bugs::{Bug, planted};
use crate::id::{DurationNs, MonoNs};

/// Candidacies after which the time until the next one does not grow any more.
const CAMPAIGNS_LONGER: u32 = 3;

/// A member that wants to lead.
#[derive(Debug, Clone, Hash)]
pub(super) struct Candidacy {
    ballot: Ballot,
    trial: bool,
    /// The members that vote for it, and whether each of them has no state.
    votes: BTreeMap<MemberId, bool>,
}

impl Candidacy {
    /// Checks what holds between two inputs; for the simulation.
    ///
    /// # Panics
    ///
    /// When it is not that of this member, or has a vote of a stranger.
    pub(super) fn verify(&self, me: MemberId, promised: Ballot, members: &[MemberId]) {
        assert_eq!(self.ballot.member(), me, "it stands for itself");
        assert!(
            self.trial || self.ballot <= promised,
            "it has promised itself what it asks others to promise"
        );
        assert!(
            self.votes.keys().all(|it| members.contains(it)),
            "only members vote"
        );
    }
}

impl Consensus {
    /// Waits a random time beyond the silence before it stands as a candidate.
    pub(super) fn campaign_later(&mut self, now: MonoNs) {
        let silence = self.params.silence.0;
        let longer = self.random(silence << self.campaigns.min(CAMPAIGNS_LONGER));
        self.campaign_at = now.after(DurationNs(silence + longer));
    }

    /// Asks the others whether they would vote for it.
    pub(super) fn campaign(&mut self, now: MonoNs) {
        self.campaigns = self.campaigns.saturating_add(1);
        self.campaign_later(now);
        let durable = self.durable.promised;
        let waits_for_disk =
            |it: &Candidacy| !it.trial && it.ballot > durable && it.votes.is_empty();
        if self.candidacy.as_ref().is_some_and(waits_for_disk) {
            // A new ballot would have to be written to disk first as well.
            return;
        }
        if self.round >= Ballot::ROUND_MAX {
            // There is no higher ballot.
            return;
        }
        assert!(self.leadership.is_none(), "a leader stands against nobody");
        self.candidacy = Some(Candidacy {
            ballot: Ballot::new(self.round + 1, self.params.me),
            trial: true,
            votes: BTreeMap::from([(self.params.me, self.is_empty())]),
        });
        self.ask();
        self.count_votes(now);
    }

    /// Asks for the votes, or the promises, that have not come.
    pub(super) fn ask_again(&mut self, now: MonoNs) {
        if now < self.ask_again_at {
            return;
        }
        self.ask_again_at = now.after(self.heartbeat());
        if self
            .candidacy
            .as_ref()
            .is_some_and(|it| !it.votes.is_empty())
        {
            self.ask();
        }
        if let Some(told) = &self.inquiry {
            let mut silent = self.others();
            silent.retain(|it| !told.contains(it));
            for member in silent {
                self.send(member, Message::Inquire);
            }
        }
    }

    /// Handles the reply of a member that was asked for the highest ballot that it has promised.
    pub(super) fn inquired(&mut self, from: MemberId, ballot: Ballot) {
        if let Some(told) = &mut self.inquiry {
            told.insert(from);
            let all = told.len() + 1 >= self.params.members.len();
            if ballot > self.record.promised {
                self.promise(ballot);
            }
            if all {
                self.inquiry = None;
            }
        }
    }

    fn ask(&mut self) {
        if let Some(candidacy) = &self.candidacy {
            let ask = Message::Ask {
                ballot: candidacy.ballot,
                stamp: self.record.stamp,
                trial: candidacy.trial,
            };
            self.broadcast(&ask);
        }
    }

    /// Returns whether a leader may still be sure that this member obeys it.
    fn obeys_somebody(&self, now: MonoNs) -> bool {
        let heard = self.heard;
        heard.is_some_and(|heard| now.since(heard) < self.params.silence) || self.is_leader(now)
    }

    pub(super) fn asked(
        &mut self,
        now: MonoNs,
        from: MemberId,
        ballot: Ballot,
        stamp: Stamp,
        trial: bool,
    ) {
        if ballot.member() != from {
            return;
        }
        if ballot < self.record.promised {
            return self.send(from, Message::Promised(self.record.promised));
        }
        let older = stamp < self.record.stamp && !planted(Bug::OlderStateElected);
        if older || self.obeys_somebody(now) {
            return;
        }
        let empty = self.is_empty();
        if trial {
            let vote = Message::Vote {
                ballot,
                trial,
                empty,
            };
            return self.send(from, vote);
        }
        self.step_down(now);
        self.promise(ballot);
        // Gives the candidate time to win before this member stands itself.
        self.campaign_later(now);
        self.owed_vote = Some(ballot);
        self.pay_vote();
    }

    /// Sends the vote that it owes, if the promise is on disk.
    fn pay_vote(&mut self) {
        let is_durable =
            |ballot: &Ballot| self.durable.promised == *ballot || planted(Bug::VoteNotStored);
        if let Some(ballot) = self.owed_vote.take_if(|it| is_durable(it)) {
            assert!(
                self.leadership.is_none() && ballot <= self.record.promised,
                "a leader votes for nobody, and a vote was promised before"
            );
            let vote = Message::Vote {
                ballot,
                trial: false,
                empty: self.is_empty(),
            };
            self.send(ballot.member(), vote);
        }
    }

    /// Sends the vote that it owes, or asks for votes as a candidate, now that its promise is on
    /// disk.
    pub(super) fn promise_is_durable(&mut self, now: MonoNs) {
        self.pay_vote();
        let promised = self.durable.promised;
        let (me, empty) = (self.params.me, self.is_empty());
        if let Some(candidacy) = &mut self.candidacy
            && !candidacy.trial
            && candidacy.ballot == promised
            && candidacy.votes.is_empty()
        {
            assert_eq!(
                candidacy.ballot.member(),
                me,
                "a member stands under a ballot of its own"
            );
            candidacy.votes.insert(me, empty);
            self.ask();
            self.count_votes(now);
        }
    }

    pub(super) fn voted(
        &mut self,
        now: MonoNs,
        from: MemberId,
        ballot: Ballot,
        trial: bool,
        empty: bool,
    ) {
        // A candidate asks for votes only after its own vote is on disk.
        let me = self.params.me;
        if let Some(candidacy) = &mut self.candidacy
            && (candidacy.ballot, candidacy.trial) == (ballot, trial)
            && candidacy.votes.contains_key(&me)
        {
            candidacy.votes.insert(from, empty);
            self.count_votes(now);
        }
    }

    /// Returns whether these votes elect a leader. A member without a state counts only if all
    /// members vote, because it may have lost its disk.
    fn are_enough(&self, votes: &BTreeMap<MemberId, bool>) -> bool {
        let counted = votes.values().filter(|empty| !**empty);
        counted.count() >= self.majority() || votes.len() == self.params.members.len()
    }

    fn count_votes(&mut self, now: MonoNs) {
        let Some(candidacy) = &self.candidacy else {
            return;
        };
        if !self.are_enough(&candidacy.votes) {
            return;
        }
        let (ballot, trial) = (candidacy.ballot, candidacy.trial);
        assert!(
            ballot.member() == self.params.me && candidacy.votes.contains_key(&self.params.me),
            "it stands for itself, and has its own vote"
        );
        if !trial {
            self.candidacy = None;
            return self.begin_to_lead(now, ballot);
        }
        if self.round >= Ballot::ROUND_MAX {
            self.candidacy = None;
            return;
        }
        // It may have promised a higher ballot since the trial began.
        let ballot = Ballot::new(ballot.round().max(self.round + 1), self.params.me);
        self.promise(ballot);
        self.owed_vote = None;
        // It asks nobody before its own promise is on disk. After a crash it could use the ballot
        // twice.
        self.candidacy = Some(Candidacy {
            ballot,
            trial: false,
            votes: BTreeMap::new(),
        });
    }

    /// Gives up a leadership or candidacy of a lower ballot, because a member has promised this
    /// one.
    pub(super) fn outbid(&mut self, now: MonoNs, ballot: Ballot) {
        assert!(
            ballot.is_possible(),
            "{ballot:?} was refused before: no round would be left"
        );
        self.round = self.round.max(ballot.round());
        let mine = self.leadership.as_ref().map(|it| it.ballot);
        if mine.is_some_and(|mine| mine < ballot) {
            self.step_down(now);
        }
        if self.candidacy.as_ref().is_some_and(|it| it.ballot < ballot) {
            self.candidacy = None;
        }
    }

    /// Ends its leadership and its candidacy.
    pub(super) fn step_down(&mut self, now: MonoNs) {
        self.candidacy = None;
        if self.leadership.take().is_some() {
            self.outbox.push_back(Output::Deposed);
            self.campaign_later(now);
        }
    }

    /// Stands as a candidate soon, because the leader has resigned.
    pub(super) fn leader_resigned(&mut self, now: MonoNs, from: MemberId, ballot: Ballot) {
        if ballot.member() == from && ballot >= self.record.promised {
            self.heard = None;
            let soon = self.random(self.params.silence.0 / 4);
            self.campaign_at = now.after(DurationNs(soon));
        }
    }
}
