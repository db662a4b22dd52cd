//! A cluster in one thread: messages go from part to part at once, in order, unless a test holds
//! them.

#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a test's own helper: a failure is a failure of the test, and each file uses a part"
)]

pub(crate) mod copies;

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use flurry_core::config::Level;
use flurry_core::controller::{self, Controller, ControllerParams, Output};
use flurry_core::id::{DurationNs, Endpoint, Incarnation, MonoNs, ServerId, ShardId, WallNs};
use flurry_core::key_value::{Answer, KeyValue, Operation};
use flurry_core::message::{Control, Copies, Life, Message};
use flurry_core::portal::{self, Event, Outcome, Portal, PortalParams, Sessions, Submission};
use flurry_core::router::{self, Router, RouterParams};
use flurry_core::server::{self, Server, ServerParams};

pub(crate) const CONTROLLER: u64 = 1000;
pub(crate) const PORTAL: u64 = 2000;

/// A message on its way: the sender, the receiver and the message.
pub(crate) type Letter = (u64, u64, Message);

/// Three servers, a controller, a portal with its router.
pub(crate) struct Cluster {
    pub(crate) now: MonoNs,
    pub(crate) servers: Vec<Server<KeyValue>>,
    pub(crate) controller: Controller,
    pub(crate) portal: Portal,
    pub(crate) router: Router,
    pub(crate) letters: VecDeque<Letter>,
    pub(crate) events: Vec<Event>,
    /// Servers whose messages are all lost, in both directions.
    pub(crate) deaf: Vec<u16>,
    /// Parts that receive nothing, but whose own messages arrive.
    pub(crate) earless: Vec<u64>,
    /// Servers whose present incarnation has another address. An owner that knows only the earlier
    /// one reaches nobody.
    pub(crate) moved: Vec<u16>,
    /// The longest message that was delivered.
    pub(crate) longest_bytes: usize,
    pub(crate) disk: Vec<u8>,
}

pub(crate) fn server(id: u16, life: u128) -> Server<KeyValue> {
    thread(id, 0, Incarnation(life))
}

/// A server whose process begins at this time.
pub(crate) fn server_at(now: MonoNs, id: u16, life: u128) -> Server<KeyValue> {
    thread_at(now, id, 0, Incarnation(life))
}

/// A shard of a server.
pub(crate) fn thread(id: u16, shard: u8, incarnation: Incarnation) -> Server<KeyValue> {
    thread_at(MonoNs(1), id, shard, incarnation)
}

fn thread_at(now: MonoNs, id: u16, shard: u8, incarnation: Incarnation) -> Server<KeyValue> {
    let params = ServerParams {
        life: Life {
            endpoint: Endpoint {
                server: ServerId(id),
                shard: ShardId(shard),
            },
            incarnation,
        },
        addresses: Vec::new(),
        lease: DurationNs::millis(1_000),
        memory_bytes_max: 1 << 20,
        evict: false,
    };
    Server::new(now, params, KeyValue::default())
}

pub(crate) fn params() -> ControllerParams {
    ControllerParams {
        replicas: 3,
        shards: 1,
        servers_min: 3,
        lease: DurationNs::millis(1_000),
    }
}

pub(crate) fn portal(now: MonoNs, nonce: u64) -> Portal {
    portal_of(now, nonce, Copies::Count(1))
}

/// Returns a portal whose acknowledged writes have this number of copies.
pub(crate) fn portal_of(now: MonoNs, nonce: u64, copies: Copies) -> Portal {
    Portal::new(now, owner_params(nonce, copies))
}

pub(crate) fn owner_params(nonce: u64, copies: Copies) -> PortalParams {
    PortalParams {
        sessions: Sessions::one("calls"),
        nonce,
        operations_max: 100,
        bytes_max: 1 << 20,
        keys_max: 100,
        drive_again: None,
        heartbeat: Some(DurationNs::millis(500)),
        timeout: DurationNs(0),
        tells_first: false,
        copies,
    }
}

/// Returns the length of a message, in bytes.
pub(crate) fn bytes_of(message: &Message) -> usize {
    let mut bytes = BytesMut::new();
    flurry_core::wire::encode(message, &mut bytes);
    bytes.len()
}

impl Cluster {
    /// Returns a cluster with an open session.
    pub(crate) fn open() -> Self {
        let servers = (0..3).map(|id| server(id, u128::from(id) + 1));
        let mut cluster = Self::of(servers.collect());
        cluster.pass(DurationNs::millis(300));
        assert!(cluster.portal.is_open(), "the session opens");
        cluster.events.clear();
        cluster
    }

    /// Returns a cluster of these servers, in which nothing has happened yet.
    pub(crate) fn of(servers: Vec<Server<KeyValue>>) -> Self {
        let now = MonoNs(1);
        Self {
            now,
            servers,
            controller: Controller::new(now, params()).unwrap(),
            portal: portal(now, 1),
            router: Router::new(RouterParams::default()),
            letters: VecDeque::new(),
            events: Vec::new(),
            deaf: Vec::new(),
            earless: Vec::new(),
            moved: Vec::new(),
            longest_bytes: 0,
            disk: Vec::new(),
        }
    }

    /// Lets time pass, in steps of a millisecond, delivering everything.
    pub(crate) fn pass(&mut self, time: DurationNs) {
        for _ in 0..time.0 / 1_000_000 {
            self.tick();
            self.settle();
        }
    }

    /// Lets a millisecond pass, without delivering anything.
    pub(crate) fn tick(&mut self) {
        self.now = self.now.after(DurationNs::millis(1));
        for server in &mut self.servers {
            if server.poll_timeout() <= self.now {
                server.handle_timeout(self.now);
            }
        }
        self.controller.handle_timeout(self.now);
        self.portal.handle_timeout(self.now);
        self.router.handle_timeout(self.now);
    }

    /// Returns whether a message of this sender reaches the receiver's present incarnation.
    fn reaches(&self, from: u64, to: u64) -> bool {
        let moved = self.moved.iter().find(|id| u64::from(**id) == to);
        let (PORTAL, Some(id)) = (from, moved) else {
            return true;
        };
        let life = self.servers[usize::from(*id)].life();
        let config = self.router.config();
        config.is_some_and(|config| config.has(ServerId(*id), life.incarnation))
    }

    /// Delivers until nothing is under way.
    pub(crate) fn settle(&mut self) {
        self.collect();
        while let Some(letter) = self.letters.pop_front() {
            self.deliver(letter);
            self.collect();
        }
        self.servers.iter().for_each(Server::verify);
        self.controller.verify();
        self.portal.verify();
        self.router.verify();
    }

    /// Sends the controller a message and returns its last answer to this sender.
    pub(crate) fn ask_controller(&mut self, sender: u64, control: Control) -> Option<Control> {
        let message = Message::Control(control);
        self.controller.handle_message(self.now, sender, message);
        self.collect();
        let mut answers = self.letters.iter().filter(|it| it.1 == sender);
        let answer = match answers.next_back() {
            Some((CONTROLLER, _, Message::Control(control))) => Some(control.clone()),
            _ => None,
        };
        self.letters.retain(|it| it.1 != sender);
        answer
    }

    /// Collects the messages that the parts send, without delivering them.
    pub(crate) fn collect(&mut self) {
        for index in 0..self.servers.len() {
            while let Some((to, message)) = self.servers[index].poll_send() {
                let to = match to {
                    server::Destination::Sender(sender) => sender,
                    server::Destination::Controller => CONTROLLER,
                    server::Destination::Server(endpoint) => u64::from(endpoint.server.0),
                };
                self.letters.push_back((index as u64, to, message));
            }
        }
        while let Some(output) = self.controller.poll_output() {
            match output {
                Output::Persist(bytes) => self.disk = bytes,
                Output::Send(controller::Destination::Sender(to), message) => {
                    self.letters.push_back((CONTROLLER, to, message));
                }
                Output::Send(controller::Destination::Server(to, _), message) => {
                    self.letters
                        .push_back((CONTROLLER, u64::from(to.server.0), message));
                }
            }
        }
        self.collect_owner();
    }

    fn collect_owner(&mut self) {
        loop {
            let mut idle = true;
            while let Some((to, message)) = self.portal.poll_send() {
                idle = false;
                match (to, message) {
                    (portal::Destination::Router, Message::Request(copy)) => {
                        self.router.handle_request(self.now, 0, copy);
                    }
                    (_, message) => self.letters.push_back((PORTAL, CONTROLLER, message)),
                }
            }
            while let Some((to, message)) = self.router.poll_send() {
                idle = false;
                match to {
                    router::Destination::Sender(_) => self.portal.handle_message(self.now, message),
                    router::Destination::Controller => {
                        self.letters.push_back((PORTAL, CONTROLLER, message));
                    }
                    router::Destination::Server(to) => {
                        self.letters
                            .push_back((PORTAL, u64::from(to.server.0), message));
                    }
                }
            }
            while let Some(event) = self.portal.poll_event() {
                idle = false;
                if let Event::Opened(config, _) = &event {
                    self.router.adopt(self.now, config);
                }
                self.events.push(event);
            }
            if idle {
                return;
            }
        }
    }

    /// Delivers one message.
    pub(crate) fn deliver(&mut self, (from, to, message): Letter) {
        let deaf = |place: u64| self.deaf.iter().any(|id| u64::from(*id) == place);
        if deaf(from) || deaf(to) || self.earless.contains(&to) || !self.reaches(from, to) {
            return;
        }
        self.longest_bytes = self.longest_bytes.max(bytes_of(&message));
        match to {
            CONTROLLER => self.controller.handle_message(self.now, from, message),
            PORTAL => match message {
                message @ (Message::Reply(_) | Message::Control(Control::Config(_))) => {
                    self.router.handle_message(self.now, message, 0);
                    if let Some(config) = self.router.config() {
                        self.portal.noticed(self.now, config);
                    }
                }
                message => self.portal.handle_message(self.now, message),
            },
            server => {
                if let Some(server) = self.servers.get_mut(usize::try_from(server).unwrap()) {
                    server.handle_message(self.now, from, message);
                }
            }
        }
    }

    /// Submits an operation at a level.
    pub(crate) fn ask(&mut self, key: &str, operation: &Operation, level: Level) -> u64 {
        let submission = Submission {
            key: Bytes::copy_from_slice(key.as_bytes()),
            operation: operation.encode(),
            access: operation.access(),
            level,
            at: WallNs(i64::try_from(self.now.0).unwrap()),
            timeout: DurationNs::millis(500),
            sequence: None,
            refuses_doubt: false,
        };
        self.portal.submit(self.now, submission).unwrap()
    }

    /// Submits an operation, delivers every message, and returns the answer.
    pub(crate) fn answer(&mut self, key: &str, operation: &Operation, level: Level) -> Answer {
        let number = self.ask(key, operation, level);
        self.settle();
        match self.outcome(number) {
            Some(Outcome::Done { answer, .. }) => Answer::decode(answer).unwrap(),
            other => panic!("operation {number} on {key} came to {other:?}"),
        }
    }

    /// Returns the outcome of an operation, if it has one.
    pub(crate) fn outcome(&self, number: u64) -> Option<Outcome> {
        // Takes the latest event, because another owner counts from one again.
        self.events.iter().rev().find_map(|event| match event {
            Event::Answered(known, outcome) if *known == number => Some(outcome.clone()),
            _ => None,
        })
    }

    /// Returns whether the owner was notified that every replica has this write.
    pub(crate) fn is_stable(&self, number: u64) -> bool {
        self.events.contains(&Event::Stable(number))
    }
}
