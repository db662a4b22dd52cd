//! Resumes a run that was stopped or cut off: checks that it is the same run, removes the trials that
//! did not reach their end, and says which are there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use unruly_plan::Cell;
use unruly_trace::{
    Counts, Manifest, Part, RunLock, RunStatus, TraceError, TrialKey, TrialRecord, damaged,
    recover_locked, remove_others,
};

use crate::TIMES_FILE;
use crate::part::{changes, digest};

/// A run directory that is to be gone on with.
#[derive(Debug)]
pub(crate) struct Resumed {
    directory: PathBuf,
    lock: RunLock,
    manifest: Manifest,
}

/// A run directory whose trials are all whole, for a runner that holds its lock.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) directory: PathBuf,
    pub(crate) lock: RunLock,
    pub(crate) manifest: Manifest,
    /// The trials that are there.
    pub(crate) done: BTreeSet<TrialKey>,
}

impl Resumed {
    /// Opens a run. `text` is the plan that it shall have, written out, and `times` those of a
    /// replay.
    ///
    /// # Errors
    ///
    /// When it is no run of this plan, cannot be resumed, or is still going on.
    pub(crate) fn open(directory: &Path, text: &str, times: Option<&str>) -> Result<Self> {
        let path = directory.display();
        Manifest::read(directory)?;
        let lock = RunLock::take(directory).map_err(|error| match error {
            TraceError::Running { .. } => anyhow::anyhow!(
                "{path}: the run is still going on; hint: wait for its end, or stop it with Ctrl-C"
            ),
            error => error.into(),
        })?;
        // Only now: its runner may have written another one while we looked.
        let manifest = Manifest::read(directory)?;
        ensure!(
            manifest.status != RunStatus::Imported,
            "{path}: it was imported, so no plan can go on with it; hint: name a run of unruly run"
        );
        ensure!(
            manifest.status == RunStatus::Complete || !manifest.parts.is_empty(),
            "{path}: unruly {} measured it, which did not note its trials; hint: run the plan again with -o",
            manifest.tool.version
        );
        check_plan(directory, &manifest, text)?;
        if let Some(times) = times {
            let kept = fs::read_to_string(directory.join(TIMES_FILE)).unwrap_or_default();
            ensure!(
                kept == times,
                "{path}: its {TIMES_FILE} has other times than the replay; hint: {}",
                own_plan(directory)
            );
        }
        Ok(Self {
            directory: directory.to_owned(),
            lock,
            manifest,
        })
    }

    /// Returns the cells that the run has measured or was going to, and a sentence about each that was
    /// left out. The host may lack other systems today, and the rows have the places of these cells.
    pub(crate) fn cells(&self, all: Vec<Cell>) -> (Vec<Cell>, Vec<String>) {
        let names: BTreeSet<&str> = self
            .manifest
            .cells
            .iter()
            .map(|it| it.name.as_str())
            .collect();
        let kept = all
            .into_iter()
            .filter(|it| names.contains(it.name.as_str()));
        (kept.collect(), self.manifest.left_out.clone())
    }

    /// Returns true if there is nothing left to measure.
    pub(crate) fn is_complete(&self) -> bool {
        self.manifest.status == RunStatus::Complete
    }

    /// Makes the directory whole for another part: what `now` changes is refused unless `yes`, and
    /// the trials that did not reach their end are removed.
    pub(crate) fn begin(self, mut now: Part, yes: bool) -> Result<Ground> {
        let Self {
            directory,
            lock,
            mut manifest,
        } = self;
        if let Some(before) = manifest.parts.last() {
            now.changed = accepted(&directory, before, &now, yes)?;
        }
        check_clock(&directory, &manifest, &now)?;
        // Before the recovery, which would mix what they left with the others.
        let mut done = completed(&manifest);
        let ends = manifest.trials.iter().filter_map(|it| it.ended_ns);
        let last = ends.max();
        if let Some(running) = manifest.parts.last_mut().filter(|it| it.ended_ns.is_none()) {
            running.status = RunStatus::CutOff;
            running.ended_ns = last.filter(|it| *it > running.started_ns);
        }
        now.discarded = discard(&mut manifest, &done);
        start(&mut manifest, now);
        manifest.write(&directory)?;
        remove_others(&directory, &done)?;
        recover_locked(&directory, &lock)?;
        let mut manifest = reread(&directory, manifest)?;
        let broken = damaged(&manifest, &directory);
        done.retain(|trial| !broken.contains_key(trial));
        let discarded = discard(&mut manifest, &done);
        if let Some(now) = manifest.parts.last_mut().filter(|_| !discarded.is_empty()) {
            now.discarded.extend(broken.into_values());
        }
        manifest.write(&directory)?;
        remove_others(&directory, &done)?;
        Ok(Ground {
            directory,
            lock,
            manifest,
            done,
        })
    }
}

/// The recovery knows the counts of finished trials; what it says of this part is not so.
fn reread(directory: &Path, before: Manifest) -> Result<Manifest> {
    let mut manifest = Manifest::read(directory)?;
    manifest.status = RunStatus::Running;
    manifest.ended_ns = None;
    manifest.parts = before.parts;
    settle_sentences(&mut manifest);
    Ok(manifest)
}

fn start(manifest: &mut Manifest, now: Part) {
    manifest.status = RunStatus::Running;
    manifest.ended_ns = None;
    manifest.parts.push(now);
}

/// The run lacks what its trials lack.
fn settle_sentences(manifest: &mut Manifest) {
    let trials = manifest.trials.iter();
    manifest.missing = trials.flat_map(|it| it.missing.clone()).collect();
    manifest.broken.clear();
}

/// Returns the trials that need not be measured again.
fn completed(manifest: &Manifest) -> BTreeSet<TrialKey> {
    let trials = manifest.trials.iter().filter(|it| it.is_complete());
    trials.filter_map(|it| key_of(manifest, it)).collect()
}

fn key_of(manifest: &Manifest, trial: &TrialRecord) -> Option<TrialKey> {
    let mut cells = manifest.cells.iter();
    let cell = cells.position(|it| it.name == trial.cell)?;
    Some((cell, trial.repeat))
}

/// Takes the trials that are not in `kept` out of the manifest. Returns a sentence about each.
fn discard(manifest: &mut Manifest, kept: &BTreeSet<TrialKey>) -> Vec<String> {
    let names: BTreeSet<(String, u16)> = kept
        .iter()
        .map(|(cell, repeat)| (manifest.cells[*cell].name.clone(), *repeat))
        .collect();
    let is_kept = |cell: &str, repeat| names.contains(&(cell.to_owned(), repeat));
    let (kept, gone): (Vec<_>, Vec<_>) = std::mem::take(&mut manifest.trials)
        .into_iter()
        .partition(|it| is_kept(&it.cell, it.repeat));
    manifest.trials = kept;
    manifest.processes.retain(|it| is_kept(&it.cell, it.repeat));
    manifest.counts = Counts::default();
    for counts in manifest
        .processes
        .iter()
        .filter_map(|it| it.counts.as_ref())
    {
        manifest.counts.add(counts);
    }
    settle_sentences(manifest);
    gone.into_iter().map(|it| told(&it)).collect()
}

fn told(trial: &TrialRecord) -> String {
    let how = match trial.status {
        RunStatus::Stopped => "was stopped",
        RunStatus::Incomplete => "was incomplete",
        RunStatus::Complete => "was damaged",
        _ => "was cut off",
    };
    let why = trial.broken.iter().chain(&trial.missing);
    let why: Vec<&str> = why.map(String::as_str).collect();
    let colon = if why.is_empty() { "" } else { ": " };
    let (cell, repeat) = (&trial.cell, trial.repeat + 1);
    format!("{cell}, repeat {repeat}, {how}{colon}{}", why.join("; "))
}

/// The plan must be the one that the run has, written out with all defaults.
fn check_plan(directory: &Path, manifest: &Manifest, text: &str) -> Result<()> {
    let path = directory.display();
    let file = directory.join("plan.toml");
    let kept = fs::read_to_string(&file)
        .with_context(|| format!("{}: cannot be read; hint: restore it", file.display()))?;
    ensure!(
        digest(&kept) == manifest.plan_sha256,
        "{}: it is not the plan that was run; hint: restore it, or run the plan again with -o",
        file.display()
    );
    if let Some((there, here)) = difference(&kept, text) {
        bail!(
            "{path}: it ran another plan: {there} there and {here} here; hint: {}",
            own_plan(directory)
        );
    }
    Ok(())
}

/// Returns the command that resumes a run with its own plan.
pub(crate) fn own_plan(directory: &Path) -> String {
    let path = directory.display();
    format!("unruly run {path}/plan.toml --resume {path}")
}

/// Returns the first line in which two plans differ, of both, with its table.
fn difference(there: &str, here: &str) -> Option<(String, String)> {
    let lines = |text: &str| {
        let mut table = String::new();
        let mut told = Vec::new();
        for line in text.lines().map(str::trim).filter(|it| !it.is_empty()) {
            if line.starts_with('[') && line.ends_with(']') {
                line.clone_into(&mut table);
                told.push(table.clone());
            } else {
                told.push(format!("{table} {line}").trim().to_owned());
            }
        }
        told
    };
    let (mut there, mut here) = (lines(there).into_iter(), lines(here).into_iter());
    loop {
        match (there.next(), here.next()) {
            (None, None) => return None,
            (old, new) if old == new => {}
            (old, new) => {
                let or_end = |line: Option<String>| line.unwrap_or_else(|| "no more".to_owned());
                return Some((or_end(old), or_end(new)));
            }
        }
    }
}

/// Returns what a person accepts to be different in this part.
fn accepted(directory: &Path, before: &Part, now: &Part, yes: bool) -> Result<Vec<String>> {
    let path = directory.display();
    for (name, digest) in &before.services {
        ensure!(
            now.services.get(name) == Some(digest),
            "{path}: the file of service {name} has changed since; hint: restore it, or run the plan again with -o"
        );
    }
    let changed = changes(before, now);
    ensure!(
        changed.is_empty() || yes,
        "{path}: its parts would be measured differently: {}; hint: --yes resumes and keeps that in the manifest",
        changed.join("; ")
    );
    Ok(changed)
}

/// Columns are wall-clock times, so a part must be later than the ones before it.
fn check_clock(directory: &Path, manifest: &Manifest, now: &Part) -> Result<()> {
    let ends = manifest.trials.iter().filter_map(|it| it.ended_ns);
    let starts = manifest.parts.iter().map(|it| it.started_ns);
    let last = ends.chain(starts).max().unwrap_or_default();
    let behind = last.saturating_since(now.started_ns).as_secs_f64();
    ensure!(
        last <= now.started_ns,
        "{}: this host's clock is {behind:.0} s behind the last trial; hint: set the clock",
        directory.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_differs_is_named_with_its_table() {
        let plan = "name = \"a\"\n\n[run]\nrepeat = 3\n\n[drive]\nrate = \"1/s\"\n";
        assert_eq!(difference(plan, plan), None);
        let found = difference(plan, &plan.replace("1/s", "2/s")).unwrap();
        assert_eq!(found.0, "[drive] rate = \"1/s\"");
        assert_eq!(found.1, "[drive] rate = \"2/s\"");
        let shorter = plan.replace("rate = \"1/s\"\n", "");
        assert_eq!(difference(&shorter, plan).unwrap().0, "no more");
    }

    #[test]
    fn a_discarded_trial_is_named_with_the_reason() {
        let trial = TrialRecord {
            cell: "clients=2".to_owned(),
            repeat: 0,
            part: 0,
            started_ns: unruly_trace::ColumnNs(0),
            ended_ns: None,
            status: RunStatus::Incomplete,
            missing: vec!["a row".to_owned()],
            broken: vec!["drive-0 died".to_owned()],
        };
        let wanted = "clients=2, repeat 1, was incomplete: drive-0 died; a row";
        assert_eq!(told(&trial), wanted);
        let running = TrialRecord {
            status: RunStatus::Running,
            missing: Vec::new(),
            broken: Vec::new(),
            ..trial
        };
        assert_eq!(told(&running), "clients=2, repeat 1, was cut off");
    }
}
