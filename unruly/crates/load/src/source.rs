//! When the next request is due, and to whom. Sans-IO: instants are handed out, never waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use unruly_plan::{
    Arrivals, ClosedLoop, DurationNs as Length, Mesh, Portion, Step, ThinkTimes, group_of, phase_ns,
};
use unruly_trace::{DurationNs, Level, MonoNs};

/// The phase of a request: written before the run, sent in the warm-up, or measured. The number is
/// the index of the phase's name in the header of a spool.
pub(crate) const LOAD: u8 = 2;
const WARMUP: u8 = 0;
const MEASURE: u8 = 1;

/// A request that is due. `links` are the engine's connections that get a copy each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// Monotonic instant of the schedule.
    pub intended_ns: MonoNs,
    /// Index of the operation's name.
    pub op: u8,
    /// Index of the phase's name: 0 warm-up, 1 measured, 2 load.
    pub phase: u8,
    /// What the operation asks of the handler.
    pub flags: u8,
    /// Which replies the request waits for.
    pub level: Option<Level>,
    /// The connections.
    pub links: Vec<usize>,
    /// Whose request it is: a client has a session for each request that it may have open.
    pub session: usize,
    /// What a user of a scenario asks for.
    pub step: Option<Step>,
    /// It was due before its user was free: what made it late is no delay of ours.
    pub waited: bool,
    /// It has waited longer than the timeout: it is over without being sent, and its user stays free.
    pub expired: bool,
}

/// The order of a run's requests.
pub trait Source: Send {
    /// The instant of the next request; `None` when there is none (yet: a closed loop waits).
    fn next_at_ns(&mut self) -> Option<MonoNs>;

    /// Takes the next request.
    fn take(&mut self) -> Option<Due>;

    /// The request of this session ended, with an answer or without: a closed loop may go on.
    fn ended(&mut self, _session: usize, _now_ns: MonoNs, _answered: bool) {}

    /// No request will come any more.
    fn is_over(&mut self) -> bool;

    /// Gives up the requests that were not taken. Returns how many there are.
    fn abandon(&mut self) -> u64 {
        let mut count = 0;
        while self.take().is_some() {
            count += 1;
        }
        count
    }
}

/// Where the warm-up ends and where the schedule ends, monotonic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phases {
    /// First instant of the schedule.
    pub start_ns: MonoNs,
    /// First measured instant.
    pub measure_ns: MonoNs,
    /// First instant after the schedule.
    pub end_ns: MonoNs,
}

impl Phases {
    /// The phases of a run that starts at `start_ns`.
    #[must_use]
    pub fn new(
        start_ns: MonoNs,
        warmup: unruly_plan::DurationNs,
        duration: unruly_plan::DurationNs,
    ) -> Self {
        let measure_ns = start_ns + DurationNs::from_unsigned(warmup.0);
        Self {
            start_ns,
            measure_ns,
            end_ns: measure_ns + DurationNs::from_unsigned(duration.0),
        }
    }

    /// When a user of a closed loop asks next who thinks from this instant on; `None` if that is
    /// never.
    pub(crate) fn asks(
        &self,
        pace: &mut ClosedLoop,
        user: usize,
        from_ns: MonoNs,
        think: Length,
    ) -> Option<MonoNs> {
        let since = Length((from_ns - self.start_ns).0.max(0).unsigned_abs());
        let asks = pace.asks(user, since, think)?;
        let asks_ns = DurationNs::from_unsigned(asks.0);
        Some(self.start_ns.saturating_add(asks_ns))
    }

    pub(crate) fn phase_of(&self, intended_ns: MonoNs) -> u8 {
        if intended_ns >= self.measure_ns {
            MEASURE
        } else {
            WARMUP
        }
    }
}

/// An active agent: one group RPC each period, the workloads in turn, groups re-drawn from the seed.
#[derive(Debug)]
pub struct MeshSource {
    mesh: Mesh,
    seed: u64,
    agent: u16,
    phases: Phases,
    tick: u64,
}

impl MeshSource {
    /// The schedule of `agent`. Connections are numbered as the agents are.
    #[must_use]
    pub fn new(mesh: Mesh, seed: u64, agent: u16, phases: Phases) -> Self {
        Self {
            mesh,
            seed,
            agent,
            phases,
            tick: 0,
        }
    }

    fn at_ns(&self, tick: u64) -> MonoNs {
        let period = self.mesh.period;
        let offset_ns =
            tick.saturating_mul(period.0) + phase_ns(self.seed, self.agent, tick, period);
        self.phases
            .start_ns
            .saturating_add(DurationNs::from_unsigned(offset_ns))
    }

    /// The group of the agent at an instant; empty when it sits the epoch out.
    fn group_at(&self, intended_ns: MonoNs) -> Vec<u16> {
        let since_ns = (intended_ns - self.phases.start_ns).0.unsigned_abs();
        let epoch = since_ns / self.mesh.regroup.0.max(1);
        group_of(
            self.seed,
            epoch,
            self.mesh.agents,
            &self.mesh.groups,
            self.agent,
        )
        .unwrap_or_default()
    }

    /// Moves over the ticks of an epoch that this agent sits out.
    fn seek(&mut self) -> Option<(MonoNs, Vec<u16>)> {
        loop {
            let intended_ns = self.at_ns(self.tick);
            if intended_ns >= self.phases.end_ns {
                return None;
            }
            let group = self.group_at(intended_ns);
            if !group.is_empty() {
                return Some((intended_ns, group));
            }
            self.tick += 1;
        }
    }
}

impl Source for MeshSource {
    fn next_at_ns(&mut self) -> Option<MonoNs> {
        self.seek().map(|(intended_ns, _)| intended_ns)
    }

    fn take(&mut self) -> Option<Due> {
        let (intended_ns, group) = self.seek()?;
        let op = usize::try_from(self.tick % self.mesh.workloads.len() as u64).unwrap_or(0);
        self.tick += 1;
        Some(Due {
            intended_ns,
            op: u8::try_from(op).unwrap_or(u8::MAX),
            phase: self.phases.phase_of(intended_ns),
            flags: self.mesh.workloads[op].flags(),
            level: Some(Level::All),
            links: group.into_iter().map(usize::from).collect(),
            session: 0,
            step: None,
            waited: false,
            expired: false,
        })
    }

    fn is_over(&mut self) -> bool {
        self.seek().is_none()
    }
}

/// Ends another source after a number of measured requests. Requests of the warm-up do not count.
#[derive(Debug)]
pub struct Limited<S> {
    source: S,
    left: u64,
}

impl<S: Source> Limited<S> {
    /// At most `requests` measured requests of `source`.
    #[must_use]
    pub fn new(source: S, requests: u64) -> Self {
        Self {
            source,
            left: requests,
        }
    }
}

impl<S: Source> Source for Limited<S> {
    fn next_at_ns(&mut self) -> Option<MonoNs> {
        (self.left > 0).then(|| self.source.next_at_ns()).flatten()
    }

    fn take(&mut self) -> Option<Due> {
        if self.left == 0 {
            return None;
        }
        let due = self.source.take()?;
        self.left -= u64::from(due.phase == MEASURE);
        Some(due)
    }

    fn ended(&mut self, session: usize, now_ns: MonoNs, answered: bool) {
        self.source.ended(session, now_ns, answered);
    }

    fn is_over(&mut self) -> bool {
        self.left == 0 || self.source.is_over()
    }

    fn abandon(&mut self) -> u64 {
        let left = std::mem::take(&mut self.left);
        self.source.abandon().min(left)
    }
}

/// Ends another source as soon as `end` is set. The engine still waits for the open requests.
#[derive(Debug)]
pub struct Ending<S> {
    source: S,
    end: Arc<AtomicBool>,
}

impl<S: Source> Ending<S> {
    /// `source` until `end` is set.
    #[must_use]
    pub fn new(source: S, end: Arc<AtomicBool>) -> Self {
        Self { source, end }
    }

    fn has_ended(&self) -> bool {
        self.end.load(Ordering::Acquire)
    }
}

impl<S: Source> Source for Ending<S> {
    fn next_at_ns(&mut self) -> Option<MonoNs> {
        (!self.has_ended())
            .then(|| self.source.next_at_ns())
            .flatten()
    }

    fn take(&mut self) -> Option<Due> {
        (!self.has_ended()).then(|| self.source.take()).flatten()
    }

    fn ended(&mut self, session: usize, now_ns: MonoNs, answered: bool) {
        self.source.ended(session, now_ns, answered);
    }

    fn is_over(&mut self) -> bool {
        self.has_ended() || self.source.is_over()
    }

    fn abandon(&mut self) -> u64 {
        if self.has_ended() {
            0
        } else {
            self.source.abandon()
        }
    }
}

impl Source for Box<dyn Source> {
    fn next_at_ns(&mut self) -> Option<MonoNs> {
        (**self).next_at_ns()
    }

    fn take(&mut self) -> Option<Due> {
        (**self).take()
    }

    fn ended(&mut self, session: usize, now_ns: MonoNs, answered: bool) {
        (**self).ended(session, now_ns, answered);
    }

    fn is_over(&mut self) -> bool {
        (**self).is_over()
    }

    fn abandon(&mut self) -> u64 {
        (**self).abandon()
    }
}

/// Sessions, and the connections that they share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sessions {
    /// How many there are.
    pub sessions: usize,
    /// Connections: session `s` has connection `s % links`.
    pub links: usize,
}

impl Sessions {
    pub(crate) fn due(self, session: usize, intended_ns: MonoNs, phase: u8, flags: u8) -> Due {
        Due {
            intended_ns,
            op: 0,
            phase,
            flags,
            level: None,
            links: vec![session % self.links],
            session,
            step: None,
            waited: false,
            expired: false,
        }
    }
}

/// An open loop: the schedule does not wait for answers. Sessions are used in turn.
#[derive(Debug)]
pub struct OpenSource<I: Iterator<Item = u64>> {
    offsets: std::iter::Peekable<I>,
    phases: Phases,
    flags: u8,
    sessions: Sessions,
    next_session: usize,
}

impl<I: Iterator<Item = u64>> OpenSource<I> {
    /// A schedule, in nanoseconds from the start, over these sessions.
    #[must_use]
    pub fn new(schedule: I, sessions: Sessions, flags: u8, phases: Phases) -> Self {
        Self {
            offsets: schedule.peekable(),
            phases,
            flags,
            sessions,
            next_session: 0,
        }
    }
}

impl<I: Iterator<Item = u64> + Send> Source for OpenSource<I> {
    fn next_at_ns(&mut self) -> Option<MonoNs> {
        let offset_ns = DurationNs::from_unsigned(*self.offsets.peek()?);
        let at_ns = self.phases.start_ns.saturating_add(offset_ns);
        (at_ns < self.phases.end_ns).then_some(at_ns)
    }

    fn take(&mut self) -> Option<Due> {
        let intended_ns = self.next_at_ns()?;
        self.offsets.next();
        let session = self.next_session;
        self.next_session = (session + 1) % self.sessions.sessions;
        Some(self.sessions.due(
            session,
            intended_ns,
            self.phases.phase_of(intended_ns),
            self.flags,
        ))
    }

    fn is_over(&mut self) -> bool {
        self.next_at_ns().is_none()
    }

    fn abandon(&mut self) -> u64 {
        let mut count = 0;
        while self.next_at_ns().is_some() {
            self.offsets.next();
            count += 1;
        }
        count
    }
}

/// A closed loop: each session sends, waits for the answer, thinks, and sends again.
#[derive(Debug)]
pub struct ClosedSource {
    due: BinaryHeap<Reverse<(MonoNs, usize)>>,
    pace: ClosedLoop,
    thinks: Vec<ThinkTimes>,
    phases: Phases,
    flags: u8,
    sessions: Sessions,
    waiting: usize,
}

impl ClosedSource {
    /// The first requests are spread over one think time.
    #[must_use]
    pub fn new(
        arrivals: &Arrivals,
        mut pace: ClosedLoop,
        seed: u64,
        sessions: Sessions,
        flags: u8,
        phases: Phases,
        portion: Portion,
    ) -> Self {
        let mut thinks: Vec<ThinkTimes> = (0..sessions.sessions as u64)
            .map(|session| arrivals.think_times(seed, portion.place(session)))
            .collect();
        let due = thinks
            .iter_mut()
            .enumerate()
            .filter_map(|(session, think)| {
                let think = Length(think.next().unwrap_or(0));
                let asks_ns = phases.asks(&mut pace, session, phases.start_ns, think)?;
                Some(Reverse((asks_ns, session)))
            })
            .collect();
        Self {
            due,
            pace,
            thinks,
            phases,
            flags,
            sessions,
            waiting: 0,
        }
    }
}

impl Source for ClosedSource {
    fn next_at_ns(&mut self) -> Option<MonoNs> {
        let Reverse((at_ns, _)) = *self.due.peek()?;
        (at_ns < self.phases.end_ns).then_some(at_ns)
    }

    fn take(&mut self) -> Option<Due> {
        let intended_ns = self.next_at_ns()?;
        let Reverse((_, session)) = self.due.pop()?;
        self.waiting += 1;
        Some(self.sessions.due(
            session,
            intended_ns,
            self.phases.phase_of(intended_ns),
            self.flags,
        ))
    }

    fn ended(&mut self, session: usize, now_ns: MonoNs, _answered: bool) {
        self.waiting = self.waiting.saturating_sub(1);
        let think = Length(self.thinks[session].next().unwrap_or(0));
        let asks_ns = self.phases.asks(&mut self.pace, session, now_ns, think);
        self.due
            .extend(asks_ns.map(|at_ns| Reverse((at_ns, session))));
    }

    fn is_over(&mut self) -> bool {
        self.waiting == 0 && self.next_at_ns().is_none()
    }

    fn abandon(&mut self) -> u64 {
        let end_ns = self.phases.end_ns;
        let due = self
            .due
            .drain()
            .filter(|Reverse((at_ns, _))| *at_ns < end_ns);
        due.count() as u64
    }
}

#[cfg(test)]
mod tests {
    use unruly_plan::{Plan, Workload};

    use super::*;

    const SECOND: DurationNs = DurationNs::seconds(1);

    fn phases(warmup_s: u64, duration_s: u64) -> Phases {
        let seconds = |count: u64| unruly_plan::DurationNs(count * 1_000_000_000);
        Phases::new(MonoNs(0), seconds(warmup_s), seconds(duration_s))
    }

    /// So many sessions, each with a connection of its own.
    fn each(count: usize) -> Sessions {
        Sessions {
            sessions: count,
            links: count,
        }
    }

    fn mesh(text: &str) -> (Mesh, u64) {
        let plan = format!("name = \"t\"\n[run]\nduration = \"60s\"\n[mesh]\n{text}");
        let plan = Plan::parse("plan.toml", &plan).expect("the plan is one");
        match plan.load {
            unruly_plan::Load::Mesh(mesh) => (mesh, plan.seed),
            _ => panic!("a mesh was asked for"),
        }
    }

    fn all(source: &mut dyn Source) -> Vec<Due> {
        std::iter::from_fn(|| source.take()).collect()
    }

    #[test]
    fn workloads_come_in_turn_one_a_period() {
        let (mesh, seed) = mesh("agents = 3\ngroups = [3]\nworkloads = [\"null\", \"crypto\"]");
        let found = all(&mut MeshSource::new(mesh.clone(), seed, 1, phases(0, 10)));
        let ops: Vec<u8> = found.iter().map(|due| due.op).collect();
        assert_eq!(ops, [0, 1, 0, 1, 0, 1, 0, 1, 0, 1]);
        let crypto = Workload::Crypto.flags();
        assert!(
            found
                .iter()
                .all(|due| (due.flags == crypto) == (due.op == 1))
        );
        for (tick, due) in (0_i64..).zip(&found) {
            assert_eq!((due.intended_ns - MonoNs(0)) / SECOND, tick);
        }
    }

    #[test]
    fn groups_are_drawn_anew_each_epoch_and_hold_the_agent_itself() {
        let (mesh, seed) =
            mesh("agents = 9\ngroups = [3]\nregroup = \"5s\"\nworkloads = [\"null\"]");
        let mut drawn = Vec::new();
        for due in all(&mut MeshSource::new(mesh, seed, 4, phases(0, 60))) {
            assert!(due.links.contains(&4));
            assert_eq!(due.links.len(), 3);
            let epoch = (due.intended_ns - MonoNs(0)) / (SECOND * 5);
            drawn.push((epoch, due.links));
        }
        let within = drawn.windows(2).filter(|pair| pair[0].0 == pair[1].0);
        assert!(within.clone().count() > 40);
        for pair in within {
            assert_eq!(pair[0].1, pair[1].1);
        }
        drawn.dedup();
        assert_eq!(drawn.len(), 12);
        let distinct: std::collections::BTreeSet<_> =
            drawn.into_iter().map(|(_, links)| links).collect();
        assert!(distinct.len() > 6);
    }

    #[test]
    fn requests_before_the_end_of_the_warmup_are_of_it() {
        let arrivals = Arrivals::Constant {
            rate: "10/s".parse().expect("a rate"),
        };
        let found = all(&mut OpenSource::new(
            arrivals.schedule(1, 0),
            each(2),
            0,
            phases(3, 5),
        ));
        assert_eq!(found.iter().filter(|due| due.phase == 0).count(), 30);
        assert_eq!(found.iter().filter(|due| due.phase == 1).count(), 50);
        assert!(
            found
                .iter()
                .all(|due| (due.intended_ns < MonoNs(0) + SECOND * 3) == (due.phase == 0))
        );
        let links: Vec<usize> = found.iter().flat_map(|due| due.links.clone()).collect();
        assert_eq!(links[..4], [0, 1, 0, 1]);
    }

    #[test]
    fn sessions_of_a_closed_loop_share_their_connections_and_wait_alone() {
        let arrivals = Arrivals::Closed {
            think: unruly_plan::DurationNs(0),
            bursts: None,
        };
        let sessions = Sessions {
            sessions: 4,
            links: 2,
        };
        let mut closed = ClosedSource::new(
            &arrivals,
            ClosedLoop::default(),
            1,
            sessions,
            0,
            phases(0, 60),
            Portion::WHOLE,
        );
        let first = all(&mut closed);
        let taken: Vec<(usize, usize)> = first
            .iter()
            .map(|due| (due.session, due.links[0]))
            .collect();
        assert_eq!(taken, [(0, 0), (1, 1), (2, 0), (3, 1)]);
        closed.ended(2, MonoNs(5), true);
        let next = all(&mut closed);
        assert_eq!(next.iter().map(|due| due.session).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn a_limit_counts_measured_requests_only_and_then_ends_the_schedule() {
        let arrivals = Arrivals::Constant {
            rate: "10/s".parse().expect("a rate"),
        };
        let open = OpenSource::new(arrivals.schedule(1, 0), each(1), 0, phases(3, 5));
        let mut limited = Limited::new(open, 7);
        let found = all(&mut limited);
        assert_eq!(found.iter().filter(|due| due.phase == 0).count(), 30);
        assert_eq!(found.iter().filter(|due| due.phase == 1).count(), 7);
        assert!(limited.is_over());
        assert_eq!(limited.next_at_ns(), None);
    }

    #[test]
    fn what_is_abandoned_was_in_the_schedule_and_is_counted_once() {
        let open = |requests| {
            let schedule = (0..).map(|it| it * 1_000_000_000);
            let source = OpenSource::new(schedule, each(2), 0, phases(1, 4));
            Limited::new(Box::new(source) as Box<dyn Source>, requests)
        };
        for (most, all_of_them) in [(10, 5), (2, 3)] {
            let mut source = open(most);
            assert!(source.take().is_some());
            assert_eq!(source.abandon(), all_of_them - 1);
            assert!(source.is_over());
            assert_eq!((source.take(), source.abandon()), (None, 0));
        }
        let think = Arrivals::Closed {
            think: unruly_plan::DurationNs(0),
            bursts: None,
        };
        let mut source = ClosedSource::new(
            &think,
            ClosedLoop::default(),
            1,
            each(3),
            0,
            phases(0, 1),
            Portion::WHOLE,
        );
        let first = source.take().expect("it is due");
        assert_eq!(source.abandon(), 2);
        assert!(!source.is_over(), "the first is still open");
        source.ended(first.session, MonoNs(0) + SECOND * 2, true);
        assert!(source.is_over());
    }

    #[test]
    fn a_source_that_is_ended_gives_no_more() {
        let arrivals = Arrivals::Constant {
            rate: "10/s".parse().expect("a rate"),
        };
        let open = OpenSource::new(arrivals.schedule(1, 0), each(1), 0, phases(0, 5));
        let end = Arc::new(AtomicBool::new(false));
        let mut ending = Ending::new(open, Arc::clone(&end));
        assert!(ending.take().is_some());
        end.store(true, Ordering::Release);
        assert!(ending.is_over());
        assert_eq!((ending.next_at_ns(), ending.take().is_none()), (None, true));
    }

    #[test]
    fn a_closed_loop_waits_for_the_answer_and_then_thinks() {
        let think_ns = 40_000_000;
        let arrivals = Arrivals::Closed {
            think: unruly_plan::DurationNs(think_ns),
            bursts: None,
        };
        let mut closed = ClosedSource::new(
            &arrivals,
            ClosedLoop::default(),
            1,
            each(1),
            0,
            phases(0, 60),
            Portion::WHOLE,
        );
        let mut thought_ns = DurationNs::ZERO;
        let mut now_ns = MonoNs(0);
        for _ in 0..1_000 {
            let due = closed.take().expect("a request is due");
            assert_eq!(due.links, [0]);
            assert!(due.intended_ns >= now_ns);
            thought_ns += due.intended_ns - now_ns;
            // nothing more until the answer came
            assert_eq!(closed.next_at_ns(), None);
            assert!(!closed.is_over());
            now_ns = due.intended_ns + DurationNs::millis(1);
            closed.ended(0, now_ns, true);
        }
        let mean_ns = thought_ns / 1_000;
        let wanted_ns = DurationNs::from_unsigned(think_ns);
        // the mean of a thousand exponential times is within 10 % of theirs
        assert!((mean_ns - wanted_ns).abs() < wanted_ns / 10, "{mean_ns:?}");
    }
}
