//! Which gateway serves which slots, and how a client of a cluster is told.

use std::net::SocketAddr;
use std::ops::RangeInclusive;

use flurry_core::resp::{Reply, error};

use super::slots::{SLOTS, slot_of};

/// A gateway as clients know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayPlace {
    /// Where clients reach it.
    pub address: SocketAddr,
    /// The slots that it serves; two that serve the same stand in for each other.
    pub slots: RangeInclusive<u16>,
}

impl GatewayPlace {
    /// One that serves everything.
    #[must_use]
    pub fn of_all(address: SocketAddr) -> Self {
        Self {
            address,
            slots: 0..=SLOTS - 1,
        }
    }

    /// The session that holds its keys.
    #[must_use]
    pub fn session(&self) -> String {
        let (first, last) = (self.slots.start(), self.slots.end());
        format!("{}{first}-{last}", flurry_core::controller::SLOTS)
    }

    /// 40 digits, the same as long as it serves the same at the same place.
    pub(super) fn id(&self) -> String {
        let of = |seed: u64| {
            let text = format!("{} {}", self.address, self.session());
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

/// All gateways, and which of them this is.
#[derive(Debug, Clone)]
pub(super) struct Cluster {
    pub(super) own: GatewayPlace,
    /// The others.
    pub(super) others: Vec<GatewayPlace>,
    epoch: u32,
    serves_all: bool,
}

impl Cluster {
    pub(super) fn new(own: GatewayPlace, all: &[GatewayPlace], epoch: u32) -> Self {
        let others = all.iter().filter(|it| it.address != own.address);
        Self {
            others: others.cloned().collect(),
            serves_all: own.slots == (0..=SLOTS - 1),
            own,
            epoch,
        }
    }

    pub(super) fn is_alone(&self) -> bool {
        self.others.is_empty()
    }

    /// Where to go with a key that is not served here.
    pub(super) fn elsewhere(&self, key: &[u8]) -> Option<Reply> {
        if self.serves_all {
            return None;
        }
        let slot = slot_of(key);
        if self.own.slots.contains(&slot) {
            return None;
        }
        let other = self.others.iter().find(|it| it.slots.contains(&slot));
        Some(match other {
            Some(other) => error(format!("MOVED {slot} {}", other.address)),
            None => error("CLUSTERDOWN Hash slot not served"),
        })
    }

    /// Whoever serves slots of its own, and who stands in for it.
    fn parts(&self) -> Vec<(&GatewayPlace, Vec<&GatewayPlace>)> {
        let mut parts: Vec<(&GatewayPlace, Vec<&GatewayPlace>)> = vec![(&self.own, Vec::new())];
        for other in &self.others {
            let same = parts.iter_mut().find(|(it, _)| it.slots == other.slots);
            match same {
                Some((_, spare)) => spare.push(other),
                None => parts.push((other, Vec::new())),
            }
        }
        parts.sort_by_key(|(it, _)| *it.slots.start());
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
        let part = |(main, spare): &(&GatewayPlace, Vec<&GatewayPlace>)| {
            let (first, last) = (*main.slots.start(), *main.slots.end());
            let mut reply = vec![
                Reply::Integer(i64::from(first)),
                Reply::Integer(i64::from(last)),
                node(main),
            ];
            reply.extend(spare.iter().map(|it| node(it)));
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
        let part = |(main, spare): &(&GatewayPlace, Vec<&GatewayPlace>)| {
            let (first, last) = (*main.slots.start(), *main.slots.end());
            let slots = [first, last].map(|slot| Reply::Integer(i64::from(slot)));
            let mut nodes = vec![node(main, "master")];
            nodes.extend(spare.iter().map(|it| node(it, "replica")));
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
        for (main, spare) in self.parts() {
            let myself = |it: &GatewayPlace| if *it == self.own { "myself," } else { "" };
            let (first, last) = (main.slots.start(), main.slots.end());
            let place = |it: &GatewayPlace| format!("{} {}@0", it.id(), it.address);
            lines += &format!(
                "{} {}master - 0 0 {epoch} connected {first}-{last}\n",
                place(main),
                myself(main)
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
        let slots: usize = parts.iter().map(|(it, _)| it.slots.len()).sum();
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
