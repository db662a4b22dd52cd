//! A language model, by the API of OpenAI over HTTP/1.1: a reply is a stream of tokens.
//!
//! A streamed reply is a list of server-sent events, a line of JSON each. Every event with text is a
//! token here, which the engine writes down with the time at which it came. Most servers send one
//! token in an event; one that sends several has fewer of them. The request ends with its response.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use unruly_plan::{Auth, Store};
use unruly_trace::ErrorKind;

use super::super::{DriverError, Settings};
use super::response::{Head, head};
use super::{Asking, judged};
use crate::target::{Answer, GREETING, Incoming, Outgoing, ProtocolError, Target};

/// Longest line of a stream.
const LINE_BYTES_MAX: usize = 1 << 20;

/// The store as the HTTP driver asks it: the API's path, and the body that holds the prompt.
///
/// # Errors
///
/// When an option of the URL is unknown, or has a value that it cannot have.
pub(super) fn store(settings: &Settings<'_>) -> Result<Store, DriverError> {
    let mut store = settings.store.clone();
    let url = &settings.store.url;
    let wrong = |name: &str, value: &str, wanted: &str| {
        DriverError::new(
            "url",
            format!("{name}={value}"),
            format!("wanted {wanted}"),
            "see unruly/docs/llm.md",
        )
    };
    let chat = match url.option("api").unwrap_or("chat") {
        "chat" => true,
        "completions" => false,
        other => return Err(wrong("api", other, "chat or completions")),
    };
    let stream = match url.option("stream").unwrap_or("true") {
        "true" => true,
        "false" => false,
        other => return Err(wrong("stream", other, "true or false")),
    };
    let limit = match url.option("max_tokens").map(|it| (it, it.parse::<u32>())) {
        None => None,
        Some((_, Ok(limit))) if limit > 0 => Some(limit),
        Some((given, _)) => return Err(wrong("max_tokens", given, "a number above 0")),
    };
    let Some(http) = &mut store.http else {
        return Ok(store);
    };
    let about_body = ["model", "max_tokens", "stream"];
    let given = about_body
        .into_iter()
        .find_map(|it| url.option(it).map(|value| (it, value)));
    if let Some((name, value)) = given.filter(|_| http.prompt.is_none()) {
        return Err(wrong(name, value, "it in the body, which is sent as it is"));
    }
    if let Some(prompt) = &http.prompt {
        let model = url.option("model").unwrap_or("default");
        let mut body = match chat {
            true => json!({"model": model, "messages": [{"role": "user", "content": prompt}]}),
            false => json!({"model": model, "prompt": prompt}),
        };
        body["stream"] = json!(stream);
        if let Some(limit) = limit {
            body["max_tokens"] = json!(limit);
        }
        http.body = Some(body.to_string());
    }
    if !http.headers.has("content-type") {
        let lines = format!("{}\nContent-Type: application/json", http.headers);
        http.headers = lines.parse().unwrap_or_default();
    }
    // Such servers take tokens, and none of them takes a user.
    if settings.password.is_some() && url.user.is_empty() {
        http.auth = Auth::Bearer;
    }
    let path = url.path.trim_end_matches('/');
    store.url.path = match chat {
        true => format!("{path}/chat/completions"),
        false => format!("{path}/completions"),
    };
    store.url.query = String::new();
    Ok(store)
}

/// One connection.
pub(super) struct Tokens {
    http: Arc<Asking>,
    asked: Option<u64>,
    stream: Option<Stream>,
}

/// A streamed reply of which the head was read.
struct Stream {
    code: u16,
    closes: bool,
    framing: Framing,
    /// The beginning of a line whose rest has not come.
    line: Vec<u8>,
    /// An event said that no token follows.
    ended: bool,
    /// A token came, or an event said why there is none.
    told: bool,
    /// An event said that something went wrong.
    broken: bool,
}

/// Where the body of a stream ends.
enum Framing {
    /// After this number of bytes.
    Length(usize),
    /// In chunks: the number of bytes that are left of this one, with its end.
    Chunks(usize),
    /// With the connection.
    UntilClose,
}

/// What an event says, as far as it matters here.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default)]
    choices: Vec<Choice<'a>>,
    error: Option<serde::de::IgnoredAny>,
    #[serde(borrow)]
    object: Option<std::borrow::Cow<'a, str>>,
}

impl Event<'_> {
    fn is_error(&self) -> bool {
        self.error.is_some() || self.object.as_deref() == Some("error")
    }
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    #[serde(borrow)]
    text: Option<std::borrow::Cow<'a, str>>,
    finish_reason: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Option<std::borrow::Cow<'a, str>>,
    /// The thinking before the answer, which servers name in two ways.
    #[serde(borrow)]
    reasoning_content: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow)]
    reasoning: Option<std::borrow::Cow<'a, str>>,
}

/// What a line of a stream is.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Token,
    /// Why the text ends.
    Finish,
    End,
    Broken,
    Other,
}

/// Reads a line of a stream, without its end.
fn line(bytes: &[u8]) -> Line {
    let Some(data) = bytes.strip_prefix(b"data:") else {
        return Line::Other;
    };
    let data = data.trim_ascii();
    if data == b"[DONE]" {
        return Line::End;
    }
    let Ok(event) = serde_json::from_slice::<Event<'_>>(data) else {
        return Line::Broken;
    };
    if event.is_error() {
        return Line::Broken;
    }
    let has_text = |choice: &Choice<'_>| {
        let delta = choice.delta.as_ref();
        let texts = [
            choice.text.as_ref(),
            delta.and_then(|it| it.content.as_ref()),
            delta.and_then(|it| it.reasoning_content.as_ref()),
            delta.and_then(|it| it.reasoning.as_ref()),
        ];
        texts.into_iter().flatten().any(|text| !text.is_empty())
    };
    if event.choices.iter().any(has_text) {
        Line::Token
    } else if event.choices.iter().any(|it| it.finish_reason.is_some()) {
        Line::Finish
    } else {
        Line::Other
    }
}

impl Tokens {
    pub(super) fn new(http: Arc<Asking>) -> Self {
        Self {
            http,
            asked: None,
            stream: None,
        }
    }

    /// The reply that ends here.
    fn reply<'a>(
        &mut self,
        answer: Answer<'a>,
        code: u16,
        closes: bool,
        bytes: usize,
    ) -> Result<Incoming<'a>, ProtocolError> {
        self.stream = None;
        let request = self.asked.take().ok_or(ProtocolError::Unasked)?;
        Ok(Incoming {
            code: Some(code),
            closes: closes || !self.http.keep_alive,
            ..Incoming::new(request, answer, bytes)
        })
    }

    /// The reply of a stream that ends here.
    fn end<'a>(&mut self, bytes: usize) -> Result<Incoming<'a>, ProtocolError> {
        let (mut answer, mut code, mut closes) = (Answer::Done, 200, false);
        if let Some(stream) = &mut self.stream {
            // The last line may have no end.
            let last = line(stream.line.trim_ascii());
            stream.note(&last);
            (code, closes) = (stream.code, stream.closes);
            if stream.broken {
                answer = Answer::Failed(ErrorKind::Store, b"the stream reports an error");
            } else if !stream.ended {
                let words = b"the stream ended before its last token";
                answer = Answer::Failed(ErrorKind::Protocol, words);
            } else if !stream.told {
                let words = b"the stream has no token, and no reason why it has none";
                answer = Answer::Failed(ErrorKind::Protocol, words);
            }
        }
        self.reply(answer, code, closes, bytes)
    }

    /// What a reply says that is no stream. Some servers report an error with the code of a success.
    fn judged<'a>(&self, head: &Head<'a>, body: Option<&[u8]>) -> Answer<'a> {
        let event = body.and_then(|it| serde_json::from_slice::<Event<'_>>(it).ok());
        let expect = &self.http.ask(0).expect;
        if expect.has(head.status) && event.is_some_and(|it| it.is_error()) {
            return Answer::Failed(ErrorKind::Store, b"the reply reports an error");
        }
        judged(expect, head.status, false, head.line, None)
    }

    fn begin<'a>(
        &mut self,
        input: &'a [u8],
        head: &Head<'a>,
    ) -> Result<Option<Incoming<'a>>, ProtocolError> {
        let good = self.http.ask(0).expect.has(head.status) && head.has_events;
        if !good {
            let Some((body, bytes)) = head.body(input)? else {
                return Ok(None);
            };
            let answer = self.judged(head, body);
            return self
                .reply(answer, head.status, head.closes, bytes)
                .map(Some);
        }
        let framing = match head.known_length() {
            _ if head.is_chunked() => Framing::Chunks(0),
            Some(length) => Framing::Length(length),
            None => Framing::UntilClose,
        };
        self.stream = Some(Stream {
            code: head.status,
            closes: head.closes,
            framing,
            line: Vec::new(),
            ended: false,
            told: false,
            broken: false,
        });
        if matches!(head.known_length(), Some(0)) {
            return self.end(head.bytes).map(Some);
        }
        Ok(Some(step(head.bytes)))
    }
}

/// Bytes that were taken, and are no reply yet.
fn step<'a>(bytes: usize) -> Incoming<'a> {
    Incoming::new(GREETING, Answer::Done, bytes)
}

impl Stream {
    /// Takes bytes of the body up to the end of a line. Returns how many, and what the line is.
    fn take(&mut self, body: &[u8]) -> Result<(usize, Line), ProtocolError> {
        let end = body.iter().position(|byte| *byte == b'\n');
        let bytes = end.map_or(body.len(), |end| end + 1);
        self.line.extend_from_slice(&body[..bytes]);
        if self.line.len() > LINE_BYTES_MAX {
            return Err(ProtocolError::reply(body, "the end of an event"));
        }
        if end.is_none() {
            return Ok((bytes, Line::Other));
        }
        let kind = line(self.line.trim_ascii_end());
        self.line.clear();
        self.note(&kind);
        Ok((bytes, kind))
    }

    /// Notes what a line says of the whole stream.
    fn note(&mut self, kind: &Line) {
        self.ended |= matches!(kind, Line::End | Line::Finish);
        self.told |= matches!(kind, Line::Token | Line::Finish);
        self.broken |= *kind == Line::Broken;
    }
}

impl Target for Tokens {
    fn greet(&mut self, _out: &mut Vec<u8>) -> usize {
        (self.asked, self.stream) = (None, None);
        0
    }

    fn encode(&mut self, outgoing: &Outgoing<'_>, out: &mut Vec<u8>) {
        (self.asked, self.stream) = (Some(outgoing.request), None);
        self.http.ask(0).form.write(outgoing, out);
    }

    fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Option<Incoming<'a>>, ProtocolError> {
        let Some(stream) = &mut self.stream else {
            return match head(input, false)? {
                None => Ok(None),
                Some(head) if head.status < 200 => Ok(Some(step(head.bytes))),
                Some(head) => self.begin(input, &head),
            };
        };
        let left = match &stream.framing {
            Framing::UntilClose => input.len(),
            Framing::Length(left) => *left,
            Framing::Chunks(0) => return self.next_chunk(input),
            // The line end of a chunk is no part of the body.
            Framing::Chunks(2) => return Ok(chunk_end(stream, input)),
            Framing::Chunks(1) => {
                stream.framing = Framing::Chunks(0);
                return Ok(Some(step(1)));
            }
            Framing::Chunks(left) => left - 2,
        };
        let body = &input[..left.min(input.len())];
        if body.is_empty() {
            return Ok(None);
        }
        let (mut bytes, kind) = stream.take(body)?;
        if kind == Line::Token && matches!(stream.framing, Framing::Length(left) if left == bytes) {
            // A token and the end of the reply are two things: the line's end is left for the second.
            bytes -= 1;
        }
        match &mut stream.framing {
            Framing::Length(left) | Framing::Chunks(left) => *left -= bytes,
            Framing::UntilClose => {}
        }
        let over = matches!(stream.framing, Framing::Length(0));
        if kind == Line::Token
            && let Some(request) = self.asked
        {
            return Ok(Some(Incoming::new(request, Answer::Token, bytes)));
        }
        if over {
            return self.end(bytes).map(Some);
        }
        Ok(Some(step(bytes)))
    }

    fn decode_end<'a>(&mut self, input: &'a [u8]) -> Result<Option<Incoming<'a>>, ProtocolError> {
        match &self.stream {
            Some(Stream {
                framing: Framing::UntilClose,
                ..
            }) => self.end(input.len()).map(Some),
            Some(stream) => {
                let code = stream.code;
                let answer = Answer::Failed(ErrorKind::Reset, b"the stream was cut off");
                self.reply(answer, code, true, input.len()).map(Some)
            }
            None => match head(input, false)? {
                Some(head) if head.is_until_close() => {
                    let answer = self.judged(&head, Some(&input[head.bytes..]));
                    self.reply(answer, head.status, true, input.len()).map(Some)
                }
                _ => Ok(None),
            },
        }
    }

    fn is_one_at_a_time(&self) -> bool {
        true
    }

    fn may_send_again(&self) -> bool {
        false
    }
}

/// Takes the first byte of a chunk's line end.
fn chunk_end<'a>(stream: &mut Stream, input: &[u8]) -> Option<Incoming<'a>> {
    if input.is_empty() {
        return None;
    }
    stream.framing = Framing::Chunks(1);
    Some(step(1))
}

impl Tokens {
    /// Takes the line with the length of the next chunk. The last chunk ends the reply.
    fn next_chunk<'a>(&mut self, input: &'a [u8]) -> Result<Option<Incoming<'a>>, ProtocolError> {
        let wrong = || ProtocolError::reply(input, "a chunk of a stream");
        let parsed = httparse::parse_chunk_size(input).map_err(|_| wrong())?;
        let httparse::Status::Complete((bytes, length)) = parsed else {
            return Ok(None);
        };
        let length = usize::try_from(length).map_err(|_| wrong())?;
        if length == 0 {
            let end = super::response::end_of_trailers(input, bytes)?;
            return end.map(|bytes| self.end(bytes)).transpose();
        }
        if let Some(stream) = &mut self.stream {
            stream.framing = Framing::Chunks(length.checked_add(2).ok_or_else(wrong)?);
        }
        Ok(Some(step(bytes)))
    }
}
