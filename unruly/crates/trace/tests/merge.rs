//! Rows that are merged into histograms, on real files.

#![expect(clippy::unwrap_used, reason = "a test ends where a helper fails")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::RowAccessor as _;
use unruly_trace::{
    Clock, ClockPair, ColumnNs, Counts, DurationNs, Manifest, Record, Recorder, RecorderOptions,
    RunLock, RunStatus, SpoolHeader, Status, TraceError, bin, is_unfinished, merge_rows,
};

const MS: i64 = 1_000_000;
const LATER: ColumnNs = ColumnNs(99);

fn header() -> SpoolHeader {
    let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect();
    SpoolHeader {
        schema: 1,
        run: "run".to_owned(),
        host: "local".to_owned(),
        process: "drive-0".to_owned(),
        tag: "test".to_owned(),
        cells: words(&["all"]),
        ops: words(&["read", "write"]),
        phases: words(&["warmup", "measure", "load", "wind_down"]),
        tally: None,
    }
}

/// A request that was answered after some time.
fn answered(request: u64, at: i64, response: i64) -> Record {
    Record {
        request,
        phase: 1,
        intended_ns: ColumnNs(at),
        sent_ns: ColumnNs(at),
        received_ns: ColumnNs(at + response),
        status: Status::Ok,
        answered: true,
        ..Record::empty()
    }
}

/// A whole run with these rows, in segments of 100.
fn run(records: &[Record], status: RunStatus) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::start(RecorderOptions {
        directory: directory.path().to_owned(),
        stem: "drive-0-c0r0".to_owned(),
        header: header(),
        clock: Clock::new(ClockPair::now()),
        spool_rows_max: 100,
    })
    .unwrap();
    for record in records {
        recorder.scheduled(record.intended_ns);
        recorder.record(record);
    }
    recorder.finish("drive-0").unwrap();
    let golden = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../schema/golden/manifest.json"
    );
    let mut manifest: Manifest =
        serde_json::from_str(&fs::read_to_string(golden).unwrap()).unwrap();
    manifest.status = status;
    manifest.counts = Counts::default();
    manifest.counts.copies.recorded = records.len() as u64;
    manifest.write(directory.path()).unwrap();
    directory
}

/// Operation, edges and count of each bin, over all stretches of time.
fn histogram(directory: &Path) -> BTreeMap<(String, u64, u64), f64> {
    let file = fs::File::open(directory.join("histograms/merged.parquet")).unwrap();
    let reader = SerializedFileReader::new(file).unwrap();
    let mut bins = BTreeMap::new();
    for row in reader.get_row_iter(None).unwrap() {
        let row = row.unwrap();
        let edges = [7, 8].map(|column| row.get_double(column).unwrap().to_bits());
        let key = (row.get_string(4).unwrap().clone(), edges[0], edges[1]);
        *bins.entry(key).or_default() += row.get_double(9).unwrap();
    }
    bins
}

#[test]
fn each_measured_request_is_in_the_bin_of_its_response_time() {
    let mut records: Vec<Record> = (0..1_000)
        .map(|it| {
            let at = i64::try_from(it).unwrap() * MS;
            answered(it, at, (1 + at / MS % 7) * MS)
        })
        .collect();
    records[3].op = 1;
    records[4].status = Status::Refused;
    // Neither is measured.
    records[0].phase = 0;
    records[999].phase = 3;
    let directory = run(&records, RunStatus::Complete);
    assert!(merge_rows(directory.path(), LATER).unwrap());
    let found = histogram(directory.path());
    let mut wanted: BTreeMap<(&str, Option<u32>), f64> = BTreeMap::new();
    for (record, number) in records.iter().zip(0_i64..) {
        let op = if record.op == 1 { "write" } else { "read" };
        let response = DurationNs((1 + number % 7) * MS);
        let place = (record.status == Status::Ok).then(|| bin(response));
        if record.phase == 1 {
            *wanted.entry((op, place)).or_default() += 1.0;
        }
    }
    assert_eq!(found.len(), wanted.len());
    for ((op, place), count) in wanted {
        let of_op = found.iter().filter(|(key, _)| key.0 == op);
        let inside = of_op.filter(|(key, _)| {
            let (low, high) = (f64::from_bits(key.1), f64::from_bits(key.2));
            #[expect(clippy::cast_possible_truncation, reason = "an edge of a bin")]
            match place {
                None => low.is_infinite() && high.is_infinite(),
                Some(place) => bin(DurationNs(low.midpoint(high) as i64)) == place,
            }
        });
        let counts: Vec<f64> = inside.map(|it| *it.1).collect();
        assert_eq!(counts, [count], "{op} {place:?}");
    }
    let manifest = Manifest::read(directory.path()).unwrap();
    let merged = manifest.merged.unwrap();
    assert_eq!((merged.at_ns, merged.requests), (LATER, 998));
    let read = merged.figures.iter().find(|it| it.op == "read").unwrap();
    assert_eq!((read.n, read.failed), (997, 1));
    assert_eq!(
        (read.min_ns, read.max_ns),
        (Some(DurationNs(MS)), Some(DurationNs(7 * MS)))
    );
    let (mut sum, mut n) = (0.0, 0.0);
    for number in (1..999_u32).filter(|it| ![3, 4].contains(it)) {
        sum += f64::from(1 + number % 7) * 1e6;
        n += 1.0;
    }
    assert!((read.mean_ns.unwrap() - sum / n).abs() < 1e-3);
    assert!(!directory.path().join("requests").exists());
    assert!(
        !merge_rows(directory.path(), LATER).unwrap(),
        "nothing is left to merge"
    );
}

#[test]
fn a_request_that_was_tried_again_counts_once_and_from_its_first_try() {
    let retried = |attempt, at, response, status| Record {
        attempt,
        status,
        answered: status == Status::Ok,
        ..answered(7, at, response)
    };
    let records = [
        retried(0, 0, 5 * MS, Status::Refused),
        retried(1, 10 * MS, 2 * MS, Status::Ok),
        answered(8, MS, 3 * MS),
    ];
    let directory = run(&records, RunStatus::Complete);
    merge_rows(directory.path(), LATER).unwrap();
    let merged = Manifest::read(directory.path()).unwrap().merged.unwrap();
    let (n, most) = (merged.figures[0].n, merged.figures[0].max_ns);
    assert_eq!(
        (n, most, merged.figures[0].failed),
        (2, Some(DurationNs(12 * MS)), 0)
    );
}

#[test]
fn how_late_the_generator_sent_and_read_stays_known() {
    let mut records: Vec<Record> = (0..1_000)
        .map(|it| answered(it, i64::try_from(it).unwrap() * MS, 2 * MS))
        .collect();
    // Sent late, and that was most of it; sent late beside a slower server; read late; not sent yet.
    records[1].sent_ns = records[1].intended_ns + DurationNs(90 * MS);
    records[1].received_ns = records[1].intended_ns + DurationNs(100 * MS);
    records[2].sent_ns = records[2].intended_ns + DurationNs(20 * MS);
    records[2].received_ns = records[2].intended_ns + DurationNs(100 * MS);
    records[3].received_ns = records[3].intended_ns + DurationNs(50 * MS);
    records[3].kernel_received_ns = records[3].intended_ns + DurationNs(10 * MS);
    records[4].sent_ns = records[4].intended_ns + DurationNs(500 * MS);
    records[4].waited = true;
    let directory = run(&records, RunStatus::Complete);
    merge_rows(directory.path(), LATER).unwrap();
    let delays = Manifest::read(directory.path())
        .unwrap()
        .merged
        .unwrap()
        .delays;
    assert_eq!((delays.late, delays.send_max_ns), (1, DurationNs(90 * MS)));
    assert_eq!(
        (delays.unread, delays.unread_max_ns),
        (1, DurationNs(40 * MS))
    );
    // Three of a thousand are beyond the bin of the p99, and the delay of one explains it.
    assert_eq!((delays.tail, delays.tail_late), (3, 1));
    assert_eq!(delays.send_ns[..3], [DurationNs(1); 3]);
}

#[test]
fn a_merger_that_was_cut_off_is_carried_on_from_each_of_its_steps() {
    let records: Vec<Record> = (0..10).map(|it| answered(it, 0, MS)).collect();
    let whole = run(&records, RunStatus::Complete);
    merge_rows(whole.path(), LATER).unwrap();
    let wanted = histogram(whole.path());
    let merged = Manifest::read(whole.path()).unwrap().merged;
    let begin = || {
        let directory = run(&records, RunStatus::Complete);
        fs::create_dir(directory.path().join("merging")).unwrap();
        directory
    };
    let path = |directory: &tempfile::TempDir, name: &str| directory.path().join(name);
    let half = path(&whole, "histograms/merged.parquet");
    // The histograms were being written.
    let first = begin();
    fs::write(path(&first, "merging/merged.parquet"), "half").unwrap();
    // The manifest was written, and the rows are still there.
    let second = begin();
    fs::copy(&half, path(&second, "merging/merged.parquet")).unwrap();
    let mut manifest = Manifest::read(second.path()).unwrap();
    manifest.merged.clone_from(&merged);
    manifest.write(second.path()).unwrap();
    // The rows were out of the way, and nothing was removed.
    let third = begin();
    fs::copy(&half, path(&third, "merging/merged.parquet")).unwrap();
    manifest.write(third.path()).unwrap();
    fs::rename(path(&third, "requests"), path(&third, "merged-rows")).unwrap();
    fs::create_dir(path(&third, "events")).unwrap();
    for directory in [&first, &second, &third] {
        assert!(is_unfinished(directory.path()));
        assert!(merge_rows(directory.path(), LATER).unwrap());
        assert_eq!(histogram(directory.path()), wanted);
        assert_eq!(Manifest::read(directory.path()).unwrap().merged, merged);
        assert!(!is_unfinished(directory.path()));
        for name in ["requests", "events"] {
            assert!(!path(directory, name).exists(), "{name}");
        }
        assert!(!merge_rows(directory.path(), LATER).unwrap());
    }
}

#[test]
fn rows_stay_while_the_run_goes_on_is_damaged_or_does_not_add_up() {
    let records = [answered(0, 0, MS)];
    let refused = |directory: &Path| merge_rows(directory, LATER).unwrap_err();
    let is_running = |it: &TraceError| matches!(it, TraceError::Running { .. });
    let directory = run(&records, RunStatus::Running);
    assert!(is_running(&refused(directory.path())));
    let directory = run(&records, RunStatus::Complete);
    let lock = RunLock::take(directory.path()).unwrap();
    assert!(is_running(&refused(directory.path())));
    drop(lock);
    let rows = directory.path().join("requests");
    fs::write(rows.join("drive-1-c0r0-00000.spool"), "rows").unwrap();
    let said = refused(directory.path()).to_string();
    assert!(
        said.contains("it may hold rows that are in no segment"),
        "{said}"
    );
    fs::remove_file(rows.join("drive-1-c0r0-00000.spool")).unwrap();
    let segment = fs::read_dir(&rows).unwrap().next().unwrap().unwrap().path();
    let bytes = fs::read(&segment).unwrap();
    let mut damaged = bytes.clone();
    damaged[200] ^= 1;
    fs::write(&segment, damaged).unwrap();
    let said = refused(directory.path()).to_string();
    assert!(said.contains("its checksum is wrong"), "{said}");
    fs::write(&segment, bytes).unwrap();
    let mut manifest = Manifest::read(directory.path()).unwrap();
    manifest.counts.copies.recorded = 2;
    manifest.write(directory.path()).unwrap();
    let said = refused(directory.path()).to_string();
    assert!(
        said.contains("1 rows are there, and the manifest counts 2"),
        "{said}"
    );
    assert!(rows.exists());
    assert_eq!(Manifest::read(directory.path()).unwrap().merged, None);
    assert!(!directory.path().join("histograms").exists());
}
