//! A response of HTTP/1.1: where it ends, and what it says (RFC 9112).

use crate::target::{ProtocolError, REPLY_BYTES_MAX};

const WANTED: &str = "an HTTP/1.1 response";

/// Headers of a response at most, and bytes of them.
const HEADERS_MAX: usize = 100;
const HEAD_BYTES_MAX: usize = 64 << 10;

/// What a response begins with.
pub(super) struct Head<'a> {
    pub(super) status: u16,
    /// Its first line.
    pub(super) line: &'a [u8],
    pub(super) bytes: usize,
    length: Length,
    /// The server closes the connection after it.
    pub(super) closes: bool,
    /// The body is server-sent events.
    pub(super) has_events: bool,
    /// The values of its `Set-Cookie` headers.
    pub(super) cookies: Vec<&'a [u8]>,
    /// What it was read from.
    input: &'a [u8],
}

/// A body, where it stands in one piece, and where its response ends.
pub(super) type Body<'a> = (Option<&'a [u8]>, usize);

/// How long a body is.
enum Length {
    Known(usize),
    Chunked,
    /// It ends with the connection.
    UntilClose,
}

/// Reads the head at the start of `input`; `None` when more bytes are needed. A response to `HEAD`
/// has no body, whatever its headers say.
///
/// # Errors
///
/// When the bytes begin no response.
pub(super) fn head(input: &[u8], to_head: bool) -> Result<Option<Head<'_>>, ProtocolError> {
    let wrong = || ProtocolError::reply(input, WANTED);
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(input).map_err(|_| wrong())?;
    let httparse::Status::Complete(bytes) = parsed else {
        if input.len() > HEAD_BYTES_MAX {
            return Err(wrong());
        }
        return Ok(None);
    };
    let status = response.code.filter(|code| *code >= 100);
    let status = status.ok_or_else(wrong)?;
    let length = length(status, response.headers, to_head)
        .ok_or_else(|| ProtocolError::reply(input, "a response of a length that can be taken"))?;
    let says = |word| has_word(response.headers, "connection", word);
    let old = response.version == Some(0);
    let closes =
        says("close") || old && !says("keep-alive") || matches!(length, Length::UntilClose);
    let line = input
        .split(|byte| *byte == b'\r')
        .next()
        .unwrap_or_default();
    let named = response.headers.iter();
    let named = named.filter(|it| it.name.eq_ignore_ascii_case("set-cookie"));
    let cookies = named.map(|it| it.value).collect();
    Ok(Some(Head {
        cookies,
        input,
        status,
        line,
        bytes,
        length,
        closes,
        has_events: is_of(response.headers, "text/event-stream"),
    }))
}

/// How long the body of a response is; `None` when its length is no number, or too large.
fn length(status: u16, headers: &[httparse::Header<'_>], to_head: bool) -> Option<Length> {
    // These have no body, whatever their headers say (RFC 9112, 6.3).
    if to_head || status < 200 || matches!(status, 204 | 304) {
        return Some(Length::Known(0));
    }
    if has_word(headers, "transfer-encoding", "chunked") {
        return Some(Length::Chunked);
    }
    let mut lengths = values(headers, "content-length");
    let Some(told) = lengths.next() else {
        return Some(Length::UntilClose);
    };
    // Two that differ: nobody can say where the next response begins (RFC 9112, 6.3).
    if lengths.any(|other| other != told) {
        return None;
    }
    let told: usize = std::str::from_utf8(told).ok()?.trim().parse().ok()?;
    (told <= REPLY_BYTES_MAX).then_some(Length::Known(told))
}

/// The values of the headers of this name.
fn values<'a>(headers: &[httparse::Header<'a>], name: &str) -> impl Iterator<Item = &'a [u8]> {
    let named = headers
        .iter()
        .filter(move |it| it.name.eq_ignore_ascii_case(name));
    named.map(|it| it.value)
}

/// True if a header that lists words has this one.
fn has_word(headers: &[httparse::Header<'_>], name: &str, word: &str) -> bool {
    values(headers, name)
        .flat_map(|value| value.split(|byte| *byte == b','))
        .any(|it| it.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
}

/// True if the body is of this type, whatever its parameters are.
fn is_of(headers: &[httparse::Header<'_>], kind: &str) -> bool {
    values(headers, "content-type").any(|value| {
        let own = value.split(|byte| *byte == b';').next();
        own.is_some_and(|it| it.trim_ascii().eq_ignore_ascii_case(kind.as_bytes()))
    })
}

impl<'a> Head<'a> {
    /// The value of the first header of this name. The head is read anew, since few ask.
    pub(super) fn header(&self, name: &str) -> Option<&'a [u8]> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut headers);
        response.parse(self.input).ok()?;
        values(response.headers, name).next()
    }

    /// The body that comes in chunks, in one piece. Where a chunk is broken, it ends.
    pub(super) fn unchunked(&self, input: &[u8]) -> Vec<u8> {
        let (mut body, mut at) = (Vec::new(), self.bytes);
        while let Some(rest) = input.get(at..)
            && let Ok(httparse::Status::Complete((head, length))) = httparse::parse_chunk_size(rest)
            && let Ok(length) = usize::try_from(length)
            && length > 0
            && let Some(chunk) = rest.get(head..).and_then(|it| it.get(..length))
        {
            body.extend_from_slice(chunk);
            at += head + length + 2;
        }
        body
    }

    /// True if the body comes in chunks.
    pub(super) fn is_chunked(&self) -> bool {
        matches!(self.length, Length::Chunked)
    }

    /// The length of the body, where the head says it.
    pub(super) fn known_length(&self) -> Option<usize> {
        match self.length {
            Length::Known(length) => Some(length),
            _ => None,
        }
    }

    /// True if the body ends with the connection.
    pub(super) fn is_until_close(&self) -> bool {
        matches!(self.length, Length::UntilClose)
    }

    /// The body; `None` when more is needed.
    pub(super) fn body<'b>(&self, input: &'b [u8]) -> Result<Option<Body<'b>>, ProtocolError> {
        match self.length {
            Length::Known(length) => {
                let end = self.bytes + length;
                Ok(input.get(self.bytes..end).map(|body| (Some(body), end)))
            }
            Length::UntilClose => Ok(None),
            Length::Chunked => Ok(end_of_chunks(input, self.bytes)?.map(|end| (None, end))),
        }
    }
}

/// Where the chunks that begin at `at` end.
fn end_of_chunks(input: &[u8], mut at: usize) -> Result<Option<usize>, ProtocolError> {
    loop {
        let rest = &input[at..];
        let parsed = httparse::parse_chunk_size(rest);
        let wrong = || ProtocolError::reply(rest, "a chunk of a response");
        let httparse::Status::Complete((head, length)) = parsed.map_err(|_| wrong())? else {
            return Ok(None);
        };
        let length = usize::try_from(length).ok();
        let length = length
            .filter(|length| *length <= REPLY_BYTES_MAX)
            .ok_or_else(wrong)?;
        at += head + length;
        if length == 0 {
            return end_of_trailers(input, at);
        }
        match input.get(at..at + 2) {
            Some(b"\r\n") => at += 2,
            Some(_) => return Err(wrong()),
            None => return Ok(None),
        }
    }
}

/// Where the trailers end, which nobody needs.
pub(super) fn end_of_trailers(input: &[u8], mut at: usize) -> Result<Option<usize>, ProtocolError> {
    loop {
        let rest = &input[at.min(input.len())..];
        let Some(line) = rest.iter().position(|byte| *byte == b'\n') else {
            if rest.len() > HEAD_BYTES_MAX {
                return Err(ProtocolError::reply(rest, "the end of a response"));
            }
            return Ok(None);
        };
        at += line + 1;
        if line <= 1 {
            return Ok(Some(at));
        }
    }
}
