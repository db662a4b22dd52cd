//! The types of a plan's values, each with its bounds, its default and its way to be read.

use std::str::FromStr;

use toml_edit::Value;

use super::key::Key;
use crate::error::PlanError;
use crate::section::{Limits, Number, Section};

/// What the manual and the list of keys need to know of a type.
pub(crate) trait Kind {
    /// The type, for the manual.
    fn type_name(&self) -> String;

    /// The default as TOML writes it; `None` without a constant one.
    fn default(&self) -> Option<String> {
        None
    }

    /// The bounds, for the manual.
    fn bounds(&self) -> String {
        String::new()
    }

    /// True if TOML writes the value without quotes.
    fn is_bare(&self) -> bool {
        false
    }

    /// Values that are out of bounds, each with the bound that the message names.
    #[cfg(test)]
    fn beyond(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}

impl<T: Number> Kind for Limits<T> {
    fn type_name(&self) -> String {
        T::NAME.to_owned()
    }

    fn default(&self) -> Option<String> {
        self.default.map(|it| it.literal())
    }

    fn bounds(&self) -> String {
        let most = grouped(&self.most.to_string());
        match self.least {
            Some(least) => format!("{} to {most}", grouped(&least.to_string())),
            None => format!("above 0, at most {most}"),
        }
    }

    fn is_bare(&self) -> bool {
        !self.most.literal().starts_with('"')
    }

    #[cfg(test)]
    fn beyond(&self) -> Vec<(String, String)> {
        let zero = T::default().literal();
        let (least, low) = match self.least {
            Some(least) => (least, format!("must be at least {least}")),
            None => (T::default(), "must be above 0".to_owned()),
        };
        let below = least.neighbour(false).map(|it| it.literal());
        let below = below.unwrap_or_else(|| zero.replace('0', "-1"));
        let mut found = vec![(below, low.clone())];
        if self.least.is_none() {
            found.push((zero, low));
        }
        let above = self.most.neighbour(true);
        found.extend(above.map(|it| (it.literal(), format!("must be at most {}", self.most))));
        found
    }
}

/// A whole number with commas; any other text as it is.
fn grouped(number: &str) -> String {
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return number.to_owned();
    }
    let mut out = String::new();
    for (at, digit) in number.chars().enumerate() {
        if at > 0 && (number.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

impl<T: Number> Key<Limits<T>> {
    pub(crate) fn read(&self, section: &Section<'_>) -> Result<T, PlanError> {
        section.number(self.name, &self.kind)
    }
}

impl Key<Limits<u64>> {
    /// A whole number that fits `T`.
    pub(crate) fn whole<T: TryFrom<u64>>(&self, section: &Section<'_>) -> Result<T, PlanError> {
        section.whole(self.name, &self.kind)
    }

    /// A whole number that may be absent.
    pub(crate) fn optional<T: TryFrom<u64>>(
        &self,
        section: &Section<'_>,
    ) -> Result<Option<T>, PlanError> {
        section.optional(self.name, &self.kind)
    }
}

/// A number between two others, without them.
#[derive(Clone, Copy)]
pub(crate) struct Real {
    pub(crate) default: Option<f64>,
    above: f64,
    below: f64,
    /// The value in the hint.
    pub(crate) example: f64,
}

impl Real {
    /// A number that a plan must have.
    pub(crate) const fn between(above: f64, below: f64, example: f64) -> Self {
        Self {
            default: None,
            above,
            below,
            example,
        }
    }

    pub(crate) const fn or(self, default: f64) -> Self {
        Self {
            default: Some(default),
            ..self
        }
    }
}

impl Kind for Real {
    fn type_name(&self) -> String {
        "number".to_owned()
    }

    fn default(&self) -> Option<String> {
        self.default.map(|it| it.to_string())
    }

    fn bounds(&self) -> String {
        format!("above {}, below {}", self.above, self.below)
    }

    fn is_bare(&self) -> bool {
        true
    }

    #[cfg(test)]
    fn beyond(&self) -> Vec<(String, String)> {
        let bound = format!("must be above {} and below {}", self.above, self.below);
        let values = [self.above, self.below, self.above - 1.0, self.below * 2.0];
        let written = values.map(|it| (format!("{it:?}"), bound.clone()));
        written.to_vec()
    }
}

impl Key<Real> {
    pub(crate) fn read(&self, section: &Section<'_>) -> Result<f64, PlanError> {
        let Real {
            default,
            above,
            below,
            example,
        } = self.kind;
        section.real(self.name, default, (above, below), example)
    }
}

/// A share from 0 to 1.
#[derive(Clone, Copy)]
pub(crate) struct Share {
    pub(crate) default: f64,
}

impl Kind for Share {
    fn type_name(&self) -> String {
        "number".to_owned()
    }

    fn default(&self) -> Option<String> {
        Some(self.default.to_string())
    }

    fn bounds(&self) -> String {
        "0 to 1".to_owned()
    }

    fn is_bare(&self) -> bool {
        true
    }

    #[cfg(test)]
    fn beyond(&self) -> Vec<(String, String)> {
        let bound = || "must be from 0 to 1".to_owned();
        vec![("-0.1".to_owned(), bound()), ("1.1".to_owned(), bound())]
    }
}

impl Key<Share> {
    pub(crate) fn read(&self, section: &Section<'_>) -> Result<f64, PlanError> {
        if section.has(self.name) {
            section.share(self.name)
        } else {
            Ok(self.kind.default)
        }
    }
}

/// One of a few words, each of which stands for a `T`.
#[derive(Clone, Copy)]
pub(crate) struct Choice<T: 'static> {
    words: fn() -> Vec<(&'static str, T)>,
    default: Option<T>,
}

impl<T: Copy> Choice<T> {
    /// One of these words, which a plan must have.
    pub(crate) const fn of(words: fn() -> Vec<(&'static str, T)>) -> Self {
        Self {
            words,
            default: None,
        }
    }

    pub(crate) const fn or(self, default: T) -> Self {
        Self {
            default: Some(default),
            ..self
        }
    }
}

impl<T: Copy + PartialEq> Kind for Choice<T> {
    fn type_name(&self) -> String {
        "string".to_owned()
    }

    fn default(&self) -> Option<String> {
        let words = (self.words)();
        let found = words.iter().find(|(_, it)| Some(*it) == self.default);
        found.map(|(word, _)| format!("\"{word}\""))
    }

    fn bounds(&self) -> String {
        let words = (self.words)().into_iter();
        let words: Vec<String> = words.map(|(word, _)| format!("`{word}`")).collect();
        words.join(", ")
    }

    #[cfg(test)]
    fn beyond(&self) -> Vec<(String, String)> {
        let words: Vec<&str> = (self.words)().into_iter().map(|(word, _)| word).collect();
        let bound = format!("must be one of {}", words.join(", "));
        vec![("\"bogus\"".to_owned(), bound)]
    }
}

impl<T: Copy> Key<Choice<T>> {
    pub(crate) fn read(&self, section: &Section<'_>) -> Result<T, PlanError> {
        section.choice(self.name, &(self.kind.words)(), self.kind.default)
    }
}

/// True or false.
#[derive(Clone, Copy)]
pub(crate) struct Switch {
    pub(crate) default: bool,
}

impl Kind for Switch {
    fn type_name(&self) -> String {
        "boolean".to_owned()
    }

    fn default(&self) -> Option<String> {
        Some(self.default.to_string())
    }

    fn is_bare(&self) -> bool {
        true
    }
}

impl Key<Switch> {
    pub(crate) fn read(&self, section: &Section<'_>) -> Result<bool, PlanError> {
        section.switch(self.name, self.kind.default)
    }
}

/// A text, whose meaning its reader checks.
#[derive(Clone, Copy)]
pub(crate) struct Text {
    /// The default, if it is a constant.
    default: Option<&'static str>,
    /// The text in the hint.
    example: &'static str,
}

impl Text {
    pub(crate) const fn like(example: &'static str) -> Self {
        Self {
            default: None,
            example,
        }
    }

    pub(crate) const fn or(self, default: &'static str) -> Self {
        Self {
            default: Some(default),
            ..self
        }
    }
}

impl Kind for Text {
    fn type_name(&self) -> String {
        "string".to_owned()
    }

    fn default(&self) -> Option<String> {
        self.default.map(|it| format!("\"{it}\""))
    }
}

impl Key<Text> {
    /// The hint to write the example.
    pub(crate) fn example(&self) -> String {
        self.hint_text(self.kind.example)
    }

    /// The text; its default when absent, if it has one.
    pub(crate) fn read<'a>(&self, section: &Section<'a>) -> Result<Option<&'a str>, PlanError> {
        let found = section.text(self.name, &self.example())?;
        Ok(found.or(self.kind.default))
    }

    /// The value that the text stands for.
    pub(crate) fn parsed<T>(&self, section: &Section<'_>) -> Result<T, PlanError>
    where
        T: FromStr,
        T::Err: std::fmt::Display,
    {
        let Some(text) = self.read(section)? else {
            return Err(section.missing(self.name, "must be a string", self.example()));
        };
        text.parse()
            .map_err(|error: T::Err| section.refuse(self.name, error.to_string(), self.example()))
    }
}

/// An array of values.
#[derive(Clone, Copy)]
pub(crate) struct List {
    /// The type of its values, for the manual.
    pub(crate) of: &'static str,
    /// The array in the hint.
    pub(crate) example: &'static str,
}

impl Kind for List {
    fn type_name(&self) -> String {
        format!("array of {}", self.of)
    }

    fn is_bare(&self) -> bool {
        true
    }
}

impl Key<List> {
    /// The hint to write the example.
    pub(crate) fn example(&self) -> String {
        self.hint(self.kind.example)
    }

    pub(crate) fn read<'a>(
        &self,
        section: &Section<'a>,
    ) -> Result<Option<Vec<&'a Value>>, PlanError> {
        section.list(self.name, &self.example())
    }
}

/// A value that has no type of its own: a table, or one of several types.
#[derive(Clone, Copy)]
pub(crate) struct Other(pub(crate) &'static str);

impl Kind for Other {
    fn type_name(&self) -> String {
        self.0.to_owned()
    }
}
