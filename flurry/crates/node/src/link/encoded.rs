//! The bytes of the message that is sent.

use std::sync::Arc;

use bytes::BytesMut;
use flurry_core::message::{Copy, Message};
use flurry_core::wire;

/// A message as bytes. The copies of a request for several servers have the same bytes, so one that
/// follows another is not encoded again.
#[derive(Debug, Default)]
pub(super) struct Encoded {
    bytes: BytesMut,
    /// The copy whose bytes these are; `None` for another message, or when they are damaged.
    copy: Option<Copy>,
}

impl Encoded {
    /// Replaces the bytes by those of a message.
    pub(super) fn put(&mut self, message: &Message) {
        let copy = match message {
            Message::Request(copy) => Some(copy),
            _ => None,
        };
        if let (Some(copy), Some(last)) = (copy, &self.copy)
            && Arc::ptr_eq(&copy.request, &last.request)
            && (copy.config, copy.attempt) == (last.config, last.attempt)
        {
            return;
        }
        self.copy = copy.cloned();
        self.bytes.clear();
        wire::encode(message, &mut self.bytes);
    }

    /// Changes a bit, as a fault of a network.
    pub(super) fn damage(&mut self) {
        self.copy = None;
        if let Some(last) = self.bytes.last_mut() {
            *last ^= 1;
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use flurry_core::config::Level;
    use flurry_core::id::{
        ConfigNumber, DurationNs, Epoch, Key, OperationId, Sequence, SessionId, Version, WallNs,
    };
    use flurry_core::machine::Access;
    use flurry_core::message::{Ask, Control, Request};

    use super::*;

    fn request(operation: &'static str) -> Arc<Request> {
        let session = SessionId(7);
        Arc::new(Request {
            id: OperationId {
                session,
                epoch: Epoch(1),
                sequence: Sequence(2),
            },
            dep: Version::NONE,
            key: Key::new(session, Bytes::from_static(b"key")).unwrap(),
            ask: Ask::Apply {
                operation: Bytes::from_static(operation.as_bytes()),
                access: Access::Blind,
            },
            level: Level::First,
            at: WallNs(1),
            stable: Sequence(1),
            clean_since: None,
            opened_in: ConfigNumber(0),
            quorum_earlier: 1,
            timeout: DurationNs(1),
        })
    }

    #[test]
    fn whatever_was_sent_before_the_bytes_are_those_of_the_message() {
        let (one, other) = (request("one"), request("other"));
        let copy = |request: &Arc<Request>, config, attempt| {
            Message::Request(Copy {
                request: Arc::clone(request),
                config: ConfigNumber(config),
                attempt,
            })
        };
        let messages = [
            copy(&one, 1, 0),
            copy(&one, 1, 0),
            copy(&one, 1, 1),
            copy(&one, 2, 1),
            copy(&other, 2, 1),
            Message::Control(Control::ConfigQuery),
            copy(&other, 2, 1),
            copy(&one, 1, 0),
        ];
        let mut encoded = Encoded::default();
        for (number, message) in messages.iter().enumerate() {
            let mut alone = BytesMut::new();
            wire::encode(message, &mut alone);
            encoded.put(message);
            assert_eq!(encoded.bytes(), &alone[..], "message {number}");
            if number == 0 {
                encoded.damage();
                assert_ne!(encoded.bytes(), &alone[..]);
            }
        }
    }
}
