//! The sessions of an owner, as bytes: opening and closing them, and asking for their keys.

use super::WireError;
use super::body;
use super::control::{config, endpoint, put_config};
use crate::id::{ConfigNumber, DurationNs, Epoch, Sequence, SessionId, WallNs};
use crate::message::{
    Control, Copies, List, Listed, Opened, OpenedSession, Owned, SESSIONS_OPENED_MAX,
};

/// The number that stands for [`Copies::Majority`] on the wire.
const MAJORITY: u32 = 65_535;

pub(super) fn put_open(
    names: &[String],
    nonce: u64,
    timeout: DurationNs,
    copies: Copies,
) -> body::Open {
    body::Open {
        names: names.to_vec(),
        nonce,
        timeout_ns: timeout.0,
        copies: match copies {
            Copies::Count(count) => u32::from(count),
            Copies::Majority => MAJORITY,
        },
    }
}

pub(super) fn copies(read: u32) -> Result<Copies, WireError> {
    if read == MAJORITY {
        return Ok(Copies::Majority);
    }
    let count = u8::try_from(read).map_err(|_| WireError::Body("number of copies"))?;
    Ok(Copies::Count(count))
}

pub(super) fn open(read: body::Open) -> Result<Control, WireError> {
    if read.names.len() > SESSIONS_OPENED_MAX {
        return Err(WireError::Body("number of sessions"));
    }
    Ok(Control::Open {
        names: read.names,
        nonce: read.nonce,
        timeout: DurationNs(read.timeout_ns),
        copies: copies(read.copies)?,
    })
}

pub(super) fn put_owned(sessions: &[Owned]) -> Vec<body::Owned> {
    let put = |it: &Owned| body::Owned {
        session: it.session.0,
        epoch: it.epoch.0,
    };
    sessions.iter().map(put).collect()
}

pub(super) fn owned(read: &[body::Owned]) -> Result<Vec<Owned>, WireError> {
    if read.len() > SESSIONS_OPENED_MAX {
        return Err(WireError::Body("number of sessions"));
    }
    let owned = |it: &body::Owned| Owned {
        session: SessionId(it.session),
        epoch: Epoch(it.epoch),
    };
    Ok(read.iter().map(owned).collect())
}

pub(super) fn put_opened(opened: &Opened) -> body::Opened {
    let put = |it: &OpenedSession| body::OpenedSession {
        session: it.session.0,
        epoch: it.epoch.0,
        clean_since: it.clean_since.map_or(0, |epoch| epoch.0),
        unknown_through: it.unknown_through.0,
        at_ns: it.at.0,
        copies_earlier: u32::from(it.copies_earlier),
        quorum_earlier: u32::from(it.quorum_earlier),
    };
    body::Opened {
        nonce: opened.nonce,
        sessions: opened.sessions.iter().map(put).collect(),
        config: Some(put_config(&opened.config)),
    }
}

pub(super) fn opened(read: body::Opened) -> Result<Opened, WireError> {
    if read.sessions.len() > SESSIONS_OPENED_MAX {
        return Err(WireError::Body("number of sessions"));
    }
    let session = |it: &body::OpenedSession| OpenedSession {
        session: SessionId(it.session),
        epoch: Epoch(it.epoch),
        clean_since: (it.clean_since != 0).then_some(Epoch(it.clean_since)),
        unknown_through: Epoch(it.unknown_through),
        at: WallNs(it.at_ns),
        copies_earlier: u8::try_from(it.copies_earlier).unwrap_or(1).max(1),
        quorum_earlier: u8::try_from(it.quorum_earlier).unwrap_or(1).max(1),
    };
    Ok(Opened {
        nonce: read.nonce,
        sessions: read.sessions.iter().map(session).collect(),
        config: config(read.config.ok_or(WireError::Body("configuration"))?)?,
    })
}

pub(super) fn put_close(sessions: &[Owned], untold: bool, at: WallNs) -> body::Close {
    body::Close {
        sessions: put_owned(sessions),
        untold,
        at_ns: at.0,
    }
}

pub(super) fn put_settled(
    sessions: &[Owned],
    loss: ConfigNumber,
    unheard: DurationNs,
) -> body::Settled {
    body::Settled {
        sessions: put_owned(sessions),
        last_loss: loss.0,
        unheard_ns: unheard.0,
    }
}

pub(super) fn put_list(list: &List) -> body::List {
    body::List {
        sessions: put_owned(&list.sessions),
        number: list.config.0,
        at_ns: list.at.0,
        ended: list.ended,
        below: list.below,
        records: list.records,
        stable: list.stable.0,
        kind: list.kind,
    }
}

pub(super) fn list(read: &body::List) -> Result<List, WireError> {
    Ok(List {
        sessions: owned(&read.sessions)?,
        stable: Sequence(read.stable),
        config: ConfigNumber(read.number),
        at: WallNs(read.at_ns),
        ended: read.ended,
        below: read.below,
        records: read.records,
        kind: read.kind,
    })
}

pub(super) fn put_listed(listed: &Listed) -> body::Listed {
    body::Listed {
        server: u32::from(listed.from.server.0),
        shard: u32::from(listed.from.shard.0),
        question: Some(put_list(&listed.question)),
        next: listed.next.unwrap_or(0),
        keys: listed.keys.clone(),
    }
}

pub(super) fn listed(read: body::Listed) -> Result<Listed, WireError> {
    Ok(Listed {
        from: endpoint(read.server, read.shard)?,
        question: list(&read.question.ok_or(WireError::Body("list"))?)?,
        next: (read.next != 0).then_some(read.next),
        keys: read.keys,
    })
}
