//! Packets of MySQL: their frames, the commands in them, the login, and what errors say.

use bytes::{Buf as _, BufMut as _, BytesMut};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use unruly_trace::ErrorKind;

use super::super::super::template::Parameter;
use crate::target::{ProtocolError, REPLY_BYTES_MAX};

pub(super) const NATIVE: &[u8] = b"mysql_native_password";
pub(super) const CACHING: &[u8] = b"caching_sha2_password";

pub(super) const QUERY: u8 = 0x03;
pub(super) const PREPARE: u8 = 0x16;
pub(super) const EXECUTE: u8 = 0x17;

/// The kinds of a parameter: a whole number, one that is too large for a sign, and text.
pub(super) const WHOLE: [u8; 2] = [0x08, 0];
pub(super) const LARGE: [u8; 2] = [0x08, 0x80];
pub(super) const TEXT: [u8; 2] = [0xfd, 0];

/// Longest packet: a longer one is cut into several.
pub(super) const PACKET_BYTES_MAX: usize = 0xff_ffff;

/// Appends a packet.
pub(super) fn packet(out: &mut BytesMut, sequence: u8, body: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    out.put_u32_le(0);
    body(out);
    let length = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
    let [a, b, c, _] = length.to_le_bytes();
    out[start..start + 4].copy_from_slice(&[a, b, c, sequence]);
}

pub(super) fn query(out: &mut BytesMut, text: &str) {
    packet(out, 0, |out| {
        out.put_u8(QUERY);
        out.put_slice(text.as_bytes());
    });
}

pub(super) fn execute(out: &mut BytesMut, id: u32, values: &[Parameter]) {
    packet(out, 0, |out| {
        out.put_u8(EXECUTE);
        out.put_u32_le(id);
        out.put_u8(0);
        out.put_u32_le(1);
        if values.is_empty() {
            return;
        }
        // No value is null.
        out.put_bytes(0, values.len().div_ceil(8));
        out.put_u8(1);
        for value in values {
            out.put_slice(match whole(value) {
                Some(number) if i64::try_from(number).is_ok() => &WHOLE,
                Some(_) => &LARGE,
                None => &TEXT,
            });
        }
        for value in values {
            match whole(value) {
                Some(number) => out.put_u64_le(number),
                None => put_text(out, &value.value),
            }
        }
    });
}

/// The number that a value is, where it is one of ours and not of a data file.
pub(super) fn whole(value: &Parameter) -> Option<u64> {
    let text = value.is_number.then_some(value.value.as_slice())?;
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Appends a text with its length before it.
pub(super) fn put_text(out: &mut BytesMut, text: &[u8]) {
    match u32::try_from(text.len()).unwrap_or(u32::MAX) {
        length @ 0..=250 => out.put_u8(u8::try_from(length).unwrap_or(0)),
        length @ 251..=0xffff => {
            out.put_u8(0xfc);
            out.put_u16_le(u16::try_from(length).unwrap_or(0));
        }
        length => {
            out.put_u8(0xfd);
            out.put_slice(&length.to_le_bytes()[..3]);
        }
    }
    out.put_slice(text);
}

/// The nonce and the login plugin of a server's first word, and whether the server speaks TLS.
pub(super) fn introduction(body: &[u8]) -> Option<(Vec<u8>, Vec<u8>, bool)> {
    let rest = body.strip_prefix(&[10])?;
    let version = rest.iter().position(|byte| *byte == 0)?;
    // The number of the connection stands between.
    let rest = rest.get(version + 1 + 4..)?;
    let (first, rest) = rest.split_first_chunk::<8>()?;
    let speaks_tls = u16::from_le_bytes([*rest.get(1)?, *rest.get(2)?]) & 0x800 != 0;
    // A filler, flags, the character set, the status, more flags, a length and ten zeros.
    let rest = rest.get(1 + 2 + 1 + 2 + 2 + 1 + 10..)?;
    let second = rest.get(..12)?;
    let plugin = rest.get(13..).unwrap_or_default();
    let plugin = plugin.split(|byte| *byte == 0).next().unwrap_or_default();
    Some(([first, second].concat(), plugin.to_vec(), speaks_tls))
}

/// What proves to a plugin that we know the password; `None` if we do not know the plugin.
pub(super) fn proof(plugin: &[u8], password: Option<&str>, nonce: &[u8]) -> Option<Vec<u8>> {
    let password = password.unwrap_or_default().as_bytes();
    let known = [NATIVE, CACHING].contains(&plugin);
    if password.is_empty() {
        return known.then(Vec::new);
    }
    let (one, mixed) = match plugin {
        NATIVE => {
            let hash = |data: &[u8]| digest(&SHA1_FOR_LEGACY_USE_ONLY, data);
            let one = hash(password);
            (one, hash(&[nonce, hash(one.as_ref()).as_ref()].concat()))
        }
        CACHING => {
            let hash = |data: &[u8]| digest(&SHA256, data);
            let one = hash(password);
            (one, hash(&[hash(one.as_ref()).as_ref(), nonce].concat()))
        }
        _ => return None,
    };
    let pairs = one.as_ref().iter().zip(mixed.as_ref());
    Some(pairs.map(|(a, b)| a ^ b).collect())
}

/// True if a packet ends a list.
pub(super) fn is_end(body: &[u8]) -> bool {
    body.first() == Some(&0xfe) && body.len() < 9
}

pub(super) fn status_of_end(body: &[u8]) -> Option<u16> {
    body.get(3..)?.try_get_u16_le().ok()
}

pub(super) fn status_of_ok(body: &[u8]) -> Option<u16> {
    let mut rest = body.get(1..)?;
    // The counts of rows and the last number that the server gave.
    for _ in 0..2 {
        let more = match rest.try_get_u8().ok()? {
            0xfc => 2,
            0xfd => 3,
            0xfe => 8,
            _ => 0,
        };
        rest = rest.get(more..)?;
    }
    rest.try_get_u16_le().ok()
}

pub(super) struct ServerError<'a> {
    pub(super) code: u16,
    pub(super) message: &'a [u8],
}

impl<'a> ServerError<'a> {
    /// The error of a packet. Its SQL state is left out.
    pub(super) fn of(body: &'a [u8]) -> Self {
        let mut rest = body.get(1..).unwrap_or_default();
        let code = rest.try_get_u16_le().unwrap_or(0);
        let message = match rest.first() {
            Some(b'#') => rest.get(6..).unwrap_or_default(),
            _ => rest,
        };
        Self { code, message }
    }

    pub(super) fn kind(&self) -> ErrorKind {
        match self.code {
            1044 | 1045 | 1142 | 1143 | 1227 | 1370 | 1698 => ErrorKind::Denied,
            1040 | 1053 | 1203 | 1226 | 1927 | 4031 => ErrorKind::Unavailable,
            _ => ErrorKind::Store,
        }
    }

    /// True if the server closes the connection after it: it shuts down, ends it on request, or got a
    /// message that it does not take.
    pub(super) const fn ends_connection(&self) -> bool {
        matches!(self.code, 1053 | 1153 | 1158..=1161 | 1184 | 1927 | 4031)
    }

    pub(super) fn words(&self) -> Vec<u8> {
        let mut words = format!("ERROR {}: ", self.code).into_bytes();
        words.extend_from_slice(&self.message[..self.message.len().min(super::super::WORDS_BYTES)]);
        words
    }
}

/// The number of a packet, its body, and its length with the head.
pub(super) type Packet<'a> = (u8, &'a [u8], usize);

/// The packet at the start of the input; `None` when more bytes are needed.
pub(super) fn packet_of(input: &[u8]) -> Result<Option<Packet<'_>>, ProtocolError> {
    let Some((&[a, b, c, sequence], _)) = input.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let length = usize::try_from(u32::from_le_bytes([a, b, c, 0])).unwrap_or(PACKET_BYTES_MAX);
    if length >= PACKET_BYTES_MAX.min(REPLY_BYTES_MAX) {
        return Err(ProtocolError::reply(input, "a packet of MySQL below 16 MB"));
    }
    let bytes = length + 4;
    Ok(input.get(4..bytes).map(|body| (sequence, body, bytes)))
}
