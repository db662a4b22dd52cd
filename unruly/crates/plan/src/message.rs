//! What clients send to a server of messages: `tcp`, `tls` and `dns`.

use serde::{Deserialize, Serialize};

/// The requests of a server whose requests are one message each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The text of every request, with its places. A name server has the name in its URL instead.
    #[serde(default)]
    pub text: Option<String>,
    /// The path of a CSV file with values that each request has of its own.
    #[serde(default)]
    pub data: Option<String>,
}
