//! The part of a run that this runner measures: its clocks, its host and its services, and whether
//! they are those of the part before it.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;

use anyhow::Result;
use sha2::{Digest, Sha256};
use unruly_plan::{Cell, Load};
use unruly_program::{host_of, tool};
use unruly_trace::{ClockPair, DurationNs, Part, RunStatus};

use crate::services;

const BOOT: &str = "/proc/sys/kernel/random/boot_id";
const MACHINE: &str = "/etc/machine-id";
/// A kernel keeps a little of the memory, which differs from boot to boot.
const MEMORY_TOLERANCE: f64 = 0.02;

/// Describes the part that begins now.
pub(crate) fn new(origin: ClockPair, noise_floor_ns: DurationNs, cells: &[Cell]) -> Result<Part> {
    let machine = word(MACHINE).map(|it| digest(&format!("unruly {it}"))[..16].to_owned());
    Ok(Part {
        started_ns: origin.column_ns(),
        ended_ns: None,
        status: RunStatus::Running,
        tool: tool(),
        boot: word(BOOT),
        clock: origin,
        machine,
        host: host_of("local", Some(noise_floor_ns)),
        services: service_digests(cells)?,
        changed: Vec::new(),
        discarded: Vec::new(),
    })
}

/// Returns the SHA-256 of a text, in hexadecimal digits.
pub(crate) fn digest(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn word(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|it| !it.is_empty())
}

fn service_digests(cells: &[Cell]) -> Result<BTreeMap<String, String>> {
    let mut digests = BTreeMap::new();
    for cell in cells {
        let Load::Drive(drive) = &cell.plan.load else {
            continue;
        };
        let service = drive.store.as_ref().and_then(|it| it.url.service());
        if let Some(name) = service.filter(|it| !digests.contains_key(*it)) {
            digests.insert(name.to_owned(), digest(&services::text(name)?));
        }
    }
    Ok(digests)
}

/// Returns what differs between two parts and can change a result, a sentence each.
pub(crate) fn changes(before: &Part, now: &Part) -> Vec<String> {
    let mut told = Vec::new();
    let version = |part: &Part| format!("{} ({})", part.tool.version, part.tool.commit);
    note(
        &mut told,
        "unruly",
        Some(&version(before)),
        Some(&version(now)),
    );
    note(
        &mut told,
        "the machine",
        before.machine.as_ref(),
        now.machine.as_ref(),
    );
    let (old, new) = (&before.host, &now.host);
    note(
        &mut told,
        "the processor",
        old.cpu_model.as_ref(),
        new.cpu_model.as_ref(),
    );
    note(&mut told, "the number of cores", old.cores, new.cores);
    note(
        &mut told,
        "the kernel",
        old.kernel.as_ref(),
        new.kernel.as_ref(),
    );
    let clocks = (old.clock_source.as_ref(), new.clock_source.as_ref());
    note(&mut told, "the clock source", clocks.0, clocks.1);
    let memory = (old.memory_bytes, new.memory_bytes);
    if !memory
        .0
        .zip(memory.1)
        .is_some_and(|(old, new)| is_near(old, new))
    {
        note(&mut told, "the memory in bytes", memory.0, memory.1);
    }
    told
}

#[expect(clippy::cast_precision_loss, reason = "a share of it")]
fn is_near(old: i64, new: i64) -> bool {
    (old - new).abs() as f64 <= old as f64 * MEMORY_TOLERANCE
}

/// What one of both does not know is not compared.
fn note<T: Display + PartialEq>(
    told: &mut Vec<String>,
    what: &str,
    old: Option<T>,
    new: Option<T>,
) {
    if let (Some(old), Some(new)) = (old, new)
        && old != new
    {
        told.push(format!("{what} was {old} and is {new}"));
    }
}

#[cfg(test)]
mod tests {
    use unruly_trace::{Host, MonoNs, Tool, WallNs};

    use super::*;

    fn part() -> Part {
        Part {
            started_ns: unruly_trace::ColumnNs(0),
            ended_ns: None,
            status: RunStatus::Stopped,
            tool: Tool {
                version: "1.0.0".to_owned(),
                commit: "abc".to_owned(),
            },
            boot: Some("first".to_owned()),
            clock: ClockPair {
                mono_ns: MonoNs(0),
                wall_ns: WallNs(0),
            },
            machine: None,
            host: Host {
                cores: Some(2),
                memory_bytes: Some(1_000_000),
                ..Host::unknown("local")
            },
            services: BTreeMap::new(),
            changed: Vec::new(),
            discarded: Vec::new(),
        }
    }

    #[test]
    fn another_boot_and_a_little_less_memory_are_no_change() {
        let mut now = part();
        now.boot = Some("second".to_owned());
        now.host.memory_bytes = Some(995_000);
        now.host.steal_share = Some(0.5);
        now.machine = Some("0123".to_owned());
        assert_eq!(changes(&part(), &now), Vec::<String>::new());
    }

    #[test]
    fn another_version_and_another_host_are_told_with_both_values() {
        let mut now = part();
        now.tool.version = "1.1.0".to_owned();
        now.host.cores = Some(4);
        now.host.memory_bytes = Some(2_000_000);
        let wanted = [
            "unruly was 1.0.0 (abc) and is 1.1.0 (abc)",
            "the number of cores was 2 and is 4",
            "the memory in bytes was 1000000 and is 2000000",
        ];
        assert_eq!(changes(&part(), &now), wanted);
    }
}
