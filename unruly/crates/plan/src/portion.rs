//! What one process does of a load that several share: clients, keys and requests are dealt among them in
//! turn, so that together they do what one alone would.

/// The part of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portion {
    number: u64,
    of: u64,
}

impl Portion {
    /// All of it.
    pub const WHOLE: Self = Self { number: 0, of: 1 };

    /// What process `number` of `of` does.
    ///
    /// # Panics
    ///
    /// When there is no such process.
    #[must_use]
    pub fn new(number: u16, of: u16) -> Self {
        assert!(number < of, "there is no process {number} of {of}");
        Self {
            number: number.into(),
            of: of.into(),
        }
    }

    /// Which process it is.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.number
    }

    /// How many processes there are.
    #[must_use]
    pub const fn of(self) -> u64 {
        self.of
    }

    /// How many of `all` things are its.
    #[must_use]
    pub const fn count(self, all: u64) -> u64 {
        all.saturating_sub(self.number).div_ceil(self.of)
    }

    /// Which of all things its own `own`-th is.
    #[must_use]
    pub const fn place(self, own: u64) -> u64 {
        own * self.of + self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_is_dealt_to_one_process() {
        for (all, of) in [(0, 1), (1, 1), (7, 1), (7, 2), (7, 3), (2, 5), (12, 4)] {
            let portions = (0..of).map(|number| Portion::new(number, of));
            let mut dealt: Vec<u64> = portions
                .flat_map(|it| (0..it.count(all)).map(move |own| it.place(own)))
                .collect();
            dealt.sort_unstable();
            assert_eq!(dealt, (0..all).collect::<Vec<_>>(), "{all} among {of}");
        }
    }
}
