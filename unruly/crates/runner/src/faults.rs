//! Faults that the plan asks for: done at their time, undone at their end or the run's, each an event.

use std::collections::VecDeque;

use anyhow::{Result, bail};
use nix::sys::signal::Signal;
use unruly_plan::{DurationNs, Fault, FaultKind};
use unruly_trace::{MonoNs, monotonic};

use super::progress::Progress;
use super::trial::{Trial, nanoseconds};
use crate::relay::WayCounts;

/// A fault that begins or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Moment {
    /// Monotonic.
    at_ns: MonoNs,
    /// Which of the plan's.
    fault: usize,
    begins: bool,
}

/// The faults of a trial that are still to begin, and those that are still to end.
#[derive(Debug, Default)]
pub(super) struct Faults {
    moments: VecDeque<Moment>,
    active: Vec<Active>,
}

/// A fault that has begun.
#[derive(Debug)]
struct Active {
    fault: usize,
    process: String,
    /// The role that the plan names, if it names one instead of a process.
    role: Option<String>,
    began_ns: MonoNs,
    passed: Option<WayCounts>,
    held: u64,
}

impl Active {
    /// Returns the detail of its event, which names the role of the process first.
    fn told(&self, detail: Option<String>) -> Option<String> {
        let Some(role) = &self.role else {
            return detail;
        };
        let rest = detail.map_or_else(String::new, |it| format!(": {it}"));
        Some(format!("as {role}{rest}"))
    }
}

impl Faults {
    /// All of a plan; `measure_ns` is the first measured instant, `measured` how long it lasts.
    pub(super) fn new(faults: &[Fault], measure_ns: MonoNs, measured: DurationNs) -> Self {
        let mut moments = Vec::new();
        for (number, fault) in faults.iter().enumerate() {
            for (begin, end) in fault.times(measured) {
                let mut add = |at: DurationNs, begins| {
                    moments.push(Moment {
                        at_ns: measure_ns.saturating_add(nanoseconds(at)),
                        fault: number,
                        begins,
                    });
                };
                add(begin, true);
                end.into_iter().for_each(|end| add(end, false));
            }
        }
        // What ends at an instant makes room for what begins there.
        moments.sort_by_key(|it| (it.at_ns, it.begins));
        Self {
            moments: moments.into(),
            active: Vec::new(),
        }
    }

    /// When there is something to do next.
    pub(super) fn next_ns(&self) -> Option<MonoNs> {
        self.moments.front().map(|it| it.at_ns)
    }

    fn due(&mut self, now_ns: MonoNs) -> Option<Moment> {
        let moment = *self.moments.front()?;
        (moment.at_ns <= now_ns).then(|| self.moments.pop_front())?
    }
}

impl Trial<'_> {
    /// Begins and ends the faults whose time has come.
    pub(super) fn do_faults(&mut self, progress: &mut Progress) {
        while let Some(moment) = self.faults.due(monotonic()) {
            let done = if moment.begins {
                self.begin(moment.fault, progress)
            } else {
                self.end_of(moment.fault, progress)
            };
            if let Err(error) = done {
                // The others still happen, and the run says what did not.
                progress.note(&format!("{error:#}"));
                self.missing.push(format!("{error:#}"));
            }
        }
    }

    /// Ends all active faults, including those without a planned end.
    pub(super) fn undo_faults(&mut self, progress: &mut Progress) {
        self.faults.moments.clear();
        while let Some(active) = self.faults.active.pop() {
            self.undo(&active, progress);
        }
        // Whoever is frozen, for whatever reason, must hear the end.
        for child in &mut self.processes.children {
            child.do_signal(Signal::SIGCONT);
        }
    }

    fn begin(&mut self, number: usize, progress: &Progress) -> Result<()> {
        let fault = self.plan.faults[number].clone();
        let names = self.processes.victims();
        let Some(named) = fault.victim(names.iter().map(String::as_str)) else {
            bail!(
                "fault {}: none of {} is there; wanted one of {}; hint: process = {:?}",
                fault.kind.name(),
                fault.processes.join(", "),
                names.join(", "),
                names[0]
            );
        };
        let services = self.processes.services.as_ref();
        let in_role = services.map(|it| it.in_role(named)).transpose()?.flatten();
        let mut active = Active {
            fault: number,
            role: in_role.is_some().then(|| named.to_owned()),
            process: in_role.unwrap_or_else(|| named.to_owned()),
            began_ns: monotonic(),
            passed: None,
            held: 0,
        };
        let process = active.process.as_str();
        match fault.kind {
            FaultKind::Stop => self.processes.signal(process, Signal::SIGSTOP),
            FaultKind::Kill => {
                self.processes.signal(process, Signal::SIGKILL);
                self.killed.insert(process.to_owned());
            }
            // Its neighbours are processes of their own, which know when.
            FaultKind::Busy { .. } => {}
            FaultKind::Quota { cores } => {
                self.limit_cpu(process, cores)?;
            }
            FaultKind::Network(network) => {
                if let Some(relay) = self.processes.relay(process) {
                    active.passed = Some(relay.counts());
                    relay.set(Some(network));
                }
            }
            FaultKind::Disk => self.processes.hold_disk(process, |disk| {
                active.held = disk.held();
                disk.set(true);
            }),
        }
        progress.note(&format!("fault: {} {process}", fault.kind.name()));
        if fault.kind == FaultKind::Kill && fault.duration.is_none() {
            let span = (self.clock.column(active.began_ns), None);
            self.event("fault kill", process, active.told(None).as_deref(), span);
            return Ok(());
        }
        self.faults.active.push(active);
        Ok(())
    }

    fn end_of(&mut self, number: usize, progress: &mut Progress) -> Result<()> {
        let mut active = self.faults.active.iter();
        // The fault may have failed to begin. That was reported at the time.
        if let Some(place) = active.position(|it| it.fault == number) {
            let active = self.faults.active.remove(place);
            let (kind, process) = (self.plan.faults[number].kind, active.process.clone());
            self.undo(&active, progress);
            if kind == FaultKind::Kill {
                self.start_again(&process)?;
            }
        }
        Ok(())
    }

    fn undo(&mut self, active: &Active, progress: &Progress) {
        let kind = self.plan.faults[active.fault].kind;
        let process = active.process.as_str();
        let mut detail = None;
        match kind {
            FaultKind::Stop => self.processes.signal(process, Signal::SIGCONT),
            FaultKind::Kill | FaultKind::Busy { .. } => {}
            FaultKind::Quota { cores } => {
                detail = Some(format!("{cores} cores"));
                if let Err(error) = self.unlimit_cpu(process) {
                    self.missing.push(format!("{error:#}"));
                }
            }
            FaultKind::Network(network) => {
                let passed = self.processes.relay(process).map(|relay| {
                    relay.set(None);
                    relay.counts()
                });
                detail = passed.zip(active.passed).map(|(now, then)| {
                    format!(
                        "{} and up to {} more, {} of {} lost",
                        network.delay,
                        network.jitter,
                        now.lost - then.lost,
                        now.messages - then.messages
                    )
                });
            }
            FaultKind::Disk => self.processes.hold_disk(process, |disk| {
                disk.set(false);
                detail = Some(format!("{} calls waited", disk.held() - active.held));
            }),
        }
        if self
            .processes
            .there(process)
            .is_some_and(|it| it.has_refused())
        {
            // The run has the reason among its findings.
            return;
        }
        let span = (
            self.clock.column(active.began_ns),
            Some(self.clock.column_now()),
        );
        self.event(
            &format!("fault {}", kind.name()),
            process,
            active.told(detail).as_deref(),
            span,
        );
        progress.note(&format!("fault over: {} {process}", kind.name()));
    }

    fn start_again(&mut self, process: &str) -> Result<()> {
        // Its end may be seen only now.
        self.bury_services();
        self.killed.remove(process);
        let Some(services) = &mut self.processes.services else {
            return Ok(());
        };
        if services.start_again(process)? {
            let span = (self.clock.column_now(), None);
            self.event("process started", process, Some("again"), span);
            self.processes.say_peers_again();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_of_a_fault_begins_and_ends_and_all_are_in_order() {
        let fault = |kind, at, duration: Option<u64>, every: Option<u64>| Fault {
            kind,
            processes: vec!["agent-1".to_owned()],
            at: DurationNs(at),
            duration: duration.map(DurationNs),
            every: every.map(DurationNs),
        };
        let faults = [
            fault(FaultKind::Stop, 10, Some(50), Some(60)),
            fault(FaultKind::Kill, 30, None, None),
        ];
        let mut faults = Faults::new(&faults, MonoNs(1000), DurationNs(130));
        assert_eq!(faults.next_ns(), Some(MonoNs(1010)));
        let mut order = Vec::new();
        while let Some(moment) = faults.due(MonoNs(i64::MAX)) {
            order.push((moment.at_ns.0, moment.fault, moment.begins));
        }
        assert_eq!(
            order,
            [
                (1010, 0, true),
                (1030, 1, true),
                (1060, 0, false),
                (1070, 0, true),
                (1120, 0, false)
            ]
        );
    }
}
