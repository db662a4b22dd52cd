//! The list of keys for an owner of sessions.
//!
//! Only the first replica of a key with a value lists it, so that all servers together list it
//! once. The list includes each key that was on every replica when the owner began, and that stays.
//! Places are read downwards, because a removal moves the last record, which was read before, into
//! the gap.
//!
//! The list of ended values also has the keys that were deleted or evicted under an earlier owner.
//! Every replica lists these. The server cannot forget them by itself: only a write of the present
//! owner is known to be on every replica.

use super::{Destination, Server};
use crate::machine::StateMachine;
use crate::message::{Control, List, Listed, Message};
use crate::table::Record;

/// The most bytes of values that one question looks at, but for the last value: a copy of each is
/// read, and other requests wait meanwhile.
const VALUE_BYTES_MAX: usize = 1 << 20;

/// The most bytes of keys in one answer, so that it fits a datagram.
const KEY_BYTES_MAX: usize = 32 << 10;

// The longest key and its length fit, and an answer of this size fits a datagram.
const _: () = assert!(crate::id::Key::BYTES_MAX < KEY_BYTES_MAX);
const _: () =
    assert!(KEY_BYTES_MAX + 4 * (List::RECORDS_MAX as usize) < crate::wire::DATAGRAM_BYTES_MAX);

impl<M: StateMachine> Server<M> {
    pub(super) fn handle_list(
        &mut self,
        now: crate::id::MonoNs,
        back: Destination,
        question: List,
    ) {
        let Some(config) = self.config.clone() else {
            return;
        };
        if question.config != config.number || self.lease_left(now).0 == 0 {
            return;
        }
        self.note_stable(&question);
        let len = self.table.len();
        let end = usize::try_from(question.below).map_or(len, |below| below.min(len));
        let records = question.records.min(List::RECORDS_MAX) as usize;
        let begin = end.saturating_sub(records.max(1));
        let (mut keys, mut bytes, mut next) = (Vec::new(), 0, begin);
        let mut value_bytes = 0;
        for index in (begin..end).rev() {
            let Some(record) = self.table.at(index) else {
                continue;
            };
            let mut asked = question.sessions.iter();
            if !asked.any(|it| it.session == record.session()) {
                continue;
            }
            if value_bytes > VALUE_BYTES_MAX {
                next = index + 1;
                break;
            }
            let key = record.key();
            if record.is_tombstone() || self.is_first_of(&config, &key) {
                value_bytes += record.snapshot().map_or(0, <[u8]>::len);
            } else {
                continue;
            }
            let listed = self.is_listed(record, &question);
            if !listed {
                continue;
            }
            bytes += key.bytes().len();
            if bytes > KEY_BYTES_MAX {
                next = index + 1;
                break;
            }
            keys.push(key.bytes().clone());
        }
        assert!(
            next < end || end == 0,
            "the owner asks on below place {end}, or it would never be done"
        );
        assert!(
            keys.len() <= records.max(1),
            "each record that was looked at is listed once at most"
        );
        let listed = Listed {
            from: self.params.life.endpoint,
            question,
            next: (next > 0).then_some(next as u64),
            keys,
        };
        self.send(back, Message::Control(Control::Listed(listed)));
    }

    /// Returns whether a record is among those that a question asks for.
    fn is_listed(&self, record: &Record, question: &List) -> bool {
        let Some(state) = record.state(&self.machine) else {
            // Another replica may have forgotten it already, so each replica lists its own.
            let session = self.sessions.get(&record.session());
            let is_earlier = session.is_some_and(|it| record.version.epoch < it.epoch);
            return question.ended && is_earlier;
        };
        let is_asked_for = if question.ended {
            self.machine.may_go(&state, question.at)
        } else {
            !self.machine.has_ended(&state, question.at)
        };
        let fits = |kind| kind == self.machine.kind(&state);
        is_asked_for && question.kind.is_none_or(fits)
    }

    /// Forgets deletions that every replica has. An owner of several sessions may use some of them
    /// only for a while.
    fn note_stable(&mut self, question: &List) {
        let number = self.number();
        for owned in &question.sessions {
            let Some(session) = self.sessions.get_mut(&owned.session) else {
                continue;
            };
            if session.epoch == owned.epoch && session.stable < question.stable {
                session.stable = question.stable;
                // A server that was counted out may still have what a forgotten deletion deleted.
                session.used_in = session.used_in.max(number);
                self.bury_some(owned.session, usize::MAX);
            }
        }
    }

    /// Returns whether this server is the first of the replicas that have every write of a key.
    fn is_first_of(&self, config: &crate::config::Config, key: &crate::id::Key) -> bool {
        let first = config.replicas_of(key).iter().find(|replica| replica.old);
        first.is_some_and(|replica| replica.server == self.me())
    }
}
