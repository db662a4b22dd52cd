//! What makes a request a good one: `ttft < 500ms, tpot < 50ms, e2e < 5s`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::units::DurationNs;

/// What a limit can be about: the time to the first token, the mean time of the others, the longest
/// of these, and the response time.
const MEASURES: [&str; 4] = ["ttft", "tpot", "gap", "e2e"];

/// Limits of a request. It keeps its text, which the analysis reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Goodput(String);

/// A text that is no limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be limits of ttft, tpot, gap or e2e, each once and with its unit, such as \"ttft < 500ms, \
     e2e < 5s\""
)]
pub struct GoodputError;

impl FromStr for Goodput {
    type Err = GoodputError;

    fn from_str(text: &str) -> Result<Self, GoodputError> {
        let mut limits: Vec<(&str, &str)> = Vec::new();
        for part in text.split(',') {
            let (measure, limit) = part.split_once('<').ok_or(GoodputError)?;
            let limit = limit.strip_prefix('=').unwrap_or(limit).trim();
            let measure = measure.trim();
            // Without its unit a limit could be taken for one of another.
            let with_unit = limit.ends_with(|c: char| c.is_ascii_alphabetic());
            let time = limit.parse::<DurationNs>().map_err(|_| GoodputError)?;
            let again = limits.iter().any(|(known, _)| *known == measure);
            if !MEASURES.contains(&measure) || !with_unit || time.0 == 0 || again {
                return Err(GoodputError);
            }
            limits.push((measure, limit));
        }
        let each = limits
            .iter()
            .map(|(measure, limit)| format!("{measure} < {limit}"));
        Ok(Self(each.collect::<Vec<_>>().join(", ")))
    }
}

impl fmt::Display for Goodput {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_kept_as_they_were_written_and_what_is_none_is_refused() {
        for (text, kept) in [
            ("ttft < 500ms", "ttft < 500ms"),
            (" ttft<=0.5s,tpot < 50ms ", "ttft < 0.5s, tpot < 50ms"),
            ("gap < 1s, e2e < 5s", "gap < 1s, e2e < 5s"),
        ] {
            assert_eq!(text.parse::<Goodput>().unwrap().to_string(), kept);
        }
        for text in [
            "",
            "ttft",
            "ttft < 500",
            "ttft < 0ms",
            "ttft > 5ms",
            "p99 < 5ms",
            "ttft < 5ms, ttft < 6ms",
            "ttft < 5ms,",
            "ttft:500",
        ] {
            assert_eq!(text.parse::<Goodput>(), Err(GoodputError), "{text}");
        }
    }
}
