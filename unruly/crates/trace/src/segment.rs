//! Parquet segments: complete or absent. A segment is written to a temporary name, synced and
//! renamed.
//!
//! Times are delta-encoded, because neighbouring rows differ little. Words and numbers with few
//! distinct values are dictionaries, and zstd compresses the result. Rows arrive as values by
//! column number, so one writer serves all tables.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, Type as Physical, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use crate::checksum::{CHECKSUM_KEY, Summed, UNKNOWN, is_whole};
use crate::columns::Columns;
use crate::error::TraceError;
use crate::manifest::Counts;
use crate::schema::{SCHEMA_VERSION, Table};

const COUNTS_KEY: &str = "unruly.counts";

/// The most rows of a row group: bounds the memory of encoding (about 20 MB).
pub(crate) const GROUP_ROWS: usize = 1 << 15;

/// One value of one row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// Not known.
    Null,
    /// A number or a time.
    Int(i64),
    /// A share, a mean.
    Float(f64),
    /// A word.
    Text(&'a str),
    /// A yes or no.
    Bool(bool),
}

/// What a segment's footer says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentMeta {
    /// The run's id.
    pub run: String,
    /// Host name.
    pub host: String,
    /// Process name.
    pub process: String,
    /// Environment tag.
    pub tag: String,
}

/// Writes one segment, a row group at a time, and gives it its name only when it is whole.
#[derive(Debug)]
pub struct SegmentWriter {
    table: Table,
    columns: Columns,
    temporary: PathBuf,
    path: PathBuf,
    writer: SerializedFileWriter<Summed>,
    rows: u64,
}

impl SegmentWriter {
    /// Starts the segment that will be at `path`.
    ///
    /// # Errors
    ///
    /// When the file cannot be made.
    pub fn create(table: Table, path: &Path) -> Result<Self, TraceError> {
        let temporary = path.with_extension("parquet.tmp");
        let mut options = File::options();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&temporary)
            .map_err(|source| TraceError::io(&temporary, "creating the segment", source))?;
        let schema = table.parquet_type();
        let properties = Arc::new(properties(&schema));
        let columns = Columns::of(&schema).map_err(|source| parquet_error(table, path, source))?;
        let writer = SerializedFileWriter::new(Summed::new(file), schema, properties)
            .map_err(|source| parquet_error(table, path, source))?;
        Ok(Self {
            table,
            columns,
            temporary,
            path: path.to_owned(),
            writer,
            rows: 0,
        })
    }

    /// Appends `rows` rows, in row groups of at most [`GROUP_ROWS`]; `value(column, row)` gives each
    /// value.
    ///
    /// # Errors
    ///
    /// When a required value is null, a value is of the wrong type, or the disk is full.
    pub fn append<'a>(
        &mut self,
        rows: usize,
        value: impl Fn(usize, usize) -> Value<'a>,
    ) -> Result<(), TraceError> {
        let (table, path) = (self.table, &self.path);
        let failed = |source| parquet_error(table, path, source);
        for begin in (0..rows).step_by(GROUP_ROWS) {
            let end = rows.min(begin + GROUP_ROWS);
            let mut group = self.writer.next_row_group().map_err(failed)?;
            self.columns
                .write(&mut group, begin..end, &value)
                .map_err(failed)?;
            group.close().map_err(failed)?;
        }
        self.rows += rows as u64;
        Ok(())
    }

    /// Writes the footer, syncs, renames. The number of rows is in the footer, and what became of
    /// them where they are copies of requests.
    ///
    /// # Errors
    ///
    /// When the disk is full; the unfinished file is removed.
    pub fn finish(
        mut self,
        meta: &SegmentMeta,
        counts: Option<&Counts>,
    ) -> Result<u64, TraceError> {
        let rows = self.rows;
        for (key, value) in [
            ("unruly.schema", SCHEMA_VERSION.to_string()),
            ("unruly.run", meta.run.clone()),
            ("unruly.table", self.table.name().to_owned()),
            ("unruly.host", meta.host.clone()),
            ("unruly.process", meta.process.clone()),
            ("unruly.tag", meta.tag.clone()),
            ("unruly.rows", rows.to_string()),
            (CHECKSUM_KEY, UNKNOWN.to_owned()),
        ] {
            self.writer
                .append_key_value_metadata(KeyValue::new(key.to_owned(), value));
        }
        if let Some(json) = counts.and_then(|counts| serde_json::to_string(counts).ok()) {
            self.writer
                .append_key_value_metadata(KeyValue::new(COUNTS_KEY.to_owned(), json));
        }
        let (table, path, temporary) = (self.table, self.path, self.temporary);
        let synced = self
            .writer
            .into_inner()
            .map_err(|source| parquet_error(table, &path, source))
            .and_then(|summed| {
                summed
                    .seal()
                    .and_then(|file| file.sync_all())
                    .and_then(|()| fs::rename(&temporary, &path))
                    .map_err(|source| TraceError::io(&path, "finishing the segment", source))
            });
        if synced.is_err() {
            // The half-written file is of no use to anyone, and the disk may be full.
            let _ = fs::remove_file(&temporary);
        }
        synced.map(|()| rows)
    }
}

/// Who wrote the segment at `path`, and its counts; `None` when it has none or is damaged.
pub(crate) fn read_counts(path: &Path) -> Option<(String, Counts)> {
    let mut file = File::open(path).ok()?;
    if !is_whole(&mut file) {
        return None;
    }
    let reader = SerializedFileReader::new(file).ok()?;
    let pairs = reader.metadata().file_metadata().key_value_metadata()?;
    let value = |key: &str| {
        pairs
            .iter()
            .find(|pair| pair.key == key)
            .and_then(|pair| pair.value.clone())
    };
    let counts = serde_json::from_str(&value(COUNTS_KEY)?).ok()?;
    Some((value("unruly.process")?, counts))
}

fn parquet_error(table: Table, path: &Path, source: ParquetError) -> TraceError {
    if let ParquetError::External(inner) = source {
        return match inner.downcast::<std::io::Error>() {
            Ok(io) => TraceError::io(path, "writing the segment", *io),
            Err(other) => TraceError::Parquet {
                path: path.to_owned(),
                table: table.name(),
                source: ParquetError::External(other),
            },
        };
    }
    TraceError::Parquet {
        path: path.to_owned(),
        table: table.name(),
        source,
    }
}

fn properties(schema: &Type) -> WriterProperties {
    let mut builder = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_created_by("unruly".to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::default()));
    for field in schema.get_fields() {
        let path = field.name().into();
        builder = match field.get_physical_type() {
            // Times and request numbers hardly repeat: a dictionary would only be given up later.
            Physical::INT64 => builder
                .set_column_dictionary_enabled(path, false)
                .set_column_encoding(field.name().into(), Encoding::DELTA_BINARY_PACKED),
            // The dictionary of a column of words says which there are. The first and the last one
            // in the alphabet help no reader, and to find them takes two comparisons for each row.
            Physical::BYTE_ARRAY => {
                builder.set_column_statistics_enabled(path, EnabledStatistics::None)
            }
            _ => builder,
        };
    }
    builder.build()
}
