//! Decimal fractions with seventeen places, for sums without rounding errors.
//!
//! Redis adds such numbers as binary floating-point numbers of the machine it runs on. Replicas must
//! not depend on their machine, so these are whole numbers of 10^-17.

/// Places behind the point.
const PLACES: u32 = 17;

const ONE: u128 = 10_u128.pow(PLACES);

/// The longest text that is read, in bytes.
const TEXT_BYTES_MAX: usize = 256;

/// The largest exponent that is read, in either direction.
const EXPONENT_MAX: u64 = 1_000;

/// A decimal fraction with seventeen places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fixed(i128);

impl Fixed {
    /// Zero.
    pub const ZERO: Self = Self(0);

    /// Returns the number that a text has: a sign, digits, a point and an exponent, each but the
    /// digits as it likes. Digits behind the seventeenth place are rounded. `None` if the text is
    /// none or the number has more than 21 digits before the point.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let (is_negative, text) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            text => (false, text),
        };
        let end = text.iter().position(|it| matches!(it, b'e' | b'E'));
        let (mantissa, exponent) = match end {
            Some(end) => (&text[..end], exponent(&text[end + 1..])?),
            None => (text, 0),
        };
        let point = mantissa.iter().position(|it| *it == b'.');
        let (whole, fraction) = match point {
            Some(at) => (&mantissa[..at], &mantissa[at + 1..]),
            None => (mantissa, &[][..]),
        };
        let digits: Vec<u8> = [whole, fraction].concat();
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let shift = exponent - i64::try_from(fraction.len()).ok()? + i64::from(PLACES);
        let size = shifted(&digits, shift)?;
        Some(Self(if is_negative { -size } else { size }))
    }

    /// Returns the sum, or `None` if it has more than 21 digits before the point.
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }
}

impl std::fmt::Display for Fixed {
    /// Writes the number without zeros at its end.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let size = self.0.unsigned_abs();
        let (whole, fraction) = (size / ONE, size % ONE);
        let sign = if self.0 < 0 { "-" } else { "" };
        write!(formatter, "{sign}{whole}")?;
        if fraction == 0 {
            return Ok(());
        }
        let places = format!("{fraction:017}");
        write!(formatter, ".{}", places.trim_end_matches('0'))
    }
}

/// Reads an exponent: a sign and digits.
fn exponent(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let exponent: i64 = text.parse().ok()?;
    (exponent.unsigned_abs() <= EXPONENT_MAX).then_some(exponent)
}

/// Returns digits times a power of ten as a whole number, rounded half away from zero.
fn shifted(digits: &[u8], shift: i64) -> Option<i128> {
    let number = |digits: &[u8]| {
        let add = |sum: i128, digit: &u8| {
            let digit = i128::from(digit - b'0');
            sum.checked_mul(10)?.checked_add(digit)
        };
        digits.iter().try_fold(0, add)
    };
    let Ok(zeros) = usize::try_from(shift) else {
        let dropped = usize::try_from(-shift).ok()?;
        let Some(kept) = digits.len().checked_sub(dropped) else {
            return Some(0);
        };
        let rounds_up = digits[kept] >= b'5';
        return number(&digits[..kept])?.checked_add(i128::from(rounds_up));
    };
    let size = number(digits)?;
    if size == 0 {
        return Some(0);
    }
    10_i128
        .checked_pow(u32::try_from(zeros).ok()?)?
        .checked_mul(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<String> {
        Fixed::parse(text.as_bytes()).map(|it| it.to_string())
    }

    #[test]
    fn a_number_is_written_without_useless_digits() {
        for (text, written) in [
            ("10.50", "10.5"),
            ("3", "3"),
            ("-0", "0"),
            ("-0.25", "-0.25"),
            ("+1.", "1"),
            (".5", "0.5"),
            ("5.0e3", "5000"),
            ("200e-4", "0.02"),
            ("0e999", "0"),
            ("1e-17", "0.00000000000000001"),
            ("0.000000000000000005", "0.00000000000000001"),
            ("0.000000000000000004", "0"),
            ("-1e-18", "0"),
            ("1e-900", "0"),
            ("1e21", "1000000000000000000000"),
            ("00012", "12"),
        ] {
            assert_eq!(read(text).as_deref(), Some(written), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_or_too_large_is_none() {
        let long = "1".repeat(300);
        for text in [
            "",
            "-",
            ".",
            "e5",
            "1e",
            "1e1.5",
            "1 ",
            " 1",
            "0x10",
            "nan",
            "inf",
            "1,5",
            "1..2",
            "--1",
            "1e2000",
            "1e-9223372036854775808",
            "2e21",
            &long,
        ] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }

    #[test]
    fn tenths_add_up_without_an_error() {
        let tenth = Fixed::parse(b"0.1").unwrap();
        let sum = (0..30).try_fold(Fixed::ZERO, |sum, _| sum.checked_add(tenth));
        assert_eq!(sum.unwrap().to_string(), "3");
        let most = Fixed::parse(b"1.7e21").unwrap();
        assert_eq!(most.checked_add(most), None);
    }
}
