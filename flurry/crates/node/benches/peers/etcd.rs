//! etcd's `Put` over gRPC: HTTP/2 with a body of two fields, so that no generated client is needed.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail, ensure};
use bytes::{BufMut as _, Bytes, BytesMut};
use h2::client::{SendRequest, handshake};
use http::Request;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::store::{Item, Store, TIMEOUT};

/// A connection with the loop that carries it, both on the thread that calls.
pub(crate) struct Connection {
    runtime: Runtime,
    sender: SendRequest<Bytes>,
    uri: String,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Result<Box<dyn Store>> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let sender = runtime.block_on(async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let (sender, connection) = handshake(stream).await?;
            // Its end shows as the error of the call that it ends.
            tokio::spawn(connection);
            anyhow::Ok(sender)
        })?;
        Ok(Box::new(Self {
            runtime,
            sender,
            uri: format!("http://{address}/etcdserverpb.KV/Put"),
        }))
    }
}

impl Store for Connection {
    fn set(&mut self, item: &Item) -> Result<()> {
        let call = put(&self.sender, &self.uri, item);
        self.runtime
            .block_on(async { timeout(TIMEOUT, call).await })
            .context("etcd: no answer in time")?
            .context("etcd")
    }

    fn get(&mut self, _item: &Item) -> Result<()> {
        bail!("etcd: reads are not compared; wanted `set`")
    }
}

async fn put(sender: &SendRequest<Bytes>, uri: &str, item: &Item) -> Result<()> {
    let request = Request::post(uri)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())?;
    let (response, mut body) = sender.clone().ready().await?.send_request(request, false)?;
    body.send_data(message(item)?, true)?;
    let mut reply = response.await?.into_body();
    while let Some(part) = reply.data().await {
        let bytes = part?.len();
        reply.flow_control().release_capacity(bytes)?;
    }
    let trailers = reply.trailers().await?.context("no status")?;
    let status = trailers.get("grpc-status").context("no status")?;
    ensure!(status == "0", "status {status:?}; wanted 0");
    Ok(())
}

/// A `PutRequest` with its frame: not compressed, its length, then key (field 1) and value (field 2).
fn message(item: &Item) -> Result<Bytes> {
    let mut fields = BytesMut::new();
    for (tag, bytes) in [(0x0a, &item.key), (0x12, &item.value)] {
        fields.put_u8(tag);
        // One byte is a whole length up to here.
        ensure!(bytes.len() < 0x80, "{} bytes; wanted fewer", bytes.len());
        fields.put_u8(u8::try_from(bytes.len())?);
        fields.put_slice(bytes);
    }
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(fields.len())?);
    framed.put_slice(&fields);
    Ok(framed.freeze())
}
