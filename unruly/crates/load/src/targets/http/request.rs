//! The requests of a plan. Most of a request is the same each time, and is put together once.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use unruly_plan::{Auth, Http, Method, PASSWORD_PLACE, Secret, Store};

use super::super::{DriverError, Settings};
use crate::target::Operation;

/// Ports that a `Host` header leaves out.
const USUAL_PORTS: [(&str, u16); 2] = [("http", 80), ("https", 443)];

/// Headers that we send unless the plan has them.
const USUAL_HEADERS: [(&str, &str); 2] = [
    ("User-Agent", concat!("unruly/", env!("CARGO_PKG_VERSION"))),
    ("Accept", "*/*"),
];

/// The parts of a request that do not change.
#[derive(Clone)]
pub(super) struct Form {
    method: Option<Method>,
    path: String,
    /// The path has a place for the key.
    keyed: bool,
    /// All lines but `Content-Length`.
    headers: String,
    body: String,
}

impl Form {
    /// The requests of a plan to one of its hosts, a name and its port.
    ///
    /// # Errors
    ///
    /// When a secret is missing or does not fit its place, or when the path holds a space.
    pub(super) fn of(
        settings: &Settings<'_>,
        host: &(String, Option<u16>),
    ) -> Result<Self, DriverError> {
        let store = settings.store;
        let default = Http::default();
        let http = store.http.as_ref().unwrap_or(&default);
        let password = settings.password.map(Secret::reveal);
        let path = path(store, password)?;
        let body = http.body.clone().unwrap_or_default();
        Ok(Self {
            method: http.method.clone(),
            keyed: store.url.has_key(),
            headers: headers(store, http, host, password)?,
            body: with_password("body", body, password, |byte| byte != 0)?,
            path,
        })
    }

    /// True if an answer to the operation is the value of a key.
    pub(super) fn asks_for_value(&self, operation: Operation<'_>) -> bool {
        self.keyed && matches!(operation, Operation::Read { .. })
    }

    /// True if the server answers without a body.
    pub(super) fn is_head(&self) -> bool {
        self.method.as_ref().is_some_and(|it| it.as_str() == "HEAD")
    }

    /// True if a request may be repeated when nobody knows whether the server processed it. Ours are
    /// `GET` and `PUT`.
    pub(super) fn may_be_repeated(&self) -> bool {
        self.method.as_ref().is_none_or(Method::is_idempotent)
    }

    /// Appends the request of an operation.
    pub(super) fn write(&self, operation: Operation<'_>, out: &mut Vec<u8>) {
        let (usual, key, body) = match operation {
            Operation::Write { key, value } => ("PUT", key, value),
            Operation::Read { key } => ("GET", key, ""),
            Operation::Call { .. } => ("GET", "", ""),
        };
        let (method, body) = match &self.method {
            Some(method) => (method.as_str(), self.body.as_str()),
            None => (usual, body),
        };
        let headers = &self.headers;
        // Writing to memory does not fail.
        let _ = if self.keyed {
            let path = self.path.replace("{key}", key);
            write!(out, "{method} {path} HTTP/1.1\r\n{headers}")
        } else {
            write!(out, "{method} {} HTTP/1.1\r\n{headers}", self.path)
        };
        // A method that means a body has one, be it empty (RFC 9110, 8.6).
        if !body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH") {
            let _ = write!(out, "Content-Length: {}\r\n", body.len());
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(body.as_bytes());
    }
}

/// The path with the query.
fn path(store: &Store, password: Option<&str>) -> Result<String, DriverError> {
    let url = &store.url;
    let mut path = if url.path.is_empty() {
        "/".to_owned()
    } else {
        url.path.clone()
    };
    if !url.query.is_empty() {
        path += &format!("?{}", url.query);
    }
    if path.contains(' ') {
        return Err(DriverError::new(
            "url",
            format!("its path is {path:?}"),
            "wanted one without spaces",
            "write %20 for a space",
        ));
    }
    with_password("url", path, password, |byte| byte.is_ascii_graphic())
}

/// The header lines, each with its end.
fn headers(
    store: &Store,
    http: &Http,
    host: &(String, Option<u16>),
    password: Option<&str>,
) -> Result<String, DriverError> {
    let (url, own) = (&store.url, &http.headers);
    if url.has_key() && own.has("accept-encoding") {
        return Err(DriverError::new(
            "headers",
            "the server may encode its replies, and unruly checks the values of keys",
            "wanted no Accept-Encoding with {key} in the URL",
            "remove Accept-Encoding",
        ));
    }
    let mut lines = String::new();
    let mut add = |name: &str, value: &str| lines += &format!("{name}: {value}\r\n");
    if !own.has("host") {
        add("Host", &host_header(&url.scheme, host));
    }
    for (name, value) in USUAL_HEADERS {
        if !own.has(name) {
            add(name, value);
        }
    }
    if !http.keep_alive {
        add("Connection", "close");
    }
    let printable = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    for (name, value) in own.iter() {
        add(
            name,
            &with_password("headers", value.to_owned(), password, printable)?,
        );
    }
    if !http.has_password_place(url)
        && !own.has("authorization")
        && let Some(value) = authorization(store, http.auth, password)?
    {
        add("Authorization", &value);
    }
    Ok(lines)
}

/// The value of the header that lets a user in, where there is one.
fn authorization(
    store: &Store,
    auth: Auth,
    password: Option<&str>,
) -> Result<Option<String>, DriverError> {
    let user = &store.url.user;
    match (auth, password) {
        (Auth::Bearer, Some(token)) if token.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Ok(Some(format!("Bearer {token}")))
        }
        (Auth::Bearer, _) => Err(DriverError::new(
            "auth",
            "bearer needs a token",
            "wanted one without spaces and control characters",
            "put it in UNRULY_PASSWORD",
        )),
        (Auth::Basic, None) if user.is_empty() => Ok(None),
        (Auth::Basic, password) => {
            let pair = format!("{user}:{}", password.unwrap_or_default());
            Ok(Some(format!("Basic {}", STANDARD.encode(pair))))
        }
    }
}

/// A host with its port, unless everybody knows the port.
fn host_header(scheme: &str, (name, port): &(String, Option<u16>)) -> String {
    let name = match name.contains(':') {
        true => format!("[{name}]"),
        false => name.clone(),
    };
    match port.filter(|port| !USUAL_PORTS.contains(&(scheme, *port))) {
        Some(port) => format!("{name}:{port}"),
        None => name,
    }
}

/// The text with the secret in its place, if it has one.
fn with_password(
    key: &'static str,
    text: String,
    password: Option<&str>,
    fits: impl Fn(u8) -> bool,
) -> Result<String, DriverError> {
    if !text.contains(PASSWORD_PLACE) {
        return Ok(text);
    }
    let password = password.filter(|it| !it.is_empty() && it.bytes().all(fits));
    password
        .map(|it| text.replace(PASSWORD_PLACE, it))
        .ok_or_else(|| {
            DriverError::new(
                key,
                format!(
                    "it has a place for a secret, {PASSWORD_PLACE}, and there is none that fits"
                ),
                "wanted one without spaces and control characters",
                match key {
                    "url" => "put it in UNRULY_PASSWORD, percent-encoded",
                    _ => "put it in UNRULY_PASSWORD",
                },
            )
        })
}
