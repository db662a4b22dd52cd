//! The keys of `[drive]` that say when requests are due.

use crate::arrivals::{Arrivals, Shape, ThinkBursts};
use crate::closed_loop::{mean_think, users};
use crate::error::PlanError;
use crate::keys::drive as keys;
use crate::limits::MAX_RATE;
use crate::model::Run;
use crate::ramp::Ramp;
use crate::section::Section;
use crate::store::Store;

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
            bursts: think_bursts(section)?,
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

/// The stages of a load that changes, which fit into the run and have clients enough.
pub(crate) fn ramp(
    section: &Section<'_>,
    arrivals: &Arrivals,
    clients: u32,
    (run, scale): (&Run, f64),
) -> Result<Option<Ramp>, PlanError> {
    let key = keys::RAMP;
    let Some(text) = key.read(section)? else {
        return Ok(None);
    };
    let ramp: Ramp = text
        .parse()
        .map_err(|wanted: &str| section.refuse(key.name, wanted, key.example()))?;
    if run.until.is_some() {
        let wanted = "must be left out with [run] until, which may end the run in any stage";
        return Err(section.refuse(key.name, wanted, "remove until"));
    }
    let written = ramp.lasts();
    let ramp = ramp.scaled(scale);
    let (lasts, duration) = (ramp.lasts(), run.duration);
    if lasts.0 > duration.0 {
        let wrong = format!("the stages last {lasts}, [run] duration {duration}");
        let wanted = "must not be longer than the run";
        let hint = format!("in [run], duration = \"{written}\"");
        return Err(section.complain(key.name, wrong, wanted, hint));
    }
    let most = ramp.most();
    if matches!(arrivals, Arrivals::Closed { .. }) && most > f64::from(clients) {
        let wrong = format!("a stage has {most} clients, and clients is {clients}");
        let wanted = "must not be more than there are";
        let hint = keys::CLIENTS.hint(most.ceil());
        return Err(section.complain(key.name, wrong, wanted, hint));
    }
    if !matches!(arrivals, Arrivals::Closed { .. }) && most > MAX_RATE.0 {
        let wanted = format!("must have rates up to {MAX_RATE}");
        return Err(section.refuse(key.name, wanted, key.example()));
    }
    Ok(Some(ramp))
}

/// The bursts in which users think faster, if there are any.
fn think_bursts(section: &Section<'_>) -> Result<Option<ThinkBursts>, PlanError> {
    if !section.has(keys::DISPERSION.name) {
        let alone = [keys::BURST_SHARE.name, keys::BURST_FACTOR.name];
        return match alone.iter().find(|key| section.has(key)) {
            Some(key) => {
                let dispersion = &keys::DISPERSION;
                let wanted = "must be left out: without dispersion there are no bursts";
                Err(section.refuse(key, wanted, dispersion.hint(dispersion.kind.example)))
            }
            None => Ok(None),
        };
    }
    let (dispersion, burst_share, burst_factor) = of_bursts(section)?;
    Ok(Some(ThinkBursts {
        dispersion,
        burst_share,
        burst_factor,
    }))
}

/// Checks that users who think in bursts think at all, and that bursts last long enough.
pub(crate) fn check_bursts(
    section: &Section<'_>,
    arrivals: &Arrivals,
    clients: u32,
    store: Option<&Store>,
) -> Result<(), PlanError> {
    let Arrivals::Closed {
        bursts: Some(bursts),
        ..
    } = arrivals
    else {
        return Ok(());
    };
    let key = &keys::DISPERSION;
    let think = mean_think(arrivals, store);
    if think.0 == 0 {
        let wanted = "must be left out: users who do not think cannot think faster";
        let hint = "give a mean think time, such as think = \"1s\"";
        return Err(section.refuse(key.name, wanted, hint));
    }
    let users = users(clients, store);
    let least = bursts.least_dispersion(users as f64, think);
    if bursts.dispersion < least {
        let wanted =
            format!("must be {least:.4} or more for {users} users who think {think}, or left out");
        let hint = "leave dispersion out: its users ask nearly independently";
        return Err(section.refuse(key.name, wanted, hint));
    }
    Ok(())
}

fn mmpp(section: &Section<'_>) -> Result<Arrivals, PlanError> {
    let (dispersion, burst_share, burst_factor) = of_bursts(section)?;
    Ok(Arrivals::Mmpp {
        rate: keys::RATE.read(section)?,
        dispersion,
        burst_share,
        burst_factor,
    })
}

/// The index of dispersion, the share of time in bursts, and how many times the mean a burst is.
fn of_bursts(section: &Section<'_>) -> Result<(f64, f64, f64), PlanError> {
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
    Ok((dispersion, burst_share, burst_factor))
}

#[cfg(test)]
mod tests {
    use crate::Plan;

    fn refused(text: &str, message: &str) {
        let error = Plan::parse("plan.toml", text).expect_err("it is wrong");
        assert_eq!(error.to_string(), message);
    }

    #[test]
    fn stages_are_refused_what_they_cannot_be() {
        let stages = |lines: &str, message: &str| {
            let head = "name = \"a\"\n[run]\nduration = \"60s\"\n[drive]\n";
            refused(&format!("{head}{lines}"), message);
        };
        stages(
            "rate = \"1/s\"\nramp = \"30s\"",
            "plan.toml:6: ramp is \"30s\"; must be stages such as 30s:500, each a time (ns, us, ms, s, min, h, d) and the level at its end; hint: ramp = \"30s:500, 2min:500\"",
        );
        stages(
            "rate = \"1/s\"\nramp = \"30s:5, 31s:5\"",
            "plan.toml:6: the stages last 61s, [run] duration 60s; must not be longer than the run; hint: in [run], duration = \"61s\"",
        );
        stages(
            "rate = \"1/s\"\nramp = \"30s:1e9\"",
            "plan.toml:6: ramp is \"30s:1e9\"; must have rates up to 10M/s; hint: ramp = \"30s:500, 2min:500\"",
        );
        let scaled =
            "name = \"a\"\n[run]\nduration = \"60s\"\nscale = 0.1\n[drive]\nrate = \"1/s\"\n";
        refused(
            &format!("{scaled}ramp = \"70s:5\""),
            "plan.toml:7: the stages last 7s, [run] duration 6s; must not be longer than the run; hint: in [run], duration = \"70s\"",
        );
        let until = "name = \"a\"\n[run]\nduration = \"60s\"\nuntil = \"p99 within 9%\"\n[drive]\nrate = \"1/s\"\n";
        refused(
            &format!("{until}ramp = \"7s:5\""),
            "plan.toml:7: ramp is \"7s:5\"; must be left out with [run] until, which may end the run in any stage; hint: remove until",
        );
        stages(
            "arrivals = \"closed\"\nramp = \"30s:5\"",
            "plan.toml:6: a stage has 5 clients, and clients is 1; must not be more than there are; hint: clients = 5",
        );
        stages(
            "arrivals = \"onoff\"\nrate = \"1/s\"\nramp = \"30s:5\"",
            "plan.toml:7: ramp is \"30s:5\"; must be left out: only constant, poisson and closed arrivals change in stages; hint: remove ramp",
        );
    }

    #[test]
    fn bursts_of_a_closed_loop_are_refused_what_they_cannot_be() {
        let bursts = |lines: &str, message: &str| {
            let head = "name = \"a\"\n[run]\nduration = \"60s\"\n[drive]\narrivals = \"closed\"\n";
            refused(&format!("{head}{lines}"), message);
        };
        bursts(
            "think = \"1s\"\nburst_share = 0.3",
            "plan.toml:7: burst_share is 0.3; must be left out: without dispersion there are no bursts; hint: dispersion = 100",
        );
        bursts(
            "dispersion = 100",
            "plan.toml:6: dispersion is 100; must be left out: users who do not think cannot think faster; hint: give a mean think time, such as think = \"1s\"",
        );
        bursts(
            "think = \"1s\"\nclients = 10000\ndispersion = 1.01",
            "plan.toml:8: dispersion is 1.01; must be 1.2000 or more for 10000 users who think 1s, or left out; hint: leave dispersion out: its users ask nearly independently",
        );
    }
}
