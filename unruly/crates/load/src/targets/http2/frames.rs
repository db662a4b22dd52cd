//! Frames of HTTP/2 (RFC 9113, sections 4 and 6).

/// Bytes before each frame.
pub(super) const HEAD_BYTES: usize = 9;

/// The first bytes of a client.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Largest frame that nobody has said otherwise of.
pub(super) const FRAME_BYTES: usize = 16_384;

/// Largest frame that anybody can allow.
pub(super) const FRAME_BYTES_MAX: usize = (1 << 24) - 1;

/// The window of a stream or a connection that nobody has said otherwise of.
pub(super) const WINDOW_BYTES: i64 = 65_535;

/// The largest window.
pub(super) const WINDOW_BYTES_MAX: i64 = (1 << 31) - 1;

/// Kinds of frames.
pub(super) mod kind {
    pub(in super::super) const DATA: u8 = 0;
    pub(in super::super) const HEADERS: u8 = 1;
    pub(in super::super) const RESET: u8 = 3;
    pub(in super::super) const SETTINGS: u8 = 4;
    pub(in super::super) const PUSH: u8 = 5;
    pub(in super::super) const PING: u8 = 6;
    pub(in super::super) const FAREWELL: u8 = 7;
    pub(in super::super) const WINDOW: u8 = 8;
    pub(in super::super) const CONTINUATION: u8 = 9;
}

/// Flags of frames.
pub(super) mod flag {
    /// The reply to SETTINGS or PING.
    pub(in super::super) const REPLY: u8 = 0x1;
    pub(in super::super) const END_STREAM: u8 = 0x1;
    pub(in super::super) const END_HEADERS: u8 = 0x4;
    pub(in super::super) const PADDED: u8 = 0x8;
    pub(in super::super) const PRIORITY: u8 = 0x20;
}

/// Settings.
pub(super) mod setting {
    pub(in super::super) const TABLE_BYTES: u16 = 1;
    pub(in super::super) const PUSH: u16 = 2;
    pub(in super::super) const STREAMS_MAX: u16 = 3;
    pub(in super::super) const WINDOW_BYTES: u16 = 4;
    pub(in super::super) const FRAME_BYTES: u16 = 5;
}

/// Error codes.
pub(super) mod code {
    pub(in super::super) const NONE: u32 = 0;
    pub(in super::super) const PROTOCOL: u32 = 1;
    pub(in super::super) const CANCEL: u32 = 8;
}

/// The name of an error code.
pub(super) fn name_of(code: u32) -> String {
    const NAMES: [&str; 14] = [
        "NO_ERROR",
        "PROTOCOL_ERROR",
        "INTERNAL_ERROR",
        "FLOW_CONTROL_ERROR",
        "SETTINGS_TIMEOUT",
        "STREAM_CLOSED",
        "FRAME_SIZE_ERROR",
        "REFUSED_STREAM",
        "CANCEL",
        "COMPRESSION_ERROR",
        "CONNECT_ERROR",
        "ENHANCE_YOUR_CALM",
        "INADEQUATE_SECURITY",
        "HTTP_1_1_REQUIRED",
    ];
    let known = usize::try_from(code).ok().and_then(|it| NAMES.get(it));
    known.map_or_else(|| format!("error {code}"), |name| (*name).to_owned())
}

/// A frame that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: &'a [u8],
}

/// The frame at the start of the input; `None` when more bytes are needed.
///
/// # Errors
///
/// When it is larger than we allow: its length.
pub(super) fn frame(input: &[u8]) -> Result<Option<Frame<'_>>, usize> {
    let Some((head, rest)) = input.split_first_chunk::<HEAD_BYTES>() else {
        return Ok(None);
    };
    let [a, b, c, kind, flags, stream @ ..] = *head;
    let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
    if length > FRAME_BYTES {
        return Err(length);
    }
    Ok(rest.get(..length).map(|payload| Frame {
        kind,
        flags,
        stream: number(stream),
        payload,
    }))
}

/// A number of 31 bits.
pub(super) const fn number(bytes: [u8; 4]) -> u32 {
    u32::from_be_bytes(bytes) & 0x7fff_ffff
}

impl<'a> Frame<'a> {
    pub(super) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The payload without its padding and priority; `None` if there is less than these say.
    pub(super) fn content(&self) -> Option<&'a [u8]> {
        let mut content = self.payload;
        if self.has(flag::PADDED) && self.kind != kind::CONTINUATION {
            let (bytes, rest) = content.split_first()?;
            content = rest.get(..rest.len().checked_sub(usize::from(*bytes))?)?;
        }
        if self.kind == kind::HEADERS && self.has(flag::PRIORITY) {
            content = content.get(5..)?;
        }
        Some(content)
    }

    /// The settings of the payload; `None` if it is none.
    pub(super) fn settings(&self) -> Option<impl Iterator<Item = (u16, u32)> + use<'a>> {
        let (settings, rest) = self.payload.as_chunks::<6>();
        let one = |[a, b, value @ ..]: &[u8; 6]| {
            (u16::from_be_bytes([*a, *b]), u32::from_be_bytes(*value))
        };
        (rest.is_empty() && self.stream == 0).then(|| settings.iter().map(one))
    }
}

/// Appends a frame.
pub(super) fn put(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let [_, length @ ..] = length.to_be_bytes();
    out.extend_from_slice(&length);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Appends the fields of a request, in as many frames as it takes.
pub(super) fn put_headers(
    out: &mut Vec<u8>,
    stream: u32,
    block: &[u8],
    ends: bool,
    frame_bytes: usize,
) {
    let mut flags = if ends { flag::END_STREAM } else { 0 };
    let mut kind = kind::HEADERS;
    let mut rest = block;
    loop {
        let (own, after) = rest.split_at(rest.len().min(frame_bytes));
        if after.is_empty() {
            flags |= flag::END_HEADERS;
        }
        put(out, kind, flags, stream, own);
        if after.is_empty() {
            return;
        }
        (kind, flags, rest) = (kind::CONTINUATION, 0, after);
    }
}

/// Appends a frame that opens a window further.
pub(super) fn put_window(out: &mut Vec<u8>, stream: u32, bytes: i64) {
    let bytes = u32::try_from(bytes).unwrap_or(0);
    put(out, kind::WINDOW, 0, stream, &bytes.to_be_bytes());
}

/// Appends a frame that ends a stream.
pub(super) fn put_reset(out: &mut Vec<u8>, stream: u32, code: u32) {
    put(out, kind::RESET, 0, stream, &code.to_be_bytes());
}

/// Appends our settings.
pub(super) fn put_settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    let pairs = settings.iter().flat_map(|(name, value)| {
        let [a, b] = name.to_be_bytes();
        let [c, d, e, f] = value.to_be_bytes();
        [a, b, c, d, e, f]
    });
    put(out, kind::SETTINGS, 0, 0, &pairs.collect::<Vec<u8>>());
}
