//! The program `unruly`: parse, call, print. What measures is in the other crates; here is the
//! runner that starts a run's processes, and the door to the Python side that reads its trace.

mod about;
pub mod cli;
mod concealed;
mod drive;
pub mod flurry;
mod help;
mod jvm;
mod process;
mod python;
mod python_verbs;
mod relay;
mod runner;
mod services;
mod shipped;
mod target;
mod terminal;
