//! Checks whether this host has room for a plan: memory for the state of a store's keys, and open
//! files.

use anyhow::{Result, bail, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use unruly_plan::{Drive, Load, Plan};

/// What a client knows of a key: who wrote it last, and what may be read.
const KNOWN_BYTES: u64 = 16;
/// Files that every process of a run has open, generously: its logs, spools, what it watches.
const OWN_FILES: u64 = 64;
/// Files that the runner has open for each process: what it says, hears and logs.
const FILES_OF_CHILD: u64 = 8;
/// And an agent for each other agent: connections of both kinds, both ways.
const FILES_OF_PEER: u64 = 4;

/// Refuses a key space whose state does not fit this host's memory, before anything starts. If the
/// kernel killed a client that ran out of memory, the client's rows would be lost too.
///
/// # Errors
///
/// Fails if the state of the keys alone needs more memory than is available.
pub(super) fn for_keys(drive: &Drive) -> Result<()> {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    // A host that does not report its memory is assumed to have enough.
    refuse(drive, available_bytes(&text).unwrap_or(u64::MAX))
}

fn refuse(drive: &Drive, available: u64) -> Result<()> {
    let keys = drive.store.as_ref().map_or(0, |store| store.keys);
    let needed = keys.saturating_mul(KNOWN_BYTES);
    if needed > available {
        bail!(
            "drive.keys: {keys} keys need {:.1} GB here, and {:.1} GB are free; wanted memory for the state of each; hint: keys = {}",
            needed as f64 / 1e9,
            available as f64 / 1e9,
            available / KNOWN_BYTES / 2
        );
    }
    Ok(())
}

/// Raises the limit on open files to what the system grants, and refuses a plan that needs more before
/// anything is begun: a process without a file would end in the middle.
///
/// # Errors
///
/// With the number that is needed.
pub(super) fn for_files(plan: &Plan) -> Result<()> {
    // A host that does not say is believed to have enough.
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return Ok(());
    };
    let raised = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    refuse_files(plan, if raised.is_ok() { hard } else { soft })
}

fn refuse_files(plan: &Plan, granted: u64) -> Result<()> {
    let needed = files(plan);
    ensure!(
        needed <= granted,
        "this plan needs {needed} open files in a process, and {granted} are granted; hint: ulimit -n {needed}"
    );
    Ok(())
}

/// How many files the process of a run that needs most has open.
fn files(plan: &Plan) -> u64 {
    let (children, connections) = match &plan.load {
        Load::Mesh(mesh) => {
            let agents = u64::from(mesh.agents);
            (agents, agents * FILES_OF_PEER)
        }
        // Our own server has the connections of all.
        Load::Drive(drive) => (u64::from(drive.processes), u64::from(drive.clients)),
        Load::Stream(stream) => (u64::from(stream.readers) + 1, u64::from(stream.readers) + 1),
    };
    OWN_FILES + connections.max(children * FILES_OF_CHILD)
}

fn available_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1_024)
}

#[cfg(test)]
mod tests {
    use unruly_plan::{Load, Plan};

    use super::*;

    fn drive(keys: &str) -> Drive {
        let text = format!(
            "name = \"a\"\n[run]\nduration = \"1s\"\n[drive]\nurl = \"null:\"\nkeys = {keys}\n"
        );
        match Plan::parse("plan", &text).unwrap().load {
            Load::Drive(drive) => drive,
            _ => panic!("a drive was written"),
        }
    }

    #[test]
    fn more_keys_than_memory_are_refused_with_a_number_that_fits() {
        let said = refuse(&drive("100000000"), 800_000_000)
            .unwrap_err()
            .to_string();
        assert_eq!(
            said,
            "drive.keys: 100000000 keys need 1.6 GB here, and 0.8 GB are free; wanted memory for the state of each; hint: keys = 25000000"
        );
        refuse(&drive("25000000"), 800_000_000).unwrap();
    }

    #[test]
    fn too_few_open_files_are_refused_with_the_number_that_is_needed() {
        let text =
            "name = \"a\"\n[run]\nduration = \"1s\"\n[drive]\nurl = \"null:\"\nclients = 1000\n";
        let plan = Plan::parse("plan", text).unwrap();
        let said = refuse_files(&plan, 16).unwrap_err().to_string();
        assert_eq!(
            said,
            "this plan needs 1064 open files in a process, and 16 are granted; hint: ulimit -n 1064"
        );
        refuse_files(&plan, 1_064).unwrap();
    }

    #[test]
    fn what_is_free_is_what_the_kernel_says_is_available() {
        let text = "MemTotal:  24 kB\nMemAvailable:   10 kB\n";
        assert_eq!(available_bytes(text), Some(10_240));
        assert_eq!(available_bytes(""), None);
    }
}
