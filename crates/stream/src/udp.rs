//! Datagrams: a message is one, and nothing is sent again.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};

use crate::tcp::is_late;
use crate::{Options, Reader, Received, Sent, Writer};

/// The kernel takes so much in one call, and cuts it into datagrams: a tenth of the cost of one by one.
const BATCH_BYTES: usize = 64_000;
const BATCH_MESSAGES: usize = 32;
/// What may wait for the reader: a tenth of a second at 5 Gbit/s.
const BUFFER_BYTES: usize = 64 << 20;
/// Any of these may be lost, so the end is said so often.
const ENDS: u32 = 20;
const BETWEEN_ENDS: Duration = Duration::from_millis(5);

/// Sends datagrams.
#[derive(Debug)]
pub(crate) struct UdpWriter {
    socket: UdpSocket,
    patience: Duration,
    batch: Vec<u8>,
    batch_bytes: usize,
}

impl UdpWriter {
    pub(crate) fn connect(options: &Options, to: SocketAddr) -> io::Result<Self> {
        let any: SocketAddr = if to.is_ipv4() {
            ([0, 0, 0, 0], 0).into()
        } else {
            ([0_u16; 8], 0).into()
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(to)?;
        let messages = (BATCH_BYTES / options.message_bytes).clamp(1, BATCH_MESSAGES);
        let length = libc::c_int::try_from(options.message_bytes).unwrap_or(libc::c_int::MAX);
        let cuts = messages > 1 && setsockopt(&socket, sockopt::UdpGsoSegment, &length).is_ok();
        let messages = if cuts { messages } else { 1 };
        Ok(Self {
            socket,
            patience: Duration::ZERO,
            batch: Vec::with_capacity(BATCH_BYTES),
            batch_bytes: messages * options.message_bytes,
        })
    }

    /// Sends what was gathered. Returns whether it went.
    fn send(&mut self) -> io::Result<bool> {
        match self.socket.send(&self.batch) {
            Ok(_) => {}
            Err(error) if is_late(&error) => return Ok(false),
            Err(error) => match error.raw_os_error() {
                // Nobody is there (yet, or any more): datagrams are lost, which is how it is.
                Some(libc::ECONNREFUSED) => {}
                // The way's queue is full.
                Some(libc::ENOBUFS) => return Ok(false),
                // A message is longer than a packet of this way: the kernel will not cut, only fragment.
                Some(libc::EINVAL | libc::EMSGSIZE) if self.cuts() => return self.stop_cutting(),
                _ => return Err(error),
            },
        }
        self.batch.clear();
        Ok(true)
    }

    fn cuts(&self) -> bool {
        self.batch_bytes > 0
    }

    /// From now on each message goes by itself, and those gathered first.
    fn stop_cutting(&mut self) -> io::Result<bool> {
        setsockopt(&self.socket, sockopt::UdpGsoSegment, &0)?;
        self.batch_bytes = 0;
        let gathered = std::mem::take(&mut self.batch);
        let Some(length) = gathered.get(12..16) else {
            return Ok(true);
        };
        let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]);
        for message in gathered.chunks(usize::try_from(length).unwrap_or(usize::MAX)) {
            self.socket.send(message)?;
        }
        Ok(true)
    }
}

impl Writer for UdpWriter {
    fn write(&mut self, message: &[u8], patience: Duration) -> io::Result<Sent> {
        if self.patience != patience {
            self.socket.set_write_timeout(Some(patience))?;
            self.patience = patience;
        }
        if self.batch.len() + message.len() > self.batch_bytes
            && !self.batch.is_empty()
            && !self.send()?
        {
            return Ok(Sent::Full);
        }
        self.batch.extend_from_slice(message);
        if self.batch_bytes > 0 || self.send()? {
            return Ok(Sent::Taken);
        }
        self.batch.clear();
        Ok(Sent::Full)
    }

    fn finish(&mut self, last: &[u8], patience: Duration) -> io::Result<()> {
        let until = Instant::now() + patience;
        while !self.batch.is_empty() && !self.send()? && Instant::now() < until {}
        self.batch.clear();
        for _ in 0..ENDS {
            self.batch.extend_from_slice(last);
            self.send()?;
            self.batch.clear();
            // Apart, so that one full queue does not swallow all of them.
            std::thread::sleep(BETWEEN_ENDS);
        }
        Ok(())
    }
}

/// Receives datagrams; several of one length may come in one piece.
#[derive(Debug)]
pub(crate) struct UdpReader {
    socket: UdpSocket,
    patience: Duration,
    buffer: Vec<u8>,
    message_bytes: usize,
}

impl UdpReader {
    pub(crate) fn listen(options: &Options, address: SocketAddr) -> io::Result<(Self, SocketAddr)> {
        let socket = UdpSocket::bind(address)?;
        // Where neither is allowed the kernel's own size must do; what is lost is counted.
        if setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES).is_err() {
            let _ = setsockopt(&socket, sockopt::RcvBuf, &BUFFER_BYTES);
        }
        let _ = setsockopt(&socket, sockopt::UdpGroSegment, &true);
        let at = socket.local_addr()?;
        let reader = Self {
            socket,
            patience: Duration::ZERO,
            buffer: vec![0; 1 << 16],
            message_bytes: options.message_bytes,
        };
        Ok((reader, at))
    }
}

impl Reader for UdpReader {
    fn read(&mut self, patience: Duration, take: &mut dyn FnMut(&[u8])) -> io::Result<Received> {
        if self.patience != patience {
            self.socket.set_read_timeout(Some(patience))?;
            self.patience = patience;
        }
        match self.socket.recv(&mut self.buffer) {
            Ok(bytes) => {
                // Those of strangers are told by their headers.
                self.buffer[..bytes]
                    .chunks(self.message_bytes)
                    .for_each(take);
                Ok(Received::Some)
            }
            Err(error) if is_late(&error) => Ok(Received::Nothing),
            Err(error) => Err(error),
        }
    }
}
