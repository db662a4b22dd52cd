//! The owner of a session: a portal and a router, wired to each other and to the socket.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use flurry_core::config::{Config, Level};
use flurry_core::id::{DurationNs, Endpoint, Epoch, MonoNs, Sequence, WallNs};
use flurry_core::machine::Access;
use flurry_core::message::{Ask, Control, Copies, Copy, Destination, Message, Owned};
use flurry_core::portal::{self, Event, Outcome, Portal, PortalParams, Sessions, Submission};
use flurry_core::router::{Router, RouterParams};
use tracing::info;

use crate::address::{Allowed, Controllers};
use crate::arrivals::ArrivalLog;
use crate::client::Answered;
use crate::link::{Letter, Link};
use crate::meter::Meter;
use crate::metrics::{Page, count, routed};
use crate::node::Part;
use crate::peers::Peers;
use crate::security::Security;
use crate::{Error, clock};

/// Interval at which the owner repeats to its own router the operations that some replica lacks,
/// since the router may have forgotten them.
const DRIVE_AGAIN: DurationNs = DurationNs::millis(50);

pub(crate) type Reply<T> = SyncSender<Result<T, Error>>;

/// The requester of an operation, which is notified of the outcome.
pub(crate) trait Caller: Send + std::fmt::Debug + 'static {
    /// Takes the outcome. It is no error if the requester is gone.
    fn told(self, outcome: Result<Answered, Error>);
}

impl Caller for Reply<Answered> {
    fn told(self, outcome: Result<Answered, Error>) {
        let _ = self.send(outcome);
    }
}

/// What callers may look at.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) controller_heard: AtomicBool,
    pub(crate) unstable: AtomicU64,
    pub(crate) tails_unknown: AtomicU64,
}

impl Shared {
    /// Waits for the opening.
    ///
    /// # Errors
    ///
    /// [`Error::NoAnswer`] when nobody answers at the controller's address, [`Error::NotOpen`] when it
    /// took too long, [`Error::Refused`] when the controller refused, [`Error::Stopped`].
    pub(crate) fn opened(
        &self,
        told: &Receiver<Result<Epoch, Error>>,
        timeout: Duration,
        controllers: &Controllers,
    ) -> Result<Epoch, Error> {
        let waited_ms = timeout.as_millis();
        match told.recv_timeout(timeout) {
            Ok(opened) => opened,
            Err(RecvTimeoutError::Disconnected) => Err(Error::Stopped {
                part: "owner".to_owned(),
            }),
            Err(RecvTimeoutError::Timeout) if self.controller_heard.load(Ordering::Relaxed) => {
                Err(Error::NotOpen {
                    controllers: controllers.clone(),
                    waited_ms,
                })
            }
            Err(RecvTimeoutError::Timeout) => Err(Error::NoAnswer {
                controllers: controllers.clone(),
                waited_ms,
            }),
        }
    }
}

/// Whom an owner talks to.
#[derive(Debug)]
pub(crate) struct Ways {
    pub(crate) controllers: Allowed,
    /// Without one the router is inside.
    pub(crate) router: Option<SocketAddrV4>,
}

/// How an owner is made.
#[derive(Debug)]
pub(crate) struct OwnerParams {
    /// The sessions that it opens.
    pub(crate) sessions: Sessions,
    /// Random number that distinguishes this opening from others.
    pub(crate) nonce: u64,
    pub(crate) ways: Ways,
    /// Operations that it holds at most, answered ones that are not on every replica yet included: while
    /// a server is silent its copies are kept, until it is counted out.
    pub(crate) operations_max: usize,
    /// Bytes of these operations at most; beyond that, writes are refused.
    pub(crate) bytes_max: usize,
    /// Keys that it remembers at most; a forgotten one costs a question to all at its next use.
    pub(crate) keys_max: usize,
    pub(crate) copies_min: Option<u8>,
    /// Period of its report to the controller that it lives.
    pub(crate) heartbeat: DurationNs,
    /// Silence of the present owner after which it takes the session; zero takes it at once.
    pub(crate) timeout: DurationNs,
    /// See [`PortalParams::tells_first`].
    pub(crate) tells_first: bool,
    /// Servers that have each write that it acknowledges.
    pub(crate) copies: Copies,
    pub(crate) security: Security,
}

/// Who waits for an operation.
#[derive(Debug)]
struct Waiter<C> {
    wanted: MonoNs,
    level: Level,
    writes: bool,
    /// The router has it; it may be driven there again.
    routed: bool,
    caller: C,
}

/// Who waits for what.
#[derive(Debug)]
pub(crate) struct Calls<C> {
    waiting: BTreeMap<u64, Waiter<C>>,
    opening: Option<Reply<Epoch>>,
    closing: Option<Reply<()>>,
}

impl<C> Calls<C> {
    pub(crate) fn new(opening: Reply<Epoch>) -> Self {
        Self {
            waiting: BTreeMap::new(),
            opening: Some(opening),
            closing: None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Owner<C: Caller> {
    portal: Portal,
    router: Router,
    /// Without one the router is inside.
    router_at: Option<SocketAddrV4>,
    peers: Peers,
    calls: Calls<C>,
    fenced: Option<Epoch>,
    /// Places of sessions that others own now, until somebody asks for them.
    lost: Vec<(usize, Epoch)>,
    /// What the controller is asked at the start.
    question: Option<Control>,
    shared: Arc<Shared>,
    log: Option<Box<dyn ArrivalLog>>,
    meter: Option<Meter>,
    /// The time of earlier owners when it opened, and when that was.
    began: Option<(WallNs, MonoNs)>,
}

impl<C: Caller> Owner<C> {
    pub(crate) fn new(
        now: MonoNs,
        params: OwnerParams,
        calls: Calls<C>,
        shared: Arc<Shared>,
        log: Option<Box<dyn ArrivalLog>>,
    ) -> Self {
        let (ways, copies_min) = (params.ways, params.copies_min);
        let (in_flight_max, bytes_max) = (params.operations_max, params.bytes_max);
        let peers = Peers::new(ways.controllers, &params.security);
        let params = PortalParams {
            sessions: params.sessions,
            nonce: params.nonce,
            operations_max: params.operations_max,
            bytes_max: params.bytes_max,
            keys_max: params.keys_max,
            drive_again: ways.router.map(|_| DRIVE_AGAIN),
            heartbeat: Some(params.heartbeat),
            timeout: params.timeout,
            tells_first: params.tells_first,
            copies: params.copies,
        };
        let router = Router::new(RouterParams {
            log: log.is_some(),
            copies_min,
            in_flight_max,
            bytes_max,
            ..RouterParams::default()
        });
        Self {
            portal: Portal::new(now, params),
            router,
            router_at: ways.router,
            peers,
            calls,
            fenced: None,
            lost: Vec::new(),
            // Tells a controller that is not there from one that cannot open the session yet.
            question: Some(Control::StatusQuery),
            shared,
            log,
            meter: None,
            began: None,
        }
    }

    /// The owner's time, which expiry goes by: the wall clock, or the time of earlier owners and what
    /// has passed since, if this machine's clock is behind theirs.
    pub(crate) fn wall(&self, now: MonoNs) -> WallNs {
        let passed = |since: MonoNs| i64::try_from(now.since(since).0).unwrap_or(i64::MAX);
        let earlier = self
            .began
            .map(|(at, since)| at.0.saturating_add(passed(since)));
        let earlier = WallNs(earlier.unwrap_or(0)).max(self.portal.at());
        clock::wall().max(earlier)
    }

    /// Lets go of the session when every write is on every replica.
    pub(crate) fn close(&mut self, now: MonoNs, reply: Reply<()>) {
        if let Some(epoch) = self.fenced {
            let _ = reply.send(Err(Error::Fenced { epoch }));
            return;
        }
        self.calls.closing = Some(reply);
        self.portal.close(now);
    }

    /// Who owns the session now, when it is somebody else.
    pub(crate) fn fenced(&self) -> Option<Epoch> {
        self.fenced
    }

    /// Whether operations may be submitted.
    pub(crate) fn is_open(&self) -> bool {
        self.portal.is_open()
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.portal.epoch()
    }

    /// Every replica has every write up to this number.
    pub(crate) fn stable(&self) -> u64 {
        self.portal.stable_through()
    }

    /// The number of the last operation.
    pub(crate) fn last(&self) -> u64 {
        self.portal.last()
    }

    /// The sessions that it has.
    pub(crate) fn owned(&self) -> Vec<Owned> {
        self.portal.owned()
    }

    /// Returns the places among its sessions of those that others own since it was asked last.
    pub(crate) fn take_lost(&mut self) -> Vec<(usize, Epoch)> {
        std::mem::take(&mut self.lost)
    }

    /// As [`Self::stable`], as numbered on the wire.
    pub(crate) fn stable_on_the_wire(&self) -> Sequence {
        self.portal.stable_sequence()
    }

    pub(crate) fn config(&self) -> Option<&Arc<Config>> {
        self.router.config()
    }

    /// Asks a server something that is no operation.
    pub(crate) fn ask(&mut self, endpoint: Endpoint, question: Control, link: &mut Link) {
        let to = Destination::Server(endpoint);
        let question = Message::Control(question);
        self.peers.send(to, &question, self.router.config(), link);
    }

    /// Operations that are not answered, or not yet on every replica.
    pub(crate) fn held(&self) -> usize {
        self.portal.held()
    }

    /// Copies of each key, as far as there are servers for them. One that was counted out has none.
    pub(crate) fn copies(&self) -> usize {
        self.router.config().map_or(1, |config| {
            let there = config.members.iter().filter(|it| !it.gone).count();
            usize::from(config.replicas).min(there).max(1)
        })
    }

    /// Counts the outcomes of operations from now on.
    pub(crate) fn with_meter(mut self) -> Self {
        self.meter = Some(Meter::default());
        self
    }

    /// Tells how it and its router are.
    pub(crate) fn tell_of(&self, page: &mut Page) {
        routed(&self.router, page);
        let unstable = (
            "flurry_unstable_operations",
            "Operations that are not on every replica.",
        );
        page.gauge(unstable, &[], count(self.held()));
        let waiting = (
            "flurry_waiting_operations",
            "Operations that somebody waits for.",
        );
        page.gauge(waiting, &[], count(self.waiting()));
        if let Some(meter) = &self.meter {
            meter.report(page);
        }
    }

    /// Returns an error if this number of operations, with these bytes together, cannot be
    /// submitted at once. `writes` is true if some of them are writes.
    pub(crate) fn has_room_for(
        &self,
        operations: usize,
        writes: bool,
        bytes: usize,
    ) -> Result<(), Error> {
        let room = self.portal.has_room_for(operations, writes, bytes);
        room.map_err(Error::from)
    }

    /// Operations that callers wait for.
    pub(crate) fn waiting(&self) -> usize {
        self.calls.waiting.len()
    }

    /// No caller waits for an operation, for the opening or for the closing.
    pub(crate) fn is_waited_for_by_nobody(&self) -> bool {
        let Calls {
            waiting,
            opening,
            closing,
        } = &self.calls;
        waiting.is_empty() && opening.is_none() && closing.is_none()
    }

    /// Nothing more will come of anything.
    pub(crate) fn abandon(&mut self) {
        self.calls = Calls {
            waiting: BTreeMap::new(),
            opening: None,
            closing: None,
        };
    }

    /// Begins an operation; its number, unless it was refused.
    pub(crate) fn submit(
        &mut self,
        now: MonoNs,
        submission: Submission,
        wanted: MonoNs,
        caller: C,
    ) -> Option<u64> {
        let (level, writes) = (submission.level, submission.access != Access::Read);
        if level == Level::Disk && !self.has_disks() {
            caller.told(Err(Error::Refused {
                reason: "level: it is disk, and the servers keep nothing on one; wanted servers with disks; hint: flurry server --disk DIR, or another level".to_owned(),
            }));
            return None;
        }
        match self.portal.submit(now, submission) {
            Ok(sequence) => {
                let waiter = Waiter {
                    wanted,
                    level,
                    writes,
                    routed: false,
                    caller,
                };
                self.calls.waiting.insert(sequence, waiter);
                Some(sequence)
            }
            Err(error) => {
                caller.told(Err(error.into()));
                None
            }
        }
    }

    /// Returns whether any server has a disk.
    fn has_disks(&self) -> bool {
        let config = self.router.config();
        config.is_some_and(|config| config.everybody().any(|member| member.disk.is_some()))
    }

    /// From the portal to the router, which is inside.
    fn route(&mut self, now: MonoNs, copy: Copy) {
        let request = &copy.request;
        let (id, asks) = (request.id, matches!(request.ask, Ask::Apply { .. }));
        self.router.handle_request(now, 0, copy);
        if let Some(log) = self.log.as_mut().filter(|_| asks)
            && let Some(waiter) = self.calls.waiting.get_mut(&portal::number_of(id.sequence))
            && !std::mem::replace(&mut waiter.routed, true)
        {
            self.router.intended(id, waiter.wanted);
            log.asked(id.sequence);
        }
    }

    fn note_arrivals(&mut self) {
        if let Some(log) = &mut self.log {
            while let Some(arrival) = self.router.poll_arrival() {
                log.ended(&arrival);
            }
        }
    }

    fn told(&mut self, now: MonoNs, event: Event) {
        match event {
            Event::Opened(config, epoch) => {
                self.router.adopt(now, &config);
                self.began = Some((self.portal.at(), now));
                if let Some(opening) = self.calls.opening.take() {
                    let _ = opening.send(Ok(epoch));
                }
            }
            Event::Refused(reason) => {
                if let Some(opening) = self.calls.opening.take() {
                    let _ = opening.send(Err(Error::Refused { reason }));
                }
            }
            Event::StandsBy(epoch) => {
                info!(epoch = epoch.0, "standing by, since another owner lives");
            }
            Event::Answered(sequence, outcome) => {
                if let Outcome::Done {
                    tail_unknown: true, ..
                } = outcome
                {
                    self.shared.tails_unknown.fetch_add(1, Ordering::Relaxed);
                }
                if let Some(waiter) = self.calls.waiting.remove(&sequence) {
                    let took = Duration::from_nanos(now.since(waiter.wanted).0);
                    if let Some(meter) = &mut self.meter {
                        let write = waiter.writes.then_some(sequence);
                        meter.answered(now, waiter.level, &outcome, took, write);
                    }
                    waiter.caller.told(result(sequence, outcome, took));
                }
            }
            Event::Stable(sequence) => {
                if let Some(meter) = &mut self.meter {
                    meter.stable(now, sequence);
                }
            }
            Event::Closed => {
                if let Some(closing) = self.calls.closing.take() {
                    let _ = closing.send(Ok(()));
                }
            }
            Event::PartFenced(place, epoch) => self.lost.push((place, epoch)),
            Event::Fenced(epoch) => {
                self.fenced = Some(epoch);
                if let Some(closing) = self.calls.closing.take() {
                    let _ = closing.send(Err(Error::Fenced { epoch }));
                }
            }
        }
    }
}

fn result(sequence: u64, outcome: Outcome, took: Duration) -> Result<Answered, Error> {
    match outcome {
        Outcome::Done {
            answer,
            tail_unknown,
        } => Ok(Answered {
            sequence,
            answer,
            is_tail_unknown: tail_unknown,
            took,
        }),
        Outcome::Unknown => Err(Error::Unknown { waited_ms: 0 }),
        Outcome::TailUnknown => Err(Error::TailUnknown),
        Outcome::DataLoss { need, have } => Err(Error::DataLoss { need, have }),
        Outcome::Fenced(epoch) => Err(Error::Fenced { epoch }),
        Outcome::Busy => Err(Error::Busy),
        Outcome::TooFewCopies => Err(Error::TooFewCopies),
        Outcome::Evicted => Err(Error::Evicted),
        Outcome::Malformed => Err(Error::Refused {
            reason: "operation: the servers cannot read it; wanted one that they know; hint: are they of another version?".to_owned(),
        }),
    }
}

impl<C: Caller> Part for Owner<C> {
    fn message(&mut self, now: MonoNs, letter: Letter) {
        let Letter { message, stamp, .. } = letter;
        let from = letter.from.address;
        let is_controller = self.peers.is_controller(from);
        if is_controller {
            self.shared.controller_heard.store(true, Ordering::Relaxed);
        }
        match message {
            Message::Reply(_) | Message::Control(Control::Config(_)) => {
                let stamp = self.log.as_ref().map_or(0, |log| log.stamp(stamp).0);
                self.router.handle_message(now, message, stamp);
                if let Some(config) = self.router.config() {
                    self.portal.noticed(now, config);
                }
            }
            Message::Control(_) if is_controller => self.portal.handle_message(now, message),
            Message::Answer(_) if self.router_at == Some(from) => {
                self.portal.handle_message(now, message);
            }
            // The rest is for others.
            _ => {}
        }
    }

    fn clock_jumped(&mut self, now: MonoNs) {
        self.router.clock_jumped(now);
    }

    fn timeout(&mut self, now: MonoNs) {
        self.portal.handle_timeout(now);
        self.router.handle_timeout(now);
    }

    fn due(&self) -> MonoNs {
        let own = [self.portal.poll_timeout(), self.router.poll_timeout()];
        own.into_iter().flatten().min().unwrap_or(MonoNs(u64::MAX))
    }

    fn carry_out(&mut self, now: MonoNs, link: &mut Link) -> Result<(), Error> {
        if let Some(question) = self.question.take() {
            self.peers
                .tell_controllers(&Message::Control(question), link);
        }
        let mut idle = false;
        while !idle {
            idle = true;
            while let Some((to, message)) = self.portal.poll_send() {
                idle = false;
                match (to, message) {
                    (portal::Destination::Controller, message) => {
                        self.peers.tell_controllers(&message, link);
                    }
                    (portal::Destination::Router, Message::Request(copy)) => match self.router_at {
                        Some(router) => link.send(link.to(router), &Message::Request(copy)),
                        None => self.route(now, copy),
                    },
                    (portal::Destination::Router, _) => {}
                }
            }
            while let Some((to, message)) = self.router.poll_send() {
                idle = false;
                if matches!(to, Destination::Sender(_)) {
                    self.portal.handle_message(now, message);
                } else {
                    self.peers.send(to, &message, self.router.config(), link);
                }
            }
            while let Some(event) = self.portal.poll_event() {
                idle = false;
                self.told(now, event);
            }
        }
        let held = u64::try_from(self.portal.held()).unwrap_or(u64::MAX);
        self.shared.unstable.store(held, Ordering::Relaxed);
        self.note_arrivals();
        Ok(())
    }
}

impl<C: Caller> Drop for Owner<C> {
    /// What is still open is lost to the log.
    fn drop(&mut self) {
        self.router.close();
        self.note_arrivals();
    }
}
