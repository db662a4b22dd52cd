//! Almost valid input. Purely random input would fail the first check of a parser.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng as _;

/// Numbers at which programs go wrong.
const EDGES: [u64; 8] = [0, 1, 0x7f, 0x80, 0xff, 0xffff, 0xffff_ffff, u64::MAX];

/// Chance from a seed.
#[derive(Debug)]
pub(crate) struct Dice(Pcg64Mcg);

impl Dice {
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut random = Pcg64Mcg::new(u128::from(seed) << 64 | u128::from(stream) << 1 | 1);
        // The first numbers of a state with few bits look alike.
        for _ in 0..8 {
            random.next_u64();
        }
        Self(random)
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Below `end`; 0 when `end` is 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let product = u128::from(self.number()) * end as u128;
        usize::try_from(product >> 64).unwrap_or(0)
    }

    fn byte(&mut self) -> u8 {
        self.number().to_le_bytes()[0]
    }

    /// A piece of `of`: where it begins and ends.
    fn piece(&mut self, of: &[u8]) -> std::ops::Range<usize> {
        let start = self.below(of.len() + 1);
        let most = (of.len() - start).min(1 + self.below(64));
        start..start + most
    }
}

/// Changes `input` in one to eight places; `other` is what pieces are taken from.
pub(crate) fn mutate(dice: &mut Dice, input: &mut Vec<u8>, other: &[u8], bytes_max: usize) {
    for _ in 0..=dice.below(8) {
        match dice.below(8) {
            0 if !input.is_empty() => {
                let at = dice.below(input.len());
                input[at] ^= 1 << dice.below(8);
            }
            1 if !input.is_empty() => {
                let at = dice.below(input.len());
                input[at] = dice.byte();
            }
            2 => {
                let edge = EDGES[dice.below(EDGES.len())].to_le_bytes();
                let width = 1 << dice.below(4);
                let at = dice.below(input.len() + 1);
                for (place, byte) in input.iter_mut().skip(at).zip(&edge[..width]) {
                    *place = *byte;
                }
            }
            3 => {
                let piece = dice.piece(input);
                input.drain(piece);
            }
            4 => {
                let (piece, at) = (dice.piece(other), dice.below(input.len() + 1));
                input.splice(at..at, other[piece].iter().copied());
            }
            5 => {
                // Many times the same: what a count of elements is believed for.
                let piece = dice.piece(input);
                let (copy, at) = (input[piece.clone()].to_vec(), piece.end);
                let times = dice.below(64);
                input.splice(at..at, copy.repeat(times));
            }
            6 => {
                let (at, byte) = (dice.below(input.len() + 1), dice.byte());
                input.insert(at, byte);
            }
            _ => input.truncate(dice.below(input.len() + 1)),
        }
    }
    input.truncate(bytes_max);
}
