//! What a run says of who measured it, and where.

use std::time::Duration;

use unruly_agent::doctor;
use unruly_trace::{Host, Tool};

/// How long the host is listened to before a run, for its noise floor.
const NOISE: Duration = Duration::from_secs(1);

/// This program.
pub(crate) fn tool() -> Tool {
    Tool {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: env!("UNRULY_COMMIT").to_owned(),
    }
}

/// How this host stops a process that asks for nothing; takes a second.
pub(crate) fn noise() -> doctor::NoiseFloor {
    doctor::spin(NOISE, &mut |_| {})
}

/// The facts of this host.
pub(crate) fn host_of(name: &str, noise_floor_ns: Option<i64>) -> Host {
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
    }
}
