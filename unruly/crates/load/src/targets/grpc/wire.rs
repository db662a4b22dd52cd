//! What a call looks like over HTTP/2: framed messages, a deadline, and a status in the trailers.

use std::fmt;

use bytes::{BufMut as _, Bytes, BytesMut};
use percent_encoding::percent_decode;
use prost::Message as _;
use prost_reflect::DynamicMessage;
use unruly_trace::{DurationNs, GRPC_STATUSES};

use super::super::http2::Response;
use super::method::Method;

/// The status of a call that has none of those that are known.
const UNKNOWN: u16 = 2;

/// What a server says of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Status {
    /// 0 to 16, as [`GRPC_STATUSES`] names them.
    pub(super) code: u16,
    pub(super) words: String,
}

impl Status {
    pub(super) const fn is_ok(&self) -> bool {
        self.code == 0
    }
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = GRPC_STATUSES.get(usize::from(self.code)).unwrap_or(&"");
        write!(formatter, "{name}")?;
        if !self.words.is_empty() {
            write!(formatter, ": {}", self.words)?;
        }
        Ok(())
    }
}

/// The status of a response: in its trailers, or in its headers where nothing else follows.
pub(super) fn status(response: &Response) -> Option<Status> {
    let trailers = response.trailers.as_ref();
    let places = trailers.into_iter().chain([&response.fields]);
    let found = places.filter_map(|map| Some((map, map.get("grpc-status")?)));
    let (map, code) = found.into_iter().next()?;
    let code = std::str::from_utf8(code)
        .ok()
        .and_then(|text| text.parse().ok());
    let code = code.filter(|code| usize::from(*code) < GRPC_STATUSES.len());
    let words = map.get("grpc-message");
    let words = words.map(|text| percent_decode(text).decode_utf8_lossy().into_owned());
    Some(Status {
        code: code.unwrap_or(UNKNOWN),
        words: words.unwrap_or_default(),
    })
}

/// The value of `grpc-timeout`: at most eight digits, and a unit.
pub(super) fn deadline(timeout_ns: DurationNs) -> String {
    let us = (timeout_ns.0.max(0) / 1_000).max(1);
    match us {
        us if us < 100_000_000 => format!("{us}u"),
        us => format!("{}m", (us / 1_000).min(99_999_999)),
    }
}

/// One message as a body carries it, uncompressed.
pub(super) fn frame(message: &[u8], out: &mut BytesMut) {
    out.put_u8(0);
    out.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    out.put_slice(message);
}

/// The messages of a body of JSON: one, or those of an array where the method takes a stream.
///
/// # Errors
///
/// When it is no JSON, or none of the method's messages: why, in words.
pub(super) fn frames(method: &Method, json: &[u8]) -> Result<Bytes, String> {
    let mut out = BytesMut::new();
    for message in messages(method, json)? {
        frame(&message.encode_to_vec(), &mut out);
    }
    Ok(out.freeze())
}

fn messages(method: &Method, json: &[u8]) -> Result<Vec<DynamicMessage>, String> {
    let of = |input: &str| {
        let mut read = serde_json::Deserializer::from_str(input);
        let message = DynamicMessage::deserialize(method.input(), &mut read)?;
        read.end()?;
        Ok(message)
    };
    let wrong = |error: serde_json::Error| format!("the message is wrong: {error}");
    let text = std::str::from_utf8(json).map_err(|_| "the message is no text".to_owned())?;
    if !method.takes_stream() || !text.trim_start().starts_with('[') {
        return of(text).map(|message| vec![message]).map_err(wrong);
    }
    let all: Vec<&serde_json::value::RawValue> = serde_json::from_str(text).map_err(wrong)?;
    let all = all.into_iter().map(|one| of(one.get()));
    all.collect::<Result<_, _>>().map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::super::super::http2::Fields;
    use super::*;

    #[test]
    fn a_deadline_has_eight_digits_at_most() {
        for (timeout_ns, wanted) in [
            (DurationNs(10), "1u"),
            (DurationNs::millis(250), "250000u"),
            (DurationNs::seconds(99), "99000000u"),
            (DurationNs::seconds(100), "100000m"),
            (DurationNs::seconds(1_000_000), "99999999m"),
        ] {
            assert_eq!(deadline(timeout_ns), wanted);
        }
    }

    #[test]
    fn a_status_is_read_from_the_trailers_or_from_headers_alone() {
        let fields = |pairs: &[(&str, &str)]| {
            let mut fields = Fields::default();
            for (name, value) in pairs {
                fields.push(name.as_bytes(), value.as_bytes());
            }
            fields
        };
        let response = |headers: &[(&str, &str)], trailers: Option<&[(&str, &str)]>| Response {
            code: 200,
            fields: fields(headers),
            trailers: trailers.map(fields),
            ..Response::default()
        };
        let of_headers = response(&[("grpc-status", "14"), ("grpc-message", "try%20it")], None);
        let found = status(&of_headers).expect("there is one");
        assert_eq!(found.to_string(), "UNAVAILABLE: try it");
        let good = response(&[], Some(&[("grpc-status", "0")]));
        assert!(status(&good).expect("there is one").is_ok());
        let foreign = response(&[], Some(&[("grpc-status", "99")]));
        assert_eq!(status(&foreign).expect("there is one").code, UNKNOWN);
        assert_eq!(status(&response(&[], None)), None);
    }
}
