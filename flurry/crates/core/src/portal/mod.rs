//! The portal: the owner of a session, or of several.
//!
//! It gives each operation its identity and tells what it depends on, keeps each write until every
//! replica has it, and says honestly what came of it: done, or lost, or not known. What it sends may
//! be sent again by anyone at any time without harm.
//!
//! Sequence numbers are even for the caller's operations; the odd number below is for the takeover of
//! the key that the operation may need first. So a caller that brings its own numbers leaves room.
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
    ConfigNumber, DurationNs, Epoch, Key, KeyLength, MonoNs, Sequence, SessionId, Version, WallNs,
};
use crate::machine::Access;
use crate::message::{Control, Copies, Message, Opened, Owned, Request};
use chain::Chain;
use parts::Part;
pub use parts::Sessions;
use unstable::Unstable;

/// How often an unanswered message to the controller is repeated.
const CONTROLLER_AGAIN: DurationNs = DurationNs::millis(50);

/// Where a message of a portal goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Destination {
    /// Its router.
    Router,
    /// The controller.
    Controller,
}

/// What a portal is told at its start.
#[derive(Debug, Clone)]
pub struct PortalParams {
    /// The sessions that it asks for.
    pub sessions: Sessions,
    /// Random: tells this opening from another.
    pub nonce: u64,
    /// Operations without an answer at most; and writes, if answered ones that are not yet stable
    /// count too.
    pub operations_max: usize,
    /// Bytes of all these operations at most. Beyond that, writes are refused until a replica that
    /// is behind has caught up; reads are not.
    pub bytes_max: usize,
    /// Keys whose versions it remembers at most; a forgotten one is taken over again at its next use.
    pub keys_max: usize,
    /// When the router may forget (a process of its own): how often it is told again.
    pub drive_again: Option<DurationNs>,
    /// Period of the report to the controller, which also asks whether a server was lost; `None`
    /// sends none. An owner that does not know of a loss cannot say that its writes have outlived
    /// it.
    pub heartbeat: Option<DurationNs>,
    /// Silence of the present owners after which this portal takes the sessions; zero takes them at
    /// once.
    pub patience: DurationNs,
    /// Owners of these sessions notify a caller of a doubt about a key before they do for it what
    /// rests on the key's value (see [`Submission::refuses_doubt`]). A value that was written after a
    /// loss is then in doubt no more. All owners of a session must agree on this.
    pub tells_first: bool,
    /// Servers that have each write that this owner acknowledges. With more than one, operations at
    /// a level that promises fewer are refused.
    pub copies: Copies,
}

/// What the caller wants done.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Submission {
    /// The key's bytes.
    pub key: Bytes,
    /// In the machine's format.
    pub operation: Bytes,
    /// How it depends on the state.
    pub access: Access,
    /// Which replies it waits for.
    pub level: Level,
    /// The owner's time.
    pub at: WallNs,
    /// When the caller wants to hear that the outcome is unknown.
    pub patience: DurationNs,
    /// The caller's own number, or the next.
    pub sequence: Option<u64>,
    /// It is not done if its answer could rest on an older value than was once acknowledged: see
    /// [`Outcome::TailUnknown`]. Blind writes are done, since they rest on nothing.
    pub refuses_doubt: bool,
}

/// Why a submission was not taken. Nothing was done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The session is not open (yet, or any more).
    #[error("session: it is not open; wanted an open one; hint: wait for the opening")]
    NotOpen,
    /// Somebody else owns it now.
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
        /// The caller's.
        given: u64,
        /// The last.
        last: u64,
    },
    /// The level promises fewer copies than the owner does.
    #[error(
        "level: it promises too few copies for this session; wanted quorum, all or disk; hint: open the session with fewer copies to use other levels"
    )]
    Level,
    /// Too much is under way.
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

/// What came of an operation, for the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Done, at the level asked for.
    Done {
        /// The machine's answer.
        answer: Bytes,
        /// The key was just taken over, and its earlier owner's last writes may have been lost.
        tail_unknown: bool,
    },
    /// Not answered in time. A write may have happened or happen yet.
    Unknown,
    /// It was not done, since its caller wants no answer that may rest on an older value: the key was
    /// taken over, and its earlier owner's last writes may have been lost.
    TailUnknown,
    /// A write that was acknowledged is on no replica any more; there is only an older value.
    DataLoss {
        /// The version that is lost.
        need: Version,
        /// The newest that there is.
        have: Version,
    },
    /// Somebody else owns the session now.
    Fenced(Epoch),
    /// The servers or the router are full; it was not acknowledged.
    Busy,
    /// Its level promises more copies than there are servers now; it was not acknowledged.
    TooFewCopies,
    /// The value was evicted. A write may all the same have happened where it was not.
    Evicted,
    /// The machine cannot read the operation.
    Malformed,
}

/// What the portal tells its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The sessions are open, the first one under this epoch.
    Opened(Arc<Config>, Epoch),
    /// The controller refused to open it.
    Refused(String),
    /// Another owner with this epoch lives, and this portal stands by. Reported once for each
    /// epoch.
    StandsBy(Epoch),
    /// What came of an operation, by the caller's number.
    Answered(u64, Outcome),
    /// Every replica has this write.
    Stable(u64),
    /// The session is closed: all is on every replica, and the next owner starts without asking.
    Closed,
    /// Somebody else owns the session now, under this epoch. Comes once, before the outcomes of what
    /// was under way; also when nothing was. With several sessions: the last one that it had.
    Fenced(Epoch),
    /// Somebody else owns one of several sessions now, the one of this place among them, under this
    /// epoch. The owner goes on with the others.
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
    /// The caller has heard of it.
    told: bool,
    /// An answer has shown what it wrote: it can be refused no more.
    seen: bool,
    driven: MonoNs,
    deadline: MonoNs,
    tail_unknown: bool,
    refuses_doubt: bool,
}

/// The owner of a session.
#[derive(Debug, Clone)]
pub struct Portal {
    params: PortalParams,
    life: Life,
    /// Its sessions, once it has been let in.
    parts: Vec<Part>,
    /// The latest loss of a server that it knows of.
    last_loss: ConfigNumber,
    /// That loss and its own last number by then, until all up to there is on every replica again.
    settling: Option<(ConfigNumber, Sequence)>,
    /// The latest loss that all its writes have outlived.
    settled: ConfigNumber,
    /// When it tells the controller so, and asks whether there is a later one.
    settled_again: MonoNs,
    /// When the controller last answered.
    heard: MonoNs,
    /// Something that it had written is lost.
    never_settles: bool,
    last: Sequence,
    at: WallNs,
    /// A key was forgotten: one that is not known is not new.
    forgot: bool,
    /// One of them may have lost its last writes, and nobody was told.
    forgot_untold: bool,
    /// A takeover of one of them was refused or cut off: it may have reached some replicas only.
    forgot_touched: bool,
    keys: IndexMap<Key, Chain, std::hash::BuildHasherDefault<crate::table::KeyHasher>>,
    /// The empty queue of a key for which nothing waits any more. It would take most of the key's memory.
    spare: VecDeque<Pending>,
    operations: BTreeMap<Sequence, Operation>,
    /// Operations that wait for others on their key.
    waiting: BTreeMap<Sequence, Key>,
    /// Numbers that may still change a replica.
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

/// The caller's number of an operation. Every other number on the wire is for taking a key over.
#[must_use]
pub fn number_of(sequence: Sequence) -> u64 {
    sequence.0 / 2
}

impl Portal {
    /// A portal that asks the controller to make it the owner.
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
            spare: VecDeque::new(),
            operations: BTreeMap::new(),
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

    /// The number of its first session, once that is open.
    #[must_use]
    pub fn session(&self) -> SessionId {
        let first = self.parts.first();
        first.map_or(SessionId(0), |it| it.owned.session)
    }

    /// The owner's highest epoch in any of its sessions, once they are open.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        let epochs = self.parts.iter().map(|it| it.owned.epoch);
        epochs.max().unwrap_or_default()
    }

    /// Whether operations may be submitted.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.life == Life::Open
    }

    fn is_opening(&self) -> bool {
        matches!(self.life, Life::Opening(_))
    }

    /// Operations that it holds: unanswered, or not yet on every replica.
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

    /// The owner's time by now: it never goes back, and not behind an earlier owner's.
    #[must_use]
    pub fn at(&self) -> WallNs {
        self.at
    }

    /// The number of the last operation that it took.
    #[must_use]
    pub fn last(&self) -> u64 {
        number_of(self.last)
    }

    /// Returns how many operations were renumbered.
    #[must_use]
    pub fn tried_again(&self) -> u64 {
        self.tried_again
    }

    /// Every write up to this number is on all replicas.
    #[must_use]
    pub fn stable_through(&self) -> u64 {
        let stable = number_of(self.stable());
        let tried = self.again.values().map(|it| number_of(it.first) - 1).min();
        tried.map_or(stable, |tried| tried.min(stable))
    }

    /// As [`Self::stable_through`], as numbered on the wire.
    #[must_use]
    pub fn stable_sequence(&self) -> Sequence {
        self.stable()
    }

    fn stable(&self) -> Sequence {
        let Some(first) = self.unstable.first() else {
            return self.last;
        };
        assert!(first <= self.last, "{first:?} was never given out");
        // The number below an operation's is for the takeover that it may still need; a write that was
        // sent needs none any more. Else the loss of what its takeover wrote back could not be proven.
        let sent = self.operations.get(&first);
        let needs_none =
            first.is_takeover() || sent.is_some_and(|operation| operation.access != Access::Read);
        Sequence(first.0.saturating_sub(if needs_none { 1 } else { 2 }))
    }

    /// Takes an operation; what comes of it is an [`Event::Answered`] with the number returned.
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
        // A read of a write that is on one server only would show what may be lost.
        if self.params.copies.are_several() && !submission.level.promises_copies() {
            return Err(SubmitError::Level);
        }
        let part = self.part_of(&submission.key).ok_or(SubmitError::NotOpen)?;
        if let Some(epoch) = part.fenced() {
            return Err(SubmitError::Fenced(epoch));
        }
        let key = Key::new(part.owned.session, submission.key.clone())?;
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
        let deadline = now.after(submission.patience);
        let pending = Pending {
            sequence: self.last,
            deadline,
            submission,
        };
        self.unstable.insert(self.last, bytes);
        self.deadlines.insert((deadline, self.last));
        let mut spare = std::mem::take(&mut self.spare);
        let chain = self.chain(&key);
        if chain.waiting.capacity() == 0 {
            std::mem::swap(&mut chain.waiting, &mut spare);
        }
        chain.waiting.push_back(pending);
        self.spare = spare;
        self.waiting.insert(self.last, key.clone());
        self.pump(now, &key);
        Ok(number)
    }

    /// Checks that one more operation is within the bounds. A read leaves nothing behind, so that
    /// writes which a replica lacks do not hold it up.
    fn has_room(&self, access: Access, bytes: usize) -> Result<(), SubmitError> {
        let open = self.deadlines.len();
        let writes = access != Access::Read && !planted(Bug::UnboundedBacklog);
        let operations = if writes { self.held() } else { open };
        if operations >= self.params.operations_max {
            return Err(SubmitError::Busy(operations));
        }
        let held = self.unstable.bytes();
        if writes && held > 0 && held + bytes > self.params.bytes_max {
            return Err(SubmitError::Full(held));
        }
        Ok(())
    }

    /// Lets go of the session once every replica has every write; [`Event::Closed`] says so.
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

    /// A message from the router or the controller.
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
            // An owner with no operation under way does not hear it from a server.
            Message::Control(Control::Fence(session, epoch))
                if self.part(session).is_some_and(|it| it.owned.epoch < epoch) =>
            {
                self.fenced(session, epoch);
            }
            _ => {}
        }
    }

    /// The controller has noted that sessions are closed.
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

    /// The router goes by this configuration, in which a server may have been lost.
    pub fn noticed(&mut self, now: MonoNs, config: &Config) {
        self.lost(now, config.last_loss);
    }

    /// A server was lost. What is not on every replica yet would be in doubt should this owner end now;
    /// the controller hears when it is not any more.
    fn lost(&mut self, now: MonoNs, loss: ConfigNumber) {
        if self.life == Life::Open && loss > self.last_loss {
            self.last_loss = loss;
            self.settling = Some((loss, self.last));
            self.settle(now);
        }
    }

    /// Whether all that was written by the latest loss is on every replica now: then the controller
    /// hears it at once.
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
        // A report and its answer may be lost.
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
                patience: self.params.patience,
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

    /// Time has come to [`Self::poll_timeout`].
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

    /// When to call [`Self::handle_timeout`].
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

    /// The next message to send.
    pub fn poll_send(&mut self) -> Option<(Destination, Message)> {
        self.outbox.pop_front()
    }

    /// What the caller should know.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the number that the caller uses for an operation.
    fn number_told(&self, sequence: Sequence) -> u64 {
        let tried = self.again.get(&sequence);
        number_of(tried.map_or(sequence, |it| it.first))
    }

    /// Removes an operation that can change nothing any more from the unstable ones.
    fn let_go(&mut self, sequence: Sequence) {
        assert!(
            !self.operations.contains_key(&sequence) && !self.waiting.contains_key(&sequence),
            "{sequence:?} can still change a replica"
        );
        self.unstable.remove(sequence);
        self.again.remove(&sequence);
    }
}
