//! etcd, by its gRPC: HTTP/2 with messages of a few fields, so that no generated client is needed.
//!
//! Each client has a connection, to the nodes in turn, and a runtime on its own thread.

use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::{BufMut as _, Bytes, BytesMut};
use h2::client::{SendRequest, handshake};
use http::Request;
use prost::Message;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use unruly_plan::StoreLevel;

use crate::{Client, Failure, Outcome, Settings, Store};

const PORT: u16 = 2_379;

/// Longest answer that is taken: the longest value, and more.
const ANSWER_BYTES_MAX: usize = 33 << 20;

/// What comes before each message: whether it is compressed, and its length.
const FRAME_BYTES: usize = 5;

#[derive(Clone, PartialEq, Message)]
struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    /// What the node itself has, which may be behind.
    #[prost(bool, tag = "7")]
    serializable: bool,
}

#[derive(Clone, PartialEq, Message)]
struct RangeResponse {
    #[prost(message, repeated, tag = "2")]
    kvs: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(bytes = "vec", tag = "5")]
    value: Vec<u8>,
}

pub(crate) struct Etcd {
    nodes: Vec<String>,
    level: Option<StoreLevel>,
    timeout: Duration,
}

pub(crate) fn open(settings: &Settings) -> Result<Etcd> {
    anyhow::ensure!(
        settings.level != Some(StoreLevel::All),
        "level: etcd knows first and quorum, and this is \"all\"; hint: --level quorum"
    );
    anyhow::ensure!(
        settings.url.user.is_empty(),
        "url: unruly does not log in at etcd; hint: leave the user out"
    );
    let etcd = Etcd {
        nodes: settings.hosts(PORT),
        level: settings.level,
        timeout: settings.timeout,
    };
    // Whether it is there at all, and has a leader.
    for (number, node) in etcd.nodes.iter().enumerate() {
        std::net::TcpStream::connect(node).with_context(|| node.clone())?;
        if let Outcome::Failed(_, words) = etcd.client(number)?.read("unruly") {
            anyhow::bail!("{node}: {words}");
        }
    }
    Ok(etcd)
}

impl Store for Etcd {
    fn client(&self, number: usize) -> Result<Box<dyn Client>> {
        Ok(Box::new(Connection {
            runtime: Builder::new_current_thread().enable_all().build()?,
            sender: None,
            node: self.nodes[number % self.nodes.len()].clone(),
            serializable: self.level == Some(StoreLevel::First),
            timeout: self.timeout,
        }))
    }
}

/// A connection with the loop that carries it, both on the thread that calls.
struct Connection {
    runtime: Runtime,
    sender: Option<SendRequest<Bytes>>,
    node: String,
    serializable: bool,
    timeout: Duration,
}

impl Client for Connection {
    fn write(&mut self, key: &str, value: &str) -> Outcome {
        let request = PutRequest {
            key: key.into(),
            value: value.into(),
        };
        match self.call("Put", &request) {
            Ok(_) => Outcome::Done,
            Err(outcome) => outcome,
        }
    }

    fn read(&mut self, key: &str) -> Outcome {
        let request = RangeRequest {
            key: key.into(),
            serializable: self.serializable,
        };
        let answer = match self.call("Range", &request) {
            Ok(answer) => answer,
            Err(outcome) => return outcome,
        };
        match RangeResponse::decode(answer) {
            Ok(mut found) if found.kvs.len() == 1 => Outcome::Found(found.kvs.swap_remove(0).value),
            Ok(_) => Outcome::Missing,
            Err(error) => Outcome::failed(Failure::Store, &error),
        }
    }
}

impl Connection {
    /// The message that answers a call, or what became of it instead.
    fn call(&mut self, method: &str, request: &impl Message) -> Result<Bytes, Outcome> {
        let uri = format!("http://{}/etcdserverpb.KV/{method}", self.node);
        let (sender, node) = (self.sender.take(), &self.node);
        let call = async {
            let sender = match sender {
                Some(sender) => sender,
                None => connect(node).await?,
            };
            let answered = ask(&sender, &uri, request).await?;
            anyhow::Ok((sender, answered))
        };
        let limit = self.timeout;
        let done = self.runtime.block_on(async { timeout(limit, call).await });
        let (sender, answered) = match done {
            Ok(Ok(done)) => done,
            // The next call makes a new connection.
            Ok(Err(error)) => {
                return Err(Outcome::Failed(Failure::Disconnected, format!("{error:#}")));
            }
            Err(_) => {
                return Err(Outcome::Failed(
                    Failure::Unavailable,
                    "no answer in time".to_owned(),
                ));
            }
        };
        self.sender = Some(sender);
        answered
    }
}

async fn connect(node: &str) -> Result<SendRequest<Bytes>> {
    let stream = TcpStream::connect(node).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(stream).await?;
    // Its end shows as the error of the call that it ends.
    tokio::spawn(connection);
    Ok(sender)
}

/// Asks, and says what gRPC says of it. An error is one of the connection.
async fn ask(
    sender: &SendRequest<Bytes>,
    uri: &str,
    request: &impl Message,
) -> Result<Result<Bytes, Outcome>> {
    let head = Request::post(uri)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())?;
    let (response, mut body) = sender.clone().ready().await?.send_request(head, false)?;
    body.send_data(framed(request), true)?;
    let (parts, mut reply) = response.await?.into_parts();
    let mut answer = BytesMut::new();
    while let Some(part) = reply.data().await {
        let part = part?;
        reply.flow_control().release_capacity(part.len())?;
        anyhow::ensure!(
            answer.len() + part.len() <= ANSWER_BYTES_MAX,
            "its answer has no end"
        );
        answer.extend_from_slice(&part);
    }
    let trailers = reply.trailers().await?;
    // A call that fails at once has its status in its head.
    let headers = trailers.as_ref().unwrap_or(&parts.headers);
    let status = headers
        .get("grpc-status")
        .or_else(|| parts.headers.get("grpc-status"));
    let status = status.and_then(|it| it.to_str().ok()).unwrap_or("none");
    if status == "0" {
        let message = answer.freeze();
        return Ok(Ok(message.slice(FRAME_BYTES.min(message.len())..)));
    }
    let words = headers
        .get("grpc-message")
        .and_then(|it| it.to_str().ok())
        .unwrap_or_default();
    let kind = match status {
        "7" | "16" => Failure::Denied,
        "4" | "14" => Failure::Unavailable,
        _ => Failure::Store,
    };
    Ok(Err(Outcome::Failed(
        kind,
        format!("status {status} {words}"),
    )))
}

/// A message with its frame, not compressed.
fn framed(message: &impl Message) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(0);
    out.put_u32(u32::try_from(message.encoded_len()).unwrap_or(u32::MAX));
    out.put_slice(&message.encode_to_vec());
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_of_etcd() {
        let put = PutRequest {
            key: b"k".to_vec(),
            value: b"vv".to_vec(),
        };
        assert_eq!(framed(&put), &b"\0\0\0\0\x07\x0a\x01k\x12\x02vv"[..]);
        let range = RangeRequest {
            key: b"k".to_vec(),
            serializable: true,
        };
        assert_eq!(range.encode_to_vec(), b"\x0a\x01k\x38\x01");
        let response =
            RangeResponse::decode(&b"\x0a\0\x12\x09\x0a\x01k\x10\x05\x2a\x02vv"[..]).unwrap();
        assert_eq!(response.kvs[0].value, b"vv");
    }
}
