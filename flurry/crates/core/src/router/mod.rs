//! The router: a copy of each operation to every replica, and the first correct reply back.
//!
//! It keeps each write until every replica has it, and repairs replicas that lack writes. It may
//! lose its memory without harm: an operation carries its own identity, so the portal can send it
//! again through another router at any time.
//!
//! Inputs are `handle_*`, outputs `poll_*`. After each input the driver calls `poll_send` and
//! `poll_arrival` until they are empty, and then `poll_timeout` for the time to call
//! `handle_timeout`.

mod auto;
mod fingerprint;
mod operation;
mod parked;
mod rate;
mod repair;
mod reply;
mod verify;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::bugs::{Bug, planted};
use crate::config::{Config, Level, majority};
use crate::id::{ConfigNumber, DurationNs, Endpoint, MonoNs, OperationId, ServerId};
use crate::log::{Arrival, CopyEnd};
use crate::machine::Access;
pub use crate::message::Destination;
use crate::message::{Answer, Ask, Control, Copy, Message, Outcome};
use crate::numbered::Numbered;
use auto::Auto;
use operation::{InFlight, Progress, Target};
use parked::ParkedByServer;
use rate::{RETRY_MAX, Rate};
use repair::{Repair, RepairKey};

/// The silence of a server after which its copies are repeated at the longest interval.
const SILENT_AFTER: DurationNs = DurationNs(2 * RETRY_MAX.0);

/// The shortest interval between requests for the configuration while servers are silent.
const SILENT_AGAIN: DurationNs = DurationNs::millis(250);

/// The parameters of a router.
#[derive(Debug, Clone)]
pub struct RouterParams {
    /// The most writes and takeovers that it holds, including answered ones that are not yet
    /// stable. It accepts reads up to twice as many operations.
    pub in_flight_max: usize,
    /// The most bytes of its operations. Beyond that it refuses new writes and takeovers.
    pub bytes_max: usize,
    /// True to record every copy, including late and lost ones.
    pub log: bool,
    /// The time after which a copy without a reply is logged as lost.
    pub linger: DurationNs,
    /// The time after which an unanswered operation that its portal has not sent again is
    /// abandoned, because the portal is gone. For a router in a process of its own.
    pub abandoned_after: Option<DurationNs>,
    /// The fewest copies of a write at level `quorum`, `all` or `disk` before it is acknowledged;
    /// by default a majority of the replicas that the cluster is configured for.
    pub copies_min: Option<u8>,
}

impl Default for RouterParams {
    fn default() -> Self {
        Self {
            in_flight_max: 131_072,
            bytes_max: 256 << 20,
            log: false,
            linger: DurationNs::millis(10_000),
            abandoned_after: None,
            copies_min: None,
        }
    }
}

/// Counts since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RouterCounts {
    /// Operations taken from portals.
    pub operations: u64,
    /// Copies sent, including repetitions.
    pub copies: u64,
    /// Repetitions.
    pub repeated: u64,
    /// Repairs of a replica that was behind.
    pub repairs: u64,
    /// Repairs put off because too much of the traffic was repairs.
    pub repairs_put_off: u64,
    /// Replies that came after their server's lease may have ended.
    pub late: u64,
    /// Pairs of replicas that answered one operation differently; must stay 0.
    pub divergent: u64,
    /// Operations refused because the router was full.
    pub busy: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Timer {
    Operation(OperationId),
    Repair(RepairKey),
    /// Copies that wait until this server may be sent repetitions again.
    Parked(ServerId),
    Config,
}

/// A router.
#[derive(Debug, Clone)]
pub struct Router {
    params: RouterParams,
    config: Option<Arc<Config>>,
    /// The time at which it asks again for a newer configuration; `None` while it needs none.
    config_wanted: Option<MonoNs>,
    /// The time of its last request for the configuration.
    config_asked: Option<MonoNs>,
    /// Boxed: they are large, and the map moves its elements about.
    operations: Numbered<OperationId, Box<InFlight>>,
    /// Bytes of these operations.
    bytes: usize,
    parked: ParkedByServer,
    repairs: BTreeMap<RepairKey, Repair>,
    repair_tokens: u32,
    repair_refilled: MonoNs,
    timers: BTreeSet<(MonoNs, Timer)>,
    rates: BTreeMap<ServerId, Rate>,
    auto: Auto,
    outbox: VecDeque<(Destination, Message)>,
    arrivals: VecDeque<Arrival>,
    counts: RouterCounts,
    /// The time before which its requests were sent too early to trust: it cannot know how long
    /// their replies were under way.
    trusts_since: MonoNs,
}

impl Router {
    /// Returns a router without a configuration.
    #[must_use]
    pub fn new(params: RouterParams) -> Self {
        Self {
            params,
            config: None,
            config_wanted: None,
            config_asked: None,
            operations: Numbered::default(),
            bytes: 0,
            parked: ParkedByServer::new(),
            repairs: BTreeMap::new(),
            repair_tokens: 0,
            repair_refilled: MonoNs(0),
            timers: BTreeSet::new(),
            rates: BTreeMap::new(),
            auto: Auto::default(),
            outbox: VecDeque::new(),
            arrivals: VecDeque::new(),
            counts: RouterCounts::default(),
            trusts_since: MonoNs(0),
        }
    }

    /// Distrusts replies to earlier requests, because this machine's clock stood still or jumped.
    pub fn clock_jumped(&mut self, now: MonoNs) {
        if !planted(Bug::ClockJumpIgnored) {
            self.trusts_since = now;
        }
    }

    /// Returns the configuration that it goes by.
    #[must_use]
    pub fn config(&self) -> Option<&Arc<Config>> {
        self.config.as_ref()
    }

    /// Returns the counts since the start.
    #[must_use]
    pub fn counts(&self) -> RouterCounts {
        self.counts
    }

    /// Returns whether it records every copy.
    #[must_use]
    pub fn is_logging(&self) -> bool {
        self.params.log
    }

    /// Returns the number of operations that it holds.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.operations.len()
    }

    /// Returns the bytes of these operations.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of repairs that are under way.
    #[must_use]
    pub fn repairing(&self) -> usize {
        self.repairs.len()
    }

    /// Handles an operation from a portal.
    pub fn handle_request(&mut self, now: MonoNs, portal: u64, copy: Copy) {
        let Copy {
            request, attempt, ..
        } = copy;
        let id = request.id;
        let over = |known: &InFlight| {
            known.lingers_until.is_some() && (!known.answered || known.is_write())
        };
        if self.operations.get(id).is_some_and(|known| over(known)) {
            // The router kept it for the log only, and the portal needs it again.
            self.drop_operation(id);
        }
        if let Some(known) = self.operations.get_mut(id) {
            // The portal sends it again, perhaps with a dependency that has become known since.
            known.portal = portal;
            known.driven = now;
            let same = known.request == request;
            if !same && known.phase == operation::Phase::Apply {
                known.request = request;
                known.empty_rounds = 0;
            }
            if let (true, Some(answer)) = (known.answered, known.answer.clone()) {
                self.answer(portal, id, Outcome::Done(answer));
            }
            return;
        }
        if attempt > 0 && request.ask == Ask::Touch {
            self.answer(portal, id, Outcome::Forgotten);
            return;
        }
        // A repeated operation is accepted even if the router is full, because it may have been
        // done.
        if attempt == 0 && self.is_full(&request.ask) {
            self.counts.busy += 1;
            self.answer(portal, id, Outcome::Busy);
            return;
        }
        // A repeated write is accepted even if few servers are left, because it may have been done.
        let new = attempt == 0 && operation::is_durable(&request, request.level);
        let config = self.config.as_ref().filter(|_| new);
        let too_few = config.is_some_and(|config| {
            let replicas = config.replicas_of(&request.key);
            let kept = replicas.iter().filter(|it| it.new).count();
            kept < self.copies_min(config)
        });
        if too_few {
            self.want_config(now);
            self.answer(portal, id, Outcome::TooFewCopies);
            return;
        }
        self.counts.operations += 1;
        assert!(
            self.repair_tokens <= repair::TOKENS_MAX,
            "repairs are a tenth of the traffic, however long there was nothing to repair"
        );
        self.repair_tokens = (self.repair_tokens + 1).min(repair::TOKENS_MAX);
        let level = match request.level {
            Level::Auto => self.auto.choose(now, &self.rates),
            level => level,
        };
        let mut operation = InFlight::new(now, portal, request, level);
        if let Some(config) = &self.config {
            let _ = operation.place(now, config, self.copies_min(config));
        } else {
            self.want_config(now);
        }
        self.hedge(now, &mut operation);
        operation.bytes_held = operation.bytes();
        self.bytes += operation.bytes_held;
        let before = self.operations.insert(id, Box::new(operation));
        assert!(
            before.is_none(),
            "{id:?}: the bytes of the one before would count for ever"
        );
        self.drive(now, id);
    }

    /// Returns whether there is no room for one more operation. Reads have a higher limit, because
    /// they end with their answer.
    fn is_full(&self, ask: &Ask) -> bool {
        let held = self.operations.len();
        match ask {
            Ask::Apply {
                access: Access::Read,
                ..
            } => held >= self.params.in_flight_max.saturating_mul(2),
            _ => held >= self.params.in_flight_max || self.bytes >= self.params.bytes_max,
        }
    }

    /// Returns the fewest copies of a durable write in this configuration.
    fn copies_min(&self, config: &Config) -> usize {
        if planted(Bug::QuorumOfTheLeft) {
            return 0;
        }
        let usual = majority(usize::from(config.replicas));
        self.params.copies_min.map_or(usual, usize::from)
    }

    /// Sets the scheduled time of an operation, for the log.
    pub fn intended(&mut self, id: OperationId, at: MonoNs) {
        if let Some(operation) = self.operations.get_mut(id) {
            operation.intended = at;
        }
    }

    /// Delays all copies except that for the fastest replica, if the level is a hedge.
    fn hedge(&self, now: MonoNs, operation: &mut InFlight) {
        let Level::Hedge(delay) = operation.level else {
            return;
        };
        let fastest = operation
            .targets
            .iter()
            .filter(|target| target.replica.old)
            .min_by_key(|target| {
                let rate = self.rates.get(&target.replica.server);
                // Replicas with similar round trips count as equal, and share the load by the key's
                // own order.
                rate.map_or(0, |rate| u64::from(rate.round_trip().0.max(1).ilog2()))
            })
            .map(|target| target.replica.server);
        for target in &mut operation.targets {
            if Some(target.replica.server) != fastest {
                target.next = now.after(delay);
            }
        }
    }

    /// Handles a message from a server or the controller.
    pub fn handle_message(&mut self, now: MonoNs, message: Message, kernel_received: i64) {
        match message {
            Message::Reply(reply) => {
                self.handle_reply(now, &reply, kernel_received);
                if self.parked.contains_key(&reply.from.server) {
                    self.unpark(now, reply.from.server);
                }
            }
            Message::Control(Control::Config(config)) => self.adopt(now, &config),
            _ => {}
        }
    }

    /// Adopts a newer configuration, and sends the operations under way to their new replicas.
    pub fn adopt(&mut self, now: MonoNs, config: &Arc<Config>) {
        if self
            .config
            .as_ref()
            .is_some_and(|known| known.number >= config.number)
        {
            return;
        }
        assert!(
            self.number() < config.number,
            "a router never goes back: a server that was counted out would count again"
        );
        self.config = Some(Arc::clone(config));
        self.config_wanted = None;
        self.repairs.clear();
        self.unpark_all();
        for id in self.operations.numbers() {
            let copies_min = self.copies_min(config);
            let operation = self.operations.get_mut(id);
            let dropped = operation.map(|it| it.place(now, config, copies_min));
            for target in dropped.into_iter().flatten() {
                for sent in target.open() {
                    self.log_lost(id, target.replica.server, sent);
                }
            }
            self.settle(now, id, None);
            self.finish(now, id);
        }
    }

    /// Handles the time of [`Self::poll_timeout`].
    pub fn handle_timeout(&mut self, now: MonoNs) {
        // The loop ends: each expired timer is taken once, and set again only for a later time.
        while let Some((at, timer)) = self.timers.first().copied() {
            if at > now {
                break;
            }
            self.timers.remove(&(at, timer));
            match timer {
                Timer::Operation(id) => {
                    if let Some(operation) = self.operations.get_mut(id) {
                        operation.timer = MonoNs(u64::MAX);
                        self.drive(now, id);
                    }
                }
                Timer::Repair(key) => self.repair_again(now, key),
                Timer::Parked(server) => self.unpark(now, server),
                Timer::Config => {
                    if self.config_wanted.is_some() {
                        self.config_wanted = None;
                        self.want_config(now);
                    }
                }
            }
        }
    }

    /// Returns the time at which to call [`Self::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<MonoNs> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Returns the next message to send.
    pub fn poll_send(&mut self) -> Option<(Destination, Message)> {
        self.outbox.pop_front()
    }

    /// Returns the next row of the arrival log.
    pub fn poll_arrival(&mut self) -> Option<Arrival> {
        self.arrivals.pop_front()
    }

    /// Drops all operations, and logs their unanswered copies as lost.
    pub fn close(&mut self) {
        for id in self.operations.numbers() {
            self.drop_operation(id);
        }
    }

    fn answer(&mut self, portal: u64, id: OperationId, outcome: Outcome) {
        let absent = self.operations.get(id).is_some_and(|it| it.absent);
        let answer = Message::Answer(Answer {
            id,
            outcome,
            absent,
            stable: false,
        });
        self.outbox.push_back((Destination::Sender(portal), answer));
    }

    /// Asks for the configuration until there is a newer one.
    fn want_config(&mut self, now: MonoNs) {
        if self.config_wanted.is_some() {
            return;
        }
        let again = now.after(RETRY_MAX);
        assert!(again > now, "it is asked for again later, and not at once");
        self.config_wanted = Some(again);
        self.timers.insert((again, Timer::Config));
        self.ask_config(now);
    }

    /// Asks for the configuration, because a server has been silent for long. A newer configuration
    /// may be without this server, or may have it at another address. Servers report a newer
    /// configuration only in replies, and the other servers may have no request to reply to.
    fn doubt_config(&mut self, now: MonoNs) {
        let lately = |asked: MonoNs| now.since(asked) < SILENT_AGAIN;
        if !self.config_asked.is_some_and(lately) && !planted(Bug::SilenceBelieved) {
            self.ask_config(now);
        }
    }

    /// Asks the controller and all members for the configuration.
    fn ask_config(&mut self, now: MonoNs) {
        self.config_asked = Some(now);
        let query = || Message::Control(Control::ConfigQuery);
        self.outbox.push_back((Destination::Controller, query()));
        let Some(config) = &self.config else { return };
        for (server, _) in config.lives() {
            let to = Endpoint {
                server,
                shard: crate::id::ShardId(0),
            };
            self.outbox.push_back((Destination::Server(to), query()));
        }
    }

    fn number(&self) -> ConfigNumber {
        self.config
            .as_ref()
            .map_or(ConfigNumber(0), |config| config.number)
    }

    /// Sends the copies of an operation whose time has come, gives up the operation after its
    /// deadline, and sets its timer.
    fn drive(&mut self, now: MonoNs, id: OperationId) {
        let Some(operation) = self.operations.get_mut(id) else {
            return;
        };
        if operation.lingers_until.is_some_and(|until| now >= until) {
            self.drop_operation(id);
            return;
        }
        if !operation.answered && now >= operation.deadline {
            // The portal still holds the operation. A read ends here. A write continues until it is
            // stable.
            let (portal, write) = (operation.portal, operation.is_write());
            operation.deadline = MonoNs(u64::MAX);
            self.answer(portal, id, Outcome::Unknown);
            if !write {
                self.retire(now, id);
                return;
            }
        }
        let Some(operation) = self.operations.get(id) else {
            return;
        };
        let abandoned = self
            .params
            .abandoned_after
            .is_some_and(|after| now.since(operation.driven) > after);
        if abandoned && !operation.answered && operation.lingers_until.is_none() {
            self.retire(now, id);
            return;
        }
        self.send_due(now, id);
        self.set_timer(id);
    }

    fn set_timer(&mut self, id: OperationId) {
        let Some(operation) = self.operations.get_mut(id) else {
            return;
        };
        let mut next = operation.lingers_until.unwrap_or(MonoNs(u64::MAX));
        if !operation.answered {
            next = next.min(operation.deadline);
        }
        if operation.lingers_until.is_none() {
            for target in &operation.targets {
                if operation::wants(&operation.phase, target) {
                    next = next.min(target.next);
                }
            }
        }
        // A timer that is too early finds no copy to send, and is set anew. That is cheaper than to
        // move it with every reply.
        if next < operation.timer {
            let timer = Timer::Operation(id);
            let removed = self.timers.remove(&(operation.timer, timer));
            assert!(
                removed || operation.timer == MonoNs(u64::MAX),
                "{id:?}: its timer was set"
            );
            operation.timer = next;
            self.timers.insert((next, timer));
        }
    }

    fn send_due(&mut self, now: MonoNs, id: OperationId) {
        let Some(operation) = self.operations.get_mut(id) else {
            return;
        };
        let phase = &operation.phase;
        let is_due = |it: &Target| operation::wants(phase, it) && it.next <= now;
        if operation.lingers_until.is_some() || !operation.targets.iter().any(is_due) {
            return;
        }
        let Some(config) = self.config.clone() else {
            return;
        };
        let shard = config.shard_of(&operation.request.key);
        let moving = rate::moving(operation.bytes());
        let mut forgotten = Vec::new();
        let mut parked = Vec::new();
        let mut silent = false;
        for target in &mut operation.targets {
            if !operation::wants(&operation.phase, target) || target.next > now {
                continue;
            }
            let server = target.replica.server;
            let rate = self.rates.entry(server).or_insert_with(|| Rate::new(now));
            let first = target.progress == Progress::Waiting;
            silent |= !first && now.since(target.first_sent.max(rate.heard_at())) >= SILENT_AFTER;
            if !first && !rate.may_repeat(now) {
                target.next = MonoNs(u64::MAX);
                parked.push(server);
                continue;
            }
            let again_after = DurationNs(rate.again_after(target.backoff).0 + moving.0);
            target.backoff = target.backoff.saturating_add(1);
            forgotten.extend(target.sent(now, again_after).map(|sent| (server, sent)));
            self.counts.copies += 1;
            self.counts.repeated += u64::from(!first);
            assert!(
                self.counts.repeated < self.counts.copies,
                "a repetition follows a first copy"
            );
            let request = match &operation.phase {
                operation::Phase::WritingBack { state, .. } => Arc::clone(state),
                _ => Arc::clone(&operation.request),
            };
            let copy = Copy {
                request,
                config: config.number,
                attempt: target.attempt.min(31),
            };
            let to = Endpoint { server, shard };
            self.outbox
                .push_back((Destination::Server(to), Message::Request(copy)));
        }
        for (server, sent) in forgotten {
            self.log_lost(id, server, sent);
        }
        for server in parked {
            self.park(server, id);
        }
        if silent {
            self.doubt_config(now);
        }
    }

    /// Returns the log row of a copy without a reply. The caller fills in the reply, if there is
    /// one.
    fn row(&self, id: OperationId, server: ServerId, sent: operation::Sent) -> Option<Arrival> {
        if !self.params.log {
            return None;
        }
        let operation = self.operations.get(id)?;
        if !matches!(operation.request.ask, Ask::Apply { .. }) {
            return None;
        }
        Some(Arrival {
            id,
            key_hash: operation.request.key.hash(),
            server,
            attempt: sent.attempt,
            level: operation.level,
            write: operation.is_write(),
            intended: operation.intended,
            sent: sent.at,
            received: None,
            end: CopyEnd::Lost,
            answered: false,
            stamps: [0; 3],
            kernel_received: 0,
        })
    }

    fn log_lost(&mut self, id: OperationId, server: ServerId, sent: operation::Sent) {
        let row = self.row(id, server, sent);
        self.arrivals.extend(row);
    }

    /// Drops an operation that needs no more copies, or keeps it for the log until every copy has
    /// ended.
    fn retire(&mut self, now: MonoNs, id: OperationId) {
        let linger = self.params.linger;
        let Some(operation) = self.operations.get_mut(id) else {
            return;
        };
        let open = operation
            .targets
            .iter()
            .any(|target| target.open().next().is_some());
        if self.params.log && open {
            operation
                .lingers_until
                .get_or_insert_with(|| now.after(linger));
            self.set_timer(id);
        } else {
            self.drop_operation(id);
        }
    }

    fn drop_operation(&mut self, id: OperationId) {
        let Some(operation) = self.operations.get(id) else {
            return;
        };
        let timer = (operation.timer, Timer::Operation(id));
        self.timers.remove(&timer);
        let open: Vec<_> = operation
            .targets
            .iter()
            .flat_map(|target| target.open().map(|sent| (target.replica.server, sent)))
            .collect();
        for (server, sent) in open {
            self.log_lost(id, server, sent);
        }
        if let Some(operation) = self.operations.remove(id) {
            assert!(
                operation.bytes_held <= self.bytes,
                "{id:?}: removed bytes were counted when they were added"
            );
            self.bytes -= operation.bytes_held;
        }
        assert!(
            self.bytes == 0 || !self.operations.is_empty(),
            "{} bytes of no operation would be held for ever",
            self.bytes
        );
    }
}
