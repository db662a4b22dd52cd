//! Maps keys to slots by a checksum of the key, as a Redis cluster does.

use crc::{CRC_16_XMODEM, Crc};

use std::ops::RangeInclusive;

use flurry_core::portal::Sessions;

/// Number of slots. The first is slot 0.
pub const SLOTS: u16 = 16_384;

/// Slots of one part. A part is a session, so parts are what can move between gateways.
pub const PART_SLOTS: u16 = 256;

/// Prefix of the name of a part's session. The part's number follows.
const NAME: &str = "slots/";

static CHECKSUM: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// Returns the slot of a key. If the key has a part in braces, only that part counts.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    CHECKSUM.checksum(tagged(key)) % SLOTS
}

/// Returns the part of the slots that a key belongs to.
fn part_of(key: &[u8]) -> usize {
    usize::from(slot_of(key) / PART_SLOTS)
}

/// Returns the name of the session in which gateways keep a key.
#[must_use]
pub fn session_of_slots(key: &[u8]) -> String {
    format!("{NAME}{}", part_of(key))
}

/// Returns whether a session of this name belongs to gateways.
#[must_use]
pub fn is_of_slots(session: &str) -> bool {
    session.starts_with(NAME)
}

/// Returns whether a range of slots consists of whole parts.
#[must_use]
pub fn are_parts(slots: &RangeInclusive<u16>) -> bool {
    let (first, last) = (*slots.start(), *slots.end());
    first <= last
        && last < SLOTS
        && first.is_multiple_of(PART_SLOTS)
        && (last + 1).is_multiple_of(PART_SLOTS)
}

/// Returns the numbers of the parts in a range of slots.
pub(super) fn parts_of(slots: &RangeInclusive<u16>) -> RangeInclusive<u16> {
    slots.start() / PART_SLOTS..=slots.end() / PART_SLOTS
}

/// Returns the sessions of a range of slots.
pub(super) fn sessions_of(slots: &RangeInclusive<u16>) -> Sessions {
    let parts = parts_of(slots);
    Sessions {
        first: usize::from(*parts.start()),
        names: parts.map(|part| format!("{NAME}{part}")).collect(),
        of: part_of,
    }
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
    fn whole_parts_begin_and_end_at_multiples_of_256() {
        for (slots, wanted) in [
            (0..=SLOTS - 1, true),
            (0..=255, true),
            (8_192..=16_383, true),
            (0..=8_000, false),
            (1..=255, false),
            (0..=SLOTS + 255, false),
        ] {
            assert_eq!(are_parts(&slots), wanted, "{slots:?}");
        }
    }

    #[test]
    fn a_key_is_in_the_session_of_its_part() {
        // Slot 12182 is in part 47, which begins at 12032.
        assert_eq!(session_of_slots(b"foo"), "slots/47");
        let sessions = sessions_of(&(8_192..=SLOTS - 1));
        let place = (sessions.of)(b"foo") - sessions.first;
        assert_eq!(sessions.names[place], "slots/47");
        assert_eq!(sessions.names.len(), 32);
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
