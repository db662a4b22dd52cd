//! The state of a controller that must outlive its process, as bytes.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use prost::Message as _;

use super::sessions::{Session, Writes};
use super::{Controller, ControllerParams, ParamsError, Retiring, joining};
use crate::config::Member;
use crate::id::{Endpoint, Epoch, Incarnation, MonoNs, ServerId, SessionId, ShardId, WallNs};
use crate::message::{Control, Life, Message};
use crate::wire::{WireError, control, stored};

/// The reason why a stored state cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The bytes are no stored state.
    #[error(
        "controller state: it cannot be read ({0}); expected what a controller wrote; hint: never start without it or with an older copy, since epochs would be given out twice; one of a group may start with an empty directory"
    )]
    Damaged(String),
    /// It was written by a member of another group.
    #[error(
        "controller state: it belongs to the controllers {was}, which are {wanted} now; expected the same ones, or one of them replaced; hint: change one controller at a time, and restart the others in between"
    )]
    OtherGroup {
        /// The addresses of that group.
        was: String,
        /// The addresses of this group.
        wanted: String,
    },
    /// The parameters do not fit together.
    #[error(transparent)]
    Params(#[from] ParamsError),
}

impl From<WireError> for SnapshotError {
    fn from(error: WireError) -> Self {
        Self::Damaged(error.to_string())
    }
}

impl Controller {
    pub(super) fn snapshot(&self) -> Vec<u8> {
        let sessions = self
            .sessions
            .iter()
            .map(|(id, session)| stored::StoredSession {
                session: id.0,
                name: session.name.clone(),
                epoch: session.epoch.0,
                nonce: session.nonce,
                closed: session.closed,
                clean_since: session.clean_since.map_or(0, |epoch| epoch.0),
                unknown_through: session.unknown_through.0,
                at_ns: session.at.0,
                lossy: session.lossy,
                free: session.free,
                past_nonces: session.past_nonces.iter().copied().collect(),
                copies: put_copies(session.writes.copies),
                lost: session.writes.lost,
                copies_earlier: put_copies(session.earlier.copies),
                lost_earlier: session.earlier.lost,
                quorum: put_copies(session.writes.quorum),
                quorum_earlier: put_copies(session.earlier.quorum),
            });
        let mut config = BytesMut::new();
        if let Some(known) = &self.config {
            let message = Message::Control(Control::Config(Arc::clone(known)));
            crate::wire::encode(&message, &mut config);
        }
        let stored = stored::StoredController {
            config: config.freeze(),
            sessions: sessions.collect(),
            retiring: self
                .retiring
                .keys()
                .copied()
                .map(control::put_life)
                .collect(),
            retiring_at: self
                .retiring
                .values()
                .map(|it| it.machine.clone())
                .collect(),
            removed: self
                .removed
                .iter()
                .map(|(server, incarnation)| control::put_life(whole_life(*server, *incarnation)))
                .collect(),
            drained: self.drained.iter().map(|it| u32::from(it.0)).collect(),
            majority_min: u32::try_from(self.majority_min).unwrap_or(u32::MAX),
            lost_amid_change: self.lost_amid_change,
            lost: self.lost,
            quorum_min: put_copies(self.quorum_min),
        }
        .encode_to_vec();
        with_checksum(&stored)
    }

    /// Returns a controller that goes on from a stored state.
    ///
    /// # Errors
    ///
    /// [`SnapshotError`] when the bytes are damaged or the numbers do not fit.
    pub fn restore(
        now: MonoNs,
        params: ControllerParams,
        bytes: &[u8],
    ) -> Result<Self, SnapshotError> {
        let damaged = |what: &str| SnapshotError::Damaged(what.to_owned());
        let stored = stored::StoredController::decode(checked(bytes)?)
            .map_err(|error| SnapshotError::Damaged(error.to_string()))?;
        let mut controller = Self::new(now, params)?;
        controller.config = read_config(&stored.config)?;
        for it in stored.sessions {
            let id = SessionId(it.session);
            // Earlier controllers kept the clean time of a session whose last owner left a doubt.
            let clean = (it.clean_since > it.unknown_through).then_some(Epoch(it.clean_since));
            controller.names.insert(it.name.clone(), id);
            let session = Session {
                name: it.name,
                epoch: Epoch(it.epoch),
                nonce: it.nonce,
                closed: it.closed,
                clean_since: clean,
                unknown_through: Epoch(it.unknown_through),
                at: WallNs(it.at_ns),
                lossy: it.lossy,
                fenced: BTreeSet::new(),
                opening: None,
                place: 0,
                free: it.free,
                past_nonces: it.past_nonces.into(),
                heard: now,
                writes: writes(it.copies, it.lost, it.quorum),
                earlier: writes(it.copies_earlier, it.lost_earlier, it.quorum_earlier),
            };
            controller.sessions.insert(id, session);
        }
        controller.lost = stored.lost;
        controller.quorum_min = read_copies(stored.quorum_min);
        controller.lost_amid_change = stored.lost_amid_change;
        controller.majority_min = usize::try_from(stored.majority_min).unwrap_or(usize::MAX);
        for it in stored.removed {
            let life = control::life(Some(it))?;
            let removed = (life.endpoint.server, life.incarnation);
            controller.removed.insert(removed);
        }
        for it in stored.drained {
            let number =
                u16::try_from(it).map_err(|_| damaged("a server's number is too large"))?;
            controller.drained.insert(ServerId(number));
        }
        let mut machines = stored.retiring_at.into_iter();
        for it in stored.retiring {
            let machine = machines.next().unwrap_or_default();
            controller.waits_again(now, control::life(Some(it))?, machine);
        }
        Ok(controller)
    }

    /// Waits for a retiring incarnation as if it had been left out just now, because this process
    /// does not know how long an earlier one has waited. A later incarnation that is a member on
    /// the same machine proves that it has ended.
    fn waits_again(&mut self, now: MonoNs, life: Life, machine: String) {
        let server = life.endpoint.server;
        let same = |it: &Member| {
            let here = machine.is_empty() || joining::machine(it) == machine;
            it.server == server && !it.gone && here
        };
        let config = self.config.as_ref();
        let later = config.is_some_and(|it| it.everybody().any(same));
        let removed = self.removed.contains(&(server, life.incarnation));
        let ended = (later || removed).then_some(now);
        let retiring = Retiring {
            machine,
            ended,
            granted: now,
            last_grant: None,
        };
        self.retiring.insert(life, retiring);
    }
}

/// Returns the bytes preceded by their CRC-32C.
pub(super) fn with_checksum(stored: &[u8]) -> Vec<u8> {
    let sum = crc32c::crc32c(stored);
    [&sum.to_le_bytes()[..], stored].concat()
}

/// Returns the bytes behind a CRC-32C, if it matches them.
pub(super) fn checked(bytes: &[u8]) -> Result<&[u8], SnapshotError> {
    let damaged = |what: &str| SnapshotError::Damaged(what.to_owned());
    let (sum, stored) = bytes
        .split_first_chunk::<4>()
        .ok_or_else(|| damaged("it is too short"))?;
    if u32::from_le_bytes(*sum) != crc32c::crc32c(stored) {
        return Err(damaged("its checksum does not match"));
    }
    Ok(stored)
}

/// The stored number of copies that stands for no writes.
const NONE: u32 = 65_535;

fn put_copies(copies: u8) -> u32 {
    if copies == Writes::NONE.copies {
        NONE
    } else {
        u32::from(copies)
    }
}

/// Returns the counts of a stored session. A file without these fields is from a controller for
/// which every write had one copy.
fn writes(copies: u32, lost: u32, quorum: u32) -> Writes {
    Writes {
        copies: read_copies(copies),
        lost,
        // An earlier controller kept no quorum. Without owners there is none in any case.
        quorum: read_copies(if copies == NONE { NONE } else { quorum }),
    }
}

fn read_copies(stored: u32) -> u8 {
    match stored {
        NONE => Writes::NONE.copies,
        some => u8::try_from(some).unwrap_or(1).max(1),
    }
}

/// Returns the first shard of an incarnation, which stands for all its shards.
fn whole_life(server: ServerId, incarnation: Incarnation) -> Life {
    Life {
        endpoint: Endpoint {
            server,
            shard: ShardId(0),
        },
        incarnation,
    }
}

fn read_config(bytes: &Bytes) -> Result<Option<Arc<crate::config::Config>>, SnapshotError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    match crate::wire::decode(bytes)? {
        Message::Control(Control::Config(config)) => Ok(Some(config)),
        _ => Err(SnapshotError::Damaged(
            "it holds no configuration".to_owned(),
        )),
    }
}
