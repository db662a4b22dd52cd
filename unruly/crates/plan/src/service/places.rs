//! Where the processes of a service are while it runs, and what its templates become with that.

use std::collections::BTreeMap;
use std::sync::Arc;

use minijinja::Value;
use minijinja::value::{Enumerator, Object, ObjectRepr};

use super::ServiceStep;
use super::parameter::ParameterValue;
use super::template::Template;
use crate::error::PlanError;

/// Where a process of a service is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePlace {
    /// The name of the process.
    pub name: String,
    /// The name that it shares with the others of its count.
    pub group: Option<String>,
    /// Its number among those, from 1.
    pub number: usize,
    /// The address it listens on.
    pub host: String,
    /// The address where others reach it, which is another one when something stands before it.
    pub front: String,
    /// Its ports, by what they are for.
    pub ports: BTreeMap<String, u16>,
    /// The process's folder, which is removed with the process.
    pub folder: String,
    /// The process's log, which stays with the run.
    pub log: String,
}

/// All that the names in a template may stand for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServicePlaces {
    /// The processes, in the order of the file.
    pub processes: Vec<ServicePlace>,
    /// The values of the parameters.
    pub parameters: BTreeMap<String, ParameterValue>,
    /// Everything else: what steps saved, and paths of the program.
    pub words: BTreeMap<String, String>,
}

impl ServicePlaces {
    /// Returns the place of a process.
    #[must_use]
    pub fn place(&self, name: &str) -> Option<&ServicePlace> {
        self.processes.iter().find(|it| it.name == name)
    }

    /// Returns the place of a process, to change it.
    #[must_use]
    pub fn place_mut(&mut self, name: &str) -> Option<&mut ServicePlace> {
        self.processes.iter_mut().find(|it| it.name == name)
    }

    /// Keeps what a step said, if it has a name for it.
    pub fn save(&mut self, step: &ServiceStep, said: String) {
        if let Some(name) = &step.save {
            self.words.insert(name.clone(), said);
        }
    }

    /// Returns a template with its values: what the process `own` knows of itself, `processes`, the
    /// parameters, and saved words.
    ///
    /// # Errors
    ///
    /// Returns the place of an expression that stands for nothing.
    pub fn render(&self, own: Option<&str>, template: &Template) -> Result<String, PlanError> {
        let mut values: BTreeMap<String, Value> = BTreeMap::new();
        let parameters = self.parameters.iter();
        values.extend(parameters.map(|(name, value)| (name.clone(), value.of_template())));
        let words = self.words.iter();
        values.extend(words.map(|(name, word)| (name.clone(), word.as_str().into())));
        if let Some(place) = own.and_then(|own| self.place(own)) {
            values.extend(place.values());
        }
        let processes = self.processes.iter();
        let processes = Processes(processes.map(|it| (it.clone(), it.value())).collect());
        values.insert("processes".to_owned(), Value::from_object(processes));
        template.render(values)
    }
}

impl ServicePlace {
    /// What templates know of it, by name.
    fn values(&self) -> impl Iterator<Item = (String, Value)> {
        let texts = [
            ("name", &self.name),
            ("host", &self.host),
            ("front", &self.front),
            ("folder", &self.folder),
            ("log", &self.log),
        ];
        let texts = texts.map(|(name, text)| (name.to_owned(), Value::from(text.as_str())));
        let ports = self.ports.iter();
        let ports = ports.map(|(name, port)| (name.clone(), Value::from(*port)));
        let number = ("number".to_owned(), Value::from(self.number));
        texts.into_iter().chain(ports).chain([number])
    }

    fn value(&self) -> Value {
        Value::from_pairs(self.values())
    }
}

/// The processes as a template has them: a list, and each by its name. The name that several share
/// is the list of those.
#[derive(Debug)]
struct Processes(Vec<(ServicePlace, Value)>);

impl Object for Processes {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        if let Some(at) = key.as_usize() {
            return self.0.get(at).map(|(_, value)| value.clone());
        }
        let name = key.as_str()?;
        let of_name = self.0.iter().find(|(place, _)| place.name == name);
        if let Some((_, value)) = of_name {
            return Some(value.clone());
        }
        let of_group = self
            .0
            .iter()
            .filter(|(place, _)| place.group.as_deref() == Some(name));
        let of_group: Vec<Value> = of_group.map(|(_, value)| value.clone()).collect();
        (!of_group.is_empty()).then(|| Value::from(of_group))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.0.len())
    }
}
