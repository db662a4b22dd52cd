//! Random stores of plans.

use proptest::prelude::*;
use unruly_plan::{
    Auth, Bytes, Http, KeyOrder, Message, Sql, Store, StoreLevel, Tls, Url, ValueSize,
};

/// Any store.
pub(crate) fn store() -> impl Strategy<Value = Store> {
    let words = (
        prop::sample::select(vec![
            "redis://h:1",
            "http://a,b:2/p?x=y",
            "http://a/{key}",
            "https://a/b",
            "postgres://u@a/b",
            "rediss://h:1",
            "tcp://h:1",
            "dns://h/a",
            "program:a b",
            "system:rmi",
            "null:",
        ]),
        prop::sample::select(vec!["write then read", "read", "read 12.5%, write 87.5%"]),
        prop::sample::select(vec!["1000B", "1KiB to 3KB"]),
    );
    let order = prop_oneof![
        Just((KeyOrder::Turn, 0.99)),
        (0.1..10.0).prop_map(|skew| (KeyOrder::Zipf, skew)),
        (0.1..10.0).prop_map(|skew| (KeyOrder::Latest, skew)),
        Just((KeyOrder::Uniform, 0.99)),
    ];
    let levels = [StoreLevel::First, StoreLevel::Quorum, StoreLevel::All];
    let level = prop::option::of(prop::sample::select(levels.to_vec()));
    let numbers = (1_u64..=100_000_000, 1_u32..=10_000, 0_u8..=100);
    (words, order, level, numbers).prop_map(
        |((url, operations, value), (order, skew), level, (keys, pipeline, retries))| {
            let url: Url = url.parse().expect("a url");
            let http = url
                .is_http()
                .then(|| http(&url, pipeline + 64, retries > 50));
            let has_method = http.as_ref().is_some_and(|it| it.method.is_some());
            // A program may be one of a store, or one that calls.
            let is_called = url.system().is_some() || url.is_program() && retries > 50;
            let calls = is_called.then_some(Bytes(keys % 1_000));
            let named = has_method || url.is_sql() || url.has_messages() || is_called;
            let operations = if named { "read" } else { operations };
            let store = Store {
                sql: url.is_sql().then(sql),
                message: url.has_messages().then(|| message(&url)),
                tls: tls(&url),
                url,
                operations: operations.parse().expect("operations"),
                keys,
                order,
                skew,
                value: value.parse().expect("a size"),
                level,
                pipeline,
                retries: if calls.is_some() { 0 } else { retries },
                preload: keys % 2 == 0,
                keep: keys % 3 == 0 && calls.is_none(),
                spans: (calls.is_some() || http.as_ref().is_some_and(|it| it.trace))
                    .then(|| ([127, 0, 0, 1], 4318).into()),
                http,
                calls,
            };
            without_keys(store)
        },
    )
}

/// A store whose keys have a meaning, or the same with the defaults of one that has none.
fn without_keys(store: Store) -> Store {
    if store.has_keys() {
        return store;
    }
    let of_messages = store.sql.is_some() || store.message.is_some();
    let unvalued = of_messages || store.calls.is_some();
    Store {
        value: if unvalued {
            ValueSize::Fixed(Bytes(1_000))
        } else {
            store.value
        },
        level: store.level.filter(|_| !unvalued),
        keys: 1,
        order: KeyOrder::Turn,
        skew: 0.99,
        preload: false,
        ..store
    }
}

/// All that a server by TLS has, and nothing elsewhere.
fn tls(url: &Url) -> Tls {
    let file = |name: &str| url.is_secure().then(|| name.to_owned());
    Tls {
        ca_cert: file("ca.pem"),
        client_cert: file("client.pem"),
        client_key: file("client.key"),
        insecure: url.is_secure(),
    }
}

/// A script of two operations.
fn sql() -> Sql {
    let text = "-- operation: a 50%\nSELECT {data.x};\n-- operation: b 50%\nSELECT ';'";
    Sql {
        script: text.parse().expect("a script"),
        data: Some("x.csv".to_owned()),
    }
}

/// A request of a form of its own, or the usual one.
fn http(url: &Url, connections: u32, usual: bool) -> Http {
    if usual {
        return Http {
            connections,
            ..Http::default()
        };
    }
    let headers = match url.is_secure() {
        true => "Accept: a/b",
        false => "Accept: a/b\nX-Token: {password}",
    };
    let method = (!url.has_key()).then(|| "POST".parse().expect("a method"));
    Http {
        connections,
        expect: "2xx, 404".parse().expect("codes"),
        body: method.is_some().then(|| "{\"item\": 7}\n".to_owned()),
        prompt: None,
        proto: None,
        cookies: url.is_secure(),
        trace: url.is_secure(),
        trace_url: url.is_secure().then(|| "http://h/{trace_id}".to_owned()),
        data: Some("users.csv".to_owned()),
        scenario: None,
        method,
        headers: headers.parse().expect("headers"),
        auth: if url.is_secure() {
            Auth::Bearer
        } else {
            Auth::OfUser
        },
        keep_alive: url.is_secure(),
        http2: url.is_secure(),
    }
}

/// A text where one is sent, and nothing where the URL says it all.
fn message(url: &Url) -> Message {
    Message {
        text: (!url.is_dns()).then(|| "get {data.x}".to_owned()),
        data: Some("x.csv".to_owned()),
    }
}
