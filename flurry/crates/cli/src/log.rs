//! What parts have to say while they serve, on standard error.

use clap::ValueEnum;

/// In which form.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Log {
    // Lines of text.
    #[default]
    Text,
    // One JSON object on each line.
    Json,
    // No log.
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
