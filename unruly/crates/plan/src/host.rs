//! Hosts that a run reaches by a command: `[[host]]`.

use serde::{Deserialize, Serialize};

use crate::error::PlanError;
use crate::keys::host as keys;
use crate::limits::MAX_REACHED_HOSTS;
use crate::model::{Hosts, Load, Plan};
use crate::section::Section;

/// The name of the host of the runner, which no other has.
pub const LOCAL_HOST: &str = "local";

/// The program on another host, unless a plan names another one.
pub const HOST_PROGRAM: &str = "unruly";

/// A host on which a run starts processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReachedHost {
    /// Its name in the rows.
    pub name: String,
    /// The command that starts a program there and passes its standard input and output on, such as
    /// `ssh node-1`.
    pub reach: Vec<String>,
    /// The program `unruly` there.
    pub program: String,
    /// The run copies its own program there first.
    pub install: bool,
}

/// Reads the hosts of a plan.
pub(crate) fn hosts(top: &Section<'_>) -> Result<Vec<ReachedHost>, PlanError> {
    let most = MAX_REACHED_HOSTS;
    let sections = top.tables("host", "[[host]]", most, "measure from fewer hosts")?;
    let mut hosts: Vec<ReachedHost> = Vec::with_capacity(sections.len());
    for section in &sections {
        let host = host(section)?;
        if hosts.iter().any(|it| it.name == host.name) {
            let wrong = format!("two hosts have the name {:?}", host.name);
            let key = keys::NAME;
            return Err(section.complain(key.name, wrong, "must differ", key.example()));
        }
        hosts.push(host);
    }
    Ok(hosts)
}

fn host(section: &Section<'_>) -> Result<ReachedHost, PlanError> {
    keys::HOST.check(section)?;
    let key = keys::NAME;
    let Some(name) = key.read(section)? else {
        return Err(section.missing(key.name, "must be a name", key.example()));
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > 64 || name == LOCAL_HOST || !name.chars().all(fits) {
        let wanted = "must be 1 to 64 of A-Z a-z 0-9 . _ -, and not local";
        return Err(section.refuse(key.name, wanted, key.example()));
    }
    let program = keys::PROGRAM.read(section)?.unwrap_or_default().to_owned();
    let install = keys::INSTALL.read(section)?;
    if install && program != HOST_PROGRAM {
        let wrong = format!("the program is {program:?}, and install is true");
        let wanted = "must have one of them: the run chooses where it installs";
        return Err(section.complain(keys::PROGRAM.name, wrong, wanted, "remove program"));
    }
    Ok(ReachedHost {
        name: name.to_owned(),
        reach: reach(section)?,
        program,
        install,
    })
}

fn reach(section: &Section<'_>) -> Result<Vec<String>, PlanError> {
    let key = keys::REACH;
    let hint = key.hint("[\"ssh\", \"node-1\"]");
    let values = section.list(key.name, &hint)?;
    let values =
        values.ok_or_else(|| section.missing(key.name, "must be a command", hint.clone()))?;
    let words = values.into_iter().map(|value| {
        let word = value.as_str().filter(|it| !it.is_empty());
        word.map(str::to_owned)
            .ok_or_else(|| section.refuse(key.name, "must hold words", hint.clone()))
    });
    words.collect()
}

/// Refuses what a plan with hosts cannot have.
pub(crate) fn check(top: &Section<'_>, plan: &Plan) -> Result<(), PlanError> {
    if plan.reached.is_empty() {
        return Ok(());
    }
    let refuse =
        |wrong: &str, wanted: &str, hint: &str| Err(top.complain("host", wrong, wanted, hint));
    if plan.run.hosts != Hosts::Processes {
        let wrong = "the plan has [[host]] and run.hosts = \"namespaces\"";
        return refuse(wrong, "must have one of them", "remove run.hosts");
    }
    let Load::Drive(drive) = &plan.load else {
        let wrong = "the plan has [[host]] without [drive]";
        let wanted = "must have [drive]: agents and streams compare stamps of both ends, which have one clock here";
        return refuse(wrong, wanted, "remove [[host]]");
    };
    if drive.times.is_some() {
        let wrong = "the plan has [[host]] and a replay";
        let wanted = "must send by another schedule: the file is on this host";
        return refuse(wrong, wanted, "arrivals = \"poisson\"");
    }
    if usize::from(drive.processes) < plan.reached.len() {
        let hint = format!("processes = {}", plan.reached.len());
        let wanted = "must have a process for each host";
        return refuse("the plan has [[host]] and fewer processes", wanted, &hint);
    }
    if drive.address.is_none() && drive.store.is_none() {
        let wrong = "the plan has [[host]] and its own echo server";
        let wanted = "must name a server that the hosts can reach";
        return refuse(wrong, wanted, "drive.address");
    }
    if plan.load.has_service() {
        let wanted = "must name a server that runs: a service listens on this host alone";
        return refuse(
            "the plan has [[host]] and a service",
            wanted,
            "url = \"redis://192.0.2.12\"",
        );
    }
    check_reach(top, plan)
}

/// Refuses faults and quotas of a process that is on another host.
fn check_reach(top: &Section<'_>, plan: &Plan) -> Result<(), PlanError> {
    let own = plan.load.processes();
    let is_there = |name: &String| own.contains(name);
    let victims = plan.faults.iter().flat_map(|it| &it.processes);
    let mut named = victims.chain(plan.quotas.keys());
    if let Some(process) = named.find(|it| is_there(it)) {
        let wrong = format!("{process} is on another host");
        let wanted = "must be left alone: faults and quotas are for processes of this host";
        return Err(top.complain("host", wrong, wanted, "remove its [[fault]] and [quota]"));
    }
    Ok(())
}
