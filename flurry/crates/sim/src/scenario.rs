//! What a seed stands for: a cluster, a network, a workload, and what goes wrong.

use crate::dice::Dice;

/// A millisecond of virtual time.
pub const MS: u64 = 1_000_000;

/// A cluster and its troubles. Chances are in millionths, times in nanoseconds.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Data servers.
    pub servers: u8,
    /// Copies of each key.
    pub replicas: u8,
    /// Threads of each server.
    pub shards: u8,
    /// Controllers; several are a group of which one leads.
    pub controllers: u8,
    /// Routers that are processes of their own; 0 is one inside each portal.
    pub routers: u8,
    /// Sessions.
    pub sessions: u8,
    /// Keys of each session, or keys in use at a time where they are used once.
    pub keys: u64,
    /// Keys are used for a while and never again, as those of carts and calls are.
    pub fresh_keys: bool,
    /// The controller stands still now and then, and so does the last server that has everything.
    pub stalls: bool,
    /// Servers end for good or are switched off, and an operator takes them out and puts others in.
    pub operator: bool,
    /// The clocks of owners are wrong by up to two seconds, each by another time.
    pub wrong_clocks: bool,
    /// Sessions that each owner spreads its keys over.
    pub parts: u8,
    /// Half of the new owners are standbys, which wait until the owner before has closed or is
    /// silent.
    pub standbys: bool,
    /// Owners notify a caller of a doubt before they do anything for it that rests on the key's
    /// value, as gateways do.
    pub tells_first: bool,
    /// Owners promise several copies of each write, and use only levels that have them.
    pub several_copies: bool,
    /// Bytes that an owner holds at most of operations which are not on every server.
    pub backlog_bytes_max: usize,
    /// Machines are suspended now and then, and their clocks stand still meanwhile.
    pub suspends: bool,
    /// Operations that a session has under way.
    pub depth: u64,
    /// Of a message.
    pub loss: u64,
    /// Of a message.
    pub duplicates: u64,
    /// Of a message.
    pub damage: u64,
    /// Least time under way.
    pub delay_min: u64,
    /// Usual spread of it.
    pub delay_spread: u64,
    /// That a message takes a hundred times as long.
    pub slow: u64,
    /// Mean time between troubles of any kind.
    pub trouble_every: u64,
    /// Which troubles: pause, crash, partition, owner, controller, router.
    pub troubles: [bool; 6],
    /// Every replica may forget at once; then losses may be reported.
    pub catastrophe: bool,
    /// Memory of a server; small ones refuse or evict.
    pub memory_bytes_max: usize,
    /// At the memory limit: evict.
    pub evict: bool,
    /// Length of a lease.
    pub lease: u64,
    /// How much clocks may run apart, in millionths.
    pub drift: u64,
    /// A server is added or taken away on purpose now and then.
    pub spare_servers: u8,
    /// A restarted server listens elsewhere: whoever goes by an older configuration reaches nobody.
    pub moves: bool,
    /// How large the parts are in which a server copies.
    pub part_bytes_max: usize,
    /// Servers keep their records on disks, and all of them may end at once.
    pub disk: bool,
}

impl Scenario {
    /// The scenario of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut dice = Dice::new(seed ^ 0x5ce0_a410);
        let servers = *dice.pick(&[3, 3, 3, 4, 5]);
        let calm = dice.chance(150_000);
        let lossy = *dice.pick(&[0, 1_000, 10_000, 50_000, 150_000, 300_000]);
        let tight = dice.chance(80_000);
        let mut scenario = Self {
            servers,
            replicas: if dice.chance(120_000) { 2 } else { 3 },
            shards: if dice.chance(100_000) { 2 } else { 1 },
            controllers: if seed % 8 == 6 { 3 } else { 1 },
            routers: u8::try_from(dice.below(4)).unwrap_or(0),
            sessions: u8::try_from(dice.between(1, 8)).unwrap_or(1),
            keys: dice.between(1, 8),
            fresh_keys: false,
            stalls: false,
            operator: false,
            wrong_clocks: seed % 8 == 5,
            parts: if matches!(seed % 16, 9 | 10 | 12) {
                3
            } else {
                1
            },
            standbys: seed % 8 == 3,
            suspends: seed % 8 == 5,
            tells_first: seed.is_multiple_of(3),
            several_copies: seed % 8 == 1,
            backlog_bytes_max: if seed % 16 == 2 { 200 } else { 1 << 24 },
            depth: dice.between(1, 6),
            loss: if calm { 0 } else { lossy },
            duplicates: if calm {
                0
            } else {
                *dice.pick(&[0, 1_000, 30_000])
            },
            damage: if calm { 0 } else { *dice.pick(&[0, 0, 2_000]) },
            delay_min: dice.between(10_000, 200_000),
            delay_spread: *dice.pick(&[10_000, 300_000, 2 * MS]),
            slow: if calm {
                0
            } else {
                *dice.pick(&[0, 1_000, 20_000])
            },
            trouble_every: *dice.pick(&[30 * MS, 100 * MS, 400 * MS]),
            troubles: std::array::from_fn(|_| !calm && dice.chance(500_000)),
            catastrophe: dice.chance(60_000),
            memory_bytes_max: if tight { 2_000 } else { 1 << 24 },
            evict: tight && dice.chance(500_000),
            lease: 200 * MS,
            drift: *dice.pick(&[0, 1_000, 20_000]),
            spare_servers: u8::from(dice.chance(250_000)),
            moves: dice.chance(500_000),
            // All that a small cluster has fits one usual part.
            part_bytes_max: *dice.pick(&[32 << 10, 32 << 10, 60, 400]),
            disk: !tight && dice.chance(250_000),
        };
        // Also where little else happens: the rest must not notice that another controller leads.
        scenario.troubles[4] |= scenario.controllers > 1;
        // Every fourth seed. Without disks: which of them speak after stalls of several servers one after
        // another is not settled yet (flurry/docs/testing.md).
        if seed.is_multiple_of(4) && !tight {
            scenario.fresh_keys = dice.chance(700_000);
            scenario.stalls = true;
            scenario.disk = false;
        }
        if seed % 8 == 7 && !tight {
            scenario.operator = true;
            // The oracle does not count how many disks are gone by now.
            scenario.disk = false;
            scenario.spare_servers = 2;
            scenario.troubles[1] = true;
            scenario.catastrophe = dice.chance(200_000);
        }
        scenario
    }
}
