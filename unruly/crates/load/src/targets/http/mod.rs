//! An HTTP server, in the clear or by TLS. A read is a `GET`, a write a `PUT`, unless the plan names
//! a method; `{key}` in the URL stands for the key.
//!
//! A connection of HTTP/1.1 carries one request at a time, and ends when the server says so (`Connection: close`,
//! HTTP/1.0). A request that may be done twice (RFC 9110, 9.2.2) may be sent again.

mod captured;
mod cookies;
mod openai;
mod request;
mod response;

use std::collections::VecDeque;
use std::sync::Arc;

use unruly_plan::{Codes, State, Store};
use unruly_trace::ErrorKind;

pub(super) use self::captured::Captured;
use self::captured::Content;
use self::cookies::Jars;
use self::openai::Tokens;
use self::request::unused;
pub(super) use self::request::{Form, Kept};
use self::response::{Head, head};
use super::http2::{About, Exchange, Request, Response, Streams};
use super::template::Data;
use super::{Driver, DriverError, Protocol, Settings, places_by, without_level};
use crate::link::Place;
use crate::target::{Answer, Fate, Incoming, Operation, Outgoing, ProtocolError, Target};

const PORT: u16 = 80;
const TLS_PORT: u16 = 443;

/// The names of the protocols in a TLS handshake (RFC 7301).
const HTTP_1_1: &[u8] = b"http/1.1";
const HTTP_2: &[u8] = b"h2";

pub(super) fn make(settings: &Settings<'_>) -> Result<Box<dyn Driver>, DriverError> {
    without_level(settings)?;
    let kind = match &settings.store.http {
        _ if settings.store.url.is_openai() => Kind::Tokens,
        Some(http) if http.http2 => Kind::Streams,
        _ => Kind::Plain,
    };
    if kind == Kind::Tokens {
        let store = openai::store(settings)?;
        let store = &store;
        return made(&Settings { store, ..*settings }, kind);
    }
    made(settings, kind)
}

fn made(settings: &Settings<'_>, kind: Kind) -> Result<Box<dyn Driver>, DriverError> {
    let http = settings.store.http.clone().unwrap_or_default();
    let places = places_of(settings, &http, PORT, TLS_PORT)?;
    let data = http.data.as_deref().map(Data::read).transpose()?;
    let data = data.map(Arc::new);
    let hosts = settings.store.url.hosts.iter();
    let captured = http.scenario.as_ref().map(Captured::of).map(Arc::new);
    let asking = hosts.map(|host| {
        let kept = Kept {
            cookies: http
                .cookies
                .then(|| Arc::new(Jars::new(settings.store.url.is_secure()))),
            captured: captured.clone(),
        };
        Ok(Arc::new(Asking {
            asks: asks(settings, host, data.as_ref(), &kept)?,
            kept,
            keep_alive: http.keep_alive,
            kind,
        }))
    });
    let asking: Vec<Arc<Asking>> = asking.collect::<Result<_, _>>()?;
    if let (Some(file), Some(first)) = (&http.data, asking.first())
        && !first.asks.iter().any(|it| it.form.has_data())
    {
        return Err(unused(file));
    }
    Ok(Box::new(Http {
        asking,
        places,
        data,
    }))
}

/// What is asked of a host: one request, or those of a scenario.
fn asks(
    settings: &Settings<'_>,
    host: &(String, Option<u16>),
    data: Option<&Arc<Data>>,
    kept: &Kept,
) -> Result<Vec<Ask>, DriverError> {
    let store = settings.store;
    let http = store.http.clone().unwrap_or_default();
    let form = |store: &Store| {
        let settings = Settings { store, ..*settings };
        Form::of(&settings, host, data.cloned(), kept.clone())
    };
    let (Some(scenario), Some(captured)) = (&http.scenario, &kept.captured) else {
        return Ok(vec![Ask {
            form: form(store)?,
            expect: http.expect,
            content: None,
        }]);
    };
    let states = scenario.states().iter().map(|state| {
        let content = Content::of(state, captured)?;
        let own = store_of(store, state);
        let encoded = own
            .http
            .as_ref()
            .is_some_and(|it| it.headers.has("accept-encoding"));
        if encoded && content.as_ref().is_some_and(Content::needs_body) {
            return Err(DriverError::new(
                "scenario",
                format!(
                    "the server may encode the replies to {}, and unruly looks into them",
                    state.name
                ),
                "wanted no Accept-Encoding with contains or capture",
                "remove Accept-Encoding",
            ));
        }
        let expect = state.expect.as_ref().unwrap_or(&http.expect);
        Ok(Ask {
            form: form(&own)?,
            expect: expect.clone(),
            content,
        })
    });
    states.collect()
}

/// The store as one state of a scenario asks it.
fn store_of(store: &Store, state: &State) -> Store {
    let mut own = store.clone();
    let (path, query) = state.path.split_once('?').unwrap_or((&state.path, ""));
    own.url.path = format!("{}{path}", store.url.path.trim_end_matches('/'));
    query.clone_into(&mut own.url.query);
    if let Some(http) = &mut own.http {
        http.method = Some(state.method.clone());
        http.headers = http.headers.with(&state.headers);
        http.body.clone_from(&state.body);
    }
    own
}

/// The places of the hosts of a URL, with these ports where it names none.
///
/// # Errors
///
/// When a host is unknown, or TLS cannot use a file or a name.
pub(super) fn places_of(
    settings: &Settings<'_>,
    http: &unruly_plan::Http,
    port: u16,
    tls_port: u16,
) -> Result<Vec<Place>, DriverError> {
    let protocol = match http.http2 {
        true => Protocol::Required(HTTP_2),
        false => Protocol::Offered(HTTP_1_1),
    };
    places_by(settings, port, tls_port, protocol)
}

struct Http {
    places: Vec<Place>,
    /// How each place is asked.
    asking: Vec<Arc<Asking>>,
    /// Values of the requests.
    data: Option<Arc<Data>>,
}

/// What all connections to one host share.
struct Asking {
    /// What is asked, by the numbers of the operations: more than one where there is a scenario.
    asks: Vec<Ask>,
    kept: Kept,
    /// A connection may carry another request after a response.
    keep_alive: bool,
    kind: Kind,
}

/// A request, and what its replies must be.
struct Ask {
    form: Form,
    /// Status codes that count as success.
    expect: Codes,
    /// What is looked for in a reply.
    content: Option<Content>,
}

impl Asking {
    /// The request of this number.
    fn ask(&self, number: usize) -> &Ask {
        // A plan without a scenario has one request.
        self.asks.get(number).unwrap_or(&self.asks[0])
    }

    /// The number of the request that a copy sends. A new user has nothing of the one before.
    fn begin(&self, outgoing: &Outgoing<'_>) -> usize {
        match outgoing.operation {
            Operation::Named { number, begins } => {
                if begins {
                    self.kept.forget(outgoing.session);
                }
                number
            }
            _ => 0,
        }
    }

    /// An answer, if the reply has in it what it must have.
    fn checked<'a, 'h>(
        &self,
        answer: Answer<'a>,
        (number, session): (usize, usize),
        header: impl Fn(&str) -> Option<&'h [u8]>,
        body: impl FnOnce() -> Vec<u8>,
    ) -> Answer<'a> {
        let content = self.ask(number).content.as_ref();
        let (Some(content), Some(captured)) = (content, &self.kept.captured) else {
            return answer;
        };
        if matches!(answer, Answer::Failed(..)) {
            return answer;
        }
        let body = if content.needs_body() {
            body()
        } else {
            Vec::new()
        };
        match content.take(captured, session, header, &body) {
            Ok(()) => answer,
            Err(lacks) => Answer::Failed(ErrorKind::Content, lacks.as_bytes()),
        }
    }
}

/// What a connection carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// HTTP/1.1.
    Plain,
    /// HTTP/2: many requests at once.
    Streams,
    /// HTTP/1.1, and the tokens of a reply one by one.
    Tokens,
}

impl Driver for Http {
    fn places(&self) -> &[Place] {
        &self.places
    }

    fn about(&self) -> Option<String> {
        self.data.as_deref().map(Data::about)
    }

    fn target(&self, place: usize) -> Box<dyn Target> {
        let http = Arc::clone(&self.asking[place]);
        match http.kind {
            Kind::Streams => Box::new(Streams::new(http)),
            Kind::Tokens => Box::new(Tokens::new(http)),
            Kind::Plain => Box::new(Connection {
                http,
                asked: VecDeque::new(),
            }),
        }
    }
}

/// What a response with this code says of its request.
fn judged<'a>(
    expect: &Codes,
    code: u16,
    asks_for_value: bool,
    line: &'a [u8],
    body: Option<&'a [u8]>,
) -> Answer<'a> {
    match code {
        404 if asks_for_value => Answer::Missing,
        code if !expect.has(code) => Answer::Failed(ErrorKind::Code, line),
        200..=299 if asks_for_value => body.map_or(Answer::Done, Answer::Found),
        _ => Answer::Done,
    }
}

impl Exchange for Asking {
    fn request(&self, outgoing: &Outgoing<'_>) -> Result<Request, String> {
        let (session, form) = (outgoing.session, self.begin(outgoing));
        let ask = self.ask(form);
        let value = ask.form.asks_for_value(outgoing.operation);
        let looks = ask.content.as_ref().is_some_and(Content::needs_body);
        let (fields, body) = ask.form.request(outgoing, true)?;
        let about = About {
            session,
            value,
            form,
            user: self.kept.user_of(session),
            keeps_body: value || looks,
            head: ask.form.is_head(),
        };
        Ok(Request {
            fields,
            body,
            about,
        })
    }

    fn reply(&self, response: Response) -> (Fate, Option<u16>) {
        let About {
            session,
            value,
            form,
            user,
            ..
        } = response.about;
        let code = response.code;
        if user != self.kept.user_of(session) {
            return (Fate::Done, Some(code));
        }
        for cookie in response.fields.get_all("set-cookie") {
            self.ask(form).form.set_cookie(session, cookie);
        }
        let words = format!("HTTP/2 {code}");
        let body = Some(response.body.as_slice());
        let expect = &self.ask(form).expect;
        let answer = judged(expect, code, value, words.as_bytes(), body);
        let header = |name: &str| response.fields.get(&name.to_ascii_lowercase());
        let answer = self.checked(answer, (form, session), header, || response.body.clone());
        (Fate::of(answer), Some(code))
    }
}

struct Connection {
    http: Arc<Asking>,
    asked: VecDeque<Asked>,
}

#[derive(Debug, Clone, Copy)]
struct Asked {
    request: u64,
    session: usize,
    /// It asks for the value of a key.
    value: bool,
    /// Its number among the requests that there are.
    form: usize,
}

impl Target for Connection {
    fn greet(&mut self, _out: &mut Vec<u8>) -> usize {
        self.asked.clear();
        0
    }

    fn encode(&mut self, outgoing: &Outgoing<'_>, out: &mut Vec<u8>) {
        let number = self.http.begin(outgoing);
        let form = &self.http.ask(number).form;
        self.asked.push_back(Asked {
            request: outgoing.request,
            session: outgoing.session,
            value: form.asks_for_value(outgoing.operation),
            form: number,
        });
        form.write(outgoing, out);
    }

    fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Option<Incoming<'a>>, ProtocolError> {
        let Some(head) = head(input, self.asked().form.is_head())? else {
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
        self.response(input, &head, body, bytes).map(Some)
    }

    fn decode_end<'a>(&mut self, input: &'a [u8]) -> Result<Option<Incoming<'a>>, ProtocolError> {
        match head(input, self.asked().form.is_head())? {
            Some(head) if head.is_until_close() => {
                let body = Some(&input[head.bytes..]);
                self.response(input, &head, body, input.len()).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn is_one_at_a_time(&self) -> bool {
        true
    }

    fn may_send_again(&self) -> bool {
        self.asked().form.may_be_repeated()
    }
}

impl Connection {
    /// The request that is open.
    fn asked(&self) -> &Ask {
        self.http.ask(self.asked.front().map_or(0, |it| it.form))
    }

    /// What a whole response says.
    fn response<'a>(
        &mut self,
        input: &'a [u8],
        head: &Head<'a>,
        body: Option<&'a [u8]>,
        bytes: usize,
    ) -> Result<Incoming<'a>, ProtocolError> {
        let asked = self.asked.pop_front().ok_or(ProtocolError::Unasked)?;
        for cookie in &head.cookies {
            let form = &self.http.ask(asked.form).form;
            form.set_cookie(asked.session, cookie);
        }
        let expect = &self.http.ask(asked.form).expect;
        let answer = judged(expect, head.status, asked.value, head.line, body);
        let header = |name: &str| head.header(name);
        let of = (asked.form, asked.session);
        let whole = || body.map_or_else(|| head.unchunked(input), <[u8]>::to_vec);
        let answer = self.http.checked(answer, of, header, whole);
        Ok(Incoming {
            code: Some(head.status),
            closes: head.closes || !self.http.keep_alive,
            ..Incoming::new(asked.request, answer, bytes)
        })
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

    /// The bytes of the first request of a drive with these lines.
    fn first_request(lines: &str, password: Option<&str>) -> Result<String, String> {
        let mut target = driver_of(lines, password)?.target(0);
        Ok(String::from_utf8(asked(target.as_mut(), 1, READ)).unwrap())
    }

    #[test]
    fn a_request_has_the_form_that_the_plan_gives_it() {
        let lines = "url = \"http://h.localhost:80/a?b=c\"\nmethod = \"POST\"\n\
                     headers = \"Accept: text/html\\nX-One: 1\"\nbody = \"a=1\"\nkeep_alive = false";
        let agent = concat!("User-Agent: unruly/", env!("CARGO_PKG_VERSION"));
        let wanted = format!(
            "POST /a?b=c HTTP/1.1\r\nHost: h.localhost\r\n{agent}\r\nConnection: close\r\n\
             Accept: text/html\r\nX-One: 1\r\nContent-Length: 3\r\n\r\na=1"
        );
        let lines = lines.replace("h.localhost", "127.0.0.1");
        let wanted = wanted.replace("h.localhost", "127.0.0.1");
        assert_eq!(first_request(&lines, None), Ok(wanted));
    }

    #[test]
    fn a_method_that_means_a_body_says_that_there_is_none() {
        for (method, length) in [
            ("POST", true),
            ("PUT", true),
            ("GET", false),
            ("DELETE", false),
        ] {
            let read = first_request(&format!("{PLAIN}\nmethod = {method:?}"), None).unwrap();
            assert_eq!(read.contains("Content-Length: 0\r\n"), length, "{read}");
        }
    }

    #[test]
    fn a_request_is_sent_again_only_if_it_may_be_done_twice() {
        for (lines, again) in [
            (KEYED.to_owned(), true),
            (format!("{PLAIN}\nmethod = \"DELETE\""), true),
            (format!("{PLAIN}\nmethod = \"POST\""), false),
        ] {
            assert_eq!(target_of(&lines).0.may_send_again(), again, "{lines}");
        }
    }

    #[test]
    fn a_response_to_head_ends_with_its_headers() {
        let (mut target, _) = target_of(&format!("{PLAIN}\nmethod = \"HEAD\""));
        asked(target.as_mut(), 1, READ);
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n";
        assert_eq!(reply(target.as_mut(), response), (1, Answer::Done));
    }

    #[test]
    fn a_response_that_has_no_body_ends_with_its_headers_whatever_they_say() {
        for line in ["204 No Content", "304 Not Modified"] {
            let (mut target, _) = target_of(PLAIN);
            asked(target.as_mut(), 1, READ);
            let response = format!("HTTP/1.1 {line}\r\nTransfer-Encoding: chunked\r\n\r\n");
            let answer = reply(target.as_mut(), response.as_bytes());
            assert_eq!(answer, (1, Answer::Done), "{line}");
        }
    }

    #[test]
    fn without_keep_alive_no_request_follows_on_a_connection() {
        let (mut target, _) = target_of(&format!("{PLAIN}\nkeep_alive = false"));
        asked(target.as_mut(), 1, READ);
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        assert!(whole(target.as_mut(), response).closes);
    }

    #[test]
    fn each_host_is_asked_by_its_own_name() {
        let driver = driver_of("url = \"http://127.0.0.1:81,127.0.0.2,[::1]:80/\"", None).unwrap();
        let hosts = [0, 1, 2].map(|place| {
            let mut target = driver.target(place);
            let read = String::from_utf8(asked(target.as_mut(), 1, READ)).unwrap();
            read.lines().nth(1).unwrap().to_owned()
        });
        assert_eq!(
            hosts,
            ["Host: 127.0.0.1:81", "Host: 127.0.0.2", "Host: [::1]"]
        );
    }

    #[test]
    fn the_secret_goes_where_the_plan_says() {
        let token = Some("t0ken");
        for (lines, line) in [
            ("auth = \"bearer\"", "Authorization: Bearer t0ken\r\n"),
            (
                "headers = \"X-Api-Key: {password}\"",
                "X-Api-Key: t0ken\r\n",
            ),
            (
                "method = \"POST\"\nbody = \"p={password}\"",
                "\r\n\r\np=t0ken",
            ),
        ] {
            let read = first_request(&format!("{PLAIN}\n{lines}"), token).unwrap();
            assert!(read.contains(line), "{read}");
            assert_eq!(read.matches("t0ken").count(), 1, "{read}");
        }
        let read = first_request(
            &format!("{PLAIN}\nheaders = \"Authorization: Token {{password}}\""),
            token,
        );
        assert!(read.unwrap().contains("Authorization: Token t0ken\r\n"));
    }

    #[test]
    fn a_secret_that_is_not_there_or_does_not_fit_is_an_error() {
        for (lines, password, said) in [
            ("auth = \"bearer\"", None, "bearer needs a token"),
            ("auth = \"bearer\"", Some("a b"), "bearer needs a token"),
            (
                "headers = \"X-Token: {password}\"",
                None,
                "drive.headers: it has a place for a secret",
            ),
            (
                "headers = \"X-Token: {password}\"",
                Some("a\r\nb"),
                "drive.headers",
            ),
            (
                "headers = \"X-Token: {password}\"",
                Some("user-{data.name}"),
                "drive.headers: the secret holds a place for a value",
            ),
        ] {
            let found = first_request(&format!("{PLAIN}\n{lines}"), password).unwrap_err();
            assert!(found.contains(said), "{found}");
        }
        let encoded = format!("{KEYED}\nheaders = \"Accept-Encoding: gzip\"");
        let found = first_request(&encoded, None).unwrap_err();
        assert!(
            found.contains("unruly checks the values of keys"),
            "{found}"
        );
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
        let mut target = driver.target(0);
        let read = String::from_utf8(asked(target.as_mut(), 1, READ)).unwrap();
        assert!(
            read.contains("Authorization: Basic bWU6c2VjcmV0\r\n"),
            "{read}"
        );
    }
}
