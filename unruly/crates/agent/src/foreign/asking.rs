//! A connection to a JVM that sends requests to one peer for this process. This process sends the
//! scheduled requests, and the JVM reports when it sent each one and when the reply arrived.
//! `unruly/schema/foreign.md` defines the messages.

use std::net::SocketAddrV4;

use unruly_load::{Answer, Incoming, Operation, Outgoing, ProtocolError, ServerStamps, Target};
use unruly_plan::Transport;
use unruly_trace::{ColumnNs, ErrorKind, MonoNs};

use super::record::{RECORD_BYTES, bytes_of, fields_of};

const ROUTE: u16 = 32;
const ASK: u16 = 33;
const SENT: u16 = 34;
const REPLY: u16 = 35;
const FAILED: u16 = 36;

const WANTED: &str = "a record of unruly/schema/foreign.md";

/// The requests of one client to one server.
#[derive(Debug)]
pub(crate) struct Asking {
    pub(crate) client: u16,
    pub(crate) server: u16,
    pub(crate) address: SocketAddrV4,
    pub(crate) transport: Transport,
}

impl Target for Asking {
    fn greet(&mut self, out: &mut Vec<u8>) -> usize {
        out.extend_from_slice(&bytes_of(
            ROUTE,
            &[
                self.server.into(),
                self.client.into(),
                self.address.ip().to_bits().into(),
                self.address.port().into(),
                (self.transport == Transport::Udp).into(),
            ],
        ));
        0
    }

    fn encode(&mut self, outgoing: &Outgoing<'_>, out: &mut Vec<u8>) {
        let flags = match outgoing.operation {
            Operation::Call { flags } => flags,
            // A group asks nothing of a store.
            Operation::Named { .. } | Operation::Read { .. } | Operation::Write { .. } => 0,
        };
        let ticket = outgoing.request.cast_signed();
        out.extend_from_slice(&bytes_of(
            ASK,
            &[ticket, outgoing.intended_ns.0, flags.into()],
        ));
    }

    fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Option<Incoming<'a>>, ProtocolError> {
        let Some(bytes) = input.first_chunk::<RECORD_BYTES>() else {
            return Ok(None);
        };
        let wrong = || ProtocolError::reply(input, WANTED);
        let (kind, fields) = fields_of(bytes).ok_or_else(wrong)?;
        let ticket = fields[0].cast_unsigned();
        let told = |answer| Incoming::new(ticket, answer, RECORD_BYTES);
        let incoming = match kind {
            SENT => Incoming {
                sent_ns: Some(MonoNs(fields[1])),
                wire_bytes: u32::try_from(fields[2]).ok(),
                ..told(Answer::Sent)
            },
            REPLY => Incoming {
                received_ns: Some(MonoNs(fields[1])),
                stamps: ServerStamps {
                    kernel_received_ns: ColumnNs(fields[2]),
                    received_ns: ColumnNs(fields[3]),
                    sent_ns: ColumnNs(fields[4]),
                },
                wire_bytes: u32::try_from(fields[5]).ok(),
                ..told(Answer::Done)
            },
            FAILED => told(failed(fields[1]).ok_or_else(wrong)?),
            _ => return Err(wrong()),
        };
        Ok(Some(Incoming {
            server: Some(self.server),
            ..incoming
        }))
    }
}

/// How it failed: see the table.
fn failed(code: i64) -> Option<Answer<'static>> {
    let kind = match code {
        1 => ErrorKind::Disconnected,
        2 => return Some(Answer::Refused),
        3 => ErrorKind::Reset,
        4 => ErrorKind::Protocol,
        5 => ErrorKind::Send,
        _ => return None,
    };
    Some(Answer::Failed(kind, kind_words(kind)))
}

fn kind_words(kind: ErrorKind) -> &'static [u8] {
    match kind {
        ErrorKind::Protocol => b"the peer sent bytes that are no reply of this run",
        ErrorKind::Send => b"the system refused to send",
        ErrorKind::Reset => b"the peer closed the connection",
        _ => b"there is no connection",
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::foreign::record::tests::golden;

    fn asking() -> Asking {
        Asking {
            client: 2,
            server: 1,
            address: SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 2), 7_000),
            transport: Transport::Udp,
        }
    }

    fn decoded(name: &str) -> Incoming<'static> {
        let bytes = golden(name).leak();
        assert_eq!(asking().decode(&bytes[..RECORD_BYTES - 1]), Ok(None));
        asking().decode(bytes).unwrap().unwrap()
    }

    #[test]
    fn what_is_due_is_told_in_the_golden_bytes() {
        let mut out = Vec::new();
        assert_eq!(asking().greet(&mut out), 0, "nobody answers a route");
        assert_eq!(out, golden("route"));
        out.clear();
        let outgoing = Outgoing {
            request: 1,
            number: 1,
            session: 0,
            intended_ns: MonoNs(2),
            operation: Operation::Call { flags: 3 },
        };
        asking().encode(&outgoing, &mut out);
        assert_eq!(out, golden("ask"));
    }

    #[test]
    fn what_became_of_it_is_read_from_the_golden_bytes() {
        let sent = decoded("sent");
        assert_eq!((sent.request, sent.answer), (1, Answer::Sent));
        assert_eq!((sent.sent_ns, sent.wire_bytes), (Some(MonoNs(2)), Some(3)));
        let reply = decoded("reply");
        assert_eq!((reply.request, reply.answer), (1, Answer::Done));
        assert_eq!(
            (reply.received_ns, reply.wire_bytes),
            (Some(MonoNs(2)), Some(6))
        );
        let stamps = ServerStamps {
            kernel_received_ns: ColumnNs(3),
            received_ns: ColumnNs(4),
            sent_ns: ColumnNs(5),
        };
        assert_eq!(reply.stamps, stamps);
        assert_eq!(reply.server, Some(1));
        assert_eq!(decoded("failed").answer, Answer::Refused);
    }

    #[test]
    fn what_is_no_record_or_no_way_to_fail_is_refused() {
        for bytes in [
            [0; RECORD_BYTES],
            bytes_of(FAILED, &[1, 9]),
            bytes_of(1, &[]),
        ] {
            assert!(asking().decode(&bytes).is_err());
        }
    }
}
