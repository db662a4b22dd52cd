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
use crate::id::Version;
use crate::machine::StateMachine;
use crate::message::{Control, List, Listed, Message};

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
        for index in (begin..end).rev() {
            let Some((key, record)) = self.table.at(index) else {
                continue;
            };
            let mut asked = question.sessions.iter();
            if !asked.any(|it| it.session == key.session()) {
                continue;
            }
            let session = self.sessions.get(&key.session());
            let epoch = session.map(|it| it.epoch);
            let earlier = |version: Version| epoch.is_some_and(|epoch| version.epoch < epoch);
            let listed = match &record.state {
                Some(state) => {
                    let ended = self.machine.has_ended(state, question.at);
                    let fits = |kind| kind == self.machine.kind(state);
                    ended == question.ended
                        && question.kind.is_none_or(fits)
                        && self.is_first_of(&config, key)
                }
                // Another replica may have forgotten it already, so each replica lists its own.
                None => question.ended && earlier(record.version),
            };
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

    /// Forgets deletions that every replica has. An owner of several sessions may use some of them
    /// only for a while.
    fn note_stable(&mut self, question: &List) {
        for owned in &question.sessions {
            let Some(session) = self.sessions.get_mut(&owned.session) else {
                continue;
            };
            if session.epoch == owned.epoch && session.stable < question.stable {
                session.stable = question.stable;
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
