//! Flurry on real sockets: the state machines of `flurry-core`, each on a thread with a UDP socket.
//!
//! - [`Client`]: a blocking client, the owner of a session. Its router is inside.
//! - [`Server`]: a data server, one thread for each shard.
//! - [`Controller`]: who takes part and who owns what, kept on disk.
//! - [`status`]: what the controller says of its cluster.
//!
//! Everything that decides something is in the core; here is only what carries it out. All of
//! it listens on the loopback interface alone, since nothing is encrypted and nobody has to say who
//! they are; and all of it is UDP, which bounds a value to [`VALUE_BYTES_MAX`].
//!
//! ```no_run
//! # fn main() -> Result<(), flurry::Error> {
//! let controller = "127.0.0.1:7700".parse().expect("an address");
//! let client = flurry::Client::open(&flurry::Options::new(controller, "cart-17"))?;
//! client.set("apples", "3")?;
//! assert_eq!(client.increment("apples", 2)?, 5);
//! client.close()?;
//! # Ok(())
//! # }
//! ```

mod address;
mod client;
mod clock;
mod controller;
mod error;
mod link;
mod node;
mod random;
mod server;
mod status;
mod store;

pub use address::{loopback, resolve};
pub use client::{Call, Client, Closed, Done, Options, Set};
pub use clock::wall_after;
pub use controller::{Controller, ControllerOptions};
pub use error::Error;
pub use flurry_core::config::Level;
pub use flurry_core::id::{DurationNs, Epoch, Version, WallNs};
pub use flurry_core::key_value::{Answer, Condition, Operation};
pub use link::LinkCounts;
pub use server::{Server, ServerOptions};
pub use status::status;

use flurry_core::id::Key;
use flurry_core::wire::{DATAGRAM_BYTES_MAX, HEADER_BYTES};

/// How long a server may answer on its own after it was last allowed to. Servers and controller must
/// agree on it, so it is no option: a lost server is counted out after this long, and an opening
/// waits for an eighth more.
pub const LEASE: DurationNs = DurationNs::millis(1_000);

/// The largest value, one that fits a datagram beside the longest key and its envelope.
pub const VALUE_BYTES_MAX: usize = 59_000;

/// What a message has beside its header, its key and its value, with room to spare.
const ENVELOPE_BYTES_MAX: usize = 256;

const _: () = assert!(
    VALUE_BYTES_MAX + Key::BYTES_MAX + HEADER_BYTES + ENVELOPE_BYTES_MAX <= DATAGRAM_BYTES_MAX
);
