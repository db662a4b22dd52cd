//! Requests of a store whose places have different keys: each goes to the place that has its key.

use unruly_trace::{ErrorKind, Record, Status};

use super::Engine;
use crate::link::Link;
use crate::pending::Asked;
use crate::work::Task;

/// Places that one request is sent to after the first, at most.
pub(super) const MOVES_MAX: u8 = 5;

impl Engine<'_> {
    /// The connection to the place that has the key of a task or takes this request, among those of a
    /// client, of which `first` is the first one.
    fn owner_of(&mut self, first: usize, task: Option<&Task>, request: u64) -> usize {
        let place = match (&mut self.work, task) {
            (Some(work), Some(task)) => work.place(task, request),
            _ => None,
        };
        first + place.unwrap_or(0)
    }

    /// The connection that a task is sent over. While the place that has its key is down, any other one
    /// may know who has it by now; they are asked in turn.
    pub(super) fn link_of(&mut self, first: usize, task: Option<&Task>, request: u64) -> usize {
        let owner = self.owner_of(first, task, request);
        let count = self.links_of_client;
        if count == 1 || self.is_there(owner) {
            return owner;
        }
        let turn = usize::try_from(self.next_request).unwrap_or(0);
        let mut others = (0..count).map(|step| first + (turn + step) % count);
        let open = others.find(|it| self.links[*it].is_open());
        open.unwrap_or(owner)
    }

    /// True if a place can be asked: its connection is open, or is made for the first time. One that was
    /// lost and is being made again may lead to a host that is gone, and never answer.
    fn is_there(&self, link: usize) -> bool {
        let link = &self.links[link];
        link.is_open() || (link.is_connecting() && link.made == 0)
    }

    /// True if a client with connections to several places has one that is open.
    pub(super) fn has_another(&self, link: usize) -> bool {
        let count = self.links_of_client;
        let first = link / count * count;
        count > 1 && self.links[first..first + count].iter().any(Link::is_open)
    }

    /// The same copy over another connection.
    fn over(&self, asked: Asked, link: usize) -> Asked {
        let record = Record {
            server: self.peers[link].id,
            connection: u32::try_from(link).unwrap_or(u32::MAX),
            ..asked.record
        };
        Asked {
            link,
            record,
            ..asked
        }
    }

    /// A copy for the place that has its key now.
    pub(super) fn routed(&mut self, asked: Asked) -> Asked {
        let first = asked.link / self.links_of_client * self.links_of_client;
        let link = self.link_of(first, asked.task.as_ref(), asked.record.request);
        self.over(asked, link)
    }

    /// Sends a copy on whose place said that another one has its key: the owner, or this place for once.
    /// It is the same copy: its row has the time of both. If the other place is down, nobody else has
    /// the key yet, and it ends here.
    pub(super) fn send_elsewhere(&mut self, asked: Asked, place: Option<usize>) {
        self.outcome.moved += 1;
        let first = asked.link / self.links_of_client * self.links_of_client;
        let link = match place {
            Some(place) => first + place,
            None => self.owner_of(first, asked.task.as_ref(), asked.record.request),
        };
        let mut asked = self.over(asked, link);
        asked.announced = place.is_some();
        if !self.is_there(link) {
            let absent = Status::Error(ErrorKind::Disconnected);
            let (status, record) = (self.links[link].refuses().unwrap_or(absent), asked.record);
            return self.finish(Record { status, ..record }, &asked);
        }
        let session = self.pending.session_of(asked.group);
        asked.moves += 1;
        asked.record.sent_bytes = 0;
        self.begin(asked, 0, session);
    }
}
