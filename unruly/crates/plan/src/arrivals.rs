//! When requests are due.
//!
//! An open load decides the times of its requests before the run and keeps to them however slow
//! the system is: a sender that waits for replies would skip the very requests a stall delays
//! (coordinated omission). A closed loop waits for its reply and then thinks; it has no schedule.

use serde::{Deserialize, Serialize};

use crate::bursts::Bursts;
use crate::model::Drive;
use crate::ramp::Levels;
use crate::random::{Purpose, Random};
use crate::units::{DurationNs, RateHz};

const SECOND_NS: u64 = 1_000_000_000;

/// How requests arrive.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// Evenly spaced.
    Constant {
        /// Requests in a second.
        rate: RateHz,
    },
    /// Independent of one another: exponential gaps.
    Poisson {
        /// Mean requests in a second.
        rate: RateHz,
    },
    /// In bursts: a Markov-modulated Poisson process of two states.
    Mmpp {
        /// Mean requests in a second.
        rate: RateHz,
        /// Index of dispersion of long counts, above 1, which is Poisson's.
        dispersion: f64,
        /// Share of time in bursts.
        burst_share: f64,
        /// How many times the mean a burst is.
        burst_factor: f64,
    },
    /// In bursts whose times, and the times between them, have a Pareto distribution.
    OnOff {
        /// Mean requests in a second.
        rate: RateHz,
        /// Mean length of a burst.
        on: DurationNs,
        /// Mean time between bursts, in which nothing comes.
        off: DurationNs,
        /// Shape of the distribution. Its variance is infinite up to 2, and its mean is infinite up
        /// to 1.
        shape: f64,
    },
    /// At the times of a file: see [`crate::times_ns`].
    Replay,
    /// Each client sends, awaits the reply, thinks, and sends again.
    Closed {
        /// Mean of the exponential think time; 0 is no thinking.
        think: DurationNs,
        /// How the users' common clock changes; none if they think by the time.
        bursts: Option<ThinkBursts>,
    },
}

/// Bursts of a closed loop: all users think faster in a burst.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThinkBursts {
    /// Index of dispersion of long counts of requests, above 1.
    pub dispersion: f64,
    /// Share of time in bursts.
    pub burst_share: f64,
    /// How many times the mean a burst is.
    pub burst_factor: f64,
}

/// The arrivals without their numbers: the values of the key `arrivals`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Constant,
    Poisson,
    Closed,
    Mmpp,
    OnOff,
    Replay,
}

impl Shape {
    /// All of them, in the order of messages.
    pub(crate) const ALL: [Self; 6] = [
        Self::Constant,
        Self::Poisson,
        Self::Closed,
        Self::Mmpp,
        Self::OnOff,
        Self::Replay,
    ];

    /// The name in plans.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Poisson => "poisson",
            Self::Closed => "closed",
            Self::Mmpp => "mmpp",
            Self::OnOff => "onoff",
            Self::Replay => "replay",
        }
    }
}

impl Arrivals {
    /// The name in plans.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.shape().name()
    }

    const fn shape(&self) -> Shape {
        match self {
            Self::Constant { .. } => Shape::Constant,
            Self::Poisson { .. } => Shape::Poisson,
            Self::Mmpp { .. } => Shape::Mmpp,
            Self::OnOff { .. } => Shape::OnOff,
            Self::Replay => Shape::Replay,
            Self::Closed { .. } => Shape::Closed,
        }
    }

    /// The mean rate, if it does not follow from a file or from the replies.
    pub(crate) const fn rate(&self) -> Option<RateHz> {
        match *self {
            Self::Constant { rate }
            | Self::Poisson { rate }
            | Self::Mmpp { rate, .. }
            | Self::OnOff { rate, .. } => Some(rate),
            Self::Replay | Self::Closed { .. } => None,
        }
    }

    /// Offsets in ns from the start at which requests are due, endless and never decreasing.
    ///
    /// Constant arrivals are at `i * 1e9 / rate`, each computed afresh, so nothing drifts: rounded
    /// down exactly for a whole rate, to the nearest double otherwise. A closed loop has no
    /// schedule, and that of a replay is in its file ([`Schedule::of_times`]): both are empty. An offset past the end of `u64` stays there.
    #[must_use]
    pub fn schedule(&self, seed: u64, stream: u64) -> Schedule {
        let kind = match *self {
            Self::Constant { rate } => Kind::Constant { rate, sent: 0 },
            Self::Poisson { rate } => Kind::Poisson {
                mean_gap_ns: SECOND_NS as f64 / rate.0,
                at: Offset::default(),
                random: Random::new(Purpose::Arrivals, seed, stream),
            },
            Self::Mmpp {
                rate,
                dispersion,
                burst_share,
                burst_factor,
            } => {
                let random = Random::new(Purpose::Arrivals, seed, stream);
                let bursts = Bursts::markov(rate.0, dispersion, burst_share, burst_factor, random);
                Kind::Bursts(Box::new(bursts))
            }
            Self::OnOff {
                rate,
                on,
                off,
                shape,
            } => {
                let random = Random::new(Purpose::Arrivals, seed, stream);
                let (on_ns, off_ns) = (on.0 as f64, off.0 as f64);
                Kind::Bursts(Box::new(Bursts::on_off(
                    rate.0, on_ns, off_ns, shape, random,
                )))
            }
            Self::Closed { .. } | Self::Replay => return Schedule::of_times(Vec::new()),
        };
        Schedule(kind)
    }

    /// Think times in ns of one client of a closed loop, endless; empty for an open load.
    #[must_use]
    pub fn think_times(&self, seed: u64, stream: u64) -> ThinkTimes {
        let mean_ns = match *self {
            Self::Closed { think, .. } => Some(think.0),
            _ => None,
        };
        ThinkTimes {
            mean_ns,
            random: Random::new(Purpose::Think, seed, stream),
        }
    }
}

impl Drive {
    /// Offsets in ns from the start at which requests are due, those of the warm-up too.
    #[must_use]
    pub fn schedule(&self, seed: u64, warmup: DurationNs) -> Schedule {
        let (Some(ramp), Some(rate)) = (&self.ramp, self.arrivals.rate()) else {
            return self.arrivals.schedule(seed, 0);
        };
        let independent = matches!(self.arrivals, Arrivals::Poisson { .. });
        Schedule(Kind::Ramped {
            levels: ramp.levels(rate.0, warmup),
            count: 0.0,
            random: independent.then(|| Random::new(Purpose::Arrivals, seed, 0)),
        })
    }
}

/// The offsets at which requests are due; see [`Arrivals::schedule`].
#[derive(Clone, Debug)]
pub struct Schedule(Kind);

impl Schedule {
    /// Offsets in ns from the start that are known; they never decrease.
    #[must_use]
    pub fn of_times(times_ns: Vec<u64>) -> Self {
        Self(Kind::Times(times_ns.into_iter()))
    }
}

#[derive(Clone, Debug)]
enum Kind {
    Constant {
        rate: RateHz,
        sent: u64,
    },
    Poisson {
        mean_gap_ns: f64,
        at: Offset,
        random: Random,
    },
    Bursts(Box<Bursts>),
    Ramped {
        levels: Levels,
        /// How many requests are due before the next one. Those of a Poisson process of rate 1 have
        /// exponential gaps, and come from this generator.
        count: f64,
        random: Option<Random>,
    },
    Times(std::vec::IntoIter<u64>),
}

impl Iterator for Schedule {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        match &mut self.0 {
            Kind::Constant { rate, sent } => {
                let due_ns = constant_ns(*sent, *rate);
                *sent += 1;
                Some(due_ns)
            }
            Kind::Poisson {
                mean_gap_ns,
                at,
                random,
            } => {
                at.add(random.exponential() * *mean_gap_ns);
                Some(at.whole_ns)
            }
            Kind::Bursts(bursts) => Some(bursts.next_ns()),
            Kind::Ramped {
                levels,
                count,
                random,
            } => {
                *count += random.as_mut().map_or(0.0, Random::exponential);
                let due_ns = levels.due_ns(*count);
                *count += if random.is_none() { 1.0 } else { 0.0 };
                due_ns
            }
            Kind::Times(times) => times.next(),
        }
    }
}

/// The think times of a client; see [`Arrivals::think_times`].
#[derive(Clone, Debug)]
pub struct ThinkTimes {
    mean_ns: Option<u64>,
    random: Random,
}

impl Iterator for ThinkTimes {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let mean_ns = self.mean_ns?;
        Some(round_ns(self.random.exponential() * mean_ns as f64))
    }
}

/// A sum of gaps which keeps the parts of a nanosecond apart, so that a long sum stays exact.
#[derive(Clone, Debug, Default)]
pub(crate) struct Offset {
    whole_ns: u64,
    part_ns: f64,
}

impl Offset {
    pub(crate) fn whole_ns(&self) -> u64 {
        self.whole_ns
    }

    pub(crate) fn add(&mut self, gap_ns: f64) {
        let sum_ns = self.part_ns + gap_ns;
        let whole_ns = sum_ns.floor();
        self.part_ns = sum_ns - whole_ns;
        self.whole_ns = self.whole_ns.saturating_add(round_ns(whole_ns));
    }
}

fn constant_ns(index: u64, rate: RateHz) -> u64 {
    if rate.0 >= 1.0 && rate.0.fract() == 0.0 {
        let due_ns = u128::from(index) * u128::from(SECOND_NS) / u128::from(round_ns(rate.0));
        return u64::try_from(due_ns).unwrap_or(u64::MAX);
    }
    round_ns(index as f64 * SECOND_NS as f64 / rate.0)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from float saturates, as schedules promise; negatives do not occur"
)]
pub(crate) fn round_ns(value_ns: f64) -> u64 {
    value_ns.round() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn constant(rate: f64) -> Schedule {
        Arrivals::Constant { rate: RateHz(rate) }.schedule(1, 0)
    }

    #[test]
    fn constant_arrivals_are_exactly_as_many_as_the_rate_says() {
        for rate in [1_u32, 7, 1_000, 20_000, 333_333] {
            let second = constant(f64::from(rate)).take_while(|&due_ns| due_ns < SECOND_NS);
            assert_eq!(
                second.count(),
                usize::try_from(rate).unwrap(),
                "rate {rate}"
            );
        }
    }

    #[test]
    fn constant_arrivals_do_not_drift() {
        assert_eq!(constant(3.0).nth(3_000_000).unwrap(), 1_000_000 * SECOND_NS);
        let per_minute: RateHz = "1/min".parse().unwrap();
        assert_eq!(
            constant(per_minute.0).nth(500_000).unwrap(),
            500_000 * 60 * SECOND_NS
        );
    }

    #[test]
    fn poisson_arrivals_keep_their_mean_rate_and_exponential_gaps() {
        let count = 200_000_u32;
        let due_ns: Vec<u64> = Arrivals::Poisson {
            rate: RateHz(1_000.0),
        }
        .schedule(42, 3)
        .take(usize::try_from(count).unwrap())
        .collect();
        let gaps_ns: Vec<f64> = due_ns
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as f64)
            .collect();
        let n = gaps_ns.len() as f64;
        let mean_ns = gaps_ns.iter().sum::<f64>() / n;
        let variance = gaps_ns
            .iter()
            .map(|gap| (gap - mean_ns).powi(2))
            .sum::<f64>()
            / n;
        // Standard errors are 0.22 % each at this count: a bound of 1 % is over four of them.
        assert!((mean_ns / 1e6 - 1.0).abs() < 0.01, "mean gap {mean_ns} ns");
        assert!(
            (variance.sqrt() / mean_ns - 1.0).abs() < 0.01,
            "cv {}",
            variance.sqrt() / mean_ns
        );
        let above_mean = gaps_ns.iter().filter(|&&gap| gap > 1e6).count() as f64 / n;
        assert!(
            (above_mean - (-1.0_f64).exp()).abs() < 0.005,
            "P(gap > mean) {above_mean}"
        );
    }

    #[test]
    fn think_times_have_the_mean_asked_for() {
        let closed = Arrivals::Closed {
            think: DurationNs(2_000_000),
            bursts: None,
        };
        let sum_ns: u64 = closed.think_times(1, 0).take(100_000).sum();
        // Standard error 0.32 %.
        assert!(
            (sum_ns as f64 / 100_000.0 / 2e6 - 1.0).abs() < 0.015,
            "sum {sum_ns}"
        );
    }

    /// The schedule of a drive that changes in stages.
    fn in_stages(lines: &str) -> Schedule {
        let text = format!("name = \"a\"\n[run]\nduration = \"60s\"\n[drive]\n{lines}");
        match crate::Plan::parse("plan", &text).unwrap().load {
            crate::Load::Drive(drive) => drive.schedule(1, DurationNs(0)),
            _ => panic!("it drives"),
        }
    }

    #[test]
    fn a_load_that_begins_with_next_to_nothing_grows_evenly() {
        let lines = "rate = 0.000001\nramp = \"10s:10000\"";
        let times: Vec<u64> = in_stages(lines)
            .take_while(|it| *it < 10 * SECOND_NS)
            .collect();
        assert!(times.is_sorted());
        assert!(times.len().abs_diff(50_000) < 2, "{}", times.len());
        let half = times.iter().filter(|it| **it < 5 * SECOND_NS).count();
        assert!(half.abs_diff(12_500) < 2, "{half}");
    }

    #[test]
    fn poisson_arrivals_in_stages_stay_independent() {
        let lines = "arrivals = \"poisson\"\nrate = \"1k/s\"\nramp = \"50s:3000\"";
        let mut counts = vec![0.0_f64; 500];
        for at_ns in in_stages(lines).take_while(|it| *it < 50 * SECOND_NS) {
            counts[usize::try_from(at_ns / (SECOND_NS / 10)).unwrap()] += 1.0;
        }
        // Each tenth of a second has 4 more than the last, and the variance of its mean.
        let apart: f64 = counts
            .iter()
            .zip(0_u32..)
            .map(|(count, at)| {
                let due = 100.0 + 0.4 * (f64::from(at) + 0.5);
                (count - due).powi(2) / due
            })
            .sum();
        // Chi squared of 500: within five of its standard deviations, 32.
        assert!((apart - 500.0).abs() < 160.0, "{apart}");
    }

    #[test]
    fn no_think_is_no_think() {
        let closed = Arrivals::Closed {
            think: DurationNs(0),
            bursts: None,
        };
        assert_eq!(
            closed.think_times(1, 0).take(3).collect::<Vec<_>>(),
            [0, 0, 0]
        );
    }

    #[test]
    fn open_and_closed_loads_do_not_answer_for_each_other() {
        let closed = Arrivals::Closed {
            think: DurationNs(5),
            bursts: None,
        };
        assert_eq!(closed.schedule(1, 0).next(), None);
        assert_eq!(
            Arrivals::Poisson { rate: RateHz(5.0) }
                .think_times(1, 0)
                .next(),
            None
        );
    }

    #[test]
    fn a_recorded_schedule_replays_on_every_platform() {
        let poisson = Arrivals::Poisson {
            rate: RateHz(1_000.0),
        };
        let first: Vec<u64> = poisson.schedule(1, 0).take(5).collect();
        assert_eq!(first, [573_827, 673_404, 830_516, 2_421_552, 2_464_627]);
    }

    proptest! {
        #[test]
        fn schedules_replay_and_never_decrease(
            seed: u64, stream: u64, rate in 1e-3_f64..1e7, poisson: bool
        ) {
            let rate = RateHz(rate);
            let arrivals =
                if poisson { Arrivals::Poisson { rate } } else { Arrivals::Constant { rate } };
            let one: Vec<u64> = arrivals.schedule(seed, stream).take(500).collect();
            let two: Vec<u64> = arrivals.schedule(seed, stream).take(500).collect();
            prop_assert!(one.is_sorted());
            prop_assert_eq!(one, two);
        }

        #[test]
        fn streams_of_a_seed_differ(seed: u64, stream in 0_u64..1_000_000) {
            let poisson = Arrivals::Poisson { rate: RateHz(1.0) };
            let first = |stream| poisson.schedule(seed, stream).next();
            prop_assert_ne!(first(stream), first(stream + 1));
        }
    }
}
