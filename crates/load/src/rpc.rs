//! The target of the group study and of the echo: our own RPC.

use crate::target::{GREETING, Incoming, Outgoing, ProtocolError, Target};
use crate::wire::{Codec, Head};

/// Speaks `schema/wire.md` as a client.
#[derive(Debug, Clone, Copy)]
pub struct GroupRpc {
    codec: Codec,
}

impl GroupRpc {
    /// A client of the run with this codec.
    #[must_use]
    pub fn new(codec: Codec) -> Self {
        Self { codec }
    }
}

impl Target for GroupRpc {
    fn encode(&mut self, outgoing: Outgoing, out: &mut Vec<u8>) {
        let head = Head {
            flags: outgoing.flags,
            cookie: self.codec.cookie,
            request: outgoing.request,
            sender: outgoing.client,
            receiver: outgoing.server,
        };
        self.codec.encode_request(head, out);
    }

    fn greet(&mut self, client: u16, server: u16, out: &mut Vec<u8>) {
        self.encode(
            Outgoing {
                request: GREETING,
                client,
                server,
                flags: 0,
            },
            out,
        );
    }

    fn decode(&mut self, input: &[u8]) -> Result<Option<Incoming>, ProtocolError> {
        Ok(self
            .codec
            .decode_reply(input)?
            .map(|(head, stamps, bytes)| Incoming {
                request: head.request,
                server: head.receiver,
                server_kernel_received_ns: stamps.kernel_received_ns,
                server_received_ns: stamps.received_ns,
                server_sent_ns: stamps.sent_ns,
                bytes,
            }))
    }
}
