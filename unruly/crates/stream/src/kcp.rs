//! KCP: messages over datagrams, sent again early rather than late.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio_kcp::{KcpConfig, KcpListener, KcpNoDelayConfig, KcpStream};

use crate::header::Header;
use crate::runtime::{runtime, within};
use crate::{Options, Reader, Received, Sent, Writer, out_of_time};

/// Segments that may be under way. The protocol's own default of 256 is for interactive traffic.
const WINDOW: u16 = 1_024;

/// A conversation in which nothing is said for so long is over: longer than any load takes to settle.
const SESSION_EXPIRE: Duration = Duration::from_secs(86_400);

/// The mode that its makers call fastest, with a window for bulk.
fn config() -> KcpConfig {
    KcpConfig {
        nodelay: KcpNoDelayConfig::fastest(),
        wnd_size: (WINDOW, WINDOW),
        flush_acks_input: true,
        session_expire: SESSION_EXPIRE,
        ..KcpConfig::default()
    }
}

/// Writes messages into a conversation.
pub(crate) struct KcpWriter {
    runtime: Runtime,
    stream: KcpStream,
    reply: Vec<u8>,
}

impl KcpWriter {
    pub(crate) fn connect(
        options: &Options,
        to: SocketAddr,
        patience: Duration,
    ) -> io::Result<Self> {
        let runtime = runtime()?;
        let made = runtime.block_on(async {
            tokio::time::timeout(patience, KcpStream::connect(&config(), to)).await
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
    fn write(&mut self, message: &[u8], patience: Duration) -> io::Result<Sent> {
        // A conversation has no beginning: the first message makes it, and is taken whole.
        let stream = &mut self.stream;
        let sent = within(&self.runtime, patience, |context| {
            stream.poll_send(context, message)
        });
        match sent {
            None => Ok(Sent::Full),
            Some(sent) => sent.map(|_| Sent::Taken).map_err(io::Error::other),
        }
    }

    fn finish(&mut self, last: &[u8], patience: Duration) -> io::Result<()> {
        if self.write(last, patience)? == Sent::Full {
            return Err(out_of_time("the reader takes no more"));
        }
        // There is no end in this protocol: the reader sends the last message back.
        let (stream, reply) = (&mut self.stream, &mut self.reply);
        let heard = within(&self.runtime, patience, |context| {
            stream.poll_recv(context, reply)
        });
        match heard {
            Some(heard) => heard.map(drop).map_err(io::Error::other),
            None => Err(out_of_time("the reader has not read to the end")),
        }
    }
}

/// Reads the messages of the first conversation of this run.
pub(crate) struct KcpReader {
    runtime: Runtime,
    listener: KcpListener,
    stream: Option<KcpStream>,
    /// It has sent a message of this run.
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

    fn accept(&mut self, patience: Duration) -> io::Result<Received> {
        let listener = &mut self.listener;
        let came = self
            .runtime
            .block_on(async { tokio::time::timeout(patience, listener.accept()).await });
        if let Ok(came) = came {
            self.stream = Some(came.map_err(io::Error::other)?.0);
            return Ok(Received::Some);
        }
        Ok(Received::Nothing)
    }
}

impl Reader for KcpReader {
    fn read(&mut self, patience: Duration, take: &mut dyn FnMut(&[u8])) -> io::Result<Received> {
        let Some(stream) = &mut self.stream else {
            return self.accept(patience);
        };
        let message = &mut self.message;
        let came = within(&self.runtime, patience, |context| {
            stream.poll_recv(context, message)
        });
        let bytes = match came {
            // Any datagram makes a conversation: one that says nothing gives way to the next.
            None if !self.known => return self.accept(Duration::ZERO),
            None => return Ok(Received::Nothing),
            // One that ends or breaks without a word is nobody's.
            Some(Ok(0) | Err(_)) if !self.known => {
                self.stream = None;
                return Ok(Received::Nothing);
            }
            Some(Ok(0)) => return Ok(Received::Ended),
            Some(Ok(bytes)) => bytes,
            Some(Err(error)) => return Err(io::Error::other(error)),
        };
        let Some(header) = Header::read(self.cookie, &self.message[..bytes]) else {
            // A stranger's: somebody else may come.
            self.stream = None;
            return Ok(Received::Nothing);
        };
        self.known = true;
        take(&self.message[..bytes]);
        if header.end {
            let last = &self.message[..bytes];
            within(&self.runtime, patience, |context| {
                stream.poll_send(context, last)
            });
        }
        Ok(Received::Some)
    }
}
