//! What users keep of replies, and what a reply must have in it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use regex_lite::Regex;
use serde_json::value::RawValue;
use unruly_plan::{Capture, Origin, Scenario, State};

use super::super::DriverError;

/// Bytes of a value at most: it goes into a URL or a header.
const VALUE_BYTES_MAX: usize = 64 << 10;

/// The values that all users of a process keep, in the order of the scenario's names.
#[derive(Debug, Default)]
pub(in super::super) struct Captured {
    names: Vec<String>,
    values: Mutex<HashMap<usize, Vec<String>>>,
    /// How many users have begun in each session.
    users: Mutex<HashMap<usize, u64>>,
}

impl Captured {
    /// No value yet, for a scenario.
    pub(super) fn of(scenario: &Scenario) -> Self {
        let names = scenario.captured().into_iter();
        Self {
            names: names.map(str::to_owned).collect(),
            values: Mutex::default(),
            users: Mutex::default(),
        }
    }

    /// The place of a name among the values of a user.
    pub(in super::super) fn place(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|it| it == name)
    }

    fn values(&self) -> MutexGuard<'_, HashMap<usize, Vec<String>>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a user keeps; a value that was not captured yet is empty.
    pub(super) fn of_user(&self, user: usize) -> Vec<String> {
        let kept = self.values().get(&user).cloned();
        kept.unwrap_or_else(|| vec![String::new(); self.names.len()])
    }

    fn keep(&self, user: usize, place: usize, value: String) {
        let mut values = self.values();
        let kept = values.entry(user);
        let kept = kept.or_insert_with(|| vec![String::new(); self.names.len()]);
        if let Some(slot) = kept.get_mut(place) {
            *slot = value;
        }
    }

    /// Another user takes the place of this one.
    pub(super) fn forget(&self, user: usize) {
        self.values().remove(&user);
        *self.users().entry(user).or_insert(0) += 1;
    }

    fn users(&self) -> MutexGuard<'_, HashMap<usize, u64>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a session's user. What a late reply brings for an earlier one is nobody's.
    pub(super) fn user_of(&self, session: usize) -> u64 {
        self.users().get(&session).copied().unwrap_or(0)
    }
}

/// What is looked for in the replies to a state.
#[derive(Debug)]
pub(super) struct Content {
    /// A text, and the message about a reply without it.
    contains: Option<(String, &'static str)>,
    captures: Vec<Search>,
}

#[derive(Debug)]
struct Search {
    place: usize,
    /// The message about a reply without it.
    lacks: &'static str,
    finder: Finder,
}

/// A message that lives as long as the process: a scenario has a few of them.
fn message(words: String) -> &'static str {
    Box::leak(words.into_boxed_str())
}

#[derive(Debug)]
enum Finder {
    Json(Vec<String>),
    Header(String),
    Regex(Regex),
}

impl Content {
    /// What a state looks for; nothing where it takes any reply.
    ///
    /// # Errors
    ///
    /// When a regular expression is none.
    pub(super) fn of(state: &State, captured: &Captured) -> Result<Option<Self>, DriverError> {
        let captures = state.captures.iter().map(|it| search(state, it, captured));
        let content = Self {
            contains: state.contains.clone().map(|wanted| {
                let lacks = message(format!(
                    "the reply to {} does not contain {wanted:?}",
                    state.name
                ));
                (wanted, lacks)
            }),
            captures: captures.collect::<Result<_, _>>()?,
        };
        let looks = content.contains.is_some() || !content.captures.is_empty();
        Ok(looks.then_some(content))
    }

    /// True if it looks into the body.
    pub(super) fn needs_body(&self) -> bool {
        let of_body = |it: &Search| !matches!(it.finder, Finder::Header(_));
        self.contains.is_some() || self.captures.iter().any(of_body)
    }

    /// Keeps for a user what a reply has.
    ///
    /// # Errors
    ///
    /// What the reply does not have.
    pub(super) fn take<'a>(
        &self,
        captured: &Captured,
        user: usize,
        header: impl Fn(&str) -> Option<&'a [u8]>,
        body: &[u8],
    ) -> Result<(), &'static str> {
        let text = String::from_utf8_lossy(body);
        if let Some((wanted, lacks)) = &self.contains
            && !text.contains(wanted.as_str())
        {
            return Err(lacks);
        }
        for search in &self.captures {
            let found = match &search.finder {
                Finder::Header(name) => {
                    header(name).map(|it| String::from_utf8_lossy(it).trim().to_owned())
                }
                Finder::Json(path) => in_json(&text, path),
                Finder::Regex(regex) => regex.captures(&text).and_then(|it| {
                    let group = it.get(1).or_else(|| it.get(0))?;
                    Some(group.as_str().to_owned())
                }),
            };
            // It goes into lines of a head, which a line's end would break.
            let fits = |it: &String| {
                !it.is_empty() && it.len() <= VALUE_BYTES_MAX && !it.contains(char::is_control)
            };
            let value = found.filter(fits);
            let value = value.ok_or(search.lacks)?;
            captured.keep(user, search.place, value);
        }
        Ok(())
    }
}

fn search(state: &State, capture: &Capture, captured: &Captured) -> Result<Search, DriverError> {
    let finder = match &capture.origin {
        Origin::Json(path) => Finder::Json(path.clone()),
        Origin::Header(name) => Finder::Header(name.clone()),
        Origin::Regex(pattern) => {
            let regex = Regex::new(pattern).map_err(|error| {
                DriverError::new(
                    "scenario",
                    format!(
                        "{} of {}: {pattern:?} is no regular expression: {error}",
                        capture.name, state.name
                    ),
                    "wanted one with the value as its first group",
                    "capture = { id = 'regex:id=(\\d+)' }",
                )
            })?;
            Finder::Regex(regex)
        }
    };
    Ok(Search {
        place: captured.place(&capture.name).unwrap_or(usize::MAX),
        lacks: message(format!(
            "the reply to {} has no {} ({})",
            state.name, capture.name, capture.origin
        )),
        finder,
    })
}

/// The text, number or truth at a path of a JSON text. A number has all the digits that it came with.
fn in_json(text: &str, path: &[String]) -> Option<String> {
    let mut at: &RawValue = serde_json::from_str(text).ok()?;
    for step in path {
        at = match at.get().as_bytes().first()? {
            b'[' => {
                let items: Vec<&RawValue> = serde_json::from_str(at.get()).ok()?;
                *items.get(step.parse::<usize>().ok()?)?
            }
            b'{' => {
                let fields: HashMap<String, &RawValue> = serde_json::from_str(at.get()).ok()?;
                *fields.get(step)?
            }
            _ => return None,
        };
    }
    match at.get().as_bytes().first()? {
        b'"' => serde_json::from_str(at.get()).ok(),
        b'[' | b'{' | b'n' => None,
        _ => Some(at.get().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looked(capture: &str, body: &str) -> Result<Vec<String>, String> {
        let text = format!(
            "[[state]]\nname = \"a\"\npath = \"/\"\ncontains = \"o\"\ncapture = {{ {capture} }}"
        );
        let scenario: Scenario = text.parse().expect("it is a scenario");
        let captured = Captured::of(&scenario);
        let content = Content::of(&scenario.states()[0], &captured);
        let content = content.map_err(|it| it.to_string())?.expect("it looks");
        let header = |name: &str| {
            name.eq_ignore_ascii_case("Location")
                .then_some(b" /one ".as_slice())
        };
        content.take(&captured, 3, header, body.as_bytes())?;
        Ok(captured.of_user(3))
    }

    #[test]
    fn a_value_is_found_where_the_scenario_says() {
        let json = r#"{"o": {"list": [{"id": 7}, {"id": "x y", "ok": true}]}}"#;
        for (capture, body, wanted) in [
            ("v = \"json:o.list[1].id\"", json, "x y"),
            ("v = \"json:o.list.0.id\"", json, "7"),
            ("v = \"json:o.list[1].ok\"", json, "true"),
            (
                "v = \"json:o\"",
                " {\"o\" : 123456789012345678901234567890 } ",
                "123456789012345678901234567890",
            ),
            ("v = \"json:o\"", "{\"o\": 1.10}", "1.10"),
            (
                "v = \"json:o\"",
                "{\"\\u006f\": \"\\u0041\", \"x\": \"o\"}",
                "A",
            ),
            ("v = \"header:location\"", "o", "/one"),
            ("v = 'regex:id=(\\d+)'", "to id=41 and id=42", "41"),
            ("v = 'regex:id=\\d+'", "to id=41", "id=41"),
        ] {
            assert_eq!(
                looked(capture, body),
                Ok(vec![wanted.to_owned()]),
                "{capture}"
            );
        }
    }

    #[test]
    fn a_reply_without_it_says_what_it_does_not_have() {
        let json = r#"{"o": {"list": []}}"#;
        for (capture, body, said) in [
            (
                "v = \"json:o.list[0].id\"",
                json,
                "the reply to a has no v (json:o.list.0.id)",
            ),
            (
                "v = \"json:o.list\"",
                json,
                "the reply to a has no v (json:o.list)",
            ),
            (
                "v = \"json:o\"",
                "{\"o\": 1} and more",
                "the reply to a has no v (json:o)",
            ),
            (
                "v = \"json:o.list\"",
                "{\"o\": null}",
                "the reply to a has no v (json:o.list)",
            ),
            (
                "v = \"json:o\"",
                "no json",
                "the reply to a has no v (json:o)",
            ),
            (
                "v = \"header:X-Id\"",
                "o",
                "the reply to a has no v (header:X-Id)",
            ),
            (
                "v = 'regex:id=(\\d+)'",
                "o",
                "the reply to a has no v (regex:id=",
            ),
            ("v = 'regex:id=(.*)'", "o id=", "the reply to a has no v"),
            (
                "v = \"json:o\"",
                "{\"o\": \"a\\r\\nX: 1\"}",
                "the reply to a has no v",
            ),
            (
                "v = \"header:location\"",
                "",
                "the reply to a does not contain \"o\"",
            ),
            ("v = 'regex:('", "o", "is no regular expression"),
        ] {
            let found = looked(capture, body).expect_err(capture);
            assert!(found.contains(said), "{found}");
        }
    }

    #[test]
    fn each_user_keeps_its_own_until_another_one_takes_its_place() {
        let text = "[[state]]\nname = \"a\"\npath = \"/\"\ncapture = { v = \"json:v\" }";
        let captured = Captured::of(&text.parse().expect("it is a scenario"));
        captured.keep(1, 0, "one".to_owned());
        assert_eq!(captured.of_user(1), ["one"]);
        assert_eq!(captured.of_user(2), [""]);
        captured.forget(1);
        assert_eq!(captured.of_user(1), [""]);
    }
}
