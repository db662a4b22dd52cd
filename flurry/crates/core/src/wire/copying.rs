//! The records that a joining server copies, as bytes.

use super::body::{self, cursor::At};
use super::control::{endpoint, life, put_life};
use super::header::WireError;
use super::operation::{put_state, state};
use crate::id::{ConfigNumber, Epoch, Key, Sequence, SessionId, Version, WallNs};
use crate::message::{Batch, Cursor, Pull, SessionState};

pub(super) fn put_pull(pull: &Pull) -> body::Pull {
    body::Pull {
        life: Some(put_life(pull.life)),
        number: pull.config.0,
        cursor: Some(put_cursor(pull.cursor)),
        lists: pull.lists,
        keys: pull
            .keys
            .iter()
            .map(|key| body::KeyName {
                session: key.session().0,
                key: key.bytes().clone(),
            })
            .collect(),
    }
}

pub(super) fn pull(read: body::Pull) -> Result<Pull, WireError> {
    let keys = read
        .keys
        .into_iter()
        .map(|it| Key::new(SessionId(it.session), it.key).map_err(|_| WireError::Body("pull")));
    Ok(Pull {
        life: life(read.life)?,
        config: ConfigNumber(read.number),
        cursor: cursor(read.cursor)?,
        lists: read.lists,
        keys: keys.collect::<Result<_, WireError>>()?,
    })
}

fn put_cursor(cursor: Cursor) -> body::Cursor {
    let at = match cursor {
        Cursor::Sessions(after) => At::SessionsAfter(after.0),
        Cursor::Keys(below) => At::KeysBelow(below),
        Cursor::Missing(below) => At::MissingBelow(below),
    };
    body::Cursor { at: Some(at) }
}

fn cursor(read: Option<body::Cursor>) -> Result<Cursor, WireError> {
    match read.and_then(|it| it.at) {
        Some(At::SessionsAfter(after)) => Ok(Cursor::Sessions(SessionId(after))),
        Some(At::KeysBelow(below)) => Ok(Cursor::Keys(below)),
        Some(At::MissingBelow(below)) => Ok(Cursor::Missing(below)),
        None => Err(WireError::Body("cursor")),
    }
}

pub(super) fn put_batch(batch: &Batch) -> body::Batch {
    body::Batch {
        server: u32::from(batch.from.server.0),
        shard: u32::from(batch.from.shard.0),
        number: batch.config.0,
        cursor: Some(put_cursor(batch.cursor)),
        next: batch.next.map(put_cursor),
        entries: batch
            .entries
            .iter()
            .map(|(key, state)| body::Entry {
                session: key.session().0,
                key: key.bytes().clone(),
                state: Some(put_state(state)),
            })
            .collect(),
        sessions: batch
            .sessions
            .iter()
            .map(|it| body::SessionState {
                session: it.session.0,
                epoch: it.epoch.0,
                stable: it.stable.0,
                used_in: it.used_in.0,
                at_ns: it.at.0,
            })
            .collect(),
        listed: batch
            .listed
            .iter()
            .map(|(key, version)| body::ListedKey {
                session: key.session().0,
                key: key.bytes().clone(),
                epoch: version.epoch.0,
                sequence: version.sequence.0,
            })
            .collect(),
    }
}

pub(super) fn batch(read: body::Batch) -> Result<Batch, WireError> {
    let entries = read.entries.into_iter().map(|entry| {
        let key =
            Key::new(SessionId(entry.session), entry.key).map_err(|_| WireError::Body("batch"))?;
        let found = entry.state.ok_or(WireError::Body("batch"))?;
        Ok((key, state(found)?))
    });
    let listed = read.listed.into_iter().map(|it| {
        let key = Key::new(SessionId(it.session), it.key).map_err(|_| WireError::Body("batch"))?;
        let (epoch, sequence) = (Epoch(it.epoch), Sequence(it.sequence));
        Ok((key, Version { epoch, sequence }))
    });
    Ok(Batch {
        from: endpoint(read.server, read.shard)?,
        config: ConfigNumber(read.number),
        cursor: cursor(read.cursor)?,
        next: read.next.map(|next| cursor(Some(next))).transpose()?,
        entries: entries.collect::<Result<_, WireError>>()?,
        sessions: read
            .sessions
            .into_iter()
            .map(|it| SessionState {
                session: SessionId(it.session),
                epoch: Epoch(it.epoch),
                stable: Sequence(it.stable),
                used_in: ConfigNumber(it.used_in),
                at: WallNs(it.at_ns),
            })
            .collect(),
        listed: listed.collect::<Result<_, WireError>>()?,
    })
}
