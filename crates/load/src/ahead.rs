//! A schedule that is told before its time, for whoever keeps it in a process of its own.

use crate::source::{Due, Source};

/// Hands out the requests of another source some time before they are due. Their intended times stay what
/// they are: whoever is told of them waits.
#[derive(Debug)]
pub struct Ahead<S> {
    source: S,
    lead_ns: i64,
}

impl<S: Source> Ahead<S> {
    /// `source`, told `lead_ns` earlier.
    #[must_use]
    pub fn new(source: S, lead_ns: i64) -> Self {
        Self { source, lead_ns }
    }
}

impl<S: Source> Source for Ahead<S> {
    fn next_at_ns(&mut self) -> Option<i64> {
        let at_ns = self.source.next_at_ns()?;
        Some(at_ns.saturating_sub(self.lead_ns))
    }

    fn take(&mut self) -> Option<Due> {
        self.source.take()
    }

    fn ended(&mut self, session: usize, now_ns: i64) {
        self.source.ended(session, now_ns);
    }

    fn is_over(&mut self) -> bool {
        self.source.is_over()
    }
}
