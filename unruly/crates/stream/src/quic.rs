//! QUIC: one stream of one connection, with QUIC's usual encryption.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{
    ClientConfig, Connecting, Connection, ConnectionError, Endpoint, RecvStream, SendStream,
    ServerConfig, StoppedError, TransportConfig, VarInt,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use tokio::runtime::Runtime;

use crate::frames::Frames;
use crate::header::Header;
use crate::runtime::{runtime, within};
use crate::{Options, Reader, Received, Sent, Writer, out_of_time};

/// The error code that closes a stream of another run.
const STRANGER: VarInt = VarInt::from_u32(1);
/// Most handshakes, connections and streams that may wait to be identified, for each of the three.
const CANDIDATES_MAX: usize = 16;
/// Time limit for a handshake. Its packets may wait for a while when the load competes for the CPU.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of the keep-alive packets. A connection that is silent for 30 s is closed.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Time limit for the last packets of a reader that closes its connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Most bytes that one read returns.
const CHUNK_BYTES: usize = 256 << 10;

/// Writes messages to a stream.
pub(crate) struct QuicWriter {
    runtime: Runtime,
    endpoint: Endpoint,
    stream: SendStream,
    rest: Vec<u8>,
}

impl QuicWriter {
    pub(crate) fn connect(to: SocketAddr, timeout: Duration) -> io::Result<Self> {
        let runtime = runtime()?;
        let any: SocketAddr = if to.is_ipv4() {
            ([0, 0, 0, 0], 0).into()
        } else {
            ([0_u16; 8], 0).into()
        };
        let config = client_config()?;
        let made = runtime.block_on(async {
            let endpoint = Endpoint::client(any)?;
            let opened = async {
                let connecting = endpoint.connect_with(config, to, "unruly");
                let connection = connecting.map_err(io::Error::other)?.await?;
                connection.open_uni().await.map_err(io::Error::from)
            };
            let stream = tokio::time::timeout(timeout, opened).await;
            let stream = stream.map_err(|_| out_of_time("no connection"))??;
            Ok::<_, io::Error>((endpoint, stream))
        });
        let (endpoint, stream) = made?;
        Ok(Self {
            runtime,
            endpoint,
            stream,
            rest: Vec::new(),
        })
    }

    /// Writes the rest of the previous message. Returns true if the stream took all of it.
    fn write_rest(&mut self, timeout: Duration) -> io::Result<bool> {
        while !self.rest.is_empty() {
            match write(&self.runtime, &mut self.stream, &self.rest, timeout)? {
                Some(taken) => drop(self.rest.drain(..taken)),
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// Returns how many bytes the stream took, or `None` after `timeout`.
fn write(
    runtime: &Runtime,
    stream: &mut SendStream,
    bytes: &[u8],
    timeout: Duration,
) -> io::Result<Option<usize>> {
    let written = within(runtime, timeout, |context| {
        pin!(stream.write(bytes)).poll(context)
    });
    written.transpose().map_err(io::Error::from)
}

impl Writer for QuicWriter {
    fn write(&mut self, message: &[u8], timeout: Duration) -> io::Result<Sent> {
        if !self.rest.is_empty() && !self.write_rest(timeout)? {
            return Ok(Sent::Full);
        }
        match write(&self.runtime, &mut self.stream, message, timeout)? {
            Some(taken) => {
                self.rest.extend_from_slice(&message[taken..]);
                Ok(Sent::Taken)
            }
            None => Ok(Sent::Full),
        }
    }

    fn finish(&mut self, last: &[u8], timeout: Duration) -> io::Result<()> {
        self.rest.extend_from_slice(last);
        if !self.write_rest(timeout)? {
            return Err(out_of_time("the reader takes no more"));
        }
        self.stream.finish().map_err(io::Error::other)?;
        let stopped = self.stream.stopped();
        let acknowledged = self
            .runtime
            .block_on(async { tokio::time::timeout(timeout, stopped).await });
        match acknowledged {
            // A reader closes the connection when it has read to the end.
            Ok(
                Ok(_) | Err(StoppedError::ConnectionLost(ConnectionError::ApplicationClosed(_))),
            ) => Ok(()),
            Ok(Err(error)) => Err(io::Error::other(error)),
            Err(_) => Err(out_of_time("the reader has not read to the end")),
        }
    }
}

impl Drop for QuicReader {
    /// Closes the connection and sends its last packets: the acknowledgement of the end may still
    /// wait, and nothing is sent after this. The writer would wait for it until its timeout.
    fn drop(&mut self) {
        self.endpoint.close(VarInt::from_u32(0), b"");
        let endpoint = &self.endpoint;
        self.runtime.block_on(async {
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, endpoint.wait_idle()).await;
        });
    }
}

impl Drop for QuicWriter {
    fn drop(&mut self) {
        self.endpoint.close(VarInt::from_u32(0), b"");
    }
}

/// Reads the first stream whose first message belongs to this run.
pub(crate) struct QuicReader {
    runtime: Runtime,
    endpoint: Endpoint,
    strangers: Strangers,
    stream: Option<Candidate>,
    message_bytes: usize,
    cookie: u32,
}

/// Peers that have not been identified yet. Each list keeps only the newest ones.
#[derive(Default)]
struct Strangers {
    handshakes: Vec<(Instant, Connecting)>,
    connections: Vec<Connection>,
    streams: Vec<Candidate>,
}

/// A stream, and the bytes of its incomplete message.
struct Candidate {
    stream: RecvStream,
    frames: Frames,
}

type Chunk = Result<Option<quinn::Chunk>, quinn::ReadError>;

/// The first event of a wait. The number is the index of its source in the list.
enum Came {
    Incoming(Box<quinn::Incoming>),
    Connection(usize, Option<Connection>),
    Stream(usize, Option<RecvStream>),
    Chunk(usize, Chunk),
}

impl QuicReader {
    pub(crate) fn listen(options: &Options, address: SocketAddr) -> io::Result<(Self, SocketAddr)> {
        let runtime = runtime()?;
        let config = server_config()?;
        let endpoint = runtime.block_on(async { Endpoint::server(config, address) })?;
        let at = endpoint.local_addr()?;
        let reader = Self {
            runtime,
            endpoint,
            strangers: Strangers::default(),
            stream: None,
            message_bytes: options.message_bytes,
            cookie: options.cookie,
        };
        Ok((reader, at))
    }

    /// Advances one waiting peer by one step, and looks for this run's stream. A slow peer holds up
    /// neither the others nor the reader.
    fn meet(&mut self, timeout: Duration, take: &mut dyn FnMut(&[u8])) -> Received {
        let now = Instant::now();
        let strangers = &mut self.strangers;
        strangers.handshakes.retain(|(until, _)| now < *until);
        match strangers.first(&self.runtime, &self.endpoint, timeout) {
            None => return Received::Nothing,
            Some(Came::Incoming(incoming)) => {
                let _inside = self.runtime.enter();
                if let Ok(connecting) = incoming.accept() {
                    add(
                        &mut strangers.handshakes,
                        (now + HANDSHAKE_TIMEOUT, connecting),
                    );
                }
            }
            Some(Came::Connection(number, connection)) => {
                strangers.handshakes.remove(number);
                if let Some(connection) = connection {
                    add(&mut strangers.connections, connection);
                }
            }
            Some(Came::Stream(number, None)) => drop(strangers.connections.remove(number)),
            Some(Came::Stream(_, Some(stream))) => {
                let frames = Frames::new(self.message_bytes);
                add(&mut strangers.streams, Candidate { stream, frames });
            }
            Some(Came::Chunk(number, chunk)) => self.hear(number, chunk, take),
        }
        Received::Some
    }

    /// Decides by its first message whether a stream belongs to this run.
    fn hear(&mut self, number: usize, chunk: Chunk, take: &mut dyn FnMut(&[u8])) {
        let mut candidate = self.strangers.streams.remove(number);
        // A stream that ends or breaks without a message does not belong to this run.
        let Ok(Some(chunk)) = chunk else {
            return;
        };
        let (mut known, mut stranger, cookie) = (false, false, self.cookie);
        candidate.frames.copy(&chunk.bytes, &mut |message| {
            stranger |= !known && Header::read(cookie, message).is_none();
            known |= !stranger;
            if known {
                take(message);
            }
        });
        if known {
            self.stream = Some(candidate);
            self.strangers.handshakes.clear();
            self.strangers.streams.clear();
        } else if stranger {
            let _ = candidate.stream.stop(STRANGER);
        } else {
            add(&mut self.strangers.streams, candidate);
        }
    }
}

impl Strangers {
    /// Returns the first event among all waiting peers, or `None` after `timeout`.
    fn first(&mut self, runtime: &Runtime, endpoint: &Endpoint, timeout: Duration) -> Option<Came> {
        let Self {
            handshakes,
            connections,
            streams,
        } = self;
        runtime.block_on(async {
            let mut accepting = pin!(endpoint.accept());
            let opening = connections.iter().map(|it| Box::pin(it.accept_uni()));
            let mut opening: Vec<_> = opening.collect();
            let first = std::future::poll_fn(|context| {
                for (number, it) in streams.iter_mut().enumerate() {
                    if let Poll::Ready(chunk) = it.poll(context) {
                        return Poll::Ready(Some(Came::Chunk(number, chunk)));
                    }
                }
                for (number, it) in opening.iter_mut().enumerate() {
                    if let Poll::Ready(stream) = it.as_mut().poll(context) {
                        return Poll::Ready(Some(Came::Stream(number, stream.ok())));
                    }
                }
                for (number, (_, it)) in handshakes.iter_mut().enumerate() {
                    if let Poll::Ready(made) = Pin::new(it).poll(context) {
                        return Poll::Ready(Some(Came::Connection(number, made.ok())));
                    }
                }
                let incoming = accepting.as_mut().poll(context);
                incoming.map(|it| it.map(|it| Came::Incoming(Box::new(it))))
            });
            tokio::time::timeout(timeout, first).await.ok().flatten()
        })
    }
}

impl Candidate {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Chunk> {
        pin!(self.stream.read_chunk(CHUNK_BYTES, true)).poll(context)
    }
}

/// Adds an element. Drops the oldest one if there are too many.
fn add<T>(waiting: &mut Vec<T>, one: T) {
    if waiting.len() == CANDIDATES_MAX {
        drop(waiting.remove(0));
    }
    waiting.push(one);
}

impl Reader for QuicReader {
    fn read(&mut self, timeout: Duration, take: &mut dyn FnMut(&[u8])) -> io::Result<Received> {
        let Some(own) = &mut self.stream else {
            return Ok(self.meet(timeout, take));
        };
        match within(&self.runtime, timeout, |context| own.poll(context)) {
            None => Ok(Received::Nothing),
            Some(Ok(None)) => Ok(Received::Ended),
            Some(Ok(Some(chunk))) => {
                own.frames.copy(&chunk.bytes, take);
                Ok(Received::Some)
            }
            Some(Err(error)) => Err(io::Error::other(error)),
        }
    }
}

/// Returns a configuration with a new self-signed certificate. A run measures the protocol with its
/// encryption, and both ends belong to `unruly`, so the certificate needs no authority.
fn server_config() -> io::Result<ServerConfig> {
    let made = rcgen::generate_simple_self_signed(vec!["unruly".to_owned()]);
    let made = made.map_err(io::Error::other)?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der());
    let key = key.map_err(io::Error::other)?;
    ServerConfig::with_single_cert(vec![made.cert.into()], key).map_err(io::Error::other)
}

/// Returns a configuration that accepts any certificate, as performance tools do. The connection
/// carries no secrets, and the cookie in each message identifies its run.
fn client_config() -> io::Result<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    let config = QuicClientConfig::try_from(config).map_err(io::Error::other)?;
    let mut transport = TransportConfig::default();
    transport.keep_alive_interval(Some(KEEP_ALIVE));
    let mut client = ClientConfig::new(Arc::new(config));
    client.transport_config(Arc::new(transport));
    Ok(client)
}

/// Checks that the peer holds the key of its certificate, but not who issued the certificate.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
