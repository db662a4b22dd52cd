//! The key of `[quota]` that is no process.

use super::key::{Key, Row, Table, key, table, text};
use crate::limits::{DEFAULT_QUOTA_PERIOD, MAX_QUOTA_PERIOD, MIN_QUOTA_PERIOD};
use crate::section::Limits;
use crate::units::DurationNs;

table! {
    /// The keys of `[quota]`. Its other keys are processes.
    QUOTA: DurationNs = "quota";

    PERIOD: Limits<DurationNs> = key(
        "period",
        Limits::within(MIN_QUOTA_PERIOD, MAX_QUOTA_PERIOD, DEFAULT_QUOTA_PERIOD)
            .or(DEFAULT_QUOTA_PERIOD),
        "how often the kernel gives the CPU time of each process anew: a process that has used it \
         up waits for the rest of the period",
    ), |it| text(it);
}
