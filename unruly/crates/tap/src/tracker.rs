//! The connections of the watched services, and the turnarounds of all of them.

use std::collections::HashMap;
use std::net::SocketAddr;

use unruly_trace::{ColumnNs, DurationNs};

use crate::connection::{Connection, Ended, Seen, Side, Turnaround};
use crate::segment::Segment;
use crate::server::Server;

/// Connections that are followed at once; each takes some 250 bytes.
const CONNECTIONS_MAX: usize = 100_000;

/// If there is no room for another connection, those that were silent for longer are forgotten.
const SILENT: DurationNs = DurationNs::seconds(60);

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

/// Follows the connections of the watched services.
#[derive(Debug)]
pub struct Tracker {
    servers: Vec<Server>,
    connections: HashMap<Ends, Followed>,
    numbers: u32,
    /// Connections that were not followed, for want of room.
    left_out: u64,
    /// Clients of new connections, until somebody takes them.
    fresh: Vec<SocketAddr>,
}

impl Tracker {
    /// Returns a tracker of these services.
    #[must_use]
    pub fn new(servers: Vec<Server>) -> Self {
        Self {
            servers,
            connections: HashMap::new(),
            numbers: 0,
            left_out: 0,
            fresh: Vec::new(),
        }
    }

    /// Returns the services.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Returns how many connections were left out for want of room.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Returns the clients of the connections that are new since the last call.
    pub fn take_fresh(&mut self) -> Vec<SocketAddr> {
        std::mem::take(&mut self.fresh)
    }

    /// Takes a segment. Returns the turnaround that it ends, if there is one.
    pub fn take(&mut self, segment: &Segment, at_ns: ColumnNs) -> Option<Finished> {
        let (side, ends, server) = self.place(segment)?;
        // A service ends a connection by its last byte; a client may send its last byte long before.
        let over = segment.resets || segment.ends && side == Side::Server;
        let followed = match self.connections.get_mut(&ends) {
            Some(followed) => followed,
            None if over || segment.bytes == 0 && !segment.opens => return None,
            None => self.follow(ends, server, at_ns)?,
        };
        followed.seen_ns = at_ns;
        let turnaround = followed.connection.take(&Seen {
            side,
            at_ns,
            sequence: segment.sequence,
            acknowledged: segment.acknowledged,
            bytes: segment.bytes,
            opens: segment.opens,
            ends: over,
        });
        let finished = turnaround.map(|it| finished(&ends, followed, it));
        if over {
            self.connections.remove(&ends);
        }
        finished
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

    fn follow(&mut self, ends: Ends, server: u16, at_ns: ColumnNs) -> Option<&mut Followed> {
        if self.connections.len() >= CONNECTIONS_MAX {
            let old_ns = at_ns.saturating_sub(SILENT);
            self.connections.retain(|_, it| it.seen_ns >= old_ns);
        }
        if self.connections.len() >= CONNECTIONS_MAX {
            self.left_out += 1;
            return None;
        }
        self.numbers = self.numbers.wrapping_add(1);
        self.fresh.push(ends.client);
        let silent_bytes = self.servers[usize::from(server)].silent_bytes;
        let followed = Followed {
            server,
            number: self.numbers,
            seen_ns: at_ns,
            connection: Connection::new(silent_bytes),
        };
        Some(
            self.connections
                .entry(ends)
                .insert_entry(followed)
                .into_mut(),
        )
    }

    /// Segments of unknown connections were missed.
    pub fn miss(&mut self) {
        let all = self.connections.values_mut();
        all.for_each(|it| it.connection.miss());
    }

    /// Returns the service, the start and the end so far of each open turnaround.
    pub fn open(&self) -> impl Iterator<Item = (u16, ColumnNs, Option<ColumnNs>)> {
        self.connections.values().filter_map(|it| {
            let open = it.connection.open()?;
            let replied = open.first_reply_ns.map(|_| open.ended_ns);
            Some((it.server, open.started_ns, replied))
        })
    }

    /// Ends all turnarounds: the capture is over.
    pub fn finish(&mut self) -> Vec<Finished> {
        let mut rest: Vec<Finished> = std::mem::take(&mut self.connections)
            .iter_mut()
            .filter_map(|(ends, followed)| {
                let turnaround = followed.connection.end(Ended::Cut)?;
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

    fn took(tracker: &mut Tracker, segments: &[Segment]) -> Vec<Finished> {
        let numbered = segments.iter().zip(1..);
        let mut found: Vec<Finished> = numbered
            .filter_map(|(segment, at)| tracker.take(segment, ColumnNs(at * 10)))
            .collect();
        found.extend(tracker.finish());
        found
    }

    #[test]
    fn connections_of_several_clients_are_told_apart() {
        let other = "10.0.0.9:4000";
        let segments = [
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
        assert_eq!(seen, [(1, 5, 40), (2, 7, 30)]);
        assert_eq!(
            tracker.take_fresh(),
            [CLIENT, other].map(|it| it.parse().unwrap())
        );
    }

    #[test]
    fn a_client_that_sends_nothing_more_still_gets_its_reply() {
        let mut half = says(CLIENT, SERVER, 5, 0);
        half.ends = true;
        let mut end = says(SERVER, CLIENT, 3, 0);
        end.ends = true;
        let segments = [
            says(CLIENT, SERVER, 0, 5),
            half,
            says(SERVER, CLIENT, 0, 3),
            end,
            // The last acknowledgement opens no new connection.
            says(CLIENT, SERVER, 6, 0),
        ];
        let mut tracker = tracker();
        let found = took(&mut tracker, &segments);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].turnaround.ended, found[0].turnaround.ended_ns.0),
            (Ended::Ok, 30)
        );
        assert!(tracker.connections.is_empty());
    }

    #[test]
    fn a_connection_that_is_reset_cuts_its_request() {
        let mut reset = says(SERVER, CLIENT, 0, 0);
        reset.resets = true;
        let found = took(&mut tracker(), &[says(CLIENT, SERVER, 0, 5), reset]);
        assert_eq!(found[0].turnaround.ended, Ended::Cut);
    }

    #[test]
    fn a_client_whose_port_is_also_that_of_a_service_stays_a_client() {
        let client = "10.0.0.1:443";
        let mut tracker = Tracker::new(vec![Server::parse("web=tcp://*:443").unwrap()]);
        let segments = [says(client, SERVER, 0, 5), says(SERVER, client, 0, 3)];
        let found = took(&mut tracker, &segments);
        assert_eq!((found.len(), found[0].turnaround.ended), (1, Ended::Ok));
        assert_eq!(found[0].client, client.parse().unwrap());
    }
}
