//! A message in a stream of bytes: its length, four bytes, little-endian, and then the message.

use bytes::{Buf as _, BytesMut};

use super::{MESSAGE_BYTES_MAX, WireError, decode};
use crate::message::Message;

/// Bytes of the length in front of a message.
pub const LENGTH_BYTES: usize = 4;

/// Removes the first message from the bytes of a stream; `None` if it has not arrived completely.
///
/// # Errors
///
/// [`WireError`] if the bytes are no message. The stream ends there, because the next message
/// cannot be found.
pub fn take_frame(input: &mut BytesMut) -> Result<Option<Message>, WireError> {
    let frame = cut_frame(input, MESSAGE_BYTES_MAX)?;
    frame.map(|frame| decode(&frame.freeze())).transpose()
}

/// Removes the bytes of the first frame, without reading them; `None` if it has not arrived
/// completely.
///
/// # Errors
///
/// [`WireError::Long`] if the frame has more than `bytes_max` bytes, which ends the stream.
pub fn cut_frame(input: &mut BytesMut, bytes_max: usize) -> Result<Option<BytesMut>, WireError> {
    let Some(length) = input.first_chunk::<LENGTH_BYTES>() else {
        return Ok(None);
    };
    let length = u32::from_le_bytes(*length) as usize;
    if length > bytes_max {
        return Err(WireError::Long(length));
    }
    if input.len() < LENGTH_BYTES + length {
        return Ok(None);
    }
    let before = input.len();
    input.advance(LENGTH_BYTES);
    let frame = input.split_to(length);
    assert_eq!(
        before,
        LENGTH_BYTES + frame.len() + input.len(),
        "the next frame begins where this one ends"
    );
    Ok(Some(frame))
}

#[cfg(test)]
mod tests {
    use bytes::BufMut as _;

    use super::*;
    use crate::message::Control;
    use crate::wire::encode;

    fn framed(message: &Message) -> BytesMut {
        let mut bytes = BytesMut::new();
        encode(message, &mut bytes);
        let mut frame = BytesMut::new();
        frame.put_u32_le(u32::try_from(bytes.len()).unwrap());
        frame.extend_from_slice(&bytes);
        frame
    }

    #[test]
    fn messages_are_cut_from_a_stream_wherever_it_was_torn() {
        let asked = Message::Control(Control::StatusQuery);
        let told = Message::Control(Control::Status("{}".to_owned()));
        let mut stream = framed(&asked);
        stream.extend_from_slice(&framed(&told));
        let mut input = BytesMut::new();
        let mut found = Vec::new();
        for byte in stream {
            input.put_u8(byte);
            found.extend(take_frame(&mut input).unwrap());
        }
        assert_eq!(found, [asked, told]);
    }

    #[test]
    fn a_frame_that_is_no_message_or_too_long_ends_the_stream() {
        let refused = |bytes: &[u8]| take_frame(&mut BytesMut::from(bytes)).unwrap_err();
        let longest = u32::MAX as usize;
        assert_eq!(refused(&[0xff; 4]), WireError::Long(longest));
        assert_eq!(refused(&[3, 0, 0, 0, 1, 2, 3]), WireError::Short(3));
        assert_eq!(refused(&[0, 0, 0, 0]), WireError::Short(0));
    }
}
