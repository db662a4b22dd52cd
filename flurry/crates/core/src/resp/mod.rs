//! The protocol of Redis, as bytes: the commands of clients, and the replies to them.

mod reply;
mod request;

pub use reply::{Reply, Version, error};
pub use request::{Command, Limits, ProtocolError, Requests};
