//! Requests, replies and answers as bytes.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use prost::Message as _;

use super::body;
use super::header::{Header, Kind, WireError};
use crate::config::Level;
use crate::id::{ConfigNumber, DurationNs, Endpoint, Epoch, Key, Sequence, ServerId, ShardId};
use crate::id::{Version, WallNs};
use crate::machine::Access;
use crate::message::{Answer, Ask, Copy, Outcome, Reply, Request, State, Verdict};

fn field(field: &'static str, value: impl Into<u64>) -> WireError {
    WireError::Field {
        field,
        value: value.into(),
    }
}

/// Appends a body. The buffer grows as needed, so encoding cannot fail.
fn put(body: &impl prost::Message, out: &mut BytesMut) {
    out.reserve(body.encoded_len());
    body.encode_raw(out);
}

pub(super) fn put_state(state: &State) -> body::State {
    body::State {
        epoch: state.version.epoch.0,
        sequence: state.version.sequence.0,
        written_in: state.written_in.0,
        snapshot: state.snapshot.clone(),
        answer: state.answer.clone(),
        digest: state.digest,
        evicted: state.evicted,
    }
}

pub(super) fn state(read: body::State) -> Result<State, WireError> {
    let version = Version {
        epoch: Epoch(read.epoch),
        sequence: Sequence(read.sequence),
    };
    // Records from before this field have 0.
    let written_in = if version.sequence.is_takeover() {
        Epoch(read.written_in)
    } else {
        version.written_in()
    };
    let state = State {
        version,
        written_in,
        snapshot: read.snapshot,
        answer: read.answer,
        digest: read.digest,
        evicted: read.evicted,
    };
    // The digest travels with the value from the replica that made it: damage between memory and
    // memory shows here, which no checksum of a datagram sees.
    let found = crate::machine::digest(state.snapshot.as_deref());
    if found != state.digest && !state.evicted {
        return Err(field("digest", state.digest));
    }
    Ok(state)
}

pub(super) fn put_request(copy: &Copy, out: &mut BytesMut) -> Header {
    let request = &*copy.request;
    assert_eq!(
        request.key.session(),
        request.id.session,
        "the header has one session, that of the operation and of its key"
    );
    let (sub, operation, state, access) = match &request.ask {
        Ask::Apply { operation, access } => (0, operation.clone(), None, *access),
        Ask::Fetch => (1, Bytes::new(), None, Access::Read),
        Ask::Push(state) => (2, Bytes::new(), Some(put_state(state)), Access::Read),
        Ask::Touch => (3, Bytes::new(), None, Access::Read),
    };
    let (level, hedge_ns) = put_level(request.level);
    put(
        &body::Request {
            key: request.key.bytes().clone(),
            operation,
            at_ns: request.at.0,
            stable: request.stable.0,
            state,
            access: match access {
                Access::Read => 0,
                Access::Blind => 1,
                Access::Update => 2,
            },
            hedge_ns,
            clean_since: request.clean_since.map_or(0, |epoch| epoch.0),
            timeout_ns: request.timeout.0,
            opened_in: request.opened_in.0,
            quorum_earlier: match request.quorum_earlier {
                0 | 1 => 0,
                more => u32::from(more),
            },
        },
        out,
    );
    Header {
        kind: Kind::Request,
        sub,
        level,
        attempt: copy.attempt,
        key_hash: request.key.hash(),
        id: request.id,
        version: request.dep,
        config: copy.config,
    }
}

fn put_level(level: Level) -> (u8, u64) {
    match level {
        Level::First => (0, 0),
        Level::Quorum => (1, 0),
        Level::All => (2, 0),
        Level::Hedge(delay) => (3, delay.0),
        Level::Auto => (4, 0),
        Level::Disk => (5, 0),
    }
}

fn level(number: u8, hedge_ns: u64) -> Result<Level, WireError> {
    Ok(match number {
        0 => Level::First,
        1 => Level::Quorum,
        2 => Level::All,
        3 => Level::Hedge(DurationNs(hedge_ns)),
        4 => Level::Auto,
        5 => Level::Disk,
        other => return Err(field("level", other)),
    })
}

pub(super) fn request(header: &Header, bytes: Bytes) -> Result<Copy, WireError> {
    let read = body::Request::decode(bytes).map_err(|_| WireError::Body("request"))?;
    let key =
        Key::new(header.id.session, read.key).map_err(|error| field("key", error.0 as u64))?;
    if key.hash() != header.key_hash {
        return Err(field("key hash", header.key_hash));
    }
    let access = match read.access {
        0 => Access::Read,
        1 => Access::Blind,
        2 => Access::Update,
        other => return Err(field("access", other)),
    };
    let ask = match (header.sub, read.state) {
        (0, _) => Ask::Apply {
            operation: read.operation,
            access,
        },
        (1, _) => Ask::Fetch,
        (2, Some(pushed)) => Ask::Push(state(pushed)?),
        (3, _) => Ask::Touch,
        (other, _) => return Err(field("request", other)),
    };
    Ok(Copy {
        request: Arc::new(Request {
            id: header.id,
            dep: header.version,
            key,
            ask,
            level: level(header.level, read.hedge_ns)?,
            at: WallNs(read.at_ns),
            stable: Sequence(read.stable),
            clean_since: (read.clean_since != 0).then_some(Epoch(read.clean_since)),
            opened_in: ConfigNumber(read.opened_in),
            quorum_earlier: u8::try_from(read.quorum_earlier).unwrap_or(1).max(1),
            timeout: DurationNs(read.timeout_ns),
        }),
        config: header.config,
        attempt: header.attempt,
    })
}

pub(super) fn put_reply(reply: &Reply, out: &mut BytesMut) -> Header {
    let (outcome, answer, state) = match &reply.verdict {
        Verdict::Done(answer) => (0, answer.clone(), None),
        Verdict::Held => (1, Bytes::new(), None),
        Verdict::Behind => (2, Bytes::new(), None),
        Verdict::Stale => (3, Bytes::new(), None),
        Verdict::Fenced(epoch) => (4, number(epoch.0), None),
        Verdict::WrongConfig(config) => (5, number(config.0), None),
        Verdict::Unregistered => (6, Bytes::new(), None),
        Verdict::Joining => (7, Bytes::new(), None),
        Verdict::Busy => (8, Bytes::new(), None),
        Verdict::Evicted => (9, Bytes::new(), None),
        Verdict::NoLease => (10, Bytes::new(), None),
        Verdict::Malformed => (11, Bytes::new(), None),
        Verdict::State(state) => (12, Bytes::new(), Some(put_state(state))),
    };
    put(
        &body::Reply {
            server: u32::from(reply.from.server.0),
            shard: u32::from(reply.from.shard.0),
            outcome,
            answer,
            state,
            lease_left_ns: reply.lease_left.0,
            busy: u32::from(reply.busy),
            kernel_received_ns: reply.stamps[0].cast_unsigned(),
            received_ns: reply.stamps[1].cast_unsigned(),
            sent_ns: reply.stamps[2].cast_unsigned(),
            digest: reply.digest,
            stable: reply.stable.0,
        },
        out,
    );
    Header {
        kind: Kind::Reply,
        sub: 0,
        level: 0,
        attempt: reply.attempt,
        key_hash: reply.key_hash,
        id: reply.id,
        version: reply.have,
        config: reply.config,
    }
}

fn number(value: u32) -> Bytes {
    Bytes::copy_from_slice(&value.to_le_bytes())
}

fn read_number(bytes: &Bytes) -> Result<u32, WireError> {
    let array = <[u8; 4]>::try_from(&bytes[..]).map_err(|_| WireError::Body("number"))?;
    Ok(u32::from_le_bytes(array))
}

fn put_version(version: Version) -> Vec<u8> {
    let (epoch, sequence) = (
        version.epoch.0.to_le_bytes(),
        version.sequence.0.to_le_bytes(),
    );
    [&epoch[..], &sequence].concat()
}

fn read_version(bytes: &Bytes) -> Result<Version, WireError> {
    let (epoch, sequence) = bytes
        .split_first_chunk::<4>()
        .ok_or(WireError::Body("version"))?;
    let sequence = <[u8; 8]>::try_from(sequence).map_err(|_| WireError::Body("version"))?;
    Ok(Version {
        epoch: Epoch(u32::from_le_bytes(*epoch)),
        sequence: Sequence(u64::from_le_bytes(sequence)),
    })
}

pub(super) fn reply(header: &Header, bytes: Bytes) -> Result<Reply, WireError> {
    let read = body::Reply::decode(bytes).map_err(|_| WireError::Body("reply"))?;
    let server = u16::try_from(read.server).map_err(|_| field("server", read.server))?;
    let shard = u8::try_from(read.shard).map_err(|_| field("shard", read.shard))?;
    let verdict = match (read.outcome, read.state) {
        (0, _) => Verdict::Done(read.answer),
        (1, _) => Verdict::Held,
        (2, _) => Verdict::Behind,
        (3, _) => Verdict::Stale,
        (4, _) => Verdict::Fenced(Epoch(read_number(&read.answer)?)),
        (5, _) => Verdict::WrongConfig(ConfigNumber(read_number(&read.answer)?)),
        (6, _) => Verdict::Unregistered,
        (7, _) => Verdict::Joining,
        (8, _) => Verdict::Busy,
        (9, _) => Verdict::Evicted,
        (10, _) => Verdict::NoLease,
        (11, _) => Verdict::Malformed,
        (12, Some(found)) => Verdict::State(state(found)?),
        (other, _) => return Err(field("verdict", other)),
    };
    Ok(Reply {
        id: header.id,
        key_hash: header.key_hash,
        from: Endpoint {
            server: ServerId(server),
            shard: ShardId(shard),
        },
        config: header.config,
        attempt: header.attempt,
        stable: Sequence(read.stable),
        have: header.version,
        lease_left: DurationNs(read.lease_left_ns),
        digest: read.digest,
        busy: u8::try_from(read.busy).map_err(|_| field("busy", read.busy))?,
        verdict,
        stamps: [read.kernel_received_ns, read.received_ns, read.sent_ns].map(u64::cast_signed),
    })
}

pub(super) fn put_answer(answer: &Answer, out: &mut BytesMut) -> Header {
    let mut header = Header::bare(Kind::Answer);
    header.id = answer.id;
    let (sub, bytes) = match &answer.outcome {
        Outcome::Done(bytes) => (0, bytes.clone()),
        Outcome::Taken {
            version,
            found,
            written_in,
            last_loss,
            last_majority_loss,
            last_wipe,
        } => {
            header.version = *version;
            let losses = [last_loss, last_majority_loss, last_wipe].map(|it| it.0);
            let numbers = [[written_in.0].as_slice(), &losses].concat();
            let numbers = numbers.iter().flat_map(|it| it.to_le_bytes()).collect();
            let bytes = [put_version(*found), numbers].concat();
            assert_eq!(bytes.len(), 28, "a version and four numbers, without names");
            (1, Bytes::from(bytes))
        }
        Outcome::NobodyHas { need, stable, have } => {
            header.version = *have;
            let bytes = [put_version(*need), stable.0.to_le_bytes().to_vec()].concat();
            (2, Bytes::from(bytes))
        }
        Outcome::Unknown => (3, Bytes::new()),
        Outcome::Fenced(epoch) => (4, number(epoch.0)),
        Outcome::Busy => (5, Bytes::new()),
        Outcome::Evicted => (6, Bytes::new()),
        Outcome::Forgotten => (9, Bytes::new()),
        Outcome::Malformed => (7, Bytes::new()),
        Outcome::TooFewCopies => (8, Bytes::new()),
    };
    header.sub = sub;
    header.level = u8::from(answer.absent) | u8::from(answer.stable) << 1;
    out.extend_from_slice(&bytes);
    header
}

pub(super) fn answer(header: &Header, bytes: Bytes) -> Result<Answer, WireError> {
    let outcome = match header.sub {
        0 => Outcome::Done(bytes),
        1 => {
            let (found, numbers) = bytes
                .split_at_checked(12)
                .ok_or(WireError::Body("version"))?;
            let (numbers, rest) = numbers.as_chunks::<4>();
            let ([written_in, losses @ ..], []) = (numbers, rest) else {
                return Err(WireError::Body("losses"));
            };
            let losses = <[[u8; 4]; 3]>::try_from(losses).map_err(|_| WireError::Body("losses"))?;
            let losses = losses.map(|it| ConfigNumber(u32::from_le_bytes(it)));
            let [last_loss, last_majority_loss, last_wipe] = losses;
            Outcome::Taken {
                version: header.version,
                found: read_version(&bytes.slice_ref(found))?,
                written_in: Epoch(u32::from_le_bytes(*written_in)),
                last_loss,
                last_majority_loss,
                last_wipe,
            }
        }
        2 => {
            let (need, stable) = bytes
                .split_at_checked(12)
                .ok_or(WireError::Body("version"))?;
            let stable = <[u8; 8]>::try_from(stable).map_err(|_| WireError::Body("version"))?;
            Outcome::NobodyHas {
                need: read_version(&bytes.slice_ref(need))?,
                stable: Sequence(u64::from_le_bytes(stable)),
                have: header.version,
            }
        }
        3 => Outcome::Unknown,
        4 => Outcome::Fenced(Epoch(read_number(&bytes)?)),
        5 => Outcome::Busy,
        6 => Outcome::Evicted,
        9 => Outcome::Forgotten,
        7 => Outcome::Malformed,
        8 => Outcome::TooFewCopies,
        other => return Err(field("outcome", other)),
    };
    Ok(Answer {
        id: header.id,
        outcome,
        absent: header.level & 1 != 0,
        stable: header.level & 2 != 0,
    })
}
