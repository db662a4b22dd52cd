//! Which keys a gateway serves, as a cluster of Redis divides them: by a checksum of the key.

use crc::{CRC_16_XMODEM, Crc};

/// There are so many, numbered from 0.
pub const SLOTS: u16 = 16_384;

static CHECKSUM: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// The slot of a key. Of one with a part in braces only that part counts.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    CHECKSUM.checksum(tagged(key)) % SLOTS
}

fn tagged(key: &[u8]) -> &[u8] {
    let inner = key.iter().position(|it| *it == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let length = rest.iter().position(|it| *it == b'}')?;
        (length > 0).then(|| &rest[..length])
    });
    inner.unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slot_of_a_key_is_that_of_redis() {
        // As `CLUSTER KEYSLOT` of Redis 7 says; the first is in its specification.
        assert_eq!(slot_of(b"123456789"), 0x31c3);
        assert_eq!(slot_of(b"foo"), 12_182);
        assert_eq!(slot_of(b"hello"), 866);
        assert_eq!(slot_of(b""), 0);
    }

    #[test]
    fn keys_with_the_same_part_in_braces_are_together() {
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"user1000"));
        assert_eq!(slot_of(b"foo{}{bar}"), 8_363);
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
        assert_eq!(slot_of(b"foo{bar}{zap}"), slot_of(b"bar"));
        assert_eq!(slot_of(b"foo{bar"), 15_278);
    }
}
