//! Which numbers of a sender were had: each is taken once, in whatever order they come.

use std::collections::BTreeSet;

/// Number of remembered packet numbers. A packet is refused if more than this many later ones have
/// overtaken it.
pub(super) const RECENT_MAX: usize = 256;

/// The numbers of a sender. The smallest are forgotten first, and nothing is taken at or below one that was
/// forgotten: so no number is taken twice, however long a packet was held back.
#[derive(Debug, Default)]
pub(super) struct Window {
    recent: BTreeSet<u64>,
    /// The largest that was forgotten.
    forgotten: Option<u64>,
}

impl Window {
    /// Whether a number may have been taken before.
    pub(super) fn has_had(&self, number: u64) -> bool {
        self.forgotten.is_some_and(|largest| number <= largest) || self.recent.contains(&number)
    }

    /// Takes a number that was not had.
    pub(super) fn note(&mut self, number: u64) {
        self.recent.insert(number);
        if self.recent.len() > RECENT_MAX {
            self.forgotten = self.recent.pop_first().max(self.forgotten);
        }
    }

    /// The largest number that was taken; 0 before the first.
    pub(super) fn newest(&self) -> u64 {
        self.recent.last().copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use rand_pcg::Pcg64Mcg;
    use rand_pcg::rand_core::Rng;

    use super::*;

    #[test]
    fn a_packet_that_was_held_back_lets_none_be_taken_again() {
        let mut window = Window::default();
        let count = u64::try_from(2 * RECENT_MAX).unwrap();
        for number in (1..count).chain([0]) {
            if !window.has_had(number) {
                window.note(number);
            }
        }
        for number in 0..count {
            assert!(window.has_had(number), "{number} is taken again");
        }
    }

    #[test]
    fn as_many_as_are_remembered_may_overtake_one() {
        let mut window = Window::default();
        for number in 1..=u64::try_from(RECENT_MAX).unwrap() {
            window.note(number);
        }
        assert!(!window.has_had(0));
    }

    /// Numbers in an order that delays some of them by much, and repeats many.
    fn arrivals(random: &mut Pcg64Mcg) -> Vec<u64> {
        let mut held = Vec::new();
        let mut came = Vec::new();
        for number in 0..2_000 {
            match random.next_u64() % 8 {
                0 => held.push(number),
                1 if !held.is_empty() => {
                    let place = usize::try_from(random.next_u64()).unwrap() % held.len();
                    came.push(held.swap_remove(place));
                    came.push(number);
                }
                2 if !came.is_empty() => {
                    let place = usize::try_from(random.next_u64()).unwrap() % came.len();
                    came.push(came[place]);
                    came.push(number);
                }
                _ => came.push(number),
            }
        }
        came.extend(held);
        came
    }

    #[test]
    fn against_a_set_that_never_forgets_nothing_is_taken_twice() {
        for seed in 0..200 {
            let mut window = Window::default();
            let mut taken = BTreeSet::new();
            for number in arrivals(&mut Pcg64Mcg::new(seed)) {
                if !window.has_had(number) {
                    assert!(taken.insert(number), "seed {seed}: {number} is taken twice");
                    window.note(number);
                }
            }
            assert!(taken.len() > 1_000, "seed {seed}: nearly all is refused");
        }
    }
}
