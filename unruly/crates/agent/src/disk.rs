//! Workload C: the reply is on the disk before it is sent.
//!
//! One thread writes and syncs, as a log would; requests wait for it in line. The file is a ring
//! of bounded size, made once at its full length so that a sync writes data and not a new length.
//! Its name is gone as soon as it is open: however the process ends, nothing is left behind.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A file of bounded size that is written round and round.
#[derive(Debug)]
pub(crate) struct DiskRing {
    file: File,
    bytes_max: u64,
    offset: u64,
}

impl DiskRing {
    /// Makes the file at its full length.
    pub(crate) fn new(path: &Path, bytes_max: u64) -> io::Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .open(path)?;
        std::fs::remove_file(path)?;
        nix::fcntl::posix_fallocate(&file, 0, i64::try_from(bytes_max).unwrap_or(i64::MAX))?;
        file.sync_all()?;
        Ok(Self {
            file,
            bytes_max,
            offset: 0,
        })
    }

    /// Writes the bytes and waits until they are on the disk.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let length = bytes.len() as u64;
        if self.offset + length > self.bytes_max {
            self.offset = 0;
        }
        self.file.write_all_at(bytes, self.offset)?;
        self.offset += length;
        self.file.sync_data()
    }
}
