//! The cluster's key, as the command line names it.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
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

/// Writes a new key into a new file that only its owner can read, or prints it; never into a file that
/// others can read, not even until its mode is changed.
pub(super) fn write_new(file: Option<&Path>) -> Result<()> {
    let text = ClusterKey::random()?.to_text();
    let Some(path) = file else {
        let output = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
        let found = output.metadata()?;
        ensure!(
            !found.is_file() || found.mode() & 0o077 == 0,
            "the file that the key would go to can be read by others; wanted one of its owner alone; hint: flurry key cluster.key"
        );
        return super::say(text);
    };
    let place = path.display();
    let mut options = File::options();
    let new = options.write(true).create_new(true).mode(0o600).open(path);
    let written = new.and_then(|mut file| writeln!(file, "{text}"));
    written.with_context(|| {
        format!(
            "{place}: cannot be written; wanted a new file; hint: give a name that is not taken"
        )
    })
}
