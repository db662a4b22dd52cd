//! The controllers of the world: one, or a group of three of which one leads.

use std::collections::BTreeMap;

use flurry_core::config::Config;
use flurry_core::consensus::{ConsensusParams, MemberId};
use flurry_core::controller::{
    Controller, ControllerParams, Destination, Group, Replica, ReplicaOutput,
};
use flurry_core::id::{DurationNs, MonoNs, ServerId};
use flurry_core::message::{Control, Message};

use super::{Machine, NodeId, What, World};
use crate::scenario::MS;

/// Size of a part: short, so that most states need several.
const PART_BYTES_MAX: usize = 200;

/// The nodes on which controllers run, and the content of their disks.
#[derive(Debug, Default)]
pub(super) struct Controllers {
    places: Vec<NodeId>,
    disks: BTreeMap<NodeId, Vec<u8>>,
}

fn member(place: NodeId) -> MemberId {
    MemberId(u32::try_from(place).unwrap_or(u32::MAX))
}

impl World {
    /// Returns the places of the controllers.
    #[must_use]
    pub fn controllers(&self) -> &[NodeId] {
        &self.controllers.places
    }

    /// Returns the controller that decides, if one does.
    #[must_use]
    pub fn controller(&self) -> Option<&Controller> {
        let place = self.leading_place()?;
        match &self.nodes[place].machine {
            Machine::Controller(replica) => replica.controller(),
            _ => None,
        }
    }

    /// Returns the place of the leading controller; for a single one, whether it is up or not.
    #[must_use]
    pub fn leading_place(&self) -> Option<NodeId> {
        let leads = |place: &&NodeId| match &self.nodes[**place].machine {
            Machine::Controller(replica) => replica.consensus().is_leader(self.local(**place)),
            _ => false,
        };
        self.controllers.places.iter().find(leads).copied()
    }

    /// Writes the states of the controllers to the trace.
    pub(crate) fn say_controllers(&self) {
        for place in &self.controllers.places {
            self.say(&format!("{place}: {:?}", self.nodes[*place].machine));
        }
    }

    /// Starts the cluster's controllers.
    pub(super) fn add_controllers(&mut self) {
        for _ in 0..self.scenario.controllers {
            let place = self.add_place();
            self.controllers.places.push(place);
        }
        for place in self.controllers.places.clone() {
            self.start_controller(place);
        }
    }

    fn controller_params(&self) -> ControllerParams {
        ControllerParams {
            replicas: self.scenario.replicas,
            shards: self.scenario.shards,
            servers_min: self.scenario.servers,
            lease: DurationNs(self.scenario.lease),
        }
    }

    /// Starts a controller from the content of its disk.
    pub fn start_controller(&mut self, place: NodeId) {
        let several = self.controllers.places.len() > 1;
        let seed = if several { self.dice.number() } else { 0 };
        let places = &self.controllers.places;
        let group = Group {
            consensus: ConsensusParams {
                me: member(place),
                members: places.iter().copied().map(member).collect(),
                silence: DurationNs(self.scenario.lease),
                seed,
                part_bytes_max: PART_BYTES_MAX,
            },
            addresses: places.iter().map(ToString::to_string).collect(),
        };
        let now = self.local(place);
        let disk = self.controllers.disks.get(&place).map(Vec::as_slice);
        match Replica::new(now, self.controller_params(), group, disk) {
            Ok(mut replica) => {
                replica.handle_timeout(now);
                self.start(place, Machine::Controller(Box::new(replica)));
            }
            Err(error) => self.violate(format!("a controller cannot start: {error}")),
        }
    }

    /// Starts the controllers that are down.
    pub fn start_controllers(&mut self) {
        for place in self.controllers.places.clone() {
            if matches!(self.nodes[place].machine, Machine::Down) {
                self.start_controller(place);
            }
        }
    }

    /// Empties the disk of a controller that is down, if the others have the newest state.
    pub(crate) fn lose_controller_disk(&mut self, place: NodeId) {
        let durable = |it: &NodeId| match &self.nodes[*it].machine {
            Machine::Controller(replica) => replica.consensus().durable().stamp,
            _ => flurry_core::consensus::Stamp::default(),
        };
        let mut others = self.controllers.places.iter().filter(|it| **it != place);
        let newest = others.clone().map(durable).max().unwrap_or_default();
        if newest.version > 0 && others.all(|it| durable(it) == newest) {
            self.controllers.disks.remove(&place);
        }
    }

    /// Puts a message to the controllers on the network, for each of them.
    pub(super) fn transmit_to_controllers(&mut self, from: NodeId, message: &Message) {
        for place in self.controllers.places.clone() {
            self.transmit(from, place, message.clone());
        }
    }

    pub(super) fn hear_controller(
        &mut self,
        (from, to): (NodeId, NodeId),
        local: MonoNs,
        message: Message,
    ) {
        let Machine::Controller(replica) = &mut self.nodes[to].machine else {
            return;
        };
        let sender = from as u64;
        if matches!(message, Message::Control(Control::Consensus(..))) {
            return replica.handle_message(local, sender, message);
        }
        if let Some(controller) = replica.leading() {
            let taken = self.owners.hear((to, controller), local, sender, message);
            if let Some(what) = taken {
                self.violate(what);
            }
        }
    }

    /// Checks what a leading controller has decided and stored.
    fn check_controller(&mut self, replica: &Replica, local: MonoNs) {
        let leads = replica.consensus().is_leader(local);
        let Some(controller) = replica.controller().filter(|_| leads) else {
            return;
        };
        let Some(config) = controller.config() else {
            return;
        };
        self.check_decision(replica.consensus().durable().promised, config);
        if !replica.is_settled() {
            return;
        }
        self.server_lost |= config.last_loss.0 > 0;
        let drained: Vec<ServerId> = controller.drained().collect();
        let config: &Config = config;
        self.check_counted_out(config, &drained);
        if config.next.is_some() {
            self.changing_at = Some(self.now);
        }
    }

    pub(super) fn after_controller(&mut self, place: NodeId, replica: &mut Replica) -> MonoNs {
        let local = self.local(place);
        loop {
            let output = match replica.poll_output(local) {
                Ok(Some(output)) => output,
                Ok(None) => break,
                Err(error) => {
                    self.violate(format!("a controller was elected with {error}"));
                    break;
                }
            };
            match output {
                ReplicaOutput::Persist(bytes) if self.controllers.places.len() > 1 => {
                    let slow = !self.healed && self.dice.chance(20_000);
                    let time = self.dice.between(100, if slow { 1_500_000 } else { 3_000 });
                    let process = self.nodes[place].started;
                    let what = What::StateWritten(process, bytes);
                    self.push(self.now + time * MS / 1_000, place, what);
                }
                ReplicaOutput::Persist(bytes) => {
                    self.controllers.disks.insert(place, bytes);
                    replica.persisted(local);
                }
                ReplicaOutput::Send(to, message) => {
                    let to = match to {
                        Destination::Sender(sender) => usize::try_from(sender).ok(),
                        Destination::Server(endpoint, listed) => {
                            self.find_listed(listed.as_deref(), endpoint)
                        }
                    };
                    if let Some(to) = to {
                        self.transmit(place, to, message);
                    }
                }
                ReplicaOutput::Tell(to, message) => {
                    let to = usize::try_from(to.0).unwrap_or(0);
                    self.transmit(place, to, message);
                }
                ReplicaOutput::Elected | ReplicaOutput::Deposed => {}
            }
        }
        self.check_controller(replica, local);
        replica.poll_timeout()
    }

    /// Reports to a controller that its state is on its disk.
    pub(super) fn state_written(&mut self, place: NodeId, process: u64, bytes: Vec<u8>) {
        let local = self.local(place);
        let node = &mut self.nodes[place];
        if let Machine::Controller(replica) = &mut node.machine
            && node.started == process
        {
            self.controllers.disks.insert(place, bytes);
            replica.persisted(local);
        }
    }
}
