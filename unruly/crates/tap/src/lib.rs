//! The tap: response times of TCP services as the network sees them, without a change of the service.
//!
//! First, the kernel copies the headers of a service's packets into a [`Ring`]; a file of another
//! tool may stand in for it ([`Capture`]). Second, [`segment()`] reads a header. Third, a [`Tracker`]
//! puts the segments of a connection together to turnarounds: a request and its reply. No byte of
//! content is read, so encrypted connections are measured too.

mod asker;
mod capture;
mod connection;
mod filter;
mod ring;
mod segment;
mod sent;
mod server;
mod tap;
mod tracker;
mod windows;

pub use capture::{Capture, Packet};
pub use connection::{Ended, Turnaround};
pub use ring::Ring;
pub use segment::{Link, Other, Segment, segment};
pub use server::{SERVERS_MAX, Server};
pub use tap::{Look, Tap, is_listening};
pub use tracker::{Finished, OpenTurnaround, Tracker};
pub use windows::{LAG, Second, WINDOW, Windows};
