//! When the users of a scenario ask, and for what. A user asks for one thing at a time, thinks after
//! the reply, and goes on from there.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::iter::Peekable;

use unruly_plan::{ClosedLoop, DurationNs as Length, Walks};
use unruly_trace::{DurationNs, MonoNs};

use crate::source::{Due, Phases, Sessions, Source};

/// Instants of a schedule, in nanoseconds from the start.
type Offsets = Box<dyn Iterator<Item = u64> + Send>;

/// The users of one process.
pub struct Users {
    walks: Walks,
    phases: Phases,
    sessions: Sessions,
    pace: Pace,
}

enum Pace {
    /// Each user asks when it has thought.
    Closed {
        due: BinaryHeap<Reverse<(MonoNs, usize)>>,
        clock: ClosedLoop,
        /// Users whose reply is still to come.
        waiting: usize,
    },
    /// A schedule says when somebody asks: the user who has waited longest. While all users wait for
    /// replies, a due request waits too, and counts from its instant.
    Open {
        offsets: Peekable<Offsets>,
        /// Users who wait for no reply, and since when.
        free: VecDeque<(MonoNs, usize)>,
        timeout_ns: DurationNs,
    },
}

impl Users {
    /// Users who ask when they have thought, at this pace. Their first requests are spread over one
    /// think time.
    #[must_use]
    pub fn closed(
        mut walks: Walks,
        mut clock: ClosedLoop,
        sessions: Sessions,
        phases: Phases,
    ) -> Self {
        let users = 0..sessions.sessions;
        let due = users.filter_map(|user| {
            let think = Length(walks.think_ns(user));
            let asks_ns = phases.asks(&mut clock, user, phases.start_ns, think)?;
            Some(Reverse((asks_ns, user)))
        });
        Self {
            pace: Pace::Closed {
                due: due.collect(),
                clock,
                waiting: 0,
            },
            walks,
            phases,
            sessions,
        }
    }

    /// Users who ask when a schedule, in nanoseconds from the start, wants it. A request that nobody
    /// was free to make for the timeout is not made.
    #[must_use]
    pub fn open(
        walks: Walks,
        schedule: impl Iterator<Item = u64> + Send + 'static,
        timeout_ns: DurationNs,
        sessions: Sessions,
        phases: Phases,
    ) -> Self {
        let schedule: Offsets = Box::new(schedule);
        Self {
            pace: Pace::Open {
                offsets: schedule.peekable(),
                free: (0..sessions.sessions)
                    .map(|user| (phases.start_ns, user))
                    .collect(),
                timeout_ns,
            },
            walks,
            phases,
            sessions,
        }
    }
}

/// The next instant of a schedule, if it is of the run.
fn next_of(offsets: &mut Peekable<Offsets>, phases: &Phases) -> Option<MonoNs> {
    let offset_ns = DurationNs::from_unsigned(*offsets.peek()?);
    let at_ns = phases.start_ns.saturating_add(offset_ns);
    (at_ns < phases.end_ns).then_some(at_ns)
}

impl Source for Users {
    fn next_at_ns(&mut self) -> Option<MonoNs> {
        match &mut self.pace {
            Pace::Closed { due, .. } => {
                let Reverse((at_ns, _)) = *due.peek()?;
                (at_ns < self.phases.end_ns).then_some(at_ns)
            }
            Pace::Open { free, .. } if free.is_empty() => None,
            Pace::Open { offsets, .. } => next_of(offsets, &self.phases),
        }
    }

    fn take(&mut self) -> Option<Due> {
        let intended_ns = self.next_at_ns()?;
        let mut expired = false;
        let (free_ns, user) = match &mut self.pace {
            Pace::Closed { due, waiting, .. } => {
                let Reverse(next) = due.pop()?;
                *waiting += 1;
                next
            }
            Pace::Open {
                offsets,
                free,
                timeout_ns,
            } => {
                let &(free_ns, user) = free.front()?;
                offsets.next();
                expired = free_ns - intended_ns >= *timeout_ns;
                if !expired {
                    free.pop_front();
                }
                (free_ns, user)
            }
        };
        let step = match expired {
            true => self.walks.peek(user),
            false => self.walks.next(user),
        };
        let phase = self.phases.phase_of(intended_ns);
        Some(Due {
            step: Some(step),
            waited: free_ns > intended_ns,
            expired,
            ..self.sessions.due(user, intended_ns, phase, 0)
        })
    }

    fn ended(&mut self, user: usize, now_ns: MonoNs, ok: bool) {
        let think = Length(self.walks.think_ns(user));
        if !ok {
            self.walks.failed(user);
        }
        match &mut self.pace {
            Pace::Closed {
                due,
                clock,
                waiting,
            } => {
                *waiting = waiting.saturating_sub(1);
                let asks_ns = self.phases.asks(clock, user, now_ns, think);
                due.extend(asks_ns.map(|at_ns| Reverse((at_ns, user))));
            }
            Pace::Open { free, .. } => free.push_back((now_ns, user)),
        }
    }

    fn is_over(&mut self) -> bool {
        match &mut self.pace {
            Pace::Closed { waiting: 1.., .. } => false,
            Pace::Closed { .. } => self.next_at_ns().is_none(),
            Pace::Open { offsets, .. } => next_of(offsets, &self.phases).is_none(),
        }
    }

    fn abandon(&mut self) -> u64 {
        let end_ns = self.phases.end_ns;
        match &mut self.pace {
            Pace::Closed { due, .. } => {
                let of_run = due.drain().filter(|Reverse((at_ns, _))| *at_ns < end_ns);
                of_run.count() as u64
            }
            Pace::Open { offsets, .. } => {
                let mut count = 0;
                while next_of(offsets, &self.phases).is_some() {
                    offsets.next();
                    count += 1;
                }
                count
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use unruly_plan::{Portion, Scenario};

    use super::*;

    const SECOND: DurationNs = DurationNs::seconds(1);

    const TWO: &str =
        "[[state]]\nname = \"a\"\npath = \"/a\"\n[[state]]\nname = \"b\"\npath = \"/b\"";

    fn walks(users: usize, think_ns: u64) -> Walks {
        let scenario: Scenario = TWO.parse().expect("it is a scenario");
        Walks::new(
            &scenario,
            1,
            users,
            Portion::WHOLE,
            unruly_plan::DurationNs(think_ns),
        )
    }

    fn each(users: usize) -> Sessions {
        Sessions {
            sessions: users,
            links: users,
        }
    }

    fn phases() -> Phases {
        let seconds = |count: u64| unruly_plan::DurationNs(count * 1_000_000_000);
        Phases::new(MonoNs(0), seconds(1), seconds(9))
    }

    fn taken(users: &mut Users) -> (usize, usize, bool) {
        let due = users.take().expect("one is due");
        let step = due.step.expect("it is of a scenario");
        (due.session, step.state, step.begins)
    }

    #[test]
    fn a_user_goes_on_after_the_reply_and_begins_anew_after_a_failure() {
        let mut users = Users::closed(walks(1, 0), ClosedLoop::default(), each(1), phases());
        assert_eq!(taken(&mut users), (0, 0, true));
        assert_eq!(users.next_at_ns(), None, "it waits for the reply");
        assert!(!users.is_over());
        users.ended(0, MonoNs(5), true);
        assert_eq!(users.next_at_ns(), Some(MonoNs(5)));
        assert_eq!(taken(&mut users), (0, 1, false));
        users.ended(0, MonoNs(6), true);
        assert_eq!(taken(&mut users), (0, 0, true));
        users.ended(0, MonoNs(7), false);
        assert_eq!(taken(&mut users), (0, 0, true));
        users.ended(0, MonoNs(0) + SECOND * 11, true);
        assert!(users.is_over());
    }

    #[test]
    fn what_is_due_waits_for_a_user_and_keeps_its_instant() {
        let schedule = (0..20).map(|it| it * 500_000_000);
        let mut users = Users::open(walks(2, 0), schedule, SECOND * 100, each(2), phases());
        assert_eq!(taken(&mut users), (0, 0, true));
        assert_eq!(taken(&mut users), (1, 0, true));
        assert_eq!(users.next_at_ns(), None);
        assert!(users.take().is_none());
        assert!(!users.is_over());
        users.ended(1, MonoNs(0) + SECOND * 3, true);
        let due = users.take().expect("one is due");
        assert_eq!((due.session, due.intended_ns), (1, MonoNs(0) + SECOND));
        assert!(due.waited, "nobody was free when it was due");
        assert_eq!(due.step.map(|it| (it.state, it.begins)), Some((1, false)));
        assert_eq!(users.abandon(), 17);
        assert!(users.is_over());
    }

    #[test]
    fn what_nobody_was_free_for_until_the_timeout_is_over_and_takes_nobody_s_place() {
        let schedule = (0..20).map(|it| it * 500_000_000);
        let mut users = Users::open(walks(1, 0), schedule, SECOND, each(1), phases());
        assert_eq!(taken(&mut users), (0, 0, true));
        users.ended(0, MonoNs(0) + SECOND * 2, true);
        let expired: Vec<(bool, Option<usize>)> = (0..3)
            .map(|_| users.take().expect("one is due"))
            .map(|due| (due.expired, due.step.map(|it| it.state)))
            .collect();
        // Those of 0.5 s and 1 s have waited for a second or more, that of 1.5 s has not.
        assert_eq!(
            expired,
            [(true, Some(1)), (true, Some(1)), (false, Some(1))]
        );
        assert_eq!(users.next_at_ns(), None, "its user waits for a reply");
    }

    #[test]
    fn those_who_think_are_given_up_with_what_they_would_ask() {
        let mut users = Users::closed(walks(3, 0), ClosedLoop::default(), each(3), phases());
        users.take();
        assert_eq!(users.abandon(), 2);
        assert!(!users.is_over(), "a reply is still to come");
    }
}
