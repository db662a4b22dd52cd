//! A machine of one's own, on real sockets.

#![expect(clippy::unwrap_used, reason = "a test ends where a helper fails")]

mod common;

use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use common::DEADLINE;
use flurry::machine::{Access, Applied, Malformed, StateMachine};
use flurry::{
    Client, Controller, ControllerOptions, Error, Options, Server, ServerOptions, VALUE_BYTES_MAX,
    WallNs, status,
};

/// Remembers the last word and how many there were; an empty word only looks.
#[derive(Debug, Clone)]
struct Words;

impl StateMachine for Words {
    type State = (u8, Bytes);

    fn access(&self, operation: &[u8]) -> Result<Access, Malformed> {
        match operation {
            [] => Ok(Access::Read),
            [b'!', ..] => Err(Malformed("it shouts".to_owned())),
            _ => Ok(Access::Update),
        }
    }

    fn apply(
        &self,
        state: Option<&(u8, Bytes)>,
        operation: &[u8],
        _at: WallNs,
    ) -> Result<Applied<(u8, Bytes)>, Malformed> {
        let state = match self.access(operation)? {
            Access::Read => state.cloned(),
            _ => Some((
                state.map_or(0, |(count, _)| *count) + 1,
                Bytes::copy_from_slice(operation),
            )),
        };
        let answer = state.as_ref().map(|it| self.snapshot(it));
        Ok(Applied {
            state,
            answer: answer.unwrap_or_default(),
        })
    }

    fn blind_answer(&self) -> Bytes {
        Bytes::new()
    }

    fn snapshot(&self, (count, word): &(u8, Bytes)) -> Bytes {
        Bytes::from([&[*count], &word[..]].concat())
    }

    fn restore(&self, snapshot: &[u8]) -> Result<(u8, Bytes), Malformed> {
        let (count, word) = snapshot
            .split_first()
            .ok_or_else(|| Malformed("it is empty".to_owned()))?;
        Ok((*count, Bytes::copy_from_slice(word)))
    }
}

/// Starts a server, and waits until it holds what it should.
fn start(id: u16, controller: SocketAddr) -> Server {
    let server = Server::start_with(&ServerOptions::new(id, controller), &Words).unwrap();
    let address = server.addresses()[0].to_string();
    let begun = Instant::now();
    loop {
        let seen = status(&controller.into(), DEADLINE, &flurry::Security::default()).unwrap();
        let is_in = seen.contains(&address) && seen.contains("\"changing\":false");
        if is_in || seen.contains("\"config\":0") {
            return server;
        }
        assert!(begun.elapsed() < DEADLINE, "{seen}");
        std::thread::yield_now();
    }
}

#[test]
fn a_service_of_ones_own_is_replicated_and_survives_its_servers() {
    let listen = "127.0.0.1:0".parse().unwrap();
    let controller = Controller::start(&ControllerOptions::new(listen, None)).unwrap();
    let address = controller.address();
    let mut servers: Vec<Server> = (1..=3).map(|id| start(id, address)).collect();
    let client = Client::open(&Options {
        timeout: DEADLINE,
        open_timeout: DEADLINE,
        ..Options::new(address, "s")
    })
    .unwrap();
    let say = |word: &'static str| {
        let access = Words.access(word.as_bytes()).unwrap();
        client.call().apply("k", word, access).unwrap()
    };
    assert_eq!(say("").answer, Bytes::new());
    assert_eq!(say("one").answer, Bytes::from("\u{1}one"));
    let second = say("two");
    assert_eq!(second.answer, Bytes::from("\u{2}two"));
    assert!(second.sequence > 1 && !second.is_tail_unknown);
    for index in 0..3 {
        // The old one is gone before the new one takes its place.
        drop(servers.remove(index));
        servers.insert(index, start(u16::try_from(index).unwrap() + 1, address));
        assert_eq!(say("").answer, Bytes::from("\u{2}two"), "server {index}");
    }
    assert_eq!(say("three").answer, Bytes::from("\u{3}three"));
    let shouted = client.call().apply("k", "!", Access::Update);
    assert!(matches!(shouted, Err(Error::Refused { .. })), "{shouted:?}");
    let disguised = client.call().apply("k", "four", Access::Read);
    assert!(
        matches!(disguised, Err(Error::Refused { .. })),
        "{disguised:?}"
    );
    let long = vec![b'a'; VALUE_BYTES_MAX + 1];
    let refused = client.call().apply("k", long, Access::Update).unwrap_err();
    assert_eq!(
        refused,
        Error::ValueTooLarge {
            bytes: VALUE_BYTES_MAX + 1
        }
    );
    assert_eq!(say("").answer, Bytes::from("\u{3}three"));
    assert!(client.close().unwrap().is_stable);
}
