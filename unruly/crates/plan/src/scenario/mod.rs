//! What users of an HTTP server do, request after request: states, what leads from one to the next,
//! and what a user keeps of a reply.
//!
//! A scenario is a text of its own, which a plan holds as one value. Each `[[state]]` is a request.
//! Without `then` they come in their order; where all have a weight, each
//! request is one of them by chance.

mod parse;
mod walk;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::codes::Codes;
use crate::error::PlanError;
use crate::http::{Headers, Method};
use crate::units::DurationNs;
use crate::url::PASSWORD_PLACE;

pub use self::walk::{Step, Walks};

/// What a place for something that a user keeps begins with: `{captured.token}`.
pub const CAPTURED: &str = "captured.";

/// The requests of users, and what leads from one to the next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Scenario {
    text: String,
    url: Option<String>,
    states: Vec<State>,
    /// How likely a new user begins with each of these states.
    begins: Vec<(usize, f64)>,
}

/// A request of a user.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// Its name in the rows.
    pub name: String,
    /// Its method.
    pub method: Method,
    /// Its path and query, with places for values.
    pub path: String,
    /// Its header lines, beside those of all requests.
    pub headers: Headers,
    /// Its body, with places for values.
    pub body: Option<String>,
    /// Status codes that count as success, if other ones than usual.
    pub expect: Option<Codes>,
    /// A text that a reply must have in it.
    pub contains: Option<String>,
    /// What the user keeps of a reply.
    pub captures: Vec<Capture>,
    /// The mean time that the user thinks after the reply, if another one than usual.
    pub think: Option<DurationNs>,
    /// The states after it, and how likely each is.
    next: Vec<(Next, f64)>,
}

/// The next state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    State(usize),
    /// The state before this one.
    Back,
    /// The user goes, and another one begins.
    End,
}

/// A value that a user keeps of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// Its name in places: `token` in `{captured.token}`.
    pub name: String,
    /// Where it stands in the reply.
    pub origin: Origin,
}

/// Where a value stands in a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// At this path of a body of JSON: names and numbers, from the outermost on.
    Json(Vec<String>),
    /// In the header of this name.
    Header(String),
    /// In the body, as the first group of this regular expression, or all of it.
    Regex(String),
}

/// The scenarios that come with the program, each with its text.
const SHIPPED: [(&str, &str); 1] = [("board", include_str!("../../../../scenarios/board.toml"))];

impl Scenario {
    /// Returns the text of the scenario of this name that comes with the program.
    #[must_use]
    pub fn shipped(name: &str) -> Option<&'static str> {
        let found = SHIPPED.iter().find(|(known, _)| *known == name.trim());
        found.map(|(_, text)| *text)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(path) => write!(formatter, "json:{}", path.join(".")),
            Self::Header(name) => write!(formatter, "header:{name}"),
            Self::Regex(pattern) => write!(formatter, "regex:{pattern}"),
        }
    }
}

impl Scenario {
    /// The server that it was written for, where it says so.
    #[must_use]
    pub fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    /// The states, by their numbers in the rows.
    #[must_use]
    pub fn states(&self) -> &[State] {
        &self.states
    }

    /// True if `{password}` stands in a path, a header or a body.
    #[must_use]
    pub fn has_password(&self) -> bool {
        let mut texts = self.states.iter().flat_map(State::texts);
        texts.any(|it| it.contains(PASSWORD_PLACE))
    }

    /// The names of all values that users keep, each once, in the order of their first captures.
    #[must_use]
    pub fn captured(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for capture in self.states.iter().flat_map(|it| &it.captures) {
            if !names.contains(&capture.name.as_str()) {
                names.push(capture.name.as_str());
            }
        }
        names
    }
}

impl State {
    /// Its texts with places: the path, the headers and the body.
    fn texts(&self) -> impl Iterator<Item = &str> {
        let headers = self.headers.iter().map(|(_, value)| value);
        let own = [self.path.as_str()].into_iter().chain(self.body.as_deref());
        own.chain(headers)
    }
}

impl FromStr for Scenario {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        parse::scenario(text)
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.text)
    }
}

impl TryFrom<String> for Scenario {
    type Error = PlanError;

    fn try_from(text: String) -> Result<Self, PlanError> {
        text.parse()
    }
}

impl From<Scenario> for String {
    fn from(scenario: Scenario) -> Self {
        scenario.text
    }
}

#[cfg(test)]
mod tests;
