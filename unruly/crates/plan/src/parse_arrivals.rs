//! The keys of `[drive]` that say when requests are due.

use crate::arrivals::{Arrivals, Shape};
use crate::error::PlanError;
use crate::keys::drive as keys;
use crate::section::Section;

/// When requests are due. A store without a rate is driven as fast as it answers.
pub(crate) fn arrivals(section: &Section<'_>, store: bool) -> Result<Arrivals, PlanError> {
    let as_fast = store && !section.has(keys::RATE.name);
    let key = keys::ARRIVALS.with(|shapes| match as_fast {
        true => shapes.or(Shape::Closed),
        false => shapes,
    });
    let shape = key.read(section)?;
    if let Some((key, reason)) = keys::DRIVE.misplaced(section, shape.name()) {
        let wanted = format!("must be left out: {reason}");
        return Err(section.refuse(key, wanted, format!("remove {key}")));
    }
    let rate = || keys::RATE.read(section);
    Ok(match shape {
        Shape::Constant => Arrivals::Constant { rate: rate()? },
        Shape::Poisson => Arrivals::Poisson { rate: rate()? },
        Shape::Mmpp => mmpp(section)?,
        Shape::OnOff => Arrivals::OnOff {
            rate: rate()?,
            on: keys::ON_TIME.read(section)?,
            off: keys::OFF_TIME.read(section)?,
            shape: keys::SHAPE.read(section)?,
        },
        Shape::Replay => Arrivals::Replay,
        Shape::Closed => Arrivals::Closed {
            think: keys::THINK.read(section)?,
        },
    })
}

/// The file of a replay.
pub(crate) fn times(
    section: &Section<'_>,
    arrivals: &Arrivals,
) -> Result<Option<String>, PlanError> {
    let key = keys::TIMES;
    let found = key.read(section)?.map(str::to_owned);
    if *arrivals == Arrivals::Replay && found.is_none() {
        let wanted = "must be a file with a time in seconds on each line";
        return Err(section.missing(key.name, wanted, key.example()));
    }
    Ok(found)
}

fn mmpp(section: &Section<'_>) -> Result<Arrivals, PlanError> {
    let dispersion = keys::DISPERSION.read(section)?;
    let burst_share = keys::BURST_SHARE.read(section)?;
    let key = keys::BURST_FACTOR;
    let burst_factor = key.read(section)?;
    if burst_share * burst_factor > 1.0 {
        let (share, factor) = (keys::BURST_SHARE.name, key.name);
        let wrong = format!("{share} times {factor} is {}", burst_share * burst_factor);
        let wanted = "must be at most 1, or bursts alone would be more than the mean";
        return Err(section.complain(factor, wrong, wanted, key.hint(key.kind.example)));
    }
    Ok(Arrivals::Mmpp {
        rate: keys::RATE.read(section)?,
        dispersion,
        burst_share,
        burst_factor,
    })
}
