//! What an owner's callers and its thread share, and what the thread does.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flurry_core::id::{DurationNs, MonoNs};
use flurry_core::portal::Submission;

use super::Answered;
use crate::fault::Fault;
use crate::link::{Link, Waiter, Wake};
use crate::looking::Looking;
use crate::node::{Part as _, due, turn};
use crate::owner::{Owner, Reply};
use crate::{Error, clock};

/// Time after a caller's last work for which the thread leaves the sockets to the next caller.
pub(super) const LEFT_ALONE: DurationNs = DurationNs::millis(1);

/// The thread sleeps, and only [`std::thread::Thread::unpark`] wakes it.
pub(super) const PARKED: u64 = u64::MAX;

/// An operation to begin, and where its outcome goes.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) submission: Submission,
    pub(super) wanted: MonoNs,
    pub(super) reply: Reply<Answered>,
    /// What happens to its messages on purpose.
    pub(super) fault: Option<Fault>,
}

#[derive(Debug)]
pub(super) struct Core {
    pub(super) owner: Owner<Reply<Answered>>,
    pub(super) link: Link,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) core: Mutex<Core>,
    pub(super) inbox: Mutex<Vec<Task>>,
    /// True if the thread or caller that moves messages next has been notified of the inbox.
    pub(super) rung: AtomicBool,
    /// Callers that wait, as of the last turn.
    pub(super) waiting: AtomicUsize,
    /// Busy-polling by callers.
    pub(super) looking: Looking,
    /// Busy-polling by the thread.
    pub(super) thread_looking: Looking,
    pub(super) waiter: Arc<Waiter>,
    pub(super) wake: Wake,
    /// A caller is at work.
    pub(super) driven: AtomicBool,
    /// When one last was.
    pub(super) driven_at: AtomicU64,
    /// When several last waited at once.
    pub(super) crowded_at: AtomicU64,
    /// Until when the thread, or the caller at work, waits; [`PARKED`] when the thread sleeps.
    pub(super) planned: AtomicU64,
    pub(super) stop: AtomicBool,
}

impl Core {
    pub(super) fn carry_out(&mut self) -> Result<(), Error> {
        self.owner.carry_out(clock::now(), &mut self.link)?;
        self.link.flush();
        Ok(())
    }

    fn submit(&mut self, now: MonoNs, task: Task) {
        let number = self
            .owner
            .submit(now, task.submission, task.wanted, task.reply);
        if let (Some(number), Some(fault)) = (number, task.fault) {
            self.link.add_fault(number, fault);
        }
    }
}

impl Shared {
    /// A caller that panicked in here was only reading its own answer; the owner is whole.
    pub(super) fn locked(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn inbox(&self) -> MutexGuard<'_, Vec<Task>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn submit(&self, core: &mut Core, task: Task) {
        // What a caller has left before comes before: operations on a key are done in their order.
        let _ = self.take_in(core);
        core.submit(clock::now(), task);
        // An error here ends the thread, and every waiting caller is notified of that.
        let _ = core.carry_out();
        self.waiting.store(core.owner.waiting(), Ordering::Relaxed);
    }

    /// Begins what callers have left; how much that was.
    pub(super) fn take_in(&self, core: &mut Core) -> Result<usize, Error> {
        // Before it looks: who comes later rings again.
        self.rung.store(false, Ordering::SeqCst);
        let tasks = std::mem::take(&mut *self.inbox());
        let taken = tasks.len();
        if taken > 0 {
            let now = clock::now();
            for task in tasks {
                core.submit(now, task);
            }
            core.carry_out()?;
        }
        Ok(taken)
    }

    /// Does what there is to do now; how much of it had come from others.
    pub(super) fn turn(&self, core: &mut Core) -> Result<usize, Error> {
        let letters = turn(&mut core.link, &mut core.owner)?;
        let tasks = self.take_in(core)?;
        self.waiting.store(core.owner.waiting(), Ordering::Relaxed);
        Ok(letters + tasks)
    }

    /// Lets the thread look for messages before it sleeps, if somebody waits for one. Says whether
    /// there is no need to sleep.
    fn look(&self) -> Result<bool, Error> {
        if self.waiting.load(Ordering::Relaxed) == 0 || !self.thread_looking.begins() {
            return Ok(false);
        }
        let begun = clock::now();
        while clock::now().since(begun) < self.thread_looking.most {
            // To callers on this core, who have something to do.
            std::thread::yield_now();
            let mut core = self.locked();
            if self.driven.load(Ordering::Relaxed) {
                return Ok(false);
            }
            core.link.look_for_messages();
            if self.turn(&mut core)? > 0 {
                self.thread_looking.ended(true);
                return Ok(true);
            }
        }
        self.thread_looking.ended(false);
        Ok(false)
    }

    pub(super) fn run(&self) {
        if self.locked().carry_out().is_err() {
            return;
        }
        while !self.stop.load(Ordering::Acquire) {
            match self.look() {
                Ok(true) => continue,
                Ok(false) => {}
                Err(_) => return self.locked().owner.abandon(),
            }
            let limit = {
                let mut core = self.locked();
                match self.plan(&mut core) {
                    Ok(limit) => limit,
                    Err(_) => return core.owner.abandon(),
                }
            };
            match limit {
                Some(limit) => {
                    let ready = self.waiter.wait(limit);
                    self.locked().link.look_at(ready);
                }
                None => {
                    std::thread::park_timeout(Duration::from_nanos(LEFT_ALONE.0));
                    self.locked().link.look_at_all();
                }
            }
        }
    }

    /// Does what there is to do, and says how long to wait for the sockets; `None` is to leave them to
    /// callers for a moment.
    fn plan(&self, core: &mut Core) -> Result<Option<Duration>, Error> {
        if self.driven.load(Ordering::Relaxed) {
            return Ok(None);
        }
        self.turn(core)?;
        let now = clock::now();
        let wake_at = due(&core.link, &core.owner);
        let driven_at = MonoNs(self.driven_at.load(Ordering::Relaxed));
        let left = now.since(driven_at) < LEFT_ALONE && core.owner.is_waited_for_by_nobody();
        if left && wake_at.since(now) >= LEFT_ALONE {
            self.planned.store(PARKED, Ordering::Relaxed);
            return Ok(None);
        }
        self.planned.store(wake_at.0, Ordering::Relaxed);
        Ok(Some(core.link.wait_limit(wake_at.since(now))))
    }
}
