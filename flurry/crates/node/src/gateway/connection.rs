//! The state of one client: its unfinished input, its commands under way, and the replies that it
//! still has to receive, in order.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use flurry_core::config::Level;
use flurry_core::id::{MonoNs, WallNs};
use flurry_core::key_value::{Answer, Operation};
use flurry_core::resp::{Reply, Requests, Version};

use super::keys::Plan;
use super::shape::Shape;
use super::slow::Finished;
use super::transaction::Transaction;
use super::users::User;
use crate::Error;

/// Maximum number of one client's commands under way, and of the operations of all its commands.
/// The gateway leaves further input unread.
const UNDER_WAY_MAX: usize = 1_024;

/// Maximum number of bytes of values that the gateway keeps for one reply.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Assumed length in bytes of a client's replies before the first is known.
const REPLY_BYTES: usize = 64 << 10;

/// Bytes of replies, waiting or expected, beyond which the gateway begins no further command of a
/// client.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// Maximum number of written keys that the gateway keeps for one client.
const WRITTEN_MAX: usize = 64;

/// The position of a reply in the order of a client's commands.
pub(super) type Place = u64;

/// A reply that needs several answers, some of which are missing.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) shape: Shape,
    /// Time of the command.
    pub(super) at: WallNs,
    pub(super) answers: Vec<Option<Answer>>,
    pub(super) missing: usize,
    /// Bytes of the values among the answers.
    bytes: usize,
    /// Refused steps of a transaction, of which others may have been done.
    refused: Vec<(usize, Reply)>,
    /// The error that the reply is.
    pub(super) failed: Option<Error>,
    /// The command, for the log of slow ones.
    finished: Finished,
}

/// The operations of the last command that have not begun yet.
#[derive(Debug)]
struct Rest {
    place: Place,
    /// Number of the next operation.
    step: usize,
    steps: std::vec::IntoIter<(Bytes, Operation)>,
    /// The time of a transaction, whose operations all begin at once.
    whole_at: Option<WallNs>,
    /// True if the answers are the ends of values that the client watches.
    watches: bool,
}

/// An operation of a command that is to begin.
#[derive(Debug)]
pub(super) struct Next {
    pub(super) place: Place,
    pub(super) step: usize,
    pub(super) key: Bytes,
    pub(super) operation: Operation,
    /// True if the answer is the end of a value that the client watches.
    pub(super) watches: bool,
    /// The owner's time of the operation; `None` for the present time.
    pub(super) at: Option<WallNs>,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a reply that is ready leaves at once, so nearly every slot waits"
)]
enum Slot {
    Ready(Reply),
    Waiting(Pending),
}

/// The settings of a client's connection.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) version: Version,
    pub(super) name: String,
    pub(super) library_name: String,
    pub(super) library_version: String,
    /// Level of the client's operations: the replies that they wait for.
    pub(super) level: Level,
    /// True if the client may choose only levels that promise several copies.
    pub(super) needs_copies: bool,
    /// True if the client must authenticate and has not done so.
    pub(super) is_stranger: bool,
    /// True if the client has been notified that last writes of an earlier owner may be lost.
    pub(super) knows_of_doubt: bool,
    /// The authenticated user.
    pub(super) user: Option<Arc<User>>,
    /// The number of the next command, for [`Operation::Once`].
    pub(super) next_number: Option<u64>,
}

/// The keys of a client's writes that some replica may still lack.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Number of the last write.
    pub(super) last: u64,
    keys: Vec<Bytes>,
    /// True if there were too many keys to keep.
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

    /// Returns the keys that some replica may still lack, or `None` if there were too many to keep.
    /// Every replica has every write up to number `stable`. The keys stay in the list, since a
    /// client that asks for copies may not get them and may ask again.
    pub(super) fn keys(&mut self, stable: u64) -> Option<Vec<Bytes>> {
        if stable >= self.last {
            self.keys.clear();
            self.many = false;
        }
        (!self.many).then(|| self.keys.clone())
    }
}

/// A client of the gateway.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) number: u64,
    pub(super) address: SocketAddr,
    pub(super) since: MonoNs,
    pub(super) heard: MonoNs,
    pub(super) said: Said,
    pub(super) last_command: &'static str,
    pub(super) written: Written,
    pub(super) transaction: Transaction,
    /// Number of wrong passwords so far.
    pub(super) wrong: u32,
    pub(super) input: BytesMut,
    pub(super) requests: Requests,
    /// Bytes of the words of the last command.
    pub(super) command_bytes: usize,
    pub(super) output: BytesMut,
    /// True if the connection ends. The gateway reads no further commands and adds no further
    /// replies.
    pub(super) ends: bool,
    /// Place of a command that blocks later commands until it is answered.
    barrier: Option<Place>,
    /// Recent length of replies in bytes.
    reply_bytes: usize,
    slots: VecDeque<Slot>,
    /// Place of the first slot.
    first: Place,
    rest: Option<Rest>,
    /// The answers of a stage that is over, of a command in stages.
    stage: Option<(Place, Vec<Answer>)>,
    /// A command that waits for a key which another client's command holds.
    pub(super) parked: Option<Vec<Bytes>>,
    /// Number of operations that have begun and are not answered.
    operations: usize,
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
            transaction: Transaction::default(),
            wrong: 0,
            input: BytesMut::new(),
            requests,
            command_bytes: 0,
            output: BytesMut::new(),
            ends: false,
            barrier: None,
            reply_bytes: REPLY_BYTES,
            slots: VecDeque::new(),
            first: 0,
            rest: None,
            stage: None,
            parked: None,
            operations: 0,
        }
    }

    /// Returns whether the gateway may begin another command of this client.
    pub(super) fn has_room(&self) -> bool {
        let under_way = self.slots.len();
        let bytes = self.output.len() + under_way * self.reply_bytes;
        let few = under_way < UNDER_WAY_MAX && self.operations < UNDER_WAY_MAX;
        !self.ends && self.barrier.is_none() && few && bytes < OUTPUT_BYTES_MAX
    }

    /// Reserves a place for the reply to these operations. [`Self::next`] hands them out one by
    /// one.
    pub(super) fn plan(&mut self, plan: Plan, at: WallNs) {
        let Plan { steps, shape } = plan;
        let place = self.expect(self.pending(shape, &steps, at));
        self.rest = Some(Rest {
            place,
            step: 0,
            steps: steps.into_iter(),
            whole_at: None,
            watches: false,
        });
    }

    /// Does the same for operations that all begin at once.
    pub(super) fn plan_whole(&mut self, plan: Plan, at: WallNs) {
        self.plan(plan, at);
        if let Some(rest) = &mut self.rest {
            rest.whole_at = Some(at);
        }
    }

    /// Does the same for the reads of `WATCH`, and blocks later commands until they are answered.
    pub(super) fn plan_alone(&mut self, plan: Plan, at: WallNs) {
        self.plan(plan, at);
        if let Some(rest) = &mut self.rest {
            rest.watches = true;
            self.barrier = Some(rest.place);
        }
    }

    /// Does the same for the first stage of a command in stages, and blocks later commands until
    /// the last one is over.
    pub(super) fn plan_stages(&mut self, plan: Plan, at: WallNs) {
        self.plan(plan, at);
        self.barrier = self.rest.as_ref().map(|rest| rest.place);
    }

    /// Returns the answers of a stage that is over, and the place of the reply to its command.
    pub(super) fn take_stage(&mut self) -> Option<(Place, Vec<Answer>)> {
        self.stage.take()
    }

    /// Returns whether a command under way blocks later ones.
    pub(super) fn is_blocked(&self) -> bool {
        self.barrier.is_some()
    }

    fn pending(&self, shape: Shape, steps: &[(Bytes, Operation)], at: WallNs) -> Pending {
        let finished = Finished {
            name: self.last_command,
            key: steps.first().map(|it| it.0.clone()).unwrap_or_default(),
            keys: steps.len(),
            at,
        };
        Pending::new(shape, finished, steps.len())
    }

    /// Returns whether some operations of the last command have not begun yet.
    pub(super) fn has_rest(&self) -> bool {
        self.rest.is_some()
    }

    /// Returns the bytes of the command that has not arrived completely or whose operations have
    /// not all begun.
    pub(super) fn unfinished_bytes(&self) -> usize {
        // A command in stages has its words while it blocks later ones.
        let is_unfinished = self.rest.is_some() || self.parked.is_some() || self.is_blocked();
        let rest = if is_unfinished { self.command_bytes } else { 0 };
        self.input.len() + self.requests.unfinished_bytes() + self.transaction.bytes() + rest
    }

    /// Returns the key of the next operation of the last command.
    pub(super) fn next_key(&self) -> Option<&Bytes> {
        let rest = self.rest.as_ref()?;
        rest.steps.as_slice().first().map(|(key, _)| key)
    }

    /// Returns the next operation of the last command, or `None` while too many operations are
    /// under way.
    pub(super) fn next(&mut self) -> Option<Next> {
        let rest = self.rest.as_mut()?;
        if self.operations >= UNDER_WAY_MAX && rest.whole_at.is_none() {
            return None;
        }
        let (place, step, watches) = (rest.place, rest.step, rest.watches);
        let at = rest.whole_at;
        let (key, operation) = rest.steps.next()?;
        rest.step += 1;
        if rest.steps.len() == 0 {
            self.rest = None;
        }
        self.operations += 1;
        Some(Next {
            place,
            step,
            key,
            operation,
            watches,
            at,
        })
    }

    /// Does the same as [`Self::expect`], and blocks later commands until this one is answered.
    pub(super) fn expect_alone(&mut self) -> Place {
        let mut pending = self.pending(Shape::Number, &[], WallNs(0));
        pending.missing = 1;
        let place = self.expect(pending);
        self.barrier = Some(place);
        place
    }

    /// Returns the number of commands that have begun and whose reply is not written yet.
    pub(super) fn under_way(&self) -> usize {
        self.slots.len()
    }

    /// Adds a reply, which is written as soon as all earlier replies are written.
    pub(super) fn respond(&mut self, reply: Reply) {
        if self.slots.is_empty() {
            reply.encode(self.said.version, &mut self.output);
        } else {
            self.slots.push_back(Slot::Ready(reply));
        }
    }

    /// Reserves a place for a reply whose answers are still to come, and returns the place.
    pub(super) fn expect(&mut self, pending: Pending) -> Place {
        self.slots.push_back(Slot::Waiting(pending));
        self.first + (self.slots.len() as u64) - 1
    }

    /// Records the outcome of one step of a command. Returns the command if it was the last one.
    pub(super) fn answered(
        &mut self,
        place: Place,
        step: usize,
        outcome: Result<Answer, Error>,
    ) -> Option<Finished> {
        self.operations = self.operations.saturating_sub(1);
        let index = usize::try_from(place.checked_sub(self.first)?).ok()?;
        let slot = self.slots.get_mut(index)?;
        let Slot::Waiting(pending) = slot else {
            return None;
        };
        pending.missing = pending.missing.saturating_sub(1);
        pending.note(step, outcome);
        if pending.failed.is_some()
            && let Some(rest) = self.rest.take_if(|rest| rest.place == place)
        {
            // The reply is an error now, so the remaining operations would be useless.
            pending.missing -= rest.steps.len();
        }
        let mut finished = None;
        if pending.missing == 0 {
            if pending.shape == Shape::Stage && pending.failed.is_none() {
                let answers = pending.answers.drain(..);
                let answers = answers.map(|it| it.unwrap_or(Answer::NotFound));
                self.stage = Some((place, answers.collect()));
                return None;
            }
            // Some outcome is unknown, so the client cannot rely on its later commands either. It
            // has to read the keys anew.
            let unknown = matches!(pending.failed, Some(Error::Unknown { .. }));
            finished = Some(pending.finished.clone());
            *slot = Slot::Ready(pending.reply());
            self.barrier = self.barrier.filter(|it| *it != place);
            if unknown {
                self.slots.truncate(index + 1);
                self.rest = None;
                // A command that came behind is gone, and blocks nothing.
                self.barrier = None;
                self.ends = true;
            }
        }
        self.advance();
        finished
    }

    /// Goes on with a command that blocks later ones: its reply is that to these operations.
    pub(super) fn go_on(&mut self, place: Place, plan: Plan, at: WallNs) {
        if plan.steps.is_empty() {
            self.settled(place, plan.shape.reply(Vec::new(), at));
            return;
        }
        let index = place.checked_sub(self.first).map(usize::try_from);
        let Plan { steps, shape } = plan;
        let mut pending = self.pending(shape, &steps, at);
        if let Some(Ok(index)) = index
            && let Some(slot @ Slot::Waiting(_)) = self.slots.get_mut(index)
        {
            if let Slot::Waiting(before) = slot
                && before.shape == Shape::Stage
            {
                // The command began with its first stage.
                pending.finished = before.finished.clone();
            }
            *slot = Slot::Waiting(pending);
            self.rest = Some(Rest {
                place,
                step: 0,
                steps: steps.into_iter(),
                whole_at: None,
                watches: false,
            });
        }
    }

    /// Records the complete reply to a command. Returns the command.
    pub(super) fn settled(&mut self, place: Place, reply: Reply) -> Option<Finished> {
        let index = usize::try_from(place.checked_sub(self.first)?).ok()?;
        let slot = self.slots.get_mut(index)?;
        let Slot::Waiting(pending) = slot else {
            return None;
        };
        let finished = pending.finished.clone();
        *slot = Slot::Ready(reply);
        self.barrier = self.barrier.filter(|it| *it != place);
        self.advance();
        Some(finished)
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

    /// Returns whether the connection ends and every reply is written.
    pub(super) fn is_over(&self) -> bool {
        self.ends && self.slots.is_empty() && self.output.is_empty()
    }
}

impl Said {
    /// Returns the name by which keys remember this client's numbered commands: that of its user
    /// too, so that nobody gets the answers of another user.
    pub(super) fn caller(&self) -> String {
        let user = self.user.as_ref().map_or("", |user| &user.name);
        format!("{user}\0{}", self.name)
    }

    pub(super) fn new(level: Level, is_stranger: bool) -> Self {
        Self {
            is_stranger,
            knows_of_doubt: false,
            version: Version::Two,
            name: String::new(),
            library_name: String::new(),
            library_version: String::new(),
            level,
            needs_copies: level.promises_copies(),
            user: None,
            next_number: None,
        }
    }
}

impl Pending {
    fn new(shape: Shape, finished: Finished, steps: usize) -> Self {
        Self {
            shape,
            at: finished.at,
            finished,
            answers: vec![None; steps],
            missing: steps,
            bytes: 0,
            refused: Vec::new(),
            failed: None,
        }
    }

    fn is_transaction(&self) -> bool {
        matches!(self.shape, Shape::Transaction(_))
    }

    /// Records an answer. Once the reply has failed, further answers are dropped.
    fn note(&mut self, step: usize, outcome: Result<Answer, Error>) {
        match outcome {
            Ok(answer) if self.failed.is_none() => {
                self.bytes += answer.size_bytes();
                if let Some(kept) = self.answers.get_mut(step) {
                    *kept = Some(answer);
                }
                if self.bytes > ANSWER_BYTES_MAX {
                    let most = ANSWER_BYTES_MAX >> 20;
                    let reason = if self.is_transaction() {
                        format!("it was done, but its replies are longer than {most} MiB together")
                    } else {
                        format!(
                            "its values are longer than {most} MiB together; ask for fewer keys"
                        )
                    };
                    self.failed = Some(Error::Refused { reason });
                }
            }
            Ok(_) => {}
            Err(error @ Error::Unknown { .. }) => self.failed = Some(error),
            // The other keys of a transaction may have been written, so each command gets its reply.
            Err(error) if self.is_transaction() && self.failed.is_none() => {
                self.refused.push((step, super::failure(&error)));
            }
            Err(error) => {
                self.failed.get_or_insert(error);
            }
        }
        if self.failed.is_some() {
            self.answers = Vec::new();
        }
    }

    fn reply_to_answers(&mut self) -> Reply {
        let steps = self.answers.len();
        let answers = self
            .answers
            .drain(..)
            .map(|it| it.unwrap_or(Answer::NotFound));
        let Shape::Transaction(parts) = &self.shape else {
            return self.shape.reply(answers.collect(), self.at);
        };
        let mut outcomes: Vec<_> = answers.map(Ok).collect();
        if self.refused.len() == steps
            && let Some((_, refusal)) = self.refused.pop()
        {
            // Nothing was done.
            return refusal;
        }
        for (step, refusal) in self.refused.drain(..) {
            outcomes[step] = Err(refusal);
        }
        parts.reply(&outcomes, self.at)
    }

    fn reply(&mut self) -> Reply {
        match self.failed.take() {
            Some(error) => super::failure(&error),
            None => self.reply_to_answers(),
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

    fn connection() -> Connection {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let said = Said::new(Level::First, false);
        let requests = Requests::new(flurry_core::resp::Limits::with_words_up_to(1_000));
        Connection::new(1, address, MonoNs(0), said, requests)
    }

    fn plan(keys: usize) -> Plan {
        let step = |_| (key("k"), Operation::Get);
        Plan {
            steps: (0..keys).map(step).collect(),
            shape: Shape::Values,
        }
    }

    /// Returns the operations that may begin now.
    fn begun(connection: &mut Connection) -> Vec<(Place, usize)> {
        let next = || connection.next().map(|it| (it.place, it.step));
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn a_command_of_many_keys_has_a_bounded_number_of_operations_under_way() {
        let mut connection = connection();
        connection.plan(plan(3 * UNDER_WAY_MAX), WallNs(0));
        let first = begun(&mut connection);
        assert_eq!(first.len(), UNDER_WAY_MAX);
        assert!(connection.has_rest() && connection.output.is_empty());
        let mut waiting: VecDeque<_> = first.into();
        let mut answered = 0;
        while let Some((place, step)) = waiting.pop_front() {
            assert_eq!(step, answered, "each once, in their order");
            let value = Bytes::from(format!("{step}"));
            connection.answered(place, step, Ok(Answer::Value(value)));
            answered += 1;
            waiting.extend(begun(&mut connection));
            assert!(waiting.len() <= UNDER_WAY_MAX);
        }
        assert_eq!(answered, 3 * UNDER_WAY_MAX);
        assert!(!connection.has_rest() && connection.under_way() == 0);
        let head = format!("*{answered}\r\n$1\r\n0\r\n$1\r\n1\r\n");
        assert!(connection.output.starts_with(head.as_bytes()));
    }

    #[test]
    fn what_is_behind_a_command_that_is_not_begun_whole_waits() {
        let mut connection = connection();
        connection.plan(plan(UNDER_WAY_MAX), WallNs(0));
        assert_eq!(begun(&mut connection).len(), UNDER_WAY_MAX);
        assert!(!connection.has_room());
        connection.answered(0, 0, Ok(Answer::NotFound));
        assert!(connection.has_room());
    }

    #[test]
    fn a_command_that_has_failed_begins_nothing_more_and_is_told() {
        let mut connection = connection();
        connection.plan(plan(2 * UNDER_WAY_MAX), WallNs(0));
        let first = begun(&mut connection);
        for (number, (place, step)) in first.into_iter().enumerate() {
            let outcome = if number == 5 {
                Err(Error::Busy)
            } else {
                Ok(Answer::NotFound)
            };
            connection.answered(place, step, outcome);
        }
        assert!(!connection.has_rest());
        assert!(
            connection.output.starts_with(b"-BUSY"),
            "{:?}",
            connection.output
        );
    }

    #[test]
    fn a_reply_that_gets_too_long_is_refused() {
        let mut connection = connection();
        connection.plan(plan(200), WallNs(0));
        let value = Bytes::from(vec![b'a'; 1 << 20]);
        for (place, step) in begun(&mut connection) {
            connection.answered(place, step, Ok(Answer::Value(value.clone())));
        }
        let said = String::from_utf8_lossy(&connection.output);
        assert!(
            said.starts_with("-ERR") && said.contains("longer than 64 MiB"),
            "{said}"
        );
    }
}
