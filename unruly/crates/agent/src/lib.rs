//! What runs on a node.
//!
//! A run starts each process as `unruly agent --job FILE --out DIR`. The process says `ready`, is
//! told its `peers` and when to `start`, does its part, says `done`, and ends at `stop` or when its
//! standard input closes: no control port, no coordinator. Its rows stay where it writes them.

mod client;
mod collector;
mod compete;
mod control;
mod disk;
pub mod doctor;
mod door;
mod drive;
mod due;
mod events;
mod foreign;
mod ground;
mod job;
mod mesh;
mod otlp;
mod passive;
pub mod probe;
mod role;
mod scheduling;
mod serve;
mod spans;
mod stream;
mod stress;
mod tap;
mod tidy;
mod watch;

pub use control::{Bin, Message, PeerLine, ProgressLine, Ready, Report};
pub use due::due_until;
pub use job::{Job, JobKind, JvmPlace, PROTOCOL_VERSION, Stress};
pub use role::run;
pub use watch::DISK_CALLS;
