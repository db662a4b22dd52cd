//! Randomness that replays: everything is drawn from a seed and the number of a stream.
//!
//! `mix` is two rounds of splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
//! generators", OOPSLA 2014): `finalise(finalise(seed) + stream)`. For one seed it is a bijection
//! of the stream, so two streams of a seed never share a derived seed. A generator is PCG
//! XSL 128/64 (MCG), its 128 bits of state `mix(seed, stream)` above `mix(mix(seed, stream), 1)`.
//! Purposes (arrivals, groups, order, ..) are kept apart by a label mixed in first.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng as _;

/// Derives a seed for `stream` from `seed`; the same on every platform, forever.
///
/// ```
/// assert_ne!(unruly_plan::mix(1, 0), unruly_plan::mix(1, 1));
/// ```
#[must_use]
pub fn mix(seed: u64, stream: u64) -> u64 {
    finalise(finalise(seed).wrapping_add(stream))
}

/// Returns the stream of which [`mix`] made `mixed` with this seed.
///
/// ```
/// assert_eq!(unruly_plan::unmix(1, unruly_plan::mix(1, 42)), 42);
/// ```
#[must_use]
pub fn unmix(seed: u64, mixed: u64) -> u64 {
    // Each step of `finalise` has an inverse: a shift by at least a third of the bits is undone by
    // two more of them, and an odd factor by its inverse modulo 2^64.
    let value = mixed ^ (mixed >> 31) ^ (mixed >> 62);
    let value = value.wrapping_mul(inverse(0x94d0_49bb_1331_11eb));
    let value = value ^ (value >> 27) ^ (value >> 54);
    let value = value.wrapping_mul(inverse(0xbf58_476d_1ce4_e5b9));
    let value = value ^ (value >> 30) ^ (value >> 60);
    let value = value.wrapping_sub(0x9e37_79b9_7f4a_7c15);
    value.wrapping_sub(finalise(seed))
}

/// The number by which an odd one must be multiplied to make 1, by Newton's method.
const fn inverse(odd: u64) -> u64 {
    let mut found = odd;
    // each step doubles the bits that are right, of which three are at first
    let mut step = 0;
    while step < 5 {
        found = found.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(found)));
        step += 1;
    }
    found
}

fn finalise(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// What randomness is for; each purpose has its own streams.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    Arrivals,
    Think,
    Groups,
    Phase,
    Jitter,
    Order,
    Choice,
}

impl Purpose {
    /// Seed of this purpose under the plan's seed.
    pub(crate) fn seed(self, seed: u64) -> u64 {
        let label = match self {
            Self::Arrivals => *b"arrivals",
            Self::Think => *b"think---",
            Self::Groups => *b"groups--",
            Self::Phase => *b"phase---",
            Self::Jitter => *b"jitter--",
            Self::Order => *b"order---",
            Self::Choice => *b"choice--",
        };
        mix(seed, u64::from_be_bytes(label))
    }
}

/// A generator for one stream of one purpose.
#[derive(Clone, Debug)]
pub(crate) struct Random(Pcg64Mcg);

impl Random {
    pub(crate) fn new(purpose: Purpose, seed: u64, stream: u64) -> Self {
        let high = mix(purpose.seed(seed), stream);
        Self(Pcg64Mcg::new(
            u128::from(high) << 64 | u128::from(mix(high, 1)),
        ))
    }

    /// The generator itself, for distributions of a library.
    pub(crate) fn generator(&mut self) -> &mut Pcg64Mcg {
        &mut self.0
    }

    /// Each of `0..bound` as likely.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        scale(self.0.next_u64(), bound)
    }

    /// From 0 to 1, without 1.
    pub(crate) fn share(&mut self) -> f64 {
        const UNIT: f64 = 1.0 / (1_u64 << 53) as f64;
        (self.0.next_u64() >> 11) as f64 * UNIT
    }

    /// An exponential with mean 1. The logarithm is libm's in Rust, not the platform's, whose
    /// last bit differs between C libraries.
    pub(crate) fn exponential(&mut self) -> f64 {
        const UNIT: f64 = 1.0 / (1_u64 << 53) as f64;
        // In (0, 1], so that the logarithm is finite.
        let uniform = ((self.0.next_u64() >> 11) + 1) as f64 * UNIT;
        -libm::log(uniform)
    }

    /// Fisher-Yates.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1);
            items.swap(
                last,
                usize::try_from(other).expect("below the length of a slice"),
            );
        }
    }
}

/// Maps 64 random bits to `0..bound` (0 when `bound` is 0) by the high half of the product; its
/// bias is below `bound / 2^64`.
pub(crate) fn scale(bits: u64, bound: u64) -> u64 {
    let product = u128::from(bits) * u128::from(bound);
    u64::try_from(product >> 64).expect("the high half of 128 bits fits 64")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mix_never_changes() {
        // finalise(0) is the first output of splitmix64 from state 0, as published.
        assert_eq!(finalise(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix(0, 0), finalise(0xe220_a839_7b1d_cdaf));
    }

    #[test]
    fn purposes_do_not_share_seeds() {
        assert_ne!(Purpose::Phase.seed(7), Purpose::Jitter.seed(7));
        assert_ne!(Purpose::Arrivals.seed(7), Purpose::Think.seed(7));
    }

    #[test]
    fn scale_stays_below_its_bound() {
        assert_eq!(scale(u64::MAX, 10), 9);
        assert_eq!(scale(0, 10), 0);
        assert_eq!(scale(u64::MAX, 0), 0);
    }
}
