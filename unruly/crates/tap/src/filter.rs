//! The kernel's filter: of all packets only those of the watched ports reach the ring.
//!
//! A program of the classic BPF machine. A packet begins with its internet layer, and the result is
//! the number of bytes to keep.

use libc::sock_filter;

/// Bytes that are kept of a packet: the headers of IPv6 and TCP, and some options.
pub(crate) const KEPT_BYTES: u32 = 128;

const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
const LOAD_HALF_INDEXED: u16 = 0x48;
const LOAD_INDEX_OF_HEADER: u16 = 0xb1;
const AND: u16 = 0x54;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_SET: u16 = 0x45;
const RETURN: u16 = 0x06;

/// Offsets of what the kernel knows of a packet.
const PACKET_TYPE: u32 = 0xffff_f000 + 4;
const INTERFACE: u32 = 0xffff_f000 + 8;
const OUTGOING: u32 = 4;
const TCP: u32 = 6;

/// A place to jump to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Label {
    Next,
    Version,
    Six,
    SixPorts,
    Accept,
    Drop,
}

struct Line {
    at: Option<Label>,
    code: u16,
    value: u32,
    then: Label,
    otherwise: Label,
}

/// Returns the program that keeps the TCP packets from or to these ports. On the loopback interface,
/// which shows each packet twice, the outgoing copy is dropped.
pub(crate) fn program(ports: &[u16], loopback: Option<u32>) -> Vec<sock_filter> {
    let mut lines = Vec::new();
    let mut add = |at, code, value, then, otherwise| {
        lines.push(Line {
            at,
            code,
            value,
            then,
            otherwise,
        });
    };
    let (next, none) = (Label::Next, None);
    if let Some(loopback) = loopback {
        add(none, LOAD_WORD, INTERFACE, next, next);
        add(none, JUMP_IF_EQUAL, loopback, next, Label::Version);
        add(none, LOAD_WORD, PACKET_TYPE, next, next);
        add(none, JUMP_IF_EQUAL, OUTGOING, Label::Drop, Label::Version);
    }
    add(Some(Label::Version), LOAD_BYTE, 0, next, next);
    add(none, AND, 0xf0, next, next);
    add(none, JUMP_IF_EQUAL, 0x60, Label::Six, next);
    add(none, JUMP_IF_EQUAL, 0x40, next, Label::Drop);
    add(none, LOAD_BYTE, 9, next, next);
    add(none, JUMP_IF_EQUAL, TCP, next, Label::Drop);
    add(none, LOAD_HALF, 6, next, next);
    add(none, JUMP_IF_SET, 0x1fff, Label::Drop, next);
    add(none, LOAD_INDEX_OF_HEADER, 0, next, next);
    for offset in [0, 2] {
        add(none, LOAD_HALF_INDEXED, offset, next, next);
        for port in ports {
            add(none, JUMP_IF_EQUAL, u32::from(*port), Label::Accept, next);
        }
    }
    add(none, RETURN, 0, next, next);
    add(Some(Label::Six), LOAD_BYTE, 6, next, next);
    add(none, JUMP_IF_EQUAL, TCP, Label::SixPorts, next);
    // Behind options the ports may stand anywhere: such packets are rare, and read later.
    for options in [0, 43, 60] {
        add(none, JUMP_IF_EQUAL, options, Label::Accept, next);
    }
    add(none, RETURN, 0, next, next);
    for (place, offset) in [40, 42].into_iter().enumerate() {
        let at = (place == 0).then_some(Label::SixPorts);
        add(at, LOAD_HALF, offset, next, next);
        for port in ports {
            add(none, JUMP_IF_EQUAL, u32::from(*port), Label::Accept, next);
        }
    }
    add(Some(Label::Drop), RETURN, 0, next, next);
    add(Some(Label::Accept), RETURN, KEPT_BYTES, next, next);
    assembled(&lines)
}

/// Turns labels into distances.
fn assembled(lines: &[Line]) -> Vec<sock_filter> {
    let distance = |from: usize, to: Label| {
        let place = lines.iter().position(|line| line.at == Some(to));
        // With at most 32 ports the program has less than 200 lines.
        place.map_or(0, |place| u8::try_from(place - from - 1).unwrap_or(u8::MAX))
    };
    let line = |(place, line): (usize, &Line)| sock_filter {
        code: line.code,
        jt: distance(place, line.then),
        jf: distance(place, line.otherwise),
        k: line.value,
    };
    lines.iter().enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::segment::tests::packet;
    use crate::{SERVERS_MAX, Segment};

    /// The interface and the type of a packet, which stand outside of its bytes.
    type Known = (u32, u32);

    /// Runs a program as the kernel does. Returns how many bytes it keeps.
    fn kept(program: &[sock_filter], packet: &[u8], (interface, kind): Known) -> u32 {
        let (mut a, mut x, mut at) = (0_u32, 0_usize, 0);
        loop {
            let line = program[at];
            at += 1;
            let half =
                |place: usize| u32::from(u16::from_be_bytes([packet[place], packet[place + 1]]));
            let k = line.k as usize;
            match line.code {
                LOAD_WORD if line.k == INTERFACE => a = interface,
                LOAD_WORD if line.k == PACKET_TYPE => a = kind,
                LOAD_BYTE => a = u32::from(packet[k]),
                LOAD_HALF => a = half(k),
                LOAD_HALF_INDEXED => a = half(x + k),
                LOAD_INDEX_OF_HEADER => x = usize::from(packet[k] & 0xf) * 4,
                AND => a &= line.k,
                JUMP_IF_EQUAL => at += usize::from(if a == line.k { line.jt } else { line.jf }),
                JUMP_IF_SET => at += usize::from(if a & line.k != 0 { line.jt } else { line.jf }),
                RETURN => return line.k,
                code => panic!("{code:#x}"),
            }
        }
    }

    fn between(from: &str, to: &str) -> Vec<u8> {
        let address = |text: &str| -> SocketAddr { text.parse().unwrap() };
        packet(&Segment {
            from: address(from),
            to: address(to),
            sequence: 1,
            acknowledged: Some(1),
            bytes: 5,
            opens: false,
            ends: false,
            resets: false,
        })
    }

    #[test]
    fn packets_from_and_to_the_ports_are_kept_and_no_others() {
        let ports: Vec<u16> = (1_000..1_000 + u16::try_from(SERVERS_MAX).unwrap()).collect();
        let program = program(&ports, Some(1));
        for port in [1_000, 1_031] {
            let asks = between("10.0.0.1:5", &format!("10.0.0.2:{port}"));
            let replies = between(&format!("10.0.0.2:{port}"), "10.0.0.1:5");
            assert_eq!(kept(&program, &asks, (2, 0)), KEPT_BYTES);
            assert_eq!(kept(&program, &replies, (2, OUTGOING)), KEPT_BYTES);
            // One of the two copies on loopback is kept.
            assert_eq!(kept(&program, &asks, (1, 0)), KEPT_BYTES);
            assert_eq!(kept(&program, &asks, (1, OUTGOING)), 0);
        }
        let other = between("10.0.0.1:999", "10.0.0.2:1032");
        assert_eq!(kept(&program, &other, (2, 0)), 0);
        let mut udp = between("10.0.0.1:1000", "10.0.0.2:1000");
        udp[9] = 17;
        assert_eq!(kept(&program, &udp, (2, 0)), 0);
    }

    #[test]
    fn a_header_with_options_and_one_of_ipv6_are_read_where_their_ports_are() {
        let program = program(&[443], None);
        let mut options = between("10.0.0.1:5", "10.0.0.2:443");
        options[0] = 0x46;
        options.splice(20..20, [1, 1, 1, 1]);
        assert_eq!(kept(&program, &options, (2, 0)), KEPT_BYTES);
        let four = between("10.0.0.1:5", "10.0.0.2:443");
        let six = |next: u8| {
            let mut bytes = vec![0x60, 0, 0, 0, 0, 25, next, 64];
            bytes.extend([0; 32]);
            bytes.extend(&four[20..]);
            bytes
        };
        assert_eq!(kept(&program, &six(6), (2, 0)), KEPT_BYTES);
        assert_eq!(kept(&program, &six(60), (2, 0)), KEPT_BYTES);
        assert_eq!(kept(&program, &six(17), (2, 0)), 0);
    }
}
