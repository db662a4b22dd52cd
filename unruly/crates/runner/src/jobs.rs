//! What each process of a trial is to do.

use unruly_agent::{Job, JobKind, PROTOCOL_VERSION, Stress};
use unruly_plan::{CompeteKind, Drive, FaultKind, Load, Runtime, Tap, Url};

use super::trial::Trial;
use crate::services::{MYSQL, Services};

impl Trial<'_> {
    /// The jobs of a trial, each with the number of its host.
    pub(super) fn jobs(&self, agents: usize) -> Vec<(usize, Job)> {
        let mut jobs = Vec::new();
        match &self.plan.load {
            Load::Mesh(mesh) => {
                for agent in 0..agents {
                    let host = self.processes.hosts.of_agent(agent);
                    let mut job = self.job(JobKind::Mesh, agent, Some(agent), host);
                    let offset = u16::try_from(agent).unwrap_or(u16::MAX);
                    job.port = mesh.port.map_or(0, |port| port.saturating_add(offset));
                    jobs.push((host, job));
                }
            }
            Load::Drive(drive) => {
                if self.plan.load.has_echo() {
                    jobs.push((0, self.job(JobKind::Echo, 0, Some(0), 0)));
                }
                if drive.spans().is_some() {
                    jobs.push((0, self.job(JobKind::Spans, 0, None, 0)));
                }
                if let Some(tap) = self.plan.tap() {
                    let mut job = self.job(JobKind::Tap, 0, None, 0);
                    job.taps = self.tapped(tap, drive);
                    jobs.push((0, job));
                }
                for number in 0..usize::from(drive.processes) {
                    let host = self.processes.hosts.of_generator(number);
                    jobs.push((host, self.job(JobKind::Drive, number, Some(number), host)));
                }
            }
            Load::Stream(stream) => {
                let host = self.processes.hosts.of_agent(0);
                jobs.push((host, self.job(JobKind::Writer, 0, Some(0), host)));
                for number in 0..usize::from(stream.readers) {
                    let host = self.processes.hosts.of_agent(number + 1);
                    let job = self.job(JobKind::Reader, number, Some(number + 1), host);
                    jobs.push((host, job));
                }
            }
        }
        jobs.extend(self.competing(agents));
        if self.plan.probe.is_some() {
            for host in 0..self.processes.hosts.count() {
                jobs.push((host, self.job(JobKind::Probe, host, None, host)));
            }
        }
        for (number, fault) in self.plan.faults.iter().enumerate() {
            if let FaultKind::Busy { cpu, threads } = fault.kind {
                let mut job = self.job(JobKind::Stress, number, None, 0);
                job.cpus = cpu.into_iter().collect();
                job.stress = Some(Stress {
                    threads,
                    times: fault.times(self.plan.run.duration).collect(),
                });
                jobs.push((0, job));
            }
        }
        jobs
    }

    /// The services that a tap watches: those that the plan names, else those that the run starts, else
    /// its target.
    fn tapped(&self, tap: &Tap, drive: &Drive) -> Vec<String> {
        if !tap.services.is_empty() {
            return tap.services.clone();
        }
        let started = self.processes.services.as_ref().map(Services::taps);
        let started = started.unwrap_or_default();
        if !started.is_empty() {
            return started;
        }
        let scheme = |url: &Url| if url.scheme == MYSQL { MYSQL } else { "tcp" };
        let store = drive.store.iter().flat_map(|it| {
            let places = it.url.places();
            places.map(|(host, port)| format!("{}://{host}:{port}", scheme(&it.url)))
        });
        let echo = drive.address.iter().map(|it| format!("tcp://{it}"));
        store.chain(echo).collect()
    }

    /// What competes with the load, on each of its hosts.
    fn competing(&self, agents: usize) -> Vec<(usize, Job)> {
        // A collector competes within the virtual machines of the load, where there are any.
        let within = match &self.plan.load {
            Load::Stream(stream) => stream.protocol.is_of_jvm(),
            Load::Mesh(mesh) => mesh.runtime != Runtime::Native,
            Load::Drive(_) => false,
        };
        let compete = self.plan.compete.filter(|it| match it.kind {
            CompeteKind::None => false,
            CompeteKind::Cpu => true,
            CompeteKind::Gc => !within,
        });
        let parts = compete.map_or(0, |it| match it.kind {
            CompeteKind::Cpu => it.processes,
            _ => 1,
        });
        let mut jobs = Vec::new();
        if compete.is_none() {
            return jobs;
        }
        let hosts = &self.processes.hosts;
        let places: Vec<usize> = match &self.plan.load {
            Load::Stream(_) => (0..hosts.of_ends(agents))
                .map(|end| hosts.of_agent(end))
                .collect(),
            Load::Mesh(_) | Load::Drive(_) => (0..hosts.count()).collect(),
        };
        for (number, host) in places.into_iter().enumerate() {
            let place = format!("{}-{number}", JobKind::Compete.name());
            for part in 0..parts {
                let mut job = self.job(JobKind::Compete, number, None, host);
                job.name = format!("{place}-{part}");
                job.cpus = self.plan.pins.get(&place).cloned().unwrap_or_default();
                jobs.push((host, job));
            }
        }
        jobs
    }

    pub(super) fn job(&self, kind: JobKind, number: usize, id: Option<usize>, host: usize) -> Job {
        let prefix = if kind == JobKind::Mesh {
            "agent"
        } else {
            kind.name()
        };
        let name = format!("{prefix}-{number}");
        // A busy neighbour's victim stays where its neighbour is.
        let mut faults = self
            .plan
            .faults
            .iter()
            .filter(|it| it.processes.contains(&name));
        let beside = faults.find_map(|fault| match fault.kind {
            FaultKind::Busy { cpu, .. } => cpu,
            _ => None,
        });
        let cpus = self
            .plan
            .pins
            .get(&name)
            .cloned()
            .or_else(|| beside.map(|cpu| vec![cpu]));
        Job {
            schema: PROTOCOL_VERSION,
            run: self.run.id.clone(),
            kind,
            id: id.and_then(|id| u16::try_from(id).ok()),
            host: self.processes.hosts.name(host),
            cells: self
                .run
                .cells
                .iter()
                .map(|cell| cell.name.clone())
                .collect(),
            cell: u16::try_from(self.cell).unwrap_or(u16::MAX),
            repeat: self.repeat,
            cookie: self.run.cookie,
            listen: self.processes.hosts.listen(host),
            port: 0,
            cpus: cpus.unwrap_or_default(),
            bins: self.run.live || self.plan.run.until.is_some(),
            stress: None,
            library: self.run.library.clone(),
            jvm: self.run.jvm.clone(),
            taps: Vec::new(),
            plan: self.plan.clone(),
            name,
        }
    }
}
