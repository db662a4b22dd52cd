//! A connection to a database as the engine sees it, whatever protocol is spoken over it.

use bytes::BytesMut;

use super::turns::Turns;
use crate::target::{ASIDE, Answer, GREETING, Incoming, Outgoing, ProtocolError, Reply, Target};

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The client logs in, and prepares its statements.
    Greeting,
    /// It takes operations.
    Ready,
    /// It is of no use: the engine ends it and makes another one, after a pause.
    Broken,
}

/// The length of a message, and what it says of the greeting when that ends, well or not.
pub(super) type Taken<'a> = (usize, Option<Answer<'a>>);

/// One connection in the protocol of a database.
pub(super) trait Dialect: Send {
    /// Forgets an earlier connection, and appends the client's first bytes, if it speaks first.
    fn restart(&mut self, out: &mut Vec<u8>);

    fn stage(&self) -> Stage;

    /// Takes the message at the start of the input; `None` when more bytes are needed.
    ///
    /// # Errors
    ///
    /// When the bytes are not of the protocol.
    fn take<'a>(&mut self, input: &'a [u8]) -> Result<Option<Taken<'a>>, ProtocolError>;

    /// True if the server has agreed to speak TLS from its next byte on.
    fn wants_tls(&self) -> bool;

    /// Logs in by TLS.
    fn tls_began(&mut self);

    /// Appends the next statement of the open operation.
    fn send(&mut self, out: &mut BytesMut);

    /// Messages that no request is behind.
    fn queued(&mut self) -> &mut BytesMut;

    fn turns(&self) -> &Turns;

    fn turns_mut(&mut self) -> &mut Turns;
}

/// A connection over which operations follow each other.
pub(super) struct Connection<D>(pub(super) D);

impl<D: Dialect> Target for Connection<D> {
    fn greet(&mut self, out: &mut Vec<u8>) -> usize {
        self.0.restart(out);
        1
    }

    fn encode(&mut self, outgoing: &Outgoing<'_>, _out: &mut Vec<u8>) {
        match self.0.stage() {
            Stage::Broken => self.0.turns_mut().hand_back(outgoing),
            Stage::Greeting | Stage::Ready => self.0.turns_mut().ask(outgoing),
        }
    }

    fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Option<Incoming<'a>>, ProtocolError> {
        let taken = self.0.take(input)?;
        Ok(taken.map(|(bytes, said)| match said {
            Some(answer) => Incoming::new(GREETING, answer, bytes),
            None => Incoming::new(ASIDE, Answer::Sent, bytes),
        }))
    }

    fn has_streams(&self) -> bool {
        true
    }

    fn drain(&mut self, out: &mut Vec<u8>) -> Option<u64> {
        let queued = self.0.queued();
        if !queued.is_empty() {
            out.extend_from_slice(&queued.split());
            return None;
        }
        if self.0.stage() != Stage::Ready {
            return None;
        }
        let ticket = self.0.turns_mut().begin()?;
        let mut message = BytesMut::new();
        self.0.send(&mut message);
        out.extend_from_slice(&message);
        Some(ticket)
    }

    fn next_reply(&mut self) -> Option<Reply> {
        self.0.turns_mut().next_reply()
    }

    fn wants_tls(&self) -> bool {
        self.0.wants_tls()
    }

    fn tls_began(&mut self) {
        self.0.tls_began();
    }

    fn is_closing(&self) -> bool {
        self.0.stage() == Stage::Broken
    }

    fn is_proven(&self) -> bool {
        self.0.stage() == Stage::Ready
    }

    fn is_idle(&self) -> bool {
        self.0.turns().is_idle()
    }

    fn stop(&mut self, ticket: u64) {
        self.0.turns_mut().stop(ticket);
    }

    fn forget(&mut self, ticket: u64) {
        self.0.turns_mut().forget(ticket);
    }

    fn may_send_again(&self) -> bool {
        false
    }
}
