//! Copying the records that a server is to hold after a change of the members.
//!
//! The server asks every old member, because the only member with a write may be the one that
//! acknowledged it. Each of them goes by the new configuration already. The joining server
//! therefore receives the writes that they acknowledge from now on, and a scan may miss these. The
//! sessions come before the keys: the server answers no operation before it knows all their stable
//! numbers. Scans run from the end of the table to its beginning. A removal moves the last record
//! into the gap, and no record is removed during a change.
//!
//! A server that was counted out while its process lived has records of its own. It gets the
//! versions of the keys, and asks for the records that it lacks.

use std::collections::{BTreeMap, BTreeSet};

use super::{Destination, Server};
use crate::bugs::{Bug, planted};
use crate::config::{Config, Member};
use crate::id::{ConfigNumber, DurationNs, Endpoint, Key, MonoNs, ServerId, Version};
use crate::machine::StateMachine;
use crate::message::{Batch, Control, Cursor, Life, Message, Pull};

/// The time after which a pull without an answer is repeated.
const PULL_AGAIN: DurationNs = DurationNs::millis(20);

/// The progress of copying from one member.
#[derive(Debug, Clone, Hash)]
struct Source {
    /// The place to ask for next.
    cursor: Cursor,
    /// The time of the next pull.
    next_pull: MonoNs,
    /// True if it has sent all its sessions. Later parts may not fit into this server's memory.
    sessions_told: bool,
    /// With [`Cursor::Missing`]: listed keys of which this server lacks the record.
    missing: Vec<Key>,
    /// The place at which to go on after these keys.
    after: Option<Cursor>,
    done: bool,
}

/// A server's copying in one configuration.
#[derive(Debug, Clone, Hash)]
pub(super) struct Join {
    number: ConfigNumber,
    /// True if the server had no records, and so must know the sessions first.
    new_here: bool,
    /// True if the server has records of its own, so that the others' versions show which it lacks.
    lists: bool,
    sources: BTreeMap<ServerId, Source>,
}

impl Join {
    /// Returns the copying that this configuration requires, if any.
    pub(super) fn needed(
        now: MonoNs,
        life: Life,
        config: &Config,
        has_records: bool,
    ) -> Option<Self> {
        let next = config.next.as_ref()?;
        let is_me = |member: &Member| {
            member.server == life.endpoint.server && member.incarnation == life.incarnation
        };
        let old = config.members.iter().any(is_me);
        if !next.iter().any(is_me) {
            return None;
        }
        // With no more members than replicas, every old member holds every key already.
        let complete = old && config.members.len() <= usize::from(config.replicas);
        // If all replicas of some key may be gone, the joining servers may have its only copies.
        // Then they are asked too, so that all hold the same in the end.
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
                    missing: Vec::new(),
                    after: None,
                    done: false,
                };
                (member.server, source)
            })
            .collect();
        let sources: BTreeMap<ServerId, Source> = sources;
        assert!(
            !complete || sources.is_empty(),
            "a server with all records copies nothing"
        );
        Some(Self {
            number: config.number,
            new_here: !old,
            lists: !old && has_records,
            sources,
        })
    }

    /// Returns whether it knows the sessions of every source, so that no delayed write can bring a
    /// deleted key back.
    pub(super) fn is_ready(&self) -> bool {
        !self.new_here || self.sources.values().all(|source| source.sessions_told)
    }

    /// Returns whether it has copied every source.
    pub(super) fn is_done(&self) -> bool {
        self.sources.values().all(|source| source.done)
    }

    /// Checks what holds between two inputs, in this configuration; for the simulation.
    ///
    /// # Panics
    ///
    /// When it copies for another configuration, or a source is done too early.
    pub(super) fn verify(&self, number: ConfigNumber) {
        assert_eq!(
            self.number, number,
            "it copies what this configuration wants"
        );
        assert!(
            self.is_ready() || !self.is_done(),
            "the sessions come before everything else"
        );
        for (server, source) in &self.sources {
            let asks = matches!(source.cursor, Cursor::Missing(_));
            assert!(
                !source.done || source.missing.is_empty(),
                "{server:?} has sent everything"
            );
            assert!(
                asks || source.missing.is_empty(),
                "{server:?}: records are asked for by their names"
            );
            assert!(
                source.sessions_told || !source.done || !self.new_here,
                "{server:?}: a late write could bring a deletion back"
            );
        }
    }

    pub(super) fn next_pull(&self) -> MonoNs {
        let open = self.sources.values().filter(|source| !source.done);
        open.map(|source| source.next_pull)
            .min()
            .unwrap_or(MonoNs(u64::MAX))
    }
}

impl<M: StateMachine> Server<M> {
    /// Asks the controller to let it join, with the number of the controller's question.
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
            let pull = Message::Control(Control::Pull(Pull {
                life,
                config: join.number,
                cursor: source.cursor,
                lists: join.lists,
                keys: source.missing.clone(),
            }));
            self.outbox.push_back((Destination::Server(to), pull));
        }
    }

    pub(super) fn handle_batch(&mut self, now: MonoNs, batch: Batch) {
        let Some(join) = &mut self.join else { return };
        let Some(source) = join.sources.get_mut(&batch.from.server) else {
            return;
        };
        // A repeated or late part answers an earlier cursor, because each part of a copy has its
        // own.
        if join.number != batch.config || source.done || source.cursor != batch.cursor {
            return;
        }
        let missing = matches!(batch.cursor, Cursor::Missing(_));
        source.sessions_told |= !missing && !matches!(batch.next, Some(Cursor::Sessions(_)));
        let mut all = true;
        for it in batch.sessions {
            all &= self.fence(it.session, it.epoch);
            if let Some(known) = self.sessions.get_mut(&it.session) {
                known.used_in = known.used_in.max(it.used_in);
                known.at = known.at.max(it.at);
                if known.epoch == it.epoch {
                    known.stable = known.stable.max(it.stable);
                }
            }
        }
        self.settle_kept();
        let mut had = BTreeSet::new();
        for (key, state) in batch.entries {
            let has = self.install(&key, &state) == Ok(true);
            all &= has;
            if has && missing {
                had.insert(key);
            }
        }
        let lacks =
            |(key, version): (Key, Version)| (!self.has_listed(&key, version)).then_some(key);
        let lacking: Vec<Key> = batch.listed.into_iter().filter_map(lacks).collect();
        let from = batch.from.server;
        // A part that does not fit, or cannot be read, is asked for again. This server never counts
        // as synced without it.
        let done = if missing {
            self.note_missing(now, from, &had)
        } else if lacking.is_empty() {
            all && self.note_batch(now, from, batch.next)
        } else {
            all && self.ask_for(now, from, lacking, batch.next)
        };
        if done {
            self.kept = None;
        }
        self.pull_again(now);
        if done {
            self.ping(now);
        }
    }

    /// Notes the listed keys whose records this server lacks. Returns false, because more parts
    /// follow.
    fn ask_for(
        &mut self,
        now: MonoNs,
        from: ServerId,
        keys: Vec<Key>,
        next: Option<Cursor>,
    ) -> bool {
        assert!(
            !keys.is_empty(),
            "an empty question would be asked for ever"
        );
        let join = self.join.as_mut();
        if let Some(source) = join.and_then(|join| join.sources.get_mut(&from)) {
            assert!(
                source.missing.is_empty() && !source.done,
                "the keys of one part are all there before the next is asked for"
            );
            // Records begin below place 1 at the lowest, so 0 stands for the part that ended the
            // sessions.
            let below = match source.cursor {
                Cursor::Keys(below) => below,
                Cursor::Sessions(_) | Cursor::Missing(_) => 0,
            };
            source.cursor = Cursor::Missing(below);
            source.next_pull = now;
            source.missing = keys;
            source.after = next;
        }
        false
    }

    /// Notes records of a source that this server lacked. Returns whether they were its last.
    fn note_missing(&mut self, now: MonoNs, from: ServerId, had: &BTreeSet<Key>) -> bool {
        let join = self.join.as_mut();
        let Some(source) = join.and_then(|join| join.sources.get_mut(&from)) else {
            return false;
        };
        source.missing.retain(|key| !had.contains(key));
        if !source.missing.is_empty() {
            if !had.is_empty() {
                source.next_pull = now;
            }
            return false;
        }
        let after = source.after;
        self.note_batch(now, from, after)
    }

    /// Notes the next part of a source. Returns whether it was the last.
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
            assert!(
                source.missing.is_empty(),
                "a source with missing records is not done"
            );
        }
        join.is_done()
    }

    /// Returns whether this server has every write of a key, so that "not found" is an answer.
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

    /// Returns whether the server may take operations.
    pub(super) fn is_ready(&self) -> bool {
        self.join.as_ref().is_none_or(Join::is_ready)
    }
}
