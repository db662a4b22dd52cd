//! The members of a cluster, the placement of keys on them, and the levels of operations.

use crate::bugs::{Bug, planted};
use crate::id::{ConfigNumber, DurationNs, Endpoint, Incarnation, Key, ServerId, ShardId, WallNs};
use crate::message::Life;

/// The most members of a cluster, so that nothing derived from a configuration is unbounded.
pub const MEMBERS_MAX: usize = 64;

/// The most replicas of a key.
pub const REPLICAS_MAX: usize = 8;

/// The most shards of a server: with all members in the old set and in the new one, a configuration
/// that names where each shard listens still fits a datagram.
pub const SHARDS_MAX: usize = 16;

/// The longest address of a shard: an IPv4 address and its port.
pub const ADDRESS_BYTES_MAX: usize = 21;

// Every bound below is of something that a configuration names.
const _: () = assert!(REPLICAS_MAX <= MEMBERS_MAX, "replicas are members");
const _: () = assert!(
    SHARDS_MAX <= 1 << u8::BITS,
    "shards have a number of one byte"
);
const _: () = assert!(
    MEMBERS_MAX <= 1 << u16::BITS,
    "servers have one of two bytes"
);
const _: () = assert!(
    ADDRESS_BYTES_MAX == "255.255.255.255:65535".len(),
    "the longest address is that of the highest numbers"
);

/// The replies that an operation waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The first correct reply.
    First,
    /// Correct replies of a majority of the replicas.
    Quorum,
    /// Correct replies of all replicas.
    All,
    /// The reply of one replica. The router asks the others if it has not replied after this time.
    Hedge(DurationNs),
    /// First, or a hedge if the servers are busy. The router chooses by the reported load.
    Auto,
    /// Correct replies of a majority of the replicas. Each server replies once its disk has the
    /// key's last write.
    Disk,
}

impl Level {
    /// Returns whether a write at this level has several copies when it is acknowledged.
    #[must_use]
    pub const fn promises_copies(self) -> bool {
        matches!(self, Self::Quorum | Self::All | Self::Disk)
    }

    /// Returns how many of `replicas` replies the operation needs.
    #[must_use]
    pub fn needed(self, replicas: usize) -> usize {
        let needed = match self {
            Self::First | Self::Hedge(_) | Self::Auto => 1.min(replicas),
            Self::Quorum | Self::Disk => majority(replicas).min(replicas),
            Self::All => replicas,
        };
        assert!(needed <= replicas, "no more replies than replicas can come");
        assert!(
            !self.promises_copies() || replicas == 0 || 2 * needed > replicas,
            "two operations that promise copies meet in some replica"
        );
        needed
    }
}

/// Returns the smallest number that is more than half.
#[must_use]
pub fn majority(of: usize) -> usize {
    of / 2 + 1
}

/// An incarnation of a server whose records are all on its disk, up to some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SavedLife {
    /// The incarnation.
    pub life: Incarnation,
    /// The time up to which the disk has its records, by the server's wall clock.
    pub through: WallNs,
}

/// The content of a server's disk when the server asked to join.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Disk {
    /// The incarnation that the cluster last counted, as far as this disk knows.
    pub current: Option<SavedLife>,
    /// A later incarnation. When the disk was written, the server did not know yet whether the
    /// cluster counts this one or still the earlier one.
    pub next: Option<SavedLife>,
    /// True if the operator declares the disk's earlier content lost, so that nobody waits for it.
    pub lost: bool,
}

impl Disk {
    /// Returns the time up to which it holds all records of an incarnation.
    #[must_use]
    pub fn through(&self, life: Incarnation) -> Option<WallNs> {
        let mut both = self.current.iter().chain(&self.next);
        both.find(|it| it.life == life).map(|it| it.through)
    }

    /// Returns whether it holds all records of an incarnation up to some time.
    #[must_use]
    pub fn holds(&self, life: Incarnation) -> bool {
        self.through(life).is_some()
    }
}

/// The most by which a disk may end before the newest one. By then the servers with newer disks may
/// have forgotten deletions that the older disk has missed.
pub const DISK_LAG_MAX: DurationNs = DurationNs::millis(60_000);

/// A data server in a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Member {
    /// Its place.
    pub server: ServerId,
    /// The incarnation that holds the data.
    pub incarnation: Incarnation,
    /// `host:port` of each shard; empty where messages are not sent over a network.
    pub addresses: Vec<String>,
    /// True if it was lost: its lease ran out, or a new incarnation proved that this one has ended.
    pub gone: bool,
    /// The content of its disk, if it has one.
    pub disk: Option<Disk>,
}

/// The members of a cluster, and the changes that are going on.
///
/// While the members change, `next` holds the members after the change. Operations then satisfy
/// their level in both sets. Only the old set may answer for a record that was not copied.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Config {
    /// Its number.
    pub number: ConfigNumber,
    /// Copies of each key.
    pub replicas: u8,
    /// Threads of each server.
    pub shards: u8,
    /// The time for which a server may answer after a grant of a lease. It is the same in every
    /// configuration of a cluster, because servers with an earlier configuration rely on it.
    pub lease: DurationNs,
    /// The members, by server.
    pub members: Vec<Member>,
    /// The members after the change that is going on.
    pub next: Option<Vec<Member>>,
    /// The latest configuration that counted out a server together with its records.
    pub last_loss: ConfigNumber,
    /// The latest configuration in which a majority of the copies of some key may have been lost,
    /// counting servers that were lost one after another.
    pub last_majority_loss: ConfigNumber,
    /// The latest configuration in which all copies of some key may have been lost together.
    pub last_wipe: ConfigNumber,
}

impl Member {
    /// Returns a shard of this life of the server.
    #[must_use]
    pub fn life(&self, shard: ShardId) -> Life {
        Life {
            endpoint: Endpoint {
                server: self.server,
                shard,
            },
            incarnation: self.incarnation,
        }
    }
}

/// A server in the set of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Replica {
    /// The server.
    pub server: ServerId,
    /// Its incarnation. The records of its other incarnations are gone.
    pub incarnation: Incarnation,
    /// True if it counts for the old set.
    pub old: bool,
    /// True if it counts for the new set.
    pub new: bool,
}

/// The servers of one key: small, so on the stack.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplicaSet {
    replicas: [Option<Replica>; 2 * REPLICAS_MAX],
    len: usize,
}

impl ReplicaSet {
    /// Returns the servers, in the order of preference for this key.
    pub fn iter(&self) -> impl Iterator<Item = Replica> + '_ {
        self.replicas[..self.len].iter().flatten().copied()
    }

    /// Returns the number of servers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no server holds the key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the server's part in the set.
    #[must_use]
    pub fn find(&self, server: ServerId) -> Option<Replica> {
        self.iter().find(|replica| replica.server == server)
    }

    fn push(&mut self, replica: Replica) {
        assert!(
            self.len < self.replicas.len(),
            "the old set and the new one have at most {REPLICAS_MAX} servers each"
        );
        assert!(
            replica.old || replica.new,
            "a server in neither set holds nothing of the key"
        );
        self.replicas[self.len] = Some(replica);
        self.len += 1;
    }
}

impl Config {
    /// The shard that holds a key.
    #[must_use]
    pub fn shard_of(&self, key: &Key) -> ShardId {
        // The high bits, since tables use the low ones.
        let shard = (key.hash() >> 32) % u64::from(self.shards.max(1));
        ShardId(u8::try_from(shard).unwrap_or(0))
    }

    /// The servers of a key, by rendezvous hashing: a server that comes or goes moves only the keys
    /// that it gains or loses (Thaler and Ravishankar, 1998).
    #[must_use]
    pub fn replicas_of(&self, key: &Key) -> ReplicaSet {
        self.replicas_of_hash(key.hash())
    }

    /// Returns the servers of a key by its hash, as [`Self::replicas_of`] does.
    #[must_use]
    pub fn replicas_of_hash(&self, hash: u64) -> ReplicaSet {
        let mut set = ReplicaSet::default();
        let stable = self.next.is_none();
        for member in self.chosen(&self.members, hash) {
            if !member.gone {
                set.push(Replica {
                    server: member.server,
                    incarnation: member.incarnation,
                    old: true,
                    new: stable,
                });
            }
        }
        debug_assert!(
            set.iter().count() <= usize::from(self.replicas),
            "a key has no more copies than the cluster is meant to have"
        );
        let Some(next) = &self.next else { return set };
        for member in self.chosen(next, hash) {
            let kept = self.members.iter().any(|old| {
                old.server == member.server && old.incarnation == member.incarnation && !old.gone
            });
            let known = set.replicas[..set.len]
                .iter_mut()
                .flatten()
                .find(|replica| replica.server == member.server && kept);
            match known {
                Some(replica) => replica.new = true,
                None => set.push(Replica {
                    server: member.server,
                    incarnation: member.incarnation,
                    old: false,
                    new: true,
                }),
            }
        }
        debug_assert!(
            set.iter().filter(|it| it.new).count() <= usize::from(self.replicas),
            "nor will it have more after the change"
        );
        set
    }

    /// Checks what holds of each configuration that a controller decides on; for its own use, since
    /// anything may come over a network.
    ///
    /// # Panics
    ///
    /// When members have no order, come twice, are too many, or take part although they were lost.
    pub(crate) fn verify(&self) {
        assert!(self.number > ConfigNumber(0), "0 stands for none");
        let replicas = usize::from(self.replicas);
        assert!(
            (1..=REPLICAS_MAX).contains(&replicas),
            "{replicas} replicas"
        );
        let shards = usize::from(self.shards);
        assert!((1..=SHARDS_MAX).contains(&shards), "{shards} shards");
        assert!(self.lease > DurationNs(0), "without a lease nobody answers");
        for members in [Some(&self.members), self.next.as_ref()] {
            let members = members.map_or(&[][..], Vec::as_slice);
            assert!(members.len() <= MEMBERS_MAX, "{} members", members.len());
            assert!(
                members.is_sorted_by(|one, other| one.server < other.server),
                "each server has one place, and all parts read the places in the same order"
            );
        }
        assert!(!self.members.is_empty(), "somebody holds the keys");
        let next = self.next.as_deref();
        assert!(
            next.is_none_or(|next| !next.is_empty() && next.iter().all(|it| !it.gone)),
            "a change is to servers that live"
        );
        assert!(
            next.is_some() || self.members.iter().all(|it| !it.gone),
            "members that are lost are replaced: that is a change"
        );
        let losses = [self.last_loss, self.last_majority_loss, self.last_wipe];
        assert!(
            losses.iter().all(|it| *it <= self.number),
            "a configuration reports no later loss than itself"
        );
        assert!(
            self.last_wipe <= self.last_loss,
            "a loss of all copies is a loss of a server too"
        );
    }

    fn chosen<'a>(&self, members: &'a [Member], hash: u64) -> impl Iterator<Item = &'a Member> {
        let replicas = usize::from(self.replicas).min(REPLICAS_MAX);
        let mut ranked = [(0u64, 0usize); MEMBERS_MAX];
        let count = members.len().min(MEMBERS_MAX);
        for (index, member) in members[..count].iter().enumerate() {
            ranked[index] = (weight(hash, member.server), index);
        }
        ranked[..count].sort_unstable_by(|a, b| b.cmp(a));
        (0..count.min(replicas)).map(move |rank| &members[ranked[rank].1])
    }

    /// Returns whether the configuration still names an incarnation of the server that was lost.
    pub(crate) fn has_gone(&self, server: ServerId) -> bool {
        let mut named = self.everybody().filter(|it| it.server == server);
        named.any(|it| it.gone)
    }

    /// Returns the incarnation of a server that this configuration counts. If both sets have one,
    /// it is that of the new set.
    #[must_use]
    pub fn incarnation_of(&self, server: ServerId) -> Option<Incarnation> {
        self.everybody()
            .filter(|member| member.server == server && !member.gone)
            .map(|member| member.incarnation)
            .last()
    }

    /// Returns whether this incarnation of the server is a member.
    #[must_use]
    pub fn has(&self, server: ServerId, incarnation: Incarnation) -> bool {
        self.everybody().any(|member| {
            let life = member.incarnation == incarnation || planted(Bug::NoIncarnationCheck);
            member.server == server && life && !member.gone
        })
    }

    /// Members of the old and of the new set; those in both come twice.
    pub fn everybody(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().chain(self.next.iter().flatten())
    }

    /// Returns the incarnations that are members, each once.
    #[must_use]
    pub fn lives(&self) -> Vec<(ServerId, Incarnation)> {
        let mut lives: Vec<_> = self
            .everybody()
            .filter(|member| !member.gone)
            .map(|member| (member.server, member.incarnation))
            .collect();
        lives.sort_unstable();
        lives.dedup();
        assert!(
            lives.len() <= 2 * MEMBERS_MAX,
            "no more than the members of both sets"
        );
        lives
    }

    /// Returns how many servers must agree that one of them may go on without the controller.
    #[must_use]
    pub fn lease_majority(&self) -> usize {
        majority(self.lives().len())
    }

    /// Returns whether all old members that held some key may have been lost.
    #[must_use]
    pub fn is_wiped(&self) -> bool {
        let gone = self.members.iter().filter(|member| member.gone).count();
        gone >= self.members.len().min(usize::from(self.replicas))
    }

    /// Returns how many servers held a key when the change began, including the servers that are
    /// gone.
    #[must_use]
    pub fn copies(&self) -> usize {
        self.members.len().min(usize::from(self.replicas))
    }

    /// Returns the fewest replicas of a key that agree on an answer at level `quorum`.
    #[must_use]
    pub fn quorum(&self) -> u8 {
        let gone = self.members.iter().filter(|member| member.gone).count();
        let left = self.copies().saturating_sub(gone).max(1);
        u8::try_from(majority(left)).unwrap_or(u8::MAX)
    }

    /// Returns whether the server was an old replica of the key, and fewer than a majority of the
    /// old replicas are left. Writes that a majority acknowledged may then be on disks only.
    #[must_use]
    pub fn is_left_on_disks(&self, server: ServerId, hash: u64) -> bool {
        let (mut held, mut copies, mut left) = (false, 0, 0);
        for member in self.chosen(&self.members, hash) {
            copies += 1;
            left += usize::from(!member.gone);
            held |= member.server == server;
        }
        assert!(left <= copies, "who is left held a copy");
        held && left < majority(copies)
    }

    /// Returns whether some record may be only on the disks of members that are gone.
    #[must_use]
    pub fn needs_disks(&self) -> bool {
        let copies = self.copies();
        let gone = self.members.iter().filter(|member| member.gone);
        let kept = gone.clone().any(|member| member.disk.is_some());
        kept && self.next.is_some() && gone.count() + majority(copies) > copies
    }

    /// Returns the time up to which the disk of a lost member has its records, if it has come back.
    fn disk_back(&self, member: &Member) -> Option<WallNs> {
        let next = self.next.iter().flatten();
        let mut disks = next.filter(|it| it.server == member.server);
        disks.find_map(|it| it.disk)?.through(member.incarnation)
    }

    /// Returns whether a disk that ends at this time is recent enough beside the other disks that
    /// have come back. A late disk may hold deleted records whose deletion the other servers have
    /// forgotten.
    #[must_use]
    pub fn is_in_time(&self, through: WallNs) -> bool {
        self.lag(through) <= DISK_LAG_MAX
    }

    /// Returns how long a disk ends before the newest disk that has come back.
    fn lag(&self, through: WallNs) -> DurationNs {
        let gone = self.members.iter().filter(|member| member.gone);
        let latest = gone.filter_map(|member| self.disk_back(member)).max();
        let latest = latest.unwrap_or(through);
        let behind = latest.0.saturating_sub(through.0);
        DurationNs(u64::try_from(behind).unwrap_or(0))
    }

    /// Returns the servers whose disks have come back too old, and by how much each ends before the
    /// newest one. The cluster still waits for their disks. The servers stopped at different times,
    /// or a clock was wrong.
    #[must_use]
    pub fn disks_behind(&self) -> Vec<(ServerId, DurationNs)> {
        let missing = self.disks_missing();
        let waited = self
            .members
            .iter()
            .filter(|it| missing.contains(&it.server));
        let behind = waited.filter(|member| member.gone).filter_map(|member| {
            let lag = self.lag(self.disk_back(member)?);
            (lag > DISK_LAG_MAX).then_some((member.server, lag))
        });
        behind.collect()
    }

    /// Returns the old members that are gone and whose disks are still awaited. The list is empty
    /// unless a majority of copies, including those on lost disks, is missing: only then may a
    /// write be on the missing disks alone.
    #[must_use]
    pub fn disks_missing(&self) -> Vec<ServerId> {
        let Some(next) = self.next.as_ref().filter(|_| self.needs_disks()) else {
            return Vec::new();
        };
        let gone = self.members.iter().filter(|member| member.gone);
        let kept: Vec<&Member> = gone.filter(|member| member.disk.is_some()).collect();
        let is_lost = |member: &Member| member.disk.is_some_and(|disk| disk.lost);
        let given_up = |member: &Member| {
            let mut disks = next.iter().filter(|it| it.server == member.server);
            is_lost(member) || disks.any(is_lost)
        };
        let is_back =
            |member: &Member| self.disk_back(member).is_some_and(|it| self.is_in_time(it));
        let away: Vec<&Member> = kept.into_iter().filter(|it| !is_back(it)).collect();
        let enough = away.len() < majority(self.copies());
        if enough {
            return Vec::new();
        }
        let missing = away.into_iter().filter(|it| !given_up(it));
        missing.map(|it| it.server).collect()
    }

    /// Returns the address of a shard of a server.
    #[must_use]
    pub fn address_of(&self, to: Endpoint) -> Option<&str> {
        self.everybody()
            .filter(|member| member.server == to.server && !member.gone)
            .last()?
            .addresses
            .get(usize::from(to.shard.0))
            .map(String::as_str)
    }

    /// Returns whether this incarnation holds the key with every write to it.
    #[must_use]
    pub fn holds_fully(&self, server: ServerId, incarnation: Incarnation, hash: u64) -> bool {
        self.chosen(&self.members, hash).any(|member| {
            let life = member.incarnation == incarnation || planted(Bug::NoIncarnationCheck);
            member.server == server && life && !member.gone
        })
    }

    /// Returns whether this incarnation holds the key after the change.
    #[must_use]
    pub fn will_hold(&self, server: ServerId, incarnation: Incarnation, hash: u64) -> bool {
        let members = self.next.as_deref().unwrap_or(&self.members);
        self.chosen(members, hash)
            .any(|member| member.server == server && member.incarnation == incarnation)
    }
}

/// Returns the weight of a server for a key, a mix of both in which every bit counts (the finaliser
/// of `MurmurHash3`).
fn weight(hash: u64, server: ServerId) -> u64 {
    let mut mixed = hash ^ (u64::from(server.0) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^= mixed >> 33;
    mixed = mixed.wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^= mixed >> 33;
    mixed = mixed.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ (mixed >> 33)
}
