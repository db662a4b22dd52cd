//! Identifiers: one type for each number that could be confused with another.

use std::fmt;

use bytes::Bytes;

/// Nanoseconds of the monotonic clock of the machine that reads it. Never compared across machines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonoNs(pub u64);

impl MonoNs {
    /// Returns the time `span` later.
    #[must_use]
    pub fn after(self, span: DurationNs) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// Returns the time since `earlier`; zero if that is in the future.
    #[must_use]
    pub fn since(self, earlier: Self) -> DurationNs {
        DurationNs(self.0.saturating_sub(earlier.0))
    }
}

/// A duration, in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DurationNs(pub u64);

impl DurationNs {
    /// Returns a duration in microseconds.
    #[must_use]
    pub const fn micros(count: u64) -> Self {
        Self(count * 1_000)
    }

    /// Returns a duration in milliseconds.
    #[must_use]
    pub const fn millis(count: u64) -> Self {
        Self(count * 1_000_000)
    }
}

/// Nanoseconds of the wall clock, as the owner of an operation read it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallNs(pub i64);

/// The number of a session's owner. The controller gives out each number once; 0 stands for no
/// owner yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

/// The number of an operation in its epoch; the first is 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

impl Sequence {
    /// Returns whether it is the number of a takeover. Operations of callers have even numbers.
    #[must_use]
    pub const fn is_takeover(self) -> bool {
        !self.0.is_multiple_of(2)
    }
}

/// The identity of the write that made a value: the owner's epoch and the write's number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The owner's epoch.
    pub epoch: Epoch,
    /// The write's number in it.
    pub sequence: Sequence,
}

impl Version {
    /// The version of a key that was never written.
    pub const NONE: Self = Self {
        epoch: Epoch(0),
        sequence: Sequence(0),
    };

    /// Returns the epoch of the last caller's operation that wrote a state of this version, if only
    /// the version is known: 0 for a takeover, which may have found a state of any age.
    #[must_use]
    pub const fn written_in(self) -> Epoch {
        if self.sequence.is_takeover() {
            Epoch(0)
        } else {
            self.epoch
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.epoch.0, self.sequence.0)
    }
}

/// A session: a space of keys that has one owner at a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u32);

/// The identity of an operation, with which a write may be sent any number of times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId {
    /// The session.
    pub session: SessionId,
    /// The epoch of the session's owner.
    pub epoch: Epoch,
    /// The number of the operation in that epoch.
    pub sequence: Sequence,
}

impl OperationId {
    /// Returns the version that this operation gives a key if it is a write.
    #[must_use]
    pub fn version(self) -> Version {
        Version {
            epoch: self.epoch,
            sequence: self.sequence,
        }
    }
}

/// A data server's place in the cluster; it outlives the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u16);

/// One incarnation of a data server's memory. A server that lost its memory begins another one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u128);

impl Incarnation {
    /// Returns the next incarnation in the same process, which begins when this one's memory is
    /// given up.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// Returns whether it began after `earlier` in the same process, which the upper half
    /// identifies.
    #[must_use]
    pub fn is_after(self, earlier: Self) -> bool {
        self.0 >> 64 == earlier.0 >> 64 && self.0 > earlier.0
    }
}

/// A part of the key space that one thread of each server holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u8);

/// The receiver of a message to a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// The server.
    pub server: ServerId,
    /// Its thread.
    pub shard: ShardId,
}

/// The number of a configuration; a higher one replaces a lower one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConfigNumber(pub u32);

/// A key inside its session.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    hash: u64,
    session: SessionId,
    bytes: Bytes,
}

impl Key {
    /// The longest key.
    pub const BYTES_MAX: usize = 512;

    /// Returns a key of 1 to [`Key::BYTES_MAX`] bytes.
    ///
    /// # Errors
    ///
    /// [`KeyLength`] when it is empty or longer.
    pub fn new(session: SessionId, bytes: Bytes) -> Result<Self, KeyLength> {
        if bytes.is_empty() || bytes.len() > Self::BYTES_MAX {
            return Err(KeyLength(bytes.len()));
        }
        Ok(Self::of_record(session, bytes))
    }

    /// Returns a key of bytes that were a key's before.
    pub(crate) fn of_record(session: SessionId, bytes: Bytes) -> Self {
        debug_assert!(
            !bytes.is_empty() && bytes.len() <= Self::BYTES_MAX,
            "nothing is stored under such a key"
        );
        Self {
            hash: Self::hash_of(session, &bytes),
            session,
            bytes,
        }
    }

    /// Returns the hash that decides on the key's replicas. It is a part of the protocol: xxh3 of
    /// the bytes, seeded with the session.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn hash_of(session: SessionId, bytes: &[u8]) -> u64 {
        xxhash_rust::xxh3::xxh3_64_with_seed(bytes, u64::from(session.0))
    }

    /// Returns the session that it belongs to.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Returns its bytes.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

/// A key in as little memory as it needs, for a map with many. A [`Key`] finds it there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeptKey {
    bytes: Box<[u8]>,
    session: SessionId,
}

impl KeptKey {
    pub(crate) fn session(&self) -> SessionId {
        self.session
    }
}

impl From<&Key> for KeptKey {
    fn from(key: &Key) -> Self {
        Self {
            bytes: key.bytes[..].into(),
            session: key.session,
        }
    }
}

impl std::hash::Hash for KeptKey {
    /// Hashes like the [`Key`].
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u64(Key::hash_of(self.session, &self.bytes));
    }
}

impl indexmap::Equivalent<KeptKey> for Key {
    fn equivalent(&self, key: &KeptKey) -> bool {
        (self.session, &self.bytes[..]) == (key.session, &key.bytes[..])
    }
}

impl std::hash::Hash for Key {
    /// Passes on the key's stored hash. Equality still compares the session and the bytes.
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.session.0, self.bytes.escape_ascii())
    }
}

/// The error for an empty or too long key, with the number of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("key: it has {0} bytes; wanted 1 to 512; hint: hash longer names")]
pub struct KeyLength(pub usize);
