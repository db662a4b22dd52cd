//! Header fields as HTTP/2 compresses them: HPACK (RFC 7541).
//!
//! Requests of a load generator are alike. A field that the request before had too becomes one of the
//! connection's table, and a byte from then on. No field is ever dropped from that table: a full one
//! takes no more. Responses are read with all that the standard allows.

mod huffman;
mod table;

use super::fields::Fields;
use table::{Added, OVERHEAD, STATIC};

/// The size of a table that nobody has said otherwise of.
pub(super) const TABLE_BYTES: usize = 4_096;

/// Most bytes of the fields of a message: a few bytes can name a large field again and again.
const FIELDS_BYTES_MAX: usize = 1 << 20;

/// Reads the fields of a peer.
#[derive(Debug)]
pub(super) struct Decoder {
    added: Added,
    name: Vec<u8>,
    value: Vec<u8>,
}

/// Why fields cannot be read. The connection cannot be used further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Damaged;

impl Decoder {
    pub(super) fn new() -> Self {
        let mut added = Added::default();
        added.resize(TABLE_BYTES);
        Self {
            added,
            name: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Appends the fields of a block to `out`.
    ///
    /// # Errors
    ///
    /// When the block is no list of fields, or a list of more than a mebibyte.
    pub(super) fn decode(&mut self, mut block: &[u8], out: &mut Fields) -> Result<(), Damaged> {
        while let Some(&first) = block.first() {
            match first {
                0x80.. => {
                    let number = integer(&mut block, 7).ok_or(Damaged)?;
                    let (name, value) = self.added.field(number).ok_or(Damaged)?;
                    out.push(name, value);
                }
                0x20..=0x3f => {
                    let bytes = integer(&mut block, 5).ok_or(Damaged)?;
                    if bytes > TABLE_BYTES {
                        return Err(Damaged);
                    }
                    self.added.resize(bytes);
                }
                _ => {
                    let adds = first & 0x40 != 0;
                    self.literal(&mut block, if adds { 6 } else { 4 })?;
                    out.push(&self.name, &self.value);
                    if adds {
                        self.added.add(&self.name, &self.value);
                    }
                }
            }
            if out.len() > FIELDS_BYTES_MAX {
                return Err(Damaged);
            }
        }
        Ok(())
    }

    /// Takes a field whose value is written out, and its name maybe too.
    fn literal(&mut self, block: &mut &[u8], bits: u32) -> Result<(), Damaged> {
        let number = integer(block, bits).ok_or(Damaged)?;
        self.name.clear();
        if number == 0 {
            text(block, &mut self.name).ok_or(Damaged)?;
        } else {
            let (name, _) = self.added.field(number).ok_or(Damaged)?;
            self.name.extend_from_slice(name);
        }
        self.value.clear();
        text(block, &mut self.value).ok_or(Damaged)
    }
}

/// Takes a number whose first byte has it in its low `bits`.
fn integer(block: &mut &[u8], bits: u32) -> Option<usize> {
    let most = (1_usize << bits) - 1;
    let (first, rest) = block.split_first()?;
    *block = rest;
    let mut found = usize::from(*first) & most;
    if found < most {
        return Some(found);
    }
    for shift in [0, 7, 14, 21] {
        let (byte, rest) = block.split_first()?;
        *block = rest;
        found += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(found);
        }
    }
    None
}

/// Appends a text that is written out.
fn text(block: &mut &[u8], out: &mut Vec<u8>) -> Option<()> {
    let coded = block.first()? & 0x80 != 0;
    let bytes = integer(block, 7)?;
    let (own, rest) = block.split_at_checked(bytes)?;
    *block = rest;
    if coded {
        return huffman::decode(own, out).then_some(());
    }
    out.extend_from_slice(own);
    Some(())
}

/// A field of a connection's table: its name and its value.
type Own = (Box<[u8]>, Box<[u8]>);

/// Writes the fields of requests.
#[derive(Debug)]
pub(super) struct Encoder {
    /// The fields that the connection's table has, in the order in which they were added.
    added: Vec<Own>,
    bytes: usize,
    bytes_max: usize,
    /// The peer's table is smaller than usual, and the next block says so.
    shrinks: bool,
    /// The fields of the request before, and their block.
    last: Fields,
    block: Vec<u8>,
    /// The block is also that of the next request with these fields.
    settled: bool,
}

impl Encoder {
    pub(super) fn new() -> Self {
        Self {
            added: Vec::new(),
            bytes: 0,
            bytes_max: TABLE_BYTES,
            shrinks: false,
            last: Fields::default(),
            block: Vec::new(),
            settled: false,
        }
    }

    /// Takes the most bytes that the peer's table may have. One that is smaller than usual stays empty.
    pub(super) fn limit(&mut self, bytes: usize) {
        if bytes < self.bytes_max {
            *self = Self {
                bytes_max: 0,
                shrinks: true,
                ..Self::new()
            };
        }
    }

    /// The block of these fields.
    pub(super) fn encode(&mut self, fields: &Fields) -> &[u8] {
        let again = self.last == *fields;
        if again && self.settled {
            return &self.block;
        }
        let mut block = std::mem::take(&mut self.block);
        block.clear();
        self.settled = again && !self.shrinks;
        if std::mem::take(&mut self.shrinks) {
            put_integer(&mut block, 0x20, 5, 0);
        }
        for (name, value) in fields.iter() {
            self.put(name, value, &mut block);
        }
        self.last.clone_from(fields);
        self.block = block;
        &self.block
    }

    /// Appends a field.
    fn put(&mut self, name: &[u8], value: &[u8], block: &mut Vec<u8>) {
        let own = self
            .added
            .iter()
            .position(|(its, other)| **its == *name && **other == *value);
        if let Some(place) = own {
            put_integer(block, 0x80, 7, STATIC.len() + self.added.len() - place);
            return;
        }
        let named = |it: &&(usize, &(&str, &str))| it.1.0.as_bytes() == name;
        let mut known = (1..).zip(&STATIC);
        let first = known
            .by_ref()
            .find(|it| named(&it))
            .map(|(number, _)| number);
        let whole = (1..)
            .zip(&STATIC)
            .find(|it| named(&it) && it.1.1.as_bytes() == value);
        if let Some((number, _)) = whole {
            put_integer(block, 0x80, 7, number);
            return;
        }
        let bytes = name.len() + value.len() + OVERHEAD;
        let adds = self.bytes + bytes <= self.bytes_max && self.last.has(name, value);
        let (kind, bits) = if adds { (0x40, 6) } else { (0, 4) };
        put_integer(block, kind, bits, first.unwrap_or(0));
        if first.is_none() {
            put_text(block, name);
        }
        put_text(block, value);
        if adds {
            self.bytes += bytes;
            self.added.push((name.into(), value.into()));
            self.settled = false;
        }
    }
}

/// Appends a number, with its beginning in the low `bits` of a byte of this kind.
fn put_integer(block: &mut Vec<u8>, kind: u8, bits: u32, value: usize) {
    let most = (1_u8 << bits) - 1;
    match u8::try_from(value) {
        Ok(value) if value < most => block.push(kind | value),
        _ => {
            block.push(kind | most);
            let mut rest = value - usize::from(most);
            while rest >= 0x80 {
                block.push(low(rest) | 0x80);
                rest >>= 7;
            }
            block.push(low(rest));
        }
    }
}

/// The low seven bits of a number.
const fn low(value: usize) -> u8 {
    value.to_le_bytes()[0] & 0x7f
}

/// Appends a text as it is.
fn put_text(block: &mut Vec<u8>, text: &[u8]) {
    put_integer(block, 0, 7, text.len());
    block.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Fields {
        let mut found = Fields::default();
        for (name, value) in pairs {
            found.push(name.as_bytes(), value.as_bytes());
        }
        found
    }

    fn decoded(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, Damaged> {
        let mut found = Fields::default();
        decoder.decode(block, &mut found).map(|()| found)
    }

    /// The example of appendix C.6: three responses with Huffman codes and a table of 256 bytes.
    #[test]
    fn the_responses_of_the_standard_are_read() {
        let mut decoder = Decoder::new();
        decoder.added.resize(256);
        let date = "Mon, 21 Oct 2013 20:13:21 GMT";
        let place = "https://www.example.com";
        let common = [
            ("cache-control", "private"),
            ("date", date),
            ("location", place),
        ];
        let first = [
            0x48, 0x82, 0x64, 0x02, 0x58, 0x85, 0xae, 0xc3, 0x77, 0x1a, 0x4b, 0x61, 0x96, 0xd0,
            0x7a, 0xbe, 0x94, 0x10, 0x54, 0xd4, 0x44, 0xa8, 0x20, 0x05, 0x95, 0x04, 0x0b, 0x81,
            0x66, 0xe0, 0x82, 0xa6, 0x2d, 0x1b, 0xff, 0x6e, 0x91, 0x9d, 0x29, 0xad, 0x17, 0x18,
            0x63, 0xc7, 0x8f, 0x0b, 0x97, 0xc8, 0xe9, 0xae, 0x82, 0xae, 0x43, 0xd3,
        ];
        let wanted = [&[(":status", "302")][..], &common].concat();
        assert_eq!(decoded(&mut decoder, &first), Ok(fields(&wanted)));
        let second = [0x48, 0x83, 0x64, 0x0e, 0xff, 0xc1, 0xc0, 0xbf];
        let wanted = [&[(":status", "307")][..], &common].concat();
        assert_eq!(decoded(&mut decoder, &second), Ok(fields(&wanted)));
        assert_eq!(
            decoder.added.field(62),
            Some((&b":status"[..], &b"307"[..]))
        );
        // The oldest one has made room.
        assert_eq!(decoder.added.field(66), None);
    }

    #[test]
    fn what_is_no_block_is_refused() {
        for wrong in [
            &[0x80][..],                        // the field 0
            &[0xbe],                            // a field that nobody has added
            &[0x3f, 0xff, 0xff, 0xff, 0x7f],    // a table that is too large
            &[0x7f, 0xff, 0xff, 0xff, 0xff, 1], // a number without an end
            &[0x00, 0x05, b'a'],                // a text that is cut
            &[0x00, 0x81, 0x00, 0x00],          // a code that is none
        ] {
            assert_eq!(
                decoded(&mut Decoder::new(), wrong),
                Err(Damaged),
                "{wrong:?}"
            );
        }
    }

    #[test]
    fn a_few_bytes_that_name_much_are_refused() {
        let mut decoder = Decoder::new();
        let mut block = vec![0x40, 1, b'a'];
        put_text(&mut block, &[b'x'; 3_000]);
        block.resize(block.len() + 1_000, 0xbe);
        assert_eq!(decoded(&mut decoder, &block), Err(Damaged));
    }

    #[test]
    fn a_field_of_two_requests_is_a_byte_of_the_third() {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
        let own = fields(&[(":method", "GET"), (":path", "/a"), ("x-own", "value")]);
        let lengths: Vec<usize> = (0..4)
            .map(|_| {
                let block = encoder.encode(&own).to_vec();
                assert_eq!(decoded(&mut decoder, &block), Ok(own.clone()));
                block.len()
            })
            .collect();
        assert_eq!(lengths[2..], [3, 3]);
        assert!(lengths[0] > 10 && lengths[1] > 10, "{lengths:?}");
    }

    #[test]
    fn a_peer_without_a_table_is_told_so_once() {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
        let own = fields(&[("x-own", "value")]);
        for _ in 0..3 {
            encoder.encode(&own);
        }
        encoder.limit(100);
        for first in [0x20, 0, 0] {
            let block = encoder.encode(&own).to_vec();
            assert_eq!(block[0], first);
            assert_eq!(decoded(&mut decoder, &block), Ok(own.clone()));
        }
    }

    proptest! {
        #[test]
        fn fields_are_read_as_they_were_written(
            requests in prop::collection::vec(
                prop::collection::vec(("[a-c:]{0,3}", prop_oneof!["[x-z]{0,2}", ".{0,900}"]), 0..8),
                1..30,
            ),
            limited in any::<prop::sample::Index>(), huffman in any::<bool>(),
        ) {
            let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
            let limited = limited.index(2 * requests.len());
            for (place, pairs) in requests.iter().enumerate() {
                if place == limited {
                    encoder.limit(0);
                }
                let pairs: Vec<(&str, &str)> =
                    pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
                let own = fields(&pairs);
                let block = encoder.encode(&own).to_vec();
                prop_assert_eq!(decoded(&mut decoder, &block), Ok(own));
            }
            if huffman {
                let text = huffman::tests::encode(b"value");
                let mut block = vec![0x00, 1, b'a'];
                put_integer(&mut block, 0x80, 7, text.len());
                block.extend_from_slice(&text);
                prop_assert_eq!(decoded(&mut decoder, &block), Ok(fields(&[("a", "value")])));
            }
        }

        #[test]
        fn any_block_is_read_or_refused(block in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decoded(&mut Decoder::new(), &block);
        }
    }
}
