//! Message streams over many protocols. Each protocol is a file that implements two traits:
//! [`Writer`] and [`Reader`].
//!
//! A writer sends messages of one length as fast as its protocol takes them. A reader returns each
//! complete message. [`Header`] is the part of a message that the analysis reads. [`Account`]
//! counts the received, lost, duplicated and reordered messages.
//!
//! Invariant: no call waits for longer than its `timeout`, so the caller can check the clock.

mod account;
mod cpg;
mod enet;
mod frames;
mod header;
#[cfg(feature = "kcp")]
mod kcp;
mod library;
#[cfg(feature = "quic")]
mod quic;
#[cfg(any(feature = "kcp", feature = "quic"))]
mod runtime;
mod sctp;
mod tcp;
mod udp;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use unruly_plan::Protocol;

pub use account::{Account, Counted};
pub use header::{HEADER_BYTES, Header};

/// The settings that both ends of a stream agree on.
#[derive(Debug, Clone)]
pub struct Options {
    /// The protocol that carries the messages.
    pub protocol: Protocol,
    /// Length of each message including its header, in bytes.
    pub message_bytes: usize,
    /// The number that identifies this run's messages. A reader ignores messages with another
    /// cookie.
    pub cookie: u32,
    /// The folder of the protocol's shared library, if the library is not part of this program.
    pub library: Option<PathBuf>,
}

/// The outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The protocol has taken the message.
    Taken,
    /// There was no room within the timeout. No byte of the message was taken.
    Full,
}

/// The sending end.
pub trait Writer {
    /// Sends a message. Waits at most `timeout` for room.
    ///
    /// # Errors
    ///
    /// Fails if the stream has ended, or if the protocol refuses such a message.
    fn write(&mut self, message: &[u8], timeout: Duration) -> io::Result<Sent>;

    /// Sends the last message, and waits at most `timeout` until the other end has received
    /// everything.
    ///
    /// # Errors
    ///
    /// Fails if the protocol can confirm that the other end has received everything, but has not
    /// done so.
    fn finish(&mut self, last: &[u8], timeout: Duration) -> io::Result<()>;

    /// Keeps the stream alive for `timeout` when there is nothing to send. Some protocols work only
    /// while they are called, and their peer drops a connection that stays silent.
    ///
    /// # Errors
    ///
    /// Fails if the stream has ended in the meantime.
    fn idle(&mut self, timeout: Duration) -> io::Result<()> {
        std::thread::sleep(timeout);
        Ok(())
    }

    /// Returns how many bytes the protocol holds that the other end has not received yet, if the
    /// protocol reports it.
    fn held_bytes(&self) -> Option<u64> {
        None
    }

    /// Returns the PID of a helper process that does part of the work, if there is one.
    fn helper(&self) -> Option<u32> {
        None
    }
}

/// The outcome of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// Bytes were received.
    Some,
    /// Nothing was received within the timeout.
    Nothing,
    /// The stream has ended.
    Ended,
}

/// The receiving end.
pub trait Reader {
    /// Passes every available message to `take`. Waits at most `timeout` for the first one.
    ///
    /// # Errors
    ///
    /// Fails if the stream broke.
    fn read(&mut self, timeout: Duration, take: &mut dyn FnMut(&[u8])) -> io::Result<Received>;

    /// Returns the PID of a helper process that does part of the work, if there is one.
    fn helper(&self) -> Option<u32> {
        None
    }
}

/// Returns the shared library that a protocol needs and the package that contains it. Returns
/// `None` if the protocol is part of this program or of the kernel.
#[must_use]
pub fn library_of(protocol: Protocol) -> Option<(&'static str, &'static str)> {
    match protocol {
        Protocol::Enet => Some((enet::LIBRARY, enet::PACKAGE)),
        Protocol::Sctp => Some((sctp::LIBRARY, sctp::PACKAGE)),
        Protocol::CorosyncCpg => Some((cpg::LIBRARY, cpg::PACKAGE)),
        _ => None,
    }
}

/// True if this program can load shared libraries. A static program cannot.
pub const LOADS_LIBRARIES: bool = cfg!(not(target_feature = "crt-static"));

/// Checks that a program can carry a protocol. `loads` is true if it can load shared libraries.
///
/// # Errors
///
/// Fails if the protocol needs a shared library and the program is static.
pub fn check_library(protocol: Protocol, loads: bool) -> io::Result<()> {
    match library_of(protocol) {
        Some((name, _)) if !loads => Err(io::Error::other(format!(
            "{}: this program is static and cannot load {name}; hint: build unruly from its \
             sources, or use another protocol",
            protocol.name()
        ))),
        _ => Ok(()),
    }
}

/// Returns the libraries that the library of a protocol depends on. Each comes after its own
/// dependencies.
fn needed_by(protocol: Protocol) -> &'static [&'static str] {
    match protocol {
        Protocol::CorosyncCpg => &cpg::NEEDED,
        _ => &[],
    }
}

/// Creates the receiving end, and returns it with the address that it listens on.
///
/// # Errors
///
/// Fails if the address is in use, or if the protocol's library is missing.
pub fn listen(options: &Options, address: SocketAddr) -> io::Result<(Box<dyn Reader>, SocketAddr)> {
    match options.protocol {
        Protocol::Tcp | Protocol::KernelSctp => boxed(tcp::TcpReader::listen(options, address)),
        Protocol::Udp => boxed(udp::UdpReader::listen(options, address)),
        Protocol::Sctp => boxed(sctp::SctpReader::listen(options, address)),
        Protocol::Enet => boxed(enet::EnetReader::listen(options, address)),
        Protocol::CorosyncCpg => boxed(cpg::CpgReader::listen(options, address)),
        #[cfg(feature = "quic")]
        Protocol::Quic => boxed(quic::QuicReader::listen(options, address)),
        #[cfg(feature = "kcp")]
        Protocol::Kcp => boxed(kcp::KcpReader::listen(options, address)),
        other => Err(not_built(other)),
    }
}

/// Creates the sending end, connected to a listening reader. A protocol with groups can connect to
/// several readers.
///
/// # Errors
///
/// Fails if a reader does not answer within `timeout`, or if the protocol's library is missing.
pub fn connect(
    options: &Options,
    readers: &[SocketAddr],
    timeout: Duration,
) -> io::Result<Box<dyn Writer>> {
    let to = match *readers {
        [to, ..] if readers.len() == 1 || options.protocol.is_of_group() => to,
        _ => return Err(wrong_readers(options.protocol, readers.len())),
    };
    Ok(match options.protocol {
        Protocol::Tcp | Protocol::KernelSctp => {
            Box::new(tcp::TcpWriter::connect(options, to, timeout)?)
        }
        Protocol::Udp => Box::new(udp::UdpWriter::connect(options, to)?),
        Protocol::Sctp => Box::new(sctp::SctpWriter::connect(options, to, timeout)?),
        Protocol::Enet => Box::new(enet::EnetWriter::connect(options, to, timeout)?),
        Protocol::CorosyncCpg => Box::new(cpg::CpgWriter::connect(options, readers, timeout)?),
        #[cfg(feature = "quic")]
        Protocol::Quic => Box::new(quic::QuicWriter::connect(to, timeout)?),
        #[cfg(feature = "kcp")]
        Protocol::Kcp => Box::new(kcp::KcpWriter::connect(options, to, timeout)?),
        other => return Err(not_built(other)),
    })
}

fn boxed<R: Reader + 'static>(
    made: io::Result<(R, SocketAddr)>,
) -> io::Result<(Box<dyn Reader>, SocketAddr)> {
    made.map(|(reader, at)| (Box::new(reader) as Box<dyn Reader>, at))
}

fn wrong_readers(protocol: Protocol, readers: usize) -> io::Error {
    let name = protocol.name();
    io::Error::other(format!(
        "{name}: there are {readers} readers; wanted one, or more in a group; hint: readers = 1"
    ))
}

fn not_built(protocol: Protocol) -> io::Error {
    let name = protocol.name();
    io::Error::other(format!(
        "{name}: this program was built without it; wanted the feature {name} of unruly-stream; hint: cargo build --features {name}"
    ))
}

/// Returns the error of a wait that exceeded its timeout.
fn out_of_time(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what.to_owned())
}
