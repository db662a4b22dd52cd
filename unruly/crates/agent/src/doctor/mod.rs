//! `unruly doctor` checks whether this host is fit for measurements.
//!
//! If a host stalls, loses CPU time to its hypervisor or has a bad clock, a number measured there
//! describes the host rather than the target. The doctor therefore checks the host before a
//! measurement. It busy-polls the clock to measure the host's noise, tries the operations that the
//! drivers need, and reads the kernel's settings. For each problem it reports what the problem
//! means and what to do.
//!
//! Gathering and judging are separate. `evidence` gathers facts from files below a root and from
//! trials. `checks` turns the facts into diagnoses without touching the host, so each part can be
//! tested. `unruly/docs/doctor.md` explains the codes.

mod checks;
mod evidence;
mod facts;
mod render;
mod spin;
mod stamps;
mod trials;

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

pub use facts::{HostFacts, host_facts};
pub use render::render;
pub use spin::{Gaps, NoiseFloor, spin};

/// Whether the kernel stamps received messages here. Sends warm-ups until a stamp arrives, which
/// also makes the kernel begin: the first stamps come some time after they were asked for.
#[must_use]
pub fn kernel_stamps_work() -> bool {
    stamps::try_udp() == trials::Trial::Works
}

/// How much a diagnosis matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// What is measured here cannot be trusted.
    Spoils,
    /// Something will look worse, or not be seen.
    Warns,
    /// Good to know when reading the numbers.
    Informs,
}

/// One thing about this host that a measurement should know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// Stable name, explained in `unruly/docs/doctor.md`.
    pub code: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What was seen, with the value.
    pub what: String,
    /// What that does to a measurement.
    pub means: String,
    /// What to do, where something can be done.
    pub hint: Option<String>,
}

/// What to examine, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// How long to listen for noise. At least a second, to have a hundred windows.
    pub spin: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            spin: Duration::from_secs(3),
        }
    }
}

/// What the doctor found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Examination {
    /// The host.
    pub host: HostFacts,
    /// Its noise.
    pub noise: NoiseFloor,
    /// What is not right, the worst first.
    pub diagnoses: Vec<Diagnosis>,
}

impl Examination {
    /// Whether nothing spoils a measurement here.
    #[must_use]
    pub fn is_fit(&self) -> bool {
        self.diagnoses
            .iter()
            .all(|diagnosis| diagnosis.severity != Severity::Spoils)
    }
}

impl NoiseFloor {
    /// Returns what a person should read before a run on this host; none where it is quiet enough.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        checks::warning(self)
    }
}

/// Examines this host from the current folder. Calls `progress` with the completed share, from 0 to
/// 1.
pub fn examine(options: &Options, progress: &mut dyn FnMut(f64)) -> Examination {
    let evidence = evidence::gather(Path::new("/"), options.spin, progress);
    Examination {
        diagnoses: checks::diagnose(&evidence),
        host: evidence.host,
        noise: evidence.noise,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_can_be_examined() {
        let mut told = Vec::new();
        let options = Options {
            spin: Duration::from_millis(50),
        };
        let examination = examine(&options, &mut |share| told.push(share));
        assert_eq!(told.last(), Some(&1.0));
        assert!(told.is_sorted() && told[0] >= 0.0);
        assert_eq!(
            examination.host.noise_floor_ns,
            Some(examination.noise.floor_ns)
        );
        assert!(
            serde_json::to_string(&examination)
                .unwrap()
                .contains("\"severity\"")
        );
        assert!(render(&examination).contains("noise floor"));
    }
}
