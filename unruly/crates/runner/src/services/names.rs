//! Checks that the processes that a plan names are there in one of its cells.

use std::collections::BTreeSet;

use anyhow::Result;
use unruly_plan::{Cell, Load, PlanError, did_you_mean};

/// In `[pin]`, every process of the service that has no pin of its own.
pub(super) const ALL: &str = "service";

/// Checks the names in `[pin]`, `[quota]` and `[[fault]]` against the processes of all cells.
///
/// Cells may differ in their store, so a name must be there in one of them.
///
/// # Errors
///
/// Returns the first name that no cell has, or the first fault none of whose processes is there.
pub(crate) fn check_processes(cells: &[Cell]) -> Result<()> {
    let mut known = BTreeSet::new();
    let mut roles = BTreeSet::new();
    for cell in cells {
        let Load::Drive(drive) = &cell.plan.load else {
            return Ok(());
        };
        match drive.store.as_ref().and_then(|it| it.url.service()) {
            Some(name) => {
                let file = super::service(name)?;
                let settings = match drive.system {
                    Some(_) => super::own_settings(&file, &cell.plan.service),
                    None => cell.plan.service.clone(),
                };
                let service = file.with(&settings)?;
                roles.extend(service.roles());
                known.extend(service.processes.into_iter().map(|it| it.name));
            }
            None if drive.system.is_some() => known.extend(cell.plan.load.processes()),
            // Processes of a store that is not ours are unknown.
            None => return Ok(()),
        }
        known.extend((0..drive.processes).map(|number| format!("drive-{number}")));
        known.insert("probe-0".to_owned());
        known.extend(cell.plan.tap.as_ref().map(|_| "tap-0".to_owned()));
    }
    let victims = &known | &roles;
    for plan in cells.iter().map(|cell| &cell.plan) {
        for name in plan.pins.keys().filter(|it| *it != ALL) {
            check("pin", std::slice::from_ref(name), &known)?;
        }
        for name in plan.quotas.keys() {
            check("quota", std::slice::from_ref(name), &known)?;
        }
        for fault in &plan.faults {
            check("fault.process", &fault.processes, &victims)?;
        }
    }
    Ok(())
}

fn check(key: &str, names: &[String], known: &BTreeSet<String>) -> Result<()> {
    if names.iter().any(|it| known.contains(it)) {
        return Ok(());
    }
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let all = known.join(", ");
    let hint = did_you_mean(&names[0], known, &format!("use one of {all}"));
    Err(PlanError {
        place: key.to_owned(),
        key: key.to_owned(),
        wrong: format!("no cell has the process {}", names.join(" or ")),
        wanted: format!("known: {all}"),
        hint,
    }
    .into())
}
