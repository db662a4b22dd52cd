//! A user's program, in any language and for any store. `unruly/docs/drivers.md` defines its lines.
//!
//! One process serves all clients, and may answer in any order. The rows contain the send and
//! receive times that the program reports, so the communication with the program is not part of a
//! latency.

use unruly_plan::Bytes;
use unruly_trace::{DurationNs, ErrorKind, MonoNs, monotonic};

use super::template::Trace;
use super::{Driver, DriverError, Settings};
use crate::link::Place;
use crate::target::{
    Answer, FailOver, GREETING, Incoming, Operation, Outgoing, ProtocolError, Target,
};

const WANTED: &str = "a line of a driver: unruly/docs/drivers.md";

/// Longest line: the longest value, and some words.
const LINE_BYTES_MAX: usize = 32 << 20;

/// The kinds of failure that a program may report for a request.
const KINDS: [(&[u8], ErrorKind); 4] = [
    (b"store", ErrorKind::Store),
    (b"denied", ErrorKind::Denied),
    (b"unavailable", ErrorKind::Unavailable),
    (b"disconnected", ErrorKind::Disconnected),
];

pub(super) fn make(settings: &Settings<'_>) -> Result<Box<dyn Driver>, DriverError> {
    let command = settings.store.url.path.clone();
    if command.is_empty() {
        return Err(DriverError::new(
            "url",
            "there is no command",
            "wanted the program that asks",
            "program:python3 driver.py",
        ));
    }
    Ok(Box::new(Program::new(command, settings)))
}

/// A program, and the first lines that it receives.
pub(super) struct Program {
    place: [Place; 1],
    greeting: String,
    calls: Option<Bytes>,
    /// The first half of the ids of its traces, where the run receives spans.
    trace_key: Option<u64>,
}

impl Program {
    pub(super) fn new(command: String, settings: &Settings<'_>) -> Self {
        let password = settings.password.cloned();
        let level = settings.store.level.map_or("-", |level| level.name());
        Self {
            place: [Place::Program { command, password }],
            greeting: format!("unruly 1 {level} {}\n", settings.timeout_ns.0),
            calls: settings.store.calls,
            trace_key: settings.store.spans.map(|_| settings.trace_key),
        }
    }
}

impl Driver for Program {
    fn places(&self) -> &[Place] {
        &self.place
    }

    fn target(&self, _place: usize) -> Box<dyn Target> {
        Box::new(Lines {
            greeting: self.greeting.clone(),
            calls: self.calls,
            trace_key: self.trace_key,
        })
    }

    fn is_shared(&self) -> bool {
        true
    }
}

struct Lines {
    greeting: String,
    /// Payload of each request, where all of them are calls.
    calls: Option<Bytes>,
    trace_key: Option<u64>,
}

impl Target for Lines {
    fn greet(&mut self, out: &mut Vec<u8>) -> usize {
        out.extend_from_slice(self.greeting.as_bytes());
        1
    }

    fn encode(&mut self, outgoing: &Outgoing<'_>, out: &mut Vec<u8>) {
        use std::io::Write as _;
        let (request, session) = (outgoing.request, outgoing.session);
        if let Some(payload) = self.calls {
            let _ = write!(out, "call {request} {session} {}", payload.0);
            if let Some(key) = self.trace_key {
                let trace = Trace::of(key, outgoing.number, request);
                let _ = write!(out, " {}", trace.parent());
            }
            out.push(b'\n');
            return;
        }
        // Writing to memory does not fail.
        let _ = match outgoing.operation {
            Operation::Read { key } => writeln!(out, "read {request} {session} {key}"),
            Operation::Write { key, value } => {
                writeln!(out, "write {request} {session} {key} {value}")
            }
            Operation::Call { .. } | Operation::Named { .. } => {
                writeln!(out, "read {request} {session} -")
            }
        };
    }

    fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Option<Incoming<'a>>, ProtocolError> {
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
            if input.len() > LINE_BYTES_MAX {
                return Err(ProtocolError::reply(input, WANTED));
            }
            return Ok(None);
        };
        let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
        let wrong = || ProtocolError::reply(line, WANTED);
        if line == b"unruly 1" {
            return Ok(Some(Incoming::new(GREETING, Answer::Done, end + 1)));
        }
        if let Some(words) = line.strip_prefix(b"no ") {
            let answer = Answer::Failed(ErrorKind::Store, words);
            return Ok(Some(Incoming::new(GREETING, answer, end + 1)));
        }
        if let Some(words) = line.strip_prefix(b"failed-over ") {
            let fail_over = fail_over(words).ok_or_else(wrong)?;
            let answer = Answer::FailedOver(fail_over);
            return Ok(Some(Incoming::new(fail_over.request, answer, end + 1)));
        }
        let mut words = line.splitn(5, |byte| *byte == b' ');
        let mut word = || words.next();
        let what = word().unwrap_or_default();
        let request = word().and_then(number).ok_or_else(wrong)?;
        let times = [word(), word()].map(|it| it.and_then(number));
        let [Some(sent_ns), Some(received_ns)] = times else {
            return Err(wrong());
        };
        if [sent_ns, received_ns].iter().any(|at| *at > latest_ns()) {
            return Err(wrong());
        }
        let [sent_ns, received_ns] = [sent_ns, received_ns].map(instant);
        let rest = word().unwrap_or_default();
        let answer = match what {
            b"done" => Answer::Done,
            b"found" => Answer::Found(rest),
            b"missing" => Answer::Missing,
            b"wrong" => Answer::Wrong(rest),
            b"failed" => {
                let (kind, said) = match rest.iter().position(|byte| *byte == b' ') {
                    Some(space) => (&rest[..space], &rest[space + 1..]),
                    None => (rest, &[][..]),
                };
                let known = KINDS.iter().find(|(name, _)| *name == kind);
                Answer::Failed(known.ok_or_else(wrong)?.1, said)
            }
            _ => return Err(wrong()),
        };
        let payload = self.calls.filter(|_| answer == Answer::Done);
        let payload = payload.and_then(|it| u32::try_from(it.0).ok());
        Ok(Some(Incoming {
            sent_ns: Some(sent_ns),
            received_ns: Some(received_ns),
            wire_bytes: payload,
            ..Incoming::new(request, answer, end + 1)
        }))
    }
}

/// A program has the host's monotonic clock: nothing was sent or received after now.
fn latest_ns() -> u64 {
    u64::try_from(monotonic().0).unwrap_or(0)
}

/// The words after `failed-over`: request, client, and three stamps in their order.
fn fail_over(words: &[u8]) -> Option<FailOver> {
    let numbers: Option<Vec<u64>> = words.split(|byte| *byte == b' ').map(number).collect();
    let [request, client, detected, resent, answered] = numbers?.try_into().ok()?;
    if detected > resent || resent > answered || answered > latest_ns() {
        return None;
    }
    Some(FailOver {
        request,
        client,
        detected_ns: instant(detected),
        resent_ns: instant(resent),
        answered_ns: instant(answered),
    })
}

fn instant(ns: u64) -> MonoNs {
    MonoNs(DurationNs::from_unsigned(ns).0)
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{READ, WRITE, asked, reply, target_of};
    use super::*;

    #[test]
    fn a_time_that_has_not_come_yet_is_no_answer() {
        let (mut target, _) = target_of("url = \"program:cat\"");
        asked(target.as_mut(), 8, WRITE);
        for late in [
            i64::MAX.unsigned_abs(),
            u64::MAX,
            latest_ns() + 60_000_000_000,
        ] {
            let line = format!("done 8 {late} {late}\n");
            assert!(target.decode(line.as_bytes()).is_err(), "{line}");
        }
    }

    #[test]
    fn a_program_is_told_in_lines_and_answers_in_lines() {
        let lines = "url = \"program:cat\"\nlevel = \"quorum\"";
        let (mut target, greeting) = target_of(lines);
        assert_eq!(greeting, b"unruly 1 quorum 1000000000\n");
        assert_eq!(
            reply(target.as_mut(), b"unruly 1\n"),
            (GREETING, Answer::Done)
        );
        assert_eq!(asked(target.as_mut(), 8, WRITE), b"write 8 3 k value\n");
        assert_eq!(asked(target.as_mut(), 9, READ), b"read 9 3 k\n");
        let found = target.decode(b"found 9 20 35 value\n").unwrap().unwrap();
        assert_eq!((found.request, found.answer), (9, Answer::Found(b"value")));
        assert_eq!(
            (found.sent_ns, found.received_ns),
            (Some(MonoNs(20)), Some(MonoNs(35)))
        );
        assert_eq!(reply(target.as_mut(), b"done 8 1 2\n"), (8, Answer::Done));
        assert_eq!(
            reply(target.as_mut(), b"missing 8 1 2\n"),
            (8, Answer::Missing)
        );
        let failed = reply(target.as_mut(), b"failed 8 1 2 denied no such user\n");
        assert_eq!(
            failed,
            (8, Answer::Failed(ErrorKind::Denied, b"no such user"))
        );
    }

    #[test]
    fn a_call_has_the_length_of_its_payload() {
        let lines = "url = \"program:cat\"\npayload = \"2KB\"";
        let (mut target, _) = target_of(lines);
        assert_eq!(asked(target.as_mut(), 8, READ), b"call 8 3 2000\n");
        let done = target.decode(b"done 8 20 35\n").unwrap().unwrap();
        assert_eq!((done.request, done.answer), (8, Answer::Done));
        assert_eq!((done.wire_bytes, done.bytes), (Some(2000), 13));
    }

    #[test]
    fn a_call_names_its_trace_where_the_run_receives_spans() {
        let lines = "url = \"program:cat\"\npayload = \"2KB\"\nspans = \"127.0.0.1:4318\"";
        let (mut target, _) = target_of(lines);
        let asked = String::from_utf8(asked(target.as_mut(), 8, READ)).unwrap();
        let words: Vec<&str> = asked.trim_end().split(' ').collect();
        assert_eq!(words[..4], ["call", "8", "3", "2000"]);
        let parts: Vec<usize> = words[4].split('-').map(str::len).collect();
        assert_eq!(parts, [2, 32, 16, 2], "{asked}");
    }

    #[test]
    fn a_fail_over_has_its_client_and_three_times_in_their_order() {
        let (mut target, _) = target_of("url = \"program:cat\"\npayload = \"2KB\"");
        let line = b"failed-over 8 3 20 25 35\n";
        let told = target.decode(line).unwrap().unwrap();
        let Answer::FailedOver(it) = told.answer else {
            panic!("{told:?}");
        };
        assert_eq!((it.request, it.client), (8, 3));
        assert_eq!(
            [it.detected_ns, it.resent_ns, it.answered_ns],
            [MonoNs(20), MonoNs(25), MonoNs(35)]
        );
        assert_eq!(told.bytes, line.len());
        let wrong = reply(target.as_mut(), b"wrong 8 1 2 a write is lost\n");
        assert_eq!(wrong, (8, Answer::Wrong(b"a write is lost")));
    }

    #[test]
    fn what_is_no_line_of_a_driver_is_refused() {
        for input in [
            "done\n",
            "done x 1 2\n",
            "done 1 2\n",
            "failed 1 2 3 otherwise\n",
            "failed-over 8 3 25 20 35\n",
            "failed-over 8 3 20 25\n",
            "failed-over 8 3 20 25 9223372036854775807\n",
            "Traceback (most recent call last):\n",
            "unruly 2\n",
        ] {
            let (mut target, _) = target_of("url = \"program:cat\"");
            assert!(target.decode(input.as_bytes()).is_err(), "{input:?}");
        }
    }
}
