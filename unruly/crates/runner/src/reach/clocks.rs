//! How far the clock of another host is from ours, as an interval.
//!
//! A question leaves at one instant of our clock, and its answer comes at another. Between both the
//! other host read its clock. So the difference of the clocks lies within an interval as long as the
//! question and its answer were under way. Two clocks drift apart, so an interval opens with its
//! age. The difference is in all of them, and so in what they have in common.

use std::collections::VecDeque;

use unruly_trace::{ClockBounds, ClockPair, DurationNs, MonoNs};

/// The most that two clocks drift apart: 1 ms in a second. The kernel slews a clock that is wrong by
/// up to 500 millionths, the monotonic one as well, and both may be wrong.
const DRIFT_US_PER_S: i64 = 1_000;

/// Exchanges that still count.
const KEPT: usize = 120;

/// Exchanges after which the difference is known as well as it will be.
const SETTLED: usize = 4;

/// A question about a clock, and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Exchange {
    /// Our clocks before the question.
    asked: ClockPair,
    /// The other host's clocks between both.
    theirs: ClockPair,
    /// Our clocks after the answer.
    heard: ClockPair,
}

/// An interval that a difference of clocks lies in: theirs less ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) low_ns: DurationNs,
    pub(crate) high_ns: DurationNs,
}

impl Span {
    pub(crate) fn width(self) -> DurationNs {
        self.high_ns - self.low_ns
    }

    pub(crate) fn middle(self) -> DurationNs {
        self.low_ns + self.width() / 2
    }

    fn opened(self, by: DurationNs) -> Self {
        Self {
            low_ns: self.low_ns - by,
            high_ns: self.high_ns + by,
        }
    }

    fn common(self, other: Self) -> Option<Self> {
        let common = Self {
            low_ns: self.low_ns.max(other.low_ns),
            high_ns: self.high_ns.min(other.high_ns),
        };
        (common.low_ns <= common.high_ns).then_some(common)
    }
}

/// The exchanges with one host.
#[derive(Debug, Default)]
pub(crate) struct Clocks {
    exchanges: VecDeque<Exchange>,
    asked: u64,
    /// The question that has no answer yet.
    open: Option<(u64, ClockPair)>,
    bounds: Option<ClockBounds>,
    /// How often an answer contradicted the ones before: a clock was set.
    steps: u32,
}

impl Clocks {
    /// Returns the number of the next question, unless one is open.
    pub(crate) fn ask(&mut self, now: ClockPair) -> Option<u64> {
        if self.open.is_some() {
            return None;
        }
        self.asked += 1;
        self.open = Some((self.asked, now));
        Some(self.asked)
    }

    /// Takes the answer to a question. One to another question says nothing.
    pub(crate) fn hear(&mut self, number: u64, theirs: ClockPair, heard: ClockPair) {
        if let Some((_, asked)) = self.open.take_if(|(open, _)| *open == number) {
            self.add(Exchange {
                asked,
                theirs,
                heard,
            });
        }
    }

    fn add(&mut self, exchange: Exchange) {
        self.exchanges.push_back(exchange);
        if self.exchanges.len() > KEPT {
            self.exchanges.pop_front();
        }
        let at = exchange.heard.mono_ns;
        if self.wall_at(at).is_none() || self.mono_at(at).is_none() {
            self.steps += 1;
            self.exchanges.clear();
            self.exchanges.push_back(exchange);
        }
        let is_settled = self.exchanges.len() >= SETTLED || self.steps > 0;
        let span = self.wall_at(at).map(|span| ClockBounds {
            low_ns: span.low_ns,
            high_ns: span.high_ns,
            widest_ns: span.width(),
            steps: 0,
        });
        // The first exchange of a connection is often the slowest. After a step each counts: the
        // difference is another one.
        if let Some(span) = span.filter(|_| is_settled) {
            let bounds = self.bounds.map_or(span, |it| it.and(span));
            let steps = self.steps;
            self.bounds = Some(ClockBounds { steps, ..bounds });
        }
    }

    /// Returns when the question left that has no answer yet.
    pub(crate) fn open_since(&self) -> Option<MonoNs> {
        self.open.map(|(_, asked)| asked.mono_ns)
    }

    /// Returns how many questions were answered since the last step.
    pub(crate) fn len(&self) -> usize {
        self.exchanges.len()
    }

    pub(crate) fn steps(&self) -> u32 {
        self.steps
    }

    /// Returns the bounds of the difference of the wall clocks so far.
    pub(crate) fn bounds(&self) -> Option<ClockBounds> {
        self.bounds
    }

    /// Returns the difference of the wall clocks at an instant of ours; `None` before the first
    /// answer.
    pub(crate) fn wall_at(&self, at: MonoNs) -> Option<Span> {
        self.at(at, |it| Span {
            low_ns: it.theirs.wall_ns - it.heard.wall_ns,
            high_ns: it.theirs.wall_ns - it.asked.wall_ns,
        })
    }

    /// Returns the difference of the monotonic clocks at an instant of ours.
    pub(crate) fn mono_at(&self, at: MonoNs) -> Option<Span> {
        self.at(at, |it| Span {
            low_ns: it.theirs.mono_ns - it.heard.mono_ns,
            high_ns: it.theirs.mono_ns - it.asked.mono_ns,
        })
    }

    fn at(&self, at: MonoNs, span: impl Fn(&Exchange) -> Span) -> Option<Span> {
        let mut spans = self.exchanges.iter().map(|it| {
            let age = (at - it.asked.mono_ns).abs();
            span(it).opened(age * DRIFT_US_PER_S / 1_000_000)
        });
        let first = spans.next()?;
        spans.try_fold(first, Span::common)
    }
}

#[cfg(test)]
mod tests {
    use unruly_trace::WallNs;

    use super::*;

    const START: i64 = 1_000_000_000;

    fn ours(at: i64) -> ClockPair {
        ClockPair {
            mono_ns: MonoNs(START + at),
            wall_ns: WallNs(START * 1_000 + at),
        }
    }

    /// A clock that is ahead by `offset`, and drifts by millionths.
    fn theirs(at: i64, offset: i64, drift: i64) -> ClockPair {
        let own = ours(at + at * drift / 1_000_000);
        ClockPair {
            mono_ns: MonoNs(own.mono_ns.0 + offset),
            wall_ns: WallNs(own.wall_ns.0 + offset),
        }
    }

    /// Numbers that look random, from 0 up to `most`.
    fn noise(state: &mut u64, most: i64) -> i64 {
        *state = unruly_plan::mix(*state, 1);
        i64::try_from(*state % most.unsigned_abs()).unwrap()
    }

    #[test]
    fn the_interval_holds_the_planted_difference_and_is_no_wider_than_the_fastest_exchange() {
        let mut state = 7;
        for run in 0..1_000 {
            let offset = noise(&mut state, 2_000_000_000) - 1_000_000_000;
            let drift = noise(&mut state, 200) - 100;
            let mut clocks = Clocks::default();
            let mut fastest = i64::MAX;
            for second in 0..60 {
                let at = second * 1_000_000_000;
                let (there, back) = (noise(&mut state, 900_000), noise(&mut state, 900_000));
                let number = clocks.ask(ours(at)).unwrap();
                let read = theirs(at + there, offset, drift);
                clocks.hear(number, read, ours(at + there + back));
                fastest = fastest.min(there + back);
                let now = ours(at + there + back).mono_ns;
                let truth = theirs(at + there + back, offset, drift).mono_ns - now;
                let span = clocks.mono_at(now).unwrap();
                assert!(
                    (span.low_ns..=span.high_ns).contains(&truth),
                    "run {run}: {truth:?} is not in {span:?}"
                );
                // It may have opened since the fastest one.
                let opened = 2 * DRIFT_US_PER_S * 1_000 * (second + 1);
                assert!(span.width().0 <= fastest + opened, "run {run}: {span:?}");
            }
            assert_eq!(clocks.steps(), 0, "run {run}: it only drifts");
        }
    }

    #[test]
    fn a_clock_that_is_set_contradicts_and_begins_anew() {
        let mut clocks = Clocks::default();
        for (second, offset) in [(0, 0), (1, 0), (2, 5_000_000_000)] {
            let at = second * 1_000_000_000;
            let number = clocks.ask(ours(at)).unwrap();
            clocks.hear(number, theirs(at + 10, offset, 0), ours(at + 20));
        }
        assert_eq!((clocks.steps(), clocks.len()), (1, 1));
        let bounds = clocks.bounds().unwrap();
        assert_eq!((bounds.steps, bounds.high_ns.0 >= 5_000_000_000), (1, true));
        let span = clocks.wall_at(ours(2_000_000_020).mono_ns).unwrap();
        assert!(span.low_ns.0 <= 5_000_000_000 && span.high_ns.0 >= 5_000_000_000);
    }

    #[test]
    fn an_answer_counts_for_its_own_question_only() {
        let mut clocks = Clocks::default();
        let number = clocks.ask(ours(0)).unwrap();
        assert_eq!(clocks.ask(ours(1)), None, "one question at a time");
        clocks.hear(number + 1, ours(5), ours(10));
        assert_eq!(clocks.len(), 0);
        clocks.hear(number, ours(5), ours(10));
        clocks.hear(number, ours(5), ours(1_000));
        assert_eq!(clocks.len(), 1);
    }
}
