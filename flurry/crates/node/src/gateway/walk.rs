//! Walks through the keys of all servers, for `SCAN`, `KEYS` and `DBSIZE` and to remove expired
//! values.
//!
//! A walk starts when every replica has all writes that preceded it. From then on, the first of a
//! key's servers reports each key that stays, so the walk finds it once. When the configuration
//! changes meanwhile, the walk starts again and may report a key twice.

use bytes::Bytes;
use flurry_core::config::Config;
use flurry_core::id::{ConfigNumber, DurationNs, Endpoint, MonoNs, Sequence, ShardId, WallNs};
use flurry_core::message::{List, Listed, Owned};
use flurry_core::resp::{Reply, error};

use super::glob;

/// Time after which an unanswered question is repeated.
const ASK_AGAIN: DurationNs = DurationNs::millis(20);

/// Maximum number of bytes of keys that one walk collects.
const KEY_BYTES_MAX: usize = 64 << 20;

/// A `below` above every record: the first question starts at the end of the table.
const FROM_THE_END: u64 = u64::MAX >> 1;

/// The result that a walk collects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Goal {
    /// Some keys, and the position at which to continue.
    Some,
    /// All keys.
    All,
    /// The number of keys.
    Count,
    /// The keys of expired values.
    Ended,
}

/// The position at which a client continues: a configuration, a server in it, and the record below
/// which to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    number: u16,
    place: u16,
    below: u32,
}

impl Position {
    pub(super) const START: Self = Self {
        number: 0,
        place: 0,
        below: 0,
    };

    pub(super) fn of_cursor(cursor: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = cursor.to_be_bytes();
        Self {
            number: u16::from_be_bytes([a, b]),
            place: u16::from_be_bytes([c, d]),
            below: u32::from_be_bytes([e, f, g, h]),
        }
    }

    fn cursor(self) -> u64 {
        u64::from(self.number) << 48 | u64::from(self.place) << 32 | u64::from(self.below)
    }
}

/// The sessions whose keys a walk goes through.
#[derive(Debug, Clone)]
pub(super) struct Of {
    pub(super) sessions: Vec<Owned>,
    /// The owner's wall-clock time.
    pub(super) at: WallNs,
    /// Number of the last write up to which every replica has the owner's writes.
    pub(super) stable: u64,
    /// The same write, as numbered on the wire.
    pub(super) stable_sequence: Sequence,
}

/// A walk under way.
#[derive(Debug)]
pub(super) struct Walk {
    pub(super) goal: Goal,
    pattern: Option<Bytes>,
    /// See [`List::kind`].
    pub(super) kind: Option<u32>,
    /// Pause between two questions.
    pub(super) pause: DurationNs,
    /// Number of the write up to which every replica must have all writes before the walk starts.
    pub(super) after: u64,
    pub(super) until: MonoNs,
    /// Number of records that a server looks at for one answer.
    pub(super) records: u32,
    pub(super) position: Position,
    number: ConfigNumber,
    asked: Option<(MonoNs, Endpoint, List)>,
    /// Earliest time of the next question.
    next: MonoNs,
    /// True if the walk cannot go on before another event.
    waits: bool,
    keys: Vec<Bytes>,
    bytes: usize,
    count: i64,
    is_over: bool,
}

/// Returns every shard of every server that takes part.
fn places(config: &Config) -> Vec<Endpoint> {
    let members = config.members.iter().filter(|member| !member.gone);
    let shards = 0..config.shards;
    members
        .flat_map(|member| {
            shards.clone().map(|shard| Endpoint {
                server: member.server,
                shard: ShardId(shard),
            })
        })
        .collect()
}

impl Walk {
    pub(super) fn new(goal: Goal, after: u64, until: MonoNs) -> Self {
        Self {
            goal,
            pattern: None,
            kind: None,
            pause: DurationNs(0),
            after,
            until,
            records: List::RECORDS_MAX,
            position: Position::START,
            number: ConfigNumber(0),
            asked: None,
            next: MonoNs(0),
            waits: false,
            keys: Vec::new(),
            bytes: 0,
            count: 0,
            is_over: false,
        }
    }

    /// Limits the walk to keys that match this pattern.
    pub(super) fn of(mut self, pattern: Bytes) -> Self {
        self.pattern = Some(pattern);
        self
    }

    /// Returns the next question and the shard to ask, if one is to be sent now.
    pub(super) fn poll(
        &mut self,
        now: MonoNs,
        of: &Of,
        config: &Config,
    ) -> Option<(Endpoint, List)> {
        self.waits = of.stable < self.after;
        if self.waits || self.is_over || now < self.next {
            return None;
        }
        if self.number != config.number {
            self.begin(config);
        }
        if let Some((asked, _, _)) = self.asked
            && now.since(asked) < ASK_AGAIN
        {
            return None;
        }
        let all = places(config);
        let Some(endpoint) = all.get(usize::from(self.position.place)).copied() else {
            self.is_over = true;
            return None;
        };
        let question = List {
            sessions: of.sessions.clone(),
            stable: of.stable_sequence,
            config: config.number,
            at: of.at,
            ended: self.goal == Goal::Ended,
            below: match self.position.below {
                0 => FROM_THE_END,
                below => u64::from(below),
            },
            kind: self.kind,
            records: self.records,
        };
        self.asked = Some((now, endpoint, question.clone()));
        self.next = now.after(self.pause);
        Some((endpoint, question))
    }

    /// Starts in this configuration, or continues at the position of a client of the same
    /// configuration.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the low bits differ between successive configurations"
    )]
    fn begin(&mut self, config: &Config) {
        let number = config.number.0 as u16;
        if self.position.number != number || self.number != ConfigNumber(0) {
            self.position = Position {
                number,
                ..Position::START
            };
        }
        self.number = config.number;
        self.asked = None;
        self.keys.clear();
        (self.bytes, self.count) = (0, 0);
    }

    /// Handles an answer to the last question. Ignores any other answer.
    pub(super) fn handle(&mut self, listed: &Listed, places: usize) {
        let expected = self.asked.as_ref().is_some_and(|(_, from, question)| {
            (from, question) == (&listed.from, &listed.question)
        });
        if !expected {
            return;
        }
        self.asked = None;
        self.count += i64::try_from(listed.keys.len()).unwrap_or(i64::MAX);
        if self.goal != Goal::Count {
            let fits = |key: &&Bytes| {
                let pattern = self.pattern.as_ref();
                pattern.is_none_or(|pattern| glob::matches(pattern, key))
            };
            let found = listed.keys.iter().filter(fits).cloned();
            self.keys.extend(found);
            self.bytes += listed.keys.iter().map(Bytes::len).sum::<usize>();
        }
        match listed.next.and_then(|next| u32::try_from(next).ok()) {
            Some(next) => self.position.below = next,
            None => {
                self.position.place += 1;
                self.position.below = 0;
            }
        }
        let last = usize::from(self.position.place) >= places;
        self.is_over = last || self.goal == Goal::Some || self.bytes > KEY_BYTES_MAX;
        if last {
            self.position = Position::START;
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns the time at which the walk has to be polled again.
    pub(super) fn due(&self) -> MonoNs {
        let again = self
            .asked
            .as_ref()
            .map(|(asked, _, _)| asked.after(ASK_AGAIN));
        let next = if self.waits { self.until } else { self.next };
        again.unwrap_or(next).min(self.until)
    }

    /// Returns whether the keys have more bytes than one walk collects.
    pub(super) fn is_too_long(&self) -> bool {
        self.bytes > KEY_BYTES_MAX
    }

    /// Returns the keys found since the last call.
    pub(super) fn take_keys(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.keys)
    }

    /// Returns the reply for the client at the end of the walk.
    pub(super) fn reply(&mut self) -> Reply {
        if !self.is_over {
            return error(
                "TRYAGAIN keys: not all servers have reported theirs in time; hint: `flurry status` shows whether a server is missing",
            );
        }
        if self.is_too_long() {
            return error(format!(
                "ERR keys: they have more than {KEY_BYTES_MAX} bytes; wanted fewer in one reply; hint: use SCAN"
            ));
        }
        let keys =
            |walk: &mut Self| Reply::Array(walk.take_keys().into_iter().map(Reply::Bulk).collect());
        match self.goal {
            Goal::Count => Reply::Integer(self.count),
            Goal::All | Goal::Ended => keys(self),
            Goal::Some => {
                let cursor = self.position.cursor().to_string();
                Reply::Array(vec![Reply::text(cursor), keys(self)])
            }
        }
    }
}

/// Returns the number of shards that a walk asks.
pub(super) fn places_of(config: &Config) -> usize {
    places(config).len()
}

#[cfg(test)]
mod tests {
    use flurry_core::config::Member;
    use flurry_core::id::{Incarnation, ServerId};

    use super::*;

    fn config(number: u32, servers: u16) -> Config {
        let member = |server| Member {
            server: ServerId(server),
            incarnation: Incarnation(1),
            addresses: Vec::new(),
            gone: false,
            disk: None,
        };
        Config {
            number: ConfigNumber(number),
            replicas: 2,
            shards: 1,
            lease: crate::LEASE,
            members: (1..=servers).map(member).collect(),
            next: None,
            last_loss: ConfigNumber(0),
            last_majority_loss: ConfigNumber(0),
            last_wipe: ConfigNumber(0),
        }
    }

    fn ask(walk: &mut Walk, config: &Config, stable: u64) -> Option<(Endpoint, List)> {
        let of = Of {
            sessions: vec![Owned::default()],
            at: WallNs(0),
            stable,
            stable_sequence: Sequence(2 * stable),
        };
        walk.poll(MonoNs(0), &of, config)
    }

    fn answer(
        walk: &mut Walk,
        (from, question): (Endpoint, List),
        next: Option<u64>,
        keys: &[&'static str],
    ) {
        let keys = keys
            .iter()
            .map(|key| Bytes::from_static(key.as_bytes()))
            .collect();
        let listed = Listed {
            from,
            question,
            next,
            keys,
        };
        walk.handle(&listed, 2);
    }

    #[test]
    fn a_walk_waits_for_the_writes_before_it() {
        let mut walk = Walk::new(Goal::All, 7, MonoNs(u64::MAX));
        assert_eq!(ask(&mut walk, &config(1, 2), 6), None);
        assert!(ask(&mut walk, &config(1, 2), 7).is_some());
    }

    #[test]
    fn all_servers_are_asked_until_each_has_told_everything() {
        let config = config(1, 2);
        let mut walk = Walk::new(Goal::All, 0, MonoNs(u64::MAX));
        for (next, keys) in [(Some(9), &["a"][..]), (None, &["b"]), (None, &["c"])] {
            assert!(!walk.is_over());
            let asked = ask(&mut walk, &config, 0).unwrap();
            assert_eq!(ask(&mut walk, &config, 0), None, "one question at a time");
            answer(&mut walk, asked, next, keys);
        }
        assert!(walk.is_over());
        assert_eq!(walk.take_keys(), ["a", "b", "c"]);
    }

    #[test]
    fn a_client_goes_on_where_it_stopped_unless_the_servers_have_changed() {
        let old = config(3, 2);
        let mut walk = Walk::new(Goal::Some, 0, MonoNs(u64::MAX));
        let asked = ask(&mut walk, &old, 0).unwrap();
        answer(&mut walk, asked, Some(5), &["a"]);
        let cursor = walk.position.cursor();
        assert_ne!(cursor, 0, "0 would be the end");
        let go_on = |config: &Config| {
            let mut walk = Walk::new(Goal::Some, 0, MonoNs(u64::MAX));
            walk.position = Position::of_cursor(cursor);
            ask(&mut walk, config, 0).unwrap().1.below
        };
        assert_eq!(go_on(&old), 5);
        assert_eq!(go_on(&config(4, 2)), FROM_THE_END);
    }

    #[test]
    fn an_answer_to_something_else_is_nobody_s() {
        let config = config(1, 2);
        let mut walk = Walk::new(Goal::Count, 0, MonoNs(u64::MAX));
        let (from, question) = ask(&mut walk, &config, 0).unwrap();
        let other = List {
            below: 3,
            ..question
        };
        answer(&mut walk, (from, other), None, &["a"]);
        assert_eq!(walk.count, 0);
    }
}
