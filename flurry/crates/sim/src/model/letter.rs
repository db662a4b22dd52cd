//! Messages under way between the parts, and their names.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use flurry_core::id::{DurationNs, Sequence, Version};
use flurry_core::message::{Ask, Control, Copy, Message, Reply, Verdict};

/// Number of data servers.
pub(super) const SERVERS: usize = 2;

/// Number of places; each holds one part.
pub(super) const PLACES: usize = SERVERS + 3;

/// The attempt number that marks the messages of a repair.
pub(super) const REPAIR_ATTEMPT: u8 = 31;

/// Place of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place(pub(super) u8);

impl Place {
    pub(super) const CONTROLLER: Self = Self(2);
    pub(super) const FIRST_OWNER: Self = Self(3);
    pub(super) const SECOND_OWNER: Self = Self(4);

    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Returns the index of the owner at this place.
    pub(super) fn owner(self) -> Option<usize> {
        self.index().checked_sub(Self::FIRST_OWNER.index())
    }

    pub(super) fn is_server(self) -> bool {
        self.index() < SERVERS
    }

    /// Returns the place of a number that a driver of the core gave out.
    pub(super) fn of(number: u64) -> Self {
        Self(u8::try_from(number).unwrap_or(u8::MAX))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            2 => write!(out, "the controller"),
            3 => write!(out, "the first owner"),
            4 => write!(out, "the second owner"),
            server => write!(out, "server {server}"),
        }
    }
}

/// A message from a place to a place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Letter {
    pub(super) from: Place,
    pub(super) to: Place,
    pub(super) message: Message,
}

impl Letter {
    /// Returns the message without the fields that its receiver never reads, so that messages with
    /// the same effect are equal. Returns `None` when the message has no effect.
    pub(super) fn plain(mut self, time_passes: bool) -> Option<Self> {
        match &mut self.message {
            // The controller sends the configuration to everybody; see the head of `super`.
            Message::Control(Control::ConfigQuery) => return None,
            Message::Control(Control::Config(_)) if self.from != Place::CONTROLLER => return None,
            Message::Request(copy) if !time_passes && copy.attempt != REPAIR_ATTEMPT => {
                copy.attempt = 0;
            }
            Message::Reply(reply) => return Self::plain_reply(reply, time_passes).then_some(self),
            _ => {}
        }
        Some(self)
    }

    fn plain_reply(reply: &mut Reply, time_passes: bool) -> bool {
        // Only for a late reply does it matter which attempt it answers.
        if !time_passes && reply.attempt != REPAIR_ATTEMPT {
            reply.attempt = 0;
        }
        match reply.verdict {
            // A router goes on as if it had not received it.
            Verdict::Unregistered | Verdict::Joining | Verdict::NoLease => return false,
            // A router would only ask for the configuration, which it receives in any case.
            Verdict::WrongConfig(_) => return false,
            Verdict::Fenced(_) => reply.stable = Sequence(0),
            Verdict::Stale => {}
            _ => return true,
        }
        // It proves nothing that depends on time.
        reply.attempt = 0;
        reply.lease_left = DurationNs(0);
        reply.have = Version::NONE;
        true
    }

    pub(super) fn id(&self) -> LetterId {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        let instant = u64::from(self.is_instant());
        let config = u64::from(self.config().min(15));
        let control = u64::from(matches!(self.message, Message::Control(_)));
        LetterId(
            hasher.finish() << 9 | control << 8 | config << 4 | instant << 3 | u64::from(self.to.0),
        )
    }

    /// Returns the number of the configuration that it belongs to; 0 means any.
    fn config(&self) -> u32 {
        match &self.message {
            Message::Request(copy) => copy.config.0,
            Message::Reply(reply) => reply.config.0,
            Message::Control(Control::Pull(pull)) => pull.config.0,
            Message::Control(Control::Batch(batch)) => batch.config.0,
            _ => 0,
        }
    }

    /// Returns true for messages that are delivered at once: see the head of [`super`].
    fn is_instant(&self) -> bool {
        let Message::Control(control) = &self.message else {
            return false;
        };
        matches!(
            control,
            Control::Ping(..)
                | Control::Pong(..)
                | Control::Join(..)
                | Control::Prove(..)
                | Control::Synced(..)
                | Control::FenceHeld(..)
                | Control::Open { .. }
        )
    }
}

/// Name of a message: its hash, with the facts that the exploration needs often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct LetterId(u64);

impl LetterId {
    pub(super) fn number(self) -> u64 {
        self.0
    }

    pub(super) fn to(self) -> Place {
        Place(u8::try_from(self.0 & 7).unwrap_or(u8::MAX))
    }

    pub(super) fn is_instant(self) -> bool {
        self.0 & 8 != 0
    }

    /// Returns true if it is not an operation on a key.
    pub(super) fn is_control(self) -> bool {
        self.0 & 1 << 8 != 0
    }

    /// Returns true if it belongs to a configuration before this one.
    pub(super) fn is_before(self, config: u8) -> bool {
        let own = self.0 >> 4 & 15;
        own != 0 && own < u64::from(config)
    }
}

impl fmt::Display for Letter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} hears from {}: ", self.to, self.from)?;
        match &self.message {
            Message::Request(copy) => write_request(out, copy),
            Message::Reply(reply) => write_reply(out, reply),
            Message::Control(Control::Config(config)) => {
                let members: Vec<_> = config
                    .everybody()
                    .map(|it| (it.server.0, it.incarnation.0, it.gone))
                    .collect();
                write!(
                    out,
                    "configuration {}, changing: {}, members (server, life, gone) {members:?}",
                    config.number.0,
                    config.next.is_some()
                )
            }
            Message::Control(Control::Opened(opened)) => {
                for it in &opened.sessions {
                    write!(
                        out,
                        "epoch {} is yours, clean since {:?}, unknown through {:?}, ",
                        it.epoch.0, it.clean_since, it.unknown_through
                    )?;
                }
                write!(out, "configuration {}", opened.config.number.0)
            }
            other => write!(out, "{other:?}"),
        }
    }
}

fn write_request(out: &mut fmt::Formatter<'_>, copy: &Copy) -> fmt::Result {
    let request = &copy.request;
    let ask = match &request.ask {
        Ask::Apply { access, .. } => format!("{access:?}"),
        Ask::Push(state) => format!("Push {} {:?}", state.version, state.snapshot),
        other => format!("{other:?}"),
    };
    write!(
        out,
        "{ask} {} after {}, stable {}, configuration {}, attempt {}",
        request.id.version(),
        request.dep,
        request.stable.0,
        copy.config.0,
        copy.attempt
    )
}

fn write_reply(out: &mut fmt::Formatter<'_>, reply: &Reply) -> fmt::Result {
    let verdict = match &reply.verdict {
        Verdict::State(state) => format!("State {} {:?}", state.version, state.snapshot),
        other => format!("{other:?}"),
    };
    write!(
        out,
        "to {}: {verdict}, has {}, configuration {}, attempt {}, lease left {} ms",
        reply.id.version(),
        reply.have,
        reply.config.0,
        reply.attempt,
        reply.lease_left.0 / 1_000_000
    )
}
