//! Small worlds, explored to their end: every order of events, not a sample of them.
//!
//! There are two servers, a controller, and two owners of one session, of whom the second takes
//! over from the first while messages of the first may still be under way. They are the real parts
//! of the core ([`flurry_core`]), with its own key-value machine. `stateright` searches breadth
//! first through all possible events, until there is no new state. Owners work at the level
//! `first`, on one key.
//!
//! # What may happen, at any moment
//!
//! - Any message that was ever sent arrives: late, after later ones, again and again, or never. So
//!   loss, duplicates, delay and every repetition by a timer need no events of their own, and have
//!   no bound.
//! - An owner submits its next operation, whether or not the earlier ones were answered.
//! - The second owner asks for the session.
//! - One fault ([`Plan`]) happens. A server loses its memory, and stays away or comes back as
//!   another incarnation. Or it is cut off from the other server and from the controller, while
//!   owners still reach it.
//! - After the fault, enough time passes for a lease to end, with the eighth more by which clocks
//!   may differ. Every part that is not cut off has renewed its lease then, and every timer has run
//!   out.
//!
//! # What is bounded
//!
//! The plan bounds the operations of each owner, the fault, and how often time passes. Nothing else
//! is bounded: a search that ends has seen every state.
//!
//! # What is left out, and why the result still means something
//!
//! - Time stands still between those steps. Timers that repeat a message add nothing to messages
//!   that arrive any number of times. Timeouts that give up (an owner's timeout) are longer than
//!   any path.
//! - Some messages arrive at once, or never at a part that is cut off: those between servers and
//!   controller about leases (ping, pong), a server's request to join and its report that it has
//!   copied everything, an owner's request for the session, and a server's report that it knows an
//!   epoch. They report facts; a late one would only delay the next step. A new configuration is
//!   sent to everybody when it is decided, and not only to its asker.
//! - A lease passes only when the servers that are not cut off have received the last messages of
//!   the controller and of the other server. A server without them would be a second fault.
//! - The number of repairs that a router may have at once, beyond the first, makes no difference
//!   here.
//! - The controller does not crash, memory does not run out, nothing is deleted or expires, and the
//!   loss is always of server 0, since the two are alike. The simulation covers all of that.
//!
//! # What makes it small, without leaving anything out
//!
//! - The step of a part follows from its state, its input and the time. It is driven once for each
//!   combination, and the result is kept. A state of the world is the hashes of its parts' states
//!   and messages.
//! - A message that does not change its receiver, and only makes it send others, is delivered as
//!   soon as possible. The messages that it causes may arrive or not, so this makes nothing
//!   impossible.
//! - Messages lose the fields that their receiver never reads. Refusals that a router ignores are
//!   not sent. A message of a configuration that its receiver has left is removed, once it is
//!   checked to have no effect there (I11).
//! - An owner ends when it has nothing under way and nothing more to ask, or may not ask.
//!
//! Two states with equal 64-bit hashes would be taken for one. With some millions of states that is
//! less likely than one in a million.

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

/// Statistics of a search.
#[derive(Debug, Clone)]
pub struct Explored {
    /// Number of different states.
    pub states: usize,
    /// Number of events that lead to them.
    pub transitions: usize,
    /// Number of steps that the real parts took for this.
    pub steps: usize,
    /// The longest of the shortest paths to a state.
    pub depth: usize,
    /// How often each situation was met.
    pub met: Vec<(Sight, u64)>,
}

/// A violation that a search found.
#[derive(Debug, Clone)]
pub struct Found {
    /// Name of the property that does not hold.
    pub property: &'static str,
    /// The events that lead to it, one a line; empty when a required situation was not met.
    pub path: Vec<String>,
    /// Statistics of the search until then.
    pub explored: Explored,
}

/// Explores a world to its end, or to the first violation.
///
/// # Errors
///
/// [`Found`]: a property does not hold, or a required situation was not met.
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
    // The search has no limit: it ends when no state is new. Only then does "never met" mean
    // anything.
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
