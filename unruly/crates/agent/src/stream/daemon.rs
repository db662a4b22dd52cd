//! Aeron's driver in a process of its own, beside the virtual machine that uses it.

use std::path::PathBuf;
use std::time::Duration;

use unruly_trace::DurationNs;

use crate::foreign::{Foreign, Record};
use crate::ground::Ground;

/// To make its buffers.
const HELLO_TIMEOUT: Duration = Duration::from_secs(30);

/// A running driver; it ends with this value, and what it had in memory goes.
pub(super) struct Daemon {
    foreign: Option<Foreign>,
    pub(super) directory: PathBuf,
    /// What it used since it was last asked.
    cpu_ns: DurationNs,
    rss_bytes: Option<u64>,
}

impl Daemon {
    pub(super) fn start(ground: Ground<'_>) -> Result<Self, String> {
        let directory = PathBuf::from(format!("/dev/shm/unruly-aeron-{}-d", std::process::id()));
        let words = [
            "aeron-driver".to_owned(),
            format!("directory={}", directory.display()),
        ];
        let foreign = Foreign::start_beside(ground, &words);
        let mut foreign = foreign.map_err(|error| format!("its driver: {error:#}"))?;
        let hello = |record: &Record| matches!(record, Record::Hello { .. }).then_some(());
        let came = foreign.wait_for(ground.inbox, HELLO_TIMEOUT, hello);
        let daemon = Self {
            foreign: Some(foreign),
            directory,
            cpu_ns: DurationNs::ZERO,
            rss_bytes: None,
        };
        came.map_err(|text| format!("its driver: {text}"))?;
        Ok(daemon)
    }

    /// What it used since the last call, and the memory that it holds. The error is that it is gone.
    pub(super) fn take(&mut self) -> Result<(DurationNs, Option<u64>), String> {
        let Some(foreign) = &mut self.foreign else {
            return Ok((DurationNs::ZERO, None));
        };
        loop {
            match foreign.hear(Duration::ZERO) {
                Ok(Some(Record::Interval(interval))) => {
                    self.cpu_ns += interval.cpu_ns;
                    self.rss_bytes = interval.rss_bytes;
                }
                Ok(Some(Record::Failure(text))) => return Err(text),
                Ok(Some(_)) => {}
                Ok(None) => return Ok((std::mem::take(&mut self.cpu_ns), self.rss_bytes)),
                Err(error) => return Err(format!("java is gone: {error}; hint: see its log")),
            }
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It goes first: then nobody writes there any more.
        self.foreign = None;
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
