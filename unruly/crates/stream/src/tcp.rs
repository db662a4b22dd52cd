//! The kernel's TCP, with one write call per message. The kernel's SCTP is used in the same way,
//! with one association per socket.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Socket, Type};
use std::os::fd::AsFd;
use unruly_plan::Protocol;

use crate::frames::Frames;
use crate::header::Header;
use crate::{Options, Reader, Received, Sent, Writer, out_of_time};

/// Most connections that may wait to be identified as this run's stream.
const CANDIDATES_MAX: usize = 16;
/// Bytes at the start of a message that identify its run.
const BEGINNING_BYTES: usize = 8;

/// Writes messages to a connection.
#[derive(Debug)]
pub(crate) struct TcpWriter {
    socket: TcpStream,
    timeout: Duration,
    /// The bytes of the last message that the kernel has not taken yet.
    rest: Vec<u8>,
}

impl TcpWriter {
    pub(crate) fn connect(
        options: &Options,
        to: SocketAddr,
        timeout: Duration,
    ) -> io::Result<Self> {
        let socket = socket(options, to)?;
        socket.connect_timeout(&to.into(), timeout)?;
        Ok(Self {
            socket: socket.into(),
            timeout: Duration::ZERO,
            rest: Vec::new(),
        })
    }

    /// Writes the rest of the previous message. Returns true if the kernel took all of it.
    fn write_rest(&mut self) -> io::Result<bool> {
        while !self.rest.is_empty() {
            match self.socket.write(&self.rest) {
                Ok(taken) => drop(self.rest.drain(..taken)),
                Err(error) if is_late(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn wait_at_most(&mut self, timeout: Duration) -> io::Result<()> {
        if self.timeout != timeout {
            self.socket.set_write_timeout(Some(timeout))?;
            self.timeout = timeout;
        }
        Ok(())
    }
}

impl Writer for TcpWriter {
    fn write(&mut self, message: &[u8], timeout: Duration) -> io::Result<Sent> {
        self.wait_at_most(timeout)?;
        if !self.rest.is_empty() && !self.write_rest()? {
            return Ok(Sent::Full);
        }
        match self.socket.write(message) {
            Ok(taken) => {
                self.rest.extend_from_slice(&message[taken..]);
                Ok(Sent::Taken)
            }
            Err(error) if is_late(&error) => Ok(Sent::Full),
            Err(error) => Err(error),
        }
    }

    fn finish(&mut self, last: &[u8], timeout: Duration) -> io::Result<()> {
        let until = Instant::now() + timeout;
        self.rest.extend_from_slice(last);
        self.wait_at_most(Duration::from_millis(100))?;
        while !self.write_rest()? {
            if Instant::now() > until {
                return Err(out_of_time("the reader takes no more"));
            }
        }
        self.socket.shutdown(Shutdown::Write)?;
        // The reader closes the connection after it has read the end.
        self.socket
            .set_read_timeout(Some(timeout.max(Duration::from_millis(1))))?;
        match self.socket.read(&mut [0]) {
            Err(error) if is_late(&error) => Err(out_of_time("the reader has not read to the end")),
            _ => Ok(()),
        }
    }

    fn held_bytes(&self) -> Option<u64> {
        let mut held: libc::c_int = 0;
        // SAFETY: the descriptor is open, and the kernel writes one int.
        let asked = unsafe {
            libc::ioctl(
                std::os::fd::AsRawFd::as_raw_fd(&self.socket),
                libc::TIOCOUTQ,
                &raw mut held,
            )
        };
        (asked == 0).then(|| u64::try_from(held).unwrap_or(0))
    }
}

/// Creates a socket of the protocol.
fn socket(options: &Options, address: SocketAddr) -> io::Result<Socket> {
    if options.protocol == Protocol::Tcp {
        return Socket::new(Domain::for_address(address), Type::STREAM, None);
    }
    let sctp = socket2::Protocol::from(libc::IPPROTO_SCTP);
    Socket::new(Domain::for_address(address), Type::STREAM, Some(sctp)).map_err(|error| {
        let said =
            "this kernel has no SCTP; wanted it; hint: modprobe sctp, or protocol = \"sctp\"";
        match error.raw_os_error() {
            Some(libc::EPROTONOSUPPORT) => io::Error::other(said),
            _ => error,
        }
    })
}

/// Returns true if a call timed out or a signal interrupted it. The caller then tries again.
pub(crate) fn is_late(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

/// Reads from the first connection whose first message belongs to this run.
#[derive(Debug)]
pub(crate) struct TcpReader {
    listener: TcpListener,
    candidates: Vec<TcpStream>,
    connection: Option<TcpStream>,
    frames: Frames,
    cookie: u32,
    timeout: Duration,
}

impl TcpReader {
    pub(crate) fn listen(options: &Options, address: SocketAddr) -> io::Result<(Self, SocketAddr)> {
        let socket = socket(options, address)?;
        socket.bind(&address.into())?;
        socket.listen(4)?;
        socket.set_nonblocking(true)?;
        let listener = TcpListener::from(socket);
        let at = listener.local_addr()?;
        let reader = Self {
            listener,
            candidates: Vec::new(),
            connection: None,
            frames: Frames::new(options.message_bytes),
            cookie: options.cookie,
            timeout: Duration::ZERO,
        };
        Ok((reader, at))
    }

    /// Looks for the connection whose first bytes belong to this run. A connection that begins
    /// otherwise is closed. A silent connection does not hold up the others.
    fn accept(&mut self, timeout: Duration) -> io::Result<Received> {
        let wait = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::ZERO);
        let sockets = self.candidates.iter().map(AsFd::as_fd);
        let sockets = sockets.chain([self.listener.as_fd()]);
        let mut polled: Vec<PollFd<'_>> = sockets
            .map(|it| PollFd::new(it, PollFlags::POLLIN))
            .collect();
        poll(&mut polled, wait)?;
        for candidate in std::mem::take(&mut self.candidates) {
            let mut beginning = [0; BEGINNING_BYTES];
            match candidate.peek(&mut beginning) {
                Ok(BEGINNING_BYTES) if Header::begins(self.cookie, &beginning) => {
                    candidate.set_nonblocking(false)?;
                    self.timeout = Duration::ZERO;
                    self.connection = Some(candidate);
                    return Ok(Received::Some);
                }
                Ok(1..BEGINNING_BYTES) => self.candidates.push(candidate),
                Err(error) if is_late(&error) => self.candidates.push(candidate),
                _ => {}
            }
        }
        if let Ok((candidate, _)) = self.listener.accept() {
            candidate.set_nonblocking(true)?;
            if self.candidates.len() == CANDIDATES_MAX {
                self.candidates.remove(0);
            }
            self.candidates.push(candidate);
        }
        Ok(Received::Nothing)
    }
}

impl Reader for TcpReader {
    fn read(&mut self, timeout: Duration, take: &mut dyn FnMut(&[u8])) -> io::Result<Received> {
        let Some(connection) = &mut self.connection else {
            return self.accept(timeout);
        };
        if self.timeout != timeout {
            connection.set_read_timeout(Some(timeout))?;
            self.timeout = timeout;
        }
        match connection.read(self.frames.room()) {
            Ok(0) => Ok(Received::Ended),
            Ok(bytes) => {
                self.frames.came(bytes, take);
                Ok(Received::Some)
            }
            Err(error) if is_late(&error) => Ok(Received::Nothing),
            Err(error) => Err(error),
        }
    }
}
