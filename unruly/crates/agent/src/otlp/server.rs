//! The HTTP side: services send their spans to `/v1/traces`, as bytes or as JSON.
//!
//! Their metrics and logs are thanked for and forgotten, so that a service which exports everything
//! has nothing to complain of. Connections, bodies and waits are bounded.

use std::convert::Infallible;
use std::io::Read as _;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use flate2::read::MultiGzDecoder;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prost::Message as _;
use prost::encoding::{WireType, decode_key, decode_varint};
use unruly_trace::monotonic;

use super::keeper::Keeper;
use super::message::Export;

/// Each process of a service keeps one open.
const CONNECTIONS_MOST: usize = 256;
/// Bodies that come at once: what they take in memory is bounded.
const BODIES_MOST: usize = 8;
/// A batch of 512 spans, as exporters send them, has a quarter of a megabyte.
const BODY_BYTES: usize = 4 << 20;
/// A client that still sends does not read: a body that is refused is read to this size and
/// forgotten, so that the client sees the refusal and not a broken connection.
const REFUSED_BYTES: usize = 64 << 20;
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Exporters keep a connection between batches, which come every few seconds.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/x-protobuf";

type Answer = Response<Full<Bytes>>;
type Refusal = (StatusCode, String);

/// Serves on a thread of its own until the process ends.
///
/// Counts in `refused` the connections and batches that it did not take.
pub(super) fn serve(
    listener: TcpListener,
    keeper: Arc<Mutex<Keeper>>,
    refused: Arc<AtomicU64>,
) -> Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("spans: no event loop")?;
    let shared = Shared {
        keeper,
        refused,
        connections: Arc::default(),
        bodies: Arc::default(),
    };
    std::thread::spawn(move || runtime.block_on(accept(listener, shared)));
    Ok(())
}

/// What all connections share.
#[derive(Clone)]
struct Shared {
    keeper: Arc<Mutex<Keeper>>,
    refused: Arc<AtomicU64>,
    connections: Arc<AtomicUsize>,
    bodies: Arc<AtomicUsize>,
}

/// A place among a bounded number, given back when it is dropped.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(of: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let place = Self(Arc::clone(of));
        (of.fetch_add(1, Ordering::Relaxed) < most).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn accept(listener: TcpListener, shared: Shared) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        return;
    };
    let local = tokio::task::LocalSet::new();
    local
        .run_until(async move {
            loop {
                let Ok((socket, _)) = listener.accept().await else {
                    // no file is left: the next one may find one
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                let Some(place) = Place::take(&shared.connections, CONNECTIONS_MOST) else {
                    shared.refused.fetch_add(1, Ordering::Relaxed);
                    continue;
                };
                let shared = shared.clone();
                tokio::task::spawn_local(async move {
                    let _place = place;
                    let service = service_fn(move |request| answer(request, shared.clone()));
                    // A connection that breaks is its exporter's concern, which sends again.
                    let _ = http1::Builder::new()
                        .timer(TokioTimer::new())
                        .header_read_timeout(IDLE_TIMEOUT)
                        .max_buf_size(64 << 10)
                        .serve_connection(TokioIo::new(socket), service)
                        .await;
                });
            }
        })
        .await;
}

async fn answer(request: Request<Incoming>, shared: Shared) -> Result<Answer, Infallible> {
    let other = ["/v1/metrics", "/v1/logs"].contains(&request.uri().path());
    let may_have_spans = request.method() == Method::POST && !other;
    let found = match taken(request, &shared).await {
        Ok(answer) => answer,
        Err((status, why)) => {
            // After this status an exporter sends the batch again.
            if may_have_spans && status != StatusCode::SERVICE_UNAVAILABLE {
                shared.refused.fetch_add(1, Ordering::Relaxed);
            }
            refusal(status, &why)
        }
    };
    Ok(found)
}

/// Takes the body of a request; fails with a status and the reason.
async fn taken(request: Request<Incoming>, shared: &Shared) -> Result<Answer, Refusal> {
    let refuse = |status, why: &str| Err((status, why.to_owned()));
    let (head, body) = request.into_parts();
    if head.method != Method::POST {
        let why = "only POST is known; hint: POST /v1/traces";
        return refuse(StatusCode::METHOD_NOT_ALLOWED, why);
    }
    let Some(_place) = Place::take(&shared.bodies, BODIES_MOST) else {
        // exporters send again after this status
        return refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many batches at once; hint: send again",
        );
    };
    let body = match tokio::time::timeout(BODY_TIMEOUT, whole(body)).await {
        Ok(Some(body)) => body,
        Ok(None) => {
            let why =
                "the body did not come whole, or has more than 4 MiB; hint: export smaller batches";
            return refuse(StatusCode::PAYLOAD_TOO_LARGE, why);
        }
        Err(_) => {
            let why = "the body took over 10 s; hint: export smaller batches";
            return refuse(StatusCode::REQUEST_TIMEOUT, why);
        }
    };
    let is_json = is_json(&head.headers);
    match head.uri.path() {
        TRACES => {
            let export = export(&head.headers, &body, is_json)?;
            let mut keeper = shared.keeper.lock().unwrap_or_else(PoisonError::into_inner);
            keeper.take(&export, monotonic());
            Ok(thanks(is_json))
        }
        "/v1/metrics" | "/v1/logs" => Ok(thanks(is_json)),
        _ => refuse(
            StatusCode::NOT_FOUND,
            "this path is not known; hint: POST /v1/traces",
        ),
    }
}

/// Reads a body; returns nothing if it has more than [`BODY_BYTES`] or breaks off.
async fn whole(mut body: Incoming) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.ok()?.into_data() else {
            continue;
        };
        length += data.len();
        if length > REFUSED_BYTES {
            return None;
        }
        if length > BODY_BYTES {
            bytes = Vec::new();
        } else {
            bytes.extend_from_slice(&data);
        }
    }
    (length <= BODY_BYTES).then_some(bytes)
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .map_or(&b""[..], |it| it.as_bytes());
    kind.starts_with(JSON.as_bytes())
}

/// The message of a body.
fn export(headers: &HeaderMap, body: &[u8], json: bool) -> Result<Export, Refusal> {
    let encoding = headers.get(CONTENT_ENCODING).map(|it| it.as_bytes());
    let inflated;
    let body = match encoding {
        None | Some(b"" | b"identity") => body,
        Some(b"gzip") => {
            inflated = inflate(body)?;
            &inflated
        }
        Some(_) => {
            let why = "only gzip is known; hint: OTEL_EXPORTER_OTLP_COMPRESSION=none";
            return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, why.to_owned()));
        }
    };
    let bad = |why: String| (StatusCode::BAD_REQUEST, why);
    let begins = |byte: &&u8| matches!(**byte, b'{' | b'[');
    if json && body.iter().filter(begins).count() > OBJECTS_MOST {
        let why = "too many spans; hint: export smaller batches";
        Err((StatusCode::PAYLOAD_TOO_LARGE, why.to_owned()))
    } else if json {
        serde_json::from_slice(body)
            .map_err(|error| bad(format!("no spans as JSON: {error}; hint: send OTLP")))
    } else if is_too_many(body) {
        let why =
            format!("more than {MESSAGES_MOST} spans, or no OTLP; hint: export smaller batches");
        Err((StatusCode::PAYLOAD_TOO_LARGE, why))
    } else {
        Export::decode(body)
            .map_err(|error| bad(format!("no spans of OTLP: {error}; hint: send OTLP")))
    }
}

/// Where exporters send spans.
const TRACES: &str = "/v1/traces";

/// Messages in a batch: services, libraries and spans. An empty one has two bytes, and takes a hundred
/// in memory.
const MESSAGES_MOST: usize = 50_000;

/// Objects and lists in a batch of JSON, where attributes are objects too.
const OBJECTS_MOST: usize = 400_000;

/// True if a batch holds more messages than anybody exports at once.
fn is_too_many(body: &[u8]) -> bool {
    let mut left = MESSAGES_MOST;
    // Spans, in libraries, in services; attributes, in a resource, in services.
    exceeds(body, &[1, 2, 2], &mut left) || exceeds(body, &[1, 1, 1], &mut left)
}

/// Counts the messages on a way of tags down. A body that is none is refused when it is decoded.
fn exceeds(mut bytes: &[u8], way: &[u32], left: &mut usize) -> bool {
    let Some((first, rest)) = way.split_first() else {
        return false;
    };
    while let Ok((tag, wire)) = decode_key(&mut bytes) {
        let length = match wire {
            WireType::Varint => {
                if decode_varint(&mut bytes).is_err() {
                    return false;
                }
                0
            }
            WireType::SixtyFourBit => 8,
            WireType::ThirtyTwoBit => 4,
            WireType::LengthDelimited => match decode_varint(&mut bytes) {
                Ok(length) => usize::try_from(length).unwrap_or(usize::MAX),
                Err(_) => return false,
            },
            // No message of OTLP has groups, which a decoder would skip.
            WireType::StartGroup | WireType::EndGroup => return true,
        };
        let Some((own, behind)) = bytes.split_at_checked(length) else {
            return false;
        };
        bytes = behind;
        if tag == *first && wire == WireType::LengthDelimited {
            if *left == 0 {
                return true;
            }
            *left -= 1;
            if exceeds(own, rest, left) {
                return true;
            }
        }
    }
    false
}

fn inflate(body: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut bytes = Vec::new();
    let bound = BODY_BYTES as u64 + 1;
    MultiGzDecoder::new(body)
        .take(bound)
        .read_to_end(&mut bytes)
        .map_err(|error| (StatusCode::BAD_REQUEST, format!("no gzip: {error}")))?;
    if bytes.len() > BODY_BYTES {
        let why = "the body has more than 4 MiB; hint: export smaller batches";
        return Err((StatusCode::PAYLOAD_TOO_LARGE, why.to_owned()));
    }
    Ok(bytes)
}

/// All is taken: an empty message of the response.
fn thanks(json: bool) -> Answer {
    let (kind, body) = if json { (JSON, "{}") } else { (PROTOBUF, "") };
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    let kind = hyper::header::HeaderValue::from_static(kind);
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

fn refusal(status: StatusCode, why: &str) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(format!("unruly: {why}\n"))));
    *answer.status_mut() = status;
    answer
}
