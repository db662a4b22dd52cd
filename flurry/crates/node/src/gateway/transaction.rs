//! Transactions: the commands between `MULTI` and `EXEC`, and the keys of `WATCH`.
//!
//! The gateway owns its keys, and one thread runs the commands of all clients. `EXEC` hands the
//! operations of a transaction to the owner at once, so that no operation of another client comes
//! between them. The operations on one key become one operation, which a replica does whole or not
//! at all.

use std::collections::BTreeMap;

use bytes::Bytes;
use flurry_core::id::{Key, MonoNs, WallNs};
use flurry_core::key_value::{Answer, Operation};
use flurry_core::machine::Access;
use flurry_core::resp::{Reply, error};
use flurry_core::wire::OPERATION_BYTES_MAX;

use super::about;
use super::connection::Connection;
use super::dispatcher::{Dispatcher, refused, wrong_number};
use super::keys::Plan;
use super::shape::Shape;
use super::staged::is_staged;
use super::table::{Class, Spec};
use crate::Error;

/// Maximum number of commands, and of different keys, of one transaction.
pub(super) const COMMANDS_MAX: usize = 10_000;

/// Maximum number of bytes of the words of one transaction.
const BYTES_MAX: usize = 32 << 20;

/// Memory that a queued word takes in addition to its bytes.
const WORD_BYTES: usize = 64;

#[derive(Debug)]
struct Queued {
    spec: &'static Spec,
    words: Vec<Bytes>,
}

#[derive(Debug, Default)]
struct Queue {
    commands: Vec<Queued>,
    bytes: usize,
    /// True if a command was refused, so that `EXEC` will do nothing.
    refused: bool,
}

/// The transaction of a connection.
#[derive(Debug, Default)]
pub(super) struct Transaction(Option<Queue>);

impl Transaction {
    /// Returns whether commands are queued.
    pub(super) fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the bytes of the queued commands.
    pub(super) fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |it| it.bytes)
    }

    /// Returns the keys of the queued commands.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Bytes> {
        let commands = self.0.iter().flat_map(|it| &it.commands);
        commands.flat_map(|it| it.spec.keys(it.words.len()).map(|at| &it.words[at]))
    }

    /// Notes that a command was refused, if there is a transaction.
    pub(super) fn refuse(&mut self) {
        if let Some(queue) = &mut self.0 {
            queue.refused = true;
            queue.commands = Vec::new();
            queue.bytes = 0;
        }
    }

    fn push(&mut self, spec: &'static Spec, words: &[Bytes]) -> Reply {
        let Some(queue) = self.0.as_mut().filter(|it| !it.refused) else {
            return Reply::Status("QUEUED");
        };
        queue.bytes += words.iter().map(|it| it.len() + WORD_BYTES).sum::<usize>();
        if queue.commands.len() >= COMMANDS_MAX || queue.bytes > BYTES_MAX {
            self.refuse();
            let mebibytes = BYTES_MAX >> 20;
            return error(format!(
                "ERR a transaction has at most {COMMANDS_MAX} commands and {mebibytes} MiB"
            ));
        }
        // The words get memory of their own. Otherwise each would keep the whole piece of input
        // alive that contains it.
        let words = words.iter().map(|word| Bytes::copy_from_slice(word));
        let words = words.collect();
        queue.commands.push(Queued { spec, words });
        Reply::Status("QUEUED")
    }
}

/// The reply to a command of a transaction, or where the answers are that make it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Ready(Reply),
    Of {
        shape: Shape,
        /// The number of each operation among the steps, and its number among those on its key.
        answers: Vec<(usize, usize)>,
    },
}

/// The replies of a transaction, still without answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parts {
    parts: Vec<Part>,
    /// Whether a step is several operations on its key.
    merged: Vec<bool>,
}

impl Parts {
    /// Returns the reply to a transaction from the outcomes of its steps.
    pub(crate) fn reply(&self, outcomes: &[Result<Answer, Reply>], now: WallNs) -> Reply {
        let answer = |&(step, number): &(usize, usize)| match outcomes.get(step) {
            Some(Ok(Answer::Several(all))) if self.merged.get(step) == Some(&true) => {
                Ok(all.get(number).cloned().unwrap_or(Answer::NotFound))
            }
            Some(outcome) => outcome.clone(),
            None => Ok(Answer::NotFound),
        };
        let reply = |part: &Part| match part {
            Part::Ready(reply) => reply.clone(),
            Part::Of { shape, answers } => {
                let answers: Result<Vec<_>, _> = answers.iter().map(answer).collect();
                answers.map_or_else(|refusal| refusal, |answers| shape.reply(answers, now))
            }
        };
        Reply::Array(self.parts.iter().map(reply).collect())
    }
}

/// Collects the operations of a transaction by their keys.
#[derive(Debug, Default)]
struct Collected {
    places: BTreeMap<Bytes, usize>,
    steps: Vec<(Bytes, Vec<Operation>)>,
    parts: Vec<Part>,
}

impl Collected {
    fn add(&mut self, plan: Plan) {
        let mut answers = Vec::with_capacity(plan.steps.len());
        for (key, operation) in plan.steps {
            let place = *self.places.entry(key.clone()).or_insert(self.steps.len());
            if place == self.steps.len() {
                self.steps.push((key, Vec::new()));
            }
            let operations = &mut self.steps[place].1;
            answers.push((place, operations.len()));
            operations.push(operation);
        }
        let shape = plan.shape;
        self.parts.push(Part::Of { shape, answers });
    }

    /// Returns the plan of the transaction: one operation for each key.
    fn plan(self) -> Result<Plan, Reply> {
        if self.steps.len() > COMMANDS_MAX {
            let keys = self.steps.len();
            let refusal =
                format!("EXECABORT {keys} keys; a transaction has at most {COMMANDS_MAX}");
            return Err(error(refusal));
        }
        let merged = self.steps.iter().map(|(_, all)| all.len() > 1).collect();
        let mut steps = Vec::with_capacity(self.steps.len());
        for (key, mut operations) in self.steps {
            let operation = match (operations.len(), operations.pop()) {
                (1, Some(only)) => only,
                (_, last) => {
                    operations.extend(last);
                    Operation::Several(operations)
                }
            };
            if operation.encode().len() > OPERATION_BYTES_MAX {
                let refusal = "EXECABORT the commands on one key have more than 1 MiB";
                return Err(error(refusal));
            }
            steps.push((key, operation));
        }
        let parts = Parts {
            parts: self.parts,
            merged,
        };
        let shape = Shape::Transaction(Box::new(parts));
        Ok(Plan { steps, shape })
    }
}

/// Returns a refusal if a key is empty or too long.
fn no_key(spec: &Spec, words: &[Bytes]) -> Option<Reply> {
    let is_no_key = |at: usize| words[at].is_empty() || words[at].len() > Key::BYTES_MAX;
    let refusal = || error(format!("ERR a key has 1 to {} bytes", Key::BYTES_MAX));
    spec.keys(words.len()).any(is_no_key).then(refusal)
}

impl Dispatcher {
    /// Runs a command that controls transactions. Returns `None` if it is another one.
    pub(super) fn on_transaction(
        &mut self,
        now: MonoNs,
        connection: &mut Connection,
        spec: &'static Spec,
        words: &[Bytes],
    ) -> Option<()> {
        match spec.name {
            "multi" if connection.transaction.is_open() => {
                connection.respond(error("ERR MULTI calls can not be nested"));
            }
            "multi" => {
                connection.transaction = Transaction(Some(Queue::default()));
                connection.respond(Reply::Status("OK"));
            }
            "exec" => self.exec(now, connection),
            "discard" if !connection.transaction.is_open() => {
                connection.respond(error("ERR DISCARD without MULTI"));
            }
            "discard" => {
                self.forget_transaction(connection);
                connection.respond(Reply::Status("OK"));
            }
            "watch" if connection.transaction.is_open() => {
                connection.respond(error("ERR WATCH inside MULTI is not allowed"));
            }
            "watch" => self.watch(now, connection, spec, words),
            "quit" | "reset" => return None,
            _ if connection.transaction.is_open() => {
                let reply = self.queue(connection, spec, words);
                connection.respond(reply);
            }
            "unwatch" => {
                self.watches.forget(connection.number);
                connection.respond(Reply::Status("OK"));
            }
            _ => return None,
        }
        Some(())
    }

    /// Ends a transaction without running it, and forgets the watched keys.
    pub(super) fn forget_transaction(&mut self, connection: &mut Connection) {
        connection.transaction = Transaction::default();
        self.watches.forget(connection.number);
    }

    fn queue(&self, connection: &mut Connection, spec: &'static Spec, words: &[Bytes]) -> Reply {
        let refusal = match spec.class {
            _ if is_staged(spec.name) => {
                Some(error("ERR Command not allowed inside a transaction"))
            }
            Class::Read | Class::Write => {
                let refusal = self.unserved(spec, words);
                refusal.or_else(|| no_key(spec, words))
            }
            _ if about::simple(spec.name, words).is_some() => None,
            _ => Some(error("ERR Command not allowed inside a transaction")),
        };
        match refusal {
            Some(refusal) => {
                connection.transaction.refuse();
                refusal
            }
            None => connection.transaction.push(spec, words),
        }
    }

    fn watch(&mut self, now: MonoNs, connection: &mut Connection, spec: &Spec, words: &[Bytes]) {
        let refusal = self.unserved(spec, words);
        if let Some(refusal) = refusal.or_else(|| no_key(spec, words)) {
            return connection.respond(refusal);
        }
        let keys = &words[1..];
        if !self.watches.add(connection.number, keys) {
            return connection.respond(error("ERR too many watched keys"));
        }
        // The answers say when the values end: a value that ends has changed.
        let steps = keys.iter().map(|key| (key.clone(), Operation::Expiry));
        let plan = Plan {
            steps: steps.collect(),
            shape: Shape::Done,
        };
        connection.plan_alone(plan, self.owner.wall(now));
    }

    /// Runs the queued commands, or none of them.
    fn exec(&mut self, now: MonoNs, connection: &mut Connection) {
        let Some(queue) = connection.transaction.0.take() else {
            return connection.respond(error("ERR EXEC without MULTI"));
        };
        let at = self.owner.wall(now);
        let watched = self.watches.forget(connection.number);
        if queue.refused {
            let text = "EXECABORT Transaction discarded because of previous errors.";
            return connection.respond(error(text));
        }
        // The gateway does not see changes of keys that it has given up.
        let moved = |key: &Bytes| self.cluster.elsewhere(key).is_some();
        if watched.is_some_and(|it| it.has_changed(at) || it.keys().any(moved)) {
            return connection.respond(Reply::NullArray);
        }
        let plan = match self.collect(connection, queue.commands, at) {
            Ok(plan) => plan,
            Err(refusal) => return connection.respond(refusal),
        };
        if let Some(refusal) = self.refuses_whole(connection, &plan) {
            return connection.respond(refusal);
        }
        if plan.steps.is_empty() {
            return connection.respond(plan.shape.reply(Vec::new(), at));
        }
        connection.plan_whole(plan, at);
        self.begin(now, connection, usize::MAX);
    }

    fn collect(
        &mut self,
        connection: &Connection,
        commands: Vec<Queued>,
        at: WallNs,
    ) -> Result<Plan, Reply> {
        let mut collected = Collected::default();
        for Queued { spec, words } in commands {
            // The rights of the user may have changed since.
            if let Some(refusal) = refused(connection, spec, &words) {
                return Err(refusal);
            }
            if !matches!(spec.class, Class::Read | Class::Write) {
                let reply = about::simple(spec.name, &words);
                let reply = reply.unwrap_or_else(|| wrong_number(spec.name));
                collected.parts.push(Part::Ready(reply));
                continue;
            }
            if let Some(refusal) = self.unserved(spec, &words) {
                return Err(refusal);
            }
            match self.read(spec, &words, at) {
                Ok(plan) => collected.add(plan),
                Err(refusal) => collected.parts.push(Part::Ready(refusal)),
            }
        }
        collected.plan()
    }

    /// Returns why none of the operations may begin, if some of them could not.
    pub(super) fn refuses_whole(&self, connection: &mut Connection, plan: &Plan) -> Option<Reply> {
        if !self.owner.is_open() {
            return Some(super::failure(&Error::Stopped {
                part: "owner".to_owned(),
            }));
        }
        let knows = connection.said.knows_of_doubt;
        let is_doubtful = |(key, operation): &(Bytes, Operation)| {
            operation.access() != Access::Blind && self.losses.is_doubtful(key)
        };
        if !knows && plan.steps.iter().any(is_doubtful) {
            connection.said.knows_of_doubt = true;
            return Some(super::failure(&Error::TailUnknown));
        }
        let steps = plan.steps.iter();
        let writes = steps.clone().any(|(_, it)| it.access() != Access::Read);
        let bytes = steps.map(|(key, operation)| key.len() + operation.encode().len());
        let room = self
            .owner
            .has_room_for(plan.steps.len(), writes, bytes.sum());
        room.err().map(|full| super::failure(&full))
    }
}

#[cfg(test)]
mod tests {
    use flurry_core::key_value::VALUE_BYTES_MAX;

    use super::super::table;
    use super::*;

    fn key(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    fn plan(steps: &[&'static str], shape: Shape) -> Plan {
        let step = |name: &&'static str| (key(name), Operation::Get);
        Plan {
            steps: steps.iter().map(step).collect(),
            shape,
        }
    }

    #[test]
    fn the_operations_on_one_key_are_one_and_their_answers_find_their_commands() {
        let mut collected = Collected::default();
        collected.add(plan(&["a"], Shape::Value));
        collected.parts.push(Part::Ready(Reply::Status("PONG")));
        collected.add(plan(&["b", "a"], Shape::Values));
        let plan = collected.plan().unwrap();
        let several = Operation::Several(vec![Operation::Get, Operation::Get]);
        assert_eq!(
            plan.steps,
            [(key("a"), several), (key("b"), Operation::Get)]
        );
        let Shape::Transaction(parts) = plan.shape else {
            panic!("{:?}", plan.shape)
        };
        let value = |text| Answer::Value(key(text));
        let outcomes = [
            Ok(Answer::Several(vec![value("1"), value("2")])),
            Ok(value("3")),
        ];
        let wanted = Reply::Array(vec![
            Reply::text("1"),
            Reply::Status("PONG"),
            Reply::Array(vec![Reply::text("3"), Reply::text("2")]),
        ]);
        assert_eq!(parts.reply(&outcomes, WallNs(1)), wanted);
        let refused = [outcomes[0].clone(), Err(error("BUSY"))];
        let wanted = Reply::Array(vec![Reply::text("1"), Reply::Status("PONG"), error("BUSY")]);
        assert_eq!(parts.reply(&refused, WallNs(1)), wanted);
    }

    #[test]
    fn a_transaction_with_too_many_commands_is_refused_and_keeps_none() {
        let get = table::find(b"get").unwrap();
        let mut transaction = Transaction(Some(Queue::default()));
        let words = [key("get"), key("k")];
        for _ in 0..COMMANDS_MAX {
            assert_eq!(transaction.push(get, &words), Reply::Status("QUEUED"));
        }
        assert!(matches!(transaction.push(get, &words), Reply::Error(_)));
        assert_eq!(transaction.bytes(), 0);
        assert!(transaction.0.is_some_and(|it| it.refused));
    }

    #[test]
    fn operations_that_do_not_fit_a_message_together_are_refused() {
        let mut collected = Collected::default();
        for _ in 0..2 {
            let value = Bytes::from(vec![0; VALUE_BYTES_MAX / 2 + 1_024]);
            collected.add(Plan {
                steps: vec![(key("k"), Operation::set(value))],
                shape: Shape::Stored,
            });
        }
        let refusal = collected.plan().unwrap_err();
        assert!(matches!(refusal, Reply::Error(text) if text.starts_with("EXECABORT")));
    }
}
