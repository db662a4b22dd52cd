//! The runtime under protocols whose libraries are asynchronous.

use std::io;
use std::pin::pin;
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

/// What a future gives in time. `future` makes it, since one that is ready at once needs no timer, and
/// most are.
pub(crate) fn within<T, F: Future<Output = T>>(
    runtime: &Runtime,
    patience: Duration,
    mut future: impl FnMut() -> F,
) -> Option<T> {
    let mut context = Context::from_waker(Waker::noop());
    if let Poll::Ready(given) = pin!(future()).poll(&mut context) {
        return Some(given);
    }
    runtime.block_on(async { tokio::time::timeout(patience, future()).await.ok() })
}
