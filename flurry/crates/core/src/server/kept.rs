//! What a server keeps of its memory when it is counted out while its process lives.
//!
//! The others went on without it, so it comes back as another incarnation. A record that it kept
//! counts again in two cases. First, a member that has everything of the key lists the same
//! version. Then its bytes need not travel. Second, the record is of a write that not every replica
//! has had, and no member took an operation of the session since this server was counted out. Then
//! nobody decided anything without it, and it may have the only copy of an acknowledged write. This
//! case is left out when all replicas of some key were lost meanwhile: the owner is notified of
//! that loss, and must not find a part of it again. The server drops all other records once it has
//! copied everything: they may have been deleted meanwhile, and the members may have forgotten the
//! deletion.

use super::Server;
use super::join::Join;
use crate::bugs::{Bug, planted};
use crate::id::{ConfigNumber, Key, Version};
use crate::machine::StateMachine;
use crate::table::{Record, Table};

/// Records of an incarnation that was counted out.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) table: Table,
    /// The last configuration that the server was a member of.
    pub(super) since: ConfigNumber,
    /// The records of sessions that nobody used meanwhile have been taken out.
    pub(super) settled: bool,
}

impl<M: StateMachine> Server<M> {
    /// Sets the records aside, because the server is no longer a member.
    pub(super) fn keep(&mut self, number: ConfigNumber) {
        let table = std::mem::replace(&mut self.table, Table::new());
        let Some(kept) = &mut self.kept else {
            self.kept = Some(Kept {
                table,
                since: number,
                settled: false,
            });
            return;
        };
        // The server was counted out again before it had copied everything. `since` stays as it is,
        // so the records that it has copied meanwhile are treated as if they were as old as the
        // kept ones.
        kept.settled = false;
        assert!(
            kept.since <= number,
            "the older of two ends decides what others may have done since"
        );
        for record in table.into_records() {
            let have = kept.table.peek(&record.key()).map(|it| it.version);
            if have.is_none_or(|have| have <= record.version) {
                kept.table.put(record);
            }
        }
    }

    /// Returns the bytes of the records that do not count yet.
    pub(super) fn kept_bytes(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.table.bytes())
    }

    /// Drops the kept records that only a member could confirm. That makes room but requires more
    /// copying. Returns whether there were any.
    pub(super) fn let_go_of_kept(&mut self) -> bool {
        let settled = self.kept.as_ref().is_some_and(|kept| kept.settled);
        settled && self.kept.take().is_some()
    }

    /// Returns whether all records that count without a member's confirmation are in the table.
    pub(super) fn kept_is_settled(&self) -> bool {
        self.kept.as_ref().is_none_or(|kept| kept.settled)
    }

    /// Takes up the records that not every replica has had, of the sessions that nobody has used
    /// since this server was counted out. Every member has reported by now when it last took an
    /// operation of each session.
    pub(super) fn settle_kept(&mut self) {
        let ready = self.join.as_ref().is_some_and(Join::is_ready);
        let Some(kept) = self.kept.as_mut().filter(|kept| ready && !kept.settled) else {
            return;
        };
        let Some(config) = &self.config else { return };
        assert!(
            kept.since < config.number,
            "a server returns in a later configuration than the one that left it out"
        );
        kept.settled = true;
        let (since, sessions) = (kept.since, &self.sessions);
        let wiped = config.last_wipe > since;
        let counts = |record: &&Record| {
            let (session, version) = (sessions.get(&record.session()), record.version);
            planted(Bug::KeptBelieved)
                || session.is_some_and(|it| {
                    let under_the_floor =
                        version.epoch == it.epoch && version.sequence <= it.stable;
                    it.used_in <= since && !under_the_floor && !wiped
                })
        };
        let counting = kept.table.iter().filter(counts);
        let keys: Vec<Key> = counting.map(Record::key).collect();
        for key in keys {
            if let Some(record) = self.take_kept(&key) {
                self.take_up(&key, record);
            }
        }
    }

    fn take_kept(&mut self, key: &Key) -> Option<Record> {
        self.kept.as_mut()?.table.take(key)
    }

    /// Takes up the record of a key if it is the listed one. Returns whether the server has at
    /// least that version now.
    pub(super) fn has_listed(&mut self, key: &Key, version: Version) -> bool {
        if self.version(key) >= version {
            return true;
        }
        let kept = self.kept.as_mut().and_then(|it| it.table.find(key));
        let same = |record: &Record| {
            let is_listed = record.version == version || planted(Bug::ListedVersionIgnored);
            is_listed && !record.is_evicted()
        };
        if !kept.is_some_and(same) {
            return false;
        }
        if let Some(record) = self.take_kept(key) {
            self.take_up(key, record);
            self.counts.kept += 1;
        }
        true
    }

    fn take_up(&mut self, key: &Key, record: Record) {
        if self.version(key) >= record.version {
            return;
        }
        if self.persist.is_some() {
            self.changed(key, record.told());
        }
        self.table.put(record);
    }
}
