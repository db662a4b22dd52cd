//! When the users of a closed loop ask next: the clock by which they think, and how many of them
//! are there.

use crate::arrivals::Arrivals;
use crate::model::Drive;
use crate::portion::Portion;
use crate::ramp::Levels;
use crate::scenario::Walks;
use crate::store::Store;
use crate::think_clock::ThinkClock;
use crate::units::DurationNs;

/// The pace of the users of one process; by default they think by the time, and all are there.
#[derive(Clone, Debug, Default)]
pub struct ClosedLoop {
    clock: ThinkClock,
    clients: Option<Clients>,
}

/// The clients of a process that come and go.
#[derive(Clone, Debug)]
struct Clients {
    /// How many there are when, in all processes.
    levels: Levels,
    portion: Portion,
    /// The clients of this process. User `u` belongs to client `u % own`.
    own: u64,
}

impl ClosedLoop {
    /// When a user who begins to think at `from` asks next: after `think` of the common clock, and
    /// not before the user is there. `None` if that is never. Times are counted from the start;
    /// those to begin with may go back by up to 3 s.
    pub fn asks(&mut self, user: usize, from: DurationNs, think: DurationNs) -> Option<DurationNs> {
        let thought = self.clock.after(from, think);
        match &self.clients {
            Some(clients) => {
                let number = clients.portion.place(user as u64 % clients.own);
                let there = clients.levels.reached(number, thought)?;
                // Those who come at once do not ask at once.
                let asks = match there > thought {
                    true => DurationNs(there.0.saturating_add(think.0)),
                    false => there,
                };
                clients.levels.reached(number, asks)
            }
            None => Some(thought),
        }
    }
}

impl Drive {
    /// The pace of a closed loop, for one of its processes. The clock is the same in all of them.
    #[must_use]
    pub fn closed_loop(
        &self,
        seed: u64,
        warmup: DurationNs,
        ends: DurationNs,
        portion: Portion,
    ) -> ClosedLoop {
        let store = self.store.as_deref();
        let Arrivals::Closed { bursts, .. } = self.arrivals else {
            return ClosedLoop::default();
        };
        let rate_hz = bursts.map_or(0.0, |_| {
            let think_s = mean_think(&self.arrivals, store).0 as f64 / 1e9;
            users(self.clients, store) as f64 / think_s
        });
        ClosedLoop {
            clock: ThinkClock::new(bursts, rate_hz, seed, ends),
            clients: self.ramp.as_ref().map(|ramp| Clients {
                levels: ramp.levels(1.0, warmup),
                portion,
                own: portion.count(u64::from(self.clients)).max(1),
            }),
        }
    }
}

/// How many requests the clients of a closed loop may have open: each belongs to a user.
pub(crate) fn users(clients: u32, store: Option<&Store>) -> u64 {
    u64::from(clients) * u64::from(store.map_or(1, |it| it.pipeline))
}

/// How long a user of a closed loop thinks on average, whatever the states of its scenario.
pub(crate) fn mean_think(arrivals: &Arrivals, store: Option<&Store>) -> DurationNs {
    let Arrivals::Closed { think, .. } = *arrivals else {
        return DurationNs(0);
    };
    let scenario = store.and_then(Store::scenario);
    scenario.map_or(think, |it| Walks::mean_think(it, think))
}
