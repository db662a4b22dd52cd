//! Drivers for stores that need a client library: each is a process of its own, `unruly driver URL`, which
//! speaks the lines of `unruly/docs/drivers.md` as anybody's program would.
//!
//! So a client library's threads and its runtime are not those of the load generator, and what they take is
//! seen: a request that waits for its library is sent late. Each client of the run has a thread here, which
//! asks, waits, and says when it did so.

#[cfg(feature = "cassandra")]
mod cassandra;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "flurry")]
mod flurry;
mod garage;
mod lines;
mod signature;
mod worker_pool;

use std::time::Duration;

use anyhow::{Result, bail};
use unruly_plan::{Secret, StoreLevel, Url};

pub use lines::serve;

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Done,
    /// Its value; several that stand side by side have a space between each two.
    Found(Vec<u8>),
    Missing,
    Failed(Failure, String),
}

/// Why a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// The store says that it did not do it.
    Store,
    /// It does not let us.
    Denied,
    /// Too little of it is there.
    Unavailable,
    /// The connection is gone.
    Disconnected,
}

impl Failure {
    /// The word in a line.
    fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Denied => "denied",
            Self::Unavailable => "unavailable",
            Self::Disconnected => "disconnected",
        }
    }
}

/// One client of a store, or one of several workers of it, on a thread of its own.
trait Client: Send {
    fn write(&mut self, key: &str, value: &str) -> Outcome;

    fn read(&mut self, key: &str) -> Outcome;
}

/// A store that is connected to.
trait Store {
    /// A client more, or a worker more of client `number`.
    fn client(&self, number: usize) -> Result<Box<dyn Client>>;
}

/// How a store is asked.
#[derive(Debug, Clone)]
struct Settings {
    url: Url,
    password: Option<Secret>,
    level: Option<StoreLevel>,
    timeout: Duration,
}

impl Settings {
    /// The hosts, each with its port.
    fn hosts(&self, port: u16) -> Vec<String> {
        let hosts = self.url.hosts.iter();
        let with_port = hosts.map(|(host, given)| {
            let port = given.unwrap_or(port);
            if host.contains(':') {
                format!("[{host}]:{port}")
            } else {
                format!("{host}:{port}")
            }
        });
        with_port.collect()
    }
}

/// Stores whose client was left out of this build.
const LEFT_OUT: &[&str] = &[
    #[cfg(not(feature = "cassandra"))]
    "cassandra",
    #[cfg(not(feature = "etcd"))]
    "etcd",
    #[cfg(not(feature = "flurry"))]
    "flurry",
];

/// Connects to a store.
fn open(settings: &Settings) -> Result<Box<dyn Store>> {
    Ok(match settings.url.scheme.as_str() {
        #[cfg(feature = "cassandra")]
        "cassandra" => Box::new(cassandra::open(settings)?),
        #[cfg(feature = "etcd")]
        "etcd" => Box::new(etcd::open(settings)?),
        #[cfg(feature = "flurry")]
        "flurry" => Box::new(flurry::open(settings)?),
        "garage-k2v" => Box::new(garage::open(settings)?),
        scheme if LEFT_OUT.contains(&scheme) => bail!(
            "{scheme}: this program was built without the client of {scheme}; hint: make build"
        ),
        scheme => bail!(
            "{scheme}: no such driver; wanted cassandra, etcd, flurry or garage-k2v; hint: unruly drive --help"
        ),
    })
}
