//! Reads a key without owning its session. An operator uses this to look at a running gateway's
//! keys.
//!
//! An observer asks the controller which epoch owns the session, and then asks every replica of the
//! key for its state. The newest state is the value. The owner keeps its session, and no server
//! changes. The observer may see a write before it is acknowledged.

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

/// Period after which the observer repeats an unanswered question.
const ASK_AGAIN: DurationNs = DurationNs::millis(50);

/// The result of an observation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// [`Answer::Value`] or [`Answer::NotFound`].
    pub answer: Answer,
    /// True if the session was ever opened. A session that was never opened is empty.
    pub is_known: bool,
    /// True if an earlier owner's last writes to this key may have been lost.
    pub is_tail_unknown: bool,
    /// Servers that should have the key and did not answer in time. One of them may have a newer
    /// value that was written at level `first`.
    pub silent: Vec<u16>,
}

/// Reads the newest value that the servers have of a key, without becoming the owner of its
/// session. It waits for every server that has the key, or for `timeout`.
///
/// Do not use it in a program that also writes the key: only an owner's reads follow its own
/// writes.
///
/// # Errors
///
/// [`Error::NoAnswer`] when no controller answers, [`Error::NoServer`] when no server does,
/// [`Error::Evicted`], [`Error::KeyLength`], [`Error::Address`] for an address that may not be used.
pub fn observe(
    controllers: &Controllers,
    timeout: Duration,
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
    // Refuse an impossible key before asking any server.
    Key::new(SessionId(1), observer.key.clone())?;
    let start = Instant::now();
    while start.elapsed() < timeout && !observer.has_all() {
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
    /// Random number of this observer's questions, by which it recognises the answers.
    number: u64,
    peers: Peers,
    found: Option<FoundSession>,
    /// State of the key at each server that has answered, in the configuration of `found`.
    states: BTreeMap<ServerId, State>,
}

impl Observer {
    /// Asks the controllers, and each server that has not answered.
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
            // Only an owner may advance the time and the stable number: zero leaves both as they
            // are.
            at: WallNs(0),
            stable: Sequence(0),
            clean_since: None,
            opened_in: ConfigNumber(0),
            quorum_earlier: 1,
            timeout: ASK_AGAIN,
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

    /// Returns the key within its session; `None` while the session is not known.
    fn session_key(&self) -> Option<Key> {
        let session = self.found.as_ref()?.session;
        Key::new(session, self.key.clone()).ok()
    }

    /// Returns the servers that are full replicas of the key.
    fn holders(&self) -> Vec<ServerId> {
        let (Some(found), Some(key)) = (&self.found, self.session_key()) else {
            return Vec::new();
        };
        let replicas = found.config.replicas_of(&key);
        let full = replicas.iter().filter(|replica| replica.old);
        full.map(|replica| replica.server).collect()
    }

    /// Returns the servers that have not answered. No server is asked about a session that was
    /// never opened.
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
                    // Discard the answers that servers gave under an earlier owner or
                    // configuration.
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
            is_tail_unknown: written && state.written_in <= found.unknown_through,
            silent,
        })
    }
}

/// Returns the answer of a read of this state at this time.
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
