//! A TCP segment as a captured packet shows it: its sender, and the bytes that it carries.
//!
//! Only headers are read. The packet may be cut after them: the length of the content follows from the
//! header of the internet layer, not from the bytes that were captured.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The layer that a captured packet begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// Ethernet, with VLAN tags or without (loopback of Linux looks like it).
    Ethernet,
    /// A cooked header of Linux (`LINKTYPE_LINUX_SLL`).
    Cooked,
    /// The second version of that header (`LINKTYPE_LINUX_SLL2`).
    Cooked2,
    /// The internet layer.
    Raw,
    /// Four bytes with the address family (loopback of BSD), in the byte order of the machine.
    Null,
}

/// The reason why a packet has no segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Other {
    /// Another protocol, or a fragment that is not the first one.
    Foreign,
    /// The packet ends within its headers.
    Cut,
}

/// A TCP segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Its sender.
    pub from: SocketAddr,
    /// Its receiver.
    pub to: SocketAddr,
    /// The number of its first byte.
    pub sequence: u32,
    /// The number of the byte that its sender expects next, if it has one.
    pub acknowledged: Option<u32>,
    /// Bytes of content.
    pub bytes: u32,
    /// It opens a connection.
    pub opens: bool,
    /// Its sender sends nothing more.
    pub ends: bool,
    /// It breaks the connection off.
    pub resets: bool,
}

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN: [u16; 2] = [0x8100, 0x88a8];
const TCP: u8 = 6;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// Returns the segment of a captured packet. `whole` is the packet's length before it was cut.
///
/// # Errors
///
/// When the packet is of another protocol, or ends within its headers.
pub fn segment(link: Link, packet: &[u8], whole: usize) -> Result<Segment, Other> {
    let cut = whole.saturating_sub(packet.len());
    let (kind, packet) = network(link, packet)?;
    let whole = packet.len() + cut;
    let internet = match kind {
        IPV4 => ipv4(packet, whole)?,
        IPV6 => ipv6(packet, whole)?,
        _ => return Err(Other::Foreign),
    };
    tcp(&internet)
}

/// The kind of the internet layer, and its packet.
fn network(link: Link, packet: &[u8]) -> Result<(u16, &[u8]), Other> {
    match link {
        Link::Ethernet => {
            let mut at = 12;
            loop {
                let kind = u16_at(packet, at)?;
                at += 2;
                if !VLAN.contains(&kind) {
                    return Ok((kind, packet.get(at..).ok_or(Other::Cut)?));
                }
                at += 2;
            }
        }
        Link::Cooked => Ok((u16_at(packet, 14)?, packet.get(16..).ok_or(Other::Cut)?)),
        Link::Cooked2 => Ok((u16_at(packet, 0)?, packet.get(20..).ok_or(Other::Cut)?)),
        Link::Null => by_version(packet.get(4..).ok_or(Other::Cut)?),
        Link::Raw => by_version(packet),
    }
}

fn by_version(packet: &[u8]) -> Result<(u16, &[u8]), Other> {
    match packet.first().ok_or(Other::Cut)? >> 4 {
        4 => Ok((IPV4, packet)),
        6 => Ok((IPV6, packet)),
        _ => Err(Other::Foreign),
    }
}

/// A packet of the internet layer.
struct Internet<'a> {
    from: IpAddr,
    to: IpAddr,
    /// Length of the TCP header and its content.
    bytes: usize,
    /// As much of both as was captured.
    content: &'a [u8],
}

fn ipv4(packet: &[u8], long: usize) -> Result<Internet<'_>, Other> {
    let head = packet.first_chunk::<20>().ok_or(Other::Cut)?;
    let fragment = u16::from_be_bytes([head[6], head[7]]) & 0x1fff;
    if head[9] != TCP || fragment != 0 {
        return Err(Other::Foreign);
    }
    let own = usize::from(head[0] & 0xf) * 4;
    // A card that splits segments itself may leave the length out.
    let whole = match u16::from_be_bytes([head[2], head[3]]) {
        0 => long,
        length => usize::from(length),
    };
    let bytes = whole.checked_sub(own).filter(|_| own >= 20);
    let address = |at: usize| {
        IpAddr::from(Ipv4Addr::new(
            head[at],
            head[at + 1],
            head[at + 2],
            head[at + 3],
        ))
    };
    Ok(Internet {
        from: address(12),
        to: address(16),
        bytes: bytes.ok_or(Other::Foreign)?,
        content: packet.get(own..).ok_or(Other::Cut)?,
    })
}

fn ipv6(packet: &[u8], long: usize) -> Result<Internet<'_>, Other> {
    let head = packet.first_chunk::<40>().ok_or(Other::Cut)?;
    let address = |at: usize| {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&head[at..at + 16]);
        IpAddr::from(Ipv6Addr::from(bytes))
    };
    // A card that splits segments itself may leave the length out here too.
    let mut bytes = match u16::from_be_bytes([head[4], head[5]]) {
        0 => long - 40,
        length => usize::from(length),
    };
    let (mut kind, mut content) = (head[6], &packet[40..]);
    // Hop-by-hop, routing and destination options stand before the segment.
    while matches!(kind, 0 | 43 | 60) {
        let own = content.first_chunk::<2>().ok_or(Other::Cut)?;
        let length = (usize::from(own[1]) + 1) * 8;
        kind = own[0];
        content = content.get(length..).ok_or(Other::Cut)?;
        bytes = bytes.checked_sub(length).ok_or(Other::Foreign)?;
    }
    if kind != TCP {
        return Err(Other::Foreign);
    }
    Ok(Internet {
        from: address(8),
        to: address(24),
        bytes,
        content,
    })
}

fn tcp(internet: &Internet<'_>) -> Result<Segment, Other> {
    let head = internet.content.first_chunk::<14>().ok_or(Other::Cut)?;
    let own = usize::from(head[12] >> 4) * 4;
    let bytes = internet.bytes.checked_sub(own).filter(|_| own >= 20);
    let port = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let number =
        |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let has = |flag: u8| head[13] & flag != 0;
    Ok(Segment {
        from: SocketAddr::new(internet.from, port(0)),
        to: SocketAddr::new(internet.to, port(2)),
        sequence: number(4),
        acknowledged: has(ACK).then(|| number(8)),
        bytes: u32::try_from(bytes.ok_or(Other::Foreign)?).map_err(|_| Other::Foreign)?,
        opens: has(SYN),
        ends: has(FIN),
        resets: has(RST),
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, Other> {
    let found = bytes.get(at..at + 2).ok_or(Other::Cut)?;
    Ok(u16::from_be_bytes([found[0], found[1]]))
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A packet of IPv4 that carries this segment, without its content.
    pub(crate) fn packet(it: &Segment) -> Vec<u8> {
        let (IpAddr::V4(from), IpAddr::V4(to)) = (it.from.ip(), it.to.ip()) else {
            panic!("IPv4 only");
        };
        let length = u16::try_from(40 + it.bytes).unwrap().to_be_bytes();
        let mut bytes = vec![0x45, 0, length[0], length[1], 0, 0, 0x40, 0, 64, TCP, 0, 0];
        bytes.extend(from.octets());
        bytes.extend(to.octets());
        bytes.extend(it.from.port().to_be_bytes());
        bytes.extend(it.to.port().to_be_bytes());
        bytes.extend(it.sequence.to_be_bytes());
        bytes.extend(it.acknowledged.unwrap_or(0).to_be_bytes());
        let flags = [
            (it.ends, FIN),
            (it.opens, SYN),
            (it.resets, RST),
            (it.acknowledged.is_some(), ACK),
        ];
        let flags = flags.iter().filter(|(is, _)| *is).map(|(_, flag)| flag);
        bytes.extend([0x50, flags.sum(), 0, 0, 0, 0, 0, 0]);
        bytes
    }

    fn example() -> Segment {
        Segment {
            from: "10.0.0.1:4000".parse().unwrap(),
            to: "10.0.0.2:443".parse().unwrap(),
            sequence: 7,
            acknowledged: Some(9),
            bytes: 1_200,
            opens: false,
            ends: true,
            resets: false,
        }
    }

    fn behind(head: &[u8], packet: &[u8]) -> Vec<u8> {
        [head, packet].concat()
    }

    #[test]
    fn a_segment_is_read_behind_every_link_header_although_its_content_is_not_there() {
        let packet = packet(&example());
        let ethernet = behind(&[&[0; 12][..], &[8, 0]].concat(), &packet);
        let tagged = behind(&[&[0; 12][..], &[0x81, 0, 0, 5, 8, 0]].concat(), &packet);
        let cooked = behind(&[&[0; 14][..], &[8, 0]].concat(), &packet);
        let cooked2 = behind(&[&[8, 0][..], &[0; 18]].concat(), &packet);
        let null = behind(&[2, 0, 0, 0], &packet);
        for (link, bytes) in [
            (Link::Raw, &packet),
            (Link::Ethernet, &ethernet),
            (Link::Ethernet, &tagged),
            (Link::Cooked, &cooked),
            (Link::Cooked2, &cooked2),
            (Link::Null, &null),
        ] {
            assert_eq!(segment(link, bytes, bytes.len()), Ok(example()), "{link:?}");
        }
    }

    #[test]
    fn a_segment_of_ipv6_is_read_behind_its_options() {
        let four = packet(&example());
        let length = u16::try_from(8 + 20 + 1_200).unwrap().to_be_bytes();
        let mut six = vec![0x60, 0, 0, 0, length[0], length[1], 60, 64];
        six.extend([0; 15]);
        six.push(1);
        six.extend([0; 15]);
        six.push(2);
        six.extend([TCP, 0, 1, 4, 0, 0, 0, 0]);
        six.extend(&four[20..]);
        let found = segment(Link::Raw, &six, 0).unwrap();
        assert_eq!(found.from, "[::1]:4000".parse().unwrap());
        assert_eq!((found.to.port(), found.bytes), (443, 1_200));
    }

    #[test]
    fn a_packet_that_ends_within_its_headers_is_cut_and_another_protocol_is_foreign() {
        let packet = packet(&example());
        for length in 0..34 {
            assert_eq!(
                segment(Link::Raw, &packet[..length], length),
                Err(Other::Cut),
                "{length}"
            );
        }
        let mut udp = packet.clone();
        udp[9] = 17;
        assert_eq!(segment(Link::Raw, &udp, 0), Err(Other::Foreign));
        let mut fragment = packet.clone();
        fragment[7] = 3;
        assert_eq!(segment(Link::Raw, &fragment, 0), Err(Other::Foreign));
        // The lengths in the headers contradict each other.
        let mut shorter = packet;
        shorter[3] = 30;
        shorter[2] = 0;
        assert_eq!(segment(Link::Raw, &shorter, 0), Err(Other::Foreign));
    }

    #[test]
    fn a_packet_without_a_length_has_that_of_its_frame() {
        let mut packet = packet(&example());
        (packet[2], packet[3]) = (0, 0);
        let frame = behind(&[&[0; 12][..], &[8, 0]].concat(), &packet);
        let found = segment(Link::Ethernet, &frame, 14 + 40 + 70_000).unwrap();
        assert_eq!(found.bytes, 70_000);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..160),
            whole in 0_usize..1 << 20,
        ) {
            for link in [Link::Ethernet, Link::Cooked, Link::Cooked2, Link::Raw, Link::Null] {
                let _ = segment(link, &bytes, whole);
            }
        }
    }
}
