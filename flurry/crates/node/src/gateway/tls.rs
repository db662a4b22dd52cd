//! Certificates of a gateway, and whom it asks for theirs.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::Error;
use crate::pem::certificates;
use crate::security::check_secret;

/// A certificate and its key, as connections are secured by.
#[derive(Debug, Clone)]
pub struct Tls(pub(super) Arc<ServerConfig>);

fn failed(path: &Path, wanted: &'static str, error: &impl std::fmt::Display) -> Error {
    Error::io(path.display(), wanted, error)
}

impl Tls {
    /// Reads a certificate with its chain, and its key, both in PEM. With `clients`, the certificates of
    /// authorities, a client must show a certificate of one of them.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] for a file that cannot be read, has no certificate or key, or for two that do not
    /// belong together.
    pub fn read(certificate: &Path, key: &Path, clients: Option<&Path>) -> Result<Self, Error> {
        check_secret(key, "a private key")?;
        let chain = certificates(certificate)?;
        let private = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| failed(key, "a private key in PEM", &error))?;
        let provider = Arc::new(default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(certificate, "TLS 1.2 or 1.3", &error))?;
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates(path)? {
                    let added = roots.add(authority);
                    added.map_err(|error| failed(path, "certificates of authorities", &error))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                        .build()
                        .map_err(|error| failed(path, "certificates of authorities", &error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let config = builder
            .with_single_cert(chain, private)
            .map_err(|error| failed(key, "the key of that certificate", &error))?;
        Ok(Self(Arc::new(config)))
    }
}
