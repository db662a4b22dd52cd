//! Counts the messages of a stream: received, duplicated, reordered and lost.

/// The number of messages by which a message may arrive behind the newest one. A message that is
/// later still counts as lost.
const WINDOW: u64 = 65_536;
const WORDS: usize = 1_024;

/// Counts since the last call of [`Account::take`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// Distinct messages that were received.
    pub messages: u64,
    /// Messages that were never received.
    pub lost: u64,
    /// Messages that were received again.
    pub duplicated: u64,
    /// Messages that were received after one that was written later.
    pub reordered: u64,
}

/// The account of a stream, by the sequence numbers of its messages.
#[derive(Debug)]
pub struct Account {
    /// The highest sequence number received so far, plus one.
    next: u64,
    /// One bit per message in the window: set if the message was received.
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
    /// Counts message `sequence` as received.
    pub fn came(&mut self, sequence: u64) {
        if self.ended {
            return;
        }
        if sequence >= self.next {
            self.advance(sequence + 1);
            self.mark(sequence);
            self.counted.messages += 1;
        } else if self.next - sequence > WINDOW {
            // It was counted as lost or was received before. The account no longer knows which.
            self.counted.duplicated += 1;
        } else if self.has(sequence) {
            self.counted.duplicated += 1;
        } else {
            self.mark(sequence);
            self.counted.messages += 1;
            self.counted.reordered += 1;
        }
    }

    /// Ends the account at a total of `messages`. Every message that is missing by now is lost, and
    /// later arrivals are ignored.
    pub fn end(&mut self, messages: u64) {
        if self.ended {
            return;
        }
        self.advance(messages.max(self.next));
        self.ended = true;
        let within = self.next.saturating_sub(WINDOW)..self.next;
        self.counted.lost += within.filter(|it| !self.has(*it)).count() as u64;
    }

    /// Returns true if the account has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns the highest sequence number received so far, plus one.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Returns the counts since the last call.
    pub fn take(&mut self) -> Counted {
        std::mem::take(&mut self.counted)
    }

    /// Moves the window so that it ends before `next`. Each message that enters takes the place of
    /// the one a window earlier, which is lost if it has not been received by now.
    fn advance(&mut self, next: u64) {
        let ahead = next - self.next;
        let steps = ahead.min(WINDOW);
        for entering in self.next..self.next + steps {
            if entering >= WINDOW && !self.has(entering) {
                self.counted.lost += 1;
            }
            self.unmark(entering);
        }
        // The messages that the window skipped are lost too: they entered and left it in one step.
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
