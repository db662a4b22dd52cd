//! What the parts say to each other. The bytes of it are in [`crate::wire`].

use std::sync::Arc;

use bytes::Bytes;

use crate::config::{Config, Level, Member};
use crate::consensus::{self, MemberId};
use crate::id::{
    ConfigNumber, DurationNs, Endpoint, Epoch, Incarnation, Key, MonoNs, OperationId, Sequence,
    ServerId, SessionId, Version, WallNs,
};
use crate::machine::Access;

/// The state of a key as one replica has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// Who wrote it.
    pub version: Version,
    /// Epoch of the last operation of a caller that wrote it. A takeover gives the state a new
    /// version and leaves this as it was: nobody has looked at the value.
    pub written_in: Epoch,
    /// A snapshot; `None` after a delete.
    pub snapshot: Option<Bytes>,
    /// What the write answered.
    pub answer: Bytes,
    /// Digest of the snapshot.
    pub digest: u64,
    /// The value was evicted; only its version is known.
    pub evicted: bool,
}

impl State {
    /// That of a key that was never written.
    pub const ABSENT: Self = Self {
        version: Version::NONE,
        written_in: Epoch(0),
        snapshot: None,
        answer: Bytes::new(),
        digest: crate::machine::ABSENT,
        evicted: false,
    };
}

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Ask {
    /// Execute the operation.
    Apply {
        /// In the machine's format.
        operation: Bytes,
        /// How it depends on the state.
        access: Access,
    },
    /// Tell the state, if the version is at least `dep`.
    Fetch,
    /// Install this state, unless there is a newer one.
    Push(State),
    /// Tell the state, whatever it is; from a portal to a router: find it, and make it mine.
    Touch,
}

/// An operation on its way to a router or a server. Shared by its copies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Request {
    /// Its identity.
    pub id: OperationId,
    /// The version of the key's previous write; [`Version::NONE`] when there is none.
    pub dep: Version,
    /// The key.
    pub key: Key,
    /// What to do.
    pub ask: Ask,
    /// Which replies it waits for.
    pub level: Level,
    /// The owner's time.
    pub at: WallNs,
    /// Every write of this epoch up to here is on all replicas.
    pub stable: Sequence,
    /// For a takeover: keys last written in this epoch or later are the same everywhere.
    pub clean_since: Option<Epoch>,
    /// The same: that held in this configuration, and holds until some key has lost all its replicas.
    pub opened_in: ConfigNumber,
    /// For the router: when to answer that the outcome is unknown.
    pub patience: DurationNs,
}

/// One copy of a request, addressed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Copy {
    /// The request.
    pub request: Arc<Request>,
    /// The configuration that its sender believes in; 0 from a portal to a router.
    pub config: ConfigNumber,
    /// 0, or the retry's number. A portal sends 1 to a router that may have the request already.
    pub attempt: u8,
}

/// What a server says to a copy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Executed at the right version, now or before.
    Done(Bytes),
    /// The replica has this version or a later one of the owner's: nothing more to do.
    Held,
    /// The replica misses writes; it has the reply's version.
    Behind,
    /// The replica has gone on: it cannot say any more what this answered.
    Stale,
    /// A newer owner has this epoch.
    Fenced(Epoch),
    /// The server has this configuration.
    WrongConfig(ConfigNumber),
    /// The server does not know the session or its epoch yet.
    Unregistered,
    /// The server has not copied this key yet.
    Joining,
    /// The server's memory is full.
    Busy,
    /// The value was evicted.
    Evicted,
    /// The server may not answer without hearing from the others.
    NoLease,
    /// The machine cannot read the operation.
    Malformed,
    /// What a fetch or a touch asked for.
    State(State),
}

/// A server's reply to one copy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reply {
    /// Of which operation.
    pub id: OperationId,
    /// The key's hash, as in the request.
    pub key_hash: u64,
    /// Who says so.
    pub from: Endpoint,
    /// In which configuration.
    pub config: ConfigNumber,
    /// To which attempt.
    pub attempt: u8,
    /// What the copy said is stable: tells a reply to an earlier sending from one to the latest.
    pub stable: Sequence,
    /// The version that the replica has.
    pub have: Version,
    /// How much longer its lease ran when it executed.
    pub lease_left: DurationNs,
    /// Digest of the state after the operation, of the answer of a read; 0 is not said.
    pub digest: u64,
    /// How busy the server's thread is, in 255ths.
    pub busy: u8,
    /// What it says.
    pub verdict: Verdict,
    /// The server's own times, where it stamps: kernel received, received, sent; 0 is missing.
    pub stamps: [i64; 3],
}

/// What a router says to a portal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Answer {
    /// Of which operation.
    pub id: OperationId,
    /// What came of it.
    pub outcome: Outcome,
    /// After it the key has no state: a deletion.
    pub absent: bool,
    /// Every replica has it: nobody need keep it any longer.
    pub stable: bool,
}

/// What came of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The machine's answer, at the level asked for.
    Done(Bytes),
    /// A takeover made the key the owner's.
    Taken {
        /// What the key's next operation depends on.
        version: Version,
        /// The version that an earlier owner had left.
        found: Version,
        /// See [`State::written_in`].
        written_in: Epoch,
        /// The configuration in which a server was last lost with what it held.
        last_loss: ConfigNumber,
        /// That in which a majority's copies may have been lost.
        last_majority_loss: ConfigNumber,
        /// That in which all that held some key may have been lost together.
        last_wipe: ConfigNumber,
    },
    /// No replica has the version that the operation depends on, and the router holds no copy of it.
    NobodyHas {
        /// The version that was asked for.
        need: Version,
        /// What the request said is stable.
        stable: Sequence,
        /// The newest that there is.
        have: Version,
    },
    /// No answer in time. A write may have happened, or still happen: it may only be repeated as it is.
    Unknown,
    /// A newer owner has this epoch.
    Fenced(Epoch),
    /// A bound was reached; nothing was done.
    Busy,
    /// The level promises more copies than there are servers; nothing was done.
    TooFewCopies,
    /// The value was evicted from every replica that was asked.
    Evicted,
    /// The owner repeated a takeover, but this router has no record of it. An earlier process may
    /// have written back part of it.
    Forgotten,
    /// The machine cannot read the operation; nothing was done.
    Malformed,
}

/// Where a message of a server or a router goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Destination {
    /// Whoever sent what this answers: the driver's number for it.
    Sender(u64),
    /// The controller.
    Controller,
    /// A data server.
    Server(Endpoint),
}

/// Everything that travels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Message {
    /// Portal to router, router to server.
    Request(Copy),
    /// Server to router.
    Reply(Reply),
    /// Router to portal.
    Answer(Answer),
    /// Everything else.
    Control(Control),
}

/// A server's question for a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ping {
    /// Who asks.
    pub life: Life,
    /// The configuration that it goes by.
    pub number: ConfigNumber,
    /// When it asks, by its own clock.
    pub sent: MonoNs,
    /// Time since it last granted a lease to a server that is not in that configuration, at least.
    pub quiet: DurationNs,
    /// Time since anybody last answered such a question of it.
    pub unheard: DurationNs,
}

impl Ping {
    /// Whether the server hears what others send, as far as it can know. One that only sends must
    /// not count as living: it answers nobody.
    #[must_use]
    pub fn hears(&self, lease: DurationNs) -> bool {
        self.unheard.0 <= lease.0 / 2
    }
}

/// Servers that have each write that an owner acknowledges, at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Copies {
    /// So many; 0 counts as 1.
    Count(u8),
    /// A majority of the cluster's replicas.
    Majority,
}

impl Copies {
    /// True if one server alone is too few in some cluster.
    #[must_use]
    pub fn are_several(self) -> bool {
        self > Self::Count(1)
    }

    /// The number of servers in a cluster with so many replicas; at least 1.
    #[must_use]
    pub fn of(self, replicas: u8) -> u8 {
        match self {
            Self::Count(count) => count.max(1),
            Self::Majority => replicas / 2 + 1,
        }
    }
}

/// Messages that are no operation on a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Control {
    /// Portal to controller: make me the owner of the sessions of these names, of all or of none.
    Open {
        /// The sessions' names, [`SESSIONS_OPENED_MAX`] at most.
        names: Vec<String>,
        /// Chosen by the portal, so that a repetition gets the same epoch.
        nonce: u64,
        /// Silence of the present owner after which the controller grants this opening; 0 grants it
        /// at once.
        patience: DurationNs,
        /// Servers that have each write that the owner acknowledges.
        copies: Copies,
    },
    /// You are.
    Opened(Opened),
    /// You are not.
    OpenRefused {
        /// Of which request.
        nonce: u64,
        /// Why.
        reason: String,
    },
    /// Controller to standby: the owner of one of the sessions lives.
    OwnerLives {
        /// Number of the request.
        nonce: u64,
        /// Epoch of the owner.
        epoch: Epoch,
    },
    /// Observer to controller: who owns the session of this name? The number identifies the answer.
    FindSession(String, u64),
    /// Controller to observer: the answer to [`Self::FindSession`].
    FoundSession(FoundSession),
    /// Portal to controller: all my writes to these sessions are stable, and I send no more. The flag
    /// says that some keys may have lost their last writes and that no caller has heard of it. The last
    /// field is the owner's time.
    Close(Vec<Owned>, bool, WallNs),
    /// So noted.
    Closed(Vec<Owned>),
    /// Controller to server, and to an owner whose session another one has opened since: this session's
    /// owner has this epoch.
    Fence(SessionId, Epoch),
    /// So noted, and the latest time of an owner of the session that this server knows of.
    FenceHeld(Life, SessionId, Epoch, WallNs),
    /// Server to controller: this is a new life; its addresses; what it was last asked to prove it
    /// with, 0 before.
    Join(Member, u64),
    /// Controller to server: whoever is this life says so again, with this number. What was under way
    /// for long may come from a life that has ended.
    Prove(Incarnation, u64),
    /// Controller to a server that asks to join: a server of this number is up, at this address on
    /// another machine.
    NumberTaken(ServerId, String),
    /// What is the configuration?
    ConfigQuery,
    /// It is this.
    Config(Arc<Config>),
    /// I go by this configuration; may I go on?
    Ping(Ping),
    /// You may, for one lease from this time of your clock; `None` is the controller. From the time 0
    /// it grants nothing, and says only that the question was heard.
    Pong(Option<ServerId>, ConfigNumber, MonoNs),
    /// What should I hold?
    Pull(Pull),
    /// A part of it.
    Batch(Batch),
    /// I hold what I should.
    Synced(Life, ConfigNumber),
    /// Owner to controller: all that I had written by this loss is on every replica again. The last
    /// field is the time since the controller was last heard, 0 while it answers.
    Settled(Vec<Owned>, ConfigNumber, DurationNs),
    /// So noted.
    SettledHeard(SessionId, Epoch, ConfigNumber),
    /// Operator to controller: this server leaves the cluster.
    Depart(ServerId, Departure),
    /// So noted; the text is empty, or says why not.
    DepartHeard(ServerId, Departure, String),
    /// How are you?
    StatusQuery,
    /// A JSON object.
    Status(String),
    /// Owner to server: which keys of my session are you the first of that has them?
    List(List),
    /// These.
    Listed(Listed),
    /// Member of a group of controllers to another: who says so, and what.
    Consensus(MemberId, consensus::Message),
    /// From whoever carries messages: the answer is too long for a datagram, ask over a stream.
    UseStream,
}

/// How a server leaves the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Departure {
    /// Its memory and its disk are gone for good: nobody shall wait for it.
    Removed,
    /// It shall be switched off once others hold all that it holds.
    Drained,
    /// It was drained, and may come back.
    TakenBack,
}

/// One shard of one life of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Life {
    /// Which shard of which server.
    pub endpoint: Endpoint,
    /// Which life.
    pub incarnation: Incarnation,
}

/// A session, and the epoch of its owner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owned {
    /// The session.
    pub session: SessionId,
    /// The epoch.
    pub epoch: Epoch,
}

/// Sessions that one owner opens together at most.
pub const SESSIONS_OPENED_MAX: usize = 64;

/// What an owner learns when it becomes one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Opened {
    /// Of which request.
    pub nonce: u64,
    /// The sessions, in the order in which they were asked for.
    pub sessions: Vec<OpenedSession>,
    /// The configuration.
    pub config: Arc<Config>,
}

/// What an owner learns of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OpenedSession {
    /// The session.
    pub session: SessionId,
    /// Its epoch from now on.
    pub epoch: Epoch,
    /// Keys last written in this epoch or later are the same on all replicas.
    pub clean_since: Option<Epoch>,
    /// Keys last written in this epoch or before may have lost their last writes.
    pub unknown_through: Epoch,
    /// Its time begins here at the earliest: what had expired for an earlier owner stays so, also when
    /// this one's clock is behind.
    pub at: WallNs,
    /// Servers that had each write that earlier owners acknowledged, at least.
    pub copies_earlier: u8,
}

/// What an observer learns of a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FoundSession {
    /// Number of the question.
    pub number: u64,
    /// The session; 0 if it was never opened.
    pub session: SessionId,
    /// Epoch of the owner.
    pub epoch: Epoch,
    /// The latest time of an owner that the controller knows of.
    pub at: WallNs,
    /// Keys last written in this epoch or before may have lost their last writes.
    pub unknown_through: Epoch,
    /// The configuration.
    pub config: Arc<Config>,
}

/// Where a copy goes on: the sessions come first, all of them, and then the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cursor {
    /// With the sessions of a higher number.
    Sessions(SessionId),
    /// With the records below this place of the sender's table.
    Keys(u64),
    /// With the records that the asker lacks of those listed from this place downwards.
    Missing(u64),
}

impl Cursor {
    /// Nothing was copied yet; sessions are numbered from one.
    pub const START: Self = Self::Sessions(SessionId(0));
}

/// A question of a joining server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pull {
    /// Who asks.
    pub life: Life,
    /// In which configuration.
    pub config: ConfigNumber,
    /// From where on.
    pub cursor: Cursor,
    /// The asker has records of its own: the versions are enough.
    pub lists: bool,
    /// With [`Cursor::Missing`]: the keys whose records it lacks.
    pub keys: Vec<Key>,
}

/// What a server knows of a session, for one that joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionState {
    /// Which session.
    pub session: SessionId,
    /// The epoch of its owner.
    pub epoch: Epoch,
    /// Every replica has had the owner's writes up to this one.
    pub stable: Sequence,
    /// The last configuration in which the server took an operation of any owner.
    pub used_in: ConfigNumber,
}

/// An owner's question for the keys of its sessions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct List {
    /// Of which sessions.
    pub sessions: Vec<Owned>,
    /// Every replica has the owner's writes up to this one, so that servers forget deletions also in
    /// sessions that nobody uses.
    pub stable: Sequence,
    /// In which configuration.
    pub config: ConfigNumber,
    /// The owner's time.
    pub at: WallNs,
    /// Those whose state has ended by then, and those that an earlier owner deleted, instead of those
    /// whose state has not ended.
    pub ended: bool,
    /// The records below this place of the server's table.
    pub below: u64,
    /// How many records to look at; at most [`List::RECORDS_MAX`].
    pub records: u32,
}

impl List {
    /// A look at so many keeps nobody waiting.
    pub const RECORDS_MAX: u32 = 1_024;
}

/// Keys of an owner's sessions that a server is the first of that has them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Listed {
    /// Who says so.
    pub from: Endpoint,
    /// What was asked.
    pub question: List,
    /// Where to go on; `None` when this is the last.
    pub next: Option<u64>,
    /// The keys.
    pub keys: Vec<Bytes>,
}

/// A part of what a joining server copies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Batch {
    /// Who sends it.
    pub from: Endpoint,
    /// In which configuration.
    pub config: ConfigNumber,
    /// The cursor of the pull that it answers.
    pub cursor: Cursor,
    /// Where to go on; `None` when this is the last.
    pub next: Option<Cursor>,
    /// The sessions.
    pub sessions: Vec<SessionState>,
    /// The keys.
    pub entries: Vec<(Key, State)>,
    /// Keys of which the sender tells the version alone.
    pub listed: Vec<(Key, Version)>,
}
