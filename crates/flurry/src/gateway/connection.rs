//! One client: what it has sent, what it still has to be told, and in which order.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use flurry_core::config::Level;
use flurry_core::id::{MonoNs, WallNs};
use flurry_core::key_value::Answer;
use flurry_core::resp::{Reply, Requests, Version};

use super::shape::Shape;
use super::users::User;
use crate::Error;

/// Commands of one client that are under way at most; what it sends behind them waits unread.
const UNDER_WAY_MAX: usize = 1_024;

/// How long replies are taken to be before any is known.
const REPLY_BYTES: usize = 64 << 10;

/// Bytes of replies that wait for one client, or will, before nothing more of it is begun.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// Keys of one client's writes that are kept at most.
const WRITTEN_MAX: usize = 64;

/// Where a reply stands in the order of a client's commands.
pub(super) type Place = u64;

/// A reply of several answers, some of which are still to come.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) shape: Shape,
    /// When it was asked for.
    pub(super) at: WallNs,
    pub(super) answers: Vec<Option<Answer>>,
    pub(super) missing: usize,
    /// The first thing that went wrong.
    pub(super) failed: Option<Error>,
}

#[derive(Debug)]
enum Slot {
    Ready(Reply),
    Waiting(Pending),
}

/// What a client has said of itself.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) version: Version,
    pub(super) name: String,
    pub(super) library_name: String,
    pub(super) library_version: String,
    /// Which replies its operations wait for.
    pub(super) level: Level,
    /// It has to say who it is, and has not.
    pub(super) is_stranger: bool,
    /// Who it is, once that is known.
    pub(super) user: Option<Arc<User>>,
}

/// What a client has written, as far as it is not known to be on every replica.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// The number of the last write.
    pub(super) last: u64,
    keys: Vec<Bytes>,
    /// There were too many keys to keep.
    many: bool,
}

impl Written {
    pub(super) fn note(&mut self, number: u64, key: Bytes) {
        self.last = number;
        if self.keys.len() < WRITTEN_MAX {
            self.keys.push(key);
        } else {
            self.many = true;
        }
    }

    /// The keys that are not known to be on every replica, when it is known which these are: every write
    /// up to `stable` is. They are kept, since whoever asks for copies may not get them.
    pub(super) fn keys(&mut self, stable: u64) -> Option<Vec<Bytes>> {
        if stable >= self.last {
            self.keys.clear();
            self.many = false;
        }
        (!self.many).then(|| self.keys.clone())
    }
}

/// One client.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) number: u64,
    pub(super) address: SocketAddr,
    pub(super) since: MonoNs,
    pub(super) heard: MonoNs,
    pub(super) said: Said,
    pub(super) last_command: &'static str,
    pub(super) written: Written,
    /// Passwords that were wrong.
    pub(super) wrong: u32,
    pub(super) input: BytesMut,
    pub(super) requests: Requests,
    pub(super) output: BytesMut,
    /// Nothing behind what is written already will be read or told.
    pub(super) ends: bool,
    /// What comes behind the command at this place begins when it is answered.
    barrier: Option<Place>,
    /// How long replies were lately.
    reply_bytes: usize,
    slots: VecDeque<Slot>,
    /// The place of the first slot.
    first: Place,
}

impl Connection {
    pub(super) fn new(
        number: u64,
        address: SocketAddr,
        now: MonoNs,
        said: Said,
        requests: Requests,
    ) -> Self {
        Self {
            number,
            address,
            since: now,
            heard: now,
            said,
            last_command: "NULL",
            written: Written::default(),
            wrong: 0,
            input: BytesMut::new(),
            requests,
            output: BytesMut::new(),
            ends: false,
            barrier: None,
            reply_bytes: REPLY_BYTES,
            slots: VecDeque::new(),
            first: 0,
        }
    }

    /// Whether another of its commands may be begun.
    pub(super) fn has_room(&self) -> bool {
        let under_way = self.slots.len();
        let bytes = self.output.len() + under_way * self.reply_bytes;
        let may = !self.ends && self.barrier.is_none() && under_way < UNDER_WAY_MAX;
        may && bytes < OUTPUT_BYTES_MAX
    }

    /// As [`Self::expect`], and whatever comes behind it waits until it is answered.
    pub(super) fn expect_alone(&mut self) -> Place {
        let place = self.expect(Pending::new(Shape::Number, WallNs(0), 1));
        self.barrier = Some(place);
        place
    }

    /// Commands that were begun and not told.
    pub(super) fn under_way(&self) -> usize {
        self.slots.len()
    }

    /// Tells something as soon as everything before it is told.
    pub(super) fn tell(&mut self, reply: Reply) {
        if self.slots.is_empty() {
            reply.encode(self.said.version, &mut self.output);
        } else {
            self.slots.push_back(Slot::Ready(reply));
        }
    }

    /// Keeps a place for a reply whose answers are still to come.
    pub(super) fn expect(&mut self, pending: Pending) -> Place {
        self.slots.push_back(Slot::Waiting(pending));
        self.first + (self.slots.len() as u64) - 1
    }

    /// Notes the answer of one step of a command.
    pub(super) fn answered(&mut self, place: Place, step: usize, outcome: Result<Answer, Error>) {
        let index = place.checked_sub(self.first).map(usize::try_from);
        let Some(Ok(index)) = index else { return };
        let Some(slot @ Slot::Waiting(_)) = self.slots.get_mut(index) else {
            return;
        };
        let Slot::Waiting(pending) = slot else { return };
        pending.missing = pending.missing.saturating_sub(1);
        match outcome {
            Ok(answer) => {
                if let Some(kept) = pending.answers.get_mut(step) {
                    *kept = Some(answer);
                }
            }
            Err(error) => {
                pending.failed.get_or_insert(error);
            }
        }
        if pending.missing == 0 {
            // Whatever was under way when the outcome of something got lost: its client must look anew.
            let unknown = matches!(pending.failed, Some(Error::Unknown { .. }));
            *slot = Slot::Ready(pending.reply());
            if unknown {
                self.slots.truncate(index + 1);
                self.ends = true;
            }
        }
        self.advance();
    }

    /// Notes the whole reply of a command.
    pub(super) fn settled(&mut self, place: Place, reply: Reply) {
        let index = place.checked_sub(self.first).map(usize::try_from);
        if let Some(Ok(index)) = index
            && let Some(slot @ Slot::Waiting(_)) = self.slots.get_mut(index)
        {
            *slot = Slot::Ready(reply);
            self.barrier = self.barrier.filter(|it| *it != place);
            self.advance();
        }
    }

    fn advance(&mut self) {
        while let Some(Slot::Ready(_)) = self.slots.front() {
            if let Some(Slot::Ready(reply)) = self.slots.pop_front() {
                let before = self.output.len();
                reply.encode(self.said.version, &mut self.output);
                let bytes = self.output.len() - before;
                self.reply_bytes = bytes.max(self.reply_bytes - self.reply_bytes / 8);
            }
            self.first += 1;
        }
    }

    /// Everything that it will be told is written.
    pub(super) fn is_over(&self) -> bool {
        self.ends && self.slots.is_empty() && self.output.is_empty()
    }
}

impl Said {
    pub(super) fn new(level: Level, is_stranger: bool) -> Self {
        Self {
            is_stranger,
            version: Version::Two,
            name: String::new(),
            library_name: String::new(),
            library_version: String::new(),
            level,
            user: None,
        }
    }
}

impl Pending {
    pub(super) fn new(shape: Shape, at: WallNs, steps: usize) -> Self {
        Self {
            shape,
            at,
            answers: vec![None; steps],
            missing: steps,
            failed: None,
        }
    }

    fn reply(&mut self) -> Reply {
        match self.failed.take() {
            Some(error) => super::failure(&error),
            None => {
                let answers = self.answers.drain(..).flatten().collect();
                self.shape.reply(answers, self.at)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn what_was_written_is_asked_for_again_until_every_replica_has_it() {
        let mut written = Written::default();
        written.note(1, key("a"));
        written.note(2, key("b"));
        for stable in [0, 1, 1] {
            assert_eq!(written.keys(stable), Some(vec![key("a"), key("b")]));
        }
        assert_eq!(written.keys(2), Some(Vec::new()));
        for number in 3..=3 + WRITTEN_MAX as u64 {
            written.note(number, key("c"));
        }
        assert_eq!(written.keys(2), None, "there are more than are kept");
        assert_eq!(written.keys(written.last), Some(Vec::new()));
    }
}
