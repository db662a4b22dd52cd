//! The first state machine: a string or a hash for each key, with expiry, counters and conditions.

mod calls;
mod coding;
mod execute;
mod hash;
mod operation;

use bytes::Bytes;
use prost::Message as _;

use crate::id::{Key, WallNs};
use crate::machine::{Access, Applied, Malformed, StateMachine};
use crate::wire::key_value as body;
pub use calls::{CALLER_BYTES_MAX, Calls};
use calls::{Known, REMEMBERED_BYTES_MAX};
pub use hash::{Field, HashOperation, fields};
pub use operation::{Answer, Condition, ExpireCondition, Lifetime, Operation};

/// The most bytes of a value, which fits a TCP frame together with its key and envelope.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// The kind in a snapshot of a key that has no value.
const NO_VALUE: u32 = 2;

/// The kind of a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum ValueKind {
    /// Bytes.
    #[default]
    Text,
    /// Fields with a value each, as [`fields`] reads them.
    Hash,
}

/// A value and the time at which it ends.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Value {
    /// The kind.
    pub kind: ValueKind,
    /// The bytes.
    pub bytes: Bytes,
    /// The owner's time at which it ends.
    pub expires_at: Option<WallNs>,
}

/// What a key has: a value, and the numbered operations that it remembers. One of them at least.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The value.
    pub value: Option<Value>,
    /// The numbered operations.
    pub calls: Calls,
}

impl From<Value> for State {
    fn from(value: Value) -> Self {
        Self {
            value: Some(value),
            calls: Calls::default(),
        }
    }
}

impl Value {
    fn has_ended(&self, at: WallNs) -> bool {
        self.expires_at.is_some_and(|end| end <= at)
    }
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
    /// Returns a machine whose values have at most this many bytes, and at most
    /// [`VALUE_BYTES_MAX`], as the transport requires.
    #[must_use]
    pub fn with_values_up_to(bytes: usize) -> Self {
        const { assert!(VALUE_BYTES_MAX + Key::BYTES_MAX < crate::wire::MESSAGE_BYTES_MAX) };
        Self {
            value_bytes_max: bytes.min(VALUE_BYTES_MAX),
        }
    }

    /// Reads an operation, and refuses one whose value is too long. A blind write always answers
    /// that it was done, so the machine must refuse an impossible one before.
    fn read(&self, operation: &[u8]) -> Result<Operation, Malformed> {
        let operation = Operation::decode(operation)?;
        let longest = operation.longest();
        if longest > self.value_bytes_max {
            return Err(Malformed(format!("its value has {longest} bytes")));
        }
        Ok(operation)
    }
}

impl KeyValue {
    /// Executes an operation on a value that has not ended. A numbered one is done unless the key
    /// remembers it.
    fn execute(
        &self,
        live: Option<&Value>,
        mut calls: Calls,
        operation: Operation,
        at: WallNs,
    ) -> Result<(Option<Value>, Calls, Answer), Malformed> {
        let most = self.value_bytes_max;
        let unchanged = |calls, answer| Ok((live.cloned(), calls, answer));
        // Another server gets both in one message.
        let fits = |value: Option<&Value>, calls: &Calls| {
            let length = |value: Option<&Value>| value.map_or(0, |it| it.bytes.len());
            let grows = length(value) > length(live);
            !grows || calls.is_empty() || length(value) + calls.size_bytes() <= most
        };
        let Operation::Once {
            caller,
            number,
            digest,
            then,
        } = operation
        else {
            let (value, answer) = execute::execute(live, operation, at, most)?;
            if !fits(value.as_ref(), &calls) {
                return unchanged(calls, Answer::TooLarge);
            }
            return Ok((value, calls, answer));
        };
        match calls.known(&caller, number, digest) {
            Known::Done(answer) => {
                let answer = Answer::decode(answer)?;
                return unchanged(calls, answer);
            }
            Known::Taken => return unchanged(calls, Answer::NumberTaken),
            Known::Full => return unchanged(calls, Answer::TooManyCallers),
            Known::New => {}
        }
        let (value, answer) = execute::execute(live, *then, at, most)?;
        let written = answer.encode();
        if written.len() > REMEMBERED_BYTES_MAX {
            return unchanged(calls, Answer::TooLarge);
        }
        let before = calls.clone();
        calls.remember(caller, (number, digest), at, written);
        let length = value.as_ref().map_or(0, |it| it.bytes.len());
        if length + calls.size_bytes() > most {
            return unchanged(before, Answer::TooLarge);
        }
        Ok((value, calls, answer))
    }
}

impl StateMachine for KeyValue {
    type State = State;

    fn access(&self, operation: &[u8]) -> Result<Access, Malformed> {
        self.read(operation).map(|operation| operation.access())
    }

    fn apply(
        &self,
        state: Option<&State>,
        operation: &[u8],
        at: WallNs,
    ) -> Result<Applied<State>, Malformed> {
        let operation = self.read(operation)?;
        // Expired by the owner's own time, so that every replica decides alike.
        let live = state.and_then(|it| it.value.as_ref());
        let live = live.filter(|value| !value.has_ended(at));
        let access = operation.access();
        let calls = match (access, state) {
            (Access::Read, Some(state)) => state.calls.clone(),
            (Access::Update, Some(state)) => state.calls.of_late(at),
            // A blind write looks at no state.
            (Access::Blind, _) | (_, None) => Calls::default(),
        };
        let (value, calls, answer) = self.execute(live, calls, operation, at)?;
        debug_assert!(
            access != Access::Read || value.as_ref() == live,
            "replicas that answer no read would have another state than one that does"
        );
        assert!(
            access != Access::Blind || answer == Answer::Stored,
            "a blind operation has one answer, which nobody looks at a state for"
        );
        let held = live.map_or(0, |value| value.bytes.len());
        assert!(
            value
                .as_ref()
                .is_none_or(|it| it.bytes.len() <= self.value_bytes_max.max(held)),
            "no operation makes a value longer than the transport carries"
        );
        let is_something = value.is_some() || !calls.is_empty();
        Ok(Applied {
            state: is_something.then_some(State { value, calls }),
            answer: answer.encode(),
        })
    }

    fn blind_answer(&self) -> Bytes {
        Answer::Stored.encode()
    }

    fn snapshot(&self, state: &State) -> Bytes {
        let value = state.value.as_ref();
        body::Set {
            value: value.map(|it| it.bytes.clone()).unwrap_or_default(),
            expires_at_ns: value.and_then(|it| it.expires_at).map(|at| at.0),
            condition: 0,
            kind: value.map_or(NO_VALUE, |it| it.kind.number()),
            calls: state.calls.body(),
        }
        .encode_to_vec()
        .into()
    }

    fn restore(&self, snapshot: &[u8]) -> Result<State, Malformed> {
        let set = body::Set::decode(snapshot).map_err(|error| Malformed(error.to_string()))?;
        let calls = Calls::of_body(set.calls)?;
        let value = if set.kind == NO_VALUE {
            None
        } else {
            Some(Value {
                kind: ValueKind::of_number(set.kind)?,
                bytes: set.value,
                expires_at: set.expires_at_ns.map(WallNs),
            })
        };
        Ok(State { value, calls })
    }

    fn has_ended(&self, state: &State, at: WallNs) -> bool {
        state.value.as_ref().is_none_or(|value| value.has_ended(at))
    }

    fn may_go(&self, state: &State, at: WallNs) -> bool {
        self.has_ended(state, at) && state.calls.of_late(at).is_empty()
    }

    fn kind(&self, state: &State) -> u32 {
        let kind = state.value.as_ref().map(|it| it.kind);
        kind.unwrap_or_default().number()
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
            kind: ValueKind::Text,
            bytes: Bytes::from(vec![7; LIMIT - 1]),
            expires_at: None,
        };
        let append = |text: &'static str| {
            let operation = Operation::Append(Bytes::from(text)).encode();
            let state = State::from(nearly.clone());
            machine.apply(Some(&state), &operation, WallNs(1)).unwrap()
        };
        let grown = append("1").state.unwrap().value.unwrap();
        assert_eq!(grown.bytes.len(), LIMIT);
        assert_eq!(append("12").state, Some(nearly.clone().into()));
        assert_eq!(append("12").answer, Answer::TooLarge.encode());
    }

    #[test]
    fn a_value_that_has_ended_is_let_go_by_what_changes_nothing() {
        let machine = KeyValue::default();
        let value = State::from(Value {
            kind: ValueKind::Text,
            bytes: Bytes::from_static(b"v"),
            expires_at: Some(WallNs(10)),
        });
        let nothing = Operation::SetRange {
            offset: 0,
            value: Bytes::new(),
        };
        let after = |at| {
            let applied = machine.apply(Some(&value), &nothing.encode(), WallNs(at));
            applied.unwrap().state
        };
        assert_eq!(after(9), Some(value.clone()));
        assert_eq!(after(10), None);
        assert!(machine.has_ended(&value, WallNs(10)) && !machine.has_ended(&value, WallNs(9)));
    }

    #[test]
    fn a_plain_write_over_the_limit_is_refused_as_a_whole() {
        let machine = KeyValue::with_values_up_to(LIMIT);
        let set = |bytes| Operation::set(Bytes::from(vec![7; bytes])).encode();
        assert!(machine.access(&set(LIMIT)).is_ok());
        assert!(machine.access(&set(LIMIT + 1)).is_err());
        assert!(machine.apply(None, &set(LIMIT + 1), WallNs(1)).is_err());
    }

    /// Executes operations on one key, each at its time, and returns their answers.
    fn run(operations: &[(i64, Operation)]) -> Vec<Answer> {
        let machine = KeyValue::with_values_up_to(LIMIT);
        let mut state: Option<State> = None;
        let step = |(at, operation): &(i64, Operation)| {
            let bytes = operation.encode();
            assert_eq!(Operation::decode(&bytes).as_ref(), Ok(operation));
            let applied = machine.apply(state.as_ref(), &bytes, WallNs(*at)).unwrap();
            if operation.access() == Access::Read {
                let live = state
                    .clone()
                    .filter(|it: &State| !machine.has_ended(it, WallNs(*at)));
                assert_eq!(applied.state, live, "a read changes nothing");
            }
            state = applied.state;
            let answer = Answer::decode(applied.answer.clone()).unwrap();
            assert_eq!(answer.encode(), applied.answer);
            answer
        };
        operations.iter().map(step).collect()
    }

    fn value(text: &'static str) -> Answer {
        Answer::Value(Bytes::from(text))
    }

    fn exchange(text: &'static str, lifetime: Lifetime, returns_old: bool) -> Operation {
        Operation::Exchange {
            value: Bytes::from(text),
            lifetime,
            condition: Condition::Always,
            returns_old,
        }
    }

    fn expire(at: Option<i64>, condition: ExpireCondition) -> Operation {
        Operation::Expire {
            at: at.map(WallNs),
            condition,
            returns_value: false,
        }
    }

    #[test]
    fn an_exchange_tells_the_old_value_and_keeps_its_end_when_told_to() {
        let ends = Lifetime::Until(Some(WallNs(10)));
        let told = run(&[
            (1, exchange("a", ends, true)),
            (2, exchange("b", Lifetime::Kept, true)),
            (3, Operation::Expiry),
            (4, exchange("c", Lifetime::Until(None), false)),
            (5, Operation::Expiry),
            (6, Operation::Take),
            (7, Operation::Take),
            (8, Operation::Expiry),
        ]);
        let wanted = [
            Answer::NotFound,
            value("a"),
            Answer::Number(10),
            Answer::Stored,
            Answer::ForEver,
            value("c"),
            Answer::NotFound,
            Answer::NotFound,
        ];
        assert_eq!(told, wanted);
    }

    #[test]
    fn a_value_ends_when_it_is_told_to_and_never_is_the_latest() {
        use ExpireCondition::{Always, Earlier, Later, Never, Once};
        let (no, yes) = (Answer::Number(0), Answer::Number(1));
        for (at, condition, wanted) in [
            (Some(50), Once, &no),
            (None, Once, &no),
            (Some(50), Later, &no),
            (Some(50), Earlier, &yes),
            (Some(60), Earlier, &no),
            (Some(60), Never, &no),
            (Some(60), Later, &yes),
            (Some(55), Once, &yes),
            (None, Later, &yes),
            (Some(40), Never, &yes),
        ] {
            // Each begins where the ones before have led.
            let mut steps = vec![(1, Operation::set(Bytes::from("v")))];
            let before: &[(Option<i64>, ExpireCondition)] = match (at, condition) {
                (Some(60), Earlier | Never | Later) => &[(Some(50), Earlier)],
                (Some(55), Once) => &[(Some(60), Always)],
                (None, Later) => &[(Some(55), Always)],
                _ => &[],
            };
            steps.extend(
                before
                    .iter()
                    .map(|(at, condition)| (2, expire(*at, *condition))),
            );
            steps.push((3, expire(at, condition)));
            assert_eq!(run(&steps).last(), Some(wanted), "{at:?} {condition:?}");
        }
        let told = run(&[
            (1, expire(Some(5), Always)),
            (1, Operation::set(Bytes::from("v"))),
            (2, expire(Some(5), Always)),
            (4, Operation::Get),
            (5, Operation::Get),
            (5, Operation::set(Bytes::from("w"))),
            (6, expire(Some(6), Always)),
            (6, Operation::Get),
        ]);
        assert_eq!(told[3], value("v"));
        assert_eq!(told[4], Answer::NotFound);
        assert_eq!(told[6..], [yes, Answer::NotFound]);
        assert_eq!(told[0], no);
    }

    #[test]
    fn a_part_is_written_over_with_zeros_before_it_and_not_beyond_the_limit() {
        let range = |offset, text: &'static str| Operation::SetRange {
            offset,
            value: Bytes::from(text),
        };
        let told = run(&[
            (1, range(3, "")),
            (1, Operation::Get),
            (1, range(2, "ab")),
            (1, range(1, "c")),
            (1, range(4, "de")),
            (1, Operation::Get),
            (1, range(99, "xy")),
            (1, range(u32::MAX, "x")),
            (1, range(2, "")),
        ]);
        let wanted = [
            Answer::Number(0),
            Answer::NotFound,
            Answer::Number(4),
            Answer::Number(4),
            Answer::Number(6),
            value("\0cabde"),
            Answer::TooLarge,
            Answer::TooLarge,
            Answer::Number(6),
        ];
        assert_eq!(told, wanted);
    }

    #[test]
    fn only_what_a_sum_would_write_is_a_number() {
        for (text, answer) in [
            ("41", Answer::Number(42)),
            ("-1", Answer::Number(0)),
            ("+1", Answer::NotANumber),
            ("01", Answer::NotANumber),
            ("-0", Answer::NotANumber),
            (" 1", Answer::NotANumber),
            ("", Answer::NotANumber),
            ("9223372036854775807", Answer::OutOfRange),
            ("9223372036854775808", Answer::NotANumber),
        ] {
            let told = run(&[
                (1, Operation::set(Bytes::from(text))),
                (1, Operation::Increment(1)),
            ]);
            assert_eq!(told[1], answer, "{text:?}");
        }
    }
}
