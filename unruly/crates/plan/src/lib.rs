//! The plan of a run: what is measured, for how long, under which load, with which faults.
//!
//! A plan is read from TOML ([`Plan::parse`]), checked to the last key, and can be written back
//! with every default in place ([`Plan::to_toml`]), so that what ran is never in doubt. All that
//! is random in a run follows from the plan's seed: who groups with whom ([`groups`]), when a
//! probe ticks ([`phase_ns`]), when a request is due ([`Arrivals::schedule`]), in which order the
//! cells of the matrix go ([`Plan::order`]). Processes which hold the same plan therefore agree
//! on all of it without a word between them.
//!
//! Invariant: nothing here reads a clock, opens a socket or a file, starts a thread, or draws
//! from randomness other than the seed it was given.

mod arrivals;
mod bursts;
mod choice;
mod cluster;
mod compete;
mod error;
mod fault;
mod groups;
mod http;
mod jvm;
mod keys;
mod limits;
mod matrix;
mod model;
mod parse;
mod parse_arrivals;
mod parse_extras;
mod parse_fault;
mod parse_load;
mod parse_store;
mod parse_stream;
mod portion;
pub mod quantity;
mod random;
mod render;
mod secret;
mod section;
mod service;
mod slo;
mod store;
mod stream;
mod times;
mod units;
mod until;
mod url;
mod users;
mod utc;

pub use arrivals::{Arrivals, Schedule, ThinkTimes};
pub use choice::{Choice, Choices};
pub use cluster::{
    Cluster, ClusterDelay, ClusterDirection, ClusterEtcd, ClusterFault, ClusterGateway,
    ClusterLevel, ClusterPause, ClusterServer, ClusterTransport, Part, known_cluster_keys,
};
pub use compete::{Compete, CompeteKind};
pub use error::PlanError;
pub use fault::{Fault, FaultKind, Network};
pub use groups::{group_of, groups, phase_ns};
pub use http::{Codes, CodesError, Http};
pub use jvm::{Collector, Jvm, Runtime};
pub use keys::{did_you_mean, known_keys};
pub use limits::*;
pub use matrix::Cell;
pub use model::{Drive, Factor, Hosts, Load, Mesh, Plan, Probe, Run, Transport, Workload};
pub use portion::Portion;
pub use random::mix;
pub use secret::{Secret, shown};
pub use service::{Service, ServicePlace, ServicePlaces, ServiceProcess, ServiceStep};
pub use slo::{Slo, SloError};
pub use store::{KeyOrder, OperationKind, Operations, Store, StoreLevel, ValueSize};
pub use stream::{Protocol, Scheduling, Stream};
pub use times::times_ns;
pub use units::{BitRate, Bytes, DurationNs, RateHz, UnitError};
pub use until::Until;
pub use url::{PASSWORD_PLACE, Url, UrlError};
pub use users::{UserEntry, UserRight, users};
pub use utc::utc;
