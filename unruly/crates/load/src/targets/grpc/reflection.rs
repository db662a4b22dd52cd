//! Asks a server for its methods (the service `grpc.reflection`), before the run.
//!
//! First, the file that describes the service is asked for. Second, the files that it imports are
//! asked for, until all are known. An older server has the same service under an older name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use prost::{Message, Oneof};
use prost_reflect::DescriptorPool;
use prost_reflect::prost_types::FileDescriptorProto;
use unruly_plan::{Headers, Http};
use unruly_trace::{DurationNs, ErrorKind, MonoNs, monotonic};

use super::super::http::{Form, Kept};
use super::super::http2::{
    About, Exchange, Request as Http2Request, Response as Http2Response, Streams,
};
use super::super::template::Data;
use super::super::{DriverError, Settings};
use super::method::{Method, Name, no_service};
use super::wire::{frame, status};
use super::{DEADLINE, DESCRIBE_TIMEOUT};
use crate::introduction::Conversation;
use crate::link::Place;
use crate::target::{Fate, Operation, Outgoing};

/// The service's paths, the newer one first.
const PATHS: [&str; 2] = [
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// Most files that a service may consist of.
const FILES_MAX: usize = 1_000;

/// The status of a call of a method that there is not.
const UNIMPLEMENTED: u16 = 12;

#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(oneof = "Question", tags = "3, 4, 7")]
    question: Option<Question>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Question {
    #[prost(string, tag = "3")]
    FileByFilename(String),
    #[prost(string, tag = "4")]
    FileContainingSymbol(String),
    #[prost(string, tag = "7")]
    ListServices(String),
}

#[derive(Clone, PartialEq, Message)]
struct Response {
    #[prost(oneof = "Answer", tags = "4, 6, 7")]
    answer: Option<Answer>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Answer {
    #[prost(message, tag = "4")]
    Files(Files),
    #[prost(message, tag = "6")]
    Services(Services),
    #[prost(message, tag = "7")]
    Error(Refusal),
}

#[derive(Clone, PartialEq, Message)]
struct Files {
    #[prost(bytes = "vec", repeated, tag = "1")]
    files: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct Services {
    #[prost(message, repeated, tag = "1")]
    services: Vec<Service>,
}

#[derive(Clone, PartialEq, Message)]
struct Service {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct Refusal {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    words: String,
}

/// The method that a URL names, as the first host describes it.
///
/// # Errors
///
/// When the server cannot be reached, has no reflection, or has no such method.
pub(super) fn method(
    settings: &Settings<'_>,
    places: &[Place],
    data: Option<&Arc<Data>>,
    name: &Name,
) -> Result<Method, DriverError> {
    let Some(place) = places.first() else {
        return Err(wrong("it has no host".to_owned()));
    };
    let until_ns = monotonic() + DurationNs::from(DESCRIBE_TIMEOUT);
    for path in PATHS {
        let mut server = Server::open(settings, place, data.cloned(), path, until_ns)?;
        if let Some(found) = server.method(name)? {
            return Ok(found);
        }
    }
    Err(DriverError::new(
        "proto",
        format!("{place} does not describe its methods: it has no reflection"),
        "wanted a .proto file that does",
        "name the file that the service was made from",
    ))
}

/// Headers without the deadline of a call, which may be shorter than a description takes.
fn without_deadline(headers: &Headers) -> Headers {
    let others = headers.iter().filter(|(name, _)| *name != DEADLINE);
    let lines: Vec<String> = others
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    lines.join("\n").parse().unwrap_or_default()
}

fn wrong(words: String) -> DriverError {
    DriverError::new(
        "url",
        words,
        "wanted a gRPC server that describes its methods",
        "is it running, and is the port right? a .proto file (proto) needs no description",
    )
}

/// A server that is asked about itself.
struct Server {
    conversation: Conversation,
    asking: Arc<Asking>,
    asked: u64,
    until_ns: MonoNs,
}

impl Server {
    fn open(
        settings: &Settings<'_>,
        place: &Place,
        data: Option<Arc<Data>>,
        path: &str,
        until_ns: MonoNs,
    ) -> Result<Self, DriverError> {
        let mut store = settings.store.clone();
        path.clone_into(&mut store.url.path);
        // The values of the data file are those of the calls.
        store.http = store.http.map(|http| Http {
            body: None,
            data: None,
            headers: without_deadline(&http.headers),
            ..http
        });
        let host = store.url.hosts.first().cloned().unwrap_or_default();
        let asked = Settings {
            store: &store,
            ..*settings
        };
        let asking = Arc::new(Asking {
            form: Form::of(&asked, &host, data, Kept::default())?,
            body: Mutex::default(),
        });
        let exchange: Arc<dyn Exchange> = Arc::clone(&asking) as _;
        let conversation = Conversation::open(place, Box::new(Streams::new(exchange)), until_ns)
            .map_err(|error| wrong(error.what()))?;
        Ok(Self {
            conversation,
            asking,
            asked: 0,
            until_ns,
        })
    }

    /// The method of this name; `None` where the server has no such reflection.
    fn method(&mut self, name: &Name) -> Result<Option<Method>, DriverError> {
        if name.service.is_empty() {
            return match self.services()? {
                Some(services) => Err(missing(name, &services)),
                None => Ok(None),
            };
        }
        let question = Question::FileContainingSymbol(name.service.clone());
        let mut pending = match self.ask(vec![question])? {
            None => return Ok(None),
            Some(answers) => match answers.into_iter().next() {
                Some(Answer::Files(files)) => files.files,
                _ => {
                    let services = self.services()?.unwrap_or_default();
                    return Err(missing(name, &services));
                }
            },
        };
        // Well-known types need no description.
        let mut pool = DescriptorPool::global();
        let mut known: BTreeMap<String, FileDescriptorProto> = BTreeMap::new();
        loop {
            let before = known.len();
            for bytes in pending.drain(..) {
                let file = FileDescriptorProto::decode(bytes.as_slice())
                    .map_err(|error| wrong(format!("its description is damaged: {error}")))?;
                known.insert(file.name().to_owned(), file);
            }
            let unknown = unknown(&known, &pool);
            if unknown.is_empty() {
                break;
            }
            // A file that has another name than the one that was asked for would never end the list.
            if known.len() == before {
                let names = unknown.join(", ");
                return Err(wrong(format!("it does not describe {names}")));
            }
            if known.len() + unknown.len() > FILES_MAX {
                return Err(wrong(format!("its description has over {FILES_MAX} files")));
            }
            let questions = unknown.iter().cloned().map(Question::FileByFilename);
            for answer in self.ask(questions.collect())?.unwrap_or_default() {
                match answer {
                    Answer::Files(files) => pending.extend(files.files),
                    Answer::Error(error) => return Err(wrong(error.words)),
                    Answer::Services(_) => {}
                }
            }
        }
        pool.add_file_descriptor_protos(known.into_values())
            .map_err(|error| wrong(format!("its description is damaged: {error}")))?;
        Method::of_pool(name, &pool, "the server has").map(Some)
    }

    /// The names of all services; `None` where the server has no such reflection.
    fn services(&mut self) -> Result<Option<Vec<String>>, DriverError> {
        let answers = self.ask(vec![Question::ListServices(String::new())])?;
        Ok(answers.map(|answers| {
            let lists = answers.into_iter().filter_map(|answer| match answer {
                Answer::Services(list) => Some(list.services),
                _ => None,
            });
            lists.flatten().map(|it| it.name).collect()
        }))
    }

    /// Asks questions over one stream. `None` where the server has no such reflection.
    fn ask(&mut self, questions: Vec<Question>) -> Result<Option<Vec<Answer>>, DriverError> {
        let mut body = BytesMut::new();
        for question in questions {
            let question = Some(question);
            frame(&Request { question }.encode_to_vec(), &mut body);
        }
        *self
            .asking
            .body
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = body.freeze();
        let outgoing = Outgoing {
            request: self.asked,
            number: 0,
            session: 0,
            intended_ns: MonoNs(0),
            operation: Operation::Read { key: "" },
        };
        self.asked += 1;
        let reply = self.conversation.ask_in_stream(&outgoing, self.until_ns);
        let reply = reply.map_err(|error| wrong(error.what()))?;
        match (reply.fate, reply.code) {
            (Fate::Found(body), _) => answers(&body).map(Some),
            (_, Some(UNIMPLEMENTED)) => Ok(None),
            (Fate::Failed(_, words), _) => {
                let words = String::from_utf8_lossy(&words);
                Err(wrong(format!("it does not describe its methods: {words}")))
            }
            _ => Err(wrong("it does not describe its methods".to_owned())),
        }
    }
}

/// The imported files that are not known, each once.
fn unknown(known: &BTreeMap<String, FileDescriptorProto>, pool: &DescriptorPool) -> Vec<String> {
    let imported = known.values().flat_map(|file| &file.dependency);
    let unknown =
        imported.filter(|name| !known.contains_key(*name) && pool.get_file_by_name(name).is_none());
    let unknown: BTreeSet<&String> = unknown.collect();
    unknown.into_iter().cloned().collect()
}

fn missing(name: &Name, services: &[String]) -> DriverError {
    let own = services.iter().map(String::as_str);
    let others = own.filter(|it| !it.starts_with("grpc.reflection."));
    no_service(name, others, "the server has")
}

/// The answers in a body.
fn answers(mut body: &[u8]) -> Result<Vec<Answer>, DriverError> {
    let damaged = || wrong("its description is damaged".to_owned());
    let mut found = Vec::new();
    while let Some((prefix, rest)) = body.split_first_chunk::<5>() {
        let [compressed, length @ ..] = *prefix;
        let length = usize::try_from(u32::from_be_bytes(length)).map_err(|_| damaged())?;
        if compressed != 0 || length > rest.len() {
            return Err(damaged());
        }
        let (message, rest) = rest.split_at(length);
        let response = Response::decode(message).map_err(|_| damaged())?;
        found.extend(response.answer);
        body = rest;
    }
    Ok(found)
}

/// Questions as calls.
struct Asking {
    form: Form,
    body: Mutex<Bytes>,
}

impl Exchange for Asking {
    fn request(&self, outgoing: &Outgoing<'_>) -> Result<Http2Request, String> {
        let (fields, _) = self.form.request(outgoing, false)?;
        let body = self.body.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Http2Request {
            fields,
            body: body.clone(),
            about: About {
                keeps_body: true,
                ..About::default()
            },
        })
    }

    fn reply(&self, response: Http2Response) -> (Fate, Option<u16>) {
        match status(&response) {
            Some(status) if status.is_ok() => (Fate::Found(response.body), Some(0)),
            Some(status) => {
                let words = status.to_string().into_bytes();
                (Fate::Failed(ErrorKind::Code, words), Some(status.code))
            }
            None => {
                let words = format!("HTTP/2 {}", response.code).into_bytes();
                (Fate::Failed(ErrorKind::Code, words), None)
            }
        }
    }
}
