//! Workload C: the reply is on the disk before it is sent.
//!
//! One thread writes and syncs, as a log would; requests wait for it in line. The file is a ring
//! of bounded size, made once at its full length so that a sync writes data and not a new length.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};

use unruly_load::Wake;
use unruly_load::wire::{Codec, Head, Stamps};

/// A reply that waits for the disk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DiskJob {
    pub(crate) connection: usize,
    pub(crate) generation: u64,
    pub(crate) from: Option<std::net::SocketAddr>,
    pub(crate) head: Head,
    pub(crate) stamps: Stamps,
}

/// The disk thread's handle.
#[derive(Debug)]
pub(crate) struct Disk {
    jobs: Sender<DiskJob>,
    done: Receiver<DiskJob>,
    path: PathBuf,
}

impl Disk {
    /// Makes the file and starts the thread.
    pub(crate) fn start(path: &Path, bytes_max: u64, codec: Codec, wake: Wake) -> io::Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .open(path)?;
        nix::fcntl::posix_fallocate(&file, 0, i64::try_from(bytes_max).unwrap_or(i64::MAX))?;
        file.sync_all()?;
        let (jobs, to_do) = channel();
        let (finished, done) = channel();
        std::thread::Builder::new()
            .name("disk".to_owned())
            .spawn(move || {
                let mut ring = Ring {
                    file,
                    bytes_max,
                    offset: 0,
                    buffer: Vec::new(),
                };
                for job in to_do {
                    // A write that fails leaves the request without a reply: its client sees a timeout.
                    if ring.write(&codec, &job).is_err() {
                        continue;
                    }
                    if finished.send(job).is_err() {
                        break;
                    }
                    wake.wake();
                }
            })?;
        Ok(Self {
            jobs,
            done,
            path: path.to_owned(),
        })
    }

    pub(crate) fn submit(&self, job: DiskJob) {
        let _ = self.jobs.send(job);
    }

    pub(crate) fn finished(&self) -> Option<DiskJob> {
        self.done.try_recv().ok()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The file has no use after the run.
        let _ = std::fs::remove_file(&self.path);
    }
}

struct Ring {
    file: File,
    bytes_max: u64,
    offset: u64,
    buffer: Vec<u8>,
}

impl Ring {
    fn write(&mut self, codec: &Codec, job: &DiskJob) -> io::Result<()> {
        self.buffer.clear();
        codec.encode_reply(job.head, job.stamps, &mut self.buffer);
        let length = self.buffer.len() as u64;
        if self.offset + length > self.bytes_max {
            self.offset = 0;
        }
        self.file.write_all_at(&self.buffer, self.offset)?;
        self.offset += length;
        self.file.sync_data()
    }
}
