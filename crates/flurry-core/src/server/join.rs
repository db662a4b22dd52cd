//! Copying what a server shall hold after a change of the members.
//!
//! Every old member is asked, not one: after a write was acknowledged by the first replica, that one
//! may be the only one that has it. A member that is asked goes by the new configuration already, so
//! what it acknowledges from now on is sent to the joining server too, and a scan that misses it
//! loses nothing. Scans run from the end of the table to its beginning, because a removal moves the
//! last record into the gap, and nothing is removed during a change.

use std::collections::BTreeMap;

use super::{Destination, Server};
use crate::bugs::{Bug, planted};
use crate::config::Config;
use crate::id::{ConfigNumber, DurationNs, Endpoint, MonoNs, ServerId};
use crate::machine::StateMachine;
use crate::message::{Batch, Control, Life, Message};
use crate::table::state_of;

/// Keys in a part, and bytes: a part fits a datagram unless one value does not.
const BATCH_KEYS_MAX: usize = 128;
const BATCH_BYTES_MAX: usize = 32 << 10;

/// When a pull without an answer is repeated.
const PULL_AGAIN: DurationNs = DurationNs::millis(20);

#[derive(Debug, Clone, Default)]
struct Source {
    /// Where its last part ended; `None` before the first.
    cursor: Option<u64>,
    begun: bool,
    done: bool,
}

/// A server's copying in one configuration.
#[derive(Debug, Clone)]
pub(super) struct Join {
    number: ConfigNumber,
    /// It held nothing before: it must know the sessions first.
    new_here: bool,
    sources: BTreeMap<ServerId, Source>,
    next_pull: MonoNs,
}

impl Join {
    /// What there is to copy in this configuration, if anything.
    pub(super) fn needed(now: MonoNs, life: Life, config: &Config) -> Option<Self> {
        let next = config.next.as_ref()?;
        let is_me = |member: &crate::config::Member| {
            member.server == life.endpoint.server && member.incarnation == life.incarnation
        };
        let old = config.members.iter().any(is_me);
        if !next.iter().any(is_me) {
            return None;
        }
        // With no more members than replicas everybody holds everything already.
        let complete = old && config.members.len() <= usize::from(config.replicas);
        let sources = config
            .members
            .iter()
            .filter(|member| !complete && !member.gone && !is_me(member))
            .map(|member| (member.server, Source::default()))
            .collect();
        Some(Self {
            number: config.number,
            new_here: !old,
            sources,
            next_pull: now,
        })
    }

    /// It knows the sessions of every source, so that no delayed write can bring a deleted key back.
    pub(super) fn is_ready(&self) -> bool {
        !self.new_here || self.sources.values().all(|source| source.begun)
    }

    /// It has everything.
    pub(super) fn is_done(&self) -> bool {
        self.sources.values().all(|source| source.done)
    }

    pub(super) fn next_pull(&self) -> MonoNs {
        if self.is_done() {
            MonoNs(u64::MAX)
        } else {
            self.next_pull
        }
    }
}

impl<M: StateMachine> Server<M> {
    /// Asks every source for its next part.
    pub(super) fn pull_again(&mut self, now: MonoNs) {
        let life = self.params.life;
        let Some(join) = &mut self.join else { return };
        if join.is_done() || now < join.next_pull {
            return;
        }
        join.next_pull = now.after(PULL_AGAIN);
        for (server, source) in &join.sources {
            if !source.done {
                let to = Endpoint {
                    server: *server,
                    shard: life.endpoint.shard,
                };
                let pull = Control::Pull(life, join.number, source.cursor);
                self.outbox
                    .push_back((Destination::Server(to), Message::Control(pull)));
            }
        }
    }

    pub(super) fn handle_pull(
        &mut self,
        back: Destination,
        target: Life,
        number: ConfigNumber,
        cursor: Option<u64>,
    ) {
        let Some(config) = self.config.clone() else {
            return;
        };
        let (server, incarnation) = (target.endpoint.server, target.incarnation);
        if config.number != number || !config.has(server, incarnation) {
            return;
        }
        let mut batch = Batch {
            from: self.params.life.endpoint,
            config: number,
            cursor,
            next: None,
            entries: Vec::new(),
            sessions: Vec::new(),
        };
        let end = cursor.map_or(self.table.len(), |cursor| {
            usize::try_from(cursor).unwrap_or(0).min(self.table.len())
        });
        let mut bytes = 0;
        for index in (0..end).rev() {
            let Some((key, record)) = self.table.at(index) else {
                continue;
            };
            let wanted = config.will_hold(server, incarnation, key.hash())
                && !config.holds_fully(server, incarnation, key.hash());
            if !wanted {
                continue;
            }
            let state = state_of(&self.machine, record);
            let size =
                key.bytes().len() + state.snapshot.as_ref().map_or(0, bytes::Bytes::len) + 64;
            if !batch.entries.is_empty() && bytes + size > BATCH_BYTES_MAX {
                // It would not fit a datagram beside the others: it is the first of the next part.
                batch.next = Some(index as u64 + 1);
                break;
            }
            bytes += size;
            batch.entries.push((key.clone(), state));
            if index > 0 && batch.entries.len() >= BATCH_KEYS_MAX {
                batch.next = Some(index as u64);
                break;
            }
        }
        if cursor.is_none() {
            batch.sessions = self
                .sessions
                .iter()
                .map(|(id, session)| (*id, session.epoch, session.stable))
                .collect();
        }
        self.send(back, Message::Control(Control::Batch(batch)));
    }

    pub(super) fn handle_batch(&mut self, now: MonoNs, batch: Batch) {
        let Some(join) = &mut self.join else { return };
        let Some(source) = join.sources.get_mut(&batch.from.server) else {
            return;
        };
        if join.number != batch.config || source.done || source.cursor != batch.cursor {
            return;
        }
        source.begun = true;
        for (id, epoch, stable) in batch.sessions {
            self.fence(id, epoch);
            if let Some(known) = self.sessions.get_mut(&id)
                && known.epoch == epoch
            {
                known.stable = known.stable.max(stable);
            }
        }
        let mut all = true;
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
    fn note_batch(&mut self, now: MonoNs, from: ServerId, next: Option<u64>) -> bool {
        let Some(join) = &mut self.join else {
            return false;
        };
        join.next_pull = now;
        if let Some(source) = join.sources.get_mut(&from) {
            source.cursor = next;
            source.done = next.is_none();
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
