//! The certificates that a server and its clients show to each other.

use serde::{Deserialize, Serialize};

/// The certificates of a connection by TLS. Each is the path of a PEM file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tls {
    /// Authorities whose certificates are accepted; those of the system when absent.
    pub ca_cert: Option<String>,
    /// The client's own certificate.
    pub client_cert: Option<String>,
    /// The key of the client's certificate.
    pub client_key: Option<String>,
    /// Every certificate of the server is accepted.
    pub insecure: bool,
}
