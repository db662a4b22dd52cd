//! Matches names against patterns with the syntax of Redis: `*`, `?`, `[a-z]`, `[^a]`, and `\`
//! before a character that stands for itself.

/// Returns whether a text matches a pattern. The time is at most proportional to the product of
/// both lengths.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut pattern, mut text) = (pattern, text);
    // The place to resume when the text after the last star does not match.
    let mut again: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', rest @ ..] = pattern {
            pattern = rest;
            again = Some((rest, text));
            continue;
        }
        let fits = match (one(pattern), text) {
            (None, []) => return true,
            (Some((one, rest)), [byte, after @ ..]) if one.fits(*byte) => Some((rest, after)),
            _ => None,
        };
        (pattern, text) = match (fits, again) {
            (Some(next), _) => next,
            (None, Some((rest, [_, after @ ..]))) => {
                again = Some((rest, after));
                (rest, after)
            }
            (None, _) => return false,
        };
    }
}

/// What stands for one byte.
enum One<'a> {
    Any,
    This(u8),
    Class { negated: bool, members: &'a [u8] },
}

/// The first of a pattern that stands for one byte, and what follows it.
fn one(pattern: &[u8]) -> Option<(One<'_>, &[u8])> {
    Some(match pattern {
        [] => return None,
        [b'?', rest @ ..] => (One::Any, rest),
        [b'\\', byte, rest @ ..] => (One::This(*byte), rest),
        [b'[', rest @ ..] => {
            let (negated, rest) = match rest {
                [b'^', rest @ ..] => (true, rest),
                _ => (false, rest),
            };
            let end = class_end(rest);
            let members = &rest[..end];
            (
                One::Class { negated, members },
                rest.get(end + 1..).unwrap_or(&[]),
            )
        }
        [byte, rest @ ..] => (One::This(*byte), rest),
    })
}

/// Where the members of a class end; without a bracket they end with the pattern.
fn class_end(members: &[u8]) -> usize {
    let mut at = 0;
    while at < members.len() {
        match members[at] {
            b']' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    members.len()
}

impl One<'_> {
    fn fits(&self, byte: u8) -> bool {
        match self {
            Self::Any => true,
            Self::This(wanted) => *wanted == byte,
            Self::Class { negated, members } => has(members, byte) != *negated,
        }
    }
}

fn has(mut members: &[u8], byte: u8) -> bool {
    loop {
        match members {
            [] => return false,
            [b'\\', member, rest @ ..] => {
                if *member == byte {
                    return true;
                }
                members = rest;
            }
            [from, b'-', to, rest @ ..] => {
                if (from.min(to)..=from.max(to)).contains(&&byte) {
                    return true;
                }
                members = rest;
            }
            [member, rest @ ..] => {
                if *member == byte {
                    return true;
                }
                members = rest;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_redis() {
        for (pattern, text, wanted) in [
            ("*", "", true),
            ("*", "anything", true),
            ("a*c", "abbbc", true),
            ("a*c", "abbbd", false),
            ("a*b*c", "axxbyybzc", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h\\?llo", "h?llo", true),
            ("h\\?llo", "hello", false),
            ("[\\]]", "]", true),
            ("[ab", "b", true),
            ("", "", true),
            ("", "a", false),
            ("a", "", false),
        ] {
            let found = matches(pattern.as_bytes(), text.as_bytes());
            assert_eq!(found, wanted, "{pattern} {text}");
        }
    }

    #[test]
    fn a_pattern_of_many_stars_is_done_in_time() {
        let pattern = b"*a".repeat(2_000);
        assert!(!matches(&pattern, &b"b".repeat(100_000)));
    }
}
