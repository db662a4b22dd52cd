//! Random numbers from a seed.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng as _;

/// A generator whose every draw follows from its seed.
#[derive(Debug, Clone)]
pub struct Dice(Pcg64Mcg);

impl Dice {
    /// Creates the generator of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let high = xxhash_rust::xxh3::xxh3_64_with_seed(b"flurry-sim", seed);
        Self(Pcg64Mcg::new(u128::from(high) << 64 | u128::from(seed) | 1))
    }

    /// Draws a number.
    pub fn number(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Draws a number below `end`; 0 when `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // The bias is below 2^-40 for the small ranges here.
        let product = u128::from(self.number()) * u128::from(end);
        u64::try_from(product >> 64).unwrap_or(0)
    }

    /// Draws a number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Returns true with this chance in a million.
    pub fn chance(&mut self, millionths: u64) -> bool {
        self.below(1_000_000) < millionths
    }

    /// Draws one of these; they must not be empty.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        let index = self.below(of.len() as u64);
        &of[usize::try_from(index).unwrap_or(0)]
    }
}
