//! The results that an owner may receive.
//!
//! A session has one owner at a time, so the owner's own operations, in its order, determine what
//! it may see on a key: the oracle executes the same operations on the same machine. When the
//! outcome of a write is not known, several states are possible. Each answer rules some of them
//! out, and an answer that rules out all is a violation. When the owner changes, operations with a
//! reported result stay; the others may or may not have happened.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use flurry_core::id::{Epoch, WallNs};
use flurry_core::key_value::{self, KeyValue};
use flurry_core::machine::{Access, StateMachine};
use flurry_core::portal::{Outcome, number_of};

/// Most possible states of a key before the oracle stops checking it.
const STATES_MAX: usize = 128;

/// Number of former states that are remembered, for owners that are notified of a possibly lost
/// tail.
const HISTORY_MAX: usize = 256;

type State = Option<key_value::State>;

/// An operation as the owner submitted it.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Encoded operation.
    pub operation: Bytes,
    /// How it depends on the state.
    pub access: Access,
    /// The owner's time.
    pub at: WallNs,
    /// True if its answer promises that it is on a majority's disks.
    pub to_disk: bool,
}

#[derive(Debug, Clone)]
struct Entry {
    number: u64,
    asked: Asked,
    outcome: Option<Outcome>,
}

#[derive(Debug, Clone)]
struct KeyTruth {
    possible: Vec<State>,
    history: VecDeque<State>,
    queue: VecDeque<Entry>,
    /// True if there were too many states: no answer is checked until a blind write.
    unclear: bool,
    /// True if it was unclear once: states of that time are not in the history.
    history_has_gap: bool,
    /// True if a new owner has not received any answer on it yet.
    taken_over: bool,
    /// Writes since the last answer that may or may not have happened.
    doubts: Vec<Asked>,
    /// The last operation that was answered from disks: after a loss, at least this one must be
    /// left.
    on_disk: Option<(Epoch, u64)>,
    /// The epoch of the last write, if it was answered and left a value. The oracle cannot
    /// distinguish a deleted key from one whose writes are lost.
    written_in: Option<Epoch>,
    /// True where servers evict values.
    evicts: bool,
}

impl Default for KeyTruth {
    fn default() -> Self {
        Self {
            possible: vec![None],
            history: VecDeque::new(),
            queue: VecDeque::new(),
            unclear: false,
            history_has_gap: false,
            taken_over: false,
            doubts: Vec::new(),
            on_disk: None,
            written_in: None,
            evicts: false,
        }
    }
}

/// Results that this scenario may report.
#[derive(Debug, Clone, Copy)]
pub struct Allowed {
    /// True if every replica may have forgotten.
    pub loss: bool,
    /// True if a server may have been lost that alone had some of an owner's writes.
    pub tail_unknown: bool,
    /// True if an owner has more keys than it remembers, and takes its own over again.
    pub forgets: bool,
    /// True if servers may be too few for a level.
    pub few_servers: bool,
    /// True if memory is short.
    pub shortage: bool,
    /// True while the members change or have just changed. A read at level `disk` then speaks for
    /// the disks of the old members only.
    pub changing: bool,
}

/// The truth of one session.
#[derive(Debug, Clone, Default)]
pub struct Truth {
    epoch: Epoch,
    keys: BTreeMap<Bytes, KeyTruth>,
    evicts: bool,
    /// Number of answers that were checked.
    pub checked: u64,
}

impl Truth {
    /// Creates the truth of an unused session; `evicts` is true where servers evict values.
    #[must_use]
    pub fn new(evicts: bool) -> Self {
        Self {
            evicts,
            ..Self::default()
        }
    }

    /// Returns the present owner's epoch.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the epoch of the last write to a key, if it was answered and left a value.
    #[must_use]
    pub fn written_in(&self, key: &Bytes) -> Option<Epoch> {
        self.keys.get(key)?.written_in
    }

    /// Begins the time of a new owner. An operation that the earlier owner had no result of may or
    /// may not have happened.
    pub fn opened(&mut self, epoch: Epoch) {
        self.epoch = epoch;
        for truth in self.keys.values_mut() {
            for entry in std::mem::take(&mut truth.queue) {
                truth.maybe(&entry);
            }
            truth.taken_over = true;
        }
    }

    /// Records that the owner submitted an operation.
    pub fn submitted(&mut self, epoch: Epoch, key: &Bytes, number: u64, asked: Asked) {
        if epoch != self.epoch {
            return;
        }
        let truth = self.keys.entry(key.clone()).or_insert_with(|| KeyTruth {
            taken_over: epoch > Epoch(1),
            evicts: self.evicts,
            ..KeyTruth::default()
        });
        truth.queue.push_back(Entry {
            number,
            asked,
            outcome: None,
        });
    }

    /// Records a result that the owner received.
    ///
    /// # Errors
    ///
    /// The reason why this result is wrong.
    pub fn told(
        &mut self,
        epoch: Epoch,
        key: &Bytes,
        number: u64,
        outcome: Outcome,
        allowed: Allowed,
    ) -> Result<(), String> {
        if epoch != self.epoch {
            return Ok(());
        }
        let Some(truth) = self.keys.get_mut(key) else {
            return Err("an answer on a key that was never asked for".to_owned());
        };
        let Some(entry) = truth.queue.iter_mut().find(|entry| entry.number == number) else {
            return Err(format!("operation {number} was answered twice"));
        };
        entry.outcome = Some(outcome);
        // An answer counts when all earlier operations of the owner have theirs.
        while let Some(entry) = truth.queue.pop_front_if(|entry| entry.outcome.is_some()) {
            truth.resolve(epoch, &entry, allowed).map_err(|what| {
                format!(
                    "key {}, operation {}: {what}",
                    key.escape_ascii(),
                    entry.number
                )
            })?;
            self.checked += 1;
        }
        Ok(())
    }
}

impl KeyTruth {
    /// Adds an operation that may or may not have happened.
    fn maybe(&mut self, entry: &Entry) {
        if entry.asked.access == Access::Read {
            return;
        }
        self.doubts.push(entry.asked.clone());
        self.or_after(&entry.asked.clone());
    }

    /// Returns the states that the key may have now. Where servers evict, the key may also be
    /// absent, and stays absent until it is written.
    fn possible_now(&self) -> impl Iterator<Item = &State> {
        let absent = self.evicts && !self.possible.contains(&None);
        self.possible.iter().chain(absent.then_some(&None))
    }

    /// Adds the states that are possible if one more operation happened.
    fn or_after(&mut self, asked: &Asked) {
        let more: Vec<State> = self
            .possible_now()
            .filter_map(|state| execute(state, asked).map(|(state, _)| state))
            .collect();
        for state in more {
            self.remember(state.clone());
            if !self.possible.contains(&state) {
                self.possible.push(state);
            }
        }
        if self.possible.len() > STATES_MAX {
            self.unclear = true;
            self.history_has_gap = true;
            self.possible.truncate(1);
        }
    }

    fn remember(&mut self, state: State) {
        if self.history.back() != Some(&state) {
            self.history.push_back(state);
        }
        if self.history.len() > HISTORY_MAX {
            self.history.pop_front();
        }
    }

    fn resolve(&mut self, epoch: Epoch, entry: &Entry, allowed: Allowed) -> Result<(), String> {
        let outcome = entry.outcome.clone().unwrap_or(Outcome::Unknown);
        match outcome {
            Outcome::Done {
                answer,
                tail_unknown,
            } => self.done((epoch, entry), &answer, tail_unknown, allowed),
            // Nothing was done, and the owner was notified that an older value may be left.
            Outcome::TailUnknown => self.tail_is_unknown(allowed),
            Outcome::Unknown => {
                self.maybe(entry);
                Ok(())
            }
            // Refused because memory was full: a late copy may yet find room.
            Outcome::Busy => {
                self.maybe(entry);
                if allowed.shortage {
                    return Ok(());
                }
                Err("refused for want of room where there is room".to_owned())
            }
            // Another router may have sent it before: a copy may be under way.
            Outcome::TooFewCopies => {
                self.maybe(entry);
                if allowed.few_servers {
                    return Ok(());
                }
                Err("refused for want of servers where none was lost".to_owned())
            }
            // Some replica may still have the value, and may yet execute an update.
            Outcome::Evicted if allowed.shortage => {
                self.maybe(entry);
                Ok(())
            }
            Outcome::Evicted => Err("evicted where there is room".to_owned()),
            Outcome::DataLoss { need, have } => {
                let on_disk = self.on_disk.is_some_and(|(epoch, number)| {
                    need.epoch == epoch && number_of(need.sequence) <= number
                });
                if on_disk {
                    return Err(format!(
                        "{need} was reported lost, {have} is left, but it was on a majority's disks"
                    ));
                }
                if allowed.loss {
                    return Ok(());
                }
                Err(format!(
                    "data loss was reported ({need} of which {have} is left), but nothing can have been lost"
                ))
            }
            Outcome::Fenced(_) => {
                self.maybe(entry);
                Ok(())
            }
            Outcome::Malformed => Err("a good operation was called malformed".to_owned()),
        }
    }

    /// Allows older values of the key, since its owner has heard that the last writes may be lost.
    fn tail_is_unknown(&mut self, allowed: Allowed) -> Result<(), String> {
        if !allowed.tail_unknown {
            return Err("a lost tail was reported, but no server was lost".to_owned());
        }
        // Operations that were under way together share these reasons; only the first of them
        // proves anything.
        if self.taken_over || allowed.forgets || allowed.shortage || allowed.loss {
            self.possible.extend(self.history.iter().cloned());
            if self.on_disk.is_none() {
                self.possible.push(None);
            }
            self.unclear |= self.history_has_gap;
            for asked in self.doubts.clone() {
                self.or_after(&asked);
            }
        }
        Ok(())
    }

    fn done(
        &mut self,
        (epoch, entry): (Epoch, &Entry),
        answer: &Bytes,
        tail_unknown: bool,
        allowed: Allowed,
    ) -> Result<(), String> {
        if tail_unknown {
            self.tail_is_unknown(allowed)?;
        }
        if entry.asked.access == Access::Blind {
            self.unclear = false;
        }
        self.taken_over = false;
        if entry.asked.access != Access::Read {
            self.written_in = None;
        }
        if self.unclear {
            return Ok(());
        }
        let mut after: Vec<State> = Vec::new();
        for state in self.possible_now() {
            if let Some((state, said)) = execute(state, &entry.asked)
                && said == *answer
                && !after.contains(&state)
            {
                after.push(state);
            }
        }
        if after.is_empty() {
            return Err(format!(
                "{} answered {}, but the key can only be {:?}",
                entry.asked.operation.escape_ascii(),
                answer.escape_ascii(),
                self.possible.iter().take(4).collect::<Vec<_>>()
            ));
        }
        if entry.asked.access != Access::Read && after.iter().all(Option::is_some) {
            self.written_in = Some(epoch);
        }
        let shown = entry.asked.access != Access::Read || !allowed.changing;
        if entry.asked.to_disk && shown {
            self.on_disk = Some((epoch, entry.number));
            self.history.clear();
            self.history_has_gap = false;
        }
        let kept = if entry.asked.to_disk { after.len() } else { 4 };
        for state in after.iter().take(kept) {
            self.remember(state.clone());
        }
        // The value was evicted after a concurrent later read had returned it: keep its state as
        // possible.
        let overtaken = self.queue.iter().any(|it| it.outcome.is_some());
        let read = entry.asked.access == Access::Read;
        if self.evicts && read && overtaken && after.contains(&None) {
            let others = self.possible.iter().filter(|it| !after.contains(it));
            after.extend(others.cloned().collect::<Vec<_>>());
        }
        self.possible = after;
        self.doubts.clear();
        Ok(())
    }
}

fn execute(state: &State, asked: &Asked) -> Option<(State, Bytes)> {
    let applied = KeyValue::default()
        .apply(state.as_ref(), &asked.operation, asked.at)
        .ok()?;
    // Expired counts as absent, but only from its own time on: a read leaves the state unchanged.
    let state = if asked.access == Access::Read {
        state.clone()
    } else {
        applied.state
    };
    Some((state, applied.answer))
}
