//! The keys of `[drive]` that speak of a store.

use std::str::FromStr;

use crate::error::PlanError;
use crate::http::{Codes, Http};
use crate::keys;
use crate::limits::*;
use crate::secret::shown;
use crate::section::{Limits, Section};
use crate::store::{KeyOrder, OperationKind, Operations, Store, StoreLevel, ValueSize};
use crate::units::Bytes;
use crate::url::{Url, UrlError};

/// Keys that mean nothing with a store, and why.
const OF_ECHO: [(&str, &str); 2] = [
    ("address", "the url says where the store is"),
    ("payload", "value says how long values are"),
];

/// Keys that mean nothing to a server that is not asked by HTTP.
const OF_HTTP: [&str; 2] = ["connections", "expect"];

/// Keys that mean nothing where every request asks for one and the same thing.
const OF_KEYS: [&str; 3] = ["keys", "order", "skew"];

/// Returns the store of a drive with this number of clients, or `None` if it calls an echo server.
pub(crate) fn store(section: &Section<'_>, clients: u32) -> Result<Option<Store>, PlanError> {
    const HINT: &str = "url = \"redis://127.0.0.1:6379\"";
    if !section.has("url") && !section.has("store") {
        let foreign = keys::STORE.iter().find(|key| section.has(key));
        return match foreign {
            Some(key) => {
                Err(section.refuse(key, "must be left out: an echo server has none", HINT))
            }
            None => Ok(None),
        };
    }
    for (key, reason) in OF_ECHO {
        if section.has(key) {
            let wanted = format!("must be left out: {reason}");
            return Err(section.refuse(key, wanted, format!("remove {key}")));
        }
    }
    let url = url(section, HINT)?;
    let keyed = !url.is_http() || url.has_key();
    if !keyed && let Some(key) = OF_KEYS.iter().find(|key| section.has(key)) {
        let wanted = "must be left out: the path has no {key}, so there are no keys";
        return Err(section.refuse(
            key,
            wanted,
            "write {key} in the path, where the key belongs",
        ));
    }
    let operations = operations(section, &url)?;
    let value = ValueSize::Fixed(Bytes(1_000));
    let order = section.choice("order", &KeyOrder::WORDS, Some(KeyOrder::Turn))?;
    let preload = preload(section, &url, &operations)?;
    let http = http(section, &url, clients)?;
    Ok(Some(Store {
        url,
        operations,
        keys: section.number("keys", &whole(if keyed { 250_000 } else { 1 }, MAX_KEYS))?,
        order,
        skew: skew(section, order)?,
        value: section.parsed("value", Some(value), "value = \"1000B\"")?,
        level: if section.has("level") {
            Some(section.choice("level", &StoreLevel::WORDS, None)?)
        } else {
            None
        },
        pipeline: section.whole("pipeline", &whole(1, MAX_PIPELINE.into()))?,
        retries: section.whole(
            "retries",
            &Limits {
                least: Some(0),
                ..whole(0, MAX_RETRIES.into())
            },
        )?,
        preload,
        http,
        keep: section.switch("keep", false)?,
    }))
}

/// What each client does. Nothing is written by HTTP unless the plan says so.
fn operations(section: &Section<'_>, url: &Url) -> Result<Operations, PlanError> {
    const HINT: &str = "operations = \"read 90%, write 10%\"";
    let default = match (url.is_http(), url.has_key()) {
        (false, _) => Some(vec![OperationKind::Write, OperationKind::Read]),
        (true, false) => Some(vec![OperationKind::Read]),
        (true, true) => None,
    };
    if default.is_none() && !section.has("operations") {
        return Err(section.complain(
            "operations",
            "the URL has {key}, and no operations say how to use the keys",
            "must be \"read\", or \"write then read\": an HTTP server is written to only when asked",
            "operations = \"read\"",
        ));
    }
    section.parsed("operations", default.map(Operations::Turn), HINT)
}

/// Whether each key is written first: where a read may come before it, and writing was asked for.
fn preload(section: &Section<'_>, url: &Url, operations: &Operations) -> Result<bool, PlanError> {
    let keyed = !url.is_http() || url.has_key();
    let may_write = !url.is_http() || operations.writes();
    let preload = section.switch("preload", keyed && may_write && operations.reads_first())?;
    if preload && !keyed {
        let wanted = "must be false: the path has no {key}, so there are no keys to write";
        return Err(section.refuse("preload", wanted, "remove preload"));
    }
    Ok(preload)
}

/// How an HTTP server is asked; nothing for other stores.
fn http(section: &Section<'_>, url: &Url, clients: u32) -> Result<Option<Http>, PlanError> {
    if !url.is_http() {
        return match OF_HTTP.iter().find(|key| section.has(key)) {
            Some(key) => {
                let wanted = "must be left out: only an http:// URL has it";
                Err(section.refuse(key, wanted, format!("remove {key}")))
            }
            None => Ok(None),
        };
    }
    Ok(Some(Http {
        connections: section.whole("connections", &whole(clients.into(), MAX_CLIENTS.into()))?,
        expect: section.parsed("expect", Some(Codes::default()), "expect = \"2xx, 404\"")?,
    }))
}

fn url(section: &Section<'_>, hint: &str) -> Result<Url, PlanError> {
    const STORE: &str = "store = \"redis\"";
    if let Some(name) = section.text("store", STORE)? {
        if section.has("url") {
            let wanted = "must be left out: the url says where the store is";
            return Err(section.refuse("store", wanted, "remove one of them"));
        }
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(section.refuse(
                "store",
                "must be the name of a service, or its file",
                STORE,
            ));
        }
        return Ok(Url::of_service(name));
    }
    // A value of another type may hold a password too, so errors never show it.
    let text = section
        .text("url", hint)
        .map_err(|_| section.complain("url", "url is no text", "must be one", hint))?;
    let text = text.unwrap_or_default();
    text.parse().map_err(|error| match error {
        UrlError::Form if shown(text) != format!("{text:?}") => section.complain(
            "url",
            format!("url is no place of a store: {}", shown(text)),
            error.to_string(),
            hint,
        ),
        UrlError::Form => section.refuse("url", error.to_string(), hint),
        // These complaints show it to nobody.
        UrlError::Password | UrlError::TwoSecrets => {
            let wanted = "must hold none, since plans are kept with their runs";
            section.complain(
                "url",
                "url holds a password or a token",
                wanted,
                "UNRULY_PASSWORD has it; {password} stands for it in the path or the query of http",
            )
        }
        UrlError::Ambiguous => section.complain(
            "url",
            "url holds an @ behind its first /, ? or #",
            "must have it before, so that no part of a password is taken for a path",
            "write %40 for an @ of the path",
        ),
    })
}

fn whole(default: u64, most: u64) -> Limits<u64> {
    Limits {
        default: Some(default),
        least: Some(1),
        most,
        example: default.max(1),
    }
}

/// The exponent of a skewed order.
fn skew(section: &Section<'_>, order: KeyOrder) -> Result<f64, PlanError> {
    const DEFAULT: f64 = 0.99;
    let skew = section.real("skew", Some(DEFAULT), (0.0, 10.0), DEFAULT)?;
    let skewed = matches!(order, KeyOrder::Zipf | KeyOrder::Latest);
    if !skewed && (skew - DEFAULT).abs() > f64::EPSILON {
        let wanted = "must be left out: only the orders zipf and latest are skewed";
        return Err(section.refuse("skew", wanted, "order = \"zipf\""));
    }
    Ok(skew)
}

impl Section<'_> {
    /// A text that says a value of some type; the default when absent.
    fn parsed<T>(&self, key: &str, default: Option<T>, hint: &str) -> Result<T, PlanError>
    where
        T: FromStr,
        T::Err: std::fmt::Display,
    {
        match self.text(key, hint)? {
            Some(text) => text
                .parse()
                .map_err(|error: T::Err| self.refuse(key, error.to_string(), hint)),
            None => default.ok_or_else(|| self.missing(key, "must be a string", hint.to_owned())),
        }
    }
}
