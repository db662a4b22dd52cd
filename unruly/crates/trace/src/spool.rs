//! The spool: where records are safe until they become a segment.
//!
//! Layout (`unruly/schema/spool.md`): `UNRULYS2`, header length (u32, little-endian), the header as JSON,
//! then records of [`Record::BYTES`] bytes. A torn last record is what a crash leaves, and is dropped.
//! A whole record that cannot be read is damage: the others are taken, and the file is kept.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::TraceError;
use crate::manifest::Counts;
use crate::record::{Identity, Record, Status};
use crate::schema::{SCHEMA_VERSION, Table};
use crate::segment::{GROUP_ROWS, SegmentMeta, SegmentWriter};

/// The last byte is the version of the records: 2 checks them by CRC-32C.
const MAGIC: &[u8; 8] = b"UNRULYS2";

/// The magic bytes of version 1, whose records carry another checksum.
const MAGIC_OF_FIRST: &[u8; 8] = b"UNRULYSP";

/// A header longer than this is not one of ours.
const HEADER_BYTES_MAX: u32 = 1 << 20;

/// A spool becomes a segment at this many records (104 MB).
pub const SPOOL_ROWS_MAX: u64 = 1_000_000;

/// What the records of a spool have in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpoolHeader {
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
    /// Names of the cells.
    pub cells: Vec<String>,
    /// Names of the operations.
    pub ops: Vec<String>,
    /// Names of the phases.
    pub phases: Vec<String>,
    /// The page with the recorder's tally, in memory that outlives its process; the recorder names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tally: Option<String>,
}

impl SpoolHeader {
    /// What the footer of its segment says.
    #[must_use]
    pub fn meta(&self) -> SegmentMeta {
        SegmentMeta {
            run: self.run.clone(),
            host: self.host.clone(),
            process: self.process.clone(),
            tag: self.tag.clone(),
        }
    }

    /// Writes magic, length and header to a new spool.
    ///
    /// # Errors
    ///
    /// What the writer says.
    pub fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        let json = serde_json::to_vec(self)?;
        let length = u32::try_from(json.len()).map_err(std::io::Error::other)?;
        out.write_all(MAGIC)?;
        out.write_all(&length.to_le_bytes())?;
        out.write_all(&json)
    }

    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect();
        Self {
            schema: SCHEMA_VERSION,
            run: "run".to_owned(),
            host: "local".to_owned(),
            process: "agent-0".to_owned(),
            tag: "test".to_owned(),
            cells: words(&["all"]),
            ops: words(&["null", "disk"]),
            phases: words(&["warmup", "measure"]),
            tally: None,
        }
    }
}

/// Reads a spool, record by record.
#[derive(Debug)]
pub struct SpoolReader {
    /// The spool's header.
    pub header: SpoolHeader,
    /// Whole records so far that could not be read.
    pub unread: u64,
    input: BufReader<File>,
}

impl SpoolReader {
    /// Opens a spool.
    ///
    /// # Errors
    ///
    /// When it cannot be read or is not a spool this version understands.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let io = |source| TraceError::io(path, "reading the spool", source);
        let refused = |what: String, hint| TraceError::Spool {
            path: path.to_owned(),
            what,
            wanted: SCHEMA_VERSION,
            hint,
        };
        let mut input = BufReader::with_capacity(1 << 20, File::open(path).map_err(io)?);
        let mut start = [0_u8; 12];
        input.read_exact(&mut start).map_err(|_| {
            refused(
                "its first 12 bytes are not there".to_owned(),
                "the process died before its first row; the file can be removed",
            )
        })?;
        let length = u32::from_le_bytes([start[8], start[9], start[10], start[11]]);
        if &start[..8] == MAGIC_OF_FIRST {
            return Err(refused(
                "its records are of version 1, and this program reads version 2".to_owned(),
                "recover the run with the unruly that measured it",
            ));
        }
        if &start[..8] != MAGIC || length > HEADER_BYTES_MAX {
            return Err(refused(
                "it does not begin as a spool".to_owned(),
                "move it out of the run",
            ));
        }
        // The buffer grows with the bytes read, so a wrong length cannot exhaust memory.
        let mut json = Vec::new();
        input
            .by_ref()
            .take(u64::from(length))
            .read_to_end(&mut json)
            .map_err(io)?;
        if json.len() < length as usize {
            return Err(refused(
                format!("its header of {length} bytes is cut off"),
                "the process died before its first row; the file can be removed",
            ));
        }
        let header: SpoolHeader = serde_json::from_slice(&json).map_err(|error| {
            refused(
                format!("its header is unreadable ({error})"),
                "move it out of the run",
            )
        })?;
        if header.schema > SCHEMA_VERSION {
            return Err(refused(
                format!("its schema is {}", header.schema),
                "upgrade unruly",
            ));
        }
        Ok(Self {
            header,
            unread: 0,
            input,
        })
    }
}

impl Iterator for SpoolReader {
    type Item = Record;

    /// The next record that can be read. Records have one size, so that a damaged one costs only
    /// itself; a torn last one ends the spool.
    fn next(&mut self) -> Option<Record> {
        let mut bytes = [0; Record::BYTES];
        loop {
            self.input.read_exact(&mut bytes).ok()?;
            if let Some(record) = Record::decode(&bytes) {
                return Some(record);
            }
            self.unread += 1;
        }
    }
}

/// What became of a spool.
#[derive(Debug)]
pub struct Sealed {
    /// Counts of its rows. They are also in the segment's footer.
    pub counts: Counts,
    /// Whole records that could not be read, and where the spool is kept for their sake.
    pub unread: Option<(u64, PathBuf)>,
}

/// Turns the spool at `path` into the segment `<stem>.parquet` beside it and removes the spool; one
/// with records that cannot be read is kept as `<stem>.unread`.
/// Provisional records without a final one are passed to `open`: copies still open when it ended.
///
/// # Errors
///
/// When the spool cannot be read or the segment cannot be written; then the spool stays.
pub fn seal_spool(
    path: &Path,
    open: &mut dyn FnMut(Record) -> Option<Record>,
) -> Result<Sealed, TraceError> {
    let segment = segment_path(path);
    let mut reader = SpoolReader::open(path)?;
    let header = reader.header.clone();
    let mut still_open = BTreeMap::new();
    let mut group: Vec<Record> = Vec::with_capacity(GROUP_ROWS);
    let mut order: Vec<usize> = Vec::with_capacity(GROUP_ROWS);
    let mut counts = RowCounts::default();
    let mut writer = SegmentWriter::create(Table::Requests, &segment)?;
    loop {
        group.clear();
        group.extend(
            reader
                .by_ref()
                .filter(|record| is_final(record, &mut still_open))
                .take(GROUP_ROWS),
        );
        while group.len() < GROUP_ROWS
            && let Some((_, record)) = still_open.pop_first()
        {
            group.extend(open(record));
        }
        if group.is_empty() {
            break;
        }
        // Neighbours in intended time differ least, which is what delta encoding lives on.
        order.clear();
        order.extend(0..group.len());
        order.sort_by_key(|row| group[*row].intended_ns);
        group.iter().for_each(|record| counts.add(record));
        writer.append(group.len(), |column, row| {
            group[order[row]].value(column, &header)
        })?;
    }
    let counts = counts.finish();
    let rows = writer.finish(&header.meta(), Some(&counts))?;
    if rows == 0 {
        let _ = fs::remove_file(&segment);
    }
    let unread = keep_if_damaged(path, reader.unread)?;
    if unread.is_none() {
        fs::remove_file(path)
            .map_err(|source| TraceError::io(path, "removing the spool", source))?;
    }
    Ok(Sealed { counts, unread })
}

/// Returns whether the record is a row. A provisional record is noted as open instead, until the final
/// one of its copy comes.
fn is_final(record: &Record, still_open: &mut BTreeMap<Identity, Record>) -> bool {
    if record.provisional {
        still_open.insert(record.identity(), *record);
    } else if record.supersedes {
        still_open.remove(&record.identity());
    }
    !record.provisional
}

/// Removes a spool whose segment is complete; one with records that cannot be read is kept.
///
/// # Errors
///
/// When it cannot be read, removed or moved aside.
pub(crate) fn finish_spool(path: &Path) -> Result<Option<(u64, PathBuf)>, TraceError> {
    let mut reader = SpoolReader::open(path)?;
    while reader.next().is_some() {}
    let kept = keep_if_damaged(path, reader.unread)?;
    if kept.is_none() {
        fs::remove_file(path)
            .map_err(|source| TraceError::io(path, "removing the spool", source))?;
    }
    Ok(kept)
}

/// Moves a damaged spool to where no recovery looks for one, because its content may still be
/// useful.
fn keep_if_damaged(path: &Path, unread: u64) -> Result<Option<(u64, PathBuf)>, TraceError> {
    if unread == 0 {
        return Ok(None);
    }
    let kept = path.with_extension("unread");
    fs::rename(path, &kept)
        .map_err(|source| TraceError::io(path, "keeping the damaged spool", source))?;
    Ok(Some((unread, kept)))
}

/// Counts the rows of one segment. A request whose copies lie in two segments counts in both.
#[derive(Debug, Default)]
struct RowCounts {
    counts: Counts,
    /// A bit for each request, 64 to a word: numbers are dense, and a set of a million of them
    /// would be the largest thing in the memory of a generator.
    requests: BTreeMap<(u16, u16, u64), u64>,
    /// The word of the last row, which is not in the map yet: neighbours mostly have the same.
    last: ((u16, u16, u64), u64),
}

impl RowCounts {
    fn add(&mut self, record: &Record) {
        let copies = &mut self.counts.copies;
        copies.scheduled += 1;
        copies.recorded += 1;
        *copies.of_mut(record.status) += 1;
        self.counts.requests.answered += u64::from(record.answered);
        let place = (record.cell, record.repeat, record.request / 64);
        if place != self.last.0 {
            self.keep_last();
            self.last = (place, 0);
        }
        self.last.1 |= 1 << (record.request % 64);
    }

    fn keep_last(&mut self) {
        let (place, word) = self.last;
        if word != 0 {
            *self.requests.entry(place).or_default() |= word;
        }
    }

    fn finish(mut self) -> Counts {
        self.keep_last();
        let requests = &mut self.counts.requests;
        let seen: u64 = self
            .requests
            .values()
            .map(|word| u64::from(word.count_ones()))
            .sum();
        requests.scheduled = seen.max(requests.answered);
        requests.unanswered = requests.scheduled - requests.answered;
        self.counts
    }
}

/// A copy that was open when its process died: a row of status `unfinished`.
#[must_use]
pub(crate) fn as_unfinished(record: Record) -> Option<Record> {
    let status = if record.status == Status::Timeout {
        Status::Timeout
    } else {
        Status::Unfinished
    };
    Some(Record {
        provisional: false,
        status,
        ..record
    })
}

pub(crate) fn segment_path(spool: &Path) -> PathBuf {
    spool.with_extension("parquet")
}
