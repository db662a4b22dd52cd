//! Values that are hashes: fields with a value each, in the order in which they were added.
//!
//! A hash is kept as the bytes of its fields, as any other value is. An operation reads them all,
//! which is cheap for the few fields of a session, and limits a hash to the length of a value.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use prost::Message as _;

use super::{Answer, Value, ValueKind};
use crate::decimal::decimal;
use crate::machine::Malformed;
use crate::wire::key_value::{self as body, operation::Kind};

/// A field of a hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: Bytes,
    /// Its value.
    pub value: Bytes,
}

/// An operation on the fields of a hash. A hash without fields does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HashOperation {
    /// Sets fields, and returns the number of new ones.
    Set {
        /// The fields. A later one replaces an earlier one of its name.
        fields: Vec<Field>,
        /// True to leave fields that exist as they are.
        only_absent: bool,
    },
    /// Returns the value, or [`Answer::NotFound`], for each name.
    Get(Vec<Bytes>),
    /// Returns all fields.
    All,
    /// Removes fields, and returns the number of removed ones.
    Delete(Vec<Bytes>),
    /// Adds to the decimal number of a field, and returns the sum; no field is 0.
    Increment {
        /// The name of the field.
        name: Bytes,
        /// The summand.
        by: i64,
    },
}

impl HashOperation {
    /// Returns whether the operation changes nothing.
    pub(super) fn is_read(&self) -> bool {
        matches!(self, Self::Get(_) | Self::All)
    }

    pub(super) fn body(&self) -> Kind {
        match self.clone() {
            Self::Set {
                fields,
                only_absent,
            } => Kind::HashSet(body::HashSet {
                fields: fields.into_iter().map(Field::body).collect(),
                only_absent,
            }),
            Self::Get(names) => Kind::HashGet(body::HashGet { names }),
            Self::All => Kind::HashAll(body::HashAll {}),
            Self::Delete(names) => Kind::HashDelete(body::HashDelete { names }),
            Self::Increment { name, by } => Kind::HashIncrement(body::HashIncrement { name, by }),
        }
    }

    pub(super) fn of_body(kind: Kind) -> Result<Self, Malformed> {
        Ok(match kind {
            Kind::HashSet(set) => Self::Set {
                fields: set.fields.into_iter().map(Field::of_body).collect(),
                only_absent: set.only_absent,
            },
            Kind::HashGet(get) => Self::Get(get.names),
            Kind::HashAll(_) => Self::All,
            Kind::HashDelete(delete) => Self::Delete(delete.names),
            Kind::HashIncrement(increment) => Self::Increment {
                name: increment.name,
                by: increment.by,
            },
            _ => return Err(Malformed("it is on no hash".to_owned())),
        })
    }
}

impl Field {
    fn body(self) -> body::Field {
        let Self { name, value } = self;
        body::Field { name, value }
    }

    fn of_body(read: body::Field) -> Self {
        let body::Field { name, value } = read;
        Self { name, value }
    }
}

/// Reads the fields of a hash, as its value or an [`Answer::Fields`] has them.
///
/// # Errors
///
/// [`Malformed`] when the bytes are none.
pub fn fields(bytes: Bytes) -> Result<Vec<Field>, Malformed> {
    let read = body::Fields::decode(bytes).map_err(|error| Malformed(error.to_string()))?;
    Ok(read.fields.into_iter().map(Field::of_body).collect())
}

/// The fields of a hash, and the place of each by its name.
#[derive(Debug)]
struct Held {
    fields: Vec<Field>,
    places: BTreeMap<Bytes, usize>,
}

impl Held {
    fn new(fields: Vec<Field>) -> Self {
        let place = |(place, field): (usize, &Field)| (field.name.clone(), place);
        let places = fields.iter().enumerate().map(place).collect();
        Self { fields, places }
    }

    fn value(&self, name: &Bytes) -> Option<&Bytes> {
        let field = self.places.get(name).and_then(|at| self.fields.get(*at));
        field.map(|it| &it.value)
    }

    /// Sets fields. Returns the number of new ones.
    fn set(&mut self, fields: Vec<Field>, only_absent: bool) -> i64 {
        let mut added = 0;
        for field in fields {
            match self.places.get(&field.name) {
                Some(_) if only_absent => {}
                Some(place) => self.fields[*place].value = field.value,
                None => {
                    self.places.insert(field.name.clone(), self.fields.len());
                    self.fields.push(field);
                    added += 1;
                }
            }
        }
        added
    }

    /// Removes fields. Returns the number of removed ones.
    fn remove(&mut self, names: Vec<Bytes>) -> i64 {
        let before = self.fields.len();
        let gone: BTreeSet<Bytes> = names.into_iter().collect();
        let mut fields = std::mem::take(&mut self.fields);
        fields.retain(|it| !gone.contains(&it.name));
        *self = Self::new(fields);
        i64::try_from(before - self.fields.len()).unwrap_or(i64::MAX)
    }

    fn increment(&mut self, name: Bytes, by: i64) -> Answer {
        let text = self.value(&name).map_or(&b"0"[..], |it| it);
        let Some(number) = decimal(text) else {
            return Answer::NotANumber;
        };
        let Some(sum) = number.checked_add(by) else {
            return Answer::OutOfRange;
        };
        let value = Bytes::from(sum.to_string());
        self.set(vec![Field { name, value }], false);
        Answer::Number(sum)
    }
}

/// Executes an operation on a hash that has not ended, or on no value.
///
/// # Errors
///
/// [`Malformed`] when the bytes of the value are no hash.
pub(super) fn execute(
    live: Option<&Value>,
    operation: HashOperation,
    value_bytes_max: usize,
) -> Result<(Option<Value>, Answer), Malformed> {
    if operation == HashOperation::All {
        let answer = live.map_or(Answer::NotFound, |it| Answer::Fields(it.bytes.clone()));
        return Ok((live.cloned(), answer));
    }
    let held = live.map_or_else(|| Ok(Vec::new()), |it| fields(it.bytes.clone()))?;
    let mut held = Held::new(held);
    let answer = match operation {
        HashOperation::All => Answer::NotFound,
        HashOperation::Get(names) => {
            let value = |name| held.value(name).cloned();
            let answer = |name| value(name).map_or(Answer::NotFound, Answer::Value);
            Answer::Several(names.iter().map(answer).collect())
        }
        HashOperation::Set {
            fields,
            only_absent,
        } => Answer::Number(held.set(fields, only_absent)),
        HashOperation::Delete(names) => Answer::Number(held.remove(names)),
        HashOperation::Increment { name, by } => held.increment(name, by),
    };
    if matches!(
        answer,
        Answer::Several(_) | Answer::NotANumber | Answer::OutOfRange
    ) {
        return Ok((live.cloned(), answer));
    }
    Ok(changed(live, held.fields, answer, value_bytes_max))
}

/// Returns the hash with these fields and the answer. A hash that would be too long stays as it was.
fn changed(
    live: Option<&Value>,
    fields: Vec<Field>,
    answer: Answer,
    value_bytes_max: usize,
) -> (Option<Value>, Answer) {
    if fields.is_empty() {
        return (None, answer);
    }
    let fields = fields.into_iter().map(Field::body).collect();
    let bytes = Bytes::from(body::Fields { fields }.encode_to_vec());
    let held = live.map_or(0, |it| it.bytes.len());
    if bytes.len() > value_bytes_max.max(held) {
        return (live.cloned(), Answer::TooLarge);
    }
    let value = Value {
        kind: ValueKind::Hash,
        bytes,
        expires_at: live.and_then(|it| it.expires_at),
    };
    (Some(value), answer)
}

#[cfg(test)]
mod tests {
    use super::super::{KeyValue, Operation, State};
    use super::*;
    use crate::id::WallNs;
    use crate::machine::StateMachine as _;

    const LIMIT: usize = 100;

    fn bytes(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    fn pairs(all: &[(&str, &str)]) -> Vec<Field> {
        let field = |(name, value): &(&str, &str)| Field {
            name: bytes(name),
            value: bytes(value),
        };
        all.iter().map(field).collect()
    }

    fn hset(all: &[(&str, &str)]) -> HashOperation {
        HashOperation::Set {
            fields: pairs(all),
            only_absent: false,
        }
    }

    /// Executes operations on one key. Returns their answers and the fields at the end.
    fn run(operations: &[Operation]) -> (Vec<Answer>, Vec<Field>) {
        let machine = KeyValue::with_values_up_to(LIMIT);
        let mut state: Option<State> = None;
        let mut answers = Vec::new();
        for operation in operations {
            let written = operation.encode();
            assert_eq!(Operation::decode(&written).as_ref(), Ok(operation));
            let applied = machine.apply(state.as_ref(), &written, WallNs(1)).unwrap();
            let kept = applied.state.as_ref().map(|it| machine.snapshot(it));
            let kept = kept.map(|it| machine.restore(&it).unwrap());
            assert_eq!(kept, applied.state, "a snapshot keeps the kind");
            state = applied.state;
            answers.push(Answer::decode(applied.answer).unwrap());
        }
        let value = state.and_then(|it| it.value);
        let hash = value.filter(|it| it.kind == ValueKind::Hash);
        let held = hash.map_or_else(Vec::new, |it| fields(it.bytes).unwrap());
        (answers, held)
    }

    fn on_hash(operations: Vec<HashOperation>) -> (Vec<Answer>, Vec<Field>) {
        let all: Vec<_> = operations.into_iter().map(Operation::Hash).collect();
        run(&all)
    }

    #[test]
    fn fields_keep_their_order_and_the_last_value() {
        let (told, held) = on_hash(vec![
            hset(&[("b", "1"), ("a", "2"), ("b", "3")]),
            hset(&[("a", "4"), ("c", "5")]),
            HashOperation::Get(vec![bytes("a"), bytes("x"), bytes("a")]),
            HashOperation::Set {
                fields: pairs(&[("a", "9"), ("d", "6")]),
                only_absent: true,
            },
            HashOperation::Delete(vec![bytes("b"), bytes("x"), bytes("b")]),
        ]);
        let a = Answer::Value(bytes("4"));
        let wanted = [
            Answer::Number(2),
            Answer::Number(1),
            Answer::Several(vec![a.clone(), Answer::NotFound, a]),
            Answer::Number(1),
            Answer::Number(1),
        ];
        assert_eq!(told, wanted);
        assert_eq!(held, pairs(&[("a", "4"), ("c", "5"), ("d", "6")]));
    }

    #[test]
    fn a_hash_without_fields_does_not_exist() {
        let (told, held) = run(&[
            Operation::Hash(hset(&[("a", "1")])),
            Operation::Kind,
            Operation::Hash(HashOperation::Delete(vec![bytes("a")])),
            Operation::Kind,
            Operation::Hash(HashOperation::All),
            Operation::Hash(HashOperation::Delete(vec![bytes("a")])),
            Operation::Kind,
        ]);
        assert_eq!(told[1], Answer::Kind(ValueKind::Hash));
        assert_eq!(told[3..5], [Answer::NotFound, Answer::NotFound]);
        assert_eq!(told[5..], [Answer::Number(0), Answer::NotFound]);
        assert_eq!(held, []);
    }

    #[test]
    fn a_field_counts_as_a_value_does_and_nothing_is_changed_where_it_cannot() {
        let add = |name: &str, by| HashOperation::Increment {
            name: bytes(name),
            by,
        };
        let (told, held) = on_hash(vec![
            add("n", 5),
            add("n", -7),
            hset(&[("n", "x"), ("m", "9223372036854775807")]),
            add("n", 1),
            add("m", 1),
        ]);
        let wanted = [5, -2].map(Answer::Number);
        assert_eq!(told[..2], wanted);
        assert_eq!(told[3..], [Answer::NotANumber, Answer::OutOfRange]);
        assert_eq!(held, pairs(&[("n", "x"), ("m", "9223372036854775807")]));
    }

    #[test]
    fn a_hash_grows_up_to_the_limit_and_no_further() {
        let long = "v".repeat(LIMIT);
        let (told, held) = on_hash(vec![hset(&[("a", "1")]), hset(&[("b", &long)])]);
        assert_eq!(told, [Answer::Number(1), Answer::TooLarge]);
        assert_eq!(held, pairs(&[("a", "1")]));
    }

    #[test]
    fn what_needs_another_kind_is_refused_and_a_set_replaces_it() {
        let name = || vec![bytes("a")];
        let (told, _) = run(&[
            Operation::Hash(hset(&[("a", "1")])),
            Operation::Get,
            Operation::Increment(1),
            Operation::Take,
            Operation::Expiry,
            Operation::set(bytes("text")),
            Operation::Hash(HashOperation::Get(name())),
            Operation::Hash(HashOperation::Delete(name())),
            Operation::Get,
        ]);
        assert_eq!(told[1..4], [const { Answer::WrongKind }; 3]);
        assert_eq!(told[4..6], [Answer::ForEver, Answer::Stored]);
        assert_eq!(told[6..8], [const { Answer::WrongKind }; 2]);
        assert_eq!(told[8], Answer::Value(bytes("text")));
    }
}
