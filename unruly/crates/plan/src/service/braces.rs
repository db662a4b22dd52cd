//! The words in single braces of older service files, which are refused with their new spelling.

use super::names::OWN;
use super::template::Template;
use crate::error::PlanError;

/// The words that an older file could have in braces.
pub(super) struct Old {
    words: Vec<String>,
}

impl Old {
    /// Returns the words of a file with these ports and saved values, and these parameters.
    pub(super) fn of(ports_and_saved: &[&str], parameters: &[&str]) -> Self {
        let own = OWN.iter().chain(&["bin", "jars"]);
        let words = own.chain(ports_and_saved).chain(parameters);
        Self {
            words: words.map(|&word| word.to_owned()).collect(),
        }
    }

    /// Refuses a template with a word in single braces that stood for something.
    pub(super) fn check(&self, template: &Template) -> Result<(), PlanError> {
        let Some((line, word)) = self.find(template.source()) else {
            return Ok(());
        };
        let wrong = format!("{{{word}}} is the form of older files");
        let wanted = "must be an expression in two braces";
        Err(template.complain(line, wrong, wanted, format!("write {}", spelling(word))))
    }

    /// Finds the first such word, with its line from 0.
    fn find<'t>(&self, text: &'t str) -> Option<(usize, &'t str)> {
        let mut at = 0;
        while let Some(start) = text[at..].find('{').map(|it| it + at) {
            let rest = &text[start..];
            if let Some(length) = block(rest) {
                at = start + length;
                continue;
            }
            let end = rest.find('}').unwrap_or(rest.len());
            let word = &rest[1..end];
            // `${host}` is a variable of a shell.
            if !text[..start].ends_with('$') && end < rest.len() && self.has(word) {
                return Some((text[..start].matches('\n').count(), word));
            }
            at = start + 1;
        }
        None
    }

    fn has(&self, word: &str) -> bool {
        let known = |word: &str| self.words.iter().any(|it| it == word);
        let of_process = word.rsplit_once('.').is_some_and(|(name, what)| {
            let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            !name.is_empty() && name.chars().all(fits) && known(what)
        });
        of_process || known(word) || known(&identifier(word))
    }
}

/// Returns the length of the expression, block or comment that a text begins with, with what a raw
/// block encloses.
fn block(text: &str) -> Option<usize> {
    let closing = match text.get(..2)? {
        "{{" => "}}",
        "{%" => "%}",
        "{#" => "#}",
        _ => return None,
    };
    let end = text.find(closing).map_or(text.len(), |it| it + 2);
    let inside = text[2..end].trim_matches(['-', '+', '%', '}', ' ']);
    if inside != "raw" {
        return Some(end);
    }
    let raw_end = text[end..].find("endraw");
    Some(raw_end.map_or(text.len(), |it| end + it))
}

/// Returns the name that a template can use instead of this one.
pub(super) fn identifier(name: &str) -> String {
    let fits = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '_'
        }
    };
    let name: String = name.chars().map(fits).collect();
    name.trim_start_matches(|c: char| !c.is_ascii_lowercase())
        .to_owned()
}

/// Returns how a template writes what an older file had in braces.
fn spelling(word: &str) -> String {
    let Some((process, what)) = word.rsplit_once('.') else {
        return format!("{{{{ {} }}}}", identifier(word));
    };
    if identifier(process) == process {
        format!("{{{{ processes.{process}.{what} }}}}")
    } else {
        format!("{{{{ processes['{process}'].{what} }}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Option<(usize, &str)> {
        Old::of(&["port", "address_2"], &["pool"]).find(text)
    }

    #[test]
    fn a_word_in_single_braces_is_found_with_its_line() {
        assert_eq!(found("a\nlisten {host}:1"), Some((1, "host")));
        assert_eq!(found("{ \"peer\": {one-1.port} }"), Some((0, "one-1.port")));
        assert_eq!(found("{{ host }} {pool}"), Some((0, "pool")));
        assert_eq!(found("connect {address-2}"), Some((0, "address-2")));
    }

    #[test]
    fn what_never_stood_for_anything_and_what_is_a_template_stay() {
        for text in [
            "{{ host }}:{{port}}",
            "{% raw %}{host}{% endraw %}",
            "{# {host} #}",
            "${host} {key} {a b} {0} {",
            "{ host }",
            "{{ \"{host}\" }}",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
    }

    #[test]
    fn the_new_spelling_names_a_process_as_templates_can() {
        for (old, new) in [
            ("host", "{{ host }}"),
            ("address-2", "{{ address_2 }}"),
            ("redis-1.port", "{{ processes['redis-1'].port }}"),
            ("controller.host", "{{ processes.controller.host }}"),
        ] {
            assert_eq!(spelling(old), new);
        }
    }
}
