//! Numbered operations: the last one of each caller on a key, with its answer.
//!
//! A caller that gets no answer cannot know whether its operation was done. If it has numbered the
//! operation, it sends it again with the same number: the key remembers the answer, and the
//! operation is done once.

use bytes::Bytes;

use crate::id::{DurationNs, WallNs};
use crate::machine::Malformed;
use crate::wire::key_value as body;

/// Time for which an operation is remembered, by the owner's clock.
const REMEMBERED: DurationNs = DurationNs::millis(60_000);

/// The most callers that a key remembers.
const CALLERS_MAX: usize = 256;

/// The longest name of a caller, in bytes.
pub const CALLER_BYTES_MAX: usize = 128;

/// The longest answer that is remembered, in bytes.
pub(super) const REMEMBERED_BYTES_MAX: usize = 1_024;

/// The memory of a call without its texts, in bytes.
const CALL_BYTES: usize = 96;

/// An operation of a caller, and its answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Call {
    caller: Bytes,
    number: u64,
    /// The digest of the caller's command.
    digest: u64,
    at: WallNs,
    answer: Bytes,
}

/// Operations in the order of their callers' names, at least one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct List(Vec<Call>);

/// The remembered operations on a key, one for each caller. Most keys remember none, which takes
/// the memory of a pointer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Calls(Option<Box<List>>);

/// What a key knows of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Known {
    /// Nothing: it is to be done.
    New,
    /// It was done, with this answer.
    Done(Bytes),
    /// The caller has given this number, or a higher one since, to another operation.
    Taken,
    /// Too many callers have numbered operations of late.
    Full,
}

impl Calls {
    /// Returns whether the key remembers no operation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    fn of(calls: Vec<Call>) -> Self {
        let is_something = !calls.is_empty();
        Self(is_something.then(|| Box::new(List(calls))))
    }

    fn list(&self) -> &[Call] {
        self.0.as_ref().map_or(&[], |it| &it.0)
    }

    /// Returns the memory that they take, in bytes.
    pub(super) fn size_bytes(&self) -> usize {
        let size = |it: &Call| CALL_BYTES + it.caller.len() + it.answer.len();
        self.list().iter().map(size).sum()
    }

    /// Returns the operations that are not old yet.
    pub(super) fn of_late(&self, now: WallNs) -> Self {
        let remembered = i64::try_from(REMEMBERED.0).unwrap_or(i64::MAX);
        let is_late = |it: &&Call| it.at.0.saturating_add(remembered) > now.0;
        Self::of(self.list().iter().filter(is_late).cloned().collect())
    }

    pub(super) fn known(&self, caller: &[u8], number: u64, digest: u64) -> Known {
        let all = self.list();
        match self.place(caller) {
            Ok(at) if (all[at].number, all[at].digest) == (number, digest) => {
                Known::Done(all[at].answer.clone())
            }
            Ok(at) if all[at].number >= number => Known::Taken,
            Err(_) if all.len() >= CALLERS_MAX => Known::Full,
            _ => Known::New,
        }
    }

    /// Remembers an operation instead of the caller's last one.
    pub(super) fn remember(
        &mut self,
        caller: Bytes,
        (number, digest): (u64, u64),
        at: WallNs,
        answer: Bytes,
    ) {
        let place = self.place(&caller);
        let call = Call {
            caller,
            number,
            digest,
            at,
            answer,
        };
        let all = &mut self.0.get_or_insert_with(|| Box::new(List(Vec::new()))).0;
        match place {
            Ok(at) => all[at] = call,
            Err(at) => all.insert(at, call),
        }
        assert!(
            all.len() <= CALLERS_MAX,
            "a new caller is refused while the key remembers as many as it may"
        );
    }

    fn place(&self, caller: &[u8]) -> Result<usize, usize> {
        self.list().binary_search_by(|it| it.caller[..].cmp(caller))
    }

    pub(super) fn body(&self) -> Vec<body::Call> {
        let call = |it: &Call| body::Call {
            caller: it.caller.clone(),
            number: it.number,
            digest: it.digest,
            at_ns: it.at.0,
            answer: it.answer.clone(),
        };
        self.list().iter().map(call).collect()
    }

    pub(super) fn of_body(read: Vec<body::Call>) -> Result<Self, Malformed> {
        let call = |it: body::Call| Call {
            caller: it.caller,
            number: it.number,
            digest: it.digest,
            at: WallNs(it.at_ns),
            answer: it.answer,
        };
        let calls: Vec<Call> = read.into_iter().map(call).collect();
        if calls.len() > CALLERS_MAX || !calls.is_sorted_by(|a, b| a.caller < b.caller) {
            return Err(Malformed(
                "its callers are too many or in disorder".to_owned(),
            ));
        }
        Ok(Self::of(calls))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Answer, KeyValue, Operation, State};
    use super::*;
    use crate::machine::{Access, StateMachine as _};

    const SECOND: i64 = 1_000_000_000;

    fn bytes(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    fn once(caller: &str, number: u64, then: Operation) -> Operation {
        Operation::Once {
            caller: bytes(caller),
            number,
            digest: 0,
            then: Box::new(then),
        }
    }

    /// A key, and the operations on it one after another, each at its second.
    #[derive(Default)]
    struct Key(Option<State>);

    impl Key {
        fn ask(&mut self, second: i64, operation: &Operation) -> Answer {
            let machine = KeyValue::default();
            let written = operation.encode();
            assert_eq!(Operation::decode(&written).as_ref(), Ok(operation));
            let at = WallNs(second * SECOND);
            let applied = machine.apply(self.0.as_ref(), &written, at).unwrap();
            self.0 = applied.state;
            // Another server gets the state as a snapshot.
            if let Some(state) = &self.0 {
                let snapshot = machine.snapshot(state);
                assert_eq!(machine.restore(&snapshot).as_ref(), Ok(state));
            }
            Answer::decode(applied.answer).unwrap()
        }
    }

    #[test]
    fn an_operation_with_the_same_number_is_done_once_and_answered_alike() {
        let mut key = Key::default();
        let add = |number| once("a", number, Operation::Increment(5));
        assert_eq!(key.ask(1, &add(1)), Answer::Number(5));
        assert_eq!(key.ask(1, &Operation::Increment(1)), Answer::Number(6));
        assert_eq!(key.ask(2, &add(1)), Answer::Number(5));
        assert_eq!(key.ask(2, &add(2)), Answer::Number(11));
        assert_eq!(key.ask(3, &add(1)), Answer::NumberTaken);
        let different = Operation::Once {
            caller: bytes("a"),
            number: 2,
            digest: 1,
            then: Box::new(Operation::Take),
        };
        assert_eq!(key.ask(3, &different), Answer::NumberTaken);
        let other = once("b", 1, Operation::Increment(5));
        assert_eq!(key.ask(3, &other), Answer::Number(16), "another caller");
        assert_eq!(key.ask(3, &Operation::Get), Answer::Value(bytes("16")));
    }

    #[test]
    fn what_is_remembered_outlives_the_value_and_ends_after_a_minute() {
        let mut key = Key::default();
        key.ask(1, &Operation::set(bytes("v")));
        let take = once("a", 7, Operation::Take);
        assert_eq!(key.ask(1, &take), Answer::Value(bytes("v")));
        let state = key.0.clone().unwrap();
        let machine = KeyValue::default();
        assert!(
            machine.has_ended(&state, WallNs(SECOND)),
            "there is no value"
        );
        assert!(!machine.may_go(&state, WallNs(60 * SECOND)));
        assert!(machine.may_go(&state, WallNs(61 * SECOND)));
        assert_eq!(key.ask(2, &Operation::Get), Answer::NotFound);
        assert_eq!(key.ask(60, &take), Answer::Value(bytes("v")));
        // The owner's own look at ended values.
        let nothing = Operation::SetRange {
            offset: 0,
            value: Bytes::new(),
        };
        key.ask(60, &nothing);
        assert!(key.0.is_some());
        key.ask(61, &nothing);
        assert_eq!(key.0, None);
        assert_eq!(key.ask(61, &take), Answer::NotFound, "it is done anew");
    }

    #[test]
    fn a_plain_write_forgets_what_was_remembered_since_it_looks_at_no_state() {
        let mut key = Key::default();
        let add = once("a", 1, Operation::Increment(5));
        key.ask(1, &add);
        key.ask(1, &Operation::set(bytes("0")));
        assert!(key.0.as_ref().unwrap().calls.is_empty());
        assert_eq!(key.ask(1, &add), Answer::Number(5));
    }

    #[test]
    fn more_callers_than_a_key_remembers_are_refused_and_change_nothing() {
        let mut key = Key::default();
        for number in 0..CALLERS_MAX {
            let add = once(&number.to_string(), 1, Operation::Increment(1));
            key.ask(1, &add);
        }
        let more = once("more", 1, Operation::Increment(1));
        assert_eq!(key.ask(1, &more), Answer::TooManyCallers);
        let known = once("7", 2, Operation::Increment(1));
        let sum = i64::try_from(CALLERS_MAX).unwrap() + 1;
        assert_eq!(key.ask(1, &known), Answer::Number(sum));
        assert_eq!(key.ask(61, &more), Answer::Number(sum + 1));
    }

    #[test]
    fn an_answer_that_is_too_long_to_remember_belongs_to_nothing_that_was_done() {
        let mut key = Key::default();
        key.ask(1, &Operation::set(bytes(&"v".repeat(REMEMBERED_BYTES_MAX))));
        let take = once("a", 1, Operation::Take);
        assert_eq!(key.ask(1, &take), Answer::TooLarge);
        assert!(matches!(key.ask(1, &Operation::Get), Answer::Value(_)));
    }

    #[test]
    fn a_value_and_what_is_remembered_of_its_key_fit_one_message() {
        let machine = KeyValue::with_values_up_to(300);
        let mut state = None;
        let mut ask = |operation: &Operation| {
            let written = operation.encode();
            let applied = machine.apply(state.as_ref(), &written, WallNs(1)).unwrap();
            state = applied.state;
            Answer::decode(applied.answer).unwrap()
        };
        let append = |bytes: usize| Operation::Append(Bytes::from(vec![7; bytes]));
        assert_eq!(ask(&once("a", 1, append(100))), Answer::Number(100));
        let more = ask(&append(150));
        assert_eq!(more, Answer::TooLarge, "the call takes about 100");
        assert_eq!(ask(&append(50)), Answer::Number(150));
        assert_eq!(ask(&once("b", 1, append(1))), Answer::TooLarge);
        assert_eq!(ask(&once("a", 2, append(1))), Answer::Number(151));
    }

    #[test]
    fn numbered_operations_are_updates_and_stand_alone() {
        let set = once("a", 1, Operation::set(bytes("v")));
        assert_eq!(set.access(), Access::Update);
        let inside = Operation::Several(vec![set]);
        assert!(Operation::decode(&inside.encode()).is_err());
        let long = once(&"c".repeat(CALLER_BYTES_MAX + 1), 1, Operation::Get);
        assert!(Operation::decode(&long.encode()).is_err());
    }
}
