//! Actions of faults on a process of another host: lines between those of the process.

use anyhow::{Context as _, Result};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use unruly_plan::DurationNs;

use crate::process::Process;
use crate::quota::Quota;

/// How the line of an action begins.
const WORD: &str = "do ";

/// A change of the process that the host makes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Action {
    /// A signal.
    Signal(Signal),
    /// No more than these cores in each period; none takes the limit off.
    Limit(Option<f64>, DurationNs),
}

/// An action as it is written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Written {
    Signal(String),
    Limit {
        cores: Option<f64>,
        period: DurationNs,
    },
}

impl Action {
    /// Returns the line for the host.
    pub(crate) fn to_line(self) -> String {
        let written = match self {
            Self::Signal(signal) => Written::Signal(signal.as_str().to_owned()),
            Self::Limit(cores, period) => Written::Limit { cores, period },
        };
        // Two words and numbers always have a form in JSON.
        let json = serde_json::to_string(&written).unwrap_or_default();
        format!("{WORD}{json}")
    }

    /// Reads a line; `None` for one of another kind.
    pub(super) fn read(line: &str) -> Option<Result<Self>> {
        let json = line.strip_prefix(WORD)?;
        Some(Self::parse(json).with_context(|| {
            format!(
                "{line:?} is no action of this version; hint: use the same unruly on every host"
            )
        }))
    }

    fn parse(json: &str) -> Result<Self> {
        Ok(match serde_json::from_str(json)? {
            Written::Signal(name) => Self::Signal(name.parse()?),
            Written::Limit { cores, period } => Self::Limit(cores, period),
        })
    }

    /// Carries the action out. The limit of a process stays in `quota` until that is dropped.
    pub(super) fn carry_out(self, process: &Process, quota: &mut Option<Quota>) -> Result<()> {
        match self {
            Self::Signal(signal) => process.signal(signal),
            Self::Limit(cores, period) => {
                let held = match quota.take() {
                    Some(held) => held,
                    None => Quota::hold(&[process.pid()])?,
                };
                quota.insert(held).limit(cores, period)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_arrives_as_it_was_and_other_lines_are_none() {
        for action in [
            Action::Signal(Signal::SIGSTOP),
            Action::Limit(Some(0.012), DurationNs(100_000_000)),
            Action::Limit(None, DurationNs(100_000_000)),
        ] {
            assert_eq!(Action::read(&action.to_line()).unwrap().unwrap(), action);
        }
        assert!(Action::read("start 12").is_none());
        assert!(Action::read("do nothing").unwrap().is_err());
    }
}
