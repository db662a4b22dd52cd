//! The steps of the parts. A part depends only on its state and its input, so each is driven once
//! for each combination of state, input and time, and the result is kept.

use std::any::Any;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};

use flurry_core::bugs::{Bug, plant};
use flurry_core::id::MonoNs;
use flurry_core::message::{Control, Message};

use super::letter::{Letter, LetterId, Place};
use super::mail::{Mail, Outlook};
use super::parts::{Input, Part, Step, drive};
use super::plan::Plan;

/// Hash of a part's state.
pub(super) type PartId = u64;

/// Passes a hash through.
#[derive(Debug, Clone, Copy, Default)]
struct Passed(u64);

impl Hasher for Passed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

type Map<V> = HashMap<u64, Arc<V>, BuildHasherDefault<Passed>>;

/// A map by hashes that two threads share.
#[derive(Debug)]
struct Shared<V>(Vec<RwLock<Map<V>>>);

impl<V> Shared<V> {
    fn new() -> Self {
        Self((0..64).map(|_| RwLock::default()).collect())
    }

    fn shard(&self, key: u64) -> &RwLock<Map<V>> {
        // The map itself uses the other bits.
        let at = usize::try_from((key >> 32) % self.0.len() as u64).unwrap_or(0);
        &self.0[at]
    }

    fn find(&self, key: u64) -> Option<Arc<V>> {
        let map = self.shard(key).read();
        let map = map.unwrap_or_else(PoisonError::into_inner);
        map.get(&key).map(Arc::clone)
    }

    fn keep(&self, key: u64, value: Arc<V>) {
        let map = self.shard(key).write();
        let mut map = map.unwrap_or_else(PoisonError::into_inner);
        map.insert(key, value);
    }

    fn len(&self) -> usize {
        let of = |map: &RwLock<Map<V>>| map.read().unwrap_or_else(PoisonError::into_inner).len();
        self.0.iter().map(of).sum()
    }
}

/// Every step, with every state of a part and every message that was met on it.
#[derive(Debug)]
pub(super) struct Steps {
    plan: Plan,
    bug: Option<Bug>,
    parts: Shared<Part>,
    letters: Shared<Letter>,
    steps: Shared<Step>,
    outlooks: Shared<Outlook>,
}

/// Mixes a value into a hash: the multiplication carries bits up, the shift down, so every bit
/// counts.
fn mix(hash: u64, value: u64) -> u64 {
    let mixed = (hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

pub(super) fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Input {
    /// Returns a hash of the input, the state that it meets, and the time.
    fn hashed(self, part: PartId, now: MonoNs) -> u64 {
        let input = match self {
            Self::Start(place, life) => u64::from(place.0) << 8 | u64::from(life) << 16 | 1,
            Self::Stop => 2,
            Self::Tick => 3,
            Self::Submit(place, index) => u64::from(place.0) << 8 | u64::from(index) << 16 | 4,
            Self::Letter(letter) => letter.number(),
        };
        mix(mix(mix(0, part), input), now.0)
    }
}

impl Steps {
    pub(super) fn new(plan: Plan, bug: Option<Bug>) -> Self {
        Self {
            plan,
            bug,
            parts: Shared::new(),
            letters: Shared::new(),
            steps: Shared::new(),
            outlooks: Shared::new(),
        }
    }

    /// How many steps the real code took.
    pub(super) fn count(&self) -> usize {
        self.steps.len()
    }

    /// Returns the part of a place where nothing runs.
    pub(super) fn down(&self) -> PartId {
        let id = hash_of(&Part::Down);
        self.parts.keep(id, Arc::new(Part::Down));
        id
    }

    pub(super) fn letter(&self, id: LetterId) -> Option<Arc<Letter>> {
        self.letters.find(id.number())
    }

    /// Returns the result of an input at a time.
    pub(super) fn step(&self, part: PartId, input: Input, now: MonoNs) -> Arc<Step> {
        let key = input.hashed(part, now);
        if let Some(known) = self.steps.find(key) {
            return known;
        }
        plant(self.bug);
        let step = catch_unwind(AssertUnwindSafe(|| self.execute(part, input, now)));
        let step = Arc::new(step.unwrap_or_else(|panic| Step {
            part,
            panic: Some(said(&*panic)),
            ..Step::default()
        }));
        self.steps.keep(key, Arc::clone(&step));
        step
    }

    /// Returns the effects of all messages that may arrive at a part.
    pub(super) fn outlook(&self, part: PartId, mail: &Mail, now: MonoNs) -> Arc<Outlook> {
        let key = mix(mix(mix(1, part), mail.hash()), now.0);
        if let Some(known) = self.outlooks.find(key) {
            return known;
        }
        let mut outlook = Outlook::default();
        for letter in mail.letters() {
            let step = self.step(part, Input::Letter(*letter), now);
            if step.changes(part) {
                outlook.live.push(*letter);
                continue;
            }
            outlook.sent.extend(&step.letters);
            outlook.executed |= step.executed.map_or(0, |epoch| 1 << epoch);
            outlook.leaseless |= step.leaseless;
        }
        let outlook = Arc::new(outlook);
        self.outlooks.keep(key, Arc::clone(&outlook));
        outlook
    }

    /// Runs the real code.
    fn execute(&self, part: PartId, input: Input, now: MonoNs) -> Step {
        let before = self.parts.find(part);
        let mut next = before.map_or(Part::Down, |it| Part::clone(&it));
        let letter = match input {
            Input::Letter(id) => self.letters.find(id.number()),
            _ => None,
        };
        let (mut step, from, messages) =
            drive(&mut next, &self.plan, input, letter.as_deref(), now);
        step.part = hash_of(&next);
        self.parts.keep(step.part, Arc::new(next));
        for (to, message) in messages {
            let everybody = [0, 1, Place::FIRST_OWNER.0, Place::SECOND_OWNER.0];
            let places = match &message {
                Message::Control(Control::Config(_)) => everybody.map(Place).to_vec(),
                _ => vec![to],
            };
            for to in places {
                let message = message.clone();
                if let Some(letter) = (Letter { from, to, message }).plain(self.plan.waits > 0) {
                    let name = letter.id();
                    self.letters.keep(name.number(), Arc::new(letter));
                    step.letters.push(name);
                }
            }
        }
        step
    }
}

/// Returns the text of a panic.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
        .unwrap_or_default()
}
