//! The processes of a trial: its agents, its services, and the relays before them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use nix::sys::signal::Signal;
use unruly_agent::{JobKind, PeerLine};
use unruly_plan::{Fault, FaultKind, Plan};
use unruly_trace::{DurationNs, Host, MonoNs, monotonic};

use super::child::{Child, Heard};
use super::namespaces::Hosts;
use super::trial::{LOOK_PERIOD, nanoseconds};
use crate::reach::{Clocks, Span};
use crate::relay::Relay;
use crate::services::Services;
use crate::services::held::Holder;

/// Time between `start` and the first instant of the schedule, in which every process
/// reads the line.
const LEAD: DurationNs = DurationNs::millis(300);
/// Answers of a host about its clock before a start.
const EXCHANGES: usize = 8;
/// Time that a host has for them.
const CLOCK_TIMEOUT: Duration = Duration::from_secs(20);
/// A host that is asked each second, and says nothing for so long, is lost.
const SILENT: DurationNs = DurationNs::seconds(15);
/// How often a host is asked for its clock.
const CLOCK_PERIOD: Duration = Duration::from_secs(1);
/// Time to end for the processes of a trial that was given up: longer than an agent waits for its
/// JVM.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(7);

/// The processes of a trial, on their hosts.
pub(super) struct Processes {
    pub(super) hosts: Hosts,
    pub(super) services: Option<Services>,
    pub(super) children: Vec<Child>,
    pub(super) heard: Receiver<Heard>,
    /// Hosts that were silent for too long.
    pub(super) lost_hosts: BTreeSet<String>,
    /// When the hosts were last asked for their clocks.
    pub(super) clocks_asked: Instant,
    /// The relay before the echo server, if the plan has a fault of its network.
    pub(super) relay: Option<Relay>,
}

impl Processes {
    /// Tells everyone who takes part.
    pub(super) fn introduce(&mut self) {
        let line = self.peers();
        for child in &mut self.children {
            child.say(&line);
        }
    }

    /// Asks each host for its clocks, once a second.
    pub(super) fn ask_clocks(&mut self) {
        if self.clocks_asked.elapsed() >= CLOCK_PERIOD {
            self.clocks_asked = Instant::now();
            self.children.iter_mut().for_each(Child::ask_clock);
        }
    }

    /// Ends the connections to hosts from which nothing has come for long, although they were asked.
    /// Returns a sentence about each.
    pub(super) fn drop_silent(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        for child in &mut self.children {
            if child.silence().is_some_and(|it| it > SILENT) {
                child.process.end();
                let (host, seconds) = (&child.job.host, SILENT.to_std().as_secs());
                if self.lost_hosts.insert(host.clone()) {
                    told.push(format!(
                        "host {host}: it is silent for {seconds} s; the others go on"
                    ));
                }
            }
        }
        told
    }

    /// Compares the clocks of all hosts with ours, several times, so that the load of all of them
    /// starts at one instant.
    pub(super) fn compare_clocks(&mut self) -> Result<()> {
        let until = Instant::now() + CLOCK_TIMEOUT;
        loop {
            let mut all = true;
            for child in &mut self.children {
                child.ask_clock();
                let answers = child.clocks(Clocks::len);
                all &= answers.is_none_or(|it| it >= EXCHANGES);
            }
            if all {
                return Ok(());
            }
            let few = |it: &&mut Child| it.clocks(Clocks::len).is_some_and(|it| it < EXCHANGES);
            if let Some(child) = self.children.iter_mut().find(few)
                && (Instant::now() > until || child.process.reap())
            {
                bail!(
                    "host {}: it does not answer; wanted the time of its clock; hint: is the connection slow?",
                    child.job.host
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns the facts of each host; of those on this machine the name alone.
    pub(super) fn host_facts(&self) -> Vec<Host> {
        let names = (0..self.hosts.count()).map(|number| self.hosts.name(number));
        let has_processes = |name: &String| self.children.iter().any(|it| it.job.host == *name);
        let names = names.filter(has_processes);
        names.map(|name| self.facts_of(&name)).collect()
    }

    fn facts_of(&self, name: &str) -> Host {
        let mut of_host = self.children.iter().filter(|it| it.job.host == name);
        let reached = of_host.find_map(|it| it.reached.as_ref());
        let facts = reached.and_then(|it| it.facts.lock().ok()?.clone());
        let clock = reached.and_then(|it| it.clocks.lock().ok()?.bounds());
        Host {
            name: name.to_owned(),
            clock,
            ..facts.unwrap_or_else(|| Host::unknown(name))
        }
    }

    /// Returns the time from the start message to the load: longer than the slowest host
    /// may take to hear of it.
    fn lead(&self) -> DurationNs {
        let widths = self.children.iter().filter_map(|child| {
            let span = child.clocks(|it| it.mono_at(monotonic()))??;
            Some(span.width())
        });
        LEAD + widths.max().unwrap_or_default() * 4
    }

    /// Tells everyone the instant to start: one instant, on each process's own monotonic clock.
    /// Returns it on ours.
    pub(super) fn start(&mut self, plan: &Plan) -> MonoNs {
        let begin_ns = monotonic() + self.lead();
        // What competes with the load is at work before it.
        let lead = plan
            .compete
            .map_or(DurationNs::ZERO, |it| nanoseconds(it.lead));
        for child in &mut self.children {
            let competes = child.job.kind == JobKind::Compete;
            let start_ns = begin_ns + if competes { DurationNs::ZERO } else { lead };
            // Processes on this host have our clock.
            let span = child.clocks(|it| it.mono_at(monotonic())).flatten();
            let their_start_ns = start_ns + span.map_or(DurationNs::ZERO, Span::middle);
            child.say(&format!("start {}", their_start_ns.0));
        }
        begin_ns + lead
    }

    /// Who takes part, as a line.
    fn peers(&self) -> String {
        let own = self.children.iter().filter(|child| {
            matches!(
                child.job.kind,
                JobKind::Mesh
                    | JobKind::Echo
                    | JobKind::Drive
                    | JobKind::Writer
                    | JobKind::Reader
                    | JobKind::Compete
                    | JobKind::Spans
                    | JobKind::Tap
            )
        });
        let own = own.map(|child| PeerLine {
            name: child.job.name.clone(),
            id: child.job.id,
            host: child.job.host.clone(),
            pid: child.worker_pid(),
            address: self.address_of(child),
        });
        let all = own.chain(self.service_lines()).chain(self.relay_line());
        let peers: Vec<PeerLine> = all.collect();
        let line = serde_json::to_string(&peers).unwrap_or_else(|_| "[]".to_owned());
        format!("peers {line}")
    }

    /// Tells those who watch that somebody has another number now.
    pub(super) fn say_peers_again(&mut self) {
        let line = self.peers();
        let children = self.children.iter_mut();
        for child in children.filter(|it| matches!(it.job.kind, JobKind::Probe | JobKind::Tap)) {
            child.say(&line);
        }
    }

    /// Returns the address at which others reach a process: that of its relay, if it has one.
    fn address_of(&self, child: &Child) -> Option<String> {
        let own = child.ready.as_ref().and_then(|ready| ready.address.clone());
        match &self.relay {
            Some(relay) if child.job.kind == JobKind::Echo => {
                relay.addresses().first().map(ToString::to_string)
            }
            _ => own,
        }
    }

    /// What stands before the echo server, where the plan does something to its network.
    pub(super) fn start_relay(&mut self, plan: &Plan) -> Result<()> {
        let wanted = |fault: &Fault| matches!(fault.kind, FaultKind::Network(_));
        let echo = self.children.iter().find(|it| it.job.kind == JobKind::Echo);
        let address = echo.and_then(|it| it.ready.as_ref()?.address.clone());
        let (true, Some(address)) = (plan.faults.iter().any(wanted), address) else {
            return Ok(());
        };
        let to: SocketAddr = address.parse()?;
        let listen = SocketAddr::new(to.ip(), 0);
        self.relay = Some(Relay::start(&[(listen, to)], plan.seed)?);
        Ok(())
    }

    /// A relay is a part of the runner, which is watched when there is one.
    fn relay_line(&self) -> Option<PeerLine> {
        let of_service = self.services.as_ref().is_some_and(Services::has_relay);
        (of_service || self.relay.is_some()).then(|| PeerLine {
            name: "relay".to_owned(),
            id: None,
            host: self.hosts.name(0),
            pid: std::process::id(),
            address: None,
        })
    }

    /// What is started for the run is watched like its own processes.
    fn service_lines(&self) -> impl Iterator<Item = PeerLine> {
        let services = self.services.iter().flat_map(|it| &it.children);
        services.map(|child| PeerLine {
            name: child.name.clone(),
            id: None,
            host: self.hosts.name(0),
            pid: child.process.pid(),
            address: None,
        })
    }

    /// Has those that ask send nothing more, and end when all was answered.
    pub(super) fn finish(&mut self) {
        for child in self.children.iter_mut().filter(|it| it.job.kind.asks()) {
            child.say("finish");
        }
    }

    /// Does it to a process.
    pub(super) fn signal(&mut self, process: &str, signal: Signal) {
        if let Some(child) = self.children.iter_mut().find(|it| it.job.name == process) {
            child.do_signal(signal);
        }
        let mut services = self.services.iter().flat_map(|it| &it.children);
        if let Some(child) = services.find(|it| it.name == process) {
            child.process.signal(signal);
        }
    }

    /// How far the clock of a process's host is ahead of ours.
    pub(super) fn ahead_of(&self, process: &str) -> DurationNs {
        let own = self.children.iter().find(|it| it.job.name == process);
        own.map_or(DurationNs::ZERO, Child::ahead)
    }

    /// A process on another host.
    pub(super) fn there(&mut self, process: &str) -> Option<&mut Child> {
        let mut children = self.children.iter_mut();
        children.find(|it| it.job.name == process && it.reached.is_some())
    }

    /// All processes that something can be done to.
    pub(super) fn names(&self) -> Vec<String> {
        let services = self.services.iter().flat_map(|it| &it.children);
        let own = self.children.iter().map(|it| it.job.name.clone());
        services.map(|it| it.name.clone()).chain(own).collect()
    }

    /// The names that a fault may use: those of processes, and of roles in a group of a service.
    pub(super) fn victims(&self) -> Vec<String> {
        let roles = self.services.iter().flat_map(Services::roles);
        self.names().into_iter().chain(roles).collect()
    }

    /// Returns the processes for which a name of [`Self::victims`] may stand.
    pub(super) fn candidates(&self, name: &str) -> Vec<String> {
        let services = self.services.as_ref();
        services.map_or_else(|| vec![name.to_owned()], |it| it.candidates(name))
    }

    /// A process, or all of a competing load.
    pub(super) fn pids_of(&self, process: &str) -> Vec<u32> {
        let services = self.services.iter().flat_map(|it| &it.children);
        let services = services.filter(|it| it.name == process);
        let own = self.children.iter().filter(|it| {
            let rest = it.job.name.strip_prefix(process);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        });
        let services = services.map(|it| it.process.pid());
        services.chain(own.map(|it| it.process.pid())).collect()
    }

    pub(super) fn relay(&self, process: &str) -> Option<&Relay> {
        let of_service = self.services.iter().find_map(|it| it.relay(process));
        of_service.or(self.relay.as_ref())
    }

    pub(super) fn hold_disk(&self, process: &str, what: impl FnOnce(&Holder)) {
        let mut services = self.services.iter().flat_map(|it| &it.children);
        let child = services.find(|it| it.name == process);
        if let Some(disk) = child.and_then(|it| it.disk.as_ref()) {
            what(disk);
        }
    }

    /// Returns the host of a process.
    pub(super) fn host_of(&self, process: &str) -> String {
        let own = self.children.iter().find(|it| it.job.name == process);
        own.map_or_else(|| self.hosts.name(0), |it| it.job.host.clone())
    }
}

impl Drop for Processes {
    /// Ends the processes of a trial that was given up. Each is notified by the end of its input, and
    /// removes its memory and files. One that does not end is ended with everything that it started.
    fn drop(&mut self) {
        self.children.iter_mut().for_each(Child::hang_up);
        let until = Instant::now() + LEAVE_TIMEOUT;
        while !self.children.iter_mut().all(|it| it.process.reap()) && Instant::now() < until {
            std::thread::sleep(LOOK_PERIOD);
        }
    }
}
