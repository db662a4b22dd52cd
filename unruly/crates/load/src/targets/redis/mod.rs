//! Redis, and whatever speaks its protocol: `SET`, `GET`, and `WAIT` where replicas must have a write.

mod cluster;

use std::collections::VecDeque;
use std::sync::Arc;

use redis_protocol::resp2::decode::decode_range;
use redis_protocol::resp2::types::RangeFrame;
use unruly_plan::Secret;
use unruly_trace::{DurationNs, ErrorKind};

use self::cluster::{Cluster, Greeting};
use super::{Driver, DriverError, Protocol, Route, Settings, places_by};
use crate::link::Place;
use crate::target::{
    Answer, CENSUS, GREETING, Incoming, KEY_PREFIX, Operation, Outgoing, ProtocolError, Target,
};

const PORT: u16 = 6379;
const WANTED: &str = "a reply of Redis";

/// Beginnings of what Redis says when we may not.
const DENIED: [&[u8]; 3] = [b"NOAUTH", b"WRONGPASS", b"NOPERM"];
/// And when too little of it is there.
const UNAVAILABLE: [&[u8]; 6] = [
    b"NOREPLICAS",
    b"CLUSTERDOWN",
    b"MASTERDOWN",
    b"LOADING",
    b"TRYAGAIN",
    b"UNAVAILABLE",
];

pub(super) fn make(settings: &Settings<'_>) -> Result<Box<dyn Driver>, DriverError> {
    let url = &settings.store.url;
    let mut greeting = Greeting::default();
    match (url.user.as_str(), settings.password.map(Secret::reveal)) {
        ("", None) => {}
        ("", Some(password)) => greeting.say(&["AUTH", password]),
        (user, password) => greeting.say(&["AUTH", user, password.unwrap_or_default()]),
    }
    let database = url.path.trim_start_matches('/');
    if !database.is_empty() {
        if database.parse::<u32>().is_err() {
            return Err(DriverError::new(
                "url",
                format!("the database is {database:?}"),
                "wanted its number",
                "redis://host:6379/0",
            ));
        }
        greeting.say(&["SELECT", database]);
    }
    greeting.say(&["PING"]);
    let wait = wait(settings)?;
    let (cluster, places) = if is_cluster(settings)? {
        let (cluster, places) = Cluster::find(settings, &greeting)?;
        (Some(cluster), places)
    } else {
        (None, places_by(settings, PORT, PORT, Protocol::None)?)
    };
    Ok(Box::new(Redis {
        places,
        greeting,
        wait,
        cluster,
    }))
}

/// Whether the hosts are nodes of a cluster.
fn is_cluster(settings: &Settings<'_>) -> Result<bool, DriverError> {
    match settings.store.url.option("cluster") {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(word) => Err(DriverError::new(
            "url",
            format!("cluster is {word:?}"),
            "wanted true or false",
            "redis://host:6379?cluster=true",
        )),
    }
}

/// How many replicas a write waits for, and the words that say so.
fn wait(settings: &Settings<'_>) -> Result<Option<Wait>, DriverError> {
    let Some(level) = settings.store.level else {
        return Ok(None);
    };
    let given = settings.store.url.option("replicas");
    let Some(replicas) = given
        .and_then(|it| it.parse::<u32>().ok())
        .filter(|it| *it <= 1_000)
    else {
        return Err(DriverError::new(
            "level",
            format!("{:?} of how many replicas", level.name()),
            "wanted their number in the url",
            "redis://host:6379?replicas=2",
        ));
    };
    // The server itself is a copy as well.
    let replicas = level.of(replicas + 1) - 1;
    if replicas == 0 {
        return Ok(None);
    }
    let timeout_ms = (settings.timeout_ns / DurationNs::millis(1)).max(1);
    let mut words = Vec::new();
    command(
        &mut words,
        &["WAIT", &replicas.to_string(), &timeout_ms.to_string()],
    );
    Ok(Some(Wait {
        replicas: replicas.into(),
        words,
    }))
}

#[derive(Debug, Clone)]
struct Wait {
    replicas: i64,
    words: Vec<u8>,
}

#[derive(Debug, Clone)]
struct Redis {
    places: Vec<Place>,
    greeting: Greeting,
    wait: Option<Wait>,
    cluster: Option<Arc<Cluster>>,
}

impl Driver for Redis {
    fn places(&self) -> &[Place] {
        &self.places
    }

    fn target(&self, place: usize) -> Box<dyn Target> {
        Box::new(Connection {
            redis: self.clone(),
            place,
            asked: VecDeque::new(),
        })
    }

    fn route(&self) -> Option<Arc<dyn Route>> {
        let cluster = self.cluster.clone()?;
        Some(cluster)
    }
}

/// What a reply is the answer to.
#[derive(Debug, Clone, Copy)]
enum Asked {
    Greeting,
    Read(u64),
    Write(u64),
    /// A write whose `WAIT` follows: the reply to the write is the answer only when it failed.
    BeforeWait(u64),
    Wait(u64),
    Census,
}

struct Connection {
    redis: Redis,
    /// Which of the places it leads to.
    place: usize,
    asked: VecDeque<Asked>,
}

impl Target for Connection {
    fn greet(&mut self, out: &mut Vec<u8>) -> usize {
        self.asked.clear();
        let greeting = &self.redis.greeting;
        out.extend_from_slice(&greeting.bytes);
        self.asked
            .extend((0..greeting.count).map(|_| Asked::Greeting));
        greeting.count
    }

    fn encode(&mut self, outgoing: &Outgoing<'_>, out: &mut Vec<u8>) {
        let request = outgoing.request;
        match outgoing.operation {
            Operation::Write { key, value } => {
                command(out, &["SET", key, value]);
                if let Some(wait) = &self.redis.wait {
                    out.extend_from_slice(&wait.words);
                    self.asked.push_back(Asked::BeforeWait(request));
                    self.asked.push_back(Asked::Wait(request));
                } else {
                    self.asked.push_back(Asked::Write(request));
                }
            }
            Operation::Read { key } => {
                command(out, &["GET", key]);
                self.asked.push_back(Asked::Read(request));
            }
            Operation::Call { .. } | Operation::Named { .. } => {
                command(out, &["PING"]);
                self.asked.push_back(Asked::Write(request));
            }
        }
    }

    fn announce(&mut self, out: &mut Vec<u8>) {
        command(out, &["ASKING"]);
        self.asked.push_back(Asked::Greeting);
    }

    fn encode_removal(&mut self, request: u64, key: &str, out: &mut Vec<u8>) -> bool {
        command(out, &["DEL", key]);
        self.asked.push_back(Asked::Write(request));
        true
    }

    /// A part of the keys is enough: those of a store in use are not all at its end.
    fn encode_census(&mut self, out: &mut Vec<u8>) -> bool {
        command(out, &["SCAN", "0", "COUNT", "100"]);
        self.asked.push_back(Asked::Census);
        true
    }

    fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Option<Incoming<'a>>, ProtocolError> {
        if input.starts_with(b"*") {
            // Only a census has an array for an answer.
            let is_census = matches!(self.asked.front(), Some(Asked::Census));
            if !is_census || nesting(input) > NESTING_MAX {
                return Err(ProtocolError::reply(input, WANTED));
            }
        }
        let decoded = decode_range(input).map_err(|_| ProtocolError::reply(input, WANTED))?;
        let Some((frame, bytes)) = decoded else {
            return Ok(None);
        };
        let asked = self.asked.pop_front().ok_or(ProtocolError::Unasked)?;
        if let (Asked::Census, RangeFrame::Array(parts)) = (asked, &frame) {
            let incoming = Incoming::new(CENSUS, foreign_key(parts, input), bytes);
            return Ok(Some(incoming));
        }
        let mut answer = answer(&frame, input)?;
        if let (Some(cluster), RangeFrame::Error((start, end))) = (&self.redis.cluster, &frame)
            && let Some(elsewhere) = cluster.learn(&input[*start..*end], self.place)
        {
            answer = elsewhere;
        }
        let (request, answer) = match asked {
            Asked::Greeting => (GREETING, answer),
            Asked::Census => (CENSUS, answer),
            Asked::Read(request) | Asked::Write(request) => (request, answer),
            Asked::BeforeWait(_) if answer == Answer::Done => (GREETING, answer),
            Asked::BeforeWait(request) => {
                // It failed, which is its answer; that to WAIT is none any more.
                self.asked.pop_front();
                self.asked.push_front(Asked::Greeting);
                (request, answer)
            }
            Asked::Wait(request) => (request, self.redis.waited(&frame, answer)),
        };
        Ok(Some(Incoming::new(request, answer, bytes)))
    }
}

impl Redis {
    /// Whether as many replicas have the write as were wanted.
    fn waited<'a>(&self, frame: &RangeFrame, answer: Answer<'a>) -> Answer<'a> {
        let wanted = self.wait.as_ref().map_or(0, |wait| wait.replicas);
        match frame {
            RangeFrame::Integer(replicas) if *replicas < wanted => Answer::Failed(
                ErrorKind::Unavailable,
                b"WAIT: too few replicas had it in time",
            ),
            _ => answer,
        }
    }
}

/// The first key of a `SCAN` that is not ours.
fn foreign_key<'a>(parts: &[RangeFrame], input: &'a [u8]) -> Answer<'a> {
    let keys = parts.iter().filter_map(|part| match part {
        RangeFrame::Array(keys) => Some(keys),
        _ => None,
    });
    let names = keys.flatten().filter_map(|key| match key {
        RangeFrame::BulkString((start, end)) => Some(&input[*start..*end]),
        _ => None,
    });
    let mut foreign = names.filter(|name| !name.starts_with(KEY_PREFIX.as_bytes()));
    foreign.next().map_or(Answer::Missing, Answer::Found)
}

fn answer<'a>(frame: &RangeFrame, input: &'a [u8]) -> Result<Answer<'a>, ProtocolError> {
    Ok(match frame {
        RangeFrame::SimpleString(_) | RangeFrame::Integer(_) => Answer::Done,
        RangeFrame::BulkString((start, end)) => Answer::Found(&input[*start..*end]),
        RangeFrame::Null => Answer::Missing,
        RangeFrame::Error((start, end)) => failure(&input[*start..*end]),
        RangeFrame::Array(_) => return Err(ProtocolError::reply(input, WANTED)),
    })
}

/// The answer that an error is.
pub(super) fn failure(words: &[u8]) -> Answer<'_> {
    let begins = |known: &[&[u8]]| known.iter().any(|word| words.starts_with(word));
    let kind = if begins(&DENIED) {
        ErrorKind::Denied
    } else if begins(&UNAVAILABLE) {
        ErrorKind::Unavailable
    } else {
        ErrorKind::Store
    };
    Answer::Failed(kind, without_arguments(words))
}

/// Arrays in each other at most: an answer to `SCAN` has two.
pub(super) const NESTING_MAX: usize = 8;

/// How many arrays are in each other in the first value of the input, as far as it has come. Whoever
/// decodes it goes as deep as that.
pub(super) fn nesting(input: &[u8]) -> usize {
    // How many elements are left of each open array.
    let mut open: Vec<usize> = Vec::new();
    let (mut deepest, mut at) = (0, 0);
    while deepest <= NESTING_MAX {
        // As the decoder does it: a line ends with both signs, and a count may have one of its own.
        let Some(length) = input[at..].windows(2).position(|it| it == b"\r\n") else {
            break;
        };
        let line = &input[at..at + length];
        at += length + 2;
        let count = std::str::from_utf8(line.get(1..).unwrap_or_default());
        let count = count.ok().and_then(|it| it.parse::<isize>().ok());
        match (line.first(), count.and_then(|it| usize::try_from(it).ok())) {
            (Some(b'*'), Some(count)) if count > 0 => {
                open.push(count);
                deepest = deepest.max(open.len());
                continue;
            }
            (Some(b'$'), Some(bytes)) => {
                at = at.saturating_add(bytes).saturating_add(2);
                if at > input.len() {
                    break;
                }
            }
            _ => {}
        }
        // A value has ended, and with it each array whose last element it was.
        while let Some(left) = open.last_mut() {
            *left -= 1;
            if *left > 0 {
                break;
            }
            open.pop();
        }
        if open.is_empty() {
            break;
        }
    }
    deepest
}

/// A complaint without the words of the command that it is about, among which may be a password.
fn without_arguments(words: &[u8]) -> &[u8] {
    let mark = b", with args beginning with";
    let end = words.windows(mark.len()).position(|it| it == mark);
    &words[..end.unwrap_or(words.len())]
}

/// Appends a command as Redis takes it.
fn command(out: &mut Vec<u8>, words: &[&str]) {
    line(out, b'*', words.len());
    for word in words {
        line(out, b'$', word.len());
        out.extend_from_slice(word.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends the line that says how many words follow, or bytes.
pub(super) fn line(out: &mut Vec<u8>, sign: u8, count: usize) {
    let mut number = itoa::Buffer::new();
    out.push(sign);
    out.extend_from_slice(number.format(count).as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::super::tests::{READ, WRITE, asked, driver_of, reply, target_of, whole};
    use super::*;

    const PLAIN: &str = "url = \"redis://127.0.0.1\"";

    #[test]
    fn arrays_in_arrays_are_refused_before_they_are_decoded() {
        let (mut target, _) = target_of(PLAIN);
        asked(target.as_mut(), 1, READ);
        for depth in [1, 9, 200_000] {
            let deep = "*1\r\n".repeat(depth);
            assert!(target.decode(deep.as_bytes()).is_err(), "{depth}");
        }
        assert_eq!(nesting(b"*2\r\n$1\r\n0\r\n*1\r\n$1\r\nk\r\n"), 2);
        // Arrays that follow each other are not in each other, and a text is no array.
        assert_eq!(nesting("*0\r\n".repeat(20).as_bytes()), 0);
        assert_eq!(nesting("*1\r\n:1\r\n".repeat(20).as_bytes()), 1);
        assert_eq!(nesting(b"*1\r\n$12\r\n*1\r\n*1\r\n*1\r\n\r\n"), 1);
        // A line ends with both of its signs, and a text of no bytes has them too.
        for beginning in ["*2\r\n+x\n+y\r\n", "*2\r\n$-0\r\n\r\n", "*2\r\n$-1\r\n"] {
            let deep = beginning.to_owned() + &"*1\r\n".repeat(30_000);
            assert!(nesting(deep.as_bytes()) > NESTING_MAX, "{beginning:?}");
        }
    }

    #[test]
    fn a_request_that_was_sent_here_is_announced_and_the_reply_to_that_is_no_answer() {
        let (mut target, _) = target_of(PLAIN);
        reply(target.as_mut(), b"+PONG\r\n");
        let mut announced = Vec::new();
        target.announce(&mut announced);
        assert_eq!(announced, b"*1\r\n$6\r\nASKING\r\n");
        asked(target.as_mut(), 4, READ);
        assert_eq!(reply(target.as_mut(), b"+OK\r\n"), (GREETING, Answer::Done));
        assert_eq!(reply(target.as_mut(), b"$-1\r\n"), (4, Answer::Missing));
    }

    #[test]
    fn a_complaint_about_a_command_does_not_repeat_its_words() {
        let words = b"ERR unknown command 'AUTH', with args beginning with: 'me' 's3cr3t' ";
        assert_eq!(without_arguments(words), b"ERR unknown command 'AUTH'");
        assert_eq!(without_arguments(b"ERR other"), b"ERR other");
    }

    #[test]
    fn reads_and_writes_are_answered_in_the_order_in_which_they_were_asked() {
        let (mut target, greeting) = target_of(PLAIN);
        assert_eq!(greeting, b"*1\r\n$4\r\nPING\r\n");
        let written = asked(target.as_mut(), 8, WRITE);
        assert_eq!(written, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\n");
        assert_eq!(
            asked(target.as_mut(), 9, READ),
            b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"
        );
        asked(target.as_mut(), 10, READ);
        assert_eq!(
            reply(target.as_mut(), b"+PONG\r\n"),
            (GREETING, Answer::Done)
        );
        assert_eq!(reply(target.as_mut(), b"+OK\r\n"), (8, Answer::Done));
        let found = reply(target.as_mut(), b"$5\r\nvalue\r\n");
        assert_eq!(found, (9, Answer::Found(b"value")));
        assert_eq!(reply(target.as_mut(), b"$-1\r\n"), (10, Answer::Missing));
        assert_eq!(target.decode(b"+OK\r\n"), Err(ProtocolError::Unasked));
    }

    #[test]
    fn what_redis_complains_of_is_told_apart() {
        let (mut target, _) = target_of(PLAIN);
        reply(target.as_mut(), b"+PONG\r\n");
        for (words, kind) in [
            ("NOAUTH Authentication required.", ErrorKind::Denied),
            ("CLUSTERDOWN The cluster is down", ErrorKind::Unavailable),
            ("OOM command not allowed", ErrorKind::Store),
        ] {
            asked(target.as_mut(), 1, WRITE);
            let text = format!("-{words}\r\n");
            let answered = reply(target.as_mut(), text.as_bytes());
            assert_eq!(answered, (1, Answer::Failed(kind, words.as_bytes())));
        }
    }

    #[test]
    fn a_write_at_quorum_is_done_when_enough_replicas_have_it() {
        let lines = "url = \"redis://127.0.0.1?replicas=2\"\nlevel = \"quorum\"";
        let (mut target, _) = target_of(lines);
        reply(target.as_mut(), b"+PONG\r\n");
        let written = asked(target.as_mut(), 1, WRITE);
        assert!(written.ends_with(b"*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$4\r\n1000\r\n"));
        for (replies, wanted) in [
            ("+OK\r\n:2\r\n", Answer::Done),
            ("+OK\r\n:0\r\n", Answer::Failed(ErrorKind::Unavailable, b"")),
            ("-OOM\r\n:0\r\n", Answer::Failed(ErrorKind::Store, b"")),
        ] {
            let first = whole(target.as_mut(), replies.as_bytes());
            let second = whole(target.as_mut(), &replies.as_bytes()[first.bytes..]);
            let mut requests = [first, second].map(|it| (it.request, it.answer));
            requests.sort_by_key(|(request, _)| *request);
            assert_eq!(requests[1].0, GREETING);
            let kind = |answer| match answer {
                Answer::Failed(kind, _) => Some(kind),
                _ => None,
            };
            assert_eq!((requests[0].0, kind(requests[0].1)), (1, kind(wanted)));
            asked(target.as_mut(), 1, WRITE);
        }
    }

    #[test]
    fn user_password_and_database_are_said_first() {
        let driver = driver_of("url = \"redis://me@127.0.0.1/3\"", Some("secret")).unwrap();
        let mut out = Vec::new();
        driver.target(0).greet(&mut out);
        let said = String::from_utf8(out).unwrap();
        assert_eq!(
            said,
            "*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$6\r\nsecret\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n*1\r\n$4\r\nPING\r\n"
        );
    }

    #[test]
    fn a_new_connection_has_forgotten_what_the_last_was_asked() {
        let (mut target, _) = target_of(PLAIN);
        asked(target.as_mut(), 1, READ);
        target.greet(&mut Vec::new());
        assert_eq!(
            reply(target.as_mut(), b"+PONG\r\n"),
            (GREETING, Answer::Done)
        );
        assert_eq!(target.decode(b"$-1\r\n"), Err(ProtocolError::Unasked));
    }

    #[test]
    fn what_is_not_of_redis_is_refused() {
        for input in [
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            b"*1\r\n:1\r\n",
            b"\0\0\0\0",
        ] {
            let (mut target, _) = target_of(PLAIN);
            assert!(target.decode(input).is_err(), "{input:?}");
        }
    }
}
