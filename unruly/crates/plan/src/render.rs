//! A plan as TOML with nothing left to default, so that a run's record is complete.

use crate::keys;
use crate::keys::key::{Table, list, quoted};
use crate::limits::DEFAULT_QUOTA_PERIOD;
use crate::model::{Factor, Load, Plan};

impl Plan {
    /// The plan as resolved: every default written out. Parsing it gives the same plan.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut out = Writer(keys::top::PLAN.lines(self));
        out.section(&keys::run::RUN, &self.run);
        match &self.load {
            Load::Mesh(mesh) => out.section(&keys::mesh::MESH, mesh),
            Load::Drive(drive) => {
                out.section(&keys::drive::DRIVE, drive);
                let store = drive.store.as_deref();
                out.0 += &store.map_or_else(String::new, |it| keys::store::STORE.lines(it));
            }
            Load::Stream(stream) => out.section(&keys::stream::STREAM, stream),
        }
        if let Some(compete) = &self.compete {
            out.section(&keys::compete::COMPETE, compete);
        }
        if let Some(jvm) = &self.jvm {
            out.section(&keys::jvm::JVM, jvm);
        }
        out.section(&keys::probe::PROBE, &self.probe);
        if self.tap.is_some() {
            out.section(&keys::tap::TAP, &self.tap);
        }
        for host in &self.reached {
            out.header("[[host]]");
            out.0 += &keys::host::HOST.lines(host);
        }
        for fault in &self.faults {
            out.header("[[fault]]");
            out.0 += &keys::fault::FAULT.lines(fault);
        }
        let pins = self.pins.iter();
        out.map("[pin]", pins.map(|(process, cpus)| (process, list(cpus))));
        if !self.quotas.is_empty() || self.quota_period != DEFAULT_QUOTA_PERIOD {
            out.section(&keys::quota::QUOTA, &self.quota_period);
        }
        for (process, cores) in &self.quotas {
            out.0 += &format!("{} = {cores}\n", quoted(process));
        }
        let service = self.service.iter();
        out.map(
            "[service]",
            service.map(|(name, setting)| (name, setting.literal())),
        );
        let factors = self.matrix.iter().map(|Factor { path, values, .. }| {
            (path, list(values.iter().map(|value| quoted(value))))
        });
        out.map("[matrix]", factors);
        out.0
    }
}

struct Writer(String);

impl Writer {
    fn header(&mut self, header: &str) {
        self.0 += &format!("\n{header}\n");
    }

    fn section<S>(&mut self, table: &Table<S>, values: &S) {
        self.header(&format!("[{}]", table.name));
        self.0 += &table.lines(values);
    }

    /// A section whose keys are names of the plan; nothing if it has none.
    fn map<'a>(
        &mut self,
        header: &str,
        values: impl ExactSizeIterator<Item = (&'a String, String)>,
    ) {
        if values.len() > 0 {
            self.header(header);
        }
        for (key, value) in values {
            self.0 += &format!("{} = {value}\n", quoted(key));
        }
    }
}
