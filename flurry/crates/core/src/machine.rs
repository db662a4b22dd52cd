//! What is replicated: any deterministic state machine, one state for each key.

use bytes::Bytes;

use crate::id::WallNs;

/// How an operation depends on the state it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// Changes nothing.
    Read,
    /// Changes the state without looking at it: its answer is always [`StateMachine::blind_answer`].
    Blind,
    /// Looks and changes.
    Update,
}

/// What an operation did to a state and what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied<S> {
    /// The state afterwards; `None` when there is none (any more).
    pub state: Option<S>,
    /// The answer, in the machine's own format.
    pub answer: Bytes,
}

/// An operation that the machine cannot read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "operation: {0}; wanted one that this machine knows; hint: is the client of another version?"
)]
pub struct Malformed(pub String);

/// A service that can be replicated: the router, the check and the repair know no more of it.
///
/// `apply` must be a function of its arguments alone: no clock, no randomness, no address, no order
/// of a hash table. Two replicas that disagree are found by their digests.
pub trait StateMachine: Clone + std::fmt::Debug + Send + 'static {
    /// The state of one key.
    type State: Clone + std::fmt::Debug + PartialEq + Send + 'static;

    /// How `operation` depends on the state.
    ///
    /// # Errors
    ///
    /// [`Malformed`] when the bytes are no operation of this machine.
    fn access(&self, operation: &[u8]) -> Result<Access, Malformed>;

    /// Executes `operation` at its owner's time `at` on the state of a key.
    ///
    /// # Errors
    ///
    /// [`Malformed`] when the bytes are no operation of this machine.
    fn apply(
        &self,
        state: Option<&Self::State>,
        operation: &[u8],
        at: WallNs,
    ) -> Result<Applied<Self::State>, Malformed>;

    /// The answer of every blind operation that did what it should.
    fn blind_answer(&self) -> Bytes;

    /// The state as bytes, the same for equal states.
    fn snapshot(&self, state: &Self::State) -> Bytes;

    /// The state that a snapshot was taken of.
    ///
    /// # Errors
    ///
    /// [`Malformed`] when the bytes are no snapshot.
    fn restore(&self, snapshot: &[u8]) -> Result<Self::State, Malformed>;

    /// Whether a state counts for nothing at its owner's time `at`, such as a value that has expired.
    fn has_ended(&self, _state: &Self::State, _at: WallNs) -> bool {
        false
    }

    /// Memory that a state takes, for the limit.
    fn size_bytes(&self, state: &Self::State) -> usize;
}

/// The digest that says "there is no state". 0 is "not said".
pub const ABSENT: u64 = 1;

/// The digest of a state: xxh3 of its snapshot, [`ABSENT`] for none.
#[must_use]
pub fn digest(snapshot: Option<&[u8]>) -> u64 {
    let digest = snapshot.map_or(ABSENT, |bytes| {
        xxhash_rust::xxh3::xxh3_64(bytes).max(ABSENT + 1)
    });
    assert!(
        (digest == ABSENT) == snapshot.is_none() && digest != 0,
        "no state looks like none, and none like a digest that was not said"
    );
    digest
}
