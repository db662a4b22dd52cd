//! The program, its host and its licences, as a run and a user see them.

use std::time::Duration;

use unruly_agent::doctor;
use unruly_trace::{DurationNs, Host, Tool};

/// The libraries in the programs, with their licences.
pub const NOTICES: &str = include_str!("../../../../THIRD-PARTY.txt");

/// Time for which the host's noise floor is measured before a run.
const NOISE: Duration = Duration::from_secs(1);

/// Returns the version and the commit of this program.
#[must_use]
pub fn tool() -> Tool {
    Tool {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: env!("UNRULY_COMMIT").to_owned(),
    }
}

/// Measures for a second how this host stops a process that asks for nothing.
#[must_use]
pub fn noise() -> doctor::NoiseFloor {
    doctor::spin(NOISE, &mut |_| {})
}

/// Returns the facts of this host.
#[must_use]
pub fn host_of(name: &str, noise_floor_ns: Option<DurationNs>) -> Host {
    let facts = doctor::host_facts();
    Host {
        name: name.to_owned(),
        cpu_model: facts.cpu_model,
        cores: facts.cores,
        kernel: facts.kernel,
        clock_source: facts.clock_source,
        virtualised: facts.virtualised,
        memory_bytes: facts.memory_bytes,
        steal_share: facts.steal_share,
        noise_floor_ns,
        clock: None,
    }
}
