//! A parameter of a service: a value that a plan may choose.

use std::fmt;

use minijinja::Value;
use toml_edit::Item;

use super::{names, required, words};
use crate::error::PlanError;
use crate::keys::did_you_mean;
use crate::keys::key::quoted;
use crate::section::Section;
use crate::units::{Bytes, DurationNs};

const PARAMETER: &[&str] = &["default", "least", "most", "at_most", "words", "help"];

/// A value that a plan may choose, with the values that it may have.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its name in plans and templates.
    pub name: String,
    /// Its value where a plan does not choose one.
    pub default: ParameterValue,
    /// The meaning, in a line.
    pub help: String,
    allowed: Allowed,
    /// The parameter that it may not exceed.
    pub at_most: Option<String>,
    /// The file and line that says so.
    pub(super) bound_place: String,
    /// The file and line that defines it.
    pub(super) place: String,
}

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq, PartialOrd)]
pub enum ParameterValue {
    /// A whole number.
    Whole(i64),
    /// Any number.
    Real(f64),
    /// A size; a number of bytes in templates.
    Size(Bytes),
    /// A duration; a number of nanoseconds in templates.
    Duration(DurationNs),
    /// A word.
    Word(String),
}

/// What a parameter may be.
#[derive(Clone, Debug, PartialEq)]
enum Allowed {
    /// Any value of this kind between these two, and both.
    Between(ParameterValue, ParameterValue),
    /// One of these.
    Words(Vec<String>),
}

impl Parameter {
    /// Reads the table of a parameter.
    pub(super) fn parse(name: &str, section: &Section<'_>) -> Result<Self, PlanError> {
        section.check_keys(PARAMETER)?;
        names::check(section, "", name)?;
        let Some(item) = section.table.get("default") else {
            let wanted = "must be a number, a size, a duration or a word";
            return Err(section.missing("default", wanted, "default = 2".to_owned()));
        };
        let default = text_of(item).ok_or_else(|| {
            let wanted = "must be a number, a size, a duration or a word";
            section.wrong_type("default", item, wanted, "default = 2")
        })?;
        let allowed = match words(section, "words")? {
            words if words.is_empty() => between(section, item, &default)?,
            words => {
                if let Some(bound) = ["least", "most"].into_iter().find(|it| section.has(it)) {
                    let wanted = "must be left out: the parameter has words";
                    return Err(section.refuse(bound, wanted, format!("remove {bound}")));
                }
                Allowed::Words(words)
            }
        };
        let read = allowed.read(&default).map_err(|wanted| {
            let hint = "write a default that the parameter may have";
            section.refuse("default", wanted, hint)
        })?;
        Ok(Self {
            name: name.to_owned(),
            default: read,
            help: required(section, "help")?,
            allowed,
            at_most: section
                .text("at_most", "at_most = \"nodes\"")?
                .map(str::to_owned),
            bound_place: section.place_of("at_most"),
            place: section.source.place(section.offset_bytes),
        })
    }

    /// Returns the value that a plan writes as `text`.
    ///
    /// # Errors
    ///
    /// Returns what it must be instead.
    pub fn read(&self, text: &str) -> Result<ParameterValue, String> {
        self.allowed.read(text)
    }

    /// Returns the values that it may have, in words: `1 to 7`, or `g1, z`.
    #[must_use]
    pub fn allowed(&self) -> String {
        match &self.allowed {
            Allowed::Between(least, most) => match &self.at_most {
                Some(other) => format!("{least} to {most}, at most {other}"),
                None => format!("{least} to {most}"),
            },
            Allowed::Words(words) => words.join(", "),
        }
    }

    /// Returns the least and the largest value, or nothing if the parameter is a word.
    #[must_use]
    pub fn bounds(&self) -> Option<(&ParameterValue, &ParameterValue)> {
        match &self.allowed {
            Allowed::Between(least, most) => Some((least, most)),
            Allowed::Words(_) => None,
        }
    }

    /// Returns the words that it may be; none if it is a number.
    #[must_use]
    pub fn words(&self) -> &[String] {
        match &self.allowed {
            Allowed::Between(..) => &[],
            Allowed::Words(words) => words,
        }
    }

    /// Returns the line of a plan that has the default.
    pub(super) fn example(&self) -> String {
        let value = match &self.default {
            number @ (ParameterValue::Whole(_) | ParameterValue::Real(_)) => number.to_string(),
            text => quoted(&text.to_string()),
        };
        format!("{} = {value}", self.name)
    }
}

/// Reads the bounds, which are of the kind of the default.
fn between(section: &Section<'_>, item: &Item, default: &str) -> Result<Allowed, PlanError> {
    let bound = |key: &str| {
        let wanted = "must be of the kind of the default, or the parameter needs words";
        let hint = format!("{key} = 1");
        let Some(found) = section.table.get(key) else {
            return Err(section.missing(key, wanted, hint));
        };
        let value = kind(item, default).and_then(|kind| kind.alike(&text_of(found)?).ok());
        value.ok_or_else(|| section.refuse(key, wanted, hint))
    };
    let (least, most) = (bound("least")?, bound("most")?);
    if least > most {
        let wanted = format!("must be at least {least}");
        return Err(section.refuse("most", wanted, format!("most = {least}")));
    }
    Ok(Allowed::Between(least, most))
}

/// Returns a value of the kind that a default has; none for a word.
fn kind(item: &Item, default: &str) -> Option<ParameterValue> {
    if item.is_integer() {
        return Some(ParameterValue::Whole(0));
    }
    if item.is_float() {
        return Some(ParameterValue::Real(0.0));
    }
    let size = default.parse().map(ParameterValue::Size);
    let size = size.or_else(|_| default.parse().map(ParameterValue::Duration));
    size.ok()
}

impl Allowed {
    fn read(&self, text: &str) -> Result<ParameterValue, String> {
        match self {
            Self::Words(words) if words.iter().any(|it| it == text) => {
                Ok(ParameterValue::Word(text.to_owned()))
            }
            Self::Words(words) => Err(format!("must be one of {}", words.join(", "))),
            Self::Between(least, most) => {
                let value = least.alike(text)?;
                if value < *least {
                    Err(format!("must be at least {least}"))
                } else if value > *most {
                    Err(format!("must be at most {most}"))
                } else {
                    Ok(value)
                }
            }
        }
    }
}

impl ParameterValue {
    /// Returns the value of the same kind that a text is, or else what it must be.
    fn alike(&self, text: &str) -> Result<Self, String> {
        let read = match self {
            Self::Whole(_) => text.parse().ok().map(Self::Whole),
            Self::Real(_) => text
                .parse()
                .ok()
                .filter(|it: &f64| it.is_finite())
                .map(Self::Real),
            Self::Size(_) => text.parse().ok().map(Self::Size),
            Self::Duration(_) => text.parse().ok().map(Self::Duration),
            Self::Word(_) => Some(Self::Word(text.to_owned())),
        };
        read.ok_or_else(|| {
            let wanted = match self {
                Self::Whole(_) => "a whole number",
                Self::Real(_) => "a number",
                Self::Size(_) => "a size with its unit",
                Self::Duration(_) => "a duration",
                Self::Word(_) => "a word",
            };
            format!("must be {wanted}")
        })
    }

    /// Returns the value as templates have it.
    pub(super) fn of_template(&self) -> Value {
        match self {
            Self::Whole(number) => Value::from(*number),
            Self::Real(number) => Value::from(*number),
            Self::Size(size) => Value::from(size.0),
            Self::Duration(duration) => Value::from(duration.0),
            Self::Word(word) => Value::from(word.as_str()),
        }
    }
}

impl fmt::Display for ParameterValue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(number) => write!(out, "{number}"),
            Self::Real(number) => write!(out, "{number}"),
            Self::Size(size) => write!(out, "{size}"),
            Self::Duration(duration) => write!(out, "{duration}"),
            Self::Word(word) => write!(out, "{word}"),
        }
    }
}

/// Returns a number or a text of TOML as text; none for anything else.
pub(crate) fn text_of(item: &Item) -> Option<String> {
    let number = item.as_integer().map(|it| it.to_string());
    let number = number.or_else(|| item.as_float().map(|it| it.to_string()));
    number.or_else(|| item.as_str().map(str::to_owned))
}

/// Reads the parameters of a service, in the order of its file.
pub(super) fn parameters(top: &Section<'_>) -> Result<Vec<Parameter>, PlanError> {
    let Some(all) = top.child("parameters", "[parameters]")? else {
        return Ok(Vec::new());
    };
    let names = all.table.iter().map(|(name, _)| name);
    let read = names.map(|name| {
        let hint = "pool = { default = 2, least = 1, most = 64, help = \"connections\" }";
        match all.child(name, "[parameters]") {
            Ok(Some(section)) => Parameter::parse(name, &section),
            Ok(None) => Err(all.missing(name, "must be a table", hint.to_owned())),
            Err(error) => Err(PlanError {
                hint: hint.to_owned(),
                ..error
            }),
        }
    });
    let read: Vec<Parameter> = read.collect::<Result<_, _>>()?;
    read.iter().try_for_each(|it| check_bound(it, &read))?;
    Ok(read)
}

/// Checks that the parameter which bounds another one is there, and of its kind.
fn check_bound(parameter: &Parameter, all: &[Parameter]) -> Result<(), PlanError> {
    let Some(name) = &parameter.at_most else {
        return Ok(());
    };
    let complain = |wrong: String, wanted: &str, hint: String| {
        Err(PlanError {
            place: parameter.bound_place.clone(),
            key: format!("parameters.{}.at_most", parameter.name),
            wrong,
            wanted: wanted.to_owned(),
            hint,
        })
    };
    let others = all.iter().filter(|it| it.name != parameter.name);
    let known: Vec<&str> = others.clone().map(|it| it.name.as_str()).collect();
    let Some(other) = others.clone().find(|it| it.name == *name) else {
        let hint = did_you_mean(name, known, "name another parameter of the file");
        let wrong = format!("at_most is {name:?}");
        return complain(wrong, "must be another parameter", hint);
    };
    let (own, its) = (&parameter.default, &other.default);
    let alike = std::mem::discriminant(own) == std::mem::discriminant(its);
    if !alike || parameter.bounds().is_none() || other.at_most.is_some() {
        let wrong = format!("at_most is {name:?}");
        let wanted = "must be a parameter of the same kind, without at_most";
        return complain(wrong, wanted, "remove at_most".to_owned());
    }
    if own > its {
        let wrong = format!("{} is {own} and {name} is {its} by default", parameter.name);
        return complain(wrong, "must be at most that", format!("default = {its}"));
    }
    Ok(())
}
