//! A cluster of one process, for tests.

#![allow(dead_code, reason = "not every test file uses all of it")]
#![expect(clippy::unwrap_used, reason = "a test ends where a helper fails")]

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use flurry::{Client, Controller, ControllerOptions, Options, Server, ServerOptions, status};

/// Far more than anything takes; only reached by a failure.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) struct Cluster {
    pub(crate) controller: Option<Controller>,
    pub(crate) address: SocketAddr,
    pub(crate) servers: Vec<Option<Server>>,
    pub(crate) directory: tempfile::TempDir,
}

impl Cluster {
    pub(crate) fn start() -> Self {
        Self::start_with(|_| {})
    }

    /// With servers that are not as usual.
    pub(crate) fn start_with(change: impl Fn(&mut ServerOptions)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let controller = start_controller("127.0.0.1:0".parse().unwrap(), directory.path());
        let address = controller.address();
        let start = |id| {
            let mut options = ServerOptions::new(id, address);
            change(&mut options);
            Some(Server::start(&options).unwrap())
        };
        let cluster = Self {
            controller: Some(controller),
            address,
            servers: (1..=3).map(start).collect(),
            directory,
        };
        cluster.until("three servers are up", |view| {
            view.matches("\"up\"").count() == 3
        });
        cluster
    }

    pub(crate) fn until(&self, what: &str, holds: impl Fn(&str) -> bool) {
        let start = Instant::now();
        let mut seen = String::new();
        while start.elapsed() < DEADLINE {
            seen = status(&self.address.into(), DEADLINE, &flurry::Security::default()).unwrap();
            if holds(&seen) {
                return;
            }
            std::thread::yield_now();
        }
        panic!("not within {DEADLINE:?}: {what}; last seen: {seen}");
    }

    pub(crate) fn options(&self, session: &str) -> Options {
        Options {
            timeout: DEADLINE,
            open_timeout: DEADLINE,
            ..Options::new(self.address, session)
        }
    }

    pub(crate) fn client(&self, session: &str) -> Client {
        Client::open(&self.options(session)).unwrap()
    }
}

pub(crate) fn start_controller(listen: SocketAddr, directory: &Path) -> Controller {
    Controller::start(&ControllerOptions::new(listen, Some(directory.to_owned()))).unwrap()
}

pub(crate) fn start_server(id: u16, controller: SocketAddr) -> Server {
    Server::start(&ServerOptions::new(id, controller)).unwrap()
}

pub(crate) fn value(text: &'static str) -> Option<Bytes> {
    Some(Bytes::from(text))
}
