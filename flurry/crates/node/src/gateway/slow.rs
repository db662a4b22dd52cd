//! Keeps the slowest commands of late for `SLOWLOG`.

use std::collections::VecDeque;
use std::net::SocketAddr;

use bytes::Bytes;
use flurry_core::decimal::decimal;
use flurry_core::id::{DurationNs, WallNs};
use flurry_core::resp::{Reply, error};

use super::keys::NS_PER_MS;

/// Time from which a command is slow, as in Redis.
const SLOW: DurationNs = DurationNs::millis(10);

/// Commands that are kept, as in Redis.
const KEPT_MAX: usize = 128;

/// The longest part of a key that is kept, in bytes.
const KEY_BYTES_MAX: usize = 128;

/// A command that has got its reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finished {
    pub(super) name: &'static str,
    /// The first key.
    pub(super) key: Bytes,
    pub(super) keys: usize,
    /// The owner's time of the command.
    pub(super) at: WallNs,
}

#[derive(Debug)]
struct Entry {
    number: i64,
    finished: Finished,
    took: DurationNs,
    address: String,
    client: String,
}

/// The slow commands of late, the last first.
#[derive(Debug, Default)]
pub(super) struct Slow {
    entries: VecDeque<Entry>,
    next: i64,
}

impl Slow {
    /// Notes a command if it was slow.
    pub(super) fn note(
        &mut self,
        finished: &Finished,
        now: WallNs,
        address: SocketAddr,
        client: &str,
    ) {
        let took = DurationNs(u64::try_from(now.0 - finished.at.0).unwrap_or(0));
        if took < SLOW {
            return;
        }
        let part = finished.key.len().min(KEY_BYTES_MAX);
        let key = Bytes::copy_from_slice(&finished.key[..part]);
        self.entries.truncate(KEPT_MAX - 1);
        self.entries.push_front(Entry {
            number: self.next,
            finished: Finished {
                key,
                ..finished.clone()
            },
            took,
            address: address.to_string(),
            client: client.chars().take(KEY_BYTES_MAX).collect(),
        });
        self.next += 1;
    }

    /// Answers `SLOWLOG`.
    pub(super) fn answer(&mut self, words: &[Bytes]) -> Reply {
        match (words[0].to_ascii_lowercase().as_slice(), &words[1..]) {
            (b"get", []) => self.listed(10),
            (b"get", [count]) => match decimal(count) {
                Some(-1) => self.listed(KEPT_MAX),
                Some(count) => match usize::try_from(count) {
                    Ok(count) => self.listed(count),
                    Err(_) => error("ERR count should be greater than or equal to -1"),
                },
                None => error("ERR value is not an integer or out of range"),
            },
            (b"len", []) => Reply::Integer(i64::try_from(self.entries.len()).unwrap_or(i64::MAX)),
            (b"reset", []) => {
                self.entries.clear();
                Reply::Status("OK")
            }
            (name @ (b"get" | b"len" | b"reset"), _) => {
                let name = String::from_utf8_lossy(name);
                super::dispatcher::wrong_number(&format!("slowlog|{name}"))
            }
            _ => super::about::unknown_subcommand("slowlog", &words[0]),
        }
    }

    fn listed(&self, most: usize) -> Reply {
        Reply::Array(self.entries.iter().take(most).map(Entry::told).collect())
    }
}

impl Entry {
    fn told(&self) -> Reply {
        let it = &self.finished;
        let mut words = vec![
            Reply::text(it.name.to_uppercase()),
            Reply::Bulk(it.key.clone()),
        ];
        if it.keys > 1 {
            words.push(Reply::text(format!("... ({} more keys)", it.keys - 1)));
        }
        Reply::Array(vec![
            Reply::Integer(self.number),
            Reply::Integer(it.at.0 / (1_000 * NS_PER_MS)),
            Reply::Integer(i64::try_from(self.took.0 / 1_000).unwrap_or(i64::MAX)),
            Reply::Array(words),
            Reply::text(self.address.clone()),
            Reply::text(self.client.clone()),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(slow: &mut Slow, key: &'static str, took_ms: i64) {
        let finished = Finished {
            name: "get",
            key: Bytes::from_static(key.as_bytes()),
            keys: 1,
            at: WallNs(7_000 * NS_PER_MS),
        };
        let now = WallNs((7_000 + took_ms) * NS_PER_MS);
        slow.note(&finished, now, SocketAddr::from(([127, 0, 0, 1], 7)), "me");
    }

    fn ask(slow: &mut Slow, line: &str) -> Reply {
        let words: Vec<Bytes> = line
            .split(' ')
            .map(|it| Bytes::from(it.to_owned()))
            .collect();
        slow.answer(&words)
    }

    #[test]
    fn only_slow_commands_are_kept_the_last_first_and_no_more_than_a_few() {
        let mut slow = Slow::default();
        note(&mut slow, "quick", 9);
        for _ in 0..KEPT_MAX {
            note(&mut slow, "old", 10);
        }
        note(&mut slow, "last", 11);
        assert_eq!(ask(&mut slow, "len"), Reply::Integer(128));
        let Reply::Array(found) = ask(&mut slow, "GET 1") else {
            panic!("the list is an array");
        };
        let wanted = Reply::Array(vec![
            Reply::Integer(128),
            Reply::Integer(7),
            Reply::Integer(11_000),
            Reply::Array(vec![Reply::text("GET"), Reply::text("last")]),
            Reply::text("127.0.0.1:7"),
            Reply::text("me"),
        ]);
        assert_eq!(found, [wanted]);
        assert_eq!(ask(&mut slow, "reset"), Reply::Status("OK"));
        assert_eq!(ask(&mut slow, "get"), Reply::Array(Vec::new()));
    }
}
