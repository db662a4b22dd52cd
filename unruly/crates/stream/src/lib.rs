//! Streams of messages over many protocols, each a file behind two traits: [`Writer`] and [`Reader`].
//!
//! A writer hands over messages of one length as fast as its protocol takes them; a reader gives back
//! each message that is whole. What a message says of itself is [`Header`]; what became of all of them
//! is counted by [`Account`].
//!
//! Invariant: nothing waits for longer than it was told, so that whoever calls can look at the clock.

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

/// What both ends of a stream agree on.
#[derive(Debug, Clone)]
pub struct Options {
    /// How messages travel.
    pub protocol: Protocol,
    /// Length of each message, its header included.
    pub message_bytes: usize,
    /// What tells this run's messages from others'.
    pub cookie: u32,
    /// Where the library of the protocol is, when it is not of this program.
    pub library: Option<PathBuf>,
}

/// What became of a message that was to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The protocol has it.
    Taken,
    /// There was no room in time; nothing of it was taken.
    Full,
}

/// The sending end.
pub trait Writer {
    /// Hands a message over; waits for room at most for `patience`.
    ///
    /// # Errors
    ///
    /// When the stream has ended, or the protocol refuses such a message.
    fn write(&mut self, message: &[u8], patience: Duration) -> io::Result<Sent>;

    /// Hands over the last message, and waits at most for `patience` until the other end has all.
    ///
    /// # Errors
    ///
    /// When it is not known that the other end has all, where the protocol could know it.
    fn finish(&mut self, last: &[u8], patience: Duration) -> io::Result<()>;

    /// Has nothing to send for so long: a protocol that only works when it is called must be, or its peer
    /// gives it up.
    ///
    /// # Errors
    ///
    /// When the stream has ended meanwhile.
    fn idle(&mut self, patience: Duration) -> io::Result<()> {
        std::thread::sleep(patience);
        Ok(())
    }

    /// What the protocol holds that is not with the other end yet, in bytes, where it says so.
    fn held_bytes(&self) -> Option<u64> {
        None
    }

    /// A process beside this one that does a part of the work, where there is one.
    fn helper(&self) -> Option<u32> {
        None
    }
}

/// How a look at the receiving end went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// There were bytes.
    Some,
    /// There was nothing in time.
    Nothing,
    /// The stream is over.
    Ended,
}

/// The receiving end.
pub trait Reader {
    /// Gives every message that is there to `take`; waits for the first at most for `patience`.
    ///
    /// # Errors
    ///
    /// When the stream broke.
    fn read(&mut self, patience: Duration, take: &mut dyn FnMut(&[u8])) -> io::Result<Received>;

    /// A process beside this one that does a part of the work, where there is one.
    fn helper(&self) -> Option<u32> {
        None
    }
}

/// The shared library that a protocol is opened from, and the package that has it; none where it is a part
/// of this program, or of the kernel.
#[must_use]
pub fn library_of(protocol: Protocol) -> Option<(&'static str, &'static str)> {
    match protocol {
        Protocol::Enet => Some((enet::LIBRARY, enet::PACKAGE)),
        Protocol::Sctp => Some((sctp::LIBRARY, sctp::PACKAGE)),
        Protocol::CorosyncCpg => Some((cpg::LIBRARY, cpg::PACKAGE)),
        _ => None,
    }
}

/// The libraries that the library of a protocol needs itself, each after what it needs.
fn needed_by(protocol: Protocol) -> &'static [&'static str] {
    match protocol {
        Protocol::CorosyncCpg => &cpg::NEEDED,
        _ => &[],
    }
}

/// Makes the receiving end, and says where it is reached.
///
/// # Errors
///
/// When the address is taken, or the protocol's library is not there.
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

/// Makes the sending end, to a reader that is there; where the protocol has groups, to several.
///
/// # Errors
///
/// When one does not answer within `patience`, or the protocol's library is not there.
pub fn connect(
    options: &Options,
    readers: &[SocketAddr],
    patience: Duration,
) -> io::Result<Box<dyn Writer>> {
    let to = match *readers {
        [to, ..] if readers.len() == 1 || options.protocol.is_of_group() => to,
        _ => return Err(wrong_readers(options.protocol, readers.len())),
    };
    Ok(match options.protocol {
        Protocol::Tcp | Protocol::KernelSctp => {
            Box::new(tcp::TcpWriter::connect(options, to, patience)?)
        }
        Protocol::Udp => Box::new(udp::UdpWriter::connect(options, to)?),
        Protocol::Sctp => Box::new(sctp::SctpWriter::connect(options, to, patience)?),
        Protocol::Enet => Box::new(enet::EnetWriter::connect(options, to, patience)?),
        Protocol::CorosyncCpg => Box::new(cpg::CpgWriter::connect(options, readers, patience)?),
        #[cfg(feature = "quic")]
        Protocol::Quic => Box::new(quic::QuicWriter::connect(to, patience)?),
        #[cfg(feature = "kcp")]
        Protocol::Kcp => Box::new(kcp::KcpWriter::connect(options, to, patience)?),
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

/// The end came before anything that was due.
fn out_of_time(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what.to_owned())
}
