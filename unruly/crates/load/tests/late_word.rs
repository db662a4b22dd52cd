//! A process that sends and receives for the engine stamps each reply. Its message about a reply may
//! come late; the stamp decides whether the reply came in time.

#![expect(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;

use unruly_load::{
    Answer, Control, Due, Engine, EngineOptions, Incoming, Outcome, Outgoing, Peer, Place,
    ProtocolError, Source, Target,
};
use unruly_trace::{Clock, ClockPair, DurationNs, MonoNs, Recorder, Tally, monotonic};

const TIMEOUT: DurationNs = DurationNs::millis(20);
/// How long after the timeout the second request is scheduled.
const LATER: DurationNs = DurationNs::millis(60);

/// Two numbers each way: the request and its intended time; the request and when its reply came.
struct Numbers;

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

fn instant(bytes: &[u8]) -> MonoNs {
    MonoNs(number(bytes).cast_signed())
}

impl Target for Numbers {
    fn greet(&mut self, _out: &mut Vec<u8>) -> usize {
        0
    }

    fn encode(&mut self, outgoing: &Outgoing<'_>, out: &mut Vec<u8>) {
        out.extend(outgoing.request.to_le_bytes());
        out.extend(outgoing.intended_ns.0.to_le_bytes());
    }

    fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Option<Incoming<'a>>, ProtocolError> {
        let Some(message) = input.get(..16) else {
            return Ok(None);
        };
        let came_ns = instant(&message[8..]);
        Ok(Some(Incoming {
            sent_ns: Some(came_ns),
            received_ns: Some(came_ns),
            ..Incoming::new(number(&message[..8]), Answer::Done, 16)
        }))
    }
}

/// Two requests, the second so late that the first has timed out.
struct Two {
    start_ns: MonoNs,
    taken: i64,
}

impl Source for Two {
    fn next_at_ns(&mut self) -> Option<MonoNs> {
        (self.taken < 2).then(|| self.start_ns + (TIMEOUT + LATER) * self.taken)
    }

    fn take(&mut self) -> Option<Due> {
        let intended_ns = self.next_at_ns()?;
        self.taken += 1;
        Some(Due {
            intended_ns,
            op: 0,
            phase: 1,
            flags: 0,
            level: None,
            links: vec![0],
            session: 0,
            step: None,
            waited: false,
            expired: false,
        })
    }

    fn is_over(&mut self) -> bool {
        self.taken == 2
    }
}

/// Returns the results of two requests, the first of which was answered `took_ns` after its
/// scheduled time. The other process reports this only when it has both, after the first has timed
/// out.
fn measured(took_ns: DurationNs) -> (Tally, Outcome) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let other = answering(&path, took_ns);
    let options = EngineOptions {
        client: 0,
        cell: 0,
        repeat: 0,
        level: None,
        timeout_ns: TIMEOUT,
        linger_ns: DurationNs::seconds(60),
        in_flight: 10,
        retries: 0,
        bins: false,
        spin_ns: DurationNs::ZERO,
        caller_schedules: false,
    };
    let mut recorder = Recorder::counting();
    let peer = Peer {
        id: 0,
        place: Place::Local(path),
    };
    let peers: Vec<(Peer, Box<dyn Target>)> = vec![(peer, Box::new(Numbers))];
    let clock = Clock::new(ClockPair::now());
    let mut engine = Engine::new(options, clock, &mut recorder, peers, None).unwrap();
    engine.connect(1).expect("a connection opens");
    let mut two = Two {
        start_ns: monotonic(),
        taken: 0,
    };
    engine.run(&mut two, &mut |_, _| Control::Continue).unwrap();
    let outcome = engine.into_outcome();
    other.join().unwrap();
    (recorder.tally().clone(), outcome)
}

fn answering(path: &Path, took_ns: DurationNs) -> std::thread::JoinHandle<()> {
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut both = [0; 32];
        stream.read_exact(&mut both).unwrap();
        for (request, took_ns) in both.chunks(16).zip([took_ns, DurationNs(1)]) {
            let intended_ns = instant(&request[8..]);
            let came = (intended_ns + took_ns).0.to_le_bytes();
            stream.write_all(&[&request[..8], &came].concat()).unwrap();
        }
    })
}

#[test]
fn a_reply_that_came_in_time_is_no_timeout_though_its_message_is_late() {
    let (tally, outcome) = measured(TIMEOUT / 4);
    assert_eq!((tally.copies.ok, tally.copies.timeout), (2, 0));
    assert_eq!(
        (outcome.requests.answered, outcome.requests.unanswered),
        (2, 0)
    );
}

#[test]
fn a_reply_that_came_late_is_a_timeout() {
    let (tally, outcome) = measured(TIMEOUT + DurationNs(1));
    assert_eq!(tally.copies.timeout, 1, "{tally:?}");
    assert_eq!(
        (outcome.requests.answered, outcome.requests.unanswered),
        (1, 1)
    );
}
