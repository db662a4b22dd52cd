//! A HAR file, in which a browser has recorded its requests, as a scenario (HTTP Archive 1.2).

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::{Context, Result};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use unruly_plan::{PASSWORD_PLACE, header_without_secret, is_secret, is_secret_field};

/// Headers that are the browser's own business, or that the engine sends itself.
const LEFT_OUT: [&str; 12] = [
    "accept-encoding",
    "connection",
    "content-length",
    "cookie",
    "host",
    "if-modified-since",
    "if-none-match",
    "keep-alive",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Pauses below this are a browser's, and not a person's.
const PAUSE_MS: f64 = 100.0;

#[derive(Deserialize)]
struct Har {
    log: Log,
}

#[derive(Deserialize)]
struct Log {
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    started_date_time: Option<String>,
    time: Option<f64>,
    request: Request,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    method: String,
    url: String,
    #[serde(default)]
    headers: Vec<Header>,
    post_data: Option<PostData>,
}

#[derive(Deserialize)]
struct Header {
    name: String,
    value: String,
}

#[derive(Deserialize)]
struct PostData {
    text: Option<String>,
    #[serde(default)]
    params: Vec<Param>,
}

#[derive(Deserialize)]
struct Param {
    name: String,
    value: Option<String>,
}

impl PostData {
    /// The body, if there is one: a form may be recorded by its fields alone.
    fn body(&self) -> Option<String> {
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let field = |it: &Param| {
            let value = it.value.as_deref().unwrap_or_default();
            format!("{}={}", encoded(&it.name), encoded(value))
        };
        let text = self.text.clone().filter(|it| !it.is_empty());
        let fields = || self.params.iter().map(field).collect::<Vec<_>>().join("&");
        text.or_else(|| Some(fields()).filter(|it| !it.is_empty()))
    }
}

/// The text of a scenario with the requests to the server that the first one went to.
///
/// # Errors
///
/// When the text is no HAR file, or has no request by HTTP.
pub(crate) fn scenario(file: &str, text: &str) -> Result<String> {
    let hint = "save the requests of a browser as HAR";
    let har: Har = serde_json::from_str(text.trim_start_matches('\u{feff}'))
        .with_context(|| format!("{file}: it is no HAR file; hint: {hint}"))?;
    let requests: Vec<(String, String, &Entry)> = har
        .log
        .entries
        .iter()
        .filter_map(|entry| {
            let (server, path) = split(&entry.request.url)?;
            Some((server, path, entry))
        })
        .collect();
    let Some((server, _, _)) = requests.first() else {
        anyhow::bail!("{file}: it has no request by HTTP; hint: {hint}");
    };
    let own: Vec<_> = requests.iter().filter(|it| it.0 == *server).collect();
    let others = har.log.entries.len() - own.len();
    let mut said = format!("# From a HAR file: {} requests to {server}", own.len());
    if others > 0 {
        let _ = write!(said, "; {others} to other servers are left out");
    }
    let _ = write!(said, ".\nurl = {}\n", quoted(server));
    let mut names = BTreeSet::new();
    for (place, (_, path, entry)) in own.iter().enumerate() {
        let after = own.get(place + 1).map(|it| it.2);
        state(&mut said, &mut names, path, entry, after);
    }
    Ok(said)
}

/// The server of a URL, and its path with the query.
fn split(url: &str) -> Option<(String, String)> {
    let scheme = ["http://", "https://"]
        .iter()
        .find(|it| url.starts_with(**it))?;
    let rest = &url[scheme.len()..];
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    let path = path.split('#').next().unwrap_or_default();
    let path = path
        .replace('{', "%7B")
        .replace('}', "%7D")
        .replace(' ', "%20");
    let path = if path.starts_with('/') {
        path
    } else {
        format!("/{path}")
    };
    // A user in a URL is a secret.
    (!host.is_empty() && !host.contains('@')).then(|| (format!("{scheme}{host}"), path))
}

fn state(
    said: &mut String,
    names: &mut BTreeSet<String>,
    path: &str,
    entry: &Entry,
    after: Option<&Entry>,
) {
    let request = &entry.request;
    let name = name(names, &request.method, path);
    let (path, in_path) = match path.split_once('?') {
        Some((path, query)) => {
            let (query, names) = without_secrets(query);
            (format!("{path}?{query}"), names)
        }
        None => (path.to_owned(), Vec::new()),
    };
    let _ = write!(
        said,
        "\n[[state]]\nname = {}\nmethod = {}\npath = {}\n",
        quoted(&name),
        quoted(&request.method),
        quoted(&path)
    );
    let (lines, secrets) = headers(request);
    if !lines.is_empty() {
        let _ = writeln!(said, "headers = {}", quoted(&lines.join("\n")));
    }
    if !secrets.is_empty() {
        let _ = writeln!(
            said,
            "# Left out, since they hold a secret: {}",
            secrets.join(", ")
        );
    }
    let body = request.post_data.as_ref().and_then(PostData::body);
    let (body, in_body) = body.map_or((None, Vec::new()), |it| {
        let (body, names) = without_secrets(&it);
        (Some(body), names)
    });
    if let Some(body) = body {
        let _ = writeln!(said, "body = {}", quoted(&body));
    }
    let placed = [in_path, in_body].concat();
    if !placed.is_empty() {
        let _ = writeln!(
            said,
            "# {{password}} stands for the recorded {}: put it in UNRULY_PASSWORD",
            placed.join(", ")
        );
    }
    if let Some(pause_ms) = after.and_then(|it| pause_ms(entry, it)) {
        let _ = writeln!(said, "think = \"{pause_ms:.0}ms\"");
    }
}

/// A query, a form or an object of JSON with `{password}` in the place of secrets, and their names.
fn without_secrets(text: &str) -> (String, Vec<String>) {
    let mut names = Vec::new();
    let value = serde_json::from_str::<serde_json::Value>(text);
    if let Some(mut value) = value.ok().filter(|it| it.is_object() || it.is_array()) {
        hide_secrets(&mut value, &mut names, true);
        let text = match names.is_empty() {
            true => text.to_owned(),
            false => value.to_string(),
        };
        return (text, names);
    }
    let fields = text.split('&').map(|field| match field.split_once('=') {
        Some((name, value)) if is_secret(name, value) => {
            names.push(name.to_owned());
            format!("{name}={PASSWORD_PLACE}")
        }
        _ => field.to_owned(),
    });
    let text = fields.collect::<Vec<_>>().join("&");
    (text, names)
}

/// Puts `{password}` in the place of each secret in a value, however deep.
/// At the top more names are taken for secrets.
fn hide_secrets(value: &mut serde_json::Value, names: &mut Vec<String>, top: bool) {
    match value {
        serde_json::Value::Object(object) => {
            for (name, value) in object {
                let usual = top || is_secret_field(name);
                let text = value.as_str().filter(|_| usual);
                if text.is_some_and(|it| is_secret(name, it)) {
                    names.push(name.clone());
                    *value = PASSWORD_PLACE.into();
                } else {
                    hide_secrets(value, names, false);
                }
            }
        }
        serde_json::Value::Array(items) => {
            for item in items {
                hide_secrets(item, names, false);
            }
        }
        _ => {}
    }
}

/// A name that no state before it has: the method and the end of the path.
fn name(names: &mut BTreeSet<String>, method: &str, path: &str) -> String {
    let path = path.split('?').next().unwrap_or_default();
    let words = path.split('/').filter(|it| !it.is_empty());
    let last: Vec<&str> = words.rev().take(2).collect();
    let mut name = method.to_ascii_lowercase();
    for word in last.into_iter().rev() {
        let fits = |c: char| {
            if c.is_ascii_alphanumeric() || c == '_' {
                c
            } else {
                '-'
            }
        };
        name.push('-');
        name.extend(word.chars().take(20).map(fits));
    }
    let mut unique = name.clone();
    let mut count = 1;
    while !names.insert(unique.clone()) {
        count += 1;
        unique = format!("{name}-{count}");
    }
    unique
}

/// The header lines that are sent, and the names of those that hold a secret.
fn headers(request: &Request) -> (Vec<String>, Vec<String>) {
    let (mut lines, mut secrets) = (Vec::new(), Vec::new());
    for Header { name, value } in &request.headers {
        let lower = name.to_ascii_lowercase();
        let hidden = lower.starts_with(':') || lower.starts_with("sec-");
        if hidden || LEFT_OUT.contains(&lower.as_str()) || value.contains(char::is_control) {
            continue;
        }
        let line = format!("{name}: {value}");
        match header_without_secret(&line) {
            Some(_) => secrets.push(name.clone()),
            None => lines.push(line),
        }
    }
    (lines, secrets)
}

/// How long a person thought between two requests, where that is known.
fn pause_ms(entry: &Entry, after: &Entry) -> Option<f64> {
    let at = |it: &Entry| millis(it.started_date_time.as_deref()?);
    let pause_ms = at(after)? - at(entry)? - entry.time.unwrap_or(0.0).max(0.0);
    // The time of day only: a session over midnight has no pause there.
    (pause_ms >= PAUSE_MS).then_some(pause_ms)
}

/// The time of day of an ISO date such as `2026-11-27T10:00:01.250Z`, in ms.
fn millis(date: &str) -> Option<f64> {
    let time = date.split_once('T')?.1;
    let mut parts = time.splitn(3, ':');
    let hours: f64 = parts.next()?.parse().ok()?;
    let minutes: f64 = parts.next()?.parse().ok()?;
    let rest = parts.next()?;
    let end = rest
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(rest.len());
    let seconds: f64 = rest[..end].parse().ok()?;
    Some(((hours * 60.0 + minutes) * 60.0 + seconds) * 1e3)
}

/// A text as TOML writes it.
fn quoted(text: &str) -> String {
    toml_edit::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use unruly_plan::Scenario;

    use super::*;

    const HAR: &str = r#"{"log": {"version": "1.2", "entries": [
        {"startedDateTime": "2026-11-27T10:00:00.000Z", "time": 100, "request": {"method": "GET",
         "url": "https://shop.example/items?q={a}#top",
         "headers": [{"name": ":authority", "value": "shop.example"}, {"name": "Accept", "value": "text/html"},
                     {"name": "Cookie", "value": "sid=1"}]}},
        {"startedDateTime": "2026-11-27T10:00:00.050Z", "request": {"method": "GET", "url": "https://cdn.example/x.js"}},
        {"startedDateTime": "2026-11-27T10:00:02.600Z", "time": 9, "request": {"method": "POST",
         "url": "https://shop.example/cart/7?access_token=t0p", "headers": [{"name": "Authorization", "value": "Bearer abc"}],
         "postData": {"mimeType": "text/plain", "text": "a=\"1\"\u007f\n"}}},
        {"time": null, "request": {"method": "GET", "url": "https://shop.example/items/2"}},
        {"request": {"method": "POST", "url": "https://shop.example/login",
         "postData": {"params": [{"name": "user", "value": "a&b"}, {"name": "password", "value": "hunter2"}]}}},
        {"request": {"method": "GET", "url": "https://shop.example/items"}}
    ]}}"#;

    #[test]
    fn secrets_deep_in_a_body_and_in_fields_of_a_record_are_hidden() {
        for (text, secret) in [
            (
                r#"{"variables":{"input":[{"password":"hunter2"}]}}"#,
                "password",
            ),
            ("user%5Bpassword%5D=hunter2&a=1", "user%5Bpassword%5D"),
            ("grant=x&refresh_token=hunter2", "refresh_token"),
        ] {
            let (hidden, names) = without_secrets(text);
            assert!(!hidden.contains("hunter2"), "{hidden}");
            assert!(hidden.contains(PASSWORD_PLACE), "{hidden}");
            assert_eq!(names, [secret]);
        }
        let plain = r#"{"variables": {"page_token": "7", "key": "colour"}}"#;
        assert_eq!(without_secrets(plain), (plain.to_owned(), Vec::new()));
    }

    #[test]
    fn what_a_browser_recorded_is_a_scenario() {
        let text = scenario("x.har", HAR).expect("it is one");
        assert!(
            text.contains("5 requests to https://shop.example; 1 to other servers"),
            "{text}"
        );
        assert!(
            text.contains("secret: Authorization")
                && !text.contains("abc")
                && !text.contains("t0p")
                && !text.contains("hunter2"),
            "{text}"
        );
        let scenario: Scenario = text.parse().expect("it is a scenario");
        assert_eq!(scenario.url(), Some("https://shop.example"));
        let states = scenario.states().iter();
        let told: Vec<_> = states
            .map(|it| (it.name.as_str(), it.path.as_str()))
            .collect();
        assert_eq!(
            told,
            [
                ("get-items", "/items?q=%7Ba%7D"),
                ("post-cart-7", "/cart/7?access_token={password}"),
                ("get-items-2", "/items/2"),
                ("post-login", "/login"),
                ("get-items-3", "/items"),
            ]
        );
        let [first, second, _, login, _] = scenario.states() else {
            panic!("there are five");
        };
        assert_eq!(
            login.body.as_deref(),
            Some("user=a%26b&password={password}")
        );
        assert_eq!(first.headers.to_string(), "Accept: text/html");
        assert_eq!(first.think.map(|it| it.0), Some(2_500_000_000));
        assert_eq!(
            (second.body.as_deref(), second.think),
            (Some("a=\"1\"\u{7f}\n"), None)
        );
    }

    #[test]
    fn what_is_no_har_file_says_so() {
        for text in ["{", "{}", r#"{"log": {"entries": []}}"#] {
            let error = scenario("x.har", text).expect_err(text);
            assert!(format!("{error:#}").contains("x.har: it"), "{error:#}");
        }
    }
}
