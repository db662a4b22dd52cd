//! A cluster from its file, as real processes; and what `flurry bench` leaves behind.

#![expect(clippy::unwrap_used, reason = "a test ends where a helper fails")]

mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{DEADLINE, Process, said};
use unruly_trace::{Manifest, RunStatus};

/// A loopback address that no other test has.
fn host(number: u8) -> String {
    let [low, high, ..] = std::process::id().to_le_bytes();
    format!("127.{}.{high}.{low}", 100 + number)
}

/// A file with three servers of two threads, and more lines.
fn file(directory: &Path, host: &str, more: &str) -> PathBuf {
    let servers: String = (1..=3)
        .map(|id| format!("[[server]]\nid = {id}\nlisten = \"{host}:77{id}0\"\n"))
        .collect();
    let path = directory.join("cluster.toml");
    let controller = format!("[controller]\nlisten = \"{host}:7700\"\n");
    let text = format!("{controller}[cluster]\nshards = 2\n{servers}{more}");
    std::fs::write(&path, text).unwrap();
    path
}

fn flurry(arguments: &[&str], path: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flurry"))
        .args(arguments)
        .args(["--config", path.to_str().unwrap()])
        .output()
        .unwrap()
}

#[test]
fn one_file_tells_every_process_where_the_others_are() {
    let directory = tempfile::tempdir().unwrap();
    let host = host(1);
    let more = format!(
        "[router]\nlisten = \"{host}:7690\"\n[client]\nlevel = \"quorum\"\ntransport = \"tcp\"\ntimeout = \"10s\"\n"
    );
    let path = file(directory.path(), &host, &more);
    let config = ["--config", path.to_str().unwrap()];
    let without = flurry(&["controller"], &path);
    let (code, _, error) = said(&without);
    assert_eq!(code, 2);
    assert!(
        error.contains("servers outlive their controller"),
        "{error}"
    );
    let state = directory.path().join("state");
    let dir = ["controller", "--dir", state.to_str().unwrap()];
    let _controller = Process::start(&[&dir[..], &config].concat());
    let _servers: Vec<Process> = ["1", "2", "3"]
        .map(|id| Process::start(&[&["server", "--id", id][..], &config].concat()))
        .into();
    let _router = Process::start(&[&["route"][..], &config].concat());
    assert_eq!(said(&flurry(&["set", "k", "7"], &path)), (0, "ok", ""));
    assert_eq!(said(&flurry(&["incr", "k", "35"], &path)), (0, "42", ""));
    assert_eq!(said(&flurry(&["get", "k"], &path)), (0, "42", ""));
    let status = flurry(&["status"], &path);
    let (code, out, _) = said(&status);
    assert_eq!(code, 0);
    assert_eq!(out.matches(" up ").count(), 3, "{out}");
    let stranger = flurry(&["server", "--id", "4"], &path);
    let (code, _, error) = said(&stranger);
    assert_eq!(code, 2);
    assert!(
        error.contains("it has no server 4; wanted one of 1, 2, 3"),
        "{error}"
    );
}

/// What a gateway says to a command of words.
fn asked(gateway: &str, words: &str) -> String {
    let mut socket = TcpStream::connect(gateway).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    socket.write_all(format!("{words}\r\n").as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(socket).read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

#[test]
fn gateways_of_one_file_know_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let host = host(4);
    let more = format!(
        "[[gateway]]\nlisten = \"{host}:6379\"\nslots = \"0-8191\"\n[[gateway]]\nlisten = \"{host}:6380\"\nslots = \"8192-16383\"\n"
    );
    let path = file(directory.path(), &host, &more);
    let (low, high) = (format!("{host}:6379"), format!("{host}:6380"));
    let cluster = Process::start(&["serve", "--config", path.to_str().unwrap()]);
    // The slot of foo is 12182.
    assert_eq!(asked(&low, "SET foo bar"), format!("-MOVED 12182 {high}"));
    assert_eq!(asked(&high, "SET foo bar"), "+OK");
    assert_eq!(asked(&high, "SET bar foo"), format!("-MOVED 5061 {low}"));
    assert_eq!(asked(&low, "SET bar foo"), "+OK");
    // Another process takes the slots over, by its address.
    let one = ["gateway", "--config", path.to_str().unwrap()];
    let which = flurry(&["gateway"], &path);
    let (code, _, error) = said(&which);
    assert_eq!(code, 2);
    assert!(error.contains("hint: --listen ADDRESS"), "{error}");
    let stranger = flurry(&["gateway", "--listen", "127.0.0.1:6381"], &path);
    let (code, _, error) = said(&stranger);
    assert_eq!(code, 2);
    assert!(error.contains("has no such gateway"), "{error}");
    drop(cluster);
    let state = directory.path().join("state");
    let config = &one[1..];
    let controller = ["controller", "--dir", state.to_str().unwrap()];
    let _controller = Process::start(&[&controller[..], config].concat());
    let _servers: Vec<Process> = ["1", "2", "3"]
        .map(|id| Process::start(&[&["server", "--id", id][..], config].concat()))
        .into();
    let _gateway = Process::start(&[&one[..], &["--listen", &high]].concat());
    assert_eq!(asked(&high, "SET foo bar"), "+OK");
    assert_eq!(asked(&high, "GET bar"), format!("-MOVED 5061 {low}"));
}

#[test]
fn a_whole_cluster_serves_with_the_faults_of_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let host = host(2);
    let more = "[client]\ntimeout = \"1s\"\n[[fault]]\npart = \"server-3\"\npeer = \"client\"\nisolate = true\n[[fault]]\npart = \"client\"\nloss = 0.1\nduplicate = 0.1\n[[pause]]\npart = \"server-2\"\nevery = \"50ms\"\nduration = \"20ms\"\n";
    let path = file(directory.path(), &host, more);
    let _cluster = Process::start(&["serve", "--config", path.to_str().unwrap()]);
    for level in ["first", "quorum"] {
        let set = flurry(&["incr", "k", "--session", level, "--level", level], &path);
        let (code, out, error) = said(&set);
        assert_eq!((code, out), (0, "1"), "{error}");
        assert!(error.contains("a server has not answered yet"), "{error}");
    }
    // The third server hears of no client, so not all can answer.
    let all = flurry(&["incr", "k", "--session", "all", "--level", "all"], &path);
    let (code, _, error) = said(&all);
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("no answer within"), "{error}");
}

#[test]
fn a_bench_leaves_a_whole_run_and_says_what_is_next() {
    let directory = tempfile::tempdir().unwrap();
    let host = host(3);
    let path = file(directory.path(), &host, "");
    let _cluster = Process::start(&["serve", "--config", path.to_str().unwrap()]);
    let run = directory.path().join("run");
    let run_text = run.to_str().unwrap();
    let words = [
        "bench",
        "--rate",
        "500/s",
        "--duration",
        "1s",
        "--warmup",
        "200ms",
        "--level",
        "first,quorum,all",
        "-o",
        run_text,
    ];
    let output = flurry(&words, &path);
    let (code, out, error) = said(&output);
    assert_eq!(code, 0, "{error}");
    assert!(
        out.ends_with(&format!("next: unruly report {run_text}")),
        "{out}"
    );
    for op in ["read", "write"] {
        for level in ["first", "quorum", "all"] {
            let has = |line: &str| line.starts_with(op) && line.contains(level);
            assert!(out.lines().any(has), "{op} {level} is missing: {out}");
        }
    }
    let manifest = Manifest::read(&run).unwrap();
    assert_eq!(manifest.status, RunStatus::Complete);
    manifest.counts.check("the run").unwrap();
    let counts = &manifest.counts;
    assert!(counts.requests.answered > 100, "{counts:?}");
    assert_eq!(counts.copies.dropped, 0);
    assert!(
        counts.copies.scheduled >= 3 * counts.requests.scheduled,
        "{counts:?}"
    );
    let again = flurry(&words, &path);
    let (code, _, error) = said(&again);
    assert_eq!(code, 2);
    assert!(error.contains("holds a run already"), "{error}");
}

#[test]
fn a_bench_of_nonsense_is_refused_before_anything_is_asked() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), &host(4), "");
    for (words, wanted) in [
        (
            &["bench", "--reads", "1.5"][..],
            "wanted a share from 0 to 1",
        ),
        (&["bench", "--value", "2MB"], "wanted at most 1048576 bytes"),
        (&["bench", "--router", "127.0.0.1:1"], "keeps no log"),
        (&["bench", "--sessions", "0"], "1..=1000"),
        (&["del", "k", "--transport", "pigeon"], "is not udp or tcp"),
    ] {
        let output = flurry(words, &path);
        let (code, _, error) = said(&output);
        assert_eq!(code, 2);
        assert!(error.contains(wanted), "{words:?}: {error}");
    }
}
