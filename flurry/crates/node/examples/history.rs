//! Runs one owner of a session that records its calls and their results for a checker.
//!
//! `flurry/tests/e2e/storm.py` starts these processes, stops and kills them, and starts the next owner; the
//! checker in `flurry/tests/linearizability` reads what all of them wrote. Every call has two JSON lines: one
//! before it and one after it, each a single write to the file, so that `kill -9` can cost the second
//! line only, and a call without one may or may not have happened. The instants are of the machine's
//! monotonic clock, which all processes share.
//!
//! It works until its input ends; then it reads every key once more, closes the session and ends.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use clap::Parser;
use flurry::{
    Answer, Client, Condition, Done, DurationNs, Error, Level, Operation, Options, Transport,
};
use nix::time::{ClockId, clock_gettime};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng as _;
use serde::Serialize;

/// Two of a kind, so that operations on different keys are under way together.
const KEYS: [&str; 6] = [
    "register-1",
    "register-2",
    "counter-1",
    "counter-2",
    "list-1",
    "list-2",
];

/// How often a session is tried to be opened: the controller may be away, and openings are fenced too.
const OPENINGS_MAX: usize = 20;

/// How long a call waits while anything may go wrong.
const TIMEOUT: Duration = Duration::from_secs(1);

/// How long the last reading of a key waits, when nothing goes wrong any more.
const LAST_TIMEOUT: Duration = Duration::from_secs(20);

/// The longest pause of a thread between two calls; half of the calls follow at once.
const THINK_MAX_US: u64 = 16_000;

/// The arguments.
#[derive(Debug, Parser)]
struct Arguments {
    /// Where the controller listens
    #[arg(long)]
    controller: SocketAddr,
    /// What carries the messages
    #[arg(long, default_value = "udp", value_parser = ["udp", "tcp"])]
    transport: String,
    /// The session to own
    #[arg(long)]
    session: String,
    /// Where to write the history
    #[arg(long)]
    history: PathBuf,
    /// What is asked follows from it
    #[arg(long)]
    seed: u64,
    /// Callers that share the client
    #[arg(long, default_value_t = 4)]
    threads: u32,
}

/// A line of the history. `flurry/docs/testing.md` and the checker know them.
#[derive(Debug, Serialize)]
#[serde(tag = "line", rename_all = "snake_case")]
enum Line<'a> {
    Opened {
        session: &'a str,
        epoch: u32,
        at_ns: u64,
    },
    Called {
        call: u64,
        key: &'a str,
        level: &'a str,
        #[serde(flatten)]
        asked: &'a Asked,
        at_ns: u64,
    },
    Returned {
        call: u64,
        #[serde(flatten)]
        outcome: &'a Outcome,
        at_ns: u64,
    },
    Ended {
        how: &'a str,
        at_ns: u64,
    },
}

/// What is asked.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
enum Asked {
    Get,
    Set {
        value: String,
    },
    Delete,
    Increment {
        by: i64,
    },
    Append {
        value: String,
    },
    CompareAndSet {
        expected: Option<String>,
        value: String,
    },
}

/// What came of it.
#[derive(Debug, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum Outcome {
    /// It was answered.
    Done {
        #[serde(flatten)]
        answer: Told,
        is_tail_unknown: bool,
    },
    /// It may have happened, or happen yet.
    Unknown { why: String },
    /// The owner was notified of a loss, and the call did not take effect.
    Lost { why: String },
    /// It did not happen.
    Refused { why: String },
}

/// An answer.
#[derive(Debug, PartialEq, Serialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
enum Told {
    Stored,
    NotStored,
    NotFound,
    Value { value: String },
    Number { number: i64 },
    NotANumber,
    OutOfRange,
}

impl Asked {
    fn operation(&self) -> Operation {
        match self.clone() {
            Self::Get => Operation::Get,
            Self::Set { value } => Operation::Set {
                value: value.into(),
                expires_at: None,
                condition: Condition::Always,
            },
            Self::Delete => Operation::Delete { counted: true },
            Self::Increment { by } => Operation::Increment(by),
            Self::Append { value } => Operation::Append(value.into()),
            Self::CompareAndSet { expected, value } => Operation::CompareAndSet {
                expected: expected.map(Bytes::from),
                value: value.into(),
            },
        }
    }
}

impl Outcome {
    fn of(told: Result<Done, Error>) -> Self {
        match told {
            Ok(done) => match Told::of(&done.answer) {
                Some(answer) => Self::Done {
                    answer,
                    is_tail_unknown: done.is_tail_unknown,
                },
                None => Self::Refused {
                    why: format!("{:?}", done.answer),
                },
            },
            Err(error) => {
                let why = error.to_string();
                match error {
                    // What a full server refused may yet find room in a late copy; what a fenced owner
                    // had under way may have been executed before it was fenced.
                    Error::Unknown { .. }
                    | Error::Busy
                    | Error::BacklogFull { .. }
                    | Error::TooFewCopies
                    | Error::Fenced { .. }
                    | Error::Stopped { .. } => Self::Unknown { why },
                    Error::DataLoss { .. } | Error::Evicted => Self::Lost { why },
                    _ => Self::Refused { why },
                }
            }
        }
    }
}

impl Told {
    fn of(answer: &Answer) -> Option<Self> {
        Some(match answer {
            Answer::Stored => Self::Stored,
            Answer::NotStored => Self::NotStored,
            Answer::NotFound => Self::NotFound,
            Answer::Value(value) => Self::Value {
                value: String::from_utf8_lossy(value).into_owned(),
            },
            Answer::Number(number) => Self::Number { number: *number },
            Answer::NotANumber => Self::NotANumber,
            Answer::OutOfRange => Self::OutOfRange,
            Answer::TooLarge
            | Answer::ForEver
            | Answer::WrongKind
            | Answer::Kind(_)
            | Answer::Fields(_)
            | Answer::Several(_)
            | Answer::NumberTaken
            | Answer::TooManyCallers => return None,
        })
    }
}

fn now_ns() -> Result<u64, Box<dyn StdError>> {
    let now = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC)?);
    Ok(u64::try_from(now.as_nanos())?)
}

fn write(file: &File, line: &Line<'_>) -> Result<(), Box<dyn StdError>> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    // Whole or not at all: the file is opened for appending, and the line is one write.
    let mut file = file;
    if file.write(&bytes)? != bytes.len() {
        return Err(
            "history: half a line was written; wanted a whole one; hint: is the disk full?".into(),
        );
    }
    Ok(())
}

/// An owner at work.
struct Owner<'a> {
    client: &'a Client,
    file: &'a File,
    calls: AtomicU64,
    /// The last value that was read of each key, which makes some comparisons hold.
    seen: Mutex<BTreeMap<&'static str, Option<String>>>,
    input_ended: &'a AtomicBool,
    fenced: AtomicBool,
}

impl Owner<'_> {
    /// Calls once, with a line before and a line after.
    fn call(
        &self,
        key: &'static str,
        asked: &Asked,
        level: (&str, Level),
        timeout: Duration,
    ) -> Result<Outcome, Box<dyn StdError>> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let called = Line::Called {
            call,
            key,
            level: level.0,
            asked,
            at_ns: now_ns()?,
        };
        write(self.file, &called)?;
        let how = self.client.call().at_level(level.1).within(timeout);
        let told = how.run(key, &asked.operation());
        let at_ns = now_ns()?;
        if matches!(told, Err(Error::Fenced { .. })) {
            self.fenced.store(true, Ordering::Relaxed);
        }
        let outcome = Outcome::of(told);
        if let Outcome::Done { answer, .. } = &outcome {
            self.learn(key, answer);
        }
        let returned = Line::Returned {
            call,
            outcome: &outcome,
            at_ns,
        };
        write(self.file, &returned)?;
        Ok(outcome)
    }

    fn learn(&self, key: &'static str, answer: &Told) {
        let value = match answer {
            Told::Value { value } => Some(value.clone()),
            Told::NotFound => None,
            Told::Number { number } if key.starts_with("counter") => Some(number.to_string()),
            _ => return,
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.insert(key, value);
    }

    fn last_seen(&self, key: &str) -> Option<String> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(key).cloned().flatten()
    }

    /// One of the threads: random calls until the input ends or somebody else owns the session.
    fn work(&self, mut dice: Dice) -> Result<(), Box<dyn StdError>> {
        while !self.input_ended.load(Ordering::Relaxed) && !self.fenced.load(Ordering::Relaxed) {
            let key = dice.pick(&KEYS);
            let asked = self.choose(&mut dice, key);
            self.call(key, &asked, choose_level(&mut dice), TIMEOUT)?;
            if dice.below(2) == 0 {
                std::thread::sleep(Duration::from_micros(dice.below(THINK_MAX_US)));
            }
        }
        Ok(())
    }

    fn choose(&self, dice: &mut Dice, key: &str) -> Asked {
        // Every written value is unique, so that a value identifies the write that produced it.
        let unique = dice.unique(self.client.epoch().0);
        let roll = dice.below(100);
        let is_counter = key.starts_with("counter");
        let value = if is_counter {
            (unique % 1_000_000_000_000_000).to_string()
        } else {
            format!("{unique:x}")
        };
        match roll {
            0..40 => Asked::Get,
            40..60 if is_counter => Asked::Increment {
                by: 1 + i64::try_from(dice.below(9)).unwrap_or(0),
            },
            40..60 if key.starts_with("list") => Asked::Append {
                value: format!("{:x} ", unique & 0xffff),
            },
            40..80 => Asked::Set { value },
            80..92 => Asked::CompareAndSet {
                expected: self.last_seen(key),
                value,
            },
            _ => Asked::Delete,
        }
    }
}

fn choose_level(dice: &mut Dice) -> (&'static str, Level) {
    match dice.below(20) {
        0..12 => ("first", Level::First),
        12..15 => ("quorum", Level::Quorum),
        15 => ("all", Level::All),
        16..18 => ("hedge", Level::Hedge(DurationNs(1_000_000))),
        _ => ("auto", Level::Auto),
    }
}

/// Chance, from a seed.
struct Dice(Pcg64Mcg);

impl Dice {
    fn new(seed: u64, thread: u32) -> Self {
        Self(Pcg64Mcg::new(
            u128::from(seed) << 64 | u128::from(thread) << 1 | 1,
        ))
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0.next_u64() % end
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        let index = self.below(of.len() as u64);
        of[usize::try_from(index).unwrap_or(0)]
    }

    /// Different for every owner and, but for a chance that is none, for every call.
    fn unique(&mut self, epoch: u32) -> u64 {
        self.0.next_u64() >> 8 ^ u64::from(epoch) << 56
    }
}

fn open(arguments: &Arguments) -> Result<Client, Error> {
    let options = Options {
        transport: match arguments.transport.as_str() {
            "tcp" => Transport::Tcp,
            _ => Transport::Udp,
        },
        ..Options::new(arguments.controller, &arguments.session)
    };
    let mut opened = Client::open(&options);
    for _ in 1..OPENINGS_MAX {
        if !matches!(opened, Err(Error::NoAnswer { .. } | Error::NotOpen { .. })) {
            break;
        }
        opened = Client::open(&options);
    }
    opened
}

/// Reads every key once more; all must be answered, unless another owner has come.
fn read_all(owner: &Owner<'_>) -> Result<(), Box<dyn StdError>> {
    for key in KEYS {
        let level = ("first", Level::First);
        let outcome = owner.call(key, &Asked::Get, level, LAST_TIMEOUT)?;
        if owner.fenced.load(Ordering::Relaxed) {
            return Ok(());
        }
        if !matches!(outcome, Outcome::Done { .. } | Outcome::Lost { .. }) {
            return Err(format!(
                "key {key}: its last reading came to {outcome:?}; wanted an answer, since nothing goes wrong any more; hint: see what the servers said"
            )
            .into());
        }
    }
    Ok(())
}

fn run(arguments: &Arguments, input_ended: &AtomicBool) -> Result<(), Box<dyn StdError>> {
    let file = File::options()
        .create_new(true)
        .append(true)
        .open(&arguments.history)?;
    let client = open(arguments)?;
    let opened = Line::Opened {
        session: &arguments.session,
        epoch: client.epoch().0,
        at_ns: now_ns()?,
    };
    write(&file, &opened)?;
    let owner = Owner {
        client: &client,
        file: &file,
        calls: AtomicU64::new(1),
        seen: Mutex::default(),
        input_ended,
        fenced: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..arguments.threads)
            .map(|thread| {
                let dice = Dice::new(arguments.seed, thread);
                let owner = &owner;
                scope.spawn(move || owner.work(dice).map_err(|error| error.to_string()))
            })
            .collect();
        workers.into_iter().try_for_each(|it| {
            it.join()
                .unwrap_or_else(|_| Err("a thread panicked".to_owned()))
        })
    })?;
    if !owner.fenced.load(Ordering::Relaxed) {
        read_all(&owner)?;
    }
    let how = if owner.fenced.load(Ordering::Relaxed) {
        "fenced"
    } else {
        match client.close() {
            Ok(closed) if closed.is_stable => "closed",
            Ok(_) => "left open",
            Err(_) => "fenced",
        }
    };
    let at_ns = now_ns()?;
    write(&file, &Line::Ended { how, at_ns })
}

fn main() -> ExitCode {
    static INPUT_ENDED: AtomicBool = AtomicBool::new(false);
    let arguments = Arguments::parse();
    // Not joined: an owner that was pushed aside ends whether its input has ended or not.
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        INPUT_ENDED.store(true, Ordering::Relaxed);
    });
    match run(&arguments, &INPUT_ENDED) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "history: {error}");
            ExitCode::FAILURE
        }
    }
}
