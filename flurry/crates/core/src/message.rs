//! The messages between the parts. Their bytes are in [`crate::wire`].

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
    /// The version of the write that made it.
    pub version: Version,
    /// Epoch of the last caller's operation that wrote it. A takeover gives the state a new version
    /// and keeps this epoch, because no caller has seen the value.
    pub written_in: Epoch,
    /// A snapshot; `None` after a delete.
    pub snapshot: Option<Bytes>,
    /// The answer of the write.
    pub answer: Bytes,
    /// Digest of the snapshot.
    pub digest: u64,
    /// True if the value was evicted, so that only its version is known.
    pub evicted: bool,
}

impl State {
    /// The state of a key that was never written.
    pub const ABSENT: Self = Self {
        version: Version::NONE,
        written_in: Epoch(0),
        snapshot: None,
        answer: Bytes::new(),
        digest: crate::machine::ABSENT,
        evicted: false,
    };
}

/// The task of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Ask {
    /// Execute the operation.
    Apply {
        /// The operation, in the machine's format.
        operation: Bytes,
        /// Its dependence on the state.
        access: Access,
    },
    /// Return the state, if its version is at least `dep`.
    Fetch,
    /// Install this state, unless the replica has a newer one.
    Push(State),
    /// To a server: return the state, at any version. To a router: find the key's state, and write
    /// it back under the owner's version.
    Touch,
}

/// An operation on its way to a router or a server. Its copies share it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Request {
    /// Its identity.
    pub id: OperationId,
    /// The version of the key's previous write; [`Version::NONE`] when there is none.
    pub dep: Version,
    /// The key.
    pub key: Key,
    /// The task.
    pub ask: Ask,
    /// The replies that it waits for.
    pub level: Level,
    /// The owner's time.
    pub at: WallNs,
    /// The number up to which every write of this epoch is on all replicas.
    pub stable: Sequence,
    /// For a takeover: keys last written in this epoch or later are the same on all replicas.
    pub clean_since: Option<Epoch>,
    /// For a takeover: the configuration in which `clean_since` was true. It is true until some key
    /// has lost all its replicas.
    pub opened_in: ConfigNumber,
    /// For a takeover: the fewest servers that have each answer of earlier owners.
    pub quorum_earlier: u8,
    /// The time after which the router answers that the outcome is unknown.
    pub timeout: DurationNs,
}

/// One copy of a request, for one receiver.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Copy {
    /// The request.
    pub request: Arc<Request>,
    /// The configuration that the sender goes by; 0 from a portal to a router.
    pub config: ConfigNumber,
    /// The number of the retry; 0 for the first copy. A portal sends 1 to a router that may already
    /// have the request.
    pub attempt: u8,
}

/// A server's result for a copy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The replica executed the operation at the right version, now or before.
    Done(Bytes),
    /// The replica has this version, or a later one of the same owner. It needs no further copy.
    Held,
    /// The replica lacks writes; it has the reply's version.
    Behind,
    /// The replica has a later version, so it no longer knows the answer of this operation.
    Stale,
    /// The session has a newer owner, with this epoch.
    Fenced(Epoch),
    /// The server goes by this configuration.
    WrongConfig(ConfigNumber),
    /// The server does not know the session or its epoch yet.
    Unregistered,
    /// The server has not copied this key yet.
    Joining,
    /// The server's memory is full.
    Busy,
    /// The value was evicted.
    Evicted,
    /// The server has no lease, so it must not answer.
    NoLease,
    /// The machine cannot read the operation.
    Malformed,
    /// The state that a fetch or a touch asked for.
    State(State),
}

/// A server's reply to one copy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reply {
    /// The operation.
    pub id: OperationId,
    /// The key's hash, as in the request.
    pub key_hash: u64,
    /// The sender.
    pub from: Endpoint,
    /// The configuration that the sender goes by.
    pub config: ConfigNumber,
    /// The attempt that this answers.
    pub attempt: u8,
    /// The stable number of the copy that this answers. It distinguishes a reply to an earlier
    /// sending from a reply to the latest.
    pub stable: Sequence,
    /// The version that the replica has.
    pub have: Version,
    /// The time that was left of the server's lease when it executed the copy.
    pub lease_left: DurationNs,
    /// Digest of the state after a write, or of the answer of a read; 0 if unknown.
    pub digest: u64,
    /// The busy share of the server's thread, in 255ths.
    pub busy: u8,
    /// The result.
    pub verdict: Verdict,
    /// The server's own times: received by the kernel, received, sent; 0 if unknown.
    pub stamps: [i64; 3],
}

/// A router's answer to a portal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Answer {
    /// The operation.
    pub id: OperationId,
    /// The outcome.
    pub outcome: Outcome,
    /// True if the key has no state after it, as after a deletion.
    pub absent: bool,
    /// True if every replica has it, so that the portal need not keep it any longer.
    pub stable: bool,
}

/// The outcome of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The machine's answer, at the level asked for.
    Done(Bytes),
    /// A takeover made the key the owner's.
    Taken {
        /// The version that the key's next operation depends on.
        version: Version,
        /// The version that the takeover found.
        found: Version,
        /// See [`State::written_in`].
        written_in: Epoch,
        /// The latest configuration that counted out a server together with its records.
        last_loss: ConfigNumber,
        /// The latest configuration in which a majority of the copies of some key may have been
        /// lost.
        last_majority_loss: ConfigNumber,
        /// The latest configuration in which all copies of some key may have been lost together.
        last_wipe: ConfigNumber,
    },
    /// No replica has the version that the operation depends on, and the router holds no copy of
    /// it.
    NobodyHas {
        /// The version that the request depends on.
        need: Version,
        /// The stable number of the request.
        stable: Sequence,
        /// The newest version that a replica has.
        have: Version,
    },
    /// No answer came in time. A write may have happened or may still happen, so the portal may
    /// only repeat it unchanged.
    Unknown,
    /// The session has a newer owner, with this epoch.
    Fenced(Epoch),
    /// The router or the servers are full; nothing was done.
    Busy,
    /// The level promises more copies than there are servers; nothing was done.
    TooFewCopies,
    /// The value was evicted, and no replica could answer.
    Evicted,
    /// The owner repeated a takeover, but this router has no record of it. An earlier process may
    /// have written back part of it.
    Forgotten,
    /// The machine cannot read the operation; nothing was done.
    Malformed,
}

/// The receiver of a message of a server or a router.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Destination {
    /// The sender of the message that this answers, by the driver's number.
    Sender(u64),
    /// The controller.
    Controller,
    /// A data server.
    Server(Endpoint),
}

/// A message between any two parts.
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

/// A server's request for a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ping {
    /// The shard that asks.
    pub life: Life,
    /// The configuration that the server goes by.
    pub number: ConfigNumber,
    /// The time of the request, by the server's clock.
    pub sent: MonoNs,
    /// The least possible time since it last granted a lease to a server outside of that
    /// configuration.
    pub quiet: DurationNs,
    /// The time since anybody last answered a ping of this server.
    pub unheard: DurationNs,
}

impl Ping {
    /// Returns whether the server receives messages, as far as it can know. A server that only
    /// sends must not count as living, because it can answer no request.
    #[must_use]
    pub fn hears(&self, lease: DurationNs) -> bool {
        self.unheard.0 <= lease.0 / 2
    }
}

/// The fewest servers that have a write when its owner acknowledges it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Copies {
    /// This number; 0 counts as 1.
    Count(u8),
    /// A majority of the cluster's replicas.
    Majority,
}

impl Copies {
    /// Returns whether a single server is too few in some cluster.
    #[must_use]
    pub fn are_several(self) -> bool {
        self > Self::Count(1)
    }

    /// Returns the number of servers in a cluster with this number of replicas; at least 1.
    #[must_use]
    pub fn of(self, replicas: u8) -> u8 {
        match self {
            Self::Count(count) => count.max(1),
            Self::Majority => replicas / 2 + 1,
        }
    }
}

/// A message that is no operation on a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Control {
    /// Portal to controller: make me the owner of all sessions of these names, or of none.
    Open {
        /// The sessions' names, [`SESSIONS_OPENED_MAX`] at most.
        names: Vec<String>,
        /// Chosen by the portal, so that a repetition gets the same epoch.
        nonce: u64,
        /// Silence of the present owner after which the controller grants this opening; 0 grants it
        /// at once.
        timeout: DurationNs,
        /// Servers that have each write that the owner acknowledges.
        copies: Copies,
    },
    /// Controller to portal: you are the owner.
    Opened(Opened),
    /// Controller to portal: you are not the owner.
    OpenRefused {
        /// Nonce of the request.
        nonce: u64,
        /// The reason.
        reason: String,
    },
    /// Controller to standby: the owner of one of the sessions lives.
    OwnerLives {
        /// Nonce of the request.
        nonce: u64,
        /// Epoch of the owner.
        epoch: Epoch,
    },
    /// Observer to controller: who owns the session of this name? The number identifies the answer.
    FindSession(String, u64),
    /// Controller to observer: the answer to [`Self::FindSession`].
    FoundSession(FoundSession),
    /// Portal to controller: all my writes to these sessions are stable, and I send no more. The
    /// flag is true if some keys may have lost their last writes and no caller was notified. The
    /// last field is the owner's time.
    Close(Vec<Owned>, bool, WallNs),
    /// Controller to portal: these sessions are closed.
    Closed(Vec<Owned>),
    /// Controller to server, and to an owner whose session another one has opened since: the owner
    /// of this session has this epoch.
    Fence(SessionId, Epoch),
    /// Server to controller: I refuse every earlier epoch. The last field is the latest time of an
    /// owner of the session that the server knows of.
    FenceHeld(Life, SessionId, Epoch, WallNs),
    /// Server to controller: I ask to join. The number is that of the last [`Self::Prove`], or 0
    /// before the first.
    Join(Member, u64),
    /// Controller to server: if you are this incarnation, ask to join again with this number. A
    /// delayed request may come from an incarnation that has ended.
    Prove(Incarnation, u64),
    /// Controller to a server that asks to join: it is not admitted for now, for this reason.
    JoinRefused(ServerId, String),
    /// To a controller or a server: send me the configuration.
    ConfigQuery,
    /// The latest configuration that the sender knows.
    Config(Arc<Config>),
    /// Server to controller and servers: I go by this configuration and ask for a lease.
    Ping(Ping),
    /// To a server: your lease begins at this time of your clock. The sender is a server; `None`
    /// stands for the controller. The time 0 grants nothing, and only shows that the ping arrived.
    Pong(Option<ServerId>, ConfigNumber, MonoNs),
    /// Server to another server: send me the records that I am to hold.
    Pull(Pull),
    /// Server to another server: a part of these records.
    Batch(Batch),
    /// Server to controller: I hold all my records in this configuration.
    Synced(Life, ConfigNumber),
    /// Owner to controller: all my writes up to this loss are on every replica again. The last
    /// field is the time since the controller was last heard, 0 while it answers.
    Settled(Vec<Owned>, ConfigNumber, DurationNs),
    /// Controller to owner: the report arrived, and this is the latest loss.
    SettledHeard(SessionId, Epoch, ConfigNumber),
    /// Operator to controller: this server leaves the cluster.
    Depart(ServerId, Departure),
    /// Controller to operator: the text is empty if this is done, or says why not.
    DepartHeard(ServerId, Departure, String),
    /// To a controller: report your status.
    StatusQuery,
    /// Controller: my status, a JSON object.
    Status(String),
    /// Owner to server: list your keys of my sessions.
    List(List),
    /// Server to owner: a part of the keys.
    Listed(Listed),
    /// Controller to another one of its group: the sender and its message.
    Consensus(MemberId, consensus::Message),
    /// From the receiver's transport: the answer is too long for a datagram, so ask over a stream.
    UseStream,
}

/// An operator's decision about a server's place in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Departure {
    /// Its memory and its disk are gone for good, so that nobody waits for it.
    Removed,
    /// It is to be switched off once other servers hold all its records.
    Drained,
    /// It was drained, and may come back.
    TakenBack,
}

/// One shard of one incarnation of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Life {
    /// The server and the shard.
    pub endpoint: Endpoint,
    /// The incarnation.
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

/// The most sessions that one owner opens together.
pub const SESSIONS_OPENED_MAX: usize = 64;

/// The facts that a portal needs when it becomes the owner.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Opened {
    /// Nonce of the request.
    pub nonce: u64,
    /// The sessions, in the order of the request.
    pub sessions: Vec<OpenedSession>,
    /// The configuration.
    pub config: Arc<Config>,
}

/// The facts about a session that its owner needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OpenedSession {
    /// The session.
    pub session: SessionId,
    /// Its epoch from now on.
    pub epoch: Epoch,
    /// The epoch since which writes are the same on all replicas.
    pub clean_since: Option<Epoch>,
    /// The latest epoch whose last writes may be lost. Those of the epochs before may be lost as
    /// well.
    pub unknown_through: Epoch,
    /// The earliest time at which the owner's time begins. A value that had expired for an earlier
    /// owner then stays expired, even if this owner's clock is behind.
    pub at: WallNs,
    /// The fewest servers that had a write when an earlier owner acknowledged it.
    pub copies_earlier: u8,
    /// The fewest servers that still have each answer of an earlier owner, to a read or a write.
    pub quorum_earlier: u8,
}

/// The facts about a session that an observer needs.
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
    /// The latest epoch whose last writes may be lost. Those of the epochs before may be lost as
    /// well.
    pub unknown_through: Epoch,
    /// The configuration.
    pub config: Arc<Config>,
}

/// The place at which copying goes on. All sessions come first, and then the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cursor {
    /// At the sessions with a higher number.
    Sessions(SessionId),
    /// At the records below this place of the sender's table.
    Keys(u64),
    /// At the listed records from this place downwards, of which the asker names the ones that it
    /// lacks.
    Missing(u64),
}

impl Cursor {
    /// The start, before anything was copied. Sessions are numbered from one.
    pub const START: Self = Self::Sessions(SessionId(0));
}

/// A request of a server that copies records.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pull {
    /// The shard that asks.
    pub life: Life,
    /// The configuration in which it copies.
    pub config: ConfigNumber,
    /// The place at which copying goes on.
    pub cursor: Cursor,
    /// True if the asker has records of its own, so that the versions are enough.
    pub lists: bool,
    /// With [`Cursor::Missing`]: the keys whose records it lacks.
    pub keys: Vec<Key>,
}

/// A server's knowledge of a session, for a server that joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionState {
    /// The session.
    pub session: SessionId,
    /// The epoch of its owner.
    pub epoch: Epoch,
    /// The number up to which every replica has had the owner's writes.
    pub stable: Sequence,
    /// The last configuration in which the server took an operation of any owner, or forgot a
    /// deletion.
    pub used_in: ConfigNumber,
    /// The latest time of an owner.
    pub at: WallNs,
}

/// An owner's request for the keys of its sessions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct List {
    /// The sessions.
    pub sessions: Vec<Owned>,
    /// The number up to which every replica has the owner's writes. With it servers forget
    /// deletions in sessions that nobody uses as well.
    pub stable: Sequence,
    /// The configuration that the owner goes by.
    pub config: ConfigNumber,
    /// The owner's time.
    pub at: WallNs,
    /// True for keys whose state has ended by that time and keys that an earlier owner deleted.
    /// False for keys whose state has not ended.
    pub ended: bool,
    /// The place of the server's table below which it looks at records.
    pub below: u64,
    /// The number of records to look at; at most [`List::RECORDS_MAX`].
    pub records: u32,
    /// The kind of the states, as [`crate::machine::StateMachine::kind`] numbers them; `None` for
    /// all.
    pub kind: Option<u32>,
}

impl List {
    /// The most records that a server looks at for one request, so that other requests do not wait
    /// long.
    pub const RECORDS_MAX: u32 = 1_024;
}

/// A server's answer to [`List`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Listed {
    /// The sender.
    pub from: Endpoint,
    /// The request.
    pub question: List,
    /// The place at which to go on; `None` if this is the last part.
    pub next: Option<u64>,
    /// The keys.
    pub keys: Vec<Bytes>,
}

/// A part of the records that a joining server copies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Batch {
    /// The sender.
    pub from: Endpoint,
    /// The configuration of the pull.
    pub config: ConfigNumber,
    /// The cursor of the pull that it answers.
    pub cursor: Cursor,
    /// The place at which to go on; `None` if this is the last part.
    pub next: Option<Cursor>,
    /// The sessions.
    pub sessions: Vec<SessionState>,
    /// The keys.
    pub entries: Vec<(Key, State)>,
    /// Keys for which the sender gives only the version.
    pub listed: Vec<(Key, Version)>,
}
