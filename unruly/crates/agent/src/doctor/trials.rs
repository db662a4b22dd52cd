//! What can only be known by trying.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;

use unruly_trace::{DurationNs, set_scheduler};

use crate::probe::monotonic_ns;

/// How a trial ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trial {
    /// It can be done.
    Works,
    /// It cannot, or not here.
    Missing,
    /// The trial itself went wrong, for this reason.
    Failed(String),
}

impl Trial {
    pub(super) fn of(trial: impl FnOnce() -> io::Result<bool>) -> Self {
        match trial() {
            Ok(true) => Self::Works,
            Ok(false) => Self::Missing,
            Err(error) => Self::Failed(error.to_string()),
        }
    }
}

/// Tries whether a thread of this process may have real-time priority. The limit and the capability
/// do not show it: a control group without a real-time budget refuses it even to root. A separate
/// thread therefore takes the lowest such priority, gives it back and ends.
pub(super) fn try_realtime() -> Trial {
    let trial = || {
        Trial::of(|| {
            set_scheduler(0, libc::SCHED_FIFO, 1)?;
            set_scheduler(0, libc::SCHED_OTHER, 0)?;
            Ok(true)
        })
    };
    thread::spawn(trial)
        .join()
        .unwrap_or_else(|_| Trial::Failed("the thread died".to_owned()))
}

/// Median time of writing 4 KiB and waiting until the disk has it, in `folder`.
///
/// # Errors
///
/// When the folder cannot be written to.
pub(super) fn sync_ns(folder: &Path) -> io::Result<DurationNs> {
    const TIMES: usize = 20;
    let mut file = unnamed_file(folder)?;
    let mut times_ns = [DurationNs::ZERO; TIMES];
    for time_ns in &mut times_ns {
        let began_ns = monotonic_ns();
        file.write_all(&[0x5a; 4096])?;
        file.sync_data()?;
        *time_ns = monotonic_ns() - began_ns;
    }
    times_ns.sort_unstable();
    Ok((times_ns[TIMES / 2 - 1] + times_ns[TIMES / 2]) / 2)
}

/// A file whose name is taken away at once, so that nothing stays behind a doctor that is killed.
fn unnamed_file(folder: &Path) -> io::Result<File> {
    let path: PathBuf = folder.join(format!(".unruly-doctor-{}", std::process::id()));
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

/// Space that we may still fill in the file system of `folder`.
pub(super) fn free_bytes(folder: &Path) -> Option<u64> {
    let facts = nix::sys::statvfs::statvfs(folder).ok()?;
    facts.blocks_available().checked_mul(facts.fragment_size())
}

#[cfg(test)]
mod tests {
    use unruly_trace::scheduler;

    use super::*;

    #[test]
    fn the_trial_of_the_disk_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        assert!(sync_ns(folder.path()).unwrap() >= DurationNs::ZERO);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error_and_not_a_time() {
        let folder = tempfile::tempdir().unwrap();
        assert!(sync_ns(&folder.path().join("none")).is_err());
        assert_eq!(free_bytes(&folder.path().join("none")), None);
    }

    #[test]
    fn the_trial_of_priority_leaves_our_own_thread_alone() {
        let before = scheduler().unwrap();
        let _ = try_realtime();
        assert_eq!(scheduler().unwrap(), before);
    }
}
