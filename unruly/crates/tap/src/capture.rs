//! Packets from a file: pcap and pcapng, as tcpdump and Wireshark write them.

use std::io::{self, Read};

use anyhow::{Context, Result, bail, ensure};
use unruly_trace::{ColumnNs, DurationNs};

use crate::segment::Link;

/// A packet of a file that is longer than this is damage, and no packet.
const PACKET_BYTES_MAX: usize = 1 << 20;

const NANOSECONDS: u64 = 1_000_000_000;

/// A packet of a capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Its time.
    pub at_ns: ColumnNs,
    /// The layer that it begins with.
    pub link: Link,
    /// The bytes that were captured.
    pub bytes: Vec<u8>,
    /// Its length before it was cut.
    pub whole: usize,
}

/// Reads the packets of a file.
#[derive(Debug)]
pub struct Capture<R> {
    input: R,
    little: bool,
    kind: Kind,
    /// The file ends within a packet.
    cut: bool,
}

#[derive(Debug)]
enum Kind {
    /// The old format: one link, and the length of its unit of time.
    Old { link: Link, unit: DurationNs },
    /// The new format: the interfaces so far.
    New(Vec<Interface>),
}

/// An interface of the new format.
#[derive(Debug, Clone, Copy)]
struct Interface {
    /// The link, or the number of one that is not known.
    link: LinkResult,
    /// Units of time in a second.
    units: u64,
}

type LinkResult = std::result::Result<Link, u16>;

impl<R: Read> Capture<R> {
    /// Reads the beginning of a file.
    ///
    /// # Errors
    ///
    /// When the file is no capture, or its packets begin with a layer that is not known.
    pub fn open(mut input: R) -> Result<Self> {
        let mut mark = [0; 4];
        input
            .read_exact(&mut mark)
            .context("the file has no 4 bytes; wanted a pcap or pcapng file")?;
        let (little, unit) = match mark {
            [0xd4, 0xc3, 0xb2, 0xa1] => (true, DurationNs(1_000)),
            [0xa1, 0xb2, 0xc3, 0xd4] => (false, DurationNs(1_000)),
            [0x4d, 0x3c, 0xb2, 0xa1] => (true, DurationNs(1)),
            [0xa1, 0xb2, 0x3c, 0x4d] => (false, DurationNs(1)),
            [0x0a, 0x0d, 0x0d, 0x0a] => {
                let mut capture = Self {
                    input,
                    little: true,
                    kind: Kind::New(Vec::new()),
                    cut: false,
                };
                capture.section()?;
                return Ok(capture);
            }
            _ => bail!(
                "it begins with {mark:02x?}; wanted a pcap or pcapng file; hint: tcpdump -w writes one"
            ),
        };
        let mut capture = Self {
            input,
            little,
            kind: Kind::New(Vec::new()),
            cut: false,
        };
        let head = capture
            .bytes(20)?
            .context("the file ends within its header")?;
        // The upper bits hold the length of a checksum.
        let link = capture.u32(&head[16..]) & 0xffff;
        let link = link_of(u16::try_from(link)?).map_err(unknown_link)?;
        capture.kind = Kind::Old { link, unit };
        Ok(capture)
    }

    /// Returns true if the file ends within a packet.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Returns the next packet; `None` at the end of the file.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or is damaged.
    pub fn next_packet(&mut self) -> Result<Option<Packet>> {
        match self.kind {
            Kind::Old { link, unit } => self.old(link, unit),
            Kind::New(_) => self.new_packet(),
        }
    }

    fn old(&mut self, link: Link, unit: DurationNs) -> Result<Option<Packet>> {
        let Some(head) = self.bytes(16)? else {
            return Ok(None);
        };
        let [seconds, units, kept, whole] = [0, 4, 8, 12].map(|at| self.u32(&head[at..]));
        let Some(bytes) = self.bytes(length(kept)?)? else {
            self.cut = true;
            return Ok(None);
        };
        let since = DurationNs::seconds(i64::from(seconds)) + unit * i64::from(units);
        Ok(Some(Packet {
            at_ns: ColumnNs(0) + since,
            link,
            bytes,
            whole: whole as usize,
        }))
    }

    fn new_packet(&mut self) -> Result<Option<Packet>> {
        loop {
            let Some(head) = self.bytes(4)? else {
                return Ok(None);
            };
            if head == [0x0a, 0x0d, 0x0d, 0x0a] {
                self.section()?;
                continue;
            }
            let kind = self.u32(&head);
            let Some(body) = self.body()? else {
                self.cut = true;
                return Ok(None);
            };
            let packet = match kind {
                1 => {
                    let interface = self.interface(&body)?;
                    if let Kind::New(interfaces) = &mut self.kind {
                        interfaces.push(interface);
                    }
                    None
                }
                6 => Some(self.enhanced(&body)?),
                // A simple packet has no time, and is of no use here; the others are remarks.
                _ => None,
            };
            if let Some(packet) = packet {
                return Ok(Some(packet));
            }
        }
    }

    /// Reads a section header behind its first four bytes: the byte order, and no interface yet.
    fn section(&mut self) -> Result<()> {
        let head = self.bytes(8)?.context("the file ends within its header")?;
        self.little = match head[4..] {
            [0x4d, 0x3c, 0x2b, 0x1a] => true,
            [0x1a, 0x2b, 0x3c, 0x4d] => false,
            _ => bail!("its section header has no byte order; the file is damaged"),
        };
        let whole = length(self.u32(&head))?;
        let rest = whole
            .checked_sub(12)
            .context("its section header is too short; the file is damaged")?;
        self.bytes(rest)?
            .context("the file ends within its header")?;
        self.kind = Kind::New(Vec::new());
        Ok(())
    }

    /// The body of a block, behind its kind: without both lengths. `None` if the file ends in it.
    fn body(&mut self) -> Result<Option<Vec<u8>>> {
        let Some(head) = self.bytes(4)? else {
            return Ok(None);
        };
        let whole = length(self.u32(&head))?;
        ensure!(
            whole >= 12 && whole.is_multiple_of(4),
            "a block of {whole} bytes; the file is damaged"
        );
        let Some(mut body) = self.bytes(whole - 8)? else {
            return Ok(None);
        };
        body.truncate(whole - 12);
        Ok(Some(body))
    }

    fn interface(&self, body: &[u8]) -> Result<Interface> {
        ensure!(
            body.len() >= 8,
            "an interface without its numbers; the file is damaged"
        );
        let mut units = 1_000_000;
        let mut options = &body[8..];
        while let Some((head, rest)) = options.split_first_chunk::<4>() {
            let (code, length) = (self.u16(head), usize::from(self.u16(&head[2..])));
            let Some(value) = rest.get(..length).filter(|_| code != 0) else {
                break;
            };
            if let (9, Some(resolution)) = (code, value.first()) {
                units = units_of(*resolution)?;
            }
            options = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(Interface {
            link: link_of(self.u16(body)),
            units,
        })
    }

    fn enhanced(&self, body: &[u8]) -> Result<Packet> {
        ensure!(
            body.len() >= 20,
            "a packet without its header; the file is damaged"
        );
        let [number, high, low, kept, whole] = [0, 4, 8, 12, 16].map(|at| self.u32(&body[at..]));
        let Kind::New(interfaces) = &self.kind else {
            bail!("a block of another format; the file is damaged");
        };
        let interface = interfaces.get(number as usize).with_context(|| {
            format!("a packet of interface {number}, which is unknown; the file is damaged")
        })?;
        let bytes = body[20..]
            .get(..length(kept)?)
            .context("a packet that is longer than its block; the file is damaged")?;
        let units = u64::from(high) << 32 | u64::from(low);
        let (seconds, rest) = (units / interface.units, units % interface.units);
        let rest_ns = u128::from(rest) * u128::from(NANOSECONDS) / u128::from(interface.units);
        let at_ns = i128::from(seconds) * i128::from(NANOSECONDS) + i128::try_from(rest_ns)?;
        Ok(Packet {
            at_ns: ColumnNs(
                i64::try_from(at_ns)
                    .context("a packet's time is beyond the year 2262; the file is damaged")?,
            ),
            link: interface.link.map_err(unknown_link)?,
            bytes: bytes.to_vec(),
            whole: whole as usize,
        })
    }

    /// Reads this many bytes; `None` if the file ends before them.
    fn bytes(&mut self, count: usize) -> Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; count];
        let mut got = 0;
        while got < count {
            match self.input.read(&mut bytes[got..]) {
                Ok(0) => {
                    self.cut |= got > 0;
                    return Ok(None);
                }
                Ok(more) => got += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("the file cannot be read"),
            }
        }
        Ok(Some(bytes))
    }

    fn u32(&self, bytes: &[u8]) -> u32 {
        let four = [bytes[0], bytes[1], bytes[2], bytes[3]];
        if self.little {
            u32::from_le_bytes(four)
        } else {
            u32::from_be_bytes(four)
        }
    }

    fn u16(&self, bytes: &[u8]) -> u16 {
        let two = [bytes[0], bytes[1]];
        if self.little {
            u16::from_le_bytes(two)
        } else {
            u16::from_be_bytes(two)
        }
    }
}

fn length(bytes: u32) -> Result<usize> {
    let length = bytes as usize;
    ensure!(
        length <= PACKET_BYTES_MAX,
        "a packet of {length} bytes; the file is damaged"
    );
    Ok(length)
}

/// Units of time in a second: a power of ten, or of two if the highest bit is set.
fn units_of(resolution: u8) -> Result<u64> {
    let power = u32::from(resolution & 0x7f);
    let base: u64 = if resolution & 0x80 == 0 { 10 } else { 2 };
    let units = base.checked_pow(power);
    units.with_context(|| format!("a resolution of time of {base}^-{power}; the file is damaged"))
}

fn link_of(number: u16) -> LinkResult {
    match number {
        0 => Ok(Link::Null),
        1 => Ok(Link::Ethernet),
        // DLT_RAW of several systems, and LINKTYPE_RAW, _IPV4, _IPV6.
        12 | 14 | 101 | 228 | 229 => Ok(Link::Raw),
        113 => Ok(Link::Cooked),
        276 => Ok(Link::Cooked2),
        other => Err(other),
    }
}

fn unknown_link(number: u16) -> anyhow::Error {
    anyhow::anyhow!(
        "its packets are of link type {number}; wanted Ethernet, Linux cooked, raw IP or loopback; hint: capture on the host itself"
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn old(mark: [u8; 4], link: u32, packets: &[(u32, u32, &[u8])]) -> Vec<u8> {
        let little = mark[0] != 0xa1;
        let word = |value: u32| {
            if little {
                value.to_le_bytes()
            } else {
                value.to_be_bytes()
            }
        };
        let mut bytes = mark.to_vec();
        bytes.extend([0; 16]);
        bytes.extend(word(link));
        for (seconds, units, content) in packets {
            let length = u32::try_from(content.len()).unwrap();
            for value in [*seconds, *units, length, length] {
                bytes.extend(word(value));
            }
            bytes.extend(*content);
        }
        bytes
    }

    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let whole = u32::try_from(body.len() + 12).unwrap().to_le_bytes();
        [&kind.to_le_bytes(), &whole, body, &whole].concat()
    }

    /// A section, an interface with this link and this resolution of time, and a packet.
    fn new(link: u16, resolution: Option<u8>, units: u64) -> Vec<u8> {
        let section = [&[0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0][..], &[0xff; 8]].concat();
        let mut interface = link.to_le_bytes().to_vec();
        interface.extend([0, 0, 0, 0, 4, 0]);
        if let Some(resolution) = resolution {
            interface.extend([9, 0, 1, 0, resolution, 0, 0, 0]);
        }
        let mut packet = vec![0; 4];
        packet.extend(u32::try_from(units >> 32).unwrap().to_le_bytes());
        packet.extend(u32::try_from(units & 0xffff_ffff).unwrap().to_le_bytes());
        packet.extend([5, 0, 0, 0, 90, 0, 0, 0]);
        packet.extend(*b"bytes\0\0\0");
        let remark = block(5, b"who ");
        [
            block(0x0a0d_0d0a, &section),
            block(1, &interface),
            remark,
            block(6, &packet),
        ]
        .concat()
    }

    fn packets(bytes: &[u8]) -> Result<(Vec<Packet>, bool)> {
        let mut capture = Capture::open(bytes)?;
        let mut found = Vec::new();
        while let Some(packet) = capture.next_packet()? {
            found.push(packet);
        }
        Ok((found, capture.is_cut()))
    }

    fn times(bytes: &[u8]) -> Vec<i64> {
        packets(bytes)
            .unwrap()
            .0
            .iter()
            .map(|it| it.at_ns.0)
            .collect()
    }

    #[test]
    fn both_byte_orders_and_both_units_of_the_old_format_are_read() {
        for (mark, at_ns) in [
            ([0xd4, 0xc3, 0xb2, 0xa1], 3_000_007_000),
            ([0xa1, 0xb2, 0xc3, 0xd4], 3_000_007_000),
            ([0x4d, 0x3c, 0xb2, 0xa1], 3_000_000_007),
            ([0xa1, 0xb2, 0x3c, 0x4d], 3_000_000_007),
        ] {
            let (found, cut) = packets(&old(mark, 1, &[(3, 7, b"abc"), (4, 0, b"")])).unwrap();
            assert_eq!(
                (found[0].at_ns.0, found[0].bytes.as_slice()),
                (at_ns, &b"abc"[..])
            );
            assert_eq!(
                (found.len(), found[0].link, cut),
                (2, Link::Ethernet, false)
            );
        }
    }

    #[test]
    fn times_of_the_new_format_have_the_unit_of_their_interface() {
        assert_eq!(times(&new(101, None, 3_000_007)), [3_000_007_000]);
        assert_eq!(times(&new(101, Some(9), 3_000_000_007)), [3_000_000_007]);
        assert_eq!(times(&new(101, Some(0x81), 7)), [3_500_000_000]);
        let (found, _) = packets(&new(113, None, 0)).unwrap();
        assert_eq!(
            (found[0].link, found[0].bytes.as_slice()),
            (Link::Cooked, &b"bytes"[..])
        );
    }

    #[test]
    fn a_file_that_is_cut_gives_its_whole_packets_and_says_so() {
        let whole = old(
            [0xd4, 0xc3, 0xb2, 0xa1],
            1,
            &[(1, 0, b"abc"), (2, 0, b"def")],
        );
        for length in 24 + 19 + 1..whole.len() {
            let (found, cut) = packets(&whole[..length]).unwrap();
            assert_eq!((found.len(), cut), (1, true), "{length}");
        }
        let whole = new(1, None, 5);
        let (found, cut) = packets(&whole[..whole.len() - 3]).unwrap();
        assert_eq!((found.len(), cut), (0, true));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_refused_with_the_reason() {
        let said = |bytes: &[u8]| format!("{:#}", packets(bytes).unwrap_err());
        assert!(said(b"GET / HTTP/1.1").contains("wanted a pcap or pcapng file"));
        assert!(said(b"").contains("wanted a pcap or pcapng file"));
        let radio = old([0xd4, 0xc3, 0xb2, 0xa1], 127, &[]);
        assert!(
            said(&radio).contains("link type 127; wanted Ethernet"),
            "{}",
            said(&radio)
        );
        assert!(said(&new(127, None, 0)).contains("link type 127; wanted Ethernet"));
        let mut long = old([0xd4, 0xc3, 0xb2, 0xa1], 1, &[(1, 0, b"abc")]);
        long[24 + 8..24 + 12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(said(&long).contains("a packet of 4294967295 bytes; the file is damaged"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            which in 0_u8..3,
        ) {
            let mut file = match which {
                0 => bytes,
                1 => old([0xd4, 0xc3, 0xb2, 0xa1], 1, &[(1, 0, &bytes)]),
                _ => new(1, Some(6), 77),
            };
            for (place, value) in flips {
                if !file.is_empty() {
                    let at = place.index(file.len());
                    file[at] = value;
                }
            }
            let _ = packets(&file);
        }
    }
}
