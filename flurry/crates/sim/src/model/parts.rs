//! The real parts of the core, and the inputs that they get.

use bytes::Bytes;
use flurry_core::config::Level;
use flurry_core::controller::{self, Controller, ControllerParams, Output};
use flurry_core::id::{
    DurationNs, Endpoint, Incarnation, MonoNs, ServerId, ShardId, Version, WallNs,
};
use flurry_core::key_value::KeyValue;
use flurry_core::message::{Ask, Control, Life, Message, Verdict};
use flurry_core::portal::{self, Event, Outcome, Portal, PortalParams, Sessions, Submission};
use flurry_core::router::{self, Router, RouterParams};
use flurry_core::server::{self, Server, ServerParams};

use super::letter::{Letter, LetterId, Place, REPAIR_ATTEMPT, SERVERS};
use super::plan::{Plan, Wish};
use super::steps::{PartId, hash_of};

/// Length of a lease. It is much longer than any repetition, so all of those come due within it.
pub(super) const LEASE: DurationNs = DurationNs::millis(1_000);

/// An owner's timeout for an answer: longer than any path.
const TIMEOUT: DurationNs = DurationNs::millis(1_000_000);

/// The process at a place.
#[derive(Debug, Clone, Hash)]
pub(super) enum Part {
    /// Nothing.
    Down,
    Server(Box<Server<KeyValue>>),
    Controller(Box<Controller>),
    /// A portal with the router inside it, at this place.
    Owner(Place, Box<Portal>, Box<Router>),
}

/// An input of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Input {
    /// The part starts, as this incarnation.
    Start(Place, u8),
    /// The part ends.
    Stop,
    /// Its timers are checked.
    Tick,
    /// The owner's operation of this number is submitted.
    Submit(Place, u8),
    /// A message arrives.
    Letter(LetterId),
}

/// A notice that an owner's caller receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    /// The owner has the session.
    Opened,
    /// Another owner has the session.
    Fenced,
    /// The outcome of an operation, by its index among the owner's wishes.
    Answered(usize, Outcome),
}

/// The result of an input.
#[derive(Debug, Clone, Default)]
pub(super) struct Step {
    pub(super) part: PartId,
    pub(super) letters: Vec<LetterId>,
    pub(super) told: Vec<Told>,
    /// For a server: the key's version, and a hash of its state and its last answer.
    pub(super) held: Option<(Version, u64)>,
    /// For a server: the epoch of an operation that it answered with "done".
    pub(super) executed: Option<u32>,
    /// True if it took another replica's state.
    pub(super) pushed: bool,
    /// True if it refused because it has no lease.
    pub(super) leaseless: bool,
    /// For an owner: true if nothing is under way.
    pub(super) idle: bool,
    /// For an owner: true if it may submit.
    pub(super) open: bool,
    /// For a server or an owner: the number of its configuration.
    pub(super) config: u8,
    /// Text of an assertion of the core that failed.
    pub(super) panic: Option<String>,
}

impl Step {
    /// Returns true if the step does more than send messages that are delivered later.
    pub(super) fn changes(&self, before: PartId) -> bool {
        let instant = self.letters.iter().any(|letter| letter.is_instant());
        self.part != before || instant || !self.told.is_empty() || self.panic.is_some()
    }
}

fn start(place: Place, life: u8, now: MonoNs) -> Part {
    if place.is_server() {
        let params = ServerParams {
            life: Life {
                endpoint: Endpoint {
                    server: ServerId(u16::from(place.0)),
                    shard: ShardId(0),
                },
                incarnation: Incarnation(u128::from(place.0) * 10 + u128::from(life)),
            },
            addresses: Vec::new(),
            lease: LEASE,
            memory_bytes_max: 1 << 20,
            evict: false,
        };
        let mut server = Server::new(now, params, KeyValue::default());
        server.handle_timeout(now);
        return Part::Server(Box::new(server));
    }
    if place == Place::CONTROLLER {
        let replicas = u8::try_from(SERVERS).unwrap_or(u8::MAX);
        let params = ControllerParams {
            replicas,
            shards: 1,
            servers_min: replicas,
            lease: LEASE,
        };
        return Controller::new(now, params)
            .map_or(Part::Down, |it| Part::Controller(Box::new(it)));
    }
    let params = PortalParams {
        sessions: Sessions::one("session"),
        nonce: u64::from(place.0),
        operations_max: 16,
        bytes_max: 1 << 20,
        keys_max: 4,
        drive_again: None,
        heartbeat: None,
        timeout: DurationNs(0),
        tells_first: false,
        copies: flurry_core::message::Copies::Count(1),
    };
    let portal = Portal::new(now, params);
    let router = Router::new(RouterParams::default());
    Part::Owner(place, Box::new(portal), Box::new(router))
}

fn submit(part: &mut Part, plan: &Plan, now: MonoNs, place: Place, index: u8) {
    let Part::Owner(_, portal, _) = part else {
        return;
    };
    let Some(wish) = plan.wish(place, usize::from(index)) else {
        return;
    };
    if wish == Wish::Close {
        portal.close(now);
        return;
    }
    let operation = wish.operation();
    let submission = Submission {
        key: Bytes::from_static(b"k"),
        operation: operation.encode(),
        access: operation.access(),
        level: Level::First,
        at: WallNs(1),
        timeout: TIMEOUT,
        sequence: None,
        refuses_doubt: false,
    };
    // Fails only for a session that is not open, and none is asked here.
    let _ = portal.submit(now, submission);
}

fn tick(part: &mut Part, now: MonoNs) {
    match part {
        Part::Down => {}
        Part::Server(server) => server.handle_timeout(now),
        Part::Controller(controller) => controller.handle_timeout(now),
        Part::Owner(_, portal, router) => {
            portal.handle_timeout(now);
            router.handle_timeout(now);
        }
    }
}

/// Checks what always holds of a part, whatever has come to it.
fn verify(part: &Part) {
    match part {
        Part::Down => {}
        Part::Server(server) => server.verify(),
        Part::Controller(controller) => controller.verify(),
        Part::Owner(_, portal, router) => {
            portal.verify();
            router.verify();
        }
    }
}

fn deliver(part: &mut Part, now: MonoNs, letter: &Letter) {
    let sender = u64::from(letter.from.0);
    let message = letter.message.clone();
    match part {
        Part::Down => {}
        Part::Server(server) => server.handle_message(now, sender, message),
        Part::Controller(controller) => controller.handle_message(now, sender, message),
        Part::Owner(_, portal, router) => match message {
            message @ (Message::Reply(_) | Message::Control(Control::Config(_))) => {
                router.handle_message(now, message, 0);
            }
            message => portal.handle_message(now, message),
        },
    }
}

/// Gives a part an input. Returns the result, the part's place, and the messages that it sends.
pub(super) fn drive(
    part: &mut Part,
    plan: &Plan,
    input: Input,
    letter: Option<&Letter>,
    now: MonoNs,
) -> (Step, Place, Vec<(Place, Message)>) {
    match input {
        Input::Start(place, life) => *part = start(place, life, now),
        Input::Stop => *part = Part::Down,
        Input::Tick => tick(part, now),
        Input::Submit(place, index) => submit(part, plan, now, place, index),
        Input::Letter(_) => {}
    }
    if let Some(letter) = letter {
        deliver(part, now, letter);
    }
    let mut done = Done {
        step: Step::default(),
        from: Place(u8::MAX),
        letters: Vec::new(),
    };
    done.drain(part, now);
    if let Some(letter) = letter {
        done.note_replies(letter);
    }
    done.note(part);
    verify(part);
    (done.step, done.from, done.letters)
}

/// The outputs of a part after an input.
#[derive(Debug)]
struct Done {
    step: Step,
    from: Place,
    letters: Vec<(Place, Message)>,
}

impl Done {
    fn drain(&mut self, part: &mut Part, now: MonoNs) {
        match part {
            Part::Down => {}
            Part::Server(server) => self.drain_server(server),
            Part::Controller(controller) => self.drain_controller(controller),
            Part::Owner(place, portal, router) => {
                self.from = *place;
                self.drain_owner(portal, router, now);
            }
        }
    }

    fn drain_server(&mut self, server: &mut Server<KeyValue>) {
        self.from = Place::of(u64::from(server.life().endpoint.server.0));
        while let Some((to, message)) = server.poll_send() {
            let to = match to {
                server::Destination::Sender(sender) => Place::of(sender),
                server::Destination::Controller => Place::CONTROLLER,
                server::Destination::Server(to) => Place::of(u64::from(to.server.0)),
            };
            self.letters.push((to, message));
        }
    }

    fn drain_controller(&mut self, controller: &mut Controller) {
        self.from = Place::CONTROLLER;
        while let Some(output) = controller.poll_output() {
            // The controller does not crash here, so its disk is never read.
            let Output::Send(to, message) = output else {
                continue;
            };
            let to = match to {
                controller::Destination::Sender(sender) => Place::of(sender),
                controller::Destination::Server(to, _) => Place::of(u64::from(to.server.0)),
            };
            self.letters.push((to, message));
        }
    }

    fn drain_owner(&mut self, portal: &mut Portal, router: &mut Router, now: MonoNs) {
        let mut busy = true;
        while busy {
            busy = false;
            while let Some((to, message)) = portal.poll_send() {
                busy = true;
                match (to, message) {
                    (portal::Destination::Router, Message::Request(copy)) => {
                        router.handle_request(now, 0, copy);
                    }
                    (_, message) => self.letters.push((Place::CONTROLLER, message)),
                }
            }
            while let Some((to, message)) = router.poll_send() {
                busy = true;
                match to {
                    router::Destination::Sender(_) => portal.handle_message(now, message),
                    router::Destination::Controller => {
                        self.letters.push((Place::CONTROLLER, message));
                    }
                    router::Destination::Server(to) => {
                        let to = Place::of(u64::from(to.server.0));
                        self.letters.push((to, message));
                    }
                }
            }
            while let Some(event) = portal.poll_event() {
                busy = true;
                match event {
                    Event::Opened(config, _) => {
                        router.adopt(now, &config);
                        self.step.told.push(Told::Opened);
                    }
                    Event::Answered(number, outcome) => {
                        let index = usize::try_from(number - 1).unwrap_or(usize::MAX);
                        self.step.told.push(Told::Answered(index, outcome));
                    }
                    Event::Fenced(_) | Event::PartFenced(..) => {
                        self.step.told.push(Told::Fenced);
                    }
                    Event::Refused(_) | Event::StandsBy(_) | Event::Stable(_) | Event::Closed => {}
                }
            }
        }
    }

    /// Records the facts that a server's replies to a message show.
    fn note_replies(&mut self, letter: &Letter) {
        let Message::Request(copy) = &letter.message else {
            return;
        };
        for (_, message) in &self.letters {
            let Message::Reply(reply) = message else {
                continue;
            };
            self.step.leaseless |= reply.verdict == Verdict::NoLease;
            if matches!(reply.verdict, Verdict::Done(_) | Verdict::Held) {
                self.step.executed = Some(reply.id.epoch.0);
                let push = matches!(copy.request.ask, Ask::Push(_));
                self.step.pushed = push && copy.attempt == REPAIR_ATTEMPT;
            }
        }
    }

    /// Records the facts that the part's own state shows.
    fn note(&mut self, part: &Part) {
        let step = &mut self.step;
        let config = match part {
            Part::Down | Part::Controller(_) => None,
            Part::Server(server) => {
                // There is one key.
                step.held = server
                    .states()
                    .map(|(_, state)| (state.version, hash_of(&(state.snapshot, state.answer))))
                    .next();
                server.config()
            }
            Part::Owner(_, portal, router) => {
                step.idle = portal.held() + router.in_flight() + router.repairing() == 0;
                step.open = portal.is_open();
                router.config()
            }
        };
        step.config = config.map_or(0, |it| u8::try_from(it.number.0).unwrap_or(u8::MAX));
    }
}
