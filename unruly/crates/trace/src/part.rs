//! The parts of a run that was stopped and resumed, and the trials in them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use unruly_time::{ClockPair, ColumnNs};

use crate::manifest::{Host, RunStatus, Tool};

/// What one runner measured of a run, from its start to its end. A run that was never resumed has
/// one part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Wall clock when its runner started.
    pub started_ns: ColumnNs,
    /// Wall clock when its runner stopped; if the runner died, the last time that is known of it,
    /// or null.
    pub ended_ns: Option<ColumnNs>,
    /// How it ended.
    pub status: RunStatus,
    /// What measured.
    pub tool: Tool,
    /// The kernel's number of this boot. The monotonic clock is comparable within a boot only.
    pub boot: Option<String>,
    /// Both clocks at the start: their difference leads from this boot's monotonic clock to columns.
    pub clock: ClockPair,
    /// A hash of the machine's number.
    pub machine: Option<String>,
    /// Facts of the host.
    pub host: Host,
    /// SHA-256 of each service file of the plan, by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub services: BTreeMap<String, String>,
    /// Differences from the part before it that a person accepted, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// Trials of earlier parts that this part removed and measured again, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub discarded: Vec<String>,
}

/// One trial: a repeat of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// The cell's name.
    pub cell: String,
    /// The repeat.
    pub repeat: u16,
    /// The number of its part, from 0.
    pub part: usize,
    /// Wall clock of the first instant of its schedule.
    pub started_ns: ColumnNs,
    /// Wall clock when all its processes had ended; null if the runner died before.
    pub ended_ns: Option<ColumnNs>,
    /// How it ended: `complete`, `stopped`, `incomplete`, or `running` if the runner died.
    pub status: RunStatus,
    /// What is known to be absent from it, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// What broke it, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<String>,
}

impl TrialRecord {
    /// Returns true if nothing of the trial has to be measured again.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.status == RunStatus::Complete
    }
}
