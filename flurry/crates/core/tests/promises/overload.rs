//! Servers that answer slowly, because their processors are busy, are not asked ever more.

#![expect(clippy::unwrap_used, reason = "a test ends where a helper fails")]

use std::collections::VecDeque;

use crate::common::{Cluster, Letter, owner_params, server};
use bytes::Bytes;
use flurry_core::config::Level;
use flurry_core::id::{DurationNs, MonoNs, WallNs};
use flurry_core::key_value::Operation;
use flurry_core::message::{Copies, Message};
use flurry_core::portal::{Event, Outcome, Portal, PortalParams, Submission};

/// Operations that a client has under way.
const UNDER_WAY: usize = 512;

/// Time that a server takes for a copy, whether it had it before or not.
const SERVICE: DurationNs = DurationNs::micros(400);

const SECONDS: u64 = 3;

/// Three servers with queues: copies wait until those before them are done.
struct Queues {
    cluster: Cluster,
    waiting: [VecDeque<Letter>; 3],
    free_at: [MonoNs; 3],
    copies: usize,
    done: usize,
    next_key: usize,
}

impl Queues {
    fn new() -> Self {
        let mut cluster = Cluster::of((0..3).map(|id| server(id, 1)).collect());
        let params = PortalParams {
            operations_max: 10_000,
            bytes_max: 1 << 24,
            keys_max: 10_000,
            ..owner_params(2, Copies::Count(1))
        };
        cluster.portal = Portal::new(cluster.now, params);
        cluster.pass(DurationNs::millis(2_500));
        assert!(cluster.portal.is_open());
        cluster.events.clear();
        Self {
            free_at: [cluster.now; 3],
            cluster,
            waiting: Default::default(),
            copies: 0,
            done: 0,
            next_key: 0,
        }
    }

    fn submit(&mut self, operation: &Operation) {
        let submission = Submission {
            key: Bytes::from(format!("key {}", self.next_key % 1_000)),
            operation: operation.encode(),
            access: operation.access(),
            level: Level::First,
            at: WallNs(i64::try_from(self.cluster.now.0).unwrap()),
            timeout: DurationNs::millis(10_000),
            sequence: None,
            refuses_doubt: false,
        };
        self.next_key += 1;
        let now = self.cluster.now;
        self.cluster.portal.submit(now, submission).unwrap();
    }

    /// Delivers all but the requests that wait for their server.
    fn move_on(&mut self) {
        loop {
            for (place, waiting) in self.waiting.iter_mut().enumerate() {
                while self.free_at[place] <= self.cluster.now
                    && let Some(letter) = waiting.pop_front()
                {
                    let begins = self.free_at[place];
                    self.free_at[place] = begins.after(SERVICE);
                    self.cluster.deliver(letter);
                }
                if waiting.is_empty() {
                    self.free_at[place] = self.free_at[place].max(self.cluster.now);
                }
            }
            self.cluster.collect();
            if self.cluster.letters.is_empty() {
                return;
            }
            while let Some(letter) = self.cluster.letters.pop_front() {
                if letter.1 < 3 && matches!(letter.2, Message::Request(_)) {
                    self.copies += 1;
                    self.waiting[usize::try_from(letter.1).unwrap()].push_back(letter);
                } else {
                    self.cluster.deliver(letter);
                }
            }
        }
    }

    /// Keeps as many operations under way as a client with very many keys does.
    fn burden(&mut self, operation: &Operation) {
        let end = self.cluster.now.after(DurationNs::millis(SECONDS * 1_000));
        let mut under_way = 0;
        while self.cluster.now < end {
            while under_way < UNDER_WAY {
                self.submit(operation);
                under_way += 1;
            }
            self.cluster.tick();
            self.move_on();
            for event in std::mem::take(&mut self.cluster.events) {
                if let Event::Answered(_, outcome) = event {
                    assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
                    under_way -= 1;
                    self.done += 1;
                }
            }
        }
    }
}

#[test]
fn slow_servers_do_what_they_can_because_few_copies_are_repeated() {
    let possible = usize::try_from(SECONDS * 1_000_000_000 / SERVICE.0).unwrap();
    for operation in [Operation::Get, Operation::set(Bytes::from_static(b"value"))] {
        let mut queues = Queues::new();
        queues.burden(&operation);
        let (done, copies) = (queues.done, queues.copies);
        // A queue is longer than the longest time before a copy is repeated: a router that goes by
        // that alone has servers execute the same copies again and again.
        assert!(
            3 * done > 2 * possible,
            "{done} of {possible} {operation:?}"
        );
        assert!(copies < 6 * done, "{copies} copies of {done} {operation:?}");
    }
}
