//! Reports a process that died during a run, and the rows that were lost with it.

use std::path::Path;

use anyhow::Result;
use unruly_agent::{Job, JobKind, due_until};
use unruly_trace::{Counts, DurationNs, Loss, Manifest, grouped};

/// A process that ended before its time.
#[derive(Debug)]
pub(super) struct Death {
    pub(super) job: Job,
    /// How it ended, in words.
    pub(super) ended: String,
    /// When it was seen to be dead, since the first instant of the schedule.
    pub(super) elapsed_ns: DurationNs,
    /// What it had asked before the schedule began.
    pub(super) loaded: u64,
    /// A fault of the plan killed it, so that it spoils nothing.
    pub(super) planned: bool,
}

impl Death {
    /// What is known while its rows are not counted yet.
    pub(super) fn told(&self) -> String {
        let after_s = self.elapsed_ns.as_secs_f64();
        format!(
            "{} {} before its time, {after_s:.2} s after the start",
            self.job.name, self.ended
        )
    }

    /// Returns the same sentence with the loss, once the rows are counted.
    fn with_loss(&self, counts: Option<&Counts>, loss: Option<&Loss>) -> String {
        let told = self.told();
        if !self.job.kind.asks() {
            return told;
        }
        let rows = counts.map_or(0, |it| match self.job.kind {
            // Copies of one request may lie in two segments, and nothing is tried again.
            JobKind::Mesh => it.copies.scheduled,
            _ => it.requests.scheduled.saturating_sub(self.loaded),
        });
        match (due_until(&self.job, self.elapsed_ns), loss) {
            (Some(due), _) => format!(
                "{told}; of {} requests that were due until then, {} have no row",
                grouped(due),
                grouped(due.saturating_sub(rows))
            ),
            (None, Some(loss)) => format!("{told}; {loss}"),
            (None, None) => format!("{told}; requests that were open then have no row"),
        }
    }

    /// Returns true if the run is incomplete without this process. A load's servers are the
    /// exception, because they are the subject of the measurement.
    pub(super) fn breaks(&self) -> bool {
        !self.planned && self.job.kind != JobKind::Echo
    }
}

/// Writes into the manifest of a run, whose spools have become segments, how much each death has cost.
/// `losses` are those that recovery found.
///
/// # Errors
///
/// When the manifest cannot be read or written.
pub(super) fn tell_losses(directory: &Path, deaths: &[Death], losses: &[Loss]) -> Result<()> {
    if deaths.is_empty() {
        return Ok(());
    }
    let mut manifest = Manifest::read(directory)?;
    for death in deaths {
        let job = &death.job;
        let cell = &manifest.cells[usize::from(job.cell)].name;
        let counts = manifest
            .processes
            .iter()
            .find(|it| it.name == job.name && it.repeat == job.repeat && it.cell == *cell);
        let stem = job.stem();
        let loss = losses.iter().find(|it| it.stem == stem);
        let said = death.with_loss(counts.and_then(|it| it.counts.as_ref()), loss);
        let before = death.told();
        let trials = manifest.trials.iter_mut();
        let of_trials = trials.flat_map(|it| [&mut it.missing, &mut it.broken]);
        for sentences in of_trials.chain([&mut manifest.missing, &mut manifest.broken]) {
            for sentence in sentences.iter_mut().filter(|it| **it == before) {
                sentence.clone_from(&said);
            }
        }
    }
    manifest.write(directory)?;
    Ok(())
}
