//! A socket that speaks messages.

use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use flurry_core::id::DurationNs;
use flurry_core::message::Message;
use flurry_core::wire::{self, DATAGRAM_BYTES_MAX};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;

use crate::{Error, loopback};

/// No datagram is longer.
const RECEIVE_BYTES: usize = 64 << 10;

/// What the kernel may keep for us: a burst of the largest values. It may grant less.
const SOCKET_BYTES: usize = 4 << 20;

/// The longest wait at once, so that no mistake in an instant can stop a node for good.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// What a socket has counted since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Messages received.
    pub received: u64,
    /// Datagrams that were no message: dropped.
    pub damaged: u64,
    /// Messages sent.
    pub sent: u64,
    /// Messages too long for a datagram: dropped.
    pub too_long: u64,
    /// Messages that the kernel did not take: lost, as on a network.
    pub not_taken: u64,
}

#[derive(Debug, Default)]
struct Counters {
    received: AtomicU64,
    damaged: AtomicU64,
    sent: AtomicU64,
    too_long: AtomicU64,
    not_taken: AtomicU64,
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
            sent: read(&self.0.sent),
            too_long: read(&self.0.too_long),
            not_taken: read(&self.0.not_taken),
        }
    }
}

/// What a look at the socket found.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "taken apart where it is made, never kept"
)]
pub(crate) enum Received {
    /// A message, and who sent it.
    Message(SocketAddrV4, Message),
    /// A datagram that was none.
    Damaged,
    /// Nothing is there.
    Nothing,
}

/// A UDP socket of the loopback network.
#[derive(Debug)]
pub(crate) struct Link {
    socket: UdpSocket,
    address: SocketAddrV4,
    input: Vec<u8>,
    output: BytesMut,
    counters: Arc<Counters>,
}

impl Link {
    pub(crate) fn bind(address: SocketAddr) -> Result<Self, Error> {
        let wanted = loopback(address)?;
        let failed = |error: std::io::Error| Error::io(wanted, "to listen there", &error);
        let socket = UdpSocket::bind(wanted).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let options = socket2::SockRef::from(&socket);
        // Less than asked for only means more losses, which are repaired.
        let _ = options.set_recv_buffer_size(SOCKET_BYTES);
        let _ = options.set_send_buffer_size(SOCKET_BYTES);
        let bound = socket.local_addr().map_err(failed)?;
        Ok(Self {
            address: loopback(bound)?,
            socket,
            input: vec![0; RECEIVE_BYTES],
            output: BytesMut::new(),
            counters: Arc::default(),
        })
    }

    /// One of the kernel's choice.
    pub(crate) fn any() -> Result<Self, Error> {
        Self::bind(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    pub(crate) fn address(&self) -> SocketAddrV4 {
        self.address
    }

    pub(crate) fn view(&self) -> LinkView {
        LinkView(Arc::clone(&self.counters))
    }

    /// Waits for a datagram, for `wake`, or for `left` to pass.
    pub(crate) fn wait(&self, wake: &Wake, left: DurationNs) {
        let mut waited = [
            PollFd::new(self.socket.as_fd(), PollFlags::POLLIN),
            PollFd::new(wake.0.as_fd(), PollFlags::POLLIN),
        ];
        let left = Duration::from_nanos(left.0).min(WAIT_MAX);
        // A signal ends the wait early, which is no harm.
        let _ = ppoll(&mut waited, Some(TimeSpec::from_duration(left)), None);
    }

    pub(crate) fn receive(&mut self) -> Received {
        let Ok((length, from)) = self.socket.recv_from(&mut self.input) else {
            return Received::Nothing;
        };
        let bytes = Bytes::copy_from_slice(&self.input[..length]);
        match (from, wire::decode(&bytes)) {
            (SocketAddr::V4(from), Ok(message)) => {
                self.counters.received.fetch_add(1, Ordering::Relaxed);
                Received::Message(from, message)
            }
            _ => {
                self.counters.damaged.fetch_add(1, Ordering::Relaxed);
                Received::Damaged
            }
        }
    }

    pub(crate) fn send(&mut self, to: SocketAddrV4, message: &Message) {
        self.output.clear();
        wire::encode(message, &mut self.output);
        let count = if self.output.len() > DATAGRAM_BYTES_MAX {
            &self.counters.too_long
        } else {
            match self.socket.send_to(&self.output, to) {
                Ok(_) => &self.counters.sent,
                Err(_) => &self.counters.not_taken,
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
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

    /// Says whether there was a call since the last time.
    pub(crate) fn take(&self) -> bool {
        self.0.read().is_ok()
    }
}
