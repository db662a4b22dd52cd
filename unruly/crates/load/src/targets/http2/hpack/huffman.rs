//! The Huffman code of HPACK (RFC 7541, appendix B), decoded eight bits at a time.
//!
//! The code is canonical: codes of one length follow each other in the order of their symbols, and
//! longer codes follow shorter ones. So the lengths alone say the whole code.

use std::sync::LazyLock;

const LENGTH_MAX: usize = 30;

/// The length of the code of each symbol, in bits. The last one ends the code: no text contains it.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11,
    10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8,
    15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5,
    6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23,
    23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21,
    23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25,
    26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26,
    28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

/// What the code is, in the form that decoding needs.
struct Code {
    /// Symbols in the order of their codes.
    symbols: Vec<u16>,
    /// For each length: the first code, the codes of at most that length (both at the left of 32
    /// bits), and how many symbols have shorter codes.
    lengths: [Length; LENGTH_MAX + 1],
    /// The symbol and the length of each code that eight bits hold; a length of 0 where they do not.
    short: [(u8, u8); 256],
}

#[derive(Clone, Copy, Default)]
struct Length {
    first: u64,
    end: u64,
    shorter: usize,
}

static CODE: LazyLock<Code> = LazyLock::new(|| {
    let mut symbols: Vec<u16> = (0..=256).collect();
    symbols.sort_by_key(|it| (LENGTHS[usize::from(*it)], *it));
    let mut lengths = [Length::default(); LENGTH_MAX + 1];
    let mut short = [(0, 0); 256];
    let (mut next, mut shorter) = (0_u64, 0);
    for (bits, length) in (0_u8..).zip(&mut lengths).skip(1) {
        let own = symbols[shorter..]
            .iter()
            .take_while(|it| LENGTHS[usize::from(**it)] == bits);
        let step = 1_u64 << (32 - bits);
        *length = Length {
            first: next,
            end: next,
            shorter,
        };
        for symbol in own {
            if let (true, Ok(symbol)) = (bits <= 8, u8::try_from(*symbol)) {
                let (from, to) = (next >> 24, (next + step) >> 24);
                for place in from..to {
                    short[usize::try_from(place).unwrap_or(0)] = (symbol, bits);
                }
            }
            next += step;
            length.end = next;
        }
        shorter = symbols
            .len()
            .min(shorter + usize::try_from((next - length.first) / step).unwrap_or(0));
    }
    Code {
        symbols,
        lengths,
        short,
    }
});

/// Appends the text of a code. Returns false if it is none.
pub(super) fn decode(input: &[u8], out: &mut Vec<u8>) -> bool {
    let code = &*CODE;
    let (mut bits, mut count) = (0_u64, 0_u32);
    let mut rest = input.iter();
    loop {
        while count <= 56
            && let Some(byte) = rest.next()
        {
            bits = bits << 8 | u64::from(*byte);
            count += 8;
        }
        // At the end the missing bits count as ones, as the padding has them.
        let window = if count >= 32 {
            bits >> (count - 32) & 0xffff_ffff
        } else {
            let missing = 32 - count;
            (bits << missing | ((1 << missing) - 1)) & 0xffff_ffff
        };
        let (symbol, length) = code.short[usize::try_from(window >> 24).unwrap_or(0)];
        let (symbol, length) = if length > 0 {
            (symbol, u32::from(length))
        } else {
            let Some((symbol, length)) = code.long(window) else {
                return false;
            };
            match u8::try_from(symbol) {
                Ok(symbol) if length <= count => (symbol, length),
                // Padding is the beginning of the code that ends, of less than a byte.
                _ => return count < 8 && is_ones(bits, count),
            }
        };
        if length > count {
            return count < 8 && is_ones(bits, count);
        }
        out.push(symbol);
        count -= length;
        bits &= (1 << count) - 1;
    }
}

fn is_ones(bits: u64, count: u32) -> bool {
    bits == (1 << count) - 1
}

impl Code {
    /// The symbol whose code begins 32 bits, and the length of the code.
    fn long(&self, window: u64) -> Option<(u16, u32)> {
        let (bits, length) = (0_u32..)
            .zip(&self.lengths)
            .skip(9)
            .find(|(_, it)| window < it.end)?;
        let place = usize::try_from((window - length.first) >> (32 - bits)).ok()?;
        let symbol = *self.symbols.get(length.shorter + place)?;
        Some((symbol, bits))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The code of a text.
    pub(in super::super) fn encode(text: &[u8]) -> Vec<u8> {
        let code = &*CODE;
        let (mut out, mut bits, mut count) = (Vec::new(), 0_u64, 0_u32);
        for byte in text {
            let length = u32::from(LENGTHS[usize::from(*byte)]);
            let own = code.lengths[length as usize];
            let ordinal = code.symbols[own.shorter..]
                .iter()
                .position(|it| *it == u16::from(*byte))
                .expect("a symbol");
            let value = (own.first >> (32 - length)) + ordinal as u64;
            bits = bits << length | value;
            count += length;
            while count >= 8 {
                out.push((bits >> (count - 8)).to_le_bytes()[0]);
                count -= 8;
            }
            bits &= (1 << count) - 1;
        }
        if count > 0 {
            let missing = 8 - count;
            out.push((bits << missing | ((1 << missing) - 1)).to_le_bytes()[0]);
        }
        out
    }

    fn decoded(input: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        decode(input, &mut out).then_some(out)
    }

    #[test]
    fn the_examples_of_the_standard_are_decoded() {
        for (code, text) in [
            (
                &[
                    0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff,
                ][..],
                "www.example.com",
            ),
            (&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf], "no-cache"),
            (
                &[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xa9, 0x7d, 0x7f],
                "custom-key",
            ),
            (&[0x64, 0x02], "302"),
            (&[0x64, 0x0e, 0xff], "307"),
            (&[], ""),
        ] {
            assert_eq!(decoded(code).as_deref(), Some(text.as_bytes()));
        }
    }

    #[test]
    fn what_is_no_code_is_refused() {
        // A byte of padding, padding that is not of ones, and the symbol that ends the code.
        for wrong in [&[0xff][..], &[0x64, 0x02, 0xff], &[0x00], &[0xff; 4]] {
            assert_eq!(decoded(wrong), None, "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn every_text_is_decoded_from_its_code(text in prop::collection::vec(any::<u8>(), 0..60)) {
            prop_assert_eq!(decoded(&encode(&text)), Some(text));
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(input in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Some(text) = decoded(&input) {
                // A code of a text is the only one.
                prop_assert_eq!(encode(&text), input);
            }
        }
    }
}
