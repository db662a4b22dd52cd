//! The header at the start of every message. `unruly/schema/foreign.md` defines it for all
//! languages.

/// Length of a header, in bytes.
pub const HEADER_BYTES: usize = 32;

const MAGIC: u32 = 0x756E_7273;
const STAMPED: u32 = 1;
const END: u32 = 2;

/// The part of a message that the analysis reads. The rest of a message is padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Sequence number of the message, from 0. The end message carries the number of messages.
    pub sequence: u64,
    /// Time of the write on the writer's monotonic clock in nanoseconds, if the message was
    /// stamped.
    pub stamp_ns: Option<i64>,
    /// True if no message comes after it.
    pub end: bool,
}

impl Header {
    /// Writes the header over the first bytes of a message.
    ///
    /// # Panics
    ///
    /// Panics if the message is shorter than a header.
    pub fn write(&self, cookie: u32, message: &mut [u8]) {
        let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
        let stamped = if self.stamp_ns.is_some() { STAMPED } else { 0 };
        let flags = stamped | if self.end { END } else { 0 };
        for (at, word) in [MAGIC, cookie, flags, length].into_iter().enumerate() {
            message[4 * at..4 * at + 4].copy_from_slice(&word.to_be_bytes());
        }
        message[16..24].copy_from_slice(&self.sequence.to_be_bytes());
        message[24..32].copy_from_slice(&self.stamp_ns.unwrap_or(0).to_be_bytes());
    }

    /// Returns true if the bytes begin like a message of this run.
    pub(crate) fn begins(cookie: u32, bytes: &[u8]) -> bool {
        bytes.get(..4) == Some(&MAGIC.to_be_bytes())
            && bytes.get(4..8) == Some(&cookie.to_be_bytes())
    }

    /// Returns the header, if the message belongs to this run and has the length that its header
    /// states.
    #[must_use]
    pub fn read(cookie: u32, message: &[u8]) -> Option<Self> {
        let (head, _) = message.split_first_chunk::<HEADER_BYTES>()?;
        let word =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let long = |at: usize| u64::from(word(at)) << 32 | u64::from(word(at + 4));
        if !Self::begins(cookie, head) || usize::try_from(word(12)) != Ok(message.len()) {
            return None;
        }
        Some(Self {
            sequence: long(16),
            stamp_ns: (word(8) & STAMPED != 0).then(|| long(24).cast_signed()),
            end: word(8) & END != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            sequence: 0x0102_0304_0506_0708,
            stamp_ns: Some(-5),
            end: false,
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let mut message = [9; 40];
        for header in [
            header(),
            Header {
                stamp_ns: None,
                end: true,
                ..header()
            },
        ] {
            header.write(7, &mut message);
            assert_eq!(Header::read(7, &message), Some(header));
        }
    }

    #[test]
    fn messages_of_others_and_pieces_are_no_messages() {
        let mut message = [0; 40];
        header().write(7, &mut message);
        assert_eq!(Header::read(8, &message), None);
        assert_eq!(Header::read(7, &message[..39]), None);
        assert_eq!(Header::read(7, &message[..20]), None);
        message[0] = 0;
        assert_eq!(Header::read(7, &message), None);
    }
}
