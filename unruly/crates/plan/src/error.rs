//! What is wrong with a plan, where, and what to do about it.

use thiserror::Error;

/// A plan that cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{place}: {wrong}; {wanted}; hint: {hint}")]
pub struct PlanError {
    /// The file and line (`plan.toml:12`), or the cell of the matrix.
    pub place: String,
    /// The path of the key that is wrong, such as `drive.rate`; empty when it is no single key.
    pub key: String,
    /// What is wrong, with the value.
    pub wrong: String,
    /// What was wanted.
    pub wanted: String,
    /// The next step.
    pub hint: String,
}

impl PlanError {
    /// Returns the complaint in the words of a command line: `--rate: "abc" is not a rate; hint:
    /// --rate 100/s`.
    ///
    /// `typed` is the value that the command line gave to the key, and `write` is how it would give
    /// a value to the key at a path.
    #[must_use]
    pub fn on_command_line(
        &self,
        typed: Option<&str>,
        write: impl Fn(&str, &str) -> String,
    ) -> String {
        let (table, name) = self.key.rsplit_once('.').unwrap_or(("", &self.key));
        let path = |name: &str| match table {
            "" => name.to_owned(),
            table => format!("{table}.{name}"),
        };
        let flag = |name: &str| {
            let written = write(&path(name), "");
            written.trim_end_matches([' ', '=']).to_owned()
        };
        let about_value = self.wrong.starts_with(&format!("{name} is "));
        let what = match typed {
            Some(value) if about_value => format!("{value:?} {}", negated(&self.wanted)),
            None if about_value => "missing".to_owned(),
            _ => format!("{}; {}", self.wrong, self.wanted),
        };
        let one_word = |name: &&str| !name.contains(' ');
        let assigned = self.hint.split_once(" = ").filter(|it| one_word(&it.0));
        let removed = self.hint.strip_prefix("remove ").filter(one_word);
        let hint = match (assigned, removed) {
            (Some((name, value)), _) => write(&path(name), value.trim_matches('"')),
            (None, Some(name)) => format!("remove {}", flag(name)),
            (None, None) => self.hint.clone(),
        };
        format!("{}: {what}; hint: {hint}", flag(name))
    }
}

/// Says of a value that it is not what it must be.
fn negated(wanted: &str) -> String {
    let kinds = ["a ", "an ", "one of "];
    let kind = wanted.strip_prefix("must be ");
    match kind.filter(|kind| kinds.iter().any(|it| kind.starts_with(it))) {
        Some(kind) => format!("is not {kind}"),
        None => wanted.to_owned(),
    }
}
