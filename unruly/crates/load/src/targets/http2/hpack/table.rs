//! The fields that HPACK names by number (RFC 7541, appendix A), and those that a connection has added.

use std::collections::VecDeque;

/// A field: its name and its value.
type Pair = (&'static str, &'static str);

/// The size of a table without its fields' names and values: the standard's guess of their overhead.
pub(super) const OVERHEAD: usize = 32;

/// The fields that everybody knows; their numbers begin with 1.
#[rustfmt::skip]
pub(super) const STATIC: [Pair; 61] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"),
    (":path", "/index.html"), (":scheme", "http"), (":scheme", "https"), (":status", "200"),
    (":status", "204"), (":status", "206"), (":status", "304"), (":status", "400"),
    (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""),
    ("accept", ""), ("access-control-allow-origin", ""), ("age", ""), ("allow", ""),
    ("authorization", ""), ("cache-control", ""), ("content-disposition", ""),
    ("content-encoding", ""), ("content-language", ""), ("content-length", ""),
    ("content-location", ""), ("content-range", ""), ("content-type", ""), ("cookie", ""),
    ("date", ""), ("etag", ""), ("expect", ""), ("expires", ""), ("from", ""), ("host", ""),
    ("if-match", ""), ("if-modified-since", ""), ("if-none-match", ""), ("if-range", ""),
    ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""), ("location", ""),
    ("max-forwards", ""), ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""),
    ("referer", ""), ("refresh", ""), ("retry-after", ""), ("server", ""), ("set-cookie", ""),
    ("strict-transport-security", ""), ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""),
    ("via", ""), ("www-authenticate", ""),
];

/// Fields that a peer has added, the youngest first.
#[derive(Debug, Default)]
pub(super) struct Added {
    /// Each in one piece, with the length of its name.
    fields: VecDeque<(Box<[u8]>, usize)>,
    bytes: usize,
    pub(super) bytes_max: usize,
}

impl Added {
    /// The field of a number, both kinds counted together; `None` if there is none.
    pub(super) fn field(&self, number: usize) -> Option<(&[u8], &[u8])> {
        if let Some((name, value)) = number.checked_sub(1).and_then(|it| STATIC.get(it)) {
            return Some((name.as_bytes(), value.as_bytes()));
        }
        let (field, name) = self.fields.get(number.checked_sub(STATIC.len() + 1)?)?;
        Some(field.split_at(*name))
    }

    /// Adds a field; the oldest ones make room.
    pub(super) fn add(&mut self, name: &[u8], value: &[u8]) {
        let bytes = name.len() + value.len() + OVERHEAD;
        self.shrink(self.bytes_max.saturating_sub(bytes));
        // One that is larger than the table empties it, and is not kept.
        if bytes <= self.bytes_max {
            self.bytes += bytes;
            let field = [name, value].concat();
            self.fields.push_front((field.into(), name.len()));
        }
    }

    /// Drops the oldest fields until the others have at most these bytes.
    fn shrink(&mut self, bytes: usize) {
        while self.bytes > bytes
            && let Some((field, _)) = self.fields.pop_back()
        {
            self.bytes -= field.len() + OVERHEAD;
        }
    }

    /// Sets the most bytes of the table.
    pub(super) fn resize(&mut self, bytes: usize) {
        self.bytes_max = bytes;
        self.shrink(bytes);
    }
}
