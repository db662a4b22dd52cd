//! The bytes of a message: a fixed header of 48 bytes, then a protobuf body.
//!
//! The header has every field that routes a message or shows that it is out of date, so that
//! neither step reads the body. The reader trusts no input: it checks lengths, and the checksum
//! covers every byte behind it. Each number that names something is checked where it is used. The
//! layout is in `flurry/schema/wire.md`.

#[allow(missing_docs, reason = "generated; the contract is documented in flurry/schema/flurry.proto")]
#[rustfmt::skip]
pub mod body;
mod bounds;
mod consensus;
pub(crate) mod control;
mod copying;
mod frame;
mod header;
#[allow(missing_docs, clippy::use_self, reason = "generated; the contract is documented in flurry/schema/key_value.proto")]
#[rustfmt::skip]
pub mod key_value;
mod operation;
mod pack;
mod record;
mod sessions;
#[allow(missing_docs, reason = "generated; the contract is documented in flurry/schema/flurry.proto")]
#[rustfmt::skip]
pub mod stored;

pub use frame::{LENGTH_BYTES, cut_frame, take_frame};
pub use header::{HEADER_BYTES, Header, Kind, WireError};
pub use pack::{PACK_BYTES_MAX, Pack, Unpack};
pub use record::{decode_record, encode_record};

use bytes::{BufMut, Bytes, BytesMut};

use crate::message::Message;

/// The longest message: a state of the largest value, with its key and envelope.
pub const MESSAGE_BYTES_MAX: usize = (1 << 20) + 4096;

/// The longest operation, which fits a message together with the longest key and the envelope.
pub const OPERATION_BYTES_MAX: usize = MESSAGE_BYTES_MAX - crate::id::Key::BYTES_MAX - 2_048;

/// The longest message that goes into a datagram; a longer one goes over TCP.
pub const DATAGRAM_BYTES_MAX: usize = 60_000;

const _: () = assert!(PACK_BYTES_MAX <= DATAGRAM_BYTES_MAX, "a pack is a datagram");
const _: () = assert!(
    DATAGRAM_BYTES_MAX <= 65_507 && DATAGRAM_BYTES_MAX <= MESSAGE_BYTES_MAX,
    "UDP over IPv4 carries no more, and each datagram could go over TCP too"
);
const _: () = assert!(
    MESSAGE_BYTES_MAX <= u32::MAX as usize,
    "the length before a message has four bytes"
);

/// Appends the bytes of a message.
pub fn encode(message: &Message, out: &mut BytesMut) {
    let start = out.len();
    out.put_bytes(0, HEADER_BYTES);
    let header = match message {
        Message::Request(copy) => operation::put_request(copy, out),
        Message::Reply(reply) => operation::put_reply(reply, out),
        Message::Answer(answer) => operation::put_answer(answer, out),
        Message::Control(control) => control::put(control, out),
    };
    assert!(
        out.len() >= start + HEADER_BYTES,
        "a body follows its header, and earlier bytes stay"
    );
    header.seal(&mut out[start..]);
    debug_assert_eq!(
        Header::open(&out[start..]).as_ref(),
        Ok(&Header {
            attempt: header.attempt.min(31),
            ..header
        }),
        "a written header is read back unchanged"
    );
}

/// Reads a message that fills `bytes` to its end.
///
/// # Errors
///
/// [`WireError`] if the bytes are no message. It never panics.
pub fn decode(bytes: &Bytes) -> Result<Message, WireError> {
    let header = Header::open(bytes)?;
    let body = bytes.slice(HEADER_BYTES..);
    match header.kind {
        Kind::Request => operation::request(&header, body).map(Message::Request),
        Kind::Reply => operation::reply(&header, body).map(Message::Reply),
        Kind::Answer => operation::answer(&header, body).map(Message::Answer),
        Kind::Control => {
            bounds::check(&body)?;
            control::read(body).map(Message::Control)
        }
    }
}
