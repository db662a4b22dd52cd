//! Requests of a store whose places have different keys: each goes to the place that has its key.

use super::Engine;
use crate::pending::Asked;
use crate::work::Task;

/// Places that one request is sent to after the first, at most.
pub(super) const MOVES_MAX: u8 = 5;

impl Engine<'_> {
    /// The connection for a task among those of a client, of which `first` is the first one. While the
    /// place that has the key is down, any other one may know who has it by now.
    pub(super) fn link_of(&mut self, first: usize, task: Option<&Task>) -> usize {
        let place = match (&mut self.work, task) {
            (Some(work), Some(task)) => work.place(task),
            _ => None,
        };
        let Some(place) = place else {
            return first;
        };
        let (own, count) = (first + place, self.links_of_client);
        if self.links[own].is_open() {
            return own;
        }
        let others = (1..count).map(|step| first + (place + step) % count);
        others
            .into_iter()
            .find(|it| self.links[*it].is_open())
            .unwrap_or(own)
    }

    /// A copy for the place that has its key now.
    pub(super) fn routed(&mut self, mut asked: Asked) -> Asked {
        let first = asked.link / self.links_of_client * self.links_of_client;
        if self.links_of_client > 1 {
            asked.link = self.link_of(first, asked.task.as_ref());
            asked.record.server = self.peers[asked.link].id;
            asked.record.connection = u32::try_from(asked.link).unwrap_or(u32::MAX);
        }
        asked
    }

    /// Sends a copy again whose place said that another one has its key. It is the same copy: its row
    /// has the time of both.
    pub(super) fn send_elsewhere(&mut self, asked: Asked) {
        let session = self.pending.session_of(asked.group);
        let mut asked = self.routed(asked);
        asked.moves += 1;
        asked.record.sent_bytes = 0;
        self.outcome.moved += 1;
        self.begin(asked, 0, session);
        self.flush_fresh();
    }
}
