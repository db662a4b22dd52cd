//! The program `flurry`, as real processes.

#![expect(clippy::unwrap_used, reason = "a test ends where a helper fails")]

mod common;

use std::net::SocketAddr;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use common::{DEADLINE, Process, said};
use flurry::{Client, Error, Level, Options, status};
use nix::sys::signal::Signal;

struct Cluster {
    address: SocketAddr,
    servers: Vec<Process>,
    controller: Process,
    directory: tempfile::TempDir,
}

impl Cluster {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let controller = Process::controller("127.0.0.1:0", directory.path());
        let address = controller.addresses[0];
        let cluster = Self {
            address,
            servers: (1..=3).map(|id| Process::server(id, address)).collect(),
            controller,
            directory,
        };
        cluster.until_whole();
        cluster
    }

    fn until_whole(&self) {
        let start = Instant::now();
        loop {
            let seen =
                status(&self.address.into(), DEADLINE, &flurry::Security::default()).unwrap();
            // A life that was killed may be listed as up until the new one is let in.
            let is_in = |server: &Process| seen.contains(&server.addresses[0].to_string());
            let all_in = self.servers.iter().all(is_in);
            let all_up = seen.matches("\"up\"").count() == 3;
            if all_in && all_up && seen.contains("\"changing\":false") {
                return;
            }
            assert!(start.elapsed() < DEADLINE, "{seen}");
            std::thread::yield_now();
        }
    }

    fn client(&self) -> Client {
        Client::open(&Options {
            timeout: DEADLINE,
            open_timeout: DEADLINE,
            ..Options::new(self.address, "s")
        })
        .unwrap()
    }
}

fn flurry(controller: SocketAddr, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flurry"))
        .args(arguments)
        .args(["--controller", &controller.to_string()])
        .output()
        .unwrap()
}

#[test]
fn what_one_process_sets_another_gets() {
    let serve = Process::start(&["serve", "--embedded", "3", "--controller", "127.0.0.1:0"]);
    let address = serve.addresses[0];
    let run = |arguments: &[&str]| flurry(address, arguments);
    assert_eq!(said(&run(&["set", "k", "hello"])), (0, "ok", ""));
    assert_eq!(said(&run(&["get", "k"])), (0, "hello", ""));
    assert_eq!(said(&run(&["get", "other"])), (1, "", "(not found)"));
    let unopened = "flurry: session other: nobody has opened it yet; hint: --session NAME for another one, --session slots for a key of a gateway\n(not found)";
    assert_eq!(
        said(&run(&["get", "k", "--session", "other"])),
        (1, "", unopened)
    );
    assert_eq!(
        said(&run(&["append", "k", "!", "--level", "all"])),
        (0, "6", "")
    );
    assert_eq!(said(&run(&["cas", "k", "hello!", "bye"])), (0, "ok", ""));
    assert_eq!(said(&run(&["cas", "k", "hello!", "bye"])).0, 1);
    assert_eq!(
        said(&run(&["incr", "n", "-7", "--level", "hedge:1ms"])),
        (0, "-7", "")
    );
    assert_eq!(said(&run(&["incr", "k"])).0, 2);
    assert_eq!(said(&run(&["del", "k"])), (0, "1", ""));
    assert_eq!(said(&run(&["get", "k"])), (1, "", "(not found)"));
    assert_eq!(
        said(&run(&["set", "t", "1", "--ttl", "1ms"])),
        (0, "ok", "")
    );
    let shown = run(&["status"]);
    let (code, table, _) = said(&shown);
    assert_eq!(code, 0);
    assert_eq!(
        table.lines().filter(|line| line.contains("up ")).count(),
        3,
        "{table}"
    );
}

#[test]
fn mistakes_end_in_time_with_an_error_that_helps() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let nobody = silent.local_addr().unwrap();
    for verb in [&["get", "k"][..], &["status"]] {
        let start = Instant::now();
        let output = flurry(nobody, &[verb, &["--timeout", "300ms"]].concat());
        let (code, out, error) = said(&output);
        assert_eq!((code, out), (2, ""));
        assert!(
            error.contains(&nobody.to_string()) && error.contains("hint"),
            "{error}"
        );
        assert!(start.elapsed() < DEADLINE);
    }
    let open = flurry("10.1.2.3:7700".parse().unwrap(), &["get", "k"]);
    assert_eq!(said(&open).0, 2);
    let outside = ["server", "--id", "1", "--listen", "10.1.2.3:0"];
    let output = flurry(nobody, &outside);
    let (code, _, error) = said(&output);
    assert_eq!(code, 2);
    assert!(error.contains("nothing is encrypted"), "{error}");
}

#[test]
fn killing_and_restarting_each_server_in_turn_loses_nothing() {
    let mut cluster = Cluster::start();
    let client = cluster.client();
    let mut written = 0;
    for index in 0..3 {
        let id = u16::try_from(index + 1).unwrap();
        cluster.servers.remove(index).kill();
        for _ in 0..50 {
            client
                .set(format!("k{written}"), written.to_string())
                .unwrap();
            written += 1;
            assert_eq!(client.increment("count", 1).unwrap(), written);
        }
        cluster
            .servers
            .insert(index, Process::server(id, cluster.address));
        cluster.until_whole();
    }
    for number in 0..written {
        let read = client.get(format!("k{number}")).unwrap().unwrap();
        assert_eq!(read, number.to_string());
    }
    assert!(client.close().unwrap().is_stable);
    let next = cluster.client();
    assert_eq!(next.get("count").unwrap().unwrap(), "150");
    assert_eq!(next.tails_unknown(), 0);
}

#[test]
fn while_a_server_is_stopped_every_operation_at_level_first_succeeds() {
    let cluster = Cluster::start();
    let client = cluster.client();
    client.set("count", "0").unwrap();
    cluster.servers[0].signal(Signal::SIGSTOP);
    for number in 1..=100 {
        let call = || {
            client
                .call()
                .at_level(Level::First)
                .within(Duration::from_secs(2))
        };
        assert_eq!(call().increment("count", 1).unwrap(), number);
        assert_eq!(call().get("count").unwrap().unwrap(), number.to_string());
    }
    cluster.servers[0].signal(Signal::SIGCONT);
    cluster.until_whole();
    assert_eq!(
        client
            .call()
            .at_level(Level::All)
            .increment("count", 1)
            .unwrap(),
        101
    );
    assert!(client.close().unwrap().is_stable);
}

#[test]
fn a_controller_that_was_killed_gives_out_no_epoch_twice() {
    let mut cluster = Cluster::start();
    let first = cluster.client();
    first.set("k", "1").unwrap();
    cluster.controller.end();
    first.set("k", "2").unwrap();
    cluster.controller =
        Process::controller(&cluster.address.to_string(), cluster.directory.path());
    let second = cluster.client();
    assert!(second.epoch() > first.epoch());
    assert_eq!(second.get("k").unwrap().unwrap(), "2");
    let refused = first.set("k", "3").unwrap_err();
    assert_eq!(
        refused,
        Error::Fenced {
            epoch: second.epoch()
        }
    );
}
