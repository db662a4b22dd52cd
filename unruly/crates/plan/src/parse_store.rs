//! The keys of `[drive]` that speak of a store.

use std::net::SocketAddr;

use crate::codes::Codes;
use crate::error::PlanError;
use crate::http::{Headers, HeadersError, Http, Method, TRACE_ID};
use crate::keys::key::Key;
use crate::keys::kinds::{Switch, Text};
use crate::keys::{drive, store as keys};
use crate::limits::MAX_HTTP_BODY;
use crate::message::Message;
use crate::parse_scenario::scenario;
use crate::parse_system::{calls, own_echo, started};
use crate::secret::shown;
use crate::section::{Limits, Section};
use crate::sql::{ScriptError, Sql};
use crate::store::{KeyOrder, OperationKind, Operations, Store};
use crate::tls::Tls;
use crate::url::{Url, UrlError};

/// Keys that mean nothing with a store, and why.
const OF_ECHO: [(&str, &str); 2] = [
    (drive::ADDRESS.name, "the url says where the store is"),
    (drive::PAYLOAD.name, "value says how long values are"),
];

/// Keys that mean nothing to a server that is not asked by HTTP.
const OF_HTTP: [&str; 16] = [
    keys::CONNECTIONS.name,
    keys::EXPECT.name,
    keys::METHOD.name,
    keys::HEADERS.name,
    keys::BODY.name,
    keys::PROMPT.name,
    keys::PROTO.name,
    keys::COOKIES.name,
    keys::TRACE.name,
    keys::TRACE_URL.name,
    keys::SPANS.name,
    keys::DATA.name,
    keys::SCENARIO.name,
    keys::AUTH.name,
    keys::KEEP_ALIVE.name,
    keys::HTTP2.name,
];

/// Keys that mean nothing without TLS.
const OF_TLS: [&str; 4] = [
    keys::CA_CERT.name,
    keys::CLIENT_CERT.name,
    keys::CLIENT_KEY.name,
    keys::INSECURE.name,
];

/// Keys that mean nothing where every request asks for one and the same thing.
const OF_KEYS: [&str; 3] = [keys::KEYS.name, keys::ORDER.name, keys::SKEW.name];

/// Returns the store of a drive with this number of clients, or `None` if it calls an echo server.
pub(crate) fn store(section: &Section<'_>, clients: u32) -> Result<Option<Store>, PlanError> {
    let places = [drive::URL.name, drive::SERVICE.name, drive::SYSTEM.name];
    if own_echo(section)?.is_some() || !places.iter().any(|key| section.has(key)) {
        let names = keys::STORE.names();
        return match names.into_iter().find(|key| section.has(key)) {
            Some(key) => {
                let wanted = "must be left out: an echo server has none";
                Err(unwanted(section, key, wanted, drive::URL.example()))
            }
            None => Ok(None),
        };
    }
    let url = url(section)?;
    let calls = calls(section, &url)?;
    for (key, reason) in OF_ECHO {
        let of_calls = calls.is_some() && key == drive::PAYLOAD.name;
        if section.has(key) && !of_calls {
            let wanted = format!("must be left out: {reason}");
            return Err(section.refuse(key, wanted, format!("remove {key}")));
        }
    }
    let asked = asked(section, &url);
    let keyless = asked.is_openai() || asked.is_grpc() || asked.is_sql() || asked.has_messages();
    if keyless && asked.has_key() {
        let key = drive::URL;
        let wanted = "must have no {key}: such a server has no keys";
        return Err(section.refuse(key.name, wanted, key.example()));
    }
    let keyed = asked.has_keys() && calls.is_none();
    if !keyed {
        without_keys(section, &asked)?;
    }
    let operations = match calls {
        Some(_) => Operations::Turn(vec![OperationKind::Read]),
        None => operations(section, &asked)?,
    };
    let order = keys::ORDER.read(section)?;
    let preload = preload(section, &asked, &operations, keyed)?;
    let tls = tls(section, &asked)?;
    let spans = spans(section)?;
    let http = http(section, &asked, clients, calls.is_some())?;
    let sql = sql(section, &asked)?;
    let message = message(section, &asked)?;
    let number_of_keys = keys::KEYS.with(|limits| if keyed { limits } else { limits.or(1) });
    Ok(Some(Store {
        url,
        operations,
        keys: number_of_keys.read(section)?,
        order,
        skew: skew(section, order)?,
        value: keys::VALUE.parsed(section)?,
        level: if section.has(keys::LEVEL.name) {
            Some(keys::LEVEL.read(section)?)
        } else {
            None
        },
        pipeline: keys::PIPELINE.whole(section)?,
        retries: keys::RETRIES.whole(section)?,
        preload,
        http,
        tls,
        sql,
        message,
        keep: keys::KEEP.read(section)?,
        calls,
        spans,
    }))
}

/// Returns the URL whose kind decides which keys have a meaning. A service that users of a scenario
/// call speaks HTTP, at an address that is known when it runs.
fn asked(section: &Section<'_>, url: &Url) -> Url {
    if url.service().is_none() || !section.has(keys::SCENARIO.name) {
        return url.clone();
    }
    Url {
        scheme: "http".to_owned(),
        hosts: vec![(String::new(), None)],
        path: String::new(),
        ..url.clone()
    }
}

/// Refuses the keys of a plan that speak of keys, where every request asks for the same.
fn without_keys(section: &Section<'_>, url: &Url) -> Result<(), PlanError> {
    let Some(key) = OF_KEYS.iter().find(|key| section.has(key)) else {
        return Ok(());
    };
    let remove = format!("remove {key}");
    let (wanted, hint) = if url.is_sql() {
        ("must be left out: the statements name the rows", remove)
    } else if url.has_messages() {
        ("must be left out: every request is one message", remove)
    } else {
        (
            "must be left out: the path has no {key}, so there are no keys",
            "write {key} in the path, where the key belongs".to_owned(),
        )
    };
    Err(section.refuse(key, wanted, hint))
}

/// A complaint about a key that must not be there. Headers and bodies may hold a secret, and a
/// scenario is long: they are not shown.
fn unwanted(section: &Section<'_>, key: &str, wanted: &str, hint: String) -> PlanError {
    let long = [
        keys::HEADERS.name,
        keys::BODY.name,
        keys::PROMPT.name,
        keys::SCENARIO.name,
        keys::MESSAGE.name,
    ];
    if long.contains(&key) {
        return section.complain(key, format!("it has {key}"), wanted, hint);
    }
    section.refuse(key, wanted, hint)
}

/// What each client does. Nothing is written by HTTP unless the plan says so.
fn operations(section: &Section<'_>, url: &Url) -> Result<Operations, PlanError> {
    let key = keys::OPERATIONS;
    let default = match (url.is_http(), url.has_keys()) {
        (false, true) => Some(vec![OperationKind::Write, OperationKind::Read]),
        (_, false) => Some(vec![OperationKind::Read]),
        (true, true) => None,
    };
    if url.is_sql() && section.has(key.name) {
        let wanted = "must be left out: the operations of a database stand in sql";
        return Err(section.refuse(key.name, wanted, format!("remove {}", key.name)));
    }
    if section.has(key.name) {
        return key.parsed(section);
    }
    default.map(Operations::Turn).ok_or_else(|| {
        section.complain(
            key.name,
            "the URL has {key}, and no operations say how to use the keys",
            "must be \"read\", or \"write then read\": an HTTP server is written to only when asked",
            key.hint_text("read"),
        )
    })
}

/// Whether each key is written first: where a read may come before it, and writing was asked for.
fn preload(
    section: &Section<'_>,
    url: &Url,
    operations: &Operations,
    keyed: bool,
) -> Result<bool, PlanError> {
    let may_write = !url.is_http() || operations.writes();
    let default = keyed && may_write && operations.reads_first();
    let key = keys::PRELOAD.with(|_| Switch { default });
    let preload = key.read(section)?;
    if preload && !keyed {
        let wanted = match url.is_http() {
            true => "must be false: the path has no {key}, so there are no keys to write",
            false => "must be false: there are no keys to write",
        };
        return Err(section.refuse(key.name, wanted, format!("remove {}", key.name)));
    }
    Ok(preload)
}

/// How an HTTP server is asked; nothing for other stores.
fn http(
    section: &Section<'_>,
    url: &Url,
    clients: u32,
    is_call: bool,
) -> Result<Option<Http>, PlanError> {
    let refuse = |keys: &[&'static str], wanted| match keys.iter().find(|key| section.has(key)) {
        Some(key) => Err(unwanted(section, key, wanted, format!("remove {key}"))),
        None => Ok(()),
    };
    if !url.is_http() {
        let has_data = url.is_sql() || url.has_messages();
        let others = OF_HTTP.into_iter();
        let others: Vec<_> = others
            .filter(|it| !has_data || *it != keys::DATA.name)
            .filter(|it| !is_call || *it != keys::SPANS.name)
            .collect();
        refuse(&others, "must be left out: only an http:// URL has it")?;
        return Ok(None);
    }
    let connections = keys::CONNECTIONS.with(|limits| Limits {
        default: Some(clients.into()),
        example: clients.into(),
        ..limits
    });
    let http = Http {
        connections: connections.whole(section)?,
        expect: expect(section, url)?,
        method: method(section, url)?,
        headers: headers(section)?,
        body: body(section, keys::BODY)?,
        prompt: body(section, keys::PROMPT)?,
        proto: file(section, keys::PROTO)?,
        cookies: cookies(section, url)?,
        trace: keys::TRACE.read(section)? || section.has(keys::SPANS.name),
        trace_url: trace_url(section)?,
        data: file(section, keys::DATA)?,
        scenario: scenario(section, url)?,
        auth: keys::AUTH.read(section)?,
        keep_alive: keys::KEEP_ALIVE.read(section)?,
        http2: keys::HTTP2.read(section)?,
    };
    of_trace(section, &http)?;
    of_model(section, url, &http)?;
    of_grpc(section, url, &http)?;
    if http.http2 && !http.keep_alive {
        let key = keys::KEEP_ALIVE.name;
        let wanted = "must be true: a connection of HTTP/2 carries many requests";
        return Err(section.refuse(key, wanted, format!("remove {key}")));
    }
    if section.has(keys::AUTH.name) && http.has_password_place(url) {
        let key = keys::AUTH.name;
        let wanted = "must be left out: {password} has a place elsewhere, and there is one secret";
        return Err(section.refuse(key, wanted, format!("remove {key}")));
    }
    Ok(Some(http))
}

/// What the clients of a database do; nothing for other stores.
fn sql(section: &Section<'_>, url: &Url) -> Result<Option<Sql>, PlanError> {
    let key = keys::SQL;
    if !url.is_sql() {
        let wanted = "must be left out: only a postgres:// or mysql:// URL has it";
        return match section.has(key.name) {
            true => Err(section.refuse(key.name, wanted, format!("remove {}", key.name))),
            false => Ok(None),
        };
    }
    for name in [keys::VALUE.name, keys::LEVEL.name] {
        if section.has(name) {
            let wanted = "must be left out: the statements name the values";
            return Err(section.refuse(name, wanted, format!("remove {name}")));
        }
    }
    let Some(text) = body(section, key)? else {
        let wanted = "must be the statements that the clients send";
        return Err(section.complain(key.name, "it is missing", wanted, key.example()));
    };
    let script = text.parse().map_err(|error: ScriptError| {
        section.complain(
            key.name,
            "the statements are wrong",
            error.to_string(),
            "see unruly/docs/sql.md",
        )
    })?;
    let data = file(section, keys::DATA)?;
    Ok(Some(Sql { script, data }))
}

/// What is sent to a server of messages; nothing for other stores.
fn message(section: &Section<'_>, url: &Url) -> Result<Option<Message>, PlanError> {
    let key = keys::MESSAGE;
    let refuse =
        |name: &'static str, wanted| Err(unwanted(section, name, wanted, format!("remove {name}")));
    if section.has(key.name) && (url.is_dns() || !url.has_messages()) {
        return refuse(
            key.name,
            "must be left out: only a tcp://, tls:// or kafka:// URL has it",
        );
    }
    if !url.has_messages() {
        return Ok(None);
    }
    for name in [keys::OPERATIONS.name, keys::VALUE.name, keys::LEVEL.name] {
        if section.has(name) {
            return refuse(name, "must be left out: every request is one message");
        }
    }
    let text = body(section, key)?;
    if text.is_none() && !url.is_dns() {
        let wanted = "must be the text that the clients send";
        return Err(section.complain(key.name, "it is missing", wanted, key.example()));
    }
    let data = file(section, keys::DATA)?;
    Ok(Some(Message { text, data }))
}

/// The status codes that count as success.
fn expect(section: &Section<'_>, url: &Url) -> Result<Codes, PlanError> {
    let key = keys::EXPECT;
    if !url.is_grpc() {
        return key.parsed(section);
    }
    match key.read(section)?.filter(|_| section.has(key.name)) {
        None => Ok(Codes::grpc_ok()),
        Some(text) => Codes::of_grpc(text)
            .map_err(|error| section.refuse(key.name, error.to_string(), key.hint_text("OK"))),
    }
}

/// Whether clients keep cookies.
fn cookies(section: &Section<'_>, url: &Url) -> Result<bool, PlanError> {
    let key = keys::COOKIES;
    // The users of a scenario are like people with browsers.
    let default = section.has(keys::SCENARIO.name) && url.may_have_cookies();
    let kept = key.with(|_| Switch { default }).read(section)?;
    if kept && !url.may_have_cookies() {
        let wanted = "must be left out: only an http:// or https:// URL has it";
        return Err(section.refuse(key.name, wanted, format!("remove {}", key.name)));
    }
    Ok(kept)
}

/// Where the links to traces lead.
fn trace_url(section: &Section<'_>) -> Result<Option<String>, PlanError> {
    let key = keys::TRACE_URL;
    let Some(url) = key.read(section)? else {
        return Ok(None);
    };
    let known = ["http://", "https://"].iter().any(|it| url.starts_with(it));
    if !known || !url.contains(TRACE_ID) || url.chars().any(char::is_control) {
        let wanted = "must be an http:// or https:// URL with {trace_id}";
        return Err(section.refuse(key.name, wanted, key.example()));
    }
    Ok(Some(url.to_owned()))
}

/// Where the run receives spans.
fn spans(section: &Section<'_>) -> Result<Option<SocketAddr>, PlanError> {
    let key = keys::SPANS;
    let Some(address) = key.read(section)? else {
        return Ok(None);
    };
    let wanted = "must be an IP address and a port";
    let parsed = address.parse::<SocketAddr>().ok();
    let known = parsed.filter(|it| it.port() != 0);
    known
        .map(Some)
        .ok_or_else(|| section.refuse(key.name, wanted, key.example()))
}

/// Refuses what means nothing beside a trace, or only with one.
fn of_trace(section: &Section<'_>, http: &Http) -> Result<(), PlanError> {
    let (trace, url, headers) = (keys::TRACE, keys::TRACE_URL, keys::HEADERS);
    if http.trace_url.is_some() && !http.trace {
        let wanted = "must have trace beside it: no request names a trace";
        let hint = format!("remove it, or send traces as well ({})", trace.name);
        return Err(section.refuse(url.name, wanted, hint));
    }
    if http.trace && http.headers.has("traceparent") {
        let wanted = "must not set traceparent: trace sends it";
        return Err(unwanted(
            section,
            headers.name,
            wanted,
            "remove it, or trace".to_owned(),
        ));
    }
    Ok(())
}

/// Refuses what means nothing for a method of gRPC, or only there.
fn of_grpc(section: &Section<'_>, url: &Url, http: &Http) -> Result<(), PlanError> {
    let refuse =
        |key: &str, wanted: &str| Err(unwanted(section, key, wanted, format!("remove {key}")));
    if !url.is_grpc() {
        return match &http.proto {
            None => Ok(()),
            Some(_) => refuse(
                keys::PROTO.name,
                "must be left out: only a grpc:// URL has it",
            ),
        };
    }
    if http.method.as_ref().is_some_and(|it| it.as_str() != "POST") {
        return refuse(
            keys::METHOD.name,
            "must be left out: the URL names the method that is called",
        );
    }
    for key in [keys::HTTP2.name, keys::KEEP_ALIVE.name] {
        if section.has(key) {
            return refuse(key, "must be left out: gRPC has its own way");
        }
    }
    let of_calls = ["content-type", "grpc-timeout", "te"];
    if let Some(name) = of_calls.iter().find(|name| http.headers.has(name)) {
        let wanted = format!("must not set {name}: a call has its own");
        return refuse(keys::HEADERS.name, &wanted);
    }
    Ok(())
}

/// Refuses what means nothing for a language model, or only there.
fn of_model(section: &Section<'_>, url: &Url, http: &Http) -> Result<(), PlanError> {
    let prompt = keys::PROMPT;
    if !url.is_openai() {
        return match &http.prompt {
            None => Ok(()),
            Some(_) => {
                let wanted = "must be left out: only an openai:// URL has it";
                Err(unwanted(
                    section,
                    prompt.name,
                    wanted,
                    format!("remove {}", prompt.name),
                ))
            }
        };
    }
    let refuse =
        |key: &str, wanted: &str| Err(unwanted(section, key, wanted, format!("remove {key}")));
    if http.method.as_ref().is_some_and(|it| it.as_str() != "POST") {
        return refuse(
            keys::METHOD.name,
            "must be left out: a model is asked by POST",
        );
    }
    if http.http2 {
        return refuse(
            keys::HTTP2.name,
            "must be false: tokens are read over HTTP/1.1",
        );
    }
    match (&http.prompt, &http.body) {
        (Some(_), Some(_)) => refuse(
            keys::BODY.name,
            "must be left out beside prompt: it holds the whole request",
        ),
        (None, None) => Err(section.complain(
            prompt.name,
            "it is missing",
            "must be the text that the model is asked",
            prompt.example(),
        )),
        _ => Ok(()),
    }
}

/// The method of every request. Where there are keys, the operations decide it; a body alone is for a
/// `POST`.
fn method(section: &Section<'_>, url: &Url) -> Result<Option<Method>, PlanError> {
    let posts = url.is_openai() || url.is_grpc();
    let key = if section.has(keys::BODY.name) || posts {
        keys::METHOD.with(|text| text.or("POST"))
    } else {
        keys::METHOD
    };
    let named = [key.name, keys::BODY.name]
        .into_iter()
        .find(|name| section.has(name));
    let named = named.or_else(|| posts.then_some(drive::URL.name));
    let Some(named) = named else {
        return Ok(None);
    };
    if url.has_key() {
        let wanted = "must be left out: the URL has {key}, so the operations decide the method";
        return Err(unwanted(section, named, wanted, format!("remove {named}")));
    }
    let operations = keys::OPERATIONS.name;
    if section.has(operations) {
        let wanted = "must be left out: method says what every request does";
        return Err(section.refuse(operations, wanted, format!("remove {operations}")));
    }
    key.parsed(section).map(Some)
}

/// The header lines of every request. They may hold a secret, so the complaints never show them.
fn headers(section: &Section<'_>) -> Result<Headers, PlanError> {
    let key = keys::HEADERS;
    let text = key.read(section).map_err(|_| {
        section.complain(
            key.name,
            "headers is no text",
            "must be lines",
            key.example(),
        )
    })?;
    text.unwrap_or_default()
        .parse()
        .map_err(|error: HeadersError| {
            section.complain(
                key.name,
                "headers has a line that is refused",
                error.to_string(),
                key.example(),
            )
        })
}

/// The body of every request, or the text in it.
pub(crate) fn body(section: &Section<'_>, key: Key<Text>) -> Result<Option<String>, PlanError> {
    let Some(text) = key.read(section)? else {
        return Ok(None);
    };
    // It may be long, so the complaint does not show it.
    if text.len() as u64 > MAX_HTTP_BODY.0 {
        let wrong = format!("{} has {} bytes", key.name, text.len());
        let wanted = format!("must have at most {MAX_HTTP_BODY}");
        return Err(section.complain(key.name, wrong, wanted, "use a shorter one"));
    }
    Ok(Some(text.to_owned()))
}

/// The path of a file.
fn file(section: &Section<'_>, key: Key<Text>) -> Result<Option<String>, PlanError> {
    let path = key.read(section)?;
    if path.is_some_and(|it| it.is_empty() || it.chars().any(char::is_control)) {
        return Err(section.refuse(key.name, "must be the path of a file", key.example()));
    }
    Ok(path.map(str::to_owned))
}

/// The certificates of a server and its clients; nothing where they do not speak TLS.
fn tls(section: &Section<'_>, url: &Url) -> Result<Tls, PlanError> {
    if !url.is_secure() {
        return match OF_TLS.into_iter().find(|key| section.has(key)) {
            Some(key) => {
                let wanted =
                    "must be left out: only an https:// URL, or another one by TLS, has it";
                Err(section.refuse(key, wanted, format!("remove {key}")))
            }
            None => Ok(Tls::default()),
        };
    }
    let tls = Tls {
        ca_cert: file(section, keys::CA_CERT)?,
        client_cert: file(section, keys::CLIENT_CERT)?,
        client_key: file(section, keys::CLIENT_KEY)?,
        insecure: keys::INSECURE.read(section)?,
    };
    let (cert, own) = (keys::CLIENT_CERT, keys::CLIENT_KEY);
    match (&tls.client_cert, &tls.client_key) {
        (Some(_), None) => {
            Err(section.refuse(cert.name, "must have client_key beside it", own.example()))
        }
        (None, Some(_)) => {
            Err(section.refuse(own.name, "must have client_cert beside it", cert.example()))
        }
        _ => Ok(tls),
    }
}

fn url(section: &Section<'_>) -> Result<Url, PlanError> {
    let (key, service) = (drive::URL, drive::SERVICE);
    if let Some(system) = started(section)? {
        return Ok(system);
    }
    if let Some(name) = service.read(section)? {
        if section.has(key.name) {
            let wanted = "must be left out: the url says where the store is";
            return Err(section.refuse(service.name, wanted, "remove one of them"));
        }
        if name.is_empty() || name.chars().any(char::is_control) {
            let wanted = "must be the name of a service, or its file";
            return Err(section.refuse(service.name, wanted, service.example()));
        }
        return Ok(Url::of_service(name));
    }
    // A value of another type may hold a password too, so errors never show it.
    let hint = key.example();
    let text = key
        .read(section)
        .map_err(|_| section.complain(key.name, "url is no text", "must be one", &hint))?;
    let text = text.unwrap_or_default();
    text.parse().map_err(|error| match error {
        UrlError::Form if shown(text) != format!("{text:?}") => section.complain(
            key.name,
            format!("url is no place of a store: {}", shown(text)),
            error.to_string(),
            hint,
        ),
        UrlError::Form => section.refuse(key.name, error.to_string(), hint),
        // These complaints show it to nobody.
        UrlError::Password | UrlError::NoUser | UrlError::TwoSecrets => {
            let wanted = "must hold none, since plans are kept with their runs";
            section.complain(
                key.name,
                "url holds a password or a token",
                wanted,
                "UNRULY_PASSWORD has it; {password} stands for it in the path or the query of http",
            )
        }
        UrlError::Ambiguous => section.complain(
            key.name,
            "url holds an @ behind its first /, ? or #",
            "must have it before, so that no part of a password is taken for a path",
            "write %40 for an @ of the path",
        ),
    })
}

/// The exponent of a skewed order.
fn skew(section: &Section<'_>, order: KeyOrder) -> Result<f64, PlanError> {
    let key = keys::SKEW;
    let skew = key.read(section)?;
    let skewed = matches!(order, KeyOrder::Zipf | KeyOrder::Latest);
    let is_default = (skew - key.kind.example).abs() <= f64::EPSILON;
    if !skewed && !is_default {
        let wanted = "must be left out: only the orders zipf and latest are skewed";
        return Err(section.refuse(key.name, wanted, keys::ORDER.hint_text("zipf")));
    }
    Ok(skew)
}
