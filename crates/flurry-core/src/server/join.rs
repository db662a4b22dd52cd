//! Copying what a server shall hold after a change of the members.
//!
//! Every old member is asked, not one: after a write was acknowledged by the first replica, that one
//! may be the only one that has it. A member that is asked goes by the new configuration already, so
//! what it acknowledges from now on is sent to the joining server too, and a scan that misses it
//! loses nothing. Its sessions come before its keys: no operation is answered before all floors are
//! known. Scans run from the end of the table to its beginning, because a removal moves the
//! last record into the gap, and nothing is removed during a change.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use super::{Destination, Server};
use crate::bugs::{Bug, planted};
use crate::config::{Config, Member};
use crate::id::{ConfigNumber, DurationNs, Endpoint, Key, MonoNs, ServerId, SessionId};
use crate::machine::StateMachine;
use crate::message::{Batch, Control, Cursor, Life, Message};
use crate::table::state_of;

/// A part of a copy has this many bytes at most: it fits a datagram unless one value does not.
pub(super) const PART_BYTES_MAX: usize = 32 << 10;

/// What a key has in a part beside itself, its snapshot and its answer, at most.
const ENTRY_BYTES: usize = 64;

/// What a session has in a part at most: three numbers with their tags.
const SESSION_BYTES: usize = 25;

/// When a pull without an answer is repeated.
const PULL_AGAIN: DurationNs = DurationNs::millis(20);

/// How far one old member has been copied.
#[derive(Debug, Clone, Hash)]
struct Source {
    /// What to ask for next.
    cursor: Cursor,
    /// When.
    next_pull: MonoNs,
    /// It has told every session that it knows; of the keys behind them there may be no room for any.
    sessions_told: bool,
    done: bool,
}

/// A server's copying in one configuration.
#[derive(Debug, Clone, Hash)]
pub(super) struct Join {
    number: ConfigNumber,
    /// It held nothing before: it must know the sessions first.
    new_here: bool,
    sources: BTreeMap<ServerId, Source>,
}

impl Join {
    /// What there is to copy in this configuration, if anything.
    pub(super) fn needed(now: MonoNs, life: Life, config: &Config) -> Option<Self> {
        let next = config.next.as_ref()?;
        let is_me = |member: &Member| {
            member.server == life.endpoint.server && member.incarnation == life.incarnation
        };
        let old = config.members.iter().any(is_me);
        if !next.iter().any(is_me) {
            return None;
        }
        // With no more members than replicas everybody holds everything already.
        let complete = old && config.members.len() <= usize::from(config.replicas);
        // When all that had some key may be gone, what they had given to other joining servers is all
        // that is left of it: then these are asked too, so that all hold the same in the end.
        let shared = config.is_wiped() || config.needs_disks();
        let others = config.next.iter().flatten().filter(|_| shared);
        let sources = config
            .members
            .iter()
            .chain(others)
            .filter(|member| !complete && !member.gone && !is_me(member))
            .map(|member| {
                let source = Source {
                    cursor: Cursor::START,
                    next_pull: now,
                    sessions_told: false,
                    done: false,
                };
                (member.server, source)
            })
            .collect();
        Some(Self {
            number: config.number,
            new_here: !old,
            sources,
        })
    }

    /// It knows the sessions of every source, so that no delayed write can bring a deleted key back.
    pub(super) fn is_ready(&self) -> bool {
        !self.new_here || self.sources.values().all(|source| source.sessions_told)
    }

    /// It has everything.
    pub(super) fn is_done(&self) -> bool {
        self.sources.values().all(|source| source.done)
    }

    pub(super) fn next_pull(&self) -> MonoNs {
        let open = self.sources.values().filter(|source| !source.done);
        open.map(|source| source.next_pull)
            .min()
            .unwrap_or(MonoNs(u64::MAX))
    }
}

/// A part that grows to its limit.
struct Part {
    batch: Batch,
    bytes: usize,
    bytes_max: usize,
}

impl Part {
    /// Whether so much more fits. The first thing always does: it may be larger than any part.
    fn takes(&mut self, bytes: usize) -> bool {
        let first = self.batch.sessions.is_empty() && self.batch.entries.is_empty();
        if !first && self.bytes + bytes > self.bytes_max {
            return false;
        }
        self.bytes += bytes;
        true
    }
}

impl<M: StateMachine> Server<M> {
    /// Asks the controller to let it take part, with the number that it was asked to prove it with.
    pub(super) fn ask_to_join(&mut self, proof: u64) {
        let life = self.params.life;
        // The first shard asks for the whole server, and the others follow the configuration. A
        // shard that has given up the server's incarnation cannot follow; it asks for a later
        // incarnation.
        let speaks = life.endpoint.shard.0 == 0 || self.gave_up;
        if self.is_member() || !speaks {
            return;
        }
        let member = Member {
            server: self.me(),
            incarnation: life.incarnation,
            addresses: self.params.addresses.clone(),
            gone: false,
            disk: self.persist.as_ref().map(|it| it.disk),
        };
        let join = Message::Control(Control::Join(member, proof));
        self.send(Destination::Controller, join);
    }

    /// Asks the sources for their next parts.
    pub(super) fn pull_again(&mut self, now: MonoNs) {
        let life = self.params.life;
        let Some(join) = &mut self.join else { return };
        for (server, source) in &mut join.sources {
            if source.done || now < source.next_pull {
                continue;
            }
            source.next_pull = now.after(PULL_AGAIN);
            let to = Endpoint {
                server: *server,
                shard: life.endpoint.shard,
            };
            let pull = Control::Pull(life, join.number, source.cursor);
            self.outbox
                .push_back((Destination::Server(to), Message::Control(pull)));
        }
    }

    pub(super) fn handle_pull(
        &mut self,
        back: Destination,
        target: Life,
        number: ConfigNumber,
        cursor: Cursor,
    ) {
        let Some(config) = self.config.clone() else {
            return;
        };
        let (server, incarnation) = (target.endpoint.server, target.incarnation);
        if config.number != number || !config.has(server, incarnation) {
            return;
        }
        // What comes from the disk goes to the end of the table, behind which no scan looks.
        if self.restores().is_some() {
            return;
        }
        let mut part = Part {
            batch: Batch {
                from: self.params.life.endpoint,
                config: number,
                cursor,
                next: None,
                sessions: Vec::new(),
                entries: Vec::new(),
            },
            bytes: 0,
            bytes_max: self.part_bytes_max,
        };
        let below = match cursor {
            Cursor::Sessions(after) => self.put_sessions(&mut part, after),
            Cursor::Keys(below) => Some(below),
        };
        if let Some(below) = below {
            let wanted = |key: &Key| {
                config.will_hold(server, incarnation, key.hash())
                    && !config.holds_fully(server, incarnation, key.hash())
            };
            self.put_keys(&mut part, below, wanted);
        }
        self.send(back, Message::Control(Control::Batch(part.batch)));
    }

    /// Adds the sessions behind one. When they were the last, says where the keys begin: what comes
    /// into the table from now on is sent to the joining server as well.
    fn put_sessions(&self, part: &mut Part, after: SessionId) -> Option<u64> {
        let mut last = after;
        for (id, session) in self.sessions.range((Excluded(after), Unbounded)) {
            if !part.takes(SESSION_BYTES) {
                part.batch.next = Some(Cursor::Sessions(last));
                return None;
            }
            last = *id;
            let told = (*id, session.epoch, session.stable);
            part.batch.sessions.push(told);
        }
        Some(self.table.len() as u64)
    }

    /// Adds the keys that the joining server wants, from a place of the table downwards.
    fn put_keys(&self, part: &mut Part, below: u64, wanted: impl Fn(&Key) -> bool) {
        let len = self.table.len();
        let end = usize::try_from(below).map_or(len, |below| below.min(len));
        for index in (0..end).rev() {
            let Some((key, record)) = self.table.at(index) else {
                continue;
            };
            if !wanted(key) {
                continue;
            }
            let state = state_of(&self.machine, record);
            let snapshot_bytes = state.snapshot.as_ref().map_or(0, bytes::Bytes::len);
            let bytes = key.bytes().len() + snapshot_bytes + state.answer.len() + ENTRY_BYTES;
            if !part.takes(bytes) {
                part.batch.next = Some(Cursor::Keys(index as u64 + 1));
                return;
            }
            part.batch.entries.push((key.clone(), state));
        }
    }

    pub(super) fn handle_batch(&mut self, now: MonoNs, batch: Batch) {
        let Some(join) = &mut self.join else { return };
        let Some(source) = join.sources.get_mut(&batch.from.server) else {
            return;
        };
        // One that comes twice or late answers an earlier cursor: no two parts of a copy have the same.
        if join.number != batch.config || source.done || source.cursor != batch.cursor {
            return;
        }
        source.sessions_told |= !matches!(batch.next, Some(Cursor::Sessions(_)));
        let mut all = true;
        for (id, epoch, stable) in batch.sessions {
            all &= self.fence(id, epoch);
            if let Some(known) = self.sessions.get_mut(&id)
                && known.epoch == epoch
            {
                known.stable = known.stable.max(stable);
            }
        }
        for (key, state) in batch.entries {
            all &= self.install(&key, state) == Ok(true);
        }
        // What does not fit, or cannot be read, is asked for again: this server never counts as synced.
        let done = all && self.note_batch(now, batch.from.server, batch.next);
        self.pull_again(now);
        if done {
            self.ping(now);
        }
    }

    /// A source has sent its next part. Says whether that was the last of all.
    fn note_batch(&mut self, now: MonoNs, from: ServerId, next: Option<Cursor>) -> bool {
        let Some(join) = &mut self.join else {
            return false;
        };
        if let Some(source) = join.sources.get_mut(&from) {
            match next {
                Some(next) => {
                    source.cursor = next;
                    source.next_pull = now;
                }
                None => source.done = true,
            }
        }
        join.is_done()
    }

    /// Whether this server has everything there is of a key, so that "not found" is an answer.
    pub(super) fn is_full(&self, hash: u64) -> bool {
        let Life {
            endpoint,
            incarnation,
        } = self.params.life;
        planted(Bug::JoiningAnswers)
            || self
                .config
                .as_ref()
                .is_some_and(|config| config.holds_fully(endpoint.server, incarnation, hash))
    }

    /// Whether operations may come yet.
    pub(super) fn is_ready(&self) -> bool {
        self.join.as_ref().is_none_or(Join::is_ready)
    }
}
