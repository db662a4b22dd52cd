//! Cuts a stream of bytes into messages of one length.

/// Most bytes that one read can return.
const READ_BYTES: usize = 256 << 10;

/// A receive buffer that is cut into messages.
#[derive(Debug)]
pub(crate) struct Frames {
    buffer: Vec<u8>,
    filled: usize,
    message_bytes: usize,
}

impl Frames {
    pub(crate) fn new(message_bytes: usize) -> Self {
        Self {
            buffer: vec![0; READ_BYTES.max(2 * message_bytes)],
            filled: 0,
            message_bytes,
        }
    }

    /// Returns the free part of the buffer, for the next read.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        &mut self.buffer[self.filled..]
    }

    /// Accounts for `bytes` new bytes in the buffer, and passes each complete message to `take`.
    pub(crate) fn came(&mut self, bytes: usize, take: &mut dyn FnMut(&[u8])) {
        self.filled += bytes;
        let messages = self.buffer[..self.filled].chunks_exact(self.message_bytes);
        let rest = messages.remainder().len();
        messages.for_each(take);
        let from = self.filled - rest;
        self.buffer.copy_within(from..self.filled, 0);
        self.filled = rest;
    }

    /// Discards the buffered bytes.
    pub(crate) fn clear(&mut self) {
        self.filled = 0;
    }

    /// Copies `bytes` into the buffer, and passes each complete message to `take`.
    #[cfg(feature = "quic")]
    pub(crate) fn copy(&mut self, mut bytes: &[u8], take: &mut dyn FnMut(&[u8])) {
        while !bytes.is_empty() {
            let room = self.room();
            let fits = room.len().min(bytes.len());
            room[..fits].copy_from_slice(&bytes[..fits]);
            bytes = &bytes[fits..];
            self.came(fits, take);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_whole_however_the_bytes_come() {
        let sent: Vec<u8> = (0..=255).cycle().take(10 * 100).collect();
        for step in [1, 7, 99, 100, 101, 350] {
            let mut frames = Frames::new(100);
            let mut came: Vec<u8> = Vec::new();
            for piece in sent.chunks(step) {
                frames.room()[..piece.len()].copy_from_slice(piece);
                frames.came(piece.len(), &mut |message| {
                    assert_eq!(message.len(), 100);
                    came.extend(message);
                });
            }
            assert_eq!(came, sent, "in steps of {step}");
        }
    }
}
