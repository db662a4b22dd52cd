//! The header of a message: its first 48 bytes.

use crate::bugs::{Bug, planted};
use crate::id::{ConfigNumber, Epoch, OperationId, Sequence, SessionId, Version};

/// Length of the header.
pub const HEADER_BYTES: usize = 48;

/// Bits of the third byte for the message's sort within its kind; the kind has the other two.
const SUB_BITS: u32 = 6;

/// Bits of the fourth byte for the level; the attempt has the other five.
const LEVEL_BITS: u32 = 3;

const _: () = assert!(SUB_BITS + 2 == u8::BITS && LEVEL_BITS + 5 == u8::BITS);

const MAGIC: u8 = 0xf1;
pub(super) const VERSION: u8 = 1;

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An operation.
    Request,
    /// A server's reply.
    Reply,
    /// A router's answer.
    Answer,
    /// Anything else.
    Control,
}

/// The reason why bytes are no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Fewer bytes than a header.
    #[error("message: it has {0} bytes; wanted at least 48")]
    Short(usize),
    /// More bytes than a message may have.
    #[error("message: it has {0} bytes; wanted at most 1 MiB and 4 KiB")]
    Long(usize),
    /// Not of this protocol.
    #[error(
        "message: it begins with {0:#04x} {1:#04x}; wanted 0xf1 0x01; hint: is it another protocol or version?"
    )]
    Foreign(u8, u8),
    /// Damaged on the way.
    #[error("message: its checksum is {found:#010x}; wanted {wanted:#010x}")]
    Damaged {
        /// The checksum in the message.
        found: u32,
        /// The checksum of the message's bytes.
        wanted: u32,
    },
    /// A field has a value without a meaning.
    #[error("message: its {field} is {value}, which means nothing")]
    Field {
        /// The name of the field.
        field: &'static str,
        /// The value of the field.
        value: u64,
    },
    /// The body does not fit the header.
    #[error("message: its body is no {0}")]
    Body(&'static str),
}

/// A header that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The kind of the message.
    pub kind: Kind,
    /// The message's sort within its kind: the request, verdict or outcome.
    pub sub: u8,
    /// The level's number.
    pub level: u8,
    /// The attempt.
    pub attempt: u8,
    /// The hash of the key.
    pub key_hash: u64,
    /// The operation.
    pub id: OperationId,
    /// In a request the version that it depends on; in a reply the version of the replica.
    pub version: Version,
    /// The sender's configuration.
    pub config: ConfigNumber,
}

impl Header {
    /// Returns the header of a message without an operation.
    #[must_use]
    pub fn bare(kind: Kind) -> Self {
        Self {
            kind,
            sub: 0,
            level: 0,
            attempt: 0,
            key_hash: 0,
            id: OperationId::default(),
            version: Version::NONE,
            config: ConfigNumber(0),
        }
    }

    /// Writes the header over the first bytes of a message whose body is already there.
    pub(super) fn seal(&self, message: &mut [u8]) {
        let kind = match self.kind {
            Kind::Request => 0,
            Kind::Reply => 1,
            Kind::Answer => 2,
            Kind::Control => 3u8,
        };
        assert!(
            self.sub < 1 << SUB_BITS,
            "{} would change the kind of the message",
            self.sub
        );
        assert!(
            self.level < 1 << LEVEL_BITS,
            "level {} would change the attempt",
            self.level
        );
        message[0] = MAGIC;
        message[1] = VERSION;
        message[2] = kind | self.sub << 2;
        // Five bits are enough, because a copy that was sent 31 times was logged as lost long ago.
        message[3] = self.level | self.attempt.min(31) << 3;
        message[8..16].copy_from_slice(&self.key_hash.to_le_bytes());
        message[16..24].copy_from_slice(&self.id.sequence.0.to_le_bytes());
        message[24..32].copy_from_slice(&self.version.sequence.0.to_le_bytes());
        message[32..36].copy_from_slice(&self.id.epoch.0.to_le_bytes());
        message[36..40].copy_from_slice(&self.version.epoch.0.to_le_bytes());
        message[40..44].copy_from_slice(&self.config.0.to_le_bytes());
        message[44..48].copy_from_slice(&self.id.session.0.to_le_bytes());
        let sum = checksum(message);
        message[4..8].copy_from_slice(&sum.to_le_bytes());
    }

    /// Reads the header of a whole message and checks its sum.
    ///
    /// # Errors
    ///
    /// [`WireError`] when it is short, foreign, damaged, or of an unknown kind.
    pub fn open(message: &[u8]) -> Result<Self, WireError> {
        if message.len() < HEADER_BYTES {
            return Err(WireError::Short(message.len()));
        }
        if message[0] != MAGIC || message[1] != VERSION {
            return Err(WireError::Foreign(message[0], message[1]));
        }
        let found = word(message, 4);
        let wanted = checksum(message);
        if found != wanted && !planted(Bug::DamageBelieved) {
            return Err(WireError::Damaged { found, wanted });
        }
        let kind = match message[2] & 3 {
            0 => Kind::Request,
            1 => Kind::Reply,
            2 => Kind::Answer,
            _ => Kind::Control,
        };
        Ok(Self {
            kind,
            sub: message[2] >> 2,
            level: message[3] & 7,
            attempt: message[3] >> 3,
            key_hash: long(message, 8),
            id: OperationId {
                session: SessionId(word(message, 44)),
                epoch: Epoch(word(message, 32)),
                sequence: Sequence(long(message, 16)),
            },
            version: Version {
                epoch: Epoch(word(message, 36)),
                sequence: Sequence(long(message, 24)),
            },
            config: ConfigNumber(word(message, 40)),
        })
    }
}

/// Returns the CRC-32C of the message without the checksum's own four bytes.
fn checksum(message: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&message[..4]), &message[8..])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let mut long = [0; 8];
    long.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(long)
}
