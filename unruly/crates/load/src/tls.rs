//! TLS between a connection and its target: a filter on bytes, which serves any protocol.
//!
//! First, a new connection says hello, and messages for it are held. Second, when both sides agree,
//! the held messages are encrypted in their order. Third, received bytes are decrypted before the
//! target sees them. Every connection makes a full handshake, as a new client does: a session of an
//! earlier one is not resumed.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

/// How the connections to one host speak TLS.
#[derive(Clone)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    /// The protocol that the server must choose.
    required: Option<&'static [u8]>,
}

impl PartialEq for TlsClient {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.config, &other.config) && self.name == other.name
    }
}

impl Eq for TlsClient {}

impl fmt::Debug for TlsClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("TlsClient")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A file or a name that TLS cannot use.
#[derive(Debug, thiserror::Error)]
#[error("{wrong}")]
pub(crate) struct TlsError {
    /// The key of the plan.
    pub(crate) key: &'static str,
    pub(crate) wrong: String,
}

impl TlsError {
    fn new(key: &'static str, wrong: impl Into<String>) -> Self {
        Self {
            key,
            wrong: wrong.into(),
        }
    }
}

/// A server that does not choose the protocol that is required.
#[derive(Debug, thiserror::Error)]
#[error("the server does not speak {0}")]
pub(crate) struct OtherProtocol(pub(crate) String);

/// What all connections of a driver agree on, before a host is named: the server is offered this
/// protocol.
///
/// # Errors
///
/// When a file cannot be read, or holds something else.
pub(crate) fn config(
    files: &unruly_plan::Tls,
    protocol: Option<&[u8]>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::new("url", error.to_string()))?;
    let builder = if files.insecure {
        let unchecked = Arc::new(Unchecked(provider));
        builder
            .dangerous()
            .with_custom_certificate_verifier(unchecked)
    } else {
        builder.with_root_certificates(authorities(files.ca_cert.as_deref())?)
    };
    let own = files.client_cert.as_ref().zip(files.client_key.as_ref());
    let mut config = match own {
        Some((certificate, key)) => {
            let chain = certificates("client_cert", certificate)?;
            let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| {
                TlsError::new("client_key", format!("{key} holds no key in PEM: {error}"))
            })?;
            builder
                .with_client_auth_cert(chain, secret)
                .map_err(|error| {
                    let wrong = format!("{key} is not the key of {certificate}: {error}");
                    TlsError::new("client_key", wrong)
                })?
        }
        None => builder.with_no_client_auth(),
    };
    config.resumption = Resumption::disabled();
    config.alpn_protocols = protocol.map(<[u8]>::to_vec).into_iter().collect();
    Ok(Arc::new(config))
}

/// The authorities of a file, or those of the system.
fn authorities(file: Option<&str>) -> Result<RootCertStore, TlsError> {
    const KEY: &str = "ca_cert";
    let mut roots = RootCertStore::empty();
    match file {
        Some(file) => {
            for certificate in certificates(KEY, file)? {
                roots.add(certificate).map_err(|error| {
                    TlsError::new(KEY, format!("{file} holds no usable certificate: {error}"))
                })?;
            }
        }
        None => {
            // One that cannot be used is no reason to do without the others.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(TlsError::new(
                    KEY,
                    "this system has no certificates of authorities",
                ));
            }
        }
    }
    Ok(roots)
}

/// The certificates of a PEM file, at least one.
fn certificates(key: &'static str, file: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |error: &dyn fmt::Display| {
        TlsError::new(key, format!("{file} holds no certificate in PEM: {error}"))
    };
    let found = CertificateDer::pem_file_iter(Path::new(file)).map_err(|error| wrong(&error))?;
    let found = found
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| wrong(&error))?;
    if found.is_empty() {
        return Err(wrong(&"it has none"));
    }
    Ok(found)
}

impl TlsClient {
    /// The connections to this host.
    ///
    /// # Errors
    ///
    /// When no certificate can be for such a name.
    pub(crate) fn new(
        config: &Arc<ClientConfig>,
        host: &str,
        required: Option<&'static [u8]>,
    ) -> Result<Self, TlsError> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| TlsError::new("url", format!("{host:?} is no name of a host")))?;
        Ok(Self {
            config: Arc::clone(config),
            name,
            required,
        })
    }
}

/// One connection's TLS.
#[derive(Debug)]
pub(crate) struct Tls {
    connection: ClientConnection,
    required: Option<&'static [u8]>,
}

impl Tls {
    pub(crate) fn new(client: &TlsClient) -> io::Result<Self> {
        let name = client.name.clone();
        let connection = ClientConnection::new(Arc::clone(&client.config), name);
        let mut connection = connection.map_err(broken)?;
        // A message is bounded by its plan, and half of one must not be lost.
        connection.set_buffer_limit(None);
        Ok(Self {
            connection,
            required: client.required,
        })
    }

    /// True if both sides agree, so that messages may be sent.
    pub(crate) fn is_ready(&self) -> bool {
        !self.connection.is_handshaking()
    }

    /// Appends what TLS itself has to say.
    pub(crate) fn drain(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(out)?;
        }
        Ok(())
    }

    /// Appends a message in encrypted form.
    pub(crate) fn encrypt(&mut self, message: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        self.connection.writer().write_all(message)?;
        self.drain(out)
    }

    /// Takes received bytes, and appends what they hold for the target. Returns true if the peer
    /// said that no more will come.
    ///
    /// # Errors
    ///
    /// When the bytes are not of TLS, or the peer's certificate is not accepted.
    pub(crate) fn decrypt(&mut self, mut wire: &[u8], message: &mut Vec<u8>) -> io::Result<bool> {
        let mut closed = false;
        while !wire.is_empty() {
            if self.connection.read_tls(&mut wire)? == 0 {
                break;
            }
            let processed = self.connection.process_new_packets().map_err(broken);
            // Records before a broken one are sound.
            match self.connection.reader().read_to_end(message) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
            closed |= processed?.peer_has_closed();
            self.check_protocol()?;
            if closed {
                break;
            }
        }
        Ok(closed)
    }
}

impl Tls {
    /// Refuses a server that chose another protocol, or none.
    fn check_protocol(&self) -> io::Result<()> {
        let Some(required) = self.required.filter(|_| self.is_ready()) else {
            return Ok(());
        };
        if self.connection.alpn_protocol() == Some(required) {
            return Ok(());
        }
        let name = String::from_utf8_lossy(required).into_owned();
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            OtherProtocol(name),
        ))
    }
}

fn broken(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Accepts any certificate. The signatures of the handshake are still checked.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
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
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, cert, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, cert, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
