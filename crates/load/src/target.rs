//! A target: what the bytes mean to the system under test. A new system is a new file like `rpc.rs`.

/// One copy of a request, to be put into bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outgoing {
    /// The request's number.
    pub request: u64,
    /// Who asks.
    pub client: u16,
    /// Who is asked.
    pub server: u16,
    /// What the operation asks of the handler.
    pub flags: u8,
}

/// One reply, taken from bytes. Stamps are of the server's wall clock, 0 is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incoming {
    /// The request that it answers.
    pub request: u64,
    /// Who answers.
    pub server: u16,
    /// The server kernel's stamp of the request.
    pub server_kernel_received_ns: i64,
    /// The server had the request.
    pub server_received_ns: i64,
    /// The server handed the reply over.
    pub server_sent_ns: i64,
    /// Bytes of the reply.
    pub bytes: usize,
}

/// Bytes that are not of the protocol. The connection cannot be used further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
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
}

/// The number of a greeting, which no request has.
pub const GREETING: u64 = u64::MAX;

/// Turns requests into bytes and bytes into replies. Sans-IO.
pub trait Target: Send {
    /// Appends the bytes of one copy.
    fn encode(&mut self, outgoing: Outgoing, out: &mut Vec<u8>);

    /// Appends what a new connection says first, so that the server knows it: a message whose reply
    /// has the number [`GREETING`], or nothing.
    fn greet(&mut self, _client: u16, _server: u16, _out: &mut Vec<u8>) {}

    /// Takes one reply from the start of `input`; `None` when more bytes are needed.
    ///
    /// # Errors
    ///
    /// When the bytes are not of the protocol.
    fn decode(&mut self, input: &[u8]) -> Result<Option<Incoming>, ProtocolError>;
}
