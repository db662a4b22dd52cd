//! The keys of `[drive]` that speak of a store.

use std::str::FromStr;

use crate::error::PlanError;
use crate::keys;
use crate::limits::*;
use crate::section::{Limits, Section};
use crate::store::{KeyOrder, OperationKind, Operations, Store, StoreLevel, ValueSize};
use crate::units::Bytes;
use crate::url::{Url, UrlError};

/// Keys that mean nothing with a store, and why.
const OF_ECHO: [(&str, &str); 2] = [
    ("address", "the url says where the store is"),
    ("payload", "value says how long values are"),
];

/// The store of a drive; none when it calls an echo server.
pub(crate) fn store(section: &Section<'_>) -> Result<Option<Store>, PlanError> {
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
    let write_then_read = Operations::Turn(vec![OperationKind::Write, OperationKind::Read]);
    let url = url(section, HINT)?;
    let operations = section.parsed(
        "operations",
        Some(write_then_read),
        "operations = \"read 90%, write 10%\"",
    )?;
    let value = ValueSize::Fixed(Bytes(1_000));
    let order = section.choice("order", &KeyOrder::WORDS, Some(KeyOrder::Turn))?;
    let preload = section.switch("preload", operations.reads_first())?;
    Ok(Some(Store {
        url,
        operations,
        keys: section.number("keys", &whole(250_000, MAX_KEYS))?,
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
    let text = section.text("url", hint)?.unwrap_or_default();
    text.parse().map_err(|error| match error {
        UrlError::Form => section.refuse("url", error.to_string(), hint),
        // The complaint shows it to nobody.
        UrlError::Password => {
            let wanted = "must hold none, since plans are kept with their runs";
            section.complain(
                "url",
                "url holds a password",
                wanted,
                "UNRULY_PASSWORD has it",
            )
        }
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
