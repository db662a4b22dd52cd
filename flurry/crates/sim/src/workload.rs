//! The sessions: the operations of owners, their results, and changes of owners.

mod doubts;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use flurry_core::config::Level;
use flurry_core::id::{ConfigNumber, DurationNs, Epoch, OperationId, Sequence, WallNs};
use flurry_core::key_value::{Condition, Operation};
use flurry_core::machine::Access;
use flurry_core::portal::{Event, Outcome, Submission, SubmitError};

use crate::dice::Dice;
use crate::oracle::{Allowed, Asked, Truth};
use crate::scenario::{MS, Scenario};
use crate::trouble;
use crate::world::{Machine, NodeId, World};

/// Keys that a portal remembers: fewer than some sessions have.
pub const KEYS_REMEMBERED: u64 = 6;

/// An operation that is not answered yet.
#[derive(Debug)]
struct UnderWay {
    key: Bytes,
    asked_at: u64,
    /// The owner's time of the operation.
    at: WallNs,
    /// True for a write whose level promises copies.
    durable: bool,
}

/// The operations that one owner has under way.
#[derive(Debug, Default)]
struct Owner {
    epoch: Epoch,
    under_way: BTreeMap<u64, UnderWay>,
    closing: bool,
}

/// A session and its owners: the present one, and perhaps a former one that does not know of it.
#[derive(Debug)]
pub struct Session {
    name: String,
    places: [NodeId; 2],
    present: usize,
    owners: [Owner; 2],
    truth: Truth,
    /// The epochs of its owners, and the last loss of a server that each knew of at its opening.
    epochs: BTreeMap<Epoch, ConfigNumber>,
    /// Keys that the present owner was refused an operation on, because they are in doubt.
    known_doubts: BTreeSet<Bytes>,
    /// Time at which the present owner's opening was answered.
    opened_at: u64,
    /// The latest owner's time of an operation that was done.
    done_at: WallNs,
    /// Operations still to be asked.
    left: u64,
    /// The number of the first key in use.
    first_key: u64,
    /// Number of keys that are still to be read at the end.
    final_reads: Option<u64>,
    opened: bool,
    /// True if the last owner closed it.
    let_go: bool,
    /// Number of owners that were started, and number of them whose opening was answered.
    started: u64,
    heard: u64,
    /// True if the controller had answered all earlier owners when the present one was started, so
    /// that only late copies can come from them.
    others_answered: bool,
}

/// All sessions.
#[derive(Debug)]
pub struct Workload {
    sessions: Vec<Session>,
    log: bool,
    /// Number of operations answered.
    pub answered: u64,
    /// Number of times that owners received each outcome.
    pub outcomes: BTreeMap<&'static str, u64>,
}

/// Returns true if the owner may submit the same operation again.
fn is_for_now(error: &SubmitError) -> bool {
    matches!(
        error,
        SubmitError::NotOpen | SubmitError::Fenced(_) | SubmitError::Busy(_) | SubmitError::Full(_)
    )
}

impl Workload {
    /// Creates the sessions of a scenario, and starts their first owners.
    #[must_use]
    pub fn new(world: &mut World, operations: u64) -> Self {
        let routers: Vec<NodeId> = (0..world.scenario.routers)
            .map(|_| {
                let place = world.add_place();
                world.start_router(place);
                place
            })
            .collect();
        let count = u64::from(world.scenario.sessions);
        let mut sessions = Vec::new();
        for index in 0..count {
            let places = [world.add_place(), world.add_place()];
            sessions.push(Session {
                name: format!("session-{index}"),
                places,
                present: 0,
                owners: [Owner::default(), Owner::default()],
                truth: Truth::new(world.scenario.evict),
                epochs: BTreeMap::new(),
                known_doubts: BTreeSet::new(),
                opened_at: 0,
                done_at: WallNs(0),
                left: operations / count + u64::from(index < operations % count),
                first_key: 0,
                final_reads: None,
                opened: false,
                let_go: false,
                started: 0,
                heard: 0,
                others_answered: true,
            });
        }
        let mut workload = Self {
            sessions,
            log: true,
            answered: 0,
            outcomes: BTreeMap::new(),
        };
        for index in 0..workload.sessions.len() {
            workload.start_owner(world, index, &routers);
        }
        workload
    }

    fn routers(world: &World) -> Vec<NodeId> {
        (0..world.nodes.len())
            .filter(|place| matches!(world.nodes[*place].machine, Machine::Router(_)))
            .collect()
    }

    fn start_owner(&mut self, world: &mut World, index: usize, routers: &[NodeId]) {
        let session = &mut self.sessions[index];
        let place = session.places[session.present];
        session.owners[session.present] = Owner::default();
        session.opened = false;
        session.others_answered = session.started == session.heard;
        session.started += 1;
        // A session uses routers of its own processes or the one inside, never both.
        let router = if routers.is_empty() {
            place
        } else {
            *world.dice.pick(routers)
        };
        let name = session.name.clone();
        // In milliseconds: none, shorter than a heartbeat, longer than two.
        let silence_ms = if world.scenario.standbys {
            *world.dice.pick(&[0, 0, 200, 1_200])
        } else {
            0
        };
        world.start_portal(place, &name, router, self.log, DurationNs(silence_ms * MS));
        self.tick_later(world, index);
    }

    fn tick_later(&self, world: &mut World, index: usize) {
        world.call_at(world.now + MS, index as u64);
    }

    /// Submits as many operations as a session may have under way.
    pub fn tick(&mut self, world: &mut World, index: usize) {
        if index >= self.sessions.len() {
            return;
        }
        for owner in 0..2 {
            self.ask(world, index, owner);
        }
        let session = &self.sessions[index];
        if session.left > 0 || session.final_reads.is_some() {
            world.call_at(world.now + 5 * MS, index as u64);
        }
    }

    fn ask(&mut self, world: &mut World, index: usize, owner: usize) {
        loop {
            let session = &mut self.sessions[index];
            let Some((key, operation)) = session.wish(world, owner) else {
                return;
            };
            let key = Bytes::from(format!("k{key}"));
            let at = clock(world, session.owners[owner].epoch);
            let level = level(&mut world.dice, &world.scenario);
            let mut asked = Asked {
                to_disk: level == Level::Disk,
                operation: operation.encode(),
                access: operation.access(),
                at,
            };
            let durable = level.promises_copies() && asked.access != Access::Read;
            let submission = Submission {
                key: key.clone(),
                operation: asked.operation.clone(),
                access: asked.access,
                level,
                at,
                timeout: DurationNs(world.dice.between(200, 2_000) * MS),
                sequence: None,
                refuses_doubt: session.refuses_doubt(&world.scenario, &key),
            };
            let now = world.now;
            let place = session.places[owner];
            let submitted = world.with_portal(place, |portal, local| {
                (portal.submit(local, submission), portal.at())
            });
            let session = &mut self.sessions[index];
            let Some(((result, at), effects)) = submitted else {
                session.put_back(owner);
                return;
            };
            match result {
                Ok(number) => {
                    asked.at = at;
                    let back = session.time_went_back(owner, at);
                    if let Some(what) = back.filter(|_| !world.server_lost) {
                        return world.violate(what);
                    }
                    let owned = &mut session.owners[owner];
                    let under_way = UnderWay {
                        key: key.clone(),
                        asked_at: now,
                        at,
                        durable,
                    };
                    owned.under_way.insert(number, under_way);
                    let epoch = owned.epoch;
                    session.truth.submitted(epoch, &key, number, asked);
                    if session.final_reads.is_none() {
                        session.left = session.left.saturating_sub(1);
                    }
                }
                Err(error) if is_for_now(&error) => {
                    session.put_back(owner);
                    self.effects(world, effects);
                    return;
                }
                Err(error) => {
                    world.violate(format!("a good operation was refused: {error}"));
                    return;
                }
            }
            self.effects(world, effects);
        }
    }

    /// Handles the events of portals.
    pub fn effects(&mut self, world: &mut World, effects: Vec<crate::world::Effect>) {
        for effect in effects {
            if let crate::world::Effect::Told(place, event) = effect {
                self.told(world, place, event);
            }
        }
    }

    fn told(&mut self, world: &mut World, place: NodeId, event: Event) {
        let found = self
            .sessions
            .iter()
            .enumerate()
            .find_map(|(index, session)| {
                let owner = session.places.iter().position(|known| *known == place)?;
                Some((index, owner))
            });
        let Some((index, owner)) = found else { return };
        match event {
            Event::Opened(config, epoch) => {
                self.opened(world, index, owner, (epoch, config.last_loss));
            }
            Event::Answered(number, outcome) => self.answered(world, index, owner, number, outcome),
            Event::Closed => {
                let session = &mut self.sessions[index];
                session.owners[owner] = Owner::default();
                session.let_go = true;
                world.kill(place);
                if owner == session.present {
                    let routers = Self::routers(world);
                    self.start_owner(world, index, &routers);
                }
            }
            Event::Fenced(epoch) | Event::PartFenced(_, epoch) => {
                self.pushed_aside(world, index, owner, epoch);
            }
            Event::Refused(reason) => self.refused(world, index, owner, &reason),
            Event::Stable(_) | Event::StandsBy(_) => {}
        }
    }

    fn opened(
        &mut self,
        world: &mut World,
        index: usize,
        owner: usize,
        (epoch, last_loss): (Epoch, ConfigNumber),
    ) {
        let session = &mut self.sessions[index];
        session.heard += 1;
        session.owners[owner].epoch = epoch;
        if session.epochs.insert(epoch, last_loss).is_some() {
            world.violate(format!("epoch {} was given out again", epoch.0));
        }
        if epoch < session.truth_epoch() {
            // A later owner's opening was answered before this one.
            return;
        }
        session.truth.opened(epoch);
        session.known_doubts.clear();
        session.opened_at = world.now;
        session.opened = true;
        if let Some(reads) = &mut session.final_reads {
            *reads = 0;
        }
        let let_go = std::mem::take(&mut session.let_go);
        let owned = world.with_portal(session.places[owner], |portal, _| portal.owned());
        // After an owner that closed, servers need not know of the new one: only duplicates of the
        // former owner's operations are under way, and they change nothing.
        for it in owned.into_iter().flat_map(|it| it.0) {
            if !let_go && !world.owners.had_closed(it.session, it.epoch) {
                world.fenced.insert(it.session.0, it.epoch.0);
            }
        }
        self.ask(world, index, owner);
    }

    fn answered(
        &mut self,
        world: &mut World,
        index: usize,
        owner: usize,
        number: u64,
        outcome: Outcome,
    ) {
        let tight = world.scenario.memory_bytes_max < 1 << 20;
        let allowed = Allowed {
            // A server without room cannot copy the records of a lost one.
            loss: world.all_lost || (tight && world.server_lost),
            tail_unknown: if world.scenario.several_copies {
                let copies = usize::from(world.scenario.replicas / 2 + 1);
                world.all_lost || world.losses.most >= copies
            } else {
                world.server_lost
            },
            few_servers: world.server_lost,
            forgets: world.scenario.fresh_keys || world.scenario.keys > KEYS_REMEMBERED,
            shortage: tight,
            changing: world.changed_within(500 * MS),
        };
        *self.outcomes.entry(name(&outcome)).or_default() += 1;
        let session = &mut self.sessions[index];
        let epoch = session.owners[owner].epoch;
        let Some(under_way) = session.owners[owner].under_way.remove(&number) else {
            world.violate(format!("operation {number} was answered twice"));
            return;
        };
        let UnderWay {
            key,
            asked_at,
            at,
            durable,
        } = under_way;
        self.answered += 1;
        if world.trace {
            let (place, what) = (session.places[owner], name(&outcome));
            world.say(&format!("{place} told: {key:?} operation {number}: {what}"));
        }
        let late = epoch < session.truth_epoch() && asked_at > session.opened_at;
        if late && matches!(outcome, Outcome::Done { .. }) {
            world.violate(format!(
                "I10: epoch {} was answered for what it asked after epoch {} was open",
                epoch.0,
                session.truth_epoch().0
            ));
        }
        let fenced = matches!(outcome, Outcome::Fenced(_));
        let done = matches!(outcome, Outcome::Done { .. });
        if done {
            session.done_at = session.done_at.max(at);
        }
        if durable && done {
            check_copies(world, session.places[owner], epoch, (number, &key));
        }
        if let Some(what) = session.hear_of_doubt(world, &key, &outcome, allowed) {
            world.violate(what);
        }
        let told = session.truth.told(epoch, &key, number, outcome, allowed);
        if let Err(what) = told {
            let place = session.places[owner];
            let name = &session.name;
            world.violate(format!("{name}, epoch {} at {place}: {what}", epoch.0));
        }
        if fenced {
            self.take_back(world, index, owner);
            return;
        }
        if done && owner == self.sessions[index].present {
            trouble::perhaps_crash_owner(world, index);
        }
        self.ask(world, index, owner);
    }

    /// Ends the present owner of a session, and starts another in its place.
    pub fn crash_owner(&mut self, world: &mut World, index: usize) {
        let routers = Self::routers(world);
        let session = &self.sessions[index];
        world.kill(session.places[session.present]);
        self.start_owner(world, index, &routers);
    }

    fn pushed_aside(&mut self, world: &mut World, index: usize, owner: usize, epoch: Epoch) {
        let session = &mut self.sessions[index];
        let known = session.owners[owner].epoch;
        if epoch <= known {
            let (by, of) = (epoch.0, known.0);
            world.violate(format!("epoch {of} was pushed aside by epoch {by}"));
        }
        if owner == session.present && session.others_answered {
            world.violate(format!(
                "I24: epoch {} was pushed aside by a late copy of an opening that was over",
                known.0
            ));
        }
        session.owners[owner].closing = true;
        self.take_back(world, index, owner);
    }

    /// Handles a refused opening: somebody else has opened the session since it was sent.
    fn refused(&mut self, world: &mut World, index: usize, owner: usize, reason: &str) {
        let session = &mut self.sessions[index];
        world.kill(session.places[owner]);
        if owner != session.present {
            session.owners[owner] = Owner::default();
            return;
        }
        if session.others_answered {
            world.violate(format!("an opening was refused: {reason}"));
        }
        let routers = Self::routers(world);
        self.start_owner(world, index, &routers);
    }

    /// Handles a late opening of a former owner that won. The former owner needs nothing more once
    /// it was notified. The present one starts anew once all of its operations have a result.
    fn take_back(&mut self, world: &mut World, index: usize, owner: usize) {
        let session = &self.sessions[index];
        if !session.owners[owner].under_way.is_empty() {
            return;
        }
        world.kill(session.places[owner]);
        if owner == session.present {
            let routers = Self::routers(world);
            self.start_owner(world, index, &routers);
        }
    }

    /// Changes the owner of a session: the present one crashes, is fenced off, or closes.
    pub fn change_owner(&mut self, world: &mut World) {
        let index = usize::try_from(world.dice.below(self.sessions.len() as u64)).unwrap_or(0);
        let routers = Self::routers(world);
        let session = &mut self.sessions[index];
        let place = session.places[session.present];
        match world.dice.below(3) {
            0 => self.crash_owner(world, index),
            1 => {
                let other = 1 - session.present;
                world.kill(session.places[other]);
                session.present = other;
                self.start_owner(world, index, &routers);
            }
            _ => {
                let open = session.owners[session.present].epoch.0 != 0;
                if open && !session.owners[session.present].closing {
                    session.owners[session.present].closing = true;
                    let closed = world.with_portal(place, |portal, now| portal.close(now));
                    if let Some((_, effects)) = closed {
                        self.effects(world, effects);
                    }
                }
            }
        }
    }

    /// Ends a former owner, or lets it close the session, so that it is notified that it lost it.
    fn end_former(world: &mut World, session: &mut Session) {
        let former = 1 - session.present;
        let place = session.places[former];
        let open = match &world.nodes[place].machine {
            Machine::Portal(portal, _) => portal.is_open(),
            _ => false,
        };
        if open && world.dice.chance(500_000) {
            session.owners[former].closing = true;
            // It asks the controller, whose answer comes later.
            let _ = world.with_portal(place, |portal, now| portal.close(now));
        } else {
            world.kill(place);
            session.owners[former] = Owner::default();
        }
    }

    /// Returns true if every operation of every session was submitted and answered.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.sessions.iter().all(|session| {
            session.left == 0 && session.owners[session.present].under_way.is_empty()
        })
    }

    /// Stops submitting new operations.
    pub fn stop_asking(&mut self) {
        for session in &mut self.sessions {
            session.left = 0;
        }
    }

    /// Returns true if no owner, a former one included, holds a write that is not on every replica.
    #[must_use]
    pub fn is_quiet(&self, world: &World) -> bool {
        let mut places = self.sessions.iter().flat_map(|session| session.places);
        places.all(|place| match &world.nodes[place].machine {
            Machine::Portal(portal, _) => portal.held() == 0,
            _ => true,
        })
    }

    /// After the faults: lets the owners that are sure to stay read every key, and lets some former
    /// ones close.
    pub fn finish(&mut self, world: &mut World) {
        let routers = Self::routers(world);
        for index in 0..self.sessions.len() {
            let session = &mut self.sessions[index];
            session.final_reads = Some(0);
            let present = session.present;
            Self::end_former(world, session);
            let alive = !matches!(world.nodes[session.places[present]].machine, Machine::Down);
            let open = match &world.nodes[session.places[present]].machine {
                Machine::Portal(portal, _) => portal.is_open(),
                _ => false,
            };
            let stuck = session.owners[present].closing || !alive || !open;
            if stuck || world.dice.chance(300_000) {
                world.kill(session.places[present]);
                self.start_owner(world, index, &routers);
            }
            self.tick_later(world, index);
        }
    }

    /// Returns true if every key was read again, and every write is on every replica.
    #[must_use]
    pub fn is_settled(&self, world: &World) -> bool {
        self.sessions.iter().all(|session| {
            let keys = session.first_key + world.scenario.keys;
            let owner = &session.owners[session.present];
            let held = match &world.nodes[session.places[session.present]].machine {
                Machine::Portal(portal, _) => portal.held(),
                _ => usize::MAX,
            };
            let former = session.places[1 - session.present];
            session.opened
                && matches!(world.nodes[former].machine, Machine::Down)
                && session.final_reads == Some(keys)
                && owner.under_way.is_empty()
                && held == 0
        })
    }

    /// Describes the unsettled sessions, for a message.
    #[must_use]
    pub fn unsettled(&self, world: &World) -> String {
        let mut text = String::new();
        for session in &self.sessions {
            let keys = session.first_key + world.scenario.keys;
            let owner = &session.owners[session.present];
            let held = match &world.nodes[session.places[session.present]].machine {
                Machine::Portal(portal, _) => portal.held(),
                _ => usize::MAX,
            };
            if held > 0 && world.trace {
                world.say(&format!(
                    "{:?}",
                    world.nodes[session.places[session.present]].machine
                ));
            }
            let waits = !owner.under_way.is_empty();
            let former = session.places[1 - session.present];
            let told = matches!(world.nodes[former].machine, Machine::Down);
            if !told || !session.opened || session.final_reads != Some(keys) || held > 0 || waits {
                text += &format!(
                    " {}: opened {}, former {}, epoch {}, reads {:?}, under way {:?}, held {held};",
                    session.name,
                    session.opened,
                    if told { "told" } else { "waits" },
                    owner.epoch.0,
                    session.final_reads,
                    owner.under_way.iter().take(3).collect::<Vec<_>>()
                );
            }
        }
        text
    }

    /// Returns the number of answers that were checked against the oracle.
    #[must_use]
    pub fn checked(&self) -> u64 {
        self.sessions
            .iter()
            .map(|session| session.truth.checked)
            .sum()
    }
}

impl Session {
    /// Returns a violation of I23: the owner's time is behind that of a completed operation. A
    /// former owner that does not know of the present one is exempt, since no server executes its
    /// operations.
    fn time_went_back(&self, owner: usize, at: WallNs) -> Option<String> {
        let owns = self.owners[owner].epoch >= self.truth_epoch();
        let (at, before) = (at.0, self.done_at.0);
        (owns && at < before).then(|| format!("I23: the time went back from {before} to {at}"))
    }

    fn truth_epoch(&self) -> Epoch {
        self.truth.epoch()
    }

    /// Returns the key and the operation that an owner submits next, if it may submit more.
    fn wish(&mut self, world: &mut World, owner: usize) -> Option<(u64, Operation)> {
        let in_use = world.scenario.keys;
        let all = self.first_key + in_use;
        let asks = &self.owners[owner];
        let busy = asks.under_way.len() as u64 >= world.scenario.depth;
        if busy || asks.closing || asks.epoch.0 == 0 {
            return None;
        }
        if let Some(next) = &mut self.final_reads {
            if owner != self.present || *next >= all {
                return None;
            }
            *next += 1;
            return Some((*next - 1, Operation::Get));
        }
        if self.left == 0 {
            return None;
        }
        let key = self.first_key + world.dice.below(in_use);
        if world.scenario.fresh_keys && world.dice.chance(300_000) {
            self.first_key += 1;
        }
        Some((key, operation(&mut world.dice, world.now)))
    }

    /// Repeats a final read that could not be submitted.
    fn put_back(&mut self, owner: usize) {
        if owner == self.present
            && let Some(reads) = &mut self.final_reads
        {
            *reads = reads.saturating_sub(1);
        }
    }
}

/// Checks the copies of a write whose owner received the answer, at a level that promises copies.
fn check_copies(world: &mut World, place: NodeId, epoch: Epoch, (number, key): (u64, &Bytes)) {
    // Skipped after a renumbering: only the owner knows the number on the wire.
    let known = world.with_portal(place, |portal, _| {
        (portal.session_of(key), portal.tried_again())
    });
    let Some(((Some(session), 0), _)) = known else {
        return;
    };
    world.check_copies(OperationId {
        session,
        epoch,
        // Takeovers have odd numbers.
        sequence: Sequence(2 * number),
    });
}

fn name(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done {
            tail_unknown: false,
            ..
        } => "done",
        Outcome::Done { .. } => "done, tail unknown",
        Outcome::TailUnknown => "refused for doubt",
        Outcome::Unknown => "unknown",
        Outcome::DataLoss { .. } => "data loss",
        Outcome::Fenced(_) => "fenced",
        Outcome::Busy => "busy",
        Outcome::TooFewCopies => "too few copies",
        Outcome::Evicted => "evicted",
        Outcome::Malformed => "malformed",
    }
}

/// Returns the time of an owner's clock: right, or wrong by up to two seconds.
fn clock(world: &World, epoch: Epoch) -> WallNs {
    let now = i64::try_from(world.now).unwrap_or(i64::MAX);
    let wrong_ms = i64::from(epoch.0.wrapping_mul(2_654_435_761) >> 20) % 4_000 - 2_000;
    let wrong_ms = if world.scenario.wrong_clocks {
        wrong_ms
    } else {
        0
    };
    WallNs(now + wrong_ms * 1_000_000)
}

fn level(dice: &mut Dice, scenario: &Scenario) -> Level {
    if scenario.disk && dice.chance(250_000) {
        return Level::Disk;
    }
    if scenario.several_copies {
        return *dice.pick(&[Level::Quorum, Level::Quorum, Level::All]);
    }
    match dice.below(20) {
        0..12 => Level::First,
        12..15 => Level::Quorum,
        15..17 => Level::All,
        17..19 => Level::Hedge(DurationNs(dice.between(0, 3) * MS)),
        _ => Level::Auto,
    }
}

fn operation(dice: &mut Dice, now: u64) -> Operation {
    let value = |dice: &mut Dice| Bytes::from(format!("{}", dice.below(1_000)));
    match dice.below(100) {
        0..38 => Operation::Get,
        38..55 => Operation::set(value(dice)),
        55..70 => Operation::Increment(i64::try_from(dice.below(9)).unwrap_or(1) + 1),
        70..73 => Operation::Append(Bytes::from_static(b"7")),
        // What a transaction of a client becomes: nothing comes between its operations.
        73..76 => Operation::Several(vec![
            Operation::Append(Bytes::from_static(b"7")),
            Operation::Get,
            Operation::Increment(1),
        ]),
        76..82 => Operation::CompareAndSet {
            expected: dice.chance(500_000).then(|| value(dice)),
            value: value(dice),
        },
        82..86 => Operation::Delete { counted: true },
        86..92 => Operation::Delete { counted: false },
        92..94 => Operation::Set {
            value: value(dice),
            expires_at: None,
            condition: if dice.chance(500_000) {
                Condition::Absent
            } else {
                Condition::Present
            },
        },
        _ => Operation::Set {
            value: value(dice),
            expires_at: Some(WallNs(
                i64::try_from(now + dice.between(1, 200) * MS).unwrap_or(i64::MAX),
            )),
            condition: Condition::Always,
        },
    }
}
