//! What parts have to say while they serve, on standard error.

use clap::ValueEnum;

/// In which form.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Log {
    /// A line for people, with its fields.
    #[default]
    Text,
    /// An object of JSON on each line.
    Json,
    /// Nothing.
    Off,
}

impl Log {
    /// From now on. Once for a process.
    pub(super) fn begin(self) {
        let log = tracing_subscriber::fmt()
            .with_writer(std::io::stderr)
            .with_target(false);
        match self {
            Self::Text => log.with_ansi(false).init(),
            Self::Json => log.json().flatten_event(true).init(),
            Self::Off => {}
        }
    }
}
