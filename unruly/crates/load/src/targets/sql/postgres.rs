//! One connection to PostgreSQL, by its protocol 3.0 (chapter 55 of its manual).
//!
//! First, the client logs in. Second, every statement is prepared, so that a wrong one is found before
//! the run. Third, each statement of an operation is bound to its values, executed and synchronised.
//! A transaction that an error left open is rolled back before the next operation.

use std::sync::Arc;

use bytes::BytesMut;
use postgres_protocol::IsNull;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::frontend;
use unruly_trace::ErrorKind;

use super::super::DriverError;
use super::connection::{Dialect, Stage, Taken};
use super::turns::{Next, Turns};
use super::{Login, Prepared};
use crate::target::{Answer, ProtocolError};

/// What the server says that it is waiting for: nothing, outside of a transaction.
const IDLE: u8 = b'I';

/// What all connections share.
pub(super) struct Asking {
    login: Login,
    script: Prepared,
    startup: BytesMut,
    /// The connections speak TLS.
    secure: bool,
    /// The messages that prepare all statements.
    prepare: BytesMut,
}

impl Asking {
    /// # Errors
    ///
    /// When a name or a statement cannot be sent.
    pub(super) fn new(login: Login, script: Prepared, secure: bool) -> Result<Self, DriverError> {
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
            secure,
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
    /// The client has asked for TLS.
    AskTls,
    /// The server has agreed to it.
    AgreeTls,
    LogIn(Option<ScramSha256>),
    Prepare,
    Ready,
    Broken,
}

/// One connection.
pub(super) struct Session {
    asking: Arc<Asking>,
    state: State,
    /// Messages that no request is behind.
    out: BytesMut,
    turns: Turns,
}

impl Session {
    pub(super) fn new(asking: Arc<Asking>) -> Self {
        Self {
            asking,
            state: State::LogIn(None),
            out: BytesMut::new(),
            turns: Turns::default(),
        }
    }

    /// Gives the connection up: the requests that wait for it fail.
    fn break_off(&mut self, kind: ErrorKind, words: &[u8]) {
        self.state = State::Broken;
        self.turns.give_up(kind, words);
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
            State::AskTls | State::AgreeTls | State::Broken => false,
        }
    }

    fn statement_over(&mut self, status: u8) {
        match self.turns.over(self.asking.script(), status != IDLE) {
            Next::Nothing => {}
            Next::Statement => {
                let mut out = BytesMut::new();
                self.send(&mut out);
                self.out.extend_from_slice(&out);
            }
            Next::RollBack => {
                // The text is our own.
                let _ = frontend::query("ROLLBACK", &mut self.out);
            }
        }
    }

    /// Takes the answer to the question for TLS: a single letter, and nothing else. Whoever sends
    /// another message wants to go on in the clear.
    fn agree(&mut self, input: &[u8]) -> Result<Option<Taken<'static>>, ProtocolError> {
        match input.first() {
            None => Ok(None),
            Some(b'S') => {
                self.state = State::AgreeTls;
                Ok(Some((1, None)))
            }
            Some(b'N') => {
                let words: &[u8] =
                    b"it does not speak TLS: leave out tls=true, or configure its certificate";
                self.break_off(ErrorKind::Denied, words);
                Ok(Some((1, Some(Answer::Failed(ErrorKind::Denied, words)))))
            }
            Some(_) => Err(ProtocolError::reply(input, "PostgreSQL's consent to TLS")),
        }
    }

    /// Takes what the server wants to know of us, or its consent.
    fn authenticate(&mut self, body: &[u8]) -> Result<(), &'static [u8]> {
        const DAMAGED: &[u8] = b"its question about the password is damaged";
        const MISSING: &[u8] = b"it wants a password: set UNRULY_PASSWORD";
        if !matches!(self.state, State::LogIn(_)) {
            return Err(b"it asks who we are when nobody logs in");
        }
        let (kind, rest) = body.split_first_chunk::<4>().ok_or(DAMAGED)?;
        let password = self.asking.login.password.as_deref();
        let needed = || password.ok_or(MISSING);
        let out = &mut self.out;
        let written = match i32::from_be_bytes(*kind) {
            0 if matches!(self.state, State::LogIn(Some(_))) => {
                return Err(b"it ends the login before it has proved itself");
            }
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
                    let proved = scram.finish(rest);
                    self.state = State::LogIn(None);
                    return proved.map_err(|_| &b"it does not know the password itself"[..]);
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
        if matches!(self.state, State::Ready) && self.turns.is_open() {
            self.turns.fail(kind, || error.words());
            if error.ends_connection() {
                self.turns.finish();
                self.break_off(kind, &error.words());
            }
            return None;
        }
        self.break_off(kind, &error.words());
        Some((kind, error.message))
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
        // The severity in English, whatever language the server speaks.
        Self {
            severity: field(b'V'),
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
        words.truncate(super::WORDS_BYTES);
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

impl Dialect for Session {
    fn restart(&mut self, out: &mut Vec<u8>) {
        *self = Self::new(Arc::clone(&self.asking));
        if self.asking.secure {
            self.state = State::AskTls;
            let mut request = BytesMut::new();
            frontend::ssl_request(&mut request);
            out.extend_from_slice(&request);
        } else {
            out.extend_from_slice(&self.asking.startup);
        }
    }

    fn wants_tls(&self) -> bool {
        matches!(self.state, State::AgreeTls)
    }

    fn tls_began(&mut self) {
        self.state = State::LogIn(None);
        self.out.extend_from_slice(&self.asking.startup);
    }

    fn stage(&self) -> Stage {
        match self.state {
            State::AskTls | State::AgreeTls | State::LogIn(_) | State::Prepare => Stage::Greeting,
            State::Ready => Stage::Ready,
            State::Broken => Stage::Broken,
        }
    }

    fn take<'a>(&mut self, input: &'a [u8]) -> Result<Option<Taken<'a>>, ProtocolError> {
        if matches!(self.state, State::AskTls) && input.first() != Some(&b'E') {
            return self.agree(input);
        }
        let Some((kind, body, bytes)) = message(input)? else {
            return Ok(None);
        };
        self.turns.received(bytes);
        let said = match kind {
            b'R' => {
                let failed = self.authenticate(body).err();
                failed.map(|words| {
                    self.break_off(ErrorKind::Denied, words);
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
        Ok(Some((bytes, said)))
    }

    fn send(&mut self, out: &mut BytesMut) {
        let asking = Arc::clone(&self.asking);
        let script = asking.script();
        let Some((statement, request)) = self.turns.statement(script) else {
            return;
        };
        let values = script.values(statement, request);
        let before = out.len();
        let written = frontend::bind(
            "",
            &name(statement.text),
            [],
            values,
            |value, out| {
                out.extend_from_slice(&value.value);
                Ok(IsNull::No)
            },
            [],
            out,
        );
        if written.is_err() {
            // A message beyond 2 GB. The server answers to the Sync alone.
            out.truncate(before);
            let words = || b"its values are too long for one message".to_vec();
            self.turns.fail(ErrorKind::Send, words);
        } else {
            // An unnamed portal has no zero byte in its name.
            let _ = frontend::execute("", 0, out);
        }
        frontend::sync(out);
    }

    fn queued(&mut self) -> &mut BytesMut {
        &mut self.out
    }

    fn turns(&self) -> &Turns {
        &self.turns
    }

    fn turns_mut(&mut self) -> &mut Turns {
        &mut self.turns
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::tests::driver_of;
    use super::*;
    use crate::target::{Fate, GREETING, Operation, Outgoing, Target};

    const LINES: &str =
        "url = \"postgres://u@127.0.0.1/d\"\nsql = \"BEGIN; SELECT {sequence}; COMMIT\"";
    const LET_IN: &[u8] = b"R\0\0\0\x08\0\0\0\0";
    const IDLE_NOW: &[u8] = b"Z\0\0\0\x05I";
    const IN_TRANSACTION: &[u8] = b"Z\0\0\0\x05T";
    const FAILED_TRANSACTION: &[u8] = b"Z\0\0\0\x05E";
    const ERROR: &[u8] = b"E\0\0\0\x1fSFEHLER\0VERROR\0C42P01\0Mno\0\0";

    fn connection() -> Box<dyn Target> {
        let mut target = driver_of(LINES, None).expect("a driver").target(0);
        assert_eq!(target.greet(&mut Vec::new()), 1);
        target
    }

    #[test]
    fn nothing_is_said_in_the_clear_to_whoever_does_not_consent_to_tls() {
        let lines = LINES.replace("/d\"", "/d?tls=true\"\ninsecure = true");
        for message in [
            &b"R\0\0\0\x08\0\0\0\x03"[..],
            b"R\0\0\0\x0c\0\0\0\x05abcd",
            LET_IN,
            IDLE_NOW,
        ] {
            let mut target = driver_of(&lines, Some("s3cr3t"))
                .expect("a driver")
                .target(0);
            let mut request = Vec::new();
            target.greet(&mut request);
            assert_eq!(request, b"\0\0\0\x08\x04\xd2\x16\x2f");
            assert!(target.decode(message).is_err());
            assert_eq!(said(target.as_mut()), (String::new(), None));
        }
    }

    /// Hears one message. Returns what it says of the greeting.
    fn hear<'a>(target: &mut dyn Target, message: &'a [u8]) -> Option<Answer<'a>> {
        let incoming = target.decode(message).expect("a message");
        let incoming = incoming.expect("a whole one");
        assert_eq!(incoming.bytes, message.len());
        (incoming.request == GREETING).then_some(incoming.answer)
    }

    /// Everything that goes to the server now, and the request that begins with it.
    fn said(target: &mut dyn Target) -> (String, Option<u64>) {
        let (mut out, mut ticket) = (Vec::new(), None);
        loop {
            let before = out.len();
            ticket = target.drain(&mut out).or(ticket);
            if out.len() == before {
                return (String::from_utf8_lossy(&out).into_owned(), ticket);
            }
        }
    }

    fn ask(target: &mut dyn Target, request: u64) {
        let outgoing = Outgoing {
            request,
            number: request,
            session: 0,
            intended_ns: unruly_trace::MonoNs(0),
            operation: Operation::Named {
                number: 0,
                begins: false,
            },
        };
        target.encode(&outgoing, &mut Vec::new());
    }

    /// A connection that is ready, and does the request 7.
    fn ready() -> Box<dyn Target> {
        let mut target = connection();
        assert_eq!(hear(target.as_mut(), LET_IN), None);
        assert_eq!(hear(target.as_mut(), IDLE_NOW), None);
        let (prepared, _) = said(target.as_mut());
        assert!(prepared.contains("SELECT $1"), "{prepared}");
        assert_eq!(hear(target.as_mut(), IDLE_NOW), Some(Answer::Done));
        ask(target.as_mut(), 7);
        assert_eq!(said(target.as_mut()).1, Some(7));
        target
    }

    #[test]
    fn statements_follow_each_other_and_the_last_one_ends_the_operation() {
        let mut target = ready();
        ask(target.as_mut(), 8);
        hear(target.as_mut(), IN_TRANSACTION);
        let (second, none) = said(target.as_mut());
        assert!(second.contains("s1") && second.contains('8'), "{second:?}");
        assert_eq!(none, None);
        hear(target.as_mut(), IN_TRANSACTION);
        assert!(said(target.as_mut()).0.contains("s2"));
        assert_eq!(target.next_reply(), None);
        hear(target.as_mut(), IDLE_NOW);
        let reply = target.next_reply().expect("it is over");
        assert_eq!((reply.ticket, reply.fate), (7, Fate::Done));
        assert_eq!(said(target.as_mut()).1, Some(8));
    }

    #[test]
    fn an_error_ends_the_operation_after_its_transaction_was_rolled_back() {
        let mut target = ready();
        hear(target.as_mut(), IN_TRANSACTION);
        said(target.as_mut());
        assert_eq!(hear(target.as_mut(), ERROR), None);
        hear(target.as_mut(), FAILED_TRANSACTION);
        assert!(said(target.as_mut()).0.contains("ROLLBACK"));
        assert_eq!(target.next_reply(), None);
        hear(target.as_mut(), IDLE_NOW);
        let words = b"ERROR 42P01: no".to_vec();
        let failed = Fate::Failed(ErrorKind::Store, words);
        assert_eq!(target.next_reply().map(|it| it.fate), Some(failed));
        assert!(!target.is_closing());
    }

    #[test]
    fn an_operation_that_nobody_waits_for_ends_early_and_without_a_reply() {
        let mut target = ready();
        ask(target.as_mut(), 8);
        target.forget(7);
        hear(target.as_mut(), IN_TRANSACTION);
        assert!(said(target.as_mut()).0.contains("ROLLBACK"));
        hear(target.as_mut(), IDLE_NOW);
        assert_eq!(target.next_reply(), None);
        assert_eq!(said(target.as_mut()).1, Some(8));
    }

    #[test]
    fn a_connection_that_cannot_be_prepared_fails_what_waits_and_asks_for_another_one() {
        let mut target = connection();
        hear(target.as_mut(), LET_IN);
        hear(target.as_mut(), IDLE_NOW);
        ask(target.as_mut(), 7);
        let answer = Answer::Failed(ErrorKind::Store, b"no");
        assert_eq!(hear(target.as_mut(), ERROR), Some(answer));
        let failed = Fate::Failed(ErrorKind::Store, b"ERROR 42P01: no".to_vec());
        assert_eq!(target.next_reply().map(|it| it.fate), Some(failed));
        assert!(target.is_closing() && target.is_idle() && !target.is_proven());
        ask(target.as_mut(), 8);
        assert_eq!(target.next_reply().map(|it| it.fate), Some(Fate::Untouched));
    }

    #[test]
    fn a_server_that_skips_its_own_proof_is_not_trusted() {
        let driver = driver_of(LINES, Some("secret")).expect("a driver");
        let mut target = driver.target(0);
        target.greet(&mut Vec::new());
        let offer = b"R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0";
        assert_eq!(hear(target.as_mut(), offer), None);
        assert!(said(target.as_mut()).0.contains("SCRAM-SHA-256"));
        assert!(matches!(
            hear(target.as_mut(), LET_IN),
            Some(Answer::Failed(ErrorKind::Denied, _))
        ));
    }

    proptest! {
        #[test]
        fn whatever_comes_is_taken_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..200), greeted in any::<bool>()
        ) {
            let mut target = if greeted { ready() } else { connection() };
            let mut rest = bytes.as_slice();
            while let Ok(Some(incoming)) = target.decode(rest) {
                rest = &rest[incoming.bytes..];
                target.drain(&mut Vec::new());
            }
        }
    }
}
