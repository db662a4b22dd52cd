//! A standby controller's record of messages that it receives while another one leads.
//!
//! Servers and owners report to all controllers. A controller that begins to lead knows from these
//! reports how long a part has been silent, and need not wait for another lease before it counts a
//! dead server out.

use std::collections::BTreeMap;

use super::{Controller, GAP_SHARE};
use crate::id::{DurationNs, Epoch, MonoNs, SessionId};
use crate::message::{Control, Life, Message};

/// Parts that are remembered, of each kind. Beyond that nothing is remembered, and the next leader
/// waits as long as if it had just begun to listen.
const PARTS_MAX: usize = 65_536;

/// The time of the last message of each server and of each owner.
#[derive(Debug, Clone, Hash)]
pub(super) struct Hearing {
    /// The time since which it has listened without a gap.
    since: MonoNs,
    woken: MonoNs,
    lease: DurationNs,
    lives: BTreeMap<Life, MonoNs>,
    owners: BTreeMap<SessionId, (Epoch, MonoNs)>,
}

impl Hearing {
    pub(super) fn new(now: MonoNs, lease: DurationNs) -> Self {
        Self {
            since: now,
            woken: now,
            lease,
            lives: BTreeMap::new(),
            owners: BTreeMap::new(),
        }
    }

    /// Notes that this process runs. After it stood still for half a lease it begins to listen
    /// anew, because it may have missed messages.
    pub(super) fn wakes(&mut self, now: MonoNs, lease: DurationNs) {
        if now.since(self.woken) > DurationNs(lease.0 / GAP_SHARE) {
            self.since = now;
        }
        (self.woken, self.lease) = (now, lease);
    }

    /// Begins to listen anew, because this machine's clock stood still or jumped.
    pub(super) fn clock_jumped(&mut self, now: MonoNs) {
        *self = Self::new(now, self.lease);
    }

    /// Notes the sender of a message.
    pub(super) fn note(&mut self, now: MonoNs, message: &Message) {
        match message {
            Message::Control(Control::Ping(ping)) if ping.hears(self.lease) => {
                if self.lives.len() >= PARTS_MAX {
                    self.lives.clear();
                }
                self.lives.insert(ping.life, now);
                assert!(
                    self.lives.len() <= PARTS_MAX,
                    "what a standby remembers has a bound"
                );
            }
            // The owner's time without a controller is ignored, because none leads.
            Message::Control(Control::Settled(sessions, _, _)) => {
                if self.owners.len() >= PARTS_MAX {
                    self.owners.clear();
                }
                for owned in sessions {
                    self.owners.insert(owned.session, (owned.epoch, now));
                }
            }
            _ => {}
        }
    }
}

impl Controller {
    /// Adopts the times of messages that this process received before it led.
    pub(super) fn heard_before(&mut self, hearing: &Hearing) {
        let Some(config) = self.config.clone() else {
            return;
        };
        self.listening = hearing.since;
        for life in self.lives_of(&config) {
            if let Some(at) = hearing.lives.get(&life) {
                self.earlier.insert(life, *at);
            }
        }
        for (id, (epoch, at)) in &hearing.owners {
            if let Some(session) = self.sessions.get_mut(id)
                && session.epoch == *epoch
            {
                session.heard = *at;
            }
        }
    }
}
