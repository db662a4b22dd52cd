//! The program `unruly`: parse, call, print. What measures is in the other crates; here is the
//! runner that starts a run's processes, and the door to the Python side that reads its trace.

mod check;
pub mod cli;
mod concealed;
mod drive;
mod drive_http;
mod drive_texts;
mod har;
mod help;
mod hosts;
mod live;
mod manifests;
mod python_verbs;
mod run;
mod self_check;
mod service_parameters;
mod shipped;
mod slos;
mod standing;
mod targets;
mod watch;
