//! The operator: removes servers that are gone for good, replaces them, and drains servers before
//! they are switched off.

use flurry_core::config::Config;
use flurry_core::id::ServerId;
use flurry_core::message::{Control, Departure, Message};

use crate::scenario::MS;
use crate::world::{Machine, World};

/// Numbers of the operator's calls; the faults have the numbers below.
pub const FIRST: u64 = 1 << 40;
const REMOVE: u64 = 1 << 40;
const DRAIN: u64 = 1 << 41;
const TAKE_BACK: u64 = 1 << 42;
const REPLACE: u64 = 1 << 43;

/// How often the operator checks the result of a request.
const LOOK: u64 = 50 * MS;

/// Carries out a scheduled call.
pub fn call(world: &mut World, call: u64) {
    let server = u16::try_from(call & 0xffff).unwrap_or(0);
    if call & REPLACE != 0 {
        if world.gone.contains(&server) && !is_out(world, server) {
            world.call_at(world.now + LOOK, call);
        } else if is_down(world, server) {
            world.start_server(server);
        }
    } else if call & REMOVE != 0 {
        if is_down(world, server) && !is_out(world, server) {
            ask(world, server, Departure::Removed);
            world.call_at(world.now + LOOK, call);
        }
    } else if call & DRAIN != 0 {
        drain(world, server);
    } else if call & TAKE_BACK != 0 {
        take_back(world, server);
    }
}

/// Ends a server for good, with its disk. Some time later the operator removes it, and starts
/// another.
pub fn lose_for_good(world: &mut World, server: u16) {
    for place in world.places_of(server) {
        world.kill(place);
        world.lose_disk(place);
    }
    world.gone.insert(server);
    let later = world.dice.between(1, 3 * world.scenario.lease / MS) * MS;
    world.call_at(world.now + later, REMOVE | u64::from(server));
    if let Some(spare) = unused_spare(world) {
        let later = world.dice.between(1, 2_000) * MS;
        world.call_at(world.now + later, REPLACE | u64::from(spare));
    }
}

/// Begins to drain a server that serves.
pub fn begin_drain(world: &mut World, server: u16) {
    if world.drained.is_empty() {
        world.drained.insert(server);
        world.ever_drained.insert(server);
        world.call_at(world.now, DRAIN | u64::from(server));
    }
}

/// Asks until the controller has received the request, and switches the server off once it holds
/// nothing.
fn drain(world: &mut World, server: u16) {
    if !world.drained.contains(&server) {
        return;
    }
    let here = controller_config(world).is_some_and(|it| it.everybody().any(|it| is(it, server)));
    let settled = controller_config(world).is_some_and(|it| it.next.is_none());
    if here || !settled || !is_drained(world, server) {
        ask(world, server, Departure::Drained);
        world.call_at(world.now + LOOK, DRAIN | u64::from(server));
        return;
    }
    for place in world.places_of(server) {
        world.kill(place);
    }
    let later = world.dice.between(1, 2_000) * MS;
    world.call_at(world.now + later, TAKE_BACK | u64::from(server));
}

fn take_back(world: &mut World, server: u16) {
    if is_drained(world, server) {
        ask(world, server, Departure::TakenBack);
        world.call_at(world.now + LOOK, TAKE_BACK | u64::from(server));
        return;
    }
    // The message may find no controller: then it is sent again.
    if world.controller().is_some() {
        world.drained.remove(&server);
        if is_down(world, server) {
            world.start_server(server);
        }
    } else {
        world.call_at(world.now + LOOK, TAKE_BACK | u64::from(server));
    }
}

/// Ends the faults: the operator takes drains back, and removes and replaces servers that are gone.
pub fn end(world: &mut World) {
    for server in world.drained.clone() {
        world.call_at(world.now, TAKE_BACK | u64::from(server));
    }
    for server in world.gone.clone() {
        world.call_at(world.now, REMOVE | u64::from(server));
        match unused_spare(world) {
            Some(spare) => world.start_server(spare),
            // A new machine gets the old one's number, once that is out.
            None => world.call_at(world.now + LOOK, REPLACE | u64::from(server)),
        }
    }
}

fn ask(world: &mut World, server: u16, departure: Departure) {
    let control = Control::Depart(ServerId(server), departure);
    world.tell_controller(&Message::Control(control));
}

fn is(member: &flurry_core::config::Member, server: u16) -> bool {
    member.server.0 == server
}

fn controller_config(world: &World) -> Option<&Config> {
    world.controller()?.config().map(|it| &**it)
}

fn is_drained(world: &World, server: u16) -> bool {
    let controller = world.controller();
    controller.is_some_and(|it| it.drained().any(|it| it.0 == server))
}

/// Returns true if the cluster no longer waits for the server or its disk.
fn is_out(world: &World, server: u16) -> bool {
    controller_config(world).is_some_and(|config| {
        let mut members = config.everybody().filter(|it| is(it, server));
        members.all(|it| it.gone && it.disk.is_none_or(|disk| disk.lost))
    })
}

fn unused_spare(world: &World) -> Option<u16> {
    let servers = u16::from(world.scenario.servers);
    let all = servers + u16::from(world.scenario.spare_servers);
    (servers..all).find(|it| !world.gone.contains(it) && is_down(world, *it))
}

fn is_down(world: &World, server: u16) -> bool {
    let places = world.places_of(server);
    let mut machines = places.iter().map(|place| &world.nodes[*place].machine);
    machines.all(|it| matches!(it, Machine::Down))
}
