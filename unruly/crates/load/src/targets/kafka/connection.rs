//! A connection to a broker: the login, and then one record after the other.

#[cfg(test)]
mod tests;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use unruly_trace::{DurationNs, ErrorKind, MonoNs, monotonic};

use super::super::template::Turn;
use super::wire::{self, Code, Fetched, LENGTH_BYTES};
use super::{Login, Records};
use crate::target::{
    ASIDE, Answer, Fate, GREETING, Incoming, Outgoing, ProtocolError, REPLY_BYTES_MAX, Reply,
    Target,
};

/// The message at the start of the input, without its length; `None` when more bytes are needed.
fn message(input: &[u8]) -> Result<Option<&[u8]>, ProtocolError> {
    let Some((length, rest)) = input.split_first_chunk::<LENGTH_BYTES>() else {
        return Ok(None);
    };
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    if !(LENGTH_BYTES..=REPLY_BYTES_MAX).contains(&length) {
        return Err(ProtocolError::reply(input, "a reply of Kafka"));
    }
    Ok(rest.get(..length))
}

/// How far the login of a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Handshake,
    Login,
    Ready,
    /// It is of no use: the engine ends it and makes another one, after a pause.
    Broken,
}

/// The login of a connection.
struct Session {
    login: Option<Login>,
    stage: Stage,
}

impl Session {
    const fn new(login: Option<Login>) -> Self {
        Self {
            login,
            stage: Stage::Ready,
        }
    }

    /// Begins anew, and appends the first bytes. Returns how many greetings will come.
    fn begin(&mut self, out: &mut Vec<u8>) -> usize {
        if self.login.is_none() {
            self.stage = Stage::Ready;
            return 0;
        }
        self.stage = Stage::Handshake;
        wire::handshake(out, 0);
        1
    }

    /// Takes a reply before the connection is ready. Returns what the greeting came to, at its end.
    fn take<'a>(
        &mut self,
        reply: &'a [u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Answer<'a>>, ProtocolError> {
        let wrong = || ProtocolError::reply(reply, "a reply of Kafka to a login");
        let answer = match self.stage {
            Stage::Handshake => {
                let (code, known) = wire::handshaken(reply).ok_or_else(wrong)?;
                if code.0 == 0 {
                    if let Some(Login { user, password }) = &self.login {
                        wire::authenticate(out, 1, user, password.reveal());
                    }
                    self.stage = Stage::Login;
                    return Ok(None);
                }
                let words: &[u8] = if known.is_empty() {
                    b"the broker takes no login"
                } else {
                    b"the broker does not take SASL's PLAIN"
                };
                Answer::Failed(ErrorKind::Denied, words)
            }
            _ => {
                let found = wire::logged_in(reply).ok_or_else(wrong)?;
                let words = match found.words {
                    "" => "the broker refuses the login",
                    words => words,
                };
                match found.code {
                    Code(0) => Answer::Done,
                    code => Answer::Failed(code.kind(), words.as_bytes()),
                }
            }
        };
        self.stage = match answer {
            Answer::Done => Stage::Ready,
            _ => Stage::Broken,
        };
        Ok(Some(answer))
    }

    /// Takes a message of the greeting.
    fn greeting<'a>(
        &mut self,
        reply: &'a [u8],
        bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<Incoming<'a>, ProtocolError> {
        Ok(match self.take(reply, out)? {
            Some(answer) => Incoming::new(GREETING, answer, bytes),
            None => Incoming::new(ASIDE, Answer::Sent, bytes),
        })
    }
}

/// Longest wait of a broker for a record that is to be read; then it is asked again, since it does
/// nothing else for this connection meanwhile.
const READ_WAIT_MS: i32 = 100;

/// A broker that has requests and says nothing for longer counts as silent.
const SILENT: DurationNs = DurationNs::seconds(1);

/// A request that the broker has.
enum Open {
    Record {
        ticket: u64,
        partition: i32,
        /// The place of the broker that was thought to lead the partition.
        leader: usize,
    },
    Read {
        ticket: u64,
        partition: i32,
        offset: i64,
    },
    Description,
}

/// A request that was not sent.
struct Waiting {
    ticket: u64,
    /// The number of the request.
    request: u64,
}

/// A connection over which records are written.
pub(super) struct Connection {
    records: Arc<Records>,
    session: Session,
    /// The place that it leads to.
    place: usize,
    waiting: VecDeque<Waiting>,
    /// In the order in which they were sent, with the number of each on the wire.
    open: VecDeque<(i32, Open)>,
    /// When the broker was last known to be there: it said something, or had nothing to say.
    heard_ns: MonoNs,
    /// Tickets that nobody waits for any more.
    forgotten: HashSet<u64>,
    /// The broker was asked who leads.
    describes: bool,
    /// Messages that no request is behind.
    queued: Vec<u8>,
    replies: VecDeque<Reply>,
    /// Requests of this connection so far.
    count: i32,
}

impl Connection {
    pub(super) fn new(records: Arc<Records>, place: usize) -> Self {
        Self {
            session: Session::new(records.login.clone()),
            records,
            place,
            waiting: VecDeque::new(),
            open: VecDeque::new(),
            heard_ns: MonoNs(0),
            forgotten: HashSet::new(),
            describes: false,
            queued: Vec::new(),
            replies: VecDeque::new(),
            count: 0,
        }
    }

    /// Notes a request that is sent now. Returns its number on the wire.
    fn begin(&mut self, open: Open) -> i32 {
        self.count = self.count.wrapping_add(1);
        if self.open.is_empty() {
            self.heard_ns = monotonic();
        }
        self.open.push_back((self.count, open));
        self.count
    }

    fn end(&mut self, ticket: u64, fate: Fate, bytes: usize) {
        if self.forgotten.remove(&ticket) {
            return;
        }
        self.replies.push_back(Reply {
            ticket,
            fate,
            code: None,
            bytes,
        });
    }

    /// A request was refused. Another leader of its partition is asked for.
    fn refused(&mut self, ticket: u64, code: Code, bytes: usize) {
        if code.has_moved() && !self.describes {
            self.describes = true;
            let number = self.begin(Open::Description);
            wire::metadata(&mut self.queued, number, Some(&self.records.topic.name));
        }
        let fate = Fate::Failed(code.kind(), code.words().into_bytes());
        self.end(ticket, fate, bytes);
    }

    /// Asks for a record that was acknowledged.
    fn read(&mut self, ticket: u64, partition: i32, offset: i64) {
        let number = self.begin(Open::Read {
            ticket,
            partition,
            offset,
        });
        let place = (self.records.topic.name.as_str(), partition);
        wire::fetch(&mut self.queued, number, place, offset, READ_WAIT_MS);
    }

    /// Lets other brokers be asked, if this one has said nothing for long.
    fn doubt_silence(&self, now_ns: MonoNs) {
        if !self.open.is_empty() && now_ns - self.heard_ns > SILENT {
            self.records.topic.doubt(self.place, now_ns);
        }
    }

    /// The login failed: nothing that waits for it can be done.
    fn break_off(&mut self, kind: ErrorKind, words: &[u8]) {
        while let Some(Waiting { ticket, .. }) = self.waiting.pop_front() {
            self.end(ticket, Fate::Failed(kind, words.to_vec()), 0);
        }
    }

    /// Takes the reply to the oldest request.
    fn take(&mut self, number: i32, reply: &[u8], bytes: usize) -> Result<(), ProtocolError> {
        let wrong = || ProtocolError::reply(reply, "the reply of Kafka to this request");
        let (asked, open) = self.open.pop_front().ok_or(ProtocolError::Unasked)?;
        if asked != number {
            return Err(wrong());
        }
        match open {
            Open::Description => {
                self.describes = false;
                let found = wire::described(reply).ok_or_else(wrong)?;
                self.records.topic.learn(&found);
            }
            Open::Record {
                ticket,
                partition,
                leader,
            } => {
                let (code, offset) = wire::produced(reply).ok_or_else(wrong)?;
                if code.0 == 0 {
                    self.records.topic.is_led(partition, self.place, leader);
                }
                if code.0 != 0 {
                    self.refused(ticket, code, bytes);
                } else if self.records.reads && !self.forgotten.contains(&ticket) {
                    self.read(ticket, partition, offset);
                } else {
                    self.end(ticket, Fate::Done, bytes);
                }
            }
            Open::Read {
                ticket,
                partition,
                offset,
            } => match wire::fetched(reply, offset).ok_or_else(wrong)? {
                Fetched::Record => self.end(ticket, Fate::Done, bytes),
                Fetched::Nothing if self.forgotten.contains(&ticket) => {
                    self.end(ticket, Fate::Done, bytes);
                }
                Fetched::Nothing => self.read(ticket, partition, offset),
                Fetched::Other => {
                    let words = b"an acknowledged record was not returned".to_vec();
                    self.end(ticket, Fate::Failed(ErrorKind::Unavailable, words), bytes);
                }
                Fetched::Refused(code) => self.refused(ticket, code, bytes),
            },
        }
        Ok(())
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Connection")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl Target for Connection {
    fn greet(&mut self, out: &mut Vec<u8>) -> usize {
        *self = Self::new(Arc::clone(&self.records), self.place);
        self.session.begin(out)
    }

    fn encode(&mut self, outgoing: &Outgoing<'_>, _out: &mut Vec<u8>) {
        match self.session.stage {
            Stage::Broken => self.end(outgoing.request, Fate::Untouched, 0),
            _ => {
                self.doubt_silence(monotonic());
                self.waiting.push_back(Waiting {
                    ticket: outgoing.request,
                    request: outgoing.number,
                });
            }
        }
    }

    fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Option<Incoming<'a>>, ProtocolError> {
        let Some(message) = message(input)? else {
            return Ok(None);
        };
        let bytes = LENGTH_BYTES + message.len();
        let (number, reply) = wire::correlation(message).ok_or(ProtocolError::Unasked)?;
        if self.session.stage == Stage::Ready {
            self.heard_ns = monotonic();
            self.take(number, reply, bytes)?;
            return Ok(Some(Incoming::new(ASIDE, Answer::Sent, bytes)));
        }
        let greeting = self.session.greeting(reply, bytes, &mut self.queued)?;
        if let Answer::Failed(kind, words) = greeting.answer {
            self.break_off(kind, words);
        }
        Ok(Some(greeting))
    }

    fn has_streams(&self) -> bool {
        true
    }

    fn drain(&mut self, out: &mut Vec<u8>) -> Option<u64> {
        if !self.queued.is_empty() {
            out.append(&mut self.queued);
            return None;
        }
        if self.session.stage != Stage::Ready {
            return None;
        }
        let Waiting { ticket, request } = self.waiting.pop_front()?;
        let partition = self.records.topic.partition_of(request);
        let number = self.begin(Open::Record {
            ticket,
            partition,
            leader: self.records.topic.leader_of(request),
        });
        let records = &*self.records;
        let mut value = Vec::new();
        let turn = Turn::new(records.seed, records.portion, request, "");
        records
            .value
            .write(&turn, records.data.as_ref(), &mut value);
        wire::produce(
            out,
            number,
            (&records.topic.name, partition),
            (records.acknowledgements, records.wait_ms),
            value,
        );
        Some(ticket)
    }

    fn next_reply(&mut self) -> Option<Reply> {
        self.replies.pop_front()
    }

    fn is_closing(&self) -> bool {
        self.session.stage == Stage::Broken
    }

    fn is_proven(&self) -> bool {
        self.session.stage == Stage::Ready
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.open.is_empty() && self.replies.is_empty()
    }

    fn forget(&mut self, ticket: u64) {
        if let Some(place) = self.waiting.iter().position(|it| it.ticket == ticket) {
            self.waiting.remove(place);
        } else {
            self.forgotten.insert(ticket);
        }
    }

    fn may_send_again(&self) -> bool {
        false
    }
}

/// A connection on which a broker describes the cluster, before the run.
pub(super) struct Asking {
    session: Session,
    topic: Option<String>,
    /// Messages of the login.
    queued: Vec<u8>,
}

impl Asking {
    /// Asks about one topic, or about all of them.
    pub(super) fn new(login: Option<Login>, topic: Option<&str>) -> Self {
        Self {
            session: Session::new(login),
            topic: topic.map(str::to_owned),
            queued: Vec::new(),
        }
    }
}

impl Target for Asking {
    fn greet(&mut self, out: &mut Vec<u8>) -> usize {
        self.session.begin(out)
    }

    fn encode(&mut self, _outgoing: &Outgoing<'_>, _out: &mut Vec<u8>) {}

    fn encode_census(&mut self, out: &mut Vec<u8>) -> bool {
        wire::metadata(out, 2, self.topic.as_deref());
        true
    }

    fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Option<Incoming<'a>>, ProtocolError> {
        let Some(message) = message(input)? else {
            return Ok(None);
        };
        let bytes = LENGTH_BYTES + message.len();
        if self.session.stage == Stage::Ready {
            return Ok(Some(Incoming::new(0, Answer::Done, bytes)));
        }
        let (_, reply) = wire::correlation(message).ok_or(ProtocolError::Unasked)?;
        let greeting = self.session.greeting(reply, bytes, &mut self.queued)?;
        Ok(Some(greeting))
    }

    fn drain(&mut self, out: &mut Vec<u8>) -> Option<u64> {
        out.append(&mut self.queued);
        None
    }
}
