//! An HTTP/1.1 server: `GET` reads and `PUT` writes the URL's path, in which `{key}` stands for the key.

use std::collections::VecDeque;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use unruly_trace::ErrorKind;

use super::{Driver, DriverError, Settings, places, without_level};
use crate::link::Place;
use crate::target::{Answer, Incoming, Operation, Outgoing, ProtocolError, Target};

const PORT: u16 = 80;
const WANTED: &str = "an HTTP/1.1 response";

/// Headers of a response at most, and bytes of them.
const HEADERS_MAX: usize = 100;
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Longest body that is taken.
const BODY_BYTES_MAX: usize = 32 << 20;

pub(super) fn make(settings: &Settings<'_>) -> Result<Box<dyn Driver>, DriverError> {
    without_level(settings)?;
    let url = &settings.store.url;
    let host = |(name, port): &(String, Option<u16>)| match port {
        Some(port) => format!("{name}:{port}"),
        None => name.clone(),
    };
    let mut path = if url.path.is_empty() {
        "/".to_owned()
    } else {
        url.path.clone()
    };
    for (number, (name, value)) in url.options.iter().enumerate() {
        path += &format!("{}{name}={value}", if number == 0 { '?' } else { '&' });
    }
    if path.contains(' ') {
        return Err(DriverError::new(
            "url",
            format!("its path is {path:?}"),
            "wanted one without spaces",
            "write %20 for a space",
        ));
    }
    let mut headers = format!(
        "Host: {}\r\nUser-Agent: unruly/{}\r\nAccept: */*\r\n",
        url.hosts.first().map(host).unwrap_or_default(),
        env!("CARGO_PKG_VERSION"),
    );
    if !url.user.is_empty() || settings.password.is_some() {
        let pair = format!("{}:{}", url.user, settings.password.unwrap_or_default());
        headers += &format!("Authorization: Basic {}\r\n", STANDARD.encode(pair));
    }
    Ok(Box::new(Http {
        places: places(settings, PORT)?,
        path,
        headers,
    }))
}

#[derive(Debug, Clone)]
struct Http {
    places: Vec<Place>,
    path: String,
    headers: String,
}

impl Driver for Http {
    fn places(&self) -> &[Place] {
        &self.places
    }

    fn target(&self) -> Box<dyn Target> {
        Box::new(Connection {
            http: self.clone(),
            asked: VecDeque::new(),
        })
    }
}

struct Connection {
    http: Http,
    asked: VecDeque<u64>,
}

impl Target for Connection {
    fn greet(&mut self, _out: &mut Vec<u8>) -> usize {
        self.asked.clear();
        0
    }

    fn encode(&mut self, outgoing: &Outgoing<'_>, out: &mut Vec<u8>) {
        use std::io::Write as _;
        self.asked.push_back(outgoing.request);
        let Http { path, headers, .. } = &self.http;
        // Writing to memory does not fail.
        let _ = match outgoing.operation {
            Operation::Write { key, value } => write!(
                out,
                "PUT {} HTTP/1.1\r\n{headers}Content-Length: {}\r\n\r\n{value}",
                path.replace("{key}", key),
                value.len(),
            ),
            Operation::Read { key } => {
                write!(
                    out,
                    "GET {} HTTP/1.1\r\n{headers}\r\n",
                    path.replace("{key}", key)
                )
            }
            Operation::Call { .. } => write!(out, "GET {path} HTTP/1.1\r\n{headers}\r\n"),
        };
    }

    fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Option<Incoming<'a>>, ProtocolError> {
        let Some(head) = head(input)? else {
            return Ok(None);
        };
        if head.status < 200 {
            // It goes on, and the response follows.
            return Ok(Some(Incoming::new(
                crate::GREETING,
                Answer::Done,
                head.bytes,
            )));
        }
        let Some((body, bytes)) = head.body(input)? else {
            return Ok(None);
        };
        let request = self.asked.pop_front().ok_or(ProtocolError::Unasked)?;
        let answer = match head.status {
            200..=299 => body.map_or(Answer::Done, Answer::Found),
            404 => Answer::Missing,
            401 | 403 => Answer::Failed(ErrorKind::Denied, head.line),
            502..=504 => Answer::Failed(ErrorKind::Unavailable, head.line),
            _ => Answer::Failed(ErrorKind::Store, head.line),
        };
        Ok(Some(Incoming::new(request, answer, bytes)))
    }
}

/// What a response begins with.
struct Head<'a> {
    status: u16,
    /// Its first line.
    line: &'a [u8],
    bytes: usize,
    length: Length,
}

/// A body, where it stands in one piece, and where its response ends.
type Body<'a> = (Option<&'a [u8]>, usize);

/// How long a body is.
enum Length {
    Known(usize),
    Chunked,
}

fn head(input: &[u8]) -> Result<Option<Head<'_>>, ProtocolError> {
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
    let status = response.code.ok_or_else(wrong)?;
    let header = |name: &str| {
        let found = response.headers.iter();
        let mut found = found.filter(|it| it.name.eq_ignore_ascii_case(name));
        found.next().map(|it| it.value)
    };
    let chunked = header("transfer-encoding").is_some_and(|it| it.ends_with(b"chunked"));
    let bare = status < 200 || matches!(status, 204 | 304);
    let length = if chunked {
        Length::Chunked
    } else if bare {
        Length::Known(0)
    } else {
        let told = header("content-length").and_then(|it| std::str::from_utf8(it).ok());
        let told = told.and_then(|it| it.trim().parse::<usize>().ok());
        let told = told.filter(|length| *length <= BODY_BYTES_MAX);
        let wanted = "a response that says how long it is";
        Length::Known(told.ok_or_else(|| ProtocolError::reply(input, wanted))?)
    };
    let line = input
        .split(|byte| *byte == b'\r')
        .next()
        .unwrap_or_default();
    Ok(Some(Head {
        status,
        line,
        bytes,
        length,
    }))
}

impl Head<'_> {
    /// The body; `None` when more is needed.
    fn body<'a>(&self, input: &'a [u8]) -> Result<Option<Body<'a>>, ProtocolError> {
        match self.length {
            Length::Known(length) => {
                let end = self.bytes + length;
                Ok(input.get(self.bytes..end).map(|body| (Some(body), end)))
            }
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
            .filter(|length| *length <= BODY_BYTES_MAX)
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
fn end_of_trailers(input: &[u8], mut at: usize) -> Result<Option<usize>, ProtocolError> {
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

#[cfg(test)]
mod tests {
    use super::super::tests::{READ, WRITE, asked, driver_of, reply, target_of};
    use super::*;

    const KEYED: &str = "url = \"http://127.0.0.1:8080/v/{key}?x=y\"";

    #[test]
    fn keys_are_read_and_written_under_the_path() {
        let (mut target, greeting) = target_of(KEYED);
        assert!(greeting.is_empty());
        let read = String::from_utf8(asked(target.as_mut(), 1, READ)).unwrap();
        assert!(
            read.starts_with("GET /v/k?x=y HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n"),
            "{read}"
        );
        assert!(read.ends_with("\r\n\r\n"));
        let write = String::from_utf8(asked(target.as_mut(), 2, WRITE)).unwrap();
        assert!(write.starts_with("PUT /v/k?x=y HTTP/1.1\r\n"), "{write}");
        assert!(write.ends_with("Content-Length: 5\r\n\r\nvalue"), "{write}");
        let found = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nvalue";
        assert_eq!(reply(target.as_mut(), found), (1, Answer::Found(b"value")));
        let done = b"HTTP/1.1 204 No Content\r\n\r\n";
        assert_eq!(reply(target.as_mut(), done), (2, Answer::Found(b"")));
    }

    #[test]
    fn chunks_are_counted_to_their_end() {
        let (mut target, _) = target_of(KEYED);
        for (request, trailers) in [(1, ""), (2, "Expires: never\r\n")] {
            asked(target.as_mut(), request, READ);
            let chunked = format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n{trailers}\r\n"
            );
            assert_eq!(
                reply(target.as_mut(), chunked.as_bytes()),
                (request, Answer::Done)
            );
        }
    }

    #[test]
    fn what_the_server_refuses_is_told_apart() {
        for (line, wanted) in [
            ("404 Not Found", Answer::Missing),
            (
                "401 Unauthorized",
                Answer::Failed(ErrorKind::Denied, b"HTTP/1.1 401 Unauthorized"),
            ),
            (
                "503 Busy",
                Answer::Failed(ErrorKind::Unavailable, b"HTTP/1.1 503 Busy"),
            ),
            (
                "301 Moved",
                Answer::Failed(ErrorKind::Store, b"HTTP/1.1 301 Moved"),
            ),
            (
                "500 Oh",
                Answer::Failed(ErrorKind::Store, b"HTTP/1.1 500 Oh"),
            ),
        ] {
            let (mut target, _) = target_of(KEYED);
            asked(target.as_mut(), 1, READ);
            let response = format!("HTTP/1.1 {line}\r\nContent-Length: 2\r\n\r\nno");
            assert_eq!(reply(target.as_mut(), response.as_bytes()), (1, wanted));
        }
    }

    #[test]
    fn what_is_not_of_http_or_has_no_end_is_refused() {
        for input in [
            &b"+PONG\r\n"[..],
            b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
            b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\n",
        ] {
            let (mut target, _) = target_of(KEYED);
            asked(target.as_mut(), 1, READ);
            assert!(target.decode(input).is_err(), "{input:?}");
        }
    }

    #[test]
    fn a_password_goes_with_every_request() {
        let driver = driver_of("url = \"http://me@127.0.0.1/\"", Some("secret")).unwrap();
        let mut target = driver.target();
        let read = String::from_utf8(asked(target.as_mut(), 1, READ)).unwrap();
        assert!(
            read.contains("Authorization: Basic bWU6c2VjcmV0\r\n"),
            "{read}"
        );
    }
}
