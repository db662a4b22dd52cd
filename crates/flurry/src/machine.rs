//! The key-value machine with values that fit datagrams.

use bytes::Bytes;
use flurry_core::id::WallNs;
use flurry_core::key_value::{Answer, KeyValue, Value};
use flurry_core::machine::{Access, Applied, Malformed, StateMachine};

use crate::VALUE_BYTES_MAX;

/// [`KeyValue`], except that an operation which would make a value longer than [`VALUE_BYTES_MAX`] is
/// answered [`Answer::TooLarge`]: appends could otherwise make one that no datagram can carry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DatagramValues;

impl StateMachine for DatagramValues {
    type State = Value;

    fn access(&self, operation: &[u8]) -> Result<Access, Malformed> {
        KeyValue.access(operation)
    }

    fn apply(
        &self,
        state: Option<&Value>,
        operation: &[u8],
        at: WallNs,
    ) -> Result<Applied<Value>, Malformed> {
        let applied = KeyValue.apply(state, operation, at)?;
        let fits = |value: &Value| value.bytes.len() <= VALUE_BYTES_MAX;
        if applied.state.as_ref().is_none_or(fits) {
            return Ok(applied);
        }
        if KeyValue.access(operation)? == Access::Blind {
            // Every blind answer is the same one, so this can only be refused as a whole.
            return Err(Malformed("its value does not fit a datagram".to_owned()));
        }
        let live = state.filter(|value| value.expires_at.is_none_or(|end| at < end));
        Ok(Applied {
            state: live.cloned(),
            answer: Answer::TooLarge.encode(),
        })
    }

    fn blind_answer(&self) -> Bytes {
        KeyValue.blind_answer()
    }

    fn snapshot(&self, state: &Value) -> Bytes {
        KeyValue.snapshot(state)
    }

    fn restore(&self, snapshot: &[u8]) -> Result<Value, Malformed> {
        KeyValue.restore(snapshot)
    }

    fn size_bytes(&self, state: &Value) -> usize {
        KeyValue.size_bytes(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flurry_core::key_value::Operation;

    #[test]
    fn a_value_grows_up_to_the_limit_and_no_further() {
        let full = Value {
            bytes: Bytes::from(vec![7; VALUE_BYTES_MAX - 1]),
            expires_at: None,
        };
        let append = |state: &Value, text: &'static str| {
            let operation = Operation::Append(Bytes::from(text)).encode();
            DatagramValues
                .apply(Some(state), &operation, WallNs(1))
                .unwrap()
        };
        let one = append(&full, "1");
        assert_eq!(one.state.unwrap().bytes.len(), VALUE_BYTES_MAX);
        let two = append(&full, "12");
        assert_eq!(two.state, Some(full));
        assert_eq!(two.answer, Answer::TooLarge.encode());
    }

    #[test]
    fn a_plain_write_over_the_limit_is_refused_as_a_whole() {
        let operation = Operation::set(Bytes::from(vec![7; VALUE_BYTES_MAX + 1])).encode();
        assert!(DatagramValues.apply(None, &operation, WallNs(1)).is_err());
    }
}
