//! Turnarounds of a tap: records of fixed size while they come, a segment when they are many.
//!
//! Layout (`unruly/schema/spool.md`): `UNRULYW1`, header length (u32, little-endian), the header as
//! JSON, then records of [`BYTES`] bytes. A torn last record is what a crash leaves, and is dropped.
//! Words that are not known at the start, such as names of programs, are in records of their own.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufReader, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use nix::fcntl::Flock;
use serde::{Deserialize, Serialize};
use unruly_time::ColumnNs;

use crate::error::TraceError;
use crate::locks::WriterLock;
use crate::schema::{SCHEMA_VERSION, Table};
use crate::segment::{GROUP_ROWS, SegmentMeta, SegmentWriter, Value};
use crate::table_spool::create_spool;

const MAGIC: &[u8; 8] = b"UNRULYW1";
const HEADER_BYTES_MAX: u32 = 1 << 20;

/// A spool becomes a segment at this many rows (104 MB).
const ROWS_MAX: u64 = 1 << 20;

/// Length of a record.
const BYTES: usize = 104;
/// Where its checksum begins.
const SUM: usize = BYTES - 4;
/// Bytes of a word's record that hold the word.
const WORD_BYTES_MAX: usize = 64;

const NO_WORD: u32 = u32::MAX;
const NULL_NS: i64 = i64::MIN;

/// How a turnaround ended, by its number in a record.
const STATUSES: [&str; 6] = ["ok", "cut", "overlapped", "gap", "open", "joined"];

/// How a turnaround ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnaroundStatus {
    /// The reply was whole.
    Ok,
    /// The connection ended before a whole reply.
    Cut,
    /// Several requests were open at once on the connection.
    Overlapped,
    /// The tap has missed some of its bytes.
    Gap,
    /// The tap ended before a whole reply.
    Open,
    /// The connection was open before the tap began, so the request may have begun before it.
    Joined,
}

/// A row of `turnarounds`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnaroundRow {
    /// The place of the tier in the list of the spool.
    pub tier: u16,
    /// The service's address.
    pub server: SocketAddr,
    /// The client's address.
    pub client: SocketAddr,
    /// The number of the connection.
    pub connection: u32,
    /// The number of the turnaround within the connection, from 1.
    pub turn: u32,
    /// The time of the first byte of the request.
    pub started_ns: ColumnNs,
    /// The time of the last byte of the request.
    pub request_ended_ns: ColumnNs,
    /// The time of the first byte of the reply.
    pub first_reply_ns: Option<ColumnNs>,
    /// The time of the last byte.
    pub ended_ns: ColumnNs,
    /// Length of the request.
    pub request_bytes: u64,
    /// Length of the reply.
    pub reply_bytes: u64,
    /// How it ended.
    pub status: TurnaroundStatus,
}

/// What the rows of a tap have in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnaroundHeader {
    /// Schema of the tables.
    pub schema: u32,
    /// The run's id.
    pub run: String,
    /// Host name.
    pub host: String,
    /// Process name.
    pub process: String,
    /// Environment tag.
    pub tag: String,
    /// The cell.
    pub cell: String,
    /// The repeat.
    pub repeat: u16,
    /// Names of the tiers.
    pub tiers: Vec<String>,
}

impl TurnaroundHeader {
    fn meta(&self) -> SegmentMeta {
        SegmentMeta {
            run: self.run.clone(),
            host: self.host.clone(),
            process: self.process.clone(),
            tag: self.tag.clone(),
        }
    }
}

/// Writes rows of `turnarounds`. Rows are buffered until [`TurnaroundSpool::flush`].
#[derive(Debug)]
pub struct TurnaroundSpool {
    directory: PathBuf,
    stem: String,
    header: TurnaroundHeader,
    sequence: u32,
    rows: u64,
    words: Vec<String>,
    buffer: Vec<u8>,
    open: Option<(PathBuf, Flock<File>)>,
    /// Full spools that become segments meanwhile.
    sealing: Vec<JoinHandle<Result<(), TraceError>>>,
    /// Keeps recovery away, from the first row on.
    lock: Option<WriterLock>,
}

impl TurnaroundSpool {
    /// Returns a spool in the run `directory`; its file appears with the first rows.
    #[must_use]
    pub fn new(directory: &Path, stem: &str, header: TurnaroundHeader) -> Self {
        Self {
            directory: directory.join(Table::Turnarounds.name()),
            stem: stem.to_owned(),
            header,
            sequence: 0,
            rows: 0,
            words: Vec::new(),
            buffer: Vec::new(),
            open: None,
            sealing: Vec::new(),
            lock: None,
        }
    }

    /// Adds a row. `asked_by` is the name of the program that asked, if it is known.
    pub fn append(&mut self, row: &TurnaroundRow, asked_by: Option<&str>) {
        let word = asked_by.map_or(NO_WORD, |it| self.word(it));
        self.rows += 1;
        self.buffer.extend(encode(row, word));
    }

    /// The number of a word; a new one is written first.
    fn word(&mut self, text: &str) -> u32 {
        let text = cut(text);
        let known = self.words.iter().position(|it| it == text);
        let place = known.unwrap_or_else(|| {
            let place = self.words.len();
            self.words.push(text.to_owned());
            self.buffer.extend(encode_word(place, text));
            place
        });
        u32::try_from(place).unwrap_or(NO_WORD)
    }

    /// Writes the rows to the spool, and a full spool to a segment.
    ///
    /// # Errors
    ///
    /// When the disk is full.
    pub fn flush(&mut self) -> Result<(), TraceError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        if self.open.is_none() {
            self.open = Some(self.create()?);
        }
        if let Some((path, file)) = self.open.as_mut() {
            file.write_all(&self.buffer)
                .map_err(|source| TraceError::io(path, "recording", source))?;
        }
        self.buffer.clear();
        if self.rows >= ROWS_MAX {
            self.put_aside();
        }
        Ok(())
    }

    /// Has a thread of its own make a segment of the spool: the tap must go on looking.
    fn put_aside(&mut self) {
        self.rows = 0;
        self.words.clear();
        self.sequence += 1;
        if let Some((path, lock)) = self.open.take() {
            self.sealing.push(std::thread::spawn(move || {
                let sealed = seal_turnarounds(&path);
                drop(lock);
                sealed.map(|_| ())
            }));
        }
    }

    /// Writes all rows to segments.
    ///
    /// # Errors
    ///
    /// When a segment cannot be written. Its spool then stays.
    pub fn seal(&mut self) -> Result<(), TraceError> {
        self.flush()?;
        self.put_aside();
        let ended = self.sealing.drain(..).map(JoinHandle::join);
        // A thread that panicked leaves its spool to recovery.
        ended.flatten().collect()
    }

    fn create(&mut self) -> Result<(PathBuf, Flock<File>), TraceError> {
        if self.lock.is_none() {
            let run = self.directory.parent().unwrap_or(&self.directory);
            self.lock = Some(WriterLock::share(run)?);
        }
        let (path, mut file) = create_spool(&self.directory, &self.stem, self.sequence)?;
        let io = |source| TraceError::io(&path, "recording", source);
        let json = serde_json::to_vec(&self.header).map_err(|error| io(error.into()))?;
        let length = u32::try_from(json.len()).map_err(|error| io(std::io::Error::other(error)))?;
        let head = [MAGIC.as_slice(), &length.to_le_bytes(), &json].concat();
        file.write_all(&head).map_err(io)?;
        Ok((path, file))
    }
}

/// As much of a word as a record holds.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(WORD_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

const ROW: u8 = b'R';
const WORD: u8 = b'W';

fn encode(row: &TurnaroundRow, word: u32) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let mut at = 0;
    let mut put = |part: &[u8]| {
        bytes[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    };
    put(&[ROW, row.status as u8]);
    put(&row.tier.to_le_bytes());
    put(&word.to_le_bytes());
    put(&row.connection.to_le_bytes());
    put(&row.turn.to_le_bytes());
    for address in [row.server, row.client] {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        put(&ip.octets());
        put(&address.port().to_le_bytes());
    }
    let first_ns = row.first_reply_ns.map_or(NULL_NS, |it| it.0);
    for time_ns in [
        row.started_ns.0,
        row.request_ended_ns.0,
        first_ns,
        row.ended_ns.0,
    ] {
        put(&time_ns.to_le_bytes());
    }
    // Four bytes less each than the numbers have: what one connection carries at once stays below.
    for count in [row.request_bytes, row.reply_bytes] {
        let eight = count.min((1 << 48) - 1).to_le_bytes();
        put(&eight[..6]);
    }
    let sum = crc32c::crc32c(&bytes[..SUM]);
    bytes[SUM..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn encode_word(place: usize, text: &str) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let word = text.as_bytes();
    bytes[0] = WORD;
    bytes[1] = u8::try_from(word.len()).unwrap_or(0);
    let place = u32::try_from(place).unwrap_or(NO_WORD);
    bytes[2..6].copy_from_slice(&place.to_le_bytes());
    bytes[6..6 + word.len()].copy_from_slice(word);
    let sum = crc32c::crc32c(&bytes[..SUM]);
    bytes[SUM..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// A record of a spool.
enum Record {
    Row(TurnaroundRow, u32),
    /// A word, and its number.
    Word(u32, String),
}

/// Reads a record; `None` if it is damaged.
fn decode(bytes: &[u8; BYTES]) -> Option<Record> {
    let sum = u32::from_le_bytes(bytes[SUM..].try_into().ok()?);
    if crc32c::crc32c(&bytes[..SUM]) != sum {
        return None;
    }
    if bytes[0] == WORD {
        let place = u32::from_le_bytes(bytes[2..6].try_into().ok()?);
        let word = bytes.get(6..6 + usize::from(bytes[1]))?;
        return Some(Record::Word(place, String::from_utf8(word.to_vec()).ok()?));
    }
    let mut rest = &bytes[2..SUM];
    let mut take = |count: usize| {
        let (part, more) = rest.split_at(count);
        rest = more;
        part
    };
    let tier = u16::from_le_bytes(take(2).try_into().ok()?);
    let mut four = || take(4).try_into().ok().map(u32::from_le_bytes);
    let (word, connection, turn) = (four()?, four()?, four()?);
    let mut address = || {
        let ip = Ipv6Addr::from(<[u8; 16]>::try_from(take(16)).ok()?);
        let port = u16::from_le_bytes(take(2).try_into().ok()?);
        Some(SocketAddr::new(IpAddr::V6(ip).to_canonical(), port))
    };
    let (server, client) = (address()?, address()?);
    let mut time = || take(8).try_into().ok().map(i64::from_le_bytes);
    let [started, request_ended, first, ended] = [time()?, time()?, time()?, time()?];
    let mut count = || {
        let mut eight = [0; 8];
        eight[..6].copy_from_slice(take(6));
        u64::from_le_bytes(eight)
    };
    let (request_bytes, reply_bytes) = (count(), count());
    let status = match bytes[1] {
        0 => TurnaroundStatus::Ok,
        1 => TurnaroundStatus::Cut,
        2 => TurnaroundStatus::Overlapped,
        3 => TurnaroundStatus::Gap,
        4 => TurnaroundStatus::Open,
        5 => TurnaroundStatus::Joined,
        _ => return None,
    };
    let row = TurnaroundRow {
        tier,
        server,
        client,
        connection,
        turn,
        started_ns: ColumnNs(started),
        request_ended_ns: ColumnNs(request_ended),
        first_reply_ns: (first != NULL_NS).then_some(ColumnNs(first)),
        ended_ns: ColumnNs(ended),
        request_bytes,
        reply_bytes,
        status,
    };
    Some(Record::Row(row, word))
}

/// The records of a spool, and its header.
struct Spool {
    header: TurnaroundHeader,
    input: BufReader<File>,
    words: HashMap<u32, String>,
    unread: u64,
}

impl Spool {
    fn open(path: &Path) -> Result<Self, TraceError> {
        let io = |source| TraceError::io(path, "reading the spool", source);
        let refused = |what: &str| TraceError::Spool {
            path: path.to_owned(),
            what: what.to_owned(),
            wanted: SCHEMA_VERSION,
            hint: "move it out of the run",
        };
        let mut input = BufReader::with_capacity(1 << 20, File::open(path).map_err(io)?);
        let mut start = [0_u8; 12];
        let begun = input.read_exact(&mut start);
        begun.map_err(|_| refused("its first 12 bytes are not there"))?;
        let length = u32::from_le_bytes([start[8], start[9], start[10], start[11]]);
        if &start[..8] != MAGIC || length > HEADER_BYTES_MAX {
            return Err(refused("it does not begin as a spool of turnarounds"));
        }
        let mut json = Vec::new();
        let mut head = input.by_ref().take(u64::from(length));
        head.read_to_end(&mut json).map_err(io)?;
        let header = serde_json::from_slice(&json).ok();
        Ok(Self {
            header: header.ok_or_else(|| refused("its header is unreadable"))?,
            input,
            words: HashMap::new(),
            unread: 0,
        })
    }

    /// The next rows, at most a row group.
    fn group(&mut self) -> std::io::Result<Vec<(TurnaroundRow, u32)>> {
        let mut rows = Vec::new();
        let mut bytes = [0; BYTES];
        while rows.len() < GROUP_ROWS {
            match self.input.read_exact(&mut bytes) {
                // The end, or a torn last record.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
                read => read?,
            }
            match decode(&bytes) {
                Some(Record::Row(row, word)) => rows.push((row, word)),
                Some(Record::Word(place, word)) => {
                    self.words.insert(place, word);
                }
                None => self.unread += 1,
            }
        }
        Ok(rows)
    }
}

/// Turns a spool into its segment and removes it. Returns its rows, and how many records could not be
/// read.
pub(crate) fn seal_turnarounds(path: &Path) -> Result<(u64, u64), TraceError> {
    let mut spool = Spool::open(path)?;
    let mut writer = SegmentWriter::create(Table::Turnarounds, &path.with_extension("parquet"))?;
    loop {
        let rows = spool
            .group()
            .map_err(|source| TraceError::io(path, "reading the spool", source))?;
        if rows.is_empty() {
            break;
        }
        let servers = texts(rows.iter().map(|(row, _)| row.server));
        let clients = texts(rows.iter().map(|(row, _)| row.client));
        let header = &spool.header;
        writer.append(rows.len(), |column, place| {
            let (row, word) = &rows[place];
            let int = |value: u64| Value::Int(i64::try_from(value).unwrap_or(i64::MAX));
            match column {
                0 => Value::Text(&header.cell),
                1 => Value::Int(i64::from(header.repeat)),
                2 => Value::Text(&header.host),
                3 => Value::Text(&header.process),
                4 => {
                    let tier = header.tiers.get(usize::from(row.tier));
                    Value::Text(tier.map_or("unknown", String::as_str))
                }
                5 => Value::Text(&servers[place]),
                6 => Value::Text(&clients[place]),
                7 => {
                    let known = spool.words.get(word);
                    known.map_or(Value::Null, |it| Value::Text(it.as_str()))
                }
                8 => Value::Int(i64::from(row.connection)),
                9 => Value::Int(i64::from(row.turn)),
                10 => Value::Int(row.started_ns.0),
                11 => Value::Int(row.request_ended_ns.0),
                12 => row
                    .first_reply_ns
                    .map_or(Value::Null, |it| Value::Int(it.0)),
                13 => Value::Int(row.ended_ns.0),
                14 => int(row.request_bytes),
                15 => int(row.reply_bytes),
                _ => Value::Text(STATUSES[row.status as usize]),
            }
        })?;
    }
    let written = writer.finish(&spool.header.meta(), None)?;
    fs::remove_file(path).map_err(|source| TraceError::io(path, "removing the spool", source))?;
    Ok((written, spool.unread))
}

/// The texts of addresses, of which neighbours are often the same.
fn texts(addresses: impl Iterator<Item = SocketAddr>) -> Vec<std::rc::Rc<str>> {
    let mut known = HashMap::new();
    let text = |it: SocketAddr| {
        let text = known.entry(it).or_insert_with(|| it.to_string().into());
        std::rc::Rc::clone(text)
    };
    addresses.map(text).collect()
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader as _, SerializedFileReader};

    use super::*;

    fn header() -> TurnaroundHeader {
        let word = str::to_owned;
        TurnaroundHeader {
            schema: SCHEMA_VERSION,
            run: word("run"),
            host: word("local"),
            process: word("tap-0"),
            tag: String::new(),
            cell: word("all"),
            repeat: 2,
            tiers: vec![word("web"), word("database")],
        }
    }

    fn row(number: u32) -> TurnaroundRow {
        TurnaroundRow {
            tier: 1,
            server: "127.0.0.1:3306".parse().unwrap(),
            client: "[::1]:4000".parse().unwrap(),
            connection: number,
            turn: 7,
            started_ns: ColumnNs(100),
            request_ended_ns: ColumnNs(110),
            first_reply_ns: (number > 0).then_some(ColumnNs(120)),
            ended_ns: ColumnNs(130),
            request_bytes: 5,
            reply_bytes: (1 << 48) + 9,
            status: TurnaroundStatus::Gap,
        }
    }

    /// Makes the directory of a run whose runner died.
    fn run_that_was_cut_off() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let text = include_str!("../../../schema/golden/manifest.json");
        let mut manifest: serde_json::Value = serde_json::from_str(text).unwrap();
        manifest["status"] = "running".into();
        fs::write(folder.path().join("manifest.json"), manifest.to_string()).unwrap();
        folder
    }

    fn lines(path: &Path) -> Vec<String> {
        let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        let rows = reader.get_row_iter(None).unwrap();
        rows.map(|row| row.unwrap().to_json_value().to_string())
            .collect()
    }

    #[test]
    fn rows_become_a_segment_with_the_names_of_tiers_and_programs() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = TurnaroundSpool::new(folder.path(), "tap-0-c0r2", header());
        spool.append(&row(0), None);
        spool.append(&row(1), Some("nginx"));
        spool.flush().unwrap();
        spool.append(&row(2), Some("nginx"));
        spool.seal().unwrap();
        let found = lines(&folder.path().join("turnarounds/tap-0-c0r2-00000.parquet"));
        let wanted = |number: u32, by: &str, first: &str| {
            serde_json::from_str::<serde_json::Value>(&format!(
                r#"{{"cell":"all","repeat":2,"host":"local","process":"tap-0","tier":"database",
                "server":"127.0.0.1:3306","client":"[::1]:4000","asked_by":{by},"connection":{number},
                "turn":7,"started_ns":100,"request_ended_ns":110,"first_reply_ns":{first},
                "ended_ns":130,"request_bytes":5,"reply_bytes":281474976710655,"status":"gap"}}"#
            ))
            .unwrap()
        };
        let found: Vec<serde_json::Value> = found
            .iter()
            .map(|it| serde_json::from_str(it).unwrap())
            .collect();
        let name = r#""nginx""#;
        assert_eq!(
            found,
            [
                wanted(0, "null", "null"),
                wanted(1, name, "120"),
                wanted(2, name, "120")
            ]
        );
    }

    #[test]
    fn recovery_takes_the_whole_rows_of_a_tap_that_was_killed() {
        let folder = run_that_was_cut_off();
        let mut spool = TurnaroundSpool::new(folder.path(), "tap-0-c0r0", header());
        spool.append(&row(0), Some("é".repeat(60).as_str()));
        spool.append(&row(1), None);
        spool.flush().unwrap();
        drop(spool);
        let path = folder.path().join("turnarounds/tap-0-c0r0-00000.spool");
        let mut bytes = fs::read(&path).unwrap();
        // The last row is torn.
        bytes.truncate(bytes.len() - 1);
        fs::write(&path, bytes).unwrap();
        let recovery = crate::recover(folder.path()).unwrap();
        assert_eq!((recovery.spools, recovery.rows), (1, 1));
        assert!(recovery.problems.is_empty());
        assert!(!path.exists());
    }

    #[test]
    fn a_damaged_record_costs_itself_and_is_reported() {
        let folder = run_that_was_cut_off();
        let mut spool = TurnaroundSpool::new(folder.path(), "tap-0-c0r0", header());
        for number in 0..3 {
            spool.append(&row(number), None);
        }
        spool.flush().unwrap();
        drop(spool);
        let path = folder.path().join("turnarounds/tap-0-c0r0-00000.spool");
        let mut bytes = fs::read(&path).unwrap();
        let place = bytes.len() - BYTES - 50;
        bytes[place] ^= 1;
        fs::write(&path, bytes).unwrap();
        let recovery = crate::recover(folder.path()).unwrap();
        assert_eq!(recovery.rows, 2);
        assert!(
            recovery.problems[0].ends_with("1 records cannot be read and are not in this run"),
            "{:?}",
            recovery.problems
        );
    }
}
