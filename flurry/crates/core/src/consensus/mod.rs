//! A group of controllers that agree on one state.
//!
//! The state is small and is written as a whole, so there is no log: each write replaces the one
//! before. Every member keeps a [`Record`] on its disk: the highest ballot that it has promised,
//! and the state that it has accepted, with its stamp (the ballot and version of the write).
//!
//! First, a member that has not heard from a leader for a while asks the others whether they would
//! vote for it (a trial, which writes nothing). If enough would, it promises itself a new ballot
//! and asks for votes. A member votes only for a candidate whose state is at least as new as its
//! own. Second, the winner writes the state that it has again, under its own ballot: once a
//! majority has that on disk, no state of an earlier leader can come back, and the winner leads.
//! Third, each further write counts as stored when a majority has it on disk.
//!
//! After its last round of answers, a leader is sure that it leads for less time than the others
//! wait before they vote. This rests on clocks that run about equally fast. Stored states are safe
//! even if the clocks do not: a deposed leader finds no majority.
//!
//! A member without a state may be new. Or it may have lost its disk, and no longer know which
//! states it acknowledged and which ballots it promised. So its vote counts only if all members
//! vote. It obeys a leader only when all other members have reported their highest promised
//! ballots. One of these members is the candidate that it last voted for. A new group therefore
//! begins when all of its members run, and an emptied disk cannot make an older state the newest.
//!
//! This is Raft with a log of one entry, which is its own snapshot. Why it is not a library:
//! `flurry/docs/controllers.md`.

mod election;
mod replication;
mod verify;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use crate::id::{DurationNs, MonoNs};
use election::Candidacy;
use replication::{Leadership, Parts};

/// A member of a group; the driver derives it from the member's address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u32);

/// The number of one candidacy of one member. Later candidacies have higher ballots, and no two
/// members use the same one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ballot(pub u64);

impl Ballot {
    /// The last round in which a member stands as a candidate. A group without a leader reaches it
    /// after twenty-four days at a thousand rounds a second.
    const ROUND_MAX: u64 = 1 << 31;

    fn new(round: u64, member: MemberId) -> Self {
        assert!(round <= Self::ROUND_MAX, "round {round} is beyond the last");
        Self(round << 32 | u64::from(member.0))
    }

    /// Returns whether a candidate can have this ballot.
    fn is_possible(self) -> bool {
        self.round() <= Self::ROUND_MAX
    }

    fn round(self) -> u64 {
        self.0 >> 32
    }

    fn member(self) -> MemberId {
        MemberId(u32::try_from(self.0 & 0xffff_ffff).unwrap_or(0))
    }
}

/// The number of a write of a leader; 0 stands for no write. A later write has a higher stamp.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// The leader's ballot.
    pub ballot: Ballot,
    /// The number of the write, counted over all leaders.
    pub version: u64,
}

impl Stamp {
    /// The highest version that a member accepts. Half of the range is left for counting on.
    const VERSION_MAX: u64 = u64::MAX / 2;

    /// Returns whether a leader can have used this stamp.
    fn is_possible(self) -> bool {
        self.ballot.is_possible() && self.version <= Self::VERSION_MAX
    }
}

/// The state of a member on its disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Record {
    /// The highest ballot that it has promised. It obeys no lower one.
    pub promised: Ballot,
    /// The stamp of the state.
    pub stamp: Stamp,
    /// The state that it accepted last.
    pub state: Bytes,
}

/// A message from one member to another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Message {
    /// Candidate to all: vote for me.
    Ask {
        /// The ballot of the candidacy.
        ballot: Ballot,
        /// The stamp of the candidate's state.
        stamp: Stamp,
        /// True if the candidate only asks whether the member would vote for it.
        trial: bool,
    },
    /// To the candidate: you have my vote.
    Vote {
        /// The ballot of the candidacy.
        ballot: Ballot,
        /// True if the vote does not bind the member.
        trial: bool,
        /// True if the voter has no state.
        empty: bool,
    },
    /// To a candidate or leader of a lower ballot, and to a member that inquires: I have promised
    /// this ballot.
    Promised(Ballot),
    /// Leader to all: I lead. It may hold a part of the state.
    Append {
        /// The leader's ballot.
        ballot: Ballot,
        /// The time at which it was sent, by the leader's clock.
        sent: MonoNs,
        /// The stamp of the leader's state.
        stamp: Stamp,
        /// The number of the part in it, from 0.
        part: u32,
        /// The number of parts of the state; 0 if the message holds no part.
        parts: u32,
        /// The bytes of the part.
        bytes: Bytes,
    },
    /// To the leader: I obey you, and have this on disk.
    Appended {
        /// The leader's ballot.
        ballot: Ballot,
        /// The time at which the leader sent the message that this answers, by the leader's clock.
        sent: MonoNs,
        /// The stamp of the state on the sender's disk.
        stamp: Stamp,
    },
    /// Leader to all: I resign.
    Resign(Ballot),
    /// From a member without a state: which ballot have you promised?
    Inquire,
}

impl Message {
    /// Returns whether a member can have sent it: no round and no version in it is beyond the last.
    fn is_possible(&self) -> bool {
        match self {
            Self::Ask { ballot, stamp, .. }
            | Self::Append { ballot, stamp, .. }
            | Self::Appended { ballot, stamp, .. } => ballot.is_possible() && stamp.is_possible(),
            Self::Vote { ballot, .. } | Self::Promised(ballot) | Self::Resign(ballot) => {
                ballot.is_possible()
            }
            Self::Inquire => true,
        }
    }
}

/// A task for the driver of a member. The driver may send messages at once: a message that reports
/// data on disk is created after the write.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Output {
    /// Replace the record on disk by this one and sync it, then call [`Consensus::persisted`].
    Persist(Record),
    /// Send this.
    Send(MemberId, Message),
    /// The member leads from now on, with this state. The state is empty if none was ever written.
    Elected(Bytes),
    /// The proposed state is stored.
    Stored,
    /// The member does not lead any more. Its last proposal may be stored or not.
    Deposed,
}

/// The parameters of a member.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ConsensusParams {
    /// Its own number.
    pub me: MemberId,
    /// All members, including itself.
    pub members: Vec<MemberId>,
    /// The time without a message of a leader after which a member votes for another one.
    pub silence: DurationNs,
    /// The seed of the random time that this member waits beyond that. Each member should have
    /// another.
    pub seed: u64,
    /// The longest part of a state in a message, in bytes.
    pub part_bytes_max: usize,
}

/// Heartbeats of a leader in the time of the silence.
const HEARTBEATS: u64 = 10;

/// The time for which answers let a leader be sure that it leads, in fifths of the silence.
const SURE_FIFTHS: u64 = 4;

// A leader stops before the others vote for another member, and sends a heartbeat before that.
const _: () = assert!(SURE_FIFTHS < 5 && HEARTBEATS > 1);

/// A member of a group.
#[derive(Debug, Clone, Hash)]
pub struct Consensus {
    params: ConsensusParams,
    /// The record in memory, which the disk is to have.
    record: Record,
    /// The record on disk.
    durable: Record,
    /// The record that the driver is writing to disk.
    writing: Option<Record>,
    /// The time at which it last heard from a leader, or must assume that it did. `None` once the
    /// leader has resigned.
    heard: Option<MonoNs>,
    /// The members that have reported their promised ballots, while this one has no state. `None`
    /// when it need not ask.
    inquiry: Option<BTreeSet<MemberId>>,
    /// The time at which a candidate or an inquiring member asks again.
    ask_again_at: MonoNs,
    /// The leader that it obeys, and the time at which the leader sent its latest message.
    obeyed: Option<(Ballot, MonoNs)>,
    /// The time at which it stands as a candidate unless it hears from a leader.
    campaign_at: MonoNs,
    /// Candidacies since it last heard from a leader. It waits longer after each, in case disks are
    /// slow.
    campaigns: u32,
    /// The highest round that it has heard of.
    round: u64,
    /// A vote that is sent once the promise is on disk.
    owed_vote: Option<Ballot>,
    candidacy: Option<Candidacy>,
    leadership: Option<Leadership>,
    parts: Parts,
    /// The time of the last message of each member.
    heard_from: BTreeMap<MemberId, MonoNs>,
    random: u64,
    outbox: VecDeque<Output>,
}

impl Consensus {
    /// Returns a member with the record of its disk; `None` stands for an empty disk.
    #[must_use]
    pub fn new(now: MonoNs, params: ConsensusParams, record: Option<Record>) -> Self {
        assert!(
            params.members.contains(&params.me),
            "{:?} belongs to its group",
            params.me
        );
        assert!(
            params.silence.0 >= HEARTBEATS,
            "a leader that speaks without a pause does nothing else"
        );
        let record = record.unwrap_or_default();
        let alone = params.members.len() < 2;
        let empty = record.stamp == Stamp::default();
        let mut member = Self {
            round: record.promised.round(),
            random: params.seed,
            durable: record.clone(),
            record,
            writing: None,
            // It does not know when it last obeyed a leader, so it assumes the latest possible
            // time.
            heard: (!alone).then_some(now),
            inquiry: (!alone && empty).then(BTreeSet::new),
            ask_again_at: now,
            obeyed: None,
            campaign_at: now,
            campaigns: 0,
            owed_vote: None,
            candidacy: None,
            leadership: None,
            parts: Parts::default(),
            heard_from: BTreeMap::new(),
            outbox: VecDeque::new(),
            params,
        };
        if !alone {
            member.campaign_later(now);
        }
        member
    }

    /// Handles a message of another member. It ignores messages from elsewhere, and messages that
    /// no member can have sent: their round could be so high that nobody could lead after it.
    pub fn handle_message(&mut self, now: MonoNs, from: MemberId, message: Message) {
        let is_other = from != self.params.me && self.params.members.contains(&from);
        if !is_other || !message.is_possible() {
            return;
        }
        self.heard_from.insert(from, now);
        match message {
            Message::Ask {
                ballot,
                stamp,
                trial,
            } => self.asked(now, from, ballot, stamp, trial),
            Message::Vote {
                ballot,
                trial,
                empty,
            } => self.voted(now, from, ballot, trial, empty),
            Message::Promised(ballot) => {
                self.inquired(from, ballot);
                self.outbid(now, ballot);
            }
            Message::Inquire => self.send(from, Message::Promised(self.record.promised)),
            Message::Append {
                ballot,
                sent,
                stamp,
                part,
                parts,
                bytes,
            } => {
                if ballot.member() == from && stamp.ballot == ballot {
                    self.append(now, sent, stamp, (part, parts, bytes));
                }
            }
            Message::Appended {
                ballot,
                sent,
                stamp,
            } => self.appended(now, from, ballot, sent, stamp),
            Message::Resign(ballot) => self.leader_resigned(now, from, ballot),
        }
        self.persist();
    }

    /// Handles the time of [`Self::poll_timeout`].
    pub fn handle_timeout(&mut self, now: MonoNs) {
        if self.leadership.is_some() {
            self.lead_on(now);
        } else if now >= self.campaign_at {
            self.campaign(now);
        }
        self.ask_again(now);
        self.persist();
    }

    /// Returns the time at which to call [`Self::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> MonoNs {
        let leads = self.leadership.as_ref();
        let next = leads.map_or(self.campaign_at, |it| it.heartbeat_at);
        let asks = self.candidacy.is_some() || self.inquiry.is_some();
        if asks {
            next.min(self.ask_again_at)
        } else {
            next
        }
    }

    /// Notes that the record of the last [`Output::Persist`] is on disk.
    pub fn persisted(&mut self, now: MonoNs) {
        let Some(written) = self.writing.take() else {
            return;
        };
        assert!(
            self.durable.promised <= written.promised && self.durable.stamp <= written.stamp,
            "a disk never goes back: others rely on its acknowledged content"
        );
        self.durable = written;
        self.promise_is_durable(now);
        self.answer_leader();
        self.count_copies(now);
        self.persist();
    }

    /// Proposes this state, which is stored when [`Output::Stored`] follows. Only a leader may call
    /// this, with one state at a time.
    ///
    /// # Panics
    ///
    /// In a debug build, if this member does not lead or has another write under way.
    pub fn propose(&mut self, now: MonoNs, state: Bytes) {
        self.write(now, state);
        self.persist();
    }

    /// Returns whether it leads and is sure of it.
    #[must_use]
    pub fn is_leader(&self, now: MonoNs) -> bool {
        let leads = self.leadership.as_ref();
        leads.is_some_and(|it| it.begun && now < self.sure_until(it))
    }

    /// Measures the silence of the others anew, because this machine's clock stood still or jumped.
    pub fn clock_jumped(&mut self, now: MonoNs) {
        if self.params.members.len() < 2 {
            return;
        }
        self.heard = Some(now);
        self.campaign_later(now);
        let grace = now.after(self.params.silence);
        if let Some(leadership) = &mut self.leadership {
            leadership.doubts_before = now;
            leadership.grace = grace;
        }
    }

    /// Lets another member lead at once, if this one does.
    pub fn resign(&mut self, now: MonoNs) {
        if let Some(leadership) = &self.leadership {
            let ballot = leadership.ballot;
            self.broadcast(&Message::Resign(ballot));
            self.step_down(now);
        }
    }

    /// Returns the next task for the driver.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outbox.pop_front()
    }

    /// Returns all members, including itself.
    #[must_use]
    pub fn members(&self) -> &[MemberId] {
        &self.params.members
    }

    /// Returns whether it leads, or has heard from a leader within this span.
    #[must_use]
    pub fn knows_leader(&self, now: MonoNs, span: DurationNs) -> bool {
        let obeys =
            self.obeyed.is_some() && self.heard.is_some_and(|heard| now.since(heard) <= span);
        obeys || self.is_leader(now)
    }

    /// Returns the members that it has not heard for this long, or never.
    pub fn silent(&self, now: MonoNs, span: DurationNs) -> impl Iterator<Item = MemberId> + '_ {
        let me = self.params.me;
        let others = self
            .params
            .members
            .iter()
            .copied()
            .filter(move |it| *it != me);
        others.filter(move |it| {
            let heard = self.heard_from.get(it);
            heard.is_none_or(|heard| now.since(*heard) > span)
        })
    }

    /// Returns whether it has never had a state.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.record.stamp == Stamp::default()
    }

    /// Returns the record that is on disk.
    #[must_use]
    pub fn durable(&self) -> &Record {
        &self.durable
    }

    fn majority(&self) -> usize {
        self.params.members.len() / 2 + 1
    }

    fn others(&self) -> Vec<MemberId> {
        let me = self.params.me;
        let all = self.params.members.iter().copied();
        let others: Vec<MemberId> = all.filter(|it| *it != me).collect();
        assert!(
            others.len() < self.params.members.len(),
            "a member sends itself nothing: it would count twice"
        );
        others
    }

    fn send(&mut self, to: MemberId, message: Message) {
        self.outbox.push_back(Output::Send(to, message));
    }

    fn broadcast(&mut self, message: &Message) {
        for member in self.others() {
            self.send(member, message.clone());
        }
    }

    /// Begins to write the record if the disk has an older one.
    fn persist(&mut self) {
        assert!(
            self.durable.promised <= self.record.promised
                && self.durable.stamp <= self.record.stamp,
            "a state is in memory before it is on disk"
        );
        if self.writing.is_none() && self.record != self.durable {
            self.writing = Some(self.record.clone());
            self.outbox.push_back(Output::Persist(self.record.clone()));
        }
    }

    fn promise(&mut self, ballot: Ballot) {
        assert!(
            ballot >= self.record.promised,
            "a promise is never taken back"
        );
        self.record.promised = ballot;
        self.round = self.round.max(ballot.round());
    }

    /// Returns a random number below `bound`, from the seed (splitmix64).
    fn random(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % bound.max(1)
    }
}
