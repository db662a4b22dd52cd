//! Copies made by hand, as a router sends them, and a server's replies to them.

use std::sync::Arc;

use bytes::Bytes;
use flurry_core::config::Level;
use flurry_core::id::{
    ConfigNumber, DurationNs, Epoch, Key, OperationId, Sequence, SessionId, Version, WallNs,
};
use flurry_core::key_value::Operation;
use flurry_core::message::{Ask, Control, Copy, Message, Request, Verdict};

use super::{CONTROLLER, Cluster};

/// Makes all servers know as many sessions, each in its first epoch.
pub(crate) fn fence(cluster: &mut Cluster, sessions: u32) {
    for number in 1..=sessions {
        fence_at(cluster, number, 1);
    }
}

/// Makes all servers know a session's epoch.
pub(crate) fn fence_at(cluster: &mut Cluster, session: u32, epoch: u32) {
    for server in &mut cluster.servers {
        let fence = Control::Fence(SessionId(session), Epoch(epoch));
        server.handle_message(cluster.now, CONTROLLER, Message::Control(fence));
        while server.poll_send().is_some() {}
    }
}

/// Returns an operation of a session's first epoch, which depends on no write.
pub(crate) fn copy(
    cluster: &Cluster,
    (session, sequence): (u32, u64),
    key: &str,
    operation: &Operation,
) -> Copy {
    let session = SessionId(session);
    let id = OperationId {
        session,
        epoch: Epoch(1),
        sequence: Sequence(sequence),
    };
    Copy {
        request: Arc::new(Request {
            id,
            dep: Version::NONE,
            key: Key::new(session, Bytes::copy_from_slice(key.as_bytes())).unwrap(),
            ask: Ask::Apply {
                operation: operation.encode(),
                access: operation.access(),
            },
            level: Level::First,
            at: WallNs(0),
            stable: Sequence(0),
            clean_since: None,
            opened_in: ConfigNumber(0),
            quorum_earlier: 1,
            timeout: DurationNs::millis(10),
        }),
        config: cluster.controller.config().unwrap().number,
        attempt: 0,
    }
}

/// Returns a server's verdict on a copy.
pub(crate) fn verdict(cluster: &mut Cluster, index: usize, copy: Copy) -> Verdict {
    let now = cluster.now;
    cluster.servers[index].handle_message(now, 0, Message::Request(copy));
    let replied = std::iter::from_fn(|| cluster.servers[index].poll_send());
    let verdicts = replied.filter_map(|(_, message)| match message {
        Message::Reply(reply) => Some(reply.verdict),
        _ => None,
    });
    verdicts.last().unwrap()
}
