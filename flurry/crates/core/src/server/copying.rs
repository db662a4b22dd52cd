//! Answering a joining server: the sessions first, and then the keys or their versions.

use std::ops::Bound::{Excluded, Unbounded};

use super::{Destination, Server};
use crate::id::{Key, SessionId};
use crate::machine::StateMachine;
use crate::message::{Batch, Control, Cursor, Message, Pull, SessionState, State};
use crate::table::Record;

/// The most bytes of a part, so that it fits a datagram unless a single value does not.
pub(super) const PART_BYTES_MAX: usize = 32 << 10;

/// Upper bound of the bytes that a record takes in a part, without its key, snapshot and answer.
const ENTRY_BYTES: usize = 64;

/// Upper bound of the bytes that a listed version takes in a part, without its key.
const LISTED_BYTES: usize = 32;

/// Upper bound of the bytes that a session takes in a part: five numbers with their tags, and a
/// length.
const SESSION_BYTES: usize = 42;

// A part of nothing but small things is a list that its reader takes.
const _: () =
    assert!(PART_BYTES_MAX / SESSION_BYTES < 2_048 && PART_BYTES_MAX / LISTED_BYTES < 2_048);
const _: () = assert!(
    PART_BYTES_MAX + Key::BYTES_MAX + ENTRY_BYTES < crate::wire::DATAGRAM_BYTES_MAX,
    "only one long value makes a part too long for a datagram"
);

/// A part that grows to its limit.
struct Part {
    batch: Batch,
    bytes: usize,
    bytes_max: usize,
}

impl Part {
    /// Returns whether this many more bytes fit. The first item always fits, because it may be
    /// larger than any part.
    fn takes(&mut self, bytes: usize) -> bool {
        let batch = &self.batch;
        let first =
            batch.sessions.is_empty() && batch.entries.is_empty() && batch.listed.is_empty();
        if !first && self.bytes + bytes > self.bytes_max {
            return false;
        }
        self.bytes += bytes;
        true
    }
}

impl<M: StateMachine> Server<M> {
    pub(super) fn handle_pull(&mut self, back: Destination, pull: &Pull) {
        let Some(config) = self.config.clone() else {
            return;
        };
        let (server, incarnation) = (pull.life.endpoint.server, pull.life.incarnation);
        if config.number != pull.config || !config.has(server, incarnation) {
            return;
        }
        // Records from the disk, and kept ones, are appended to the table. A scan that has begun
        // does not see them.
        let grows = !self.kept_is_settled();
        let asks_for_keys = !matches!(pull.cursor, Cursor::Sessions(_));
        if self.restores().is_some() || (grows && asks_for_keys) {
            return;
        }
        let mut part = Part {
            batch: Batch {
                from: self.params.life.endpoint,
                config: pull.config,
                cursor: pull.cursor,
                next: None,
                sessions: Vec::new(),
                entries: Vec::new(),
                listed: Vec::new(),
            },
            bytes: 0,
            bytes_max: self.part_bytes_max,
        };
        let below = match pull.cursor {
            Cursor::Sessions(after) => self.put_sessions(&mut part, after),
            Cursor::Keys(below) => Some(below),
            Cursor::Missing(_) => {
                self.put_missing(&mut part, &pull.keys);
                None
            }
        };
        if let Some(below) = below {
            let wanted = |hash: u64| {
                config.will_hold(server, incarnation, hash)
                    && !config.holds_fully(server, incarnation, hash)
            };
            if grows {
                part.batch.next = Some(Cursor::Keys(u64::MAX));
            } else {
                self.put_keys(&mut part, below, pull.lists, wanted);
            }
        }
        let batch = &part.batch;
        let things = batch.sessions.len() + batch.entries.len() + batch.listed.len();
        assert!(
            part.bytes <= part.bytes_max || things == 1,
            "{things} things in {} bytes: only a single thing may be too long",
            part.bytes
        );
        self.send(back, Message::Control(Control::Batch(part.batch)));
    }

    /// Adds the sessions behind one. After the last session it returns the place at which the keys
    /// begin. Every record that the table gets from then on is sent to the joining server as well.
    fn put_sessions(&self, part: &mut Part, after: SessionId) -> Option<u64> {
        let mut last = after;
        for (id, session) in self.sessions.range((Excluded(after), Unbounded)) {
            if !part.takes(SESSION_BYTES) {
                assert!(last > after, "the next part begins behind this one");
                part.batch.next = Some(Cursor::Sessions(last));
                return None;
            }
            last = *id;
            part.batch.sessions.push(SessionState {
                session: *id,
                epoch: session.epoch,
                stable: session.stable,
                used_in: session.used_in,
                at: session.at,
            });
        }
        Some(self.table.len() as u64)
    }

    /// Adds the keys that the joining server wants, from a place of the table downwards. It adds
    /// their versions if that server has records of its own, and their records otherwise.
    fn put_keys(&self, part: &mut Part, below: u64, lists: bool, wanted: impl Fn(u64) -> bool) {
        let len = self.table.len();
        let end = usize::try_from(below).map_or(len, |below| below.min(len));
        for index in (0..end).rev() {
            let Some(record) = self.table.at(index) else {
                continue;
            };
            if !wanted(record.key_hash()) {
                continue;
            }
            let key = record.key();
            let took = if lists {
                let fits = part.takes(key.bytes().len() + LISTED_BYTES);
                if fits {
                    part.batch.listed.push((key, record.version));
                }
                fits
            } else {
                self.put_entry(part, &key)
            };
            if !took {
                let batch = &part.batch;
                assert!(
                    batch.sessions.len() + batch.entries.len() + batch.listed.len() > 0,
                    "a part that has nothing would be asked for over and over"
                );
                part.batch.next = Some(Cursor::Keys(index as u64 + 1));
                return;
            }
        }
    }

    /// Adds the records of these keys, as many as fit. The asker asks for the others again.
    fn put_missing(&self, part: &mut Part, keys: &[Key]) {
        for key in keys {
            if !self.put_entry(part, key) {
                return;
            }
        }
    }

    /// Adds a key's record if it fits, and returns whether it did.
    fn put_entry(&self, part: &mut Part, key: &Key) -> bool {
        let record = self.table.peek(key);
        let state = record.map_or(State::ABSENT, Record::told);
        let snapshot_bytes = state.snapshot.as_ref().map_or(0, bytes::Bytes::len);
        let bytes = key.bytes().len() + snapshot_bytes + state.answer.len() + ENTRY_BYTES;
        let fits = part.takes(bytes);
        if fits {
            part.batch.entries.push((key.clone(), state));
        }
        fits
    }
}
