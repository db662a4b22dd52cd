//! The first process of a container in which hosts are started.

use anyhow::{Context as _, Result};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Waits until a signal ends this process. Meanwhile it takes the exit codes of processes that have
/// lost their parents: in a container they are its children, and would stay as entries of the
/// process table otherwise.
///
/// # Errors
///
/// When signals cannot be received.
pub fn idle() -> Result<()> {
    let mut signals =
        Signals::new([SIGCHLD, SIGHUP, SIGINT, SIGTERM]).context("signals cannot be received")?;
    // One may have ended before its signal could be received.
    reap();
    for signal in signals.forever() {
        if signal != SIGCHLD {
            break;
        }
        reap();
    }
    Ok(())
}

/// Takes the exit codes of all children that have ended.
fn reap() {
    while matches!(
        waitpid(None, Some(WaitPidFlag::WNOHANG)),
        Ok(status) if status != WaitStatus::StillAlive
    ) {}
}
