//! Against an etcd that runs: one node of it for each test.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::*;
use crate::etcd::call::text;

/// Only reached by a failure.
const DEADLINE: Duration = Duration::from_secs(30);

struct Node {
    process: Child,
    place: Etcd,
    _folder: tempfile::TempDir,
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

impl Node {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [clients, peers] = [free_port(), free_port()];
        let [clients, peers] = [clients, peers].map(|it| format!("http://127.0.0.1:{it}"));
        let process = Command::new("etcd")
            .args([
                "--name",
                "only",
                "--initial-cluster",
                &format!("only={peers}"),
            ])
            .args([
                "--listen-client-urls",
                &clients,
                "--advertise-client-urls",
                &clients,
            ])
            .args([
                "--listen-peer-urls",
                &peers,
                "--initial-advertise-peer-urls",
                &peers,
            ])
            .args(["--logger", "zap", "--log-level", "error"])
            .arg("--data-dir")
            .arg(folder.path())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd is installed: scripts/debian.sh etcd etcd-server");
        let place = clients.replacen("http", "etcd", 1);
        let node = Self {
            process,
            place: Etcd::parse(&format!("{place}/test"), None).unwrap(),
            _folder: folder,
        };
        let mut caller = node.caller();
        until("etcd answers", || caller.get("anything").is_ok());
        node
    }

    fn caller(&self) -> Caller {
        Caller::new(&self.place).unwrap()
    }

    fn seat(&self, address: &str) -> Seat {
        Seat::wait_for(&self.place, address.to_owned(), Wake::new().unwrap()).unwrap()
    }

    fn holder(&self) -> Option<String> {
        let found = self.caller().get(&self.place.key("controller")).unwrap();
        found.map(|it| String::from_utf8(it.value).unwrap())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < DEADLINE, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What its turn begins with.
fn begins(seat: &mut Seat) -> Option<Vec<u8>> {
    let mut stored = None;
    until("its turn", || match seat.standing() {
        Standing::Begins(found) => {
            stored = found;
            true
        }
        _ => false,
    });
    stored
}

#[test]
fn one_decides_and_when_it_leaves_the_next_goes_on_with_what_it_wrote() {
    let node = Node::start();
    let mut first = node.seat("first");
    assert_eq!(begins(&mut first), None);
    assert_eq!(first.standing(), Standing::Decides);
    assert!(first.write(b"one") && first.write(b"two"));
    let mut second = node.seat("second");
    assert_eq!(second.standing(), Standing::Waits);
    assert!(!second.write(b"not its turn"));
    assert_eq!(node.holder().as_deref(), Some("first"));
    drop(first);
    assert_eq!(begins(&mut second).as_deref(), Some(&b"two"[..]));
    assert_eq!(node.holder().as_deref(), Some("second"));
}

#[test]
fn who_has_lost_the_place_writes_nothing_more() {
    let node = Node::start();
    let mut first = node.seat("first");
    begins(&mut first);
    assert!(first.write(b"before"));
    // Somebody else takes the place before etcd would give it, and writes nothing yet.
    let taken = put(&node.place.key("controller"), b"other", None);
    node.caller().transact(&[], &[taken]).unwrap().unwrap();
    assert!(first.is_sure(), "its clock says so");
    assert!(!first.write(b"after"));
    assert_eq!(first.standing(), Standing::Waits);
    let (stored, _) = State::new(&node.place).read(&mut node.caller()).unwrap();
    assert_eq!(stored.as_deref(), Some(&b"before"[..]));
}

#[test]
fn a_state_that_somebody_has_replaced_is_not_written_over() {
    let node = Node::start();
    let mut seat = node.seat("only");
    begins(&mut seat);
    assert!(seat.write(b"before"));
    let replaced = put(&node.place.key("state"), b"\0restored", None);
    node.caller().transact(&[], &[replaced]).unwrap().unwrap();
    assert!(!seat.write(b"after"));
    // It begins anew, with what there is now.
    assert_eq!(begins(&mut seat).as_deref(), Some(&b"restored"[..]));
    assert!(seat.write(b"after"));
}

#[test]
fn a_state_of_any_length_is_read_as_it_was_written_and_leaves_nothing_behind() {
    let node = Node::start();
    let mut seat = node.seat("only");
    begins(&mut seat);
    let long: Vec<u8> = (0..3_500_000_u32)
        .map(|it| it.to_le_bytes()[0] ^ 0x5a)
        .collect();
    let longer = [&long[..], b"and more"].concat();
    let pieces = |caller: &mut Caller| {
        let question = json!({ "key": text(node.place.key("pieces/").as_bytes()),
            "range_end": text(node.place.key("pieces0").as_bytes()), "count_only": true });
        number(&caller.call("kv/range", &question).unwrap()["count"]).unwrap_or(0)
    };
    let mut caller = node.caller();
    for (state, count) in [(&longer[..], 4), (&long, 4), (b"short", 0)] {
        assert!(seat.write(state));
        let (stored, _) = State::new(&node.place).read(&mut caller).unwrap();
        assert!(stored.as_deref() == Some(state), "{} bytes", state.len());
        assert_eq!(pieces(&mut caller), count);
    }
}

#[test]
fn a_turn_is_kept_for_longer_than_its_lease_and_given_up_without_etcd() {
    let mut node = Node::start();
    let mut seat = node.seat("only");
    begins(&mut seat);
    let start = Instant::now();
    until("longer than the lease", || {
        assert_eq!(seat.standing(), Standing::Decides);
        start.elapsed() > LEASE + LEASE / 4
    });
    node.process.kill().unwrap();
    until("it gives its turn up", || {
        seat.standing() == Standing::Waits
    });
    assert!(!seat.write(b"nobody hears it"));
}
