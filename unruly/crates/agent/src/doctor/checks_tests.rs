//! Each code is raised by what it is for, and by nothing about a fit host.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tempfile::TempDir;
use unruly_trace::DurationNs;

use super::*;
use crate::doctor::evidence::{self, Limits, Load};
use crate::doctor::facts;
use crate::doctor::spin::{Gaps, NoiseFloor};

const CODES: [&str; 17] = [
    "lost_time",
    "long_gaps",
    "stolen_time",
    "busy_host",
    "clock_source",
    "clock_slow",
    "clock_coarse",
    "kernel_stamps",
    "few_cores",
    "cpu_governor",
    "locked_memory",
    "disk_full",
    "open_files",
    "no_realtime",
    "no_pressure",
    "slow_sync",
    "virtualised",
];

/// A copy of the canned tree of a fit host, to be spoiled.
fn tree() -> TempDir {
    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let target = to.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                copy(&entry.path(), &target);
            } else {
                fs::copy(entry.path(), target).unwrap();
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    copy(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/proc/fit"),
        folder.path(),
    );
    folder
}

/// What is seen on a host with these files and nothing wrong beyond them.
fn seen(root: &TempDir) -> Evidence {
    let root = root.path();
    Evidence {
        host: facts::facts_below(root),
        noise: NoiseFloor {
            spun_ns: DurationNs(1_000_000_000),
            gaps: Gaps {
                over_10us: 9,
                over_100us: 1,
                over_1ms: 0,
                over_10ms: 0,
            },
            longest_ns: DurationNs(10_000_000),
            lost_ns: DurationNs(10_000_000),
            floor_ns: DurationNs(60_000),
            clock_cost_ns: DurationNs(200),
            clock_resolution_ns: DurationNs(1_000),
        },
        steal_share: Some(0.01),
        load: evidence::load(root),
        shows_pressure: evidence::shows_pressure(root),
        governors: evidence::governors(root),
        limits: evidence::limits(root),
        udp_stamps: Trial::Works,
        tcp_stamps: Trial::Works,
        realtime: Trial::Works,
        sync_ns: Some(DurationNs(1_000_000)),
        free_bytes: Some(1_000_000_000),
    }
}

fn fit() -> Evidence {
    seen(&tree())
}

fn codes(evidence: &Evidence) -> Vec<&'static str> {
    diagnose(evidence)
        .iter()
        .map(|diagnosis| diagnosis.code)
        .collect()
}

/// What a fit host raises after one file of it was changed.
fn codes_with_file(path: &str, text: &str) -> Vec<&'static str> {
    let root = tree();
    assert!(root.path().join(path).exists(), "{path} is not in the tree");
    fs::write(root.path().join(path), text).unwrap();
    codes(&seen(&root))
}

/// What a fit host raises after one fact of it was changed.
fn codes_with(change: impl FnOnce(&mut Evidence)) -> Vec<&'static str> {
    let mut evidence = fit();
    change(&mut evidence);
    codes(&evidence)
}

#[test]
fn a_fit_host_raises_nothing_with_every_bound_just_kept() {
    assert_eq!(codes(&fit()), Vec::<&str>::new());
}

#[test]
fn an_unknown_host_raises_only_what_was_looked_for_and_not_found() {
    let evidence = seen(&tempfile::tempdir().unwrap());
    assert_eq!(codes(&evidence), ["no_pressure"]);
    assert_eq!(evidence.limits, Limits::default());
    let unknown = codes_with(|evidence| {
        evidence.steal_share = None;
        evidence.sync_ns = None;
        evidence.free_bytes = None;
    });
    assert_eq!(unknown, Vec::<&str>::new());
}

#[test]
fn lost_time_spoils() {
    let mut evidence = fit();
    evidence.noise.lost_ns += DurationNs(1);
    let found = diagnose(&evidence);
    assert_eq!((found[0].code, found[0].severity), ("lost_time", Spoils));
}

#[test]
fn a_long_gap_is_raised() {
    assert_eq!(
        codes_with(|evidence| evidence.noise.longest_ns += DurationNs(1)),
        ["long_gaps"]
    );
}

#[test]
fn stolen_time_is_raised() {
    assert_eq!(
        codes_with(|evidence| evidence.steal_share = Some(0.011)),
        ["stolen_time"]
    );
}

#[test]
fn a_busy_host_is_raised_by_the_moment_and_by_the_mean() {
    assert_eq!(
        codes_with_file("proc/loadavg", "0.20 0.27 0.12 6/88 4660\n"),
        ["busy_host"]
    );
    assert_eq!(
        codes_with_file("proc/loadavg", "4.01 0.27 0.12 1/88 4660\n"),
        ["busy_host"]
    );
    assert_eq!(
        codes_with_file("proc/loadavg", "4.00 9.0 9.0 5/88 1\n"),
        Vec::<&str>::new()
    );
    assert_eq!(
        codes_with_file("proc/loadavg", "garbage\n"),
        Vec::<&str>::new()
    );
}

#[test]
fn the_doctor_itself_is_not_a_load() {
    let root = tree();
    assert_eq!(
        evidence::load(root.path()),
        Some(Load {
            running: 1,
            mean_1min: 0.2
        })
    );
}

#[test]
fn a_clock_source_that_asks_someone_is_raised() {
    let path = "sys/devices/system/clocksource/clocksource0/current_clocksource";
    assert_eq!(codes_with_file(path, "hpet\n"), ["clock_source"]);
    assert_eq!(codes_with_file(path, "kvm-clock\n"), ["clock_source"]);
    assert_eq!(
        codes_with_file(path, "arch_sys_counter\n"),
        Vec::<&str>::new()
    );
}

#[test]
fn a_slow_clock_is_raised() {
    assert_eq!(
        codes_with(|evidence| evidence.noise.clock_cost_ns = DurationNs(201)),
        ["clock_slow"]
    );
}

#[test]
fn a_coarse_clock_is_raised() {
    assert_eq!(
        codes_with(|evidence| evidence.noise.clock_resolution_ns = DurationNs(1_001)),
        ["clock_coarse"]
    );
}

#[test]
fn missing_stamps_are_raised_once_for_both_protocols() {
    let both = codes_with(|evidence| {
        evidence.udp_stamps = Trial::Missing;
        evidence.tcp_stamps = Trial::Failed("no loopback".to_owned());
    });
    assert_eq!(both, ["kernel_stamps"]);
    let mut evidence = fit();
    evidence.tcp_stamps = Trial::Missing;
    let what = diagnose(&evidence).remove(0).what;
    assert!(
        what.contains("TCP has none") && !what.contains("UDP"),
        "{what}"
    );
}

#[test]
fn a_single_core_is_raised() {
    let status = "Name:\tunruly\nCapEff:\t0000000000000000\nCpus_allowed_list:\t2\n";
    assert_eq!(codes_with_file("proc/self/status", status), ["few_cores"]);
}

#[test]
fn one_core_that_saves_power_is_enough_to_be_raised() {
    let path = "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor";
    assert_eq!(codes_with_file(path, "powersave\n"), ["cpu_governor"]);
}

#[test]
fn little_locked_memory_is_raised_unless_a_capability_lifts_the_limit() {
    let limits = "Max locked memory         8388608              8388608              bytes\n";
    assert_eq!(
        codes_with_file("proc/self/limits", limits),
        ["locked_memory"]
    );
    let root = tree();
    fs::write(root.path().join("proc/self/limits"), limits).unwrap();
    let status = "CapEff:\t0000000000004000\nCpus_allowed_list:\t0-3\n";
    fs::write(root.path().join("proc/self/status"), status).unwrap();
    assert_eq!(codes(&seen(&root)), Vec::<&str>::new());
}

#[test]
fn a_disk_that_is_nearly_full_is_raised() {
    assert_eq!(
        codes_with(|evidence| evidence.free_bytes = Some(999_999_999)),
        ["disk_full"]
    );
}

#[test]
fn few_open_files_are_raised() {
    let limits = "Max open files            1024                 524288               files\n";
    assert_eq!(codes_with_file("proc/self/limits", limits), ["open_files"]);
}

#[test]
fn refused_priority_is_raised_with_its_reason() {
    let mut evidence = fit();
    evidence.realtime = Trial::Failed("Operation not permitted (os error 1)".to_owned());
    let found = diagnose(&evidence);
    assert_eq!((found.len(), found[0].code), (1, "no_realtime"));
    assert!(found[0].what.contains("not permitted"));
}

#[test]
fn a_kernel_without_pressure_is_raised() {
    assert_eq!(codes_with_file("proc/pressure/cpu", ""), ["no_pressure"]);
}

#[test]
fn a_slow_disk_is_told() {
    assert_eq!(
        codes_with(|evidence| evidence.sync_ns = Some(DurationNs(1_000_001))),
        ["slow_sync"]
    );
}

#[test]
fn a_guest_is_told() {
    let cpuinfo = "processor\t: 0\nflags\t\t: fpu hypervisor tsc\n";
    assert_eq!(codes_with_file("proc/cpuinfo", cpuinfo), ["virtualised"]);
}

#[test]
fn the_worst_comes_first() {
    let mut evidence = fit();
    evidence.host.virtualised = Some(true);
    evidence.noise.clock_cost_ns = DurationNs(5_000);
    evidence.noise.lost_ns = DurationNs(500_000_000);
    assert_eq!(codes(&evidence), ["lost_time", "clock_slow", "virtualised"]);
    assert!(diagnose(&worst()).is_sorted_by_key(|diagnosis| diagnosis.severity));
}

/// A host with everything wrong.
fn worst() -> Evidence {
    let mut evidence = fit();
    evidence.noise.lost_ns = evidence.noise.lost_ns * 2;
    evidence.noise.longest_ns = evidence.noise.longest_ns * 2;
    evidence.noise.clock_cost_ns = evidence.noise.clock_cost_ns * 2;
    evidence.noise.clock_resolution_ns = evidence.noise.clock_resolution_ns * 2;
    evidence.steal_share = Some(0.5);
    evidence.load = Some(Load {
        running: 99,
        mean_1min: 99.0,
    });
    evidence.host.clock_source = Some("jiffies".to_owned());
    evidence.host.cores = Some(1);
    evidence.host.virtualised = Some(true);
    evidence.governors = vec!["powersave".to_owned()];
    evidence.limits = Limits {
        locked_bytes: Some(1),
        open_files: Some(1),
        may_lock_all: false,
    };
    evidence.udp_stamps = Trial::Missing;
    evidence.realtime = Trial::Missing;
    evidence.shows_pressure = false;
    evidence.sync_ns = Some(DurationNs(i64::MAX));
    evidence.free_bytes = Some(0);
    evidence
}

#[test]
fn a_host_with_everything_wrong_raises_every_code_once() {
    let found = codes(&worst());
    assert_eq!(found.len(), CODES.len());
    assert_eq!(BTreeSet::from_iter(found), BTreeSet::from(CODES));
}

#[test]
fn every_code_that_spoils_or_warns_says_what_to_do() {
    for diagnosis in diagnose(&worst()) {
        assert!(
            diagnosis.severity == Informs || diagnosis.hint.is_some(),
            "{}",
            diagnosis.code
        );
        assert!(
            !diagnosis.what.is_empty() && !diagnosis.means.is_empty(),
            "{}",
            diagnosis.code
        );
    }
}

#[test]
fn every_code_has_its_place_in_the_documentation() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/doctor.md");
    let text = fs::read_to_string(path).unwrap();
    let explained: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`'))
        .collect();
    assert_eq!(explained.len(), CODES.len());
    assert_eq!(BTreeSet::from_iter(explained), BTreeSet::from(CODES));
}
