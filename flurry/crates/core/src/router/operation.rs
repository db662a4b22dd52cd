//! An operation on its way: its copies, and the conditions for its answer.

use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::bugs::{Bug, planted};
use crate::config::{Config, Level, REPLICAS_MAX, Replica, majority};
use crate::id::{ConfigNumber, DurationNs, Epoch, MonoNs, ServerId, Version};
use crate::machine::Access;
use crate::message::{Ask, Outcome, Request, State};
use crate::rare::Rare;

/// The most repetitions of one copy that it remembers. An older one without a reply counts as lost.
/// A reply distinguishes this many attempts.
const REPEATED_MAX: usize = 31;

/// The progress of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Progress {
    /// The copy is not sent yet, because it is a hedge that waits.
    Waiting,
    /// The copy is under way, or was refused for a passing reason. It is sent again.
    Sent,
    /// The replica lacks writes; it has this version.
    Behind(Version),
    /// The replica has a later version, so it cannot answer a read.
    Stale,
    /// The replica has no room.
    Busy,
    /// The replica evicted the value.
    Evicted,
    /// The replica answered a read, or has the write.
    Held,
}

/// One attempt of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Sent {
    pub(super) attempt: u8,
    pub(super) at: MonoNs,
}

/// An operation's copy for one server.
#[derive(Debug, Clone, Hash)]
pub(super) struct Target {
    pub(super) replica: Replica,
    pub(super) progress: Progress,
    pub(super) attempt: u8,
    pub(super) first_sent: MonoNs,
    pub(super) last_sent: MonoNs,
    pub(super) next: MonoNs,
    pub(super) backoff: u8,
    /// True while the first attempt has no reply.
    first_is_open: bool,
    /// Repetitions without a reply, oldest first.
    repeated: Rare<Sent>,
    /// The state that a takeover received from the replica.
    pub(super) state: Option<Box<State>>,
}

const _: () = assert!(
    size_of::<Target>() <= 128,
    "thousands must fit a processor's cache"
);

impl Target {
    fn new(replica: Replica, next: MonoNs) -> Self {
        Self {
            replica,
            progress: Progress::Waiting,
            attempt: 0,
            first_sent: MonoNs(0),
            last_sent: MonoNs(0),
            next,
            backoff: 0,
            first_is_open: false,
            repeated: Rare::NEW,
            state: None,
        }
    }

    /// Notes that the copy was sent. Returns the attempt that this pushes out of memory.
    pub(super) fn sent(&mut self, now: MonoNs, again_after: DurationNs) -> Option<Sent> {
        if self.progress == Progress::Waiting {
            self.first_sent = now;
            self.progress = Progress::Sent;
        } else {
            self.attempt = self.attempt.saturating_add(1);
        }
        assert!(
            again_after > DurationNs(0),
            "a copy is repeated later: one that is due at once would be sent without end"
        );
        self.last_sent = now;
        self.next = now.after(again_after);
        let sent = Sent {
            attempt: self.attempt,
            at: now,
        };
        if self.attempt == 0 {
            self.first_is_open = true;
            return None;
        }
        let full = self.repeated.len() >= REPEATED_MAX;
        let forgotten = if full {
            self.repeated.pop_front()
        } else {
            None
        };
        self.repeated.push_back(sent);
        assert!(
            self.repeated.len() <= REPEATED_MAX,
            "no more attempts than a reply can number"
        );
        forgotten
    }

    /// Returns the attempts without a reply.
    pub(super) fn open(&self) -> impl Iterator<Item = Sent> {
        let first = self.first_is_open.then_some(self.first());
        first.into_iter().chain(self.repeated.iter().copied())
    }

    fn first(&self) -> Sent {
        Sent {
            attempt: 0,
            at: self.first_sent,
        }
    }

    /// Removes the attempt that a reply answers, and returns it; `None` if it is not known any
    /// more.
    pub(super) fn take_sent(&mut self, attempt: u8) -> Option<Sent> {
        if attempt == 0 {
            return std::mem::take(&mut self.first_is_open).then_some(self.first());
        }
        // From 31 on, a reply does not name the attempt. The latest one is the one still without a
        // reply.
        let is_it = |sent: &Sent| sent.attempt.min(31) == attempt;
        let place = self.repeated.iter().rposition(is_it)?;
        self.repeated.remove(place)
    }
}

/// The copies of an operation. Up to three are in the operation's own memory.
pub(super) type Targets = SmallVec<[Target; 3]>;

/// The phase of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// The replicas execute it.
    Apply,
    /// A takeover asks the replicas for their states.
    Asking,
    /// A takeover writes the found state back under the owner's version.
    WritingBack {
        state: Arc<Request>,
        taken: Box<Outcome>,
    },
}

/// Returns whether a copy still has to be sent, or sent again.
pub(super) fn wants(phase: &Phase, target: &Target) -> bool {
    let heard = target.state.is_some() && *phase == Phase::Asking;
    target.progress != Progress::Held && !heard
}

/// Returns whether the request is a write whose level promises several copies.
pub(super) fn is_durable(request: &Request, level: Level) -> bool {
    let write = matches!(&request.ask, Ask::Apply { access, .. } if *access != Access::Read);
    write && level.promises_copies()
}

/// An operation on its way.
#[derive(Debug, Clone, Hash)]
pub(super) struct InFlight {
    pub(super) request: Arc<Request>,
    /// Its level, after `Auto` was resolved.
    pub(super) level: Level,
    pub(super) portal: u64,
    pub(super) started: MonoNs,
    /// Its scheduled time, for the log.
    pub(super) intended: MonoNs,
    pub(super) deadline: MonoNs,
    /// The time at which its portal last sent it.
    pub(super) driven: MonoNs,
    /// Its bytes in the router's count.
    pub(super) bytes_held: usize,
    pub(super) config: ConfigNumber,
    pub(super) targets: Targets,
    /// The number of replicas in the old set, including those that are gone.
    pub(super) copies: usize,
    /// The fewest copies that its level promises, even if fewer servers are left; 0 for none.
    pub(super) copies_min: usize,
    /// For a takeover: the fewest replicas of which one has each answer that earlier owners gave.
    states_min: usize,
    pub(super) phase: Phase,
    pub(super) answer: Option<Bytes>,
    pub(super) digest: Option<u64>,
    /// True if it left the key without a state.
    pub(super) absent: bool,
    pub(super) answered: bool,
    /// The time until which it is kept for the log only, for copies without a reply.
    pub(super) lingers_until: Option<MonoNs>,
    /// The number of rounds in which no replica could answer.
    pub(super) empty_rounds: u8,
    /// The time to which the timer is set.
    pub(super) timer: MonoNs,
}

impl InFlight {
    pub(super) fn new(now: MonoNs, portal: u64, request: Arc<Request>, level: Level) -> Self {
        let phase = match request.ask {
            Ask::Touch => Phase::Asking,
            _ => Phase::Apply,
        };
        assert!(
            level != Level::Auto,
            "the router chooses when it takes an operation, and not once more for each reply"
        );
        Self {
            deadline: now.after(request.timeout),
            request,
            level,
            portal,
            started: now,
            intended: now,
            driven: now,
            bytes_held: 0,
            config: ConfigNumber(0),
            targets: Targets::new(),
            copies: 0,
            copies_min: 0,
            states_min: usize::MAX,
            phase,
            answer: None,
            digest: None,
            absent: false,
            answered: false,
            lingers_until: None,
            empty_rounds: 0,
            timer: MonoNs(u64::MAX),
        }
    }

    /// Returns the bytes of the operation or state in its copies.
    pub(super) fn bytes(&self) -> usize {
        let carried = match &self.phase {
            Phase::WritingBack { state, .. } => &state.ask,
            _ => &self.request.ask,
        };
        match carried {
            Ask::Apply { operation, .. } => operation.len(),
            Ask::Push(state) => state.snapshot.as_ref().map_or(0, Bytes::len),
            Ask::Fetch | Ask::Touch => 0,
        }
    }

    pub(super) fn is_write(&self) -> bool {
        match &self.request.ask {
            Ask::Apply { access, .. } => *access != Access::Read,
            _ => true,
        }
    }

    pub(super) fn target(&mut self, server: ServerId) -> Option<&mut Target> {
        self.targets
            .iter_mut()
            .find(|target| target.replica.server == server)
    }

    /// Assigns the copies to the replicas of this configuration, and returns the copies that have
    /// no replica any more. A replica that has the write still counts as having it.
    pub(super) fn place(&mut self, now: MonoNs, config: &Config, copies_min: usize) -> Targets {
        assert!(
            self.config < config.number || self.targets.is_empty(),
            "an operation is placed anew for a later configuration alone"
        );
        self.config = config.number;
        self.copies = config.copies();
        let durable = is_durable(&self.request, self.level);
        self.copies_min = if durable { copies_min } else { 0 };
        // Counted from all replicas that a key should have: one that is missing may have had an
        // answer too.
        let others = usize::from(self.request.quorum_earlier.max(1)) - 1;
        self.states_min = usize::from(config.replicas).saturating_sub(others).max(1);
        let mut before = std::mem::take(&mut self.targets);
        let write = self.is_write() && self.phase != Phase::Asking;
        for replica in config.replicas_of(&self.request.key).iter() {
            let old = before.iter().position(|target| {
                target.replica.server == replica.server
                    && target.replica.incarnation == replica.incarnation
            });
            let mut target = match old {
                Some(index) => before.swap_remove(index),
                None => Target::new(replica, now),
            };
            target.replica = replica;
            target.state = None;
            let kept = write && target.progress == Progress::Held;
            if !kept && !self.answered && target.progress != Progress::Waiting {
                target.progress = Progress::Sent;
            }
            if !kept && (write || !self.answered) {
                target.next = now;
            }
            self.targets.push(target);
        }
        assert!(
            self.targets.len() <= 2 * REPLICAS_MAX,
            "a copy for each replica of both sets"
        );
        before
    }

    /// Returns whether enough replicas have it. While the members change, a write must satisfy its
    /// level in the old set and in the new one. A read asks the old set only, because only that has
    /// every write.
    ///
    /// If all servers end before the change is done, the disks of the old set are asked. That works
    /// without a minority of these disks, whichever servers were gone before. So level `disk` needs
    /// a majority of all old replicas, including those that are gone.
    pub(super) fn level_is_met(&self) -> bool {
        let met = |of: fn(&Replica) -> bool, gone: usize| {
            let all = self.targets.iter().filter(|it| of(&it.replica)).count();
            let held = self
                .targets
                .iter()
                .filter(|it| of(&it.replica) && it.progress == Progress::Held)
                .count();
            held >= self.level.needed(all + gone)
        };
        let held = self.held();
        if held == 0 || (!self.answered && held < self.copies_min) {
            return false;
        }
        let living = self.targets.iter().filter(|it| it.replica.old).count();
        let gone = match self.level {
            Level::Disk if !planted(Bug::DisksOfTheLiving) => self.copies.saturating_sub(living),
            _ => 0,
        };
        let old = met(|replica| replica.old, gone);
        let new = met(|replica| replica.new, 0);
        old && (new || !self.is_write())
    }

    /// Returns the number of replicas that have it.
    pub(super) fn held(&self) -> usize {
        let held = |target: &&Target| target.progress == Progress::Held;
        self.targets.iter().filter(held).count()
    }

    /// Returns whether every replica has it.
    pub(super) fn is_everywhere(&self) -> bool {
        let held = self.held();
        let wanted = if planted(Bug::StableTooEarly) {
            majority(self.targets.len())
        } else {
            self.targets.len()
        };
        wanted > 0 && held >= wanted
    }

    /// Returns whether every replica that could answer has reported that it cannot.
    pub(super) fn nobody_can(&self) -> bool {
        let mut old = self.targets.iter().filter(|target| target.replica.old);
        let any = old.clone().next().is_some();
        any && old.all(|target| {
            matches!(
                target.progress,
                Progress::Behind(_) | Progress::Stale | Progress::Evicted
            )
        })
    }

    /// Returns the epoch since which one replica speaks for all. `None` if it does not, because
    /// since the owner came all replicas of some key may have been lost together.
    pub(super) fn clean_since(&self, last_wipe: ConfigNumber) -> Option<Epoch> {
        let holds = last_wipe <= self.request.opened_in;
        self.request.clean_since.filter(|_| holds)
    }

    /// Asks the joining servers again if all replicas have replied and none of the old set is left.
    /// They reply with a later configuration once it has complete replicas.
    pub(super) fn ask_the_joining_again(&mut self) {
        if self.targets.iter().all(|it| it.state.is_some()) {
            for target in &mut self.targets {
                if !target.replica.old {
                    target.state = None;
                }
            }
        }
    }

    /// Returns whether every replica has sent its state to a takeover, including the joining ones.
    pub(super) fn knows_all_states(&self) -> bool {
        self.targets.iter().all(|it| it.state.is_some())
    }

    /// Returns the state that a takeover has found, once it is certain. Either all replicas have
    /// replied, including the joining ones. Or enough have replied for one of them to have each answer
    /// of the earlier owners. Or one has replied, and every earlier owner left the key the same on
    /// all replicas.
    pub(super) fn found(&self, last_wipe: ConfigNumber) -> Option<State> {
        let old: Vec<&Target> = self
            .targets
            .iter()
            .filter(|target| target.replica.old)
            .collect();
        let heard: Vec<&State> = old.iter().filter_map(|it| it.state.as_deref()).collect();
        let clean = self.clean_since(last_wipe).and_then(|since| {
            let first = since.0 == 1;
            heard
                .iter()
                .find(|state| !state.evicted && (state.version.epoch >= since || first))
        });
        if let Some(state) = clean {
            return Some((*state).clone());
        }
        let wanted = if planted(Bug::MajorityTakeover) {
            majority(old.len())
        } else if last_wipe > self.request.opened_in {
            // The servers that had the answers may have forgotten them together.
            old.len()
        } else if planted(Bug::StatesTooFew) && self.request.quorum_earlier > 1 {
            1
        } else {
            old.len().min(self.states_min)
        };
        // A joining server may have no state, but a state that it does have would come to light
        // later.
        let joining = self.targets.iter().filter(|it| !it.replica.old);
        let known: Vec<&State> = joining
            .clone()
            .filter_map(|it| it.state.as_deref())
            .collect();
        if old.is_empty() || heard.len() < wanted || known.len() < joining.count() {
            return None;
        }
        heard
            .into_iter()
            .chain(known)
            .max_by_key(|state| (state.version, !state.evicted))
            .cloned()
    }
}
