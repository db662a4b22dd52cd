//! The records of a process of another language, as `unruly/schema/foreign.md` writes them down.

use unruly_trace::{DurationNs, MonoNs};

/// Length of a record.
pub(crate) const RECORD_BYTES: usize = 96;

const MAGIC: u32 = 0x554E_524A;
const VERSION: u16 = 1;
const FIELDS: usize = 10;
const ABSENT: i64 = i64::MIN;

/// What a foreign process says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    /// It is ready, and bound to this port.
    Hello { port: Option<u16> },
    /// What flowed.
    Interval(Interval),
    /// A stamped message came.
    Sample {
        sequence: u64,
        sent_ns: MonoNs,
        received_ns: MonoNs,
        bytes: u32,
    },
    /// What its collector and its competing load have done since it began.
    Collector {
        at_ns: MonoNs,
        collections: i64,
        collection_ns: DurationNs,
        load_cpu_ns: Option<DurationNs>,
    },
    /// Its stream is over.
    Drained,
    /// It did what it was asked.
    Done,
    /// Records that found no room.
    Dropped(u64),
    /// It could not: the end of why, after the words before it.
    Failure(String),
    /// A part of why it could not.
    Words(String),
    /// The other end is met.
    Peers,
    /// Connections and datagrams that its server turned away.
    Refused(u64),
    /// Something of a later version.
    Unknown,
}

/// What flowed in an interval; times are monotonic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) started_ns: MonoNs,
    pub(crate) ended_ns: MonoNs,
    pub(crate) bytes: u64,
    pub(crate) messages: u64,
    pub(crate) lost: Option<u64>,
    pub(crate) duplicated: Option<u64>,
    pub(crate) reordered: Option<u64>,
    pub(crate) in_flight: Option<u64>,
    pub(crate) cpu_ns: DurationNs,
    pub(crate) rss_bytes: Option<u64>,
}

/// A command to a foreign process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    /// The address of its peer.
    Peer { address: u32, port: u16 },
    /// The start and the end of the load.
    Start { start_ns: MonoNs, end_ns: MonoNs },
    /// End now.
    Stop,
}

impl Record {
    /// Reads a record; none where it is not one of this version.
    pub(crate) fn read(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        let (kind, fields) = fields_of(bytes)?;
        Some(match kind {
            1 => Self::Hello {
                port: u16::try_from(fields[1]).ok().filter(|port| *port > 0),
            },
            2 => Self::Interval(Interval {
                started_ns: MonoNs(fields[0]),
                ended_ns: MonoNs(fields[1]),
                bytes: count(fields[2]).unwrap_or(0),
                messages: count(fields[3]).unwrap_or(0),
                lost: count(fields[4]),
                duplicated: count(fields[5]),
                reordered: count(fields[6]),
                in_flight: count(fields[7]),
                cpu_ns: DurationNs(fields[8]),
                rss_bytes: count(fields[9]),
            }),
            3 => Self::Sample {
                sequence: count(fields[0])?,
                sent_ns: MonoNs(fields[1]),
                received_ns: MonoNs(fields[2]),
                bytes: u32::try_from(fields[3]).unwrap_or(u32::MAX),
            },
            4 => Self::Collector {
                at_ns: MonoNs(fields[0]),
                collections: fields[1],
                collection_ns: DurationNs(fields[2]),
                load_cpu_ns: Some(fields[4]).filter(|it| *it != ABSENT).map(DurationNs),
            },
            5 => Self::Drained,
            6 => Self::Done,
            7 => Self::Dropped(count(fields[0]).unwrap_or(0)),
            8 => Self::Failure(text(bytes)),
            9 => Self::Peers,
            10 => Self::Words(text(bytes)),
            38 => Self::Refused(count(fields[0]).unwrap_or(0)),
            _ => Self::Unknown,
        })
    }
}

impl Command {
    /// The bytes of it.
    pub(crate) fn bytes(self) -> [u8; RECORD_BYTES] {
        match self {
            Self::Peer { address, port } => bytes_of(16, &[i64::from(address), i64::from(port)]),
            Self::Start { start_ns, end_ns } => bytes_of(17, &[start_ns.0, end_ns.0]),
            Self::Stop => bytes_of(18, &[]),
        }
    }
}

/// The kind of a record and its fields; none where it is not one of this version.
pub(crate) fn fields_of(bytes: &[u8; RECORD_BYTES]) -> Option<(u16, [i64; FIELDS])> {
    let (head, rest) = bytes.split_first_chunk::<8>()?;
    let (body, tail) = rest.split_at(8 * FIELDS);
    let sum = u32::from_be_bytes([tail[0], tail[1], tail[2], tail[3]]);
    let magic = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
    let version = u16::from_be_bytes([head[4], head[5]]);
    if magic != MAGIC || version != VERSION || sum != crc32fast::hash(&bytes[..88]) {
        return None;
    }
    let (chunks, _) = body.as_chunks::<8>();
    let mut fields = [ABSENT; FIELDS];
    for (field, chunk) in fields.iter_mut().zip(chunks) {
        *field = i64::from_be_bytes(*chunk);
    }
    Some((u16::from_be_bytes([head[6], head[7]]), fields))
}

/// A record of this kind; fields beyond the given ones are absent.
pub(crate) fn bytes_of(kind: u16, given: &[i64]) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&VERSION.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    let fields = given.iter().copied().chain(std::iter::repeat(ABSENT));
    for (at, field) in fields.take(FIELDS).enumerate() {
        bytes[8 + 8 * at..16 + 8 * at].copy_from_slice(&field.to_be_bytes());
    }
    let sum = crc32fast::hash(&bytes[..88]);
    bytes[88..92].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// A count, where there is one.
fn count(field: i64) -> Option<u64> {
    u64::try_from(field).ok()
}

fn text(bytes: &[u8; RECORD_BYTES]) -> String {
    let body = &bytes[8..88];
    let end = body.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&body[..end.unwrap_or(body.len())]).into_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use super::*;

    /// The golden bytes of a name.
    pub(crate) fn golden(name: &str) -> Vec<u8> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema/golden/foreign.txt");
        let text = std::fs::read_to_string(path).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name} ")));
        let digits = line.unwrap().as_bytes();
        let pairs = digits
            .chunks(2)
            .map(|pair| std::str::from_utf8(pair).unwrap());
        pairs
            .map(|pair| u8::from_str_radix(pair, 16).unwrap())
            .collect()
    }

    fn read(name: &str) -> Record {
        Record::read(&golden(name).try_into().unwrap()).unwrap()
    }

    #[test]
    fn the_golden_records_are_read_as_they_were_written() {
        assert_eq!(read("hello"), Record::Hello { port: None });
        assert_eq!(
            read("interval"),
            Record::Interval(Interval {
                started_ns: MonoNs(1),
                ended_ns: MonoNs(2),
                bytes: 3,
                messages: 4,
                lost: None,
                duplicated: None,
                reordered: None,
                in_flight: None,
                cpu_ns: DurationNs(9),
                rss_bytes: Some(10),
            })
        );
        let sample = Record::Sample {
            sequence: 1,
            sent_ns: MonoNs(2),
            received_ns: MonoNs(3),
            bytes: 4,
        };
        assert_eq!(read("sample"), sample);
        let collector = Record::Collector {
            at_ns: MonoNs(1),
            collections: 2,
            collection_ns: DurationNs(3),
            load_cpu_ns: Some(DurationNs(5)),
        };
        assert_eq!(read("collector"), collector);
        assert_eq!(read("drained"), Record::Drained);
        assert_eq!(read("done"), Record::Done);
        assert_eq!(read("dropped"), Record::Dropped(1));
        assert_eq!(
            read("failure"),
            Record::Failure("jvm-tcp: zu groß".to_owned())
        );
        assert_eq!(read("peers"), Record::Peers);
        assert_eq!(read("words"), Record::Words("0123456789".repeat(8)));
        assert_eq!(read("refused"), Record::Refused(1));
    }

    #[test]
    fn the_golden_commands_are_written_as_they_are_read_there() {
        let peer = Command::Peer {
            address: u32::from_be_bytes([10, 77, 0, 2]),
            port: 7_000,
        };
        assert_eq!(peer.bytes().to_vec(), golden("peer"));
        let start = Command::Start {
            start_ns: MonoNs(1),
            end_ns: MonoNs(2),
        };
        assert_eq!(start.bytes().to_vec(), golden("start"));
        assert_eq!(Command::Stop.bytes().to_vec(), golden("stop"));
    }

    #[test]
    fn a_record_with_a_damaged_byte_is_none() {
        let whole: [u8; RECORD_BYTES] = golden("sample").try_into().unwrap();
        for at in 0..92 {
            let mut damaged = whole;
            damaged[at] ^= 1;
            assert_eq!(Record::read(&damaged), None, "byte {at}");
        }
    }
}
