//! When a run knows enough: `p99 within 10%`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A run ends when this percentile of each operation is known so well.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Until {
    /// In hundredths: 99.9.
    pub percentile: f64,
    /// Both bounds of its interval are within this share of it: 0.1.
    pub within: f64,
}

impl FromStr for Until {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (percentile, within) = text.split_once(" within ").ok_or(())?;
        let number = |text: &str| text.trim().parse::<f64>().map_err(|_| ());
        let until = Self {
            percentile: number(percentile.trim().strip_prefix('p').ok_or(())?)?,
            within: number(within.trim().strip_suffix('%').ok_or(())?)? / 100.0,
        };
        let good =
            (1.0..100.0).contains(&until.percentile) && (0.001..=1.0).contains(&until.within);
        good.then_some(until).ok_or(())
    }
}

impl fmt::Display for Until {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Hundredths that came from a text go back to the same one.
        let percent = (self.within * 100.0 * 1e9).round() / 1e9;
        write!(out, "p{} within {percent}%", self.percentile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_no_aim_is_not() {
        for text in ["p99 within 10%", "p99.99 within 2.5%", "p50 within 100%"] {
            assert_eq!(text.parse::<Until>().unwrap().to_string(), text);
        }
        for text in [
            "p99",
            "99 within 10%",
            "p100 within 10%",
            "p99 within 10",
            "p99 within 0%",
            "",
        ] {
            assert_eq!(text.parse::<Until>(), Err(()), "{text}");
        }
    }
}
