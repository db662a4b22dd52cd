//! The latency of callers on virtual time, while one server of three has a fault.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in a test a failure is the finding"
)]

use std::collections::BTreeMap;

use bytes::Bytes;
use flurry_core::config::Level;
use flurry_core::id::{DurationNs, WallNs};
use flurry_core::key_value::Operation;
use flurry_core::portal::{Event, Outcome, Submission};
use flurry_sim::scenario::Scenario;
use flurry_sim::world::{Effect, NodeId, World};

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const LEASE: u64 = 1_000 * MS;

/// Time between two operations, whatever the outcome of the earlier ones.
const PERIOD: u64 = 200 * US;
const LASTS: u64 = 8_000 * MS;
const KEYS: u64 = 6;

/// Numbers of calls: the next operation, and the next turn of the fault.
const ASK: u64 = 0;
const TURN: u64 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    None,
    /// Its process has ended.
    Dead,
    /// It stands still for 600 ms every other second: shorter than a lease.
    Stalled,
    /// It stands still for two leases, once.
    StalledForLong,
    /// It stands still for half of the time, 5 ms at once.
    Slow,
}

/// Measurements of the callers.
struct Seen {
    took_ns: Vec<u64>,
    /// The longest time without an answer.
    silence_ns: u64,
    /// Number of operations without an answer.
    failed: usize,
}

impl Seen {
    /// The latency that 999 of 1,000 operations do not exceed.
    fn p999_ns(&self) -> u64 {
        let mut sorted = self.took_ns.clone();
        sorted.sort_unstable();
        sorted[sorted.len() * 999 / 1_000]
    }
}

/// Returns a quiet cluster: callers wait only for the network and for the fault of one server.
fn scenario() -> Scenario {
    Scenario {
        servers: 3,
        replicas: 3,
        shards: 1,
        controllers: 1,
        routers: 0,
        sessions: 1,
        loss: 0,
        duplicates: 0,
        damage: 0,
        slow: 0,
        drift: 0,
        delay_min: 100 * US,
        delay_spread: 10 * US,
        lease: LEASE,
        memory_bytes_max: 1 << 24,
        backlog_bytes_max: 1 << 24,
        evict: false,
        disk: false,
        moves: false,
        catastrophe: false,
        stalls: false,
        suspends: false,
        operator: false,
        several_copies: false,
        wrong_clocks: false,
        standbys: false,
        spare_servers: 0,
        troubles: [false; 6],
        ..Scenario::of(1)
    }
}

struct Callers {
    world: World,
    owner: NodeId,
    level: Level,
    asked: BTreeMap<u64, u64>,
    seen: Seen,
    last_answer: u64,
}

impl Callers {
    fn open(seed: u64, level: Level) -> Self {
        let mut world = World::new(seed, scenario());
        let owner = world.add_place();
        world.start_portal(owner, "calls", owner, false, DurationNs(0));
        let opened = |effect: &Effect| matches!(effect, Effect::Told(_, Event::Opened(..)));
        while !world.step().unwrap().iter().any(opened) {}
        let last_answer = world.now;
        Self {
            world,
            owner,
            level,
            asked: BTreeMap::new(),
            seen: Seen {
                took_ns: Vec::new(),
                silence_ns: 0,
                failed: 0,
            },
            last_answer,
        }
    }

    fn ask(&mut self, number: u64) {
        let key = Bytes::from(format!("k{}", number % KEYS));
        let operation = if (number / KEYS).is_multiple_of(2) {
            Operation::set(Bytes::from(number.to_string()))
        } else {
            Operation::Get
        };
        let submission = Submission {
            key,
            operation: operation.encode(),
            access: operation.access(),
            level: self.level,
            at: WallNs(i64::try_from(self.world.now).unwrap()),
            timeout: DurationNs(2_000 * MS),
            sequence: None,
            refuses_doubt: false,
        };
        let submitted = self
            .world
            .with_portal(self.owner, |portal, now| portal.submit(now, submission));
        let (submitted, effects) = submitted.unwrap();
        match submitted {
            Ok(number) => drop(self.asked.insert(number, self.world.now)),
            Err(_) => self.seen.failed += 1,
        }
        for effect in effects {
            self.hear(effect);
        }
    }

    fn hear(&mut self, effect: Effect) {
        let Effect::Told(_, Event::Answered(number, outcome)) = effect else {
            return;
        };
        let now = self.world.now;
        let asked = self.asked.remove(&number).unwrap();
        if !matches!(outcome, Outcome::Done { .. }) {
            self.seen.failed += 1;
            return;
        }
        self.seen.took_ns.push(now - asked);
        self.seen.silence_ns = self.seen.silence_ns.max(now - self.last_answer);
        self.last_answer = now;
    }

    fn turn(&mut self, trouble: Trouble, turn: u64) {
        let place = self.world.places_of(2)[0];
        let (stands, again) = match trouble {
            Trouble::None => return,
            Trouble::Dead => return self.world.kill(place),
            Trouble::Stalled => (600 * MS, Some(2_000 * MS)),
            Trouble::StalledForLong => (2 * LEASE, None),
            Trouble::Slow => (5 * MS, Some(10 * MS)),
        };
        let node = &mut self.world.nodes[place];
        node.paused_until = self.world.now + stands;
        node.troubled_until = node.paused_until;
        if let Some(again) = again {
            self.world.call_at(self.world.now + again, TURN + turn + 1);
        }
    }
}

/// Runs callers while the third server has its fault.
fn seen(seed: u64, level: Level, trouble: Trouble) -> Seen {
    let mut callers = Callers::open(seed, level);
    let (start, mut number) = (callers.world.now, 0);
    callers.last_answer = start;
    callers.world.call_at(start, ASK);
    callers.world.call_at(start + 1_000 * MS, TURN);
    while callers.world.now < start + LASTS {
        for effect in callers.world.step().unwrap() {
            match effect {
                Effect::Call(ASK) => {
                    callers.ask(number);
                    number += 1;
                    callers.world.call_at(start + number * PERIOD, ASK);
                }
                Effect::Call(turn) => callers.turn(trouble, turn - TURN),
                told => callers.hear(told),
            }
        }
        assert_eq!(callers.world.violation, None, "{trouble:?}");
    }
    callers.seen
}

const TROUBLES: [Trouble; 4] = [
    Trouble::Dead,
    Trouble::Stalled,
    Trouble::StalledForLong,
    Trouble::Slow,
];

#[test]
fn at_first_trouble_of_one_server_does_not_reach_the_tail() {
    for seed in 1..=3 {
        let quiet = seen(seed, Level::First, Trouble::None).p999_ns();
        for trouble in TROUBLES {
            let seen = seen(seed, Level::First, trouble);
            let ratio = seen.p999_ns() as f64 / quiet as f64;
            assert!(
                ratio <= 1.2,
                "seed {seed}, {trouble:?}: {ratio:.2} of {quiet} ns"
            );
            assert_eq!(seen.failed, 0, "seed {seed}, {trouble:?}");
        }
    }
}

#[test]
fn at_quorum_trouble_of_one_server_is_no_silence_longer_than_a_lease() {
    for seed in 1..=3 {
        for trouble in TROUBLES {
            let seen = seen(seed, Level::Quorum, trouble);
            let silence_ms = seen.silence_ns / MS;
            assert!(
                seen.silence_ns < LEASE,
                "seed {seed}, {trouble:?}: {silence_ms} ms"
            );
            assert_eq!(seen.failed, 0, "seed {seed}, {trouble:?}");
        }
    }
}

#[test]
fn an_owner_that_waits_for_all_would_be_noticed() {
    let quiet = seen(1, Level::All, Trouble::None).p999_ns();
    // It cannot even keep up.
    let slow = seen(1, Level::All, Trouble::Slow).p999_ns();
    assert!(slow > 5 * quiet, "{slow} ns, {quiet} ns without trouble");
    let stalled = seen(1, Level::All, Trouble::StalledForLong);
    assert!(stalled.silence_ns > LEASE / 2, "{} ns", stalled.silence_ns);
}
