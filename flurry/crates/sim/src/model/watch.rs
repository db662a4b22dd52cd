//! Watches the model: states that must never occur, states that must be reached, and their
//! descriptions.

use std::sync::atomic::Ordering;

use flurry_core::key_value::Answer;
use flurry_core::portal::Outcome;
use stateright::Property;

use super::letter::Place;
use super::parts::{Input, Step, Told};
use super::plan::{Plan, Sight, Wish};
use super::truth::Said;
use super::world::{Action, Exploration, Faults, Letter, World, now};

/// A violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Broken {
    /// An owner received a result that no order of the operations explains.
    NotLinearizable,
    /// I1, I3: one version, two states.
    TwoStates,
    /// I2: a version went back.
    WentBack,
    /// I11: a message of an earlier configuration had an effect.
    NotFenced,
    /// I11: a message of an earlier configuration did something.
    OldConfiguration,
    /// An owner was notified of a lost tail where nothing can be lost.
    FalseAlarm,
    /// A running owner was notified that one of its own writes is lost.
    Lost,
    /// An assertion of the core failed.
    Assertion,
}

impl Exploration {
    /// Returns how often a situation was met.
    pub(super) fn met(&self, sight: Sight) -> u64 {
        self.met[sight as usize].load(Ordering::Relaxed)
    }

    pub(super) fn meet(&self, sight: Sight) {
        self.met[sight as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Records the facts that a step shows, compared with the state before it.
    pub(super) fn note(&self, world: &mut World, place: Place, step: &Step) {
        if step.panic.is_some() {
            world.broken.get_or_insert(Broken::Assertion);
        }
        if place.is_server() {
            self.note_server(world, place, step);
        }
        for told in &step.told {
            self.note_told(world, place, told);
        }
    }

    fn note_server(&self, world: &mut World, place: Place, step: &Step) {
        if let (Some((old, _)), Some((new, _))) = (world.held[place.index()], step.held)
            && new < old
        {
            world.broken.get_or_insert(Broken::WentBack);
        }
        let changed = world.held[place.index()] != step.held;
        world.held[place.index()] = step.held;
        if let Some((version, state)) = step.held {
            match world.states.binary_search_by_key(&version, |it| it.0) {
                Err(at) => world.states.insert(at, (version, state)),
                Ok(at) if world.states[at].1 != state => {
                    world.broken.get_or_insert(Broken::TwoStates);
                }
                Ok(_) => {}
            }
        }
        if let Some(epoch) = step.executed {
            if world.opened[1] && epoch == 1 && (changed || !self.is_closing(world)) {
                world.broken.get_or_insert(Broken::NotFenced);
            }
            if world.faults.back && world.faults.crashed == Some(place) {
                self.meet(Sight::ReturnedAnswers);
            }
        }
        if step.pushed {
            self.meet(Sight::Repaired);
        }
        if step.leaseless {
            self.meet(Sight::LeaseMissed);
        }
    }

    fn note_told(&self, world: &mut World, place: Place, told: &Told) {
        let (index, outcome) = match told {
            Told::Opened => {
                if let Some(owner) = place.owner() {
                    world.opened[owner] = true;
                }
                if place == Place::SECOND_OWNER {
                    self.note_takeover(world);
                }
                return;
            }
            Told::Fenced => {
                self.meet(Sight::FenceTold);
                return;
            }
            Told::Answered(index, outcome) => (*index, outcome),
        };
        let name = (place.0, index);
        let lost = world.faults != Faults::default();
        match outcome {
            Outcome::Done {
                answer,
                tail_unknown,
            } => {
                if *tail_unknown {
                    self.meet(Sight::TailUnknownTold);
                    world.truth().lossy(name);
                    if !lost {
                        world.broken.get_or_insert(Broken::FalseAlarm);
                    }
                }
                if place == Place::FIRST_OWNER && world.opened[1] {
                    self.meet(Sight::LateAnswer);
                }
                if world.faults.crashed.is_some() {
                    self.meet(Sight::AnsweredAfterCrash);
                }
                if !world.truth().done(name, said(answer)) {
                    world.broken.get_or_insert(Broken::NotLinearizable);
                }
                return;
            }
            Outcome::DataLoss { .. } => {
                world.broken.get_or_insert(Broken::Lost);
            }
            // No caller here refuses an answer in doubt.
            Outcome::TailUnknown => {
                world.broken.get_or_insert(Broken::FalseAlarm);
            }
            Outcome::Fenced(_)
            | Outcome::Unknown
            | Outcome::Busy
            | Outcome::TooFewCopies
            | Outcome::Evicted
            | Outcome::Malformed => {}
        }
        world.truth().unheard(name);
    }

    fn note_takeover(&self, world: &World) {
        if let [one, other] = world.held
            && one != other
            && world.faults == Faults::default()
        {
            self.meet(Sight::TakeoverInFlight);
        }
        if self.is_closing(world) {
            self.meet(Sight::LetGo);
        }
    }

    /// Returns true if the first owner is closing. Then no operation of it that could change
    /// anything is under way when the second is let in, but a server may repeat the answer of a
    /// finished one.
    pub(super) fn is_closing(&self, world: &World) -> bool {
        let all = usize::from(world.asked[0]) == self.plan.first.len();
        all && self.plan.first.last() == Some(&Wish::Close)
    }
}

impl Exploration {
    /// Describes an event in words, with the results that the owners received.
    pub(super) fn describe(&self, world: &World, action: Action) -> Vec<String> {
        let wish = |owner: u8| {
            let place = Place(Place::FIRST_OWNER.0 + owner);
            let index = usize::from(world.asked[usize::from(owner)]);
            self.plan.wish(place, index)
        };
        let (what, input) = match action {
            Action::Deliver(Letter(id)) => {
                let what = self.steps.letter(id).map(|letter| letter.to_string());
                (what.unwrap_or_default(), Some((id.to(), Input::Letter(id))))
            }
            Action::Submit(owner) => {
                let place = Place(Place::FIRST_OWNER.0 + owner);
                let index = world.asked[usize::from(owner)];
                let what = wish(owner).map(|wish| format!("{place} asks: {wish:?}"));
                (
                    what.unwrap_or_default(),
                    Some((place, Input::Submit(place, index))),
                )
            }
            Action::Open => (format!("{} wants the session", Place::SECOND_OWNER), None),
            Action::Crash(server) => (format!("{} loses its memory", Place(server)), None),
            Action::Return(server) => (format!("{} is started again", Place(server)), None),
            Action::Wait(None) => ("more than a lease passes".to_owned(), None),
            Action::Wait(Some(server)) => (
                format!("more than a lease passes, {} is cut off", Place(server)),
                None,
            ),
        };
        let mut lines = vec![what];
        if let Some((place, input)) = input {
            let part = world.parts[place.index()];
            let step = self.steps.step(part, input, now(world.clock));
            for told in &step.told {
                lines.push(format!("  {place} is notified: {told:?}"));
            }
        }
        lines
    }
}

fn said(answer: &bytes::Bytes) -> Said {
    match Answer::decode(answer.clone()) {
        Ok(Answer::Stored) => Said::Stored,
        Ok(Answer::NotFound) => Said::Value(None),
        Ok(Answer::Number(number)) => Said::Value(Some(number)),
        Ok(Answer::Value(bytes)) => std::str::from_utf8(&bytes)
            .ok()
            .and_then(|text| text.parse().ok())
            .map_or(Said::Other, |number| Said::Value(Some(number))),
        _ => Said::Other,
    }
}

/// Returns the properties that every state must have, and the situations that must be met.
pub(super) fn properties(plan: &Plan) -> Vec<Property<Exploration>> {
    let mut properties = vec![
        Property::<Exploration>::always("the results of owners are linearizable", |_, world| {
            world.broken != Some(Broken::NotLinearizable)
        }),
        Property::<Exploration>::always("I1, I3, I9: a version is one state", |_, world| {
            world.broken != Some(Broken::TwoStates)
        }),
        Property::<Exploration>::always("I2: no version goes back", |_, world| {
            world.broken != Some(Broken::WentBack)
        }),
        Property::<Exploration>::always("I10: nothing of an earlier owner is done", |_, world| {
            world.broken != Some(Broken::NotFenced)
        }),
        Property::<Exploration>::always("I11: an earlier configuration is void", |_, world| {
            world.broken != Some(Broken::OldConfiguration)
        }),
        Property::<Exploration>::always(
            "a lost tail is reported only after a fault",
            |_, world| world.broken != Some(Broken::FalseAlarm),
        ),
        Property::<Exploration>::always("I7: no owner that runs loses a write", |_, world| {
            world.broken != Some(Broken::Lost)
        }),
        Property::<Exploration>::always("the assertions of the core hold", |_, world| {
            world.broken != Some(Broken::Assertion)
        }),
    ];
    properties.extend(plan.sights.iter().map(|sight| {
        let met = MET[*sight as usize];
        Property::<Exploration>::sometimes(sight.name(), met)
    }));
    properties
}

type Met = fn(&Exploration, &World) -> bool;

/// Tests whether each situation was met, in the order of [`Sight::ALL`]: a property is a plain
/// function without captured values.
const MET: [Met; Sight::ALL.len()] = [
    has_met::<0>,
    has_met::<1>,
    has_met::<2>,
    has_met::<3>,
    has_met::<4>,
    has_met::<5>,
    has_met::<6>,
    has_met::<7>,
    has_met::<8>,
];

fn has_met<const SIGHT: usize>(exploration: &Exploration, _: &World) -> bool {
    exploration.met[SIGHT].load(Ordering::Relaxed) > 0
}
