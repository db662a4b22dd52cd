//! What is done to a process during measurement, and when.

use serde::{Deserialize, Serialize};

use crate::units::DurationNs;

/// Something done to a process during measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// What is done.
    pub kind: FaultKind,
    /// To which process: `agent-3`, `echo-0`, `redis-1`. Where cells differ in their store, several:
    /// it is the first of them that the cell has.
    pub processes: Vec<String>,
    /// When, from the start of measurement.
    pub at: DurationNs,
    /// For how long. A kill without one is for good; with one, the process is started again after it.
    pub duration: Option<DurationNs>,
    /// From one time to the next; without it, it is done once.
    pub every: Option<DurationNs>,
}

/// What a fault does.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FaultKind {
    /// SIGSTOP, and SIGCONT after the duration.
    Stop,
    /// SIGKILL, and where it has a duration a new start after it.
    Kill,
    /// Threads beside the process which do nothing but use a CPU.
    Busy {
        /// Their CPU; anywhere when absent.
        cpu: Option<u16>,
        /// How many.
        threads: u16,
    },
    /// The kernel gives the process no more CPU time than this.
    Quota {
        /// Cores: 0.2 is a fifth of one.
        cores: f64,
    },
    /// What goes to the process and comes from it is late, or lost.
    Network(Network),
    /// What the process wants to be safe on disk is not, until it is over.
    Disk,
}

/// The effect of a relay on the messages that it forwards.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// Added to each direction.
    pub delay: DurationNs,
    /// Upper limit of a further random delay, drawn for each message.
    pub jitter: DurationNs,
    /// The share of messages that is lost.
    pub loss: f64,
}

impl FaultKind {
    /// The words in plans and events.
    pub const NAMES: [&str; 6] = ["stop", "kill", "busy", "quota", "network", "disk"];

    /// The name in plans and rows.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Kill => "kill",
            Self::Busy { .. } => "busy",
            Self::Quota { .. } => "quota",
            Self::Network(_) => "network",
            Self::Disk => "disk",
        }
    }
}

impl Fault {
    /// When it begins and ends within a measurement of this length, each time, from its start. What
    /// is for good has no end.
    pub fn times(
        &self,
        measured: DurationNs,
    ) -> impl Iterator<Item = (DurationNs, Option<DurationNs>)> {
        let length = self.duration.map(|it| it.0);
        let every = self.every.map_or(u64::MAX, |it| it.0);
        let begins = std::iter::successors(Some(self.at.0), move |at| at.checked_add(every));
        begins
            .take_while(move |at| at.saturating_add(length.unwrap_or(1)) <= measured.0)
            .map(move |at| (DurationNs(at), length.map(|it| DurationNs(at + it))))
    }

    /// Whether it is for this process, of all those that a cell has.
    #[must_use]
    pub fn is_for<'a>(&self, process: &str, all: impl IntoIterator<Item = &'a str>) -> bool {
        self.victim(all) == Some(process)
    }

    /// The process that it is for, of all those that a cell has.
    #[must_use]
    pub fn victim<'a>(&self, all: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
        let all: Vec<&str> = all.into_iter().collect();
        let mut named = self.processes.iter();
        named.find_map(|name| all.iter().copied().find(|it| it == name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(at: u64, duration: Option<u64>, every: Option<u64>) -> Fault {
        Fault {
            kind: FaultKind::Stop,
            processes: vec!["redis-1".to_owned(), "flurry-1".to_owned()],
            at: DurationNs(at),
            duration: duration.map(DurationNs),
            every: every.map(DurationNs),
        }
    }

    fn times(fault: &Fault, measured: u64) -> Vec<(u64, Option<u64>)> {
        let times = fault.times(DurationNs(measured));
        times.map(|(at, end)| (at.0, end.map(|it| it.0))).collect()
    }

    #[test]
    fn a_periodic_fault_comes_as_often_as_it_ends_within_measurement() {
        let often = times(&fault(10, Some(5), Some(20)), 55);
        assert_eq!(often, [(10, Some(15)), (30, Some(35)), (50, Some(55))]);
        assert_eq!(times(&fault(10, Some(5), Some(20)), 54).len(), 2);
    }

    #[test]
    fn one_without_a_period_comes_once_and_one_for_good_has_no_end() {
        assert_eq!(times(&fault(10, None, None), 55), [(10, None)]);
    }

    #[test]
    fn of_several_processes_it_is_for_the_first_that_a_cell_has() {
        let fault = fault(0, None, None);
        assert_eq!(fault.victim(["flurry-1", "flurry-2"]), Some("flurry-1"));
        assert_eq!(fault.victim(["etcd-1"]), None);
        assert!(fault.is_for("redis-1", ["flurry-1", "redis-1"]));
    }
}
