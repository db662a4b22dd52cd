//! Quantities that are written with their unit.
//!
//! Text is read with integer arithmetic, so `"0.1s"` is exactly 100,000,000 ns; a quantity is
//! printed as the shortest whole number with a unit that reads back as the same value.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A length of time in nanoseconds; written `"250us"`, `"60s"`, `"1.5h"`; a bare number is seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DurationNs(pub u64);

/// A number of bytes; written `"4B"`, `"50KB"` (50,000), `"64KiB"` (65,536).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Bytes(pub u64);

/// A number of bits a second; written `"1Gbit/s"`, `"100Mbit/s"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BitRate(pub u64);

/// A rate in events a second; written `"1000/s"`, `"20k/s"`, `"60/min"`; a bare number is per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RateHz(pub f64);

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UnitError {
    /// Not a number followed by one of the units.
    #[error("must be {quantity} ({units})")]
    Form {
        /// What it should be: a duration, a rate.
        quantity: &'static str,
        /// The units there are.
        units: &'static str,
    },
    /// Below 0.
    #[error("must not be negative")]
    Negative,
    /// Not a whole number of the smallest unit.
    #[error("must be a whole number of {unit}")]
    Inexact {
        /// The smallest unit.
        unit: &'static str,
    },
    /// More than can be counted.
    #[error("must fit 64 bits of {unit}")]
    Overflow {
        /// The smallest unit.
        unit: &'static str,
    },
}

/// How one kind of quantity is written.
struct Scale {
    quantity: &'static str,
    units: &'static [(&'static str, u64)],
    names: &'static str,
    /// The unit of 0.
    zero: &'static str,
    /// The unit of a number without one.
    bare: Option<&'static str>,
}

/// Units from large to small, as Display prefers among forms equally short.
const TIME: Scale = Scale {
    quantity: "a duration",
    units: &[
        ("d", 86_400_000_000_000),
        ("h", 3_600_000_000_000),
        ("min", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
        ("ns", 1),
    ],
    names: "ns, us, ms, s, min, h, d",
    zero: "s",
    bare: Some("s"),
};

const SIZE: Scale = Scale {
    quantity: "a size",
    units: &[
        ("GiB", 1 << 30),
        ("GB", 1_000_000_000),
        ("MiB", 1 << 20),
        ("MB", 1_000_000),
        ("KiB", 1 << 10),
        ("KB", 1_000),
        ("B", 1),
    ],
    names: "B, KB, MB, GB, KiB, MiB, GiB",
    zero: "B",
    bare: None,
};

const BITS: Scale = Scale {
    quantity: "a bit rate",
    units: &[
        ("Gbit/s", 1_000_000_000),
        ("Mbit/s", 1_000_000),
        ("kbit/s", 1_000),
        ("bit/s", 1),
    ],
    names: "bit/s, kbit/s, Mbit/s, Gbit/s",
    zero: "bit/s",
    bare: None,
};

/// Multiplier and divisor of a rate's unit; a rate is printed in the first of the shortest.
const RATE: &[(&str, f64, f64)] = &[
    ("/s", 1.0, 1.0),
    ("k/s", 1e3, 1.0),
    ("M/s", 1e6, 1.0),
    ("/min", 1.0, 60.0),
];

impl Scale {
    fn parse(&self, text: &str) -> Result<u64, UnitError> {
        let form = UnitError::Form {
            quantity: self.quantity,
            units: self.names,
        };
        let smallest = self.units[self.units.len() - 1].0;
        let (number, unit) = split_number(text);
        let unit = match (unit.trim(), self.bare) {
            ("", Some(bare)) => bare,
            (unit, _) => unit,
        };
        let Some(&(_, factor)) = self.units.iter().find(|(name, _)| *name == unit) else {
            return Err(form);
        };
        let Some((whole, part)) = decimal(number.strip_prefix('-').unwrap_or(number)) else {
            return Err(form);
        };
        if number.starts_with('-') {
            return Err(UnitError::Negative);
        }
        let overflow = UnitError::Overflow { unit: smallest };
        let digits = format!("{whole}{part}");
        let places = u32::try_from(part.len()).map_err(|_| form)?;
        let (Ok(digits), Some(divisor)) = (digits.parse::<u128>(), 10_u128.checked_pow(places))
        else {
            return Err(overflow);
        };
        let Some(product) = digits.checked_mul(u128::from(factor)) else {
            return Err(overflow);
        };
        if !product.is_multiple_of(divisor) {
            return Err(UnitError::Inexact { unit: smallest });
        }
        u64::try_from(product / divisor).map_err(|_| overflow)
    }

    fn print(&self, value: u64) -> String {
        if value == 0 {
            return format!("0{}", self.zero);
        }
        let whole = self
            .units
            .iter()
            .filter(|(_, factor)| value.is_multiple_of(*factor));
        whole
            .map(|(name, factor)| format!("{}{name}", value / factor))
            .min_by_key(String::len)
            .expect("the smallest unit is 1, which divides everything")
    }
}

/// Splits a text behind its leading sign, digits and points.
fn split_number(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-'));
    text.split_at(end.unwrap_or(text.len()))
}

/// The digits before and after the point, when there are some before and (after a point) after.
fn decimal(number: &str) -> Option<(&str, &str)> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match number.split_once('.') {
        Some((whole, part)) => (digits(whole) && digits(part)).then_some((whole, part)),
        None => digits(number).then_some((number, "")),
    }
}

impl FromStr for DurationNs {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        TIME.parse(text).map(Self)
    }
}

impl FromStr for Bytes {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        SIZE.parse(text).map(Self)
    }
}

impl FromStr for BitRate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        BITS.parse(text).map(Self)
    }
}

impl FromStr for RateHz {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let form = UnitError::Form {
            quantity: "a rate",
            units: "/s, k/s, M/s, /min",
        };
        let (number, unit) = split_number(text);
        let unit = Some(unit.trim()).filter(|unit| !unit.is_empty());
        let unit = unit.unwrap_or("/s");
        let Some(&(_, times, per)) = RATE.iter().find(|(name, ..)| *name == unit) else {
            return Err(form);
        };
        let positive = number.strip_prefix('-').unwrap_or(number);
        if decimal(positive).is_none() {
            return Err(form);
        }
        if positive.len() < number.len() {
            return Err(UnitError::Negative);
        }
        let value: f64 = number.parse().map_err(|_| form)?;
        let rate = value * times / per;
        if rate.is_finite() {
            Ok(Self(rate))
        } else {
            Err(UnitError::Overflow { unit: "/s" })
        }
    }
}

impl fmt::Display for DurationNs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&TIME.print(self.0))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&SIZE.print(self.0))
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&BITS.print(self.0))
    }
}

impl fmt::Display for RateHz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = RATE.iter().filter_map(|(name, times, per)| {
            let text = format!("{}{name}", self.0 / times * per);
            let back: Self = text.parse().ok()?;
            (back.0.to_bits() == self.0.to_bits()).then_some(text)
        });
        // Only what no text can say (not a number, infinite, negative) has no exact form.
        let text = exact
            .min_by_key(String::len)
            .unwrap_or_else(|| format!("{}/s", self.0));
        f.pad(&text)
    }
}

/// The conversions serde goes by: these types are text in JSON too, so that no key needs a unit.
macro_rules! as_text {
    ($($name:ident),*) => {$(
        impl TryFrom<String> for $name {
            type Error = UnitError;

            fn try_from(text: String) -> Result<Self, UnitError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.to_string()
            }
        }
    )*};
}
as_text!(DurationNs, Bytes, BitRate, RateHz);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn time(text: &str) -> Result<u64, String> {
        text.parse::<DurationNs>()
            .map(|v| v.0)
            .map_err(|e| e.to_string())
    }

    fn size(text: &str) -> Result<u64, String> {
        text.parse::<Bytes>()
            .map(|v| v.0)
            .map_err(|e| e.to_string())
    }

    fn rate(text: &str) -> Result<f64, String> {
        text.parse::<RateHz>()
            .map(|v| v.0)
            .map_err(|e| e.to_string())
    }

    #[test]
    fn durations_are_read_with_their_unit() {
        assert_eq!(time("60s"), Ok(60_000_000_000));
        assert_eq!(time("100ms"), Ok(100_000_000));
        assert_eq!(time("250us"), Ok(250_000));
        assert_eq!(time("2h"), Ok(7_200_000_000_000));
        assert_eq!(time("1d"), Ok(86_400_000_000_000));
        assert_eq!(time("0.1s"), Ok(100_000_000));
        assert_eq!(time("5 min"), Ok(300_000_000_000));
    }

    #[test]
    fn sizes_tell_thousands_from_1024s() {
        assert_eq!(size("50KB"), Ok(50_000));
        assert_eq!(size("64KiB"), Ok(65_536));
        assert_eq!(size("4B"), Ok(4));
    }

    #[test]
    fn links_are_read_in_bits_a_second_and_written_as_they_were() {
        for (text, bits) in [
            ("1Gbit/s", 1_000_000_000),
            ("0.5Mbit/s", 500_000),
            ("8bit/s", 8),
        ] {
            assert_eq!(text.parse(), Ok(BitRate(bits)));
        }
        assert_eq!(BitRate(1_000_000_000).to_string(), "1Gbit/s");
        assert_eq!(BitRate(0).to_string(), "0bit/s");
        assert!("1Gb".parse::<BitRate>().is_err());
    }

    #[test]
    fn rates_are_read_in_events_a_second() {
        assert_eq!(rate("1000/s"), Ok(1_000.0));
        assert_eq!(rate("20k/s"), Ok(20_000.0));
        assert_eq!(rate("60/min"), Ok(1.0));
    }

    #[test]
    fn a_duration_without_a_unit_is_seconds_and_a_rate_is_per_second() {
        assert_eq!(time("60"), Ok(60_000_000_000));
        assert_eq!(time("0.25"), Ok(250_000_000));
        assert_eq!(rate("2000"), Ok(2_000.0));
        assert_eq!(
            size("60"),
            Err("must be a size (B, KB, MB, GB, KiB, MiB, GiB)".to_owned())
        );
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        let wanted = "must be a duration (ns, us, ms, s, min, h, d)";
        for text in [
            "", "s", "1m", "1e3s", "1.s", ".5s", "+1s", "1..2s", "--1s", "1-s", "1e3", "1.",
        ] {
            assert_eq!(time(text), Err(wanted.to_owned()), "{text}");
        }
        let wanted = "must be a rate (/s, k/s, M/s, /min)";
        for text in ["", "inf/s", "NaN/s", "1e3/s", "100/", "/s", "1s", "NaN"] {
            assert_eq!(rate(text), Err(wanted.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_counted_exactly_is_refused() {
        assert_eq!(time("-5s"), Err("must not be negative".to_owned()));
        assert_eq!(rate("-5/s"), Err("must not be negative".to_owned()));
        assert_eq!(
            time("0.5ns"),
            Err("must be a whole number of ns".to_owned())
        );
        assert_eq!(
            size("1.0001KB"),
            Err("must be a whole number of B".to_owned())
        );
        assert_eq!(time("300000d"), Err("must fit 64 bits of ns".to_owned()));
        assert_eq!(
            size(&format!("{}B", "9".repeat(60))),
            Err("must fit 64 bits of B".to_owned())
        );
        assert_eq!(
            rate(&format!("{}/s", "9".repeat(400))),
            Err("must fit 64 bits of /s".to_owned())
        );
    }

    #[test]
    fn quantities_are_printed_shortest() {
        assert_eq!(DurationNs(86_400_000_000_000).to_string(), "1d");
        assert_eq!(DurationNs(90_000_000_000).to_string(), "90s");
        assert_eq!(DurationNs(1_500_000_000).to_string(), "1500ms");
        assert_eq!(DurationNs(0).to_string(), "0s");
        assert_eq!(Bytes(65_536).to_string(), "64KiB");
        assert_eq!(Bytes(50_000).to_string(), "50KB");
        assert_eq!(Bytes(0).to_string(), "0B");
        assert_eq!(RateHz(20_000.0).to_string(), "20k/s");
        assert_eq!(RateHz(1.0 / 60.0).to_string(), "1/min");
        assert_eq!(RateHz(0.0).to_string(), "0/s");
    }

    #[test]
    fn json_holds_the_same_text() {
        let json = serde_json::to_string(&DurationNs(80_000_000)).unwrap();
        assert_eq!(json, "\"80ms\"");
        assert_eq!(
            serde_json::from_str::<DurationNs>(&json).unwrap(),
            DurationNs(80_000_000)
        );
        let error = serde_json::from_str::<Bytes>("\"9\"")
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("must be a size (B, KB"), "{error}");
    }

    proptest! {
        #[test]
        fn printed_quantities_read_back_the_same(
            value: u64, zeros in 0_u32..15, rate in prop::num::f64::POSITIVE | prop::num::f64::ZERO
        ) {
            let value = value / 10_u64.pow(zeros) * 10_u64.pow(zeros);
            prop_assert_eq!(time(&DurationNs(value).to_string()), Ok(value));
            prop_assert_eq!(size(&Bytes(value).to_string()), Ok(value));
            let back = RateHz::from_str(&RateHz(rate.abs()).to_string()).unwrap();
            prop_assert_eq!(back.0.to_bits(), rate.abs().to_bits());
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "[-0-9.a-zA-Z/ ]{0,30}") {
            let _ = (time(&text), size(&text), rate(&text));
        }
    }
}
