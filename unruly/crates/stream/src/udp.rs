//! UDP: each message is one datagram, and nothing is retransmitted.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};

use crate::tcp::is_late;
use crate::{Options, Reader, Received, Sent, Writer};

/// Bytes that one system call sends. The call costs a tenth of single sends if the kernel cuts the
/// bytes into datagrams itself, and a few percent less if it does not.
const BATCH_BYTES: usize = 64_000;
const BATCH_MESSAGES: usize = 32;
/// Size of the socket's receive buffer: a tenth of a second at 5 Gbit/s.
const BUFFER_BYTES: usize = 64 << 20;
/// How often the end is sent, because each datagram may be lost.
const ENDS: u32 = 20;
const BETWEEN_ENDS: Duration = Duration::from_millis(5);

/// How one system call sends several messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// As one buffer, which the kernel cuts into datagrams.
    Cut,
    /// As separate datagrams.
    Many,
}

/// Sends datagrams.
#[derive(Debug)]
pub(crate) struct UdpWriter {
    socket: UdpSocket,
    timeout: Duration,
    way: Way,
    /// Complete messages that wait for the next call.
    batch: Vec<u8>,
    batch_bytes: usize,
    message_bytes: usize,
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
        Ok(Self {
            socket,
            timeout: Duration::ZERO,
            way: if cuts { Way::Cut } else { Way::Many },
            batch: Vec::with_capacity(BATCH_BYTES),
            batch_bytes: messages * options.message_bytes,
            message_bytes: options.message_bytes,
        })
    }

    /// Sends the batch. Returns true if the kernel took all of it.
    fn send(&mut self) -> io::Result<bool> {
        let sent = match self.way {
            Way::Cut => self.socket.send(&self.batch),
            Way::Many => self.send_each(),
        };
        let taken = match sent {
            Ok(taken) => taken,
            Err(error) if is_late(&error) => 0,
            Err(error) => match error.raw_os_error() {
                // No socket listens there yet, or any more. UDP loses such datagrams.
                Some(libc::ECONNREFUSED) if self.way == Way::Many => self.message_bytes,
                Some(libc::ECONNREFUSED) => self.batch.len(),
                // The queue of the network device is full.
                Some(libc::ENOBUFS) => 0,
                // A message is longer than a packet of this route. The kernel does not cut such
                // messages, it only fragments them.
                Some(libc::EINVAL | libc::EMSGSIZE) if self.way == Way::Cut => {
                    setsockopt(&self.socket, sockopt::UdpGsoSegment, &0)?;
                    self.way = Way::Many;
                    return self.send();
                }
                _ => return Err(error),
            },
        };
        self.batch.drain(..taken.min(self.batch.len()));
        Ok(self.batch.is_empty())
    }

    /// Sends each message as its own datagram, in one call. Returns the number of bytes that were
    /// sent.
    fn send_each(&self) -> io::Result<usize> {
        let mut parts: Vec<libc::iovec> = self
            .batch
            .chunks(self.message_bytes)
            .map(|message| libc::iovec {
                iov_base: message.as_ptr().cast_mut().cast(),
                iov_len: message.len(),
            })
            .collect();
        let header = |part: &mut libc::iovec| {
            // SAFETY: a header of zeros is a message to the connected peer without parts and
            // control data.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = 1;
            header
        };
        let mut headers: Vec<libc::mmsghdr> = parts.iter_mut().map(header).collect();
        let count = libc::c_uint::try_from(headers.len()).unwrap_or(0);
        // SAFETY: the headers, their parts and the batch live until the call returns.
        let sent =
            unsafe { libc::sendmmsg(self.socket.as_raw_fd(), headers.as_mut_ptr(), count, 0) };
        let sent = usize::try_from(sent).map_err(|_| io::Error::last_os_error())?;
        Ok(sent * self.message_bytes)
    }
}

impl Writer for UdpWriter {
    fn write(&mut self, message: &[u8], timeout: Duration) -> io::Result<Sent> {
        if self.timeout != timeout {
            self.socket.set_write_timeout(Some(timeout))?;
            self.timeout = timeout;
        }
        if self.batch.len() + message.len() > self.batch_bytes && !self.send()? {
            return Ok(Sent::Full);
        }
        self.batch.extend_from_slice(message);
        Ok(Sent::Taken)
    }

    fn finish(&mut self, last: &[u8], timeout: Duration) -> io::Result<()> {
        let until = Instant::now() + timeout;
        while !self.batch.is_empty() && !self.send()? && Instant::now() < until {}
        self.batch.clear();
        for _ in 0..ENDS {
            self.batch.extend_from_slice(last);
            self.send()?;
            self.batch.clear();
            // The pause keeps one full queue from dropping all of them.
            std::thread::sleep(BETWEEN_ENDS);
        }
        Ok(())
    }
}

/// Receives datagrams. The kernel may return several datagrams of one length as one buffer.
#[derive(Debug)]
pub(crate) struct UdpReader {
    socket: UdpSocket,
    timeout: Duration,
    buffer: Vec<u8>,
    message_bytes: usize,
}

impl UdpReader {
    pub(crate) fn listen(options: &Options, address: SocketAddr) -> io::Result<(Self, SocketAddr)> {
        let socket = UdpSocket::bind(address)?;
        // If the kernel allows neither, its own buffer size applies, and lost messages are counted.
        if setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES).is_err() {
            let _ = setsockopt(&socket, sockopt::RcvBuf, &BUFFER_BYTES);
        }
        let _ = setsockopt(&socket, sockopt::UdpGroSegment, &true);
        let at = socket.local_addr()?;
        let reader = Self {
            socket,
            timeout: Duration::ZERO,
            buffer: vec![0; 1 << 16],
            message_bytes: options.message_bytes,
        };
        Ok((reader, at))
    }
}

impl Reader for UdpReader {
    fn read(&mut self, timeout: Duration, take: &mut dyn FnMut(&[u8])) -> io::Result<Received> {
        if self.timeout != timeout {
            self.socket.set_read_timeout(Some(timeout))?;
            self.timeout = timeout;
        }
        match self.socket.recv(&mut self.buffer) {
            Ok(bytes) => {
                // The caller recognises datagrams of other senders by their headers.
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use unruly_plan::Protocol;

    use super::*;

    #[test]
    fn messages_that_the_kernel_does_not_cut_go_each_by_itself() {
        let options = Options {
            protocol: Protocol::Udp,
            message_bytes: 500,
            cookie: 1,
            library: None,
        };
        let at = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let (mut reader, at) = UdpReader::listen(&options, at).unwrap();
        let mut writer = UdpWriter::connect(&options, at).unwrap();
        setsockopt(&writer.socket, sockopt::UdpGsoSegment, &0).unwrap();
        writer.way = Way::Many;
        for number in 0..100_u8 {
            let sent = writer.write(&[number; 500], Duration::from_secs(5));
            assert_eq!(sent.unwrap(), Sent::Taken);
        }
        writer.finish(&[200; 500], Duration::from_secs(5)).unwrap();
        let mut came = Vec::new();
        while came.len() < 101 {
            let mut take = |message: &[u8]| {
                assert_eq!(message, [message[0]; 500]);
                came.push(message[0]);
            };
            reader.read(Duration::from_secs(5), &mut take).unwrap();
        }
        let wanted: Vec<u8> = (0..100).chain([200]).collect();
        assert_eq!(came[..101], wanted);
    }
}
