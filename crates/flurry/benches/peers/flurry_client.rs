//! Flurry through its public client, as a program of its user would.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use flurry::{Client, Level, Options};

use crate::Connect;
use crate::store::{Item, PATIENCE, Store};

/// All threads share the one owner of a session, which is what a client is.
struct Owner(Arc<Client>);

/// Opens a session of its own for a level.
pub(crate) fn open(controller: SocketAddr, level: &str) -> Result<Connect> {
    let options = Options {
        level: match level {
            "first" => Level::First,
            "quorum" => Level::Quorum,
            "all" => Level::All,
            _ => bail!("{level}: no level; wanted first, quorum or all"),
        },
        timeout: PATIENCE,
        ..Options::new(controller, format!("bench-{level}"))
    };
    let client = Arc::new(Client::open(&options)?);
    Ok(Box::new(move || Ok(Box::new(Owner(Arc::clone(&client))))))
}

impl Store for Owner {
    fn set(&mut self, item: &Item) -> Result<()> {
        Ok(self.0.set(item.key.clone(), item.value.clone())?)
    }

    fn get(&mut self, item: &Item) -> Result<()> {
        let found = self.0.get(item.key.clone())?;
        ensure!(
            found.as_ref() == Some(&item.value),
            "flurry: read {found:?}; wanted what was written"
        );
        Ok(())
    }
}
