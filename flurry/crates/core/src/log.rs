//! What the router knows of each copy: the rows of the arrival log, as data.

use crate::config::Level;
use crate::id::{MonoNs, OperationId, ServerId};

/// What became of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CopyEnd {
    /// The right answer.
    Ok,
    /// The replica missed writes.
    Behind,
    /// The replica had gone on, or goes by another owner or configuration.
    Stale,
    /// The server refused for a reason of its own: it copies, has no lease, no room, or knows no such session.
    Refused,
    /// Nothing came.
    Lost,
    /// The answers of two replicas differ.
    Wrong,
}

/// One copy of one operation, from its sending to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Arrival {
    /// Of which operation.
    pub id: OperationId,
    /// The key's hash.
    pub key_hash: u64,
    /// Who was asked.
    pub server: ServerId,
    /// 0, or the retry's number.
    pub attempt: u8,
    /// Which replies the operation waits for.
    pub level: Level,
    /// It changes the state.
    pub write: bool,
    /// When the operation's caller wanted it; when the router got it, if nobody said.
    pub intended: MonoNs,
    /// When the copy was sent.
    pub sent: MonoNs,
    /// When its reply came.
    pub received: Option<MonoNs>,
    /// What became of it.
    pub end: CopyEnd,
    /// This reply gave the operation its answer.
    pub answered: bool,
    /// The server's own times: kernel received, received, sent; 0 is missing.
    pub stamps: [i64; 3],
    /// When the kernel had the reply, where the driver told.
    pub kernel_received: i64,
}
