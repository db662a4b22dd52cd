//! Flurry through its public client, as a program of its user would.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use flurry::{Client, DurationNs, Level, Options};
use flurry_recording::{About, Recording};

use crate::Connect;
use crate::store::{Item, Store, TIMEOUT};

/// All threads share the one owner of a session, which is what a client is.
struct Owner(Arc<Client>);

/// Opens a session of its own for a level; `how` may say `sleep`, or `log` and a directory for it.
pub(crate) fn open(
    controller: SocketAddr,
    level: &str,
    how: &[&str],
) -> Result<(Connect, Option<Recording>)> {
    let mut options = Options {
        level: match level {
            "first" => Level::First,
            "quorum" => Level::Quorum,
            "all" => Level::All,
            "hedge:1ms" => Level::Hedge(DurationNs::millis(1)),
            "hedge:1s" => Level::Hedge(DurationNs::millis(1_000)),
            "auto" => Level::Auto,
            _ => bail!("{level}: no level; wanted first, quorum, all, hedge:1ms, hedge:1s or auto"),
        },
        timeout: TIMEOUT,
        ..Options::new(controller, format!("bench-{level}-{}", how.join("-")))
    };
    let mut recording = None;
    match how {
        [] => {}
        ["sleep"] => options.spin = Duration::ZERO,
        ["log", directory] => {
            let started = Recording::start(Path::new(directory), About::named("bench"))?;
            options.recording = Some(started.arrivals());
            recording = Some(started);
        }
        _ => bail!("{how:?}: no way of Flurry's; wanted sleep, or log DIRECTORY"),
    }
    let client = Arc::new(Client::open(&options)?);
    drop(options);
    let connect: Connect = Box::new(move || Ok(Box::new(Owner(Arc::clone(&client)))));
    Ok((connect, recording))
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
