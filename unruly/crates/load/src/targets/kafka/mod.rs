//! Apache Kafka, and what speaks its protocol: `kafka://host:9092/topic`, or `kafkas://` by TLS.
//!
//! First, a broker of the URL describes the topic before the run: its partitions, and the broker that
//! leads each. Second, every request is a record, to one partition after the other, over the
//! connection to its leader. Third, the request ends when the leader acknowledges the record, or with
//! `until=read` when the leader has also returned it to a fetch.

mod connection;
mod topic;
mod wire;

use std::sync::Arc;

use unruly_plan::{Portion, Secret};
use unruly_trace::DurationNs;

use super::template::{Data, Escape, Template};
use super::{Driver, DriverError, Route, Settings, without_level};
use crate::link::Place;
use crate::target::Target;
use connection::Connection;
use topic::Topic;

/// The port of a broker.
const PORT: u16 = 9092;

/// Longest that a broker waits for its replicas.
const WAIT_MS_MAX: i64 = 3_600_000;

pub(super) fn make(settings: &Settings<'_>) -> Result<Box<dyn Driver>, DriverError> {
    without_level(settings)?;
    let acknowledgements = acknowledgements(settings)?;
    let reads = reads(settings)?;
    let message = settings.store.message.clone().unwrap_or_default();
    let data = message.data.as_deref().map(Data::read).transpose()?;
    let text = message.text.unwrap_or_default();
    let value = Template::parse("message", &text, Escape::Body, data.as_ref())?;
    if let Some(file) = message.data.filter(|_| !value.has_data()) {
        return Err(DriverError::new(
            "data",
            format!("no value of {file} is sent"),
            "wanted {data.COLUMN} in the message",
            "see unruly/docs/messages.md",
        ));
    }
    let login = login(settings)?;
    let (topic, places) = Topic::find(settings, login.as_ref())?;
    let wait_ms = (settings.timeout_ns / DurationNs::millis(1)).clamp(1, WAIT_MS_MAX);
    Ok(Box::new(Kafka {
        places,
        records: Arc::new(Records {
            topic: Arc::new(topic),
            login,
            acknowledgements,
            reads,
            value,
            data,
            wait_ms: i32::try_from(wait_ms).unwrap_or(i32::MAX),
            seed: settings.seed,
            portion: settings.portion,
        }),
    }))
}

fn wrong_option(name: &str, word: &str, wanted: &str, right: &str) -> DriverError {
    DriverError::new(
        "url",
        format!("{name} is {word:?}"),
        format!("wanted {wanted}"),
        format!("kafka://host:9092/topic?{name}={right}"),
    )
}

/// How many replicas acknowledge a record, as the protocol says it: -1 is all that are in sync.
fn acknowledgements(settings: &Settings<'_>) -> Result<i16, DriverError> {
    match settings.store.url.option("acks") {
        None | Some("all") => Ok(-1),
        Some("1") => Ok(1),
        Some("0") => Err(DriverError::new(
            "url",
            "acks is \"0\"",
            "wanted all or 1: a broker that acknowledges nothing has no latency",
            "kafka://host:9092/topic?acks=1",
        )),
        Some(word) => Err(wrong_option("acks", word, "all or 1", "all")),
    }
}

/// True if a request ends when its record has been read.
fn reads(settings: &Settings<'_>) -> Result<bool, DriverError> {
    match settings.store.url.option("until") {
        None | Some("ack") => Ok(false),
        Some("read") => Ok(true),
        Some(word) => Err(wrong_option("until", word, "ack or read", "read")),
    }
}

/// The user and the password of SASL's PLAIN.
#[derive(Debug, Clone)]
struct Login {
    user: String,
    password: Secret,
}

fn login(settings: &Settings<'_>) -> Result<Option<Login>, DriverError> {
    let user = &settings.store.url.user;
    match (user.is_empty(), settings.password) {
        (true, None) => Ok(None),
        (false, Some(password)) => Ok(Some(Login {
            user: user.clone(),
            password: password.clone(),
        })),
        (true, Some(_)) => Err(DriverError::new(
            "url",
            "there is a password and no user",
            "wanted both, or none",
            "kafkas://USER@host:9093/topic",
        )),
        (false, None) => Err(DriverError::new(
            "password",
            format!("{user:?} has no password"),
            "wanted one: SASL needs it",
            "set UNRULY_PASSWORD, or --password-file",
        )),
    }
}

/// What requests are made of.
struct Records {
    topic: Arc<Topic>,
    login: Option<Login>,
    acknowledgements: i16,
    /// A request ends when its record has been read.
    reads: bool,
    value: Template,
    data: Option<Data>,
    wait_ms: i32,
    seed: u64,
    portion: Portion,
}

struct Kafka {
    places: Vec<Place>,
    records: Arc<Records>,
}

impl Driver for Kafka {
    fn places(&self) -> &[Place] {
        &self.places
    }

    fn target(&self, place: usize) -> Box<dyn Target> {
        Box::new(Connection::new(Arc::clone(&self.records), place))
    }

    fn about(&self) -> Option<String> {
        self.records.data.as_ref().map(Data::about)
    }

    fn route(&self) -> Option<Arc<dyn Route>> {
        Some(Arc::clone(&self.records.topic) as Arc<dyn Route>)
    }
}
