//! Reads a scenario, and reports a fault with its line.

use super::{CAPTURED, Capture, Next, Origin, Scenario, State};
use crate::error::PlanError;
use crate::http::{Headers, Method};
use crate::keys::did_you_mean;
use crate::secret::is_secret;
use crate::section::{Section, Source};
use crate::url::Url;

const MANUAL: &str = "see unruly/docs/scenarios.md";

/// What errors call the text.
const NAME: &str = "the scenario";

const STATE: &[&str] = &[
    "name", "method", "path", "headers", "body", "expect", "contains", "capture", "think",
    "weight", "then",
];

/// The `op` of a row is a number of eight bits.
const MOST_STATES: usize = 200;

/// Letters of a name at most.
const NAME_CHARS_MAX: usize = 64;

/// Words that are no state in `then`.
const BACK: &str = "back";
const END: &str = "end";

pub(super) fn scenario(text: &str) -> Result<Scenario, PlanError> {
    let source = Source { path: NAME, text };
    let document = source.document(MANUAL)?;
    let top = source.top(&document, NAME);
    top.check_keys(&["url", "state"])?;
    let sections = top.tables("state", "[[state]]", MOST_STATES, "leave some out")?;
    if sections.is_empty() {
        let hint = "[[state]] with name and path".to_owned();
        return Err(top.missing("[[state]]", "must hold at least one", hint));
    }
    let mut states: Vec<State> = Vec::new();
    for section in &sections {
        let state = state(section)?;
        if states.iter().any(|it| it.name == state.name) {
            let wanted = "must be another for each state";
            return Err(section.refuse("name", wanted, "name = \"another\""));
        }
        states.push(state);
    }
    let begins = connect(&sections, &mut states)?;
    let hint = "url = \"https://shop.example\"";
    let url = top.text("url", hint)?;
    if let Some(error) = url.and_then(|it| it.parse::<Url>().err()) {
        // It may hold a secret, and is not shown.
        return Err(top.complain("url", "url is wrong", error.to_string(), hint));
    }
    let scenario = Scenario {
        text: text.to_owned(),
        url: url.map(str::to_owned),
        states,
        begins,
    };
    check_captured(&sections, &scenario)?;
    Ok(scenario)
}

fn state(section: &Section<'_>) -> Result<State, PlanError> {
    section.check_keys(STATE)?;
    let body = section.text("body", "body = \"a=1\"")?.map(str::to_owned);
    let usual = if body.is_some() { "POST" } else { "GET" };
    let method = section
        .text("method", "method = \"POST\"")?
        .unwrap_or(usual);
    let method: Method = wrong_as(section, "method", method.parse(), "method = \"POST\"")?;
    let headers = section.text("headers", "headers = \"Accept: text/html\"")?;
    let headers: Headers = wrong_as(
        section,
        "headers",
        headers.unwrap_or_default().parse(),
        "headers = \"Accept: text/html\"",
    )?;
    let expect = section.text("expect", "expect = \"200\"")?;
    let expect = expect.map(|it| wrong_as(section, "expect", it.parse(), "expect = \"200\""));
    let think = section.text("think", "think = \"7s\"")?;
    let think = think.map(|it| wrong_as(section, "think", it.parse(), "think = \"7s\""));
    let contains = section.text("contains", "contains = \"Welcome\"")?;
    if contains.is_some_and(str::is_empty) {
        let wanted = "must have a letter";
        return Err(section.refuse("contains", wanted, "contains = \"Welcome\""));
    }
    Ok(State {
        name: name(section)?,
        method,
        path: path(section)?,
        headers,
        body,
        expect: expect.transpose()?,
        contains: contains.map(str::to_owned),
        captures: captures(section)?,
        think: think.transpose()?,
        next: Vec::new(),
    })
}

/// The value of a key, or a complaint in the words of its error.
fn wrong_as<T, E: std::fmt::Display>(
    section: &Section<'_>,
    key: &str,
    value: Result<T, E>,
    hint: &str,
) -> Result<T, PlanError> {
    // Headers may hold a secret, and are not shown.
    value.map_err(|error| match key {
        "headers" => section.complain(key, "headers are wrong", error.to_string(), hint),
        _ => section.refuse(key, error.to_string(), hint),
    })
}

fn name(section: &Section<'_>) -> Result<String, PlanError> {
    let hint = "name = \"login\"";
    let wanted = "must be letters, digits, - and _, and not back or end";
    let Some(name) = section.text("name", hint)? else {
        return Err(section.missing("name", wanted, hint.to_owned()));
    };
    if !is_name(name) || [BACK, END].contains(&name) {
        return Err(section.refuse("name", wanted, hint));
    }
    Ok(name.to_owned())
}

fn is_name(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    (1..=NAME_CHARS_MAX).contains(&text.len()) && text.chars().all(letter)
}

fn path(section: &Section<'_>) -> Result<String, PlanError> {
    let hint = "path = \"/login\"";
    let wanted = "must be a path that begins with /, without spaces";
    let Some(path) = section.text("path", hint)? else {
        return Err(section.missing("path", wanted, hint.to_owned()));
    };
    // Before the other complaints, which show it.
    let query = path.split_once('?').map_or("", |(_, query)| query);
    let mut fields = query.split('&').filter_map(|it| it.split_once('='));
    if fields.any(|(name, value)| is_secret(name, value)) {
        return Err(section.complain(
            "path",
            "path is wrong",
            "must hold no secret, since scenarios are kept with their runs".to_owned(),
            "write {password} in its place, and put it in UNRULY_PASSWORD",
        ));
    }
    if path.starts_with("{captured.") {
        let hint = format!("path = \"/{path}\"; leave the leading / out of the captured value");
        return Err(section.refuse("path", wanted, &hint));
    }
    if !path.starts_with('/') || path.contains(|c: char| c.is_whitespace() || c == '#') {
        return Err(section.refuse("path", wanted, hint));
    }
    if path.contains("{key}") {
        let wanted = "must have no {key}: a scenario has no keys";
        return Err(section.refuse("path", wanted, hint));
    }
    Ok(path.to_owned())
}

fn captures(section: &Section<'_>) -> Result<Vec<Capture>, PlanError> {
    let hint = "capture = { token = \"json:access_token\" }";
    let Some(table) = section.child("capture", hint)? else {
        return Ok(Vec::new());
    };
    let mut captures = Vec::new();
    for name in table.keys() {
        let wanted = "must say where the value stands: json:PATH, header:NAME or regex:PATTERN";
        let text = table.text(name, hint)?.unwrap_or_default();
        if !is_name(name) {
            let wanted = "must have a name of letters, digits, - and _";
            return Err(table.refuse(name, wanted, hint));
        }
        let origin = origin(text).ok_or_else(|| table.refuse(name, wanted, hint))?;
        captures.push(Capture {
            name: name.to_owned(),
            origin,
        });
    }
    Ok(captures)
}

fn origin(text: &str) -> Option<Origin> {
    let (kind, rest) = text.split_once(':')?;
    if rest.is_empty() {
        return None;
    }
    match kind {
        "header" => Some(Origin::Header(rest.to_owned())),
        "regex" => Some(Origin::Regex(rest.to_owned())),
        "json" => {
            // `items[0].id` and `items.0.id` are one path.
            let plain = rest.replace('[', ".").replace(']', "");
            let plain = plain
                .strip_prefix('.')
                .filter(|_| rest.starts_with('['))
                .unwrap_or(&plain);
            let path: Vec<String> = plain.split('.').map(str::to_owned).collect();
            let whole = path.iter().all(|it| !it.is_empty());
            whole.then_some(Origin::Json(path))
        }
        _ => None,
    }
}

/// Connects each state with those after it. Returns the states that users begin with.
fn connect(sections: &[Section<'_>], states: &mut [State]) -> Result<Vec<(usize, f64)>, PlanError> {
    let weighted = sections.iter().filter(|it| it.has("weight")).count();
    if weighted == 0 {
        let names: Vec<String> = states.iter().map(|it| it.name.clone()).collect();
        for (number, section) in sections.iter().enumerate() {
            states[number].next = next(section, number, &names)?;
        }
        return Ok(vec![(0, 1.0)]);
    }
    let mut weights = Vec::new();
    for section in sections {
        if section.has("then") {
            let wanted = "must be left out: with weights, each request is a state by chance";
            return Err(section.refuse("then", wanted, "remove then, or all weights"));
        }
        let wanted = "must be in each state, or in none";
        if !section.has("weight") {
            return Err(section.missing("weight", wanted, "weight = 1".to_owned()));
        }
        weights.push(section.real("weight", None, (0.0, f64::INFINITY), 1.0)?);
    }
    let sum: f64 = weights.iter().sum();
    let shares = weights.iter().map(|it| it / sum);
    for state in states.iter_mut() {
        let next = shares.clone().enumerate();
        state.next = next.map(|(it, share)| (Next::State(it), share)).collect();
    }
    Ok(shares.enumerate().collect())
}

/// The states after a state: those that it names, or else the next one in the text.
fn next(
    section: &Section<'_>,
    number: usize,
    names: &[String],
) -> Result<Vec<(Next, f64)>, PlanError> {
    let hint = "then = { browse = 0.9, end = 0.1 }";
    let read = |table: &Section<'_>, key: &str, word: &str| match word {
        BACK => Ok(Next::Back),
        END => Ok(Next::End),
        name => {
            let place = names.iter().position(|it| it == name);
            place.map(Next::State).ok_or_else(|| {
                let known = names.iter().map(String::as_str).chain([BACK, END]);
                let hint = did_you_mean(name, known, "name a [[state]], back or end");
                let wrong = format!("{name} is no state");
                table.complain(key, wrong, "wanted the next state", hint)
            })
        }
    };
    if !section.has("then") {
        let after = number + 1;
        let next = (after < names.len()).then_some(Next::State(after));
        return Ok(vec![(next.unwrap_or(Next::End), 1.0)]);
    }
    if let Ok(Some(word)) = section.text("then", hint) {
        return Ok(vec![(read(section, "then", word)?, 1.0)]);
    }
    let Some(table) = section.child("then", hint)? else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for key in table.keys() {
        let share = table.real(key, None, (0.0, f64::INFINITY), 0.5)?;
        found.push((read(&table, key, key)?, share));
    }
    let sum: f64 = found.iter().map(|(_, share)| share).sum();
    if (sum - 1.0).abs() > 1e-6 {
        let wrong = format!("the shares of then are {sum} together");
        return Err(section.complain("then", wrong, "must be 1 together", hint));
    }
    Ok(found)
}

/// Refuses a place for a value that no state captures.
fn check_captured(sections: &[Section<'_>], scenario: &Scenario) -> Result<(), PlanError> {
    let known = scenario.captured();
    let place = format!("{{{CAPTURED}");
    for (section, state) in sections.iter().zip(&scenario.states) {
        for text in state.texts() {
            for rest in text.split(&place).skip(1) {
                let name = rest.split('}').next().unwrap_or_default();
                if !known.contains(&name) {
                    let wrong = format!("{{{CAPTURED}{name}}} is captured by no state");
                    let hint = did_you_mean(
                        name,
                        known.iter().copied(),
                        "capture = { token = \"json:access_token\" }",
                    );
                    let wanted = "wanted a capture of that name";
                    return Err(section.complain("name", wrong, wanted, hint));
                }
            }
        }
    }
    Ok(())
}
