//! One connection to MySQL or MariaDB, by its client protocol: packets with a length of three bytes.
//!
//! First, the client logs in. Second, every statement is prepared in turn; one that the server does
//! not prepare is sent as text, if it has no values. Third, the statements of an operation follow each
//! other. A transaction that an error left open is rolled back before the next operation.

mod wire;

use std::sync::Arc;

use bytes::{Buf as _, BufMut as _, BytesMut};
use unruly_trace::ErrorKind;

use self::wire::{
    NATIVE, PACKET_BYTES_MAX, PREPARE, ServerError, execute, introduction, is_end, packet,
    packet_of, proof, query, status_of_end, status_of_ok,
};
use super::connection::{Dialect, Stage, Taken};
use super::turns::{Next, Turns};
use super::{Login, Prepared};
use crate::target::{Answer, ProtocolError};

/// What the client asks for: long flags, a database, protocol 4.1, transactions, several results of a
/// procedure, and plugins to log in.
const CAPABILITIES: u32 =
    0x1 | 0x4 | 0x8 | 0x200 | 0x2000 | 0x8000 | 0x2_0000 | 0x4_0000 | 0x8_0000;

/// The client, or the server, speaks TLS.
const TLS: u32 = 0x800;

/// UTF-8 of four bytes, without case.
const CHARSET: u8 = 45;

/// Flags of the server's status: a transaction is open, and another result follows.
const IN_TRANSACTION: u16 = 0x1;
const MORE_RESULTS: u16 = 0x8;

/// The server does not prepare such a statement.
const NOT_PREPARED: u16 = 1_295;

/// What all connections share.
pub(super) struct Asking {
    pub(super) login: Login,
    pub(super) script: Prepared,
    /// The connections speak TLS.
    pub(super) secure: bool,
}

/// How far the connection is.
enum State {
    /// The server's first word has not come.
    Greeting,
    /// The client has announced TLS, and logs in by this packet afterwards.
    AgreeTls(BytesMut),
    LogIn,
    /// The statement of this number is being prepared.
    Prepare(usize, Descriptions),
    Ready(Result),
    Broken,
}

/// Lists of columns that follow the consent to prepare, and are not looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Descriptions {
    /// The consent itself has not come.
    Unknown,
    Lists(u8),
}

/// How far the result of a statement was read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Result {
    Head,
    Columns,
    Rows,
}

/// How a statement is sent.
#[derive(Clone, Copy)]
enum Handle {
    Prepared(u32),
    Text,
}

/// One connection.
pub(super) struct Session {
    asking: Arc<Asking>,
    state: State,
    out: BytesMut,
    handles: Vec<Handle>,
    turns: Turns,
    in_transaction: bool,
}

impl Session {
    pub(super) fn new(asking: Arc<Asking>) -> Self {
        Self {
            asking,
            state: State::Greeting,
            out: BytesMut::new(),
            handles: Vec::new(),
            turns: Turns::default(),
            in_transaction: false,
        }
    }

    /// Gives the connection up: the requests that wait for it fail.
    fn break_off(&mut self, kind: ErrorKind, words: &[u8]) {
        self.state = State::Broken;
        self.turns.give_up(kind, words);
    }

    /// Takes the first word of the server, and answers with who we are. Returns what it says of the
    /// greeting when that ends here.
    fn log_in(&mut self, body: &[u8], sequence: u8) -> Option<Option<Answer<'static>>> {
        let (nonce, plugin, speaks_tls) = introduction(body)?;
        if self.asking.secure && !speaks_tls {
            let words = b"it does not speak TLS: leave out tls=true, or configure its certificate";
            self.break_off(ErrorKind::Denied, words);
            return Some(Some(Answer::Failed(ErrorKind::Denied, words)));
        }
        let login = &self.asking.login;
        let answer = proof(&plugin, login.password.as_deref(), &nonce);
        // Another plugin is proposed where this one is unknown.
        let (answer, plugin) = match answer {
            Some(answer) => (answer, plugin.as_slice()),
            None => (Vec::new(), NATIVE),
        };
        let tls = if self.asking.secure { TLS } else { 0 };
        let who = |out: &mut BytesMut| {
            out.put_u32_le(CAPABILITIES | tls);
            out.put_u32_le(u32::try_from(PACKET_BYTES_MAX).unwrap_or(u32::MAX));
            out.put_u8(CHARSET);
            out.put_bytes(0, 23);
        };
        // With TLS the beginning of the packet announces it, and the whole packet follows.
        let steps = if self.asking.secure { 2 } else { 1 };
        let mut message = BytesMut::new();
        packet(&mut message, sequence.wrapping_add(steps), |out| {
            who(out);
            out.put_slice(login.user.as_bytes());
            out.put_u8(0);
            out.put_u8(u8::try_from(answer.len()).unwrap_or(0));
            out.put_slice(&answer);
            out.put_slice(login.database.as_bytes());
            out.put_u8(0);
            out.put_slice(plugin);
            out.put_u8(0);
        });
        if self.asking.secure {
            packet(&mut self.out, sequence.wrapping_add(1), who);
            self.state = State::AgreeTls(message);
        } else {
            self.out.extend_from_slice(&message);
            self.state = State::LogIn;
        }
        Some(None)
    }

    /// Goes on with the login; an error is in words.
    fn go_on(&mut self, body: &[u8], sequence: u8) -> std::result::Result<(), &'static [u8]> {
        const PLUGIN: &[u8] = b"it wants a kind of login that is not known here";
        match body.split_first() {
            Some((0x00, _)) => {
                self.prepare(0);
                Ok(())
            }
            Some((0xfe, rest)) => {
                let mut parts = rest.splitn(2, |byte| *byte == 0);
                let plugin = parts.next().unwrap_or_default();
                let nonce = parts.next().unwrap_or_default();
                let nonce = nonce.strip_suffix(b"\0").unwrap_or(nonce);
                let password = self.asking.login.password.as_deref();
                let answer = proof(plugin, password, nonce).ok_or(PLUGIN)?;
                packet(&mut self.out, sequence.wrapping_add(1), |out| {
                    out.put_slice(&answer);
                });
                Ok(())
            }
            // The server knows the proof from an earlier login.
            Some((0x01, [0x03])) => Ok(()),
            // It wants the password itself, which TLS keeps secret.
            Some((0x01, [0x04])) if self.asking.secure => {
                let password = self.asking.login.password.clone().unwrap_or_default();
                packet(&mut self.out, sequence.wrapping_add(1), |out| {
                    out.put_slice(password.as_bytes());
                    out.put_u8(0);
                });
                Ok(())
            }
            Some((0x01, _)) => Err(b"it wants the password by TLS: add ?tls=true to the URL"),
            _ => Err(PLUGIN),
        }
    }

    /// Prepares the statement of this number, or is ready. Returns true if it is.
    fn prepare(&mut self, number: usize) -> bool {
        let asking = Arc::clone(&self.asking);
        let Some(text) = asking.script.texts.get(number) else {
            self.state = State::Ready(Result::Head);
            return true;
        };
        packet(&mut self.out, 0, |out| {
            out.put_u8(PREPARE);
            out.put_slice(text.as_bytes());
        });
        self.state = State::Prepare(number, Descriptions::Unknown);
        false
    }

    /// Takes a packet of the preparation. Returns what it says of the greeting when that ends.
    fn prepared(
        &mut self,
        number: usize,
        lists: Descriptions,
        body: &[u8],
    ) -> std::result::Result<Option<Answer<'static>>, ProtocolError> {
        let wrong = || ProtocolError::reply(body, "a prepared statement of MySQL");
        let left = match lists {
            Descriptions::Unknown => {
                let mut rest = body.strip_prefix(&[0]).ok_or_else(wrong)?;
                let id = rest.try_get_u32_le().map_err(|_| wrong())?;
                let columns = rest.try_get_u16_le().map_err(|_| wrong())?;
                let values = rest.try_get_u16_le().map_err(|_| wrong())?;
                if usize::from(values) != self.asking.script.places(number) {
                    let words = b"a statement has other parameters than places: write no ? in it";
                    self.break_off(ErrorKind::Store, words);
                    return Ok(Some(Answer::Failed(ErrorKind::Store, words)));
                }
                self.handles.push(Handle::Prepared(id));
                u8::from(columns > 0) + u8::from(values > 0)
            }
            Descriptions::Lists(left) if is_end(body) => left.saturating_sub(1),
            Descriptions::Lists(left) => left,
        };
        if left == 0 {
            return Ok(self.prepare(number + 1).then_some(Answer::Done));
        }
        self.state = State::Prepare(number, Descriptions::Lists(left));
        Ok(None)
    }

    /// Takes a packet of a result.
    fn result(&mut self, result: Result, body: &[u8], sequence: u8) {
        let next = match result {
            Result::Head => match body.first() {
                Some(0x00) => return self.over(status_of_ok(body)),
                // It asks for a file of ours, and gets an empty one.
                Some(0xfb) => {
                    packet(&mut self.out, sequence.wrapping_add(1), |_| {});
                    Result::Head
                }
                _ => Result::Columns,
            },
            Result::Columns if is_end(body) => Result::Rows,
            Result::Rows if is_end(body) => return self.over(status_of_end(body)),
            other => other,
        };
        self.state = State::Ready(next);
    }

    /// A result is over, with this status of the server.
    fn over(&mut self, status: Option<u16>) {
        self.state = State::Ready(Result::Head);
        if let Some(status) = status {
            self.in_transaction = status & IN_TRANSACTION != 0;
            if status & MORE_RESULTS != 0 {
                return;
            }
        }
        self.statement_over();
    }

    fn statement_over(&mut self) {
        match self.turns.over(&self.asking.script, self.in_transaction) {
            Next::Nothing => {}
            Next::Statement => {
                // A statement that cannot be sent leads to another message.
                let mut out = BytesMut::new();
                self.send(&mut out);
                self.out.extend_from_slice(&out);
            }
            Next::RollBack => query(&mut self.out, "ROLLBACK"),
        }
    }

    /// Takes an error of the server. Returns what it says of the greeting, if it belongs to none of
    /// the operations.
    fn error<'a>(&mut self, body: &'a [u8]) -> Option<Answer<'a>> {
        let error = ServerError::of(body);
        match self.state {
            State::Ready(_) if self.turns.is_open() => {
                let rolled_back = self.turns.rolls_back();
                self.turns.fail(error.kind(), || error.words());
                if error.ends_connection() || rolled_back {
                    // Nobody knows what the next operation would be a part of.
                    self.turns.finish();
                    self.break_off(error.kind(), &error.words());
                    return None;
                }
                // An error has no status: the statement may have begun a transaction itself.
                self.in_transaction = true;
                self.state = State::Ready(Result::Head);
                self.statement_over();
                None
            }
            State::Prepare(number, Descriptions::Unknown)
                if error.code == NOT_PREPARED && self.asking.script.places(number) == 0 =>
            {
                self.handles.push(Handle::Text);
                self.prepare(number + 1).then_some(Answer::Done)
            }
            _ => {
                self.break_off(error.kind(), &error.words());
                Some(Answer::Failed(error.kind(), error.message))
            }
        }
    }
}

impl Dialect for Session {
    fn restart(&mut self, _out: &mut Vec<u8>) {
        *self = Self::new(Arc::clone(&self.asking));
    }

    fn wants_tls(&self) -> bool {
        matches!(self.state, State::AgreeTls(_))
    }

    fn tls_began(&mut self) {
        if let State::AgreeTls(message) = std::mem::replace(&mut self.state, State::LogIn) {
            self.out.extend_from_slice(&message);
        }
    }

    fn stage(&self) -> Stage {
        match self.state {
            State::Greeting | State::AgreeTls(_) | State::LogIn | State::Prepare(..) => {
                Stage::Greeting
            }
            State::Ready(_) => Stage::Ready,
            State::Broken => Stage::Broken,
        }
    }

    fn take<'a>(
        &mut self,
        input: &'a [u8],
    ) -> std::result::Result<Option<Taken<'a>>, ProtocolError> {
        let Some((sequence, body, bytes)) = packet_of(input)? else {
            return Ok(None);
        };
        self.turns.received(bytes);
        let mut said = None;
        let is_error = body.first() == Some(&0xff);
        match self.state {
            _ if is_error => {
                said = self.error(body);
            }
            State::Greeting => {
                let known = self.log_in(body, sequence);
                said = known
                    .ok_or_else(|| ProtocolError::reply(body, "the first word of MySQL 4.1"))?;
            }
            State::AgreeTls(_) => {
                return Err(ProtocolError::reply(body, "nothing before TLS has begun"));
            }
            State::LogIn => {
                if let Err(words) = self.go_on(body, sequence) {
                    self.break_off(ErrorKind::Denied, words);
                    said = Some(Answer::Failed(ErrorKind::Denied, words));
                }
            }
            State::Prepare(number, lists) => said = self.prepared(number, lists, body)?,
            State::Ready(result) => self.result(result, body, sequence),
            State::Broken => {}
        }
        Ok(Some((bytes, said)))
    }

    fn send(&mut self, out: &mut BytesMut) {
        let asking = Arc::clone(&self.asking);
        let script = &asking.script;
        let Some((statement, request)) = self.turns.statement(script) else {
            return;
        };
        match self.handles.get(statement.text) {
            Some(Handle::Prepared(id)) => {
                let values = script.values(statement, request);
                let bytes: usize = values.iter().map(|it| it.value.len() + 12).sum();
                if bytes + 64 > PACKET_BYTES_MAX {
                    let words = || b"its values are too long for one message".to_vec();
                    self.turns.fail(ErrorKind::Send, words);
                    return self.statement_over();
                }
                execute(out, *id, &values);
            }
            _ => query(out, &script.texts[statement.text]),
        }
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

    use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

    use super::super::super::tests::driver_of;
    use super::wire::CACHING;
    use super::*;
    use crate::target::{Fate, GREETING, Operation, Outgoing, Target};

    const LINES: &str =
        "url = \"mysql://u@127.0.0.1/d\"\nsql = \"BEGIN; SELECT {sequence}; COMMIT\"";

    /// A packet of the server.
    fn packet_with(sequence: u8, body: &[u8]) -> Vec<u8> {
        let mut out = BytesMut::new();
        packet(&mut out, sequence, |out| out.put_slice(body));
        out.to_vec()
    }

    fn hello() -> Vec<u8> {
        let mut body = b"\x0a10.11\0\x01\0\0\0abcdefgh\0".to_vec();
        body.extend_from_slice(&[0; 18]);
        body.extend_from_slice(b"ijklmnopqrst\0mysql_native_password\0");
        packet_with(0, &body)
    }

    /// The first word of a server that speaks TLS and likes the newer plugin.
    fn hello_with_tls() -> Vec<u8> {
        let mut body = b"\x0a8.0.36\0\x01\0\0\0abcdefgh\0\0\x08".to_vec();
        body.extend_from_slice(&[0; 16]);
        body.extend_from_slice(b"ijklmnopqrst\0caching_sha2_password\0");
        packet_with(0, &body)
    }

    fn secure_connection() -> Box<dyn Target> {
        let lines = LINES.replace("/d\"", "/d?tls=true\"\ninsecure = true");
        let driver = driver_of(&lines, Some("secret")).expect("a driver");
        let mut target = driver.target(0);
        target.greet(&mut Vec::new());
        target
    }

    #[test]
    fn a_login_by_tls_is_announced_in_the_clear_and_sent_afterwards() {
        let mut target = secure_connection();
        assert!(!hear(target.as_mut(), &hello_with_tls()));
        let (announced, _) = said(target.as_mut());
        // Length 32, packet 1, and the flag of TLS among the capabilities.
        assert_eq!(
            (announced.len(), &announced[..4]),
            (36, &b"\x20\0\0\x01"[..])
        );
        assert_eq!(announced[5] & 0x08, 0x08);
        assert!(target.wants_tls());
        target.tls_began();
        assert!(!target.wants_tls());
        let (login, _) = said(target.as_mut());
        assert_eq!((login[3], login[5] & 0x08), (2, 0x08));
        assert!(login.windows(2).any(|it| it == b"u\0"));
        // The server wants the password itself.
        assert!(!hear(target.as_mut(), &packet_with(3, b"\x01\x04")));
        assert_eq!(said(target.as_mut()).0, packet_with(4, b"secret\0"));
    }

    #[test]
    fn without_tls_the_password_itself_is_never_sent() {
        let mut target = connection();
        assert!(!hear(target.as_mut(), &hello_with_tls()));
        let (login, _) = said(target.as_mut());
        assert!(!login.windows(6).any(|it| it == b"secret"));
        let asked = packet_with(2, b"\x01\x04");
        let refused = target
            .decode(&asked)
            .expect("a packet")
            .expect("a whole one");
        assert!(matches!(
            refused.answer,
            Answer::Failed(ErrorKind::Denied, _)
        ));
        assert_eq!(said(target.as_mut()).0, b"");
    }

    #[test]
    fn a_server_without_tls_gets_no_login_where_tls_was_asked_for() {
        let mut target = secure_connection();
        let first = hello();
        let refused = target
            .decode(&first)
            .expect("a packet")
            .expect("a whole one");
        assert!(matches!(
            refused.answer,
            Answer::Failed(ErrorKind::Denied, _)
        ));
        assert!(!target.wants_tls());
        assert_eq!(said(target.as_mut()).0, b"");
    }

    fn connection() -> Box<dyn Target> {
        let mut target = driver_of(LINES, Some("secret"))
            .expect("a driver")
            .target(0);
        assert_eq!(target.greet(&mut Vec::new()), 1);
        target
    }

    fn hear(target: &mut dyn Target, packet: &[u8]) -> bool {
        let incoming = target
            .decode(packet)
            .expect("a packet")
            .expect("a whole one");
        assert_eq!(incoming.bytes, packet.len());
        incoming.request == GREETING && incoming.answer == Answer::Done
    }

    fn said(target: &mut dyn Target) -> (Vec<u8>, Option<u64>) {
        let (mut out, mut ticket) = (Vec::new(), None);
        loop {
            let before = out.len();
            ticket = target.drain(&mut out).or(ticket);
            if out.len() == before {
                return (out, ticket);
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

    const OK: &[u8] = b"\0\0\0\x02\0\0\0";
    const OK_IN_TRANSACTION: &[u8] = b"\0\0\0\x03\0\0\0";
    const ERROR: &[u8] = b"\xff\x28\x04#42000no";

    /// A connection that is ready. Its server does not prepare `BEGIN` and `COMMIT`.
    fn ready() -> Box<dyn Target> {
        let mut target = connection();
        hear(target.as_mut(), &hello());
        let (login, _) = said(target.as_mut());
        assert!(login.ends_with(b"d\0mysql_native_password\0"));
        hear(target.as_mut(), &packet_with(2, OK));
        let refused = packet_with(1, b"\xff\x0f\x05#HY000not yet");
        assert!(said(target.as_mut()).0.ends_with(b"\x16BEGIN"));
        assert!(!hear(target.as_mut(), &refused));
        assert!(said(target.as_mut()).0.ends_with(b"\x16SELECT ?"));
        // One column and one value, each with its description.
        hear(
            target.as_mut(),
            &packet_with(1, b"\0\x05\0\0\0\x01\0\x01\0\0\0\0"),
        );
        for body in [&b"def"[..], b"\xfe\0\0\x02\0", b"def", b"\xfe\0\0\x02\0"] {
            hear(target.as_mut(), &packet_with(2, body));
        }
        assert!(said(target.as_mut()).0.ends_with(b"\x16COMMIT"));
        assert!(hear(target.as_mut(), &refused));
        target
    }

    #[test]
    fn statements_follow_each_other_and_the_last_one_ends_the_operation() {
        let mut target = ready();
        ask(target.as_mut(), 7);
        let (begin, ticket) = said(target.as_mut());
        assert_eq!(
            (begin.as_slice(), ticket),
            (&b"\x06\0\0\0\x03BEGIN"[..], Some(7))
        );
        hear(target.as_mut(), &packet_with(1, OK_IN_TRANSACTION));
        let (select, _) = said(target.as_mut());
        // The statement 5, once, with one whole number: 8.
        let wanted = b"\x17\x05\0\0\0\0\x01\0\0\0\0\x01\x08\0\x08\0\0\0\0\0\0\0";
        assert_eq!(&select[4..], wanted);
        for body in [
            &b"\x01"[..],
            b"def",
            b"\xfe\0\0\x03\0",
            b"\0\0\x08\0\0\0",
            b"\xfe\0\0\x03\0",
        ] {
            assert_eq!(target.next_reply(), None);
            hear(target.as_mut(), &packet_with(1, body));
        }
        assert!(said(target.as_mut()).0.ends_with(b"\x03COMMIT"));
        hear(target.as_mut(), &packet_with(1, OK));
        let reply = target.next_reply().expect("it is over");
        assert_eq!((reply.ticket, reply.fate), (7, Fate::Done));
        assert!(target.is_idle());
    }

    #[test]
    fn an_error_ends_the_operation_after_its_transaction_was_rolled_back() {
        let mut target = ready();
        ask(target.as_mut(), 7);
        said(target.as_mut());
        hear(target.as_mut(), &packet_with(1, OK_IN_TRANSACTION));
        said(target.as_mut());
        hear(target.as_mut(), &packet_with(1, ERROR));
        assert!(said(target.as_mut()).0.ends_with(b"\x03ROLLBACK"));
        assert_eq!(target.next_reply(), None);
        hear(target.as_mut(), &packet_with(1, OK));
        let failed = Fate::Failed(ErrorKind::Store, b"ERROR 1064: no".to_vec());
        assert_eq!(target.next_reply().map(|it| it.fate), Some(failed));
    }

    #[test]
    fn an_error_outside_of_a_transaction_is_rolled_back_too_since_it_may_have_begun_one() {
        let mut target = ready();
        ask(target.as_mut(), 7);
        ask(target.as_mut(), 8);
        said(target.as_mut());
        hear(target.as_mut(), &packet_with(1, ERROR));
        assert!(said(target.as_mut()).0.ends_with(b"\x03ROLLBACK"));
        hear(target.as_mut(), &packet_with(1, OK));
        assert!(matches!(
            target.next_reply().map(|it| it.fate),
            Some(Fate::Failed(ErrorKind::Store, _))
        ));
        assert_eq!(said(target.as_mut()).1, Some(8));
        // The rollback itself fails.
        hear(target.as_mut(), &packet_with(1, ERROR));
        said(target.as_mut());
        hear(target.as_mut(), &packet_with(1, ERROR));
        assert!(target.next_reply().is_some() && target.is_closing() && target.is_idle());
    }

    #[test]
    fn a_connection_that_the_server_ends_keeps_its_reason() {
        let mut target = ready();
        ask(target.as_mut(), 7);
        said(target.as_mut());
        hear(
            target.as_mut(),
            &packet_with(1, b"\xff\x87\x07#70100killed"),
        );
        let failed = Fate::Failed(ErrorKind::Unavailable, b"ERROR 1927: killed".to_vec());
        assert_eq!(target.next_reply().map(|it| it.fate), Some(failed));
        assert!(target.is_closing() && target.is_idle());
    }

    #[test]
    fn a_parameter_that_is_no_place_of_ours_is_an_error_before_the_run() {
        let mut target = connection();
        hear(target.as_mut(), &hello());
        hear(target.as_mut(), &packet_with(2, OK));
        let body = packet_with(1, b"\0\x05\0\0\0\0\0\x01\0\0\0\0");
        let incoming = target
            .decode(&body)
            .expect("a packet")
            .expect("a whole one");
        assert!(matches!(
            incoming.answer,
            Answer::Failed(ErrorKind::Store, _)
        ));
    }

    #[test]
    fn a_proof_gives_back_the_hash_that_the_server_keeps() {
        let nonce = *b"abcdefghijklmnopqrst";
        let native = proof(NATIVE, Some("pass"), &nonce).expect("a known plugin");
        let caching = proof(CACHING, Some("pass"), &nonce).expect("a known plugin");
        assert_eq!((native.len(), caching.len()), (20, 32));
        let stage = digest(&SHA1_FOR_LEGACY_USE_ONLY, b"pass");
        let kept = digest(&SHA1_FOR_LEGACY_USE_ONLY, stage.as_ref());
        let mixed = digest(
            &SHA1_FOR_LEGACY_USE_ONLY,
            &[&nonce[..], kept.as_ref()].concat(),
        );
        let back: Vec<u8> = native
            .iter()
            .zip(mixed.as_ref())
            .map(|(a, b)| a ^ b)
            .collect();
        assert_eq!(
            digest(&SHA1_FOR_LEGACY_USE_ONLY, &back).as_ref(),
            kept.as_ref()
        );
        assert_eq!(proof(b"other", Some("pass"), &nonce), None);
        assert_eq!(proof(NATIVE, None, &nonce), Some(Vec::new()));
    }

    proptest! {
        #[test]
        fn whatever_comes_is_taken_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..200), greeted in any::<bool>()
        ) {
            let mut target = if greeted { ready() } else { connection() };
            if greeted {
                ask(target.as_mut(), 7);
                said(target.as_mut());
            }
            let input = packet_with(1, &bytes);
            for input in [&bytes[..], &input] {
                let mut rest = input;
                while let Ok(Some(incoming)) = target.decode(rest) {
                    rest = &rest[incoming.bytes..];
                    target.drain(&mut Vec::new());
                }
            }
        }
    }
}
