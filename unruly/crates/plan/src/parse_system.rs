//! The middleware system of a plan, and the payload of its calls.

use crate::error::PlanError;
use crate::keys::{drive, store as keys};
use crate::model::Transport;
use crate::section::Section;
use crate::units::Bytes;
use crate::url::Url;

/// Keys that mean nothing where every request is a call.
const OF_STORES: [&str; 9] = [
    keys::OPERATIONS.name,
    keys::KEYS.name,
    keys::ORDER.name,
    keys::SKEW.name,
    keys::VALUE.name,
    keys::LEVEL.name,
    keys::RETRIES.name,
    keys::PRELOAD.name,
    keys::KEEP.name,
];

/// Returns the transport of a system that is our own echo server: `tcp` or `udp`.
pub(crate) fn own_echo(section: &Section<'_>) -> Result<Option<Transport>, PlanError> {
    let key = drive::SYSTEM;
    let Some(name) = key.read(section)? else {
        return Ok(None);
    };
    let (url, service) = (drive::URL.name, drive::SERVICE.name);
    let others = [url, service, drive::ADDRESS.name, drive::TRANSPORT.name];
    if let Some(other) = others.into_iter().find(|it| section.has(it)) {
        let wanted = "must be left out: the system names the server and its transport";
        return Err(section.refuse(other, wanted, format!("remove {other}")));
    }
    if name.is_empty() || name.chars().any(char::is_control) {
        let wanted = "must be the name of a system, or its file";
        return Err(section.refuse(key.name, wanted, key.example()));
    }
    Ok(Transport::ALL.into_iter().find(|it| it.name() == name))
}

/// Returns the system that the run starts, unless it is our own echo server.
pub(crate) fn started(section: &Section<'_>) -> Result<Option<Url>, PlanError> {
    if own_echo(section)?.is_some() {
        return Ok(None);
    }
    Ok(drive::SYSTEM.read(section)?.map(Url::of_system))
}

/// Returns the payload of each call, where every request is one: of a system, or of a program whose
/// plan has a payload.
pub(crate) fn calls(section: &Section<'_>, url: &Url) -> Result<Option<Bytes>, PlanError> {
    let payload = drive::PAYLOAD;
    let of_program = url.is_program() && section.has(payload.name);
    if url.system().is_none() && !of_program {
        return Ok(None);
    }
    if let Some(key) = OF_STORES.iter().find(|key| section.has(key)) {
        let wanted = "must be left out: every request is a call with payload bytes";
        return Err(section.refuse(key, wanted, format!("remove {key}")));
    }
    payload.read(section).map(Some)
}
