//! Replies as bytes, in both versions of the protocol.

use std::io::Write as _;

use bytes::{BufMut as _, Bytes, BytesMut};

/// The protocol version of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Version {
    /// The version of every client that does not send `HELLO 3`.
    #[default]
    Two,
    /// The version with maps and a separate null.
    Three,
}

/// The reply to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A short text without a line break.
    Status(&'static str),
    /// An error. It begins with a word in capitals that programs can test.
    Error(String),
    /// A number.
    Integer(i64),
    /// Bytes.
    Bulk(Bytes),
    /// No value, where bytes are possible.
    Null,
    /// No array, where one is possible.
    NullArray,
    /// Several replies.
    Array(Vec<Self>),
    /// Names and their values; in version 2 an array of both in turn.
    Map(Vec<(Self, Self)>),
}

impl Reply {
    /// Returns a text as bytes.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Bulk(Bytes::from(text.into()))
    }

    /// Appends the bytes of the reply.
    pub fn encode(&self, version: Version, out: &mut BytesMut) {
        match self {
            Self::Status(text) => line(out, b'+', text.as_bytes()),
            Self::Error(text) => {
                // The text may contain a client's input, which must not end the line.
                let one_line = text.replace(['\r', '\n'], " ");
                line(out, b'-', one_line.as_bytes());
            }
            Self::Integer(number) => numbered(out, b':', *number),
            Self::Bulk(bytes) => {
                length(out, b'$', bytes.len());
                out.put_slice(bytes);
                out.put_slice(b"\r\n");
            }
            Self::Null => out.put_slice(match version {
                Version::Two => b"$-1\r\n",
                Version::Three => b"_\r\n",
            }),
            Self::NullArray => out.put_slice(match version {
                Version::Two => b"*-1\r\n",
                Version::Three => b"_\r\n",
            }),
            Self::Array(replies) => {
                length(out, b'*', replies.len());
                for reply in replies {
                    reply.encode(version, out);
                }
            }
            Self::Map(pairs) => {
                match version {
                    Version::Two => length(out, b'*', 2 * pairs.len()),
                    Version::Three => length(out, b'%', pairs.len()),
                }
                for (name, value) in pairs {
                    name.encode(version, out);
                    value.encode(version, out);
                }
            }
        }
    }
}

/// Returns an error.
pub fn error(text: impl Into<String>) -> Reply {
    Reply::Error(text.into())
}

fn line(out: &mut BytesMut, kind: u8, text: &[u8]) {
    out.put_u8(kind);
    out.put_slice(text);
    out.put_slice(b"\r\n");
}

fn length(out: &mut BytesMut, kind: u8, length: usize) {
    numbered(out, kind, i64::try_from(length).unwrap_or(i64::MAX));
}

fn numbered(out: &mut BytesMut, kind: u8, number: i64) {
    out.put_u8(kind);
    // Writing to memory cannot fail.
    let _ = write!(out.writer(), "{number}\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(reply: &Reply, version: Version) -> String {
        let mut out = BytesMut::new();
        reply.encode(version, &mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn replies_are_written_as_each_version_writes_them() {
        let both = |reply: Reply| {
            (
                bytes_of(&reply, Version::Two),
                bytes_of(&reply, Version::Three),
            )
        };
        let alike = |text: &str| (text.to_owned(), text.to_owned());
        assert_eq!(both(Reply::Status("OK")), alike("+OK\r\n"));
        assert_eq!(both(Reply::Integer(-7)), alike(":-7\r\n"));
        assert_eq!(both(Reply::text("a\r\nb")), alike("$4\r\na\r\nb\r\n"));
        assert_eq!(both(Reply::Bulk(Bytes::new())), alike("$0\r\n\r\n"));
        let null = ("$-1\r\n".to_owned(), "_\r\n".to_owned());
        assert_eq!(both(Reply::Null), null);
        let null = ("*-1\r\n".to_owned(), "_\r\n".to_owned());
        assert_eq!(both(Reply::NullArray), null);
        let map = Reply::Map(vec![(Reply::text("a"), Reply::Array(vec![Reply::Null]))]);
        assert_eq!(
            both(map),
            (
                "*2\r\n$1\r\na\r\n*1\r\n$-1\r\n".to_owned(),
                "%1\r\n$1\r\na\r\n*1\r\n_\r\n".to_owned()
            )
        );
    }

    #[test]
    fn a_complaint_stays_on_its_line_whatever_it_quotes() {
        let error = Reply::Error("ERR unknown command 'a\r\n+OK'".to_owned());
        let written = bytes_of(&error, Version::Two);
        assert_eq!(written, "-ERR unknown command 'a  +OK'\r\n");
    }
}
