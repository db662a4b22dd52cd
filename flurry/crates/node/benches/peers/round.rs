//! A round: threads that each do one operation after the other, for a while.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use crate::store::{Items, Operation, Store};

/// Room for a round's latencies, so that a vector seldom grows while one runs.
const LATENCIES: usize = 1 << 17;

/// Number of failures after which a thread gives up, since each takes as long as the timeout.
const FAILURES_MAX: u64 = 20;

/// What a round is to do.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) operation: Operation,
    pub(crate) milliseconds: u64,
    /// Operations a second of all threads together, due whether or not the one before is answered;
    /// 0: the next follows the answer.
    pub(crate) rate: u32,
}

/// What came of it.
#[derive(Default)]
pub(crate) struct Done {
    pub(crate) latencies_ns: Vec<u64>,
    pub(crate) elapsed_ns: u64,
    pub(crate) failed: u64,
    pub(crate) failure: Option<String>,
}

/// Runs a thread for each connection.
pub(crate) fn run(connections: &mut [Box<dyn Store>], items: &Items, plan: Plan) -> Done {
    let threads = connections.len();
    let barrier = Barrier::new(threads);
    let parts: Vec<Done> = std::thread::scope(|scope| {
        let started: Vec<_> = connections
            .iter_mut()
            .enumerate()
            .map(|(thread, store)| {
                let barrier = &barrier;
                scope.spawn(move || {
                    let mut lane = Lane::new(plan, thread, threads);
                    barrier.wait();
                    lane.run(store.as_mut(), items);
                    lane.done
                })
            })
            .collect();
        started
            .into_iter()
            .map(|thread| match thread.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    });
    parts.into_iter().fold(Done::default(), |mut all, part| {
        all.latencies_ns.extend(part.latencies_ns);
        all.elapsed_ns = all.elapsed_ns.max(part.elapsed_ns);
        all.failed += part.failed;
        all.failure = all.failure.or(part.failure);
        all
    })
}

/// One thread's part.
struct Lane {
    plan: Plan,
    thread: usize,
    threads: usize,
    /// Between two operations that are due; none in a closed loop.
    interval: Option<Duration>,
    done: Done,
}

impl Lane {
    fn new(plan: Plan, thread: usize, threads: usize) -> Self {
        let share = u32::try_from(threads).unwrap_or(u32::MAX);
        Self {
            plan,
            thread,
            threads,
            interval: (plan.rate > 0).then(|| Duration::from_secs(1) * share / plan.rate),
            done: Done {
                latencies_ns: Vec::with_capacity(LATENCIES),
                ..Done::default()
            },
        }
    }

    fn run(&mut self, store: &mut dyn Store, items: &Items) {
        let start = Instant::now();
        let end = start + Duration::from_millis(self.plan.milliseconds);
        let mut due = start;
        let mut number = self.thread;
        let mut free = start;
        while free < end && due < end && self.done.failed < FAILURES_MAX {
            let asked = self.begin(due, free);
            let answer = self.plan.operation.call(store, items, number);
            free = Instant::now();
            match answer {
                Ok(()) => self.done.latencies_ns.push(nanoseconds(free - asked)),
                Err(error) => {
                    self.done.failed += 1;
                    self.done
                        .failure
                        .get_or_insert_with(|| format!("{error:#}"));
                }
            }
            number += self.threads;
            due += self.interval.unwrap_or_default();
        }
        self.done.elapsed_ns = nanoseconds(free - start);
    }

    /// Waits until an operation is due; when its latency counts from.
    ///
    /// An operation that had to wait for the one before counts from when it was due, as its user
    /// waits. One that the thread slept for counts from its beginning: how late a sleeper wakes is
    /// no store's doing.
    fn begin(&self, due: Instant, free: Instant) -> Instant {
        if self.interval.is_none() {
            return Instant::now();
        }
        if free > due {
            return due;
        }
        std::thread::sleep(due - free);
        Instant::now()
    }
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
