//! Several messages in one datagram: two bytes, and behind them each message as in a stream.
//!
//! A short datagram costs as much as a longer one, so the messages for one place at one moment
//! share one. A single message is sent as it is.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use super::frame::{LENGTH_BYTES, take_frame};
use super::header::VERSION;
use super::{WireError, decode};
use crate::message::Message;

const HEAD: [u8; 2] = [0xf2, VERSION];

/// The most bytes of a pack. It is far below the limit of a datagram, because the loss of a
/// datagram loses all its messages.
pub const PACK_BYTES_MAX: usize = 16 << 10;

/// Messages on their way to one place.
#[derive(Debug, Default)]
pub struct Pack {
    bytes: BytesMut,
    messages: u32,
}

impl Pack {
    /// Adds the bytes of a message and returns true, or returns false if they do not fit. The first
    /// message always fits.
    pub fn push(&mut self, message: &[u8]) -> bool {
        let length = LENGTH_BYTES + message.len();
        if self.messages > 0 && self.bytes.len() + length > PACK_BYTES_MAX {
            return false;
        }
        let Ok(prefix) = u32::try_from(message.len()) else {
            return false;
        };
        if self.messages == 0 {
            self.bytes.put_slice(&HEAD);
        }
        self.bytes.put_u32_le(prefix);
        self.bytes.put_slice(message);
        self.messages += 1;
        assert!(
            self.messages == 1 || self.bytes.len() <= PACK_BYTES_MAX,
            "{} messages have {} bytes",
            self.messages,
            self.bytes.len()
        );
        true
    }

    /// Returns the number of messages in it.
    #[must_use]
    pub fn messages(&self) -> u32 {
        self.messages
    }

    /// Returns the bytes to send.
    #[must_use]
    pub fn datagram(&self) -> &[u8] {
        assert!(
            self.messages > 0 || self.bytes.is_empty(),
            "a pack without messages is nothing, not even its head"
        );
        match self.messages {
            1 => &self.bytes[HEAD.len() + LENGTH_BYTES..],
            _ => &self.bytes,
        }
    }

    /// Removes all messages.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.messages = 0;
    }
}

/// The messages of a datagram. It ends at the first bytes that are no message, because the bytes
/// behind them cannot be trusted.
#[derive(Debug, Default)]
pub struct Unpack {
    frames: BytesMut,
    alone: Option<Bytes>,
}

impl Unpack {
    /// Returns the messages of a datagram with any bytes.
    #[must_use]
    pub fn new(datagram: &[u8]) -> Self {
        match datagram.strip_prefix(&HEAD) {
            Some(frames) if !frames.is_empty() => Self {
                frames: BytesMut::from(frames),
                alone: None,
            },
            _ => Self {
                frames: BytesMut::new(),
                alone: Some(Bytes::copy_from_slice(datagram)),
            },
        }
    }

    /// Returns whether no message is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.alone.is_none() && self.frames.is_empty()
    }
}

impl Iterator for Unpack {
    type Item = Result<Message, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(alone) = self.alone.take() {
            return Some(decode(&alone));
        }
        if self.frames.is_empty() {
            return None;
        }
        let left = self.frames.len();
        let found =
            take_frame(&mut self.frames).and_then(|found| found.ok_or(WireError::Short(left)));
        if found.is_err() {
            self.frames.advance(self.frames.len());
        }
        assert!(
            self.frames.len() < left,
            "each step consumes bytes, or reading would never end"
        );
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Control;
    use crate::wire::encode;

    fn bytes_of(message: &Message) -> BytesMut {
        let mut bytes = BytesMut::new();
        encode(message, &mut bytes);
        bytes
    }

    fn told(text: &str) -> Message {
        Message::Control(Control::Status(text.to_owned()))
    }

    #[test]
    fn a_message_alone_stands_as_it_is_and_several_come_out_in_their_order() {
        let mut pack = Pack::default();
        let messages = [told("1"), told("22"), told("333")];
        for (index, message) in messages.iter().enumerate() {
            assert!(pack.push(&bytes_of(message)));
            if index == 0 {
                assert_eq!(pack.datagram(), bytes_of(message));
            }
            let out: Vec<_> = Unpack::new(pack.datagram()).map(Result::unwrap).collect();
            assert_eq!(out, messages[..=index]);
        }
        pack.clear();
        assert_eq!(pack.messages(), 0);
        assert!(pack.push(&bytes_of(&messages[2])));
        assert_eq!(pack.datagram(), bytes_of(&messages[2]));
    }

    #[test]
    fn a_pack_takes_the_first_message_however_long_and_then_no_more_than_its_limit() {
        let long = bytes_of(&told(&"{".repeat(PACK_BYTES_MAX)));
        let short = bytes_of(&told(""));
        let mut pack = Pack::default();
        assert!(pack.push(&long));
        assert!(!pack.push(&short));
        assert_eq!((pack.messages(), pack.datagram()), (1, &long[..]));
        pack.clear();
        while pack.push(&short) {}
        assert!(pack.datagram().len() <= PACK_BYTES_MAX);
        assert!(pack.datagram().len() > PACK_BYTES_MAX - 2 * short.len());
        let messages = pack.messages() as usize;
        assert_eq!(Unpack::new(pack.datagram()).count(), messages);
    }

    #[test]
    fn what_is_no_message_is_the_last_of_a_pack() {
        let mut pack = Pack::default();
        for number in 0..3 {
            pack.push(&bytes_of(&told(&number.to_string())));
        }
        let whole = pack.datagram().to_vec();
        let second = HEAD.len() + LENGTH_BYTES + bytes_of(&told("0")).len();
        let mut damaged = whole.clone();
        damaged[second + LENGTH_BYTES + 10] ^= 1;
        let found: Vec<_> = Unpack::new(&damaged).map(|it| it.is_ok()).collect();
        assert_eq!(found, [true, false]);
        let cut: Vec<_> = Unpack::new(&whole[..whole.len() - 1])
            .map(|it| it.is_ok())
            .collect();
        assert_eq!(cut, [true, true, false]);
        for foreign in [&b""[..], &HEAD, b"GET / HTTP/1.1\r\n\r\n"] {
            let found: Vec<_> = Unpack::new(foreign).map(|it| it.is_ok()).collect();
            assert_eq!(found, [false], "{foreign:?}");
        }
    }
}
