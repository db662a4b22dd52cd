//! The requests of servers to join the cluster.
//!
//! A delayed message may come from an incarnation that has ended, and believing it would count out
//! the incarnation that lives. So the controller sends a number to each server that asks to join.
//! It admits only the same incarnation with the same number.

use std::collections::BTreeSet;

use super::Controller;
use crate::bugs::{Bug, planted};
use crate::config::{ADDRESS_BYTES_MAX, MEMBERS_MAX, Member};
use crate::id::{MonoNs, ServerId};
use crate::message::Control;

/// Returns whether the address fits a configuration, and needs no escape in the JSON of the status.
fn is_address(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
    text.len() <= ADDRESS_BYTES_MAX && text.bytes().all(plain)
}

/// Returns the machine of a member: its first address without the port, or nothing if it has none.
pub(super) fn machine(member: &Member) -> &str {
    let address = member.addresses.first().map_or("", String::as_str);
    address.rsplit_once(':').map_or(address, |it| it.0)
}

impl Controller {
    pub(super) fn join(&mut self, now: MonoNs, sender: u64, member: Member, proof: u64) {
        if let Some(config) = self.config.clone()
            && config.has(member.server, member.incarnation)
        {
            self.reply(sender, Control::Config(config));
            return;
        }
        // A server that asks to join is not lost, even if its message says so.
        if member.gone {
            return;
        }
        if let Some(reason) = self.refusal_to_join(now, &member) {
            self.reply(sender, Control::JoinRefused(member.server, reason));
            return;
        }
        if !self.has_proved(&member, proof) {
            self.ask(now, sender, &member);
            return;
        }
        self.asked.remove(&member.server);
        // The new incarnation has the address of the earlier one, so the earlier one has ended. On
        // another machine a silent incarnation may go on, so the controller waits for its leases to
        // end.
        let here = machine(&member);
        for (life, retiring) in &mut self.retiring {
            let other = life.incarnation != member.incarnation;
            let same = here == retiring.machine || retiring.machine.is_empty();
            if life.endpoint.server == member.server && other && same {
                retiring.ended.get_or_insert(now);
            }
        }
        self.joining.insert(member.server, (member, now));
        assert!(
            self.joining.len() <= MEMBERS_MAX,
            "a configuration takes all that ask"
        );
    }

    /// Returns why a server cannot join as it is; `None` if it can. The text goes to its log, so it
    /// has nothing of the server's own message but numbers.
    fn refusal_to_join(&self, now: MonoNs, member: &Member) -> Option<String> {
        let number = member.server.0;
        let shards = usize::from(self.shards());
        let own = member.addresses.len();
        if own != 0 && own != shards {
            return Some(format!(
                "it has {own} shards, and each server of this cluster has {shards}; hint: --shards {shards}"
            ));
        }
        if !member.addresses.iter().all(|text| is_address(text)) {
            return Some("its addresses are too long, or not plain text".to_owned());
        }
        // The highest server number stands for the controller in a grant of a lease.
        if member.server == ServerId(u16::MAX) {
            return Some("its number stands for the controller; hint: a lower one".to_owned());
        }
        if self.drained.contains(&member.server) && !planted(Bug::DrainedComesBack) {
            return Some(format!(
                "an operator drained it; hint: flurry drain {number} --cancel lets it in again"
            ));
        }
        if !self.has_room(member.server) {
            return Some(format!(
                "the cluster has {MEMBERS_MAX} servers, and can have no more"
            ));
        }
        let address = self.twin(now, member)?;
        Some(format!(
            "another server has this number, at {address}, so this one waits until that is silent; hint: give each server a number of its own"
        ))
    }

    /// Returns the address of a live server with the same number on another machine. On the same
    /// machine the new server proves that the other has ended, since both could not have the same
    /// address.
    fn twin(&self, now: MonoNs, member: &Member) -> Option<String> {
        let elsewhere = |it: &&Member| it.server == member.server && machine(it) != machine(member);
        let config = self.config.as_ref()?;
        let mut present = config.everybody().filter(elsewhere);
        let twin = present.find(|it| !it.gone && !self.is_silent(now, config, it))?;
        twin.addresses.first().cloned()
    }

    /// Returns whether the incarnation has answered the controller's question, and so is alive.
    fn has_proved(&self, member: &Member, proof: u64) -> bool {
        let waits = self.joining.get(&member.server);
        waits.is_some_and(|(waits, _)| waits.incarnation == member.incarnation)
            || self.asked.get(&member.server) == Some(&(member.incarnation, proof))
    }

    /// Asks an incarnation whether it is alive. The question stays the same until another
    /// incarnation of the server asks to join.
    fn ask(&mut self, now: MonoNs, sender: u64, member: &Member) {
        let life = member.incarnation;
        let number = match self.asked.get(&member.server) {
            Some((asked, number)) if *asked == life => *number,
            _ => now.0.max(1),
        };
        if self.asked.len() >= MEMBERS_MAX {
            // The server whose question is dropped will ask again.
            self.asked.pop_first();
        }
        assert!(
            number > 0 && self.asked.len() < MEMBERS_MAX,
            "0 proves nothing, and strangers make nobody remember more than a cluster has"
        );
        self.asked.insert(member.server, (life, number));
        self.reply(sender, Control::Prove(life, number));
    }

    /// Returns whether a configuration has room for this server, besides its members and the
    /// servers that ask to join. A server that comes back takes its own place.
    fn has_room(&self, server: ServerId) -> bool {
        let members = self.config.iter().flat_map(|config| config.everybody());
        let mut servers: BTreeSet<ServerId> = members.map(|member| member.server).collect();
        servers.extend(self.joining.keys());
        servers.insert(server);
        servers.len() <= MEMBERS_MAX
    }
}
