//! Words and numbers in the kernel's text files, as bytes: nothing there is promised to be UTF-8.

/// The lines of a text.
pub(crate) fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
}

/// The words of a line, separated by any run of blanks.
pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
}

/// A decimal number; `None` for anything else, also for one that does not fit.
pub(crate) fn decimal(word: &[u8]) -> Option<u64> {
    number(word, 10)
}

/// A hexadecimal number without prefix.
pub(crate) fn hexadecimal(word: &[u8]) -> Option<u64> {
    number(word, 16)
}

fn number(word: &[u8], radix: u32) -> Option<u64> {
    if word.is_empty() {
        return None;
    }
    word.iter().try_fold(0u64, |sum, &byte| {
        let digit = char::from(byte).to_digit(radix)?;
        sum.checked_mul(u64::from(radix))?
            .checked_add(u64::from(digit))
    })
}

/// The number after the line's first word, for the line that begins with `key`. The key holds its
/// colon where the file has one: `MemTotal:`, `pgfault`.
pub(crate) fn value_of(text: &[u8], key: &[u8]) -> Option<u64> {
    lines(text)
        .find_map(|line| line.strip_prefix(key).filter(|rest| starts_blank(rest)))
        .and_then(|rest| words(rest).next())
        .and_then(decimal)
}

fn starts_blank(rest: &[u8]) -> bool {
    rest.first().is_some_and(u8::is_ascii_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_does_not_fit_is_none() {
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(decimal(b"18446744073709551616"), None);
        assert_eq!(decimal(b""), None);
        assert_eq!(decimal(b"-1"), None);
        assert_eq!(decimal(b"+1"), None);
        assert_eq!(hexadecimal(b"0000ffff"), Some(65_535));
    }

    #[test]
    fn a_key_matches_whole_words_only() {
        let text = b"pgfault_more 7\npgfault 42\n";
        assert_eq!(value_of(text, b"pgfault"), Some(42));
        assert_eq!(value_of(text, b"pgfa"), None);
        assert_eq!(value_of(b"pgfault", b"pgfault"), None);
        assert_eq!(value_of(b"pgfault \xff\xfe", b"pgfault"), None);
    }

    #[test]
    fn a_value_is_not_taken_from_the_next_line() {
        assert_eq!(value_of(b"swap \n12 34\n", b"swap"), None);
    }
}
