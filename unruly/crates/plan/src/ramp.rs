//! A load that changes in stages: `30s:500, 2min:500, 10s:0`.
//!
//! In each stage the level changes evenly to the one that is given. It is the rate of an open loop,
//! or the number of clients of a closed loop. Arrivals keep their kind: those of a schedule of an
//! even rate come when as many are due, so that constant ones stay evenly spaced and Poisson ones
//! independent.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::arrivals::round_ns;
use crate::units::DurationNs;

/// Stages that a ramp may have.
const STAGES_MAX: usize = 1_000;
const FORM: &str = "must be stages such as 30s:500, each a time (ns, us, ms, s, min, h, d) and the \
                    level at its end";
/// A level that is nearly reached is, in spite of roundings.
const NEARLY: f64 = 1e-9;

/// The stages, in their order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ramp(Vec<Stage>);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Stage {
    lasts: DurationNs,
    /// The level at its end.
    level: f64,
}

impl Ramp {
    /// How long all stages last.
    #[must_use]
    pub fn lasts(&self) -> DurationNs {
        let each = self.0.iter().map(|it| it.lasts.0);
        DurationNs(each.fold(0, u64::saturating_add))
    }

    /// The same levels in stages this many times as long, rounded down.
    pub(crate) fn scaled(mut self, scale: f64) -> Self {
        // Times that are not scaled are the same to the last nanosecond.
        if scale.to_bits() != 1.0_f64.to_bits() {
            for stage in &mut self.0 {
                stage.lasts = DurationNs(round_ns((stage.lasts.0 as f64 * scale).floor()));
            }
        }
        self
    }

    /// The highest level.
    #[must_use]
    pub fn most(&self) -> f64 {
        self.0.iter().map(|it| it.level).fold(0.0, f64::max)
    }

    /// The levels of a run that begins at `first` and keeps it for the warm-up.
    pub(crate) fn levels(&self, first: f64, warmup: DurationNs) -> Levels {
        let lead = Stage {
            lasts: warmup,
            level: first,
        };
        let mut pieces = Vec::with_capacity(self.0.len() + 1);
        let (mut begins_s, mut from) = (0.0, first);
        for stage in std::iter::once(&lead).chain(&self.0) {
            let lasts_s = stage.lasts.0 as f64 / 1e9;
            if lasts_s > 0.0 {
                pieces.push(Piece {
                    begins_s,
                    lasts_s,
                    from,
                    to: stage.level,
                });
            }
            begins_s += lasts_s;
            from = stage.level;
        }
        // The last level stays.
        pieces.push(Piece {
            begins_s,
            lasts_s: f64::INFINITY,
            from,
            to: from,
        });
        Levels {
            pieces,
            at: 0,
            passed: 0.0,
        }
    }
}

impl FromStr for Ramp {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let stages = text.split(',').map(str::trim).map(|stage| {
            let (lasts, level) = stage.split_once(':')?;
            let lasts = lasts.trim().parse::<DurationNs>().ok()?;
            let level = level.trim().parse::<f64>().ok()?;
            (level.is_finite() && level >= 0.0).then_some(Stage { lasts, level })
        });
        let stages: Option<Vec<Stage>> = stages.collect();
        match stages {
            Some(stages) if stages.len() > STAGES_MAX => Err("must have at most 1,000 stages"),
            Some(stages) => Ok(Self(stages)),
            None => Err(FORM),
        }
    }
}

impl fmt::Display for Ramp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, Stage { lasts, level }) in self.0.iter().enumerate() {
            let comma = if place > 0 { ", " } else { "" };
            write!(out, "{comma}{lasts}:{level}")?;
        }
        Ok(())
    }
}

impl TryFrom<String> for Ramp {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Ramp> for String {
    fn from(ramp: Ramp) -> Self {
        ramp.to_string()
    }
}

/// The level at each instant of a run, and where a schedule is in it.
#[derive(Clone, Debug)]
pub(crate) struct Levels {
    pieces: Vec<Piece>,
    /// The piece of the last request, and how many were due before it.
    at: usize,
    passed: f64,
}

/// A stretch of time in which the level changes evenly; times are in seconds since the start.
#[derive(Clone, Copy, Debug)]
struct Piece {
    begins_s: f64,
    lasts_s: f64,
    from: f64,
    to: f64,
}

impl Piece {
    /// How many requests are due in it.
    fn count(&self) -> f64 {
        match self.lasts_s.is_finite() {
            true => (self.from + self.to) / 2.0 * self.lasts_s,
            false if self.to > 0.0 => f64::INFINITY,
            false => 0.0,
        }
    }

    /// How fast the level changes, a second.
    fn slope(&self) -> f64 {
        match self.lasts_s.is_finite() {
            true => (self.to - self.from) / self.lasts_s,
            false => 0.0,
        }
    }

    /// When `count` requests of this piece were due: the area below the level is a trapezium.
    fn due_s(&self, count: f64) -> f64 {
        let root = (self.from * self.from + 2.0 * count * self.slope())
            .max(0.0)
            .sqrt();
        let within_s = match self.from + root {
            0.0 => 0.0,
            sum => 2.0 * count / sum,
        };
        self.begins_s + within_s.min(self.lasts_s)
    }
}

impl Levels {
    /// When the request is due before which `count` are, in ns since the start; `None` if the
    /// level has become 0 before. Counts must not decrease.
    pub(crate) fn due_ns(&mut self, count: f64) -> Option<u64> {
        loop {
            let piece = self.pieces.get(self.at)?;
            let own = count - self.passed;
            if own < piece.count() {
                return Some(whole_ns(piece.due_s(own)));
            }
            self.passed += piece.count();
            self.at += 1;
        }
    }

    /// The first instant from `from` on at which client `number`, counted from 0, is there.
    pub(crate) fn reached(&self, number: u64, from: DurationNs) -> Option<DurationNs> {
        let wanted = number as f64 + 1.0;
        let from_s = from.0 as f64 / 1e9;
        self.pieces.iter().find_map(|piece| {
            let since_s = (from_s - piece.begins_s).max(0.0);
            if since_s >= piece.lasts_s {
                return None;
            }
            let now = piece.from + piece.slope() * since_s;
            if now >= wanted - NEARLY {
                return Some(from.max(DurationNs(whole_ns(piece.begins_s))));
            }
            let rises = piece.to >= wanted - NEARLY;
            let rise_s = ((wanted - piece.from) / piece.slope()).min(piece.lasts_s);
            rises.then(|| DurationNs(whole_ns(piece.begins_s + rise_s)))
        })
    }
}

fn whole_ns(seconds: f64) -> u64 {
    round_ns(seconds * 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn levels(text: &str, first: f64, warmup_s: u64) -> Levels {
        let ramp: Ramp = text.parse().expect("it is a ramp");
        ramp.levels(first, DurationNs(warmup_s * SECOND))
    }

    /// How many requests are due in each second.
    fn by_second(mut levels: Levels, seconds: usize) -> Vec<usize> {
        let mut counts = vec![0; seconds];
        for number in 0.. {
            let Some(at_ns) = levels.due_ns(f64::from(number)) else {
                break;
            };
            let Some(count) = counts.get_mut(usize::try_from(at_ns / SECOND).unwrap()) else {
                break;
            };
            *count += 1;
        }
        counts
    }

    #[test]
    fn what_is_written_is_read_and_what_is_no_ramp_is_not() {
        for text in ["30s:500", "10s:0, 2min:500", "0s:50, 90s:50.5"] {
            assert_eq!(text.parse::<Ramp>().unwrap().to_string(), text);
        }
        for text in [
            "", "30s", "500", "30s:", "30s:-1", "30s:inf", "30s:5,", ":5", "2m:5",
        ] {
            assert!(text.parse::<Ramp>().is_err(), "{text}");
        }
        let long = vec!["1s:1"; 1_001].join(",");
        assert_eq!(long.parse::<Ramp>(), Err("must have at most 1,000 stages"));
        let ramp: Ramp = "10s:5, 20s:50, 1s:0".parse().unwrap();
        assert_eq!((ramp.lasts(), ramp.most()), (DurationNs(31 * SECOND), 50.0));
    }

    #[test]
    fn a_rate_changes_evenly_and_stays_at_the_last_level() {
        // From 100 to 500 in four seconds: 50 more in each half.
        let counts = by_second(levels("4s:500, 1s:0", 100.0, 1), 8);
        assert_eq!(counts, [100, 150, 250, 350, 450, 250, 0, 0]);
        assert_eq!(by_second(levels("2s:10", 10.0, 0), 5), [10; 5]);
        // The rate jumps where a stage takes no time.
        assert_eq!(by_second(levels("1s:10, 0s:30", 10.0, 0), 3), [10, 30, 30]);
        assert_eq!(by_second(levels("2s:0, 2s:100", 0.0, 0), 4), [0, 0, 25, 75]);
    }

    #[test]
    fn a_client_is_there_from_when_the_level_reaches_its_number() {
        let levels = levels("9s:10, 5s:10, 9s:1, 1s:1, 1s:4", 1.0, 1);
        let reached = |number, from_s: u64| {
            let at = levels.reached(number, DurationNs(from_s * SECOND))?;
            Some(at.0 as f64 / 1e9)
        };
        assert_eq!(reached(0, 0), Some(0.0));
        assert_eq!(reached(1, 0), Some(2.0));
        assert_eq!(reached(9, 3), Some(10.0));
        assert_eq!(reached(4, 7), Some(7.0));
        // The fifth one leaves at 20 s, and the fourth one comes again at 26 s.
        assert_eq!(reached(4, 21), None);
        assert_eq!(reached(3, 22), Some(26.0));
        assert_eq!(reached(3, 90), Some(90.0));
        assert_eq!(reached(10, 0), None);
    }
}
