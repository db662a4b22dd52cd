//! When to send, and the drivers that send.
//!
//! A [`Source`] says when the next request is due and to whom; it is fixed by the plan's seed and
//! knows no socket. The [`Engine`] sends at those instants over non-blocking connections, matches
//! replies, and hands every copy to the recorder exactly once: answered, late, refused, shed or
//! still open at the end. What the bytes mean is a [`Target`]'s business.

mod ahead;
mod bins;
mod engine;
mod introduction;
mod leftovers;
mod link;
mod loading;
mod pending;
mod poller;
mod rehearsal;
mod socket;
mod source;
mod target;
mod targets;
#[cfg(test)]
mod think_tests;
mod tls;
mod users;
pub mod value;
pub mod wire;
mod work;

pub use ahead::Ahead;
pub use bins::{Bins, bin};
pub use engine::{Control, Engine, EngineOptions, Layer, Live, Outcome, Part, Peer};
pub use introduction::{IntroductionError, introduce};
pub use leftovers::{foreign, remove};
pub use link::{PASSWORD, Place};
pub use loading::LoadSource;
pub use poller::{Poller, Wake};
pub use rehearsal::{Exchange, rehearse};
pub use socket::{
    Received, bind_tcp, bind_udp, enable_stamps, receive, receive_waiting, set_buffers,
};
pub use source::{
    ClosedSource, Due, Ending, Limited, MeshSource, OpenSource, Phases, Sessions, Source,
};
pub use target::{
    Answer, CENSUS, Fate, GREETING, Incoming, KEY_PREFIX, Operation, Outgoing, ProtocolError,
    Reply, ServerStamps, Target,
};
pub use targets::{Driver, DriverError, GroupRpc, Route, Scheme, Settings, driver, schemes};
pub use tls::TlsClient;
pub use users::Users;
pub use work::Work;
