//! The values that clients write. Every value identifies the write that produced it.
//!
//! A store that mixes up keys, returns an old value or loses one still answers in time, but
//! wrongly. Each value therefore begins with 32 printable characters that identify the write, and
//! continues with a fixed pattern. A reader can check that the value is complete, belongs to its
//! key, and how old it is.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Characters that say whose a value is; a shorter value says nothing.
pub const IDENTITY_BYTES: usize = 32;

/// The rest of values.
const PATTERN: &str = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ-_";

/// Whose a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The run's cookie.
    pub run: u32,
    /// The key.
    pub key: u64,
    /// Which write of that key it was, from 1.
    pub version: u32,
}

/// What a value that was read is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Whole, and whose.
    Of(Identity),
    /// Too short to say.
    Short,
    /// It is none of ours, or damaged.
    Foreign,
}

/// Writes the value of an identity, `bytes` long.
pub fn write(identity: Identity, bytes: usize, out: &mut String) {
    out.clear();
    if bytes < IDENTITY_BYTES {
        out.push_str(&PATTERN[..bytes]);
        return;
    }
    let head = head(identity, bytes);
    URL_SAFE_NO_PAD.encode_string(head, out);
    while out.len() + PATTERN.len() <= bytes {
        out.push_str(PATTERN);
    }
    out.push_str(&PATTERN[..bytes - out.len()]);
}

/// Whose a value is.
#[must_use]
pub fn read(value: &[u8]) -> Reading {
    let Some((identity, rest)) = value.split_at_checked(IDENTITY_BYTES) else {
        return Reading::Short;
    };
    let mut head = [0; 24];
    let decoded = URL_SAFE_NO_PAD.decode_slice(identity, &mut head);
    let number =
        |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let identity = Identity {
        run: number(0),
        key: u64::from(number(4)) << 32 | u64::from(number(8)),
        version: number(12),
    };
    let whole = decoded == Ok(head.len())
        && head == self::head(identity, value.len())
        && rest
            .chunks(PATTERN.len())
            .all(|it| it == &PATTERN.as_bytes()[..it.len()]);
    if whole {
        Reading::Of(identity)
    } else {
        Reading::Foreign
    }
}

fn head(identity: Identity, bytes: usize) -> [u8; 24] {
    let mut head = [0; 24];
    head[..4].copy_from_slice(&identity.run.to_be_bytes());
    head[4..12].copy_from_slice(&identity.key.to_be_bytes());
    head[12..16].copy_from_slice(&identity.version.to_be_bytes());
    let length = u32::try_from(bytes).unwrap_or(u32::MAX);
    head[16..20].copy_from_slice(&length.to_be_bytes());
    let checksum = crc32fast::hash(&head[..20]);
    head[20..].copy_from_slice(&checksum.to_be_bytes());
    head
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(identity: Identity, bytes: usize) -> String {
        let mut value = String::new();
        write(identity, bytes, &mut value);
        value
    }

    proptest! {
        #[test]
        fn a_value_says_whose_it_is_and_is_as_long_as_asked(
            run: u32, key: u64, version: u32, bytes in IDENTITY_BYTES..5_000
        ) {
            let identity = Identity { run, key, version };
            let value = written(identity, bytes);
            prop_assert_eq!(value.len(), bytes);
            prop_assert!(value.bytes().all(|byte| byte.is_ascii_graphic()));
            prop_assert_eq!(read(value.as_bytes()), Reading::Of(identity));
        }

        #[test]
        fn a_value_with_one_other_byte_or_length_is_none_of_ours(
            bytes in IDENTITY_BYTES..500, at: prop::sample::Index, other in 1_u8..=255
        ) {
            let identity = Identity { run: 1, key: 2, version: 3 };
            let mut value = written(identity, bytes).into_bytes();
            let at = at.index(bytes);
            value[at] ^= other;
            prop_assert_ne!(read(&value), Reading::Of(identity));
            value[at] ^= other;
            value.push(b'a');
            prop_assert_eq!(read(&value), Reading::Foreign);
        }
    }

    #[test]
    fn a_short_value_says_nothing_and_has_its_length() {
        let identity = Identity {
            run: 1,
            key: 2,
            version: 3,
        };
        for bytes in 0..IDENTITY_BYTES {
            let value = written(identity, bytes);
            assert_eq!(value.len(), bytes);
            assert_eq!(read(value.as_bytes()), Reading::Short);
        }
    }
}
