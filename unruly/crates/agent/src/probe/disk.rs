//! Disks: `/proc/diskstats`, whole physical disks only.
//!
//! The file lists stacked layers: a partition, the device mapper above it and the disk below all
//! count the same transfer. A whole physical disk has a `device` link in `/sys/block` and is not
//! hidden, unlike the paths below a multipath NVMe disk. If there is no `/sys/block`, as in some
//! containers, the name must decide.

use std::fs;
use std::path::{Path, PathBuf};

use super::text::{decimal, lines, words};

/// Bytes of a sector in `/proc/diskstats`, whatever the disk's own are.
pub(super) const SECTOR_BYTES: i64 = 512;

/// Devices whose kind is remembered. Beyond it the kind is found anew each time.
const KNOWN_MAX: usize = 1024;

/// Sums over the disks. Times are in milliseconds, as in the kernel's file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DiskCounters {
    pub(super) reads: u64,
    pub(super) read_sectors: u64,
    pub(super) writes: u64,
    pub(super) written_sectors: u64,
    /// Time of all writes, so that two at once count twice.
    pub(super) write_ms: u64,
    pub(super) in_flight: u64,
    /// Time that the disk had anything to do.
    pub(super) busy_ms: u64,
}

/// Reads `/proc/diskstats`. `None` if no line of it is a disk in full.
pub(super) fn disks(text: &[u8], mut is_disk: impl FnMut(&[u8]) -> bool) -> Option<DiskCounters> {
    let mut sum: Option<DiskCounters> = None;
    for line in lines(text) {
        let mut words = words(line).skip(2);
        if !words.next().is_some_and(&mut is_disk) {
            continue;
        }
        let mut column = [0u64; 10];
        let mut count = 0;
        for (slot, word) in column.iter_mut().zip(words) {
            *slot = decimal(word)?;
            count += 1;
        }
        if count < column.len() {
            continue;
        }
        let sum = sum.get_or_insert_default();
        for (part, more) in [
            (&mut sum.reads, column[0]),
            (&mut sum.read_sectors, column[2]),
            (&mut sum.writes, column[4]),
            (&mut sum.written_sectors, column[6]),
            (&mut sum.write_ms, column[7]),
            (&mut sum.in_flight, column[8]),
            (&mut sum.busy_ms, column[9]),
        ] {
            *part = part.checked_add(more)?;
        }
    }
    sum
}

/// Tells whole physical disks from the rest, and remembers.
#[derive(Debug)]
pub(super) struct DiskKinds {
    block: Option<PathBuf>,
    known: Vec<(Vec<u8>, bool)>,
}

impl DiskKinds {
    pub(super) fn new(root: &Path) -> Self {
        let block = root.join("sys/block");
        Self {
            block: block.is_dir().then_some(block),
            known: Vec::new(),
        }
    }

    pub(super) fn is_disk(&mut self, name: &[u8]) -> bool {
        if let Some((_, is_disk)) = self.known.iter().find(|(known, _)| known == name) {
            return *is_disk;
        }
        let is_disk = match (&self.block, str::from_utf8(name)) {
            (_, Err(_)) => false,
            // `cciss/c0d0` is the folder `cciss!c0d0`.
            (Some(block), Ok(name)) => is_physical(&block.join(name.replace('/', "!"))),
            (None, Ok(name)) => is_disk_by_name(name),
        };
        if self.known.len() < KNOWN_MAX {
            self.known.push((name.to_vec(), is_disk));
        }
        is_disk
    }
}

fn is_physical(folder: &Path) -> bool {
    let hidden = fs::read(folder.join("hidden")).is_ok_and(|text| text.starts_with(b"1"));
    folder.join("device").exists() && !hidden
}

/// `sda`, `vdb`, `xvda`, `hda`, `nvme0n1`, `mmcblk0`; not `sda1`, `nvme0n1p2`, `loop0`, `dm-0`.
fn is_disk_by_name(name: &str) -> bool {
    if let Some(rest) = name.strip_prefix("nvme") {
        return rest.contains('n') && !rest.contains(['p', 'c']);
    }
    if let Some(rest) = name.strip_prefix("mmcblk") {
        return !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    }
    ["sd", "vd", "xvd", "hd"].iter().any(|kind| {
        name.strip_prefix(kind).is_some_and(|rest| {
            !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_lowercase())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_and_layers_are_not_counted_again() {
        let text = b"   8  0 sda 10 0 100 5 20 0 200 7 1 9 12\n   8  1 sda1 10 0 100 5 20 0 200 7 1 9 12\n\
            254 0 dm-0 10 0 100 5 20 0 200 7 1 9 12\n 7 0 loop0 1 1 1 1 1 1 1 1 1 1 1\n";
        let sum = disks(text, |name| is_disk_by_name(str::from_utf8(name).unwrap())).unwrap();
        assert_eq!(sum.reads, 10);
        assert_eq!(sum.written_sectors, 200);
        assert_eq!((sum.write_ms, sum.in_flight, sum.busy_ms), (7, 1, 9));
    }

    #[test]
    fn a_host_without_a_disk_has_none_and_not_zero() {
        assert_eq!(disks(b"7 0 loop0 1 1 1 1 1 1 1 1 1 1 1\n", |_| false), None);
        assert_eq!(disks(b"", |_| true), None);
        assert_eq!(disks(b"8 0 sda 1 2\n", |_| true), None, "a line cut short");
    }

    #[test]
    fn a_sum_that_overflows_is_none() {
        let line = "8 0 sda 18446744073709551615 0 1 1 1 1 1 1 1 1 1\n";
        assert!(disks(line.as_bytes(), |_| true).is_some());
        assert_eq!(disks(line.repeat(2).as_bytes(), |_| true), None);
    }

    #[test]
    fn names_tell_where_sysfs_is_missing() {
        for disk in [
            "sda", "sdaa", "vda", "xvdf", "nvme0n1", "nvme10n2", "mmcblk0",
        ] {
            assert!(is_disk_by_name(disk), "{disk}");
        }
        for other in [
            "sda1",
            "nvme0n1p1",
            "nvme0c0n1",
            "mmcblk0p1",
            "loop0",
            "ram0",
            "dm-1",
            "md0",
        ] {
            assert!(!is_disk_by_name(other), "{other}");
        }
    }

    #[test]
    fn sysfs_decides_where_it_is_there() {
        let root = tempfile::tempdir().unwrap();
        let block = root.path().join("sys/block");
        for folder in [
            "sda/device",
            "zram0",
            "nvme0c0n1/device",
            "cciss!c0d0/device",
        ] {
            fs::create_dir_all(block.join(folder)).unwrap();
        }
        fs::write(block.join("nvme0c0n1/hidden"), "1\n").unwrap();
        let mut kinds = DiskKinds::new(root.path());
        assert!(kinds.is_disk(b"sda"));
        assert!(kinds.is_disk(b"cciss/c0d0"));
        assert!(!kinds.is_disk(b"zram0"));
        assert!(!kinds.is_disk(b"nvme0c0n1"));
        assert!(
            !kinds.is_disk(b"sda1"),
            "a partition has no folder of its own"
        );
    }
}
