//! Who may write into a run directory: locks that the kernel drops when their holder dies.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::error::TraceError;
use crate::schema::Table;

/// Held by the runner for as long as the run goes on.
#[derive(Debug)]
pub struct RunLock(#[expect(dead_code, reason = "held for its drop")] Flock<File>);

impl RunLock {
    /// Takes the lock of a run directory.
    ///
    /// # Errors
    ///
    /// When somebody else holds it: the run is going on.
    pub fn take(directory: &Path) -> Result<Self, TraceError> {
        match lock(directory, ".lock", FlockArg::LockExclusiveNonblock)? {
            Some(lock) => Ok(Self(lock)),
            None => Err(TraceError::Running {
                path: directory.to_owned(),
            }),
        }
    }
}

/// Shared by all that write spools and segments of a run; recovery has it for itself, so that it never
/// takes a file from somebody who still writes.
#[derive(Debug)]
pub struct WriterLock(#[expect(dead_code, reason = "held for its drop")] Flock<File>);

impl WriterLock {
    /// Joins those that write into a run directory. While somebody recovers the run, waits for its end.
    ///
    /// # Errors
    ///
    /// When the directory cannot be written.
    pub fn share(directory: &Path) -> Result<Self, TraceError> {
        let lock = lock(directory, FILE, FlockArg::LockShared)?;
        lock.map(Self).ok_or_else(|| TraceError::Running {
            path: directory.to_owned(),
        })
    }

    /// Waits until no process writes any more. Processes whose runner died end within seconds.
    ///
    /// # Errors
    ///
    /// Names the processes that still write after `timeout`.
    pub(crate) fn alone(directory: &Path, timeout: Duration) -> Result<Self, TraceError> {
        let until = Instant::now() + timeout;
        loop {
            if let Some(lock) = lock(directory, FILE, FlockArg::LockExclusiveNonblock)? {
                return Ok(Self(lock));
            }
            if Instant::now() > until {
                return Err(TraceError::Writing {
                    path: directory.to_owned(),
                    who: writers(directory).join(", "),
                });
            }
            std::thread::sleep(LOOK_PERIOD);
        }
    }
}

const FILE: &str = ".writers";
const LOOK_PERIOD: Duration = Duration::from_millis(10);

/// The lock of a name; `None` when somebody else has it.
fn lock(directory: &Path, name: &str, how: FlockArg) -> Result<Option<Flock<File>>, TraceError> {
    let path = directory.join(name);
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(|source| TraceError::io(&path, "creating the lock", source))?;
    match Flock::lock(file, how) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, errno)) => Err(TraceError::io(&path, "locking", errno.into())),
    }
}

/// The names of those whose spools are locked.
fn writers(directory: &Path) -> Vec<String> {
    let folders = Table::ALL.map(|table| directory.join(table.name()));
    let spools = folders.iter().filter_map(|it| fs::read_dir(it).ok());
    let spools = spools.flatten().flatten().map(|entry| entry.path());
    let mut names: Vec<String> = spools
        .filter(|path| path.extension().is_some_and(|it| it == "spool"))
        .filter(|path| is_locked(path))
        .filter_map(|path| {
            let stem = path.file_stem()?.to_string_lossy().into_owned();
            let name = stem.rsplit_once("-c").map_or(stem.as_str(), |it| it.0);
            Some(name.to_owned())
        })
        .collect();
    names.sort();
    names.dedup();
    names
}

fn is_locked(path: &Path) -> bool {
    match File::open(path) {
        Ok(file) => Flock::lock(file, FlockArg::LockSharedNonblock).is_err(),
        Err(error) => error.kind() != ErrorKind::NotFound,
    }
}
