//! Simulates a cluster on virtual time: nodes and a network, with checks at every step.

mod controllers;
mod interventions;
mod losses;
mod network;
mod owners;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use flurry_core::config::Config;
use flurry_core::consensus::Ballot;
use flurry_core::controller::Replica;
use flurry_core::id::{
    ConfigNumber, DurationNs, Endpoint, Incarnation, MonoNs, OperationId, ServerId, SessionId,
    ShardId, Version,
};
use flurry_core::key_value::KeyValue;
use flurry_core::message::{Control, Copies, Life, Message};
use flurry_core::portal::{Event, Portal, PortalParams, Sessions};
use flurry_core::router::{Router, RouterParams};
use flurry_core::server::{self, Server, ServerParams};

use crate::checks::Owners;
use crate::dice::Dice;
use crate::disks::ShardDisk;
use crate::scenario::{MS, Scenario};
use controllers::Controllers;
use losses::Losses;

/// Period of an owner's report that it lives.
pub const HEARTBEAT: DurationNs = DurationNs(500 * MS);

/// Index of a node in the world; a restarted process keeps it.
pub type NodeId = usize;

/// The process at a place.
#[derive(Debug)]
pub enum Machine {
    /// Nothing: it is down.
    Down,
    /// A shard of a data server.
    Server(Box<Server<KeyValue>>),
    /// A router that is a process of its own.
    Router(Box<Router>),
    /// A portal, with a router inside or without.
    Portal(Box<Portal>, Option<Box<Router>>),
    /// A controller.
    Controller(Box<Replica>),
}

/// Inputs of a process for each check of its whole state.
const VERIFY_EVERY: u64 = 64;

impl Machine {
    /// Checks what always holds of it, whatever has come to it.
    fn verify(&self) {
        match self {
            Self::Down => {}
            Self::Server(server) => server.verify(),
            Self::Router(router) => router.verify(),
            Self::Portal(portal, router) => {
                portal.verify();
                router.iter().for_each(|it| it.verify());
            }
            Self::Controller(replica) => replica.verify(),
        }
    }
}

/// A place, its clock, and its faults.
#[derive(Debug)]
pub struct Node {
    /// The process there.
    pub machine: Machine,
    /// It does nothing before this time.
    pub paused_until: u64,
    /// It was stopped, or the controller could not hear it, until this time.
    pub troubled_until: u64,
    /// How long its clock stands still, if it is suspended.
    pub suspended: u64,
    timer_at: u64,
    clock_offset: u64,
    /// How much faster its clock runs, in millionths.
    clock_drift: i64,
    /// For a portal: the place of its router.
    pub router: NodeId,
    /// Number of processes that have run here.
    started: u64,
}

impl Node {
    /// Returns true if its clock can lose this much and stay positive.
    #[must_use]
    pub fn may_stand_still(&self, span: u64) -> bool {
        self.clock_offset > span
    }

    fn local(&self, now: u64) -> MonoNs {
        let drift = i128::from(now) * i128::from(self.clock_drift) / 1_000_000;
        let local = i128::from(now) + i128::from(self.clock_offset) + drift;
        MonoNs(u64::try_from(local).unwrap_or(0))
    }

    fn global(&self, local: MonoNs) -> u64 {
        let since = i128::from(local.0) - i128::from(self.clock_offset);
        let now = since * 1_000_000 / (1_000_000 + i128::from(self.clock_drift));
        u64::try_from(now + 1).unwrap_or(u64::MAX)
    }
}

#[derive(Debug)]
enum What {
    Deliver(NodeId, Box<Message>),
    Timer,
    /// A disk has its turn, for the process of this number.
    Disk(u64),
    /// These bytes of a controller have been written to its disk.
    StateWritten(u64, Vec<u8>),
    /// A call that the workload or the faults scheduled is due.
    Call(u64),
}

#[derive(Debug)]
struct Happening {
    at: u64,
    order: u64,
    to: NodeId,
    what: What,
}

impl PartialEq for Happening {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Happening {}
impl PartialOrd for Happening {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Happening {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// Nodes that cannot hear each other for a while.
#[derive(Debug, Clone, Copy)]
struct Cut {
    from: u64,
    to: u64,
    until: u64,
}

/// An output of the world.
#[derive(Debug)]
pub enum Effect {
    /// A portal notified its caller.
    Told(NodeId, Event),
    /// A call that the caller scheduled is due.
    Call(u64),
}

/// The world.
#[derive(Debug)]
pub struct World {
    /// The scenario of the seed.
    pub scenario: Scenario,
    /// Virtual time.
    pub now: u64,
    /// Random numbers.
    pub dice: Dice,
    /// The places.
    pub nodes: Vec<Node>,
    endpoints: BTreeMap<Endpoint, NodeId>,
    controllers: Controllers,
    /// The disks of servers.
    pub(crate) disks: BTreeMap<NodeId, ShardDisk>,
    queue: BinaryHeap<Reverse<Happening>>,
    order: u64,
    cuts: Vec<Cut>,
    /// True once there are no more losses, damage or cuts.
    pub healed: bool,
    hash: u64,
    /// True to write every message to standard error.
    pub trace: bool,
    /// Number of messages delivered.
    pub delivered: u64,
    /// The first violation.
    pub violation: Option<String>,
    pub(crate) digests: BTreeMap<(u64, OperationId), u64>,
    pub(crate) versions: BTreeMap<(Life, SessionId, u64), (ConfigNumber, Version)>,
    /// Epochs that the new owners of sessions have received. Too few servers may execute an operation
    /// of an older epoch for its answer.
    pub fenced: BTreeMap<u32, u32>,
    /// The servers that executed an operation of an earlier owner after that opening.
    pub(crate) late_answers: BTreeMap<OperationId, BTreeSet<ServerId>>,
    pub(crate) open_copies: BTreeMap<NodeId, BTreeSet<(OperationId, u16, u8)>>,
    /// True if a server was counted out or restarted empty.
    pub server_lost: bool,
    /// Servers that were lost one after another, so that others may not have copied everything in
    /// between.
    pub losses: Losses,
    /// True if a disk was lost with its content, so that the other disks must suffice.
    pub disk_lost: bool,
    /// True if enough servers ended at once that every replica of a key may have been lost.
    pub all_lost: bool,
    /// Servers that have ended for good.
    pub gone: BTreeSet<u16>,
    /// Servers that the operator switches off.
    pub drained: BTreeSet<u16>,
    /// Servers that the operator has ever switched off.
    pub ever_drained: BTreeSet<u16>,
    /// For each write, the servers that answered that they have it.
    pub(crate) holders: BTreeMap<OperationId, BTreeSet<ServerId>>,
    /// Last time at which a change of the members was under way.
    changing_at: Option<u64>,
    /// What the controller received about owners.
    pub(crate) owners: Owners,
    /// Incarnations in the last configuration that the controller stored.
    pub(crate) counted: Vec<(ServerId, Incarnation)>,
    /// The ballot of the controller that decides, and the incarnations in its configuration, stored
    /// or not.
    pub(crate) deciding: (Ballot, Vec<(ServerId, Incarnation)>),
}

/// Returns the address of the process of this number at a place.
fn address(place: NodeId, started: u64) -> String {
    format!("{place}:{started}")
}

/// Returns the sessions that an owner spreads its keys over.
fn sessions_of(name: &str, parts: u8) -> Sessions {
    if parts == 1 {
        return Sessions::one(name);
    }
    Sessions {
        names: (0..parts).map(|part| format!("{name}/{part}")).collect(),
        of: |key| key.last().map_or(0, |it| usize::from(*it) % 3),
        first: 0,
    }
}

impl World {
    /// Creates the cluster of a scenario, with everything started at time 0.
    #[must_use]
    pub fn new(seed: u64, scenario: Scenario) -> Self {
        let mut world = Self {
            now: 0,
            dice: Dice::new(seed),
            nodes: Vec::new(),
            endpoints: BTreeMap::new(),
            controllers: Controllers::default(),
            disks: BTreeMap::new(),
            queue: BinaryHeap::new(),
            order: 0,
            cuts: Vec::new(),
            healed: false,
            hash: 0,
            trace: false,
            delivered: 0,
            violation: None,
            digests: BTreeMap::new(),
            versions: BTreeMap::new(),
            fenced: BTreeMap::new(),
            late_answers: BTreeMap::new(),
            open_copies: BTreeMap::new(),
            server_lost: false,
            losses: Losses::default(),
            disk_lost: false,
            all_lost: false,
            gone: BTreeSet::new(),
            drained: BTreeSet::new(),
            ever_drained: BTreeSet::new(),
            holders: BTreeMap::new(),
            changing_at: None,
            owners: Owners::default(),
            counted: Vec::new(),
            deciding: (Ballot::default(), Vec::new()),
            scenario,
        };
        world.add_controllers();
        let servers = world.scenario.servers + world.scenario.spare_servers;
        for server in 0..servers {
            for shard in 0..world.scenario.shards {
                let place = world.add_place();
                let endpoint = Endpoint {
                    server: ServerId(u16::from(server)),
                    shard: ShardId(shard),
                };
                world.endpoints.insert(endpoint, place);
            }
            if server < world.scenario.servers {
                world.start_server(u16::from(server));
            }
        }
        world
    }

    /// Adds a place where nothing runs yet.
    pub fn add_place(&mut self) -> NodeId {
        let drift = self.scenario.drift;
        let spread = self.dice.below(2 * drift + 1);
        self.nodes.push(Node {
            machine: Machine::Down,
            paused_until: 0,
            troubled_until: 0,
            suspended: 0,
            timer_at: u64::MAX,
            clock_offset: self.dice.below(1_000_000 * MS),
            clock_drift: i64::try_from(spread).unwrap_or(0) - i64::try_from(drift).unwrap_or(0),
            router: 0,
            started: 0,
        });
        self.nodes.len() - 1
    }

    /// Returns the places of a server's shards.
    #[must_use]
    pub fn places_of(&self, server: u16) -> Vec<NodeId> {
        self.endpoints
            .iter()
            .filter(|(endpoint, _)| endpoint.server.0 == server)
            .map(|(_, place)| *place)
            .collect()
    }

    /// Returns true if a data server belongs to the place.
    #[must_use]
    pub fn is_endpoint(&self, place: NodeId) -> bool {
        self.endpoints.values().any(|known| *known == place)
    }

    /// Starts a server with an empty memory.
    pub fn start_server(&mut self, server: u16) {
        let incarnation =
            Incarnation(u128::from(self.dice.number()) << 64 | u128::from(self.dice.number()));
        let addresses: Vec<String> = if self.scenario.moves {
            let places = self.places_of(server);
            let next = |place: &NodeId| self.nodes[*place].started + 1;
            places.iter().map(|it| address(*it, next(it))).collect()
        } else {
            Vec::new()
        };
        for shard in 0..self.scenario.shards {
            let endpoint = Endpoint {
                server: ServerId(server),
                shard: ShardId(shard),
            };
            let place = self.endpoints[&endpoint];
            let params = ServerParams {
                life: Life {
                    endpoint,
                    incarnation,
                },
                addresses: addresses.clone(),
                lease: DurationNs(self.scenario.lease),
                memory_bytes_max: self.scenario.memory_bytes_max,
                evict: self.scenario.evict,
            };
            let now = self.local(place);
            let found = self.disks.entry(place).or_default().found();
            let mut machine = Server::new(now, params, KeyValue::default());
            machine.set_part_bytes_max(self.scenario.part_bytes_max);
            if self.scenario.disk {
                machine = machine.with_disk(found);
            }
            self.start(place, Machine::Server(Box::new(machine)));
            self.disk_at(place, self.now);
        }
    }

    /// Starts a router that is a process of its own.
    pub fn start_router(&mut self, place: NodeId) {
        let router = Router::new(RouterParams {
            linger: DurationNs(500 * MS),
            abandoned_after: Some(DurationNs(5_000 * MS)),
            ..RouterParams::default()
        });
        self.start(place, Machine::Router(Box::new(router)));
    }

    /// Starts a portal; `router` is the portal's own place for a router inside.
    pub fn start_portal(
        &mut self,
        place: NodeId,
        name: &str,
        router: NodeId,
        log: bool,
        silence_limit: DurationNs,
    ) {
        let copies = if self.scenario.several_copies {
            Copies::Majority
        } else {
            Copies::Count(1)
        };
        let inside = router == place;
        let params = PortalParams {
            sessions: sessions_of(name, self.scenario.parts),
            nonce: self.dice.number(),
            operations_max: 4_096,
            bytes_max: self.scenario.backlog_bytes_max,
            keys_max: usize::try_from(crate::workload::KEYS_REMEMBERED).unwrap_or(6),
            drive_again: (!inside).then_some(DurationNs(40 * MS)),
            heartbeat: Some(HEARTBEAT),
            timeout: silence_limit,
            tells_first: self.scenario.tells_first,
            copies,
        };
        let portal = Portal::new(self.nodes[place].local(self.now), params);
        let own = inside.then(|| {
            Box::new(Router::new(RouterParams {
                log,
                linger: DurationNs(500 * MS),
                ..RouterParams::default()
            }))
        });
        self.nodes[place].router = router;
        self.open_copies.remove(&place);
        self.start(place, Machine::Portal(Box::new(portal), own));
    }

    fn start(&mut self, place: NodeId, machine: Machine) {
        self.nodes[place].machine = machine;
        self.nodes[place].paused_until = 0;
        self.nodes[place].timer_at = u64::MAX;
        self.nodes[place].started += 1;
        self.after(place);
    }

    /// Returns the place of a shard in the sender's configuration, or none if that process has
    /// ended.
    fn find(&self, config: Option<&Arc<Config>>, to: Endpoint) -> Option<NodeId> {
        let known = config.and_then(|config| config.address_of(to));
        self.find_listed(known, to)
    }

    fn find_listed(&self, listed: Option<&str>, to: Endpoint) -> Option<NodeId> {
        let place = self.endpoints.get(&to).copied()?;
        let here = || listed == Some(&address(place, self.nodes[place].started));
        (!self.scenario.moves || here()).then_some(place)
    }

    /// Ends the process at a place; its memory is lost.
    pub fn kill(&mut self, place: NodeId) {
        self.nodes[place].machine = Machine::Down;
        self.open_copies.remove(&place);
        if let Some(disk) = self.disks.get_mut(&place) {
            disk.crash();
        }
    }

    /// Returns whether the members were changing within the last `span` nanoseconds.
    pub(crate) fn changed_within(&self, span: u64) -> bool {
        self.changing_at.is_some_and(|at| at + span >= self.now)
    }

    /// Gives a disk a turn.
    pub(crate) fn disk_at(&mut self, place: NodeId, at: u64) {
        let due = self.scenario.disk && self.disks.entry(place).or_default().is_earlier(at);
        if due {
            let process = self.nodes[place].started;
            self.push(at, place, What::Disk(process));
        }
    }

    pub(crate) fn local(&self, place: NodeId) -> MonoNs {
        self.nodes[place].local(self.now)
    }

    /// Schedules a call of the workload or the faults.
    pub fn call_at(&mut self, at: u64, call: u64) {
        self.push(at.max(self.now), 0, What::Call(call));
    }

    /// Records a violation; the first one is kept.
    pub fn violate(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// Returns a hash of the trace so far: equal for equal histories.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    fn push(&mut self, at: u64, to: NodeId, what: What) {
        self.order += 1;
        self.queue.push(Reverse(Happening {
            at,
            order: self.order,
            to,
            what,
        }));
    }

    fn note(&mut self, values: [u64; 4]) {
        let mut bytes = [0u8; 40];
        for (chunk, value) in bytes
            .chunks_exact_mut(8)
            .zip([self.hash].iter().chain(&values))
        {
            chunk.copy_from_slice(&value.to_le_bytes());
        }
        self.hash = xxhash_rust::xxh3::xxh3_64(&bytes);
    }

    /// Runs the next event. Returns `None` when none is left.
    pub fn step(&mut self) -> Option<Vec<Effect>> {
        let Reverse(next) = self.queue.pop()?;
        self.now = self.now.max(next.at);
        let to = next.to;
        if let What::Call(call) = next.what {
            return Some(vec![Effect::Call(call)]);
        }
        if matches!(next.what, What::Timer) && next.at != self.nodes[to].timer_at {
            // An earlier timer was set since.
            return Some(Vec::new());
        }
        let until = self.nodes[to].paused_until;
        if until > self.now {
            match next.what {
                What::Timer => {
                    self.nodes[to].timer_at = until;
                    self.push(until, to, What::Timer);
                }
                what => {
                    let at = until + next.order % 1_000;
                    self.push(at, to, what);
                }
            }
            return Some(Vec::new());
        }
        self.wake_up(to);
        match next.what {
            What::Deliver(from, message) => self.deliver(from, to, *message),
            What::Timer => self.timer(to),
            What::Disk(process) => self.disk(to, process),
            What::StateWritten(process, bytes) => self.state_written(to, process, bytes),
            What::Call(_) => {}
        }
        Some(self.after(to))
    }

    fn disk(&mut self, to: NodeId, process: u64) {
        let now = self.now;
        let due = |disk: &mut ShardDisk| disk.is_due(now);
        if self.nodes[to].started != process || !self.disks.get_mut(&to).is_some_and(due) {
            return;
        }
        let mut machine = std::mem::replace(&mut self.nodes[to].machine, Machine::Down);
        if let Machine::Server(server) = &mut machine {
            self.disk_turn(to, server);
        }
        self.nodes[to].machine = machine;
    }

    fn timer(&mut self, to: NodeId) {
        let now = self.now;
        let node = &mut self.nodes[to];
        node.timer_at = u64::MAX;
        let local = node.local(now);
        match &mut node.machine {
            Machine::Down => {}
            Machine::Server(server) => {
                if server.poll_timeout() <= local {
                    server.handle_timeout(local);
                }
            }
            Machine::Router(router) => router.handle_timeout(local),
            Machine::Portal(portal, router) => {
                portal.handle_timeout(local);
                if let Some(router) = router {
                    router.handle_timeout(local);
                }
            }
            Machine::Controller(controller) => controller.handle_timeout(local),
        }
    }

    fn deliver(&mut self, from: NodeId, to: NodeId, message: Message) {
        self.delivered += 1;
        let sequence = match &message {
            Message::Request(copy) => copy.request.id.sequence.0,
            Message::Reply(reply) => reply.id.sequence.0 << 1 | 1,
            Message::Answer(answer) => answer.id.sequence.0 << 2,
            Message::Control(_) => 7,
        };
        if self.trace {
            self.say(&format!("{from} to {to}: {message:?}"));
        }
        self.note([self.now, from as u64, to as u64, sequence]);
        let message = if self.delivered.is_multiple_of(64) {
            self.through_the_wire(message)
        } else {
            message
        };
        let now = self.now;
        let node = &mut self.nodes[to];
        let local = node.local(now);
        let sender = from as u64;
        match &mut node.machine {
            Machine::Down => {}
            Machine::Server(server) => server.handle_message(local, sender, message),
            Machine::Router(router) => match message {
                Message::Request(copy) => router.handle_request(local, sender, copy),
                message => router.handle_message(local, message, 0),
            },
            Machine::Portal(portal, router) => match (message, router) {
                (
                    message @ (Message::Reply(_) | Message::Control(Control::Config(_))),
                    Some(router),
                ) => {
                    router.handle_message(local, message, 0);
                    if let Some(config) = router.config() {
                        portal.noticed(local, config);
                    }
                }
                (message, _) => portal.handle_message(local, message),
            },
            Machine::Controller(_) => self.hear_controller((from, to), local, message),
        }
    }

    #[allow(clippy::print_stderr, reason = "the trace of a replayed seed")]
    pub(crate) fn say(&self, what: &str) {
        eprintln!("{:>12} {what}", self.now / 1_000);
    }

    /// Carries out the outputs of a node after an input, and sets its timer.
    fn after(&mut self, place: NodeId) -> Vec<Effect> {
        let mut machine = std::mem::replace(&mut self.nodes[place].machine, Machine::Down);
        let mut effects = Vec::new();
        let next = match &mut machine {
            Machine::Down => None,
            Machine::Server(server) => Some(self.after_server(place, server)),
            Machine::Router(router) => {
                self.drain_router(place, router, None);
                router.poll_timeout()
            }
            Machine::Portal(portal, router) => {
                self.check_backlog(portal);
                self.after_portal(place, portal, router.as_deref_mut(), &mut effects)
            }
            Machine::Controller(controller) => Some(self.after_controller(place, controller)),
        };
        // Whole states are large: with every check of every state, a run takes ten times as long.
        if self.order.is_multiple_of(VERIFY_EVERY) {
            machine.verify();
        }
        self.nodes[place].machine = machine;
        if let Some(next) = next {
            let at = self.nodes[place].global(next).max(self.now);
            if at < self.nodes[place].timer_at {
                self.nodes[place].timer_at = at;
                self.push(at, place, What::Timer);
            }
        }
        effects
    }

    fn after_server(&mut self, place: NodeId, server: &mut Server<KeyValue>) -> MonoNs {
        let life = server.life();
        self.after_disk(place, server);
        while let Some((to, message)) = server.poll_send() {
            if let Message::Reply(reply) = &message {
                self.check_reply(life, server.config().map(|it| &**it), reply);
            }
            match to {
                server::Destination::Sender(sender) => {
                    self.transmit(place, usize::try_from(sender).unwrap_or(0), message);
                }
                server::Destination::Controller => self.transmit_to_controllers(place, &message),
                server::Destination::Server(endpoint) => {
                    if let Some(to) = self.find(server.config(), endpoint) {
                        self.transmit(place, to, message);
                    }
                }
            }
        }
        server.poll_timeout()
    }

    /// Gives a portal an input, if it runs.
    pub fn with_portal<T>(
        &mut self,
        place: NodeId,
        act: impl FnOnce(&mut Portal, MonoNs) -> T,
    ) -> Option<(T, Vec<Effect>)> {
        let now = self.now;
        let node = &mut self.nodes[place];
        if node.paused_until > now {
            return None;
        }
        let local = node.local(now);
        let Machine::Portal(portal, _) = &mut node.machine else {
            return None;
        };
        let result = act(portal, local);
        let effects = self.after(place);
        Some((result, effects))
    }

    /// Returns the servers' records, by server.
    pub fn servers(&self) -> impl Iterator<Item = &Server<KeyValue>> {
        self.nodes.iter().filter_map(|node| match &node.machine {
            Machine::Server(server) => Some(&**server),
            _ => None,
        })
    }
}
