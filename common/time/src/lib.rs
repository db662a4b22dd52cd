//! The clocks of a machine and the kernel's stamps of messages, as the meter and the store read them.
//!
//! [`MonoNs`] stands still while the machine sleeps and [`BootNs`] goes on. A trace uses the former
//! and a lease the latter, so each has a type.

mod clock;
mod instant;
pub mod stamp;

pub use clock::{Clock, ClockPair, ClockWatch, StepNs, boot, monotonic, wall};
pub use instant::{BootNs, ColumnNs, DurationNs, MonoNs, WallNs};
