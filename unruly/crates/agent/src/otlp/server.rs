//! The HTTP side: services send their spans to `/v1/traces`, as bytes or as JSON.
//!
//! Their metrics and logs are thanked for and forgotten, so that a service which exports everything
//! has nothing to complain of. Connections, bodies and waits are bounded.

use std::convert::Infallible;
use std::io::Read as _;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use flate2::read::MultiGzDecoder;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prost::Message as _;
use unruly_trace::monotonic;

use super::keeper::Keeper;
use super::message::Export;

const CONNECTIONS_MOST: usize = 16;
/// A batch of 8,192 spans, the most that a collector sends unless told otherwise, has half as many.
const BODY_BYTES: usize = 8 << 20;
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Exporters keep a connection between batches, which come every few seconds.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/x-protobuf";

type Answer = Response<Full<Bytes>>;

/// Serves on a thread of its own until the process ends.
pub(super) fn serve(listener: TcpListener, keeper: Arc<Mutex<Keeper>>) -> Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("spans: no event loop")?;
    std::thread::spawn(move || runtime.block_on(accept(listener, keeper)));
    Ok(())
}

async fn accept(listener: TcpListener, keeper: Arc<Mutex<Keeper>>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        return;
    };
    let open = Arc::new(AtomicUsize::new(0));
    let local = tokio::task::LocalSet::new();
    local
        .run_until(async move {
            loop {
                let Ok((socket, _)) = listener.accept().await else {
                    // no file is left: the next one may find one
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                if open.load(Ordering::Relaxed) >= CONNECTIONS_MOST {
                    continue;
                }
                open.fetch_add(1, Ordering::Relaxed);
                let (keeper, open) = (Arc::clone(&keeper), Arc::clone(&open));
                tokio::task::spawn_local(async move {
                    let service = service_fn(move |request| answer(request, Arc::clone(&keeper)));
                    // A connection that breaks is its exporter's concern, which sends again.
                    let _ = http1::Builder::new()
                        .timer(TokioTimer::new())
                        .header_read_timeout(IDLE_TIMEOUT)
                        .max_buf_size(64 << 10)
                        .serve_connection(TokioIo::new(socket), service)
                        .await;
                    open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        })
        .await;
}

async fn answer(
    request: Request<Incoming>,
    keeper: Arc<Mutex<Keeper>>,
) -> Result<Answer, Infallible> {
    let path = request.uri().path().to_owned();
    if request.method() != Method::POST {
        return Ok(refusal(
            StatusCode::METHOD_NOT_ALLOWED,
            "only POST is known",
        ));
    }
    let (head, body) = request.into_parts();
    let read = Limited::new(body, BODY_BYTES).collect();
    let body = match tokio::time::timeout(BODY_TIMEOUT, read).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => {
            return Ok(refusal(
                StatusCode::PAYLOAD_TOO_LARGE,
                "the body did not come whole, or has more than 8 MiB; hint: smaller batches",
            ));
        }
        Err(_) => {
            return Ok(refusal(
                StatusCode::REQUEST_TIMEOUT,
                "the body took over 10 s",
            ));
        }
    };
    let is_json = is_json(&head.headers);
    Ok(match path.as_str() {
        "/v1/traces" => match export(&head.headers, &body, is_json) {
            Ok(export) => {
                let mut keeper = keeper.lock().unwrap_or_else(PoisonError::into_inner);
                keeper.take(&export, monotonic());
                thanks(is_json)
            }
            Err((status, why)) => refusal(status, &why),
        },
        "/v1/metrics" | "/v1/logs" => thanks(is_json),
        _ => refusal(StatusCode::NOT_FOUND, "spans are sent to /v1/traces"),
    })
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .map_or(&b""[..], |it| it.as_bytes());
    kind.starts_with(JSON.as_bytes())
}

/// The message of a body.
fn export(headers: &HeaderMap, body: &[u8], json: bool) -> Result<Export, (StatusCode, String)> {
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
    if json {
        serde_json::from_slice(body).map_err(|error| bad(format!("no spans as JSON: {error}")))
    } else {
        Export::decode(body).map_err(|error| bad(format!("no spans of OTLP: {error}")))
    }
}

fn inflate(body: &[u8]) -> Result<Vec<u8>, (StatusCode, String)> {
    let mut bytes = Vec::new();
    let bound = BODY_BYTES as u64 + 1;
    MultiGzDecoder::new(body)
        .take(bound)
        .read_to_end(&mut bytes)
        .map_err(|error| (StatusCode::BAD_REQUEST, format!("no gzip: {error}")))?;
    if bytes.len() > BODY_BYTES {
        let why = "the body has more than 8 MiB; hint: smaller batches";
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
