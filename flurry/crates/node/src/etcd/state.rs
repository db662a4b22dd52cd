//! A controller's state under keys of etcd: whole if it fits a call, or in pieces that one call makes
//! the state.

use super::call::{Caller, Found, NoAnswer, is_unchanged, put, remove_between};
use super::place::Etcd;

/// What etcd takes at once is 1.5 MiB, all told.
const PIECE_BYTES_MAX: usize = 1 << 20;

/// How a stored value begins: it is the state, or says where the pieces of it are.
const WHOLE: u8 = 0;
const PIECES: u8 = 1;

/// Keys of a cluster's state.
#[derive(Debug, Clone)]
pub(super) struct State {
    key: String,
    pieces: String,
}

impl State {
    pub(super) fn new(etcd: &Etcd) -> Self {
        Self {
            key: etcd.key("state"),
            pieces: etcd.key("pieces"),
        }
    }

    /// The state that was written last, and its revision: 0 when none ever was.
    pub(super) fn read(&self, caller: &mut Caller) -> Result<(Option<Vec<u8>>, i64), NoAnswer> {
        let Some(Found { value, revision }) = caller.get(&self.key)? else {
            return Ok((None, 0));
        };
        // What cannot be read is left to its own checksum to find.
        let bytes = match value.split_first() {
            Some((&WHOLE, bytes)) => bytes.to_vec(),
            Some((&PIECES, place)) => self.put_together(caller, place)?,
            _ => Vec::new(),
        };
        Ok((Some(bytes), revision))
    }

    fn put_together(&self, caller: &mut Caller, place: &[u8]) -> Result<Vec<u8>, NoAnswer> {
        let place = String::from_utf8_lossy(place);
        let (name, count) = place.split_once(' ').unwrap_or((&place, "0"));
        let mut bytes = Vec::new();
        for number in 0..count.parse().unwrap_or(0) {
            // One that is missing is left to the checksum too.
            let Some(piece) = caller.get(&self.piece(name, number))? else {
                break;
            };
            bytes.extend(piece.value);
        }
        Ok(bytes)
    }

    fn piece(&self, name: &str, number: usize) -> String {
        format!("{}/{name}/{number}", self.pieces)
    }

    /// Makes these bytes the state, if nobody has since `revision`, and the key `leader` is as it was
    /// written at `won_at`; the revision of it, or `None`. `name` is one of its own.
    pub(super) fn write(
        &self,
        caller: &mut Caller,
        (leader, won_at): (&str, i64),
        revision: i64,
        name: &str,
        bytes: &[u8],
    ) -> Result<Option<i64>, NoAnswer> {
        let holds = [
            is_unchanged(leader, won_at),
            is_unchanged(&self.key, revision),
        ];
        // All pieces are between: of earlier states, of ones too that were never finished.
        let (first, end) = (format!("{}/", self.pieces), format!("{}0", self.pieces));
        let mut changes = Vec::new();
        let value = if bytes.len() <= PIECE_BYTES_MAX {
            changes.push(remove_between(&first, &end));
            [&[WHOLE], bytes].concat()
        } else {
            let pieces: Vec<&[u8]> = bytes.chunks(PIECE_BYTES_MAX).collect();
            for (number, piece) in pieces.iter().enumerate() {
                let piece = put(&self.piece(name, number), piece, None);
                if caller.transact(&holds, &[piece])?.is_none() {
                    return Ok(None);
                }
            }
            let (own, behind) = (format!("{first}{name}/"), format!("{first}{name}0"));
            changes.extend([remove_between(&first, &own), remove_between(&behind, &end)]);
            [&[PIECES], format!("{name} {}", pieces.len()).as_bytes()].concat()
        };
        changes.push(put(&self.key, &value, None));
        caller.transact(&holds, &changes)
    }
}
