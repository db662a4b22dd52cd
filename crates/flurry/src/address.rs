//! Names of hosts.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::mpsc;
use std::time::Duration;

use crate::Error;

/// Looks `host:port` up, for at most `patience`.
///
/// # Errors
///
/// [`Error::Address`] when it is no address, has none of IPv4, or is not found in time.
pub fn resolve(text: &str, patience: Duration) -> Result<SocketAddr, Error> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
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
    let four = found.iter().copied().filter(SocketAddr::is_ipv4);
    // Of several the one of this machine, where nobody else listens.
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
        let refused = resolve("no port", soon).unwrap_err().to_string();
        assert!(refused.contains("wanted host:port"), "{refused}");
    }
}
