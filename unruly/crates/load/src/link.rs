//! One connection: non-blocking, reconnecting with back-off, with bytes queued while it cannot send.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, send};
use socket2::{Domain, SockAddr, Socket, Type};
use unruly_plan::Secret;
use unruly_trace::{DurationNs, ErrorKind, MonoNs, Status, monotonic};

use crate::pending::Slot;
use crate::socket::{enable_stamps, set_buffers};
use crate::tls::{Tls, TlsClient};

/// Where the password of a store is, which no plan and no command holds.
pub const PASSWORD: &str = "UNRULY_PASSWORD";

/// First pause before a reconnect; doubles up to the maximum.
const BACKOFF_MIN: DurationNs = DurationNs::millis(20);
const BACKOFF_MAX: DurationNs = DurationNs::seconds(2);
/// How long a program may take to end after its input, and how often it is looked at meanwhile.
const PROGRAM_ENDS: DurationNs = DurationNs::seconds(2);
const PROGRAM_LOOK: Duration = Duration::from_millis(5);

/// Holds a second of backlog at 10,000 small messages a second with the kernel's bookkeeping.
const SOCKET_BUFFER_BYTES: usize = 16 << 20;

/// How long a receive that waits takes at most: what a wake-up from another thread waits for.
pub(crate) const RECEIVE_TIMEOUT_MS: i64 = 10;

/// Where a connection leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A TCP server.
    Stream(SocketAddr),
    /// A TCP server that speaks TLS.
    Secure(SocketAddr, TlsClient),
    /// A TCP server that speaks TLS when both sides have agreed on it in the clear.
    Upgraded(SocketAddr, TlsClient),
    /// A UDP server.
    Datagram(SocketAddr),
    /// A program that is started for it, by the shell, and speaks on its standard input and output.
    Program {
        /// The shell command.
        command: String,
        /// The store's password. The program gets it in its environment, which the user who starts
        /// `unruly` can read anyway.
        password: Option<Secret>,
    },
    /// A process on this host that sends the requests for us, at this Unix-domain socket. It
    /// reports its own send times.
    Local(PathBuf),
    /// A loop back to the sender, which receives its own bytes.
    Own,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream(address)
            | Self::Secure(address, _)
            | Self::Upgraded(address, _)
            | Self::Datagram(address) => address.fmt(formatter),
            Self::Program { command, .. } => formatter.pad(command),
            Self::Local(path) => path.display().fmt(formatter),
            Self::Own => formatter.pad("this process"),
        }
    }
}

impl Place {
    /// True if somebody is there who can be met before a run. Nobody answers a datagram that
    /// contains no request.
    pub(crate) fn can_be_met(&self) -> bool {
        matches!(
            self,
            Self::Stream(_) | Self::Secure(..) | Self::Upgraded(..) | Self::Program { .. }
        )
    }
}

#[derive(Debug)]
enum State {
    Connecting(Socket),
    Open(Socket),
    Down { until_ns: MonoNs, status: Status },
}

/// When a connection to a server was made, monotonic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) began_ns: MonoNs,
    /// `None` until TCP has connected.
    pub(crate) connected_ns: Option<MonoNs>,
    /// `None` until TLS has its keys, and without TLS.
    pub(crate) secured_ns: Option<MonoNs>,
}

/// A message whose first byte is not yet with the kernel.
#[derive(Debug, Clone, Copy)]
struct Mark {
    start: u64,
    /// `None` is a greeting.
    slot: Option<Slot>,
}

/// A connection to one peer.
#[derive(Debug)]
pub(crate) struct Link {
    place: Place,
    state: State,
    program: Option<Child>,
    tls: Option<Tls>,
    /// Messages that wait until TLS is ready.
    held: Vec<(Option<Slot>, Vec<u8>)>,
    backoff_ns: DurationNs,
    /// When it was last begun.
    began_ns: MonoNs,
    /// Bytes for the kernel, from `head` on.
    out: Vec<u8>,
    head: usize,
    queued: u64,
    written: u64,
    marks: VecDeque<Mark>,
    /// The beginning of a reply whose rest has not come.
    pub(crate) partial: Vec<u8>,
    /// Whether the poller watches for room to write.
    pub(crate) watches_write: bool,
    /// How often the connection was made.
    pub(crate) made: u32,
    /// The times of the present connection, until somebody takes them.
    times: Option<Made>,
}

impl Link {
    pub(crate) fn new(place: Place) -> Self {
        Self {
            place,
            program: None,
            tls: None,
            held: Vec::new(),
            state: State::Down {
                until_ns: MonoNs(0),
                status: Status::Error(ErrorKind::Disconnected),
            },
            backoff_ns: BACKOFF_MIN,
            began_ns: MonoNs(0),
            out: Vec::new(),
            head: 0,
            queued: 0,
            written: 0,
            marks: VecDeque::new(),
            partial: Vec::new(),
            watches_write: false,
            made: 0,
            times: None,
        }
    }

    /// The socket, while there is one.
    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            State::Connecting(socket) | State::Open(socket) => Some(socket.as_fd()),
            State::Down { .. } => None,
        }
    }

    /// When to try again; `None` while there is a socket.
    pub(crate) fn retry_at_ns(&self) -> Option<MonoNs> {
        match self.state {
            State::Down { until_ns, .. } => Some(until_ns),
            _ => None,
        }
    }

    /// What a copy that is due now becomes without a connection; `None` when it can be queued.
    pub(crate) fn refuses(&self) -> Option<Status> {
        match self.state {
            State::Down { status, .. } => Some(status),
            _ => None,
        }
    }

    /// True while TCP connects, or TLS agrees on its keys.
    pub(crate) fn is_beginning(&self) -> bool {
        let by_tls = matches!(self.place, Place::Secure(..) | Place::Upgraded(..));
        let agreed = self.tls.as_ref().is_some_and(Tls::is_ready);
        self.is_connecting() || (self.is_open() && by_tls && !agreed)
    }

    pub(crate) fn is_connecting(&self) -> bool {
        matches!(self.state, State::Connecting(_))
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// True if a message that is queued now can be sent now: the connection is open, and TLS has
    /// agreed on its keys.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_open() && self.tls.as_ref().is_none_or(Tls::is_ready)
    }

    /// True if the bytes of the connection are encrypted.
    pub(crate) fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    pub(crate) fn is_stream(&self) -> bool {
        !matches!(self.place, Place::Datagram(_) | Place::Own)
    }

    /// Whether the other end says when it sent what it was given.
    pub(crate) fn tells_when_sent(&self) -> bool {
        matches!(self.place, Place::Local(_))
    }

    /// When this connection began, while TCP connects, or TLS agrees on its keys.
    pub(crate) fn beginning_ns(&self) -> Option<MonoNs> {
        self.is_beginning().then_some(self.began_ns)
    }

    /// Starts to connect.
    pub(crate) fn connect(&mut self) -> io::Result<()> {
        self.began_ns = monotonic();
        let (socket, address) = match &self.place {
            Place::Stream(address) | Place::Upgraded(address, _) => {
                let socket = new_socket(*address, Type::STREAM)?;
                (socket, Some(SockAddr::from(*address)))
            }
            Place::Secure(address, client) => {
                self.tls = Some(Tls::new(client)?);
                let socket = new_socket(*address, Type::STREAM)?;
                (socket, Some(SockAddr::from(*address)))
            }
            Place::Datagram(address) => {
                let socket = new_socket(*address, Type::DGRAM)?;
                (socket, Some(SockAddr::from(*address)))
            }
            Place::Local(path) => {
                let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
                prepare(&socket)?;
                (socket, Some(SockAddr::unix(path)?))
            }
            Place::Own => {
                let socket = new_socket(OWN, Type::DGRAM)?;
                socket.bind(&OWN.into())?;
                let own = socket.local_addr()?;
                (socket, Some(own))
            }
            Place::Program { command, password } => {
                let (socket, theirs) = Socket::pair(Domain::UNIX, Type::STREAM, None)?;
                prepare(&socket)?;
                self.program = Some(start(command, password.as_ref(), theirs)?);
                (socket, None)
            }
        };
        if matches!(
            self.place,
            Place::Stream(_) | Place::Secure(..) | Place::Upgraded(..)
        ) {
            self.times = Some(Made {
                began_ns: monotonic(),
                connected_ns: None,
                secured_ns: None,
            });
        }
        let connected = address.map_or(Ok(()), |address| socket.connect(&address));
        match connected {
            Ok(()) => {
                socket.set_nonblocking(false)?;
                self.state = State::Open(socket);
                self.connected();
                // One that is there at once is there; of a datagram that says nothing.
                if matches!(self.place, Place::Local(_)) {
                    self.backoff_ns = BACKOFF_MIN;
                }
            }
            Err(error) if error.raw_os_error() == Some(Errno::EINPROGRESS as i32) => {
                self.state = State::Connecting(socket);
            }
            Err(error) => return Err(error),
        }
        self.go_on_with_tls()
    }

    /// Speaks TLS from the next byte on.
    pub(crate) fn start_tls(&mut self) -> io::Result<()> {
        if let Place::Upgraded(_, client) = &self.place {
            self.tls = Some(Tls::new(client)?);
        }
        self.go_on_with_tls()
    }

    /// The socket of a connecting link became writable: connected, or refused.
    pub(crate) fn finish_connect(&mut self) -> io::Result<()> {
        let State::Connecting(socket) = &self.state else {
            return Ok(());
        };
        if let Some(error) = socket.take_error()? {
            return Err(error);
        }
        // From here on each call says whether it waits.
        socket.set_nonblocking(false)?;
        if let State::Connecting(socket) = std::mem::replace(
            &mut self.state,
            State::Down {
                until_ns: MonoNs(0),
                status: Status::Error(ErrorKind::Disconnected),
            },
        ) {
            self.state = State::Open(socket);
            self.connected();
            // A server by TLS is there when the handshake has ended.
            if !matches!(self.place, Place::Secure(..) | Place::Upgraded(..)) {
                self.backoff_ns = BACKOFF_MIN;
            }
        }
        Ok(())
    }

    fn connected(&mut self) {
        self.made += 1;
        if let Some(times) = &mut self.times {
            times.connected_ns = Some(monotonic());
        }
    }

    /// The times of the present connection, the first time that they are asked for.
    pub(crate) fn take_times(&mut self) -> Option<Made> {
        self.times.take()
    }

    /// Closes the connection after a failure. Returns what becomes of its open copies.
    pub(crate) fn fail(&mut self, error: &io::Error, now_ns: MonoNs) -> Status {
        let refused = error.kind() == io::ErrorKind::ConnectionRefused;
        let now = match error.kind() {
            io::ErrorKind::ConnectionRefused => Status::Refused,
            // It never was one.
            io::ErrorKind::TimedOut => Status::Error(ErrorKind::Disconnected),
            _ => Status::Error(ErrorKind::Reset),
        };
        let later = if refused {
            now
        } else {
            Status::Error(ErrorKind::Disconnected)
        };
        self.state = State::Down {
            until_ns: now_ns + self.backoff_ns,
            status: later,
        };
        self.backoff_ns = (self.backoff_ns * 2).min(BACKOFF_MAX);
        self.end_program();
        self.clear();
        now
    }

    /// Closes the connection, which did not fail: it may be opened again at once.
    pub(crate) fn close(&mut self) {
        self.state = State::Down {
            until_ns: MonoNs(0),
            status: Status::Error(ErrorKind::Disconnected),
        };
        self.clear();
    }

    fn clear(&mut self) {
        self.out.clear();
        self.partial.clear();
        self.marks.clear();
        (self.tls, self.held) = (None, Vec::new());
        self.times = None;
        (self.head, self.queued, self.written) = (0, 0, 0);
        self.watches_write = false;
    }

    fn end_program(&mut self) {
        if let Some(mut program) = self.program.take() {
            // It may have ended already; either way it is waited for.
            let _ = program.kill();
            let _ = program.wait();
        }
    }

    /// Queues a message; `encode` appends its bytes. Returns its length, which with TLS is that before
    /// it is encrypted.
    pub(crate) fn queue(&mut self, slot: Option<Slot>, encode: impl FnOnce(&mut Vec<u8>)) -> u32 {
        self.queue_with(|out| {
            encode(out);
            slot
        })
    }

    /// The same where `encode` says whose message it is.
    pub(crate) fn queue_with(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> Option<Slot>) -> u32 {
        if self.tls.is_some() {
            let mut message = Vec::new();
            let slot = encode(&mut message);
            let length = message.len();
            if length > 0 {
                self.held.push((slot, message));
                // What TLS cannot send now fails with the connection, which says why.
                let _ = self.go_on_with_tls();
            }
            return u32::try_from(length).unwrap_or(u32::MAX);
        }
        let before = self.out.len();
        let slot = encode(&mut self.out);
        let length = self.out.len() - before;
        if length == 0 {
            return 0;
        }
        self.marks.push_back(Mark {
            start: self.queued,
            slot,
        });
        self.queued += length as u64;
        u32::try_from(length).unwrap_or(u32::MAX)
    }

    /// Takes received bytes of a connection by TLS, and appends what they hold for the target. Returns
    /// true if the peer said that no more will come.
    pub(crate) fn decrypt(
        &mut self,
        wire: &[u8],
        received_ns: MonoNs,
        message: &mut Vec<u8>,
    ) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else {
            return Ok(false);
        };
        let ended = tls.decrypt(wire, message);
        if tls.is_ready() {
            self.backoff_ns = BACKOFF_MIN;
            if let Some(times) = &mut self.times {
                times.secured_ns.get_or_insert(received_ns);
            }
        }
        // TLS has an alert for the peer after an error, too.
        self.go_on_with_tls()?;
        ended
    }

    /// Queues what TLS has to say, and the held messages when it is ready.
    fn go_on_with_tls(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            return Ok(());
        };
        let before = self.out.len();
        tls.drain(&mut self.out)?;
        self.queued += (self.out.len() - before) as u64;
        if !tls.is_ready() {
            return Ok(());
        }
        for (slot, message) in self.held.drain(..) {
            let before = self.out.len();
            tls.encrypt(&message, &mut self.out)?;
            let start = self.queued;
            self.marks.push_back(Mark { start, slot });
            self.queued += (self.out.len() - before) as u64;
        }
        Ok(())
    }

    /// Bytes wait for the kernel.
    pub(crate) fn has_queued(&self) -> bool {
        self.head < self.out.len()
    }

    /// Hands over what the kernel takes; `sent(slot, instant)` for each message whose first byte
    /// went, with the instant before the call that took it.
    pub(crate) fn flush(&mut self, sent: &mut dyn FnMut(Slot, MonoNs)) -> io::Result<()> {
        let is_stream = self.is_stream();
        let State::Open(socket) = &mut self.state else {
            return Ok(());
        };
        while self.head < self.out.len() {
            // A datagram socket takes one message at a time.
            let end = match self.marks.get(1) {
                Some(next) if !is_stream => {
                    self.head + usize::try_from(next.start - self.written).unwrap_or(0)
                }
                _ => self.out.len(),
            };
            let now_ns = monotonic();
            let bytes = &self.out[self.head..end];
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            let taken = match send(socket.as_raw_fd(), bytes, flags) {
                Ok(taken) => taken,
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            self.head += taken;
            self.written += taken as u64;
            while let Some(mark) = self.marks.front().filter(|mark| mark.start < self.written) {
                if let Some(slot) = mark.slot {
                    sent(slot, now_ns);
                }
                self.marks.pop_front();
            }
        }
        self.out.clear();
        self.head = 0;
        Ok(())
    }
}

impl Drop for Link {
    /// Closes the connection. A program ends when its input does, and removes what it made; one that
    /// does not end in time is killed.
    fn drop(&mut self) {
        if self.program.is_none() {
            return;
        }
        self.close();
        let until_ns = monotonic() + PROGRAM_ENDS;
        while monotonic() < until_ns {
            match self.program.as_mut().map(Child::try_wait) {
                Some(Ok(None)) => std::thread::sleep(PROGRAM_LOOK),
                _ => break,
            }
        }
        self.end_program();
    }
}

/// Where a socket that leads to itself is bound.
const OWN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn new_socket(address: SocketAddr, kind: Type) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, None)?;
    if kind == Type::STREAM {
        socket.set_tcp_nodelay(true)?;
    }
    prepare(&socket)?;
    Ok(socket)
}

fn prepare(socket: &Socket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    // A host without stamps gives rows without them; the trace says so.
    let _ = enable_stamps(socket.as_fd());
    set_buffers(socket.as_fd(), SOCKET_BUFFER_BYTES);
    socket.set_read_timeout(Some(Duration::from_millis(
        RECEIVE_TIMEOUT_MS.unsigned_abs(),
    )))
}

/// Starts a program whose standard input and output are one socket: it ends with us, by the end of its input.
fn start(command: &str, password: Option<&Secret>, socket: Socket) -> io::Result<Child> {
    let output = OwnedFd::from(socket.try_clone()?);
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", &format!("exec {command}")])
        .envs(password.map(|it| (PASSWORD, it.reveal())))
        .stdin(OwnedFd::from(socket))
        .stdout(output);
    shell.spawn()
}
