//! The address at which a part serves its metrics.

use anyhow::Result;
use clap::Args;
use flurry::{Metrics, MetricsServer};

use super::{local, say};

#[derive(Debug, Clone, Args)]
pub(super) struct Watch {
    /// Serve Prometheus metrics at http://ADDRESS/metrics; the address must be of this machine
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<String>,
}

/// What a part is started with to be watched, and who serves it.
pub(super) struct Watched {
    pub(super) metrics: Option<Metrics>,
    _server: Option<MetricsServer>,
}

impl Watch {
    pub(super) fn start(&self) -> Result<Watched> {
        let Some(address) = &self.metrics else {
            return Ok(Watched {
                metrics: None,
                _server: None,
            });
        };
        let metrics = Metrics::default();
        let server = metrics.serve(local(address)?)?;
        say(format!("metrics http://{}/metrics", server.address()))?;
        Ok(Watched {
            metrics: Some(metrics),
            _server: Some(server),
        })
    }
}
