//! What every part of an agent stands on.

use std::path::Path;

use unruly_trace::Clock;

use crate::control::Inbox;
use crate::job::Job;

/// One process: what it is to do, where its rows go, who talks to it, and its time.
#[derive(Clone, Copy)]
pub(crate) struct Ground<'a> {
    pub(crate) job: &'a Job,
    /// The run's.
    pub(crate) directory: &'a Path,
    pub(crate) inbox: &'a Inbox,
    pub(crate) clock: &'a Clock,
}
