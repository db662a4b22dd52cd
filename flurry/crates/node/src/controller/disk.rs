//! Writes a controller's state to its directory on a thread of its own: while a disk is slow, the
//! controller goes on hearing its servers, and does not take its own silence for theirs.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use crate::Error;
use crate::directory::Directory;
use crate::link::Wake;

const STATE: &str = "controller.state";
const LOCK: &str = "controller.lock";
const ALONE: &str = "to be the only controller of this directory: two would give out epochs twice";

/// The directory of a controller; dropping it waits for the write that is under way.
#[derive(Debug)]
pub(super) struct Disk {
    /// `None` once no more is written.
    states: Option<Sender<Vec<u8>>>,
    written: Receiver<Result<(), Error>>,
    thread: Option<JoinHandle<()>>,
}

impl Disk {
    /// Opens a directory; returns it with the state that was last written there. `wake` is called after
    /// each write.
    pub(super) fn open(
        path: &std::path::Path,
        wake: Wake,
    ) -> Result<(Self, Option<Vec<u8>>), Error> {
        let directory = Directory::open(path, LOCK, ALONE)?;
        let found = directory.read(STATE)?;
        let (states, to_write) = channel::<Vec<u8>>();
        let (report, written) = channel();
        let thread = std::thread::Builder::new()
            .name("flurry-state".to_owned())
            .spawn(move || {
                for state in to_write {
                    let outcome = directory.write(STATE, &state);
                    if report.send(outcome).is_err() {
                        return;
                    }
                    wake.call();
                }
            })
            .map_err(|error| Error::io("flurry-state", "a thread", &error))?;
        let disk = Self {
            states: Some(states),
            written,
            thread: Some(thread),
        };
        Ok((disk, found))
    }

    /// Begins to write a state.
    pub(super) fn write(&self, state: Vec<u8>) {
        // The thread lives as long as this does.
        let _ = self.states.as_ref().map(|it| it.send(state));
    }

    /// Whether the next write has ended, and how.
    pub(super) fn take_written(&self) -> Option<Result<(), Error>> {
        self.written.try_recv().ok()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.states = None;
        if let Some(thread) = self.thread.take() {
            // What it could not write was reported.
            let _ = thread.join();
        }
    }
}
