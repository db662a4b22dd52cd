//! The scenario of `[drive]`, and what it leaves no room for.

use crate::error::PlanError;
use crate::keys::{drive, store as keys};
use crate::parse_store::body;
use crate::scenario::Scenario;
use crate::section::Section;
use crate::url::Url;

/// Keys that a scenario says itself, and where.
const IN_STATES: [(&str, &str); 4] = [
    (keys::METHOD.name, "each state has its method"),
    (keys::BODY.name, "each state has its body"),
    (keys::OPERATIONS.name, "the states are the operations"),
    (keys::VALUE.name, "the states have the values"),
];

/// What users do; nothing where all requests are alike.
///
/// # Errors
///
/// When it is no scenario, or when a key beside it means nothing.
pub(crate) fn scenario(section: &Section<'_>, url: &Url) -> Result<Option<Scenario>, PlanError> {
    let key = keys::SCENARIO;
    let Some(text) = body(section, key)? else {
        return Ok(None);
    };
    let refuse = |name: &str, wanted: String| {
        let wrong = format!("it has {name}");
        Err(section.complain(name, wrong, wanted, format!("remove {name}")))
    };
    if !url.may_have_cookies() {
        let wanted = "must be left out: only an http:// or https:// URL has it";
        return refuse(key.name, wanted.to_owned());
    }
    for (name, why) in IN_STATES {
        if section.has(name) {
            return refuse(name, format!("must be left out beside scenario: {why}"));
        }
    }
    if keys::PIPELINE.whole::<u32>(section)? > 1 {
        let wanted = "must be 1: a user asks for one thing at a time";
        return Err(section.refuse(keys::PIPELINE.name, wanted, "pipeline = 1"));
    }
    if url.has_key() || !url.query.is_empty() {
        let wanted = "must have neither {key} nor a query: the states have their own paths";
        return Err(section.refuse(drive::URL.name, wanted, "url = \"http://host\""));
    }
    let text = Scenario::shipped(&text).unwrap_or(&text);
    text.parse().map(Some).map_err(|error: PlanError| {
        // The line is that of the scenario, and the key is one of the plan.
        let wrong = format!("{}: {}", error.place, error.wrong);
        section.complain(key.name, wrong, error.wanted, error.hint)
    })
}

/// Refuses thinking where a rate says when somebody asks.
///
/// # Errors
///
/// When a state of such a scenario says how long a user thinks.
pub(crate) fn check_think(
    section: &Section<'_>,
    scenario: Option<&Scenario>,
    is_closed: bool,
) -> Result<(), PlanError> {
    let states = scenario.into_iter().flat_map(Scenario::states);
    let mut thinking = states.filter(|it| it.think.is_some());
    match thinking.next() {
        Some(state) if !is_closed => {
            let wrong = format!("{} has think, and a rate says when users ask", state.name);
            let wanted = "must have no think with a rate";
            let hint = "remove rate, or think";
            Err(section.complain(keys::SCENARIO.name, wrong, wanted, hint))
        }
        _ => Ok(()),
    }
}
