//! An HTTP/1.1 server: `GET` reads and `PUT` writes the URL's path, in which `{key}` stands for the key.
//!
//! A connection carries one request at a time, and ends when the server says so (`Connection: close`,
//! HTTP/1.0). `GET` and `PUT` may be done twice (RFC 9110, 9.2.2), so both may be sent again.

use std::collections::VecDeque;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use unruly_plan::{Codes, PASSWORD_PLACE, Secret};
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
    let password = settings.password.map(Secret::reveal);
    if url.has_password() {
        path = with_password(&path, password)?;
    } else if !url.user.is_empty() || password.is_some() {
        let pair = format!("{}:{}", url.user, password.unwrap_or_default());
        headers += &format!("Authorization: Basic {}\r\n", STANDARD.encode(pair));
    }
    Ok(Box::new(Http {
        places: places(settings, PORT)?,
        keyed: path.contains("{key}"),
        path,
        headers,
        expect: settings
            .store
            .http
            .as_ref()
            .map_or_else(Codes::default, |http| http.expect.clone()),
    }))
}

/// The path with the secret in its place, which stands in a URL already.
fn with_password(path: &str, password: Option<&str>) -> Result<String, DriverError> {
    let fits = |it: &&str| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_graphic());
    let Some(password) = password.filter(fits) else {
        return Err(DriverError::new(
            "url",
            format!("it has a place for a secret, {PASSWORD_PLACE}, and there is none that fits"),
            "wanted one without spaces and control characters",
            "put it in UNRULY_PASSWORD, percent-encoded",
        ));
    };
    Ok(path.replace(PASSWORD_PLACE, password))
}

#[derive(Clone)]
struct Http {
    places: Vec<Place>,
    path: String,
    /// The path has a place for the key.
    keyed: bool,
    headers: String,
    /// Status codes that count as success.
    expect: Codes,
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
    asked: VecDeque<Asked>,
}

#[derive(Debug, Clone, Copy)]
struct Asked {
    request: u64,
    /// It asks for the value of a key.
    value: bool,
}

impl Target for Connection {
    fn greet(&mut self, _out: &mut Vec<u8>) -> usize {
        self.asked.clear();
        0
    }

    fn encode(&mut self, outgoing: &Outgoing<'_>, out: &mut Vec<u8>) {
        use std::io::Write as _;
        self.asked.push_back(Asked {
            request: outgoing.request,
            value: self.http.keyed && matches!(outgoing.operation, Operation::Read { .. }),
        });
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
        self.response(&head, body, bytes).map(Some)
    }

    fn decode_end<'a>(&mut self, input: &'a [u8]) -> Result<Option<Incoming<'a>>, ProtocolError> {
        match head(input)? {
            Some(head) if matches!(head.length, Length::UntilClose) => {
                let body = Some(&input[head.bytes..]);
                self.response(&head, body, input.len()).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn is_one_at_a_time(&self) -> bool {
        true
    }
}

impl Connection {
    /// What a whole response says.
    fn response<'a>(
        &mut self,
        head: &Head<'a>,
        body: Option<&'a [u8]>,
        bytes: usize,
    ) -> Result<Incoming<'a>, ProtocolError> {
        let asked = self.asked.pop_front().ok_or(ProtocolError::Unasked)?;
        let answer = match head.status {
            404 if asked.value => Answer::Missing,
            status if !self.http.expect.has(status) => Answer::Failed(ErrorKind::Code, head.line),
            200..=299 if asked.value => body.map_or(Answer::Done, Answer::Found),
            _ => Answer::Done,
        };
        Ok(Incoming {
            code: Some(head.status),
            closes: head.closes,
            ..Incoming::new(asked.request, answer, bytes)
        })
    }
}

/// What a response begins with.
struct Head<'a> {
    status: u16,
    /// Its first line.
    line: &'a [u8],
    bytes: usize,
    length: Length,
    /// The server closes the connection after it.
    closes: bool,
}

/// A body, where it stands in one piece, and where its response ends.
type Body<'a> = (Option<&'a [u8]>, usize);

/// How long a body is.
enum Length {
    Known(usize),
    Chunked,
    /// It ends with the connection.
    UntilClose,
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
    let status = response.code.filter(|code| *code >= 100);
    let status = status.ok_or_else(wrong)?;
    let length = length(status, response.headers)
        .ok_or_else(|| ProtocolError::reply(input, "a response of a length that can be taken"))?;
    let says = |word| has_word(response.headers, "connection", word);
    let old = response.version == Some(0);
    let closes =
        says("close") || old && !says("keep-alive") || matches!(length, Length::UntilClose);
    let line = input
        .split(|byte| *byte == b'\r')
        .next()
        .unwrap_or_default();
    Ok(Some(Head {
        status,
        line,
        bytes,
        length,
        closes,
    }))
}

/// How long the body of a response is; `None` when its length is no number, or too large.
fn length(status: u16, headers: &[httparse::Header<'_>]) -> Option<Length> {
    if has_word(headers, "transfer-encoding", "chunked") {
        return Some(Length::Chunked);
    }
    if status < 200 || matches!(status, 204 | 304) {
        return Some(Length::Known(0));
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
    (told <= BODY_BYTES_MAX).then_some(Length::Known(told))
}

/// The values of the headers of this name.
fn values<'a>(
    headers: &'a [httparse::Header<'a>],
    name: &'a str,
) -> impl Iterator<Item = &'a [u8]> {
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

impl Head<'_> {
    /// The body; `None` when more is needed.
    fn body<'a>(&self, input: &'a [u8]) -> Result<Option<Body<'a>>, ProtocolError> {
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
    use proptest::prelude::*;

    use super::super::tests::{READ, WRITE, asked, driver_of, reply, target_of, whole};
    use super::*;

    const KEYED: &str =
        "url = \"http://127.0.0.1:8080/v/{key}?x=y\"\noperations = \"write then read\"";
    const PLAIN: &str = "url = \"http://127.0.0.1:8080/one\"";

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
        assert_eq!(reply(target.as_mut(), done), (2, Answer::Done));
        asked(target.as_mut(), 3, WRITE);
        let stored = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstored";
        assert_eq!(reply(target.as_mut(), stored), (3, Answer::Done));
    }

    #[test]
    fn two_lengths_that_differ_are_no_response() {
        for (second, good) in [(5, false), (3, true)] {
            let (mut target, _) = target_of(KEYED);
            asked(target.as_mut(), 1, READ);
            let text = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: {second}\r\n\r\nabcde"
            );
            assert_eq!(target.decode(text.as_bytes()).is_ok(), good, "{second}");
        }
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
    fn a_status_code_that_is_not_expected_is_a_failure() {
        let expecting = format!("{PLAIN}\nexpect = \"2xx, 404\"");
        for (lines, line, failed) in [
            (PLAIN, "200 OK", false),
            (PLAIN, "301 Moved", false),
            (PLAIN, "404 Not Found", true),
            (PLAIN, "500 Oh", true),
            (&expecting, "404 Not Found", false),
            (&expecting, "301 Moved", true),
            (KEYED, "503 Busy", true),
        ] {
            let (mut target, _) = target_of(lines);
            asked(target.as_mut(), 1, READ);
            let response = format!("HTTP/1.1 {line}\r\nContent-Length: 2\r\n\r\nno");
            let incoming = whole(target.as_mut(), response.as_bytes());
            let words = format!("HTTP/1.1 {line}");
            let wanted = if failed {
                Answer::Failed(ErrorKind::Code, words.as_bytes())
            } else {
                Answer::Done
            };
            assert_eq!(incoming.answer, wanted, "{lines} {line}");
            assert_eq!(incoming.code.unwrap().to_string(), line[..3]);
        }
    }

    #[test]
    fn a_key_that_is_not_there_is_missing() {
        let (mut target, _) = target_of(KEYED);
        let response = b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno";
        asked(target.as_mut(), 1, READ);
        assert_eq!(reply(target.as_mut(), response), (1, Answer::Missing));
        asked(target.as_mut(), 2, WRITE);
        let failed = Answer::Failed(ErrorKind::Code, b"HTTP/1.1 404 Not Found");
        assert_eq!(reply(target.as_mut(), response), (2, failed));
    }

    #[test]
    fn the_server_says_when_it_closes_the_connection() {
        for (head, closes) in [
            ("HTTP/1.1 200 OK\r\n", false),
            ("HTTP/1.1 200 OK\r\nConnection: Keep-Alive\r\n", false),
            ("HTTP/1.1 200 OK\r\nConnection: close\r\n", true),
            ("HTTP/1.1 200 OK\r\nConnection: te, Close\r\n", true),
            (
                "HTTP/1.1 200 OK\r\nConnection: te\r\nconnection: close\r\n",
                true,
            ),
            ("HTTP/1.0 200 OK\r\n", true),
            ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n", false),
        ] {
            let (mut target, _) = target_of(PLAIN);
            asked(target.as_mut(), 1, READ);
            let response = format!("{head}Content-Length: 2\r\n\r\nok");
            let incoming = whole(target.as_mut(), response.as_bytes());
            assert_eq!(incoming.closes, closes, "{head}");
        }
    }

    #[test]
    fn a_response_without_a_length_ends_with_its_connection() {
        let (mut target, _) = target_of(KEYED);
        asked(target.as_mut(), 1, READ);
        let input = b"HTTP/1.1 200 OK\r\nServer: old\r\n\r\nuntil the end";
        assert_eq!(target.decode(input), Ok(None));
        let incoming = target.decode_end(input).unwrap().unwrap();
        assert_eq!(incoming.answer, Answer::Found(b"until the end"));
        assert!(incoming.closes);
        assert_eq!(incoming.bytes, input.len());
    }

    #[test]
    fn a_response_that_is_cut_off_is_none() {
        for input in [
            &b""[..],
            b"HTTP/1.1 200 OK\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nval",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nval",
        ] {
            let (mut target, _) = target_of(KEYED);
            asked(target.as_mut(), 1, READ);
            assert_eq!(target.decode_end(input), Ok(None), "{input:?}");
        }
    }

    proptest! {
        #[test]
        fn however_a_response_is_cut_it_is_the_same(
            body in "[a-z]{0,40}", kind in 0..3, cut in any::<prop::sample::Index>()
        ) {
            let head = "HTTP/1.1 200 OK\r\n";
            let response = match kind {
                0 => format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()),
                1 if body.is_empty() => format!("{head}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
                1 => format!(
                    "{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
                    body.len()
                ),
                _ => format!("{head}\r\n{body}"),
            };
            let (mut target, _) = target_of(KEYED);
            asked(target.as_mut(), 7, READ);
            let part = &response.as_bytes()[..cut.index(response.len())];
            prop_assert_eq!(target.decode(part), Ok(None));
            let decoded = target.decode(response.as_bytes()).unwrap();
            let incoming = match decoded {
                Some(incoming) => incoming,
                None => target.decode_end(response.as_bytes()).unwrap().unwrap(),
            };
            prop_assert_eq!((incoming.request, incoming.bytes), (7, response.len()));
            if kind != 1 {
                prop_assert_eq!(incoming.answer, Answer::Found(body.as_bytes()));
            }
        }

        #[test]
        fn whatever_comes_is_refused_or_waited_for_and_no_more_is_taken_than_came(
            input in prop::collection::vec(any::<u8>(), 0..200), like in any::<bool>()
        ) {
            let head: &[u8] = if like { b"HTTP/1.1 200 OK\r\n" } else { b"" };
            let input = [head, &input].concat();
            let (mut target, _) = target_of(KEYED);
            asked(target.as_mut(), 1, READ);
            if let Ok(Some(incoming)) = target.decode(&input) {
                prop_assert!((1..=input.len()).contains(&incoming.bytes));
            }
            let _ = target.decode_end(&input);
        }
    }

    #[test]
    fn what_is_not_of_http_or_is_too_long_is_refused() {
        for input in [
            &b"+PONG\r\n"[..],
            b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\n",
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
