//! Once a second: how a part is goes onto its board, and what should not be into the log.

use flurry_core::id::{DurationNs, MonoNs};
use tracing::warn;

use crate::link::{LinkCounts, LinkView};
use crate::metrics::{Board, Page};
use crate::node::Part;

const PERIOD: DurationNs = DurationNs::millis(1_000);

#[derive(Debug)]
pub(crate) struct Teller {
    name: String,
    board: Option<Board>,
    view: LinkView,
    /// The counts of the last time.
    seen: LinkCounts,
    next: MonoNs,
}

impl Teller {
    pub(crate) fn new(name: &str, board: Option<Board>, view: LinkView) -> Self {
        Self {
            name: name.to_owned(),
            board,
            view,
            seen: LinkCounts::default(),
            next: MonoNs(0),
        }
    }

    pub(crate) fn publish(&mut self, now: MonoNs, part: &impl Part) {
        if now < self.next {
            return;
        }
        self.next = now.after(PERIOD);
        let counts = self.view.counts();
        self.complain(&counts);
        self.seen = counts;
        if let Some(board) = &self.board {
            let mut page = Page::of(&self.name);
            messages(&mut page, &counts);
            part.report(&mut page);
            board.put(page);
        }
    }

    fn complain(&self, counts: &LinkCounts) {
        let part = self.name.as_str();
        for (now, before, what) in [
            (
                counts.foreign,
                self.seen.foreign,
                "without the cluster's key",
            ),
            (counts.replayed, self.seen.replayed, "old, or there before"),
            (counts.damaged, self.seen.damaged, "no message"),
        ] {
            let count = now - before;
            if count > 0 {
                warn!(part, count, "packets were dropped: {what}");
            }
        }
    }
}

fn messages(page: &mut Page, counts: &LinkCounts) {
    let name = (
        "flurry_messages_total",
        "Messages between the parts, by what became of them.",
    );
    for (outcome, count) in [
        ("received", counts.received),
        ("damaged", counts.damaged),
        ("foreign", counts.foreign),
        ("replayed", counts.replayed),
        ("sent", counts.sent),
        ("too_long", counts.too_long),
        ("not_taken", counts.not_taken),
    ] {
        page.counter(name, &[("outcome", outcome)], count);
    }
}
