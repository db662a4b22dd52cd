//! Flurry's state machines: the first correct response, without losing a write.
//!
//! This crate has no socket, no clock, no thread, no file and no randomness of its own. The driver
//! passes inputs (`handle_*`) and carries out the results (`poll_*`). The same code runs in real
//! processes (`flurry/crates/node`) and in a simulation of whole clusters, which chooses every
//! delay, loss and crash from a seed (`flurry/crates/sim`).
//!
//! - [`portal`]: the owner of a session, which gives each operation its identity.
//! - [`router`]: sends a copy to every replica, takes the first correct reply, repairs the others.
//! - [`server`]: checks whether it may answer, executes, remembers.
//! - [`controller`]: decides on the members of the cluster and the owners of sessions.
//! - [`consensus`]: the agreement of several controllers on these decisions.
//! - [`machine`]: the replicated state machine; [`key_value`] is the first instance.
//!
//! # The check
//!
//! A sequence number alone cannot reveal that a replica has missed a write, unless numbers are
//! dense for each key. So every operation names the version that it depends on: that of the key's
//! previous write. A replica that has exactly this version has everything that came before, and its
//! answer is the right one, whatever the others do. That is why one reply is enough.
//!
//! # Assertions
//!
//! The code asserts what its own state must satisfy. Such an assertion fails only if this crate is
//! wrong, whatever callers pass and peers send, so documentation has a section on panics only for a
//! function that panics for a mistake of its caller. Cheap assertions stay on in every build; a
//! process that finds its own state wrong ends, which the protocol survives. `verify` methods check
//! the whole state; the simulator calls them after one input in 64, and the model after every one.

#![expect(
    clippy::missing_panics_doc,
    reason = "an assertion about the crate's own state is no part of a function's contract"
)]

pub mod bugs;
pub mod config;
pub mod consensus;
pub mod controller;
pub mod decimal;
pub mod fixed;
pub mod id;
pub mod key_value;
pub mod log;
pub mod machine;
pub mod message;
mod numbered;
pub mod portal;
mod rare;
pub mod resp;
pub mod router;
pub mod server;
mod table;
pub mod wire;

pub use table::record_bytes;
