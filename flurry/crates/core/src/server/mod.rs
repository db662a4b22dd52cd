//! A shard of a data server.
//!
//! It holds the records that the configuration assigns to it. It answers an operation only if it
//! can prove that its answer is the one that the owner must see. It checks the configuration, the
//! incarnation of its memory, its lease, the owner's epoch, and the version that the operation
//! depends on. It refuses every other operation with a reason, so that no refusal looks like an
//! answer.
//!
//! Inputs are `handle_*`, outputs `poll_*`. After each input the driver calls `poll_send` until it
//! is empty, and then `poll_timeout` for the time to call `handle_timeout`.

mod check;
mod copying;
mod fingerprint;
mod join;
mod kept;
mod lease;
mod list;
mod persist;
mod verify;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::bugs::{Bug, planted};
use crate::config::Config;
use crate::id::{ConfigNumber, DurationNs, Epoch, MonoNs, Sequence, ServerId, SessionId, WallNs};
use crate::machine::StateMachine;
pub use crate::message::Destination;
use crate::message::{Control, Life, Message, State};
use crate::table::Table;
use join::Join;
use kept::Kept;
use lease::Lease;
use persist::Persist;
pub use persist::{Change, RestoreError, What};

/// The most sessions that a server knows. A cluster that needs more needs more servers.
pub const SESSIONS_MAX: usize = 65_536;

/// The most deletions that it forgets at one timeout, which takes a millisecond or two.
const PILE_MAX: usize = 4_096;

/// The parameters of a server.
#[derive(Debug, Clone)]
pub struct ServerParams {
    /// The server, the shard, and the number of the first incarnation: 128 random bits, the same
    /// for all shards of a process.
    pub life: Life,
    /// The address of each shard of the server.
    pub addresses: Vec<String>,
    /// The duration of a lease, until the server knows the cluster's configuration.
    pub lease: DurationNs,
    /// The memory for records, in bytes.
    pub memory_bytes_max: usize,
    /// True to evict the least recently used value at the limit, instead of refusing writes.
    pub evict: bool,
}

/// A server's knowledge of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Session {
    epoch: Epoch,
    stable: Sequence,
    /// The latest time of an owner.
    at: WallNs,
    /// The last configuration in which a server took an operation of any owner.
    used_in: ConfigNumber,
}

/// Counts since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerCounts {
    /// All requests.
    pub requests: u64,
    /// Requests with an answer of the machine.
    pub done: u64,
    /// Requests that were refused because writes were missing.
    pub behind: u64,
    /// Requests that were refused for other reasons.
    pub refused: u64,
    /// States installed by a push or a sync.
    pub pushed: u64,
    /// Records that it kept while it was counted out, and that a member confirmed.
    pub kept: u64,
}

/// A shard of a data server.
#[derive(Debug, Clone)]
pub struct Server<M: StateMachine> {
    params: ServerParams,
    machine: M,
    table: Table,
    sessions: BTreeMap<SessionId, Session>,
    config: Option<Arc<Config>>,
    lease: Lease,
    join: Option<Join>,
    /// The records that it had when it was counted out, until it has copied everything.
    kept: Option<Kept>,
    /// True if the configuration names an incarnation of the server that this shard has given up.
    gave_up: bool,
    /// Why the controller does not admit it.
    refused: Option<String>,
    outbox: VecDeque<(Destination, Message)>,
    counts: ServerCounts,
    /// The busy share of the server's thread as the driver measured it, in 255ths.
    busy: u8,
    part_bytes_max: usize,
    /// The state of the disk; `None` if records are in memory only.
    persist: Option<Persist>,
}

impl<M: StateMachine> Server<M> {
    /// Returns a server with an empty memory, which asks the controller to let it join.
    #[must_use]
    pub fn new(now: MonoNs, params: ServerParams, machine: M) -> Self {
        let lease = Lease::new(now, params.lease);
        Self {
            params,
            machine,
            table: Table::new(),
            sessions: BTreeMap::new(),
            config: None,
            lease,
            join: None,
            kept: None,
            gave_up: false,
            refused: None,
            outbox: VecDeque::new(),
            counts: ServerCounts::default(),
            busy: 0,
            part_bytes_max: copying::PART_BYTES_MAX,
            persist: None,
        }
    }

    /// Returns why the controller did not admit this server when it last asked. `None` for a
    /// member.
    #[must_use]
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref().filter(|_| !self.is_member())
    }

    /// Returns the shard and its incarnation.
    #[must_use]
    pub fn life(&self) -> Life {
        self.params.life
    }

    /// Returns the configuration that it goes by, once it has one.
    #[must_use]
    pub fn config(&self) -> Option<&Arc<Config>> {
        self.config.as_ref()
    }

    /// Returns whether it is a member of its configuration.
    #[must_use]
    pub fn is_member(&self) -> bool {
        let Life {
            endpoint,
            incarnation,
        } = self.params.life;
        self.config
            .as_ref()
            .is_some_and(|config| config.has(endpoint.server, incarnation))
    }

    /// Sets the recent busy share of the server's thread, in 255ths. Routers choose between copies
    /// and hedges by it.
    pub fn set_busy(&mut self, share: u8) {
        self.busy = share;
    }

    /// Sets the size of the parts in which another server copies from this one, in bytes. A part
    /// has at least one session or key. By default a part fills about half a datagram.
    pub fn set_part_bytes_max(&mut self, bytes: usize) {
        self.part_bytes_max = bytes;
    }

    /// Returns the busy share that was set last, in 255ths.
    #[must_use]
    pub fn busy(&self) -> u8 {
        self.busy
    }

    /// Returns the memory that its records may take, in bytes.
    #[must_use]
    pub fn memory_bytes_max(&self) -> usize {
        self.params.memory_bytes_max
    }

    /// Returns the counts since the start.
    #[must_use]
    pub fn counts(&self) -> ServerCounts {
        self.counts
    }

    /// Returns the number of its records, including those of deleted keys.
    #[must_use]
    pub fn records(&self) -> usize {
        self.table.len()
    }

    /// Returns the number of deleted or evicted keys whose versions it keeps.
    #[must_use]
    pub fn tombstones(&self) -> usize {
        self.table.tombstones()
    }

    /// Returns whether it keeps a deletion that, as far as it knows, every replica has. It does so
    /// only while the members change, and until the next timeout afterwards.
    #[must_use]
    pub fn keeps_what_is_dead(&self) -> bool {
        self.sessions.iter().any(|(id, session)| {
            let oldest = self.table.deleted_until(*id, session.epoch, session.stable);
            oldest.is_some()
        })
    }

    /// Returns the number of sessions whose epoch it knows.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Returns the memory that its records take, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.table.bytes()
    }

    /// Returns the number of values that it evicted.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.table.evictions()
    }

    /// Returns its records in no particular order, for a comparison of replicas.
    pub fn states(&self) -> impl Iterator<Item = (crate::id::Key, State)> {
        self.table
            .iter()
            .map(|record| (record.key(), record.told()))
    }

    /// Handles a message from `sender`, which is the driver's number for the receiver of a reply.
    pub fn handle_message(&mut self, now: MonoNs, sender: u64, message: Message) {
        match message {
            Message::Request(copy) => {
                let reply = self.execute(now, &copy);
                let back = Destination::Sender(sender);
                if !self.hold(back, &copy, &reply) {
                    self.send(back, Message::Reply(reply));
                }
            }
            Message::Control(control) => self.handle_control(now, sender, control),
            // No correct part sends these to a server, but a stranger may.
            Message::Reply(_) | Message::Answer(_) => {}
        }
    }

    fn handle_control(&mut self, now: MonoNs, sender: u64, control: Control) {
        let back = Destination::Sender(sender);
        match control {
            Control::Config(config) => self.adopt(now, &config),
            Control::Fence(session, epoch) if self.fence(session, epoch) => {
                let known = self.sessions.get(&session);
                let at = known.map_or(WallNs(0), |it| it.at);
                let held = Control::FenceHeld(self.params.life, session, epoch, at);
                self.send(back, Message::Control(held));
            }
            Control::Prove(life, proof) if life == self.params.life.incarnation => {
                self.refused = None;
                self.ask_to_join(proof);
            }
            Control::JoinRefused(server, reason) if server == self.me() => {
                self.refused = Some(reason);
            }
            Control::Ping(ping) => self.handle_ping(now, back, ping),
            // A late pong grants no more than a lease from the time of the ping.
            Control::Pong(from, number, sent) if self.number() == number => {
                self.lease.heard(now, sent > MonoNs(0));
                self.lease.granted(from, sent);
            }
            Control::Pull(pull) => self.handle_pull(back, &pull),
            Control::Batch(batch) => self.handle_batch(now, batch),
            Control::List(question) => self.handle_list(now, back, question),
            Control::ConfigQuery => {
                if let Some(config) = &self.config {
                    let told = Message::Control(Control::Config(Arc::clone(config)));
                    self.send(back, told);
                }
            }
            // These messages are for other parts.
            _ => {}
        }
    }

    /// Drops the lease, because this machine's clock stood still or jumped and the lease may have
    /// ended. The server answers nothing until it has a new one.
    pub fn clock_jumped(&mut self, now: MonoNs) {
        if !planted(Bug::ClockJumpIgnored) {
            self.lease.begin_anew(now);
        }
    }

    /// Handles the time of [`Self::poll_timeout`].
    pub fn handle_timeout(&mut self, now: MonoNs) {
        if self.lease.ping_is_due(now) {
            self.ping(now);
            self.bury_what_piled_up();
        }
        self.pull_again(now);
    }

    /// Forgets deletions that piled up while the members changed, since none is forgotten during a
    /// change.
    fn bury_what_piled_up(&mut self) {
        let mut left = PILE_MAX;
        let mut next = self.table.deleted_in(SessionId(0));
        while let Some(session) = next.filter(|_| left > 0) {
            left -= self.bury_some(session, left);
            let after = session.0.checked_add(1).map(SessionId);
            next = after.and_then(|it| self.table.deleted_in(it));
        }
    }

    /// Returns the time at which to call [`Self::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> MonoNs {
        let pull = self.join.as_ref().map(Join::next_pull);
        self.lease.next_ping().min(pull.unwrap_or(MonoNs(u64::MAX)))
    }

    /// Returns the next message to send.
    pub fn poll_send(&mut self) -> Option<(Destination, Message)> {
        self.outbox.pop_front()
    }

    fn send(&mut self, to: Destination, message: Message) {
        self.outbox.push_back((to, message));
    }

    fn number(&self) -> ConfigNumber {
        self.config
            .as_ref()
            .map_or(ConfigNumber(0), |config| config.number)
    }

    /// Notes a session's epoch. Returns whether the server goes by it now.
    fn fence(&mut self, session: SessionId, epoch: Epoch) -> bool {
        if self.sessions.len() >= SESSIONS_MAX && !self.sessions.contains_key(&session) {
            return false;
        }
        assert!(
            self.sessions.len() <= SESSIONS_MAX,
            "nobody makes a server know more sessions than it may"
        );
        let known = self.sessions.entry(session).or_insert(Session {
            epoch,
            stable: Sequence(0),
            at: WallNs(0),
            used_in: ConfigNumber(0),
        });
        let (at, used_in) = (known.at, known.used_in);
        if epoch > known.epoch {
            // The next owner's stable number says nothing about the earlier owner's deletions.
            self.bury_some(session, usize::MAX);
            self.sessions.insert(
                session,
                Session {
                    epoch,
                    stable: Sequence(0),
                    at,
                    used_in,
                },
            );
        }
        true
    }

    /// Adopts a newer configuration.
    fn adopt(&mut self, now: MonoNs, config: &Arc<Config>) {
        if config.number <= self.number() {
            return;
        }
        assert!(
            self.config.is_none() || self.is_member(),
            "a server that was left out goes by nothing"
        );
        let Life {
            endpoint,
            incarnation,
        } = self.params.life;
        let was_member = self.is_member();
        self.refused = None;
        let is_member = config.has(endpoint.server, incarnation);
        if was_member && !is_member {
            self.leave();
        }
        // One shard, mostly the first, asks to join for the whole server. The others adopt the
        // incarnation under which it was admitted. They do not adopt one of an earlier process, or
        // one that they have given up, because they lack its records. If the first shard did not
        // follow, both would ask in turn for ever.
        let mine = self.params.life.incarnation;
        let named = config.incarnation_of(endpoint.server);
        let followed = named.filter(|named| !is_member && named.is_after(mine));
        if let Some(named) = followed {
            self.params.life.incarnation = named;
        }
        let given_up = endpoint.shard.0 > 0 && named.is_some_and(|named| mine.is_after(named));
        self.gave_up = given_up;
        if self.gave_up {
            self.ask_to_join(0);
        }
        if is_member || followed.is_some() {
            let stable = config.next.is_none();
            let has_records = self.kept.is_some() || self.table.len() > 0;
            self.join = Join::needed(now, self.params.life, config, has_records);
            self.config = Some(Arc::clone(config));
            assert!(
                self.is_member(),
                "a server takes part in its own configuration"
            );
            assert!(
                self.join.is_none() || !stable,
                "there is something to copy only while the members change"
            );
            self.settle_kept();
            if self.join.as_ref().is_none_or(Join::is_done) {
                self.kept = None;
            }
            self.params.lease = config.lease;
            self.lease.set_length(config.lease);
            self.lease.heard(now, true);
            let speaks = self.disk_speaks(config);
            if let Some(persist) = &mut self.persist {
                persist.restores = speaks.then_some(config.number);
            }
            if stable {
                let server = endpoint.server;
                let persist = &mut self.persist;
                self.table.retain(|key| {
                    let holds = config.replicas_of(key).find(server).is_some();
                    if let (false, Some(persist)) = (holds, persist.as_mut()) {
                        persist.note(key.clone(), What::Moved);
                    }
                    holds
                });
            }
            self.ping(now);
        }
        self.pull_again(now);
    }

    /// Begins a new incarnation, because the others have gone on without this server. It may have
    /// missed deletions, so its records count only as far as the members confirm them.
    fn leave(&mut self) {
        let before = self.params.life.incarnation;
        self.params.life.incarnation = before.next();
        assert!(
            self.params.life.incarnation != before,
            "the others would take what it kept for what they count"
        );
        self.keep(self.number());
        assert!(
            self.table.len() == 0 && self.kept.is_some(),
            "no record of an earlier incarnation counts for the next"
        );
        // It may return after all copies of a write were lost. Then it must take that write again
        // where the others do, so it learns the number of stable writes anew from them.
        for session in self.sessions.values_mut() {
            if !planted(Bug::FloorKept) {
                session.stable = Sequence(0);
            }
        }
        self.config = None;
        self.join = None;
        if let Some(persist) = &mut self.persist {
            persist.forget();
        }
        self.lease.forget();
    }

    fn me(&self) -> ServerId {
        self.params.life.endpoint.server
    }
}
