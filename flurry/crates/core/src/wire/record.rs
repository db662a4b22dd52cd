//! Records as they are kept on a disk.

use bytes::Bytes;
use prost::Message as _;

use super::body;
use super::header::WireError;
use super::operation::{put_state, state};
use crate::message::State;

/// Returns the bytes of a record without its key.
#[must_use]
pub fn encode_record(record: &State) -> Vec<u8> {
    put_state(record).encode_to_vec()
}

/// Reads the bytes that [`encode_record`] returned.
///
/// # Errors
///
/// [`WireError`] if the bytes are no record, or if the value does not match the record's digest.
pub fn decode_record(bytes: Bytes) -> Result<State, WireError> {
    state(body::State::decode(bytes).map_err(|_| WireError::Body("record"))?)
}
