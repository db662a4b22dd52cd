//! A relay in front of a process, which delays and loses messages on their way.
//!
//! The relay is there for the whole run, and forwards unchanged until a fault begins. Its own cost
//! is therefore the same throughout the run. The seed and a message's number alone determine what
//! happens to the message.

mod datagrams;
mod stream;
mod way;

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use unruly_plan::Network;

use way::Way;
pub(crate) use way::WayCounts;

/// How often a thread that waits looks whether it shall end.
const LOOK_PERIOD: Duration = Duration::from_millis(100);

/// A relay before one process.
#[derive(Debug)]
pub(crate) struct Relay {
    way: Arc<Way>,
    addresses: Vec<SocketAddr>,
    threads: Vec<JoinHandle<()>>,
}

impl Relay {
    /// Listens on the first address of each route, for streams and datagrams, and passes on to the second.
    ///
    /// # Errors
    ///
    /// When an address cannot be listened on.
    pub(crate) fn start(routes: &[(SocketAddr, SocketAddr)], seed: u64) -> Result<Self> {
        let mut relay = Self {
            way: Arc::new(Way::new(seed)),
            addresses: Vec::new(),
            threads: Vec::new(),
        };
        for (listen, to) in routes {
            relay.listen(*listen, *to).with_context(|| {
                format!("relay: cannot listen on {listen}; wanted a free address of this host; hint: start the run again")
            })?;
        }
        Ok(relay)
    }

    fn listen(&mut self, listen: SocketAddr, to: SocketAddr) -> Result<()> {
        let streams = TcpListener::bind(listen)?;
        let address = streams.local_addr()?;
        let datagrams = UdpSocket::bind(address)?;
        self.addresses.push(address);
        let way = Arc::clone(&self.way);
        self.threads.push(std::thread::spawn(move || {
            stream::accept(&streams, to, &way);
        }));
        let way = Arc::clone(&self.way);
        self.threads.push(std::thread::spawn(move || {
            datagrams::pass(datagrams, to, &way);
        }));
        Ok(())
    }

    /// Where it listens, in the order of the routes.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// From now on does this to what passes, or nothing.
    pub(crate) fn set(&self, network: Option<Network>) {
        self.way.set(network);
    }

    /// What has passed so far.
    pub(crate) fn counts(&self) -> WayCounts {
        self.way.counts()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.way.close();
        for thread in self.threads.drain(..) {
            // A thread that failed has closed its connection, and its client's rows say so.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
