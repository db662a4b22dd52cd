//! The keys of `[drive]` that say when requests are due.

use crate::arrivals::Arrivals;
use crate::error::PlanError;
use crate::limits::*;
use crate::section::{Limits, Section};
use crate::units::{DurationNs, RateHz};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Constant,
    Poisson,
    Mmpp,
    OnOff,
    Replay,
    Closed,
}

/// Keys that only some arrivals have, and why others have none.
const OF_SOME: [(&str, &[Shape], &str); 9] = [
    (
        "rate",
        &[Shape::Constant, Shape::Poisson, Shape::Mmpp, Shape::OnOff],
        "a closed loop and a replay have no rate of their own",
    ),
    ("times", &[Shape::Replay], "only replay has them"),
    ("think", &[Shape::Closed], "only closed arrivals think"),
    ("dispersion", &[Shape::Mmpp], "only mmpp has one"),
    ("burst_share", &[Shape::Mmpp], "only mmpp has one"),
    ("burst_factor", &[Shape::Mmpp], "only mmpp has one"),
    ("on", &[Shape::OnOff], "only onoff has one"),
    ("off", &[Shape::OnOff], "only onoff has one"),
    ("shape", &[Shape::OnOff], "only onoff has one"),
];

/// When requests are due. A store without a rate is driven as fast as it answers.
pub(crate) fn arrivals(section: &Section<'_>, store: bool) -> Result<Arrivals, PlanError> {
    let words = [
        ("constant", Shape::Constant),
        ("poisson", Shape::Poisson),
        ("closed", Shape::Closed),
        ("mmpp", Shape::Mmpp),
        ("onoff", Shape::OnOff),
        ("replay", Shape::Replay),
    ];
    let default = if store && !section.has("rate") {
        Shape::Closed
    } else {
        Shape::Constant
    };
    let shape = section.choice("arrivals", &words, Some(default))?;
    for (key, shapes, reason) in OF_SOME {
        if section.has(key) && !shapes.contains(&shape) {
            let wanted = format!("must be left out: {reason}");
            return Err(section.refuse(key, wanted, format!("remove {key}")));
        }
    }
    Ok(match shape {
        Shape::Constant => Arrivals::Constant {
            rate: rate(section)?,
        },
        Shape::Poisson => Arrivals::Poisson {
            rate: rate(section)?,
        },
        Shape::Mmpp => mmpp(section)?,
        Shape::OnOff => on_off(section)?,
        Shape::Replay => Arrivals::Replay,
        Shape::Closed => Arrivals::Closed {
            think: section.number("think", &think())?,
        },
    })
}

/// The file of a replay.
pub(crate) fn times(
    section: &Section<'_>,
    arrivals: &Arrivals,
) -> Result<Option<String>, PlanError> {
    const HINT: &str = "times = \"times.txt\"";
    let found = section.text("times", HINT)?.map(str::to_owned);
    if *arrivals == Arrivals::Replay && found.is_none() {
        let wanted = "must be a file with a time in seconds on each line";
        return Err(section.missing("times", wanted, HINT.to_owned()));
    }
    Ok(found)
}

fn rate(section: &Section<'_>) -> Result<RateHz, PlanError> {
    let limits = Limits {
        default: None,
        least: None,
        most: MAX_RATE,
        example: RateHz(100.0),
    };
    section.number("rate", &limits)
}

fn think() -> Limits<DurationNs> {
    Limits {
        default: Some(DurationNs(0)),
        least: Some(DurationNs(0)),
        most: MAX_THINK,
        example: DurationNs(2_000_000),
    }
}

fn mmpp(section: &Section<'_>) -> Result<Arrivals, PlanError> {
    let dispersion = section.real("dispersion", None, (1.0, MAX_DISPERSION), 100.0)?;
    let burst_share = section.real("burst_share", Some(0.2), (0.0, 1.0), 0.2)?;
    let burst_factor = section.real("burst_factor", Some(3.0), (1.0, 1e6), 3.0)?;
    if burst_share * burst_factor > 1.0 {
        let wrong = format!(
            "burst_share times burst_factor is {}",
            burst_share * burst_factor
        );
        let wanted = "must be at most 1, or bursts alone would be more than the mean";
        return Err(section.complain("burst_factor", wrong, wanted, "burst_factor = 3"));
    }
    Ok(Arrivals::Mmpp {
        rate: rate(section)?,
        dispersion,
        burst_share,
        burst_factor,
    })
}

fn on_off(section: &Section<'_>) -> Result<Arrivals, PlanError> {
    let time = |default: u64| Limits {
        default: Some(DurationNs(default)),
        least: None,
        most: MAX_THINK,
        example: DurationNs(default),
    };
    Ok(Arrivals::OnOff {
        rate: rate(section)?,
        on: section.number("on", &time(200_000_000))?,
        off: section.number("off", &time(800_000_000))?,
        shape: section.real("shape", Some(1.5), (1.0, 100.0), 1.5)?,
    })
}

impl Section<'_> {
    /// A number between two others, which it may not be; the default when absent.
    pub(crate) fn real(
        &self,
        key: &str,
        default: Option<f64>,
        (above, below): (f64, f64),
        example: f64,
    ) -> Result<f64, PlanError> {
        let hint = format!("{key} = {example}");
        let Some(item) = self.table.get(key) else {
            let wanted = "must be a number";
            return default.ok_or_else(|| self.missing(key, wanted, hint));
        };
        let number = item
            .as_float()
            .or_else(|| item.as_integer().map(|it| it as f64));
        let Some(number) = number else {
            return Err(self.wrong_type(key, item, "must be a number", &hint));
        };
        if number > above && number < below {
            Ok(number)
        } else {
            Err(self.refuse(
                key,
                format!("must be above {above} and below {below}"),
                hint,
            ))
        }
    }
}
