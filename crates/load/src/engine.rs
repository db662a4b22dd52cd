//! The engine: sends what is due when it is due, and accounts for every copy exactly once.
//!
//! One thread, non-blocking connections. The schedule is never bent: a request that is due while we
//! were stopped is sent as soon as we run again, with its intended time; one that cannot be sent
//! (no connection, too many in flight) is a row that says so. A timeout counts from the intended
//! time, and a reply that comes later still fills in when it came.

use std::io;
use std::net::SocketAddr;

use unruly_plan::Transport;
use unruly_trace::{
    Clock, ErrorKind, MonoNs, NULL_NS, Record, Recorder, Requests, Status, monotonic,
};

use crate::link::{Link, RECEIVE_PATIENCE_MS};
use crate::pending::{Patience, Pending, Slot};
use crate::poller::{Poller, Wake};
use crate::socket::{receive, receive_waiting};
use crate::source::{Due, Source};
use crate::target::{GREETING, Outgoing, Target};

/// A copy that is open for so long is noted in the spool: a crash must not forget it.
const NOTE_AFTER_NS: i64 = 500_000_000;

/// How often the control callback is asked.
const CONTROL_PERIOD_NS: i64 = 1_000_000_000;

/// A receive may wait when nothing else is due for this long: twice what it waits at most.
const RECEIVE_CALM_NS: i64 = 2_000_000 * RECEIVE_PATIENCE_MS;

/// Requests sent before replies are looked at again: after a stop of ours all that was due is sent
/// at once, and a reply that waits for the last of it would be late by our doing.
const BURST_MAX: usize = 16;

/// Largest receive: a datagram, or several replies of a stream at once.
const RECEIVE_BYTES: usize = 128 << 10;

/// A peer that can be sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its number in the rows.
    pub id: u16,
    /// Where it listens.
    pub address: SocketAddr,
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
    /// TCP or UDP.
    pub transport: Transport,
    /// A reply that takes longer, counted from the intended time, is late.
    pub timeout_ns: i64,
    /// For how long after the timeout a late reply is waited for.
    pub linger_ns: i64,
    /// Copies in flight; one more is shed.
    pub in_flight: usize,
    /// Closer instants than this are spun for instead of slept for; 0 never spins.
    pub spin_ns: i64,
}

/// Whether to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// Go on.
    Continue,
    /// End the schedule now, wait for nothing, and account for what is open.
    Stop,
}

/// What happened since the last look, for the live line.
#[derive(Debug, Clone, Default)]
pub struct Live {
    /// Response times of answered copies, ns.
    pub responses_ns: Vec<i64>,
    /// The longest send lag, ns.
    pub lag_ns: i64,
    /// Copies that did not end well.
    pub failed: u64,
}

/// Response times kept between two looks; a faster engine shows a sample of its first ones.
const LIVE_RESPONSES_MAX: usize = 4096;

/// The counts of a finished engine; the recorder has those of the copies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What became of the requests.
    pub requests: Requests,
    /// Replies that answered nothing that was open, and bytes that were no replies.
    pub strays: u64,
}

/// Sends for one client.
pub struct Engine<'a> {
    options: EngineOptions,
    clock: Clock,
    target: &'a mut dyn Target,
    recorder: &'a mut Recorder,
    peers: Vec<Peer>,
    links: Vec<Link>,
    pending: Pending,
    poller: Poller,
    scratch: Vec<u8>,
    control_space: Vec<u8>,
    next_request: u64,
    outcome: Outcome,
    live: Live,
    /// Requests that ended since the source was last told: link and instant.
    ended: Vec<(usize, i64)>,
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
    /// An engine with one connection to each of `peers`, in their order.
    ///
    /// # Errors
    ///
    /// When the process is out of file descriptors.
    pub fn new(
        options: EngineOptions,
        clock: Clock,
        target: &'a mut dyn Target,
        recorder: &'a mut Recorder,
        peers: Vec<Peer>,
    ) -> io::Result<Self> {
        let links = peers
            .iter()
            .map(|peer| Link::new(peer.address, options.transport))
            .collect();
        Ok(Self {
            options,
            clock,
            target,
            recorder,
            peers,
            links,
            pending: Pending::default(),
            poller: Poller::new()?,
            scratch: vec![0; RECEIVE_BYTES],
            control_space: vec![0; 256],
            next_request: 0,
            outcome: Outcome::default(),
            live: Live::default(),
            ended: Vec::new(),
        })
    }

    /// A handle that makes the engine ask its control callback at once.
    #[must_use]
    pub fn waker(&self) -> Wake {
        self.poller.waker()
    }

    /// Opens the connections, so that the first request finds them.
    pub fn connect(&mut self) {
        for link in 0..self.links.len() {
            self.try_connect(link);
        }
    }

    /// Sends until the schedule is over and nothing is open, or until `control` says stop. `control`
    /// is asked each second and at each wake-up.
    ///
    /// # Errors
    ///
    /// When the poller fails, which leaves nothing to go on with.
    pub fn run(
        mut self,
        source: &mut dyn Source,
        control: &mut dyn FnMut(&mut Live, &Recorder) -> Control,
    ) -> io::Result<Outcome> {
        let mut next_control_ns = monotonic().0;
        loop {
            for (link, at_ns) in self.ended.drain(..) {
                source.ended(link, at_ns);
            }
            let now_ns = self.send_due(source);
            self.keep_patience(now_ns);
            self.reconnect(now_ns);
            if self.ended.is_empty() && source.is_over() && self.pending.open() == 0 {
                break;
            }
            if now_ns >= next_control_ns {
                next_control_ns = now_ns + CONTROL_PERIOD_NS;
                if control(&mut self.live, self.recorder) == Control::Stop {
                    break;
                }
            }
            let due_ns = if self.ended.is_empty() {
                source.next_at_ns()
            } else {
                Some(now_ns)
            };
            if self.wait(now_ns, due_ns, next_control_ns)? {
                next_control_ns = 0;
            }
        }
        self.account_for_open();
        Ok(self.outcome)
    }

    /// Sends what is due. Returns the time.
    fn send_due(&mut self, source: &mut dyn Source) -> i64 {
        let mut now_ns = monotonic().0;
        for _ in 0..BURST_MAX {
            if source.next_at_ns().is_none_or(|at_ns| at_ns > now_ns) {
                break;
            }
            if let Some(due) = source.take() {
                self.dispatch(&due);
            }
            now_ns = monotonic().0;
        }
        now_ns
    }

    /// Waits for the next thing. Returns whether it was woken for control.
    fn wait(&mut self, now_ns: i64, due_ns: Option<i64>, control_ns: i64) -> io::Result<bool> {
        let mut until_ns = control_ns;
        for at_ns in [due_ns, self.next_patience_ns(), self.next_reconnect_ns()]
            .into_iter()
            .flatten()
        {
            until_ns = until_ns.min(at_ns);
        }
        if until_ns - now_ns > RECEIVE_CALM_NS && self.waits_for_one_link() {
            self.read_link(0, true);
            return Ok(false);
        }
        let spin = due_ns.is_some_and(|due_ns| due_ns - now_ns < self.options.spin_ns);
        let mut ready = [(0_u64, false, false); 64];
        let mut count = 0;
        // What does not fit here is still ready at the next call: the poller is level-triggered.
        let woken = self
            .poller
            .wait(Some(until_ns), spin, &mut |token, readable, writable| {
                if count < ready.len() {
                    ready[count] = (token, readable, writable);
                    count += 1;
                }
            })?;
        for (token, readable, writable) in ready.into_iter().take(count) {
            let link = usize::try_from(token).unwrap_or(usize::MAX);
            if link < self.links.len() {
                self.serve_link(link, readable, writable);
            }
        }
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
        let group = self.pending.open_group(due.links.len(), due.level);
        for &link in &due.links {
            self.recorder.scheduled();
            let record = Record {
                intended_ns: self.clock.column(MonoNs(due.intended_ns)),
                request,
                cell: self.options.cell,
                repeat: self.options.repeat,
                client: self.options.client,
                server: self.peers[link].id,
                connection: u32::try_from(link).unwrap_or(u32::MAX),
                op: due.op,
                phase: due.phase,
                level: due.level,
                ..Record::empty()
            };
            let refused = if self.pending.open() >= self.options.in_flight {
                Some(Status::Shed)
            } else {
                self.links[link].refuses()
            };
            if let Some(status) = refused {
                self.finish(&Record { status, ..record }, link, group);
                continue;
            }
            let slot = self.pending.insert(record, link, group, due.intended_ns);
            self.send(slot, link, request, due.flags);
        }
    }

    fn send(&mut self, slot: Slot, link: usize, request: u64, flags: u8) {
        let (client, server) = (self.options.client, self.peers[link].id);
        let outgoing = Outgoing {
            request,
            client,
            server,
            flags,
        };
        let target = &mut self.target;
        let length = self.links[link].queue(Some(slot), |out| target.encode(outgoing, out));
        if let Some(copy) = self.pending.at(slot) {
            copy.record.sent_bytes = length;
        }
        self.flush(link);
    }

    fn flush(&mut self, link: usize) {
        let (pending, clock, live) = (&mut self.pending, &self.clock, &mut self.live);
        let flushed = self.links[link].flush(&mut |slot, sent_ns| {
            if let Some(copy) = pending.at(slot) {
                copy.record.sent_ns = clock.column(MonoNs(sent_ns));
                live.lag_ns = live.lag_ns.max(sent_ns - copy.intended_ns);
            }
        });
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

    fn serve_link(&mut self, link: usize, readable: bool, writable: bool) {
        if writable {
            if let Err(error) = self.links[link].finish_connect() {
                self.fail_link(link, &error);
                return;
            }
            self.flush(link);
        }
        if readable && self.links[link].is_open() {
            self.read_link(link, false);
        }
    }

    fn read_link(&mut self, link: usize, wait: bool) {
        let Some(socket) = self.links[link].socket() else {
            return;
        };
        let receive = if wait { receive_waiting } else { receive };
        let received = match receive(socket, &mut self.scratch, &mut self.control_space) {
            Ok(received) => received,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                return;
            }
            Err(error) => return self.fail_link(link, &error),
        };
        let received_ns = monotonic();
        if received.bytes == 0 && self.links[link].is_stream() {
            return self.fail_link(link, &io::Error::from(io::ErrorKind::ConnectionReset));
        }
        let kernel_ns = self
            .clock
            .column_of_kernel_stamp(received.stamp)
            .unwrap_or(NULL_NS);
        let mut bytes = std::mem::take(&mut self.links[link].partial);
        let scratch = std::mem::take(&mut self.scratch);
        let fresh = &scratch[..received.bytes];
        let whole = if bytes.is_empty() {
            fresh
        } else {
            bytes.extend_from_slice(fresh);
            &bytes[..]
        };
        let used = self.decode_all(link, whole, received_ns, kernel_ns);
        match used {
            Ok(used) if self.links[link].is_stream() => {
                self.links[link].partial = whole[used..].to_vec();
            }
            // A datagram is one message; what is left of it is noise.
            Ok(used) => self.outcome.strays += u64::from(used < whole.len()),
            Err(error) if self.links[link].is_stream() => {
                self.outcome.strays += 1;
                self.fail_link(link, &error);
            }
            Err(_) => self.outcome.strays += 1,
        }
        self.scratch = scratch;
    }

    fn decode_all(
        &mut self,
        link: usize,
        bytes: &[u8],
        received_ns: MonoNs,
        kernel_ns: i64,
    ) -> io::Result<usize> {
        let mut used = 0;
        while used < bytes.len() {
            let decoded = self.target.decode(&bytes[used..]);
            let incoming = match decoded {
                Ok(Some(incoming)) => incoming,
                Ok(None) => break,
                Err(error) => {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
            };
            used += incoming.bytes;
            if incoming.request == GREETING {
                continue;
            }
            let found = self.pending.find(incoming.request, incoming.server);
            let Some(slot) =
                found.filter(|slot| self.pending.at(*slot).is_some_and(|copy| copy.link == link))
            else {
                self.outcome.strays += 1;
                continue;
            };
            let Some(copy) = self.pending.remove(slot) else {
                continue;
            };
            let stamp = |stamp_ns: i64| if stamp_ns == 0 { NULL_NS } else { stamp_ns };
            let record = Record {
                received_ns: self.clock.column(received_ns),
                kernel_received_ns: kernel_ns,
                server_kernel_received_ns: stamp(incoming.server_kernel_received_ns),
                server_received_ns: stamp(incoming.server_received_ns),
                server_sent_ns: stamp(incoming.server_sent_ns),
                received_bytes: u32::try_from(incoming.bytes).unwrap_or(u32::MAX),
                status: if copy.timed_out {
                    Status::Timeout
                } else {
                    Status::Ok
                },
                ..copy.record
            };
            if copy.timed_out {
                // Its request has ended already; only the row was open.
                self.recorder.record(&record);
                self.pending.release(copy.group);
            } else {
                self.finish(&record, copy.link, copy.group);
            }
        }
        Ok(used)
    }

    /// A copy ends here: the row is written and its request hears of it.
    fn finish(&mut self, record: &Record, link: usize, group: u32) {
        let ok = record.status == Status::Ok;
        let ended = self.pending.end(group, ok);
        self.recorder.record(&Record {
            answered: ended.answers,
            ..*record
        });
        self.pending.release(group);
        if ok && self.live.responses_ns.len() < LIVE_RESPONSES_MAX {
            self.live
                .responses_ns
                .push(record.received_ns - record.intended_ns);
        }
        self.live.failed += u64::from(!ok);
        self.request_over(link, ended.request_over);
    }

    fn request_over(&mut self, link: usize, over: Option<bool>) {
        let Some(answered) = over else { return };
        self.outcome.requests.answered += u64::from(answered);
        self.outcome.requests.unanswered += u64::from(!answered);
        // A closed loop asks again when it was answered, or when there is someone to ask.
        let again_ns = self.links[link].retry_at_ns().unwrap_or(0);
        self.ended.push((link, again_ns.max(monotonic().0)));
    }

    fn delay_ns(&self, patience: Patience) -> i64 {
        match patience {
            Patience::Note => NOTE_AFTER_NS,
            Patience::Timeout => self.options.timeout_ns,
            Patience::Linger => self.options.timeout_ns + self.options.linger_ns,
        }
    }

    fn next_patience_ns(&mut self) -> Option<i64> {
        [Patience::Note, Patience::Timeout, Patience::Linger]
            .into_iter()
            .filter_map(|patience| {
                let delay_ns = self.delay_ns(patience);
                self.pending
                    .first(patience)
                    .map(|(_, intended_ns)| intended_ns + delay_ns)
            })
            .min()
    }

    fn keep_patience(&mut self, now_ns: i64) {
        for patience in [Patience::Note, Patience::Timeout, Patience::Linger] {
            let delay_ns = self.delay_ns(patience);
            while let Some((slot, intended_ns)) = self.pending.first(patience) {
                if intended_ns + delay_ns > now_ns {
                    break;
                }
                self.pending.pop(patience);
                match patience {
                    Patience::Note => self.note(slot),
                    Patience::Timeout => self.time_out(slot),
                    Patience::Linger => self.give_up(slot),
                }
            }
        }
    }

    fn note(&mut self, slot: Slot) {
        let Some(copy) = self.pending.at(slot) else {
            return;
        };
        let status = if copy.timed_out {
            Status::Timeout
        } else {
            Status::Unfinished
        };
        let noted = self.recorder.note_open(&Record {
            status,
            ..copy.record
        });
        copy.record.supersedes = noted;
    }

    fn time_out(&mut self, slot: Slot) {
        let Some(link) = self.pending.at(slot).map(|copy| copy.link) else {
            return;
        };
        let Some(ended) = self.pending.time_out(slot) else {
            return;
        };
        self.live.failed += 1;
        self.request_over(link, ended.request_over);
    }

    fn give_up(&mut self, slot: Slot) {
        let Some(copy) = self.pending.remove(slot) else {
            return;
        };
        self.recorder.record(&Record {
            status: Status::Timeout,
            ..copy.record
        });
        self.pending.release(copy.group);
    }

    /// The run is over: what timed out is a timeout, what is open is unfinished.
    fn account_for_open(&mut self) {
        for slot in self.pending.all(None) {
            if self.pending.at(slot).is_some_and(|copy| copy.timed_out) {
                self.give_up(slot);
            } else if let Some(copy) = self.pending.remove(slot) {
                let record = Record {
                    status: Status::Unfinished,
                    ..copy.record
                };
                self.finish(&record, copy.link, copy.group);
            }
        }
    }

    fn fail_link(&mut self, link: usize, error: &io::Error) {
        if let Some(socket) = self.links[link].socket() {
            self.poller.remove(socket);
        }
        let protocol = error.kind() == io::ErrorKind::InvalidData;
        let mut status = self.links[link].fail(error, monotonic().0);
        if protocol {
            status = Status::Error(ErrorKind::Protocol);
        }
        for slot in self.pending.all(Some(link)) {
            if self.pending.at(slot).is_some_and(|copy| copy.timed_out) {
                self.give_up(slot);
            } else if let Some(copy) = self.pending.remove(slot) {
                self.finish(
                    &Record {
                        status,
                        ..copy.record
                    },
                    copy.link,
                    copy.group,
                );
            }
        }
    }

    fn next_reconnect_ns(&self) -> Option<i64> {
        self.links.iter().filter_map(Link::retry_at_ns).min()
    }

    fn reconnect(&mut self, now_ns: i64) {
        for link in 0..self.links.len() {
            if self.links[link]
                .retry_at_ns()
                .is_some_and(|at_ns| at_ns <= now_ns)
            {
                self.try_connect(link);
            }
        }
    }

    fn try_connect(&mut self, link: usize) {
        if let Err(error) = self.links[link].connect() {
            return self.fail_link(link, &error);
        }
        let (client, server) = (self.options.client, self.peers[link].id);
        let target = &mut self.target;
        self.links[link].queue(None, |out| target.greet(client, server, out));
        self.links[link].watches_write = true;
        let Some(socket) = self.links[link].socket() else {
            return;
        };
        if let Err(error) = self.poller.add(socket, link as u64, true) {
            self.fail_link(link, &error);
        }
    }
}
