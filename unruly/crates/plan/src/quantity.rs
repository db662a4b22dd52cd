//! Numbers with units, as people read them.
//!
//! `unruly doctor` and the progress of a run show numbers before the analysis exists. They look like
//! those of the report: three significant digits, no trailing zeros, and the unit in which the number
//! lies between 1 and 1,000. The Python module `quantity` writes all others; the table
//! `unruly/schema/golden/quantities.tsv` holds both to the same texts.

const DIGITS: usize = 3;
const DASH: &str = "–";
/// 999.6 us is read as 1 ms: the unit is chosen after rounding to three digits.
const ROUNDED_UP: f64 = 0.9995;
const DURATIONS: [(f64, &str); 4] = [(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")];
const LONG: [(f64, &str); 3] = [(86_400e9, "d"), (3_600e9, "h"), (60e9, "min")];
const SIZES: [(f64, &str); 5] = [
    (1e12, "TB"),
    (1e9, "GB"),
    (1e6, "MB"),
    (1e3, "kB"),
    (1.0, "B"),
];
/// Memory comes in powers of two, and limits of it are round numbers of these.
const MEMORY: [(f64, &str); 4] = [
    (1_073_741_824.0, "GiB"),
    (1_048_576.0, "MiB"),
    (1_024.0, "KiB"),
    (1.0, "B"),
];
const TINY: f64 = 1e-5;

/// Returns a length of time, given in nanoseconds; an en dash if it is not finite. From two minutes on
/// it is in minutes, hours or days.
#[must_use]
pub fn duration(ns: f64) -> String {
    if !ns.is_finite() {
        return DASH.to_owned();
    }
    let long = LONG.into_iter().find(|(scale, _)| ns.abs() >= 2.0 * scale);
    let (scale, unit) = match long {
        Some(found) => found,
        None if ns == 0.0 => DURATIONS[0],
        None => unit_of(ns, &DURATIONS),
    };
    format!("{} {unit}", significant(ns / scale, DIGITS))
}

/// Returns an amount of data, given in bytes; an en dash if it is not finite.
#[must_use]
pub fn size(bytes: f64) -> String {
    if !bytes.is_finite() {
        return DASH.to_owned();
    }
    let (scale, unit) = unit_of(bytes, &SIZES);
    let number = significant(bytes / scale, DIGITS).replace('-', "−");
    format!("{number} {unit}")
}

/// Returns an amount of memory, given in bytes.
#[must_use]
pub fn memory(bytes: u64) -> String {
    let bytes = bytes as f64;
    let (scale, unit) = unit_of(bytes, &MEMORY);
    format!("{} {unit}", significant(bytes / scale, DIGITS))
}

/// Returns a share in per cent; an en dash if it is not finite. A share close to 1 keeps the nines that
/// distinguish it from 100 %.
#[must_use]
pub fn percent(share: f64) -> String {
    if !share.is_finite() {
        return DASH.to_owned();
    }
    if 0.0 < share && share < TINY {
        return "<0.001 %".to_owned();
    }
    if ROUNDED_UP - 5e-4 < share && share < 1.0 {
        let (_, exponent) = rounded(100.0 * (1.0 - share), 17);
        let places = usize::try_from(1 - exponent).unwrap_or(1).max(1);
        return format!(
            "{} %",
            without_zeros(&format!("{:.places$}", 100.0 * share))
        );
    }
    format!("{} %", significant(100.0 * share, DIGITS))
}

/// Returns how often something happens in a second; an en dash if it is not finite.
#[must_use]
pub fn rate(hz: f64) -> String {
    if !hz.is_finite() {
        return DASH.to_owned();
    }
    format!("{}/s", significant(hz, DIGITS))
}

/// Returns the number rounded to `digits` significant digits, its thousands apart.
fn significant(value: f64, digits: usize) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let (number, exponent) = rounded(value, digits);
    // A number with that many digits before the point has no decimals.
    let last = i32::try_from(digits - 1).unwrap_or(i32::MAX);
    let places = usize::try_from(last - exponent).unwrap_or(0);
    let text = format!("{number:.places$}");
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let part = part.trim_end_matches('0');
    let point = if part.is_empty() { "" } else { "." };
    format!("{}{point}{part}", with_thousands(whole))
}

/// Returns the number rounded to `digits` significant digits, and its power of ten.
fn rounded(value: f64, digits: usize) -> (f64, i32) {
    let text = format!("{value:.*e}", digits - 1);
    let exponent = text.split_once('e').and_then(|(_, it)| it.parse().ok());
    (text.parse().unwrap_or(value), exponent.unwrap_or(0))
}

fn with_thousands(whole: &str) -> String {
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |it| ("-", it));
    let mut text = sign.to_owned();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn without_zeros(text: &str) -> &str {
    text.trim_end_matches('0').trim_end_matches('.')
}

/// Returns the largest unit of which there is at least one, or the smallest unit.
fn unit_of(value: f64, units: &[(f64, &'static str)]) -> (f64, &'static str) {
    let fits = |it: &&(f64, &'static str)| value.abs() >= it.0 * ROUNDED_UP;
    let found = units.iter().find(fits).or_else(|| units.last());
    *found.expect("there is a unit")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_look_as_those_of_the_analysis() {
        let table = include_str!("../../../schema/golden/quantities.tsv");
        let mut seen = 0;
        for row in table.lines() {
            let cells: Vec<&str> = row.split('\t').collect();
            let [kind, value, text] = cells[..] else {
                panic!("{row:?} has three cells");
            };
            let value: f64 = value.parse().unwrap();
            let written = match kind {
                "duration" => duration(value),
                "size" => size(value),
                "percent" => percent(value),
                "rate" => rate(value),
                _ => panic!("{kind} is no kind of quantity"),
            };
            assert_eq!(written, text, "{row}");
            seen += 1;
        }
        assert!(seen > 30);
    }

    #[test]
    fn memory_is_shown_in_powers_of_two() {
        assert_eq!(memory(0), "0 B");
        assert_eq!(memory(8 << 20), "8 MiB");
        assert_eq!(memory(25_000_000_000), "23.3 GiB");
    }
}
