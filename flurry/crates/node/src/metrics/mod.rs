//! How the parts of a process are, for Prometheus to read.
//!
//! Each thread puts a page of its numbers onto its board once a second, so that nobody who reads ever
//! waits for a thread that serves, nor it for him. All boards together are one text.

mod histogram;
mod http;
mod page;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use flurry_core::router::Router;

use crate::Error;
pub(crate) use histogram::Histogram;
pub use http::MetricsServer;
pub(crate) use page::Page;

/// The place where one thread publishes its metrics.
#[derive(Debug, Clone, Default)]
pub(crate) struct Board(Arc<Mutex<Page>>);

impl Board {
    pub(crate) fn put(&self, page: Page) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = page;
    }
}

/// The boards of the parts that were started with it.
#[derive(Debug, Clone, Default)]
pub struct Metrics(Arc<Mutex<Vec<Board>>>);

impl Metrics {
    /// A board more.
    pub(crate) fn board(&self) -> Board {
        let board = Board::default();
        let mut boards = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        boards.push(board.clone());
        board
    }

    /// Returns the latest metrics of all parts in Prometheus's text format.
    #[must_use]
    pub fn text(&self) -> String {
        let boards = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut whole = Page::default();
        for board in &*boards {
            whole.add(&board.0.lock().unwrap_or_else(PoisonError::into_inner));
        }
        whole.text()
    }

    /// Serves the metrics at `/metrics` of this address. Only an address of the loopback network is
    /// allowed, since the connection is not encrypted and collectors do not authenticate. A
    /// collector has to run on the same machine.
    ///
    /// # Errors
    ///
    /// [`Error::Address`] for an address that others could reach, [`Error::Io`] for a port that is taken.
    pub fn serve(&self, address: SocketAddr) -> Result<MetricsServer, Error> {
        MetricsServer::start(self.clone(), address)
    }
}

/// A count as a number of Prometheus.
#[expect(
    clippy::cast_precision_loss,
    reason = "a count of 2^53 is not worth a digit"
)]
pub(crate) fn count(count: usize) -> f64 {
    count as f64
}

/// Adds the metrics of a router, which may be a part of its own or inside an owner.
pub(crate) fn routed(router: &Router, page: &mut Page) {
    let counts = router.counts();
    let copies = (
        "flurry_copies_total",
        "Copies of operations that were sent.",
    );
    page.counter(
        copies,
        &[("kind", "first")],
        counts.copies - counts.repeated,
    );
    page.counter(copies, &[("kind", "repeated")], counts.repeated);
    let repairs = (
        "flurry_repairs_total",
        "Repairs of replicas that were behind.",
    );
    page.counter(repairs, &[("state", "sent")], counts.repairs);
    page.counter(repairs, &[("state", "put_off")], counts.repairs_put_off);
    let late = (
        "flurry_replies_late_total",
        "Replies to copies that were given up.",
    );
    page.counter(late, &[], counts.late);
    let divergent = (
        "flurry_replies_divergent_total",
        "Replies of replicas that differ.",
    );
    page.counter(divergent, &[], counts.divergent);
}
