//! Operations and answers as bytes.

use bytes::Bytes;
use prost::Message as _;

use super::hash::HashOperation;
use super::{Answer, CALLER_BYTES_MAX, Condition, ExpireCondition, Lifetime, Operation, ValueKind};
use crate::fixed::Fixed;
use crate::id::{DurationNs, WallNs};
use crate::machine::Malformed;
use crate::wire::key_value::{self as body, operation::Kind};

/// The depth up to which operations and answers are nested: several, on a condition, with several.
const NESTED_MAX: usize = 3;

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
        .ok_or_else(|| Malformed(format!("its condition or kind is {number}")))
}

impl ValueKind {
    const ALL: [Self; 2] = [Self::Text, Self::Hash];

    /// Returns its number on the wire.
    #[must_use]
    pub fn number(self) -> u32 {
        self as u32
    }

    pub(super) fn of_number(number: u32) -> Result<Self, Malformed> {
        numbered(&Self::ALL, number)
    }
}

impl Operation {
    /// Returns the operation as bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        self.body().encode_to_vec().into()
    }

    fn body(&self) -> body::Operation {
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
                kind: 0,
                calls: Vec::new(),
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
            Self::Kind => Kind::KindOf(body::ValueKind {}),
            Self::SetBit { offset, on } => Kind::SetBit(body::SetBit { offset, on }),
            Self::Prolong { by } => Kind::Prolong(body::Prolong { by_ns: by.0 }),
            Self::IfEqual { expected, then } => Kind::IfEqual(Box::new(body::IfEqual {
                expected,
                then: Some(Box::new(then.body())),
            })),
            Self::Several(all) => Kind::Several(body::Several {
                operations: all.iter().map(Self::body).collect(),
            }),
            Self::Hash(operation) => operation.body(),
            Self::IncrementFraction(by) => Kind::IncrementFraction(body::IncrementFraction {
                by: by.to_string().into(),
            }),
            Self::Once {
                caller,
                number,
                digest,
                then,
            } => once(caller, (number, digest), &then),
        };
        body::Operation { kind: Some(kind) }
    }

    /// Reads an operation.
    ///
    /// # Errors
    ///
    /// [`Malformed`] when the bytes are none.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let read = body::Operation::decode(bytes).map_err(|error| Malformed(error.to_string()))?;
        // A numbered operation is the whole of it.
        if let Some(Kind::Once(once)) = read.kind {
            if once.caller.len() > CALLER_BYTES_MAX {
                return Err(Malformed("the name of its caller is too long".to_owned()));
            }
            let then = once.then.map(|it| *it).unwrap_or_default();
            return Ok(Self::Once {
                caller: once.caller,
                number: once.number,
                digest: once.digest,
                then: Box::new(Self::of_body(then, NESTED_MAX)?),
            });
        }
        Self::of_body(read, NESTED_MAX)
    }

    /// Reads an operation, in which others are nested up to a depth.
    fn of_body(read: body::Operation, depth: usize) -> Result<Self, Malformed> {
        let nested = |operation: body::Operation| {
            let left = depth.checked_sub(1);
            let left = left.ok_or_else(|| Malformed("it is nested too deeply".to_owned()))?;
            Self::of_body(operation, left)
        };
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
            Some(Kind::KindOf(_)) => Self::Kind,
            Some(Kind::SetBit(bit)) => Self::SetBit {
                offset: bit.offset,
                on: bit.on,
            },
            Some(Kind::Prolong(prolong)) => Self::Prolong {
                by: DurationNs(prolong.by_ns),
            },
            Some(Kind::IfEqual(guarded)) => Self::IfEqual {
                expected: guarded.expected,
                then: Box::new(nested(guarded.then.map(|it| *it).unwrap_or_default())?),
            },
            Some(Kind::Several(several)) => {
                let all = several.operations.into_iter().map(nested);
                Self::Several(all.collect::<Result<_, _>>()?)
            }
            Some(Kind::IncrementFraction(increment)) => {
                let by = Fixed::parse(&increment.by);
                let by = by.ok_or_else(|| Malformed("its fraction is none".to_owned()))?;
                Self::IncrementFraction(by)
            }
            Some(kind) => Self::Hash(HashOperation::of_body(kind)?),
            None => return Err(Malformed("it is empty".to_owned())),
        })
    }
}

fn once(caller: Bytes, (number, digest): (u64, u64), then: &Operation) -> Kind {
    Kind::Once(Box::new(body::Once {
        caller,
        number,
        digest,
        then: Some(Box::new(then.body())),
    }))
}

impl Answer {
    /// Returns the answer as bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        self.body().encode_to_vec().into()
    }

    fn body(&self) -> body::Answer {
        let coded = |code| body::Answer {
            code,
            ..body::Answer::default()
        };
        let value = |code, value: &Bytes| body::Answer {
            value: value.clone(),
            ..coded(code)
        };
        let number = |code, number| body::Answer {
            number,
            ..coded(code)
        };
        match self {
            Self::Stored => coded(0),
            Self::Value(bytes) => value(1, bytes),
            Self::NotFound => coded(2),
            Self::Number(it) => number(3, *it),
            Self::NotStored => coded(4),
            Self::NotANumber => coded(5),
            Self::OutOfRange => coded(6),
            Self::TooLarge => coded(7),
            Self::ForEver => coded(8),
            Self::WrongKind => coded(9),
            Self::Kind(kind) => number(10, i64::from(kind.number())),
            Self::Fields(bytes) => value(11, bytes),
            Self::Several(all) => body::Answer {
                answers: all.iter().map(Self::body).collect(),
                ..coded(12)
            },
            Self::NumberTaken => coded(13),
            Self::TooManyCallers => coded(14),
        }
    }

    /// Reads an answer.
    ///
    /// # Errors
    ///
    /// [`Malformed`] when the bytes are none.
    pub fn decode(bytes: Bytes) -> Result<Self, Malformed> {
        let read = body::Answer::decode(bytes).map_err(|error| Malformed(error.to_string()))?;
        Self::of_body(read, NESTED_MAX)
    }

    fn of_body(read: body::Answer, depth: usize) -> Result<Self, Malformed> {
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
            9 => Self::WrongKind,
            10 => Self::Kind(ValueKind::of_number(
                u32::try_from(read.number).unwrap_or(u32::MAX),
            )?),
            11 => Self::Fields(read.value),
            12 if depth > 0 => {
                let all = read.answers.into_iter();
                let all = all.map(|it| Self::of_body(it, depth - 1));
                Self::Several(all.collect::<Result<_, _>>()?)
            }
            13 => Self::NumberTaken,
            14 => Self::TooManyCallers,
            other => return Err(Malformed(format!("answer code is {other}"))),
        })
    }
}
