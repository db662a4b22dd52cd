//! What a connection makes of segments in every order.

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
    let mut found = Vec::new();
    segments
        .iter()
        .for_each(|it| connection.take(it, &mut found));
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
        connection.take(seen, &mut found);
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
fn a_request_that_the_capture_never_showed_spoils_the_one_before_it() {
    let mut wire = Wire::new();
    let mut segments = wire.turns(4);
    // The second request.
    segments.remove(2);
    assert_eq!(ends(&segments), [Ended::Gap, Ended::Ok, Ended::Ok]);
}

#[test]
fn a_segment_that_is_sent_again_with_more_fills_the_hole_and_adds_to_it() {
    let mut wire = Wire::new();
    let mut segments = vec![wire.says(Client, 10)];
    let first = wire.says(Server, 10);
    segments.push(wire.says(Server, 10));
    let more = wire.says(Server, 10);
    segments.push(Seen {
        sequence: first.sequence,
        bytes: 30,
        ..more
    });
    segments.extend(wire.turns(1));
    let found = taken(&segments);
    assert_eq!((found[0].ended, found[0].reply_bytes), (Ended::Ok, 30));
}

#[test]
fn a_part_of_the_reply_may_come_after_the_last_byte_of_the_server() {
    let mut wire = Wire::new();
    let mut segments = vec![wire.says(Client, 10)];
    let late = wire.says(Server, 10);
    segments.push(Seen {
        ends: true,
        ..wire.says(Server, 10)
    });
    segments.push(Seen {
        at_ns: ColumnNs(200),
        ..late
    });
    let found = taken(&segments);
    let seen = (found[0].ended, found[0].ended_ns.0, found[0].reply_bytes);
    assert_eq!(seen, (Ended::Ok, 200, 20));
}

#[test]
fn a_short_request_of_a_client_that_sends_nothing_more_keeps_its_reply() {
    let mut wire = Wire::new();
    let mut segments = wire.turns(1);
    segments.push(Seen {
        ends: true,
        ..wire.says(Client, 10)
    });
    wire.client = wire.client.wrapping_add(1);
    segments.push(wire.says(Server, 500));
    segments.push(Seen {
        ends: true,
        ..wire.says(Server, 0)
    });
    assert_eq!(ends(&segments), [Ended::Ok; 2]);
}

#[test]
fn bytes_that_cross_the_end_of_the_client_do_not_overlap() {
    let mut wire = Wire::new();
    let mut segments = wire.turns(5);
    segments.push(wire.says(Client, 10));
    let reply = wire.says(Server, 100);
    segments.push(Seen {
        ends: true,
        acknowledged: Some(reply.sequence),
        ..wire.says(Client, 0)
    });
    segments.push(Seen {
        at_ns: ColumnNs(wire.at_ns),
        ..reply
    });
    segments.push(Seen {
        ends: true,
        acknowledged: reply.acknowledged,
        ..wire.says(Server, 5)
    });
    assert_eq!(ends(&segments), [Ended::Ok; 6]);
}

#[test]
fn stamps_of_two_processors_may_be_a_little_out_of_order() {
    let mut wire = Wire::new();
    let mut segments = wire.turns(2);
    segments[3].at_ns = ColumnNs(25);
    let found = taken(&segments);
    assert_eq!((found[1].ended, found[1].ended_ns.0), (Ended::Ok, 30));
    segments[3].at_ns = ColumnNs(-2_000_000);
    assert_eq!(ends(&segments), [Ended::Ok, Ended::Gap]);
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
        let ended = &mut Vec::new();
        segments.iter().for_each(|it| connection.take(it, ended));
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
    assert_eq!(ended, [Ended::Joined, Ended::Ok]);
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
            let mut ended = Vec::new();
            connection.take(&seen, &mut ended);
            for it in ended {
                prop_assert!(it.started_ns <= it.ended_ns);
            }
            if flags == 2 {
                connection.miss();
            }
        }
    }
}

/// Returns a segment that ends a side.
fn leaves(wire: &mut Wire, side: Side) -> Seen {
    let end = Seen {
        ends: true,
        ..wire.says(side, 0)
    };
    let own = match side {
        Client => &mut wire.client,
        Server => &mut wire.server,
    };
    *own = own.wrapping_add(1);
    end
}

#[test]
fn the_end_of_a_slow_reply_is_no_farewell() {
    // The client leaves first: it has the whole reply.
    let mut wire = Wire::new();
    let mut segments = wire.turns(1);
    wire.at_ns += 4_000_000_000;
    segments.push(wire.says(Server, 300));
    segments.extend([Client, Server].map(|side| leaves(&mut wire, side)));
    let found = taken(&segments);
    assert_eq!((found[0].ended, found[0].reply_bytes), (Ended::Ok, 310));
    assert!(found[0].ended_ns > ColumnNs(4_000_000_000));
    // After a long pause it may be what made the client leave.
    let mut wire = Wire::new();
    let mut segments = wire.turns(1);
    wire.at_ns += 300_000_000_000;
    segments.push(wire.says(Server, 300));
    segments.extend([Client, Server].map(|side| leaves(&mut wire, side)));
    assert_eq!(ends(&segments), [Ended::Gap]);
    // The server leaves a minute later: its last bytes were not said in leaving.
    let mut wire = Wire::new();
    let mut segments = wire.turns(1);
    wire.at_ns += 150_000_000;
    segments.push(wire.says(Server, 300));
    wire.at_ns += 60_000_000_000;
    segments.push(leaves(&mut wire, Server));
    let found = taken(&segments);
    assert_eq!((found[0].ended, found[0].reply_bytes), (Ended::Ok, 310));
}

#[test]
fn a_request_whose_beginning_may_have_been_missed_is_not_measured() {
    let mut wire = Wire::new();
    let mut connection = begun(None);
    let mut found = Vec::new();
    for it in wire.turns(2) {
        connection.take(&it, &mut found);
    }
    connection.miss();
    for it in wire.turns(2) {
        connection.take(&it, &mut found);
    }
    found.extend(connection.end(Ended::Cut));
    let ends: Vec<Ended> = found.iter().map(|it| it.ended).collect();
    assert_eq!(ends, [Ended::Ok, Ended::Gap, Ended::Gap, Ended::Ok]);
}

#[test]
fn a_request_that_crosses_the_end_of_an_idle_connection_is_cut() {
    let mut wire = Wire::new();
    let mut segments = wire.turns(1);
    wire.at_ns += 60_000_000_000;
    // The client has not seen the end, and acknowledges nothing of it.
    let acknowledged = Some(wire.server);
    segments.push(leaves(&mut wire, Server));
    wire.at_ns += 200_000;
    let late = Seen {
        acknowledged,
        ..wire.says(Client, 300)
    };
    segments.extend([late, late]);
    assert_eq!(ends(&segments), [Ended::Ok, Ended::Cut]);
    // The rest of an upload whose reply came early is no request.
    let mut wire = Wire::new();
    let mut segments = wire.turns(1);
    let acknowledged = Some(wire.server);
    segments.push(leaves(&mut wire, Server));
    let late = Seen {
        acknowledged,
        ..wire.says(Client, 300)
    };
    segments.push(late);
    assert_eq!(ends(&segments), [Ended::Ok]);
}
