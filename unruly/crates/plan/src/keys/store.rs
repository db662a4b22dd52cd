//! The keys of `[drive]` that have a meaning with a store only.

use super::key::{Key, Row, Table, bare, key, table, text};
use super::kinds::{Choice, Real, Switch, Text};
use crate::http::Auth;
use crate::limits::*;
use crate::section::Limits;
use crate::store::{KeyOrder, Store, StoreLevel};
use crate::tls::Tls;

table! {
    /// The keys of `[drive]` for a store.
    STORE: Store = "drive";

    OPERATIONS: Text = key(
        "operations",
        Text::like("read 90%, write 10%"),
        "the operations of each client; operations in turn have one key",
    ).default_is(
        "`\"write then read\"`; by HTTP `\"read\"`, and required where the URL has `{key}`",
    ).also("operations in turn, or shares of 100 %: `\"read 90%, write 10%\"`"),
        |it| {
            let chosen = it.request_name().is_none() && it.named_operations().is_none();
            chosen.then(|| text(&it.operations)).flatten()
        };

    KEYS: Limits<u64> = key(
        "keys",
        Limits::within(1, MAX_KEYS, 250_000).or(250_000),
        "number of keys; the state of each takes 16 bytes, which must fit in free memory",
    ), |it| it.has_keys().then(|| it.keys.to_string());

    ORDER: Choice<KeyOrder> = key(
        "order",
        Choice::of(|| KeyOrder::WORDS.to_vec()).or(KeyOrder::Turn),
        "which key is next; in turn no two clients share one",
    ), |it| it.has_keys().then(|| it.order.name()).and_then(text);

    SKEW: Real = key(
        "skew",
        Real::between(0.0, 10.0, 0.99).or(0.99),
        "exponent of `zipf` and `latest`",
    ), |it| it.has_keys().then(|| it.skew.to_string());

    VALUE: Text = key(
        "value",
        Text::like("1000B").or("1KB"),
        "length of values; a value below 32 bytes cannot name the write that it comes from",
    ).also("1B to 16MB; `\"100B to 10KB\"` is any length between, each as likely"),
        |it| {
            let has_values = it.named_operations().is_none() && it.message.is_none();
            let has_values = has_values && it.calls.is_none();
            has_values.then(|| text(it.value)).flatten()
        };

    LEVEL: Choice<StoreLevel> = key(
        "level",
        Choice::of(|| StoreLevel::WORDS.to_vec()),
        "how many replicas must have an operation",
    ).default_is("the store's own way"), |it| it.level.map(StoreLevel::name).and_then(text);

    PIPELINE: Limits<u64> = key(
        "pipeline",
        Limits::within(1, MAX_PIPELINE as u64, 1).or(1),
        "requests that a closed client has open at once",
    ), |it| (it.calls.is_none() || it.pipeline > 1).then(|| it.pipeline.to_string());

    RETRIES: Limits<u64> = key(
        "retries",
        Limits::within(0, MAX_RETRIES as u64, 1).or(0),
        "how often a client repeats a failed request; each try is a row",
    ), |it| it.calls.is_none().then_some(it.retries).and_then(bare);

    PRELOAD: Switch = key(
        "preload",
        Switch { default: false },
        "the clients write every key once before the warm-up, as fast as they can; these requests \
         are rows of the phase `load`, and in no statistic",
    ).default_is(
        "where a read may come before any write of its key; by HTTP only where `operations` also \
         writes",
    ), |it| it.calls.is_none().then_some(it.preload).and_then(bare);

    CONNECTIONS: Limits<u64> = key(
        "connections",
        Limits::within(1, MAX_CLIENTS as u64, 1),
        "most connections of all clients together; only for `http`. A client opens one when a \
         request needs it, and it carries one request at a time; with `http2` all are opened, and \
         carry many",
    ).default_is("as many as `clients`"), |it| it.http.as_ref().and_then(|it| bare(it.connections));

    EXPECT: Text = key(
        "expect",
        Text::like("2xx, 404").or("2xx, 3xx"),
        "status codes that count as success; every other one is a failure. Only for `http`",
    ).default_is("`\"2xx, 3xx\"`; by gRPC `\"OK\"`").also(
        "status codes from 100 to 599, and classes of them: `\"2xx, 404\"`; by gRPC their names: \
         `\"OK, NOT_FOUND\"`",
    ),
        |it| it.http.as_ref().and_then(|it| text(&it.expect));

    METHOD: Text = key(
        "method",
        Text::like("POST"),
        "the method of every request; only for `http`, and only where the URL has no `{key}`. The \
         rows have its name in small letters as their operation",
    ).default_is("`GET` for a read, `PUT` for a write; `POST` with a `body`").also("capital letters, not `CONNECT`"),
        |it| it.method().and_then(text);

    HEADERS: Text = key(
        "headers",
        Text::like("Accept: application/json"),
        "lines `Name: value` that every request has; only for `http`. `{password}` stands for the \
         secret, `{uuid}`, `{sequence}` and `{random:1..9}` for a value of each request",
    ).default_is("none").also("no `Connection`, `Content-Length`, `Transfer-Encoding` or `Upgrade`"), |it| {
        let headers = it.http.as_ref().map(|it| it.headers.to_string());
        headers.filter(|it| !it.is_empty()).and_then(text)
    };

    BODY: Text = key(
        "body",
        Text::like("{\\\"item\\\": 7}"),
        "the body of every request; only for `http`, with the same places as `headers`. By gRPC it is \
         the message as JSON, or an array of messages for a method that takes a stream",
    ).default_is("none").also("up to 500 KB"), |it| it.http.as_ref().and_then(|it| it.body.as_ref().and_then(text));

    PROMPT: Text = key(
        "prompt",
        Text::like("Why is {data.thing} blue?"),
        "the text that a language model is asked; only for `openai`, with the same places as \
         `headers`, and `{words:100}` for as many random words",
    ).default_is("none; then `body` holds the whole request"), |it| {
        it.http.as_ref().and_then(|it| it.prompt.as_ref().and_then(text))
    };

    PROTO: Text = key(
        "proto",
        Text::like("greeter.proto"),
        "the file that describes the service; only for `grpc`. The path is relative to the plan",
    ).default_is("the server is asked, by reflection"), |it| {
        it.http.as_ref().and_then(|it| it.proto.as_ref().and_then(text))
    };

    COOKIES: Switch = key(
        "cookies",
        Switch { default: false },
        "`true` lets each client keep the cookies that the server sets, and send them back; only for \
         `http` and `https`",
    ), |it| it.http.as_ref().filter(|_| it.may_have_cookies()).and_then(|it| bare(it.cookies));

    TRACE: Switch = key(
        "trace",
        Switch { default: false },
        "`true` sends a `traceparent` header with every request (W3C Trace Context); only for `http`",
    ), |it| it.http.as_ref().and_then(|it| bare(it.trace));

    TRACE_URL: Text = key(
        "trace_url",
        Text::like("http://localhost:16686/trace/{trace_id}"),
        "where the report's links to the slowest traces lead; only with `trace`",
    ).default_is("none").also("a URL with `{trace_id}`"), |it| {
        it.http.as_ref().and_then(|it| it.trace_url.as_ref().and_then(text))
    };

    SPANS: Text = key(
        "spans",
        Text::like("127.0.0.1:4318"),
        "the address at which the run receives the spans that the services export (OTLP over HTTP); \
         requests then have the header of `trace`; only for `http`, and for calls of a program",
    ).default_is("none").also("an IP address and a port"), |it| {
        it.spans.map(|it| it.to_string()).as_ref().and_then(text)
    };

    DATA: Text = key(
        "data",
        Text::like("users.csv"),
        "a CSV file whose first line names its columns; only for `http`, `postgres`, `mysql`, \
         `tcp`, `tls`, `kafka` and `dns`. Each request takes the next row, and `{data.COLUMN}` in the URL, in a header, in the body, in the \
         message or in a statement stands for its value. The path is relative to the plan",
    ).default_is("none").also("a file of up to 64 MB"), |it| it.data().and_then(text);

    MESSAGE: Text = key(
        "message",
        Text::like("GET {random:1..1000}"),
        "the text of every request; only for `tcp`, `tls` and `kafka`. `{data.COLUMN}`, `{uuid}`, `{sequence}` \
         and `{random:1..9}` stand for a value of each request. The URL says how messages are framed (`unruly targets tcp`)",
    ).default_is("required for `tcp`, `tls` and `kafka`").also("up to 500 KB"), |it| {
        it.message.as_ref().and_then(|it| it.text.as_ref().and_then(text))
    };

    SCENARIO: Text = key(
        "scenario",
        Text::like("state = [{ name = \"home\", path = \"/\" }]"),
        "what users do, request after request: a text of TOML with `[[state]]` tables \
         (`unruly/docs/scenarios.md`), or `board` for the visitors of that service; only for \
         `http` and `https`",
    ).default_is("all requests are alike").also("up to 500 KB"),
        |it| it.scenario().and_then(text);

    SQL: Text = key(
        "sql",
        Text::like("SELECT balance FROM accounts WHERE id = {random:1..1000}"),
        "the statements that the clients of a database send; only for `postgres` and `mysql`. Places become \
         parameters: `{data.COLUMN}`, `{uuid}`, `{sequence}`, `{random:1..9}`. A line \
         `-- operation: pay 10%` begins an operation with its share",
    ).default_is("required for `postgres` and `mysql`").also("up to 500 KB"),
        |it| it.sql.as_ref().and_then(|it| text(&it.script));

    AUTH: Choice<Auth> = key(
        "auth",
        Choice::of(|| Auth::WORDS.to_vec()).or(Auth::OfUser),
        "how the password is sent: with the user of the URL if it names one, with its user or none, or as a token; only for `http`",
    ), |it| {
        let placed = it.http.as_ref().is_some_and(|http| http.has_password_place(&it.url));
        let http = it.http.as_ref().filter(|_| !placed);
        http.map(|it| it.auth.name()).and_then(text)
    };

    KEEP_ALIVE: Switch = key(
        "keep_alive",
        Switch { default: true },
        "`false` opens a connection for each request; only for `http`",
    ), |it| {
        let http = it.http.as_ref().filter(|_| !it.url.is_grpc());
        http.and_then(|it| bare(it.keep_alive))
    };

    HTTP2: Switch = key(
        "http2",
        Switch { default: false },
        "`true` speaks HTTP/2: each connection carries many requests at once. An `https` server \
         agrees in the TLS handshake, and an `http` server must know it; only for `http`",
    ), |it| {
        let http = it.http.as_ref().filter(|_| !it.url.is_grpc());
        http.and_then(|it| bare(it.http2))
    };

    CA_CERT: Text = key(
        "ca_cert",
        Text::like("ca.pem"),
        "a PEM file of the authorities whose certificates are accepted; only with TLS. The path is \
         relative to the plan",
    ).default_is("the authorities of the system"), |it| tls(it, |it| it.ca_cert.as_ref());

    CLIENT_CERT: Text = key(
        "client_cert",
        Text::like("client.pem"),
        "a PEM file of the client's own certificate; only with TLS, and with `client_key`",
    ).default_is("none"), |it| tls(it, |it| it.client_cert.as_ref());

    CLIENT_KEY: Text = key(
        "client_key",
        Text::like("client.key"),
        "a PEM file of the key of `client_cert`",
    ).default_is("none"), |it| tls(it, |it| it.client_key.as_ref());

    INSECURE: Switch = key(
        "insecure",
        Switch { default: false },
        "`true` accepts any certificate of the server, and the report says so; only with TLS",
    ), |it| {
        let tls = it.url.is_secure().then_some(&it.tls);
        tls.and_then(|it| bare(it.insecure))
    };

    KEEP: Switch = key(
        "keep",
        Switch { default: false },
        "the keys that the run wrote stay in the store; otherwise the run removes them at the \
         end, where the store can remove keys",
    ), |it| it.calls.is_none().then_some(it.keep).and_then(bare);
}

/// A file of TLS as TOML writes it, where the plan names one.
fn tls(store: &Store, file: impl Fn(&Tls) -> Option<&String>) -> Option<String> {
    file(&store.tls).and_then(text)
}
