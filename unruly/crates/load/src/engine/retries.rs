//! Requests of a store that are tried again: each try is a row, and none is hidden.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use unruly_trace::{DurationNs, MonoNs, Record, Status, monotonic};

use super::{Engine, NOBODY};
use crate::pending::Asked;

/// Pause before the second try; doubles with each, up to the longest.
const PAUSE_MIN: DurationNs = DurationNs::millis(1);
const PAUSE_MAX: DurationNs = DurationNs::seconds(1);

/// Where the number of a try stands in the ticket of its copy.
const ATTEMPT_SHIFT: u32 = 56;

/// What waits to be tried again, by when.
#[derive(Debug, Default)]
pub(super) struct Retries {
    due: BinaryHeap<Reverse<(MonoNs, usize)>>,
    waiting: Vec<Option<Asked>>,
    free: Vec<usize>,
}

impl Retries {
    pub(super) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    pub(super) fn next_at_ns(&self) -> Option<MonoNs> {
        self.due.peek().map(|Reverse((at_ns, _))| *at_ns)
    }

    fn add(&mut self, at_ns: MonoNs, asked: Asked) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.waiting.push(None);
            self.waiting.len() - 1
        });
        self.waiting[place] = Some(asked);
        self.due.push(Reverse((at_ns, place)));
    }

    /// The next one that is due by `now_ns`.
    fn take(&mut self, now_ns: MonoNs) -> Option<Asked> {
        let Reverse((_, place)) = *self.due.peek().filter(|it| it.0.0 <= now_ns)?;
        self.due.pop();
        self.free.push(place);
        self.waiting[place].take()
    }
}

impl Engine<'_> {
    /// Whether a copy that failed is tried again.
    pub(super) fn may_retry(&self, record: &Record, asked: &Asked) -> bool {
        let somebody = self.pending.session_of(asked.group) != NOBODY;
        asked.task.is_some() && somebody && record.attempt < self.options.retries
    }

    /// A copy failed: it is tried again, if it may be.
    pub(super) fn will_retry(&mut self, record: &Record, asked: &Asked) -> bool {
        // Nothing is retried at the end, and a wrong answer is not retried because it would stay
        // wrong.
        let told = matches!(
            record.status,
            Status::WrongStale | Status::WrongLost | Status::Wrong
        );
        if told || record.status == Status::Unfinished || !self.may_retry(record, asked) {
            return false;
        }
        if let (Some(work), Some(task)) = (&mut self.work, &asked.task) {
            work.failed(task);
        }
        let pause_ns = PAUSE_MIN * (1 << record.attempt.min(10));
        let due_ns = monotonic() + pause_ns.min(PAUSE_MAX);
        let attempt = record.attempt + 1;
        let empty = Record::empty();
        let again = Asked {
            record: Record {
                attempt,
                sent_ns: empty.sent_ns,
                sent_bytes: 0,
                waited: false,
                supersedes: false,
                ..asked.record
            },
            // Each try has the whole timeout.
            since_ns: due_ns,
            part_ns: None,
            moves: 0,
            announced: false,
            ticket: asked.record.request | u64::from(attempt) << ATTEMPT_SHIFT,
            ..*asked
        };
        self.retries.add(due_ns, again);
        true
    }

    /// Sends the tries that are due.
    pub(super) fn try_again(&mut self, now_ns: MonoNs) {
        while let Some(asked) = self.retries.take(now_ns) {
            let session = self.pending.session_of(asked.group);
            let asked = self.routed(asked);
            self.submit(asked, 0, session);
        }
        self.flush_fresh();
    }

    /// Ends the waiting retries at the end of the run. They count as unfinished.
    pub(super) fn give_up_retries(&mut self) {
        while let Some(asked) = self.retries.take(MonoNs(i64::MAX)) {
            self.task_ended(asked.task, Status::Unfinished);
            let ended = self.pending.end(asked.group, false);
            self.pending.release(asked.group);
            self.request_over(asked.link, &ended);
        }
    }
}
