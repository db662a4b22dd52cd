//! The memory that a body may take when it is read, checked before reading.
//!
//! An empty element of a list has two bytes on the wire, and a hundred in memory. So the reader
//! first counts the elements of a control message. No part ever sends as many as the limits.

use super::WireError;
use crate::config::{MEMBERS_MAX, SHARDS_MAX};
use crate::message::{List, SESSIONS_OPENED_MAX};

/// The most elements of a list, including the other fields of its message.
const ELEMENTS_MAX: usize = 2_048;

/// The most fields of a control message and of all messages in it.
const FIELDS_MAX: usize = 8_192;

/// The levels of messages with lists: a control message, its kind, a member of its configuration.
const DEPTH: usize = 3;

// A correct message must never be refused for its length: the longest lists fit with room to spare.
const _: () = assert!(MEMBERS_MAX < ELEMENTS_MAX && SESSIONS_OPENED_MAX < ELEMENTS_MAX);
const _: () = assert!(2 * MEMBERS_MAX * (SHARDS_MAX + 16) < FIELDS_MAX);
const _: () = assert!((List::RECORDS_MAX as usize) < ELEMENTS_MAX);
const _: () = assert!(ELEMENTS_MAX <= FIELDS_MAX && DEPTH > 0);

/// Checks a body of nested messages.
///
/// # Errors
///
/// [`WireError::Body`] when it has more fields than any that is sent.
pub(super) fn check(body: &[u8]) -> Result<(), WireError> {
    match fields(body, DEPTH) {
        Some(count) if count > FIELDS_MAX => Err(WireError::Body("message of too many fields")),
        // The reader of the body refuses bytes that are no protobuf.
        _ => Ok(()),
    }
}

/// Returns the number of fields of a message and of those in it; `None` if the bytes are no
/// message.
fn fields(mut bytes: &[u8], depth: usize) -> Option<usize> {
    let (mut own, mut inside) = (0_usize, 0_usize);
    while !bytes.is_empty() {
        own += 1;
        if own > ELEMENTS_MAX {
            return Some(usize::MAX);
        }
        let tag = varint(&mut bytes)?;
        let skipped = match tag & 7 {
            0 => {
                varint(&mut bytes)?;
                0
            }
            1 => 8,
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                let inner = bytes.get(..length)?;
                if depth > 1 {
                    inside = inside.saturating_add(fields(inner, depth - 1).unwrap_or(0));
                }
                length
            }
            5 => 4,
            _ => return None,
        };
        bytes = bytes.get(skipped..)?;
    }
    Some(own.saturating_add(inside))
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_empty_elements_is_refused_at_any_depth_that_has_lists() {
        let list = [0x0a, 0x00].repeat(ELEMENTS_MAX + 1);
        let within = |inner: &[u8]| {
            let mut outer = vec![0x0a];
            let mut length = inner.len();
            while length >= 0x80 {
                outer.push(u8::try_from(length & 0x7f | 0x80).unwrap());
                length >>= 7;
            }
            outer.push(u8::try_from(length).unwrap());
            outer.extend(inner);
            outer
        };
        assert!(check(&list).is_err());
        assert!(check(&within(&list)).is_err());
        assert!(check(&within(&within(&list))).is_err());
        let many = within(&[0x0a, 0x00].repeat(ELEMENTS_MAX)).repeat(5);
        assert!(check(&many).is_err(), "few in each, and many in all");
        assert!(check(&[0x0a, 0x00].repeat(100)).is_ok());
        assert!(check(b"no protobuf at all").is_ok());
    }
}
