//! Records which gateway serves which slots, and answers the questions of cluster clients about it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use flurry_core::resp::{Reply, error};

use super::slots::{PART_SLOTS, SLOTS, are_parts, parts_of, slot_of};
use crate::Error;

/// A gateway as clients know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayPlace {
    /// Where clients reach it.
    pub address: SocketAddr,
    /// The slots that it serves, in whole parts of 256. Two gateways with the same slots stand in
    /// for each other.
    pub slots: RangeInclusive<u16>,
}

impl GatewayPlace {
    /// Returns a gateway that serves all slots.
    #[must_use]
    pub fn of_all(address: SocketAddr) -> Self {
        Self {
            address,
            slots: 0..=SLOTS - 1,
        }
    }

    /// Checks that its slots are whole parts.
    pub(super) fn check(&self) -> Result<(), Error> {
        if are_parts(&self.slots) {
            return Ok(());
        }
        let (first, last) = (self.slots.start(), self.slots.end());
        Err(Error::Refused {
            reason: format!(
                "slots: they are {first}-{last}; wanted whole parts of {PART_SLOTS} slots; hint: 0-8191 and 8192-16383"
            ),
        })
    }

    /// Returns an identifier of 40 digits. It stays the same while address and slots stay the same.
    pub(super) fn id(&self) -> String {
        let of = |seed: u64| {
            let (first, last) = (self.slots.start(), self.slots.end());
            let text = format!("{} slots/{first}-{last}", self.address);
            flurry_core::machine::digest(Some(format!("{seed} {text}").as_bytes()))
        };
        format!("{:016x}{:016x}{:08x}", of(0), of(1), of(2) >> 32)
    }

    fn host(&self) -> Reply {
        Reply::text(self.address.ip().to_string())
    }

    fn port(&self) -> Reply {
        Reply::Integer(i64::from(self.address.port()))
    }
}

/// A range of slots, the gateway that serves it, and those that stand in for that one.
struct Served<'a> {
    slots: RangeInclusive<u16>,
    main: &'a GatewayPlace,
    spare: Vec<&'a GatewayPlace>,
}

impl<'a> Served<'a> {
    fn new((slots, main): (RangeInclusive<u16>, &'a GatewayPlace)) -> Self {
        Self {
            slots,
            main,
            spare: Vec::new(),
        }
    }
}

/// All gateways of a cluster, as one of them sees it.
#[derive(Debug, Clone)]
pub(super) struct Cluster {
    pub(super) own: GatewayPlace,
    /// The others.
    pub(super) others: Vec<GatewayPlace>,
    epoch: u32,
    /// Parts of its own slots that another gateway serves now.
    lost: BTreeSet<u16>,
}

impl Cluster {
    pub(super) fn new(own: GatewayPlace, all: &[GatewayPlace], epoch: u32) -> Self {
        let others = all.iter().filter(|it| it.address != own.address);
        Self {
            others: others.cloned().collect(),
            own,
            epoch,
            lost: BTreeSet::new(),
        }
    }

    /// Notes that another gateway serves a part of the own slots now. `place` is the position of
    /// the part among the own parts. Returns the slots of the part.
    pub(super) fn lose(&mut self, place: usize) -> RangeInclusive<u16> {
        let part = parts_of(&self.own.slots).nth(place).unwrap_or(0);
        self.lost.insert(part);
        part * PART_SLOTS..=part * PART_SLOTS + (PART_SLOTS - 1)
    }

    fn serves(&self, slot: u16) -> bool {
        self.own.slots.contains(&slot) && !self.lost.contains(&(slot / PART_SLOTS))
    }

    /// Returns the ranges of slots that this gateway still serves.
    fn served(&self) -> Vec<RangeInclusive<u16>> {
        let parts = parts_of(&self.own.slots).filter(|it| !self.lost.contains(it));
        let mut ranges: Vec<RangeInclusive<u16>> = Vec::new();
        for part in parts {
            let (first, last) = (part * PART_SLOTS, part * PART_SLOTS + (PART_SLOTS - 1));
            match ranges.last_mut() {
                Some(range) if range.end() + 1 == first => *range = *range.start()..=last,
                _ => ranges.push(first..=last),
            }
        }
        ranges
    }

    pub(super) fn is_alone(&self) -> bool {
        self.others.is_empty()
    }

    /// Returns the redirection for a key that this gateway does not serve, or `None` if it serves
    /// the key.
    pub(super) fn elsewhere(&self, key: &[u8]) -> Option<Reply> {
        let slot = slot_of(key);
        if self.serves(slot) {
            return None;
        }
        let other = self.others.iter().find(|it| it.slots.contains(&slot));
        Some(match other {
            Some(other) => error(format!("MOVED {slot} {}", other.address)),
            // A gateway that this one does not know has taken the slot.
            None if self.own.slots.contains(&slot) => error(
                "FENCED another gateway has these slots now; hint: ask that one, or start this one with --other",
            ),
            None => error("CLUSTERDOWN Hash slot not served"),
        })
    }

    /// Returns the ranges of slots, each with the gateway that serves it and those that stand in.
    fn parts(&self) -> Vec<Served<'_>> {
        let own = self.served().into_iter().map(|slots| (slots, &self.own));
        let mut parts: Vec<Served<'_>> = own.map(Served::new).collect();
        for other in &self.others {
            let same = parts.iter_mut().find(|it| it.main.slots == other.slots);
            match same {
                Some(part) => part.spare.push(other),
                None => parts.push(Served::new((other.slots.clone(), other))),
            }
        }
        parts.sort_by_key(|it| *it.slots.start());
        parts
    }

    /// Answers `CLUSTER`.
    pub(super) fn answer(&self, words: &[bytes::Bytes]) -> Reply {
        let name = words[0].to_ascii_lowercase();
        match (name.as_slice(), &words[1..]) {
            (b"slots", []) => self.slots(),
            (b"shards", []) => self.shards(),
            (b"nodes", []) => Reply::text(self.nodes()),
            (b"info", []) => Reply::text(self.info()),
            (b"myid", []) => Reply::text(self.own.id()),
            (b"keyslot", [key]) => Reply::Integer(i64::from(slot_of(key))),
            (b"slots" | b"shards" | b"nodes" | b"info" | b"myid" | b"keyslot", _) => {
                let name = String::from_utf8_lossy(&name);
                error(format!(
                    "ERR wrong number of arguments for 'cluster|{name}' command"
                ))
            }
            _ => {
                let name = String::from_utf8_lossy(&words[0]);
                error(format!(
                    "ERR unknown subcommand '{name}'. Try CLUSTER HELP."
                ))
            }
        }
    }

    fn slots(&self) -> Reply {
        let node = |it: &GatewayPlace| {
            Reply::Array(vec![
                it.host(),
                it.port(),
                Reply::text(it.id()),
                Reply::Array(Vec::new()),
            ])
        };
        let part = |it: &Served<'_>| {
            let mut reply = vec![
                Reply::Integer(i64::from(*it.slots.start())),
                Reply::Integer(i64::from(*it.slots.end())),
                node(it.main),
            ];
            reply.extend(it.spare.iter().map(|it| node(it)));
            Reply::Array(reply)
        };
        Reply::Array(self.parts().iter().map(part).collect())
    }

    fn shards(&self) -> Reply {
        let node = |it: &GatewayPlace, role: &'static str| {
            let ip = it.address.ip().to_string();
            Reply::Map(vec![
                (Reply::text("id"), Reply::text(it.id())),
                (Reply::text("port"), it.port()),
                (Reply::text("ip"), Reply::text(ip.clone())),
                (Reply::text("endpoint"), Reply::text(ip)),
                (Reply::text("role"), Reply::text(role)),
                (Reply::text("replication-offset"), Reply::Integer(0)),
                (Reply::text("health"), Reply::text("online")),
            ])
        };
        let part = |it: &Served<'_>| {
            let ends = [*it.slots.start(), *it.slots.end()];
            let slots = ends.map(|slot| Reply::Integer(i64::from(slot)));
            let mut nodes = vec![node(it.main, "master")];
            nodes.extend(it.spare.iter().map(|it| node(it, "replica")));
            Reply::Map(vec![
                (Reply::text("slots"), Reply::Array(slots.to_vec())),
                (Reply::text("nodes"), Reply::Array(nodes)),
            ])
        };
        Reply::Array(self.parts().iter().map(part).collect())
    }

    fn nodes(&self) -> String {
        let epoch = self.epoch;
        let mut lines = String::new();
        let place = |it: &GatewayPlace| format!("{} {}@0", it.id(), it.address);
        let mut told: Vec<&GatewayPlace> = Vec::new();
        let parts = self.parts();
        for Served { main, spare, .. } in &parts {
            if told.contains(main) {
                continue;
            }
            told.push(main);
            let myself = if **main == self.own { "myself," } else { "" };
            let its = parts.iter().filter(|it| it.main == *main);
            let ranges: Vec<String> = its
                .map(|it| format!("{}-{}", it.slots.start(), it.slots.end()))
                .collect();
            lines += &format!(
                "{} {myself}master - 0 0 {epoch} connected {}\n",
                place(main),
                ranges.join(" ")
            );
            for it in spare {
                let (place, main) = (place(it), main.id());
                lines += &format!("{place} slave {main} 0 0 {epoch} connected\n");
            }
        }
        lines
    }

    fn info(&self) -> String {
        let parts = self.parts();
        let slots: usize = parts.iter().map(|it| it.slots.len()).sum();
        let state = if slots == usize::from(SLOTS) {
            "ok"
        } else {
            "fail"
        };
        let known = 1 + self.others.len();
        let (size, epoch) = (parts.len(), self.epoch);
        format!(
            "cluster_state:{state}\r\ncluster_slots_assigned:{slots}\r\ncluster_slots_ok:{slots}\r\n\
             cluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_known_nodes:{known}\r\n\
             cluster_size:{size}\r\ncluster_current_epoch:{epoch}\r\ncluster_my_epoch:{epoch}\r\n"
        )
    }
}
