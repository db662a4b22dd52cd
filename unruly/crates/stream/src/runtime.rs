//! The Tokio runtime for protocols whose libraries are asynchronous.

use std::io;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

/// Creates a runtime with one thread for the protocol's background work: retransmissions,
/// acknowledgements and timers.
pub(crate) fn runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
}

/// Returns the result of `poll`, or `None` after `timeout`. It polls once without a timer first,
/// because most results are ready at once.
pub(crate) fn within<T>(
    runtime: &Runtime,
    timeout: Duration,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Option<T> {
    if let Poll::Ready(given) = poll(&mut Context::from_waker(Waker::noop())) {
        return Some(given);
    }
    runtime.block_on(async {
        let given = tokio::time::timeout(timeout, std::future::poll_fn(poll));
        given.await.ok()
    })
}
