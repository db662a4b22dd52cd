//! How a part's thread reaches the others: datagrams, connections, queues, and the faults between.

mod encoded;
mod local;
mod outbox;
mod peer;
mod seal;
mod stream;
mod window;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flurry_core::id::{DurationNs, MonoNs};
use flurry_core::message::{Control, Message};
use flurry_core::wire::{DATAGRAM_BYTES_MAX, Unpack};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use unruly_time::WallNs;
use unruly_time::stamp::{enable_stamps, receive};

use crate::Error;
use crate::clock::{self, JumpWatch};
use crate::fault::{Direction, Fault, Faults, Injector};
use crate::security::Security;
use encoded::Encoded;
use local::Mailbox;
use outbox::{Outbox, Sent};
pub use peer::Transport;
pub(crate) use peer::{Peer, Way};
use seal::{Refused, Seal};
use stream::{Damaged, Streams};

/// No datagram is longer.
const RECEIVE_BYTES: usize = 64 << 10;

/// Room for the kernel's stamp of a datagram.
const CONTROL_BYTES: usize = 128;

/// What the kernel may keep for us: a burst of the largest values. It may grant less.
const SOCKET_BYTES: usize = 4 << 20;

/// The longest wait at once, so that no mistake in an instant can stop a node for good.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// How often the kernel is asked for another port.
const BIND_TRIES: u32 = 32;

/// Peers that have something too long for a datagram, remembered at most.
const STREAMING_MAX: usize = 1_024;

/// What a part's sockets have counted since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Messages received.
    pub received: u64,
    /// What was no message: dropped, and a connection that it came by closed.
    pub damaged: u64,
    /// What was not sealed with the cluster's key, or not for here: dropped.
    pub foreign: u64,
    /// What was sealed too long ago, or had come before: dropped.
    pub replayed: u64,
    /// Messages sent.
    pub sent: u64,
    /// Number of answers too long for a datagram. The requester was asked to use TCP instead.
    pub too_long: u64,
    /// Messages that could not be handed over: lost, as on a network.
    pub not_taken: u64,
}

#[derive(Debug, Default)]
struct Counters {
    received: AtomicU64,
    damaged: AtomicU64,
    foreign: AtomicU64,
    replayed: AtomicU64,
    sent: AtomicU64,
    too_long: AtomicU64,
    not_taken: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A view of a link's counts from another thread.
#[derive(Debug, Clone)]
pub(crate) struct LinkView(Arc<Counters>);

impl LinkView {
    pub(crate) fn counts(&self) -> LinkCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        LinkCounts {
            received: read(&self.0.received),
            damaged: read(&self.0.damaged),
            foreign: read(&self.0.foreign),
            replayed: read(&self.0.replayed),
            sent: read(&self.0.sent),
            too_long: read(&self.0.too_long),
            not_taken: read(&self.0.not_taken),
        }
    }
}

/// A message that came.
#[derive(Debug)]
pub(crate) struct Letter {
    pub(crate) from: Peer,
    pub(crate) message: Message,
    /// When the kernel had it, by its wall clock; 0 is not known.
    pub(crate) stamp: WallNs,
}

/// Which sources may have something.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ready {
    datagrams: bool,
    streams: bool,
    woken: bool,
    clients: bool,
}

/// Waits for a link's sources, without the link.
#[derive(Debug)]
pub(crate) struct Waiter {
    socket: OwnedFd,
    streams: OwnedFd,
    wake: Wake,
    /// What the part of this thread waits for beside its link.
    clients: Option<OwnedFd>,
}

impl Waiter {
    /// Waits for a message, for a call of [`Wake`], or for `left` to pass.
    pub(crate) fn wait(&self, left: Duration) -> Ready {
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        // The last stands in for clients where there are none.
        let wake = self.wake.0.as_fd();
        let mut waited = [
            readable(self.socket.as_fd()),
            readable(self.streams.as_fd()),
            readable(wake),
            readable(self.clients.as_ref().map_or(wake, OwnedFd::as_fd)),
        ];
        let used = if self.clients.is_some() { 4 } else { 3 };
        // A signal ends the wait early, which is no harm.
        let _ = ppoll(
            &mut waited[..used],
            Some(TimeSpec::from_duration(left.min(WAIT_MAX))),
            None,
        );
        let [datagrams, streams, woken, clients] = waited.map(|it| it.any().unwrap_or(false));
        Ready {
            datagrams,
            streams,
            woken,
            clients,
        }
    }
}

/// A datagram that is being read.
#[derive(Debug)]
struct Opened {
    from: SocketAddrV4,
    stamp: WallNs,
    messages: Unpack,
}

/// The sockets of one thread, all of the loopback network.
#[derive(Debug)]
pub(crate) struct Link {
    socket: UdpSocket,
    address: SocketAddrV4,
    transport: Transport,
    streams: Streams,
    /// Who said that what we ask for is too long for a datagram.
    streaming: BTreeSet<SocketAddrV4>,
    mailbox: Arc<Mailbox>,
    wake: Wake,
    waiter: Arc<Waiter>,
    ready: Ready,
    injector: Option<Injector>,
    /// What messages are sealed with; without one they go as they are.
    seal: Option<Seal>,
    input: Vec<u8>,
    control: Vec<u8>,
    /// The rest of the datagram that came last.
    opened: Opened,
    output: Encoded,
    outbox: Outbox,
    counters: Arc<Counters>,
    clocks: JumpWatch,
}

impl Link {
    /// Listens at `address` for datagrams, connections and parts of this process.
    pub(crate) fn listen(
        address: SocketAddr,
        stamps: bool,
        security: &Security,
    ) -> Result<Self, Error> {
        Self::open(
            security.allow(address)?,
            true,
            Transport::Udp,
            stamps,
            security,
        )
    }

    /// Listens nowhere; starts what it says by `transport`, from the address that reaches `toward`.
    pub(crate) fn dial(
        transport: Transport,
        stamps: bool,
        toward: SocketAddrV4,
        security: &Security,
    ) -> Result<Self, Error> {
        let own = SocketAddrV4::new(own_address(toward)?, 0);
        Self::open(own, false, transport, stamps, security)
    }

    fn open(
        address: SocketAddrV4,
        listens: bool,
        transport: Transport,
        stamps: bool,
        security: &Security,
    ) -> Result<Self, Error> {
        let seal = security.key.as_ref().map(Seal::new).transpose()?;
        let (socket, streams) = bind(address, listens)?;
        let options = socket2::SockRef::from(&socket);
        // Less than asked for only means more losses, which are repaired.
        let _ = options.set_recv_buffer_size(SOCKET_BYTES);
        let _ = options.set_send_buffer_size(SOCKET_BYTES);
        if stamps {
            // Without stamps a hop is not known, and everything else is as it was.
            let _ = enable_stamps(socket.as_fd());
        }
        let address = bound(&socket)?;
        let wake = Wake::new()?;
        let copy = |fd: BorrowedFd<'_>| {
            let copied = fd.try_clone_to_owned();
            copied.map_err(|error| Error::io("socket", "a descriptor to wait with", &error))
        };
        let waiter = Waiter {
            socket: copy(socket.as_fd())?,
            streams: copy(streams.as_fd())?,
            wake: wake.clone(),
            clients: None,
        };
        Ok(Self {
            clocks: JumpWatch::default(),
            waiter: Arc::new(waiter),
            socket,
            address,
            transport,
            streams,
            streaming: BTreeSet::new(),
            mailbox: Mailbox::open(address, wake.clone()),
            wake,
            ready: Ready {
                datagrams: true,
                streams: true,
                woken: true,
                clients: true,
            },
            injector: None,
            seal,
            input: vec![0; RECEIVE_BYTES],
            control: vec![0; CONTROL_BYTES],
            opened: Opened {
                from: address,
                stamp: WallNs(0),
                messages: Unpack::default(),
            },
            output: Encoded::default(),
            outbox: Outbox::default(),
            counters: Arc::default(),
        })
    }

    /// Injects these faults from now on. `stream` is a different number for each thread of one
    /// part.
    pub(crate) fn with_faults(mut self, faults: &Faults, stream: u64) -> Self {
        if !faults.is_none() {
            self.injector = Some(Injector::new(clock::now(), faults.clone(), stream));
        }
        self
    }

    /// Does this to every message of one operation too.
    pub(crate) fn add_fault(&mut self, number: u64, fault: Fault) {
        let none = || Injector::new(clock::now(), Faults::default(), number);
        let injector = self.injector.get_or_insert_with(none);
        injector.add_operation(number, fault);
    }

    pub(crate) fn address(&self) -> SocketAddrV4 {
        self.address
    }

    pub(crate) fn view(&self) -> LinkView {
        LinkView(Arc::clone(&self.counters))
    }

    pub(crate) fn wake(&self) -> &Wake {
        &self.wake
    }

    /// Somebody who listens, reached the way that this link starts conversations.
    pub(crate) fn to(&self, address: SocketAddrV4) -> Peer {
        Peer::listening(self.transport, address)
    }

    /// Whether this machine slept since it was last asked.
    pub(crate) fn clocks(&mut self) -> &mut JumpWatch {
        &mut self.clocks
    }

    /// What waits for this link without it.
    pub(crate) fn waiter(&self) -> Arc<Waiter> {
        Arc::clone(&self.waiter)
    }

    /// How long to wait at most: not at all when something is here already.
    pub(crate) fn wait_limit(&self, left: DurationNs) -> Duration {
        let opened = self.opened.messages.is_empty();
        if opened && self.mailbox.is_empty() && self.streams.is_empty() {
            Duration::from_nanos(left.0)
        } else {
            Duration::ZERO
        }
    }

    /// Looks at these sources from now on.
    pub(crate) fn look_at(&mut self, ready: Ready) {
        self.ready = Ready {
            streams: ready.streams || !self.streams.is_empty(),
            ..ready
        };
    }

    /// Looks where messages come from, whether something is there or not; the rest can wait for a sleep.
    pub(crate) fn look_for_messages(&mut self) {
        let by_streams = self.transport == Transport::Tcp || !self.streaming.is_empty();
        self.ready = Ready {
            datagrams: self.transport != Transport::InProcess,
            streams: by_streams || !self.streams.is_empty(),
            woken: false,
            clients: true,
        };
    }

    /// Looks at all sources, whether something is there or not.
    pub(crate) fn look_at_all(&mut self) {
        self.ready = Ready {
            datagrams: true,
            streams: true,
            woken: true,
            clients: true,
        };
    }

    /// Waits for this too, which is readable when the part of this thread should look at it.
    pub(crate) fn with_clients(mut self, clients: OwnedFd) -> Self {
        let waiter = Arc::get_mut(&mut self.waiter);
        if let Some(waiter) = waiter {
            waiter.clients = Some(clients);
        }
        self
    }

    /// Whether the part should look at what it waits for beside the link.
    pub(crate) fn take_clients(&mut self) -> bool {
        std::mem::take(&mut self.ready.clients)
    }

    /// Waits for a message, for a call of [`Wake`], or for `left` to pass.
    pub(crate) fn wait(&mut self, left: DurationNs) {
        self.flush();
        let ready = self.waiter.wait(self.wait_limit(left));
        self.look_at(ready);
    }

    /// Hears of what somebody called [`Wake`] for.
    pub(crate) fn take_wake(&mut self) {
        if std::mem::take(&mut self.ready.woken) {
            self.wake.take();
        }
    }

    /// How long faults want this thread to do nothing.
    pub(crate) fn pause(&mut self, now: MonoNs) -> Option<Duration> {
        self.injector.as_mut()?.pause(now)
    }

    /// When faults want something done.
    pub(crate) fn due(&self) -> Option<MonoNs> {
        let injector = self.injector.as_ref()?;
        [injector.next(), injector.next_pause()]
            .into_iter()
            .flatten()
            .min()
    }

    /// The next message; `None` when there is none now.
    pub(crate) fn receive(&mut self) -> Option<Letter> {
        self.send_held();
        loop {
            if let Some(letter) = self.held() {
                return Some(letter);
            }
            let letter = self.next()?;
            count(&self.counters.received);
            if let Message::Control(Control::UseStream) = letter.message {
                self.stream_to(letter.from);
                continue;
            }
            let Some(injector) = &mut self.injector else {
                return Some(letter);
            };
            let direction = Direction::Receiving;
            injector.take(clock::now(), direction, &letter);
        }
    }

    /// What faults kept from us until now.
    fn held(&mut self) -> Option<Letter> {
        let injector = self.injector.as_mut()?;
        while let Some(held) = injector.due(clock::now(), Direction::Receiving) {
            if held.corrupt {
                count(&self.counters.damaged);
                continue;
            }
            return Some(Letter {
                from: held.peer,
                message: held.message,
                stamp: held.stamp,
            });
        }
        None
    }

    /// Sends what faults have held back until now.
    pub(crate) fn send_held(&mut self) {
        let due = |injector: &mut Injector| injector.due(clock::now(), Direction::Sending);
        while let Some(held) = self.injector.as_mut().and_then(due) {
            self.hand_over(held.peer, &held.message, held.corrupt);
        }
    }

    fn next(&mut self) -> Option<Letter> {
        if let Some((address, message)) = self.mailbox.take() {
            let way = Way::Local;
            return Some(Letter {
                from: Peer { way, address },
                message,
                stamp: WallNs(0),
            });
        }
        if let Some(letter) = self.datagram() {
            return Some(letter);
        }
        while self.ready.streams {
            match self.streams.take(&mut self.seal) {
                Some(Ok((from, message))) => {
                    return Some(Letter {
                        from,
                        message,
                        stamp: WallNs(0),
                    });
                }
                Some(Err(Damaged::Message)) => count(&self.counters.damaged),
                Some(Err(Damaged::Seal(Refused::Foreign))) => count(&self.counters.foreign),
                Some(Err(Damaged::Seal(Refused::Replayed))) => count(&self.counters.replayed),
                None => self.ready.streams = false,
            }
        }
        None
    }

    /// The next message that came in a datagram.
    fn datagram(&mut self) -> Option<Letter> {
        loop {
            match self.opened.messages.next() {
                Some(Ok(message)) => {
                    return Some(Letter {
                        from: Peer {
                            way: Way::Return,
                            address: self.opened.from,
                        },
                        message,
                        stamp: self.opened.stamp,
                    });
                }
                Some(Err(_)) => count(&self.counters.damaged),
                None => self.open_datagram()?,
            }
        }
    }

    fn open_datagram(&mut self) -> Option<()> {
        while self.ready.datagrams {
            let found = receive(self.socket.as_fd(), &mut self.input, &mut self.control);
            let Ok(found) = found else {
                self.ready.datagrams = false;
                break;
            };
            let Some(SocketAddr::V4(from)) = found.from else {
                count(&self.counters.damaged);
                continue;
            };
            let datagram = &mut self.input[..found.bytes];
            let opened = match &mut self.seal {
                None => Ok(&*datagram),
                Some(seal) => seal.open(self.address, datagram),
            };
            match opened {
                Ok(messages) => {
                    self.opened = Opened {
                        from,
                        stamp: found.stamp,
                        messages: Unpack::new(messages),
                    };
                    return Some(());
                }
                Err(Refused::Foreign) => count(&self.counters.foreign),
                Err(Refused::Replayed) => count(&self.counters.replayed),
            }
        }
        None
    }

    fn stream_to(&mut self, peer: Peer) {
        if self.streaming.len() < STREAMING_MAX {
            self.streaming.insert(peer.address);
        }
    }

    /// Sends a message; one that goes as a datagram leaves with the next [`Self::flush`].
    pub(crate) fn send(&mut self, to: Peer, message: &Message) {
        let Some(injector) = &mut self.injector else {
            return self.hand_over(to, message, false);
        };
        let letter = Letter {
            from: to,
            message: message.clone(),
            stamp: WallNs(0),
        };
        injector.take(clock::now(), Direction::Sending, &letter);
        self.send_held();
    }

    fn hand_over(&mut self, to: Peer, message: &Message, corrupt: bool) {
        let sent = if to.way == Way::Local {
            // A damaged one would be noticed and dropped there.
            one(!corrupt && Mailbox::send(to.address, self.address, message.clone()))
        } else {
            self.output.put(message);
            if corrupt {
                self.output.damage();
            }
            self.hand_bytes(to)
        };
        self.count_sent(sent);
    }

    fn hand_bytes(&mut self, to: Peer) -> Sent {
        let is_datagram = matches!(to.way, Way::Datagram | Way::Return);
        if !is_datagram || self.streaming.contains(&to.address) {
            return one(self.streams.send(to, self.output.bytes(), &mut self.seal));
        }
        if self.output.bytes().len() > DATAGRAM_BYTES_MAX {
            if to.way == Way::Datagram {
                return one(self.streams.send(to, self.output.bytes(), &mut self.seal));
            }
            // Whoever asked listens nowhere, and has to open the connection.
            count(&self.counters.too_long);
            self.output.put(&Message::Control(Control::UseStream));
        }
        self.outbox.put(
            &self.socket,
            &mut self.seal,
            to.address,
            self.output.bytes(),
        )
    }

    /// Lets the datagrams go that wait for the end of the turn.
    pub(crate) fn flush(&mut self) {
        let sent = self.outbox.flush(&self.socket, &mut self.seal);
        self.count_sent(sent);
    }

    fn count_sent(&self, sent: Sent) {
        let add = |counter: &AtomicU64, more| counter.fetch_add(more, Ordering::Relaxed);
        add(&self.counters.sent, sent.taken);
        add(&self.counters.not_taken, sent.not_taken);
    }
}

fn one(is_taken: bool) -> Sent {
    Sent {
        taken: u64::from(is_taken),
        not_taken: u64::from(!is_taken),
    }
}

fn bound(socket: &UdpSocket) -> Result<SocketAddrV4, Error> {
    let failed = |error: &dyn std::fmt::Display| Error::io("socket", "to know its address", &error);
    match socket.local_addr() {
        Ok(SocketAddr::V4(address)) => Ok(address),
        Ok(other) => Err(failed(&other)),
        Err(error) => Err(failed(&error)),
    }
}

/// Returns the address of this machine from which `toward` is reached. A sealed message is bound to
/// this address, so it must be a specific one.
fn own_address(toward: SocketAddrV4) -> Result<Ipv4Addr, Error> {
    if toward.ip().is_loopback() {
        return Ok(Ipv4Addr::LOCALHOST);
    }
    let failed = |error: std::io::Error| Error::io(toward, "a way to there", &error);
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(failed)?;
    socket.connect(toward).map_err(failed)?;
    bound(&socket).map(|address| *address.ip())
}

/// Returns a socket for datagrams, and a listener for connections at the same port.
fn bind(wanted: SocketAddrV4, listens: bool) -> Result<(UdpSocket, Streams), Error> {
    let failed = |error: std::io::Error| Error::io(wanted, "to listen there", &error);
    for attempt in 0.. {
        let socket = UdpSocket::bind(wanted).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        match Streams::new(bound(&socket)?, listens) {
            Ok(streams) => return Ok((socket, streams)),
            // The kernel chose a port that is free for datagrams alone; the next one may do.
            Err(_) if wanted.port() == 0 && attempt < BIND_TRIES => {}
            Err(error) => return Err(error),
        }
    }
    unreachable!("the last attempt returns")
}

/// What another thread wakes a node with.
#[derive(Debug, Clone)]
pub(crate) struct Wake(Arc<EventFd>);

impl Wake {
    pub(crate) fn new() -> Result<Self, Error> {
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        EventFd::from_value_and_flags(0, flags)
            .map(|event| Self(Arc::new(event)))
            .map_err(|error| Error::io("eventfd", "a descriptor to wake a thread with", &error))
    }

    pub(crate) fn call(&self) {
        // It only fails when there are calls enough already.
        let _ = self.0.write(1);
    }

    /// Forgets the calls since the last time.
    pub(crate) fn take(&self) {
        // There may have been none.
        let _ = self.0.read();
    }
}
