//! A text of a service's file into which values are put: a Jinja template, by `minijinja`.

use std::collections::BTreeMap;
use std::ops::Range;

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};

use super::MANUAL;
use crate::error::PlanError;
use crate::limits::MAX_TEMPLATE_STEPS;
use crate::section::Source;

/// A text with expressions such as `{{ host }}` and blocks such as `{% for it in processes %}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    /// What messages call the file.
    path: String,
    /// The line of the file on which the text begins.
    line: usize,
}

impl Template {
    /// Returns the template that `text` is, which stands at `span` of the file.
    pub(super) fn at(source: Source<'_>, span: Option<Range<usize>>, text: &str) -> Self {
        let span = span.unwrap_or(0..0);
        let written = source.text.get(span.clone()).unwrap_or("");
        // TOML drops the newline after three quotes.
        let drops = ["\"\"\"", "'''"].iter().any(|quotes| {
            let rest = written.strip_prefix(quotes);
            rest.is_some_and(|it| it.starts_with('\n') || it.starts_with("\r\n"))
        });
        Self {
            text: text.to_owned(),
            path: source.path.to_owned(),
            line: source.line(span.start) + usize::from(drops),
        }
    }

    /// Returns the text as the file has it.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.text
    }

    /// Returns the file and the line of the file on which line `line` of the text is, from 0.
    pub(super) fn place(&self, line: usize) -> String {
        format!("{}:{}", self.path, self.line + line)
    }

    /// Returns the line of the text that has a name first, from 0.
    pub(super) fn line_of(&self, name: &str) -> usize {
        let mut lines = self.text.lines();
        lines.position(|line| line.contains(name)).unwrap_or(0)
    }

    /// Returns the names that the template takes from outside, in alphabetical order.
    ///
    /// # Errors
    ///
    /// Returns the place of a syntax error.
    pub(super) fn names(&self) -> Result<Vec<String>, PlanError> {
        let environment = environment();
        let template = environment.template_from_str(&self.text);
        let template = template.map_err(|error| self.explain(&error))?;
        let mut names: Vec<String> = template.undeclared_variables(false).into_iter().collect();
        names.sort();
        Ok(names)
    }

    /// Returns the text with these values in it.
    ///
    /// # Errors
    ///
    /// Returns the place of an expression that stands for nothing, or that cannot be computed.
    pub(super) fn render(&self, values: BTreeMap<String, Value>) -> Result<String, PlanError> {
        let rendered = environment().render_str(&self.text, Value::from(values));
        rendered.map_err(|error| self.explain(&error))
    }

    /// Returns a complaint about this text.
    pub(super) fn complain(
        &self,
        line: usize,
        wrong: impl Into<String>,
        wanted: impl Into<String>,
        hint: impl Into<String>,
    ) -> PlanError {
        PlanError {
            place: self.place(line),
            key: String::new(),
            wrong: wrong.into(),
            wanted: wanted.into(),
            hint: hint.into(),
        }
    }

    /// The expression or block that has a byte of the text.
    fn expression(&self, offset_bytes: usize) -> Option<&str> {
        let before = self.text.get(..offset_bytes)?;
        let start = before.rfind("{{").max(before.rfind("{%"))? + 2;
        let rest = &self.text[start..];
        let ends = ["}}", "%}"].into_iter().filter_map(|end| rest.find(end));
        Some(rest[..ends.min()?].trim_matches(['-', '+', ' ']))
    }

    fn explain(&self, error: &Error) -> PlanError {
        let line = error.line().unwrap_or(1).saturating_sub(1);
        let expression = error.range().and_then(|range| self.expression(range.start));
        let expression = expression.unwrap_or("an expression");
        let detail = error.detail().unwrap_or("no more is known");
        let (wrong, wanted) = match error.kind() {
            ErrorKind::OutOfFuel => {
                let wrong = format!("it takes more than {MAX_TEMPLATE_STEPS} steps");
                let wanted = "must be a template that ends";
                return self.complain(line, wrong, wanted, "use fewer or shorter loops");
            }
            ErrorKind::SyntaxError => (format!("no template: {detail}"), "must be one of Jinja"),
            ErrorKind::UndefinedError => (
                format!("{expression:?} stands for nothing"),
                "must be a word of the manual",
            ),
            _ => (
                format!("{expression:?} cannot be computed: {detail}"),
                "must be an expression of Jinja",
            ),
        };
        self.complain(line, wrong, wanted, MANUAL)
    }
}

/// Returns the names that every template knows: the functions of the library.
pub(super) fn functions() -> Vec<String> {
    let environment = environment();
    environment
        .globals()
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// Returns the rules of our templates: a name that stands for nothing is an error, nothing is escaped, and
/// a line that has nothing but a block leaves no empty line behind.
fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_debug(true);
    environment.set_fuel(Some(MAX_TEMPLATE_STEPS));
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .keep_trailing_newline(true)
        .build();
    if let Ok(syntax) = syntax {
        environment.set_syntax(syntax);
    }
    environment
}
