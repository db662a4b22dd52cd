//! A key of a plan: its name, the values that it takes, and its words in the manual.
//!
//! A table lists the keys of one section of a plan. The list of known keys, the suggestions for an
//! unknown one, the plan that is written out and the manual follow from it. The parser reads each
//! key through its entry, so that a bound or a default stands in one place.

use toml_edit::Value;

use super::kinds::Kind;
use crate::error::PlanError;
use crate::section::Section;

/// A key, and everything that the crate knows of it.
#[derive(Clone, Copy)]
pub(crate) struct Key<K> {
    /// The name in its section.
    pub(crate) name: &'static str,
    /// The type, the bounds and the default of its values.
    pub(crate) kind: K,
    /// The properties that do not depend on the type.
    pub(crate) notes: Notes,
}

/// The properties of a key that do not depend on its type.
#[derive(Clone, Copy)]
pub(crate) struct Notes {
    /// The meaning, for the manual.
    meaning: &'static str,
    /// The default in words, where it is no constant.
    default: Option<&'static str>,
    /// Bounds that the type does not have, for the manual.
    also: &'static str,
    /// The values of another key for which this one is allowed; `None` if it always is.
    pub(crate) only: Option<&'static [&'static str]>,
    /// Why it is not allowed for other values, for messages.
    pub(crate) reason: &'static str,
    /// True if `run.scale` multiplies it.
    pub(crate) is_scaled: bool,
    /// True if a matrix may vary it.
    pub(crate) is_variable: bool,
}

/// Returns a key with this name, type and meaning.
pub(crate) const fn key<K>(name: &'static str, kind: K, meaning: &'static str) -> Key<K> {
    Key {
        name,
        kind,
        notes: Notes {
            meaning,
            default: None,
            also: "",
            only: None,
            reason: "",
            is_scaled: false,
            is_variable: true,
        },
    }
}

impl<K: Copy> Key<K> {
    /// Describes the default in words.
    pub(crate) const fn default_is(mut self, words: &'static str) -> Self {
        self.notes.default = Some(words);
        self
    }

    /// Adds a bound that the type does not have.
    pub(crate) const fn also(mut self, bound: &'static str) -> Self {
        self.notes.also = bound;
        self
    }

    /// Allows the key only for these values of another key.
    pub(crate) const fn only(mut self, words: &'static [&'static str]) -> Self {
        self.notes.only = Some(words);
        self
    }

    /// Gives the reason of [`Self::only`], for messages.
    pub(crate) const fn because(mut self, reason: &'static str) -> Self {
        self.notes.reason = reason;
        self
    }

    /// Lets `run.scale` multiply the key, which is a time.
    pub(crate) const fn scaled(mut self) -> Self {
        self.notes.is_scaled = true;
        self
    }

    /// Forbids a matrix to vary the key.
    pub(crate) const fn fixed(mut self) -> Self {
        self.notes.is_variable = false;
        self
    }

    /// Returns the key with other limits, since limits may depend on other keys of the plan.
    pub(crate) fn with(&self, change: impl FnOnce(K) -> K) -> Self {
        Self {
            kind: change(self.kind),
            ..*self
        }
    }
}

impl<K> Key<K> {
    /// Returns the hint to write this value.
    pub(crate) fn hint(&self, value: impl std::fmt::Display) -> String {
        format!("{} = {value}", self.name)
    }

    /// Returns the hint to write this text.
    pub(crate) fn hint_text(&self, value: impl std::fmt::Display) -> String {
        self.hint(format!("\"{value}\""))
    }
}

/// A key whose type is erased.
pub(crate) trait Described {
    fn name(&self) -> &'static str;
    fn kind(&self) -> &dyn Kind;
    fn notes(&self) -> &Notes;

    /// Returns the default as the manual shows it.
    fn default(&self) -> String {
        if let Some(words) = self.notes().default {
            return words.to_owned();
        }
        match self.kind().default() {
            Some(literal) if literal.starts_with('"') => format!("`{literal}`"),
            Some(literal) => literal,
            None => "required".to_owned(),
        }
    }

    /// Returns the bounds as the manual shows them.
    fn bounds(&self) -> String {
        let (own, also) = (self.kind().bounds(), self.notes().also.to_owned());
        let parts = [own, also].into_iter().filter(|part| !part.is_empty());
        parts.collect::<Vec<_>>().join("; ")
    }

    /// The meaning as the manual has it.
    fn meaning(&self) -> String {
        let meaning = self.notes().meaning;
        match self.notes().only {
            Some(only) => format!("{meaning}; only for {}", only.join(", ")),
            None => meaning.to_owned(),
        }
    }
}

impl<K: Kind> Described for Key<K> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn kind(&self) -> &dyn Kind {
        &self.kind
    }

    fn notes(&self) -> &Notes {
        &self.notes
    }
}

/// The keys of a section, in the order in which a plan is written out and messages list them.
pub(crate) struct Table<S: 'static> {
    /// The name of the section in paths; empty at the top of a plan.
    pub(crate) name: &'static str,
    pub(crate) rows: &'static [Row<S>],
}

/// A key of a section that is read into an `S`.
pub(crate) struct Row<S> {
    pub(crate) key: &'static dyn Described,
    /// The value as TOML writes it; `None` where a plan leaves the key out.
    pub(crate) written: fn(&S) -> Option<String>,
}

impl<S> Table<S> {
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.keys().iter().map(|key| key.name()).collect()
    }

    pub(crate) fn keys(&self) -> Vec<&'static dyn Described> {
        self.rows.iter().map(|row| row.key).collect()
    }

    /// Refuses keys of a section that are not in this table.
    pub(crate) fn check(&self, section: &Section<'_>) -> Result<(), PlanError> {
        section.check_keys(&self.names())
    }

    /// Finds a key of the section that `word`, the value of another key, does not have. Returns
    /// its name and the reason.
    pub(crate) fn misplaced(
        &self,
        section: &Section<'_>,
        word: &str,
    ) -> Option<(&'static str, &'static str)> {
        let mut keys = self.keys().into_iter();
        let found = keys.find(|key| {
            let only = key.notes().only;
            section.has(key.name()) && only.is_some_and(|words| !words.contains(&word))
        });
        found.map(|key| (key.name(), key.notes().reason))
    }

    /// The lines of a section with these values.
    pub(crate) fn lines(&self, values: &S) -> String {
        let line = |row: &Row<S>| {
            let value = (row.written)(values)?;
            Some(format!("{} = {value}\n", row.key.name()))
        };
        self.rows.iter().filter_map(line).collect()
    }
}

/// A value that TOML writes without quotes.
#[expect(clippy::unnecessary_wraps, reason = "a row may leave its key out")]
pub(crate) fn bare(value: impl std::fmt::Display) -> Option<String> {
    Some(value.to_string())
}

/// A value that TOML writes as a string.
#[expect(clippy::unnecessary_wraps, reason = "a row may leave its key out")]
pub(crate) fn text(value: impl std::fmt::Display) -> Option<String> {
    Some(quoted(&value.to_string()))
}

/// An array of values that TOML writes without quotes.
pub(crate) fn list<T: std::fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    format!("[{}]", items.join(", "))
}

/// A string of TOML.
pub(crate) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Defines the keys of a section and the table that lists them. Each entry is a constant with its
/// type, the key, and the way to write its value out.
macro_rules! table {
    (
        $(#[$doc:meta])* $table:ident: $values:ty = $name:literal;
        $($key:ident: $kind:ty = $built:expr, $written:expr;)*
    ) => {
        $(pub(crate) const $key: Key<$kind> = $built;)*

        $(#[$doc])*
        pub(crate) const $table: Table<$values> = Table {
            name: $name,
            rows: &[$(Row { key: &$key, written: $written }),*],
        };
    };
}
pub(crate) use table;
