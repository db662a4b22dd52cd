//! Arrivals in bursts: processes that change between two rates.
//!
//! A Markov-modulated Poisson process of two states is Poisson in each, at rates `l1` and `l2`, and changes
//! with rates `r12` and `r21`; with `s = r12 + r21` its mean is `(l1 r21 + l2 r12) / s` and its index of
//! dispersion for long counts `I = 1 + 2 (l1 - l2)^2 r12 r21 / (s^2 (l1 r21 + l2 r12))` (Fischer and
//! Meier-Hellstern, "The Markov-modulated Poisson process (MMPP) cookbook", 1993). From the mean `L`, the
//! share of time `a` in bursts and how much faster a burst is, `b`: `l1 = b L`, `l2 = L (1 - a b) / (1 - a)`,
//! `s = 2 a L (b - 1)^2 / ((1 - a)(I - 1))`, `r12 = (1 - a) s`, `r21 = a s`.
//!
//! On and off times of a Pareto distribution with a shape below 2 have no variance: their counts look
//! alike at every scale, and no run is long enough for their mean.

use crate::arrivals::Offset;
use crate::random::Random;

/// A process of two states, each Poisson at a rate of its own.
#[derive(Clone, Debug)]
pub(crate) struct Bursts {
    /// Mean gaps between arrivals, ns, in a burst and between bursts; infinite is none.
    gaps_ns: [f64; 2],
    stays: Stays,
    in_burst: bool,
    /// Remaining time in the present state, in nanoseconds.
    left_ns: f64,
    at: Offset,
    random: Random,
}

/// A Markov process of two states: a burst, and the time between bursts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TwoStates {
    /// How fast each is, as a multiple of the mean.
    pub(crate) speeds: [f64; 2],
    /// How long each lasts on average, ns.
    pub(crate) means_ns: [f64; 2],
}

impl TwoStates {
    /// Those that give arrivals of this mean rate this index of dispersion.
    pub(crate) fn new(rate_hz: f64, dispersion: f64, share: f64, factor: f64) -> Self {
        let quiet = (1.0 - share * factor).max(0.0) / (1.0 - share);
        let changes_hz =
            2.0 * share * rate_hz * (factor - 1.0).powi(2) / ((1.0 - share) * (dispersion - 1.0));
        Self {
            speeds: [factor, quiet],
            means_ns: [
                1e9 / ((1.0 - share) * changes_hz),
                1e9 / (share * changes_hz),
            ],
        }
    }
}

/// How long a state lasts.
#[derive(Clone, Copy, Debug)]
enum Stays {
    /// Exponential, with these means in ns.
    Exponential([f64; 2]),
    /// Pareto with these means in ns and this shape, which is above 1.
    Pareto([f64; 2], f64),
}

impl Bursts {
    /// MMPP(2) of a mean rate (a second), an index of dispersion above 1, the share of time in bursts and
    /// how many times the mean a burst is.
    pub(crate) fn markov(
        rate_hz: f64,
        dispersion: f64,
        share: f64,
        factor: f64,
        random: Random,
    ) -> Self {
        let states = TwoStates::new(rate_hz, dispersion, share, factor);
        let gaps_ns = states.speeds.map(|speed| 1e9 / (rate_hz * speed));
        Self::new(gaps_ns, Stays::Exponential(states.means_ns), share, random)
    }

    /// Bursts of these mean lengths (ns), Pareto with this shape, and nothing between them.
    pub(crate) fn on_off(
        rate_hz: f64,
        on_ns: f64,
        off_ns: f64,
        shape: f64,
        random: Random,
    ) -> Self {
        let share = on_ns / (on_ns + off_ns);
        let gaps_ns = [1e9 * share / rate_hz, f64::INFINITY];
        Self::new(
            gaps_ns,
            Stays::Pareto([on_ns, off_ns], shape),
            share,
            random,
        )
    }

    fn new(gaps_ns: [f64; 2], stays: Stays, share: f64, mut random: Random) -> Self {
        let in_burst = random.share() < share;
        let mut bursts = Self {
            gaps_ns,
            stays,
            in_burst,
            left_ns: 0.0,
            at: Offset::default(),
            random,
        };
        bursts.left_ns = bursts.stay_ns();
        bursts
    }

    fn state(&self) -> usize {
        usize::from(!self.in_burst)
    }

    /// How long the present state lasts from its beginning.
    fn stay_ns(&mut self) -> f64 {
        match self.stays {
            Stays::Exponential(means_ns) => self.random.exponential() * means_ns[self.state()],
            Stays::Pareto(means_ns, shape) => {
                let least_ns = means_ns[self.state()] * (shape - 1.0) / shape;
                // The logarithm of a Pareto time over its least is exponential.
                least_ns * libm::exp(self.random.exponential() / shape)
            }
        }
    }

    /// The offset of the next arrival, ns.
    pub(crate) fn next_ns(&mut self) -> u64 {
        loop {
            let gap_ns = self.random.exponential() * self.gaps_ns[self.state()];
            if gap_ns <= self.left_ns {
                self.left_ns -= gap_ns;
                self.at.add(gap_ns);
                return self.at.whole_ns();
            }
            // Poisson arrivals forget: from the change on everything is drawn anew.
            self.at.add(self.left_ns);
            self.in_burst = !self.in_burst;
            self.left_ns = self.stay_ns();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;

    /// Returns the mean and the index of dispersion of the counts in windows of `window_s` seconds.
    fn counted(mut bursts: Bursts, windows: usize, window_s: f64) -> (f64, f64) {
        let mut counts = vec![0.0; windows];
        loop {
            let at_s = bursts.next_ns() as f64 / 1e9;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "an index"
            )]
            let window = (at_s / window_s) as usize;
            match counts.get_mut(window) {
                Some(count) => *count += 1.0,
                None => break,
            }
        }
        let n = windows as f64;
        let mean = counts.iter().sum::<f64>() / n;
        let variance = counts
            .iter()
            .map(|count| (count - mean).powi(2))
            .sum::<f64>()
            / (n - 1.0);
        (mean / window_s, variance / mean)
    }

    fn random(stream: u64) -> Random {
        Random::new(Purpose::Arrivals, 11, stream)
    }

    #[test]
    fn counts_have_the_rate_and_the_index_of_dispersion_that_were_asked_for() {
        for (dispersion, stream) in [(100.0, 1), (400.0, 2)] {
            let bursts = Bursts::markov(500.0, dispersion, 0.2, 3.0, random(stream));
            // s is 10.1/s and 2.506/s: windows of 20/s see all but a twentieth of it.
            let window_s = if dispersion < 200.0 { 2.0 } else { 8.0 };
            let (rate, found) = counted(bursts, 4_000, window_s);
            let windows = 4_000.0_f64;
            let rate_error = (dispersion / (500.0 * window_s * windows)).sqrt();
            assert!((rate / 500.0 - 1.0).abs() < 5.0 * rate_error, "rate {rate}");
            let seen = 1.0 + (dispersion - 1.0) * 0.95;
            let error = (2.0 / windows).sqrt();
            assert!(
                (found / seen - 1.0).abs() < 6.0 * error + 0.02,
                "I {found} for {seen}"
            );
        }
    }

    #[test]
    fn times_on_and_off_have_the_mean_rate_and_nothing_comes_between_bursts() {
        // With a shape of 3 the mean of the times is known well.
        let bursts = Bursts::on_off(1_000.0, 50e6, 150e6, 3.0, random(3));
        let (rate, _) = counted(bursts.clone(), 2_000, 1.0);
        assert!((rate / 1_000.0 - 1.0).abs() < 0.05, "rate {rate}");
        let mut bursts = bursts;
        let due: Vec<u64> = (0..50_000).map(|_| bursts.next_ns()).collect();
        let pauses = due
            .windows(2)
            .filter(|pair| pair[1] - pair[0] > 90_000_000)
            .count();
        // A pause is at least two thirds of its mean long; there are five a second.
        let seconds = due[due.len() - 1] as f64 / 1e9;
        assert!(
            (pauses as f64 / seconds - 5.0).abs() < 0.7,
            "{pauses} in {seconds} s"
        );
    }
}
