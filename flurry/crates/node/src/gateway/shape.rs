//! How the answers of a command's operations become its reply.

use bytes::Bytes;
use flurry_core::id::WallNs;
use flurry_core::key_value::Answer;
use flurry_core::resp::{Reply, error};

const NS_PER_MS: i64 = 1_000_000;

/// How answers become a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shape {
    /// OK, or nothing where a condition did not hold.
    Stored,
    /// 1, or 0 where a condition did not hold.
    StoredNumber,
    /// The value, or nothing.
    Value,
    /// This complaint, or nothing where there is no value.
    NothingOr(String),
    /// Each value, or nothing.
    Values,
    /// The number.
    Number,
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
        if let Some(complaint) = answers.iter().find_map(complaint) {
            return complaint;
        }
        if *self == Self::Values {
            return Reply::Array(answers.into_iter().map(value).collect());
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
            (Self::Length, Answer::Value(value)) => {
                Reply::Integer(i64::try_from(value.len()).unwrap_or(i64::MAX))
            }
            (Self::Length, _) => Reply::Integer(0),
            (Self::Range(first, last), answer) => part(answer, *first, *last),
            (Self::Type, Answer::Value(_)) => Reply::Status("string"),
            (Self::Type, _) => Reply::Status("none"),
            (Self::Lives(unit, base), answer) => lives(&answer, *unit, *base, now),
            (Self::NothingOr(refusal), Answer::Value(_)) => error(refusal.clone()),
            (_, Answer::Number(number)) => Reply::Integer(number),
            (_, answer) => value(answer),
        }
    }
}

fn complaint(answer: &Answer) -> Option<Reply> {
    match answer {
        Answer::NotANumber => Some(error("ERR value is not an integer or out of range")),
        Answer::OutOfRange => Some(error("ERR increment or decrement would overflow")),
        Answer::TooLarge => Some(too_large()),
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
        Answer::Value(_) => 1,
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
