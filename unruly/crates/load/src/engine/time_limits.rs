//! Time limits of requests: the note in the spool, the timeout, and the end of waiting for late replies.

use std::time::Duration;

use unruly_trace::{DurationNs, MonoNs, Record, Status};

use super::{Engine, NOTE_AFTER};
use crate::pending::{Asked, Slot, TimeLimit};

/// How long the end of a run waits at a time for the recorder to make room.
const DRAIN_PAUSE: Duration = Duration::from_millis(1);

impl Engine<'_> {
    fn delay_ns(&self, limit: TimeLimit) -> DurationNs {
        match limit {
            TimeLimit::Note => NOTE_AFTER,
            TimeLimit::Timeout => self.options.timeout_ns,
            TimeLimit::Linger => self.options.timeout_ns + self.options.linger_ns,
        }
    }

    pub(super) fn next_time_limit_ns(&mut self) -> Option<MonoNs> {
        [TimeLimit::Note, TimeLimit::Timeout, TimeLimit::Linger]
            .into_iter()
            .filter_map(|limit| {
                let delay_ns = self.delay_ns(limit);
                self.pending
                    .first(limit)
                    .map(|(_, since_ns)| since_ns + delay_ns)
            })
            .min()
    }

    /// Ends each copy whose time limit has passed, as long as the recorder has room for the rows. A
    /// row without room would be lost, so the remaining copies wait a moment longer.
    pub(super) fn keep_time_limits(&mut self, now_ns: MonoNs) {
        for limit in [TimeLimit::Note, TimeLimit::Timeout, TimeLimit::Linger] {
            let delay_ns = self.delay_ns(limit);
            while let Some((slot, since_ns)) = self.pending.first(limit) {
                if since_ns + delay_ns > now_ns || self.recorder.is_crowded() {
                    break;
                }
                self.pending.pop(limit);
                match limit {
                    TimeLimit::Note => self.note(slot),
                    TimeLimit::Timeout => self.time_out(slot),
                    TimeLimit::Linger => self.give_up(slot),
                }
            }
        }
    }

    fn note(&mut self, slot: Slot) {
        let Some(copy) = self.pending.at(slot) else {
            return;
        };
        let status = if copy.timed_out {
            Status::Timeout
        } else {
            Status::Unfinished
        };
        let noted = self.recorder.note_open(&Record {
            status,
            ..copy.asked.record
        });
        copy.asked.record.supersedes = noted;
    }

    fn time_out(&mut self, slot: Slot) {
        let Some(copy) = self.pending.at(slot).cloned() else {
            return;
        };
        let alone = !self.lanes.is_empty();
        // One that has no stream yet is not sent any more.
        let waits =
            self.targets[copy.asked.link].has_streams() && copy.asked.record.sent_bytes == 0;
        if alone || waits || self.may_retry(&copy.asked.record, &copy.asked) {
            // Its row is written now: the next try is waited for, and not this one.
            self.end_copy(slot, Status::Timeout);
            self.forget(&copy.asked);
            if alone {
                self.abandon(slot, copy.asked.link);
            }
            return;
        }
        self.targets[copy.asked.link].stop(copy.asked.ticket);
        let Some(ended) = self.pending.time_out(slot) else {
            return;
        };
        // A connection that the server wants to end does not wait for a late reply.
        if self.targets[copy.asked.link].is_closing() {
            self.forget(&copy.asked);
        }
        *self.live.failed.entry(Status::Timeout.name()).or_insert(0) += 1;
        self.task_ended(copy.asked.task, Status::Timeout);
        self.request_over(copy.asked.link, &ended);
    }

    pub(super) fn give_up(&mut self, slot: Slot) {
        if let Some(asked) = self.end_late(slot) {
            self.forget(&asked);
        }
    }

    /// Writes down a copy that timed out, and whose late reply is not expected any more.
    fn end_late(&mut self, slot: Slot) -> Option<Asked> {
        let copy = self.pending.remove(slot)?;
        let record = Record {
            status: Status::Timeout,
            ..copy.asked.record
        };
        self.count(&record);
        self.recorder.record(&record);
        self.pending.release(copy.asked.group);
        Some(copy.asked)
    }

    /// Accounts for all open copies at the end of the run: a copy past its timeout is a timeout,
    /// any other is unfinished.
    pub(super) fn account_for_open(&mut self) {
        for slot in self.pending.all(None) {
            while self.recorder.is_crowded() {
                std::thread::sleep(DRAIN_PAUSE);
            }
            let Some(copy) = self.pending.at(slot) else {
                continue;
            };
            // Nothing more is sent for it, and no other request in its place.
            let (asked, late) = (copy.asked, copy.timed_out);
            self.targets[asked.link].forget(asked.ticket);
            if late {
                self.end_late(slot);
            } else {
                self.end_copy(slot, Status::Unfinished);
            }
        }
        self.give_up_retries();
    }
}
