//! The execution of operations.

use bytes::Bytes;

use super::{Answer, Condition, ExpireCondition, Lifetime, Operation, Value};
use crate::decimal::decimal;
use crate::id::WallNs;

/// Executes an operation on a value that has not ended. Returns the new value and the answer.
pub(super) fn execute(
    live: Option<&Value>,
    operation: Operation,
    at: WallNs,
    value_bytes_max: usize,
) -> (Option<Value>, Answer) {
    let kept = live.cloned();
    match operation {
        Operation::Get => {
            let answer = told(live);
            (kept, answer)
        }
        Operation::Set {
            value,
            expires_at,
            condition,
        } => {
            let wanted = condition.holds(live);
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
        Operation::Exchange {
            value,
            lifetime,
            condition,
            returns_old,
        } => {
            let expires_at = match lifetime {
                Lifetime::Until(end) => end,
                Lifetime::Kept => live.and_then(|value| value.expires_at),
            };
            let old = told(live);
            let (state, answer) = replace(kept, condition.holds(live), value, expires_at);
            (state, if returns_old { old } else { answer })
        }
        Operation::Take => (None, told(live)),
        Operation::Expire {
            at: end,
            condition,
            returns_value,
        } => {
            let old = told(live);
            let (state, done) = expire(kept, end, condition, at);
            let answer = Answer::Number(i64::from(done));
            (state, if returns_value { old } else { answer })
        }
        Operation::Expiry => {
            let answer = live.map_or(Answer::NotFound, |value| {
                value
                    .expires_at
                    .map_or(Answer::ForEver, |end| Answer::Number(end.0))
            });
            (kept, answer)
        }
        Operation::SetRange { offset, value } => set_range(kept, offset, &value, value_bytes_max),
    }
}

impl Condition {
    fn holds(self, live: Option<&Value>) -> bool {
        match self {
            Self::Always => true,
            Self::Absent => live.is_none(),
            Self::Present => live.is_some(),
        }
    }
}

impl ExpireCondition {
    /// Returns whether a value that ends at `before` may end at `after` instead; `None` stands for
    /// never, the latest time.
    fn holds(self, before: Option<WallNs>, after: Option<WallNs>) -> bool {
        let latest = |end: Option<WallNs>| end.map_or((true, WallNs(0)), |end| (false, end));
        match self {
            Self::Always => true,
            Self::Never => before.is_none(),
            Self::Once => before.is_some(),
            Self::Later => latest(after) > latest(before),
            Self::Earlier => latest(after) < latest(before),
            Self::EarlierOnce => before.is_some() && latest(after) < latest(before),
        }
    }
}

fn told(live: Option<&Value>) -> Answer {
    live.map_or(Answer::NotFound, |value| Answer::Value(value.bytes.clone()))
}

/// Changes the time at which a value ends. Returns the value, and whether the time changed.
fn expire(
    kept: Option<Value>,
    end: Option<WallNs>,
    condition: ExpireCondition,
    now: WallNs,
) -> (Option<Value>, bool) {
    let Some(value) = kept else {
        return (None, false);
    };
    if !condition.holds(value.expires_at, end) {
        return (Some(value), false);
    }
    if end.is_some_and(|end| end <= now) {
        return (None, true);
    }
    debug_assert!(
        value.expires_at.is_none_or(|before| before > now),
        "an expired value does not exist for any operation"
    );
    let expires_at = end;
    (
        Some(Value {
            expires_at,
            ..value
        }),
        true,
    )
}

fn set_range(
    kept: Option<Value>,
    offset: u32,
    part: &[u8],
    value_bytes_max: usize,
) -> (Option<Value>, Answer) {
    let length = kept.as_ref().map_or(0, |value| value.bytes.len());
    let number = |length: usize| Answer::Number(i64::try_from(length).unwrap_or(i64::MAX));
    if part.is_empty() {
        return (kept, number(length));
    }
    let begin = usize::try_from(offset).unwrap_or(usize::MAX);
    let end = begin.saturating_add(part.len());
    if end > value_bytes_max {
        return (kept, Answer::TooLarge);
    }
    let mut bytes = kept
        .as_ref()
        .map_or_else(Vec::new, |value| value.bytes.to_vec());
    assert!(
        begin <= end,
        "an end that does not fit the machine is beyond the limit"
    );
    bytes.resize(bytes.len().max(end), 0);
    assert!(
        bytes.len() >= length,
        "a part that is written over takes nothing off the end"
    );
    bytes[begin..end].copy_from_slice(part);
    let answer = number(bytes.len());
    let value = Value {
        bytes: bytes.into(),
        expires_at: kept.and_then(|value| value.expires_at),
    };
    (Some(value), answer)
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
    let Some(number) = decimal(text) else {
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
