//! Recovery: what the drain thread would have done, done for it. Run by every verb.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use unruly_time::{ColumnNs, DurationNs};

use crate::error::TraceError;
use crate::locks::{RunLock, WriterLock};
use crate::manifest::{Counts, Manifest, RunStatus};
use crate::record::{NULL_NS, Record};
use crate::remains::trial_of;
use crate::schema::Table;
use crate::segment::read_counts;
use crate::spool::{SpoolReader, as_unfinished, finish_spool, seal_spool, segment_path};
use crate::table_spool::seal_lines;
use crate::tally_page::{self, LastTally};
use crate::turnaround_spool::seal_turnarounds;

/// How long recovery waits for the writers. Processes whose runner died end within seconds.
pub(crate) const WRITERS_TIMEOUT: Duration = Duration::from_secs(10);

/// What recovery did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Spools that became segments.
    pub spools: usize,
    /// Rows in them.
    pub rows: u64,
    /// Files that could not be used, a sentence each.
    pub problems: Vec<String>,
    /// What each process that did not end properly took with it, where that is known.
    pub losses: Vec<Loss>,
}

/// Requests that a killed process had begun and that have no row, each copy and each try counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// The process, its cell and repeat, as files begin: `drive-0-c0r0`.
    pub stem: String,
    /// Requests that it had begun.
    pub begun: u64,
    /// Those of them that have a row.
    pub rows: u64,
    /// When the last of them was scheduled, since the start of the run.
    pub last_ns: DurationNs,
}

impl std::fmt::Display for Loss {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lost = self.begun.saturating_sub(self.rows);
        write!(
            out,
            "of {} requests that it had begun, {} have no row; the last was scheduled {:.4} s after the start",
            grouped(self.begun),
            grouped(lost),
            self.last_ns.as_secs_f64()
        )
    }
}

/// Makes a run whole: removes unfinished segments, turns spools into segments, and writes the
/// manifest of a run whose runner died. Does nothing to a run that is whole.
///
/// # Errors
///
/// When the directory is not a run, the run is still going on, or somebody still writes into it.
pub fn recover(directory: &Path) -> Result<Recovery, TraceError> {
    if is_whole(&Manifest::read(directory)?, directory) {
        return Ok(Recovery::default());
    }
    recover_locked(directory, &RunLock::take(directory)?)
}

/// Makes a run whole, as [`recover`] does, for a runner that holds the lock of the run.
///
/// # Errors
///
/// When the directory is not a run, or somebody still writes into it.
pub fn recover_locked(directory: &Path, _lock: &RunLock) -> Result<Recovery, TraceError> {
    let mut manifest = Manifest::read(directory)?;
    if is_whole(&manifest, directory) {
        return Ok(Recovery::default());
    }
    let _alone = WriterLock::alone(directory, WRITERS_TIMEOUT)?;
    let mut recovery = Recovery::default();
    let mut ends = Ends::new();
    for (table, path) in leftovers(directory) {
        if path.extension().is_some_and(|extension| extension == "tmp") {
            let _ = fs::remove_file(&path);
            continue;
        }
        match seal(table, &path, &mut ends) {
            Ok((rows, damage)) => {
                recovery.spools += 1;
                recovery.rows += rows;
                recovery.problems.extend(damage);
            }
            Err(TraceError::Spool { .. }) if is_nearly_empty(&path) => {
                let _ = fs::remove_file(&path);
            }
            Err(error @ TraceError::Spool { .. }) => recovery.problems.push(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    rewrite(&mut manifest, directory, &ends, &mut recovery);
    manifest.write(directory)?;
    Manifest::release(directory);
    // Only now: a recovery that fails before is done again, and must know it all.
    for page in ends.values().filter_map(|end| end.page.as_deref()) {
        tally_page::remove(page);
    }
    Ok(recovery)
}

fn is_whole(manifest: &Manifest, directory: &Path) -> bool {
    manifest.status != RunStatus::Running
        && unnamed(manifest, directory).is_empty()
        && leftovers(directory).is_empty()
}

/// Spools and temporary files, in a fixed order: those of requests last, so that what their spools say
/// is still there when another table cannot be sealed.
fn leftovers(directory: &Path) -> Vec<(Table, PathBuf)> {
    let left = |path: &PathBuf| {
        path.extension()
            .is_some_and(|extension| extension == "spool" || extension == "tmp")
    };
    let mut tables = Table::ALL;
    tables.sort_by_key(|table| *table == Table::Requests);
    tables
        .into_iter()
        .flat_map(|table| {
            files_of(directory, table)
                .into_iter()
                .map(move |path| (table, path))
        })
        .filter(|(_, path)| left(path))
        .collect()
}

pub(crate) fn files_of(directory: &Path, table: Table) -> Vec<PathBuf> {
    // What is linked here is somebody else's, and may be a pipe that never ends.
    let folder = directory.join(table.name());
    if !fs::symlink_metadata(&folder).is_ok_and(|it| it.is_dir()) {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let is_file = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|it| it.is_file());
    let mut paths: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .filter(is_file)
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    paths
}

/// Damaged spools that were kept and that the manifest does not name: a recovery that failed later on,
/// or a process that sealed its own spool, moved them aside.
fn unnamed(manifest: &Manifest, directory: &Path) -> Vec<String> {
    files_of(directory, Table::Requests)
        .into_iter()
        .filter(|path| path.extension().is_some_and(|it| it == "unread"))
        .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .filter(|name| !manifest.missing.iter().any(|it| it.contains(name.as_str())))
        .collect()
}

/// A spool that was created and never written to says nothing, and is no problem.
fn is_nearly_empty(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.len() < 12)
}

/// What is known of the end of each process with a spool, by process, cell and repeat (in the stem).
type Ends = BTreeMap<String, End>;

#[derive(Debug, Default)]
struct End {
    /// When its last row is from; 0 for none.
    last_row_ns: ColumnNs,
    tally: Option<LastTally>,
    /// Where that is from.
    page: Option<String>,
}

/// Returns the rows of the new segment, and a sentence about records that could not be read.
fn seal(table: Table, path: &Path, ends: &mut Ends) -> Result<(u64, Option<String>), TraceError> {
    // The segment is renamed into place before the spool is removed: both mean that it is done.
    if table != Table::Requests {
        if segment_path(path).exists() {
            fs::remove_file(path)
                .map_err(|source| TraceError::io(path, "removing the spool", source))?;
            return Ok((0, None));
        }
        if table == Table::Turnarounds {
            let (rows, unread) = seal_turnarounds(path)?;
            let told = "records cannot be read and are not in this run";
            let damage = (unread > 0).then(|| format!("{}: {unread} {told}", path.display()));
            return Ok((rows, damage));
        }
        return seal_lines(table, path).map(|rows| (rows, None));
    }
    // A whole one, that is: any file may have its name.
    let done = read_counts(&segment_path(path)).is_some();
    let spool = SpoolReader::open(path)?;
    let end = ends.entry(stem_of(path)).or_default();
    // All spools of a recorder name one page.
    if end.tally.is_none() {
        end.tally = spool.header.tally.as_deref().and_then(tally_page::read);
        end.page.clone_from(&spool.header.tally);
    }
    for record in spool {
        end.last_row_ns = last_instant(&record).max(end.last_row_ns);
    }
    let (rows, unread) = if done {
        (0, finish_spool(path)?)
    } else {
        let sealed = seal_spool(path, &mut as_unfinished)?;
        (sealed.counts.copies.recorded, sealed.unread)
    };
    let damage = unread.map(|(records, kept)| {
        format!(
            "{}: {records} records cannot be read and are not in this run; the spool is kept as {}",
            path.display(),
            kept.file_name().unwrap_or_default().to_string_lossy()
        )
    });
    Ok((rows, damage))
}

/// `agent-3-c0r0` of `agent-3-c0r0-00002.spool`.
fn stem_of(path: &Path) -> String {
    let stem = path
        .file_stem()
        .map(|stem| stem.to_string_lossy().into_owned())
        .unwrap_or_default();
    stem.rsplit_once('-')
        .map_or_else(|| stem.clone(), |(stem, _)| stem.to_owned())
}

fn last_instant(record: &Record) -> ColumnNs {
    [record.sent_ns, record.received_ns, record.intended_ns]
        .into_iter()
        .filter(|time_ns| *time_ns != NULL_NS)
        .max()
        .unwrap_or_default()
}

fn rewrite(manifest: &mut Manifest, directory: &Path, ends: &Ends, recovery: &mut Recovery) {
    let found = counts_of(directory);
    for (stem, end) in ends {
        let loss = end.tally.map(|tally| Loss {
            stem: stem.clone(),
            begun: tally.scheduled,
            rows: found.get(stem).map_or(0, |it| it.copies.recorded),
            last_ns: tally.intended_ns.saturating_since(manifest.started_ns),
        });
        let what = match &loss {
            Some(loss) if loss.begun > 0 => loss.to_string(),
            _ if end.last_row_ns == ColumnNs(0) => "it has no row".to_owned(),
            _ => format!(
                "its last row is from {:.1} s after the start",
                end.last_row_ns
                    .saturating_since(manifest.started_ns)
                    .as_secs_f64()
            ),
        };
        let process = stem
            .rsplit_once("-c")
            .map_or(stem.as_str(), |(process, _)| process);
        let told = format!("{process} did not end properly: {what}");
        note(manifest, stem, told);
        recovery.losses.extend(loss);
    }
    for problem in &recovery.problems {
        // a spool that stays is found again by every verb
        if !manifest.missing.contains(problem) {
            let file = problem.split(": ").next().unwrap_or_default();
            note(
                manifest,
                file.rsplit('/').next().unwrap_or_default(),
                problem.clone(),
            );
        }
    }
    for name in unnamed(manifest, directory) {
        let told = "some of its records cannot be read and are not in this run; it is kept";
        note(manifest, &name, format!("{name}: {told}"));
    }
    if manifest.status == RunStatus::Running {
        manifest.status = RunStatus::CutOff;
        manifest.missing.push(
            "the run was cut off: its runner ended without a word; rows after that are not there"
                .to_owned(),
        );
        manifest.ended_ns = ends
            .values()
            .map(|end| end.last_row_ns)
            .max()
            .filter(|end_ns| *end_ns > ColumnNs(0));
        if let Some(part) = manifest.parts.last_mut() {
            part.status = RunStatus::CutOff;
            part.ended_ns = manifest.ended_ns;
        }
    }
    count_again(manifest, &found);
}

/// Notes a gap in the data, for the run and for the trial that the file belongs to.
fn note(manifest: &mut Manifest, file: &str, told: String) {
    if let Some(trial) = trial_of(file).and_then(|trial| manifest.trial_mut(trial)) {
        trial.missing.push(told.clone());
    }
    manifest.missing.push(told);
}

/// The counts of each process by its stem, from the footers of its segments.
pub(crate) fn counts_of(directory: &Path) -> BTreeMap<String, Counts> {
    let mut by_stem: BTreeMap<String, Counts> = BTreeMap::new();
    for path in files_of(directory, Table::Requests) {
        if let Some((_, counts)) = read_counts(&path) {
            by_stem.entry(stem_of(&path)).or_default().add(&counts);
        }
    }
    by_stem
}

/// Processes that could not say their counts get those of their segments' footers.
fn count_again(manifest: &mut Manifest, found: &BTreeMap<String, Counts>) {
    let cells: Vec<String> = manifest
        .cells
        .iter()
        .map(|cell| cell.name.clone())
        .collect();
    for process in &mut manifest.processes {
        let cell = cells
            .iter()
            .position(|cell| *cell == process.cell)
            .unwrap_or(0);
        let stem = format!("{}-c{cell}r{}", process.name, process.repeat);
        if process.counts.is_none() {
            process.counts = found.get(&stem).cloned();
        }
    }
    let mut total = Counts::default();
    manifest
        .processes
        .iter()
        .filter_map(|process| process.counts.as_ref())
        .for_each(|counts| {
            total.add(counts);
        });
    manifest.counts = total;
}

/// A number as people read it: `1,234,567`.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
