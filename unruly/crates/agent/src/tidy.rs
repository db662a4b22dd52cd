//! Removes a run's keys after the run, and reports the keys that remain.

use std::time::Duration;

use anyhow::Result;
use unruly_load::{Driver, PASSWORD, Settings, driver, remove};
use unruly_plan::{Drive, Portion, Secret, Store, Transport};

use crate::control::{Report, report};
use crate::mesh::nanoseconds;

/// A store that removes slower than this keeps the rest: the runner waits a minute for our end.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Removes the keys of one process from its store.
pub(crate) struct Tidy {
    driver: Box<dyn Driver>,
    place: String,
}

impl Tidy {
    /// Returns what tidies up after a drive; none where nothing is to be removed.
    pub(crate) fn of(drive: &Drive) -> Result<Option<Self>> {
        let written = |it: &&Store| it.has_keys() && (it.preload || it.operations.writes());
        let Some(store) = drive.store.as_deref().filter(written) else {
            return Ok(None);
        };
        if store.keep || store.url.scheme == "null" {
            return Ok(None);
        }
        let password = std::env::var(PASSWORD).ok().map(Secret::new);
        let own = std::env::current_exe()?;
        let driver = driver(&Settings {
            store,
            // A datagram that is lost would leave its key.
            transport: Transport::Tcp,
            timeout_ns: nanoseconds(drive.timeout),
            password: password.as_ref(),
            seed: 0,
            portion: Portion::new(0, 1),
            trace_key: 0,
            own: own.to_str(),
        })?;
        let place = store.url.to_string();
        Ok(Some(Self { driver, place }))
    }

    /// Removes these keys, and says which are left.
    pub(crate) fn up(&self, keys: &[u64]) {
        let removed = remove(self.driver.as_ref(), keys, TIMEOUT);
        let removed = match removed {
            Ok(removed) => removed,
            Err(error) => return say(&self.left(keys.len(), &error.to_string())),
        };
        if removed < keys.len() {
            let why = if removed == 0 {
                "its driver cannot remove keys"
            } else {
                "it did not remove them"
            };
            say(&self.left(keys.len() - removed, why));
        }
    }

    fn left(&self, keys: usize, why: &str) -> String {
        format!("left {keys} keys unruly:* on {} ({why})", self.place)
    }
}

fn say(text: &str) {
    let text = text.to_owned();
    report(&Report::Note { text });
}
