//! How the answers of a command's operations become its reply.

use bytes::Bytes;
use flurry_core::decimal::decimal;
use flurry_core::id::WallNs;
use flurry_core::key_value::{Answer, Field, ValueKind, fields};
use flurry_core::record_bytes;
use flurry_core::resp::{Reply, error};

use super::glob;
use super::keys::NS_PER_MS;
use super::transaction::Parts;

/// How answers become a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shape {
    /// OK, whatever the answers are.
    Done,
    /// OK, or nothing where a condition did not hold.
    Stored,
    /// 1, or 0 where a condition did not hold.
    StoredNumber,
    /// The value, or nothing.
    Value,
    /// This complaint, or nothing where there is no value.
    NothingOr(String),
    /// This complaint, or 0 where there is no value.
    ZeroOr(String),
    /// Each value, or nothing.
    Values,
    /// The number.
    Number,
    /// The number, or 0 where a condition did not hold.
    NumberOrZero,
    /// The number of a field of a hash.
    FieldNumber,
    /// How many were there.
    Count,
    /// The length of the value.
    Length,
    /// From the first to the last of these places; negative ones count from the end.
    Range(i64, i64),
    /// `string`, or `none`.
    Type,
    /// How long the value lives, or until when.
    Lives(Unit, Base),
    /// The bit at this place: 0 is the highest bit of the first byte.
    Bit(usize),
    /// The number of bits that are 1, from the first to the last of these places; negative ones
    /// count from the end. The places are those of bytes or of bits.
    Bits(i64, i64, Places),
    /// Each of several answers as a value, or nothing.
    Listed,
    /// All fields of a hash: names and values.
    Fields,
    FieldNames,
    FieldValues,
    FieldCount,
    /// All fields whose name matches a pattern, as the last part of a walk through them.
    Scanned(Option<Bytes>),
    /// One of several answers in a shape.
    Nth(usize, Box<Self>),
    /// Some of several answers, each in a shape.
    Each(Vec<(usize, Self)>),
    /// The replies to the commands of a transaction.
    Transaction(Box<Parts>),
    /// No reply: another stage of the command follows from the answers.
    Stage,
    /// The sum of fractions.
    Fraction,
    /// What Redis would call the form of a value in memory.
    Encoding,
    /// A number, or nothing where there is no value.
    NumberIfThere(i64),
    /// This complaint, or nothing where there is no value of any kind.
    ComplaintIfThere(&'static str),
    /// The memory of a record whose key has this many bytes.
    Memory(usize),
}

/// What the places of bits are counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Places {
    Bytes,
    Bits,
}

/// What times are counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Seconds,
    Milliseconds,
}

/// What times are counted from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Base {
    Now,
    Epoch,
}

impl Shape {
    /// The reply to all answers, in their order.
    pub(crate) fn reply(&self, answers: Vec<Answer>, now: WallNs) -> Reply {
        if let Self::Transaction(parts) = self {
            let outcomes: Vec<_> = answers.into_iter().map(Ok).collect();
            return parts.reply(&outcomes, now);
        }
        if let Some(complaint) = answers.iter().find_map(|it| self.complaint(it)) {
            return complaint;
        }
        if *self == Self::Values {
            return Reply::Array(answers.into_iter().map(value).collect());
        }
        if *self == Self::Done {
            return Reply::Status("OK");
        }
        if *self == Self::Count {
            return Reply::Integer(answers.iter().map(count).sum());
        }
        if *self == Self::Stored && answers.len() > 1 {
            return Reply::Status("OK");
        }
        let answer = answers.into_iter().next().unwrap_or(Answer::NotFound);
        match (self, answer) {
            (Self::Stored, Answer::Stored) => Reply::Status("OK"),
            (Self::StoredNumber, answer) => Reply::Integer(i64::from(answer == Answer::Stored)),
            (Self::NumberOrZero, Answer::NotStored) => Reply::Integer(0),
            (Self::Bit(place), answer) => Reply::Integer(i64::from(bit(&answer, *place))),
            (Self::Bits(first, last, places), answer) => {
                Reply::Integer(bits(&answer, *first, *last, *places))
            }
            (Self::Listed, Answer::Several(all)) => {
                Reply::Array(all.into_iter().map(value).collect())
            }
            (Self::Nth(place, shape), Answer::Several(all)) => shape.reply(nth(&all, *place), now),
            (Self::Each(shapes), Answer::Several(all)) => {
                let reply = |(place, shape): &(usize, Self)| shape.reply(nth(&all, *place), now);
                Reply::Array(shapes.iter().map(reply).collect())
            }
            (
                Self::Fields
                | Self::FieldNames
                | Self::FieldValues
                | Self::FieldCount
                | Self::Scanned(_),
                answer,
            ) => self.of_fields(answer),
            (Self::Length, Answer::Value(value)) => {
                Reply::Integer(i64::try_from(value.len()).unwrap_or(i64::MAX))
            }
            (Self::Length, _) => Reply::Integer(0),
            (Self::Range(first, last), answer) => part(answer, *first, *last),
            (Self::Type, Answer::Kind(ValueKind::Text)) => Reply::Status("string"),
            (Self::Type, Answer::Kind(ValueKind::Hash)) => Reply::Status("hash"),
            (Self::Type, _) => Reply::Status("none"),
            (Self::Lives(unit, base), answer) => lives(&answer, *unit, *base, now),
            (Self::NothingOr(refusal) | Self::ZeroOr(refusal), Answer::Value(_)) => {
                error(refusal.clone())
            }
            (Self::ZeroOr(_), _) => Reply::Integer(0),
            (Self::Encoding, answer) => encoding(answer),
            (Self::Memory(key), answer) => memory(&answer, *key),
            (Self::NumberIfThere(number), Answer::Kind(_)) => Reply::Integer(*number),
            (Self::ComplaintIfThere(complaint), Answer::Kind(_)) => error(*complaint),
            (_, Answer::Number(number)) => Reply::Integer(number),
            (_, answer) => value(answer),
        }
    }

    /// The reply to all fields of a hash.
    fn of_fields(&self, answer: Answer) -> Reply {
        let held = match answer {
            Answer::Fields(bytes) => match fields(bytes) {
                Ok(held) => held,
                Err(malformed) => return error(format!("ERR {malformed}")),
            },
            _ => Vec::new(),
        };
        let name = |it: Field| Reply::Bulk(it.name);
        let value = |it: Field| Reply::Bulk(it.value);
        let pair = |it: Field| (Reply::Bulk(it.name), Reply::Bulk(it.value));
        match self {
            Self::FieldNames => Reply::Array(held.into_iter().map(name).collect()),
            Self::FieldValues => Reply::Array(held.into_iter().map(value).collect()),
            Self::FieldCount => Reply::Integer(i64::try_from(held.len()).unwrap_or(i64::MAX)),
            Self::Scanned(pattern) => {
                let fits = |it: &Field| {
                    let matches = |pattern: &Bytes| glob::matches(pattern, &it.name);
                    pattern.as_ref().is_none_or(matches)
                };
                let found = held.into_iter().filter(fits);
                let both = |it: Field| [Reply::Bulk(it.name), Reply::Bulk(it.value)];
                let found = Reply::Array(found.flat_map(both).collect());
                Reply::Array(vec![Reply::text("0"), found])
            }
            _ => Reply::Map(held.into_iter().map(pair).collect()),
        }
    }

    fn complaint(&self, answer: &Answer) -> Option<Reply> {
        // For MGET a value of another kind counts as none.
        if *self == Self::Values && *answer == Answer::WrongKind {
            return None;
        }
        match (self, answer) {
            (Self::FieldNumber, Answer::NotANumber) => {
                Some(error("ERR hash value is not an integer"))
            }
            (Self::Fraction, Answer::NotANumber) => Some(no_fraction()),
            (Self::Fraction, Answer::OutOfRange) => {
                Some(error("ERR increment would produce NaN or Infinity"))
            }
            _ => complaint(answer),
        }
    }
}

/// The answer at a place, alone.
fn nth(all: &[Answer], place: usize) -> Vec<Answer> {
    all.get(place).cloned().into_iter().collect()
}

fn bit(answer: &Answer, place: usize) -> bool {
    let Answer::Value(value) = answer else {
        return false;
    };
    let mask = 0x80_u8 >> (place % 8);
    value.get(place / 8).is_some_and(|byte| byte & mask != 0)
}

/// The number of bits that are 1 between two places, both included.
fn bits(answer: &Answer, first: i64, last: i64, places: Places) -> i64 {
    let Answer::Value(value) = answer else {
        return 0;
    };
    let bits = i64::try_from(value.len()).unwrap_or(i64::MAX) * 8;
    let count = if places == Places::Bits {
        bits
    } else {
        bits / 8
    };
    if first < 0 && last < 0 && first > last {
        return 0;
    }
    let from_start = |place: i64| if place < 0 { place + count } else { place }.max(0);
    let (first, last) = (from_start(first), from_start(last).min(count - 1));
    if first > last {
        return 0;
    }
    let (first, end) = if places == Places::Bits {
        (first, last + 1)
    } else {
        (first * 8, (last + 1) * 8)
    };
    let is_inside = |place: &i64| (first..end).contains(place);
    let in_byte = |(index, byte): (usize, &u8)| {
        let begin = i64::try_from(index).unwrap_or(i64::MAX) * 8;
        if first <= begin && begin + 8 <= end {
            return i64::from(byte.count_ones());
        }
        let one = |place: &i64| byte & (0x80_u8 >> (place - begin)) != 0;
        let ones = (begin..begin + 8).filter(is_inside).filter(one).count();
        i64::try_from(ones).unwrap_or(0)
    };
    value.iter().enumerate().map(in_byte).sum()
}

fn complaint(answer: &Answer) -> Option<Reply> {
    match answer {
        Answer::WrongKind => Some(error(
            "WRONGTYPE Operation against a key holding the wrong kind of value",
        )),
        Answer::NotANumber => Some(error("ERR value is not an integer or out of range")),
        Answer::OutOfRange => Some(error("ERR increment or decrement would overflow")),
        Answer::TooLarge => Some(too_large()),
        Answer::NumberTaken => Some(error(
            "ERR number: this client has given it, or a larger one, to another command on the key; wanted a larger one; hint: let numbers rise, also over restarts",
        )),
        Answer::TooManyCallers => Some(error(
            "BUSY the key remembers as many clients that number their commands as it may; hint: send it again in a minute",
        )),
        _ => None,
    }
}

fn value(answer: Answer) -> Reply {
    match answer {
        Answer::Value(value) => Reply::Bulk(value),
        _ => Reply::Null,
    }
}

fn count(answer: &Answer) -> i64 {
    match answer {
        Answer::Value(_) | Answer::Kind(_) => 1,
        Answer::Number(number) => *number,
        _ => 0,
    }
}

/// From the first to the last place of a value; negative ones count from the end.
fn part(answer: Answer, first: i64, last: i64) -> Reply {
    let Answer::Value(value) = answer else {
        return Reply::Bulk(Bytes::new());
    };
    let length = i64::try_from(value.len()).unwrap_or(i64::MAX);
    let empty = Reply::Bulk(Bytes::new());
    if first < 0 && last < 0 && first > last {
        return empty;
    }
    let from_start = |place: i64| if place < 0 { place + length } else { place }.max(0);
    let (first, last) = (from_start(first), from_start(last).min(length - 1));
    if first > last || length == 0 {
        return empty;
    }
    let place = |at: i64| usize::try_from(at).unwrap_or(0);
    Reply::Bulk(value.slice(place(first)..=place(last)))
}

/// -2 for no value, -1 for one that never ends.
fn lives(answer: &Answer, unit: Unit, base: Base, now: WallNs) -> Reply {
    let end_ms = match answer {
        Answer::Number(end) => end / NS_PER_MS,
        Answer::ForEver => return Reply::Integer(-1),
        _ => return Reply::Integer(-2),
    };
    let milliseconds = match base {
        Base::Now => (end_ms - now.0 / NS_PER_MS).max(0),
        Base::Epoch => end_ms,
    };
    Reply::Integer(match unit {
        Unit::Milliseconds => milliseconds,
        Unit::Seconds => (milliseconds + 500) / 1_000,
    })
}

/// The forms that Redis 7 would choose for a new value.
fn encoding(answer: Answer) -> Reply {
    const EMBEDDED_BYTES_MAX: usize = 44;
    const LISTED_FIELDS_MAX: usize = 128;
    const LISTED_BYTES_MAX: usize = 64;
    let Answer::Several(whole) = answer else {
        return Reply::Null;
    };
    let name = match &whole[..] {
        [Answer::Value(value), ..] if decimal(value).is_some() => "int",
        [Answer::Value(value), ..] if value.len() <= EMBEDDED_BYTES_MAX => "embstr",
        [Answer::Value(_), ..] => "raw",
        [_, Answer::Fields(bytes)] => {
            let fields = fields(bytes.clone()).unwrap_or_default();
            let is_long = |it: &Field| it.name.len().max(it.value.len()) > LISTED_BYTES_MAX;
            if fields.len() > LISTED_FIELDS_MAX || fields.iter().any(is_long) {
                "hashtable"
            } else {
                "listpack"
            }
        }
        _ => return Reply::Null,
    };
    Reply::text(name)
}

/// The bytes that a server counts for a key with its value.
fn memory(answer: &Answer, key: usize) -> Reply {
    let Answer::Several(whole) = answer else {
        return Reply::Null;
    };
    let value = whole.iter().find_map(|it| match it {
        Answer::Value(bytes) | Answer::Fields(bytes) => Some(bytes.len()),
        _ => None,
    });
    value.map_or(Reply::Null, |value| {
        Reply::Integer(i64::try_from(record_bytes(key + value)).unwrap_or(i64::MAX))
    })
}

pub(super) fn no_fraction() -> Reply {
    error("ERR value is not a valid float")
}

pub(super) fn too_large() -> Reply {
    error("ERR string exceeds maximum allowed size (proto-max-bulk-len)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_counts_from_both_ends() {
        for (first, last, wanted) in [
            (0, 2, "Thi"),
            (-3, -1, "ing"),
            (0, -1, "This is a string"),
            (10, 100, "string"),
            (5, 3, ""),
            (-100, 3, "This"),
            (-1, -5, ""),
            (20, 30, ""),
        ] {
            let answer = Answer::Value(Bytes::from("This is a string"));
            assert_eq!(
                part(answer, first, last),
                Reply::text(wanted),
                "{first} {last}"
            );
        }
        assert_eq!(part(Answer::NotFound, 0, -1), Reply::text(""));
    }
}
