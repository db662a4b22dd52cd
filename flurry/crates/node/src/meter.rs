//! What came of an owner's operations, counted.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use flurry_core::config::Level;
use flurry_core::id::MonoNs;
use flurry_core::portal::Outcome;

use crate::metrics::{Histogram, Page};

/// Counts of one owner.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    operations: BTreeMap<(&'static str, &'static str), u64>,
    latencies: BTreeMap<&'static str, Histogram>,
    exposures: Histogram,
    /// When writes were answered that are not on every replica yet.
    exposed: HashMap<u64, MonoNs>,
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::First => "first",
        Level::Quorum => "quorum",
        Level::All => "all",
        Level::Hedge(_) => "hedge",
        Level::Auto => "auto",
        Level::Disk => "disk",
    }
}

fn outcome_name(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done {
            tail_unknown: false,
            ..
        } => "done",
        Outcome::Done { .. } | Outcome::TailUnknown => "tail_unknown",
        Outcome::Unknown => "unknown",
        Outcome::DataLoss { .. } => "data_loss",
        Outcome::Fenced(_) => "fenced",
        Outcome::Busy => "busy",
        Outcome::TooFewCopies => "too_few_copies",
        Outcome::Evicted => "evicted",
        Outcome::Malformed => "malformed",
    }
}

impl Meter {
    /// An operation was answered; `write` is its number, if it is one.
    pub(crate) fn answered(
        &mut self,
        now: MonoNs,
        level: Level,
        outcome: &Outcome,
        took: Duration,
        write: Option<u64>,
    ) {
        let level = level_name(level);
        *self
            .operations
            .entry((level, outcome_name(outcome)))
            .or_default() += 1;
        if let Outcome::Done { .. } = outcome {
            self.latencies.entry(level).or_default().note(took);
            if let Some(number) = write {
                self.exposed.insert(number, now);
            }
        }
    }

    /// An operation is on every replica, or will never be.
    pub(crate) fn stable(&mut self, now: MonoNs, number: u64) {
        if let Some(answered) = self.exposed.remove(&number) {
            let exposed = Duration::from_nanos(now.since(answered).0);
            self.exposures.note(exposed);
        }
    }

    pub(crate) fn report(&self, page: &mut Page) {
        for ((level, outcome), count) in &self.operations {
            page.counter(
                (
                    "flurry_operations_total",
                    "Operations, by level and outcome.",
                ),
                &[("level", level), ("outcome", outcome)],
                *count,
            );
        }
        for (level, latencies) in &self.latencies {
            page.histogram(
                (
                    "flurry_operation_seconds",
                    "From when an operation was wanted until its answer.",
                ),
                &[("level", level)],
                latencies,
            );
        }
        page.histogram(
            (
                "flurry_exposure_seconds",
                "From the answer to a write until it was on every replica.",
            ),
            &[],
            &self.exposures,
        );
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn a_write_is_exposed_from_its_answer_until_every_replica_has_it() {
        let mut meter = Meter::default();
        let done = Outcome::Done {
            answer: Bytes::new(),
            tail_unknown: false,
        };
        let took = Duration::from_micros(15);
        meter.answered(MonoNs(1_000), Level::First, &done, took, Some(1));
        meter.answered(
            MonoNs(1_000),
            Level::Quorum,
            &Outcome::Unknown,
            took,
            Some(2),
        );
        meter.stable(MonoNs(31_000), 1);
        meter.stable(MonoNs(31_000), 2);
        let mut page = Page::of("p");
        meter.report(&mut page);
        assert_eq!(meter.operations[&("first", "done")], 1);
        assert_eq!(meter.operations[&("quorum", "unknown")], 1);
        assert_eq!(meter.exposures.counts.iter().sum::<u64>(), 1);
        assert_eq!(meter.exposures.counts[2], 1, "30 us");
        assert!(meter.exposed.is_empty());
    }
}
