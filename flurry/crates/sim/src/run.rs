//! The run of one seed: a phase in which anything may go wrong and no result may be wrong, and a
//! phase in which nothing goes wrong any more and the cluster must recover.

use std::collections::{BTreeMap, BTreeSet};

use flurry_core::id::{DurationNs, Epoch, Key, MonoNs, SessionId};
use flurry_core::message::State;

use crate::operator;
use crate::scenario::{MS, Scenario};
use crate::trouble;
use crate::workload::Workload;
use crate::world::{Effect, Machine, World};

/// Longest virtual time of the first phase.
const SAFETY_MAX: u64 = 40_000 * MS;

/// Virtual time in which the cluster must recover.
const LIVENESS_MAX: u64 = 60_000 * MS;

/// Most steps of a phase: finds a loop that does not end.
const STEPS_MAX: u64 = 40_000_000;

/// Totals of a seed's run.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Operations answered.
    pub answered: u64,
    /// Answers checked against the oracle.
    pub checked: u64,
    /// Messages delivered.
    pub delivered: u64,
    /// Virtual time.
    pub virtual_time: DurationNs,
    /// Hash of the trace.
    pub hash: u64,
    /// Number of times that owners received each outcome.
    pub outcomes: BTreeMap<&'static str, u64>,
}

/// An event that must never happen.
#[derive(Debug, Clone)]
pub struct Violation {
    /// Seed.
    pub seed: u64,
    /// Virtual time.
    pub at: MonoNs,
    /// Description.
    pub what: String,
}

/// Runs a seed.
///
/// # Errors
///
/// [`Violation`] when an owner received a wrong result, or the cluster did not recover.
pub fn run(seed: u64, operations: u64) -> Result<Summary, Box<Violation>> {
    run_traced(seed, operations, false)
}

/// Runs a seed, and writes every message to standard error if asked to.
///
/// # Errors
///
/// [`Violation`] as [`run`].
pub fn run_traced(seed: u64, operations: u64, trace: bool) -> Result<Summary, Box<Violation>> {
    let scenario = Scenario::of(seed);
    let mut world = World::new(seed, scenario);
    world.trace = trace;
    let mut workload = Workload::new(&mut world, operations);
    trouble::begin(&mut world);
    let mut steps = 0;
    while !workload.is_done() && world.now < SAFETY_MAX && world.violation.is_none() {
        if !step(&mut world, &mut workload) || steps > STEPS_MAX {
            break;
        }
        steps += 1;
    }
    check(seed, &world)?;
    // The faults end; after a while without them, owners read everything again.
    trouble::end(&mut world);
    workload.stop_asking();
    let calm = world.now + 2_000 * MS;
    while world.now < calm && world.violation.is_none() && step(&mut world, &mut workload) {}
    trouble::give_up_disks(&mut world);
    let tight = world.scenario.memory_bytes_max < 1 << 20;
    if !tight {
        become_quiet(&mut world, &mut workload);
        nobody_is_in_doubt(&mut world, &mut workload);
        repairs_end(&mut world, &mut workload);
        nothing_dead_is_kept(&mut world);
    }
    workload.finish(&mut world);
    let end = world.now + LIVENESS_MAX;
    steps = 0;
    while world.violation.is_none() && !workload.is_settled(&world) {
        if world.now > end || steps > STEPS_MAX {
            if !tight {
                if world.trace {
                    world.say_controllers();
                }
                let what = workload.unsettled(&world);
                world.violate(format!("I15: not settled after the troubles:{what}"));
            }
            break;
        }
        if !step(&mut world, &mut workload) {
            world.violate("I15: nothing is left to happen".to_owned());
        }
        steps += 1;
    }
    if !tight && world.violation.is_none() {
        repairs_end(&mut world, &mut workload);
        compare_replicas(&mut world);
    }
    world.close_logs();
    check(seed, &world)?;
    Ok(Summary {
        answered: workload.answered,
        checked: workload.checked(),
        delivered: world.delivered,
        virtual_time: DurationNs(world.now),
        hash: world.hash(),
        outcomes: workload.outcomes,
    })
}

fn check(seed: u64, world: &World) -> Result<(), Box<Violation>> {
    match &world.violation {
        None => Ok(()),
        Some(what) => Err(Box::new(Violation {
            seed,
            at: MonoNs(world.now),
            what: what.clone(),
        })),
    }
}

fn step(world: &mut World, workload: &mut Workload) -> bool {
    let Some(effects) = world.step() else {
        return false;
    };
    for effect in effects {
        match effect {
            Effect::Told(..) => workload.effects(world, vec![effect]),
            Effect::Call(call) if call >= operator::FIRST => operator::call(world, call),
            Effect::Call(call) if call >= trouble::NEXT => trouble::call(world, workload, call),
            Effect::Call(call) => workload.tick(world, usize::try_from(call).unwrap_or(0)),
        }
    }
    true
}

/// Checks I15: operations under way end by themselves, without another operation that would carry
/// the news.
fn become_quiet(world: &mut World, workload: &mut Workload) {
    let end = world.now + LIVENESS_MAX;
    while world.violation.is_none() && !workload.is_quiet(world) {
        if world.now > end || !step(world, workload) {
            let what = workload.unsettled(world);
            world.violate(format!("I15: not quiet after the troubles:{what}"));
        }
    }
}

/// Checks I21: some time after a loss, the writes of an owner that lives are on every replica, and
/// its successor will not be in doubt of them.
fn nobody_is_in_doubt(world: &mut World, workload: &mut Workload) {
    let end = world.now + LIVENESS_MAX;
    while world.violation.is_none() {
        let owned: BTreeSet<(SessionId, Epoch)> = world
            .nodes
            .iter()
            .filter_map(|node| match &node.machine {
                // An owner that lost a write has not outlived everything.
                Machine::Portal(portal, _) if portal.is_open() && !portal.has_lost_a_write() => {
                    Some(portal.owned())
                }
                _ => None,
            })
            .flatten()
            .map(|it| (it.session, it.epoch))
            .collect();
        // Without a controller nobody decides.
        let in_doubt = world.controller().map_or(1, |controller| {
            let all = controller.sessions_in_doubt();
            all.filter(|it| owned.contains(it)).count()
        });
        if world.trace && in_doubt > 0 {
            world.say_controllers();
        }
        if in_doubt == 0 || world.all_lost {
            return;
        }
        if world.now > end || !step(world, workload) {
            world.violate(format!(
                "I21: {in_doubt} sessions are in doubt of a loss that their owners have outlived"
            ));
        }
    }
}

/// Checks I17: a deletion that, as far as a server knows, every replica has takes no memory there.
fn nothing_dead_is_kept(world: &mut World) {
    let kept: Vec<_> = world
        .servers()
        .filter(|server| server.config().is_some_and(|it| it.next.is_none()))
        .filter(|server| server.keeps_what_is_dead())
        .map(|server| (server.life(), server.tombstones()))
        .collect();
    if !kept.is_empty() && world.violation.is_none() {
        world.violate(format!(
            "I17: deletions that are everywhere are kept: {kept:?}"
        ));
    }
}

/// Checks that messages between servers end, copying in small parts included.
fn repairs_end(world: &mut World, workload: &mut Workload) {
    let (mut soon, end) = (world.now + 500 * MS, world.now + LIVENESS_MAX);
    let changing = |world: &World| {
        let mut configs = world.servers().filter_map(|it| it.config());
        configs.any(|config| config.next.is_some())
    };
    while world.now < soon.min(end) && world.violation.is_none() {
        if !step(world, workload) {
            break;
        }
        // A server works off its backlog at its next ping.
        if changing(world) {
            soon = soon.max(world.now + world.scenario.lease);
        }
    }
}

/// Checks I15, that all replicas of a key hold the same, and I12, that they hold no deleted key.
fn compare_replicas(world: &mut World) {
    let mut held: BTreeMap<Key, Vec<(u16, State)>> = BTreeMap::new();
    let mut config = None;
    let mut numbers = BTreeSet::new();
    let mut members = BTreeSet::new();
    for server in world.servers() {
        if !server.is_member() {
            continue;
        }
        let Some(known) = server.config() else {
            continue;
        };
        numbers.insert(known.number);
        config = Some(std::sync::Arc::clone(known));
        members.insert(server.life().endpoint.server.0);
        for (key, state) in server.states() {
            let id = server.life().endpoint.server.0;
            held.entry(key).or_default().push((id, state));
        }
    }
    let Some(config) = config else {
        world.violate("I15: no server takes part".to_owned());
        return;
    };
    if numbers.len() != 1 || config.next.is_some() {
        world.violate(format!(
            "I15: the configuration did not settle: {numbers:?}"
        ));
        return;
    }
    if members.len() < usize::from(world.scenario.servers) {
        world.violate(format!("I15: only servers {members:?} take part again"));
        return;
    }
    for (key, states) in held {
        let expected = config.replicas_of(&key).len();
        let live: Vec<&(u16, State)> = states
            .iter()
            .filter(|(_, state)| state.snapshot.is_some())
            .collect();
        // One server may have forgotten a deletion that another still has. A value must be
        // everywhere, and the same.
        let same = states.windows(2).all(|pair| {
            pair[0].1.snapshot == pair[1].1.snapshot && pair[0].1.version == pair[1].1.version
        });
        let all_or_none = live.is_empty() || (live.len() == expected && same);
        if !all_or_none {
            world.violate(format!("I15: the replicas of {key:?} differ: {states:?}"));
            return;
        }
    }
}
