//! The parts that the programs `unruly` and `flurry` have in common: how they parse a command line
//! and print its help, read a password, find the
//! Python side, and describe themselves and their host in a run.

mod about;
mod help;
mod password;
pub mod python;
mod terminal;

pub use about::{NOTICES, host_of, noise, tool};
pub use help::{EXIT_ERROR, ending, parse};
pub use password::password_of;
pub use terminal::printable;
