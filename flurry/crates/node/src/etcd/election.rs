//! Which controller leads: the one that holds a key of etcd, by a lease that it renews.
//!
//! A leader is sure of its term for less long than etcd waits for it, counted from before it asked. So no
//! two lead at the same time, as long as their clocks run about alike; and what one writes whose term is
//! over is refused, whatever clocks do.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use serde_json::json;
use tracing::{info, warn};
use unruly_time::BootNs;

use super::call::{Caller, NoAnswer, is_unchanged, number, put};
use super::place::Etcd;
use super::state::State;
use crate::Error;
use crate::link::Wake;

/// How long etcd waits for a leader that says nothing.
const LEASE: Duration = Duration::from_secs(5);

/// How long a leader is sure of its term without a word of etcd.
const SURE: Duration = Duration::from_secs(4);

const RENEW_EVERY: Duration = Duration::from_secs(1);

/// How often a standby looks whether there is a leader.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// After a call without an answer.
const AGAIN: Duration = Duration::from_millis(100);

/// What a controller is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Another one leads, or nobody can.
    Standby,
    /// Its term begins, with the state that the leader before wrote.
    Elected(Option<Vec<u8>>),
    /// It leads.
    Leader,
}

/// A term that was won.
#[derive(Debug)]
struct Term {
    /// The revision of etcd that it was won with: no other term has the same.
    won_at: i64,
    lease: i64,
    /// The state that the leader before wrote.
    stored: Option<Vec<u8>>,
    /// The revision of the state.
    revision: i64,
}

/// What the thread that campaigns and the one that decides both know.
#[derive(Debug, Default)]
struct Campaign {
    /// A term that was won, and is not taken up yet.
    elected: Option<Term>,
    /// Revision of the present term, and the time until which the term is certain, on the clock of
    /// [`now_ns`]. The time belongs to the term and not to the process, since a later term must not
    /// prolong an earlier one.
    sure: Option<(i64, BootNs)>,
    /// The term that the controller has given up.
    resigned: Option<i64>,
    stopped: bool,
}

#[derive(Debug, Default)]
struct Shared {
    campaign: Mutex<Campaign>,
    stop: Condvar,
}

/// A clock that also runs while the machine is asleep, as the lease does.
fn now_ns() -> BootNs {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME);
    // An unknown time is after every lease.
    now.map_or(BootNs(i64::MAX), |now| {
        BootNs(now.tv_sec() * 1_000_000_000 + now.tv_nsec())
    })
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Campaign> {
        self.campaign.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_sure(&self, won_at: i64) -> bool {
        let sure = self.lock().sure;
        sure.is_some_and(|(term, until_ns)| term == won_at && now_ns() < until_ns)
    }

    /// A term is sure from when etcd was asked, for some time.
    fn sure_from(&self, won_at: i64, asked_ns: BootNs) {
        self.lock().sure = Some((won_at, asked_ns.saturating_add(SURE.into())));
    }

    fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    /// Sleeps, unless it shall end.
    fn wait(&self, time: Duration) {
        let campaign = self.lock();
        let waited = self
            .stop
            .wait_timeout_while(campaign, time, |it| !it.stopped);
        drop(waited);
    }
}

/// A controller's part in the election; dropping it leaves the lead to others at once.
#[derive(Debug)]
pub(crate) struct Election {
    shared: Arc<Shared>,
    term: Option<Term>,
    /// `None` once no more is written.
    jobs: Option<Sender<Job>>,
    written: Receiver<Written>,
    threads: Vec<JoinHandle<()>>,
}

/// A state to write in a term.
#[derive(Debug)]
struct Job {
    won_at: i64,
    lease: i64,
    /// Revision of the state that the new state replaces.
    revision: i64,
    bytes: Vec<u8>,
}

/// How a write has ended: in which term, and the new revision if it was done.
#[derive(Debug)]
struct Written {
    won_at: i64,
    revision: Option<i64>,
}

impl Election {
    /// Begins to campaign, on a thread of its own; `wake` is called when a term begins or ends, and when
    /// a write has ended.
    pub(crate) fn start(etcd: &Etcd, address: String, wake: Wake) -> Result<Self, Error> {
        let shared = Arc::<Shared>::default();
        let candidate = Candidate {
            shared: Arc::clone(&shared),
            caller: Caller::new(etcd)?,
            key: etcd.key("controller"),
            state: State::new(etcd),
            address,
            wake: wake.clone(),
            answered: true,
        };
        let mut writer = Writer {
            shared: Arc::clone(&shared),
            caller: Caller::new(etcd)?,
            key: etcd.key("controller"),
            state: State::new(etcd),
            writes: 0,
        };
        let (jobs, to_write) = channel::<Job>();
        let (report, written) = channel();
        let writes = move || {
            for job in to_write {
                let revision = writer.write(&job);
                let won_at = job.won_at;
                if report.send(Written { won_at, revision }).is_err() {
                    return;
                }
                wake.call();
            }
        };
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name(name.to_owned());
            let spawned = thread.spawn(work);
            spawned.map_err(|error| Error::io(name, "a thread", &error))
        };
        let threads = vec![
            spawn("flurry-etcd", Box::new(move || candidate.run()))?,
            spawn("flurry-state", Box::new(writes))?,
        ];
        Ok(Self {
            shared,
            term: None,
            jobs: Some(jobs),
            written,
            threads,
        })
    }

    /// Whether it leads, without a doubt.
    pub(crate) fn is_leader(&self) -> bool {
        let term = self.term.as_ref();
        term.is_some_and(|term| self.shared.is_sure(term.won_at))
    }

    /// What it is now.
    pub(crate) fn role(&mut self) -> Role {
        if self.is_leader() {
            return Role::Leader;
        }
        self.resign();
        let elected = self.shared.lock().elected.take();
        match elected {
            Some(mut term) if self.shared.is_sure(term.won_at) => {
                let stored = term.stored.take();
                self.term = Some(term);
                Role::Elected(stored)
            }
            _ => Role::Standby,
        }
    }

    /// Gives its term up, if it has one.
    fn resign(&mut self) {
        if let Some(term) = self.term.take() {
            warn!("it is not sure any more that it leads: others may");
            self.shared.lock().resigned = Some(term.won_at);
        }
    }

    /// Begins to make these bytes the state; [`Self::take_written`] says how it ended. Only a leader
    /// writes, and one state at a time.
    pub(crate) fn write(&mut self, bytes: Vec<u8>) {
        let Some(term) = &self.term else { return };
        let job = Job {
            won_at: term.won_at,
            lease: term.lease,
            revision: term.revision,
            bytes,
        };
        // The thread lives as long as this does.
        let _ = self.jobs.as_ref().map(|it| it.send(job));
    }

    /// How the write under way has ended, once it has: `false` when it does not lead any more, and the
    /// bytes may be the state or not.
    pub(crate) fn take_written(&mut self) -> Option<bool> {
        loop {
            let Written { won_at, revision } = self.written.try_recv().ok()?;
            // One of an earlier term says nothing about this one.
            let Some(term) = self.term.as_mut().filter(|it| it.won_at == won_at) else {
                continue;
            };
            let Some(revision) = revision else {
                self.resign();
                return Some(false);
            };
            term.revision = revision;
            return Some(true);
        }
    }
}

/// Writes states, one after another: etcd may take its time, and the controller must not.
#[derive(Debug)]
struct Writer {
    shared: Arc<Shared>,
    caller: Caller,
    key: String,
    state: State,
    writes: u64,
}

impl Writer {
    /// The revision of the new state; `None` when the term is over, and it may be the state or not.
    fn write(&mut self, job: &Job) -> Option<i64> {
        self.writes += 1;
        let mut in_doubt = false;
        while self.shared.is_sure(job.won_at) && !self.shared.is_stopped() {
            let leads = (self.key.as_str(), job.won_at);
            let name = format!("{:x}-{}", job.lease, self.writes);
            let mut written =
                self.state
                    .write(&mut self.caller, leads, job.revision, &name, &job.bytes);
            if matches!(written, Ok(None)) && in_doubt {
                // By a call before, whose answer did not come?
                written = was_written(&mut self.caller, &self.state, leads, &job.bytes);
            }
            match written {
                Ok(revision) => return revision,
                Err(no_answer) => {
                    warn!("etcd does not answer: {no_answer}");
                    in_doubt = true;
                }
            }
            self.shared.wait(AGAIN);
        }
        None
    }
}

/// The revision of the state if it is this one, and nobody else has been elected.
fn was_written(
    caller: &mut Caller,
    state: &State,
    (key, won_at): (&str, i64),
    bytes: &[u8],
) -> Result<Option<i64>, NoAnswer> {
    let leader = caller.get(key)?;
    if leader.is_none_or(|it| it.revision != won_at) {
        return Ok(None);
    }
    let (stored, revision) = state.read(caller)?;
    Ok((stored.as_deref() == Some(bytes)).then_some(revision))
}

impl Drop for Election {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.stop.notify_all();
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // They say nothing at their end.
            let _ = thread.join();
        }
    }
}

/// The thread that campaigns, and keeps what it has won.
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
            let won = self.campaign();
            self.note(won.as_ref().err());
            match won {
                Ok(Some(term)) => self.lead(term, asked_ns),
                Ok(None) | Err(_) => self.shared.wait(LOOK_EVERY),
            }
        }
    }

    /// Lets the controller take the term up, and keeps the term for as long as possible.
    fn lead(&mut self, term: Term, asked_ns: BootNs) {
        let (won_at, lease) = (term.won_at, term.lease);
        info!(address = self.address, "it leads");
        self.shared.sure_from(won_at, asked_ns);
        self.shared.lock().elected = Some(term);
        self.wake.call();
        self.keep(won_at, lease);
        let mut campaign = self.shared.lock();
        (campaign.sure, campaign.elected) = (None, None);
        drop(campaign);
        self.wake.call();
        self.leave(lease);
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

    /// Takes the lead if nobody has it.
    fn campaign(&mut self) -> Result<Option<Term>, NoAnswer> {
        if self.caller.get(&self.key)?.is_some() {
            return Ok(None);
        }
        let question = json!({ "TTL": LEASE.as_secs().to_string() });
        let granted = self.caller.call("lease/grant", &question)?;
        let Some(lease) = number(&granted["ID"]) else {
            return Ok(None);
        };
        let won = self.take_lead(lease);
        if !matches!(won, Ok(Some(_))) {
            self.leave(lease);
        }
        won
    }

    fn take_lead(&mut self, lease: i64) -> Result<Option<Term>, NoAnswer> {
        let free = is_unchanged(&self.key, 0);
        let taken = put(&self.key, self.address.as_bytes(), Some(lease));
        let Some(won_at) = self.caller.transact(&[free], &[taken])? else {
            return Ok(None);
        };
        let (stored, revision) = self.state.read(&mut self.caller)?;
        Ok(Some(Term {
            won_at,
            lease,
            stored,
            revision,
        }))
    }

    /// Renews the lease of a term for as long as it can.
    fn keep(&mut self, won_at: i64, lease: i64) {
        let mut pause = RENEW_EVERY;
        loop {
            self.shared.wait(pause);
            let resigned = self.shared.lock().resigned == Some(won_at);
            if self.shared.is_stopped() || resigned || !self.shared.is_sure(won_at) {
                return;
            }
            let asked_ns = now_ns();
            let question = json!({ "ID": lease.to_string() });
            let renewed = self.caller.call("lease/keepalive", &question);
            self.note(renewed.as_ref().err());
            match renewed {
                Ok(answer) if number(&answer["result"]["TTL"]).unwrap_or(0) > 0 => {
                    self.shared.sure_from(won_at, asked_ns);
                    pause = RENEW_EVERY;
                }
                // It has ended, whatever we thought.
                Ok(_) => return,
                Err(_) => pause = AGAIN,
            }
        }
    }

    /// Lets others lead at once; if this is not heard they wait for the lease to end.
    fn leave(&mut self, lease: i64) {
        let _ = self
            .caller
            .call("lease/revoke", &json!({ "ID": lease.to_string() }));
    }
}

#[cfg(test)]
#[path = "election_tests.rs"]
mod tests;
