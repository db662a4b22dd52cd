//! Servers that an operator takes out of the cluster.
//!
//! A server is *removed* when its memory and its disk are gone for good. Only the operator can know
//! that, because to the other parts a dead machine looks like one that is cut off. So the
//! controller believes the operator, and waits neither for the incarnation nor for its disk. The
//! records that only this server had are lost, and the owners of the sessions are notified as after
//! any loss.
//!
//! A server is *drained* when it is to be switched off. It goes on serving until other servers hold
//! all its records. It is not admitted again until the operator takes the drain back.

use super::Controller;
use crate::bugs::{Bug, planted};
use crate::config::{Config, Member, majority};
use crate::id::{MonoNs, ServerId};
use crate::message::{Control, Departure};

impl Controller {
    /// Carries out an operator's command for a server, or replies why not.
    pub(super) fn depart(
        &mut self,
        now: MonoNs,
        sender: u64,
        server: ServerId,
        departure: Departure,
    ) {
        let refusal = self.refusal(now, server, departure);
        if refusal.is_empty() {
            match departure {
                Departure::Removed => self.remove(now, server),
                Departure::Drained => self.drain(server),
                Departure::TakenBack => {
                    self.drained.remove(&server);
                }
            }
            self.persist();
        }
        let heard = Control::DepartHeard(server, departure, refusal);
        self.reply(sender, heard);
    }

    fn remove(&mut self, now: MonoNs, server: ServerId) {
        let Some(config) = self.config.clone() else {
            return;
        };
        let lives = config.everybody().filter(|it| it.server == server);
        self.removed
            .extend(lives.map(|it| (it.server, it.incarnation)));
        self.joining.remove(&server);
        for (life, retiring) in &mut self.retiring {
            if life.endpoint.server == server && !planted(Bug::RemovedWaitedFor) {
                retiring.ended.get_or_insert(now);
            }
        }
    }

    fn drain(&mut self, server: ServerId) {
        assert!(
            self.config.is_some(),
            "only a member is drained: what copies its records is a change"
        );
        self.drained.insert(server);
        self.joining.remove(&server);
    }

    /// Returns the reason why an operator's command is refused; empty if it is accepted.
    fn refusal(&self, now: MonoNs, server: ServerId, departure: Departure) -> String {
        let number = server.0;
        let Some(config) = &self.config else {
            return "the cluster has not begun: it waits for its first servers".to_owned();
        };
        let known = config.everybody().any(|it| it.server == server);
        let up = self.is_up(now, config, server);
        match departure {
            Departure::TakenBack if self.drained.contains(&server) => String::new(),
            Departure::TakenBack => {
                format!("server {number} is not drained; hint: flurry status")
            }
            // The operator repeats the command, because the answer may have been lost.
            Departure::Drained if self.drained.contains(&server) => String::new(),
            // It may have been counted out between two commands of an operator who removes several.
            Departure::Removed if !known && self.left.contains(&server) => String::new(),
            Departure::Removed if !known && !self.waits_out(server) => {
                format!("server {number} is not in the cluster; hint: flurry status")
            }
            Departure::Drained if !known => {
                format!("server {number} is not in the cluster; hint: flurry status")
            }
            Departure::Removed if up => format!(
                "server {number} is up; hint: flurry drain {number}, or end its process first"
            ),
            Departure::Drained if !up => format!(
                "server {number} is silent, so the others cannot copy its records; hint: start it, or flurry remove {number} if it is gone for good"
            ),
            Departure::Drained if !self.can_spare(config, server) => format!(
                "without server {number} there would be fewer than {} copies of a key, and writes at quorum would be refused; hint: add a server first",
                self.copies_min()
            ),
            Departure::Removed | Departure::Drained => String::new(),
        }
    }

    fn copies_min(&self) -> usize {
        majority(usize::from(self.replicas()))
    }

    /// Returns whether the controller still waits for an incarnation that has left the
    /// configuration.
    fn waits_out(&self, server: ServerId) -> bool {
        let mut lives = self.retiring.keys();
        lives.any(|life| life.endpoint.server == server)
    }

    /// Returns whether an incarnation of the server has reported lately, was just admitted, or asks
    /// to join.
    fn is_up(&self, now: MonoNs, config: &Config, server: ServerId) -> bool {
        let mut lives = config
            .everybody()
            .filter(|it| it.server == server && !it.gone);
        self.joining.contains_key(&server) || lives.any(|it| !self.is_silent(now, config, it))
    }

    /// Returns whether enough servers are left without this one and the drained ones.
    fn can_spare(&self, config: &Config, server: ServerId) -> bool {
        let stays =
            |it: &&Member| !it.gone && it.server != server && !self.drained.contains(&it.server);
        let after = config.next.as_ref().unwrap_or(&config.members);
        after.iter().filter(stays).count() >= self.copies_min()
    }

    /// Returns whether the operator declared this incarnation gone for good.
    pub(super) fn is_removed(&self, member: &Member) -> bool {
        self.removed.contains(&(member.server, member.incarnation))
            && !planted(Bug::RemovedWaitedFor)
    }

    /// Takes drained servers out of the next members, as far as enough others are left.
    pub(super) fn without_drained(&self, next: &mut Vec<Member>) -> bool {
        let stays = |it: &Member| !self.drained.contains(&it.server);
        let left = next.iter().filter(|it| stays(it)).count();
        if left == next.len() || left < self.copies_min() {
            return false;
        }
        next.retain(stays);
        assert!(!next.is_empty(), "a drain leaves somebody to copy to");
        true
    }

    /// Forgets removed incarnations that nothing names any more.
    pub(super) fn forget_removed(&mut self) {
        let config = self.config.clone();
        let retiring = &self.retiring;
        self.removed.retain(|(server, incarnation)| {
            let mut members = config.iter().flat_map(|it| it.everybody());
            members.any(|it| it.server == *server && it.incarnation == *incarnation)
                || retiring
                    .keys()
                    .any(|life| life.endpoint.server == *server && life.incarnation == *incarnation)
        });
    }
}
