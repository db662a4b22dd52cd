//! Bytes in memory as the transport of the library for HTTP/2, which reads and writes nothing itself.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Received bytes that nobody has read, and written bytes that nobody has sent.
#[derive(Debug, Default)]
struct Buffers {
    input: Vec<u8>,
    /// Bytes of the input that were read.
    read: usize,
    output: Vec<u8>,
}

/// One end of the transport; its clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Pipe(Arc<Mutex<Buffers>>);

impl Pipe {
    fn buffers(&self) -> MutexGuard<'_, Buffers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds received bytes.
    pub(super) fn push(&self, input: &[u8]) {
        self.buffers().input.extend_from_slice(input);
    }

    /// Moves the written bytes to `out`.
    pub(super) fn take(&self, out: &mut Vec<u8>) {
        out.append(&mut self.buffers().output);
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut buffers = self.buffers();
        let rest = &buffers.input[buffers.read..];
        let count = rest.len().min(into.remaining());
        if count == 0 {
            // More comes when the connection is read; nobody has to be woken.
            return Poll::Pending;
        }
        into.put_slice(&rest[..count]);
        buffers.read += count;
        if buffers.read == buffers.input.len() {
            buffers.input.clear();
            buffers.read = 0;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.buffers().output.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
