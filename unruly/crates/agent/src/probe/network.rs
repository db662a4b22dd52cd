//! The network: `/proc/net/{dev,snmp,netstat,softnet_stat}`.
//!
//! All interfaces are summed, the loopback too: a run on one host has all its traffic there, and
//! leaving it out would say that such a run was silent. The price is that a packet which crosses a
//! bridge or a tunnel counts on each interface that it passes.

use super::text::{decimal, hexadecimal, lines, words};

/// Sums over the interfaces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct NetworkCounters {
    pub(super) received_bytes: u64,
    pub(super) sent_bytes: u64,
    pub(super) received_packets: u64,
    pub(super) sent_packets: u64,
    /// Both directions.
    pub(super) errors: u64,
    /// Both directions.
    pub(super) drops: u64,
    pub(super) collisions: u64,
}

/// Reads `/proc/net/dev`. `None` if it lists no interface.
pub(super) fn interfaces(text: &[u8]) -> Option<NetworkCounters> {
    let mut sum: Option<NetworkCounters> = None;
    for line in lines(text) {
        // The name's colon may be followed by the number directly. A heading has no colon.
        let Some(colon) = line.iter().position(|&byte| byte == b':') else {
            continue;
        };
        let mut column = [0u64; 14];
        let mut count = 0;
        for (slot, word) in column.iter_mut().zip(words(&line[colon + 1..])) {
            *slot = decimal(word)?;
            count += 1;
        }
        if count < column.len() {
            continue;
        }
        let sum = sum.get_or_insert_default();
        for (part, more) in [
            (&mut sum.received_bytes, column[0]),
            (&mut sum.received_packets, column[1]),
            (&mut sum.errors, column[2].checked_add(column[10])?),
            (&mut sum.drops, column[3].checked_add(column[11])?),
            (&mut sum.sent_bytes, column[8]),
            (&mut sum.sent_packets, column[9]),
            (&mut sum.collisions, column[13]),
        ] {
            *part = part.checked_add(more)?;
        }
    }
    sum
}

/// A value of `/proc/net/snmp` or `/proc/net/netstat`: a line of names, then one of values, both
/// beginning with `group`.
pub(super) fn protocol_value(text: &[u8], group: &[u8], name: &[u8]) -> Option<u64> {
    let mut of_group = lines(text).filter(|line| words(line).next() == Some(group));
    let names = of_group.next()?;
    let values = of_group.next()?;
    let at = words(names).position(|word| word == name)?;
    decimal(words(values).nth(at)?)
}

/// TCP segments sent again that the receiver had already. It says so with a duplicate selective
/// acknowledgement (RFC 2883), for a segment in order or out of it.
///
/// A receiver whose process does not read acknowledges late, and its sender probes for a loss that
/// never was.
pub(super) fn needless_retransmits(netstat: &[u8]) -> Option<u64> {
    let [in_order, out_of_order] = [b"TCPDSACKRecv".as_slice(), b"TCPDSACKOfoRecv"]
        .map(|name| protocol_value(netstat, b"TcpExt:", name));
    in_order?.checked_add(out_of_order.unwrap_or(0))
}

/// Times that a core left packets waiting because its share of soft-interrupt time was used up:
/// the third number of each core's line in `/proc/net/softnet_stat`.
pub(super) fn squeezes(text: &[u8]) -> Option<u64> {
    let mut sum = None;
    for line in lines(text) {
        let squeezed = hexadecimal(words(line).nth(2)?)?;
        sum = Some(sum.unwrap_or(0u64).checked_add(squeezed)?);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEV: &[u8] = b"Inter-|   Receive      |  Transmit\n face |bytes packets errs drop\n\
        lo:    100 1 0 0 0 0 0 0 100 1 0 0 0 0 0 0\n  eth0:1000 10 2 3 0 0 0 0 500 5 4 5 0 6 0 0\n";

    #[test]
    fn the_loopback_counts_too() {
        let sum = interfaces(DEV).unwrap();
        assert_eq!((sum.received_bytes, sum.sent_bytes), (1100, 600));
        assert_eq!((sum.received_packets, sum.sent_packets), (11, 6));
        assert_eq!((sum.errors, sum.drops, sum.collisions), (6, 8, 6));
    }

    #[test]
    fn no_interface_is_none_and_not_zero() {
        assert_eq!(interfaces(b"Inter-| Receive\n face |bytes\n"), None);
        assert_eq!(interfaces(b"lo: 1 2 3\n"), None);
        assert_eq!(interfaces(b"lo: x 1 0 0 0 0 0 0 100 1 0 0 0 0 0 0\n"), None);
    }

    #[test]
    fn a_protocol_value_is_found_by_its_name() {
        let text = b"Ip: A B\nIp: 1 2\nTcp: InSegs RetransSegs\nTcp: 10 20\n";
        assert_eq!(protocol_value(text, b"Tcp:", b"RetransSegs"), Some(20));
        assert_eq!(protocol_value(text, b"Tcp:", b"NoSuch"), None);
        assert_eq!(protocol_value(text, b"Udp:", b"InSegs"), None);
        assert_eq!(protocol_value(b"Tcp: InSegs\n", b"Tcp:", b"InSegs"), None);
    }

    #[test]
    fn a_negative_neighbour_does_not_hide_a_value() {
        let text = b"Tcp: MaxConn RetransSegs\nTcp: -1 7\n";
        assert_eq!(protocol_value(text, b"Tcp:", b"RetransSegs"), Some(7));
    }

    #[test]
    fn squeezes_are_hexadecimal_and_summed_over_cores() {
        assert_eq!(
            squeezes(b"0000000b 00000000 0000000a\n00002d21 0 00000010 0\n"),
            Some(26)
        );
        assert_eq!(squeezes(b""), None);
        assert_eq!(squeezes(b"0000000b zzz\n"), None);
    }
}
