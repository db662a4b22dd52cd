//! What the clients of a store do.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::http::{Http, Method};
use crate::message::Message;
use crate::model::Drive;
use crate::scenario::Scenario;
use crate::sql::Sql;
use crate::tls::Tls;
use crate::units::Bytes;
use crate::url::Url;

/// Clients of a store that runs already.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Store {
    /// Where it is, and which driver speaks to it.
    pub url: Url,
    /// What each client does.
    pub operations: Operations,
    /// How many keys there are.
    pub keys: u64,
    /// Which key is next.
    pub order: KeyOrder,
    /// How skewed a `zipf` or `latest` order is: the exponent.
    pub skew: f64,
    /// How long values are.
    pub value: ValueSize,
    /// How many replicas must have it; the store's own way when absent.
    pub level: Option<StoreLevel>,
    /// Requests that a closed client has open at once.
    pub pipeline: u32,
    /// How often a request that failed is tried again; each try is a row.
    pub retries: u8,
    /// Every key is written once before the run begins.
    #[serde(default)]
    pub preload: bool,
    /// How an HTTP server is asked; nothing for other stores.
    #[serde(default)]
    pub http: Option<Http>,
    /// What the server and its clients prove to each other, where they speak TLS.
    #[serde(default)]
    pub tls: Tls,
    /// What the clients of a database do.
    #[serde(default)]
    pub sql: Option<Sql>,
    /// What is sent to a server of messages.
    #[serde(default)]
    pub message: Option<Message>,
    /// The keys that the run wrote stay in the store.
    #[serde(default)]
    pub keep: bool,
    /// Payload of each call, where a program calls a middleware system; nothing for other stores.
    #[serde(default)]
    pub calls: Option<Bytes>,
    /// Where the run receives the spans of services.
    #[serde(default)]
    pub spans: Option<SocketAddr>,
}

impl Drive {
    /// Where the run receives the spans of services, if it does.
    #[must_use]
    pub fn spans(&self) -> Option<SocketAddr> {
        self.store.as_deref()?.spans
    }
}

impl Store {
    /// The path of the data file, where the plan names one.
    #[must_use]
    pub fn data(&self) -> Option<&str> {
        let of_http = self.http.as_ref().and_then(|it| it.data.as_deref());
        let of_sql = self.sql.as_ref().and_then(|it| it.data.as_deref());
        let of_message = self.message.as_ref().and_then(|it| it.data.as_deref());
        of_http.or(of_sql).or(of_message)
    }

    /// True unless there are no keys: an HTTP URL without `{key}`, a database, or messages.
    #[must_use]
    pub fn has_keys(&self) -> bool {
        self.url.has_keys() && self.scenario().is_none() && self.calls.is_none()
    }

    /// True if the clients may keep cookies: a web server is asked, which the run may start.
    pub(crate) fn may_have_cookies(&self) -> bool {
        self.url.may_have_cookies() || self.scenario().is_some()
    }

    /// The names of the operations of a database or of a scenario, by their numbers in the rows.
    #[must_use]
    pub fn named_operations(&self) -> Option<Vec<String>> {
        if let Some(scenario) = self.scenario() {
            let states = scenario.states().iter();
            return Some(states.map(|it| it.name.clone()).collect());
        }
        let sql = self.sql.as_ref()?;
        let operations = sql.script.operations().iter();
        Some(operations.map(|it| it.name.clone()).collect())
    }

    /// The name of every request in the rows, where no operation has one.
    #[must_use]
    pub fn request_name(&self) -> Option<String> {
        if self.calls.is_some() {
            return Some("call".to_owned());
        }
        if self.message.is_some() {
            let name = if self.url.is_dns() {
                "query"
            } else if self.url.is_kafka() {
                "produce"
            } else {
                "request"
            };
            return Some(name.to_owned());
        }
        let method = self.method()?;
        Some(if self.url.is_openai() {
            self.url.option("api").unwrap_or("chat").to_owned()
        } else if self.url.is_grpc() {
            let path = self.url.path.trim_end_matches('/');
            let name = path.rsplit('/').next().filter(|it| !it.is_empty());
            // The error that follows lists the methods that there are.
            name.unwrap_or("call").to_owned()
        } else {
            method.as_str().to_lowercase()
        })
    }

    /// What users of an HTTP server do, where the plan says it.
    #[must_use]
    pub fn scenario(&self) -> Option<&Scenario> {
        self.http.as_ref().and_then(|http| http.scenario.as_ref())
    }

    /// The method of every request, where the plan names one.
    #[must_use]
    pub fn method(&self) -> Option<&Method> {
        self.http.as_ref().and_then(|http| http.method.as_ref())
    }
}

/// What is done with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OperationKind {
    /// It gets a value.
    Write,
    /// Its value is read.
    Read,
}

impl OperationKind {
    /// All of them; the `op` of a row is one's place here.
    pub const ALL: [Self; 2] = [Self::Write, Self::Read];

    /// The word in plans and rows.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
        }
    }

    fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == word)
    }
}

/// What each client does with its keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Operations {
    /// These in turn, all with one key, and then with the next one.
    Turn(Vec<OperationKind>),
    /// One of these by chance, each with its percentage.
    Shares(Vec<(OperationKind, f64)>),
}

/// A text that says no operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be operations in turn, or shares of 100 %: \"write then read\", \"read 90%, write 10%\""
)]
pub struct OperationsError;

impl Operations {
    /// True if one of these is a write.
    #[must_use]
    pub fn writes(&self) -> bool {
        match self {
            Self::Turn(kinds) => kinds.contains(&OperationKind::Write),
            Self::Shares(shares) => shares.iter().any(|(kind, _)| *kind == OperationKind::Write),
        }
    }

    /// Whether a read may come before any write of its key.
    #[must_use]
    pub fn reads_first(&self) -> bool {
        match self {
            Self::Turn(kinds) => kinds.first() == Some(&OperationKind::Read),
            Self::Shares(shares) => shares.iter().any(|(kind, _)| *kind == OperationKind::Read),
        }
    }
}

impl FromStr for Operations {
    type Err = OperationsError;

    fn from_str(text: &str) -> Result<Self, OperationsError> {
        let kind = |word: &str| OperationKind::of(word.trim()).ok_or(OperationsError);
        if !text.contains('%') {
            let kinds: Vec<_> = text.split(" then ").map(kind).collect::<Result<_, _>>()?;
            return if kinds.len() > 64 {
                Err(OperationsError)
            } else {
                Ok(Self::Turn(kinds))
            };
        }
        let mut shares = Vec::new();
        for part in text.split(',') {
            let (word, share) = part.trim().rsplit_once(' ').ok_or(OperationsError)?;
            let share = share.strip_suffix('%').ok_or(OperationsError)?;
            let percent: f64 = share.parse().map_err(|_| OperationsError)?;
            let kind = kind(word)?;
            let twice = shares.iter().any(|(known, _)| *known == kind);
            if twice || !(percent > 0.0 && percent <= 100.0) {
                return Err(OperationsError);
            }
            shares.push((kind, percent));
        }
        let sum: f64 = shares.iter().map(|(_, percent)| percent).sum();
        if (sum - 100.0).abs() > 1e-6 {
            return Err(OperationsError);
        }
        Ok(Self::Shares(shares))
    }
}

impl fmt::Display for Operations {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Turn(kinds) => {
                let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
                names.join(" then ")
            }
            Self::Shares(shares) => {
                let parts = shares
                    .iter()
                    .map(|(kind, percent)| format!("{} {percent}%", kind.name()));
                parts.collect::<Vec<_>>().join(", ")
            }
        };
        formatter.pad(&text)
    }
}

/// Which key is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyOrder {
    /// One after the other, round and round.
    Turn,
    /// Each as likely.
    Uniform,
    /// A few most of the time: the k-th most liked as often as `k^-skew`.
    Zipf,
    /// The same, and the most liked is the one that was written last.
    Latest,
}

impl KeyOrder {
    /// The words in plans.
    pub(crate) const WORDS: [(&'static str, Self); 4] = [
        ("turn", Self::Turn),
        ("uniform", Self::Uniform),
        ("zipf", Self::Zipf),
        ("latest", Self::Latest),
    ];

    /// The word in plans.
    #[must_use]
    pub fn name(self) -> &'static str {
        let found = Self::WORDS.iter().find(|(_, order)| *order == self);
        found.map_or("", |(word, _)| word)
    }
}

/// How many replicas must have an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreLevel {
    /// One.
    First,
    /// A majority.
    Quorum,
    /// All.
    All,
}

impl StoreLevel {
    /// The words in plans.
    pub(crate) const WORDS: [(&'static str, Self); 3] = [
        ("first", Self::First),
        ("quorum", Self::Quorum),
        ("all", Self::All),
    ];

    /// The word in plans.
    #[must_use]
    pub fn name(self) -> &'static str {
        let found = Self::WORDS.iter().find(|(_, level)| *level == self);
        found.map_or("", |(word, _)| word)
    }

    /// How many of `copies` that is.
    #[must_use]
    pub fn of(self, copies: u32) -> u32 {
        match self {
            Self::First => copies.min(1),
            Self::Quorum => copies / 2 + 1,
            Self::All => copies,
        }
    }
}

/// How long values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ValueSize {
    /// All alike.
    Fixed(Bytes),
    /// Each length from the first to the second as likely.
    Uniform(Bytes, Bytes),
}

/// Largest value: memcached takes 1 MB as it comes, and Redis half a gigabyte.
const MAX_VALUE: Bytes = Bytes(16_000_000);

/// A text that says no size of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a size up to 16MB, or two: \"1000B\", \"100B to 10KB\"")]
pub struct ValueSizeError;

impl ValueSize {
    /// The longest.
    #[must_use]
    pub fn most(self) -> Bytes {
        match self {
            Self::Fixed(size) | Self::Uniform(_, size) => size,
        }
    }
}

impl FromStr for ValueSize {
    type Err = ValueSizeError;

    fn from_str(text: &str) -> Result<Self, ValueSizeError> {
        let size = |text: &str| {
            let size: Option<Bytes> = text.trim().parse().ok();
            size.filter(|size| *size <= MAX_VALUE && size.0 > 0)
                .ok_or(ValueSizeError)
        };
        match text.split_once(" to ") {
            None => size(text).map(Self::Fixed),
            Some((least, most)) => {
                let (least, most) = (size(least)?, size(most)?);
                if least < most {
                    Ok(Self::Uniform(least, most))
                } else {
                    Err(ValueSizeError)
                }
            }
        }
    }
}

impl fmt::Display for ValueSize {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(size) => formatter.pad(&size.to_string()),
            Self::Uniform(least, most) => formatter.pad(&format!("{least} to {most}")),
        }
    }
}

/// The conversions serde goes by.
macro_rules! as_text {
    ($($name:ident, $error:ident);*) => {$(
        impl TryFrom<String> for $name {
            type Error = $error;

            fn try_from(text: String) -> Result<Self, $error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.to_string()
            }
        }
    )*};
}
as_text!(Operations, OperationsError; ValueSize, ValueSizeError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_read_and_written_as_they_were() {
        for text in [
            "write then read",
            "read",
            "write then read then read",
            "read 90%, write 10%",
            "read 99.5%, write 0.5%",
        ] {
            let operations: Operations = text.parse().expect("they are");
            assert_eq!(operations.to_string(), text);
        }
        for text in [
            "",
            "scan",
            "read 90%",
            "read 50%, read 50%",
            "read 120%, write -20%",
            "read 90, write 10%",
            "read then",
            "read NaN%, write 10%",
        ] {
            assert_eq!(text.parse::<Operations>(), Err(OperationsError), "{text}");
        }
    }

    #[test]
    fn a_read_that_no_write_goes_before_is_known() {
        for (text, first) in [
            ("write then read", false),
            ("write", false),
            ("read then write", true),
            ("read 1%, write 99%", true),
        ] {
            let operations: Operations = text.parse().expect("they are");
            assert_eq!(operations.reads_first(), first, "{text}");
        }
    }

    #[test]
    fn sizes_of_values_are_read_and_written_as_they_were() {
        for text in ["1KB", "1B", "100B to 10KB"] {
            let size: ValueSize = text.parse().expect("it is one");
            assert_eq!(size.to_string(), text);
        }
        for text in ["0B", "10KB to 100B", "17MB", "1000", "1B to 1B"] {
            assert_eq!(text.parse::<ValueSize>(), Err(ValueSizeError), "{text}");
        }
    }

    #[test]
    fn a_majority_of_three_is_two() {
        assert_eq!(
            [StoreLevel::First, StoreLevel::Quorum, StoreLevel::All].map(|it| it.of(3)),
            [1, 2, 3]
        );
    }
}
