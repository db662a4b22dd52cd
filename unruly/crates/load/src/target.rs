//! A target defines what the bytes of one connection mean to the system under test.
//!
//! A target is sans-IO: it appends bytes to send and consumes received bytes. Each connection has
//! its own target, so a protocol whose replies come in order can remember its requests. A new
//! system needs a new file in `targets/` and a line there.

use unruly_trace::{ColumnNs, ErrorKind, MonoNs};

/// What one copy of a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation<'a> {
    /// Our own RPC: what the handler is put through.
    Call {
        /// Its flags on the wire.
        flags: u8,
    },
    /// The value of a key.
    Read {
        /// The key.
        key: &'a str,
    },
    /// One of the operations that a plan names.
    Named {
        /// Its number.
        number: usize,
        /// The session is a new user from here on, who has kept nothing of earlier replies.
        begins: bool,
    },
    /// A key gets a value.
    Write {
        /// The key.
        key: &'a str,
        /// The value: printable ASCII without spaces.
        value: &'a str,
    },
}

/// One copy of a request, to be put into bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outgoing<'a> {
    /// Its number, which no other copy of the client has.
    pub request: u64,
    /// The number of the request, which all its copies and tries have.
    pub number: u64,
    /// Which of the client's sessions asks.
    pub session: usize,
    /// When the schedule wants it sent, monotonic.
    pub intended_ns: MonoNs,
    /// What is asked.
    pub operation: Operation<'a>,
}

/// What came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer<'a> {
    /// It was done.
    Done,
    /// The key has this value.
    Found(&'a [u8]),
    /// The key has no value.
    Missing,
    /// It was not done, and what the system says of it.
    Failed(ErrorKind, &'a [u8]),
    /// The system has lost an earlier request or done it twice, and what it says of it.
    Wrong(&'a [u8]),
    /// A request was sent again to another server; its own answer comes apart from this.
    FailedOver(FailOver),
    /// There is nobody who would do it.
    Refused,
    /// Another place of the store has its key, as the route knows from now on.
    Moved,
    /// The place of this number may have its key, which is on its way there: only this request is to be
    /// sent there, announced.
    Ask(usize),
    /// It is on its way, says who asks for us; the answer is still to come.
    Sent,
    /// A token of the answer came; the rest is still to come.
    Token,
    /// A message of the answer came; the rest is still to come.
    Message,
}

/// A request whose server was gone, as its client saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailOver {
    /// The copy.
    pub request: u64,
    /// The client whose request it is.
    pub client: u64,
    /// When the client noticed that the server was gone.
    pub detected_ns: MonoNs,
    /// When it sent the request to another server.
    pub resent_ns: MonoNs,
    /// When that one had answered.
    pub answered_ns: MonoNs,
}

/// Stamps of a reply in the server's column time; 0 is missing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerStamps {
    /// The server kernel's stamp of the request.
    pub kernel_received_ns: ColumnNs,
    /// The server had the request.
    pub received_ns: ColumnNs,
    /// The server handed the reply over.
    pub sent_ns: ColumnNs,
}

/// One reply, taken from bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incoming<'a> {
    /// The copy that it answers, or [`GREETING`].
    pub request: u64,
    /// Who answers, where the reply says it.
    pub server: Option<u16>,
    /// What it says.
    pub answer: Answer<'a>,
    /// What the server stamped, where it does.
    pub stamps: ServerStamps,
    /// When who asks for us sent it, on the monotonic clock.
    pub sent_ns: Option<MonoNs>,
    /// When who asks for us received it.
    pub received_ns: Option<MonoNs>,
    /// Bytes of the message on the wire, if `bytes` is only a report about the message.
    pub wire_bytes: Option<u32>,
    /// Bytes of the input that it took.
    pub bytes: usize,
    /// Status code, where the protocol has one.
    pub code: Option<u16>,
    /// The server closes the connection after this reply.
    pub closes: bool,
}

impl<'a> Incoming<'a> {
    /// A reply without stamps.
    #[must_use]
    pub fn new(request: u64, answer: Answer<'a>, bytes: usize) -> Self {
        Self {
            request,
            server: None,
            answer,
            stamps: ServerStamps::default(),
            sent_ns: None,
            received_ns: None,
            wire_bytes: None,
            bytes,
            code: None,
            closes: false,
        }
    }
}

/// Bytes that are not of the protocol. The connection cannot be used further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The first two bytes are wrong.
    #[error(
        "message begins with {0:#06x}; wanted 0x5501; hint: something else speaks on this port"
    )]
    Magic(u16),
    /// The kind is wrong.
    #[error("message kind is {0}; wanted 1 for a request, 2 for a reply; hint: upgrade the peer")]
    Kind(u8),
    /// The message is of another run.
    #[error("message is of another run; wanted this run's cookie; hint: end the other run")]
    Cookie,
    /// The head is damaged.
    #[error(
        "message has a wrong checksum; wanted CRC-32 of its first 24 bytes; hint: look at the network"
    )]
    Checksum,
    /// The length is not one that this run uses.
    #[error("message has a body of {0} bytes; wanted the run's body length; hint: use one plan")]
    Length(usize),
    /// It is not what the driver knows of the store's protocol.
    #[error("reply is {found:?}; wanted {wanted}; hint: does that store listen there?")]
    Reply {
        /// The beginning of the received bytes.
        found: String,
        /// The expected bytes.
        wanted: &'static str,
    },
    /// The connection of HTTP/2 broke.
    #[error(
        "HTTP/2: {0}; wanted an HTTP/2 server; hint: does it speak HTTP/2? if not, leave out http2"
    )]
    Http2(String),
    /// Nothing was asked.
    #[error(
        "reply to nothing that was asked; wanted one for each request; hint: does that store listen there?"
    )]
    Unasked,
}

impl ProtocolError {
    /// Input that begins as no reply does.
    #[must_use]
    pub fn reply(found: &[u8], wanted: &'static str) -> Self {
        let shown = &found[..found.len().min(40)];
        Self::Reply {
            found: String::from_utf8_lossy(shown).into_owned(),
            wanted,
        }
    }
}

/// What became of a request on a connection that carries many at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It was done.
    Done,
    /// The key has this value.
    Found(Vec<u8>),
    /// The key has no value.
    Missing,
    /// It was not done, and what the system says of it.
    Failed(ErrorKind, Vec<u8>),
    /// The system has lost an earlier request or done it twice, and what it says of it.
    Wrong(Vec<u8>),
    /// A message of its answer came; the rest is still to come.
    Message,
    /// The server did not look at it, so it can be sent again.
    Untouched,
}

impl Fate {
    /// The fate of a request with this answer.
    #[must_use]
    pub fn of(answer: Answer<'_>) -> Self {
        match answer {
            Answer::Done | Answer::Sent | Answer::Token | Answer::FailedOver(_) => Self::Done,
            Answer::Wrong(words) => Self::Wrong(words.to_vec()),
            Answer::Message => Self::Message,
            Answer::Found(value) => Self::Found(value.to_vec()),
            Answer::Missing => Self::Missing,
            Answer::Failed(kind, words) => Self::Failed(kind, words.to_vec()),
            Answer::Refused => Self::Failed(ErrorKind::Store, b"refused".to_vec()),
            Answer::Moved | Answer::Ask(_) => Self::Failed(ErrorKind::Store, b"moved".to_vec()),
        }
    }
}

/// A reply that a connection with many requests has completed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The copy that it answers.
    pub ticket: u64,
    /// What became of it.
    pub fate: Fate,
    /// Status code, where the protocol has one.
    pub code: Option<u16>,
    /// Bytes of the reply.
    pub bytes: usize,
}

impl Reply {
    /// Returns the reply in the form that [`Target::decode`] returns, or `None` if the server did not
    /// process the request.
    #[must_use]
    pub fn incoming(&self) -> Option<Incoming<'_>> {
        let answer = match &self.fate {
            Fate::Done => Answer::Done,
            Fate::Found(value) => Answer::Found(value),
            Fate::Missing => Answer::Missing,
            Fate::Failed(kind, words) => Answer::Failed(*kind, words),
            Fate::Wrong(words) => Answer::Wrong(words),
            Fate::Message => Answer::Message,
            Fate::Untouched => return None,
        };
        Some(Incoming {
            code: self.code,
            ..Incoming::new(self.ticket, answer, self.bytes)
        })
    }
}

/// The number of a reply that answers no request, such as one to a greeting.
pub const GREETING: u64 = u64::MAX;

/// The number of the reply to a question about data of others.
pub const CENSUS: u64 = u64::MAX - 1;

/// The number of a message that is no reply, such as a notice.
pub(crate) const ASIDE: u64 = u64::MAX - 2;

/// Longest reply that is taken.
pub(crate) const REPLY_BYTES_MAX: usize = 32 << 20;

/// What the name of every key of ours begins with.
pub const KEY_PREFIX: &str = "unruly:";

/// Turns requests into bytes and bytes into replies, for one connection. Sans-IO.
pub trait Target: Send {
    /// Prepares a new connection: forgets the requests of an earlier one, and appends the
    /// protocol's first bytes, if it has any. Returns how many replies with the number [`GREETING`]
    /// will come.
    fn greet(&mut self, out: &mut Vec<u8>) -> usize;

    /// Appends the bytes of one copy.
    fn encode(&mut self, outgoing: &Outgoing<'_>, out: &mut Vec<u8>);

    /// Appends the announcement of a request that another place has sent here, see [`Answer::Ask`].
    fn announce(&mut self, _out: &mut Vec<u8>) {}

    /// Appends what removes a key, whose reply has this number. Returns false where the protocol
    /// cannot remove one.
    fn encode_removal(&mut self, _request: u64, _key: &str, _out: &mut Vec<u8>) -> bool {
        false
    }

    /// Appends a question about data of others, whose reply has the number [`CENSUS`] and is
    /// [`Answer::Found`] with a description of it, or [`Answer::Missing`]. Returns false where the
    /// protocol cannot ask.
    fn encode_census(&mut self, _out: &mut Vec<u8>) -> bool {
        false
    }

    /// Takes one reply from the start of `input`; `None` when more bytes are needed.
    ///
    /// # Errors
    ///
    /// When the bytes are not of the protocol.
    fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Option<Incoming<'a>>, ProtocolError>;

    /// Takes a reply that ends where the connection ended, after `input`; `None` if it is none.
    ///
    /// # Errors
    ///
    /// When the bytes are not of the protocol.
    fn decode_end<'a>(&mut self, _input: &'a [u8]) -> Result<Option<Incoming<'a>>, ProtocolError> {
        Ok(None)
    }

    /// True if a connection carries one request at a time. Connections are then opened as requests
    /// need them.
    fn is_one_at_a_time(&self) -> bool {
        false
    }

    /// True if a connection carries many requests, each in a stream of its own. What is encoded then
    /// waits in the target: [`Target::drain`] says when it goes, and [`Target::next_reply`] what
    /// became of it.
    fn has_streams(&self) -> bool {
        false
    }

    /// Appends a message: a request that waited, or one that the protocol sends by itself. Returns the
    /// number of the request, if it is one.
    fn drain(&mut self, _out: &mut Vec<u8>) -> Option<u64> {
        None
    }

    /// Takes a reply that was completed by the input so far.
    fn next_reply(&mut self) -> Option<Reply> {
        None
    }

    /// True if the server has agreed to speak TLS from its next byte on. What the target has for it
    /// until then goes in the clear.
    fn wants_tls(&self) -> bool {
        false
    }

    /// What the target has for the server from now on goes by TLS.
    fn tls_began(&mut self) {}

    /// True if the server takes no further request on this connection, without anything being wrong.
    fn is_closing(&self) -> bool {
        false
    }

    /// True if this connection has brought a reply.
    fn is_proven(&self) -> bool {
        true
    }

    /// True if no request is open on this connection.
    fn is_idle(&self) -> bool {
        true
    }

    /// Sends no more of a request of several parts: it timed out, and its reply may still come.
    fn stop(&mut self, _ticket: u64) {}

    /// Gives up a request: nobody waits for its reply any more.
    fn forget(&mut self, _ticket: u64) {}

    /// True if a request that met only the end of an open connection may be sent again: the server
    /// may have done what it asks for, so that it is then done twice.
    fn may_send_again(&self) -> bool {
        true
    }
}
