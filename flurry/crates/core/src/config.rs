//! Who holds what: members, placement, levels.

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

/// Which replies an operation waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The first correct one.
    First,
    /// Correct ones of a majority.
    Quorum,
    /// Correct ones of all.
    All,
    /// One replica is asked; the others when it has not answered after this long.
    Hedge(DurationNs),
    /// First, hedge or one alone, as the router's measurements say.
    Auto,
    /// Correct ones of a majority, each from a server that has what it tells on its disk.
    Disk,
}

impl Level {
    /// True if a write at this level has several copies when it is acknowledged.
    #[must_use]
    pub const fn promises_copies(self) -> bool {
        matches!(self, Self::Quorum | Self::All | Self::Disk)
    }

    /// How many of `replicas` replies are needed.
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

/// More than half.
#[must_use]
pub fn majority(of: usize) -> usize {
    of / 2 + 1
}

/// All records that a life of a server had, as they are on its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SavedLife {
    /// Which life.
    pub life: Incarnation,
    /// Up to when, by the server's wall clock.
    pub through: WallNs,
}

/// What a server's disk held when it asked to join.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Disk {
    /// The life that took part for good, as far as is known there.
    pub current: Option<SavedLife>,
    /// A later one. Whether that takes part for good was not known yet: the earlier one may be who the
    /// others count.
    pub next: Option<SavedLife>,
    /// Whoever runs the server says that what was there before is gone for good: nobody shall wait.
    pub lost: bool,
}

impl Disk {
    /// Up to when it holds all records of a life.
    #[must_use]
    pub fn through(&self, life: Incarnation) -> Option<WallNs> {
        let mut both = self.current.iter().chain(&self.next);
        both.find(|it| it.life == life).map(|it| it.through)
    }

    /// Whether it holds all records of a life, up to some moment.
    #[must_use]
    pub fn holds(&self, life: Incarnation) -> bool {
        self.through(life).is_some()
    }
}

/// A disk that ends by so much before another one has missed what the other may have forgotten since.
pub const DISK_LAG_MAX: DurationNs = DurationNs::millis(60_000);

/// A data server in a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Member {
    /// Its place.
    pub server: ServerId,
    /// The life that holds the data.
    pub incarnation: Incarnation,
    /// `host:port` of each shard; empty where messages are not sent over a network.
    pub addresses: Vec<String>,
    /// It was lost: its lease ran out, or a new life proved the old one dead.
    pub gone: bool,
    /// It keeps its records on a disk too.
    pub disk: Option<Disk>,
}

/// A configuration. While the members change, `next` has those after the change: operations then
/// satisfy their level in both sets, and only the old one may answer for what was never copied.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Config {
    /// Its number.
    pub number: ConfigNumber,
    /// Copies of each key.
    pub replicas: u8,
    /// Threads of each server.
    pub shards: u8,
    /// How long a server may answer on its own after it was last allowed to. The same in every
    /// configuration of a cluster: servers that go by an earlier one would rely on another.
    pub lease: DurationNs,
    /// The members, by server.
    pub members: Vec<Member>,
    /// The members after the change that is going on.
    pub next: Option<Vec<Member>>,
    /// The configuration in which a server was last lost together with what it held.
    pub last_loss: ConfigNumber,
    /// The same of when so many were lost, one after another, that a majority's copies of some key may
    /// be gone.
    pub last_majority_loss: ConfigNumber,
    /// The same of when all that held some key may have been lost together.
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
    /// Its life: what another life of it had is not there any more.
    pub incarnation: Incarnation,
    /// It counts for the old set.
    pub old: bool,
    /// It counts for the new set.
    pub new: bool,
}

/// The servers of one key: small, so on the stack.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplicaSet {
    replicas: [Option<Replica>; 2 * REPLICAS_MAX],
    len: usize,
}

impl ReplicaSet {
    /// The servers, in the order of preference for this key.
    pub fn iter(&self) -> impl Iterator<Item = Replica> + '_ {
        self.replicas[..self.len].iter().flatten().copied()
    }

    /// How many servers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Nobody holds the key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The server's part in it.
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

    /// The same, of a key's hash.
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

    /// Whether some life of the server is still named that was lost.
    pub(crate) fn has_gone(&self, server: ServerId) -> bool {
        let mut named = self.everybody().filter(|it| it.server == server);
        named.any(|it| it.gone)
    }

    /// The life of a server that this configuration counts: that of the new set where both have one.
    #[must_use]
    pub fn incarnation_of(&self, server: ServerId) -> Option<Incarnation> {
        self.everybody()
            .filter(|member| member.server == server && !member.gone)
            .map(|member| member.incarnation)
            .last()
    }

    /// Whether this life of the server takes part.
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

    /// Lives that take part, each once.
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

    /// How many servers must agree that one of them may go on without the controller.
    #[must_use]
    pub fn lease_majority(&self) -> usize {
        majority(self.lives().len())
    }

    /// Whether all old members that held some key may have been lost.
    #[must_use]
    pub fn is_wiped(&self) -> bool {
        let gone = self.members.iter().filter(|member| member.gone).count();
        gone >= self.members.len().min(usize::from(self.replicas))
    }

    /// How many servers held a key when the change began, those counted that are gone.
    #[must_use]
    pub fn copies(&self) -> usize {
        self.members.len().min(usize::from(self.replicas))
    }

    /// Whether a server held the key and is gone with so many others that those who are left are fewer
    /// than a majority: what a majority had may be on disks alone.
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

    /// Whether something may be on the disks of members that are gone, and nowhere else.
    #[must_use]
    pub fn needs_disks(&self) -> bool {
        let copies = self.copies();
        let gone = self.members.iter().filter(|member| member.gone);
        let kept = gone.clone().any(|member| member.disk.is_some());
        kept && self.next.is_some() && gone.count() + majority(copies) > copies
    }

    /// Up to when the disk of a member that is gone has what it had, if it has come back.
    fn disk_back(&self, member: &Member) -> Option<WallNs> {
        let next = self.next.iter().flatten();
        let mut disks = next.filter(|it| it.server == member.server);
        disks.find_map(|it| it.disk)?.through(member.incarnation)
    }

    /// Whether a disk that ends then is not late beside those that have come back: what a late one has
    /// may have been deleted since, and the deletion forgotten.
    #[must_use]
    pub fn is_in_time(&self, through: WallNs) -> bool {
        self.lag(through) <= DISK_LAG_MAX
    }

    /// How long before the newest disk that has come back a disk ends.
    fn lag(&self, through: WallNs) -> DurationNs {
        let gone = self.members.iter().filter(|member| member.gone);
        let latest = gone.filter_map(|member| self.disk_back(member)).max();
        let latest = latest.unwrap_or(through);
        let behind = latest.0.saturating_sub(through.0);
        DurationNs(u64::try_from(behind).unwrap_or(0))
    }

    /// Returns the servers whose disks have come back and are waited for all the same, since they end
    /// too long before the newest one, and by how much. The servers stopped at different times, or a
    /// clock was wrong.
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

    /// Old members that are gone, and whose disk has not come back: while they are as many as a majority
    /// of copies, those counted whose disks are lost, something may be on their disks alone.
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

    /// Where a shard of a server listens.
    #[must_use]
    pub fn address_of(&self, to: Endpoint) -> Option<&str> {
        self.everybody()
            .filter(|member| member.server == to.server && !member.gone)
            .last()?
            .addresses
            .get(usize::from(to.shard.0))
            .map(String::as_str)
    }

    /// Whether this life holds the key, with everything that was ever written of it.
    #[must_use]
    pub fn holds_fully(&self, server: ServerId, incarnation: Incarnation, hash: u64) -> bool {
        self.chosen(&self.members, hash).any(|member| {
            let life = member.incarnation == incarnation || planted(Bug::NoIncarnationCheck);
            member.server == server && life && !member.gone
        })
    }

    /// Whether this life shall hold the key after the change.
    #[must_use]
    pub fn will_hold(&self, server: ServerId, incarnation: Incarnation, hash: u64) -> bool {
        let members = self.next.as_deref().unwrap_or(&self.members);
        self.chosen(members, hash)
            .any(|member| member.server == server && member.incarnation == incarnation)
    }
}

/// The weight of a server for a key: a mix of both in which every bit counts (`MurmurHash3`'s finaliser).
fn weight(hash: u64, server: ServerId) -> u64 {
    let mut mixed = hash ^ (u64::from(server.0) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^= mixed >> 33;
    mixed = mixed.wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^= mixed >> 33;
    mixed = mixed.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ (mixed >> 33)
}
