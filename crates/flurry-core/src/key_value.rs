//! The first state machine: a value for each key, with expiry, counters and conditions.

use bytes::Bytes;
use prost::Message as _;

use crate::id::WallNs;
use crate::machine::{Access, Applied, Malformed, StateMachine};
use crate::wire::body::{self, operation::Kind};

/// The largest value, one that still fits a TCP frame beside its key and envelope.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// An operation on a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// The value.
    Get,
    /// Replaces the value.
    Set {
        /// The new value.
        value: Bytes,
        /// The owner's time at which it ends.
        expires_at: Option<WallNs>,
        /// When to do it at all.
        condition: Condition,
    },
    /// Removes the value. `counted` says whether there was one, which makes it an update.
    Delete {
        /// Answer 1 or 0.
        counted: bool,
    },
    /// Adds to a decimal number; no value is 0.
    Increment(i64),
    /// Adds bytes at the end; no value is empty.
    Append(Bytes),
    /// Replaces the value when it is the expected one; `None` expects that there is none.
    CompareAndSet {
        /// What must be there.
        expected: Option<Bytes>,
        /// What shall be there.
        value: Bytes,
    },
}

/// When a [`Operation::Set`] is done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Condition {
    /// Always.
    #[default]
    Always,
    /// Only when there is no value.
    Absent,
    /// Only when there is one.
    Present,
}

/// What an operation answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It was done.
    Stored,
    /// The value.
    Value(Bytes),
    /// There is none.
    NotFound,
    /// The new number, the new length, or how many were removed.
    Number(i64),
    /// The condition did not hold, and nothing was changed.
    NotStored,
    /// The value is not a decimal number.
    NotANumber,
    /// The number would not fit 64 bits.
    OutOfRange,
    /// The value would be longer than the machine's limit.
    TooLarge,
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

    /// How it depends on the state.
    #[must_use]
    pub fn access(&self) -> Access {
        match self {
            Self::Get => Access::Read,
            Self::Set {
                condition: Condition::Always,
                ..
            }
            | Self::Delete { counted: false } => Access::Blind,
            _ => Access::Update,
        }
    }

    /// The operation as bytes.
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
                condition: match condition {
                    Condition::Always => 0,
                    Condition::Absent => 1,
                    Condition::Present => 2,
                },
            }),
            Self::Delete { counted } => Kind::Delete(body::Delete { counted }),
            Self::Increment(by) => Kind::Increment(body::Increment { by }),
            Self::Append(value) => Kind::Append(body::Append { value }),
            Self::CompareAndSet { expected, value } => {
                Kind::CompareAndSet(body::CompareAndSet { expected, value })
            }
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
                condition: match set.condition {
                    0 => Condition::Always,
                    1 => Condition::Absent,
                    2 => Condition::Present,
                    other => return Err(Malformed(format!("condition is {other}"))),
                },
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
            None => return Err(Malformed("it is empty".to_owned())),
        })
    }
}

impl Answer {
    /// The answer as bytes.
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
            other => return Err(Malformed(format!("answer code is {other}"))),
        })
    }
}

/// A value and when it ends.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Value {
    /// The bytes.
    pub bytes: Bytes,
    /// The owner's time at which it ends.
    pub expires_at: Option<WallNs>,
}

/// The key-value machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyValue {
    value_bytes_max: usize,
}

impl Default for KeyValue {
    fn default() -> Self {
        Self::with_values_up_to(VALUE_BYTES_MAX)
    }
}

impl KeyValue {
    /// A machine whose values are no longer than this, nor than [`VALUE_BYTES_MAX`]: as long as the
    /// transport can carry.
    #[must_use]
    pub fn with_values_up_to(bytes: usize) -> Self {
        Self {
            value_bytes_max: bytes.min(VALUE_BYTES_MAX),
        }
    }

    /// Reads an operation, and refuses one whose value is too long: a blind write always answers that
    /// it was done, so what cannot be done is refused before.
    fn read(&self, operation: &[u8]) -> Result<Operation, Malformed> {
        let operation = Operation::decode(operation)?;
        match &operation {
            Operation::Set { value, .. } | Operation::CompareAndSet { value, .. }
                if value.len() > self.value_bytes_max =>
            {
                Err(Malformed(format!("its value has {} bytes", value.len())))
            }
            _ => Ok(operation),
        }
    }
}

impl StateMachine for KeyValue {
    type State = Value;

    fn access(&self, operation: &[u8]) -> Result<Access, Malformed> {
        self.read(operation).map(|operation| operation.access())
    }

    fn apply(
        &self,
        state: Option<&Value>,
        operation: &[u8],
        at: WallNs,
    ) -> Result<Applied<Value>, Malformed> {
        let operation = self.read(operation)?;
        // Expired by the owner's own time, so that every replica decides alike.
        let live = state.filter(|value| value.expires_at.is_none_or(|end| at < end));
        let (state, answer) = execute(live, operation, self.value_bytes_max);
        Ok(Applied {
            state,
            answer: answer.encode(),
        })
    }

    fn blind_answer(&self) -> Bytes {
        Answer::Stored.encode()
    }

    fn snapshot(&self, state: &Value) -> Bytes {
        body::Set {
            value: state.bytes.clone(),
            expires_at_ns: state.expires_at.map(|at| at.0),
            condition: 0,
        }
        .encode_to_vec()
        .into()
    }

    fn restore(&self, snapshot: &[u8]) -> Result<Value, Malformed> {
        let set = body::Set::decode(snapshot).map_err(|error| Malformed(error.to_string()))?;
        Ok(Value {
            bytes: set.value,
            expires_at: set.expires_at_ns.map(WallNs),
        })
    }

    fn size_bytes(&self, state: &Value) -> usize {
        state.bytes.len()
    }
}

fn execute(
    live: Option<&Value>,
    operation: Operation,
    value_bytes_max: usize,
) -> (Option<Value>, Answer) {
    let kept = live.cloned();
    match operation {
        Operation::Get => {
            let answer = live.map_or(Answer::NotFound, |value| Answer::Value(value.bytes.clone()));
            (kept, answer)
        }
        Operation::Set {
            value,
            expires_at,
            condition,
        } => {
            let wanted = match condition {
                Condition::Always => true,
                Condition::Absent => live.is_none(),
                Condition::Present => live.is_some(),
            };
            replace(kept, wanted, value, expires_at)
        }
        Operation::Delete { counted: false } => (None, Answer::Stored),
        Operation::Delete { counted: true } => (None, Answer::Number(i64::from(live.is_some()))),
        Operation::Increment(by) => increment(kept, by),
        Operation::Append(more) => {
            let old = live.map_or(&[][..], |value| &value.bytes);
            if old.len() + more.len() > value_bytes_max {
                return (kept, Answer::TooLarge);
            }
            let bytes = Bytes::from([old, &more].concat());
            let length = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
            let expires_at = live.and_then(|value| value.expires_at);
            (Some(Value { bytes, expires_at }), Answer::Number(length))
        }
        Operation::CompareAndSet { expected, value } => {
            let wanted = live.map(|value| &value.bytes) == expected.as_ref();
            let expires_at = live.and_then(|value| value.expires_at);
            replace(kept, wanted, value, expires_at)
        }
    }
}

fn replace(
    kept: Option<Value>,
    wanted: bool,
    bytes: Bytes,
    expires_at: Option<WallNs>,
) -> (Option<Value>, Answer) {
    if wanted {
        (Some(Value { bytes, expires_at }), Answer::Stored)
    } else {
        (kept, Answer::NotStored)
    }
}

fn increment(kept: Option<Value>, by: i64) -> (Option<Value>, Answer) {
    let text = kept.as_ref().map_or(&b"0"[..], |value| &value.bytes);
    let number = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse::<i64>().ok());
    let Some(number) = number else {
        return (kept, Answer::NotANumber);
    };
    match number.checked_add(by) {
        None => (kept, Answer::OutOfRange),
        Some(sum) => {
            let value = Value {
                bytes: Bytes::from(sum.to_string()),
                expires_at: kept.and_then(|value| value.expires_at),
            };
            (Some(value), Answer::Number(sum))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 100;

    #[test]
    fn a_value_grows_up_to_the_limit_and_no_further() {
        let machine = KeyValue::with_values_up_to(LIMIT);
        let nearly = Value {
            bytes: Bytes::from(vec![7; LIMIT - 1]),
            expires_at: None,
        };
        let append = |text: &'static str| {
            let operation = Operation::Append(Bytes::from(text)).encode();
            machine.apply(Some(&nearly), &operation, WallNs(1)).unwrap()
        };
        assert_eq!(append("1").state.unwrap().bytes.len(), LIMIT);
        assert_eq!(append("12").state, Some(nearly.clone()));
        assert_eq!(append("12").answer, Answer::TooLarge.encode());
    }

    #[test]
    fn a_plain_write_over_the_limit_is_refused_as_a_whole() {
        let machine = KeyValue::with_values_up_to(LIMIT);
        let set = |bytes| Operation::set(Bytes::from(vec![7; bytes])).encode();
        assert!(machine.access(&set(LIMIT)).is_ok());
        assert!(machine.access(&set(LIMIT + 1)).is_err());
        assert!(machine.apply(None, &set(LIMIT + 1), WallNs(1)).is_err());
    }
}
