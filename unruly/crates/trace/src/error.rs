//! What can go wrong while a trace is written or recovered.

use std::path::{Path, PathBuf};

/// An error of the trace writer. Its text names the file, the problem and the next step.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The operating system refused an operation on a file.
    #[error("{path}: {action} failed: {source}; wanted a writable run directory; hint: {hint}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the operating system said.
        source: std::io::Error,
        /// The next step.
        hint: &'static str,
    },
    /// The Parquet encoder refused a value or the file.
    #[error(
        "{path}: Parquet encoding failed: {source}; wanted rows of schema {table}; hint: this is a defect, please report it"
    )]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The table.
        table: &'static str,
        /// What the encoder said.
        source: parquet::errors::ParquetError,
    },
    /// A spool's header cannot be used.
    #[error("{path}: {what}; wanted a spool of schema {wanted}; hint: {hint}")]
    Spool {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the value.
        what: String,
        /// The newest schema that is understood.
        wanted: u32,
        /// The next step.
        hint: &'static str,
    },
    /// The manifest is missing or unreadable.
    #[error("{path}: {what}; wanted the manifest.json of a run; hint: {hint}")]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the value.
        what: String,
        /// The next step.
        hint: &'static str,
    },
    /// A conservation count does not add up: rows were lost or invented.
    #[error(
        "{place}: {what}; wanted every scheduled copy exactly once; hint: do not trust this run, and report it with its directory"
    )]
    Conservation {
        /// The process or run.
        place: String,
        /// The sum that does not hold, with its values.
        what: String,
    },
    /// The run is being written at this moment.
    #[error(
        "{path}: the run is still going on; wanted a run that has ended; hint: wait for it, or stop it with Ctrl-C"
    )]
    Running {
        /// The run directory.
        path: PathBuf,
    },
    /// The runner is gone, and somebody writes on.
    #[error(
        "{}: {who} still writes although the runner is gone; wanted a run that has ended; hint: end it, or wait",
        path.display()
    )]
    Writing {
        /// The run directory.
        path: PathBuf,
        /// Their names.
        who: String,
    },
}

impl TraceError {
    /// Wraps an operating system error with its file and a hint that fits its kind.
    #[must_use]
    pub fn io(path: &Path, action: &'static str, source: std::io::Error) -> Self {
        let hint = match source.kind() {
            std::io::ErrorKind::StorageFull => "free some space; everything written so far is kept",
            std::io::ErrorKind::PermissionDenied => "choose another directory with -o",
            std::io::ErrorKind::NotFound => "check the path",
            _ => "check the disk",
        };
        Self::Io {
            path: path.to_owned(),
            action,
            source,
            hint,
        }
    }
}
