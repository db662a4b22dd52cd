//! The operations on a value and their answers, as bytes.

use bytes::Bytes;
use prost::Message as _;

use crate::id::WallNs;
use crate::machine::{Access, Malformed};
use crate::wire::body::{self, operation::Kind};

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
}

impl Condition {
    const ALL: [Self; 3] = [Self::Always, Self::Absent, Self::Present];

    fn number(self) -> u32 {
        self as u32
    }

    fn of_number(number: u32) -> Result<Self, Malformed> {
        numbered(&Self::ALL, number)
    }
}

impl ExpireCondition {
    const ALL: [Self; 6] = [
        Self::Always,
        Self::Never,
        Self::Once,
        Self::Later,
        Self::Earlier,
        Self::EarlierOnce,
    ];

    fn number(self) -> u32 {
        self as u32
    }

    fn of_number(number: u32) -> Result<Self, Malformed> {
        numbered(&Self::ALL, number)
    }
}

/// Returns the condition with this number. Conditions are counted from 0 in their order.
fn numbered<T: Copy>(all: &[T], number: u32) -> Result<T, Malformed> {
    let found = usize::try_from(number).ok().and_then(|it| all.get(it));
    found
        .copied()
        .ok_or_else(|| Malformed(format!("condition is {number}")))
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
            Self::Get | Self::Expiry => Access::Read,
            Self::Set {
                condition: Condition::Always,
                ..
            }
            | Self::Delete { counted: false } => Access::Blind,
            _ => Access::Update,
        }
    }

    /// Returns the operation as bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let kind = match self.clone() {
            Self::Get => Kind::Get(body::Get {}),
            Self::Set {
                value,
                expires_at,
                condition,
            } => Kind::Set(body::Set {
                value,
                expires_at_ns: expires_at.map(|at| at.0),
                condition: condition.number(),
            }),
            Self::Delete { counted } => Kind::Delete(body::Delete { counted }),
            Self::Increment(by) => Kind::Increment(body::Increment { by }),
            Self::Append(value) => Kind::Append(body::Append { value }),
            Self::CompareAndSet { expected, value } => {
                Kind::CompareAndSet(body::CompareAndSet { expected, value })
            }
            Self::Exchange {
                value,
                lifetime,
                condition,
                returns_old,
            } => Kind::Exchange(body::Exchange {
                value,
                expires_at_ns: match lifetime {
                    Lifetime::Until(at) => at.map(|at| at.0),
                    Lifetime::Kept => None,
                },
                condition: condition.number(),
                keeps_expiry: lifetime == Lifetime::Kept,
                returns_old,
            }),
            Self::Take => Kind::Take(body::Take {}),
            Self::Expire {
                at,
                condition,
                returns_value,
            } => Kind::Expire(body::Expire {
                at_ns: at.map(|at| at.0),
                condition: condition.number(),
                returns_value,
            }),
            Self::Expiry => Kind::Expiry(body::Expiry {}),
            Self::SetRange { offset, value } => Kind::SetRange(body::SetRange { offset, value }),
        };
        body::Operation { kind: Some(kind) }.encode_to_vec().into()
    }

    /// Reads an operation.
    ///
    /// # Errors
    ///
    /// [`Malformed`] when the bytes are none.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let read = body::Operation::decode(bytes).map_err(|error| Malformed(error.to_string()))?;
        Ok(match read.kind {
            Some(Kind::Get(_)) => Self::Get,
            Some(Kind::Set(set)) => Self::Set {
                value: set.value,
                expires_at: set.expires_at_ns.map(WallNs),
                condition: Condition::of_number(set.condition)?,
            },
            Some(Kind::Delete(delete)) => Self::Delete {
                counted: delete.counted,
            },
            Some(Kind::Increment(increment)) => Self::Increment(increment.by),
            Some(Kind::Append(append)) => Self::Append(append.value),
            Some(Kind::CompareAndSet(swap)) => Self::CompareAndSet {
                expected: swap.expected,
                value: swap.value,
            },
            Some(Kind::Exchange(exchange)) => Self::Exchange {
                value: exchange.value,
                lifetime: if exchange.keeps_expiry {
                    Lifetime::Kept
                } else {
                    Lifetime::Until(exchange.expires_at_ns.map(WallNs))
                },
                condition: Condition::of_number(exchange.condition)?,
                returns_old: exchange.returns_old,
            },
            Some(Kind::Take(_)) => Self::Take,
            Some(Kind::Expire(expire)) => Self::Expire {
                at: expire.at_ns.map(WallNs),
                condition: ExpireCondition::of_number(expire.condition)?,
                returns_value: expire.returns_value,
            },
            Some(Kind::Expiry(_)) => Self::Expiry,
            Some(Kind::SetRange(range)) => Self::SetRange {
                offset: range.offset,
                value: range.value,
            },
            None => return Err(Malformed("it is empty".to_owned())),
        })
    }
}

impl Answer {
    /// Returns the answer as bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let (code, value, number) = match self {
            Self::Stored => (0, Bytes::new(), 0),
            Self::Value(value) => (1, value.clone(), 0),
            Self::NotFound => (2, Bytes::new(), 0),
            Self::Number(number) => (3, Bytes::new(), *number),
            Self::NotStored => (4, Bytes::new(), 0),
            Self::NotANumber => (5, Bytes::new(), 0),
            Self::OutOfRange => (6, Bytes::new(), 0),
            Self::TooLarge => (7, Bytes::new(), 0),
            Self::ForEver => (8, Bytes::new(), 0),
        };
        body::Answer {
            code,
            value,
            number,
        }
        .encode_to_vec()
        .into()
    }

    /// Reads an answer.
    ///
    /// # Errors
    ///
    /// [`Malformed`] when the bytes are none.
    pub fn decode(bytes: Bytes) -> Result<Self, Malformed> {
        let read = body::Answer::decode(bytes).map_err(|error| Malformed(error.to_string()))?;
        Ok(match read.code {
            0 => Self::Stored,
            1 => Self::Value(read.value),
            2 => Self::NotFound,
            3 => Self::Number(read.number),
            4 => Self::NotStored,
            5 => Self::NotANumber,
            6 => Self::OutOfRange,
            7 => Self::TooLarge,
            8 => Self::ForEver,
            other => return Err(Malformed(format!("answer code is {other}"))),
        })
    }
}
