//! Counts the messages of a body of gRPC: five bytes with a flag and a length before each.

/// Bytes before each message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// How far a body was read.
#[derive(Debug, Default)]
pub(super) struct Messages {
    whole: u64,
    /// Bytes of the next message's prefix.
    prefix: [u8; PREFIX_BYTES],
    /// How many of these have come.
    known: usize,
    /// Bytes of the message that have not come, once its prefix is known.
    left: u64,
}

impl Messages {
    /// Messages that have come to their end.
    pub(super) const fn whole(&self) -> u64 {
        self.whole
    }

    /// Takes the next bytes of the body.
    pub(super) fn take(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            if self.known < PREFIX_BYTES {
                let count = data.len().min(PREFIX_BYTES - self.known);
                self.prefix[self.known..self.known + count].copy_from_slice(&data[..count]);
                self.known += count;
                data = &data[count..];
                if self.known < PREFIX_BYTES {
                    return;
                }
                let [_, length @ ..] = self.prefix;
                self.left = u32::from_be_bytes(length).into();
            }
            let count = usize::try_from(self.left).map_or(data.len(), |left| left.min(data.len()));
            data = &data[count..];
            self.left -= count as u64;
            if self.left == 0 {
                self.whole += 1;
                self.known = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_message_is_counted_however_the_body_is_cut(
            lengths in prop::collection::vec(0_usize..40, 0..20), cut in 1_usize..30
        ) {
            let mut body = Vec::new();
            for length in &lengths {
                body.push(0);
                body.extend_from_slice(&u32::try_from(*length).unwrap().to_be_bytes());
                body.resize(body.len() + length, 7);
            }
            let mut messages = Messages::default();
            for data in body.chunks(cut) {
                messages.take(data);
            }
            prop_assert_eq!(messages.whole(), lengths.len() as u64);
            messages.take(&[0, 0, 0, 0]);
            prop_assert_eq!(messages.whole(), lengths.len() as u64);
        }
    }
}
