//! Addresses: only those of this machine.

use std::net::{SocketAddr, SocketAddrV4, ToSocketAddrs as _};
use std::sync::mpsc;
use std::time::Duration;

use crate::Error;

/// The address, if it is one of the IPv4 loopback network.
///
/// # Errors
///
/// [`Error::Address`] for any other, with the reason.
pub fn loopback(address: SocketAddr) -> Result<SocketAddrV4, Error> {
    match address {
        SocketAddr::V4(v4) if v4.ip().is_loopback() => Ok(v4),
        other => Err(Error::Address {
            text: other.to_string(),
            problem: "it is not of the IPv4 loopback network, and others could reach it: nothing is encrypted and nobody has to say who they are".to_owned(),
            wanted: "127.0.0.1 with a port",
            hint: "name an address of 127.0.0.0/8, and run every part on this machine",
        }),
    }
}

/// Looks `host:port` up, for at most `patience`.
///
/// # Errors
///
/// [`Error::Address`] when it is no address, has no loopback address, or is not found in time.
pub fn resolve(text: &str, patience: Duration) -> Result<SocketAddr, Error> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return loopback(address).map(SocketAddr::V4);
    }
    let unknown = |problem: String| Error::Address {
        text: text.to_owned(),
        problem,
        wanted: "host:port",
        hint: "use 127.0.0.1:7700",
    };
    let (tell, told) = mpsc::sync_channel(1);
    let name = text.to_owned();
    // The resolver knows no deadline; its thread ends when it does.
    std::thread::spawn(move || {
        let found = name.to_socket_addrs().map(Iterator::collect::<Vec<_>>);
        let _ = tell.send(found);
    });
    let found = told
        .recv_timeout(patience)
        .map_err(|_| unknown(format!("not found within {} ms", patience.as_millis())))?
        .map_err(|error| unknown(format!("it cannot be looked up ({error})")))?;
    let own = found.iter().copied().find_map(|it| loopback(it).ok());
    match (own, found.first()) {
        (Some(address), _) => Ok(SocketAddr::V4(address)),
        (None, Some(other)) => loopback(*other).map(SocketAddr::V4),
        (None, None) => Err(unknown("it has no address".to_owned())),
    }
}

/// An address out of a configuration, which strangers may have had a hand in.
pub(crate) fn listed(text: &str) -> Option<SocketAddrV4> {
    loopback(text.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_are_taken_and_the_reason_is_said() {
        for text in ["0.0.0.0:7700", "10.0.0.1:7700", "[::1]:7700"] {
            let refused = resolve(text, Duration::from_secs(1))
                .unwrap_err()
                .to_string();
            assert!(refused.contains("nothing is encrypted"), "{refused}");
            assert_eq!(listed(text), None);
        }
        assert!(resolve("127.0.0.1:7700", Duration::from_secs(1)).is_ok());
        assert!(resolve("no port", Duration::from_secs(1)).is_err());
    }
}
