//! What is fed: everything that reads bytes which somebody else may have written.

use std::path::PathBuf;

use anyhow::{Context, Result};
use bytes::BytesMut;
use flurry_core::consensus::{ConsensusParams, MemberId};
use flurry_core::controller::{Controller, Group, Replica, ReplicaOutput, SnapshotError};
use flurry_core::id::MonoNs;
use flurry_core::message::Message;
use flurry_core::resp::{Command, Limits, Requests};
use flurry_core::wire::{self, DATAGRAM_BYTES_MAX, HEADER_BYTES};
use unruly_load::{Answer, Operation, Outgoing, Settings, driver};
use unruly_plan::{Cluster, Load, Plan, ServiceFile};
use unruly_trace::SpoolReader;

use crate::cluster::params;
use crate::seed::{conversation, spool};

/// The kinds of input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// A datagram of Flurry's, its checksum mended in most cases.
    Datagram,
    /// Bytes from a TCP connection of Flurry's.
    Frame,
    /// A spool, which is what a log is before it is a segment.
    Log,
    /// A cluster's file and a plan.
    Configuration,
    /// The controller's file.
    State,
    /// What clients of Redis send.
    Resp,
    /// What stores answer.
    Store,
}

impl Kind {
    pub(crate) const ALL: [Self; 7] = [
        Self::Datagram,
        Self::Frame,
        Self::Log,
        Self::Configuration,
        Self::State,
        Self::Resp,
        Self::Store,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Datagram => "datagram",
            Self::Frame => "frame",
            Self::Log => "log",
            Self::Configuration => "configuration",
            Self::State => "state",
            Self::Resp => "resp",
            Self::Store => "store",
        }
    }

    /// No input is longer.
    pub(crate) fn bytes_max(self) -> usize {
        match self {
            Self::Datagram | Self::Frame => DATAGRAM_BYTES_MAX,
            Self::Log | Self::Configuration | Self::State | Self::Resp | Self::Store => 16 << 10,
        }
    }

    /// What reading may hold beside twice the input: structures that are there whatever the input is,
    /// such as a reader's buffer.
    pub(crate) fn allowance_bytes(self) -> usize {
        match self {
            // Lists in a message are bounded by number, not by their bytes.
            Self::Datagram | Self::Frame => 512 << 10,
            // A reader's buffer of a mebibyte, and the header as text and as words.
            Self::Log => (1 << 20) + (64 << 10),
            // A syntax tree of TOML holds each of its pieces in a node with its place and its spaces.
            Self::Configuration | Self::State | Self::Resp | Self::Store => 512 << 10,
        }
    }

    /// How many times the input its tree may be.
    pub(crate) fn factor(self) -> usize {
        match self {
            Self::Configuration => 64,
            // An empty word takes six bytes of a stream, and as much memory as any other.
            // And an empty element of an array four of Redis's.
            Self::Resp | Self::Store => 16,
            _ => 2,
        }
    }
}

/// Something that reads one kind of input.
pub(crate) struct Target {
    kind: Kind,
    /// Where a log is put for its reader.
    place: tempfile::TempDir,
}

impl Target {
    pub(crate) fn new(kind: Kind) -> Result<Self> {
        Ok(Self {
            kind,
            place: tempfile::tempdir().context("a place for logs")?,
        })
    }

    fn log(&self) -> PathBuf {
        self.place.path().join("log.spool")
    }

    /// Input that is right, to begin from.
    pub(crate) fn seeds(&self) -> Result<Vec<Vec<u8>>> {
        Ok(match self.kind {
            Kind::Datagram => {
                let messages = conversation().0;
                let alone = messages.iter().map(bytes_of);
                alone.chain(messages.chunks(3).map(packed)).collect()
            }
            Kind::Frame => conversation().0.chunks(4).map(framed).collect(),
            Kind::Log => vec![spool()?],
            Kind::Configuration => [
                include_str!("../../../flurry/docs/cluster.toml"),
                include_str!("../../../unruly/plans/demo.toml"),
                include_str!("../../../unruly/plans/store.toml"),
                include_str!("../../../unruly/services/redis-replicated.toml"),
                FAULTS,
            ]
            .map(|text| text.as_bytes().to_vec())
            .to_vec(),
            Kind::State => [vec![conversation().1], records()].concat(),
            Kind::Resp => RESP.map(|text| text.as_bytes().to_vec()).to_vec(),
            Kind::Store => STORES.map(|(_, reply)| reply.as_bytes().to_vec()).to_vec(),
        })
    }

    /// Makes input that would fail at its first check pass it, where `mend` says so.
    pub(crate) fn mend(&self, input: &mut [u8]) {
        if self.kind == Kind::Datagram && input.first() == Some(&PACK[0]) {
            mend_pack(input);
        } else if self.kind == Kind::Datagram && input.len() >= HEADER_BYTES {
            input[..2].copy_from_slice(&[0xf1, 1]);
            seal(input);
        }
        if self.kind == Kind::State
            && let Some((sum, stored)) = input.split_first_chunk_mut::<4>()
        {
            *sum = crc32c::crc32c(stored).to_le_bytes();
        }
        if self.kind == Kind::Frame && input.len() >= 4 + HEADER_BYTES {
            let length = input.len() - 4;
            input[..4].copy_from_slice(&u32::try_from(length).unwrap_or(0).to_le_bytes());
            input[4] = 0xf1;
            input[5] = 1;
            seal(&mut input[4..]);
        }
    }

    /// What has to be there before it is read.
    pub(crate) fn prepare(&self, input: &[u8]) -> Result<()> {
        if self.kind == Kind::Log {
            std::fs::write(self.log(), input).context("writing a log")?;
        }
        Ok(())
    }

    /// Reads the input. The returned word distinguishes outcomes, so that an input with a new
    /// outcome is kept.
    pub(crate) fn read(&self, input: &[u8]) -> String {
        match self.kind {
            Kind::Datagram => wire::Unpack::new(input)
                .map(|found| match found {
                    Ok(message) => shape(&message),
                    Err(error) => cut(&error.to_string()),
                })
                .collect(),
            Kind::Frame => {
                let mut stream = BytesMut::from(input);
                let mut ends = String::new();
                loop {
                    match wire::take_frame(&mut stream) {
                        Ok(Some(message)) => ends.push_str(&shape(&message)),
                        Ok(None) => return ends,
                        Err(error) => return ends + &cut(&error.to_string()),
                    }
                }
            }
            Kind::Log => match SpoolReader::open(&self.log()) {
                Ok(mut reader) => {
                    let read = reader.by_ref().count();
                    format!("{} read, {} not", read.min(9), reader.unread.min(9))
                }
                Err(error) => cut(&error.to_string()),
            },
            Kind::Configuration => {
                let text = String::from_utf8_lossy(input);
                let cluster =
                    Cluster::parse("f", &text).map_or_else(|it| it.wanted, |_| String::new());
                let plan = Plan::parse("f", &text).map_or_else(|it| it.wanted, |_| String::new());
                let service = ServiceFile::parse("f", &text);
                let service = service.map_or_else(|it| it.wanted, |_| String::new());
                cut(&cluster) + &cut(&plan) + &cut(&service)
            }
            Kind::Resp => {
                let whole = commands(input, input.len().max(1));
                // However the network cuts it.
                assert_eq!(commands(input, 7), whole, "in pieces it is something else");
                whole
            }
            Kind::Store => STORES.iter().map(|(url, _)| answers(url, input)).collect(),
            Kind::State => {
                let state = Controller::restore(MonoNs(0), params(), input).map(drop);
                let record = Replica::new(MonoNs(0), params(), alone(), Some(input)).map(drop);
                let end = |read: Result<(), SnapshotError>| match read {
                    Ok(()) => "whole".to_owned(),
                    Err(error) => cut(&error.to_string()),
                };
                end(state) + &end(record)
            }
        }
    }
}

/// What a controller writes to its disk until it leads.
fn records() -> Vec<Vec<u8>> {
    let mut written = Vec::new();
    let Ok(mut replica) = Replica::new(MonoNs(0), params(), alone(), None) else {
        return written;
    };
    replica.handle_timeout(MonoNs(0));
    while let Ok(Some(output)) = replica.poll_output(MonoNs(0)) {
        if let ReplicaOutput::Persist(bytes) = output {
            written.push(bytes);
            replica.persisted(MonoNs(0));
        }
    }
    written
}

/// A controller that is alone in its group.
fn alone() -> Group {
    let me = MemberId(1);
    Group {
        consensus: ConsensusParams {
            me,
            members: vec![me],
            silence: params().lease,
            seed: 1,
            part_bytes_max: 1 << 10,
        },
        addresses: vec!["127.0.0.1:7700".to_owned()],
    }
}

const RESP: [&str; 4] = [
    "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
    "PING\r\nSET \"a b\" 'c' \"\\x41\\n\"\r\n\r\nGET a\n",
    "*1\r\n$4\r\nQUIT\r\n*0\r\n*-1\r\n",
    "*2\r\n$4\r\nMGET\r\n$0\r\n\r\n",
];

/// Stores, each with something that it may answer.
const STORES: [(&str, &str); 13] = [
    (
        "url = \"redis://127.0.0.1?replicas=2\"\nlevel = \"all\"",
        "+PONG\r\n+OK\r\n:2\r\n$5\r\nvalue\r\n+OK\r\n:0\r\n$-1\r\n-NOAUTH no\r\n*1\r\n$0\r\n\r\n",
    ),
    (
        "url = \"memcached://127.0.0.1\"",
        "MN\r\nHD\r\nVA 5 s5\r\nvalue\r\nEN\r\nSERVER_ERROR out of memory\r\n",
    ),
    (
        "url = \"memcached://127.0.0.1\"\ntransport = \"udp\"",
        "\0\x01\0\0\0\x01\0\0VA 5\r\nvalue\r\n",
    ),
    (
        "url = \"http://127.0.0.1/{key}\"\noperations = \"write then read\"",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nok\r\n0\r\nA: b\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    ),
    (
        "url = \"http://127.0.0.1/{random:1..9}\"\nmethod = \"POST\"\nbody = \"{uuid}\"\nkeep_alive = false",
        "HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\nno",
    ),
    (
        "url = \"http://127.0.0.1/{key}\"\noperations = \"write then read\"\nhttp2 = true",
        "\0\0\0\x04\0\0\0\0\0\0\0\x05\x01\x05\0\0\0\x01\x08\x03200\0\0\x05\x01\x04\0\0\0\x03\x08\x03200\0\0\x02\0\x01\0\0\0\x03ok",
    ),
    (
        "url = \"postgres://u@127.0.0.1/d\"\nsql = \"BEGIN; SELECT {random:1..9}\"",
        "R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I1\0\0\0\x041\0\0\0\x04Z\0\0\0\x05I2\0\0\0\x04C\0\0\0\x0aBEGIN\0Z\0\0\0\x05T2\0\0\0\x04D\0\0\0\x0b\0\x01\0\0\0\x017E\0\0\0\x17SERROR\0C23505\0Mno\0\0Z\0\0\0\x05EC\0\0\0\x0dROLLBACK\0Z\0\0\0\x05I",
    ),
    (
        "url = \"mysql://u@127.0.0.1/d\"\nsql = \"BEGIN; SELECT {random:1..9}\"",
        "\x0a\0\0\0\x0a9\0\x01\0\0\0abcdefgh\0\0\0\0\0\0\x07\0\0\x02\0\0\0\x02\0\0\0\x05\0\0\x01\0\x01\0\0\0\0\x01\0\0\x01\x01\x03\0\0\x02def\x05\0\0\x03\u{7f}\0\0\x02\0",
    ),
    (
        "url = \"tcp://127.0.0.1:7?contains=o\"\nmessage = \"get {uuid}\"",
        "ok\r\n\nno\n",
    ),
    (
        "url = \"tcp://127.0.0.1:7?framing=length4\"\nmessage = \"get\"",
        "\0\0\0\x02ok\0\0\0\0",
    ),
    (
        "url = \"tcp://127.0.0.1:7?framing=resp\"\nmessage = \"HGETALL k\"",
        "*2\r\n$1\r\na\r\n*1\r\n:1\r\n-ERR no\r\n+OK\r\n$-1\r\n",
    ),
    (
        "url = \"dns://127.0.0.1/a.example.org\"\ntransport = \"tcp\"",
        "\0\x0c\0\x01\u{1}\0\0\0\0\0\0\0\0\0",
    ),
    (
        "url = \"program:none\"",
        "unruly 1\ndone 1 5 6\nfound 2 5 6 value\nmissing 3 5 6\nfailed 4 5 6 denied why not\nno room\n",
    ),
];

/// What a store's answers are to somebody who has asked a few things.
fn answers(store: &str, input: &[u8]) -> String {
    let text = format!("name = \"f\"\n[run]\nduration = \"1s\"\n[drive]\n{store}");
    let Ok(Plan {
        load: Load::Drive(drive),
        ..
    }) = Plan::parse("f", &text)
    else {
        return "no plan".to_owned();
    };
    let Some(store) = &drive.store else {
        return "no store".to_owned();
    };
    let made = driver(&Settings {
        store,
        transport: drive.transport,
        timeout_ns: unruly_trace::DurationNs::seconds(1),
        password: None,
        seed: 1,
        portion: unruly_plan::Portion::new(0, 1),
        trace_key: 0,
        own: None,
    });
    let Ok(made) = made else {
        return "no driver".to_owned();
    };
    let (mut target, mut out) = (made.target(0), Vec::new());
    target.greet(&mut out);
    for request in 0..6 {
        let (key, value) = ("k", "value");
        let operation = match request % 2 {
            0 => Operation::Write { key, value },
            _ => Operation::Read { key },
        };
        let session = 0;
        let outgoing = Outgoing {
            request,
            number: request,
            session,
            intended_ns: unruly_trace::MonoNs(0),
            operation,
        };
        target.encode(&outgoing, &mut out);
    }
    while target.drain(&mut out).is_some() {}
    let (mut ends, mut rest) = (String::new(), input);
    loop {
        match target.decode(rest) {
            Ok(Some(incoming)) => {
                assert!(
                    (1..=rest.len()).contains(&incoming.bytes),
                    "it takes at most the available bytes"
                );
                rest = &rest[incoming.bytes..];
                ends.push_str(letter(incoming.answer));
                while let Some(reply) = target.next_reply() {
                    ends.push(if reply.incoming().is_some() { 'y' } else { 'u' });
                }
                while target.drain(&mut out).is_some() {}
            }
            Ok(None) => {
                // The connection may end here as well.
                if matches!(target.decode_end(rest), Ok(Some(_))) {
                    ends.push('c');
                }
                return ends;
            }
            Err(error) => return ends + &cut(&error.to_string()),
        }
        if rest.is_empty() {
            return ends;
        }
    }
}

/// A letter for each kind of answer.
fn letter(answer: Answer<'_>) -> &'static str {
    match answer {
        Answer::Done => "d",
        Answer::Found(_) => "f",
        Answer::Refused => "r",
        Answer::Sent => "s",
        Answer::Missing => "m",
        Answer::Failed(..) => "e",
        Answer::Token => "p",
        Answer::Message => "m",
        Answer::Moved => "v",
        Answer::Ask(_) => "a",
        Answer::Wrong(_) => "w",
        Answer::FailedOver(_) => "o",
    }
}

/// Returns the outcome of a Redis protocol stream that arrives in pieces of `bytes` bytes.
fn commands(stream: &[u8], bytes: usize) -> String {
    let mut requests = Requests::new(Limits::with_words_up_to(4_096));
    let mut input = BytesMut::new();
    let mut ends = String::new();
    for part in stream.chunks(bytes) {
        input.extend_from_slice(part);
        loop {
            match requests.take(&mut input) {
                Ok(Some(Command::Words(words))) => {
                    ends.push_str(&format!("{} ", words.len().min(9)));
                }
                Ok(Some(Command::TooLong)) => ends.push_str("long "),
                Ok(None) => break,
                Err(error) => return ends + &cut(&error.to_string()),
            }
        }
    }
    ends
}

const FAULTS: &str = r#"
seed = 3
[cluster]
replicas = 1
shards = 2
[[server]]
id = 1
listen = "127.0.0.1:7701"
[client]
level = "hedge"
hedge = "1ms"
[[fault]]
part = "server-1"
peer = "client"
direction = "receive"
delay = "1ms"
delay_shape = 1.5
loss = 0.5
"#;

/// What kind of message it is, without its numbers.
fn shape(message: &Message) -> String {
    let text = match message {
        Message::Request(copy) => format!("{:?}", copy.request.ask),
        Message::Reply(reply) => format!("{:?}", reply.verdict),
        Message::Answer(answer) => format!("{:?}", answer.outcome),
        Message::Control(control) => format!("{control:?}"),
    };
    text.chars().take_while(char::is_ascii_alphabetic).collect()
}

/// The beginning of a message for people, up to its first number.
fn cut(text: &str) -> String {
    text.chars()
        .take_while(|it| !it.is_ascii_digit())
        .take(60)
        .collect()
}

fn bytes_of(message: &Message) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    wire::encode(message, &mut bytes);
    bytes.to_vec()
}

fn framed(messages: &[Message]) -> Vec<u8> {
    let mut stream = Vec::new();
    for message in messages {
        let bytes = bytes_of(message);
        stream.extend(u32::try_from(bytes.len()).unwrap_or(0).to_le_bytes());
        stream.extend(bytes);
    }
    stream
}

/// What a datagram of several messages begins with.
const PACK: [u8; 2] = [0xf2, 1];

fn packed(messages: &[Message]) -> Vec<u8> {
    [&PACK[..], &framed(messages)].concat()
}

/// Gives the first message of a pack a length, a beginning and a checksum that are right.
fn mend_pack(input: &mut [u8]) {
    let Some((head, frames)) = input.split_first_chunk_mut::<2>() else {
        return;
    };
    *head = PACK;
    let Some((length, messages)) = frames.split_first_chunk_mut::<4>() else {
        return;
    };
    let claimed = u32::from_le_bytes(*length) as usize;
    let fits = (HEADER_BYTES..=messages.len()).contains(&claimed);
    let taken = if fits { claimed } else { messages.len() };
    if taken >= HEADER_BYTES {
        *length = u32::try_from(taken).unwrap_or(0).to_le_bytes();
        messages[..2].copy_from_slice(&[0xf1, 1]);
        seal(&mut messages[..taken]);
    }
}

/// Writes the checksum that the bytes should have.
fn seal(message: &mut [u8]) {
    let sum = crc32c::crc32c_append(crc32c::crc32c(&message[..4]), &message[8..]);
    message[4..8].copy_from_slice(&sum.to_le_bytes());
}
