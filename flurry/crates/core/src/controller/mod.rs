//! The controller: who takes part, and who owns what.
//!
//! It is the only one that gives out epochs and configurations, and it does so one at a time, each on
//! disk before anybody hears of it. It is not on the path of operations: while it is away they go on,
//! and only openings and changes of the members wait.
//!
//! Outputs must be carried out in order: a [`Output::Persist`] is on disk before what follows it is sent.

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

/// How often what was not acknowledged is sent again.
const AGAIN: DurationNs = DurationNs::millis(50);

/// The shortest lease.
const LEASE_MIN: DurationNs = DurationNs::millis(100);

/// The longest lease.
const LEASE_MAX: DurationNs = DurationNs::millis(60_000);

/// A controller that does nothing for longer than this part of a lease has stood still.
const GAP_SHARE: u64 = 2;

const _: () = assert!(LEASE_MIN.0 < LEASE_MAX.0 && AGAIN.0 < LEASE_MIN.0);
const _: () = assert!(GAP_SHARE > 1, "a gap is shorter than a lease");

/// Where a message of the controller goes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Destination {
    /// Whoever sent what this answers: the driver's number for it.
    Sender(u64),
    /// A shard of a server, at this address where messages go over a network.
    Server(Endpoint, Option<String>),
}

/// What a controller wants done, in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all of them are the large one, and few are kept"
)]
pub enum Output {
    /// These bytes replace what is on disk, synced.
    Persist(Vec<u8>),
    /// Send this.
    Send(Destination, Message),
}

/// What a controller is told at its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ControllerParams {
    /// Copies of each key.
    pub replicas: u8,
    /// Threads of each server.
    pub shards: u8,
    /// Servers that must have joined before the first configuration.
    pub servers_min: u8,
    /// How long a server's lease runs. It is fixed with the first configuration of a cluster; a
    /// controller that goes on with one uses the lease of that.
    pub lease: DurationNs,
}

/// Why a controller cannot start.
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

/// How the controller sees one shard of one life of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Seen {
    /// The configuration that it goes by.
    number: ConfigNumber,
    /// When it was last heard of.
    heard: MonoNs,
    /// It has copied what it should, in this configuration.
    synced: ConfigNumber,
    /// When it last granted a lease to a server outside of the configuration that it goes by, at the
    /// latest.
    granted: MonoNs,
}

/// A life that is not in the configuration any more, but may not know it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Retiring {
    /// Its machine; empty if it is not known.
    machine: String,
    /// Since when a new life proves that it has ended.
    ended: Option<MonoNs>,
    /// When the controller last granted it a lease, at the latest.
    granted: MonoNs,
    /// When anybody last granted it a lease, at the latest; known once every member has gone by a
    /// configuration without it.
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
    /// When this process heard of a life before it led.
    earlier: BTreeMap<Life, MonoNs>,
    /// When it began to lead: no controller before it granted a lease after that.
    began: MonoNs,
    retiring: BTreeMap<Life, Retiring>,
    /// Lives that were asked whether they are alive, and the number that proves it.
    asked: BTreeMap<ServerId, (Incarnation, u64)>,
    /// Members that ask to join, and when they last did.
    joining: BTreeMap<ServerId, (Member, MonoNs)>,
    /// Lives of which an operator says that they are gone for good.
    removed: BTreeSet<(ServerId, Incarnation)>,
    /// Servers that an operator takes out of service.
    drained: BTreeSet<ServerId>,
    /// Servers that were members since this controller began to lead, and are not any more.
    left: BTreeSet<ServerId>,
    /// When the configuration was made, or this life of the controller began.
    decided: MonoNs,
    /// The configuration is not stored yet. So it was not sent either, and a new member cannot know that
    /// it is one.
    unsent: bool,
    /// The fewest servers that could grant each other leases in any configuration that a member may
    /// still go by.
    majority_min: usize,
    /// Since when every member goes by it.
    agreed: Option<MonoNs>,
    /// A server was lost while the members changed.
    lost_amid_change: bool,
    /// Copies of a key that may be missing.
    lost: u32,
    /// When it last did anything.
    woken: MonoNs,
    /// Since when it has listened without a gap: whom it did not hear before may have spoken.
    listening: MonoNs,
    again: MonoNs,
    /// What its status says of the controllers that it agrees with.
    others: Others,
    outbox: VecDeque<Output>,
}

/// The group that a controller belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Others {
    /// Controllers, itself among them.
    count: usize,
    /// Addresses of those that were not heard lately.
    silent: Vec<String>,
}

impl Controller {
    /// A controller of a new cluster.
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
            agreed: None,
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

    /// The configuration, once enough servers have joined.
    #[must_use]
    pub fn config(&self) -> Option<&Arc<Config>> {
        self.config.as_ref()
    }

    fn number(&self) -> ConfigNumber {
        let config = self.config.as_ref();
        config.map_or(ConfigNumber(0), |config| config.number)
    }

    /// Sessions that have had an owner.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Sessions whose owner may have had writes on a server that was lost, and has not said that it has
    /// outlived the loss: should it end, its successor is in doubt.
    pub fn sessions_in_doubt(&self) -> impl Iterator<Item = (SessionId, Epoch)> + '_ {
        let in_doubt = self
            .sessions
            .iter()
            .filter(|(_, it)| it.lossy && !it.closed);
        in_doubt.map(|(id, it)| (*id, it.epoch))
    }

    /// Servers that are drained.
    pub fn drained(&self) -> impl Iterator<Item = ServerId> + '_ {
        self.drained.iter().copied()
    }

    /// A message; `sender` is the driver's number for whoever a reply goes to.
    pub fn handle_message(&mut self, now: MonoNs, sender: u64, message: Message) {
        self.notice_gap(now);
        let Message::Control(control) = message else {
            return;
        };
        match control {
            Control::Open {
                names,
                nonce,
                patience,
                copies,
            } => {
                let opening = Opening {
                    nonce,
                    patience,
                    copies: copies.of(self.params.replicas),
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

    /// This machine's clock stood still for a while, or jumped: the silence of the servers is counted
    /// anew.
    pub fn clock_jumped(&mut self, now: MonoNs) {
        self.listening = now;
        self.woken = now;
    }

    /// How long a lease of the servers runs.
    fn lease(&self) -> DurationNs {
        let config = self.config.as_ref();
        config.map_or(self.params.lease, |config| config.lease)
    }

    /// Time has come to [`Self::poll_timeout`].
    pub fn handle_timeout(&mut self, now: MonoNs) {
        self.notice_gap(now);
        self.progress(now);
        if now >= self.again {
            self.again = now.after(AGAIN);
            self.tell_config();
            self.fence_again();
        }
    }

    /// When to call [`Self::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> MonoNs {
        self.again
    }

    /// A process that was stopped, or waited for its disk, has not heard what came meanwhile: that is
    /// in its sockets. So the silence of the servers is counted anew from when it goes on.
    fn notice_gap(&mut self, now: MonoNs) {
        let gap = DurationNs(self.lease().0 / GAP_SHARE);
        if now.since(self.woken) > gap && !planted(Bug::OwnStallBlamed) {
            self.listening = now;
        }
        self.woken = now;
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outbox.pop_front()
    }

    fn reply(&mut self, sender: u64, control: Control) {
        let output = Output::Send(Destination::Sender(sender), Message::Control(control));
        self.outbox.push_back(output);
    }

    fn tell(&mut self, life: Life, control: Control) {
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

    /// Every shard of every life that takes part.
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
