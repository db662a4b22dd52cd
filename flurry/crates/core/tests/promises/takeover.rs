//! The requests of a new owner before it answers for a key, while servers join.

#![expect(clippy::unwrap_used, reason = "a test ends where a helper fails")]

use std::sync::Arc;

use bytes::Bytes;
use flurry_core::config::{Config, Level, Member};
use flurry_core::id::{
    ConfigNumber, DurationNs, Endpoint, Epoch, Incarnation, Key, MonoNs, OperationId, Sequence,
    ServerId, SessionId, ShardId, Version, WallNs,
};
use flurry_core::message::{Answer, Ask, Copy, Message, Outcome, Reply, Request, State, Verdict};
use flurry_core::router::{Destination, Router, RouterParams};

const CONFIG: ConfigNumber = ConfigNumber(6);
const NOW: MonoNs = MonoNs(1_000_000_000);

/// The version of the earlier owner's last write. That owner was fenced before any other server had
/// the write.
const LAST_WRITE: Version = Version {
    epoch: Epoch(1),
    sequence: Sequence(332),
};

fn member(id: u16) -> Member {
    Member {
        server: ServerId(id),
        incarnation: Incarnation(u128::from(id) + 10),
        addresses: Vec::new(),
        gone: false,
        disk: None,
    }
}

/// Returns a configuration in which server 2 has every record and server 0 joins.
fn changing() -> Arc<Config> {
    Arc::new(Config {
        number: CONFIG,
        replicas: 3,
        shards: 1,
        lease: DurationNs::millis(1_000),
        members: vec![member(2)],
        next: Some(vec![member(0), member(2)]),
        last_loss: ConfigNumber(0),
        last_majority_loss: ConfigNumber(0),
        last_wipe: ConfigNumber(0),
    })
}

struct Takeover {
    router: Router,
    key: Key,
    id: OperationId,
}

impl Takeover {
    fn begin() -> Self {
        let session = SessionId(1);
        let mut router = Router::new(RouterParams::default());
        router.adopt(NOW, &changing());
        let id = OperationId {
            session,
            epoch: Epoch(2),
            sequence: Sequence(3),
        };
        let key = Key::new(session, Bytes::from_static(b"k")).unwrap();
        let request = Request {
            id,
            dep: Version::NONE,
            key: key.clone(),
            ask: Ask::Touch,
            level: Level::First,
            at: WallNs(0),
            stable: Sequence(2),
            clean_since: None,
            opened_in: CONFIG,
            quorum_earlier: 1,
            timeout: DurationNs::millis(1_000),
        };
        let copy = Copy {
            request: Arc::new(request),
            config: ConfigNumber(0),
            attempt: 0,
        };
        router.handle_request(NOW, 7, copy);
        Self { router, key, id }
    }

    /// Delivers a server's reply. Returns the router's answers to the owner.
    fn says(&mut self, server: u16, have: Version, verdict: Verdict) -> Vec<Outcome> {
        let reply = Reply {
            id: self.id,
            key_hash: self.key.hash(),
            from: Endpoint {
                server: ServerId(server),
                shard: ShardId(0),
            },
            config: CONFIG,
            attempt: 0,
            stable: Sequence(2),
            have,
            lease_left: DurationNs::millis(500),
            digest: 0,
            busy: 0,
            verdict,
            stamps: [0; 3],
        };
        self.router.handle_message(NOW, Message::Reply(reply), 0);
        let mut told = Vec::new();
        while let Some((to, message)) = self.router.poll_send() {
            if let (Destination::Sender(7), Message::Answer(Answer { outcome, .. })) = (to, message)
            {
                told.push(outcome);
            }
        }
        told
    }
}

#[test]
fn the_last_write_of_a_fenced_owner_on_a_joining_server_is_found() {
    let mut takeover = Takeover::begin();
    let nothing = Verdict::State(State::ABSENT);
    let told = takeover.says(2, Version::NONE, nothing);
    assert_eq!(told, [], "the joining server may know more");
    let written = State {
        version: LAST_WRITE,
        written_in: LAST_WRITE.epoch,
        snapshot: Some(Bytes::from_static(b"\n\x03214")),
        answer: Bytes::new(),
        digest: 1,
        evicted: false,
    };
    takeover.says(0, LAST_WRITE, Verdict::State(written));
    // The router writes the value back under the owner's version before it answers.
    let own = takeover.id.version();
    let mut told = takeover.says(2, own, Verdict::Held);
    told.extend(takeover.says(0, own, Verdict::Held));
    let found = told.iter().find_map(|it| match it {
        Outcome::Taken { version, found, .. } => Some((*version, *found)),
        _ => None,
    });
    assert_eq!(found, Some((own, LAST_WRITE)));
}

#[test]
fn a_joining_server_that_has_executed_nothing_yet_keeps_nobody_waiting() {
    let mut takeover = Takeover::begin();
    assert_eq!(takeover.says(0, Version::NONE, Verdict::Joining), []);
    let told = takeover.says(2, Version::NONE, Verdict::State(State::ABSENT));
    let none = Version::NONE;
    assert!(
        matches!(told[..], [Outcome::Taken { found, .. }] if found == none),
        "{told:?}"
    );
}
