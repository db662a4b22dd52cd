//! One trial of a run: a cell, once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use unruly_agent::Report;
use unruly_plan::{Load, Plan};
use unruly_trace::{
    Clock, ClockPair, ColumnNs, DurationNs, Host, MonoNs, Process, TableSpool, monotonic,
};

use super::Run;
use super::child::{Child, ChildGround, Way};
use super::death::Death;
use super::faults::Faults;
use super::judge::Judge;
use super::namespaces::Hosts;
use super::processes::Processes;
use super::progress::Progress;
use super::quota::Quota;
use super::telling::events_of;
use crate::services::{Ground, NotStarted, Services, settings_of};

/// Time that a load has to end after its schedule. A stream gives up after 10 s if
/// its reader does not read.
const SILENCE: DurationNs = DurationNs::seconds(20);
/// A request that is tried again is late by several timeouts.
const LATE_TIMEOUTS: i64 = 16;
/// The longest pause before a request is tried again.
const TRY_PAUSE: DurationNs = DurationNs::seconds(1);
/// A process that is not ready by then never will be: two virtual machines, one after the other, have what they
/// wait for behind them.
const READY_TIMEOUT: Duration = Duration::from_secs(150);
/// Time for open replies after a person stops the run.
const STOP_TIMEOUT: DurationNs = DurationNs::seconds(1);
/// Time for writing the last segments after `stop`.
const END_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval at which the runner checks its processes if none reports.
pub(super) const LOOK_PERIOD: Duration = Duration::from_millis(100);

/// How a trial ended.
#[derive(Debug)]
pub(super) struct TrialEnd {
    pub(super) processes: Vec<Process>,
    /// The hosts; of those on this machine the name alone.
    pub(super) hosts: Vec<Host>,
    pub(super) missing: Vec<String>,
    pub(super) deaths: Vec<Death>,
    /// What broke it but for the death of a process.
    pub(super) broken: Vec<String>,
    pub(super) stopped: bool,
    pub(super) started_ns: ColumnNs,
}

/// A trial in progress.
pub(super) struct Trial<'a> {
    pub(super) run: &'a Run,
    pub(super) cell: usize,
    pub(super) repeat: u16,
    /// The cell's plan, with the addresses of the services started for it.
    pub(super) plan: Plan,
    pub(super) processes: Processes,
    pub(super) events: TableSpool,
    pub(super) clock: Clock,
    pub(super) missing: Vec<String>,
    deaths: Vec<Death>,
    broken: Vec<String>,
    /// The first instant of its schedule.
    started_mono_ns: MonoNs,
    /// How much each process had asked before it.
    loaded: Vec<u64>,
    stopped: bool,
    pub(super) faults: Faults,
    /// The control groups of processes with a CPU limit, or that a fault will limit.
    pub(super) quotas: BTreeMap<String, Quota>,
    /// Those that a fault has killed, whose end is no surprise.
    pub(super) killed: BTreeSet<String>,
    /// Who says whether the run knows enough.
    pub(super) judge: Option<Judge>,
}

impl<'a> Trial<'a> {
    /// Starts the processes of a trial.
    pub(super) fn new(run: &'a Run, cell: usize, repeat: u16, progress: &Progress) -> Result<Self> {
        let mut plan = run.cells[cell].plan.clone();
        let services = start_services(run, &mut plan, cell, repeat, progress)?;
        let agents = match &plan.load {
            Load::Mesh(mesh) => usize::from(mesh.agents),
            Load::Drive(_) => 1,
            Load::Stream(stream) => usize::from(stream.readers) + 1,
        };
        let hosts = Hosts::of(&plan, agents)?;
        let (sender, heard) = channel();
        let mut trial = Self {
            run,
            cell,
            repeat,
            events: events_of(run, &plan, cell, repeat),
            plan,
            processes: Processes {
                hosts,
                services,
                children: Vec::new(),
                heard,
                lost_hosts: BTreeSet::new(),
                clocks_asked: Instant::now(),
                relay: None,
            },
            clock: Clock::new(ClockPair::now()),
            missing: Vec::new(),
            deaths: Vec::new(),
            broken: Vec::new(),
            started_mono_ns: MonoNs(0),
            loaded: Vec::new(),
            stopped: false,
            faults: Faults::default(),
            quotas: BTreeMap::new(),
            killed: BTreeSet::new(),
            judge: None,
        };
        let mut known = BTreeSet::new();
        for (host, job) in trial.jobs(agents) {
            let hosts = &trial.processes.hosts;
            let prefix = hosts.prefix(host);
            let way = match hosts.reached(host) {
                Some(reached) => Way::There(reached, known.insert(host)),
                None => Way::Here(&prefix),
            };
            let number = trial.processes.children.len();
            let child = Child::start(number, job, &trial.ground(), way, sender.clone())?;
            trial.processes.children.push(child);
        }
        Ok(trial)
    }

    /// Where its processes write, and what lets them into the store.
    fn ground(&self) -> ChildGround {
        let own = self
            .processes
            .services
            .as_ref()
            .and_then(|it| it.password.clone());
        ChildGround {
            directory: self.run.directory.clone(),
            password: own.or_else(|| self.run.password.clone()),
        }
    }

    /// Runs the trial to its end.
    pub(super) fn run(mut self, number: usize, progress: &mut Progress) -> Result<TrialEnd> {
        self.wait_until_ready()?;
        self.processes.compare_clocks()?;
        self.processes.start_relay(&self.plan)?;
        self.judge = self.plan.run.until.map(Judge::start).transpose()?;
        self.processes.introduce();
        let scheduled = self.wait_until_loaded(progress)?;
        self.set_quotas()?;
        self.loaded.clone_from(&scheduled);
        let started_mono_ns = self.processes.start(&self.plan);
        self.started_mono_ns = started_mono_ns;
        let cell = &self.run.cells[self.cell].name;
        progress.begin(number, cell, scheduled.clone(), &self.plan);
        let measure_ns = started_mono_ns + nanoseconds(self.plan.run.warmup);
        self.faults = Faults::new(&self.plan.faults, measure_ns, self.plan.run.duration);
        self.supervise(started_mono_ns, progress);
        self.undo_faults(progress);
        self.end(progress);
        self.check_services(progress);
        self.processes.services.iter_mut().for_each(Services::stop);
        self.tell_pauses(started_mono_ns);
        self.tell_reached(&scheduled, progress);
        self.tell_until();
        self.events.seal()?;
        self.tell_steps();
        let hosts = self.processes.host_facts();
        Ok(TrialEnd {
            processes: self.process_rows(),
            hosts,
            started_ns: self.clock.column(started_mono_ns),
            missing: std::mem::take(&mut self.missing),
            deaths: std::mem::take(&mut self.deaths),
            broken: std::mem::take(&mut self.broken),
            stopped: self.stopped,
        })
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let until = Instant::now() + READY_TIMEOUT;
        while self
            .processes
            .children
            .iter()
            .any(|child| child.ready.is_none())
        {
            if self.run.stop.load(Ordering::Relaxed) {
                bail!("stopped before the start; wanted a run; hint: start it again");
            }
            match self.processes.heard.recv_timeout(LOOK_PERIOD) {
                Ok((number, Some(Report::Ready(ready)))) => {
                    self.processes.children[number].ready = Some(ready);
                }
                Ok((number, Some(Report::Finding { text, fatal: true }))) => {
                    let child = &self.processes.children[number];
                    let place = child
                        .reached
                        .as_ref()
                        .map(|_| format!("host {}: ", child.job.host));
                    bail!("{}{text}", place.unwrap_or_default())
                }
                Ok((number, None)) => bail!("{}", not_ready(&self.processes.children[number])),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("no process is left"),
            }
            if Instant::now() > until {
                let late: Vec<&str> = self
                    .processes
                    .children
                    .iter()
                    .filter(|child| child.ready.is_none())
                    .map(|child| child.job.name.as_str())
                    .collect();
                bail!(
                    "{}: not ready after {} s; wanted all processes ready; hint: see {}",
                    late.join(", "),
                    READY_TIMEOUT.as_secs(),
                    self.run.directory.join("logs").display()
                );
            }
        }
        Ok(())
    }

    /// Until all have drained or died, or the run is stopped. Who stops it waits a moment for the
    /// replies that are on their way, and does not wait when they ask a second time.
    fn supervise(&mut self, started_ns: MonoNs, progress: &mut Progress) {
        let mut latest_ns = self.latest_ns(started_ns);
        while !self
            .processes
            .children
            .iter()
            .filter(|child| child.job.kind.asks())
            .all(Child::is_over)
        {
            self.do_faults(progress);
            if self.run.stop.swap(false, Ordering::Relaxed) {
                if self.stopped {
                    break;
                }
                progress.note("stopping; the measurements so far are kept");
                self.stopped = true;
                self.processes.finish();
                latest_ns = monotonic() + STOP_TIMEOUT;
            }
            if monotonic() > latest_ns {
                if !self.stopped {
                    self.give_up(progress);
                }
                break;
            }
            let next_ns = self.faults.next_ns().unwrap_or(MonoNs(i64::MAX));
            let wait = next_ns.saturating_since(monotonic()).to_std();
            let wait = wait.min(LOOK_PERIOD);
            if let Ok((number, said)) = self.processes.heard.recv_timeout(wait)
                && self.hear(number, said, progress)
            {
                self.stopped = true;
                break;
            }
            self.watch_hosts(progress);
            self.finish_when_enough(progress);
            for told in self.bury_services() {
                progress.note(&told);
            }
            progress.show();
        }
    }

    /// When even the last word that may be late is overdue.
    fn latest_ns(&self, started_ns: MonoNs) -> MonoNs {
        let run = &self.plan.run;
        let late = match &self.plan.load {
            Load::Mesh(mesh) => nanoseconds(mesh.timeout) * LATE_TIMEOUTS,
            Load::Drive(drive) => {
                let tries = 1 + drive.store.as_ref().map_or(0, |it| i64::from(it.retries));
                let waits = nanoseconds(drive.timeout) * LATE_TIMEOUTS.max(tries);
                waits + TRY_PAUSE * (tries - 1)
            }
            Load::Stream(stream) => nanoseconds(stream.wind_down),
        };
        [
            nanoseconds(run.warmup),
            nanoseconds(run.duration),
            late,
            SILENCE,
        ]
        .into_iter()
        .fold(started_ns, MonoNs::saturating_add)
    }

    /// Asks the hosts for their clocks, and goes on without those that are silent.
    pub(super) fn watch_hosts(&mut self, progress: &Progress) {
        self.processes.ask_clocks();
        for told in self.processes.drop_silent() {
            progress.note(&told);
            self.broken.push(told);
        }
    }

    /// Goes on without those that have not said that they are over: a process that is frozen holds no run.
    fn give_up(&mut self, progress: &Progress) {
        let asking = self
            .processes
            .children
            .iter()
            .filter(|it| it.job.kind.asks());
        for child in asking.filter(|it| !it.is_over()) {
            let told = format!("{} has not ended in time", child.job.name);
            progress.note(&format!("{told}; the run goes on without it"));
            self.broken.push(told);
        }
    }

    /// Has the asking end when enough is known.
    fn finish_when_enough(&mut self, progress: &Progress) {
        let Some(look) = self.judge.as_mut().and_then(Judge::look) else {
            return;
        };
        progress.note(&format!("until: {}", look.said));
        if look.enough {
            self.processes.finish();
        }
    }

    /// Has a service check its own data. A contradiction breaks the trial: its replies were wrong.
    fn check_services(&mut self, progress: &Progress) {
        let Some(services) = &self.processes.services else {
            return;
        };
        let name = services.name.clone();
        let wrong = match services.check() {
            Ok(None) => return,
            Ok(Some(wrong)) => wrong,
            Err(error) => format!("{error:#}"),
        };
        let told = format!("{name}: its data contradict themselves: {wrong}");
        progress.note(&told);
        let now = (self.clock.column_now(), None);
        self.event("check failed", &name, Some(&wrong), now);
        self.broken.push(told);
    }

    /// Reports services that have ended. The run goes on, and its clients' rows show the effect.
    /// Returns messages for the person who watches.
    pub(super) fn bury_services(&mut self) -> Vec<String> {
        let ended = self.processes.services.as_mut().map(Services::ended);
        let mut told = Vec::new();
        for (name, exit) in ended.unwrap_or_default() {
            if !self.killed.contains(&name) {
                told.push(format!("{name} {exit} before its time; the others go on"));
                self.missing.push(format!("{name} {exit} before its time"));
            }
            let now = (self.clock.column_now(), None);
            self.event("process died", &name, Some(&exit.to_string()), now);
        }
        told
    }

    /// Takes what a process said. Returns whether the run must stop.
    pub(super) fn hear(
        &mut self,
        number: usize,
        said: Option<Report>,
        progress: &mut Progress,
    ) -> bool {
        let name = self.processes.children[number].job.name.clone();
        match said {
            Some(Report::Progress(line)) => {
                self.judge
                    .iter_mut()
                    .for_each(|judge| judge.hear(number, &line.bins));
                progress.heard(number, &line);
            }
            Some(Report::Flowed { bytes }) => progress.flowed(bytes),
            Some(Report::Finding { text, fatal }) => {
                progress.note(&format!("{name}: {text}"));
                // Without it the run is not whole, whether or not the others go on.
                self.broken.push(format!("{name}: {text}"));
                return fatal;
            }
            Some(Report::Note { text }) => progress.note(&format!("{name}: {text}")),
            Some(Report::Drained) => self.processes.children[number].drained = true,
            Some(Report::Done { counts, failure }) => {
                self.processes.children[number].drained = true;
                self.processes.children[number].counts = counts;
                self.broken
                    .extend(failure.map(|failure| format!("{name}: {failure}")));
            }
            Some(Report::Ready(_) | Report::Loaded { .. }) => {}
            None => {
                self.closed(number, progress);
                self.died(number, progress);
            }
        }
        false
    }

    /// Nothing more comes from a process: from one on another host all files must have come.
    fn closed(&mut self, number: usize, progress: &Progress) {
        let child = &mut self.processes.children[number];
        child.is_silent = true;
        if child.has_lost_files() {
            let (name, host) = (&child.job.name, &child.job.host);
            let told = format!("host {host}: the rows of {name} did not arrive");
            progress.note(&told);
            self.broken.push(told);
        }
    }

    /// The output of a process closed: it ended, or is about to.
    fn died(&mut self, number: usize, progress: &Progress) {
        let child = &mut self.processes.children[number];
        let until = Instant::now() + Duration::from_secs(1);
        while !child.process.reap() && Instant::now() < until {
            std::thread::yield_now();
        }
        if child.drained && child.counts.is_some() {
            return;
        }
        let name = child.job.name.clone();
        let ended = child
            .process
            .exit()
            .map_or_else(|| "ended".to_owned(), |exit| exit.to_string());
        progress.note(&format!("{name} {ended} before its time; the others go on"));
        self.deaths.push(Death {
            job: child.job.clone(),
            ended: ended.clone(),
            elapsed_ns: monotonic() - self.started_mono_ns,
            loaded: self.loaded.get(number).copied().unwrap_or(0),
            planned: self.killed.contains(&name),
        });
        let now = (self.clock.column_now(), None);
        self.event("process died", &name, Some(&ended), now);
    }

    /// Stops all processes, waits for their last reports, and kills the ones that do not end.
    fn end(&mut self, progress: &mut Progress) {
        for child in &mut self.processes.children {
            child.say("stop");
        }
        let (mut until, mut received, mut asked) = (Instant::now() + END_TIMEOUT, None, false);
        while Instant::now() < until && !self.is_given_up(&mut asked, progress) {
            self.watch_hosts(progress);
            let now = self
                .processes
                .children
                .iter()
                .filter_map(Child::received_at)
                .max();
            if now > received {
                (until, received) = (Instant::now() + END_TIMEOUT, now);
            }
            let mut all = true;
            for child in &mut self.processes.children {
                // What a host sends may still be on its way when the connection has ended.
                all &= child.process.reap() && (child.is_silent || child.reached.is_none());
            }
            match self.processes.heard.recv_timeout(LOOK_PERIOD) {
                Ok((number, Some(said))) => {
                    self.hear(number, Some(said), progress);
                }
                Ok((number, None)) => self.closed(number, progress),
                Err(_) if all => break,
                Err(_) => {}
            }
        }
        for number in 0..self.processes.children.len() {
            let child = &mut self.processes.children[number];
            let (name, is_late) = (child.job.name.clone(), !child.process.reap());
            if is_late && child.reached.is_none() {
                let seconds = END_TIMEOUT.as_secs();
                self.broken
                    .push(format!("{name} did not stop within {seconds} s"));
            }
            if is_late {
                child.process.end();
            }
            if !self.processes.children[number].is_silent {
                self.closed(number, progress);
            }
        }
    }

    /// Returns whether somebody who stops the run, and then again, waits no longer for the files of
    /// other hosts.
    fn is_given_up(&mut self, asked: &mut bool, progress: &Progress) -> bool {
        let mut children = self.processes.children.iter();
        let waits = children.any(|it| it.reached.is_some());
        if !waits || !self.run.stop.swap(false, Ordering::Relaxed) {
            return false;
        }
        self.stopped = true;
        if *asked {
            return true;
        }
        *asked = true;
        progress.note("the files of other hosts are coming; stop again to go without them");
        false
    }
}

/// Returns why a process is not there, in the words of what it complained of.
fn not_ready(child: &Child) -> String {
    let Some(reached) = &child.reached else {
        let log = child.log.display();
        return format!(
            "{}: ended before it was ready; wanted a process; hint: see {log}",
            child.job.name
        );
    };
    let said = child.complaint();
    let said = if said.is_empty() {
        "the connection ended without a word"
    } else {
        said.trim()
    };
    format!(
        "host {}: {said}; wanted the program there; hint: try {}, which waits for a line",
        child.job.host, reached.shown
    )
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
    let called = store.calls.is_some();
    let spans = store.spans;
    let settings = settings_of(&name, drive.system.is_some(), &plan.service)?;
    let services = Services::start(
        &name,
        &Ground {
            directory: &run.directory,
            stem: format!("c{cell}r{repeat}"),
            stop: &run.stop,
            settings: &settings,
            pins: &plan.pins,
            faults: &plan.faults,
            seed: plan.seed,
            address: plan.run.listen,
            spans,
            say: &|text| progress.note(text),
        },
    )
    .with_context(|| NotStarted(name.clone()))?;
    anyhow::ensure!(
        services.url.is_program() || !called,
        "system {name}: its url is {}; wanted program:COMMAND; hint: unruly/docs/middleware.md",
        services.url
    );
    anyhow::ensure!(
        store.scenario().is_none() || services.url.may_have_cookies(),
        "service {name}: its url is {}, and the plan has a scenario; hint: choose a service that speaks HTTP, such as board",
        services.url
    );
    store.url = services.url.clone();
    // The run removes the service with everything in it, so no key needs removing.
    store.keep = true;
    let password = services.password.as_ref().or(run.password.as_ref());
    super::meet_store(drive, password, super::MEET_TIMEOUT)
        .with_context(|| NotStarted(name.clone()))?;
    Ok(Some(services))
}

/// Returns a plan's length of time with a sign, as instants need it.
pub(super) fn nanoseconds(duration: unruly_plan::DurationNs) -> DurationNs {
    DurationNs::from_unsigned(duration.0)
}
