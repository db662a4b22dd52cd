//! What only clients of an HTTP server have: the request, connections that are opened as they are
//! needed, and the status codes that count as success.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::codes::Codes;
use crate::scenario::Scenario;
use crate::secret::is_secret_header;
use crate::url::{PASSWORD_PLACE, Url};

/// How an HTTP server is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Http {
    /// Connections of all clients together, at most.
    pub connections: u32,
    /// Status codes that count as success.
    pub expect: Codes,
    /// The method of every request. Without it a read is a `GET`, and a write a `PUT`.
    #[serde(default)]
    pub method: Option<Method>,
    /// Header lines of every request.
    #[serde(default)]
    pub headers: Headers,
    /// The body of every request.
    #[serde(default)]
    pub body: Option<String>,
    /// The text that a language model is asked.
    #[serde(default)]
    pub prompt: Option<String>,
    /// The path of a `.proto` file that describes a gRPC service.
    #[serde(default)]
    pub proto: Option<String>,
    /// Each client keeps the cookies that the server sets.
    #[serde(default)]
    pub cookies: bool,
    /// Every request names its trace (W3C Trace Context).
    #[serde(default)]
    pub trace: bool,
    /// Where a trace can be looked at: a URL with `{trace_id}`.
    #[serde(default)]
    pub trace_url: Option<String>,
    /// The path of a CSV file with values that each request has of its own.
    #[serde(default)]
    pub data: Option<String>,
    /// What users do, request after request; without it all requests are alike.
    #[serde(default)]
    pub scenario: Option<Scenario>,
    /// How the server wants the password.
    #[serde(default)]
    pub auth: Auth,
    /// A connection carries several requests, one after the other.
    #[serde(default = "yes")]
    pub keep_alive: bool,
    /// A connection speaks HTTP/2, and carries many requests at once.
    #[serde(default)]
    pub http2: bool,
}

const fn yes() -> bool {
    true
}

impl Default for Http {
    /// One connection that is kept, and no request of a form of its own.
    fn default() -> Self {
        Self {
            connections: 1,
            expect: Codes::default(),
            method: None,
            headers: Headers::default(),
            body: None,
            prompt: None,
            proto: None,
            cookies: false,
            trace: false,
            trace_url: None,
            data: None,
            scenario: None,
            auth: Auth::default(),
            keep_alive: true,
            http2: false,
        }
    }
}

impl Http {
    /// True if `{password}` stands in the URL, in a header or in the body.
    #[must_use]
    pub fn has_password_place(&self, url: &Url) -> bool {
        let texts = self.body.iter().chain(&self.prompt);
        let in_body = texts.into_iter().any(|it| it.contains(PASSWORD_PLACE));
        let in_scenario = self.scenario.as_ref().is_some_and(Scenario::has_password);
        in_body || in_scenario || url.has_password() || self.headers.has_password()
    }
}

/// How an HTTP server wants the password of its user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Auth {
    /// As [`Self::Basic`] if the URL names a user, and else not at all.
    #[default]
    #[serde(rename = "user")]
    OfUser,
    /// With the user's name (RFC 7617), which may be empty.
    Basic,
    /// As a token, without a name (RFC 6750).
    Bearer,
}

impl Auth {
    /// The words in plans.
    pub(crate) const WORDS: [(&'static str, Self); 3] = [
        ("user", Self::OfUser),
        ("basic", Self::Basic),
        ("bearer", Self::Bearer),
    ];

    /// The word in plans.
    #[must_use]
    pub fn name(self) -> &'static str {
        let found = Self::WORDS.iter().find(|(_, auth)| *auth == self);
        found.map_or("", |(word, _)| word)
    }
}

/// Longest method; those that are registered have up to 17 letters.
const MAX_METHOD_CHARS: usize = 32;

/// A method of HTTP, in capital letters as the server is sent it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Method(String);

/// A text that is no method of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a method of HTTP in capital letters, and not CONNECT: \"GET\", \"POST\"")]
pub struct MethodError;

impl Method {
    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True if a request may be repeated when nobody knows whether the server processed it (RFC
    /// 9110, 9.2.2).
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        let safe = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"];
        safe.contains(&self.as_str())
    }
}

impl FromStr for Method {
    type Err = MethodError;

    fn from_str(text: &str) -> Result<Self, MethodError> {
        let letter = |byte: u8| byte.is_ascii_uppercase() || byte == b'-';
        let fits = (1..=MAX_METHOD_CHARS).contains(&text.len()) && text.bytes().all(letter);
        // Its answer turns the connection into a tunnel.
        if fits && text != "CONNECT" {
            Ok(Self(text.to_owned()))
        } else {
            Err(MethodError)
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

impl TryFrom<String> for Method {
    type Error = MethodError;

    fn try_from(text: String) -> Result<Self, MethodError> {
        text.parse()
    }
}

impl From<Method> for String {
    fn from(method: Method) -> Self {
        method.0
    }
}

/// What stands for a trace's id in a link.
pub const TRACE_ID: &str = "{trace_id}";

/// Headers that every request has from us, and how a plan changes what they say.
const OWN_HEADERS: [(&str, &str); 4] = [
    ("connection", "keep_alive = false sends Connection: close"),
    ("content-length", "it follows from body"),
    ("transfer-encoding", "the body has a length"),
    ("upgrade", "the connection speaks HTTP/1.1"),
];

/// Header lines, `Name: value` each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Headers(Vec<(String, String)>);

/// A text that is not a list of header lines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadersError {
    /// A line is not of the form.
    #[error("must be lines of the form \"Name: value\"")]
    Form,
    /// We send that header ourselves.
    #[error("must not set {0}: {1}")]
    Own(String, &'static str),
    /// It holds a secret.
    #[error(
        "must hold no secret in {0}, since plans are kept with their runs: write {{password}} in its place, and set UNRULY_PASSWORD"
    )]
    Secret(String),
}

impl Headers {
    /// Names and values, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// True if one has this name, in any letters.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.iter().any(|(it, _)| it.eq_ignore_ascii_case(name))
    }

    /// These, and the `others` in the place of those with their names.
    #[must_use]
    pub fn with(&self, others: &Self) -> Self {
        let mut lines = self.0.clone();
        lines.retain(|(name, _)| !others.has(name));
        lines.extend_from_slice(&others.0);
        Self(lines)
    }

    /// True if a value has a place for the secret: `{password}`.
    #[must_use]
    pub fn has_password(&self) -> bool {
        self.iter().any(|(_, value)| value.contains(PASSWORD_PLACE))
    }
}

impl FromStr for Headers {
    type Err = HeadersError;

    fn from_str(text: &str) -> Result<Self, HeadersError> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.map(header).collect::<Result<_, _>>().map(Self)
    }
}

fn header(line: &str) -> Result<(String, String), HeadersError> {
    let (name, value) = line.split_once(':').ok_or(HeadersError::Form)?;
    let value = value.trim();
    // A token (RFC 9110, 5.6.2).
    let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || !name.chars().all(token) || value.chars().any(char::is_control) {
        return Err(HeadersError::Form);
    }
    let own = OWN_HEADERS
        .iter()
        .find(|(own, _)| name.eq_ignore_ascii_case(own));
    if let Some((_, why)) = own {
        return Err(HeadersError::Own(name.to_owned(), why));
    }
    if is_secret_header(name, value) {
        return Err(HeadersError::Secret(name.to_owned()));
    }
    Ok((name.to_owned(), value.to_owned()))
}

impl fmt::Display for Headers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.iter().map(|(name, value)| format!("{name}: {value}"));
        formatter.pad(&lines.collect::<Vec<_>>().join("\n"))
    }
}

impl TryFrom<String> for Headers {
    type Error = HeadersError;

    fn try_from(text: String) -> Result<Self, HeadersError> {
        text.parse()
    }
}

impl From<Headers> for String {
    fn from(headers: Headers) -> Self {
        headers.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_in_capital_letters_and_some_may_be_repeated() {
        for (text, repeatable) in [
            ("GET", true),
            ("PUT", true),
            ("POST", false),
            ("PATCH", false),
        ] {
            let method: Method = text.parse().expect("it is");
            assert_eq!(
                (method.as_str(), method.is_idempotent()),
                (text, repeatable)
            );
        }
        for text in [
            "",
            "get",
            "GET /",
            "CONNECT",
            "GET\r\nX: y",
            &"A".repeat(33),
        ] {
            assert_eq!(text.parse::<Method>(), Err(MethodError), "{text}");
        }
    }

    #[test]
    fn headers_are_read_and_written_as_they_were() {
        let text = "Accept: application/json\nX-Empty: \nAuthorization: Token {password}";
        let headers: Headers = text.parse().expect("they are");
        assert_eq!(headers.to_string(), text);
        assert!(headers.has("accept") && headers.has_password());
        let spaced: Headers = "\n  Accept:application/json  \n\n"
            .parse()
            .expect("they are");
        assert_eq!(spaced.to_string(), "Accept: application/json");
        assert!(!spaced.has_password());
    }

    #[test]
    fn a_header_that_is_none_or_ours_or_holds_a_secret_is_refused() {
        for text in ["Accept", ": x", "A b: c", "A: b\u{7}", "A\u{e9}: b"] {
            assert_eq!(text.parse::<Headers>(), Err(HeadersError::Form), "{text}");
        }
        let own = "content-length: 5"
            .parse::<Headers>()
            .expect_err("it is ours");
        assert_eq!(
            own.to_string(),
            "must not set content-length: it follows from body"
        );
        for text in [
            "Authorization: Bearer s3cr3t",
            "Cookie: session=s3cr3t",
            "X-Api-Key: s3cr3t",
            "X-Auth-Token: s3cr3t",
        ] {
            let said = text
                .parse::<Headers>()
                .expect_err("it has a secret")
                .to_string();
            assert!(said.starts_with("must hold no secret in "), "{said}");
            assert!(!said.contains("s3cr3t"), "{said}");
        }
    }
}
