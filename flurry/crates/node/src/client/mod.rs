//! A blocking client: the owner of a session, with its router inside.

mod call;
mod engine;
mod thread;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use bytes::Bytes;
use flurry_core::config::Level;
use flurry_core::id::{DurationNs, Epoch};
use flurry_core::key_value::{Answer, Condition};
use flurry_core::message::Copies;
use flurry_core::portal::Sessions;

use crate::Error;
use crate::address::Controllers;
use crate::arrivals::Arrivals;
use crate::clock::{self};
use crate::fault::Faults;
use crate::link::{Link, LinkCounts, Transport};
use crate::owner::{Calls, Owner, OwnerParams, Shared, Ways};
use crate::security::Security;
pub use call::{Call, Waiting};
use engine::Engine;

/// How a client is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the controllers listen.
    pub controllers: Controllers,
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
    pub recording: Option<Arc<dyn Arrivals>>,
    /// Who may be talked to, and what messages are sealed with.
    pub security: Security,
    /// Faults on purpose.
    pub faults: Faults,
    /// How long a caller that is alone looks for its answer again and again before it sleeps. It saves
    /// a wake-up, which often takes longer than the answer itself. Where answers take longer than this,
    /// or come from the same core, it soon looks for one in 64 only. Zero sleeps at once.
    pub spin: Duration,
}

/// Operations that a client holds at most.
const OPERATIONS_MAX: usize = 16_384;

/// Bytes of these operations at most.
const BACKLOG_BYTES_MAX: usize = 256 << 20;

/// Keys that a client remembers at most.
const KEYS_MAX: usize = 100_000;

/// Period of a client's report to the controller that it lives.
const HEARTBEAT: DurationNs = DurationNs::millis(1_000);

/// Longer than an answer takes on one machine.
const SPIN: Duration = Duration::from_micros(50);

impl Options {
    /// The first correct reply, waited for up to 2 s; an opening up to 5 s, which is enough for a lost
    /// server's lease to end.
    pub fn new(controllers: impl Into<Controllers>, session: impl Into<String>) -> Self {
        Self {
            controllers: controllers.into(),
            session: session.into(),
            level: Level::First,
            timeout: Duration::from_secs(2),
            open_timeout: Duration::from_secs(5),
            transport: Transport::Udp,
            router: None,
            recording: None,
            security: Security::default(),
            faults: Faults::default(),
            spin: SPIN,
        }
    }
}

/// How a client was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed {
    /// True if every replica has every write, so that the next owner starts without asking all
    /// servers. Otherwise each acknowledged write is still on at least as many replicas as its
    /// level requires.
    pub is_stable: bool,
    /// Operations that were not yet on every replica. When there are none, the controller did not
    /// confirm: it is away.
    pub unstable: u64,
}

/// What came of an operation of the caller's own machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// Its number in the session.
    pub sequence: u64,
    /// What the machine answered, in its own format.
    pub answer: Bytes,
    /// An earlier owner's last writes to this key may have been lost.
    pub is_tail_unknown: bool,
    /// From when it was wanted until the client had its answer.
    pub took: Duration,
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
        let security = &options.security;
        let controllers = options.controllers.allowed(security)?;
        let link = Link::dial(options.transport, records, controllers.any(), security)?
            .with_faults(&options.faults, 0);
        let (sender, told) = mpsc::sync_channel(1);
        let shared = Arc::<Shared>::default();
        let params = OwnerParams {
            sessions: Sessions::one(&options.session),
            nonce: u64::from_le_bytes(crate::random::bytes()?),
            ways: Ways {
                controllers,
                router: options.router.map(|it| security.allow(it)).transpose()?,
            },
            operations_max: OPERATIONS_MAX,
            bytes_max: BACKLOG_BYTES_MAX,
            keys_max: KEYS_MAX,
            copies_min: None,
            heartbeat: HEARTBEAT,
            timeout: DurationNs(0),
            // Callers learn of a doubt with the answer of the operation that rests on it.
            tells_first: false,
            // Callers choose the level of each operation.
            copies: Copies::Count(1),
            security: security.clone(),
        };
        let log = match &options.recording {
            Some(arrivals) => Some(arrivals.log()?),
            None => None,
        };
        let calls = Calls::new(sender);
        let owner = Owner::new(clock::now(), params, calls, Arc::clone(&shared), log);
        let engine = Engine::start(owner, link, options.spin, records)?;
        let epoch = shared.opened(&told, options.open_timeout, &options.controllers)?;
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

    /// Waits until every replica has every write, and closes the session. If that takes longer than
    /// the timeout of the opening, the session stays open. The result says which.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`] when somebody else owns it by now, [`Error::Stopped`].
    pub fn close(self) -> Result<Closed, Error> {
        let (sender, told) = mpsc::sync_channel(1);
        self.engine.close(sender);
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
