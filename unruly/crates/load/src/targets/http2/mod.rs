//! A connection of HTTP/2: many requests at once, a stream each (RFC 9113).
//!
//! The library `h2` frames and compresses; it is polled by hand over bytes in memory, so there is no
//! runtime and no thread. First, a request waits here until the server's limit of streams allows
//! it. Second, received bytes wake the streams that they belong to. Third, a finished stream is a
//! reply. When the server says that it takes no more requests on this connection (GOAWAY), those
//! that it did not look at are handed back, to be sent on a new one.
//!
//! What a request is made of, and what its response says, is the business of an [`Exchange`].

mod messages;
mod pipe;

use std::collections::VecDeque;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};

use bytes::Bytes;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream};
use unruly_trace::ErrorKind;

use self::messages::Messages;
use self::pipe::Pipe;
use crate::target::{
    Answer, Fate, GREETING, Incoming, Outgoing, ProtocolError, REPLY_BYTES_MAX, Reply, Target,
};

/// The library's flow control is wide open: a load generator takes every reply at once.
const WINDOW_BYTES: u32 = (1 << 31) - 1;

/// Streams of requests that timed out, of which late replies are still expected.
const RESET_STREAMS: usize = 1 << 16;

/// What the streams of a connection are for.
pub(super) trait Exchange: Send + Sync {
    /// The request of a copy.
    ///
    /// # Errors
    ///
    /// When HTTP/2 has no such request: why, in words.
    fn request(&self, outgoing: &Outgoing<'_>) -> Result<Request, String>;

    /// What a whole response says of its request, and its status code.
    fn reply(&self, response: Response) -> (Fate, Option<u16>);

    /// True if bodies are messages of gRPC, which are counted.
    fn has_messages(&self) -> bool {
        false
    }

    /// True if each message of a response is reported when it comes.
    fn reports_messages(&self) -> bool {
        false
    }
}

/// A request as its stream carries it.
pub(super) struct Request {
    pub(super) head: http::Request<()>,
    pub(super) body: Bytes,
    /// The client's session that asks.
    pub(super) session: usize,
    /// It asks for the value of a key.
    pub(super) value: bool,
    /// Its number among the requests that there are.
    pub(super) form: usize,
    /// The number of the session's user.
    pub(super) user: u64,
    /// The body of its response is looked at.
    pub(super) keeps_body: bool,
}

/// A whole response.
pub(super) struct Response {
    pub(super) head: http::response::Parts,
    pub(super) trailers: Option<http::HeaderMap>,
    /// The client's session that asked.
    pub(super) session: usize,
    /// Its request asks for the value of a key.
    pub(super) value: bool,
    /// The number of its request among those that there are.
    pub(super) form: usize,
    /// The number of the session's user.
    pub(super) user: u64,
    /// Bytes of its body.
    pub(super) bytes: usize,
    /// The body, where it is looked at.
    pub(super) body: Vec<u8>,
    /// Whole messages in the body, where they are counted.
    pub(super) messages: u64,
}

/// A connection and its streams.
pub(super) struct Streams {
    exchange: Arc<dyn Exchange>,
    pipe: Pipe,
    session: Option<Session>,
    streams: Vec<Place>,
    free: Vec<usize>,
    /// Streams for which something came.
    woken: Arc<Mutex<Vec<usize>>>,
    /// Requests that have no stream yet.
    waiting: VecDeque<Waiting>,
    replies: VecDeque<Reply>,
    /// A request was answered on this connection.
    proven: bool,
    /// The server takes no further request on this connection.
    closing: bool,
}

struct Session {
    send: SendRequest<Bytes>,
    /// `None` once it has ended.
    connection: Option<Connection<Pipe, Bytes>>,
}

/// A request without a stream.
struct Waiting {
    ticket: u64,
    request: Request,
}

/// A stream, or the place of one.
struct Place {
    waker: Waker,
    stream: Option<Stream>,
}

struct Stream {
    ticket: u64,
    session: usize,
    /// It asks for the value of a key.
    value: bool,
    form: usize,
    user: u64,
    keeps_body: bool,
    /// Where messages are counted.
    messages: Option<Messages>,
    state: State,
}

enum State {
    Head(ResponseFuture),
    Body {
        head: Option<http::response::Parts>,
        stream: RecvStream,
        bytes: usize,
        kept: Vec<u8>,
    },
}

/// Notes that something came for a stream.
struct StreamWaker {
    number: usize,
    woken: Arc<Mutex<Vec<usize>>>,
}

impl Wake for StreamWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        woken.push(self.number);
    }
}

impl Streams {
    pub(super) fn new(exchange: Arc<dyn Exchange>) -> Self {
        Self {
            exchange,
            pipe: Pipe::default(),
            session: None,
            streams: Vec::new(),
            free: Vec::new(),
            woken: Arc::default(),
            waiting: VecDeque::new(),
            replies: VecDeque::new(),
            proven: false,
            closing: false,
        }
    }

    /// Streams that have not ended.
    fn open(&self) -> usize {
        self.streams.len() - self.free.len()
    }

    /// Runs the library until it has read all received bytes and written all queued frames.
    fn advance(&mut self) -> Result<(), ProtocolError> {
        let mut context = Context::from_waker(Waker::noop());
        let Some(session) = &mut self.session else {
            return Ok(());
        };
        if let Some(connection) = &mut session.connection
            && let Poll::Ready(ended) = Pin::new(connection).poll(&mut context)
        {
            session.connection = None;
            if let Err(error) = ended
                && !is_farewell(&error)
            {
                return Err(ProtocolError::Http2(error.to_string()));
            }
            self.closing = true;
        }
        if let Poll::Ready(Err(error)) = session.send.poll_ready(&mut context) {
            if !is_farewell(&error) {
                return Err(ProtocolError::Http2(error.to_string()));
            }
            self.closing = true;
        }
        Ok(())
    }

    /// Begins the stream of the first waiting request, if the server allows one more.
    fn begin(&mut self) -> Option<u64> {
        let session = self.session.as_mut()?;
        if self.streams.len() - self.free.len() >= session.send.current_max_send_streams() {
            return None;
        }
        let Waiting { ticket, request } = self.waiting.pop_front()?;
        let Request {
            head,
            body,
            session: asker,
            value,
            form,
            user,
            keeps_body,
        } = request;
        let sent = session.send.send_request(head, body.is_empty());
        let sent = sent.and_then(|(head, mut stream)| {
            if !body.is_empty() {
                stream.send_data(body, true)?;
            }
            Ok(head)
        });
        match sent {
            Ok(head) => {
                let number = self.place(Stream {
                    ticket,
                    session: asker,
                    value,
                    form,
                    user,
                    keeps_body,
                    messages: self.exchange.has_messages().then(Messages::default),
                    state: State::Head(head),
                });
                // The library wakes those who asked.
                self.read(number);
            }
            Err(error) => self.failed(ticket, &error),
        }
        Some(ticket)
    }

    fn place(&mut self, stream: Stream) -> usize {
        let number = self.free.pop().unwrap_or_else(|| {
            let number = self.streams.len();
            let woken = Arc::clone(&self.woken);
            let waker = Waker::from(Arc::new(StreamWaker { number, woken }));
            let stream = None;
            self.streams.push(Place { waker, stream });
            number
        });
        self.streams[number].stream = Some(stream);
        number
    }

    /// Reads the streams for which something came.
    fn read_woken(&mut self) {
        let mut woken = {
            let mut all = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *all)
        };
        for number in woken.drain(..) {
            self.read(number);
        }
    }

    /// Reads the received bytes of a stream; a finished one becomes a reply.
    fn read(&mut self, number: usize) {
        let Place { waker, stream } = &mut self.streams[number];
        // Woken for one that has ended meanwhile.
        let Some(own) = stream else { return };
        let mut context = Context::from_waker(waker);
        let before = own.counted();
        let polled = own.poll(&mut context);
        let ticket = own.ticket;
        let message = Reply {
            ticket,
            fate: Fate::Message,
            code: None,
            bytes: 0,
        };
        if self.exchange.reports_messages() {
            let fresh = (before..own.counted()).map(|_| message.clone());
            self.replies.extend(fresh);
        }
        let Poll::Ready(ended) = polled else { return };
        *stream = None;
        self.free.push(number);
        match ended {
            Ok(response) => {
                self.proven = true;
                let bytes = response.bytes;
                let (fate, code) = self.exchange.reply(response);
                self.replies.push_back(Reply {
                    ticket,
                    fate,
                    code,
                    bytes,
                });
            }
            Err(error) => self.failed(ticket, &error),
        }
    }

    /// A request whose stream broke.
    fn failed(&mut self, ticket: u64, error: &h2::Error) {
        let fate = if is_farewell(error) {
            // Those that the server looked at go on to their end.
            Fate::Untouched
        } else {
            Fate::Failed(ErrorKind::Protocol, format!("HTTP/2: {error}").into_bytes())
        };
        self.replies.push_back(Reply {
            ticket,
            fate,
            code: None,
            bytes: 0,
        });
    }
}

impl Stream {
    /// Whole messages so far.
    fn counted(&self) -> u64 {
        self.messages.as_ref().map_or(0, Messages::whole)
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Response, h2::Error>> {
        if let State::Head(head) = &mut self.state {
            let (head, stream) = match ready!(Pin::new(head).poll(context)) {
                Ok(response) => response.into_parts(),
                Err(error) => return Poll::Ready(Err(error)),
            };
            self.state = State::Body {
                head: Some(head),
                stream,
                bytes: 0,
                kept: Vec::new(),
            };
        }
        let State::Body {
            head,
            stream,
            bytes,
            kept,
        } = &mut self.state
        else {
            return Poll::Pending;
        };
        while let Some(data) = ready!(stream.poll_data(context)) {
            let data = match data {
                Ok(data) => data,
                Err(error) => return Poll::Ready(Err(error)),
            };
            *bytes += data.len();
            if self.keeps_body && kept.len() + data.len() <= REPLY_BYTES_MAX {
                kept.extend_from_slice(&data);
            }
            if let Some(messages) = &mut self.messages {
                messages.take(&data);
            }
            // Nothing needs to be released if the stream has ended.
            let _ = stream.flow_control().release_capacity(data.len());
        }
        let trailers = match ready!(stream.poll_trailers(context)) {
            Ok(trailers) => trailers,
            Err(error) => return Poll::Ready(Err(error)),
        };
        let (bytes, body) = (*bytes, std::mem::take(kept));
        // It is polled no more once it is whole.
        let Some(head) = head.take() else {
            return Poll::Pending;
        };
        Poll::Ready(Ok(Response {
            head,
            trailers,
            session: self.session,
            value: self.value,
            form: self.form,
            user: self.user,
            bytes,
            body,
            messages: self.messages.as_ref().map_or(0, Messages::whole),
        }))
    }
}

/// True if the server said that it takes no more requests, and that nothing is wrong.
fn is_farewell(error: &h2::Error) -> bool {
    error.is_go_away() && error.is_remote() && error.reason() == Some(Reason::NO_ERROR)
}

impl Target for Streams {
    fn greet(&mut self, out: &mut Vec<u8>) -> usize {
        *self = Self::new(Arc::clone(&self.exchange));
        let mut builder = Builder::new();
        builder
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            // No request goes before the server has said how many it takes at once.
            .initial_max_send_streams(0)
            // A request that was given up is none of the server's faults.
            .max_concurrent_reset_streams(RESET_STREAMS)
            .max_local_error_reset_streams(None)
            .enable_push(false);
        let mut handshake = Box::pin(builder.handshake::<_, Bytes>(self.pipe.clone()));
        let mut context = Context::from_waker(Waker::noop());
        // It only writes, and memory takes all of it at once.
        if let Poll::Ready(Ok((send, connection))) = handshake.as_mut().poll(&mut context) {
            let connection = Some(connection);
            self.session = Some(Session { send, connection });
        }
        // What is wrong at the start is met again when the server's first frame comes.
        let _ = self.advance();
        self.pipe.take(out);
        1
    }

    fn encode(&mut self, outgoing: &Outgoing<'_>, _out: &mut Vec<u8>) {
        let ticket = outgoing.request;
        match self.exchange.request(outgoing) {
            Ok(request) => self.waiting.push_back(Waiting { ticket, request }),
            Err(words) => self.replies.push_back(Reply {
                ticket,
                fate: Fate::Failed(ErrorKind::Protocol, words.into_bytes()),
                code: None,
                bytes: 0,
            }),
        }
    }

    fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Option<Incoming<'a>>, ProtocolError> {
        if input.is_empty() {
            return Ok(None);
        }
        self.pipe.push(input);
        let advanced = self.advance();
        self.read_woken();
        advanced?;
        Ok(Some(Incoming::new(GREETING, Answer::Done, input.len())))
    }

    fn has_streams(&self) -> bool {
        true
    }

    fn reports_parts(&self) -> bool {
        self.exchange.reports_messages()
    }

    fn drain(&mut self, out: &mut Vec<u8>) -> Option<u64> {
        let before = out.len();
        self.pipe.take(out);
        if out.len() > before {
            return None;
        }
        let ticket = if self.closing { None } else { self.begin() };
        // An error here comes again with the next bytes of the server.
        let _ = self.advance();
        self.pipe.take(out);
        ticket
    }

    fn next_reply(&mut self) -> Option<Reply> {
        if self.closing
            && let Some(waiting) = self.waiting.pop_front()
        {
            return Some(Reply {
                ticket: waiting.ticket,
                fate: Fate::Untouched,
                code: None,
                bytes: 0,
            });
        }
        self.replies.pop_front()
    }

    fn is_closing(&self) -> bool {
        self.closing
    }

    fn is_proven(&self) -> bool {
        self.proven
    }

    fn is_idle(&self) -> bool {
        self.open() == 0 && self.waiting.is_empty() && self.replies.is_empty()
    }

    fn forget(&mut self, ticket: u64) {
        if let Some(place) = self.waiting.iter().position(|it| it.ticket == ticket) {
            self.waiting.remove(place);
            return;
        }
        let is_its = |place: &Place| place.stream.as_ref().is_some_and(|it| it.ticket == ticket);
        if let Some(number) = self.streams.iter().position(is_its) {
            // The library resets the stream.
            self.streams[number].stream = None;
            self.free.push(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use h2::server::{self, SendResponse};
    use proptest::prelude::*;

    use super::super::tests::{READ, WRITE, driver_of};
    use super::*;

    const ONE: &str = "url = \"http://127.0.0.1:8080/one\"\nhttp2 = true";
    const KEYED: &str =
        "url = \"http://127.0.0.1:8080/{key}\"\nhttp2 = true\noperations = \"write then read\"";

    /// A server of HTTP/2 at the other end, polled by hand as well.
    struct Server {
        pipe: Pipe,
        connection: server::Connection<Pipe, Bytes>,
        asked: HashMap<String, SendResponse<Bytes>>,
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
                    self.server.asked.insert(format!("{method} {path}"), answer);
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
            let outgoing = Outgoing {
                request: ticket,
                number: ticket,
                session: 0,
                intended_ns: unruly_trace::MonoNs(0),
                operation,
            };
            let mut out = Vec::new();
            self.client.encode(&outgoing, &mut out);
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
        let outgoing = Outgoing {
            request: 1,
            number: 1,
            session: 0,
            intended_ns: unruly_trace::MonoNs(0),
            operation: READ,
        };
        client.encode(&outgoing, &mut Vec::new());
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
                prop_assert_eq!(incoming.bytes, input.len());
            }
            client.drain(&mut Vec::new());
        }
    }
}
