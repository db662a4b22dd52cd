//! Mistakes made on purpose.
//!
//! A test that never fails proves nothing. With the feature `planted-bugs` the simulation chooses
//! one of these at run time and must find it; without the feature [`planted`] is `false` and the
//! compiler removes it.

macro_rules! bugs {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)*) => {
        /// A mistake that an implementation of this protocol could make.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Bug { $($(#[$doc])* $name,)* }

        impl Bug {
            /// Every one of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its name on the command line.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }
        }
    };
}

bugs! {
    /// A server answers a read whatever its version is.
    ReadWithoutDep = "read-without-dep",
    /// A server executes a read-modify-write whatever its version is.
    UpdateWithoutDep = "update-without-dep",
    /// A takeover believes a majority of the replicas instead of all.
    MajorityTakeover = "majority-takeover",
    /// A server acknowledges a write that it has no state to execute on.
    AckBeforeApply = "ack-before-apply",
    /// A server removes a tombstone before every replica has it.
    TombstoneTooEarly = "tombstone-too-early",
    /// A server removes a tombstone only when its key is used again.
    TombstonesForGood = "tombstones-for-good",
    /// The controller counts out a silent server although no other server has all its records.
    LastCopyCountedOut = "last-copy-counted-out",
    /// A controller that stood still blames the servers for its own silence.
    OwnStallBlamed = "own-stall-blamed",
    /// A majority of the servers that are left acknowledges, even if few are left.
    QuorumOfTheLeft = "quorum-of-the-left",
    /// A server that forgot everything goes on under its old name.
    NoIncarnationCheck = "no-incarnation-check",
    /// A repeated read-modify-write is executed again.
    RetryExecutesAgain = "retry-executes-again",
    /// A state push is executed as if it were the operation.
    RepairByExecution = "repair-by-execution",
    /// A value expires by the server's clock.
    ServerClockExpiry = "server-clock-expiry",
    /// A write is called stable when a majority has it.
    StableTooEarly = "stable-too-early",
    /// A server takes operations of any configuration.
    AnyConfiguration = "any-configuration",
    /// A server that was counted out believes all its kept records, though the others went on.
    KeptBelieved = "kept-believed",
    /// A server that returns with its memory refuses writes that were stable when it left, though the
    /// others may have lost them since.
    FloorKept = "floor-kept",
    /// A server that was counted out takes up its kept record of a key at any version.
    ListedVersionIgnored = "listed-version-ignored",
    /// A server that has not synced answers reads.
    JoiningAnswers = "joining-answers",
    /// A server forgets that an owner was replaced.
    NoFence = "no-fence",
    /// A server answers without a lease.
    NoLease = "no-lease",
    /// An older state push replaces a newer value.
    PushGoesBack = "push-goes-back",
    /// A delayed write to a key that was deleted brings it back.
    FloorIgnored = "floor-ignored",
    /// Eviction forgets the version, so that the key looks as if it was never written.
    EvictionForgets = "eviction-forgets",
    /// The controller answers before its epoch is on disk.
    EpochNotSynced = "epoch-not-synced",
    /// A damaged message is believed.
    DamageBelieved = "damage-believed",
    /// A repeated operation gets a new number.
    RetryRenumbers = "retry-renumbers",
    /// A joining server says that it has synced before it has.
    SyncedTooEarly = "synced-too-early",
    /// A refusal is taken for the answer when it comes first.
    ErrorWins = "error-wins",
    /// Lost data is answered as "not found".
    LossHidden = "loss-hidden",
    /// A takeover does not write back the state that it found.
    NoWriteBack = "no-write-back",
    /// A session counts as closed while some of its writes are on one server only.
    ClosedTooEarly = "closed-too-early",
    /// A doubt never ends: each next owner is in doubt of all keys.
    DoubtNeverEnds = "doubt-never-ends",
    /// The controller forgets that a server took unshared writes with it.
    LossForgotten = "loss-forgotten",
    /// A router repeats copies to a silent server for ever, and never asks for a new configuration.
    SilenceBelieved = "silence-believed",
    /// The controller sends no reply to an owner that closes after another owner has opened.
    FencedCloseIgnored = "fenced-close-ignored",
    /// The controller opens a session before every server refuses the earlier owner.
    OpenBeforeFence = "open-before-fence",
    /// A write at level `disk` is acknowledged while it is in memory only.
    DiskLevelInMemory = "disk-level-in-memory",
    /// Level `disk` takes a majority of the replicas that are left. The other replicas may lose
    /// everything.
    DisksOfTheLiving = "disks-of-the-living",
    /// After all were lost, the first disk that comes back speaks for all.
    DisksNotWaitedFor = "disks-not-waited-for",
    /// The cluster waits for the disk of a server that an operator has removed.
    RemovedWaitedFor = "removed-waited-for",
    /// The controller ignores the report that an owner's writes have outlived a loss.
    SettledIgnored = "settled-ignored",
    /// A new owner's time begins at its own clock, which may be behind its predecessor's.
    OwnersTimeForgotten = "owners-time-forgotten",
    /// A machine that was suspended goes on as if no time had passed.
    ClockJumpIgnored = "clock-jump-ignored",
    /// A late copy of an opening that is over opens the session once more.
    LateOpenObeyed = "late-open-obeyed",
    /// A takeover believes the first server though a refused write, or an earlier takeover, may
    /// have reached the others.
    FirstReplyBelieved = "first-reply-believed",
    /// A portal accepts writes without a bound on the bytes that some replica lacks.
    UnboundedBacklog = "unbounded-backlog",
    /// A standby takes a session from an owner that lives.
    StandbyImpatient = "standby-impatient",
    /// A server that was drained joins again by itself.
    DrainedComesBack = "drained-comes-back",
    /// Controllers elect a member whose state is older than theirs.
    OlderStateElected = "older-state-elected",
    /// A controller's vote leaves before its promise is on disk.
    VoteNotStored = "vote-not-stored",
    /// A state counts as stored when only the leading controller has it.
    OneCopyIsEnough = "one-copy-is-enough",
    /// The controller lets a new owner in while just enough servers for an answer may serve the owner
    /// before, who asked a majority.
    FencesTooFew = "fences-too-few",
    /// After an owner that asked a majority, a takeover believes the first server.
    StatesTooFew = "states-too-few",
    /// An owner replaces a takeover at each repetition, though its router still writes it back.
    TakeoversPileUp = "takeovers-pile-up",
}

#[cfg(feature = "planted-bugs")]
mod chosen {
    use super::Bug;
    use std::cell::Cell;

    thread_local! {
        static CHOSEN: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Chooses the mistake that this thread makes from now on.
    pub fn plant(bug: Option<Bug>) {
        CHOSEN.with(|chosen| chosen.set(bug));
    }

    /// Returns whether this thread makes the mistake.
    #[must_use]
    pub fn planted(bug: Bug) -> bool {
        CHOSEN.with(Cell::get) == Some(bug)
    }
}

#[cfg(feature = "planted-bugs")]
pub use chosen::{plant, planted};

/// Returns whether this mistake is made: never, in a build without the feature.
#[cfg(not(feature = "planted-bugs"))]
#[inline]
#[must_use]
pub const fn planted(_bug: Bug) -> bool {
    false
}
