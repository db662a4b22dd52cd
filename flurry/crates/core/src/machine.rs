//! The replicated service: any deterministic state machine with one state for each key.

use bytes::Bytes;

use crate::id::WallNs;

/// The dependence of an operation on the state that it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// It changes nothing.
    Read,
    /// It changes the state without reading it. Its answer is always
    /// [`StateMachine::blind_answer`].
    Blind,
    /// It reads and changes the state.
    Update,
}

/// The result of an operation on a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied<S> {
    /// The state afterwards; `None` if the key has no state.
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

/// A service that can be replicated. The router, the check and the repair know nothing else of it.
///
/// `apply` must be a function of its arguments alone: no clock, no randomness, no address, no order
/// of a hash table. Two replicas that disagree are found by their digests.
pub trait StateMachine: Clone + std::fmt::Debug + Send + 'static {
    /// The state of one key.
    type State: Clone + std::fmt::Debug + PartialEq + Send + 'static;

    /// Returns the dependence of `operation` on the state.
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

    /// Returns the answer of every successful blind operation.
    fn blind_answer(&self) -> Bytes;

    /// Returns the state as bytes, which are the same for equal states.
    fn snapshot(&self, state: &Self::State) -> Bytes;

    /// Returns the state of a snapshot.
    ///
    /// # Errors
    ///
    /// [`Malformed`] when the bytes are no snapshot.
    fn restore(&self, snapshot: &[u8]) -> Result<Self::State, Malformed>;

    /// Returns whether a state has ended at its owner's time `at`, such as a value that has
    /// expired.
    fn has_ended(&self, _state: &Self::State, _at: WallNs) -> bool {
        false
    }

    /// Returns whether nothing of a state is needed any more at its owner's time `at`.
    fn may_go(&self, state: &Self::State, at: WallNs) -> bool {
        self.has_ended(state, at)
    }

    /// Returns the number of the kind of a state, for a machine whose states are of several kinds.
    fn kind(&self, _state: &Self::State) -> u32 {
        0
    }
}

/// The digest of an absent state. The digest 0 stands for an unknown one.
pub const ABSENT: u64 = 1;

/// Returns the digest of a state: xxh3 of its snapshot, or [`ABSENT`] without a state.
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
