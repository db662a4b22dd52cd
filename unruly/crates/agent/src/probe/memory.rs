//! Memory of the host and the pressure on it: `/proc/meminfo`, `/proc/vmstat`, `/proc/pressure/*`.

use super::text::{decimal, lines, value_of, words};

/// Memory that cannot be had without taking it from someone, in bytes.
pub(super) fn used_bytes(meminfo: &[u8]) -> Option<u64> {
    let total = value_of(meminfo, b"MemTotal:")?;
    let available = value_of(meminfo, b"MemAvailable:")?;
    total.checked_sub(available)?.checked_mul(1024)
}

/// Swap space in use, in bytes. A host without swap uses 0.
pub(super) fn swap_used_bytes(meminfo: &[u8]) -> Option<u64> {
    let total = value_of(meminfo, b"SwapTotal:")?;
    let free = value_of(meminfo, b"SwapFree:")?;
    total.checked_sub(free)?.checked_mul(1024)
}

/// Counters of the virtual memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct VirtualMemory {
    pub(super) swap_in_pages: Option<u64>,
    pub(super) swap_out_pages: Option<u64>,
    /// Pages that a task had to reclaim itself before it got its memory.
    pub(super) direct_reclaim_pages: Option<u64>,
    pub(super) minor_faults: Option<u64>,
    pub(super) major_faults: Option<u64>,
}

/// Reads `/proc/vmstat` in one pass, as it has near two hundred lines.
pub(super) fn virtual_memory(vmstat: &[u8]) -> VirtualMemory {
    let mut counters = VirtualMemory::default();
    let mut faults = None;
    for line in lines(vmstat) {
        // All keys wanted begin with `p`; most lines of the file do not.
        if line[0] != b'p' {
            continue;
        }
        let mut words = words(line);
        let slot = match words.next() {
            Some(b"pswpin") => &mut counters.swap_in_pages,
            Some(b"pswpout") => &mut counters.swap_out_pages,
            Some(b"pgsteal_direct") => &mut counters.direct_reclaim_pages,
            Some(b"pgmajfault") => &mut counters.major_faults,
            Some(b"pgfault") => &mut faults,
            _ => continue,
        };
        *slot = words.next().and_then(decimal);
    }
    // The kernel counts a major fault in both.
    counters.minor_faults = match (faults, counters.major_faults) {
        (Some(all), Some(major)) => all.checked_sub(major),
        _ => None,
    };
    counters
}

/// Total stall time of one resource so far, in microseconds, as in the kernel's file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Pressure {
    /// Some task waited.
    pub(super) some_us: Option<u64>,
    /// Every task waited.
    pub(super) full_us: Option<u64>,
}

/// Reads `/proc/pressure/*`. Kernels before 5.13 have no `full` line for the processor.
pub(super) fn pressure(text: &[u8]) -> Pressure {
    let mut pressure = Pressure::default();
    for line in lines(text) {
        let mut words = words(line);
        let slot = match words.next() {
            Some(b"some") => &mut pressure.some_us,
            Some(b"full") => &mut pressure.full_us,
            _ => continue,
        };
        *slot = words
            .find_map(|word| word.strip_prefix(b"total="))
            .and_then(decimal);
    }
    pressure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_memory_is_what_is_not_available() {
        let text = b"MemTotal:  1000 kB\nMemFree: 100 kB\nMemAvailable:  600 kB\n";
        assert_eq!(used_bytes(text), Some(400 * 1024));
        assert_eq!(used_bytes(b"MemTotal: 1000 kB\n"), None, "an old kernel");
    }

    #[test]
    fn no_swap_is_zero_and_an_unknown_swap_is_none() {
        assert_eq!(
            swap_used_bytes(b"SwapTotal: 0 kB\nSwapFree: 0 kB\n"),
            Some(0)
        );
        assert_eq!(
            swap_used_bytes(b"SwapTotal: 8 kB\nSwapFree: 3 kB\n"),
            Some(5 * 1024)
        );
        assert_eq!(swap_used_bytes(b"MemTotal: 1 kB\n"), None);
        assert_eq!(
            swap_used_bytes(b"SwapTotal: 1 kB\nSwapFree: 3 kB\n"),
            None,
            "nonsense"
        );
    }

    #[test]
    fn a_major_fault_is_not_counted_as_minor_too() {
        let counters = virtual_memory(b"nr_free 5\npgfault 100\npgmajfault 30\npswpin 4\n");
        assert_eq!(counters.minor_faults, Some(70));
        assert_eq!(counters.major_faults, Some(30));
        assert_eq!(counters.swap_in_pages, Some(4));
        assert_eq!(counters.swap_out_pages, None);
    }

    #[test]
    fn pressure_without_a_full_line_has_no_full() {
        let read = pressure(b"some avg10=0.00 avg60=0.05 avg300=0.30 total=7615875\n");
        assert_eq!(
            read,
            Pressure {
                some_us: Some(7_615_875),
                full_us: None
            }
        );
        assert_eq!(
            pressure(b"some avg10=0.00\nfull total=x\n"),
            Pressure::default()
        );
    }
}
