//! Whole clusters on virtual time.
//!
//! The same state machines that run in real processes run here in a world in which every delay,
//! loss, duplicate, pause, crash and partition follows from a seed. A run has two phases. In the
//! first anything may go wrong, and no owner may receive a wrong result. In the second nothing goes
//! wrong any more, and the cluster must recover. The same seed gives the same run, message for
//! message.
//!
//! Bugs can be planted ([`flurry_core::bugs`]), to prove that they are found. Never shipped.

mod checks;
pub mod dice;
mod disks;
pub mod model;
pub mod operator;
pub mod oracle;
pub mod run;
pub mod scenario;
pub mod trouble;
pub mod workload;
pub mod world;
