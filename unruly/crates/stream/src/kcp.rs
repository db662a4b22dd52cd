//! KCP: messages over datagrams, with early retransmission.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio_kcp::{KcpConfig, KcpListener, KcpNoDelayConfig, KcpStream};

use crate::header::Header;
use crate::runtime::{runtime, within};
use crate::{Options, Reader, Received, Sent, Writer, out_of_time};

/// Segments that may be in flight. The protocol's own default of 256 is meant for interactive
/// traffic.
const WINDOW: u16 = 1_024;

/// The idle time after which a conversation ends: longer than any load needs to settle.
const SESSION_EXPIRE: Duration = Duration::from_secs(86_400);

/// Returns the mode that the protocol's authors call fastest, with a window for bulk transfer.
fn config() -> KcpConfig {
    KcpConfig {
        nodelay: KcpNoDelayConfig::fastest(),
        wnd_size: (WINDOW, WINDOW),
        flush_acks_input: true,
        session_expire: SESSION_EXPIRE,
        ..KcpConfig::default()
    }
}

/// Writes messages to a conversation.
pub(crate) struct KcpWriter {
    runtime: Runtime,
    stream: KcpStream,
    reply: Vec<u8>,
}

impl KcpWriter {
    pub(crate) fn connect(
        options: &Options,
        to: SocketAddr,
        timeout: Duration,
    ) -> io::Result<Self> {
        let runtime = runtime()?;
        let made = runtime.block_on(async {
            tokio::time::timeout(timeout, KcpStream::connect(&config(), to)).await
        });
        let stream = made
            .map_err(|_| out_of_time("no conversation"))?
            .map_err(io::Error::other)?;
        Ok(Self {
            runtime,
            stream,
            reply: vec![0; options.message_bytes],
        })
    }
}

impl Writer for KcpWriter {
    fn write(&mut self, message: &[u8], timeout: Duration) -> io::Result<Sent> {
        // A conversation has no handshake. The first message creates it, and is taken as a whole.
        let stream = &mut self.stream;
        let sent = within(&self.runtime, timeout, |context| {
            stream.poll_send(context, message)
        });
        match sent {
            None => Ok(Sent::Full),
            Some(sent) => sent.map(|_| Sent::Taken).map_err(io::Error::other),
        }
    }

    fn finish(&mut self, last: &[u8], timeout: Duration) -> io::Result<()> {
        if self.write(last, timeout)? == Sent::Full {
            return Err(out_of_time("the reader takes no more"));
        }
        // The protocol has no end marker, so the reader sends the last message back.
        let (stream, reply) = (&mut self.stream, &mut self.reply);
        let heard = within(&self.runtime, timeout, |context| {
            stream.poll_recv(context, reply)
        });
        match heard {
            Some(heard) => heard.map(drop).map_err(io::Error::other),
            None => Err(out_of_time("the reader has not read to the end")),
        }
    }
}

/// Reads the messages of this run's first conversation.
pub(crate) struct KcpReader {
    runtime: Runtime,
    listener: KcpListener,
    stream: Option<KcpStream>,
    /// True if the conversation has sent a message of this run.
    known: bool,
    message: Vec<u8>,
    cookie: u32,
}

impl KcpReader {
    pub(crate) fn listen(options: &Options, address: SocketAddr) -> io::Result<(Self, SocketAddr)> {
        let runtime = runtime()?;
        let listener = runtime
            .block_on(KcpListener::bind(config(), address))
            .map_err(io::Error::other)?;
        let at = listener.local_addr()?;
        let reader = Self {
            runtime,
            listener,
            stream: None,
            known: false,
            message: vec![0; options.message_bytes],
            cookie: options.cookie,
        };
        Ok((reader, at))
    }

    fn accept(&mut self, timeout: Duration) -> io::Result<Received> {
        let listener = &mut self.listener;
        let came = self
            .runtime
            .block_on(async { tokio::time::timeout(timeout, listener.accept()).await });
        if let Ok(came) = came {
            self.stream = Some(came.map_err(io::Error::other)?.0);
            return Ok(Received::Some);
        }
        Ok(Received::Nothing)
    }
}

impl Reader for KcpReader {
    fn read(&mut self, timeout: Duration, take: &mut dyn FnMut(&[u8])) -> io::Result<Received> {
        let Some(stream) = &mut self.stream else {
            return self.accept(timeout);
        };
        let message = &mut self.message;
        let came = within(&self.runtime, timeout, |context| {
            stream.poll_recv(context, message)
        });
        let bytes = match came {
            // Any datagram creates a conversation. A silent one makes room for the next.
            None if !self.known => return self.accept(Duration::ZERO),
            None => return Ok(Received::Nothing),
            // A conversation that ends or breaks without a message does not belong to this run.
            Some(Ok(0) | Err(_)) if !self.known => {
                self.stream = None;
                return Ok(Received::Nothing);
            }
            Some(Ok(0)) => return Ok(Received::Ended),
            Some(Ok(bytes)) => bytes,
            Some(Err(error)) => return Err(io::Error::other(error)),
        };
        let Some(header) = Header::read(self.cookie, &self.message[..bytes]) else {
            // The message is from another run: the reader waits for the next conversation.
            self.stream = None;
            return Ok(Received::Nothing);
        };
        self.known = true;
        take(&self.message[..bytes]);
        if header.end {
            let last = &self.message[..bytes];
            within(&self.runtime, timeout, |context| {
                stream.poll_send(context, last)
            });
        }
        Ok(Received::Some)
    }
}
