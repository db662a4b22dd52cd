//! Messages over TCP connections: a length of four bytes, little-endian, then the message.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes, BytesMut};
use flurry_core::message::Message;
use flurry_core::wire::{MESSAGE_BYTES_MAX, cut_frame, decode, take_frame};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use socket2::{Domain, Socket, Type};

use super::seal::{Refused, SEAL_BYTES, Seal};
use super::{Peer, Way};
use crate::Error;

/// Connections at most, a file descriptor each; beyond that the longest silent one has to go.
const CONNECTIONS_MAX: usize = 1_024;

/// Bytes that wait for one reader at most; what does not fit is lost, as on a network.
const OUTPUT_BYTES_MAX: usize = 8 << 20;

/// Time after which the link closes a connection whose peer reads nothing although messages wait
/// for it.
const STUCK_MAX: Duration = Duration::from_secs(5);

/// An address that refused is left alone for so long.
const DIAL_AGAIN: Duration = Duration::from_millis(20);

const READ_BYTES: usize = 64 << 10;
const EVENTS_MAX: usize = 64;

/// What the listening socket is called beside the connections' addresses.
const LISTENER: u64 = u64::MAX;

#[derive(Debug)]
struct Connection {
    socket: TcpStream,
    /// The other side opened it.
    accepted: bool,
    /// The local address of the connection, to which sealed packets are bound.
    own: Option<SocketAddrV4>,
    input: BytesMut,
    output: BytesMut,
    /// Waits for room in the kernel.
    waits: bool,
    /// When it last took or gave something.
    heard: Instant,
}

/// Bytes that could not be used: the connection that they came by is closed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Damaged {
    /// It was no message.
    Message,
    /// It was not sealed as it should.
    Seal(Refused),
}

/// What came by a connection.
pub(super) type Came = Result<(Peer, Message), Damaged>;

/// The connections of one part.
#[derive(Debug)]
pub(super) struct Streams {
    epoll: Epoll,
    /// The local address from which connections are opened, so that a peer that checks addresses
    /// recognises the part.
    own: Ipv4Addr,
    listener: Option<TcpListener>,
    connections: BTreeMap<SocketAddrV4, Connection>,
    refused: BTreeMap<SocketAddrV4, Instant>,
    came: VecDeque<Came>,
    buffer: Vec<u8>,
}

impl Streams {
    /// Opens connections from `own`; listens there when told to.
    pub(super) fn new(own: SocketAddrV4, listens: bool) -> Result<Self, Error> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(|error| Error::io("epoll", "a descriptor to wait with", &error))?;
        let listener = listens.then(|| bind(own)).transpose();
        let listener =
            listener.map_err(|error| Error::io(own, "to listen there over TCP too", &error))?;
        if let Some(listener) = &listener {
            epoll
                .add(
                    listener.as_fd(),
                    EpollEvent::new(EpollFlags::EPOLLIN, LISTENER),
                )
                .map_err(|error| Error::io("epoll", "to watch a socket", &error))?;
        }
        Ok(Self {
            epoll,
            own: *own.ip(),
            listener,
            connections: BTreeMap::new(),
            refused: BTreeMap::new(),
            came: VecDeque::new(),
            buffer: vec![0; READ_BYTES],
        })
    }

    /// Readable when there is something to do.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    /// Nothing has come whole that was not taken.
    pub(super) fn is_empty(&self) -> bool {
        self.came.is_empty()
    }

    /// The next message that has come whole.
    pub(super) fn take(&mut self, seal: &mut Option<Seal>) -> Option<Came> {
        if self.came.is_empty() {
            self.look(seal);
        }
        self.came.pop_front()
    }

    /// Hands a message over; says whether there was a way and room for it.
    pub(super) fn send(&mut self, to: Peer, message: &[u8], seal: &mut Option<Seal>) -> bool {
        if !self.connections.contains_key(&to.address)
            && (to.way == Way::Back || !self.dial(to.address))
        {
            return false;
        }
        let Some(connection) = self.connections.get_mut(&to.address) else {
            return false;
        };
        if message.len() > MESSAGE_BYTES_MAX {
            return false;
        }
        let message = match seal {
            None => message,
            Some(seal) => seal.seal(to.address, message),
        };
        let waiting = connection.output.len();
        if waiting + message.len() > OUTPUT_BYTES_MAX {
            if connection.heard.elapsed() > STUCK_MAX {
                self.close(to.address);
            }
            return false;
        }
        let Ok(length) = u32::try_from(message.len()) else {
            return false;
        };
        if waiting == 0 {
            connection.heard = Instant::now();
        }
        connection.output.extend_from_slice(&length.to_le_bytes());
        connection.output.extend_from_slice(message);
        if !connection.waits {
            self.write(to.address);
        }
        true
    }

    fn dial(&mut self, address: SocketAddrV4) -> bool {
        let soon = |at: &Instant| at.elapsed() < DIAL_AGAIN;
        if self.refused.get(&address).is_some_and(soon) {
            return false;
        }
        self.refused.retain(|_, at| soon(at));
        match connect(self.own, address) {
            // The socket is writable once it is connected; bytes written before that wait here.
            Ok(socket) => self.add(address, socket, false, true),
            Err(_) => {
                self.refused.insert(address, Instant::now());
                false
            }
        }
    }

    fn add(
        &mut self,
        address: SocketAddrV4,
        socket: TcpStream,
        accepted: bool,
        waits: bool,
    ) -> bool {
        if self.connections.len() >= CONNECTIONS_MAX {
            let longest = self.connections.iter().min_by_key(|(_, it)| it.heard);
            if let Some((silent, _)) = longest {
                self.close(*silent);
            }
        }
        // Latency is what this is for; a socket that refuses works all the same.
        let _ = socket.set_nodelay(true);
        let watched = self.epoll.add(
            socket.as_fd(),
            EpollEvent::new(interest(waits), token(address)),
        );
        if watched.is_err() {
            return false;
        }
        let own = match socket.local_addr() {
            Ok(SocketAddr::V4(own)) => Some(own),
            _ => None,
        };
        let connection = Connection {
            socket,
            accepted,
            own,
            input: BytesMut::new(),
            output: BytesMut::new(),
            waits,
            heard: Instant::now(),
        };
        self.connections.insert(address, connection);
        true
    }

    fn close(&mut self, address: SocketAddrV4) {
        if let Some(connection) = self.connections.remove(&address) {
            let _ = self.epoll.delete(connection.socket.as_fd());
            if !connection.accepted {
                self.refused.insert(address, Instant::now());
            }
        }
    }

    /// Does what the kernel says can be done now.
    fn look(&mut self, seal: &mut Option<Seal>) {
        let mut events = [EpollEvent::empty(); EVENTS_MAX];
        let count = self
            .epoll
            .wait(&mut events, EpollTimeout::ZERO)
            .unwrap_or(0);
        for event in &events[..count] {
            if event.data() == LISTENER {
                self.accept();
                continue;
            }
            let Some(Peer { address, .. }) = Peer::of_token(event.data()) else {
                continue;
            };
            let flags = event.events();
            let broken = flags.intersects(EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP);
            if flags.contains(EpollFlags::EPOLLOUT) && !broken {
                self.write(address);
            }
            if flags.contains(EpollFlags::EPOLLIN) || broken {
                self.read(address, seal);
            }
        }
    }

    fn accept(&mut self) {
        // As many as there are, but the others must get their turn.
        for _ in 0..EVENTS_MAX {
            let Some(Ok((socket, SocketAddr::V4(from)))) =
                self.listener.as_ref().map(TcpListener::accept)
            else {
                return;
            };
            if socket.set_nonblocking(true).is_ok() {
                self.add(from, socket, true, false);
            }
        }
    }

    fn read(&mut self, address: SocketAddrV4, seal: &mut Option<Seal>) {
        let Some(connection) = self.connections.get_mut(&address) else {
            return;
        };
        match connection.socket.read(&mut self.buffer) {
            Ok(0) => self.close(address),
            Ok(count) => {
                connection.heard = Instant::now();
                connection.input.extend_from_slice(&self.buffer[..count]);
                let way = if connection.accepted {
                    Way::Back
                } else {
                    Way::Dial
                };
                loop {
                    let own = connection.own.unwrap_or(address);
                    match take(&mut connection.input, own, seal) {
                        Ok(Some(message)) => {
                            self.came.push_back(Ok((Peer { way, address }, message)));
                        }
                        Ok(None) => break,
                        Err(damaged) => {
                            self.came.push_back(Err(damaged));
                            self.close(address);
                            break;
                        }
                    }
                }
            }
            Err(error) if passes(&error) => {}
            Err(_) => self.close(address),
        }
    }

    fn write(&mut self, address: SocketAddrV4) {
        let Some(connection) = self.connections.get_mut(&address) else {
            return;
        };
        while !connection.output.is_empty() {
            match connection.socket.write(&connection.output) {
                Ok(count) => {
                    connection.output.advance(count);
                    connection.heard = Instant::now();
                }
                Err(error) if passes(&error) => break,
                Err(_) => return self.close(address),
            }
        }
        let waits = !connection.output.is_empty();
        if waits != connection.waits {
            connection.waits = waits;
            let mut event = EpollEvent::new(interest(waits), token(address));
            let _ = self.epoll.modify(connection.socket.as_fd(), &mut event);
        }
    }
}

/// The next message of a stream.
fn take(
    input: &mut BytesMut,
    own: SocketAddrV4,
    seal: &mut Option<Seal>,
) -> Result<Option<Message>, Damaged> {
    let Some(seal) = seal else {
        return take_frame(input).map_err(|_| Damaged::Message);
    };
    let frame = cut_frame(input, MESSAGE_BYTES_MAX + SEAL_BYTES);
    let Some(mut frame) = frame.map_err(|_| Damaged::Message)? else {
        return Ok(None);
    };
    let opened = seal.open(own, &mut frame).map_err(Damaged::Seal)?;
    let message = decode(&Bytes::copy_from_slice(opened));
    message.map(Some).map_err(|_| Damaged::Message)
}

fn token(address: SocketAddrV4) -> u64 {
    Peer {
        way: Way::Datagram,
        address,
    }
    .token()
}

fn passes(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::NotConnected
    )
}

fn interest(writes: bool) -> EpollFlags {
    if writes {
        EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT
    } else {
        EpollFlags::EPOLLIN
    }
}

fn bind(address: SocketAddrV4) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::V4(address).into())?;
    socket.listen(1024)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn connect(own: Ipv4Addr, address: SocketAddrV4) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((own, 0)).into())?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SocketAddr::V4(address).into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(nix::libc::EINPROGRESS) => {}
        Err(error) => return Err(error),
    }
    Ok(socket.into())
}
