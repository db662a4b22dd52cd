//! The trials of a run, in the order of its seed. The manifest names every finished trial,
//! so that an interrupted run can be resumed.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::Result;
use unruly_plan::{Cell, Plan};
use unruly_program::host_of;
use unruly_trace::{
    ClockPair, Host, Manifest, RunStatus, TrialKey, TrialRecord, recover_locked, sync_folders,
};

use crate::death::{self, Death};
use crate::live::Live;
use crate::progress::Progress;
use crate::resume::{Ground, own_plan};
use crate::services::{NotStarted, system_of};
use crate::trial::{Trial, TrialEnd};
use crate::{Run, RunOptions};

/// A run that is being carried out.
pub(crate) struct Sweep<'a> {
    plan: &'a Plan,
    run: &'a Run,
    options: &'a RunOptions,
    started: Instant,
    progress: Progress,
    deaths: Vec<Death>,
    /// A person, a fatal finding or the time limit ended it.
    stopped: bool,
    /// Middleware systems that could not be started: their other cells are left out.
    lost: BTreeSet<String>,
    /// Trials that are not measured because of that.
    left_out: usize,
}

impl<'a> Sweep<'a> {
    pub(crate) fn new(
        plan: &'a Plan,
        run: &'a Run,
        options: &'a RunOptions,
        live: Option<Live>,
    ) -> Self {
        Self {
            plan,
            run,
            options,
            started: Instant::now(),
            progress: Progress::new(plan, plan.order(run.cells.len()).len(), options.quiet, live),
            deaths: Vec::new(),
            stopped: false,
            lost: BTreeSet::new(),
            left_out: 0,
        }
    }

    /// Measures the trials that are not done, and makes the run whole.
    pub(crate) fn carry_out(mut self, ground: Ground) -> Result<()> {
        let Ground {
            directory,
            lock,
            mut manifest,
            done,
        } = ground;
        let order = self.plan.order(self.run.cells.len());
        let left = order.iter().enumerate();
        let left = left.filter(|(_, trial)| !done.contains(trial));
        let left: Vec<(usize, TrialKey)> = left.map(|(number, trial)| (number, *trial)).collect();
        let measured = self.measure(&left, &mut manifest);
        self.progress.finish(self.stopped);
        let wanted = order.len() - self.left_out;
        self.note_end(&mut manifest, wanted);
        let settled = manifest.settle();
        manifest.write(&directory)?;
        // Processes that died left spools; they are taken up now, so that the run is whole.
        let recovery = recover_locked(&directory, &lock)?;
        drop(lock);
        death::tell_losses(&directory, &self.deaths, &recovery.losses)?;
        self.hint(&manifest, wanted);
        Manifest::release(&directory);
        // A sweep that was stopped between two trials is as good as one stopped in a trial.
        if !self.stopped || complete(&manifest) == 0 {
            measured?;
        }
        settled?;
        Ok(())
    }

    /// Measures trials, each with its number in the run.
    fn measure(&mut self, left: &[(usize, TrialKey)], manifest: &mut Manifest) -> Result<()> {
        for (place, (number, trial)) in left.iter().enumerate() {
            let passed = |limit| self.started.elapsed() >= limit;
            if self.stopped || place > 0 && self.options.limit.is_some_and(passed) {
                self.stopped = true;
                break;
            }
            let system = system_of(&self.run.cells[trial.0]);
            if system.is_some_and(|it| self.lost.contains(it)) {
                self.left_out += 1;
                continue;
            }
            self.begin(*trial, manifest);
            let measured = self.measure_one(*number, *trial, manifest);
            self.stopped |= self.run.stop.load(Ordering::Relaxed);
            if let (Err(error), Some(system)) = (&measured, system)
                && error.is::<NotStarted>()
                && !self.stopped
                && self.lose(system, &format!("{error:#}"), manifest)
            {
                continue;
            }
            if let Err(error) = &measured {
                self.give_up(manifest, &format!("{error:#}"));
            }
            measured?;
        }
        Ok(())
    }

    fn begin(&self, (cell, repeat): TrialKey, manifest: &mut Manifest) {
        manifest.trials.push(TrialRecord {
            cell: self.run.cells[cell].name.clone(),
            repeat,
            part: manifest.parts.len().saturating_sub(1),
            started_ns: ClockPair::now().column_ns(),
            ended_ns: None,
            status: RunStatus::Running,
            missing: Vec::new(),
            broken: Vec::new(),
        });
    }

    fn measure_one(
        &mut self,
        number: usize,
        (cell, repeat): TrialKey,
        manifest: &mut Manifest,
    ) -> Result<()> {
        let trial = Trial::new(self.run, cell, repeat, &self.progress)?;
        // If the runner dies, this is how recovery knows who took part.
        let known = manifest.processes.len();
        manifest.processes.extend(trial.process_rows());
        manifest.write(&self.run.directory)?;
        let end = trial.run(number, &mut self.progress)?;
        manifest.processes.truncate(known);
        self.note(end, manifest);
        // The manifest names a trial only when its files outlast a crash of the machine.
        sync_folders(&self.run.directory)?;
        manifest.write(&self.run.directory)?;
        Ok(())
    }

    /// Notes what became of a trial: one in which a process that measures died is not whole.
    fn note(&mut self, end: TrialEnd, manifest: &mut Manifest) {
        self.stopped |= end.stopped;
        manifest.processes.extend(end.processes);
        for host in end.hosts {
            note_host(host, &mut manifest.hosts);
        }
        if let Some(record) = manifest.trials.last_mut() {
            let (breaks, rest): (Vec<_>, Vec<_>) = end.deaths.iter().partition(|it| it.breaks());
            record.missing = end.missing;
            record.missing.extend(rest.into_iter().map(Death::told));
            record.broken = end.broken;
            record.broken.extend(breaks.into_iter().map(Death::told));
            record.started_ns = end.started_ns;
            record.ended_ns = Some(ClockPair::now().column_ns());
            record.status = match (record.broken.is_empty(), end.stopped) {
                (false, _) => RunStatus::Incomplete,
                (true, true) => RunStatus::Stopped,
                (true, false) => RunStatus::Complete,
            };
            manifest.missing.extend(record.missing.iter().cloned());
            manifest.broken.extend(record.broken.iter().cloned());
        }
        self.deaths.extend(end.deaths);
        let starts = manifest.trials.iter().map(|it| it.started_ns);
        manifest.started_ns = starts.min().unwrap_or(manifest.started_ns);
    }

    /// Leaves out a trial whose middleware system could not be started, and all trials of a system of
    /// which none was measured. Returns false where no other system is left: the run ends then.
    fn lose(&mut self, system: &str, why: &str, manifest: &mut Manifest) -> bool {
        let of_system = |name: &str| {
            let cell = self.run.cells.iter().find(|it| it.name == name);
            cell.is_some_and(|it| system_of(it) == Some(system))
        };
        let mut trials = manifest.trials.iter();
        let measured = trials.any(|it| it.is_complete() && of_system(&it.cell));
        if !measured {
            self.lost.insert(system.to_owned());
        }
        let is_left = |cell: &Cell| system_of(cell).is_none_or(|it| !self.lost.contains(it));
        if !self.run.cells.iter().any(is_left) {
            return false;
        }
        let trial = manifest.trials.pop();
        let told = match trial.filter(|_| measured) {
            Some(trial) => format!("one trial of cell {:?}: {why}", trial.cell),
            None => why.to_owned(),
        };
        self.progress.note(&format!("left out: {told}"));
        if !manifest.left_out.contains(&told) {
            manifest.left_out.push(told);
        }
        self.left_out += 1;
        true
    }

    /// Notes why the last trial could not go on.
    fn give_up(&self, manifest: &mut Manifest, why: &str) {
        let Some(record) = manifest.trials.last_mut() else {
            return;
        };
        if self.stopped {
            record.status = RunStatus::Stopped;
            record.missing.push(why.to_owned());
            manifest.missing.push(why.to_owned());
        } else {
            record.status = RunStatus::Incomplete;
            record.broken.push(why.to_owned());
            manifest.broken.push(why.to_owned());
        }
    }

    fn note_end(&self, manifest: &mut Manifest, planned: usize) {
        let complete = complete(manifest);
        manifest.status = if !manifest.broken.is_empty() {
            RunStatus::Incomplete
        } else if complete < planned {
            RunStatus::Stopped
        } else {
            RunStatus::Complete
        };
        if complete < planned && planned > 1 {
            let told = format!("{complete} of {planned} trials are measured");
            manifest.missing.push(told);
        }
        manifest.ended_ns = Some(ClockPair::now().column_ns());
        if let Some(part) = manifest.parts.last_mut() {
            part.status = manifest.status;
            part.ended_ns = manifest.ended_ns;
        }
    }

    /// Says how the trials that are left can be measured.
    fn hint(&self, manifest: &Manifest, planned: usize) {
        let complete = complete(manifest);
        if complete < planned && planned > 1 && !self.options.quiet {
            let resume = own_plan(&self.run.directory);
            eprintln!("{complete} of {planned} trials are measured; hint: to go on, {resume}");
        }
    }
}

/// Adds a host, or what one more trial knows of its clock.
fn note_host(host: Host, hosts: &mut Vec<Host>) {
    match hosts.iter_mut().find(|it| it.name == host.name) {
        Some(known) => {
            let both = known
                .clock
                .zip(host.clock)
                .map(|(one, other)| one.and(other));
            known.clock = both.or(known.clock).or(host.clock);
        }
        None if host.clock.is_some() => hosts.push(host),
        // It is a part of this machine.
        None => hosts.push(host_of(&host.name, hosts[0].noise_floor_ns)),
    }
}

fn complete(manifest: &Manifest) -> usize {
    manifest.trials.iter().filter(|it| it.is_complete()).count()
}
