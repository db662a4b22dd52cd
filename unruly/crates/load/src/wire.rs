//! The group RPC on the wire, as `unruly/schema/wire.md` writes it down. Sans-IO.

use unruly_trace::ColumnNs;

use crate::target::ProtocolError;

/// `U`, version 1.
const MAGIC: u16 = 0x5501;
const KIND_REQUEST: u8 = 1;
const KIND_REPLY: u8 = 2;

/// Length of a request without its body.
pub const REQUEST_BYTES: usize = 28;
/// Length of a reply without its body.
pub const REPLY_BYTES: usize = 44;

/// Flag: the receiver hashes the message.
pub const FLAG_HASH: u8 = 1;
/// Flag: the receiver writes the reply to disk and syncs it before it answers.
pub const FLAG_DISK: u8 = 2;
/// Flag: request and reply have a body.
pub const FLAG_BODY: u8 = 4;

/// What both messages begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// See the `FLAG_` constants.
    pub flags: u8,
    /// The run's cookie.
    pub cookie: u32,
    /// The request's number, unique for its sender within the run.
    pub request: u64,
    /// Who asked.
    pub sender: u16,
    /// Who was asked.
    pub receiver: u16,
}

/// The server's column time; 0 is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamps {
    /// The kernel received the request.
    pub kernel_received_ns: ColumnNs,
    /// The handler had the whole request.
    pub received_ns: ColumnNs,
    /// The reply was handed to the kernel.
    pub sent_ns: ColumnNs,
}

/// What both sides of a run agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Codec {
    /// The run's cookie.
    pub cookie: u32,
    /// Length of every body of the run.
    pub body_bytes: u32,
}

impl Codec {
    /// Length of the body that goes with these flags.
    #[must_use]
    pub fn body_bytes_of(&self, flags: u8) -> usize {
        if flags & FLAG_BODY == 0 {
            0
        } else {
            self.body_bytes as usize
        }
    }

    /// Appends a request with its body.
    pub fn encode_request(&self, head: Head, out: &mut Vec<u8>) {
        let start = out.len();
        encode_head(KIND_REQUEST, head, out);
        let body_bytes = self.body_bytes_of(head.flags);
        let length = u32::try_from(body_bytes).unwrap_or(0);
        out.extend_from_slice(&length.to_be_bytes());
        let crc = crc32fast::hash(&out[start..]);
        out.extend_from_slice(&crc.to_be_bytes());
        out.resize(out.len() + body_bytes, 0);
    }

    /// Appends a reply with its body.
    pub fn encode_reply(&self, head: Head, stamps: Stamps, out: &mut Vec<u8>) {
        encode_head(KIND_REPLY, head, out);
        for stamp in [
            stamps.kernel_received_ns,
            stamps.received_ns,
            stamps.sent_ns,
        ] {
            out.extend_from_slice(&stamp.0.to_be_bytes());
        }
        out.resize(out.len() + self.body_bytes_of(head.flags), 0);
    }

    /// Reads a request from the start of `input`: its head and total length, or `None` when more
    /// bytes are needed.
    ///
    /// # Errors
    ///
    /// When the bytes are not a request of this run; found from the first bytes on, so that a
    /// garbage length is never waited for.
    pub fn decode_request(&self, input: &[u8]) -> Result<Option<(Head, usize)>, ProtocolError> {
        let Some(head) = self.decode_head(KIND_REQUEST, input)? else {
            return Ok(None);
        };
        if input.len() < REQUEST_BYTES {
            return Ok(None);
        }
        if crc32fast::hash(&input[..24]) != u32_at(input, 24) {
            return Err(ProtocolError::Checksum);
        }
        let length = u32_at(input, 20) as usize;
        if length != self.body_bytes_of(head.flags) {
            return Err(ProtocolError::Length(length));
        }
        let total = REQUEST_BYTES + length;
        Ok((input.len() >= total).then_some((head, total)))
    }

    /// Reads a reply from the start of `input`, as [`Codec::decode_request`] does a request.
    ///
    /// # Errors
    ///
    /// When the bytes are not a reply of this run.
    pub fn decode_reply(
        &self,
        input: &[u8],
    ) -> Result<Option<(Head, Stamps, usize)>, ProtocolError> {
        let Some(head) = self.decode_head(KIND_REPLY, input)? else {
            return Ok(None);
        };
        let total = REPLY_BYTES + self.body_bytes_of(head.flags);
        if input.len() < total {
            return Ok(None);
        }
        let stamps = Stamps {
            kernel_received_ns: time_at(input, 20),
            received_ns: time_at(input, 28),
            sent_ns: time_at(input, 36),
        };
        Ok(Some((head, stamps, total)))
    }

    fn decode_head(&self, kind: u8, input: &[u8]) -> Result<Option<Head>, ProtocolError> {
        if input.len() >= 2 && u16_at(input, 0) != MAGIC {
            return Err(ProtocolError::Magic(u16_at(input, 0)));
        }
        if input.len() < 20 {
            return Ok(None);
        }
        if input[2] != kind {
            return Err(ProtocolError::Kind(input[2]));
        }
        if u32_at(input, 4) != self.cookie {
            return Err(ProtocolError::Cookie);
        }
        Ok(Some(Head {
            flags: input[3],
            cookie: self.cookie,
            request: u64_at(input, 8),
            sender: u16_at(input, 16),
            receiver: u16_at(input, 18),
        }))
    }
}

fn encode_head(kind: u8, head: Head, out: &mut Vec<u8>) {
    out.extend_from_slice(&MAGIC.to_be_bytes());
    out.extend_from_slice(&[kind, head.flags]);
    out.extend_from_slice(&head.cookie.to_be_bytes());
    out.extend_from_slice(&head.request.to_be_bytes());
    out.extend_from_slice(&head.sender.to_be_bytes());
    out.extend_from_slice(&head.receiver.to_be_bytes());
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) << 16 | u32::from(u16_at(bytes, at + 2))
}

fn time_at(bytes: &[u8], at: usize) -> ColumnNs {
    ColumnNs(u64_at(bytes, at).cast_signed())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CODEC: Codec = Codec {
        cookie: 0x0102_0304,
        body_bytes: 5,
    };
    const HEAD: Head = Head {
        flags: FLAG_HASH | FLAG_BODY,
        cookie: 0x0102_0304,
        request: 0x1112_1314_1516_1718,
        sender: 0x2122,
        receiver: 0x3132,
    };
    const STAMPS: Stamps = Stamps {
        kernel_received_ns: ColumnNs(1),
        received_ns: ColumnNs(2),
        sent_ns: ColumnNs(3),
    };

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_messages_are_the_golden_bytes() {
        let golden = include_str!("../../../schema/golden/wire.txt");
        let mut request = Vec::new();
        CODEC.encode_request(HEAD, &mut request);
        let mut reply = Vec::new();
        CODEC.encode_reply(HEAD, STAMPS, &mut reply);
        let expected: Vec<&str> = golden
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty())
            .collect();
        assert_eq!(
            expected,
            [
                format!("request {}", hex(&request)),
                format!("reply {}", hex(&reply))
            ]
        );
    }

    #[test]
    fn sizes_are_those_of_the_paper() {
        let mut bytes = Vec::new();
        CODEC.encode_request(Head { flags: 0, ..HEAD }, &mut bytes);
        assert_eq!(bytes.len(), 28);
        bytes.clear();
        CODEC.encode_reply(Head { flags: 0, ..HEAD }, STAMPS, &mut bytes);
        assert_eq!(bytes.len(), 44);
    }

    #[test]
    fn a_length_that_the_run_does_not_use_is_refused_before_it_is_waited_for() {
        let mut bytes = Vec::new();
        Codec {
            body_bytes: 1 << 30,
            ..CODEC
        }
        .encode_request(Head { flags: 0, ..HEAD }, &mut bytes);
        bytes[20] = 0x40;
        let crc = crc32fast::hash(&bytes[..24]);
        bytes[24..28].copy_from_slice(&crc.to_be_bytes());
        assert_eq!(
            CODEC.decode_request(&bytes),
            Err(ProtocolError::Length(1 << 30))
        );
    }

    #[test]
    fn a_message_of_another_run_is_refused_in_both_directions() {
        let other = Codec {
            cookie: CODEC.cookie + 1,
            ..CODEC
        };
        let head = Head {
            cookie: other.cookie,
            ..HEAD
        };
        let mut request = Vec::new();
        other.encode_request(head, &mut request);
        assert!(other.decode_request(&request).is_ok());
        assert_eq!(CODEC.decode_request(&request), Err(ProtocolError::Cookie));
        let mut reply = Vec::new();
        other.encode_reply(head, STAMPS, &mut reply);
        assert!(other.decode_reply(&reply).is_ok());
        assert_eq!(CODEC.decode_reply(&reply), Err(ProtocolError::Cookie));
    }

    proptest! {
        #[test]
        fn any_cut_asks_for_more_and_the_whole_reads_back(flags in 0_u8..8, cut in 0_usize..28) {
            let head = Head { flags, ..HEAD };
            let mut bytes = Vec::new();
            CODEC.encode_request(head, &mut bytes);
            prop_assert_eq!(CODEC.decode_request(&bytes[..cut]), Ok(None));
            prop_assert_eq!(CODEC.decode_request(&bytes), Ok(Some((head, bytes.len()))));
        }

        #[test]
        fn random_bytes_never_make_a_request(bytes in prop::collection::vec(any::<u8>(), 28..200)) {
            prop_assume!(bytes[..2] != MAGIC.to_be_bytes());
            prop_assert!(CODEC.decode_request(&bytes).is_err());
        }

        #[test]
        fn a_flipped_bit_in_the_head_is_refused(bit in 0_usize..24 * 8) {
            let mut bytes = Vec::new();
            CODEC.encode_request(HEAD, &mut bytes);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(CODEC.decode_request(&bytes).is_err());
        }
    }
}
