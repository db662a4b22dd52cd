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

    fn controller(&self, address: &str) -> Election {
        Election::start(&self.place, address.to_owned(), Wake::new().unwrap()).unwrap()
    }

    fn leader(&self) -> Option<String> {
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

/// Writes a state, and waits for how that ends.
fn wrote(controller: &mut Election, bytes: &[u8]) -> bool {
    if controller.term.is_none() {
        return false;
    }
    controller.write(bytes.to_vec());
    let mut ended = None;
    until("the end of a write", || {
        ended = controller.take_written();
        ended.is_some()
    });
    ended.unwrap()
}

/// What its term begins with.
fn elected(controller: &mut Election) -> Option<Vec<u8>> {
    let mut stored = None;
    until("its term", || match controller.role() {
        Role::Elected(found) => {
            stored = found;
            true
        }
        _ => false,
    });
    stored
}

#[test]
fn one_leads_and_when_it_leaves_the_next_goes_on_with_what_it_wrote() {
    let node = Node::start();
    let mut first = node.controller("first");
    assert_eq!(elected(&mut first), None);
    assert_eq!(first.role(), Role::Leader);
    assert!(wrote(&mut first, b"one") && wrote(&mut first, b"two"));
    let mut second = node.controller("second");
    assert_eq!(second.role(), Role::Standby);
    assert!(!wrote(&mut second, b"not its term"));
    assert_eq!(node.leader().as_deref(), Some("first"));
    drop(first);
    assert_eq!(elected(&mut second).as_deref(), Some(&b"two"[..]));
    assert_eq!(node.leader().as_deref(), Some("second"));
}

#[test]
fn who_has_lost_the_lead_writes_nothing_more() {
    let node = Node::start();
    let mut first = node.controller("first");
    elected(&mut first);
    assert!(wrote(&mut first, b"before"));
    // Somebody else takes the lead before etcd would give it, and writes nothing yet.
    let taken = put(&node.place.key("controller"), b"other", None);
    node.caller().transact(&[], &[taken]).unwrap().unwrap();
    assert!(first.is_leader(), "its clock says so");
    assert!(!wrote(&mut first, b"after"));
    assert_eq!(first.role(), Role::Standby);
    let (stored, _) = State::new(&node.place).read(&mut node.caller()).unwrap();
    assert_eq!(stored.as_deref(), Some(&b"before"[..]));
}

#[test]
fn a_later_term_of_the_same_controller_makes_nobody_sure_of_the_earlier_one() {
    let node = Node::start();
    let mut controller = node.controller("only");
    elected(&mut controller);
    assert!(wrote(&mut controller, b"mine"));
    // The candidate loses its lease and is elected again before the controller has looked.
    let mut caller = node.caller();
    let key = node.place.key("controller");
    let first = caller.get(&key).unwrap().unwrap();
    let lease = controller.term.as_ref().unwrap().lease;
    let revoke = json!({ "ID": lease.to_string() });
    caller.call("lease/revoke", &revoke).unwrap();
    let other = put(&node.place.key("state"), b"\0of another leader", None);
    caller.transact(&[], &[other]).unwrap().unwrap();
    until("another term", || {
        let found = caller.get(&key).unwrap();
        found.is_some_and(|it| it.revision != first.revision)
            && controller.shared.lock().elected.is_some()
    });
    assert!(!controller.is_leader());
    assert_eq!(
        elected(&mut controller).as_deref(),
        Some(&b"of another leader"[..])
    );
}

#[test]
fn a_state_that_somebody_has_replaced_is_not_written_over() {
    let node = Node::start();
    let mut controller = node.controller("only");
    elected(&mut controller);
    assert!(wrote(&mut controller, b"before"));
    let replaced = put(&node.place.key("state"), b"\0restored", None);
    node.caller().transact(&[], &[replaced]).unwrap().unwrap();
    assert!(!wrote(&mut controller, b"after"));
    // It begins anew, with what there is now.
    assert_eq!(elected(&mut controller).as_deref(), Some(&b"restored"[..]));
    assert!(wrote(&mut controller, b"after"));
}

#[test]
fn a_state_of_any_length_is_read_as_it_was_written_and_leaves_nothing_behind() {
    let node = Node::start();
    let mut controller = node.controller("only");
    elected(&mut controller);
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
        assert!(wrote(&mut controller, state));
        let (stored, _) = State::new(&node.place).read(&mut caller).unwrap();
        assert!(stored.as_deref() == Some(state), "{} bytes", state.len());
        assert_eq!(pieces(&mut caller), count);
    }
}

#[test]
fn a_term_is_kept_for_longer_than_its_lease_and_given_up_without_etcd() {
    let mut node = Node::start();
    let mut controller = node.controller("only");
    elected(&mut controller);
    let start = Instant::now();
    until("longer than the lease", || {
        assert_eq!(controller.role(), Role::Leader);
        start.elapsed() > LEASE + LEASE / 4
    });
    node.process.kill().unwrap();
    until("it gives its term up", || {
        controller.role() == Role::Standby
    });
    assert!(!wrote(&mut controller, b"nobody hears it"));
}
