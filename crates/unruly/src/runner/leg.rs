//! One leg of a run: a cell, once.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use nix::sys::signal::Signal;
use unruly_agent::{Job, JobKind, PROTOCOL_VERSION, PeerLine, Report, Stress};
use unruly_plan::{DurationNs, FaultKind, Load, Plan};
use unruly_trace::{Clock, ClockPair, MonoNs, Process, SegmentMeta, Table, TableSpool, monotonic};

use super::Run;
use super::child::{Child, ChildGround, Heard};
use super::faults::{Deed, deeds};
use super::namespaces::Hosts;
use super::progress::Progress;
use crate::services::{Ground, Services};

/// A process that is not ready by then never will be.
const READY_PATIENCE: Duration = Duration::from_secs(20);
/// Between `start` and the first instant of the schedule: all have read the line by then.
const LEAD_NS: i64 = 300_000_000;
/// After `stop`, for writing the last segments.
const END_PATIENCE: Duration = Duration::from_secs(60);
/// How often the runner looks around when nothing is said.
const LOOK_PERIOD: Duration = Duration::from_millis(100);

/// How a leg ended.
#[derive(Debug)]
pub(super) struct LegEnd {
    pub(super) processes: Vec<Process>,
    pub(super) hosts: Vec<String>,
    pub(super) missing: Vec<String>,
    pub(super) stopped: bool,
    pub(super) started_ns: i64,
}

/// A leg in progress.
pub(super) struct Leg<'a> {
    run: &'a Run,
    cell: usize,
    repeat: u16,
    /// The cell's plan, with the places of what was started for it.
    plan: Plan,
    hosts: Hosts,
    services: Option<Services>,
    children: Vec<Child>,
    heard: Receiver<Heard>,
    events: TableSpool,
    clock: Clock,
    missing: Vec<String>,
    stopped: bool,
}

impl<'a> Leg<'a> {
    /// Starts the processes of a leg.
    pub(super) fn new(run: &'a Run, cell: usize, repeat: u16, progress: &Progress) -> Result<Self> {
        let mut plan = run.cells[cell].plan.clone();
        let services = start_services(run, &mut plan, cell, repeat, progress)?;
        let agents = match &plan.load {
            Load::Mesh(mesh) => usize::from(mesh.agents),
            Load::Drive(_) => 1,
        };
        let hosts = Hosts::new(plan.run.hosts, agents)?;
        let (sender, heard) = channel();
        let mut leg = Self {
            run,
            cell,
            repeat,
            events: events_of(run, &plan, cell, repeat),
            plan,
            hosts,
            services,
            children: Vec::new(),
            heard,
            clock: Clock::new(ClockPair::now()),
            missing: Vec::new(),
            stopped: false,
        };
        for (host, job) in leg.jobs(agents) {
            let prefix = leg.hosts.prefix(host);
            let number = leg.children.len();
            let ground = leg.ground();
            let child = Child::start(number, job, &ground, &prefix, sender.clone())?;
            leg.children.push(child);
        }
        Ok(leg)
    }

    /// Where its processes write, and what lets them into the store.
    fn ground(&self) -> ChildGround {
        let own = self.services.as_ref().and_then(|it| it.password.clone());
        ChildGround {
            directory: self.run.directory.clone(),
            password: own.or_else(|| self.run.password.clone()),
        }
    }

    /// The jobs of a leg, each with the number of its host.
    fn jobs(&self, agents: usize) -> Vec<(usize, Job)> {
        let mut jobs = Vec::new();
        match &self.plan.load {
            Load::Mesh(mesh) => {
                for agent in 0..agents {
                    let mut job = self.job(JobKind::Mesh, agent, Some(agent), agent);
                    let offset = u16::try_from(agent).unwrap_or(u16::MAX);
                    job.port = mesh.port.map_or(0, |port| port.saturating_add(offset));
                    jobs.push((agent, job));
                }
            }
            Load::Drive(drive) => {
                if drive.address.is_none() && drive.store.is_none() {
                    jobs.push((0, self.job(JobKind::Echo, 0, Some(0), 0)));
                }
                jobs.push((0, self.job(JobKind::Drive, 0, Some(0), 0)));
            }
        }
        if self.plan.probe.is_some() {
            for host in 0..self.hosts.count() {
                jobs.push((host, self.job(JobKind::Probe, host, None, host)));
            }
        }
        let busy = self
            .plan
            .faults
            .iter()
            .filter(|fault| fault.kind == FaultKind::Busy);
        for (number, fault) in busy.enumerate() {
            let mut job = self.job(JobKind::Stress, number, None, 0);
            job.cpus = fault.cpu.into_iter().collect();
            job.stress = Some(Stress {
                threads: fault.threads,
                at: fault.at,
                duration: fault.duration.unwrap_or(DurationNs(0)),
            });
            jobs.push((0, job));
        }
        jobs
    }

    fn job(&self, kind: JobKind, number: usize, id: Option<usize>, host: usize) -> Job {
        let prefix = if kind == JobKind::Mesh {
            "agent"
        } else {
            kind.name()
        };
        let name = format!("{prefix}-{number}");
        // A busy neighbour's victim stays where its neighbour is.
        let beside = self.plan.faults.iter().find(|fault| {
            fault.kind == FaultKind::Busy && fault.process == name && fault.cpu.is_some()
        });
        let cpus = self
            .plan
            .pins
            .get(&name)
            .cloned()
            .or_else(|| beside.and_then(|fault| fault.cpu).map(|cpu| vec![cpu]));
        Job {
            schema: PROTOCOL_VERSION,
            run: self.run.id.clone(),
            kind,
            id: id.and_then(|id| u16::try_from(id).ok()),
            host: self.hosts.name(host),
            cells: self
                .run
                .cells
                .iter()
                .map(|cell| cell.name.clone())
                .collect(),
            cell: u16::try_from(self.cell).unwrap_or(u16::MAX),
            repeat: self.repeat,
            cookie: self.run.cookie,
            listen: self.hosts.listen(host),
            port: 0,
            cpus: cpus.unwrap_or_default(),
            stress: None,
            plan: self.plan.clone(),
            name,
        }
    }

    /// Runs the leg to its end.
    pub(super) fn run(mut self, number: usize, progress: &mut Progress) -> Result<LegEnd> {
        self.wait_until_ready()?;
        let started_mono_ns = self.start();
        let cell = &self.run.cells[self.cell].name;
        progress.begin(number, cell, self.children.len());
        let measure_ns = started_mono_ns + nanoseconds(self.plan.run.warmup);
        let mut todo = deeds(&self.plan.faults, measure_ns);
        self.supervise(&mut todo, progress);
        self.end(progress);
        self.services.iter_mut().for_each(Services::stop);
        self.events.seal()?;
        let hosts = (0..self.hosts.count())
            .map(|host| self.hosts.name(host))
            .collect();
        Ok(LegEnd {
            processes: self
                .children
                .iter()
                .map(|child| self.process(child))
                .chain(self.service_processes())
                .collect(),
            hosts,
            started_ns: self.clock.column(MonoNs(started_mono_ns)),
            missing: std::mem::take(&mut self.missing),
            stopped: self.stopped,
        })
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let until = Instant::now() + READY_PATIENCE;
        while self.children.iter().any(|child| child.ready.is_none()) {
            if self.run.stop.load(Ordering::Relaxed) {
                bail!("stopped before the start; wanted a run; hint: start it again");
            }
            match self.heard.recv_timeout(LOOK_PERIOD) {
                Ok((number, Some(Report::Ready(ready)))) => {
                    self.children[number].ready = Some(ready);
                }
                Ok((_, Some(Report::Finding { text, fatal: true }))) => bail!("{text}"),
                Ok((number, None)) => {
                    let child = &self.children[number];
                    bail!(
                        "{}: ended before it was ready; wanted a process; hint: see {}",
                        child.job.name,
                        child.log.display()
                    );
                }
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("no process is left"),
            }
            if Instant::now() > until {
                let late: Vec<&str> = self
                    .children
                    .iter()
                    .filter(|child| child.ready.is_none())
                    .map(|child| child.job.name.as_str())
                    .collect();
                bail!(
                    "{}: not ready after {} s; wanted all processes ready; hint: see {}",
                    late.join(", "),
                    READY_PATIENCE.as_secs(),
                    self.run.directory.join("logs").display()
                );
            }
        }
        Ok(())
    }

    /// Tells everyone who takes part, and the instant to start: one wall-clock instant, on each
    /// process's own monotonic clock. Returns it on ours.
    fn start(&mut self) -> i64 {
        let peers: Vec<PeerLine> = self
            .children
            .iter()
            .filter(|child| {
                matches!(
                    child.job.kind,
                    JobKind::Mesh | JobKind::Echo | JobKind::Drive
                )
            })
            .map(|child| PeerLine {
                name: child.job.name.clone(),
                id: child.job.id,
                host: child.job.host.clone(),
                pid: child.pid(),
                address: child.ready.as_ref().and_then(|ready| ready.address.clone()),
            })
            .chain(self.service_lines())
            .collect();
        let line = serde_json::to_string(&peers).unwrap_or_else(|_| "[]".to_owned());
        for child in &mut self.children {
            child.say(&format!("peers {line}"));
        }
        let start_ns = monotonic().0 + LEAD_NS;
        let ours = ClockPair::now();
        for child in &mut self.children {
            let Some(theirs) = child.ready.as_ref().map(|ready| ready.clock) else {
                continue;
            };
            // On this host both are one clock, and the two pairs differ only by a step between them.
            let same_host = (theirs.mono_ns - ours.mono_ns).abs() < 3_600_000_000_000;
            let start_wall_ns = ours.wall_ns + (start_ns - ours.mono_ns);
            let their_start_ns = if same_host {
                start_ns
            } else {
                theirs.mono_ns + (start_wall_ns - theirs.wall_ns)
            };
            child.say(&format!("start {their_start_ns}"));
        }
        start_ns
    }

    /// What is started for the run is watched like its own processes.
    fn service_lines(&self) -> impl Iterator<Item = PeerLine> {
        let services = self.services.iter().flat_map(|it| &it.children);
        services.map(|child| PeerLine {
            name: child.name.clone(),
            id: None,
            host: self.hosts.name(0),
            pid: child.pid(),
            address: None,
        })
    }

    /// Until all have drained or died, or the run is stopped.
    fn supervise(&mut self, todo: &mut Vec<Deed>, progress: &mut Progress) {
        while !self
            .children
            .iter()
            .filter(|child| child.job.kind.asks())
            .all(Child::is_over)
        {
            self.do_deeds(todo, progress);
            if self.run.stop.load(Ordering::Relaxed) {
                progress.note("stopping; what was measured is kept");
                self.stopped = true;
                break;
            }
            let next_ns = todo.first().map_or(i64::MAX, |deed| deed.at_ns);
            let wait_ns = u64::try_from(next_ns.saturating_sub(monotonic().0)).unwrap_or(0);
            let wait = Duration::from_nanos(wait_ns).min(LOOK_PERIOD);
            if let Ok((number, said)) = self.heard.recv_timeout(wait)
                && self.hear(number, said, progress)
            {
                self.stopped = true;
                break;
            }
            self.bury_services(progress);
            progress.show();
        }
        // Whoever is still frozen must hear the stop.
        for child in &self.children {
            child.signal(Signal::SIGCONT);
        }
    }

    fn do_deeds(&mut self, todo: &mut Vec<Deed>, progress: &Progress) {
        while todo.first().is_some_and(|deed| deed.at_ns <= monotonic().0) {
            let deed = todo.remove(0);
            let Some(host) = self.signal(&deed) else {
                continue;
            };
            progress.note(&format!("fault: {} gets {}", deed.process, deed.signal));
            let kind = match deed.signal {
                Signal::SIGSTOP => "fault stop",
                Signal::SIGCONT => "fault continue",
                _ => "fault kill",
            };
            self.event(kind, &deed.process, &host, None);
        }
    }

    /// Does it to the process that it is for. Returns the process's host.
    fn signal(&self, deed: &Deed) -> Option<String> {
        let of_run = self.children.iter();
        if let Some(child) = of_run.clone().find(|it| it.job.name == deed.process) {
            child.signal(deed.signal);
            return Some(child.job.host.clone());
        }
        let services = self.services.iter().flat_map(|it| &it.children);
        let child = services.into_iter().find(|it| it.name == deed.process)?;
        child.signal(deed.signal);
        Some(self.hosts.name(0))
    }

    /// A service that ended is told, and the run goes on: its clients' rows say what that means.
    fn bury_services(&mut self, progress: &Progress) {
        let ended = self.services.as_mut().map(Services::ended);
        for (name, exit) in ended.unwrap_or_default() {
            progress.note(&format!("{name} {exit} before its time; the others go on"));
            self.missing.push(format!("{name} {exit} before its time"));
            let host = self.hosts.name(0);
            self.event("process died", &name, &host, Some(&exit.to_string()));
        }
    }

    /// Takes what a process said. Returns whether the run must stop.
    fn hear(&mut self, number: usize, said: Option<Report>, progress: &mut Progress) -> bool {
        let name = self.children[number].job.name.clone();
        match said {
            Some(Report::Progress {
                scheduled,
                dropped,
                failed,
                responses_ns,
                lag_ns,
            }) => {
                progress.heard(number, (scheduled, dropped), failed, &responses_ns, lag_ns);
            }
            Some(Report::Finding { text, fatal }) => {
                progress.note(&format!("{name}: {text}"));
                self.missing.push(format!("{name}: {text}"));
                return fatal;
            }
            Some(Report::Note { text }) => progress.note(&format!("{name}: {text}")),
            Some(Report::Drained) => self.children[number].drained = true,
            Some(Report::Done { counts, failure }) => {
                self.children[number].drained = true;
                self.children[number].counts = counts;
                self.missing
                    .extend(failure.map(|failure| format!("{name}: {failure}")));
            }
            Some(Report::Ready(_)) => {}
            None => self.died(number, progress),
        }
        false
    }

    /// The output of a process closed: it ended, or is about to.
    fn died(&mut self, number: usize, progress: &Progress) {
        let child = &mut self.children[number];
        let until = Instant::now() + Duration::from_secs(1);
        while !child.reap() && Instant::now() < until {
            std::thread::yield_now();
        }
        if child.drained && child.counts.is_some() {
            return;
        }
        let (name, host) = (child.job.name.clone(), child.job.host.clone());
        let ended = child
            .exit
            .map_or_else(|| "ended".to_owned(), |exit| exit.to_string());
        if child.job.id.is_some() {
            progress.note(&format!("{name} {ended} before its time; the others go on"));
            self.missing.push(format!("{name} {ended} before its time"));
        }
        self.event("process died", &name, &host, Some(&ended));
    }

    fn event(&mut self, kind: &str, process: &str, host: &str, detail: Option<&str>) {
        let row = serde_json::json!({
            "cell": self.run.cells[self.cell].name, "repeat": self.repeat, "host": host,
            "process": process, "kind": kind, "detail": detail,
            "started_ns": self.clock.column_now(), "ended_ns": null,
        });
        if let Err(error) = self.events.append(&row) {
            self.missing
                .push(format!("an event ({kind}) is missing: {error}"));
        }
    }

    /// Stops everyone, hears their last words, and ends whoever does not.
    fn end(&mut self, progress: &mut Progress) {
        for child in &mut self.children {
            child.say("stop");
        }
        let until = Instant::now() + END_PATIENCE;
        while Instant::now() < until {
            let mut all = true;
            for child in &mut self.children {
                all &= child.reap();
            }
            match self.heard.recv_timeout(LOOK_PERIOD) {
                Ok((number, Some(said))) => {
                    self.hear(number, Some(said), progress);
                }
                Ok((_, None)) => {}
                Err(_) if all => break,
                Err(_) => {}
            }
        }
        for number in 0..self.children.len() {
            if !self.children[number].reap() {
                let name = self.children[number].job.name.clone();
                self.missing.push(format!(
                    "{name} did not stop within {} s",
                    END_PATIENCE.as_secs()
                ));
                self.children[number].end();
            }
        }
    }

    fn service_processes(&self) -> impl Iterator<Item = Process> {
        let children = self.services.iter().flat_map(|it| {
            let version = &it.version;
            it.children.iter().map(move |child| (child, version))
        });
        children.map(|(child, version)| Process {
            name: child.name.clone(),
            kind: "service".to_owned(),
            id: None,
            cell: self.run.cells[self.cell].name.clone(),
            repeat: self.repeat,
            host: self.hosts.name(0),
            pid: Some(child.pid()),
            runtime: version.clone(),
            exit: child.exit,
            counts: None,
        })
    }

    fn process(&self, child: &Child) -> Process {
        Process {
            name: child.job.name.clone(),
            kind: child.job.kind.name().to_owned(),
            id: child.job.id,
            cell: self.run.cells[self.cell].name.clone(),
            repeat: self.repeat,
            host: child.job.host.clone(),
            pid: Some(child.pid()),
            runtime: "native".to_owned(),
            exit: child.exit,
            counts: child.counts.clone(),
        }
    }
}

/// Starts the store of a cell, where the run is to start it, and says in the plan where it is.
fn start_services(
    run: &Run,
    plan: &mut Plan,
    cell: usize,
    repeat: u16,
    progress: &Progress,
) -> Result<Option<Services>> {
    let Load::Drive(drive) = &mut plan.load else {
        return Ok(None);
    };
    let Some(store) = &mut drive.store else {
        return Ok(None);
    };
    let Some(name) = store.url.service().map(str::to_owned) else {
        return Ok(None);
    };
    let services = Services::start(
        &name,
        &Ground {
            directory: &run.directory,
            stem: format!("c{cell}r{repeat}"),
            stop: &run.stop,
            pins: &plan.pins,
            say: &|text| progress.note(text),
        },
    )?;
    store.url = services.url.clone();
    let password = services.password.as_deref().or(run.password.as_deref());
    super::meet_store(drive, password)?;
    Ok(Some(services))
}

fn events_of(run: &Run, plan: &Plan, cell: usize, repeat: u16) -> TableSpool {
    let meta = SegmentMeta {
        run: run.id.clone(),
        host: "local".to_owned(),
        process: "runner".to_owned(),
        tag: plan.tag.clone(),
    };
    let directory: &Path = &run.directory;
    TableSpool::new(
        Table::Events,
        directory,
        &format!("runner-c{cell}r{repeat}"),
        meta,
    )
}

fn nanoseconds(duration: DurationNs) -> i64 {
    i64::try_from(duration.0).unwrap_or(i64::MAX / 4)
}
