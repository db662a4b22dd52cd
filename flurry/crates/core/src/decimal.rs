//! Decimal numbers as Redis reads them, in protocol and values alike.

/// Returns the value of a canonical number: no sign but a minus, no leading zero, and within 64
/// bits.
#[must_use]
pub fn decimal(text: &[u8]) -> Option<i64> {
    let canonical = matches!(text, [b'0'] | [b'1'..=b'9', ..] | [b'-', b'1'..=b'9', ..]);
    // The pattern checks only the first digit, and `parse` refuses other bytes behind it.
    let text = std::str::from_utf8(text).ok().filter(|_| canonical)?;
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_one_only_as_it_would_be_printed() {
        for number in [0, 7, -7, 10, i64::MAX, i64::MIN] {
            assert_eq!(decimal(number.to_string().as_bytes()), Some(number));
        }
        for text in [
            "",
            "-",
            "-0",
            "00",
            "01",
            "-01",
            "+1",
            " 1",
            "1 ",
            "1.0",
            "1e3",
            "x",
            "1x",
            "9223372036854775808",
            "-9223372036854775809",
        ] {
            assert_eq!(decimal(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(decimal(b"1\xff"), None);
    }
}
