//! Translates a command on the fields of a hash into an operation.

use bytes::Bytes;
use flurry_core::key_value::{Field, HashOperation, Operation};
use flurry_core::resp::error;

use super::keys::{Read, integer, one};
use super::shape::Shape;

/// Maximum length of a pattern of `HSCAN` in bytes: the names of all fields, up to a mebibyte, are
/// compared with all of it.
const PATTERN_BYTES_MAX: usize = 64;

/// Reads a command on a hash. `name` is in lower case, and `words` are the words behind it. Returns
/// `None` if the command is none on hashes or has a wrong number of words.
pub(super) fn read(name: &str, words: &[Bytes]) -> Option<Read> {
    let (key, words) = words.split_first()?;
    let single = |shape| Shape::Nth(0, Box::new(shape));
    let get = |names: &[Bytes]| HashOperation::Get(names.to_vec());
    let (operation, shape) = match (name, words) {
        ("hset" | "hmset", [_, _, ..]) if words.len().is_multiple_of(2) => {
            let shape = if name == "hset" {
                Shape::Number
            } else {
                Shape::Done
            };
            (set(words, false), shape)
        }
        ("hsetnx", [_, _]) => (set(words, true), Shape::Number),
        ("hget", [_]) => (get(words), single(Shape::Value)),
        ("hmget", [_, ..]) => (get(words), Shape::Listed),
        ("hexists", [_]) => (get(words), single(Shape::Count)),
        ("hstrlen", [_]) => (get(words), single(Shape::Length)),
        ("hgetall", []) => (HashOperation::All, Shape::Fields),
        ("hkeys", []) => (HashOperation::All, Shape::FieldNames),
        ("hvals", []) => (HashOperation::All, Shape::FieldValues),
        ("hlen", []) => (HashOperation::All, Shape::FieldCount),
        ("hdel", [_, ..]) => (HashOperation::Delete(words.to_vec()), Shape::Number),
        ("hincrby", [field, by]) => {
            let by = match integer(by) {
                Ok(by) => by,
                Err(refusal) => return Some(Err(refusal)),
            };
            let name = field.clone();
            (HashOperation::Increment { name, by }, Shape::FieldNumber)
        }
        ("hscan", [cursor, options @ ..]) => match scanned(cursor, options) {
            Ok(pattern) => (HashOperation::All, Shape::Scanned(pattern)),
            Err(refusal) => return Some(Err(error(refusal))),
        },
        _ => return None,
    };
    Some(one(key, Operation::Hash(operation), shape))
}

fn set(words: &[Bytes], only_absent: bool) -> HashOperation {
    let field = |pair: &[Bytes]| Field {
        name: pair[0].clone(),
        value: pair[1].clone(),
    };
    HashOperation::Set {
        fields: words.chunks_exact(2).map(field).collect(),
        only_absent,
    }
}

/// Reads the options of `HSCAN`. The gateway returns all fields at once, so every cursor begins at
/// the first.
fn scanned(cursor: &Bytes, options: &[Bytes]) -> Result<Option<Bytes>, &'static str> {
    let number = |word: &Bytes| std::str::from_utf8(word).ok()?.parse::<u64>().ok();
    number(cursor).ok_or("ERR invalid cursor")?;
    let mut pattern = None;
    for pair in options.chunks(2) {
        let [option, value] = pair else {
            return Err("ERR syntax error");
        };
        match option.to_ascii_uppercase().as_slice() {
            b"MATCH" if value.len() > PATTERN_BYTES_MAX => return Err("ERR pattern is too long"),
            b"MATCH" => pattern = Some(value.clone()),
            b"COUNT" => {
                let count = number(value).ok_or("ERR value is not an integer or out of range")?;
                if count < 1 {
                    return Err("ERR syntax error");
                }
            }
            _ => return Err("ERR syntax error"),
        }
    }
    Ok(pattern)
}
