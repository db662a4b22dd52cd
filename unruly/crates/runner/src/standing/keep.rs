//! What stays of the runs of a standing agent: rows for some time, then histograms, within a bound.

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use unruly_trace::{ColumnNs, Manifest, RunStatus, Table, WallNs, is_unfinished, merge_rows};

use super::StandingOptions;

/// The folder of the runs, in the agent's directory.
pub(crate) const RUNS: &str = "runs";

/// Returns the directories of the runs, the earliest first.
pub(super) fn runs(place: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(place.join(RUNS)).into_iter().flatten();
    let folders = entries.flatten().map(|it| it.path());
    let mut runs: Vec<PathBuf> = folders.filter(|it| is_run(it)).collect();
    // Their names are times.
    runs.sort();
    runs
}

/// True for a folder that the agent made for a run. What a person has put there, or linked, is left alone.
fn is_run(path: &Path) -> bool {
    let name = path.file_name().and_then(|it| it.to_str()).unwrap_or("");
    let is_time = name.len() == 16
        && name.bytes().enumerate().all(|(place, byte)| match place {
            8 => byte == b'T',
            15 => byte == b'Z',
            _ => byte.is_ascii_digit(),
        });
    is_time && fs::symlink_metadata(path).is_ok_and(|it| it.is_dir())
}

/// Merges the rows of old runs. While all runs together do not fit into the room, merges the earliest rows
/// if rows take more than half of it, and removes the earliest run otherwise: so there are both,
/// rows of the last days and histograms of earlier ones. Returns a sentence about each run that could
/// not be made smaller, and about each that was removed. Ends after the run at hand when `stop` is set, since
/// to merge many runs takes minutes.
pub(super) fn tidy(
    place: &Path,
    now: WallNs,
    options: &StandingOptions,
    stop: &AtomicBool,
) -> Vec<String> {
    let is_stopped = || stop.load(Ordering::Acquire);
    let mut told = Vec::new();
    let mut runs: VecDeque<Kept> = runs(place).into_iter().map(Kept::look).collect();
    let keep_ns = i64::try_from(options.keep.as_nanos()).unwrap_or(i64::MAX);
    let oldest = ColumnNs(now.0.saturating_sub(keep_ns));
    for run in runs.iter_mut().take_while(|_| !is_stopped()) {
        let is_old = || ended(&run.path).is_some_and(|ended| ended < oldest);
        if is_unfinished(&run.path) || (run.has_rows && is_old()) {
            run.merge(now, &mut told);
        }
    }
    let taken = |runs: &VecDeque<Kept>| runs.iter().map(|it| it.bytes).sum::<u64>();
    while !is_stopped() && taken(&runs) > options.room_bytes {
        let with_rows = runs.iter().filter(|it| it.has_rows);
        let of_rows: u64 = with_rows.map(|it| it.bytes).sum();
        let earliest = runs.iter_mut().find(|it| it.has_rows);
        match earliest.filter(|_| of_rows > options.room_bytes / 2) {
            Some(run) if ended(&run.path).is_some() => run.merge(now, &mut told),
            _ => match runs.pop_front() {
                Some(run) => told.push(run.remove()),
                None => break,
            },
        }
    }
    told
}

/// A run as it is on the disk.
struct Kept {
    path: PathBuf,
    bytes: u64,
    has_rows: bool,
}

impl Kept {
    fn look(path: PathBuf) -> Self {
        Self {
            bytes: size_bytes(&path),
            has_rows: has_rows(&path),
            path,
        }
    }

    /// Merges its rows. One that cannot be merged counts as one without rows, so that it is removed in
    /// its turn.
    fn merge(&mut self, now: WallNs, told: &mut Vec<String>) {
        if let Err(error) = merge_rows(&self.path, ColumnNs(now.0)) {
            let place = self.path.display();
            told.push(format!("{place}: the rows cannot be merged: {error}"));
        }
        (self.bytes, self.has_rows) = (size_bytes(&self.path), false);
    }

    /// Removes it. Returns a sentence about that.
    fn remove(self) -> String {
        let place = self.path.display();
        match fs::remove_dir_all(&self.path) {
            Ok(()) => format!("{place} was removed: there is no room for more runs (--room)"),
            Err(error) => format!("{place}: cannot be removed: {error}"),
        }
    }
}

fn has_rows(run: &Path) -> bool {
    run.join(Table::Requests.name()).is_dir()
}

/// When a run ended; none while it goes on.
fn ended(run: &Path) -> Option<ColumnNs> {
    let manifest = Manifest::read(run).ok()?;
    let is_over = manifest.status != RunStatus::Running;
    is_over.then(|| manifest.ended_ns.unwrap_or(manifest.started_ns))
}

/// The room that all files below a folder take on the disk.
pub(crate) fn size_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(it) if it.is_dir() => size_bytes(&entry.path()),
            Ok(it) => it.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use unruly_plan::utc;

    use super::*;

    const HOUR_NS: i64 = 3_600_000_000_000;
    const DAY: Duration = Duration::from_secs(24 * 3_600);
    const ROWS: usize = 100_000;
    static GOES_ON: AtomicBool = AtomicBool::new(false);
    const START_NS: i64 = 1_796_000_000_000_000_000;

    fn options(keep: Duration, room_bytes: u64) -> StandingOptions {
        StandingOptions {
            directory: PathBuf::new(),
            every: Duration::from_secs(3_600),
            keep,
            room_bytes,
            metrics: None,
            password: None,
            yes: false,
        }
    }

    /// A run that ended at some hour, with a file where rows would be.
    fn add_run(place: &Path, hour: i64, golden: &Manifest) -> PathBuf {
        let at_ns = START_NS + hour * HOUR_NS;
        let run = place.join(RUNS).join(utc(at_ns - HOUR_NS));
        fs::create_dir_all(run.join("requests")).unwrap();
        fs::write(run.join("requests/drive-0.log"), vec![0; ROWS]).unwrap();
        let mut manifest = golden.clone();
        manifest.status = RunStatus::Complete;
        manifest.counts = unruly_trace::Counts::default();
        manifest.started_ns = ColumnNs(at_ns - HOUR_NS);
        manifest.ended_ns = Some(ColumnNs(at_ns));
        manifest.write(&run).unwrap();
        run
    }

    fn golden() -> Manifest {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../schema/golden/manifest.json"
        );
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    }

    #[test]
    fn twelve_days_stay_within_the_room_and_rows_within_their_day() {
        let place = tempfile::tempdir().unwrap();
        let golden = golden();
        let one = size_bytes(&add_run(place.path(), 0, &golden));
        // Rows of a day fit, and histograms of a few.
        let room = one * 30;
        let options = options(DAY, room);
        let mut removed = 0;
        for hour in 0..12 * 24 {
            add_run(place.path(), hour, &golden);
            let taken = size_bytes(&place.path().join(RUNS));
            assert!(taken <= room + one, "hour {hour}: {taken} of {room}");
            let now = WallNs(START_NS + hour * HOUR_NS);
            removed += tidy(place.path(), now, &options, &GOES_ON).len();
            assert!(size_bytes(&place.path().join(RUNS)) <= room, "hour {hour}");
            let runs = runs(place.path());
            let with_rows = runs.iter().filter(|it| has_rows(it)).count();
            assert!(with_rows <= 25, "hour {hour}: {with_rows} runs have rows");
            assert!(with_rows >= runs.len().min(14), "hour {hour}: {with_rows}");
            // The latest is never the one that goes, and rows have half of the room.
            assert!(has_rows(runs.last().unwrap()), "hour {hour}");
        }
        let left = runs(place.path()).len();
        assert_eq!(removed + left, 12 * 24);
        assert!(left > 50, "{left}");
    }

    #[test]
    fn a_run_that_goes_on_keeps_its_rows_and_another_folder_is_not_touched() {
        let place = tempfile::tempdir().unwrap();
        let run = add_run(place.path(), 0, &golden());
        let mut manifest = Manifest::read(&run).unwrap();
        manifest.status = RunStatus::Running;
        manifest.write(&run).unwrap();
        let other = place.path().join(RUNS).join("notes");
        fs::create_dir_all(&other).unwrap();
        let later = WallNs(START_NS + 1_000 * HOUR_NS);
        let told = tidy(place.path(), later, &options(DAY, u64::MAX), &GOES_ON);
        assert_eq!(told, [""; 0]);
        assert!(has_rows(&run) && other.exists());
    }

    #[test]
    fn a_run_that_cannot_be_merged_is_told_and_stays() {
        let place = tempfile::tempdir().unwrap();
        let run = add_run(place.path(), 0, &golden());
        fs::write(run.join("requests/a.parquet"), "no segment").unwrap();
        let later = WallNs(START_NS + 1_000 * HOUR_NS);
        let told = tidy(place.path(), later, &options(DAY, u64::MAX), &GOES_ON);
        assert!(
            told[0].contains(": the rows cannot be merged: "),
            "{told:?}"
        );
        assert!(has_rows(&run));
    }

    #[test]
    fn a_stopped_agent_neither_merges_nor_removes_another_run() {
        let place = tempfile::tempdir().unwrap();
        let runs = [0, 1].map(|hour| add_run(place.path(), hour, &golden()));
        let later = WallNs(START_NS + 1_000 * HOUR_NS);
        let stopped = AtomicBool::new(true);
        assert_eq!(
            tidy(place.path(), later, &options(DAY, 0), &stopped),
            [""; 0]
        );
        assert!(runs.iter().all(|run| has_rows(run)));
    }
}
