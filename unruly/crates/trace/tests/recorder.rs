//! The recorder and its recovery, on real files.

#![expect(clippy::unwrap_used, reason = "a test ends where a helper fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use serde_json::json;
use unruly_trace::{
    Cell, Clock, ClockPair, ColumnNs, Copies, Counts, DurationNs, Host, Level, Manifest, MonoNs,
    Part, Process, Record, Recorder, RecorderOptions, RunLock, RunStatus, SpoolHeader, Status,
    Tool, TraceError, TrialRecord, WallNs, WriterLock, damaged, recover, remove_others,
};

fn header() -> SpoolHeader {
    let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect();
    SpoolHeader {
        schema: 1,
        run: "run".to_owned(),
        host: "local".to_owned(),
        process: "agent-0".to_owned(),
        tag: "test".to_owned(),
        cells: words(&["all"]),
        ops: words(&["null"]),
        phases: words(&["warmup", "measure"]),
        tally: None,
    }
}

fn recorder(directory: &Path, spool_rows_max: u64) -> Recorder {
    Recorder::start(RecorderOptions {
        directory: directory.to_owned(),
        stem: "agent-0-c0r0".to_owned(),
        header: header(),
        clock: Clock::new(ClockPair::now()),
        spool_rows_max,
    })
    .unwrap()
}

fn ok(request: u64) -> Record {
    let intended_ns = ColumnNs(i64::try_from(request).unwrap() * 1_000);
    Record {
        intended_ns,
        sent_ns: intended_ns + DurationNs(10),
        received_ns: intended_ns + DurationNs(500),
        request,
        phase: 1,
        status: Status::Ok,
        answered: true,
        ..Record::empty()
    }
}

/// Request number and status of every row of every segment, in order.
fn rows(directory: &Path) -> Vec<(i64, String)> {
    let mut found = Vec::new();
    for path in files(directory, "parquet") {
        let reader = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
        for row in reader.get_row_iter(None).unwrap() {
            let row = row.unwrap();
            let request = row.get_ulong(8).unwrap().cast_signed();
            found.push((request, row.get_string(22).unwrap().clone()));
        }
    }
    found.sort();
    found
}

fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory.join("requests")) else {
        return Vec::new();
    };
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect()
}

fn part() -> Part {
    Part {
        started_ns: ColumnNs(0),
        ended_ns: None,
        status: RunStatus::Running,
        tool: Tool {
            version: "0".to_owned(),
            commit: "unknown".to_owned(),
        },
        boot: None,
        clock: ClockPair {
            mono_ns: MonoNs(0),
            wall_ns: WallNs(0),
        },
        machine: None,
        host: Host::unknown("local"),
        services: BTreeMap::new(),
        changed: Vec::new(),
        discarded: Vec::new(),
    }
}

fn manifest(status: RunStatus) -> Manifest {
    Manifest {
        schema: 1,
        run: "run".to_owned(),
        name: "test".to_owned(),
        tag: "test".to_owned(),
        tool: Tool {
            version: "0".to_owned(),
            commit: "unknown".to_owned(),
        },
        command: None,
        target: None,
        plan_sha256: String::new(),
        seed: 1,
        status,
        started_ns: ColumnNs(0),
        ended_ns: None,
        planned_ns: DurationNs(0),
        missing: Vec::new(),
        broken: Vec::new(),
        hosts: Vec::new(),
        cells: vec![Cell {
            name: "all".to_owned(),
            factors: BTreeMap::new(),
        }],
        left_out: Vec::new(),
        parts: vec![part()],
        trials: vec![TrialRecord {
            cell: "all".to_owned(),
            repeat: 0,
            part: 0,
            started_ns: ColumnNs(0),
            ended_ns: None,
            status: RunStatus::Running,
            missing: Vec::new(),
            broken: Vec::new(),
        }],
        processes: vec![Process {
            name: "agent-0".to_owned(),
            kind: "mesh".to_owned(),
            id: Some(0),
            cell: "all".to_owned(),
            repeat: 0,
            host: "local".to_owned(),
            pid: None,
            runtime: "native".to_owned(),
            tier: None,
            exit: None,
            counts: None,
        }],
        counts: Counts::default(),
        merged: None,
    }
}

/// A run whose process died: its spool as it was at that moment, cut `torn` bytes short.
fn died(directory: &Path, records: &[Record], torn: u64) {
    fs::create_dir_all(directory.join("requests")).unwrap();
    let mut bytes = Vec::new();
    header().write(&mut bytes).unwrap();
    for record in records {
        record.encode(&mut bytes);
    }
    bytes.truncate(bytes.len() - usize::try_from(torn).unwrap());
    fs::write(directory.join("requests/agent-0-c0r0-00000.spool"), bytes).unwrap();
    manifest(RunStatus::Running).write(directory).unwrap();
}

#[test]
fn what_is_recorded_is_in_the_segments_and_no_spool_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let mut recorder = recorder(directory.path(), 1_000_000);
    for request in 0..10_000 {
        recorder.scheduled(ColumnNs(0));
        recorder.record(&ok(request));
    }
    let (tally, report) = recorder.finish("agent-0").unwrap();
    assert_eq!((tally.copies.recorded, tally.copies.dropped), (10_000, 0));
    assert_eq!((report.rows, report.failure), (10_000, None));
    let expected: Vec<_> = (0..10_000)
        .map(|request| (request, "ok".to_owned()))
        .collect();
    assert_eq!(rows(directory.path()), expected);
    assert!(files(directory.path(), "spool").is_empty());
}

#[test]
fn a_full_spool_becomes_a_segment_and_an_open_copy_moves_to_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let mut recorder = recorder(directory.path(), 100);
    recorder.scheduled(ColumnNs(0));
    let open = Record {
        status: Status::Unfinished,
        answered: false,
        ..ok(5_000)
    };
    assert!(recorder.note_open(&open));
    for request in 0..5_000 {
        recorder.scheduled(ColumnNs(0));
        recorder.record(&ok(request));
        if request % 500 == 0 {
            // Lets the drain thread see more than one full spool; the outcome is the same without.
            std::thread::yield_now();
        }
    }
    recorder.record(&Record {
        supersedes: true,
        ..ok(5_000)
    });
    recorder.finish("agent-0").unwrap();
    let expected: Vec<_> = (0..=5_000)
        .map(|request| (request, "ok".to_owned()))
        .collect();
    assert_eq!(rows(directory.path()), expected);
}

#[test]
fn what_a_broken_disk_cannot_take_is_dropped_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let requests = directory.path().join("requests");
    fs::create_dir_all(&requests).unwrap();
    // The next spool cannot be made: its name is taken.
    fs::write(requests.join("agent-0-c0r0-00001.spool"), b"").unwrap();
    let mut recorder = recorder(directory.path(), 100);
    for request in 0..100 {
        recorder.scheduled(ColumnNs(0));
        recorder.record(&ok(request));
    }
    let until = Instant::now() + Duration::from_secs(60);
    while recorder.failure().is_none() {
        assert!(Instant::now() < until, "the drain thread said nothing");
        std::thread::yield_now();
    }
    for request in 100..110 {
        recorder.scheduled(ColumnNs(0));
        recorder.record(&ok(request));
    }
    let (tally, report) = recorder.finish("agent-0").unwrap();
    assert_eq!((tally.copies.recorded, tally.copies.dropped), (100, 10));
    assert_eq!(report.rows, 100);
    assert_eq!(rows(directory.path()).len(), 100);
    let failure = report.failure.unwrap();
    assert!(failure.contains("creating the spool"), "{failure}");
}

#[test]
fn every_column_of_a_row_holds_the_field_of_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let record = Record {
        intended_ns: ColumnNs(101),
        sent_ns: ColumnNs(102),
        received_ns: ColumnNs(103),
        kernel_received_ns: ColumnNs(104),
        server_kernel_received_ns: ColumnNs(105),
        server_received_ns: ColumnNs(106),
        server_sent_ns: ColumnNs(107),
        request: 108,
        key: Some(109),
        connection: 110,
        sent_bytes: 111,
        received_bytes: 112,
        cell: 0,
        repeat: 113,
        client: 114,
        server: 115,
        op: 0,
        phase: 1,
        attempt: 116,
        level: Some(Level::Quorum),
        status: Status::Timeout,
        answered: true,
        code: Some(117),
        waited: true,
        ..Record::empty()
    };
    died(directory.path(), &[record], 0);
    recover(directory.path()).unwrap();
    let segment = fs::File::open(&files(directory.path(), "parquet")[0]).unwrap();
    let reader = SerializedFileReader::new(segment).unwrap();
    let row = reader.get_row_iter(None).unwrap().next().unwrap().unwrap();
    let expected = json!({
        "cell": "all",
        "repeat": 113,
        "phase": "measure",
        "host": "local",
        "process": "agent-0",
        "op": "null",
        "client": 114,
        "server": 115,
        "request": 108,
        "attempt": 116,
        "connection": 110,
        "key": 109,
        "intended_ns": 101,
        "sent_ns": 102,
        "received_ns": 103,
        "kernel_received_ns": 104,
        "server_kernel_received_ns": 105,
        "server_received_ns": 106,
        "server_sent_ns": 107,
        "sent_bytes": 111,
        "received_bytes": 112,
        "level": "quorum",
        "status": "timeout",
        "answered": true,
        "code": 117,
        "waited": true,
    });
    assert_eq!(row.to_json_value(), expected);
}

#[test]
fn a_copy_that_ends_twice_or_never_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let mut recorder = recorder(directory.path(), 1_000);
    recorder.scheduled(ColumnNs(0));
    recorder.scheduled(ColumnNs(0));
    recorder.record(&ok(1));
    let error = recorder.finish("agent-0").unwrap_err();
    assert!(matches!(error, TraceError::Conservation { .. }));
    assert!(
        error
            .to_string()
            .starts_with("agent-0: 2 copies were scheduled but 1 ended")
    );
}

#[test]
fn a_dead_process_s_rows_are_recovered_and_its_open_copies_are_unfinished() {
    let directory = tempfile::tempdir().unwrap();
    let note = |request| Record {
        provisional: true,
        status: Status::Unfinished,
        ..ok(request)
    };
    let late = Record {
        supersedes: true,
        ..ok(3)
    };
    died(directory.path(), &[ok(1), note(2), note(3), late], 0);
    let recovery = recover(directory.path()).unwrap();
    assert_eq!((recovery.spools, recovery.rows), (1, 3));
    let expected =
        [(1, "ok"), (2, "unfinished"), (3, "ok")].map(|(at, word)| (at, word.to_owned()));
    assert_eq!(rows(directory.path()), expected);
    let manifest = Manifest::read(directory.path()).unwrap();
    assert_eq!(manifest.status, RunStatus::CutOff);
    assert_eq!(manifest.counts.copies.recorded, 3);
    assert_eq!(manifest.counts.copies.unfinished, 1);
    assert!(
        manifest
            .missing
            .iter()
            .any(|sentence| sentence.contains("agent-0 did not end"))
    );
}

/// Writes a page of memory as a killed process leaves it, after it has begun `begun` copies.
fn left_page(begun: u64, last_ns: ColumnNs) -> (String, PathBuf) {
    let unique = ClockPair::now().wall_ns.0;
    let name = format!("unruly-tally-{unique:016x}{:016x}", std::process::id());
    let path = Path::new("/dev/shm").join(&name);
    let numbers = [begun.to_ne_bytes(), last_ns.0.to_ne_bytes()].concat();
    fs::write(&path, [b"UNRULYT1".to_vec(), numbers].concat()).unwrap();
    (name, path)
}

#[test]
fn what_a_killed_process_had_begun_and_has_no_row_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir_all(directory.path().join("requests")).unwrap();
    let (name, page) = left_page(1_005, ColumnNs(2_500_000_000));
    let header = SpoolHeader {
        tally: Some(name),
        ..header()
    };
    // Two spools of one recorder name one page.
    for (number, requests) in [(0, 0..3), (1, 3..5)] {
        let path = format!("requests/agent-0-c0r0-{number:05}.spool");
        let mut bytes = Vec::new();
        header.write(&mut bytes).unwrap();
        requests.for_each(|request| ok(request).encode(&mut bytes));
        fs::write(directory.path().join(path), bytes).unwrap();
    }
    manifest(RunStatus::Running)
        .write(directory.path())
        .unwrap();
    let recovery = recover(directory.path()).unwrap();
    let [loss] = &recovery.losses[..] else {
        panic!("{:?}", recovery.losses)
    };
    assert_eq!((loss.begun, loss.rows), (1_005, 5));
    let told = "agent-0 did not end properly: of 1,005 requests that it had begun, 1,000 have no \
                row; the last was scheduled 2.5000 s after the start";
    let manifest = Manifest::read(directory.path()).unwrap();
    let missing = &manifest.missing;
    assert!(missing.iter().any(|it| it == told), "{missing:?}");
    assert_eq!(manifest.trials[0].missing, [told]);
    assert_eq!(manifest.parts[0].status, RunStatus::CutOff);
    assert!(!page.exists());
}

#[test]
fn a_trial_whose_segment_is_damaged_or_not_there_is_named() {
    let directory = tempfile::tempdir().unwrap();
    died(directory.path(), &[ok(1), ok(2)], 0);
    recover(directory.path()).unwrap();
    let manifest = Manifest::read(directory.path()).unwrap();
    assert_eq!(damaged(&manifest, directory.path()), BTreeMap::new());
    let segment = directory.path().join("requests/agent-0-c0r0-00000.parquet");
    let mut bytes = fs::read(&segment).unwrap();
    bytes[9] ^= 0xff;
    fs::write(&segment, bytes).unwrap();
    let told = "agent-0-c0r0-00000.parquet is damaged".to_owned();
    let found = damaged(&manifest, directory.path());
    assert_eq!(found, BTreeMap::from([((0, 0), told)]));
    fs::remove_file(&segment).unwrap();
    let told = "agent-0 has 0 of its 2 rows".to_owned();
    let found = damaged(&manifest, directory.path());
    assert_eq!(found, BTreeMap::from([((0, 0), told)]));
}

#[test]
fn removing_a_trial_removes_the_memory_that_outlived_its_process() {
    let directory = tempfile::tempdir().unwrap();
    let (name, page) = left_page(10, ColumnNs(1_000_000_000));
    let header = SpoolHeader {
        tally: Some(name),
        ..header()
    };
    fs::create_dir_all(directory.path().join("requests")).unwrap();
    let mut bytes = Vec::new();
    header.write(&mut bytes).unwrap();
    let spool = directory.path().join("requests/agent-0-c0r0-00000.spool");
    fs::write(&spool, bytes).unwrap();
    assert_eq!(
        remove_others(directory.path(), &BTreeSet::new()).unwrap(),
        1
    );
    assert!(!spool.exists() && !page.exists());
}

#[test]
fn a_recovery_that_fails_half_way_forgets_nothing() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir_all(directory.path().join("requests")).unwrap();
    let (name, page) = left_page(10, ColumnNs(1_000_000_000));
    let header = SpoolHeader {
        tally: Some(name),
        ..header()
    };
    let spool = directory.path().join("requests/agent-0-c0r0-00000.spool");
    let mut bytes = Vec::new();
    header.write(&mut bytes).unwrap();
    (1..=3).for_each(|request| ok(request).encode(&mut bytes));
    let damaged = bytes.len() - 20;
    bytes[damaged] ^= 0xff;
    fs::write(&spool, &bytes).unwrap();
    // The spool of another table cannot be sealed: its segment cannot be made.
    let events = directory.path().join("events");
    fs::create_dir_all(events.join("runner-00000.parquet.tmp/in/the/way")).unwrap();
    fs::write(
        events.join("runner-00000.spool"),
        "{\"schema\":1,\"run\":\"run\",\"host\":\"local\",\"process\":\"runner\",\"tag\":\"\"}\n{}\n",
    )
    .unwrap();
    manifest(RunStatus::Running)
        .write(directory.path())
        .unwrap();
    assert!(recover(directory.path()).is_err());
    assert!(page.exists(), "the next recovery must know it too");
    fs::remove_dir_all(&events).unwrap();
    recover(directory.path()).unwrap();
    assert!(!page.exists());
    let missing = Manifest::read(directory.path()).unwrap().missing;
    let named = |text: &str| missing.iter().any(|it| it.contains(text));
    assert!(named("agent-0-c0r0-00000.unread"), "{missing:?}");
    assert_eq!(recover(directory.path()).unwrap().spools, 0);
}

#[test]
fn a_file_of_the_name_of_a_segment_costs_no_spool() {
    let directory = tempfile::tempdir().unwrap();
    died(directory.path(), &[ok(1), ok(2)], 0);
    let segment = directory.path().join("requests/agent-0-c0r0-00000.parquet");
    fs::write(&segment, b"").unwrap();
    assert_eq!(recover(directory.path()).unwrap().rows, 2);
    assert_eq!(rows(directory.path()).len(), 2);
}

#[test]
fn links_and_pipes_of_a_run_are_neither_followed_nor_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let mine = ["mine.tmp", "mine.spool"].map(|name| elsewhere.path().join(name));
    mine.iter().for_each(|path| fs::write(path, b"").unwrap());
    let victim = elsewhere.path().join("victim");
    fs::write(&victim, b"kept").unwrap();
    died(directory.path(), &[ok(1)], 0);
    std::os::unix::fs::symlink(elsewhere.path(), directory.path().join("events")).unwrap();
    let temporary = directory.path().join("manifest.json.tmp");
    std::os::unix::fs::symlink(&victim, &temporary).unwrap();
    let pipe = directory.path().join("requests/agent-9-c0r0-00000.spool");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(recover(directory.path()).unwrap().rows, 1);
    assert!(mine.iter().all(|path| path.exists()));
    assert_eq!(fs::read(&victim).unwrap(), b"kept");
    let manifest = directory.path().join("manifest.json");
    assert!(fs::symlink_metadata(manifest).unwrap().is_file());
}

#[test]
fn numbers_beyond_all_bounds_are_no_reason_to_stop() {
    let directory = tempfile::tempdir().unwrap();
    let far = Record {
        intended_ns: ColumnNs(i64::MAX - 1),
        received_ns: ColumnNs(i64::MAX - 1),
        ..ok(1)
    };
    died(directory.path(), &[far], 0);
    let mut told = manifest(RunStatus::Running);
    told.started_ns = ColumnNs(-5_000_000_000);
    let huge = Copies {
        scheduled: u64::MAX,
        ok: u64::MAX,
        recorded: u64::MAX,
        ..Copies::default()
    };
    let mut other = told.processes[0].clone();
    told.processes[0].counts = Some(Counts {
        copies: huge,
        ..Counts::default()
    });
    other.counts.clone_from(&told.processes[0].counts);
    told.processes.push(other);
    told.write(directory.path()).unwrap();
    recover(directory.path()).unwrap();
}

#[test]
fn a_damaged_spool_whose_segment_is_complete_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    died(directory.path(), &[ok(1), ok(2)], 0);
    let spool = directory.path().join("requests/agent-0-c0r0-00000.spool");
    let mut bytes = fs::read(&spool).unwrap();
    let damaged = bytes.len() - 20;
    bytes[damaged] ^= 0xff;
    recover(directory.path()).unwrap();
    // The process died between the two.
    fs::write(&spool, &bytes).unwrap();
    recover(directory.path()).unwrap();
    assert_eq!(fs::read(spool.with_extension("unread")).unwrap(), bytes);
    assert!(!spool.exists());
}

#[test]
fn a_torn_record_costs_itself_and_nothing_before_it() {
    for torn in [1, 50, 103] {
        let directory = tempfile::tempdir().unwrap();
        died(directory.path(), &[ok(1), ok(2), ok(3)], torn);
        recover(directory.path()).unwrap();
        assert_eq!(rows(directory.path()).len(), 2);
    }
}

#[test]
fn a_damaged_record_costs_itself_and_its_spool_is_kept() {
    for damaged in 0..3 {
        let directory = tempfile::tempdir().unwrap();
        died(directory.path(), &[ok(1), ok(2), ok(3)], 0);
        let path = directory.path().join("requests/agent-0-c0r0-00000.spool");
        let mut bytes = fs::read(&path).unwrap();
        let place = bytes.len() - Record::BYTES * (3 - damaged) + 20;
        bytes[place] ^= 0xff;
        fs::write(&path, &bytes).unwrap();
        let recovery = recover(directory.path()).unwrap();
        assert_eq!((recovery.rows, recovery.problems.len()), (2, 1));
        let kept = path.with_extension("unread");
        assert_eq!(fs::read(&kept).unwrap(), bytes);
        assert!(!path.exists());
        let missing = Manifest::read(directory.path()).unwrap().missing;
        assert!(
            missing
                .iter()
                .any(|sentence| sentence.contains("1 records cannot be read")
                    && sentence.contains("agent-0-c0r0-00000.unread")),
            "{missing:?}"
        );
        assert_eq!(recover(directory.path()).unwrap().spools, 0);
    }
}

#[test]
fn a_spool_of_another_checksum_is_named_and_left_where_it_is() {
    let directory = tempfile::tempdir().unwrap();
    died(directory.path(), &[ok(1), ok(2)], 0);
    let path = directory.path().join("requests/agent-0-c0r0-00000.spool");
    let mut bytes = fs::read(&path).unwrap();
    bytes[..8].copy_from_slice(b"UNRULYSP");
    fs::write(&path, &bytes).unwrap();
    for _ in 0..2 {
        let recovery = recover(directory.path()).unwrap();
        assert!(
            recovery.problems[0].contains("version 1"),
            "{:?}",
            recovery.problems
        );
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
    let missing = Manifest::read(directory.path()).unwrap().missing;
    assert_eq!(
        missing.iter().filter(|it| it.contains("version 1")).count(),
        1
    );
}

#[test]
fn recovery_of_a_whole_run_changes_nothing_and_twice_is_once() {
    let directory = tempfile::tempdir().unwrap();
    died(directory.path(), &[ok(1)], 0);
    recover(directory.path()).unwrap();
    let before = fs::read(directory.path().join("manifest.json")).unwrap();
    assert_eq!(recover(directory.path()).unwrap().spools, 0);
    assert_eq!(
        fs::read(directory.path().join("manifest.json")).unwrap(),
        before
    );
}

#[test]
fn a_half_written_segment_is_removed_and_made_again_from_its_spool() {
    let directory = tempfile::tempdir().unwrap();
    died(directory.path(), &[ok(1), ok(2)], 0);
    let half = directory
        .path()
        .join("requests/agent-0-c0r0-00000.parquet.tmp");
    fs::write(&half, b"PAR1 and then the power went").unwrap();
    recover(directory.path()).unwrap();
    assert!(!half.exists());
    assert_eq!(rows(directory.path()).len(), 2);
}

#[test]
fn a_run_that_is_going_on_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    died(directory.path(), &[ok(1)], 0);
    let lock = RunLock::take(directory.path()).unwrap();
    assert!(matches!(
        recover(directory.path()),
        Err(TraceError::Running { .. })
    ));
    drop(lock);
    assert_eq!(recover(directory.path()).unwrap().rows, 1);
}

#[test]
fn recovery_waits_for_who_still_writes() {
    let directory = tempfile::tempdir().unwrap();
    died(directory.path(), &[ok(1)], 0);
    let writer = WriterLock::share(directory.path()).unwrap();
    let path = directory.path().to_owned();
    let recovery = std::thread::spawn(move || recover(&path));
    let spool = directory.path().join("requests/agent-0-c0r0-00000.spool");
    assert!(spool.exists(), "taken from under its writer");
    drop(writer);
    assert_eq!(recovery.join().unwrap().unwrap().rows, 1);
    assert!(!spool.exists());
}

#[test]
fn a_spool_of_a_newer_version_is_named_and_left_where_it_is() {
    let directory = tempfile::tempdir().unwrap();
    died(directory.path(), &[], 0);
    let path = directory.path().join("requests/agent-0-c0r0-00000.spool");
    let newer = SpoolHeader {
        schema: 9,
        ..header()
    };
    newer.write(&mut fs::File::create(&path).unwrap()).unwrap();
    let recovery = recover(directory.path()).unwrap();
    assert!(
        recovery.problems[0].contains("its schema is 9"),
        "{:?}",
        recovery.problems
    );
    assert!(recovery.problems[0].contains("hint: upgrade unruly"));
    assert!(path.exists());
}

#[test]
fn random_bytes_are_no_spool_and_no_reason_to_stop() {
    let directory = tempfile::tempdir().unwrap();
    died(directory.path(), &[ok(1)], 0);
    fs::write(
        directory.path().join("requests/agent-1-c0r0-00000.spool"),
        [7; 5_000],
    )
    .unwrap();
    let recovery = recover(directory.path()).unwrap();
    assert_eq!((recovery.rows, recovery.problems.len()), (1, 1));
}

#[test]
fn a_directory_that_is_no_run_is_refused_with_a_hint() {
    let directory = tempfile::tempdir().unwrap();
    let error = recover(directory.path()).unwrap_err().to_string();
    assert!(error.contains("manifest.json: cannot be read"), "{error}");
    assert!(
        error.contains("hint: this directory is not a run"),
        "{error}"
    );
}
