//! The lease of a server: the time until which it may answer.
//!
//! A removed server must stop answering before the others go on without it, even if it receives no
//! message about that. So it answers only while it has a lease. The controller can grant one, or a
//! majority of the servers, itself included, so that the loss of the controller stops no server. A
//! grant is for a server with the same configuration. It runs from the time of the *request* by the
//! asker's own clock, so that no two clocks are compared. Before the controller counts out a silent
//! server, it waits until all others go by the new configuration, and then longer than a lease.

use std::collections::BTreeMap;

use super::{Destination, Server};
use crate::bugs::{Bug, planted};
use crate::config::Config;
use crate::id::{DurationNs, Endpoint, Incarnation, MonoNs, ServerId};
use crate::machine::StateMachine;
use crate::message::{Control, Life, Message, Ping};

/// Pings in the duration of a lease, so that three may be lost in a row.
const PINGS: u64 = 4;

/// The grants that a server has, and the time at which it asks for the next ones.
#[derive(Debug, Clone, Hash)]
pub(super) struct Lease {
    length: DurationNs,
    controller: Option<MonoNs>,
    servers: BTreeMap<ServerId, MonoNs>,
    next_ping: MonoNs,
    /// The time before which requests were sent too early: their grants do not count.
    since: MonoNs,
    /// The time at which this process began. It does not know the grants of an earlier process.
    began: MonoNs,
    /// The time at which anybody last answered a ping, or the server last became a member.
    heard: MonoNs,
    /// The time of the server's last grant to each other server.
    given: BTreeMap<(ServerId, Incarnation), MonoNs>,
}

impl Lease {
    pub(super) fn new(now: MonoNs, length: DurationNs) -> Self {
        Self {
            length,
            controller: None,
            servers: BTreeMap::new(),
            next_ping: now,
            since: MonoNs(0),
            began: now,
            heard: now,
            given: BTreeMap::new(),
        }
    }

    /// Sets the duration of grants from now on.
    pub(super) fn set_length(&mut self, length: DurationNs) {
        self.length = length;
    }

    /// Notes that another server got a lease.
    fn gave(&mut self, now: MonoNs, to: Life) {
        self.given.insert((to.endpoint.server, to.incarnation), now);
    }

    /// Returns the time since it last granted a lease to a server outside of this configuration.
    /// Without such a grant, it returns the time since this process began.
    fn quiet(&mut self, now: MonoNs, config: &Config) -> DurationNs {
        let outside =
            |(server, incarnation): &(ServerId, Incarnation)| !config.has(*server, *incarnation);
        let given = self.given.iter().filter(|(life, _)| outside(life));
        let last = given.map(|(_, at)| *at).max().unwrap_or(self.began);
        let quiet = now.since(last.max(self.began));
        // Grants that ended long ago are forgotten.
        let kept = DurationNs(4 * self.length.0);
        self.given.retain(|_, at| now.since(*at) <= kept);
        quiet
    }

    /// Notes an answer to a ping. After an answer without a grant, which ends a long silence, the
    /// server asks again at once.
    pub(super) fn heard(&mut self, now: MonoNs, granted: bool) {
        self.heard = now;
        if !granted {
            self.next_ping = now;
        }
    }

    pub(super) fn forget(&mut self) {
        self.controller = None;
        self.servers.clear();
    }

    pub(super) fn next_ping(&self) -> MonoNs {
        self.next_ping
    }

    pub(super) fn ping_is_due(&self, now: MonoNs) -> bool {
        now >= self.next_ping
    }

    /// Drops all grants, including those under way.
    pub(super) fn begin_anew(&mut self, now: MonoNs) {
        self.forget();
        self.since = now;
        self.next_ping = now;
        assert!(
            self.controller.is_none() && self.servers.is_empty(),
            "a grant from before a jump may be over"
        );
    }

    pub(super) fn granted(&mut self, from: Option<ServerId>, asked: MonoNs) {
        if asked < self.since {
            return;
        }
        let until = asked.after(self.length);
        match from {
            None => self.controller = self.controller.max(Some(until)),
            Some(server) => {
                let held = self.servers.entry(server).or_default();
                *held = until.max(*held);
            }
        }
    }

    /// Returns the time that is left of the lease; at most its duration.
    pub(super) fn left(&self, now: MonoNs, majority: usize, peers: &[ServerId]) -> DurationNs {
        let mut grants: Vec<MonoNs> = peers
            .iter()
            .filter_map(|peer| self.servers.get(peer).copied())
            .collect();
        grants.sort_unstable_by(|a, b| b.cmp(a));
        // The server counts as one of the majority.
        let by_servers = match majority {
            0 | 1 => Some(now.after(self.length)),
            more => grants.get(more - 2).copied(),
        };
        assert!(
            grants.len() <= peers.len(),
            "each of the others grants one lease, and nobody else any"
        );
        let until = by_servers.max(self.controller).unwrap_or_default();
        until.since(now).min(self.length)
    }
}

impl<M: StateMachine> Server<M> {
    /// Returns the time for which this server may still answer; zero if it may not.
    pub(super) fn lease_left(&self, now: MonoNs) -> DurationNs {
        let Some(config) = &self.config else {
            return DurationNs(0);
        };
        if planted(Bug::NoLease) {
            return self.params.lease;
        }
        // The controller's grant alone is enough, and is nearly always there.
        assert!(
            self.lease.length == self.params.lease && config.lease == self.params.lease,
            "all parts of a cluster mean the same by a lease"
        );
        let by_controller = self.lease.controller.unwrap_or_default().since(now);
        if by_controller.0 > self.params.lease.0 / 2 {
            return by_controller.min(self.params.lease);
        }
        let peers: Vec<ServerId> = config
            .lives()
            .into_iter()
            .map(|(server, _)| server)
            .filter(|server| *server != self.me())
            .collect();
        self.lease.left(now, config.lease_majority(), &peers)
    }

    pub(super) fn ping(&mut self, now: MonoNs) {
        self.lease.next_ping = now.after(DurationNs(self.params.lease.0 / PINGS));
        let life = self.params.life;
        if !self.is_member() {
            self.ask_to_join(0);
            return;
        }
        let Some(config) = self.config.clone() else {
            return;
        };
        let number = config.number;
        let quiet = self.lease.quiet(now, &config);
        let ping = Message::Control(Control::Ping(Ping {
            life,
            number,
            sent: now,
            quiet,
            unheard: now.since(self.lease.heard),
        }));
        self.send(Destination::Controller, ping.clone());
        for (server, _) in config.lives() {
            if server != self.me() {
                let to = Endpoint {
                    server,
                    shard: life.endpoint.shard,
                };
                self.send(Destination::Server(to), ping.clone());
            }
        }
        let copied = self.join.as_ref().is_some_and(super::join::Join::is_done);
        let on_disk = copied && self.persist.as_mut().is_none_or(|it| it.is_done(number));
        if on_disk || planted(Bug::SyncedTooEarly) {
            let synced = Message::Control(Control::Synced(life, number));
            self.send(Destination::Controller, synced);
        }
    }

    pub(super) fn handle_ping(&mut self, now: MonoNs, back: Destination, ping: Ping) {
        let Some(config) = &self.config else { return };
        let Ping {
            life: from,
            number,
            sent,
            ..
        } = ping;
        let me = self.me();
        if number == config.number && config.has(from.endpoint.server, from.incarnation) {
            let granted = ping.hears(config.lease);
            if granted {
                self.lease.gave(now, from);
            }
            let from = if granted { sent } else { MonoNs(0) };
            self.send(
                back,
                Message::Control(Control::Pong(Some(me), number, from)),
            );
        } else if number < config.number {
            // The other server has missed a change, and perhaps receives nothing from the
            // controller.
            let told = Message::Control(Control::Config(std::sync::Arc::clone(config)));
            self.send(back, told);
        }
    }
}
