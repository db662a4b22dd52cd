//! The bytes of one client: as they are, or through TLS.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use bytes::{Buf as _, BytesMut};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

#[derive(Debug)]
pub(super) enum Channel {
    Plain(TcpStream),
    Secured(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Plain(socket) => socket.as_fd(),
            Self::Secured(stream) => stream.sock.as_fd(),
        }
    }
}

impl Channel {
    /// Takes a connection over; with `tls` it must begin with a handshake.
    pub(super) fn new(socket: TcpStream, tls: Option<&Arc<ServerConfig>>) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        // Latency is what this is for; a socket that refuses works all the same.
        let _ = socket.set_nodelay(true);
        let Some(tls) = tls else {
            return Ok(Self::Plain(socket));
        };
        let connection = ServerConnection::new(Arc::clone(tls)).map_err(io::Error::other)?;
        Ok(Self::Secured(Box::new(StreamOwned::new(
            connection, socket,
        ))))
    }

    /// Reads what there is; 0 is the end, and `WouldBlock` that there is nothing now.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Secured(stream) => stream.read(buffer),
        }
    }

    /// Writes what it can; says whether nothing is left.
    pub(super) fn write(&mut self, output: &mut BytesMut) -> io::Result<bool> {
        while !output.is_empty() {
            let written = match self {
                Self::Plain(socket) => socket.write(output),
                Self::Secured(stream) => stream.write(output),
            };
            match written {
                Ok(count) => output.advance(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let Self::Secured(stream) = self else {
            return Ok(true);
        };
        match stream.flush() {
            Ok(()) => Ok(!stream.conn.wants_write()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether it is not agreed yet how to speak safely.
    pub(super) fn is_handshaking(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Secured(stream) => stream.conn.is_handshaking(),
        }
    }

    /// Whether a read that did not fill its buffer has taken all that there was.
    pub(super) fn is_drained_by_short_reads(&self) -> bool {
        // Records of TLS are read one by one.
        matches!(self, Self::Plain(_))
    }

    /// Says that nothing more will come.
    pub(super) fn end(&mut self) {
        let socket = match self {
            Self::Plain(socket) => socket,
            Self::Secured(stream) => {
                stream.conn.send_close_notify();
                let _ = stream.flush();
                &stream.sock
            }
        };
        let _ = socket.shutdown(Shutdown::Write);
    }
}
