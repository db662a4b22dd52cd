//! What the doctor looks at: files below a root, and trials on the host itself.

use std::path::Path;
use std::time::Duration;

use unruly_trace::DurationNs;

use crate::probe::{hexadecimal, words};

use super::facts::{self, HostFacts};
use super::spin::{self, NoiseFloor};
use super::stamps;
use super::trials::{self, Trial};

/// Who wanted the cores before the doctor began to use one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Load {
    /// Tasks running or waiting for a core, without the doctor.
    pub(super) running: u64,
    /// The kernel's mean over the last minute.
    pub(super) mean_1min: f64,
}

/// What the kernel allows this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Limits {
    pub(super) locked_bytes: Option<u64>,
    pub(super) open_files: Option<u64>,
    /// The capability that lifts the limit on locked memory.
    pub(super) may_lock_all: bool,
}

/// Everything that is judged.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Evidence {
    pub(super) host: HostFacts,
    pub(super) noise: NoiseFloor,
    /// Share of all cores' time that the hypervisor gave to others while we listened.
    pub(super) steal_share: Option<f64>,
    pub(super) load: Option<Load>,
    pub(super) shows_pressure: bool,
    /// How the cores' frequency is governed, each way once.
    pub(super) governors: Vec<String>,
    pub(super) limits: Limits,
    pub(super) udp_stamps: Trial,
    pub(super) tcp_stamps: Trial,
    pub(super) realtime: Trial,
    pub(super) sync_ns: Option<DurationNs>,
    pub(super) free_bytes: Option<u64>,
}

/// Looks at everything. The load comes first, as the doctor is a load itself.
pub(super) fn gather(root: &Path, spin: Duration, progress: &mut dyn FnMut(f64)) -> Evidence {
    let load = load(root);
    let mut host = facts::facts_below(root);
    let before = facts::stat_below(root).all;
    // The trials after it take about a tenth of the time that people spin.
    let noise = spin::spin(spin, &mut |share| progress(share * 0.9));
    let after = facts::stat_below(root).all;
    host.noise_floor_ns = Some(noise.floor_ns);
    let folder = Path::new(".");
    let evidence = Evidence {
        host,
        noise,
        steal_share: before
            .zip(after)
            .and_then(|(before, after)| after.steal_share_since(&before)),
        load,
        shows_pressure: shows_pressure(root),
        governors: governors(root),
        limits: limits(root),
        udp_stamps: stamps::try_udp(),
        tcp_stamps: stamps::try_tcp(),
        realtime: trials::try_realtime(),
        sync_ns: trials::sync_ns(folder).ok(),
        free_bytes: trials::free_bytes(folder),
    };
    progress(1.0);
    evidence
}

/// `0.20 0.27 0.12 2/88 4660`
pub(super) fn load(root: &Path) -> Option<Load> {
    let text = facts::read(root, "proc/loadavg");
    let mut words = text.split_whitespace();
    let mean_1min = words.next()?.parse().ok()?;
    let running: u64 = words.nth(2)?.split('/').next()?.parse().ok()?;
    Some(Load {
        running: running.saturating_sub(1),
        mean_1min,
    })
}

/// A kernel can have the files and yet refuse to read them.
pub(super) fn shows_pressure(root: &Path) -> bool {
    facts::read(root, "proc/pressure/cpu").starts_with("some ")
}

pub(super) fn governors(root: &Path) -> Vec<String> {
    let mut found: Vec<String> = (0..4096)
        .map_while(|core| {
            let path = format!("sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor");
            facts::word(root, &path)
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

pub(super) fn limits(root: &Path) -> Limits {
    /// Bit of `CAP_IPC_LOCK`.
    const LOCK_BIT: u64 = 14;
    let text = facts::read(root, "proc/self/limits");
    let soft = |key: &str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
        match rest.split_whitespace().next()? {
            "unlimited" => Some(u64::MAX),
            number => number.parse().ok(),
        }
    };
    let capabilities = facts::after_colon(&facts::read(root, "proc/self/status"), "CapEff")
        .and_then(|text| hexadecimal(words(text.as_bytes()).next()?));
    Limits {
        locked_bytes: soft("Max locked memory"),
        open_files: soft("Max open files"),
        may_lock_all: capabilities.is_some_and(|bits| bits >> LOCK_BIT & 1 == 1),
    }
}
