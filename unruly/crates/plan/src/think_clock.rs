//! The clock by which the users of a closed loop think.
//!
//! All users share it. It runs faster in a burst and slower between bursts, and on average as fast
//! as time goes, so that the users' requests come in bursts and their mean rate stays what it is.
//! Changing the mean of each think time when it is drawn would do neither: a user who has drawn a
//! long time sleeps through the burst.

use std::collections::VecDeque;

use crate::arrivals::ThinkBursts;
use crate::bursts::TwoStates;
use crate::random::{Purpose, Random};

/// States that may pass in a mean think time; each takes 24 bytes of memory while somebody thinks.
const CHANGES_MAX: f64 = 1e6;

/// A clock by which a think time ends; by default it runs as time does.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThinkClock(Option<Box<Bursts>>);

#[derive(Clone, Debug)]
struct Bursts {
    states: TwoStates,
    in_burst: bool,
    random: Random,
    /// From the one in which the last think time began; times are in ns since the start.
    pieces: VecDeque<Piece>,
    /// Where the last piece ends.
    known: Instant,
}

/// An instant, and what the clock shows then, ns.
#[derive(Clone, Copy, Debug, Default)]
struct Instant {
    at_ns: f64,
    shows_ns: f64,
}

/// A stretch of time in one state.
#[derive(Clone, Copy, Debug)]
struct Piece {
    begins: Instant,
    speed: f64,
}

impl ThinkClock {
    /// The clock of a closed loop of `rate_hz` requests; without bursts it runs as time does.
    pub(crate) fn new(bursts: Option<ThinkBursts>, rate_hz: f64, seed: u64) -> Self {
        let bursts = bursts.filter(|_| rate_hz.is_finite() && rate_hz > 0.0);
        Self(bursts.map(|it| {
            let mut random = Random::new(Purpose::Arrivals, seed, 0);
            Box::new(Bursts {
                states: TwoStates::new(rate_hz, it.dispersion, it.burst_share, it.burst_factor),
                in_burst: random.share() < it.burst_share,
                random,
                pieces: VecDeque::new(),
                known: Instant::default(),
            })
        }))
    }

    /// When a user who begins to think at `from_ns` has thought for `think_ns` of this clock, in ns
    /// since the start. Times to begin with must not decrease.
    pub(crate) fn after_ns(&mut self, from_ns: u64, think_ns: u64) -> u64 {
        match &mut self.0 {
            Some(bursts) if think_ns > 0 => bursts.after_ns(from_ns, think_ns),
            _ => from_ns.saturating_add(think_ns),
        }
    }
}

impl Bursts {
    fn after_ns(&mut self, from_ns: u64, think_ns: u64) -> u64 {
        let from = from_ns as f64;
        while self.known.at_ns <= from {
            self.draw();
        }
        while self.pieces.get(1).is_some_and(|it| it.begins.at_ns <= from) {
            self.pieces.pop_front();
        }
        let goal_ns = self
            .pieces
            .front()
            .map_or(0.0, |it| it.shows_ns((from - it.begins.at_ns).max(0.0)))
            + think_ns as f64;
        while self.known.shows_ns < goal_ns {
            self.draw();
        }
        let begun = self
            .pieces
            .partition_point(|it| it.begins.shows_ns <= goal_ns);
        let last = self.pieces.get(begun.saturating_sub(1));
        let over_ns = last.map_or(from, |it| it.at_ns(goal_ns));
        whole(over_ns).max(from_ns)
    }

    /// Learns of the next state.
    fn draw(&mut self) {
        let state = usize::from(!self.in_burst);
        let lasts_ns = self.random.exponential() * self.states.means_ns[state];
        let speed = self.states.speeds[state];
        self.pieces.push_back(Piece {
            begins: self.known,
            speed,
        });
        self.known.at_ns += lasts_ns;
        self.known.shows_ns += lasts_ns * speed;
        self.in_burst = !self.in_burst;
    }
}

impl Piece {
    /// What the clock shows `since_ns` after its begin.
    fn shows_ns(&self, since_ns: f64) -> f64 {
        self.begins.shows_ns + since_ns * self.speed
    }

    /// When the clock shows this.
    fn at_ns(&self, shows_ns: f64) -> f64 {
        let more_ns = shows_ns - self.begins.shows_ns;
        if more_ns <= 0.0 {
            return self.begins.at_ns;
        }
        self.begins.at_ns + more_ns / self.speed
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time of a run; one beyond the end of u64 stays there"
)]
fn whole(ns: f64) -> u64 {
    ns.round() as u64
}

impl ThinkBursts {
    /// The least index of dispersion above 1 that this number of users can have: a lower one needs
    /// too many changes in a think time.
    pub(crate) fn least_dispersion(&self, users: f64) -> f64 {
        let (share, factor) = (self.burst_share, self.burst_factor);
        1.0 + 2.0 * share * users * (factor - 1.0).powi(2) / ((1.0 - share) * CHANGES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn bursts(burst_factor: f64) -> ThinkBursts {
        ThinkBursts {
            dispersion: 100.0,
            burst_share: 0.2,
            burst_factor,
        }
    }

    #[test]
    fn a_clock_without_bursts_runs_as_time_does() {
        let mut clock = ThinkClock::new(None, 100.0, 1);
        assert_eq!(clock.after_ns(5, 7), 12);
        assert_eq!(clock.after_ns(u64::MAX, 7), u64::MAX);
    }

    #[test]
    fn a_clock_with_bursts_goes_as_fast_as_time_on_average() {
        for factor in [1.5, 3.0, 5.0] {
            let mut clock = ThinkClock::new(Some(bursts(factor)), 1_000.0, 1);
            let long = 100_000 * SECOND;
            let over = clock.after_ns(0, long);
            assert!(
                (over as f64 / long as f64 - 1.0).abs() < 0.02,
                "{factor}: {over}"
            );
        }
    }

    #[test]
    fn a_think_time_is_as_long_by_the_clock_wherever_it_is_cut() {
        let mut whole = ThinkClock::new(Some(bursts(5.0)), 1_000.0, 3);
        let mut cut = whole.clone();
        let over = whole.after_ns(0, SECOND);
        let mut at = 0;
        for _ in 0..1_000 {
            at = cut.after_ns(at, SECOND / 1_000);
        }
        // Each piece is rounded to a nanosecond, which is five of the clock in a burst.
        assert!(over.abs_diff(at) < 5_000, "{over} and {at}");
    }

    #[test]
    fn the_clock_is_the_same_for_whoever_asks_and_whenever() {
        let mut one = ThinkClock::new(Some(bursts(3.0)), 1_000.0, 3);
        let mut other = one.clone();
        let often: Vec<u64> = (0..1_000)
            .map(|it| one.after_ns(it * SECOND / 100, 50))
            .collect();
        assert_eq!(other.after_ns(999 * SECOND / 100, 50), often[999]);
        assert!(often.is_sorted());
    }
}
