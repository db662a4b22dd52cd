//! What may reach a terminal: names come from files, command lines and servers.

use std::borrow::Cow;

/// Returns `text` with a mark in place of each control character except line ends and tabs, and of
/// each mark that reorders a line. A name can therefore neither clear the screen nor hide earlier
/// output.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_control) {
        return Cow::Borrowed(text);
    }
    let shown = text.chars().map(|it| {
        if is_control(it) {
            char::REPLACEMENT_CHARACTER
        } else {
            it
        }
    });
    Cow::Owned(shown.collect())
}

fn is_control(it: char) -> bool {
    let reorders = matches!(it, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    (it.is_control() || reorders) && !matches!(it, '\n' | '\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_clear_the_screen() {
        let shown = printable("a\x1b[2Jb\u{9b}c\r\u{202e}d\ne\tf");
        assert_eq!(shown, "a\u{fffd}[2Jb\u{fffd}c\u{fffd}\u{fffd}d\ne\tf");
    }

    #[test]
    fn a_plain_text_is_not_copied() {
        assert!(matches!(printable("1.2 µs, 3 × as much"), Cow::Borrowed(_)));
    }
}
