//! The client sockets. They are accepted, read and written here, and their number is limited.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use bytes::BytesMut;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use rustls::ServerConfig;

use super::channel::Channel;
use super::connection::Connection;
use super::tls::Tls;
use crate::Error;

const READ_BYTES: usize = 64 << 10;
const EVENTS_MAX: usize = 256;

/// Maximum number of clients accepted in one turn.
const ACCEPTED_MAX: usize = 64;

/// Bytes of unfinished commands that the gateway keeps for all clients together.
pub(super) const UNFINISHED_BYTES_MAX: usize = 256 << 20;

/// Number of the listening socket in epoll. No connection has it.
const LISTENER: u64 = u64::MAX;

/// A client and its socket.
#[derive(Debug)]
pub(super) struct ClientSocket {
    pub(super) connection: Connection,
    channel: Channel,
    /// True if the kernel may have input from the client.
    readable: bool,
    /// True if the client is in the list of clients to be served.
    listed: bool,
    /// Bytes of the client's unfinished command at the last count.
    unfinished_bytes: usize,
    /// True if the gateway has shut its direction of the connection down. It ignores later input.
    is_finished: bool,
}

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    Some,
    Nothing,
    End,
}

impl ClientSocket {
    /// Shuts down the gateway's direction of the connection. Closing it at once would discard
    /// replies that the client has not read yet.
    pub(super) fn finish(&mut self) {
        if !std::mem::replace(&mut self.is_finished, true) {
            self.channel.end();
        }
    }

    /// Returns whether the client still has to authenticate or to finish the TLS handshake.
    pub(super) fn is_stranger(&self) -> bool {
        self.connection.said.is_stranger || self.channel.is_handshaking()
    }

    pub(super) fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Reads at most one buffer from the kernel and appends it to the input.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Read {
        if !self.readable {
            return Read::Nothing;
        }
        match self.channel.read(buffer) {
            Ok(0) => Read::End,
            Ok(count) => {
                if count < buffer.len() && self.channel.is_drained_by_short_reads() {
                    self.readable = false;
                }
                if !self.is_finished {
                    self.connection.input.extend_from_slice(&buffer[..count]);
                }
                Read::Some
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.readable = false;
                Read::Nothing
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Read::Some,
            Err(_) => Read::End,
        }
    }

    /// Writes as much output as the kernel takes. Returns false if the connection is broken.
    pub(super) fn write(&mut self) -> bool {
        let written = self.channel.write(&mut self.connection.output);
        if self.connection.output.is_empty() && self.connection.output.capacity() > READ_BYTES {
            self.connection.output = BytesMut::new();
        }
        if written.as_ref().is_ok_and(|all| *all) && self.connection.is_over() {
            self.finish();
        }
        written.is_ok()
    }
}

/// The connections of a gateway.
#[derive(Debug)]
pub(super) struct Sockets {
    epoll: Epoll,
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    clients: BTreeMap<u64, ClientSocket>,
    connections_max: usize,
    next: u64,
    /// Bytes of the unfinished commands of all clients.
    unfinished_bytes: usize,
    /// Numbers of the clients to be served.
    listed: Vec<u64>,
    buffer: Vec<u8>,
}

impl Sockets {
    pub(super) fn new(
        listener: TcpListener,
        tls: Option<Tls>,
        connections_max: usize,
    ) -> Result<Self, Error> {
        let failed =
            |error: nix::Error| Error::io("epoll", "to watch the clients' sockets", &error);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed)?;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, LISTENER);
        epoll.add(listener.as_fd(), event).map_err(failed)?;
        Ok(Self {
            epoll,
            listener,
            tls: tls.map(|it| it.0),
            clients: BTreeMap::new(),
            connections_max,
            next: 1,
            unfinished_bytes: 0,
            listed: Vec::new(),
            buffer: vec![0; READ_BYTES],
        })
    }

    /// Returns a descriptor that becomes readable when a socket has an event.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    /// Uses this certificate for new connections.
    pub(super) fn secure(&mut self, tls: Tls) {
        self.tls = Some(tls.0);
    }

    pub(super) fn len(&self) -> usize {
        self.clients.len()
    }

    pub(super) fn connections_max(&self) -> usize {
        self.connections_max
    }

    /// Returns whether the kernel has an event for one of the sockets.
    pub(super) fn has_events(&self) -> bool {
        let mut waited = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
        poll(&mut waited, PollTimeout::ZERO).is_ok_and(|count| count > 0)
    }

    pub(super) fn find(&mut self, number: u64) -> Option<&mut ClientSocket> {
        self.clients.get_mut(&number)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.clients.values().map(|client| &client.connection)
    }

    pub(super) fn clients(&self) -> impl Iterator<Item = &ClientSocket> {
        self.clients.values()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.clients
            .values_mut()
            .map(|client| &mut client.connection)
    }

    /// Returns a client, and a buffer to read its input with.
    pub(super) fn with_buffer(&mut self, number: u64) -> Option<(&mut ClientSocket, &mut [u8])> {
        let client = self.clients.get_mut(&number)?;
        Some((client, &mut self.buffer))
    }

    /// Adds a client to the list of clients to be served.
    pub(super) fn list(&mut self, number: u64) {
        if let Some(client) = self.clients.get_mut(&number)
            && !std::mem::replace(&mut client.listed, true)
        {
            self.listed.push(number);
        }
    }

    /// Returns the clients to be served, each once, and empties the list.
    pub(super) fn take_listed(&mut self) -> Vec<u64> {
        let listed = std::mem::take(&mut self.listed);
        for number in &listed {
            if let Some(client) = self.clients.get_mut(number) {
                client.listed = false;
            }
        }
        listed
    }

    pub(super) fn has_listed(&self) -> bool {
        !self.listed.is_empty()
    }

    pub(super) fn close(&mut self, number: u64) {
        if let Some(mut client) = self.clients.remove(&number) {
            self.unfinished_bytes -= client.unfinished_bytes;
            client.channel.end();
            let _ = self.epoll.delete(client.channel.as_fd());
        }
    }

    /// Updates the size of a client's unfinished command. If all clients together exceed the limit,
    /// returns the client with the longest unfinished command, whose connection the caller has to
    /// close.
    pub(super) fn weigh(&mut self, number: u64) -> Option<u64> {
        let client = self.clients.get_mut(&number)?;
        let bytes = client.connection.unfinished_bytes();
        self.unfinished_bytes += bytes;
        self.unfinished_bytes -= std::mem::replace(&mut client.unfinished_bytes, bytes);
        if self.unfinished_bytes <= UNFINISHED_BYTES_MAX {
            return None;
        }
        let longest = |(_, client): &(&u64, &ClientSocket)| client.unfinished_bytes;
        self.clients.iter().max_by_key(longest).map(|(it, _)| *it)
    }

    /// Handles the events of all sockets. `greet` makes the connection of a number and an address.
    pub(super) fn look(&mut self, mut greet: impl FnMut(u64, SocketAddr) -> Connection) {
        let mut events = [EpollEvent::empty(); EVENTS_MAX];
        let count = self.epoll.wait(&mut events, EpollTimeout::ZERO);
        for event in &events[..count.unwrap_or(0)] {
            if event.data() == LISTENER {
                self.accept(&mut greet);
                continue;
            }
            if let Some(client) = self.clients.get_mut(&event.data()) {
                let closed = EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP | EpollFlags::EPOLLRDHUP;
                client.readable |= event.events().intersects(EpollFlags::EPOLLIN | closed);
                self.list(event.data());
            }
        }
    }

    /// Closes the oldest connection that has not authenticated. Returns false if there is none.
    fn make_room(&mut self) -> bool {
        let stranger = |(_, client): &(&u64, &ClientSocket)| client.is_stranger();
        let first = self
            .clients
            .iter()
            .find(stranger)
            .map(|(number, _)| *number);
        if let Some(number) = first {
            self.close(number);
        }
        first.is_some()
    }

    fn accept(&mut self, greet: &mut impl FnMut(u64, SocketAddr) -> Connection) {
        // Accept all that wait, but leave the other clients their turn.
        for _ in 0..ACCEPTED_MAX {
            let (socket, from) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
            let Ok(mut channel) = Channel::new(socket, self.tls.as_ref()) else {
                continue;
            };
            if self.clients.len() >= self.connections_max && !self.make_room() {
                let mut refusal = BytesMut::from(&b"-ERR max number of clients reached\r\n"[..]);
                let _ = channel.write(&mut refusal);
                continue;
            }
            let number = self.next;
            self.next += 1;
            let flags = EpollFlags::EPOLLIN
                | EpollFlags::EPOLLOUT
                | EpollFlags::EPOLLRDHUP
                | EpollFlags::EPOLLET;
            if self
                .epoll
                .add(channel.as_fd(), EpollEvent::new(flags, number))
                .is_err()
            {
                continue;
            }
            let client = ClientSocket {
                connection: greet(number, from),
                channel,
                readable: true,
                listed: false,
                unfinished_bytes: 0,
                is_finished: false,
            };
            self.clients.insert(number, client);
            self.list(number);
        }
    }
}
