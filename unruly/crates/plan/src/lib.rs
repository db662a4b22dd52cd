//! The plan of a run: the subject of the measurement, its duration, its load and its faults.
//!
//! [`Plan::parse`] reads a plan from TOML and checks every key. [`Plan::to_toml`] writes it back
//! with every default in place, so that a run's settings are never in doubt. Everything random in a
//! run follows from the plan's seed: the groups of the agents ([`groups`]), the ticks of a probe
//! ([`phase_ns`]), the scheduled times of requests ([`Arrivals::schedule`]) and the order of the
//! matrix's cells ([`Plan::order`]). Processes that hold the same plan therefore agree on all of
//! this without communication.
//!
//! Invariant: this crate reads no clock, opens no socket or file, starts no thread, and uses no
//! randomness other than the plan's seed.

mod arrivals;
mod bursts;
mod choice;
mod closed_loop;
mod cluster;
mod codes;
mod compete;
mod error;
mod fault;
mod goodput;
mod groups;
mod host;
mod http;
mod jvm;
mod keys;
mod limits;
mod matrix;
mod message;
mod model;
mod parse;
mod parse_arrivals;
mod parse_extras;
mod parse_fault;
mod parse_load;
mod parse_scenario;
mod parse_store;
mod parse_stream;
mod parse_system;
mod portion;
pub mod quantity;
mod ramp;
mod random;
mod render;
mod scenario;
mod secret;
mod section;
mod service;
mod slo;
mod sql;
mod store;
mod stream;
mod tap;
mod think_clock;
mod times;
mod tls;
mod units;
mod until;
mod url;
mod users;
mod utc;

pub use arrivals::{Arrivals, Schedule, ThinkBursts, ThinkTimes};
pub use choice::{Choice, Choices, Mix};
pub use closed_loop::ClosedLoop;
pub use cluster::{
    Cluster, ClusterDelay, ClusterDirection, ClusterEtcd, ClusterFault, ClusterGateway,
    ClusterLevel, ClusterPause, ClusterServer, ClusterTransport, Part, known_cluster_keys,
};
pub use codes::{Codes, CodesError, GrpcCodesError};
pub use compete::{Compete, CompeteKind};
pub use error::PlanError;
pub use fault::{Fault, FaultKind, Network};
pub use goodput::{Goodput, GoodputError};
pub use groups::{group_of, groups, phase_ns};
pub use host::{HOST_PROGRAM, LOCAL_HOST, ReachedHost};
pub use http::{Auth, Headers, HeadersError, Http, Method, MethodError, TRACE_ID};
pub use jvm::{Collector, Jvm, Runtime};
pub use keys::{KeyWords, did_you_mean, key_words, known_keys};
pub use limits::*;
pub use matrix::Cell;
pub use message::Message;
pub use model::{
    Drive, Factor, Hosts, Load, Mesh, Place, Plan, Probe, Run, Setting, Transport, Workload,
};
pub use portion::Portion;
pub use ramp::Ramp;
pub use random::{mix, unmix};
pub use scenario::{CAPTURED, Capture, Origin, Scenario, State, Step, Walks};
pub use secret::{Secret, has_place, header_without_secret, is_secret, is_secret_field, shown};
pub use service::{
    GoProgram, Impossible, Leads, Parameter, ParameterValue, Role, Service, ServiceFile,
    ServicePlace, ServicePlaces, ServiceProcess, ServiceStep, Stage, Template,
};
pub use slo::{Slo, SloError};
pub use sql::{Script, ScriptError, Sql, SqlOperation};
pub use store::{KeyOrder, OperationKind, Operations, Store, StoreLevel, ValueSize};
pub use stream::{Protocol, Scheduling, Stream};
pub use tap::{MAX_TAPPED_SERVICES, Tap};
pub use times::times_ns;
pub use tls::Tls;
pub use units::{BitRate, Bytes, DurationNs, RateHz, UnitError};
pub use until::Until;
pub use url::{PASSWORD_PLACE, Url, UrlError};
pub use users::{UserEntry, UserRight, users};
pub use utc::utc;
