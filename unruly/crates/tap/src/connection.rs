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

use crate::sent::Sent;

/// Turnarounds at the beginning of a connection in which bytes may cross because of a handshake.
const HANDSHAKE_TURNS: u32 = 3;

/// A short message of a client that leaves, such as the alert of TLS or the farewell of a database.
const FAREWELL_BYTES_MAX: u64 = 64;

/// A client that sends its farewell ends the connection within this time.
const FAREWELL: DurationNs = DurationNs::millis(10);

/// A server that ends an idle connection may send a farewell of its own, of at most this length, after
/// a pause. After a short pause it may as well be the end of the reply.
const SERVER_FAREWELL_BYTES_MAX: u64 = 512;
const PAUSE_MIN: DurationNs = DurationNs::millis(100);
const IDLE: DurationNs = DurationNs::seconds(5);

/// Stamps of neighbouring segments that are this much out of order belong to two processors.
const JITTER: DurationNs = DurationNs::millis(1);

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
    /// The capture has missed some of its bytes, or nobody knows whether its last bytes are a farewell.
    Gap,
    /// The connection was open before the capture began, so the request may have begun before it.
    Joined,
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
    /// The client left right after the open request: that may be its farewell.
    may_be_farewell: bool,
    /// The client left after all that the server has sent so far: it was the reply, to its end.
    has_left: bool,
    /// Segments were missed while no request was open: the next one may have begun in them.
    may_lack_begin: bool,
    /// When it ended, nothing had come for a while; false again once a later request was counted.
    ended_idle: bool,
    /// The connection was open when the capture began, and nothing has begun since.
    is_unknown: bool,
    /// Both sides, or one that broke it off, have ended the connection.
    is_over: bool,
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

    /// Returns true if nothing more of the connection can come.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns true if the open turnaround can be measured, as far as is known now.
    pub(crate) fn is_sound(&self) -> bool {
        !self.multiplexed && self.open.is_some_and(|it| it.ended == Ended::Ok)
    }

    /// Takes a segment, and adds the turnarounds that it ends.
    pub(crate) fn take(&mut self, seen: &Seen, ended: &mut Vec<Turnaround>) {
        if self.is_over {
            ended.extend(self.ask_in_vain(seen));
            return;
        }
        let mut seen = *seen;
        if seen.opens {
            seen.opens = false;
            seen.sequence = seen.sequence.wrapping_add(1);
            *self.sent(seen.side) = Sent::beginning(seen.sequence);
            if seen.bytes == 0 {
                return;
            }
        }
        if self.sent(seen.side).is_far(seen.sequence) && !seen.resets {
            self.miss();
        }
        let is_new = self.client.next.is_none() && self.server.next.is_none();
        self.is_unknown |= is_new && self.turns == 0;
        let crosses = self.crosses(&seen);
        if self.sent(seen.side.other()).was_missed(seen.acknowledged) {
            self.spoil();
        }
        self.straighten(&mut seen);
        let fresh = self.sent(seen.side).take(seen.sequence, seen.bytes);
        if fresh > 0 {
            if crosses {
                self.cross();
            }
            match seen.side {
                Side::Client => ended.extend(self.ask(&seen, fresh)),
                Side::Server => self.answer(&seen, fresh),
            }
        }
        if seen.ends {
            let last = seen.sequence.wrapping_add(seen.bytes);
            self.sent(seen.side).end(last);
            self.has_left |= seen.side == Side::Client;
        }
        ended.extend(self.leave(&seen));
    }

    /// Gives a segment that two processors have stamped out of order the time of the one before it. A
    /// larger step back is one of the clock.
    fn straighten(&mut self, seen: &mut Seen) {
        if let Some(open) = &mut self.open
            && seen.at_ns < open.ended_ns
        {
            if seen.bytes > 0 && open.ended_ns - seen.at_ns > JITTER {
                open.ended = Ended::Gap;
            }
            seen.at_ns = open.ended_ns;
        }
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
            self.may_be_farewell |= self.open.is_some_and(|open| {
                open.first_reply_ns.is_none()
                    && open.turn > 1
                    && open.request_bytes <= FAREWELL_BYTES_MAX
                    && seen.at_ns - open.started_ns <= FAREWELL
            });
        }
        if seen.resets
            && !client
            && let Some(open) = &mut self.open
            && open.ended == Ended::Ok
            && seen.at_ns - open.ended_ns < PAUSE_MIN
        {
            // Nobody knows whether its reply was whole.
            open.ended = Ended::Cut;
        }
        // A client may send its last byte long before the reply, and a lost part of the reply may come
        // after the server's last byte.
        if !seen.resets && !self.server.is_over() {
            return None;
        }
        self.is_over = true;
        let last_ns = self
            .open
            .as_ref()
            .map(|it| (it.ended_ns, it.first_reply_ns));
        self.ended_idle = !seen.resets
            && !self.has_left
            && last_ns
                .is_none_or(|(at_ns, reply)| reply.is_some() && seen.at_ns - at_ns >= PAUSE_MIN);
        if !seen.resets {
            self.forget_server_farewell(seen.at_ns);
        }
        self.end(Ended::Cut)
    }

    /// A request that crossed the end of an idle connection: nobody reads it.
    fn ask_in_vain(&mut self, seen: &Seen) -> Option<Turnaround> {
        if seen.side == Side::Server || !self.ended_idle {
            return None;
        }
        let fresh = u64::from(self.client.take(seen.sequence, seen.bytes));
        if fresh <= FAREWELL_BYTES_MAX {
            return None;
        }
        self.ended_idle = false;
        self.turns += 1;
        Some(Turnaround {
            turn: self.turns,
            started_ns: seen.at_ns,
            request_ended_ns: seen.at_ns,
            first_reply_ns: None,
            ended_ns: seen.at_ns,
            request_bytes: fresh,
            reply_bytes: 0,
            ended: match self.multiplexed {
                true => Ended::Overlapped,
                false => Ended::Cut,
            },
        })
    }

    /// Ends the reply before the farewell of a server, which it sends when it leaves. After a short
    /// pause it may be a part of the reply. If the client left first it was one, or after a long pause
    /// a farewell that made the client leave.
    fn forget_server_farewell(&mut self, left_ns: ColumnNs) {
        let (Some(open), Some(before_ns)) = (&mut self.open, self.before_last_ns) else {
            return;
        };
        if left_ns - open.ended_ns >= PAUSE_MIN {
            return;
        }
        let pause = open.ended_ns - before_ns;
        match (pause >= IDLE, self.has_left) {
            (true, false) => open.ended_ns = before_ns,
            (true, true) => open.ended = Ended::Gap,
            (false, false) if pause >= PAUSE_MIN => open.ended = Ended::Gap,
            (false, _) => {}
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
            Side::Client => &self.server,
            Side::Server => &self.client,
        };
        seen.acknowledged.is_some_and(|it| other.is_beyond(it))
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
            ended: match (self.is_unknown, self.may_lack_begin) {
                (true, _) => Ended::Joined,
                (false, true) => Ended::Gap,
                (false, false) => Ended::Ok,
            },
        });
        self.is_unknown = false;
        self.may_lack_begin = false;
        self.before_last_ns = None;
        self.may_be_farewell = false;
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
        self.has_left = false;
        if let Some(open) = &mut self.open {
            let is_short = u64::from(fresh) <= SERVER_FAREWELL_BYTES_MAX;
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
        if self.may_be_farewell && open.reply_bytes <= FAREWELL_BYTES_MAX {
            // Both sides have said farewell.
            self.may_be_farewell = false;
            return None;
        }
        open.ended = match open.ended {
            Ended::Ok if self.multiplexed => Ended::Overlapped,
            Ended::Ok if open.first_reply_ns.is_none() => without,
            known => known,
        };
        Some(open)
    }

    /// Ends the open turnaround because the capture ends. A reply that was quiet for a moment is whole.
    pub(crate) fn stop(&mut self, at_ns: ColumnNs) -> Option<Turnaround> {
        if let Some(open) = &mut self.open
            && open.ended == Ended::Ok
            && at_ns - open.ended_ns < PAUSE_MIN
        {
            open.ended = Ended::Open;
        }
        self.end(Ended::Open)
    }

    /// The capture has missed segments, and nobody knows of which connection.
    pub(crate) fn miss(&mut self) {
        self.spoil();
        self.may_lack_begin = self.open.is_none_or(|it| it.first_reply_ns.is_some());
        // The missed bytes are no gap of a later turnaround.
        (self.client, self.server) = (Sent::default(), Sent::default());
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
