//! The operations on a value, and their answers.

use bytes::Bytes;

use super::ValueKind;
use super::hash::HashOperation;
use crate::fixed::Fixed;
use crate::id::{DurationNs, WallNs};
use crate::machine::Access;

/// An operation on a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Returns the value.
    Get,
    /// Replaces the value.
    Set {
        /// The new value.
        value: Bytes,
        /// The owner's time at which it ends.
        expires_at: Option<WallNs>,
        /// The condition under which it is done.
        condition: Condition,
    },
    /// Removes the value. With `counted` the answer depends on the value, which makes it an update.
    Delete {
        /// True to answer 1 if there was a value, and 0 otherwise.
        counted: bool,
    },
    /// Adds to a decimal number; no value is 0.
    Increment(i64),
    /// Adds bytes at the end; no value is empty.
    Append(Bytes),
    /// Replaces the value when it is the expected one; `None` expects that there is none.
    CompareAndSet {
        /// The value that the key must have.
        expected: Option<Bytes>,
        /// The new value.
        value: Bytes,
    },
    /// Replaces the value. It can return the old value, and can keep its expiry time.
    Exchange {
        /// The new value.
        value: Bytes,
        /// The lifetime of the new value.
        lifetime: Lifetime,
        /// The condition under which it is done.
        condition: Condition,
        /// True to answer the old value, whether or not it was replaced.
        returns_old: bool,
    },
    /// Removes the value, and returns it.
    Take,
    /// Changes the time at which the value ends; `None` stands for never. A time in the past
    /// removes it.
    Expire {
        /// The owner's time.
        at: Option<WallNs>,
        /// The condition under which it is done.
        condition: ExpireCondition,
        /// True to answer the value instead of 1 or 0.
        returns_value: bool,
    },
    /// Returns the time at which the value ends.
    Expiry,
    /// Overwrites a part of the value. Zeros fill the gap between the end of the value and the
    /// part.
    SetRange {
        /// The offset of the part, in bytes.
        offset: u32,
        /// The bytes of the part; none leave the value as it is.
        value: Bytes,
    },
    /// Returns the kind of the value.
    Kind,
    /// Sets one bit, and returns the old one. Zeros fill the gap before it.
    SetBit {
        /// The place of the bit: 0 is the highest bit of the first byte.
        offset: u32,
        /// The new bit.
        on: bool,
    },
    /// Moves the time at which the value ends; a value that never ends stays as it is.
    Prolong {
        /// The time by which it ends later.
        by: DurationNs,
    },
    /// Does the operation if the value is the expected one. Otherwise it changes nothing, and
    /// answers [`Answer::NotStored`].
    IfEqual {
        /// The value that the key must have.
        expected: Bytes,
        /// The operation.
        then: Box<Self>,
    },
    /// Does the operations one after another, as one: a replica has all of them or none, and
    /// nothing comes between them. Answers each of them.
    Several(Vec<Self>),
    /// An operation on the fields of a hash.
    Hash(HashOperation),
    /// Adds to a decimal fraction, and answers the sum as a value; no value is 0.
    IncrementFraction(Fixed),
    /// Does the operation unless the key remembers it: see [`super::Calls`]. Otherwise it changes
    /// nothing, and answers as before.
    Once {
        /// The name of the caller.
        caller: Bytes,
        /// The number of the operation, which rises with each of the caller's.
        number: u64,
        /// The digest of the caller's command, so that no other command gets its answer.
        digest: u64,
        /// The operation.
        then: Box<Self>,
    },
}

/// The lifetime of a new value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// It ends at this time; `None` stands for never.
    Until(Option<WallNs>),
    /// It ends when the old value would have.
    Kept,
}

/// The condition of an [`Operation::Expire`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExpireCondition {
    /// Always.
    #[default]
    Always,
    /// Only if the value has no end.
    Never,
    /// Only if the value has an end.
    Once,
    /// Only if the new end is later; never is the latest.
    Later,
    /// Only if the new end is earlier.
    Earlier,
    /// Only if the value has an end, and the new one is earlier.
    EarlierOnce,
}

/// The condition of an [`Operation::Set`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Condition {
    /// Always.
    #[default]
    Always,
    /// Only if there is no value.
    Absent,
    /// Only if there is a value.
    Present,
}

/// The answer of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The operation was done.
    Stored,
    /// The value.
    Value(Bytes),
    /// There is no value.
    NotFound,
    /// The new number, the new length, or the number of removed values.
    Number(i64),
    /// The condition did not hold, and nothing was changed.
    NotStored,
    /// The value is not a decimal number.
    NotANumber,
    /// The number would not fit 64 bits.
    OutOfRange,
    /// The value would be longer than the machine's limit.
    TooLarge,
    /// There is a value, and it never ends.
    ForEver,
    /// The value is of another kind than the operation needs.
    WrongKind,
    /// The kind of the value.
    Kind(ValueKind),
    /// The fields of a hash, as [`super::fields`] reads them.
    Fields(Bytes),
    /// The answers of an [`Operation::Several`], or a value or [`Answer::NotFound`] for each field.
    Several(Vec<Self>),
    /// The caller has given this number, or a higher one, to another operation on this key.
    NumberTaken,
    /// The key remembers as many callers as it may.
    TooManyCallers,
}

impl Operation {
    /// A plain write.
    #[must_use]
    pub fn set(value: Bytes) -> Self {
        Self::Set {
            value,
            expires_at: None,
            condition: Condition::Always,
        }
    }

    /// Returns its dependence on the state.
    #[must_use]
    pub fn access(&self) -> Access {
        match self {
            Self::Get | Self::Expiry | Self::Kind => Access::Read,
            Self::Hash(operation) if operation.is_read() => Access::Read,
            Self::Several(all) if all.iter().all(|it| it.access() == Access::Read) => Access::Read,
            Self::Set {
                condition: Condition::Always,
                ..
            }
            | Self::Delete { counted: false } => Access::Blind,
            _ => Access::Update,
        }
    }

    /// Returns whether the operation needs a value that is a string.
    pub(super) fn needs_string(&self) -> bool {
        matches!(
            self,
            Self::Get
                | Self::Increment(_)
                | Self::Append(_)
                | Self::CompareAndSet { .. }
                | Self::Exchange {
                    returns_old: true,
                    ..
                }
                | Self::Take
                | Self::Expire {
                    returns_value: true,
                    ..
                }
                | Self::SetRange { .. }
                | Self::SetBit { .. }
                | Self::IncrementFraction(_)
                | Self::IfEqual { .. }
        )
    }

    /// Returns the longest value that the operation writes as it is, in bytes.
    pub(super) fn longest(&self) -> usize {
        match self {
            Self::Set { value, .. }
            | Self::CompareAndSet { value, .. }
            | Self::Exchange { value, .. } => value.len(),
            Self::IfEqual { then, .. } | Self::Once { then, .. } => then.longest(),
            Self::Several(all) => all.iter().map(Self::longest).max().unwrap_or(0),
            _ => 0,
        }
    }
}

impl Answer {
    /// Returns the bytes that the answer takes, about.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        const EMPTY: usize = 16;
        EMPTY
            + match self {
                Self::Value(bytes) | Self::Fields(bytes) => bytes.len(),
                Self::Several(all) => all.iter().map(Self::size_bytes).sum(),
                _ => 0,
            }
    }
}
