//! All parts together, the messages under way between them, and the possible next events.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use flurry_core::bugs::Bug;
use flurry_core::id::{DurationNs, MonoNs, Version};
use stateright::{Model, Property};

use super::letter::{LetterId, PLACES, Place, SERVERS};
use super::mail::{Mail, Outlook};
use super::parts::{Input, LEASE, Step};
use super::plan::{Plan, Sight, Wish};
use super::steps::{PartId, Steps};
use super::truth::Truth;
use super::watch::{self, Broken};

/// Time at which the exploration begins; the cluster is put together before it.
const BEGIN: MonoNs = MonoNs(10_000_000_000);

/// A quarter of a lease: the period at which servers ask for the next lease.
const QUARTER: DurationNs = DurationNs(LEASE.0 / 4);

/// Quarters that pass at once: a lease, the eighth by which clocks may differ, and some more.
const QUARTERS: u8 = 5;

/// Faults that have happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Faults {
    /// True if that server runs again.
    pub(super) crashed: Option<Place>,
    /// It runs again.
    pub(super) back: bool,
    /// The server that was cut off.
    pub(super) cut: Option<Place>,
}

/// A state of the world.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct World {
    /// In quarters of a lease.
    pub(super) clock: u8,
    pub(super) parts: [PartId; PLACES],
    /// Every message ever sent: each may arrive at any time, any number of times, or never.
    pub(super) mail: [Arc<Mail>; PLACES],
    pub(super) truth: Arc<Truth>,
    /// The highest configuration that each part has adopted.
    pub(super) config: [u8; PLACES],
    /// Each server's version and state of the key.
    pub(super) held: [Option<(Version, u64)>; SERVERS],
    /// The state of each version that existed.
    pub(super) states: Vec<(Version, u64)>,
    pub(super) asked: [u8; 2],
    pub(super) faults: Faults,
    /// The second owner has asked for the session.
    pub(super) began: bool,
    /// Owners that were let in.
    pub(super) opened: [bool; 2],
    /// Owners that have nothing more to do, and have ended.
    pub(super) ended: [bool; 2],
    pub(super) broken: Option<Broken>,
}

/// A possible next event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// A message arrives.
    Deliver(Letter),
    /// An owner submits its next operation.
    Submit(u8),
    /// The second owner asks for the session.
    Open,
    /// A server loses its memory.
    Crash(u8),
    /// That server is started again.
    Return(u8),
    /// Somewhat more than a lease passes, in which this server receives nothing from the others.
    Wait(Option<u8>),
}

/// Name of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Letter(pub(super) LetterId);

/// The exploration of a plan.
#[derive(Debug)]
pub(super) struct Exploration {
    pub(super) plan: Plan,
    pub(super) steps: Steps,
    begin: World,
    down: PartId,
    pub(super) met: [AtomicU64; Sight::ALL.len()],
    /// True once a violation was found.
    found: AtomicBool,
}

impl World {
    pub(super) fn truth(&mut self) -> &mut Truth {
        Arc::make_mut(&mut self.truth)
    }
}

impl Exploration {
    /// Puts the cluster together: two servers, and the first owner, who has the session.
    #[must_use]
    pub(super) fn new(plan: Plan, bug: Option<Bug>) -> Self {
        let steps = Steps::new(plan, bug);
        let down = steps.down();
        let begin = World {
            clock: 0,
            parts: [down; PLACES],
            mail: Default::default(),
            truth: Arc::new(Truth::new()),
            config: [0; PLACES],
            held: [None; SERVERS],
            states: Vec::new(),
            asked: [0; 2],
            faults: Faults::default(),
            began: false,
            opened: [false; 2],
            ended: [false; 2],
            broken: None,
        };
        let mut exploration = Self {
            plan,
            steps,
            begin,
            down,
            met: Default::default(),
            found: AtomicBool::new(false),
        };
        let mut begin = exploration.begin.clone();
        exploration.assemble(&mut begin);
        exploration.saturate(&mut begin);
        exploration.begin = begin;
        exploration
    }

    fn assemble(&self, world: &mut World) {
        let before = MonoNs(BEGIN.0 - 4 * QUARTER.0);
        self.put(
            world,
            before,
            Place::CONTROLLER,
            Input::Start(Place::CONTROLLER, 0),
        );
        for server in servers() {
            self.put(world, before, server, Input::Start(server, 1));
        }
        for quarter in 0..=4 {
            let now = before.after(DurationNs(quarter * QUARTER.0));
            if quarter == 2 {
                let owner = Place::FIRST_OWNER;
                self.put(world, now, owner, Input::Start(owner, 0));
            }
            self.quarter(world, now, None);
            // Bounded: each answer is to a message from before the time moved on.
            loop {
                let mail = std::mem::take(&mut world.mail);
                let letters: Vec<LetterId> =
                    mail.iter().flat_map(|it| it.letters().to_vec()).collect();
                if letters.is_empty() {
                    break;
                }
                for letter in letters {
                    self.put(world, now, letter.to(), Input::Letter(letter));
                }
            }
        }
        world.states.clear();
    }

    /// Gives a part an input, and carries out its outputs.
    fn put(&self, world: &mut World, now: MonoNs, place: Place, input: Input) {
        self.put_cut(world, now, (place, input), None);
    }

    fn put_cut(&self, world: &mut World, now: MonoNs, first: (Place, Input), cut: Option<Place>) {
        let mut inputs = VecDeque::from([first]);
        // Bounded: an instant message is a question or its answer.
        while let Some((place, input)) = inputs.pop_front() {
            let step = self.steps.step(world.parts[place.index()], input, now);
            world.parts[place.index()] = step.part;
            self.note(world, place, &step);
            self.configured(world, place, step.config);
            self.end(world, place, &step);
            for letter in &step.letters {
                if letter.is_instant() {
                    if Some(letter.to()) != cut {
                        inputs.push_back((letter.to(), Input::Letter(*letter)));
                    }
                } else {
                    self.send(world, *letter);
                }
            }
        }
    }

    /// Records that a message is under way. Returns true if it is new.
    fn send(&self, world: &mut World, letter: LetterId) -> bool {
        let to = letter.to();
        if to.owner().is_some_and(|owner| world.ended[owner]) {
            return false;
        }
        if letter.is_before(world.config[to.index()]) {
            self.old(world, letter);
            return false;
        }
        Mail::add(&mut world.mail[to.index()], letter)
    }

    /// Records that a part has adopted a configuration. Messages of earlier ones are void from now
    /// on.
    fn configured(&self, world: &mut World, place: Place, config: u8) {
        let at = place.index();
        if config <= world.config[at] {
            return;
        }
        world.config[at] = config;
        for letter in Mail::forget(&mut world.mail[at], config) {
            self.old(world, letter);
        }
    }

    /// Checks that a void message changes no server and notifies no owner.
    fn old(&self, world: &mut World, letter: LetterId) {
        let part = world.parts[letter.to().index()];
        let step = self
            .steps
            .step(part, Input::Letter(letter), now(world.clock));
        let moved = letter.to().is_server() && step.changes(part);
        if moved || step.executed.is_some() || !step.told.is_empty() {
            world.broken.get_or_insert(Broken::OldConfiguration);
        }
    }

    /// Returns the effects of all messages that may arrive at a place.
    fn outlook(&self, world: &World, place: usize) -> Arc<Outlook> {
        let mail = &world.mail[place];
        self.steps
            .outlook(world.parts[place], mail, now(world.clock))
    }

    /// Delivers every message that changes nothing but the set of messages under way. Those may
    /// arrive or not, so this removes no possibility, and the order of such events need not be
    /// explored.
    fn saturate(&self, world: &mut World) {
        let mut looked: [Option<(PartId, u64)>; PLACES] = [None; PLACES];
        let mut again = true;
        // Bounded: it goes on while there are new letters, of which there are finitely many.
        while again {
            again = false;
            for (place, looked) in looked.iter_mut().enumerate() {
                let at = (world.parts[place], world.mail[place].hash());
                if looked.replace(at) == Some(at) || at.0 == self.down {
                    continue;
                }
                let outlook = self.outlook(world, place);
                for letter in &outlook.sent {
                    again |= self.send(world, *letter);
                }
                if world.opened[1] && outlook.executed & 2 != 0 && !self.is_closing(world) {
                    world.broken.get_or_insert(Broken::NotFenced);
                }
                if outlook.leaseless {
                    self.meet(Sight::LeaseMissed);
                }
            }
        }
    }

    /// An owner with nothing under way ends when it has nothing more to ask, or may not: it would do
    /// nothing but learn of configurations.
    fn end(&self, world: &mut World, place: Place, step: &Step) {
        let Some(owner) = place.owner() else { return };
        if !step.idle || !world.opened[owner] {
            return;
        }
        let asked = usize::from(world.asked[owner]) == self.plan.wishes(place).len();
        if asked || !step.open {
            world.ended[owner] = true;
            world.parts[place.index()] = self.down;
            world.mail[place.index()] = Arc::default();
        }
    }

    /// Lets servers ask for their leases and the controller check its timers, a quarter of a lease
    /// later.
    fn quarter(&self, world: &mut World, now: MonoNs, cut: Option<Place>) {
        for server in servers().filter(|server| Some(*server) != cut) {
            self.put_cut(world, now, (server, Input::Tick), cut);
        }
        self.put_cut(world, now, (Place::CONTROLLER, Input::Tick), cut);
    }

    /// Returns true if all messages between the controller and the servers have arrived, except at
    /// a server that is cut off. Only then may this much time pass.
    fn is_quiet(&self, world: &World, cut: Option<u8>) -> bool {
        (0..=Place::CONTROLLER.index())
            .filter(|place| cut.map(usize::from) != Some(*place))
            .filter(|place| world.parts[*place] != self.down)
            .all(|place| {
                let outlook = self.outlook(world, place);
                !outlook.live.iter().any(|letter| letter.is_control())
            })
    }

    fn act(&self, world: &mut World, action: Action) {
        let now = now(world.clock);
        match action {
            Action::Deliver(Letter(letter)) => {
                self.put(world, now, letter.to(), Input::Letter(letter));
            }
            Action::Submit(owner) => {
                let place = Place(Place::FIRST_OWNER.0 + owner);
                let index = usize::from(world.asked[usize::from(owner)]);
                world.asked[usize::from(owner)] += 1;
                if let Some(wish) = self.plan.wish(place, index)
                    && wish != Wish::Close
                {
                    world.truth().asked((place.0, index), wish);
                }
                let index = u8::try_from(index).unwrap_or(u8::MAX);
                self.put(world, now, place, Input::Submit(place, index));
            }
            Action::Open => {
                let place = Place::SECOND_OWNER;
                world.began = true;
                self.put(world, now, place, Input::Start(place, 0));
            }
            Action::Crash(server) => {
                world.faults.crashed = Some(Place(server));
                world.held[usize::from(server)] = None;
                self.put(world, now, Place(server), Input::Stop);
            }
            Action::Return(server) => {
                world.faults.back = true;
                self.put(world, now, Place(server), Input::Start(Place(server), 2));
            }
            Action::Wait(cut) => {
                let cut = cut.map(Place);
                world.faults.cut = world.faults.cut.or(cut);
                for _ in 0..QUARTERS {
                    world.clock += 1;
                    self.quarter(world, self::now(world.clock), cut);
                }
                for owner in [Place::FIRST_OWNER, Place::SECOND_OWNER] {
                    self.put(world, self::now(world.clock), owner, Input::Tick);
                }
            }
        }
    }
}

fn servers() -> impl Iterator<Item = Place> {
    (0..SERVERS).map(|server| Place::of(server as u64))
}

pub(super) fn now(clock: u8) -> MonoNs {
    BEGIN.after(DurationNs(u64::from(clock) * QUARTER.0))
}

impl Model for Exploration {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![self.begin.clone()]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.broken.is_some() {
            return;
        }
        let plan = &self.plan;
        for place in (0..PLACES).filter(|place| world.parts[*place] != self.down) {
            let outlook = self.outlook(world, place);
            actions.extend(outlook.live.iter().map(|it| Action::Deliver(Letter(*it))));
        }
        if usize::from(world.asked[0]) < plan.first.len() && !world.ended[0] {
            actions.push(Action::Submit(0));
        }
        if world.opened[1] && usize::from(world.asked[1]) < plan.second.len() && !world.ended[1] {
            actions.push(Action::Submit(1));
        }
        if !world.began && !plan.second.is_empty() {
            actions.push(Action::Open);
        }
        let faults = world.faults;
        if let (Some(server), true) = (plan.crash, faults == Faults::default()) {
            actions.push(Action::Crash(server));
        }
        if let (true, false, Some(server)) = (plan.comes_back, faults.back, faults.crashed) {
            actions.push(Action::Return(server.0));
        }
        if world.clock < plan.waits * QUARTERS {
            if faults != Faults::default() && self.is_quiet(world, None) {
                actions.push(Action::Wait(None));
            }
            if let Some(server) = plan.cut
                && faults.crashed.is_none()
                && self.is_quiet(world, Some(server))
            {
                actions.push(Action::Wait(Some(server)));
            }
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        self.act(&mut next, action);
        self.saturate(&mut next);
        // The search goes on for a while after the first violation, which has the shortest path.
        if next.broken.is_some() && self.found.swap(true, Ordering::Relaxed) {
            return None;
        }
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        watch::properties(&self.plan)
    }
}
