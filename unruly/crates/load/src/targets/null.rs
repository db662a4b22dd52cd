//! The null target: the kernel returns the sent bytes at once. Its latency is the load generator's
//! own cost.

use super::{Driver, DriverError, Settings, without_level};
use crate::link::Place;
use crate::target::{Answer, Incoming, Operation, Outgoing, ProtocolError, Target};

/// A message: the number of its request, and the value of a write.
const HEAD_BYTES: usize = 8;

/// Longest value: a datagram holds it.
const VALUE_MAX: u64 = 60_000;

pub(super) fn make(settings: &Settings<'_>) -> Result<Box<dyn Driver>, DriverError> {
    without_level(settings)?;
    if settings.store.value.most().0 > VALUE_MAX {
        return Err(DriverError::new(
            "value",
            format!("it is up to {}", settings.store.value.most()),
            format!("wanted at most {VALUE_MAX}B, which one datagram holds"),
            "value = \"1000B\"",
        ));
    }
    Ok(Box::new(Null))
}

struct Null;

impl Driver for Null {
    fn places(&self) -> &[Place] {
        &[Place::Own]
    }

    fn target(&self, _place: usize) -> Box<dyn Target> {
        Box::new(Self)
    }
}

impl Target for Null {
    fn greet(&mut self, _out: &mut Vec<u8>) -> usize {
        0
    }

    fn encode(&mut self, outgoing: &Outgoing<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(&outgoing.request.to_be_bytes());
        if let Operation::Write { value, .. } = outgoing.operation {
            out.extend_from_slice(value.as_bytes());
        }
    }

    fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Option<Incoming<'a>>, ProtocolError> {
        let head = input.first_chunk::<HEAD_BYTES>();
        let head = head.ok_or_else(|| ProtocolError::reply(input, "the bytes that were sent"))?;
        let request = u64::from_be_bytes(*head);
        Ok(Some(Incoming::new(request, Answer::Done, input.len())))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{READ, WRITE, asked, target_of, whole};
    use super::*;

    #[test]
    fn what_is_sent_is_its_own_answer() {
        let (mut target, greeting) = target_of("url = \"null:\"");
        assert!(greeting.is_empty());
        for (request, operation) in [(5, WRITE), (6, READ)] {
            let sent = asked(target.as_mut(), request, operation);
            let incoming = whole(target.as_mut(), &sent);
            assert_eq!((incoming.request, incoming.answer), (request, Answer::Done));
        }
        assert!(target.decode(b"short").is_err());
    }
}
