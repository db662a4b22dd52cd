//! Connections that carry many requests at once, each in a stream of its own (HTTP/2).
//!
//! First, the target keeps an encoded request until the server allows another stream. The row of the
//! request says that it waited. Second, the engine takes one message after the other from the target
//! and queues it on the connection. Third, a server may announce that it takes no more requests on a
//! connection; nginx does so after a thousand. Later requests, and requests that the server did not
//! process, wait until the open requests have ended. The engine then sends them on a new connection.
//! A request that waits counts from its scheduled time.

use std::io;

use unruly_trace::{ColumnNs, MonoNs, NULL_NS, monotonic};

use super::Engine;
use crate::pending::{Asked, Slot};
use crate::target::Fate;

impl Engine<'_> {
    /// Sends a request over a connection with streams, now or as soon as there is a stream for it.
    pub(super) fn send_in_stream(&mut self, slot: Slot, link: usize) {
        self.drain(link);
        // One that the protocol cannot carry has failed already.
        self.take_replies(link, monotonic(), NULL_NS);
        let waits = self
            .pending
            .at(slot)
            .filter(|copy| copy.asked.record.sent_bytes == 0 && !copy.asked.record.waited);
        if let Some(copy) = waits {
            let asked = copy.asked;
            copy.asked.record.waited = true;
            self.held_back(&asked);
        }
    }

    /// Queues the messages that a target has for the server.
    pub(super) fn drain(&mut self, link: usize) {
        // Messages of an ended connection are of no use to the next one.
        if self.links[link].refuses().is_some() {
            return;
        }
        let server = self.peers[link].id;
        loop {
            let (target, pending) = (&mut self.targets[link], &self.pending);
            let mut whose = None;
            let bytes = self.links[link].queue_with(|out| {
                whose = target
                    .drain(out)
                    .and_then(|ticket| pending.find(ticket, server));
                whose
            });
            if bytes == 0 && whose.is_none() {
                break;
            }
            if let Some(copy) = whose.and_then(|slot| self.pending.at(slot)) {
                copy.asked.record.sent_bytes = bytes;
            }
        }
        if self.links[link].has_queued() {
            self.fresh.push(link);
        }
    }

    /// Gives up a request: its stream is free for another one.
    pub(super) fn forget(&mut self, asked: &Asked) {
        let link = asked.link;
        self.targets[link].forget(asked.ticket);
        if self.targets[link].has_streams() {
            self.drain(link);
            self.take_replies(link, monotonic(), NULL_NS);
            self.renew(link);
        }
    }

    /// Takes the replies of a connection with streams, and sends what they made room for.
    pub(super) fn serve_streams(&mut self, link: usize, received_ns: MonoNs, kernel_ns: ColumnNs) {
        self.take_replies(link, received_ns, kernel_ns);
        if self.targets[link].is_closing() {
            self.forget_late(link);
        }
        self.drain(link);
        // One that could not be sent has ended already.
        self.take_replies(link, received_ns, kernel_ns);
        self.renew(link);
    }

    /// Gives up the requests that timed out: a connection that the server wants to end does not wait
    /// for late replies.
    fn forget_late(&mut self, link: usize) {
        for slot in self.pending.all(Some(link)) {
            let late = self.pending.at(slot).filter(|copy| copy.timed_out);
            if let Some(ticket) = late.map(|copy| copy.asked.ticket) {
                self.targets[link].forget(ticket);
            }
        }
    }

    /// Takes the replies that a connection with streams has completed.
    pub(super) fn take_replies(&mut self, link: usize, received_ns: MonoNs, kernel_ns: ColumnNs) {
        while let Some(reply) = self.targets[link].next_reply() {
            if let Some(incoming) = reply.incoming() {
                self.take(link, &incoming, received_ns, kernel_ns);
            } else if let Some(slot) = self.pending.find(reply.ticket, self.peers[link].id) {
                debug_assert_eq!(reply.fate, Fate::Untouched, "all others are incoming");
                let copy = self.pending.at(slot).filter(|copy| !copy.timed_out);
                let sent = copy.map(|copy| copy.asked.record.sent_bytes > 0);
                if let Some(sent) = sent {
                    self.outcome.resent += u64::from(sent);
                    self.park(slot, link);
                }
            }
        }
    }

    /// Keeps a request for the next connection.
    pub(super) fn park(&mut self, slot: Slot, link: usize) {
        if let Some(copy) = self.pending.at(slot) {
            copy.asked.record.waited = true;
            copy.asked.record.sent_bytes = 0;
            self.parked.push((link, slot));
        }
    }

    /// Makes a new connection when the server takes no more requests on this one and has answered
    /// all of those that it took.
    pub(super) fn renew(&mut self, link: usize) {
        let up = self.links[link].refuses().is_none();
        if up && self.targets[link].is_closing() && self.targets[link].is_idle() {
            self.reopen(link);
        }
    }

    /// Ends a connection that takes no more requests, and makes a new one: at once if this one has
    /// brought a reply, else after a pause, since the next one may end like it.
    pub(super) fn reopen(&mut self, link: usize) {
        if let Some(socket) = self.links[link].socket() {
            self.poller.remove(socket);
        }
        let proven = self.targets[link].is_proven();
        // From here on it is a connection like any other, also if it cannot be made.
        self.targets[link].greet(&mut Vec::new());
        if proven {
            self.links[link].close();
            self.try_connect(link);
        } else {
            let ended = io::Error::from(io::ErrorKind::ConnectionReset);
            let _ = self.links[link].fail(&ended, monotonic());
            self.await_retry(link);
        }
    }

    /// Sends the kept requests over a new connection.
    pub(super) fn send_parked(&mut self, link: usize) {
        if self.parked.is_empty() {
            return;
        }
        for slot in self.take_parked(link) {
            let Some(copy) = self.pending.at(slot).filter(|copy| !copy.timed_out) else {
                continue;
            };
            let asked = copy.asked;
            let session = self.pending.session_of(asked.group);
            self.write_out(slot, &asked, 0, session);
        }
    }

    fn take_parked(&mut self, link: usize) -> Vec<Slot> {
        let all = std::mem::take(&mut self.parked);
        let (own, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|(it, _)| *it == link);
        self.parked = others;
        own.into_iter().map(|(_, slot)| slot).collect()
    }

    /// True if a request is kept for the next connection.
    pub(super) fn is_parked(&self, slot: Slot) -> bool {
        self.parked.iter().any(|(_, it)| *it == slot)
    }

    /// Forgets the requests that were kept for a connection.
    pub(super) fn forget_parked(&mut self, link: usize) {
        self.parked.retain(|(it, _)| *it != link);
    }
}
