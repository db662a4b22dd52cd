//! What became of the messages of a stream: who came, who came twice, late, or never.

/// How far behind the newest a message may still come. Beyond it, it is lost.
const WINDOW: u64 = 65_536;
const WORDS: usize = 1_024;

/// Counts since they were taken last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// Messages that came, each once.
    pub messages: u64,
    /// Messages that never came.
    pub lost: u64,
    /// Messages that had come already.
    pub duplicated: u64,
    /// Messages that came after one that was written later.
    pub reordered: u64,
}

/// The account of a stream, by the numbers of its messages.
#[derive(Debug)]
pub struct Account {
    /// One more than the highest number that was seen.
    next: u64,
    /// A bit for each of the last messages: it came.
    came: Box<[u64; WORDS]>,
    counted: Counted,
    ended: bool,
}

impl Default for Account {
    fn default() -> Self {
        Self {
            next: 0,
            came: Box::new([0; WORDS]),
            counted: Counted::default(),
            ended: false,
        }
    }
}

impl Account {
    /// Message `sequence` came.
    pub fn came(&mut self, sequence: u64) {
        if self.ended {
            return;
        }
        if sequence >= self.next {
            self.advance(sequence + 1);
            self.mark(sequence);
            self.counted.messages += 1;
        } else if self.next - sequence > WINDOW {
            // It was counted as lost, or came before: which of the two is not known any more.
            self.counted.duplicated += 1;
        } else if self.has(sequence) {
            self.counted.duplicated += 1;
        } else {
            self.mark(sequence);
            self.counted.messages += 1;
            self.counted.reordered += 1;
        }
    }

    /// There were so many messages: who has not come by now is lost. What comes later counts no more.
    pub fn end(&mut self, messages: u64) {
        if self.ended {
            return;
        }
        self.advance(messages.max(self.next));
        self.ended = true;
        let within = self.next.saturating_sub(WINDOW)..self.next;
        self.counted.lost += within.filter(|it| !self.has(*it)).count() as u64;
    }

    /// Whether it was said how many there were.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// One more than the highest number that was seen.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// What was counted since this was called last.
    pub fn take(&mut self) -> Counted {
        std::mem::take(&mut self.counted)
    }

    /// Moves the window on to end before `next`. Each message that enters it takes the place of the one
    /// a window before, which is lost if it has not come by now.
    fn advance(&mut self, next: u64) {
        let ahead = next - self.next;
        let steps = ahead.min(WINDOW);
        for entering in self.next..self.next + steps {
            if entering >= WINDOW && !self.has(entering) {
                self.counted.lost += 1;
            }
            self.unmark(entering);
        }
        // Those that were passed over whole: they entered and left in one step.
        self.counted.lost += ahead - steps;
        self.next = next;
    }

    fn has(&self, sequence: u64) -> bool {
        let (word, bit) = place(sequence);
        self.came[word] & bit != 0
    }

    fn mark(&mut self, sequence: u64) {
        let (word, bit) = place(sequence);
        self.came[word] |= bit;
    }

    fn unmark(&mut self, sequence: u64) {
        let (word, bit) = place(sequence);
        self.came[word] &= !bit;
    }
}

fn place(sequence: u64) -> (usize, u64) {
    let within = sequence % WINDOW;
    ((within / 64) as usize, 1 << (within % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn counted(came: &[u64], messages: u64) -> Counted {
        let mut account = Account::default();
        came.iter().for_each(|it| account.came(*it));
        account.end(messages);
        account.take()
    }

    #[test]
    fn a_stream_without_gaps_has_lost_nothing() {
        let all: Vec<u64> = (0..200_000).collect();
        let found = counted(&all, 200_000);
        let wanted = Counted {
            messages: 200_000,
            ..Counted::default()
        };
        assert_eq!(found, wanted);
    }

    #[test]
    fn who_never_came_is_lost_also_at_the_end_and_beyond_a_window() {
        assert_eq!(counted(&[0, 2, 3], 6).lost, 3);
        assert_eq!(counted(&[0, 1_000_000], 1_000_001).lost, 999_999);
        assert_eq!(counted(&[], 200_000).lost, 200_000);
    }

    #[test]
    fn who_comes_late_is_not_lost_and_who_comes_twice_is_told() {
        let found = counted(&[0, 2, 1, 1, 3], 4);
        assert_eq!((found.messages, found.lost), (4, 0));
        assert_eq!((found.reordered, found.duplicated), (1, 1));
    }

    #[test]
    fn what_comes_after_the_end_counts_no_more() {
        let mut account = Account::default();
        account.came(0);
        account.end(2);
        account.came(1);
        let found = account.take();
        assert_eq!((found.messages, found.lost), (1, 1));
        assert!(account.has_ended());
    }

    proptest! {
        #[test]
        fn messages_and_losses_are_all_that_were_sent(came in proptest::collection::vec(0_u64..70_000, 0..400)) {
            let found = counted(&came, 70_000);
            prop_assert_eq!(found.messages + found.lost, 70_000);
            prop_assert_eq!(found.messages + found.duplicated, came.len() as u64);
            let within: BTreeSet<u64> = came.iter().copied().collect();
            prop_assert!(found.messages <= within.len() as u64);
        }
    }
}
