//! The results that owners may receive: a linearizable history of one key, checked as it happens.
//!
//! The checker keeps every possible value of the key, with the operations under way that have taken
//! effect in it and their future answers (Wing and Gong's search, a step at a time; Lowe, 2017). An
//! answer keeps the values for which it is right; if none is left, the history is not linearizable.

use super::plan::Wish;

/// The answer of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Said {
    /// A blind write is done.
    Stored,
    /// The value, before a read or after an update; `None` is not found.
    Value(Option<i64>),
    /// An answer that no operation here may give.
    Other,
}

/// Name of an operation: its owner's number, and its index among the owner's wishes.
type Name = (u8, usize);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct World {
    value: Option<i64>,
    /// Operations under way that have taken effect, with their future answers.
    done: Vec<(Name, Said)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Pending {
    name: Name,
    wish: Wish,
    /// True if nobody will receive its result: it may take effect, or never.
    unheard: bool,
}

/// The history so far, as far as it limits the next answers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Truth {
    worlds: Vec<World>,
    pending: Vec<Pending>,
    /// Every write that was submitted; after a loss the value may come from any of them.
    writes: Vec<(Name, Wish)>,
}

impl Truth {
    pub(super) fn new() -> Self {
        let nothing = World {
            value: None,
            done: Vec::new(),
        };
        Self {
            worlds: vec![nothing],
            pending: Vec::new(),
            writes: Vec::new(),
        }
    }

    /// Records that an owner submitted an operation.
    pub(super) fn asked(&mut self, name: Name, wish: Wish) {
        self.pending.push(Pending {
            name,
            wish,
            unheard: false,
        });
        if wish.is_write() {
            self.writes.push((name, wish));
        }
    }

    /// Records the answer of an operation. Returns whether that answer is possible.
    pub(super) fn done(&mut self, name: Name, said: Said) -> bool {
        let mut right = Vec::new();
        let mut seen = std::mem::take(&mut self.worlds);
        let mut next = 0;
        while next < seen.len() {
            let world = seen[next].clone();
            next += 1;
            if let Some(at) = world.done.iter().position(|(known, _)| *known == name) {
                if world.done[at].1 == said {
                    let mut world = world;
                    world.done.remove(at);
                    right.push(world);
                }
                continue;
            }
            for pending in &self.pending {
                if self.may_go(&world, *pending) {
                    let after = world.after(*pending);
                    if !seen.contains(&after) {
                        seen.push(after);
                    }
                }
            }
        }
        self.pending.retain(|it| it.name != name);
        right.sort_unstable();
        right.dedup();
        self.worlds = right;
        !self.worlds.is_empty()
    }

    /// Returns true if an operation may take effect next: the earlier ones of its owner that still
    /// wait for an answer come first.
    fn may_go(&self, world: &World, pending: Pending) -> bool {
        let earlier = |it: &&Pending| it.name.0 == pending.name.0 && it.name.1 < pending.name.1;
        let mut before = self.pending.iter().filter(earlier);
        !world.has(pending.name) && before.all(|it| it.unheard || world.has(it.name))
    }

    /// Records that nobody will receive the result of an operation.
    pub(super) fn unheard(&mut self, name: Name) {
        if let Some(pending) = self.pending.iter_mut().find(|it| it.name == name) {
            pending.unheard = true;
        }
        // A read without a receiver changes nothing.
        let forgotten = |it: &Pending| it.name == name && !it.wish.is_write();
        if self.pending.iter().any(forgotten) {
            self.pending.retain(|it| !forgotten(it));
            for world in &mut self.worlds {
                world.done.retain(|(known, _)| *known != name);
            }
            self.worlds.sort_unstable();
            self.worlds.dedup();
        }
    }

    /// Allows that writes were lost: the value is the result of any subset of the writes that took
    /// effect, in their order. Answers from before the loss, received or under way, stay as they
    /// are.
    pub(super) fn lossy(&mut self, teller: Name) {
        let mut next = 0;
        while next < self.worlds.len() {
            let world = self.worlds[next].clone();
            next += 1;
            for pending in self.pending.iter().filter(|it| it.name != teller) {
                if self.may_go(&world, *pending) {
                    let after = world.after(*pending);
                    if !self.worlds.contains(&after) {
                        self.worlds.push(after);
                    }
                }
            }
        }
        for world in self.worlds.clone() {
            let under_way = |name: Name| self.pending.iter().any(|it| it.name == name);
            let effective: Vec<Wish> = self
                .writes
                .iter()
                .filter(|(name, _)| !under_way(*name) || world.has(*name))
                .map(|(_, wish)| *wish)
                .collect();
            for chosen in 0..1u32 << effective.len() {
                let left = effective
                    .iter()
                    .enumerate()
                    .filter(|(index, _)| chosen >> index & 1 == 1);
                self.worlds.push(World {
                    value: left.fold(None, |value, (_, wish)| apply(value, *wish).0),
                    done: world.done.clone(),
                });
            }
        }
        self.worlds.sort_unstable();
        self.worlds.dedup();
    }
}

impl World {
    fn has(&self, name: Name) -> bool {
        self.done.iter().any(|(known, _)| *known == name)
    }

    fn after(&self, pending: Pending) -> Self {
        let (value, said) = apply(self.value, pending.wish);
        let mut done = self.done.clone();
        done.push((pending.name, said));
        done.sort_unstable();
        Self { value, done }
    }
}

fn apply(value: Option<i64>, wish: Wish) -> (Option<i64>, Said) {
    match wish {
        Wish::Get | Wish::Close => (value, Said::Value(value)),
        Wish::Set(to) => (Some(to), Said::Stored),
        Wish::Add(by) => {
            let sum = value.unwrap_or(0) + by;
            (Some(sum), Said::Value(Some(sum)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: u8 = 3;
    const SECOND: u8 = 4;

    fn value(number: i64) -> Said {
        Said::Value(Some(number))
    }

    /// The first owner has added 1, and received the answer.
    fn told() -> Truth {
        let mut truth = Truth::new();
        truth.asked((FIRST, 0), Wish::Add(1));
        assert!(truth.done((FIRST, 0), value(1)));
        truth
    }

    #[test]
    fn the_next_owner_sees_an_answered_write() {
        let mut truth = told();
        truth.asked((SECOND, 0), Wish::Get);
        assert!(truth.clone().done((SECOND, 0), value(1)));
        assert!(!truth.done((SECOND, 0), Said::Value(None)));
    }

    #[test]
    fn a_write_under_way_may_be_seen_or_not_but_does_not_go_away_again() {
        let mut truth = Truth::new();
        truth.asked((FIRST, 0), Wish::Set(1));
        truth.asked((SECOND, 0), Wish::Get);
        truth.asked((SECOND, 1), Wish::Get);
        assert!(truth.clone().done((SECOND, 0), Said::Value(None)));
        assert!(truth.done((SECOND, 0), value(1)));
        assert!(!truth.done((SECOND, 1), Said::Value(None)));
    }

    #[test]
    fn the_operations_of_an_owner_happen_in_its_order() {
        let mut truth = Truth::new();
        truth.asked((FIRST, 0), Wish::Add(1));
        truth.asked((FIRST, 1), Wish::Add(10));
        truth.asked((SECOND, 0), Wish::Get);
        assert!(truth.clone().done((SECOND, 0), value(11)));
        assert!(!truth.done((SECOND, 0), value(10)));
    }

    #[test]
    fn an_update_counts_once() {
        let mut truth = told();
        truth.asked((FIRST, 1), Wish::Get);
        assert!(!truth.done((FIRST, 1), value(2)));
    }

    #[test]
    fn a_write_without_a_receiver_may_still_happen_once() {
        let mut truth = Truth::new();
        truth.asked((FIRST, 0), Wish::Add(1));
        truth.unheard((FIRST, 0));
        for (index, said) in [Said::Value(None), value(1)].into_iter().enumerate() {
            truth.asked((SECOND, index), Wish::Get);
            assert!(truth.done((SECOND, index), said));
        }
        truth.asked((SECOND, 2), Wish::Get);
        assert!(!truth.done((SECOND, 2), value(2)));
    }

    #[test]
    fn a_reported_loss_excuses_an_older_value_and_no_other() {
        let mut truth = told();
        truth.asked((SECOND, 0), Wish::Get);
        truth.lossy((SECOND, 0));
        assert!(truth.clone().done((SECOND, 0), Said::Value(None)));
        assert!(!truth.done((SECOND, 0), value(2)));
    }

    #[test]
    fn an_answer_from_before_a_loss_may_still_come() {
        let mut truth = told();
        truth.asked((FIRST, 1), Wish::Get);
        truth.asked((SECOND, 0), Wish::Get);
        truth.lossy((SECOND, 0));
        assert!(truth.done((SECOND, 0), Said::Value(None)));
        assert!(truth.done((FIRST, 1), value(1)));
    }
}
