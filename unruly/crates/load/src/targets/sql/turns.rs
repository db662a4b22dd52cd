//! The operations of one connection, one after the other: which waits, which is being done, and what
//! became of those that are over.

use std::collections::VecDeque;

use unruly_trace::ErrorKind;

use super::{Prepared, Statement, number_of};
use crate::target::{Fate, Outgoing, Reply};

/// What a connection does when a statement is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// It sends the next statement of the open operation.
    Statement,
    /// It rolls the transaction back.
    RollBack,
    /// The operation is over.
    Nothing,
}

/// The operations of a connection.
#[derive(Default)]
pub(super) struct Turns {
    waiting: VecDeque<Waiting>,
    open: Option<Open>,
    replies: VecDeque<Reply>,
}

/// An operation that was not begun.
struct Waiting {
    ticket: u64,
    request: u64,
    operation: usize,
}

/// An operation that is being done.
struct Open {
    ticket: u64,
    request: u64,
    operation: usize,
    /// Statements that were sent.
    sent: usize,
    bytes: usize,
    failure: Option<(ErrorKind, Vec<u8>)>,
    /// It timed out: its further statements are left out.
    stopped: bool,
    /// Nobody waits for it any more.
    forgotten: bool,
    rolls_back: bool,
}

impl Turns {
    /// Lets an operation wait for its turn.
    pub(super) fn ask(&mut self, outgoing: &Outgoing<'_>) {
        self.waiting.push_back(Waiting {
            ticket: outgoing.request,
            request: outgoing.number,
            operation: number_of(outgoing),
        });
    }

    /// Hands an operation back, which no server has seen.
    pub(super) fn hand_back(&mut self, outgoing: &Outgoing<'_>) {
        self.reply(outgoing.request, Fate::Untouched, 0);
    }

    /// Begins the next operation, if none is open. Returns its ticket.
    pub(super) fn begin(&mut self) -> Option<u64> {
        if self.open.is_some() {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.open = Some(Open {
            ticket: next.ticket,
            request: next.request,
            operation: next.operation,
            sent: 0,
            bytes: 0,
            failure: None,
            stopped: false,
            forgotten: false,
            rolls_back: false,
        });
        Some(next.ticket)
    }

    /// The next statement of the open operation and the number of its request. It counts as sent.
    pub(super) fn statement<'a>(&mut self, script: &'a Prepared) -> Option<(&'a Statement, u64)> {
        let open = self.open.as_mut()?;
        let statement = script.operations.get(open.operation)?.get(open.sent)?;
        open.sent += 1;
        Some((statement, open.request))
    }

    /// True if an operation is being done.
    pub(super) const fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// True if the open operation's transaction is being rolled back.
    pub(super) fn rolls_back(&self) -> bool {
        self.open.as_ref().is_some_and(|it| it.rolls_back)
    }

    /// Counts bytes of the open operation's replies.
    pub(super) fn received(&mut self, bytes: usize) {
        if let Some(open) = &mut self.open {
            open.bytes += bytes;
        }
    }

    /// Notes why the open operation failed; the first reason stays.
    pub(super) fn fail(&mut self, kind: ErrorKind, words: impl FnOnce() -> Vec<u8>) {
        if let Some(open) = &mut self.open {
            open.failure.get_or_insert_with(|| (kind, words()));
        }
    }

    /// A statement is over, and the server is in a transaction or not.
    pub(super) fn over(&mut self, script: &Prepared, in_transaction: bool) -> Next {
        let Some(open) = &mut self.open else {
            return Next::Nothing;
        };
        let all = script.operations.get(open.operation).map_or(0, Vec::len);
        let left = open.sent < all;
        if open.failure.is_none() && left && !open.forgotten && !open.stopped {
            return Next::Statement;
        }
        if !in_transaction || open.rolls_back {
            self.finish();
            return Next::Nothing;
        }
        open.rolls_back = true;
        // One that timed out has its status already, and nothing more to complain of.
        if !open.stopped {
            open.failure.get_or_insert_with(|| {
                let words = b"the operation does not end its transaction".to_vec();
                (ErrorKind::Store, words)
            });
        }
        Next::RollBack
    }

    /// Ends the open operation.
    pub(super) fn finish(&mut self) {
        let Some(open) = self.open.take().filter(|it| !it.forgotten) else {
            return;
        };
        let fate = match open.failure {
            Some((kind, words)) => Fate::Failed(kind, words),
            None => Fate::Done,
        };
        self.reply(open.ticket, fate, open.bytes);
    }

    /// Fails everything that waits.
    pub(super) fn give_up(&mut self, kind: ErrorKind, words: &[u8]) {
        while let Some(waiting) = self.waiting.pop_front() {
            self.reply(waiting.ticket, Fate::Failed(kind, words.to_vec()), 0);
        }
    }

    fn reply(&mut self, ticket: u64, fate: Fate, bytes: usize) {
        self.replies.push_back(Reply {
            ticket,
            fate,
            code: None,
            bytes,
        });
    }

    pub(super) fn next_reply(&mut self) -> Option<Reply> {
        self.replies.pop_front()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.open.is_none() && self.waiting.is_empty() && self.replies.is_empty()
    }

    /// Leaves out the statements of an open operation that were not sent.
    pub(super) fn stop(&mut self, ticket: u64) {
        if let Some(open) = self.open.as_mut().filter(|it| it.ticket == ticket) {
            open.stopped = true;
        }
    }

    /// Gives an operation up. The server goes on with one that is open, and the next one waits.
    pub(super) fn forget(&mut self, ticket: u64) {
        if let Some(place) = self.waiting.iter().position(|it| it.ticket == ticket) {
            self.waiting.remove(place);
        } else if let Some(open) = self.open.as_mut().filter(|it| it.ticket == ticket) {
            open.forgotten = true;
        }
    }
}
