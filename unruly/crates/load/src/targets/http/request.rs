//! The requests of a plan. Most of a request is the same each time, and is put together once.

use std::io::Write as _;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use unruly_plan::{Auth, Http, Method, PASSWORD_PLACE, Portion, Secret, Store, has_place};
use unruly_trace::MonoNs;

use super::super::http2::Fields;
use super::super::template::{Data, Escape, Known, Template, Trace, Turn};
use super::super::{DriverError, Settings};
use super::captured::Captured;
use super::cookies::{Jars, fixed_path};
use crate::target::{Operation, Outgoing};

/// Ports that a `Host` header leaves out.
const USUAL_PORTS: [(&str, u16); 5] = [
    ("http", 80),
    ("https", 443),
    ("openai", 80),
    ("openais", 443),
    ("grpcs", 443),
];

/// Headers about the connection that HTTP/2 does not carry (RFC 9113, 8.2.2); a plan has no others.
const OF_HTTP_1: [&str; 2] = ["keep-alive", "proxy-connection"];

/// Headers that we send unless the plan has them.
const USUAL_HEADERS: [(&str, &str); 2] = [
    ("User-Agent", concat!("unruly/", env!("CARGO_PKG_VERSION"))),
    ("Accept", "*/*"),
];

/// What each client keeps of replies, where clients keep something.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Kept {
    pub(super) cookies: Option<Arc<Jars>>,
    pub(super) captured: Option<Arc<Captured>>,
}

impl Kept {
    /// The number of a session's user, where users come and go.
    pub(super) fn user_of(&self, session: usize) -> u64 {
        self.captured.as_ref().map_or(0, |it| it.user_of(session))
    }

    /// Another user takes the place of a session's.
    pub(super) fn forget(&self, session: usize) {
        if let Some(jars) = &self.cookies {
            jars.forget(session);
        }
        if let Some(captured) = &self.captured {
            captured.forget(session);
        }
    }
}

/// How requests are put together.
pub(in super::super) struct Form {
    method: Option<Method>,
    path: Template,
    /// The path has a place for the key.
    keyed: bool,
    /// All lines but `Content-Length`.
    headers: Template,
    body: Template,
    data: Option<Arc<Data>>,
    seed: u64,
    portion: Portion,
    trace_key: u64,
    kept: Kept,
    /// The path up to its first place, by which cookies are sent.
    fixed_path: String,
    scheme: &'static str,
}

impl Form {
    /// The requests of a plan to one of its hosts, a name and its port.
    ///
    /// # Errors
    ///
    /// When a secret is missing or does not fit its place, when a place for a value cannot be
    /// filled, or when the path holds a space.
    pub(in super::super) fn of(
        settings: &Settings<'_>,
        host: &(String, Option<u16>),
        data: Option<Arc<Data>>,
        kept: Kept,
    ) -> Result<Self, DriverError> {
        let store = settings.store;
        let default = Http::default();
        let http = store.http.as_ref().unwrap_or(&default);
        let password = settings.password.map(Secret::reveal);
        let escape = match store.url.is_grpc() {
            true => Escape::Json,
            false => escape_of(http),
        };
        let body = http.body.as_deref().unwrap_or_default();
        let key = if http.prompt.is_some() {
            "prompt"
        } else {
            "body"
        };
        let known = Known {
            data: data.as_deref(),
            captured: kept.captured.as_deref(),
        };
        let body = Template::parse(key, body, escape, known)?;
        let form = Self {
            method: http.method.clone(),
            keyed: store.url.has_key(),
            path: path(store, password, known)?,
            headers: headers(store, http, host, password, known)?,
            body: body.map_text(|text| with_password(key, text, password, |byte| byte != 0))?,
            data,
            seed: settings.seed,
            portion: settings.portion,
            trace_key: settings.trace_key,
            fixed_path: fixed_path(&store.url.path).to_owned(),
            kept,
            scheme: if store.url.is_secure() {
                "https"
            } else {
                "http"
            },
        };
        let (data, place) = (form.data.as_deref(), "a header");
        form.headers.check_lines(data, place, char::is_control)?;
        // Another request of a scenario may send it.
        if http.scenario.is_none() {
            form.check_use(http)?;
        }
        form.check_streams(http)?;
        Ok(form)
    }

    /// Refuses a data file of which nothing is sent.
    fn check_use(&self, http: &Http) -> Result<(), DriverError> {
        match &http.data {
            Some(file) if !self.has_data() => Err(unused(file)),
            _ => Ok(()),
        }
    }

    /// True if a value of the data file is sent.
    pub(super) fn has_data(&self) -> bool {
        let used = [&self.path, &self.headers, &self.body];
        used.iter().any(|it| it.has_data())
    }

    /// Refuses a URL that HTTP/2 cannot carry.
    fn check_streams(&self, http: &Http) -> Result<(), DriverError> {
        let outgoing = Outgoing {
            request: 0,
            number: 0,
            session: 0,
            intended_ns: MonoNs(0),
            operation: Operation::Read { key: "k" },
        };
        if !http.http2 {
            return Ok(());
        }
        let is_old = |(name, value): &(&str, &str)| {
            let named = OF_HTTP_1.iter().any(|it| name.eq_ignore_ascii_case(it));
            // This is the one value that HTTP/2 has for it.
            named || name.eq_ignore_ascii_case("te") && *value != "trailers"
        };
        if let Some((name, _)) = http.headers.iter().find(is_old) {
            return Err(DriverError::new(
                "headers",
                format!("{name} has no meaning in HTTP/2"),
                "wanted none about the connection",
                "remove it, or http2",
            ));
        }
        let Err(words) = self.request(&outgoing, true) else {
            return Ok(());
        };
        Err(DriverError::new(
            "url",
            words,
            "wanted a request that HTTP/2 can carry",
            "write other characters of the path as %20 and so on",
        ))
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

    fn turn<'a>(&self, outgoing: &Outgoing<'_>, key: &'a str) -> Turn<'a> {
        let turn = Turn::new(self.seed, self.portion, outgoing.number, key);
        turn.traced(Trace::of(self.trace_key, outgoing.number, outgoing.request))
    }

    /// What the user of a session has captured.
    fn captured(&self, session: usize) -> Vec<String> {
        let captured = self.kept.captured.as_ref();
        captured.map_or_else(Vec::new, |it| it.of_user(session))
    }

    /// Takes the value of a `Set-Cookie` header for a session.
    pub(super) fn set_cookie(&self, session: usize, header: &[u8]) {
        if let Some(jars) = &self.kept.cookies {
            jars.set(session, &self.fixed_path, header);
        }
    }

    /// The value of the header `Cookie` of a session, where it has one.
    fn cookie(&self, session: usize) -> Option<String> {
        let jars = self.kept.cookies.as_ref()?;
        jars.header(session, &self.fixed_path)
    }

    /// True if all requests have the same body.
    pub(in super::super) fn has_one_body(&self) -> bool {
        self.body.plain().is_some()
    }

    /// The bodies of the first requests: one, or one for each row of the data file.
    pub(in super::super) fn bodies(&self) -> impl Iterator<Item = Vec<u8>> {
        let data = self.data.as_deref();
        let rows = data.filter(|_| self.body.has_data()).map_or(1, Data::rows);
        (0..rows).map(move |number| {
            let turn = Turn::new(self.seed, Portion::WHOLE, number, "");
            let mut body = Vec::new();
            self.body.write(&turn, data, &mut body);
            body
        })
    }

    /// The fields of a request of HTTP/2, and its body. Without `length` no field says how long that is.
    ///
    /// # Errors
    ///
    /// When there is no such request.
    pub(in super::super) fn request(
        &self,
        outgoing: &Outgoing<'_>,
        length: bool,
    ) -> Result<(Fields, Bytes), String> {
        let (usual, key, value) = parts(outgoing.operation);
        let captured = self.captured(outgoing.session);
        let turn = self.turn(outgoing, key).of_user(&captured);
        let data = self.data.as_deref();
        let method = self.method.as_ref().map_or(usual, Method::as_str);
        let mut body = Vec::new();
        match &self.method {
            None => body.extend_from_slice(value.as_bytes()),
            Some(_) => self.body.write(&turn, data, &mut body),
        }
        let (mut lines, mut path) = (Vec::new(), Vec::new());
        self.headers.write(&turn, data, &mut lines);
        self.path.write(&turn, data, &mut path);
        if !path.iter().all(|byte| *byte > b' ' && *byte != 0x7f) {
            return Err("its path has a space or another byte that no path has".to_owned());
        }
        let mut fields = Fields::default();
        fields.push(b":method", method.as_bytes());
        fields.push(b":scheme", self.scheme.as_bytes());
        let pairs = || lines.split(|byte| *byte == b'\n').filter_map(pair);
        let host = pairs().find(|(name, _)| name.eq_ignore_ascii_case(b"host"));
        let host = host.map_or(&b""[..], |(_, value)| value);
        if host.is_empty() || !host.iter().all(u8::is_ascii_graphic) {
            let host = String::from_utf8_lossy(host);
            return Err(format!("its header Host is {host:?}"));
        }
        fields.push(b":authority", host);
        fields.push(b":path", &path);
        let own = pairs().filter(|(name, _)| !name.eq_ignore_ascii_case(b"host"));
        for (name, value) in own {
            if !fields.push_checked(name, value) {
                let name = String::from_utf8_lossy(name);
                return Err(format!("HTTP/2 has no such header: {name}"));
            }
        }
        if let Some(cookie) = self.cookie(outgoing.session)
            && !fields.push_checked(b"cookie", cookie.as_bytes())
        {
            return Err("HTTP/2 has no such cookie".to_owned());
        }
        if length && !body.is_empty() {
            let mut length = itoa::Buffer::new();
            fields.push(b"content-length", length.format(body.len()).as_bytes());
        }
        Ok((fields, body.into()))
    }

    /// Appends a request of HTTP/1.1.
    pub(super) fn write(&self, outgoing: &Outgoing<'_>, out: &mut Vec<u8>) {
        let (usual, key, value) = parts(outgoing.operation);
        let captured = self.captured(outgoing.session);
        let turn = self.turn(outgoing, key).of_user(&captured);
        let data = self.data.as_deref();
        let method = self.method.as_ref().map_or(usual, Method::as_str);
        let mut filled = Vec::new();
        let body = match (&self.method, self.body.plain()) {
            (None, _) => value.as_bytes(),
            (Some(_), Some(text)) => text.as_bytes(),
            (Some(_), None) => {
                self.body.write(&turn, data, &mut filled);
                filled.as_slice()
            }
        };
        out.extend_from_slice(method.as_bytes());
        out.push(b' ');
        self.path.write(&turn, data, out);
        out.extend_from_slice(b" HTTP/1.1\r\n");
        self.headers.write(&turn, data, out);
        if let Some(cookie) = self.cookie(outgoing.session) {
            let _ = write!(out, "Cookie: {cookie}\r\n");
        }
        // A method that means a body has one, be it empty (RFC 9110, 8.6).
        if !body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH") {
            // Writing to memory does not fail.
            let _ = write!(out, "Content-Length: {}\r\n", body.len());
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(body);
    }
}

/// The name and the value of a header line.
fn pair(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    Some((&line[..colon], line[colon + 1..].trim_ascii()))
}

/// How values stand in a body of the type that its header names.
fn escape_of(http: &Http) -> Escape {
    let kind = http.headers.iter().find_map(|(name, value)| {
        name.eq_ignore_ascii_case("content-type")
            .then(|| value.to_ascii_lowercase())
    });
    match kind {
        Some(kind) if kind.contains("json") => Escape::Json,
        Some(kind) if kind.contains("x-www-form-urlencoded") => Escape::Form,
        _ => Escape::Body,
    }
}

/// A data file of which nothing is sent.
pub(super) fn unused(file: &str) -> DriverError {
    DriverError::new(
        "data",
        format!("no value of {file} is sent"),
        "wanted {data.COLUMN} in the URL, in a header or in the body",
        "see unruly/docs/https.md",
    )
}

/// The method of an operation where the plan names none, its key and its value.
fn parts(operation: Operation<'_>) -> (&'static str, &str, &str) {
    match operation {
        Operation::Write { key, value } => ("PUT", key, value),
        Operation::Read { key } => ("GET", key, ""),
        Operation::Call { .. } | Operation::Named { .. } => ("GET", "", ""),
    }
}

/// The path with the query.
fn path(store: &Store, password: Option<&str>, known: Known<'_>) -> Result<Template, DriverError> {
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
    Template::parse("url", &path, Escape::Url, known)?
        .map_text(|text| with_password("url", text, password, |byte| byte.is_ascii_graphic()))
}

/// The header lines, each with its end.
fn headers(
    store: &Store,
    http: &Http,
    host: &(String, Option<u16>),
    password: Option<&str>,
    known: Known<'_>,
) -> Result<Template, DriverError> {
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
    for (name, value) in own.iter() {
        add(name, value);
    }
    let own_lines =
        Template::parse("headers", &lines, Escape::Header, known)?.map_text(|text| {
            let printable = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
            with_password("headers", text, password, printable)
        })?;
    let own_lines = match http.trace {
        true => own_lines.with_traceparent(),
        false => own_lines,
    };
    if !http.has_password_place(url)
        && !own.has("authorization")
        && let Some(value) = authorization(store, http.auth, password)?
    {
        return Ok(own_lines.with_end(&format!("Authorization: {value}\r\n")));
    }
    Ok(own_lines)
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
        // The password of the environment is for whom the URL names.
        (Auth::OfUser, _) if user.is_empty() => Ok(None),
        (Auth::Basic, None) if user.is_empty() => Ok(None),
        (Auth::OfUser | Auth::Basic, password) => {
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
    if password.is_some_and(has_place) {
        return Err(DriverError::new(
            key,
            "the secret holds a place for a value, which is not filled there",
            "wanted the secret part alone",
            "write {password} for it, and set UNRULY_PASSWORD",
        ));
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
