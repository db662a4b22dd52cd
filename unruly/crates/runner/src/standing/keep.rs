//! What stays of the runs of a standing agent: rows for some time, then histograms, within a bound.

use std::fs;
use std::path::{Path, PathBuf};

use unruly_trace::{ColumnNs, Manifest, RunStatus, Table, WallNs, merge_rows};

use super::StandingOptions;

/// The folder of the runs, in the agent's directory.
pub(crate) const RUNS: &str = "runs";

/// Returns the directories of the runs, the earliest first.
pub(super) fn runs(place: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(place.join(RUNS)).into_iter().flatten();
    let folders = entries.flatten().map(|it| it.path());
    let mut runs: Vec<PathBuf> = folders
        .filter(|it| it.join(Manifest::FILE).is_file())
        .collect();
    // Their names are times.
    runs.sort();
    runs
}

/// Merges the rows of old runs, and then of the earliest ones until all fit into the room. When no run
/// has rows any more the earliest one goes. Returns a sentence about each that could not be made
/// smaller, and about each that went.
pub(super) fn tidy(place: &Path, now: WallNs, options: &StandingOptions) -> Vec<String> {
    let mut told = Vec::new();
    let mut runs = runs(place);
    // Each looks at the sizes of many files: once for all.
    let mut sizes: Vec<u64> = runs.iter().map(|it| size_bytes(it)).collect();
    let keep_ns = i64::try_from(options.keep.as_nanos()).unwrap_or(i64::MAX);
    let oldest = ColumnNs(now.0.saturating_sub(keep_ns));
    for (run, size) in runs.iter().zip(&mut sizes) {
        if has_rows(run) && ended(run).is_some_and(|ended| ended < oldest) {
            merge(run, now, size, &mut told);
        }
    }
    let mut place_of_next = 0;
    while sizes.iter().sum::<u64>() > options.room_bytes && place_of_next < runs.len() {
        let (run, size) = (&runs[place_of_next], &mut sizes[place_of_next]);
        if has_rows(run) && ended(run).is_some() {
            merge(run, now, size, &mut told);
        }
        place_of_next += 1;
    }
    while sizes.iter().sum::<u64>() > options.room_bytes && !runs.is_empty() {
        let (run, _) = (runs.remove(0), sizes.remove(0));
        match fs::remove_dir_all(&run) {
            Ok(()) => told.push(format!(
                "{} was removed: there is no room for more runs (--room)",
                run.display()
            )),
            Err(error) => told.push(format!("{}: cannot be removed: {error}", run.display())),
        }
    }
    told
}

fn merge(run: &Path, now: WallNs, size: &mut u64, told: &mut Vec<String>) {
    if let Err(error) = merge_rows(run, ColumnNs(now.0)) {
        told.push(format!("its rows stay: {error}"));
    }
    *size = size_bytes(run);
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

/// The bytes of all files below a folder.
pub(crate) fn size_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(it) if it.is_dir() => size_bytes(&entry.path()),
            Ok(it) => it.len(),
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
            removed += tidy(place.path(), now, &options).len();
            assert!(size_bytes(&place.path().join(RUNS)) <= room, "hour {hour}");
            let runs = runs(place.path());
            let with_rows = runs.iter().filter(|it| has_rows(it)).count();
            assert!(with_rows <= 25, "hour {hour}: {with_rows} runs have rows");
            // The latest is never the one that goes.
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
        assert_eq!(tidy(place.path(), later, &options(DAY, u64::MAX)), [""; 0]);
        assert!(has_rows(&run) && other.exists());
    }

    #[test]
    fn a_run_that_cannot_be_merged_is_told_and_stays() {
        let place = tempfile::tempdir().unwrap();
        let run = add_run(place.path(), 0, &golden());
        fs::write(run.join("requests/a.parquet"), "no segment").unwrap();
        let later = WallNs(START_NS + 1_000 * HOUR_NS);
        let told = tidy(place.path(), later, &options(DAY, u64::MAX));
        assert!(told[0].starts_with("its rows stay: "), "{told:?}");
        assert!(has_rows(&run));
    }
}
