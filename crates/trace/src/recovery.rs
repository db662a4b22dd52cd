//! Recovery: what the drain thread would have done, done for it. Run by every verb.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::TraceError;
use crate::locks::{RunLock, WriterLock};
use crate::manifest::{Counts, Manifest, RunStatus};
use crate::record::{NULL_NS, Record};
use crate::schema::Table;
use crate::segment::read_counts;
use crate::spool::{SpoolReader, as_unfinished, seal_spool, segment_path};
use crate::table_spool::seal_lines;

/// Processes whose runner died end within seconds; so long recovery waits for them.
const WRITERS_PATIENCE: Duration = Duration::from_secs(10);

/// What recovery did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Spools that became segments.
    pub spools: usize,
    /// Rows in them.
    pub rows: u64,
    /// Files that could not be used, a sentence each.
    pub problems: Vec<String>,
}

/// Makes a run whole: removes unfinished segments, turns spools into segments, and writes the
/// manifest of a run whose runner died. Does nothing to a run that is whole.
///
/// # Errors
///
/// When the directory is not a run, the run is still going on, or somebody still writes into it.
pub fn recover(directory: &Path) -> Result<Recovery, TraceError> {
    let mut manifest = Manifest::read(directory)?;
    if manifest.status != RunStatus::Running && leftovers(directory).is_empty() {
        return Ok(Recovery::default());
    }
    let _lock = RunLock::take(directory)?;
    let _alone = WriterLock::alone(directory, WRITERS_PATIENCE)?;
    let mut recovery = Recovery::default();
    let mut last_rows = LastRows::new();
    for (table, path) in leftovers(directory) {
        if path.extension().is_some_and(|extension| extension == "tmp") {
            let _ = fs::remove_file(&path);
            continue;
        }
        let sealed = seal(table, &path, &mut last_rows);
        match sealed {
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
    rewrite(&mut manifest, directory, &last_rows, &recovery);
    manifest.write(directory)?;
    Ok(recovery)
}

/// Spools and temporary files, in a fixed order.
fn leftovers(directory: &Path) -> Vec<(Table, PathBuf)> {
    let left = |path: &PathBuf| {
        path.extension()
            .is_some_and(|extension| extension == "spool" || extension == "tmp")
    };
    Table::ALL
        .into_iter()
        .flat_map(|table| {
            files_of(directory, table)
                .into_iter()
                .map(move |path| (table, path))
        })
        .filter(|(_, path)| left(path))
        .collect()
}

fn files_of(directory: &Path, table: Table) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory.join(table.name())) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .collect();
    paths.sort();
    paths
}

/// A spool that was created and never written to says nothing, and is no problem.
fn is_nearly_empty(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.len() < 12)
}

/// When the last row of each process with a spool was, by process, cell and repeat (in the stem).
type LastRows = BTreeMap<String, i64>;

/// Returns the rows of the new segment, and a sentence about records that could not be read.
fn seal(
    table: Table,
    path: &Path,
    last_rows: &mut LastRows,
) -> Result<(u64, Option<String>), TraceError> {
    // The segment is renamed into place before the spool is removed: both mean that it is done.
    if segment_path(path).exists() {
        fs::remove_file(path)
            .map_err(|source| TraceError::io(path, "removing the spool", source))?;
        return Ok((0, None));
    }
    if table != Table::Requests {
        return seal_lines(table, path).map(|rows| (rows, None));
    }
    let mut last_ns = 0;
    for record in SpoolReader::open(path)? {
        last_ns = last_instant(&record).max(last_ns);
    }
    let before = last_rows.entry(stem_of(path)).or_insert(0);
    *before = last_ns.max(*before);
    let sealed = seal_spool(path, &mut as_unfinished)?;
    let damage = sealed.unread.map(|(records, kept)| {
        format!(
            "{}: {records} records cannot be read and are not in this run; the spool is kept as {}",
            path.display(),
            kept.file_name().unwrap_or_default().to_string_lossy()
        )
    });
    Ok((sealed.counts.copies.recorded, damage))
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

fn last_instant(record: &Record) -> i64 {
    [record.sent_ns, record.received_ns, record.intended_ns]
        .into_iter()
        .filter(|time_ns| *time_ns != NULL_NS)
        .max()
        .unwrap_or(0)
}

fn rewrite(manifest: &mut Manifest, directory: &Path, last_rows: &LastRows, recovery: &Recovery) {
    for (stem, last_ns) in last_rows {
        #[expect(clippy::cast_precision_loss, reason = "a time for people")]
        let after_s = (last_ns - manifest.started_ns) as f64 / 1e9;
        let when = if *last_ns == 0 {
            "it has no row".to_owned()
        } else {
            format!("its last row is from {after_s:.1} s after the start")
        };
        let process = stem
            .rsplit_once("-c")
            .map_or(stem.as_str(), |(process, _)| process);
        manifest
            .missing
            .push(format!("{process} did not end properly: {when}"));
    }
    for problem in &recovery.problems {
        // a spool that stays is found again by every verb
        if !manifest.missing.contains(problem) {
            manifest.missing.push(problem.clone());
        }
    }
    if manifest.status == RunStatus::Running {
        manifest.status = RunStatus::CutOff;
        manifest.missing.push(
            "the run was cut off: its runner ended without a word; rows after that are not there"
                .to_owned(),
        );
        manifest.ended_ns = last_rows
            .values()
            .copied()
            .max()
            .filter(|end_ns| *end_ns > 0);
    }
    count_again(manifest, directory);
}

/// Processes that could not say their counts get those of their segments' footers.
fn count_again(manifest: &mut Manifest, directory: &Path) {
    let cells: Vec<String> = manifest
        .cells
        .iter()
        .map(|cell| cell.name.clone())
        .collect();
    let mut by_stem: BTreeMap<String, Counts> = BTreeMap::new();
    for path in files_of(directory, Table::Requests) {
        if let Some((_, counts)) = read_counts(&path) {
            by_stem.entry(stem_of(&path)).or_default().add(&counts);
        }
    }
    for process in &mut manifest.processes {
        let cell = cells
            .iter()
            .position(|cell| *cell == process.cell)
            .unwrap_or(0);
        let stem = format!("{}-c{cell}r{}", process.name, process.repeat);
        if process.counts.is_none() {
            process.counts = by_stem.get(&stem).cloned();
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
