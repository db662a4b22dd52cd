//! The gateways of a cluster: where clients of Redis come in, and which slots are whose.

use std::ops::RangeInclusive;

use super::parts::{Reach, not_empty};
use super::{ClusterGateway, GATEWAY};
use crate::error::PlanError;
use crate::section::Section;

/// Gateways of a cluster.
const MAX_GATEWAYS: usize = 64;
/// Slots that keys are in, as in a Redis Cluster.
const SLOTS: u16 = 16_384;

/// Slots of one part: what gateways divide among them.
const PART_SLOTS: u16 = 256;

const HINT: &str = "slots = \"0-8191\" and slots = \"8192-16383\"";

pub(super) fn sections<'a>(top: &Section<'a>) -> Result<Vec<Section<'a>>, PlanError> {
    top.tables("gateway", "[[gateway]]", MAX_GATEWAYS, "use fewer")
}

/// All gateways, in the order of the file.
pub(super) fn gateways(top: &Section<'_>, reach: &Reach) -> Result<Vec<ClusterGateway>, PlanError> {
    let sections = sections(top)?;
    let gateways = sections.iter().map(|section| gateway(section, reach));
    let gateways: Vec<ClusterGateway> = gateways.collect::<Result<_, _>>()?;
    whole(&sections, &gateways)?;
    Ok(gateways)
}

fn gateway(section: &Section<'_>, reach: &Reach) -> Result<ClusterGateway, PlanError> {
    section.check_keys(GATEWAY)?;
    let file = |key: &str| not_empty(section, key, &format!("{key} = \"{key}.pem\""));
    let gateway = ClusterGateway {
        listen: reach.address(section, "listen", "127.0.0.1:6379")?,
        slots: slots(section)?,
        users: not_empty(section, "users", "users = \"users.toml\"")?,
        tls_cert: file("tls_cert")?,
        tls_key: file("tls_key")?,
        tls_client_ca: file("tls_client_ca")?,
    };
    for (key, other) in [
        ("tls_cert", "tls_key"),
        ("tls_key", "tls_cert"),
        ("tls_client_ca", "tls_cert"),
    ] {
        if section.has(key) && !section.has(other) {
            let wanted = format!("must come with {other}");
            return Err(section.refuse(key, wanted, format!("{other} = \"{other}.pem\"")));
        }
    }
    Ok(gateway)
}

fn slots(section: &Section<'_>) -> Result<RangeInclusive<u16>, PlanError> {
    let all = 0..=SLOTS - 1;
    let Some(text) = section.text("slots", HINT)? else {
        return Ok(all);
    };
    let number = |text: &str| text.parse::<u16>().ok().filter(|it| all.contains(it));
    let range = text.split_once('-');
    let range = range.and_then(|(first, last)| number(first).zip(number(last)));
    match range.filter(|(first, last)| first <= last) {
        Some((first, last))
            if first.is_multiple_of(PART_SLOTS) && (last + 1).is_multiple_of(PART_SLOTS) =>
        {
            Ok(first..=last)
        }
        Some(_) => {
            let wanted = format!("must be whole parts of {PART_SLOTS} slots");
            Err(section.refuse("slots", wanted, HINT))
        }
        None => {
            let wanted = format!("must be FIRST-LAST, both from 0 to {}", SLOTS - 1);
            Err(section.refuse("slots", wanted, HINT))
        }
    }
}

/// Each slot is served, by one gateway.
fn whole(sections: &[Section<'_>], gateways: &[ClusterGateway]) -> Result<(), PlanError> {
    let mut order: Vec<usize> = (0..gateways.len()).collect();
    order.sort_unstable_by_key(|index| *gateways[*index].slots.start());
    let mut next = 0;
    for index in &order {
        let (first, last) = gateways[*index].slots.clone().into_inner();
        if first < next {
            let wrong = format!("slots are {first}-{last}, and another gateway serves {first} too");
            let wanted = "must be one gateway's alone";
            return Err(sections[*index].complain("slots", wrong, wanted, HINT));
        }
        if first > next {
            return Err(unserved(&sections[*index], next, first - 1));
        }
        next = last + 1;
    }
    match order.last() {
        Some(index) if next < SLOTS => Err(unserved(&sections[*index], next, SLOTS - 1)),
        _ => Ok(()),
    }
}

fn unserved(section: &Section<'_>, first: u16, last: u16) -> PlanError {
    let wrong = format!("no gateway serves the slots {first}-{last}");
    section.complain("slots", wrong, "must serve all together", HINT)
}
