//! Where a client reports what became of each copy of its operations. A program that wants no log
//! links nothing that writes one.

use std::fmt;

use flurry_core::id::Sequence;
use flurry_core::log::Arrival;
use unruly_time::{ColumnNs, WallNs};

use crate::Error;

/// Gives each client a log of its own.
pub trait Arrivals: fmt::Debug + Send + Sync {
    /// Opens the log of one more client.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the log cannot be written.
    fn log(&self) -> Result<Box<dyn ArrivalLog>, Error>;
}

/// The log of one client. The client calls it on its own thread and drops it when it closes.
pub trait ArrivalLog: fmt::Debug + Send {
    /// Returns a stamp of the kernel on the log's axis; 0 if it is not known.
    fn stamp(&self, stamp: WallNs) -> ColumnNs;

    /// Notes that an operation is on its way: at least one copy of it will end.
    fn asked(&mut self, sequence: Sequence);

    /// Notes that a copy has ended.
    fn ended(&mut self, arrival: &Arrival);
}
