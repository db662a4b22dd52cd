//! The processes of a trial: its agents, its services, and the relays before them.

use std::net::SocketAddr;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;
use unruly_agent::{JobKind, PeerLine};
use unruly_plan::{Fault, FaultKind, Plan};
use unruly_trace::{ClockPair, DurationNs, MonoNs, monotonic};

use super::child::{Child, Heard};
use super::namespaces::Hosts;
use super::trial::{LOOK_PERIOD, nanoseconds};
use crate::relay::Relay;
use crate::services::Services;
use crate::services::held::Holder;

/// Time between `start` and the first instant of the schedule, in which every process
/// reads the line.
const LEAD: DurationNs = DurationNs::millis(300);
/// Time to end for the processes of a trial that was given up: longer than an agent waits for its
/// JVM.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(7);

/// The processes of a trial, on their hosts.
pub(super) struct Processes {
    pub(super) hosts: Hosts,
    pub(super) services: Option<Services>,
    pub(super) children: Vec<Child>,
    pub(super) heard: Receiver<Heard>,
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

    /// Tells everyone the instant to start: one wall-clock instant, on each process's own monotonic
    /// clock. Returns it on ours.
    pub(super) fn start(&mut self, plan: &Plan) -> MonoNs {
        let begin_ns = monotonic() + LEAD;
        // What competes with the load is at work before it.
        let lead = plan
            .compete
            .map_or(DurationNs::ZERO, |it| nanoseconds(it.lead));
        let ours = ClockPair::now();
        for child in &mut self.children {
            let Some(theirs) = child.ready.as_ref().map(|ready| ready.clock) else {
                continue;
            };
            // On this host both are one clock, and the two pairs differ only by a step between them.
            let same_host = (theirs.mono_ns - ours.mono_ns).abs() < DurationNs::seconds(3_600);
            let competes = child.job.kind == JobKind::Compete;
            let start_ns = begin_ns + if competes { DurationNs::ZERO } else { lead };
            let start_wall_ns = ours.wall_ns + (start_ns - ours.mono_ns);
            let their_start_ns = if same_host {
                start_ns
            } else {
                theirs.mono_ns + (start_wall_ns - theirs.wall_ns)
            };
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
    pub(super) fn signal(&self, process: &str, signal: Signal) {
        if let Some(child) = self.children.iter().find(|it| it.job.name == process) {
            child.signal(signal);
        }
        let mut services = self.services.iter().flat_map(|it| &it.children);
        if let Some(child) = services.find(|it| it.name == process) {
            child.process.signal(signal);
        }
    }

    /// All processes that something can be done to.
    pub(super) fn names(&self) -> Vec<String> {
        let services = self.services.iter().flat_map(|it| &it.children);
        let own = self.children.iter().map(|it| it.job.name.clone());
        services.map(|it| it.name.clone()).chain(own).collect()
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
