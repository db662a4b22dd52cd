//! The turnarounds of a connection: a request and its reply, as an onlooker sees them.
//!
//! First, the client sends bytes: a turnaround begins with the first of them. Second, the server sends
//! bytes: the reply begins with the first of them, and ends with the last before the client's next.
//! Third, the client sends again, or the connection ends, and the turnaround is over.
//!
//! A segment that was sent again carries no new byte and changes nothing; one that comes late fills the
//! hole that it left. Bytes that the other side acknowledges although the capture never showed them
//! were missed by the capture: that turnaround is not measured.
//!
//! In a protocol of requests and replies a client sends only after it has received the whole reply, so
//! its segment acknowledges all of the server's bytes. If bytes of both sides cross, several requests
//! are open at once, and which reply belongs to which request cannot be known without their content.
//! The first turnarounds of a connection may cross because of a handshake (TLS sends tickets, HTTP/2
//! settings). After them a single crossing marks the connection for its whole life.

use unruly_trace::{ColumnNs, DurationNs};

use crate::sent::{Sent, is_before};

/// Turnarounds at the beginning of a connection in which bytes may cross because of a handshake.
const HANDSHAKE_TURNS: u32 = 3;

/// A short message of a client that leaves, such as the alert of TLS or the farewell of a database.
const FAREWELL_BYTES_MAX: u64 = 64;

/// A client that sends its farewell ends the connection within this time. A server that ends an idle
/// connection sends its own farewell after a longer pause.
const FAREWELL: DurationNs = DurationNs::millis(100);

/// How a turnaround ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The reply was whole: the client sent the next request, or the connection ended after it.
    Ok,
    /// The connection ended before a whole reply.
    Cut,
    /// The capture ended before a whole reply.
    Open,
    /// Several requests were open at once.
    Overlapped,
    /// The capture has missed some of its bytes.
    Gap,
}

/// A request and its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turnaround {
    /// Its number within the connection, from 1; those that came before the capture are not counted.
    pub turn: u32,
    /// The time of the first byte of the request.
    pub started_ns: ColumnNs,
    /// The time of the last byte of the request.
    pub request_ended_ns: ColumnNs,
    /// The time of the first byte of the reply.
    pub first_reply_ns: Option<ColumnNs>,
    /// The time of the last byte of the reply, or of the request if there was no reply.
    pub ended_ns: ColumnNs,
    /// Length of the request.
    pub request_bytes: u64,
    /// Length of the reply.
    pub reply_bytes: u64,
    /// How it ended.
    pub ended: Ended,
}

/// A side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Side {
    const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// A segment of a connection, by the side that sent it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) side: Side,
    pub(crate) at_ns: ColumnNs,
    pub(crate) sequence: u32,
    pub(crate) acknowledged: Option<u32>,
    pub(crate) bytes: u32,
    pub(crate) opens: bool,
    /// Its sender sends nothing more.
    pub(crate) ends: bool,
    /// It breaks the connection off.
    pub(crate) resets: bool,
}

/// A connection as a capture sees it.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    client: Sent,
    server: Sent,
    open: Option<Turnaround>,
    turns: u32,
    /// Bytes have crossed after the handshake.
    multiplexed: bool,
    /// Length of a message of the client that has no reply.
    silent_bytes: Option<u32>,
    /// When the reply ended before its last segment, if that one is short enough for a farewell.
    before_last_ns: Option<ColumnNs>,
    /// The connection was open when the capture began, and nothing has begun since.
    is_unknown: bool,
}

impl Connection {
    pub(crate) fn new(silent_bytes: Option<u32>) -> Self {
        Self {
            silent_bytes,
            ..Self::default()
        }
    }

    /// Returns true if this is the number of the client's first byte: the segment that opens the
    /// connection was sent again.
    pub(crate) fn begins_with(&self, sequence: u32) -> bool {
        self.client.next == Some(sequence)
    }

    /// Returns the open turnaround as it is now.
    pub(crate) fn open(&self) -> Option<&Turnaround> {
        self.open.as_ref()
    }

    /// Takes a segment. Returns the turnaround that it ends, if there is one.
    pub(crate) fn take(&mut self, seen: &Seen) -> Option<Turnaround> {
        if seen.opens {
            let next = seen.sequence.wrapping_add(1);
            *self.sent(seen.side) = Sent::beginning(next);
            let content = Seen {
                sequence: next,
                opens: false,
                ..*seen
            };
            return (seen.bytes > 0).then(|| self.take(&content)).flatten();
        }
        if self.sent(seen.side).is_far(seen.sequence) && !seen.resets {
            self.miss();
        }
        let is_new = self.client.next.is_none() && self.server.next.is_none();
        self.is_unknown |= is_new && self.turns == 0;
        let crosses = self.crosses(seen);
        let missed = self.sent(seen.side.other()).was_missed(seen.acknowledged);
        let backwards = self.open.is_some_and(|open| seen.at_ns < open.ended_ns);
        if missed || backwards {
            self.spoil();
        }
        let fresh = self.sent(seen.side).take(seen.sequence, seen.bytes);
        let mut over = None;
        if fresh > 0 {
            if crosses {
                self.cross();
            }
            match seen.side {
                Side::Client => over = self.ask(seen, fresh),
                Side::Server => self.answer(seen, fresh),
            }
        }
        if seen.ends {
            self.sent(seen.side)
                .end(seen.sequence.wrapping_add(seen.bytes));
        }
        over.or_else(|| self.leave(seen))
    }

    fn sent(&mut self, side: Side) -> &mut Sent {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }

    /// A side ends the connection, or breaks it off. Returns the turnaround that this ends.
    fn leave(&mut self, seen: &Seen) -> Option<Turnaround> {
        let client = seen.side == Side::Client;
        if client && (seen.ends || seen.resets) {
            self.forget_farewell(seen.at_ns);
        }
        if seen.ends
            && !client
            && let (Some(open), Some(before_ns)) = (&mut self.open, self.before_last_ns)
            && open.ended_ns - before_ns >= FAREWELL
        {
            open.ended_ns = before_ns;
        }
        if seen.resets
            && !client
            && let Some(open) = &mut self.open
            && open.ended == Ended::Ok
        {
            // Nobody knows whether its reply was whole.
            open.ended = Ended::Cut;
        }
        // A client may send its last byte long before the reply.
        let over = seen.resets || seen.ends && !client;
        over.then(|| self.end(Ended::Cut)).flatten()
    }

    /// Forgets a short message that a client sends when it leaves: it is no request.
    fn forget_farewell(&mut self, at_ns: ColumnNs) {
        let is_farewell = self.open.is_some_and(|open| {
            open.first_reply_ns.is_none()
                && open.turn > 1
                && open.request_bytes <= FAREWELL_BYTES_MAX
                && at_ns - open.started_ns <= FAREWELL
        });
        if is_farewell {
            self.open = None;
            self.turns -= 1;
        }
    }

    /// The open turnaround cannot be measured: the capture has missed some of its bytes.
    fn spoil(&mut self) {
        if let Some(open) = &mut self.open {
            open.ended = Ended::Gap;
        }
    }

    /// Returns true if bytes of the other side were under way when this segment was sent.
    fn crosses(&self, seen: &Seen) -> bool {
        let other = match seen.side {
            Side::Client => self.server.next,
            Side::Server => self.client.next,
        };
        let known = other.zip(seen.acknowledged);
        known.is_some_and(|(next, acknowledged)| is_before(acknowledged, next))
    }

    /// Bytes of both sides have crossed.
    fn cross(&mut self) {
        if let Some(open) = &mut self.open {
            self.multiplexed |= open.turn > HANDSHAKE_TURNS;
            if open.ended == Ended::Ok {
                open.ended = Ended::Overlapped;
            }
        }
    }

    /// The client sends bytes of the open request, or of the next one.
    fn ask(&mut self, seen: &Seen, fresh: u32) -> Option<Turnaround> {
        let mut over = None;
        if self.forget_silent() {
            self.turns -= 1;
        }
        match &mut self.open {
            Some(open) if open.first_reply_ns.is_none() => {
                open.request_bytes += u64::from(fresh);
                open.request_ended_ns = seen.at_ns;
                open.ended_ns = seen.at_ns;
                return None;
            }
            Some(_) => over = self.end(Ended::Ok),
            None => {}
        }
        self.turns += 1;
        self.open = Some(Turnaround {
            turn: self.turns,
            started_ns: seen.at_ns,
            request_ended_ns: seen.at_ns,
            first_reply_ns: None,
            ended_ns: seen.at_ns,
            request_bytes: u64::from(fresh),
            reply_bytes: 0,
            // The first bytes that were seen of a connection may be in the middle of a request.
            ended: if self.is_unknown {
                Ended::Gap
            } else {
                Ended::Ok
            },
        });
        self.is_unknown = false;
        self.before_last_ns = None;
        over
    }

    /// Forgets an open request that is a message without a reply. Returns whether there was one.
    fn forget_silent(&mut self) -> bool {
        let silent = self.silent_bytes.map(u64::from);
        let is_silent = self
            .open
            .as_ref()
            .is_some_and(|it| it.first_reply_ns.is_none() && silent == Some(it.request_bytes));
        if is_silent {
            self.open = None;
        }
        is_silent
    }

    /// The server sends bytes. Those before the first request are a greeting.
    fn answer(&mut self, seen: &Seen, fresh: u32) {
        if let Some(open) = &mut self.open {
            let is_short = u64::from(fresh) <= FAREWELL_BYTES_MAX;
            let is_later = open.first_reply_ns.is_some();
            self.before_last_ns = (is_short && is_later).then_some(open.ended_ns);
            open.first_reply_ns.get_or_insert(seen.at_ns);
            open.ended_ns = seen.at_ns;
            open.reply_bytes += u64::from(fresh);
        }
    }

    /// Ends the open turnaround; `without` is its end if there was no reply.
    pub(crate) fn end(&mut self, without: Ended) -> Option<Turnaround> {
        self.forget_silent();
        let mut open = self.open.take()?;
        open.ended = match open.ended {
            Ended::Gap => Ended::Gap,
            Ended::Cut => Ended::Cut,
            Ended::Open => Ended::Open,
            _ if self.multiplexed => Ended::Overlapped,
            Ended::Overlapped => Ended::Overlapped,
            _ if open.first_reply_ns.is_none() => without,
            _ => Ended::Ok,
        };
        Some(open)
    }

    /// Ends the open turnaround because the capture ends. A reply that was quiet for a moment is whole.
    pub(crate) fn stop(&mut self, at_ns: ColumnNs) -> Option<Turnaround> {
        if let Some(open) = &mut self.open
            && open.ended == Ended::Ok
            && at_ns - open.ended_ns < FAREWELL
        {
            open.ended = Ended::Open;
        }
        self.end(Ended::Open)
    }

    /// The capture has missed segments, and nobody knows of which connection.
    pub(crate) fn miss(&mut self) {
        self.spoil();
        // The missed bytes are no gap of a later turnaround.
        (self.client, self.server) = (Sent::default(), Sent::default());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use Side::{Client, Server};

    /// Two sides that send bytes to each other over a sound network.
    struct Wire {
        at_ns: i64,
        client: u32,
        server: u32,
    }

    impl Wire {
        const fn new() -> Self {
            // The numbers wrap around soon.
            Self {
                at_ns: 0,
                client: u32::MAX - 50,
                server: u32::MAX - 100,
            }
        }

        fn says(&mut self, side: Side, bytes: u32) -> Seen {
            self.at_ns += 10;
            let (own, other) = match side {
                Client => (&mut self.client, self.server),
                Server => (&mut self.server, self.client),
            };
            let sequence = *own;
            *own = own.wrapping_add(bytes);
            Seen {
                side,
                at_ns: ColumnNs(self.at_ns),
                sequence,
                acknowledged: Some(other),
                bytes,
                opens: false,
                ends: false,
                resets: false,
            }
        }

        /// Some turnarounds of ten bytes each way.
        fn turns(&mut self, count: usize) -> Vec<Seen> {
            let sides = [Client, Server].into_iter().cycle().take(2 * count);
            sides.map(|side| self.says(side, 10)).collect()
        }
    }

    fn taken(segments: &[Seen]) -> Vec<Turnaround> {
        taken_by(begun(None), segments)
    }

    /// A connection of a wire that was seen from its beginning.
    fn begun(silent_bytes: Option<u32>) -> Connection {
        let mut connection = Connection::new(silent_bytes);
        let wire = Wire::new();
        (connection.client, connection.server) =
            (Sent::beginning(wire.client), Sent::beginning(wire.server));
        connection
    }

    fn taken_by(mut connection: Connection, segments: &[Seen]) -> Vec<Turnaround> {
        let mut found: Vec<_> = segments
            .iter()
            .filter_map(|it| connection.take(it))
            .collect();
        found.extend(connection.end(Ended::Cut));
        found
    }

    fn ends(segments: &[Seen]) -> Vec<Ended> {
        taken(segments).iter().map(|it| it.ended).collect()
    }

    #[test]
    fn a_turnaround_runs_from_the_first_byte_of_a_request_to_the_last_of_its_reply() {
        let mut wire = Wire::new();
        let sides = [
            (Client, 60),
            (Client, 40),
            (Server, 100),
            (Server, 20),
            (Client, 7),
            (Server, 1),
        ];
        let segments = sides.map(|(side, bytes)| wire.says(side, bytes));
        let first = Turnaround {
            turn: 1,
            started_ns: ColumnNs(10),
            request_ended_ns: ColumnNs(20),
            first_reply_ns: Some(ColumnNs(30)),
            ended_ns: ColumnNs(40),
            request_bytes: 100,
            reply_bytes: 120,
            ended: Ended::Ok,
        };
        let second = Turnaround {
            turn: 2,
            started_ns: ColumnNs(50),
            request_ended_ns: ColumnNs(50),
            first_reply_ns: Some(ColumnNs(60)),
            ended_ns: ColumnNs(60),
            request_bytes: 7,
            reply_bytes: 1,
            ended: Ended::Ok,
        };
        assert_eq!(taken(&segments), [first, second]);
    }

    #[test]
    fn a_segment_that_is_sent_again_changes_nothing() {
        let mut wire = Wire::new();
        let ask = wire.says(Client, 10);
        let reply = wire.says(Server, 10);
        let again = Seen {
            at_ns: ColumnNs(90),
            ..ask
        };
        let late = Seen {
            at_ns: ColumnNs(95),
            ..reply
        };
        assert_eq!(taken(&[ask, reply, again, late]), taken(&[ask, reply]));
    }

    #[test]
    fn bytes_that_cross_after_the_handshake_mark_the_connection_from_then_on() {
        let mut wire = Wire::new();
        let mut segments = wire.turns(4);
        segments.push(wire.says(Client, 10));
        let reply = wire.says(Server, 10);
        segments.push(reply);
        // It was sent before the reply came.
        segments.push(Seen {
            acknowledged: Some(reply.sequence),
            ..wire.says(Client, 10)
        });
        segments.push(wire.says(Server, 10));
        segments.extend(wire.turns(1));
        let ended = ends(&segments);
        assert_eq!(ended[..4], [Ended::Ok; 4]);
        assert_eq!(ended[4..], [Ended::Overlapped; 3]);
    }

    #[test]
    fn a_ticket_that_crosses_the_first_request_marks_the_handshake_alone() {
        let mut wire = Wire::new();
        let mut segments = wire.turns(1);
        segments.push(wire.says(Client, 80));
        let ticket = wire.says(Server, 200);
        segments.push(ticket);
        segments.push(Seen {
            acknowledged: Some(ticket.sequence),
            ..wire.says(Client, 10)
        });
        segments.push(wire.says(Server, 10));
        segments.extend(wire.turns(1));
        assert_eq!(
            ends(&segments),
            [Ended::Ok, Ended::Overlapped, Ended::Ok, Ended::Ok]
        );
    }

    #[test]
    fn missed_bytes_leave_a_gap_in_one_turnaround() {
        let mut wire = Wire::new();
        let mut segments = Vec::new();
        for _ in 0..3 {
            segments.extend(wire.turns(1));
            segments.push(wire.says(Server, 10));
        }
        // The first part of the second reply.
        segments.remove(4);
        assert_eq!(ends(&segments), [Ended::Ok, Ended::Gap, Ended::Ok]);
    }

    #[test]
    fn an_unknown_loss_makes_a_gap_of_the_open_turnaround_alone() {
        let mut wire = Wire::new();
        let mut connection = begun(None);
        let mut found = Vec::new();
        for (place, seen) in wire.turns(4).iter().enumerate() {
            found.extend(connection.take(seen));
            if place == 2 {
                connection.miss();
            }
        }
        found.extend(connection.end(Ended::Cut));
        let ended: Vec<_> = found.iter().map(|it| it.ended).collect();
        assert_eq!(ended, [Ended::Ok, Ended::Gap, Ended::Ok, Ended::Ok]);
    }

    #[test]
    fn a_request_without_a_reply_is_cut_and_a_greeting_is_no_reply() {
        let mut wire = Wire::new();
        let greeting = wire.says(Server, 30);
        let ask = wire.says(Client, 10);
        let end = Seen {
            ends: true,
            ..wire.says(Server, 0)
        };
        let found = taken(&[greeting, ask, end]);
        assert_eq!((found.len(), found[0].ended), (1, Ended::Cut));
        assert_eq!(found[0].reply_bytes, 0);
    }

    #[test]
    fn a_message_that_has_no_reply_does_not_lengthen_the_next_turnaround() {
        let mut wire = Wire::new();
        let mut segments = wire.turns(1);
        segments.push(wire.says(Client, 9));
        segments.extend(wire.turns(1));
        segments.push(wire.says(Client, 9));
        let known = taken_by(begun(Some(9)), &segments);
        let starts: Vec<_> = known.iter().map(|it| (it.started_ns.0, it.turn)).collect();
        assert_eq!(starts, [(10, 1), (40, 2)]);
        // Nobody has said so of this protocol: the next turnaround begins too early.
        let unknown = taken(&segments);
        assert_eq!((unknown.len(), unknown[1].started_ns.0), (3, 30));
        assert_eq!(unknown[1].request_ended_ns.0, 40);
    }

    #[test]
    fn bytes_that_were_lost_and_come_late_end_the_reply_and_are_no_gap() {
        let mut wire = Wire::new();
        let mut segments = vec![wire.says(Client, 10)];
        segments.extend((0..3).map(|_| wire.says(Server, 10)));
        let late = Seen {
            at_ns: ColumnNs(500),
            ..segments.remove(2)
        };
        segments.push(late);
        wire.at_ns = 500;
        segments.extend(wire.turns(1));
        let found = taken(&segments);
        assert_eq!((found[0].ended, found[0].ended_ns.0), (Ended::Ok, 500));
        assert_eq!((found[0].reply_bytes, found.len()), (30, 2));
    }

    #[test]
    fn a_farewell_of_either_side_is_no_request_and_no_part_of_a_reply() {
        let mut wire = Wire::new();
        let mut segments = wire.turns(2);
        segments.push(wire.says(Client, 24));
        let end = Seen {
            ends: true,
            ..wire.says(Client, 0)
        };
        wire.client = wire.client.wrapping_add(1);
        segments.push(end);
        segments.push(wire.says(Server, 24));
        assert_eq!(ends(&segments), [Ended::Ok; 2]);
        // A server says it after its connection was idle.
        let mut wire = Wire::new();
        let mut segments = wire.turns(2);
        wire.at_ns = 65_000_000_000;
        segments.push(wire.says(Server, 24));
        segments.push(Seen {
            ends: true,
            ..wire.says(Server, 0)
        });
        let found = taken(&segments);
        assert_eq!((found[1].ended_ns.0, found[1].ended), (40, Ended::Ok));
    }

    #[test]
    fn a_client_that_gives_up_has_no_reply() {
        let mut wire = Wire::new();
        let mut segments = wire.turns(1);
        segments.push(wire.says(Client, 10));
        wire.at_ns = 1_000_000_000;
        segments.push(Seen {
            ends: true,
            ..wire.says(Client, 0)
        });
        wire.client = wire.client.wrapping_add(1);
        segments.push(Seen {
            resets: true,
            ..wire.says(Client, 0)
        });
        assert_eq!(ends(&segments), [Ended::Ok, Ended::Cut]);
    }

    #[test]
    fn a_request_that_the_end_of_the_capture_cuts_is_none_that_failed() {
        let mut wire = Wire::new();
        let mut connection = begun(None);
        let mut stopped = |segments: &[Seen], at_ns| {
            segments.iter().for_each(|it| {
                connection.take(it);
            });
            connection.stop(ColumnNs(at_ns)).unwrap().ended
        };
        let open = [wire.says(Client, 10)];
        assert_eq!(stopped(&open, 1_000_000_000), Ended::Open);
        let fresh = [wire.says(Client, 10), wire.says(Server, 10)];
        assert_eq!(stopped(&fresh, wire.at_ns), Ended::Open);
        let quiet = [wire.says(Client, 10), wire.says(Server, 10)];
        assert_eq!(stopped(&quiet, 1_000_000_000), Ended::Ok);
    }

    #[test]
    fn a_connection_that_was_there_before_the_capture_has_its_first_request_left_out() {
        let mut wire = Wire::new();
        let segments = wire.turns(2);
        let found = taken_by(Connection::default(), &segments);
        let ended: Vec<_> = found.iter().map(|it| it.ended).collect();
        assert_eq!(ended, [Ended::Gap, Ended::Ok]);
    }

    proptest! {
        #[test]
        fn every_byte_of_sound_turnarounds_is_counted_once(
            turns in prop::collection::vec(
                (prop::collection::vec(1_u32..2_000, 1..4), prop::collection::vec(1_u32..2_000, 1..4)),
                1..20,
            ),
            again in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
        ) {
            let mut wire = Wire::new();
            let mut segments = Vec::new();
            for (asked, answered) in &turns {
                segments.extend(asked.iter().map(|bytes| wire.says(Client, *bytes)));
                segments.extend(answered.iter().map(|bytes| wire.says(Server, *bytes)));
            }
            for index in again {
                let place = index.index(segments.len());
                segments.insert(place + 1, segments[place]);
            }
            let found = taken(&segments);
            let wanted: Vec<(u64, u64)> = turns
                .iter()
                .map(|(asked, answered)| {
                    let sum = |it: &[u32]| it.iter().map(|bytes| u64::from(*bytes)).sum();
                    (sum(asked), sum(answered))
                })
                .collect();
            let pairs: Vec<_> = found.iter().map(|it| (it.request_bytes, it.reply_bytes)).collect();
            prop_assert_eq!(pairs, wanted);
            prop_assert!(found.iter().all(|it| it.ended == Ended::Ok));
        }

        #[test]
        fn no_order_of_segments_makes_a_connection_panic(
            parts in prop::collection::vec(
                (any::<bool>(), any::<u32>(), any::<Option<u32>>(), 0_u32..70_000, 0_u8..20),
                0..60,
            ),
        ) {
            let mut connection = Connection::new(Some(9));
            for (place, (client, sequence, acknowledged, bytes, flags)) in parts.into_iter().enumerate() {
                let seen = Seen {
                    side: if client { Client } else { Server },
                    at_ns: ColumnNs(i64::try_from(place).unwrap()),
                    sequence,
                    acknowledged,
                    bytes,
                    opens: flags == 0,
                    ends: flags == 1,
                    resets: flags == 3,
                };
                let ended = connection.take(&seen);
                if let Some(ended) = ended {
                    prop_assert!(ended.started_ns <= ended.ended_ns);
                }
                if flags == 2 {
                    connection.miss();
                }
            }
        }
    }
}
