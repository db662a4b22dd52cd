//! The ways of users through a scenario.

use super::{Next, Scenario};
use crate::portion::Portion;
use crate::random::{Purpose, Random};
use crate::units::DurationNs;

/// States that a user can go back through.
const HISTORY_MAX: usize = 64;

/// Users, and steps of each, whose mean think time is that of a scenario. Users may differ: they may
/// begin in states that never meet.
const MEAN_USERS: usize = 200;
const MEAN_STEPS: usize = 200;

/// The next request of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The number of its state.
    pub state: usize,
    /// The user is a new one, who has kept nothing yet.
    pub begins: bool,
}

/// Where the users of one process are.
#[derive(Clone, Debug)]
pub struct Walks {
    scenario: Scenario,
    users: Vec<User>,
    /// The mean time that a user thinks after a state that has none of its own.
    usual_think: DurationNs,
}

#[derive(Clone, Debug)]
struct User {
    /// The state of the last request; none before a user's first one.
    at: Option<usize>,
    /// The states before it.
    history: Vec<usize>,
    choice: Random,
    think: Random,
}

impl Walks {
    /// So many users, none of whom has begun. After a state without a think time of its
    /// own they think `usual_think` on average.
    #[must_use]
    pub fn new(
        scenario: &Scenario,
        seed: u64,
        users: usize,
        portion: Portion,
        usual_think: DurationNs,
    ) -> Self {
        let user = |number| User {
            at: None,
            history: Vec::new(),
            choice: Random::new(Purpose::Choice, seed, portion.place(number)),
            think: Random::new(Purpose::Think, seed, portion.place(number)),
        };
        Self {
            scenario: scenario.clone(),
            users: (0..users as u64).map(user).collect(),
            usual_think,
        }
    }

    /// What a user asks for next.
    ///
    /// # Panics
    ///
    /// When there is no such user.
    pub fn next(&mut self, user: usize) -> Step {
        let user = &mut self.users[user];
        let choice = user.choice.share();
        let next = user.at.map(|at| {
            let next = pick(&self.scenario.states[at].next, choice);
            (at, next.unwrap_or(Next::End))
        });
        let state = match next {
            Some((at, Next::State(state))) => {
                if user.history.len() == HISTORY_MAX {
                    user.history.remove(0);
                }
                user.history.push(at);
                Some(state)
            }
            Some((_, Next::Back)) => user.history.pop(),
            Some((_, Next::End)) | None => None,
        };
        let begins = state.is_none();
        if begins {
            user.history.clear();
        }
        let state = state.unwrap_or_else(|| {
            let begins = &self.scenario.begins;
            pick(begins, user.choice.share()).unwrap_or(0)
        });
        user.at = Some(state);
        Step { state, begins }
    }

    /// What a user would ask for next.
    ///
    /// # Panics
    ///
    /// When there is no such user.
    pub fn peek(&mut self, user: usize) -> Step {
        let kept = self.users[user].clone();
        let step = self.next(user);
        self.users[user] = kept;
        step
    }

    /// How long users think between two requests on average, from the ways of some of them.
    pub(crate) fn mean_think(scenario: &Scenario, usual_think: DurationNs) -> DurationNs {
        if scenario.states.iter().all(|it| it.think.is_none()) {
            return usual_think;
        }
        let mut walks = Self::new(scenario, 0, MEAN_USERS, Portion::WHOLE, usual_think);
        let steps = (0..MEAN_USERS).flat_map(|user| (0..MEAN_STEPS).map(move |_| user));
        let (mut sum_ns, mut count) = (0_u128, 0_u128);
        for user in steps {
            let own = scenario.states[walks.next(user).state].think;
            sum_ns += u128::from(own.unwrap_or(usual_think).0);
            count += 1;
        }
        DurationNs(u64::try_from(sum_ns / count).unwrap_or(u64::MAX))
    }

    /// The request of a user failed: the user goes, and another one begins.
    ///
    /// # Panics
    ///
    /// When there is no such user.
    pub fn failed(&mut self, user: usize) {
        self.users[user].at = None;
    }

    /// How long a user thinks before the next request, in ns: an exponential time.
    ///
    /// # Panics
    ///
    /// When there is no such user.
    pub fn think_ns(&mut self, user: usize) -> u64 {
        let user = &mut self.users[user];
        let own = user.at.and_then(|at| self.scenario.states[at].think);
        let mean_ns = own.unwrap_or(self.usual_think).0;
        whole(mean_ns as f64 * user.think.exponential())
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time from 0 to a few hundred times a think time; a longer one is cut"
)]
fn whole(ns: f64) -> u64 {
    ns as u64
}

/// One of these, each as likely as it says.
fn pick<T: Copy>(shares: &[(T, f64)], drawn: f64) -> Option<T> {
    let mut left = drawn;
    let found = shares.iter().find(|(_, share)| {
        left -= share;
        left < 0.0
    });
    // The shares may fall short of 1 by a rounding.
    found.or_else(|| shares.last()).map(|(it, _)| *it)
}
