//! Connections: made, failed, and made again.

use std::cmp::Reverse;
use std::io;

use unruly_trace::{DurationNs, ErrorKind, MonoNs, Status, monotonic};

use super::Engine;
use crate::pending::Slot;

/// The least time that a connection has to begin: a distant server with a slow handshake needs some.
const BEGINNING_MIN: DurationNs = DurationNs::seconds(5);

impl Engine<'_> {
    pub(super) fn fail_link(&mut self, link: usize, error: &io::Error) {
        if let Some(socket) = self.links[link].socket() {
            self.poller.remove(socket);
        }
        if !self.lanes.is_empty() {
            return self.lane_failed(link, error);
        }
        // The server had said that it would end this one: what it did not take goes on the next.
        let protocol = error.kind() == io::ErrorKind::InvalidData;
        if self.targets[link].is_closing() && !protocol {
            self.links[link].close();
            for slot in self.pending.all(Some(link)) {
                if !self.is_parked(slot) {
                    self.end_open(slot, Status::Error(ErrorKind::Reset));
                }
            }
            return self.reopen(link);
        }
        self.forget_parked(link);
        let mut status = self.links[link].fail(error, monotonic());
        if protocol {
            status = Status::Error(ErrorKind::Protocol);
        }
        for slot in self.pending.all(Some(link)) {
            self.end_open(slot, status);
        }
        self.await_retry(link);
    }

    /// Ends a copy whose connection has ended.
    fn end_open(&mut self, slot: Slot, status: Status) {
        let Some(copy) = self.pending.at(slot) else {
            return;
        };
        let (timed_out, moved, since_ns) =
            (copy.timed_out, copy.asked.moves > 0, copy.asked.since_ns);
        // One that was sent on stands behind younger ones in the line of time limits.
        let late = moved && monotonic() - since_ns >= self.options.timeout_ns;
        if timed_out {
            self.give_up(slot);
        } else {
            self.end_copy(slot, if late { Status::Timeout } else { status });
        }
    }

    /// Notes when a connection that is down is made again.
    pub(super) fn await_retry(&mut self, link: usize) {
        if let Some(at_ns) = self.links[link].retry_at_ns() {
            self.down.push(Reverse((at_ns, link)));
        }
    }

    /// When to reconnect next.
    pub(super) fn next_reconnect_ns(&mut self) -> Option<MonoNs> {
        while let Some(&Reverse((at_ns, link))) = self.down.peek() {
            if self.links[link].retry_at_ns() == Some(at_ns) {
                return Some(at_ns);
            }
            // It was made meanwhile.
            self.down.pop();
        }
        None
    }

    pub(super) fn reconnect(&mut self, now_ns: MonoNs) {
        while self
            .next_reconnect_ns()
            .is_some_and(|at_ns| at_ns <= now_ns)
        {
            if let Some(Reverse((_, link))) = self.down.pop() {
                self.try_connect(link);
            }
        }
    }

    pub(super) fn try_connect(&mut self, link: usize) {
        if let Err(error) = self.links[link].connect() {
            return self.fail_link(link, &error);
        }
        let target = &mut self.targets[link];
        self.links[link].queue(None, |out| {
            target.greet(out);
        });
        self.links[link].watches_write = true;
        let Some(socket) = self.links[link].socket() else {
            return;
        };
        if let Err(error) = self.poller.add(socket, link as u64, true) {
            return self.fail_link(link, &error);
        }
        if let Some(began_ns) = self.links[link].beginning_ns() {
            self.beginnings.push_back((began_ns, link));
        }
        self.send_parked(link);
    }

    /// When the next connection has been beginning for too long.
    pub(super) fn next_beginning_ns(&mut self) -> Option<MonoNs> {
        while let Some(&(began_ns, link)) = self.beginnings.front() {
            if self.links[link].beginning_ns() == Some(began_ns) {
                return Some(began_ns + self.options.timeout_ns.max(BEGINNING_MIN));
            }
            // It was made, or has failed.
            self.beginnings.pop_front();
        }
        None
    }

    /// Ends connections that do not come about. A new one may: the server was away when this one
    /// began, and the kernel tries again ever more seldom.
    pub(super) fn give_up_beginnings(&mut self, now_ns: MonoNs) {
        while self
            .next_beginning_ns()
            .is_some_and(|at_ns| at_ns <= now_ns)
        {
            if let Some((_, link)) = self.beginnings.pop_front() {
                self.fail_link(link, &io::Error::from(io::ErrorKind::TimedOut));
            }
        }
    }
}
