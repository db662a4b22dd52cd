//! Small worlds, explored to their end: every order of events, not a sample of them.
//!
//! Two servers, a controller, and two owners of one session, of whom the second takes over from the
//! first while messages of the first may still be under way. They are the real parts of the core
//! ([`flurry_core`]), with its own key-value machine; `stateright` searches breadth first through all
//! that can happen to them, until there is nothing new. Owners work at the level `first`, on one key.
//!
//! # What may happen, at any moment
//!
//! - Any message that was ever sent comes: late, after later ones, again and again, or never. So loss,
//!   duplicates, delay and every repetition by a timer need no events of their own, and have no bound.
//! - An owner submits its next operation, whether or not the earlier ones were answered.
//! - The second owner asks for the session.
//! - One fault ([`Plan`]): a server loses its memory, and stays away or comes back as another life; or
//!   it is cut off from the other server and from the controller, while owners still reach it.
//! - After the fault: so much time passes that a lease ends, and the eighth more that clocks may differ
//!   by. Everybody who is not cut off has renewed his lease then, and every timer has run out.
//!
//! # What is bounded
//!
//! The operations of each owner, the fault, and how often time passes, as the plan says. Nothing else:
//! a search that ends has seen every state.
//!
//! # What is left out, and why the result still says something
//!
//! - Time stands still between those steps. Timers that repeat a message add nothing to messages that
//!   come any number of times; those that give up (an owner's patience) are longer than any path.
//! - What passes between servers and controller about leases (ping, pong), a server's wish to join and
//!   that it has copied everything, an owner's wish for the session, and that a server knows of an epoch
//!   are heard at once, or never by who is cut off. They say what is so; being late, they would delay
//!   what follows. A new configuration is sent to everybody when it is decided, whoever asks for it.
//! - A lease passes only when the servers that are not cut off have heard what the controller and the
//!   other server last told them: who has not would be a second fault.
//! - How many repairs a router may afford at once, beyond the first, is not told apart.
//! - The controller does not crash, memory does not end, nothing is deleted or expires, and the loss is
//!   always of server 0, since the two are alike. All that is the simulation's.
//!
//! # What makes it small, without leaving anything out
//!
//! - What a part does follows from its state, its input and the instant: it is driven once for each and
//!   the result is kept. A state of the world is the hashes of its parts' states and messages.
//! - A message that changes nothing where it comes, and only makes others be sent, comes as soon as it
//!   can: what it brings about may come or not, so that nothing becomes impossible by it.
//! - Messages lose what their receiver never looks at, refusals that a router passes over are not sent,
//!   and what belongs to a configuration that its receiver has left is taken away, once it is seen to do
//!   nothing there (I11).
//! - An owner ends when nothing is under way and it has nothing more to ask, or may not.
//!
//! Two states of 64 bits' equal hash would be taken for one: with some millions of states that is less
//! likely than one in a million.

mod letter;
mod mail;
mod parts;
mod plan;
mod steps;
mod truth;
mod watch;
mod world;

use flurry_core::bugs::Bug;
use stateright::{Checker, Expectation, HasDiscoveries, Model, Path};

pub use plan::{BUGS, PLANS, Plan, Sight, Wish};
use world::{Action, Exploration, World};

/// What a search saw.
#[derive(Debug, Clone)]
pub struct Explored {
    /// Different states.
    pub states: usize,
    /// Events that lead to them.
    pub transitions: usize,
    /// Steps of the real parts that this took.
    pub steps: usize,
    /// The longest of the shortest paths to a state.
    pub depth: usize,
    /// How often each situation was met.
    pub met: Vec<(Sight, u64)>,
}

/// What a search found that must not be.
#[derive(Debug, Clone)]
pub struct Found {
    /// What does not hold.
    pub property: &'static str,
    /// How it comes to that, a line an event; empty when something that must be met was not.
    pub path: Vec<String>,
    /// What was seen until then.
    pub explored: Explored,
}

/// Explores a world to its end, or to the first thing that must not be.
///
/// # Errors
///
/// [`Found`]: a property does not hold, or a situation that must be met was not.
///
/// # Panics
///
/// When the search itself fails.
pub fn explore(plan: Plan, bug: Option<Bug>, threads: usize) -> Result<Explored, Box<Found>> {
    let checker = Exploration::new(plan, bug)
        .checker()
        .threads(threads)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let exploration = checker.model();
    let explored = Explored {
        states: checker.unique_state_count(),
        transitions: checker.state_count(),
        steps: exploration.steps.count(),
        depth: checker.max_depth(),
        met: Sight::ALL
            .iter()
            .map(|sight| (*sight, exploration.met(*sight)))
            .collect(),
    };
    let mut discoveries = checker.discoveries();
    for property in exploration.properties() {
        let discovery = discoveries.remove(property.name);
        let path = match (property.expectation, discovery) {
            (Expectation::Sometimes, Some(_)) | (_, None) => None,
            (_, Some(path)) => Some(described(exploration, path)),
        };
        if let Some(path) = path {
            return Err(Box::new(Found {
                property: property.name,
                path,
                explored,
            }));
        }
    }
    // It has no limit: it ends when nothing is new. Only then can it say that something is never met.
    assert!(checker.is_done(), "the search ended before its end");
    let missing = plan
        .sights
        .iter()
        .find(|sight| exploration.met(**sight) == 0);
    match missing {
        Some(sight) => Err(Box::new(Found {
            property: sight.name(),
            path: Vec::new(),
            explored,
        })),
        None => Ok(explored),
    }
}

/// Describes a path in words: the events, and the results that the owners received.
fn described(exploration: &Exploration, path: Path<World, Action>) -> Vec<String> {
    let mut lines = Vec::new();
    for (world, action) in path.into_vec() {
        if let Some(action) = action {
            lines.extend(exploration.describe(&world, action));
        }
    }
    lines
}
