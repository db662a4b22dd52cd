//! The runtime under protocols whose libraries are asynchronous.

use std::io;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

/// One thread for what the protocol does by itself: retransmissions, acknowledgements, timers.
pub(crate) fn runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
}

/// What a poll gives in time. What is ready at once needs no timer, and most is.
pub(crate) fn within<T>(
    runtime: &Runtime,
    patience: Duration,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Option<T> {
    if let Poll::Ready(given) = poll(&mut Context::from_waker(Waker::noop())) {
        return Some(given);
    }
    runtime.block_on(async {
        let given = tokio::time::timeout(patience, std::future::poll_fn(poll));
        given.await.ok()
    })
}
