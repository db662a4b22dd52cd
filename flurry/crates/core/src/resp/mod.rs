//! The protocol of Redis, as bytes: what clients send, and what they are told.

mod reply;
mod request;

pub use reply::{Reply, Version, error};
pub use request::{Limits, ProtocolError, Requests};
