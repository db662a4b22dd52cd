//! Messages between the controllers of a group as bytes.

use super::WireError;
use super::body;
use crate::consensus::{Ballot, MemberId, Message, Stamp};
use crate::id::MonoNs;
use crate::message::Control;

const ASK: u32 = 0;
const VOTE: u32 = 1;
const PROMISED: u32 = 2;
const APPEND: u32 = 3;
const APPENDED: u32 = 4;
const RESIGN: u32 = 5;
const INQUIRE: u32 = 6;

/// Returns a message with only these fields.
fn fields(kind: u32, ballot: Ballot, stamp: Stamp) -> body::Consensus {
    body::Consensus {
        kind,
        ballot: ballot.0,
        stamp_ballot: stamp.ballot.0,
        version: stamp.version,
        ..body::Consensus::default()
    }
}

pub(super) fn put(from: MemberId, message: &Message) -> body::Consensus {
    let none = Stamp::default();
    let body = match message {
        Message::Ask {
            ballot,
            stamp,
            trial,
        } => body::Consensus {
            trial: *trial,
            ..fields(ASK, *ballot, *stamp)
        },
        Message::Vote {
            ballot,
            trial,
            empty,
        } => body::Consensus {
            trial: *trial,
            empty: *empty,
            ..fields(VOTE, *ballot, none)
        },
        Message::Promised(ballot) => fields(PROMISED, *ballot, none),
        Message::Append {
            ballot,
            sent,
            stamp,
            part,
            parts,
            bytes,
        } => body::Consensus {
            sent_ns: sent.0,
            part: *part,
            parts: *parts,
            bytes: bytes.clone(),
            ..fields(APPEND, *ballot, *stamp)
        },
        Message::Appended {
            ballot,
            sent,
            stamp,
        } => body::Consensus {
            sent_ns: sent.0,
            ..fields(APPENDED, *ballot, *stamp)
        },
        Message::Resign(ballot) => fields(RESIGN, *ballot, none),
        Message::Inquire => fields(INQUIRE, Ballot::default(), none),
    };
    body::Consensus {
        from: from.0,
        ..body
    }
}

pub(super) fn read(read: body::Consensus) -> Result<Control, WireError> {
    let ballot = Ballot(read.ballot);
    let stamp = Stamp {
        ballot: Ballot(read.stamp_ballot),
        version: read.version,
    };
    let (sent, trial) = (MonoNs(read.sent_ns), read.trial);
    let message = match read.kind {
        ASK => Message::Ask {
            ballot,
            stamp,
            trial,
        },
        VOTE => Message::Vote {
            ballot,
            trial,
            empty: read.empty,
        },
        PROMISED => Message::Promised(ballot),
        APPEND => Message::Append {
            ballot,
            sent,
            stamp,
            part: read.part,
            parts: read.parts,
            bytes: read.bytes,
        },
        APPENDED => Message::Appended {
            ballot,
            sent,
            stamp,
        },
        RESIGN => Message::Resign(ballot),
        INQUIRE => Message::Inquire,
        kind => {
            return Err(WireError::Field {
                field: "kind of consensus message",
                value: u64::from(kind),
            });
        }
    };
    Ok(Control::Consensus(MemberId(read.from), message))
}
