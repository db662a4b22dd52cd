//! Checks the invariants that must hold at every step.

use std::collections::{BTreeMap, BTreeSet};

use bytes::BytesMut;
use flurry_core::config::{Config, majority};
use flurry_core::consensus::Ballot;
use flurry_core::controller::Controller;
use flurry_core::id::{
    DurationNs, Epoch, Incarnation, MonoNs, OperationId, ServerId, SessionId, Version,
};
use flurry_core::message::{Control, Life, Message, Reply, Verdict};
use flurry_core::portal::Portal;
use flurry_core::wire;

use crate::world::{Machine, NodeId, World};

/// Bytes of the longest operation of a caller, with its key.
const OPERATION_BYTES_MAX: usize = 60;

/// The simulation's own record of what the controller received about owners.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    /// Time of the last report of each session's owner to each controller, by its clock.
    heard: BTreeMap<(NodeId, SessionId), (Epoch, MonoNs)>,
    /// Epochs that followed a closed one, even if the closing owner never received the
    /// confirmation.
    after_closed: BTreeSet<(SessionId, Epoch)>,
}

impl Owners {
    /// Returns whether the owner before this one had closed the session.
    pub(crate) fn had_closed(&self, session: SessionId, epoch: Epoch) -> bool {
        self.after_closed.contains(&(session, epoch))
    }

    /// Delivers a message to the controller. Returns a violation of I25: a standby took a session
    /// although the owner's last report was more recent than the standby's silence limit.
    pub(crate) fn hear(
        &mut self,
        (place, controller): (NodeId, &mut Controller),
        now: MonoNs,
        sender: u64,
        message: Message,
    ) -> Option<String> {
        if let Message::Control(Control::Settled(sessions, _, unheard)) = &message {
            // An owner that does not hear the controller counts as silent since it last did.
            let lived = MonoNs(now.0.saturating_sub(unheard.0));
            for it in sessions {
                self.heard.insert((place, it.session), (it.epoch, lived));
            }
        }
        let Message::Control(Control::Open {
            names,
            timeout: limit,
            ..
        }) = &message
        else {
            controller.handle_message(now, sender, message);
            return None;
        };
        let (names, limit) = (names.clone(), *limit);
        let owners = |controller: &Controller| -> Vec<Option<(SessionId, Epoch, bool)>> {
            names.iter().map(|it| controller.owner_of(it)).collect()
        };
        let before = owners(controller);
        controller.handle_message(now, sender, message);
        let after = owners(controller).into_iter();
        let changes = before
            .into_iter()
            .zip(after)
            .filter_map(|it| it.0.zip(it.1));
        let taken = changes.filter_map(|((id, epoch, closed), (_, after, _))| {
            (after != epoch).then_some((id, epoch, closed, after))
        });
        taken
            .filter_map(|it| self.took(place, now, it, limit))
            .next()
    }

    /// Notes that an opening got a session. Returns a violation of I25.
    fn took(
        &mut self,
        place: NodeId,
        now: MonoNs,
        (id, epoch, closed, after): (SessionId, Epoch, bool, Epoch),
        limit: DurationNs,
    ) -> Option<String> {
        if closed {
            self.after_closed.insert((id, after));
            return None;
        }
        let heard = self.heard.get(&(place, id)).filter(|it| it.0 == epoch);
        let silent = now.since(heard?.1);
        (silent < limit).then(|| {
            format!(
                "I25: a standby took session {} from epoch {} after {} ns of silence, and waits for {} ns",
                id.0, epoch.0, silent.0, limit.0
            )
        })
    }
}

impl World {
    /// Encodes and decodes a message as the wire does, checks that it stays the same, and returns
    /// it.
    pub(crate) fn through_the_wire(&mut self, message: Message) -> Message {
        let mut bytes = BytesMut::new();
        wire::encode(&message, &mut bytes);
        match wire::decode(&bytes.freeze()) {
            Ok(read) if read == message => {}
            Ok(read) => self.violate(format!("the wire changed {message:?} to {read:?}")),
            Err(error) => self.violate(format!("the wire lost {message:?}: {error}")),
        }
        message
    }

    /// A message with flipped bits: it should be noticed and dropped.
    pub(crate) fn damage(&mut self, message: &Message) -> Option<Message> {
        let mut bytes = BytesMut::new();
        wire::encode(message, &mut bytes);
        let index = self.dice.between(8, bytes.len() as u64 - 1);
        let bit = self.dice.below(8);
        bytes[usize::try_from(index).unwrap_or(8)] ^= 1 << bit;
        wire::decode(&bytes.freeze()).ok()
    }

    /// Checks I27: operations that some server does not have yet take no more memory than the owner
    /// may use, however long that lasts. One operation may exceed the limit.
    pub(crate) fn check_backlog(&mut self, portal: &Portal) {
        let (bytes, most) = (portal.held_bytes(), self.scenario.backlog_bytes_max);
        if bytes > most + OPERATION_BYTES_MAX {
            self.violate(format!(
                "I27: an owner holds {bytes} bytes of operations and may hold {most}"
            ));
        }
    }

    /// Ends the logs of all routers, and checks that every copy has its row then.
    pub fn close_logs(&mut self) {
        for place in 0..self.nodes.len() {
            let mut machine = std::mem::replace(&mut self.nodes[place].machine, Machine::Down);
            if let Machine::Portal(_, Some(router)) = &mut machine {
                router.close();
                let _ = self.drain_router(place, router, Some(place));
                let open = self.open_copies.get(&place).map_or(0, BTreeSet::len);
                let logged = self
                    .open_copies
                    .get(&place)
                    .is_some_and(|open| open.iter().any(|(_, _, attempt)| *attempt < 31));
                if open > 0 && logged && router.is_logging() {
                    self.violate(format!("I16: {open} copies have no row in the log"));
                }
            }
            self.nodes[place].machine = machine;
        }
    }

    /// Checks I18, that the controller counts out no server that it could hear, and I19, that it
    /// counts out no server with the last copy of a key, unless that server has ended or has the
    /// key on a disk too. Both are checked when the controller decides; it may store several
    /// decisions at once long after that.
    pub(crate) fn check_decision(&mut self, ballot: Ballot, config: &Config) {
        // With many losses a server may go unheard by chance.
        let scenario = &self.scenario;
        let clear = scenario.loss <= 10_000 && scenario.slow <= 1_000;
        let lives = config.lives();
        let before = std::mem::replace(&mut self.deciding, (ballot, lives.clone()));
        if before.0 != ballot {
            return;
        }
        for (server, incarnation) in before.1 {
            let counted = lives.contains(&(server, incarnation));
            if !counted {
                self.check_last_copy(server, incarnation, config);
            }
            if !clear {
                continue;
            }
            let taken_out = counted || self.ever_drained.contains(&server.0);
            if !taken_out && self.lives_on(server, incarnation) && self.was_heard(server.0) {
                self.violate(format!(
                    "I18: server {} was counted out, and nothing had happened to it",
                    server.0
                ));
            }
        }
    }

    /// Checks I10: after an opening, too few servers execute an operation of an earlier owner for it
    /// to be answered.
    fn check_late_answer(&mut self, life: Life, reply: &Reply) {
        let fenced = self.fenced.get(&reply.id.session.0).copied().unwrap_or(0);
        if reply.id.epoch.0 >= fenced {
            return;
        }
        let enough = if self.scenario.several_copies {
            majority(usize::from(self.scenario.replicas))
        } else {
            1
        };
        let servers = self.late_answers.entry(reply.id).or_default();
        servers.insert(life.endpoint.server);
        if servers.len() >= enough {
            let count = servers.len();
            self.violate(format!(
                "I10: {life:?} executed {:?} after epoch {fenced} was open, as the {count}. server",
                reply.id
            ));
        }
    }

    fn check_last_copy(&mut self, server: ServerId, incarnation: Incarnation, config: &Config) {
        let mut gone = config.members.iter().filter(|it| it.gone);
        let full = gone.any(|it| it.server == server && it.incarnation == incarnation);
        let wiped = config.is_wiped() && !self.scenario.disk;
        if full && wiped && self.lives_on(server, incarnation) {
            let server = server.0;
            self.violate(format!(
                "I19: server {server} was counted out, and was the last that had all of some key"
            ));
        }
    }

    /// Checks I22: a drained server is not let in.
    pub(crate) fn check_counted_out(&mut self, config: &Config, drained: &[ServerId]) {
        let lives = config.lives();
        let before = std::mem::replace(&mut self.counted, lives.clone());
        self.losses.note(config, &before);
        let came = lives.iter().filter(|it| !before.contains(it));
        let drained = came.map(|it| it.0).find(|it| drained.contains(it));
        if let Some(server) = drained {
            self.violate(format!(
                "I22: server {} was let in, and is drained",
                server.0
            ));
        }
        self.all_lost |= config.is_wiped();
    }

    /// Returns true if this incarnation of a server still has all of its memory.
    fn lives_on(&self, server: ServerId, incarnation: Incarnation) -> bool {
        let places = self.places_of(server.0);
        places
            .iter()
            .all(|place| match &self.nodes[*place].machine {
                Machine::Server(machine) => machine.life().incarnation == incarnation,
                _ => false,
            })
    }

    /// Returns true if nothing kept the controller from hearing a server for two leases.
    fn was_heard(&self, server: u16) -> bool {
        let since = self.now.saturating_sub(2 * self.scenario.lease);
        let mut places = self.places_of(server).into_iter();
        places.all(|place| self.nodes[place].troubled_until < since)
    }

    /// Checks I20: a write that was acknowledged at a level that promises copies is on a majority
    /// of the configured replicas, however many servers are left.
    pub(crate) fn check_copies(&mut self, id: OperationId) {
        let held = self.holders.get(&id).map_or(0, BTreeSet::len);
        let wanted = majority(usize::from(self.scenario.replicas));
        if held < wanted {
            self.violate(format!(
                "I20: {id:?} was acknowledged with {held} copies of {wanted}"
            ));
        }
    }

    /// Checks what every reply of every server must satisfy: I1 to I4 and I10.
    pub(crate) fn check_reply(&mut self, life: Life, config: Option<&Config>, reply: &Reply) {
        let server = life.endpoint.server;
        let holds = |it: &Config| it.holds_fully(server, life.incarnation, reply.key_hash);
        // A write leaves its own version or a later one.
        let read = matches!(reply.verdict, Verdict::Done(_)) && reply.have < reply.id.version();
        if read && !config.is_some_and(holds) {
            self.violate(format!(
                "I4: {life:?} answered a read of what it has not copied: {reply:?}"
            ));
        }
        let write_digest = match &reply.verdict {
            Verdict::Done(_) if reply.digest != 0 && reply.have == reply.id.version() => {
                Some((reply.id, reply.digest))
            }
            Verdict::State(state) if !state.evicted && state.version.sequence.0 > 0 => Some((
                OperationId {
                    session: reply.id.session,
                    epoch: state.version.epoch,
                    sequence: state.version.sequence,
                },
                state.digest,
            )),
            _ => None,
        };
        if let Some((id, digest)) = write_digest {
            let known = self.digests.entry((reply.key_hash, id)).or_insert(digest);
            if *known != digest {
                let known = *known;
                self.violate(format!(
                    "I1, I3: {id:?} has two states, {known:x} and {reply:?}"
                ));
            }
        }
        // Stale: it has a later write of the owner, or had this one and knows that all had it.
        let has = match reply.verdict {
            Verdict::Done(_) | Verdict::Held => reply.have >= reply.id.version(),
            Verdict::Stale => true,
            _ => false,
        };
        if has {
            let holders = self.holders.entry(reply.id).or_default();
            holders.insert(reply.from.server);
        }
        if let Verdict::Done(_) = reply.verdict {
            self.check_late_answer(life, reply);
        }
        let none = Version::NONE;
        // A change of the members may take a key away, and give it back. Short keys of two sessions may
        // have one hash.
        let which = (life, reply.id.session, reply.key_hash);
        let place = self.versions.entry(which);
        let (number, known) = *place.or_insert((reply.config, none));
        if number == reply.config && reply.have < known && reply.have != none {
            let what = format!("I2: {life:?} went from {known} to {}", reply.have);
            self.violate(what);
        }
        self.versions.insert(which, (reply.config, reply.have));
    }
}
