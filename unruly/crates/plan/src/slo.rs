//! A target that a run is held to: `p99 < 20ms`, `read p99.9 < 50ms`, `failed < 0.1%`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::units::DurationNs;

/// Statistics of a latency that a target can be about.
const LATENCIES: [&str; 8] = ["p50", "p90", "p95", "p99", "p99.9", "p99.99", "mean", "max"];

/// The statistic that is a share of the requests.
const FAILED: &str = "failed";

/// A service level objective. It keeps its text. The plan checks the text when it reads it, and the
/// analysis judges it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slo(String);

/// A text that is no target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a statistic and its limit, such as \"p99 < 20ms\" or \"failed < 0.1%\"")]
pub struct SloError;

impl FromStr for Slo {
    type Err = SloError;

    fn from_str(text: &str) -> Result<Self, SloError> {
        let (left, limit) = text.split_once('<').ok_or(SloError)?;
        let limit = limit.strip_prefix('=').unwrap_or(limit).trim();
        let mut words: Vec<&str> = left.split_whitespace().collect();
        let statistic = words.pop().ok_or(SloError)?;
        let op = words.pop();
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let is_word = |word: &str| word.chars().all(fits);
        if !words.is_empty() || !op.is_none_or(is_word) {
            return Err(SloError);
        }
        let good = if statistic == FAILED {
            let percent = limit.strip_suffix('%').map(str::trim);
            let percent = percent.and_then(|it| it.parse::<f64>().ok());
            percent.is_some_and(|it| (0.0..=100.0).contains(&it))
        } else {
            // Without its unit a limit could be taken for one of another.
            let with_unit = limit.ends_with(|c: char| c.is_ascii_alphabetic());
            let time = limit.parse::<DurationNs>();
            LATENCIES.contains(&statistic) && with_unit && time.is_ok_and(|time| time.0 > 0)
        };
        let op = op.map_or_else(String::new, |op| format!("{op} "));
        good.then(|| Self(format!("{op}{statistic} < {limit}")))
            .ok_or(SloError)
    }
}

impl fmt::Display for Slo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_kept_as_it_was_said_and_what_is_none_is_refused() {
        for (text, kept) in [
            ("p99 < 20ms", "p99 < 20ms"),
            (" p99.9<=5ms ", "p99.9 < 5ms"),
            ("read p99 < 1.5s", "read p99 < 1.5s"),
            ("mean < 300us", "mean < 300us"),
            ("failed < 0.1%", "failed < 0.1%"),
            ("log_in p99 < 1s", "log_in p99 < 1s"),
        ] {
            assert_eq!(text.parse::<Slo>().unwrap().to_string(), kept);
        }
        for text in [
            "",
            "p99",
            "p99 > 20ms",
            "p98 < 20ms",
            "p99 < 20",
            "p99 < 0ms",
            "p99 < 1%",
            "failed < 20ms",
            "failed < 101%",
            "a b p99 < 20ms",
            "\"a\" p99 < 20ms",
        ] {
            assert_eq!(text.parse::<Slo>(), Err(SloError), "{text}");
        }
    }
}
