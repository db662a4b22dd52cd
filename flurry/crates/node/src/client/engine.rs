//! Who moves an owner's messages: the caller that waits, while it is the only one; else a thread.
//!
//! Handing an operation to a thread and its answer back costs two wake-ups, which is more than
//! everything else that happens in a client. So a caller that is alone sends, waits and receives itself.
//! The thread moves what nobody waits for (copies to the slower replicas, repetitions, the session), and
//! everything as soon as several wait, or when each arrival is recorded and must not wait for a caller.
//! When many wait, they only leave what they want done: the thread takes it together, and then each
//! replica gets one datagram instead of many.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use flurry_core::id::MonoNs;

use super::Answered;
use super::thread::{Core, LEFT_ALONE, PARKED, Shared, Task};
use crate::link::{Link, LinkCounts, LinkView};
use crate::looking::Looking;
use crate::node::due;
use crate::owner::{Owner, Reply};
use crate::{Error, clock};

/// So many that wait leave it to the thread to send what they want done.
const CROWD: usize = 4;

/// An owner, its sockets, and its thread; dropping it ends all three.
#[derive(Debug)]
pub(super) struct Engine {
    shared: Arc<Shared>,
    view: LinkView,
    /// Arrivals are timed: no caller may be what they wait for.
    always_thread: bool,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    pub(super) fn start(
        owner: Owner<Reply<Answered>>,
        link: Link,
        spin: Duration,
        always_thread: bool,
    ) -> Result<Self, Error> {
        let view = link.view();
        let shared = Arc::new(Shared {
            waiter: link.waiter(),
            wake: link.wake().clone(),
            core: Mutex::new(Core { owner, link }),
            inbox: Mutex::default(),
            rung: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            looking: Looking::new(spin),
            thread_looking: Looking::new(spin),
            driven: AtomicBool::new(false),
            driven_at: AtomicU64::new(0),
            crowded_at: AtomicU64::new(0),
            planned: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("flurry-client".to_owned())
            .spawn(move || own.run())
            .map_err(|error| Error::io("flurry-client", "a thread", &error))?;
        Ok(Self {
            shared,
            view,
            always_thread,
            thread: Some(thread),
        })
    }

    pub(super) fn counts(&self) -> LinkCounts {
        self.view.counts()
    }

    /// Begins an operation, and leaves it to the thread.
    pub(super) fn submit(&self, task: Task) {
        if self.is_crowded() {
            return self.drop_in(task);
        }
        let mut core = self.shared.locked();
        self.shared.submit(&mut core, task);
        self.leave(&core);
    }

    fn is_crowded(&self) -> bool {
        self.shared.waiting.load(Ordering::Relaxed) >= CROWD
    }

    /// Leaves an operation to the thread or caller that moves messages next.
    fn drop_in(&self, task: Task) {
        self.shared.inbox().push(task);
        if self.shared.rung.swap(true, Ordering::SeqCst) {
            return;
        }
        self.shared.wake.call();
        // A caller at work looks into the inbox once more before it lets go.
        if !self.shared.driven.load(Ordering::SeqCst) {
            self.unpark();
        }
    }

    /// Does an operation; its outcome is in `told` then, or its time is over.
    pub(super) fn run(
        &self,
        task: Task,
        told: &Receiver<Result<Answered, Error>>,
        until: MonoNs,
    ) -> Option<Result<Answered, Error>> {
        if self.is_crowded() {
            self.drop_in(task);
            return None;
        }
        let mut core = self.shared.locked();
        let alone = self.is_alone(&core);
        self.shared.submit(&mut core, task);
        if !alone {
            self.leave(&core);
            return None;
        }
        self.shared.driven.store(true, Ordering::SeqCst);
        let outcome = self.drive(core, told, until);
        let mut core = self.shared.locked();
        self.shared.driven.store(false, Ordering::SeqCst);
        // An error here ends the thread, and every waiting caller is notified of that.
        let _ = self.shared.take_in(&mut core);
        let now = clock::now();
        self.shared.driven_at.store(now.0, Ordering::Relaxed);
        if !core.owner.is_waited_for_by_nobody() {
            self.unpark();
        }
        outcome
    }

    /// Whether a caller does everything itself. Where several wait again and again, the thread does it
    /// better than one after the other.
    fn is_alone(&self, core: &Core) -> bool {
        if self.always_thread {
            return false;
        }
        let now = clock::now();
        let nobody = core.owner.is_waited_for_by_nobody();
        if !nobody || self.shared.driven.load(Ordering::Relaxed) {
            self.shared.crowded_at.store(now.0, Ordering::Relaxed);
            return false;
        }
        let crowded_at = MonoNs(self.shared.crowded_at.load(Ordering::Relaxed));
        now.since(crowded_at) >= LEFT_ALONE
    }

    fn unpark(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    /// Sends, waits and receives until the outcome is there.
    fn drive<'a>(
        &'a self,
        mut core: MutexGuard<'a, Core>,
        told: &Receiver<Result<Answered, Error>>,
        until: MonoNs,
    ) -> Option<Result<Answered, Error>> {
        let begun = clock::now();
        let mut looks = self.shared.looking.begins();
        loop {
            match told.try_recv() {
                Ok(outcome) => {
                    if looks {
                        self.shared.looking.ended(true);
                    }
                    return Some(outcome);
                }
                Err(TryRecvError::Disconnected) => return Some(Err(super::stopped())),
                Err(TryRecvError::Empty) => {}
            }
            let now = clock::now();
            if now >= until {
                return None;
            }
            if looks && now.since(begun) >= self.shared.looking.most {
                looks = false;
                self.shared.looking.ended(false);
            }
            if looks {
                // Others must get their turn at the lock.
                drop(core);
                std::hint::spin_loop();
                core = self.shared.locked();
                core.link.look_for_messages();
            } else {
                let wake_at = due(&core.link, &core.owner).min(until);
                let limit = core.link.wait_limit(wake_at.since(now));
                self.shared.planned.store(wake_at.0, Ordering::Relaxed);
                drop(core);
                let ready = self.shared.waiter.wait(limit);
                core = self.shared.locked();
                core.link.look_at(ready);
            }
            if self.shared.turn(&mut core).is_err() {
                return Some(Err(super::stopped()));
            }
        }
    }

    /// Waits for every write to be on every replica, and closes the session.
    pub(super) fn close(&self, reply: Reply<()>) {
        let mut core = self.shared.locked();
        core.owner.close(clock::now(), reply);
        // An error here ends the thread, and every waiting caller is notified of that.
        let _ = core.carry_out();
        self.leave(&core);
    }

    /// Sees to it that somebody wakes up in time for what there is to do now.
    fn leave(&self, core: &Core) {
        let planned = self.shared.planned.load(Ordering::Relaxed);
        if planned == PARKED && !self.shared.driven.load(Ordering::Relaxed) {
            self.unpark();
        } else if due(&core.link, &core.owner).0 < planned {
            self.shared.wake.call();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake.call();
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use bytes::Bytes;
    use flurry_core::config::Level;
    use flurry_core::id::DurationNs;
    use flurry_core::key_value::Operation;
    use flurry_core::portal::Submission;

    use super::*;
    use crate::{Client, Controller, ControllerOptions, Options, Server, ServerOptions};

    /// Far more than anything takes; only reached by a failure.
    const DEADLINE: Duration = Duration::from_secs(20);

    fn append(text: &'static str) -> (Task, Receiver<Result<Answered, Error>>) {
        let (reply, told) = mpsc::sync_channel(1);
        let operation = Operation::Append(Bytes::from(text));
        let submission = Submission {
            key: Bytes::from("k"),
            operation: operation.encode(),
            access: operation.access(),
            level: Level::First,
            at: clock::wall(),
            timeout: DurationNs::millis(20_000),
            sequence: None,
            refuses_doubt: false,
        };
        let task = Task {
            submission,
            wanted: clock::now(),
            reply,
            fault: None,
        };
        (task, told)
    }

    #[test]
    fn what_was_left_before_is_begun_before_what_comes_now() {
        let listen = "127.0.0.1:0".parse().unwrap();
        let controller = Controller::start(&ControllerOptions::new(listen, None)).unwrap();
        let address = controller.address();
        let _servers: Vec<Server> = (1..=3)
            .map(|id| Server::start(&ServerOptions::new(id, address)).unwrap())
            .collect();
        let client = Client::open(&Options {
            open_timeout: DEADLINE,
            timeout: DEADLINE,
            ..Options::new(address, "s")
        })
        .unwrap();
        let ((first, first_told), (second, second_told)) = (append("a"), append("b"));
        {
            // While the lock is held, no other caller can take the task from the inbox.
            let mut core = client.engine.shared.locked();
            client.engine.drop_in(first);
            client.engine.shared.submit(&mut core, second);
        }
        for told in [first_told, second_told] {
            told.recv_timeout(DEADLINE).unwrap().unwrap();
        }
        assert_eq!(client.get("k").unwrap().unwrap(), "ab");
    }
}
