//! Flurry on real sockets: the state machines of `flurry-core`, each on a thread with a UDP socket.
//!
//! - [`Client`]: a blocking client, the owner of a session. Its router is inside.
//! - [`Server`]: a data server, one thread for each shard.
//! - [`Router`]: a router of its own, for clients that shall not have one inside.
//! - [`Controller`]: who takes part and who owns what, kept on disk or in etcd.
//! - [`Gateway`]: the owner of keys for programs that speak the protocol of Redis.
//! - [`Arrivals`]: receives what became of every copy of every operation; `flurry-recording` writes it
//!   for `unruly report`.
//! - [`Metrics`]: how the parts of a process are, for Prometheus.
//! - [`Faults`]: what a network or a machine may do, on purpose.
//! - [`status`], [`depart`]: what an operator asks the controller.
//! - [`observe`]: reads a value without owning its session.
//!
//! Everything that decides something is in the core; here is only what carries it out. Without a
//! [`ClusterKey`] all of it stays on the loopback interface, since nothing is encrypted and nobody has
//! to say who they are. Every part takes datagrams and connections on one port; see [`Transport`].
//!
//! ```no_run
//! # fn main() -> Result<(), flurry::Error> {
//! let controller = std::net::SocketAddr::from(([127, 0, 0, 1], 7700));
//! let client = flurry::Client::open(&flurry::Options::new(controller, "cart-17"))?;
//! client.set("apples", "3")?;
//! assert_eq!(client.increment("apples", 2)?, 5);
//! client.close()?;
//! # Ok(())
//! # }
//! ```

mod address;
mod arrivals;
mod client;
mod clock;
mod controller;
mod directory;
mod disk;
mod error;
mod etcd;
mod fault;
mod gateway;
mod link;
mod looking;
mod losses;
mod meter;
mod metrics;
mod node;
mod observer;
mod operator;
mod owner;
mod peers;
mod pem;
mod random;
mod router;
mod security;
mod server;
mod teller;

pub use address::{Controllers, resolve};
pub use arrivals::{ArrivalLog, Arrivals};
pub use client::{Answered, Call, Client, Closed, Done, Options, Set, Waiting};
pub use clock::wall_after;
pub use controller::{Controller, ControllerHandle, ControllerOptions, StateAt};
pub use error::Error;
pub use etcd::{Etcd, EtcdTls};
pub use fault::{Concerned, Delay, Direction, Fault, Faults, Pause};
pub use flurry_core::config::Level;
pub use flurry_core::id::{DurationNs, Epoch, Version, WallNs};
pub use flurry_core::key_value::{Answer, Condition, ExpireCondition, Lifetime, Operation};
pub use flurry_core::machine::{self, Access, StateMachine};
pub use gateway::{
    Gateway, GatewayHandle, GatewayOptions, GatewayPlace, PART_SLOTS, Rights, SLOTS, Tls, User,
    Users, are_parts, hash_password, is_of_slots, session_of_slots,
};
pub use link::{LinkCounts, Transport};
pub use losses::{GatewayLogin, Loss, losses};
pub use metrics::{Metrics, MetricsServer};
pub use observer::{Observed, observe};
pub use operator::{Departure, depart, status};
pub use router::{Router, RouterOptions};
pub use security::{ClusterKey, Security, check_secret};
pub use server::{Server, ServerOptions};

use flurry_core::id::Key;
use flurry_core::wire::{HEADER_BYTES, MESSAGE_BYTES_MAX};

/// How long a server may answer on its own after it was last allowed to, unless the controller was started
/// with another: a lost server is counted out after this long, and an opening waits for an eighth more.
pub const LEASE: DurationNs = DurationNs::millis(1_000);

/// The largest value. One that does not fit a datagram goes over TCP.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// What a message has beside its header, its key and its value, with room to spare.
const ENVELOPE_BYTES_MAX: usize = 1024;

const _: () = assert!(
    VALUE_BYTES_MAX + Key::BYTES_MAX + HEADER_BYTES + ENVELOPE_BYTES_MAX <= MESSAGE_BYTES_MAX
);
