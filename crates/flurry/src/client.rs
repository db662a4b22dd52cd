//! A blocking client: the owner of a session, with its router inside.

mod engine;
mod owner;
mod thread;

use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use flurry_core::config::Level;
use flurry_core::id::{DurationNs, Epoch, MonoNs};
use flurry_core::key_value::{Answer, Condition, Operation};
use flurry_core::portal::Submission;

use crate::clock::{self, wall, wall_after};
use crate::fault::{Fault, Faults};
use crate::link::{Link, LinkCounts, Transport};
use crate::recording::Recording;
use crate::{Error, VALUE_BYTES_MAX, loopback};
use engine::Engine;
use owner::{Calls, Owner, Shared, Ways};

/// How much longer than its own deadline a call waits for the thread to say that it has passed.
const GRACE: Duration = Duration::from_secs(1);

/// How a client is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the controller listens.
    pub controller: SocketAddr,
    /// The session's name: a space of keys that has one owner at a time.
    pub session: String,
    /// Which replies an operation waits for, unless it says otherwise.
    pub level: Level,
    /// How long an operation waits, unless it says otherwise.
    pub timeout: Duration,
    /// How long opening and closing wait.
    pub open_timeout: Duration,
    /// How messages travel.
    pub transport: Transport,
    /// A router of its own process or thread, see [`crate::Router`]; without one it is inside.
    pub router: Option<SocketAddr>,
    /// Where every copy of every operation is noted. Only with the router inside.
    pub recording: Option<Recording>,
    /// Faults on purpose.
    pub faults: Faults,
    /// How long a caller that is alone looks for its answer again and again before it sleeps. It saves
    /// a wake-up, which often takes longer than the answer itself. Where answers take longer than this,
    /// or come from the same core, it soon looks for one in 64 only. Zero sleeps at once.
    pub spin: Duration,
}

/// Longer than an answer takes on one machine.
const SPIN: Duration = Duration::from_micros(50);

impl Options {
    /// The first correct reply, waited for up to 2 s; an opening up to 5 s, which is enough for a lost
    /// server's lease to end.
    pub fn new(controller: SocketAddr, session: impl Into<String>) -> Self {
        Self {
            controller,
            session: session.into(),
            level: Level::First,
            timeout: Duration::from_secs(2),
            open_timeout: Duration::from_secs(5),
            transport: Transport::Udp,
            router: None,
            recording: None,
            faults: Faults::default(),
            spin: SPIN,
        }
    }
}

/// How a client was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed {
    /// Every write is on every replica, and the next owner starts without asking. When not, what is
    /// acknowledged is still on at least as many replicas as its level says.
    pub is_stable: bool,
    /// Operations that were not yet on every replica. When there are none, the controller did not
    /// confirm: it is away.
    pub unstable: u64,
}

/// What came of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// Its number in the session.
    pub sequence: u64,
    /// What it answered.
    pub answer: Answer,
    /// An earlier owner's last writes to this key may have been lost.
    pub is_tail_unknown: bool,
    /// From when it was wanted until the client had its answer.
    pub took: Duration,
}

/// What a conditional or expiring write is given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Set {
    /// After this long the value ends.
    pub expires_after: Option<Duration>,
    /// When to do it at all.
    pub condition: Condition,
}

/// The owner of a session. All methods block; many threads may share one client.
///
/// Dropping it without [`Client::close`] leaves the session open: the next owner must then ask every
/// server first, and writes that are not on every replica yet are nobody's to finish.
#[derive(Debug)]
pub struct Client {
    engine: Engine,
    options: Options,
    epoch: Epoch,
    shared: Arc<Shared>,
}

impl Client {
    /// Makes this process the owner of a session; an earlier owner is fenced off.
    ///
    /// # Errors
    ///
    /// [`Error::NoAnswer`] when nobody answers at the controller's address, [`Error::NotOpen`] when it
    /// took too long, [`Error::Refused`] when the controller refused, [`Error::Address`] for an address
    /// that is not of this machine, [`Error::Io`] for a recording that cannot be written.
    pub fn open(options: &Options) -> Result<Self, Error> {
        let records = options.recording.is_some();
        let link = Link::dial(options.transport, records)?.with_faults(&options.faults, 0);
        let (tell, told) = mpsc::sync_channel(1);
        let shared = Arc::new(Shared {
            controller_heard: AtomicBool::new(false),
            unstable: AtomicU64::new(0),
            tails_unknown: AtomicU64::new(0),
        });
        let nonce = u64::from_le_bytes(crate::random::bytes()?);
        let ways = Ways {
            controller: loopback(options.controller)?,
            router: options.router.map(loopback).transpose()?,
        };
        let log = options.recording.as_ref().map(Recording::log).transpose()?;
        let (name, known) = (options.session.clone(), Arc::clone(&shared));
        let calls = Calls::new(tell);
        let owner = Owner::new(clock::now(), name, nonce, ways, calls, known, log);
        let engine = Engine::start(owner, link, options.spin, records)?;
        let epoch = match told.recv_timeout(options.open_timeout) {
            Ok(opened) => opened?,
            Err(RecvTimeoutError::Disconnected) => return Err(stopped()),
            Err(RecvTimeoutError::Timeout) => {
                let waited_ms = options.open_timeout.as_millis();
                let controller = options.controller;
                return Err(if shared.controller_heard.load(Ordering::Relaxed) {
                    Error::NotOpen {
                        controller,
                        waited_ms,
                    }
                } else {
                    Error::NoAnswer {
                        controller,
                        waited_ms,
                    }
                });
            }
        };
        Ok(Self {
            engine,
            options: options.clone(),
            epoch,
            shared,
        })
    }

    /// The owner's number: every opening of the session gets a higher one.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Operations whose key's last writes by an earlier owner may have been lost.
    #[must_use]
    pub fn tails_unknown(&self) -> u64 {
        self.shared.tails_unknown.load(Ordering::Relaxed)
    }

    /// What its socket has counted.
    #[must_use]
    pub fn counts(&self) -> LinkCounts {
        self.engine.counts()
    }

    /// An operation with a level, a timeout or a number of its own.
    pub fn call(&self) -> Call<'_> {
        Call {
            client: self,
            level: self.options.level,
            timeout: self.options.timeout,
            sequence: None,
            wanted: None,
            fault: None,
        }
    }

    /// The value; `None` when there is none.
    ///
    /// # Errors
    ///
    /// As [`Call::run`].
    pub fn get(&self, key: impl Into<Bytes>) -> Result<Option<Bytes>, Error> {
        self.call().get(key)
    }

    /// Replaces the value.
    ///
    /// # Errors
    ///
    /// As [`Call::run`].
    pub fn set(&self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Result<(), Error> {
        self.call().set(key, value)
    }

    /// Replaces the value if a condition holds; says whether it did.
    ///
    /// # Errors
    ///
    /// As [`Call::run`].
    pub fn set_with(
        &self,
        key: impl Into<Bytes>,
        value: impl Into<Bytes>,
        set: Set,
    ) -> Result<bool, Error> {
        self.call().set_with(key, value, set)
    }

    /// Removes the value; says whether there was one.
    ///
    /// # Errors
    ///
    /// As [`Call::run`].
    pub fn delete(&self, key: impl Into<Bytes>) -> Result<bool, Error> {
        self.call().delete(key)
    }

    /// Adds to a decimal number, where no value is 0; the sum.
    ///
    /// # Errors
    ///
    /// As [`Call::run`], and [`Error::NotANumber`].
    pub fn increment(&self, key: impl Into<Bytes>, by: i64) -> Result<i64, Error> {
        self.call().increment(key, by)
    }

    /// Adds bytes at the end, where no value is empty; the new length.
    ///
    /// # Errors
    ///
    /// As [`Call::run`].
    pub fn append(&self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Result<i64, Error> {
        self.call().append(key, value)
    }

    /// Replaces the value when it is `expected` (`None`: when there is none); says whether it was.
    ///
    /// # Errors
    ///
    /// As [`Call::run`].
    pub fn compare_and_set(
        &self,
        key: impl Into<Bytes>,
        expected: Option<Bytes>,
        value: impl Into<Bytes>,
    ) -> Result<bool, Error> {
        self.call().compare_and_set(key, expected, value)
    }

    /// Waits until every replica has every write, and lets go of the session. After the opening's time
    /// it is left open; the result tells which.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`] when somebody else owns it by now, [`Error::Stopped`].
    pub fn close(self) -> Result<Closed, Error> {
        let (tell, told) = mpsc::sync_channel(1);
        self.engine.close(tell);
        match told.recv_timeout(self.options.open_timeout) {
            Ok(closed) => closed.map(|()| Closed {
                is_stable: true,
                unstable: 0,
            }),
            Err(RecvTimeoutError::Disconnected) => Err(stopped()),
            Err(RecvTimeoutError::Timeout) => Ok(Closed {
                is_stable: false,
                unstable: self.shared.unstable.load(Ordering::Relaxed),
            }),
        }
    }
}

fn stopped() -> Error {
    Error::Stopped {
        part: "client".to_owned(),
    }
}

/// One operation about to be asked for.
#[derive(Debug, Clone, Copy)]
#[must_use = "nothing happens before an operation is named"]
pub struct Call<'a> {
    client: &'a Client,
    level: Level,
    timeout: Duration,
    sequence: Option<u64>,
    wanted: Option<Instant>,
    fault: Option<&'a Fault>,
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
    /// beside what [`Options::faults`] does to all. Its time counts from the client's first fault.
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
        let (tell, told) = mpsc::sync_channel(1);
        let waiting = self.waiting(told, operation)?;
        let call = self.begin(key.into(), operation, tell);
        let until = MonoNs(clock::now().0.saturating_add(waiting.longest().0));
        match self.client.engine.run(call, &waiting.told, until) {
            Some(outcome) => waiting.judge(outcome),
            None => waiting.wait(),
        }
    }

    /// Begins an operation; operations on one key are done in the order in which they were begun.
    ///
    /// # Errors
    ///
    /// Nothing was done: [`Error::ValueTooLarge`], [`Error::Busy`], [`Error::Stopped`]. Everything else
    /// is told by [`Waiting::wait`].
    pub fn start(self, key: impl Into<Bytes>, operation: &Operation) -> Result<Waiting<'a>, Error> {
        let (tell, told) = mpsc::sync_channel(1);
        let waiting = self.waiting(told, operation)?;
        let call = self.begin(key.into(), operation, tell);
        self.client.engine.submit(call);
        Ok(waiting)
    }

    fn waiting(
        &self,
        told: Receiver<Result<Done, Error>>,
        operation: &Operation,
    ) -> Result<Waiting<'a>, Error> {
        let bytes = value_bytes(operation);
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

    fn begin(&self, key: Bytes, operation: &Operation, reply: owner::Reply<Done>) -> thread::Call {
        let wanted = clock::since(self.wanted);
        let patience = u64::try_from(self.timeout.as_nanos()).unwrap_or(u64::MAX);
        thread::Call {
            submission: Submission {
                key,
                operation: operation.encode(),
                access: operation.access(),
                level: self.level,
                at: wall(),
                patience: DurationNs(patience),
                sequence: self.sequence,
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
    told: Receiver<Result<Done, Error>>,
    timeout: Duration,
    bytes: usize,
    client: PhantomData<&'a Client>,
}

impl Waiting<'_> {
    /// Waits for what comes of it.
    ///
    /// # Errors
    ///
    /// As [`Call::run`].
    pub fn wait(self) -> Result<Done, Error> {
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

    fn judge(&self, outcome: Result<Done, Error>) -> Result<Done, Error> {
        match outcome {
            Ok(done) if done.answer == Answer::TooLarge => {
                Err(Error::ValueTooLarge { bytes: self.bytes })
            }
            Err(Error::Unknown { .. }) => Err(self.unknown()),
            outcome => outcome,
        }
    }
}

/// Bytes of values that an operation carries: together they must fit a message.
fn value_bytes(operation: &Operation) -> usize {
    match operation {
        Operation::Get | Operation::Delete { .. } | Operation::Increment(_) => 0,
        Operation::Set { value, .. } | Operation::Append(value) => value.len(),
        Operation::CompareAndSet { expected, value } => {
            value.len() + expected.as_ref().map_or(0, Bytes::len)
        }
    }
}
