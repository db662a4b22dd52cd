//! Tables of few rows: JSON lines while they grow, a segment when they are whole.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use serde::Serialize;
use serde_json::{Map, Value as Json};

use crate::error::TraceError;
use crate::locks::WriterLock;
use crate::schema::{SCHEMA_VERSION, Table};
use crate::segment::{SegmentMeta, SegmentWriter, Value};

/// Rows in a segment: bounds the memory of sealing.
const SEGMENT_ROWS_MAX: u64 = 50_000;

/// Appends rows of one table as JSON lines, one `write` each, so that a crash loses none of them.
#[derive(Debug)]
pub struct TableSpool {
    table: Table,
    directory: PathBuf,
    stem: String,
    meta: SegmentMeta,
    sequence: u32,
    rows: u64,
    /// Length of the spool's whole lines.
    bytes: u64,
    open: Option<(PathBuf, Flock<File>)>,
    /// Keeps recovery away, from the first row on.
    lock: Option<WriterLock>,
}

impl TableSpool {
    /// A spool of `table` in the run `directory`; its file appears with the first row.
    #[must_use]
    pub fn new(table: Table, directory: &Path, stem: &str, meta: SegmentMeta) -> Self {
        let directory = directory.join(table.name());
        Self {
            table,
            directory,
            stem: stem.to_owned(),
            meta,
            sequence: 0,
            rows: 0,
            bytes: 0,
            open: None,
            lock: None,
        }
    }

    /// Appends a row: a struct or map whose keys are columns of the table.
    ///
    /// # Errors
    ///
    /// When the disk is full.
    pub fn append(&mut self, row: &impl Serialize) -> Result<(), TraceError> {
        if self.open.is_none() {
            if self.lock.is_none() {
                let run = self.directory.parent().unwrap_or(&self.directory);
                self.lock = Some(WriterLock::share(run)?);
            }
            let (path, mut file) = self.create()?;
            let begun = file.stream_position();
            self.bytes = begun.map_err(|source| TraceError::io(&path, "recording", source))?;
            self.open = Some((path, file));
        }
        let Some((path, file)) = self.open.as_mut() else {
            return Ok(());
        };
        let io = |source| TraceError::io(path, "recording", source);
        let mut line = serde_json::to_vec(row).map_err(|error| io(error.into()))?;
        line.push(b'\n');
        if let Err(error) = file.write_all(&line) {
            // A full disk may have room again: the next row begins where this one did.
            let _ = file.set_len(self.bytes);
            let _ = file.seek(SeekFrom::Start(self.bytes));
            return Err(io(error));
        }
        self.bytes += line.len() as u64;
        self.rows += 1;
        if self.rows >= SEGMENT_ROWS_MAX {
            self.seal()?;
        }
        Ok(())
    }

    /// Writes the rows in the spool to a segment. The next row starts a new spool.
    ///
    /// # Errors
    ///
    /// Fails if the segment cannot be written. The spool then stays.
    pub fn seal(&mut self) -> Result<(), TraceError> {
        self.rows = 0;
        self.sequence += 1;
        let Some((path, lock)) = self.open.take() else {
            return Ok(());
        };
        let sealed = seal_lines(self.table, &path);
        drop(lock);
        sealed.map(|_| ())
    }

    fn create(&self) -> Result<(PathBuf, Flock<File>), TraceError> {
        let (path, mut file) = create_spool(&self.directory, &self.stem, self.sequence)?;
        let meta = &self.meta;
        let header = serde_json::json!({
            "schema": SCHEMA_VERSION, "run": meta.run, "host": meta.host, "process": meta.process,
            "tag": meta.tag,
        });
        file.write_all(format!("{header}\n").as_bytes())
            .map_err(|source| TraceError::io(&path, "recording", source))?;
        Ok((path, file))
    }
}

/// Makes the file of a spool, which is locked for as long as its process lives.
pub(crate) fn create_spool(
    directory: &Path,
    stem: &str,
    sequence: u32,
) -> Result<(PathBuf, Flock<File>), TraceError> {
    fs::create_dir_all(directory)
        .map_err(|source| TraceError::io(directory, "making the directory", source))?;
    let path = directory.join(format!("{stem}-{sequence:05}.spool"));
    let file =
        File::create_new(&path).map_err(|source| TraceError::io(&path, "recording", source))?;
    let file = Flock::lock(file, FlockArg::LockExclusiveNonblock)
        .map_err(|(_, errno)| TraceError::io(&path, "locking the spool", errno.into()))?;
    Ok((path, file))
}

/// Turns a spool of JSON lines into its segment and removes it. A torn line is dropped.
pub(crate) fn seal_lines(table: Table, path: &Path) -> Result<u64, TraceError> {
    let io = |source| TraceError::io(path, "reading the spool", source);
    let refused = |what: String| TraceError::Spool {
        path: path.to_owned(),
        what,
        wanted: SCHEMA_VERSION,
        hint: "move it out of the run",
    };
    let mut lines = BufReader::new(File::open(path).map_err(io)?).lines();
    let header = lines.next().transpose().map_err(io)?.unwrap_or_default();
    let header: Map<String, Json> = serde_json::from_str(&header)
        .map_err(|error| refused(format!("its first line is not a header ({error})")))?;
    let word = |key: &str| {
        header
            .get(key)
            .and_then(Json::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let meta = SegmentMeta {
        run: word("run"),
        host: word("host"),
        process: word("process"),
        tag: word("tag"),
    };
    let rows: Vec<Map<String, Json>> = lines
        .map_while(Result::ok)
        .filter_map(|line| serde_json::from_str(&line).ok())
        .collect();
    let columns = table.columns();
    let mut writer = SegmentWriter::create(table, &path.with_extension("parquet"))?;
    let doubles: Vec<bool> = table
        .parquet_type()
        .get_fields()
        .iter()
        .map(|field| field.get_physical_type() == parquet::basic::Type::DOUBLE)
        .collect();
    writer.append(rows.len(), |column, row| {
        value_of(rows[row].get(&columns[column]), doubles[column])
    })?;
    let written = writer.finish(&meta, None)?;
    fs::remove_file(path).map_err(|source| TraceError::io(path, "removing the spool", source))?;
    Ok(written)
}

fn value_of(json: Option<&Json>, double: bool) -> Value<'_> {
    match json {
        None | Some(Json::Null | Json::Array(_) | Json::Object(_)) => Value::Null,
        Some(Json::Bool(flag)) => Value::Bool(*flag),
        Some(Json::String(text)) => Value::Text(text),
        Some(Json::Number(number)) if double => number.as_f64().map_or(Value::Null, Value::Float),
        Some(Json::Number(number)) => number.as_i64().map_or(Value::Null, Value::Int),
    }
}
