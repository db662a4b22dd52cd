//! What runs on a client's thread: a portal and a router, wired to each other and to the socket.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};

use flurry_core::id::{Epoch, MonoNs};
use flurry_core::key_value::Answer;
use flurry_core::message::{Control, Message};
use flurry_core::portal::{self, Event, Outcome, Portal, PortalParams, Submission};
use flurry_core::router::{self, Router, RouterParams};

use super::Done;
use crate::Error;
use crate::link::Link;
use crate::node::Part;
use crate::server::Peers;

/// Operations that a client holds at most, answered ones that are not on every replica yet included:
/// while a server is silent its copies are kept, until it is counted out.
const OPERATIONS_MAX: usize = 16_384;

/// Keys that a client remembers at most; a forgotten one costs a question to all at its next use.
const KEYS_MAX: usize = 100_000;

/// Callers taken before the socket gets its turn.
const BATCH: usize = 64;

pub(super) type Reply<T> = SyncSender<Result<T, Error>>;

/// What a caller wants from the thread.
#[derive(Debug)]
pub(super) enum Command {
    Submit(Submission, Reply<Done>),
    Close(Reply<()>),
}

/// What callers may look at.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) controller_heard: AtomicBool,
    pub(super) unstable: AtomicU64,
    pub(super) tails_unknown: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Owner {
    portal: Portal,
    router: Router,
    controller: SocketAddrV4,
    peers: Peers,
    commands: Receiver<Command>,
    /// More may be in the channel than one turn takes.
    more: bool,
    waiting: BTreeMap<u64, Reply<Done>>,
    opening: Option<Reply<Epoch>>,
    closing: Option<Reply<()>>,
    fenced: Option<Epoch>,
    /// What the controller is asked at the start.
    question: Option<Control>,
    shared: Arc<Shared>,
}

impl Owner {
    pub(super) fn new(
        now: MonoNs,
        name: String,
        nonce: u64,
        controller: SocketAddrV4,
        commands: Receiver<Command>,
        opening: Reply<Epoch>,
        shared: Arc<Shared>,
    ) -> Self {
        let params = PortalParams {
            name,
            nonce,
            operations_max: OPERATIONS_MAX,
            keys_max: KEYS_MAX,
            drive_again: None,
        };
        Self {
            portal: Portal::new(now, params),
            router: Router::new(RouterParams::default()),
            controller,
            peers: Peers::default(),
            commands,
            more: false,
            waiting: BTreeMap::new(),
            opening: Some(opening),
            closing: None,
            fenced: None,
            // Tells a controller that is not there from one that cannot open the session yet.
            question: Some(Control::StatusQuery),
            shared,
        }
    }

    fn take_commands(&mut self, now: MonoNs) {
        for _ in 0..BATCH {
            let Ok(command) = self.commands.try_recv() else {
                self.more = false;
                return;
            };
            match command {
                Command::Submit(submission, reply) => match self.portal.submit(now, submission) {
                    Ok(sequence) => {
                        self.waiting.insert(sequence, reply);
                    }
                    Err(error) => {
                        let _ = reply.send(Err(error.into()));
                    }
                },
                Command::Close(reply) => match self.fenced {
                    Some(epoch) => {
                        let _ = reply.send(Err(Error::Fenced { epoch }));
                    }
                    None => {
                        self.closing = Some(reply);
                        self.portal.close(now);
                    }
                },
            }
        }
        self.more = true;
    }

    fn told(&mut self, now: MonoNs, event: Event) {
        match event {
            Event::Opened(config, epoch) => {
                self.router.adopt(now, &config);
                if let Some(opening) = self.opening.take() {
                    let _ = opening.send(Ok(epoch));
                }
            }
            Event::Refused(reason) => {
                if let Some(opening) = self.opening.take() {
                    let _ = opening.send(Err(Error::Refused { reason }));
                }
            }
            Event::Answered(sequence, outcome) => {
                if let Outcome::Done {
                    tail_unknown: true, ..
                } = outcome
                {
                    self.shared.tails_unknown.fetch_add(1, Ordering::Relaxed);
                }
                if let Some(reply) = self.waiting.remove(&sequence) {
                    // A caller that waits no longer is no error.
                    let _ = reply.send(result(sequence, outcome));
                }
            }
            Event::Stable(_) => {}
            Event::Closed => {
                if let Some(closing) = self.closing.take() {
                    let _ = closing.send(Ok(()));
                }
            }
            Event::Fenced(epoch) => {
                self.fenced = Some(epoch);
                if let Some(closing) = self.closing.take() {
                    let _ = closing.send(Err(Error::Fenced { epoch }));
                }
            }
        }
    }
}

fn result(sequence: u64, outcome: Outcome) -> Result<Done, Error> {
    match outcome {
        Outcome::Done {
            answer,
            tail_unknown,
        } => match Answer::decode(answer) {
            Ok(answer) => Ok(Done {
                sequence,
                answer,
                is_tail_unknown: tail_unknown,
            }),
            Err(error) => Err(Error::Refused {
                reason: error.to_string(),
            }),
        },
        Outcome::Unknown => Err(Error::Unknown { waited_ms: 0 }),
        Outcome::DataLoss { need, have } => Err(Error::DataLoss { need, have }),
        Outcome::Fenced(epoch) => Err(Error::Fenced { epoch }),
        Outcome::Busy => Err(Error::Busy),
        Outcome::Evicted => Err(Error::Evicted),
        Outcome::Malformed => Err(Error::Refused {
            reason: "operation: the servers cannot read it; wanted one that they know; hint: are they of another version?".to_owned(),
        }),
    }
}

impl Part for Owner {
    fn message(&mut self, now: MonoNs, from: SocketAddrV4, message: Message) {
        let decides = from == self.controller;
        if decides {
            self.shared.controller_heard.store(true, Ordering::Relaxed);
        }
        match message {
            Message::Reply(_) | Message::Control(Control::Config(_)) => {
                self.router.handle_message(now, message, 0);
            }
            Message::Control(_) if decides => self.portal.handle_message(now, message),
            // Answers come from the router inside; the rest is for others.
            _ => {}
        }
    }

    fn woken(&mut self, now: MonoNs) {
        self.take_commands(now);
    }

    fn timeout(&mut self, now: MonoNs) {
        if self.more {
            self.take_commands(now);
        }
        self.portal.handle_timeout(now);
        self.router.handle_timeout(now);
    }

    fn due(&self) -> MonoNs {
        if self.more {
            return MonoNs(0);
        }
        let own = [self.portal.poll_timeout(), self.router.poll_timeout()];
        own.into_iter().flatten().min().unwrap_or(MonoNs(u64::MAX))
    }

    fn carry_out(&mut self, now: MonoNs, link: &mut Link) -> Result<(), Error> {
        if let Some(question) = self.question.take() {
            link.send(self.controller, &Message::Control(question));
        }
        let mut idle = false;
        while !idle {
            idle = true;
            while let Some((to, message)) = self.portal.poll_send() {
                idle = false;
                match (to, message) {
                    (portal::Destination::Router, Message::Request(copy)) => {
                        self.router.handle_request(now, 0, copy.request);
                    }
                    (portal::Destination::Router, _) => {}
                    (portal::Destination::Controller, message) => {
                        link.send(self.controller, &message);
                    }
                }
            }
            while let Some((to, message)) = self.router.poll_send() {
                idle = false;
                match to {
                    router::Destination::Portal(_) => self.portal.handle_message(now, message),
                    router::Destination::Controller => link.send(self.controller, &message),
                    router::Destination::Server(endpoint) => {
                        if let Some(address) = self.peers.find(self.router.config(), endpoint) {
                            link.send(address, &message);
                        }
                    }
                }
            }
            while let Some(event) = self.portal.poll_event() {
                idle = false;
                self.told(now, event);
            }
        }
        let held = u64::try_from(self.portal.held()).unwrap_or(u64::MAX);
        self.shared.unstable.store(held, Ordering::Relaxed);
        Ok(())
    }
}
