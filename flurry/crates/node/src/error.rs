//! The errors that callers of this crate receive.

use flurry_core::id::{Epoch, KeyLength, Version};
use flurry_core::key_value::Answer;
use flurry_core::portal::SubmitError;

use crate::VALUE_BYTES_MAX;
use crate::address::Controllers;

/// Why something was not done, or is not known to be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A write may have happened, or happen yet.
    #[error(
        "operation: no answer within {waited_ms} ms, so whether it was done is not known; wanted an answer; hint: read the key before writing it again, or wait longer"
    )]
    Unknown {
        /// How long it was waited for.
        waited_ms: u128,
    },
    /// An acknowledged write is on no server any more.
    #[error(
        "key: its write {need} is on no server any more, the newest there is {have}; wanted the newest; hint: set it anew; more replicas or --level quorum make this rarer"
    )]
    DataLoss {
        /// The version that is lost.
        need: Version,
        /// The newest that there is.
        have: Version,
    },
    /// Somebody else opened the session.
    #[error("session: it is owned by epoch {} now; wanted to be the only owner; hint: open it again to take it back, or use a session of another name", .epoch.0)]
    Fenced {
        /// The epoch that owns it, as far as known.
        epoch: Epoch,
    },
    /// A bound was reached; the operation was not acknowledged.
    #[error(
        "operation: refused, since a queue or a server's memory is full; wanted room; hint: wait for answers, or give the servers more --memory"
    )]
    Busy,
    /// The writes that some server does not have yet take all the memory that they may; this one was not
    /// acknowledged.
    #[error(
        "operation: refused, since writes of {bytes} bytes are not on every server yet; hint: `flurry status` shows whether a server is silent; a slow or full one needs more processor or --memory; --backlog allows more"
    )]
    BacklogFull {
        /// Bytes of these writes.
        bytes: usize,
    },
    /// The level promises fewer copies of a write than the session does.
    #[error(
        "level: it promises fewer copies of a write than the gateway does; wanted quorum, all or disk, as the gateway's level is one of these; hint: give the user such a level, or start the gateway with --level first"
    )]
    LevelTooLow,
    /// Fewer servers are left than the level promises copies; the operation was not acknowledged.
    #[error(
        "operation: refused, since fewer servers are left than its level promises copies; wanted a majority of the replicas, or --min-copies; hint: `flurry status` shows which are missing; level first needs one"
    )]
    TooFewCopies,
    /// The value had to make room for others. A write that depends on it was not acknowledged; a replica
    /// that still had the value may have done it.
    #[error(
        "key: its value was evicted; wanted it in memory; hint: set it anew, or give the servers more --memory"
    )]
    Evicted,
    /// An earlier owner's last writes to the key may have been lost. Nothing was done, since the answer
    /// could have rested on an older value. A client of a gateway hears it once.
    #[error(
        "key: nothing was done: an earlier owner's last writes to it may have been lost with the server that had them; hint: send the command again to go on with the remaining value; FLURRY LOSSES lists the keys"
    )]
    TailUnknown,
    /// The controller answers, but the session is not open yet.
    #[error(
        "session: not open after {waited_ms} ms, though the controller at {controllers} answers; wanted it open; hint: `flurry status` shows whether servers are missing; after a server was lost an opening waits until its lease ends, so try again or wait longer"
    )]
    NotOpen {
        /// The controllers' addresses.
        controllers: Controllers,
        /// How long it was waited for.
        waited_ms: u128,
    },
    /// The controller does not answer.
    #[error(
        "controller {controllers}: no answer within {waited_ms} ms; wanted a controller there; hint: start one with `flurry serve --embedded 3`, or name another with --controller"
    )]
    NoAnswer {
        /// The controllers' addresses.
        controllers: Controllers,
        /// How long it was waited for.
        waited_ms: u128,
    },
    /// Controllers answer, but all of them stand by.
    #[error(
        "controllers {controllers}: they answer, but for {waited_ms} ms none of them leads; wanted one that does; hint: operations go on without; does a majority of them run, or of the etcd that they use? See flurry/docs/controllers.md"
    )]
    NoLeader {
        /// The controllers' addresses.
        controllers: Controllers,
        /// How long it was waited for.
        waited_ms: u128,
    },
    /// No server that should have the key has answered.
    #[error(
        "servers: none that has the key has answered within {waited_ms} ms; wanted one of them; hint: `flurry status` shows which are up"
    )]
    NoServer {
        /// Time that the observer waited.
        waited_ms: u128,
    },
    /// The key is empty or too long.
    #[error(transparent)]
    KeyLength(#[from] KeyLength),
    /// The value would not fit a datagram. Nothing was done.
    #[error(
        "value: it has {bytes} bytes; wanted at most {VALUE_BYTES_MAX}; hint: split it over several keys"
    )]
    ValueTooLarge {
        /// Length of the value in bytes. For an append, the length of the added bytes.
        bytes: usize,
    },
    /// The caller's sequence number is not above the last one. Nothing was done.
    #[error(
        "sequence: {given} was given after {last}; wanted a higher one; hint: numbers must never go back"
    )]
    SequenceGoesBack {
        /// The caller's.
        given: u64,
        /// The last.
        last: u64,
    },
    /// The controller or a server refused; nothing was done.
    #[error("{reason}")]
    Refused {
        /// Why, as a whole message.
        reason: String,
    },
    /// The value is not what the operation needs; nothing was done.
    #[error(
        "key: its value is not a number that {wanted}; wanted a decimal number of 64 bits; hint: `flurry get` shows the value"
    )]
    NotANumber {
        /// What it should allow.
        wanted: &'static str,
    },
    /// An address is none, or not one that may be used.
    #[error("{}: {problem}; wanted {wanted}; hint: {hint}", shown(text))]
    Address {
        /// What was given.
        text: String,
        /// What is wrong with it.
        problem: String,
        /// What may be given.
        wanted: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// A thread of this process has ended.
    #[error(
        "{part}: its thread has ended; wanted it running; hint: see what it said before, and start it again"
    )]
    Stopped {
        /// Name of the part.
        part: String,
    },
    /// The operating system refused.
    #[error(
        "{place}: {problem}; wanted {wanted}; hint: check that it exists, is free and is yours"
    )]
    Io {
        /// A path or an address.
        place: String,
        /// What the system said.
        problem: String,
        /// What was to be done.
        wanted: &'static str,
    },
}

impl Error {
    pub(crate) fn io(
        place: impl std::fmt::Display,
        wanted: &'static str,
        error: &impl std::fmt::Display,
    ) -> Self {
        Self::Io {
            place: place.to_string(),
            problem: error.to_string(),
            wanted,
        }
    }

    /// An answer of the machine that is none to the operation asked for, as an error.
    #[must_use]
    pub fn unexpected(answer: &Answer) -> Self {
        match answer {
            Answer::NotANumber => Self::NotANumber {
                wanted: "can be read",
            },
            Answer::OutOfRange => Self::NotANumber {
                wanted: "can be added to without leaving its range",
            },
            other => Self::Refused {
                reason: format!(
                    "answer: it is {other:?}; wanted one that belongs to the operation; hint: is the server of another version?"
                ),
            },
        }
    }
}

impl From<SubmitError> for Error {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::NotOpen => Self::Stopped {
                part: "session".to_owned(),
            },
            SubmitError::Fenced(epoch) => Self::Fenced { epoch },
            SubmitError::Key(length) => Self::KeyLength(length),
            SubmitError::SequenceGoesBack { given, last } => Self::SequenceGoesBack { given, last },
            SubmitError::Busy(_) => Self::Busy,
            SubmitError::TooLong(bytes) => Self::ValueTooLarge { bytes },
            SubmitError::Full(bytes) => Self::BacklogFull { bytes },
            SubmitError::Level => Self::LevelTooLow,
        }
    }
}

/// Returns an address as it was given, unless it may contain a password. A text that is not an
/// address is hidden completely, since nothing shows where a password in it would end.
fn shown(text: &str) -> &str {
    if text.contains('@') {
        "(not shown, it may hold a password)"
    } else {
        text
    }
}
