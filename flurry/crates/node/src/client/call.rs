//! Runs one operation: begins it, waits for it and returns its outcome.

use std::marker::PhantomData;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use bytes::Bytes;
use flurry_core::config::Level;
use flurry_core::id::{DurationNs, MonoNs};
use flurry_core::key_value::{Answer, HashOperation, Operation};
use flurry_core::machine::Access;
use flurry_core::portal::Submission;

use super::{Answered, Client, Done, Set, thread};
use crate::clock::{self, wall, wall_after};
use crate::fault::Fault;
use crate::owner::Reply;
use crate::{Error, VALUE_BYTES_MAX};

/// How much longer than its own deadline a call waits for the thread to say that it has passed.
const GRACE: Duration = Duration::from_secs(1);

/// One operation about to be asked for.
#[derive(Debug, Clone, Copy)]
#[must_use = "nothing happens before an operation is named"]
pub struct Call<'a> {
    pub(super) client: &'a Client,
    pub(super) level: Level,
    pub(super) timeout: Duration,
    pub(super) sequence: Option<u64>,
    pub(super) wanted: Option<Instant>,
    pub(super) fault: Option<&'a Fault>,
}

impl<'a> Call<'a> {
    /// Waits for these replies.
    pub fn at_level(mut self, level: Level) -> Self {
        self.level = level;
        self
    }

    /// Waits this long.
    pub fn within(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Has the caller's own number, which must be higher than every one before.
    pub fn with_sequence(mut self, sequence: u64) -> Self {
        self.sequence = Some(sequence);
        self
    }

    /// Was wanted at this instant already: that is when the log counts from.
    pub fn wanted_at(mut self, instant: Instant) -> Self {
        self.wanted = Some(instant);
        self
    }

    /// Has this done to every message of it on purpose, to and from each replica that it concerns,
    /// beside what [`crate::Options::faults`] does to all. Its time counts from the client's first fault.
    pub fn with_fault(mut self, fault: &'a Fault) -> Self {
        self.fault = Some(fault);
        self
    }

    /// Does an operation.
    ///
    /// # Errors
    ///
    /// Nothing was done: [`Error::KeyLength`], [`Error::ValueTooLarge`], [`Error::SequenceGoesBack`],
    /// [`Error::Refused`], [`Error::Busy`] when the client is full. Nothing is known: [`Error::Unknown`]. Lost: [`Error::DataLoss`],
    /// [`Error::Evicted`]. Over: [`Error::Fenced`], [`Error::Stopped`].
    pub fn run(self, key: impl Into<Bytes>, operation: &Operation) -> Result<Done, Error> {
        let (sender, told) = mpsc::sync_channel(1);
        let waiting = self.waiting(told, value_bytes(operation))?;
        let bytes = waiting.bytes;
        let task = self.begin(key.into(), operation.encode(), operation.access(), sender);
        done(self.finish(task, waiting)?, bytes)
    }

    /// Does an operation of the machine that the servers were started with
    /// ([`crate::Server::start_with`]), which says `access` of it. The key-value operations are for
    /// servers that were not.
    ///
    /// # Errors
    ///
    /// As [`Self::run`]; [`Error::Refused`] when the machine cannot read it, or would say another
    /// `access`.
    pub fn apply(
        self,
        key: impl Into<Bytes>,
        operation: impl Into<Bytes>,
        access: Access,
    ) -> Result<Answered, Error> {
        let (sender, told) = mpsc::sync_channel(1);
        let operation = operation.into();
        let waiting = self.waiting(told, operation.len())?;
        let task = self.begin(key.into(), operation, access, sender);
        self.finish(task, waiting)
    }

    fn finish(self, task: thread::Task, waiting: Waiting<'a>) -> Result<Answered, Error> {
        let until = MonoNs(clock::now().0.saturating_add(waiting.longest().0));
        match self.client.engine.run(task, &waiting.told, until) {
            Some(outcome) => waiting.judge(outcome),
            None => waiting.raw(),
        }
    }

    /// Begins an operation. Operations on one key run in the order in which they were begun.
    ///
    /// # Errors
    ///
    /// [`Error::ValueTooLarge`], [`Error::Busy`] and [`Error::Stopped`]: nothing was done.
    /// [`Waiting::wait`] returns all other errors.
    pub fn start(self, key: impl Into<Bytes>, operation: &Operation) -> Result<Waiting<'a>, Error> {
        let (sender, told) = mpsc::sync_channel(1);
        let waiting = self.waiting(told, value_bytes(operation))?;
        let task = self.begin(key.into(), operation.encode(), operation.access(), sender);
        self.client.engine.submit(task);
        Ok(waiting)
    }

    fn waiting(
        &self,
        told: Receiver<Result<Answered, Error>>,
        bytes: usize,
    ) -> Result<Waiting<'a>, Error> {
        if bytes > VALUE_BYTES_MAX {
            return Err(Error::ValueTooLarge { bytes });
        }
        Ok(Waiting {
            told,
            timeout: self.timeout,
            bytes,
            client: PhantomData,
        })
    }

    fn begin(
        &self,
        key: Bytes,
        operation: Bytes,
        access: Access,
        reply: Reply<Answered>,
    ) -> thread::Task {
        let wanted = clock::since(self.wanted);
        let timeout = u64::try_from(self.timeout.as_nanos()).unwrap_or(u64::MAX);
        thread::Task {
            submission: Submission {
                key,
                operation,
                access,
                level: self.level,
                at: wall(),
                timeout: DurationNs(timeout),
                sequence: self.sequence,
                refuses_doubt: false,
            },
            wanted,
            reply,
            fault: self.fault.cloned(),
        }
    }

    /// The value; `None` when there is none.
    ///
    /// # Errors
    ///
    /// As [`Call::run`].
    pub fn get(self, key: impl Into<Bytes>) -> Result<Option<Bytes>, Error> {
        match self.run(key, &Operation::Get)?.answer {
            Answer::Value(value) => Ok(Some(value)),
            Answer::NotFound => Ok(None),
            other => Err(Error::unexpected(&other)),
        }
    }

    /// Replaces the value.
    ///
    /// # Errors
    ///
    /// As [`Call::run`].
    pub fn set(self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Result<(), Error> {
        self.set_with(key, value, Set::default()).map(|_| ())
    }

    /// Replaces the value if a condition holds; says whether it did.
    ///
    /// # Errors
    ///
    /// As [`Call::run`].
    pub fn set_with(
        self,
        key: impl Into<Bytes>,
        value: impl Into<Bytes>,
        set: Set,
    ) -> Result<bool, Error> {
        let operation = Operation::Set {
            value: value.into(),
            expires_at: set.expires_after.map(wall_after),
            condition: set.condition,
        };
        self.stored(self.run(key, &operation)?.answer)
    }

    /// Removes the value; says whether there was one.
    ///
    /// # Errors
    ///
    /// As [`Call::run`].
    pub fn delete(self, key: impl Into<Bytes>) -> Result<bool, Error> {
        let operation = Operation::Delete { counted: true };
        self.number(key, &operation).map(|count| count > 0)
    }

    /// Adds to a decimal number, where no value is 0; the sum.
    ///
    /// # Errors
    ///
    /// As [`Call::run`], and [`Error::NotANumber`].
    pub fn increment(self, key: impl Into<Bytes>, by: i64) -> Result<i64, Error> {
        self.number(key, &Operation::Increment(by))
    }

    /// Adds bytes at the end, where no value is empty; the new length.
    ///
    /// # Errors
    ///
    /// As [`Call::run`].
    pub fn append(self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Result<i64, Error> {
        self.number(key, &Operation::Append(value.into()))
    }

    /// Replaces the value when it is `expected` (`None`: when there is none); says whether it was.
    ///
    /// # Errors
    ///
    /// As [`Call::run`].
    pub fn compare_and_set(
        self,
        key: impl Into<Bytes>,
        expected: Option<Bytes>,
        value: impl Into<Bytes>,
    ) -> Result<bool, Error> {
        let operation = Operation::CompareAndSet {
            expected,
            value: value.into(),
        };
        self.stored(self.run(key, &operation)?.answer)
    }

    #[expect(clippy::unused_self, reason = "reads as the end of a call")]
    fn stored(self, answer: Answer) -> Result<bool, Error> {
        match answer {
            Answer::Stored => Ok(true),
            Answer::NotStored | Answer::NotFound => Ok(false),
            other => Err(Error::unexpected(&other)),
        }
    }

    fn number(self, key: impl Into<Bytes>, operation: &Operation) -> Result<i64, Error> {
        match self.run(key, operation)?.answer {
            Answer::Number(number) => Ok(number),
            other => Err(Error::unexpected(&other)),
        }
    }
}

/// An operation that was begun. Dropping it does not undo it.
#[derive(Debug)]
#[must_use = "whether it was done is only known by waiting"]
pub struct Waiting<'a> {
    told: Receiver<Result<Answered, Error>>,
    timeout: Duration,
    bytes: usize,
    client: PhantomData<&'a Client>,
}

impl Waiting<'_> {
    /// Waits for the outcome and returns it.
    ///
    /// # Errors
    ///
    /// As [`Call::run`].
    pub fn wait(self) -> Result<Done, Error> {
        let bytes = self.bytes;
        done(self.raw()?, bytes)
    }

    fn raw(self) -> Result<Answered, Error> {
        let longest = Duration::from_nanos(self.longest().0);
        let outcome = self.told.recv_timeout(longest);
        self.judge(outcome.unwrap_or_else(|_| Err(self.unknown())))
    }

    /// How long to wait for the outcome: the thread says itself that the time is over.
    fn longest(&self) -> DurationNs {
        let longest = self.timeout.saturating_add(GRACE).as_nanos();
        DurationNs(u64::try_from(longest).unwrap_or(u64::MAX))
    }

    fn unknown(&self) -> Error {
        Error::Unknown {
            waited_ms: self.timeout.as_millis(),
        }
    }

    fn judge(&self, outcome: Result<Answered, Error>) -> Result<Answered, Error> {
        match outcome {
            Err(Error::Unknown { .. }) => Err(self.unknown()),
            outcome => outcome,
        }
    }
}

/// Returns the answer of the key-value state machine to an operation with `bytes` bytes of values.
fn done(applied: Answered, bytes: usize) -> Result<Done, Error> {
    let answer = Answer::decode(applied.answer).map_err(|error| Error::Refused {
        reason: error.to_string(),
    })?;
    if answer == Answer::TooLarge {
        return Err(Error::ValueTooLarge { bytes });
    }
    Ok(Done {
        sequence: applied.sequence,
        answer,
        is_tail_unknown: applied.is_tail_unknown,
        took: applied.took,
    })
}

/// Bytes of values that an operation carries: together they must fit a message.
fn value_bytes(operation: &Operation) -> usize {
    match operation {
        Operation::Get
        | Operation::Delete { .. }
        | Operation::Increment(_)
        | Operation::Take
        | Operation::Expire { .. }
        | Operation::Expiry
        | Operation::Kind
        | Operation::SetBit { .. }
        | Operation::IncrementFraction(_)
        | Operation::Prolong { .. } => 0,
        Operation::Set { value, .. }
        | Operation::Append(value)
        | Operation::Exchange { value, .. }
        | Operation::SetRange { value, .. } => value.len(),
        Operation::CompareAndSet { expected, value } => {
            value.len() + expected.as_ref().map_or(0, Bytes::len)
        }
        Operation::IfEqual { expected, then } => expected.len() + value_bytes(then),
        Operation::Once { caller, then, .. } => caller.len() + value_bytes(then),
        Operation::Several(all) => all.iter().map(value_bytes).sum(),
        Operation::Hash(HashOperation::Set { fields, .. }) => {
            fields.iter().map(|it| it.name.len() + it.value.len()).sum()
        }
        Operation::Hash(HashOperation::Get(names) | HashOperation::Delete(names)) => {
            names.iter().map(Bytes::len).sum()
        }
        Operation::Hash(HashOperation::All) => 0,
        Operation::Hash(HashOperation::Increment { name, .. }) => name.len(),
    }
}
