//! Commands on several keys whose writes depend on what the keys hold: `MSETNX`, `RENAME`, `COPY`.
//!
//! First such a command reads its keys, then it writes what follows, and at last it removes what it
//! has moved. Meanwhile its keys are held: commands of other clients on them wait, so that nobody
//! sees a half of it. If something fails on the way, the rest does not happen, and no value is lost.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use flurry_core::decimal::decimal;
use flurry_core::id::{MonoNs, WallNs};
use flurry_core::key_value::{
    Answer, Condition, ExpireCondition, HashOperation, Operation, fields,
};
use flurry_core::resp::{Reply, error};
use flurry_core::wire::OPERATION_BYTES_MAX;

use super::connection::Connection;
use super::dispatcher::Dispatcher;
use super::keys::Plan;
use super::shape::{Shape, too_large};
use super::table::Spec;

/// A value that goes to another key.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Move {
    from: Bytes,
    to: Bytes,
    /// True for a copy.
    keeps_source: bool,
    /// True to do nothing if the other key has a value.
    only_absent: bool,
    /// True to reply 1 or 0 instead of OK.
    counts: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Command {
    /// Sets all keys, if none has a value.
    SetAbsent(Vec<(Bytes, Bytes)>),
    Move(Move),
}

/// What a command in stages does next.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Go(Plan),
    Reply(Reply),
}

#[derive(Debug)]
struct Running {
    command: Command,
    /// Number of stages that are over.
    stage: usize,
    keys: BTreeSet<Bytes>,
}

/// The commands in stages that are under way, at most one of each client.
#[derive(Debug, Default)]
pub(super) struct Staged {
    running: BTreeMap<u64, Running>,
    /// The held keys, each with the client whose command holds it.
    held: BTreeMap<Bytes, u64>,
    /// Clients whose command waits for a held key, in the order in which they came.
    waiting: Vec<u64>,
    /// Clients whose command may go on.
    freed: Vec<u64>,
}

/// Returns whether this is a command in stages.
pub(super) fn is_staged(name: &str) -> bool {
    matches!(name, "copy" | "msetnx" | "rename" | "renamenx")
}

impl Command {
    fn read(name: &str, words: &[Bytes]) -> Result<Self, Reply> {
        let moved = |keeps_source, only_absent, counts| {
            Self::Move(Move {
                from: words[0].clone(),
                to: words[1].clone(),
                keeps_source,
                only_absent,
                counts,
            })
        };
        match name {
            "rename" => Ok(moved(false, false, false)),
            "renamenx" => Ok(moved(false, true, true)),
            "copy" => Ok(moved(true, !replaces(&words[2..])?, true)),
            _ if words.len().is_multiple_of(2) => {
                let pairs = words.chunks_exact(2);
                Ok(Self::SetAbsent(
                    pairs.map(|it| (it[0].clone(), it[1].clone())).collect(),
                ))
            }
            _ => Err(super::dispatcher::wrong_number(name)),
        }
    }

    /// Returns the keys, in memory of their own.
    fn keys(&self) -> BTreeSet<Bytes> {
        let own = |key: &Bytes| Bytes::copy_from_slice(key);
        match self {
            Self::SetAbsent(pairs) => pairs.iter().map(|(key, _)| own(key)).collect(),
            Self::Move(it) => [&it.from, &it.to].map(own).into(),
        }
    }

    /// Returns the reads with which the command begins.
    fn first(&self) -> Result<Plan, Reply> {
        match self {
            Self::SetAbsent(_) => {
                let kind = |key| (key, Operation::Kind);
                Ok(stage(self.keys().into_iter().map(kind).collect()))
            }
            Self::Move(it) if it.keeps_source && it.from == it.to => {
                Err(error("ERR source and destination objects are the same"))
            }
            Self::Move(it) => {
                let whole = vec![
                    Operation::Expiry,
                    Operation::Get,
                    Operation::Hash(HashOperation::All),
                ];
                Ok(stage(vec![
                    (it.from.clone(), Operation::Several(whole)),
                    (it.to.clone(), Operation::Kind),
                ]))
            }
        }
    }

    /// Returns what follows from the answers of a stage.
    fn next(&self, over: usize, answers: &[Answer]) -> Next {
        match self {
            Self::SetAbsent(pairs) if over == 1 => {
                if answers.iter().any(|it| *it != Answer::NotFound) {
                    return Next::Reply(Reply::Integer(0));
                }
                let set =
                    |(key, value): &(Bytes, Bytes)| (key.clone(), Operation::set(value.clone()));
                Next::Go(stage(pairs.iter().map(set).collect()))
            }
            Self::SetAbsent(_) => Next::Reply(Reply::Integer(1)),
            Self::Move(it) => it.next(over, answers),
        }
    }
}

impl Move {
    fn next(&self, over: usize, answers: &[Answer]) -> Next {
        let done = if self.counts {
            Reply::Integer(1)
        } else {
            Reply::Status("OK")
        };
        match (over, answers) {
            (1, [Answer::Several(whole), target]) => self.write(whole, target, done),
            (2, [Answer::Stored | Answer::Several(_)]) if self.keeps_source => Next::Reply(done),
            (2, [Answer::Stored | Answer::Several(_)]) => {
                let remove = Operation::Delete { counted: false };
                Next::Go(stage(vec![(self.from.clone(), remove)]))
            }
            (3, _) => Next::Reply(done),
            // Nothing was written, so the source stays.
            _ => Next::Reply(too_large()),
        }
    }

    /// Returns the write of the value that was read.
    fn write(&self, whole: &[Answer], target: &Answer, done: Reply) -> Next {
        let [expiry, text, hash] = whole else {
            return Next::Reply(too_large());
        };
        if *expiry == Answer::NotFound {
            return Next::Reply(if self.keeps_source {
                Reply::Integer(0)
            } else {
                error("ERR no such key")
            });
        }
        if self.only_absent && *target != Answer::NotFound {
            return Next::Reply(Reply::Integer(0));
        }
        if self.from == self.to {
            return Next::Reply(done);
        }
        let expires_at = match expiry {
            Answer::Number(end) => Some(WallNs(*end)),
            _ => None,
        };
        let operation = match (text, hash) {
            (Answer::Value(value), _) => Operation::Set {
                value: value.clone(),
                expires_at,
                condition: Condition::Always,
            },
            (_, Answer::Fields(bytes)) => match fields(bytes.clone()) {
                Ok(fields) => {
                    let set = HashOperation::Set {
                        fields,
                        only_absent: false,
                    };
                    let end = expires_at.map(|_| Operation::Expire {
                        at: expires_at,
                        condition: ExpireCondition::Always,
                        returns_value: false,
                    });
                    let remove = Operation::Delete { counted: false };
                    let all = [remove, Operation::Hash(set)].into_iter().chain(end);
                    Operation::Several(all.collect())
                }
                Err(malformed) => return Next::Reply(error(format!("ERR {malformed}"))),
            },
            _ => return Next::Reply(too_large()),
        };
        if operation.encode().len() > OPERATION_BYTES_MAX {
            return Next::Reply(too_large());
        }
        Next::Go(stage(vec![(self.to.clone(), operation)]))
    }
}

fn stage(steps: Vec<(Bytes, Operation)>) -> Plan {
    Plan {
        steps,
        shape: Shape::Stage,
    }
}

/// Reads the options of `COPY`: `DB 0`, `REPLACE`.
fn replaces(options: &[Bytes]) -> Result<bool, Reply> {
    let mut replaces = false;
    let mut rest = options.iter();
    while let Some(word) = rest.next() {
        match word.to_ascii_uppercase().as_slice() {
            b"REPLACE" => replaces = true,
            b"DB" => match rest.next().map(|it| decimal(it)) {
                Some(Some(0)) => {}
                Some(Some(_)) => return Err(error("ERR DB index is out of range")),
                Some(None) => {
                    return Err(error("ERR value is not an integer or out of range"));
                }
                None => return Err(error("ERR syntax error")),
            },
            _ => return Err(error("ERR syntax error")),
        }
    }
    Ok(replaces)
}

impl Staged {
    /// Returns whether a command must wait for one of its keys, and notes its client if it must.
    pub(super) fn blocks<'a>(
        &mut self,
        client: u64,
        mut keys: impl Iterator<Item = &'a Bytes>,
    ) -> bool {
        let is_of_another = |key| self.held.get(key).is_some_and(|holder| *holder != client);
        let blocks = !self.held.is_empty() && keys.any(is_of_another);
        if blocks && !self.waiting.contains(&client) {
            self.waiting.push(client);
        }
        blocks
    }

    fn begin(&mut self, client: u64, command: Command) {
        let keys = command.keys();
        assert!(
            keys.iter().all(|key| !self.held.contains_key(key)),
            "a command whose keys are held waits, before it holds any itself"
        );
        self.held
            .extend(keys.iter().map(|key| (key.clone(), client)));
        let running = Running {
            command,
            stage: 0,
            keys,
        };
        self.running.insert(client, running);
    }

    /// Returns whether a client's command in stages is under way.
    pub(super) fn is_running(&self, client: u64) -> bool {
        self.running.contains_key(&client)
    }

    fn next(&mut self, client: u64, answers: &[Answer]) -> Option<Next> {
        let running = self.running.get_mut(&client)?;
        running.stage += 1;
        Some(running.command.next(running.stage, answers))
    }

    /// Ends a client's command, if one is under way, and lets go of its keys.
    pub(super) fn end(&mut self, client: u64) {
        if let Some(running) = self.running.remove(&client) {
            for key in &running.keys {
                self.held.remove(key);
            }
            self.freed.append(&mut self.waiting);
        }
    }

    /// Returns whether some client's command may go on.
    pub(super) fn has_freed(&self) -> bool {
        !self.freed.is_empty()
    }

    /// Returns the clients whose command may go on.
    pub(super) fn take_freed(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.freed)
    }
}

impl Dispatcher {
    /// Begins a command in stages: plans its reads, or replies.
    pub(super) fn begin_stages(
        &mut self,
        now: MonoNs,
        connection: &mut Connection,
        spec: &Spec,
        words: &[Bytes],
    ) {
        let command = Command::read(spec.name, &words[1..]);
        let read = command.and_then(|command| Ok((command.first()?, command)));
        match read {
            Ok((plan, command)) => {
                self.staged.begin(connection.number, command);
                connection.plan_stages(plan, self.owner.wall(now));
            }
            Err(refusal) => connection.respond(refusal),
        }
    }

    /// Goes on with a client's command in stages, if a stage is over.
    pub(super) fn go_on_stages(&mut self, now: MonoNs, connection: &mut Connection) {
        if let Some((place, answers)) = connection.take_stage() {
            let next = match self.staged.next(connection.number, &answers) {
                Some(Next::Go(plan)) => match self.refuses_whole(connection, &plan) {
                    Some(refusal) => Next::Reply(refusal),
                    None => Next::Go(plan),
                },
                Some(reply) => reply,
                None => return,
            };
            match next {
                Next::Go(plan) => {
                    connection.go_on(place, plan, self.owner.wall(now));
                    self.begin(now, connection, usize::MAX);
                }
                Next::Reply(reply) => {
                    if let Some(finished) = connection.settled(place, reply) {
                        let (at, name) = (self.owner.wall(now), &connection.said.name);
                        self.slow.note(&finished, at, connection.address, name);
                    }
                }
            }
        }
        if !connection.is_blocked() {
            self.staged.end(connection.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use flurry_core::key_value::ValueKind;

    use super::*;

    fn bytes(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    fn command(line: &str) -> Result<Command, Reply> {
        let words: Vec<Bytes> = line.split(' ').map(bytes).collect();
        Command::read(&line[..line.find(' ').unwrap()], &words[1..])
    }

    fn text(value: &str, expiry: Answer) -> Vec<Answer> {
        let whole = vec![expiry, Answer::Value(bytes(value)), Answer::WrongKind];
        vec![Answer::Several(whole), Answer::NotFound]
    }

    fn steps(next: Next) -> Vec<(Bytes, Operation)> {
        match next {
            Next::Go(plan) => plan.steps,
            Next::Reply(reply) => panic!("{reply:?}"),
        }
    }

    #[test]
    fn a_renamed_key_goes_only_once_its_value_is_at_the_other_key() {
        let rename = command("rename a b").unwrap();
        let written = steps(rename.next(1, &text("v", Answer::Number(9))));
        let set = Operation::Set {
            value: bytes("v"),
            expires_at: Some(WallNs(9)),
            condition: Condition::Always,
        };
        assert_eq!(written, [(bytes("b"), set)]);
        let remove = Operation::Delete { counted: false };
        let removed = steps(rename.next(2, &[Answer::Stored]));
        assert_eq!(removed, [(bytes("a"), remove)]);
        assert_eq!(
            rename.next(3, &[Answer::Stored]),
            Next::Reply(Reply::Status("OK"))
        );
        assert_eq!(
            rename.next(2, &[Answer::TooLarge]),
            Next::Reply(too_large())
        );
    }

    #[test]
    fn a_copy_of_a_hash_replaces_the_value_and_keeps_its_end() {
        let copy = command("copy a b replace db 0").unwrap();
        let hash = Answer::Fields(Bytes::new());
        let whole = vec![Answer::Number(9), Answer::WrongKind, hash];
        let there = Answer::Kind(ValueKind::Text);
        let written = steps(copy.next(1, &[Answer::Several(whole), there]));
        let Operation::Several(all) = &written[0].1 else {
            panic!("{written:?}")
        };
        assert_eq!(all[0], Operation::Delete { counted: false });
        assert!(matches!(
            all[2],
            Operation::Expire {
                at: Some(WallNs(9)),
                ..
            }
        ));
        assert_eq!(
            copy.next(2, &[Answer::Several(Vec::new())]),
            Next::Reply(Reply::Integer(1))
        );
    }

    #[test]
    fn what_may_not_happen_is_answered_after_the_first_reads() {
        let there = Answer::Kind(ValueKind::Hash);
        let nothing = Answer::Several(vec![Answer::NotFound, Answer::NotFound, Answer::NotFound]);
        for (line, answers, reply) in [
            (
                "rename a b",
                vec![nothing.clone(), there.clone()],
                error("ERR no such key"),
            ),
            (
                "copy a b",
                vec![nothing, Answer::NotFound],
                Reply::Integer(0),
            ),
            (
                "renamenx a b",
                [
                    &text("v", Answer::ForEver)[..1],
                    std::slice::from_ref(&there),
                ]
                .concat(),
                Reply::Integer(0),
            ),
            (
                "rename a a",
                text("v", Answer::ForEver),
                Reply::Status("OK"),
            ),
            (
                "msetnx a 1 b 2",
                vec![Answer::NotFound, there],
                Reply::Integer(0),
            ),
        ] {
            let found = command(line).unwrap().next(1, &answers);
            assert_eq!(found, Next::Reply(reply), "{line}");
        }
        let refusal = command("copy a a").unwrap().first().unwrap_err();
        assert_eq!(
            refusal,
            error("ERR source and destination objects are the same")
        );
        for line in [
            "copy a b what",
            "copy a b db",
            "copy a b db 1",
            "msetnx a 1 b",
        ] {
            assert!(command(line).is_err(), "{line}");
        }
    }

    #[test]
    fn commands_on_held_keys_wait_until_these_are_let_go() {
        let mut staged = Staged::default();
        let keys = |all: &[&str]| all.iter().map(|it| bytes(it)).collect::<Vec<_>>();
        staged.begin(1, command("rename a b").unwrap());
        staged.begin(2, command("msetnx c 1 d 2").unwrap());
        assert!(!staged.blocks(3, keys(&["e"]).iter()));
        assert!(staged.blocks(4, keys(&["e", "b"]).iter()));
        staged.end(7);
        assert!(staged.take_freed().is_empty());
        staged.end(1);
        assert_eq!(staged.take_freed(), [4]);
        assert!(!staged.blocks(4, keys(&["b"]).iter()));
        assert!(!staged.blocks(2, keys(&["d"]).iter()), "its own");
        for client in [5, 4, 5] {
            assert!(staged.blocks(client, keys(&["d"]).iter()));
        }
        staged.end(2);
        let freed = staged.take_freed();
        assert_eq!(freed, [5, 4], "in the order in which they came");
    }
}
