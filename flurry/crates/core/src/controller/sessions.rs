//! The owners of sessions.
//!
//! An opening gives out the next epoch. The controller answers it once too few servers are left that
//! may still serve the earlier owner for it to get an answer. An owner that answers after one reply
//! gets one from a single server, so every member must refuse its epoch first. An owner whose answers
//! rest on two of three servers is over when two of them refuse it: the opening does not wait for a
//! server that is silent or was counted out. If the earlier owner closed the session, the opening
//! need not wait at all.
//!
//! An owner reports periodically that it lives. A standby uses this: it takes the session only
//! after the owner has been silent for a while. Safety does not depend on the report; the epochs
//! provide it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Controller;
use crate::bugs::{Bug, planted};
use crate::config::{Config, Member};
use crate::id::{ConfigNumber, DurationNs, Epoch, MonoNs, SessionId, ShardId, WallNs};
use crate::message::{
    Control, FoundSession, Life, Opened, OpenedSession, Owned, SESSIONS_OPENED_MAX,
};

/// The most sessions that a controller keeps.
const SESSIONS_MAX: usize = crate::server::SESSIONS_MAX;

/// Messages after which a round of reminders ends.
const FENCES_MAX: usize = 4096;

/// The longest name of a session.
const NAME_BYTES_MAX: usize = 128;

/// Earlier openings of a session whose late copies are recognised.
const PAST_NONCES_MAX: usize = 16;

/// The controller's knowledge of a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Session {
    pub(super) name: String,
    pub(super) epoch: Epoch,
    pub(super) nonce: u64,
    /// Nonces of the openings before this one, the latest last.
    pub(super) past_nonces: VecDeque<u64>,
    /// True if its owner closed it with every write on every replica.
    pub(super) closed: bool,
    /// The epoch since which every earlier owner closed.
    pub(super) clean_since: Option<Epoch>,
    /// The latest epoch whose last writes may be lost. Those of the epochs before may be lost as
    /// well.
    pub(super) unknown_through: Epoch,
    /// The latest known time of an owner.
    pub(super) at: WallNs,
    /// True if lost servers may have had writes of this open epoch alone.
    pub(super) lossy: bool,
    /// The members that refuse every earlier epoch.
    pub(super) fenced: BTreeSet<Life>,
    /// The portal that waits for the opening, in the driver's number.
    pub(super) opening: Option<u64>,
    /// Its place among the names of that opening.
    pub(super) place: usize,
    /// True if the earlier owner closed, so that the opening need not wait for the members.
    pub(super) free: bool,
    /// Time of the last message from the owner, or from a portal that asks to become the owner.
    pub(super) heard: MonoNs,
    /// The acknowledged writes of the present owner.
    pub(super) writes: Writes,
    /// The acknowledged writes of earlier owners that did not close.
    pub(super) earlier: Writes,
}

impl Session {
    /// Checks the invariants of a session, which hold for any report of its owners.
    ///
    /// # Panics
    ///
    /// When its epochs contradict each other.
    pub(super) fn check(&self) {
        assert!(self.epoch > Epoch(0), "a session has had an owner");
        assert!(
            self.unknown_through <= self.epoch,
            "an owner that is still to come has lost nothing"
        );
        assert!(
            self.clean_since
                .is_none_or(|since| self.unknown_through < since && since <= self.epoch),
            "the clean time begins after the last doubt: {:?} and {:?}",
            self.clean_since,
            self.unknown_through
        );
        assert!(
            !self.closed || (!self.lossy && self.opening.is_none()),
            "an owner that closed has its writes everywhere, and waits for nothing"
        );
        assert!(
            self.past_nonces.len() <= PAST_NONCES_MAX,
            "openings take no more memory the more there were"
        );
        assert!(
            !self.past_nonces.contains(&self.nonce) || planted(Bug::LateOpenObeyed),
            "an opening that is over does not become the present one"
        );
        assert!(
            self.writes.copies > 0 && self.earlier.copies > 0,
            "an acknowledged write is somewhere"
        );
    }
}

/// The number of copies of acknowledged writes, and how many of these may be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Writes {
    /// The fewest servers that had a write when it was acknowledged; [`u8::MAX`] if there are no
    /// writes.
    pub(super) copies: u8,
    /// Copies that may have been lost since.
    pub(super) lost: u32,
    /// The fewest servers that agreed on any answer of the owner, to a read or a write; [`u8::MAX`]
    /// if there was none.
    pub(super) quorum: u8,
}

impl Writes {
    pub(super) const NONE: Self = Self::new(u8::MAX, u8::MAX);

    /// Returns the counts of an owner that promises this many copies. While it owns the session,
    /// this many servers agree on an answer at level `quorum`.
    pub(super) const fn new(copies: u8, quorum: u8) -> Self {
        let quorum = if quorum < copies { quorum } else { copies };
        Self {
            copies,
            lost: 0,
            quorum,
        }
    }

    /// Returns the counts for both sets of writes together.
    fn and(self, other: Self) -> Self {
        Self {
            copies: self.copies.min(other.copies),
            lost: self.lost.max(other.lost),
            quorum: self.quorum.min(other.quorum),
        }
    }

    /// Notes that this many servers agree on an answer from now on.
    fn note(&mut self, quorum: u8) {
        if self.quorum != Self::NONE.quorum {
            self.quorum = self.quorum.min(quorum);
        }
    }

    /// Returns the fewest servers that still have each answer of these owners; one if there were no
    /// such owners.
    fn agreeing(self) -> u8 {
        let some = self.quorum != Self::NONE.quorum;
        let lost = u8::try_from(self.lost).unwrap_or(u8::MAX);
        let left = self.quorum.saturating_sub(lost).max(1);
        if some { left } else { 1 }
    }

    /// Counts `full` lost servers that had all their keys, and `joining` lost servers that were
    /// still copying. Returns whether some write may have been lost with them.
    fn lose(&mut self, full: u32, joining: u32) -> bool {
        self.lost = self.lost.saturating_add(full).saturating_add(joining);
        // A server that was still copying is never the only one to have a write. It counts when one
        // of those that the write was copied from is lost as well.
        full > 0 && self.lost >= u32::from(self.copies)
    }
}

/// An opening that the controller has not answered yet.
struct Asked {
    /// The portal that waits for the answer, in the driver's number.
    sender: u64,
    /// True if no server serves an earlier owner of any of the sessions.
    ready: bool,
    /// The sessions, each with its place among the requested names.
    sessions: Vec<(usize, SessionId)>,
}

/// A portal's request to become the owner.
#[derive(Debug, Clone, Copy)]
pub(super) struct Opening {
    /// Chosen by the portal, so that a repetition gets the same epoch.
    pub(super) nonce: u64,
    /// Silence of the present owner after which the opening is granted.
    pub(super) timeout: DurationNs,
    /// The fewest servers that have a write when the owner acknowledges it.
    pub(super) copies: u8,
}

impl Controller {
    /// Makes a portal the owner of all these sessions, or of none.
    pub(super) fn open(&mut self, now: MonoNs, sender: u64, names: &[String], asked: Opening) {
        if let Some(reason) = self.open_refusal(names) {
            let nonce = asked.nonce;
            self.reply(sender, Control::OpenRefused { nonce, reason });
            return;
        }
        if self.config.is_none() {
            // The portal asks again until there is a cluster, whose servers may still be starting.
            return;
        }
        if self.waits_for_owner(now, sender, names, asked) {
            return;
        }
        if let Some(epoch) = self.opened_since(names, asked.nonce) {
            // This is a late copy. Only an owner that never received its epoch waits for the
            // answer.
            let reason = format!(
                "session: another owner has opened it since, under epoch {}; hint: start again",
                epoch.0
            );
            let nonce = asked.nonce;
            self.reply(sender, Control::OpenRefused { nonce, reason });
            return;
        }
        let mut given = Vec::new();
        for (place, name) in names.iter().enumerate() {
            let new = match self.names.get(name).copied() {
                Some(id) => self.open_again(now, sender, id, asked).then_some(id),
                None => Some(self.open_first(now, sender, name, asked)),
            };
            given.extend(new);
            let session = self
                .names
                .get(name)
                .and_then(|id| self.sessions.get_mut(id));
            if let Some(session) = session {
                session.place = place;
            }
        }
        self.opened(&given);
    }

    /// Returns why sessions of these names cannot be opened, or `None` if they can.
    fn open_refusal(&self, names: &[String]) -> Option<String> {
        let count = names.len();
        if count == 0 || count > SESSIONS_OPENED_MAX {
            return Some(format!(
                "session: {count} were asked for; wanted 1 to {SESSIONS_OPENED_MAX}"
            ));
        }
        let bad = |it: &&String| it.is_empty() || it.len() > NAME_BYTES_MAX;
        if let Some(name) = names.iter().find(bad) {
            return Some(format!(
                "session: its name has {} bytes; wanted 1 to {NAME_BYTES_MAX}",
                name.len()
            ));
        }
        let new = names.iter().filter(|it| !self.names.contains_key(*it));
        if self.sessions.len() + new.count() > SESSIONS_MAX {
            return Some(format!(
                "session: there are {SESSIONS_MAX} already; wanted fewer; hint: share a session between keys"
            ));
        }
        None
    }

    /// Gives out the first epoch of a session.
    fn open_first(&mut self, now: MonoNs, sender: u64, name: &str, asked: Opening) -> SessionId {
        let number = u32::try_from(self.sessions.len() + 1).unwrap_or(u32::MAX);
        let id = SessionId(number);
        assert!(
            !self.sessions.contains_key(&id) && self.sessions.len() < SESSIONS_MAX,
            "{id:?} is new: its keys would mix with those of another"
        );
        self.names.insert(name.to_owned(), id);
        self.sessions.insert(
            id,
            Session {
                name: name.to_owned(),
                epoch: Epoch(1),
                nonce: asked.nonce,
                past_nonces: VecDeque::new(),
                closed: false,
                clean_since: Some(Epoch(1)),
                unknown_through: Epoch(0),
                at: WallNs(0),
                lossy: false,
                fenced: BTreeSet::new(),
                opening: Some(sender),
                place: 0,
                free: true,
                heard: now,
                writes: Writes::new(asked.copies, self.quorum_min),
                earlier: Writes::NONE,
            },
        );
        id
    }

    fn known(&self, names: &[String]) -> impl Iterator<Item = &Session> {
        let ids = names.iter().filter_map(|it| self.names.get(it));
        ids.filter_map(|id| self.sessions.get(id))
    }

    /// Returns whether a standby has to wait because the owner of one of the sessions lives.
    fn waits_for_owner(
        &mut self,
        now: MonoNs,
        sender: u64,
        names: &[String],
        asked: Opening,
    ) -> bool {
        let nonce = asked.nonce;
        let listening = self.listening;
        let lives = |it: &&Session| {
            let silent = now.since(it.heard.max(listening));
            it.nonce != nonce && !it.closed && silent < asked.timeout
        };
        let owner = self.known(names).find(lives).map(|it| it.epoch);
        let owner = owner.filter(|_| !planted(Bug::StandbyImpatient));
        if let Some(epoch) = owner {
            self.reply(sender, Control::OwnerLives { nonce, epoch });
        }
        owner.is_some()
    }

    /// Returns the epoch of a later owner of one of these sessions, if the opening is over.
    fn opened_since(&self, names: &[String], nonce: u64) -> Option<Epoch> {
        let over = |it: &&Session| {
            it.nonce != nonce && it.past_nonces.contains(&nonce) && !planted(Bug::LateOpenObeyed)
        };
        self.known(names).find(over).map(|it| it.epoch)
    }

    /// Notes that an owner has reported that it lives. An owner that does not hear the controller
    /// counts as silent since it last did. The time before this controller led does not count.
    pub(super) fn owners_live(&mut self, now: MonoNs, sessions: &[Owned], unheard: DurationNs) {
        let heard = MonoNs(now.0.saturating_sub(unheard.0));
        let lived = heard.max(self.began.min(now));
        for owned in sessions {
            if let Some(session) = self.sessions.get_mut(&owned.session)
                && session.epoch == owned.epoch
            {
                session.heard = session.heard.max(lived);
            }
        }
    }

    /// Returns the session of this name, the epoch of its owner, and whether the owner has closed
    /// it. `None` for a session that was never opened.
    #[must_use]
    pub fn owner_of(&self, name: &str) -> Option<(SessionId, Epoch, bool)> {
        let id = *self.names.get(name)?;
        let session = self.sessions.get(&id)?;
        Some((id, session.epoch, session.closed))
    }

    pub(super) fn find_session(&mut self, sender: u64, name: &str, number: u64) {
        let Some(config) = self.config.clone() else {
            return;
        };
        let (session, epoch, _) = self.owner_of(name).unwrap_or_default();
        let known = self.sessions.get(&session);
        let found = FoundSession {
            number,
            session,
            epoch,
            at: known.map_or(WallNs(0), |it| it.at),
            unknown_through: known.map_or(Epoch(0), |it| it.unknown_through),
            config,
        };
        self.reply(sender, Control::FoundSession(found));
    }

    /// Gives out the next epoch of a session. Returns false if this opening has it already.
    fn open_again(&mut self, now: MonoNs, sender: u64, id: SessionId, asked: Opening) -> bool {
        let nonce = asked.nonce;
        let quorum = self.quorum_min;
        let Some(session) = self.sessions.get_mut(&id) else {
            return false;
        };
        session.heard = session.heard.max(now);
        if session.nonce == nonce {
            // The portal repeats its request: the answer was lost, or the controller has not
            // answered yet.
            if !session.closed {
                session.opening = Some(sender);
            }
            return false;
        }
        if session.past_nonces.len() == PAST_NONCES_MAX {
            session.past_nonces.pop_front();
        }
        session.past_nonces.push_back(session.nonce);
        if !session.closed {
            session.earlier = session.earlier.and(session.writes);
            session.clean_since = None;
            if session.lossy || planted(Bug::DoubtNeverEnds) && session.unknown_through > Epoch(0) {
                session.unknown_through = session.epoch;
            }
        }
        session.writes = Writes::new(asked.copies, quorum);
        session.free = session.closed;
        session.epoch = Epoch(session.epoch.0 + 1);
        session.nonce = nonce;
        session.closed = false;
        session.lossy = false;
        session.fenced.clear();
        session.opening = Some(sender);
        true
    }

    /// Stores new epochs, and then sends them to the servers.
    fn opened(&mut self, given: &[SessionId]) {
        if given.is_empty() {
            return;
        }
        if !planted(Bug::EpochNotSynced) {
            self.persist();
        }
        for id in given {
            let Some(session) = self.sessions.get(id) else {
                continue;
            };
            session.check();
            assert!(
                !session.closed && session.fenced.is_empty() && session.opening.is_some(),
                "{id:?}: no server has heard of a new epoch, and its owner waits for that"
            );
            let epoch = session.epoch;
            for life in self.lives() {
                self.notify(life, Control::Fence(*id, epoch));
            }
        }
    }

    /// Notes the time of an owner. The next owner's time does not begin before it.
    pub(super) fn owners_time(&mut self, id: SessionId, at: WallNs) {
        if let Some(session) = self.sessions.get_mut(&id)
            && !planted(Bug::OwnersTimeForgotten)
        {
            session.at = session.at.max(at);
        }
    }

    pub(super) fn fence_held(&mut self, life: Life, id: SessionId, epoch: Epoch) {
        if let Some(session) = self.sessions.get_mut(&id)
            && session.epoch == epoch
        {
            session.fenced.insert(life);
        }
    }

    /// Sends the epochs to members that have not acknowledged them.
    pub(super) fn fence_again(&mut self) {
        let lives = self.lives();
        let mut notify = Vec::new();
        // Each round goes on where the last one ended: a member that is gone acknowledges nothing, and
        // would take all places of every round.
        let from = std::mem::take(&mut self.fences_from);
        let last = self.sessions.keys().next_back().copied();
        for (id, session) in self.sessions.range_mut(from..) {
            session.fenced.retain(|life| lives.contains(life));
            if session.fenced.len() == lives.len() {
                continue;
            }
            for life in &lives {
                if !session.fenced.contains(life) {
                    notify.push((*life, *id, session.epoch));
                }
            }
            // The messages of a round are bounded: the others follow in the next round.
            if notify.len() > FENCES_MAX {
                self.fences_from = if Some(*id) == last { SessionId(0) } else { *id };
                break;
            }
        }
        for (life, id, epoch) in notify {
            self.notify(life, Control::Fence(id, epoch));
        }
    }

    /// Returns how many servers may still serve an earlier owner of a session: members that have not
    /// confirmed that they refuse it, and counted-out ones.
    fn may_serve(&self, session: &Session) -> (usize, usize) {
        let server = |life: Life| (life.endpoint.server, life.incarnation);
        let lives = self.lives().into_iter();
        let unfenced = lives.filter(|life| !session.fenced.contains(life));
        let members: BTreeSet<_> = unfenced.map(server).collect();
        let retiring: BTreeSet<_> = self.retiring.keys().copied().map(server).collect();
        (members.len(), retiring.len())
    }

    /// Returns whether the earlier owner of a session can get no answer any more.
    fn is_over(&self, session: &Session) -> bool {
        let (members, retiring) = self.may_serve(session);
        if members + retiring == 0 {
            return self.agreed.is_some();
        }
        let earlier = session.earlier;
        let quorum = usize::from(earlier.quorum);
        if planted(Bug::FencesTooFew) && quorum > 1 {
            return members <= quorum;
        }
        // One of the members that confirm knows the time of the earlier owner's last answer.
        let time_is_known = members < usize::from(earlier.agreeing());
        // One server is enough to serve an owner whose answers rest on one.
        quorum > 1 && members + retiring < quorum && (members == 0 || time_is_known)
    }

    /// Notes the fewest servers that agree on an answer by the present configuration.
    pub(super) fn note_quorum(&mut self, quorum: u8) {
        for session in self.sessions.values_mut() {
            session.writes.note(quorum);
            session.earlier.note(quorum);
        }
    }

    /// Returns those of the lost members that can be counted out now. The others are counted out
    /// once the members that are left refuse the earlier owners.
    pub(super) fn without_reviving(&self, config: &Config, mut lost: Vec<Member>) -> Vec<Member> {
        while !lost.is_empty() {
            let mut after = config.clone();
            self.mark_gone(&mut after.members, &lost);
            if !self.would_revive(config, &after) {
                break;
            }
            lost.pop();
        }
        lost
    }

    /// Returns whether this configuration would let members that may still serve an earlier owner
    /// answer it, since fewer servers agree on an answer than before. Such a change of the members
    /// waits until these refuse the earlier owner.
    pub(super) fn would_revive(&self, before: &Config, after: &Config) -> bool {
        let quorum = usize::from(after.quorum());
        if after.quorum() >= before.quorum() || planted(Bug::FencesTooFew) {
            return false;
        }
        let shards = |it: &Member| -> Vec<Life> {
            (0..after.shards)
                .map(|shard| it.life(ShardId(shard)))
                .collect()
        };
        // A server that joins answers nothing before the change is done.
        let left = after.members.iter().filter(|it| !it.gone);
        let left: Vec<Vec<Life>> = left.map(shards).collect();
        // Every server refused an earlier owner of single answers before the session was opened.
        let asked_several = |it: &&Session| (2..Writes::NONE.quorum).contains(&it.earlier.quorum);
        let mut sessions = self.sessions.values().filter(asked_several);
        sessions.any(|session| {
            let fenced = |lives: &&Vec<Life>| lives.iter().all(|it| session.fenced.contains(it));
            left.len() - left.iter().filter(fenced).count() >= quorum
        })
    }

    /// Answers the openings of sessions whose earlier owner can get no answer any more.
    pub(super) fn finish_openings(&mut self) {
        let Some(config) = self.config.clone() else {
            return;
        };
        let mut openings: BTreeMap<u64, Asked> = BTreeMap::new();
        for (id, session) in &self.sessions {
            let Some(sender) = session.opening else {
                continue;
            };
            let over = self.is_over(session) || planted(Bug::OpenBeforeFence);
            let ready = session.free || over;
            let asked = openings.entry(session.nonce).or_insert(Asked {
                sender,
                ready: true,
                sessions: Vec::new(),
            });
            asked.ready &= ready;
            asked.sessions.push((session.place, *id));
        }
        for (nonce, mut asked) in openings {
            if !asked.ready {
                continue;
            }
            assert!(!asked.sessions.is_empty(), "an opening is of some session");
            asked.sessions.sort_unstable();
            let ids = asked.sessions.iter().map(|(_, id)| id);
            let opened = Opened {
                nonce,
                sessions: ids.filter_map(|id| self.end_opening(*id)).collect(),
                config: std::sync::Arc::clone(&config),
            };
            self.reply(asked.sender, Control::Opened(opened));
        }
    }

    /// Returns the facts about a session that its new owner needs. They are those of now, because a
    /// server may have been lost while the opening waited.
    fn end_opening(&mut self, id: SessionId) -> Option<OpenedSession> {
        let session = self.sessions.get_mut(&id)?;
        assert!(
            session.opening.is_some() && !session.closed,
            "{id:?}: its owner is answered once, and before it can close"
        );
        session.check();
        session.opening = None;
        Some(OpenedSession {
            session: id,
            epoch: session.epoch,
            clean_since: session.clean_since,
            unknown_through: session.unknown_through,
            at: session.at,
            copies_earlier: session.earlier.copies,
            quorum_earlier: session.earlier.agreeing(),
        })
    }

    /// Ends the ownership of sessions whose writes are all on every replica.
    pub(super) fn close(&mut self, sender: u64, sessions: &[Owned], untold: bool, at: WallNs) {
        let mut closed = Vec::new();
        let mut changed = false;
        for owned in sessions {
            self.owners_time(owned.session, at);
            if self.close_one(sender, *owned, untold, &mut changed) {
                closed.push(*owned);
            }
        }
        if changed {
            self.persist();
        }
        if !closed.is_empty() {
            self.reply(sender, Control::Closed(closed));
        }
    }

    /// Notifies an owner if another one has opened its session since. Returns whether that is so.
    fn tells_fenced(&mut self, sender: u64, owned: Owned) -> bool {
        let Owned { session: id, epoch } = owned;
        let later = self.sessions.get(&id).map(|it| it.epoch);
        let later = later.filter(|it| *it > epoch && !planted(Bug::FencedCloseIgnored));
        if let Some(later) = later {
            self.reply(sender, Control::Fence(id, later));
        }
        later.is_some()
    }

    /// Closes a session of this owner. Returns whether it is closed, and sets `changed` if it was
    /// not.
    fn close_one(&mut self, sender: u64, owned: Owned, untold: bool, changed: &mut bool) -> bool {
        let Owned { session: id, epoch } = owned;
        if self.tells_fenced(sender, owned) {
            return false;
        }
        let Some(session) = self.sessions.get_mut(&id) else {
            return false;
        };
        if session.epoch != epoch {
            return false;
        }
        if !session.closed {
            session.closed = true;
            session.lossy = false;
            session.opening = None;
            if untold {
                // The owner has written back some keys in doubt under this epoch without notifying
                // a caller.
                session.clean_since = None;
                if session.unknown_through == Epoch(0) {
                    session.unknown_through = epoch;
                }
            } else if session.unknown_through < epoch {
                session.clean_since.get_or_insert(epoch);
            }
            session.check();
            assert!(
                session.clean_since.is_some() || session.unknown_through > Epoch(0),
                "{id:?}: the next owner has a clean time or a doubt"
            );
            *changed = true;
        }
        true
    }

    /// Notes that all writes of the owner up to this loss are on every replica, so that none of
    /// them is lost if the owner ends. The report does not count if a server was lost later.
    pub(super) fn settled(&mut self, sender: u64, sessions: &[Owned], loss: ConfigNumber) {
        let Some(last_loss) = self.config.as_ref().map(|config| config.last_loss) else {
            return;
        };
        let is_last = last_loss == loss && !planted(Bug::SettledIgnored);
        let (mut heard, mut changed) = (None, false);
        for owned in sessions {
            if self.tells_fenced(sender, *owned) {
                continue;
            }
            let Some(session) = self.sessions.get_mut(&owned.session) else {
                continue;
            };
            if session.epoch != owned.epoch || session.closed {
                continue;
            }
            if (session.lossy || session.writes.lost > 0) && is_last {
                (session.lossy, session.writes.lost) = (false, 0);
                changed = true;
            }
            heard.get_or_insert(*owned);
        }
        if changed {
            self.persist();
        }
        if let Some(Owned { session, epoch }) = heard {
            self.reply(sender, Control::SettledHeard(session, epoch, last_loss));
        }
    }

    /// Puts every session in doubt, because all servers that had some key may have been lost.
    pub(super) fn note_wipe(&mut self) {
        for session in self.sessions.values_mut() {
            session.clean_since = None;
            session.unknown_through = session.unknown_through.max(session.epoch);
            session.check();
        }
    }

    /// Counts servers that were lost together with their records. Once as many are lost as a write
    /// had copies, they may have been the only ones with the last writes of a session.
    pub(super) fn count_lost(&mut self, full: usize, joining: usize, amid_change: bool) {
        let count = |servers: usize| u32::try_from(servers).unwrap_or(u32::MAX);
        let (full, joining) = (count(full), count(joining));
        self.lost_amid_change |= amid_change && full + joining > 0;
        self.lost = self.lost.saturating_add(full).saturating_add(joining);
        for session in self.sessions.values_mut() {
            if session.writes.lose(full, joining) && !session.closed {
                session.lossy = true;
            }
            // No owner has written back the keys that earlier owners left on too few servers.
            if session.earlier.lose(full, joining) {
                let clean = session.clean_since;
                let earlier = clean.unwrap_or(session.epoch).0.saturating_sub(1);
                session.unknown_through = session.unknown_through.max(Epoch(earlier));
            }
            session.check();
        }
    }

    /// Notes that every member has copied its keys. Each key then has as many copies again as there
    /// are members to hold them. If a server was lost meanwhile, nothing changes: it may have been
    /// the only one with a new write.
    pub(super) fn copied(&mut self, members: usize) {
        if std::mem::take(&mut self.lost_amid_change) {
            return;
        }
        let missing = usize::from(self.replicas()).saturating_sub(members);
        let missing = u32::try_from(missing).unwrap_or(u32::MAX);
        self.lost = self.lost.min(missing);
        for session in self.sessions.values_mut() {
            session.writes.lost = session.writes.lost.min(missing);
            session.earlier.lost = session.earlier.lost.min(missing);
        }
    }
}
