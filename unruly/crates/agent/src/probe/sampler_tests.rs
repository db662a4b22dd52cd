//! The sampler on canned trees (see `tests/proc/README.md`) and on this very host.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use unruly_trace::{ColumnNs, DurationNs};

use super::*;

const BEGIN_NS: ColumnNs = ColumnNs(1_700_000_000_000_000_000);
const SECOND: DurationNs = DurationNs::seconds(1);

fn canned(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/proc/host")
        .join(name)
}

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

/// A copy of the canned host at its beginning.
fn host() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    copy(&canned("before"), folder.path());
    folder
}

/// Lets the interval pass.
fn pass(root: &TempDir) {
    copy(&canned("after"), root.path());
    fs::remove_dir_all(root.path().join("proc/42/task/44")).unwrap();
}

fn write(root: &TempDir, path: &str, text: impl AsRef<[u8]>) {
    fs::write(root.path().join(path), text).unwrap();
}

fn remove(root: &TempDir, path: &str) {
    fs::remove_file(root.path().join(path)).unwrap();
}

fn java() -> Vec<Watched> {
    vec![Watched {
        name: "store-1".to_owned(),
        pid: 42,
    }]
}

/// The rows of the interval, after `change` was made to the tree at its end.
fn rows_after(change: impl FnOnce(&TempDir)) -> Vec<ResourceRow> {
    let root = host();
    let mut sampler = Sampler::with_root(root.path(), java());
    assert!(
        sampler.sample(BEGIN_NS, BEGIN_NS).is_empty(),
        "only a baseline"
    );
    pass(&root);
    change(&root);
    sampler.sample(BEGIN_NS + SECOND, BEGIN_NS + SECOND - DurationNs(7))
}

fn host_row_after(change: impl FnOnce(&TempDir)) -> ResourceRow {
    rows_after(change).remove(0)
}

#[test]
fn the_host_row_holds_every_difference_and_gauge() {
    let row = host_row_after(|_| ());
    let expected = ResourceRow {
        watched: None,
        started_ns: BEGIN_NS,
        ended_ns: BEGIN_NS + SECOND,
        sampler_lag_ns: DurationNs(7),
        sampler_cost_ns: row.sampler_cost_ns,
        cpu_user_share: Some(85.0 / 200.0),
        cpu_system_share: Some(30.0 / 200.0),
        cpu_iowait_share: Some(5.0 / 200.0),
        cpu_steal_share: Some(6.0 / 200.0),
        cpu_softirq_share: Some(8.0 / 200.0),
        cpu_busiest_share: Some(0.9),
        cpu_frequency_hz: Some(2.5e9),
        run_queue_length: Some(3.0),
        context_switches: Some(5_000),
        psi_cpu_some_ns: Some(120_000_000),
        psi_cpu_full_ns: Some(7_000),
        psi_memory_some_ns: Some(3_000_000),
        psi_memory_full_ns: Some(2_000_000),
        psi_io_some_ns: Some(500_000),
        psi_io_full_ns: Some(400_000),
        memory_used_bytes: Some((24_684_092 - 24_366_844) * 1024),
        swap_used_bytes: Some(640 * 1024),
        swap_in_pages: Some(3),
        swap_out_pages: Some(160),
        direct_reclaim_pages: Some(32),
        disk_reads: Some(5),
        disk_writes: Some(22),
        disk_read_bytes: Some(72 * 512),
        disk_written_bytes: Some(816 * 512),
        disk_time_ns: Some(62_000_000),
        disk_write_time_ns: Some(91_000_000),
        disk_queue_length: Some(4.0),
        network_received_bytes: Some(51_000),
        network_sent_bytes: Some(8_000),
        network_received_packets: Some(60),
        network_sent_packets: Some(50),
        network_errors: Some(1),
        network_drops: Some(6),
        network_collisions: Some(1),
        tcp_retransmits: Some(6),
        tcp_needless_retransmits: Some(4),
        listen_drops: Some(2),
        softnet_squeezes: Some(7),
        cgroup_throttled_periods: Some(0),
        cgroup_throttled_ns: Some(0),
        cgroup_memory_limit_events: None,
        minor_faults: Some(1_000),
        major_faults: Some(10),
        run_queue_wait_ns: Some(2_000_000),
        ..ResourceRow::default()
    };
    assert_eq!(row, expected);
}

#[test]
fn the_row_of_a_process_sums_over_its_threads() {
    let rows = rows_after(|_| ());
    assert_eq!(rows.len(), 2);
    let expected = ResourceRow {
        watched: Some("store-1".to_owned()),
        started_ns: BEGIN_NS,
        ended_ns: BEGIN_NS + SECOND,
        sampler_lag_ns: DurationNs(7),
        sampler_cost_ns: rows[0].sampler_cost_ns,
        swap_used_bytes: Some(64 * 1024),
        cgroup_throttled_periods: Some(4),
        cgroup_throttled_ns: Some(60_000_000),
        cgroup_memory_limit_events: Some(2),
        minor_faults: Some(120),
        major_faults: Some(2),
        // Threads 42 and 43 gained 420 and 430, 45 and 46 are new with 40 each.
        run_queue_wait_ns: Some(420 + 430 + 2 * 40),
        user_ns: Some(830_000_000),
        system_ns: Some(120_000_000),
        rss_bytes: Some(8_500 * 1024),
        voluntary_switches: Some(2 * 10 + 2 * 3),
        involuntary_switches: Some(2 + 2 * 2),
        threads: Some(4),
        ..ResourceRow::default()
    };
    assert_eq!(rows[1], expected);
}

#[test]
fn an_empty_tree_gives_a_row_without_any_metric() {
    let root = tempfile::tempdir().unwrap();
    let mut sampler = Sampler::with_root(root.path(), Vec::new());
    sampler.sample(ColumnNs(0), ColumnNs(0));
    let row = sampler.sample(ColumnNs(5), ColumnNs(5)).remove(0);
    let expected = ResourceRow {
        ended_ns: ColumnNs(5),
        sampler_cost_ns: row.sampler_cost_ns,
        ..ResourceRow::default()
    };
    assert_eq!(row, expected);
}

#[test]
fn a_missing_file_costs_only_its_own_metrics() {
    let row = host_row_after(|root| {
        remove(root, "proc/net/snmp");
        remove(root, "proc/pressure/memory");
        remove(root, "proc/vmstat");
    });
    assert_eq!(row.tcp_retransmits, None);
    assert_eq!(
        (row.psi_memory_some_ns, row.psi_memory_full_ns),
        (None, None)
    );
    assert_eq!((row.swap_in_pages, row.minor_faults), (None, None));
    assert_eq!(row.listen_drops, Some(2));
    assert_eq!(row.psi_io_some_ns, Some(500_000));
    assert_eq!(row.swap_used_bytes, Some(640 * 1024));
}

#[test]
fn a_file_that_returns_needs_a_new_baseline() {
    let root = host();
    let mut sampler = Sampler::with_root(root.path(), Vec::new());
    remove(&root, "proc/net/netstat");
    sampler.sample(ColumnNs(1), ColumnNs(1));
    pass(&root);
    assert_eq!(
        sampler.sample(ColumnNs(2), ColumnNs(2))[0].listen_drops,
        None
    );
    assert_eq!(
        sampler.sample(ColumnNs(3), ColumnNs(3))[0].listen_drops,
        Some(0)
    );
}

#[test]
fn a_missing_field_costs_only_its_own_metric() {
    let row = host_row_after(|root| {
        write(root, "proc/pressure/cpu", "some avg10=0.00 total=7735875\n");
        write(
            root,
            "proc/meminfo",
            "MemTotal: 100 kB\nSwapTotal: 9 kB\nSwapFree: 8 kB\n",
        );
        write(root, "proc/stat", "ctxt 457300\n");
    });
    assert_eq!(
        (row.psi_cpu_some_ns, row.psi_cpu_full_ns),
        (Some(120_000_000), None)
    );
    assert_eq!(
        (row.memory_used_bytes, row.swap_used_bytes),
        (None, Some(1024))
    );
    assert_eq!((row.context_switches, row.cpu_user_share), (Some(4), None));
    assert_eq!((row.cpu_busiest_share, row.run_queue_length), (None, None));
}

#[test]
fn a_counter_that_was_reset_gives_none_for_one_interval() {
    let root = host();
    let mut sampler = Sampler::with_root(root.path(), Vec::new());
    sampler.sample(ColumnNs(1), ColumnNs(1));
    write(
        &root,
        "proc/net/netstat",
        "TcpExt: ListenDrops\nTcpExt: 9\n",
    );
    assert_eq!(
        sampler.sample(ColumnNs(2), ColumnNs(2))[0].listen_drops,
        Some(9)
    );
    write(
        &root,
        "proc/net/netstat",
        "TcpExt: ListenDrops\nTcpExt: 1\n",
    );
    assert_eq!(
        sampler.sample(ColumnNs(3), ColumnNs(3))[0].listen_drops,
        None
    );
    write(
        &root,
        "proc/net/netstat",
        "TcpExt: ListenDrops\nTcpExt: 4\n",
    );
    assert_eq!(
        sampler.sample(ColumnNs(4), ColumnNs(4))[0].listen_drops,
        Some(3)
    );
}

#[test]
fn garbage_and_huge_numbers_stop_nothing() {
    let noise: Vec<u8> = (0..=255u8).cycle().take(5_000).collect();
    let huge = "18446744073709551615";
    let rows = rows_after(|root| {
        write(root, "proc/stat", &noise);
        write(root, "proc/diskstats", &noise);
        write(root, "proc/net/dev", &noise);
        write(root, "proc/net/softnet_stat", &noise);
        write(root, "proc/schedstat", &noise);
        write(
            root,
            "proc/pressure/io",
            format!("some total={huge}\nfull total={huge}9\n"),
        );
        write(
            root,
            "proc/meminfo",
            format!("MemTotal: {huge} kB\nMemAvailable: 1 kB\n"),
        );
        write(
            root,
            "proc/vmstat",
            format!("pgfault {huge}\npgmajfault {huge}\npswpin {huge}\n"),
        );
        write(root, "proc/42/stat", &noise);
        write(root, "proc/42/status", format!("VmRSS: {huge} kB\n"));
        write(root, "proc/42/cgroup", &noise);
    });
    let row = &rows[0];
    assert_eq!(
        (row.cpu_user_share, row.disk_reads, row.network_errors),
        (None, None, None)
    );
    assert_eq!((row.softnet_squeezes, row.run_queue_wait_ns), (None, None));
    assert_eq!((row.psi_io_some_ns, row.psi_io_full_ns), (None, None));
    assert_eq!((row.memory_used_bytes, row.minor_faults), (None, None));
    assert_eq!(row.tcp_retransmits, Some(6), "what can be read is");
    assert_eq!(
        rows.len(),
        2,
        "the process is there, whatever its files say"
    );
    assert_eq!((rows[1].rss_bytes, rows[1].user_ns), (None, None));
    assert_eq!(rows[1].voluntary_switches, Some(26));
}

#[test]
fn a_process_that_vanished_gives_no_row_from_then_on() {
    let root = host();
    let mut sampler = Sampler::with_root(root.path(), java());
    sampler.sample(ColumnNs(1), ColumnNs(1));
    assert_eq!(sampler.sample(ColumnNs(2), ColumnNs(2)).len(), 2);
    let stat = fs::read(root.path().join("proc/42/stat")).unwrap();
    remove(&root, "proc/42/stat");
    assert_eq!(sampler.sample(ColumnNs(3), ColumnNs(3)).len(), 1);
    write(&root, "proc/42/stat", stat);
    assert_eq!(
        sampler.sample(ColumnNs(4), ColumnNs(4)).len(),
        1,
        "a number that returns is another process"
    );
    assert_eq!(sampler.sample(ColumnNs(5), ColumnNs(5)).len(), 1);
}

#[test]
fn a_number_given_to_another_process_gives_no_row() {
    let rows = rows_after(|root| {
        let path = root.path().join("proc/42/stat");
        let stat = fs::read_to_string(path)
            .unwrap()
            .replace(" 262602 ", " 262999 ");
        write(root, "proc/42/stat", stat);
    });
    assert_eq!(rows.len(), 1);
}

#[test]
fn a_process_that_changes_its_group_needs_a_new_baseline_for_it() {
    let root = host();
    let mut sampler = Sampler::with_root(root.path(), java());
    sampler.sample(ColumnNs(1), ColumnNs(1));
    copy(
        &root.path().join("sys/fs/cgroup/cpu/app"),
        &root.path().join("sys/fs/cgroup/cpu/new"),
    );
    write(&root, "proc/42/cgroup", "1:cpu,cpuacct:/new\n0::/\n");
    let row = &sampler.sample(ColumnNs(2), ColumnNs(2))[1];
    assert_eq!(
        (row.cgroup_throttled_periods, row.minor_faults),
        (None, Some(0))
    );
    assert_eq!(
        sampler.sample(ColumnNs(3), ColumnNs(3))[1].cgroup_throttled_periods,
        Some(0)
    );
}

#[test]
fn a_time_that_does_not_advance_gives_no_row() {
    let root = host();
    let mut sampler = Sampler::with_root(root.path(), Vec::new());
    sampler.sample(ColumnNs(5), ColumnNs(5));
    assert!(sampler.sample(ColumnNs(5), ColumnNs(5)).is_empty());
    assert!(sampler.sample(ColumnNs(4), ColumnNs(4)).is_empty());
    assert_eq!(
        sampler.sample(ColumnNs(6), ColumnNs(6))[0].started_ns,
        ColumnNs(5)
    );
}

#[test]
fn the_cost_reported_is_that_of_the_sample_before() {
    let root = host();
    let mut sampler = Sampler::with_root(root.path(), java());
    sampler.sample(ColumnNs(1), ColumnNs(1));
    let cost_ns = sampler.cost_ns;
    assert!(cost_ns > DurationNs::ZERO);
    assert_eq!(
        sampler.sample(ColumnNs(2), ColumnNs(2))[0].sampler_cost_ns,
        cost_ns
    );
}

/// Uses `milliseconds` of processor time, however long that takes on a busy host.
fn burn(milliseconds: i64) {
    let end_ns = thread_cpu_ns() + DurationNs::millis(milliseconds);
    let mut value = 1u64;
    while thread_cpu_ns() < end_ns {
        for _ in 0..10_000 {
            value = std::hint::black_box(value.wrapping_mul(6_364_136_223_846_793_005));
        }
    }
}

#[test]
fn this_host_shows_the_processor_time_that_we_burn() {
    let me = Watched {
        name: "me".to_owned(),
        pid: std::process::id(),
    };
    let mut sampler = Sampler::new(vec![me]);
    sampler.sample(ColumnNs(1), ColumnNs(1));
    burn(200);
    let rows = sampler.sample(ColumnNs(2), ColumnNs(2));
    let (host, process) = (&rows[0], &rows[1]);
    let (user, system) = (host.cpu_user_share.unwrap(), host.cpu_system_share.unwrap());
    assert!(user > 0.0, "user {user}");
    assert!(user + system <= 1.0, "user {user}, system {system}");
    let busiest = host.cpu_busiest_share.unwrap();
    assert!(busiest > 0.0 && busiest <= 1.0, "busiest {busiest}");
    // Each of the two is cut to whole ticks.
    assert!(
        process.user_ns.unwrap() + process.system_ns.unwrap() >= 170_000_000,
        "{process:?}"
    );
    assert!(process.rss_bytes.unwrap() > 0);
    assert!(process.threads.unwrap() >= 1);
}

#[test]
fn on_this_host_an_ended_process_gives_no_row_though_its_files_are_open() {
    let mut child = Command::new("sleep")
        .arg("600")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut sampler = Sampler::new(vec![Watched {
        name: "sleep".to_owned(),
        pid: child.id(),
    }]);
    sampler.sample(ColumnNs(1), ColumnNs(1));
    assert_eq!(sampler.sample(ColumnNs(2), ColumnNs(2)).len(), 2);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(sampler.sample(ColumnNs(3), ColumnNs(3)).len(), 1);
}
