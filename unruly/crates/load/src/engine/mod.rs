//! The engine sends each scheduled request at its scheduled time, and accounts for every copy
//! exactly once.
//!
//! It uses one thread and non-blocking connections, and never changes the schedule. If the thread
//! was stopped at a request's scheduled time, it sends the request as soon as it runs again and
//! keeps the scheduled time. A request that cannot be sent (no connection, too many in flight)
//! becomes a row with that reason. A timeout counts from the scheduled time. A later reply still
//! adds its arrival time to the row, unless its connection carries one request at a time and was
//! closed because of the timeout.

mod lanes;
mod links;
mod looks;
mod replies;
mod retries;
mod routes;
mod streams;
mod time_limits;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::io;

use unruly_trace::{
    Clock, ColumnNs, DurationNs, Level, MonoNs, NULL_NS, Record, Recorder, Requests, Status,
    monotonic,
};

use crate::bins::Bins;
use crate::link::{Link, Made, Place, RECEIVE_TIMEOUT_MS};
use crate::pending::{Asked, Pending, Slot};
use crate::poller::{EVENTS_MAX, Poller, Wake};
use crate::source::{Due, Source};
use crate::target::{FailOver, Operation, Outgoing, Target};
use crate::work::Work;
use lanes::{Lane, Pool, lanes};
use looks::Looks;
use retries::Retries;

/// Age at which an open copy is noted in the spool, so that a crash does not lose it.
const NOTE_AFTER: DurationNs = DurationNs::millis(500);

/// Interval at which the engine calls the control callback.
const CONTROL_PERIOD: DurationNs = DurationNs::seconds(1);

/// How long a receive waits at most.
const RECEIVE_WAIT: DurationNs = DurationNs::millis(RECEIVE_TIMEOUT_MS);

/// A receive may wait when nothing else is due for this long: twice what it waits at most.
const RECEIVE_CALM: DurationNs = DurationNs::millis(2 * RECEIVE_TIMEOUT_MS);

/// A request that is taken later from its schedule is late: less is the delay of any shared machine.
const LATE: DurationNs = DurationNs::millis(10);
/// The phase whose requests count.
const MEASURED: u8 = 1;

/// The session of a request that no user was free to make.
const NOBODY: usize = usize::MAX;
/// Requests sent before replies are looked at again: after a stop of ours all that was due is sent
/// at once, and a reply that waits for the last of it would be late by our doing.
const BURST_MAX: usize = 16;

/// Connections that are opened at once, and the pause until the next ones: 6,400 in a second.
const WAVE: usize = 64;
const WAVE_PAUSE: DurationNs = DurationNs::millis(10);

/// How long the connections may take that are still being made when the last was begun.
const CONNECT_WAIT: DurationNs = DurationNs::seconds(1);

/// Largest receive: a datagram, or several replies of a stream at once.
const RECEIVE_BYTES: usize = 128 << 10;

/// A peer that can be sent to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its number in the rows.
    pub id: u16,
    /// Where it is.
    pub place: Place,
}

/// What an engine needs to know.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Our number in the rows.
    pub client: u16,
    /// Index of the cell's name.
    pub cell: u16,
    /// Which repeat of the cell.
    pub repeat: u16,
    /// Which replies a request of a store waits for; a group says it of each request.
    pub level: Option<Level>,
    /// A reply that takes longer, counted from the intended time, is late.
    pub timeout_ns: DurationNs,
    /// For how long after the timeout a late reply is waited for.
    pub linger_ns: DurationNs,
    /// Copies in flight; one more is shed.
    pub in_flight: usize,
    /// How often a request of a store that failed is tried again.
    pub retries: u8,
    /// Count measured requests in bins as well, see [`Live`].
    pub bins: bool,
    /// Closer instants than this are spun for instead of slept for; 0 never spins.
    pub spin_ns: DurationNs,
    /// A program calls for us in a closed loop: a call is scheduled when the program makes it, so that
    /// the way to the program is no part of the response.
    pub caller_schedules: bool,
}

/// Whether to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// Go on.
    Continue,
    /// Send no request that was not sent yet, and wait for those that are open.
    Abandon,
    /// End the schedule now, wait for nothing, and account for the open copies.
    Stop,
}

/// A part of a request's time that the load generator knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Number of the server.
    pub server: u16,
    /// Number of the request.
    pub request: u64,
    /// The request's try.
    pub attempt: u8,
    /// What took the time.
    pub layer: Layer,
    /// When it began, in column time.
    pub started_ns: ColumnNs,
    /// When it ended.
    pub ended_ns: ColumnNs,
}

/// What took a part of a request's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// TCP connected. It counts for the first request that the connection carried.
    Connect,
    /// TLS agreed on its keys; counts like `Connect`.
    Tls,
    /// The first token of a reply came, counted from the scheduled time.
    FirstToken,
    /// Another token of a reply came, counted from the one before it.
    Token,
    /// The first message of a streamed reply came, counted from the scheduled time.
    FirstMessage,
    /// Another message of a streamed reply came, counted from the one before it.
    Message,
    /// A reply or a part of it was read, counted from when the load generator last looked, some
    /// milliseconds before: it may have come at any time in between.
    ReadDelay,
}

impl Layer {
    /// The name in the rows.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::FirstToken => "first token",
            Self::Token => "token",
            Self::FirstMessage => "first message",
            Self::Message => "message",
            Self::ReadDelay => "read delay",
        }
    }
}

/// The events since the last progress line.
#[derive(Debug, Clone, Default)]
pub struct Live {
    /// Response times of answered copies.
    pub responses_ns: Vec<DurationNs>,
    /// The longest send lag.
    pub lag_ns: DurationNs,
    /// Copies that did not end well, by the name of their status.
    pub failed: BTreeMap<&'static str, u64>,
    /// Copies that were sent and have not ended.
    pub open: usize,
    /// Measured requests by bin, where that was asked for.
    pub bins: Bins,
    /// Parts of requests that were met.
    pub parts: Vec<Part>,
}

/// Response times kept between two looks; a faster engine shows a sample of its first ones.
const LIVE_RESPONSES_MAX: usize = 4096;

/// Fail-overs that are kept: each is two events of the trace.
const FAIL_OVERS_MAX: usize = 10_000;

/// The counts of a finished engine; the recorder has those of the copies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What became of the requests, also of those that were never sent.
    pub requests: Requests,
    /// Replies that answered nothing that was open, and bytes that were no replies.
    pub strays: u64,
    /// Connections that were made after one before them had ended.
    pub reconnects: u64,
    /// Requests that were sent again, since a connection ended without a word of reply.
    pub resent: u64,
    /// Times that a place of the store sent a request on to another one.
    pub moved: u64,
    /// Requests that a program sent again to another server, the first [`FAIL_OVERS_MAX`] of them.
    pub fail_overs: Vec<FailOver>,
    /// Those beyond them.
    pub fail_overs_left: u64,
    /// What the other side complained of: how often by kind, and its first words.
    pub complaints: BTreeMap<&'static str, (u64, String)>,
}

/// Sends for one client.
pub struct Engine<'a> {
    options: EngineOptions,
    clock: Clock,
    recorder: &'a mut Recorder,
    peers: Vec<Peer>,
    links: Vec<Link>,
    /// Connections that are down, by when each is made again; an entry counts while that is its
    /// connection's time. Empty where each carries one request at a time: a request makes those.
    down: BinaryHeap<Reverse<(MonoNs, usize)>>,
    /// Connections that were begun, and when; an entry counts while that is its connection's time.
    beginnings: VecDeque<(MonoNs, usize)>,
    /// The connections again, where each carries one request at a time; empty where not.
    lanes: Vec<Lane>,
    pools: Vec<Pool>,
    /// A waiting request may find a connection by now.
    stirred: bool,
    /// What the bytes of each connection mean.
    targets: Vec<Box<dyn Target>>,
    /// Requests that wait for the next connection in the place of one.
    parked: Vec<(usize, Slot)>,
    work: Option<Work>,
    /// Connections of a client: more than one where each leads to a place with keys of its own.
    links_of_client: usize,
    pending: Pending,
    retries: Retries,
    poller: Poller,
    looks: Looks,
    /// Connections that the last look found ready: token, readable, writable.
    ready: Vec<(u64, bool, bool)>,
    scratch: Vec<u8>,
    control_space: Vec<u8>,
    next_request: u64,
    outcome: Outcome,
    live: Live,
    /// Requests that ended since the source was last told: session, instant, and whether with an answer.
    ended: Vec<(usize, MonoNs, bool)>,
    /// Connections with bytes that were queued since the last look.
    fresh: Vec<usize>,
}

impl std::fmt::Debug for Engine<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Engine")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl<'a> Engine<'a> {
    /// An engine with one connection to each of `peers`, in their order, each with its target. With
    /// `work` its sessions do that.
    ///
    /// # Errors
    ///
    /// When the process is out of file descriptors.
    pub fn new(
        options: EngineOptions,
        clock: Clock,
        recorder: &'a mut Recorder,
        peers: Vec<(Peer, Box<dyn Target>)>,
        work: Option<Work>,
    ) -> io::Result<Self> {
        let (peers, targets): (Vec<Peer>, Vec<_>) = peers.into_iter().unzip();
        let links = peers.iter().map(|peer| Link::new(peer.place.clone()));
        let (lanes, pools) = if targets.iter().any(|it| it.is_one_at_a_time()) {
            lanes(&peers)
        } else {
            Default::default()
        };
        let made_at_once = if lanes.is_empty() { peers.len() } else { 0 };
        let down = (0..made_at_once).map(|link| Reverse((MonoNs(0), link)));
        Ok(Self {
            options,
            clock,
            recorder,
            down: down.collect(),
            beginnings: VecDeque::new(),
            links: links.collect(),
            lanes,
            pools,
            stirred: false,
            peers,
            looks: Looks::new(work.is_some()),
            ready: Vec::new(),
            targets,
            parked: Vec::new(),
            links_of_client: work.as_ref().map_or(1, Work::links_of_client),
            work,
            pending: Pending::default(),
            retries: Retries::default(),
            poller: Poller::new()?,
            scratch: vec![0; RECEIVE_BYTES],
            control_space: vec![0; 256],
            next_request: 0,
            outcome: Outcome::default(),
            live: Live::default(),
            ended: Vec::new(),
            fresh: Vec::new(),
        })
    }

    /// A handle that makes the engine ask its control callback at once.
    #[must_use]
    pub fn waker(&self) -> Wake {
        self.poller.waker()
    }

    /// Opens the first `most` connections, so that the first request finds them. Many are opened in
    /// waves, since the line of a listening server is short.
    ///
    /// # Errors
    ///
    /// When the poller fails, which leaves nothing to go on with.
    pub fn connect(&mut self, most: usize) -> io::Result<()> {
        for link in 0..self.links.len().min(most) {
            if link > 0 && link % WAVE == 0 {
                self.serve_until(monotonic() + WAVE_PAUSE)?;
            }
            if self.lanes.is_empty() {
                self.try_connect(link);
            } else {
                self.open_lane(link);
            }
        }
        // Those that a distant or slow server has not taken by then are taken during the run.
        let until_ns = monotonic() + CONNECT_WAIT;
        let most = self.links.len().min(most);
        while self.links[..most].iter().any(Link::is_beginning) && monotonic() < until_ns {
            self.serve_ready(until_ns, false)?;
            self.flush_fresh();
        }
        Ok(())
    }

    /// Serves the connections until an instant, and sends no request.
    fn serve_until(&mut self, until_ns: MonoNs) -> io::Result<()> {
        while monotonic() < until_ns {
            self.serve_ready(until_ns, false)?;
            self.flush_fresh();
        }
        Ok(())
    }

    /// Sends until a schedule is over and nothing is open, or until `control` says stop. `control` is
    /// asked each second and at each wake-up. Another schedule may follow.
    ///
    /// # Errors
    ///
    /// When the poller fails, which leaves nothing to go on with.
    pub fn run(
        &mut self,
        source: &mut dyn Source,
        control: &mut dyn FnMut(&mut Live, &Recorder) -> Control,
    ) -> io::Result<()> {
        let mut next_control_ns = monotonic();
        loop {
            for (session, at_ns, answered) in self.ended.drain(..) {
                source.ended(session, at_ns, answered);
            }
            let now_ns = self.send_due(source);
            self.keep_time_limits(now_ns);
            self.reconnect(now_ns);
            self.give_up_beginnings(now_ns);
            self.try_again(now_ns);
            let idle = self.pending.open() == 0 && self.retries.is_empty();
            if idle && self.ended.is_empty() && source.is_over() {
                break;
            }
            if now_ns >= next_control_ns {
                next_control_ns = now_ns + CONTROL_PERIOD;
                self.live.open = self.pending.open();
                match control(&mut self.live, self.recorder) {
                    Control::Continue => {}
                    Control::Abandon => self.outcome.requests.unsent += source.abandon(),
                    Control::Stop => break,
                }
            }
            let due_ns = if self.ended.is_empty() {
                source.next_at_ns()
            } else {
                Some(now_ns)
            };
            if self.wait(now_ns, due_ns, next_control_ns)? {
                next_control_ns = MonoNs(0);
            }
        }
        self.account_for_open();
        Ok(())
    }

    /// What has come of the requests so far.
    #[must_use]
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// The numbers of the keys that were written.
    #[must_use]
    pub fn written(&self) -> Vec<u64> {
        self.work.as_ref().map_or_else(Vec::new, Work::written)
    }

    /// What has come since the last call of the control callback.
    pub fn take_live(&mut self) -> Live {
        self.live.open = self.pending.open();
        std::mem::take(&mut self.live)
    }

    /// The parts of requests since the last call of the control callback.
    pub fn take_parts(&mut self) -> Vec<Part> {
        std::mem::take(&mut self.live.parts)
    }

    /// Lets go of the connections.
    #[must_use]
    pub fn into_outcome(mut self) -> Outcome {
        let again = |link: &Link| u64::from(link.made.saturating_sub(1));
        self.outcome.reconnects = self.links.iter().map(again).sum();
        self.outcome
    }

    /// Sends scheduled requests while the recorder has room for their rows: a request that waits here is
    /// late, which its row says, and a row without room would be lost. Returns the time.
    fn send_due(&mut self, source: &mut dyn Source) -> MonoNs {
        let mut now_ns = monotonic();
        for _ in 0..BURST_MAX {
            let later = source.next_at_ns().is_none_or(|at_ns| at_ns > now_ns);
            if later || self.recorder.is_crowded() {
                break;
            }
            if let Some(due) = source.take() {
                self.dispatch(&due);
            }
            now_ns = monotonic();
        }
        self.flush_fresh();
        now_ns
    }

    /// Waits for the next thing. Returns whether it was woken for control.
    fn wait(
        &mut self,
        now_ns: MonoNs,
        due_ns: Option<MonoNs>,
        control_ns: MonoNs,
    ) -> io::Result<bool> {
        let mut until_ns = control_ns;
        let limit_ns = self.next_time_limit_ns();
        for at_ns in [
            due_ns,
            limit_ns,
            self.next_reconnect_ns(),
            self.next_beginning_ns(),
            self.retries.next_at_ns(),
        ]
        .into_iter()
        .flatten()
        {
            until_ns = until_ns.min(at_ns);
        }
        if until_ns - now_ns > RECEIVE_CALM && self.waits_for_one_link() {
            let until_ns = now_ns + RECEIVE_WAIT;
            self.read_link(0, Some((now_ns, until_ns)));
            return Ok(false);
        }
        let spin = due_ns.is_some_and(|due_ns| due_ns - now_ns < self.options.spin_ns);
        self.serve_ready(until_ns, spin)
    }

    /// Waits for connections that are ready, at most until an instant, and serves them. Returns whether
    /// it was woken for control.
    fn serve_ready(&mut self, until_ns: MonoNs, spin: bool) -> io::Result<bool> {
        let looks = self.looks.are_wanted();
        let began_ns = if looks { monotonic() } else { MonoNs(0) };
        let until_ns = self.looks.until(began_ns, until_ns);
        let mut ready = std::mem::take(&mut self.ready);
        let woken = self
            .poller
            .wait(Some(until_ns), spin, &mut |token, readable, writable| {
                ready.push((token, readable, writable));
            })?;
        if looks {
            // What does not fit is ready at the next call: the poller is level-triggered.
            let full = ready.len() + 2 >= EVENTS_MAX;
            let more = if full {
                1 + self.links.len() / EVENTS_MAX
            } else {
                0
            };
            self.looks.returned((began_ns, until_ns), monotonic(), more);
        }
        for (token, readable, writable) in ready.drain(..) {
            let link = usize::try_from(token).unwrap_or(usize::MAX);
            if link < self.links.len() {
                self.serve_link(link, readable, writable);
            }
        }
        self.ready = ready;
        Ok(woken)
    }

    /// Nothing but a reply on the only connection can come: waiting in the receive itself saves the
    /// poller's system call.
    fn waits_for_one_link(&self) -> bool {
        self.links.len() == 1
            && self.pending.open() > 0
            && self.links[0].is_open()
            && !self.links[0].has_queued()
    }

    fn dispatch(&mut self, due: &Due) {
        let request = self.next_request;
        self.next_request += 1;
        self.outcome.requests.scheduled += 1;
        let task = self
            .work
            .as_mut()
            .map(|work| work.next(due.session, due.step));
        let level = due.level.or(self.options.level);
        let session = match due.expired {
            true => NOBODY,
            false => due.session,
        };
        let group = self.pending.open_group(due.links.len(), due.level, session);
        for &link in &due.links {
            let link = self.link_of(link * self.links_of_client, task.as_ref(), request);
            let record = Record {
                intended_ns: self.clock.column(due.intended_ns),
                request,
                cell: self.options.cell,
                repeat: self.options.repeat,
                client: self.options.client,
                server: self.peers[link].id,
                connection: u32::try_from(link).unwrap_or(u32::MAX),
                op: task.map_or(due.op, |task| task.op()),
                key: task.and_then(|task| task.key),
                phase: due.phase,
                level,
                waited: due.waited,
                ..Record::empty()
            };
            let asked = Asked {
                record,
                ticket: request,
                link,
                group,
                task,
                intended_ns: due.intended_ns,
                since_ns: match due.waited {
                    true => monotonic(),
                    false => due.intended_ns,
                },
                part_ns: None,
                moves: 0,
                announced: false,
            };
            if due.expired {
                self.recorder.scheduled(asked.record.intended_ns);
                let status = Status::Timeout;
                self.finish(Record { status, ..record }, &asked);
            } else {
                self.submit(asked, due.flags, due.session);
            }
        }
    }

    /// Sends a copy, or writes down why it was not sent.
    fn submit(&mut self, asked: Asked, flags: u8, session: usize) {
        self.recorder.scheduled(asked.record.intended_ns);
        self.begin(asked, flags, session);
    }

    /// Puts a copy on its connection, or ends it.
    fn begin(&mut self, asked: Asked, flags: u8, session: usize) {
        let Asked { record, link, .. } = asked;
        let refused = if self.pending.open() >= self.options.in_flight {
            Some(Status::Shed)
        } else {
            self.refuses(link)
        };
        if let Some(status) = refused {
            self.held_back(&asked);
            self.finish(Record { status, ..record }, &asked);
            return;
        }
        let slot = self.pending.insert(asked);
        if self.targets[link].is_closing() {
            self.held_back(&asked);
            self.park(slot, link);
            self.renew(link);
        } else if self.lanes.is_empty() {
            self.write_out(slot, &asked, flags, session);
        } else {
            self.enter(slot, link);
        }
    }

    /// Counts a copy that cannot be sent at once, and notes whether it was late already. Its row
    /// cannot show that: the row has no send time, or one that includes the wait.
    fn held_back(&mut self, asked: &Asked) {
        // It has waited for its user already: no delay of ours.
        if asked.record.waited {
            return;
        }
        let late_ns = monotonic() - asked.intended_ns;
        self.live.lag_ns = self.live.lag_ns.max(late_ns);
        let first = asked.record.attempt == 0 && asked.record.phase == MEASURED;
        if first && late_ns > LATE {
            let requests = &mut self.outcome.requests;
            requests.late += 1;
            requests.late_max_ns = requests.late_max_ns.max(late_ns);
        }
    }

    /// Queues the bytes of a copy on its connection.
    fn write_out(&mut self, slot: Slot, asked: &Asked, flags: u8, session: usize) {
        let &Asked {
            ticket,
            link,
            task,
            intended_ns,
            ..
        } = asked;
        let operation = match (&mut self.work, &task) {
            (Some(work), Some(task)) => work.operation(task),
            _ => Operation::Call { flags },
        };
        let outgoing = Outgoing {
            request: ticket,
            number: asked.record.request,
            session,
            intended_ns,
            operation,
        };
        let target = &mut self.targets[link];
        let reports_sending = self.links[link].tells_when_sent();
        let mark = (!reports_sending).then_some(slot);
        let length = self.links[link].queue(mark, |out| {
            if asked.announced {
                target.announce(out);
            }
            target.encode(&outgoing, out);
        });
        if !reports_sending && let Some(copy) = self.pending.at(slot) {
            copy.asked.record.sent_bytes = length;
        }
        if self.targets[link].has_streams() {
            self.send_in_stream(slot, link);
        }
        self.fresh.push(link);
    }

    /// Sends the queued requests. All requests for one connection go in one call.
    fn flush_fresh(&mut self) {
        loop {
            self.serve_pools();
            let Some(link) = self.fresh.pop() else {
                break;
            };
            if self.links[link].has_queued() {
                self.flush(link);
            }
        }
    }

    fn flush(&mut self, link: usize) {
        let (pending, clock, live) = (&mut self.pending, &self.clock, &mut self.live);
        let mut first = None;
        let flushed = self.links[link].flush(&mut |slot, sent_ns| {
            if let Some(copy) = pending.at(slot) {
                let record = &mut copy.asked.record;
                first.get_or_insert((record.server, record.request, record.attempt));
                // One that is sent again keeps when it was sent first.
                let first_time = record.sent_ns == NULL_NS;
                if first_time {
                    record.sent_ns = clock.column(sent_ns);
                }
                if first_time && !record.waited && record.attempt == 0 {
                    live.lag_ns = live.lag_ns.max(sent_ns - copy.asked.intended_ns);
                }
            }
        });
        if let Some(first) = first
            && let Some(made) = self.links[link].take_times()
        {
            live.parts.extend(opening(clock, first, made));
        }
        if let Err(error) = flushed {
            self.fail_link(link, &error);
            return;
        }
        let wants = self.links[link].has_queued() || !self.links[link].is_open();
        if wants != self.links[link].watches_write {
            self.links[link].watches_write = wants;
            if let Some(socket) = self.links[link].socket() {
                let _ = self.poller.change(socket, link as u64, wants);
            }
        }
    }
}

/// The parts of opening a connection, for its first request: server, number and try.
fn opening(
    clock: &Clock,
    (server, request, attempt): (u16, u64, u8),
    made: Made,
) -> impl Iterator<Item = Part> {
    let part = move |layer, started_ns, ended_ns| Part {
        server,
        request,
        attempt,
        layer,
        started_ns: clock.column(started_ns),
        ended_ns: clock.column(ended_ns),
    };
    let connected_ns = made.connected_ns;
    let tcp = connected_ns.map(|at_ns| part(Layer::Connect, made.began_ns, at_ns));
    let tls = connected_ns.zip(made.secured_ns);
    let tls = tls.map(|(from_ns, at_ns)| part(Layer::Tls, from_ns, at_ns));
    tcp.into_iter().chain(tls)
}
