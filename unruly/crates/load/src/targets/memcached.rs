//! memcached: the meta commands, over TCP and UDP.

use std::collections::{HashMap, VecDeque};

use unruly_plan::Transport;
use unruly_trace::ErrorKind;

use super::{Driver, DriverError, Protocol, Settings, places_by, without_level, without_path};
use crate::link::Place;
use crate::target::{
    Answer, CENSUS, GREETING, Incoming, Operation, Outgoing, ProtocolError, Target,
};

const PORT: u16 = 11211;
const WANTED: &str = "a reply of memcached";

/// Longest first line of a reply: a key has 250 bytes at most.
const LINE_BYTES_MAX: usize = 2_048;

/// What a datagram of memcached's begins with: request, part, parts, nothing; each of two bytes.
const FRAME_BYTES: usize = 8;

/// Longest value over UDP, in one datagram with its command. memcached takes no write of several.
const UDP_VALUE_MAX: u64 = 1_300;

pub(super) fn make(settings: &Settings<'_>) -> Result<Box<dyn Driver>, DriverError> {
    without_level(settings)?;
    without_path(settings)?;
    if settings.password.is_some() || !settings.store.url.user.is_empty() {
        return Err(DriverError::new(
            "url",
            "memcached is asked with a user or a password",
            "wanted none: its binary protocol alone had them",
            "leave them out",
        ));
    }
    if settings.transport == Transport::Udp && settings.store.value.most().0 > UDP_VALUE_MAX {
        return Err(DriverError::new(
            "value",
            format!("it is up to {}", settings.store.value.most()),
            format!("wanted at most {UDP_VALUE_MAX}B, which one datagram holds"),
            "value = \"1000B\"",
        ));
    }
    Ok(Box::new(Memcached {
        places: places_by(settings, PORT, PORT, Protocol::None)?,
        transport: settings.transport,
    }))
}

struct Memcached {
    places: Vec<Place>,
    transport: Transport,
}

impl Driver for Memcached {
    fn places(&self) -> &[Place] {
        &self.places
    }

    fn target(&self, _place: usize) -> Box<dyn Target> {
        match self.transport {
            Transport::Tcp => Box::new(Stream::default()),
            Transport::Udp => Box::new(Datagrams::default()),
        }
    }
}

/// Appends a command.
fn command(operation: Operation<'_>, out: &mut Vec<u8>) {
    use std::io::Write as _;
    // Writing to memory does not fail.
    let _ = match operation {
        Operation::Read { key } => write!(out, "mg {key} v\r\n"),
        Operation::Write { key, value } => write!(out, "ms {key} {}\r\n{value}\r\n", value.len()),
        Operation::Call { .. } | Operation::Named { .. } => write!(out, "mn\r\n"),
    };
}

/// An answer, and how many bytes it is long; `None` when more are needed.
fn answer(input: &[u8]) -> Result<Option<(Answer<'_>, usize)>, ProtocolError> {
    let Some(end) = input
        .iter()
        .take(LINE_BYTES_MAX)
        .position(|byte| *byte == b'\n')
    else {
        if input.len() >= LINE_BYTES_MAX {
            return Err(ProtocolError::reply(input, WANTED));
        }
        return Ok(None);
    };
    let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
    let (word, rest) = match line.iter().position(|byte| *byte == b' ') {
        Some(space) => line.split_at(space),
        None => (line, &[][..]),
    };
    let after = end + 1;
    let found = match word {
        b"VA" => {
            let length = std::str::from_utf8(rest).ok();
            let length = length.and_then(|it| it.split_whitespace().next()?.parse::<usize>().ok());
            let length = length.filter(|length| *length <= VALUE_BYTES_MAX);
            let length = length.ok_or_else(|| ProtocolError::reply(line, WANTED))?;
            let Some(body) = input.get(after..after + length + 2) else {
                return Ok(None);
            };
            if !body.ends_with(b"\r\n") {
                return Err(ProtocolError::reply(&body[length..], "the end of a value"));
            }
            (Answer::Found(&body[..length]), after + length + 2)
        }
        b"HD" | b"MN" => (Answer::Done, after),
        b"EN" | b"NF" => (Answer::Missing, after),
        b"NS" | b"EX" | b"ERROR" | b"CLIENT_ERROR" | b"SERVER_ERROR" => {
            (Answer::Failed(ErrorKind::Store, line), after)
        }
        _ => return Err(ProtocolError::reply(line, WANTED)),
    };
    Ok(Some(found))
}

/// Whether the statistics count items. memcached cannot say whose they are.
fn items(input: &[u8]) -> Option<Incoming<'_>> {
    const END: &[u8] = b"END\r\n";
    let bytes = input.windows(END.len()).position(|it| it == END)? + END.len();
    let mut lines = input[..bytes].split(|byte| *byte == b'\n');
    let line = lines.find(|line| line.starts_with(b"STAT curr_items "));
    let words = line.and_then(|line| line.strip_prefix(b"STAT "));
    let words = words
        .map(<[u8]>::trim_ascii)
        .filter(|it| *it != b"curr_items 0");
    let answer = words.map_or(Answer::Missing, Answer::Found);
    Some(Incoming::new(CENSUS, answer, bytes))
}

/// Longest value that is taken: the longest that is written, and more.
const VALUE_BYTES_MAX: usize = 32 << 20;

/// A connection: replies come in order.
#[derive(Default)]
struct Stream {
    asked: VecDeque<u64>,
}

impl Target for Stream {
    fn greet(&mut self, out: &mut Vec<u8>) -> usize {
        self.asked.clear();
        self.asked.push_back(GREETING);
        out.extend_from_slice(b"mn\r\n");
        1
    }

    fn encode(&mut self, outgoing: &Outgoing<'_>, out: &mut Vec<u8>) {
        self.asked.push_back(outgoing.request);
        command(outgoing.operation, out);
    }

    fn encode_removal(&mut self, request: u64, key: &str, out: &mut Vec<u8>) -> bool {
        self.asked.push_back(request);
        out.extend_from_slice(format!("md {key}\r\n").as_bytes());
        true
    }

    fn encode_census(&mut self, out: &mut Vec<u8>) -> bool {
        self.asked.push_back(CENSUS);
        out.extend_from_slice(b"stats\r\n");
        true
    }

    fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Option<Incoming<'a>>, ProtocolError> {
        if self.asked.front() == Some(&CENSUS) {
            let found = items(input);
            self.asked.drain(..usize::from(found.is_some()));
            return Ok(found);
        }
        let Some((answer, bytes)) = answer(input)? else {
            return Ok(None);
        };
        let request = self.asked.pop_front().ok_or(ProtocolError::Unasked)?;
        Ok(Some(Incoming::new(request, answer, bytes)))
    }
}

/// Datagrams: each reply says what it answers, by the low bits of its number.
#[derive(Default)]
struct Datagrams {
    asked: HashMap<u16, u64>,
    next: u16,
}

impl Target for Datagrams {
    fn greet(&mut self, _out: &mut Vec<u8>) -> usize {
        self.asked.clear();
        0
    }

    fn encode(&mut self, outgoing: &Outgoing<'_>, out: &mut Vec<u8>) {
        let id = self.next;
        self.next = id.wrapping_add(1);
        // What was asked 65,536 datagrams ago has no answer any more.
        self.asked.insert(id, outgoing.request);
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&[0, 0, 0, 1, 0, 0]);
        command(outgoing.operation, out);
    }

    fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Option<Incoming<'a>>, ProtocolError> {
        let Some((frame, rest)) = input.split_at_checked(FRAME_BYTES) else {
            return Err(ProtocolError::reply(input, WANTED));
        };
        let id = u16::from_be_bytes([frame[0], frame[1]]);
        if frame[2..6] != [0, 0, 0, 1] {
            return Err(ProtocolError::reply(frame, "a reply in one datagram"));
        }
        let (answer, _) = answer(rest)?.ok_or_else(|| ProtocolError::reply(rest, WANTED))?;
        let request = self.asked.remove(&id).ok_or(ProtocolError::Unasked)?;
        Ok(Some(Incoming::new(request, answer, input.len())))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{READ, WRITE, asked, driver_of, reply, target_of};
    use super::*;

    const TCP: &str = "url = \"memcached://127.0.0.1\"";
    const UDP: &str = "url = \"memcached://127.0.0.1\"\ntransport = \"udp\"";

    #[test]
    fn reads_and_writes_are_answered_in_the_order_in_which_they_were_asked() {
        let (mut target, greeting) = target_of(TCP);
        assert_eq!(greeting, b"mn\r\n");
        assert_eq!(asked(target.as_mut(), 8, WRITE), b"ms k 5\r\nvalue\r\n");
        assert_eq!(asked(target.as_mut(), 9, READ), b"mg k v\r\n");
        asked(target.as_mut(), 10, READ);
        asked(target.as_mut(), 11, WRITE);
        assert_eq!(reply(target.as_mut(), b"MN\r\n"), (GREETING, Answer::Done));
        assert_eq!(reply(target.as_mut(), b"HD\r\n"), (8, Answer::Done));
        let found = reply(target.as_mut(), b"VA 5\r\nvalue\r\n");
        assert_eq!(found, (9, Answer::Found(b"value")));
        assert_eq!(reply(target.as_mut(), b"EN\r\n"), (10, Answer::Missing));
        let words = b"SERVER_ERROR out of memory storing object";
        let answered = reply(
            target.as_mut(),
            b"SERVER_ERROR out of memory storing object\r\n",
        );
        assert_eq!(answered, (11, Answer::Failed(ErrorKind::Store, words)));
        assert_eq!(target.decode(b"HD\r\n"), Err(ProtocolError::Unasked));
    }

    #[test]
    fn a_datagram_says_what_it_answers() {
        let (mut target, greeting) = target_of(UDP);
        assert!(greeting.is_empty());
        let first = asked(target.as_mut(), 8, WRITE);
        assert_eq!(first, b"\0\0\0\0\0\x01\0\0ms k 5\r\nvalue\r\n");
        asked(target.as_mut(), 9, READ);
        let late = target
            .decode(b"\0\x01\0\0\0\x01\0\0EN\r\n")
            .unwrap()
            .unwrap();
        assert_eq!((late.request, late.answer), (9, Answer::Missing));
        let early = target.decode(b"\0\0\0\0\0\x01\0\0HD\r\n").unwrap().unwrap();
        assert_eq!((early.request, early.answer), (8, Answer::Done));
        assert_eq!(
            target.decode(b"\0\0\0\0\0\x01\0\0HD\r\n"),
            Err(ProtocolError::Unasked)
        );
    }

    #[test]
    fn what_is_not_of_memcached_is_refused() {
        let long = vec![b'a'; LINE_BYTES_MAX];
        for input in [
            &b"-ERR unknown command\r\n"[..],
            b"VA x\r\n",
            b"VA 99999999999\r\n",
            b"VA 1\r\nabc\r\n",
            &long,
        ] {
            let (mut target, _) = target_of(TCP);
            assert!(target.decode(input).is_err(), "{input:?}");
        }
        let (mut target, _) = target_of(UDP);
        for input in [
            &b"\0\0"[..],
            b"\0\0\0\0\0\x02\0\0HD\r\n",
            b"\0\0\0\0\0\x01\0\0HD",
        ] {
            assert!(target.decode(input).is_err(), "{input:?}");
        }
    }

    #[test]
    fn a_value_that_no_datagram_holds_is_refused() {
        let said = driver_of(&format!("{UDP}\nvalue = \"100B to 2KB\""), None)
            .err()
            .unwrap();
        assert!(said.contains("up to 2KB; wanted at most 1300B"), "{said}");
    }
}
