//! Records as they are kept on a disk.

use bytes::Bytes;
use prost::Message as _;

use super::body;
use super::header::WireError;
use super::operation::{put_state, state};
use crate::message::State;

/// A record's bytes; the key is kept beside them.
#[must_use]
pub fn encode_record(record: &State) -> Vec<u8> {
    put_state(record).encode_to_vec()
}

/// What [`encode_record`] made.
///
/// # Errors
///
/// [`WireError`] when it is none, or when its value is not the one whose digest it has.
pub fn decode_record(bytes: Bytes) -> Result<State, WireError> {
    state(body::State::decode(bytes).map_err(|_| WireError::Body("record"))?)
}
