//! Doubts about keys: what callers know of them, and when a doubt is false.

use bytes::Bytes;
use flurry_core::portal::Outcome;

use super::Session;
use crate::oracle::Allowed;
use crate::scenario::Scenario;
use crate::world::World;

impl Session {
    /// Whether the caller of the next operation wants no answer that may rest on an older value.
    pub(super) fn refuses_doubt(&self, scenario: &Scenario, key: &Bytes) -> bool {
        if scenario.tells_first {
            return !self.known_doubts.contains(key);
        }
        self.truth.checked % 4 == 1
    }

    /// Notes a doubt that an outcome reports. Returns a violation of I28.
    pub(super) fn hear_of_doubt(
        &mut self,
        world: &World,
        key: &Bytes,
        outcome: &Outcome,
        allowed: Allowed,
    ) -> Option<String> {
        match outcome {
            Outcome::TailUnknown => {
                self.known_doubts.insert(key.clone());
            }
            Outcome::Done {
                tail_unknown: true, ..
            } => {}
            _ => return None,
        }
        self.false_doubt(world, key, allowed)
    }

    /// Returns a violation of I28: a doubt of a key that a caller has written since the last loss of
    /// a server. A loss while the writing owner was being let in is its own, as the controller sees it.
    fn false_doubt(&self, world: &World, key: &Bytes, allowed: Allowed) -> Option<String> {
        let scenario = &world.scenario;
        if !scenario.tells_first || allowed.loss || allowed.forgets || allowed.shortage {
            return None;
        }
        let written_in = self.truth.written_in(key)?;
        let (_, known) = self.epochs.range(..written_in).next_back()?;
        (*known == world.losses.last && written_in < self.truth.epoch()).then(|| {
            format!(
                "I28: {} is in doubt in epoch {}, though epoch {} has written it and no server was lost since the owner before that opened",
                key.escape_ascii(),
                self.truth.epoch().0,
                written_in.0
            )
        })
    }
}
