//! Whether there is memory for what a plan wants to be known of a store's keys.

use anyhow::{Result, bail};
use unruly_plan::Drive;

/// What a client knows of a key: who wrote it last, and what may be read.
const KNOWN_BYTES: u64 = 16;

/// Refuses a space of keys that this host has no memory for, before anything is begun: a client that is
/// ended for want of memory would take its rows with it.
///
/// # Errors
///
/// When what is known of the keys alone is more than is available.
pub(super) fn for_keys(drive: &Drive) -> Result<()> {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    // A host that does not say is believed to have enough.
    refuse(drive, available_bytes(&text).unwrap_or(u64::MAX))
}

fn refuse(drive: &Drive, available: u64) -> Result<()> {
    let keys = drive.store.as_ref().map_or(0, |store| store.keys);
    let needed = keys.saturating_mul(KNOWN_BYTES);
    if needed > available {
        bail!(
            "drive.keys: {keys} keys need {:.1} GB here, and {:.1} GB are free; wanted memory for what is known of each; hint: keys = {}",
            needed as f64 / 1e9,
            available as f64 / 1e9,
            available / KNOWN_BYTES / 2
        );
    }
    Ok(())
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
            "drive.keys: 100000000 keys need 1.6 GB here, and 0.8 GB are free; wanted memory for what is known of each; hint: keys = 25000000"
        );
        refuse(&drive("25000000"), 800_000_000).unwrap();
    }

    #[test]
    fn what_is_free_is_what_the_kernel_says_is_available() {
        let text = "MemTotal:  24 kB\nMemAvailable:   10 kB\n";
        assert_eq!(available_bytes(text), Some(10_240));
        assert_eq!(available_bytes(""), None);
    }
}
