//! The messages of OTLP over HTTP, as far as they are used here: who made a span, and when.
//!
//! Attributes of spans are never decoded, and of a resource only its name is kept: command lines,
//! statements and addresses hold passwords. Source: opentelemetry-proto 1.7, `trace.proto`, and the
//! JSON form of the OTLP specification.

use prost::Message;
use serde::{Deserialize, Deserializer};

/// Spans that a service exports together.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Export {
    #[prost(message, repeated, tag = "1")]
    pub(super) resource_spans: Vec<ResourceSpans>,
}

/// Spans of one service.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub(super) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(super) scope_spans: Vec<ScopeSpans>,
}

/// A service.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub(super) struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub(super) attributes: Vec<Attribute>,
}

/// Something that a service says of itself.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub(super) struct Attribute {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(message, optional, tag = "2")]
    pub(super) value: Option<Text>,
}

/// A value, if it is a text.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Text {
    #[prost(string, optional, tag = "1")]
    pub(super) string_value: Option<String>,
}

/// Spans of one library of a service.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub(super) struct ScopeSpans {
    #[prost(message, repeated, tag = "2")]
    pub(super) spans: Vec<WireSpan>,
}

/// A span.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WireSpan {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(deserialize_with = "hexadecimal")]
    pub(super) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    #[serde(deserialize_with = "hexadecimal")]
    pub(super) span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    #[serde(deserialize_with = "hexadecimal")]
    pub(super) parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub(super) name: String,
    #[prost(int32, tag = "6")]
    pub(super) kind: i32,
    #[prost(fixed64, tag = "7")]
    #[serde(deserialize_with = "nanoseconds")]
    pub(super) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    #[serde(deserialize_with = "nanoseconds")]
    pub(super) end_time_unix_nano: u64,
    #[prost(message, optional, tag = "15")]
    pub(super) status: Option<Status>,
}

/// How a span ended.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    #[prost(int32, tag = "3")]
    pub(super) code: i32,
}

impl Resource {
    /// The name of the service.
    pub(super) fn service(&self) -> Option<&str> {
        let name = self.attributes.iter().find(|it| it.key == "service.name")?;
        name.value.as_ref()?.string_value.as_deref()
    }
}

/// An id, of which the JSON form is hexadecimal digits.
fn hexadecimal<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(from)?;
    let digits = text.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok()?;
        // the parser would take a sign for a digit
        let digits = pair.len() == 2 && pair.bytes().all(|it| it.is_ascii_hexdigit());
        digits.then(|| u8::from_str_radix(pair, 16).ok())?
    });
    digits
        .collect::<Option<_>>()
        .ok_or_else(|| serde::de::Error::custom(format!("{text:?} is no id of hexadecimal digits")))
}

/// A time, of which the JSON form is a number or, as it may not fit a double, a text.
fn nanoseconds<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Number(u64),
        Text(String),
    }
    match Form::deserialize(from)? {
        Form::Number(number) => Ok(number),
        Form::Text(text) => text.parse().map_err(serde::de::Error::custom),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"{"resourceSpans": [{
        "resource": {"attributes": [
            {"key": "process.command_line", "value": {"stringValue": "app --password=s3cr3t"}},
            {"key": "service.name", "value": {"stringValue": "shop"}},
            {"key": "process.pid", "value": {"intValue": "7"}}]},
        "scopeSpans": [{"scope": {"name": "jdbc"}, "spans": [{
            "traceId": "00112233445566778899aabbccddeeff", "spanId": "0102030405060708",
            "name": "SELECT", "kind": 3, "startTimeUnixNano": "1700000000000000001",
            "endTimeUnixNano": 1700000000000000009, "status": {"code": 2},
            "attributes": [{"key": "db.statement", "value": {"stringValue": "x"}}]}]}]}]}"#;

    #[test]
    fn both_forms_of_a_message_give_the_same_spans() {
        let of_json: Export = serde_json::from_str(JSON).unwrap();
        let resource = &of_json.resource_spans[0];
        assert_eq!(resource.resource.as_ref().unwrap().service(), Some("shop"));
        let span = &resource.scope_spans[0].spans[0];
        assert_eq!(span.trace_id[..3], [0x00, 0x11, 0x22]);
        assert_eq!((span.kind, span.status.as_ref().unwrap().code), (3, 2));
        assert_eq!(span.start_time_unix_nano, 1_700_000_000_000_000_001);
        assert_eq!(span.parent_span_id, Vec::<u8>::new());
        let of_bytes = Export::decode(of_json.encode_to_vec().as_slice()).unwrap();
        assert_eq!(of_bytes, of_json);
    }

    #[test]
    fn an_id_that_is_none_is_refused() {
        for id in ["0", "zz", "+1", "é"] {
            let text = JSON.replace("0102030405060708", id);
            assert!(serde_json::from_str::<Export>(&text).is_err(), "{id}");
        }
    }
}
