//! The scripts of well-known libraries for locks and rate limits, executed without Lua.
//!
//! A library sends the text of its script once, and later its digest. The gateway recognises the
//! text, whatever its spaces, comments and kind of quotes, and does the same as one operation.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use flurry_core::id::{DurationNs, WallNs};
use flurry_core::key_value::{Condition, ExpireCondition, Operation};
use flurry_core::resp::{Reply, error};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

use super::keys::{NS_PER_MS, Read, integer, one, positive_end};
use super::shape::{Base, Shape, Unit};

/// Maximum number of digests that the gateway keeps. The scripts are few, but each library writes
/// them in its own way.
const KEPT_MAX: usize = 256;

/// What a script does with its one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Script {
    /// Removes the key if its value is the first argument.
    DeleteIfEqual,
    /// Sets the time to live to the second argument, in ms, if the value is the first.
    ExpireIfEqual,
    /// Does the same, or adds to the time to live if the third argument is `0`.
    ExtendIfEqual,
    /// Sets the value to the first argument for the second in ms, if there is none.
    SetIfAbsent,
    /// Sets the value to the first argument for the second in ms, if that is the value already.
    SetIfEqual,
    /// Adds the second argument. The sum ends after the first in seconds if it began with this.
    CountInWindow,
    /// Adds the first argument to a number that ends after the second in seconds, and returns the
    /// sum and its time to live in ms.
    CountAndTtl,
}

/// SHA-1 digests of the texts that the gateway knows, as [`plain`] writes them.
#[rustfmt::skip]
const KNOWN: &[(&str, Script)] = &[
    ("16d4f25a8b1272dc33002e333ca708ee3f94da4e", Script::DeleteIfEqual), // redis-py, Lock.release
    ("278b7fc39f087c6276c7b7c08962022c4fe73ba6", Script::DeleteIfEqual), // Redis' manual, redlock-py
    ("872463717b9d8763339c3b80e81ba68c1dbb28c2", Script::DeleteIfEqual), // redlock 4 of Node.js
    ("b57b48d5536ae982a91ca9929e89a43a617db101", Script::ExpireIfEqual), // redis-py, Lock.reacquire
    ("43e9817a622cba86ea5a7b09b0c27646e33f4699", Script::ExpireIfEqual), // the manual's form of it
    ("bce326b8a0b21cc21af307b604335bbdd4e6ad86", Script::ExtendIfEqual), // redis-py, Lock.extend
    ("edd4ddecf1460b13c093d7cb4fd999c17d3d76d8", Script::SetIfAbsent),   // redlock 4
    ("ad59565c53ba1d8128343d84e98a5aaca5739479", Script::SetIfEqual),    // redlock 4
    ("bf12077f55316bcd91cb0bf13fe75a834ed20625", Script::CountInWindow), // limits 5, fixed window
    ("3dedcb4e5e5263e03678f70173356d1eee4df647", Script::CountAndTtl),   // rate-limiter-flexible 11
];

/// The digests of scripts that clients have sent.
#[derive(Debug, Default)]
pub(super) struct Scripts {
    sent: BTreeMap<String, Script>,
    /// The digests, oldest first.
    order: VecDeque<String>,
}

impl Scripts {
    /// Runs `EVAL` or `EVALSHA`; `words` are those behind the name.
    pub(super) fn read(&mut self, name: &str, words: &[Bytes], now: WallNs) -> Read {
        let script = if name == "eval" {
            self.learn(&words[0]).map(|(_, script)| script)
        } else {
            let sent = self.sent.get(&lower(&words[0])).copied();
            sent.ok_or_else(|| error("NOSCRIPT No matching script. Please use EVAL."))
        }?;
        if &words[1][..] != b"1" || words.len() < 3 {
            return Err(error("ERR the gateway runs this script with one key only"));
        }
        script.plan(&words[2], &words[3..], now)
    }

    /// Answers `SCRIPT`; `words` are those behind the name.
    pub(super) fn answer(&mut self, words: &[Bytes]) -> Reply {
        match (words[0].to_ascii_lowercase().as_slice(), &words[1..]) {
            (b"load", [text]) => match self.learn(text) {
                Ok((digest, _)) => Reply::text(digest),
                Err(refusal) => refusal,
            },
            (b"exists", digests @ [_, ..]) => {
                let known = |word: &Bytes| self.sent.contains_key(&lower(word));
                let number = |word| Reply::Integer(i64::from(known(word)));
                Reply::Array(digests.iter().map(number).collect())
            }
            // Nothing is saved by forgetting a few digests, which other clients may still use.
            (b"flush", _) => Reply::Status("OK"),
            _ => error("ERR unknown subcommand or wrong number of arguments for 'script' command"),
        }
    }

    /// Recognises the text of a script. Returns its digest.
    fn learn(&mut self, text: &[u8]) -> Result<(String, Script), Reply> {
        let plain = hex(&plain(text));
        let known = KNOWN.iter().find(|(digest, _)| *digest == plain);
        let &(_, script) = known.ok_or_else(|| {
            error(
                "ERR the gateway runs no Lua, only scripts of well-known libraries for locks and rate limits, and this is none of them",
            )
        })?;
        let digest = hex(text);
        if self.sent.insert(digest.clone(), script).is_none() {
            self.order.push_back(digest.clone());
        }
        if self.order.len() > KEPT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.sent.remove(&oldest);
        }
        Ok((digest, script))
    }
}

fn lower(word: &[u8]) -> String {
    String::from_utf8_lossy(word).to_ascii_lowercase()
}

fn hex(text: &[u8]) -> String {
    let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, text);
    let digits = digest.as_ref().iter().map(|byte| format!("{byte:02x}"));
    digits.collect()
}

/// Returns a script without comments and without spaces that mean nothing, and with one kind of
/// quotes.
fn plain(text: &[u8]) -> Vec<u8> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut out: Vec<u8> = Vec::with_capacity(text.len());
    for line in text.split(|byte| *byte == b'\n') {
        let comment = line.windows(2).position(|pair| pair == b"--");
        let mut spaced = true;
        for byte in &line[..comment.unwrap_or(line.len())] {
            if byte.is_ascii_whitespace() {
                spaced = true;
                continue;
            }
            let byte = if *byte == b'\'' { b'"' } else { *byte };
            if spaced && out.last().is_some_and(|last| is_word(*last)) && is_word(byte) {
                out.push(b' ');
            }
            spaced = false;
            out.push(byte);
        }
    }
    out
}

/// The arguments of a script, and the time from which it counts.
#[derive(Debug, Clone, Copy)]
struct Arguments<'a> {
    words: &'a [Bytes],
    now: WallNs,
}

impl<'a> Arguments<'a> {
    fn at(self, place: usize) -> Result<&'a Bytes, Reply> {
        let missing = || error(format!("ERR the script needs {} arguments", place + 1));
        self.words.get(place).ok_or_else(missing)
    }

    fn number(self, place: usize) -> Result<i64, Reply> {
        integer(self.at(place)?)
    }

    /// The milliseconds of an argument, which are at most those of 292 years.
    fn milliseconds(self, place: usize) -> Result<u64, Reply> {
        let longest = i64::MAX / NS_PER_MS;
        let given = u64::try_from(self.number(place)?.min(longest));
        given.map_err(|_| error("ERR invalid expire time in 'script' command"))
    }

    /// The time that an argument in this unit leads to.
    fn end(self, place: usize, unit: Unit) -> Result<WallNs, Reply> {
        positive_end(self.at(place)?, (unit, Base::Now), self.now, "script")
    }

    /// The operation, if the value is the first argument.
    fn if_equal(self, then: Operation) -> Result<Operation, Reply> {
        Ok(Operation::IfEqual {
            expected: self.at(0)?.clone(),
            then: Box::new(then),
        })
    }

    /// Sets the value to the first argument, for as many milliseconds as the second says.
    fn set(self, condition: Condition) -> Result<Operation, Reply> {
        Ok(Operation::Set {
            value: self.at(0)?.clone(),
            expires_at: Some(self.end(1, Unit::Milliseconds)?),
            condition,
        })
    }
}

fn expire(at: WallNs, condition: ExpireCondition) -> Operation {
    Operation::Expire {
        at: Some(at),
        condition,
        returns_value: false,
    }
}

impl Script {
    fn plan(self, key: &Bytes, words: &[Bytes], now: WallNs) -> Read {
        use ExpireCondition::{Always, Once};
        let given = Arguments { words, now };
        let (operation, shape) = match self {
            Self::DeleteIfEqual => (
                given.if_equal(Operation::Delete { counted: true })?,
                Shape::NumberOrZero,
            ),
            Self::ExpireIfEqual => {
                let then = expire(given.end(1, Unit::Milliseconds)?, Always);
                (given.if_equal(then)?, Shape::NumberOrZero)
            }
            Self::ExtendIfEqual => {
                let then = if &given.at(2)?[..] == b"0" {
                    let by = DurationNs::millis(given.milliseconds(1)?);
                    Operation::Prolong { by }
                } else {
                    expire(given.end(1, Unit::Milliseconds)?, Once)
                };
                (given.if_equal(then)?, Shape::NumberOrZero)
            }
            Self::SetIfAbsent => (given.set(Condition::Absent)?, Shape::StoredNumber),
            Self::SetIfEqual => {
                let then = given.set(Condition::Always)?;
                (given.if_equal(then)?, Shape::StoredNumber)
            }
            Self::CountInWindow => return count_in_window(key, given),
            Self::CountAndTtl => return count_and_ttl(key, given),
        };
        one(key, operation, shape)
    }
}

fn count_in_window(key: &Bytes, given: Arguments<'_>) -> Read {
    let amount = given.number(1)?;
    let begun = Operation::IfEqual {
        expected: Bytes::from(amount.to_string()),
        then: Box::new(expire(
            given.end(0, Unit::Seconds)?,
            ExpireCondition::Always,
        )),
    };
    let both = Operation::Several(vec![Operation::Increment(amount), begun]);
    one(key, both, Shape::Nth(0, Box::new(Shape::Number)))
}

fn count_and_ttl(key: &Bytes, given: Arguments<'_>) -> Read {
    let end = given.end(1, Unit::Seconds)?;
    let zero = Operation::Set {
        value: Bytes::from_static(b"0"),
        expires_at: Some(end),
        condition: Condition::Absent,
    };
    let all = Operation::Several(vec![
        zero,
        Operation::Increment(given.number(0)?),
        expire(end, ExpireCondition::Never),
        Operation::Expiry,
    ]);
    let ttl = Shape::Lives(Unit::Milliseconds, Base::Now);
    one(key, all, Shape::Each(vec![(1, Shape::Number), (3, ttl)]))
}

#[cfg(test)]
mod tests {
    use super::super::keys::Plan;
    use super::*;

    const RELEASE: &str = "
        -- Only the holder may release a lock.
        if redis.call('get', KEYS[1]) == ARGV[1]
        then
            return redis.call(\"del\",KEYS[1])
        else return  0 end";

    fn words(all: &[&str]) -> Vec<Bytes> {
        let word = |it: &&str| Bytes::copy_from_slice(it.as_bytes());
        all.iter().map(word).collect()
    }

    #[test]
    fn a_script_is_known_whatever_its_spaces_quotes_and_comments() {
        let mut scripts = Scripts::default();
        let (digest, script) = scripts.learn(RELEASE.as_bytes()).unwrap();
        assert_eq!(script, Script::DeleteIfEqual);
        let at = WallNs(1);
        let by_digest = scripts.read("evalsha", &words(&[&digest, "1", "k", "token"]), at);
        let by_text = scripts.read("eval", &words(&[RELEASE, "1", "k", "token"]), at);
        assert_eq!(by_digest, by_text);
        let Plan { steps, .. } = by_text.unwrap();
        let wanted = Operation::IfEqual {
            expected: Bytes::from_static(b"token"),
            then: Box::new(Operation::Delete { counted: true }),
        };
        assert_eq!(steps, [(Bytes::from_static(b"k"), wanted)]);
    }

    #[test]
    fn what_is_not_known_is_refused_and_changes_nothing() {
        let mut scripts = Scripts::default();
        let at = WallNs(1);
        for (name, line, wanted) in [
            (
                "eval",
                vec!["return 1", "1", "k"],
                "ERR the gateway runs no Lua",
            ),
            ("evalsha", vec!["ff", "1", "k"], "NOSCRIPT"),
            (
                "eval",
                vec![RELEASE, "2", "k", "l"],
                "ERR the gateway runs this script with one key",
            ),
            (
                "eval",
                vec![RELEASE, "1", "k"],
                "ERR the script needs 1 arguments",
            ),
        ] {
            match scripts.read(name, &words(&line), at) {
                Err(Reply::Error(text)) => assert!(text.starts_with(wanted), "{text}"),
                other => panic!("{other:?}"),
            }
        }
        let missing = Reply::Array(vec![Reply::Integer(0)]);
        assert_eq!(scripts.answer(&words(&["EXISTS", "ff"])), missing);
    }
}
