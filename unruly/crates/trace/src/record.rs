//! One row of `requests` as it travels through the ring and the spool: fixed size, no pointers.

use std::sync::LazyLock;

use unruly_time::ColumnNs;

use crate::schema::Table;
use crate::segment::Value;
use crate::spool::SpoolHeader;

/// A time that never came.
pub const NULL_NS: ColumnNs = ColumnNs(i64::MIN);

/// What became of one copy of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Answered in time.
    Ok,
    /// Not answered within the timeout; `received_ns` is set when the reply came later.
    Timeout,
    /// The peer refused the connection or the request.
    Refused,
    /// Not sent: it would have exceeded the bound of requests in flight.
    Shed,
    /// Still open when the run ended.
    Unfinished,
    /// Answered, but the answer was wrong.
    Wrong,
    /// Read, and found a value that a later write had replaced before the read was sent.
    WrongStale,
    /// Read, and found nothing although a write had been acknowledged.
    WrongLost,
    /// A copy whose replica was behind.
    Behind,
    /// A copy whose replica answered from another epoch.
    Stale,
    /// A copy that was lost.
    Lost,
    /// Failed otherwise.
    Error(ErrorKind),
}

/// How a copy failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The connection was reset or closed by the peer.
    Reset,
    /// No connection: the peer is being reconnected to with back-off.
    Disconnected,
    /// The peer sent bytes that are not of the protocol.
    Protocol,
    /// The operating system refused to send.
    Send,
    /// The store answered that it did not do it.
    Store,
    /// The store does not let us in, or not do this.
    Denied,
    /// Too few replicas have it, or are there to have it.
    Unavailable,
    /// The reply has a status code that was not expected: the row's `code`.
    Code,
    /// The reply lacks what the plan wants in it.
    Content,
}

impl Status {
    /// Every status, in the order of their codes in a spool.
    pub const ALL: [Self; 20] = [
        Self::Ok,
        Self::Timeout,
        Self::Refused,
        Self::Shed,
        Self::Unfinished,
        Self::Wrong,
        Self::Behind,
        Self::Stale,
        Self::Lost,
        Self::Error(ErrorKind::Reset),
        Self::Error(ErrorKind::Disconnected),
        Self::Error(ErrorKind::Protocol),
        Self::Error(ErrorKind::Send),
        Self::Error(ErrorKind::Store),
        Self::Error(ErrorKind::Denied),
        Self::Error(ErrorKind::Unavailable),
        Self::WrongStale,
        Self::WrongLost,
        Self::Error(ErrorKind::Code),
        Self::Error(ErrorKind::Content),
    ];

    /// The word in the column.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Timeout => "timeout",
            Self::Refused => "refused",
            Self::Shed => "shed",
            Self::Unfinished => "unfinished",
            Self::Wrong => "wrong",
            Self::WrongStale => "wrong:stale",
            Self::WrongLost => "wrong:lost",
            Self::Behind => "behind",
            Self::Stale => "stale",
            Self::Lost => "lost",
            Self::Error(ErrorKind::Reset) => "error:reset",
            Self::Error(ErrorKind::Disconnected) => "error:disconnected",
            Self::Error(ErrorKind::Protocol) => "error:protocol",
            Self::Error(ErrorKind::Send) => "error:send",
            Self::Error(ErrorKind::Store) => "error:store",
            Self::Error(ErrorKind::Denied) => "error:denied",
            Self::Error(ErrorKind::Unavailable) => "error:unavailable",
            Self::Error(ErrorKind::Code) => "error:code",
            Self::Error(ErrorKind::Content) => "error:content",
        }
    }

    /// The word in the column of a row whose reply has this status code.
    #[must_use]
    pub fn name_with(self, code: Option<u16>) -> &'static str {
        let (Self::Error(ErrorKind::Code), Some(code)) = (self, code.map(usize::from)) else {
            return self.name();
        };
        let found = match code.checked_sub(LEAST_CODE) {
            Some(place) => CODE_ERRORS.get(place),
            None => GRPC_ERRORS.get(code),
        };
        found.map_or_else(|| self.name(), String::as_str)
    }

    fn code(self) -> u8 {
        let position = Self::ALL.iter().position(|status| *status == self);
        position
            .and_then(|position| u8::try_from(position).ok())
            .unwrap_or(u8::MAX)
    }

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// The smallest status code of HTTP.
const LEAST_CODE: usize = 100;

/// The words of replies whose status code was not expected, from `error:100` on.
static CODE_ERRORS: LazyLock<Vec<String>> = LazyLock::new(|| {
    (LEAST_CODE..1_000)
        .map(|code| format!("error:{code}"))
        .collect()
});

/// The status codes of gRPC, by their numbers.
pub const GRPC_STATUSES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// The words of replies whose status of gRPC was not expected: `error:UNAVAILABLE`.
static GRPC_ERRORS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let words = GRPC_STATUSES.iter().map(|name| format!("error:{name}"));
    words.collect()
});

/// Which replies a request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// The first.
    First,
    /// A majority.
    Quorum,
    /// All.
    All,
}

impl Level {
    const NAMES: [&'static str; 3] = ["first", "quorum", "all"];

    fn code(self) -> u8 {
        match self {
            Self::First => 0,
            Self::Quorum => 1,
            Self::All => 2,
        }
    }
}

/// Cell, repeat, request, server and attempt of a copy. No other copy of a spool has the same.
pub(crate) type Identity = (u16, u16, u64, u16, u8);

/// One row of `requests`. Times are column time (see [`crate::Clock`]), [`NULL_NS`] when they never came.
/// `cell`, `phase` and `op` are indices into the names of the spool's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// When the schedule said to send.
    pub intended_ns: ColumnNs,
    /// Handed to the kernel.
    pub sent_ns: ColumnNs,
    /// Last byte in user space.
    pub received_ns: ColumnNs,
    /// The kernel's stamp of the reply.
    pub kernel_received_ns: ColumnNs,
    /// The server kernel's stamp of the request, on the server's clock.
    pub server_kernel_received_ns: ColumnNs,
    /// The server had the request, on its clock.
    pub server_received_ns: ColumnNs,
    /// The server handed the reply over, on its clock.
    pub server_sent_ns: ColumnNs,
    /// Shared by the copies of one request; unique for its client within a cell and repeat.
    pub request: u64,
    /// The key, where the operation has one.
    pub key: Option<u64>,
    /// Connection of the client.
    pub connection: u32,
    /// Bytes handed over.
    pub sent_bytes: u32,
    /// Bytes that came back.
    pub received_bytes: u32,
    /// Index of the cell's name.
    pub cell: u16,
    /// Which repetition of the cell.
    pub repeat: u16,
    /// Who asked.
    pub client: u16,
    /// Who was asked.
    pub server: u16,
    /// Index of the operation's name.
    pub op: u8,
    /// Index of the phase's name.
    pub phase: u8,
    /// 0, or the retry's number.
    pub attempt: u8,
    /// Which replies the request waits for.
    pub level: Option<Level>,
    /// What became of the copy.
    pub status: Status,
    /// This reply gave the request its answer.
    pub answered: bool,
    /// Status code of the reply, where its protocol has one.
    pub code: Option<u16>,
    /// The request waited in the client for a free connection.
    pub waited: bool,
    /// Not a row: the copy is still open after half a second, so that a crash does not forget it.
    pub provisional: bool,
    /// A provisional record of this copy went before.
    pub supersedes: bool,
}

impl Record {
    /// Size of a record in a spool.
    pub const BYTES: usize = 104;

    /// An empty record: nothing came, nothing known.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            intended_ns: ColumnNs(0),
            sent_ns: NULL_NS,
            received_ns: NULL_NS,
            kernel_received_ns: NULL_NS,
            server_kernel_received_ns: NULL_NS,
            server_received_ns: NULL_NS,
            server_sent_ns: NULL_NS,
            request: 0,
            key: None,
            connection: 0,
            sent_bytes: 0,
            received_bytes: 0,
            cell: 0,
            repeat: 0,
            client: 0,
            server: 0,
            op: 0,
            phase: 0,
            attempt: 0,
            level: None,
            status: Status::Unfinished,
            answered: false,
            code: None,
            waited: false,
            provisional: false,
            supersedes: false,
        }
    }

    /// Identity of the copy within its process's spool.
    #[must_use]
    pub(crate) fn identity(&self) -> Identity {
        (
            self.cell,
            self.repeat,
            self.request,
            self.server,
            self.attempt,
        )
    }

    /// Appends the 104 bytes, the last four a CRC-32 of the others.
    pub fn encode(&self, out: &mut Vec<u8>) {
        // One array and one copy: the offsets are known, so this is plain stores.
        let mut bytes = [0; Self::BYTES];
        let mut at = 0;
        let mut put = |field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        for time in [
            self.intended_ns,
            self.sent_ns,
            self.received_ns,
            self.kernel_received_ns,
            self.server_kernel_received_ns,
            self.server_received_ns,
            self.server_sent_ns,
        ] {
            put(&time.0.to_le_bytes());
        }
        put(&self.request.to_le_bytes());
        put(&self.key.unwrap_or(0).to_le_bytes());
        for number in [self.connection, self.sent_bytes, self.received_bytes] {
            put(&number.to_le_bytes());
        }
        for number in [self.cell, self.repeat, self.client, self.server] {
            put(&number.to_le_bytes());
        }
        let level = self.level.map_or(u8::MAX, Level::code);
        let flags = u8::from(self.answered)
            | u8::from(self.provisional) << 1
            | u8::from(self.supersedes) << 2
            | u8::from(self.key.is_some()) << 3
            | u8::from(self.waited) << 4;
        put(&[self.op, self.phase, self.attempt, level]);
        put(&[self.status.code(), flags]);
        put(&self.code.unwrap_or(0).to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..Self::BYTES - 4]);
        bytes[Self::BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&bytes);
    }

    /// Reads a record; `None` when it is torn or not a record.
    #[must_use]
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let time_at = |at: usize| ColumnNs(u64_at(at).cast_signed());
        if crc32c::crc32c(&bytes[..100]) != u32_at(100) {
            return None;
        }
        let flags = bytes[97];
        Some(Self {
            intended_ns: time_at(0),
            sent_ns: time_at(8),
            received_ns: time_at(16),
            kernel_received_ns: time_at(24),
            server_kernel_received_ns: time_at(32),
            server_received_ns: time_at(40),
            server_sent_ns: time_at(48),
            request: u64_at(56),
            key: (flags & 8 != 0).then(|| u64_at(64)),
            connection: u32_at(72),
            sent_bytes: u32_at(76),
            received_bytes: u32_at(80),
            cell: u16_at(84),
            repeat: u16_at(86),
            client: u16_at(88),
            server: u16_at(90),
            op: bytes[92],
            phase: bytes[93],
            attempt: bytes[94],
            level: [Level::First, Level::Quorum, Level::All]
                .get(usize::from(bytes[95]))
                .copied(),
            status: Status::from_code(bytes[96])?,
            answered: flags & 1 != 0,
            code: Some(u16_at(98)).filter(|code| *code != 0),
            waited: flags & 16 != 0,
            provisional: flags & 2 != 0,
            supersedes: flags & 4 != 0,
        })
    }

    /// The value of column number `column` of `requests`.
    ///
    /// # Panics
    ///
    /// If `column` is not a column of the table; callers iterate over its columns.
    #[must_use]
    #[inline]
    pub fn value<'a>(&self, column: usize, header: &'a SpoolHeader) -> Value<'a> {
        let time = |time: ColumnNs| {
            if time == NULL_NS {
                Value::Null
            } else {
                Value::Int(time.0)
            }
        };
        match column {
            0 => Value::Text(name(&header.cells, usize::from(self.cell))),
            1 => Value::Int(i64::from(self.repeat)),
            2 => Value::Text(name(&header.phases, usize::from(self.phase))),
            3 => Value::Text(&header.host),
            4 => Value::Text(&header.process),
            5 => Value::Text(name(&header.ops, usize::from(self.op))),
            6 => Value::Int(i64::from(self.client)),
            7 => Value::Int(i64::from(self.server)),
            8 => Value::Int(self.request.cast_signed()),
            9 => Value::Int(i64::from(self.attempt)),
            10 => Value::Int(i64::from(self.connection)),
            11 => self
                .key
                .map_or(Value::Null, |key| Value::Int(key.cast_signed())),
            12 => Value::Int(self.intended_ns.0),
            13 => time(self.sent_ns),
            14 => time(self.received_ns),
            15 => time(self.kernel_received_ns),
            16 => time(self.server_kernel_received_ns),
            17 => time(self.server_received_ns),
            18 => time(self.server_sent_ns),
            19 => Value::Int(i64::from(self.sent_bytes)),
            20 => Value::Int(i64::from(self.received_bytes)),
            21 => self.level.map_or(Value::Null, |level| {
                Value::Text(Level::NAMES[usize::from(level.code())])
            }),
            22 => Value::Text(self.status.name_with(self.code)),
            23 => Value::Bool(self.answered),
            24 => self
                .code
                .map_or(Value::Null, |code| Value::Int(i64::from(code))),
            25 => Value::Bool(self.waited),
            _ => unreachable!("{} has no column {column}", Table::Requests.name()),
        }
    }
}

/// A name by its index; an index beyond the header's names (a corrupt spool) is shown as such.
fn name(names: &[String], index: usize) -> &str {
    names.get(index).map_or("unknown", String::as_str)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_record() -> impl Strategy<Value = Record> {
        let times =
            prop::array::uniform7(prop_oneof![Just(NULL_NS), any::<i64>().prop_map(ColumnNs)]);
        let numbers = (
            any::<u64>(),
            any::<Option<u64>>(),
            any::<[u32; 3]>(),
            any::<[u16; 4]>(),
        );
        let small = (
            any::<[u8; 3]>(),
            0..4_usize,
            0..Status::ALL.len(),
            any::<[bool; 4]>(),
            prop::option::of(1..=u16::MAX),
        );
        (times, numbers, small).prop_map(|(times, numbers, small)| Record {
            intended_ns: times[0],
            sent_ns: times[1],
            received_ns: times[2],
            kernel_received_ns: times[3],
            server_kernel_received_ns: times[4],
            server_received_ns: times[5],
            server_sent_ns: times[6],
            request: numbers.0,
            key: numbers.1,
            connection: numbers.2[0],
            sent_bytes: numbers.2[1],
            received_bytes: numbers.2[2],
            cell: numbers.3[0],
            repeat: numbers.3[1],
            client: numbers.3[2],
            server: numbers.3[3],
            op: small.0[0],
            phase: small.0[1],
            attempt: small.0[2],
            level: [
                None,
                Some(Level::First),
                Some(Level::Quorum),
                Some(Level::All),
            ][small.1],
            status: Status::ALL[small.2],
            answered: small.3[0],
            code: small.4,
            waited: small.3[3],
            provisional: small.3[1],
            supersedes: small.3[2],
        })
    }

    proptest! {
        #[test]
        fn a_record_reads_back_as_it_was_written(record in any_record()) {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            prop_assert_eq!(bytes.len(), Record::BYTES);
            let bytes: [u8; Record::BYTES] = bytes.try_into().unwrap();
            prop_assert_eq!(Record::decode(&bytes), Some(record));
        }

        #[test]
        fn a_record_with_any_flipped_bit_is_refused(record in any_record(), bit in 0..Record::BYTES * 8) {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            let mut bytes: [u8; Record::BYTES] = bytes.try_into().unwrap();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Record::decode(&bytes), None);
        }
    }

    #[test]
    fn a_record_with_one_bit_turned_is_no_record() {
        let mut bytes = Vec::new();
        Record::empty().encode(&mut bytes);
        let whole: [u8; Record::BYTES] = bytes.try_into().unwrap();
        assert!(Record::decode(&whole).is_some());
        for bit in 0..8 * Record::BYTES {
            let mut turned = whole;
            turned[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Record::decode(&turned), None, "bit {bit}");
        }
    }

    #[test]
    fn a_status_code_that_was_not_expected_is_in_the_status() {
        let failed = Status::Error(ErrorKind::Code);
        assert_eq!(failed.name_with(Some(404)), "error:404");
        assert_eq!(failed.name_with(Some(14)), "error:UNAVAILABLE");
        assert_eq!(failed.name_with(Some(99)), "error:code");
        assert_eq!(failed.name_with(None), "error:code");
        assert_eq!(Status::Ok.name_with(Some(404)), "ok");
    }

    #[test]
    fn every_column_of_the_contract_has_a_value() {
        let header = SpoolHeader::for_tests();
        for column in 0..Table::Requests.columns().len() {
            let _ = Record::empty().value(column, &header);
        }
    }
}
