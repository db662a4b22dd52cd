//! Flurry, by its public client. Clients share one session, which owns the keys of the run.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use flurry::{Controllers, Error, Level, Options, resolve};
use unruly_plan::StoreLevel;

use crate::{Client, Failure, Outcome, Settings, Store};

const PORT: u16 = 7_700;

pub(crate) struct Flurry(Arc<flurry::Client>);

pub(crate) fn open(settings: &Settings) -> Result<Flurry> {
    let hosts = settings.hosts(PORT);
    let addresses = hosts.iter().map(|host| resolve(host, settings.timeout));
    let controllers = Controllers::new(addresses.collect::<Result<_, _>>()?)?;
    let session = settings.url.path.trim_start_matches('/');
    let options = Options {
        level: match settings.level {
            None | Some(StoreLevel::First) => Level::First,
            Some(StoreLevel::Quorum) => Level::Quorum,
            Some(StoreLevel::All) => Level::All,
        },
        timeout: settings.timeout,
        ..Options::new(
            controllers,
            if session.is_empty() {
                "unruly"
            } else {
                session
            },
        )
    };
    let client = flurry::Client::open(&options);
    Ok(Flurry(Arc::new(client.with_context(|| hosts.join(","))?)))
}

impl Store for Flurry {
    fn client(&self, _number: usize) -> Result<Box<dyn Client>> {
        Ok(Box::new(Owner(Arc::clone(&self.0))))
    }
}

struct Owner(Arc<flurry::Client>);

impl Client for Owner {
    fn write(&mut self, key: &str, value: &str) -> Outcome {
        match self.0.set(key.to_owned(), value.to_owned()) {
            Ok(()) => Outcome::Done,
            Err(error) => failed(&error),
        }
    }

    fn read(&mut self, key: &str) -> Outcome {
        match self.0.get(key.to_owned()) {
            Ok(Some(value)) => Outcome::Found(value.to_vec()),
            Ok(None) => Outcome::Missing,
            Err(error) => failed(&error),
        }
    }
}

fn failed(error: &Error) -> Outcome {
    Outcome::failed(Failure::Unavailable, error)
}
