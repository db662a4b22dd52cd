//! Decides what the sessions of a store do, and whether an answer is right.
//!
//! For each key, the client knows how often it was written and which of its values a read may no
//! longer return. A read that was sent after a write was acknowledged must see that write, and so
//! must all later reads. Two concurrent writes may take effect in either order, and a write whose
//! outcome is unknown may take effect at any time. Neither counts against the store. A read is
//! therefore called `wrong`, `wrong:stale` or `wrong:lost` only if no order of the operations
//! explains its answer.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use unruly_plan::{Choices, Mix, OperationKind, Portion, Step, Store};
use unruly_trace::{ErrorKind, Status};

use crate::target::{Answer, KEY_PREFIX, Operation};
use crate::targets::Route;
use crate::value::{self, Identity, Reading};

/// Writes of unknown fate that are remembered; beyond them nothing is called stale any more.
const UNKNOWN_MAX: usize = 1 << 20;

/// One operation of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) kind: OperationKind,
    /// Nothing where every request asks for one and the same thing: then no value is judged.
    pub(crate) key: Option<u64>,
    /// The number of this write among the writes of its key.
    version: u32,
    /// Values of earlier writes than this may not be found any more: by a read, now; after a write, when
    /// it has been acknowledged.
    floor: u32,
    value_bytes: usize,
    /// The number of an operation that the plan names, and whether a user begins with it.
    named: Option<(usize, bool)>,
}

impl Task {
    /// The `op` of its row.
    pub(crate) fn op(&self) -> u8 {
        let place = || OperationKind::ALL.iter().position(|it| *it == self.kind);
        let number = self.named.map(|(number, _)| number).or_else(place);
        number
            .and_then(|it| u8::try_from(it).ok())
            .unwrap_or(u8::MAX)
    }

    /// The key that it writes, if it writes one.
    fn written(&self) -> Option<u64> {
        self.key.filter(|_| self.kind == OperationKind::Write)
    }
}

/// What is known of a key.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// Writes that were begun.
    written: u32,
    /// Every write before this one has ended, and so has one that began after them.
    floor: u32,
    /// The number of writes that had ended when the first of the open writes began.
    settled: u32,
    open: u32,
}

/// The work of all sessions of a process.
#[derive(Debug)]
pub struct Work {
    run: u32,
    keyed: bool,
    choices: Choices,
    /// The operations that the plan names.
    mix: Option<Mix>,
    /// Keys that are still to be loaded.
    unloaded: Range<u64>,
    keys: Vec<Known>,
    unknown: HashSet<(u64, u32)>,
    forgotten: bool,
    key: String,
    value: String,
    route: Option<Arc<dyn Route>>,
}

impl Work {
    /// The work of `sessions` sessions of the run with this cookie.
    #[must_use]
    pub fn new(store: &Store, seed: u64, run: u32, sessions: usize, portion: Portion) -> Self {
        let keys = usize::try_from(store.keys).unwrap_or(usize::MAX);
        Self {
            run,
            keyed: store.has_keys(),
            choices: Choices::new(store, seed, sessions, portion),
            mix: Mix::new(store, seed, sessions, portion),
            unloaded: 0..0,
            keys: vec![Known::default(); keys],
            unknown: HashSet::new(),
            forgotten: false,
            key: String::new(),
            value: String::new(),
            route: None,
        }
    }

    /// The same for a store whose places have different keys.
    #[must_use]
    pub fn routed(self, route: Option<Arc<dyn Route>>) -> Self {
        Self { route, ..self }
    }

    /// How many connections a client has: one to each place that has keys of its own.
    pub(crate) fn links_of_client(&self) -> usize {
        self.route.as_ref().map_or(1, |it| it.places())
    }

    /// The place that has the key of a task or takes this request, where places differ.
    pub(crate) fn place(&mut self, task: &Task, request: u64) -> Option<usize> {
        let route = self.route.as_ref()?;
        let key = task.key.map(|key| {
            name_of(key, &mut self.key);
            self.key.as_str()
        });
        Some(route.place(key, request))
    }

    /// First of all every key is written once. Returns how many there are.
    pub fn load(&mut self) -> u64 {
        self.unloaded = 0..self.choices.keys();
        self.choices.keys()
    }

    /// What a session does next: the step that a user of a scenario is at, or else what the plan says.
    pub(crate) fn next(&mut self, session: usize, step: Option<Step>) -> Task {
        let named = match (step, &mut self.mix) {
            (Some(step), _) => Some((step.state, step.begins)),
            (None, Some(mix)) => Some((mix.next(session), false)),
            (None, None) => None,
        };
        if named.is_some() {
            return Task {
                kind: OperationKind::Read,
                key: None,
                version: 0,
                floor: 0,
                value_bytes: 0,
                named,
            };
        }
        let choice = match self.unloaded.next() {
            Some(own) => self.choices.first_write(session, own),
            None => self.choices.next(session),
        };
        if !self.keyed {
            return Task {
                kind: choice.kind,
                key: None,
                version: 0,
                floor: 0,
                value_bytes: choice.value_bytes,
                named: None,
            };
        }
        let known = &mut self.keys[place(choice.key)];
        let (mut version, mut floor) = (0, known.floor);
        if choice.kind == OperationKind::Write {
            if known.open == 0 {
                known.settled = known.written;
            }
            known.open += 1;
            known.written = known.written.saturating_add(1);
            version = known.written;
            floor = known.settled + 1;
        }
        Task {
            kind: choice.kind,
            key: Some(choice.key),
            version,
            floor,
            value_bytes: choice.value_bytes,
            named: None,
        }
    }

    /// The keys that were written, by their numbers.
    pub(crate) fn written(&self) -> Vec<u64> {
        let known = self.keys.iter().zip(0..);
        let written = known.filter(|(known, _)| known.written > 0);
        written.map(|(_, key)| key).collect()
    }

    /// A task as a target takes it.
    pub(crate) fn operation(&mut self, task: &Task) -> Operation<'_> {
        if let Some((number, begins)) = task.named {
            return Operation::Named { number, begins };
        }
        let key = task.key.unwrap_or(0);
        name_of(key, &mut self.key);
        match task.kind {
            OperationKind::Read => Operation::Read { key: &self.key },
            OperationKind::Write => {
                let identity = Identity {
                    run: self.run,
                    key,
                    version: task.version,
                };
                value::write(identity, task.value_bytes, &mut self.value);
                Operation::Write {
                    key: &self.key,
                    value: &self.value,
                }
            }
        }
    }

    /// Judges an answer to a task by the known history of its key.
    pub(crate) fn judge(&self, task: &Task, answer: Answer<'_>) -> Status {
        match (task.kind, answer) {
            (_, Answer::Failed(kind, _)) => Status::Error(kind),
            (_, Answer::Wrong(_)) => Status::Wrong,
            (_, Answer::Refused) => Status::Refused,
            (OperationKind::Write, Answer::Done) => Status::Ok,
            (_, Answer::Moved | Answer::Ask(_)) => Status::Error(ErrorKind::Unavailable),
            (OperationKind::Write, _)
            | (_, Answer::Sent | Answer::Token | Answer::Message | Answer::FailedOver(_)) => {
                Status::Error(ErrorKind::Protocol)
            }
            (OperationKind::Read, Answer::Found(values)) => self.judge_values(task, values),
            (OperationKind::Read, Answer::Missing) if task.floor > 0 => Status::WrongLost,
            (OperationKind::Read, Answer::Missing | Answer::Done) => Status::Ok,
        }
    }

    /// Judges several concurrent values. The answer is right if one of them is.
    fn judge_values(&self, task: &Task, values: &[u8]) -> Status {
        let mut found = values
            .split(|byte| *byte == b' ')
            .map(|value| self.judge_value(task, value));
        let first = found.next().unwrap_or(Status::Ok);
        if first == Status::Ok || found.any(|status| status == Status::Ok) {
            return Status::Ok;
        }
        first
    }

    fn judge_value(&self, task: &Task, value: &[u8]) -> Status {
        let Some(key) = task.key else {
            return Status::Ok;
        };
        // What was there before the run is nobody's promise.
        let untouched = self.keys[place(key)].written == 0;
        match value::read(value) {
            Reading::Short => Status::Ok,
            _ if untouched => Status::Ok,
            Reading::Of(found) if found.run != self.run => {
                if task.floor > 0 {
                    Status::WrongStale
                } else {
                    Status::Ok
                }
            }
            Reading::Of(found) => self.judge_version(task, key, found),
            Reading::Foreign if task.floor > 0 => Status::Wrong,
            Reading::Foreign => Status::Ok,
        }
    }

    fn judge_version(&self, task: &Task, key: u64, found: Identity) -> Status {
        let known = &self.keys[place(key)];
        if found.key != key || found.version == 0 || found.version > known.written {
            return Status::Wrong;
        }
        let old = found.version < task.floor;
        let excused = self.forgotten || self.unknown.contains(&(found.key, found.version));
        if old && !excused {
            Status::WrongStale
        } else {
            Status::Ok
        }
    }

    /// A try of a task did not end well: a write may take effect at any time now.
    pub(crate) fn failed(&mut self, task: &Task) {
        let Some(key) = task.written() else { return };
        if self.unknown.len() < UNKNOWN_MAX {
            self.unknown.insert((key, task.version));
        } else {
            self.forgotten = true;
        }
    }

    /// A task has ended, with its last try.
    pub(crate) fn ended(&mut self, task: &Task, status: Status) {
        let Some(key) = task.written() else { return };
        if status != Status::Ok {
            self.failed(task);
        }
        let known = &mut self.keys[place(key)];
        known.open = known.open.saturating_sub(1);
        if status == Status::Ok {
            known.floor = known.floor.max(task.floor);
        }
    }
}

/// Writes the name of a key into `name`.
pub(crate) fn name_of(key: u64, name: &mut String) {
    let mut number = itoa::Buffer::new();
    let number = number.format(key);
    name.clear();
    name.push_str(KEY_PREFIX);
    name.push_str(&"000000000000"[number.len().min(12)..]);
    name.push_str(number);
}

fn place(key: u64) -> usize {
    usize::try_from(key).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: u32 = 77;

    /// A single key, whose sessions run the tasks that the test gives them.
    struct OneKey(Work);

    impl OneKey {
        fn new() -> Self {
            let text = "name = \"t\"\n[run]\nduration = \"1s\"\n[drive]\nurl = \"null:\"\nkeys = 1\noperations = \"write\"";
            let plan = unruly_plan::Plan::parse("plan", text).unwrap();
            let unruly_plan::Load::Drive(drive) = plan.load else {
                panic!("a drive was written");
            };
            Self(Work::new(&drive.store.unwrap(), 1, RUN, 1, Portion::WHOLE))
        }

        fn begin_write(&mut self) -> (Task, String) {
            let task = self.0.next(0, None);
            let Operation::Write { value, .. } = self.0.operation(&task) else {
                panic!("it writes");
            };
            (task, value.to_owned())
        }

        fn write(&mut self) -> String {
            let (task, value) = self.begin_write();
            self.0.ended(&task, Status::Ok);
            value
        }

        fn begin_read(&self) -> Task {
            Task {
                kind: OperationKind::Read,
                key: Some(0),
                version: 0,
                floor: self.0.keys[0].floor,
                value_bytes: 0,
                named: None,
            }
        }

        fn read(&self, value: &str) -> Status {
            self.0
                .judge(&self.begin_read(), Answer::Found(value.as_bytes()))
        }
    }

    #[test]
    fn the_last_value_is_right_an_earlier_one_stale_and_none_lost() {
        let mut key = OneKey::new();
        assert_eq!(key.0.judge(&key.begin_read(), Answer::Missing), Status::Ok);
        let first = key.write();
        assert_eq!(key.read(&first), Status::Ok);
        let second = key.write();
        assert_eq!(key.read(&second), Status::Ok);
        assert_eq!(key.read(&first), Status::WrongStale);
        assert_eq!(
            key.0.judge(&key.begin_read(), Answer::Missing),
            Status::WrongLost
        );
    }

    #[test]
    fn values_of_another_key_or_nobody_are_wrong_and_of_another_run_stale() {
        let mut key = OneKey::new();
        key.write();
        let mut value = String::new();
        let own = Identity {
            run: RUN,
            key: 0,
            version: 1,
        };
        for (identity, wanted) in [
            (own, Status::Ok),
            (Identity { key: 1, ..own }, Status::Wrong),
            (Identity { version: 2, ..own }, Status::Wrong),
            (Identity { version: 0, ..own }, Status::Wrong),
            (Identity { run: 1, ..own }, Status::WrongStale),
        ] {
            value::write(identity, 100, &mut value);
            assert_eq!(key.read(&value), wanted, "{identity:?}");
        }
        value.push('x');
        assert_eq!(key.read(&value), Status::Wrong);
    }

    #[test]
    fn without_keys_no_value_is_judged_and_a_failure_is_one() {
        let text = "name = \"t\"\n[run]\nduration = \"1s\"\n[drive]\nurl = \"http://h/one\"\noperations = \"write then read\"";
        let plan = unruly_plan::Plan::parse("plan", text).unwrap();
        let unruly_plan::Load::Drive(drive) = plan.load else {
            panic!("a drive was written");
        };
        // The second of two processes, whose first key has another number.
        let mut work = Work::new(&drive.store.unwrap(), 1, RUN, 1, Portion::new(1, 2));
        let (write, read) = (work.next(0, None), work.next(0, None));
        assert_eq!((write.key, read.key), (None, None));
        work.ended(&write, Status::Ok);
        assert_eq!(work.judge(&write, Answer::Done), Status::Ok);
        let mut other = String::new();
        let foreign = Identity {
            run: 1,
            key: 9,
            version: 9,
        };
        value::write(foreign, 100, &mut other);
        assert_eq!(
            work.judge(&read, Answer::Found(other.as_bytes())),
            Status::Ok
        );
        let failed = Answer::Failed(ErrorKind::Code, b"HTTP/1.1 404 Not Found");
        assert_eq!(work.judge(&read, failed), Status::Error(ErrorKind::Code));
    }

    #[test]
    fn what_was_loaded_must_be_found() {
        let mut key = OneKey::new();
        assert_eq!(key.0.load(), 1);
        key.write();
        assert!(key.0.unloaded.is_empty());
        assert_eq!(
            key.0.judge(&key.begin_read(), Answer::Missing),
            Status::WrongLost
        );
    }

    #[test]
    fn a_read_that_began_before_the_write_ended_may_find_either() {
        let mut key = OneKey::new();
        let first = key.write();
        let (task, second) = key.begin_write();
        let read = key.begin_read();
        key.0.ended(&task, Status::Ok);
        for value in [&first, &second] {
            assert_eq!(
                key.0.judge(&read, Answer::Found(value.as_bytes())),
                Status::Ok
            );
        }
        assert_eq!(key.read(&first), Status::WrongStale);
    }

    #[test]
    fn of_two_writes_at_one_time_either_may_be_the_last() {
        let mut key = OneKey::new();
        let before = key.write();
        let (one, first) = key.begin_write();
        let (two, second) = key.begin_write();
        key.0.ended(&two, Status::Ok);
        key.0.ended(&one, Status::Ok);
        assert_eq!(key.read(&first), Status::Ok);
        assert_eq!(key.read(&second), Status::Ok);
        assert_eq!(key.read(&before), Status::WrongStale);
        let after = key.write();
        assert_eq!(key.read(&after), Status::Ok);
        assert_eq!(key.read(&second), Status::WrongStale);
    }

    #[test]
    fn a_write_of_unknown_fate_may_be_found_at_any_time_and_proves_nothing() {
        let mut key = OneKey::new();
        let (task, maybe) = key.begin_write();
        key.0.ended(&task, Status::Timeout);
        assert_eq!(key.0.judge(&key.begin_read(), Answer::Missing), Status::Ok);
        let known = key.write();
        assert_eq!(key.read(&known), Status::Ok);
        assert_eq!(key.read(&maybe), Status::Ok);
    }

    #[test]
    fn of_values_side_by_side_one_that_is_right_is_enough() {
        let mut key = OneKey::new();
        let first = key.write();
        let second = key.write();
        assert_eq!(key.read(&format!("{first} {second}")), Status::Ok);
        assert_eq!(key.read(&format!("{second} {first}")), Status::Ok);
        assert_eq!(key.read(&format!("{first} {first}")), Status::WrongStale);
    }

    #[test]
    fn what_the_store_says_is_wrong_is_an_error() {
        let mut key = OneKey::new();
        let (task, _) = key.begin_write();
        let failed = Answer::Failed(ErrorKind::Store, b"OOM");
        assert_eq!(key.0.judge(&task, failed), Status::Error(ErrorKind::Store));
        assert_eq!(
            key.0.judge(&task, Answer::Missing),
            Status::Error(ErrorKind::Protocol)
        );
    }
}
