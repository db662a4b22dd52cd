//! A server of messages over TCP, each in a frame: `tcp://host:7000?framing=lines`, or `tls://`.
//!
//! First, a request is the text of the plan with its values. Second, it goes in a frame, so that the
//! server sees where it ends. Third, replies come in the same frames and in the order of the
//! requests, of which several may be under way on a connection.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use percent_encoding::percent_decode_str;
use redis_protocol::resp2::decode::decode_range;
use redis_protocol::resp2::types::RangeFrame;
use unruly_plan::Portion;
use unruly_trace::ErrorKind;

use super::redis::{NESTING_MAX, failure, line, nesting};
use super::template::{Data, Escape, Template, Turn};
use super::{Driver, DriverError, Protocol, Settings, places_by, without_level, without_path};
use crate::link::Place;
use crate::target::{Answer, Incoming, Outgoing, ProtocolError, REPLY_BYTES_MAX, Target};

/// Bytes of a length before a message.
const LENGTH_BYTES: usize = 4;

pub(super) fn make(settings: &Settings<'_>) -> Result<Box<dyn Driver>, DriverError> {
    without_level(settings)?;
    without_path(settings)?;
    without_login(settings)?;
    let url = &settings.store.url;
    let wrong = |wrong: String, wanted: &str| {
        let hint = format!("{}://host:7000?framing=lines", url.scheme);
        DriverError::new("url", wrong, wanted, hint)
    };
    if url.hosts.iter().any(|(_, port)| port.is_none()) {
        return Err(wrong("it has no port".to_owned(), "wanted host:port"));
    }
    let framing = Framing::of(url.option("framing").unwrap_or("lines"))
        .map_err(|word| wrong(format!("framing is {word:?}"), FRAMINGS))?;
    let contains = url.option("contains").map(|it| {
        let text: Vec<u8> = percent_decode_str(it).collect();
        text
    });
    let form = Form::new(settings, framing, contains)?;
    Ok(Box::new(Framed {
        places: places_by(settings, 0, 0, Protocol::None)?,
        form: Arc::new(form),
    }))
}

/// Refuses a user and a password.
pub(super) fn without_login(settings: &Settings<'_>) -> Result<(), DriverError> {
    let url = &settings.store.url;
    if settings.password.is_none() && url.user.is_empty() {
        return Ok(());
    }
    Err(DriverError::new(
        "url",
        format!("{} is asked with a user or a password", url.scheme),
        "wanted none: the protocol has no login",
        "leave them out",
    ))
}

/// How a message shows where it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// A line feed ends it.
    Lines,
    /// Its length stands before it, in four bytes with the highest first.
    Length4,
    /// It is a value of RESP, the protocol of Redis; the words of a request are an array.
    Resp,
}

const FRAMINGS: &str = "wanted lines, length4 or resp";

impl Framing {
    fn of(word: &str) -> Result<Self, &str> {
        Ok(match word {
            "lines" => Self::Lines,
            "length4" => Self::Length4,
            "resp" => Self::Resp,
            _ => return Err(word),
        })
    }

    /// Where the message at the start of `input` stands and how long its frame is, and whether it says
    /// that the request failed; `None` when more bytes are needed.
    /// `scanned` bytes have been looked at before.
    fn message(self, input: &[u8], scanned: usize) -> Result<Option<Message>, ProtocolError> {
        let whole = |body: Range<usize>, bytes| Message {
            body,
            bytes,
            failed: false,
        };
        Ok(match self {
            Self::Lines => line_end(input, scanned).map(|end| {
                let body = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
                whole(0..body.len(), end + 1)
            }),
            Self::Length4 => {
                let Some(length) = input.first_chunk::<LENGTH_BYTES>() else {
                    return Ok(None);
                };
                let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
                if length > REPLY_BYTES_MAX {
                    return Err(ProtocolError::reply(input, "a length of at most 32 MiB"));
                }
                let bytes = LENGTH_BYTES + length;
                (input.len() >= bytes).then(|| whole(LENGTH_BYTES..bytes, bytes))
            }
            Self::Resp => {
                let wrong = || ProtocolError::reply(input, "a value of RESP");
                if nesting(input) > NESTING_MAX {
                    return Err(wrong());
                }
                let decoded = decode_range(input).map_err(|_| wrong())?;
                decoded.map(|(frame, bytes)| Message {
                    body: match &frame {
                        RangeFrame::Error(range)
                        | RangeFrame::SimpleString(range)
                        | RangeFrame::BulkString(range) => range.0..range.1,
                        _ => 0..bytes,
                    },
                    bytes,
                    failed: matches!(frame, RangeFrame::Error(_)),
                })
            }
        })
    }
}

/// Where the first line ends, of which some bytes have been looked at.
fn line_end(input: &[u8], scanned: usize) -> Option<usize> {
    let fresh = input.get(scanned..)?;
    let end = fresh.iter().position(|byte| *byte == b'\n')?;
    Some(scanned + end)
}

/// A message in its frame.
#[derive(Debug, PartialEq, Eq)]
struct Message {
    body: Range<usize>,
    /// How long the frame is.
    bytes: usize,
    /// It says that the request failed.
    failed: bool,
}

/// What requests say, and what replies must say.
#[derive(Debug)]
struct Form {
    framing: Framing,
    /// The text; its words with RESP.
    parts: Vec<Template>,
    contains: Option<Vec<u8>>,
    data: Option<Data>,
    seed: u64,
    portion: Portion,
}

impl Form {
    fn new(
        settings: &Settings<'_>,
        framing: Framing,
        contains: Option<Vec<u8>>,
    ) -> Result<Self, DriverError> {
        let message = settings.store.message.clone().unwrap_or_default();
        let data = message.data.as_deref().map(Data::read).transpose()?;
        let text = message.text.unwrap_or_default();
        let wrong = |wrong: &str, wanted: &str, hint: &str| {
            Err(DriverError::new("message", wrong, wanted, hint))
        };
        if framing == Framing::Resp && text.matches('"').count() % 2 == 1 {
            let hint = "message = 'SET k \"a b\"'";
            return wrong(
                "it has a quote without an end",
                "wanted words, or pairs of quotes",
                hint,
            );
        }
        let words = match framing {
            Framing::Resp => words(&text),
            _ => vec![text],
        };
        if words.is_empty() {
            return wrong("it has no words", "wanted a command", "message = \"PING\"");
        }
        if framing == Framing::Lines && words[0].contains('\n') {
            return wrong(
                "it has several lines",
                "wanted one: a line feed ends a message",
                "use ?framing=length4, or one line",
            );
        }
        let parts = words
            .iter()
            .map(|word| Template::parse("message", word, Escape::Body, data.as_ref()));
        let parts: Vec<Template> = parts.collect::<Result<_, _>>()?;
        if framing == Framing::Lines {
            parts[0].check_lines(data.as_ref(), "a message of one line", |it| it == '\n')?;
        }
        if let Some(file) = message
            .data
            .filter(|_| !parts.iter().any(Template::has_data))
        {
            return Err(DriverError::new(
                "data",
                format!("no value of {file} is sent"),
                "wanted {data.COLUMN} in the message",
                "see unruly/docs/messages.md",
            ));
        }
        Ok(Self {
            framing,
            parts,
            contains,
            data,
            seed: settings.seed,
            portion: settings.portion,
        })
    }

    /// Appends the message of a request in its frame.
    fn write(&self, number: u64, out: &mut Vec<u8>) {
        let turn = Turn::new(self.seed, self.portion, number, "");
        let start = out.len();
        match self.framing {
            Framing::Lines => {
                self.parts[0].write(&turn, self.data.as_ref(), out);
                out.push(b'\n');
            }
            Framing::Length4 => {
                out.extend_from_slice(&[0; LENGTH_BYTES]);
                self.parts[0].write(&turn, self.data.as_ref(), out);
                let length = out.len() - start - LENGTH_BYTES;
                let length = u32::try_from(length).unwrap_or(u32::MAX);
                out[start..start + LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
            }
            Framing::Resp => {
                line(out, b'*', self.parts.len());
                let mut word = Vec::new();
                for part in &self.parts {
                    word.clear();
                    part.write(&turn, self.data.as_ref(), &mut word);
                    line(out, b'$', word.len());
                    out.extend_from_slice(&word);
                    out.extend_from_slice(b"\r\n");
                }
            }
        }
    }

    fn judge<'a>(&self, body: &'a [u8], failed: bool) -> Answer<'a> {
        if failed {
            return failure(body);
        }
        let found =
            |text: &Vec<u8>| text.is_empty() || body.windows(text.len()).any(|it| it == text);
        match &self.contains {
            Some(text) if !found(text) => Answer::Failed(ErrorKind::Content, body),
            _ => Answer::Done,
        }
    }
}

/// The words of a text: between spaces, or between double quotes.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (number, part) in text.split('"').enumerate() {
        if number % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

struct Framed {
    places: Vec<Place>,
    form: Arc<Form>,
}

impl Driver for Framed {
    fn places(&self) -> &[Place] {
        &self.places
    }

    fn target(&self, _place: usize) -> Box<dyn Target> {
        Box::new(Connection {
            form: Arc::clone(&self.form),
            asked: VecDeque::new(),
            scanned: 0,
        })
    }

    fn about(&self) -> Option<String> {
        self.form.data.as_ref().map(Data::about)
    }
}

struct Connection {
    form: Arc<Form>,
    asked: VecDeque<u64>,
    /// Bytes of the reply that has begun to come.
    scanned: usize,
}

impl Target for Connection {
    fn greet(&mut self, _out: &mut Vec<u8>) -> usize {
        self.asked.clear();
        self.scanned = 0;
        0
    }

    fn encode(&mut self, outgoing: &Outgoing<'_>, out: &mut Vec<u8>) {
        self.form.write(outgoing.number, out);
        self.asked.push_back(outgoing.request);
    }

    fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Option<Incoming<'a>>, ProtocolError> {
        let Some(message) = self.form.framing.message(input, self.scanned)? else {
            self.scanned = input.len();
            return Ok(None);
        };
        self.scanned = 0;
        let request = self.asked.pop_front().ok_or(ProtocolError::Unasked)?;
        let answer = self.form.judge(&input[message.body], message.failed);
        Ok(Some(Incoming::new(request, answer, message.bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{READ, asked, driver_of, reply, target_of, whole};
    use super::*;

    fn with(options: &str, message: &str) -> Box<dyn Target> {
        let lines = format!("url = \"tcp://127.0.0.1:7{options}\"\nmessage = '''{message}'''");
        target_of(&lines).0
    }

    #[test]
    fn a_line_ends_a_request_and_a_reply() {
        let mut target = with("", "get {sequence}");
        assert_eq!(asked(target.as_mut(), 4, READ), b"get 5\n");
        assert_eq!(asked(target.as_mut(), 5, READ), b"get 6\n");
        assert_eq!(reply(target.as_mut(), b"fine\r\n"), (4, Answer::Done));
        assert_eq!(reply(target.as_mut(), b"\n"), (5, Answer::Done));
        assert_eq!(target.decode(b"more\n"), Err(ProtocolError::Unasked));
    }

    #[test]
    fn a_length_stands_before_a_request_and_a_reply() {
        let mut target = with("?framing=length4", "a\nb");
        assert_eq!(asked(target.as_mut(), 1, READ), b"\0\0\0\x03a\nb");
        assert_eq!(reply(target.as_mut(), b"\0\0\0\x02ok"), (1, Answer::Done));
        assert!(target.decode(b"\x7f\0\0\0").is_err());
    }

    #[test]
    fn the_words_of_a_command_are_an_array_of_resp_and_an_error_is_a_failure() {
        let mut target = with("?framing=resp", "SET k{sequence} \"a b\"");
        let written = b"*3\r\n$3\r\nSET\r\n$2\r\nk2\r\n$3\r\na b\r\n";
        assert_eq!(asked(target.as_mut(), 1, READ), written);
        assert_eq!(reply(target.as_mut(), b"+OK\r\n"), (1, Answer::Done));
        asked(target.as_mut(), 2, READ);
        let failed = Answer::Failed(ErrorKind::Denied, b"NOPERM no");
        assert_eq!(reply(target.as_mut(), b"-NOPERM no\r\n"), (2, failed));
        asked(target.as_mut(), 3, READ);
        let array = b"*2\r\n$1\r\na\r\n*1\r\n:1\r\n";
        assert_eq!(reply(target.as_mut(), array), (3, Answer::Done));
        // Replies that follow each other are not in each other.
        for request in 4..24 {
            asked(target.as_mut(), request, READ);
        }
        let many = "*0\r\n".repeat(20);
        for place in 0..20 {
            let found = whole(target.as_mut(), &many.as_bytes()[4 * place..]);
            assert_eq!((found.answer, found.bytes), (Answer::Done, 4));
        }
        assert!(target.decode("*1\r\n".repeat(200_000).as_bytes()).is_err());
    }

    #[test]
    fn a_reply_without_the_text_that_it_must_have_is_a_failure() {
        let mut target = with("?contains=all%20well", "status");
        asked(target.as_mut(), 1, READ);
        asked(target.as_mut(), 2, READ);
        assert_eq!(
            reply(target.as_mut(), b"it is all well\n"),
            (1, Answer::Done)
        );
        let failed = Answer::Failed(ErrorKind::Content, b"broken");
        assert_eq!(reply(target.as_mut(), b"broken\n"), (2, failed));
    }

    #[test]
    fn what_cannot_be_sent_is_refused_before_the_run() {
        for (options, message, wrong) in [
            (":7?framing=xml", "a", "framing is \"xml\""),
            (":7?size=4", "a", "tcp has no option \"size\""),
            ("", "a", "it has no port"),
            (":7", "a\\nb", "it has several lines"),
            (":7?framing=resp", " ", "it has no words"),
            (":7?framing=resp", "SET a \\\"b", "a quote without an end"),
            (":7/path", "a", "it has the path \"/path\""),
            (":7", "{data.x}", "data"),
        ] {
            let lines = format!("url = \"tcp://127.0.0.1{options}\"\nmessage = \"{message}\"");
            let said = driver_of(&lines, None).err().expect(message);
            assert!(said.contains(wrong), "{said}");
        }
        let lines = "url = \"tcp://127.0.0.1:7\"\nmessage = \"a\"";
        let said = driver_of(lines, Some("secret")).err().expect("refused");
        assert!(
            said.contains("wanted none: the protocol has no login"),
            "{said}"
        );
    }
}
