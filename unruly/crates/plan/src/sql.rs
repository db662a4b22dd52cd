//! What the clients of a database do: operations of one or several statements, each with its share.
//!
//! A script is SQL as one types it. Statements end with a semicolon. A line `-- operation: pay 10%`
//! begins an operation; without such a line all statements are one operation. Places for values
//! stand where a value of SQL stands, never inside of quotes: they become parameters.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The operations of a database's clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sql {
    /// What is done.
    pub script: Script,
    /// The path of a CSV file with values that each operation has of its own.
    #[serde(default)]
    pub data: Option<String>,
}

/// One operation: its statements are sent one after the other, each after the reply to the one before.
#[derive(Clone, Debug, PartialEq)]
pub struct SqlOperation {
    /// The operation's name in the rows.
    pub name: String,
    /// How many of 100 operations are this one.
    pub percent: f64,
    /// Its statements, with their places.
    pub statements: Vec<String>,
}

/// A text of SQL, and the operations in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Script {
    text: String,
    operations: Vec<SqlOperation>,
}

/// A text that is no script.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScriptError {
    /// It does nothing.
    #[error("must have a statement")]
    Empty,
    /// An operation does nothing.
    #[error("must have a statement in the operation {0:?}")]
    NoStatement(String),
    /// Statements stand before the first operation.
    #[error("must have every statement in an operation: {0:?} stands before the first one")]
    Outside(String),
    /// A line that begins an operation is not of the form.
    #[error("must begin operations with a line such as \"-- operation: pay 10%\", not {0:?}")]
    Header(String),
    /// Two operations have one name.
    #[error("must name each operation once: {0:?} is there twice")]
    Twice(String),
    /// Some operations have a share and some have none, or the shares are not 100 %.
    #[error("must have shares of 100 % in all, or none at all: these are {0} %")]
    Shares(f64),
    /// A quote or a comment does not end.
    #[error("must end what begins with {0}")]
    Open(String),
    /// A place stands in quotes.
    #[error("must have no place inside of quotes: {0}; it is a value by itself")]
    Quoted(String),
    /// A parameter has a number and no place.
    #[error("must have places for values, such as {{random:1..9}}, and not {0}")]
    Parameter(String),
    /// A place goes on a word.
    #[error("must have spaces around {0}: a value is no part of a name or a number")]
    Touches(String),
    /// There are more operations than rows can name.
    #[error("must have at most {MOST_OPERATIONS} operations")]
    Many,
}

/// The `op` of a row is a number of eight bits.
const MOST_OPERATIONS: usize = 200;

/// What places begin with.
const PLACES: [&str; 5] = ["{data.", "{random:", "{words:", "{uuid}", "{sequence}"];

/// What a line that begins an operation begins with, after its `--`.
const HEADER: &str = "operation:";

impl Script {
    /// The operations, in their order.
    #[must_use]
    pub fn operations(&self) -> &[SqlOperation] {
        &self.operations
    }
}

impl FromStr for Script {
    type Err = ScriptError;

    fn from_str(text: &str) -> Result<Self, ScriptError> {
        // Some editors begin a file with this mark.
        let parts = split(text.strip_prefix('\u{feff}').unwrap_or(text))?;
        let has_headers = parts.iter().any(|part| matches!(part, Part::Header(_)));
        let mut operations: Vec<(SqlOperation, bool)> = Vec::new();
        for part in parts {
            match part {
                Part::Header(header) => operations.push(begin(&header)?),
                Part::Statement(statement) if has_headers => match operations.last_mut() {
                    Some((operation, _)) => operation.statements.push(statement),
                    None => return Err(ScriptError::Outside(statement)),
                },
                Part::Statement(statement) => match operations.last_mut() {
                    Some((operation, _)) => operation.statements.push(statement),
                    None => operations.push((only(statement), true)),
                },
            }
        }
        Ok(Self {
            text: text.to_owned(),
            operations: shared(operations)?,
        })
    }
}

/// The operation of a script that has one only.
fn only(statement: String) -> SqlOperation {
    let word = statement.split(|c: char| !c.is_ascii_alphabetic()).next();
    let name = match word.unwrap_or_default().to_ascii_lowercase() {
        word if ["begin", "start"].contains(&word.as_str()) => "transaction".to_owned(),
        word if word.is_empty() => "sql".to_owned(),
        word => word,
    };
    SqlOperation {
        name,
        percent: 100.0,
        statements: vec![statement],
    }
}

/// The operation of a line `operation: NAME SHARE%`, and whether it says its share.
fn begin(header: &str) -> Result<(SqlOperation, bool), ScriptError> {
    let wrong = || ScriptError::Header(header.to_owned());
    let mut words = header.split_whitespace();
    let name = words.next().ok_or_else(wrong)?;
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.len() > 64 || !name.chars().all(letter) {
        return Err(wrong());
    }
    let share = words.next();
    let percent = match share {
        None => 0.0,
        Some(share) => {
            let percent = share.strip_suffix('%').and_then(|it| it.parse().ok());
            let fits = percent.filter(|it: &f64| *it > 0.0 && *it <= 100.0);
            fits.ok_or_else(wrong)?
        }
    };
    if words.next().is_some() {
        return Err(wrong());
    }
    let operation = SqlOperation {
        name: name.to_owned(),
        percent,
        statements: Vec::new(),
    };
    Ok((operation, share.is_some()))
}

/// The operations, if they are sound. Those without shares are as likely as each other.
fn shared(operations: Vec<(SqlOperation, bool)>) -> Result<Vec<SqlOperation>, ScriptError> {
    if operations.is_empty() {
        return Err(ScriptError::Empty);
    }
    if operations.len() > MOST_OPERATIONS {
        return Err(ScriptError::Many);
    }
    let none_has = operations.iter().all(|(_, has)| !has);
    let equal = 100.0 / operations.len() as f64;
    let mut found: Vec<SqlOperation> = Vec::with_capacity(operations.len());
    for (mut operation, has) in operations {
        if operation.statements.is_empty() {
            return Err(ScriptError::NoStatement(operation.name));
        }
        if found.iter().any(|it| it.name == operation.name) {
            return Err(ScriptError::Twice(operation.name));
        }
        if none_has {
            operation.percent = equal;
        } else if !has {
            operation.percent = f64::NAN;
        }
        found.push(operation);
    }
    let sum: f64 = found.iter().map(|it| it.percent).sum();
    if (sum - 100.0).abs() <= 1e-6 {
        return Ok(found);
    }
    let known = found.iter().map(|it| it.percent).filter(|it| !it.is_nan());
    Err(ScriptError::Shares(known.sum()))
}

enum Part {
    /// A line that begins an operation, from its name on.
    Header(String),
    Statement(String),
}

/// The statements of a text and the lines between them, without comments.
fn split(text: &str) -> Result<Vec<Part>, ScriptError> {
    let mut parts = Vec::new();
    let mut statement = String::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let bytes = if rest.starts_with("--") {
            let line = rest.lines().next().unwrap_or(rest);
            let before = &text[..text.len() - rest.len()];
            let before = before.rsplit('\n').next().unwrap_or(before);
            let header = line[2..].trim().strip_prefix(HEADER);
            if let Some(header) = header.filter(|_| before.trim().is_empty()) {
                flush(&mut statement, &mut parts);
                parts.push(Part::Header(header.trim().to_owned()));
            }
            line.len()
        } else if rest.starts_with("/*") {
            let bytes = comment(rest).ok_or_else(|| ScriptError::Open("/*".to_owned()))?;
            // These are no comments to the server: hints, and what only some versions do.
            let said = rest.starts_with("/*+") || rest.starts_with("/*!");
            statement.push_str(if said { &rest[..bytes] } else { " " });
            bytes
        } else if let Some(number) = parameter(rest).filter(|_| !ends_in_word(&statement)) {
            return Err(ScriptError::Parameter(number.to_owned()));
        } else if let Some(bytes) = quoted(rest, &statement)? {
            let inner = &rest[..bytes];
            if PLACES.iter().any(|place| inner.contains(place)) {
                return Err(ScriptError::Quoted(inner.to_owned()));
            }
            statement.push_str(inner);
            bytes
        } else if next == ';' {
            flush(&mut statement, &mut parts);
            1
        } else {
            let place = place(rest);
            let end = place.map_or_else(|| next.len_utf8(), str::len);
            if let Some(place) = place {
                let before = ends_in_word(&statement);
                if before || rest[end..].starts_with(is_word) {
                    return Err(ScriptError::Touches(place.to_owned()));
                }
            }
            statement.push_str(&rest[..end]);
            end
        };
        rest = &rest[bytes..];
    }
    flush(&mut statement, &mut parts);
    Ok(parts)
}

fn flush(statement: &mut String, parts: &mut Vec<Part>) {
    let text = statement.trim();
    if !text.is_empty() {
        parts.push(Part::Statement(text.to_owned()));
    }
    statement.clear();
}

/// Bytes up to the end of `end`, which is looked for after the first `from` bytes.
fn length(text: &str, from: usize, end: &str) -> Option<usize> {
    let found = text[from..].find(end)?;
    Some(from + found + end.len())
}

/// Bytes of the comment that begins here. Comments stand inside of each other.
fn comment(text: &str) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(rest) = text.get(at..).filter(|it| !it.is_empty()) {
        if rest.starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return Some(at);
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    None
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// True if the statement ends in a word, which may go on.
fn ends_in_word(statement: &str) -> bool {
    statement.ends_with(|c| is_word(c) || c == '$')
}

/// The place that begins here: `{uuid}`.
fn place(text: &str) -> Option<&str> {
    PLACES.iter().find(|place| text.starts_with(**place))?;
    let end = text.find('}')?;
    Some(&text[..=end])
}

/// The parameter that begins here: `$1`.
fn parameter(text: &str) -> Option<&str> {
    let digits = text.strip_prefix('$')?;
    let end = digits.find(|c: char| !c.is_ascii_digit());
    let end = end.unwrap_or(digits.len());
    (end > 0).then(|| &text[..=end])
}

/// How long the string with escapes is that begins here: `E'it\'s'`. Two quotes are one in it.
fn escaped(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut keeps, mut at) = (false, 1);
    while let Some(byte) = bytes.get(at) {
        if *byte == b'\'' && !keeps {
            if bytes.get(at + 1) != Some(&b'\'') {
                return Some(at + 1);
            }
            at += 1;
        }
        keeps = *byte == b'\\' && !keeps;
        at += 1;
    }
    None
}

/// How long the quoted text is that begins here, after this statement; `None` if none does.
fn quoted(text: &str, statement: &str) -> Result<Option<usize>, ScriptError> {
    let open = |quote: &str| ScriptError::Open(quote.to_owned());
    let prefix = statement.strip_suffix(['e', 'E']);
    let has_escapes = prefix.is_some_and(|it| !ends_in_word(it));
    match text.as_bytes().first() {
        Some(b'\'') if has_escapes => escaped(text).map(Some).ok_or_else(|| open("'")),
        Some(b'$') if ends_in_word(statement) => Ok(None),
        Some(quote @ (b'\'' | b'"' | b'`')) => {
            let quote = char::from(*quote).to_string();
            let bytes = length(text, 1, &quote).ok_or_else(|| open(&quote))?;
            Ok(Some(bytes))
        }
        Some(b'$') => {
            let end = text[1..].find(|c| !is_word(c)).map(|end| end + 1);
            let tag = end.filter(|end| text[*end..].starts_with('$'));
            let tag = tag.map(|end| &text[..=end]);
            // `$1` is a parameter, and `$$` or `$tag$` a quote.
            let is_quote = |tag: &&str| !tag[1..].starts_with(|c: char| c.is_ascii_digit());
            match tag.filter(is_quote) {
                None => Ok(None),
                Some(tag) => length(text, tag.len(), tag)
                    .map(Some)
                    .ok_or_else(|| open(tag)),
            }
        }
        _ => Ok(None),
    }
}

impl fmt::Display for Script {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.text)
    }
}

impl TryFrom<String> for Script {
    type Error = ScriptError;

    fn try_from(text: String) -> Result<Self, ScriptError> {
        text.parse()
    }
}

impl From<Script> for String {
    fn from(script: Script) -> Self {
        script.text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn script(text: &str) -> Vec<(String, f64, Vec<String>)> {
        let script: Script = text.parse().expect(text);
        let all = script.operations.into_iter();
        all.map(|it| (it.name, it.percent, it.statements)).collect()
    }

    #[test]
    fn a_statement_alone_is_an_operation_with_the_name_of_its_first_word() {
        for (text, name) in [
            ("SELECT 1", "select"),
            ("insert into t values ({uuid});", "insert"),
            ("BEGIN; UPDATE t SET a = 1; COMMIT", "transaction"),
            ("(SELECT 1)", "sql"),
        ] {
            assert_eq!(script(text)[0].0, name, "{text}");
        }
        assert_eq!(script("BEGIN; UPDATE t SET a = 1; COMMIT;")[0].2.len(), 3);
    }

    #[test]
    fn operations_have_names_and_shares() {
        let text = "-- a mix\n-- operation: read 90%\nSELECT 1;\n\n--operation: pay 10%\nBEGIN;\nCOMMIT;\n";
        let wanted = vec![
            ("read".to_owned(), 90.0, vec!["SELECT 1".to_owned()]),
            (
                "pay".to_owned(),
                10.0,
                vec!["BEGIN".to_owned(), "COMMIT".to_owned()],
            ),
        ];
        assert_eq!(script(text), wanted);
        let even = script("-- operation: a\nSELECT 1;\n-- operation: b\nSELECT 2");
        assert_eq!((even[0].1, even[1].1), (50.0, 50.0));
    }

    #[test]
    fn a_semicolon_in_quotes_or_in_a_comment_ends_nothing() {
        let text = "SELECT ';', \"a;b\", $$;$$, $x$;$$;$x$, a$b$ , 'it''s;', E'\\';''\\';', like'\\' -- operation: not\n/* ; /* ; */ ; */ FROM t";
        let found = script(text);
        assert_eq!(found[0].2.len(), 1, "{found:?}");
        assert!(found[0].2[0].ends_with("FROM t"));
        assert!(!found[0].2[0].contains("not"));
        let hint = "SELECT /*+ INDEX(t i) */ 1 /*!40001 + 1 */";
        assert_eq!(script(hint)[0].2, [hint]);
    }

    #[test]
    fn what_is_no_script_has_an_error() {
        for (text, said) in [
            ("", "must have a statement"),
            (" ; -- no\n;", "must have a statement"),
            (
                "-- operation: a\n",
                "must have a statement in the operation \"a\"",
            ),
            (
                "SELECT 1;\n-- operation: a\nSELECT 2",
                "\"SELECT 1\" stands before the first one",
            ),
            ("-- operation: a 10\nSELECT 1", "not \"a 10\""),
            ("-- operation: a 0%\nSELECT 1", "not \"a 0%\""),
            ("-- operation: a 1% 2%\nSELECT 1", "not \"a 1% 2%\""),
            (
                "-- operation: a 50%\nSELECT 1;\n-- operation: a 50%\nSELECT 1",
                "\"a\" is there twice",
            ),
            (
                "-- operation: a 50%\nSELECT 1;\n-- operation: b 40%\nSELECT 1",
                "these are 90 %",
            ),
            (
                "-- operation: a 50%\nSELECT 1;\n-- operation: b\nSELECT 1",
                "these are 50 %",
            ),
            ("SELECT 'a", "must end what begins with '"),
            ("SELECT 1 /* a", "must end what begins with /*"),
            ("SELECT $a$ b", "must end what begins with $a$"),
            ("SELECT $1\u{a0}", "and not $1"),
            ("SELECT u_{sequence}", "must have spaces around {sequence}"),
            (
                "SELECT {random:1..9}0",
                "must have spaces around {random:1..9}",
            ),
            (
                "SELECT 'u-{sequence}'",
                "must have no place inside of quotes",
            ),
        ] {
            let error = text.parse::<Script>().expect_err(text).to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_typed_is_a_script_or_an_error(text in "[-aE1'\"$;/*{}%: \\\\\n\u{a0}€é]{0,60}") {
            if let Ok(script) = text.parse::<Script>() {
                let again = script.to_string().parse::<Script>();
                prop_assert_eq!(again, Ok(script.clone()));
                prop_assert!(script.operations().iter().all(|it| !it.statements.is_empty()));
            }
        }
    }
}
