//! The target of the group study and of the echo: our own RPC.

use unruly_trace::ColumnNs;

use crate::target::{
    Answer, GREETING, Incoming, Operation, Outgoing, ProtocolError, ServerStamps, Target,
};
use crate::wire::{Codec, Head};

/// Speaks `unruly/schema/wire.md` as a client, to one server.
#[derive(Debug, Clone, Copy)]
pub struct GroupRpc {
    codec: Codec,
    client: u16,
    server: u16,
    one_clock: bool,
}

impl GroupRpc {
    /// Client `client` of the run with this codec, which asks `server`.
    #[must_use]
    pub fn new(codec: Codec, client: u16, server: u16) -> Self {
        Self {
            codec,
            client,
            server,
            one_clock: true,
        }
    }

    /// Leaves the stamps of the server out: it is on a host with another clock.
    #[must_use]
    pub fn with_foreign_clock(self) -> Self {
        Self {
            one_clock: false,
            ..self
        }
    }

    fn head(&self, request: u64, flags: u8) -> Head {
        Head {
            flags,
            cookie: self.codec.cookie,
            request,
            sender: self.client,
            receiver: self.server,
        }
    }
}

impl Target for GroupRpc {
    fn greet(&mut self, out: &mut Vec<u8>) -> usize {
        self.codec.encode_request(self.head(GREETING, 0), out);
        1
    }

    fn encode(&mut self, outgoing: &Outgoing<'_>, out: &mut Vec<u8>) {
        let flags = match outgoing.operation {
            Operation::Call { flags } => flags,
            Operation::Named { .. } | Operation::Read { .. } | Operation::Write { .. } => 0,
        };
        self.codec
            .encode_request(self.head(outgoing.request, flags), out);
    }

    fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Option<Incoming<'a>>, ProtocolError> {
        let Some((head, stamps, bytes)) = self.codec.decode_reply(input)? else {
            return Ok(None);
        };
        // Any server may answer: beyond these years sums of times would overflow.
        let sane = |at: ColumnNs| {
            if self.one_clock && (0..1 << 62).contains(&at.0) {
                at
            } else {
                ColumnNs(0)
            }
        };
        Ok(Some(Incoming {
            server: Some(head.receiver),
            stamps: ServerStamps {
                kernel_received_ns: sane(stamps.kernel_received_ns),
                received_ns: sane(stamps.received_ns),
                sent_ns: sane(stamps.sent_ns),
            },
            ..Incoming::new(head.request, Answer::Done, bytes)
        }))
    }
}
