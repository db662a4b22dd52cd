//! A method of gRPC, over HTTP/2: `grpc://host:50051/package.Service/Method`.
//!
//! First, the types of the method's messages come from a `.proto` file or from the server itself, by
//! reflection. Second, the body of the plan is JSON, which becomes a message of that type; an array
//! is as many messages. Third, a response ends with a status, which decides what became of its
//! request. Each message of a streamed response is reported when it comes.

mod method;
mod reflection;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use unruly_plan::{Codes, Http as HttpPlan, Store};
use unruly_trace::{DurationNs, ErrorKind, GRPC_STATUSES};

use self::method::{Method, Name};
use self::wire::{Status, frames, status};
use super::http::{Form, Kept, places_of};
use super::http2::{About, Exchange, Request, Response, Streams};
use super::template::Data;
use super::{Driver, DriverError, Settings, without_level};
use crate::link::Place;
use crate::target::{Fate, Outgoing, Target};

/// The port that most servers and examples have.
const PORT: u16 = 50_051;
const TLS_PORT: u16 = 443;

/// The header that says how long the client waits.
const DEADLINE: &str = "grpc-timeout";

/// How long the server has to describe its methods.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Most rows of a data file whose messages are looked at before the run.
const ROWS_CHECKED: u64 = 100_000;

pub(super) fn make(settings: &Settings<'_>) -> Result<Box<dyn Driver>, DriverError> {
    without_level(settings)?;
    let name = Name::of(&settings.store.url.path)?;
    let mut store = store_of(settings.store, settings.timeout_ns);
    store.url.path = format!("/{}/{}", name.service, name.method);
    let settings = &Settings {
        store: &store,
        ..*settings
    };
    let http = store.http.clone().unwrap_or_default();
    let data = http.data.as_deref().map(Data::read).transpose()?;
    let data = data.map(Arc::new);
    let places = places_of(settings, &http, PORT, TLS_PORT)?;
    let method = match &http.proto {
        Some(file) => Method::of_file(&name, file)?,
        None => reflection::method(settings, &places, data.as_ref(), &name)?,
    };
    let method = Arc::new(method);
    let hosts = store.url.hosts.iter();
    let calls = hosts.map(|host| {
        let form = Form::of(settings, host, data.clone(), Kept::default())?;
        Ok(Arc::new(Calls::new(form, &http, Arc::clone(&method))?))
    });
    Ok(Box::new(Grpc {
        calls: calls.collect::<Result<_, _>>()?,
        places,
        data,
    }))
}

/// The store as HTTP/2 asks it.
fn store_of(store: &Store, timeout_ns: DurationNs) -> Store {
    let mut store = store.clone();
    let usual = if store.url.is_secure() {
        TLS_PORT
    } else {
        PORT
    };
    for (_, port) in &mut store.url.hosts {
        port.get_or_insert(usual);
    }
    if let Some(http) = &mut store.http {
        http.http2 = true;
        http.body.get_or_insert_with(|| "{}".to_owned());
        let deadline = wire::deadline(timeout_ns);
        let lines = format!(
            "{}\nContent-Type: application/grpc\nTE: trailers\n{DEADLINE}: {deadline}",
            http.headers
        );
        http.headers = lines.parse().unwrap_or_default();
    }
    store
}

struct Grpc {
    places: Vec<Place>,
    /// How each place is called.
    calls: Vec<Arc<Calls>>,
    data: Option<Arc<Data>>,
}

impl Driver for Grpc {
    fn places(&self) -> &[Place] {
        &self.places
    }

    fn about(&self) -> Option<String> {
        self.data.as_deref().map(Data::about)
    }

    fn target(&self, place: usize) -> Box<dyn Target> {
        let calls = Arc::clone(&self.calls[place]);
        Box::new(Streams::new(calls))
    }
}

/// The calls of one method.
struct Calls {
    form: Form,
    /// The numbers of the statuses that count as success.
    expect: Vec<u16>,
    method: Arc<Method>,
    /// The messages, where all requests have the same ones.
    fixed: Option<Bytes>,
}

impl Calls {
    /// The calls of a plan. Their messages are made once, so that a wrong one is found before the run.
    fn new(form: Form, http: &HttpPlan, method: Arc<Method>) -> Result<Self, DriverError> {
        let wrong = |words: String| {
            DriverError::new(
                "body",
                words,
                format!("wanted {} as JSON", method.input_name()),
                "see unruly/docs/grpc.md",
            )
        };
        let mut first = None;
        for body in form
            .bodies()
            .take(usize::try_from(ROWS_CHECKED).unwrap_or(usize::MAX))
        {
            let message = frames(&method, &body).map_err(wrong)?;
            first.get_or_insert(message);
        }
        let fixed = first.filter(|_| form.has_one_body());
        Ok(Self {
            form,
            expect: expected(&http.expect)?,
            method,
            fixed,
        })
    }

    /// What a response with this status says.
    fn judged(&self, status: &Status, messages: u64) -> Fate {
        if !self.expect.contains(&status.code) {
            return Fate::Failed(ErrorKind::Code, status.to_string().into_bytes());
        }
        if status.is_ok() && messages == 0 && !self.method.streams_replies() {
            let words = b"the status is OK, and no message came".to_vec();
            return Fate::Failed(ErrorKind::Protocol, words);
        }
        Fate::Done
    }
}

/// The numbers of statuses by their names.
fn expected(codes: &Codes) -> Result<Vec<u16>, DriverError> {
    let numbers = codes.names().iter().map(|name| {
        let place = GRPC_STATUSES.iter().position(|it| it == name);
        place
            .and_then(|place| u16::try_from(place).ok())
            .ok_or_else(|| {
                DriverError::new(
                    "expect",
                    format!("{name} is no status of gRPC"),
                    format!("wanted some of {}", GRPC_STATUSES.join(", ")),
                    "OK alone is success unless the plan says more",
                )
            })
    });
    numbers.collect()
}

impl Exchange for Calls {
    fn request(&self, outgoing: &Outgoing<'_>) -> Result<Request, String> {
        let (fields, json) = self.form.request(outgoing, false)?;
        let body = match &self.fixed {
            Some(fixed) => fixed.clone(),
            None => frames(&self.method, &json)?,
        };
        Ok(Request {
            fields,
            body,
            about: About::default(),
        })
    }

    fn reply(&self, response: Response) -> (Fate, Option<u16>) {
        let code = response.code;
        let Some(status) = status(&response) else {
            // A proxy may answer in the place of the server.
            if code != 200 {
                let words = format!("HTTP/2 {code}, and no gRPC status").into_bytes();
                return (Fate::Failed(ErrorKind::Code, words), Some(code));
            }
            let words = b"the response has no gRPC status".to_vec();
            return (Fate::Failed(ErrorKind::Protocol, words), None);
        };
        let fate = self.judged(&status, response.messages);
        (fate, Some(status.code))
    }

    fn has_messages(&self) -> bool {
        true
    }

    fn reports_messages(&self) -> bool {
        self.method.streams_replies()
    }
}
