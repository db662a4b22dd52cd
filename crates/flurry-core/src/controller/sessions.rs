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
    pub(super) fn open(
        &mut self,
        now: MonoNs,
        sender: u64,
        name: &str,
        nonce: u64,
        patience: DurationNs,
    ) {
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
            if !self.waits_for_owner(now, sender, id, nonce, patience) {
                self.open_again(sender, id, nonce);
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
            },
        );
        self.opened(id);
    }

    /// Returns whether a standby has to wait because the session's owner lives.
    fn waits_for_owner(
        &mut self,
        now: MonoNs,
        sender: u64,
        id: SessionId,
        nonce: u64,
        patience: DurationNs,
    ) -> bool {
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

    fn open_again(&mut self, sender: u64, id: SessionId, nonce: u64) {
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
            session.clean_since = None;
            // A takeover that nobody was told of gives an old value a new version: what was unknown
            // before stays so.
            if session.lossy || session.unknown_through > Epoch(0) {
                session.unknown_through = session.epoch;
            }
        }
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
        let is_last =
            last_loss == loss && !planted(Bug::SettledIgnored) || planted(Bug::LaterLossSettled);
        if session.lossy && is_last {
            session.lossy = false;
            self.persist();
        }
        self.reply(sender, Control::SettledHeard(id, epoch, last_loss));
    }

    /// A server was lost with what it held: sessions whose last writes it may have had alone.
    pub(super) fn note_loss(&mut self, wipe: bool) {
        for session in self.sessions.values_mut() {
            if wipe {
                // Whatever was on every replica may be on none now.
                session.clean_since = None;
                session.unknown_through = session.unknown_through.max(session.epoch);
            }
            if !session.closed {
                session.lossy = true;
            }
            // Earlier owners that never closed left keys that may have been on the lost server only.
            let clean = session.clean_since;
            let earlier = clean.unwrap_or(session.epoch).0.saturating_sub(1);
            session.unknown_through = session.unknown_through.max(Epoch(earlier));
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
