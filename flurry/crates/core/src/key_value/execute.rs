//! The execution of operations.

use bytes::Bytes;

use super::{
    Answer, Condition, ExpireCondition, Lifetime, Operation, VALUE_BYTES_MAX, Value, ValueKind,
    hash,
};
use crate::decimal::decimal;
use crate::fixed::Fixed;
use crate::id::{DurationNs, WallNs};
use crate::machine::Malformed;

const BITS_PER_BYTE: usize = 8;

/// The most bytes of the answers to one operation: the longest value and a few small answers fit a
/// message.
const ANSWER_BYTES_MAX: usize = VALUE_BYTES_MAX + 1_024;

/// The most bytes of values that the operations of a transaction go through, each counted as often
/// as an operation reads or writes it. A replica does nothing else meanwhile.
const WORK_BYTES_MAX: usize = 16 * VALUE_BYTES_MAX;

/// What an operation leaves: the new value, and the answer.
type Executed = (Option<Value>, Answer);

/// Executes an operation on a value that has not ended.
///
/// # Errors
///
/// [`Malformed`] when the value is no value of its kind.
pub(super) fn execute(
    live: Option<&Value>,
    operation: Operation,
    at: WallNs,
    value_bytes_max: usize,
) -> Result<Executed, Malformed> {
    let found = live.map(|it| it.kind);
    let needed = match &operation {
        Operation::Hash(_) => Some(ValueKind::Hash),
        other if other.needs_string() => Some(ValueKind::Text),
        _ => None,
    };
    if needed.is_some() && found.is_some() && needed != found {
        return Ok((live.cloned(), Answer::WrongKind));
    }
    match operation {
        Operation::Hash(operation) => {
            let (state, answer) = hash::execute(live, operation, value_bytes_max)?;
            if answer.size_bytes() > ANSWER_BYTES_MAX {
                return Ok((live.cloned(), Answer::TooLarge));
            }
            Ok((state, answer))
        }
        Operation::Once { .. } => Err(Malformed(
            "a numbered operation is inside another".to_owned(),
        )),
        Operation::Several(all) => several(live, all, at, value_bytes_max),
        Operation::IfEqual { expected, then } => match live {
            Some(value) if value.bytes == expected => execute(live, *then, at, value_bytes_max),
            _ => Ok((live.cloned(), Answer::NotStored)),
        },
        other => Ok(on_string(live, other, at, value_bytes_max)),
    }
}

/// Executes operations one after another. The value stays as it was if their answers are too long, or
/// if they would take too long.
fn several(
    live: Option<&Value>,
    all: Vec<Operation>,
    at: WallNs,
    value_bytes_max: usize,
) -> Result<Executed, Malformed> {
    let mut state = live.cloned();
    let mut answers = Vec::with_capacity(all.len());
    let (mut bytes, mut work) = (0, 0);
    for operation in all {
        // An operation before may have left a value that has ended already.
        let found = state.as_ref().filter(|it| !it.has_ended(at));
        let (after, answer) = execute(found, operation, at, value_bytes_max)?;
        bytes += answer.size_bytes();
        let held = |state: Option<&Value>| state.map_or(0, |it| it.bytes.len());
        work += held(found).max(held(after.as_ref()));
        if bytes > ANSWER_BYTES_MAX || work > WORK_BYTES_MAX {
            return Ok((live.cloned(), Answer::TooLarge));
        }
        state = after;
        answers.push(answer);
    }
    Ok((state, Answer::Several(answers)))
}

/// Executes an operation on a string, or one that every value has.
fn on_string(
    live: Option<&Value>,
    operation: Operation,
    at: WallNs,
    value_bytes_max: usize,
) -> Executed {
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
        Operation::Append(more) => append(kept, &more, value_bytes_max),
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
            let old = returns_old.then(|| told(live));
            let (state, answer) = replace(kept, condition.holds(live), value, expires_at);
            (state, old.unwrap_or(answer))
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
        Operation::Expiry => (kept, expiry(live)),
        Operation::SetRange { offset, value } => set_range(kept, offset, &value, value_bytes_max),
        Operation::Kind => {
            let answer = live.map_or(Answer::NotFound, |value| Answer::Kind(value.kind));
            (kept, answer)
        }
        Operation::SetBit { offset, on } => set_bit(kept, offset, on, value_bytes_max),
        Operation::Prolong { by } => prolong(kept, by, at),
        Operation::IncrementFraction(by) => add_fraction(kept, by, value_bytes_max),
        Operation::Hash(_)
        | Operation::Several(_)
        | Operation::IfEqual { .. }
        | Operation::Once { .. } => {
            unreachable!("executed by the caller")
        }
    }
}

/// Returns a string with these bytes that ends when the value would have.
fn rewritten(live: Option<&Value>, bytes: Bytes) -> Value {
    Value {
        kind: ValueKind::Text,
        bytes,
        expires_at: live.and_then(|value| value.expires_at),
    }
}

fn append(kept: Option<Value>, more: &[u8], value_bytes_max: usize) -> Executed {
    let old = kept.as_ref().map_or(&[][..], |value| &value.bytes);
    if old.len() + more.len() > value_bytes_max {
        return (kept, Answer::TooLarge);
    }
    let bytes = Bytes::from([old, more].concat());
    let length = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
    (
        Some(rewritten(kept.as_ref(), bytes)),
        Answer::Number(length),
    )
}

fn set_bit(kept: Option<Value>, offset: u32, on: bool, value_bytes_max: usize) -> Executed {
    let place = usize::try_from(offset).unwrap_or(usize::MAX);
    let (index, mask) = (place / BITS_PER_BYTE, 0x80_u8 >> (place % BITS_PER_BYTE));
    if index >= value_bytes_max {
        return (kept, Answer::TooLarge);
    }
    let held = kept.as_ref().map_or(&[][..], |value| &value.bytes);
    let mut bytes = held.to_vec();
    bytes.resize(bytes.len().max(index + 1), 0);
    let was = bytes[index] & mask != 0;
    bytes[index] = if on {
        bytes[index] | mask
    } else {
        bytes[index] & !mask
    };
    let value = rewritten(kept.as_ref(), bytes.into());
    (Some(value), Answer::Number(i64::from(was)))
}

/// Moves the time at which a value ends. Answers 1, or 0 if it never ends or does not exist.
fn prolong(kept: Option<Value>, by: DurationNs, now: WallNs) -> Executed {
    let end = kept.as_ref().and_then(|value| value.expires_at);
    let Some(end) = end else {
        return (kept, Answer::Number(0));
    };
    let by = i64::try_from(by.0).unwrap_or(i64::MAX);
    let end = WallNs(end.0.saturating_add(by));
    let (state, done) = expire(kept, Some(end), ExpireCondition::Always, now);
    (state, Answer::Number(i64::from(done)))
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

fn expiry(live: Option<&Value>) -> Answer {
    let end = |value: &Value| match value.expires_at {
        Some(end) => Answer::Number(end.0),
        None => Answer::ForEver,
    };
    live.map_or(Answer::NotFound, end)
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

fn set_range(kept: Option<Value>, offset: u32, part: &[u8], value_bytes_max: usize) -> Executed {
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
    (Some(rewritten(kept.as_ref(), bytes.into())), answer)
}

fn replace(
    kept: Option<Value>,
    wanted: bool,
    bytes: Bytes,
    expires_at: Option<WallNs>,
) -> Executed {
    if wanted {
        let kind = ValueKind::Text;
        let value = Value {
            kind,
            bytes,
            expires_at,
        };
        (Some(value), Answer::Stored)
    } else {
        (kept, Answer::NotStored)
    }
}

fn increment(kept: Option<Value>, by: i64) -> Executed {
    let text = kept.as_ref().map_or(&b"0"[..], |value| &value.bytes);
    let Some(number) = decimal(text) else {
        return (kept, Answer::NotANumber);
    };
    match number.checked_add(by) {
        None => (kept, Answer::OutOfRange),
        Some(sum) => {
            let value = rewritten(kept.as_ref(), Bytes::from(sum.to_string()));
            (Some(value), Answer::Number(sum))
        }
    }
}

fn add_fraction(kept: Option<Value>, by: Fixed, value_bytes_max: usize) -> Executed {
    let held = kept.as_ref().map(|value| Fixed::parse(&value.bytes));
    let Some(number) = held.unwrap_or(Some(Fixed::ZERO)) else {
        return (kept, Answer::NotANumber);
    };
    let Some(sum) = number.checked_add(by) else {
        return (kept, Answer::OutOfRange);
    };
    let text = Bytes::from(sum.to_string());
    if text.len() > value_bytes_max {
        return (kept, Answer::TooLarge);
    }
    let value = rewritten(kept.as_ref(), text.clone());
    (Some(value), Answer::Value(text))
}

#[cfg(test)]
mod tests {
    use super::super::KeyValue;
    use super::*;
    use crate::machine::{Access, StateMachine as _};

    fn bytes(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    fn value(text: &'static str) -> Answer {
        Answer::Value(bytes(text))
    }

    fn if_equal(expected: &'static str, then: Operation) -> Operation {
        Operation::IfEqual {
            expected: bytes(expected),
            then: Box::new(then),
        }
    }

    fn until(text: &'static str, end: i64) -> Operation {
        Operation::Set {
            value: bytes(text),
            expires_at: Some(WallNs(end)),
            condition: Condition::Always,
        }
    }

    /// Executes operations on one key, each at its time. Returns their answers.
    fn run(operations: Vec<(i64, Operation)>) -> Vec<Answer> {
        let machine = KeyValue::default();
        let mut state = None;
        let step = |(at, operation): (i64, Operation)| {
            let written = operation.encode();
            assert_eq!(Operation::decode(&written), Ok(operation));
            let applied = machine.apply(state.as_ref(), &written, WallNs(at)).unwrap();
            state = applied.state;
            Answer::decode(applied.answer).unwrap()
        };
        operations.into_iter().map(step).collect()
    }

    #[test]
    fn a_sum_of_fractions_is_exact_and_keeps_the_end_of_the_value() {
        let add = |text: &str| Operation::IncrementFraction(Fixed::parse(text.as_bytes()).unwrap());
        let told = run(vec![
            (1, until("10.50", 9)),
            (2, add("0.1")),
            (3, Operation::Expiry),
            (9, add("-0.5")),
            (9, Operation::set(bytes("x"))),
            (9, add("1")),
            (9, Operation::set(bytes("1.7e21"))),
            (9, add("1.7e21")),
            (9, Operation::Get),
        ]);
        let wanted = [
            Answer::Stored,
            value("10.6"),
            Answer::Number(9),
            value("-0.5"),
            Answer::Stored,
            Answer::NotANumber,
            Answer::Stored,
            Answer::OutOfRange,
            value("1.7e21"),
        ];
        assert_eq!(told, wanted);
    }

    #[test]
    fn several_operations_see_each_other_and_each_is_answered() {
        let several = Operation::Several(vec![
            Operation::Increment(4),
            Operation::Get,
            Operation::Append(bytes("x")),
            Operation::Increment(1),
            // It ends at once, so nothing is left for the next one.
            until("v", 5),
            Operation::Get,
        ]);
        assert_eq!(several.access(), Access::Update);
        let told = run(vec![(5, several), (5, Operation::Get)]);
        let wanted = Answer::Several(vec![
            Answer::Number(4),
            value("4"),
            Answer::Number(2),
            Answer::NotANumber,
            Answer::Stored,
            Answer::NotFound,
        ]);
        assert_eq!(told, [wanted, Answer::NotFound]);
        let reads = Operation::Several(vec![Operation::Get, Operation::Kind]);
        assert_eq!(reads.access(), Access::Read);
    }

    #[test]
    fn several_operations_whose_answers_fit_no_message_change_nothing() {
        let long = Bytes::from(vec![7; VALUE_BYTES_MAX / 2 + 1_024]);
        let told = run(vec![
            (1, Operation::set(long)),
            (
                1,
                Operation::Several(vec![
                    Operation::Get,
                    Operation::Append(bytes("x")),
                    Operation::Get,
                ]),
            ),
            (1, Operation::Append(bytes(""))),
        ]);
        let unchanged = i64::try_from(VALUE_BYTES_MAX / 2 + 1_024).unwrap();
        assert_eq!(told[1..], [Answer::TooLarge, Answer::Number(unchanged)]);
    }

    #[test]
    fn operations_that_would_take_a_replica_too_long_change_nothing() {
        let long = Bytes::from(vec![7; VALUE_BYTES_MAX / 2]);
        let many = |count| {
            Operation::Several(vec![
                Operation::SetBit {
                    offset: 0,
                    on: true
                };
                count
            ])
        };
        let told = run(vec![
            (1, Operation::set(long)),
            (1, many(33)),
            (1, many(32)),
        ]);
        assert_eq!(told[1], Answer::TooLarge);
        assert!(matches!(&told[2], Answer::Several(all) if all[0] == Answer::Number(0)));
    }

    #[test]
    fn an_operation_on_a_condition_is_done_for_the_expected_value_alone() {
        let delete = || Operation::Delete { counted: true };
        let told = run(vec![
            (1, if_equal("v", delete())),
            (1, Operation::set(bytes("w"))),
            (1, if_equal("v", delete())),
            (1, if_equal("w", Operation::Increment(1))),
            (1, if_equal("w", delete())),
            (1, Operation::Get),
        ]);
        let wanted = [
            Answer::NotStored,
            Answer::Stored,
            Answer::NotStored,
            Answer::NotANumber,
            Answer::Number(1),
            Answer::NotFound,
        ];
        assert_eq!(told, wanted);
    }

    #[test]
    fn a_value_lives_longer_by_so_much_and_one_that_never_ends_is_left() {
        let prolong = |by| Operation::Prolong { by: DurationNs(by) };
        let told = run(vec![
            (1, prolong(5)),
            (1, until("v", 10)),
            (9, prolong(5)),
            (14, Operation::Expiry),
            (14, Operation::set(bytes("v"))),
            (14, prolong(5)),
            (14, Operation::Expiry),
            (14, until("v", 20)),
            (19, prolong(u64::MAX)),
            (20, Operation::Get),
        ]);
        let (no, yes) = (Answer::Number(0), Answer::Number(1));
        assert_eq!(told[0], no);
        assert_eq!(told[2..4], [yes.clone(), Answer::Number(15)]);
        assert_eq!(told[5..7], [no, Answer::ForEver]);
        assert_eq!(told[8..], [yes, value("v")]);
    }

    #[test]
    fn a_bit_is_set_with_zeros_before_it_and_not_beyond_the_limit() {
        let bit = |offset, on| Operation::SetBit { offset, on };
        let beyond = u32::try_from(VALUE_BYTES_MAX * BITS_PER_BYTE).unwrap();
        let told = run(vec![
            (1, bit(9, true)),
            (1, bit(9, false)),
            (1, bit(7, true)),
            (1, Operation::Get),
            (1, bit(beyond, true)),
        ]);
        assert_eq!(told[..3], [0, 1, 0].map(Answer::Number));
        assert_eq!(told[3..], [value("\x01\0"), Answer::TooLarge]);
    }

    #[test]
    fn operations_are_nested_up_to_a_depth() {
        let nested = |depth| {
            (0..depth).fold(Operation::Get, |operation, _| {
                Operation::Several(vec![operation])
            })
        };
        assert!(Operation::decode(&nested(3).encode()).is_ok());
        assert!(Operation::decode(&nested(4).encode()).is_err());
    }
}
