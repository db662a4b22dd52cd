//! The rows of a run that is over, merged into histograms that are kept for months.
//!
//! Every verb reads the result as it reads an import of bins: percentiles within a bin, intervals over
//! blocks of time, and nothing about single requests.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::file::reader::{FileReader as _, RowGroupReader, SerializedFileReader};
use serde::{Deserialize, Serialize};
use unruly_time::{ColumnNs, DurationNs};

use crate::bins::{bin, edges};
use crate::error::TraceError;
use crate::locks::RunLock;
use crate::manifest::{Manifest, RunStatus};
use crate::recovery::files_of;
use crate::schema::Table;
use crate::segment::{SegmentMeta, SegmentWriter, Value};

/// Stretches of time of a run that have histograms of their own: twice as many as the blocks of the
/// intervals, so that each block has some.
const STRETCHES: i64 = 60;

/// The folder of the rows while they are removed. Nobody reads it.
const GOING: &str = "merged-rows";

/// Phases that are not measured, as in `unruly/python/unruly/tables/requests.py`.
const ASIDE: [&str; 3] = ["warmup", "load", "wind_down"];

/// What a manifest says of a run whose rows were merged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Merged {
    /// When it was done.
    pub at_ns: ColumnNs,
    /// Measured requests that the histograms hold.
    pub requests: u64,
    /// What was counted exactly before.
    pub figures: Vec<Figures>,
}

/// Exact figures of an operation of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The cell.
    pub cell: String,
    /// The operation.
    pub op: String,
    /// Measured requests.
    pub n: u64,
    /// Those that failed.
    pub failed: u64,
    /// The shortest response time of the others; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_ns: Option<DurationNs>,
    /// The longest one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ns: Option<DurationNs>,
    /// Their mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_ns: Option<f64>,
}

/// Merges the measured rows of a run into histograms and removes all of its tables. A call that was cut
/// off is carried on by the next one. Returns whether there was anything to do.
///
/// Not for a run with requests to several servers at once: their copies are analysed together.
///
/// # Errors
///
/// When the directory is no run, the run is going on or is not whole, a segment cannot be read, or the
/// disk is full. The rows then stay.
pub fn merge_rows(directory: &Path, at_ns: ColumnNs) -> Result<bool, TraceError> {
    let _lock = RunLock::take(directory)?;
    remove(&directory.join(GOING))?;
    let rows = directory.join(Table::Requests.name());
    if !rows.exists() {
        return Ok(false);
    }
    let mut manifest = Manifest::read(directory)?;
    if manifest.status == RunStatus::Running {
        return Err(TraceError::Running {
            path: directory.to_owned(),
        });
    }
    let segments: Vec<PathBuf> = files_of(directory, Table::Requests)
        .into_iter()
        .filter(|it| it.extension().is_some_and(|it| it == "parquet"))
        .collect();
    let measured = Measured::read(&segments)?;
    write(directory, &manifest, &measured)?;
    manifest.merged = Some(Merged {
        at_ns,
        requests: measured.figures.values().map(|it| it.n).sum(),
        figures: measured.figures(),
    });
    manifest.write(directory)?;
    // At once, so that no reader finds a part of them.
    fs::rename(&rows, directory.join(GOING))
        .map_err(|source| TraceError::io(&rows, "moving the merged rows", source))?;
    for table in Table::ALL.into_iter().filter(|it| *it != Table::Histograms) {
        remove(&directory.join(table.name()))?;
    }
    remove(&directory.join(GOING))?;
    Ok(true)
}

fn remove(folder: &Path) -> Result<(), TraceError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(TraceError::io(folder, "removing merged rows", error))
        }
        _ => Ok(()),
    }
}

/// A name of a plan or a host, which many rows share.
type Word = Arc<str>;

/// A request: cell, repeat, client, operation and number.
type RequestKey = (Word, i32, i32, Word, i64);

/// What is known of a request with several tries.
#[derive(Debug, Clone, Copy)]
struct Tries {
    last: i32,
    first_intended_ns: i64,
    servers: (i32, i32),
}

/// Where a histogram belongs: cell, repeat, host, process, operation and stretch of time.
type Place = (Word, i32, Word, Word, Word, i64);

#[derive(Debug, Default)]
struct Count {
    n: u64,
    failed: u64,
    least_ns: Option<i64>,
    most_ns: Option<i64>,
    sum_ns: i128,
}

#[derive(Debug, Default)]
struct Measured {
    first_ns: i64,
    stretch_ns: i64,
    /// How often each bin was met; none is the bin of failures.
    bins: BTreeMap<Place, BTreeMap<Option<u32>, u64>>,
    figures: BTreeMap<(Word, Word), Count>,
}

/// The columns of a row group that count.
struct Rows {
    cell: Vec<Word>,
    repeat: Vec<i32>,
    phase: Vec<Word>,
    host: Vec<Word>,
    process: Vec<Word>,
    op: Vec<Word>,
    client: Vec<i32>,
    server: Vec<i32>,
    request: Vec<i64>,
    attempt: Vec<i32>,
    intended_ns: Vec<i64>,
    received_ns: Vec<Option<i64>>,
    status: Vec<Word>,
}

impl Rows {
    fn is_measured(&self, row: usize) -> bool {
        !ASIDE.contains(&&*self.phase[row])
    }

    fn key(&self, row: usize) -> RequestKey {
        let (cell, op) = (self.cell[row].clone(), self.op[row].clone());
        let (repeat, client) = (self.repeat[row], self.client[row]);
        (cell, repeat, client, op, self.request[row])
    }

    /// The response time from an instant on; none for one that failed.
    fn response_ns(&self, row: usize, since_ns: i64) -> Option<i64> {
        let is_ok = &*self.status[row] == "ok";
        let received_ns = self.received_ns[row].filter(|_| is_ok)?;
        Some(received_ns - since_ns)
    }
}

impl Measured {
    /// Reads the segments three times: for the tries, for the extent in time, for the counts.
    fn read(segments: &[PathBuf]) -> Result<Self, TraceError> {
        let mut tried: BTreeMap<RequestKey, Tries> = BTreeMap::new();
        let (mut first_ns, mut last_ns) = (i64::MAX, i64::MIN);
        for_each(segments, |rows| {
            for row in 0..rows.cell.len() {
                if rows.attempt[row] > 0 {
                    tried.insert(
                        rows.key(row),
                        Tries {
                            last: 0,
                            first_intended_ns: i64::MAX,
                            servers: (i32::MAX, i32::MIN),
                        },
                    );
                }
                if rows.is_measured(row) {
                    first_ns = first_ns.min(rows.intended_ns[row]);
                    last_ns = last_ns.max(rows.intended_ns[row]);
                }
            }
        })?;
        if !tried.is_empty() {
            for_each(segments, |rows| {
                for row in 0..rows.cell.len() {
                    if let Some(tries) = tried.get_mut(&rows.key(row)) {
                        let server = rows.server[row];
                        tries.last = tries.last.max(rows.attempt[row]);
                        tries.first_intended_ns =
                            tries.first_intended_ns.min(rows.intended_ns[row]);
                        tries.servers = (tries.servers.0.min(server), tries.servers.1.max(server));
                    }
                }
            })?;
        }
        let mut measured = Self {
            first_ns,
            stretch_ns: ((last_ns.saturating_sub(first_ns)) / STRETCHES + 1).max(1),
            ..Self::default()
        };
        for_each(segments, |rows| {
            for row in (0..rows.cell.len()).filter(|row| rows.is_measured(*row)) {
                let tries = match tried.is_empty() {
                    true => None,
                    false => tried.get(&rows.key(row)),
                };
                // One that was tried on several servers keeps all of its rows.
                let alone = tries.filter(|it| it.servers.0 == it.servers.1);
                let intended_ns = match alone {
                    Some(tries) if tries.last != rows.attempt[row] => continue,
                    Some(tries) => tries.first_intended_ns,
                    None => rows.intended_ns[row],
                };
                measured.add(rows, row, intended_ns);
            }
        })?;
        Ok(measured)
    }

    fn add(&mut self, rows: &Rows, row: usize, intended_ns: i64) {
        let response_ns = rows.response_ns(row, intended_ns);
        let names = (rows.cell[row].clone(), rows.op[row].clone());
        let count = self.figures.entry(names.clone()).or_default();
        count.n += 1;
        match response_ns {
            None => count.failed += 1,
            Some(ns) => {
                count.least_ns = Some(count.least_ns.map_or(ns, |it| it.min(ns)));
                count.most_ns = Some(count.most_ns.map_or(ns, |it| it.max(ns)));
                count.sum_ns += i128::from(ns);
            }
        }
        let stretch = (intended_ns.max(self.first_ns) - self.first_ns) / self.stretch_ns;
        let (cell, op) = names;
        let (host, process) = (rows.host[row].clone(), rows.process[row].clone());
        let place = (cell, rows.repeat[row], host, process, op, stretch);
        let bin = response_ns.map(|ns| bin(DurationNs(ns)));
        *self.bins.entry(place).or_default().entry(bin).or_default() += 1;
    }

    fn figures(&self) -> Vec<Figures> {
        let all = self.figures.iter();
        all.map(|((cell, op), count)| {
            #[expect(clippy::cast_precision_loss, reason = "a mean")]
            let mean = |answered: u64| count.sum_ns as f64 / answered as f64;
            let answered = count.n - count.failed;
            Figures {
                cell: cell.to_string(),
                op: op.to_string(),
                n: count.n,
                failed: count.failed,
                min_ns: count.least_ns.map(DurationNs),
                max_ns: count.most_ns.map(DurationNs),
                mean_ns: (answered > 0).then(|| mean(answered)),
            }
        })
        .collect()
    }
}

/// Writes the histograms, a row for each bin of each stretch.
fn write(directory: &Path, manifest: &Manifest, measured: &Measured) -> Result<(), TraceError> {
    let folder = directory.join(Table::Histograms.name());
    fs::create_dir_all(&folder)
        .map_err(|source| TraceError::io(&folder, "making the folder of histograms", source))?;
    let path = folder.join("merged.parquet");
    let mut writer = SegmentWriter::create(Table::Histograms, &path)?;
    let rows: Vec<_> = measured
        .bins
        .iter()
        .flat_map(|(place, bins)| bins.iter().map(move |(bin, count)| (place, *bin, *count)))
        .collect();
    writer.append(rows.len(), |column, row| {
        let (place, bin, count) = rows[row];
        let started_ns = measured.first_ns + place.5 * measured.stretch_ns;
        let (low_ns, high_ns) = bin.map_or((f64::INFINITY, f64::INFINITY), edges);
        match column {
            0 => Value::Text(&place.0),
            1 => Value::Int(place.1.into()),
            2 => Value::Text(&place.2),
            3 => Value::Text(&place.3),
            4 => Value::Text(&place.4),
            5 => Value::Int(started_ns),
            6 => Value::Int(started_ns + measured.stretch_ns),
            7 => Value::Float(low_ns),
            8 => Value::Float(high_ns),
            #[expect(clippy::cast_precision_loss, reason = "a count of requests")]
            _ => Value::Float(count as f64),
        }
    })?;
    let meta = SegmentMeta {
        run: manifest.run.clone(),
        host: String::new(),
        process: String::new(),
        tag: manifest.tag.clone(),
    };
    writer.finish(&meta, None).map(|_| ())
}

/// Reads the row groups of segments, one after another.
fn for_each(segments: &[PathBuf], mut take: impl FnMut(&Rows)) -> Result<(), TraceError> {
    for path in segments {
        let failed = |source| TraceError::Parquet {
            path: path.clone(),
            table: Table::Requests.name(),
            source,
        };
        let file =
            File::open(path).map_err(|source| TraceError::io(path, "reading rows", source))?;
        let reader = SerializedFileReader::new(file).map_err(failed)?;
        for number in 0..reader.num_row_groups() {
            let group = reader.get_row_group(number).map_err(failed)?;
            take(&rows(group.as_ref()).map_err(failed)?);
        }
    }
    Ok(())
}

fn rows(group: &dyn RowGroupReader) -> parquet::errors::Result<Rows> {
    let int = |name: &str| column::<Int32Type>(group, name).map(|it| it.0);
    let long = |name: &str| column::<Int64Type>(group, name);
    let (received, levels) = long("received_ns")?;
    let mut present = received.into_iter();
    let received_ns = levels
        .iter()
        .map(|level| if *level > 0 { present.next() } else { None })
        .collect();
    Ok(Rows {
        cell: words(group, "cell")?,
        repeat: int("repeat")?,
        phase: words(group, "phase")?,
        host: words(group, "host")?,
        process: words(group, "process")?,
        op: words(group, "op")?,
        client: int("client")?,
        server: int("server")?,
        request: long("request")?.0,
        attempt: int("attempt")?,
        intended_ns: long("intended_ns")?.0,
        received_ns,
        status: words(group, "status")?,
    })
}

/// Returns a column of words. Neighbouring rows often have the same one.
fn words(group: &dyn RowGroupReader, name: &str) -> parquet::errors::Result<Vec<Word>> {
    let (values, _) = column::<ByteArrayType>(group, name)?;
    let mut words: Vec<Word> = Vec::with_capacity(values.len());
    for value in values {
        let text = value.as_utf8()?;
        let word = match words.last() {
            Some(last) if **last == *text => Arc::clone(last),
            _ => text.into(),
        };
        words.push(word);
    }
    Ok(words)
}

/// Returns the values of a column of a row group, and whether each row has one.
fn column<T: DataType>(
    group: &dyn RowGroupReader,
    name: &str,
) -> parquet::errors::Result<(Vec<T::T>, Vec<i16>)> {
    let schema = group.metadata().schema_descr_ptr();
    let place = schema.columns().iter().position(|it| it.name() == name);
    let place = place.ok_or_else(|| {
        parquet::errors::ParquetError::General(format!("there is no column {name}"))
    })?;
    let rows = usize::try_from(group.metadata().num_rows()).unwrap_or_default();
    let mut reader = get_typed_column_reader::<T>(group.get_column_reader(place)?);
    let (mut values, mut levels) = (Vec::with_capacity(rows), Vec::new());
    let has_levels = schema.column(place).max_def_level() > 0;
    let mut read = 0;
    while read < rows {
        let wanted = has_levels.then_some(&mut levels);
        let (records, _, _) = reader.read_records(rows - read, wanted, None, &mut values)?;
        if records == 0 {
            break;
        }
        read += records;
    }
    Ok((values, levels))
}
