//! The only writer of the trace.
//!
//! A process that measures hands fixed-size [`Record`]s to a [`Recorder`]; they cross a bounded
//! ring to a drain thread, which appends them to a *spool* (a plain file of fixed-size records, so
//! that a `kill -9` loses at most what the ring held) and turns full spools into Parquet segments.
//! Tables of few rows (events, resources, ...) go through a [`TableSpool`] of JSON lines instead, and
//! those of a tap through a [`TurnaroundSpool`].
//! [`recover`] does for a run that was cut off what the drain thread would have done.
//!
//! What the columns are is written once, in `unruly/schema/trace/*.schema`.

mod bins;
mod checksum;
mod columns;
mod error;
mod locks;
mod manifest;
mod merge;
mod part;
mod record;
mod recorder;
mod recovery;
mod remains;
mod scheduling;
mod schema;
mod segment;
mod spool;
mod table_spool;
mod tally_page;
mod turnaround_spool;

pub use bins::bin;
pub use error::TraceError;
pub use locks::{RunLock, WriterLock};
pub use manifest::{
    Cell, ClockBounds, Copies, Counts, Exit, Host, Manifest, Process, Requests, RunStatus, Tool,
};
pub use merge::{Delays, Figures, Merged, is_unfinished, merge_rows};
pub use part::{Part, TrialRecord};
pub use record::{ErrorKind, GRPC_STATUSES, Level, NULL_NS, Record, Status};
pub use recorder::{Recorder, RecorderOptions, RecorderReport, Tally};
pub use recovery::{Loss, Recovery, grouped, recover, recover_locked};
pub use remains::{TrialKey, damaged, remove_others, sync_folders};
pub use scheduling::{scheduler, set_scheduler};
pub use schema::{SCHEMA_VERSION, Table};
pub use segment::{SegmentMeta, SegmentWriter, Value};
pub use spool::{SPOOL_ROWS_MAX, Sealed, SpoolHeader, SpoolReader, seal_spool};
pub use table_spool::TableSpool;
pub use turnaround_spool::{TurnaroundHeader, TurnaroundRow, TurnaroundSpool, TurnaroundStatus};
pub use unruly_time::{Clock, ClockPair, ColumnNs, DurationNs, MonoNs, StepNs, WallNs, monotonic};
