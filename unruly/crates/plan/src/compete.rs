//! What competes with a load for the processors of its hosts.

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, DurationNs};

/// Work beside the load, on each host, at a share of its processors that is held.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compete {
    /// What it does.
    pub kind: CompeteKind,
    /// The share of each host's processors that it is to use: of those it is kept on, else of all.
    pub occupancy: f64,
    /// How long it is at work before the load begins.
    pub lead: DurationNs,
    /// Processes on each host that are busy and idle in turn.
    pub processes: u16,
    /// What is reachable in the heap whose elements come and go.
    pub live: Bytes,
}

/// What a competing load does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CompeteKind {
    /// Nothing: the other half of a comparison.
    None,
    /// Processes are busy and idle in turn.
    Cpu,
    /// A heap's elements come and go, so that a collector has work.
    Gc,
}

impl CompeteKind {
    /// All of them, in the order of the manual.
    pub const ALL: [Self; 3] = [Self::None, Self::Cpu, Self::Gc];

    /// The name in plans and rows.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Cpu => "cpu",
            Self::Gc => "gc",
        }
    }
}
