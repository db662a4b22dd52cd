//! The names of levels.

use std::str::FromStr;

use flurry::Level;
use unruly_plan::DurationNs;

/// Which replies an operation waits for, as the command line says it.
#[derive(Debug, Clone, Copy)]
pub(super) struct LevelName(pub(super) Level);

impl FromStr for LevelName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let level = match text {
            "first" => Level::First,
            "quorum" => Level::Quorum,
            "all" => Level::All,
            "auto" => Level::Auto,
            "disk" => Level::Disk,
            _ => {
                let delay = text
                    .strip_prefix("hedge:")
                    .and_then(|it| it.parse::<DurationNs>().ok());
                let wrong = || {
                    format!(
                        "level is {text}; wanted first, quorum, all, hedge:TIME, auto or disk; hint: hedge:1ms"
                    )
                };
                Level::Hedge(flurry::DurationNs(delay.ok_or_else(wrong)?.0))
            }
        };
        Ok(Self(level))
    }
}

impl std::fmt::Display for LevelName {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Level::First => out.write_str("first"),
            Level::Quorum => out.write_str("quorum"),
            Level::All => out.write_str("all"),
            Level::Auto => out.write_str("auto"),
            Level::Disk => out.write_str("disk"),
            Level::Hedge(delay) => write!(out, "hedge:{}", DurationNs(delay.0)),
        }
    }
}
