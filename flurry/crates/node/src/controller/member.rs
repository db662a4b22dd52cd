//! A controller that keeps its state in memory or in its directory, alone or in a group.

use std::net::{SocketAddr, SocketAddrV4};

use flurry_core::consensus::{ConsensusParams, MemberId};
use flurry_core::controller::{ControllerParams, Group, Replica, ReplicaOutput};
use flurry_core::id::{DurationNs, MonoNs};
use flurry_core::message::{Control, Message};
use tracing::{info, warn};

use super::disk::Disk;
use super::told::{self, ChangeLog};
use super::{ControllerOptions, refused, send};
use crate::link::{Letter, Link};
use crate::metrics::{Page, count};
use crate::node::Part;
use crate::security::Security;
use crate::{Error, LEASE, random};

/// A state travels in parts that fit a datagram.
const PART_BYTES_MAX: usize = 48 << 10;

/// Silence of a leader after which the group elects another one. A standby gateway waits about as
/// long for the gateway that it replaces.
const SILENCE: DurationNs = DurationNs::millis(300);

/// Time without a leader after which a member logs a warning that names the silent members.
const LEADERLESS: DurationNs = DurationNs(5_000_000_000);

#[derive(Debug)]
pub(super) struct Member {
    replica: Replica,
    /// `None` keeps the state in memory.
    disk: Option<Disk>,
    /// The members of the group, itself among them.
    group: Vec<(MemberId, SocketAddrV4)>,
    security: Security,
    log: ChangeLog,
    /// Since when it knows of no leader.
    leaderless_since: MonoNs,
}

/// The number of a controller in its group: all members derive the same from its address.
fn member_id(address: SocketAddrV4) -> MemberId {
    MemberId(crc32c::crc32c(address.to_string().as_bytes()))
}

/// The group's members with their numbers, in the order of their addresses.
fn members(
    own: SocketAddrV4,
    options: &ControllerOptions,
) -> Result<Vec<(MemberId, SocketAddrV4)>, Error> {
    let mut all = Vec::new();
    for address in &options.group {
        all.push(options.security.allow(*address)?);
    }
    if all.is_empty() {
        all.push(own);
    }
    all.sort_unstable();
    all.dedup();
    if !all.contains(&own) {
        return Err(group_refused(
            &options.group,
            &format!("{own} is not among them"),
        ));
    }
    if all.len() == 2 {
        let problem = "two agree only while both run, so that each makes the other weaker";
        return Err(group_refused(&options.group, problem));
    }
    let numbered: Vec<_> = all.into_iter().map(|it| (member_id(it), it)).collect();
    for (index, (id, address)) in numbered.iter().enumerate() {
        if let Some((_, other)) = numbered[..index].iter().find(|it| it.0 == *id) {
            let problem = format!("{other} and {address} have the same number by chance");
            return Err(group_refused(&options.group, &problem));
        }
    }
    Ok(numbered)
}

fn group_refused(group: &[SocketAddr], problem: &str) -> Error {
    let all: Vec<String> = group.iter().map(SocketAddr::to_string).collect();
    Error::Address {
        text: all.join(","),
        problem: problem.to_owned(),
        wanted: "the addresses of all controllers of the group, three for example, its own among them",
        hint: "give each controller the same --controllers, and its own --listen",
    }
}

impl Member {
    pub(super) fn open(
        now: MonoNs,
        options: &ControllerOptions,
        own: SocketAddrV4,
        params: ControllerParams,
        disk: Option<(Disk, Option<Vec<u8>>)>,
    ) -> Result<Self, Error> {
        let members = members(own, options)?;
        let group = Group {
            consensus: ConsensusParams {
                me: member_id(own),
                members: members.iter().map(|it| it.0).collect(),
                silence: SILENCE,
                seed: u64::from_le_bytes(random::bytes()?),
                part_bytes_max: PART_BYTES_MAX,
            },
            addresses: members.iter().map(|it| it.1.to_string()).collect(),
        };
        let (disk, found) = disk.unzip();
        let found = found.flatten();
        let replica = Replica::new(now, params, group, found.as_deref()).map_err(refused)?;
        Ok(Self {
            replica,
            disk,
            group: members,
            security: options.security.clone(),
            log: ChangeLog::default(),
            leaderless_since: now,
        })
    }

    fn address_of(&self, member: MemberId) -> Option<SocketAddrV4> {
        let found = self.group.iter().find(|it| it.0 == member);
        found.map(|it| it.1)
    }

    /// Says which controllers are missing where nobody can lead.
    fn warn_without_leader(&mut self, now: MonoNs) {
        let known = self.replica.consensus().knows_leader(now, LEASE);
        if known || self.group.len() == 1 {
            self.leaderless_since = now;
        }
        if now.since(self.leaderless_since) < LEADERLESS {
            return;
        }
        self.leaderless_since = now;
        let silent = self.replica.consensus().silent(now, LEADERLESS);
        let silent: Vec<String> = silent
            .filter_map(|it| self.address_of(it))
            .map(|it| it.to_string())
            .collect();
        let silent = silent.join(", ");
        if self.replica.consensus().is_empty() {
            warn!(
                silent,
                "no controller leads: a new group begins when all of its controllers run"
            );
        } else {
            warn!(silent, "no controller leads: a majority of them must run");
        }
    }
}

impl Part for Member {
    fn message(&mut self, now: MonoNs, letter: Letter) {
        let Letter { from, message, .. } = letter;
        let between = matches!(message, Message::Control(Control::Consensus(..)));
        if between && !self.group.iter().any(|it| it.1 == from.address) {
            return;
        }
        self.replica.handle_message(now, from.token(), message);
    }

    fn report(&self, page: &mut Page) {
        let is_sure = self.replica.consensus().is_leader(crate::clock::now());
        let leading = self.replica.controller().filter(|_| is_sure);
        told::report(page, leading);
        page.gauge(
            ("flurry_controllers", "Controllers of the group."),
            &[],
            count(self.group.len()),
        );
    }

    fn clock_jumped(&mut self, now: MonoNs) {
        self.replica.clock_jumped(now);
    }

    fn timeout(&mut self, now: MonoNs) {
        self.replica.handle_timeout(now);
        self.warn_without_leader(now);
    }

    fn due(&self) -> MonoNs {
        self.replica.poll_timeout()
    }

    /// Whatever woke it may have been its disk.
    fn serve(&mut self, now: MonoNs, _clients: bool, link: &mut Link) -> Result<usize, Error> {
        let mut writes = 0;
        while let Some(written) = self.disk.as_ref().and_then(Disk::take_written) {
            written?;
            writes += 1;
            self.replica.persisted(now);
            self.carry_out(now, link)?;
        }
        Ok(writes)
    }

    /// The others need not wait for its silence.
    fn ended(&mut self, now: MonoNs, link: &mut Link) -> Result<(), Error> {
        self.replica.resign(now);
        self.carry_out(now, link)
    }

    fn carry_out(&mut self, now: MonoNs, link: &mut Link) -> Result<(), Error> {
        while let Some(output) = self.replica.poll_output(now).map_err(refused)? {
            match output {
                ReplicaOutput::Persist(bytes) => match &self.disk {
                    Some(disk) => disk.write(bytes),
                    None => self.replica.persisted(now),
                },
                ReplicaOutput::Send(to, message) => send(to, &message, &self.security, link),
                ReplicaOutput::Tell(to, message) => {
                    if let Some(address) = self.address_of(to) {
                        link.send(link.to(address), &message);
                    }
                }
                ReplicaOutput::Elected if self.group.len() > 1 => info!("it leads"),
                ReplicaOutput::Deposed => warn!("it does not lead any more: others may"),
                ReplicaOutput::Elected => {}
            }
        }
        self.log.look(self.replica.controller());
        Ok(())
    }
}
