//! The portal: the owner of a session, or of several.
//!
//! It gives each operation its identity, and names the version that the operation depends on. It
//! keeps each write until every replica has it, and reports the true outcome: done, lost, or
//! unknown. Anyone may repeat its messages at any time without harm.
//!
//! A caller's operation has an even sequence number. The odd number below it belongs to the
//! takeover of the key that the operation may need first. So a caller with numbers of its own
//! leaves room.
//!
//! Inputs are `handle_*` and `submit`, outputs `poll_*`, as everywhere in this crate.

mod again;
mod chain;
mod fingerprint;
mod outcome;
mod parts;
mod unstable;
mod verify;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use indexmap::IndexMap;

use crate::bugs::{Bug, planted};
use crate::config::{Config, Level};
use crate::id::{
    ConfigNumber, DurationNs, Epoch, KeptKey, Key, KeyLength, MonoNs, Sequence, SessionId, Version,
    WallNs,
};
use crate::machine::Access;
use crate::message::{Control, Copies, Message, Opened, Owned, Request};
use crate::numbered::Numbered;
use crate::rare::Rare;
use crate::wire::OPERATION_BYTES_MAX;
use chain::{Chain, Place};
use parts::Part;
pub use parts::Sessions;
use unstable::Unstable;

/// The interval at which it repeats an unanswered message to the controller.
const CONTROLLER_AGAIN: DurationNs = DurationNs::millis(50);

/// The receiver of a message of a portal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Destination {
    /// Its router.
    Router,
    /// The controller.
    Controller,
}

/// The parameters of a portal.
#[derive(Debug, Clone)]
pub struct PortalParams {
    /// The sessions that it asks for.
    pub sessions: Sessions,
    /// A random number that distinguishes this opening from others.
    pub nonce: u64,
    /// The most unanswered operations. For writes, answered ones that are not yet stable count as
    /// well.
    pub operations_max: usize,
    /// The most bytes of these operations. Beyond that it refuses writes, but not reads, until the
    /// replicas that are behind have caught up.
    pub bytes_max: usize,
    /// The most keys whose versions it remembers. It takes over a forgotten key again at its next
    /// use.
    pub keys_max: usize,
    /// The interval at which it sends unfinished operations to the router again; `None` if the
    /// router is in the same process and so cannot forget them.
    pub drive_again: Option<DurationNs>,
    /// Period of the report to the controller, whose answer names the latest loss of a server;
    /// `None` sends no reports. An owner that does not know of a loss cannot report that its writes
    /// have outlived it.
    pub heartbeat: Option<DurationNs>,
    /// Silence of the present owners after which this portal takes the sessions; zero takes them at
    /// once.
    pub timeout: DurationNs,
    /// Owners of these sessions notify a caller of a doubt about a key before they do for it what
    /// rests on the key's value (see [`Submission::refuses_doubt`]). A value that was written after
    /// a loss is then in doubt no more. All owners of a session must agree on this.
    pub tells_first: bool,
    /// Servers that have each write that this owner acknowledges. With more than one, operations at
    /// a level that promises fewer are refused.
    pub copies: Copies,
}

/// A caller's operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Submission {
    /// The key's bytes.
    pub key: Bytes,
    /// The operation, in the machine's format.
    pub operation: Bytes,
    /// Its dependence on the state.
    pub access: Access,
    /// The replies that it waits for.
    pub level: Level,
    /// The owner's time.
    pub at: WallNs,
    /// The time after which the portal reports that the outcome is unknown.
    pub timeout: DurationNs,
    /// The caller's own number; `None` for the next one.
    pub sequence: Option<u64>,
    /// True if the operation must not be done when its answer could rest on an older value than was
    /// once acknowledged: see [`Outcome::TailUnknown`]. Blind writes are done, since they rest on
    /// no value.
    pub refuses_doubt: bool,
}

/// The reason why the portal did not accept a submission. Nothing was done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The session is not open (yet, or any more).
    #[error("session: it is not open; wanted an open one; hint: wait for the opening")]
    NotOpen,
    /// Another portal owns the session now, under this epoch.
    #[error("session: epoch {} owns it now; wanted to be the only owner; hint: open it again to take it back", .0.0)]
    Fenced(Epoch),
    /// The key is empty or too long.
    #[error(transparent)]
    Key(#[from] KeyLength),
    /// The caller's number is not above the last one.
    #[error(
        "sequence: {given} was given after {last}; wanted a higher one; hint: numbers must never go back"
    )]
    SequenceGoesBack {
        /// The caller's number.
        given: u64,
        /// The last number.
        last: u64,
    },
    /// The operation fits no message.
    #[error(
        "operation: it has {0} bytes; wanted at most {max}; hint: divide it",
        max = crate::wire::OPERATION_BYTES_MAX
    )]
    TooLong(usize),
    /// The level promises fewer copies than the owner does.
    #[error(
        "level: it promises too few copies for this session; wanted quorum, all or disk; hint: open the session with fewer copies to use other levels"
    )]
    Level,
    /// Too many operations are under way.
    #[error(
        "portal: {0} operations are under way; wanted fewer; hint: wait for answers before sending more"
    )]
    Busy(usize),
    /// The writes that some replica does not have yet take too much memory.
    #[error(
        "portal: operations that are not on every replica have {0} bytes; wanted fewer; hint: is a server silent, slow or full?"
    )]
    Full(usize),
}

/// The outcome of an operation, for the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Done, at the level asked for.
    Done {
        /// The machine's answer.
        answer: Bytes,
        /// The key was just taken over, and its earlier owner's last writes may have been lost.
        tail_unknown: bool,
    },
    /// No answer came in time. A write may have happened or may still happen.
    Unknown,
    /// The operation was not done. The key was just taken over, its earlier owner's last writes may
    /// have been lost, and the caller refuses an answer that may rest on an older value.
    TailUnknown,
    /// A write that was acknowledged is on no replica any more; there is only an older value.
    DataLoss {
        /// The version that is lost.
        need: Version,
        /// The newest version that a replica has.
        have: Version,
    },
    /// Another portal owns the session now, under this epoch.
    Fenced(Epoch),
    /// The servers or the router are full; it was not acknowledged.
    Busy,
    /// Its level promises more copies than there are servers now; it was not acknowledged.
    TooFewCopies,
    /// The value was evicted. A write may still have happened on a replica that had the value.
    Evicted,
    /// The machine cannot read the operation.
    Malformed,
}

/// A report of the portal to its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The sessions are open, the first one under this epoch.
    Opened(Arc<Config>, Epoch),
    /// The controller refused to open it.
    Refused(String),
    /// Another owner with this epoch lives, and this portal stands by. Reported once for each
    /// epoch.
    StandsBy(Epoch),
    /// The outcome of an operation, by the caller's number.
    Answered(u64, Outcome),
    /// Every replica has this write.
    Stable(u64),
    /// The session is closed. Every write is on every replica, and the next owner need not ask for
    /// them.
    Closed,
    /// Another portal owns the session now, under this epoch. The event comes once, before the
    /// outcomes of the operations under way. With several sessions it reports the loss of the last
    /// one.
    Fenced(Epoch),
    /// Another portal owns the session of this place now, under this epoch. This portal goes on
    /// with its other sessions.
    PartFenced(usize, Epoch),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Life {
    /// The portal waits for the controller, or for the owner of this epoch to end.
    Opening(Epoch),
    Open,
    Closing,
    Closed,
    Fenced(Epoch),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Pending {
    sequence: Sequence,
    submission: Submission,
    deadline: MonoNs,
}

#[derive(Debug, Clone, Hash)]
struct Operation {
    request: Arc<Request>,
    access: Access,
    takeover: bool,
    answered: bool,
    /// True if the caller was notified of the outcome.
    told: bool,
    /// True if an answer has shown its value, so that it can no longer be refused.
    seen: bool,
    driven: MonoNs,
    deadline: MonoNs,
    tail_unknown: bool,
    refuses_doubt: bool,
    place: Place,
}

/// The owner of a session.
#[derive(Debug, Clone)]
pub struct Portal {
    params: PortalParams,
    life: Life,
    /// Its sessions, once they are open.
    parts: Vec<Part>,
    /// The latest loss of a server that it knows of.
    last_loss: ConfigNumber,
    /// That loss, and the portal's last number at that time, until every write up to that number is
    /// on every replica again.
    settling: Option<(ConfigNumber, Sequence)>,
    /// The latest loss that all its writes have outlived.
    settled: ConfigNumber,
    /// The time of its next report to the controller, whose answer names the latest loss.
    settled_again: MonoNs,
    /// The time of the controller's last answer.
    heard: MonoNs,
    /// True if one of its acknowledged writes is lost.
    never_settles: bool,
    last: Sequence,
    at: WallNs,
    /// True if it forgot a key, so that an unknown key need not be new.
    forgot: bool,
    /// True if a forgotten key may have lost its last writes, and no caller was notified.
    forgot_untold: bool,
    /// True if a takeover of a forgotten key was refused or cut off, and may have reached some
    /// replicas only.
    forgot_touched: bool,
    keys: IndexMap<KeptKey, Chain, std::hash::BuildHasherDefault<crate::table::KeyHasher>>,
    /// How often chains in `keys` have moved. A new chain moves no other.
    moves: u64,
    /// The empty queue of a key without waiting operations, for reuse. It would take most of the
    /// key's memory.
    spare: Rare<Pending>,
    operations: Numbered<Sequence, Operation>,
    /// Operations that wait for others on their key.
    waiting: BTreeMap<Sequence, Key>,
    /// The numbers of operations that may still change a replica.
    unstable: Unstable,
    /// Former numbers of operations that were renumbered, by their present number.
    again: BTreeMap<Sequence, again::Tried>,
    /// True once a caller has chosen a number itself: the portal must not use numbers of its own
    /// then.
    is_numbered: bool,
    /// Count of operations that were renumbered.
    tried_again: u64,
    deadlines: BTreeSet<(MonoNs, Sequence)>,
    controller_again: MonoNs,
    drive_again: MonoNs,
    outbox: VecDeque<(Destination, Message)>,
    events: VecDeque<Event>,
}

/// Returns the caller's number of an operation. The odd numbers on the wire belong to takeovers.
#[must_use]
pub fn number_of(sequence: Sequence) -> u64 {
    sequence.0 / 2
}

impl Portal {
    /// Returns a portal that asks the controller to make it the owner.
    #[must_use]
    pub fn new(now: MonoNs, params: PortalParams) -> Self {
        let mut portal = Self {
            params,
            life: Life::Opening(Epoch(0)),
            parts: Vec::new(),
            last_loss: ConfigNumber(0),
            settling: None,
            settled: ConfigNumber(0),
            settled_again: MonoNs(u64::MAX),
            heard: now,
            never_settles: false,
            last: Sequence(0),
            at: WallNs(0),
            forgot: false,
            forgot_untold: false,
            forgot_touched: false,
            keys: IndexMap::default(),
            moves: 0,
            spare: Rare::NEW,
            operations: Numbered::default(),
            waiting: BTreeMap::new(),
            unstable: Unstable::default(),
            again: BTreeMap::new(),
            is_numbered: false,
            tried_again: 0,
            deadlines: BTreeSet::new(),
            controller_again: now,
            drive_again: now,
            outbox: VecDeque::new(),
            events: VecDeque::new(),
        };
        portal.ask_controller(now);
        portal
    }

    /// Returns the number of its first session, once that is open.
    #[must_use]
    pub fn session(&self) -> SessionId {
        let first = self.parts.first();
        first.map_or(SessionId(0), |it| it.owned.session)
    }

    /// Returns the owner's highest epoch in any of its sessions, once they are open.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        let epochs = self.parts.iter().map(|it| it.owned.epoch);
        epochs.max().unwrap_or_default()
    }

    /// Returns whether operations may be submitted.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.life == Life::Open
    }

    fn is_opening(&self) -> bool {
        matches!(self.life, Life::Opening(_))
    }

    /// Returns the number of operations that it holds: unanswered, or not yet on every replica.
    #[must_use]
    pub fn held(&self) -> usize {
        self.unstable.len().max(self.operations.len())
    }

    /// Returns the bytes of the operations that it holds, keys included.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.unstable.bytes()
    }

    /// Returns the number of keys whose versions it remembers.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// Returns the owner's time. It never goes back, nor behind an earlier owner's time.
    #[must_use]
    pub fn at(&self) -> WallNs {
        self.at
    }

    /// Returns the number of the last operation that it accepted.
    #[must_use]
    pub fn last(&self) -> u64 {
        number_of(self.last)
    }

    /// Returns whether an acknowledged write of this owner is lost: every server that had it, and
    /// the router, ended before another server got it. Then it never outlives the loss.
    #[must_use]
    pub fn has_lost_a_write(&self) -> bool {
        self.never_settles
    }

    /// Returns how many operations were renumbered.
    #[must_use]
    pub fn tried_again(&self) -> u64 {
        self.tried_again
    }

    /// Returns the number up to which every write is on all replicas.
    #[must_use]
    pub fn stable_through(&self) -> u64 {
        let stable = number_of(self.stable());
        let tried = self.again.values().map(|it| number_of(it.first) - 1).min();
        tried.map_or(stable, |tried| tried.min(stable))
    }

    /// Returns [`Self::stable_through`] as numbered on the wire.
    #[must_use]
    pub fn stable_sequence(&self) -> Sequence {
        self.stable()
    }

    fn stable(&self) -> Sequence {
        let Some(first) = self.unstable.first() else {
            return self.last;
        };
        assert!(first <= self.last, "{first:?} was never given out");
        // The number below an operation's number belongs to the takeover that it may still need. A
        // write that was sent needs none. Without this distinction nobody could prove the loss of a
        // write-back.
        let sent = self.operations.get(first);
        let needs_none =
            first.is_takeover() || sent.is_some_and(|operation| operation.access != Access::Read);
        Sequence(first.0.saturating_sub(if needs_none { 1 } else { 2 }))
    }

    /// Accepts an operation and returns its number. An [`Event::Answered`] with this number
    /// follows.
    ///
    /// # Errors
    ///
    /// [`SubmitError`]; nothing was done then.
    pub fn submit(&mut self, now: MonoNs, mut submission: Submission) -> Result<u64, SubmitError> {
        match self.life {
            Life::Open => {}
            Life::Fenced(epoch) => return Err(SubmitError::Fenced(epoch)),
            _ => return Err(SubmitError::NotOpen),
        }
        // A read at a lower level could show a write that is on one server only, and may be lost.
        if self.params.copies.are_several() && !submission.level.promises_copies() {
            return Err(SubmitError::Level);
        }
        let part = self.part_of(&submission.key).ok_or(SubmitError::NotOpen)?;
        if let Some(epoch) = part.fenced() {
            return Err(SubmitError::Fenced(epoch));
        }
        let key = Key::new(part.owned.session, submission.key.clone())?;
        // It would be sent again and again, and arrive nowhere.
        if submission.operation.len() > OPERATION_BYTES_MAX {
            return Err(SubmitError::TooLong(submission.operation.len()));
        }
        let bytes = submission.key.len() + submission.operation.len();
        self.has_room(submission.access, bytes)?;
        let last = number_of(self.last);
        let number = submission.sequence.unwrap_or(last + 1);
        if number <= last || number > u64::MAX / 2 {
            return Err(SubmitError::SequenceGoesBack {
                given: number,
                last,
            });
        }
        self.last = Sequence(number * 2);
        assert!(
            self.unstable.last() < Some(self.last),
            "an operation has a higher number than all before it, or versions would go back"
        );
        self.is_numbered |= submission.sequence.is_some();
        // The owner's time never goes back, whatever its clock does.
        self.at = self.at.max(submission.at);
        submission.at = self.at;
        let deadline = now.after(submission.timeout);
        let pending = Pending {
            sequence: self.last,
            deadline,
            submission,
        };
        self.unstable.insert(self.last, bytes);
        self.deadlines.insert((deadline, self.last));
        let index = self.chain_of(&key);
        self.send_or_queue(now, &key, index, pending);
        Ok(number)
    }

    /// Checks that one more operation is within the bounds. A read leaves nothing behind, so that
    /// writes which a replica lacks do not hold it up.
    fn has_room(&self, access: Access, bytes: usize) -> Result<(), SubmitError> {
        let reads = access == Access::Read || planted(Bug::UnboundedBacklog);
        self.has_room_for(1, !reads, bytes)
    }

    /// Checks that more operations, with this number of bytes together, are within the bounds.
    /// `writes` is true if some of them are writes.
    ///
    /// # Errors
    ///
    /// [`SubmitError::Busy`] and [`SubmitError::Full`], as for a submission.
    pub fn has_room_for(
        &self,
        operations: usize,
        writes: bool,
        bytes: usize,
    ) -> Result<(), SubmitError> {
        let held = if writes {
            self.held()
        } else {
            self.deadlines.len()
        };
        if held + operations > self.params.operations_max {
            return Err(SubmitError::Busy(held));
        }
        let held = self.unstable.bytes();
        // One operation always fits an empty backlog.
        let is_bound = held > 0 || operations > 1;
        if writes && is_bound && held + bytes > self.params.bytes_max {
            return Err(SubmitError::Full(held));
        }
        Ok(())
    }

    /// Closes the session once every replica has every write. [`Event::Closed`] follows.
    pub fn close(&mut self, now: MonoNs) {
        if self.life == Life::Open {
            self.life = Life::Closing;
            self.try_close(now);
        }
    }

    fn try_close(&mut self, now: MonoNs) {
        let done = self.unstable.is_empty()
            || (planted(Bug::ClosedTooEarly) && self.operations.values().all(|it| it.answered));
        if self.life == Life::Closing && done {
            self.ask_controller(now);
        }
    }

    /// Handles a message from the router or the controller.
    pub fn handle_message(&mut self, now: MonoNs, message: Message) {
        match message {
            Message::Answer(answer) => self.handle_answer(now, answer),
            Message::Control(Control::Opened(opened)) => self.opened(now, opened),
            Message::Control(Control::OpenRefused { nonce, reason })
                if nonce == self.params.nonce && self.is_opening() =>
            {
                self.events.push_back(Event::Refused(reason));
                self.controller_again = MonoNs(u64::MAX);
            }
            Message::Control(Control::OwnerLives { nonce, epoch })
                if nonce == self.params.nonce
                    && self.is_opening()
                    && self.life != Life::Opening(epoch) =>
            {
                self.life = Life::Opening(epoch);
                self.events.push_back(Event::StandsBy(epoch));
            }
            Message::Control(Control::SettledHeard(session, epoch, loss))
                if self.owns(Owned { session, epoch }) =>
            {
                self.heard = now;
                self.lost(now, loss);
            }
            Message::Control(Control::Closed(closed)) if self.life == Life::Closing => {
                self.note_closed(&closed);
            }
            // The controller reports a new owner, because no server reports it while no operation
            // is under way.
            Message::Control(Control::Fence(session, epoch))
                if self.part(session).is_some_and(|it| it.owned.epoch < epoch) =>
            {
                self.fenced(session, epoch);
            }
            _ => {}
        }
    }

    /// Notes that the controller has closed sessions.
    fn note_closed(&mut self, closed: &[Owned]) {
        for owned in closed {
            self.close_part(*owned);
        }
        self.end_closing();
    }

    /// Ends the closing once there is no session left to close.
    fn end_closing(&mut self) {
        if self.life == Life::Closing && self.has_none() {
            self.life = Life::Closed;
            self.events.push_back(Event::Closed);
        }
    }

    fn opened(&mut self, now: MonoNs, opened: Opened) {
        let wanted = self.params.sessions.names.len();
        let whole = opened.sessions.len() == wanted;
        if opened.nonce != self.params.nonce || !self.is_opening() || !whole {
            return;
        }
        assert!(
            self.keys.is_empty() && self.unstable.is_empty() && self.deadlines.is_empty(),
            "nothing is taken before the sessions are open"
        );
        self.life = Life::Open;
        self.open_parts(&opened);
        let times = opened.sessions.iter().map(|it| it.at);
        self.at = times.fold(self.at, WallNs::max);
        self.last_loss = opened.config.last_loss;
        self.settled = self.last_loss;
        self.settled_again = self.later_asked(now);
        self.heard = now;
        self.drive_again = now;
        let first = opened.sessions.first();
        let epoch = first.map_or(Epoch(0), |it| it.epoch);
        let told = Event::Opened(opened.config, epoch);
        self.events.push_back(told);
    }

    /// Notes that the router goes by this configuration, which may report the loss of a server.
    pub fn noticed(&mut self, now: MonoNs, config: &Config) {
        self.lost(now, config.last_loss);
    }

    /// Notes the loss of a server. If this owner ended now, its writes that are not on every
    /// replica would be in doubt. The portal reports to the controller when they are on every
    /// replica.
    fn lost(&mut self, now: MonoNs, loss: ConfigNumber) {
        if self.life == Life::Open && loss > self.last_loss {
            self.last_loss = loss;
            self.settling = Some((loss, self.last));
            self.settle(now);
        }
    }

    /// Schedules a report to the controller once every write up to the latest loss is on every
    /// replica.
    fn settle(&mut self, now: MonoNs) {
        let Some((loss, through)) = self.settling.filter(|_| !self.never_settles) else {
            return;
        };
        let tried = self.again.values().map(|it| it.first);
        let first = tried.chain(self.unstable.first()).min();
        if first.is_none_or(|it| it > through) {
            assert!(
                self.settled <= loss && loss == self.last_loss,
                "{loss:?} is the latest loss: an earlier one says nothing of it"
            );
            self.settling = None;
            self.settled = loss;
            if self.params.heartbeat.is_some() {
                self.settled_again = now;
            }
        }
    }

    fn later_asked(&self, now: MonoNs) -> MonoNs {
        let period = self.params.heartbeat;
        period.map_or(MonoNs(u64::MAX), |period| now.after(period))
    }

    fn tell_settled(&mut self, now: MonoNs) {
        assert!(
            self.settled <= self.last_loss,
            "no write outlived a loss that is not known of"
        );
        self.settled_again = self.later_asked(now);
        // One lost report, or one lost answer, does not count as silence.
        let unheard = now.since(self.heard);
        let usual = self.params.heartbeat.is_none_or(|it| unheard.0 <= 2 * it.0);
        let unheard = if usual { DurationNs(0) } else { unheard };
        let settled = Control::Settled(self.owned(), self.settled, unheard);
        self.outbox
            .push_back((Destination::Controller, Message::Control(settled)));
    }

    fn ask_controller(&mut self, now: MonoNs) {
        self.controller_again = now.after(CONTROLLER_AGAIN);
        let ask = match self.life {
            Life::Opening(_) => Control::Open {
                names: self.params.sessions.names.clone(),
                nonce: self.params.nonce,
                timeout: self.params.timeout,
                copies: self.params.copies,
            },
            Life::Closing => {
                assert!(
                    self.unstable.is_empty() || planted(Bug::ClosedTooEarly),
                    "the next owner believes that each write is on every replica"
                );
                assert!(
                    (self.waiting.is_empty() && self.deadlines.is_empty())
                        || planted(Bug::ClosedTooEarly),
                    "every caller has an answer"
                );
                let untold = self.keys.values().any(|chain| chain.tail_unknown);
                let untold = untold || self.forgot_untold;
                Control::Close(self.owned(), untold, self.at)
            }
            _ => return,
        };
        self.outbox
            .push_back((Destination::Controller, Message::Control(ask)));
    }

    /// Handles the time of [`Self::poll_timeout`].
    pub fn handle_timeout(&mut self, now: MonoNs) {
        let asks = match self.life {
            Life::Opening(_) => true,
            Life::Closing => self.unstable.is_empty() || planted(Bug::ClosedTooEarly),
            _ => false,
        };
        if asks && now >= self.controller_again {
            self.ask_controller(now);
        }
        if self.life == Life::Open {
            self.settle(now);
            if now >= self.settled_again {
                self.tell_settled(now);
            }
        }
        while let Some((at, sequence)) = self.deadlines.first().copied() {
            if at > now {
                break;
            }
            self.deadlines.remove(&(at, sequence));
            self.give_up(now, sequence);
        }
        if let Some(period) = self.params.drive_again
            && now >= self.drive_again
        {
            self.drive_again = now.after(period);
            self.drive_all_again(now, period);
        }
    }

    /// Returns the time at which to call [`Self::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<MonoNs> {
        let mut next = self.deadlines.first().map(|(at, _)| *at);
        let mut or = |at: MonoNs| next = Some(next.map_or(at, |known| known.min(at)));
        match self.life {
            Life::Opening(_) if self.controller_again != MonoNs(u64::MAX) => {
                or(self.controller_again);
            }
            Life::Closing if self.unstable.is_empty() => or(self.controller_again),
            Life::Open if self.params.heartbeat.is_some() => or(self.settled_again),
            _ => {}
        }
        if self.params.drive_again.is_some() && !self.operations.is_empty() {
            or(self.drive_again);
        }
        next
    }

    /// Returns the next message to send.
    pub fn poll_send(&mut self) -> Option<(Destination, Message)> {
        self.outbox.pop_front()
    }

    /// Returns the next report to the caller.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the number that the caller uses for an operation.
    fn number_told(&self, sequence: Sequence) -> u64 {
        let tried = self.again.get(&sequence);
        number_of(tried.map_or(sequence, |it| it.first))
    }

    /// Removes an operation that can no longer change a replica from the unstable ones.
    fn let_go(&mut self, sequence: Sequence) {
        assert!(
            !self.operations.contains(sequence) && !self.waiting.contains_key(&sequence),
            "{sequence:?} can still change a replica"
        );
        self.unstable.remove(sequence);
        self.again.remove(&sequence);
    }
}
