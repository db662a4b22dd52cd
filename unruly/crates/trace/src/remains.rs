//! The files of a run by the trial that wrote them, so that a trial can be removed as a whole, and
//! a check that those of the others are all there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::checksum::is_whole;
use crate::error::TraceError;
use crate::locks::WriterLock;
use crate::manifest::{Counts, Manifest};
use crate::recovery::{WRITERS_TIMEOUT, counts_of, files_of};
use crate::schema::Table;
use crate::spool::SpoolReader;
use crate::tally_page;

/// A trial by the numbers of its cell and its repeat, as they are in file names.
pub type TrialKey = (usize, u16);

/// Folders beside the tables whose files belong to trials.
const FOLDERS: [&str; 2] = ["logs", "services"];

/// Returns the trial that a file of a run belongs to: `(0, 2)` of `drive-0-c0r2-00001.parquet`.
pub(crate) fn trial_of(name: &str) -> Option<TrialKey> {
    let mut words = name.split(['-', '.']).rev();
    words.find_map(|word| {
        let (cell, repeat) = word.strip_prefix('c')?.split_once('r')?;
        Some((cell.parse().ok()?, repeat.parse().ok()?))
    })
}

/// Removes the files of every trial that is not in `kept`. Returns how many there were.
///
/// # Errors
///
/// When a file cannot be removed, or somebody still writes into the run.
pub fn remove_others(directory: &Path, kept: &BTreeSet<TrialKey>) -> Result<usize, TraceError> {
    let _alone = WriterLock::alone(directory, WRITERS_TIMEOUT)?;
    let tables = Table::ALL.map(Table::name);
    let mut removed = 0;
    for folder in tables.into_iter().chain(FOLDERS) {
        for path in entries_of(&directory.join(folder)) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if trial_of(&name).is_some_and(|trial| !kept.contains(&trial)) {
                remove(&path).map_err(|source| {
                    TraceError::io(&path, "removing a trial that was cut off", source)
                })?;
                removed += 1;
            }
        }
    }
    Ok(removed)
}

fn remove(path: &Path) -> std::io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        return fs::remove_dir_all(path);
    }
    // Memory that outlives its process has the spool's name only.
    if path.extension().is_some_and(|it| it == "spool")
        && let Some(page) = SpoolReader::open(path).ok().and_then(|it| it.header.tally)
    {
        tally_page::remove(&page);
    }
    fs::remove_file(path)
}

/// Returns the entries of a folder. A link has none, because its target is not part of the run.
fn entries_of(folder: &Path) -> Vec<PathBuf> {
    if !fs::symlink_metadata(folder).is_ok_and(|it| it.is_dir()) {
        return Vec::new();
    }
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.flatten().map(|it| it.path()).collect();
    paths.sort();
    paths
}

/// Has the disk keep the names of all files of a run, so that they outlast a crash of the machine.
///
/// # Errors
///
/// When the disk refuses it.
pub fn sync_folders(directory: &Path) -> Result<(), TraceError> {
    let tables = Table::ALL.map(|table| directory.join(table.name()));
    for folder in tables.iter().filter(|it| it.is_dir()) {
        File::open(folder)
            .and_then(|it| it.sync_all())
            .map_err(|source| TraceError::io(folder, "keeping the names of files", source))?;
    }
    Ok(())
}

/// Returns the trials of which a file is damaged or rows are not there, each with a sentence.
#[must_use]
pub fn damaged(manifest: &Manifest, directory: &Path) -> BTreeMap<TrialKey, String> {
    let mut found = BTreeMap::new();
    for path in Table::ALL.iter().flat_map(|it| files_of(directory, *it)) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let sealed = path.extension().is_some_and(|it| it == "parquet");
        let whole = || File::open(&path).is_ok_and(|mut file| is_whole(&mut file));
        if let Some(trial) = trial_of(&name)
            && sealed
            && !whole()
        {
            found.insert(trial, format!("{name} is damaged"));
        }
    }
    let counts = counts_of(directory);
    for process in &manifest.processes {
        let cell = manifest.cells.iter().position(|it| it.name == process.cell);
        let (Some(cell), Some(expected)) = (cell, &process.counts) else {
            continue;
        };
        let trial = (cell, process.repeat);
        let stem = format!("{}-c{cell}r{}", process.name, process.repeat);
        let rows = |counts: &Counts| counts.copies.recorded;
        let (there, noted) = (counts.get(&stem).map_or(0, rows), rows(expected));
        if there != noted {
            let told = format!("{} has {there} of its {noted} rows", process.name);
            found.entry(trial).or_insert(told);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trial_of_a_file_is_in_its_name() {
        for (name, trial) in [
            ("drive-0-c0r2-00001.parquet", Some((0, 2))),
            ("probe-0-c12r0.job.json", Some((12, 0))),
            ("c3r1", Some((3, 1))),
            ("c3r1-redis-1.log", Some((3, 1))),
            ("runner-c0r2-00000.parquet.tmp", Some((0, 2))),
            ("plan.toml", None),
            ("cart-r1.log", None),
        ] {
            assert_eq!(trial_of(name), trial, "{name}");
        }
    }

    #[test]
    fn the_files_of_other_trials_are_removed_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let place = |name: &str| directory.path().join(name);
        for folder in ["requests", "logs", "services/c0r1/redis-1", "services/c0r0"] {
            fs::create_dir_all(place(folder)).unwrap();
        }
        let kept = ["requests/drive-0-c0r0-00000.parquet", "logs/notes.txt"];
        let gone = [
            "requests/drive-0-c0r1-00000.parquet",
            "requests/drive-0-c1r0-00000.spool",
            "logs/c0r1-redis-1.log",
            "services/c0r1/redis-1/dump",
        ];
        for name in kept.iter().chain(&gone) {
            fs::write(place(name), "x").unwrap();
        }
        assert_eq!(
            remove_others(directory.path(), &BTreeSet::from([(0, 0)])).unwrap(),
            4
        );
        assert!(kept.iter().all(|name| place(name).exists()));
        assert!(gone.iter().all(|name| !place(name).exists()));
        assert!(place("services/c0r0").exists());
    }
}
