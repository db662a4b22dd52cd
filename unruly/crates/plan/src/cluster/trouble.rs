//! What goes wrong on purpose.

use super::{
    ClusterDelay, ClusterDirection, ClusterFault, ClusterPause, ClusterServer, FAULT, PAUSE, Part,
};
use crate::error::PlanError;
use crate::keys::did_you_mean;
use crate::limits::{MAX_FAULTS, MAX_TIMEOUT};
use crate::section::{Limits, Section};
use crate::units::DurationNs;

/// The parts that a fault may be of.
pub(super) struct Parts<'a> {
    pub(super) servers: &'a [ClusterServer],
    pub(super) router: bool,
}

impl Parts<'_> {
    fn named(&self) -> Vec<(String, Part)> {
        let mut parts = vec![
            ("controller".to_owned(), Part::Controller),
            ("client".to_owned(), Part::Client),
        ];
        if self.router {
            parts.push(("router".to_owned(), Part::Router));
        }
        let servers = self.servers.iter();
        parts.extend(servers.map(|it| (format!("server-{}", it.id), Part::Server(it.id))));
        parts
    }

    fn part(&self, section: &Section<'_>, key: &str) -> Result<Option<Part>, PlanError> {
        let Some(text) = section.text(key, &format!("{key} = \"controller\""))? else {
            return Ok(None);
        };
        let parts = self.named();
        if let Some((_, part)) = parts.iter().find(|(name, _)| name == text) {
            return Ok(Some(*part));
        }
        let names: Vec<&str> = parts.iter().map(|(name, _)| name.as_str()).collect();
        let hint = did_you_mean(text, names.iter().copied(), "use one of these");
        let wrong = format!("unknown part {text:?} in {}", section.name);
        Err(section.complain(key, wrong, format!("known: {}", names.join(", ")), hint))
    }

    fn whose(&self, section: &Section<'_>) -> Result<Part, PlanError> {
        let missing = || section.missing("part", "must be a part", "part = \"server-1\"".into());
        self.part(section, "part")?.ok_or_else(missing)
    }

    pub(super) fn faults(&self, top: &Section<'_>) -> Result<Vec<ClusterFault>, PlanError> {
        let sections = top.tables("fault", "[[fault]]", MAX_FAULTS, "make several files")?;
        sections.iter().map(|section| self.fault(section)).collect()
    }

    fn fault(&self, section: &Section<'_>) -> Result<ClusterFault, PlanError> {
        section.check_keys(FAULT)?;
        let directions = [
            ("send", Some(ClusterDirection::Send)),
            ("receive", Some(ClusterDirection::Receive)),
            ("both", None),
        ];
        let isolated = section.switch("isolate", false)?;
        if isolated && section.has("loss") {
            return Err(section.refuse("loss", "must be left out: all is lost", "remove loss"));
        }
        let fault = ClusterFault {
            part: self.whose(section)?,
            peer: self.part(section, "peer")?,
            direction: section.choice("direction", &directions, Some(None))?,
            after: span(section, "after", Some(DurationNs(0)))?,
            duration: if section.has("duration") {
                Some(span(section, "duration", None)?)
            } else {
                None
            },
            loss: if isolated {
                1.0
            } else {
                section.share("loss")?
            },
            duplicate: section.share("duplicate")?,
            corrupt: section.share("corrupt")?,
            reorder: section.share("reorder")?,
            delay: delay(section)?,
        };
        let shares = [fault.loss, fault.duplicate, fault.corrupt, fault.reorder];
        if fault.delay.is_none() && shares.iter().all(|share| *share <= 0.0) {
            let wrong = "a fault that does nothing";
            let wanted = "must have isolate, loss, duplicate, corrupt, reorder or delay";
            return Err(section.complain("part", wrong, wanted, "loss = 0.01"));
        }
        Ok(fault)
    }

    pub(super) fn pauses(&self, top: &Section<'_>) -> Result<Vec<ClusterPause>, PlanError> {
        let sections = top.tables("pause", "[[pause]]", MAX_FAULTS, "make several files")?;
        let mut pauses: Vec<ClusterPause> = Vec::new();
        for section in &sections {
            section.check_keys(PAUSE)?;
            let pause = ClusterPause {
                part: self.whose(section)?,
                every: span(section, "every", None)?,
                duration: span(section, "duration", None)?,
            };
            if pause.duration >= pause.every {
                let wanted = format!("must be shorter than every {}", pause.every);
                return Err(section.refuse("duration", wanted, "duration = \"20ms\""));
            }
            if pauses.iter().any(|it| it.part == pause.part) {
                let wanted = "must have one pause for each part";
                return Err(section.refuse("part", wanted, "remove one"));
            }
            pauses.push(pause);
        }
        Ok(pauses)
    }
}

fn span(
    section: &Section<'_>,
    key: &str,
    default: Option<DurationNs>,
) -> Result<DurationNs, PlanError> {
    let limits = Limits {
        least: default,
        default,
        most: MAX_TIMEOUT,
        example: DurationNs(20_000_000),
    };
    section.number(key, &limits)
}

fn delay(section: &Section<'_>) -> Result<Option<ClusterDelay>, PlanError> {
    let more = ["delay_to", "delay_shape"];
    if !section.has("delay") {
        return match more.into_iter().find(|key| section.has(key)) {
            None => Ok(None),
            Some(key) => Err(section.refuse(key, "must come with delay", "delay = \"1ms\"")),
        };
    }
    let least = span(section, "delay", None)?;
    match (section.has("delay_to"), section.has("delay_shape")) {
        (false, false) => Ok(Some(ClusterDelay::Fixed(least))),
        (true, false) => {
            let most = span(section, "delay_to", None)?;
            if most < least {
                let wanted = format!("must be at least delay, {least}");
                return Err(section.refuse("delay_to", wanted, "delay_to = \"5ms\""));
            }
            Ok(Some(ClusterDelay::Uniform(least, most)))
        }
        (false, true) => {
            let item = section.table.get("delay_shape");
            let shape = item.and_then(|it| {
                it.as_float()
                    .or_else(|| it.as_integer().map(|whole| whole as f64))
            });
            match shape {
                Some(shape) if (0.1..=100.0).contains(&shape) => {
                    Ok(Some(ClusterDelay::Pareto(least, shape)))
                }
                _ => Err(section.refuse(
                    "delay_shape",
                    "must be a number from 0.1 to 100",
                    "delay_shape = 1.5",
                )),
            }
        }
        (true, true) => Err(section.refuse(
            "delay_shape",
            "must be left out beside delay_to",
            "keep one of them",
        )),
    }
}
