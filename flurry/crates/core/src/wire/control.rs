//! Control messages as bytes.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use prost::Message as _;

use super::DATAGRAM_BYTES_MAX;
use super::body::{self, control::Kind as Body};
use super::consensus;
use super::copying;
use super::header::{Header, Kind, WireError};
use super::sessions;
use crate::config::{
    ADDRESS_BYTES_MAX, Config, Disk, MEMBERS_MAX, Member, REPLICAS_MAX, SHARDS_MAX, SavedLife,
};
use crate::id::{
    ConfigNumber, DurationNs, Endpoint, Epoch, Incarnation, MonoNs, ServerId, SessionId, ShardId,
    WallNs,
};
use crate::message::{Control, Departure, FoundSession, Life, Ping, SESSIONS_OPENED_MAX};

/// Bytes of a member in a configuration without its addresses, and of each address without its
/// text.
const MEMBER_BYTES: usize = 32;
const ADDRESS_BYTES: usize = 2;

/// Bytes of an opening without the members of its configuration, with room to spare.
const OPENED_BYTES: usize = 256 + SESSIONS_OPENED_MAX * 48;

// The largest of these messages: an opening, which carries the configuration, during a change.
const _: () = assert!(
    2 * MEMBERS_MAX * (MEMBER_BYTES + SHARDS_MAX * (ADDRESS_BYTES + ADDRESS_BYTES_MAX))
        + OPENED_BYTES
        <= DATAGRAM_BYTES_MAX
);

/// The server number that stands for the controller in a pong.
const CONTROLLER: u32 = 65_535;

fn small<T: TryFrom<u32>>(field: &'static str, value: u32) -> Result<T, WireError> {
    T::try_from(value).map_err(|_| WireError::Field {
        field,
        value: u64::from(value),
    })
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "a 128-bit number is cut into its two halves"
)]
fn halves(incarnation: Incarnation) -> (u64, u64) {
    ((incarnation.0 >> 64) as u64, incarnation.0 as u64)
}

fn whole(high: u64, low: u64) -> Incarnation {
    Incarnation(u128::from(high) << 64 | u128::from(low))
}

pub(crate) fn put_life(life: Life) -> body::Life {
    let (incarnation_high, incarnation_low) = halves(life.incarnation);
    body::Life {
        server: u32::from(life.endpoint.server.0),
        shard: u32::from(life.endpoint.shard.0),
        incarnation_high,
        incarnation_low,
    }
}

/// # Errors
///
/// [`WireError`] if a number names nothing, or if there is no life.
pub(crate) fn life(read: Option<body::Life>) -> Result<Life, WireError> {
    let read = read.ok_or(WireError::Body("life"))?;
    Ok(Life {
        endpoint: endpoint(read.server, read.shard)?,
        incarnation: whole(read.incarnation_high, read.incarnation_low),
    })
}

pub(super) fn endpoint(server: u32, shard: u32) -> Result<Endpoint, WireError> {
    Ok(Endpoint {
        server: ServerId(small("server", server)?),
        shard: ShardId(small("shard", shard)?),
    })
}

fn put_member(member: &Member) -> body::Member {
    let (incarnation_high, incarnation_low) = halves(member.incarnation);
    body::Member {
        server: u32::from(member.server.0),
        incarnation_high,
        incarnation_low,
        addresses: member.addresses.clone(),
        gone: member.gone,
        disk: member.disk.map(put_disk),
    }
}

fn put_disk(disk: Disk) -> body::Disk {
    let put = |saved: SavedLife| {
        let (incarnation_high, incarnation_low) = halves(saved.life);
        body::SavedLife {
            incarnation_high,
            incarnation_low,
            through_ns: saved.through.0,
        }
    };
    body::Disk {
        current: disk.current.map(put),
        next: disk.next.map(put),
        lost: disk.lost,
    }
}

fn disk(read: body::Disk) -> Disk {
    let saved = |saved: body::SavedLife| SavedLife {
        life: whole(saved.incarnation_high, saved.incarnation_low),
        through: WallNs(saved.through_ns),
    };
    Disk {
        current: read.current.map(saved),
        next: read.next.map(saved),
        lost: read.lost,
    }
}

fn member(read: body::Member) -> Result<Member, WireError> {
    Ok(Member {
        server: ServerId(small("server", read.server)?),
        incarnation: whole(read.incarnation_high, read.incarnation_low),
        addresses: read.addresses,
        gone: read.gone,
        disk: read.disk.map(disk),
    })
}

pub(super) fn put_config(config: &Config) -> body::Config {
    let next = config.next.as_deref().unwrap_or_default();
    assert!(
        config.members.len() <= MEMBERS_MAX && next.len() <= MEMBERS_MAX,
        "nobody would read a configuration of so many: {} and {}",
        config.members.len(),
        next.len()
    );
    body::Config {
        number: config.number.0,
        replicas: u32::from(config.replicas),
        shards: u32::from(config.shards),
        lease_ns: config.lease.0,
        members: config.members.iter().map(put_member).collect(),
        next: config.next.iter().flatten().map(put_member).collect(),
        changing: config.next.is_some(),
        last_loss: config.last_loss.0,
        last_majority_loss: config.last_majority_loss.0,
        last_wipe: config.last_wipe.0,
    }
}

pub(super) fn config(read: body::Config) -> Result<Arc<Config>, WireError> {
    let members = |list: Vec<body::Member>| {
        if list.len() > MEMBERS_MAX {
            return Err(WireError::Field {
                field: "number of members",
                value: list.len() as u64,
            });
        }
        list.into_iter().map(member).collect::<Result<Vec<_>, _>>()
    };
    if read.replicas == 0 || read.replicas as usize > REPLICAS_MAX {
        return Err(WireError::Field {
            field: "replicas",
            value: u64::from(read.replicas),
        });
    }
    if read.lease_ns == 0 {
        return Err(WireError::Field {
            field: "lease",
            value: 0,
        });
    }
    let next = members(read.next)?;
    Ok(Arc::new(Config {
        number: ConfigNumber(read.number),
        replicas: small("replicas", read.replicas)?,
        shards: small("shards", read.shards)?,
        lease: DurationNs(read.lease_ns),
        members: members(read.members)?,
        next: read.changing.then_some(next),
        last_loss: ConfigNumber(read.last_loss),
        last_majority_loss: ConfigNumber(read.last_majority_loss),
        last_wipe: ConfigNumber(read.last_wipe),
    }))
}

pub(super) fn put(control: &Control, out: &mut BytesMut) -> Header {
    let body = body::Control {
        kind: Some(kind(control)),
    };
    out.reserve(body.encoded_len());
    body.encode_raw(out);
    Header::bare(Kind::Control)
}

fn put_join(member: &Member, proof: u64) -> body::Join {
    body::Join {
        member: Some(put_member(member)),
        proof,
    }
}

fn put_prove(incarnation: Incarnation, proof: u64) -> body::Prove {
    let (incarnation_high, incarnation_low) = halves(incarnation);
    body::Prove {
        incarnation_high,
        incarnation_low,
        proof,
    }
}

fn kind(control: &Control) -> Body {
    match control {
        Control::Open {
            names,
            nonce,
            timeout,
            copies,
        } => Body::Open(sessions::put_open(names, *nonce, *timeout, *copies)),
        Control::OwnerLives { nonce, epoch } => Body::OwnerLives(body::OwnerLives {
            nonce: *nonce,
            epoch: epoch.0,
        }),
        Control::FindSession(name, number) => Body::FindSession(put_find(name, *number)),
        Control::FoundSession(found) => Body::FoundSession(put_found(found)),
        Control::Opened(opened) => Body::Opened(sessions::put_opened(opened)),
        Control::OpenRefused { nonce, reason } => Body::OpenRefused(body::OpenRefused {
            nonce: *nonce,
            reason: reason.clone(),
        }),
        Control::Close(owned, untold, at) => Body::Close(sessions::put_close(owned, *untold, *at)),
        Control::Closed(owned) => Body::Closed(body::Closed {
            sessions: sessions::put_owned(owned),
        }),
        Control::Fence(session, epoch) => Body::Fence(body::Fence {
            session: session.0,
            epoch: epoch.0,
        }),
        Control::Join(member, proof) => Body::Join(put_join(member, *proof)),
        Control::JoinRefused(server, reason) => {
            Body::JoinRefused(put_join_refused(*server, reason))
        }
        Control::Prove(incarnation, proof) => Body::Prove(put_prove(*incarnation, *proof)),
        Control::ConfigQuery => Body::ConfigQuery(body::ConfigQuery {}),
        Control::Config(config) => Body::Config(put_config(config)),
        Control::Settled(owned, loss, unheard) => {
            Body::Settled(sessions::put_settled(owned, *loss, *unheard))
        }
        Control::SettledHeard(session, epoch, loss) => Body::SettledHeard(body::SettledHeard {
            session: session.0,
            epoch: epoch.0,
            last_loss: loss.0,
        }),
        Control::Depart(server, departure) => Body::Depart(body::Depart {
            server: u32::from(server.0),
            departure: put_departure(*departure),
        }),
        Control::DepartHeard(server, departure, refusal) => {
            Body::DepartHeard(put_depart_heard(*server, *departure, refusal))
        }
        Control::StatusQuery => Body::StatusQuery(body::StatusQuery {}),
        Control::UseStream => Body::UseStream(body::UseStream {}),
        Control::Status(json) => Body::Status(body::Status { json: json.clone() }),
        Control::Batch(batch) => Body::Batch(copying::put_batch(batch)),
        Control::Pong(server, number, sent) => Body::Pong(put_pong(*server, *number, *sent)),
        Control::FenceHeld(life, session, epoch, at) => {
            Body::FenceHeld(put_fence_held(*life, *session, *epoch, *at))
        }
        Control::Ping(ping) => Body::Ping(put_ping(ping)),
        Control::Pull(pull) => Body::Pull(copying::put_pull(pull)),
        Control::List(list) => Body::List(sessions::put_list(list)),
        Control::Listed(listed) => Body::Listed(sessions::put_listed(listed)),
        Control::Consensus(from, message) => Body::Consensus(consensus::put(*from, message)),
        Control::Synced(life, number) => Body::Synced(body::Synced {
            life: Some(put_life(*life)),
            number: number.0,
        }),
    }
}

fn put_join_refused(server: ServerId, reason: &str) -> body::JoinRefused {
    body::JoinRefused {
        server: u32::from(server.0),
        reason: reason.to_owned(),
    }
}

fn join_refused(read: body::JoinRefused) -> Result<Control, WireError> {
    let server = ServerId(small("server", read.server)?);
    Ok(Control::JoinRefused(server, read.reason))
}

fn put_ping(ping: &Ping) -> body::Ping {
    body::Ping {
        life: Some(put_life(ping.life)),
        number: ping.number.0,
        sent_ns: ping.sent.0,
        quiet_ns: ping.quiet.0,
        unheard_ns: ping.unheard.0,
    }
}

fn ping(read: body::Ping) -> Result<Ping, WireError> {
    Ok(Ping {
        life: life(read.life)?,
        number: ConfigNumber(read.number),
        sent: MonoNs(read.sent_ns),
        quiet: DurationNs(read.quiet_ns),
        unheard: DurationNs(read.unheard_ns),
    })
}

fn put_find(name: &str, number: u64) -> body::FindSession {
    body::FindSession {
        name: name.to_owned(),
        number,
    }
}

fn put_pong(server: Option<ServerId>, number: ConfigNumber, sent: MonoNs) -> body::Pong {
    body::Pong {
        server: server.map_or(CONTROLLER, |server| u32::from(server.0)),
        number: number.0,
        sent_ns: sent.0,
    }
}

fn put_found(found: &FoundSession) -> body::FoundSession {
    body::FoundSession {
        number: found.number,
        session: found.session.0,
        epoch: found.epoch.0,
        at_ns: found.at.0,
        unknown_through: found.unknown_through.0,
        config: Some(put_config(&found.config)),
    }
}

fn found(read: body::FoundSession) -> Result<FoundSession, WireError> {
    Ok(FoundSession {
        number: read.number,
        session: SessionId(read.session),
        epoch: Epoch(read.epoch),
        at: WallNs(read.at_ns),
        unknown_through: Epoch(read.unknown_through),
        config: config(read.config.ok_or(WireError::Body("configuration"))?)?,
    })
}

fn put_fence_held(life: Life, session: SessionId, epoch: Epoch, at: WallNs) -> body::FenceHeld {
    body::FenceHeld {
        life: Some(put_life(life)),
        session: session.0,
        epoch: epoch.0,
        at_ns: at.0,
    }
}

fn fence_held(read: body::FenceHeld) -> Result<Control, WireError> {
    let (session, epoch) = (SessionId(read.session), Epoch(read.epoch));
    let at = WallNs(read.at_ns);
    Ok(Control::FenceHeld(life(read.life)?, session, epoch, at))
}

fn put_depart_heard(server: ServerId, departure: Departure, refusal: &str) -> body::DepartHeard {
    body::DepartHeard {
        server: u32::from(server.0),
        departure: put_departure(departure),
        refusal: refusal.to_owned(),
    }
}

fn depart_heard(read: body::DepartHeard) -> Result<Control, WireError> {
    let server = ServerId(small("server", read.server)?);
    Ok(Control::DepartHeard(
        server,
        departure(read.departure)?,
        read.refusal,
    ))
}

fn join(read: body::Join) -> Result<Control, WireError> {
    let asks = member(read.member.ok_or(WireError::Body("member"))?)?;
    let asks = Member {
        gone: false,
        ..asks
    };
    Ok(Control::Join(asks, read.proof))
}

fn put_departure(departure: Departure) -> u32 {
    match departure {
        Departure::Removed => 0,
        Departure::Drained => 1,
        Departure::TakenBack => 2,
    }
}

fn departure(number: u32) -> Result<Departure, WireError> {
    match number {
        0 => Ok(Departure::Removed),
        1 => Ok(Departure::Drained),
        2 => Ok(Departure::TakenBack),
        _ => Err(WireError::Field {
            field: "departure",
            value: u64::from(number),
        }),
    }
}

pub(super) fn read(bytes: Bytes) -> Result<Control, WireError> {
    let read = body::Control::decode(bytes).map_err(|_| WireError::Body("control message"))?;
    Ok(match read.kind.ok_or(WireError::Body("control message"))? {
        Body::Open(it) => sessions::open(it)?,
        Body::OwnerLives(it) => Control::OwnerLives {
            nonce: it.nonce,
            epoch: Epoch(it.epoch),
        },
        Body::FindSession(it) => Control::FindSession(it.name, it.number),
        Body::FoundSession(it) => Control::FoundSession(found(it)?),
        Body::Opened(it) => Control::Opened(sessions::opened(it)?),
        Body::OpenRefused(it) => Control::OpenRefused {
            nonce: it.nonce,
            reason: it.reason,
        },
        Body::Close(it) => {
            Control::Close(sessions::owned(&it.sessions)?, it.untold, WallNs(it.at_ns))
        }
        Body::Closed(it) => Control::Closed(sessions::owned(&it.sessions)?),
        Body::Fence(it) => Control::Fence(SessionId(it.session), Epoch(it.epoch)),
        Body::FenceHeld(it) => fence_held(it)?,
        Body::Join(it) => join(it)?,
        Body::JoinRefused(it) => join_refused(it)?,
        Body::Prove(it) => Control::Prove(whole(it.incarnation_high, it.incarnation_low), it.proof),
        Body::ConfigQuery(_) => Control::ConfigQuery,
        Body::Config(it) => Control::Config(config(it)?),
        Body::Ping(it) => Control::Ping(ping(it)?),
        Body::Pong(it) => Control::Pong(
            match it.server {
                CONTROLLER => None,
                server => Some(ServerId(small("server", server)?)),
            },
            ConfigNumber(it.number),
            MonoNs(it.sent_ns),
        ),
        Body::Pull(it) => Control::Pull(copying::pull(it)?),
        Body::Batch(it) => Control::Batch(copying::batch(it)?),
        Body::Synced(it) => Control::Synced(life(it.life)?, ConfigNumber(it.number)),
        Body::List(it) => Control::List(sessions::list(&it)?),
        Body::Listed(it) => Control::Listed(sessions::listed(it)?),
        Body::Settled(it) => Control::Settled(
            sessions::owned(&it.sessions)?,
            ConfigNumber(it.last_loss),
            DurationNs(it.unheard_ns),
        ),
        Body::SettledHeard(it) => Control::SettledHeard(
            SessionId(it.session),
            Epoch(it.epoch),
            ConfigNumber(it.last_loss),
        ),
        Body::Depart(it) => Control::Depart(
            ServerId(small("server", it.server)?),
            departure(it.departure)?,
        ),
        Body::DepartHeard(it) => depart_heard(it)?,
        Body::StatusQuery(_) => Control::StatusQuery,
        Body::Consensus(it) => consensus::read(it)?,
        Body::UseStream(_) => Control::UseStream,
        Body::Status(it) => Control::Status(it.json),
    })
}
