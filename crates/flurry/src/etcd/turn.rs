//! Whose turn it is to decide: one controller at a time holds a key of etcd, by a lease that it renews.
//!
//! A controller is sure of its turn for less long than etcd waits for it, counted from before it asked.
//! So no two are at the same time, as long as their clocks run about alike; and what one writes who is
//! not any more is refused, whatever clocks do.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use serde_json::json;
use tracing::{info, warn};

use super::call::{Caller, NoAnswer, is_unchanged, number, put};
use super::place::Etcd;
use super::state::State;
use crate::Error;
use crate::link::Wake;

/// How long etcd waits for a controller that says nothing.
const LEASE: Duration = Duration::from_secs(5);

/// How long a controller is sure of its turn without a word of etcd.
const SURE: Duration = Duration::from_secs(4);

const RENEW_EVERY: Duration = Duration::from_secs(1);

/// How often one that waits looks whether the place is free.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// After a call without an answer.
const AGAIN: Duration = Duration::from_millis(100);

/// How it stands with a controller.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Others decide, or nobody can.
    Waits,
    /// Its turn begins, with what the one before wrote.
    Begins(Option<Vec<u8>>),
    /// It is its turn.
    Decides,
}

/// A turn that was won.
#[derive(Debug)]
struct Turn {
    /// The revision that the place was taken with: whoever takes it later has another.
    seated: i64,
    lease: i64,
    stored: Option<Vec<u8>>,
    /// That of the state.
    revision: i64,
}

/// What the thread that talks to etcd and the one that decides both know.
#[derive(Debug, Default)]
struct Shared {
    begun: Mutex<Option<Turn>>,
    /// Until when the turn is sure, on the clock of [`now_ns`]; 0 is never.
    sure_until_ns: AtomicI64,
    /// The one that decides has given its turn up.
    resigned: AtomicBool,
    stopped: Mutex<bool>,
    stop: Condvar,
}

/// A clock that also runs while the machine is asleep, as the lease does.
fn now_ns() -> i64 {
    clock_gettime(ClockId::CLOCK_BOOTTIME)
        .map_or(i64::MAX, |now| now.tv_sec() * 1_000_000_000 + now.tv_nsec())
}

fn ns(of: Duration) -> i64 {
    i64::try_from(of.as_nanos()).unwrap_or(i64::MAX)
}

impl Shared {
    fn is_sure(&self) -> bool {
        now_ns() < self.sure_until_ns.load(Ordering::Acquire)
    }

    fn is_stopped(&self) -> bool {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps, unless it shall end.
    fn wait(&self, time: Duration) {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.stop.wait_timeout_while(stopped, time, |it| !*it);
        drop(waited);
    }

    fn begun(&self) -> std::sync::MutexGuard<'_, Option<Turn>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A controller's place at etcd; dropping it leaves it to others at once.
#[derive(Debug)]
pub(crate) struct Seat {
    shared: Arc<Shared>,
    caller: Caller,
    key: String,
    state: State,
    turn: Option<Turn>,
    writes: u64,
    thread: Option<JoinHandle<()>>,
}

impl Seat {
    /// Begins to wait for its turn; `wake` is called when it begins.
    pub(crate) fn wait_for(etcd: &Etcd, address: String, wake: Wake) -> Result<Self, Error> {
        let shared = Arc::<Shared>::default();
        let candidate = Candidate {
            shared: Arc::clone(&shared),
            caller: Caller::new(etcd)?,
            key: etcd.key("controller"),
            state: State::new(etcd),
            address,
            wake,
            answered: true,
        };
        let thread = std::thread::Builder::new()
            .name("flurry-etcd".to_owned())
            .spawn(move || candidate.run())
            .map_err(|error| Error::io("flurry-etcd", "a thread", &error))?;
        Ok(Self {
            shared,
            caller: Caller::new(etcd)?,
            key: etcd.key("controller"),
            state: State::new(etcd),
            turn: None,
            writes: 0,
            thread: Some(thread),
        })
    }

    /// Whether it is its turn, without a doubt.
    pub(crate) fn is_sure(&self) -> bool {
        self.turn.is_some() && self.shared.is_sure()
    }

    /// How it stands now.
    pub(crate) fn standing(&mut self) -> Standing {
        if self.is_sure() {
            return Standing::Decides;
        }
        if self.turn.is_some() {
            self.resign();
        }
        let begun = self.shared.begun().take();
        match begun {
            Some(mut turn) if self.shared.is_sure() => {
                let stored = turn.stored.take();
                self.turn = Some(turn);
                Standing::Begins(stored)
            }
            _ => Standing::Waits,
        }
    }

    fn resign(&mut self) {
        warn!("it is not sure any more that it is its turn: others may decide");
        self.turn = None;
        self.shared.resigned.store(true, Ordering::Release);
    }

    /// Makes these bytes the state; `false` when it is not its turn any more, and they may be or not.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> bool {
        self.writes += 1;
        let mut in_doubt = false;
        while let Some(turn) = &mut self.turn
            && self.shared.is_sure()
        {
            let seat = (self.key.as_str(), turn.seated);
            let name = format!("{:x}-{}", turn.lease, self.writes);
            let written = self
                .state
                .write(&mut self.caller, seat, turn.revision, &name, bytes);
            match written {
                Ok(Some(revision)) => {
                    turn.revision = revision;
                    return true;
                }
                // By a call before, whose answer did not come?
                Ok(None) if in_doubt => {
                    match was_written(&mut self.caller, &self.state, seat, bytes) {
                        Ok(Some(revision)) => {
                            turn.revision = revision;
                            return true;
                        }
                        Ok(None) => break,
                        Err(_) => {}
                    }
                }
                Ok(None) => break,
                Err(no_answer) => {
                    warn!("etcd does not answer: {no_answer}");
                    in_doubt = true;
                }
            }
            self.shared.wait(AGAIN);
        }
        if self.turn.is_some() {
            self.resign();
        }
        false
    }
}

/// The revision of the state if it is this one, and nobody else has taken the place.
fn was_written(
    caller: &mut Caller,
    state: &State,
    (key, seated): (&str, i64),
    bytes: &[u8],
) -> Result<Option<i64>, NoAnswer> {
    let seat = caller.get(key)?;
    if seat.is_none_or(|it| it.revision != seated) {
        return Ok(None);
    }
    let (stored, revision) = state.read(caller)?;
    Ok((stored.as_deref() == Some(bytes)).then_some(revision))
}

impl Drop for Seat {
    fn drop(&mut self) {
        *self
            .shared
            .stopped
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.stop.notify_all();
        if let Some(thread) = self.thread.take() {
            // It says nothing at its end.
            let _ = thread.join();
        }
    }
}

/// The thread that waits for a turn, and keeps it.
#[derive(Debug)]
struct Candidate {
    shared: Arc<Shared>,
    caller: Caller,
    key: String,
    state: State,
    /// What stands under the key, for people.
    address: String,
    wake: Wake,
    /// Whether etcd answered the last time, for the log.
    answered: bool,
}

impl Candidate {
    fn run(mut self) {
        while !self.shared.is_stopped() {
            let asked_ns = now_ns();
            let taken = self.take();
            self.note(taken.as_ref().err());
            match taken {
                Ok(Some(turn)) => {
                    let lease = turn.lease;
                    info!(address = self.address, "its turn to decide");
                    self.shared.resigned.store(false, Ordering::Release);
                    self.sure_from(asked_ns);
                    *self.shared.begun() = Some(turn);
                    self.wake.call();
                    self.keep(lease);
                    self.shared.sure_until_ns.store(0, Ordering::Release);
                    self.shared.begun().take();
                    self.wake.call();
                    self.leave(lease);
                }
                Ok(None) | Err(_) => self.shared.wait(LOOK_EVERY),
            }
        }
    }

    fn sure_from(&self, asked_ns: i64) {
        let until = asked_ns.saturating_add(ns(SURE));
        self.shared.sure_until_ns.store(until, Ordering::Release);
    }

    /// Says it when etcd stops answering, and when it answers again.
    fn note(&mut self, no_answer: Option<&NoAnswer>) {
        let answered = no_answer.is_none();
        if std::mem::replace(&mut self.answered, answered) == answered {
            return;
        }
        match no_answer {
            Some(problem) => warn!("etcd does not answer: {problem}"),
            None => info!("etcd answers again"),
        }
    }

    /// Takes the place if nobody has it.
    fn take(&mut self) -> Result<Option<Turn>, NoAnswer> {
        if self.caller.get(&self.key)?.is_some() {
            return Ok(None);
        }
        let question = json!({ "TTL": LEASE.as_secs().to_string() });
        let granted = self.caller.call("lease/grant", &question)?;
        let Some(lease) = number(&granted["ID"]) else {
            return Ok(None);
        };
        let turn = self.take_by(lease);
        if !matches!(turn, Ok(Some(_))) {
            self.leave(lease);
        }
        turn
    }

    fn take_by(&mut self, lease: i64) -> Result<Option<Turn>, NoAnswer> {
        let free = is_unchanged(&self.key, 0);
        let taken = put(&self.key, self.address.as_bytes(), Some(lease));
        let Some(seated) = self.caller.transact(&[free], &[taken])? else {
            return Ok(None);
        };
        let (stored, revision) = self.state.read(&mut self.caller)?;
        Ok(Some(Turn {
            seated,
            lease,
            stored,
            revision,
        }))
    }

    /// Renews the lease for as long as it can.
    fn keep(&mut self, lease: i64) {
        let mut pause = RENEW_EVERY;
        loop {
            self.shared.wait(pause);
            let over = self.shared.is_stopped()
                || self.shared.resigned.load(Ordering::Acquire)
                || !self.shared.is_sure();
            if over {
                return;
            }
            let asked_ns = now_ns();
            let question = json!({ "ID": lease.to_string() });
            let renewed = self.caller.call("lease/keepalive", &question);
            self.note(renewed.as_ref().err());
            match renewed {
                Ok(answer) if number(&answer["result"]["TTL"]).unwrap_or(0) > 0 => {
                    self.sure_from(asked_ns);
                    pause = RENEW_EVERY;
                }
                // It has ended, whatever we thought.
                Ok(_) => return,
                Err(_) => pause = AGAIN,
            }
        }
    }

    /// Lets others have the place at once; if this is not heard they wait for the lease to end.
    fn leave(&mut self, lease: i64) {
        let _ = self
            .caller
            .call("lease/revoke", &json!({ "ID": lease.to_string() }));
    }
}

#[cfg(test)]
#[path = "turn_tests.rs"]
mod tests;
