//! Runs the commands of a gateway's clients. Operations on keys go to the owner; the gateway
//! answers all other commands itself.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use flurry_core::config::{Level, majority};
use flurry_core::decimal::decimal;
use flurry_core::id::{DurationNs, MonoNs, WallNs};
use flurry_core::key_value::{Answer, Operation};
use flurry_core::machine::{Access, digest};
use flurry_core::portal::Submission;
use flurry_core::resp::{Reply, error};

use super::GatewayOptions;
use super::authentication::Authentication;
use super::cluster::Cluster;
use super::connection::{Connection, Next, Place, Said};
use super::keys::{self, Plan};
use super::losses::Losses;
use super::scripts::Scripts;
use super::slow::Slow;
use super::staged::{Staged, is_staged};
use super::table::{self, Class, Spec};
use super::walks::Walks;
use super::watches::Watches;
use crate::client::Answered;
use crate::owner::{Caller, Owner};
use crate::{Error, clock};

/// Maximum number of keys of one command.
const KEYS_MAX: usize = 100_000;

/// Maximum number of clients that wait for copies of their writes.
const WAITS_MAX: usize = 16_384;

/// The use of an operation's outcome.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose {
    /// The outcome is a part of the reply to a client's command.
    Step {
        connection: u64,
        place: Place,
        step: usize,
        /// True if the answer is the end of a value that the client watches.
        watches: bool,
    },
    /// The outcome counts for the `WAIT` of this number.
    Copies(u64),
    /// Nobody needs the outcome.
    Housekeeping,
}

/// The conditions of an operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) level: Level,
    pub(super) timeout: Duration,
    /// See [`Submission::refuses_doubt`].
    pub(super) refuses_doubt: bool,
    /// The owner's time of the operation; `None` for the present time.
    pub(super) at: Option<WallNs>,
    pub(super) purpose: Purpose,
}

/// The outcome of an operation.
#[derive(Debug)]
pub(super) struct Completion {
    purpose: Purpose,
    key: Bytes,
    access: Access,
    outcome: Result<Answered, Error>,
}

/// Outcomes that the dispatcher has not handled yet. Only one thread uses the list.
type Completions = Arc<Mutex<Vec<Completion>>>;

/// The requester of an operation, which the owner notifies of the outcome.
#[derive(Debug)]
pub(super) struct Requester {
    purpose: Purpose,
    key: Bytes,
    access: Access,
    completions: Completions,
}

impl Caller for Requester {
    fn told(self, outcome: Result<Answered, Error>) {
        let completion = Completion {
            purpose: self.purpose,
            key: self.key,
            access: self.access,
            outcome,
        };
        let mut completions = self
            .completions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        completions.push(completion);
    }
}

/// A client that waits for copies of its writes.
#[derive(Debug)]
struct Wait {
    number: u64,
    connection: u64,
    place: Place,
    /// Number of copies in addition to the first.
    wanted: i64,
    /// Number of the client's last write.
    through: u64,
    until: MonoNs,
    /// Number of unanswered questions to a majority. `None` means that some questions have not been
    /// asked.
    asked: Option<usize>,
}

/// A command that concerns other clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GlobalCommand {
    /// List all clients.
    List,
    /// End the connections that match.
    Kill {
        number: Option<u64>,
        address: Option<String>,
        skip_me: bool,
        counted: bool,
    },
    /// Report the state of the gateway.
    Info(Vec<String>),
}

/// The counters of a gateway.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) commands: u64,
    pub(super) connections: u64,
    pub(super) wrong_passwords: u64,
    pub(super) unknown: u64,
    /// Number of expired values that the gateway has removed.
    pub(super) swept: u64,
}

#[derive(Debug)]
pub(super) struct Dispatcher {
    pub(super) owner: Owner<Requester>,
    pub(super) cluster: Cluster,
    pub(super) timeout: Duration,
    pub(super) level: Level,
    /// Time for which a client may stay connected without authenticating.
    pub(super) entry_timeout: DurationNs,
    pub(super) counts: Counts,
    pub(super) started: MonoNs,
    completions: Completions,
    waits: Vec<Wait>,
    next_wait: u64,
    pub(super) losses: Losses,
    pub(super) watches: Watches,
    pub(super) scripts: Scripts,
    pub(super) staged: Staged,
    pub(super) slow: Slow,
    pub(super) walks: Walks,
    /// The users' authentication. `None` means that no client has to authenticate.
    pub(super) authentication: Option<Authentication>,
}

impl Dispatcher {
    pub(super) fn new(
        owner: Owner<Requester>,
        cluster: Cluster,
        options: &GatewayOptions,
        authentication: Option<Authentication>,
    ) -> Self {
        let entry_timeout = options.entry_timeout.as_nanos();
        Self {
            owner,
            cluster,
            timeout: options.timeout,
            level: options.level,
            entry_timeout: DurationNs(u64::try_from(entry_timeout).unwrap_or(u64::MAX)),
            counts: Counts::default(),
            started: clock::now(),
            completions: Completions::default(),
            waits: Vec::new(),
            next_wait: 0,
            losses: Losses::default(),
            watches: Watches::default(),
            scripts: Scripts::default(),
            staged: Staged::default(),
            slow: Slow::default(),
            walks: Walks::default(),
            authentication,
        }
    }

    /// Runs a command. Returns a command that concerns other clients for the caller to run.
    pub(super) fn command(
        &mut self,
        now: MonoNs,
        connection: &mut Connection,
        words: &[Bytes],
    ) -> Option<GlobalCommand> {
        let spec = match self.admitted(connection, words) {
            Ok(spec) => spec,
            Err(refusal) => {
                self.counts.commands += 1;
                connection.said.next_number = None;
                connection.transaction.refuse();
                if !connection.ends {
                    connection.respond(refusal);
                }
                return None;
            }
        };
        if self.must_wait(connection, spec, words) {
            connection.parked = Some(words.to_vec());
            return None;
        }
        self.counts.commands += 1;
        connection.last_command = spec.name;
        // Commands about the connection, such as a PING of its library, leave the number.
        let is_counted = matches!(spec.class, Class::Read | Class::Write)
            || matches!(spec.name, "multi" | "exec");
        let number = connection.said.next_number.take_if(|_| is_counted);
        if number.is_some() && (connection.transaction.is_open() || spec.name == "multi") {
            connection.transaction.refuse();
            connection.respond(numbers_one());
            return None;
        }
        if self.on_transaction(now, connection, spec, words).is_some() {
            return None;
        }
        if matches!(spec.class, Class::Read | Class::Write) {
            self.on_keys(now, connection, spec, words, number);
            return None;
        }
        self.on_connection(now, connection, spec.name, words)
    }

    /// Returns the command that the client may run now, or a refusal.
    fn admitted(
        &self,
        connection: &mut Connection,
        words: &[Bytes],
    ) -> Result<&'static Spec, Reply> {
        let spec = table::find(&words[0]);
        let enters = spec.is_some_and(|it| matches!(it.name, "auth" | "hello" | "quit" | "reset"));
        if spec.is_none() && is_http(&words[0]) {
            connection.ends = true;
        }
        if connection.said.is_stranger && !enters {
            return Err(error("NOAUTH Authentication required."));
        }
        let spec = spec.ok_or_else(|| unknown(words))?;
        if !spec.fits(words.len()) {
            return Err(wrong_number(spec.name));
        }
        if let Some(refusal) = refused(connection, spec, words) {
            return Err(refusal);
        }
        // PING belongs to these, so that a health check finds the gateway that owns the slots.
        let needs_slots = matches!(spec.class, Class::Read | Class::Write)
            || matches!(
                spec.name,
                "ping" | "scan" | "keys" | "dbsize" | "flushall" | "flushdb" | "wait"
            )
            // A standby knows nothing about losses.
            || spec.lists_losses(words);
        if needs_slots && !self.owner.is_open() {
            return Err(error(
                "LOADING the gateway does not own its slots yet; it waits for the controller and for earlier owners to end",
            ));
        }
        Ok(spec)
    }

    /// Returns whether a command waits, because another client's command holds one of its keys.
    fn must_wait(&mut self, connection: &Connection, spec: &Spec, words: &[Bytes]) -> bool {
        let number = connection.number;
        if spec.name == "exec" {
            return self.staged.blocks(number, connection.transaction.keys());
        }
        let keys = spec.keys(words.len()).map(|at| &words[at]);
        self.staged.blocks(number, keys)
    }

    fn on_keys(
        &mut self,
        now: MonoNs,
        connection: &mut Connection,
        spec: &Spec,
        words: &[Bytes],
        number: Option<u64>,
    ) {
        if let Some(refusal) = self.unserved(spec, words) {
            return connection.respond(refusal);
        }
        if is_staged(spec.name) {
            return match number {
                Some(_) => connection.respond(numbers_one()),
                None => self.begin_stages(now, connection, spec, words),
            };
        }
        let at = self.owner.wall(now);
        let read = self.read(spec, words, at);
        let read = read.and_then(|plan| match number {
            Some(number) => numbered(plan, &connection.said, number, words),
            None => Ok(plan),
        });
        match read {
            Ok(plan) => connection.plan(plan, at),
            Err(refusal) => connection.respond(refusal),
        }
    }

    /// Returns the refusal of a command whose keys are too many or those of another gateway.
    pub(super) fn unserved(&self, spec: &Spec, words: &[Bytes]) -> Option<Reply> {
        let mut keys = spec.keys(words.len());
        let elsewhere = keys.find_map(|at| self.cluster.elsewhere(&words[at]));
        let keys = spec.keys(words.len()).count();
        elsewhere.or_else(|| {
            let refusal = format!("ERR {keys} keys; at most {KEYS_MAX} are taken in one command");
            (keys > KEYS_MAX).then(|| error(refusal))
        })
    }

    /// Reads a command on keys.
    pub(super) fn read(&mut self, spec: &Spec, words: &[Bytes], at: WallNs) -> Result<Plan, Reply> {
        match spec.name {
            "eval" | "evalsha" => self.scripts.read(spec.name, &words[1..], at),
            // The table of commands lets a wrong number pass: MSET with a key that lacks its value.
            name => keys::read(name, &words[1..], at).unwrap_or_else(|| Err(wrong_number(name))),
        }
    }

    /// Begins at most `most` operations of a client's last command. Returns how many it has begun.
    pub(super) fn begin(&mut self, now: MonoNs, connection: &mut Connection, most: usize) -> usize {
        for begun in 0..most {
            // The key may be held since the command was read.
            let client = connection.number;
            if self
                .staged
                .blocks(client, connection.next_key().into_iter())
            {
                return begun;
            }
            let Some(next) = connection.next() else {
                return begun;
            };
            let Next {
                place,
                step,
                key,
                operation,
                watches,
                at,
            } = next;
            let purpose = Purpose::Step {
                connection: connection.number,
                place,
                step,
                watches,
            };
            let access = operation.access();
            let writes = access != Access::Read;
            // The key gets memory of its own. Otherwise it would keep the whole piece of input
            // alive that contains it.
            let key = Bytes::copy_from_slice(&key);
            let knows = connection.said.knows_of_doubt;
            if self.losses.refuses(&key, access, knows) {
                connection.said.knows_of_doubt = true;
                connection.answered(place, step, Err(Error::TailUnknown));
                if !connection.is_blocked() {
                    self.staged.end(connection.number);
                }
                continue;
            }
            // What is removed from one key must be safe at the other one.
            let level = connection.said.level;
            let is_moving = self.staged.is_running(client) && !level.promises_copies();
            let caller = Asked {
                level: if is_moving { Level::Quorum } else { level },
                timeout: self.timeout,
                refuses_doubt: !knows,
                at,
                purpose,
            };
            let number = self.submit(now, key.clone(), &operation, caller);
            if let Some(number) = number.filter(|_| writes) {
                connection.written.note(number, key);
            }
        }
        most
    }

    pub(super) fn submit(
        &mut self,
        now: MonoNs,
        key: Bytes,
        operation: &Operation,
        asked: Asked,
    ) -> Option<u64> {
        let timeout = u64::try_from(asked.timeout.as_nanos()).unwrap_or(u64::MAX);
        let access = operation.access();
        if access != Access::Read {
            self.watches.wrote(&key);
        }
        let submission = Submission {
            key: key.clone(),
            operation: operation.encode(),
            access,
            level: asked.level,
            at: asked.at.unwrap_or_else(|| self.owner.wall(now)),
            timeout: DurationNs(timeout),
            sequence: None,
            refuses_doubt: asked.refuses_doubt,
        };
        let requester = Requester {
            purpose: asked.purpose,
            key,
            access,
            completions: Arc::clone(&self.completions),
        };
        self.owner.submit(now, submission, now, requester)
    }

    /// Returns the outcomes of operations since the last call.
    pub(super) fn outcomes(&mut self) -> Vec<Completion> {
        let mut completions = self
            .completions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *completions)
    }

    /// Records an outcome. For a step of a command, returns the client, the place of the reply, the
    /// step and the outcome.
    pub(super) fn settle(
        &mut self,
        told: Completion,
    ) -> Option<(u64, Place, usize, Result<Answer, Error>)> {
        match told.purpose {
            Purpose::Step {
                connection,
                place,
                step,
                watches,
            } => {
                let outcome = self.judge(&told.key, told.access, told.outcome);
                match outcome {
                    Ok(Answer::Number(end)) if watches => {
                        self.watches.ends(connection, WallNs(end));
                    }
                    // Nobody knows when the value ends.
                    Err(_) if watches => self.watches.ends(connection, WallNs(i64::MIN)),
                    _ => {}
                }
                Some((connection, place, step, outcome))
            }
            Purpose::Copies(number) => {
                let wait = self.waits.iter_mut().find(|it| it.number == number);
                if let Some(asked) = wait.and_then(|it| it.asked.as_mut())
                    && told.outcome.is_ok()
                {
                    *asked -= 1;
                }
                None
            }
            Purpose::Housekeeping => None,
        }
    }

    fn judge(
        &mut self,
        key: &Bytes,
        access: Access,
        outcome: Result<Answered, Error>,
    ) -> Result<Answer, Error> {
        let done = match outcome {
            Ok(done) => done,
            Err(Error::Unknown { .. }) => {
                self.counts.unknown += 1;
                let waited_ms = self.timeout.as_millis();
                return Err(Error::Unknown { waited_ms });
            }
            Err(error) => {
                match error {
                    Error::TailUnknown => self.losses.doubt(key),
                    Error::DataLoss { .. } => self.losses.loss(key),
                    _ => {}
                }
                return Err(error);
            }
        };
        // This client was notified of doubts before, but other clients may not have been.
        if done.is_tail_unknown && access != Access::Blind {
            self.losses.doubt(key);
        }
        Answer::decode(done.answer).map_err(|error| Error::Refused {
            reason: error.to_string(),
        })
    }

    /// Runs `WAIT`: waits for copies of every write of this client.
    pub(super) fn wait(&mut self, now: MonoNs, connection: &mut Connection, words: &[Bytes]) {
        let numbers = [&words[1], &words[2]].map(|word| decimal(word));
        let [Some(wanted), Some(timeout_ms)] = numbers else {
            return connection.respond(error("ERR value is not an integer or out of range"));
        };
        if timeout_ms < 0 {
            return connection.respond(error("ERR timeout is negative"));
        }
        if self.waits.len() >= WAITS_MAX {
            return connection.respond(super::failure(&Error::Busy));
        }
        // A timeout of 0 means for ever in Redis. The gateway limits it to an hour.
        let limit_ms = if timeout_ms == 0 {
            3_600_000
        } else {
            timeout_ms.unsigned_abs()
        };
        let limit = Duration::from_millis(limit_ms);
        let number = self.next_wait;
        self.next_wait += 1;
        let keys = connection.written.keys(self.owner.stable());
        let asked = keys.as_ref().map(Vec::len);
        for key in keys.into_iter().flatten() {
            let asked = Asked {
                level: Level::Quorum,
                timeout: limit,
                refuses_doubt: false,
                at: None,
                purpose: Purpose::Copies(number),
            };
            self.submit(now, key, &Operation::Get, asked);
        }
        let place = connection.expect_alone();
        self.waits.push(Wait {
            number,
            connection: connection.number,
            place,
            wanted,
            through: connection.written.last,
            until: now.after(DurationNs::millis(limit_ms)),
            asked,
        });
    }

    /// Returns the waits that are over: the client, the place of its reply, and the number of
    /// copies.
    pub(super) fn waits_over(&mut self, now: MonoNs) -> Vec<(u64, Place, i64)> {
        if self.waits.is_empty() {
            return Vec::new();
        }
        let copies = self.owner.copies();
        let others = |copies: usize| i64::try_from(copies).unwrap_or(i64::MAX) - 1;
        let stable = self.owner.stable();
        let mut over = Vec::new();
        self.waits.retain(|wait| {
            let there = if stable >= wait.through {
                others(copies)
            } else if wait.asked == Some(0) {
                others(majority(copies))
            } else {
                0
            };
            let ended = there >= wait.wanted || there >= others(copies) || now >= wait.until;
            if ended {
                over.push((wait.connection, wait.place, there));
            }
            !ended
        });
        over
    }

    /// Returns the time at which the next wait ends without its copies.
    pub(super) fn due(&self) -> Option<MonoNs> {
        self.waits.iter().map(|wait| wait.until).min()
    }
}

/// Returns the plan of a command that its client has numbered: the key remembers the answer of its
/// write.
fn numbered(mut plan: Plan, said: &Said, number: u64, words: &[Bytes]) -> Result<Plan, Reply> {
    let [(_, operation)] = &mut plan.steps[..] else {
        return Err(numbers_one());
    };
    if operation.access() != Access::Read {
        // The words decide, since an operation may contain the time at which it was sent.
        let length = |word: &Bytes| word.len().to_le_bytes();
        let words: Vec<u8> = words
            .iter()
            .flat_map(|word| length(word).into_iter().chain(word.iter().copied()))
            .collect();
        *operation = Operation::Once {
            caller: said.caller().into(),
            number,
            digest: digest(Some(&words)),
            then: Box::new(operation.clone()),
        };
    }
    Ok(plan)
}

fn numbers_one() -> Reply {
    error(
        "ERR id: FLURRY ID numbers one command on one key; wanted such a command next; hint: leave MULTI and further keys out",
    )
}

/// Returns whether this is the begin of an HTTP request, which a browser sends for a malicious web
/// page.
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// Returns the refusal of a command that the user may not run, or `None` if it may.
pub(super) fn refused(connection: &Connection, spec: &Spec, words: &[Bytes]) -> Option<Reply> {
    let user = connection.said.user.as_ref()?;
    let may_run = user.may_run(spec.class)
        && (!spec.tells_value(words) || user.may_run(Class::Read))
        && (!spec.is_of_others(words) || user.may_run(Class::Admin))
        && (!spec.writes_more() || user.may_run(Class::Write))
        && (!spec.is_of_all_keys() || user.may_use(b""));
    if !may_run {
        let name = spec.name;
        let refusal = format!("NOPERM this user has no permissions to run the '{name}' command");
        return Some(error(refusal));
    }
    let all = spec.keys(words.len()).all(|at| user.may_use(&words[at]));
    (!all).then(|| {
        error("NOPERM this user has no permissions to access one of the keys used as arguments")
    })
}

fn unknown(words: &[Bytes]) -> Reply {
    let text = |word: &Bytes, most: usize| {
        String::from_utf8_lossy(&word[..word.len().min(most)]).into_owned()
    };
    let mut rest = String::new();
    for word in &words[1..] {
        if rest.len() >= 128 {
            break;
        }
        rest += &format!("'{}' ", text(word, 128 - rest.len()));
    }
    let name = text(&words[0], 128);
    error(format!(
        "ERR unknown command '{name}', with args beginning with: {rest}"
    ))
}

pub(super) fn wrong_number(name: &str) -> Reply {
    error(format!(
        "ERR wrong number of arguments for '{name}' command"
    ))
}
