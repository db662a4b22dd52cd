//! Names of hosts, and where controllers are.

use std::fmt;
use std::net::{SocketAddr, SocketAddrV4, ToSocketAddrs as _};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::Error;
use crate::security::Security;

/// More controllers than this only cost messages.
const CONTROLLERS_MAX: usize = 8;

/// Addresses of the controllers of a cluster. One of them leads. Every sender sends each message
/// for the leader to all of them, and only the leader answers, so no sender has to find out which
/// one leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controllers(Vec<SocketAddr>);

impl From<SocketAddr> for Controllers {
    fn from(only: SocketAddr) -> Self {
        Self(vec![only])
    }
}

impl fmt::Display for Controllers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, address) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(formatter, "{comma}{address}")?;
        }
        Ok(())
    }
}

impl Controllers {
    /// These, in the order that they are given.
    ///
    /// # Errors
    ///
    /// [`Error::Address`] for none, more than eight, or one that is there twice.
    pub fn new(addresses: Vec<SocketAddr>) -> Result<Self, Error> {
        let mut distinct = addresses.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let count = addresses.len();
        let all = Self(addresses);
        let refused = |problem: String| Error::Address {
            text: all.to_string(),
            problem,
            wanted: "one to eight addresses of controllers",
            hint: "127.0.0.1:7700, or several with commas between",
        };
        if count == 0 || count > CONTROLLERS_MAX {
            return Err(refused(format!("there are {count}")));
        }
        if distinct.len() < count {
            return Err(refused("one is there twice".to_owned()));
        }
        Ok(all)
    }

    /// Looks up `host:port`, or several with commas between, each for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`resolve`] and [`Self::new`].
    pub fn resolve(text: &str, timeout: Duration) -> Result<Self, Error> {
        if text.contains("://") {
            return Err(Error::Address {
                text: text.to_owned(),
                problem: "it is no controller: only controllers talk to etcd".to_owned(),
                wanted: "where the controllers listen",
                hint: "flurry controller --etcd PLACE, and here its address, several with commas",
            });
        }
        let found = text.split(',').map(|it| resolve(it, timeout));
        Self::new(found.collect::<Result<_, _>>()?)
    }

    /// Where they listen.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.0
    }

    /// Those that may be talked to, which is all or an error.
    pub(crate) fn allowed(&self, security: &Security) -> Result<Allowed, Error> {
        let all = self.0.iter().map(|it| security.allow(*it));
        Ok(Allowed(all.collect::<Result<_, _>>()?))
    }
}

/// Controllers that may be talked to: at least one.
#[derive(Debug, Clone)]
pub(crate) struct Allowed(Arc<[SocketAddrV4]>);

impl Allowed {
    /// Any of them: how to reach one is how to reach them all.
    pub(crate) fn any(&self) -> SocketAddrV4 {
        self.0[0]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = SocketAddrV4> {
        self.0.iter().copied()
    }

    pub(crate) fn has(&self, address: SocketAddrV4) -> bool {
        self.0.contains(&address)
    }
}

/// Looks up `host:port` for at most `timeout`, and returns its address.
///
/// # Errors
///
/// [`Error::Address`] when it is no address, has none of IPv4, or is not found in time.
pub fn resolve(text: &str, timeout: Duration) -> Result<SocketAddr, Error> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    let port = text.rsplit_once(':').map(|(_, port)| port);
    let hint = if port.is_some_and(|port| port.parse::<u16>().is_ok()) {
        "check the name; an IPv4 address needs no lookup"
    } else {
        "write a name or an address, a colon and a port number"
    };
    let unknown = |problem: String| Error::Address {
        text: text.to_owned(),
        problem,
        wanted: "host:port",
        hint,
    };
    let (sender, told) = mpsc::sync_channel(1);
    let name = text.to_owned();
    // The resolver knows no deadline; its thread ends when it does.
    std::thread::spawn(move || {
        let found = name.to_socket_addrs().map(Iterator::collect::<Vec<_>>);
        let _ = sender.send(found);
    });
    let found = told
        .recv_timeout(timeout)
        .map_err(|_| unknown(format!("not found within {} ms", timeout.as_millis())))?
        .map_err(|error| unknown(format!("it cannot be looked up ({error})")))?;
    let four = found.iter().copied().filter(SocketAddr::is_ipv4);
    // If there are several addresses, take the loopback one, which no other machine can listen at.
    let best = four.min_by_key(|it| !it.ip().is_loopback());
    best.ok_or_else(|| unknown("it has no address of IPv4".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_found_and_anything_else_is_not() {
        let soon = Duration::from_secs(5);
        let plain = resolve("10.0.0.1:7700", soon).unwrap();
        assert_eq!(plain, SocketAddr::from(([10, 0, 0, 1], 7700)));
        assert!(resolve("localhost:7700", soon).unwrap().ip().is_loopback());
        for (text, hint) in [
            (
                "no port",
                "hint: write a name or an address, a colon and a port number",
            ),
            (
                "localhost:6379x",
                "hint: write a name or an address, a colon and a port number",
            ),
            ("nowhere.invalid:6379", "hint: check the name"),
        ] {
            let refused = resolve(text, soon).unwrap_err().to_string();
            assert!(refused.contains("wanted host:port"), "{refused}");
            assert!(refused.contains(hint), "{refused}");
        }
    }

    #[test]
    fn controllers_are_one_to_eight_different_addresses() {
        let all = |text: &str| Controllers::resolve(text, Duration::from_secs(5));
        let three = "127.0.0.1:7,127.0.0.2:7,127.0.0.1:8";
        assert_eq!(all(three).unwrap().to_string(), three);
        let nine: Vec<String> = (1..=9).map(|it| format!("127.0.0.{it}:7")).collect();
        for (text, reason) in [
            ("127.0.0.1:7,127.0.0.2:7,127.0.0.1:7", "one is there twice"),
            (nine.join(",").as_str(), "there are 9"),
            ("127.0.0.1:7,", "wanted host:port"),
            ("etcd://127.0.0.1", "only controllers talk to etcd"),
        ] {
            let refused = all(text).unwrap_err().to_string();
            assert!(refused.contains(reason), "{refused}");
        }
        let none = Controllers::new(Vec::new()).unwrap_err().to_string();
        assert!(none.contains("there are 0"), "{none}");
    }
}
