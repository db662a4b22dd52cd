//! The faults, and when they happen.

use flurry_core::config::majority;
use flurry_core::id::ServerId;

use crate::operator;
use crate::scenario::MS;
use crate::workload::Workload;
use crate::world::{Machine, NodeId, World};

/// Numbers of the faults' calls; sessions have the numbers below.
pub const NEXT: u64 = 1 << 32;
const RESTART_SERVER: u64 = 1 << 33;
const RESTART_CONTROLLER: u64 = 1 << 34;
const RESTART_ROUTER: u64 = 1 << 35;
const START_SPARE: u64 = 1 << 36;
const CRASH_OWNER: u64 = 1 << 37;
const STALL: u64 = 1 << 38;

/// Index of the faults of owners.
const OWNERS: usize = 3;

/// Schedules the first fault.
pub fn begin(world: &mut World) {
    let every = world.scenario.trouble_every;
    let first = world.dice.between(every / 2, 2 * every);
    world.call_at(world.now + first, NEXT);
    if world.scenario.spare_servers > 0 {
        let at = world.dice.between(100 * MS, 3_000 * MS);
        world.call_at(at, START_SPARE);
    }
}

/// Carries out a scheduled call.
pub fn call(world: &mut World, workload: &mut Workload, call: u64) {
    if call & RESTART_SERVER != 0 {
        let server = u16::try_from(call & 0xffff).unwrap_or(0);
        if is_down(world, server) && !world.gone.contains(&server) {
            world.start_server(server);
        }
    } else if call & RESTART_CONTROLLER != 0 {
        let place = usize::try_from(call & 0xffff).unwrap_or(0);
        if matches!(world.nodes[place].machine, Machine::Down) {
            world.start_controller(place);
        }
    } else if call & RESTART_ROUTER != 0 {
        let place = usize::try_from(call & 0xffff).unwrap_or(0);
        if matches!(world.nodes[place].machine, Machine::Down) {
            world.start_router(place);
        }
    } else if call & START_SPARE != 0 {
        let spare = u16::from(world.scenario.servers);
        if !world.healed && is_down(world, spare) && !world.scenario.operator {
            world.start_server(spare);
        }
    } else if call & CRASH_OWNER != 0 {
        let index = usize::try_from(call & 0xffff).unwrap_or(0);
        if !world.healed {
            workload.crash_owner(world, index);
        }
    } else if call & STALL != 0 {
        let until = world.now + (call >> 16 & 0xffff) * MS;
        let server = u16::try_from(call & 0xffff).unwrap_or(0);
        for place in world.places_of(server) {
            if !world.healed {
                stop(world, place, until);
            }
        }
    } else if call == NEXT && !world.healed {
        trouble(world, workload);
        let every = world.scenario.trouble_every;
        let next = world.dice.between(every / 2, 2 * every);
        world.call_at(world.now + next, NEXT);
    }
}

fn is_down(world: &World, server: u16) -> bool {
    world
        .places_of(server)
        .iter()
        .all(|place| matches!(world.nodes[*place].machine, Machine::Down))
}

fn trouble(world: &mut World, workload: &mut Workload) {
    let kind = usize::try_from(world.dice.below(6)).unwrap_or(0);
    if !world.scenario.troubles[kind] {
        return;
    }
    match kind {
        0 => pause(world),
        1 => crash_server(world),
        2 => partition(world),
        OWNERS => workload.change_owner(world),
        4 => controller(world),
        _ => crash_router(world),
    }
}

/// Stalls or ends a controller: in a group any one, and most often the leading one.
fn controller(world: &mut World) {
    let places = world.controllers().to_vec();
    let place = match (world.leading_place(), places.as_slice()) {
        (_, [only]) => *only,
        (Some(leads), _) if world.dice.chance(600_000) => leads,
        _ => *world.dice.pick(&places),
    };
    if world.scenario.stalls && world.dice.chance(500_000) {
        let until = world.now + world.dice.between(1, 1_500) * MS;
        return stop(world, place, until);
    }
    world.kill(place);
    if places.len() > 1 && world.dice.chance(100_000) {
        world.lose_controller_disk(place);
    }
    let down = world.dice.between(1, 800) * MS;
    world.call_at(world.now + down, RESTART_CONTROLLER | place as u64);
}

/// Now and then ends an owner at the worst moment: its last answered write may be on one server
/// only.
pub fn perhaps_crash_owner(world: &mut World, index: usize) {
    if world.scenario.troubles[OWNERS] && !world.healed && world.dice.chance(3_000) {
        world.call_at(world.now, CRASH_OWNER | index as u64);
    }
}

/// Stops a process for a while; it goes on as if nothing had happened.
fn pause(world: &mut World) {
    let place = usize::try_from(world.dice.below(world.nodes.len() as u64)).unwrap_or(0);
    let longest = *world.dice.pick(&[20, 200, 1_500]);
    let until = world.now + world.dice.between(1, longest) * MS;
    stop(world, place, until);
    if world.scenario.suspends && world.dice.chance(500_000) {
        suspend(world, place, until);
    }
}

/// Makes the clock of a stopped process stand still until then, as far as possible: a machine's
/// clock is at least as old as the cluster.
fn suspend(world: &mut World, place: NodeId, until: u64) {
    let node = &mut world.nodes[place];
    if node.suspended == 0 && node.may_stand_still(until - world.now) {
        node.suspended = until - world.now;
    }
}

/// Stops a process until then.
fn stop(world: &mut World, place: NodeId, until: u64) {
    let node = &mut world.nodes[place];
    node.paused_until = until;
    node.troubled_until = node.troubled_until.max(until);
}

/// Ends all servers of some key but one, and stalls that one while they copy from it.
fn stall_the_last_copy(world: &mut World) {
    let servers = u16::from(world.scenario.servers);
    if !(0..servers).all(|it| holds_everything(world, it)) {
        return;
    }
    let last = u16::try_from(world.dice.below(u64::from(servers))).unwrap_or(0);
    let others = (1..servers).map(|it| (last + it) % servers);
    for server in others.take(usize::from(world.scenario.replicas) - 1) {
        for place in world.places_of(server) {
            world.kill(place);
        }
        let down = world.dice.between(1, 30) * MS;
        world.call_at(world.now + down, RESTART_SERVER | u64::from(server));
    }
    let begin = world.dice.between(1, 60) * MS;
    let length = world.dice.between(1, 1_500) * MS;
    let call = STALL | (length / MS) << 16 | u64::from(last);
    world.call_at(world.now + begin, call);
}

/// Ends all servers at once, so that only the records on their disks are left.
fn crash_all(world: &mut World) {
    let servers = u16::from(world.scenario.servers);
    // Level `disk` promises a majority's disks, so one disk of three may be lost too.
    let may = world.scenario.replicas >= 3 && !world.disk_lost;
    let may = may && (0..servers).all(|it| holds_everything(world, it));
    let lost = (may && world.dice.chance(300_000))
        .then(|| u16::try_from(world.dice.below(u64::from(servers))).unwrap_or(0));
    for server in 0..servers {
        for place in world.places_of(server) {
            world.kill(place);
            if lost == Some(server) {
                world.lose_disk(place);
            }
        }
        let down = world.dice.between(1, 1_000) * MS;
        world.call_at(world.now + down, RESTART_SERVER | u64::from(server));
    }
}

/// Ends a server, which comes back empty.
fn crash_server(world: &mut World) {
    if world.scenario.disk && world.dice.chance(150_000) {
        crash_all(world);
        return;
    }
    if world.scenario.stalls && world.dice.chance(300_000) {
        stall_the_last_copy(world);
        return;
    }
    let taking_part = taking_part(world);
    if taking_part.is_empty() {
        return;
    }
    let server = *world.dice.pick(&taking_part);
    // Servers without a full memory: down, not yet a member again, or still copying.
    let lacks = |it: &&u16| **it == server || !holds_everything(world, **it);
    let without = taking_part.iter().filter(lacks).count();
    let replicas = usize::from(world.scenario.replicas);
    let too_many = without >= replicas || without >= majority(taking_part.len());
    if too_many && !world.scenario.catastrophe {
        return;
    }
    if is_down(world, server) {
        return;
    }
    if world.scenario.operator {
        match world.dice.below(4) {
            0 => return operator::lose_for_good(world, server),
            1 => return operator::begin_drain(world, server),
            _ => {}
        }
    }
    for place in world.places_of(server) {
        world.kill(place);
    }
    let down = world.dice.between(1, 1_000) * MS;
    world.call_at(world.now + down, RESTART_SERVER | u64::from(server));
}

/// Returns the servers that are up, or will be again.
fn taking_part(world: &World) -> Vec<u16> {
    let servers = u16::from(world.scenario.servers);
    let spares = servers..servers + u16::from(world.scenario.spare_servers);
    let mut all: Vec<u16> = (0..servers).collect();
    if world.scenario.operator {
        all.extend(spares.filter(|it| !is_down(world, *it)));
    }
    all.retain(|it| !world.gone.contains(it));
    all
}

fn holds_everything(world: &World, server: u16) -> bool {
    let places = world.places_of(server);
    places
        .iter()
        .all(|place| match &world.nodes[*place].machine {
            Machine::Server(machine) => {
                let life = machine.life();
                machine.config().is_some_and(|config| {
                    let member = config.members.iter().any(|member| {
                        member.server == life.endpoint.server
                            && member.incarnation == life.incarnation
                            && !member.gone
                    });
                    member && config.next.is_none()
                })
            }
            _ => false,
        })
}

fn partition(world: &mut World) {
    let all = (1u64 << world.nodes.len()) - 1;
    let lonely: NodeId = usize::try_from(world.dice.below(world.nodes.len() as u64)).unwrap_or(0);
    let group = if world.dice.chance(700_000) {
        1 << lonely
    } else {
        world.dice.number() & all
    };
    let longest = *world.dice.pick(&[30, 300, 1_500]);
    let length = world.dice.between(1, longest) * MS;
    let until = world.now + length;
    world.cut(group, all & !group, until);
    // Now and then in one direction only.
    if world.dice.chance(700_000) {
        world.cut(all & !group, group, until);
    }
}

fn crash_router(world: &mut World) {
    let routers: Vec<NodeId> = (0..world.nodes.len())
        .filter(|place| matches!(world.nodes[*place].machine, Machine::Router(_)))
        .collect();
    if routers.is_empty() {
        return;
    }
    let place = *world.dice.pick(&routers);
    world.kill(place);
    let down = world.dice.between(1, 300) * MS;
    world.call_at(world.now + down, RESTART_ROUTER | place as u64);
    // Portals use another router, or wait for this one.
    let others: Vec<NodeId> = routers.into_iter().filter(|it| *it != place).collect();
    for index in 0..world.nodes.len() {
        if world.nodes[index].router == place && !others.is_empty() && world.dice.chance(500_000) {
            world.nodes[index].router = *world.dice.pick(&others);
        }
    }
}

/// Lets the operator act where the cluster waits for records of disks that have come back without
/// them: a server ended before its disk had all records of its first incarnation.
pub fn give_up_disks(world: &mut World) {
    let Some(config) = world.controller().and_then(|it| it.config()).cloned() else {
        return;
    };
    let missing = config.disks_missing();
    let lacks = |server: &ServerId| {
        let gone = config.members.iter().find(|it| it.server == *server);
        let next = config.next.iter().flatten();
        let mut back = next
            .filter(|it| it.server == *server)
            .filter_map(|it| it.disk);
        gone.is_some_and(|gone| back.any(|disk| !disk.holds(gone.incarnation)))
    };
    for server in missing.into_iter().filter(lacks) {
        for place in world.places_of(server.0) {
            world.kill(place);
            world.give_up_disk(place);
        }
        world.start_server(server.0);
    }
}

/// Starts everything that is down.
pub fn end(world: &mut World) {
    world.heal();
    world.start_controllers();
    for server in 0..u16::from(world.scenario.servers) {
        let stays_away = world.gone.contains(&server) || world.drained.contains(&server);
        if is_down(world, server) && !stays_away {
            world.start_server(server);
        }
    }
    operator::end(world);
    let places: Vec<NodeId> = (0..world.nodes.len()).collect();
    for place in places {
        let asked = world.nodes.iter().any(|node| node.router == place);
        let mine = world.nodes[place].router == place;
        if asked && !mine && matches!(world.nodes[place].machine, Machine::Down) {
            let is_router = !world.controllers().contains(&place) && !world.is_endpoint(place);
            if is_router {
                world.start_router(place);
            }
        }
    }
}
