//! The cluster's key, as the command line names it.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use flurry::{ClusterKey, Security};

/// Who may be talked to.
#[derive(Debug, Clone, Args)]
pub(super) struct Keyed {
    /// File of the cluster key; it encrypts every message and allows addresses beyond this machine
    #[arg(long, global = true, env = "FLURRY_KEY_FILE", value_name = "FILE")]
    pub(super) key_file: Option<PathBuf>,
    /// Allow addresses beyond this machine without a key: everybody who connects has full access
    #[arg(long, global = true)]
    pub(super) insecure: bool,
}

impl Keyed {
    pub(super) fn read(&self) -> Result<Security> {
        let key = self.key_file.as_deref().map(ClusterKey::read).transpose()?;
        Ok(Security {
            key,
            insecure: self.insecure,
        })
    }
}
