//! A cluster that a transcript directs line by line, and whose messages it reads.
//!
//! The parts are the state machines of this crate. The network is a queue: a message stays in it
//! until a command delivers it.

mod commands;
mod print;
pub(crate) mod script;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use flurry_core::controller::{self, Controller, Output};
use flurry_core::id::{DurationNs, MonoNs, ServerId, WallNs};
use flurry_core::key_value::KeyValue;
use flurry_core::message::{Control, Message};
use flurry_core::portal::{self, Event, Portal};
use flurry_core::router::{self, Router};
use flurry_core::server::{self, Server};

use crate::common;

/// A part of the cluster. An owner's portal and router share a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Controller,
    Server(u16),
    Portal(u16),
    Router(u16),
}

/// What the driver adds to an owner's number to get the number of a sender.
const OWNERS: u64 = common::PORTAL;

impl Part {
    /// Returns the number by which a part knows the sender of a message.
    fn sender(self) -> u64 {
        match self {
            Self::Controller => common::CONTROLLER,
            Self::Server(id) => u64::from(id),
            Self::Portal(owner) | Self::Router(owner) => OWNERS + u64::from(owner),
        }
    }

    /// Returns the part that gets this message at this sender's number. In an owner's process the
    /// router gets the replies and the configurations.
    fn receiver(sender: u64, message: &Message) -> Self {
        let number = |offset: u64| u16::try_from(sender - offset).unwrap_or(u16::MAX);
        match (sender, message) {
            (common::CONTROLLER, _) => Self::Controller,
            (OWNERS.., Message::Reply(_) | Message::Control(Control::Config(_))) => {
                Self::Router(number(OWNERS))
            }
            (OWNERS.., _) => Self::Portal(number(OWNERS)),
            _ => Self::Server(number(0)),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Controller => write!(out, "controller"),
            Self::Server(id) => write!(out, "server{id}"),
            Self::Portal(owner) => write!(out, "portal{owner}"),
            Self::Router(owner) => write!(out, "router{owner}"),
        }
    }
}

/// A direction between two parts; `None` stands for any part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Link {
    from: Option<Part>,
    to: Option<Part>,
}

impl Link {
    fn has(self, packet: &Packet) -> bool {
        let fits = |end: Option<Part>, part| end.is_none_or(|it| it == part);
        fits(self.from, packet.from) && fits(self.to, packet.to)
    }
}

/// A message on its way.
#[derive(Debug, Clone)]
struct Packet {
    from: Part,
    to: Part,
    message: Message,
}

/// The process of a server.
#[derive(Debug)]
struct Seat {
    server: Server<KeyValue>,
    /// The count of processes that this server has had.
    process: u128,
    /// False once it has crashed.
    runs: bool,
    /// True while the process stands still: it keeps its memory, reads nothing and does nothing.
    stalled: bool,
}

/// The process of an owner.
#[derive(Debug)]
struct Owner {
    portal: Portal,
    router: Router,
    clock: WallNs,
}

/// A line of the output, before equal lines to several servers become one.
#[derive(Debug, PartialEq, Eq)]
struct Sent {
    at: String,
    from: Part,
    to: Vec<Part>,
    text: String,
    fate: &'static str,
}

/// The cluster of a transcript.
pub(crate) struct Story {
    now: MonoNs,
    seats: BTreeMap<u16, Seat>,
    controller: Controller,
    owners: BTreeMap<u16, Owner>,
    network: VecDeque<Packet>,
    /// Messages of which the network has kept another copy, to replay them.
    recorded: Vec<Packet>,
    /// Links whose messages are lost.
    cut: Vec<Link>,
    /// Links whose messages wait.
    held: Vec<Link>,
    /// The messages of which a repetition shows nothing new.
    shown: BTreeSet<(Part, Part, String)>,
    /// The time of the command under way, if it lets time pass.
    ticks_since: Option<MonoNs>,
    quiet: bool,
    sent: Option<Sent>,
    lines: Vec<String>,
}

impl Story {
    /// Returns a controller without servers.
    pub(crate) fn new() -> Result<Self, String> {
        let now = MonoNs(1);
        let controller = Controller::new(now, common::params()).map_err(|it| it.to_string())?;
        Ok(Self {
            now,
            seats: BTreeMap::new(),
            controller,
            owners: BTreeMap::new(),
            network: VecDeque::new(),
            recorded: Vec::new(),
            cut: Vec::new(),
            held: Vec::new(),
            shown: BTreeSet::new(),
            ticks_since: None,
            quiet: false,
            sent: None,
            lines: Vec::new(),
        })
    }

    /// Lets time pass in steps of a millisecond, delivering all that is not held.
    fn tick(&mut self, time: DurationNs) {
        self.ticks_since = Some(self.now);
        for _ in 0..time.0 / 1_000_000 {
            self.now = self.now.after(DurationNs::millis(1));
            for seat in self.seats.values_mut().filter(|it| it.runs && !it.stalled) {
                if seat.server.poll_timeout() <= self.now {
                    seat.server.handle_timeout(self.now);
                }
            }
            self.controller.handle_timeout(self.now);
            for owner in self.owners.values_mut() {
                owner.portal.handle_timeout(self.now);
                owner.router.handle_timeout(self.now);
            }
            self.deliver_all();
        }
        self.ticks_since = None;
    }

    /// Delivers in the order of sending until everything left is held.
    fn deliver_all(&mut self) {
        self.collect();
        while let Some(place) = self.network.iter().position(|it| !self.waits(it)) {
            if let Some(packet) = self.network.remove(place) {
                self.deliver(packet);
            }
        }
    }

    /// Delivers one message, and collects the messages that it causes.
    fn deliver(&mut self, packet: Packet) {
        let (now, sender) = (self.now, packet.from.sender());
        match packet.to {
            Part::Controller => self.controller.handle_message(now, sender, packet.message),
            Part::Server(id) => {
                if let Some(seat) = self.seats.get_mut(&id) {
                    seat.server.handle_message(now, sender, packet.message);
                }
            }
            Part::Portal(id) => {
                if let Some(owner) = self.owners.get_mut(&id) {
                    owner.portal.handle_message(now, packet.message);
                }
            }
            Part::Router(id) => {
                if let Some(owner) = self.owners.get_mut(&id) {
                    owner.router.handle_message(now, packet.message, 0);
                    if let Some(config) = owner.router.config() {
                        owner.portal.noticed(now, config);
                    }
                }
            }
        }
        self.collect();
        self.verify();
    }

    fn verify(&self) {
        self.seats.values().for_each(|it| it.server.verify());
        self.controller.verify();
        for owner in self.owners.values() {
            owner.portal.verify();
            owner.router.verify();
        }
    }

    /// Returns whether a message waits in the network: its link is held, or its receiver stalls.
    fn waits(&self, packet: &Packet) -> bool {
        let stalled = match packet.to {
            Part::Server(id) => self.seats.get(&id).is_some_and(|it| it.stalled),
            _ => false,
        };
        stalled || self.held.iter().any(|link| link.has(packet))
    }

    /// Returns whether a message never arrives.
    fn is_lost(&self, packet: &Packet) -> bool {
        let absent = match packet.to {
            Part::Controller => false,
            Part::Server(id) => self.seats.get(&id).is_none_or(|it| !it.runs),
            Part::Portal(id) | Part::Router(id) => !self.owners.contains_key(&id),
        };
        absent || self.cut.iter().any(|link| link.has(packet))
    }

    /// Collects the messages and events of all parts, without delivering any.
    fn collect(&mut self) {
        let mut sent = Vec::new();
        for (id, seat) in &mut self.seats {
            while let Some((to, message)) = seat.server.poll_send() {
                let to = match to {
                    server::Destination::Sender(sender) => Part::receiver(sender, &message),
                    server::Destination::Controller => Part::Controller,
                    server::Destination::Server(to) => Part::Server(to.server.0),
                };
                sent.push((Part::Server(*id), to, message));
            }
        }
        while let Some(output) = self.controller.poll_output() {
            // A transcript's controller never ends, so nothing reads its disk.
            if let Output::Send(to, message) = output {
                let to = match to {
                    controller::Destination::Sender(sender) => Part::receiver(sender, &message),
                    controller::Destination::Server(to, _) => Part::Server(to.server.0),
                };
                sent.push((Part::Controller, to, message));
            }
        }
        for (from, to, message) in sent {
            self.send(from, to, message);
        }
        let owners: Vec<u16> = self.owners.keys().copied().collect();
        for id in owners {
            while self.collect_owner(id) {}
        }
    }

    /// Collects one output of an owner; false if there is none.
    fn collect_owner(&mut self, id: u16) -> bool {
        let now = self.now;
        let Some(owner) = self.owners.get_mut(&id) else {
            return false;
        };
        let (portal, router) = (Part::Portal(id), Part::Router(id));
        if let Some((to, message)) = owner.portal.poll_send() {
            match (to, message) {
                (portal::Destination::Router, Message::Request(copy)) => {
                    owner.router.handle_request(now, 0, copy.clone());
                    self.show(portal, router, &Message::Request(copy), "");
                }
                (_, message) => self.send(portal, Part::Controller, message),
            }
        } else if let Some((to, message)) = owner.router.poll_send() {
            match to {
                router::Destination::Sender(_) => {
                    owner.portal.handle_message(now, message.clone());
                    self.show(router, portal, &message, "");
                }
                router::Destination::Controller => self.send(router, Part::Controller, message),
                router::Destination::Server(to) => {
                    self.send(router, Part::Server(to.server.0), message);
                }
            }
        } else if let Some(event) = owner.portal.poll_event() {
            if let Event::Opened(config, _) = &event {
                owner.router.adopt(now, config);
            }
            self.say(&format!("{portal}: {}", print::event(&event)));
        } else {
            return false;
        }
        true
    }

    fn send(&mut self, from: Part, to: Part, message: Message) {
        let packet = Packet { from, to, message };
        let lost = self.is_lost(&packet);
        let fate = match (lost, self.waits(&packet)) {
            (true, _) => " (lost)",
            (false, true) => " (held)",
            (false, false) => "",
        };
        self.show(from, to, &packet.message, fate);
        if !lost {
            self.network.push_back(packet);
        }
    }

    /// Shows a message, unless it repeats one and so shows nothing new.
    fn show(&mut self, from: Part, to: Part, message: &Message, fate: &'static str) {
        let text = print::message(message);
        let hidden = match message {
            Message::Request(copy) if copy.attempt > 0 && !fate.is_empty() => true,
            Message::Control(Control::Ping(_) | Control::Pong(..) | Control::ConfigQuery) => true,
            _ => print::repeated(message).is_some_and(|it| !self.shown.insert((from, to, it))),
        };
        if hidden || self.quiet {
            return;
        }
        let at = self.time();
        if let Some(last) = &mut self.sent {
            let servers = matches!((to, last.to[0]), (Part::Server(_), Part::Server(_)));
            let same = (&last.at, last.from, &last.text, last.fate) == (&at, from, &text, fate);
            if servers && same {
                last.to.push(to);
                return;
            }
        }
        self.flush();
        self.sent = Some(Sent {
            at,
            from,
            to: vec![to],
            text,
            fate,
        });
    }

    /// Returns the time since the command began, if the command lets time pass.
    fn time(&self) -> String {
        let ms = |since| self.now.since(since).0 / 1_000_000;
        let since = self.ticks_since;
        since.map_or_else(String::new, |since| format!("+{}ms ", ms(since)))
    }

    fn flush(&mut self) {
        let Some(sent) = self.sent.take() else { return };
        let mut to = sent.to[0].to_string();
        for part in &sent.to[1..] {
            to.push(',');
            to.push_str(part.to_string().trim_start_matches("server"));
        }
        let (at, from, text, fate) = (sent.at, sent.from, sent.text, sent.fate);
        self.lines.push(format!("{at}{from} -> {to}: {text}{fate}"));
    }

    /// Writes a line that is no message.
    fn say(&mut self, line: &str) {
        self.flush();
        let at = self.time();
        self.lines.push(format!("{at}{line}"));
    }

    /// Starts a process of a server. It has an empty memory.
    fn start(&mut self, id: u16) {
        let process = self.seats.get(&id).map_or(0, |it| it.process) + 1;
        let server = common::server_at(self.now, id, process << 64);
        assert_eq!(server.life().endpoint.server, ServerId(id));
        let seat = Seat {
            server,
            process,
            runs: true,
            stalled: false,
        };
        self.seats.insert(id, seat);
    }
}
