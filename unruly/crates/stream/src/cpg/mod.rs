//! A corosync group. All members receive all messages and all membership changes in the same order
//! (extended virtual synchrony). The writer also receives its own messages.

mod daemon;
mod functions;
mod group;
mod knock;
mod reader;
mod writer;

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

pub(crate) use daemon::PACKAGE;
pub(crate) use reader::CpgReader;
pub(crate) use writer::CpgWriter;

pub(crate) const LIBRARY: &str = "libcpg.so.4";
/// The libraries that the library depends on.
pub(crate) const NEEDED: [&str; 2] = ["libqb.so.100", "libcorosync_common.so.4"];

/// Time between two tries to send. There may be room again although no message was received.
const ROOM_LOOK: Duration = Duration::from_millis(1);
const LOOK: Duration = Duration::from_millis(20);

fn ipv4(ip: IpAddr) -> io::Result<Ipv4Addr> {
    match ip {
        IpAddr::V4(ip) => Ok(ip),
        IpAddr::V6(_) => Err(io::Error::other(
            "hosts are numbered by their IPv4 addresses; wanted one; hint: hosts = \"namespaces\"",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_has_no_number_is_refused() {
        assert!(ipv4(IpAddr::from([10, 77, 0, 1])).is_ok());
        assert!(ipv4("::1".parse().unwrap()).is_err());
    }
}
