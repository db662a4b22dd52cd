//! Who owns a session.
//!
//! An opening gives out the next epoch, and is answered once every member refuses the earlier one: a
//! single replica that still served the earlier owner would be enough to acknowledge a write that the
//! new owner never sees. After an owner that closed, nobody has to be waited for.
//!
//! An owner reports periodically that it lives. A standby uses this: it takes the session only
//! after the owner has been silent for a while. Safety does not depend on the report; the epochs
//! provide it.

use std::collections::{BTreeSet, VecDeque};

use super::Controller;
use crate::bugs::{Bug, planted};
use crate::id::{ConfigNumber, DurationNs, Epoch, MonoNs, SessionId, WallNs};
use crate::message::{Control, FoundSession, Life, Opened};

/// Sessions that a controller keeps at most.
const SESSIONS_MAX: usize = crate::server::SESSIONS_MAX;

/// The longest name of a session.
const NAME_BYTES_MAX: usize = 128;

/// Earlier openings of a session whose late copies are recognised.
const PAST_NONCES_MAX: usize = 16;

/// What the name of a gateway's session begins with; its first and its last slot follow.
pub const SLOTS: &str = "slots/";

/// What the controller knows of a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Session {
    pub(super) name: String,
    pub(super) epoch: Epoch,
    pub(super) nonce: u64,
    /// Nonces of the openings before this one, the latest last.
    pub(super) past_nonces: VecDeque<u64>,
    /// Its owner has let go of it with everything on every replica.
    pub(super) closed: bool,
    /// Epochs from this one on were closed.
    pub(super) clean_since: Option<Epoch>,
    /// Epochs up to this one may have lost their last writes.
    pub(super) unknown_through: Epoch,
    /// The latest time of an owner that anybody knows of.
    pub(super) at: WallNs,
    /// A server was lost while this epoch was open.
    pub(super) lossy: bool,
    /// Who refuses everything before this epoch.
    pub(super) fenced: BTreeSet<Life>,
    /// Who waits for the opening.
    pub(super) opening: Option<u64>,
    /// Nobody has to be waited for.
    pub(super) free: bool,
    /// Time of the last message from the owner, or from a portal that asks to become the owner.
    pub(super) heard: MonoNs,
    /// The acknowledged writes of the present owner.
    pub(super) writes: Writes,
    /// Those of earlier owners that did not close.
    pub(super) earlier: Writes,
}

/// How many copies acknowledged writes have, and how many of these may be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Writes {
    /// Servers that had each of them when it was acknowledged, at least; [`u8::MAX`] if there are none.
    pub(super) copies: u8,
    /// Copies that may have been lost since.
    pub(super) lost: u32,
}

impl Writes {
    pub(super) const NONE: Self = Self::new(u8::MAX);

    pub(super) const fn new(copies: u8) -> Self {
        Self { copies, lost: 0 }
    }

    /// Both these and those.
    fn and(self, other: Self) -> Self {
        Self {
            copies: self.copies.min(other.copies),
            lost: self.lost.max(other.lost),
        }
    }

    /// Counts servers that were lost, of which so many held everything of their keys. Returns whether
    /// some write may have been lost with them.
    fn lose(&mut self, full: u32, joining: u32) -> bool {
        self.lost = self.lost.saturating_add(full).saturating_add(joining);
        // A server that was still copying has no write alone.
        let counts = full > 0 || self.copies > 1;
        let missed = planted(Bug::CopiesNotCounted) && self.copies > 1;
        counts && self.lost >= u32::from(self.copies) && !missed
    }
}

/// What a portal asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Opening {
    /// Chosen by the portal, so that a repetition gets the same epoch.
    pub(super) nonce: u64,
    /// Silence of the present owner after which the opening is granted.
    pub(super) patience: DurationNs,
    /// Servers that have each write that it acknowledges, at least.
    pub(super) copies: u8,
}

/// Whether two sessions are of gateways that have slots in common, and not the same: `slots/0-99` and
/// `slots/50-149`. A key would then be in both, with a value of its own in each.
fn overlap(one: &str, other: &str) -> bool {
    let range = |name: &str| {
        let (first, last) = name.strip_prefix(SLOTS)?.split_once('-')?;
        Some((first.parse::<u16>().ok()?, last.parse::<u16>().ok()?))
    };
    match (range(one), range(other)) {
        (Some(one), Some(other)) => one != other && one.0 <= other.1 && other.0 <= one.1,
        _ => false,
    }
}

impl Controller {
    pub(super) fn open(&mut self, now: MonoNs, sender: u64, name: &str, asked: Opening) {
        let nonce = asked.nonce;
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            let reason = format!(
                "session: its name has {} bytes; wanted 1 to {NAME_BYTES_MAX}",
                name.len()
            );
            self.reply(sender, Control::OpenRefused { nonce, reason });
            return;
        }
        if self.config.is_none() {
            // Asked again until there is a cluster: the servers may be on their way.
            return;
        }
        if let Some(id) = self.names.get(name).copied() {
            if !self.waits_for_owner(now, sender, id, asked) {
                self.open_again(sender, id, asked);
            }
            return;
        }
        if let Some(other) = self.names.keys().find(|it| overlap(it, name)) {
            let reason = format!(
                "session: {name} overlaps {other}, so that the same key would have two values; wanted the same slots, or others; hint: give the gateway the slots of {other}"
            );
            self.reply(sender, Control::OpenRefused { nonce, reason });
            return;
        }
        if self.sessions.len() >= SESSIONS_MAX {
            let reason = format!(
                "session: there are {SESSIONS_MAX} already; wanted fewer; hint: share a session between keys"
            );
            self.reply(sender, Control::OpenRefused { nonce, reason });
            return;
        }
        let number = u32::try_from(self.sessions.len() + 1).unwrap_or(u32::MAX);
        let id = SessionId(number);
        self.names.insert(name.to_owned(), id);
        self.sessions.insert(
            id,
            Session {
                name: name.to_owned(),
                epoch: Epoch(1),
                nonce,
                past_nonces: VecDeque::new(),
                closed: false,
                clean_since: Some(Epoch(1)),
                unknown_through: Epoch(0),
                at: WallNs(0),
                lossy: false,
                fenced: BTreeSet::new(),
                opening: Some(sender),
                free: true,
                heard: now,
                writes: Writes::new(asked.copies),
                earlier: Writes::NONE,
            },
        );
        self.opened(id);
    }

    /// Returns whether a standby has to wait because the session's owner lives.
    fn waits_for_owner(&mut self, now: MonoNs, sender: u64, id: SessionId, asked: Opening) -> bool {
        let Opening {
            nonce, patience, ..
        } = asked;
        let listening = self.listening;
        let Some(session) = self.sessions.get_mut(&id) else {
            return false;
        };
        if session.nonce == nonce {
            session.heard = session.heard.max(now);
            return false;
        }
        let silent = now.since(session.heard.max(listening));
        let waits = !session.closed && silent < patience && !planted(Bug::StandbyImpatient);
        if waits {
            let epoch = session.epoch;
            self.reply(sender, Control::OwnerLives { nonce, epoch });
        } else if !session.past_nonces.contains(&nonce) {
            session.heard = now;
        }
        waits
    }

    /// Notes that the owner of a session has reported that it lives.
    pub(super) fn owner_lives(&mut self, now: MonoNs, id: SessionId, epoch: Epoch) {
        if let Some(session) = self.sessions.get_mut(&id)
            && session.epoch == epoch
        {
            session.heard = session.heard.max(now);
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

    fn open_again(&mut self, sender: u64, id: SessionId, asked: Opening) {
        let nonce = asked.nonce;
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        if session.nonce == nonce {
            // A repetition: the answer may have been lost, or is not known yet.
            if !session.closed {
                session.opening = Some(sender);
            }
            return;
        }
        if session.past_nonces.contains(&nonce) && !planted(Bug::LateOpenObeyed) {
            // A late copy. Nobody waits for the answer but an owner that was never told of its epoch.
            let reason = format!(
                "session: another owner has opened it since, under epoch {}; hint: start again",
                session.epoch.0
            );
            self.reply(sender, Control::OpenRefused { nonce, reason });
            return;
        }
        if session.past_nonces.len() == PAST_NONCES_MAX {
            session.past_nonces.pop_front();
        }
        session.past_nonces.push_back(session.nonce);
        if !session.closed {
            session.earlier = session.earlier.and(session.writes);
            session.clean_since = None;
            // A takeover that nobody was told of gives an old value a new version: what was unknown
            // before stays so.
            if session.lossy || session.unknown_through > Epoch(0) {
                session.unknown_through = session.epoch;
            }
        }
        session.writes = Writes::new(asked.copies);
        session.free = session.closed;
        session.epoch = Epoch(session.epoch.0 + 1);
        session.nonce = nonce;
        session.closed = false;
        session.lossy = false;
        session.fenced.clear();
        session.opening = Some(sender);
        self.opened(id);
    }

    /// A new epoch is given out: on disk, then to the servers.
    fn opened(&mut self, id: SessionId) {
        if !planted(Bug::EpochNotSynced) {
            self.persist();
        }
        let Some(epoch) = self.sessions.get(&id).map(|session| session.epoch) else {
            return;
        };
        for life in self.lives() {
            self.tell(life, Control::Fence(id, epoch));
        }
    }

    /// Notes the time of an owner: the next one's does not begin before it.
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
        let mut tell = Vec::new();
        for (id, session) in &mut self.sessions {
            session.fenced.retain(|life| lives.contains(life));
            if session.fenced.len() == lives.len() {
                continue;
            }
            for life in &lives {
                if !session.fenced.contains(life) {
                    tell.push((*life, *id, session.epoch));
                }
            }
            // Bounded: the rest follows in the next round.
            if tell.len() > 4096 {
                break;
            }
        }
        for (life, id, epoch) in tell {
            self.tell(life, Control::Fence(id, epoch));
        }
    }

    /// Answers the openings for which every member has refused the earlier owner.
    pub(super) fn finish_openings(&mut self) {
        let Some(config) = self.config.clone() else {
            return;
        };
        let lives = self.lives();
        // Whoever was counted out may still serve the earlier owner.
        let settled = self.agreed.is_some() && self.retiring.is_empty();
        let mut answers = Vec::new();
        for (id, session) in &mut self.sessions {
            let all = lives.iter().all(|life| session.fenced.contains(life));
            let ready = session.free || (all && settled) || planted(Bug::OpenBeforeFence);
            if let (true, Some(sender)) = (ready, session.opening) {
                session.opening = None;
                let opened = Opened {
                    nonce: session.nonce,
                    session: *id,
                    epoch: session.epoch,
                    // As it is now: a server may have been lost while the opening waited.
                    clean_since: session.clean_since,
                    unknown_through: session.unknown_through,
                    at: session.at,
                    copies_earlier: session.earlier.copies,
                    config: std::sync::Arc::clone(&config),
                };
                answers.push((sender, opened));
            }
        }
        for (sender, opened) in answers {
            self.reply(sender, Control::Opened(opened));
        }
    }

    pub(super) fn close(&mut self, sender: u64, id: SessionId, epoch: Epoch, untold: bool) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        if session.epoch != epoch {
            let now_owned = session.epoch;
            if epoch < now_owned && !planted(Bug::FencedCloseIgnored) {
                self.reply(sender, Control::Fence(id, now_owned));
            }
            return;
        }
        if !session.closed {
            session.closed = true;
            session.lossy = false;
            session.opening = None;
            if untold {
                session.unknown_through = epoch;
            }
            if session.unknown_through < epoch {
                session.clean_since.get_or_insert(epoch);
            }
            self.persist();
        }
        self.reply(sender, Control::Closed(id, epoch));
    }

    /// The owner has seen to it that whatever it had written by this loss is on every replica: nothing
    /// of that can be lost when it ends. A later loss is another matter.
    pub(super) fn settled(&mut self, sender: u64, id: SessionId, epoch: Epoch, loss: ConfigNumber) {
        let Some(last_loss) = self.config.as_ref().map(|config| config.last_loss) else {
            return;
        };
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        if session.epoch != epoch || session.closed {
            return;
        }
        let is_last = last_loss == loss && !planted(Bug::SettledIgnored);
        if (session.lossy || session.writes.lost > 0) && is_last {
            (session.lossy, session.writes.lost) = (false, 0);
            self.persist();
        }
        self.reply(sender, Control::SettledHeard(id, epoch, last_loss));
    }

    /// All servers that had some key may have been lost: whatever was on every replica may be on none.
    pub(super) fn note_wipe(&mut self) {
        for session in self.sessions.values_mut() {
            session.clean_since = None;
            session.unknown_through = session.unknown_through.max(session.epoch);
        }
    }

    /// Counts servers that were lost with what they held. Once there are as many as a write had
    /// copies, they may have had the last writes of a session alone.
    pub(super) fn count_lost(&mut self, full: usize, joining: usize, amid_change: bool) {
        let count = |servers: usize| u32::try_from(servers).unwrap_or(u32::MAX);
        let (full, joining) = (count(full), count(joining));
        self.lost_amid_change |= amid_change && full + joining > 0;
        self.lost = self.lost.saturating_add(full).saturating_add(joining);
        for session in self.sessions.values_mut() {
            if session.writes.lose(full, joining) && !session.closed {
                session.lossy = true;
            }
            // Nobody has written back what earlier owners left on too few servers.
            if session.earlier.lose(full, joining) {
                let clean = session.clean_since;
                let earlier = clean.unwrap_or(session.epoch).0.saturating_sub(1);
                session.unknown_through = session.unknown_through.max(Epoch(earlier));
            }
        }
    }

    /// Every member has copied what the ones before it had: a key has as many copies as before, as far
    /// as there are as many members. Not if a server was lost meanwhile: it may have been the only one
    /// with a new write that had not been copied yet.
    pub(super) fn copied(&mut self, members: usize) {
        if std::mem::take(&mut self.lost_amid_change) {
            return;
        }
        let missing = usize::from(self.params.replicas).saturating_sub(members);
        let missing = u32::try_from(missing).unwrap_or(u32::MAX);
        self.lost = self.lost.min(missing);
        for session in self.sessions.values_mut() {
            session.writes.lost = session.writes.lost.min(missing);
            session.earlier.lost = session.earlier.lost.min(missing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::overlap;

    #[test]
    fn ranges_of_slots_may_be_the_same_or_apart() {
        for (one, other, wanted) in [
            ("slots/0-16383", "slots/0-8191", true),
            ("slots/0-99", "slots/50-149", true),
            ("slots/0-99", "slots/99-149", true),
            ("slots/0-99", "slots/100-149", false),
            ("slots/0-99", "slots/0-99", false),
            ("slots/0-99", "calls", false),
            ("slots/a-b", "slots/0-99", false),
        ] {
            assert_eq!(overlap(one, other), wanted, "{one} {other}");
            assert_eq!(overlap(other, one), wanted, "{other} {one}");
        }
    }
}
