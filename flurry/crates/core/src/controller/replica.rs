//! A controller in a group: one member leads and decides, and the others keep its decisions.
//!
//! A single controller is a group of one.

use std::collections::VecDeque;

use prost::Message as _;

use super::hearing::Hearing;
use super::{Controller, ControllerParams, Destination, Others, Output, SnapshotError, snapshot};
use crate::consensus::{self, Ballot, Consensus, ConsensusParams, MemberId, Record, Stamp};
use crate::id::{ConfigNumber, DurationNs, MonoNs};
use crate::message::{Control, Message};
use crate::wire::stored;

/// The silence after which the status shows a controller as silent. A controller sends several
/// messages in this time.
const SILENT: DurationNs = DurationNs::millis(1_000);

/// The most messages that wait for a write. Further messages are lost, as on a network.
const WAITING_MAX: usize = 8_192;

/// A task for the driver of a leading controller.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all of them are the large one, and none is kept"
)]
pub enum Step {
    /// Store this, and do nothing else before calling [`Leader::stored`].
    Store(Vec<u8>),
    /// Send this.
    Send(Destination, Message),
}

/// The controller of a leading member, and its outputs that wait for a write.
///
/// It handles messages while a write is under way, but sends none.
#[derive(Debug, Clone, Hash)]
pub struct Leader {
    pub(super) controller: Controller,
    waiting: VecDeque<Output>,
    storing: bool,
    /// The configuration in the state that is being stored.
    pub(super) stores: ConfigNumber,
    /// The latest configuration that is stored.
    pub(super) sent: ConfigNumber,
}

impl Leader {
    /// Begins with the state that the previous leader stored, or with a new cluster if there is
    /// none.
    ///
    /// # Errors
    ///
    /// [`SnapshotError`] for bytes that are no state, or numbers that do not fit together.
    pub fn new(
        now: MonoNs,
        params: ControllerParams,
        stored: Option<&[u8]>,
    ) -> Result<Self, SnapshotError> {
        let controller = match stored {
            None => Controller::new(now, params)?,
            Some(bytes) => Controller::restore(now, params, bytes)?,
        };
        let number = controller.number();
        Ok(Self {
            controller,
            waiting: VecDeque::new(),
            storing: false,
            stores: number,
            sent: number,
        })
    }

    /// Returns the controller.
    #[must_use]
    pub fn controller(&self) -> &Controller {
        &self.controller
    }

    /// Returns the controller, for its inputs.
    pub fn controller_mut(&mut self) -> &mut Controller {
        &mut self.controller
    }

    /// Returns whether all its decisions are stored.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let waits = |it: &Output| matches!(it, Output::Persist(_));
        !self.storing && !self.waiting.iter().any(waits)
    }

    /// Notes that the write of the last [`Step::Store`] is done.
    ///
    /// # Panics
    ///
    /// When none is under way.
    pub fn stored(&mut self, now: MonoNs) {
        assert!(self.storing, "a write was requested before it completed");
        assert!(
            self.sent <= self.stores,
            "a later state has all that an earlier one has"
        );
        self.storing = false;
        self.sent = self.stores;
        self.controller.is_sent(now, self.sent);
    }

    /// Returns the next task for the driver, in order; `None` also while a write is under way.
    pub fn poll_step(&mut self) -> Option<Step> {
        while let Some(output) = self.controller.poll_output() {
            let is_send = matches!(output, Output::Send(..));
            if !(is_send && self.waiting.len() >= WAITING_MAX) {
                self.waiting.push_back(output);
            }
        }
        self.controller.unsent = self.sent != self.controller.number();
        if self.storing {
            return None;
        }
        if let Some(Output::Persist(_)) = self.waiting.front() {
            self.storing = true;
            self.stores = self.controller.number();
            let state = self.latest_state();
            assert!(
                !state.is_empty(),
                "an empty state would be that of a new cluster"
            );
            return Some(Step::Store(state));
        }
        match self.waiting.pop_front()? {
            Output::Send(to, message) => Some(Step::Send(to, message)),
            Output::Persist(bytes) => Some(Step::Store(bytes)),
        }
    }

    /// Returns the last of the states that wait to be stored, and drops the earlier ones that it
    /// includes.
    fn latest_state(&mut self) -> Vec<u8> {
        let mut latest = Vec::new();
        self.waiting.retain_mut(|it| match it {
            Output::Persist(bytes) => {
                latest = std::mem::take(bytes);
                false
            }
            Output::Send(..) => true,
        });
        latest
    }
}

/// A task for the driver of a member of a group of controllers. The driver does them in order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all of them are the large one, and none is kept"
)]
pub enum ReplicaOutput {
    /// Replace the bytes on disk by these and sync them, then call [`Replica::persisted`]. The
    /// messages behind this need not wait.
    Persist(Vec<u8>),
    /// Send this.
    Send(Destination, Message),
    /// Send this to another member.
    Tell(MemberId, Message),
    /// The member leads from now on.
    Elected,
    /// The member does not lead any more.
    Deposed,
}

/// The members of a group, as one of them sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Group {
    /// The parameters of the consensus.
    pub consensus: ConsensusParams,
    /// The members' addresses in the same order, by which a disk recognises its group.
    pub addresses: Vec<String>,
}

/// A member of a group of controllers.
#[derive(Debug, Clone, Hash)]
pub struct Replica {
    params: ControllerParams,
    me: MemberId,
    addresses: Vec<String>,
    pub(super) consensus: Consensus,
    pub(super) leader: Option<Leader>,
    hearing: Hearing,
    /// The senders of status queries, in the driver's numbers, which a standby cannot answer
    /// itself.
    asked: VecDeque<u64>,
}

impl Replica {
    /// Returns a member with the state of its disk; `None` stands for an empty disk.
    ///
    /// # Errors
    ///
    /// [`SnapshotError`] for a disk that is damaged or belongs to another group, or for numbers
    /// that do not fit together.
    pub fn new(
        now: MonoNs,
        params: ControllerParams,
        group: Group,
        disk: Option<&[u8]>,
    ) -> Result<Self, SnapshotError> {
        // A standby reports wrong parameters at once as well.
        Controller::new(now, params)?;
        let record = match disk {
            Some(bytes) => Some(read(bytes, &group.addresses)?),
            None => None,
        };
        if let Some(record) = record.as_ref().filter(|it| !it.state.is_empty()) {
            Controller::restore(now, params, &record.state)?;
        }
        Ok(Self {
            params,
            me: group.consensus.me,
            addresses: group.addresses,
            consensus: Consensus::new(now, group.consensus, record),
            leader: None,
            hearing: Hearing::new(now, params.lease),
            asked: VecDeque::new(),
        })
    }

    /// Handles a message; `sender` is the driver's number for the sender. A member that does not
    /// lead answers no messages for the controller, and notes who sent them.
    pub fn handle_message(&mut self, now: MonoNs, sender: u64, message: Message) {
        self.hearing.wakes(now, self.params.lease);
        self.hearing.note(now, &message);
        match message {
            Message::Control(Control::Consensus(from, message)) => {
                self.consensus.handle_message(now, from, message);
            }
            message => {
                let asks = message == Message::Control(Control::StatusQuery);
                let others = asks.then(|| self.others(now));
                let Some(controller) = self.leading() else {
                    return self.asked.extend(asks.then_some(sender));
                };
                if let Some(others) = others {
                    controller.others = others;
                }
                controller.handle_message(now, sender, message);
            }
        }
    }

    /// Returns its knowledge of the other controllers.
    fn others(&self, now: MonoNs) -> Others {
        let silent = self.consensus.silent(now, SILENT);
        let members = self.consensus.members();
        let place = |id| members.iter().position(|it| *it == id);
        let silent = silent.filter_map(|id| self.addresses.get(place(id)?).cloned());
        Others {
            count: members.len(),
            silent: silent.collect(),
        }
    }

    /// Handles the time of [`Self::poll_timeout`].
    pub fn handle_timeout(&mut self, now: MonoNs) {
        self.hearing.wakes(now, self.params.lease);
        if self.consensus.poll_timeout() <= now {
            self.consensus.handle_timeout(now);
        }
        if let Some(controller) = self.leading()
            && controller.poll_timeout() <= now
        {
            controller.handle_timeout(now);
        }
    }

    /// Returns the time at which to call [`Self::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> MonoNs {
        let leader = self.leader.as_ref();
        let own = leader.map_or(MonoNs(u64::MAX), |it| it.controller.poll_timeout());
        self.consensus.poll_timeout().min(own)
    }

    /// Notes that the bytes of the last [`ReplicaOutput::Persist`] are on disk.
    pub fn persisted(&mut self, now: MonoNs) {
        self.consensus.persisted(now);
    }

    /// Measures all silence anew, because this machine's clock stood still or jumped.
    pub fn clock_jumped(&mut self, now: MonoNs) {
        self.consensus.clock_jumped(now);
        self.hearing.clock_jumped(now);
        if let Some(leader) = &mut self.leader {
            leader.controller.clock_jumped(now);
        }
    }

    /// Lets another member lead at once, if this one does.
    pub fn resign(&mut self, now: MonoNs) {
        self.consensus.resign(now);
    }

    /// Returns the controller, if this member leads as far as it knows. While it is not sure, the
    /// controller goes on deciding, and its messages wait. If it becomes sure again, no other
    /// member led in between.
    pub fn leading(&mut self) -> Option<&mut Controller> {
        self.leader.as_mut().map(Leader::controller_mut)
    }

    /// Returns the controller, if this member leads as far as it knows.
    #[must_use]
    pub fn controller(&self) -> Option<&Controller> {
        self.leader.as_ref().map(Leader::controller)
    }

    /// Returns whether it leads and all its decisions are stored.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.leader.as_ref().is_some_and(Leader::is_settled)
    }

    /// Returns the consensus of the members.
    #[must_use]
    pub fn consensus(&self) -> &Consensus {
        &self.consensus
    }

    /// Returns the next task for the driver.
    ///
    /// # Errors
    ///
    /// [`SnapshotError`] if it was elected, and the stored state of the group is damaged.
    pub fn poll_output(&mut self, now: MonoNs) -> Result<Option<ReplicaOutput>, SnapshotError> {
        if let Some(sender) = self.asked.pop_front() {
            let nothing = Message::Control(Control::Status(String::new()));
            let output = ReplicaOutput::Send(Destination::Sender(sender), nothing);
            return Ok(Some(output));
        }
        loop {
            if let Some(output) = self.consensus.poll_output() {
                match self.carry_out(now, output)? {
                    None => continue,
                    some => return Ok(some),
                }
            }
            if !self.consensus.is_leader(now) {
                return Ok(None);
            }
            match self.leader.as_mut().and_then(Leader::poll_step) {
                None => return Ok(None),
                Some(Step::Send(to, message)) => return Ok(Some(ReplicaOutput::Send(to, message))),
                Some(Step::Store(bytes)) => self.consensus.propose(now, bytes.into()),
            }
        }
    }

    fn carry_out(
        &mut self,
        now: MonoNs,
        output: consensus::Output,
    ) -> Result<Option<ReplicaOutput>, SnapshotError> {
        Ok(match output {
            consensus::Output::Persist(record) => {
                Some(ReplicaOutput::Persist(write(&record, &self.addresses)))
            }
            consensus::Output::Send(to, message) => {
                let control = Control::Consensus(self.me, message);
                Some(ReplicaOutput::Tell(to, Message::Control(control)))
            }
            consensus::Output::Elected(state) => {
                assert!(
                    self.leader.is_none(),
                    "a leader is elected once, until it is deposed"
                );
                let stored = (!state.is_empty()).then_some(&*state);
                let mut leader = Leader::new(now, self.params, stored)?;
                leader.controller.heard_before(&self.hearing);
                self.leader = Some(leader);
                Some(ReplicaOutput::Elected)
            }
            consensus::Output::Stored => {
                if let Some(leader) = &mut self.leader {
                    leader.stored(now);
                }
                None
            }
            consensus::Output::Deposed => self.leader.take().map(|_| ReplicaOutput::Deposed),
        })
    }
}

fn write(record: &Record, addresses: &[String]) -> Vec<u8> {
    let stored = stored::StoredReplica {
        promised: record.promised.0,
        ballot: record.stamp.ballot.0,
        version: record.stamp.version,
        state: record.state.clone(),
        members: addresses.to_vec(),
    }
    .encode_to_vec();
    snapshot::with_checksum(&stored)
}

fn read(bytes: &[u8], addresses: &[String]) -> Result<Record, SnapshotError> {
    let stored = stored::StoredReplica::decode(snapshot::checked(bytes)?)
        .map_err(|error| SnapshotError::Damaged(error.to_string()))?;
    if !may_follow(&stored.members, addresses) {
        return Err(SnapshotError::OtherGroup {
            was: stored.members.join(","),
            wanted: addresses.join(","),
        });
    }
    Ok(Record {
        promised: Ballot(stored.promised),
        stamp: Stamp {
            ballot: Ballot(stored.ballot),
            version: stored.version,
        },
        state: stored.state,
    })
}

/// Returns true if any leader of the new group knows each state that the old group may have stored.
/// This holds if the old members that vote in the new group meet every majority of the old one.
fn may_follow(old: &[String], new: &[String]) -> bool {
    let stay = new.iter().filter(|it| old.contains(it)).count();
    let voters = stay.min(new.len() / 2 + 1);
    voters >= old.len() - old.len() / 2
}

#[cfg(test)]
#[path = "replica_tests.rs"]
mod tests;
