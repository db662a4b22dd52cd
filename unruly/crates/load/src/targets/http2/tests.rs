//! Connections of HTTP/2 whose other end is the library h2.

mod pipe;

use std::collections::HashMap;
use std::task::{Context, Poll, Waker};

use h2::server::{self, SendResponse};
use h2::{Reason, RecvStream};
use proptest::prelude::*;

use self::pipe::Pipe;
use super::super::tests::{READ, WRITE, asked as encoded, driver_of};
use super::*;

const ONE: &str = "url = \"http://127.0.0.1:8080/one\"\nhttp2 = true";
const KEYED: &str =
    "url = \"http://127.0.0.1:8080/{key}\"\nhttp2 = true\noperations = \"write then read\"";

/// A server of HTTP/2 at the other end, polled by hand as well.
struct Server {
    pipe: Pipe,
    connection: server::Connection<Pipe, Bytes>,
    asked: HashMap<String, SendResponse<Bytes>>,
    bodies: HashMap<String, RecvStream>,
}

/// A client and a server that have met.
struct Pair {
    client: Box<dyn Target>,
    server: Server,
}

fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

impl Pair {
    fn new(lines: &str, streams: u32) -> Self {
        let mut client = driver_of(lines, None).expect("a driver").target(0);
        let mut hello = Vec::new();
        client.greet(&mut hello);
        let pipe = Pipe::default();
        pipe.push(&hello);
        let mut builder = server::Builder::new();
        builder.max_concurrent_streams(streams);
        let mut handshake = Box::pin(builder.handshake(pipe.clone()));
        let Poll::Ready(Ok(connection)) = handshake.as_mut().poll(&mut context()) else {
            panic!("the preface is there");
        };
        let asked = HashMap::new();
        let server = Server {
            pipe,
            connection,
            asked,
            bodies: HashMap::new(),
        };
        let mut pair = Self { client, server };
        pair.exchange();
        pair
    }

    /// Lets both sides say what they have to say, until neither has anything.
    fn exchange(&mut self) {
        loop {
            let mut out = Vec::new();
            loop {
                let before = out.len();
                if self.client.drain(&mut out).is_none() && out.len() == before {
                    break;
                }
            }
            self.server.pipe.push(&out);
            while let Poll::Ready(Some(Ok((request, answer)))) =
                self.server.connection.poll_accept(&mut context())
            {
                let (method, path) = (request.method(), request.uri().path());
                let name = format!("{method} {path}");
                self.server.asked.insert(name.clone(), answer);
                self.server.bodies.insert(name, request.into_body());
            }
            let mut back = Vec::new();
            self.server.pipe.take(&mut back);
            if !back.is_empty() {
                self.client.decode(&back).expect("HTTP/2");
            }
            if out.is_empty() && back.is_empty() {
                return;
            }
        }
    }

    fn ask(&mut self, ticket: u64, operation: crate::Operation<'_>) {
        let out = encoded(self.client.as_mut(), ticket, operation);
        assert!(out.is_empty(), "an encoded request waits in the target");
        self.exchange();
    }

    fn answer(&mut self, request: &str, code: u16, body: &'static str) {
        let mut answer = self.server.asked.remove(request).expect("it was asked");
        let response = http::Response::builder().status(code).body(()).unwrap();
        let mut stream = answer.send_response(response, body.is_empty()).unwrap();
        if !body.is_empty() {
            stream
                .send_data(Bytes::from_static(body.as_bytes()), true)
                .unwrap();
        }
        self.exchange();
    }

    fn replies(&mut self) -> Vec<(u64, Fate)> {
        std::iter::from_fn(|| self.client.next_reply())
            .map(|it| (it.ticket, it.fate))
            .collect()
    }
}

#[test]
fn replies_come_in_the_order_in_which_the_server_answers() {
    let mut pair = Pair::new(KEYED, 10);
    pair.ask(1, WRITE);
    pair.ask(2, READ);
    assert_eq!(pair.server.asked.len(), 2);
    pair.answer("GET /k", 200, "value");
    pair.answer("PUT /k", 204, "");
    let found = Fate::Found(b"value".to_vec());
    assert_eq!(pair.replies(), [(2, found), (1, Fate::Done)]);
    assert!(pair.client.is_idle());
}

#[test]
fn a_code_that_is_not_expected_is_a_failure_with_its_words() {
    let mut pair = Pair::new(ONE, 10);
    pair.ask(1, READ);
    pair.answer("GET /one", 503, "busy");
    let failed = Fate::Failed(ErrorKind::Code, b"HTTP/2 503".to_vec());
    assert_eq!(pair.replies(), [(1, failed)]);
}

#[test]
fn a_request_beyond_the_servers_limit_waits_for_a_stream() {
    let mut pair = Pair::new(KEYED, 1);
    pair.ask(1, WRITE);
    pair.ask(2, READ);
    assert_eq!(pair.server.asked.keys().collect::<Vec<_>>(), ["PUT /k"]);
    pair.answer("PUT /k", 204, "");
    assert_eq!(pair.server.asked.keys().collect::<Vec<_>>(), ["GET /k"]);
}

#[test]
fn a_request_after_the_servers_farewell_is_handed_back_and_one_before_it_is_answered() {
    let mut pair = Pair::new(KEYED, 10);
    pair.ask(1, WRITE);
    pair.answer("PUT /k", 204, "");
    pair.ask(2, WRITE);
    assert_eq!(pair.replies(), [(1, Fate::Done)]);
    pair.server.connection.graceful_shutdown();
    pair.exchange();
    // The library asks for a ping before its farewell, as a server does that loses nothing.
    pair.exchange();
    assert!(pair.client.is_closing());
    pair.ask(3, READ);
    assert_eq!(pair.replies(), [(3, Fate::Untouched)]);
    assert!(!pair.client.is_idle());
    pair.answer("PUT /k", 204, "");
    assert_eq!(pair.replies(), [(2, Fate::Done)]);
    assert!(pair.client.is_idle());
}

#[test]
fn a_first_reply_that_comes_with_the_farewell_is_a_reply() {
    let mut pair = Pair::new(KEYED, 10);
    pair.ask(1, WRITE);
    let mut answer = pair.server.asked.remove("PUT /k").expect("it was asked");
    let response = http::Response::builder().status(204).body(()).unwrap();
    answer.send_response(response, true).unwrap();
    pair.server.connection.graceful_shutdown();
    pair.exchange();
    assert!(pair.client.is_closing());
    assert_eq!(pair.replies(), [(1, Fate::Done)]);
    assert!(pair.client.is_proven());
}

#[test]
fn a_connection_that_ends_before_it_brought_a_reply_is_not_proven() {
    let mut pair = Pair::new(KEYED, 10);
    pair.server.connection.abrupt_shutdown(Reason::NO_ERROR);
    pair.exchange();
    assert!(pair.client.is_closing() && pair.client.is_idle());
    assert!(!pair.client.is_proven());
    pair.ask(1, WRITE);
    assert_eq!(pair.replies(), [(1, Fate::Untouched)]);
}

#[test]
fn no_request_goes_before_the_server_has_said_how_many_it_takes() {
    let mut client = driver_of(ONE, None).expect("a driver").target(0);
    let mut out = Vec::new();
    client.greet(&mut out);
    encoded(client.as_mut(), 1, READ);
    out.clear();
    assert_eq!(client.drain(&mut out), None);
    assert!(out.is_empty(), "{out:?}");
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    client.decode(&settings).expect("settings");
    let sent = std::iter::repeat_with(|| client.drain(&mut out)).take(3);
    assert_eq!(sent.flatten().collect::<Vec<_>>(), [1]);
}

#[test]
fn a_stream_that_the_server_resets_is_a_failure_of_its_request_alone() {
    let mut pair = Pair::new(KEYED, 10);
    pair.ask(1, WRITE);
    pair.ask(2, READ);
    let mut answer = pair.server.asked.remove("PUT /k").expect("it was asked");
    answer.send_reset(Reason::INTERNAL_ERROR);
    pair.exchange();
    pair.answer("GET /k", 404, "");
    let replies = pair.replies();
    assert!(
        matches!(&replies[0], (1, Fate::Failed(ErrorKind::Protocol, _))),
        "{replies:?}"
    );
    assert_eq!(replies[1], (2, Fate::Missing));
}

#[test]
fn a_request_that_nobody_waits_for_is_cancelled() {
    let mut pair = Pair::new(KEYED, 10);
    pair.ask(1, WRITE);
    pair.client.forget(1);
    pair.exchange();
    assert!(pair.client.is_idle());
    let answer = pair.server.asked.get_mut("PUT /k").expect("it was asked");
    let reset = answer.poll_reset(&mut context());
    assert!(
        matches!(reset, Poll::Ready(Ok(Reason::CANCEL))),
        "{reset:?}"
    );
}

#[test]
fn a_server_of_another_protocol_is_named() {
    let mut client = driver_of(ONE, None).expect("a driver").target(0);
    client.greet(&mut Vec::new());
    let wrong = client
        .decode(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        .unwrap_err();
    assert!(
        wrong.to_string().contains("does it speak HTTP/2?"),
        "{wrong}"
    );
}

/// A client that has met a server with these settings and sent one request, whose ticket is 1.
fn asked(settings: &[(u16, u32)]) -> (Box<dyn Target>, Vec<u8>) {
    asked_by(ONE, settings)
}

fn asked_by(lines: &str, settings: &[(u16, u32)]) -> (Box<dyn Target>, Vec<u8>) {
    let mut client = driver_of(lines, None).expect("a driver").target(0);
    client.greet(&mut Vec::new());
    let mut frames = Vec::new();
    frames::put_settings(&mut frames, settings);
    client.decode(&frames).expect("settings");
    encoded(client.as_mut(), 1, READ);
    let mut out = Vec::new();
    let sent = std::iter::repeat_with(|| client.drain(&mut out)).take(3);
    assert_eq!(sent.flatten().next(), Some(1));
    (client, out)
}

/// What a client says of these frames: its replies, or why it ends the connection.
fn answered(
    client: &mut Box<dyn Target>,
    frames: &[(u8, u8, u32, &[u8])],
) -> Result<Vec<Fate>, String> {
    let mut input = Vec::new();
    for (kind, flags, stream, payload) in frames {
        frames::put(&mut input, *kind, *flags, *stream, payload);
    }
    let taken = client.decode(&input).map_err(|error| error.to_string())?;
    assert_eq!(taken.map(|it| it.bytes), Some(input.len()));
    Ok(std::iter::from_fn(|| client.next_reply())
        .map(|it| it.fate)
        .collect())
}

/// The field `:status: 200`, and the name and value `content-length: 3`.
const GOOD: &[u8] = &[0x88];
const THREE: &[u8] = &[0x88, 0x0f, 0x0d, 0x01, b'3'];

#[test]
fn a_response_comes_in_any_frames_that_the_standard_allows() {
    let (ends, whole) = (flag::END_STREAM, flag::END_HEADERS);
    let padded = flag::PADDED;
    let early: &[u8] = &[0x08, 3, b'1', b'0', b'3'];
    let priority: &[u8] = &[1, 0, 0, 0, 0, 9, 0x88, 0];
    for frames in [
        &[(kind::HEADERS, ends | whole, 1, GOOD)][..],
        &[
            (kind::HEADERS, 0, 1, &THREE[..2]),
            (kind::CONTINUATION, whole, 1, &THREE[2..]),
            (kind::DATA, ends, 1, b"abc"),
        ],
        &[
            (kind::HEADERS, whole, 1, THREE),
            (kind::DATA, ends, 1, b"abc"),
        ],
        &[
            (kind::HEADERS, whole, 1, THREE),
            (kind::DATA, 0, 1, b"a"),
            (kind::DATA, ends, 1, b"bc"),
        ],
        &[
            (kind::HEADERS, whole, 1, THREE),
            (kind::DATA, ends | padded, 1, b"\x02abc\0\0"),
        ],
        &[
            (kind::HEADERS, whole, 1, early),
            (kind::HEADERS, ends | whole, 1, GOOD),
        ],
        &[(
            kind::HEADERS,
            ends | whole | padded | flag::PRIORITY,
            1,
            priority,
        )],
        &[
            (kind::HEADERS, whole, 1, GOOD),
            (kind::DATA, 0, 1, b"a"),
            (kind::HEADERS, ends | whole, 1, &[]),
        ],
        &[
            (77, 0xff, 1, b"of another day"),
            (kind::HEADERS, ends | whole, 1, GOOD),
        ],
    ] {
        let (mut client, _) = asked(&[]);
        assert_eq!(
            answered(&mut client, frames),
            Ok(vec![Fate::Done]),
            "{frames:?}"
        );
        assert!(client.is_idle() && client.is_proven());
    }
}

#[test]
fn a_broken_response_fails_its_request_alone() {
    let (ends, whole) = (flag::END_STREAM, flag::END_HEADERS);
    for (frames, words) in [
        (
            &[
                (kind::HEADERS, whole, 1, THREE),
                (kind::DATA, ends, 1, b"ab"),
            ][..],
            "another length",
        ),
        (&[(kind::DATA, ends, 1, b"ab")], "a body before its status"),
        (
            &[(kind::HEADERS, ends | whole, 1, &[0x82])],
            "without a status",
        ),
        (&[(kind::RESET, 0, 1, &[0, 0, 0, 7])], "REFUSED_STREAM"),
        (&[(kind::RESET, 0, 1, &[0, 0, 1, 7])], "error 263"),
    ] {
        let (mut client, _) = asked(&[]);
        let found = answered(&mut client, frames);
        let said = match &found.as_deref() {
            Ok([Fate::Failed(ErrorKind::Protocol, said)]) => String::from_utf8_lossy(said),
            other => panic!("{other:?}"),
        };
        assert!(said.contains(words), "{said}");
        assert!(client.is_idle() && !client.is_closing());
        // The server learns of it, unless it said so itself.
        let mut out = Vec::new();
        client.drain(&mut out);
        let ended = out.windows(4).any(|it| it == [0, 4, kind::RESET, 0]);
        assert_eq!(ended, !said.contains("the server ended"), "{out:?}");
    }
}

#[test]
fn a_response_to_head_has_a_length_and_no_body() {
    let lines = format!("{ONE}\nmethod = \"HEAD\"");
    let (mut client, _) = asked_by(&lines, &[]);
    let frames = [(
        kind::HEADERS,
        flag::END_STREAM | flag::END_HEADERS,
        1,
        THREE,
    )];
    assert_eq!(answered(&mut client, &frames), Ok(vec![Fate::Done]));
}

#[test]
fn frames_that_break_the_connection_are_named() {
    let (ends, whole) = (flag::END_STREAM, flag::END_HEADERS);
    for (frames, words) in [
        (
            &[(kind::HEADERS, ends, 1, GOOD), (kind::DATA, 0, 1, b"")][..],
            "may not come there",
        ),
        (
            &[(kind::CONTINUATION, whole, 1, GOOD)],
            "may not come there",
        ),
        (
            &[
                (kind::HEADERS, 0, 1, GOOD),
                (kind::CONTINUATION, whole, 3, GOOD),
            ],
            "CONTINUATION",
        ),
        (
            &[(kind::HEADERS, ends | whole, 3, GOOD)],
            "nothing that was asked",
        ),
        (&[(kind::DATA, ends, 2, b"a")], "nothing that was asked"),
        (
            &[(kind::HEADERS, ends | whole, 1, &[0xff, 0xff])],
            "cannot be read",
        ),
        (&[(kind::DATA, flag::PADDED, 1, &[9, 0])], "broken DATA"),
        (&[(kind::PUSH, whole, 1, &[0; 5])], "PUSH_PROMISE"),
        (&[(kind::SETTINGS, 0, 0, &[0; 5])], "broken SETTINGS"),
        (&[(kind::SETTINGS, 0, 0, &[0, 4, 0x80, 0, 0, 0])], "2 GiB"),
        (&[(kind::FAREWELL, 0, 0, &[0; 7])], "broken GOAWAY"),
        (&[(kind::WINDOW, 0, 0, &[0; 3])], "WINDOW_UPDATE"),
        (&[(kind::WINDOW, 0, 0, &[0x7f, 0xff, 0xff, 0xff])], "2 GiB"),
        (
            &[(kind::FAREWELL, 0, 0, b"\0\0\0\x01\0\0\0\x0bcalm down")],
            "ENHANCE_YOUR_CALM (calm down)",
        ),
    ] {
        let (mut client, _) = asked(&[]);
        let said = answered(&mut client, frames).expect_err("it is wrong");
        assert!(said.contains(words), "{said}");
    }
    let (mut client, _) = asked(&[]);
    let long = [0, 0x40, 1, 0, 0, 0, 0, 0, 1];
    let said = client
        .decode(&long)
        .expect_err("it is too long")
        .to_string();
    assert!(said.contains("a frame of 16385 bytes"), "{said}");
}

#[test]
fn a_question_of_the_server_is_answered_and_its_table_kept_small() {
    let (mut client, sent) = asked(&[(setting::TABLE_BYTES, 0)]);
    // The first block says that the table is empty from now on.
    let reply = [0, 0, 0, kind::SETTINGS, flag::REPLY, 0, 0, 0, 0];
    assert_eq!(sent[..frames::HEAD_BYTES], reply);
    assert_eq!(sent[2 * frames::HEAD_BYTES], 0x20);
    answered(&mut client, &[(kind::PING, 0, 0, b"12345678")]).expect("a question");
    let mut out = Vec::new();
    assert_eq!(client.drain(&mut out), None);
    assert_eq!(out, b"\0\0\x08\x06\x01\0\0\0\x0012345678");
    out.clear();
    answered(&mut client, &[(kind::PING, flag::REPLY, 0, b"12345678")]).expect("a reply");
    client.drain(&mut out);
    assert!(out.is_empty());
}

#[test]
fn a_long_body_goes_as_the_windows_allow() {
    let long = "x".repeat(300_000);
    let mut pair = Pair::new(KEYED, 10);
    pair.ask(
        1,
        crate::Operation::Write {
            key: "k",
            value: &long,
        },
    );
    pair.ask(
        2,
        crate::Operation::Write {
            key: "j",
            value: "short",
        },
    );
    let mut received = 0;
    for _ in 0..100 {
        let Some(body) = pair.server.bodies.get_mut("PUT /k") else {
            panic!("it was asked")
        };
        while let Poll::Ready(Some(Ok(data))) = body.poll_data(&mut context()) {
            received += data.len();
            body.flow_control()
                .release_capacity(data.len())
                .expect("it came");
        }
        if received == long.len() {
            break;
        }
        assert!(received <= long.len());
        pair.exchange();
    }
    assert_eq!(received, long.len());
    pair.answer("PUT /j", 204, "");
    pair.answer("PUT /k", 204, "");
    assert_eq!(pair.replies(), [(2, Fate::Done), (1, Fate::Done)]);
}

#[test]
fn a_server_that_answers_before_the_body_is_there_gets_no_more_of_it() {
    let mut pair = Pair::new(KEYED, 10);
    let long = "x".repeat(300_000);
    pair.ask(
        1,
        crate::Operation::Write {
            key: "k",
            value: &long,
        },
    );
    pair.answer("PUT /k", 204, "");
    assert_eq!(pair.replies(), [(1, Fate::Done)]);
    assert!(pair.client.is_idle());
    let mut out = Vec::new();
    assert_eq!(pair.client.drain(&mut out), None);
    assert!(out.is_empty());
}

#[test]
fn fields_of_many_frames_are_read() {
    let mut pair = Pair::new(KEYED, 10);
    pair.ask(1, READ);
    let mut answer = pair.server.asked.remove("GET /k").expect("it was asked");
    let mut response = http::Response::builder().status(200);
    for number in 0..40 {
        response = response.header(format!("x-{number}"), "y".repeat(1_000));
    }
    let mut stream = answer
        .send_response(response.body(()).unwrap(), false)
        .unwrap();
    stream
        .send_data(Bytes::from_static(b"value"), true)
        .unwrap();
    pair.exchange();
    assert_eq!(pair.replies(), [(1, Fate::Found(b"value".to_vec()))]);
}

proptest! {
    #[test]
    fn whatever_comes_is_taken_or_refused(
        input in prop::collection::vec(any::<u8>(), 1..300), after_frame in any::<bool>()
    ) {
        let mut client = driver_of(ONE, None).expect("a driver").target(0);
        client.greet(&mut Vec::new());
        // An empty SETTINGS frame, as every server begins.
        let settings: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
        let input = [if after_frame { settings } else { b"" }, &input].concat();
        if let Ok(Some(incoming)) = client.decode(&input) {
            prop_assert!(incoming.bytes <= input.len());
        }
        client.drain(&mut Vec::new());
    }
}
