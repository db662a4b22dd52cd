//! What each session of a store does next: drawn from the seed, so that a run can be had again.

use rand_distr::{Distribution as _, Zipf};

use crate::portion::Portion;
use crate::random::{Purpose, Random};
use crate::store::{KeyOrder, OperationKind, Operations, Store, ValueSize};

/// One operation on one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// What is done.
    pub kind: OperationKind,
    /// The key's number, from 0.
    pub key: u64,
    /// Length of the value, for a write.
    pub value_bytes: usize,
}

/// Chooses for all sessions of one process.
#[derive(Clone, Debug)]
pub struct Choices {
    operations: Operations,
    keys: u64,
    order: KeyOrder,
    zipf: Option<Zipf<f64>>,
    value: ValueSize,
    sessions: Vec<Session>,
    /// Writes of the `latest` order so far.
    written: u64,
    /// Which sessions and keys of all these are.
    portion: Portion,
}

#[derive(Clone, Debug)]
struct Session {
    random: Random,
    /// The next key in turn.
    turn: u64,
    /// The key at hand, and the next of the operations in turn.
    key: u64,
    step: usize,
}

impl Choices {
    /// The choices of `sessions` sessions of a process, which has keys of its own: so it knows what each of
    /// them may hold.
    #[must_use]
    pub fn new(store: &Store, seed: u64, sessions: usize, portion: Portion) -> Self {
        let keys = portion.count(store.keys).max(1);
        let session = |number: u64| Session {
            random: Random::new(Purpose::Choice, seed, portion.place(number)),
            turn: number % keys,
            key: 0,
            step: 0,
        };
        let skewed = matches!(store.order, KeyOrder::Zipf | KeyOrder::Latest);
        Self {
            operations: store.operations.clone(),
            keys,
            order: store.order,
            zipf: skewed
                .then(|| Zipf::new(keys as f64, store.skew).ok())
                .flatten(),
            value: store.value,
            sessions: (0..sessions as u64).map(session).collect(),
            written: 0,
            portion,
        }
    }

    /// What a session does next.
    ///
    /// # Panics
    ///
    /// When there is no such session.
    pub fn next(&mut self, session: usize) -> Choice {
        let stride = self.sessions.len() as u64;
        let state = &mut self.sessions[session];
        let (kind, anew) = match &self.operations {
            Operations::Turn(kinds) => {
                let anew = state.step == 0;
                let kind = kinds[state.step];
                state.step = (state.step + 1) % kinds.len();
                (kind, anew)
            }
            Operations::Shares(shares) => {
                let mut left = state.random.share() * 100.0;
                let found = shares.iter().find(|(_, percent)| {
                    left -= percent;
                    left < 0.0
                });
                // The shares may fall short of 100 by a rounding.
                (
                    found
                        .or_else(|| shares.last())
                        .map_or(OperationKind::Read, |it| it.0),
                    true,
                )
            }
        };
        if anew {
            let rank = |random: &mut Random| match &self.zipf {
                Some(zipf) => whole(zipf.sample(random.generator())) - 1,
                None => random.below(self.keys),
            };
            state.key = match self.order {
                KeyOrder::Turn => {
                    let key = state.turn;
                    state.turn = in_turn(key, stride, self.keys);
                    key
                }
                KeyOrder::Uniform | KeyOrder::Zipf => rank(&mut state.random),
                KeyOrder::Latest if kind == OperationKind::Write => {
                    self.written += 1;
                    (self.written - 1) % self.keys
                }
                KeyOrder::Latest => {
                    let newest = self.written.saturating_sub(1) % self.keys;
                    (newest + self.keys - rank(&mut state.random)) % self.keys
                }
            };
        }
        Choice {
            kind,
            key: self.portion.place(state.key),
            value_bytes: state.value_bytes(self.value),
        }
    }

    /// How many keys there are to write before anything is read.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// The first write of the `own`-th of these keys, by a session.
    ///
    /// # Panics
    ///
    /// When there is no such session.
    pub fn first_write(&mut self, session: usize, own: u64) -> Choice {
        self.written = self.written.max(own + 1);
        Choice {
            kind: OperationKind::Write,
            key: self.portion.place(own),
            value_bytes: self.sessions[session].value_bytes(self.value),
        }
    }
}

/// Chooses among the operations that a plan names, for all sessions of one process.
#[derive(Clone, Debug)]
pub struct Mix {
    percents: Vec<f64>,
    sessions: Vec<Random>,
}

impl Mix {
    /// The choices of `sessions` sessions of a process; `None` where the plan names no operations.
    #[must_use]
    pub fn new(store: &Store, seed: u64, sessions: usize, portion: Portion) -> Option<Self> {
        let operations = store.sql.as_ref()?.script.operations();
        let session = |number| Random::new(Purpose::Choice, seed, portion.place(number));
        Some(Self {
            percents: operations.iter().map(|it| it.percent).collect(),
            sessions: (0..sessions as u64).map(session).collect(),
        })
    }

    /// The number of the operation that a session does next.
    ///
    /// # Panics
    ///
    /// When there is no such session.
    pub fn next(&mut self, session: usize) -> usize {
        let mut left = self.sessions[session].share() * 100.0;
        let found = self.percents.iter().position(|percent| {
            left -= percent;
            left < 0.0
        });
        // The shares may fall short of 100 by a rounding.
        found.unwrap_or_else(|| self.percents.len().saturating_sub(1))
    }
}

impl Session {
    fn value_bytes(&mut self, size: ValueSize) -> usize {
        match size {
            ValueSize::Fixed(size) => bytes(size.0),
            ValueSize::Uniform(least, most) => {
                bytes(least.0 + self.random.below(most.0 - least.0 + 1))
            }
        }
    }
}

/// The key of a session after `key`: sessions take every so-maniest one, and begin again where they
/// began, so that no two of them have one key at a time.
fn in_turn(key: u64, stride: u64, keys: u64) -> u64 {
    if key + stride < keys {
        key + stride
    } else {
        key % stride % keys
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rank from 1 to the number of keys, which are below 2^53"
)]
fn whole(rank: f64) -> u64 {
    (rank as u64).max(1)
}

fn bytes(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::tls::Tls;
    use crate::units::Bytes;

    fn store(operations: &str, order: KeyOrder, keys: u64) -> Store {
        Store {
            url: "null:".parse().expect("a url"),
            operations: operations.parse().expect("operations"),
            keys,
            order,
            skew: 0.99,
            value: ValueSize::Uniform(Bytes(10), Bytes(20)),
            level: None,
            pipeline: 1,
            retries: 0,
            preload: false,
            http: None,
            tls: Tls::default(),
            sql: None,
            message: None,
            keep: false,
            calls: None,
            spans: None,
        }
    }

    fn choices(operations: &str, order: KeyOrder, keys: u64, sessions: usize) -> Choices {
        let store = store(operations, order, keys);
        Choices::new(&store, 7, sessions, Portion::WHOLE)
    }

    #[test]
    fn sessions_share_no_key_in_turn_and_come_to_all_of_them() {
        let mut found = choices("write", KeyOrder::Turn, 10, 3);
        let mut keys: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for round in 0..12 {
            let session = round % 3;
            keys.entry(found.next(session).key)
                .or_default()
                .push(session);
        }
        assert_eq!(keys.len(), 10);
        assert!(
            keys.values()
                .all(|sessions| sessions.iter().all(|it| *it == sessions[0]))
        );
    }

    #[test]
    fn operations_in_turn_have_one_key() {
        let mut found = choices("write then read", KeyOrder::Uniform, 1_000, 1);
        let mut keys = Vec::new();
        for _ in 0..200 {
            let (write, read) = (found.next(0), found.next(0));
            assert_eq!(
                (write.kind, read.kind),
                (OperationKind::Write, OperationKind::Read)
            );
            assert_eq!(write.key, read.key);
            assert!((10..=20).contains(&write.value_bytes));
            keys.push(write.key);
        }
        keys.sort_unstable();
        keys.dedup();
        assert!(keys.len() > 150);
    }

    #[test]
    fn shares_are_kept() {
        let mut found = choices("read 90%, write 10%", KeyOrder::Uniform, 10, 1);
        let all = (0..20_000).map(|_| found.next(0));
        let writes = all.filter(|it| it.kind == OperationKind::Write).count();
        // Five standard errors are 212.
        assert!((1_788..=2_212).contains(&writes), "{writes}");
    }

    #[test]
    fn zipf_likes_the_first_keys_as_often_as_its_exponent_says() {
        let mut found = choices("read", KeyOrder::Zipf, 1_000, 1);
        let mut counts = vec![0_u32; 1_000];
        for _ in 0..200_000 {
            counts[usize::try_from(found.next(0).key).expect("fits")] += 1;
        }
        let weight = |rank: f64| rank.powf(-0.99);
        let sum: f64 = (1..=1_000).map(|rank| weight(f64::from(rank))).sum();
        for rank in [1_u32, 2, 10] {
            let wanted = 200_000.0 * weight(f64::from(rank)) / sum;
            let count = f64::from(counts[rank as usize - 1]);
            assert!(
                (count - wanted).abs() < 5.0 * wanted.sqrt(),
                "{rank}: {count} for {wanted}"
            );
        }
    }

    #[test]
    fn the_latest_order_reads_what_was_written_last() {
        let mut found = choices("read 50%, write 50%", KeyOrder::Latest, 100_000, 1);
        let (mut newest, mut near, mut reads) = (0, 0, 0);
        for _ in 0..20_000 {
            let choice = found.next(0);
            match choice.kind {
                OperationKind::Write => newest = choice.key,
                OperationKind::Read => {
                    reads += 1;
                    near += u32::from(newest.wrapping_sub(choice.key) < 10);
                }
            }
        }
        assert!(near * 5 > reads, "{near} of {reads} are of the last ten");
    }

    #[test]
    fn processes_share_no_key_and_have_all_of_them() {
        let mut seen = BTreeMap::new();
        for number in 0..3 {
            let store = store("write", KeyOrder::Uniform, 10);
            let mut own = Choices::new(&store, 7, 2, Portion::new(number, 3));
            for round in 0..200 {
                let by = seen.entry(own.next(round % 2).key).or_insert(number);
                assert_eq!(*by, number);
            }
            let first = own.first_write(0, own.keys() - 1).key;
            assert_eq!(seen.get(&first), Some(&number));
        }
        assert_eq!(
            seen.into_keys().collect::<Vec<_>>(),
            (0..10).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_seed_replays() {
        let all = |_: u8| {
            let mut found = choices("read 50%, write 50%", KeyOrder::Zipf, 100, 4);
            (0..100)
                .map(|round| found.next(round % 4))
                .collect::<Vec<_>>()
        };
        assert_eq!(all(0), all(1));
    }
}
