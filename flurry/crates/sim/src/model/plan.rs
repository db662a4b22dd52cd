//! The worlds to explore: the wishes of the owners, and the faults.

use flurry_core::bugs::Bug;
use flurry_core::key_value::{Condition, Operation};

use super::letter::Place;

/// An operation that an owner wants to do on the one key. Every write leaves a mark of its own in
/// the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wish {
    /// Read its value.
    Get,
    /// Set this value, whatever the earlier one: a blind write.
    Set(i64),
    /// Add this number: an update.
    Add(i64),
    /// Close the session, when all writes are on every replica. Only as the last.
    Close,
}

impl Wish {
    pub(super) fn operation(self) -> Operation {
        match self {
            Self::Get | Self::Close => Operation::Get,
            Self::Set(value) => Operation::Set {
                value: value.to_string().into(),
                expires_at: None,
                condition: Condition::Always,
            },
            Self::Add(by) => Operation::Increment(by),
        }
    }

    pub(super) fn is_write(self) -> bool {
        matches!(self, Self::Set(_) | Self::Add(_))
    }
}

/// A situation that the exploration must meet; otherwise its result says nothing about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sight {
    /// The second owner was let in while a write of the first was on one replica only.
    TakeoverInFlight,
    /// The first owner was notified of success after the second had been let in.
    LateAnswer,
    /// The first owner was notified that it is fenced.
    FenceTold,
    /// An owner was answered after a replica had forgotten everything, or was gone.
    AnsweredAfterCrash,
    /// The replica that had forgotten answers again.
    ReturnedAnswers,
    /// A replica that was behind was given the other's state.
    Repaired,
    /// The second owner was notified that the tail may be lost.
    TailUnknownTold,
    /// A server that the others had counted out refused because it had no lease.
    LeaseMissed,
    /// The second owner was let in without a question, since the first had closed.
    LetGo,
}

impl Sight {
    /// Every one of them, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::TakeoverInFlight,
        Self::LateAnswer,
        Self::FenceTold,
        Self::AnsweredAfterCrash,
        Self::ReturnedAnswers,
        Self::Repaired,
        Self::TailUnknownTold,
        Self::LeaseMissed,
        Self::LetGo,
    ];

    /// Returns its description.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TakeoverInFlight => "a takeover while a write is on one replica only",
            Self::LateAnswer => "an answer to the first owner after the second was let in",
            Self::FenceTold => "the first owner is notified that it is fenced",
            Self::AnsweredAfterCrash => "an answer after a crash",
            Self::ReturnedAnswers => "the replica that forgot answers again",
            Self::Repaired => "a replica that was behind is repaired",
            Self::TailUnknownTold => "the second owner is notified that the tail may be lost",
            Self::LeaseMissed => "a server without a lease refuses",
            Self::LetGo => "a session changes hands after it was closed",
        }
    }
}

/// A small world. It is explored to its end, so every bound is here.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Its name on the command line.
    pub name: &'static str,
    /// Operations of the first owner, in this order; it may submit before earlier answers came.
    pub first: &'static [Wish],
    /// Operations of the second owner, once it is let in.
    pub second: &'static [Wish],
    /// Server that may lose its memory, at any moment. Which of the two does not matter: they are
    /// alike.
    pub crash: Option<u8>,
    /// True if it may come back, empty, as another incarnation.
    pub comes_back: bool,
    /// Server that may be cut off from the other and from the controller, until they count it out.
    pub cut: Option<u8>,
    /// How often a little more than a lease passes.
    pub waits: u8,
    /// Situations that the search must meet.
    pub sights: &'static [Sight],
}

impl Plan {
    /// Returns an owner's operation.
    #[must_use]
    pub(super) fn wish(&self, owner: Place, index: usize) -> Option<Wish> {
        self.wishes(owner).get(index).copied()
    }

    pub(super) fn wishes(&self, owner: Place) -> &'static [Wish] {
        if owner == Place::FIRST_OWNER {
            self.first
        } else {
            self.second
        }
    }
}

/// A world without faults.
const CALM: Plan = Plan {
    name: "",
    first: &[],
    second: &[],
    crash: None,
    comes_back: false,
    cut: None,
    waits: 0,
    sights: &[],
};

/// The worlds that every commit explores.
pub const PLANS: &[Plan] = &[
    Plan {
        name: "handover",
        first: &[Wish::Add(1), Wish::Get],
        second: &[Wish::Get, Wish::Add(100)],
        sights: &[
            Sight::TakeoverInFlight,
            Sight::LateAnswer,
            Sight::FenceTold,
            Sight::Repaired,
        ],
        ..CALM
    },
    Plan {
        name: "overwrite",
        first: &[Wish::Set(1), Wish::Get],
        second: &[Wish::Get, Wish::Set(2)],
        sights: &[
            Sight::TakeoverInFlight,
            Sight::LateAnswer,
            Sight::FenceTold,
            Sight::Repaired,
        ],
        ..CALM
    },
    Plan {
        name: "let-go",
        first: &[Wish::Add(1), Wish::Set(5), Wish::Close],
        second: &[Wish::Get, Wish::Add(2)],
        sights: &[Sight::LetGo, Sight::LateAnswer, Sight::FenceTold],
        ..CALM
    },
    Plan {
        name: "alone",
        first: &[Wish::Add(1), Wish::Get, Wish::Add(10)],
        crash: Some(0),
        comes_back: true,
        sights: &[
            Sight::AnsweredAfterCrash,
            Sight::ReturnedAnswers,
            Sight::Repaired,
        ],
        ..CALM
    },
    Plan {
        name: "returns",
        first: &[Wish::Add(1)],
        second: &[Wish::Get],
        crash: Some(0),
        comes_back: true,
        waits: 1,
        sights: &[
            Sight::TakeoverInFlight,
            Sight::LateAnswer,
            Sight::AnsweredAfterCrash,
            Sight::ReturnedAnswers,
            Sight::TailUnknownTold,
        ],
        ..CALM
    },
    Plan {
        name: "stays-away",
        first: &[Wish::Add(1), Wish::Get],
        second: &[Wish::Get, Wish::Add(100)],
        crash: Some(0),
        waits: 2,
        sights: &[
            Sight::TakeoverInFlight,
            Sight::LateAnswer,
            Sight::AnsweredAfterCrash,
            Sight::TailUnknownTold,
        ],
        ..CALM
    },
    Plan {
        name: "cut-off",
        first: &[Wish::Add(1)],
        second: &[Wish::Get],
        cut: Some(0),
        waits: 2,
        sights: &[
            Sight::TakeoverInFlight,
            Sight::LeaseMissed,
            Sight::TailUnknownTold,
            Sight::FenceTold,
        ],
        ..CALM
    },
];

/// Planted bugs, each with a world that shows it. The other bugs need parts that these worlds lack:
/// a third replica, deletions, expiry, little memory, damage, a router of its own, a second crash.
pub const BUGS: &[(Bug, &str)] = &[
    (Bug::ReadWithoutDep, "handover"),
    (Bug::UpdateWithoutDep, "handover"),
    (Bug::AckBeforeApply, "alone"),
    (Bug::NoIncarnationCheck, "returns"),
    (Bug::RetryExecutesAgain, "handover"),
    (Bug::RepairByExecution, "handover"),
    (Bug::AnyConfiguration, "alone"),
    (Bug::NoFence, "handover"),
    (Bug::NoLease, "cut-off"),
    (Bug::PushGoesBack, "handover"),
    (Bug::ErrorWins, "handover"),
    (Bug::NoWriteBack, "returns"),
    (Bug::ClosedTooEarly, "let-go"),
    (Bug::LossForgotten, "cut-off"),
    (Bug::OpenBeforeFence, "handover"),
];
