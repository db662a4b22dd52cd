//! Recovery: what the drain thread would have done, done for it. Run by every verb.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::error::TraceError;
use crate::manifest::{Counts, Manifest, RunStatus};
use crate::record::{NULL_NS, Record};
use crate::schema::Table;
use crate::spool::{SpoolReader, as_unfinished, seal_spool, segment_path};
use crate::table_spool::seal_lines;

/// Held by the runner for as long as the run goes on; the kernel drops it when the runner dies.
#[derive(Debug)]
pub struct RunLock(#[expect(dead_code, reason = "held for its drop")] Flock<File>);

impl RunLock {
    /// Takes the lock of a run directory.
    ///
    /// # Errors
    ///
    /// When somebody else holds it: the run is going on.
    pub fn take(directory: &Path) -> Result<Self, TraceError> {
        let path = directory.join(".lock");
        let file = File::create(&path)
            .map_err(|source| TraceError::io(&path, "creating the lock", source))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Self(lock)),
            Err((_, Errno::EWOULDBLOCK)) => Err(TraceError::Running { path: directory.to_owned() }),
            Err((_, errno)) => Err(TraceError::io(&path, "locking", errno.into())),
        }
    }
}

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
/// When the directory is not a run, or the run is still going on.
pub fn recover(directory: &Path) -> Result<Recovery, TraceError> {
    let mut manifest = Manifest::read(directory)?;
    if manifest.status != RunStatus::Running && leftovers(directory).is_empty() {
        return Ok(Recovery::default());
    }
    let _lock = RunLock::take(directory)?;
    let mut recovery = Recovery::default();
    let mut found: BTreeMap<String, Found> = BTreeMap::new();
    for (table, path) in leftovers(directory) {
        if path.extension().is_some_and(|extension| extension == "tmp") {
            let _ = fs::remove_file(&path);
            continue;
        }
        let sealed = seal(table, &path, &mut found);
        match sealed {
            Ok(rows) => {
                recovery.spools += 1;
                recovery.rows += rows;
            }
            Err(TraceError::Spool { .. }) if is_nearly_empty(&path) => {
                let _ = fs::remove_file(&path);
            }
            Err(error @ TraceError::Spool { .. }) => recovery.problems.push(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    rewrite(&mut manifest, &found, &recovery);
    manifest.write(directory)?;
    Ok(recovery)
}

/// Spools and temporary files, in a fixed order.
fn leftovers(directory: &Path) -> Vec<(Table, PathBuf)> {
    let mut files = Vec::new();
    for table in Table::ALL {
        let Ok(entries) = fs::read_dir(directory.join(table.name())) else { continue };
        let mut paths: Vec<PathBuf> =
            entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
        paths.sort();
        let left = |path: &PathBuf| {
            path.extension().is_some_and(|extension| extension == "spool" || extension == "tmp")
        };
        files.extend(paths.into_iter().filter(left).map(|path| (table, path)));
    }
    files
}

/// A spool that was created and never written to says nothing, and is no problem.
fn is_nearly_empty(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.len() < 12)
}

/// What the rows of a process's spools tell.
#[derive(Debug, Default)]
struct Found {
    counts: Counts,
    last_ns: i64,
}

fn seal(
    table: Table,
    path: &Path,
    found: &mut BTreeMap<String, Found>,
) -> Result<u64, TraceError> {
    // The segment is renamed into place before the spool is removed: both mean that it is done.
    if segment_path(path).exists() {
        fs::remove_file(path)
            .map_err(|source| TraceError::io(path, "removing the spool", source))?;
        return Ok(0);
    }
    if table != Table::Requests {
        return seal_lines(table, path);
    }
    let process = SpoolReader::open(path)?.header.process;
    let entry = found.entry(process).or_default();
    for record in SpoolReader::open(path)? {
        entry.last_ns = entry.last_ns.max(last_instant(&record));
    }
    seal_spool(path, &mut as_unfinished)
}

fn last_instant(record: &Record) -> i64 {
    [record.sent_ns, record.received_ns, record.intended_ns]
        .into_iter()
        .filter(|time_ns| *time_ns != NULL_NS)
        .max()
        .unwrap_or(0)
}

fn rewrite(manifest: &mut Manifest, found: &BTreeMap<String, Found>, recovery: &Recovery) {
    let running = manifest.status == RunStatus::Running;
    for (process, found) in found {
        #[expect(clippy::cast_precision_loss, reason = "a time for people")]
        let after_s = (found.last_ns - manifest.started_ns) as f64 / 1e9;
        manifest.missing.push(format!(
            "{process} did not end properly: its last row is from {after_s:.1} s after the start"
        ));
    }
    manifest.missing.extend(recovery.problems.iter().cloned());
    if running {
        manifest.status = RunStatus::CutOff;
        manifest.missing.push(
            "the run was cut off: its runner ended without a word; rows after that are not there"
                .to_owned(),
        );
        manifest.ended_ns = found.values().map(|found| found.last_ns).max().filter(|end| *end > 0);
        // Nobody is left who could say how many were scheduled.
        manifest.counts = Counts::default();
    }
}
