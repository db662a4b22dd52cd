//! The router's record of each copy: the rows of the arrival log, as data.

use crate::config::Level;
use crate::id::{MonoNs, OperationId, ServerId};

/// The end of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CopyEnd {
    /// The reply was correct.
    Ok,
    /// The replica missed writes.
    Behind,
    /// The replica had a later version, owner or configuration.
    Stale,
    /// The server refused for a reason of its own: it is copying, has no lease or no room, or does
    /// not know the session.
    Refused,
    /// No reply came.
    Lost,
    /// The answers of two replicas differ.
    Wrong,
}

/// One copy of one operation, from its sending to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Arrival {
    /// The operation.
    pub id: OperationId,
    /// The key's hash.
    pub key_hash: u64,
    /// The server that the copy was sent to.
    pub server: ServerId,
    /// The number of the retry; 0 for the first copy.
    pub attempt: u8,
    /// The replies that the operation waits for.
    pub level: Level,
    /// True if the operation changes the state.
    pub write: bool,
    /// The scheduled time of the operation, or the time at which the router received it.
    pub intended: MonoNs,
    /// The time at which the router sent the copy.
    pub sent: MonoNs,
    /// The time at which the reply arrived.
    pub received: Option<MonoNs>,
    /// The end of the copy.
    pub end: CopyEnd,
    /// True if this reply completed the operation.
    pub answered: bool,
    /// The server's own times: received by the kernel, received, sent; 0 if unknown.
    pub stamps: [i64; 3],
    /// The time at which the kernel received the reply; 0 if the driver does not know it.
    pub kernel_received: i64,
}
