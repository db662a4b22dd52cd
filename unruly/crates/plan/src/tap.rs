//! What a run sees of services from outside, and how `[tap]` is read.

use serde::{Deserialize, Serialize};
use toml_edit::Value;

use crate::error::PlanError;
use crate::keys;
use crate::model::{Load, Plan};
use crate::section::Section;

/// Services that one tap can watch.
pub const MAX_TAPPED_SERVICES: usize = 32;

/// The tap of a run: it reads the headers of the packets of services.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tap {
    /// Whether it watches; a matrix may vary it.
    pub on: bool,
    /// The services as `NAME=tcp://HOST:PORT`; empty for those that the run starts, or its target.
    pub services: Vec<String>,
    /// The network interface; `None` for that of the services.
    pub interface: Option<String>,
}

impl Plan {
    /// Returns the tap if it is on.
    #[must_use]
    pub fn tap(&self) -> Option<&Tap> {
        self.tap.as_ref().filter(|it| it.on)
    }
}

/// Reads `[tap]`. Without the table there is no tap.
pub(crate) fn tap(top: &Section<'_>, load: &Load) -> Result<Option<Tap>, PlanError> {
    let Some(section) = top.child("tap", "[tap]")? else {
        return Ok(None);
    };
    keys::tap::TAP.check(&section)?;
    let on = keys::tap::ON.read(&section)?;
    let read = Tap {
        on,
        services: services(&section)?,
        interface: keys::tap::INTERFACE.read(&section)?.map(str::to_owned),
    };
    if on && !matches!(load, Load::Drive(_)) {
        let wrong = "the plan has [tap] without [drive]";
        let wanted = "must be left out: it watches the services that a drive calls";
        return Err(section.complain("", wrong, wanted, "remove [tap], or measure with [drive]"));
    }
    Ok(Some(read))
}

fn services(section: &Section<'_>) -> Result<Vec<String>, PlanError> {
    let key = keys::tap::SERVICES;
    let values = key.read(section)?.unwrap_or_default();
    if values.len() > MAX_TAPPED_SERVICES {
        let wrong = format!("{} holds {} services", key.name, values.len());
        let wanted = format!("must hold at most {MAX_TAPPED_SERVICES}");
        return Err(section.complain(key.name, wrong, wanted, "remove some"));
    }
    let read = values.into_iter().map(|value| {
        let text = value.as_str().filter(|it| is_service(it));
        text.map(str::to_owned)
            .ok_or_else(|| refusal(section, value))
    });
    read.collect()
}

/// Returns true for `NAME=SCHEME://HOST:PORT`. Only the host's resolver knows the host's addresses.
fn is_service(text: &str) -> bool {
    let (name, url) = text.split_once('=').unwrap_or(("it", text));
    let place = ["tcp://", "mysql://"]
        .iter()
        .find_map(|scheme| url.strip_prefix(scheme));
    let split = place.and_then(|it| it.trim_end_matches('/').rsplit_once(':'));
    split.is_some_and(|(host, port)| {
        let port = port.parse::<u16>();
        !name.is_empty() && !host.is_empty() && port.is_ok_and(|it| it > 0)
    })
}

fn refusal(section: &Section<'_>, value: &Value) -> PlanError {
    let key = keys::tap::SERVICES;
    let wrong = format!("{} holds {}", key.name, value.to_string().trim());
    let wanted = "must hold addresses such as tcp://127.0.0.1:80 or web=tcp://127.0.0.1:80";
    section.complain(key.name, wrong, wanted, key.example())
}
