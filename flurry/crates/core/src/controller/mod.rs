//! The controller, which decides on the members of the cluster and the owners of sessions.
//!
//! Only the controller gives out epochs and configurations. It decides one at a time, and each
//! decision is on disk before it sends messages about it. Operations do not need the controller:
//! while it is away they go on, and only openings and changes of the members wait.
//!
//! The driver must carry out outputs in order: an [`Output::Persist`] is on disk before the driver
//! sends the outputs behind it.

mod departing;
mod hearing;
mod joining;
mod members;
mod replica;
mod sessions;
mod snapshot;
mod verify;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::bugs::{Bug, planted};
use crate::config::{Config, MEMBERS_MAX, Member, REPLICAS_MAX, SHARDS_MAX};
use crate::id::{
    ConfigNumber, DurationNs, Endpoint, Epoch, Incarnation, MonoNs, ServerId, SessionId, ShardId,
};
use crate::message::{Control, Life, Message};
use sessions::{Opening, Session};

pub use replica::{Group, Leader, Replica, ReplicaOutput, Step};
pub use snapshot::SnapshotError;

/// The interval at which it sends unacknowledged configurations and epochs again.
const AGAIN: DurationNs = DurationNs::millis(50);

/// The shortest lease.
const LEASE_MIN: DurationNs = DurationNs::millis(100);

/// The longest lease.
const LEASE_MAX: DurationNs = DurationNs::millis(60_000);

/// A controller that did nothing for longer than a lease divided by this number has stood still.
const GAP_SHARE: u64 = 2;

const _: () = assert!(LEASE_MIN.0 < LEASE_MAX.0 && AGAIN.0 < LEASE_MIN.0);
const _: () = assert!(GAP_SHARE > 1, "a gap is shorter than a lease");

/// The receiver of a message of the controller.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Destination {
    /// The sender of the message that this answers, by the driver's number.
    Sender(u64),
    /// A shard of a server, and its address if messages go over a network.
    Server(Endpoint, Option<String>),
}

/// A task for the driver of a controller. The driver does them in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all of them are the large one, and few are kept"
)]
pub enum Output {
    /// Replace the stored state by these bytes, and sync them.
    Persist(Vec<u8>),
    /// Send this.
    Send(Destination, Message),
}

/// The parameters of a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ControllerParams {
    /// Copies of each key.
    pub replicas: u8,
    /// Threads of each server.
    pub shards: u8,
    /// Servers that must have joined before the first configuration.
    pub servers_min: u8,
    /// The duration of a server's lease. The first configuration of a cluster fixes it: a
    /// controller with a stored configuration uses the lease of that one.
    pub lease: DurationNs,
}

/// The reason why a controller cannot start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParamsError {
    /// No replicas, or too many.
    #[error("replicas: it is {0}; wanted 1 to 8; hint: three is usual")]
    Replicas(u8),
    /// Fewer servers than replicas.
    #[error(
        "servers: there are {servers}; wanted at least as many as the {replicas} replicas; hint: start more servers, or lower replicas"
    )]
    FewServers {
        /// Servers.
        servers: u8,
        /// Replicas.
        replicas: u8,
    },
    /// More servers than a cluster can have.
    #[error(
        "servers: {0} are waited for; wanted at most {MEMBERS_MAX}; hint: a key is on its replicas only, so few servers hold many"
    )]
    Servers(u8),
    /// No shard, or too many.
    #[error(
        "shards: it is {0}; wanted 1 to {SHARDS_MAX}; hint: one for each core that a server may use"
    )]
    Shards(u8),
    /// A lease that is too short for any network, or longer than anybody wants to wait.
    #[error(
        "lease: it is {} ms; wanted 100 ms to 60 s; hint: 1s is usual; a server that is silent for a lease is counted out", .0.0 / 1_000_000
    )]
    Lease(DurationNs),
}

/// The controller's knowledge of one shard of one incarnation of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Seen {
    /// The configuration that the shard goes by.
    number: ConfigNumber,
    /// The time of its last message.
    heard: MonoNs,
    /// The configuration in which it has copied its part.
    synced: ConfigNumber,
    /// The latest possible time at which it granted a lease to a server outside of the
    /// configuration that it goes by.
    granted: MonoNs,
}

/// An incarnation that is no longer in the configuration, but may not know it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Retiring {
    /// Its machine; empty if it is not known.
    machine: String,
    /// The time at which a new incarnation, or an operator, proved that it has ended.
    ended: Option<MonoNs>,
    /// The latest possible time at which the controller granted it a lease.
    granted: MonoNs,
    /// The latest possible time at which anybody granted it a lease; known once every member has
    /// gone by a configuration without it.
    last_grant: Option<MonoNs>,
}

/// The controller.
#[derive(Debug, Clone, Hash)]
pub struct Controller {
    params: ControllerParams,
    config: Option<Arc<Config>>,
    sessions: BTreeMap<SessionId, Session>,
    names: BTreeMap<String, SessionId>,
    seen: BTreeMap<Life, Seen>,
    /// The times at which this process received messages of incarnations before it led.
    earlier: BTreeMap<Life, MonoNs>,
    /// The time at which it began to lead. No earlier controller granted a lease after that.
    began: MonoNs,
    retiring: BTreeMap<Life, Retiring>,
    /// Incarnations that were asked whether they are alive, and the number that proves it.
    asked: BTreeMap<ServerId, (Incarnation, u64)>,
    /// Servers that ask to join, and the time of their last request.
    joining: BTreeMap<ServerId, (Member, MonoNs)>,
    /// Incarnations that an operator has declared gone for good.
    removed: BTreeSet<(ServerId, Incarnation)>,
    /// Servers that an operator takes out of service.
    drained: BTreeSet<ServerId>,
    /// Servers that were members since this controller began to lead, and no longer are.
    left: BTreeSet<ServerId>,
    /// The time at which the configuration was decided, or at which this controller began.
    decided: MonoNs,
    /// True if the configuration is not stored yet. Then it was not sent either, and a new member
    /// cannot know that it is one.
    unsent: bool,
    /// The fewest servers that could grant each other leases in any configuration that a member may
    /// still go by.
    majority_min: usize,
    /// The fewest servers that agree on an answer at level `quorum` in any configuration that a
    /// member may still go by.
    quorum_min: u8,
    /// The time since which every member goes by it.
    agreed: Option<MonoNs>,
    /// The session with which the next round of reminders of epochs begins.
    fences_from: SessionId,
    /// True if a server was lost while the members changed.
    lost_amid_change: bool,
    /// The number of copies of a key that may be missing.
    lost: u32,
    /// The time of its last input.
    woken: MonoNs,
    /// The time since which it has listened without a gap. Before that it may have missed messages.
    listening: MonoNs,
    again: MonoNs,
    /// The other controllers of its group, for the status.
    others: Others,
    outbox: VecDeque<Output>,
}

/// The group that a controller belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Others {
    /// The number of controllers, including itself.
    count: usize,
    /// The addresses of controllers that it has not heard lately.
    silent: Vec<String>,
}

impl Controller {
    /// Returns a controller of a new cluster.
    ///
    /// # Errors
    ///
    /// [`ParamsError`] when the numbers do not fit together.
    pub fn new(now: MonoNs, params: ControllerParams) -> Result<Self, ParamsError> {
        if params.replicas == 0 || usize::from(params.replicas) > REPLICAS_MAX {
            return Err(ParamsError::Replicas(params.replicas));
        }
        if params.shards == 0 || usize::from(params.shards) > SHARDS_MAX {
            return Err(ParamsError::Shards(params.shards));
        }
        if usize::from(params.servers_min) > MEMBERS_MAX {
            return Err(ParamsError::Servers(params.servers_min));
        }
        if params.servers_min < params.replicas {
            return Err(ParamsError::FewServers {
                servers: params.servers_min,
                replicas: params.replicas,
            });
        }
        if params.lease < LEASE_MIN || params.lease > LEASE_MAX {
            return Err(ParamsError::Lease(params.lease));
        }
        Ok(Self {
            params,
            config: None,
            sessions: BTreeMap::new(),
            names: BTreeMap::new(),
            seen: BTreeMap::new(),
            earlier: BTreeMap::new(),
            began: now,
            retiring: BTreeMap::new(),
            asked: BTreeMap::new(),
            joining: BTreeMap::new(),
            removed: BTreeSet::new(),
            drained: BTreeSet::new(),
            left: BTreeSet::new(),
            decided: now,
            unsent: false,
            majority_min: usize::MAX,
            quorum_min: u8::MAX,
            agreed: None,
            fences_from: SessionId(0),
            lost_amid_change: false,
            lost: 0,
            woken: now,
            listening: now,
            again: now,
            others: Others {
                count: 1,
                silent: Vec::new(),
            },
            outbox: VecDeque::new(),
        })
    }

    /// Returns the configuration, once enough servers have joined.
    #[must_use]
    pub fn config(&self) -> Option<&Arc<Config>> {
        self.config.as_ref()
    }

    fn number(&self) -> ConfigNumber {
        let config = self.config.as_ref();
        config.map_or(ConfigNumber(0), |config| config.number)
    }

    /// Returns the number of sessions that have had an owner.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Returns the sessions whose owner may have had writes on a lost server, and has not reported
    /// since that its writes are on every replica. If such an owner ends, its successor is in
    /// doubt.
    pub fn sessions_in_doubt(&self) -> impl Iterator<Item = (SessionId, Epoch)> + '_ {
        let in_doubt = self
            .sessions
            .iter()
            .filter(|(_, it)| it.lossy && !it.closed);
        in_doubt.map(|(id, it)| (*id, it.epoch))
    }

    /// Returns the servers that are drained.
    pub fn drained(&self) -> impl Iterator<Item = ServerId> + '_ {
        self.drained.iter().copied()
    }

    /// Handles a message; `sender` is the driver's number for its sender.
    pub fn handle_message(&mut self, now: MonoNs, sender: u64, message: Message) {
        self.notice_gap(now);
        let Message::Control(control) = message else {
            return;
        };
        match control {
            Control::Open {
                names,
                nonce,
                timeout,
                copies,
            } => {
                let opening = Opening {
                    nonce,
                    timeout,
                    copies: copies.of(self.replicas()),
                };
                self.open(now, sender, &names, opening);
            }
            Control::FindSession(name, number) => self.find_session(sender, &name, number),
            Control::Close(owned, untold, at) => self.close(sender, &owned, untold, at),
            Control::Settled(owned, loss, unheard) => {
                self.owners_live(now, &owned, unheard);
                self.settled(sender, &owned, loss);
            }
            Control::FenceHeld(life, session, epoch, at) => {
                self.owners_time(session, at);
                self.fence_held(life, session, epoch);
            }
            Control::Join(member, proof) => self.join(now, sender, member, proof),
            Control::ConfigQuery => {
                if let Some(config) = self.config.clone() {
                    self.reply(sender, Control::Config(config));
                }
            }
            Control::Ping(ping) => self.ping(now, sender, ping),
            Control::Synced(life, number) => {
                if let Some(seen) = self.seen.get_mut(&life) {
                    seen.synced = seen.synced.max(number);
                }
            }
            Control::Depart(server, departure) => self.depart(now, sender, server, departure),
            Control::StatusQuery => {
                let status = Control::Status(self.status(now));
                self.reply(sender, status);
            }
            _ => {}
        }
        self.progress(now);
    }

    /// Measures the silence of the servers anew, because this machine's clock stood still or
    /// jumped.
    pub fn clock_jumped(&mut self, now: MonoNs) {
        self.listening = now;
        self.woken = now;
    }

    /// Returns the copies of each key. They are fixed once the first servers have joined, whatever
    /// number this controller was started with.
    fn replicas(&self) -> u8 {
        let config = self.config.as_ref();
        config.map_or(self.params.replicas, |config| config.replicas)
    }

    /// Returns the shards of each server, which are fixed in the same way.
    fn shards(&self) -> u8 {
        let config = self.config.as_ref();
        config.map_or(self.params.shards, |config| config.shards)
    }

    /// Returns the duration of a lease of the servers.
    fn lease(&self) -> DurationNs {
        let config = self.config.as_ref();
        config.map_or(self.params.lease, |config| config.lease)
    }

    /// Handles the time of [`Self::poll_timeout`].
    pub fn handle_timeout(&mut self, now: MonoNs) {
        self.notice_gap(now);
        self.progress(now);
        if now >= self.again {
            self.again = now.after(AGAIN);
            self.tell_config();
            self.fence_again();
        }
    }

    /// Returns the time at which to call [`Self::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> MonoNs {
        self.again
    }

    /// Measures the silence of the servers anew if this process stood still, stopped or waiting for
    /// its disk. It has not read the messages of that time, which are in its sockets.
    fn notice_gap(&mut self, now: MonoNs) {
        let gap = DurationNs(self.lease().0 / GAP_SHARE);
        if now.since(self.woken) > gap && !planted(Bug::OwnStallBlamed) {
            self.listening = now;
        }
        self.woken = now;
    }

    /// Returns the next task for the driver.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outbox.pop_front()
    }

    fn reply(&mut self, sender: u64, control: Control) {
        let output = Output::Send(Destination::Sender(sender), Message::Control(control));
        self.outbox.push_back(output);
    }

    fn notify(&mut self, life: Life, control: Control) {
        let address = self.address_of(life);
        let to = Destination::Server(life.endpoint, address);
        self.outbox
            .push_back(Output::Send(to, Message::Control(control)));
    }

    fn address_of(&self, life: Life) -> Option<String> {
        let mut listed = self.config.iter().flat_map(|config| config.everybody());
        let member = listed.find(|member| {
            member.server == life.endpoint.server && member.incarnation == life.incarnation
        })?;
        let shard = usize::from(life.endpoint.shard.0);
        member.addresses.get(shard).cloned()
    }

    fn persist(&mut self) {
        let bytes = self.snapshot();
        debug_assert!(
            Self::restore(self.woken, self.params, &bytes).is_ok_and(|it| {
                it.config == self.config
                    && it.names == self.names
                    && it.retiring.len() == self.retiring.len()
            }),
            "a stored state can be read again: no other copy is left after a restart"
        );
        self.outbox.push_back(Output::Persist(bytes));
    }

    /// Returns every shard of every incarnation that is a member.
    fn lives(&self) -> Vec<Life> {
        let Some(config) = &self.config else {
            return Vec::new();
        };
        let shards = config.shards;
        config
            .lives()
            .into_iter()
            .flat_map(|(server, incarnation)| {
                (0..shards).map(move |shard| Life {
                    endpoint: Endpoint {
                        server,
                        shard: ShardId(shard),
                    },
                    incarnation,
                })
            })
            .collect()
    }
}
