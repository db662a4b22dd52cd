//! Reading a key without owning its session: for an operator who looks at what a running gateway has.
//!
//! An observer asks the controller who owns the session, and then every replica of the key for what it
//! has. The newest of it is the value. Nobody is pushed aside, nothing is changed, and nothing is
//! waited for but answers: a write that is under way may be seen before it is acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use flurry_core::config::Level;
use flurry_core::id::{
    ConfigNumber, DurationNs, Endpoint, Key, OperationId, Sequence, ServerId, SessionId, Version,
    WallNs,
};
use flurry_core::key_value::{Answer, KeyValue, Operation};
use flurry_core::machine::StateMachine as _;
use flurry_core::message::{
    Ask, Control, Copy, Destination, FoundSession, Message, Request, State, Verdict,
};

use crate::address::Controllers;
use crate::link::{Link, Transport};
use crate::peers::Peers;
use crate::security::Security;
use crate::{Error, clock, random};

/// How often what was not answered is asked again.
const ASK_AGAIN: DurationNs = DurationNs::millis(50);

/// What an observer has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// [`Answer::Value`] or [`Answer::NotFound`].
    pub answer: Answer,
    /// Somebody has opened the session before: else nothing can be in it.
    pub is_known: bool,
    /// An earlier owner's last writes to this key may have been lost.
    pub is_tail_unknown: bool,
    /// Servers that should have the key and did not answer in time. A newer value at level `first` may
    /// be on one of them alone.
    pub silent: Vec<u16>,
}

/// Reads a key of a session without owning it: the newest value that a server has, seen from outside. It
/// waits for every server that has the key, or for `patience`.
///
/// Not for a program that writes too: that is what an owner is for, whose reads follow its writes.
///
/// # Errors
///
/// [`Error::NoAnswer`] when no controller answers, [`Error::NoServer`] when no server does,
/// [`Error::Evicted`], [`Error::KeyLength`], [`Error::Address`] for an address that may not be used.
pub fn observe(
    controllers: &Controllers,
    patience: Duration,
    security: &Security,
    session: &str,
    key: impl Into<Bytes>,
) -> Result<Observed, Error> {
    let allowed = controllers.allowed(security)?;
    let mut link = Link::dial(Transport::Udp, false, allowed.any(), security)?;
    let mut observer = Observer {
        name: session.to_owned(),
        key: key.into(),
        number: u64::from_le_bytes(random::bytes()?),
        peers: Peers::new(allowed, security),
        found: None,
        states: BTreeMap::new(),
    };
    // A key that no session could have is refused before anybody is asked.
    Key::new(SessionId(1), observer.key.clone())?;
    let start = Instant::now();
    while start.elapsed() < patience && !observer.has_all() {
        observer.ask(&mut link);
        let asked = Instant::now();
        while asked.elapsed() < Duration::from_nanos(ASK_AGAIN.0) && !observer.has_all() {
            link.wait(ASK_AGAIN);
            while let Some(letter) = link.receive() {
                observer.hear(letter.message, &mut link);
            }
        }
    }
    observer.result(controllers, start.elapsed())
}

struct Observer {
    name: String,
    key: Bytes,
    /// Tells answers to this observer from others, as the questions' number.
    number: u64,
    peers: Peers,
    found: Option<FoundSession>,
    /// What each server has, in the configuration of `found`.
    states: BTreeMap<ServerId, State>,
}

impl Observer {
    /// Asks the controllers, and the servers that have not answered.
    fn ask(&mut self, link: &mut Link) {
        let question = Control::FindSession(self.name.clone(), self.number);
        self.peers
            .tell_controllers(&Message::Control(question), link);
        self.ask_servers(link);
    }

    fn ask_servers(&mut self, link: &mut Link) {
        let (Some(found), Some(key)) = (&self.found, self.session_key()) else {
            return;
        };
        let request = Arc::new(Request {
            id: OperationId {
                session: found.session,
                epoch: found.epoch,
                sequence: Sequence(self.number),
            },
            dep: Version::NONE,
            key: key.clone(),
            ask: Ask::Touch,
            level: Level::All,
            // An owner's time and what is stable are the owner's to tell: these say nothing.
            at: WallNs(0),
            stable: Sequence(0),
            clean_since: None,
            opened_in: ConfigNumber(0),
            patience: ASK_AGAIN,
        });
        let copy = Copy {
            request,
            config: found.config.number,
            attempt: 0,
        };
        let shard = found.config.shard_of(&key);
        for server in self.holders() {
            if !self.states.contains_key(&server) {
                let to = Destination::Server(Endpoint { server, shard });
                let question = Message::Request(copy.clone());
                self.peers.send(to, &question, Some(&found.config), link);
            }
        }
    }

    /// The key in its session, once that is known.
    fn session_key(&self) -> Option<Key> {
        let session = self.found.as_ref()?.session;
        Key::new(session, self.key.clone()).ok()
    }

    /// Servers that have all there is of the key.
    fn holders(&self) -> Vec<ServerId> {
        let (Some(found), Some(key)) = (&self.found, self.session_key()) else {
            return Vec::new();
        };
        let replicas = found.config.replicas_of(&key);
        let full = replicas.iter().filter(|replica| replica.old);
        full.map(|replica| replica.server).collect()
    }

    /// Servers that were asked and have not answered; of a session that nobody has opened nobody is asked.
    fn silent(&self) -> Vec<u16> {
        let asked = self.found.as_ref().is_some_and(|it| it.session.0 != 0);
        let holders = self.holders().into_iter();
        let silent = holders.filter(|it| asked && !self.states.contains_key(it));
        silent.map(|it| it.0).collect()
    }

    fn has_all(&self) -> bool {
        let Some(found) = &self.found else {
            return false;
        };
        let holders = self.holders();
        let all = holders.iter().all(|it| self.states.contains_key(it));
        found.session == SessionId(0) || (!holders.is_empty() && all)
    }

    fn hear(&mut self, message: Message, link: &mut Link) {
        match message {
            Message::Control(Control::FoundSession(found)) if found.number == self.number => {
                let known = self.found.as_ref();
                let as_known = |it: &FoundSession| {
                    (it.epoch, it.config.number) == (found.epoch, found.config.number)
                };
                if !known.is_some_and(as_known) {
                    // What a server said under an earlier owner is not what it has now.
                    self.states.clear();
                    self.found = Some(found);
                    self.ask_servers(link);
                }
            }
            Message::Reply(reply) => {
                let found = self.found.as_ref();
                let of_now = found.is_some_and(|it| {
                    (reply.id.epoch, reply.config) == (it.epoch, it.config.number)
                });
                if let Verdict::State(state) = reply.verdict
                    && of_now
                    && reply.id.sequence == Sequence(self.number)
                {
                    self.states.insert(reply.from.server, state);
                }
            }
            _ => {}
        }
    }

    fn result(self, controllers: &Controllers, waited: Duration) -> Result<Observed, Error> {
        let waited_ms = waited.as_millis();
        let silent = self.silent();
        let Some(found) = self.found else {
            return Err(Error::NoAnswer {
                controllers: controllers.clone(),
                waited_ms,
            });
        };
        let is_known = found.session != SessionId(0);
        let newest = self
            .states
            .into_values()
            .max_by_key(|state| (state.version, !state.evicted));
        let state = match newest {
            Some(state) if state.evicted => return Err(Error::Evicted),
            Some(state) => state,
            None if is_known => return Err(Error::NoServer { waited_ms }),
            None => State::ABSENT,
        };
        let at = clock::wall().max(found.at);
        let written = state.version != Version::NONE;
        Ok(Observed {
            answer: value_of(&state, at)?,
            is_known,
            is_tail_unknown: written && state.version.epoch <= found.unknown_through,
            silent,
        })
    }
}

/// What a read of this state answers at this time.
fn value_of(state: &State, at: WallNs) -> Result<Answer, Error> {
    let machine = KeyValue::default();
    let unreadable = |what: String| Error::Refused {
        reason: format!(
            "value: it cannot be read ({what}); wanted one that this program knows; hint: are the servers of another version?"
        ),
    };
    let restored = state
        .snapshot
        .as_ref()
        .map(|snapshot| machine.restore(snapshot))
        .transpose()
        .map_err(|error| unreadable(error.to_string()))?;
    let read = machine.apply(restored.as_ref(), &Operation::Get.encode(), at);
    let answer = read.map_err(|error| unreadable(error.to_string()))?.answer;
    Answer::decode(answer).map_err(|error| unreadable(error.to_string()))
}
