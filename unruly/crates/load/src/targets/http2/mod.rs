//! A connection of HTTP/2: many requests at once, a stream each (RFC 9113).
//!
//! First, a request waits here until the server's limit of streams allows it. Second, its fields are
//! compressed and go at once; its body goes as the server's windows allow. Third, each received frame
//! is taken as a whole, and a finished stream is a reply. When the server says that it takes no more
//! requests on this connection (GOAWAY), those that it did not look at are handed back, to be sent on
//! a new one.
//!
//! A library for this exists, h2, and our tests use it as the server. As a client it costs a load
//! generator too much: it limits and counts received bytes, and wakes tasks. An [`Exchange`] makes the
//! requests and judges the responses.

mod fields;
mod frames;
mod hpack;
mod messages;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use unruly_trace::ErrorKind;

pub(super) use self::fields::Fields;
use self::frames::{Frame, code, flag, kind, setting};
use self::hpack::{Decoder, Encoder};
use self::messages::Messages;
use crate::target::{
    Answer, Fate, GREETING, Incoming, Outgoing, ProtocolError, REPLY_BYTES_MAX, Reply, Target,
};

/// Received bytes after which a window is opened again. All windows begin wide open: a load generator
/// takes every reply at once.
const WINDOW_STEP: i64 = 1 << 30;

/// Most bytes of the compressed fields of a message.
const BLOCK_BYTES_MAX: usize = 1 << 20;

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
    /// Its fields, those of the protocol first.
    pub(super) fields: Fields,
    pub(super) body: Bytes,
    pub(super) about: About,
}

/// The part of a request that is not sent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct About {
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
    /// It asks for the header fields alone.
    pub(super) head: bool,
}

/// A whole response.
#[derive(Default)]
pub(super) struct Response {
    /// Its status code.
    pub(super) code: u16,
    pub(super) fields: Fields,
    pub(super) trailers: Option<Fields>,
    /// Its request.
    pub(super) about: About,
    /// The body, where it is looked at.
    pub(super) body: Vec<u8>,
    /// Whole messages in the body, where they are counted.
    pub(super) messages: u64,
}

/// A connection and its streams.
pub(super) struct Streams {
    exchange: Arc<dyn Exchange>,
    encoder: Encoder,
    decoder: Decoder,
    /// What the server allows, once it has said so.
    limits: Option<Limits>,
    /// Bytes that may be sent on all streams together.
    window: i64,
    /// Bytes received since the window of the connection was opened last.
    received: i64,
    /// Those that have not ended, by their numbers.
    streams: HashMap<u32, Stream>,
    /// The number of the next stream.
    next: u32,
    /// Fields of which more frames are to come.
    partial: Option<Partial>,
    /// Streams whose bodies have not gone completely.
    unsent: VecDeque<u32>,
    /// Requests that have no stream yet.
    waiting: VecDeque<Waiting>,
    /// Frames that no request is behind.
    queued: Vec<u8>,
    replies: VecDeque<Reply>,
    /// A request was answered on this connection.
    proven: bool,
    /// The server takes no further request on this connection.
    closing: bool,
}

/// What a server allows.
#[derive(Debug, Clone, Copy)]
struct Limits {
    streams: usize,
    window: i64,
    frame_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            streams: usize::MAX,
            window: frames::WINDOW_BYTES,
            frame_bytes: frames::FRAME_BYTES,
        }
    }
}

/// A request without a stream.
struct Waiting {
    ticket: u64,
    request: Request,
}

/// Fields of which not all frames have come.
struct Partial {
    stream: u32,
    ends: bool,
    block: Vec<u8>,
}

struct Stream {
    ticket: u64,
    about: About,
    /// What of the body has not gone.
    unsent: Bytes,
    /// Bytes that may be sent.
    window: i64,
    /// Bytes received since its window was opened last.
    received: i64,
    /// The status code, once it has come.
    code: Option<u16>,
    fields: Fields,
    trailers: Option<Fields>,
    bytes: usize,
    body: Vec<u8>,
    messages: Messages,
}

fn wrong(words: impl Into<String>) -> ProtocolError {
    ProtocolError::Http2(words.into())
}

impl Streams {
    pub(super) fn new(exchange: Arc<dyn Exchange>) -> Self {
        Self {
            exchange,
            encoder: Encoder::new(),
            decoder: Decoder::new(),
            limits: None,
            window: frames::WINDOW_BYTES,
            received: 0,
            streams: HashMap::new(),
            next: 1,
            partial: None,
            unsent: VecDeque::new(),
            waiting: VecDeque::new(),
            queued: Vec::new(),
            replies: VecDeque::new(),
            proven: false,
            closing: false,
        }
    }

    /// Begins the stream of the first waiting request, if the server allows one more.
    fn begin(&mut self, out: &mut Vec<u8>) -> Option<u64> {
        let limits = self.limits?;
        if self.closing || self.streams.len() >= limits.streams {
            return None;
        }
        let Waiting { ticket, request } = self.waiting.pop_front()?;
        let number = self.next;
        self.next += 2;
        // All numbers are used up then; the next connection has them again.
        self.closing = i64::from(self.next) > frames::WINDOW_BYTES_MAX;
        let block = self.encoder.encode(&request.fields);
        let ends = request.body.is_empty();
        frames::put_headers(out, number, block, ends, limits.frame_bytes);
        let stream = Stream {
            ticket,
            about: request.about,
            unsent: request.body,
            window: limits.window,
            received: 0,
            code: None,
            fields: Fields::default(),
            trailers: None,
            bytes: 0,
            body: Vec::new(),
            messages: Messages::default(),
        };
        self.streams.insert(number, stream);
        if !ends {
            self.send_body(number, out);
        }
        Some(ticket)
    }

    /// Sends of the bodies what the windows allow.
    fn send_bodies(&mut self, out: &mut Vec<u8>) {
        for _ in 0..self.unsent.len() {
            if self.window <= 0 {
                return;
            }
            if let Some(number) = self.unsent.pop_front() {
                self.send_body(number, out);
            }
        }
    }

    /// Sends of a body what the windows allow. The rest has its turn after the other bodies.
    fn send_body(&mut self, number: u32, out: &mut Vec<u8>) {
        let frame_bytes = self.limits.unwrap_or_default().frame_bytes;
        let Some(stream) = self.streams.get_mut(&number) else {
            return;
        };
        loop {
            let window = usize::try_from(self.window.min(stream.window)).unwrap_or(0);
            let bytes = stream.unsent.len().min(frame_bytes).min(window);
            if bytes == 0 {
                break;
            }
            let last = bytes == stream.unsent.len();
            let flags = if last { flag::END_STREAM } else { 0 };
            frames::put(out, kind::DATA, flags, number, &stream.unsent[..bytes]);
            stream.unsent.advance(bytes);
            let bytes = i64::try_from(bytes).unwrap_or(0);
            self.window -= bytes;
            stream.window -= bytes;
        }
        if !stream.unsent.is_empty() {
            self.unsent.push_back(number);
        }
    }

    fn take(&mut self, frame: &Frame<'_>) -> Result<(), ProtocolError> {
        let first = self.limits.is_none() && frame.kind != kind::SETTINGS;
        let torn = self.partial.is_some() != (frame.kind == kind::CONTINUATION);
        if first || torn {
            return Err(wrong("a frame that may not come there"));
        }
        match frame.kind {
            kind::DATA => self.data(frame),
            kind::HEADERS | kind::CONTINUATION => self.headers(frame),
            kind::RESET => {
                let code = frame.payload.try_into().map(u32::from_be_bytes);
                let code = code.map_err(|_| wrong("a RST_STREAM without a code"))?;
                let words = format!("the server ended the stream: {}", frames::name_of(code));
                self.end(frame.stream, &words);
                Ok(())
            }
            kind::SETTINGS if frame.has(flag::REPLY) => Ok(()),
            kind::SETTINGS => self.settings(frame),
            kind::PUSH => Err(wrong("a PUSH_PROMISE, though our settings forbid it")),
            kind::PING => {
                if !frame.has(flag::REPLY) {
                    frames::put(&mut self.queued, kind::PING, flag::REPLY, 0, frame.payload);
                }
                Ok(())
            }
            kind::FAREWELL => self.farewell(frame.payload),
            kind::WINDOW => self.open_window(frame),
            // A server may send kinds that only some clients know.
            _ => Ok(()),
        }
    }

    fn settings(&mut self, frame: &Frame<'_>) -> Result<(), ProtocolError> {
        let settings = frame.settings().ok_or_else(|| wrong("broken SETTINGS"))?;
        let mut limits = self.limits.unwrap_or_default();
        let window_before = limits.window;
        for (name, value) in settings {
            let size = usize::try_from(value).unwrap_or(usize::MAX);
            match name {
                setting::TABLE_BYTES => self.encoder.limit(size),
                setting::STREAMS_MAX => limits.streams = size,
                setting::FRAME_BYTES => {
                    limits.frame_bytes = size.clamp(frames::FRAME_BYTES, frames::FRAME_BYTES_MAX);
                }
                setting::WINDOW_BYTES => limits.window = i64::from(value),
                _ => {}
            }
        }
        if limits.window > frames::WINDOW_BYTES_MAX {
            return Err(wrong(WIDE));
        }
        if limits.window != window_before {
            for stream in self.streams.values_mut() {
                stream.window += limits.window - window_before;
            }
        }
        self.limits = Some(limits);
        frames::put(&mut self.queued, kind::SETTINGS, flag::REPLY, 0, b"");
        Ok(())
    }

    fn open_window(&mut self, frame: &Frame<'_>) -> Result<(), ProtocolError> {
        let more = frame.payload.try_into().map(frames::number);
        let more = i64::from(more.map_err(|_| wrong("a broken WINDOW_UPDATE"))?);
        if frame.stream == 0 {
            self.window += more;
            return match self.window > frames::WINDOW_BYTES_MAX {
                true => Err(wrong(WIDE)),
                false => Ok(()),
            };
        }
        let stream = self.streams.get_mut(&frame.stream);
        let wide = stream.is_some_and(|stream| {
            stream.window += more;
            stream.window > frames::WINDOW_BYTES_MAX
        });
        if wide {
            self.fail(frame.stream, WIDE);
        }
        Ok(())
    }

    /// The server takes no more requests; it has looked at those up to a number.
    fn farewell(&mut self, payload: &[u8]) -> Result<(), ProtocolError> {
        self.closing = true;
        let broken = || wrong("a broken GOAWAY");
        let (last, rest) = payload.split_first_chunk::<4>().ok_or_else(broken)?;
        let (code, words) = rest.split_first_chunk::<4>().ok_or_else(broken)?;
        let code = u32::from_be_bytes(*code);
        if code != code::NONE {
            let words = String::from_utf8_lossy(&words[..words.len().min(100)]);
            let said = format!("the server ends the connection: {}", frames::name_of(code));
            return Err(wrong(match words.as_ref() {
                "" => said,
                words => format!("{said} ({words})"),
            }));
        }
        let last = frames::number(*last);
        let mut untouched: Vec<u32> = self.streams.keys().copied().collect();
        untouched.retain(|number| *number > last);
        untouched.sort_unstable();
        for number in untouched {
            if let Some(stream) = self.streams.remove(&number) {
                self.replies
                    .push_back(reply(stream.ticket, Fate::Untouched));
            }
        }
        Ok(())
    }

    fn headers(&mut self, frame: &Frame<'_>) -> Result<(), ProtocolError> {
        let content = frame.content().ok_or_else(|| wrong("broken HEADERS"))?;
        let whole = frame.has(flag::END_HEADERS);
        let Some(mut partial) = self.partial.take() else {
            let ends = frame.has(flag::END_STREAM);
            if whole {
                return self.fields(frame.stream, ends, content);
            }
            self.partial = Some(Partial {
                stream: frame.stream,
                ends,
                block: content.to_vec(),
            });
            return Ok(());
        };
        partial.block.extend_from_slice(frame.payload);
        if partial.stream != frame.stream || partial.block.len() > BLOCK_BYTES_MAX {
            return Err(wrong("broken CONTINUATION"));
        }
        if whole {
            return self.fields(partial.stream, partial.ends, &partial.block);
        }
        self.partial = Some(partial);
        Ok(())
    }

    /// Takes the fields of a response, or its trailers.
    fn fields(&mut self, number: u32, ends: bool, block: &[u8]) -> Result<(), ProtocolError> {
        let mut fields = Fields::default();
        // Also those that nobody waits for: they change the table of all later ones.
        let read = self.decoder.decode(block, &mut fields);
        read.map_err(|_| wrong("header fields that cannot be read"))?;
        self.known(number)?;
        let Some(stream) = self.streams.get_mut(&number) else {
            return Ok(());
        };
        if stream.code.is_some() {
            if !ends || fields.has_names_of_protocol() {
                self.fail(number, "broken trailers");
                return Ok(());
            }
            stream.trailers = Some(fields);
        } else {
            match fields.status() {
                // What is not the response yet, such as 103.
                Some(100..200) if !ends => return Ok(()),
                Some(status @ 200..) => {
                    stream.code = Some(status);
                    stream.fields = fields;
                }
                _ => {
                    self.fail(number, "a response without a status, or with broken fields");
                    return Ok(());
                }
            }
        }
        if ends {
            self.finish(number);
        }
        Ok(())
    }

    /// Refuses a number that no stream has had.
    fn known(&self, number: u32) -> Result<(), ProtocolError> {
        if number % 2 == 1 && number < self.next {
            return Ok(());
        }
        Err(wrong("a response to nothing that was asked"))
    }

    fn data(&mut self, frame: &Frame<'_>) -> Result<(), ProtocolError> {
        let content = frame.content().ok_or_else(|| wrong("broken DATA"))?;
        self.known(frame.stream)?;
        // Padding counts too.
        let bytes = i64::try_from(frame.payload.len()).unwrap_or(0);
        self.received += bytes;
        if self.received > WINDOW_STEP {
            frames::put_window(&mut self.queued, 0, self.received);
            self.received = 0;
        }
        let Some(stream) = self.streams.get_mut(&frame.stream) else {
            return Ok(());
        };
        if stream.code.is_none() {
            self.fail(frame.stream, "a body before its status");
            return Ok(());
        }
        stream.received += bytes;
        let ends = frame.has(flag::END_STREAM);
        if stream.received > WINDOW_STEP && !ends {
            frames::put_window(&mut self.queued, frame.stream, stream.received);
            stream.received = 0;
        }
        stream.bytes += content.len();
        if stream.about.keeps_body && stream.body.len() + content.len() <= REPLY_BYTES_MAX {
            stream.body.extend_from_slice(content);
        }
        if self.exchange.has_messages() {
            let before = stream.messages.whole();
            stream.messages.take(content);
            if self.exchange.reports_messages() {
                for _ in before..stream.messages.whole() {
                    self.replies.push_back(reply(stream.ticket, Fate::Message));
                }
            }
        }
        if ends {
            self.finish(frame.stream);
        }
        Ok(())
    }

    /// A response is whole.
    fn finish(&mut self, number: u32) {
        if self.streams.get(&number).is_some_and(Stream::is_torn) {
            return self.fail(number, "a body of another length than its header says");
        }
        let Some(stream) = self.streams.remove(&number) else {
            return;
        };
        self.proven = true;
        if !stream.unsent.is_empty() {
            // The server did not wait for the rest of the body, and it is of no use any more.
            frames::put_reset(&mut self.queued, number, code::CANCEL);
        }
        let (ticket, bytes) = (stream.ticket, stream.bytes);
        let (fate, code) = self.exchange.reply(Response {
            code: stream.code.unwrap_or_default(),
            fields: stream.fields,
            trailers: stream.trailers,
            about: stream.about,
            body: stream.body,
            messages: stream.messages.whole(),
        });
        self.replies.push_back(Reply {
            ticket,
            fate,
            code,
            bytes,
        });
    }

    /// A response is broken; the connection goes on. The server learns that nobody waits any more.
    fn fail(&mut self, number: u32, words: &str) {
        frames::put_reset(&mut self.queued, number, code::PROTOCOL);
        self.end(number, words);
    }

    /// A stream ended without a response.
    fn end(&mut self, number: u32, words: &str) {
        if let Some(stream) = self.streams.remove(&number) {
            let words = format!("HTTP/2: {words}").into_bytes();
            let fate = Fate::Failed(ErrorKind::Protocol, words);
            self.replies.push_back(reply(stream.ticket, fate));
        }
    }
}

const WIDE: &str = "a window of over 2 GiB";

impl Stream {
    /// True if the body that came has not the length that its header says (RFC 9110, 8.6). A response
    /// to HEAD has such a header and no body, and so may 204 and 304.
    fn is_torn(&self) -> bool {
        if self.about.head || matches!(self.code, Some(204 | 304)) {
            return false;
        }
        let length = |it: &[u8]| std::str::from_utf8(it).ok()?.parse::<usize>().ok();
        let mut lengths = self.fields.get_all("content-length");
        lengths.any(|it| length(it) != Some(self.bytes))
    }
}

/// A reply that has no code and no body.
const fn reply(ticket: u64, fate: Fate) -> Reply {
    Reply {
        ticket,
        fate,
        code: None,
        bytes: 0,
    }
}

impl Target for Streams {
    fn greet(&mut self, out: &mut Vec<u8>) -> usize {
        *self = Self::new(Arc::clone(&self.exchange));
        out.extend_from_slice(frames::PREFACE);
        let wide = u32::try_from(frames::WINDOW_BYTES_MAX).unwrap_or(0);
        let settings = [(setting::PUSH, 0), (setting::WINDOW_BYTES, wide)];
        frames::put_settings(out, &settings);
        frames::put_window(out, 0, frames::WINDOW_BYTES_MAX - frames::WINDOW_BYTES);
        1
    }

    fn encode(&mut self, outgoing: &Outgoing<'_>, _out: &mut Vec<u8>) {
        let ticket = outgoing.request;
        match self.exchange.request(outgoing) {
            Ok(request) => self.waiting.push_back(Waiting { ticket, request }),
            Err(words) => {
                let fate = Fate::Failed(ErrorKind::Protocol, words.into_bytes());
                self.replies.push_back(reply(ticket, fate));
            }
        }
    }

    fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Option<Incoming<'a>>, ProtocolError> {
        let mut bytes = 0;
        loop {
            let frame = frames::frame(&input[bytes..]);
            let frame = frame.map_err(|length| wrong(format!("a frame of {length} bytes")))?;
            let Some(frame) = frame else { break };
            self.take(&frame)?;
            bytes += frames::HEAD_BYTES + frame.payload.len();
        }
        Ok((bytes > 0).then(|| Incoming::new(GREETING, Answer::Done, bytes)))
    }

    fn has_streams(&self) -> bool {
        true
    }

    fn drain(&mut self, out: &mut Vec<u8>) -> Option<u64> {
        let before = out.len();
        out.append(&mut self.queued);
        if !self.unsent.is_empty() {
            self.send_bodies(out);
        }
        if out.len() > before {
            return None;
        }
        self.begin(out)
    }

    fn next_reply(&mut self) -> Option<Reply> {
        if self.closing
            && let Some(waiting) = self.waiting.pop_front()
        {
            return Some(reply(waiting.ticket, Fate::Untouched));
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
        self.streams.is_empty() && self.waiting.is_empty() && self.replies.is_empty()
    }

    fn forget(&mut self, ticket: u64) {
        if let Some(place) = self.waiting.iter().position(|it| it.ticket == ticket) {
            self.waiting.remove(place);
            return;
        }
        let open = self.streams.iter().find(|(_, it)| it.ticket == ticket);
        if let Some(number) = open.map(|(number, _)| *number) {
            self.streams.remove(&number);
            frames::put_reset(&mut self.queued, number, code::CANCEL);
        }
    }
}
