//! Connections that carry one request at a time, as HTTP clients use them.
//!
//! First, a request takes the connection that has been idle for longest. Second, if none is idle,
//! another connection is opened. Third, if there are as many as there may be, the request waits
//! here. A request that waits counts from its scheduled time, and its row says that it waited.
//!
//! A server may close an idle connection at any time, so the end of one is no failure. A request
//! that was sent on an open connection and met only its end is sent once more, on a new connection,
//! if it may be done twice.

use std::collections::VecDeque;
use std::io;

use unruly_trace::{ErrorKind, MonoNs, Record, Status, monotonic};

use super::{Engine, Peer};
use crate::pending::Slot;

/// One connection.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// The connections to the same server, of which this is one.
    pool: usize,
    /// Its request.
    busy: Option<Slot>,
    /// It was open before its request came.
    reused: bool,
    /// It has brought a reply since it was opened.
    proven: bool,
    /// The server announced that it closes the connection.
    pub(super) closes: bool,
}

impl Lane {
    /// Clears the state of one connection. Returns the previous state.
    fn reset(&mut self) -> Self {
        let empty = Self {
            pool: self.pool,
            ..Self::default()
        };
        std::mem::replace(self, empty)
    }
}

/// The connections to one server, and the requests that wait for one of them.
#[derive(Debug, Default)]
pub(super) struct Pool {
    links: usize,
    /// Open, or being opened, without a request: the longest idle first.
    idle: VecDeque<usize>,
    /// Not open, the longest closed first.
    down: VecDeque<usize>,
    waiting: VecDeque<Slot>,
}

impl Pool {
    fn is_down(&self) -> bool {
        self.down.len() == self.links
    }
}

/// The connections to these peers as lanes, and a pool for each server.
pub(super) fn lanes(peers: &[Peer]) -> (Vec<Lane>, Vec<Pool>) {
    let mut servers: Vec<u16> = Vec::new();
    let mut pools: Vec<Pool> = Vec::new();
    let mut lanes = Vec::new();
    for (link, peer) in peers.iter().enumerate() {
        let known = servers.iter().position(|id| *id == peer.id);
        let pool = known.unwrap_or_else(|| {
            servers.push(peer.id);
            pools.push(Pool::default());
            pools.len() - 1
        });
        pools[pool].links += 1;
        pools[pool].down.push_back(link);
        lanes.push(Lane {
            pool,
            ..Lane::default()
        });
    }
    (lanes, pools)
}

impl Engine<'_> {
    /// The status of a request for which there is no connection and none can be tried yet; `None`
    /// when it can be sent or can wait.
    pub(super) fn refuses(&self, link: usize) -> Option<Status> {
        let Some(lane) = self.lanes.get(link) else {
            return self.links[link].refuses();
        };
        let pool = &self.pools[lane.pool];
        if !pool.is_down() || self.may_open(pool, monotonic()).is_some() {
            return None;
        }
        self.links[link].refuses()
    }

    /// The place in `down` of a connection that may be opened by now.
    fn may_open(&self, pool: &Pool, now_ns: MonoNs) -> Option<usize> {
        let ready = |link: &usize| {
            self.links[*link]
                .retry_at_ns()
                .is_some_and(|at| at <= now_ns)
        };
        pool.down.iter().position(ready)
    }

    /// Opens a connection ahead of the first request.
    pub(super) fn open_lane(&mut self, link: usize) {
        let pool = self.lanes[link].pool;
        self.pools[pool].down.retain(|it| *it != link);
        self.try_connect(link);
        if self.links[link].socket().is_some() {
            self.pools[pool].idle.push_back(link);
        }
    }

    /// Takes in a new request: it goes on an idle connection, or waits for one.
    pub(super) fn enter(&mut self, slot: Slot, home: usize) {
        let pool = &mut self.pools[self.lanes[home].pool];
        let idle = pool.waiting.is_empty().then(|| pool.idle.pop_front());
        if let Some(link) = idle.flatten() {
            return self.assign(slot, link);
        }
        pool.waiting.push_back(slot);
        self.stirred = true;
        if let Some(copy) = self.pending.at(slot) {
            let asked = copy.asked;
            copy.asked.record.waited = true;
            self.held_back(&asked);
        }
    }

    /// Gives waiting requests the connections that are free by now.
    pub(super) fn serve_pools(&mut self) {
        if !std::mem::take(&mut self.stirred) {
            return;
        }
        for pool in 0..self.pools.len() {
            while let Some(slot) = self.first_waiting(pool) {
                let Some(link) = self.free_lane(pool) else {
                    break;
                };
                self.pools[pool].waiting.pop_front();
                self.assign(slot, link);
            }
            if self.pools[pool].is_down() {
                self.refuse_waiting(pool);
            }
        }
    }

    /// The first request that waits; those that timed out meanwhile are forgotten.
    fn first_waiting(&mut self, pool: usize) -> Option<Slot> {
        loop {
            let slot = *self.pools[pool].waiting.front()?;
            if self.pending.at(slot).is_some() {
                return Some(slot);
            }
            self.pools[pool].waiting.pop_front();
        }
    }

    /// A connection without a request; one is opened when there may be more.
    fn free_lane(&mut self, pool: usize) -> Option<usize> {
        if let Some(link) = self.pools[pool].idle.pop_front() {
            return Some(link);
        }
        loop {
            let place = self.may_open(&self.pools[pool], monotonic())?;
            let link = self.pools[pool].down.remove(place)?;
            self.try_connect(link);
            if self.links[link].socket().is_some() {
                return Some(link);
            }
        }
    }

    /// No server is there: nothing that waits for it can be sent.
    fn refuse_waiting(&mut self, pool: usize) {
        let last = self.pools[pool].down.back();
        let status = last.and_then(|link| self.links[*link].refuses());
        let status = status.unwrap_or(Status::Error(ErrorKind::Disconnected));
        for slot in std::mem::take(&mut self.pools[pool].waiting) {
            self.end_copy(slot, status);
        }
    }

    fn assign(&mut self, slot: Slot, link: usize) {
        let open = self.links[link].is_ready();
        let Some(copy) = self.pending.at(slot) else {
            return;
        };
        copy.asked.link = link;
        copy.asked.record.connection = u32::try_from(link).unwrap_or(u32::MAX);
        copy.asked.record.waited |= !open;
        let asked = copy.asked;
        self.lanes[link].busy = Some(slot);
        self.lanes[link].reused = open;
        let session = self.pending.session_of(asked.group);
        self.write_out(slot, &asked, 0, session);
    }

    /// True if bytes may come on a connection. Unasked bytes on an idle one end it.
    pub(super) fn expects_bytes(&mut self, link: usize) -> bool {
        let unasked = self.lanes.get(link).is_some_and(|it| it.busy.is_none());
        if unasked {
            self.outcome.strays += 1;
            self.close_lane(link);
        }
        !unasked
    }

    /// After replies were taken: a connection whose request was answered is free, unless the server
    /// closes it or `rest` bytes follow that nobody asked for.
    pub(super) fn lane_replied(&mut self, link: usize, rest: usize) {
        let Some(lane) = self.lanes.get_mut(link) else {
            return;
        };
        if lane
            .busy
            .is_some_and(|slot| self.pending.at(slot).is_some())
        {
            return;
        }
        lane.busy = None;
        lane.proven = true;
        if rest > 0 {
            self.outcome.strays += 1;
        }
        if rest > 0 || lane.closes {
            return self.close_lane(link);
        }
        let pool = lane.pool;
        self.pools[pool].idle.push_back(link);
        self.stirred = true;
    }

    /// A request was given up: an answer that comes later must not be taken for the next one's.
    pub(super) fn abandon(&mut self, slot: Slot, link: usize) {
        if self.lanes[link].busy == Some(slot) {
            self.close_lane(link);
        }
    }

    /// A connection ended, or could not be made.
    pub(super) fn lane_failed(&mut self, link: usize, error: &io::Error) {
        let was_open = self.links[link].is_open();
        let silent = self.links[link].partial.is_empty();
        let foreign = error.kind() == io::ErrorKind::InvalidData;
        let lane = self.lanes[link].reset();
        let (reused, proven) = (lane.reused, lane.proven);
        let slot = lane.busy.filter(|slot| self.pending.at(*slot).is_some());
        // What was never asked, or was answered before, is no reason to wait before the next try.
        let status = if was_open && (slot.is_none() || proven || reused) {
            self.links[link].close();
            Status::Error(ErrorKind::Reset)
        } else {
            self.links[link].fail(error, monotonic())
        };
        self.lane_is_down(link);
        let Some(slot) = slot else { return };
        if reused && silent && !foreign && self.targets[link].may_send_again() {
            self.outcome.resent += 1;
            self.send_again(slot, link);
        } else if foreign {
            self.end_copy(slot, Status::Error(ErrorKind::Protocol));
        } else {
            self.end_copy(slot, status);
        }
    }

    /// Sends a request once more, on a new connection.
    fn send_again(&mut self, slot: Slot, link: usize) {
        let pool = self.lanes[link].pool;
        self.pools[pool].down.retain(|it| *it != link);
        self.try_connect(link);
        if self.links[link].socket().is_some() {
            return self.assign(slot, link);
        }
        let status = self.links[link].refuses();
        self.end_copy(slot, status.unwrap_or(Status::Error(ErrorKind::Reset)));
    }

    /// Ends a connection that served its purpose.
    fn close_lane(&mut self, link: usize) {
        if let Some(socket) = self.links[link].socket() {
            self.poller.remove(socket);
        }
        self.links[link].close();
        self.lanes[link].reset();
        self.lane_is_down(link);
    }

    fn lane_is_down(&mut self, link: usize) {
        let pool = &mut self.pools[self.lanes[link].pool];
        pool.idle.retain(|it| *it != link);
        pool.down.push_back(link);
        self.stirred = true;
    }

    /// Writes down the end of a copy that is open.
    pub(super) fn end_copy(&mut self, slot: Slot, status: Status) {
        if let Some(copy) = self.pending.remove(slot) {
            let record = Record {
                status,
                ..copy.asked.record
            };
            self.finish(record, &copy.asked);
        }
    }
}
