//! A stream: a writer that sends as fast as its protocol allows, and who reads it.

use serde::{Deserialize, Serialize};

use crate::units::{BitRate, Bytes, DurationNs};

/// One process writes messages as fast as its protocol lets it, another reads them, or a group of others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stream {
    /// How the messages travel.
    pub protocol: Protocol,
    /// How many read; in a group each of them reads all.
    pub readers: u16,
    /// Length of a message, its header included.
    pub message: Bytes,
    /// Sampling interval: the reader keeps the latency of one message in `sample`.
    pub sample: u32,
    /// Rate of the link between the two hosts. If absent, they are joined by loopback or by the
    /// whole pair.
    pub link: Option<BitRate>,
    /// Largest packet of that link.
    pub mtu: u16,
    /// Traffic after the measured time, while others may end already.
    pub wind_down: DurationNs,
    /// How the kernel's scheduler treats both ends.
    pub scheduling: Scheduling,
}

/// Which class of the kernel's scheduler a process is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheduling {
    /// As all others.
    #[default]
    Normal,
    /// Before all others: first in, first out.
    Realtime,
}

impl Scheduling {
    /// The words in plans.
    pub(crate) const WORDS: [(&'static str, Self); 2] =
        [("normal", Self::Normal), ("realtime", Self::Realtime)];

    /// The name in plans.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Realtime => "realtime",
        }
    }
}

/// How messages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// The kernel's TCP.
    Tcp,
    /// Datagrams: nothing is sent again.
    Udp,
    /// SCTP in user mode (usrsctp), over UDP.
    Sctp,
    /// The kernel's SCTP, where it has one.
    KernelSctp,
    /// QUIC (quinn).
    Quic,
    /// ENet: reliable packets over UDP.
    Enet,
    /// KCP: retransmission tuned for latency, over UDP.
    Kcp,
    /// A group whose members see messages and each other's coming and going in one order: each end has a
    /// daemon of corosync.
    CorosyncCpg,
    /// The kernel's TCP from Java, by `java.net`.
    JvmTcp,
    /// The kernel's TCP from Java, by `java.nio`.
    JvmNio,
    /// Datagrams from Java.
    JvmUdp,
    /// JGroups over multicast.
    JgroupsUdp,
    /// JGroups over TCP.
    JgroupsTcp,
    /// Aeron, with its driver in the same process.
    Aeron,
    /// Aeron, with its driver in a process of its own, which no load of the stream's own machine touches.
    AeronDaemon,
}

impl Protocol {
    /// All of them, in the order of the manual.
    pub const ALL: [Self; 15] = [
        Self::Tcp,
        Self::Udp,
        Self::Sctp,
        Self::KernelSctp,
        Self::Quic,
        Self::Enet,
        Self::Kcp,
        Self::CorosyncCpg,
        Self::JvmTcp,
        Self::JvmNio,
        Self::JvmUdp,
        Self::JgroupsUdp,
        Self::JgroupsTcp,
        Self::Aeron,
        Self::AeronDaemon,
    ];

    /// The name in plans and rows.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
            Self::KernelSctp => "kernel-sctp",
            Self::Quic => "quic",
            Self::Enet => "enet",
            Self::Kcp => "kcp",
            Self::CorosyncCpg => "corosync-cpg",
            Self::JvmTcp => "jvm-tcp",
            Self::JvmNio => "jvm-nio",
            Self::JvmUdp => "jvm-udp",
            Self::JgroupsUdp => "jgroups-udp",
            Self::JgroupsTcp => "jgroups-tcp",
            Self::Aeron => "aeron",
            Self::AeronDaemon => "aeron-daemon",
        }
    }

    /// The longest message that it takes.
    #[must_use]
    pub const fn longest_message(self) -> Bytes {
        match self {
            Self::Tcp | Self::Quic | Self::JvmTcp | Self::JvmNio => Bytes(16_000_000),
            // It cuts a message into at most 128 pieces of a packet.
            Self::Kcp => Bytes(100_000),
            Self::Udp | Self::JvmUdp => Bytes(65_000),
            // What its socket holds at once.
            Self::Sctp | Self::KernelSctp => Bytes(200_000),
            // It cuts a packet into at most a million fragments, of which no link is short.
            Self::Enet | Self::JgroupsUdp | Self::JgroupsTcp | Self::Aeron | Self::AeronDaemon => {
                Bytes(1_000_000)
            }
            // What its daemon takes at once is a mebibyte, with headers of its own.
            Self::CorosyncCpg => Bytes(1_000_000),
        }
    }

    /// Whether several may read, each of them all.
    #[must_use]
    pub const fn is_of_group(self) -> bool {
        matches!(
            self,
            Self::CorosyncCpg | Self::JgroupsUdp | Self::JgroupsTcp
        )
    }

    /// Returns true if a JVM speaks this protocol.
    #[must_use]
    pub const fn is_of_jvm(self) -> bool {
        matches!(
            self,
            Self::JvmTcp
                | Self::JvmNio
                | Self::JvmUdp
                | Self::JgroupsUdp
                | Self::JgroupsTcp
                | Self::Aeron
                | Self::AeronDaemon
        )
    }

    /// Why it cannot be spoken between two processes on loopback, if it cannot.
    #[must_use]
    pub const fn needs_hosts(self) -> Option<&'static str> {
        match self {
            Self::Sctp => Some("its library listens on all addresses"),
            Self::CorosyncCpg => Some("each end needs a daemon, and a host has one"),
            _ => None,
        }
    }

    /// Whether every message arrives, once and in order, or the stream ends.
    #[must_use]
    pub const fn is_reliable(self) -> bool {
        !matches!(self, Self::Udp | Self::JvmUdp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_is_called_the_same_in_plans_and_in_jobs() {
        for protocol in Protocol::ALL {
            let json = serde_json::to_string(&protocol).unwrap();
            assert_eq!(json, format!("{:?}", protocol.name()));
        }
    }
}
