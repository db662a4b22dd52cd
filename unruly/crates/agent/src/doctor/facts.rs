//! What a host is: the facts that go into the manifest of a run.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use unruly_trace::DurationNs;

use crate::probe::{CpuCounters, decimal, lines, words};

/// Facts of a host. What is not known is `None`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    /// The host's name, or `unknown`.
    pub name: String,
    /// The processor's name.
    pub cpu_model: Option<String>,
    /// Cores that this process may use.
    pub cores: Option<u32>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// The kernel's clock source.
    pub clock_source: Option<String>,
    /// A guest of a hypervisor.
    pub virtualised: Option<bool>,
    /// Memory.
    pub memory_bytes: Option<i64>,
    /// Share of all cores' time since boot that the hypervisor gave to others.
    pub steal_share: Option<f64>,
    /// How long this host stops a process in one of ten windows of 10 ms; only known after
    /// listening ([`super::spin`]).
    pub noise_floor_ns: Option<DurationNs>,
}

/// Returns the facts that this host's files report, in well below a millisecond.
#[must_use]
pub fn host_facts() -> HostFacts {
    facts_below(Path::new("/"))
}

pub(super) fn facts_below(root: &Path) -> HostFacts {
    let cpuinfo = read(root, "proc/cpuinfo");
    let stat = stat_below(root);
    HostFacts {
        name: word(root, "proc/sys/kernel/hostname").unwrap_or_else(|| "unknown".to_owned()),
        cpu_model: after_colon(&cpuinfo, "model name").filter(|model| !model.is_empty()),
        cores: allowed_cores(root).or_else(|| {
            u32::try_from(stat.cores.len())
                .ok()
                .filter(|&count| count > 0)
        }),
        kernel: word(root, "proc/sys/kernel/osrelease"),
        clock_source: word(
            root,
            "sys/devices/system/clocksource/clocksource0/current_clocksource",
        ),
        virtualised: is_virtualised(root, &cpuinfo),
        memory_bytes: memory_bytes(root),
        steal_share: stat.all.and_then(|ticks| ticks.steal_share()),
        noise_floor_ns: None,
    }
}

pub(super) fn stat_below(root: &Path) -> CpuCounters {
    let mut stat = CpuCounters::default();
    stat.parse(read(root, "proc/stat").as_bytes());
    stat
}

/// The text of a file; empty if it cannot be read.
pub(super) fn read(root: &Path, path: &str) -> String {
    let bytes = fs::read(root.join(path)).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The text of a file that holds one line.
pub(super) fn word(root: &Path, path: &str) -> Option<String> {
    let text = read(root, path).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// The value of the first line that begins with `key`, as in `key   : value`.
pub(super) fn after_colon(text: &str, key: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim_end() == key).then(|| value.trim().to_owned())
    })
}

/// Counts a list such as `0-3,8,10-11` in `/proc/self/status`.
fn allowed_cores(root: &Path) -> Option<u32> {
    let list = after_colon(&read(root, "proc/self/status"), "Cpus_allowed_list")?;
    list.split(',').try_fold(0u32, |sum, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

fn memory_bytes(root: &Path) -> Option<i64> {
    let meminfo = read(root, "proc/meminfo");
    let line = lines(meminfo.as_bytes()).find(|line| line.starts_with(b"MemTotal:"))?;
    let kib = decimal(words(line).nth(1)?)?;
    i64::try_from(kib.checked_mul(1024)?).ok()
}

/// Returns true if the host is a virtual machine. On x86 the processor itself reports a hypervisor.
/// Elsewhere firmware may name one, but a missing name proves nothing.
fn is_virtualised(root: &Path, cpuinfo: &str) -> Option<bool> {
    if let Some(flags) = after_colon(cpuinfo, "flags") {
        return Some(flags.split(' ').any(|flag| flag == "hypervisor"));
    }
    let names = [
        "KVM",
        "QEMU",
        "VMware",
        "VirtualBox",
        "Xen",
        "Amazon EC2",
        "Google",
        "Microsoft",
    ];
    let vendor = read(root, "sys/class/dmi/id/sys_vendor");
    let is_guest = names.iter().any(|name| vendor.contains(name))
        || root.join("sys/hypervisor/type").exists()
        || root.join("proc/device-tree/hypervisor").exists();
    is_guest.then_some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_tree_has_only_unknown_facts() {
        let root = tempfile::tempdir().unwrap();
        let facts = facts_below(root.path());
        assert_eq!(facts.name, "unknown");
        assert_eq!((facts.cores, facts.memory_bytes), (None, None));
        assert_eq!((facts.virtualised, facts.steal_share), (None, None));
    }

    #[test]
    fn a_canned_host_tells_its_facts() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/proc/fit");
        let facts = facts_below(&root);
        assert_eq!(facts.name, "node-1");
        assert_eq!(
            facts.cpu_model.as_deref(),
            Some("Intel(R) Xeon(R) Gold 6248R CPU @ 3.00GHz")
        );
        assert_eq!(facts.cores, Some(4));
        assert_eq!(facts.kernel.as_deref(), Some("6.1.0-18-amd64"));
        assert_eq!(facts.clock_source.as_deref(), Some("tsc"));
        assert_eq!(facts.virtualised, Some(false));
        assert_eq!(facts.memory_bytes, Some(32_802_632 * 1024));
        assert_eq!(facts.steal_share, Some(0.0));
    }

    #[test]
    fn cores_are_those_that_we_may_use() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        let cores = |list: &str| {
            let text = format!("Cpus_allowed:\tff\nCpus_allowed_list:\t{list}\n");
            fs::write(root.path().join("proc/self/status"), text).unwrap();
            facts_below(root.path()).cores
        };
        assert_eq!(cores("0-3,8,10-11"), Some(7));
        assert_eq!(cores("5"), Some(1));
        assert_eq!(cores("3-1"), None);
        assert_eq!(cores("x"), None);
    }

    #[test]
    fn facts_survive_being_written_and_read() {
        let mut facts = host_facts();
        // A quick reader of numbers is off by the last bit of this one.
        facts.steal_share = Some(0.001_413_551_684_495_515_5);
        let text = serde_json::to_string(&facts).unwrap();
        assert_eq!(serde_json::from_str::<HostFacts>(&text).unwrap(), facts);
    }
}
