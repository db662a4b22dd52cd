//! Whom a message goes to or came from, and by which way.

use std::net::SocketAddrV4;

/// How messages travel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// A datagram each, the fastest between processes. What is too long for one goes over TCP by
    /// itself.
    #[default]
    Udp,
    /// Connections, which are kept.
    Tcp,
    /// A queue in memory, for parts that live in one process.
    InProcess,
}

/// How to reach somebody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Way {
    /// By a datagram; they listen, for connections too.
    Datagram,
    /// Reply by datagram to the sender of a datagram.
    Return,
    /// By a connection that we open.
    Dial,
    /// By the connection that they opened, while there is one.
    Back,
    /// By a queue of this process.
    Local,
}

/// Whom a message goes to or came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Peer {
    pub(crate) way: Way,
    pub(crate) address: SocketAddrV4,
}

impl Peer {
    /// Somebody who listens.
    pub(crate) fn listening(transport: Transport, address: SocketAddrV4) -> Self {
        let way = match transport {
            Transport::Udp => Way::Datagram,
            Transport::Tcp => Way::Dial,
            Transport::InProcess => Way::Local,
        };
        Self { way, address }
    }

    /// As the number that the core hands back with a reply.
    pub(crate) fn token(self) -> u64 {
        let way = match self.way {
            Way::Datagram => 0,
            Way::Return => 1,
            Way::Dial => 2,
            Way::Back => 3,
            Way::Local => 4,
        };
        way << 48 | u64::from(u32::from(*self.address.ip())) << 16 | u64::from(self.address.port())
    }

    /// The peer of a number of [`Self::token`].
    pub(crate) fn of_token(token: u64) -> Option<Self> {
        let way = match token >> 48 {
            0 => Way::Datagram,
            1 => Way::Return,
            2 => Way::Dial,
            3 => Way::Back,
            4 => Way::Local,
            _ => return None,
        };
        let port = u16::try_from(token & 0xffff).ok()?;
        let ip = u32::try_from(token >> 16 & 0xffff_ffff).ok()?;
        Some(Self {
            way,
            address: SocketAddrV4::new(ip.into(), port),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_survives_its_number() {
        let address: SocketAddrV4 = "127.9.8.7:65535".parse().unwrap();
        for way in [Way::Datagram, Way::Return, Way::Dial, Way::Back, Way::Local] {
            let peer = Peer { way, address };
            assert_eq!(Peer::of_token(peer.token()), Some(peer));
        }
        assert_eq!(Peer::of_token(u64::MAX), None);
    }
}
