//! The flags with which a run can be seen while it goes on.

use clap::Args;
use unruly_runner::LiveOptions;

/// The kernel chooses the port, and the run prints it.
const ANY_PORT: &str = "127.0.0.1:0";
const HEADING: &str = "While it runs";

#[derive(Debug, Default, Args)]
pub(crate) struct LiveArguments {
    /// Serve a page with the figures so far (default: on a free port of 127.0.0.1)
    #[arg(long, value_name = "HOST:PORT", num_args = 0..=1, require_equals = true,
        default_missing_value = ANY_PORT, help_heading = HEADING)]
    live: Option<String>,
    /// Serve metrics for Prometheus, such as 127.0.0.1:9400
    #[arg(long, value_name = "HOST:PORT", help_heading = HEADING)]
    metrics: Option<String>,
    /// Send metrics to a receiver of OpenTelemetry, such as http://127.0.0.1:4318
    #[arg(long, value_name = "URL", help_heading = HEADING)]
    otlp: Option<String>,
}

impl LiveArguments {
    pub(crate) fn options(self) -> LiveOptions {
        LiveOptions {
            page: self.live,
            metrics: self.metrics,
            otlp: self.otlp,
        }
    }
}
