//! Changing the members without losing an acknowledged write.
//!
//! A change is two configurations. In the first, the old and the new members both take writes, and
//! the new ones copy the records that they are to hold. In the second, only the new ones remain.
//! The second one follows when every member goes by the first and has copied its part.
//!
//! The controller counts out a silent server at once. Owners that do not know this yet may still
//! get answers from the server while it has a lease: the server is *retiring*. The controller
//! answers no opening meanwhile, unless the earlier owner needs answers of more servers than may
//! still give them. The server is retired one lease after the last grant that anybody
//! gave it. Once a member goes by a configuration without the server, it grants it no lease any
//! more. It then reports how long ago its last grant was. The controller never counts out so many
//! servers together that they could grant each other leases, unless new incarnations prove that
//! they have ended.
//!
//! The controller does not count out a silent server that may be the last to have some key: the
//! cluster waits for it. No write can have been acknowledged without it, so nothing is lost if it
//! comes back. If another server took its place, everything would be lost. Only a new incarnation
//! of it, or an operator, declares it gone.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use super::{AGAIN, Controller, Retiring, Seen, joining};
use crate::bugs::{Bug, planted};
use crate::config::{Config, Member, majority};
use crate::id::{ConfigNumber, DurationNs, Endpoint, MonoNs, ServerId, ShardId};
use crate::message::{Control, Life, Ping};

/// The divisor for the tolerated difference of clock rates: an eighth, far more than real clocks
/// differ.
const DRIFT_SHARE: u64 = 8;

impl Controller {
    pub(super) fn ping(&mut self, now: MonoNs, sender: u64, ping: Ping) {
        let Ping {
            life,
            number,
            sent,
            quiet,
            ..
        } = ping;
        let Some(config) = self.config.clone() else {
            return;
        };
        let member = config.has(life.endpoint.server, life.incarnation);
        if !member || number < config.number {
            self.reply(sender, Control::Config(Arc::clone(&config)));
        }
        if !member {
            return;
        }
        if !ping.hears(config.lease) {
            // The server receives no messages, so it counts as silent. It asks again when it
            // receives this pong.
            self.reply(sender, Control::Pong(None, number, MonoNs(0)));
            return;
        }
        let seen = self.seen.entry(life).or_insert(Seen {
            number,
            heard: now,
            synced: ConfigNumber(0),
            granted: now,
        });
        seen.heard = now;
        // The server's clock may run faster than this one.
        let quiet = quiet.0 - quiet.0 / DRIFT_SHARE;
        let granted = MonoNs(now.0.saturating_sub(quiet));
        if number > seen.number {
            seen.granted = granted;
        } else if number == seen.number {
            seen.granted = seen.granted.min(granted);
        }
        seen.number = seen.number.max(number);
        if number == config.number {
            self.reply(sender, Control::Pong(None, number, sent));
        }
    }

    /// Advances the first configuration, a change of the members and the openings as far as
    /// possible.
    pub(super) fn progress(&mut self, now: MonoNs) {
        let timeout = DurationNs(4 * self.lease().0);
        self.joining
            .retain(|_, (_, heard)| now.since(*heard) <= timeout);
        if self.config.is_none() {
            self.first_config(now);
            return;
        }
        self.wait_out(now);
        self.forget_removed();
        self.propose(now);
        self.commit(now);
        self.finish_openings();
    }

    /// Decides on the first configuration when enough servers ask to join.
    fn first_config(&mut self, now: MonoNs) {
        if self.joining.len() < usize::from(self.params.servers_min) {
            return;
        }
        let members = std::mem::take(&mut self.joining)
            .into_values()
            .map(|(member, _)| member)
            .collect();
        let config = Config {
            number: ConfigNumber(1),
            replicas: self.params.replicas,
            shards: self.params.shards,
            lease: self.params.lease,
            members,
            next: None,
            last_loss: ConfigNumber(0),
            last_majority_loss: ConfigNumber(0),
            last_wipe: ConfigNumber(0),
        };
        self.decide(now, config);
    }

    /// Makes a configuration the current one, stores it, and sends it to the members.
    fn decide(&mut self, now: MonoNs, config: Config) {
        config.verify();
        if let Some(before) = self.config.take() {
            assert_eq!(
                before.number.0 + 1,
                config.number.0,
                "configurations are counted: nobody could order two of one number"
            );
            assert_eq!(
                (before.replicas, before.shards, before.lease),
                (config.replicas, config.shards, config.lease),
                "what parts rely on by an earlier configuration stays as it is"
            );
            assert!(
                before.next.is_some() || before.members.len() == config.members.len(),
                "members change in two steps"
            );
            self.retire_left_out(now, &before, &config);
        }
        self.majority_min = self.majority_min.min(config.lease_majority());
        self.quorum_min = self.quorum_min.min(config.quorum());
        self.note_quorum(config.quorum());
        self.config = Some(Arc::new(config));
        self.decided = now;
        self.agreed = None;
        self.persist();
        self.tell_config();
    }

    /// Notes the incarnations of a configuration that the next one leaves out.
    fn retire_left_out(&mut self, now: MonoNs, before: &Config, config: &Config) {
        let kept = config.lives();
        let is_kept = |server: ServerId| kept.iter().any(|it| it.0 == server);
        assert!(
            !kept.is_empty(),
            "somebody takes part in each configuration"
        );
        let before_it = before.everybody().map(|it| it.server);
        self.left.extend(before_it);
        self.left.retain(|it| !is_kept(*it));
        for life in self.lives_of(before) {
            let (server, incarnation) = (life.endpoint.server, life.incarnation);
            if kept.contains(&(server, incarnation)) {
                continue;
            }
            let mut members = before.everybody();
            let own = members.find(|it| it.server == server && it.incarnation == incarnation);
            let machine = own.map_or("", joining::machine).to_owned();
            let joins = self.joining.get(&server).map(|(member, _)| member);
            let present = config
                .everybody()
                .filter(|it| it.server == server && !it.gone);
            let mut later = present.chain(joins);
            // Two incarnations on one machine cannot have the same address.
            let new_life = later.any(|it| joining::machine(it) == machine);
            let removed = self.removed.contains(&(server, incarnation));
            let ended = (new_life || removed).then_some(now);
            let granted = self.seen.get(&life).map_or(self.began, |seen| seen.heard);
            self.retiring.entry(life).or_insert(Retiring {
                machine,
                ended,
                granted,
                last_grant: None,
            });
        }
    }

    pub(super) fn lives_of(&self, config: &Config) -> Vec<Life> {
        let lives = config.lives();
        (0..config.shards)
            .flat_map(|shard| {
                lives.iter().map(move |(server, incarnation)| Life {
                    endpoint: Endpoint {
                        server: *server,
                        shard: ShardId(shard),
                    },
                    incarnation: *incarnation,
                })
            })
            .collect()
    }

    /// Sends the configuration to the members that have not adopted it.
    pub(super) fn tell_config(&mut self) {
        let Some(config) = self.config.clone() else {
            return;
        };
        for life in self.behind(&config) {
            self.notify(life, Control::Config(Arc::clone(&config)));
        }
    }

    /// Returns the incarnations that are members but have not adopted the current configuration.
    fn behind(&self, config: &Config) -> BTreeSet<Life> {
        let acknowledged = |life: &Life| {
            self.seen
                .get(life)
                .is_some_and(|seen| seen.number >= config.number)
        };
        self.lives()
            .into_iter()
            .filter(|life| !acknowledged(life))
            .collect()
    }

    /// Removes retiring servers that cannot have a lease any more.
    fn wait_out(&mut self, now: MonoNs) {
        let Some(config) = self.config.clone() else {
            return;
        };
        let agreed = self.behind(&config).is_empty();
        self.agreed = agreed.then(|| self.agreed.unwrap_or(now));
        if agreed {
            self.majority_min = config.lease_majority();
            if self.quorum_min != config.quorum() {
                self.quorum_min = config.quorum();
                self.persist();
            }
            self.note_last_grants();
        }
        let lease = self.lease().0;
        let timeout = DurationNs(lease + lease / DRIFT_SHARE);
        let over = |since: Option<MonoNs>| since.is_some_and(|at| now.since(at) > timeout);
        let before = self.retiring.len();
        self.retiring
            .retain(|_, it| !over(it.last_grant) && !over(it.ended));
        if self.retiring.len() != before {
            self.persist();
        }
        let lives = self.lives();
        self.seen.retain(|life, _| lives.contains(life));
        self.earlier.retain(|life, _| lives.contains(life));
    }

    /// Notes the last grant of a lease to each retiring server, which every member has reported by
    /// now. A later change of the members does not restart the wait.
    fn note_last_grants(&mut self) {
        let lives = self.lives();
        for (retiring, it) in &mut self.retiring {
            let server = retiring.endpoint.server;
            // The next incarnation of a server never granted a lease to an earlier one.
            let others = lives.iter().filter(|life| life.endpoint.server != server);
            let granted = others
                .filter_map(|life| self.seen.get(life))
                .map(|it| it.granted);
            let last = granted.max().unwrap_or(it.granted).max(it.granted);
            it.last_grant.get_or_insert(last);
        }
    }

    /// Returns the time of the last message of an incarnation, if there was one.
    fn heard_life(&self, life: &Life) -> Option<MonoNs> {
        let seen = self.seen.get(life).map(|seen| seen.heard);
        seen.or_else(|| self.earlier.get(life).copied())
    }

    /// Notes that this configuration is stored, so that its messages leave now.
    pub(super) fn is_sent(&mut self, now: MonoNs, number: ConfigNumber) {
        if self.unsent && self.number() == number {
            self.unsent = false;
            self.decided = now;
        }
    }

    /// Returns the time of the last message of a member, by its quietest shard.
    fn heard(&self, config: &Config, member: &Member) -> MonoNs {
        // A server that cannot know yet that it is a member does not count as silent.
        let told = if self.unsent {
            MonoNs(u64::MAX)
        } else {
            self.decided
        };
        (0..config.shards)
            .map(|shard| member.life(ShardId(shard)))
            .map(|life| self.heard_life(&life).unwrap_or(told))
            .min()
            .unwrap_or(told)
            .max(self.listening)
    }

    /// Returns the members to count out now: those that came back as another incarnation, and those
    /// that were silent for a lease. A silent member stays if the counted-out servers that may
    /// still have leases could then grant each other new ones. It also stays if it may be the last
    /// to have some key.
    fn lost(&self, now: MonoNs, config: &Config) -> Vec<Member> {
        let restarted = |member: &Member| {
            let later = self.joining.get(&member.server);
            later.is_some_and(|(it, _)| joining::machine(it) == joining::machine(member))
        };
        let silent = |member: &Member| now.since(self.heard(config, member)) > self.lease();
        let mut doubtful: BTreeSet<ServerId> = self
            .retiring
            .iter()
            .filter(|(_, retiring)| retiring.ended.is_none())
            .map(|(life, _)| life.endpoint.server)
            .collect();
        let mut lost: Vec<Member> = Vec::new();
        // Members that have ended come first, because they decide whether a silent one is the last.
        for member in config.everybody().filter(|member| !member.gone) {
            let ended = restarted(member) || self.is_removed(member);
            if ended && !lost.contains(member) {
                lost.push(member.clone());
            }
        }
        for member in config.everybody().filter(|member| !member.gone) {
            if lost.contains(member) {
                continue;
            }
            let few = doubtful.len() + usize::from(!doubtful.contains(&member.server))
                < self.majority_min;
            if silent(member) && few && !is_last(config, &lost, member) {
                doubtful.insert(member.server);
                lost.push(member.clone());
            }
        }
        lost
    }

    pub(super) fn is_silent(&self, now: MonoNs, config: &Config, member: &Member) -> bool {
        !member.gone && now.since(self.heard(config, member)) > self.lease()
    }

    /// Returns the silent members that the cluster waits for, since no other may have their
    /// records.
    fn waits_for(&self, now: MonoNs, config: &Config) -> Vec<ServerId> {
        let silent = |member: &&Member| self.is_silent(now, config, member);
        let last = |member: &&Member| is_last(config, &[], member);
        let waited = config.members.iter().filter(silent).filter(last);
        waited.map(|member| member.server).collect()
    }

    /// Counts out silent servers, and admits servers that ask to join.
    fn propose(&mut self, now: MonoNs) {
        let Some(config) = self.config.clone() else {
            return;
        };
        let lost = self.without_reviving(&config, self.lost(now, &config));
        // Servers join during another change only if that change waits for disks that they may
        // bring.
        let takes = config.next.is_none() || !config.disks_missing().is_empty();
        let joins = takes && !self.joining.is_empty();
        let drains = takes && !self.drained.is_empty();
        let waited_for = |it: &Member| it.disk.is_some_and(|disk| !disk.lost);
        let gives_up = |it: &Member| it.gone && waited_for(it) && self.is_removed(it);
        let gives_up = config.members.iter().any(gives_up);
        if lost.is_empty() && !joins && !drains && !gives_up {
            return;
        }
        let mut next: Vec<Member> = config
            .next
            .clone()
            .unwrap_or_else(|| config.members.clone());
        next.retain(|member| !member.gone && !lost.contains(member));
        if joins || next.is_empty() {
            for (server, (member, _)) in &self.joining {
                if next.iter().all(|known| known.server != *server) {
                    next.push(member.clone());
                }
            }
        }
        let drains = drains && self.without_drained(&mut next);
        let changes = joins || drains || gives_up;
        if next.is_empty() || (lost.is_empty() && (!changes || next == config.members)) {
            return;
        }
        next.sort_by_key(|member| member.server);
        let number = ConfigNumber(config.number.0 + 1);
        let mut after = Config {
            number,
            next: Some(next),
            ..(*config).clone()
        };
        self.mark_gone(&mut after.members, &lost);
        let is_full = |it: &&Member| config.members.contains(it);
        let full = lost.iter().filter(is_full).count();
        assert!(
            lost.iter().all(|it| !it.gone),
            "a server is counted out once: its copies would be lost twice"
        );
        assert!(
            after.next.iter().flatten().all(|it| !lost.contains(it)),
            "nobody who is counted out takes part"
        );
        if !planted(Bug::LossForgotten) {
            if full > 0 {
                after.last_loss = number;
            }
            if full > 0 && after.is_wiped() {
                after.last_wipe = number;
                self.note_wipe();
            }
            self.count_lost(full, lost.len() - full, config.next.is_some());
            // The loss of a server that still copies takes nothing away: the old members have
            // every write. It counts when one of those is lost as well.
            let most = majority(usize::from(config.replicas));
            if full > 0 && usize::try_from(self.lost).is_ok_and(|lost| lost >= most) {
                after.last_majority_loss = number;
            }
        }
        self.decide(now, after);
        let config = self.config.clone();
        self.joining.retain(|server, (member, _)| {
            !config.iter().any(|it| it.has(*server, member.incarnation))
        });
    }

    /// Marks members that are counted out, and disks that an operator has given up with their
    /// servers.
    pub(super) fn mark_gone(&self, members: &mut [Member], lost: &[Member]) {
        for member in members {
            member.gone |= lost.contains(member);
            let removed = self.removed.contains(&(member.server, member.incarnation));
            if let Some(disk) = &mut member.disk
                && member.gone
                && removed
                && !planted(Bug::RemovedWaitedFor)
            {
                // The disk is gone as well, so nobody waits for it.
                disk.lost = true;
            }
        }
    }

    /// Ends a change once every member goes by it and has copied its part.
    fn commit(&mut self, now: MonoNs) {
        let Some(config) = self.config.clone() else {
            return;
        };
        let Some(next) = &config.next else { return };
        if !self.behind(&config).is_empty() || next.is_empty() {
            return;
        }
        let synced = |life: &Life| {
            self.seen
                .get(life)
                .is_some_and(|seen| seen.synced == config.number)
        };
        let is_next = |life: &Life| {
            next.iter().any(|member| {
                member.server == life.endpoint.server && member.incarnation == life.incarnation
            })
        };
        if !self.lives().iter().filter(|life| is_next(life)).all(synced) {
            return;
        }
        // Some records may be only on disks that have not come back.
        if !config.disks_missing().is_empty() && !planted(Bug::DisksNotWaitedFor) {
            return;
        }
        let committed = Config {
            number: ConfigNumber(config.number.0 + 1),
            members: next.clone(),
            next: None,
            ..(*config).clone()
        };
        if self.would_revive(&config, &committed) {
            return;
        }
        self.copied(next.len());
        self.decide(now, committed);
    }

    /// Returns the status that `flurry status` shows, as JSON.
    pub(super) fn status(&self, now: MonoNs) -> String {
        let mut text = String::from("{\"members\":[");
        let config = self.config.as_deref();
        for (index, member) in config.iter().flat_map(|it| it.everybody()).enumerate() {
            let shards =
                (0..config.map_or(0, |it| it.shards)).map(|shard| member.life(ShardId(shard)));
            let heard = shards.filter_map(|life| self.heard_life(&life));
            let heard = heard.map(|at| now.since(at).0).max();
            let state = if member.gone {
                "gone"
            } else if config.is_some_and(|it| !it.members.contains(member)) {
                "joining"
            } else if self.drained.contains(&member.server) {
                "draining"
            } else if heard.is_none() && now.since(self.listening) <= self.lease() {
                // This controller has only begun to lead.
                "unheard"
            } else if heard.is_none_or(|ago| ago > self.lease().0) {
                "silent"
            } else {
                "up"
            };
            let comma = if index == 0 { "" } else { "," };
            let address = member.addresses.first().map_or("", String::as_str);
            let heard_ms =
                heard.map_or_else(|| "null".to_owned(), |ns| (ns / 1_000_000).to_string());
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "{comma}{{\"server\":{},\"incarnation\":\"{:032x}\",\"address\":\"{address}\",\"state\":\"{state}\",\"heard_ms_ago\":{heard_ms}}}",
                member.server.0, member.incarnation.0,
            );
        }
        let number = config.map_or(0, |config| config.number.0);
        let changing = config.is_some_and(|config| config.next.is_some());
        let missing = config.map(Config::disks_missing).unwrap_or_default();
        let missing: Vec<u16> = missing.into_iter().map(|server| server.0).collect();
        let behind = config.map(Config::disks_behind).unwrap_or_default();
        let behind = behind.iter().map(|(it, lag)| (it.0, lag.0 / 1_000_000));
        let behind: Vec<[u64; 2]> = behind.map(|(it, ms)| [u64::from(it), ms]).collect();
        let waits_for = config.map(|config| self.waits_for(now, config));
        let waits_for: Vec<u16> = waits_for.iter().flatten().map(|it| it.0).collect();
        let drained: Vec<u16> = self.drained.iter().map(|it| it.0).collect();
        let _ = write!(
            text,
            "],\"config\":{number},\"changing\":{changing},\"disks_missing\":{missing:?},\"disks_behind\":{behind:?},\"waits_for\":{waits_for:?},\"drained\":{drained:?},\"replicas\":{},\"waiting_servers\":{},\"wanted_servers\":{},\"sessions\":{},\"sessions_in_doubt\":{},\"again_ms\":{},\"controllers\":{},\"controllers_silent\":{:?}}}",
            self.replicas(),
            self.joining.len(),
            self.params.servers_min,
            self.sessions.len(),
            self.sessions_in_doubt().count(),
            AGAIN.0 / 1_000_000,
            self.others.count,
            self.others.silent,
        );
        text
    }
}

/// Returns whether counting out this member could leave some key without a complete replica. A
/// member with a disk has the key there, and the cluster waits for the disks of members that are
/// gone.
fn is_last(config: &Config, lost: &[Member], member: &Member) -> bool {
    if member.disk.is_some() || planted(Bug::LastCopyCountedOut) {
        return false;
    }
    let holds = |it: &&Member| !it.gone && !lost.contains(it);
    let full = config.members.iter().filter(holds);
    let (mut left, mut is_full) = (0, false);
    for it in full {
        left += 1;
        is_full |= it == member;
    }
    let gone = config.members.len() - left;
    is_full && gone + 1 >= config.copies()
}
