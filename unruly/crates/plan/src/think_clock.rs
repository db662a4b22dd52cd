//! The clock by which the users of a closed loop think.
//!
//! All users share it. It runs faster in a burst and slower between bursts, and on average as fast
//! as time goes. So requests come in bursts, and while replies are short beside think times the mean
//! rate is that without bursts. Changing the mean of each think time when it is drawn would do neither: a user who has drawn a
//! long time sleeps through the burst.

use std::collections::VecDeque;

use crate::arrivals::{ThinkBursts, round_ns};
use crate::bursts::TwoStates;
use crate::random::{Purpose, Random};
use crate::units::DurationNs;

/// States that may pass in a mean think time; each takes 24 bytes of memory while somebody thinks.
const CHANGES_PER_THINK_MAX: f64 = 1e5;
/// States that may pass in a second: shorter bursts than 10 us are none.
const CHANGES_MAX_HZ: f64 = 1e5;

/// A user whose server is away thinks from when it is asked again, up to 2 s later than others.
const KEPT_NS: f64 = 3e9;

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
    /// After the last instant that anybody asks for, ns.
    ends_ns: f64,
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
    /// The clock of a closed loop of `rate_hz` requests, for a run that ends then; without bursts it
    /// runs as time does.
    pub(crate) fn new(
        bursts: Option<ThinkBursts>,
        rate_hz: f64,
        seed: u64,
        ends: DurationNs,
    ) -> Self {
        let bursts = bursts.filter(|_| rate_hz.is_finite() && rate_hz > 0.0);
        Self(bursts.map(|it| {
            let mut random = Random::new(Purpose::Arrivals, seed, 0);
            Box::new(Bursts {
                states: TwoStates::new(rate_hz, it.dispersion, it.burst_share, it.burst_factor),
                in_burst: random.share() < it.burst_share,
                random,
                pieces: VecDeque::new(),
                known: Instant::default(),
                ends_ns: ends.0 as f64,
            })
        }))
    }

    /// When a user who begins to think at `from` has thought for `think` of this clock; times are
    /// counted from the start. Times to begin with may go back by up to 3 s.
    /// `u64::MAX` stands for every instant after the end of the run.
    pub(crate) fn after(&mut self, from: DurationNs, think: DurationNs) -> DurationNs {
        match &mut self.0 {
            Some(bursts) if think.0 > 0 => bursts.after(from, think),
            _ => DurationNs(from.0.saturating_add(think.0)),
        }
    }
}

impl Bursts {
    fn after(&mut self, begins: DurationNs, think: DurationNs) -> DurationNs {
        let from = begins.0 as f64;
        let kept = from - KEPT_NS;
        while self.known.at_ns <= from {
            self.draw();
            self.forget(kept);
        }
        self.forget(kept);
        let begun = self.pieces.partition_point(|it| it.begins.at_ns <= from);
        let now = self.pieces.get(begun.saturating_sub(1));
        let shows_ns = now.map_or(0.0, |it| it.shows_ns((from - it.begins.at_ns).max(0.0)));
        let goal_ns = shows_ns + think.0 as f64;
        while self.known.shows_ns < goal_ns {
            if self.known.at_ns > self.ends_ns {
                return DurationNs(u64::MAX);
            }
            self.draw();
        }
        let begun = self
            .pieces
            .partition_point(|it| it.begins.shows_ns <= goal_ns);
        let last = self.pieces.get(begun.saturating_sub(1));
        let over_ns = last.map_or(from, |it| it.at_ns(goal_ns));
        DurationNs(round_ns(over_ns)).max(begins)
    }

    /// Forgets the pieces that end before an instant.
    fn forget(&mut self, at_ns: f64) {
        while self
            .pieces
            .get(1)
            .is_some_and(|it| it.begins.at_ns <= at_ns)
        {
            self.pieces.pop_front();
        }
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

impl ThinkBursts {
    /// The least index of dispersion above 1 that this number of users can have who think for so
    /// long: a lower one needs too many changes in a second, or in a think time.
    pub(crate) fn least_dispersion(&self, users: f64, think: DurationNs) -> f64 {
        let (share, factor) = (self.burst_share, self.burst_factor);
        let think_s = think.0 as f64 / 1e9;
        let changes_most_hz = CHANGES_MAX_HZ.min(CHANGES_PER_THINK_MAX / think_s);
        let rate_hz = users / think_s;
        1.0 + 2.0 * share * rate_hz * (factor - 1.0).powi(2) / ((1.0 - share) * changes_most_hz)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const LONG: DurationNs = DurationNs(1_000_000 * SECOND);

    fn after(clock: &mut ThinkClock, from_ns: u64, think_ns: u64) -> u64 {
        clock.after(DurationNs(from_ns), DurationNs(think_ns)).0
    }

    fn bursts(burst_factor: f64) -> ThinkBursts {
        ThinkBursts {
            dispersion: 100.0,
            burst_share: 0.2,
            burst_factor,
        }
    }

    #[test]
    fn a_clock_without_bursts_runs_as_time_does() {
        let mut clock = ThinkClock::new(None, 100.0, 1, LONG);
        assert_eq!(after(&mut clock, 5, 7), 12);
        assert_eq!(after(&mut clock, u64::MAX, 7), u64::MAX);
    }

    #[test]
    fn a_clock_with_bursts_goes_as_fast_as_time_on_average() {
        for factor in [1.5, 3.0, 5.0] {
            let mut clock = ThinkClock::new(Some(bursts(factor)), 1_000.0, 1, LONG);
            let long = 100_000 * SECOND;
            let over = after(&mut clock, 0, long);
            assert!(
                (over as f64 / long as f64 - 1.0).abs() < 0.02,
                "{factor}: {over}"
            );
        }
    }

    #[test]
    fn a_think_time_is_as_long_by_the_clock_wherever_it_is_cut() {
        let mut whole = ThinkClock::new(Some(bursts(5.0)), 1_000.0, 3, LONG);
        let mut cut = whole.clone();
        let over = after(&mut whole, 0, SECOND);
        let mut at = 0;
        for _ in 0..1_000 {
            at = after(&mut cut, at, SECOND / 1_000);
        }
        // Each piece is rounded to a nanosecond, which is five of the clock in a burst.
        assert!(over.abs_diff(at) < 5_000, "{over} and {at}");
    }

    #[test]
    fn the_clock_is_the_same_for_whoever_asks_and_whenever() {
        let mut one = ThinkClock::new(Some(bursts(3.0)), 1_000.0, 3, LONG);
        let mut other = one.clone();
        let often: Vec<u64> = (0..1_000)
            .map(|it| after(&mut one, it * SECOND / 100, 50))
            .collect();
        assert_eq!(after(&mut other, 999 * SECOND / 100, 50), often[999]);
        assert!(often.is_sorted());
    }

    #[test]
    fn a_user_whose_server_is_away_takes_no_time_from_the_others() {
        let mut clock = ThinkClock::new(Some(bursts(3.0)), 1_000.0, 3, LONG);
        let mut alone = clock.clone();
        let away = after(&mut clock, 12 * SECOND, SECOND);
        let others = after(&mut clock, 10 * SECOND, SECOND);
        assert_eq!(others, after(&mut alone, 10 * SECOND, SECOND));
        assert_eq!(away, after(&mut alone, 12 * SECOND, SECOND));
    }

    #[test]
    fn nothing_is_drawn_beyond_the_end_of_the_run() {
        let ends = DurationNs(SECOND);
        let mut clock = ThinkClock::new(Some(bursts(3.0)), 1_000.0, 3, ends);
        assert_eq!(after(&mut clock, 0, u64::MAX), u64::MAX);
        assert!(clock.0.is_some_and(|it| it.pieces.len() < 200));
    }
}
