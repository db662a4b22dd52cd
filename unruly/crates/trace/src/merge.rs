//! The rows of a run that is over, merged into histograms that are kept for months.
//!
//! Every verb reads the result as it reads an import of bins: percentiles within a bin, intervals over
//! blocks of time, and nothing about single requests.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{BoolType, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::file::reader::{FileReader as _, RowGroupReader, SerializedFileReader};
use serde::{Deserialize, Serialize};
use unruly_time::{ColumnNs, DurationNs};

use crate::bins::{bin, edges};
use crate::checksum::is_whole;
use crate::error::TraceError;
use crate::locks::RunLock;
use crate::manifest::{Manifest, RunStatus};
use crate::schema::Table;
use crate::segment::{SegmentMeta, SegmentWriter, Value};

/// Stretches of time of a run that have histograms of their own: twice as many as the blocks of the
/// intervals, so that each block has some.
const STRETCHES: i64 = 60;

/// The folder of the histograms before they count, and that of the rows when they count no more.
/// Nobody reads either.
const COMING: &str = "merging";
const GOING: &str = "merged-rows";

/// A send delay above this is late, as in `unruly/python/unruly/base/distrust.py`.
const LATE: DurationNs = DurationNs(10_000_000);

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
    /// Whether the load generator was on time.
    pub delays: Delays,
}

/// How late the load generator sent and read, over all measured requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Delays {
    /// Send delay at p50, p90, p99 and p99.9, within a bin; zeros if there is none.
    pub send_ns: [DurationNs; 4],
    /// The longest one.
    pub send_max_ns: DurationNs,
    /// Requests whose send delay was late and most of their response time.
    pub late: u64,
    /// Requests beyond the p99 of their operation.
    pub tail: u64,
    /// Those of them whose send delay was most of their response time.
    pub tail_late: u64,
    /// Replies that were read late, which was most of their response time.
    pub unread: u64,
    /// The longest such delay.
    pub unread_max_ns: DurationNs,
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
/// When the directory is no run, the run is going on or is not whole, a segment is damaged, the rows are
/// not those that the manifest counts, or the disk is full. The rows then stay.
pub fn merge_rows(directory: &Path, at_ns: ColumnNs) -> Result<bool, TraceError> {
    let _lock = RunLock::take(directory)?;
    let rows = directory.join(Table::Requests.name());
    let mut manifest = Manifest::read(directory)?;
    if !rows.exists() {
        return match manifest.merged {
            Some(_) => finish(directory),
            None => Ok(false),
        };
    }
    if manifest.status == RunStatus::Running {
        return Err(TraceError::Running {
            path: directory.to_owned(),
        });
    }
    remove(&directory.join(COMING))?;
    let measured = Measured::read(&segments(&rows)?)?;
    let recorded = manifest.counts.copies.recorded;
    if measured.rows != recorded && manifest.status != RunStatus::CutOff {
        return Err(TraceError::Conservation {
            place: directory.display().to_string(),
            what: format!(
                "{} rows are there, and the manifest counts {recorded}",
                measured.rows
            ),
        });
    }
    write(directory, &manifest, &measured)?;
    manifest.merged = Some(Merged {
        at_ns,
        requests: measured.figures.values().map(|it| it.n).sum(),
        figures: measured.figures(),
        delays: measured.delays(),
    });
    manifest.write(directory)?;
    // At once, so that no reader finds a part of them, or both.
    moved(&rows, &directory.join(GOING))?;
    finish(directory)
}

/// Removes the remains of the tables when the rows are out of the way. Returns whether there was anything.
fn finish(directory: &Path) -> Result<bool, TraceError> {
    let coming = directory.join(COMING);
    let mut left = is_unfinished(directory);
    if coming.exists() {
        moved(&coming, &directory.join(Table::Histograms.name()))?;
    }
    for table in Table::ALL.into_iter().filter(|it| *it != Table::Histograms) {
        let folder = directory.join(table.name());
        left |= folder.exists();
        remove(&folder)?;
    }
    remove(&directory.join(GOING))?;
    Ok(left)
}

/// Returns true if a merger of the run was cut off: then its tables say nothing for sure.
#[must_use]
pub fn is_unfinished(directory: &Path) -> bool {
    [COMING, GOING].iter().any(|it| directory.join(it).exists())
}

/// The segments of a table. Files that recovery has left there may be rows that are nowhere else.
fn segments(rows: &Path) -> Result<Vec<PathBuf>, TraceError> {
    let io = |source| TraceError::io(rows, "reading the folder of rows", source);
    let mut found = Vec::new();
    for entry in fs::read_dir(rows).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let extension = path.extension().and_then(|it| it.to_str());
        match extension {
            Some("parquet") => found.push(path),
            Some("spool" | "unread" | "tmp") => {
                return Err(TraceError::Conservation {
                    place: path.display().to_string(),
                    what: "it may hold rows that are in no segment".to_owned(),
                });
            }
            _ => {}
        }
    }
    found.sort();
    Ok(found)
}

fn moved(from: &Path, to: &Path) -> Result<(), TraceError> {
    fs::rename(from, to).map_err(|source| TraceError::io(from, "moving the folder", source))
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
    /// Rows of all phases.
    rows: u64,
    /// Send delays in bins.
    lags: BTreeMap<u32, u64>,
    delays: Delays,
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
    sent_ns: Vec<Option<i64>>,
    received_ns: Vec<Option<i64>>,
    kernel_received_ns: Vec<Option<i64>>,
    waited: Vec<Option<bool>>,
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

    /// The delay from an instant until it was sent. One that waited for a connection has none.
    fn lag_ns(&self, row: usize, since_ns: i64) -> Option<i64> {
        let waited = self.waited[row].unwrap_or(false);
        let sent_ns = self.sent_ns[row].filter(|_| !waited && self.attempt[row] == 0)?;
        Some((sent_ns - since_ns).max(0))
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
        let mut all = 0;
        for_each(segments, |rows| {
            all += rows.cell.len() as u64;
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
            rows: all,
            first_ns,
            stretch_ns: ((last_ns.saturating_sub(first_ns)) / STRETCHES + 1).max(1),
            ..Self::default()
        };
        for_each(segments, |rows| {
            each_request(rows, &tried, |row, intended_ns| {
                measured.add(rows, row, intended_ns);
            });
        })?;
        let limits = measured.limits();
        for_each(segments, |rows| {
            each_request(rows, &tried, |row, intended_ns| {
                measured.add_tail(rows, row, intended_ns, &limits);
            });
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
        self.add_delays(rows, row, (intended_ns, response_ns));
        let stretch = (intended_ns.max(self.first_ns) - self.first_ns) / self.stretch_ns;
        let (cell, op) = names;
        let (host, process) = (rows.host[row].clone(), rows.process[row].clone());
        let place = (cell, rows.repeat[row], host, process, op, stretch);
        let bin = response_ns.map(|ns| bin(DurationNs(ns)));
        *self.bins.entry(place).or_default().entry(bin).or_default() += 1;
    }

    fn add_delays(
        &mut self,
        rows: &Rows,
        row: usize,
        (intended_ns, response_ns): (i64, Option<i64>),
    ) {
        if let Some(lag_ns) = rows.lag_ns(row, intended_ns) {
            *self.lags.entry(bin(DurationNs(lag_ns))).or_default() += 1;
            self.delays.send_max_ns = self.delays.send_max_ns.max(DurationNs(lag_ns));
            let is_most = response_ns.is_none_or(|response_ns| lag_ns > response_ns / 2);
            self.delays.late += u64::from(lag_ns > LATE.0 && is_most);
        }
        let read = rows.received_ns[row].zip(rows.kernel_received_ns[row]);
        let late = read.map(|(read, came)| read - came).zip(response_ns);
        if let Some((unread_ns, _)) = late.filter(|(it, all)| *it > LATE.0 && *it > all / 2) {
            self.delays.unread += 1;
            self.delays.unread_max_ns = self.delays.unread_max_ns.max(DurationNs(unread_ns));
        }
    }

    /// The response time beyond which the slowest hundredth of each operation lies.
    fn limits(&self) -> BTreeMap<(Word, Word), f64> {
        let mut bins: BTreeMap<(Word, Word), BTreeMap<u32, u64>> = BTreeMap::new();
        for (place, counts) in &self.bins {
            let own = bins.entry((place.0.clone(), place.4.clone())).or_default();
            for (bin, count) in counts {
                *own.entry(bin.unwrap_or(u32::MAX)).or_default() += count;
            }
        }
        let limit = |own: BTreeMap<u32, u64>| quantile(&own, 99, 100).map_or(f64::INFINITY, edge);
        bins.into_iter()
            .map(|(key, own)| (key, limit(own)))
            .collect()
    }

    fn add_tail(
        &mut self,
        rows: &Rows,
        row: usize,
        intended_ns: i64,
        limits: &BTreeMap<(Word, Word), f64>,
    ) {
        let limit = limits.get(&(rows.cell[row].clone(), rows.op[row].clone()));
        #[expect(clippy::cast_precision_loss, reason = "against the edge of a bin")]
        let is_beyond = |ns: &i64| limit.is_some_and(|limit| *ns as f64 > *limit);
        if let Some(response_ns) = rows.response_ns(row, intended_ns).filter(is_beyond) {
            self.delays.tail += 1;
            let lag_ns = rows.lag_ns(row, intended_ns);
            self.delays.tail_late += u64::from(lag_ns.is_some_and(|it| it > response_ns / 2));
        }
    }

    fn delays(&self) -> Delays {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "an edge of a bin of 64 bits"
        )]
        let upper = |bin: u32| DurationNs(edge(bin) as i64);
        let at = |share, of| quantile(&self.lags, share, of).map_or(DurationNs(0), upper);
        Delays {
            send_ns: [at(50, 100), at(90, 100), at(99, 100), at(999, 1_000)],
            ..self.delays.clone()
        }
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

/// The upper edge of a bin; infinity for that of failures.
fn edge(bin: u32) -> f64 {
    if bin == u32::MAX {
        f64::INFINITY
    } else {
        edges(bin).1
    }
}

/// The bin in which a share of all values is reached; none if there are no values.
fn quantile(bins: &BTreeMap<u32, u64>, share: u64, of: u64) -> Option<u32> {
    let all: u64 = bins.values().sum();
    let mut below = 0;
    let mut reached = bins.iter().filter_map(|(bin, count)| {
        below += count;
        (below * of >= all * share).then_some(*bin)
    });
    reached.next()
}

/// Calls for each measured request with its row and its first scheduled time: one that was tried again on
/// one server has its last try only.
fn each_request(
    rows: &Rows,
    tried: &BTreeMap<RequestKey, Tries>,
    mut take: impl FnMut(usize, i64),
) {
    for row in (0..rows.cell.len()).filter(|row| rows.is_measured(*row)) {
        let tries = match tried.is_empty() {
            true => None,
            false => tried.get(&rows.key(row)),
        };
        match tries.filter(|it| it.servers.0 == it.servers.1) {
            Some(tries) if tries.last != rows.attempt[row] => {}
            Some(tries) => take(row, tries.first_intended_ns),
            None => take(row, rows.intended_ns[row]),
        }
    }
}

/// Writes the histograms, a row for each bin of each stretch.
fn write(directory: &Path, manifest: &Manifest, measured: &Measured) -> Result<(), TraceError> {
    let folder = directory.join(COMING);
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
        let mut file =
            File::open(path).map_err(|source| TraceError::io(path, "reading rows", source))?;
        if !is_whole(&mut file) {
            return Err(TraceError::Conservation {
                place: path.display().to_string(),
                what: "its checksum is wrong".to_owned(),
            });
        }
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
    let maybe = |name: &str| long(name).map(|(values, levels)| spread(values, &levels));
    let (waited, levels) = column::<BoolType>(group, "waited")?;
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
        sent_ns: maybe("sent_ns")?,
        received_ns: maybe("received_ns")?,
        kernel_received_ns: maybe("kernel_received_ns")?,
        waited: spread(waited, &levels),
        status: words(group, "status")?,
    })
}

/// Puts the values of a column at the rows that have one.
fn spread<T>(values: Vec<T>, levels: &[i16]) -> Vec<Option<T>> {
    let mut present = values.into_iter();
    let value = |level: &i16| (*level > 0).then(|| present.next()).flatten();
    levels.iter().map(value).collect()
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
