//! Texts that must not be printed, and where in a URL they stand.

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::url::PASSWORD_PLACE;

/// A password or a token. It cannot be printed: [`Secret::reveal`] is the one way to its text.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The secret of this text.
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// Its text, for a server or the environment of a child; never for a person or a file.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(not shown)")
    }
}

/// Options of a URL whose value lets somebody in, in small letters and without `-` and `_`.
const SECRET_OPTIONS: [&str; 17] = [
    "accesskey",
    "accesstoken",
    "apikey",
    "auth",
    "authorization",
    "authtoken",
    "clientsecret",
    "key",
    "pass",
    "passwd",
    "password",
    "pwd",
    "secret",
    "sig",
    "signature",
    "token",
    "xamzsignature",
];

/// The ends of other such names: `refresh_token`, `new_password`.
const SECRET_OPTION_ENDS: [&str; 7] = [
    "accesskey",
    "apikey",
    "passwd",
    "password",
    "secret",
    "signature",
    "token",
];

/// Names with such an end that let nobody in: the place in a list, and what a page sends back.
const OPEN_OPTION_ENDS: [&str; 5] = [
    "continuationtoken",
    "csrftoken",
    "nexttoken",
    "pagetoken",
    "synctoken",
];

/// True if the value of an option or a field of this name is a secret, and not the place of one or of
/// a key.
#[must_use]
pub fn is_secret(name: &str, value: &str) -> bool {
    let plain = |c: &char| !matches!(c, '-' | '_');
    let name = decoded(name).unwrap_or_default();
    // A form names the field of a record so: `user[password]`.
    let own = name.strip_suffix(']').and_then(|it| it.rsplit_once('['));
    let own = own.map(|(_, own)| own);
    if own.is_some_and(|it| !is_secret_field(it)) {
        return false;
    }
    let name: String = own
        .unwrap_or(&name)
        .chars()
        .filter(plain)
        .map(|c| c.to_ascii_lowercase())
        .collect();
    let ends = SECRET_OPTION_ENDS.iter().any(|end| name.ends_with(end));
    let open = OPEN_OPTION_ENDS.iter().any(|end| name.ends_with(end));
    let named = SECRET_OPTIONS.contains(&name.as_str()) || (ends && !open);
    named && !value.is_empty() && !(value.starts_with('{') && value.ends_with('}'))
}

/// True if a field of a record may hold a secret by its name. Words such as `key` are usual there.
#[must_use]
pub fn is_secret_field(name: &str) -> bool {
    let letters = name.chars().filter(|c| !matches!(c, '-' | '_'));
    let plain: String = letters.map(|c| c.to_ascii_lowercase()).collect();
    let named = SECRET_OPTION_ENDS.iter().any(|end| plain.ends_with(end));
    named || matches!(plain.as_str(), "pass" | "pwd")
}

/// Headers whose value lets somebody in, in small letters and without `-` and `_`.
const SECRET_HEADERS: [&str; 3] = ["authorization", "cookie", "proxyauthorization"];

/// The ends of other such names: `X-Api-Key`, `PRIVATE-TOKEN`.
const SECRET_ENDS: [&str; 5] = ["key", "password", "secret", "signature", "token"];

/// Headers with such an end that let nobody in.
const OPEN_HEADERS: [&str; 2] = ["idempotencykey", "secwebsocketkey"];

/// True if a header's value is a secret, and has no place for one.
pub(crate) fn is_secret_header(name: &str, value: &str) -> bool {
    let letters = name.chars().filter(|c| !matches!(c, '-' | '_'));
    let plain: String = letters.map(|c| c.to_ascii_lowercase()).collect();
    let named = SECRET_HEADERS.contains(&plain.as_str())
        || SECRET_OPTIONS.contains(&plain.as_str())
        || SECRET_ENDS.iter().any(|end| plain.ends_with(end));
    let placed = value.contains(PASSWORD_PLACE) || has_places_only(value);
    let open = OPEN_HEADERS.contains(&plain.as_str()) || placed;
    named && !open && !value.is_empty()
}

/// The schemes of an `Authorization` header that stand before a value.
const SCHEMES: [&str; 4] = ["basic", "bearer", "token", "apikey"];

/// True if the text between two braces names a value that each request has of its own.
fn is_place(inner: &str) -> bool {
    let parts = ["data.", "captured.", "random:", "words:"];
    matches!(inner, "uuid" | "sequence") || parts.iter().any(|part| inner.starts_with(part))
}

/// A text with a mark in the place of each value that a request has of its own.
fn marked(text: &str) -> String {
    let mut marked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        let (before, after) = rest.split_at(at);
        marked += before;
        match after.find('}').filter(|end| is_place(&after[1..*end])) {
            Some(end) => {
                marked.push(MARK);
                rest = &after[end + 1..];
            }
            None => {
                marked.push('{');
                rest = &after[1..];
            }
        }
    }
    marked + rest
}

/// A character that no header has.
const MARK: char = '\0';

/// True if a text has a place for a value that each request has of its own, such as `{uuid}`.
#[must_use]
pub fn has_place(text: &str) -> bool {
    marked(text).contains(MARK)
}

/// True if a value consists of places, such as `{data.token}`: beside them are only the word of a
/// scheme, or the names of cookies.
fn has_places_only(value: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let cookie = |word: &str| {
        let name = word.strip_suffix(MARK).and_then(|it| it.strip_suffix('='));
        name.is_some_and(|name| name.chars().all(letter))
    };
    let scheme = |word: &str| SCHEMES.contains(&word.to_ascii_lowercase().as_str());
    let marked = marked(value);
    let mut words = marked.split([' ', ';']).filter(|word| !word.is_empty());
    marked.contains(MARK)
        && words.all(|word| word == MARK.to_string() || cookie(word) || scheme(word))
}

/// Returns a header line with `{password}` in the place of its secret, and the secret. `None` if the
/// line is no header, or holds no secret.
#[must_use]
pub fn header_without_secret(line: &str) -> Option<(String, Secret)> {
    let (name, value) = line.split_once(':')?;
    let value = value.trim();
    let known = is_secret_header(name.trim(), value);
    known.then(|| {
        (
            format!("{name}: {PASSWORD_PLACE}"),
            Secret::new(value.to_owned()),
        )
    })
}

/// What stands as it is in a user (RFC 3986, 2.3).
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A text of a URL with its `%41` read (RFC 3986, 2.1); a `%` that begins no two digits is itself.
/// `None` when it is not UTF-8 then, or holds a control character.
pub(crate) fn decoded(text: &str) -> Option<String> {
    let text = percent_decode_str(text).decode_utf8().ok()?;
    (!text.chars().any(char::is_control)).then(|| text.into_owned())
}

/// The other way round: every byte but letters, digits and `-._~` as `%41`.
pub(crate) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

/// Returns a target as a person typed it, for an error message about it. If the text may hold a
/// secret, the secret is hidden. If the text is no URL, the end of its secret is unknown.
#[must_use]
pub fn shown(text: &str) -> String {
    if text.contains(['@', '?']) || text.contains("://:") {
        let scheme = text.split_once(':').map(|(scheme, _)| scheme);
        let plain = |it: &&str| {
            it.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        let scheme = scheme.filter(plain).unwrap_or("URL");
        return format!("{scheme}:... (not shown, it may hold a secret)");
    }
    format!("{text:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_printed() {
        assert_eq!(
            format!("{:?}", Secret::new("s3cr3t".to_owned())),
            "Secret(not shown)"
        );
    }

    #[test]
    fn a_secret_is_taken_out_of_a_header() {
        let (line, secret) = header_without_secret("Authorization: Bearer s3cr3t").expect("one");
        assert_eq!(line, "Authorization: {password}");
        assert_eq!(secret.reveal(), "Bearer s3cr3t");
        for line in [
            "X-Api-Key: s3cr3t",
            "private_token: s3cr3t",
            "X-Vault-Token:s3cr3t",
            "Cookie: session=s3cr3t; user={data.user}",
            "X-Api-Key: {s3cr3t}",
            "Cookie: prefs={\"token\":\"s3cr3t\"}",
            "X-Api-Key: {uuid}s3cr3t==",
        ] {
            let (open, secret) = header_without_secret(line).expect(line);
            assert!(
                open.ends_with(": {password}") && secret.reveal().contains("s3cr3t"),
                "{open}"
            );
        }
        for line in [
            "Accept: text/html",
            "Authorization: {password}",
            "Idempotency-Key: 7",
            "X-Api-Key:",
            "X-Session-Token: {uuid}",
            "Authorization: Bearer {data.token}",
            "Cookie: session={data.session}; user={data.user}",
            "word",
        ] {
            assert!(header_without_secret(line).is_none(), "{line}");
        }
    }

    #[test]
    fn a_text_that_is_no_url_is_shown_without_what_may_be_a_secret() {
        for text in [
            "redis://:s3cr3t@127.0.0.1:bad",
            "s3cr3t@h",
            "http//h?x=s3cr3t",
            "s3cr3t/:x@h",
            "redis://:s3cr3t",
        ] {
            assert!(!shown(text).contains("s3cr3t"), "{}", shown(text));
        }
        assert_eq!(shown("redis:127.0.0.1"), "\"redis:127.0.0.1\"");
    }

    #[test]
    fn a_field_of_a_record_and_a_longer_name_hold_secrets_too() {
        for name in [
            "user[password]",
            "user%5Bpassword%5D",
            "refresh_token",
            "newPassword",
            "X-Amz-Signature",
        ] {
            assert!(is_secret(name, "s3cr3t"), "{name}");
            assert!(!is_secret(name, "{password}"), "{name}");
        }
        for name in [
            "page_token",
            "sort_key",
            "tokens",
            "user[name]",
            "filter[key]",
            "csrf-token",
        ] {
            assert!(!is_secret(name, "7"), "{name}");
        }
    }

    #[test]
    fn percent_signs_are_read_and_written() {
        for (text, plain) in [
            ("a%2Fb", "a/b"),
            ("%", "%"),
            ("%4", "%4"),
            ("%zz", "%zz"),
            ("%C3%A9", "é"),
        ] {
            assert_eq!(decoded(text).as_deref(), Some(plain), "{text}");
            assert_eq!(decoded(&encoded(plain)).as_deref(), Some(plain));
        }
        assert_eq!(decoded("%FF"), None);
        assert_eq!(decoded("%00"), None);
    }
}
