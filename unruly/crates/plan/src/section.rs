//! A table of the plan, read key by key; every complaint knows its line.

use std::fmt::Display;

use toml_edit::{Document, Item, TableLike, Value};

use crate::error::PlanError;
use crate::keys::did_you_mean;
use crate::limits::MAX_PLAN_BYTES;
use crate::units::{BitRate, Bytes, DurationNs, RateHz, UnitError};

/// The text of a plan and what messages call it.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) path: &'a str,
    pub(crate) text: &'a str,
}

impl<'a> Source<'a> {
    /// The text as TOML; `manual` is where its keys are described.
    pub(crate) fn document(&self, manual: &str) -> Result<Document<&'a str>, PlanError> {
        let complain = |offset_bytes, wrong: String, wanted: &str, hint: &str| PlanError {
            place: self.place(offset_bytes),
            key: String::new(),
            wrong,
            wanted: wanted.to_owned(),
            hint: hint.to_owned(),
        };
        if self.text.len() > MAX_PLAN_BYTES {
            let wrong = format!("the text is {} bytes", self.text.len());
            let wanted = "must be at most 1 MiB";
            return Err(complain(0, wrong, wanted, "is this the plan?"));
        }
        Document::parse(self.text).map_err(|error| {
            let offset_bytes = error.span().map_or(0, |span| span.start);
            let wrong = format!("not TOML: {}", error.message().replace('\n', ", "));
            complain(offset_bytes, wrong, "must be TOML 1.0", manual)
        })
    }

    /// All of a document; `name` is what messages call it.
    pub(crate) fn top(self, document: &'a Document<&'a str>, name: &'a str) -> Section<'a> {
        Section {
            source: self,
            name,
            table: document.as_table(),
            offset_bytes: 0,
        }
    }

    /// The place of a byte of the text: `plan.toml:12`.
    pub(crate) fn place(&self, offset_bytes: usize) -> String {
        format!("{}:{}", self.path, self.line(offset_bytes))
    }

    /// The line of a byte of the text, from 1.
    pub(crate) fn line(&self, offset_bytes: usize) -> usize {
        let before = &self.text.as_bytes()[..offset_bytes.min(self.text.len())];
        1 + before.iter().filter(|&&byte| byte == b'\n').count()
    }
}

/// A table, and where it is.
#[derive(Clone, Copy)]
pub(crate) struct Section<'a> {
    pub(crate) source: Source<'a>,
    /// As messages say it: `[run]`, or `the plan` at the top.
    pub(crate) name: &'a str,
    pub(crate) table: &'a dyn TableLike,
    pub(crate) offset_bytes: usize,
}

/// What a number may be.
#[derive(Clone, Copy)]
pub(crate) struct Limits<T> {
    /// Taken when the key is absent; without one the key is required.
    pub(crate) default: Option<T>,
    /// The lowest; without one anything above 0.
    pub(crate) least: Option<T>,
    pub(crate) most: T,
    /// What the hint shows.
    pub(crate) example: T,
}

impl<T: Copy> Limits<T> {
    /// From `least` to `most`, without a default.
    pub(crate) const fn within(least: T, most: T, example: T) -> Self {
        Self {
            default: None,
            least: Some(least),
            most,
            example,
        }
    }

    /// Above 0 and at most `most`, without a default.
    pub(crate) const fn above_zero(most: T, example: T) -> Self {
        Self {
            default: None,
            least: None,
            most,
            example,
        }
    }

    /// The same limits with a default.
    pub(crate) const fn or(self, default: T) -> Self {
        Self {
            default: Some(default),
            ..self
        }
    }
}

/// Why an item is not a number of some kind.
pub(crate) enum Misread {
    Type,
    Form(UnitError),
    Low,
    High,
}

/// A number a plan can hold.
pub(crate) trait Number: Copy + Default + PartialOrd + Display {
    /// The type in TOML, as messages say it.
    const WANTED: &'static str;
    /// The type, as the manual says it.
    const NAME: &'static str;
    fn read(item: &Item) -> Result<Self, Misread>;
    /// As TOML has it.
    fn literal(&self) -> String;
    /// The next value, or the one before it.
    #[cfg(test)]
    fn neighbour(self, up: bool) -> Option<Self>;
}

impl Number for u64 {
    const WANTED: &'static str = "an integer";
    const NAME: &'static str = "integer";

    fn read(item: &Item) -> Result<Self, Misread> {
        let value = item.as_integer().ok_or(Misread::Type)?;
        Self::try_from(value).map_err(|_| Misread::Low)
    }

    fn literal(&self) -> String {
        self.to_string()
    }

    #[cfg(test)]
    fn neighbour(self, up: bool) -> Option<Self> {
        let next = if up {
            self.checked_add(1)
        } else {
            self.checked_sub(1)
        };
        // No integer of TOML is larger.
        next.filter(|it| i64::try_from(*it).is_ok())
    }
}

macro_rules! number_with_unit {
    ($($type:ident: $wanted:literal, $name:literal, $neighbour:expr;)*) => {$(
        impl Number for $type {
            const WANTED: &'static str = $wanted;
            const NAME: &'static str = $name;

            fn read(item: &Item) -> Result<Self, Misread> {
                // A number of TOML is a quantity without its unit.
                let number = item.as_integer().map(|it| it.to_string());
                let number = number.or_else(|| item.as_float().map(|it| it.to_string()));
                let text = number.as_deref().or_else(|| item.as_str()).ok_or(Misread::Type)?;
                text.parse().map_err(|error| match error {
                    UnitError::Negative => Misread::Low,
                    UnitError::Overflow { .. } => Misread::High,
                    UnitError::Form { .. } | UnitError::Inexact { .. } => Misread::Form(error),
                })
            }

            fn literal(&self) -> String {
                format!("\"{self}\"")
            }

            #[cfg(test)]
            fn neighbour(self, up: bool) -> Option<Self> {
                let next: fn(_, bool) -> Option<_> = $neighbour;
                next(self.0, up).map($type)
            }
        }
    )*};
}
number_with_unit! {
    DurationNs: "a duration", "duration", u64::neighbour;
    Bytes: "a size with its unit", "size", u64::neighbour;
    BitRate: "a bit rate with its unit", "link", u64::neighbour;
    RateHz: "a rate", "rate", |rate, up| up.then_some(rate * 2.0);
}

/// The tables of an array of them, each with its offset.
fn tables_of(item: &Item) -> Option<Vec<(&dyn TableLike, usize)>> {
    let start = |span: Option<std::ops::Range<usize>>| span.map_or(0, |span| span.start);
    if let Some(array) = item.as_array_of_tables() {
        let tables = array.iter();
        return Some(
            tables
                .map(|table| (table as &dyn TableLike, start(table.span())))
                .collect(),
        );
    }
    let values = item.as_array()?.iter();
    let inline = values.map(|value| {
        value
            .as_inline_table()
            .map(|table| (table as &dyn TableLike, start(table.span())))
    });
    inline.collect()
}

impl<'a> Section<'a> {
    /// A complaint at the line of `key`, or of the table when it has no such key.
    pub(crate) fn complain(
        &self,
        key: &str,
        wrong: impl Into<String>,
        wanted: impl Into<String>,
        hint: impl Into<String>,
    ) -> PlanError {
        PlanError {
            place: self.place_of(key),
            key: self.path(key),
            wrong: wrong.into(),
            wanted: wanted.into(),
            hint: hint.into(),
        }
    }

    /// A complaint about the value of `key`.
    pub(crate) fn refuse(
        &self,
        key: &str,
        wanted: impl Into<String>,
        hint: impl Into<String>,
    ) -> PlanError {
        let shown = self
            .table
            .get(key)
            .map_or_else(String::new, |item| self.shown(item));
        self.complain(key, format!("{key} is {shown}"), wanted, hint)
    }

    pub(crate) fn missing(&self, key: &str, wanted: &str, hint: String) -> PlanError {
        let wrong = format!("{key} is missing in {}", self.name);
        PlanError {
            key: self.path(key),
            ..self.complain("", wrong, wanted, hint)
        }
    }

    /// The path of a key: `drive.rate`, or `seed` at the top.
    fn path(&self, key: &str) -> String {
        let table = self.name.trim_matches(['[', ']']);
        if key.is_empty() || table == self.name {
            return key.to_owned();
        }
        format!("{table}.{key}")
    }

    pub(crate) fn wrong_type(&self, key: &str, item: &Item, wanted: &str, hint: &str) -> PlanError {
        let name = item.type_name();
        let article = if name.starts_with(['a', 'i']) {
            "an"
        } else {
            "a"
        };
        let shown = if item.is_value() {
            format!(" {}", self.shown(item))
        } else {
            String::new()
        };
        self.complain(
            key,
            format!("{key} is {article} {name}{shown}"),
            wanted,
            hint,
        )
    }

    /// The first line of an item as it was written, cut short.
    pub(crate) fn shown(&self, item: &Item) -> String {
        let written = item
            .span()
            .and_then(|span| self.source.text.get(span))
            .unwrap_or("");
        let line = written.trim().lines().next().unwrap_or("");
        let short: String = line.chars().take(60).collect();
        if short.len() < written.trim().len() {
            format!("{short}..")
        } else {
            short
        }
    }

    /// Refuses keys other than the `known`.
    pub(crate) fn check_keys(&self, known: &[&str]) -> Result<(), PlanError> {
        let Some((key, _)) = self.table.iter().find(|(key, _)| !known.contains(key)) else {
            return Ok(());
        };
        let hint = did_you_mean(key, known.iter().copied(), "remove it");
        let wrong = format!("unknown key {key:?} in {}", self.name);
        Err(self.complain(key, wrong, format!("known: {}", known.join(", ")), hint))
    }

    /// The keys, in their order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.table.iter().map(|(key, _)| key)
    }

    /// The table at `key`.
    pub(crate) fn child(&self, key: &str, name: &'a str) -> Result<Option<Self>, PlanError> {
        let Some((found, item)) = self.table.get_key_value(key) else {
            return Ok(None);
        };
        let Some(table) = item.as_table_like() else {
            return Err(self.wrong_type(key, item, "must be a table", name));
        };
        let span = item.span().or_else(|| found.span());
        let offset_bytes = span.map_or(self.offset_bytes, |span| span.start);
        Ok(Some(Self {
            name,
            table,
            offset_bytes,
            ..*self
        }))
    }

    /// The tables of `[[key]]` or of `key = [{..}]`; none when absent. `name` is `"[[key]]"`.
    pub(crate) fn tables(
        &self,
        key: &str,
        name: &'a str,
        most: usize,
        hint: &str,
    ) -> Result<Vec<Self>, PlanError> {
        let Some(item) = self.table.get(key) else {
            return Ok(Vec::new());
        };
        let Some(tables) = tables_of(item) else {
            let wanted = "must be an array of tables";
            let brackets = format!("write {name}, with two brackets");
            return Err(self.wrong_type(key, item, wanted, &brackets));
        };
        if tables.len() > most {
            let wrong = format!("there are {} of {name}", tables.len());
            let wanted = format!("must have at most {most}");
            return Err(self.complain(key, wrong, wanted, hint));
        }
        let sections = tables.into_iter().map(|(table, offset_bytes)| Self {
            name,
            table,
            offset_bytes,
            ..*self
        });
        Ok(sections.collect())
    }

    /// The place of `key`, or of the table when it has no such key: `plan.toml:12`.
    pub(crate) fn place_of(&self, key: &str) -> String {
        let span = self.table.key(key).and_then(toml_edit::Key::span);
        let offset_bytes = span.map_or(self.offset_bytes, |span| span.start);
        self.source.place(offset_bytes)
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    pub(crate) fn number<T: Number>(&self, key: &str, limits: &Limits<T>) -> Result<T, PlanError> {
        let hint = format!("{key} = {}", limits.example.literal());
        let Some(item) = self.table.get(key) else {
            let wanted = format!("must be {}", T::WANTED);
            return limits
                .default
                .ok_or_else(|| self.missing(key, &wanted, hint));
        };
        let below = || match limits.least {
            Some(least) => format!("must be at least {least}"),
            None => "must be above 0".to_owned(),
        };
        let above = || format!("must be at most {}", limits.most);
        let low = |value: T| {
            limits
                .least
                .map_or_else(|| value <= T::default(), |least| value < least)
        };
        match T::read(item) {
            Ok(value) if low(value) => Err(self.refuse(key, below(), hint)),
            Ok(value) if value > limits.most => Err(self.refuse(key, above(), hint)),
            Ok(value) => Ok(value),
            Err(Misread::Low) => Err(self.refuse(key, below(), hint)),
            Err(Misread::High) => Err(self.refuse(key, above(), hint)),
            Err(Misread::Form(error)) => Err(self.refuse(key, error.to_string(), hint)),
            Err(Misread::Type) => {
                Err(self.wrong_type(key, item, &format!("must be {}", T::WANTED), &hint))
            }
        }
    }

    /// A whole number which fits `T`: `limits.most` must.
    pub(crate) fn whole<T: TryFrom<u64>>(
        &self,
        key: &str,
        limits: &Limits<u64>,
    ) -> Result<T, PlanError> {
        let value = self.number(key, limits)?;
        let hint = format!("{key} = {}", limits.example);
        let wanted = format!("must be at most {}", limits.most);
        T::try_from(value).map_err(|_| self.refuse(key, wanted, hint))
    }

    /// A whole number which may be absent.
    pub(crate) fn optional<T: TryFrom<u64>>(
        &self,
        key: &str,
        limits: &Limits<u64>,
    ) -> Result<Option<T>, PlanError> {
        if self.has(key) {
            self.whole(key, limits).map(Some)
        } else {
            Ok(None)
        }
    }

    pub(crate) fn text(&self, key: &str, hint: &str) -> Result<Option<&'a str>, PlanError> {
        let Some(item) = self.table.get(key) else {
            return Ok(None);
        };
        let text = item.as_str().map(Some);
        text.ok_or_else(|| self.wrong_type(key, item, "must be a string", hint))
    }

    /// One of a few words; the default when absent.
    pub(crate) fn choice<T: Copy>(
        &self,
        key: &str,
        words: &[(&str, T)],
        default: Option<T>,
    ) -> Result<T, PlanError> {
        let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let wanted = format!("must be one of {}", names.join(", "));
        let hint = format!("{key} = {:?}", names[0]);
        let Some(text) = self.text(key, &hint)? else {
            return default.ok_or_else(|| self.missing(key, &wanted, hint));
        };
        let found = words.iter().find(|(word, _)| *word == text);
        found
            .map(|(_, value)| *value)
            .ok_or_else(|| self.refuse(key, wanted, hint))
    }

    pub(crate) fn switch(&self, key: &str, default: bool) -> Result<bool, PlanError> {
        let Some(item) = self.table.get(key) else {
            return Ok(default);
        };
        let hint = format!("{key} = {default}");
        item.as_bool()
            .ok_or_else(|| self.wrong_type(key, item, "must be true or false", &hint))
    }

    /// A number between two others, which it may not be; the default when absent.
    pub(crate) fn real(
        &self,
        key: &str,
        default: Option<f64>,
        (above, below): (f64, f64),
        example: f64,
    ) -> Result<f64, PlanError> {
        let hint = format!("{key} = {example}");
        let Some(item) = self.table.get(key) else {
            let wanted = "must be a number";
            return default.ok_or_else(|| self.missing(key, wanted, hint));
        };
        let number = item
            .as_float()
            .or_else(|| item.as_integer().map(|it| it as f64));
        let Some(number) = number else {
            return Err(self.wrong_type(key, item, "must be a number", &hint));
        };
        if number > above && number < below {
            Ok(number)
        } else {
            Err(self.refuse(
                key,
                format!("must be above {above} and below {below}"),
                hint,
            ))
        }
    }

    /// A share from 0 to 1; 0 when absent.
    pub(crate) fn share(&self, key: &str) -> Result<f64, PlanError> {
        let Some(item) = self.table.get(key) else {
            return Ok(0.0);
        };
        let hint = format!("{key} = 0.01");
        let Some(share) = item
            .as_float()
            .or_else(|| item.as_integer().map(|it| it as f64))
        else {
            return Err(self.wrong_type(key, item, "must be a number", &hint));
        };
        if (0.0..=1.0).contains(&share) {
            Ok(share)
        } else {
            Err(self.refuse(key, "must be from 0 to 1", hint))
        }
    }

    pub(crate) fn is_list(&self, key: &str) -> bool {
        self.table.get(key).is_some_and(Item::is_array)
    }

    /// A list of at least one value; none when absent.
    pub(crate) fn list(&self, key: &str, hint: &str) -> Result<Option<Vec<&'a Value>>, PlanError> {
        let Some(item) = self.table.get(key) else {
            return Ok(None);
        };
        let Some(array) = item.as_array() else {
            return Err(self.wrong_type(key, item, "must be an array", hint));
        };
        if array.is_empty() {
            return Err(self.refuse(key, "must hold at least one value", hint));
        }
        Ok(Some(array.iter().collect()))
    }

    /// A list of whole numbers within `least..=most`; none when absent.
    pub(crate) fn whole_list(
        &self,
        key: &str,
        least: u16,
        most: u16,
        hint: &str,
    ) -> Result<Option<Vec<u16>>, PlanError> {
        let Some(values) = self.list(key, hint)? else {
            return Ok(None);
        };
        let wanted = format!("must hold integers from {least} to {most}");
        let numbers = values.into_iter().map(|value| {
            let number = value
                .as_integer()
                .and_then(|number| u16::try_from(number).ok());
            number
                .filter(|number| (least..=most).contains(number))
                .ok_or_else(|| {
                    let wrong = format!("{key} holds {}", value.to_string().trim());
                    self.complain(key, wrong, &wanted, hint)
                })
        });
        numbers.collect::<Result<_, _>>().map(Some)
    }
}
