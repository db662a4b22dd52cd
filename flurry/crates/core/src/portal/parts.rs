//! The sessions of an owner.
//!
//! Most owners have one session. A gateway has one for each part of the slots that it serves, so
//! that a part can move to another gateway. All sessions share the owner's numbers: a stable number
//! is stable in each of them.

use std::fmt::{self, Debug, Formatter};

use super::{Life, Portal};
use crate::config::majority;
use crate::id::{ConfigNumber, Epoch, Key, OperationId, Sequence, SessionId};
use crate::message::{Opened, OpenedSession, Owned};

/// The sessions that an owner opens, and the assignment of keys to them.
#[derive(Clone)]
pub struct Sessions {
    /// The names of the sessions.
    pub names: Vec<String>,
    /// Returns the number of a key's session, counted from that of the first name.
    pub of: fn(&[u8]) -> usize,
    /// The number of the first name.
    pub first: usize,
}

impl Sessions {
    /// Returns one session for all keys.
    #[must_use]
    pub fn one(name: impl Into<String>) -> Self {
        Self {
            names: vec![name.into()],
            of: |_| 0,
            first: 0,
        }
    }
}

impl Debug for Sessions {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        Debug::fmt(&self.names, formatter)
    }
}

/// The state of an opened session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum State {
    Open,
    Closed,
    Fenced(Epoch),
}

/// A session of the owner.
#[derive(Debug, Clone, Hash)]
pub(super) struct Part {
    pub(super) owned: Owned,
    state: State,
    pub(super) clean_since: Option<Epoch>,
    pub(super) unknown_through: Epoch,
    pub(super) opened_in: ConfigNumber,
    /// True if a majority had each write that earlier owners acknowledged.
    pub(super) earlier_have_majorities: bool,
    /// The fewest servers that have each answer of earlier owners.
    pub(super) quorum_earlier: u8,
}

impl Part {
    fn new(opened: &OpenedSession, in_: &Opened) -> Self {
        let most = majority(usize::from(in_.config.replicas));
        Self {
            owned: Owned {
                session: opened.session,
                epoch: opened.epoch,
            },
            state: State::Open,
            clean_since: opened.clean_since,
            unknown_through: opened.unknown_through,
            opened_in: in_.config.number,
            earlier_have_majorities: usize::from(opened.copies_earlier) >= most,
            quorum_earlier: opened.quorum_earlier,
        }
    }

    /// Returns the epoch of its present owner, if that is another one.
    pub(super) fn fenced(&self) -> Option<Epoch> {
        match self.state {
            State::Fenced(epoch) => Some(epoch),
            State::Open | State::Closed => None,
        }
    }
}

impl Portal {
    pub(super) fn open_parts(&mut self, opened: &Opened) {
        let sessions = &opened.sessions;
        self.parts = sessions.iter().map(|it| Part::new(it, opened)).collect();
        assert_eq!(
            self.parts.len(),
            self.params.sessions.names.len(),
            "each name that was asked for has its place"
        );
    }

    /// Returns the part of a session.
    pub(super) fn part(&self, session: SessionId) -> Option<&Part> {
        let is_it = |it: &&Part| it.owned.session == session;
        // Sessions that were first opened together have numbers in a row.
        let first = self.parts.first()?.owned.session.0;
        let place = usize::try_from(session.0.wrapping_sub(first)).ok()?;
        let found = self.parts.get(place).filter(is_it);
        found.or_else(|| self.parts.iter().find(is_it))
    }

    /// Returns whether the owner still has this session under this epoch.
    pub(super) fn owns(&self, owned: Owned) -> bool {
        self.part(owned.session)
            .is_some_and(|it| it.owned == owned && it.state == State::Open)
    }

    /// Returns the sessions that it has: neither closed nor taken by another owner.
    #[must_use]
    pub fn owned(&self) -> Vec<Owned> {
        let open = self.parts.iter().filter(|it| it.state == State::Open);
        open.map(|it| it.owned).collect()
    }

    /// Returns the part that a key belongs to; `None` if it belongs to another owner.
    pub(super) fn part_of(&self, key: &[u8]) -> Option<&Part> {
        let sessions = &self.params.sessions;
        let index = (sessions.of)(key).checked_sub(sessions.first)?;
        self.parts.get(index)
    }

    /// Returns the session of a key, once it is open.
    #[must_use]
    pub fn session_of(&self, key: &[u8]) -> Option<SessionId> {
        self.part_of(key).map(|it| it.owned.session)
    }

    /// Returns the owner's epoch in a key's session.
    pub(super) fn epoch_of(&self, key: &Key) -> Epoch {
        self.epoch_in(key.session())
    }

    pub(super) fn epoch_in(&self, session: SessionId) -> Epoch {
        self.part(session).map_or(Epoch(0), |it| it.owned.epoch)
    }

    pub(super) fn id(&self, key: &Key, sequence: Sequence) -> OperationId {
        OperationId {
            session: key.session(),
            epoch: self.epoch_of(key),
            sequence,
        }
    }

    /// Notes that a session is closed.
    pub(super) fn close_part(&mut self, owned: Owned) {
        let mut parts = self.parts.iter_mut();
        if let Some(part) = parts.find(|it| it.owned == owned && it.state == State::Open) {
            part.state = State::Closed;
        }
    }

    /// Notes that another owner has a session now. Returns its number among the owner's, or `None`
    /// if that was known or the session is closed.
    pub(super) fn fence_part(&mut self, session: SessionId, epoch: Epoch) -> Option<usize> {
        let of = |it: &Part| it.owned.session == session && it.state == State::Open;
        let index = self.parts.iter().position(of)?;
        assert!(
            self.is_alive(),
            "an owner that has ended has no session to lose"
        );
        self.parts[index].state = State::Fenced(epoch);
        Some(index)
    }

    /// Returns whether it has no session any more: each is closed, or another owner's.
    pub(super) fn has_none(&self) -> bool {
        self.parts.iter().all(|it| it.state != State::Open)
    }

    /// Returns whether it has lost every session to other owners.
    pub(super) fn has_lost_all(&self) -> bool {
        self.parts.iter().all(|it| it.fenced().is_some())
    }

    /// Returns whether it goes on with some sessions.
    pub(super) fn is_alive(&self) -> bool {
        matches!(self.life, Life::Open | Life::Closing)
    }
}
