//! The time before the start of a trial: the clients connect and write the keys, and the runner shows
//! the progress.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use unruly_agent::{JobKind, Report};
use unruly_plan::Load;

use super::child::Child;
use super::progress::Progress;
use super::trial::{LOOK_PERIOD, Trial};

/// Interval between two progress messages.
const SAY_PERIOD: Duration = Duration::from_secs(2);
/// How long the load generators have to connect, where they write no keys.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(150);

impl Trial<'_> {
    /// Waits until a stream's writer has reached its reader, or has said why it cannot.
    fn wait_until_connected(&mut self, progress: &Progress) -> Result<Vec<u64>> {
        loop {
            // A host that hears nothing takes the runner for gone.
            self.watch_hosts(progress);
            if self.run.stop.load(Ordering::Relaxed) {
                bail!("stopped before the start; wanted a run; hint: start it again");
            }
            match self.processes.heard.recv_timeout(LOOK_PERIOD) {
                Ok((_, Some(Report::Loaded { .. }))) => {
                    return Ok(vec![0; self.processes.children.len()]);
                }
                Ok((number, Some(Report::Note { text }))) => {
                    let name = &self.processes.children[number].job.name;
                    self.missing.push(format!("{name}: {text}"));
                }
                Ok((number, Some(Report::Finding { text, fatal: true }))) => {
                    bail!("{}: {text}", self.processes.children[number].job.name)
                }
                Ok((number, None)) => bail!(
                    "{}: ended before the stream began; wanted a process; hint: see {}",
                    self.processes.children[number].job.name,
                    self.processes.children[number].log.display()
                ),
                _ => {}
            }
        }
    }

    /// Waits until every client has opened its connections and has written its keys, where the plan has
    /// them written. Returns how many copies each has scheduled for it.
    pub(super) fn wait_until_loaded(&mut self, progress: &mut Progress) -> Result<Vec<u64>> {
        let store = match &self.plan.load {
            Load::Drive(drive) => drive.store.as_ref(),
            Load::Mesh(_) => None,
            Load::Stream(_) => return self.wait_until_connected(progress),
        };
        let keys = store.filter(|it| it.preload).map(|it| it.keys);
        let drives = |child: &&Child| child.job.kind == JobKind::Drive;
        let mut left = self.processes.children.iter().filter(drives).count();
        let (begun, mut written) = (Instant::now(), vec![0; self.processes.children.len()]);
        let (mut said, mut failed) = (begun, 0);
        while left > 0 {
            if self.run.stop.load(Ordering::Relaxed) {
                bail!("stopped before the start; wanted a run; hint: start it again");
            }
            self.watch_hosts(progress);
            match self.processes.heard.recv_timeout(LOOK_PERIOD) {
                Ok((number, Some(Report::Progress(line)))) => {
                    written[number] = line.scheduled;
                }
                Ok((
                    number,
                    Some(Report::Loaded {
                        scheduled,
                        failed: own,
                    }),
                )) => {
                    left -= 1;
                    failed += own;
                    written[number] = scheduled;
                }
                Ok((number, Some(Report::Finding { text, fatal: true }))) => {
                    bail!("{}: {text}", self.processes.children[number].job.name)
                }
                Ok((number, None)) => bail!(
                    "{}: ended before the run began; wanted a process; hint: see {}",
                    self.processes.children[number].job.name,
                    self.processes.children[number].log.display()
                ),
                Ok((number, report)) => {
                    self.hear(number, report, progress);
                }
                Err(_) => {}
            }
            if keys.is_none() && begun.elapsed() > CONNECT_TIMEOUT {
                bail!(
                    "{left} load generators did not connect within {} s; wanted all of them; hint: is this host overloaded?",
                    CONNECT_TIMEOUT.as_secs()
                );
            }
            if said.elapsed() > SAY_PERIOD {
                said = Instant::now();
                let so_far: u64 = written.iter().sum();
                progress.note(&match keys {
                    Some(keys) => format!("preload: {so_far} of {keys} keys are written"),
                    None => format!("{left} load generators are still connecting"),
                });
            }
        }
        let Some(keys) = keys else {
            return Ok(written);
        };
        let seconds = begun.elapsed().as_secs_f64();
        progress.note(&format!("preload: {keys} keys written in {seconds:.1} s"));
        if failed > 0 {
            self.missing.push(format!(
                "preload: {failed} of {keys} keys could not be written"
            ));
        }
        Ok(written)
    }
}
