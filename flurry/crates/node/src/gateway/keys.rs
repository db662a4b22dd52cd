//! Translates a command on keys into operations, and names the form of its reply.

use bytes::Bytes;
use flurry_core::decimal::decimal;
use flurry_core::fixed::Fixed;
use flurry_core::id::WallNs;
use flurry_core::key_value::{Condition, ExpireCondition, HashOperation, Lifetime, Operation};
use flurry_core::resp::{Reply, error};

use super::about::unknown_subcommand;
use super::dispatcher::wrong_number;
use super::hashes;
use super::shape::{Base, Places, Shape, Unit, no_fraction, too_large};

/// Operations on keys, and the form in which their answers become one reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<(Bytes, Operation)>,
    pub(crate) shape: Shape,
}

/// Nanoseconds of a millisecond.
pub(super) const NS_PER_MS: i64 = 1_000_000;

/// Length limit of values in Redis. Values of a gateway have a lower limit, but a command that is
/// refused before its key is looked at gets the error text of Redis.
const OFFSET_MAX: i64 = 512 << 20;

pub(super) type Read = Result<Plan, Reply>;

fn syntax() -> Reply {
    error("ERR syntax error")
}

pub(super) fn integer(word: &[u8]) -> Result<i64, Reply> {
    decimal(word).ok_or_else(|| error("ERR value is not an integer or out of range"))
}

pub(super) fn one(key: &Bytes, operation: Operation, shape: Shape) -> Read {
    let steps = vec![(key.clone(), operation)];
    Ok(Plan { steps, shape })
}

fn each(keys: &[Bytes], operation: &Operation, shape: Shape) -> Read {
    let steps = keys.iter().map(|key| (key.clone(), operation.clone()));
    Ok(Plan {
        steps: steps.collect(),
        shape,
    })
}

/// Returns the expiry time for a number in this unit from this base, or `None` if it does not fit.
fn end(given: i64, unit: Unit, base: Base, now: WallNs) -> Option<WallNs> {
    let milliseconds = match unit {
        Unit::Seconds => given.checked_mul(1_000)?,
        Unit::Milliseconds => given,
    };
    let from_ms = match base {
        Base::Now => now.0 / NS_PER_MS,
        Base::Epoch => 0,
    };
    // Redis can represent later years than nanoseconds can. Such an expiry is the latest time
    // possible.
    let end_ms = milliseconds.checked_add(from_ms)?;
    Some(WallNs(end_ms.saturating_mul(NS_PER_MS)))
}

/// Returns the unit and base of an expiry option of SET and GETEX.
fn ending(option: &[u8]) -> Option<(Unit, Base)> {
    match option {
        b"EX" => Some((Unit::Seconds, Base::Now)),
        b"PX" => Some((Unit::Milliseconds, Base::Now)),
        b"EXAT" => Some((Unit::Seconds, Base::Epoch)),
        b"PXAT" => Some((Unit::Milliseconds, Base::Epoch)),
        _ => None,
    }
}

/// Returns the same as [`end`], for a command that refuses numbers that are not above 0.
pub(super) fn positive_end(
    word: &[u8],
    (unit, base): (Unit, Base),
    now: WallNs,
    command: &str,
) -> Result<WallNs, Reply> {
    let given = integer(word)?;
    let ends = (given > 0).then(|| end(given, unit, base, now)).flatten();
    ends.ok_or_else(|| error(format!("ERR invalid expire time in '{command}' command")))
}

/// Reads a command on keys. `name` is in lower case, and `words` are the words behind it. Returns
/// `None` if the command is not one on keys or has a wrong number of words.
pub(crate) fn read(name: &str, words: &[Bytes], now: WallNs) -> Option<Read> {
    let fits = |least: usize, most: usize| (least..=most).contains(&words.len());
    let exactly = |count: usize| words.len() == count;
    Some(match name {
        "get" if exactly(1) => one(&words[0], Operation::Get, Shape::Value),
        "getset" if exactly(2) => one(&words[0], exchange(&words[1], true), Shape::Value),
        "getdel" if exactly(1) => one(&words[0], Operation::Take, Shape::Value),
        "getex" if fits(1, usize::MAX) => get_and_expire(words, now),
        "set" if fits(2, usize::MAX) => set(words, now),
        "setnx" if exactly(2) => set_absent(words),
        "setex" if exactly(3) => set_until(words, Unit::Seconds, now, name),
        "psetex" if exactly(3) => set_until(words, Unit::Milliseconds, now, name),
        "mget" if fits(1, usize::MAX) => each(words, &Operation::Get, Shape::Values),
        "mset" if fits(2, usize::MAX) && words.len().is_multiple_of(2) => set_many(words),
        "incr" if exactly(1) => one(&words[0], Operation::Increment(1), Shape::Number),
        "decr" if exactly(1) => one(&words[0], Operation::Increment(-1), Shape::Number),
        "incrby" if exactly(2) => integer(&words[1])
            .and_then(|by| one(&words[0], Operation::Increment(by), Shape::Number)),
        "decrby" if exactly(2) => decrement(words),
        "incrbyfloat" if exactly(2) => increment_fraction(words),
        "object" if fits(1, usize::MAX) => object(words),
        "memory" if fits(1, usize::MAX) => memory(words),
        "append" if exactly(2) => one(
            &words[0],
            Operation::Append(words[1].clone()),
            Shape::Number,
        ),
        "strlen" if exactly(1) => one(&words[0], Operation::Get, Shape::Length),
        "getrange" | "substr" if exactly(3) => range(words),
        "setrange" if exactly(3) => set_range(words),
        "del" | "unlink" if fits(1, usize::MAX) => {
            each(words, &Operation::Delete { counted: true }, Shape::Count)
        }
        "delifeq" if exactly(2) => one(
            &words[0],
            if_equal(&words[1], Operation::Delete { counted: true }),
            Shape::NumberOrZero,
        ),
        "exists" | "touch" if fits(1, usize::MAX) => each(words, &Operation::Kind, Shape::Count),
        "type" if exactly(1) => one(&words[0], Operation::Kind, Shape::Type),
        "setbit" if exactly(3) => set_bit(words),
        "getbit" if exactly(2) => bit_offset(&words[1])
            .and_then(|place| one(&words[0], Operation::Get, Shape::Bit(place))),
        "bitcount" if fits(1, 4) => bit_count(words),
        "persist" if exactly(1) => one(
            &words[0],
            Operation::Expire {
                at: None,
                condition: ExpireCondition::Once,
                returns_value: false,
            },
            Shape::Number,
        ),
        "expire" | "pexpire" | "expireat" | "pexpireat" if fits(2, usize::MAX) => {
            expire(name, words, now)
        }
        "ttl" | "pttl" | "expiretime" | "pexpiretime" if exactly(1) => {
            let unit = if name.starts_with('p') {
                Unit::Milliseconds
            } else {
                Unit::Seconds
            };
            let base = if name.ends_with("time") {
                Base::Epoch
            } else {
                Base::Now
            };
            one(&words[0], Operation::Expiry, Shape::Lives(unit, base))
        }
        _ => return hashes::read(name, words),
    })
}

fn if_equal(expected: &Bytes, then: Operation) -> Operation {
    Operation::IfEqual {
        expected: expected.clone(),
        then: Box::new(then),
    }
}

/// Reads the place of a bit.
fn bit_offset(word: &[u8]) -> Result<usize, Reply> {
    let place = decimal(word).filter(|place| (0..8 * OFFSET_MAX).contains(place));
    let place = place.and_then(|place| usize::try_from(place).ok());
    place.ok_or_else(|| error("ERR bit offset is not an integer or out of range"))
}

fn set_bit(words: &[Bytes]) -> Read {
    let offset = bit_offset(&words[1])?;
    let on = match &words[2][..] {
        b"0" => false,
        b"1" => true,
        _ => return Err(error("ERR bit is not an integer or out of range")),
    };
    // Beyond the limit all places are alike.
    let offset = u32::try_from(offset).unwrap_or(u32::MAX);
    one(&words[0], Operation::SetBit { offset, on }, Shape::Number)
}

fn bit_count(words: &[Bytes]) -> Read {
    let shape = match bit_range(&words[1..]) {
        Ok(shape) => shape,
        // Where there is no value, nobody looks at the range.
        Err(Reply::Error(refusal)) => Shape::ZeroOr(refusal),
        Err(other) => return Err(other),
    };
    one(&words[0], Operation::Get, shape)
}

fn bit_range(words: &[Bytes]) -> Result<Shape, Reply> {
    let (first, last) = match words {
        [] => (0, -1),
        [first, last, ..] => (integer(first)?, integer(last)?),
        [_] => return Err(syntax()),
    };
    if first < 0 && last < 0 && first > last {
        // There are no such bits, and Redis does not look at the unit.
        return Ok(Shape::Bits(first, last, Places::Bytes));
    }
    let places = match words.get(2).map(|it| it.to_ascii_uppercase()).as_deref() {
        None | Some(b"BYTE") => Places::Bytes,
        Some(b"BIT") => Places::Bits,
        Some(_) => return Err(syntax()),
    };
    Ok(Shape::Bits(first, last, places))
}

fn exchange(value: &Bytes, returns_old: bool) -> Operation {
    Operation::Exchange {
        value: value.clone(),
        lifetime: Lifetime::Until(None),
        condition: Condition::Always,
        returns_old,
    }
}

fn set_absent(words: &[Bytes]) -> Read {
    let operation = Operation::Set {
        value: words[1].clone(),
        expires_at: None,
        condition: Condition::Absent,
    };
    one(&words[0], operation, Shape::StoredNumber)
}

/// The expiry of a value as an option of SET or GETEX gives it.
enum End<'a> {
    /// The expiry stays as it is.
    Kept,
    /// The value never expires.
    Never,
    At((Unit, Base), &'a Bytes),
}

/// The options of SET, or of GETEX.
#[derive(Default)]
struct Options<'a> {
    condition: Condition,
    /// The value that the key must have.
    expected: Option<&'a Bytes>,
    returns_old: bool,
    end: Option<End<'a>>,
}

/// Reads options in any order. If an option is repeated, the last one counts. Options that
/// contradict each other are refused.
fn options<'a>(words: &'a [Bytes], sets: bool) -> Result<Options<'a>, Reply> {
    let mut found = Options::default();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let word = word.to_ascii_uppercase();
        let (condition, end) = (found.condition, &found.end);
        match word.as_slice() {
            b"NX" if sets && condition != Condition::Present => found.condition = Condition::Absent,
            b"XX" if sets && condition != Condition::Absent => found.condition = Condition::Present,
            b"GET" if sets => found.returns_old = true,
            b"IFEQ" if sets => found.expected = Some(rest.next().ok_or_else(syntax)?),
            b"KEEPTTL" if sets && matches!(end, None | Some(End::Kept)) => {
                found.end = Some(End::Kept);
            }
            b"PERSIST" if !sets && matches!(end, None | Some(End::Never)) => {
                found.end = Some(End::Never);
            }
            other => {
                let (ending, given) = ending(other).zip(rest.next()).ok_or_else(syntax)?;
                let fits = match end {
                    None => true,
                    Some(End::At(before, _)) => *before == ending,
                    _ => false,
                };
                if !fits {
                    return Err(syntax());
                }
                found.end = Some(End::At(ending, given));
            }
        }
    }
    Ok(found)
}

fn set(words: &[Bytes], now: WallNs) -> Read {
    let Options {
        condition,
        expected,
        returns_old,
        end,
    } = options(&words[2..], true)?;
    if expected.is_some() && condition != Condition::Always {
        return Err(syntax());
    }
    let lifetime = match end {
        Some(End::Kept) => Lifetime::Kept,
        None | Some(End::Never) => Lifetime::Until(None),
        Some(End::At(ending, given)) => {
            Lifetime::Until(Some(positive_end(given, ending, now, "set")?))
        }
    };
    let (key, value) = (&words[0], words[1].clone());
    if let Some(expected) = expected {
        return one_if_equal(key, value, lifetime, expected, returns_old);
    }
    match lifetime {
        // A blind write where nothing but the value matters: it may come to any replica first.
        Lifetime::Until(expires_at) if !returns_old => {
            let operation = Operation::Set {
                value,
                expires_at,
                condition,
            };
            one(key, operation, Shape::Stored)
        }
        _ => {
            let operation = Operation::Exchange {
                value,
                lifetime,
                condition,
                returns_old,
            };
            let shape = if returns_old {
                Shape::Value
            } else {
                Shape::Stored
            };
            one(key, operation, shape)
        }
    }
}

fn one_if_equal(
    key: &Bytes,
    value: Bytes,
    lifetime: Lifetime,
    expected: &Bytes,
    returns_old: bool,
) -> Read {
    let then = Operation::Exchange {
        value,
        lifetime,
        condition: Condition::Always,
        returns_old: false,
    };
    let operation = if_equal(expected, then);
    if !returns_old {
        return one(key, operation, Shape::Stored);
    }
    let both = Operation::Several(vec![Operation::Get, operation]);
    one(key, both, Shape::Nth(0, Box::new(Shape::Value)))
}

fn set_until(words: &[Bytes], unit: Unit, now: WallNs, name: &str) -> Read {
    let ends = positive_end(&words[1], (unit, Base::Now), now, name)?;
    let operation = Operation::Set {
        value: words[2].clone(),
        expires_at: Some(ends),
        condition: Condition::Always,
    };
    one(&words[0], operation, Shape::Stored)
}

fn set_many(words: &[Bytes]) -> Read {
    let steps = words
        .chunks_exact(2)
        .map(|pair| (pair[0].clone(), Operation::set(pair[1].clone())));
    Ok(Plan {
        steps: steps.collect(),
        shape: Shape::Stored,
    })
}

fn decrement(words: &[Bytes]) -> Read {
    let by = integer(&words[1])?;
    let negative = by
        .checked_neg()
        .ok_or_else(|| error("ERR decrement would overflow"))?;
    one(&words[0], Operation::Increment(negative), Shape::Number)
}

fn increment_fraction(words: &[Bytes]) -> Read {
    let by = Fixed::parse(&words[1]).ok_or_else(no_fraction)?;
    one(&words[0], Operation::IncrementFraction(by), Shape::Fraction)
}

/// The value, of whatever kind it is.
fn whole(key: &Bytes, shape: Shape) -> Read {
    let both = vec![Operation::Get, Operation::Hash(HashOperation::All)];
    one(key, Operation::Several(both), shape)
}

/// `OBJECT ENCODING key`, and what else Redis knows of a value.
fn object(words: &[Bytes]) -> Read {
    match (words[0].to_ascii_lowercase().as_slice(), &words[1..]) {
        (b"encoding", [key]) => whole(key, Shape::Encoding),
        (b"refcount", [key]) => one(key, Operation::Kind, Shape::NumberIfThere(1)),
        (b"freq", [key]) => one(
            key,
            Operation::Kind,
            Shape::ComplaintIfThere(
                "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.",
            ),
        ),
        (b"idletime", [key]) => one(
            key,
            Operation::Kind,
            Shape::ComplaintIfThere("ERR this gateway does not know when a key was last used"),
        ),
        (name @ (b"encoding" | b"refcount" | b"freq" | b"idletime"), _) => {
            let name = String::from_utf8_lossy(name);
            Err(wrong_number(&format!("object|{name}")))
        }
        _ => Err(unknown_subcommand("object", &words[0])),
    }
}

/// `MEMORY USAGE key [SAMPLES count]`. Nothing is sampled: a server knows the bytes of a value.
fn memory(words: &[Bytes]) -> Read {
    if !words[0].eq_ignore_ascii_case(b"usage") {
        return Err(unknown_subcommand("memory", &words[0]));
    }
    match &words[1..] {
        [key] => whole(key, Shape::Memory(key.len())),
        [key, samples, count] if samples.eq_ignore_ascii_case(b"samples") => {
            if integer(count)? < 0 {
                return Err(syntax());
            }
            whole(key, Shape::Memory(key.len()))
        }
        [] => Err(wrong_number("memory|usage")),
        _ => Err(syntax()),
    }
}

fn range(words: &[Bytes]) -> Read {
    let (first, last) = (integer(&words[1])?, integer(&words[2])?);
    one(&words[0], Operation::Get, Shape::Range(first, last))
}

fn set_range(words: &[Bytes]) -> Read {
    let offset = integer(&words[1])?;
    if offset < 0 {
        return Err(error("ERR offset is out of range"));
    }
    let value = words[2].clone();
    let length = i64::try_from(value.len()).unwrap_or(i64::MAX);
    if length > 0 && offset.saturating_add(length) > OFFSET_MAX {
        return Err(too_large());
    }
    // Beyond the limit all places are alike.
    let offset = u32::try_from(offset).unwrap_or(u32::MAX);
    one(
        &words[0],
        Operation::SetRange { offset, value },
        Shape::Number,
    )
}

fn get_and_expire(words: &[Bytes], now: WallNs) -> Read {
    let key = &words[0];
    let at = match options(&words[1..], false)?.end {
        None | Some(End::Kept) => return one(key, Operation::Get, Shape::Value),
        Some(End::Never) => None,
        Some(End::At(ending, given)) => match positive_end(given, ending, now, "getex") {
            Ok(end) => Some(end),
            // Where there is no value, nobody looks at its end.
            Err(Reply::Error(refusal)) => {
                return one(key, Operation::Get, Shape::NothingOr(refusal));
            }
            Err(other) => return Err(other),
        },
    };
    let operation = Operation::Expire {
        at,
        condition: ExpireCondition::Always,
        returns_value: true,
    };
    one(key, operation, Shape::Value)
}

fn expire(name: &str, words: &[Bytes], now: WallNs) -> Read {
    let unit = if name.starts_with('p') {
        Unit::Milliseconds
    } else {
        Unit::Seconds
    };
    let base = if name.ends_with("at") {
        Base::Epoch
    } else {
        Base::Now
    };
    let condition = expire_condition(&words[2..])?;
    let given = integer(&words[1])?;
    let ends = end(given, unit, base, now)
        .ok_or_else(|| error(format!("ERR invalid expire time in '{name}' command")))?;
    let operation = Operation::Expire {
        at: Some(ends),
        condition,
        returns_value: false,
    };
    one(&words[0], operation, Shape::Number)
}

fn expire_condition(options: &[Bytes]) -> Result<ExpireCondition, Reply> {
    let (mut never, mut once, mut later, mut earlier) = (false, false, false, false);
    for option in options {
        match option.to_ascii_uppercase().as_slice() {
            b"NX" => never = true,
            b"XX" => once = true,
            b"GT" => later = true,
            b"LT" => earlier = true,
            _ => {
                let text = String::from_utf8_lossy(option);
                return Err(error(format!("ERR Unsupported option {text}")));
            }
        }
    }
    if never && (once || later || earlier) {
        return Err(error(
            "ERR NX and XX, GT or LT options at the same time are not compatible",
        ));
    }
    if later && earlier {
        return Err(error(
            "ERR GT and LT options at the same time are not compatible",
        ));
    }
    Ok(match (never, once, later, earlier) {
        (true, ..) => ExpireCondition::Never,
        // A value that never ends cannot end later anyhow; that it may not end earlier is `once`.
        (_, _, true, _) => ExpireCondition::Later,
        (_, true, _, true) => ExpireCondition::EarlierOnce,
        (_, _, _, true) => ExpireCondition::Earlier,
        (_, true, ..) => ExpireCondition::Once,
        _ => ExpireCondition::Always,
    })
}

#[cfg(test)]
mod tests {
    use flurry_core::key_value::{Answer, ValueKind};

    use super::*;

    const NOW: WallNs = WallNs(1_700_000_000_123_456_789);
    const NOW_MS: i64 = 1_700_000_000_123;

    fn words(line: &str) -> (String, Vec<Bytes>) {
        let mut words = line.split(' ').map(str::to_owned);
        let name = words.next().unwrap().to_lowercase();
        (name, words.map(Bytes::from).collect())
    }

    fn asked(line: &str) -> Option<Read> {
        let (name, words) = words(line);
        read(&name, &words, NOW)
    }

    fn complaint_to(line: &str) -> String {
        match asked(line) {
            Some(Err(Reply::Error(text))) => text,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn operation(line: &str) -> Operation {
        let plan = asked(line).unwrap().unwrap();
        assert_eq!(plan.steps.len(), 1, "{line}");
        plan.steps[0].1.clone()
    }

    fn at(milliseconds: i64) -> Option<WallNs> {
        Some(WallNs(milliseconds * NS_PER_MS))
    }

    #[test]
    fn a_wrong_number_of_words_is_no_command() {
        for line in [
            "GET",
            "GET a b",
            "SET k",
            "MSET",
            "MSET a",
            "MSET a b c",
            "DEL",
            "EXPIRE k",
            "TTL",
            "GETRANGE k 1",
            "NOTHING k",
        ] {
            assert_eq!(asked(line), None, "{line}");
        }
    }

    #[test]
    fn the_end_of_a_value_is_counted_as_the_option_says() {
        for (line, ends) in [
            ("SET k v EX 10", at(NOW_MS + 10_000)),
            ("SET k v px 10", at(NOW_MS + 10)),
            ("SET k v EXAT 2000000000", at(2_000_000_000_000)),
            ("SET k v PXAT 2000000000000", at(2_000_000_000_000)),
            ("SET k v", None),
            ("SETEX k 10 v", at(NOW_MS + 10_000)),
            ("PSETEX k 10 v", at(NOW_MS + 10)),
        ] {
            let Operation::Set { expires_at, .. } = operation(line) else {
                panic!("{line}")
            };
            assert_eq!(expires_at, ends, "{line}");
        }
    }

    #[test]
    fn options_that_do_not_fit_together_are_refused_in_the_words_of_redis() {
        for (line, wanted) in [
            ("SET k v NX XX", "ERR syntax error"),
            ("SET k v EX", "ERR syntax error"),
            ("SET k v EX 1 PX 1", "ERR syntax error"),
            ("SET k v KEEPTTL EX 1", "ERR syntax error"),
            ("SET k v WHAT", "ERR syntax error"),
            ("SET k v EX 0", "ERR invalid expire time in 'set' command"),
            (
                "SET k v EX 9223372036854775807",
                "ERR invalid expire time in 'set' command",
            ),
            (
                "SET k v EX 1.5",
                "ERR value is not an integer or out of range",
            ),
            ("SETEX k -1 v", "ERR invalid expire time in 'setex' command"),
            ("GETEX k EX", "ERR syntax error"),
            ("GETEX k PERSIST 1", "ERR syntax error"),
            ("INCRBY k x", "ERR value is not an integer or out of range"),
            (
                "DECRBY k -9223372036854775808",
                "ERR decrement would overflow",
            ),
            ("SETRANGE k -1 v", "ERR offset is out of range"),
            (
                "SETRANGE k 536870912 v",
                "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
            ),
            ("EXPIRE k 1 NOW", "ERR Unsupported option NOW"),
            (
                "EXPIRE k 1 NX XX",
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ),
            (
                "EXPIRE k 1 GT LT",
                "ERR GT and LT options at the same time are not compatible",
            ),
        ] {
            assert_eq!(complaint_to(line), wanted, "{line}");
        }
    }

    #[test]
    fn a_plain_set_looks_at_nothing_and_what_must_look_does() {
        for (line, access) in [
            ("SET k v", "Blind"),
            ("SET k v PX 5", "Blind"),
            ("MSET k v", "Blind"),
            ("SET k v NX", "Update"),
            ("SET k v GET", "Update"),
            ("SET k v KEEPTTL", "Update"),
            ("GETEX k", "Read"),
            ("GETEX k EX 1", "Update"),
            ("TTL k", "Read"),
        ] {
            let found = format!("{:?}", operation(line).access());
            assert_eq!(found, access, "{line}");
        }
    }

    #[test]
    fn answers_become_the_replies_of_redis() {
        let value = |text: &'static str| Answer::Value(Bytes::from(text));
        let reply = |line: &str, answers: &[Answer]| {
            let plan = asked(line).unwrap().unwrap();
            plan.shape.reply(answers.to_vec(), NOW)
        };
        let text_kind = || Answer::Kind(ValueKind::Text);
        let ok = Reply::Status("OK");
        assert_eq!(reply("SET k v", &[Answer::Stored]), ok);
        assert_eq!(reply("SET k v NX", &[Answer::NotStored]), Reply::Null);
        assert_eq!(reply("SET k v GET", &[value("old")]), Reply::text("old"));
        assert_eq!(reply("SET k v GET", &[Answer::NotFound]), Reply::Null);
        assert_eq!(reply("SETNX k v", &[Answer::NotStored]), Reply::Integer(0));
        assert_eq!(reply("MSET a 1 b 2", &[Answer::Stored, Answer::Stored]), ok);
        assert_eq!(
            reply("MGET a b", &[value("1"), Answer::NotFound]),
            Reply::Array(vec![Reply::text("1"), Reply::Null])
        );
        assert_eq!(
            reply("DEL a b", &[Answer::Number(1), Answer::Number(0)]),
            Reply::Integer(1)
        );
        assert_eq!(
            reply(
                "EXISTS a a b",
                &[text_kind(), text_kind(), Answer::NotFound]
            ),
            Reply::Integer(2)
        );
        assert_eq!(reply("STRLEN k", &[value("four")]), Reply::Integer(4));
        let kind = |kind| reply("TYPE k", &[Answer::Kind(kind)]);
        assert_eq!(kind(ValueKind::Text), Reply::Status("string"));
        assert_eq!(kind(ValueKind::Hash), Reply::Status("hash"));
        assert_eq!(reply("TYPE k", &[Answer::NotFound]), Reply::Status("none"));
        assert_eq!(reply("PERSIST k", &[Answer::Number(0)]), Reply::Integer(0));
        let ends = Answer::Number((NOW_MS + 1_499) * NS_PER_MS);
        assert_eq!(
            reply("TTL k", std::slice::from_ref(&ends)),
            Reply::Integer(1)
        );
        assert_eq!(
            reply("PTTL k", std::slice::from_ref(&ends)),
            Reply::Integer(1_499)
        );
        assert_eq!(
            reply("PEXPIRETIME k", &[ends]),
            Reply::Integer(NOW_MS + 1_499)
        );
        assert_eq!(reply("TTL k", &[Answer::ForEver]), Reply::Integer(-1));
        assert_eq!(reply("TTL k", &[Answer::NotFound]), Reply::Integer(-2));
        let number = reply("INCR k", &[Answer::NotANumber]);
        assert_eq!(number, error("ERR value is not an integer or out of range"));
    }
}
