//! The names that the templates of a service may use.

use std::collections::BTreeSet;

use super::MANUAL;
use super::braces::{self, Old};
use super::file::ServiceFile;
use super::template::{Template, functions};
use crate::error::PlanError;
use crate::keys::did_you_mean;
use crate::section::Section;

/// What a process knows of itself, but for its ports.
pub(super) const OWN: [&str; 6] = ["name", "number", "host", "front", "folder", "log"];
/// What every template knows.
pub(super) const SHARED: [&str; 6] = ["processes", "bin", "jars", "jvm", "unpacked", "spans"];
/// Words of Jinja that cannot be names.
const JINJA: [&str; 12] = [
    "and", "or", "not", "in", "is", "if", "else", "true", "false", "none", "loop", "for",
];

/// Refuses what no template could name: a parameter, a port, or what a step saves.
pub(super) fn check(section: &Section<'_>, key: &str, name: &str) -> Result<(), PlanError> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(fits) {
        let wanted = "must be lower-case letters, digits and _, since templates use it";
        let hint = braces::identifier(name);
        return Err(section.complain(key, format!("the name is {name:?}"), wanted, hint));
    }
    let taken = OWN
        .iter()
        .chain(&SHARED)
        .chain(&JINJA)
        .any(|it| *it == name);
    if taken || functions().iter().any(|it| it == name) {
        let wrong = format!("the name is {name:?}");
        let wanted = "must be another: this word has a meaning in every template";
        return Err(section.complain(key, wrong, wanted, format!("{name}_of_mine")));
    }
    Ok(())
}

/// Checks every template of a file: its syntax, the names in it, and that each parameter is in one.
pub(super) fn check_all(file: &ServiceFile) -> Result<(), PlanError> {
    let parameters: Vec<&str> = file.parameters.iter().map(|it| it.name.as_str()).collect();
    let ports = file
        .processes
        .iter()
        .flat_map(|it| it.ports.iter().map(String::as_str));
    let saved = file.steps.iter().filter_map(|it| it.save.as_deref());
    let both: Vec<&str> = ports.chain(saved.clone()).collect();
    if let Some(parameter) = file.parameters.iter().find(|it| both.contains(&&*it.name)) {
        return Err(PlanError {
            place: parameter.place.clone(),
            key: format!("parameters.{}", parameter.name),
            wrong: format!(
                "{:?} is a parameter, and a port or what a step saves",
                parameter.name
            ),
            wanted: "must be one of them: a template could mean either".to_owned(),
            hint: "give one of them another name".to_owned(),
        });
    }
    let old = Old::of(&both, &parameters);
    let shared: Vec<&str> = [&SHARED[..], &parameters].concat();
    let global: Vec<&str> = shared.iter().copied().chain(saved).collect();
    let mut used = BTreeSet::new();
    let mut check = |template: &Template, known: &[&str]| {
        old.check(template)?;
        let names = template.names()?;
        known_only(template, &names, known)?;
        used.extend(names);
        Ok(())
    };
    for template in file.templates() {
        check(template, &global)?;
    }
    for process in &file.processes {
        if let Some(template) = &process.count {
            check(template, &parameters)?;
        }
        let number = [&parameters[..], &["number", "name"]].concat();
        for template in std::iter::once(&process.host).chain(&process.after) {
            check(template, &number)?;
        }
        let own: Vec<&str> = process.ports.iter().map(String::as_str).collect();
        let own = [&global[..], &OWN, &own].concat();
        for template in process.templates() {
            check(template, &own)?;
        }
    }
    match file.parameters.iter().find(|it| !used.contains(&it.name)) {
        Some(unused) => Err(PlanError {
            place: unused.place.clone(),
            key: format!("parameters.{}", unused.name),
            wrong: format!(
                "no file and no command uses the parameter {:?}",
                unused.name
            ),
            wanted: "must be used: otherwise a plan would vary nothing".to_owned(),
            hint: format!(
                "write {{{{ {} }}}} where it belongs, or remove it",
                unused.name
            ),
        }),
        None => Ok(()),
    }
}

/// Refuses a name that stands for nothing.
fn known_only(template: &Template, names: &[String], known: &[&str]) -> Result<(), PlanError> {
    let functions = functions();
    let is_known = |name: &&String| known.contains(&name.as_str()) || functions.contains(name);
    let Some(unknown) = names.iter().find(|name| !is_known(name)) else {
        return Ok(());
    };
    let line = template.line_of(unknown);
    let hint = did_you_mean(unknown, known.iter().copied(), MANUAL);
    let wrong = format!("{unknown:?} stands for nothing");
    let wanted = format!("known here: {}", known.join(", "));
    Err(template.complain(line, wrong, wanted, hint))
}
