//! The connections of the watched services, and the turnarounds of all of them.

use std::collections::HashMap;
use std::net::SocketAddr;

use unruly_trace::{ColumnNs, DurationNs, TurnaroundRow, TurnaroundStatus};

use crate::connection::{Connection, Ended, Seen, Side, Turnaround};
use crate::segment::Segment;
use crate::server::Server;

/// Connections that are followed at once; each takes some 250 bytes.
const CONNECTIONS_MAX: usize = 100_000;

/// If there is no room for another connection, those that were silent for longer are forgotten.
const SILENT: DurationNs = DurationNs::seconds(60);

/// A connection that is over is remembered for this long, since late segments may follow.
const OVER: DurationNs = DurationNs::seconds(2);

/// How often connections that are over are forgotten.
const TIDY: DurationNs = DurationNs::seconds(1);

/// A turnaround that is over, and its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// The place of the service in the list of the tracker.
    pub server: u16,
    /// The number of the connection.
    pub connection: u32,
    /// The client's address.
    pub client: SocketAddr,
    /// The service's address.
    pub at: SocketAddr,
    /// The turnaround.
    pub turnaround: Turnaround,
}

impl Finished {
    /// Returns the row of the trace.
    #[must_use]
    pub fn row(&self) -> TurnaroundRow {
        let turnaround = &self.turnaround;
        TurnaroundRow {
            tier: self.server,
            server: self.at,
            client: self.client,
            connection: self.connection,
            turn: turnaround.turn,
            started_ns: turnaround.started_ns,
            request_ended_ns: turnaround.request_ended_ns,
            first_reply_ns: turnaround.first_reply_ns,
            ended_ns: turnaround.ended_ns,
            request_bytes: turnaround.request_bytes,
            reply_bytes: turnaround.reply_bytes,
            status: match turnaround.ended {
                Ended::Ok => TurnaroundStatus::Ok,
                Ended::Cut => TurnaroundStatus::Cut,
                Ended::Open => TurnaroundStatus::Open,
                Ended::Joined => TurnaroundStatus::Joined,
                Ended::Overlapped => TurnaroundStatus::Overlapped,
                Ended::Gap => TurnaroundStatus::Gap,
            },
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Ends {
    client: SocketAddr,
    at: SocketAddr,
}

#[derive(Debug)]
struct Followed {
    server: u16,
    number: u32,
    seen_ns: ColumnNs,
    connection: Connection,
}

/// A turnaround that is not over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenTurnaround {
    /// The place of the service in the list of the tracker.
    pub server: u16,
    /// The time of the first byte of the request.
    pub started_ns: ColumnNs,
    /// The time of the last byte of the reply so far.
    pub replied_ns: Option<ColumnNs>,
    /// It can be measured, as far as is known now.
    pub is_sound: bool,
}

/// Follows the connections of the watched services.
#[derive(Debug)]
pub struct Tracker {
    servers: Vec<Server>,
    connections: HashMap<Ends, Followed>,
    numbers: u32,
    /// When connections were forgotten last.
    tidied_ns: ColumnNs,
    /// Connections that were not followed from their beginning, for want of room.
    left_out: u64,
    /// Clients of new connections, until somebody takes them.
    fresh: Vec<(SocketAddr, SocketAddr)>,
    /// Turnarounds that a segment has ended.
    over: Vec<Turnaround>,
}

impl Tracker {
    /// Returns a tracker of these services.
    #[must_use]
    pub fn new(servers: Vec<Server>) -> Self {
        Self {
            servers,
            connections: HashMap::new(),
            numbers: 0,
            tidied_ns: ColumnNs(i64::MIN),
            left_out: 0,
            fresh: Vec::new(),
            over: Vec::new(),
        }
    }

    /// Returns the services.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Returns how many connections were left out from their beginning, for want of room.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Returns the clients of the connections that are new since the last call.
    pub fn take_fresh(&mut self) -> Vec<(SocketAddr, SocketAddr)> {
        std::mem::take(&mut self.fresh)
    }

    /// Takes a segment, and adds the turnarounds that it ends.
    pub fn take(&mut self, segment: &Segment, at_ns: ColumnNs, ended: &mut Vec<Finished>) {
        let Some((side, ends, server)) = self.place(segment) else {
            return;
        };
        if at_ns.saturating_since(self.tidied_ns) >= TIDY {
            self.tidied_ns = at_ns;
            self.tidy(at_ns, ended);
        }
        let opens = segment.opens && segment.acknowledged.is_none();
        if let Some(followed) = self.connections.get_mut(&ends) {
            let again = followed
                .connection
                .begins_with(segment.sequence.wrapping_add(1));
            if opens && side == Side::Client && !again {
                // The port is used again.
                let rest = followed.connection.end(Ended::Cut);
                ended.extend(rest.map(|it| finished(&ends, followed, it)));
                self.connections.remove(&ends);
            }
        }
        let is_known = self.connections.contains_key(&ends);
        let says_nothing = segment.bytes == 0 && !segment.opens;
        if !is_known && (segment.resets || says_nothing || !self.follow(ends, server, at_ns, opens))
        {
            return;
        }
        let Some(followed) = self.connections.get_mut(&ends) else {
            return;
        };
        if !followed.connection.is_over() {
            followed.seen_ns = at_ns;
        }
        let seen = Seen {
            side,
            at_ns,
            sequence: segment.sequence,
            acknowledged: segment.acknowledged,
            bytes: segment.bytes,
            opens: segment.opens,
            ends: segment.ends,
            resets: segment.resets,
        };
        followed.connection.take(&seen, &mut self.over);
        for turnaround in self.over.drain(..) {
            ended.push(finished(&ends, followed, turnaround));
        }
    }

    /// Forgets connections that are over, and if there are too many also those that are silent.
    fn tidy(&mut self, at_ns: ColumnNs, ended: &mut Vec<Finished>) {
        let over_ns = at_ns.saturating_sub(OVER);
        self.connections
            .retain(|_, it| !it.connection.is_over() || it.seen_ns >= over_ns);
        if self.connections.len() < CONNECTIONS_MAX {
            return;
        }
        let silent_ns = at_ns.saturating_sub(SILENT);
        self.connections.retain(|ends, it| {
            let stays = it.seen_ns >= silent_ns;
            if !stays {
                let rest = it.connection.stop(at_ns);
                ended.extend(rest.map(|rest| finished(ends, it, rest)));
            }
            stays
        });
    }

    /// Returns who sent a segment, and the connection and the service that it belongs to.
    fn place(&self, segment: &Segment) -> Option<(Side, Ends, u16)> {
        let (from, to) = (segment.from, segment.to);
        let asks = Ends {
            client: from,
            at: to,
        };
        let replies = Ends {
            client: to,
            at: from,
        };
        let server = |at: SocketAddr| self.servers.iter().position(|it| it.is_at(at));
        let number = |place: usize| u16::try_from(place).unwrap_or(u16::MAX);
        if let Some(found) = server(to).filter(|_| !self.connections.contains_key(&replies)) {
            return Some((Side::Client, asks, number(found)));
        }
        server(from).map(|found| (Side::Server, replies, number(found)))
    }

    /// Follows a connection from now on. Returns whether there is room.
    fn follow(&mut self, ends: Ends, server: u16, at_ns: ColumnNs, opens: bool) -> bool {
        if self.connections.len() >= CONNECTIONS_MAX {
            self.left_out += u64::from(opens);
            return false;
        }
        self.numbers = self.numbers.wrapping_add(1);
        self.fresh.push((ends.client, ends.at));
        let silent_bytes = self.servers[usize::from(server)].silent_bytes;
        let followed = Followed {
            server,
            number: self.numbers,
            seen_ns: at_ns,
            connection: Connection::new(silent_bytes),
        };
        self.connections.insert(ends, followed);
        true
    }

    /// Segments of unknown connections were missed.
    pub fn miss(&mut self) {
        let all = self.connections.values_mut();
        all.for_each(|it| it.connection.miss());
    }

    /// Returns the open turnarounds.
    pub fn open(&self) -> impl Iterator<Item = OpenTurnaround> {
        self.connections.values().filter_map(|it| {
            let open = it.connection.open()?;
            Some(OpenTurnaround {
                server: it.server,
                started_ns: open.started_ns,
                replied_ns: open.first_reply_ns.map(|_| open.ended_ns),
                is_sound: it.connection.is_sound(),
            })
        })
    }

    /// Ends all turnarounds: the capture is over at this time.
    pub fn finish(&mut self, at_ns: ColumnNs) -> Vec<Finished> {
        let mut rest: Vec<Finished> = std::mem::take(&mut self.connections)
            .iter_mut()
            .filter_map(|(ends, followed)| {
                let turnaround = followed.connection.stop(at_ns)?;
                Some(finished(ends, followed, turnaround))
            })
            .collect();
        rest.sort_by_key(|it| (it.turnaround.started_ns, it.connection));
        rest
    }
}

fn finished(ends: &Ends, followed: &Followed, turnaround: Turnaround) -> Finished {
    Finished {
        server: followed.server,
        connection: followed.number,
        client: ends.client,
        at: ends.at,
        turnaround,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: &str = "10.0.0.1:4000";
    const SERVER: &str = "10.0.0.2:443";

    fn tracker() -> Tracker {
        Tracker::new(vec![Server::parse("web=tcp://10.0.0.2:443").unwrap()])
    }

    fn says(from: &str, to: &str, sequence: u32, bytes: u32) -> Segment {
        Segment {
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
            sequence,
            acknowledged: None,
            bytes,
            opens: false,
            ends: false,
            resets: false,
        }
    }

    fn opens(from: &str, sequence: u32) -> Segment {
        Segment {
            opens: true,
            ..says(from, SERVER, sequence, 0)
        }
    }

    fn took(tracker: &mut Tracker, segments: &[Segment]) -> Vec<Finished> {
        let mut found = Vec::new();
        for (segment, at) in segments.iter().zip(1..) {
            tracker.take(segment, ColumnNs(at * 10), &mut found);
        }
        found.extend(tracker.finish(ColumnNs(1_000_000_000)));
        found
    }

    #[test]
    fn connections_of_several_clients_are_told_apart() {
        let other = "10.0.0.9:4000";
        let segments = [
            opens(CLIENT, u32::MAX),
            opens(other, u32::MAX),
            says(CLIENT, SERVER, 0, 5),
            says(other, SERVER, 0, 7),
            says(SERVER, other, 0, 2),
            says(SERVER, CLIENT, 0, 3),
        ];
        let mut tracker = tracker();
        let found = took(&mut tracker, &segments);
        let seen: Vec<_> = found
            .iter()
            .map(|it| {
                (
                    it.connection,
                    it.turnaround.request_bytes,
                    it.turnaround.ended_ns.0,
                )
            })
            .collect();
        assert_eq!(seen, [(1, 5, 60), (2, 7, 50)]);
        assert_eq!(
            tracker.take_fresh(),
            [CLIENT, other].map(|it| (it.parse().unwrap(), SERVER.parse().unwrap()))
        );
    }

    #[test]
    fn a_client_that_sends_nothing_more_still_gets_its_reply() {
        let mut half = says(CLIENT, SERVER, 5, 0);
        half.ends = true;
        let mut end = says(SERVER, CLIENT, 3, 0);
        end.ends = true;
        let segments = [
            opens(CLIENT, u32::MAX),
            says(CLIENT, SERVER, 0, 5),
            half,
            says(CLIENT, SERVER, 6, 0),
            says(SERVER, CLIENT, 0, 3),
            end,
            // What comes after the end, and a farewell, open no new connection.
            says(CLIENT, SERVER, 6, 0),
            says(CLIENT, SERVER, 6, 24),
        ];
        let mut tracker = tracker();
        let found = took(&mut tracker, &segments);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].turnaround.ended, found[0].turnaround.ended_ns.0),
            (Ended::Ok, 50)
        );
    }

    #[test]
    fn a_connection_that_is_reset_cuts_its_request() {
        let mut reset = says(SERVER, CLIENT, 0, 0);
        reset.resets = true;
        let segments = [opens(CLIENT, u32::MAX), says(CLIENT, SERVER, 0, 5), reset];
        let found = took(&mut tracker(), &segments);
        assert_eq!(found[0].turnaround.ended, Ended::Cut);
    }

    #[test]
    fn a_client_whose_port_is_also_that_of_a_service_stays_a_client() {
        let client = "10.0.0.1:443";
        let mut tracker = Tracker::new(vec![Server::parse("web=tcp://*:443").unwrap()]);
        let segments = [
            opens(client, u32::MAX),
            says(client, SERVER, 0, 5),
            says(SERVER, client, 0, 3),
        ];
        let found = took(&mut tracker, &segments);
        assert_eq!((found.len(), found[0].turnaround.ended), (1, Ended::Ok));
        assert_eq!(found[0].client, client.parse().unwrap());
    }

    #[test]
    fn a_port_that_is_used_again_is_a_new_connection() {
        let segments = [
            opens(CLIENT, u32::MAX),
            says(CLIENT, SERVER, 0, 5),
            opens(CLIENT, 899),
            // It was sent again.
            opens(CLIENT, 899),
            says(CLIENT, SERVER, 900, 5),
            says(SERVER, CLIENT, 0, 3),
        ];
        let found = took(&mut tracker(), &segments);
        let seen: Vec<_> = found
            .iter()
            .map(|it| (it.connection, it.turnaround.turn, it.turnaround.ended))
            .collect();
        assert_eq!(seen, [(1, 1, Ended::Cut), (2, 1, Ended::Ok)]);
    }
}
