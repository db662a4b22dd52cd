//! One connection to PostgreSQL, by its protocol 3.0 (chapter 55 of its manual).
//!
//! First, the client logs in. Second, every statement is prepared, so that a wrong one is found before
//! the run. Third, each statement of an operation is bound to its values, executed and synchronised.
//! A transaction that an error left open is rolled back before the next operation.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::BytesMut;
use postgres_protocol::IsNull;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::frontend;
use unruly_trace::ErrorKind;

use super::super::DriverError;
use super::{Login, Prepared, number_of};
use crate::target::{
    ASIDE, Answer, Fate, GREETING, Incoming, Outgoing, ProtocolError, Reply, Target,
};

/// Longest text of an error that is kept.
const WORDS_BYTES: usize = 300;

/// What the server says that it is waiting for: nothing, outside of a transaction.
const IDLE: u8 = b'I';

/// What all connections share.
pub(super) struct Asking {
    login: Login,
    script: Prepared,
    startup: BytesMut,
    /// The messages that prepare all statements.
    prepare: BytesMut,
}

impl Asking {
    /// # Errors
    ///
    /// When a name or a statement cannot be sent.
    pub(super) fn new(login: Login, script: Prepared) -> Result<Self, DriverError> {
        let wrong = |key: &'static str| {
            move |error: std::io::Error| {
                DriverError::new(
                    key,
                    format!("it cannot be sent: {error}"),
                    "wanted text without zero bytes",
                    "remove them",
                )
            }
        };
        let mut startup = BytesMut::new();
        let parameters = [
            ("user", login.user.as_str()),
            ("database", login.database.as_str()),
            ("application_name", "unruly"),
            ("client_encoding", "UTF8"),
        ];
        frontend::startup_message(parameters, &mut startup).map_err(wrong("url"))?;
        let mut prepare = BytesMut::new();
        for (number, text) in script.texts.iter().enumerate() {
            frontend::parse(&name(number), text, [], &mut prepare).map_err(wrong("sql"))?;
        }
        frontend::sync(&mut prepare);
        Ok(Self {
            login,
            script,
            startup,
            prepare,
        })
    }

    pub(super) const fn script(&self) -> &Prepared {
        &self.script
    }
}

/// The server's name of a prepared statement.
fn name(number: usize) -> String {
    format!("s{number}")
}

/// How far the greeting is.
enum State {
    LogIn(Option<ScramSha256>),
    Prepare,
    Ready,
    /// The server or we have ended it.
    Broken,
}

/// One connection.
pub(super) struct Connection {
    asking: Arc<Asking>,
    state: State,
    /// Messages that no request is behind.
    out: BytesMut,
    waiting: VecDeque<Waiting>,
    open: Option<Open>,
    replies: VecDeque<Reply>,
}

/// An operation that was not begun.
struct Waiting {
    ticket: u64,
    request: u64,
    operation: usize,
}

/// An operation that is being done.
struct Open {
    ticket: u64,
    request: u64,
    operation: usize,
    /// Statements that were sent.
    sent: usize,
    bytes: usize,
    failure: Option<(ErrorKind, Vec<u8>)>,
    /// Nobody waits for it any more.
    forgotten: bool,
    rolls_back: bool,
}

impl Connection {
    pub(super) fn new(asking: Arc<Asking>) -> Self {
        Self {
            asking,
            state: State::LogIn(None),
            out: BytesMut::new(),
            waiting: VecDeque::new(),
            open: None,
            replies: VecDeque::new(),
        }
    }

    /// Sends the next statement of the open operation.
    fn send(&mut self, out: &mut BytesMut) {
        let asking = Arc::clone(&self.asking);
        let script = asking.script();
        let Some(open) = &mut self.open else { return };
        let Some(statement) = script.operations[open.operation].get(open.sent) else {
            return;
        };
        open.sent += 1;
        let values = script.values(statement, open.request);
        let written = frontend::bind(
            "",
            &name(statement.text),
            [],
            values,
            |value, out| {
                out.extend_from_slice(&value);
                Ok(IsNull::No)
            },
            [],
            out,
        );
        // Only a length beyond 2 GB fails, and the template bounds it.
        debug_assert!(written.is_ok(), "a statement has short names");
        let executed = frontend::execute("", 0, out);
        debug_assert!(executed.is_ok(), "an unnamed portal");
        frontend::sync(out);
    }

    /// Ends the open operation.
    fn finish(&mut self) {
        let Some(open) = self.open.take().filter(|it| !it.forgotten) else {
            return;
        };
        let fate = match open.failure {
            Some((kind, words)) => Fate::Failed(kind, words),
            None => Fate::Done,
        };
        self.replies.push_back(Reply {
            ticket: open.ticket,
            fate,
            code: None,
            bytes: open.bytes,
        });
    }

    /// The server waits for us: a statement is over, or the greeting is further.
    fn ready(&mut self, status: u8) -> bool {
        match self.state {
            State::LogIn(_) => {
                self.state = State::Prepare;
                let prepare = &self.asking.prepare;
                self.out.extend_from_slice(prepare);
                false
            }
            State::Prepare => {
                self.state = State::Ready;
                true
            }
            State::Ready => {
                self.statement_over(status);
                false
            }
            State::Broken => false,
        }
    }

    fn statement_over(&mut self, status: u8) {
        let Some(open) = &mut self.open else { return };
        let all = self.asking.script().operations[open.operation].len();
        if open.failure.is_none() && open.sent < all {
            let mut out = std::mem::take(&mut self.out);
            self.send(&mut out);
            self.out = out;
            return;
        }
        if status == IDLE || open.rolls_back {
            return self.finish();
        }
        open.rolls_back = true;
        open.failure.get_or_insert_with(|| {
            let words = b"the operation does not end its transaction".to_vec();
            (ErrorKind::Store, words)
        });
        // Its text is our own.
        let _ = frontend::query("ROLLBACK", &mut self.out);
    }

    /// Takes what the server wants to know of us, or its consent.
    fn authenticate(&mut self, body: &[u8]) -> Result<(), &'static [u8]> {
        const DAMAGED: &[u8] = b"its question about the password is damaged";
        const MISSING: &[u8] = b"it wants a password: set UNRULY_PASSWORD";
        let (kind, rest) = body.split_first_chunk::<4>().ok_or(DAMAGED)?;
        let password = self.asking.login.password.as_deref();
        let needed = || password.ok_or(MISSING);
        let out = &mut self.out;
        let written = match i32::from_be_bytes(*kind) {
            0 => return Ok(()),
            3 => frontend::password_message(needed()?.as_bytes(), out),
            5 => {
                let salt = rest.first_chunk::<4>().ok_or(DAMAGED)?;
                let user = self.asking.login.user.as_bytes();
                let hash = md5_hash(user, needed()?.as_bytes(), *salt);
                frontend::password_message(hash.as_bytes(), out)
            }
            10 => {
                let mut offered = rest.split(|byte| *byte == 0);
                if !offered.any(|it| it == SCRAM_SHA_256.as_bytes()) {
                    return Err(b"it wants a kind of password that is not known here");
                }
                let scram = ScramSha256::new(needed()?.as_bytes(), ChannelBinding::unsupported());
                let written = frontend::sasl_initial_response(SCRAM_SHA_256, scram.message(), out);
                self.state = State::LogIn(Some(scram));
                written
            }
            11 | 12 => {
                let State::LogIn(Some(scram)) = &mut self.state else {
                    return Err(DAMAGED);
                };
                if i32::from_be_bytes(*kind) == 12 {
                    return scram
                        .finish(rest)
                        .map_err(|_| &b"it does not know the password itself"[..]);
                }
                scram.update(rest).map_err(|_| DAMAGED)?;
                frontend::sasl_response(scram.message(), out)
            }
            _ => return Err(b"it wants a kind of login that is not known here"),
        };
        written.map_err(|_| &b"the password holds a zero byte"[..])
    }

    /// Takes an error of the server. Returns what it says of the greeting, if it belongs to none of
    /// the operations.
    fn error<'a>(&mut self, body: &'a [u8]) -> Option<(ErrorKind, &'a [u8])> {
        let error = ServerError::of(body);
        let kind = error.kind();
        match (&self.state, &mut self.open) {
            (State::Ready, Some(open)) => {
                open.failure.get_or_insert_with(|| (kind, error.words()));
                if error.ends_connection() {
                    self.state = State::Broken;
                    self.finish();
                }
                None
            }
            _ => {
                self.state = State::Broken;
                Some((kind, error.message))
            }
        }
    }
}

/// The fields of an error.
struct ServerError<'a> {
    severity: &'a [u8],
    code: &'a [u8],
    message: &'a [u8],
}

impl<'a> ServerError<'a> {
    fn of(body: &'a [u8]) -> Self {
        let field = |kind: u8| {
            let mut fields = body.split(|byte| *byte == 0);
            let found = fields.find_map(|it| it.strip_prefix(&[kind]));
            found.unwrap_or_default()
        };
        Self {
            severity: field(b'S'),
            code: field(b'C'),
            message: field(b'M'),
        }
    }

    fn kind(&self) -> ErrorKind {
        match self.code {
            [b'2', b'8', ..] | b"42501" => ErrorKind::Denied,
            [b'5', b'3', ..] | [b'5', b'7', b'P', ..] => ErrorKind::Unavailable,
            _ => ErrorKind::Store,
        }
    }

    fn ends_connection(&self) -> bool {
        matches!(self.severity, b"FATAL" | b"PANIC")
    }

    /// What it says, with its code: `ERROR 23505: duplicate key ..`.
    fn words(&self) -> Vec<u8> {
        let mut words = [self.severity, b" ", self.code, b": ", self.message].concat();
        words.truncate(WORDS_BYTES);
        words
    }
}

/// The kind of a message, its body, and its length.
type Message<'a> = (u8, &'a [u8], usize);

/// The message at the start of the input; `None` when more bytes are needed.
fn message(input: &[u8]) -> Result<Option<Message<'_>>, ProtocolError> {
    let Some((head, _)) = input.split_first_chunk::<5>() else {
        return Ok(None);
    };
    let [kind, length @ ..] = *head;
    let wrong = || ProtocolError::reply(input, "a message of PostgreSQL");
    let length = usize::try_from(u32::from_be_bytes(length)).map_err(|_| wrong())?;
    if length < 4 || !kind.is_ascii_alphanumeric() || length > crate::target::REPLY_BYTES_MAX {
        return Err(wrong());
    }
    let bytes = length + 1;
    Ok(input.get(5..bytes).map(|body| (kind, body, bytes)))
}

impl Target for Connection {
    fn greet(&mut self, out: &mut Vec<u8>) -> usize {
        *self = Self::new(Arc::clone(&self.asking));
        out.extend_from_slice(&self.asking.startup);
        1
    }

    fn encode(&mut self, outgoing: &Outgoing<'_>, _out: &mut Vec<u8>) {
        self.waiting.push_back(Waiting {
            ticket: outgoing.request,
            request: outgoing.number,
            operation: number_of(outgoing),
        });
    }

    fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Option<Incoming<'a>>, ProtocolError> {
        let Some((kind, body, bytes)) = message(input)? else {
            return Ok(None);
        };
        if let Some(open) = &mut self.open {
            open.bytes += bytes;
        }
        // What ends the greeting, well or not.
        let said = match kind {
            b'R' => {
                let failed = self.authenticate(body).err();
                failed.map(|words| {
                    self.state = State::Broken;
                    Answer::Failed(ErrorKind::Denied, words)
                })
            }
            b'Z' => {
                let status = body.first().copied().unwrap_or(IDLE);
                self.ready(status).then_some(Answer::Done)
            }
            b'E' => {
                let failed = self.error(body);
                failed.map(|(kind, words)| Answer::Failed(kind, words))
            }
            // It waits for data, and there is none.
            b'G' | b'W' => {
                let _ = frontend::copy_fail("unruly sends no data of its own", &mut self.out);
                frontend::sync(&mut self.out);
                None
            }
            // Rows, their end, and what the server says by the way.
            _ => None,
        };
        Ok(Some(match said {
            Some(answer) => Incoming::new(GREETING, answer, bytes),
            None => Incoming::new(ASIDE, Answer::Sent, bytes),
        }))
    }

    fn has_streams(&self) -> bool {
        true
    }

    fn drain(&mut self, out: &mut Vec<u8>) -> Option<u64> {
        if !self.out.is_empty() {
            out.extend_from_slice(&self.out.split());
            return None;
        }
        if !matches!(self.state, State::Ready) || self.open.is_some() {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.open = Some(Open {
            ticket: next.ticket,
            request: next.request,
            operation: next.operation,
            sent: 0,
            bytes: 0,
            failure: None,
            forgotten: false,
            rolls_back: false,
        });
        let mut message = BytesMut::new();
        self.send(&mut message);
        out.extend_from_slice(&message);
        Some(next.ticket)
    }

    fn next_reply(&mut self) -> Option<Reply> {
        self.replies.pop_front()
    }

    fn is_idle(&self) -> bool {
        self.open.is_none() && self.waiting.is_empty() && self.replies.is_empty()
    }

    fn forget(&mut self, ticket: u64) {
        if let Some(place) = self.waiting.iter().position(|it| it.ticket == ticket) {
            self.waiting.remove(place);
        } else if let Some(open) = self.open.as_mut().filter(|it| it.ticket == ticket) {
            // The server goes on with it, and the next operation waits.
            open.forgotten = true;
        }
    }

    fn may_send_again(&self) -> bool {
        false
    }
}
