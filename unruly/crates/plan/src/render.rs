//! A plan as TOML with nothing left to default, so that a run's record is complete.

use std::fmt::Display;

use crate::arrivals::Arrivals;
use crate::fault::{Fault, FaultKind};
use crate::keys::compete::COMPETE;
use crate::keys::jvm::JVM;
use crate::keys::key::{Table, quoted};
use crate::keys::stream::STREAM;
use crate::model::{Drive, Factor, Hosts, Load, Mesh, Plan, Workload};
use crate::store::Store;

impl Plan {
    /// The plan as resolved: every default written out. Parsing it gives the same plan.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut out = Writer::default();
        out.text("name", &self.name);
        out.bare("seed", self.seed);
        out.text("tag", &self.tag);
        out.table("[run]");
        out.text("duration", self.run.duration);
        out.text("warmup", self.run.warmup);
        out.bare("repeat", self.run.repeat);
        out.text(
            "hosts",
            match self.run.hosts {
                Hosts::Processes => "processes",
                Hosts::Namespaces => "namespaces",
            },
        );
        if let Some(until) = self.run.until {
            out.text("until", until);
        }
        if !self.run.slo.is_empty() {
            let texts = self.run.slo.iter().map(|slo| quoted(&slo.to_string()));
            out.bare("slo", list(texts));
        }
        match &self.load {
            Load::Mesh(mesh) => out.mesh(mesh),
            Load::Drive(drive) => out.drive(drive),
            Load::Stream(stream) => out.section(&STREAM, stream),
        }
        self.compete.iter().for_each(|it| out.section(&COMPETE, it));
        self.jvm.iter().for_each(|it| out.section(&JVM, it));
        out.table("[probe]");
        out.bare("enabled", self.probe.is_some());
        if let Some(probe) = &self.probe {
            out.text("period", probe.period);
        }
        self.faults.iter().for_each(|fault| out.fault(fault));
        if !self.pins.is_empty() {
            out.table("[pin]");
        }
        for (process, cpus) in &self.pins {
            out.bare(&quoted(process), list(cpus));
        }
        if !self.quotas.is_empty() {
            out.table("[quota]");
        }
        for (process, cores) in &self.quotas {
            out.bare(&quoted(process), cores);
        }
        if !self.matrix.is_empty() {
            out.table("[matrix]");
        }
        for Factor { path, values } in &self.matrix {
            out.bare(
                &quoted(path),
                list(values.iter().map(|value| quoted(value))),
            );
        }
        out.0
    }
}

#[derive(Default)]
struct Writer(String);

impl Writer {
    fn table(&mut self, header: &str) {
        self.0 += &format!("\n{header}\n");
    }

    fn section<S>(&mut self, table: &Table<S>, values: &S) {
        self.table(&format!("[{}]", table.name));
        self.0 += &table.lines(values);
    }

    fn bare(&mut self, key: &str, value: impl Display) {
        self.0 += &format!("{key} = {value}\n");
    }

    fn text(&mut self, key: &str, value: impl Display) {
        self.bare(key, quoted(&value.to_string()));
    }

    fn mesh(&mut self, mesh: &Mesh) {
        self.table("[mesh]");
        self.bare("agents", mesh.agents);
        self.bare("groups", list(&mesh.groups));
        self.text("period", mesh.period);
        self.text("regroup", mesh.regroup);
        let names = mesh.workloads.iter().copied().map(Workload::name);
        self.bare("workloads", list(names.map(quoted)));
        self.text("transport", mesh.transport.name());
        self.text("runtime", mesh.runtime.name());
        self.text("timeout", mesh.timeout);
        self.bare("in_flight", mesh.in_flight);
        self.text("body", mesh.body);
        self.text("disk_file", mesh.disk_file);
        if let Some(port) = mesh.port {
            self.bare("port", port);
        }
    }

    fn drive(&mut self, drive: &Drive) {
        self.table("[drive]");
        self.text("transport", drive.transport.name());
        if let Some(address) = &drive.address {
            self.text("address", address);
        }
        self.bare("clients", drive.clients);
        self.bare("processes", drive.processes);
        self.arrivals(&drive.arrivals);
        if let Some(times) = &drive.times {
            self.text("times", times);
        }
        if drive.store.is_none() {
            self.text("payload", drive.payload);
        }
        self.text("timeout", drive.timeout);
        self.bare("in_flight", drive.in_flight);
        if let Some(requests) = drive.requests {
            self.bare("requests", requests);
        }
        if let Some(store) = &drive.store {
            self.store(store);
        }
    }

    fn arrivals(&mut self, arrivals: &Arrivals) {
        self.text("arrivals", arrivals.name());
        match *arrivals {
            Arrivals::Constant { rate } | Arrivals::Poisson { rate } => self.text("rate", rate),
            Arrivals::Mmpp {
                rate,
                dispersion,
                burst_share,
                burst_factor,
            } => {
                self.text("rate", rate);
                self.bare("dispersion", dispersion);
                self.bare("burst_share", burst_share);
                self.bare("burst_factor", burst_factor);
            }
            Arrivals::OnOff {
                rate,
                on,
                off,
                shape,
            } => {
                self.text("rate", rate);
                self.text("on", on);
                self.text("off", off);
                self.bare("shape", shape);
            }
            Arrivals::Replay => {}
            Arrivals::Closed { think } => self.text("think", think),
        }
    }

    fn store(&mut self, store: &Store) {
        match store.url.service() {
            Some(name) => self.text("store", name),
            None => self.text("url", &store.url),
        }
        self.text("operations", &store.operations);
        if store.has_keys() {
            self.bare("keys", store.keys);
            self.text("order", store.order.name());
            self.bare("skew", store.skew);
        }
        self.text("value", store.value);
        if let Some(level) = store.level {
            self.text("level", level.name());
        }
        self.bare("pipeline", store.pipeline);
        self.bare("retries", store.retries);
        self.bare("preload", store.preload);
        if let Some(http) = &store.http {
            self.bare("connections", http.connections);
            self.text("expect", &http.expect);
        }
        self.bare("keep", store.keep);
    }

    fn fault(&mut self, fault: &Fault) {
        self.table("[[fault]]");
        self.text("kind", fault.kind.name());
        match fault.processes.as_slice() {
            [one] => self.text("process", one),
            several => self.bare("process", list(several.iter().map(|it| quoted(it)))),
        }
        self.text("at", fault.at);
        if let Some(duration) = fault.duration {
            self.text("duration", duration);
        }
        if let Some(every) = fault.every {
            self.text("every", every);
        }
        match fault.kind {
            FaultKind::Busy { cpu, threads } => {
                cpu.iter().for_each(|cpu| self.bare("cpu", cpu));
                self.bare("threads", threads);
            }
            FaultKind::Quota { cores } => self.bare("cores", cores),
            FaultKind::Network(network) => {
                self.text("delay", network.delay);
                self.text("jitter", network.jitter);
                self.bare("loss", network.loss);
            }
            FaultKind::Stop | FaultKind::Kill | FaultKind::Disk => {}
        }
    }
}

fn list<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    format!("[{}]", items.join(", "))
}
