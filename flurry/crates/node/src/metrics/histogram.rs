//! How long things took, in steps that are the same for all.

use std::time::Duration;

/// The upper ends of the steps, in seconds; what took longer is in the last one, which has none.
pub(crate) const BOUNDS_S: [f64; 18] = [
    10e-6, 20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 0.1, 0.2,
    0.5, 1.0, 2.0, 5.0,
];

/// How many took how long.
#[derive(Debug, Clone, Default)]
pub(crate) struct Histogram {
    /// Count of each step alone. The last step has no upper bound.
    pub(crate) counts: [u64; BOUNDS_S.len() + 1],
    pub(crate) sum_s: f64,
}

impl Histogram {
    pub(crate) fn note(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        let step = BOUNDS_S.partition_point(|bound| *bound < seconds);
        self.counts[step] += 1;
        self.sum_s += seconds;
    }

    /// How many there are up to the end of each step.
    pub(crate) fn cumulated(&self) -> impl Iterator<Item = u64> {
        self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_took_as_long_as_a_step_is_in_it_and_longer_ones_are_behind() {
        let mut histogram = Histogram::default();
        for micros in [1, 10, 11, 20_000_000] {
            histogram.note(Duration::from_micros(micros));
        }
        let all: Vec<u64> = histogram.cumulated().collect();
        assert_eq!((all[0], all[1], all[17], all[18]), (2, 3, 3, 4));
        assert!((histogram.sum_s - 20.000_022).abs() < 1e-9);
    }
}
